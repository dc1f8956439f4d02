"""A SQLite file that can be read and not written: why that is so, and a connection that writes nothing at all.

A write-ahead log has an index that readers write to as well. So where a log is in use, SQLite is asked to read it as
best it can (``mode=ro``). Where there is none, nobody is writing either: the database is read as if it never changed
(``immutable=1``), which takes no lock and makes no file, and who reads makes sure afterwards that it did not.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import NamedTuple, TypeAlias

from flue_py.errors import StoreUnavailable
from flue_py.store.sqlite.file import primary_code

_LEAST_ROOM = 64 * 1024
"""How much a disk must have left for a log to begin: 32 KiB are its index."""


def why_not_writable(path: Path) -> str | None:
    """Return why this user cannot write to the store at a path, which is there; None where nothing is against it."""
    folder = path.resolve().parent
    with contextlib.suppress(OSError, ValueError):
        place = os.statvfs(folder)
        if place.f_flag & os.ST_RDONLY:
            return f"the file system of {folder} is mounted for reading only"
        if not os.access(path, os.W_OK):
            return "this user must be allowed to write to the file"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"this user must be allowed to write to its folder, {folder}"
        if place.f_blocks and place.f_bavail * place.f_frsize < _LEAST_ROOM:
            return f"the disk of {folder} is full: make room"
    return None


class _Stamp(NamedTuple):
    """What tells whether a file was written to."""

    inode: int
    size: int
    changed_ns: int


Stamps: TypeAlias = tuple[_Stamp | None, ...]
"""What the database, its log and its journal look like; None for one that is not there."""


def stamps_of(path: Path) -> Stamps:
    """Return what the files of a database look like now. Three looks at the file system."""
    found: list[_Stamp | None] = []
    real = path.resolve()
    for suffix in ("", "-wal", "-journal"):
        try:
            status = os.stat(f"{real}{suffix}")
        except OSError:
            found.append(None)
        else:
            found.append(_Stamp(status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


class ReadingConnection(sqlite3.Connection):
    """A connection that only reads; with ``stamps``, of files that it takes for unchanged since."""

    stamps: Stamps | None = None


def connect_for_reading(path: Path, busy_timeout: float) -> ReadingConnection:
    """Return a connection that writes nothing, neither into the database nor beside it, but for a log's index.

    Raises `StoreUnavailable` where a log cannot be read without writing, and the driver's errors.
    """
    stamps = stamps_of(path)
    if not any(stamp is not None and stamp.size for stamp in stamps[1:]):
        return _connected(path, "immutable=1", busy_timeout, stamps)
    try:
        return _connected(path, "mode=ro", busy_timeout, None)
    except sqlite3.OperationalError as error:
        if primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR):
            raise
        raise StoreUnavailable(
            f"{path} has a log or a journal beside it that cannot be read without writing ({error}); copy both to a "
            "folder of your own, and open the copy"
        ) from error


def _connected(path: Path, how: str, busy_timeout: float, stamps: Stamps | None) -> ReadingConnection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=True,
        factory=ReadingConnection,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        connection.close()
        raise
    connection.stamps = stamps
    return connection
