"""One message of the OpenAI chat format, from and to ours.

A value that a message of ours has no field for stays in it under its own name; `printed_chat` prints only those the
format knows. The pair is exact but for spelling (spaces in arguments, null for absent), which `differences` keeps
apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.json import JsonObject, JsonValue, encode_json, without
from flue_py.errors import InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.providers import base
from flue_py.providers.base import Leftovers

if TYPE_CHECKING:
    import pydantic_core
else:
    # A count of tokens imports this module and calls none of it.
    pydantic_core = lazy_module("pydantic_core")


EXTRA = "openaiChat"
"""The field of ``extra`` that says how a message differed from the one that `printed_chat` prints."""

CUSTOM = "customTool"
"""The field of a call, and of its result, that says that its arguments are text of a form of its own."""

_DATA_URL = re.compile(r"data:([^;,]+);base64,([^\"]*)", re.DOTALL)
_REASONING = ("reasoning_content", "thinking_content")
_ROLES = {"tool": "toolResult"}
_CALL_FIELDS = frozenset({"id", "type", "function"})
PASSED_PARTS = frozenset({"input_audio", "refusal", "file", "image_url", "video_url", "audio_url"})
"""Kinds of parts that are the format's own, and are printed as they are."""


# Checking


def check_chat(value: JsonObject, where: str) -> None:
    """Check that a chat message can be read. Raises `InvalidEntry` with the path of the fault. O(parts)."""
    role = value.get("role")
    if role == "function" or isinstance(value.get("function_call"), dict):
        field = "role" if role == "function" else "function_call"
        raise InvalidEntry(f"{where}.{field}: calls without an id are not converted; send tool_calls and role tool")
    if role == "tool":
        base.need_text(value, "tool_call_id", where)
        base.need_content(value, where)
    calls = value.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise InvalidEntry(f"{where}.tool_calls: should be a list or null, not {shown(calls)}")
    for number, call in enumerate(base.listed(calls)):
        _check_chat_call(call, f"{where}.tool_calls[{number}]")
    for part, path in base.parts_with_paths(value.get("content"), where):
        if part.get("type") == "image_url":
            image = part.get("image_url")
            base.need_text(image if isinstance(image, dict) else {"url": image}, "url", f"{path}.image_url")


def _check_chat_call(call: JsonValue, where: str) -> None:
    if not isinstance(call, dict):
        raise InvalidEntry(f"{where}: should be an object, not {shown(call)}")
    base.need_text(call, "id", where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise InvalidEntry(f"{where}.type: {shown(kind)} is neither function nor custom")
    called = call.get(str(kind))
    if not isinstance(called, dict):
        raise InvalidEntry(f"{where}.{kind}: should be an object, not {shown(called)}")
    base.need_text(called, "name", f"{where}.{kind}")
    if kind == "custom":
        base.need_text(called, "input", f"{where}.custom")


# Reading


def message_from_chat(value: JsonObject, tool_names: Mapping[str, str]) -> JsonObject:
    """Return a chat message as one of ours; ``tool_names`` are the names of the calls so far, by id."""
    message = dict(value)
    role = value.get("role")
    if isinstance(role, str):
        message["role"] = _ROLES.get(role, role)
    if role == "assistant":
        return _assistant(message)
    if isinstance(value.get("content"), list):
        message["content"] = [_part_from_chat(part) for part in base.listed(value["content"])]
    if role == "tool":
        call_id = message.pop("tool_call_id", None)
        if call_id is not None:
            message["toolCallId"] = call_id
        if isinstance(call_id, str) and call_id in tool_names:
            message["toolName"] = tool_names[call_id]
    return message


def calls_in(message: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return the names of the tool calls of one of our messages, by id."""
    return {
        str(part["id"]): str(part.get("name", ""))
        for part in parts_of(message)
        if part.get("type") == "toolCall" and "id" in part
    }


def parts_of(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the parts of one of our messages; content that is text is one part."""
    return [part for _, part in base.objects_in(base.blocks_of(message.get("content")))]


def _assistant(message: JsonObject) -> JsonObject:
    calls = message.pop("tool_calls", None)
    thought = next((message.pop(name) for name in _REASONING if isinstance(message.get(name), str)), None)
    signature = message.pop("thinking_signature", None)
    content = message.get("content")
    if calls is None and thought is None:
        if isinstance(content, list):
            message["content"] = [_part_from_chat(part) for part in content]
        return message
    parts: list[JsonValue] = []
    if thought is not None:
        signed: JsonObject = {"thinkingSignature": signature} if isinstance(signature, str) else {}
        parts.append({"type": "thinking", "thinking": thought, **signed})
    if isinstance(content, str):
        parts += [{"type": "text", "text": content}] if content else []
    elif isinstance(content, list):
        parts += [_part_from_chat(part) for part in content]
    parts += [_call_from_chat(call) for call in base.listed(calls)]
    if calls is not None and not isinstance(calls, list):
        message["tool_calls"] = calls
    message["content"] = parts
    return message


def _call_from_chat(call: JsonValue) -> JsonValue:
    if not isinstance(call, dict):
        return call
    if _is_custom(call):
        custom = base.fields_of(call["custom"])
        custom_call: JsonObject = {"type": "toolCall", "id": call["id"], "name": custom["name"]}
        return {**custom_call, "arguments": custom["input"], CUSTOM: True}
    called = call.get("function")
    if not isinstance(called, dict):  # of no kind that is known: kept whole, and printed as it is
        return {**call, "type": f"chat:{call.get('type')}"}
    arguments = arguments_from_text(called.get("arguments"))
    part: JsonObject = {"type": "toolCall", "id": call.get("id"), "name": called.get("name"), "arguments": arguments}
    return {**part, **without(call, *_CALL_FIELDS)}


def _is_custom(call: JsonObject) -> bool:
    custom = base.fields_of(call.get("custom"))
    texts = (call.get("id"), custom.get("name"), custom.get("input"))
    return call.get("type") == "custom" and all(isinstance(text, str) for text in texts)


def arguments_from_text(arguments: JsonValue) -> JsonValue:
    """Return the arguments of a call from their JSON text: an object, or the value itself if it is no text of one."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value: JsonValue = json.loads(arguments)
        encode_json([[[value]]], "arguments")
    except (ValueError, RecursionError, InvalidEntry):
        return arguments
    return value if isinstance(value, dict) else arguments


def arguments_object(part: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    """Return the arguments of a call as an object; any value that is none, nor its text, is under 'arguments'."""
    arguments = part.get("arguments")
    value = arguments if part.get(CUSTOM) is True else arguments_from_text(arguments)
    if isinstance(value, dict):
        return value
    if arguments is None:
        return {}
    left.change("arguments of a tool call that are not an object are under 'arguments'")
    return {"arguments": arguments}


def is_text_of_object(text: JsonValue) -> bool:
    """Return whether a value is the JSON text of an object. O(size)."""
    if not isinstance(text, str):
        return False
    try:
        return isinstance(pydantic_core.from_json(text, allow_inf_nan=False), dict)
    except ValueError:  # no JSON, or too deep
        return False


def arguments_text(arguments: JsonValue) -> str:
    """Return the arguments of a call as the text that the chat format has for them."""
    if isinstance(arguments, str):
        return arguments
    return _compact({} if arguments is None else arguments)


# The encoder, which json.dumps would make anew for each call.
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _part_from_chat(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "image_url":
        return _image_from_chat(part)
    if part.get("type") == "image" and "media_type" in part:
        return {("mimeType" if name == "media_type" else name): value for name, value in part.items()}
    if part.get("type") == "file" and isinstance(part.get("file"), dict):
        return _file_from_chat(part)
    return part


def _image_from_chat(part: JsonObject) -> JsonValue:
    image = part.get("image_url", part.get("url"))
    detail = image if isinstance(image, dict) else {"url": image}
    if not isinstance(detail.get("url"), str) or not set(detail) <= {"url", "detail"}:
        return part
    fields: JsonObject = {"type": "image", **image_from_url(str(detail["url"]))}
    if "detail" in detail:
        fields["detail"] = detail["detail"]
    return fields


def image_from_url(url: str) -> JsonObject:
    """Return the fields of an image or file part for a URL: ``data`` and ``mimeType``, or else ``url``."""
    match = _DATA_URL.fullmatch(url)
    return {"url": url} if match is None else {"data": match[2], "mimeType": match[1]}


def _file_from_chat(part: JsonObject) -> JsonValue:
    file = part["file"]
    if not isinstance(file, dict) or set(file) != {"file_data", "filename"}:
        return part
    inline = image_from_url(file["file_data"]) if isinstance(file["file_data"], str) else {}
    if "data" not in inline or not isinstance(file["filename"], str):
        return part
    return {"type": "file", **inline, "filename": file["filename"]}


# Printing


def printed_chat(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    """Return one of our messages in the chat format. A part without a place in it is noted in ``left``.

    Images of tool results, which the format takes from a user only, are in the list under ``images``.
    """
    role = message.get("role")
    if role == "assistant":
        return _printed_assistant(message, left)
    printed: JsonObject = {"role": "tool" if role == "toolResult" else role}
    if role == "toolResult":
        printed["tool_call_id"] = message.get("toolCallId")
        printed["content"] = _text_of_result(message, left)
        if message.get("isError"):
            left.note("the mark of a failed tool call")
        return printed
    content = message.get("content")
    printed["content"] = content if isinstance(content, str) else _printed_parts(parts_of(message), left)
    if isinstance(message.get("name"), str):
        printed["name"] = message["name"]
    return printed


def _text_of_result(message: Mapping[str, JsonValue], left: Leftovers) -> JsonValue:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts: list[JsonValue] = []
    for part in parts_of(message):
        if part.get("type") == "text":
            parts.append({"type": "text", "text": part.get("text")})
        elif part.get("type") not in ("image", "file"):
            left.note(f"a part {part.get('type')!r} of a tool result", part)
    if len(parts) == 1 and isinstance(parts[0], dict):
        return parts[0]["text"]
    return parts or ""


def _printed_assistant(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    calls: list[JsonValue] = []
    texts: list[JsonObject] = []
    for part in parts_of(message):
        kind = part.get("type")
        if kind == "toolCall":
            calls.append(_printed_call(part))
        elif isinstance(kind, str) and kind.startswith("chat:"):
            calls.append({**part, "type": kind.removeprefix("chat:")})
        elif kind == "thinking":
            left.note("reasoning", part)
        elif kind in ("text", "refusal"):
            texts.append(part)
        else:
            left.note(f"a part {kind!r} of an answer", part)
    printed: JsonObject = {"role": "assistant", "content": _printed_answer(message, texts, left)}
    for name in ("refusal", "name", "audio"):
        if name in message:
            printed[name] = message[name]
    if calls:
        printed["tool_calls"] = calls
    return printed


def _printed_answer(message: Mapping[str, JsonValue], text_parts: Sequence[JsonObject], left: Leftovers) -> JsonValue:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [str(part.get("text", "")) for part in text_parts if part.get("type") == "text"]
    if len(texts) == len(text_parts):
        # Several parts were one text to the reader; the format has one text, too.
        return "\n".join(texts) if text_parts else None
    return _printed_parts(text_parts, left)


def _printed_call(part: JsonObject) -> JsonObject:
    if part.get(CUSTOM) is True:
        called: JsonObject = {"name": part.get("name"), "input": arguments_text(part.get("arguments"))}
        return {"id": part.get("id"), "type": "custom", "custom": called}
    called = {"name": part.get("name"), "arguments": arguments_text(part.get("arguments"))}
    return {"id": part.get("id"), "type": "function", "function": called}


def _printed_parts(parts: Sequence[JsonObject], left: Leftovers) -> list[JsonValue]:
    printed: list[JsonValue] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            printed.append({"type": "text", "text": part.get("text")})
        elif kind == "image":
            printed += printed_image(part, left)
        elif kind == "file":
            printed += _printed_file(part, left)
        elif isinstance(kind, str) and kind in PASSED_PARTS:
            printed.append(part)
        else:
            left.note(f"a part {kind!r}", part)
    return printed


def image_url(part: Mapping[str, JsonValue]) -> str | None:
    """Return the URL of an image or a file part: its own, or one that holds its data; None if it has neither."""
    url, data, kind = part.get("url"), part.get("data"), part.get("mimeType")
    if isinstance(data, str):
        return f"data:{kind if isinstance(kind, str) else 'image/png'};base64,{data}"
    return url if isinstance(url, str) else None


def printed_image(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    """Return an image part in the chat format: a list of one, or of none where the part holds no picture."""
    url = image_url(part)
    if url is None:
        left.note("an image without data", part)
        return []
    image: JsonObject = {"url": url}
    if "detail" in part:
        image["detail"] = part["detail"]
    return [{"type": "image_url", "image_url": image}]


def _printed_file(part: JsonObject, left: Leftovers) -> list[JsonValue]:
    if isinstance(part.get("file"), dict):
        return [part]
    url = image_url(part)
    if url is None or not url.startswith("data:"):
        left.note("a file that is not held as data", part)
        return []
    return [{"type": "file", "file": {"file_data": url, "filename": part.get("filename") or "file"}}]


def chat_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return the fields beside a message, so that an export gives back the chat message that it was made from."""
    change = base.difference(printed_chat(message, Leftovers()), original)
    return {EXTRA: change} if change else {}
