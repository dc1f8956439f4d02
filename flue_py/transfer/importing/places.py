"""Where files to import are: in folders that were named, and in the usual places of the programs that write them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from flue_py.errors import InvalidArgument
from flue_py.formats.others import program_of
from flue_py.formats.registry import all_formats, find_format, recognize
from flue_py.homes import in_full
from flue_py.transfer.importing.sources import AUTO

_FIRST_BYTES = 1 << 16


def usual_places(format: str = AUTO) -> list[Path]:  # noqa: A002
    """Return the folders that are there of those in which programs keep their sessions, each once."""
    formats = all_formats() if format == AUTO else (find_format(format),)
    places = []
    for place in (place for each in formats for place in each.places):
        with suppress(InvalidArgument):  # the home of no user has no sessions
            places.append(Path(in_full(place)))
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def find_files(
    places: Iterable[Path],
    format: str = AUTO,  # noqa: A002
    *,
    others: Counter[str] | None = None,
    is_session: Callable[[Path], object] = lambda _: None,
) -> Iterator[Path]:
    """Return the files to import, each once: those that are named, and in folders those of a format, by name.

    In a folder a file is taken where its name ends as the format's do, and its beginning is that of the format (or,
    with ``auto``, of any). Links to folders are not followed. One that ``is_session`` returns something for is one.
    """
    seen: set[Path] = set()
    for place in places:
        for path in _files_of(place, format, others, is_session) if place.is_dir() else (place,):
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                yield path


def _files_of(
    folder: Path,
    format: str,  # noqa: A002
    others: Counter[str] | None,
    is_session: Callable[[Path], object],
) -> Iterator[Path]:
    formats = all_formats() if format == AUTO else (find_format(format),)
    suffixes = tuple({suffix for each in formats for suffix in each.suffixes})
    for where, folders, names in os.walk(folder):
        folders.sort()
        # What belongs to a session comes after it: a file of the same name as a folder, before what is in there.
        for name in sorted(names):
            path = Path(where, name)
            if is_session(path):
                yield path
                continue
            first = _beginning(path) if name.endswith(suffixes) else b""
            # What cannot be read is named, with the reason, when it is to be imported.
            if first is None or (first and _is_one_of(first, path, format)):
                yield path
            elif others is not None and (program := program_of(first, str(path.absolute()))) is not None:
                others[program] += 1


def _beginning(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_FIRST_BYTES)
    except OSError:
        return None


def _is_one_of(first: bytes, path: Path, format: str) -> bool:  # noqa: A002
    if format == AUTO:
        return recognize(first, str(path)) is not None
    return find_format(format).recognizes(first, str(path))
