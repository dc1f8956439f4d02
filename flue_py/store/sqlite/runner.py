"""The SQLite backend: one writer thread with group commit, a small pool of readers, one hop per transaction.

Operations waiting for the writer are committed together, so that a hundred sessions share one fsync (see `writer`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from flue_py.errors import StoreClosed, WrongEventLoop
from flue_py.store.backend import Backend
from flue_py.store.loops import Bell, running_loop
from flue_py.store.opener import Opener, starting_threads
from flue_py.store.seam import CommittedBeforeCancellation, Durability, Sources, Transaction
from flue_py.store.sqlite.base import RunnerOnFile
from flue_py.store.sqlite.file import file_size
from flue_py.store.sqlite.journal import warn_without_wal
from flue_py.store.sqlite.store_file import StoreFile
from flue_py.store.sqlite.writer import Operation
from flue_py.store.waiting import Loop, Promise, shielded

Result = TypeVar("Result")

MAX_BATCH = 256
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
        if self.future.done():
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

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._path = file.path
        self._place = file.path.absolute()
        self._writes_beside = file.is_writable
        self._opener = Opener()
        self._loop = running_loop(str(file.path))
        self.waiting = self._loop.waiting
        self._writes: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._committed = Bell(self._loop)
        self._ended: Promise[None] = self._loop.promise()
        self._changes = 0
        self._file_changes = 0
        self._watch_lock = threading.Lock()
        self._version: object = None

    @property
    def location(self) -> str:
        return str(self._path)

    async def size_bytes(self) -> int | None:
        return file_size(self._path)

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
        return await self._submit(self._writes, work)

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        self._require_open()
        return await self._submit(self._reads, work)

    async def _submit(self, queue: SimpleQueue[_Job[Any] | None], work: Callable[[Transaction], Result]) -> Result:
        job = _Job(work, self._loop)
        queue.put(job)
        try:
            return await job.future
        except self._loop.cancelled as cancelled:
            if job.give_up():
                raise
            await self._wait_for(job)
            raise cancelled from job.error or CommittedBeforeCancellation(job.result)

    def _require_open(self) -> None:
        self._require_opener()
        if self._closed:
            raise StoreClosed(f"{self._path} has been closed; open it again")

    def _require_opener(self) -> None:
        self._opener.require_here(self._path)
        if not self._loop.is_here():
            raise WrongEventLoop(f"{self._path} was opened in another event loop; open it in this one")

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
        with contextlib.suppress(StoreClosed):
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
            self._file.write(batch)
            self._post(self._settle_writes, batch)
            self._file.look_after_log()
        # The writer lets go last: only it can move the log into the database.
        for reader in self._threads[1:]:
            reader.join()
        self._file.close()
        self._post(self._tell_ended)

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
