"""What git does not track in a folder."""

from __future__ import annotations

import os
from functools import partial
from os import PathLike, fspath
from pathlib import Path

from flue_py.context.blocks.plain import visible_line
from flue_py.context.blocks.protocol import BlockText
from flue_py.errors import InvalidArgument, UnreadableFile, shown
from flue_py.plain_files import read_beginning

MOST_LINES = 100
_LINE_CHARS = 500
_READ_BYTES = 64 * 1024


class Gitignore:
    """The block ``gitignore``: the first 100 lines of the `.gitignore` of a folder; nothing where there is none.

    ``folder`` is by default that of the process each time it is read. A line is cut after 500 characters, and no more
    than 64 KiB are read.
    """

    name = "gitignore"

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        if folder is not None and not isinstance(folder, (str, PathLike)):
            raise InvalidArgument(f"folder: {shown(folder)} is not the path of a folder")
        self._folder = None if folder is None else fspath(folder)

    async def read(self) -> BlockText | None:
        """Return the block, None where there is no such file. Raises `UnreadableFile` if it cannot be read."""
        from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

        return await run_sync(partial(_read, Path(self._folder or os.curdir) / ".gitignore"), abandon_on_cancel=True)


def _read(path: Path) -> BlockText | None:
    try:
        data = _beginning(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableFile(f"{shown(str(path))} cannot be read: {reason}") from error
    is_whole = len(data) <= _READ_BYTES
    lines = data[:_READ_BYTES].decode(errors="replace").removeprefix("\ufeff").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    if not is_whole and len(lines) <= MOST_LINES:
        # The last line that was read may be half a one.
        lines = lines[:-1]
    elif lines[-1] == "":
        lines.pop()
    shown_lines = [visible_line(line, _LINE_CHARS) for line in lines[:MOST_LINES]]
    if not any(line.strip() for line in shown_lines):
        return None
    rest = f" (its first {MOST_LINES} lines)" if len(lines) > MOST_LINES else "" if is_whole else " (its beginning)"
    return BlockText("\n".join([f"## .gitignore{rest}", "", *shown_lines]))


def _beginning(path: Path) -> bytes:
    data = read_beginning(path, _READ_BYTES + 1)
    if data is None:
        raise ValueError("it is not a file")
    return data
