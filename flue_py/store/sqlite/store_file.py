"""A SQLite file that is open as a store: the connection that writes, those that read, and what changed it last.

What runs transactions on it, on threads or without, decides who calls when. Everything here blocks.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flue_py.store.seam import Durability, Transaction
from flue_py.store.sqlite.file import connect, translated
from flue_py.store.sqlite.journal import WAL
from flue_py.store.sqlite.migrate import open_file
from flue_py.store.sqlite.owner import OpenFile, forget_file
from flue_py.store.sqlite.transaction import SqliteTransaction
from flue_py.store.sqlite.writer import Operation, Writer, raisable, roll_back

Result = TypeVar("Result")


class StoreFile:
    """A file that is written to and read.

    One thread at a time may `write`; each reader is for one thread at a time, too. `version` is for one alone.
    """

    is_writable = True

    def __init__(self, path: Path, durability: Durability, busy_timeout: float) -> None:
        self.path = path
        # The working directory may be another one when a reader connects.
        self._absolute_path = path.absolute()
        self._durability: Durability = durability
        self._busy_timeout = busy_timeout
        self._file: OpenFile | None = None
        self._writer: Writer | None = None
        self._watched: sqlite3.Connection | None = None

    def open(self, *, create: bool) -> None:
        """Prepare the file, creating and migrating it as needed. Raises as `open_sqlite` says."""
        connection = open_file(self.path, self._durability, self._busy_timeout, create=create)
        try:
            self._file = OpenFile(self._absolute_path, self)
            self._writer = Writer(connection, self.path, self._file, self._busy_timeout)
        except BaseException:
            connection.close()
            raise

    @property
    def journal(self) -> str:
        """``"wal"``, or the kind of rollback journal."""
        return WAL if self._writer is None else self._writer.journal

    def require_writable(self) -> None:
        """Raise `StoreUnavailable` if the file is open for reading only."""

    def write(self, operations: Sequence[Operation[Any]]) -> None:
        """Run operations in a write transaction, together if that can be; each then has its result or its error."""
        assert self._writer is not None
        self._writer.run(operations)

    def look_after_log(self) -> None:
        """Keep the log bounded: to be called after each `write`, once nobody waits for it any more."""
        if self._writer is not None:
            self._writer.look_after_log()

    def rescue_log(self) -> None:
        """Move what the log holds into the database where nobody would find it; any thread may ask."""
        if self._writer is not None:
            self._writer.rescue_log()

    def require_in_place(self) -> None:
        """Raise `StoreUnavailable` where nobody would find what is written (see `OpenFile`)."""
        if self._file is not None:
            self._file.require_in_place()

    def reader(self) -> Reader:
        """Return a reader, which connects when it first reads."""
        return Reader(self)

    def connect(self) -> sqlite3.Connection:
        """Return a connection that reads. Raises `StoreUnavailable`."""
        # With a rollback journal a read may have to wait for a commit.
        return connect(self._absolute_path, self._durability, read_only=True, timeout=self._busy_timeout)

    def version(self) -> object:
        """Return what is another value after each commit, here or in another process (SQLite's data_version)."""
        if self._watched is None:
            self._watched = self.connect()
        return self._watched.execute("PRAGMA data_version").fetchone()[0]

    def close(self) -> None:
        """Let go of the file. To be called last, when all readers are closed."""
        if self._watched is not None:
            self._watched.close()
        if self._writer is not None:
            self._writer.close()
        forget_file(self)


class Reader:
    """One connection that reads snapshots."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def run(self, operation: Operation[Any]) -> None:
        """Run an operation on one snapshot; it then has its result or its error."""
        try:
            self._file.require_in_place()
            connection = self._connection = self._connected(self._connection)
            with translated(self._file.path):
                operation.result = self._read_snapshot(connection, operation.work)
        except BaseException as error:  # noqa: BLE001 - handed to the caller who waits for it
            operation.error = raisable(error)
            self._file.rescue_log()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            connection = self._file.connect()
            # A reader that an interrupt kept from going back is dropped: its connection must not stay open.
            weakref.finalize(self, connection.close).atexit = False
        return connection

    def _read_snapshot(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        # An interrupt of the thread that calls may have come before the end of the last one.
        roll_back(connection)
        try:
            connection.execute("BEGIN")
            return work(SqliteTransaction(connection))
        finally:
            roll_back(connection)
