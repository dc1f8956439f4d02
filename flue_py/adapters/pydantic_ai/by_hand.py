"""Messages that were added to a session by other means than this adapter, as messages of the framework."""

from __future__ import annotations

from flue_py.adapters.pydantic_ai.ours import request_of, response_of
from flue_py.adapters.shown import as_message
from flue_py.core.entries import Entry
from flue_py.core.faithful import SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.projection import ContextEntry
from flue_py.core.usage_shapes import read_reported, usage_json
from flue_py.errors import InvalidArgument, shown

_FINISHES = ("stop", "length", "content_filter", "toolUse", "error", "aborted")


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
        if message.get("stopReason") not in _FINISHES:
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
