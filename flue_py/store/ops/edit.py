"""Changes of a session beside its history: title, metadata, labels, pins. Each is written down with what was before."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.log import Edit, EditKind, Note, row_value
from flue_py.core.pins import effective_pins
from flue_py.core.sessions import EditMetadata, Expected, SessionInfo, Stored, check_entry_label, check_label
from flue_py.errors import InvalidArgument, SessionExists
from flue_py.store.ops.contexts import latest_compaction
from flue_py.store.ops.marks import mark_of, pins_of, put_marks
from flue_py.store.ops.pins import group_of
from flue_py.store.ops.sessions import require_session, write_edits
from flue_py.store.ops.state import read_state, see_entry
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import budgets as budgets_sql
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import move as move_sql
from flue_py.store.sql import sessions as sessions_sql


def update_session(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    title: str | None | Stored,
    auto_title: str | None | Stored,
    metadata_text: str | EditMetadata | None,
    completed_us: int | None | Stored,
    expected: Expected,
    note: Note,
) -> SessionInfo:
    """Change what is named (see `Backend.update_session`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    info = require_session(tx, session_id)
    wanted: list[tuple[EditKind, str | None]] = []
    if not isinstance(title, Stored):
        check_label(title, "title")
        wanted.append(("title", title))
    if not isinstance(auto_title, Stored):
        check_label(auto_title, "auto_title")
        wanted.append(("auto_title", auto_title))
    if callable(metadata_text):
        metadata_text = metadata_text(info.metadata_text)
    if metadata_text is not None:
        wanted.append(("metadata", info.task_names.taken_from(metadata_text, info.metadata_text)))
    if not isinstance(completed_us, Stored):
        wanted.append(("completed", None if completed_us is None else str(completed_us)))
    edits = [Edit(what, None, row_value(info, what), after) for what, after in wanted]
    for edit in edits:
        _write_row_value(tx, state, edit)
    write_edits(tx, sources, state, edits, note)
    return require_session(tx, session_id)


def adopt_session(tx: Transaction, sources: Sources, session_id: str, scope: str) -> SessionInfo:
    """Give a session without history to another scope (see `Backend.adopt_session`)."""
    state = read_state(tx, session_id)
    info = require_session(tx, session_id)
    has_own = info.entry_count or info.leaf_id or info.key or info.task_names.tasks
    if has_own or "imported" not in info.metadata:
        raise SessionExists(
            session_id,
            detail=f"session {session_id!r} is already here, in scope {info.scope!r}; import the file into that scope, "
            "or delete the session there first",
        )
    tx.run(sessions_sql.UPDATE_SCOPE, session_key=state.key, scope=scope)
    tx.run(ledger_sql.MOVE_CALLS, session_key=state.key, scope=scope)
    tx.run(budgets_sql.MOVE_BUDGETS, id=session_id, scope=scope)
    write_edits(tx, sources, state, [], Note())
    return require_session(tx, session_id)


def _write_row_value(tx: Transaction, state: SessionState, edit: Edit) -> None:
    if edit.what == "title":
        tx.run(sessions_sql.UPDATE_TITLE, session_key=state.key, title=edit.after)
    elif edit.what == "auto_title":
        tx.run(sessions_sql.UPDATE_AUTO_TITLE, session_key=state.key, auto_title=edit.after)
    elif edit.what == "metadata":
        tx.run(sessions_sql.UPDATE_METADATA, session_key=state.key, metadata=edit.after or "{}")
    else:
        completed_at = None if edit.after is None else int(edit.after)
        tx.run(sessions_sql.UPDATE_COMPLETED, session_key=state.key, completed_at=completed_at)


def set_label(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entry_id: str,
    label: str | None,
    expected: Expected,
    note: Note,
) -> None:
    """Set or clear a label (see `Backend.set_label`)."""
    check_entry_label(label)
    state = read_state(tx, session_id)
    state.require(expected)
    see_entry(tx, state, entry_id)
    edit = Edit("label", entry_id, mark_of(tx, state, entry_id, "label"), label or None)
    if edit.before != edit.after:
        put_marks(tx, sources, state, [entry_id], "label", edit.after)
        write_edits(tx, sources, state, [edit], note)


def set_pin(
    tx: Transaction, sources: Sources, session_id: str, entry_id: str, pinned: bool, expected: Expected, note: Note
) -> tuple[str, ...]:
    """Pin an entry with what belongs to it, or let go of them (see `Backend.set_pin`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    see_entry(tx, state, entry_id)
    (entry,) = tx.rows(move_sql.ENTRY_POSITION, tree_id=state.tree_id, entry_id=entry_id)
    check_pinnable(entry_id, entry.kind)
    group = group_of(tx, state, entry_id, state.position)
    own = pins_of(tx, state)
    latest = latest_compaction(tx, state, state.position)
    in_effect = effective_pins(own, None if latest is None else latest[1])
    changed = [each for each in group if (own.get(each) != "on" if pinned else each in in_effect)]
    after = "on" if pinned else "off"
    if changed:
        put_marks(tx, sources, state, changed, "pin", after)
        write_edits(tx, sources, state, [Edit("pin", entry_id, own.get(entry_id), after)], note)
    return tuple(group)


def check_pinnable(entry_id: str, kind: str) -> None:
    """Raise `InvalidArgument` for an entry that is of no kind that a context has."""
    if kind not in SHOWN_KINDS:
        raise InvalidArgument(
            f"entry {entry_id!r} is of kind {kind}, which is never part of a context; there is nothing to keep of it"
        )


def restore_edits(
    tx: Transaction, sources: Sources, state: SessionState, wanted: Sequence[Edit], note: Note
) -> list[Edit]:
    """Give edited things the values that ``wanted`` has ``after``; return what that changed, and write it down.

    Raises `EntryNotFound` for a mark on an entry that the session does not see any more.
    """
    info = require_session(tx, state.id)
    changed = []
    for want in wanted:
        if want.entry_id is None:
            edit = Edit(want.what, None, row_value(info, want.what), want.after)
            if edit.before != edit.after:
                _write_row_value(tx, state, edit)
                changed.append(edit)
            continue
        see_entry(tx, state, want.entry_id)
        edit = Edit(want.what, want.entry_id, mark_of(tx, state, want.entry_id, want.what), want.after)
        if edit.before != edit.after:
            pinned = want.what == "pin"
            group = group_of(tx, state, want.entry_id, state.position) if pinned else [want.entry_id]
            put_marks(tx, sources, state, group, want.what, edit.after)
            changed.append(edit)
    if changed:
        write_edits(tx, sources, state, changed, note)
    return changed
