"""Opening a file that somebody else has made, and refusing pipes and devices, which may have no end."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from flue_py.errors import UnreadableFile
from flue_py.plain_files import open_if_plain


def open_plain(path: Path) -> BinaryIO:
    """Return a file opened for reading bytes. Never waits for another process.

    Raises `UnreadableFile` for a pipe, a socket or a device, which may have no end, and OSError.
    """
    opened = open_if_plain(path)
    if opened is None:
        raise UnreadableFile(
            f"{path} is a pipe or a device, not a file; write it into a file first. Nothing was imported"
        )
    return opened
