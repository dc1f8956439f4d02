"""Sessions of Kimi CLI: files made by hand from the source of 1.51."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.formats.kimi import beside_kimi_cli, gather_kimi_cli, parse_kimi_cli
from flue_py.formats.kit import Notes, Row
from tests.formats.transcripts import all_seen, as_lines, import_file, rows_are_accounted_for, spoken

DIGEST = md5(b"/home/dev/shop", usedforsecurity=False).hexdigest()
SYSTEM = {"role": "_system_prompt", "content": "You are Kimi."}
MARK = {"role": "_checkpoint", "id": 0}
CALL = {"type": "function", "id": "t1", "function": {"name": "ReadFile", "arguments": '{"path": "a"}'}}
TALK = [
    SYSTEM, MARK, {"role": "user", "content": "What is in a?"}, {"role": "_usage", "token_count": 100},
    {"role": "assistant", "content": [{"type": "think", "think": "Look."}], "tool_calls": [CALL]},
    {"role": "tool", "content": "AAA", "tool_call_id": "t1"}, {"role": "assistant", "content": "AAA."},
]  # fmt: skip
SHORT = [{"role": "user", "content": "<system>Previous context has been compacted.</system>"}, *TALK[-1:]]


def step(time: float, name: str) -> dict[str, Any]:
    usage = {"input_other": 10, "output": 5, "input_cache_read": 85, "input_cache_creation": 0}
    payload = {"context_usage": 0.1, "token_usage": usage, "message_id": name}
    return {"timestamp": time, "message": {"type": "StatusUpdate", "payload": payload}}


def begin(time: float, prompt: str) -> dict[str, Any]:
    said = [{"type": "text", "text": prompt}]
    return {"timestamp": time, "message": {"type": "TurnBegin", "payload": {"user_input": said}}}


def of_agent(event: dict[str, Any], **names: str) -> dict[str, Any]:
    """Return an event as that of an agent: of one with files of its own if it has a name."""
    payload = {"task_tool_call_id": "t1", "event": event["message"], **names}
    return {"timestamp": event["timestamp"], "message": {"type": "SubagentEvent", "payload": payload}}


class Folder:
    """A session as the program leaves it."""

    def __init__(self, home: Path, name: str = "session-1") -> None:
        self.path = home / f".kimi/sessions/{DIGEST}/{name}"
        self.path.mkdir(parents=True)
        (home / ".kimi/kimi.json").write_text(json.dumps({"work_dirs": [{"path": "/home/dev/shop"}, 7]}))

    def write(self, name: str, rows: Sequence[Any]) -> Path:
        """Write rows to a file of the session, and return it."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_a_list_is_a_session_with_the_tokens_of_its_steps(folder: Folder, store: flue_py.Store) -> None:
    events = [step(1_790_000_000.5, "m1"), begin(1_790_000_009, "What is in a?"), of_agent(step(2e9, "m2"))]
    events += [of_agent(begin(1_790_000_011, "Look.")), of_agent(step(2e9, "m3"), agent_id="a1")]
    folder.write("wire.jsonl", [{"type": "metadata", "protocol_version": "1.9"}, *events])
    folder.write("state.json", [{"custom_title": "Shop", "title_generated": False}])
    file = folder.write("context.jsonl", TALK)
    folder.write("subagents/a1/context.jsonl", TALK[2:3])
    report = await import_file(store, file)
    await import_file(store, folder.path / "subagents/a1/context.jsonl")
    await import_file(store, folder.write("context_sub_1.jsonl", [{"role": "user", "content": "Look."}]))
    agent = (await store.find_session("session-1:context_sub_1")).info
    seen = await all_seen(store)
    info = (await store.find_session("session-1")).info
    assert (await store.verify()).problems == []
    links = await (await store.find_session("session-1")).tasks.links()
    assert spoken(seen["session-1"].context) == [
        ("user", "What is in a?"), ("assistant", ""), ("toolResult", "AAA"), ("assistant", "AAA."),
    ]  # fmt: skip
    assert (info.active_us, agent.active_us) == (1_790_000_009_000_000, 1_790_000_011_000_000)
    called = seen["session-1"].context[1]["content"]
    assert [part["type"] for part in called] == ["thinking", "toolCall"]
    assert seen["session-1"].context[2]["toolName"] == "ReadFile"
    assert seen["session-1"].spent_tokens == 200
    assert (info.title, info.auto_title, info.cwd) == ("Shop", None, "/home/dev/shop")
    assert {link.child_id for link in links} == {"session-1:a1", "session-1:context_sub_1"}
    assert rows_are_accounted_for(report)
    assert (report.skipped, report.repaired, dict(report.unknown_kinds)) == ((), (), {})


def test_each_message_has_the_time_of_the_next_prompt_with_its_words_without_a_search() -> None:
    class Unequal(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError("each prompt is compared with each message")

    events = [begin(at, words) for at, words in enumerate("abaz", 1)]
    events[-1]["message"]["payload"]["user_input"] = Unequal("z")
    rows = [{"type": "session"}, *({"type": "event", "row": event} for event in events), {"type": "list"}]
    rows += [{"type": "item", "row": {"role": "user", "content": words}} for words in "axaba"]
    part = parse_kimi_cli([Row(number, b"", fields) for number, fields in enumerate(rows, 1)], Notes("row"), True)
    assert part is not None
    assert [entry.created_us for entry in part.entries] == [at * 1_000_000 for at in (1, 1, 3, 3, 3)]


async def test_lists_that_were_begun_anew_are_branches_and_growing_ends_the_same(folder: Folder) -> None:
    async with flue_py.open(":memory:") as store:
        for end in range(1, len(TALK) + 1):
            folder.write("wire.jsonl", [step(float(number), f"m{number}") for number in range(end // 3)])
            await import_file(store, folder.write("context.jsonl", TALK[:end]))
        folder.write("context_1.jsonl", TALK)
        file = folder.write("context.jsonl", [SYSTEM, MARK, *SHORT, {"role": "user", "content": "Go on."}])
        await import_file(store, file)
        assert (await import_file(store, folder.path / "context_1.jsonl")).added == 0
        grown = (await all_seen(store))["session-1"]
    async with flue_py.open(":memory:") as store:
        await import_file(store, file)
        whole = (await all_seen(store))["session-1"]
    assert [text for _, text in spoken(grown.context)] == [SHORT[0]["content"], "AAA.", "Go on."]
    assert (grown.context, grown.leaf, grown.entries.keys()) == (whole.context, whole.leaf, whole.entries.keys())
    assert grown.spent_tokens == whole.spent_tokens == 200


async def test_a_fork_repeats_steps_that_are_paid_once(tmp_path: Path, folder: Folder, store: flue_py.Store) -> None:
    for place, count in ((folder, 1), (Folder(tmp_path / "x", "session-2"), 2)):
        place.write("wire.jsonl", [step(float(number), f"m{number}") for number in range(1, count + 1)])
        await import_file(store, place.write("context.jsonl", TALK))
    spent = {name: each.spent_tokens for name, each in (await all_seen(store)).items()}
    assert spent == {"session-1": 100, "session-2": 100}


async def test_rows_that_are_none_are_noted_and_a_file_without_any_is_refused(folder: Folder) -> None:
    assert beside_kimi_cli(folder.path / "context.jsonl") == {}
    file = folder.write("context.jsonl", TALK)
    folder.write("wire.jsonl", [["SubagentEvent"] * 200_000])
    assert len([*gather_kimi_cli(folder.write("context_sub_1.jsonl", TALK))]) == len(TALK) + 2
    file.write_bytes(
        file.read_bytes() + b'{torn\n{},"type":"session"\n' + b"".join(as_lines([{"role": "user", "content": 7}]))
    )
    async with flue_py.open(":memory:") as store:
        report = await import_file(store, file)
        assert len(report.skipped) == 1
        assert len(report.repaired) == 2
        assert list(await all_seen(store)) == ["session-1"]
        with pytest.raises(flue_py.UnreadableFile, match=r"no row has a role"):
            await flue_py.import_file(store, folder.write("context.jsonl", [{"x": 1}]), format="kimi-cli")
