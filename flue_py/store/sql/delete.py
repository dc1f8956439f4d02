"""The statements of a deletion."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.documents import IMPORTED_FILES
from flue_py.core.lanes import Hold, Lane
from flue_py.core.sessions import ScopeContents
from flue_py.store.seam import Nothing
from flue_py.store.sql import dialects
from flue_py.store.sql.dialects import IN_KEYS, IN_TAIL, PLACE_IN, TAILS, announced, statement
from flue_py.store.sql.takes import Keys, Scope, TreeLane

Tails = TypedDict("Tails", {"tails": str})
HandOverLane = TypedDict("HandOverLane", {"tree_id": int, "lane_id": int, "owner_key": int})
TreeBlob = TypedDict("TreeBlob", {"tree_id": int, "sha256": bytes})

_LANE = "l.tree_id, l.lane_id, l.owner_key, l.parent_lane, l.fork_depth"
DOOMED_LANES = statement(Keys, Lane)(f"SELECT {_LANE} FROM lanes l WHERE l.owner_key {IN_KEYS}")
CHILD_LANES = statement(Keys, Lane)(
    f"SELECT {_LANE} FROM lanes p JOIN lanes l ON l.tree_id = p.tree_id AND l.parent_lane = p.lane_id"
    f" WHERE p.owner_key {IN_KEYS}"
)


def _held_by(column: str) -> str:
    entry = f"FROM entries e WHERE e.tree_id = s.tree_id AND e.id = s.{column}"
    return (
        f"SELECT s.tree_id, (SELECT e.lane_id {entry}) AS lane_id, (SELECT e.depth {entry}) AS depth, s.session_key"
        f" FROM sessions s WHERE s.{column} IS NOT NULL AND NOT s.session_key {IN_KEYS} AND s.tree_id IN"
        f" (SELECT d.tree_id FROM sessions d WHERE d.session_key {IN_KEYS})"
    )


# Where other sessions hold on to the lanes: with their leaf, or the entry they were forked from. (An entry is looked
# up for each session; joined, PostgreSQL would read the whole tree.)
HOLDS = statement(Keys, Hold)(
    "SELECT h.tree_id, h.lane_id, h.depth, h.session_key"
    f" FROM ({_held_by('leaf')} UNION ALL {_held_by('forked_from_entry')}) h"
    " JOIN lanes l ON l.tree_id = h.tree_id AND l.lane_id = h.lane_id"
    f" WHERE l.owner_key {IN_KEYS}"
)
# What the ends of lanes hold: how many entries per blob (None: those without one), for each tree.
TAILS_CONTENT = statement(Tails, tuple[int, bytes | None, int])(
    f"SELECT e.tree_id, e.blob, COUNT(*) FROM ({TAILS}) t JOIN entries e ON {IN_TAIL} GROUP BY e.tree_id, e.blob"
)
# The same of what it deletes, where SQLite counts each entry by itself.
DELETE_TAILS = statement(Tails, tuple[int, bytes | None, int])(dialects.DELETE_TAILS)
DELETE_TAIL_ATTACHMENTS = statement(Tails, tuple[int, bytes])(dialects.DELETE_TAIL_ATTACHMENTS)
HAND_OVER_LANE = statement(HandOverLane, Nothing)(
    "UPDATE lanes SET owner_key = :owner_key WHERE tree_id = :tree_id AND lane_id = :lane_id"
)
DELETE_LANE = statement(TreeLane, Nothing)("DELETE FROM lanes WHERE tree_id = :tree_id AND lane_id = :lane_id")
LOCK_BLOB = statement(TreeBlob, tuple[int])(
    "SELECT b.size FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256 FOR UPDATE"
)
DELETE_UNUSED_BLOB = statement(TreeBlob, Nothing)(
    "DELETE FROM blobs WHERE tree_id = :tree_id AND sha256 = :sha256 AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.blob = :sha256 AND e.blob IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = :tree_id AND a.sha256 = :sha256)"
)
# By these an import knows that a session was deleted here (what others have paid is remembered anyway).
_IMPORTED = f"FROM sessions s WHERE s.session_key {IN_KEYS} AND {PLACE_IN}(s.metadata, '\"imported\"') > 0"
NOTE_IMPORTED = statement(Keys, Nothing)(
    "INSERT INTO ledger_sessions (session_key, session_id, tree_id, project)"
    f" SELECT s.session_key, s.id, s.tree_id, NULLIF(s.cwd, '') {_IMPORTED} ON CONFLICT DO NOTHING"
)
IMPORTED_AMONG = statement(Keys, tuple[str, str])(f"SELECT s.id, s.scope {_IMPORTED}")
# Files that imports remember are no files of the user's.
SCOPE_CONTENTS = statement(Scope, ScopeContents)(
    "SELECT (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'memory'),"
    f" (SELECT COUNT(*) FROM documents d WHERE d.scope = :scope AND d.kind = 'file' AND d.space <> '{IMPORTED_FILES}'),"
    " (SELECT COUNT(*) FROM budgets b WHERE b.scope = :scope), (SELECT COUNT(*) FROM ledger g WHERE g.scope = :scope)"
)
# Which sessions were deleted is remembered of all scopes in one, and stays.
DELETE_DOCUMENTS = statement(Scope, Nothing)(
    f"DELETE FROM documents WHERE scope = :scope AND (space <> '{IMPORTED_FILES}' OR project = '')"
)
FORGET_AGENTS = statement(Scope, Nothing)("UPDATE ledger SET agent = NULL WHERE scope = :scope AND agent IS NOT NULL")
# A session that is gone and paid nothing has no scope any more, and nobody asks for its folder.
FORGET_FOLDERS = statement(Scope, Nothing)(
    "UPDATE ledger_sessions SET project = NULL WHERE project IS NOT NULL AND (session_key IN"
    " (SELECT g.session_key FROM ledger g WHERE g.scope = :scope) OR (NOT EXISTS"
    " (SELECT 1 FROM ledger g WHERE g.session_key = ledger_sessions.session_key) AND NOT EXISTS"
    " (SELECT 1 FROM sessions s WHERE s.session_key = ledger_sessions.session_key)))"
)
DELETE_SESSIONS = announced(Keys)(f"DELETE FROM sessions WHERE session_key {IN_KEYS}")
