"""Forks and task sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Self

from flue_py.core.jsontext import JsonValue, decode_object
from flue_py.core.log import Note
from flue_py.core.merging import PROVENANCE, same_entry
from flue_py.core.sessions import (
    STORED,
    LeafChoice,
    SessionInfo,
    Stored,
    TaskEnd,
    TaskLink,
    check_name,
    check_task_end,
)
from flue_py.core.spoken import message_text
from flue_py.core.turns import is_editable
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.sessions.arguments import checked_id, checked_leaf, checked_metadata, checked_seen
from flue_py.sessions.handle import Handle
from flue_py.sessions.making import new_fork, new_task


class Forking(Handle):
    """How a `Session` makes others."""

    __slots__ = ()

    async def fork(
        self,
        *,
        at: LeafChoice = STORED,
        before: str | None = None,
        id: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Self:
        """Return a new session of the same tree whose leaf is ``at`` (default: the stored leaf). It copies nothing.

        With ``before``, an entry that a person wrote (a message of the user, or a ``custom_message``), its leaf is that
        entry's parent, and its `draft` the text of the entry, to be changed and sent again. Scope, working directory
        and configuration path are those of this session unless given; it takes over no metadata. It sees the labels and
        pins of this session on the path they share, as they are at any time: those of its own win, and what it sees
        stays when this session is deleted. Raises `EntryNotFound`, `SessionExists`, `IdempotencyConflict`, and
        `InvalidArgument` for ``at`` with ``before`` and for an entry that no person wrote. O(1): one row; with ``id``,
        O(sessions of the tree).
        """
        checked_leaf(at, "at")
        seen = checked_seen(expected_leaf, expected_revision)
        check_name(idempotency_key, "idempotency_key")
        new = new_fork(self._info, self._limits, id=id, scope=scope, key=key, title=title, metadata=metadata, cwd=cwd)
        draft = None
        async with self._turn:
            if before is not None:
                if not isinstance(at, Stored):
                    raise InvalidArgument("fork takes either at= or before=")
                at, draft = await self._before(checked_id(before, "before"))
            info = await self._backend.fork(
                self._ref, at, new, scope=scope, expected=seen, idempotency_key=idempotency_key
            )
        return type(self)(self._backend, info, self._limits, self._pricer, draft)

    async def copy(
        self,
        *,
        id: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
    ) -> Self:
        """Return a new session with all that this one sees, the branches beside the path, too, in a tree of its own.

        Its entries have the same ids, parents and times, and its leaf, labels and pins are those of this session.
        Scope, working directory and configuration path are, too, unless given. Its metadata name this session as
        ``copiedFrom``. Nothing is paid again, and what the copied entries have cost is this session's. Raises
        `SessionExists`, and then nothing is made. One transaction, O(entries).
        """
        new = new_fork(self._info, self._limits, id=id, scope=scope, key=key, title=title, metadata=metadata, cwd=cwd)
        about = {**decode_object(new.metadata_text), PROVENANCE: self.id}
        new = replace(new, metadata_text=checked_metadata(about, self._limits))
        async with self._turn:
            marks = await self._backend.read_marks(self._ref)
            leaf = (await self._stored_info()).leaf_id
            entries = await self._backend.read_tree(self._ref)
            copies = [same_entry(entry, self.id) for entry in entries]
            there = {entry.id for entry in entries}
            seen = [mark for mark in marks if mark.kind != "retracted" and mark.entry_id in there]
            info = await self._backend.import_session(new, copies, leaf=leaf, marks=seen)
        return type(self)(self._backend, info, self._limits, self._pricer)

    async def _before(self, entry_id: str) -> tuple[str | None, str]:
        """Return the parent of an entry that a person wrote, and its text."""
        entry = await self._backend.get_entry(self._ref, entry_id)
        if entry is None:
            raise EntryNotFound(self.id, entry_id)
        if not is_editable(entry):
            raise InvalidArgument(
                f"before: entry {entry_id!r} is not a message of the user; fork(at=...) takes any entry"
            )
        return entry.parent_id, message_text(entry.fields)

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

        Its metadata name its ``parentSession`` (this session's id), ``taskId`` and ``depth``, whatever is given under
        these names; those of this session name it among their ``taskSessions`` (see `SessionInfo.metadata`). The link
        says ``running`` until `end_task`. The task is deleted with its parent. Raises `TaskDepthExceeded` at more than
        4 levels (see `Limits`) below a session that is no task, `SessionExists`, `IdempotencyConflict`. O(1).
        """
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        new = new_task(self._info, self._limits, task_id=task_id, key=key, title=title, metadata=metadata, cwd=cwd)
        depth = self._limits.task_depth
        create = partial(self._backend.create_task, self._ref, task_id, new, expected=seen, max_depth=depth)
        info = await self._commit(partial(create, idempotency_key=idempotency_key), partial(self._note_task, task_id))
        return type(self)(self._backend, info, self._limits, self._pricer)

    async def end_task(
        self,
        status: TaskEnd,
        *,
        summary: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Note how this task ended, ``"done"`` or ``"failed"``, and what came of it; return the session's row.

        The links of its parents say so from then on (`task_links`), and ``completed_us`` when, in one transaction. The
        same call again changes nothing; another end takes the place of the first, whose words the parents' logs keep.
        Raises `InvalidArgument` for a session that is no session's task, and for a summary of more than 20,000
        characters. O(parents).
        """
        check_task_end(status, summary)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        work = partial(self._backend.end_task, self._ref, status, summary=summary, expected=seen, note=note)
        return await self._commit(work, self._note_row)

    async def task_links(self) -> list[TaskLink]:
        """Return the links to task sessions, in the order they were made. A link outlives its child."""
        async with self._turn:
            return await self._backend.task_links(self._ref)

    async def task_parents(self) -> list[TaskLink]:
        """Return the links that point to this session, by parent id."""
        async with self._turn:
            return await self._backend.task_parents(self._ref)
