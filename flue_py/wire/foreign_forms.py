"""A provider's message, checked and read by the importers' code for one message. See `flue_py.wire.foreign`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidEntry, shown
from flue_py.wire.anthropic import anthropic_difference, messages_from_anthropic
from flue_py.wire.openai_chat import calls_in as calls_in  # noqa: PLC0414 - what is called is told by the same module
from flue_py.wire.openai_chat import chat_difference, message_from_chat
from flue_py.wire.openai_responses import message_from_item, responses_difference

_OURS = frozenset({"api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp"})
"""Fields of our messages that callers put on a provider's: they count as they would on ours."""

_ITEMS = re.compile(r"message|reasoning|.*_(call|output|response|request|list_tools)|item_reference|compaction")
_Pairs = Iterator[tuple[JsonObject, JsonObject]]


# --- Reading ------------------------------------------------------------------------------------------------


def _from_chat(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = message_from_chat(value, names)
    yield message, chat_difference(message, value)


def _from_item(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = message_from_item(value, names)
    message.update((name, value[name]) for name in value.keys() & _OURS if message["role"] == "assistant")
    if "timestamp" in value:
        message["timestamp"] = value["timestamp"]
    yield message, responses_difference(message, value)


def _from_anthropic(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    yield from messages_from_anthropic(value, names, own=_OURS)


READERS: Mapping[str, Callable[[JsonObject, Mapping[str, str]], _Pairs]] = {
    "openai-chat": _from_chat,
    "openai-responses": _from_item,
    "anthropic": _from_anthropic,
}
DIFFERENCES: Mapping[str, Callable[[JsonObject, JsonObject], JsonObject]] = {
    "openai-chat": chat_difference,
    "openai-responses": responses_difference,
    "anthropic": anthropic_difference,
}


# --- Checking -----------------------------------------------------------------------------------------------


def check(value: JsonObject, shape: str, where: str) -> None:
    """Raise `InvalidEntry`, with the path of the field, for what the reader of a shape could not make sense of."""
    _CHECKS[shape](value, where)


def _check_chat(value: JsonObject, where: str) -> None:
    role = value.get("role")
    if role == "function" or isinstance(value.get("function_call"), dict):
        field = "role" if role == "function" else "function_call"
        raise InvalidEntry(f"{where}.{field}: calls without an id are not converted; send tool_calls and role tool")
    if role == "tool":
        _need_text(value, "tool_call_id", where)
        _need_content(value, where)
    calls = value.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise InvalidEntry(f"{where}.tool_calls: should be a list or null, not {shown(calls)}")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        _check_chat_call(call, f"{where}.tool_calls[{number}]")
    for part, path in _parts(value.get("content"), where):
        if part.get("type") == "image_url":
            held = part.get("image_url")
            _need_text(held if isinstance(held, dict) else {"url": held}, "url", f"{path}.image_url")


def _check_chat_call(call: JsonValue, where: str) -> None:
    if not isinstance(call, dict):
        raise InvalidEntry(f"{where}: should be an object, not {shown(call)}")
    _need_text(call, "id", where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is neither function nor custom")
    called = call.get(str(kind))
    if not isinstance(called, dict):
        raise InvalidEntry(f"{where}.{kind}: should be an object, not {shown(called)}")
    _need_text(called, "name", f"{where}.{kind}")
    if kind == "custom":
        _need_text(called, "input", f"{where}.custom")


def _check_item(value: JsonObject, where: str) -> None:
    kind = value.get("type", "message")
    if not _ITEMS.fullmatch(str(kind)):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is no type of a Responses item")
    if kind == "message":
        _need_text(value, "role", where)
        _need_content(value, where)
    elif kind in ("function_call", "custom_tool_call"):
        _need_text(value, "call_id", where)
        _need_text(value, "name", where)
        _need_text(value, "arguments" if kind == "function_call" else "input", where)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        _need_text(value, "call_id", where)
        if not isinstance(value.get("output"), (str, list)):
            raise InvalidEntry(f"{where}.output: should be a string or a list, not {shown(value.get('output'))}")
    for part, path in (*_parts(value.get("content"), where), *_parts(value.get("output"), where, "output")):
        if part.get("type") in ("input_text", "output_text"):
            _need_text(part, "text", path)


def _check_anthropic(value: JsonObject, where: str) -> None:
    role = value.get("role")
    if role not in ("user", "assistant"):
        raise InvalidEntry(f"{where}.role: should be user or assistant in this form, not {shown(role)}")
    for block, path in _parts(value.get("content"), where):
        kind = str(block.get("type"))
        if kind in _SIDES and role != _SIDES[kind]:
            raise InvalidEntry(f"{path}.type: a {kind} stands in a message of the {_SIDES[kind]}")
        for field in _NEEDED.get(kind, ()):
            _need_text(block, field, path)
        if kind == "tool_use" and "input" not in block:
            raise InvalidEntry(f"{path}.input: is missing")
        if kind == "tool_result" and not isinstance(block.get("content"), (str, list, type(None))):
            raise InvalidEntry(f"{path}.content: should be a string or a list, not {shown(block.get('content'))}")
        if kind in ("image", "document") and "source" in block and not isinstance(block["source"], dict):
            raise InvalidEntry(f"{path}.source: should be an object, not {shown(block['source'])}")


_SIDES: Mapping[str, str] = {"tool_use": "assistant", "tool_result": "user", "redacted_thinking": "assistant"}
_NEEDED = {
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
}
_CHECKS: Mapping[str, Callable[[JsonObject, str], None]] = {
    "openai-chat": _check_chat,
    "openai-responses": _check_item,
    "anthropic": _check_anthropic,
}


def _parts(content: JsonValue, where: str, field: str = "content") -> Iterator[tuple[JsonObject, str]]:
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            raise InvalidEntry(f"{where}.{field}[{number}]: should be an object with a type, not {shown(part)}")
        yield part, f"{where}.{field}[{number}]"


def _need_text(value: Mapping[str, JsonValue], field: str, where: str) -> None:
    found = value.get(field)
    if found is None:
        raise InvalidEntry(f"{where}.{field}: is missing")
    if not isinstance(found, str):
        raise InvalidEntry(f"{where}.{field}: should be a string, not {shown(found)}")


def _need_content(value: Mapping[str, JsonValue], where: str) -> None:
    if not isinstance(value.get("content"), (str, list)):
        raise InvalidEntry(f"{where}.content: should be a string or a list, not {shown(value.get('content'))}")
