"""A file that grows while it is imported again and again ends as if it had been imported once, at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flue_py
from tests.formats.transcripts import (
    CLAUDE,
    CODEX_MADE,
    CODEX_REAL,
    all_seen,
    as_lines,
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


@pytest.mark.anyio
async def test_an_answer_that_grows_pays_the_rest_of_what_it_wrote_to_the_cache_for_an_hour(tmp_path: Path) -> None:
    kept = {"cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40}}

    def answer(uuid: str, parent: str, part: dict[str, Any], output: int) -> dict[str, Any]:
        usage = {"input_tokens": 3, "output_tokens": output, "cache_creation_input_tokens": 40, **kept}
        message = {"id": "m1", "role": "assistant", "model": "m", "content": [part], "usage": usage}
        return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message}

    rows = [
        {
            "type": "user",
            "uuid": "u1",
            "parentUuid": None,
            "sessionId": "s",
            "message": {"role": "user", "content": ""},
        },
        answer("a1", "u1", {"type": "text", "text": "Let me see."}, 5),
        answer("a2", "a1", {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}, 9),
    ]
    lines = as_lines(rows)
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, lines[:2], format="claude-code")
        await import_lines(store, tmp_path, lines, format="claude-code", finish=True)
        (info,) = (await store.list_sessions()).sessions
        assert info.spent_tokens == 3 + 9 + 40
        assert (await store.verify()).problems == []


def expected_format(name: str) -> str:
    return "claude-code" if name == CLAUDE else "codex"
