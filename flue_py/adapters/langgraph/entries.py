"""What is read without being asked for: values, and nothing that calls a function.

LangGraph's serializer imports what a stored value names, and calls it, whatever it is. Whoever can write to a database
could have a program run any command so. What is read here names classes of which the serializer writes values.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import ipaddress
import os
import pathlib
import sys
import uuid
import zoneinfo
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import field as dataclasse_field
from enum import Enum
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, cast

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.usage import billed_by
from flue_py.errors import CorruptStore, InvalidEntry, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.checkpoint.serde.base import SerializerProtocol


# --- Safe deserialisation: values only, no call of a function
#
# LangGraph's serializer imports what a stored value names, and calls it, whatever it is. Whoever can write to a
# database could have a program run any command so. What is read here names classes of which the serializer writes
# values.

_FORMS = frozenset({"null", "bytes", "bytearray", "msgpack"})
_NAMING = frozenset(range(6))
"""The kinds of values that name what they are made by: a class, or a method of one."""
_HOLDING = frozenset({6, 7})
"""The kinds of values that may hold such a value, though they name nothing: arrays and snapshots of delta channels."""
_STANDARD = (
    *(set, frozenset, deque, Enum, uuid.UUID, decimal.Decimal, pathlib.PurePath, zoneinfo.ZoneInfo),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
    *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
)
_METHODS = ("model_dump", "get_secret_value", "dict", "_asdict")
"""What the serializer takes a value by: models of pydantic, secrets, and tuples with names."""
_ADVICE = (
    "nothing of it was read. LangGraph's serializer writes no such value unless it is told to: if it is meant, pass "
    "the serializer that wrote it, such as FlueSaver(..., serde=JsonPlusSerializer(...))"
)


def require_values(form: str, data: bytes) -> None:
    """Raise `CorruptStore` for what would call something else than a class of values, or would be unpickled. O(size).

    The modules of the classes are imported.
    """
    if form not in _FORMS:
        raise CorruptStore(f"a value of a checkpoint is stored as {shown(form)}: {_ADVICE}")
    if form != "msgpack":
        return
    named: list[object] = []

    def look(code: int, content: bytes) -> None:
        if code in _NAMING or code in _HOLDING:
            try:
                told = ormsgpack.unpackb(content, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            except ValueError:
                # The serializer may call what is around something that cannot be read.
                told = None
            if code in _NAMING:
                named.append(told)

    ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    for told in named:
        match told:
            case [str(module), str(name), *_] if _makes_values(module, name):
                continue
            case [str(module), str(name), *_]:
                raise CorruptStore(f"a value of a checkpoint names {module}.{name}, no class of values: {_ADVICE}")
        raise CorruptStore(f"a value of a checkpoint does not say plainly what class it is of: {_ADVICE}")


@lru_cache(maxsize=1024)
def _makes_values(module: str, name: str) -> bool:
    if (module, name) == ("re", "compile"):
        return True
    try:
        found = getattr(import_module(module), name)
    except Exception:  # noqa: BLE001 - the serializer gives back what is stored then, and calls nothing
        return True
    if not isinstance(found, type):
        return False
    if issubclass(found, _STANDARD):
        return True
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    is_framework = module in ("langgraph.types", "langgraph.store.base")
    return is_framework or is_dataclass(found) or any(callable(getattr(found, each, None)) for each in _METHODS)


# --- Values of a graph: plain JSON if possible, else serialised by the framework

_STRICT = ("1", "true", "yes")
_LARGEST = 2**63
_DEEPEST = 100


class Values:
    """The way of values into entries, by the serializer of a saver."""

    def __init__(self, serde: SerializerProtocol, *, is_default: bool = False) -> None:
        self._serde = serde
        # Whoever chooses a serializer chooses what it reads; and a strict one calls nothing by itself.
        self._is_guarded = is_default and os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() not in _STRICT
        # Only what the framework's own serializer does is known. Another one may encrypt, or write a form of its own.
        self.may_show = type(serde) is JsonPlusSerializer

    def stored(self, value: object) -> JsonObject:
        """Return a value as an entry has it. Raises what the serializer raises. O(size)."""
        if self.may_show and is_plain(value):
            return {"json": _copied(value)}  # type: ignore[dict-item]
        return self.serialized(value)

    def serialized(self, value: object) -> JsonObject:
        """Return a value as the serializer has it. Raises what that raises. O(size)."""
        form, data = self._serde.dumps_typed(value)
        return {"data": [form, b64encode(data).decode("ascii")]}

    def loaded(self, stored: JsonValue) -> object:
        """Return the value that `stored` gave this. Raises `CorruptStore`, and what the serializer raises. O(size)."""
        match stored:
            case {"json": value}:
                return _copied(value)
            case {"data": [str(form), str(data)]}:
                content = b64decode(data)
                if self._is_guarded:
                    require_values(form, content)
                return self._serde.loads_typed((form, content))
        raise CorruptStore("a value of a checkpoint is in no form that is known; run verify()")


def is_plain(value: object, depth: int = 0) -> bool:
    """Return whether JSON in UTF-8 gives a value back exactly: no subclass, no tuple, no number it would change."""
    if type(value) is list:
        return depth < _DEEPEST and all(is_plain(each, depth + 1) for each in value)
    if type(value) is dict:
        return depth < _DEEPEST and all(
            type(key) is str and is_text(key) and is_plain(each, depth + 1) for key, each in value.items()
        )
    check = _SCALARS.get(type(value))
    return check is not None and check(value)


def _copied(value: object) -> object:
    # A graph may change what it has put, and what it got: neither may reach what a process remembers.
    if type(value) is list:
        return [_copied(each) for each in value]
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    return value


def is_text(text: object) -> bool:
    """Return whether a text has no half of a surrogate pair."""
    if not isinstance(text, str) or text.isascii():
        return isinstance(text, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_always(value: object) -> bool:
    return True


_SCALARS: Mapping[type, Callable[[object], bool]] = {
    str: is_text,
    bool: _is_always,
    NoneType: _is_always,
    int: lambda value: isinstance(value, int) and -_LARGEST <= value < _LARGEST,
    float: lambda value: isinstance(value, float) and isfinite(value),
}
"""The types that JSON has, and which of their values it gives back."""


# --- Messages of LangChain as our messages, and back, value for value
#
# What our form has no place for is in the entry's ``extra``, as the difference between what our message alone would
# give back and the original. A message that JSON cannot hold, and one of a class that is not LangChain's, is there as
# the framework's serializer has it.

EXTRA = "langchain"
"""The field of an entry's ``extra`` with what our message does not say."""

_CLASSES: Mapping[str, type[BaseMessage]] = {
    known.__name__: known
    for known in (
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        HumanMessageChunk,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
        ToolMessageChunk,
    )
}
_KNOWN = frozenset(_CLASSES.values())
_USUAL = {"user": "HumanMessage", "assistant": "AIMessage", "system": "SystemMessage", "toolResult": "ToolMessage"}
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "toolResult"}
_STOPS = {
    "stop": "stop",
    "end_turn": "stop",
    "STOP": "stop",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
}


def entry_of(message: BaseMessage, values: Values, *, id: str, parent_id: str | None, call_scope: str) -> NewEntry:
    """Return a message as an entry; `message_of` gives it back. ``call_scope`` tells its calls from others' of its id.

    Raises what the serializer raises. O(size).
    """
    fields = _fields_of(message)
    name = type(message).__name__
    ours = _ours(message, fields)
    extra: JsonObject | None = None
    if _CLASSES.get(name) is type(message) and is_plain(fields):
        extra = _difference(name, ours, cast("JsonObject", fields))
        if not same(_rebuilt(ours, extra), message):
            extra = None
    if extra is None:
        extra = values.serialized(message)
    if not is_plain(ours):
        ours = {"role": str(ours["role"]), "content": message.text if is_plain(str(message.text)) else ""}
        if ours["role"] == "toolResult":
            ours["toolCallId"] = ""
    calls = _calls(message, ours, call_scope)
    try:
        return NewEntry.message(ours, id=id, parent_id=parent_id, extra={EXTRA: extra}, calls=calls)
    except InvalidEntry:
        # Whatever our form cannot say, the original is kept.
        shown: JsonObject = {"role": "langchain", "content": str(ours.get("content") or "")}
        kept = values.serialized(message)
        return NewEntry.message(shown, id=id, parent_id=parent_id, extra={EXTRA: kept})


def message_of(entry: Entry, values: Values) -> BaseMessage:
    """Return the message that an entry stands for, a new object each time; also one that was appended by hand.

    Raises `CorruptStore` for one that cannot be read, and what the serializer raises. O(size).
    """
    extra = entry.extra_fields.get(EXTRA)
    if isinstance(extra, dict) and "data" in extra:
        loaded = values.loaded(extra)
        if not isinstance(loaded, BaseMessage):
            raise CorruptStore(f"the message of entry {entry.id!r} is a {type(loaded).__name__}; run verify()")
        return loaded
    # What was not the framework's has the entry's id, and usage in a form that is not the framework's.
    by_hand: JsonObject = {"fields": {"id": entry.id} | ({"usage_metadata": None} if entry.role == "assistant" else {})}
    return _rebuilt(entry.fields, extra if isinstance(extra, dict) else by_hand)


def same(one: BaseMessage, other: BaseMessage) -> bool:
    """Return whether two messages are of one class and say the same. O(size)."""
    if type(one) is not type(other) or one.__dict__ != other.__dict__:
        return False
    beside, others = one.__pydantic_extra__, other.__pydantic_extra__
    return beside == others or (not beside and not others)


def are_messages(value: object) -> bool:
    """Return whether a value is a list of messages, and not an empty one. O(length)."""
    if type(value) is not list or not value:
        return False
    # As a rule all are of a few known classes, and asking each for its base takes longer.
    return _KNOWN.issuperset(map(type, value)) or all(isinstance(each, BaseMessage) for each in value)


def fresh(message: BaseMessage) -> BaseMessage:
    """Return a copy that shares nothing which can be changed. O(size)."""
    if _CLASSES.get(type(message).__name__) is not type(message):
        return copy.deepcopy(message)
    fields = {name: value if type(value) is str else _apart(value) for name, value in message.__dict__.items()}
    beside = {name: _apart(value) for name, value in (message.__pydantic_extra__ or {}).items()}
    return _made(type(message), fields, beside, set(message.__pydantic_fields_set__))


def _apart(value: object) -> object:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is dict:
        return {name: _apart(each) for name, each in cast("dict[object, object]", value).items()}
    if kind is list:
        return [_apart(each) for each in cast("list[object]", value)]
    return value if kind in (int, float, bool) else copy.deepcopy(value)


def _made(
    known: type[BaseMessage], fields: dict[str, object], beside: dict[str, object], given: set[str]
) -> BaseMessage:
    # Without validation, which would change what a program has put there itself, and take most of the time.
    made = object.__new__(known)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_extra__", beside)
    object.__setattr__(made, "__pydantic_fields_set__", given)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def _fields_of(message: BaseMessage) -> dict[str, object]:
    return {**message.__dict__, **(message.__pydantic_extra__ or {})}


def _ours(message: BaseMessage, fields: Mapping[str, object]) -> JsonObject:
    role = _ROLES.get(message.type.removesuffix("MessageChunk").lower(), "")
    if not role:
        role = str(fields.get("role") or message.type)
    ours: dict[str, object] = {"role": role, "content": _content(message.content)}
    about = message.response_metadata
    if isinstance(message, AIMessage):
        calls = [
            {"type": "toolCall", "id": call["id"] or "", "name": call["name"], "arguments": call["args"]}
            for call in message.tool_calls
        ]
        if calls:
            content = ours["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
            ours["content"] = [*cast("list[object]", parts), *calls]
        for field, names in (("provider", ("model_provider",)), ("model", ("model_name", "model", "model_id"))):
            found = next((about[name] for name in names if isinstance(about.get(name), str)), None)
            if found:
                ours[field] = found
        if message.usage_metadata is not None:
            beside = billed_by(about, about.get("usage") or about.get("token_usage"))
            ours["usage"] = {**message.usage_metadata, **beside}
        reason = about.get("finish_reason") or about.get("stop_reason")
        if isinstance(reason, str):
            ours["stopReason"] = _STOPS.get(reason, reason)
    if isinstance(message, ToolMessage):
        ours["toolCallId"] = message.tool_call_id
        if message.name:
            ours["toolName"] = message.name
        if message.status == "error":
            ours["isError"] = True
    return cast("JsonObject", ours)


def _content(content: str | Sequence[object]) -> object:
    if isinstance(content, str):
        return content
    # What the model called stands in `tool_calls`, too, whichever provider's part says it.
    calls = {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call"}
    return [_part(part) for part in content if not (isinstance(part, dict) and part.get("type") in calls)]


def _part(part: object) -> dict[str, object]:
    match part:
        case str(text):
            return {"type": "text", "text": text}
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "reasoning": str(text)}:
            signature = cast("dict[str, object]", part).get("signature")
            thinking: dict[str, object] = {"type": "thinking", "thinking": text}
            return thinking | {"thinkingSignature": signature} if isinstance(signature, str) else thinking
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image_url", "image_url": str(url)}:
            return {"type": "image", "url": url}
        case {"type": str(kind)}:
            # Under a name of its own, so that it is not taken for a part of ours that it only resembles.
            return {**cast("dict[str, object]", part), "type": f"langchain:{kind}"}
    return {"type": "langchain", "value": part}


def _difference(name: str, ours: JsonObject, fields: JsonObject) -> JsonObject:
    told = _told(ours)
    extra: JsonObject = {}
    if _USUAL.get(str(ours["role"])) != name:
        extra["class"] = name
    other = {field: value for field, value in fields.items() if field not in told or _differ(told[field], value)}
    if other:
        extra["fields"] = other
    return extra


def _differ(one: JsonValue, other: JsonValue) -> bool:
    # 1, 1.0 and True are equal, and are not the same value.
    return one != other or repr(one) != repr(other)


def _told(ours: JsonObject) -> JsonObject:
    """Return the fields of a LangChain message that a message of ours gives by itself, the empty ones among them."""
    content = ours.get("content")
    told: JsonObject = {"additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None}
    role = ours["role"]
    if role == "assistant":
        calls: list[JsonValue] = []
        if isinstance(content, list):
            found = [part for part in content if isinstance(part, dict) and part.get("type") == "toolCall"]
            calls = [
                {"name": part.get("name"), "args": part.get("arguments"), "id": part.get("id"), "type": "tool_call"}
                for part in found
            ]
            rest: list[JsonValue] = [part for part in content if part not in found]
            content = rest
            if found and len(rest) <= 1:
                text = rest[0].get("text") if rest and isinstance(rest[0], dict) else ""
                content = text if isinstance(text, str) else rest
        told |= {"tool_calls": calls, "invalid_tool_calls": [], "usage_metadata": _their_usage(ours), "type": "ai"}
    if role == "toolResult":
        told |= {"tool_call_id": ours.get("toolCallId", ""), "name": ours.get("toolName"), "artifact": None}
        told |= {"status": "error" if ours.get("isError") else "success", "type": "tool"}
    if role in ("user", "system"):
        told["type"] = "human" if role == "user" else "system"
    told["content"] = "" if content is None else content
    return told


def _their_usage(ours: JsonObject) -> JsonValue:
    """Return the usage of a message of theirs, which what we put beside it for its price is no part of."""
    usage = ours.get("usage")
    if not isinstance(usage, dict):
        return usage
    return {name: value for name, value in usage.items() if name not in ("terms", "iterations")}


def _rebuilt(ours: JsonObject, extra: JsonObject) -> BaseMessage:
    name = extra.get("class") or _USUAL.get(str(ours.get("role")), "ChatMessage")
    known = _CLASSES.get(str(name))
    if known is None:
        raise CorruptStore(f"a message is of the class {name!r}, which is not one of LangChain's; run verify()")
    fields = dict(_told(ours))
    if known is ChatMessage:
        fields.setdefault("role", str(ours.get("role")))
    others = extra.get("fields")
    if isinstance(others, dict):
        fields |= others
    given, own = _defaults(known.__name__)
    given = dict(given)
    for name, default in own:
        if name not in fields:
            given[name] = default()
    # What is given takes the place of a default; what is no field stands beside the fields.
    beside: dict[str, object] = {}
    for name, value in fields.items():
        (given if name in given else beside)[name] = value
    return _made(known, given, beside, set(fields))


@cache
def _defaults(name: str) -> tuple[dict[str, object], tuple[tuple[str, Callable[[], object]], ...]]:
    """Return the defaults of a class in its order, and what makes those that each message has to have for itself."""
    # Asked of pydantic for each message, this takes longer than all the rest.
    fields = _CLASSES[name].model_fields
    own = [
        each
        for each, field in fields.items()
        if field.default_factory is not None or type(field.default) not in (str, bool, NoneType)
    ]
    plain = {each: None if each in own else field.default for each, field in fields.items()}
    return plain, tuple((each, partial(fields[each].get_default, call_default_factory=True)) for each in own)


def _calls(message: BaseMessage, ours: JsonObject, call_scope: str) -> list[JsonObject]:
    usage = ours.get("usage")
    if not isinstance(usage, dict) or not message.id or not is_plain(message.id):
        return []
    # A program may number its messages from 1 in each thread, so an id alone does not tell two calls apart.
    return [{**usage, "callId": f"{call_scope}:{message.id}"}]


# --- Entries of a thread: checkpoints, task writes, values and their ids
#
# A checkpoint is found by its id alone, so its entry has that id, and the writes below it have it with a number. An id
# that is taken in the tree (a checkpoint that is put again, or in a copy of its thread) gets a number of its own.

CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
VALUE = "langgraph.value"
LISTING = "langgraph.messages"
KINDS = frozenset({CHECKPOINT, WRITES, VALUE, LISTING})

LINE: JsonObject = {"line": True}
"""What a checkpoint says of the channel whose value is its line of messages."""

FRAMEWORK = "framework"
"""The field of a session's metadata that says it is a thread."""

PUTS = 4
"""In how many ids a checkpoint is looked for, unless its session notes more: it may have been put again."""
WINDOW = 6
"""How many writes of a checkpoint are asked for at once; more where all of these are there, or where it is noted."""

_LONGEST_ID = 900


@dataclass(frozen=True, slots=True)
class Line:
    """Which messages are the value of the channel: those that a listing names, and then those of ``tail``, by entry.

    ``count`` is how many they are. Of two checkpoints of one ``epoch``, one above the other, the lower one has all
    messages of the upper one, and perhaps more behind them. With ``base``, those in the context at that entry are as
    they are there (see `flue_py.adapters.common`): a summary, or a message of which a part is left out.
    """

    count: int = 0
    listing: str | None = None
    tail: tuple[str, ...] = ()
    epoch: str | None = None
    base: str | None = None

    def to_json(self) -> JsonObject:
        """Return it as a checkpoint has it."""
        stored: JsonObject = {"count": self.count, "tail": list(self.tail)}
        if self.listing is not None:
            stored["listing"] = self.listing
        if self.epoch is not None:
            stored["epoch"] = self.epoch
        if self.base is not None:
            stored["base"] = self.base
        return stored


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint as its entry has it: its values are not loaded."""

    entry_id: str
    id: str
    parent: str | None
    checkpoint: JsonValue
    metadata: JsonValue
    versions: Mapping[str, JsonValue]
    values: Mapping[str, JsonValue]
    line: Line = dataclasse_field(default_factory=Line)
    high: str = ""
    """The largest id so far."""

    def to_json(self) -> JsonObject:
        stored: JsonObject = {"id": self.id, "parent": self.parent}
        if self.high != self.id:
            stored["high"] = self.high
        stored |= {"checkpoint": self.checkpoint, "metadata": self.metadata, "values": dict(self.values)}
        if self.versions:
            stored["versions"] = dict(self.versions)
        if self.line != Line():
            stored["line"] = self.line.to_json()
        return stored

    @staticmethod
    def of(entry: Entry) -> Record:
        """Return the checkpoint that an entry is. Raises `CorruptStore` if it is not one."""
        stored = entry.fields
        line = stored.get("line")
        values = stored.get("values")
        versions = stored.get("versions", {})
        parent = stored.get("parent")
        if not isinstance(stored.get("id"), str) or not isinstance(values, dict) or not isinstance(versions, dict):
            raise CorruptStore(f"entry {entry.id!r} is not a checkpoint as an adapter writes one; run verify()")
        id = str(stored["id"])
        return Record(
            entry.id,
            id,
            parent if isinstance(parent, str) else None,
            stored.get("checkpoint"),
            stored.get("metadata"),
            versions,
            values,
            _line(line),
            str(stored.get("high") or id),
        )


def _line(stored: JsonValue) -> Line:
    if not isinstance(stored, dict):
        return Line()
    count, listing, tail, epoch, base = (stored.get(name) for name in ("count", "listing", "tail", "epoch", "base"))
    return Line(
        count if isinstance(count, int) else 0,
        listing if isinstance(listing, str) else None,
        tuple(str(id) for id in tail) if isinstance(tail, list) else (),
        epoch if isinstance(epoch, str) else None,
        base if isinstance(base, str) else None,
    )


def entry_id(checkpoint_id: str, number: int) -> str:
    """Return the id that the entry of a checkpoint has: the usual one for 1, another for each larger number."""
    base = checkpoint_id
    is_usable = 0 < len(base) <= _LONGEST_ID and base.isprintable() and "~" not in base and base.isascii()
    if not is_usable or ":w" in base:
        base = f"sha256:{sha256(checkpoint_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return base if number == 1 else f"{base}~{number}"


def number_of_put(entry_id: str) -> int:
    """Return the number that the id of a checkpoint's entry was made with."""
    number = entry_id.rpartition("~")[2] if "~" in entry_id else "1"
    return int(number) if number.isdecimal() else 1


def writes_id(entry_id: str, number: int) -> str:
    """Return the id of an entry with writes of a checkpoint, whose entry has this id."""
    return f"{entry_id}:w{number}"


def number_of_writes(writes_id: str) -> tuple[str, int] | None:
    """Return what an id of an entry with writes was made of; None if it is none."""
    base, colon, number = writes_id.rpartition(":w")
    return (base, int(number)) if colon and number.isdecimal() else None
