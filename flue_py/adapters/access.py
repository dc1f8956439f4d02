"""How an adapter gets at a store: a path, a URL or an open store, from whichever event loop or thread asks.

Frameworks make their sessions by a plain call, use another event loop for each run, and never say that they are done.
So a path or a URL is opened when it is first used, shared by all adapters of the process that name it, and closed with
the last of them. What they ask for runs on a worker thread; a store in memory answers at once. A store that the
caller has opened is used as it is, and stays open.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from os import PathLike, fspath
from typing import TypeAlias, TypeVar

import flue_py.sync
from flue_py.adapters.elsewhere import use_from_here
from flue_py.core import messages
from flue_py.errors import InvalidArgument, StoreClosed, WrongEventLoop, shown
from flue_py.homes import in_full
from flue_py.sessions.handle import Handle
from flue_py.sessions.store import Store
from flue_py.store.loops import is_trio
from flue_py.store.ops import append, marks, pins
from flue_py.store.seam import CommittedBeforeCancellation
from flue_py.store.waiting import ended
from flue_py.sync.twins import parts_of
from flue_py.sync.ways import OnThisThread, Way

Target: TypeAlias = "str | PathLike[str] | Store | flue_py.sync.Store"
"""The path of an SQLite file, ``":memory:"``, a URL as `flue_py.open` takes it, or a store that is open."""

Result = TypeVar("Result")
Handled = TypeVar("Handled", bound=Handle)
Work: TypeAlias = Callable[[Store], Coroutine[object, object, Result]]

_MEMORY = (":memory:", "memory://")

LOADED = (append, marks, messages, pins)
"""What the first write of a store needs: loaded with an adapter, since a framework goes on while it writes."""


class Access:
    """The store of one adapter object."""

    def __init__(self, target: Target) -> None:
        """Note which store is meant; nothing is opened yet. Raises `InvalidArgument` if it cannot be one. O(1)."""
        self._given: Store | None = None
        self._way: Way | None = None
        self._store: Store | None = None
        self._location = ""
        self._is_here = False
        self._is_closed = False
        self._lock = threading.Lock()
        self._release: Callable[[], object] | None = None
        if isinstance(target, flue_py.sync.Store):
            self._way, self._store = parts_of(target)
        elif isinstance(target, Store):
            self._given = target
            if not target.backend.waiting.needs_loop:
                self._way, self._store = OnThisThread("the store"), target
        elif isinstance(target, (str, PathLike)):
            self._location = _location(fspath(target))
            self._is_here = self._location in _MEMORY
        else:
            raise InvalidArgument(f"target: {shown(target)} is not a path, a URL or an open store")

    async def run(self, work: Work[Result]) -> Result:
        """Return what ``work`` returns, called with the store. Whoever is cancelled is so when it has ended.

        Raises what it raises, what `flue_py.open` raises, and `StoreClosed` after `close`.
        """
        self._require_open()
        if self._given is not None:
            return await work(self._given)
        if self._is_here:
            return self.run_blocking(work)
        return await _on_worker(partial(self.run_blocking, work))

    async def session(self, work: Work[Handled | None]) -> Handled | None:
        """Return the handle on a session that ``work`` returns, to be used where this is called.

        Unless the caller has opened the store for this event loop, what the handle asks for runs where `run` runs it.
        Raises as `run`.
        """
        found = await self.run(work)
        if found is not None and self._given is None and self._store is not None:
            use_from_here(found, self._store.backend, lambda function: self.run(lambda _: function()))
        return found

    def run_blocking(self, work: Work[Result]) -> Result:
        """Return what ``work`` returns, called with the store, and block this thread meanwhile.

        Raises as `run`, and `WrongEventLoop` for an open store whose event loop is elsewhere.
        """
        self._require_open()
        if self._way is None or self._store is None:
            self._open()
        assert self._way is not None
        assert self._store is not None
        return self._way.call(partial(work, self._store))

    def close(self) -> None:
        """Let go of the store: it is closed if it was opened here and nobody else uses it. Closing twice is nothing."""
        with self._lock:
            self._is_closed = True
            release, self._release = self._release, None
        if release is not None:
            release()

    async def aclose(self) -> None:
        """Close it as `close` does, without holding up the event loop."""
        if self._release is None or self._is_here:
            self.close()
        else:
            await _on_worker(self.close)

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("this has been closed; make another one")

    def _open(self) -> None:
        if self._given is not None:
            raise WrongEventLoop(
                "a blocking call cannot use a store that belongs to an event loop; give the path, or a store that was "
                "opened by flue_py.sync.open or with threads=False"
            )
        with self._lock:
            self._require_open()
            if self._store is None:
                opened = _opened(self._location)
                # Frameworks rarely close what they use: it is closed with the adapter's object, or with the process.
                self._release = weakref.finalize(self, _let_go, opened)
                self._way, self._store = opened.parts


class _Opened:
    """A store that is open, and how many use it."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.users = 1
        self.process = os.getpid()
        self.manager: AbstractContextManager[flue_py.sync.Store] = flue_py.sync.open(location)
        self.parts: tuple[Way, Store] = parts_of(self.manager.__enter__())
        self.identity = _identity(location)


_shared: dict[str, _Opened] = {}
_sharing = threading.RLock()


def _forget() -> None:
    """Forget all stores in a child of a fork: it may use none of them, and nobody there would free the lock."""
    global _sharing  # noqa: PLW0603 - a lock cannot be made free otherwise
    _sharing = threading.RLock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)


def _opened(location: str) -> _Opened:
    """Return the store at a place, which one more uses from now on."""
    if location in _MEMORY:
        return _Opened(location)
    with _sharing:
        found = _shared.get(location)
        # A file that has been replaced meanwhile is another store; who has the old one will be told by it.
        if found is not None and found.identity == _identity(location):
            found.users += 1
            return found
        _shared[location] = opened = _Opened(location)
        return opened


def _let_go(opened: _Opened) -> None:
    if opened.process != os.getpid():
        return
    with _sharing:
        opened.users -= 1
        if opened.users:
            return
        if _shared.get(opened.location) is opened:
            del _shared[opened.location]
    opened.manager.__exit__(None, None, None)


def _location(target: str) -> str:
    """Return what names a store in this process, whatever its working directory becomes."""
    is_path = target not in _MEMORY and "://" not in target
    return os.path.abspath(in_full(target)) if is_path and target else target


def _identity(location: str) -> tuple[int, int] | None:
    try:
        found = os.stat(location)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


async def _on_worker(function: Callable[[], Result]) -> Result:
    """Return what a function returns that blocks, called on a worker thread. It is never left running behind."""
    if is_trio():
        from anyio import to_thread  # noqa: PLC0415 - it takes 30 ms to load

        return await to_thread.run_sync(function)
    running = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        if running.cancelled():
            raise
        await ended(running)
        raise cancelled from running.exception() or CommittedBeforeCancellation(running.result())
