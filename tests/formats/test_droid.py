"""Sessions of Droid: rows made by hand, as published readers take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flue_py
from flue_py.core.sessions import derived_id
from flue_py.formats.droid import DroidReader
from flue_py.formats.kit import ParseReport, SessionPart, read_lines
from tests.formats.transcripts import all_seen, as_lines, check_growth, import_file, import_lines


def row(name: str, role: str, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": list(content)}
    return {"type": "message", "id": name, "timestamp": "2026-11-28T10:00:00.000Z", "message": message, **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(call: str, words: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": words, "is_error": False}


START = {"type": "session_start", "id": "s-1", "title": "About a", "cwd": "/w"}
TALK = [
    START,
    row("m1", "user", text("What is in a?")),
    row("m2", "assistant", text("Reading."), {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "t2", "name": "Read", "input": {"path": "b"}}, parentId="m1"),
    row("m3", "user", result("t1", "AAA"), result("t2", "BBB"), parentId="m2"),
    row("m4", "assistant", text("AAA and BBB."), parentId="m3"),
    {"type": "todo_state", "id": "x1", "todos": []},
]  # fmt: skip
SUMS = {"inputTokens": 100, "outputTokens": 20, "cacheCreationTokens": 7, "cacheReadTokens": 50, "thinkingTokens": 5}


def settings(**sums: int) -> str:
    return json.dumps({"model": "claude-opus-4-6", "providerLock": "anthropic", "tokenUsage": SUMS | sums}, indent=2)


def read(*rows: Any) -> tuple[SessionPart, ParseReport]:
    reader = DroidReader("s-1.jsonl")
    (part,) = read_lines(reader, as_lines(rows))
    return part, reader.report()


async def test_rows_are_messages_and_the_sums_are_one_call_that_grows(tmp_path: Path, store: flue_py.Store) -> None:
    for sums, tokens in ((SUMS, 182), (SUMS | {"outputTokens": 30, "inputTokens": 130}, 222)):
        (tmp_path / "s-1.settings.json").write_text(settings(**sums))
        await import_lines(store, tmp_path, as_lines(TALK), "s-1.jsonl")
        seen = (await all_seen(store))["s-1"]
        assert seen.spent_tokens == tokens
    again = await import_file(store, tmp_path / "s-1.jsonl")
    info = (await store.find_session("s-1")).info
    assert (await store.verify()).problems == []
    assert (again.added, again.changed) == (0, False)
    assert [message["role"] for message in seen.context] == [
        "user", "assistant", "toolResult", "toolResult", "assistant",
    ]  # fmt: skip
    assert [message.get("toolName") for message in seen.context[2:4]] == ["Read", "Read"]
    assert (info.auto_title, info.cwd, seen.leaf) == ("About a", "/w", "x1")
    assert list(seen.entries)[:2] == ["m1", "m2"]


async def test_a_file_that_grows_row_by_row_ends_like_the_whole_one(tmp_path: Path) -> None:
    await check_growth(tmp_path, as_lines(TALK))


def test_damage_is_named_by_its_line_and_unknown_rows_are_kept() -> None:
    part, report = read(*TALK, b"{torn\n", row("m1", "user", text("Again.")), {"type": "message", "message": 7})
    assert [note.line for note in report.skipped] == [7]
    assert [note.line for note in report.repaired] == [8, 9]
    assert report.unknown_kinds == {"todo_state": 1}
    assert [entry.kind for entry in part.entries][-3:] == ["droid.todo_state", "message", "droid.message"]


def test_messages_of_rows_whose_ids_are_taken_have_the_ids_that_they_always_had() -> None:
    second = derived_id("m3", "1")
    part, report = read(START, row(second, "user", text("Mine.")), *TALK[1:4], TALK[3], {**TALK[3], "id": 7})
    assert [note.line for note in report.repaired] == [5, 6, 6, 7]
    made = [(second, 5, "0"), ("m3", 6, "0"), (second, 6, "0"), ("s-1", 7), (derived_id("s-1", 7), "1")]
    assert [entry.id for entry in part.entries][4:] == [derived_id(*parts) for parts in made]
