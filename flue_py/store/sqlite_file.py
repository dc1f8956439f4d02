"""A SQLite file: made private, opened with the right settings, its errors told in our own words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import uniform
from typing import Literal, Protocol, TypeAlias

from flue_py.errors import CorruptStore, FlueError, NotAStore, StoreBusy, StoreUnavailable

Durability: TypeAlias = Literal["full", "normal"]

APPLICATION_ID = 0x464C5545
"""Marks the file as ours in its header: "FLUE"."""

_MAGIC = b"SQLite format 3\x00"
_UNAVAILABLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
)
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05
BUSY_POLL_MS = 50
"""How long one statement waits for a lock; `begin_immediate` tries again, with jitter."""
LOG_LIMIT = 16 * 1024 * 1024
"""How many bytes the write-ahead log may have before writers wait for readers to let go of it."""
_LONGEST_LOG_WAIT_MS = 1000


def make_private_file(path: Path) -> None:
    """Create the database file with mode 0600 if there is none; leave one that is there alone.

    SQLite gives ``-wal`` and ``-shm`` the mode of the database. Raises `StoreUnavailable`, `NotAStore`.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NotAStore(f"{path} is a directory; name a file")
        if stat.S_ISREG(status.st_mode) and status.st_size == 0 and status.st_uid == os.geteuid():
            path.chmod(0o600)
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be created or read: {_reason(error)}") from error


def file_size(path: Path) -> int | None:
    """Return the size of the database and its write-ahead log in bytes, or None where there is no file."""
    sizes = []
    for suffix in ("", "-wal"):
        with contextlib.suppress(OSError):
            sizes.append(Path(f"{path}{suffix}").stat().st_size)
    return sum(sizes) if sizes else None


def check_magic(path: Path) -> None:
    """Refuse a file that is no SQLite database before SQLite touches it. Raises `NotAStore`, `StoreUnavailable`."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be read: {_reason(error)}") from error
    if start and start != _MAGIC:
        raise NotAStore(f"{path} is not a SQLite database; name another file")


def _reason(error: OSError | ValueError) -> str:
    # A name with a NUL or a lone surrogate is a ValueError: no file can have it.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def connect(
    path: Path, durability: Durability, *, read_only: bool, timeout: float = BUSY_POLL_MS / 1000
) -> sqlite3.Connection:
    """Return a connection in autocommit mode with this store's settings. Raises as `translated` does.

    ``timeout`` is how many seconds one statement waits for another process's lock.
    """
    with translated(path):
        connection = sqlite3.connect(
            path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
            connection.execute("PRAGMA temp_store = MEMORY")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn the driver's errors into ours, by their SQLite code, with the cause chained."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error, path: Path | str) -> FlueError:
    """Return our error for one of the driver's."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StoreBusy(f"{path} is locked by another process; try again, or raise busy_timeout")
    if primary == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{path} is not a SQLite database; name another file")
    if primary == sqlite3.SQLITE_CORRUPT:
        return CorruptStore(f"{path} is damaged ({error}); restore a backup, or run flue-py salvage")
    if primary in _UNAVAILABLE:
        return StoreUnavailable(f"{path} cannot be used: {error}")
    return CorruptStore(f"{path}: SQLite refused an operation ({error}); run verify()")


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection's lock is the cause."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def begin_immediate(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Take the write lock, retrying with jitter for up to ``busy_timeout`` seconds.

    SQLite's own busy handler polls in lock step and starves whoever waits longest, hence the jitter.
    """
    deadline = time.monotonic() + busy_timeout
    wait = _FIRST_WAIT
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(uniform(0, wait))  # noqa: S311 - jitter, not a secret
            wait = min(wait * 2, _LONGEST_WAIT)
        else:
            return


class Cursor(Protocol):
    """What a driver or SQLAlchemy returns for a statement."""

    def fetchone(self) -> object:
        """Return the next row, or None."""


class LogKeeper:
    """Keeps a file's write-ahead log bounded, where SQLite alone would not.

    SQLite moves the log into the database every 1,000 pages, and begins the log anew once all of it is moved and
    nobody reads from it. While reads overlap, that moment never comes, and a log that has grown stays as long as it
    is. So beyond `LOG_LIMIT` a writer waits for readers for a moment, twice as long each time the log has doubled.
    ``busy_ms`` is how long statements of the writer's connection wait for locks otherwise.
    """

    def __init__(self, path: Path, busy_ms: int = BUSY_POLL_MS) -> None:
        self._log = f"{path}-wal"
        self._busy_ms = busy_ms
        self._due = LOG_LIMIT

    def after_commit(self, execute: Callable[[str], Cursor]) -> None:
        """Empty the log if it is too long and can be had. ``execute`` runs SQL on the writer's connection.

        What fails here is no concern of the transaction before, and the next one will meet it. One look at the
        file's size, as a rule; a wait of 50 ms to a second at each doubling while a long read goes on.
        """
        try:
            size = os.stat(self._log).st_size
        except OSError:
            return
        if size <= LOG_LIMIT:
            self._due = LOG_LIMIT
            return
        with contextlib.suppress(sqlite3.Error):
            # The log may begin anew by itself, once a long read has ended: from then on it is cut.
            execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}").fetchone()
            if size >= self._due:
                self._due = 2 * size
                wait = min(BUSY_POLL_MS * size // LOG_LIMIT, _LONGEST_LOG_WAIT_MS)
                execute(f"PRAGMA busy_timeout = {wait}").fetchone()
                try:
                    execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    execute(f"PRAGMA busy_timeout = {self._busy_ms}").fetchone()
