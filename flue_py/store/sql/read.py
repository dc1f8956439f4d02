"""The statements that read entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypedDict, cast

from flue_py.core.sessions import MoveReason
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import P, Row, Statement
from flue_py.store.sql.dialects import ENTRIES_BY_ID, IN_IDS, statement
from flue_py.store.sql.parts import (
    CHILDREN,
    ENTRY,
    EPOCH,
    IN_SPAN,
    LIVING,
    PAYLOAD,
    POSITION,
    STATE,
    STATE_FROM,
    WITH_HELD,
    WITH_SPANS,
    columns,
)
from flue_py.store.sql.rows import Compaction, EntryColumns, StoredBody, StoredEntry, Sums, state_of, sums_of
from flue_py.store.sql.takes import Held, Id, Ids, SessionRevisionLast, TreeEntry, TreeLaneDepth

TreeSession = TypedDict("TreeSession", {"tree_id": int, "session_key": int})
TreeSessionEntry = TypedDict("TreeSessionEntry", {"tree_id": int, "session_key": int, "entry_id": str})
TreeSessionIds = TypedDict("TreeSessionIds", {"tree_id": int, "session_key": int, "ids": str})
TreeSessionLaneDepth = TypedDict(
    "TreeSessionLaneDepth", {"tree_id": int, "session_key": int, "lane_id": int, "depth": int}
)
OfEntry = TypedDict("OfEntry", {"entry_id": str, "count": int})
EntryId = TypedDict("EntryId", {"entry_id": str, "id": str})
LaneRange = TypedDict("LaneRange", {"tree_id": int, "lane_id": int, "low": int, "high": int})
Stretch = TypedDict("Stretch", {"tree_id": int, "lane_id": int, "depth": int, "low_depth": int})
TreeLaneDepthEntry = TypedDict("TreeLaneDepthEntry", {"tree_id": int, "lane_id": int, "depth": int, "entry_id": str})
NamedOnPath = TypedDict("NamedOnPath", {"tree_id": int, "lane_id": int, "depth": int, "ids": str, "last_depth": int})
ExclusionsOnPath = TypedDict("ExclusionsOnPath", {"tree_id": int, "lane_id": int, "depth": int, "last_depth": int})
PathStretch = TypedDict(
    "PathStretch", {"tree_id": int, "lane_id": int, "depth": int, "low_depth": int, "last_depth": int}
)
LastSetting = TypedDict("LastSetting", {"tree_id": int, "lane_id": int, "depth": int, "kind": str})
TreeBlob = TypedDict("TreeBlob", {"tree_id": int, "sha256": bytes | None})


class LeafMove(NamedTuple):
    """A move of a leaf."""

    revision: int
    reason: MoveReason
    from_id: str | None
    to_id: str | None
    at: int


def _window(row: Row) -> tuple[int, str, Sums, Sums]:
    session_key, leaf, *ends = row
    return session_key, leaf, sums_of(ends[: len(POSITION)]), sums_of(ends[len(POSITION) :])


def _session_and_compaction(row: Row) -> tuple[SessionState, int, Compaction | None]:
    epoch, depth, lane_id, entry_id, digest, payload, packed, blob, *state = row
    found = None if depth is None else Compaction(depth, lane_id, entry_id, digest, payload, packed, blob)
    return state_of(state), int(epoch or 0), found


def _leaf_entry(row: Row) -> tuple[str, int, str | None, StoredEntry]:
    session_id, session_key, creator, *columns = row
    return session_id, session_key, creator, StoredEntry._make(columns)


# Both ends of a usage window, whose difference it is where they lie in one lane.
WINDOW = statement(EntryId, _window)(
    f"SELECT s.session_key, s.leaf, {columns('a', POSITION)}, {columns('e', POSITION)} FROM sessions s"
    " JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    " JOIN entries a ON a.tree_id = s.tree_id AND a.id = :entry_id" + LIVING + " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = s.session_key AND m.entry_id = :entry_id AND m.kind = 'retracted')"
)
# What a session has not retracted: of an id, of a JSON array of ids, below a place, of the roots of its tree.
_NOT_RETRACTED = (
    " AND NOT EXISTS (SELECT 1 FROM marks m"
    " WHERE m.session_key = :session_key AND m.entry_id = e.id AND m.kind = 'retracted')"
)
ENTRY_BY_ID = statement(TreeSessionEntry, StoredEntry)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id{_NOT_RETRACTED}"
)
# Of each tree that has an entry of this id, a session: the one that added it, or any.
SESSIONS_OF_ENTRY = statement(OfEntry, tuple[str])(
    "SELECT COALESCE(c.id, (SELECT MIN(s.id) FROM sessions s WHERE s.tree_id = e.tree_id)) AS found FROM entries e"
    " LEFT JOIN sessions c ON c.session_key = e.session_key WHERE e.id = :entry_id ORDER BY found LIMIT :count"
)
FOUND_ENTRY = statement(TreeEntry, StoredEntry)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
ENTRIES_OF_IDS = statement(TreeSessionIds, StoredEntry)(f"SELECT {ENTRY} FROM {ENTRIES_BY_ID}{_NOT_RETRACTED}")
# Of sessions the entries at their leaves, behind the session, and who created the entry (NULL where that is deleted).
LEAVES = statement(Ids, _leaf_entry)(
    "SELECT s.id, s.session_key, (SELECT c.id FROM sessions c WHERE c.session_key = e.session_key) AS creator,"
    f" {ENTRY} FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    f" WHERE s.id {IN_IDS} AND s.trashed_at IS NULL"
)
CHILD_ENTRIES = statement(TreeSessionLaneDepth, StoredEntry)(f"SELECT {ENTRY} FROM {CHILDREN}{_NOT_RETRACTED}")
ROOT_ENTRIES = statement(TreeSession, StoredEntry)(
    f"SELECT {ENTRY} FROM lanes l JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.lane_id AND e.depth = 0"
    f" WHERE l.tree_id = :tree_id AND l.parent_lane IS NULL AND l.fork_depth = -1{_NOT_RETRACTED}"
)
# A path as its stretches, leaf side first.
SPANS = statement(TreeLaneDepth, tuple[int, int])(WITH_SPANS + "SELECT s.lane_id, s.high FROM spans s")


def _entries(takes: Callable[P, object]) -> Callable[[str], Statement[P, EntryColumns]]:
    return statement(takes, cast("type[EntryColumns]", EntryColumns))


# A path in one lane is one range; one over several lanes is the union of their ranges, in no order.
LANE_RANGE = _entries(LaneRange)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_RANGE = _entries(Stretch)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
# The same for the messages alone: nothing is fetched that a message is not made of.
# (A message's kind and time are not: NULL for ten thousand of them is quicker than their values.)
_BODY = (
    "e.depth, CASE WHEN e.kind = 'message' THEN NULL ELSE e.kind END,"
    " CASE WHEN e.kind = 'message' THEN NULL ELSE e.created_at END,"
    f" {PAYLOAD}"
)


def _bodies(takes: Callable[P, object]) -> Callable[[str], Statement[P, StoredBody]]:
    return statement(takes, tuple[int, str | None, int | None, bytes, bytes | None, bytes | None, bytes | None])


LANE_BODIES = _bodies(LaneRange)(
    f"SELECT {_BODY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high ORDER BY e.depth"
)
SPANS_BODIES = _bodies(Stretch)(
    WITH_SPANS + f"SELECT {_BODY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.depth > :low_depth"
    " WHERE s.high > :low_depth"
)
_COMPACTION = f"e.depth, e.lane_id, e.id, {PAYLOAD}"
_LATEST_COMPACTION = (
    f"SELECT {_COMPACTION} FROM spans s JOIN entries e ON {IN_SPAN} WHERE e.kind = 'compaction'"
    " ORDER BY e.depth DESC LIMIT 1"
)
LATEST_COMPACTION = statement(TreeLaneDepth, Compaction)(WITH_SPANS + _LATEST_COMPACTION)
COMPACTION_ON_PATH = statement(TreeLaneDepthEntry, Compaction)(
    WITH_SPANS + f"SELECT {_COMPACTION} FROM entries e JOIN spans s ON {IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)
SESSION_AND_COMPACTION = statement(Id, _session_and_compaction)(
    "WITH RECURSIVE spans(tree_id, lane_id, low, high, parent_lane) AS ("
    "  SELECT l.tree_id, l.lane_id, l.fork_depth, e.depth, l.parent_lane FROM sessions s"
    "   JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    "   JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    "   WHERE s.id = :id AND s.trashed_at IS NULL"
    "  UNION ALL SELECT s.tree_id, l.lane_id, l.fork_depth, s.low, l.parent_lane FROM spans s"
    "   JOIN lanes l ON l.tree_id = s.tree_id AND l.lane_id = s.parent_lane WHERE s.parent_lane IS NOT NULL"
    f") SELECT {EPOCH}, n.depth, n.lane_id, n.id, n.digest, n.payload, n.packed, n.blob, {STATE}{STATE_FROM}"
    f" LEFT JOIN ({_LATEST_COMPACTION.replace(':tree_id', 's.tree_id')}) n ON 1 = 1" + LIVING
)
SETTING_KINDS = "('model_change', 'thinking_level_change')"
LAST_SETTING = statement(LastSetting, StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN}"
    f" WHERE e.kind IN {SETTING_KINDS} AND e.kind = :kind ORDER BY e.depth DESC LIMIT 1"
)
# From the end of a stretch of a lane, as far as is needed.
LAST_ANSWER = statement(LaneRange, StoredEntry)(
    f"SELECT {ENTRY} FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id"
    " AND e.depth > :low AND e.depth <= :high AND e.kind = 'message' AND e.role = 'assistant'"
    " AND (e.source IS NULL OR e.source <> 'shell') ORDER BY e.depth DESC LIMIT 1"
)
# The depth of an entry on a path, above a place of it.
DEPTH_ON_PATH = statement(TreeLaneDepthEntry, tuple[int])(
    WITH_SPANS + f"SELECT e.depth FROM entries e JOIN spans s ON {IN_SPAN}"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id AND e.depth < :depth"
)
# Entries on a path that are named, and its exclusions, up to a depth.
NAMED_ON_PATH = statement(NamedOnPath, StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM {ENTRIES_BY_ID}"
    f" AND e.depth <= :last_depth AND EXISTS (SELECT 1 FROM spans s WHERE {IN_SPAN})"
)
EXCLUSIONS_ON_PATH = statement(ExclusionsOnPath, StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} AND e.kind = 'exclusion'"
    " WHERE e.depth <= :last_depth"
)
PATH_STRETCH = _entries(PathStretch)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN}"
    " AND e.depth > :low_depth AND e.depth <= :last_depth WHERE s.high > :low_depth AND s.low < :last_depth"
)
TURNS = statement(TreeLaneDepth, StoredEntry)(
    WITH_SPANS + f"SELECT {ENTRY} FROM spans s JOIN entries e ON {IN_SPAN} WHERE e.kind = 'message' AND e.role = 'user'"
)
BLOB_DATA = statement(TreeBlob, tuple[bytes])(
    "SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256"
)
HELD_SPANS = statement(Held, tuple[int, int])(
    f"{WITH_HELD} SELECT h.lane_id, MAX(h.depth) FROM held h GROUP BY h.lane_id"
)
MOVES_AFTER = statement(SessionRevisionLast, LeafMove)(
    "SELECT m.revision, m.reason, m.from_entry, m.to_entry, m.at FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision AND m.revision <= :last_revision"
    " ORDER BY m.revision"
)
