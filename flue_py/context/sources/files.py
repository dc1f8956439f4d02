"""Files as sources: text within one folder, and the JSON files that programs keep beside their sessions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from flue_py.context.sources.changes import changes_text, listed_changes, recent
from flue_py.context.sources.fields import field_text
from flue_py.context.sources.protocol import Asked, SourceReader
from flue_py.errors import InvalidArgument
from flue_py.plain_files import read_beginning

MOST_BYTES = 8 * 2**20
"""A larger file is not read."""


def file_source(folder: str | os.PathLike[str] | None = None) -> SourceReader:
    """Return the source ``file:PATH``: the text of a file in a folder, by default that of the session.

    A path that leads out of the folder, also by a link, is refused, and so is what is not a regular file of text, or
    is larger than 8 MiB.
    """

    def read(asked: Asked) -> str | None:
        inside = folder if folder is not None else asked.session.cwd
        if inside is None:
            raise InvalidArgument("the session has no folder; name one with file_source()")
        return read_text(Path(inside), asked.parameter or "")

    return read


def session_context_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``session_context`` that has the text of a file."""
    return lambda asked: _text(Path(path))


def changes_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``changes_recent[:N]`` that reads a change log, a JSON file with a list ``entries``.

    Those of the session if it names its sessions and has some of this one, else all.
    """
    return lambda asked: _of_json(path, lambda log: changes_text(recent(listed_changes(log, asked.session.id), asked)))


def change_log_text(path: str | os.PathLike[str], session_id: str) -> str | None:
    """Return a change log, a JSON file with a list ``entries``, as text: what of it is a session's, as `changes_file`.

    Raises `InvalidArgument` for what is not one, `OSError`.
    """
    return _of_json(path, lambda log: changes_text(listed_changes(log, session_id)))


def brief_file(path: str | os.PathLike[str]) -> SourceReader:
    """Return the source ``brief_field:NAME`` that reads a field of a JSON file."""
    return lambda asked: _of_json(path, lambda brief: field_text(brief, asked.parameter or ""))


def _of_json(path: str | os.PathLike[str], read: Callable[[object], str | None]) -> str | None:
    try:
        return read(json.loads(_text(Path(path))))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"it is not JSON that can be read ({type(error).__name__})") from error


def read_text(folder: Path, name: str) -> str:
    """Return the text of a file in a folder. Raises `InvalidArgument` for what is not one, `OSError`."""
    root = folder.resolve(strict=True)
    path = (root / name).resolve(strict=True)
    if not path.is_relative_to(root):
        raise InvalidArgument("it lies outside of the folder")
    return _text(path)


def _text(path: Path) -> str:
    data = read_beginning(path, MOST_BYTES + 1)
    if data is None:
        raise InvalidArgument("it is not a regular file")
    if len(data) > MOST_BYTES:
        raise InvalidArgument(f"it is larger than {MOST_BYTES:,} bytes")
    if b"\0" in data:
        raise InvalidArgument("it is not text")
    return data.decode("utf-8-sig", errors="replace")
