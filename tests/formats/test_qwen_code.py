"""Sessions of Qwen Code: those that the program wrote, compared with its own requests and bills, and rows by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.kinds import message_text
from flue_py.errors import UnreadableFile
from flue_py.formats.kit import ParseReport, SessionPart, read_lines
from flue_py.formats.qwen_code import QwenCodeReader, usage_of
from flue_py.sessions.store import Store
from tests.formats.transcripts import all_seen, as_lines, check_growth, seen_at_once, spoken
from tests.programs.made import unpack

MADE = "qwen-code-0.24.4"
MAIN = "c0000000-0000-4000-8000-0000000000e1"
SHORT = "c0000000-0000-4000-8000-0000000000e2"
GEMINI = "c0000000-0000-4000-8000-0000000000e3"
AGENT, BESIDE, NESTED = (f"general-purpose-call_{number}" for number in ("0003_0", "0003_1", "0004_0"))
AT = "2026-11-28T10:00:00.000Z"


def row(kind: str, uuid: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    placed = {"uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "timestamp": AT, "cwd": "/w", "version": "0.24.4"}
    return {**placed, "type": kind, **fields}


def said(uuid: str, parent: str | None, *parts: Any, **fields: Any) -> dict[str, Any]:
    texts = [{"text": part} if isinstance(part, str) else part for part in parts]
    return row("user", uuid, parent, message={"role": "user", "parts": texts}, **fields)


def answer(uuid: str, parent: str | None, *parts: Any, tokens: Any = (100, 20, 60, 5, 120)) -> dict[str, Any]:
    names = ("prompt", "candidates", "cachedContent", "thoughts", "total")
    texts = [{"text": part} if isinstance(part, str) else part for part in parts]
    usage = {f"{name}TokenCount": count for name, count in zip(names, tokens, strict=True)}
    message = {"role": "model", "parts": texts}
    return row("assistant", uuid, parent, model="m", message=message, usageMetadata=usage)


def reported(uuid: str, parent: str, prompt: str, tokens: Any = (100, 20, 60, 5, 120), **more: Any) -> dict[str, Any]:
    names = ("input", "output", "cached_content", "thoughts", "total")
    counts = {f"{name}_token_count": count for name, count in zip(names, tokens, strict=True)}
    event = {"event.name": "qwen-code.api_response", "model": "m", "prompt_id": prompt, **counts, **more}
    return row("system", uuid, parent, subtype="ui_telemetry", systemPayload={"uiEvent": event})


def read(*rows: Any) -> tuple[SessionPart, ParseReport]:
    reader = QwenCodeReader("s.jsonl")
    (part,) = read_lines(reader, as_lines(rows))
    return part, reader.report()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(MADE, tmp_path_factory.mktemp("qwen"))


def files_of(home: Path) -> list[Path]:
    """Return the sessions that the program wrote: sources before forks, and sub-agents last."""
    chats = sorted((home / ".qwen").rglob("chats/*.jsonl"), key=lambda path: (b"forkedFrom" in path.read_bytes(), path))
    return [*chats, *sorted((home / ".qwen").rglob("agent-*.jsonl"))]


async def imported(store: Store, paths: list[Path]) -> dict[str, Any]:
    for path in paths:
        report = await flue_py.import_file(store, path)
        assert report.format == "qwen-code"
        assert report.session_id.rpartition(":")[2] == path.stem.removeprefix("agent-")
        assert (report.skipped_rows, report.repaired_rows, report.unknown_kinds) == (0, 0, {})
    assert (await store.verify()).problems == []
    return await all_seen(store)


# the program's own files


async def test_contexts_are_the_messages_that_the_program_sent_next(home: Path, store: flue_py.Store) -> None:
    """Each last answer was asked for with the messages before it, but for reminders that are stored nowhere."""
    requests = json.loads((home / "sent.json").read_bytes())
    sessions = await imported(store, files_of(home))
    asked = []
    del sessions[GEMINI]  # asked in another form
    for name, seen in sessions.items():
        *before, last = seen.context
        ours = _sent([_of_ours(message) for message in before], is_compacted=name == SHORT)
        number = next(
            (number for number, request in enumerate(requests) if _sent(request, is_compacted=name == SHORT) == ours),
            None,
        )
        assert number is not None, (name, ours)
        asked.append((name, last["role"]))
    assert len(asked) == 7
    assert {role for _, role in asked} == {"assistant"}


def _of_ours(message: Any) -> list[Any]:
    content, role = message["content"], message["role"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [part["text"][:60] for part in parts if part["type"] == "text"]
    calls = [part["id"] for part in parts if part["type"] == "toolCall"]
    return ["tool" if role == "toolResult" else role, texts, message.get("toolCallId", calls)]


def _sent(messages: list[Any], *, is_compacted: bool) -> list[Any]:
    """Return messages without those of the system and reminders; the program joins messages of the user in a row."""
    joined: list[Any] = []
    for role, texts, calls in messages:
        kept = [text for text in texts if not text.startswith("<system-reminder>")]
        if role == "system":
            continue
        if joined and role == joined[-1][0] == "user":
            joined[-1][1] += kept
        else:
            joined.append([role, kept, calls])
    if is_compacted:
        joined[0][1] = ["the summary"]  # the words around it are ours
    return joined


async def test_every_call_is_paid_once_as_the_program_counts_them(home: Path) -> None:
    """The program has a list of its calls by session, where a sub-agent's are those of the session above it."""
    (listed,) = (home / ".qwen" / "usage").iterdir()
    calls = [json.loads(line) for line in listed.read_bytes().splitlines()]
    seen_before = None
    for paths in (files_of(home), files_of(home)[::-1]):
        async with flue_py.open(":memory:") as store:
            sessions = await imported(store, paths)
            paid = (await store.usage()).total
        assert sum(seen.spent_tokens for seen in sessions.values()) == sum(call["totalTokens"] for call in calls)
        assert (paid.calls, paid.unknown_calls) == (len(calls), 0)
        # A fork pays for its own calls, whether it comes before its source or after.
        spent = {name: seen.spent_tokens for name, seen in sessions.items()}
        spent[MAIN] += sum(spent.pop(f"{MAIN}:{agent}") for agent in (AGENT, BESIDE, NESTED))
        assert seen_before in (None, sessions)
        seen_before = sessions
        names = {call["sessionId"] for call in calls}
        assert spent == {
            name: sum(call["totalTokens"] for call in calls if call["sessionId"] == name) for name in names
        }


def _id_of(home: Path, sign: bytes) -> str:
    return next(path.stem for path in files_of(home) if sign in path.read_bytes())


async def test_sub_agents_are_tasks_below_the_answers_that_called_them(home: Path, store: flue_py.Store) -> None:
    sessions = await imported(store, files_of(home))
    above = {name: await (await store.find_session(name)).tasks.links() for name in (MAIN, f"{MAIN}:{AGENT}")}
    info = (await store.find_session(f"{MAIN}:{NESTED}")).info
    tasks = {name: [(link.child_id, link.task_id) for link in links] for name, links in above.items()}
    assert tasks == {
        MAIN: [(f"{MAIN}:{agent}", agent) for agent in (AGENT, BESIDE)],
        f"{MAIN}:{AGENT}": [(f"{MAIN}:{NESTED}", NESTED)],
    }
    assert (info.kind, info.cwd) == ("task", "/tmp/qwen-made/demo")
    context = sessions[f"{MAIN}:{NESTED}"].context
    assert (spoken(context)[0], context[-1]["model"]) == (("user", "LOOK at a.txt"), "made-up")


async def test_a_rewind_leaves_a_branch_and_the_name_is_that_of_a_person(home: Path, store: flue_py.Store) -> None:
    seen = (await imported(store, files_of(home)))[_id_of(home, b'"subtype":"rewind"')]
    assert spoken(seen.context)[2:] == [("user", "another second"), ("assistant", "Answer 4.")]
    assert [entry for entry in seen.entries.values() if '"second"' in entry[4]]
    assert seen.title == "Two words"


async def test_a_file_that_grows_row_by_row_ends_like_the_whole_one(home: Path, tmp_path: Path) -> None:
    for path in files_of(home):
        await check_growth(tmp_path / path.stem, path.read_bytes().splitlines(keepends=True), path.name)


# rows by hand


def test_thoughts_are_part_of_the_output_whatever_the_provider_calls_output() -> None:
    """OpenAI-compatible: total = prompt + candidates; Gemini: thoughts come on top. A 0 may be nothing at all."""
    names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
    for counts in ((100, 20, 5, 120), (100, 15, 5, 120), (100, 20, 5, 0)):
        usage = usage_of(dict(zip(names, counts, strict=True)))
        assert (usage.totals.output, usage.reasoning, usage.totals.total_tokens) == (20, 5, 120)
    usage = usage_of({"promptTokenCount": 100, "candidatesTokenCount": 20, "cachedContentTokenCount": 0})
    assert "cacheRead" not in usage.told


def test_reports_are_calls_where_no_answer_has_them() -> None:
    part, report = read(
        said("u1", None, "hi"),
        reported("t1", "u1", "s-1########0"),
        answer("a1", "t1", "Hi."),
        reported("t2", "a1", "s-1#managed-auto-memory-extractor-1#0", subagent_name="managed-auto-memory-extractor"),
        reported("t3", "t2", "s-1#Explore-c1#0", subagent_name="Explore", subagent_task_name="look"),
        reported("t4", "t3", "compress-17"),
        reported("t5", "t4", "s-1########1", (7, 1, 0, 0, 8)),
        said("u2", "t5", "again"),
    )
    paid = {entry.id: [(call.purpose, call.usage.tokens) for call in entry.calls] for entry in part.entries}
    assert {name: calls for name, calls in paid.items() if calls} == {
        "a1": [("turn", 120)],
        "t2": [("background", 120)],
        "t4": [("compaction", 120)],
    }
    assert [(call.purpose, call.usage.tokens) for call in part.calls] == [("turn", 8)]
    assert report.repaired == ()


def test_an_answer_without_a_part_has_its_numbers_alone() -> None:
    part, _ = read(said("u1", None, "hi"), answer("a1", "u1"), answer("a2", "a1", "Hi.", tokens=(None,) * 5))
    assert [(entry.kind, len(entry.calls)) for entry in part.entries] == [
        ("message", 0),
        ("qwen_code.assistant", 1),
        ("message", 0),
    ]


def test_results_of_several_tools_in_one_row_are_messages_in_a_line() -> None:
    results = [{"functionResponse": {"id": f"c{n}", "name": "read", "response": {"output": "x"}}} for n in (1, 2)]
    rows = said("r1", None, *results), answer("a1", "r1", "Done.")
    part, _ = read(rows[0] | {"type": "tool_result"}, rows[1])
    first, second, last = part.entries
    assert (first.role, second.role, second.id, second.parent_id) == ("toolResult", "toolResult", "r1", first.id)
    assert last.parent_id == "r1"


async def test_a_command_that_the_program_answered_is_not_sent(tmp_path: Path) -> None:
    payload = {"phase": "result", "rawCommand": "/x", "outputHistoryItems": [{"type": "assistant", "text": "y"}]}
    command = row("system", "c1", "u1", subtype="slash_command", systemPayload=payload)
    everything, _ = await seen_at_once(tmp_path, as_lines([said("u1", None, "/x"), command, said("u2", "c1", "hi")]))
    assert spoken(everything["s-1"].context) == [("user", "hi")]
    payload["sentToModel"] = True
    everything, _ = await seen_at_once(tmp_path, as_lines([said("u1", None, "/x"), command, said("u2", "c1", "hi")]))
    assert len(everything["s-1"].context) == 2


async def test_a_compaction_keeps_what_the_program_goes_on_with(tmp_path: Path) -> None:
    compressed = [
        {"role": "user", "parts": [{"text": "They read."}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
    ]
    payload = {"info": {"originalTokenCount": 90}, "compressedHistory": compressed}
    rows = [said("u1", None, "hi"), row("system", "k1", "u1", subtype="chat_compression", systemPayload=payload)]
    everything, _ = await seen_at_once(tmp_path, as_lines([*rows, said("u2", "k1", "on")]))
    context = everything["s-1"].context
    assert [role for role, _ in spoken(context)] == ["user", "assistant", "user"]
    assert "They read." in message_text(context[0])
    assert "hi" not in [text for _, text in spoken(context)]


def test_faults_of_rows_are_noted() -> None:
    part, report = read(
        said("u1", None, "a"),
        said("u1", None, "b"),
        said("u2", "gone", "c"),
        {"type": "user", "message": {"parts": []}, "sessionId": "s-1"},
        row("news", "n1", "u2"),
        b"[1]\n",
    )
    assert [entry.parent_id for entry in part.entries] == [None, "u1", None, "u2", "u2"]
    assert part.lost == {"u2": "gone"}
    assert [note.line for note in report.repaired] == [2, 3, 4]
    assert ([note.line for note in report.skipped], report.unknown_kinds) == ([6], {"news": 1})
    with pytest.raises(UnreadableFile, match="it has no row"):
        read(b"\n")


def test_titles_of_the_program_are_told_from_those_of_people() -> None:
    payloads = [{"customTitle": "By it", "titleSource": "auto"}, {"customTitle": "By me"}]
    rows = [row("system", f"c{n}", None, subtype="custom_title", systemPayload=each) for n, each in enumerate(payloads)]
    part, _ = read(*rows)
    assert (part.session.auto_title, part.session.title) == ("By it", "By me")
