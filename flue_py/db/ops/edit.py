"""Changes of a session beside its history, its log, navigation, and several operations in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flue_py import errors
from flue_py.core import sessions
from flue_py.core.context import effective_pins, is_editable
from flue_py.core.entries import NewEntry, leaving
from flue_py.core.json import to_json
from flue_py.core.kinds import SHOWN_KINDS, message_text
from flue_py.core.ledger import EditRow, MoveRow
from flue_py.core.operations import (
    AppendEntries,
    Committed,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    Left,
    LinkTask,
    MoveLeaf,
    Navigate,
    OnSession,
    Operation,
    Outcome,
    Redo,
    SetLabel,
    SetPin,
    Undo,
    UpdateSession,
    content_of,
    named,
    renamed,
    sessions_named,
)
from flue_py.core.sessions import Appended, Deletion, Moved, Navigated, Seen, SessionInfo, is_storable
from flue_py.db import sql
from flue_py.db.ops import base, ledger
from flue_py.db.ops.append import EntryBatch, appended_of, plan_append, told_of
from flue_py.db.ops.base import decode_payload
from flue_py.db.ops.read import get_entry, group_of, latest_compaction
from flue_py.db.ops.seals import change_calls, read_rows_of_log, renew_heads
from flue_py.db.ops.sessions import (
    create_session,
    create_task,
    end_task,
    link_task,
    plan_fork,
    replayed_session,
    require_session,
    write_edits,
)
from flue_py.db.runner import Nothing, SessionState, Sources, Transaction, written
from flue_py.db.sql import StoredEntry, statement
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.db.ops import delete
else:
    delete = lazy_module("flue_py.db.ops.delete")  # which only a batch that deletes needs

# ---------------------------------------------------------------------------------------------------------------------
# Changes of a session beside its history: title, metadata, labels, pins. Each is written down with what was before.


def update_session(tx: Transaction, sources: Sources, operation: UpdateSession) -> sessions.SessionInfo:
    """Change the given fields (see `Backend.update_session`)."""
    title, auto_title, completed_us = operation.title, operation.auto_title, operation.completed_us
    state = base.read_state(tx, operation.session_id)
    state.require(operation.expected)
    info = require_session(tx, operation.session_id)
    wanted: list[tuple[sessions.EditKind, str | None]] = []
    if not isinstance(title, sessions.Stored):
        sessions.check_label(title, "title")
        wanted.append(("title", title))
    if not isinstance(auto_title, sessions.Stored):
        sessions.check_label(auto_title, "auto_title")
        wanted.append(("auto_title", auto_title))
    metadata_text = operation.metadata_text
    if callable(metadata_text):
        metadata_text = metadata_text(info.metadata_text)
    if metadata_text is not None:
        wanted.append(("metadata", info.task_names.taken_from(metadata_text, info.metadata_text)))
    if not isinstance(completed_us, sessions.Stored):
        wanted.append(("completed", None if completed_us is None else str(completed_us)))
    edits = [sessions.Edit(what, None, sessions.row_value(info, what), after) for what, after in wanted]
    for edit in edits:
        _write_row_value(tx, state, edit)
    write_edits(tx, sources, state, edits, operation.note)
    renew_heads(tx, [state.key])
    return require_session(tx, operation.session_id)


UPDATE_SCOPE = statement(Nothing)("UPDATE sessions SET scope = :scope WHERE session_key = :session_key")


def adopt_session(tx: Transaction, sources: Sources, session_id: str, scope: str) -> sessions.SessionInfo:
    """Give a session without history to another scope (see `Backend.adopt_session`)."""
    state = base.read_state(tx, session_id)
    info = require_session(tx, session_id)
    has_own = info.entry_count or info.leaf_id or info.key or info.task_names.tasks
    if has_own or "imported" not in info.metadata:
        raise errors.SessionExists(
            session_id,
            detail=f"session {session_id!r} is already here, in scope {info.scope!r}; import the file into that scope, "
            "or delete the session there first",
        )
    tx.run(UPDATE_SCOPE, session_key=state.key, scope=scope)
    renew_heads(tx, [state.key])
    change_calls(tx, [state.key], lambda: tx.run(ledger.MOVE_CALLS, session_key=state.key, scope=scope))
    tx.run(ledger.MOVE_BUDGETS, id=session_id, scope=scope)
    write_edits(tx, sources, base.read_state(tx, session_id), [], sessions.Note())
    return require_session(tx, session_id)


UPDATE_TITLE = statement(Nothing)("UPDATE sessions SET title = :title WHERE session_key = :session_key")
UPDATE_METADATA = statement(Nothing)("UPDATE sessions SET metadata = :metadata WHERE session_key = :session_key")


def _write_row_value(tx: Transaction, state: SessionState, edit: sessions.Edit) -> None:
    if edit.what == "title":
        tx.run(UPDATE_TITLE, session_key=state.key, title=edit.after)
    elif edit.what == "auto_title":
        tx.run(sql.UPDATE_AUTO_TITLE, session_key=state.key, auto_title=edit.after)
    elif edit.what == "metadata":
        tx.run(UPDATE_METADATA, session_key=state.key, metadata=edit.after or "{}")
    else:
        completed_at = None if edit.after is None else int(edit.after)
        tx.run(sql.UPDATE_COMPLETED, session_key=state.key, completed_at=completed_at)


def set_label(tx: Transaction, sources: Sources, operation: SetLabel) -> None:
    """Set or clear a label (see `Backend.set_label`)."""
    entry_id = operation.entry_id
    sessions.check_entry_label(operation.label)
    state = base.read_state(tx, operation.session_id)
    state.require(operation.expected)
    base.see_entry(tx, state, entry_id)
    edit = sessions.Edit("label", entry_id, base.mark_of(tx, state, entry_id, "label"), operation.label or None)
    if edit.before != edit.after:
        base.put_marks(tx, sources, state, [entry_id], "label", edit.after)
        write_edits(tx, sources, state, [edit], operation.note)


def set_pin(tx: Transaction, sources: Sources, operation: SetPin) -> tuple[str, ...]:
    """Pin an entry with its group, or let go of them (see `Backend.set_pin`)."""
    entry_id, pinned = operation.entry_id, operation.pinned
    state = base.read_state(tx, operation.session_id)
    state.require(operation.expected)
    base.see_entry(tx, state, entry_id)
    (entry,) = tx.rows(sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    check_pinnable(entry_id, entry.kind)
    group = group_of(tx, state, entry_id, state.position)
    own = base.pins_of(tx, state)
    latest = latest_compaction(tx, state, state.position)
    in_effect = effective_pins(own, None if latest is None else latest[1])
    changed = [member for member in group if (own.get(member) != "on" if pinned else member in in_effect)]
    after = "on" if pinned else "off"
    if changed:
        base.put_marks(tx, sources, state, changed, "pin", after)
        write_edits(tx, sources, state, [sessions.Edit("pin", entry_id, own.get(entry_id), after)], operation.note)
    return tuple(group)


def check_pinnable(entry_id: str, kind: str) -> None:
    """Raise `InvalidArgument` for an entry that is of no kind that a context has."""
    if kind not in SHOWN_KINDS:
        raise InvalidArgument(
            f"entry {entry_id!r} is of kind {kind}, which is never part of a context; there is nothing to keep of it"
        )


def restore_edits(
    tx: Transaction, sources: Sources, state: SessionState, wanted: Sequence[sessions.Edit], note: sessions.Note
) -> list[sessions.Edit]:
    """Give edited things the values that ``wanted`` has ``after``; return the changes, and write them down.

    Raises `EntryNotFound` for a mark on an entry that the session does not see any more.
    """
    info = require_session(tx, state.id)
    changed = []
    for want in wanted:
        if want.entry_id is None:
            edit = sessions.Edit(want.what, None, sessions.row_value(info, want.what), want.after)
            if edit.before != edit.after:
                _write_row_value(tx, state, edit)
                changed.append(edit)
            continue
        base.see_entry(tx, state, want.entry_id)
        edit = sessions.Edit(want.what, want.entry_id, base.mark_of(tx, state, want.entry_id, want.what), want.after)
        if edit.before != edit.after:
            pinned = want.what == "pin"
            group = group_of(tx, state, want.entry_id, state.position) if pinned else [want.entry_id]
            base.put_marks(tx, sources, state, group, want.what, edit.after)
            changed.append(edit)
    if changed:
        write_edits(tx, sources, state, changed, note)
        renew_heads(tx, [state.key])
    return changed


# ---------------------------------------------------------------------------------------------------------------------
# The log of a session, read from what is stored anyway, and going back to any line of it.


def read_log(tx: Transaction, session_id: str, before: int | None, limit: int) -> list[sessions.LogLine]:
    """Return lines of the log, newest first (see `Backend.read_log`)."""
    state = base.read_state(tx, session_id)
    last = state.revision if before is None else min(before - 1, state.revision)
    return _lines(tx, state, max(last - limit, 0), last)


def _logged_move(row: MoveRow | None) -> sessions.LoggedMove | None:
    if row is None:
        return None
    return sessions.LoggedMove(
        row.reason, row.undoes, row.from_entry, row.to_entry, sessions.Note.stored(row.moved_by, row.why), row.at
    )


_NEXT = "CASE WHEN s.low = s.high THEN s.low + 1 ELSE (s.low + s.high + 1) / 2 END"
# Each revision's stretches of lanes, from ``start`` to ``low``, where low is high: one after the other up to ``top``.
_STRETCHES = (
    "stretches(lane_id, top, start, revision, low, high) AS ("
    "  SELECT r.lane_id, r.high, r.low, CAST(0 AS BIGINT), r.low, r.low FROM ranges r"
    "  UNION ALL SELECT s.lane_id, s.top,"
    "   CASE WHEN s.low = s.high THEN e.depth ELSE s.start END,"
    "   CASE WHEN s.low = s.high THEN e.revision ELSE s.revision END,"
    "   CASE WHEN s.low = s.high OR e.revision = s.revision THEN e.depth ELSE s.low END,"
    "   CASE WHEN s.low = s.high THEN s.top WHEN e.revision = s.revision THEN s.high"
    "    ELSE (s.low + s.high + 1) / 2 - 1 END"
    "   FROM stretches s CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    f"    AND e.depth = {sql.next_from('s.lane_id', _NEXT)} WHERE s.low < s.top)"
)
# The first entries of each stretch, and the last; the payload of the very first.
_FIRST_PAYLOAD = ", ".join(
    f"CASE WHEN e.ordinal = 0 THEN {column} END" for column in (sql.PAYLOAD_BYTES, "e.packed", "e.blob")
)
LOGGED_ENTRIES = statement(StoredEntry)(
    f"{sql.WITH_RANGES}, {_STRETCHES} SELECT {sql.WITHOUT_PAYLOAD}, {_FIRST_PAYLOAD}"
    " FROM stretches s JOIN (SELECT 0 AS is_end UNION ALL SELECT 1) k"
    "  ON s.low = s.high AND s.revision > 0 AND (k.is_end = 0 OR s.low >= s.start + :count)"
    " CROSS JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    "  AND e.depth >= CASE WHEN k.is_end = 1 THEN s.low ELSE s.start END"
    "  AND e.depth <= CASE WHEN k.is_end = 1 OR s.low < s.start + :count THEN s.low ELSE s.start + :count - 1 END"
    " ORDER BY e.revision, e.ordinal"
)


def _lines(tx: Transaction, state: SessionState, after: int, last: int) -> list[sessions.LogLine]:
    where = {"session_key": state.key, "revision": after, "last_revision": last}
    moves, edited = read_rows_of_log(tx, state, after, last)
    added = tx.rows(LOGGED_ENTRIES, **where, tree_id=state.tree_id, leaf=state.leaf, count=sessions.LOGGED_IDS)
    edits = {revision: [*rows] for revision, rows in groupby(edited, attrgetter("revision"))}
    entries = {revision: [*rows] for revision, rows in groupby(added, attrgetter("revision"))}
    return [
        sessions.make_line(
            state.id,
            revision,
            _logged_move(moves.get(revision)),
            _logged_entries(tx, state, entries[revision]) if revision in entries else None,
            _logged_edits(edits[revision]) if revision in edits else None,
        )
        for revision in range(last, after, -1)
    ]


def _logged_entries(tx: Transaction, state: SessionState, rows: list[StoredEntry]) -> sessions.LoggedEntries:
    for row in rows:
        if not tx.chain.has_fields(row.digest, row.digest_above, row.fields):
            raise errors.damaged_entry(row.id, errors.MISMATCH, state.id)
    first, last = rows[0], rows[-1]
    payload = decode_payload(base.checked_payload(tx, state, first))
    shown = [row for row in rows if row.ordinal < sessions.LOGGED_IDS]
    ids, kinds = tuple(row.id for row in shown), tuple(row.kind for row in shown)
    return sessions.LoggedEntries(last.ordinal + 1, ids, kinds, payload, first.parent_id, last.id, last.created_at)


def _logged_edits(rows: list[EditRow]) -> sessions.LoggedEdits:
    first = rows[0]
    edits = tuple(sessions.Edit(row.what, row.entry_id, row.before, row.after) for row in rows)
    return sessions.LoggedEdits(edits, sessions.Note.stored(first.edited_by, first.why), first.at)


def go_back(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    revision: int,
    *,
    before: bool = False,
    expected: sessions.Expected = sessions.STORED,
    note: sessions.Note = sessions.NO_NOTE,
) -> sessions.LogLine | None:
    """Go back to a line of the log (see `Backend.go_back`)."""
    state = base.read_state(tx, session_id)
    if isinstance(expected, sessions.Seen):
        # A leaf by itself is of interest only where the leaf is moved.
        state.require(expected)
    check_is_logged(state.id, revision, state.revision)
    logged = () if revision == 0 else _lines(tx, state, revision - 1, revision)[0].edits
    if before and any(edit.what == "redacted" for edit in logged):
        raise InvalidArgument(f"revision {revision} of session {state.id!r} is a redaction, which cannot be taken back")
    edits = sessions.restorable(logged)
    if edits:
        wanted = [replace(edit, after=edit.before if before else edit.after) for edit in edits]
        if not restore_edits(tx, sources, state, wanted, note):
            return None
    elif not _go_to(tx, sources, state, revision, base.leaf_at(tx, state, revision - before), note, expected):
        return None
    return _lines(tx, base.read_state(tx, session_id), state.revision, state.revision + 1)[0]


def check_is_logged(session_id: str, revision: int, last: int) -> None:
    """Raise `InvalidArgument` where a session's log has no such line; 0 is before the first."""
    if revision > last:
        raise InvalidArgument(f"revision {revision} is not in the log of session {session_id!r}: its last is {last}")


def _go_to(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    revision: int,
    target: str | None,
    note: sessions.Note,
    expected: sessions.Expected,
) -> bool:
    """Move the leaf to where it was, and bring back entries retracted since; return whether that changed anything."""
    state.require(expected)
    if target == state.leaf:
        return False
    brought_back: list[str] = []
    position = None
    if target is not None:
        position, _ = base.find_held(tx, state, target)
        if position is None:
            raise leaf_is_gone(state.id, revision, target)
        brought_back = base.retracted_on_path(tx, state, position)
    own = base.bring_back(tx, state, brought_back)
    edits = [sessions.Edit("retracted", None, to_json(brought_back).decode())] if brought_back else []
    base.write_move(tx, sources, state, position, "back", note, undoes=revision, entries_back=own, edits=edits)
    return True


def leaf_is_gone(session_id: str, revision: int, target: str) -> EntryNotFound:
    """Return the error for a line whose leaf has been deleted."""
    return EntryNotFound(
        session_id,
        target,
        detail=f"session {session_id!r}: cannot go back to revision {revision}: entry {target!r} has been deleted",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Navigation: the leaf goes elsewhere, and the summary of what it leaves comes along, in one transaction.


def go_to(tx: Transaction, sources: Sources, operation: Navigate) -> sessions.Navigated:
    """Go to an entry: before one that a person wrote, else to the entry itself (see `Navigate`)."""
    session_id, entry_id, summary = operation.session_id, operation.entry_id, operation.summary
    state = base.read_state(tx, session_id)
    state.require(operation.expected)
    entry = get_entry(tx, session_id, entry_id)
    if entry is None:
        raise EntryNotFound(state.id, entry_id)
    if entry_id == state.leaf:
        return sessions.Navigated(state.leaf, state.leaf, state.revision)
    to, draft = (entry.parent_id, message_text(entry.fields)) if is_editable(entry) else (entry_id, None)
    new = None if summary is None else leaving(summary, to, state.leaf)
    label, note = operation.label, operation.note
    went = navigate(tx, sources, session_id, to, summary=new, label=label, labelled=entry_id, note=note)
    return replace(went, draft=draft)


def navigate(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    to: str | None,
    *,
    summary: NewEntry | None = None,
    label: str | None = None,
    labelled: str | None = None,
    expected: sessions.Expected = sessions.STORED,
    note: sessions.Note = sessions.NO_NOTE,
) -> sessions.Navigated:
    """Set the leaf, with a summary below it, and label one of them (see `Backend.navigate`)."""
    sessions.check_entry_label(label)
    state = base.read_state(tx, session_id)
    state.require(expected)
    parent = None if to is None else base.see_entry(tx, state, to)
    summary_id = None
    if summary is not None:
        batch = EntryBatch(tx, sources, state)
        batch.add(parent, summary)
        (summary_id,) = batch.ids
        batch.write(tx, summary_id, batch.move("move", state.leaf, summary_id, note))
        revision = batch.revision
    elif to != state.leaf:
        revision = base.write_move(tx, sources, state, parent, "move", note).revision
    else:
        revision = state.revision
    target = summary_id or labelled
    if label and target is not None:
        tx.states.pop(session_id, None)
        set_label(tx, sources, SetLabel(session_id, target, label, note=note))
        revision = base.read_state(tx, session_id).revision
    return sessions.Navigated(state.leaf, summary_id or to, revision, summary_id)


# ---------------------------------------------------------------------------------------------------------------------
# Several operations in one transaction: all of them, or none.

_OPERATION = "atomic"
_TOLD_OF_APPEND = 6


def atomic(
    tx: Transaction, sources: Sources, operations: Sequence[Operation], idempotency_key: str | None
) -> Committed:
    """Do operations one after the other (see `Backend.atomic`)."""
    tx.lock_named(sessions_named(operations))
    remembered = None if idempotency_key is None else _Remembered(operations, idempotency_key)
    if remembered is not None and (outcomes := remembered.first(tx)) is not None:
        return Committed(outcomes, _left(tx, _touched(operations, outcomes)), replayed=True)
    batch = _Batch(tx, sources, operations)
    for number, operation in enumerate(operations):
        try:
            batch.do(operation)
        except errors.FlueError as error:
            error.operation = number
            error.add_note(f"operation {number + 1} of {len(operations)}: {named(operation)}; none of them was done")
            raise
    if remembered is not None:
        remembered.remember(tx, batch.outcomes)
    return Committed(tuple(batch.outcomes), _left(tx, _touched(batch.done, batch.outcomes)))


def perform(tx: Transaction, sources: Sources, operation: Operation) -> Outcome:
    """Do one operation, for which nothing has to be remembered."""
    batch = _Batch(tx, sources, ())
    batch.do(operation)
    return batch.outcomes[0]


def recall_atomic(
    tx: Transaction, operations: Sequence[Operation], idempotency_key: str
) -> list[Appended | None] | None:
    """Return the first results of the appends of a batch (see `Backend.recall_atomic`)."""
    names = sessions_named(operations)
    if not names or not is_storable(idempotency_key):
        return None
    state = _state(tx, names[0])
    row = tx.first(sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    kind, _, result = row or ("", b"", "")
    stored = json.loads(result) if kind == _OPERATION else []
    if len(stored) != len(operations):
        return None
    both = zip(operations, stored, strict=True)
    # Another batch of as many operations may have had the key, which `atomic` says.
    return [
        appended_of(item) if isinstance(operation, AppendEntries) and _is_append(item) else None
        for operation, item in both
    ]


def _is_append(stored: object) -> bool:
    return isinstance(stored, list) and len(stored) == _TOLD_OF_APPEND


def _state(tx: Transaction, session_id: str) -> SessionState:
    """Return a session, and keep it for the next operation."""
    state = tx.states[session_id] = base.read_state(tx, session_id)
    return state


def _touched(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[str]:
    """Return the ids of the sessions that operations named or made."""
    names: dict[str, None] = {}
    for operation, outcome in zip(operations, outcomes, strict=True):
        if not isinstance(operation, CreateSession):
            names[str(operation.session_id)] = None
        if isinstance(outcome, SessionInfo):
            names[outcome.id] = None
    return list(names)


def _left(tx: Transaction, session_ids: Sequence[str]) -> dict[str, Left]:
    """Return those of the sessions that are still there as they are now."""
    links = {}
    for session_id in session_ids:
        with suppress(errors.SessionNotFound):
            state = _state(tx, session_id)
            links[session_id] = Left(state.leaf, state.revision)
    return links


FUNCTIONS: dict[type[OnSession], Callable[[Transaction, Sources, Any], Outcome]] = {
    CreateTask: create_task,
    LinkTask: link_task,
    EndTask: end_task,
    MoveLeaf: base.move,
    Navigate: go_to,
    Undo: base.undo,
    Redo: base.redo,
    UpdateSession: update_session,
    SetLabel: set_label,
    SetPin: set_pin,
}


class _Batch:
    """Operations under way in one transaction."""

    def __init__(self, tx: Transaction, sources: Sources, operations: Sequence[Operation]) -> None:
        self._tx = tx
        self._sources = sources
        # The operations as they were done, and what they came to.
        self.done: list[Operation] = []
        self.outcomes: list[Outcome] = []
        # The sessions whose revision is compared, with the one before the batch.
        self._began: dict[str, int] = {}
        for operation in operations:
            if not isinstance(operation, CreateSession) and _expects_revision(operation):
                with suppress(errors.SessionNotFound):
                    self._began[operation.session_id] = _state(tx, operation.session_id).revision
        # Of ids that were brought along, those that a retry has in their place.
        self._names: dict[str, str] = {}

    def do(self, operation: Operation) -> None:
        """Do one more operation."""
        operation = renamed(operation, self._names)
        if isinstance(operation, CreateSession):
            new = replace(operation.new, id=operation.session_made)
            outcome: Outcome = create_session(self._tx, self._sources, new)
        else:
            outcome = self._compared(operation) if _expects_revision(operation) else self._do(operation)
        self._note_names(operation, outcome)
        self.done.append(operation)
        self.outcomes.append(outcome)

    def _do(self, operation: OnSession) -> Outcome:
        tx, sources, session, expected = self._tx, self._sources, operation.session_id, operation.expected
        match operation:
            case AppendEntries(entries=entries, on_conflict=on_conflict, idempotency_key=key):
                return written(tx, plan_append(tx, sources, session, entries, expected, on_conflict, key))
            case ForkSession(at=at, new=new, scope=scope, idempotency_key=key, drawn_id=drawn):
                return written(tx, plan_fork(tx, sources, session, at, new, expected, key, scope, drawn))
            case DeleteTree(scope=scope):
                return delete.delete_tree(tx, sources, session, scope, expected)
        return FUNCTIONS[type(operation)](tx, sources, operation)

    def _compared(self, operation: OnSession) -> Outcome:
        """Do an operation that expects a revision: the one before the batch, whose own changes are no conflict."""
        began = self._began.get(operation.session_id)
        seen = operation.expected
        if began is None or not isinstance(seen, Seen) or seen.revision is None:
            return self._do(operation)
        done = _state(self._tx, operation.session_id).revision - began
        if not done:
            return self._do(operation)
        try:
            return self._do(replace(operation, expected=replace(seen, revision=seen.revision + done)))
        except errors.RevisionConflict:
            raise errors.RevisionConflict(str(operation.session_id), seen.revision, began) from None

    def _note_names(self, operation: Operation, outcome: Outcome) -> None:
        """Note the ids that a retry has in place of those that an operation brought along."""
        if isinstance(operation, AppendEntries) and isinstance(outcome, Appended) and outcome.replayed:
            ids = zip(operation.entries, outcome.entry_ids, strict=True)
            self._names.update({entry.id: there for entry, there in ids if entry.id is not None})
        elif isinstance(operation, (ForkSession, CreateTask)) and isinstance(outcome, SessionInfo):
            brought = operation.session_made or outcome.id
            if brought != outcome.id:
                self._names[brought] = outcome.id


def _expects_revision(operation: OnSession) -> bool:
    return isinstance(operation.expected, Seen) and operation.expected.revision is not None


class _Remembered:
    """A batch with an idempotency key, which belongs to the first session that it names and does not make itself."""

    def __init__(self, operations: Sequence[Operation], idempotency_key: str) -> None:
        names = sessions_named(operations)
        if not names:
            raise InvalidArgument(
                "idempotency_key: these operations name no session that is there already, which the key would belong "
                "to; leave it out, and give the new session a key of its own"
            )
        self._operations = operations
        self._key = idempotency_key
        self._session_id = names[0]
        self._digest = base.content_digest(content_of(operations))

    def first(self, tx: Transaction) -> tuple[Outcome, ...] | None:
        """Return the results of the first try; None if this is it."""
        state = _state(tx, self._session_id)
        stored = base.replayed_result(tx, state, self._key, _OPERATION, self._digest)
        if stored is None:
            return None
        pairs = zip(self._operations, json.loads(stored), strict=True)
        return tuple(_outcome(tx, operation, item) for operation, item in pairs)

    def remember(self, tx: Transaction, outcomes: Sequence[Outcome]) -> None:
        """Write down its results, unless its session has gone along with it."""
        deleted_ids = {name for outcome in outcomes if isinstance(outcome, Deletion) for name in outcome.session_ids}
        if self._session_id not in deleted_ids:
            state = _state(tx, self._session_id)
            results = [_told(outcome) for outcome in outcomes]
            base.remember_result(tx, state, self._key, _OPERATION, self._digest, results)


def _told(outcome: Outcome) -> object:
    """Return an outcome as it is written down."""
    if isinstance(outcome, Appended):
        return told_of(outcome)
    if isinstance(outcome, SessionInfo):
        return outcome.id
    if isinstance(outcome, Moved):
        return [outcome.from_id, outcome.to_id, outcome.revision, outcome.reason]
    if isinstance(outcome, Navigated):
        return [outcome.from_id, outcome.to_id, outcome.revision, outcome.summary_id, outcome.draft]
    if isinstance(outcome, Deletion):
        return [outcome.session_ids, outcome.missing_ids, outcome.entries_deleted, outcome.entries_kept, outcome.links]
    return outcome


def _outcome(tx: Transaction, operation: Operation, stored: Any) -> Outcome:  # noqa: ANN401 - what JSON held
    """Return an outcome as it was written down."""
    outcome: Outcome = None
    match operation:
        case AppendEntries():
            outcome = appended_of(stored)
        case CreateSession() | ForkSession() | CreateTask():
            outcome = replayed_session(tx, stored)
        case UpdateSession() | EndTask():
            outcome = require_session(tx, stored)
        case MoveLeaf() | Undo() | Redo():
            outcome = None if stored is None else replace(Moved(*stored), replayed=True)
        case Navigate():
            outcome = Navigated(*stored)
        case DeleteTree():
            session_ids, missing_ids, deleted, entries_kept, links = stored
            followed = tuple((parent, child) for parent, child in links)
            outcome = Deletion(tuple(session_ids), tuple(missing_ids), deleted, entries_kept, followed)
        case SetPin():
            outcome = tuple(stored)
    return outcome
