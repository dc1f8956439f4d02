"""Pieces that several statements are made of."""

from __future__ import annotations

from flue_py.core.rows import CallRow
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.store.sql.dialects import PAYLOAD_BYTES
from flue_py.store.sql.rows import StoredEntry


def columns(table: str, names: tuple[str, ...]) -> str:
    """Return the names as a list of columns of a table, which is named as in FROM."""
    return ", ".join(f"{table}.{name}" for name in names)


def call_columns(table: str) -> str:
    """Return the columns of a paid call, as `CallRow` has them: one that has no id of its own goes by its entry's."""
    own = f"{table}.call_id"
    return columns(table, CallRow._fields).replace(own, f"COALESCE({own}, {table}.entry_id)")


POSITION = ("lane_id", "depth", *TOTAL_COLUMNS, *PAID_COLUMNS)
# A payload is read as bytes: its digest is made of them, and they may be no valid text any more.
PAYLOAD = f"e.digest, {PAYLOAD_BYTES} AS payload, e.packed, e.blob"
ENTRY = f"{columns('e', StoredEntry._fields[:-4])}, {PAYLOAD}"
TOTALS = columns("e", TOTAL_COLUMNS)
PAID = columns("e", PAID_COLUMNS)


def place_of(entry: str, lane: str) -> str:
    """What `rows.position_of` reads: an entry's place, its lane, and whether the lane goes on below it."""
    return (
        f"{entry}.id, {columns(entry, POSITION)}, {lane}.owner_key, {lane}.parent_lane, {lane}.fork_depth,"
        f" (SELECT 1 FROM entries c WHERE c.tree_id = {entry}.tree_id AND c.lane_id = {entry}.lane_id"
        f" AND c.depth = {entry}.depth + 1)"
    )


STATE = (
    "s.session_key, s.id, s.tree_id, s.scope, s.leaf, s.revision, s.kind, s.task_depth, s.forked_from_entry,"
    f" s.spent_tokens, s.spent_cost, s.cwd, s.active_slot, {place_of('e', 'l')}"
)
STATE_FROM = (
    " FROM sessions s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
)
LIVING = " WHERE s.id = :id AND s.trashed_at IS NULL"
EPOCH = "(SELECT f.value FROM flue_store f WHERE f.name = 'epoch')"
WITH_SPANS = (
    "WITH RECURSIVE spans(lane_id, low, high, parent_lane) AS ("
    "  SELECT l.lane_id, l.fork_depth, CAST(:depth AS BIGINT), l.parent_lane FROM lanes l"
    "   WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
    "  UNION ALL SELECT l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    ") "
)
IN_SPAN = "e.tree_id = :tree_id AND e.lane_id = s.lane_id AND e.depth > s.low AND e.depth <= s.high"
# The entries below a place: the next one in its lane, and the first ones of the lanes that fork there.
CHILDREN = (
    "(SELECT CAST(:lane_id AS BIGINT) AS lane_id UNION ALL SELECT l.lane_id FROM lanes l"
    "  WHERE l.tree_id = :tree_id AND l.parent_lane = :lane_id AND l.fork_depth = :depth) below"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = below.lane_id AND e.depth = :depth + 1"
)
WITH_HELD = (
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.lane_id, 9223372036854775807 FROM lanes l WHERE l.owner_key = :session_key"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL)"
)
