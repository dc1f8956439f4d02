"""The files of programs with wrong values in them: refused by name or imported, no crash, and the store stays whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import FlueError
from flue_py.formats.registry import FORMATS
from flue_py.transfer.source import WatchedFolders
from tests.effort import examples
from tests.programs.test_one_home import home_of_all

PLACES = {form.name: form.places for form in FORMATS if form.places}
ODD: tuple[Any, ...] = (
    None, 0, -1, 2.5, 1e308, True, "", "x", "\0", "2026-01-01T00:00:00Z", [], {}, [[]], [None], {"type": None},
    {"type": "text", "text": 5}, [{"type": 5}], "a" * 5000, 10**30, {"role": "user", "content": {}},
)  # fmt: skip
CHANGES = examples(40).max_examples
"""How many values are changed, for each program, each in a file of its own."""


def values_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in items:
        yield (*path, name)
        yield from values_in(part, (*path, name))


def changed(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a JSON value with another one in a place."""
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], other)
    return copy


def rows_of(data: bytes) -> tuple[list[Any], bool]:
    """Return the rows of a file, and whether it is one document; no rows of a file that is no JSON."""
    try:
        return [json.loads(data)], True
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()], False
    except ValueError:
        return [], False


def as_bytes(rows: list[Any], *, is_document: bool) -> bytes:
    return b"".join(json.dumps(row).encode() + (b"" if is_document else b"\n") for row in rows)


@pytest.mark.parametrize("name", sorted(PLACES))
async def test_wrong_values_are_refused_by_name_or_imported(tmp_path: Path, name: str) -> None:
    home = home_of_all(tmp_path)
    folders = [folder for place in PLACES[name] if (folder := home / place.removeprefix("~/")).is_dir()]
    watched = WatchedFolders(folders)
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    cases = [
        (file, place)
        for file in files
        if watched.sessions_of(file, name)
        for place in values_in(rows_of(file.read_bytes())[0])
    ]
    odd = cycle(ODD)
    for file, place in cases[:: max(1, len(cases) // CHANGES)]:
        before, other = file.read_bytes(), next(odd)
        rows, is_document = rows_of(before)
        file.write_bytes(as_bytes(changed(rows, place, other), is_document=is_document))
        async with flue_py.open(":memory:") as store:
            for session in watched.sessions_of(file, name):
                with suppress(FlueError):
                    await flue_py.import_file(store, session, name, finish=True)
            assert (await store.verify()).problems == [], (file, place, other)
        file.write_bytes(before)
