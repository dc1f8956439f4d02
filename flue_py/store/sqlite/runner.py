"""The SQLite backend: one writer thread with group commit, a small pool of readers, one hop per transaction.

Operations waiting for the writer are committed together, so that a hundred sessions share one fsync. Where one
operation fails before it wrote anything, its neighbours do not notice; where it fails later, the batch is rolled
back and run again one by one, each for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from flue_py.errors import FlueError, InvalidArgument, OutcomeUnknown, StoreClosed, StoreUnavailable, WrongEventLoop
from flue_py.store.backend import Backend
from flue_py.store.opener import Opener, starting_threads
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import CommittedBeforeCancellation, Durability, IdTaken, Sources, Transaction
from flue_py.store.sqlite.base import RunnerOnFile
from flue_py.store.sqlite.file import (
    ID_ATTEMPTS,
    LogKeeper,
    begin_immediate,
    commit,
    connect,
    file_size,
    is_busy,
    lost_while_committing,
    no_new_id,
    translate,
    translated,
    unknown_outcome,
)
from flue_py.store.sqlite.journal import WAL, journal_mode, let_go, rescue_log, warn_without_wal
from flue_py.store.sqlite.migrate import open_file
from flue_py.store.sqlite.owner import OpenFile, forget_file
from flue_py.store.sqlite.transaction import SqliteTransaction

Result = TypeVar("Result")

MAX_BATCH = 256
MAX_KNOWN_STATES = 10_000
READERS = 2
POLL_SECONDS = 0.1


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
    runner = SqliteRunner(Path(path), durability, busy_timeout)
    await runner.start(create=create)
    return Backend(runner, sources)


class _Job(Generic[Result]):
    """An operation on its way through a thread, and the future its caller waits for."""

    __slots__ = ("_unclaimed", "error", "future", "is_done", "is_given_up", "result", "work")

    def __init__(self, work: Callable[[Transaction], Result], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.future: asyncio.Future[Result] = loop.create_future()
        self.result: Result
        self.error: BaseException | None = None
        self.is_done = False
        self.is_given_up = False
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
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def _settle_all(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.settle()


class _KnownStates:
    """The states of sessions as the writer's own transactions left them: true until another process commits."""

    def __init__(self) -> None:
        self.current: dict[str, SessionState] = {}
        self._data_version: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Forget everything if any other connection has committed. Called inside a write transaction."""
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version != self._data_version or len(self.current) > MAX_KNOWN_STATES:
            self.current.clear()
            self._data_version = version


class SqliteRunner(RunnerOnFile):
    """Runs transactions on a SQLite file, on threads of its own."""

    backend_name = "sqlite"

    def __init__(self, path: Path, durability: Durability, busy_timeout: float) -> None:
        self._path = path
        # The working directory may be another one when a reader connects.
        self._absolute_path = path.absolute()
        self._file: OpenFile | None = None
        # The writer's, which keeps the log and its index there.
        self._keeper: sqlite3.Connection | None = None
        self._journal = WAL
        self._opener = Opener()
        self._durability: Durability = durability
        self._busy_timeout = busy_timeout
        self._loop = asyncio.get_running_loop()
        self._writes: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._states = _KnownStates()
        self._committed = asyncio.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._changes = 0
        self._watch_lock = threading.Lock()
        self._watched: sqlite3.Connection | None = None
        self._data_version: int | None = None

    @property
    def location(self) -> str:
        return str(self._path)

    async def size_bytes(self) -> int | None:
        return file_size(self._path)

    async def start(self, *, create: bool) -> None:
        """Prepare the file and start the threads. Raises as `open_sqlite` says."""
        ready: asyncio.Future[None] = self._loop.create_future()
        writer = threading.Thread(
            target=self._write_loop, args=(ready, create), name=f"flue-writer {self._path.name}", daemon=True
        )
        with starting_threads(self._path):
            writer.start()
        self._threads.append(writer)
        try:
            await asyncio.shield(ready)
            warn_without_wal(self._journal, self._path)
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
        return await self._submit(self._writes, work)

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        return await self._submit(self._reads, work)

    async def _submit(self, queue: SimpleQueue[_Job[Any] | None], work: Callable[[Transaction], Result]) -> Result:
        self._require_open()
        job = _Job(work, self._loop)
        queue.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            if job.give_up():
                raise
        result = await self._outcome(job)
        raise CommittedBeforeCancellation(result)

    def _require_open(self) -> None:
        self._require_opener()
        if self._closed:
            raise StoreClosed(f"{self._path} has been closed; open it again")

    def _require_opener(self) -> None:
        self._opener.require_here(self._path)
        if asyncio.get_running_loop() is not self._loop:
            raise WrongEventLoop(f"{self._path} was opened in another event loop; open it in this one")

    async def _outcome(self, job: _Job[Result]) -> Result:
        """Wait for a job that has started, however often the caller is cancelled; return or raise its outcome."""
        while not job.is_done:
            job.future = self._loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([job.future])
        if job.error is not None:
            raise asyncio.CancelledError from job.error
        return job.result

    async def wakeups(self, session_id: str) -> AsyncIterator[None]:
        change = await self._last_change()
        # Beyond here the store was open: one that closes now, between any two steps, ends the watching.
        with contextlib.suppress(StoreClosed):
            while True:
                yield
                if not await self._wait_beyond(change):
                    return
                change = await self._last_change()

    async def _last_change(self) -> int:
        """Return how many commits were seen, here or in another process."""
        if await self.read(lambda _: self._file_changed()):
            self._changes += 1
        return self._changes

    async def _wait_beyond(self, change: int) -> bool:
        """Return after a commit here, or when another process has changed the file (looked up at each poll)."""
        while not self._closed and self._changes <= change:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._committed.wait()
            except TimeoutError:
                if not self._closed and await self._last_change() > change:
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
        self._notify()
        for _ in self._threads[1:]:
            self._reads.put(None)
        self._writes.put(None)
        # The threads end each other: at the end of the interpreter no new one can be started to wait for them.
        await asyncio.shield(self._ended)
        self._threads[0].join()

    def _notify(self) -> None:
        """Wake those who wait for a change, and arm a new event for those who come later."""
        self._changes += 1
        event, self._committed = self._committed, asyncio.Event()
        event.set()

    # -- on the threads -----------------------------------------------------------------------------------------

    def _file_changed(self) -> bool:
        """Return whether any other connection has committed since the last call (SQLite's data_version)."""
        with self._watch_lock:
            if self._watched is None:
                self._watched = self._connect_reader()
            version = int(self._watched.execute("PRAGMA data_version").fetchone()[0])
            changed = self._data_version not in (None, version)
            self._data_version = version
            return changed

    def _write_loop(self, ready: asyncio.Future[None], create: bool) -> None:
        try:
            connection = open_file(self._path, self._durability, self._busy_timeout, create=create)
            try:
                file = self._file = OpenFile(self._absolute_path, self)
                self._note_journal(connection, file)
                self._keeper = connection
            except BaseException:
                connection.close()
                raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the opener is waiting for it
            self._tell_ready(ready, error)
            return
        self._tell_ready(ready, None)
        log = LogKeeper(self._absolute_path)
        while (batch := self._next_batch()) is not None:
            self._run_batch(connection, batch)
            self._post(self._settle_writes, batch)
            log.after_commit(connection.execute)
        self._end_readers()
        let_go(connection, file)
        forget_file(self)
        self._post(self._ended.set_result, None)

    def _end_readers(self) -> None:
        """Wait for what is being read. The writer lets go last: only it can move the log into the database."""
        for reader in self._threads[1:]:
            reader.join()
        if self._watched is not None:
            self._watched.close()

    def _note_journal(self, connection: sqlite3.Connection, file: OpenFile) -> None:
        """Look after the log and its index, where there is a log."""
        self._journal = journal_mode(connection)
        if self._journal == WAL:
            file.watch_log(connection)

    def _tell_ready(self, ready: asyncio.Future[None], error: BaseException | None) -> None:
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
            self._loop.call_soon_threadsafe(callback, *args)

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

    def _run_batch(self, connection: sqlite3.Connection, waiting: Sequence[_Job[Any]]) -> None:
        """Run the jobs that are still wanted when the write lock is held: until then their callers can give them up."""
        try:
            self._begin(connection, waiting)
        except BaseException as error:  # noqa: BLE001 - handed to the callers who wait for it
            # All of them have waited the whole budget; alone, each would wait it again.
            self._fail(connection, waiting, error)
            return
        batch = [job for job in waiting if job.claim()]
        if len(batch) == 1:
            self._run_alone(connection, batch[0], begun=True)
        elif not self._run_together(connection, batch):
            for job in batch:
                self._run_alone(connection, job)

    def _begin(self, connection: sqlite3.Connection, jobs: Sequence[_Job[Any]]) -> None:
        """Take the write lock for jobs, of files that are whole. Raises the driver's errors, `StoreUnavailable`."""
        while True:
            begin_immediate(connection, self._busy_timeout, _wanted(jobs))
            if self._file is None:
                return
            if self._journal != WAL:
                # Another process may have made it a log since.
                self._note_journal(connection, self._file)
            if not self._file.log_has_shrunk():
                return
            _roll_back(connection)
            self._file.require_in_place()
            self._file.require_whole_log(connection)

    def _fail(self, connection: sqlite3.Connection, jobs: Sequence[_Job[Any]], error: BaseException) -> None:
        self._undo(connection)
        for job in jobs:
            job.error = self._translated(error)

    def _run_together(self, connection: sqlite3.Connection, batch: Sequence[_Job[Any]]) -> bool:
        """Run a batch in the transaction that has begun; return False, with nothing done, where each must run alone."""
        try:
            self._states.check(connection)
            for job in batch:
                tx = SqliteTransaction(connection, self._states.current)
                try:
                    job.result = job.work(tx)
                except FlueError as error:
                    if tx.wrote:
                        raise
                    job.error = error
            self._commit(connection, batch)
        except BaseException as error:  # noqa: BLE001 - each job meets its own error when it runs alone
            self._undo(connection)
            for job in batch:
                job.error = None
            if self._ends_batch(error):
                self._fail(connection, batch, error)
                return True
            return False
        return True

    def _ends_batch(self, error: BaseException) -> bool:
        """Return whether the jobs of a batch that failed so must not, or need not, be run again alone."""
        if isinstance(error, OutcomeUnknown):
            # A log still begins where the commit that failed began: to commit again is to write over it.
            return self._journal != WAL or isinstance(error.__cause__, StoreUnavailable)
        # With a rollback journal a commit waits for readers, as the beginning waits for writers.
        return isinstance(error, sqlite3.Error) and is_busy(error)

    def _run_alone(self, connection: sqlite3.Connection, job: _Job[Any], *, begun: bool = False) -> None:
        for _ in range(ID_ATTEMPTS):
            try:
                if not begun:
                    self._begin(connection, [job])
                begun = False
                self._states.check(connection)
                job.result = job.work(SqliteTransaction(connection, self._states.current))
                self._commit(connection, [job])
            except (IdTaken, sqlite3.IntegrityError) as error:
                # A generated id met one that is there: roll back, and run again with another.
                self._undo(connection)
                job.error = no_new_id(error, self._path)
                job.error.__cause__ = error
            except BaseException as error:  # noqa: BLE001 - handed to the caller who waits for it
                self._fail(connection, [job], error)
                return
            else:
                job.error = None
                return

    def _commit(self, connection: sqlite3.Connection, jobs: Sequence[_Job[Any]]) -> None:
        """Commit to files that others can find: what is acknowledged must be there tomorrow.

        Raises the driver's errors and `StoreUnavailable` where nothing was committed, `OutcomeUnknown`.
        """
        self._require_in_place()
        if self._file is not None and self._file.log_has_shrunk():
            self._file.lose_log()
        try:
            commit(connection, self._busy_timeout, _wanted(jobs))
        except (sqlite3.Error, MemoryError) as error:
            unknown = unknown_outcome(error, self._path)
            if unknown is None:
                raise
            raise unknown from error
        try:
            self._require_in_place()
            if self._file is not None:
                self._file.require_whole_log(connection)
        except StoreUnavailable as error:
            raise lost_while_committing(error) from error

    def _require_in_place(self) -> None:
        if self._file is not None:
            self._file.require_in_place()

    def _connect_reader(self) -> sqlite3.Connection:
        # With a rollback journal a read may have to wait for a commit.
        return connect(self._absolute_path, self._durability, read_only=True, timeout=self._busy_timeout)

    def _translated(self, error: BaseException) -> BaseException:
        """Return the error that a caller gets, with the driver's as its cause."""
        if not isinstance(error, (sqlite3.Error, MemoryError)):
            return _raisable(error)
        ours = translate(error, self._path)
        ours.__cause__ = error
        return ours

    def _undo(self, connection: sqlite3.Connection) -> None:
        """Roll back, and forget what the transaction would have left."""
        _roll_back(connection)
        self._states.current.clear()
        if self._file is not None:
            rescue_log(connection, self._file)

    def _read_loop(self) -> None:
        connection: sqlite3.Connection | None = None
        while (job := self._reads.get()) is not None:
            if not job.claim():
                continue
            try:
                self._require_in_place()
                connection = self._reader(connection)
                with translated(self._path):
                    job.result = self._read_snapshot(connection, job.work)
            except BaseException as error:  # noqa: BLE001 - handed to the caller who waits for it
                job.error = _raisable(error)
                if self._keeper is not None and self._file is not None:
                    rescue_log(self._keeper, self._file)
            self._post(job.settle)
        if connection is not None:
            connection.close()

    def _reader(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        """Return the connection of a thread that reads, made when it first does."""
        return self._connect_reader() if connection is None else connection

    def _read_snapshot(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        connection.execute("BEGIN")
        try:
            return work(SqliteTransaction(connection))
        finally:
            _roll_back(connection)


def _raisable(error: BaseException) -> BaseException:
    """Return the error a future can carry: a StopIteration (of a source of ids that ran out) it would refuse."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = InvalidArgument(
        "ids, session_ids or clock raised StopIteration; has it run out? return another each time"
    )
    wrapped.__cause__ = error
    return wrapped


def _wanted(jobs: Sequence[_Job[Any]]) -> Callable[[], bool]:
    """Return what tells whether anybody still waits for one of these."""
    return lambda: not all(job.is_given_up for job in jobs)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
