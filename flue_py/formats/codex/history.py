"""The files beside a Codex rollout: those that it goes on from, and the names of threads.

Since Codex 0.171 a fork, and what comes after a revert, is a file with new rows only. Its first row names the rollout
that it goes on from (a file is called by the thread it began, or by a segment of one), and where in that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import UnreadableFile
from flue_py.formats.codex.read import CodexReader
from flue_py.formats.codex.rows import read_codex_row, segment_of
from flue_py.formats.kit.rows import Notes, decode_row, is_name
from flue_py.formats.kit.values import one_text
from flue_py.plain_files import open_if_plain

_LONGEST_NAME = 1_000
_MOST_FILES = 1_000
_ROOTS = ("sessions", "archived_sessions")
_ROLLOUT = re.compile(r"rollout-.*\.jsonl")
_THREAD = re.compile(r"rollout-[\dT-]{19}-([0-9a-f-]{36})[_.]")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file, and how many bytes of it come before the rows of another one; None for all of it."""

    path: Path
    first: bytes
    thread: str
    base: JsonObject | None
    end: int | None = None


Lines: TypeAlias = Callable[[BinaryIO], Iterator[tuple[int, bytes]]]
"""Given a file: its lines with their numbers, none larger than the limits allow."""


def read_before(path: Path, reader: CodexReader, lines: Lines) -> Iterator[None]:
    """Give a reader its thread's name, and the rows of files that come before a rollout's; yields after each of them.

    Raises `UnreadableFile` for a rollout that goes on with its own thread in a file that is not there: what it goes
    on from is then already stored, or lost. O(bytes before) and O(files of sessions).
    """
    own = _piece(path, lines)
    if own is not None:
        reader.thread_name = _names(path).get(own.thread)
    if own is None or own.base is None:
        return
    pieces, missing = _pieces_before(own, lines)
    last = pieces[-1] if pieces else own
    if missing is not None and last.thread == own.thread and segment_of(last.path.name, own.thread):
        raise UnreadableFile(
            f"{path.name} goes on with its thread where {missing} was reverted, and no file of that is beside it; "
            f"nothing was imported. Put rollout-...{missing}.jsonl into a folder of sessions with it"
        )
    reader.goes_on(own.first)
    notes = [] if missing is None else [f"goes on from {missing}, and no file of that is beside it"]
    for piece in reversed(pieces):
        is_own, segment = piece.thread == own.thread, segment_of(piece.path.name, piece.thread)
        place = segment if is_own else f" {piece.thread} {segment}"
        with open(piece.path, "rb") as file:
            for number, line in lines(file):
                if piece.end is not None and file.tell() > piece.end:
                    break
                reader.feed_before(number, line, is_own=is_own, place=place)
                yield
            if piece.end is not None and file.tell() < piece.end:
                notes.append(f"goes on behind byte {piece.end} of {piece.path.name}, which has {file.tell()}")
                reader.leave_gap()
    reader.begin_own(notes)


def _pieces_before(own: _Piece, lines: Lines) -> tuple[list[_Piece], str | None]:
    """Return the files before a rollout, the nearest first, and the one that is not there, if so."""
    pieces: list[_Piece] = []
    seen, base = {own.path}, own.base
    while base is not None:
        name = base.get("thread_id")
        found = _find(own.path, name) if is_name(name) else None
        piece = None if found is None or found in seen or len(pieces) > _MOST_FILES else _piece(found, lines)
        if piece is None:
            return pieces, name if is_name(name) else "a rollout that has no name"
        seen.add(piece.path)
        pieces.append(replace(piece, end=_end(piece.path, base, lines)))
        base = piece.base
    return pieces, None


def _end(path: Path, base: JsonObject, lines: Lines) -> int | None:
    """Return where the rows end that come before: at a byte, or else before the row with a number."""
    end, ordinal = base.get("end_byte_offset"), base.get("end_ordinal_exclusive")
    if type(end) is int or type(ordinal) is not int:
        return end if type(end) is int else None
    before = 0
    with open(path, "rb") as file:
        for _, line in lines(file):
            found = re.search(rb'"ordinal": ?(\d+)', line[:200])
            if found is not None and int(found[1]) >= ordinal:
                return before
            before = file.tell()
    return None


def _piece(path: Path, lines: Lines) -> _Piece | None:
    file = open_if_plain(path)
    if file is None:
        return None
    with file:
        first = next(lines(file), (1, b""))[1]
    row = read_codex_row(1, first, Notes(), is_first=True)
    if row is None or row.type != "session_meta":
        return None
    base = row.payload.get("history_base")
    return _Piece(path, first, str(row.payload.get("id")), base if isinstance(base, dict) else None)


def _find(path: Path, name: str) -> Path | None:
    """Return the file of a rollout, in the folder of another or where Codex keeps such files."""
    endings = (f"-{name}.jsonl", f"_{name}.jsonl")
    home = _home(path)
    roots = [path.parent, *((home / each for each in _ROOTS) if home is not None else ())]
    for root in roots:
        for where, folders, files in os.walk(root):
            folders.sort()
            for file in sorted(files):
                # A link to nothing is passed over: the file may have been archived.
                if file.endswith(endings) and _ROLLOUT.fullmatch(file) and os.path.exists(os.path.join(where, file)):
                    return Path(where, file)
    return None


def _home(path: Path) -> Path | None:
    """Return the folder in which Codex keeps sessions and more, if a file is in one."""
    return next((each.parent for each in path.absolute().parents if each.name in _ROOTS), None)


def name_beside(path: Path) -> JsonValue:
    """Return the name that people gave to the thread of a rollout; of one that is called otherwise, all names."""
    names, thread = _names(path), _THREAD.match(path.name)
    return names.get(thread[1]) if thread else dict(names)


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
