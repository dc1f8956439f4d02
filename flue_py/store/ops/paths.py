"""A path: its rows by range scans over lanes, and the entries that they become."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TypeVar

from flue_py.collector import collector_held
from flue_py.core.entries import Entry
from flue_py.core.jsontext import intact_text
from flue_py.core.kinds import ARTIFACT
from flue_py.core.sessions import (
    LeafChoice,
    Stored,
    is_storable,
)
from flue_py.store.ops.attachments import Payloads
from flue_py.store.ops.move import is_on_path
from flue_py.store.ops.state import (
    checked_state,
    find_visible,
    place,
)
from flue_py.store.schema.payloads import decode_payload
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Statement, Transaction
from flue_py.store.sql import read as read_sql
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import state as state_sql
from flue_py.store.sql.rows import EntryColumns, StoredBody, StoredEntry
from flue_py.store.sql.takes import TreeLaneDepth

_CREATOR = itemgetter(4)
BY_DEPTH = itemgetter(0)  # what is read along a path has the depth first

OfPath = TypeVar("OfPath", EntryColumns, StoredBody)


def read_state_and_epoch(tx: Transaction, session_id: str) -> tuple[SessionState, int]:
    """Return a session with the place of its leaf, and the epoch. Raises `SessionNotFound`."""
    found = tx.first(state_sql.SESSION_AND_EPOCH, id=session_id) if is_storable(session_id) else None
    state, epoch = found or (None, 0)
    return checked_state(session_id, state), epoch


def place_to_read(tx: Transaction, state: SessionState, leaf: LeafChoice) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place; on one snapshot where that has to be looked up."""
    if not isinstance(leaf, Stored):
        tx.require_snapshot()
    return place(tx, state, leaf)


def ancestor_of(tx: Transaction, state: SessionState, entry_id: str, of: Position | None) -> Position | None:
    """Return the place of an entry that is ``of`` or an ancestor of it, or None."""
    found = find_visible(tx, state, entry_id)
    if of is None or found is None:
        return None
    return found if is_on_path(tx, state, found, of) else None


def path_entries(
    tx: Transaction, state: SessionState, position: Position | None, above: int, *, contents: bool = True
) -> list[Entry]:
    """Return the entries of a path that lie deeper than ``above``, in order of depth (``contents``: `made_entries`)."""
    if position is None:
        return []
    with collector_held(position.depth - above):
        rows = rows_of_path(tx, state, position, above, read_sql.LANE_RANGE, read_sql.SPANS_RANGE)
        return made_entries(tx, state, rows, stretch_of(state, position, above), contents=contents)


def path_stretch(
    tx: Transaction, state: SessionState, position: Position, above: int, last: int, *, contents: bool = True
) -> list[Entry]:
    """Return the entries on the path to a place that lie deeper than ``above``, and no deeper than ``last``."""
    rows: Sequence[EntryColumns]
    if _is_in_last_lane(position, above):
        rows = tx.rows(read_sql.LANE_RANGE, tree_id=state.tree_id, lane_id=position.lane_id, low=above, high=last)
    else:
        found = tx.rows(read_sql.PATH_STRETCH, **spans_of(state, position), low_depth=above, last_depth=last)
        rows = sorted(found, key=BY_DEPTH)
    _require_all(tx, rows, last - above)
    return made_entries(tx, state, rows, stretch_of(state, position, above), contents=contents)


def named_on_path(
    tx: Transaction, state: SessionState, position: Position, ids: Iterable[str], last_depth: int
) -> list[Entry]:
    """Return those of some entries that lie on the path to a place, no deeper than ``last_depth``, root first."""
    return named_above(tx, state, spans_of(state, position), ids, last_depth)


def named_above(
    tx: Transaction, state: SessionState, where: TreeLaneDepth, ids: Iterable[str], last_depth: int
) -> list[Entry]:
    """Return what `named_on_path` does, of the path to a lane and a depth."""
    named = json.dumps(sorted(each for each in ids if is_storable(each)))
    rows = tx.rows(read_sql.NAMED_ON_PATH, **where, ids=named, last_depth=last_depth)
    return entries_of_rows(tx, state, rows)


def exclusions_on_path(tx: Transaction, state: SessionState, position: Position, last_depth: int) -> list[Entry]:
    """Return the exclusions on the path to a place, no deeper than ``last_depth``, root first."""
    rows = tx.rows(read_sql.EXCLUSIONS_ON_PATH, **spans_of(state, position), last_depth=last_depth)
    return entries_of_rows(tx, state, rows)


def entries_of_rows(tx: Transaction, state: SessionState, rows: Sequence[StoredEntry]) -> list[Entry]:
    """Return entries of a path that need not follow each other, root first."""
    if rows:
        tx.require_snapshot()
    return made_entries(tx, state, sorted(rows, key=BY_DEPTH))


def rows_of_path(
    tx: Transaction,
    state: SessionState,
    position: Position,
    above: int,
    in_lane: Statement[..., OfPath],
    in_spans: Statement[..., OfPath],
) -> Sequence[OfPath]:
    """Return the rows of a path that lie deeper than ``above``: one range, or one for each lane it runs through."""
    rows: Sequence[OfPath]
    if _is_in_last_lane(position, above):
        rows = tx.rows(in_lane, tree_id=state.tree_id, lane_id=position.lane_id, low=above, high=position.depth)
    else:
        rows = sorted(tx.rows(in_spans, **spans_of(state, position), low_depth=above), key=BY_DEPTH)
    _require_all(tx, rows, position.depth - above)
    return rows


def _is_in_last_lane(position: Position, above: int) -> bool:
    return position.parent_lane is None or position.fork_depth <= above


def _require_all(tx: Transaction, rows: Sequence[OfPath], expected: int) -> None:
    if len(rows) != expected:
        # What is deleted while it is read is missing here: entries change in no other way.
        tx.require_snapshot()


def made_entries(
    tx: Transaction,
    state: SessionState,
    rows: Sequence[EntryColumns],
    stretch: read_sql.Stretch | None = None,
    *,
    contents: bool = True,
) -> list[Entry]:
    """Return the entries that rows stand for, in their order; ``stretch`` is the part of a path that they are on.

    Without ``contents``, what was cut out of an artifact is not read, and missing in its payload.
    Raises `CorruptStore`, naming the entry, for a payload that is not what was appended.
    """
    creators, payloads = _creators_of(tx, state, rows), Payloads(tx, state, stretch, contents=contents)
    entries = []
    for row in rows:
        depth, id_, _, parent, key, kind, role, source, revision, ordinal, at, extra, digest, data, packed, blob = row
        # Most payloads are text, and intact: nothing else is called for them.
        text = intact_text(data, digest)
        if text is None:
            if contents or kind != ARTIFACT:
                text = decode_payload(payloads.text(id_, digest, data, packed, blob, depth))
            else:
                text = decode_payload(payloads.rest(id_, data, packed, blob))
        creator = creators.get(key)
        entries.append(Entry(id_, parent, creator, kind, role, source, depth, revision, ordinal, at, text, extra))
    return entries


def _creators_of(tx: Transaction, state: SessionState, rows: Iterable[EntryColumns]) -> dict[int, str]:
    """Return the ids of the sessions that created these rows; a deleted creator is absent."""
    if set(map(_CREATOR, rows)) <= {state.key}:
        return {state.key: state.id}
    tx.require_snapshot()
    return dict(tx.rows(sessions_sql.SESSION_IDS, tree_id=state.tree_id))


def stretch_of(state: SessionState, position: Position, above: int) -> read_sql.Stretch:
    """Return where the part of a path below a depth is, as statements take it."""
    return read_sql.Stretch(tree_id=state.tree_id, lane_id=position.lane_id, depth=position.depth, low_depth=above)


def spans_of(state: SessionState, position: Position) -> TreeLaneDepth:
    """Return the place that a path leads to, as statements take it."""
    return place_at(state, position.lane_id, position.depth)


def place_at(state: SessionState, lane_id: int, depth: int) -> TreeLaneDepth:
    """Return a place of the session's tree, as statements take it."""
    return TreeLaneDepth(tree_id=state.tree_id, lane_id=lane_id, depth=depth)
