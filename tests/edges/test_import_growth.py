"""A file that grows while it is imported again and again ends as if it had been imported once, at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py
from tests.formats.transcripts import (
    CLAUDE,
    CODEX_MADE,
    CODEX_REAL,
    all_seen,
    import_lines,
    lines_of,
    seen_at_once,
)

FILES = [CLAUDE, CODEX_REAL, CODEX_MADE]


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "step"), [(CLAUDE, 6), (CODEX_REAL, 1), (CODEX_MADE, 1)])
async def test_some_beginning_and_then_the_whole_file_is_the_file_imported_at_once(
    name: str, step: int, tmp_path: Path
) -> None:
    await check_beginnings(name, tmp_path, step)


@pytest.mark.slow
@pytest.mark.anyio
async def test_every_beginning_and_then_the_whole_file_is_the_file_imported_at_once(tmp_path: Path) -> None:
    await check_beginnings(CLAUDE, tmp_path, 1)


async def check_beginnings(name: str, tmp_path: Path, step: int) -> None:
    lines = lines_of(name)
    expected, _ = await seen_at_once(tmp_path, lines)
    for count in range(1, len(lines), step):
        async with flue_py.open(":memory:") as store:
            await import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            report = await import_lines(store, tmp_path, lines)
            assert await all_seen(store) == expected, count
            assert not report.leaf_kept
            assert (await store.verify()).problems == []
            again = await import_lines(store, tmp_path, lines)
            assert not again.changed


@pytest.mark.anyio
@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_grows_line_by_line_is_the_file_imported_at_once(name: str, tmp_path: Path) -> None:
    lines = lines_of(name)
    expected, _ = await seen_at_once(tmp_path, lines)
    async with flue_py.open(":memory:") as store:
        for count in range(1, len(lines) + 1):
            report = await import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            assert not report.leaf_kept
        assert await all_seen(store) == expected
        assert (await store.verify()).problems == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", FILES)
async def test_an_older_copy_of_a_file_changes_nothing(name: str, tmp_path: Path) -> None:
    lines = lines_of(name)
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, lines)
        expected = await all_seen(store)
        for count in range(1, len(lines)):
            report = await import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            assert not report.changed, count
        assert await all_seen(store) == expected


def expected_format(name: str) -> str:
    return "claude-code" if name == CLAUDE else "codex"
