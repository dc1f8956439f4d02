"""What a message of pydantic-ai is among ours, and what ours would be among theirs, both as JSON.

The second need not be exact: what it gets wrong is stored beside the message as a difference (see `stored`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from flue_py.adapters.pydantic_ai.spending import our_usage, their_usage
from flue_py.core.jsontext import JsonObject, JsonValue

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


# --- From theirs --------------------------------------------------------------------------------------------------


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


# --- To theirs ----------------------------------------------------------------------------------------------------


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
