"""The statements of leaf moves, undo and redo."""

from __future__ import annotations

from flue_py.store.seam import Statement
from flue_py.store.sql.dialects import announcing, per_dialect
from flue_py.store.sql.parts import WITH_SPANS, insert_into, place_of

UPDATE_LEAF = per_dialect(
    lambda dialect: (
        "UPDATE sessions SET leaf = :leaf, revision = :revision, updated_at = :at,"
        " entry_count = entry_count + :entry_count,"
        " message_count = message_count + :message_count WHERE session_key = :session_key" + announcing(dialect)
    )
)
ENTRY_POSITION = Statement(
    f"SELECT e.id, e.session_key, e.kind, {place_of('e', 'l')}"
    " FROM entries e JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
ID_AT = Statement("SELECT e.id FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth")
# Whether an entry lies on the path to a place.
IS_ON_PATH = Statement(
    WITH_SPANS + "SELECT 1 FROM spans s WHERE s.lane_id = :other_lane AND s.high >= :other_depth LIMIT 1"
)
CHILD_IN_LANE = Statement(
    "SELECT e.id, e.session_key, e.lane_id, e.depth, l.owner_key FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id AND e.depth = :depth"
)
CHILDREN_IN_OTHER_LANES = Statement(
    "SELECT e.id, e.session_key, e.lane_id, e.depth, l.owner_key FROM lanes l"
    " JOIN entries e ON e.tree_id = l.tree_id AND e.lane_id = l.lane_id AND e.depth = :depth"
    " WHERE l.tree_id = :tree_id AND l.parent_lane = :lane_id AND l.fork_depth = :depth - 1"
)
INSERT_MOVE = insert_into(
    "leaf_moves", ("session_key", "revision", "from_entry", "to_entry", "reason", "undoes", "moved_by", "at", "why")
)
LAST_MOVE = Statement(
    "SELECT m.revision, m.reason, m.undoes, m.from_entry, m.to_entry FROM leaf_moves m"
    " WHERE m.session_key = :session_key AND m.revision <= :revision ORDER BY m.revision DESC LIMIT 1"
)
LAST_APPEND = Statement(
    "SELECT MAX(e.revision) FROM entries e WHERE e.session_key = :session_key AND e.revision <= :revision"
)
FIRST_OF_REVISION = Statement(
    "SELECT e.id, e.lane_id, e.depth FROM entries e"
    " WHERE e.session_key = :session_key AND e.revision = :revision ORDER BY e.ordinal LIMIT 1"
)
LAST_OF_REVISION = Statement(
    "SELECT e.id, e.lane_id, e.depth FROM entries e"
    " WHERE e.session_key = :session_key AND e.revision = :revision ORDER BY e.ordinal DESC LIMIT 1"
)
PARENT_LANE = Statement(
    "SELECT l.parent_lane, l.fork_depth FROM lanes l WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
)
