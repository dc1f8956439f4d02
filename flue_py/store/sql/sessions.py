"""The statements on the rows of sessions."""

from __future__ import annotations

from flue_py.store.seam import Statement
from flue_py.store.sql.dialects import announcing, in_keys, per_dialect
from flue_py.store.sql.parts import insert_into

SESSION_COLUMNS = (
    "id", "scope", "key", "title", "kind", "forked_from_session", "forked_from_entry", "leaf", "revision", "metadata",
    "cwd", "config_path", "completed_at", "trashed_at", "entry_count", "message_count", "first_message",
    "spent_tokens", "spent_cost", "created_at", "updated_at", "auto_title", "unpriced_calls", "active_at",
    "unknown_calls", "session_key",
)  # fmt: skip
SESSION = ", ".join(f's."{name}"' for name in SESSION_COLUMNS)
INSERT_SESSION = insert_into(
    "sessions",
    (
        "session_key", "id", "tree_id", "scope", "key", "title", "kind", "task_depth", "forked_from_session",
        "forked_from_entry", "leaf", "revision", "metadata", "cwd", "config_path", "completed_at", "trashed_at",
        "entry_count", "message_count", "first_message", "spent_tokens", "spent_cost", "created_at", "updated_at",
        "auto_title", "unpriced_calls", "active_at", "unknown_calls",
    ),
)  # fmt: skip
SESSION_BY_ID = Statement(f"SELECT {SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL")
SESSION_BY_KEY = Statement(
    f"SELECT {SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)
SESSION_IDS = Statement("SELECT s.session_key, s.id FROM sessions s WHERE s.tree_id = :tree_id")
# For databases with several writers; both read again afterwards, because what they waited for may have changed.
LOCK_SESSION = Statement("SELECT s.session_key FROM sessions s WHERE s.id = :id FOR UPDATE")
UPDATE_REVISION = per_dialect(
    lambda dialect: (
        "UPDATE sessions SET revision = :revision, updated_at = :at WHERE session_key = :session_key"
        + announcing(dialect)
    )
)
UPDATE_TITLE = Statement("UPDATE sessions SET title = :title WHERE session_key = :session_key")
UPDATE_AUTO_TITLE = Statement("UPDATE sessions SET auto_title = :auto_title WHERE session_key = :session_key")
UPDATE_METADATA = Statement("UPDATE sessions SET metadata = :metadata WHERE session_key = :session_key")
UPDATE_COMPLETED = Statement("UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key")
INSERT_EDIT = insert_into(
    "session_edits", ("session_key", "revision", "what", "entry_id", "before", "after", "edited_by", "why", "at")
)
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_SESSIONS = per_dialect(
    lambda dialect: (
        f"SELECT s.session_key FROM sessions s WHERE {in_keys('s.session_key', dialect)}"
        " ORDER BY s.session_key FOR UPDATE"
    )
)
