"""What rows become that more than one statement gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from flue_py.core.usage import TOTAL_COLUMNS, Paid, UsageTotals
from flue_py.store.schema.session_state import Position, SessionState


class StoredEntry(NamedTuple):
    """An entry; exactly one of ``payload``, ``packed`` and ``blob`` is set."""

    depth: int
    id: str
    lane_id: int
    parent_id: str | None
    session_key: int
    kind: str
    role: str | None
    source: str | None
    revision: int
    ordinal: int
    created_at: int
    extra: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


EntryColumns: TypeAlias = tuple[
    int,
    str,
    int,
    str | None,
    int,
    str,
    str | None,
    str | None,
    int,
    int,
    int,
    str | None,
    bytes,
    bytes | None,
    bytes | None,
    bytes | None,
]
"""What a `StoredEntry` is, as a plain tuple: nothing is made of the thousand rows of a path before they are entries."""

StoredBody = tuple[int, str | None, int | None, bytes, bytes | None, bytes | None, bytes | None]
"""Of an entry its depth, its kind and its time (both None for a message), its digest and its payload's three columns:
a plain tuple, since most of what a model is sent is read this way."""


class Compaction(NamedTuple):
    """A compaction, and where it is."""

    depth: int
    lane_id: int
    id: str
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


class Sums(NamedTuple):
    """A place, and the sums to it."""

    lane_id: int
    depth: int
    totals: UsageTotals
    paid: Paid


_TOTALS = len(TOTAL_COLUMNS)


def sums_of(columns: Sequence[Any]) -> Sums:
    """Return the columns of `parts.POSITION` as sums."""
    lane_id, depth, *sums = columns
    return Sums(lane_id, depth, UsageTotals._make(sums[:_TOTALS]), Paid._make(sums[_TOTALS:]))


def position_of(columns: Sequence[Any]) -> Position:
    """Return the columns of `parts.place_of` as a position."""
    entry_id, *sums, owner_key, parent_lane, fork_depth, child = columns
    return Position(entry_id, *sums_of(sums), owner_key, parent_lane, fork_depth, child is not None)


def state_of(columns: Sequence[Any]) -> SessionState:
    """Return the columns of `parts.STATE` as a session's state."""
    key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked, tokens, cost, cwd, slot, *place = columns
    position = None if place[0] is None else position_of(place)
    return SessionState(
        key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked, tokens, cost, cwd, slot, position
    )
