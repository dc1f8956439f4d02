"""The log of a session, read from what is stored anyway, and going back to any line of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from flue_py.core.jsontext import to_json
from flue_py.core.log import (
    LOGGED_IDS,
    Edit,
    LoggedEdits,
    LoggedEntries,
    LogLine,
    Note,
    make_line,
    restorable,
)
from flue_py.core.sessions import Expected, Seen
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.store.ops.attachments import checked_payload
from flue_py.store.ops.edit import restore_edits
from flue_py.store.ops.move import bring_back, leaf_at, retracted_on_path, write_move
from flue_py.store.ops.sessions import edit_row
from flue_py.store.ops.state import find_held, read_state
from flue_py.store.schema.payloads import decode_payload
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import log as log_sql
from flue_py.store.sql import own as own_sql
from flue_py.store.sql.inserts import INSERT_EDIT
from flue_py.store.sql.takes import SessionRevisionLast

Logged = TypeVar("Logged", log_sql.LoggedEdit, own_sql.LoggedEntry)


def read_log(tx: Transaction, session_id: str, before: int | None, limit: int) -> list[LogLine]:
    """Return lines of the log, newest first (see `Backend.read_log`)."""
    state = read_state(tx, session_id)
    last = state.revision if before is None else min(before - 1, state.revision)
    return _lines(tx, state, max(last - limit, 0), last)


def _lines(tx: Transaction, state: SessionState, after: int, last: int) -> list[LogLine]:
    where = SessionRevisionLast(session_key=state.key, revision=after, last_revision=last)
    moves = dict(tx.rows(log_sql.LOGGED_MOVES, **where))
    edits = _by_revision(tx.rows(log_sql.EDITS_AFTER, **where))
    entries = _by_revision(
        tx.rows(own_sql.LOGGED_ENTRIES, **where, tree_id=state.tree_id, leaf=state.leaf, count=LOGGED_IDS)
    )
    return [
        make_line(
            state.id,
            revision,
            moves.get(revision),
            _logged_entries(tx, state, entries[revision]) if revision in entries else None,
            _logged_edits(edits[revision]) if revision in edits else None,
        )
        for revision in range(last, after, -1)
    ]


def _by_revision(rows: Sequence[Logged]) -> dict[int, list[Logged]]:
    found: dict[int, list[Logged]] = {}
    for row in rows:
        found.setdefault(row.revision, []).append(row)
    return found


def _logged_entries(tx: Transaction, state: SessionState, rows: list[own_sql.LoggedEntry]) -> LoggedEntries:
    first, last = rows[0], rows[-1]
    payload = decode_payload(
        checked_payload(tx, state, first.id, first.digest, first.payload, first.packed, first.blob)
    )
    shown = [row for row in rows if row.ordinal < LOGGED_IDS]
    ids, kinds = tuple(row.id for row in shown), tuple(row.kind for row in shown)
    return LoggedEntries(last.ordinal + 1, ids, kinds, payload, first.parent_id, last.id, last.created_at)


def _logged_edits(rows: list[log_sql.LoggedEdit]) -> LoggedEdits:
    first = rows[0]
    edits = tuple(Edit(row.what, row.entry_id, row.before, row.after) for row in rows)
    return LoggedEdits(edits, Note.stored(first.edited_by, first.why), first.at)


def go_back(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    revision: int,
    *,
    before: bool,
    expected: Expected,
    note: Note,
) -> LogLine | None:
    """Go back to a line of the log (see `Backend.go_back`)."""
    state = read_state(tx, session_id)
    if isinstance(expected, Seen):
        # A leaf by itself is of interest only where the leaf is moved.
        state.require(expected)
    check_is_logged(state.id, revision, state.revision)
    edits = [] if revision == 0 else restorable(_lines(tx, state, revision - 1, revision)[0].edits)
    if edits:
        wanted = [replace(edit, after=edit.before if before else edit.after) for edit in edits]
        if not restore_edits(tx, sources, state, wanted, note):
            return None
    elif not _go_to(tx, sources, state, revision, leaf_at(tx, state, revision - before), note, expected):
        return None
    return _lines(tx, state, state.revision, state.revision + 1)[0]


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
    note: Note,
    expected: Expected,
) -> bool:
    """Move the leaf to where it was, and bring back what was retracted since; return whether that changed anything."""
    state.require(expected)
    if target == state.leaf:
        return False
    brought_back: list[str] = []
    if target is not None:
        position, _ = find_held(tx, state, target)
        if position is None:
            raise leaf_is_gone(state.id, revision, target)
        brought_back = retracted_on_path(tx, state, position)
    own = bring_back(tx, state, brought_back)
    moved = write_move(tx, sources, state, target, "back", note, undoes=revision, entries_back=own)
    if brought_back:
        edit = Edit("retracted", None, to_json(brought_back).decode())
        tx.insert(INSERT_EDIT, [edit_row(state.key, moved.revision, edit, note, sources.now_us())])
    return True


def leaf_is_gone(session_id: str, revision: int, target: str) -> EntryNotFound:
    """Return the error for a line whose leaf has been deleted."""
    return EntryNotFound(
        session_id,
        target,
        detail=f"session {session_id!r}: cannot go back to revision {revision}: entry {target!r} has been deleted",
    )
