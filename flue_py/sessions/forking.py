"""Forks and task sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from flue_py.core.jsontext import JsonValue
from flue_py.core.sessions import STORED, LeafChoice, NewSession, TaskLink, check_label, check_name, check_new_name
from flue_py.errors import InvalidArgument
from flue_py.sessions.arguments import checked_leaf, checked_metadata, checked_seen
from flue_py.sessions.handle import Handle


class Forking(Handle):
    """How a `Session` makes others."""

    __slots__ = ()

    async def fork(
        self,
        *,
        at: LeafChoice = STORED,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Self:
        """Return a new session of the same tree whose leaf is ``at`` (default: the stored leaf). It copies nothing.

        It takes over scope, working directory and configuration path, and no metadata. Raises `EntryNotFound`,
        `SessionExists`, `IdempotencyConflict`. O(1): one row.
        """
        checked_leaf(at, "at")
        seen = checked_seen(expected_leaf, expected_revision)
        check_name(idempotency_key, "idempotency_key")
        check_new_name(key, "key")
        new = NewSession(
            key, title, self.scope, checked_metadata(metadata, self._limits), self._info.cwd, self._info.config_path
        )
        async with self._turn:
            info = await self._backend.fork(self._ref, at, new, expected=seen, idempotency_key=idempotency_key)
        return type(self)(self._backend, info, self._limits, self._pricer)

    async def create_task(
        self,
        *,
        task_id: str,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Self:
        """Return a task session of its own history, linked to this one; the same ``task_id``, the same session.

        Its metadata gets ``parentSession`` (this session's id), ``taskId`` and ``depth``. It is deleted with its
        parent. Raises `TaskDepthExceeded` at more than 4 levels (see `Limits`) below a session that is
        no task, `SessionExists`, `IdempotencyConflict`. O(1).
        """
        check_new_name(task_id, "task_id")
        check_new_name(key, "key")
        check_name(idempotency_key, "idempotency_key")
        if task_id is None:
            raise InvalidArgument("task_id: should be a string, not None")
        check_label(cwd, "cwd")
        seen = checked_seen(expected_leaf, expected_revision)
        new = NewSession(key, title, self.scope, checked_metadata(metadata, self._limits), cwd or self._info.cwd)
        depth = self._limits.task_depth
        async with self._turn:
            info = await self._backend.create_task(
                self._ref, task_id, new, expected=seen, idempotency_key=idempotency_key, max_depth=depth
            )
        return type(self)(self._backend, info, self._limits, self._pricer)

    async def task_links(self) -> list[TaskLink]:
        """Return the links to task sessions, in the order they were made. A link outlives its child."""
        async with self._turn:
            return await self._backend.task_links(self._ref)

    async def task_parents(self) -> list[TaskLink]:
        """Return the links that point to this session, by parent id."""
        async with self._turn:
            return await self._backend.task_parents(self._ref)
