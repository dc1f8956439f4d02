"""Reading a file that somebody else has made, without waiting for a pipe, or for the end of a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_if_plain(path: Path) -> BinaryIO | None:
    """Return a file opened for reading bytes; None for a pipe, a socket or a device, which may have no end.

    Never waits for another process. Raises OSError, for a folder as well.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return None


def read_beginning(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a file, at most so many; None and raises as `open_if_plain`."""
    opened = open_if_plain(path)
    if opened is None:
        return None
    with opened:
        return opened.read(most)
