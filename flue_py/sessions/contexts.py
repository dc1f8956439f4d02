"""What the model sees of a session."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import MESSAGE
from flue_py.core.pending import PendingTurn, pending_in
from flue_py.core.projection import ContextEntry, context_of
from flue_py.core.sessions import STORED, LeafChoice, Stored
from flue_py.core.settings import PathSettings
from flue_py.sessions.arguments import checked_end, checked_leaf
from flue_py.sessions.handle import KnownContext
from flue_py.sessions.reading import Reading


class Contexts(Reading):
    """The context of a `Session`."""

    __slots__ = ()

    async def build_context_entries(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[ContextEntry]:
        """Return what the model sees, in order, with the entry behind each item.

        The faithful projection of the active path, and of nothing else: the same leaf gives the same items, in
        every process. With ``limit``, the last of these items, at most so many: the summary of a compaction, which
        comes first, is among them only where all the others are. As in `get_active_path`, they never begin between a
        tool call and its result.

        O(kept entries + forks on the path); one point read and a list copy where nothing changed. With ``limit``:
        O(entries behind the items + forks on the path), plus what lies between its results and their calls. Raises
        `EntryNotFound` for a ``leaf`` the session does not see, `InvalidArgument` for a ``limit`` below 1.
        """
        if limit is not None:
            return list(await self._context_end(limit, leaf))
        return list((await self._read_context(leaf, is_base=True)).items)

    async def build_context(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[JsonObject]:
        """Return the messages the model sees as JSON objects, fresh at each call and the caller's to change.

        With ``limit``, the last of them, at most so many, which begin and cost as `build_context_entries` says. Raises
        as that does.
        """
        checked_leaf(leaf)
        if limit is not None:
            return [item.data for item in await self._context_end(limit, leaf)]
        async with self._turn:
            read = await self._backend.read_messages(self._ref, leaf=leaf)
            self._note_read(read, leaf)
            return read.messages

    async def _context_end(self, limit: int, leaf: LeafChoice) -> Sequence[ContextEntry]:
        checked_leaf(leaf)
        checked_end(limit)
        async with self._turn:
            read = await self._backend.read_context_end(self._ref, limit, leaf=leaf)
            self._note_read(read, leaf)
            return read.items

    async def latest_compaction(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last compaction on the path, or None. The cost of the context."""
        return (await self._read_context(leaf)).compaction

    async def latest_assistant(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last assistant message on the path, or None. Usually the cost of the context."""
        context = await self._read_context(leaf)
        found = _last_assistant(context.tail)
        if found is None and context.compaction is not None:
            found = _last_assistant(await self.get_active_path(leaf=context.stamp.leaf_id))
        return found

    async def pending(self, *, leaf: LeafChoice = STORED) -> PendingTurn:
        """Return what the last turn of the context owes: the results of tool calls, an answer of the model, or nothing.

        For a program that goes on after another one died: it runs ``calls``, by their ids, names and arguments, or asks
        the model to answer ``unanswered``. A failed or aborted answer counts as none. Raises `EntryNotFound`. The cost
        of the context.
        """
        return pending_in((await self._read_context(leaf)).items)

    async def _settings_of(self, known: KnownContext) -> PathSettings:
        """Return what `settings` does at the leaf of a context: once, since the path to it never changes."""
        if not known.settings:
            known.settings.append(await self.settings(leaf=known.stamp.leaf_id))
        return known.settings[0]

    async def _read_context(self, leaf: LeafChoice, *, is_base: bool = False) -> KnownContext:
        """Return the context; ``is_base`` says that the caller is about to answer it, and builds on it from here on."""
        checked_leaf(leaf)
        async with self._turn:
            known = self._context
            read = await self._backend.read_context(self._ref, leaf=leaf, unless=None if known is None else known.stamp)
            if is_base:
                self._note_read(read, leaf)
            if read.entries is None and known is not None:
                return known
            tail = read.entries or ()
            items = context_of(tail, read.compaction)
            context = KnownContext(read.stamp, items, read.compaction, tail)
            if isinstance(leaf, Stored):
                self._context = context
            return context


async def shown_context(session: Contexts) -> KnownContext:
    """Return the context for who looks at it and answers nothing: the session builds on what it built on before."""
    return await session._read_context(STORED)  # noqa: SLF001 - public, it would be a method of every session


def _last_assistant(entries: Sequence[Entry]) -> Entry | None:
    """Return the last assistant message of the end of a path; pinned entries from before the end do not count."""
    depth = None
    for entry in reversed(entries):
        if depth is not None and entry.depth != depth - 1:
            break
        depth = entry.depth
        if entry.kind == MESSAGE and entry.role == "assistant":
            return entry
    return None
