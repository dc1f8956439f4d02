"""The files beside a Codex rollout: those that it goes on from, and the names of threads.

Since Codex 0.171 a fork, and what comes after a revert, is a file with new rows only. Its first row names the rollout
that it goes on from (a file is called by the thread it began, or by a segment of one), and where in that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flue_py.core.jsontext import JsonObject
from flue_py.errors import UnreadableFile
from flue_py.formats.codex.read import CodexReader
from flue_py.formats.codex.rows import read_codex_row
from flue_py.formats.kit.rows import Notes, decode_row, is_name
from flue_py.formats.kit.values import one_text
from flue_py.plain_files import open_if_plain

_LONGEST = 1 << 26
_LONGEST_NAME = 1_000
_MOST_FILES = 1_000
_ROOTS = ("sessions", "archived_sessions")
_ROLLOUT = re.compile(r"rollout-.*\.jsonl")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file, and how many bytes of it come before the rows of another one; None for all of it."""

    path: Path
    thread: str
    base: JsonObject | None
    end: int | None = None


def read_before(path: Path, reader: CodexReader) -> Iterator[None]:
    """Give a reader its thread's name, and the rows of files that come before a rollout's; yields after each of them.

    Raises `UnreadableFile` for a rollout that goes on with its own thread in a file that is not there: what it goes
    on from is then already stored, or lost. O(bytes before) and O(files of sessions).
    """
    own = _piece(path)
    if own is not None:
        reader.thread_name = _names(path).get(own.thread)
    if own is None or own.base is None:
        return
    pieces, missing = _pieces_before(own)
    reader.goes_on(_first_line(path))
    if missing is not None and missing == own.thread:
        raise UnreadableFile(
            f"{path.name} goes on with its thread where {missing} was reverted, and no file of that is beside it; "
            f"nothing was imported. Put rollout-...-{missing}.jsonl into a folder of sessions with it"
        )
    for piece in reversed(pieces):
        with open(piece.path, "rb") as file:
            number = 0
            while (piece.end is None or file.tell() < piece.end) and (line := file.readline(_LONGEST)):
                number += 1
                reader.feed_before(number, line, is_own=piece.thread == own.thread)
                yield
    reader.begin_own(missing)


def _pieces_before(own: _Piece) -> tuple[list[_Piece], str | None]:
    """Return the files before a rollout, the nearest first, and the one that is not there, if so."""
    pieces: list[_Piece] = []
    seen, base = {own.path}, own.base
    while base is not None:
        name = base.get("thread_id")
        found = _find(own.path, name) if is_name(name) else None
        piece = None if found is None or found in seen or len(pieces) > _MOST_FILES else _piece(found)
        if piece is None:
            return pieces, str(name)
        seen.add(piece.path)
        pieces.append(_Piece(piece.path, piece.thread, piece.base, _end(piece.path, base)))
        base = piece.base
    return pieces, None


def _end(path: Path, base: JsonObject) -> int | None:
    """Return where the rows end that come before: at a byte, or else before the row with a number."""
    end, ordinal = base.get("end_byte_offset"), base.get("end_ordinal_exclusive")
    if type(end) is int:
        return end
    with open(path, "rb") as file:
        while type(ordinal) is int and (line := file.readline(_LONGEST)):
            found = re.search(rb'"ordinal": ?(\d+)', line[:200])
            if found is not None and int(found[1]) >= ordinal:
                return file.tell() - len(line)
    return None


def _piece(path: Path) -> _Piece | None:
    row = read_codex_row(1, _first_line(path), Notes(), is_first=True)
    if row is None or row.type != "session_meta":
        return None
    base = row.payload.get("history_base")
    return _Piece(path, str(row.payload.get("id")), base if isinstance(base, dict) else None)


def _first_line(path: Path) -> bytes:
    file = open_if_plain(path)
    if file is None:
        return b""
    with file:
        return file.readline(_LONGEST)


def _find(path: Path, name: str) -> Path | None:
    """Return the file of a rollout, in the folder of another or where Codex keeps such files."""
    endings = (f"-{name}.jsonl", f"_{name}.jsonl")
    home = _home(path)
    roots = [path.parent, *((home / each for each in _ROOTS) if home is not None else ())]
    for root in roots:
        for where, folders, files in os.walk(root):
            folders.sort()
            for file in sorted(files):
                if file.endswith(endings) and _ROLLOUT.fullmatch(file):
                    return Path(where, file)
    return None


def _home(path: Path) -> Path | None:
    """Return the folder in which Codex keeps sessions and more, if a file is in one."""
    return next((each.parent for each in path.absolute().parents if each.name in _ROOTS), None)


def _names(path: Path) -> Mapping[str, str]:
    """Return the names that people gave to threads, by their ids."""
    home = _home(path)
    try:
        index = None if home is None else home / "session_index.jsonl"
        seen = None if index is None else index.stat()
        return {} if index is None or seen is None else _index(index, seen.st_mtime_ns, seen.st_size)
    except OSError:
        return {}


@lru_cache(maxsize=8)
def _index(path: Path, changed_ns: int, size: int) -> Mapping[str, str]:
    """Return the names of an index, to which a line is added at each change, as it was at a time."""
    names, file = {}, open_if_plain(path)
    with file or nullcontext(()) as lines:
        for number, line in enumerate(lines, 2):
            row = decode_row(number, line, Notes())
            thread, name = (row or {}).get("id"), one_text((row or {}).get("thread_name"), _LONGEST_NAME)
            if is_name(thread) and name:
                names[thread] = name
    return names
