"""The statements that read of many sessions at once: the sessions, entries that are named, and where those lie."""

from __future__ import annotations

from typing import NamedTuple

from flue_py.store.seam import Row
from flue_py.store.sql.dialects import FIRST_OF_PAIR, IN_IDS, IN_KEYS, PAIRS_OF_IDS, SECOND_OF_PAIR, statement
from flue_py.store.sql.parts import ENTRY, PAYLOAD
from flue_py.store.sql.rows import Compaction, StoredEntry
from flue_py.store.sql.sessions import SESSION, session_of
from flue_py.store.sql.takes import Ids, Keys


class NamedEntry(NamedTuple):
    """An entry of the tree of a session that was named with it, and the id of who created it, None where deleted."""

    session_id: str
    session_key: int
    creator: str | None
    row: StoredEntry


class Spot(NamedTuple):
    """Where an entry lies that was named with a session, and the key of who created it."""

    session_id: str
    session_key: int
    id: str
    lane_id: int
    depth: int
    kind: str
    creator_key: int


class Stretch(NamedTuple):
    """A lane of the path to a session's leaf, how deep that goes in it, and the latest compaction in that part."""

    session_id: str
    session_key: int
    lane_id: int
    high: int
    compaction: Compaction | None


def _named_entry(row: Row) -> NamedEntry:
    session_id, session_key, creator, *columns = row
    return NamedEntry(session_id, session_key, creator, StoredEntry._make(columns))


def _stretch(row: Row) -> Stretch:
    session_id, session_key, lane_id, high, depth, entry_id, *payload = row
    found = None if depth is None else Compaction(depth, lane_id, entry_id, *payload)
    return Stretch(session_id, session_key, lane_id, high, found)


# A JSON array names entries as [session, entry]: those that the session has not retracted, whether or not it sees them.
_NAMED = (
    f" FROM {PAIRS_OF_IDS} sessions s ON s.id = {FIRST_OF_PAIR} AND s.trashed_at IS NULL"
    f" JOIN entries e ON e.tree_id = s.tree_id AND e.id = {SECOND_OF_PAIR} WHERE NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = s.session_key AND m.entry_id = e.id AND m.kind = 'retracted')"
)
ENTRIES = statement(Ids, _named_entry)(
    "SELECT s.id, s.session_key, (SELECT c.id FROM sessions c WHERE c.session_key = e.session_key) AS creator,"
    f" {ENTRY}{_NAMED}"
)
SPOTS = statement(Ids, Spot)(
    f"SELECT s.id, s.session_key, e.id AS entry_id, e.lane_id, e.depth, e.kind, e.session_key AS creator_key{_NAMED}"
)
SESSIONS = statement(Ids, session_of)(f"SELECT {SESSION} FROM sessions s WHERE s.id {IN_IDS} AND s.trashed_at IS NULL")
PATHS = statement(Ids, _stretch)(
    "WITH RECURSIVE spans(session_key, session_id, tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT s.session_key, s.id, l.tree_id, l.lane_id, l.fork_depth, a.depth, l.parent_lane FROM sessions s"
    "   JOIN entries a ON a.tree_id = s.tree_id AND a.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = a.tree_id AND l.lane_id = a.lane_id"
    f"   WHERE s.id {IN_IDS} AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.session_key, s.session_id, s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane"
    "   FROM spans s JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane"
    "   WHERE s.parent_lane IS NOT NULL"
    f") SELECT s.session_id, s.session_key, s.lane_id, s.high, e.depth, e.id, {PAYLOAD} FROM spans s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.lane_id = s.lane_id AND e.depth = (SELECT MAX(c.depth)"
    "  FROM entries c WHERE c.tree_id = s.tree_id AND c.lane_id = s.lane_id AND c.depth <= s.high"
    "  AND c.kind = 'compaction')"
)
# What each session holds: the ends of its lanes, of their ancestors, and of those of its leaf and its fork point.
HELD = statement(Keys, tuple[int, int, int])(
    "WITH RECURSIVE held(session_key, tree_id, lane_id, depth) AS ("
    "  SELECT s.session_key, s.tree_id, e.lane_id, e.depth FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id IN (s.leaf, s.forked_from_entry)"
    f"  WHERE s.session_key {IN_KEYS}"
    "  UNION SELECT h.session_key, h.tree_id, l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL"
    "), own(session_key, tree_id, lane_id, depth) AS ("
    "  SELECT l.owner_key, l.tree_id, l.lane_id, CAST(9223372036854775807 AS BIGINT) FROM lanes l"
    f"   WHERE l.owner_key {IN_KEYS}"
    "  UNION SELECT o.session_key, o.tree_id, l.parent_lane, l.fork_depth FROM own o"
    "   JOIN lanes l ON l.tree_id = o.tree_id AND l.lane_id = o.lane_id WHERE l.parent_lane IS NOT NULL"
    ") SELECT f.session_key, f.lane_id, MAX(f.depth) FROM"
    " (SELECT session_key, lane_id, depth FROM held UNION ALL SELECT session_key, lane_id, depth FROM own) f"
    " GROUP BY f.session_key, f.lane_id"
)
