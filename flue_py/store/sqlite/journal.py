"""Which journal a SQLite file has: a write-ahead log, or a rollback journal where the file system allows no better.

A write-ahead log needs memory that processes share, by mapping a file. Some file systems refuse that. There a
rollback journal keeps the same promises; but a commit waits for reads in progress, and a read for a commit.
"""

from __future__ import annotations

import contextlib
import mmap
import sqlite3
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.errors import StoreWarning
from flue_py.lazy import lazy_module
from flue_py.store.sqlite.file import BUSY_POLL_MS, run_when_free
from flue_py.store.sqlite.owner import OpenFile

if TYPE_CHECKING:
    import ctypes
    import tempfile
else:
    # Both are slow to import, and seldom needed.
    ctypes = lazy_module("ctypes")
    tempfile = lazy_module("tempfile")

WAL = "wal"
_SHARED_MEMORY_FAILED = (
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
)


def journal_mode(connection: sqlite3.Connection) -> str:
    """Return ``"wal"``, or the kind of rollback journal. Raises the driver's errors."""
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def can_share_memory(folder: Path) -> bool:
    """Return whether a file in this folder can be made and mapped, as the index of a write-ahead log must be."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
    except (OSError, ValueError):
        return False
    return True


def use_wal(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Switch to a write-ahead log, which the file remembers, where that is possible; outside a transaction.

    Otherwise the file keeps its rollback journal. SQLite would note the switch before it finds out that it has no
    shared memory, and leave a file that nobody can read: so that is tried out beforehand.
    """
    if journal_mode(connection) == WAL or not can_share_memory(path.resolve().parent):
        return
    # Another process may be doing the same; the second one finds it done.
    with contextlib.suppress(sqlite3.OperationalError):
        run_when_free(connection, "PRAGMA journal_mode = WAL", busy_timeout)


def try_wal(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Return a store in use to the write-ahead log that it lost by `VACUUM INTO`, or on another file system.

    Whoever uses it just now is not waited for: the next to open it will do it.
    """
    if journal_mode(connection) == WAL:
        return
    connection.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")
    use_wal(connection, path, 0)
    connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}")


def warn_without_wal(mode: str, location: str | Path) -> None:
    """Warn with `StoreWarning` of a store that has no write-ahead log."""
    if mode != WAL:
        warnings.warn(
            f"{location} has a rollback journal: a write-ahead log needs a folder that this user may write to, on a "
            "file system where files can be mapped. Nothing is lost, but reads and writes wait for each other; move "
            "the file to a local disk",
            StoreWarning,
            stacklevel=2,
        )


def rescue_log(connection: sqlite3.Connection, file: OpenFile) -> None:
    """Move what a log holds into the database, and leave it empty, where it is no longer the log of what is there.

    When a database has left its path, its log would be taken for that of whatever file comes to lie there. When the log
    has left it, nobody will find it again.
    """
    if not file.is_in_place or file.is_log_unreachable:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def let_go(connection: sqlite3.Connection, file: OpenFile) -> None:
    """Close the last connection to a file; leave it open where SQLite would remove a log that is somebody else's.

    Then the file cannot be opened again in this process: SQLite would go on with the index that is lost.
    """
    rescue_log(connection, file)
    if file.is_in_place and file.is_log_somebody_elses:
        file.refuse_here()
        # An object with one reference more than there are is closed by the end of the process alone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    else:
        connection.close()


def is_shared_memory_missing(error: BaseException) -> bool:
    """Return whether a write-ahead log could not be used for lack of shared memory, as the driver or we say it."""
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__
    return getattr(cause, "sqlite_errorcode", None) in _SHARED_MEMORY_FAILED


def leave_wal(path: Path) -> None:
    """Give a file whose write-ahead log cannot be used here a rollback journal. Raises the driver's errors.

    What the log holds goes into the database. One connection alone needs no shared memory for that; it is refused
    where another process has the file open.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE")
