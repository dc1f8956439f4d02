"""A SQLite file that is a store: its log, locks and journal, opening and upgrading it, and transactions on it."""

from __future__ import annotations

import contextlib
import mmap
import os
import sqlite3
import stat
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import methodcaller
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from flue_py import errors
from flue_py.core.json import Frozen
from flue_py.db import runner, schema, sql
from flue_py.db.files import Part
from flue_py.lazy import lazy_module
from flue_py.system import uri_of

if TYPE_CHECKING:
    import ctypes
    import tempfile

    import sqlalchemy
else:
    # Both are slow to import, and seldom needed.
    # Needed for a file of an older format only.
    ctypes = lazy_module("ctypes")
    sqlalchemy = lazy_module("sqlalchemy")
    tempfile = lazy_module("tempfile")


# ---------------------------------------------------------------------------------------------------------------------
# The log of an open SQLite database and the log's index: which files they are, and that nobody took them away.
#
# While a connection with a write-ahead log is open, SQLite neither removes nor replaces these two, in no process: that
# is left to the last connection. So where one of them is gone or is another file, somebody else did it, and a commit
# from then on would be found by nobody. A log may become shorter, but only when all of it is in the database.

Identity: TypeAlias = tuple[int, int]
"""The identity of a file, whatever its name: device and inode."""

_LOG_HEADER, _FRAME_HEADER = 32, 24
_LOOKS = 3


def identity_of(path: str | Path) -> Identity:
    """Return which file is at a path. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def identity_at(path: str | Path) -> Identity | None:
    """Return which file is at a path; None if there is none, or nobody can tell."""
    try:
        return identity_of(path)
    except OSError:
        return None


def _close_here(descriptor: int, pid: int) -> None:
    # A child may have closed it, and have another file by this number.
    if os.getpid() == pid:
        os.close(descriptor)


class LogFiles:
    """The log and the index of a database, while ``connection``, or another one, keeps both of them there.

    Raises OSError where they are not there.
    """

    def __init__(self, database: Path, connection: sqlite3.Connection) -> None:
        # A connection makes them when it first reads.
        connection.execute("PRAGMA schema_version").fetchone()
        # They lie beside the file itself, not beside a link to it.
        real = database.resolve()
        self._log = f"{real}-wal"
        self._identities = {path: identity_of(path) for path in (self._log, f"{real}-shm")}
        self._frame = _FRAME_HEADER + int(connection.execute("PRAGMA page_size").fetchone()[0])
        # No lock is on the log that closing it would let go of.
        self._descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, _close_here, self._descriptor, os.getpid())
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)
        """How long the log was found to be last."""

    def look(self) -> str | None:
        """Return which of the two is another file, or gone; None if both are there. Two looks at the file system."""
        for path, identity in self._identities.items():
            try:
                status = os.stat(path)
            except OSError as error:
                return f"{path} was removed or moved while the store was open ({error.strerror})"
            if (status.st_dev, status.st_ino) != identity:
                return f"{path} was replaced by another file while the store was open"
        return None

    def has_shrunk(self) -> bool:
        """Return whether the log is shorter than it was found before: for the writer.

        Under the write lock nobody may shorten it.
        """
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        if size < self.size:
            return True
        self.size = size
        return False

    @property
    def are_somebody_elses(self) -> bool:
        """Whether another file is where one of the two was: somebody has opened the database anew."""
        # In one look: a file may go at any time.
        return any(identity_at(path) not in (None, own) for path, own in self._identities.items())

    @property
    def is_log_gone(self) -> bool:
        """Whether nothing is where the log was."""
        return not os.path.lexists(self._log)

    def has_lost_frames(self, connection: sqlite3.Connection) -> bool:
        """Return whether a log that has shrunk lacks something that is not in the database; outside a transaction.

        SQLite says how many frames the log should have, none when it has cut off those in the database. It is asked
        by a checkpoint, which moves the frames it can, and fails at the first frame that is not there.
        """
        for _ in range(_LOOKS):
            try:
                frames = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
            except sqlite3.OperationalError as error:
                return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
            size = os.lseek(self._descriptor, 0, os.SEEK_END)
            if frames < 0:
                # Another process is at it just now; the next commit looks again.
                return False
            if frames == 0 or size >= _LOG_HEADER + frames * self._frame:
                self.size = size
                return False
            # It may have been cut by its own between the two looks.
        return True


# ---------------------------------------------------------------------------------------------------------------------
# A SQLite file: made private, opened with the right settings, its errors told in our own words.

SYNCHRONOUS: dict[runner.Durability, str] = {"full": "EXTRA", "normal": "NORMAL"}
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
"""Unique columns, and the argument of `open` that each is drawn from."""
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
            raise errors.NotAStore(f"{path} is a directory; name a file")
        # A device such as /dev/null is empty too, and belongs to root.
        _require_plain_file(path, status)
        if status.st_size == 0 and status.st_uid == os.geteuid():
            path.chmod(0o600)
    except (OSError, ValueError) as error:
        raise errors.StoreUnavailable(f"{str(path)!r} cannot be created or read: {_reason(error)}") from error


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
        raise errors.StoreUnavailable(f"{str(path)!r} cannot be read: {_reason(error)}") from error
    _require_plain_file(path, status)
    if stat.S_ISDIR(status.st_mode):
        raise errors.StoreUnavailable(f"{str(path)!r} cannot be read: it is a directory")
    if not os.access(path, os.R_OK):
        raise errors.StoreUnavailable(f"{str(path)!r} cannot be read: this user has no permission")
    if status.st_size == 1:
        # SQLite takes it for an empty file.
        raise _no_database(path)
    try:
        with contextlib.closing(sqlite3.connect(f"{uri_of(path)}?immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA user_version")
    except sqlite3.Error as error:
        # Other faults are reported when the database is opened, its log included.
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise _no_database(path) from error


def _no_database(path: Path | str) -> errors.NotAStore:
    return errors.NotAStore(f"{path} is not a SQLite database; name another file")


def _require_plain_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise errors.NotAStore(f"{path} is a device, a pipe or a socket; name a file")


def _reason(error: OSError | ValueError) -> str:
    # A name with a NUL or a lone surrogate is a ValueError: no file can have it.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def connect(
    path: Path, durability: runner.Durability, *, read_only: bool, timeout: float = BUSY_POLL_MS / 1000
) -> sqlite3.Connection:
    """Return a connection in autocommit mode with this store's settings. Raises as `translated` does.

    ``timeout`` is how many seconds one statement waits for another process's lock. A file that is missing is made
    unless ``read_only``.
    """
    with translated(path):
        connection = sqlite3.connect(
            f"{uri_of(path)}?mode=rw" if read_only else path,
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
    except UnicodeDecodeError as error:
        # Of the schema: a text of a row that is no UTF-8 is an error of the driver.
        raise errors.CorruptStore(f"{path} is damaged ({error}); restore a backup, or run flue-py salvage") from error


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
            for _ in chunks_of(name):
                pass
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{name}: {error.strerror or error}"
    return None


def chunks_of(name: str) -> Iterator[bytes]:
    """Yield what is in a file of a database, a megabyte at a time. Raises OSError."""
    identity = identity_of(name)
    if identity not in _read_by_us:
        _read_by_us[identity] = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    position = 0
    while chunk := os.pread(_read_by_us[identity], 1 << 20, position):
        yield chunk
        position += len(chunk)


def no_new_id(error: Exception, path: Path | str) -> errors.FlueError:
    """Return our error for a write that met something unique again and again: an id, or damage, for verify()."""
    text = str(error)
    for column, source in _GENERATED.items():
        if text.startswith("UNIQUE") and text.endswith(column):
            return errors.InvalidArgument(
                f"{source}: {ID_ATTEMPTS} ids in a row are taken ({path}: {text}); make others, and none twice"
            )
    return errors.CorruptStore(f"{path}: a write contradicts what is stored ({text}); run verify()")


def translate(error: sqlite3.Error | MemoryError, path: Path | str, file: Path | None = None) -> errors.FlueError:
    """Return our error for one of the driver's; ``file`` is the database where ``path`` is a URL."""
    if isinstance(error, MemoryError):
        return errors.StoreUnavailable(f"{path} cannot be used: {_ADVICE[sqlite3.SQLITE_NOMEM]}")
    primary = primary_code(error)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return errors.StoreBusy(f"{path} is locked by another process; try again, or raise busy_timeout")
    if primary == sqlite3.SQLITE_NOTADB:
        return _no_database(path)
    if primary == sqlite3.SQLITE_CORRUPT:
        return _damaged(error, path, path if isinstance(path, Path) else file)
    if primary in _UNAVAILABLE:
        return errors.StoreUnavailable(f"{path} cannot be used: {error}; {_ADVICE.get(primary, _LOOK_AT_THE_DISK)}")
    return errors.CorruptStore(f"{path}: SQLite refused an operation ({error}); run verify()")


def unknown_outcome(error: sqlite3.Error | MemoryError, path: Path | str) -> errors.OutcomeUnknown | None:
    """Return our error for a COMMIT whose failure leaves open whether it happened; None for one that did not happen.

    A change may be in the file when SQLite finds out that the disk did not take it, or that it lacks the
    memory to say so to others: who opens the file after a crash may see it.
    """
    if isinstance(error, sqlite3.Error) and (
        primary_code(error) not in _MAY_HAVE_HAPPENED or error.sqlite_errorcode in _HAS_NOT_HAPPENED
    ):
        return None
    return errors.OutcomeUnknown(
        f"{path}: a commit failed ({str(error) or 'the memory ran out'}), so whether the operation happened is not "
        "known; look at the disk, then refresh() and look before you repeat it, or use an idempotency_key"
    )


def lost_while_committing(error: errors.StoreUnavailable) -> errors.OutcomeUnknown:
    """Return our error for a commit to files that were in place before it, and after it no more."""
    return errors.OutcomeUnknown(
        f"{error}; it happened during a commit, so whether the operation is there is not known"
    )


def _damaged(error: sqlite3.Error, path: Path | str, file: Path | None) -> errors.FlueError:
    failure = None if file is None else _failure_to_read(file)
    if failure is not None:
        return errors.StoreUnavailable(f"{path} cannot be read ({failure}); {_LOOK_AT_THE_DISK}")
    return errors.CorruptStore(f"{path} is damaged ({error}); restore a backup, or run flue-py salvage")


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection's lock is the cause."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def run_when_free(
    statement: str, connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], object] = object
) -> None:
    """Run a statement, trying again with jitter for up to ``busy_timeout`` seconds while it meets a lock.

    SQLite's own busy handler polls in lock step and starves the one that waits longest, hence the jitter. It is given
    up, too, with the driver's error, once ``is_wanted`` says no.
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


begin_immediate = partial(run_when_free, "BEGIN IMMEDIATE")
"""Take the write lock."""
commit = partial(run_when_free, "COMMIT")
"""Commit. With a rollback journal that waits for reads in progress, too."""


class Cursor(Protocol):
    """The result of a statement, by a driver or SQLAlchemy."""

    def fetchone(self) -> object:
        """Return the next row, or None."""


class LogKeeper:
    """Keeps a file's write-ahead log bounded, where SQLite alone would not.

    SQLite moves the log into the database every 1,000 pages, and begins the log anew once all of it is moved and
    nobody reads from it. While reads overlap, that moment never comes, and a log that has grown stays as long as it
    is. So beyond `LOG_LIMIT` a writer waits for readers for a moment, twice as long each time the log has doubled.
    ``busy_ms`` is how long statements of the writer's connection wait for locks otherwise.
    """

    def __init__(self, busy_ms: int = BUSY_POLL_MS) -> None:
        self._busy_ms = busy_ms
        self._due = LOG_LIMIT

    def after_commit(self, execute: Callable[[str], Cursor], size: int) -> None:
        """Empty the log, which has this size, if it is too long and can be had.

        ``execute`` runs SQL on the writer's connection. A failure here is no concern of the transaction before, and the
        next one will meet it. A wait of 50 ms to a second at each doubling while a long read goes on.
        """
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


# ---------------------------------------------------------------------------------------------------------------------
# Which database files this process has open, and whether they still are where they were.
#
# A child of ``os.fork()`` has none of the threads of a store, shares its sockets with the parent, and believes that
# it holds locks which POSIX did not hand on to it. So it is refused: the use of what was open, and also to open such
# a file again, since SQLite keeps what it knows of a file's locks per process and would take no lock at all.


SETTLED_AFTER_NS = 2 * 10**9


class OpenFile:
    """A database file that is open, with the log beside it: where they are, which files they are, and for whom."""

    def __init__(self, path: Path, holder: object) -> None:
        self._path = str(path)
        self._identity = identity_of(path)
        # The log lies beside the file itself, not beside a link to it.
        self._folder = None if path.is_symlink() else str(path.parent)
        self._settled: tuple[int, int, int] | None = None
        self._log: LogFiles | None = None
        self._lost: str | None = None
        _open_files.add(holder, self._identity)

    def watch_log(self, connection: sqlite3.Connection) -> None:
        """Look after the log and its index from here on, too; ``connection`` is open as long as this file is.

        Raises `StoreUnavailable` where they are gone already, and the driver's errors.
        """
        self._settled = None
        try:
            self._log = LogFiles(Path(self._path), connection)
        except OSError as error:
            raise errors.StoreUnavailable(
                f"{self._path} lost its log while it was opened ({error}); open it again"
            ) from error

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""
        return identity_at(self._path) == self._identity

    @property
    def is_log_unreachable(self) -> bool:
        """Whether nobody but who has it open will find this file's log, and nobody has begun another one."""
        return self._log is not None and self._log.is_log_gone and not self._log.are_somebody_elses

    @property
    def is_log_somebody_elses(self) -> bool:
        """Whether another log, or another index, has taken the place of this file's."""
        return self._log is not None and self._log.are_somebody_elses

    def require_in_place(self) -> None:
        """Raise `StoreUnavailable` where nobody would find a write: a file was removed, moved or replaced.

        Once the log or its index is lost, that remains so. One look at the file system, and three where something in
        the folder was changed since the last call.
        """
        # Before the others: a change that comes between is seen by the next call.
        stamp = self._stamp()
        if stamp is not None and stamp == self._settled and self._lost is None:
            return
        try:
            identity = identity_of(self._path)
        except OSError as error:
            raise errors.StoreUnavailable(
                f"{self._path} was removed or moved while it was open ({error.strerror}); put it back, or close the "
                "store and open another"
            ) from error
        if identity != self._identity:
            raise errors.StoreUnavailable(
                f"{self._path} was replaced by another file while it was open; close the store, and open it again"
            )
        if self._log is not None and self._lost is None:
            self._lost = self._log.look()
        if self._lost is not None:
            raise self._no_more()
        # A clock of files may stand still for a moment: a folder that has just changed may change again unseen.
        if stamp is not None and time.time_ns() - stamp[-1] > SETTLED_AFTER_NS:
            self._settled = stamp

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return which folder it is, and when a name in it was changed last, in nanoseconds; None if unknown."""
        if self._folder is None:
            return None
        try:
            status = os.stat(self._folder)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    def refuse_here(self) -> None:
        """Refuse to open the file in this process again, where connections with a lost log or index stay open."""
        _open_files.lost.add(self._identity)

    @property
    def is_log_lost(self) -> bool:
        """Whether the log or its index was found to be lost."""
        return self._lost is not None

    def log_has_shrunk(self) -> bool:
        """Return whether the log is shorter than it was."""
        return self._log is not None and self._log.has_shrunk()

    @property
    def log_size(self) -> int:
        """How long the log was found to be last, 0 where there is none."""
        return 0 if self._log is None else self._log.size

    def require_kept_log(self) -> None:
        """Raise `StoreUnavailable`, now and from here on, where a file is not in place or the log was cut short; under
        the write lock, when it was not at the beginning.
        """
        self.require_in_place()
        if self._log is not None and self._log.has_shrunk():
            self._lose_log()

    def require_whole_log(self, connection: sqlite3.Connection) -> None:
        """Do so outside a transaction, where the log is shorter than its frames.

        A checkpoint where it has become shorter.
        """
        self.require_in_place()
        if self._log is not None and self._log.has_shrunk() and self._log.has_lost_frames(connection):
            self._lose_log()

    def _lose_log(self) -> None:
        self._lost = f"the log of {self._path} was cut short while the store was open"
        raise self._no_more()

    def _no_more(self) -> errors.StoreUnavailable:
        return errors.StoreUnavailable(f"{self._lost}; nothing is written any more: close the store, and open it again")


class _OpenFiles:
    """The files that this process has open, and those that its parent had when it forked."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._held: WeakKeyDictionary[object, Identity] = WeakKeyDictionary()
        self._inherited: set[Identity] = set()
        self.lost: set[Identity] = set()

    def _notice_fork(self) -> None:
        if os.getpid() != self._pid:
            self._inherited |= set(self._held.values())
            self._held = WeakKeyDictionary()
            self._pid = os.getpid()

    def add(self, holder: object, identity: Identity) -> None:
        self._notice_fork()
        self._held[holder] = identity

    def discard(self, holder: object) -> None:
        self._notice_fork()
        self._held.pop(holder, None)

    def is_held(self, identity: Identity) -> bool:
        self._notice_fork()
        return identity in self._held.values()

    def is_inherited(self, identity: Identity) -> bool:
        self._notice_fork()
        return identity in self._inherited


_open_files = _OpenFiles()


def forget_file(holder: object) -> None:
    """Note that ``holder`` has let go of its file: a child forked from here on may open it."""
    _open_files.discard(holder)


def require_not_lost(path: Path) -> None:
    """Raise `StoreUnavailable` for a file that this process still has open with a log that is no longer the file's."""
    try:
        identity = identity_of(path)
    except OSError:
        return
    if identity in _open_files.lost:
        raise errors.StoreUnavailable(
            f"{path} lost its log or its index while this process had it open, and this process still has what is lost "
            "in use: end it, and open the store in a new one"
        )


def require_not_open(path: Path) -> None:
    """Raise `InvalidArgument` for a file that a store of this process has open.

    To read and close a file by other means than SQLite's would let go of the locks that this process has on it.
    """
    with contextlib.suppress(OSError):
        if _open_files.is_held(identity_of(path)):
            raise errors.InvalidArgument(f"{path} is open as a store in this process; close it first")


def require_not_inherited(path: Path) -> None:
    """Raise `WrongProcess` for a file that was open in the parent of this process when it forked."""
    try:
        identity = identity_of(path)
    except OSError:
        return
    if _open_files.is_inherited(identity):
        raise errors.WrongProcess(
            f"{path} was open in the process that forked this one, and cannot be opened safely in such a child; "
            "start the process with the method 'spawn' or 'forkserver', or fork before the store is opened"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Which journal a SQLite file has: a write-ahead log, or a rollback journal where the file system allows no better.
#
# A write-ahead log needs memory that processes share, by mapping a file. Some file systems refuse that. There a
# rollback journal keeps the same promises; but a commit waits for reads in progress, and a read for a commit.

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
        run_when_free("PRAGMA journal_mode = WAL", connection, busy_timeout)


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
            errors.StoreWarning,
            stacklevel=2,
        )


def rescue_log(connection: sqlite3.Connection, file: OpenFile) -> None:
    """Move a log into the database, and leave it empty, if it is no longer the log of the file that is there.

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

    The log goes into the database. One connection alone needs no shared memory for that; it is refused
    where another process has the file open.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE")


# ---------------------------------------------------------------------------------------------------------------------
# Copying a SQLite database page by page, as it was when the copying began, while others go on writing.

Progress: TypeAlias = Callable[[int, int], None]
"""Takes how many pages have been copied, and how many there are. Called on another thread."""

PAGES_AT_ONCE = 256


def copy_into(source: sqlite3.Connection, target: Path, progress: Progress | None = None) -> None:
    """Copy one snapshot of a database into a file that is empty. Raises errors of `sqlite3` as they are. O(file)."""

    def tell(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # Nobody reads it before it is complete and on disk, so that nothing is gained by waiting for the disk here.
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = MEMORY")
        # The copying would start again at each commit of another process, if it did not hold on to its snapshot.
        source.execute("BEGIN")
        try:
            source.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            source.backup(copy, pages=PAGES_AT_ONCE, progress=tell)
        finally:
            source.execute("ROLLBACK")


# ---------------------------------------------------------------------------------------------------------------------
# Bringing a database to the current format: stamped first, refused when newer, migrated when older.
#
# A new database is made from the schema in one transaction; an older one is backed up beside itself and upgraded by
# alembic. Both happen under the write lock, so that of two processes one does it and the other finds it done.

Prepare: TypeAlias = Callable[[sqlite3.Connection, Path, float], schema.Migrated]


def open_file(
    path: Path, durability: runner.Durability, busy_timeout: float, *, create: bool = True
) -> sqlite3.Connection:
    """Return a connection to a database file of the current format, made private, created or upgraded as needed.

    Raises `NotAStore`, `FormatTooNew`, `StoreUnavailable`, `StoreBusy`, `CorruptStore`.
    """
    return _open(path, durability, busy_timeout, create=create)[0]


def _open(
    path: Path, durability: runner.Durability, busy_timeout: float, *, create: bool, prepare: Prepare | None = None
) -> tuple[sqlite3.Connection, schema.Migrated]:
    prepare = prepare or prepare_database
    if create:
        make_private_file(path)
    check_magic(path)
    require_not_inherited(path)
    require_not_lost(path)
    with translated(path):
        try:
            return _connect_and_prepare(path, durability, busy_timeout, prepare)
        except (sqlite3.OperationalError, errors.StoreUnavailable) as error:
            if not is_shared_memory_missing(error):
                raise
        leave_wal(path)
        return _connect_and_prepare(path, durability, busy_timeout, prepare)


def _connect_and_prepare(
    path: Path, durability: runner.Durability, busy_timeout: float, prepare: Prepare
) -> tuple[sqlite3.Connection, schema.Migrated]:
    # Whoever is just making or upgrading the database holds a lock that even reading has to wait for.
    connection = connect(path, durability, read_only=False, timeout=busy_timeout)
    try:
        done = prepare(connection, path, busy_timeout)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")
    except BaseException:
        connection.close()
        raise
    return connection, done


def prepare_database(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> schema.Migrated:
    """Bring a SQLite database to the current format; return the formats before and after.

    Raises `FormatTooNew`, `NotAStore`, `CorruptStore`; driver errors as they are. O(1) where it is current: five
    reads, no write.
    """
    stamp = format_of(connection, path)
    if stamp == schema.FORMAT_VERSION:
        try_wal(connection, path, busy_timeout)
        return schema.Migrated(str(path), stamp)
    _ask_for_wal(connection, path, busy_timeout)
    begin_immediate(connection, busy_timeout)
    try:
        stamp = format_of(connection, path)
        if stamp is None:
            create_tables(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    commit(connection, busy_timeout)
    if stamp is not None and stamp != schema.FORMAT_VERSION:
        return _upgrade(connection, path, stamp, busy_timeout)
    return schema.Migrated(str(path), stamp)


def _ask_for_wal(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Switch to a write-ahead log where the file system can do that."""
    if journal_mode(connection) != WAL:
        # The switch cannot be waited for, nor made inside a transaction.
        begin_immediate(connection, busy_timeout)
        connection.execute("COMMIT")
        use_wal(connection, path, busy_timeout)


def format_of(connection: sqlite3.Connection, path: Path) -> int | None:
    """Return the stamped format, or None for an empty database.

    Raises `NotAStore` for somebody else's, `FormatTooNew`, `CorruptStore`.
    """
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "flue_store" not in tables:
        raise errors.NotAStore(f"{path} is a SQLite database of another program; name another file")
    row = connection.execute("SELECT value FROM flue_store WHERE name = 'format'").fetchone()
    if row is None:
        raise errors.NotAStore(f"{path} has no format stamp; it is not a database of flue_py")
    return schema.checked_stamp(row[0], str(path))


def create_tables(connection: sqlite3.Connection) -> None:
    """Make a new store of an empty database, inside the transaction that is open: the stamp first, then the tables."""
    for statement in schema.stamp_statements():
        connection.execute(statement)
    for statement in schema.schema_statements():
        connection.execute(statement)


def backup_path(path: Path, stamp: int) -> Path:
    """Return a free name beside the database for its backup before a migration."""
    number = 0
    while True:
        candidate = path.with_name(f"{path.name}.format-{stamp}{f'-{number}' if number else ''}.bak")
        if not os.path.lexists(candidate):
            return candidate
        number += 1


def _upgrade(connection: sqlite3.Connection, path: Path, stamp: int, busy_timeout: float) -> schema.Migrated:
    """Back an older database up, then run the migrations that it lacks, in one transaction."""
    return _in_alembic(lambda target, _: schema.run_migrations(target), connection, path, stamp, busy_timeout)


def _in_alembic(
    run: schema.RunAlembic, connection: sqlite3.Connection, path: Path, stamp: int | None, busy_timeout: float
) -> schema.Migrated:
    """Have alembic work on a database in one transaction, which holds the write lock; return the format it was in.

    An empty database is stamped before, one that lacks migrations is backed up. Raises `CorruptStore` where alembic
    fails; nothing was changed then.
    """
    backup: Path | None = None
    try:
        engine = _engine_on(connection)
        sqlalchemy.event.listen(engine, "begin", lambda _: begin_immediate(connection, busy_timeout))
        with engine.begin() as target:
            now = format_of(connection, path)
            if now is None:
                for statement in schema.stamp_statements():
                    connection.execute(statement)
            elif now != schema.FORMAT_VERSION:
                backup = _back_up(path, now, busy_timeout)
            run(target, None)
    except (sqlalchemy.exc.SQLAlchemyError, errors.CorruptStore) as error:
        advice = f"; a backup is at {backup}" if backup is not None else ""
        raise errors.CorruptStore(
            f"{path} cannot be upgraded from format {stamp}, and is as it was ({error}){advice}"
        ) from error
    except BaseException:
        # What was refused has changed nothing, so there is nothing to restore.
        if backup is not None:
            backup.unlink()
        raise
    return schema.Migrated(str(path), now, backup)


def _engine_on(connection: sqlite3.Connection) -> sqlalchemy.Engine:
    """Return an engine of one connection, which it neither closes nor resets."""
    return sqlalchemy.create_engine(
        "sqlite://", creator=lambda: connection, poolclass=sqlalchemy.StaticPool, pool_reset_on_return=None
    )


def _back_up(path: Path, stamp: int, busy_timeout: float) -> Path:
    """Copy an older database beside itself while this process holds its write lock; return where the copy is.

    Under the lock, since of two processes that upgrade at once only one is to make a backup, and one that is made
    before it may lack writes made meanwhile.
    """
    backup = backup_path(path, stamp)
    with Part(backup) as part:
        # A connection that is writing cannot be copied from; another one reads what was committed before.
        with closing(connect(path, "full", read_only=True, timeout=busy_timeout)) as source:
            copy_into(source, part.path)
        part.publish()
    return backup


def migrate_file(path: Path, busy_timeout: float) -> schema.Migrated:
    """Bring a file to the current format, made where there is none; return the formats. Raises as `open_file`."""
    connection, done = _open(path, "full", busy_timeout, create=True)
    connection.close()
    return done


def migrate_file_with(run: schema.RunAlembic, path: Path, busy_timeout: float, *, reads_only: bool) -> None:
    """Call ``run`` with a connection to a file that alembic is to work on, as `migrate_file` would, and no schema.

    Where alembic only looks, nothing is made or changed. Raises as `migrate_file`, and errors of ``run``.
    """
    if not reads_only:
        _open(path, "full", busy_timeout, create=True, prepare=partial(_prepare_with, run))[0].close()
        return
    check_magic(path)
    require_not_lost(path)
    with translated(path), closing(connect(path, "full", read_only=True, timeout=busy_timeout)) as connection:
        format_of(connection, path)
        with _engine_on(connection).connect() as target:
            run(target, None)


def _prepare_with(
    run: schema.RunAlembic, connection: sqlite3.Connection, path: Path, busy_timeout: float
) -> schema.Migrated:
    stamp = format_of(connection, path)
    _ask_for_wal(connection, path, busy_timeout)
    return _in_alembic(run, connection, path, stamp, busy_timeout)


# ---------------------------------------------------------------------------------------------------------------------
# A transaction on SQLite, and on the driver of the standard library.


class SoleWriter(runner.Transaction):
    """A transaction on SQLite, whatever the driver: it is the only one that writes."""

    @property
    def is_alone(self) -> bool:
        return True

    def require_snapshot(self) -> None:
        """Nothing to do: a transaction of SQLite reads one snapshot."""

    def lock_sessions(self, keys: Collection[int]) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def lock_session(self, session_id: str) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def lock_named(self, session_ids: Collection[str]) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def lock_writers_out(self) -> None:
        """Nothing to do: SQLite has one writer at a time."""

    def new_key(self) -> int:
        row = self.first(sql.READ_STATE, name="next_key")
        if row is None:
            raise errors.CorruptStore("the store has lost its key counter; run verify()")
        key = int(row[0])
        self.run(sql.WRITE_STATE, name="next_key", number=key + 1)
        return key


_ROWS_AT_ONCE = 100


class SqliteTransaction(SoleWriter):
    """A transaction on the stdlib driver. ``wrote`` tells whether a rollback would undo anything."""

    def __init__(self, connection: sqlite3.Connection, states: dict[str, runner.SessionState] | None = None) -> None:
        self._connection = connection
        self.states = {} if states is None else states
        self.wrote = False

    def rows(self, statement: runner.Statement[runner.R], /, **parameters: object) -> Sequence[runner.R]:
        cursor = self._connection.execute(statement.positional, statement.in_order(parameters))
        self.wrote = self.wrote or statement.writes
        make = statement.make
        return cursor.fetchall() if make is None else list(map(make, cursor))

    def pages(self, statement: runner.Statement[runner.R], /, **parameters: object) -> runner.Pages[runner.R]:
        # What is read, used and let go before the next is read stays in the processor's cache.
        with closing(self._connection.execute(statement.positional, statement.in_order(parameters))) as cursor:
            make = statement.make
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                yield rows if make is None else list(map(make, rows))

    def first(self, statement: runner.Statement[runner.R], /, **parameters: object) -> runner.R | None:
        row = self._connection.execute(statement.positional, statement.in_order(parameters)).fetchone()
        make = statement.make
        value: runner.R | None = row if row is None or make is None else make(row)
        return value

    def run(self, statement: runner.Statement[runner.Nothing], /, **parameters: object) -> int:
        self.wrote = True
        return self._connection.execute(statement.positional, statement.in_order(parameters)).rowcount

    def run_many(self, statement: runner.Statement[runner.R], parameters: Sequence[runner.Parameters]) -> None:
        self.wrote = True
        if len(parameters) == 1:
            self._connection.execute(statement.sql, parameters[0])
        else:
            self._connection.executemany(statement.sql, parameters)

    def insert(self, statement: runner.Insert[runner.Written], rows: Sequence[runner.Written]) -> None:
        self.wrote = True
        if len(rows) == 1:
            self._connection.execute(statement.positional, rows[0])
        else:
            self._connection.executemany(statement.positional, rows)


# ---------------------------------------------------------------------------------------------------------------------
# The connection that writes to a SQLite file: transactions alone or together, and what an error leaves of them.
#
# Nothing here knows of threads or event loops: whoever calls waits, and only one thread calls at a time. Operations
# that are given together are committed together, so that a hundred sessions share one fsync. Where one operation fails
# before it wrote anything, its neighbours do not notice; where it fails later, the batch is rolled back and run again
# one by one, each for itself.

Result = TypeVar("Result")

MAX_KNOWN_STATES = 10_000


class Operation(Generic[Result]):
    """Work for a transaction, and its outcome: ``error``, or else ``result``."""

    __slots__ = ("error", "is_given_up", "result", "work")

    def __init__(self, work: Callable[[runner.Transaction], Result]) -> None:
        self.work = work
        self.result: Result
        self.error: BaseException | None = None
        self.is_given_up = False

    def claim(self) -> bool:
        """Return whether it is still to be run; from then on, nobody can take it back."""
        return True

    def outcome(self) -> Result:
        """Return the result of an operation that was run, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.result


_CLAIM = methodcaller("claim")


class _KnownStates:
    """The states of sessions as the writer's own transactions left them: true until another process commits."""

    def __init__(self) -> None:
        self.current: dict[str, runner.SessionState] = {}
        self._data_version: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Forget everything if any other connection has committed. Called inside a write transaction."""
        version = int(connection.execute("PRAGMA data_version").fetchone()[0])
        if version != self._data_version or len(self.current) > MAX_KNOWN_STATES:
            self.current.clear()
            self._data_version = version


class Writer:
    """Runs operations in write transactions. ``path`` is the file as errors name it.

    The connection and the open file are the writer's from here on, until `close`.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, file: OpenFile, busy_timeout: float) -> None:
        self.connection = connection
        self._path = path
        self.file = file
        self._busy_timeout = busy_timeout
        self.log = LogKeeper()
        self._states = _KnownStates()
        self.journal = WAL
        self._note_journal()

    def run(self, waiting: Sequence[Operation[Any]]) -> None:
        """Run the operations that are still wanted once the write lock is held: until then they can be given up."""
        # An interrupt of the thread that calls may have come between a beginning and its end.
        roll_back(self.connection)
        try:
            self._begin(waiting)
        except BaseException as error:  # noqa: BLE001 - handed to the callers who wait for it
            # All of them have waited the whole budget; alone, each would wait it again.
            self._fail(waiting, error)
            return
        batch = [*filter(_CLAIM, waiting)]
        if len(batch) == 1:
            self._run_alone(batch[0], begun=True)
        elif not self._run_together(batch):
            for operation in batch:
                self._run_alone(operation)

    def close(self) -> None:
        """Close the connection. It must be the last one: only then it can move the log into the database."""
        let_go(self.connection, self.file)

    def _note_journal(self) -> None:
        """Look after the log and its index, where there is a log."""
        self.journal = journal_mode(self.connection)
        if self.journal == WAL:
            self.file.watch_log(self.connection)

    def _begin(self, operations: Sequence[Operation[Any]]) -> None:
        """Take the write lock, of files that are whole. Raises the driver's errors, `StoreUnavailable`."""
        while True:
            begin_immediate(self.connection, self._busy_timeout, partial(_are_wanted, operations))
            if self.journal != WAL:
                # Another process may have made it a log since.
                self._note_journal()
            if not self.file.log_has_shrunk():
                return
            roll_back(self.connection)
            self.file.require_whole_log(self.connection)

    def _fail(self, operations: Sequence[Operation[Any]], error: BaseException) -> None:
        self._undo()
        for operation in operations:
            operation.error = self._translated(error)

    def _run_together(self, batch: Sequence[Operation[Any]]) -> bool:
        """Run a batch in the transaction that has begun; return False, with nothing done, where each must run alone."""
        try:
            self._states.check(self.connection)
            for operation in batch:
                tx = SqliteTransaction(self.connection, self._states.current)
                try:
                    operation.result = operation.work(tx)
                except errors.FlueError as error:
                    if tx.wrote:
                        raise
                    operation.error = error
            self._commit(batch)
        except BaseException as error:  # noqa: BLE001 - each operation meets its own error when it runs alone
            self._undo()
            for operation in batch:
                operation.error = None
            if self._ends_batch(error):
                self._fail(batch, error)
                return True
            return False
        return True

    def _ends_batch(self, error: BaseException) -> bool:
        """Return whether the operations of a batch that failed so must not, or need not, be run again alone."""
        if isinstance(error, errors.OutcomeUnknown):
            # A log still begins where the commit that failed began: to commit again is to write over it.
            return self.journal != WAL or isinstance(error.__cause__, errors.StoreUnavailable)
        # With a rollback journal a commit waits for readers, as the beginning waits for writers.
        return isinstance(error, sqlite3.Error) and is_busy(error)

    def _run_alone(self, operation: Operation[Any], *, begun: bool = False) -> None:
        for _ in range(ID_ATTEMPTS):
            try:
                if not begun:
                    self._begin([operation])
                begun = False
                self._states.check(self.connection)
                operation.result = operation.work(SqliteTransaction(self.connection, self._states.current))
                self._commit([operation])
            except (runner.IdTaken, sqlite3.IntegrityError) as error:
                # A generated id met one that is there: roll back, and run again with another.
                self._undo()
                operation.error = no_new_id(error, self._path)
                operation.error.__cause__ = error
            except BaseException as error:  # noqa: BLE001 - handed to the caller who waits for it
                self._fail([operation], error)
                return
            else:
                operation.error = None
                return

    def _commit(self, operations: Sequence[Operation[Any]]) -> None:
        """Commit to files that others can find: an acknowledged write must be there tomorrow.

        Raises the driver's errors and `StoreUnavailable` where nothing was committed, `OutcomeUnknown`.
        """
        self.file.require_kept_log()
        try:
            commit(self.connection, self._busy_timeout, partial(_are_wanted, operations))
        except (sqlite3.Error, MemoryError) as error:
            unknown = unknown_outcome(error, self._path)
            if unknown is None:
                raise
            raise unknown from error
        try:
            self.file.require_whole_log(self.connection)
        except errors.StoreUnavailable as error:
            raise lost_while_committing(error) from error

    def _translated(self, error: BaseException) -> BaseException:
        """Return the error that a caller gets, with the driver's as its cause."""
        if not isinstance(error, (sqlite3.Error, MemoryError)):
            return raisable(error)
        ours = translate(error, self._path)
        ours.__cause__ = error
        return ours

    def _undo(self) -> None:
        """Roll back, and forget the states that the transaction would have left."""
        roll_back(self.connection)
        self._states.current.clear()
        rescue_log(self.connection, self.file)


def raisable(error: BaseException) -> BaseException:
    """Return the error a future can carry: a StopIteration (of a source of ids that ran out) it would refuse."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = errors.InvalidArgument(
        "ids, session_ids or clock raised StopIteration; has it run out? return another each time"
    )
    wrapped.__cause__ = error
    return wrapped


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction without a trace, where there is one."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _are_wanted(operations: Sequence[Operation[Any]]) -> bool:
    """Return whether anybody still waits for one of these."""
    return not all(operation.is_given_up for operation in operations)


# ---------------------------------------------------------------------------------------------------------------------
# A SQLite file that is open as a store: the connection that writes, those that read, and what changed it last.
#
# What runs transactions on it, on threads or without, decides who calls when. Everything here blocks.


class StoreFile:
    """A file that is written to and read.

    One thread at a time may `write`; each reader is for one thread at a time, too. `version` is for one alone.
    """

    is_writable = True

    def __init__(self, path: Path, durability: runner.Durability, busy_timeout: float) -> None:
        self.path = path
        # The working directory may be another one when a reader connects.
        self._absolute_path = path.absolute()
        self._durability: runner.Durability = durability
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

    @property
    def is_log_long(self) -> bool:
        """Whether the log is so long that looking after it may take long."""
        return self._file is not None and self._file.log_size > LOG_LIMIT

    def look_after_log(self) -> None:
        """Keep the log bounded: to be called after each `write`, once nobody waits for it any more."""
        if self._writer is not None:
            self._writer.log.after_commit(self._writer.connection.execute, self._writer.file.log_size)

    def rescue_log(self) -> None:
        """Move the log into the database if nobody would find it; any thread may ask."""
        if self._writer is not None:
            rescue_log(self._writer.connection, self._writer.file)

    def require_in_place(self) -> None:
        """Raise `StoreUnavailable` where nobody would find a write (see `OpenFile`)."""
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
        """Return a value that differs after each commit, here or in another process (SQLite's data_version)."""
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

    def _read_snapshot(self, connection: sqlite3.Connection, work: Callable[[runner.Transaction], Result]) -> Result:
        # An interrupt of the thread that calls may have come before the end of the last one.
        roll_back(connection)
        try:
            connection.execute("BEGIN")
            return work(SqliteTransaction(connection))
        finally:
            roll_back(connection)


# ---------------------------------------------------------------------------------------------------------------------
# A SQLite file that can be read and not written: why that is so, and a connection that writes nothing at all.
#
# A write-ahead log has an index that readers write to as well. So where a log is in use, SQLite is asked to read it as
# best it can (``mode=ro``). Where there is none, nobody is writing either: the database is read as if it never changed
# (``immutable=1``), which takes no lock and makes no file, and who reads makes sure afterwards that it did not.

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


class _Stamp(Frozen):
    """Tells whether a file was written to."""

    inode: int
    size: int
    changed_ns: int


Stamps: TypeAlias = tuple[_Stamp | None, ...]
"""The stamps of the database, its log and its journal; None for one that is not there."""


def stamps_of(path: Path) -> Stamps:
    """Return the stamps of the files of a database. Three looks at the file system."""
    stamps: list[_Stamp | None] = []
    real = path.resolve()
    for suffix in ("", "-wal", "-journal"):
        try:
            status = os.stat(f"{real}{suffix}")
        except OSError:
            stamps.append(None)
        else:
            stamps.append(_Stamp(status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


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
        raise errors.StoreUnavailable(
            f"{path} has a log or a journal beside it that cannot be read without writing ({error}); copy both to a "
            "folder of your own, and open the copy"
        ) from error


def _connected(path: Path, how: str, busy_timeout: float, stamps: Stamps | None) -> ReadingConnection:
    connection = sqlite3.connect(
        f"{uri_of(path)}?{how}",
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
