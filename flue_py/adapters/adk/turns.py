"""One after the other, in the order they came: calls on one session, from whichever event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Turns:
    """Whose turn it is, for each name. What nobody waits for takes no space."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    @asynccontextmanager
    async def of(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until all who asked for this name before are done. Whoever is cancelled meanwhile has no turn."""
        mine: Future[None] | None = None
        with self._lock:
            queue = self._waiting.get(name)
            if queue is None:
                self._waiting[name] = deque()
            else:
                queue.append(mine := Future())
        if mine is not None:
            try:
                await asyncio.wrap_future(mine)
            except BaseException:
                # The turn may have come just as the wait was given up: then it is the next one's.
                if not mine.cancel() and not mine.cancelled():
                    self._next(name)
                raise
        try:
            yield
        finally:
            self._next(name)

    def _next(self, name: Hashable) -> None:
        with self._lock:
            queue = self._waiting[name]
            while queue:
                following = queue.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            del self._waiting[name]
