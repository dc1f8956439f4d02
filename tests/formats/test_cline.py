"""Cline: sessions that its command line wrote in each state, and tasks of the extensions made by their source."""

from __future__ import annotations

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.sessions import made_id
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.cline import CUT, parse_cline
from flue_py.formats.kit import SessionPart
from flue_py.transfer.source import find_files
from tests.checks import raises
from tests.formats.transcripts import all_seen
from tests.formats.trees import context_of, path_in, shown, tree_of
from tests.programs.made import DATA
from tests.tables import inputs

PACKED = json.loads(gzip.decompress((DATA / "cline-3.0.65.json.gz").read_bytes()))
STATES: list[dict[str, Any]] = json.loads(PACKED["states.json"])
REQUESTS: list[list[dict[str, Any]]] = json.loads(PACKED["requests.json"])
LAST = STATES[-1]
SOURCE, FORK, UNDONE, CUT_SHORT = sorted({name.split("/")[0] for name in LAST})
(AGENT,) = (document["sessionId"] for name, document in LAST.items() if "/agent_" in name)
SUMMARY = "## Goal\nA made-up summary."


def write(folder: Path, state: dict[str, Any]) -> list[Path]:
    for name, value in state.items():
        path = folder / ".cline/data/sessions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2))
    return sorted(folder.glob(".cline/data/sessions/*/*.messages.json"))


def parsed(session: str) -> SessionPart:
    home = SOURCE if session == AGENT else session
    folder = f"{home}/{session.removeprefix(f'{SOURCE}__')}" if session == AGENT else f"{home}/{home}"
    beside = {"header": f"{home}/{home}.json", "compaction": f"{folder}.compaction.json"}
    files = {kind: json.dumps(LAST[name]).encode() for kind, name in beside.items() if name in LAST}
    return parse_cline(json.dumps(LAST[f"{folder}.messages.json"]).encode(), "x", "", files)


def words(message: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Return a message of a chat, or of ours, in words that both have."""
    content, calls = message.get("content") or "", message.get("tool_calls") or []
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    names = [call["id"] for call in calls] + [part["id"] for part in parts if part["type"] == "toolCall"]
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    for prefix in ("[Context Summary]\n\n", "Context summary:\n\n"):
        text = text.removeprefix(prefix)
    return {"toolResult": "tool"}.get(message["role"], message["role"]), text, names


def test_every_request_that_the_program_sent_is_a_context_of_ours() -> None:
    contexts = []
    for session in map(parsed, (SOURCE, FORK, UNDONE, AGENT, CUT_SHORT)):
        ends = {entry.parent_id for entry in session.entries if entry.role == "assistant"} | {session.leaf}
        ends |= {entry.id for entry in session.entries if entry.role == "user"}
        contexts += [[*map(words, context_of(session, end))] for end in ends]
    sent = [
        [*map(words, messages)] for messages in REQUESTS if not str(messages[-1]["content"]).startswith("Summarize")
    ]
    assert len(sent) == 19
    assert [messages for messages in sent if messages not in contexts] == []


def test_a_compaction_keeps_the_end_and_stands_where_it_was_made() -> None:
    session = parsed(SOURCE)
    path = path_in(tree_of(session), session.leaf)
    (compaction,) = (entry for entry in path if entry.kind == "compaction")
    assert path.index(compaction) == 15
    assert compaction.fields["summary"].startswith(SUMMARY)
    assert compaction.fields["firstKeptEntryId"] == path[6].id
    assert [text for _, text, _ in map(words, context_of(session))][-4:] == [
        "After", "Answer 6.", "Resumed", "Answer 11.",
    ]  # fmt: skip


async def test_a_fork_and_a_session_gone_back_pay_only_for_their_own_calls(tmp_path: Path) -> None:
    paths = write(tmp_path, LAST)
    for order in (paths, paths[::-1]):
        async with flue_py.open(":memory:") as store:
            for path in order:
                await flue_py.import_file(store, path)
            usage = (await store.usage()).total
            # 17 answers: 16 of 1000 tokens, 600 of which were cached, and one of 300 with 100.
            assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (6600, 9700, 0, 340)
            assert (await store.verify()).problems == []
            infos = {info.id: info for info in (await store.list_sessions()).sessions}
            assert {info.cwd for info in infos.values()} == {"/tmp/cline-made/work"}
            assert infos[FORK].auto_title == "FILES please (fork)"
            assert infos[AGENT].kind == "task"
            source = await store.find_session(SOURCE)
            assert [link.child_id for link in await source.tasks.links()] == [AGENT]


async def test_every_state_that_the_program_wrote_leads_to_the_same_sessions(tmp_path: Path) -> None:
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as whole:
        for before, state in pairwise([{}, *STATES]):
            changed = {name.partition("/")[0] for name, value in state.items() if before.get(name) != value}
            for path in write(tmp_path, state):
                if path.parent.name in changed:
                    await flue_py.import_file(store, path)
        for path in write(tmp_path, LAST):
            await flue_py.import_file(whole, path)
            assert not (await flue_py.import_file(store, path)).changed
        assert await all_seen(store) == await all_seen(whole)
        assert (await store.usage()).total == (await whole.usage()).total
        assert (await store.verify()).problems == []


# Tasks of the extensions: by the source of Cline 3.89 (message-state.ts), Roo Code 3.5x (condense, apiMessages.ts).


def said(role: str, *content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "role": role,
        "content": [{"type": "text", "text": part} if isinstance(part, str) else part for part in content],
        **fields,
    }


def call(at: int, index: int, cut: Any = None, **numbers: Any) -> dict[str, Any]:
    row = {"ts": at, "type": "say", "say": "api_req_started", "text": json.dumps({"request": "long", **numbers})}
    return {**row, "conversationHistoryIndex": index, **({"conversationHistoryDeletedRange": cut} if cut else {})}


PROMPT = "<task>\nFix it\n</task>\n# Current Working Directory (/w/demo) Files\na.py\n"
USED = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "AAA"}]}
MODEL = {"modelId": "m", "providerId": "anthropic", "mode": "act"}
TASK = [
    said("user", PROMPT, ts=1000),
    said("assistant", "Reading.", USED, ts=2000, modelInfo=MODEL),
    said("user", RESULT, ts=3000),
    said("assistant", "Done.", ts=6000, modelInfo=MODEL),
    said("user", "More", ts=7000),
    said("assistant", "Yes.", ts=8000, modelInfo=MODEL),
]
NUMBERS = {"tokensIn": 100, "tokensOut": 10, "cacheReads": 600, "cacheWrites": 0, "cost": 0.5}
SCREEN = [
    {"ts": 900, "type": "say", "say": "text", "text": "Fix it\nplease"},
    call(1100, -1, **NUMBERS),
    call(3100, 1, cancelReason="streaming_failed", **NUMBERS),
    call(3500, 1, **NUMBERS),
    call(7100, 3, **NUMBERS),
]


def task(folder: Path, extension: str, messages: list[Any], screen: list[Any], **beside: Any) -> Path:
    place = folder / f".config/Code/User/globalStorage/{extension}/tasks/1767607200000"
    place.mkdir(parents=True, exist_ok=True)
    files = {"api_conversation_history": messages, "ui_messages": screen, **beside}
    for name, value in files.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    return place / "api_conversation_history.json"


@inputs("extension", ["saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code", "copied"])
async def test_a_task_has_the_tokens_of_its_screen_also_of_calls_without_an_answer(
    extension: str, tmp_path: Path
) -> None:
    screen = json.loads(json.dumps(SCREEN))
    if "." not in extension or "claude" not in extension:  # of Roo and Kilo, input has the cache in it
        for row in screen[1:]:
            row["text"] = row["text"].replace('"tokensIn": 100', '"tokensIn": 700')
    async with flue_py.open(":memory:") as store:
        for length in range(1, len(TASK) + 1):
            shown_so_far = [row for row in screen if row["ts"] < (TASK[length]["ts"] if length < len(TASK) else 9000)]
            await flue_py.import_file(store, task(tmp_path, extension, TASK[:length], shown_so_far))
        session = await store.find_session("1767607200000")
        usage = (await store.usage()).total
        # Rows of Cline are that wherever they lie: its input does not have the cache in it.
        assert usage.input == (2800 if extension == "copied" else 400)
        assert (usage.cache_read, usage.output, usage.cost) == (2400, 40, 2)
        assert (session.info.auto_title, session.info.cwd) == ("Fix it", "/w/demo")
        async with flue_py.open(":memory:") as whole:
            await flue_py.import_file(whole, task(tmp_path, extension, TASK, screen))
            assert await all_seen(whole) == await all_seen(store)


def test_messages_that_classic_cline_cut_are_not_in_the_context() -> None:
    screen = [*SCREEN[:3], call(7100, 4, cut=[2, 3], **NUMBERS)]
    session = parse_cline(json.dumps(TASK).encode(), "x", "/a/7/h.json", {"screen": json.dumps(screen).encode()})
    assert [text for _, text in shown(session)][-2:] == ["More", "Yes."]
    assert len(shown(session)) == 4
    assert CUT not in str(shown(session))


def test_a_summary_of_roo_code_begins_the_context_anew() -> None:
    summary = said("user", "## Conversation Summary\nRead.", isSummary=True, condenseId="c", ts=9000)
    session = parse_cline(json.dumps([*TASK, summary, said("user", "Go on", ts=9100)]).encode(), "x", "", {})
    assert shown(session) == [("user", "[Context Summary]\n\n## Conversation Summary\nRead."), ("user", "Go on")]


async def test_a_subtask_of_roo_code_is_a_task_of_its_parent(tmp_path: Path, store: flue_py.Store) -> None:
    item = {"id": "1767607200000", "parentTaskId": "1767607100000", "workspace": "/w/roo", "task": "Fix it"}
    path = task(tmp_path, "rooveterinaryinc.roo-cline", TASK, SCREEN, history_item=item)
    await flue_py.import_file(store, path)
    session = await store.find_session("1767607200000")
    assert (session.info.kind, session.info.cwd) == ("task", "/w/roo")


async def test_a_list_that_was_cut_or_changed_is_a_branch(tmp_path: Path, store: flue_py.Store) -> None:
    for messages in (TASK, [*TASK[:2], said("user", "Other", ts=9000)], TASK[:1]):
        await flue_py.import_file(store, task(tmp_path, "saoudrizwan.claude-dev", messages, SCREEN))
    session = await store.find_session("1767607200000")
    assert len(await session.entries(kind="message")) >= 1
    assert [text for _, text, _ in map(words, await session.build_context())] == [PROMPT]
    texts = {words(json.loads(entry.payload))[1] for entry in await session.get_tree() if entry.kind == "message"}
    assert {"Other", "Yes."} <= texts


# Hostile files, and recognition.


def test_deep_and_damaged_files_are_noted() -> None:
    deep = "[" * 900 + "]" * 900
    message = f'{{"role": "user", "content": [{{"type": "tool_result", "content": {deep}}}]}}'
    document = f'{{"sessionId": "s", "messages": [{message}]}}'
    assert len(parse_cline(document.encode(), "x", "", {}).entries) == 1
    session = parse_cline(json.dumps(TASK).encode(), "x", "", {"screen": b"[{", "task": b"\xff"})
    assert len(session.report.repaired) >= 2


async def test_files_beside_are_taken_for_no_session_but_the_screen_of_one_whose_list_is_lost(tmp_path: Path) -> None:
    rows: list[Any] = [
        SCREEN[0],
        {**SCREEN[1], "modelInfo": MODEL},
        {"ts": 1200, "type": "ask", "ask": "tool", "text": "{}"},
    ]
    rows += [{"ts": 3600, "type": "say", "say": "text", "text": "Done."}, *SCREEN[2:]]
    rows += [{"ts": 3700, "type": "ask", "ask": "followup", "text": '{"question": "Which?", "options": ["a"]}'}]
    path = task(tmp_path, "saoudrizwan.claude-dev", TASK, rows, task_metadata={"files_in_context": []})
    document = path.read_bytes()
    names = [name for name in write(tmp_path, LAST)[0].parent.iterdir() if "messages" not in name.name]
    screen = path.with_name("ui_messages.json")
    async with flue_py.open(":memory:") as store:
        await raises(UnreadableFile, flue_py.import_file(store, screen), match="read with api_conversation_history")
        for other in (path.with_name("task_metadata.json"), *names):
            await raises(UnreadableFile, flue_py.import_file(store, other))
        path.unlink()
        os.mkfifo(tmp_path / "pipe.json")
        files = [*find_files([tmp_path])]
        assert (files[0].name, files[-1]) == ("pipe.json", screen), "nobody waits for a writer"
        report = await flue_py.import_file(store, screen)
        session, usage = await store.find_session("1767607200000"), (await store.usage()).total
        assert [(role, text) for role, text, _ in map(words, await session.build_context())] == [
            ("user", "Fix it\nplease"), ("assistant", "Done."), ("assistant", "Which?"),
        ]  # fmt: skip
        assert (usage.calls, usage.input, usage.cache_read, usage.cost) == (4, 400, 2400, 2)
        assert "is not there" in report.repaired[0].text
        assert not (await flue_py.import_file(store, screen)).changed
        path.write_bytes(document)
        assert (await flue_py.import_file(store, path)).call_conflicts == ()
        path.unlink()
        report = await flue_py.import_file(store, screen)
        assert (report.changed, "stays as it is" in report.repaired[-1].text) == (False, True)
        session, ledger = await store.find_session(session.id), await store.usage(group_by=("provider", "model"))
        assert (len(await session.build_context()), (await store.verify()).problems) == (len(TASK), [])
        paid = {tuple(each.group.values()): each.calls for each in ledger.rows}
        assert (paid, ledger.total.cost) == ({("anthropic", "m"): 1, ("", ""): 3}, 2)


def test_rows_that_say_the_same_get_their_ids_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(kit, "made_id", lambda *words: steps.append(made_id(*words)) or steps[-1])
    rows = [said("assistant", "Waiting", metadata={"displayOnly": True})] * 2000
    entries = parse_cline(json.dumps(rows).encode(), "x", "/tasks/7/h.json", {}).entries
    first = made_id("7", "", entries[0].kind, entries[0].payload, "1999")
    assert (len({entry.id for entry in entries}), entries[-1].id) == (2000, first)
    assert len(steps) < 30 * len(entries)


def test_a_compaction_whose_messages_were_changed_keeps_copies_of_them_without_a_summary() -> None:
    kept = [said("user", "Fix it. More", metadata={"kind": "compaction"}), said("assistant", "Yes, shorter.")]
    state = json.dumps({"source_message_count": 2, "messages": kept}).encode()
    document = json.dumps({"sessionId": "s", "messages": [*TASK[:2], said("user", "On")]}).encode()
    session = parse_cline(document, "x", "", {"compaction": state})
    assert [text for _, text in shown(session)] == ["Fix it. More", "Yes, shorter.", "On"]
    other = parse_cline(document, "x", "", {"compaction": state.replace(b": 2", b": 9")})
    assert len(shown(other)) == 3
    assert "of another list" in other.report.repaired[0].text


def test_a_title_that_nobody_said_is_a_name_that_people_gave() -> None:
    document = json.dumps({"sessionId": "s", "messages": [said("user", '<user_input mode="act">Hi\nyou</user_input>')]})
    for title, name in (("Hi", None), ("Work (fork)", None), ("Mine", "Mine")):
        header = json.dumps({"session_id": "s", "metadata": {"title": title}}).encode()
        session = parse_cline(document.encode(), "x", "", {"header": header})
        assert (session.name, session.session.auto_title) == (name, None if name else title)
