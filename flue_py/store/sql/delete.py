"""The statements of a deletion."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.lanes import Hold, Lane
from flue_py.store.seam import Nothing, Statement
from flue_py.store.sql.dialects import Dialect, announcing, in_keys, per_dialect, tails_in
from flue_py.store.sql.takes import Keys, TreeLane

Tails = TypedDict("Tails", {"tails": str})
HandOverLane = TypedDict("HandOverLane", {"tree_id": int, "lane_id": int, "owner_key": int})
TreeBlob = TypedDict("TreeBlob", {"tree_id": int, "sha256": bytes})

_LANE = "l.tree_id, l.lane_id, l.owner_key, l.parent_lane, l.fork_depth"
DOOMED_LANES = per_dialect(
    Keys, Lane, lambda dialect: f"SELECT {_LANE} FROM lanes l WHERE {in_keys('l.owner_key', dialect)}"
)
CHILD_LANES = per_dialect(
    Keys,
    Lane,
    lambda dialect: (
        f"SELECT {_LANE} FROM lanes p JOIN lanes l ON l.tree_id = p.tree_id AND l.parent_lane = p.lane_id"
        f" WHERE {in_keys('p.owner_key', dialect)}"
    ),
)


def _held_by(column: str, dialect: Dialect) -> str:
    entry = f"FROM entries e WHERE e.tree_id = s.tree_id AND e.id = s.{column}"
    return (
        f"SELECT s.tree_id, (SELECT e.lane_id {entry}) AS lane_id, (SELECT e.depth {entry}) AS depth, s.session_key"
        f" FROM sessions s WHERE s.{column} IS NOT NULL AND NOT {in_keys('s.session_key', dialect)} AND s.tree_id IN"
        f" (SELECT d.tree_id FROM sessions d WHERE {in_keys('d.session_key', dialect)})"
    )


# Where other sessions hold on to the lanes: with their leaf, or the entry they were forked from. (An entry is looked
# up for each session; joined, PostgreSQL would read the whole tree.)
HOLDS = per_dialect(
    Keys,
    Hold,
    lambda dialect: (
        "SELECT h.tree_id, h.lane_id, h.depth, h.session_key"
        f" FROM ({_held_by('leaf', dialect)} UNION ALL {_held_by('forked_from_entry', dialect)}) h"
        " JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id"
        f" WHERE {in_keys('l.owner_key', dialect)}"
    ),
)
_IN_TAIL = "e.tree_id = t.tree_id AND e.lane_id = t.lane_id AND e.depth > t.low"
# What the ends of lanes hold: how many entries per blob (None: those without one), for each tree.
TAILS_CONTENT = per_dialect(
    Tails,
    tuple[int, bytes | None, int],
    lambda dialect: (
        f"SELECT e.tree_id, e.blob, COUNT(*) FROM ({tails_in(dialect)}) t JOIN entries e ON {_IN_TAIL}"
        " GROUP BY e.tree_id, e.blob"
    ),
)
# The same of what it deletes, where SQLite counts each entry by itself.
DELETE_TAILS = Statement(
    Tails,
    tuple[int, bytes | None, int],
    f"DELETE FROM entries WHERE rowid IN (SELECT e.rowid FROM ({tails_in('sqlite')}) t JOIN entries e ON {_IN_TAIL})"
    " RETURNING tree_id, blob, 1",
    f"WITH gone AS (DELETE FROM entries e USING ({tails_in('postgresql')}) t WHERE {_IN_TAIL}"
    " RETURNING e.tree_id, e.blob) SELECT g.tree_id, g.blob, COUNT(*) FROM gone g GROUP BY g.tree_id, g.blob",
)
HAND_OVER_LANE = Statement(
    HandOverLane, Nothing, "UPDATE lanes SET owner_key = :owner_key WHERE tree_id = :tree_id AND lane_id = :lane_id"
)
DELETE_LANE = Statement(TreeLane, Nothing, "DELETE FROM lanes WHERE tree_id = :tree_id AND lane_id = :lane_id")
LOCK_BLOB = Statement(
    TreeBlob, tuple[int], "SELECT b.size FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256 FOR UPDATE"
)
DELETE_UNUSED_BLOB = Statement(
    TreeBlob,
    Nothing,
    "DELETE FROM blobs WHERE tree_id = :tree_id AND sha256 = :sha256 AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.blob = :sha256 AND e.blob IS NOT NULL)",
)
DELETE_SESSIONS = per_dialect(
    Keys, Nothing, lambda dialect: f"DELETE FROM sessions WHERE {in_keys('session_key', dialect)}{announcing(dialect)}"
)
