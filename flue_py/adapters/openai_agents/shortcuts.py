"""What agents say all the time, read and printed without the general way through `flue_py.wire`.

A text of a role, a call of a function, its output as text, an answer of texts: of these the message and what stands
beside it are known beforehand, and both ways give what the general one gives, for a fraction of its time. What is in
any other form goes the general way: each function here returns None for it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.openai_chat import arguments_from_text, arguments_text
from flue_py.wire.openai_responses import API, PROVIDER

_SAID = frozenset({"role", "content", "type"})
_ANSWER = frozenset({"id", "type", "role", "status", "content", "phase"})
_CALL = frozenset({"id", "type", "status", "call_id", "name", "arguments"})
_OUTPUT = frozenset({"id", "type", "status", "call_id", "output"})
_TEXT = frozenset({"type", "text", "annotations", "logprobs"})
_ROLES = frozenset({"user", "assistant", "system", "developer"})
_UNTYPED: JsonObject = {"unset": ["type"]}

_PART = frozenset({"type", "id", "name", "arguments"})
_RESULT = frozenset({"role", "toolCallId", "toolName", "content"})
_ANSWERED = frozenset({"role", "content", "api", "provider", "model", "usage"})


def read(item: JsonObject, names: MutableMapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    """Return an item as a message of ours, and what printing it again would not give back. O(size)."""
    kind = item.get("type")
    if kind == "function_call":
        return _read_call(item, names)
    if kind == "function_call_output":
        return _read_output(item, names)
    if kind == "message" and type(item.get("content")) is list:
        return _read_answer(item)
    role, content = item.get("role"), item.get("content")
    if type(role) is not str or role not in _ROLES or type(content) is not str or not item.keys() <= _SAID:
        return None
    if kind != "message" and "type" in item:
        return None
    message: JsonObject = {"role": role, "content": content}
    if role == "assistant":
        message.update(api=API, provider=PROVIDER)
    return message, {} if kind == "message" else _UNTYPED


def _read_call(item: JsonObject, names: MutableMapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    call_id, name, text = item.get("call_id"), item.get("name"), item.get("arguments")
    if type(call_id) is not str or type(name) is not str or type(text) is not str or not item.keys() <= _CALL:
        return None
    arguments = arguments_from_text(text)
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
    names[call_id] = name
    printed = text if arguments is text else arguments_text(arguments)
    changed = {
        field: value
        for field, value in item.items()
        if field in ("id", "status") or (field == "arguments" and value != printed)
    }
    message: JsonObject = {"role": "assistant", "content": [part], "api": API, "provider": PROVIDER}
    return message, {"set": changed} if changed else {}


def _read_output(item: JsonObject, names: Mapping[str, str]) -> tuple[JsonObject, JsonObject] | None:
    call_id, output = item.get("call_id"), item.get("output")
    if type(call_id) is not str or type(output) is not str or not item.keys() <= _OUTPUT:
        return None
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id}
    if call_id in names:
        message["toolName"] = names[call_id]
    message["content"] = output
    changed = {field: value for field, value in item.items() if field in ("id", "status")}
    return message, {"set": changed} if changed else {}


def _read_answer(item: JsonObject) -> tuple[JsonObject, JsonObject] | None:
    content = item["content"]
    if item.get("role") != "assistant" or not item.keys() <= _ANSWER or not isinstance(content, list) or not content:
        return None
    parts: list[JsonValue] = []
    beside: JsonObject = {}
    for number, part in enumerate(content):
        if type(part) is not dict or part.get("type") != "output_text" or not part.keys() <= _TEXT:
            return None
        text = part.get("text")
        if type(text) is not str:
            return None
        more = {field: value for field, value in part.items() if field not in ("type", "text")}
        parts.append({"type": "text", "text": text, **more})
        if more:
            beside[str(number)] = {"set": more}
    changed = {field: value for field, value in item.items() if field in ("id", "status", "phase")}
    message: JsonObject = {"role": "assistant", "content": parts, "api": API, "provider": PROVIDER}
    found: JsonObject = {"set": changed} if changed else {}
    if beside:
        found["inside"] = {"content": {"inside": beside}}
    return message, found


def printed(message: JsonObject, found: JsonValue) -> JsonObject | None:
    """Return the item that a message is, with the difference that stands beside it applied. O(size)."""
    changed = found.get("set", {}) if type(found) is dict and "unset" not in found else None
    if type(found) is not dict or type(changed) is not dict:
        return None
    content, inside = message.get("content"), found.get("inside")
    if type(content) is str:
        return _printed_output(message, changed) if inside is None else None
    if message.get("role") != "assistant" or type(content) is not list or not message.keys() <= _ANSWERED:
        return None
    if inside is None and (call := _printed_call(content, changed)) is not None:
        return call
    return _printed_answer(content, changed, inside)


def _printed_output(message: JsonObject, changed: JsonObject) -> JsonObject | None:
    if message.get("role") != "toolResult" or not message.keys() <= _RESULT:
        return None
    call_id = message.get("toolCallId")
    return {"type": "function_call_output", "call_id": call_id, "output": message["content"], **changed}


def _printed_call(content: list[JsonValue], changed: JsonObject) -> JsonObject | None:
    part = content[0] if len(content) == 1 else None
    if type(part) is not dict or part.keys() != _PART or part["type"] != "toolCall":
        return None
    item: JsonObject = {"type": "function_call", "call_id": part["id"], "name": part["name"], **changed}
    if "arguments" not in changed:
        item["arguments"] = arguments_text(part["arguments"])
    return item


def _printed_answer(content: list[JsonValue], changed: JsonObject, inside: JsonValue) -> JsonObject | None:
    beside = {} if inside is None else _beside_parts(inside)
    if beside is None or not content:
        return None
    said: list[JsonValue] = []
    for number, part in enumerate(content):
        if type(part) is not dict or part.get("type") != "text":
            return None
        item: JsonObject = {"type": "output_text", "text": part.get("text")}
        if beside:
            more = beside.pop(str(number), _NOTHING)
            told = more.get("set") if type(more) is dict and len(more) == 1 else None
            if type(told) is not dict:
                return None
            item.update(told)
        said.append(item)
    # What is left stands beside a part that there is not.
    return None if beside else {"type": "message", "role": "assistant", "content": said, **changed}


_NOTHING: JsonObject = {"set": {}}


def _beside_parts(inside: JsonValue) -> JsonObject | None:
    """Return what stands beside parts by their places, if nothing else is said of the content."""
    if type(inside) is not dict or inside.keys() != {"content"}:
        return None
    found = inside["content"]
    parts = found.get("inside") if type(found) is dict and len(found) == 1 else None
    return {**parts} if type(parts) is dict else None
