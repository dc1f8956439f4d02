"""Files that another process reads while this one stores those before: the result is that of reading them here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.sessions.store import Store
from flue_py.transfer import ahead
from flue_py.transfer.ahead import ReadAhead
from flue_py.transfer.imports import import_source
from flue_py.transfer.source import ImportSource
from tests.formats.pi_files import HEADER, every_type
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, all_seen, as_lines, lines_of


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have every file of rows read ahead; return those that were read here all the same."""
    names: list[str] = []
    start = ImportSource.start

    def noted(source: ImportSource) -> None:
        names.append(source.path.stem)
        start(source)

    monkeypatch.setattr(ImportSource, "start", noted)
    monkeypatch.setattr(ahead, "_WORTH_BYTES", 0)
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
    return names


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Return files of three programs, one that is none, and one that is not read ahead."""
    files = {
        "claude.jsonl": b"".join(lines_of(CLAUDE)),
        "codex.jsonl": b"".join(lines_of(CODEX_REAL)[:60]),
        "none.jsonl": b'{"a":1}\n',
        "pi.jsonl": b"".join(as_lines([HEADER, *every_type()])),
        "made.rollout": b"".join(lines_of(CODEX_MADE)[:30]),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in files]


def opened(path: Path) -> ImportSource:
    return ImportSource(path, is_followed=True)


async def stored(store: Store, source: ImportSource) -> list[Any]:
    """Import a file, and return everything that is known of that."""
    try:
        source.start()
    except UnreadableFile as error:
        return [str(error)]
    report, mark = await import_source(store, source), source.bookmark
    # A reader salts the ids that it has met, and two stores have other times.
    about = mark and replace(mark, reader="", ends=mark.ends[:0])
    return [report, about, source.digest, source.state, source.whole_bytes, source.before]


async def compare(paths: list[Path]) -> None:
    """Import files that are read ahead, and without that; the outcomes are equal."""
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as whole:
        with ReadAhead(paths, opened) as files:
            for path in paths:
                with files.next_source() as source, opened(path) as same:
                    assert await stored(store, source) == await stored(whole, same)
        assert await all_seen(store) == await all_seen(whole)


async def test_files_that_are_read_ahead_give_the_same_sessions(paths: list[Path], read_here: list[str]) -> None:
    await compare(paths)
    assert sorted(read_here) == sorted([*(path.stem for path in paths), "none", "made"])


@pytest.mark.parametrize("answers", [0, 1, 2, 3])
async def test_where_the_process_ends_files_are_read_here(
    answers: int, paths: list[Path], read_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, left = ahead._Process.answer, [None] * answers

    def killed(process: Any) -> Any:
        if left:
            left.pop()
        elif process._process is not None:
            process._process.kill()
            process._process.wait()
            process._process.stdout.read()
        return answer(process)

    monkeypatch.setattr(ahead._Process, "answer", killed)
    await compare(paths[:2])
    assert len(read_here) == (4 if answers < 3 else 3)


async def test_without_another_process_files_are_read_here(
    paths: list[Path], read_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(paths[0].parent / "none"))
    await compare(paths[:2])
    assert read_here == ["claude", "claude", "codex", "codex"]


def test_an_import_that_is_interrupted_ends_the_process(paths: list[Path], read_here: list[str]) -> None:
    numbers = []

    def interrupted() -> None:
        with ReadAhead(paths, opened) as files, files.next_source() as source:
            source.start()
            numbers.append(files._process and files._process._process and files._process._process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_here == []
    with pytest.raises(ProcessLookupError):
        os.kill(numbers[0] or 0, 0)
