"""Who opened a store: a process, and what became of its file since. A store is used where it was opened only.

A child of ``os.fork()`` has none of the threads of a store, shares its sockets with the parent, and believes that
it holds locks which POSIX did not hand on to it. So it is refused: the use of what was open, and also to open such
a file again, since SQLite keeps what it knows of a file's locks per process and would take no lock at all.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

from flue_py.errors import InvalidArgument, StoreUnavailable, WrongProcess

Identity: TypeAlias = tuple[int, int]
"""What a file is, whatever its name: device and inode."""


class Opener:
    """The process that opened a store."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still that process, not a child of it."""
        return os.getpid() == self._pid

    def require_here(self, location: str | Path) -> None:
        """Raise `WrongProcess` in a forked child."""
        if os.getpid() != self._pid:
            raise WrongProcess(
                f"{location} was opened in process {self._pid}, and this is a child that it forked; "
                "open the store after the fork, or start the process with the method 'spawn'"
            )


class OpenFile:
    """A database file that is open: where it is, which file it is, and for whom."""

    def __init__(self, path: Path, holder: object) -> None:
        self._path = path
        self._identity = _identity_of(path)
        _open_files.add(holder, self._identity)

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            return _identity_of(self._path) == self._identity
        except OSError:
            return False

    def require_in_place(self) -> None:
        """Raise `StoreUnavailable` where the path no longer leads to this file: nobody would find what is written."""
        try:
            found = _identity_of(self._path)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} was removed or moved while it was open ({error.strerror}); put it back, or close the "
                "store and open another"
            ) from error
        if found != self._identity:
            raise StoreUnavailable(
                f"{self._path} was replaced by another file while it was open; close the store, and open it again"
            )


def _identity_of(path: Path) -> Identity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


class _OpenFiles:
    """The files that this process has open, and those that its parent had when it forked."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._held: WeakKeyDictionary[object, Identity] = WeakKeyDictionary()
        self._inherited: set[Identity] = set()

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


def require_not_open(path: Path) -> None:
    """Raise `InvalidArgument` for a file that a store of this process has open.

    To read and close a file by other means than SQLite's would let go of the locks that this process has on it.
    """
    with contextlib.suppress(OSError):
        if _open_files.is_held(_identity_of(path)):
            raise InvalidArgument(f"{path} is open as a store in this process; close it first")


def require_not_inherited(path: Path) -> None:
    """Raise `WrongProcess` for a file that was open in the parent of this process when it forked."""
    try:
        identity = _identity_of(path)
    except OSError:
        return
    if _open_files.is_inherited(identity):
        raise WrongProcess(
            f"{path} was open in the process that forked this one, and cannot be opened safely in such a child; "
            "start the process with the method 'spawn' or 'forkserver', or fork before the store is opened"
        )
