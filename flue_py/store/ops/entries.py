"""Single entries that a session sees: by their ids, and below another one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter

from flue_py.collector import collector_held
from flue_py.core.entries import Entry
from flue_py.core.jsontext import intact_text
from flue_py.core.sessions import is_meant, is_storable
from flue_py.errors import AmbiguousId, CorruptStore, shown
from flue_py.store.ops.paths import made_entries
from flue_py.store.ops.state import held_by, read_state, see_entry
from flue_py.store.schema.payloads import unpack
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import read as read_sql
from flue_py.store.sql.rows import StoredEntry

_IDS_AT_ONCE = 5_000
_SHOWN = 5


def get_entry(tx: Transaction, session_id: str, entry_id: str) -> Entry | None:
    """Return an entry the session sees, or None."""
    state = read_state(tx, session_id)
    if not is_storable(entry_id):
        return None
    rows = tx.rows(read_sql.ENTRY_BY_ID, tree_id=state.tree_id, session_key=state.key, entry_id=entry_id)
    return next(iter(made_entries(tx, state, _seen(tx, state, rows))), None)


def find_entry(tx: Transaction, entry_id: str) -> Entry | None:
    """Return an entry of any session (see `Backend.find_entry`)."""
    if not is_storable(entry_id):
        return None
    found = [each for (each,) in tx.rows(read_sql.SESSIONS_OF_ENTRY, entry_id=entry_id, count=_SHOWN + 1)]
    if len(found) > 1:
        of = ", ".join(found[:_SHOWN])
        message = f"entry {shown(entry_id)} is in several histories, of the sessions {of}; read it with one of these"
        raise AmbiguousId(entry_id, tuple(found[:_SHOWN]), message)
    if not found:
        return None
    state = read_state(tx, found[0])
    row = tx.first(read_sql.FOUND_ENTRY, tree_id=state.tree_id, entry_id=entry_id)
    return None if row is None else made_entries(tx, state, [row])[0]


def get_entries(tx: Transaction, session_id: str, ids: Sequence[str]) -> list[Entry | None]:
    """Return the entries with these ids, in this order (see `Backend.get_entries`)."""
    state = read_state(tx, session_id)
    asked = [entry_id for entry_id in dict.fromkeys(ids) if is_storable(entry_id)]
    found: dict[str, Entry] = {}
    for start in range(0, len(asked), _IDS_AT_ONCE):
        some = json.dumps(asked[start : start + _IDS_AT_ONCE])
        rows = tx.rows(read_sql.ENTRIES_OF_IDS, tree_id=state.tree_id, session_key=state.key, ids=some)
        with collector_held(len(rows)):
            found.update((entry.id, entry) for entry in made_entries(tx, state, _seen(tx, state, rows)))
    return [found.get(entry_id) for entry_id in ids]


def read_leaves(tx: Transaction, session_ids: Sequence[str]) -> list[Entry | None]:
    """Return the entries at the leaves of sessions, in this order (see `Backend.read_leaves`)."""
    asked = [session_id for session_id in dict.fromkeys(session_ids) if is_storable(session_id)]
    found: dict[str, tuple[int, Entry | None]] = {}
    for start in range(0, len(asked), _IDS_AT_ONCE):
        some = json.dumps(asked[start : start + _IDS_AT_ONCE])
        rows = tx.rows(read_sql.LEAVES, ids=some)
        with collector_held(len(rows)):
            for session_id, key, creator, row in rows:
                found[session_id] = key, entry_of_row(tx, session_id, creator, row)
    return [_meant(session_id, found.get(session_id)) for session_id in session_ids]


def entry_of_row(tx: Transaction, session_id: str, creator: str | None, row: StoredEntry) -> Entry | None:
    """Return the entry of a row that was read beside those of other sessions, of which ``session_id`` sees it."""
    depth, id_, _, parent, _, kind, role, source, revision, ordinal, at, extra, digest, payload, packed, _ = row
    try:
        text = intact_text(payload if packed is None else unpack(packed), digest)
    except CorruptStore:
        text = None
    if text is None:
        # What is apart from its row, or damaged, is read as any entry of the session.
        return get_entry(tx, session_id, id_)
    return Entry(id_, parent, creator, kind, role, source, depth, revision, ordinal, at, text, extra)


def _meant(session_id: str, found: tuple[int, Entry | None] | None) -> Entry | None:
    return found[1] if found is not None and is_meant(session_id, found[0]) else None


def children(tx: Transaction, session_id: str, entry_id: str | None) -> list[Entry]:
    """Return the entries below one (see `Backend.children`)."""
    state = read_state(tx, session_id)
    if entry_id is None:
        rows = tx.rows(read_sql.ROOT_ENTRIES, tree_id=state.tree_id, session_key=state.key)
    else:
        at = see_entry(tx, state, entry_id)
        where = read_sql.TreeSessionLaneDepth(
            tree_id=state.tree_id, session_key=state.key, lane_id=at.lane_id, depth=at.depth
        )
        rows = tx.rows(read_sql.CHILD_ENTRIES, **where)
    seen = sorted(_seen(tx, state, rows), key=attrgetter("revision", "ordinal"))
    seen.sort(key=lambda row: row.session_key == state.key)
    return made_entries(tx, state, seen)


def _seen(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
    """Return those of some rows of the tree that the session holds: what it added, and the ancestors of its places."""
    if all(row.session_key == state.key for row in rows):
        return rows
    held = dict(tx.rows(read_sql.HELD_SPANS, **held_by(state)))
    return [row for row in rows if row.session_key == state.key or row.depth <= held.get(row.lane_id, -1)]
