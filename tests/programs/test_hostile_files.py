"""The files of programs with wrong values in them: refused by name or imported, no crash, and the store stays whole."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.trees import check_imported_session, checked_imported_entries
from flue_py.errors import FlueError, UnreadableFile
from flue_py.formats.kit import Reader, SessionPart
from flue_py.formats.registry import FORMATS, Format
from tests.effort import examples
from tests.formats import pi_files, test_amp, test_cline, test_crush, test_cursor_cli, test_droid, test_kimi_cli
from tests.formats.transcripts import as_lines
from tests.programs.test_one_home import home_of_all
from tests.tables import inputs

ELSEWHERE = frozenset({"aider", "fuseraft-repl", "fuseraft-run"})
"""The formats whose own tests do this: of a text, and of documents that are lists."""
JOINED = frozenset({"crush", "cursor-cli", "goose", "opencode"})
"""The formats whose reports do not count rows of parts, or those of a session that is skipped."""
PLACES = {form.name: form for form in FORMATS if form.places and form.name not in ELSEWHERE}
ODD: tuple[Any, ...] = (
    None, 0, -1, 2.5, 1e308, 1e400, True, "", "x", "\0", "\ud800", "2026-01-01T00:00:00Z", [], {}, [[]], [None],
    {"type": None}, {"type": "text", "text": 5}, [{"type": []}], "a" * 5000, 10**30, {"role": "user", "content": {}},
)  # fmt: skip
CHANGED = examples(600).max_examples // 3
"""How often rows of a file are changed, for each program."""
STORED = 20
"""One in so many goes through a store as well, which takes longer."""
_LONGEST, _MOST_ROWS = 50_000, 80


def values_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in items:
        yield (*path, name)
        yield from values_in(part, (*path, name))


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    """Return the value in a place."""
    return value_at(value[path[0]], path[1:]) if path else value


def changed(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a JSON value with another one in a place."""
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], other)
    return copy


def read_row(line: bytes) -> Any:
    """Return the value of a row; None for one that is no JSON."""
    with suppress(ValueError):
        return json.loads(line)
    return None


def damaged(lines: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return rows with a few values changed, some of them for values of other rows; or rows repeated or left out."""
    lines = list(lines)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        row, others = read_row(lines[at]), read_row(chance.choice(lines))
        places = list(values_in(row))
        # Each name as often as any other: most places are parts of a few long values.
        name = chance.choice(sorted({str(path[-1]) for path in places} or {""}))
        alike = [path for path in values_in(others) if str(path[-1]) == name]
        if not places or chance.random() < 0.1:
            lines[at : at + 1] = [lines[at]] * chance.choice([0, 2]) if len(lines) > 1 else lines
            continue
        is_from_there = bool(alike) and chance.random() < 0.3
        other = value_at(others, chance.choice(alike)) if is_from_there else chance.choice(ODD)
        place = chance.choice([path for path in places if str(path[-1]) == name])
        lines[at] = as_lines([changed(row, place, other)])[0]
    return lines


def check(parts: Sequence[SessionPart]) -> None:
    """Check what a store asks of sessions: entries with ids of their own, each behind its parent."""
    ids: dict[str | None, set[str | None]] = {}
    for part in parts:
        check_imported_session(part.session)
        checked_imported_entries(part.entries)
        names = ids.setdefault(part.session.id, {None})
        for entry in part.entries:
            assert (entry.parent_id in names, entry.id in names) == (True, False), entry
            names.add(entry.id)
        assert names.issuperset(part.leaves)


def home_with_all(home: Path) -> Path:
    """Return a home with files of all programs: those that they wrote, and some that tests have made by hand."""
    test_kimi_cli.Folder(home).write("context.jsonl", test_kimi_cli.TALK)
    test_cline.task(home, "saoudrizwan.claude-dev", test_cline.TASK, test_cline.SCREEN)
    test_cline.write(home, test_cline.LAST)
    test_crush.filled(home)
    chat = test_cursor_cli.Chat(home)
    chat.save([*test_cursor_cli.TALK, test_cursor_cli.SUMMARY, *test_cursor_cli.MORE])
    (home / "amp.json").write_bytes(test_amp.thread())
    for name, rows in (("droid.jsonl", test_droid.TALK), ("pi.jsonl", pi_files.every_type())):
        (home / name).write_bytes(b"".join(as_lines(rows)))
    return home


def reader_of(form: Format, file: Path) -> Reader:
    """Return a reader that knows what stands beside a file."""
    reader = form.reader(file.name)
    for _ in form.rows_before(file, reader, lambda rows: enumerate(rows, 1)):
        pass
    return reader


def rows_of(form: Format, file: Path) -> list[bytes]:
    """Return rows of a file, not too many: lines, or a document as one of them."""
    gathered = form.gathered(file)
    if gathered is None and reader_of(form, file).needs_whole and read_row(file.read_bytes()) is not None:
        return [file.read_bytes()]
    rows = gathered if gathered is not None else file.read_bytes().splitlines(keepends=True)
    return [row for row in islice(rows, _MOST_ROWS) if len(row) < _LONGEST]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    """Files of all programs, and how each begins."""
    home = home_with_all(home_of_all(tmp_path_factory.mktemp("all")))
    return {path: path.read_bytes()[:4096] for path in sorted(home.parent.rglob("*")) if path.is_file()}


@inputs("name", sorted(PLACES))
async def test_wrong_values_are_refused_by_name_or_imported(files: dict[Path, bytes], name: str) -> None:
    form = PLACES[name]
    cases = [(file, rows_of(form, file)) for file, head in files.items() if form.recognizes(head, str(file))]
    assert cases, f"home_with_all has no file of {name}"
    for number in range(CHANGED):
        file, rows = cases[number % len(cases)]
        lines = damaged(rows, random.Random(number))
        reader = reader_of(form, file)
        with suppress(UnreadableFile):
            for read in (reader.scan, reader.feed) if reader.needs_scan else (reader.feed,):
                for place, line in enumerate([b"".join(lines)] if reader.needs_whole else lines, 1):
                    read(place, line)
            parts = reader.finish(take_all=number % 3 > 0)
            check(parts)
            report = reader.report()
            told = report.merged + sum(report.left_out.values()) + report.skipped_rows + report.held_back
            # The first row may be a header, which nothing counts.
            assert name in JOINED or report.rows - 1 <= told + sum(len(part.entries) for part in parts)
        if form.gather is None and number % STORED == 0:
            before = file.read_bytes()
            file.write_bytes(b"".join(lines))
            async with flue_py.open(":memory:") as store:
                with suppress(FlueError):
                    await flue_py.import_file(store, file, name, finish=True)
                assert (await store.verify()).problems == [], (file, number)
            file.write_bytes(before)
