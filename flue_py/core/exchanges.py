"""Tool calls and their results, as messages hold them."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.jsontext import JsonObject, JsonValue


def tool_calls(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the tool calls that an assistant message makes, in order; none for any other message."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and part.get("type") == "toolCall"]


def called_ids(message: Mapping[str, JsonValue]) -> list[str]:
    """Return the ids of the tool calls of a message, in order."""
    return [call_id for call in tool_calls(message) if isinstance(call_id := call.get("id"), str)]


def answered_id(message: Mapping[str, JsonValue]) -> str | None:
    """Return the id of the tool call that a message is the result of; None for what is no result."""
    call_id = message.get("toolCallId")
    return call_id if message.get("role") == "toolResult" and isinstance(call_id, str) else None
