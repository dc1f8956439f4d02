"""Events: what happened to a session, derived from its revisions. The same revision gives the same events each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.entries import Entry, from_microseconds
from flue_py.core.exchange import answered_id, tool_calls
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, decode_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, MESSAGE
from flue_py.core.log import Edit, LogLine
from flue_py.core.sessions import Change, SessionInfo
from flue_py.core.spoken import message_preview, message_text
from flue_py.core.turns import begins_turn
from flue_py.errors import InvalidArgument, shown

EventType: TypeAlias = Literal[
    "session_created", "session_titled", "session_completed", "session_reopened", "session_changed",
    "task_started", "task_ended", "turn_start", "turn_end", "answer", "tool_call", "tool_result", "message",
    "compaction", "branch_summary", "entry_added", "leaf_moved", "conflict",
]  # fmt: skip

MAX_FIELD_CHARACTERS = 1_000
_LARGEST = 2**63 - 1


@frozen
class SessionEvent:
    """One thing that happened to a session. Which fields an event has, other than None, is said by its type.

    ``revision`` is that of the session at which it happened, 0 its creation, and ``number`` its place among the events
    of that revision. ``session_created_us`` tells a session from a later one with the same id. ``what`` is the kind of
    a session or an entry, why a leaf was moved, or what was changed; ``words`` is the first line of what was said.
    """

    type: EventType
    session_id: str
    session_created_us: int
    revision: int
    number: int
    at_us: int | None = None
    entry_id: str | None = None
    what: str | None = None
    words: str | None = None
    role: str | None = None
    model: str | None = None
    provider: str | None = None
    stop_reason: str | None = None
    tool: str | None = None
    call_id: str | None = None
    is_error: bool | None = None
    from_id: str | None = None
    to_id: str | None = None
    kept_id: str | None = None
    tokens_before: int | None = None
    other_session_id: str | None = None
    status: str | None = None

    @property
    def id(self) -> str:
        """The id of the event, by which a second export of it is known; also the position to go on from."""
        return f"{self.session_id}:{self.session_created_us}:{self.revision}:{self.number}"

    @property
    def at(self) -> datetime | None:
        """When it happened (UTC), where that is known."""
        return None if self.at_us is None else from_microseconds(self.at_us)


class Position(NamedTuple):
    """How far the events of a session were seen: up to and with this one."""

    created_us: int
    revision: int
    number: int


class _Found(NamedTuple):
    """An event without its place."""

    type: EventType
    at_us: int | None
    fields: dict[str, str | int | bool | None]


def positions_of(ids: Iterable[str]) -> dict[str, Position]:
    """Return how far each session was seen, given ids of events; of several of one session the furthest counts.

    Of two sessions that had the same id, the later one counts. Raises `InvalidArgument` for what is no id of an event.
    """
    found: dict[str, Position] = {}
    for event_id in ids:
        session_id, position = _position(event_id)
        found[session_id] = max(position, found.get(session_id, position))
    return found


def _position(event_id: str) -> tuple[str, Position]:
    parts = event_id.rsplit(":", 3) if isinstance(event_id, str) else []
    numbers = [int(part) for part in parts[1:] if part.isascii() and part.isdigit() and len(part) <= 19]
    if len(numbers) != 3 or max(numbers) > _LARGEST:
        raise InvalidArgument(
            f"after: {shown(event_id)} is not the id of an event, such as 'SESSION:1780000000000000:1:0'"
        )
    return parts[0], Position(*numbers)


def created_event(info: SessionInfo) -> SessionEvent:
    """Return the event of a session's creation: from what of its row never changes."""
    return SessionEvent(
        "session_created",
        info.id,
        info.created_us,
        0,
        0,
        info.created_us,
        what=info.kind,
        other_session_id=info.forked_from_session,
        from_id=info.forked_from_entry,
    )


def events_of(info: SessionInfo, change: Change, line: LogLine | None) -> list[SessionEvent]:
    """Return the events of one revision, at least one; ``line`` is that of the log. O(entries)."""
    found = [*_found(change, line)]
    if not found:
        found = [_Found("session_changed", None if line is None else line.at_us, {"what": "other"})]
    return [
        SessionEvent(each.type, info.id, info.created_us, change.revision, number, each.at_us, **each.fields)  # type: ignore[arg-type]
        for number, each in enumerate(found)
    ]


def _found(change: Change, line: LogLine | None) -> Iterator[_Found]:
    for entry in change.entries:
        yield from _of_entry(entry)
    if change.reason == "branch":
        expected = change.entries[0].parent_id if change.entries else None
        first = change.entries[0].id if change.entries else None
        yield _Found("conflict", change.at_us, {"entry_id": first, "from_id": expected, "to_id": change.to_id})
    elif change.reason is not None and change.reason != "append":
        moved = {"what": change.reason, "from_id": change.from_id, "to_id": change.to_id}
        yield _Found("leaf_moved", change.at_us, {**moved})
    if line is not None:
        for edit in line.edits:
            yield _of_edit(edit, line.at_us)


def _of_entry(entry: Entry) -> Iterator[_Found]:
    value = decode_json(entry.payload)
    fields: JsonObject = value if isinstance(value, dict) else {}
    if entry.kind == MESSAGE:
        yield from _of_message(entry, fields)
    elif entry.kind == COMPACTION:
        tokens = fields.get("tokensBefore")
        about = {
            "kept_id": _text(fields.get("firstKeptEntryId")),
            "tokens_before": tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None,
        }
        yield _Found("compaction", entry.created_us, {"entry_id": entry.id, **about})
    elif entry.kind == BRANCH_SUMMARY:
        about = {"entry_id": entry.id, "from_id": _text(fields.get("fromId"))}
        yield _Found("branch_summary", entry.created_us, {**about})
    else:
        yield _Found("entry_added", entry.created_us, {"entry_id": entry.id, "what": _text(entry.kind)})


def _of_message(entry: Entry, message: JsonObject) -> Iterator[_Found]:
    said: dict[str, str | int | bool | None] = {"entry_id": entry.id, "words": message_preview(message_text(message))}
    if entry.role == "assistant":
        stop = {"stop_reason": _text(message.get("stopReason"))}
        asked = {"model": _text(message.get("model")), "provider": _text(message.get("provider"))}
        yield _Found("answer", entry.created_us, {**said, **asked, **stop})
        calls = tool_calls(message)
        for call in calls:
            about = {"tool": _text(call.get("name")), "call_id": _text(call.get("id"))}
            yield _Found("tool_call", entry.created_us, {"entry_id": entry.id, **about})
        if not calls:
            yield _Found("turn_end", entry.created_us, {"entry_id": entry.id, **stop})
    elif entry.role == "toolResult":
        about = {"tool": _text(message.get("toolName")), "call_id": _text(answered_id(message))}
        is_error = message.get("isError") is True
        yield _Found("tool_result", entry.created_us, {"entry_id": entry.id, **about, "is_error": is_error})
    elif begins_turn(entry):
        yield _Found("turn_start", entry.created_us, said)
    else:
        yield _Found("message", entry.created_us, {**said, "role": _text(entry.role)})


def _of_edit(edit: Edit, at_us: int | None) -> _Found:
    after = edit.after
    if edit.what in ("title", "auto_title"):
        return _Found(
            "session_titled", at_us, {"what": edit.what, "words": None if after is None else message_preview(after)}
        )
    if edit.what == "completed":
        return _Found("session_reopened" if after is None else "session_completed", at_us, {})
    if edit.what == "task":
        return _Found("task_started", at_us, {"other_session_id": after})
    if edit.what == "ended" and after is not None:
        value = decode_json(after)
        told: JsonObject = value if isinstance(value, dict) else {}
        child, status = _text(told.get("childId")), _text(told.get("status"))
        return _Found("task_ended", at_us, {"other_session_id": child, "status": status})
    return _Found("session_changed", at_us, {"what": edit.what, "entry_id": edit.entry_id})


def _text(value: JsonValue) -> str | None:
    return value[:MAX_FIELD_CHARACTERS] if isinstance(value, str) else None
