"""Opening a file that somebody else has made, and refusing pipes and devices, which may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from flue_py.errors import UnreadableFile


def open_plain(path: Path) -> BinaryIO:
    """Return a file opened for reading bytes. Never waits for another process.

    Raises `UnreadableFile` for a pipe, a socket or a device, which may have no end, and OSError.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise UnreadableFile(f"{path} is a pipe or a device, not a file; write it into a file first. Nothing was imported")
