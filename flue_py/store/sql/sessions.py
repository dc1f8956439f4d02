"""The statements on the rows of sessions."""

from __future__ import annotations

from dataclasses import fields
from typing import TypedDict

from flue_py.core.sessions import SessionInfo
from flue_py.store.seam import Nothing
from flue_py.store.sql.dialects import IN_KEYS, announced, statement
from flue_py.store.sql.takes import Id, Keys, Tree

ScopeKey = TypedDict("ScopeKey", {"scope": str, "key": str})
UpdateRevision = TypedDict("UpdateRevision", {"session_key": int, "revision": int, "at": int})
TreeId = TypedDict("TreeId", {"tree_id": int, "id": str})
UpdateTitle = TypedDict("UpdateTitle", {"session_key": int, "title": str | None})
UpdateAutoTitle = TypedDict("UpdateAutoTitle", {"session_key": int, "auto_title": str | None})
UpdateMetadata = TypedDict("UpdateMetadata", {"session_key": int, "metadata": str})
UpdateCompleted = TypedDict("UpdateCompleted", {"session_key": int, "completed_at": int | None})

# The fields of a session that its row names otherwise; times are in microseconds (``_us``), and end in ``_at`` there.
_NAMED = {"leaf_id": "leaf", "metadata_text": "metadata", "spent_picodollars": "spent_cost"}
SESSION_COLUMNS = tuple(_NAMED.get(each.name, each.name.replace("_us", "_at")) for each in fields(SessionInfo))
SESSION = ", ".join(f's."{name}"' for name in SESSION_COLUMNS)
SESSION_BY_ID = statement(Id, SessionInfo)(
    f"SELECT {SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL"
)
SESSION_BY_KEY = statement(ScopeKey, SessionInfo)(
    f"SELECT {SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)
SESSION_IDS = statement(Tree, tuple[int, str])("SELECT s.session_key, s.id FROM sessions s WHERE s.tree_id = :tree_id")
# Where the id of a deleted session is used again, its forks name none: the marks of the new one are not theirs to see.
FORGET_SOURCE = statement(TreeId, Nothing)(
    "UPDATE sessions SET forked_from_session = NULL WHERE tree_id = :tree_id AND forked_from_session = :id"
)
FORK_OF_ID = statement(TreeId, tuple[str])(
    "SELECT f.id FROM sessions f WHERE f.tree_id = :tree_id AND f.forked_from_session = :id LIMIT 1"
)
# For databases with several writers; both read again afterwards, because what they waited for may have changed.
LOCK_SESSION = statement(Id, tuple[int])("SELECT s.session_key FROM sessions s WHERE s.id = :id FOR UPDATE")
UPDATE_REVISION = announced(UpdateRevision)(
    "UPDATE sessions SET revision = :revision, updated_at = :at WHERE session_key = :session_key"
)
UPDATE_TITLE = statement(UpdateTitle, Nothing)("UPDATE sessions SET title = :title WHERE session_key = :session_key")
UPDATE_AUTO_TITLE = statement(UpdateAutoTitle, Nothing)(
    "UPDATE sessions SET auto_title = :auto_title WHERE session_key = :session_key"
)
UPDATE_METADATA = statement(UpdateMetadata, Nothing)(
    "UPDATE sessions SET metadata = :metadata WHERE session_key = :session_key"
)
UPDATE_COMPLETED = statement(UpdateCompleted, Nothing)(
    "UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key"
)
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_SESSIONS = statement(Keys, tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.session_key {IN_KEYS} ORDER BY s.session_key FOR UPDATE"
)
