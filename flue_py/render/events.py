"""Events as JSON for programs."""

from __future__ import annotations

from flue_py.core.events import SessionEvent
from flue_py.core.jsontext import JsonObject
from flue_py.render.rows import iso

_FIELDS = {
    "entryId": "entry_id",
    "what": "what",
    "words": "words",
    "role": "role",
    "model": "model",
    "provider": "provider",
    "stopReason": "stop_reason",
    "tool": "tool",
    "callId": "call_id",
    "isError": "is_error",
    "fromId": "from_id",
    "toId": "to_id",
    "keptId": "kept_id",
    "tokensBefore": "tokens_before",
    "otherSessionId": "other_session_id",
    "status": "status",
    "by": "by",
    "why": "why",
    "budgetId": "budget_id",
    "scope": "scope",
    "unit": "unit",
    "allowed": "allowed",
    "spent": "spent",
}


def event_row(event: SessionEvent) -> JsonObject:
    """Return an event; fields that it does not have are left out."""
    row: JsonObject = {
        "id": event.id,
        "session": event.session_id,
        "time": None if event.at is None else iso(event.at),
        "type": event.type,
    }
    return row | {name: value for name, field in _FIELDS.items() if (value := getattr(event, field)) is not None}
