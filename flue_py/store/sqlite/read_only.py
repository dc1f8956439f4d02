"""A SQLite store that is only read: where its file system, or its owner, allows no more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from flue_py.errors import CorruptStore, NotAStore, StoreBusy, StoreUnavailable
from flue_py.store.backend import Backend
from flue_py.store.schema.stamp import FORMAT_VERSION
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sqlite.caller import start_on_caller
from flue_py.store.sqlite.file import check_magic, translated
from flue_py.store.sqlite.migrate import format_of
from flue_py.store.sqlite.owner import OpenFile, require_not_inherited, require_not_lost
from flue_py.store.sqlite.runner import SqliteRunner
from flue_py.store.sqlite.store_file import Reader, StoreFile
from flue_py.store.sqlite.unwritable import ReadingConnection, Stamps, connect_for_reading, stamps_of, why_not_writable

Result = TypeVar("Result")


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
    return start_on_caller(ReadOnlyFile(Path(path), "full", busy_timeout), sources, create=False)


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
        found = stored_format(self.path, self._busy_timeout)
        if found is None:
            raise NotAStore(f"{self.path} is empty; open it for writing to make a store of it")
        if found < FORMAT_VERSION:
            raise StoreUnavailable(
                f"{self.path} has format {found}, and must be upgraded to format {FORMAT_VERSION} to be read; "
                "open it once where it can be written to, or a copy of it"
            )
        self._file = OpenFile(self._absolute_path, self)

    def require_writable(self) -> None:
        why = why_not_writable(self._absolute_path) or "open it without read_only=True"
        raise StoreUnavailable(f"{self.path} is open for reading only, and nothing was changed; {why}")

    def reader(self) -> Reader:
        return _UnlockedReader(self)

    def connect(self) -> ReadingConnection:
        with translated(self.path):
            return connect_for_reading(self._absolute_path, self._busy_timeout)

    def version(self) -> Stamps:
        """Return what is another value after each commit: how the files look."""
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
        except (sqlite3.Error, CorruptStore) as error:
            if not self._has_changed(connection):
                raise
            raise self._was_written() from error
        if self._has_changed(connection):
            raise self._was_written()
        return result

    def _was_written(self) -> StoreBusy:
        return StoreBusy(f"{self._store.path} was written to by another process while it was read; try again")
