"""A store in memory: the same SQLite, on one connection that dies with it, and without threads.

Nothing here waits for a disk or for another process, so each operation runs where it is called: on the event loop, or
on any thread (`open_memory_on_caller`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from functools import cache, partial
from typing import TypeVar

from flue_py.errors import StoreClosed, WrongEventLoop
from flue_py.store.backend import Backend
from flue_py.store.loops import Bell, running_loop
from flue_py.store.opener import Opener
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import IdTaken, Sources, Transaction
from flue_py.store.sqlite.base import RunnerOnSqlite
from flue_py.store.sqlite.file import ID_ATTEMPTS, no_new_id, translate, translated
from flue_py.store.sqlite.migrate import create_tables
from flue_py.store.sqlite.transaction import SqliteTransaction
from flue_py.store.sqlite.writer import roll_back
from flue_py.store.waiting import POLL_SECONDS, OnCaller

Result = TypeVar("Result")

MAX_KNOWN_STATES = 10_000
LOCATION = ":memory:"


def open_memory(sources: Sources) -> Backend:
    """Open a new, empty store in memory. About 1 ms."""
    return Backend(MemoryRunner(), sources)


def open_memory_on_caller(sources: Sources) -> Backend:
    """Open a new, empty store in memory for the threads that call, which needs no event loop. About 1 ms."""
    return Backend(CallerMemoryRunner(), sources)


@cache
def _empty_store() -> bytes:
    """Return the pages of a store without sessions. Making its tables takes five times as long as copying them."""
    with contextlib.closing(sqlite3.connect(LOCATION, isolation_level=None)) as connection:
        create_tables(connection)
        return connection.serialize()


def _copy_empty_store(target: sqlite3.Connection) -> None:
    # Copied once more: a database that was deserialized is full at 1 GiB.
    with contextlib.closing(sqlite3.connect(LOCATION)) as source:
        source.deserialize(_empty_store())
        source.backup(target)


class _InMemory(RunnerOnSqlite):
    """A database in memory, and transactions on it one after the other."""

    backend_name = "memory"
    location = LOCATION

    def __init__(self) -> None:
        self._opener = Opener()
        self._connection = sqlite3.connect(
            LOCATION, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        # Nothing is lost with a store in memory that nobody closes, so nobody has to be warned: Python 3.13 would.
        self._close = weakref.finalize(self, self._connection.close)
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA temp_store = MEMORY")
        with translated(LOCATION):
            _copy_empty_store(self._connection)
        self._states: dict[str, SessionState] = {}
        self._closed = False
        self._changes = 0

    async def size_bytes(self) -> int | None:
        return None

    def _write_again(self, work: Callable[[Transaction], Result]) -> Result:
        """Write, once more with other ids where one that was made is taken."""
        for _ in range(ID_ATTEMPTS - 1):
            with contextlib.suppress(IdTaken, sqlite3.IntegrityError):
                return self._write(work)
        try:
            return self._write(work)
        except (IdTaken, sqlite3.IntegrityError) as error:
            raise no_new_id(error, LOCATION) from error

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        if len(self._states) > MAX_KNOWN_STATES:
            self._states.clear()
        try:
            return self._run("BEGIN IMMEDIATE", partial(work, SqliteTransaction(self._connection, self._states)))
        except BaseException:
            self._states.clear()
            raise

    def _read(self, work: Callable[[Transaction], Result]) -> Result:
        return self._run("BEGIN", partial(work, SqliteTransaction(self._connection)))

    def _run(self, begin: str, work: Callable[[], Result]) -> Result:
        """Run work in a transaction. No generator: an interrupt would leave it open until its traceback is let go."""
        try:
            # An interrupt of the thread that calls may have come between a beginning and its end.
            roll_back(self._connection)
            try:
                self._connection.execute(begin)
                result = work()
                self._connection.execute("COMMIT")
            except BaseException:
                roll_back(self._connection)
                raise
            return result
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, MemoryError) as error:
            raise translate(error, LOCATION) from error

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        self._require_open()
        while not self._closed:
            seen = self._changes
            yield
            while not self._closed and self._changes == seen:
                await self._wait()

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until something may have changed."""

    def _require_open(self) -> None:
        self._opener.require_here(LOCATION)
        if self._closed:
            raise StoreClosed("the store in memory has been closed; open it again")


class MemoryRunner(_InMemory):
    """Runs transactions on a database in memory, on the event loop that opened it."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = running_loop(LOCATION)
        self.waiting = self._loop.waiting
        self._changed = Bell(self._loop)

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        result = self._write_again(work)
        self._notify()
        return result

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        self._require_open()
        return self._read(work)

    async def _wait(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        """Wake those who wait for a change."""
        self._changes += 1
        self._changed.ring()

    def _require_open(self) -> None:
        self._require_opener()
        super()._require_open()

    def _require_opener(self) -> None:
        self._opener.require_here(LOCATION)
        if not self._loop.is_here():
            raise WrongEventLoop("the store in memory was opened in another event loop; open it in this one")

    async def close(self) -> None:
        if not self._opener.is_here or self._closed:
            return
        self._require_opener()
        self._closed = True
        self._close()
        self._notify()


class CallerMemoryRunner(_InMemory):
    """The same for any thread: one at a time has the connection, and who watches looks now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: OnCaller = OnCaller()
        self._turn = threading.Lock()

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        def written() -> Result:
            result = self._write_again(work)
            self._changes += 1
            return result

        return self._in_turn(written)

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        return self._in_turn(partial(self._read, work))

    def _in_turn(self, function: Callable[[], Result]) -> Result:
        self._opener.require_here(LOCATION)
        self.waiting.require_outside()
        with self._turn:
            self._require_open()
            try:
                self.waiting.busy = threading.get_ident()
                return function()
            finally:
                self.waiting.busy = None

    async def _wait(self) -> None:
        await self.waiting.pause(POLL_SECONDS)

    async def close(self) -> None:
        if not self._opener.is_here:
            return
        self.waiting.require_outside()
        with self._turn:
            self._closed = True
            self._close()
