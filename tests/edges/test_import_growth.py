"""Importing a growing file again and again gives the same result as importing it once, at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flue_py
from tests.formats import transcripts
from tests.formats.test_codex import META, item, said
from tests.formats.test_codex import count as counted
from tests.values import existing

PI = "pi/large-session.jsonl.gz"
FILES = [transcripts.CLAUDE, transcripts.CODEX_REAL, transcripts.CODEX_MADE]


@pytest.mark.thorough(but=["codex"])
@pytest.mark.parametrize(
    ("name", "step"), [(transcripts.CLAUDE, 6), (transcripts.CODEX_REAL, 1), (transcripts.CODEX_MADE, 1)]
)
async def test_some_beginning_and_then_the_whole_file_is_the_file_imported_at_once(
    name: str, step: int, tmp_path: Path
) -> None:
    await check_beginnings(name, tmp_path, step)


@pytest.mark.slow
async def test_every_beginning_and_then_the_whole_file_is_the_file_imported_at_once(tmp_path: Path) -> None:
    await check_beginnings(transcripts.CLAUDE, tmp_path, 1)


async def check_beginnings(name: str, tmp_path: Path, step: int) -> None:
    lines = transcripts.lines_of(name)
    expected, _ = await transcripts.seen_at_once(tmp_path, lines)
    for count in range(1, len(lines), step):
        async with flue_py.open(":memory:") as store:
            await transcripts.import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            report = await transcripts.import_lines(store, tmp_path, lines)
            assert await transcripts.all_seen(store) == expected, count
            assert not report.leaf_kept
            assert (await store.verify()).problems == []
            again = await transcripts.import_lines(store, tmp_path, lines)
            assert not again.changed


@pytest.mark.thorough(but=["codex"])
@pytest.mark.parametrize("name", [*FILES, PI])
async def test_a_file_that_grows_line_by_line_is_the_file_imported_at_once(name: str, tmp_path: Path) -> None:
    lines = transcripts.lines_of(name)
    step = 150 if name == PI else 1
    async with flue_py.open(":memory:") as at_once:
        await transcripts.import_lines(at_once, tmp_path, lines)
        expected, paid = await transcripts.all_seen(at_once), await ledger(at_once)
    async with flue_py.open(":memory:") as store:
        for count in (*range(1, len(lines), step), len(lines)):
            report = await transcripts.import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            assert not report.leaf_kept
            assert report.call_conflicts == ()
        assert await transcripts.all_seen(store) == expected
        assert await ledger(store) == paid
        assert (await store.verify()).problems == []


@pytest.mark.parametrize("name", FILES)
async def test_an_older_copy_of_a_file_changes_nothing(name: str, tmp_path: Path) -> None:
    lines = transcripts.lines_of(name)
    async with flue_py.open(":memory:") as store:
        await transcripts.import_lines(store, tmp_path, lines)
        expected = await transcripts.all_seen(store)
        for count in range(1, len(lines)):
            report = await transcripts.import_lines(store, tmp_path, lines[:count], format=expected_format(name))
            assert not report.changed, count
        assert await transcripts.all_seen(store) == expected


async def test_an_answer_that_grows_is_one_call_with_its_last_usage(tmp_path: Path) -> None:
    lines = growing_answer()
    async with flue_py.open(":memory:") as store:
        await transcripts.import_lines(store, tmp_path, lines[:2], format="claude-code")
        assert await ledger(store) == [(1, 3, 5, 40, 48, "active")]
        # The call waits for its result: it is no entry yet, and its tokens are paid.
        report = await transcripts.import_lines(store, tmp_path, lines, format="claude-code")
        assert (report.held_back, report.sessions[0].booked, report.changed) == (2, 1, True)
        assert await ledger(store) == [(1, 3, 9, 40, 52, "active")]
        assert not (await transcripts.import_lines(store, tmp_path, lines, format="claude-code")).changed
        older = await transcripts.import_lines(store, tmp_path, lines[:2], format="claude-code")
        assert (older.changed, older.call_conflicts) == (False, ())
        await transcripts.import_lines(store, tmp_path, lines, format="claude-code", finish=True)
        assert await ledger(store) == [(1, 3, 9, 40, 52, "active")]
        (info,) = (await store.list_sessions()).sessions
        assert info.spent_tokens == 3 + 9 + 40
        assert (await store.verify()).problems == []


async def test_an_answer_that_was_built_on_here_is_paid_whole(tmp_path: Path) -> None:
    lines = growing_answer()
    async with flue_py.open(":memory:") as store:
        await transcripts.import_lines(store, tmp_path, lines[:2], format="claude-code")
        session = existing(await store.get_session("s"))
        await session.append_message({"role": "user", "content": "from here"})
        report = await transcripts.import_lines(store, tmp_path, lines, format="claude-code", finish=True)
        assert any("stays as it was" in note.text for note in report.repaired)
        assert await ledger(store) == [(1, 3, 9, 40, 52, "active")]
        assert not (await transcripts.import_lines(store, tmp_path, lines, format="claude-code", finish=True)).changed
        assert (await store.verify()).problems == []


async def test_a_store_that_was_copied_before_an_answer_grew_catches_up(tmp_path: Path) -> None:
    lines = growing_answer()
    for target in (":memory:", str(tmp_path / "target.db")):
        async with flue_py.open(":memory:") as store, flue_py.open(target) as copied:
            for count in (2, 3):
                await transcripts.import_lines(store, tmp_path, lines[:count], format="claude-code", finish=True)
                await flue_py.copy_store(store, copied)
            assert await ledger(copied) == await ledger(store) == [(1, 3, 9, 40, 52, "active")]
            assert (await copied.verify()).problems == []


@pytest.mark.parametrize("settled_by", ["message", "compaction", "held"])
async def test_tokens_counted_after_the_last_message_are_a_call_until_what_they_belong_to_is_there(
    settled_by: str, tmp_path: Path
) -> None:
    begun = [META, said("user", "one"), said("assistant", "two"), counted(10), said("user", "three"), counted(25)]
    more = {
        "message": [said("assistant", "four"), said("user", "five")],
        "compaction": [{"type": "compacted", "payload": {"message": "All so far."}}],
        "held": [item(type="function_call", name="f", call_id="c", arguments="{}"), counted(32)],
    }[settled_by]
    async with flue_py.open(":memory:") as at_once:
        await transcripts.import_lines(at_once, tmp_path, transcripts.as_lines([*begun, *more]))
        expected = await ledger(at_once)
    async with flue_py.open(":memory:") as store:
        report = await transcripts.import_lines(store, tmp_path, transcripts.as_lines(begun))
        assert [note.text.split(";")[1] for note in report.repaired] == [" they are a call without an entry"]
        assert await ledger(store) == [(1, 10, 0, 0, 10, "active"), (1, 15, 0, 0, 15, "alone")]
        assert not (await transcripts.import_lines(store, tmp_path, transcripts.as_lines(begun))).changed
        for number in range(1, len(more) + 1):
            await transcripts.import_lines(store, tmp_path, transcripts.as_lines([*begun, *more[:number]]))
        assert await ledger(store) == expected
        assert expected[-1][-1] == ("alone" if settled_by == "held" else "active")
        assert not (await transcripts.import_lines(store, tmp_path, transcripts.as_lines(begun))).changed
        assert (await store.verify()).problems == []


async def ledger(store: flue_py.Store) -> list[tuple[int, int, int, int, int, Any]]:
    """Return calls, input, output, cache writes, all tokens and whether there is an entry, for each such state."""
    report = await store.usage(group_by=["branch", "model", "day"])
    assert {row.group["agent"] for row in (await store.usage(group_by=["agent"])).rows} <= {
        "claude-code",
        "codex",
        "pi",
    }
    return [
        (row.calls, row.input, row.output, row.cache_write, row.total_tokens, row.group["branch"])
        for row in report.rows
    ]


def growing_answer() -> list[bytes]:
    kept = {"cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40}}

    def answer(uuid: str, parent: str, part: dict[str, Any], output: int) -> dict[str, Any]:
        usage = {"input_tokens": 3, "output_tokens": output, "cache_creation_input_tokens": 40, **kept}
        message = {"id": "m1", "role": "assistant", "model": "m", "content": [part], "usage": usage}
        return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message}

    asked: dict[str, Any] = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s"}
    return transcripts.as_lines(
        [
            {**asked, "message": {"role": "user", "content": ""}},
            answer("a1", "u1", {"type": "text", "text": "Let me see."}, 5),
            answer("a2", "a1", {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}, 9),
        ]
    )


def expected_format(name: str) -> str:
    return {transcripts.CLAUDE: "claude-code", PI: "pi"}.get(name, "codex")


async def test_a_call_is_paid_once_whether_imports_said_that_the_file_is_finished_or_not(tmp_path: Path) -> None:
    call = item(type="function_call", name="run", arguments="{}", call_id="c")
    output = item(type="function_call_output", call_id="c", output="x")
    again = item(type="function_call", name="run", arguments="{}", call_id="d")
    lines = transcripts.as_lines(
        [META, said("user", "a"), said("assistant", "b"), call, counted(10), again, counted(25), output]
    )
    lines += transcripts.as_lines([said("assistant", "c"), counted(40)])
    wrong = []
    for first in range(2, len(lines) + 1):
        for ways in ((True, False), (False, True), (True, True), (True, False, False)):
            async with flue_py.open(":memory:") as store:
                for number, finish in enumerate(ways):
                    await transcripts.import_lines(store, tmp_path, lines[: first + max(0, number - 1)], finish=finish)
                begun = sum(row[4] for row in await ledger(store))
                await transcripts.import_lines(store, tmp_path, lines, finish=True)
                tokens, problems = sum(row[4] for row in await ledger(store)), (await store.verify()).problems
            most = {10: 40, 9: 25, 8: 25, 7: 25, 6: 10, 5: 10}.get(min(len(lines), first + len(ways) - 2), 0)
            if (begun, tokens, problems) != (most, 40, []):
                wrong.append((first, ways, begun, most, tokens, problems))
    assert not wrong
