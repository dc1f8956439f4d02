"""What stands in the rows of a Claude Code transcript, as messages in the engine's own shape.

Parts become text, thinking, toolCall and image; a part of any other type is kept as it is. Usage becomes the
reference's camelCase object: cache reads and writes are apart from the input already, and stay so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.usage_shapes import read_reported, usage_json

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "toolUse",
    "max_tokens": "length",
    "refusal": "error",
}
_READ = frozenset({
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
})  # fmt: skip


def parts_of(content: JsonValue) -> JsonValue:
    """Return the content of a message: a string as it is, a list with its parts translated, anything else as it is."""
    if isinstance(content, list):
        return [translated_part(part) for part in content]
    return content


def translated_part(part: JsonValue) -> JsonValue:
    """Return one part in the engine's shape. Fields without a place there keep their names."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return {"type": "json", "value": part}
    return _translated(part)


def _translated(part: JsonObject) -> JsonValue:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return part
    if kind == "thinking" and isinstance(part.get("thinking"), str):
        return _renamed(part, {"signature": "thinkingSignature"})
    if kind == "tool_use" and isinstance(part.get("id"), str) and isinstance(part.get("name"), str):
        return {**_renamed(part, {"input": "arguments"}), "type": "toolCall"}
    if kind == "image":
        return _image(part)
    if kind in ("text", "thinking", "toolCall", "file") or not isinstance(kind, str):
        # It has the name of a part, and not what belongs to one.
        return {"type": "json", "value": part}
    return part


def _renamed(part: JsonObject, names: dict[str, str]) -> JsonObject:
    renamed: JsonObject = {names.get(name, name): value for name, value in part.items()}
    if not isinstance(renamed.get("thinkingSignature", ""), str):
        del renamed["thinkingSignature"]
    return renamed


def _image(part: JsonObject) -> JsonValue:
    source = part.get("source")
    if isinstance(source, dict) and isinstance(source.get("data"), str) and isinstance(source.get("media_type"), str):
        rest = {name: value for name, value in part.items() if name not in ("type", "source", "data", "mimeType")}
        return {"type": "image", "data": source["data"], "mimeType": source["media_type"], **rest}
    known = all(isinstance(part.get(name), (str, type(None))) for name in ("data", "mimeType"))
    return part if known else {"type": "json", "value": part}


def assistant_message(messages: Sequence[JsonObject], usage: JsonObject | None) -> JsonObject:
    """Return the message that several rows make together: their parts in order, the rest from the last row.

    A tool call that a later row repeats counts once.
    """
    last = messages[-1]
    content: list[JsonValue] = []
    called: set[str] = set()
    plain: JsonValue = None
    for message in messages:
        given = message.get("content")
        if isinstance(given, list):
            content += _without_repeated_calls(given, called)
        elif isinstance(given, str) and given:
            plain = given
            content.append({"type": "text", "text": given})
    made: JsonObject = {"role": "assistant", "content": plain if len(messages) == 1 and plain else content}
    made["api"] = "anthropic-messages"
    made["provider"] = "anthropic"
    if isinstance(last.get("model"), str):
        made["model"] = last["model"]
    if usage is not None:
        made["usage"] = usage
    reason = stop_reason(messages)
    if reason is not None:
        made["stopReason"] = _STOP_REASONS.get(reason, reason)
    if isinstance(last.get("id"), str):
        made["responseId"] = last["id"]
    return made


def _without_repeated_calls(parts: Iterable[JsonValue], called: set[str]) -> Iterable[JsonValue]:
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "tool_use" and isinstance(call := part.get("id"), str):
            if call in called:
                continue
            called.add(call)
        yield translated_part(part)


def stop_reason(messages: Sequence[JsonObject]) -> str | None:
    """Return why the model stopped, by the last row that says so."""
    for message in reversed(messages):
        reason = message.get("stop_reason")
        if isinstance(reason, str):
            return reason
    return None


def usage_of(value: JsonValue) -> JsonObject | None:
    """Return reported usage in the engine's shape; None if no tokens are reported. Odd numbers stay as they are."""
    if not isinstance(value, dict):
        return None
    usage = read_reported(value)
    if usage.oddities:
        return dict(value)
    if not usage.told:
        return None
    rest = {name: given for name, given in value.items() if name not in _READ and given is not None}
    return {**usage_json(usage), **rest}


def tool_result_message(part: JsonObject, tool: str | None, details: JsonValue) -> JsonObject:
    """Return what a tool answered as a message of its own."""
    made: JsonObject = {"role": "toolResult"}
    if isinstance(part.get("tool_use_id"), str):
        made["toolCallId"] = part["tool_use_id"]
    if tool is not None:
        made["toolName"] = tool
    content = parts_of(part.get("content"))
    made["content"] = content if isinstance(content, (str, list)) or content is None else [translated_part(content)]
    if isinstance(part.get("is_error"), bool):
        made["isError"] = part["is_error"]
    if details is not None:
        made["details"] = details
    return made


def tool_calls(message: JsonObject) -> Iterable[tuple[str, str]]:
    """Return id and name of the tools that a row's message calls."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "tool_use":
            call, name = part.get("id"), part.get("name")
            if isinstance(call, str):
                yield call, name if isinstance(name, str) else ""


def is_answer(messages: Sequence[JsonObject]) -> bool:
    """Return whether the rows so far look like a whole answer: they end in text, and call no tool."""
    if any(True for message in messages for _ in tool_calls(message)):
        return False
    content = messages[-1].get("content")
    if isinstance(content, list):
        last = content[-1] if content else None
        return isinstance(last, dict) and last.get("type") == "text"
    return isinstance(content, str)
