"""Sessions that are to be made, from what callers pass: alike for `Store`, `Session` and a batch."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.jsontext import JsonValue
from flue_py.core.limits import Limits
from flue_py.core.sessions import NewSession, SessionInfo, check_label, check_name, check_new_name
from flue_py.errors import InvalidArgument
from flue_py.sessions.arguments import checked_metadata


def checked_root(new: NewSession) -> NewSession:
    """Return a session of its own unchanged. Raises `InvalidArgument` for a key or scope that none can have."""
    check_new_name(new.key, "key")
    check_new_name(new.scope, "scope")
    return new


def new_fork(
    source: SessionInfo,
    limits: Limits,
    *,
    id: str | None,
    scope: str | None,
    key: str | None,
    title: str | None,
    metadata: Mapping[str, JsonValue] | None,
    cwd: str | None,
) -> NewSession:
    """Return a fork: scope and working directory are those of its source unless given.

    Raises `InvalidArgument`, and `InvalidEntry` for metadata that JSON cannot hold.
    """
    check_new_name(key, "key")
    check_new_name(id, "id")
    check_name(scope, "scope")
    check_label(cwd, "cwd")
    return NewSession(
        key,
        title,
        source.scope if scope is None else scope,
        checked_metadata(metadata, limits),
        source.cwd if cwd is None else cwd,
        source.config_path,
        id,
    )


def new_task(
    parent: SessionInfo,
    limits: Limits,
    *,
    task_id: str,
    key: str | None,
    title: str | None,
    metadata: Mapping[str, JsonValue] | None,
    cwd: str | None,
) -> NewSession:
    """Return a task session, in the scope of its parent. Raises as `new_fork`, and if ``task_id`` is not a name."""
    check_new_name(task_id, "task_id")
    check_new_name(key, "key")
    if task_id is None:
        raise InvalidArgument("task_id: should be a string, not None")
    check_label(cwd, "cwd")
    return NewSession(key, title, parent.scope, checked_metadata(metadata, limits), cwd or parent.cwd)
