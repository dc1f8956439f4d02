"""Runs and snapshots of fuseraft in a store: when they were completed, what they are called, and how they read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.core.sessions import NewSession
from tests.formats.test_fuseraft import checkpoint, turn
from tests.samples import placed
from tests.values import existing

SAVED = datetime(2026, 5, 27, 11, 0, tzinfo=UTC)
SAVED_US = 1779879600000000


async def imported(store: flue_py.Store, folder: Path, value: Any) -> flue_py.Session:
    """Return the session of a file with this value, as it is after the import."""
    file = folder / "a3f92c1d.json"
    file.write_text(json.dumps(value))
    report = await flue_py.import_file(store, file)
    session = existing(await store.get_session(report.session_id))
    assert (await store.verify()).problems == []
    return session


async def test_a_run_that_is_completed_later_is_completed_here_once(tmp_path: Path) -> None:
    messages = [turn(0, "a"), turn(1, "b")]
    later = {"LastUpdatedAt": SAVED.isoformat(), "IsComplete": True, "CurrentStateName": "Done"}
    async with flue_py.open(":memory:") as store:
        session = await imported(store, tmp_path, checkpoint(*messages, CurrentStateName="Testing"))
        assert session.info.completed_us is None
        session = await imported(store, tmp_path, checkpoint(*messages, **later))
        assert session.info.completed_us == SAVED_US
        told: Any = session.metadata["imported"]
        assert (told["checkpoint"]["IsComplete"], told["checkpoint"]["CurrentStateName"]) == (True, "Done")
        await session.set_completed(None)
        session = await imported(store, tmp_path, checkpoint(*messages, **later))
        assert session.info.completed_us is None


async def test_what_a_run_that_grew_says_of_itself_is_what_it_says_now(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store:
        await imported(store, tmp_path, checkpoint(turn(0, "a"), CurrentStateName="Testing"))
        session = await imported(store, tmp_path, checkpoint(turn(0, "a"), turn(1, "b"), CurrentStateName="Review"))
        told: Any = session.metadata["imported"]
        assert told["checkpoint"]["CurrentStateName"] == "Review"
        told = (await imported(store, tmp_path, checkpoint(turn(0, "a"), CurrentStateName="Testing"))).metadata[
            "imported"
        ]
        assert told["checkpoint"]["CurrentStateName"] == "Review"


async def test_a_call_is_of_the_agent_that_a_message_names_or_of_the_program(tmp_path: Path) -> None:
    usage = {"input": 9, "output": 1}
    said = [turn(0, "a") | {"AgentName": "Tester", "Usage": usage}, turn(1, "b") | {"AgentName": None}]
    async with flue_py.open(":memory:") as store:
        session = await imported(store, tmp_path, checkpoint(*said))
        answer = {"role": "assistant", "content": "ok", "usage": usage}
        await session.import_entries([placed(NewEntry.message(answer), "later")], leaf="later")
        await session.append_messages([answer, {**answer, "agentName": " Reviewer "}])
        await session.money.record_call(usage, agent="Titler")
        rows = (await store.usage(group_by=["agent"])).rows
        assert [row.group["agent"] for row in rows] == [None, "Reviewer", "Tester", "Titler", "fuseraft-run"]
        assert (await store.usage(agent="Reviewer")).total.calls == 1
        assert (await store.verify()).problems == []


async def test_the_transcript_of_a_run_names_its_task_and_counts_turns_from_1(tmp_path: Path) -> None:
    human = turn(2, "use decimals", AgentName="Human", Role="user")
    async with flue_py.open(":memory:") as store:
        session = await imported(store, tmp_path, checkpoint(turn(0, "a"), turn(1, "b"), human, turn(3, "c")))
        lines = (await flue_py.transcript(session)).splitlines()
    assert "**Task:** Refactor the payment module" in lines
    turns = [line.partition("  \u00b7")[0] for line in lines if line.startswith("## ")]
    assert [line.rpartition("Turn ")[2] for line in turns] == ["1", "2", "3", "4"]


async def test_a_title_that_a_program_made_is_kept_apart_in_every_import(tmp_path: Path) -> None:
    row = {"sessionId": "demo", "timestamp": "2026-02-01T09:00:00.000Z"}
    said = {**row, "type": "message", "uuid": "u1", "message": {"role": "user", "content": "hi"}}
    rows = [said, {**row, "type": "ai-title", "title": "Made"}]
    file = tmp_path / "demo.jsonl"
    async with flue_py.open(":memory:") as store:
        for more, expected in (
            ([], (None, "Made")),
            ([{**row, "type": "custom-title", "title": "Given"}], ("Given", "Made")),
            ([{**row, "type": "ai-title", "title": "Made again"}], ("Given", "Made again")),
            ([{**row, "type": "custom-title", "title": "  "}], ("Given", "Made again")),
        ):
            rows += more
            file.write_text("".join(json.dumps(each) + "\n" for each in rows))
            await flue_py.import_file(store, file, "noumen")
            session = existing(await store.get_session("demo"))
            assert (session.info.title, session.info.auto_title) == expected


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
async def test_a_blank_title_is_no_title(blank: str) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session(title=blank)
        await session.append_message({"role": "user", "content": "hi"})
        assert (session.title, (await session.refresh()).shown_title) == (None, "hi")
        assert (await session.set_title("Given")).title == "Given"
        assert (await session.set_title(blank)).title is None
        assert (await session.set_title(blank, auto=True)).auto_title is None
    assert NewSession(title=blank, auto_title=blank) == NewSession()
