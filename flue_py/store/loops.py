"""The event loop that a store runs on: asyncio or trio, whichever runs when it is opened."""

from __future__ import annotations

import asyncio
import sys

from flue_py.errors import WrongEventLoop
from flue_py.store.waiting import ON_LOOP, Loop, Promise, Waiting, given


class _Asyncio(Loop):
    """The functions of the running loop themselves, so that nothing is called that need not be."""

    name = "asyncio"
    waiting = ON_LOOP
    cancelled = asyncio.CancelledError

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.promise = loop.create_future
        self.post = loop.call_soon_threadsafe

    def is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


def is_trio() -> bool:
    """Return whether this is called in a task of trio. asyncio may run there as well, as its host."""
    # Where nobody has imported trio, none of its tasks run.
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def running_loop(location: str) -> Loop:
    """Return the loop that runs now. Raises `WrongEventLoop` where it is neither asyncio nor trio."""
    if is_trio():
        from flue_py.store.trio_loop import TrioLoop  # noqa: PLC0415 - trio is imported where it runs only

        return TrioLoop()
    try:
        return _Asyncio()
    except RuntimeError as error:
        raise WrongEventLoop(
            f"{location} cannot be opened: no event loop of asyncio or trio is running here; use flue_py.sync.open"
        ) from error


def require_asyncio(location: str) -> None:
    """Raise `WrongEventLoop` under trio, for what has no driver for it."""
    if is_trio():
        raise WrongEventLoop(
            f"{location} cannot be opened under trio: its driver is for asyncio; open an SQLite file by its path, "
            "or use flue_py.sync in a thread"
        )


def waiting_here() -> Waiting:
    """Return how calls wait on the loop that runs now, where no store is open."""
    return running_loop("a file").waiting


class Bell:
    """Wakes the tasks that wait for the next change. For the thread of the loop only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting = set[Promise[None]]()

    def ring(self) -> None:
        """Wake all who wait now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def wait(self) -> None:
        """Wait until it rings."""
        promise: Promise[None] = self._loop.promise()
        self._waiting.add(promise)
        try:
            await promise
        finally:
            self._waiting.discard(promise)

    async def wait_at_most(self, seconds: float) -> bool:
        """Wait until it rings, or until so many seconds have passed; return whether it rang."""
        with given(seconds) as scope:
            await self.wait()
        return not scope.cancelled_caught
