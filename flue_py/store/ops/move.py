"""Leaf moves, retraction, undo and redo. None of them touches an entry.

The undo log is what is stored anyway: the revisions of a session's entries, and its leaf moves. Walking it back
from a revision: a plain append or move is the operation to undo; an undo of revision r leaves things as they were
before r, so the walk goes on below r; a redo of r leaves things as after r, so r is the operation to undo.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from flue_py.core.log import Note, decode_ids
from flue_py.core.rows import MarkRow, MoveRow
from flue_py.core.sessions import Expected, Moved, MoveReason
from flue_py.errors import CorruptStore, EntryNotFound
from flue_py.store.ops.state import (
    content_digest,
    find_held,
    find_visible,
    is_held,
    is_retracted,
    read_state,
    remember_result,
    replayed_result,
    see_entry,
)
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import log as log_sql
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import move as move_sql
from flue_py.store.sql import own as own_sql
from flue_py.store.sql.inserts import INSERT_MOVE, PUT_MARK
from flue_py.store.sql.takes import SessionRevisionLast, TreeLaneDepth


class Operation(NamedTuple):
    """One operation on a session's leaf, as the log tells it."""

    revision: int
    reason: str
    from_id: str | None
    to_id: str | None


def move(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    to: str | None,
    expected: Expected,
    reason: MoveReason,
    note: Note,
    idempotency_key: str | None,
) -> Moved:
    """Set the leaf (see `Backend.move`)."""
    state = read_state(tx, session_id)
    digest = b""
    if idempotency_key is not None:
        digest = content_digest(to)
        stored = replayed_result(tx, state, idempotency_key, "move", digest)
        if stored is not None:
            from_id, to_id, revision, first_reason = json.loads(stored)
            return Moved(from_id, to_id, revision, first_reason, replayed=True)
    state.require(expected)
    if to is not None:
        see_entry(tx, state, to)
    if to == state.leaf:
        moved = Moved(to, to, state.revision, reason)
    else:
        moved = write_move(tx, sources, state, to, reason, note)
    remember_result(
        tx, state, idempotency_key, "move", digest, [moved.from_id, moved.to_id, moved.revision, moved.reason]
    )
    return moved


def write_move(
    tx: Transaction,
    sources: Sources,
    state: SessionState,
    to: str | None,
    reason: MoveReason,
    note: Note,
    *,
    undoes: int | None = None,
    entries_back: int = 0,
) -> Moved:
    """Set the leaf, write that down, and count what comes back or goes away among the session's own entries."""
    revision = state.revision + 1
    at = sources.now_us()
    tx.run(
        move_sql.UPDATE_LEAF,
        leaf=to,
        revision=revision,
        at=at,
        entry_count=entries_back,
        message_count=entries_back,
        session_key=state.key,
    )
    row = MoveRow(state.key, revision, state.leaf, to, reason, undoes, note.by, at, note.why)
    tx.insert(INSERT_MOVE, [row])
    return Moved(state.leaf, to, revision, reason)


def retract(
    tx: Transaction, sources: Sources, session_id: str, entry_id: str, expected: Expected, note: Note
) -> Moved | None:
    """Retract a failed leaf message (see `Backend.retract`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    if entry_id != state.leaf or state.position is None:
        return None
    row = tx.first(move_sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    if row is None or row.kind != "message" or _has_visible_child(tx, state, state.position):
        return None
    _mark_retracted(tx, sources, state, entry_id)
    is_own = row.session_key == state.key
    return write_move(tx, sources, state, row.parent_id, "retract", note, entries_back=-1 if is_own else 0)


def _mark_retracted(tx: Transaction, sources: Sources, state: SessionState, entry_id: str) -> None:
    tx.insert(PUT_MARK, [MarkRow(state.key, entry_id, "retracted", None, sources.now_us())])


def _has_visible_child(tx: Transaction, state: SessionState, position: Position) -> bool:
    place = TreeLaneDepth(tree_id=state.tree_id, lane_id=position.lane_id, depth=position.depth)
    for child_id, lane_id, depth, owner_key in tx.rows(move_sql.CHILD_PLACES, **place):
        is_seen = owner_key == state.key or is_held(tx, state, lane_id, depth)
        if is_seen and not is_retracted(tx, state, child_id):
            return True
    return False


def undo(tx: Transaction, sources: Sources, session_id: str, expected: Expected, note: Note) -> Moved | None:
    """Undo the last operation that is not undone (see `Backend.undo`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    operation = _operation_to_undo(tx, state)
    if operation is None:
        return None
    comes_back = 0
    if operation.reason == "retract" and operation.from_id is not None:
        comes_back = bring_back(tx, state, [operation.from_id])
    elif operation.reason == "back":
        comes_back = -_retract_again(tx, sources, state, operation.revision)
    _require_target(tx, state, operation.from_id, "undo")
    return write_move(
        tx, sources, state, operation.from_id, "undo", note, undoes=operation.revision, entries_back=comes_back
    )


def redo(tx: Transaction, sources: Sources, session_id: str, expected: Expected, note: Note) -> Moved | None:
    """Redo what was undone last (see `Backend.redo`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    operation = _operation_to_redo(tx, state)
    if operation is None:
        return None
    goes_away = 0
    if operation.reason == "retract" and operation.from_id is not None:
        # Something grew below the entry since: to retract it now would hide what the session sees.
        failed = find_visible(tx, state, operation.from_id)
        if failed is not None and _has_visible_child(tx, state, failed):
            return None
        _mark_retracted(tx, sources, state, operation.from_id)
        goes_away = -_own_entries(tx, state, operation.from_id)
    elif operation.reason == "back":
        goes_away = bring_back(tx, state, _brought_back(tx, state, operation.revision))
    _require_target(tx, state, operation.to_id, "redo")
    return write_move(
        tx, sources, state, operation.to_id, "redo", note, undoes=operation.revision, entries_back=goes_away
    )


def bring_back(tx: Transaction, state: SessionState, ids: Sequence[str]) -> int:
    """Take back the retraction of entries; return how many of them are the session's own."""
    dropped = [
        entry_id
        for entry_id in ids
        if tx.run(marks_sql.DROP_MARK, session_key=state.key, entry_id=entry_id, kind="retracted")
    ]
    return sum(_own_entries(tx, state, entry_id) for entry_id in dropped)


def _retract_again(tx: Transaction, sources: Sources, state: SessionState, revision: int) -> int:
    """Retract what going back had brought back; return how many entries of the session's own that hides.

    What something grew below since stays, with all above it: else what the session sees would be torn off.
    """
    hidden = 0
    for entry_id in _brought_back(tx, state, revision):
        position = find_visible(tx, state, entry_id)
        if position is None or _has_visible_child(tx, state, position):
            break
        _mark_retracted(tx, sources, state, entry_id)
        hidden += _own_entries(tx, state, entry_id)
    return hidden


def _brought_back(tx: Transaction, state: SessionState, revision: int) -> list[str]:
    """Return the ids that going back, at a revision, brought back from being retracted; the deepest first."""
    where = SessionRevisionLast(session_key=state.key, revision=revision - 1, last_revision=revision)
    for edit in tx.rows(log_sql.EDITS_AFTER, **where):
        if edit.what == "retracted":
            return decode_ids(edit.before)
    return []


def leaf_at(tx: Transaction, state: SessionState, revision: int) -> str | None:
    """Return what the session's leaf was after a revision. O(1)."""
    record = _latest_record(tx, state, revision)
    return state.forked_from_entry if record is None else _operation_at(tx, state, record.revision).to_id


def retracted_on_path(tx: Transaction, state: SessionState, position: Position) -> list[str]:
    """Return the entries on the path to a place that the session has retracted, the deepest first."""
    found = []
    for (entry_id,) in tx.rows(marks_sql.RETRACTED_IDS, session_key=state.key):
        held, _ = find_held(tx, state, entry_id)
        if held is not None and is_on_path(tx, state, held, position):
            found.append((held.depth, entry_id))
    return [entry_id for _, entry_id in sorted(found, reverse=True)]


def is_on_path(tx: Transaction, state: SessionState, held: Position, of: Position) -> bool:
    """Return whether a place is another one or above it."""
    if held.lane_id == of.lane_id:
        return held.depth <= of.depth
    on_path = tx.first(
        move_sql.IS_ON_PATH,
        tree_id=state.tree_id,
        lane_id=of.lane_id,
        depth=of.depth,
        other_lane=held.lane_id,
        other_depth=held.depth,
    )
    return on_path is not None


def _own_entries(tx: Transaction, state: SessionState, entry_id: str) -> int:
    row = tx.first(move_sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    return int(row is not None and row.session_key == state.key)


def _require_target(tx: Transaction, state: SessionState, target: str | None, what: str) -> None:
    if target is not None and find_visible(tx, state, target) is None:
        raise EntryNotFound(
            state.id, target, detail=f"session {state.id!r}: cannot {what}: entry {target!r} has been deleted"
        )


def _operation_to_undo(tx: Transaction, state: SessionState) -> Operation | None:
    record = _latest_record(tx, state, state.revision)
    while record is not None:
        if record.reason == "undo":
            record = _latest_record(tx, state, record.undoes - 1)
        elif record.reason == "redo":
            return _operation_at(tx, state, record.undoes)
        elif record.reason == "branch":
            record = _latest_record(tx, state, record.revision - 1)
        else:
            return _operation_at(tx, state, record.revision)
    return None


def _operation_to_redo(tx: Transaction, state: SessionState) -> Operation | None:
    """Replay the undos and redos since the last new operation: what is then undone last comes back first."""
    since: list[_Record] = []
    record = _latest_record(tx, state, state.revision)
    while record is not None and record.reason in ("undo", "redo", "branch"):
        since.append(record)
        record = _latest_record(tx, state, record.revision - 1)
    undone: list[int] = []
    for record in reversed(since):
        if record.reason == "undo":
            undone.append(record.undoes)
        elif record.reason == "redo" and undone:
            undone.pop()
    return _operation_at(tx, state, undone[-1]) if undone else None


class _Record(NamedTuple):
    revision: int
    reason: str
    undoes: int = 0


def _latest_record(tx: Transaction, state: SessionState, revision: int) -> _Record | None:
    """Return the last change of the leaf at or before a revision: a leaf move, or an append."""
    moved = tx.first(move_sql.LAST_MOVE, session_key=state.key, revision=revision)
    appended = _last_append(tx, state, revision)
    # An import and an append to a branch have both entries and a move at their revision; the move names them.
    if appended is not None and (moved is None or appended.revision > moved.revision):
        return _Record(appended.revision, "append")
    return None if moved is None else _Record(moved.revision, moved.reason, moved.undoes or 0)


def _last_append(tx: Transaction, state: SessionState, revision: int) -> own_sql.LastOfRun | None:
    """Return the last entry that plain appends have added, if that was between the moves around a revision.

    Such entries are a chain, in one lane, up to the leaf that the next move began at. Any entry that is older than the
    last move may be returned, too.
    """
    end = state.leaf
    if revision < state.revision:
        (end,) = tx.first(move_sql.NEXT_MOVE_FROM, session_key=state.key, revision=revision) or (end,)
    if end is None:
        return None
    where = own_sql.RunOfEntry(tree_id=state.tree_id, session_key=state.key, entry_id=end, revision=revision)
    last = tx.first(own_sql.LAST_IN_LANE, **where)
    return last if last is not None and last.session_key == state.key else None


def _operation_at(tx: Transaction, state: SessionState, revision: int) -> Operation:
    moved = tx.first(move_sql.LAST_MOVE, session_key=state.key, revision=revision)
    if moved is not None and moved.revision == revision:
        return Operation(revision, moved.reason, moved.from_id, moved.to_id)
    last = _last_append(tx, state, revision)
    if last is None or last.revision != revision:
        raise CorruptStore(f"session {state.id!r}: revision {revision} has no entries and no move; run verify()")
    where = own_sql.RunOfEntry(tree_id=state.tree_id, session_key=state.key, entry_id=last.id, revision=revision - 1)
    (above,) = tx.first(own_sql.PARENT_OF_FIRST_IN_LANE, **where) or (None,)
    return Operation(revision, "append", above, last.id)


def id_at(tx: Transaction, tree_id: int, lane_id: int, depth: int) -> str | None:
    """Return the id of the entry at a place, or None."""
    (found,) = tx.first(move_sql.ID_AT, tree_id=tree_id, lane_id=lane_id, depth=depth) or (None,)
    return found
