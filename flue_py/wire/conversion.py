"""Messages of OpenAI chat, OpenAI Responses, Anthropic and Gemini, one at a time, from and to ours.

`shape_of` finds the form of a message by features that only one provider has. `convert` makes ours of it, with what an
export needs to give the original back; `to_provider` is the way back. Whole lists, with each result behind its call,
are what imports and exports are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from flue_py.core.bound import PRODUCED_UNDER
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.shapes import Shape
from flue_py.core.usage_shapes import context_of
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.wire import anthropic, gemini, openai_chat, openai_responses
from flue_py.wire.differences import restored
from flue_py.wire.leftovers import ExportNote, Leftovers

_OURS = frozenset({
    "api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", PRODUCED_UNDER,
})  # fmt: skip
"""Fields of our messages that callers put on a provider's: they count as they would on ours."""

_ITEMS = re.compile(r"message|reasoning|.*_(call|output|response|request|list_tools)|item_reference|compaction")
_Pairs = Iterator[tuple[JsonObject, JsonObject]]


class Converted(NamedTuple):
    """One of our messages, made from a provider's, with what stands beside it in the entry's ``extra``."""

    message: JsonObject
    beside: JsonObject


class Printed(NamedTuple):
    """The messages of a provider that one of ours is, and what they had no place for."""

    messages: tuple[JsonObject, ...]
    notes: tuple[ExportNote, ...]


def convert(
    message: JsonObject, shape: Shape, names: MutableMapping[str, str], where: str = "message"
) -> list[Converted]:
    """Return a provider's message as ours, one or more, with what brings the original back in an export.

    ``names`` are the names of the tool calls so far, by id; those of this message are added. Nothing is shared with
    ``message`` that is changed. Raises `InvalidEntry` with the path of what cannot be converted. O(size).
    """
    form = _form(shape)
    form.check(message, where)
    converted = [Converted(*pair) for pair in form.read(message, names)]
    beside = context_of(message)
    for each in converted:
        usage = each.message.get("usage")
        if beside and shape != "anthropic" and isinstance(usage, dict):
            # What stood beside the usage may have no place in a message of ours.
            each.message["usage"] = {**beside, **usage}
        names.update(openai_chat.calls_in(each.message))
    return converted


def beside_ours(message: JsonObject, shape: Shape) -> JsonObject:
    """Return what has to stand beside a message of ours, so that a list of ``shape`` gets it as it came. O(size)."""
    return _form(shape).difference(message, message)


def to_provider(message: JsonObject, shape: Shape, beside: Mapping[str, JsonValue] | None = None) -> Printed:
    """Return one of our messages as a provider takes it, and notes on what was left out or changed.

    With ``beside``, from `convert` or from the entry's `Entry.extra_fields`, the original comes back, field for field.
    A Responses answer is an item for each of its parts; of results of tools that Anthropic and Gemini have in one
    message, each is a message of its own. Raises `InvalidArgument` for an unknown shape. O(size).
    """
    form = _form(shape)
    found = (beside or {}).get(form.extra)
    left = Leftovers()
    printed = form.write(message, left)
    if found is None:
        return Printed(tuple(printed), left.notes())
    if shape == "anthropic" and message.get("role") == "toolResult":
        block = restored(anthropic.printed_result(message, left), found)
        return Printed(({"role": "user", "content": [block]},), ())
    return Printed((restored(printed[0] if len(printed) == 1 else {}, found),), ())


# --- The forms ----------------------------------------------------------------------------------------------------


def _from_chat(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = openai_chat.message_from_chat(value, names)
    yield message, openai_chat.chat_difference(message, value)


def _from_item(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    message = openai_responses.message_from_item(value, names)
    message.update((name, value[name]) for name in value.keys() & _OURS if message["role"] == "assistant")
    if "timestamp" in value:
        message["timestamp"] = value["timestamp"]
    yield message, openai_responses.responses_difference(message, value)


def _from_anthropic(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    yield from anthropic.messages_from_anthropic(value, names, own=_OURS)


def _from_gemini(value: JsonObject, names: Mapping[str, str]) -> _Pairs:
    yield from gemini.messages_from_gemini(value, own=_OURS)


# --- Checking -----------------------------------------------------------------------------------------------------


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
        raise InvalidEntry(f"{where}.type: {shown(kind)} is not a type of a Responses item")
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


class _Form(NamedTuple):
    """How messages of one shape are checked, read and written, and the field of ``extra`` that has the differences."""

    extra: str
    check: Callable[[JsonObject, str], None]
    read: Callable[[JsonObject, Mapping[str, str]], _Pairs]
    write: Callable[[JsonObject, Leftovers], list[JsonObject]]
    difference: Callable[[JsonObject, JsonObject], JsonObject]


def _write_chat(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [openai_chat.printed_chat(message, left)]


def _write_anthropic(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [anthropic.printed_anthropic(message, left)]


def _write_gemini(message: JsonObject, left: Leftovers) -> list[JsonObject]:
    return [gemini.printed_content(message, left)]


_FORMS: Mapping[str, _Form] = {
    "openai-chat": _Form(openai_chat.EXTRA, _check_chat, _from_chat, _write_chat, openai_chat.chat_difference),
    "openai-responses": _Form(
        openai_responses.EXTRA,
        _check_item,
        _from_item,
        openai_responses.printed_items,
        openai_responses.responses_difference,
    ),
    "anthropic": _Form(
        anthropic.EXTRA, _check_anthropic, _from_anthropic, _write_anthropic, anthropic.anthropic_difference
    ),
    "gemini": _Form(gemini.EXTRA, gemini.check_content, _from_gemini, _write_gemini, gemini.gemini_difference),
}


def _form(shape: str) -> _Form:
    if shape not in _FORMS:
        raise InvalidArgument(f"shape: {shown(shape)} is not one of {', '.join(_FORMS)}")
    return _FORMS[shape]
