"""Files of the SDK's own sessions, brought into a store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from agents import Agent, Runner, SQLiteSession, Usage, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from agents.testing import ScriptedModel, assistant_message

import flue_py
from flue_py.adapters.openai_agents import FlueSession, import_sqlite_sessions
from flue_py.errors import InvalidArgument, UnreadableFile
from tests.checks import raises

set_tracing_disabled(True)

ITEMS: list[Any] = [
    {"role": "user", "content": "Hello \ud83d"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"__enc__": 1, "v": 1, "kid": "k", "payload": "p"},
]


async def test_plain_sessions_come_item_for_item(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    for name, items in (("one", ITEMS), ("two", ITEMS[:1]), ("x" * 3_000, ITEMS[1:])):
        session = SQLiteSession(name, old)
        await session.add_items(items)
        session.close()
    with closing(sqlite3.connect(old)) as file, file:
        file.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('two', '{broken')")
        file.execute("UPDATE agent_messages SET created_at = '2025-01-02 03:04:05'")
    done = await import_sqlite_sessions(old, new)
    assert (sorted(done.sessions), done.branches, done.already_there, done.skipped) == (
        sorted(["one", "two", "x" * 3_000]),
        (),
        (),
        1,
    )
    again = await import_sqlite_sessions(old, new)
    assert (again.sessions, sorted(again.already_there)) == ((), sorted(done.sessions))
    for name, items in (("one", ITEMS), ("two", ITEMS[:1]), ("x" * 3_000, ITEMS[1:])):
        session_of_ours = FlueSession(name, new)
        assert await session_of_ours.get_items() == items
        session_of_ours.close()
    with flue_py.sync.open(new) as store:
        assert store.verify().problems == []
        assert store.open_session("one").get_active_path()[0].created_at.isoformat() == "2025-01-02T03:04:05+00:00"


async def test_branches_and_usage_come_along(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    theirs = AdvancedSQLiteSession(session_id="one", db_path=old, create_tables=True)
    steps = [
        {
            "output": [assistant_message(f"answer {n}")],
            "usage": Usage(requests=1, input_tokens=10 * n, output_tokens=n, total_tokens=11 * n),
        }
        for n in range(1, 8)
    ]
    agent = Agent(name="a", model=ScriptedModel(steps))

    async def ask(text: str) -> None:
        await theirs.store_run_usage(await Runner.run(agent, text, session=theirs))

    for text in ("a", "b", "c"):
        await ask(text)
    await theirs.create_branch_from_turn(3, "second")
    await ask("d")
    await ask("e")
    await theirs.create_branch_from_turn(4, "third")
    await ask("f")
    done = await import_sqlite_sessions(old, new)
    assert (done.sessions, done.branches) == (("one",), (("one", "second"), ("one", "third")))
    assert (await import_sqlite_sessions(old, new)).branches == ()
    ours = FlueSession("one", new)
    for branch in ("main", "second", "third"):
        await ours.switch_to_branch(branch)
        await theirs.switch_to_branch(branch)
        assert await ours.get_items() == await theirs.get_items()
        assert await ours.get_session_usage(branch) == await theirs.get_session_usage(branch)
    assert await ours.get_session_usage() == await theirs.get_session_usage()
    theirs.close()
    ours.close()
    with flue_py.sync.open(new) as store:
        assert store.verify().problems == []
        assert len(store.list_sessions().sessions) == 3


async def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with flue_py.sync.open(other) as store:
        store.create_session(key="one")
    before = other.read_bytes()
    for path in (other, tmp_path / "nowhere.db"):
        await raises(UnreadableFile, import_sqlite_sessions(path, tmp_path / "new.db"), match=path.name)
    with pytest.raises(InvalidArgument, match="table"):
        await import_sqlite_sessions(other, tmp_path / "new.db", messages_table="a; DROP TABLE b")
    assert other.read_bytes() == before
    assert not (tmp_path / "nowhere.db").exists()
