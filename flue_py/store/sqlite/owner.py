"""Which database files this process has open, and whether they still are where they were.

A child of ``os.fork()`` has none of the threads of a store, shares its sockets with the parent, and believes that
it holds locks which POSIX did not hand on to it. So it is refused: the use of what was open, and also to open such
a file again, since SQLite keeps what it knows of a file's locks per process and would take no lock at all.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from weakref import WeakKeyDictionary

from flue_py.errors import InvalidArgument, StoreUnavailable, WrongProcess
from flue_py.store.sqlite.log_files import Identity, LogFiles, LogLost, identity_of


class OpenFile:
    """A database file that is open, with the log beside it: where they are, which files they are, and for whom."""

    def __init__(self, path: Path, holder: object) -> None:
        self._path = str(path)
        self._identity = identity_of(path)
        self._log: LogFiles | None = None
        self._lost: str | None = None
        _open_files.add(holder, self._identity)

    def watch_log(self, connection: sqlite3.Connection) -> None:
        """Look after the log and its index from here on, too; ``connection`` is open as long as this file is.

        Raises `StoreUnavailable` where they are gone already, and the driver's errors.
        """
        try:
            self._log = LogFiles(Path(self._path), connection)
        except OSError as error:
            raise StoreUnavailable(f"{self._path} lost its log while it was opened ({error}); open it again") from error

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            return identity_of(self._path) == self._identity
        except OSError:
            return False

    @property
    def is_log_unreachable(self) -> bool:
        """Whether nobody but who has it open will find this file's log, and nobody has begun another one."""
        return self._log is not None and self._log.is_log_gone and not self._log.are_somebody_elses

    @property
    def is_log_somebody_elses(self) -> bool:
        """Whether another log, or another index, has taken the place of this file's."""
        return self._log is not None and self._log.are_somebody_elses

    def require_in_place(self) -> int:
        """Raise `StoreUnavailable` where nobody would find what is written: a file was removed, moved or replaced.

        Once the log or its index is lost, that remains so. Returns how long the log is, 0 where there is none. Three
        looks at the file system.
        """
        try:
            found = identity_of(self._path)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} was removed or moved while it was open ({error.strerror}); put it back, or close the "
                "store and open another"
            ) from error
        if found != self._identity:
            raise StoreUnavailable(
                f"{self._path} was replaced by another file while it was open; close the store, and open it again"
            )
        size = 0
        if self._lost is None and self._log is not None:
            try:
                size = self._log.look()
            except LogLost as lost:
                self._lost = str(lost)
        self._require_not_lost()
        return size

    def refuse_here(self) -> None:
        """Refuse to open the file in this process again, where connections with a lost log or index stay open."""
        _open_files.lost.add(self._identity)

    @property
    def is_log_lost(self) -> bool:
        """Whether the log or its index was found to be lost."""
        return self._lost is not None

    def log_has_shrunk(self, size: int | None = None) -> bool:
        """Return whether the log is shorter than it was; ``size`` is what it is now, if that was just looked up."""
        return self._log is not None and self._log.has_shrunk(size)

    def lose_log(self) -> None:
        """Raise `StoreUnavailable`, now and from here on, since the log was cut short by somebody else."""
        self._lost = f"the log of {self._path} was cut short while the store was open"
        self._require_not_lost()

    def require_whole_log(self, connection: sqlite3.Connection, size: int | None = None) -> None:
        """Raise `StoreUnavailable` where the log is shorter than what is in it; outside a transaction.

        ``size`` is what the log is now, if that was just looked up. A checkpoint where it has become shorter.
        """
        if self._log is not None and self._log.has_shrunk(size) and self._log.has_lost_frames(connection):
            self.lose_log()

    def _require_not_lost(self) -> None:
        if self._lost is not None:
            raise StoreUnavailable(f"{self._lost}; nothing is written any more: close the store, and open it again")


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
        raise StoreUnavailable(
            f"{path} lost its log or its index while this process had it open, and this process still has what is lost "
            "in use: end it, and open the store in a new one"
        )


def require_not_open(path: Path) -> None:
    """Raise `InvalidArgument` for a file that a store of this process has open.

    To read and close a file by other means than SQLite's would let go of the locks that this process has on it.
    """
    with contextlib.suppress(OSError):
        if _open_files.is_held(identity_of(path)):
            raise InvalidArgument(f"{path} is open as a store in this process; close it first")


def require_not_inherited(path: Path) -> None:
    """Raise `WrongProcess` for a file that was open in the parent of this process when it forked."""
    try:
        identity = identity_of(path)
    except OSError:
        return
    if _open_files.is_inherited(identity):
        raise WrongProcess(
            f"{path} was open in the process that forked this one, and cannot be opened safely in such a child; "
            "start the process with the method 'spawn' or 'forkserver', or fork before the store is opened"
        )
