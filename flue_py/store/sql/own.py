"""Where the entries are that a session added, by revision: found in its lanes, without an index of revisions.

What a living session adds is in lanes that it owns, and there stands below all that others left; revisions grow with
the depth. So the first entry after a revision is found in a lane by halving. A session changes lanes by what its moves
log: entries of some revisions are in the lanes of the leaves from which it moved then or next, and of its leaf. Only
what it added beside its leaf, by an import or on a branch, may be in any lane of its own.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.store.sql.dialects import PAYLOAD_BYTES, statement
from flue_py.store.sql.parts import ENTRY
from flue_py.store.sql.rows import StoredEntry

OwnRange = TypedDict(
    "OwnRange", {"tree_id": int, "session_key": int, "leaf": str | None, "revision": int, "last_revision": int}
)
OwnRangeCount = TypedDict(
    "OwnRangeCount",
    {
        "tree_id": int, "session_key": int, "leaf": str | None, "revision": int, "last_revision": int, "count": int,
    },
)  # fmt: skip
RunOfEntry = TypedDict("RunOfEntry", {"tree_id": int, "session_key": int, "entry_id": str, "revision": int})

# The moves of some revisions, and those that add entries to any lane.
_MOVES = (
    "FROM leaf_moves m WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
)
_NEXT_MOVE = (
    "SELECT m.from_entry AS id FROM leaf_moves m WHERE m.session_key = :session_key AND m.revision > :last_revision"
    " ORDER BY m.revision LIMIT 1"
)
_LANES = (
    "found(lane_id) AS ("
    "  SELECT e.lane_id FROM"
    f"   (SELECT m.from_entry AS id {_MOVES} UNION ALL SELECT n.id FROM ({_NEXT_MOVE}) n UNION ALL SELECT :leaf) ends"
    "   JOIN entries e ON e.tree_id = :tree_id AND e.id = ends.id AND e.session_key = :session_key"
    "  UNION SELECT l.lane_id FROM lanes l WHERE l.owner_key = :session_key"
    f"   AND EXISTS (SELECT 1 {_MOVES} AND m.reason IN ('branch', 'import')))"
)


def _is_after(entry: str, revision: str) -> str:
    return f"{entry}.session_key = :session_key AND {entry}.revision > {revision}"


# In each lane, for the revisions before the first one asked for and for the last one: the deepest place that is not
# after it, where low is high; the fork depth where there is none.
_HALVED = (
    "halved(lane_id, revision, low, high) AS ("
    "  SELECT l.lane_id, b.revision,"
    f"   CASE WHEN {_is_after('t', 'b.revision')} THEN l.fork_depth ELSE t.depth END,"
    f"   CASE WHEN {_is_after('t', 'b.revision')} THEN t.depth - 1 ELSE t.depth END"
    "   FROM found f JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = f.lane_id"
    "   JOIN entries t ON t.tree_id = :tree_id AND t.lane_id = l.lane_id AND t.depth ="
    "    (SELECT MAX(d.depth) FROM entries d WHERE d.tree_id = :tree_id AND d.lane_id = l.lane_id)"
    "   JOIN (SELECT :revision AS revision UNION ALL SELECT :last_revision) b ON 1 = 1"
    "  UNION ALL SELECT h.lane_id, h.revision,"
    f"   CASE WHEN {_is_after('e', 'h.revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', 'h.revision')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high)"
)
_RANGES = (
    "ranges(lane_id, low, high) AS (SELECT h.lane_id, MIN(h.low), MAX(h.low) FROM halved h WHERE h.low = h.high"
    " GROUP BY h.lane_id HAVING MIN(h.low) < MAX(h.low))"
)
_WITH_RANGES = f"WITH RECURSIVE {_LANES}, {_HALVED}, {_RANGES}"

# All entries of some revisions.
ENTRIES_OF_REVISIONS = statement(OwnRange, StoredEntry)(
    f"{_WITH_RANGES} SELECT {ENTRY} FROM ranges r JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = r.lane_id"
    " AND e.depth > r.low AND e.depth <= r.high ORDER BY e.revision, e.ordinal"
)

# -- the log ----------------------------------------------------------------------------------------------------------


class LoggedEntry(NamedTuple):
    """One of the first entries of a revision, or its last one. The payload is that of the very first, or None."""

    revision: int
    ordinal: int
    id: str
    kind: str
    created_at: int
    parent_id: str | None
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None


# Each revision's stretches of lanes, from ``start`` to ``low``, where low is high: one after the other up to ``top``.
_STRETCHES = (
    "stretches(lane_id, top, start, revision, low, high) AS ("
    "  SELECT r.lane_id, r.high, r.low, CAST(0 AS BIGINT), r.low, r.low FROM ranges r"
    "  UNION ALL SELECT s.lane_id, s.top,"
    "   CASE WHEN s.low = s.high THEN e.depth ELSE s.start END,"
    "   CASE WHEN s.low = s.high THEN e.revision ELSE s.revision END,"
    "   CASE WHEN s.low = s.high OR e.revision = s.revision THEN e.depth ELSE s.low END,"
    "   CASE WHEN s.low = s.high THEN s.top WHEN e.revision = s.revision THEN s.high ELSE e.depth - 1 END"
    "   FROM stretches s JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    "    AND e.depth = CASE WHEN s.low = s.high THEN s.low + 1 ELSE (s.low + s.high + 1) / 2 END WHERE s.low < s.top)"
)
# The first entries of each stretch, and the last.
LOGGED_ENTRIES = statement(OwnRangeCount, LoggedEntry)(
    f"{_WITH_RANGES}, {_STRETCHES} SELECT e.revision, e.ordinal, e.id, e.kind, e.created_at, e.parent_id, e.digest,"
    f" CASE WHEN e.ordinal = 0 THEN {PAYLOAD_BYTES} END, CASE WHEN e.ordinal = 0 THEN e.packed END,"
    " CASE WHEN e.ordinal = 0 THEN e.blob END"
    " FROM stretches s JOIN (SELECT 0 AS is_end UNION ALL SELECT 1) k"
    "  ON s.low = s.high AND s.revision > 0 AND (k.is_end = 0 OR s.low >= s.start + :count)"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = s.lane_id"
    "  AND e.depth >= CASE WHEN k.is_end = 1 THEN s.low ELSE s.start END"
    "  AND e.depth <= CASE WHEN k.is_end = 1 OR s.low < s.start + :count THEN s.low ELSE s.start + :count - 1 END"
    " ORDER BY e.revision, e.ordinal"
)

# -- undo -------------------------------------------------------------------------------------------------------------


class LastOfRun(NamedTuple):
    """An entry, who added it, at which revision."""

    id: str
    session_key: int
    revision: int


_WITH_RUN = (
    "WITH RECURSIVE halved(lane_id, low, high) AS ("
    "  SELECT e.lane_id,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN l.fork_depth ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN e.depth - 1 ELSE e.depth END"
    "   FROM entries e JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = e.lane_id"
    "   WHERE e.tree_id = :tree_id AND e.id = :entry_id"
    "  UNION ALL SELECT h.lane_id,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_is_after('e', ':revision')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high) "
)
# Of an entry and those above it in its lane, the deepest that the session did not add after a revision.
LAST_IN_LANE = statement(RunOfEntry, LastOfRun)(
    f"{_WITH_RUN} SELECT e.id, e.session_key, e.revision FROM halved h"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low WHERE h.low = h.high"
)
# The parent of the first that it did add after it.
PARENT_OF_FIRST_IN_LANE = statement(RunOfEntry, tuple[str | None])(
    f"{_WITH_RUN} SELECT e.parent_id FROM halved h"
    " JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id AND e.depth = h.low + 1 WHERE h.low = h.high"
)
