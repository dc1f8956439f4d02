"""A SQLite store that is only read: where its file system, or its owner, allows no more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from flue_py.errors import CorruptStore, NotAStore, StoreBusy, StoreUnavailable
from flue_py.store.backend import Backend
from flue_py.store.schema.stamp import FORMAT_VERSION
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sqlite.file import check_magic, translated
from flue_py.store.sqlite.migrate import format_of, is_finished
from flue_py.store.sqlite.owner import OpenFile, forget_file, require_not_inherited, require_not_lost
from flue_py.store.sqlite.runner import SqliteRunner
from flue_py.store.sqlite.unwritable import ReadingConnection, Stamps, connect_for_reading, stamps_of, why_not_writable

Result = TypeVar("Result")


async def open_read_only(path: str | Path, *, sources: Sources, busy_timeout: float = 30.0) -> Backend:
    """Open a SQLite file of the current format for reading; nothing is written into it.

    Raises `NotAStore`, `FormatTooNew`, `StoreBusy`, `CorruptStore`, and `StoreUnavailable`: where it cannot be read,
    for an older format, and later for every write. O(1).
    """
    runner = ReadOnlyRunner(Path(path), "full", busy_timeout)
    await runner.start(create=False)
    return Backend(runner, sources)


class ReadOnlyRunner(SqliteRunner):
    """Runs reads on a SQLite file, and refuses writes."""

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        why = why_not_writable(self._absolute_path) or "open it without read_only=True"
        raise StoreUnavailable(f"{self._path} is open for reading only, and nothing was changed; {why}")

    def _write_loop(self, ready: asyncio.Future[None], create: bool) -> None:
        """Look at the file, and wait for the end: there is nothing to write."""
        try:
            self._require_readable()
            self._file = OpenFile(self._absolute_path, self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the opener is waiting for it
            self._tell_ready(ready, error)
            return
        self._tell_ready(ready, None)
        self._writes.get()
        self._end_readers()
        forget_file(self)
        self._post(self._ended.set_result, None)

    def _require_readable(self) -> None:
        """Raise `StoreUnavailable` and others of ours if the file is not a store of the current format."""
        check_magic(self._path)
        require_not_inherited(self._path)
        require_not_lost(self._path)
        with translated(self._path), closing(self._connect_reader()) as connection:
            found = format_of(connection, self._path)
            is_current = found == FORMAT_VERSION and is_finished(connection)
        if found is None:
            raise NotAStore(f"{self._path} is empty; open it for writing to make a store of it")
        if not is_current:
            early = "" if found < FORMAT_VERSION else "an early form of "
            raise StoreUnavailable(
                f"{self._path} has {early}format {found}, and must be upgraded to format {FORMAT_VERSION} to be read; "
                "open it once where it can be written to, or a copy of it"
            )

    def _connect_reader(self) -> ReadingConnection:
        with translated(self._path):
            return connect_for_reading(self._absolute_path, self._busy_timeout)

    def _reader(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        """Return a connection that knows the files as they are now."""
        if connection is None:
            return self._connect_reader()
        if not self._has_changed(connection):
            return connection
        fresh = self._connect_reader()
        connection.close()
        return fresh

    def _has_changed(self, connection: sqlite3.Connection) -> bool:
        taken = connection.stamps if isinstance(connection, ReadingConnection) else None
        return taken is not None and taken != stamps_of(self._absolute_path)

    def _read_snapshot(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        """Read, and make sure that nobody has written meanwhile where no lock has kept them from it."""
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
        return StoreBusy(f"{self._path} was written to by another process while it was read; try again")

    def _file_changed(self) -> bool:
        before, self._seen = self._seen, stamps_of(self._absolute_path)
        return before is not None and before != self._seen

    _seen: Stamps | None = None
