"""The statements of leaf moves, undo and redo."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.store.schema.session_state import Position
from flue_py.store.seam import Row
from flue_py.store.sql.dialects import announced, statement
from flue_py.store.sql.parts import CHILDREN, WITH_SPANS, place_of
from flue_py.store.sql.rows import position_of
from flue_py.store.sql.takes import TreeEntry, TreeLaneDepth

UpdateLeaf = TypedDict(
    "UpdateLeaf",
    {"session_key": int, "revision": int, "leaf": str | None, "at": int, "entry_count": int, "message_count": int},
)
IsOnPath = TypedDict("IsOnPath", {"tree_id": int, "lane_id": int, "depth": int, "other_lane": int, "other_depth": int})
SessionRevision = TypedDict("SessionRevision", {"session_key": int, "revision": int})


class FoundEntry(NamedTuple):
    """An entry of a tree: its parent, who added it, of what kind it is, and where it is."""

    id: str
    parent_id: str | None
    session_key: int
    kind: str
    position: Position


def _found_entry(row: Row) -> FoundEntry:
    entry_id, parent_id, session_key, kind, *place = row
    return FoundEntry(entry_id, parent_id, session_key, kind, position_of(place))


class LastMove(NamedTuple):
    """A move of the leaf, and what it undoes or redoes."""

    revision: int
    reason: str
    undoes: int | None
    from_id: str | None
    to_id: str | None


UPDATE_LEAF = announced(UpdateLeaf)(
    "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
    " entry_count = entry_count + :entry_count,"
    " message_count = message_count + :message_count WHERE session_key = :session_key"
)
ENTRY_POSITION = statement(TreeEntry, _found_entry)(
    f"SELECT e.id, e.parent_id, e.session_key, e.kind, {place_of('e', 'l')}"
    " FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
ID_AT = statement(TreeLaneDepth, tuple[str])(
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth"
)
# Whether an entry lies on the path to a place.
IS_ON_PATH = statement(IsOnPath, tuple[int])(
    WITH_SPANS + "SELECT 1 FROM spans s WHERE s.lane_id = :other_lane AND s.high >= :other_depth LIMIT 1"
)
CHILD_PLACES = statement(TreeLaneDepth, tuple[str, int, int, int])(
    f"SELECT e.id, e.lane_id, e.depth, o.owner_key FROM {CHILDREN}"
    " JOIN lanes o ON o.tree_id = e.tree_id AND o.lane_id = e.lane_id"
)
LAST_MOVE = statement(SessionRevision, LastMove)(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision <= :revision ORDER BY m.revision DESC LIMIT 1"
)
# From where the leaf moved next after a revision.
NEXT_MOVE_FROM = statement(SessionRevision, tuple[str | None])(
    "SELECT m.from_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision > :revision ORDER BY m.revision LIMIT 1"
)
