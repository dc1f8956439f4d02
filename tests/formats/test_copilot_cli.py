"""Sessions of Copilot CLI: files of the program itself, whose contexts are the messages that it sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import message_text
from flue_py.core.sessions import derived_id
from flue_py.formats.copilot_cli import CopilotCliReader
from flue_py.formats.kit import ParseReport, SessionPart, read_lines
from tests.formats.transcripts import (
    all_seen,
    as_lines,
    check_growth,
    import_file,
    import_lines,
    rows_are_accounted_for,
)
from tests.programs.made import unpack
from tests.tables import inputs

PLAIN, EDITED = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class Made:
    """The files of the program, and the messages that it sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = unpack("copilot-cli-1.0.102", folder)
        told = json.loads((folder / "sent.json").read_text())
        self.sent: list[list[dict[str, Any]]] = told["sent"]
        self.fork: str = told["fork"]

    def file(self, session: str) -> Path:
        """Return the file of a session."""
        return self.folder / "home/.copilot/session-state" / session / "events.jsonl"

    def last_sent(self, text: str) -> list[Any]:
        """Return the messages of the last request that ends with these words."""
        return spoken([each for each in self.sent if str(each[-1]["content"]).endswith(text)][-1])


def spoken(messages: Iterable[dict[str, Any]]) -> list[Any]:
    """Return roles, texts, and the calls of tools, in one form."""
    said = []
    for message in messages:
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else []
        calls = [(part["id"], part["name"], part["arguments"]) for part in parts if part.get("type") == "toolCall"]
        calls += [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", [])
        ]
        role, text = message["role"].replace("toolResult", "tool"), message_text({"content": content})
        said.append((role, text, calls, message.get("toolCallId") or message.get("tool_call_id")))
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("copilot"))


def row(kind: str, name: str, /, agent: str | None = None, **data: Any) -> dict[str, Any]:
    whose = {"agentId": agent} if agent else {}
    at = "2026-11-28T10:00:00.000Z"
    return {"type": kind, "id": name, "parentId": None, "timestamp": at, "data": data, **whose}


def said(name: str, text: str, **data: Any) -> dict[str, Any]:
    return row("user.message", name, content=text, transformedContent=f"<now/>\n\n{text}", **data)


def answered(name: str, text: str, agent: str | None = None, **data: Any) -> list[dict[str, Any]]:
    usage = {"model": "m", "inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 60, "cacheWriteTokens": 10,
             "reasoningTokens": 5, "cost": 1, "providerType": "openai", "apiCallId": f"api-{name}"}  # fmt: skip
    return [
        row("session.usage_record", f"{name}-usage", agent, usage=usage),
        row("assistant.message", name, agent, content=text, model="m", apiCallId=f"api-{name}", **data),
    ]


START = row("session.start", "e0", sessionId="s-1", copilotVersion="1.0.102", context={"cwd": "/w"})
TALK = [START, said("u1", "One."), *answered("a1", "First."), said("u2", "Two."), *answered("a2", "Second.")]


def read(*rows: Any) -> tuple[list[SessionPart], ParseReport]:
    reader = CopilotCliReader("events.jsonl")
    return read_lines(reader, as_lines(rows)), reader.report()


async def test_the_files_of_the_program_give_its_contexts_its_bill_and_its_names(made: Made) -> None:
    async with flue_py.open(":memory:") as store:
        reports = [await import_file(store, made.file(name)) for name in (PLAIN, EDITED, made.fork)]
        seen = await all_seen(store)
        infos = [(await store.find_session(name)).info for name in (PLAIN, EDITED, made.fork)]
        links = await (await store.find_session(PLAIN)).tasks.links()
        assert (await store.verify()).problems == []
    assert [(report.skipped, report.repaired, dict(report.unknown_kinds)) for report in reports] == [((), (), {})] * 3
    assert all(rows_are_accounted_for(report) for report in reports)
    for name, text in ((PLAIN, "At the end."), (EDITED, "Six."), (made.fork, "In the fork.")):
        *context, last = spoken(seen[name].context)
        sent = made.last_sent(text)
        if name != made.fork:
            # Only the words around a summary are ours.
            (_, ours, *_), (_, theirs, *_) = context.pop(0), sent.pop(0)
            assert ours.partition("<user_message>")[2].replace("\n\n<summary>", "") == theirs.partition(
                "<user_message>"
            )[2].replace("\n\nHere is a summary of the prior context:\n<summary>", "").rstrip("\n")
        assert context == sent
        assert last[:2] == ("assistant", f"Answer to: {text}")
    children = {link.child_id for link in links}
    assert {spoken(seen[child].context)[0][1].rpartition("\n")[2] for child in children} == {"Look at a.txt"}
    # 1020 for a plain answer or a helper's, 1240 and 1350 for calls, 2030 for what follows, 3070 for a summary.
    assert {seen[child].spent_tokens for child in children} == {1020}
    assert len(children) == 2
    spent = [seen[name].spent_tokens for name in (PLAIN, EDITED, made.fork)]
    assert spent == [1240 + 2 * 1350 + 4 * 2030 + 2 * 1020 + 3070, 5 * 1020 + 2 * 3070, 1020]
    assert [(info.title, info.auto_title) for info in infos] == [
        (None, "Read both files."),
        ("A name", None),
        ("Fork", None),
    ]
    assert {info.cwd for info in infos} == {"/tmp/copilot/m1/work"}
    first = next(payload for _, kind, role, *_, payload, _ in seen[PLAIN].entries.values() if role == "assistant")
    assert [part["type"] for part in json.loads(first)["content"]] == ["thinking", "text", "toolCall", "toolCall"]


async def test_before_a_compaction_the_context_is_what_was_sent(made: Made, tmp_path: Path) -> None:
    lines = made.file(PLAIN).read_bytes().splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if b'"type":"session.compaction_start"' in line)
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, lines[:end])
        context = spoken((await all_seen(store))[PLAIN].context)
    (sent,) = [each for each in made.sent if "detailed summary" in str(each[-1]["content"])][:1]
    # Results stand in the order in which the tools were done; the program sends them in that of the calls.
    assert sorted(context[2:4], key=str) == sorted(spoken(sent)[2:4], key=str)
    assert (context[:2], context[4:]) == (spoken(sent)[:2], spoken(sent)[4:-1])


async def test_a_file_that_grows_row_by_row_ends_like_the_whole_one(made: Made, tmp_path: Path) -> None:
    for name in (PLAIN, EDITED):
        await check_growth(tmp_path / name, made.file(name).read_bytes().splitlines(keepends=True))


async def test_a_rewind_leaves_a_branch_and_what_was_paid(made: Made, tmp_path: Path) -> None:
    before = (made.folder / "before.jsonl").read_bytes().splitlines(keepends=True)
    after = made.file(EDITED).read_bytes().splitlines(keepends=True)
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, after)
        once = (await all_seen(store))[EDITED]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, before)
        await import_lines(store, tmp_path, after)
        seen = (await all_seen(store))[EDITED]
    assert (seen.context, seen.leaf) == (once.context, once.leaf)
    assert any('"Answer to: Two."' in payload for *_, payload, _ in seen.entries.values())
    assert seen.spent_tokens == once.spent_tokens + 1020


async def test_a_call_without_an_answer_is_paid_and_one_that_is_answered_later_is_paid_once(tmp_path: Path) -> None:
    lines = as_lines([*TALK, *answered("a3", "Third.")[:1], row("abort", "x"), said("u4", "Go on.")])
    async with flue_py.open(":memory:") as store:
        for end in range(1, len(lines) + 1):
            await import_lines(store, tmp_path, lines[:end])
            assert (await all_seen(store))["s-1"].spent_tokens == 120 * sum(b"_record" in line for line in lines[:end])


def test_the_numbers_of_a_call_have_what_is_cached_in_the_input() -> None:
    ((part,), _) = read(*TALK)
    (call,) = next(entry for entry in part.entries if entry.id == "a1").calls
    assert (call.provider, call.model, call.usage[:4], call.reasoning) == ("openai", "m", (30, 20, 60, 10), 5)


def test_older_files_have_sums_alone_which_are_paid_when_they_grow() -> None:
    def sums(name: str, tokens: int) -> dict[str, Any]:
        usage = {"inputTokens": tokens, "outputTokens": 10, "cacheReadTokens": 0}
        return row("session.shutdown", name, modelMetrics={"m": {"requests": {"count": 1}, "usage": usage}})

    old = [each for each in TALK if each["type"] != "session.usage_record"]
    ((part,), _) = read(*old, sums("d1", 100), sums("d2", 250), sums("d3", 40))
    calls = [(call.usage[0], call.usage[1]) for entry in part.entries for call in entry.calls]
    assert calls == [(100, 10), (150, 0), (40, 10)]
    newer = {
        "inputTokens": 200, "outputTokens": 40, "cacheReadTokens": 120, "cacheWriteTokens": 20, "reasoningTokens": 10,
    }  # fmt: skip
    ((part,), _) = read(*TALK, row("session.shutdown", "d1", modelMetrics={"m": {"usage": newer}}))
    assert [len(entry.calls) for entry in part.entries] == [0, 0, 1, 0, 1, 0]


def test_sub_agents_of_sub_agents_and_older_rows_of_them_are_tasks() -> None:
    request = {"toolCallId": "t1", "name": "task", "arguments": {}, "type": "function"}
    rows = [
        *answered("a3", "", toolRequests=[request]),
        row("subagent.started", "s1", "x", toolCallId="t1"),
        *answered("a4", "Inner.", "x", toolRequests=[{**request, "toolCallId": "t2"}]),
        row("subagent.started", "s2", "y", toolCallId="t2"),
        row("assistant.message", "a5", content="Older.", parentToolCallId="t3"),
        row("subagent.completed", "s3", "x", toolCallId="t1"),
    ]
    parts, _ = read(*TALK, *rows)
    tasks = [(part.session.id, part.parent and (part.parent.session_id, part.parent.task_id)) for part in parts]
    assert tasks == [("s-1", None), ("s-1:x", ("s-1", "x")), ("s-1:x:y", ("s-1:x", "y")), ("s-1:t3", ("s-1", "t3"))]
    assert [part.completed_us is not None for part in parts] == [False, True, False, False]


def test_a_compaction_keeps_what_came_while_it_was_made_and_a_failed_one_nothing() -> None:
    used = {"inputTokens": 50, "outputTokens": 7, "model": "m"}
    begun, done = row("session.compaction_start", "k1"), "session.compaction_complete"
    rows = [
        *TALK,
        begun,
        said("u3", "Three."),
        row(done, "k2", success=True, summaryContent="S", compactionTokensUsed=used),
    ]
    ((part,), _) = read(*rows, row(done, "k3", success=False, error="no"))
    entry = next(entry for entry in part.entries if entry.id == "k2")
    assert json.loads(entry.payload)["firstKeptEntryId"] == "u3"
    assert [call.purpose for call in entry.calls] == ["compaction"]
    assert next(entry for entry in part.entries if entry.id == "k3").kind == "copilot_cli.session.compaction_complete"


def test_texts_that_every_compaction_repeats_do_not_fill_the_memory() -> None:
    done = row("session.compaction_complete", "k", success=True, summaryContent="S")
    rows = [{**(said("u", "x" * 50_000) if at % 2 else done), "id": f"r{at}"} for at in range(400)]
    ((part,), report) = read(START, *rows)
    assert sum(len(entry.payload) for entry in part.entries if entry.kind == "compaction") < 1 << 27
    assert report.repaired[-1].text.startswith("the summary is without the texts")


def test_damage_is_named_by_its_line_and_unknown_rows_are_kept() -> None:
    bad = [b"{torn\n", {"id": "x"}, {"type": "future"}, said("u1", "Again."), row("other.thing", "o", a=1)]
    ((part,), report) = read(*TALK, *bad, row("tool.execution_complete", "r1", toolCallId=7))
    assert [note.line for note in report.skipped] == [8, 9]
    assert [note.line for note in report.repaired] == [10, 11, 13]
    assert report.unknown_kinds == {"future": 1, "other.thing": 1}
    kinds = [entry.kind for entry in part.entries][-4:]
    assert kinds == ["copilot_cli.future", "message", "copilot_cli.other.thing", "unreadable_message"]
    # The ids are those that older versions made, so that nothing comes in twice.
    assert [entry.id for entry in part.entries][-4:-2] == [derived_id("s-1", 10), derived_id("u1", 11)]
    assert read(*TALK, row("future", "", "x"))[0][1].entries[0].id == derived_id("s-1", 8)


@inputs(
    ("name", "title"),
    [
        ("plain words", "plain words"),
        ("'A: \"quoted\" # it''s'", 'A: "quoted" # it\'s'),
        ('"a\\tb"', "a\tb"),
        ("|-\n  line one\n  line two", "line one"),
    ],
)
async def test_the_name_stands_in_the_file_beside(tmp_path: Path, name: str, title: str) -> None:
    folder = tmp_path / "session-state/s-1"
    folder.mkdir(parents=True)
    async with flue_py.open(":memory:") as store:
        for named, key in (("false", "auto_title"), ("true", "title")):
            (folder / "workspace.yaml").write_text(f"id: s-1\nname: {name}\nuser_named: {named}\n")
            await import_lines(store, folder, as_lines(TALK), "events.jsonl")
            assert getattr((await store.find_session("s-1")).info, key) == title
