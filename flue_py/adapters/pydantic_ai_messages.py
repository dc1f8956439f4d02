"""Messages, usage and state of conversations of pydantic-ai as entries of ours, and back; the session of one."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import is_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast
from uuid import UUID

from msgspec import structs
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai import messages, tools, usage
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, from_json, to_json

from flue_py.adapters.common import as_message, id_of, key_of, restored_object, shown_groups, storable
from flue_py.context.pipeline import Item
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, decode_object, replace_lone_surrogates
from flue_py.core.json import to_json as json_to_json
from flue_py.core.kinds import MESSAGE, SHOWN_KINDS, SYSTEM
from flue_py.core.sessions import SessionInfo, call_id
from flue_py.core.usage import PaidCall, billed_by, ledger_name, read_call, read_reported, usage_json
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.providers.base import close_difference, fields_of, objects_in, restored, result_message
from flue_py.providers.openai_responses import json_text
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai import conversation_store
    from pydantic_ai.conversation_store import ConversationRecord
else:
    # Older versions of the framework do not have it, and record runs all the same.
    conversation_store = lazy_module("pydantic_ai.conversation_store")


# Usage of a response, and the calls paid for it


def our_usage(response: Mapping[str, JsonValue]) -> JsonObject:
    """Return the usage of a response in our form. A number that is 0 there was not reported, so it is left out.

    Nor was a cost of 0 for no tokens. Theirs counts the cache as part of the input, ours beside it. Empty if nothing is
    known.
    """
    usage = cast("JsonObject", response["usage"])
    measured = {} if usage.get("unmeasured_requests") else dict(usage)
    read, written = _count(measured, "cache_read_tokens"), _count(measured, "cache_write_tokens")
    whole, answered = _count(measured, "input_tokens"), _count(measured, "output_tokens")
    cost = None if usage.get("cost") is None else float(Decimal(str(usage["cost"])))
    ours: JsonObject = {
        "input": max(0, whole - read - written),
        "output": answered,
        "cacheRead": read,
        "cacheWrite": written,
        "cacheWrite1h": _count(measured, "cache_write_1h_tokens"),
        "reasoning": _count(measured, "output_reasoning_tokens"),
        "totalTokens": whole + answered,
    }
    reported: JsonObject = {name: tokens for name, tokens in ours.items() if tokens}
    if reported:
        reported |= billed_by(cast("JsonObject", response.get("provider_details") or {}), usage)
    return {**reported, "cost": {"total": cost}} if cost or (cost is not None and reported) else reported


def their_usage(usage: JsonValue, is_whole: bool = False) -> JsonObject:
    """Return a usage of ours as a request's, as far as ours says it; with the rest too, if it is to be ``is_whole``."""
    ours = fields_of(usage)
    read, written = _count(ours, "cacheRead"), _count(ours, "cacheWrite")
    usage_of_request: JsonObject = {
        "input_tokens": _count(ours, "input") + read + written,
        "output_tokens": _count(ours, "output"),
        "details": {},
    }
    cost = ours.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else cost
    if is_whole or total is not None:
        usage_of_request["cost"] = None if total is None else format(Decimal(str(total)), "f")
    cache_counts = (
        ("cache_read_tokens", read),
        ("cache_write_tokens", written),
        ("cache_write_1h_tokens", _count(ours, "cacheWrite1h")),
        ("output_reasoning_tokens", _count(ours, "reasoning")),
    )
    for name, tokens in cache_counts:
        if tokens or is_whole:
            usage_of_request[name] = tokens
    return {**usage_of_request, **_OF_USAGE} if is_whole else usage_of_request


_OF_USAGE: JsonObject = {
    "input_audio_tokens": 0,
    "cache_audio_read_tokens": 0,
    "output_audio_tokens": 0,
    "audio_seconds": 0.0,
}


def _count(usage: JsonObject, name: str) -> int:
    tokens = usage.get(name, 0)
    return tokens if type(tokens) is int else 0


def calls_of(response: JsonObject) -> list[JsonObject]:
    """Return the calls that were paid for a response, each with its id: the failed attempts before it, then its own."""
    identity = identity_of(response)
    return [*_attempts(response, identity), {**_call(response), "callId": identity}]


def _attempts(response: JsonObject, identity: str) -> Iterator[JsonObject]:
    attempts = cast("list[JsonObject]", response.get("failed_attempts") or [])
    for number, attempt in enumerate(attempts):
        # An attempt whose usage is unknown may never have reached its model: it is no call.
        if attempt.get("usage") is not None:
            yield {**_call(attempt), "callId": f"{identity}:attempt-{number}"}


def _call(response: Mapping[str, JsonValue]) -> JsonObject:
    call = our_usage(response)
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if response.get(theirs):
            call[ours] = response[theirs]
    return call


def beside_responses(now: RunUsage, before: RunUsage | None, calls: Sequence[PaidCall], name: str) -> PaidCall | None:
    """Return the usage of a conversation since ``before`` beside the calls of its new responses; None for nothing.

    Those are the calls of an agent that is a tool, or of a capability that writes a summary: the usage of the run
    counts them, without their models, and no response has them. They are one call here.
    """
    seen = {
        "input_tokens": sum(call.usage.input + call.usage.cache_read + call.usage.cache_write for call in calls),
        "output_tokens": sum(call.usage.output for call in calls),
        "cache_read_tokens": sum(call.usage.cache_read for call in calls),
        "cache_write_tokens": sum(call.usage.cache_write for call in calls),
        "cache_write_1h_tokens": sum(call.cache_write_1h for call in calls),
        "output_reasoning_tokens": sum(call.reasoning for call in calls),
    }
    rest: JsonObject = {
        field: max(0, getattr(now, field) - (0 if before is None else getattr(before, field)) - tokens)
        for field, tokens in seen.items()
    }
    if not rest["input_tokens"] and not rest["output_tokens"]:
        return None
    return read_call({**our_usage({"usage": rest}), "callId": call_id("pydantic-ai", json_to_json(name))}, "usage")


def identity_of(response: JsonObject) -> str:
    """Return the id of the call behind a response: its provider's, or one that saving it again finds again.

    A response of a run is identified by the run and its time, so that editing its content makes no second call of it.
    One that was made by hand is identified by its whole content.
    """
    named = response.get("provider_response_id")
    if isinstance(named, str) and named:
        return named
    run = response.get("run_id")
    names = ("run_id", "timestamp", "provider_name", "model_name", "usage")
    identity = [response.get(name) for name in names] if run is not None else [response]
    return call_id("pydantic-ai", json_to_json(identity))


# Messages as JSON, theirs as ours and ours as theirs
#
# The second need not be exact: its errors are stored beside the message as a difference (see `entries_of`).

_FILES = ("image-url", "audio-url", "document-url", "video-url")
_URL_OF = {"image": "image-url", "file": "document-url"}
_STOPS = {"tool_call": "toolUse"}
_FINISHES = {"toolUse": "tool_call"}
_ERRORS = ("failed", "retried")
_URL_SAFE = str.maketrans("-_", "+/")
_STANDARD = str.maketrans("+/", "-_")


class Reading(NamedTuple):
    """One of our messages, and the tag of where it comes from."""

    message: JsonObject
    source: str | None = None


# From theirs


def said_in(message: JsonObject) -> tuple[list[Reading], dict[int, JsonObject]]:
    """Return our messages for one of theirs, and its parts that none of ours stands for, by position."""
    parts = cast("list[JsonObject]", message["parts"])
    if message["kind"] == "response":
        return [Reading(_answer(message, parts))], {}
    messages: list[Reading] = []
    silent: dict[int, JsonObject] = {}
    for index, part in enumerate(parts):
        read = _REQUESTED.get(str(part["part_kind"]))
        if read is None:
            silent[index] = part
        else:
            messages.append(read(part))
    return messages, silent


def _stamped(message: JsonObject, part: Mapping[str, JsonValue]) -> JsonObject:
    return message if part.get("timestamp") is None else {**message, "timestamp": part["timestamp"]}


def _user(part: JsonObject) -> Reading:
    content = part["content"]
    items: JsonValue = [_item(item) for item in content] if isinstance(content, list) else content
    return Reading(_stamped({"role": "user", "content": items}, part))


def _item(item: JsonValue) -> JsonValue:
    if not isinstance(item, dict):
        return {"type": "text", "text": item}
    kind = item.get("kind")
    if kind in ("text-content", "structured-content"):
        return {"type": "text", "text": item["content"]}
    if kind == "binary":
        return _file(item)
    if kind in _FILES:
        named: JsonObject = {"type": "image" if kind == "image-url" else "file", "url": item["url"]}
        return named if item.get("media_type") is None else {**named, "mimeType": item["media_type"]}
    return {"type": kind, **item}


def _file(item: JsonObject) -> JsonObject:
    media = item["media_type"]
    kind = "image" if str(media).startswith("image/") else "file"
    return {"type": kind, "data": str(item["data"]).translate(_URL_SAFE), "mimeType": media}


def _result(part: JsonObject) -> Reading:
    content = part["content"]
    text_or_parts: JsonValue = content if isinstance(content, str) else _result_content(content)
    is_error = True if part.get("outcome") in _ERRORS else None
    message = result_message(part["tool_call_id"], text_or_parts, part["tool_name"], is_error=is_error)
    return Reading(_stamped(message, part))


def _result_content(content: JsonValue) -> JsonValue:
    """Return the answer of a tool that is not text: its files as parts, all else as the JSON that models see."""
    items = content if isinstance(content, list) else [content]
    if not any(isinstance(item, dict) and item.get("kind") in (*_FILES, "binary") for item in items):
        return [{"type": "text", "text": json_text(content)}]
    return [
        _item(item)
        if isinstance(item, str) or (isinstance(item, dict) and item.get("kind") in (*_FILES, "binary"))
        else {"type": "text", "text": json_text(item)}
        for item in items
    ]


def _retry(part: JsonObject) -> Reading:
    content = part["content"]
    text = content if isinstance(content, str) else json_text(content)
    if part.get("tool_name") is None:
        return Reading(_stamped({"role": "user", "content": text}, part), "retry")
    message = result_message(part["tool_call_id"], text, part["tool_name"], is_error=True)
    return Reading(_stamped(message, part))


_REQUESTED: Mapping[str, Callable[[JsonObject], Reading]] = {
    "system-prompt": lambda part: Reading(_stamped({"role": "system", "content": part["content"]}, part)),
    "user-prompt": _user,
    "tool-return": _result,
    "retry-prompt": _retry,
    "retry-feedback": _retry,
}


def _answer(message: JsonObject, parts: Sequence[JsonObject]) -> JsonObject:
    answer: JsonObject = {"role": "assistant", "content": [_answered(part) for part in parts]}
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if message.get(theirs) is not None:
            answer[ours] = message[theirs]
    answer["usage"] = our_usage(message)
    finish = message.get("finish_reason")
    if message.get("state") == "interrupted":
        answer["stopReason"] = "aborted"
    elif finish is not None:
        answer["stopReason"] = _STOPS.get(str(finish), finish)
    return _stamped(answer, message)


def _answered(part: JsonObject) -> JsonValue:
    kind = str(part["part_kind"])
    if kind == "text":
        return {"type": "text", "text": part["content"]}
    if kind == "thinking":
        thought: JsonObject = {"type": "thinking", "thinking": part["content"]}
        return thought if part.get("signature") is None else {**thought, "thinkingSignature": part["signature"]}
    if kind == "tool-call":
        arguments = part.get("args")
        read = _read_arguments(arguments) if isinstance(arguments, str) else arguments
        return {"type": "toolCall", "id": part["tool_call_id"], "name": part["tool_name"], "arguments": read}
    if kind == "file":
        return _file(cast("JsonObject", part["content"]))
    return {"type": kind, **part}


def _read_arguments(text: str) -> JsonValue:
    """Return arguments that came as text as the object they are, where their text can be made of that again."""
    try:
        read: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, dict) and text in (json_text(read), _spaced_text(read)) else text


def _spaced_text(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


# To theirs


_NAMED: JsonObject = dict.fromkeys(("id", "provider_name", "provider_details"))
_OF_REQUEST: JsonObject = {
    **dict.fromkeys(("timestamp", "instructions", "run_id", "conversation_id", "metadata")),
    "state": "complete",
}
_OF_RESPONSE: JsonObject = dict.fromkeys((
    "model_id", "provider_url", "canonical_system", "provider_details", "provider_response_id", "run_id",
    "conversation_id", "metadata", "workspace_ref", "history_digest", "failed_attempts",
))  # fmt: skip
"""Fields of which our messages say nothing. They are None for whoever reads a message that does not have them."""


def request_of(
    ours: Sequence[Mapping[str, JsonValue]], silent: Mapping[str, JsonValue], is_whole: bool = False
) -> JsonObject:
    """Return our messages, none of them an answer, as a request, with the parts that none of ours stands for.

    With the fields of which ours say nothing, where it is to be ``is_whole``.
    """
    parts: list[JsonValue]
    if silent:
        spoken = iter(ours)
        places = map(str, range(len(ours) + len(silent)))
        parts = [silent[place] if place in silent else _part(next(spoken)) for place in places]
    else:
        parts = [_part(message) for message in ours]
    request: JsonObject = {"parts": parts, "kind": "request"}
    return {**request, **_OF_REQUEST} if is_whole else request


def _part(message: Mapping[str, JsonValue]) -> JsonValue:
    role, content = message.get("role"), message.get("content")
    stamp = message.get("timestamp")
    if role == "system":
        return {
            "content": content,
            "timestamp": stamp,
            "dynamic_ref": None,
            "context_id": None,
            "scope": "conversation",
            "metadata": None,
            "part_kind": "system-prompt",
        }
    if role == "toolResult":
        return {
            "tool_name": message.get("toolName"),
            "content": _returned(content),
            "tool_call_id": message.get("toolCallId"),
            "tool_kind": None,
            "metadata": None,
            "timestamp": stamp,
            "outcome": "retried" if message.get("isError") is True else "success",
            "retry": None,
            "part_kind": "tool-return",
            **({} if isinstance(content, str) else {"content_file_digests": []}),
        }
    prompt: JsonValue = [_their_item(item) for item in content] if isinstance(content, list) else content
    return {"content": prompt, "timestamp": stamp, "part_kind": "user-prompt"}


def _returned(content: JsonValue) -> JsonValue:
    if not isinstance(content, list):
        return content
    if len(content) == 1 and isinstance(part := content[0], dict) and part.get("type") == "text":
        try:
            return cast("JsonValue", json.loads(str(part.get("text"))))
        except (ValueError, RecursionError):
            return part.get("text")
    return [_their_item(item) for item in content]


def _their_item(item: JsonValue) -> JsonValue:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind == "text":
        return item.get("text")
    if kind in _URL_OF and "data" in item:
        return _binary(item)
    if kind in _URL_OF:
        return {
            "url": item.get("url"),
            "force_download": False,
            "vendor_metadata": None,
            "kind": _URL_OF[str(kind)],
            "media_type": item.get("mimeType"),
        }
    return {name: value for name, value in item.items() if name != "type"}


def _binary(item: Mapping[str, JsonValue]) -> JsonObject:
    return {
        "data": str(item.get("data")).translate(_STANDARD),
        "media_type": item.get("mimeType"),
        "vendor_metadata": None,
        "kind": "binary",
    }


def response_of(message: Mapping[str, JsonValue], is_whole: bool = False) -> JsonObject:
    """Return one of our answers as a response, with the fields of which it says nothing if it is to be ``is_whole``."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    stop = message.get("stopReason")
    response: JsonObject = {
        "parts": [_their_part(cast("JsonObject", part), is_whole) for part in cast("list[JsonValue]", content or [])],
        "usage": their_usage(message.get("usage"), is_whole),
        "model_name": message.get("model"),
        "timestamp": message.get("timestamp"),
        "kind": "response",
        "provider_name": message.get("provider"),
        "finish_reason": None if stop == "aborted" else _FINISHES.get(str(stop), stop),
        "state": "interrupted" if stop == "aborted" else "complete",
    }
    return {**response, **_OF_RESPONSE} if is_whole else response


def _their_part(part: JsonObject, is_whole: bool) -> JsonValue:
    kind = part.get("type")
    if kind == "text":
        their_part: JsonObject = {"content": part.get("text"), "part_kind": "text"}
        return {**their_part, **_NAMED, "citations": None} if is_whole else their_part
    if kind == "thinking":
        signature = part.get("thinkingSignature")
        their_part = {"content": part.get("thinking"), "signature": signature, "part_kind": "thinking"}
    elif kind == "toolCall":
        their_part = {
            "tool_name": part.get("name"),
            "args": part.get("arguments"),
            "tool_call_id": part.get("id"),
            "part_kind": "tool-call",
        }
        if is_whole:
            their_part["tool_kind"] = None
    elif kind in _URL_OF and "data" in part:
        their_part = {"content": _binary(part), "part_kind": "file"}
    else:
        return {name: value for name, value in part.items() if name != "type"}
    return {**their_part, **_NAMED} if is_whole else their_part


def form_of_arguments(theirs: JsonValue, read: JsonValue) -> bool | None:
    """Return whether arguments that came as text are spaced; None if the text cannot be made of their values."""
    if not isinstance(theirs, str) or isinstance(read, str):
        return None
    return next((spaced for spaced in (False, True) if theirs == (_spaced_text, json_text)[not spaced](read)), None)


# Messages from other programs, as messages of the framework

_BY_HAND_FINISHES = ("stop", "length", "content_filter", "toolUse", "error", "aborted")


def message_by_hand(entry: Entry, names: dict[str, str]) -> JsonObject:
    """Return a message of ours as the framework's, as JSON. ``names`` are those of the tools called so far, by call.

    Raises `InvalidArgument` for a role that the framework has no message for.
    """
    return _by_hand(as_message(ContextEntry(entry)).fields, names, entry)


def _by_hand(message: JsonObject, names: dict[str, str], entry: Entry | None) -> JsonObject:
    role = message.get("role")
    if message.get("timestamp") is None:
        message["timestamp"] = (datetime.now(UTC) if entry is None else entry.created_at).isoformat()
    if role == "assistant":
        _note_calls(message, names)
        message["usage"] = usage_json(read_reported(message.get("usage")))
        if message.get("stopReason") not in _BY_HAND_FINISHES:
            message.pop("stopReason", None)
        return response_of(message)
    if role == "toolResult":
        if not isinstance(message.get("toolName"), str):
            message["toolName"] = names.get(str(message.get("toolCallId")), "unknown")
        if message.get("content") is None:
            message["content"] = ""
        return request_of([message], {})
    if role in SYSTEM:
        message |= {"role": "system", "content": _text_of(message.get("content"))}
    if role == "user" or role in SYSTEM:
        return request_of([message], {})
    where = "a step of the context" if entry is None else f"entry {entry.id!r}"
    raise InvalidArgument(
        f"{where}: pydantic-ai has no message of the role {shown(role)}; "
        "load a fork of the session that does not have it"
    )


def _note_calls(message: JsonObject, names: dict[str, str]) -> None:
    for _, part in objects_in(message.get("content")):
        if part.get("type") == "toolCall":
            names[str(part.get("id"))] = str(part.get("name"))


def _text_of(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part.get("text", "")) for _, part in objects_in(content))


# Values that JSON cannot hold: tuples, bytes, NaN, lone surrogates, keys that are no strings
#
# `repairs` compares a value with the one read from its JSON, and returns the places that differ, each with the original
# value, as JSON. `repaired` puts it back. Objects of an application's own classes stay as their JSON says.

_Step: TypeAlias = "str | int"
Value = TypeVar("Value")


class _Unsayable(Exception):
    """A value of a class that is not ours to make again."""


def repairs(original: object, read: object) -> list[JsonValue]:
    """Return the changes that make ``original`` of ``read``, as places and values; empty if they are equal. O(size)."""
    if original == read:
        return []
    return [[list(path), value] for path, value in _differences(original, read, ())]


def repaired(value: object, changes: JsonValue) -> object:
    """Return ``value``, changed in place as `repairs` says."""
    for path, change in cast("list[tuple[list[_Step], JsonValue]]", changes or []):
        if not path:
            value = _decoded(change, value)
            continue
        at = value
        for step in path[:-1]:
            at = _step(at, step)
        _put(at, path[-1], _decoded(change, _step(at, path[-1])))
    return value


def without_surrogates(value: Value) -> Value:
    """Return a value with U+FFFD for each lone surrogate in it; what has none may be the same object. O(size)."""
    return cast("Value", _washed(value))


def _washed(value: object) -> object:
    kind = type(value)
    if kind is str:
        return replace_lone_surrogates(cast("str", value))[0]
    if kind in (list, tuple, set, frozenset):
        return kind(map(_washed, cast("list[object]", value)))
    if kind is dict:
        return {_washed(key): _washed(item) for key, item in cast("dict[object, object]", value).items()}
    if _is_of_framework(value):
        # Not by `copy`, which for a class that is deprecated warns.
        copied_object: object = object.__new__(kind)
        vars(copied_object).update((name, _washed(item)) for name, item in vars(value).items())
        return copied_object
    return value


def _differences(
    original: object, read: object, path: tuple[_Step, ...]
) -> Iterator[tuple[tuple[_Step, ...], JsonValue]]:
    if type(original) is type(read) and original == read:
        return
    inside = _inside(original, read)
    if inside is None:
        try:
            yield path, _encoded(original)
        except _Unsayable:
            return
        return
    if type(original) is not type(read):
        yield path, ["class", type(original).__name__]
    for step, inner, inner_read in inside:
        yield from _differences(inner, inner_read, (*path, step))


def _inside(original: object, read: object) -> list[tuple[_Step, object, object]] | None:
    """Return the parts of two values side by side; None where they have not the same ones."""
    if _is_of_framework(original) and _is_of_framework(read):
        fields, fields_read = vars(original), vars(read)
        return (
            [(name, fields[name], fields_read[name]) for name in fields]
            if fields.keys() == fields_read.keys()
            else None
        )
    if type(original) is list and type(read) is list and len(original) == len(read):
        return list(zip(range(len(original)), original, read, strict=True))
    if type(original) is dict and type(read) is dict and list(original) == list(read):
        return (
            [(key, original[key], read[key]) for key in original] if all(type(key) is str for key in original) else None
        )
    return None


def _is_of_framework(value: object) -> bool:
    kind = type(value)
    return is_dataclass(kind) and _class_called(kind.__name__) is kind


def _class_called(name: str) -> object:
    return next((kind for room in (messages, tools, usage) if (kind := getattr(room, name, None)) is not None), None)


def _step(at: object, step: _Step) -> object:
    if isinstance(at, list):
        return at[int(step)]
    return at[step] if isinstance(at, dict) else getattr(at, str(step))


def _put(at: object, step: _Step, value: object) -> None:
    if isinstance(at, list):
        at[int(step)] = value
    elif isinstance(at, dict):
        at[step] = value
    else:
        # Some of the framework's values are frozen; these have just been read, and are nobody's yet.
        object.__setattr__(at, str(step), value)


_ENCODERS: Mapping[type, Callable[[object], JsonValue]] = {
    str: json.dumps,
    float: repr,
    bytes: lambda value: b64encode(cast("bytes", value)).decode(),
    **dict.fromkeys((datetime, date, time), lambda value: cast("datetime | date | time", value).isoformat()),
    timedelta: lambda value: [getattr(value, name) for name in ("days", "seconds", "microseconds")],
    Decimal: str,
    UUID: str,
    **dict.fromkeys((list, tuple, set, frozenset), lambda value: [*map(_encoded, cast("Iterable[object]", value))]),
    dict: lambda value: [[_encoded(key), _encoded(item)] for key, item in cast("dict[object, object]", value).items()],
}

_DECODERS: Mapping[str, Callable[[JsonValue], object]] = {
    "json": lambda encoded: encoded,
    "str": lambda encoded: json.loads(cast("str", encoded)),
    "float": lambda encoded: float(cast("str", encoded)),
    "bytes": lambda encoded: b64decode(cast("str", encoded)),
    "datetime": lambda encoded: datetime.fromisoformat(cast("str", encoded)),
    "date": lambda encoded: date.fromisoformat(cast("str", encoded)),
    "time": lambda encoded: time.fromisoformat(cast("str", encoded)),
    "timedelta": lambda encoded: timedelta(*cast("list[int]", encoded)),
    "Decimal": lambda encoded: Decimal(cast("str", encoded)),
    "UUID": lambda encoded: UUID(cast("str", encoded)),
    "list": lambda encoded: [*map(_decoded, cast("list[JsonValue]", encoded))],
    "tuple": lambda encoded: tuple(map(_decoded, cast("list[JsonValue]", encoded))),
    "set": lambda encoded: set(map(_decoded, cast("list[JsonValue]", encoded))),
    "frozenset": lambda encoded: frozenset(map(_decoded, cast("list[JsonValue]", encoded))),
    "dict": lambda encoded: {_decoded(key): _decoded(item) for key, item in cast("list[list[JsonValue]]", encoded)},
    "object": lambda encoded: _made(cast("list[JsonValue]", encoded)),
}


def _encoded(value: object) -> JsonValue:
    """Return a value as JSON with its type. Raises `_Unsayable`."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return ["json", cast("int", value)]
    if kind in _ENCODERS:
        return [kind.__name__, _ENCODERS[kind](value)]
    if _is_of_framework(value):
        return ["object", [kind.__name__, {name: _encoded(item) for name, item in vars(value).items()}]]
    raise _Unsayable


def _decoded(encoded: JsonValue, instead_of: object = None) -> object:
    name, value = cast("tuple[str, JsonValue]", encoded)
    if name != "class":
        return _DECODERS[name](value)
    restored_object = _empty(cast("str", value))
    vars(restored_object).update(vars(instead_of))
    return restored_object


def _made(encoded: list[JsonValue]) -> object:
    name, fields = encoded
    restored_object = _empty(cast("str", name))
    vars(restored_object).update(
        (field, _decoded(item)) for field, item in cast("dict[str, JsonValue]", fields).items()
    )
    return restored_object


def _empty(name: str) -> object:
    """Return an object of a class of the framework's messages, without fields: making it anew might change them."""
    kind = _class_called(name)
    if not is_dataclass(kind):
        raise CorruptStore(f"{name} is not a class of this version of pydantic-ai; install the one that wrote it")
    return object.__new__(cast("type", kind))


# A message as entries of a session, and back
#
# All entries of one message lie behind each other. The last has the id of the message's entry in the conversation, and,
# in its ``extra``, the changes that make the framework's message of ours again: the places where that differs from the
# message that ours would be there, and the values that no JSON can say (`repairs`).

FIELD = "pydanticAi"
"""The field of an entry's ``extra``, and of a session's metadata, that is this adapter's."""

SILENT = "pydantic_ai.request"
"""The kind of an entry for a request that no message of ours could say: one without parts, for example."""


class Group(Frozen):
    """The entries of one message, and the record beside the last of them; None for one that was added by hand."""

    entries: Sequence[Entry]
    beside: JsonObject | None

    @property
    def id(self) -> str:
        """The id of the message's entry in the conversation."""
        named = (self.beside or {}).get("id")
        return named if isinstance(named, str) else self.entries[-1].id


# Writing


def entries_of(
    new: Sequence[tuple[str, ModelMessage]], state: JsonObject | None, agent: str | None = None
) -> list[list[NewEntry]]:
    """Return the entries of each message, which comes with its id, in order; the last of all has ``state`` beside it.

    ``agent`` is the name of the answering agent. Raises `InvalidEntry` for a value that has no form in JSON. O(size).
    """
    dumped = dumped_messages([message for _, message in new])
    read = _validated(dumped)
    last = len(new) - 1
    return [
        _entries(*named, message, again, state if number == last else None, agent)
        for number, (named, message, again) in enumerate(zip(new, dumped, read, strict=True))
    ]


def dumped_messages(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    """Return messages as JSON, by the framework's own rules. Raises `InvalidEntry`. O(size)."""
    try:
        try:
            return _dumped_as_they_are(messages)
        except PydanticSerializationError:
            # Half of a surrogate pair has no place in UTF-8. It is put back from the record beside the message.
            return _dumped_as_they_are([without_surrogates(message) for message in messages])
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        problem = "messages: pydantic-ai cannot write them as JSON, so they cannot be kept"
        raise InvalidEntry(f"{problem}: {error}") from error


def _dumped_as_they_are(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    return cast("list[JsonObject]", from_json(ModelMessagesTypeAdapter.dump_json([*messages], warnings=False)))


def _entries(
    name: str, theirs: ModelMessage, dumped: JsonObject, read: ModelMessage, state: JsonObject | None, agent: str | None
) -> list[NewEntry]:
    messages, silent = said_in(dumped)
    is_response = isinstance(theirs, ModelResponse)
    if is_response and agent is not None:
        messages[0].message["agentName"] = agent
    calls = calls_of(dumped) if is_response and dumped.get("failed_attempts") else []
    if len(calls) > 1:
        messages = [_paid_by(messages[0], calls)]
    record: JsonObject = {}
    if silent:
        record["silent"] = {str(index): part for index, part in silent.items()}
    if len(messages) != 1:
        record["count"] = len(messages)
    predicted = _predicted([each.message for each in messages], record)
    texts = _texts(predicted, dumped) if is_response else None
    if texts:
        record["texts"] = texts
    changes = close_difference(predicted, dumped)
    if changes:
        record["changes"] = changes
    exact = repairs(theirs, read)
    if exact:
        record["exact"] = exact
    key = key_of(name)
    if key != name:
        record["id"] = name
    if state is not None:
        record["state"] = state
    extra: JsonObject = {FIELD: storable(record)}
    if not messages:
        return [NewEntry.custom(SILENT, None, id=key, extra=extra)]
    *before, last = messages
    ends = NewEntry.message(last.message, last.source, id=key, calls=calls, extra=extra)
    if is_response and not calls:
        # As with the only one of `calls_of`, in less time.
        call = structs.replace(ends.calls[0], call_id=ledger_name(identity_of(dumped)))
        ends = structs.replace(ends, calls=(call,))
    return [*(NewEntry.message(*each) for each in before), ends]


def _paid_by(answer: Reading, calls: Sequence[JsonObject]) -> Reading:
    """Return an answer with the usage of all its calls: the framework counts attempts that failed as part of a run."""
    message = {name: value for name, value in answer.message.items() if name != "usage"}
    return Reading(decode_object(NewEntry.message(message, calls=calls).payload))


def _texts(predicted: JsonObject, dumped: JsonObject) -> JsonObject:
    """Return of which calls the arguments came as text, and whether it was spaced; ``predicted`` gets these texts."""
    texts: JsonObject = {}
    pairs = zip(cast("list[JsonObject]", predicted["parts"]), cast("list[JsonObject]", dumped["parts"]), strict=True)
    for index, (ours, theirs) in enumerate(pairs):
        if theirs.get("part_kind") == "tool-call":
            spaced = form_of_arguments(theirs.get("args"), ours.get("args"))
            if spaced is not None:
                texts[str(index)] = spaced
                ours["args"] = theirs["args"]
    return texts


# Reading


def extra_of(entry: Entry) -> JsonObject | None:
    """Return the record that this adapter keeps beside an entry; None if it has not written it."""
    if entry.extra is None or FIELD not in entry.extra:
        return None
    stored = entry.extra_fields.get(FIELD)
    return None if stored is None else restored_object(stored)


def groups_of(path: Sequence[Entry], extra_of: Callable[[Entry], JsonObject | None] = extra_of) -> list[Group]:
    """Return the messages that the model is sent of a path, in order: the whole path, unless all of it `is_plain`.

    Entries before the first whole message are left out. O(size).
    """
    spans: list[Sequence[Entry]] = []
    beside: dict[str, JsonObject | None] = {}
    end = len(path)
    while end:
        near = beside[path[end - 1].id] = extra_of(path[end - 1])
        count = 1 if near is None else max(1, cast("int", near.get("count", 1)))
        if count > end:
            break
        spans.append(path[end - count : end])
        end -= count
    lasts = ((entries, entries[-1]) for entries in shown_groups(spans[::-1]))
    groups = [Group(entries, beside[last.id] if last.id in beside else extra_of(last)) for entries, last in lasts]
    return [group for group in groups if group.beside is not None or group.entries[-1].kind == MESSAGE]


class ReadMessages:
    """The messages that groups were read as, by the last of their entries: no group is read twice while it is the same.

    A process that makes many requests of one path keeps one of these.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[Sequence[Entry], ModelMessage]] = {}
        self._beside: dict[str, tuple[Entry, JsonObject | None]] = {}

    def extra_of(self, entry: Entry) -> JsonObject | None:
        """Return the record beside an entry, as `extra_of` does, decoded once."""
        known = self._beside.get(entry.id)
        if known is None or known[0] is not entry:
            known = self._beside[entry.id] = entry, extra_of(entry)
        return known[1]

    def messages_of(self, groups: Sequence[Group]) -> list[ModelMessage]:
        """Return messages of the framework, value for value as they were given. O(size of those not read before).

        Raises `InvalidArgument` for an entry that was added by other means and is no message that the framework has.
        """
        names: dict[str, str] = {}
        return self._messages([(group, self._dumped(group, names)) for group in groups])

    def messages_sent(self, groups: Sequence[Group], items: Sequence[Item]) -> list[ModelMessage]:
        """Return the items of a request made of the path with these groups as the framework's messages. O(path).

        A message that no step has changed comes back value for value. Raises as `messages_of`.
        """
        unchanged = {item.entry_id for item in items if item.how is None}
        group_of: dict[str | None, Group] = {}
        for group in groups:
            ids = [entry.id for entry in group.entries if entry.kind in SHOWN_KINDS]
            if unchanged.issuperset(ids):
                group_of |= dict.fromkeys(ids, group)
        names: dict[str, str] = {}
        sent: list[tuple[Group | None, JsonObject | None]] = []
        for item in items:
            of_item = group_of.get(item.entry_id)
            if of_item is None:
                entry = None if item.source is None else item.source.entry
                sent.append((None, _by_hand(dict(item.message), names, entry)))
            elif not sent or sent[-1][0] is not of_item:
                sent.append((of_item, self._dumped(of_item, names)))
        return self._messages(sent)

    def _dumped(self, group: Group, names: dict[str, str]) -> JsonObject | None:
        """Return the message of a group as JSON; None if it was read before."""
        if group.beside is None:
            return message_by_hand(group.entries[-1], names)
        if (read := self._read.get(group.entries[-1].id)) is not None and read[0] == group.entries:
            return None
        messages = [entry.fields for entry in group.entries if entry.kind == "message"]
        predicted = _predicted(messages, group.beside, is_whole=False)
        return restored(predicted, group.beside.get("changes"))

    def _messages(self, sent: Sequence[tuple[Group | None, JsonObject | None]]) -> list[ModelMessage]:
        fresh = iter(_validated([dumped for _, dumped in sent if dumped is not None]))
        messages: list[ModelMessage] = []
        for group, dumped in sent:
            if group is None or group.beside is None:
                messages.append(next(fresh))
                continue
            last = group.entries[-1].id
            if dumped is not None:
                message = cast("ModelMessage", repaired(next(fresh), group.beside.get("exact")))
                self._read[last] = group.entries, message
            messages.append(self._read[last][1])
        return messages


def _predicted(messages: Sequence[JsonObject], record: JsonObject, is_whole: bool = True) -> JsonObject:
    if len(messages) == 1 and messages[0].get("role") == "assistant":
        predicted = response_of(messages[0], is_whole)
        parts = cast("list[JsonObject]", predicted["parts"])
        for index, spaced in cast("JsonObject", record.get("texts", {})).items():
            part = parts[int(index)]
            part["args"] = _spaced_text(part["args"]) if spaced else json_text(part["args"])
        return predicted
    return request_of(messages, cast("JsonObject", record.get("silent", {})), is_whole)


def _validated(dumped: Sequence[JsonObject]) -> list[ModelMessage]:
    try:
        read: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(to_json(dumped))
    except ValidationError as error:
        where = error.errors(include_url=False)[0]
        place = ".".join(map(str, where["loc"]))
        raise InvalidEntry(f"messages.{place}: this version of pydantic-ai does not read it: {where['msg']}") from error
    return read


# The state of a conversation beside its messages
#
# It is the state at a leaf: a save writes it beside the last entry that it adds, so that whoever goes back to that
# entry, by an undo or a fork, has the state there. A change without an entry (a branch, a fork, a save of no message)
# is in the session's metadata, for the leaf that it names.


class _Kept(Generic[Value]):
    """Values of a class as JSON and back, value for value."""

    def __init__(self, kind: type[Value]) -> None:
        # Only a list takes these settings, which messages have, too.
        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        self._adapter = TypeAdapter(list[kind], config=config)  # type: ignore[valid-type]

    def dumped(self, value: Value) -> tuple[JsonObject, list[JsonValue]]:
        """Return a value as JSON, and the repairs of values that JSON cannot say. Raises `InvalidEntry`."""
        try:
            text = self._adapter.dump_json([without_surrogates(value)], warnings=False)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidEntry(f"record: pydantic-ai cannot write it as JSON, so it cannot be kept: {error}") from error
        (written,) = cast("list[JsonObject]", json.loads(text))
        return written, repairs(value, self.read(written))

    def read(self, written: JsonValue, exact: JsonValue = None) -> Value:
        """Return the value that was written."""
        (value,) = self._adapter.validate_json(json.dumps([written]))
        return cast("Value", repaired(value, exact))


_USAGE = _Kept(RunUsage)
_REQUESTS = _Kept(DeferredToolRequests)
_NO_USAGE = _USAGE.dumped(RunUsage())[0]


class Current(NamedTuple):
    """A conversation as it is stored: its record, and the session with it; a handle on that, where there is one."""

    record: ConversationRecord
    info: SessionInfo
    session: Session | None = None


# Writing


def state_of(record: ConversationRecord) -> JsonObject:
    """Return the state of a record at its leaf. Raises `InvalidEntry` for values that JSON cannot hold."""
    state: JsonObject = {"revision": record.revision, "updatedAt": record.updated_at.isoformat()}
    usage, exact = _USAGE.dumped(record.usage)
    state["usage"] = {name: value for name, value in usage.items() if _NO_USAGE.get(name, 0) != value}
    if exact:
        state["exactUsage"] = exact
    if record.deferred_tool_requests is not None:
        state["deferred"], exact = _REQUESTS.dumped(record.deferred_tool_requests)
        if exact:
            state["exactDeferred"] = exact
    if record.branches:
        state["branches"] = list(record.branches)
    return state


def metadata_with(record: ConversationRecord, at_leaf: JsonObject | None) -> JsonObject:
    """Return the fields of a session's metadata that are this adapter's; ``at_leaf`` is the state without an entry."""
    fields: JsonObject = {}
    for name, value in (("scope", record.scope), ("from", record.forked_from), ("at", record.forked_at)):
        if value is not None:
            fields[name] = value
    if at_leaf is not None:
        fields["leaf"] = None if record.head_id is None else key_of(record.head_id)
        fields["state"] = at_leaf
    return {FIELD: storable(fields)}


def scope_of(store: Store, scope: str | None) -> str:
    """Return the scope of the session of a conversation: its own, wherever a session's scope can be it. O(length).

    Of a conversation without one it is the scope of the store.
    """
    return store.scope or "" if scope is None else key_of(scope)


# Reading


def kept_in(info: SessionInfo) -> JsonObject | None:
    """Return the fields that this adapter keeps in the metadata of a session; None if it never wrote to it."""
    if FIELD not in info.metadata_text:
        return None
    stored = info.metadata.get(FIELD)
    return None if stored is None else restored_object(stored)


async def session_of(store: Store, conversation_id: str) -> Session | None:
    """Return the session of a conversation: the one with that id, else the one with that key in no scope."""
    key = key_of(conversation_id)
    session = await store.get_session(key) if key else None
    if session is not None:
        return session
    info = await store.backend.get_session_by_key(key, store.scope or "")
    return None if info is None else await store.get_session(info.id)


def conversation_of(info: SessionInfo) -> str:
    """Return the id of the conversation that a session is."""
    name = info.key if info.key is not None else info.id
    return id_of(name, info.metadata) if name.startswith("sha256:") else name


def copied(record: ConversationRecord) -> ConversationRecord:
    """Return a record that may be changed without changing this one."""
    usage = copy(record.usage)
    waiting = None if record.deferred_tool_requests is None else deepcopy(record.deferred_tool_requests)
    return replace(record, usage=usage, deferred_tool_requests=waiting, branches=[*record.branches])


def record_of(info: SessionInfo, leaf: Entry | None, fields: JsonObject | None) -> ConversationRecord:
    """Return the record of a session with its leaf: as it was written, or made of the session if nobody wrote one.

    ``fields`` are those of this adapter in the session's metadata.
    """
    fields = fields or {}
    near = None if leaf is None else extra_of(leaf)
    state = (
        fields.get("state") if "state" in fields and fields.get("leaf") == info.leaf_id else (near or {}).get("state")
    )
    record = conversation_store.ConversationRecord(
        conversation_id=conversation_of(info),
        head_id=cast("str | None", (near or {}).get("id", info.leaf_id)),
        scope=cast("str | None", fields.get("scope", info.scope or None)),
        forked_from=cast("str | None", fields.get("from")),
        forked_at=cast("str | None", fields.get("at")),
        revision=f"flue:{info.session_key}:{info.leaf_id or ''}",
        updated_at=info.updated_at,
    )
    return record if state is None else _with_state(record, cast("JsonObject", state))


def _with_state(record: ConversationRecord, state: JsonObject) -> ConversationRecord:
    deferred = state.get("deferred")
    usage = {**_NO_USAGE, **cast("JsonObject", state["usage"])}
    return replace(
        record,
        usage=_USAGE.read(usage, state.get("exactUsage")),
        deferred_tool_requests=None if deferred is None else _REQUESTS.read(deferred, state.get("exactDeferred")),
        branches=list(cast("list[str]", state.get("branches", []))),
        revision=cast("str", state["revision"]),
        updated_at=datetime.fromisoformat(cast("str", state["updatedAt"])),
    )
