"""Reading: paths, contexts, windows and trees, as range scans over lanes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

from flue_py.collector import collector_held
from flue_py.core.entries import Entry
from flue_py.core.sessions import (
    Change,
    LeafChoice,
    Mark,
    PathRead,
    ReadStamp,
    Stored,
    TaskLink,
    is_storable,
    require_meant,
)
from flue_py.core.turns import begins_turn
from flue_py.core.usage import NO_USAGE, NOTHING_PAID, Usage, UsageWindow, usage_of_window
from flue_py.store.ops.marks import marks_of
from flue_py.store.ops.move import id_at
from flue_py.store.ops.paths import (
    BY_DEPTH,
    ancestor_of,
    made_entries,
    path_entries,
    place_to_read,
    read_state_and_epoch,
    spans_of,
)
from flue_py.store.ops.sessions import get_session, require_session
from flue_py.store.ops.state import (
    find_visible,
    held_by,
    place,
    read_state,
    see_entry,
    taken_ids,
)
from flue_py.store.schema.session_state import Position
from flue_py.store.seam import Transaction
from flue_py.store.sql import listing as listing_sql
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import own as own_sql
from flue_py.store.sql import read as read_sql
from flue_py.store.sql import tasks as tasks_sql
from flue_py.store.sql.rows import EntryColumns, Sums
from flue_py.store.sql.takes import SessionRevisionLast

_LAST_DEPTH = 2**62
_ID = 1  # among `EntryColumns`


def read_path(tx: Transaction, session_id: str, leaf: LeafChoice, unless: ReadStamp | None) -> PathRead:
    """Return the entries from root to leaf (see `Backend.read_path`)."""
    state, epoch = read_state_and_epoch(tx, session_id)
    at, position = place_to_read(tx, state, leaf)
    stamp = ReadStamp(at, epoch)
    if stamp == unless:
        return PathRead(at, state.leaf, state.revision, stamp, None)
    entries = path_entries(tx, state, position, -1)
    return PathRead(at, state.leaf, state.revision, stamp, entries)


def read_path_since(tx: Transaction, session_id: str, since: str | None, leaf: LeafChoice) -> PathRead:
    """Return the entries after an anchor (see `Backend.read_path_since`)."""
    state, epoch = read_state_and_epoch(tx, session_id)
    at, position = place(tx, state, leaf)
    entries: list[Entry] = []
    anchor = None if since is None else ancestor_of(tx, state, since, position)
    if since is None or anchor is not None:
        entries = path_entries(tx, state, position, -1 if anchor is None else anchor.depth)
    return PathRead(at, state.leaf, state.revision, ReadStamp(at, epoch), entries)


def read_usage(tx: Transaction, session_id: str, since: str | None, leaf: LeafChoice) -> UsageWindow:
    """Return a usage window (see `Backend.read_usage`)."""
    if isinstance(leaf, Stored) and since is not None and is_storable(session_id) and is_storable(since):
        ends = tx.first(read_sql.WINDOW, id=session_id, entry_id=since)
        if ends is not None:
            session_key, stored_leaf, before, until = ends
            require_meant(session_id, session_key)
            if before.lane_id == until.lane_id and before.depth <= until.depth:
                return _window(before, until, stored_leaf, since)
    tx.require_snapshot()
    state = read_state(tx, session_id)
    at, position = place(tx, state, leaf)
    if since is None:
        return _window(_NOTHING, position or _NOTHING, at, None)
    anchor = ancestor_of(tx, state, since, position)
    if anchor is None:
        return UsageWindow(Usage(), at, since, on_path=False)
    return _window(anchor, position or _NOTHING, at, since)


def locate(tx: Transaction, session_id: str, leaf: LeafChoice, since: str | None) -> read_sql.Stretch | None:
    """Return where a stretch of path is, as statements over it take it; None where ``since`` is not on the path."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    above = -1
    if since is not None:
        anchor = ancestor_of(tx, state, since, position)
        if anchor is None:
            return None
        above = anchor.depth
    lane_id, depth = (-1, -1) if position is None else (position.lane_id, position.depth)
    return read_sql.Stretch(tree_id=state.tree_id, lane_id=lane_id, depth=depth, low_depth=above)


_NOTHING = Sums(-1, -1, NO_USAGE, NOTHING_PAID)


def _window(before: Position | Sums, until: Position | Sums, leaf: str | None, since: str | None) -> UsageWindow:
    """Return what lies between two places of a path."""
    paid = until.paid.minus(before.paid)
    used = until.totals.minus(before.totals)
    return UsageWindow(usage_of_window(used, paid), leaf, since, paid=paid, reported_cost=used.cost_total)


def read_turns(tx: Transaction, session_id: str, leaf: LeafChoice) -> list[Entry]:
    """Return the messages of the path that a turn begins with (see `Backend.read_turns`)."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    if position is None:
        return []
    rows = sorted(tx.rows(read_sql.TURNS, **spans_of(state, position)), key=BY_DEPTH)
    return [entry for entry in made_entries(tx, state, rows) if begins_turn(entry)]


def read_tree(tx: Transaction, session_id: str) -> list[Entry]:
    """Return every entry the session sees (see `Backend.read_tree`)."""
    state = read_state(tx, session_id)
    rows: list[EntryColumns] = []
    for lane_id, high in tx.rows(read_sql.HELD_SPANS, **held_by(state)):
        rows.extend(
            tx.rows(read_sql.LANE_RANGE, tree_id=state.tree_id, lane_id=lane_id, low=-1, high=min(high, _LAST_DEPTH))
        )
    retracted = {entry_id for (entry_id,) in tx.rows(marks_sql.RETRACTED_IDS, session_key=state.key)}
    with collector_held(len(rows)):
        entries = made_entries(tx, state, [row for row in rows if row[_ID] not in retracted])
    inherited = [entry for entry in entries if entry.session_id != state.id]
    own = [entry for entry in entries if entry.session_id == state.id]
    return sorted(inherited, key=attrgetter("depth")) + sorted(own, key=attrgetter("revision", "ordinal"))


def taken_entry_ids(tx: Transaction, session_id: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that entries of the session's tree have (see `Backend.taken_entry_ids`)."""
    return taken_ids(tx, read_state(tx, session_id), ids)


def match_entry_ids(tx: Transaction, session_id: str, prefix: str, limit: int) -> list[str]:
    """Return ids of visible entries that start with a prefix, in order of id."""
    state = read_state(tx, session_id)
    matches: list[str] = []
    if not is_storable(prefix):
        return matches
    after = prefix
    while len(matches) < limit:
        end = end_of_prefix(prefix)
        rows = tx.rows(listing_sql.ENTRY_IDS_FROM, tree_id=state.tree_id, prefix=after, end_prefix=end, count=64)
        for (entry_id,) in rows:
            if len(matches) < limit and find_visible(tx, state, entry_id) is not None:
                matches.append(entry_id)
        if len(rows) < 64:
            break
        after = rows[-1][0] + "\x01"
    return matches


def end_of_prefix(prefix: str) -> str:
    """Return a text above every text that starts with ``prefix`` (by code point)."""
    return prefix + "\U0010ffff"


def is_ancestor(tx: Transaction, session_id: str, entry_id: str, of: str) -> bool:
    """Return whether one entry is another or an ancestor of it."""
    state = read_state(tx, session_id)
    see_entry(tx, state, entry_id)
    return ancestor_of(tx, state, entry_id, see_entry(tx, state, of)) is not None


def common_ancestor(
    tx: Transaction, session_id: str, other_id: str, leaf: LeafChoice, other_leaf: LeafChoice
) -> str | None:
    """Return the deepest entry on two paths (see `Backend.common_ancestor`): where their spans end together."""
    state = read_state(tx, session_id)
    other = read_state(tx, other_id)
    _, position = place(tx, state, leaf)
    _, other_position = place(tx, other, other_leaf)
    if state.tree_id != other.tree_id or position is None or other_position is None:
        return None
    spans = dict(tx.rows(read_sql.SPANS, **spans_of(state, position)))
    others = tx.rows(read_sql.SPANS, **spans_of(other, other_position))
    shared = [(min(spans[lane_id], high), lane_id) for lane_id, high in others if lane_id in spans]
    if not shared:
        return None
    depth, lane_id = max(shared)
    return id_at(tx, state.tree_id, lane_id, depth)


def changes(tx: Transaction, session_id: str, after: int, limit: int) -> list[Change]:
    """Return the next revisions of a session (see `Backend.changes`)."""
    state = read_state(tx, session_id)
    last = min(after + limit, state.revision)
    if last <= after:
        return []
    where = SessionRevisionLast(session_key=state.key, revision=after, last_revision=last)
    moves = {move.revision: move for move in tx.rows(read_sql.MOVES_AFTER, **where)}
    added: dict[int, list[Entry]] = {}
    rows = tx.rows(own_sql.ENTRIES_OF_REVISIONS, **where, tree_id=state.tree_id, leaf=state.leaf)
    for entry in made_entries(tx, state, rows):
        added.setdefault(entry.revision, []).append(entry)
    return [
        _change(state.id, revision, tuple(added.get(revision, ())), moves.get(revision))
        for revision in range(max(after, 0) + 1, last + 1)
    ]


def _change(session_id: str, revision: int, entries: tuple[Entry, ...], moved: read_sql.LeafMove | None) -> Change:
    if moved is not None:
        _, reason, from_id, to_id, at = moved
        return Change(session_id, revision, reason, entries, from_id, to_id, at)
    if not entries:
        return Change(session_id, revision, None)
    reason_append: Literal["append"] = "append"
    first, last = entries[0], entries[-1]
    return Change(session_id, revision, reason_append, entries, first.parent_id, last.id, last.created_us)


def match_session_ids(tx: Transaction, prefix: str, limit: int) -> list[str]:
    """Return session ids that start with a prefix, in order of id."""
    if not is_storable(prefix):
        return []
    end = end_of_prefix(prefix)
    found = tx.rows(listing_sql.SESSION_IDS_FROM, prefix=prefix, end_prefix=end, count=limit)
    return [session_id for (session_id,) in found]


def task_links(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return a session's task links, in the order they were made."""
    require_session(tx, session_id)
    return list(tx.rows(tasks_sql.LINKS_OF, id=session_id))


def task_parents(tx: Transaction, session_id: str) -> list[TaskLink]:
    """Return the links that point to a session, by parent id."""
    require_session(tx, session_id)
    return list(tx.rows(tasks_sql.LINKS_TO, id=session_id))


def read_marks(tx: Transaction, session_id: str) -> list[Mark]:
    """Return the marks that a session sees, by entry id and kind."""
    return marks_of(tx, read_state(tx, session_id))


def read_revision(tx: Transaction, session_id: str) -> int | None:
    """Return the session's revision, or None where it is gone. Raises `SessionNotFound` as `get_session` does."""
    info = get_session(tx, session_id, None)
    return None if info is None else info.revision
