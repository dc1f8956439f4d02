"""Navigation: the leaf goes elsewhere, and the summary of what it leaves comes along, in one transaction."""

from __future__ import annotations

from dataclasses import replace

from flue_py.core.entries import NewEntry, leaving
from flue_py.core.log import Note
from flue_py.core.rows import MoveRow
from flue_py.core.sessions import STORED, Expected, Navigated, check_entry_label
from flue_py.core.spoken import message_text
from flue_py.core.turns import is_editable
from flue_py.errors import EntryNotFound
from flue_py.store.ops.append import EntryBatch
from flue_py.store.ops.edit import set_label
from flue_py.store.ops.entries import get_entry
from flue_py.store.ops.move import write_move
from flue_py.store.ops.state import read_state, see_entry
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql.inserts import INSERT_MOVE


def go_to(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    entry_id: str,
    summary: NewEntry | None,
    label: str | None,
    expected: Expected,
    note: Note,
) -> Navigated:
    """Go to an entry: before what a person wrote, else to the entry itself (see `Navigate`)."""
    state = read_state(tx, session_id)
    state.require(expected)
    entry = get_entry(tx, session_id, entry_id)
    if entry is None:
        raise EntryNotFound(state.id, entry_id)
    if entry_id == state.leaf:
        return Navigated(state.leaf, state.leaf, state.revision)
    to, draft = (entry.parent_id, message_text(entry.fields)) if is_editable(entry) else (entry_id, None)
    made = None if summary is None else leaving(summary, to, state.leaf)
    went = navigate(tx, sources, session_id, to, made, label, entry_id, STORED, note)
    return replace(went, draft=draft)


def navigate(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    to: str | None,
    summary: NewEntry | None,
    label: str | None,
    labelled: str | None,
    expected: Expected,
    note: Note,
) -> Navigated:
    """Set the leaf, with a summary below it, and label one of them (see `Backend.navigate`)."""
    check_entry_label(label)
    state = read_state(tx, session_id)
    state.require(expected)
    parent = None if to is None else see_entry(tx, state, to)
    summary_id = None
    if summary is not None:
        batch = EntryBatch(tx, sources, state)
        batch.add(parent, summary)
        (summary_id,) = batch.ids
        batch.write(tx, summary_id)
        row = MoveRow(state.key, batch.revision, state.leaf, summary_id, "move", None, note.by, batch.now_us, note.why)
        tx.insert(INSERT_MOVE, [row])
        revision = batch.revision
    elif to != state.leaf:
        revision = write_move(tx, sources, state, to, "move", note).revision
    else:
        revision = state.revision
    target = summary_id or labelled
    if label and target is not None:
        tx.states.pop(session_id, None)
        set_label(tx, sources, session_id, target, label, STORED, note)
        revision = read_state(tx, session_id).revision
    return Navigated(state.leaf, summary_id or to, revision, summary_id)
