"""Messages of LangChain as messages of ours, and back, value for value.

What our form has no place for is in the entry's ``extra``, as the difference between what our message alone would give
back and the original. A message that JSON cannot hold, and one of a class that is not LangChain's, is there as the
framework's serializer has it.
"""

from __future__ import annotations

import copy
from functools import cache, partial
from types import NoneType
from typing import TYPE_CHECKING, cast

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

from flue_py.adapters.langgraph.values import Values, is_plain
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import billed_by
from flue_py.errors import CorruptStore, InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
