"""What a session has: the active path, single entries, the whole tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from flue_py.core.entries import Entry
from flue_py.core.sessions import STORED, LeafChoice, Stored
from flue_py.core.settings import PathSettings
from flue_py.errors import AmbiguousId, EntryNotFound
from flue_py.sessions.arguments import (
    checked_end,
    checked_flag,
    checked_id,
    checked_ids,
    checked_kind_name,
    checked_leaf,
    checked_limit,
    checked_place,
    checked_prefix,
    optional,
)
from flue_py.sessions.handle import Handle, KnownPath

_AMBIGUOUS = 6
_MATCHES = 64


class Reading(Handle):
    """The entries of a `Session`."""

    __slots__ = ()

    async def get_active_path(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[Entry]:
        """Return the entries from root to leaf; with ``limit``, the last of them, at most so many.

        A ``limit`` counts entries of every kind, and never takes a tool's result without its call: where it would cut
        in between, fewer entries are returned, from the next place on that divides no call and result. Only where
        there is no such place, because what the path ends with is longer than ``limit``, that is returned whole.

        O(path); one point read where nothing changed. With ``limit``: O(limit + forks on the path), however long the
        path, plus what lies between its results and their calls. Raises `EntryNotFound` for a ``leaf`` the session
        does not see, `InvalidArgument` for a ``limit`` below 1.
        """
        checked_leaf(leaf)
        if limit is not None:
            return await self._path_end(checked_end(limit), leaf)
        async with self._turn:
            known = self._path
            read = await self._backend.read_path(self._ref, leaf=leaf, unless=None if known is None else known.stamp)
            if read.entries is None:
                return list(known.entries) if known else []
            entries = list(read.entries)
            if isinstance(leaf, Stored):
                self._path = KnownPath(read.stamp, entries)
            return list(entries)

    async def _path_end(self, limit: int, leaf: LeafChoice) -> list[Entry]:
        async with self._turn:
            read = await self._backend.read_path_end(self._ref, limit, leaf=leaf)
            return list(read.entries or ())

    async def get_active_path_since(self, since: str | None, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the path's entries after ``since``; all for None, none where it is not on the path.

        O(entries returned + forks on the path).
        """
        checked_place(since, "since")
        checked_leaf(leaf)
        async with self._turn:
            read = await self._backend.read_path_since(self._ref, since, leaf=leaf)
            return list(read.entries or ())

    async def turns(self, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the user messages of the path, root to leaf: the turns that `rewind` counts.

        What programs wrote in the user's name (commands, contexts, reminders) begins no turn.
        """
        checked_leaf(leaf)
        async with self._turn:
            return await self._backend.read_turns(self._ref, leaf=leaf)

    async def settings(self, *, leaf: LeafChoice = STORED) -> PathSettings:
        """Return the model and the thinking level that the path has at its leaf, or at another; a branch has its own.

        The thinking level is that of the last ``thinking_level_change``; the model, with its provider, that of the last
        answer or ``model_change``, whichever came later. None where the path says nothing. O(entries since the last
        answer or change of model + forks on the path). Raises `EntryNotFound`.
        """
        checked_leaf(leaf)
        async with self._turn:
            return await self._backend.read_settings(self._ref, leaf=leaf)

    async def is_ancestor(self, entry_id: str, *, of: str) -> bool:
        """Return whether ``entry_id`` is ``of`` or an ancestor of it. Raises `EntryNotFound` for either."""
        checked_id(entry_id, "entry_id")
        checked_id(of, "of")
        async with self._turn:
            return await self._backend.is_ancestor(self._ref, entry_id, of)

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return an entry the session sees, on the path or off it, or None. One point read."""
        checked_id(entry_id, "entry_id")
        async with self._turn:
            return await self._backend.get_entry(self._ref, entry_id)

    async def get_entries(self, ids: Iterable[str]) -> list[Entry | None]:
        """Return the entries with these ids, in the order given, as many as ids; None for one it does not see.

        An id that is given twice is answered twice. O(ids), a statement for every 5,000. Raises `InvalidArgument` for
        what is not a list of ids.
        """
        asked = checked_ids(ids)
        async with self._turn:
            return await self._backend.get_entries(self._ref, asked)

    async def entries(
        self, *, kind: str | None = None, after: str | None = None, newest_first: bool = False, limit: int = 100
    ) -> list[Entry]:
        """Return a page of up to ``limit`` (1 to 1000) of the entries of `get_tree`: of all, or of one kind.

        They come in its order, or from the end with ``newest_first``. A page begins behind ``after``, the id of the
        last entry of the page before, which may have been retracted since; one that is not full is the last. Entries
        that are added meanwhile are met at the end.

        O(limit) for each branch the session made, however long it is. With ``kind``, O(entries behind ``after``),
        though not their payloads; compactions and exclusions are found by an index. Raises `EntryNotFound` for an
        ``after`` that the session never saw, `InvalidArgument` for what is no kind, and for another ``limit``.
        """
        optional(checked_kind_name, kind, "kind")
        checked_place(after, "after")
        checked_flag(newest_first, "newest_first")
        checked_limit(limit)
        async with self._turn:
            return await self._backend.read_entries(
                self._ref, kind=kind, after=after, newest_first=newest_first, limit=limit
            )

    async def children(self, entry_id: str | None) -> list[Entry]:
        """Return the entries that the session sees whose parent is ``entry_id``, in the order of `get_tree`.

        For None, the roots. Retracted entries are left out. O(children, those that only other sessions see included).
        Raises `EntryNotFound` for an entry the session does not see.
        """
        checked_place(entry_id, "entry_id")
        async with self._turn:
            return await self._backend.children(self._ref, entry_id)

    async def resolve_entry_id(self, prefix: str) -> str:
        """Return the id of the one entry the session sees whose id is, or begins with, ``prefix``.

        Of the parts of an imported row, ``7ce96d:1`` is the entry ``7ce96d...:1``, and ``7ce96d`` the one without a
        number. Raises `EntryNotFound`, `AmbiguousId`.
        """
        checked_prefix(prefix)
        row, colon, part = prefix.rpartition(":")
        async with self._turn:
            matches = await self._backend.match_entry_ids(self._ref, prefix, _MATCHES)
            if not matches and row and part.isdecimal():
                parts = await self._backend.match_entry_ids(self._ref, row, _MATCHES)
                matches = [entry_id for entry_id in parts if entry_id.endswith(colon + part)]
        if not matches:
            raise EntryNotFound(self.id, prefix)
        if len(matches) > 1 and matches[0] != prefix and not _is_row_of(matches[0], matches[1:]):
            raise AmbiguousId(prefix, tuple(matches[:_AMBIGUOUS]))
        return matches[0]

    async def get_tree(self) -> list[Entry]:
        """Return every entry the session sees, all branches: inherited ones root first, then its own as added.

        Retracted entries are left out. O(entries).
        """
        async with self._turn:
            return await self._backend.read_tree(self._ref)


def _is_row_of(row: str, others: Sequence[str]) -> bool:
    """Return whether the other ids, of which none was left out, are of parts of the same imported row."""
    return len(others) < _MATCHES - 1 and all(re.fullmatch(rf"{re.escape(row)}:\d+", other) for other in others)
