"""Runners of transactions on SQLite: on threads, on the thread that calls, in memory, and for reading only."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from flue_py import errors
from flue_py.core.chain import UNKEYED, Chain
from flue_py.core.sessions import VerifyReport
from flue_py.db import ops, sql
from flue_py.db.backend import Backend
from flue_py.db.files import Part
from flue_py.db.ops.seals import over_seams
from flue_py.db.runner import (
    Backup,
    Bell,
    CommittedBeforeCancellation,
    Durability,
    IdTaken,
    Opener,
    Plan,
    Runner,
    SessionState,
    Sources,
    Transaction,
    running_loop,
    starting_threads,
    written,
)
from flue_py.db.schema import FORMAT_VERSION
from flue_py.db.sqlite.file import (
    BUSY_POLL_MS,
    ID_ATTEMPTS,
    OpenFile,
    Operation,
    Progress,
    Reader,
    ReadingConnection,
    SqliteTransaction,
    Stamps,
    StoreFile,
    check_magic,
    connect,
    connect_for_reading,
    copy_into,
    create_tables,
    file_size,
    format_of,
    no_new_id,
    require_not_inherited,
    require_not_lost,
    roll_back,
    stamps_of,
    translate,
    translated,
    warn_without_wal,
    why_not_writable,
    words_file,
)
from flue_py.db.waiting import POLL_SECONDS as WAITING_POLL_SECONDS
from flue_py.db.waiting import Loop, OnCaller, Promise, Waiting, shielded
from flue_py.lazy import lazy_module
from flue_py.system import Lock

if TYPE_CHECKING:
    from flue_py.core import trees
    from flue_py.core.erasure import Forgotten, Needles
    from flue_py.core.sessions import Problem
    from flue_py.core.trees import BackupReport
    from flue_py.db.runner import WordIndex
    from flue_py.db.sqlite import checks, words
else:
    # Most programs search nothing, and make no backup.
    trees = lazy_module("flue_py.core.trees")
    words = lazy_module("flue_py.db.sqlite.words")
    checks = lazy_module("flue_py.db.sqlite.checks")


# ---------------------------------------------------------------------------------------------------------------------
# What every runner on SQLite does in the same way.


class RunnerOnSqlite(Runner):
    """A runner whose database SQLite can check."""

    async def storage_problems(self) -> list[Problem]:
        return await self.read(lambda tx: ops.verify.storage_problems(tx, self.location))


class RunnerOnFile(RunnerOnSqlite):
    """A runner whose database is a file, which can be copied."""

    _place: Path
    """Its path from the root: the working directory may be another one later."""

    def __init__(self, path: Path, *, writes_beside: bool = True) -> None:
        self._path = path
        self._place = path.absolute()
        # Whether the store is open for writing, so that its index may be written, too.
        self._writes_beside = writes_beside
        self._opener = Opener()
        self._closed = False

    @property
    def location(self) -> str:
        return str(self._path)

    async def size_bytes(self) -> int | None:
        return file_size(self._path)

    def _require_open(self) -> None:
        self._require_opener()
        if self._closed:
            raise errors.StoreClosed(f"{self.location} has been closed; open it again")

    def _require_opener(self) -> None:
        self._opener.require_here(self.location)

    async def backup(self, wanted: Backup) -> BackupReport:
        return await back_up_while_waiting(self.waiting, self._path, wanted)

    @property
    def words_name(self) -> str:
        return str(words_file(self._place))

    async def words_location(self) -> str | None:
        path = words_file(self._place)
        return str(path) if path.exists() else None

    async def open_words(self, version: int, turn: AbstractAsyncContextManager[object]) -> WordIndex | None:
        if not self._writes_beside:
            return None
        opened: list[words.SqliteWords] = []
        try:
            async with turn:
                await self.waiting.finish(self.waiting.call(lambda: opened.append(self._opened_words(version))))
        except BaseException:
            # Who is cancelled meanwhile closes it: nobody else can.
            for index in opened:
                index.close()
            raise
        return words.WaitedWords(opened[0], self.waiting, turn, self._leave_words_open)

    @cached_property
    def _left_open(self) -> list[words.SqliteWords]:
        """The index as the last search has left it, if it has: opening its many tables takes longer than asking them.

        Threads take it out and put it back, which a list does at once.
        """
        return []

    def _opened_words(self, version: int) -> words.SqliteWords:
        with suppress(IndexError):
            left = self._left_open.pop()
            if left.is_current(self._place, version):
                return left
            left.close()
        return words.open_words(self._place, version)

    def _leave_words_open(self, index: words.SqliteWords) -> None:
        self._left_open.append(index)
        self.close_words(0 if self._closed else 1)

    def close_words(self, but: int = 0) -> None:
        """Let go of the index, as far as no search uses it; ``but`` so many connections."""
        with suppress(IndexError):
            while len(self._left_open) > but:
                self._left_open.pop().close()

    async def remove_words(self) -> None:
        self.close_words()
        await self.waiting.finish(self.waiting.call(partial(words.remove_words, self._place)))

    async def forget_deleted(self, needles: Needles, *, rebuild: bool) -> Forgotten:
        work = self.waiting.call(partial(checks.forget_deleted, self._place, needles, rebuild=rebuild))
        return await self.waiting.finish(work)

    async def forget_words(self, session_ids: Collection[str]) -> None:
        # Without the module, which most programs never need.
        if words_file(self._place).exists():
            await self.waiting.call(partial(words.forget_sessions, self._place, session_ids))


# ---------------------------------------------------------------------------------------------------------------------
# SQLite without threads: each transaction runs on the thread that asks for it, and blocks it.
#
# That saves two changes of thread for each operation, which is most of what a lone append takes. In exchange, nothing
# else happens on that thread meanwhile, and operations that many callers ask for at once are not committed together.
# Many threads may share a store; a lock lets one of them write at a time.

Result = TypeVar("Result")


def open_on_caller(
    path: str | Path,
    *,
    sources: Sources,
    durability: Durability = "full",
    busy_timeout: float = 30.0,
    create: bool = True,
) -> Backend:
    """Open a SQLite file, as `open_sqlite` does, for the threads that call. Blocks. Raises as that does."""
    return _start_on_caller(StoreFile(Path(path), durability, busy_timeout), sources, create=create)


def _start_on_caller(file: StoreFile, sources: Sources, *, create: bool) -> Backend:
    """Return a store on a file that is not open yet. Blocks. Raises as opening the file does."""
    file.open(create=create)
    warn_without_wal(file.journal, file.path)
    return Backend(CallerRunner(file), sources)


class CallerRunner(RunnerOnFile):
    """Runs transactions on a SQLite file that is open, on the thread that asks. Nothing but `wakeups` is suspended."""

    backend_name = "sqlite"

    def __init__(self, file: StoreFile) -> None:
        super().__init__(file.path, writes_beside=file.is_writable)
        self.waiting: OnCaller = OnCaller()
        self._file = file
        self._writing = Lock()
        self._watching = Lock()
        self._pool = Lock()
        self._idle: list[Reader] = []

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        self._file.require_writable()
        self.waiting.require_outside()
        operation = Operation(work)
        with self._writing:
            if self._closed:
                self._require_open()
            try:
                self.waiting.busy = threading.get_ident()
                self._file.write((operation,))
            finally:
                self.waiting.busy = None
            self._file.look_after_log()
        return operation.outcome()

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        operation = Operation(work)
        reader = self._take_reader()
        try:
            reader.run(operation)
        finally:
            self._give_back(reader)
        return operation.outcome()

    def _take_reader(self) -> Reader:
        """Return a reader for this thread alone: as many are connected as threads have read at once."""
        self._require_opener()
        with self._pool:
            self._require_open()
            return self._idle.pop() if self._idle else self._file.reader()

    def _give_back(self, reader: Reader) -> None:
        with self._pool:
            if not self._closed:
                self._idle.append(reader)
                return
        reader.close()

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        seen = self._version()
        # Beyond here the store was open: one that closes now, between any two steps, ends the watching.
        with suppress(errors.StoreClosed):
            while True:
                yield
                while (version := self._version()) == seen:
                    await self.waiting.pause(WAITING_POLL_SECONDS)
                seen = version

    def _version(self) -> object:
        """Return a value that differs after each commit, here or in another process."""
        self._require_opener()
        with self._watching:
            self._require_open()
            return self._file.version()

    async def close(self) -> None:
        # What a forked child inherits is its parent's to close.
        if not self._opener.is_here:
            return
        self.waiting.require_outside()
        with self._writing, self._watching, self._pool:
            if self._closed:
                return
            self._closed = True
            self.close_words()
            for reader in self._idle:
                reader.close()
            # The writer lets go last: only it can move the log into the database.
            self._file.close()


# ---------------------------------------------------------------------------------------------------------------------
# A store in memory: the same SQLite, on one connection that dies with it, and without threads.
#
# Nothing here waits for a disk or for another process, so each operation runs where it is called: on the event loop, or
# on any thread (`open_memory_on_caller`).

MAX_KNOWN_STATES = 10_000
LOCATION = ":memory:"


def open_memory(sources: Sources) -> Backend:
    """Open a new, empty store in memory. About 1 ms."""
    return Backend(MemoryRunner(), sources)


def open_memory_on_caller(sources: Sources) -> Backend:
    """Open a new, empty store in memory for the threads that call, which needs no event loop. About 1 ms."""
    return Backend(MemoryRunner(on_caller=True), sources)


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


class MemoryRunner(RunnerOnSqlite):
    """Runs transactions on a database in memory, one after the other: on the event loop that opened it, where a commit
    wakes those who watch, or (``on_caller``) on any thread, where they look now and then.
    """

    backend_name = "memory"
    location = LOCATION

    def __init__(self, *, on_caller: bool = False) -> None:
        self._opener = Opener()
        self._caller: OnCaller | None = None
        self._loop: Loop | None = None
        self._changed: Bell | None = None
        if on_caller:
            self.waiting = self._caller = OnCaller()
        else:
            self._loop = running_loop(LOCATION)
            self.waiting = self._loop.waiting
            self._changed = Bell(self._loop)
        self._turn = Lock()
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

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        return self._in_turn(partial(self._write_again, work))

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        return self._in_turn(lambda: self._run("BEGIN", partial(work, SqliteTransaction(self._connection))))

    def _in_turn(self, function: Callable[[], Result]) -> Result:
        self._require_opener()
        caller = self._caller
        if caller is None:
            self._require_open()
            return function()
        caller.require_outside()
        with self._turn:
            self._require_open()
            try:
                caller.busy = threading.get_ident()
                return function()
            finally:
                caller.busy = None

    def _write_again(self, work: Callable[[Transaction], Result]) -> Result:
        """Write, once more with other ids where one that was made is taken."""
        attempts = 0
        while True:
            try:
                result = self._write(work)
            except (IdTaken, sqlite3.IntegrityError) as error:
                attempts += 1
                if attempts == ID_ATTEMPTS:
                    raise no_new_id(error, LOCATION) from error
            else:
                self._notify()
                return result

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        if len(self._states) > MAX_KNOWN_STATES:
            self._states.clear()
        try:
            return self._run("BEGIN IMMEDIATE", partial(work, SqliteTransaction(self._connection, self._states)))
        except BaseException:
            self._states.clear()
            raise

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

    def _notify(self) -> None:
        """Wake those who wait for a change."""
        self._changes += 1
        if self._changed is not None:
            self._changed.ring()

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        self._require_opener()
        self._require_open()
        while not self._closed:
            seen = self._changes
            yield
            while not self._closed and self._changes == seen:
                if self._changed is None:
                    await self.waiting.pause(WAITING_POLL_SECONDS)
                else:
                    await self._changed.wait()

    def _require_opener(self) -> None:
        self._opener.require_here(LOCATION)
        if self._loop is not None and not self._loop.is_here():
            raise errors.WrongEventLoop("the store in memory was opened in another event loop; open it in this one")

    def _require_open(self) -> None:
        if self._closed:
            raise errors.StoreClosed("the store in memory has been closed; open it again")

    async def close(self) -> None:
        if not self._opener.is_here or (self._closed and self._caller is None):
            return
        self._require_opener()
        if self._caller is not None:
            self._caller.require_outside()
        with self._turn:
            self._closed = True
            self._close()
            self._notify()


# ---------------------------------------------------------------------------------------------------------------------
# The SQLite backend: one writer thread with group commit, a small pool of readers, one hop per transaction.
#
# Operations waiting for the writer are committed together, so that a hundred sessions share one fsync (see `writer`).

MAX_BATCH = 256
READERS = 2
POLL_SECONDS = 0.1
SHORT_SECONDS = 0.0005
"""How long a write may take for the next one to be made on the event loop: going to a thread and back takes 0.1 ms."""


async def open_sqlite(
    path: str | Path,
    *,
    sources: Sources,
    durability: Durability = "full",
    busy_timeout: float = 30.0,
    create: bool = True,
) -> Backend:
    """Open a SQLite file, creating and migrating it as needed. O(1) once it is of the current format.

    ``durability="full"`` waits for the disk at each commit; ``"normal"`` survives a killed process, not a power
    cut. ``busy_timeout`` is how many seconds to wait for other processes. Raises `NotAStore`, `FormatTooNew`,
    `StoreUnavailable`, `StoreBusy`.
    """
    runner = SqliteRunner(StoreFile(Path(path), durability, busy_timeout))
    await runner.start(create=create)
    return Backend(runner, sources)


class _Job(Operation[Result]):
    """An operation on its way through a thread, and the future its caller waits for."""

    __slots__ = ("_unclaimed", "ended", "future", "is_done")

    def __init__(self, work: Callable[[Transaction], Result], loop: Loop) -> None:
        super().__init__(work)
        self.future: Promise[Result] = loop.promise()
        self.ended: Promise[None] | None = None
        self.is_done = False
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return True to the first who asks: the thread that runs the job, or the caller who gives it up."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def give_up(self) -> bool:
        """Say that the caller no longer waits; return whether nothing has been done yet, nor will be."""
        self.is_given_up = True
        return self.claim()

    def settle(self) -> None:
        """Hand the outcome to the caller. Runs on the event loop."""
        self.is_done = True
        if self.is_given_up or self.future.done():
            # The caller was cancelled; it may wait all the same, for what cannot be taken back.
            if self.ended is not None and not self.ended.done():
                self.ended.set_result(None)
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def _settle_all(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.settle()


class SqliteRunner(RunnerOnFile):
    """Runs transactions on a SQLite file, on threads of its own."""

    backend_name = "sqlite"
    most_landed = 16

    def __init__(self, file: StoreFile) -> None:
        super().__init__(file.path, writes_beside=file.is_writable)
        self._file = file
        self._loop = running_loop(str(file.path))
        self.waiting = self._loop.waiting
        self._writes: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._committed = Bell(self._loop)
        self._ended: Promise[None] = self._loop.promise()
        self._writing = 0
        self._held: list[_Job[Any]] | None = None
        self._is_short = False
        self._turn = Lock()
        self._changes = 0
        self._file_changes = 0
        self._watch_lock = Lock()
        self._version: object = None

    async def start(self, *, create: bool) -> None:
        """Prepare the file and start the threads. Raises as `open_sqlite` says."""
        ready: Promise[None] = self._loop.promise()
        writer = threading.Thread(
            target=self._write_loop, args=(ready, create), name=f"flue-writer {self._path.name}", daemon=True
        )
        with starting_threads(self._path):
            writer.start()
        self._threads.append(writer)
        try:
            await ready
            warn_without_wal(self._file.journal, self._path)
            for number in range(READERS):
                reader = threading.Thread(
                    target=self._read_loop, name=f"flue-reader-{number} {self._path.name}", daemon=True
                )
                with starting_threads(self._path):
                    reader.start()
                self._threads.append(reader)
        except BaseException:
            self._closed = True
            for _ in self._threads[1:]:
                self._reads.put(None)
            self._writes.put(None)
            raise

    # -- on the event loop --------------------------------------------------------------------------------------

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        self._file.require_writable()
        job = _Job(work, self._loop)
        self._writing += 1
        try:
            # Behind the one who looks whether anybody else writes, so that all of them share a commit.
            (self._writes.put if self._held is None else self._held.append)(job)
            return await self._outcome_of(job)
        finally:
            self._writing -= 1

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        self._require_open()
        job = _Job(work, self._loop)
        self._reads.put(job)
        return await self._outcome_of(job)

    async def _outcome_of(self, job: _Job[Result], here: Operation[Result] | None = None) -> Result:
        try:
            if here is not None and await self._is_done_here(here, job):
                return here.outcome()
            return await job.future
        except self._loop.cancelled as cancelled:
            if job.give_up():
                raise
            await self._wait_for(job)
            raise cancelled from job.error or CommittedBeforeCancellation(job.result)

    async def land(self, session_id: str, plan: Callable[[Transaction], Plan[Result] | Result]) -> Result | None:
        """Write on the event loop, if writes are shorter now than the way to the thread and back, and nobody else asks.

        A lock of another process is waited for by the thread, but for the first 50 ms.
        """
        if self._writing or not self._is_short:
            return None
        self._require_open()
        here: Operation[Result] = Operation(lambda tx: written(tx, plan(tx)))
        self._writing += 1
        try:
            return await self._outcome_of(_Job(here.work, self._loop), here)
        finally:
            self._writing -= 1

    async def _is_done_here(self, here: Operation[Result], job: _Job[Result]) -> bool:
        """Do it here, unless others ask in this turn of the loop: then the thread gets the job, and theirs."""
        held = self._held = [job]
        try:
            await self.waiting.pause(0)
            # Who closes the store hands them over at once.
            if held is not self._held or len(held) > 1 or self._turn.locked():
                return False
            here.is_given_up = True
            with self._turn:
                self._write_timed((here,))
            if isinstance(here.error, errors.StoreBusy):
                return False
            self._held = None
        finally:
            if held is self._held:
                self._hand_over()
        self._notify()
        return True

    def _hand_over(self) -> None:
        held, self._held = self._held or (), None
        for job in held:
            self._writes.put(job)

    def _require_opener(self) -> None:
        super()._require_opener()
        if not self._loop.is_here():
            raise errors.WrongEventLoop(f"{self._path} was opened in another event loop; open it in this one")

    async def _wait_for(self, job: _Job[Any]) -> None:
        """Wait for a job that has started, however often the caller is cancelled."""
        with shielded():
            while not job.is_done:
                job.ended = self._loop.promise()
                with contextlib.suppress(self._loop.cancelled):
                    await job.ended

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        change = await self._last_change()
        # Beyond here the store was open: one that closes now, between any two steps, ends the watching.
        with contextlib.suppress(errors.StoreClosed):
            while True:
                yield
                if not await self._wait_beyond(change):
                    return
                change = await self._last_change()

    async def _last_change(self) -> int:
        """Return how many commits were seen, here or in another process."""
        await self.read(lambda _: self._look_at_file())
        return self._all_changes

    @property
    def _all_changes(self) -> int:
        return self._changes + self._file_changes

    async def _wait_beyond(self, change: int) -> bool:
        """Return after a commit here, or when another process has changed the file (looked up at each poll)."""
        while not self._closed and self._all_changes <= change:
            has_rung = await self._committed.wait_at_most(POLL_SECONDS)
            if not has_rung and not self._closed and await self._last_change() > change:
                break
        return not self._closed

    async def close(self) -> None:
        if not self._opener.is_here:
            # Nothing here is this process's to close; its files and locks are the parent's.
            return
        self._require_opener()
        if self._closed:
            return
        self._closed = True
        self.close_words()
        self._notify()
        for _ in self._threads[1:]:
            self._reads.put(None)
        self._hand_over()
        self._writes.put(None)
        # The threads end each other: at the end of the interpreter no new one can be started to wait for them.
        await self._ended
        self._threads[0].join()

    def _notify(self) -> None:
        """Wake those who wait for a change."""
        self._changes += 1
        self._committed.ring()

    # -- on the threads -----------------------------------------------------------------------------------------

    def _look_at_file(self) -> None:
        """Count a change if anybody has committed since the last look, whoever looks: one of two may be cancelled."""
        with self._watch_lock:
            version = self._file.version()
            if self._version not in (None, version):
                self._file_changes += 1
            self._version = version

    def _write_loop(self, ready: Promise[None], create: bool) -> None:
        try:
            self._file.open(create=create)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the opener is waiting for it
            self._tell_ready(ready, error)
            return
        self._tell_ready(ready, None)
        while (batch := self._next_batch()) is not None:
            with self._turn:
                self._write_timed(batch)
            self._post(self._settle_writes, batch)
            # A log that keeps it busy is too long for a short write.
            self._file.look_after_log()
        # The writer lets go last: only it can move the log into the database.
        for reader in self._threads[1:]:
            reader.join()
        self._file.close()
        self._post(self._tell_ended)

    def _write_timed(self, batch: Sequence[Operation[Any]]) -> None:
        begun = time.monotonic()
        self._file.write(batch)
        is_short = time.monotonic() - begun < SHORT_SECONDS
        self._is_short = is_short and len(batch) == 1 and not self._file.is_log_long

    def _tell_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _tell_ready(self, ready: Promise[None], error: BaseException | None) -> None:
        def tell() -> None:
            if ready.done():
                return
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)

        self._post(tell)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        # A loop that is gone has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.post(callback, *args)

    def _settle_writes(self, batch: Sequence[_Job[Any]]) -> None:
        _settle_all(batch)
        self._notify()

    def _next_batch(self) -> list[_Job[Any]] | None:
        first = self._writes.get()
        if first is None:
            return None
        jobs = [first]
        with contextlib.suppress(Empty):
            while len(jobs) < MAX_BATCH:
                job = self._writes.get_nowait()
                if job is None:
                    self._writes.put(None)
                    break
                jobs.append(job)
        return jobs

    def _read_loop(self) -> None:
        reader = self._file.reader()
        while (job := self._reads.get()) is not None:
            if job.claim():
                reader.run(job)
                self._post(job.settle)
        reader.close()


# ---------------------------------------------------------------------------------------------------------------------
# A SQLite store that is only read: where its file system, or its owner, allows no more.


async def open_read_only(path: str | Path, *, sources: Sources, busy_timeout: float = 30.0) -> Backend:
    """Open a SQLite file of the current format for reading; nothing is written into it.

    Raises `NotAStore`, `FormatTooNew`, `StoreBusy`, `CorruptStore`, and `StoreUnavailable`: where it cannot be read,
    for an older format, and later for every write. O(1).
    """
    runner = SqliteRunner(ReadOnlyFile(Path(path), "full", busy_timeout))
    await runner.start(create=False)
    return Backend(runner, sources)


def read_only_on_caller(path: str | Path, *, sources: Sources, busy_timeout: float = 30.0) -> Backend:
    """Open a file for reading as `open_read_only` does, for the threads that call. Blocks. Raises as that does."""
    return _start_on_caller(ReadOnlyFile(Path(path), "full", busy_timeout), sources, create=False)


def stored_format(path: Path, busy_timeout: float) -> int | None:
    """Return the format of a file that is there, None where it is empty; nothing is written.

    Raises as `open_read_only`, but for an older format.
    """
    check_magic(path)
    require_not_inherited(path)
    require_not_lost(path)
    with translated(path), closing(connect_for_reading(path.absolute(), busy_timeout)) as connection:
        return format_of(connection, path)


class ReadOnlyFile(StoreFile):
    """A file that is read, and refuses writes."""

    is_writable = False

    def open(self, *, create: bool) -> None:
        """Look at the file. Raises `StoreUnavailable` and others of ours if it is not a store of the current format."""
        del create
        stamp = stored_format(self.path, self._busy_timeout)
        if stamp is None:
            raise errors.NotAStore(f"{self.path} is empty; open it for writing to make a store of it")
        if stamp < FORMAT_VERSION:
            raise errors.StoreUnavailable(
                f"{self.path} has format {stamp}, and must be upgraded to format {FORMAT_VERSION} to be read; "
                "open it once where it can be written to, or a copy of it"
            )
        self._file = OpenFile(self._absolute_path, self)

    def require_writable(self) -> None:
        why = why_not_writable(self._absolute_path) or "open it without read_only=True"
        raise errors.StoreUnavailable(f"{self.path} is open for reading only, and nothing was changed; {why}")

    def reader(self) -> Reader:
        return _UnlockedReader(self)

    def connect(self) -> ReadingConnection:
        with translated(self.path):
            return connect_for_reading(self._absolute_path, self._busy_timeout)

    def version(self) -> Stamps:
        """Return a value that differs after each commit: how the files look."""
        return stamps_of(self._absolute_path)


class _UnlockedReader(Reader):
    """Reads, and makes sure that nobody has written meanwhile where no lock has kept them from it."""

    def __init__(self, file: ReadOnlyFile) -> None:
        super().__init__(file)
        self._store = file

    def _connected(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        """Return a connection that knows the files as they are now."""
        if connection is None:
            return self._store.connect()
        if not self._has_changed(connection):
            return connection
        fresh = self._store.connect()
        connection.close()
        return fresh

    def _has_changed(self, connection: sqlite3.Connection) -> bool:
        taken = connection.stamps if isinstance(connection, ReadingConnection) else None
        return taken is not None and taken != self._store.version()

    def _read_snapshot(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        try:
            result = super()._read_snapshot(connection, work)
        except (sqlite3.Error, errors.CorruptStore) as error:
            if not self._has_changed(connection):
                raise
            raise self._was_written() from error
        if self._has_changed(connection):
            raise self._was_written()
        return result

    def _was_written(self) -> errors.StoreBusy:
        return errors.StoreBusy(f"{self._store.path} was written to by another process while it was read; try again")


# ---------------------------------------------------------------------------------------------------------------------
# A copy of a SQLite database as it is at one moment, taken while others write, and verified.


class _Guarded:
    """A function that is called with progress, on a thread. Its error is kept in ``error`` and ends the backup.

    On its way it is one of our errors: a driver's would be taken for the database's, and no future carries a
    StopIteration.
    """

    def __init__(self, tell: Progress | None) -> None:
        self._tell = tell
        self.error: BaseException | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._tell is None:
            return
        try:
            self._tell(done, total)
        except BaseException as error:
            self.error = error
            raise errors.StoreUnavailable("progress: it raised an error, and nothing was written") from error


async def back_up_while_waiting(waiting: Waiting, path: Path, wanted: Backup) -> BackupReport:
    """Copy a database file as its store waits for that (see `Backend.backup`). Raises errors of ``progress``, too."""
    guard = _Guarded(wanted.progress)
    try:
        return await waiting.call(partial(back_up, path, replace(wanted, progress=guard)))
    except errors.StoreUnavailable:
        if guard.error is not None:
            raise guard.error from None
        raise


def back_up(path: Path, wanted: Backup) -> BackupReport:
    """Copy a database file of the current format (see `Backend.backup`). Blocks; O(file)."""
    check_magic(path)
    target = wanted.target
    if wanted.overwrite and target.exists() and target.samefile(path):
        raise errors.InvalidArgument(f"{target} is the database itself; name another file")
    with Part(target, overwrite=wanted.overwrite) as part:
        with translated(path), closing(_connect_to(path)) as source:
            copy_into(source, part.path, wanted.progress)
        with closing(connect(part.path, "full", read_only=True)) as copy, translated(part.path):
            report = verify_connection(copy, str(path), wanted.chain) if wanted.verified else _counts(copy)
        if report.problems:
            count = len(report.problems)
            raise errors.CorruptStore(
                f"{path} is not whole, so no backup was kept: {count} problems, first {report.problems[0]}; "
                "run verify(), and salvage what is readable"
            )
        size = part.path.stat().st_size
        part.publish()
    counts = (report.sessions, report.entries)
    return trees.BackupReport(str(target), size, *counts, wanted.verified, not wanted.chain.checks)


def _connect_to(path: Path) -> sqlite3.Connection:
    if why_not_writable(path) is None:
        return connect(path, "full", read_only=True)
    return connect_for_reading(path, BUSY_POLL_MS / 1000)


def verify_connection(connection: sqlite3.Connection, location: str, chain: Chain = UNKEYED) -> VerifyReport:
    """Verify the database of a connection that nobody else uses (see `Backend.verify`)."""
    tx = SqliteTransaction(connection)
    tx.chain = over_seams(tx, chain)
    problems = ops.verify.storage_problems(tx, location)
    report = ops.verify.verify(tx)
    return replace(report, problems=problems + report.problems)


def _counts(connection: sqlite3.Connection) -> VerifyReport:
    sessions, entries, *_ = SqliteTransaction(connection).first(sql.COUNTS) or (0, 0, 0, 0)
    return VerifyReport(sessions, entries)
