"""The log of an open SQLite database and the log's index: which files they are, and that nobody took them away.

While a connection with a write-ahead log is open, SQLite neither removes nor replaces these two, in no process: that is
left to the last connection. So where one of them is gone or is another file, somebody else did it, and what is
committed from then on would be found by nobody. A log may become shorter, but only when all of it is in the database.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""What a file is, whatever its name: device and inode."""

_LOG_HEADER, _FRAME_HEADER = 32, 24
_LOOKS = 3


def identity_of(path: str | Path) -> Identity:
    """Return which file is at a path. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


class LogLost(Exception):
    """The log of a database or its index was taken away; the message says which, and how."""


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
        self._identities = {each: identity_of(each) for each in (self._log, f"{real}-shm")}
        self._frame = _FRAME_HEADER + int(connection.execute("PRAGMA page_size").fetchone()[0])
        self._size = self._log_size()

    def look(self) -> int:
        """Return how long the log is now. Raises `LogLost` where one of the two is not what and where it was.

        Two looks at the file system.
        """
        size = 0
        for path, identity in self._identities.items():
            try:
                status = os.stat(path)
            except OSError as error:
                raise LogLost(f"{path} was removed or moved while the store was open ({error.strerror})") from error
            if (status.st_dev, status.st_ino) != identity:
                raise LogLost(f"{path} was replaced by another file while the store was open")
            if path is self._log:
                size = status.st_size
        return size

    @property
    def are_somebody_elses(self) -> bool:
        """Whether another file is where one of the two was: somebody has opened the database anew."""
        return any(os.path.exists(path) and identity_of(path) != own for path, own in self._identities.items())

    @property
    def is_log_gone(self) -> bool:
        """Whether nothing is where the log was."""
        return not os.path.lexists(self._log)

    def has_shrunk(self, size: int | None = None) -> bool:
        """Return whether the log is shorter than it was found before. Under the write lock nobody may shorten it.

        ``size`` is what `look` has just returned; without it, the file is asked.
        """
        found = self._log_size() if size is None else size
        if found < self._size:
            return True
        self._size = found
        return False

    def has_lost_frames(self, connection: sqlite3.Connection) -> bool:
        """Return whether a log that has shrunk lacks something that is not in the database; outside a transaction.

        SQLite says how many frames the log should have, none when it has cut off what is in the database. It is asked
        by a checkpoint, which moves what it can, and fails at the first frame that is not there.
        """
        for _ in range(_LOOKS):
            try:
                frames = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
            except sqlite3.OperationalError as error:
                return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
            size = self._log_size()
            if frames < 0:
                # Another process is at it just now; the next commit looks again.
                return False
            if frames == 0 or size >= _LOG_HEADER + frames * self._frame:
                self._size = size
                return False
            # It may have been cut by its own between the two looks.
        return True

    def _log_size(self) -> int:
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0
