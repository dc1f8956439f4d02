"""The statements that an operation starts with: the session, what it sees, and what it did before."""

from __future__ import annotations

from typing import TypedDict

from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Row
from flue_py.store.sql.dialects import ENTRIES_BY_ID, statement
from flue_py.store.sql.parts import EPOCH, LIVING, STATE, STATE_FROM, place_of
from flue_py.store.sql.rows import position_of, state_of
from flue_py.store.sql.takes import Id

TreeSessionEntry = TypedDict("TreeSessionEntry", {"tree_id": int, "session_key": int, "entry_id": str})
TreeIds = TypedDict("TreeIds", {"tree_id": int, "ids": str})
IsHeld = TypedDict(
    "IsHeld",
    {
        "tree_id": int, "lane_id": int, "depth": int,
        "session_key": int, "leaf": str | None, "forked_from_entry": str | None,
    },
)  # fmt: skip
Request = TypedDict("Request", {"session_key": int, "idempotency_key": str})


def _with_epoch(row: Row) -> tuple[SessionState, int]:
    epoch, *state = row
    return state_of(state), int(epoch or 0)


def _marked_place(row: Row) -> tuple[Position, bool]:
    mark, *place = row
    return position_of(place), mark is not None


# A session with the place of its leaf: what every operation starts from, in one statement. What a read asks for
# next comes with it, so that it takes one round trip less.
SESSION_STATE = statement(Id, state_of)(f"SELECT {STATE}{STATE_FROM}{LIVING}")
SESSION_AND_EPOCH = statement(Id, _with_epoch)(f"SELECT {EPOCH}, {STATE}{STATE_FROM}{LIVING}")
# The same, with whether the session has retracted it.
ENTRY_AND_MARK = statement(TreeSessionEntry, _marked_place)(
    f"SELECT m.kind, {place_of('e', 'l')} FROM entries e"
    " JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " LEFT JOIN marks m ON m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = 'retracted'"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
# Those of a JSON array of ids that are taken.
TAKEN_IDS = statement(TreeIds, tuple[str])(f"SELECT e.id FROM {ENTRIES_BY_ID}")
# Whether an entry is an ancestor of what the session holds: its leaf, its fork point, its lanes' fork points.
IS_HELD = statement(IsHeld, tuple[int])(
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
REQUEST = statement(Request, tuple[str, bytes, str])(
    "SELECT r.operation, r.digest, r.result FROM requests r"
    " WHERE r.session_key = :session_key AND r.idempotency_key = :idempotency_key"
)
