"""The change feed of a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from flue_py.core.sessions import Change
from flue_py.errors import StoreClosed
from flue_py.sessions.arguments import checked_limit, checked_revision
from flue_py.sessions.handle import Handle

_WATCH_PAGE = 100


class Watching(Handle):
    """The changes of a `Session`, as they come."""

    __slots__ = ()

    async def changes(self, *, after: int = 0, limit: int = 100) -> list[Change]:
        """Return up to ``limit`` (1 to 1000) revisions after ``after``, in order and gap-free.

        Each is whole. The append of an entry that was retracted later is kept. A fork's feed begins at its
        creation. Leaves the handle alone. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        checked_revision(after)
        async with self._turn:
            return await self._backend.changes(self._ref, after, limit)

    async def watch(self, *, after: int | None = None) -> AsyncGenerator[Change, None]:
        """Yield every change after a revision (default: the handle's), then each as it comes, from any process.

        Resume with the ``revision`` of the last change seen. Runs beside the handle's other calls, and leaves
        the handle alone. Ends when the store is closed; raises `SessionNotFound` once the session is deleted.
        """
        seen = self._revision if after is None else checked_revision(after)
        has_begun = False
        try:
            async with aclosing(self._backend.notifications(self._ref)) as woken:
                async for _ in woken:
                    has_begun = True
                    while page := await self._backend.changes(self._ref, seen, _WATCH_PAGE):
                        for change in page:
                            seen = change.revision
                            yield change
        except StoreClosed:
            if not has_begun:
                raise
