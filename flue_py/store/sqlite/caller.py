"""SQLite without threads: each transaction runs on the thread that asks for it, and blocks it.

That saves two changes of thread for each operation, which is most of what a lone append takes. In exchange, nothing
else happens on that thread meanwhile, and operations that many callers ask for at once are not committed together.
Many threads may share a store; a lock lets one of them write at a time.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from flue_py.errors import StoreClosed
from flue_py.store.backend import Backend
from flue_py.store.opener import Opener
from flue_py.store.seam import Durability, Sources, Transaction
from flue_py.store.sqlite.base import RunnerOnFile
from flue_py.store.sqlite.file import file_size
from flue_py.store.sqlite.journal import warn_without_wal
from flue_py.store.sqlite.store_file import Reader, StoreFile
from flue_py.store.sqlite.writer import Operation
from flue_py.store.waiting import POLL_SECONDS, OnCaller

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
    return start_on_caller(StoreFile(Path(path), durability, busy_timeout), sources, create=create)


def start_on_caller(file: StoreFile, sources: Sources, *, create: bool) -> Backend:
    """Return a store on a file that is not open yet. Blocks. Raises as opening the file does."""
    file.open(create=create)
    warn_without_wal(file.journal, file.path)
    return Backend(CallerRunner(file), sources)


class CallerRunner(RunnerOnFile):
    """Runs transactions on a SQLite file that is open, on the thread that asks. Nothing but `wakeups` is suspended."""

    backend_name = "sqlite"

    def __init__(self, file: StoreFile) -> None:
        self.waiting: OnCaller = OnCaller()
        self._file = file
        self._path = file.path
        self._place = file.path.absolute()
        self._writes_beside = file.is_writable
        self._opener = Opener()
        self._closed = False
        self._writing = threading.Lock()
        self._watching = threading.Lock()
        self._pool = threading.Lock()
        self._idle: list[Reader] = []

    @property
    def location(self) -> str:
        return str(self._path)

    async def size_bytes(self) -> int | None:
        return file_size(self._path)

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        self._file.require_writable()
        self.waiting.require_outside()
        operation = Operation(work)
        with self._writing:
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
        self._opener.require_here(self._path)
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
        with suppress(StoreClosed):
            while True:
                yield
                while (version := self._version()) == seen:
                    await self.waiting.pause(POLL_SECONDS)
                seen = version

    def _version(self) -> object:
        """Return what is another value after each commit, here or in another process."""
        self._opener.require_here(self._path)
        with self._watching:
            self._require_open()
            return self._file.version()

    def _require_open(self) -> None:
        self._opener.require_here(self._path)
        if self._closed:
            raise StoreClosed(f"{self._path} has been closed; open it again")

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
