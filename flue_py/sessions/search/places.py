"""Where on the tree of its session an entry lies, and the command that shows it."""

from __future__ import annotations

import shlex

from flue_py.core.entries import Entry
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import SessionInfo
from flue_py.search.values import Place
from flue_py.store.backend import Backend


class Places:
    """Says where entries lie. What is asked of a session more than once is read once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: dict[int, frozenset[str] | None] = {}

    async def place_of(self, info: SessionInfo, entry: Entry | None) -> Place:
        """Return where an entry lies; None is a title. A few point reads."""
        if entry is None:
            return "title"
        if not await self._is_on_path(info, entry.id):
            return "abandoned"
        if info.session_key not in self._kept:
            self._kept[info.session_key] = await self._kept_ids(info)
        kept = self._kept[info.session_key]
        return "active" if kept is None or entry.id in kept else "compacted"

    async def _is_on_path(self, info: SessionInfo, entry_id: str) -> bool:
        if info.leaf_id is None:
            return False
        return entry_id == info.leaf_id or await self._backend.is_ancestor(info.ref, entry_id, info.leaf_id)

    async def _kept_ids(self, info: SessionInfo) -> frozenset[str] | None:
        """Return which entries the context is made of; None where nothing of the path was compacted away."""
        has_any = await self._backend.read_entries(
            info.ref, kind=COMPACTION, after=None, newest_first=True, limit=1, contents=False
        )
        if not has_any:
            return None
        read = await self._backend.read_context(info.ref)
        if read.entries is None or not any(entry.kind == COMPACTION for entry in read.entries):
            return None
        return frozenset(entry.id for entry in read.entries)


def command_to(info: SessionInfo, entry: Entry | None) -> str:
    """Return the command line that shows an entry, or a session."""
    words = ["flue-py", "show", info.id, *([] if entry is None else [entry.id])]
    return shlex.join(words)
