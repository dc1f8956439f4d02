"""Events of sessions and budgets, and operations on sessions as values, to be done together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from msgspec.structs import replace

from flue_py.core.context import begins_turn
from flue_py.core.entries import Entry, NewEntry, answered_id, from_microseconds, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, decode_json, to_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, MESSAGE, message_preview, message_text
from flue_py.core.ledger import Budget, BudgetPeriod, Reached, Unit
from flue_py.core.sessions import (
    DEFAULT_LIMITS,
    GUARD_KEY,
    MAX_BY_CHARACTERS,
    MAX_WHY_CHARACTERS,
    NO_NOTE,
    STORED,
    Appended,
    Change,
    Deletion,
    Edit,
    EditMetadata,
    Expected,
    LeafChoice,
    LogLine,
    Moved,
    MoveReason,
    Navigated,
    NewSession,
    Note,
    OnConflict,
    SessionInfo,
    Stored,
    TaskEnd,
    leaf_of,
)
from flue_py.core.sessions import Seen as sessions_Seen
from flue_py.errors import InvalidArgument, shown

# ---------------------------------------------------------------------------------------------------------------------
# Events: derived from the stored rows of sessions and budgets.
#
# The same revision of a session gives the same events each time. Of a budget, each amount that it allows gives the same
# ones, since it keeps only the last of these amounts.

NoteType: TypeAlias = Literal["context_budget_warn", "command", "cancelled", "session_end", "question", "run_stopped"]
"""Those of a change of metadata with a reason that begins so (`why_of`); but for the first one it changes nothing."""

EventType: TypeAlias = Literal[
    "session_created", "session_titled", "session_completed", "session_reopened", "session_changed", "session_deleted",
    "task_started", "task_ended", "turn_start", "turn_end", "answer", "tool_call", "tool_result", "message",
    "compaction_start", "compaction", "compaction_failed", "branch_summary", "entry_added", "leaf_moved", "conflict",
    NoteType, "budget_set", "budget_warning", "budget_exceeded", "budget_deleted",
]  # fmt: skip

MAX_FIELD_CHARACTERS = 1_000
BUDGET_EVENTS: tuple[EventType, ...] = ("budget_set", "budget_warning", "budget_exceeded")
"""Those of a budget for each amount that it allows, in their order."""
_NOTES: tuple[NoteType, ...] = get_args(NoteType)
_LARGEST = 2**63 - 1
_DIGITS = len(str(_LARGEST))
_NUMBERS: dict[EventType, int] = {"session_deleted": 1, "budget_deleted": 1, **dict.fromkeys(BUDGET_EVENTS, 2)}
"""How many numbers are before the type in the id of an event that is of no revision."""
_IN_PERIOD = "@"
"""Stands between the amount and the beginning of the period in the id of an event of a budget with one."""


class SessionEvent(Frozen):
    """An event of a session or a budget. Its type decides which fields it has other than None.

    ``revision`` is that of the session at which it happened, 0 its creation, and ``number`` its place among the events
    of that revision; deletions and events of budgets are of no revision. ``session_created_us`` tells a session from a
    later one with the same id. ``session_id`` is None of a budget that covers a scope. ``what`` is the kind of a
    session or an entry, why a leaf was moved, the changed field, or the coverage of a budget; ``words`` is the first
    line of the text. ``by`` and ``why`` are as in the log. With a ``period``, a budget is warned of and exceeded once
    in each: ``period_began_us`` tells in which.
    """

    type: EventType
    session_id: str | None
    session_created_us: int | None = None
    revision: int | None = None
    number: int = 0
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
    by: str | None = None
    why: str | None = None
    budget_id: str | None = None
    budget_created_us: int | None = None
    scope: str | None = None
    unit: Unit | None = None
    allowed: int | None = None
    spent: int | None = None
    period: BudgetPeriod | None = None
    period_began_us: int | None = None

    @property
    def id(self) -> str:
        """The id of the event, by which a second export of it is known; also the position to go on from."""
        if self.budget_id is not None:
            began = "" if self.period_began_us is None else f"{_IN_PERIOD}{self.period_began_us}"
            allowed = () if self.allowed is None else (f"{self.allowed}{began}",)
            return ":".join(map(str, (self.budget_id, self.budget_created_us, *allowed, self.type)))
        place = (self.type,) if self.revision is None else (self.revision, self.number)
        return ":".join(map(str, (self.session_id, self.session_created_us, *place)))

    @property
    def at(self) -> datetime | None:
        """When it happened (UTC), if that is known."""
        return None if self.at_us is None else from_microseconds(self.at_us)


class Position(NamedTuple):
    """The last event of a session that was seen."""

    created_us: int
    revision: int
    number: int


class SessionsSeen:
    """The last seen events of sessions: of those whose deletion was not seen, by id, and of those that are gone."""

    def __init__(self) -> None:
        self.told: dict[str, Position] = {}
        self.gone: dict[tuple[str, int], Position] = {}
        """By id and when it was made. One that is restored is gone on with from there, and not deleted once more."""

    def at(self, session_id: str, created_us: int) -> Position | None:
        """Return the last event of a session that was seen; None if there is none."""
        seen = self.told.get(session_id)
        if seen is not None and seen.created_us == created_us:
            return seen
        return self.gone.get((session_id, created_us))

    def knows(self, session_id: str) -> bool:
        """Whether any event of a session with this id was seen. O(sessions that are gone)."""
        return session_id in self.told or any(name == session_id for name, _ in self.gone)

    def note(self, session_id: str, position: Position) -> None:
        """Note an event as seen. Of two sessions with the same id, the earlier one counts as gone."""
        key = (session_id, position.created_us)
        if key in self.gone:
            self.gone[key] = max(position, self.gone[key])
            return
        seen = self.told.get(session_id, position)
        if seen.created_us != position.created_us:
            earlier = min(seen, position)
            self.gone[session_id, earlier.created_us] = earlier
        self.told[session_id] = max(seen, position)

    def note_deletion(self, session_id: str, created_us: int) -> None:
        """Note the deletion of a session as seen. One that is known by that alone counts as seen when it was made."""
        at = self.at(session_id, created_us) or Position(created_us, 0, 0)
        if self.told.get(session_id) == at:
            del self.told[session_id]
        self.gone[session_id, created_us] = at


class BudgetsSeen:
    """Which events of budgets were seen: of each, by its id and when it was made, how many for each amount allowed.

    Those of a period are counted by its beginning, too.
    """

    def __init__(self) -> None:
        self.told: dict[tuple[str, int], dict[tuple[int, int | None], int]] = {}
        self.gone: dict[tuple[str, int], dict[tuple[int, int | None], int]] = {}

    def add(self, event: SessionEvent) -> None:
        """Note an event as seen."""
        assert event.budget_id is not None
        assert event.budget_created_us is not None
        self.note((event.budget_id, event.budget_created_us), event.type, event.allowed, event.period_began_us)

    def note(
        self, budget: tuple[str, int], kind: EventType, allowed: int | None = None, began: int | None = None
    ) -> None:
        """Note an event of a budget as seen; those before it for the same amount count as seen, too."""
        if allowed is None:
            self.gone[budget] = self.gone.get(budget) or self.told.pop(budget, {})
            return
        counts = self.gone[budget] if budget in self.gone else self.told.setdefault(budget, {})
        for place, count in (((allowed, None), 1), ((allowed, began), 1 + BUDGET_EVENTS.index(kind))):
            counts[place] = max(counts.get(place, 0), count)

    def due(self, budget: Budget) -> Sequence[EventType]:
        """Return the events of a budget as it is now that were not seen yet."""
        key = (budget.id, budget.created_us)
        counts = self.told.get(key) or self.gone.get(key) or {}
        seen = max(counts.get((budget.allowed, began), 0) for began in (None, budget.began_us))
        reached = [kind for kind in BUDGET_EVENTS if budget.spent >= amount_of(kind, budget.allowed)]
        return reached[seen:]


class Seen(Frozen):
    """Which events were seen: of sessions, and of budgets."""

    sessions: SessionsSeen
    budgets: BudgetsSeen


class _Found(NamedTuple):
    """An event without its place."""

    type: EventType
    at_us: int | None
    fields: dict[str, str | int | bool | None]


def seen_by(ids: Iterable[str]) -> Seen:
    """Return the events that were seen, by their ids; of several of one session the last counts.

    Raises `InvalidArgument` for a text that is no id of an event.
    """
    seen = Seen(SessionsSeen(), BudgetsSeen())
    for event_id in ids:
        owner, kind, numbers = _parts(event_id)
        if kind is None:
            seen.sessions.note(owner, Position(*numbers))
        elif kind == "session_deleted":
            seen.sessions.note_deletion(owner, numbers[0])
        else:
            created, *allowed = numbers
            seen.budgets.note((owner, created), kind, *allowed)
    return seen


def _parts(event_id: str) -> tuple[str, EventType | None, list[int]]:
    """Return the id of an event's owner, its type if the id has it, and the numbers of the id."""
    rest = event_id if isinstance(event_id, str) else ""
    before, _, last = rest.rpartition(":")
    kind = next((name for name in _NUMBERS if name == last), None)
    rest = rest if kind is None else before
    count = 3 if kind is None else _NUMBERS[kind]
    owner, *parts = rest.rsplit(":", count)
    is_whole = len(parts) == count
    if is_whole and kind in BUDGET_EVENTS:
        parts[-1:] = parts[-1].split(_IN_PERIOD, 1)
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= _DIGITS]
    if not is_whole or len(numbers) != len(parts) or max(numbers) > _LARGEST:
        raise InvalidArgument(
            f"after: {shown(event_id)} is not the id of an event, such as 'SESSION:1780000000000000:1:0'"
        )
    return owner, kind, numbers


def created_event(info: SessionInfo) -> SessionEvent:
    """Return the event of a session's creation: from the columns that never change."""
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


def deleted_event(session_id: str, created_us: int) -> SessionEvent:
    """Return the event of a session's deletion: nothing is stored of it, not even its time."""
    return SessionEvent("session_deleted", session_id, created_us)


def amount_of(kind: EventType, allowed: int) -> int:
    """Return the amount spent from which a budget has an event: a warning at four fifths of the allowed one."""
    if kind == "budget_set":
        return 0
    return allowed if kind == "budget_exceeded" else -(-allowed * 4 // 5)


def budget_event(kind: EventType, budget: Budget, reached: Reached | None) -> SessionEvent:
    """Return an event of a budget, with the call by which it came to the amount, if it is of one."""
    return SessionEvent(
        kind,
        budget.session_id,
        at_us=None if reached is None else reached.at_us,
        what=budget.covers,
        other_session_id=None if reached is None else reached.session_id,
        budget_id=budget.id,
        budget_created_us=budget.created_us,
        scope=budget.scope if budget.covers == "scope" else None,
        unit=budget.unit,
        allowed=budget.allowed,
        spent=None if reached is None else reached.spent,
        period=budget.period,
        period_began_us=None if reached is None else budget.began_us,
    )


def budget_deleted_event(budget_id: str, created_us: int) -> SessionEvent:
    """Return the event of a budget's deletion."""
    return SessionEvent("budget_deleted", None, budget_id=budget_id, budget_created_us=created_us)


def events_of(info: SessionInfo, change: Change, line: LogLine | None) -> list[SessionEvent]:
    """Return the events of one revision, at least one; ``line`` is that of the log. O(entries)."""
    events = [*_found(change, line)]
    if not events:
        events = [_Found("session_changed", None if line is None else line.at_us, {"what": "other"})]
    return [
        SessionEvent(event.type, info.id, info.created_us, change.revision, number, event.at_us, **event.fields)  # type: ignore[arg-type]
        for number, event in enumerate(events)
    ]


def _found(change: Change, line: LogLine | None) -> Iterator[_Found]:
    noted = {} if line is None else {"by": _cut(line.by, MAX_BY_CHARACTERS), "why": _cut(line.why, MAX_WHY_CHARACTERS)}
    is_exclusion = line is not None and line.what in ("exclusion", "inclusion")
    for entry in change.entries:
        for event in _of_entry(entry):
            yield event._replace(fields={**event.fields, **noted}) if is_exclusion else event
    if change.reason == "branch":
        expected = change.entries[0].parent_id if change.entries else None
        first = change.entries[0].id if change.entries else None
        yield _Found("conflict", change.at_us, {"entry_id": first, "from_id": expected, "to_id": change.to_id})
    elif change.reason is not None and change.reason != "append":
        moved = {"what": change.reason, "from_id": change.from_id, "to_id": change.to_id}
        yield _Found("leaf_moved", change.at_us, {**moved, **noted})
    if line is not None:
        begins, colon, _ = (line.why or "").partition(": ")
        for edit in line.edits:
            event = _of_edit(edit, line.at_us)
            is_note = edit.before == edit.after or begins == "context_budget_warn"
            if edit.what == "metadata" and colon and begins in _NOTES and is_note:
                event = _Found(begins, line.at_us, {})
            yield event._replace(fields={**event.fields, **noted})


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
    text: dict[str, str | int | bool | None] = {"entry_id": entry.id, "words": message_preview(message_text(message))}
    if entry.role == "assistant":
        stop = {"stop_reason": _text(message.get("stopReason"))}
        source = {"model": _text(message.get("model")), "provider": _text(message.get("provider"))}
        yield _Found("answer", entry.created_us, {**text, **source, **stop})
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
        yield _Found("turn_start", entry.created_us, text)
    else:
        yield _Found("message", entry.created_us, {**text, "role": _text(entry.role)})


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
        task: JsonObject = value if isinstance(value, dict) else {}
        child, status = _text(task.get("childId")), _text(task.get("status"))
        return _Found("task_ended", at_us, {"other_session_id": child, "status": status})
    kind = _of_guard(edit) if edit.what == "metadata" else "session_changed"
    return _Found(kind, at_us, {"what": edit.what, "entry_id": edit.entry_id})


def _of_guard(edit: Edit) -> EventType:
    """Return the event of a change of the metadata: a guard has begun to compact the session, or failed, or neither."""
    before, after = (_remembered(text) for text in (edit.before, edit.after))
    if after[0] not in (None, before[0]):
        return "compaction_start"
    return "compaction_failed" if after[1] > before[1] else "session_changed"


def _remembered(metadata: str | None) -> tuple[JsonValue, int]:
    """Return the claim of a guard, by its token, and how often compactions have failed in a row."""
    value = decode_json(metadata) if metadata and GUARD_KEY in metadata else None
    guarded = value.get(GUARD_KEY) if isinstance(value, dict) else None
    fields: JsonObject = guarded if isinstance(guarded, dict) else {}
    claim, failures = fields.get("claim"), fields.get("failures")
    return claim.get("token") if isinstance(claim, dict) else None, failures if isinstance(failures, int) else 0


def _text(value: JsonValue) -> str | None:
    return _cut(value, MAX_FIELD_CHARACTERS) if isinstance(value, str) else None


def why_of(event: NoteType, text: str) -> str:
    """Return the reason of a change of metadata that is such an event."""
    return f"{event}: {text}"[:MAX_WHY_CHARACTERS]


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]


# ---------------------------------------------------------------------------------------------------------------------
# Operations on sessions as values, to be done together. Each has the fields of the method of `Backend` that it stands
# for.


Result = TypeVar("Result")


class Write(Frozen, Generic[Result]):
    """An operation, checked and not done yet, and the type of what it comes to."""


class AppendEntries(Write[Appended]):
    """`Backend.append`."""

    session_id: str
    entries: Sequence[NewEntry]
    expected: Expected = STORED
    on_conflict: OnConflict = "raise"
    idempotency_key: str | None = None


class CreateSession(Write[SessionInfo]):
    """`Backend.create_session`. ``drawn_id`` is the id of a session that is not to choose its own."""

    new: NewSession
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of the session it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


class ForkSession(Write[SessionInfo]):
    """`Backend.fork`. ``drawn_id`` is the id of the fork, but not part of its content, as ``new.id`` is."""

    session_id: str
    at: LeafChoice
    new: NewSession
    scope: str | None = None
    expected: Expected = STORED
    idempotency_key: str | None = None
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of the session it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


class CreateTask(Write[SessionInfo]):
    """`Backend.create_task`; ``session_id`` is the parent, ``drawn_id`` as for `ForkSession`."""

    session_id: str
    task_id: str
    new: NewSession
    expected: Expected = STORED
    idempotency_key: str | None = None
    max_depth: int = DEFAULT_LIMITS.task_depth
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of the session it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


class LinkTask(Write[None]):
    """`Backend.link_task`; ``session_id`` is the parent."""

    session_id: str
    child_id: str
    task_id: str
    entry_id: str | None = None
    expected: Expected = STORED


class EndTask(Write[SessionInfo]):
    """`Backend.end_task`."""

    session_id: str
    status: TaskEnd
    summary: str | None = None
    expected: Expected = STORED
    note: Note = NO_NOTE


class MoveLeaf(Write[Moved]):
    """`Backend.move`."""

    session_id: str
    to: str | None
    expected: Expected = STORED
    reason: MoveReason = "move"
    note: Note = NO_NOTE
    idempotency_key: str | None = None


class Navigate(Write[Navigated]):
    """Going to an entry, as `flue_py.Session.navigate` does: `Backend.navigate`, to where that entry leads.

    ``summary`` is a branch summary with an id of its own; the entry above it and the leaf that was left are filled in.
    """

    session_id: str
    entry_id: str
    summary: NewEntry | None = None
    label: str | None = None
    expected: Expected = STORED
    note: Note = NO_NOTE


class Undo(Write["Moved | None"]):
    """`Backend.undo`."""

    session_id: str
    expected: Expected = STORED
    note: Note = NO_NOTE


class Redo(Write["Moved | None"]):
    """`Backend.redo`."""

    session_id: str
    expected: Expected = STORED
    note: Note = NO_NOTE


class UpdateSession(Write[SessionInfo]):
    """`Backend.update_session`."""

    session_id: str
    title: str | None | Stored = STORED
    auto_title: str | None | Stored = STORED
    metadata_text: str | EditMetadata | None = None
    completed_us: int | None | Stored = STORED
    expected: Expected = STORED
    note: Note = NO_NOTE


class SetLabel(Write[None]):
    """`Backend.set_label`."""

    session_id: str
    entry_id: str
    label: str | None
    expected: Expected = STORED
    note: Note = NO_NOTE


class SetPin(Write[tuple[str, ...]]):
    """`Backend.set_pin`."""

    session_id: str
    entry_id: str
    pinned: bool
    expected: Expected = STORED
    note: Note = NO_NOTE


class DeleteTree(Write[Deletion]):
    """`Backend.delete_tree`."""

    session_id: str
    scope: str | None = None
    expected: Expected = STORED


OnSession: TypeAlias = (
    AppendEntries | ForkSession | CreateTask | LinkTask | EndTask | MoveLeaf | Navigate | Undo
    | Redo | UpdateSession | SetLabel | SetPin | DeleteTree
)  # fmt: skip
"""An operation on a session that is named."""
Operation: TypeAlias = CreateSession | OnSession
Outcome: TypeAlias = Appended | SessionInfo | Moved | Navigated | Deletion | tuple[str, ...] | None
"""The result of an operation, as the method of `Backend` returns it."""


class Left(Frozen):
    """A session as a batch left it."""

    leaf_id: str | None
    revision: int


class Committed(Frozen):
    """The results of a batch of operations.

    ``outcomes`` has one for each operation, in their order; ``left`` the sessions that they named or made and that are
    still there, by id. ``replayed`` says that this was the retry of an earlier batch.
    """

    outcomes: tuple[Outcome, ...]
    left: dict[str, Left]
    replayed: bool = False


_NAMES = {
    AppendEntries: "append to",
    CreateSession: "create",
    ForkSession: "fork",
    CreateTask: "create a task of",
    LinkTask: "link a task to",
    EndTask: "end the task of",
    MoveLeaf: "move the leaf of",
    Navigate: "navigate in",
    Undo: "undo in",
    Redo: "redo in",
    UpdateSession: "change",
    SetLabel: "label an entry of",
    SetPin: "pin an entry of",
    DeleteTree: "delete",
}


def named(operation: Operation) -> str:
    """Return an operation in words, for people."""
    session = operation.session_made if isinstance(operation, CreateSession) else str(operation.session_id)
    return f"{_NAMES[type(operation)]} session {'' if session is None else repr(session)}".strip()


def sessions_named(operations: Sequence[Operation]) -> list[str]:
    """Return the ids of the sessions that operations name and do not make themselves, in order of first mention."""
    created: set[str] = set()
    ids: dict[str, None] = {}
    for operation in operations:
        if not isinstance(operation, CreateSession) and operation.session_id not in created:
            ids[operation.session_id] = None
        if isinstance(operation, (CreateSession, ForkSession, CreateTask)) and operation.session_made is not None:
            created.add(operation.session_made)
    return list(ids)


def ids_drawn(operations: Sequence[Operation]) -> Iterator[str]:
    """Yield the ids that operations bring along for their new sessions and entries, in order: a retry has others."""
    for operation in operations:
        if isinstance(operation, AppendEntries):
            yield from (entry.id for entry in operation.entries if entry.id is not None)
        elif isinstance(operation, (CreateSession, ForkSession, CreateTask)) and operation.drawn_id is not None:
            yield operation.drawn_id
        elif isinstance(operation, Navigate) and operation.summary is not None and operation.summary.id is not None:
            yield operation.summary.id


def content_of(operations: Sequence[Operation]) -> str:
    """Return the content of operations as a text, the same for a retry: without the ids that it makes, or the clock."""
    text = to_json([_described(operation) for operation in operations]).decode()
    for number, drawn in enumerate(ids_drawn(operations)):
        # Also in a payload, which is a text of JSON itself.
        quoted = to_json(drawn).decode()
        escaped = to_json(quoted).decode()[1:-1]
        text = text.replace(quoted, f'"#{number}"').replace(escaped, f'\\"#{number}\\"')
    return text


def _described(operation: Operation) -> list[object]:
    content: list[object] = [type(operation).__name__]
    if not isinstance(operation, CreateSession):
        content.append(str(operation.session_id))
    if isinstance(operation, (CreateSession, ForkSession, CreateTask)):
        new = operation.new
        content += [new.id, new.key, new.title, new.scope, new.metadata_text]
    match operation:
        case AppendEntries(entries=entries):
            content += [operation.on_conflict, [(new.kind, new.payload, new.source, new.extra) for new in entries]]
        case ForkSession(at=at):
            content += ["stored leaf" if isinstance(at, Stored) else [at], operation.scope]
        case CreateTask(task_id=name) | MoveLeaf(to=name) | DeleteTree(scope=name):
            content.append(name)
        case LinkTask():
            content += [str(operation.child_id), operation.task_id, operation.entry_id]
        case EndTask():
            content += [operation.status, operation.summary]
        case Navigate(summary=summary):
            content += [operation.entry_id, None if summary is None else summary.payload, operation.label]
        case UpdateSession():
            values = (operation.title, operation.auto_title, operation.metadata_text, operation.completed_us)
            content += [value if isinstance(value, (str, int, type(None))) else repr(value) for value in values]
        case SetLabel():
            content += [operation.entry_id, operation.label]
        case SetPin():
            content += [operation.entry_id, operation.pinned]
    return content


def renamed(operation: Operation, names: dict[str, str]) -> Operation:
    """Return an operation with other ids in place of those that an earlier one did not use, being a retry."""
    if not names or isinstance(operation, CreateSession):
        return operation

    def of(name: str) -> str:
        return names.get(name, name)

    def place(leaf: LeafChoice) -> LeafChoice:
        return of(leaf) if isinstance(leaf, str) else leaf

    expected = operation.expected
    leaf = place(leaf_of(expected))
    expected = replace(expected, leaf=leaf) if isinstance(expected, sessions_Seen) else leaf
    copied = replace(operation, session_id=of(operation.session_id), expected=expected)
    match copied:
        case ForkSession(at=at):
            return replace(copied, at=place(at))
        case LinkTask(child_id=child, entry_id=entry_id):
            return replace(copied, child_id=of(child), entry_id=None if entry_id is None else of(entry_id))
        case MoveLeaf(to=to):
            return replace(copied, to=None if to is None else of(to))
        case SetLabel(entry_id=entry_id) | SetPin(entry_id=entry_id) | Navigate(entry_id=entry_id):
            return replace(copied, entry_id=of(entry_id))
    return copied
