"""Sessions of Kimi Code: files of the program itself, whose contexts are the messages that it sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.formats.kimi import parse_kimi
from flue_py.formats.kit import Notes, ParseReport, Row, SessionPart
from tests.formats.transcripts import (
    all_seen,
    as_lines,
    check_growth,
    import_file,
    import_lines,
    rows_are_accounted_for,
)
from tests.programs.made import unpack

HEADER = {"type": "metadata", "protocol_version": "1.5", "created_at": 1_795_897_000_000}
PLACE = "sessions/wd_x_1/session_1/agents/main/wire.jsonl"


class Made:
    """The files of the program, and the messages that it sent."""

    def __init__(self, folder: Path) -> None:
        self.home = unpack("kimi-code-2.1.0", folder) / "home"
        told = json.loads((folder / "sent.json").read_text())
        self.sent: list[list[dict[str, Any]]] = told["sent"]
        self.names: dict[str, str] = told["names"]

    def file(self, session: str, agent: str = "main") -> Path:
        """Return the file of an agent."""
        (file,) = self.home.glob(f".kimi-code/sessions/*/{self.names[session]}/agents/{agent}/wire.jsonl")
        return file

    def last_sent(self, text: str) -> list[tuple[str, str]]:
        """Return the messages of the last request whose last words, but for reminders of the program, are these."""
        return [messages for messages in map(texts_of, self.sent) if text in _without_reminders(messages)[-1][1]][-1]


def texts_of(messages: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return roles and texts."""
    return [(message["role"].replace("toolResult", "tool"), _text(message)) for message in messages]


def _without_reminders(texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(role, text) for role, text in texts if "<system-reminder>" not in text]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def row(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "agentId": "main", **fields, "time": 1_795_897_000_100}


def said(text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "toolCalls": [], **fields}
    return row("context.append_message", message=message)


def event(kind: str, step: str, /, **fields: Any) -> dict[str, Any]:
    name = "uuid" if kind.startswith("step") else "stepUuid"
    return row("context.append_loop_event", event={"type": kind, name: step, **fields})


def answered(step: str, text: str, **fields: Any) -> list[dict[str, Any]]:
    usage = {"inputOther": 10, "output": 5, "inputCacheRead": 3, "inputCacheCreation": 0}
    return [
        event("step.begin", step),
        row("llm.request", kind="loop", provider="kimi", model="k2", modelAlias="k"),
        row("usage.record", model="k", usage=usage, usageScope="turn"),
        event("content.part", step, part={"type": "text", "text": text}),
        event("step.end", step, finishReason="end_turn", usage=usage),
    ]


TALK = [HEADER, said("One.", id="u1"), *answered("a1", "First."), said("Two.", id="u2"), *answered("a2", "Second.")]


def parsed(*rows: Any, take_all: bool = True) -> tuple[SessionPart, ParseReport]:
    notes = Notes("row")
    lines = [Row(number, b"", fields) for number, fields in enumerate(rows, 1)]
    (session, *_) = parse_kimi(lines, notes, take_all)
    return session, notes.report()


def path_of(session: SessionPart) -> list[str | None]:
    by_id = {entry.id: entry for entry in session.entries}
    path, at = [], session.leaf
    while at is not None:
        path.append(at)
        at = by_id[at].parent_id
    return path[::-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("kimi"))


async def test_the_files_of_the_program_give_its_contexts_its_bill_and_its_names(made: Made) -> None:
    async with flue_py.open(":memory:") as store:
        files = sorted(made.home.rglob("wire.jsonl"))
        reports = [await import_file(store, file) for file in files]
        seen = await all_seen(store)
        names = {name: made.names[name] for name in ("plain", "agent", "fork", "edited")}
        infos = {name: (await store.find_session(session)).info for name, session in names.items()}
        links = await (await store.find_session(names["agent"])).tasks.links()
        assert (await store.verify()).problems == []
    assert [(report.skipped, report.repaired, dict(report.unknown_kinds)) for report in reports] == [((), (), {})] * 5
    # A compaction is two entries, and a reminder stands on both branches.
    several = {made.file("edited"): 1, made.file("plain"): 2}
    pairs = zip(files, reports, strict=True)
    assert [
        file for file, report in pairs if not rows_are_accounted_for(report, several_entries=several.get(file, 0))
    ] == []
    # 1020 for calls of tools, 1412 for what follows them, 2030 for a plain answer, 3070 for the compaction.
    assert {name: seen[session].spent_tokens for name, session in names.items()} == {
        "plain": 1020 + 1412 + 3 * 2030,
        "agent": 1020 + 1412,
        "fork": 2030,
        "edited": 1020 + 1412 + 7 * 2030 + 3070,
    }
    assert seen[f"{names['agent']}:agent-0"].spent_tokens == 1020 + 1412
    assert [(link.child_id, link.task_id) for link in links] == [(f"{names['agent']}:agent-0", "agent-0")]
    titles = {name: (info.title, info.auto_title) for name, info in infos.items()}
    assert titles == {
        "plain": ("Renamed", None),
        "agent": (None, None),
        "fork": (None, f"Fork: {names['plain']}"),
        "edited": ("A title of a person", None),
    }
    assert {info.cwd for info in infos.values()} == {"/tmp/kimi/m1/work"}
    for name, text in (("plain", "Once more."), ("fork", "Go on in the fork.")):
        assert texts_of(seen[names[name]].context)[:-1] == made.last_sent(text)
    assert texts_of(seen[f"{names['agent']}:agent-0"].context)[:-1] in map(texts_of, made.sent)
    first = seen[names["plain"]].context[3]
    assert [part["type"] for part in first["content"]] == ["thinking", "text", "toolCall", "toolCall"]
    assert (first["provider"], first["model"]) == ("openai", "made-up")


async def test_what_was_taken_back_is_a_branch_and_a_compaction_keeps_the_words_of_people(made: Made) -> None:
    async with flue_py.open(":memory:") as store:
        await import_file(store, made.file("edited"))
        seen = (await all_seen(store))[made.names["edited"]]
    sent = _without_reminders(made.last_sent("At the end."))
    kept, (_, summary), *after = sent
    context = _without_reminders(texts_of(seen.context))
    # The program joins messages of a person that stand together; the words around a summary are ours.
    assert "\n\n".join(text for _, text in context[:4]) == kept[1]
    assert context[4][1].endswith(summary)
    assert context[5:-1] == after
    texts = [payload for *_, payload, _ in seen.entries.values() if '"The third."' in payload]
    assert len(texts) == 1
    assert not any("third" in text for _, text in context)


async def test_a_file_that_grows_row_by_row_ends_like_the_whole_one(made: Made, tmp_path: Path) -> None:
    for name in ("edited", "agent"):
        await check_growth(tmp_path / name, made.file(name).read_bytes().splitlines(keepends=True), PLACE)


async def test_an_answer_that_was_taken_before_it_was_over_is_replaced(tmp_path: Path, store: flue_py.Store) -> None:
    lines = as_lines(TALK)
    for end in range(2, len(lines) + 1):
        await import_lines(store, tmp_path, lines[:end], PLACE, finish=True)
    seen = (await all_seen(store))["session_1"]
    assert [_text(message) for message in seen.context] == ["One.", "First.", "Two.", "Second."]
    assert seen.spent_tokens == 36


async def test_the_calls_that_a_fork_repeats_are_those_of_its_source(tmp_path: Path) -> None:
    fork = PLACE.replace("session_1", "session_2")
    state = tmp_path / "sessions/wd_x_1/session_2/state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"forkedFrom": "session_1", "title": "Fork", "isCustomTitle": False}))
    copied = [*TALK, row("forked"), said("Three."), *answered("a3", "Third.")]
    for order in ((PLACE, fork), (fork, PLACE)):
        async with flue_py.open(":memory:") as store:
            for place in order:
                await import_lines(store, tmp_path, as_lines(TALK if place == PLACE else copied), place)
            seen = await all_seen(store)
        assert {name: each.spent_tokens for name, each in seen.items()} == {"session_1": 36, "session_2": 18}


def test_undo_clear_and_older_compactions_move_as_in_the_program() -> None:
    session, report = parsed(*TALK, row("context.undo", count=1), said("Other.", id="u3"))
    assert path_of(session)[:2] == ["u1", "a1"]
    assert path_of(session)[-1] == "u3"
    session, _ = parsed(*TALK, row("context.clear"), said("New.", id="u3"))
    assert len(path_of(session)) == 2  # the row that cleared it, and the message
    session, report = parsed(*TALK, row("context.undo", count=3), row("agent.switched", base={"line": 99}))
    assert [note.line for note in report.repaired] == [14, 15]
    compacted = row("context.apply_compaction", summary="Short.", compactedCount=2, tokensBefore=9)
    session, report = parsed(*TALK, compacted, row("context.undo", count=1), said("More.", id="u3"))
    (body,) = [json.loads(entry.payload) for entry in session.entries if entry.kind == "compaction"]
    assert (body["summary"], body["firstKeptEntryId"]) == ("Short.", "u2")
    assert report.repaired == ()
    switched = row("agent.switched", branch="b1", base={"branch": "main", "line": 7}, legacyUndoLine=15)
    session, _ = parsed(*TALK, switched, row("context.undo", count=1), said("Other.", id="u3"))
    assert path_of(session)[:2] == ["u1", "a1"]
    assert "u2" not in path_of(session)


def test_reminders_of_a_turn_that_was_taken_back_stay_as_in_the_program() -> None:
    note = said("<system-reminder>Auto.</system-reminder>", origin={"kind": "injection", "variant": "permission_mode"})
    owned = said("Mine.", origin={"kind": "injection", "ownerPromptId": "u2"})
    rows = [HEADER, said("One.", id="u1"), owned, said("Two.", id="u2"), note, *answered("a2", "Second.")]
    switched = row("agent.switched", branch="b1", base={"branch": "main", "line": 2}, legacyUndoLine=12)
    for undo in ([switched, row("context.undo", count=1)], [row("context.undo", count=1)]):
        session, report = parsed(*rows, *undo, said("Three."))
        texts = {entry.id: _text(json.loads(entry.payload)) for entry in session.entries if entry.kind == "message"}
        assert [texts[name] for name in path_of(session) if name in texts][-2:] == [_text(note["message"]), "Three."]
        assert report.repaired == ()


def test_results_failures_and_unknown_rows_are_kept() -> None:
    called = event("tool.call", "a1", uuid="c", toolCallId="t1", name="Bash", args={"command": "ls"})
    result = event("tool.result", "", parentUuid="c", toolCallId="t1", result={"output": "no", "isError": True})
    image = {"type": "image_url", "imageUrl": {"url": "data:image/png;base64,AAAA"}}
    rows = [event("step.begin", "a1"), called, said("Meanwhile."), result, event("step.end", "a1")]
    session, report = parsed(HEADER, said("Go.", content=[image]), *rows, row("future.thing", a=1), row("x"))
    messages = [json.loads(entry.payload) for entry in session.entries if entry.kind == "message"]
    assert messages[0]["content"] == [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    assert (messages[2]["toolName"], messages[2]["isError"], _text(messages[2])) == ("Bash", True, "no")
    assert _text(messages[3]) == "Meanwhile."
    assert report.unknown_kinds == {"future.thing": 1, "x": 1}
    failed = [event("step.begin", "a2"), event("step.end", "a2", finishReason="error")]
    _, report = parsed(HEADER, *failed)
    assert report.left_out == {"is about the session": 1, "is an answer without words": 1}
    _, report = parsed(*TALK, event("step.begin", "a3"), row("llm.request"), take_all=False)
    assert (report.held_back, report.held_back_from) == (2, 14)


async def test_a_row_that_would_begin_a_session_and_deep_values_do_no_harm(tmp_path: Path) -> None:
    deep = b'{"type":"x","v":' + b"[" * 5000 + b"]" * 5000 + b"}\n"
    lines: Sequence[bytes] = [*as_lines(TALK), deep, *as_lines([{"type": "session", "session": "evil"}, said("End.")])]
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, lines, PLACE)
        seen = await all_seen(store)
    assert list(seen) == ["session_1"]
    assert len(seen["session_1"].context) == 5
