"""Crush: databases made by hand, with the tables and rows of its published source."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import message_text
from flue_py.formats.crush import looks_like_crush
from flue_py.formats.registry import recognize
from flue_py.sessions.store import Store
from tests.formats.transcripts import Seen, all_seen, import_file
from tests.tables import inputs

pytestmark = pytest.mark.anyio

TABLES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT NOT NULL, prompt_tokens INTEGER,
    completion_tokens INTEGER, cost REAL, updated_at INTEGER, created_at INTEGER, summary_message_id TEXT, todos TEXT);
CREATE TABLE files (id TEXT PRIMARY KEY, session_id TEXT, path TEXT, content TEXT, version INTEGER);
CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL, parts TEXT, model TEXT,
    provider TEXT, created_at INTEGER, updated_at INTEGER, finished_at INTEGER, is_summary_message INTEGER DEFAULT 0);
"""
AT = 1_790_000_000


class Project:
    """A project with a database that is being written."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop/.crush/crush.db"
        self.file.parent.mkdir(parents=True)
        self.run(*TABLES.split(";\n"))

    def run(self, *statements: str, values: tuple[Any, ...] = ()) -> None:
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            for statement in statements:
                database.execute(statement, values)

    def session(
        self, name: str, title: str = "<think>\nShort?\n</think>\n\nCounting", parent: str | None = None
    ) -> None:
        columns = "id, title, parent_session_id, prompt_tokens, completion_tokens, cost, created_at, updated_at"
        self.run(
            f"INSERT INTO sessions ({columns}) VALUES (?, ?, ?, 0, 0, 0.0, {AT}, {AT})", values=(name, title, parent)
        )

    def say(self, name: str, role: str, *parts: tuple[str, Any], session: str = "s", summary: int = 0) -> None:
        columns = "id, session_id, role, parts, model, provider, is_summary_message, created_at, updated_at"
        model = ("sonnet", "anthropic") if role == "assistant" else ("", None)
        values = (name, session, role, listed(*parts), *model, summary)
        self.run(f"INSERT OR REPLACE INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, {AT}, {AT})", values=values)

    def spend(self, cost: float, session: str = "s") -> None:
        self.run("UPDATE sessions SET cost = ?, prompt_tokens = 900 WHERE id = ?", values=(cost, session))


def listed(*parts: tuple[str, Any]) -> str:
    return json.dumps([{"type": kind, "data": data} for kind, data in parts])


def text(words: str) -> tuple[str, Any]:
    return "text", {"text": words}


def finish(reason: str = "end_turn") -> tuple[str, Any]:
    return "finish", {"reason": reason, "time": AT}


CALLS = [
    (
        "reasoning",
        {"thinking": "Look.", "signature": "sig", "thought_signature": "", "tool_id": "", "responses_data": None},
    ),
    text("I look."),
    ("tool_call", {"id": "c1", "name": "ls", "input": '{"path": "."}', "provider_executed": False, "finished": True}),
    ("tool_call", {"id": "c2", "name": "view", "input": "{torn", "provider_executed": False, "finished": True}),
    finish("tool_use"),
]
RESULTS = [
    (
        "tool_result",
        {"tool_call_id": "c1", "name": "ls", "content": "a b", "data": "", "metadata": "m", "is_error": False},
    ),
    ("tool_result", {"tool_call_id": "c2", "name": "", "content": "no file", "is_error": True}),
    finish("stop"),
]


def filled(folder: Path) -> Project:
    project = Project(folder)
    project.session("s")
    project.say("u1", "user", text(" How many? "), finish("stop"))
    project.say("a1", "assistant", *CALLS)
    project.say("t1", "tool", *RESULTS)
    project.say("a2", "assistant", text("Two."), finish())
    project.spend(0.25)
    return project


async def imported(store: Store, project: Project) -> dict[str, Seen]:
    """Return the sessions after an import without faults."""
    report = await import_file(store, project.file)
    assert (report.format, report.skipped, report.repaired, dict(report.unknown_kinds)) == ("crush", (), (), {})
    assert (await store.verify()).problems == []
    return await all_seen(store)


async def test_messages_calls_results_and_facts_of_a_session(tmp_path: Path, store: flue_py.Store) -> None:
    seen = (await imported(store, filled(tmp_path)))["s"]
    session = await store.find_session("s")
    info = session.info
    (day,) = (await store.usage(group_by=("day",), tz="UTC")).rows
    assert str(day.group["day"]) == "2026-09-21"  # not the day of the import
    assert (info.auto_title, info.cwd, info.created_us) == ("Counting", str(tmp_path / "shop"), AT * 1_000_000)
    assert (info.spent, info.spent_tokens) == (Decimal("0.25"), 0)
    assert [message["role"] for message in seen.context] == ["user", "assistant", *["toolResult"] * 2, "assistant"]
    answer = seen.context[1]
    assert (answer["provider"], answer["model"], answer["stopReason"]) == ("anthropic", "sonnet", "toolUse")
    assert answer["content"][0] == {"type": "thinking", "thinking": "Look.", "thinkingSignature": "sig"}
    assert [part.get("arguments") for part in answer["content"]] == [None, None, {"path": "."}, {"input": "{torn"}]
    assert [(message_text(message), message["toolName"], message["isError"]) for message in seen.context[2:4]] == [
        ("a b", "ls", False), ("no file", "view", True),
    ]  # fmt: skip
    # Ids are made of rows, also where a result does not name its tool.
    assert session.leaf_id == "2f68bb8a67277c30"
    assert any('"metadata":"m"' in (extra or "") for *_, extra in seen.entries.values())


async def test_a_session_grows_an_answer_waits_and_a_cost_is_paid_once(tmp_path: Path) -> None:
    project = filled(tmp_path)
    async with flue_py.open(":memory:") as store:
        await imported(store, project)
        project.say("u2", "user", text("And now?"), finish("stop"))
        project.say("a3", "assistant", text("Sti"))
        assert message_text((await imported(store, project))["s"].context[-1]) == "And now?"
        project.say("a3", "assistant", text("Still two."), finish())
        project.spend(0.75)
        seen = await imported(store, project)
        assert (await store.find_session("s")).info.spent == Decimal("0.75")
        assert not (await import_file(store, project.file)).changed
    async with flue_py.open(":memory:") as store:
        assert await imported(store, project) == seen


async def test_the_context_begins_at_the_summary_that_the_session_names(tmp_path: Path, store: flue_py.Store) -> None:
    project = filled(tmp_path)
    before = (await imported(store, project))["s"]
    project.say("k0", "assistant", text("half"), finish("error"), summary=1)
    project.say("k1", "assistant", text("They counted."), finish(), summary=1)
    project.run("UPDATE sessions SET summary_message_id = 'k1'")
    project.say("u2", "user", text("Go on."), finish("stop"))
    seen = (await imported(store, project))["s"]
    assert [message_text(message) for message in seen.context] == ["[Context Summary]\n\nThey counted.", "Go on."]
    assert before.entries.items() <= seen.entries.items()
    kinds = [entry.kind for entry in await (await store.find_session("s")).get_active_path()]
    assert kinds[-3:] == ["crush.summary", "compaction", "message"]


async def test_sub_agents_are_tasks_whose_cost_the_session_above_has(tmp_path: Path, store: flue_py.Store) -> None:
    project = filled(tmp_path)
    project.session("a1$$c1", "New Agent Session", parent="s")
    project.session("title-s", "Generate a title", parent="s")
    project.say("x1", "user", text("Count."), finish("stop"), session="a1$$c1")
    project.spend(0.1, "a1$$c1")
    await imported(store, project)
    (link,) = await (await store.find_session("s")).tasks.links()
    assert (link.child_id, (await store.find_session("s")).info.spent) == ("a1$$c1", Decimal("0.25"))
    task = (await store.find_session("a1$$c1")).info
    assert (task.auto_title, task.spent) == (None, 0)


async def test_prompts_are_read_as_they_are_sent(tmp_path: Path, store: flue_py.Store) -> None:
    project = Project(tmp_path)
    project.session("s", "Untitled Session")
    files = [
        ("binary", {"Path": "a.txt", "MIMEType": "text/plain", "Data": "aGk="}),
        ("binary", {"Path": "b.png", "MIMEType": "image/png", "Data": "QUJD"}),
    ]
    project.say("u1", "user", text("Look:"), *files, finish("stop"))
    project.say("u2", "user", ("shell_command", {"command": "ls", "output": "a", "exit_code": 0}), finish("stop"))
    project.say("a1", "assistant", finish("canceled"))
    seen = (await imported(store, project))["s"]
    assert (await store.find_session("s")).info.auto_title is None
    first, second = seen.context
    assert first["content"][0]["text"].endswith("<file path='a.txt'>\n\nhi\n</file>\n")
    assert first["content"][1] == {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    assert message_text(second) == "$ ls\na\n(exit code 0)"
    assert "crush.assistant" in {kind for _, kind, *_ in seen.entries.values()}


async def test_messages_of_a_session_without_a_row_and_commands_without_an_end_are_kept(tmp_path: Path) -> None:
    project = filled(tmp_path)
    project.say("x1", "user", ("shell_command", {"command": "ls", "output": "a"}), session="lost")
    project.say("x2", "assistant", text("One file."), finish(), session="lost")
    async with flue_py.open(":memory:") as store:
        report = await import_file(store, project.file)
        assert "the session 'lost' has messages, and no row of its own" in str(report.repaired)
        texts = [message_text(message) for message in (await all_seen(store))["lost"].context]
    assert texts == ["$ ls\na", "One file."]


async def test_rows_that_are_damaged_cost_themselves_only(tmp_path: Path, store: flue_py.Store) -> None:
    project = filled(tmp_path)
    project.run("UPDATE messages SET parts = '[' WHERE id = 't1'", "UPDATE messages SET parts = '7' WHERE id = 'u1'")
    project.session("")
    report = await import_file(store, project.file)
    assert len(report.skipped) == 3
    assert [message["role"] for message in (await all_seen(store))["s"].context] == ["assistant", "assistant"]


@inputs(("table", "is_one"), [("", True), ("messages", False), ("files", False)])
def test_only_such_a_database_is_recognised(table: str, is_one: bool, tmp_path: Path) -> None:
    project = Project(tmp_path / (table or "whole"))
    if table:
        project.run(f"ALTER TABLE {table} RENAME TO other")
    head = project.file.read_bytes()[:4096]
    found = recognize(head, str(project.file))
    assert (found.name if found else None) == ("crush" if is_one else None)
    assert looks_like_crush(head, str(project.file)) is is_one


async def test_parts_of_no_known_type_and_further_texts_stay_beside_the_entry(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.session("s")
    further, new = ("text", {"text": "LOST"}), ("hologram", {"of": "LOST"})
    project.say("1", "user", ("text", {"text": "Hi"}), further, new)
    project.say("2", "assistant", ("text", {"text": "Ho"}), further, new, ("finish", {"reason": "end_turn"}))
    project.say("3", "tool", ("tool_result", {"tool_call_id": "c", "name": "x", "content": "1"}), new)
    async with flue_py.open(":memory:") as store:
        await import_file(store, project.file)
        path = await (await store.find_session("s")).get_active_path()
    assert [str(entry.extra).count("LOST") for entry in path] == [2, 2, 1]
