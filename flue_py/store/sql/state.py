"""The statements that an operation starts with: the session, what it sees, and what it did before."""

from __future__ import annotations

from flue_py.store.seam import Statement
from flue_py.store.sql.parts import EPOCH, LIVING, STATE, STATE_FROM, insert_into, place_of

# A session with the place of its leaf: what every operation starts from, in one statement. What a read asks for
# next comes with it, so that it takes one round trip less.
SESSION_STATE = Statement(f"SELECT {STATE}{STATE_FROM}{LIVING}")
SESSION_AND_EPOCH = Statement(f"SELECT {STATE}, {EPOCH}{STATE_FROM}{LIVING}")
# The same, with whether the session has retracted it.
ENTRY_AND_MARK = Statement(
    f"SELECT {place_of('e', 'l')}, m.kind FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " LEFT JOIN marks m ON m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = 'retracted'"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
# Those of a JSON array of ids that are taken. CROSS JOIN keeps SQLite from looking each entry up in the array.
TAKEN_IDS = Statement(
    "SELECT e.id FROM json_each(:ids) AS asked CROSS JOIN entries e ON e.tree_id = :tree_id AND e.id = asked.value",
    "SELECT e.id FROM entries e WHERE e.tree_id = :tree_id"
    " AND e.id = ANY (ARRAY(SELECT value FROM json_array_elements_text(CAST(:ids AS json))))",
)
# Whether an entry is an ancestor of what the session holds: its leaf, its fork point, its lanes' fork points.
IS_HELD = Statement(
    "WITH RECURSIVE anchors(lane_id, depth) AS ("
    "  SELECT e.lane_id, e.depth FROM entries e WHERE e.tree_id = :tree_id AND e.id IN (:leaf, :forked_from_entry)"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM lanes l"
    "   WHERE l.owner_key = :session_key AND l.parent_lane IS NOT NULL"
    "), held(lane_id, depth) AS ("
    "  SELECT a.lane_id, a.depth FROM anchors a"
    "  UNION SELECT l.parent_lane, l.fork_depth FROM held h"
    "   JOIN lanes l ON l.tree_id = :tree_id AND l.lane_id = h.lane_id WHERE l.parent_lane IS NOT NULL"
    ") SELECT 1 FROM held h WHERE h.lane_id = :lane_id AND h.depth >= :depth LIMIT 1"
)
REQUEST = Statement(
    "SELECT r.operation, r.digest, r.result FROM requests r"
    " WHERE r.session_key = :session_key AND r.idempotency_key = :idempotency_key"
)
INSERT_REQUEST = insert_into("requests", ("session_key", "idempotency_key", "operation", "digest", "result"))
