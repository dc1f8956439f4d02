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
from typing import Protocol

from flue_py.errors import (
    CorruptStore,
    FlueError,
    InvalidArgument,
    NotAStore,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
)
from flue_py.store.seam import Durability
from flue_py.store.sqlite.log_files import Identity, identity_of

SYNCHRONOUS: dict[Durability, str] = {"full": "EXTRA", "normal": "NORMAL"}
"""EXTRA is FULL for a write-ahead log. With a rollback journal it also waits until the journal is gone for good."""

_UNAVAILABLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
)
_MAY_HAVE_HAPPENED = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)
_HAS_NOT_HAPPENED = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
"""A commit that could not be written whole is none. One that was written, and not synced, may be."""
_LOOK_AT_THE_DISK = "look at the disk and the system's log, then open the store again and run verify()"
_ADVICE = {
    sqlite3.SQLITE_FULL: "nothing was changed: make room on the disk, and repeat the call",
    sqlite3.SQLITE_READONLY: "nothing was changed: this user must be allowed to write to the file and to its folder",
    sqlite3.SQLITE_CANTOPEN: "this user must be allowed to write to the file and to its folder, and what lies beside "
    "it as -wal, -shm or -journal must be neither a link nor a folder",
    sqlite3.SQLITE_PERM: "this user must be allowed to write to the file and to its folder",
    sqlite3.SQLITE_NOMEM: "the memory ran out; nothing was changed",
}
ID_ATTEMPTS = 8
"""How often an id is asked for again that is taken."""
_GENERATED = {"entries.id, entries.tree_id": "ids", "sessions.id": "session_ids", "budgets.id": "ids"}
"""What is unique, and the argument of `open` that it is drawn from."""
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
            create_private(path)
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NotAStore(f"{path} is a directory; name a file")
        # A device such as /dev/null is empty too, and belongs to root.
        _require_plain_file(path, status)
        if status.st_size == 0 and status.st_uid == os.geteuid():
            path.chmod(0o600)
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be created or read: {_reason(error)}") from error


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600, whatever the umask. Raises OSError, also for a link that leads nowhere."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int | None:
    """Return the size of the database and its write-ahead log in bytes, or None where there is no file."""
    sizes = []
    for suffix in ("", "-wal"):
        with contextlib.suppress(OSError):
            # The log lies beside the file itself, not beside a link to it.
            sizes.append(Path(f"{path.resolve()}{suffix}").stat().st_size)
    return sum(sizes) if sizes else None


def words_file(store: Path) -> Path:
    """Return where the index of words of a store lies: beside the file itself, not beside a link to it."""
    return Path(f"{store.resolve()}-words")


def check_magic(path: Path) -> None:
    """Refuse a file that is no SQLite database before SQLite writes to it. Raises `NotAStore`, `StoreUnavailable`.

    SQLite reads it, and not we: a process that opens and closes a file of its own accord loses every lock that it has
    on it, and with them the locks of a store that it has open. Being ``immutable``, it has no log or journal touched.
    """
    try:
        # To open a pipe would wait for somebody at its other end.
        status = path.stat()
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be read: {_reason(error)}") from error
    _require_plain_file(path, status)
    if stat.S_ISDIR(status.st_mode):
        raise StoreUnavailable(f"{str(path)!r} cannot be read: it is a directory")
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(f"{str(path)!r} cannot be read: this user has no permission")
    if status.st_size == 1:
        # SQLite takes it for an empty file.
        raise _no_database(path)
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA user_version")
    except sqlite3.Error as error:
        # Other faults are reported when the database is opened, its log included.
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise _no_database(path) from error


def _no_database(path: Path | str) -> NotAStore:
    return NotAStore(f"{path} is not a SQLite database; name another file")


def _require_plain_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise NotAStore(f"{path} is a device, a pipe or a socket; name a file")


def _reason(error: OSError | ValueError) -> str:
    # A name with a NUL or a lone surrogate is a ValueError: no file can have it.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def connect(
    path: Path, durability: Durability, *, read_only: bool, timeout: float = BUSY_POLL_MS / 1000
) -> sqlite3.Connection:
    """Return a connection in autocommit mode with this store's settings. Raises as `translated` does.

    ``timeout`` is how many seconds one statement waits for another process's lock. A file that is missing is made
    unless ``read_only``.
    """
    with translated(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw" if read_only else path,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=read_only,
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
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
    except (sqlite3.Error, MemoryError) as error:
        raise translate(error, path) from error


def primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's result code without its details; None for an error of the driver's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


_read_by_us: dict[Identity, int] = {}
"""Descriptors of files that were looked at: to close one would let go of every lock that the process has on it."""


def _failure_to_read(path: Path) -> str | None:
    """Return why the disk cannot read a database or its log, where that is so: SQLite calls it damage. O(file)."""
    for suffix in ("", "-wal"):
        name = f"{path}{suffix}"
        try:
            identity = identity_of(name)
            if identity not in _read_by_us:
                _read_by_us[identity] = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            position = 0
            while chunk := os.pread(_read_by_us[identity], 1 << 20, position):
                position += len(chunk)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{name}: {error.strerror or error}"
    return None


def no_new_id(error: Exception, path: Path | str) -> FlueError:
    """Return our error for a write that met something unique again and again: an id, or what verify() should see."""
    text = str(error)
    for column, source in _GENERATED.items():
        if text.startswith("UNIQUE") and text.endswith(column):
            return InvalidArgument(
                f"{source}: {ID_ATTEMPTS} ids in a row are taken ({path}: {text}); make others, and none twice"
            )
    return CorruptStore(f"{path}: a write contradicts what is stored ({text}); run verify()")


def translate(error: sqlite3.Error | MemoryError, path: Path | str, file: Path | None = None) -> FlueError:
    """Return our error for one of the driver's; ``file`` is the database where ``path`` is a URL."""
    if isinstance(error, MemoryError):
        return StoreUnavailable(f"{path} cannot be used: {_ADVICE[sqlite3.SQLITE_NOMEM]}")
    primary = primary_code(error)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StoreBusy(f"{path} is locked by another process; try again, or raise busy_timeout")
    if primary == sqlite3.SQLITE_NOTADB:
        return _no_database(path)
    if primary == sqlite3.SQLITE_CORRUPT:
        return _damaged(error, path, path if isinstance(path, Path) else file)
    if primary in _UNAVAILABLE:
        return StoreUnavailable(f"{path} cannot be used: {error}; {_ADVICE.get(primary, _LOOK_AT_THE_DISK)}")
    return CorruptStore(f"{path}: SQLite refused an operation ({error}); run verify()")


def unknown_outcome(error: sqlite3.Error | MemoryError, path: Path | str) -> OutcomeUnknown | None:
    """Return our error for a COMMIT whose failure leaves open whether it happened; None for one that did not happen.

    What SQLite has written may be in the file when it finds out that the disk did not take it, or that it lacks the
    memory to say so to others: who opens the file after a crash may see it.
    """
    if isinstance(error, sqlite3.Error) and (
        primary_code(error) not in _MAY_HAVE_HAPPENED or error.sqlite_errorcode in _HAS_NOT_HAPPENED
    ):
        return None
    return OutcomeUnknown(
        f"{path}: a commit failed ({str(error) or 'the memory ran out'}), so whether the operation happened is not "
        "known; look at the disk, then refresh() and look before you repeat it, or use an idempotency_key"
    )


def lost_while_committing(error: StoreUnavailable) -> OutcomeUnknown:
    """Return our error for a commit to files that were in place before it, and after it no more."""
    return OutcomeUnknown(f"{error}; it happened during a commit, so whether the operation is there is not known")


def _damaged(error: sqlite3.Error, path: Path | str, file: Path | None) -> FlueError:
    failure = None if file is None else _failure_to_read(file)
    if failure is not None:
        return StoreUnavailable(f"{path} cannot be read ({failure}); {_LOOK_AT_THE_DISK}")
    return CorruptStore(f"{path} is damaged ({error}); restore a backup, or run flue-py salvage")


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection's lock is the cause."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _always() -> bool:
    return True


def begin_immediate(
    connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], bool] = _always
) -> None:
    """Take the write lock, retrying with jitter for up to ``busy_timeout`` seconds, and while anybody wants it.

    SQLite's own busy handler polls in lock step and starves the one that waits longest, hence the jitter.
    """
    run_when_free(connection, "BEGIN IMMEDIATE", busy_timeout, is_wanted)


def commit(connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], bool] = _always) -> None:
    """Commit. With a rollback journal that waits for reads in progress, which is tried again as the beginning is."""
    run_when_free(connection, "COMMIT", busy_timeout, is_wanted)


def run_when_free(
    connection: sqlite3.Connection, statement: str, busy_timeout: float, is_wanted: Callable[[], bool] = _always
) -> None:
    """Run a statement, trying again with jitter for up to ``busy_timeout`` seconds while it meets a lock.

    It is given up, too, with the driver's error, once ``is_wanted`` says no.
    """
    deadline = time.monotonic() + busy_timeout
    wait = _FIRST_WAIT
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline or not is_wanted():
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

    def after_commit(self, execute: Callable[[str], Cursor], size: int | None = None) -> None:
        """Empty the log if it is too long and can be had. ``execute`` runs SQL on the writer's connection.

        ``size`` is how long the log is, if that was just looked up. What fails here is no concern of the transaction
        before, and the next one will meet it. A wait of 50 ms to a second at each doubling while a long read goes on.
        """
        if size is None:
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
