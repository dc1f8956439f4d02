"""The statements on the rows of sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypedDict

from flue_py.core.sessions import SessionHead, SessionInfo
from flue_py.core.task_names import NO_TASK_NAMES, TaskNames
from flue_py.store.seam import Nothing, Row
from flue_py.store.sql.dialects import IN_IDS, IN_KEYS, LINK_TO_ID_AS_JSON, LINKS_AS_JSON, announced, statement
from flue_py.store.sql.takes import Id, Ids, Keys, SessionScope, Tree

ScopeKey = TypedDict("ScopeKey", {"scope": str, "key": str})
UpdateRevision = TypedDict("UpdateRevision", {"session_key": int, "revision": int, "at": int})
TreeId = TypedDict("TreeId", {"tree_id": int, "id": str})
UpdateTitle = TypedDict("UpdateTitle", {"session_key": int, "title": str | None})
UpdateAutoTitle = TypedDict("UpdateAutoTitle", {"session_key": int, "auto_title": str | None})
UpdateMetadata = TypedDict("UpdateMetadata", {"session_key": int, "metadata": str})
UpdateCompleted = TypedDict("UpdateCompleted", {"session_key": int, "completed_at": int | None})

# The fields of a session that its row names otherwise; times are in microseconds (``_us``), and end in ``_at`` there.
_NAMED = {"leaf_id": "leaf", "metadata_text": "metadata", "spent_picodollars": "spent_cost"}
SESSION_COLUMNS = tuple(
    _NAMED.get(each.name, each.name.replace("_us", "_at")) for each in fields(SessionInfo) if each.name != "task_names"
)
_KIND = SESSION_COLUMNS.index("kind")
# What `session_of` reads. The links come along, since they are part of the metadata that are shown.
SESSION = ", ".join([*(f's."{name}"' for name in SESSION_COLUMNS), LINKS_AS_JSON])


def session_of(row: Row) -> SessionInfo:
    """Return the columns of `SESSION` as a session."""
    if row[-1] is None:
        return SessionInfo(*row[:-1])
    depth, parent, tasks = json.loads(row[-1])
    named = tuple((task_id, child_id) for _, task_id, child_id in sorted(tasks or ()))
    return SessionInfo(*(*row[:-1], replace(task_of(row[_KIND], depth, parent), tasks=named)))


def task_of(kind: str, depth: int, parent: Sequence[str] | None) -> TaskNames:
    """Return whose task a session of this kind and depth is, by the link to it: the parent's id and the task's."""
    if parent is None:
        return NO_TASK_NAMES
    parent_id, task_id = parent
    return TaskNames(parent=(parent_id, task_id), depth=depth if kind == "task" else None)


SESSION_BY_ID = statement(Id, session_of)(f"SELECT {SESSION} FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL")
SESSION_BY_KEY = statement(ScopeKey, session_of)(
    f"SELECT {SESSION} FROM sessions s WHERE s.scope = :scope AND s.key = :key AND s.key IS NOT NULL"
    " AND s.trashed_at IS NULL"
)
# Whether an id is taken, and by which link a session with that id would be found: links may be made before it.
ID_TAKEN = statement(Id, tuple[int | None, str | None])(
    f"SELECT (SELECT 1 FROM sessions s WHERE s.id = :id AND s.trashed_at IS NULL), {LINK_TO_ID_AS_JSON}"
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
UPDATE_SCOPE = statement(SessionScope, Nothing)("UPDATE sessions SET scope = :scope WHERE session_key = :session_key")
UPDATE_COMPLETED = statement(UpdateCompleted, Nothing)(
    "UPDATE sessions SET completed_at = :completed_at WHERE session_key = :session_key"
)
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_NAMED = statement(Ids, tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.id {IN_IDS} ORDER BY s.session_key FOR UPDATE"
)
LOCK_SESSIONS = statement(Keys, tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.session_key {IN_KEYS} ORDER BY s.session_key FOR UPDATE"
)

# Every session, those that were active last at the end: what a search compares with what its index knows.
SESSION_HEADS = statement(Nothing, SessionHead)(
    "SELECT s.session_key, s.id, s.revision, s.scope, s.cwd, s.entry_count, s.forked_from_session, s.updated_at"
    " FROM sessions s WHERE s.trashed_at IS NULL ORDER BY s.active_at, s.session_key"
)
