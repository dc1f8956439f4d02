"""One connection that listens for all watchers of a store, and comes back when it is lost.

A watched session carries a shared advisory lock for as long as it is watched, by which its writers see that they
have somebody to notify (`dialects_sql.ANNOUNCEMENT`). The lock is taken before the watcher first looks: a writer whose
commit it might miss holds the lock exclusively until then. Beyond `MAX_LOCKED` sessions, since the server's table
of locks is not large, watchers look for themselves now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from flue_py.store.sql.dialects import CHANNEL, WATCH_SEED

if TYPE_CHECKING:
    import asyncpg

MAX_LOCKED = 256
POLL_SECONDS = 0.25
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_LOCK = f"SELECT pg_advisory_lock_shared(hashtextextended($1::text, {WATCH_SEED}))"
_UNLOCK = f"SELECT pg_advisory_unlock_shared(hashtextextended($1::text, {WATCH_SEED}))"


class Listener:
    """Wakes those who watch a session after each commit to it, by any program."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection[Any]]]) -> None:
        self._connect = connect
        self._connection: asyncpg.Connection[Any] | None = None
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._locked: set[str] = set()
        # A connection does one thing at a time.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_polling = False
        self._closed = False

    async def add(self, session_id: str) -> asyncio.Event:
        """Return an event that is set now, and whenever the session may have changed. Driver errors as they are."""
        event = asyncio.Event()
        event.set()
        async with self._turn:
            if self._connection is None:
                await self._listen()
            if session_id not in self._watchers and len(self._locked) < MAX_LOCKED:
                await self._lock(session_id)
            self._watchers.setdefault(session_id, set()).add(event)
            if session_id not in self._locked and not self._is_polling:
                self._is_polling = True
                self._start(self._poll())
        return event

    async def remove(self, session_id: str, event: asyncio.Event) -> None:
        """Forget a watcher."""
        async with self._turn:
            watchers = self._watchers.get(session_id, set())
            watchers.discard(event)
            if watchers:
                return
            self._watchers.pop(session_id, None)
            if session_id in self._locked:
                self._locked.discard(session_id)
                # A connection that is lost has lost its locks with it.
                with contextlib.suppress(Exception):
                    if self._connection is not None:
                        await self._connection.execute(_UNLOCK, session_id)

    async def close(self) -> None:
        """Wake everybody, for the last time, and let the connection go."""
        self._closed = True
        self._wake_all()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.remove_termination_listener(self._lost)
                with contextlib.suppress(Exception):
                    await connection.close(timeout=5)

    async def _listen(self) -> None:
        """Connect, listen, and lock again what is watched."""
        connection = await self._connect()
        try:
            # Watchers wait for a writer's commit, however long it takes.
            await connection.execute("SET lock_timeout = 0; SET statement_timeout = 0; SET idle_session_timeout = 0")
            await connection.add_listener(CHANNEL, self._notified)
            self._connection = connection
            for session_id in sorted(self._locked):
                await self._lock(session_id)
        except BaseException:
            self._connection = None
            connection.terminate()
            raise
        connection.add_termination_listener(self._lost)

    async def _lock(self, session_id: str) -> None:
        assert self._connection is not None
        await self._connection.execute(_LOCK, session_id)
        self._locked.add(session_id)

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        for event in self._watchers.get(str(payload), ()):
            event.set()

    def _lost(self, _connection: object) -> None:
        """Come back. What was committed meanwhile is found by looking, once the locks are held again."""
        self._connection = None
        if not self._closed:
            self._start(self._come_back())

    async def _come_back(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            async with self._turn:
                if self._connection is not None or not self._watchers:
                    break
                # Whatever keeps us away (the server is down, or starting), the watchers' own reads report it.
                with contextlib.suppress(Exception):
                    await self._listen()
                    break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._wake_all()

    async def _poll(self) -> None:
        while unlocked := self._watchers.keys() - self._locked:
            for session_id in unlocked:
                for event in self._watchers[session_id]:
                    event.set()
            await asyncio.sleep(POLL_SECONDS)
        self._is_polling = False

    def _wake_all(self) -> None:
        for watchers in self._watchers.values():
            for event in watchers:
                event.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
