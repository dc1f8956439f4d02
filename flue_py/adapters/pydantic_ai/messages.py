"""What a response of pydantic-ai cost: its usage in our form, and the calls that were paid for it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from msgspec import structs
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai import messages, tools, usage
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, from_json, to_json

from flue_py.adapters.common import as_message, id_of, key_of, shown_groups
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import JsonObject, JsonValue, decode_object, replace_lone_surrogates
from flue_py.core.json import to_json as json_to_json
from flue_py.core.kinds import MESSAGE, SYSTEM
from flue_py.core.sessions import SessionInfo, call_id
from flue_py.core.usage import PaidCall, billed_by, ledger_name, read_call, read_reported, usage_json
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, shown
from flue_py.providers.base import close_difference, restored
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.conversation_store import ConversationEntry


# Usage of a response, and the calls paid for it


def our_usage(response: Mapping[str, JsonValue]) -> JsonObject:
    """Return what a response used in our form. A number that is 0 there was not reported, so it is left out.

    Theirs counts the cache as part of the input, ours beside it. Empty where nothing is known.
    """
    usage = cast("JsonObject", response["usage"])
    known = {} if usage.get("unmeasured_requests") else dict(usage)
    read, written = _count(known, "cache_read_tokens"), _count(known, "cache_write_tokens")
    whole, answered = _count(known, "input_tokens"), _count(known, "output_tokens")
    cost = usage.get("cost")
    ours: JsonObject = {
        "input": max(0, whole - read - written),
        "output": answered,
        "cacheRead": read,
        "cacheWrite": written,
        "cacheWrite1h": _count(known, "cache_write_1h_tokens"),
        "reasoning": _count(known, "output_reasoning_tokens"),
        "totalTokens": whole + answered,
    }
    told: JsonObject = {name: tokens for name, tokens in ours.items() if tokens}
    if told:
        told |= billed_by(cast("JsonObject", response.get("provider_details") or {}), usage)
    return told if cost is None else {**told, "cost": {"total": float(Decimal(str(cost)))}}


def their_usage(usage: JsonValue, is_whole: bool = False) -> JsonObject:
    """Return a usage of ours as a request's, as far as ours says it; with the rest too, if it is to be ``is_whole``."""
    told = usage if isinstance(usage, dict) else {}
    read, written = _count(told, "cacheRead"), _count(told, "cacheWrite")
    made: JsonObject = {
        "input_tokens": _count(told, "input") + read + written,
        "output_tokens": _count(told, "output"),
        "details": {},
    }
    cost = told.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else cost
    if is_whole or total is not None:
        made["cost"] = None if total is None else format(Decimal(str(total)), "f")
    others = (
        ("cache_read_tokens", read),
        ("cache_write_tokens", written),
        ("cache_write_1h_tokens", _count(told, "cacheWrite1h")),
        ("output_reasoning_tokens", _count(told, "reasoning")),
    )
    for name, tokens in others:
        if tokens or is_whole:
            made[name] = tokens
    return {**made, **_OF_USAGE} if is_whole else made


_OF_USAGE: JsonObject = {
    "input_audio_tokens": 0,
    "cache_audio_read_tokens": 0,
    "output_audio_tokens": 0,
    "audio_seconds": 0.0,
}


def _count(told: JsonObject, name: str) -> int:
    found = told.get(name, 0)
    return found if type(found) is int else 0


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


def _call(told: Mapping[str, JsonValue]) -> JsonObject:
    call = our_usage(told)
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if told.get(theirs):
            call[ours] = told[theirs]
    return call


def beside_responses(now: RunUsage, before: RunUsage | None, calls: Sequence[PaidCall], name: str) -> PaidCall | None:
    """Return what a conversation has paid for since ``before`` beside the calls of its new responses; None for nothing.

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


def named_call(answer: NewEntry, identity: str) -> NewEntry:
    """Return an answer whose one call has this id: as with the only one of `calls_of`, in less time."""
    (call,) = answer.calls
    return structs.replace(answer, calls=(structs.replace(call, call_id=ledger_name(identity)),))


def identity_of(response: JsonObject) -> str:
    """Return the id of the call behind a response: its provider's, or one that saving it again finds again.

    A response of a run is told by the run and its time, so that editing what it says makes no second call of it. One
    that was made by hand is told by all that it says.
    """
    named = response.get("provider_response_id")
    if isinstance(named, str) and named:
        return named
    run = response.get("run_id")
    names = ("run_id", "timestamp", "provider_name", "model_name", "usage")
    told = [response.get(name) for name in names] if run is not None else [response]
    return call_id("pydantic-ai", json_to_json(told))


# Messages as JSON, theirs as ours and ours as theirs
#
# The second need not be exact: what it gets wrong is stored beside the message as a difference (see `stored`).

_FILES = ("image-url", "audio-url", "document-url", "video-url")
_URL_OF = {"image": "image-url", "file": "document-url"}
_STOPS = {"tool_call": "toolUse"}
_FINISHES = {"toolUse": "tool_call"}
_ERRORS = ("failed", "retried")
_URL_SAFE = str.maketrans("-_", "+/")
_STANDARD = str.maketrans("+/", "-_")


class Said(NamedTuple):
    """One of our messages, and the tag of where it comes from."""

    message: JsonObject
    source: str | None = None


# From theirs


def said_in(message: JsonObject) -> tuple[list[Said], dict[int, JsonObject]]:
    """Return our messages for one of theirs, and its parts that none of ours stands for, by position."""
    parts = cast("list[JsonObject]", message["parts"])
    if message["kind"] == "response":
        return [Said(_answer(message, parts))], {}
    said: list[Said] = []
    silent: dict[int, JsonObject] = {}
    for index, part in enumerate(parts):
        read = _REQUESTED.get(str(part["part_kind"]))
        if read is None:
            silent[index] = part
        else:
            said.append(read(part))
    return said, silent


def _stamped(message: JsonObject, part: Mapping[str, JsonValue]) -> JsonObject:
    return message if part.get("timestamp") is None else {**message, "timestamp": part["timestamp"]}


def _system(part: JsonObject) -> Said:
    return Said(_stamped({"role": "system", "content": part["content"]}, part))


def _user(part: JsonObject) -> Said:
    content = part["content"]
    said: JsonValue = [_item(each) for each in content] if isinstance(content, list) else content
    return Said(_stamped({"role": "user", "content": said}, part))


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


def _result(part: JsonObject) -> Said:
    content = part["content"]
    said: JsonValue = content if isinstance(content, str) else _result_content(content)
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": part["tool_call_id"],
        "toolName": part["tool_name"],
        "content": said,
    }
    if part.get("outcome") in _ERRORS:
        message["isError"] = True
    return Said(_stamped(message, part))


def _result_content(content: JsonValue) -> JsonValue:
    """Return what a tool answered that is not text: its files as parts, all else as the JSON that models see."""
    items = content if isinstance(content, list) else [content]
    if not any(isinstance(item, dict) and item.get("kind") in (*_FILES, "binary") for item in items):
        return [{"type": "text", "text": _json_text(content)}]
    return [
        _item(item)
        if isinstance(item, str) or (isinstance(item, dict) and item.get("kind") in (*_FILES, "binary"))
        else {"type": "text", "text": _json_text(item)}
        for item in items
    ]


def _retry(part: JsonObject) -> Said:
    content = part["content"]
    text = content if isinstance(content, str) else _json_text(content)
    if part.get("tool_name") is None:
        return Said(_stamped({"role": "user", "content": text}, part), "retry")
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": part["tool_call_id"],
        "toolName": part["tool_name"],
        "content": text,
        "isError": True,
    }
    return Said(_stamped(message, part))


_REQUESTED: Mapping[str, Callable[[JsonObject], Said]] = {
    "system-prompt": _system,
    "user-prompt": _user,
    "tool-return": _result,
    "retry-prompt": _retry,
    "retry-feedback": _retry,
}


def _answer(message: JsonObject, parts: Sequence[JsonObject]) -> JsonObject:
    said: JsonObject = {"role": "assistant", "content": [_answered(part) for part in parts]}
    for ours, theirs in (("provider", "provider_name"), ("model", "model_name")):
        if message.get(theirs) is not None:
            said[ours] = message[theirs]
    said["usage"] = our_usage(message)
    finish = message.get("finish_reason")
    if message.get("state") == "interrupted":
        said["stopReason"] = "aborted"
    elif finish is not None:
        said["stopReason"] = _STOPS.get(str(finish), finish)
    return _stamped(said, message)


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
    return read if isinstance(read, dict) and text in (_json_text(read), _spaced_text(read)) else text


def _json_text(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _spaced_text(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


# To theirs


_NAMED: JsonObject = {"id": None, "provider_name": None, "provider_details": None}
_OF_REQUEST: JsonObject = {
    "timestamp": None,
    "instructions": None,
    "run_id": None,
    "conversation_id": None,
    "metadata": None,
    "state": "complete",
}
_OF_RESPONSE: JsonObject = {
    "model_id": None,
    "provider_url": None,
    "canonical_system": None,
    "provider_details": None,
    "provider_response_id": None,
    "run_id": None,
    "conversation_id": None,
    "metadata": None,
    "workspace_ref": None,
    "history_digest": None,
    "failed_attempts": None,
}
"""Fields of which our messages say nothing. They are None for whoever reads a message that does not have them."""


def request_of(
    said: Sequence[Mapping[str, JsonValue]], silent: Mapping[str, JsonValue], is_whole: bool = False
) -> JsonObject:
    """Return our messages, none of them an answer, as a request, with the parts that none of ours stands for.

    With the fields of which ours say nothing, where it is to be ``is_whole``.
    """
    parts: list[JsonValue]
    if silent:
        spoken = iter(said)
        places = map(str, range(len(said) + len(silent)))
        parts = [silent[place] if place in silent else _part(next(spoken)) for place in places]
    else:
        parts = [_part(each) for each in said]
    made: JsonObject = {"parts": parts, "kind": "request"}
    return {**made, **_OF_REQUEST} if is_whole else made


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
    prompt: JsonValue = [_their_item(each) for each in content] if isinstance(content, list) else content
    return {"content": prompt, "timestamp": stamp, "part_kind": "user-prompt"}


def _returned(content: JsonValue) -> JsonValue:
    if not isinstance(content, list):
        return content
    if len(content) == 1 and isinstance(part := content[0], dict) and part.get("type") == "text":
        try:
            return cast("JsonValue", json.loads(str(part.get("text"))))
        except (ValueError, RecursionError):
            return part.get("text")
    return [_their_item(each) for each in content]


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
    made: JsonObject = {
        "parts": [_their_part(cast("JsonObject", part), is_whole) for part in cast("list[JsonValue]", content or [])],
        "usage": their_usage(message.get("usage"), is_whole),
        "model_name": message.get("model"),
        "timestamp": message.get("timestamp"),
        "kind": "response",
        "provider_name": message.get("provider"),
        "finish_reason": None if stop == "aborted" else _FINISHES.get(str(stop), stop),
        "state": "interrupted" if stop == "aborted" else "complete",
    }
    return {**made, **_OF_RESPONSE} if is_whole else made


def _their_part(part: JsonObject, is_whole: bool) -> JsonValue:
    kind = part.get("type")
    if kind == "text":
        made: JsonObject = {"content": part.get("text"), "part_kind": "text"}
        return {**made, **_NAMED, "citations": None} if is_whole else made
    if kind == "thinking":
        signature = part.get("thinkingSignature")
        made = {"content": part.get("thinking"), "signature": signature, "part_kind": "thinking"}
    elif kind == "toolCall":
        made = {
            "tool_name": part.get("name"),
            "args": part.get("arguments"),
            "tool_call_id": part.get("id"),
            "part_kind": "tool-call",
        }
        if is_whole:
            made["tool_kind"] = None
    elif kind in _URL_OF and "data" in part:
        made = {"content": _binary(part), "part_kind": "file"}
    else:
        return {name: value for name, value in part.items() if name != "type"}
    return {**made, **_NAMED} if is_whole else made


def arguments_as_text(part: JsonValue, spaced: bool) -> str:
    """Return the arguments of a call of theirs as the text that they came as."""
    arguments = cast("JsonObject", part)["args"]
    return _spaced_text(arguments) if spaced else _json_text(arguments)


def form_of_arguments(theirs: JsonValue, read: JsonValue) -> bool | None:
    """Return whether arguments that came as text are spaced; None where the text cannot be made of what was read."""
    if not isinstance(theirs, str) or isinstance(read, str):
        return None
    return next((spaced for spaced in (False, True) if theirs == (_spaced_text, _json_text)[not spaced](read)), None)


# Messages from other programs, as messages of the framework

_BY_HAND_FINISHES = ("stop", "length", "content_filter", "toolUse", "error", "aborted")


def message_by_hand(entry: Entry, names: dict[str, str]) -> JsonObject:
    """Return a message of ours as the framework's, as JSON. ``names`` are those of the tools called so far, by call.

    Raises `InvalidArgument` for what the framework has no message for.
    """
    message = as_message(ContextEntry(entry)).fields
    role = message.get("role")
    if message.get("timestamp") is None:
        message["timestamp"] = entry.created_at.isoformat()
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
    raise InvalidArgument(
        f"entry {entry.id!r}: pydantic-ai has no message of the role {shown(role)}; "
        "load a fork of the session that does not have it"
    )


def _note_calls(message: JsonObject, names: dict[str, str]) -> None:
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") == "toolCall":
            names[str(part.get("id"))] = str(part.get("name"))


def _text_of(content: JsonValue) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


# Values that JSON cannot hold: tuples, bytes, NaN, lone surrogates, keys that are no strings
#
# `repairs` compares a value with what reading its JSON gave, and returns the places that differ, each with what was
# there, as JSON. `repaired` puts it back. Objects of an application's own classes stay what their JSON says.

_Step: TypeAlias = "str | int"
Value = TypeVar("Value")


class _Unsayable(Exception):
    """A value of a class that is not ours to make again."""


def repairs(given: object, read: object) -> list[JsonValue]:
    """Return what makes ``given`` of ``read``, as places and values; empty if they are equal. O(size)."""
    if given == read:
        return []
    return [[list(path), told] for path, told in _differences(given, read, ())]


def repaired(value: object, found: JsonValue) -> object:
    """Return ``value``, changed in place, with what `repairs` found."""
    for path, told in cast("list[tuple[list[_Step], JsonValue]]", found or []):
        if not path:
            value = _untold(told, value)
            continue
        at = value
        for step in path[:-1]:
            at = _step(at, step)
        _put(at, path[-1], _untold(told, _step(at, path[-1])))
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
        return {_washed(key): _washed(each) for key, each in cast("dict[object, object]", value).items()}
    if _is_of_framework(value):
        # Not by `copy`, which for a class that is deprecated warns.
        made: object = object.__new__(kind)
        vars(made).update((name, _washed(each)) for name, each in vars(value).items())
        return made
    return value


def _differences(given: object, read: object, path: tuple[_Step, ...]) -> Iterator[tuple[tuple[_Step, ...], JsonValue]]:
    if type(given) is type(read) and given == read:
        return
    inside = _inside(given, read)
    if inside is None:
        try:
            yield path, _told(given)
        except _Unsayable:
            return
        return
    if type(given) is not type(read):
        yield path, ["class", type(given).__name__]
    for step, one, other in inside:
        yield from _differences(one, other, (*path, step))


def _inside(given: object, read: object) -> list[tuple[_Step, object, object]] | None:
    """Return the parts of two values side by side; None where they have not the same ones."""
    if _is_of_framework(given) and _is_of_framework(read):
        one, other = vars(given), vars(read)
        return [(name, one[name], other[name]) for name in one] if one.keys() == other.keys() else None
    if type(given) is list and type(read) is list and len(given) == len(read):
        return list(zip(range(len(given)), given, read, strict=True))
    if type(given) is dict and type(read) is dict and list(given) == list(read):
        return [(key, given[key], read[key]) for key in given] if all(type(key) is str for key in given) else None
    return None


def _is_of_framework(value: object) -> bool:
    kind = type(value)
    return is_dataclass(kind) and _class_called(kind.__name__) is kind


def _class_called(name: str) -> object:
    return next((found for room in (messages, tools, usage) if (found := getattr(room, name, None)) is not None), None)


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


_TOLD: Mapping[type, Callable[[object], JsonValue]] = {
    str: json.dumps,
    float: repr,
    bytes: lambda value: b64encode(cast("bytes", value)).decode(),
    datetime: lambda value: cast("datetime", value).isoformat(),
    date: lambda value: cast("date", value).isoformat(),
    time: lambda value: cast("time", value).isoformat(),
    timedelta: lambda value: [getattr(value, name) for name in ("days", "seconds", "microseconds")],
    Decimal: str,
    UUID: str,
    list: lambda value: [_told(each) for each in cast("list[object]", value)],
    tuple: lambda value: [_told(each) for each in cast("tuple[object, ...]", value)],
    set: lambda value: [_told(each) for each in cast("set[object]", value)],
    frozenset: lambda value: [_told(each) for each in cast("frozenset[object]", value)],
    dict: lambda value: [[_told(key), _told(each)] for key, each in cast("dict[object, object]", value).items()],
}

_UNTOLD: Mapping[str, Callable[[JsonValue], object]] = {
    "json": lambda told: told,
    "str": lambda told: json.loads(cast("str", told)),
    "float": lambda told: float(cast("str", told)),
    "bytes": lambda told: b64decode(cast("str", told)),
    "datetime": lambda told: datetime.fromisoformat(cast("str", told)),
    "date": lambda told: date.fromisoformat(cast("str", told)),
    "time": lambda told: time.fromisoformat(cast("str", told)),
    "timedelta": lambda told: timedelta(*cast("list[int]", told)),
    "Decimal": lambda told: Decimal(cast("str", told)),
    "UUID": lambda told: UUID(cast("str", told)),
    "list": lambda told: [_untold(each) for each in cast("list[JsonValue]", told)],
    "tuple": lambda told: tuple(_untold(each) for each in cast("list[JsonValue]", told)),
    "set": lambda told: {_untold(each) for each in cast("list[JsonValue]", told)},
    "frozenset": lambda told: frozenset(_untold(each) for each in cast("list[JsonValue]", told)),
    "dict": lambda told: {_untold(key): _untold(each) for key, each in cast("list[list[JsonValue]]", told)},
    "object": lambda told: _made(cast("list[JsonValue]", told)),
}


def _told(value: object) -> JsonValue:
    """Return a value as JSON with its type. Raises `_Unsayable`."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return ["json", cast("int", value)]
    if kind in _TOLD:
        return [kind.__name__, _TOLD[kind](value)]
    if _is_of_framework(value):
        return ["object", [kind.__name__, {name: _told(each) for name, each in vars(value).items()}]]
    raise _Unsayable


def _untold(told: JsonValue, instead_of: object = None) -> object:
    name, value = cast("tuple[str, JsonValue]", told)
    if name != "class":
        return _UNTOLD[name](value)
    made = _empty(cast("str", value))
    vars(made).update(vars(instead_of))
    return made


def _made(told: list[JsonValue]) -> object:
    name, fields = told
    made = _empty(cast("str", name))
    vars(made).update((field, _untold(each)) for field, each in cast("dict[str, JsonValue]", fields).items())
    return made


def _empty(name: str) -> object:
    """Return an object of a class of the framework's messages, without fields: making it anew might change them."""
    kind = _class_called(name)
    if not is_dataclass(kind):
        raise CorruptStore(f"{name} is not a class of this version of pydantic-ai; install the one that wrote it")
    return object.__new__(cast("type", kind))


# A message as entries of a session, and back
#
# All entries of one message lie behind each other. The last has the id of the message's entry in the conversation, and,
# in its ``extra``, what makes the framework's message of ours again: the places where that differs from what ours would
# be there (`ours`), and what no JSON can say (`exactness`).

FIELD = "pydanticAi"
"""The field of an entry's ``extra``, and of a session's metadata, that is this adapter's."""

SILENT = "pydantic_ai.request"
"""The kind of an entry for a request that says nothing a message of ours could: one without parts, for example."""


class Group(NamedTuple):
    """The entries of one message, and what stands beside the last of them; None for one that was added by hand."""

    entries: Sequence[Entry]
    beside: JsonObject | None

    @property
    def id(self) -> str:
        """The id of the message's entry in the conversation."""
        named = (self.beside or {}).get("id")
        return named if isinstance(named, str) else self.entries[-1].id


# Writing


def entries_of(new: Sequence[ConversationEntry], state: JsonObject | None) -> list[list[NewEntry]]:
    """Return the entries of each message, in order; the last of all has ``state`` beside it.

    Raises `InvalidEntry` for a message with a value that JSON has no form for. O(size).
    """
    dumped = dumped_messages([entry.message for entry in new])
    read = _validated(dumped)
    last = len(new) - 1
    return [
        _entries(entry, message, again, state if number == last else None)
        for number, (entry, message, again) in enumerate(zip(new, dumped, read, strict=True))
    ]


def dumped_messages(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    """Return messages as JSON, by the framework's own rules. Raises `InvalidEntry`. O(size)."""
    try:
        try:
            return _dumped_as_they_are(messages)
        except PydanticSerializationError:
            # Half of a surrogate pair has no place in UTF-8. It is put back from what stands beside the message.
            return _dumped_as_they_are([without_surrogates(message) for message in messages])
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        what = "messages: pydantic-ai cannot write them as JSON, so they cannot be kept"
        raise InvalidEntry(f"{what}: {error}") from error


def _dumped_as_they_are(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    text = ModelMessagesTypeAdapter.dump_json(list(messages), warnings=False)
    return cast("list[JsonObject]", from_json(text))


def _entries(
    entry: ConversationEntry, dumped: JsonObject, read: ModelMessage, state: JsonObject | None
) -> list[NewEntry]:
    said, silent = said_in(dumped)
    is_response = isinstance(entry.message, ModelResponse)
    calls = calls_of(dumped) if is_response and dumped.get("failed_attempts") else []
    if len(calls) > 1:
        said = [_paid_by(said[0], calls)]
    beside: JsonObject = {}
    if silent:
        beside["silent"] = {str(index): part for index, part in silent.items()}
    if len(said) != 1:
        beside["count"] = len(said)
    made = _predicted([each.message for each in said], beside)
    texts = _texts(made, dumped) if is_response else None
    if texts:
        beside["texts"] = texts
    changes = close_difference(made, dumped)
    if changes:
        beside["changes"] = changes
    exact = repairs(entry.message, read)
    if exact:
        beside["exact"] = exact
    key = key_of(entry.id)
    if key != entry.id:
        beside["id"] = entry.id
    if state is not None:
        beside["state"] = state
    extra: JsonObject = {FIELD: held(beside)}
    if not said:
        return [NewEntry.custom(SILENT, None, id=key, extra=extra)]
    *before, last = said
    ends = NewEntry.message(last.message, last.source, id=key, calls=calls, extra=extra)
    if is_response and not calls:
        ends = named_call(ends, identity_of(dumped))
    return [*(NewEntry.message(*each) for each in before), ends]


def _paid_by(said: Said, calls: Sequence[JsonObject]) -> Said:
    """Return an answer with the usage of all its calls: the framework counts attempts that failed as part of a run."""
    message = {name: value for name, value in said.message.items() if name != "usage"}
    return Said(decode_object(NewEntry.message(message, calls=calls).payload))


def _texts(made: JsonObject, dumped: JsonObject) -> JsonObject:
    """Return of which calls the arguments came as text, and whether it was spaced; ``made`` gets these texts."""
    found: JsonObject = {}
    pairs = zip(cast("list[JsonObject]", made["parts"]), cast("list[JsonObject]", dumped["parts"]), strict=True)
    for index, (ours, theirs) in enumerate(pairs):
        if theirs.get("part_kind") == "tool-call":
            spaced = form_of_arguments(theirs.get("args"), ours.get("args"))
            if spaced is not None:
                found[str(index)] = spaced
                ours["args"] = theirs["args"]
    return found


def held(value: JsonObject) -> JsonValue:
    """Return JSON as it is stored: as text of JSON in ASCII where a string in it has what no store takes."""
    text = json.dumps(value)
    return text if "\\ud" in text or "\\u0000" in text else value


def told(value: JsonValue) -> JsonObject:
    """Return what `held` made into what a store takes. Raises `CorruptStore` if it is none of that."""
    try:
        read: JsonValue = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise CorruptStore(f"the field {FIELD} is not what the adapter for pydantic-ai writes")
    return read


# Reading


def beside(entry: Entry) -> JsonObject | None:
    """Return what this adapter keeps beside an entry; None if it has not written it."""
    if entry.extra is None or FIELD not in entry.extra:
        return None
    found = entry.extra_fields.get(FIELD)
    return None if found is None else told(found)


def groups_of(path: Sequence[Entry]) -> list[Group]:
    """Return the messages that the model is sent of a path, in order: the whole path, unless all of it `is_plain`.

    What lies before the first whole message is left out. O(size).
    """
    found: list[Sequence[Entry]] = []
    end = len(path)
    while end:
        near = beside(path[end - 1])
        count = 1 if near is None else max(1, cast("int", near.get("count", 1)))
        if count > end:
            break
        found.append(path[end - count : end])
        end -= count
    groups = [Group(entries, beside(entries[-1])) for entries in shown_groups(found[::-1])]
    return [group for group in groups if group.beside is not None or group.entries[-1].kind == MESSAGE]


def messages_of(groups: Sequence[Group]) -> list[ModelMessage]:
    """Return messages of the framework, value for value as they were given. O(size).

    Raises `InvalidArgument` for an entry that was added by other means and is no message that the framework has.
    """
    names: dict[str, str] = {}
    read = _validated([_dumped(group, names) for group in groups])
    return [
        message if group.beside is None else cast("ModelMessage", repaired(message, group.beside.get("exact")))
        for group, message in zip(groups, read, strict=True)
    ]


def _dumped(group: Group, names: dict[str, str]) -> JsonObject:
    if group.beside is None:
        return message_by_hand(group.entries[-1], names)
    said = [entry.fields for entry in group.entries if entry.kind == "message"]
    made = _predicted(said, group.beside, is_whole=False)
    return restored(made, group.beside.get("changes"))


def _predicted(said: Sequence[JsonObject], beside: JsonObject, is_whole: bool = True) -> JsonObject:
    if len(said) == 1 and said[0].get("role") == "assistant":
        made = response_of(said[0], is_whole)
        parts = cast("list[JsonObject]", made["parts"])
        for index, spaced in cast("JsonObject", beside.get("texts", {})).items():
            parts[int(index)]["args"] = arguments_as_text(parts[int(index)], spaced=bool(spaced))
        return made
    return request_of(said, cast("JsonObject", beside.get("silent", {})), is_whole)


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
# entry, by an undo or a fork, has what held there. What changes without an entry (a branch, a fork, a save of no
# message) is in the session's metadata, for the leaf that it names.


class _Kept(Generic[Value]):
    """Values of a class as JSON and back, value for value."""

    def __init__(self, kind: type[Value]) -> None:
        # Only a list takes these settings, which messages have, too.
        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        self._adapter = TypeAdapter(list[kind], config=config)  # type: ignore[valid-type]

    def dumped(self, value: Value) -> tuple[JsonObject, list[JsonValue]]:
        """Return a value as JSON, and what that cannot say of it. Raises `InvalidEntry`."""
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
    """Return what of a record is of its leaf. Raises `InvalidEntry` for what JSON cannot hold."""
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
    kept: JsonObject = {}
    for name, value in (("scope", record.scope), ("from", record.forked_from), ("at", record.forked_at)):
        if value is not None:
            kept[name] = value
    if at_leaf is not None:
        kept["leaf"] = None if record.head_id is None else key_of(record.head_id)
        kept["state"] = at_leaf
    return {FIELD: held(kept)}


def scope_of(store: Store, scope: str | None) -> str:
    """Return the scope of the session of a conversation: its own, wherever a session's scope can be it. O(length).

    Of a conversation without one it is the scope of the store.
    """
    return store.scope or "" if scope is None else key_of(scope)


# Reading


def kept_in(info: SessionInfo) -> JsonObject | None:
    """Return what this adapter keeps in the metadata of a session; None if it never wrote to it."""
    if FIELD not in info.metadata_text:
        return None
    found = info.metadata.get(FIELD)
    return None if found is None else told(found)


def conversation_of(info: SessionInfo) -> str:
    """Return the id of the conversation that a session is."""
    name = info.key if info.key is not None else info.id
    return id_of(name, info.metadata) if name.startswith("sha256:") else name


def copied(record: ConversationRecord) -> ConversationRecord:
    """Return a record that may be changed without changing this one."""
    usage = copy(record.usage)
    waiting = None if record.deferred_tool_requests is None else deepcopy(record.deferred_tool_requests)
    return replace(record, usage=usage, deferred_tool_requests=waiting, branches=[*record.branches])


def record_of(info: SessionInfo, leaf: Entry | None, kept: JsonObject | None) -> ConversationRecord:
    """Return the record of a session with its leaf: as it was written, or what it comes to where nobody wrote one.

    ``kept`` is what this adapter keeps in the session's metadata.
    """
    kept = kept or {}
    near = None if leaf is None else beside(leaf)
    state = kept.get("state") if "state" in kept and kept.get("leaf") == info.leaf_id else (near or {}).get("state")
    named = (near or {}).get("id", info.leaf_id)
    scope = cast("str | None", kept.get("scope", info.scope or None))
    record = ConversationRecord(
        conversation_id=conversation_of(info),
        head_id=cast("str | None", named),
        scope=scope,
        forked_from=cast("str | None", kept.get("from")),
        forked_at=cast("str | None", kept.get("at")),
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
