"""Items of a Codex rollout printed from the messages that `codex_content` made of them: its inverse."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.openai_chat import arguments_text
from flue_py.wire.responses_content import CALLS, ITEM, ITEM_ID, TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT

_PART = frozenset({"type", "id", "name", "arguments", ITEM, ITEM_ID})
_KINDS = CALLS | {TOOL_SEARCH_CALL}


def item_of_call(part: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the item that a call was in a rollout, fields and all; None for a call that came from none."""
    kind = part.get(ITEM)
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    item: JsonObject = {"type": kind}
    if ITEM_ID in part:
        item["id"] = part[ITEM_ID]
    item["call_id"] = part.get("id")
    arguments = part.get("arguments")
    if kind == "function_call":
        item.update(name=part.get("name"), arguments=arguments_text(arguments))
    elif kind == "custom_tool_call":
        item.update(name=part.get("name"), input=arguments_text(arguments))
    else:
        item["action" if kind == "local_shell_call" else "arguments"] = arguments
    return {**{name: value for name, value in part.items() if name not in _PART}, **item}


def item_of_reasoning(part: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the item that reasoning was in a rollout; None where it has no encrypted content to be taken back by."""
    encrypted = part.get("thinkingSignature")
    if not isinstance(encrypted, str) or not encrypted:
        return None
    text = part.get("thinking")
    summary: list[JsonValue] = [{"type": "summary_text", "text": text}] if isinstance(text, str) and text else []
    item: JsonObject = {"summary": summary, **beside(part), "type": "reasoning", "encrypted_content": encrypted}
    return {**item, "id": part["id"]} if isinstance(part.get("id"), str) else item


def item_of_search(message: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return the tools that a search for tools found, as the item that they came in; None for any other result."""
    told = beside(message)
    if told.get("type") != TOOL_SEARCH_OUTPUT:
        return None
    content = message.get("content")
    tools = [_unwrapped(part) for part in content] if isinstance(content, list) else []
    return {**told, "call_id": message.get("toolCallId"), "tools": tools}


def beside(holder: Mapping[str, JsonValue]) -> JsonObject:
    """Return the fields of an item that a message, or a part of one, has no place for."""
    told = holder.get(ITEM)
    return dict(told) if isinstance(told, dict) else {}


def _unwrapped(part: JsonValue) -> JsonValue:
    is_wrapped = isinstance(part, dict) and part.get("type") == "json" and set(part) == {"type", "value"}
    return part["value"] if is_wrapped and isinstance(part, dict) else part


def json_text(value: JsonValue) -> str:
    """Return a value as JSON text: what stands for an output that is neither text nor parts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
