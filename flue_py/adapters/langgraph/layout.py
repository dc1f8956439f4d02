"""Values, messages and checkpoints of LangGraph as entries of ours, and back; its threads as sessions."""

from __future__ import annotations

import copy
import datetime
import decimal
import ipaddress
import json
import os
import pathlib
import sys
import uuid
import zoneinfo
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from itertools import islice
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

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
from msgspec import field
from msgspec.structs import replace

from flue_py.adapters import common
from flue_py.core.context import latest_compaction, project_kept, uncompaction
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.erasure import REDACTED
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, EXCLUSION, SHOWN_KINDS
from flue_py.core.usage import billed_by
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, RevisionConflict, SessionExists, shown
from flue_py.providers.base import fields_of, listed
from flue_py.sessions.handle import listed_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol


# Safe deserialisation: values only, no call of a function
#
# LangGraph's serializer imports the function that a stored value names, and calls it, whatever it is. Whoever can write
# to a database could have a program run any command so. Only classes of which the serializer writes values are read
# here.

_FORMS = frozenset({"null", "bytes", "bytearray", "msgpack"})
_NAMING = frozenset(range(6))
"""The kinds of values that name their maker: a class, or a method of one."""
_HOLDING = frozenset({6, 7})
"""The kinds of values that may hold such a value, though they name nothing: arrays and snapshots of delta channels."""
_STANDARD = (
    *(set, frozenset, deque, Enum, uuid.UUID, decimal.Decimal, pathlib.PurePath, zoneinfo.ZoneInfo),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
    *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
)
_METHODS = ("model_dump", "get_secret_value", "dict", "_asdict")
"""The methods by which the serializer takes a value: of models of pydantic, secrets, and tuples with names."""
_ADVICE = (
    "nothing of it was read. LangGraph's serializer writes no such value unless it is told to: if it is meant, pass "
    "the serializer that wrote it, such as FlueSaver(..., serde=JsonPlusSerializer(...))"
)


def require_values(form: str, data: bytes) -> None:
    """Raise `CorruptStore` if reading would call something else than a class of values, or unpickle. O(size).

    The modules of the classes are imported.
    """
    if form not in _FORMS:
        raise CorruptStore(f"a value of a checkpoint is stored as {shown(form)}: {_ADVICE}")
    if form != "msgpack":
        return
    values: list[object] = []

    def look(code: int, content: bytes) -> None:
        if code in _NAMING or code in _HOLDING:
            try:
                value = ormsgpack.unpackb(content, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            except ValueError:
                # The serializer may call the function around a value that cannot be read.
                value = None
            if code in _NAMING:
                values.append(value)

    ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    for value in values:
        match value:
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
        target = getattr(import_module(module), name)
    except Exception:  # noqa: BLE001 - the serializer gives back the stored value then, and calls nothing
        return True
    if not isinstance(target, type):
        return False
    if issubclass(target, _STANDARD):
        return True
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    is_framework = module in ("langgraph.types", "langgraph.store.base")
    return is_framework or is_dataclass(target) or any(callable(getattr(target, method, None)) for method in _METHODS)


# Values of a graph: plain JSON if possible, else serialised by the framework

_STRICT = ("1", "true", "yes")
_LARGEST = 2**63
_DEEPEST = 100


class Values:
    """The way of values into entries, by the serializer of a saver."""

    def __init__(self, serde: SerializerProtocol, *, is_default: bool = False) -> None:
        self._serde = serde
        # Whoever chooses a serializer chooses its reading; and a strict one calls nothing by itself.
        self._is_guarded = is_default and os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() not in _STRICT
        # Only the framework's own serializer is known. Another one may encrypt, or write a form of its own.
        self.may_show = type(serde) is JsonPlusSerializer

    def stored(self, value: object) -> JsonObject:
        """Return a value as an entry has it. Raises the serializer's errors. O(size)."""
        if self.may_show and is_plain_json(value):
            return {"json": _copied(value)}  # type: ignore[dict-item]
        return self.serialized(value)

    def serialized(self, value: object) -> JsonObject:
        """Return a value as the serializer has it. Raises its errors. O(size)."""
        form, data = self._serde.dumps_typed(value)
        return {"data": [form, b64encode(data).decode("ascii")]}

    def loaded(self, stored: JsonValue) -> object:
        """Return the value that `stored` gave this. Raises `CorruptStore`, and the serializer's errors. O(size)."""
        match stored:
            case {"json": value}:
                return _copied(value)
            case {"data": [str(form), str(data)]}:
                content = b64decode(data)
                if self._is_guarded:
                    require_values(form, content)
                return self._serde.loads_typed((form, content))
        raise CorruptStore("a value of a checkpoint is in no form that is known; run verify()")


def is_plain_json(value: object, depth: int = 0) -> bool:
    """Return whether JSON in UTF-8 gives a value back exactly: no subclass, no tuple, no number it would change."""
    if type(value) is list:
        return depth < _DEEPEST and all(is_plain_json(item, depth + 1) for item in value)
    if type(value) is dict:
        return depth < _DEEPEST and all(
            type(key) is str and is_text(key) and is_plain_json(item, depth + 1) for key, item in value.items()
        )
    check = _SCALARS.get(type(value))
    return check is not None and check(value)


def _copied(value: object) -> object:
    # A graph may change a value that it has put or got: neither change may reach the values that a process remembers.
    if type(value) is list:
        return [_copied(item) for item in value]
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
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


# Messages of LangChain as our messages, and back, value for value
#
# Fields that our form has no place for are in the entry's ``extra``, as the difference between the message that ours
# alone would give back and the original. A message that JSON cannot hold, and one of a class that is not LangChain's,
# is there as the framework's serializer has it.

EXTRA = "langchain"
"""The field of an entry's ``extra`` with the difference to our message."""

_CLASSES: Mapping[str, type[BaseMessage]] = {
    kind.__name__: kind
    for kind in (
        AIMessage, AIMessageChunk, ChatMessage, FunctionMessage, HumanMessage, HumanMessageChunk, SystemMessage,
        SystemMessageChunk, ToolMessage, ToolMessageChunk,
    )
}  # fmt: skip
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

    Raises the serializer's errors. O(size).
    """
    fields = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    name = type(message).__name__
    ours = _ours(message, fields)
    extra: JsonObject | None = None
    if _CLASSES.get(name) is type(message) and is_plain_json(fields):
        extra = _difference(name, ours, cast("JsonObject", fields))
        if not same(_rebuilt(ours, extra), message):
            extra = None
    if extra is None:
        extra = values.serialized(message)
    if not is_plain_json(ours):
        ours = {"role": str(ours["role"]), "content": message.text if is_plain_json(str(message.text)) else ""}
        if ours["role"] == "toolResult":
            ours["toolCallId"] = ""
    calls = _calls(message, ours, call_scope)
    try:
        return NewEntry.message(ours, id=id, parent_id=parent_id, extra={EXTRA: extra}, calls=calls)
    except InvalidEntry:
        # Whatever our form cannot say, the original is kept.
        shown: JsonObject = {"role": "langchain", "content": str(ours.get("content") or "")}
        original = values.serialized(message)
        return NewEntry.message(shown, id=id, parent_id=parent_id, extra={EXTRA: original})


def message_of(entry: Entry, values: Values) -> BaseMessage:
    """Return the message that an entry stands for, a new object each time; also one that was appended by hand.

    Raises `CorruptStore` for one that cannot be read, and the serializer's errors. O(size).
    """
    extra = entry.extra_fields.get(EXTRA)
    if isinstance(extra, dict) and "data" in extra:
        loaded = values.loaded(extra)
        if not isinstance(loaded, BaseMessage):
            raise CorruptStore(f"the message of entry {entry.id!r} is a {type(loaded).__name__}; run verify()")
        return loaded
    # A message of others has the entry's id, and usage in a form that is not the framework's.
    by_hand: JsonObject = {"fields": {"id": entry.id} | ({"usage_metadata": None} if entry.role == "assistant" else {})}
    return _rebuilt(entry.fields, extra if isinstance(extra, dict) else by_hand)


def same(left: BaseMessage, right: BaseMessage) -> bool:
    """Return whether two messages are of one class and say the same. O(size)."""
    if type(left) is not type(right) or left.__dict__ != right.__dict__:
        return False
    left_extra, right_extra = left.__pydantic_extra__, right.__pydantic_extra__
    return left_extra == right_extra or (not left_extra and not right_extra)


def are_messages(value: object) -> bool:
    """Return whether a value is a list of messages, and not an empty one. O(length)."""
    if type(value) is not list or not value:
        return False
    # As a rule all are of a few known classes, and asking each for its base takes longer.
    return _KNOWN.issuperset(map(type, value)) or all(isinstance(message, BaseMessage) for message in value)


def fresh(message: BaseMessage) -> BaseMessage:
    """Return a copy that shares nothing which can be changed. O(size)."""
    if _CLASSES.get(type(message).__name__) is not type(message):
        return copy.deepcopy(message)
    fields = {name: value if type(value) is str else _apart(value) for name, value in message.__dict__.items()}
    extra = {name: _apart(value) for name, value in (message.__pydantic_extra__ or {}).items()}
    return _made(type(message), fields, extra, set(message.__pydantic_fields_set__))


def _apart(value: object) -> object:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is dict:
        return {name: _apart(item) for name, item in cast("dict[object, object]", value).items()}
    if kind is list:
        return [_apart(item) for item in cast("list[object]", value)]
    return value if kind in (int, float, bool) else copy.deepcopy(value)


def _made(
    message_class: type[BaseMessage], fields: dict[str, object], extra: dict[str, object], set_fields: set[str]
) -> BaseMessage:
    # Without validation, which would change values that a program has put there itself, and take most of the time.
    message = object.__new__(message_class)
    object.__setattr__(message, "__dict__", fields)
    object.__setattr__(message, "__pydantic_extra__", extra)
    object.__setattr__(message, "__pydantic_fields_set__", set_fields)
    object.__setattr__(message, "__pydantic_private__", None)
    return message


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
            text = next((about[name] for name in names if isinstance(about.get(name), str)), None)
            if text:
                ours[field] = text
        if message.usage_metadata is not None:
            terms = billed_by(about, about.get("usage") or about.get("token_usage"))
            ours["usage"] = {**message.usage_metadata, **terms}
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
    # The calls of the model stand in `tool_calls`, too, whichever provider's part says them.
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
    own_fields = _told(ours)
    extra: JsonObject = {}
    if _USUAL.get(str(ours["role"])) != name:
        extra["class"] = name
    # 1, 1.0 and True are equal, and are not the same value.
    changes = {
        field: value
        for field, value in fields.items()
        if field not in own_fields or own_fields[field] != value or repr(own_fields[field]) != repr(value)
    }
    if changes:
        extra["fields"] = changes
    return extra


def _told(ours: JsonObject) -> JsonObject:
    """Return the fields of a LangChain message that a message of ours gives by itself, the empty ones among them."""
    content = ours.get("content")
    fields: JsonObject = {"additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None}
    role = ours["role"]
    if role == "assistant":
        calls: list[JsonValue] = []
        if isinstance(content, list):
            call_parts = [part for part in content if isinstance(part, dict) and part.get("type") == "toolCall"]
            calls = [
                {"name": part.get("name"), "args": part.get("arguments"), "id": part.get("id"), "type": "tool_call"}
                for part in call_parts
            ]
            rest: list[JsonValue] = [part for part in content if part not in call_parts]
            content = rest
            if call_parts and len(rest) <= 1:
                text = rest[0].get("text") if rest and isinstance(rest[0], dict) else ""
                content = text if isinstance(text, str) else rest
        fields |= {"tool_calls": calls, "invalid_tool_calls": [], "usage_metadata": _their_usage(ours), "type": "ai"}
    if role == "toolResult":
        fields |= {"tool_call_id": ours.get("toolCallId", ""), "name": ours.get("toolName"), "artifact": None}
        fields |= {"status": "error" if ours.get("isError") else "success", "type": "tool"}
    if role in ("user", "system"):
        fields["type"] = "human" if role == "user" else "system"
    fields["content"] = "" if content is None else content
    return fields


def _their_usage(ours: JsonObject) -> JsonValue:
    """Return the usage of a message of theirs, without the terms that we put beside it for its price."""
    usage = ours.get("usage")
    if not isinstance(usage, dict):
        return usage
    return {name: value for name, value in usage.items() if name not in ("terms", "iterations")}


def _rebuilt(ours: JsonObject, extra: JsonObject) -> BaseMessage:
    name = extra.get("class") or _USUAL.get(str(ours.get("role")), "ChatMessage")
    message_class = _CLASSES.get(str(name))
    if message_class is None:
        raise CorruptStore(f"a message is of the class {name!r}, which is not one of LangChain's; run verify()")
    fields = dict(_told(ours))
    if message_class is ChatMessage:
        fields.setdefault("role", str(ours.get("role")))
    changes = extra.get("fields")
    if isinstance(changes, dict):
        fields |= changes
    class_fields, factories = _defaults(message_class.__name__)
    class_fields = dict(class_fields)
    for name, default in factories:
        if name not in fields:
            class_fields[name] = default()
    # A value takes the place of a default; a name that is no field stands beside the fields.
    extra_fields: dict[str, object] = {}
    for name, value in fields.items():
        (class_fields if name in class_fields else extra_fields)[name] = value
    return _made(message_class, class_fields, extra_fields, set(fields))


@cache
def _defaults(name: str) -> tuple[dict[str, object], tuple[tuple[str, Callable[[], object]], ...]]:
    """Return the defaults of a class in its order, and factories of those that each message has to have for itself."""
    # Asked of pydantic for each message, this takes longer than all the rest.
    fields = _CLASSES[name].model_fields
    names = [
        name
        for name, field in fields.items()
        if field.default_factory is not None or type(field.default) not in (str, bool, NoneType)
    ]
    plain = {name: None if name in names else field.default for name, field in fields.items()}
    return plain, tuple((name, partial(fields[name].get_default, call_default_factory=True)) for name in names)


def _calls(message: BaseMessage, ours: JsonObject, call_scope: str) -> list[JsonObject]:
    usage = ours.get("usage")
    if not isinstance(usage, dict) or not message.id or not is_plain_json(message.id):
        return []
    # A program may number its messages from 1 in each thread, so an id alone does not tell two calls apart.
    return [{**usage, "callId": f"{call_scope}:{message.id}"}]


# Entries of a thread: checkpoints, task writes, values and their ids
#
# A checkpoint is found by its id alone, so its entry has that id, and the writes below it have it with a number. An id
# that is taken in the tree (a checkpoint that is put again, or in a copy of its thread) gets a number of its own.

CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
VALUE = "langgraph.value"
LISTING = "langgraph.messages"
KINDS = frozenset({CHECKPOINT, WRITES, VALUE, LISTING})

LINE: JsonObject = {"line": True}
"""The value in a checkpoint of the channel that has its line of messages."""

FRAMEWORK = "framework"
"""The field of a session's metadata that says it is a thread."""

PUTS = 4
"""In how many ids a checkpoint is looked for, unless its session notes more: it may have been put again."""
WINDOW = 6
"""How many writes of a checkpoint are asked for at once; more where all of these are there, or where it is noted."""

_LONGEST_ID = 900


class Line(Frozen):
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
        names = {"listing": self.listing, "epoch": self.epoch, "base": self.base}
        return stored | {name: id for name, id in names.items() if id is not None}


def is_checkpoint(entry: Entry) -> bool:
    """Return whether an entry is one of a checkpoint, and not the tombstone of one: nothing is known of that."""
    return entry.kind == CHECKPOINT and REDACTED not in entry.fields


class Record(Frozen):
    """A checkpoint as its entry has it: its values are not loaded."""

    entry_id: str
    id: str
    parent: str | None
    checkpoint: JsonValue
    metadata: JsonValue
    versions: Mapping[str, JsonValue]
    values: Mapping[str, JsonValue]
    line: Line = field(default_factory=Line)
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
        """Return the checkpoint that an entry is (`is_checkpoint`). Raises `CorruptStore` if it is not one."""
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
    """Return the entry and the number that an id of an entry with writes was made of; None if it is none."""
    base, colon, number = writes_id.rpartition(":w")
    return (base, int(number)) if colon and number.isdecimal() else None


class Place(Protocol):
    """A session, stored or still to be made, that checkpoints are put into."""

    recent: dict[str, Record]
    """The checkpoints that were put here while nobody else wrote, by their ids."""

    @property
    def id(self) -> str: ...

    @property
    def leaf_id(self) -> str | None: ...

    @property
    def metadata(self) -> Mapping[str, JsonValue]: ...

    def new_id(self) -> str: ...

    async def get_entry(self, entry_id: str) -> Entry | None: ...

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]: ...

    async def get_active_path(self, *, leaf: str) -> Sequence[Entry]: ...

    async def add(self, entries: Sequence[NewEntry], leaf: str | None) -> None:
        """Add entries and set the leaf. Raises `InvalidEntry` for an id that is taken, and a conflict after others."""

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        """Return which of the ids are taken, by entries that are seen here and by others."""

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        """Set fields of the metadata."""


# Entries of other programs since the last checkpoint, as a checkpoint

MESSAGES = "messages"
"""The channel whose value is the conversation."""

_FIRST = "00000000-0000-6000-8000-"
_AFTER = "-ffff-"
"""A part of an id that makes it greater than every id that the framework makes at the same time."""


def stands_for_others(checkpoint_id: str) -> bool:
    """Return whether an id is one of `begun_by_hand`: the framework, with its version 6 of UUIDs, makes none such."""
    return checkpoint_id.startswith(_FIRST) or checkpoint_id[18:24] == _AFTER


async def begun_by_hand(session: Session | Place, last: Record | None, values: Values) -> Record | None:
    """Return the checkpoint that stands for the context at the leaf; None where others have added nothing to it.

    It is ``last``, the one above, with the context as its messages. Its id follows from the leaf: it is greater than
    that of ``last``, and less than any that the framework makes later. Raises `InvalidArgument` where ``last`` has its
    messages in a form that cannot be gone on with. O(path).
    """
    leaf = session.leaf_id
    if leaf is None:
        return None
    path = await session.get_active_path(leaf=leaf)
    since = next((at for at, entry in enumerate(path, 1) if last is not None and entry.id == last.entry_id), 0)
    added = [entry.id for entry in path[since:] if _is_of_others(entry)]
    if not added:
        return None
    ids = tuple(entry.id for entry in common.context(path))
    line = Line(len(ids), None, ids, added[-1], None if all(map(common.is_plain, path)) else leaf)
    number = int(sha256(added[-1].encode()).hexdigest()[:10], 16) + 1
    if last is None:
        id = f"{_FIRST}{number:012x}"
        checkpoint: dict[str, Any] = {"v": 4, "versions_seen": {}, "channel_versions": {}}
        metadata: dict[str, Any] = {"parents": {}}
        last = Record(id, id, None, None, None, {}, {})
    else:
        base, node = last.high[:18] + _AFTER, last.high[24:]
        id = f"{base}{number + (int(node, 16) if last.high.startswith(base) else 0):012x}"
        checkpoint = cast("dict[str, Any]", values.loaded(last.checkpoint))
        metadata = cast("dict[str, Any]", values.loaded(last.metadata))
        is_delta = MESSAGES in (metadata.get("counters_since_delta_snapshot") or ())
        if is_delta or last.values.get(MESSAGES, LINE) not in (LINE, values.stored([])):
            raise InvalidArgument(
                f"session {session.id!r}: messages were added to a thread whose own ones are in no form that these can "
                "be added to (another serializer, or a delta channel); undo that, or move the leaf to a checkpoint"
            )
        # It is of no run: to delete one leaves it.
        metadata.pop("run_id", None)
    versions = checkpoint["channel_versions"]
    numbers = [int(str(channel_version).partition(".")[0]) for channel_version in versions.values()]
    version = f"{max(numbers, default=0) + 1:032}"
    versions = {**versions, MESSAGES: version}
    checkpoint |= {"ts": path[-1].created_at.isoformat(), "channel_versions": versions, "updated_channels": None}
    metadata |= {"source": "update", "step": metadata.get("step", -2) + 1}
    return replace(
        last,
        entry_id=id,
        id=id,
        parent=None if last.id == id else last.id,
        checkpoint=values.stored(checkpoint),
        metadata=values.stored(metadata),
        versions={**last.versions, MESSAGES: version},
        values={**last.values, MESSAGES: LINE},
        line=line,
        high=max(last.high, id),
    )


def _is_of_others(entry: Entry) -> bool:
    if entry.kind == EXCLUSION:
        return entry.fields.get("by") != "langgraph"
    return entry.kind in SHOWN_KINDS


# Gaps in the ids of a checkpoint's entries
#
# An id is taken in a whole tree of forks, so that of a session which sees only some of it, the ids have gaps. Numbers
# beyond the usual ones are noted in the session's metadata.

NUMBERS = "checkpointNumbers"
"""The field of a session's metadata with the numbers noted."""

_PAGE = 1000
_AHEAD = 32
"""So many more numbers are noted at once than are used, since each note is a transaction."""


class Numbers(Frozen):
    """``puts`` is the largest number that a checkpoint's entry has, ``writes`` that of the writes at an entry."""

    puts: int = PUTS
    writes: Mapping[str, int] = field(default_factory=dict)

    def with_put(self, number: int) -> Numbers:
        return Numbers(max(self.puts, number), self.writes)

    def with_writes(self, entry_id: str, number: int) -> Numbers:
        return Numbers(self.puts, {**self.writes, entry_id: number + _AHEAD})

    def window(self, entry_id: str) -> int:
        """Return how many writes of a checkpoint to ask for at first."""
        return max(WINDOW, self.writes.get(entry_id, 0) + 1)

    def to_metadata(self) -> JsonObject:
        """Return the fields of the metadata; none where nothing is out of the usual."""
        if self == Numbers():
            return {}
        return {NUMBERS: {"puts": self.puts, "writes": dict(self.writes)}}


def numbers_in(metadata: Mapping[str, JsonValue]) -> Numbers:
    """Return the numbers that a session's metadata note."""
    noted = metadata.get(NUMBERS)
    if not isinstance(noted, dict):
        return Numbers()
    puts, numbers = noted.get("puts"), fields_of(noted.get("writes")).items()
    return Numbers(
        max(PUTS, puts) if isinstance(puts, int) else PUTS,
        {entry_id: number for entry_id, number in numbers if isinstance(number, int)},
    )


async def counted(session: Session) -> Numbers:
    """Return the numbers that the metadata of a session should note, that was forked by hand. O(its entries)."""
    puts = PUTS
    numbers_at: dict[str, list[int]] = {}
    for kind in (CHECKPOINT, WRITES):
        async for entry in _entries_of_kind(session, kind):
            puts = max(puts, number_of_put(entry.id)) if kind == CHECKPOINT else puts
            if (at := number_of_writes(entry.id)) is not None:
                numbers_at.setdefault(at[0], []).append(at[1])
    gaps = {at: max(numbers) for at, numbers in numbers_at.items() if max(numbers) >= max(WINDOW, len(numbers))}
    return Numbers(puts, gaps)


async def _entries_of_kind(session: Session, kind: str) -> AsyncIterator[Entry]:
    after = None
    while True:
        page = await session.entries(kind=kind, after=after, limit=_PAGE)
        for entry in page:
            yield entry
        if len(page) < _PAGE:
            return
        after = page[-1].id


async def numbers_of(session: Session | Place) -> Numbers:
    """Return the numbers noted of a session; counted if nobody has noted any. O(1), or O(checkpoints)."""
    metadata = session.metadata
    # Nobody has noted anything of a session that was forked by hand, until a checkpoint is put into it.
    if FRAMEWORK not in metadata and isinstance(session, Session):
        return await counted(session)
    return numbers_in(metadata)


# Checkpoint lookup and its cache, which is never stale within an epoch: only a redaction changes an entry

_RECORDS = 512


async def entries_put(session: Session | Place, checkpoint_id: str) -> list[Entry]:
    """Return the entries of a checkpoint, one for each time it was put, the last one last. One read."""
    most = (await numbers_of(session)).puts
    ids = [entry_id(checkpoint_id, number) for number in range(1, most + 1)]
    return [entry for entry in await session.get_entries(ids) if entry is not None]


class Finding:
    """The checkpoints of all threads of a store, as they are found."""

    def __init__(self) -> None:
        self._records: common.Cache[Record] = common.Cache(_RECORDS)
        self._above: common.Cache[str] = common.Cache(_RECORDS)
        """The entry of the checkpoint above an entry with writes."""
        self.lines = Lines()

    async def begin(self, store: Store) -> None:
        """Forget what was read before texts of the store were erased. One read. Each call that reads begins so."""
        epoch = await store.backend.read_epoch()
        self._records.begin_epoch(epoch)
        self._above.begin_epoch(epoch)
        self.lines.begin_epoch(epoch)

    async def find(self, session: Session | Place, checkpoint_id: str) -> Record | None:
        """Return a checkpoint by its id, as it was put last; None if there is none. One read."""
        puts = [*filter(is_checkpoint, await entries_put(session, checkpoint_id))]
        return self._record(session, puts[-1]) if puts else None

    async def newest(self, session: Session, values: Values) -> Record | None:
        """Return the checkpoint at the leaf, or the last one above it; None if there is none.

        A leaf between an input and the message that it brought is where a turn was taken back: the newest checkpoint
        is then the last one of the turn before.
        """
        record = await self._at_leaf(session)
        if record is None or session.leaf_id is None:
            return await begun_by_hand(session, None, values)
        if not await self._is_right_below(session, record):
            added = await begun_by_hand(session, record, values)
            if added is not None:
                return added
        metadata = values.loaded(record.metadata)
        if not isinstance(metadata, dict) or metadata.get("source") != "input":
            return record
        if not await session.branches.children(session.leaf_id):
            return record
        return None if record.parent is None else await self.find(session, record.parent)

    async def _at_leaf(self, session: Session | Place) -> Record | None:
        return None if session.leaf_id is None else await self._above_or_at(session, session.leaf_id)

    async def _is_right_below(self, session: Session | Place, record: Record) -> bool:
        """Return whether nothing between a checkpoint and the leaf concerns the context.

        One read, if any; where others have added entries, O(path).
        """
        leaf = session.leaf_id
        if leaf is None or record.entry_id in (leaf, self._above.get((session.id, leaf))):
            return leaf is not None
        entry = await session.get_entry(leaf)
        if entry is not None and entry.kind == WRITES:
            return record.entry_id == entry.fields.get("after")
        path = await session.get_active_path(leaf=leaf)
        above = next((at for at, entry in enumerate(path, 1) if entry.id == record.entry_id), None)
        return above is not None and not any(entry.kind in {*SHOWN_KINDS, EXCLUSION} for entry in path[above:])

    async def page(self, session: Session, *, after: str | None, limit: int) -> tuple[list[Record], str | None]:
        """Return a page of the checkpoints of a session, the last one first, behind the entry ``after``.

        The second value is the entry that the next page comes behind; None at the end.
        """
        entries = await session.entries(kind=CHECKPOINT, newest_first=True, after=after, limit=limit)
        records = [self._record(session, entry) for entry in entries if is_checkpoint(entry)]
        return records, entries[-1].id if len(entries) == limit else None

    async def all(self, session: Session) -> list[Record]:
        """Return every checkpoint of a session, each as it was put last, in the order of their ids. O(checkpoints)."""
        entries = [entry async for entry in _entries_of_kind(session, CHECKPOINT)]
        in_order = [self._record(session, entry) for entry in entries if is_checkpoint(entry)]
        records = {record.id: record for record in in_order}
        return [records[id] for id in sorted(records)]

    def _record(self, session: Session | Place, entry: Entry) -> Record:
        return self._records.get_or_put((session.id, entry.id), lambda: Record.of(entry))

    async def _above_or_at(self, session: Session | Place, entry_id: str) -> Record | None:
        at = self._above.get((session.id, entry_id)) or entry_id
        record = self._records.get((session.id, at))
        if record is not None:
            return record
        entry = await session.get_entry(at)
        if entry is not None and entry.kind == WRITES:
            above = entry.fields.get("after")
            entry = await session.get_entry(above) if isinstance(above, str) else None
        if entry is None or not is_checkpoint(entry):
            # Entries that somebody else has added, the middle of entries that were put at once, or a tombstone.
            path = await session.get_active_path(leaf=entry_id)
            entry = next(filter(is_checkpoint, reversed(path)), None)
        return None if entry is None else self._record(session, entry)


# The messages of a graph: each is stored once, however many checkpoints have it
#
# A checkpoint names the messages that came last, and a listing with those before them; a new listing is written from
# time to time, so that neither grows with each turn. Where a message was changed or removed, exclusions take it out of
# the context, and a listing names those that are left.

Kept: TypeAlias = "tuple[BaseMessage, str]"
"""A message that is stored, which nobody else has, and the id of its entry."""

Message = TypeVar("Message")
Build: TypeAlias = "Callable[[Message, Sequence[Message], str, str | None], tuple[Message, NewEntry]]"
"""Given a message, those that go, an id and its parent: the message to keep, and its entry."""

_LINES = 64
_TAIL = 16
"""So many messages a checkpoint names by itself, and one more for each so many that there are."""


class NewLine(Frozen, Generic[Message]):
    """The entries to write for a new value of the channel, one below the other, and where it then is."""

    entries: list[NewEntry]
    line: Line
    kept: tuple[tuple[Message, str], ...]


class Lines:
    """The lines of messages that this process knows."""

    def __init__(self) -> None:
        self._known: common.Cache[tuple[Kept, ...]] = common.Cache(_LINES)

    def begin_epoch(self, epoch: int) -> None:
        """Forget the lines of another epoch."""
        self._known.begin_epoch(epoch)

    def note(self, session: Session | Place, entry_id: str, messages: tuple[Kept, ...]) -> None:
        """Remember the line of a checkpoint."""
        self._known.put((session.id, entry_id), messages)

    def known(self, session: Session | Place, record: Record) -> tuple[Kept, ...] | None:
        """Return the line of a checkpoint if it is remembered."""
        return self._known.get((session.id, record.entry_id))

    async def of(self, session: Session | Place, record: Record, values: Values) -> tuple[Kept, ...]:
        """Return the line of a checkpoint. O(messages), and O(1) where it is known. Raises `CorruptStore`."""
        if not record.line.count:
            return ()
        messages = self.known(session, record)
        if messages is None:
            entries = await entries_of(session, record)
            messages = tuple((message_of(entry, values), entry.id) for entry in entries)
            self.note(session, record.entry_id, messages)
        return messages


async def entries_of(session: Session | Place, record: Record) -> list[Entry]:
    """Return the entries of a checkpoint's messages. Raises `CorruptStore`. O(messages)."""
    line = record.line
    ids = [*([] if line.listing is None else await _listed(session, line.listing)), *line.tail]
    shown = (
        {}
        if line.base is None
        else {entry.id: entry for entry in common.context(await session.get_active_path(leaf=line.base))}
    )
    pairs = zip(ids, await session.get_entries(ids), strict=True)
    entries = [entry for id, stored in pairs if (entry := shown.get(id, stored)) is not None]
    if len(entries) != line.count:
        raise CorruptStore(
            f"checkpoint {record.id!r} has {line.count} messages, and {len(entries)} are there; run verify()"
        )
    return entries


async def path_behind(session: Session | Place, line: Line, below: str | None) -> Sequence[Entry]:
    """Return the path to an entry where a summary may be among the messages of its line, else nothing. O(path)."""
    return () if line.base is None or below is None else await session.get_active_path(leaf=below)


async def _listed(session: Session | Place, listing: str) -> list[str]:
    (entry,) = await session.get_entries([listing])
    ids = None if entry is None else entry.fields.get("ids")
    if not isinstance(ids, list):
        raise CorruptStore(f"the listing {listing!r} of a checkpoint's messages is missing; run verify()")
    return [str(id) for id in ids]


def copying(values: Values, call_scope: str) -> Build[BaseMessage]:
    """Return a function that makes the entry of a message of a graph, for `changed_line`."""

    def build(
        message: BaseMessage, removed: Sequence[BaseMessage], id: str, parent: str | None
    ) -> tuple[BaseMessage, NewEntry]:
        # A copy, since the graph may change the message that it holds.
        copy = fresh(message)
        entry = entry_of(copy, values, id=id, parent_id=parent, call_scope=call_scope)
        if message.id is not None and any(message.id == old_message.id for old_message in removed):
            # It only changes its place, or was paid for as it was before.
            entry = replace(entry, calls=(), unpaid=True)
        return copy, entry

    return build


def changed_line(
    old: Sequence[tuple[Message, str]],
    line: Line,
    wanted: Sequence[Message],
    *,
    path: Sequence[Entry],
    below: str | None,
    new_id: Callable[[], str],
    is_same: Callable[[Message, Message], bool],
    build: Build[Message],
) -> NewLine[Message]:
    """Return the entries that make one line of another. ``build`` gets a message, and those that go. O(messages).

    ``path`` is that of `path_behind`. If a summary goes, its compaction is taken back, and the messages that it stood
    for are left out: no exclusion leaves out a summary.
    """
    stays, removed = _stays_and_removed(old, wanted, is_same)
    entries: list[NewEntry] = []

    def place() -> tuple[str, str | None]:
        return new_id(), entries[-1].id if entries else below

    removed_ids = [id for _, id in removed]
    summaries = {entry.id for entry in path if entry.kind == COMPACTION}
    compaction = latest_compaction(path)
    if compaction is not None and any(id.removesuffix(common.PROMPT) in summaries for id in removed_ids):
        # The other summaries go with it, and come back as messages with those behind them.
        first = next(
            (at for at, (_, id) in enumerate(stays) if id.removesuffix(common.PROMPT) in summaries), len(stays)
        )
        stays, removed = stays[:first], [*stays[first:], *removed]
        stay_ids = {id for _, id in stays}
        removed_ids = [item.entry_id for item in project_kept(path) if item.entry_id not in stay_ids]
        id, parent = place()
        tokens = compaction.fields.get("tokensBefore")
        taken_back = uncompaction(compaction, None, path[0].id, tokens if isinstance(tokens, int) else 0)
        entries.append(replace(taken_back, id=id, parent_id=parent))
    for removed_id in removed_ids:
        id, parent = place()
        entries.append(NewEntry.exclusion(removed_id, by="langgraph", id=id, parent_id=parent))
    old_messages, stayed = [message for message, _ in removed], len(stays)
    for message in wanted[stayed:]:
        id, parent = place()
        copy, entry = build(message, old_messages, id, parent)
        entries.append(entry)
        stays.append((copy, id))
    tail = (*line.tail, *(id for _, id in stays[stayed:]))
    line = replace(line, count=len(stays), tail=tail)
    if removed or len(tail) > _TAIL + len(stays) // _TAIL:
        id, parent = place()
        ids: list[JsonValue] = [message_id for _, message_id in stays]
        entries.append(NewEntry.custom(LISTING, {"ids": ids}, id=id, parent_id=parent))
        line = Line(len(stays), id, (), id if removed else line.epoch, line.base)
    return NewLine(entries, line, tuple(stays))


def _stays_and_removed(
    old: Sequence[tuple[Message, str]], wanted: Sequence[Message], is_same: Callable[[Message, Message], bool]
) -> tuple[list[tuple[Message, str]], list[tuple[Message, str]]]:
    count = 0
    # As a rule all old ones stay, and looking at each of them takes most of the time.
    for (message, _), wanted_message in zip(old, wanted, strict=False):
        if not is_same(message, wanted_message):
            break
        count += 1
    stays, removed = list(old[:count]), []
    for pair in old[count:]:
        if len(stays) < len(wanted) and is_same(pair[0], wanted[len(stays)]):
            stays.append(pair)
        else:
            removed.append(pair)
    return stays, removed


# Task writes at a checkpoint, under ids derived from its id

Writes: TypeAlias = "list[tuple[str, str, int, str, JsonValue]]"
"""Path of the task, its id, number, channel and the stored value, in the order in which a graph applies them."""


async def entries_of_writes(session: Session, entry_ids: Sequence[str]) -> dict[str, list[Entry]]:
    """Return the entries with the writes at checkpoints, in order, by the ids of their entries. A few reads."""
    writes: dict[str, list[Entry]] = {at: [] for at in entry_ids}
    noted = await numbers_of(session)
    windows = {at: range(noted.window(at)) for at in entry_ids}
    while windows:
        ids = [writes_id(at, number) for at, window in windows.items() for number in window]
        entries = iter(await session.get_entries(ids))
        further = {}
        for at, window in windows.items():
            present = [entry for entry in islice(entries, len(window)) if entry is not None]
            writes[at] += present
            if len(present) == len(window):
                further[at] = range(window.stop, window.stop + 4 * len(window))
        windows = further
    return writes


async def free_number(place: Place, at: str, number: int) -> int:
    """Return the first number that is free for writes at an entry, and note it where it is not looked for."""
    size = 4 * WINDOW
    sees_all = True
    while True:
        ids = [writes_id(at, id) for id in range(number, number + size)]
        taken = await place.taken(ids)
        free = next((place for place, id in enumerate(ids) if id not in taken), size)
        sees_all = sees_all and None not in await place.get_entries(ids[:free])
        number += free
        if free < size:
            break
    noted = await numbers_of(place)
    if not sees_all and number >= noted.window(at):
        await place.note(noted.with_writes(at, number).to_metadata())
    return number


async def free_put(place: Place, id: str, last: Record | None) -> int:
    """Return the first number that is free for a checkpoint, behind the last one of its that is seen here."""
    number, size = 1 if last is None else number_of_put(last.entry_id) + 1, PUTS
    while True:
        ids = [entry_id(id, put_number) for put_number in range(number, number + size)]
        taken = await place.taken(ids)
        if len(taken) < size:
            return number + next(at for at, put_id in enumerate(ids) if put_id not in taken)
        number, size = number + size, 4 * size


def applied(entries: Sequence[Entry]) -> Writes:
    """Return the writes of entries in order. Of a number the first stays; errors and interrupts are replaced."""
    applied: dict[tuple[str, int], tuple[str, str, int, str, JsonValue]] = {}
    for entry in entries:
        fields = entry.fields
        task, path = str(fields.get("task")), str(fields.get("path") or "")
        for write in listed(fields.get("writes")):
            match write:
                case [int(number), str(channel), stored]:
                    if number < 0 or (task, number) not in applied:
                        applied[task, number] = (path, task, number, channel, stored)
    return sorted(applied.values(), key=lambda write: write[:3])


# Threads: a session each, and a task session for each namespace of a subgraph

NAMESPACE = "checkpointNamespace"
OWNER = "owner"
CALLS = "callScope"
"""The field of a session's metadata that tells its calls from those of other threads, if its own id does not."""
UNORDERED = "unordered"
"""The field of a session's metadata that says it has a checkpoint whose id is less than that of an earlier one."""

_THREADS_PAGE = 500


class ThreadOwned(InvalidArgument):
    """The thread is another writer's: it was begun or claimed by a saver with another ``owner``."""


class Address(Frozen):
    """A namespace of a thread, and perhaps one checkpoint in it."""

    thread: str
    namespace: str = ""
    checkpoint: str | None = None

    @property
    def key(self) -> str:
        """The key of the session."""
        return common.key_of(self._name)

    @property
    def _name(self) -> str:
        # A tab parts the two. A thread whose own id has one is named in another way, so that no two share a key.
        if "\t" in self.thread:
            return f"\0{json.dumps([self.thread, self.namespace])}"
        return f"{self.thread}\t{self.namespace}" if self.namespace else self.thread

    def metadata(self) -> JsonObject:
        """Return the metadata of the session that say its name and namespace."""
        metadata: JsonObject = {FRAMEWORK: "langgraph", **common.metadata_of(self._name)}
        if self.namespace:
            metadata[NAMESPACE] = self.namespace
        return metadata

    def at(self, checkpoint_id: str) -> RunnableConfig:
        """Return the configuration that names a checkpoint of this namespace."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.namespace, "checkpoint_id": checkpoint_id}
        return {"configurable": named}


def address_of(config: RunnableConfig) -> Address:
    """Return the address that a configuration names. Raises `InvalidArgument` without a ``thread_id``."""
    configurable = configurable_of(config)
    thread = configurable.get("thread_id")
    if thread is None:
        raise InvalidArgument("config: names no thread; give it {'configurable': {'thread_id': ...}}")
    checkpoint = configurable.get("checkpoint_id")
    return Address(str(thread), str(configurable.get("checkpoint_ns") or ""), str(checkpoint) if checkpoint else None)


def configurable_of(config: RunnableConfig) -> Mapping[str, object]:
    """Return the fields of a configuration that name a checkpoint."""
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping):
        raise InvalidArgument(f"config: {shown(config)} has no 'configurable' that names a thread")
    return cast("Mapping[str, object]", configurable)


def address_of_session(key: str, metadata: Mapping[str, JsonValue]) -> Address:
    """Return the address that a session has, from its key and its metadata."""
    name = common.id_of(key, metadata)
    if name.startswith("\0") and common.FRAMEWORK_ID in metadata:
        thread, namespace = json.loads(name[1:])
        return Address(str(thread), str(namespace))
    namespace = str(metadata.get(NAMESPACE) or "")
    return Address(name.removesuffix(f"\t{namespace}") if namespace else name, namespace)


async def session_to_write(store: Store, address: Address, owner: str | None) -> Session:
    """Return the session of a namespace, made if need be, and claimed for the owner. Raises `ThreadOwned`."""
    session = await common.find_session(store, address.key) or await _new_session(store, address, owner)
    while True:
        metadata = session.metadata
        current_owner = metadata.get(OWNER)
        if current_owner is not None and current_owner != owner:
            raise ThreadOwned(
                f"thread {address.thread!r} is owned by {current_owner!r}, and this saver writes as {owner!r}; wait "
                "until that writer releases it, or take it with FlueSaver.release"
            )
        if metadata.get(FRAMEWORK) is not None and current_owner == owner:
            return session
        # A session that was begun by hand, or forked, becomes a thread with the first checkpoint put into it.
        claim = address.metadata() | ({} if owner is None else {OWNER: owner})
        if metadata.get(FRAMEWORK) is None and session.leaf_id is not None:
            claim |= (await counted(session)).to_metadata()
        try:
            await session.set_metadata(claim, merge=True, expected_revision=session.revision)
        except RevisionConflict:
            await session.refresh()
        else:
            return session


async def _new_session(store: Store, address: Address, owner: str | None) -> Session:
    metadata = address.metadata() | ({} if owner is None else {OWNER: owner})
    if not address.namespace:
        return await store.open_session(address.key, mode="get_or_create", metadata=metadata)
    thread = await session_to_write(store, Address(address.thread), owner)
    metadata[CALLS] = call_scope(thread)
    try:
        task = await thread.tasks.create(
            task_id=address.namespace, key=address.key, title=address.namespace, metadata=metadata
        )
    except SessionExists:
        # Another task of the same subgraph has made it meanwhile.
        return await store.open_session(address.key)
    await task.refresh()
    return task


async def sessions_of_thread(store: Store, thread: str) -> list[tuple[Address, Session]]:
    """Return the sessions of a thread, that of the graph itself first; none if it has no session. O(namespaces)."""
    main = await common.find_session(store, Address(thread).key)
    if main is None:
        return []
    sessions = [(Address(thread), main)]
    for link in await main.tasks.links():
        task = await store.get_session(link.child_id)
        if task is not None and task.metadata.get(NAMESPACE) is not None:
            sessions.append((Address(thread, str(task.metadata[NAMESPACE])), task))
    return sessions


async def all_sessions(store: Store) -> AsyncIterator[tuple[Address, Session]]:
    """Yield the sessions of all threads, oldest first. O(sessions of the store)."""
    pages = partial(
        store.list_sessions,
        metadata={FRAMEWORK: "langgraph"},
        scope=store.scope or "",
        order_by="created",
        descending=False,
        limit=_THREADS_PAGE,
    )
    async for info in listed_sessions(pages):
        session = await store.get_session(info.id)
        if session is not None and info.key is not None:
            yield address_of_session(info.key, info.metadata), session


async def release(store: Store, *, thread: str) -> None:
    """Take the name of its owner from a thread and its namespaces."""
    for _, session in await sessions_of_thread(store, thread):
        if session.metadata.get(OWNER) is not None:
            await session.set_metadata({OWNER: None}, merge=True)


def call_scope(session: Session | Place) -> str:
    """Return the scope of the ids of a thread's calls, in whichever of its namespaces they were made."""
    scope = session.metadata.get(CALLS)
    return scope if isinstance(scope, str) else session.id


# Import from another checkpointer


def place_of(imported: CheckpointTuple, parent: CheckpointTuple | None) -> tuple[RunnableConfig, ChannelVersions]:
    """Return the configuration to put a checkpoint with, and the versions that its parent does not have."""
    address = address_of(imported.config)
    named: dict[str, Any] = {"thread_id": address.thread, "checkpoint_ns": address.namespace}
    if imported.parent_config is not None:
        named["checkpoint_id"] = address_of(imported.parent_config).checkpoint
    old = {} if parent is None else parent.checkpoint["channel_versions"]
    versions = imported.checkpoint["channel_versions"].items()
    return {"configurable": named}, {channel: version for channel, version in versions if old.get(channel) != version}


def tasks_of(imported: CheckpointTuple) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Yield the writes at a checkpoint, task by task, with a path that keeps the tasks in their order."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in imported.pending_writes or []:
        tasks.setdefault(task_id, []).append((channel, value))
    for number, (task_id, writes) in enumerate(tasks.items()):
        yield task_id, f"{number:06}", writes
