"""Sessions of Gemini CLI: the context is what the program loads, and every call is paid once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.core.json import decode_object
from flue_py.formats.gemini_cli import GeminiCliReader
from flue_py.formats.kit import ParseReport, SessionPart, read_lines
from flue_py.transfer.imports import import_file
from tests.formats.transcripts import all_seen, as_lines, import_lines, rows_are_accounted_for, seen_at_once, spoken
from tests.formats.trees import document
from tests.programs.made import unpack
from tests.tables import inputs

HEADER = {"sessionId": "s-1", "projectHash": "ab12", "startTime": "2026-11-27T10:00:00.000Z", "kind": "main"}
NUMBERS = {"input": 100, "output": 20, "cached": 60, "thoughts": 5, "tool": 0, "total": 125}


def said(name: str, text: Any, **fields: Any) -> dict[str, Any]:
    content = [{"text": text}] if isinstance(text, str) else text
    return {"id": name, "timestamp": "2026-11-27T10:00:01.000Z", "type": "user", "content": content, **fields}


def answer(name: str, text: Any, **fields: Any) -> dict[str, Any]:
    return {**said(name, text), "type": "gemini", "content": text, "model": "gemini-3-pro", "tokens": NUMBERS, **fields}


def call(name: str) -> dict[str, Any]:
    return {"functionCall": {"id": name, "name": "read_file", "args": {"path": "a"}}}


def result(name: str, text: str = "AAA") -> dict[str, Any]:
    return {"functionResponse": {"id": name, "name": "read_file", "response": {"output": text}}}


def called(name: str, *results: Any) -> dict[str, Any]:
    fields = {"id": name, "name": "read_file", "args": {"path": "a"}, "status": "success", "displayName": "ReadFile"}
    return {**fields, "result": [*results] or None, "timestamp": "2026-11-27T10:00:02.000Z"}


def plain(row: dict[str, Any], content: Any) -> dict[str, Any]:
    """Return a message as a list has it that is made on resuming."""
    return {name: row[name] for name in ("id", "timestamp", "type")} | {"content": content}


THOUGHTS = [{"subject": "Looking", "description": "at the file.", "timestamp": "2026-11-27T10:00:01.000Z"}]
FIRST = answer("a1", "Reading.", thoughts=THOUGHTS)
WHOLE = {**FIRST, "toolCalls": [called("c1", result("c1"))]}
TALK = [
    HEADER, said("u1", "What is in a?"), {"$set": {"lastUpdated": "2026-11-27T10:00:02.000Z"}}, FIRST, WHOLE,
    said("t1", [result("c1")]), answer("a2", "AAA."),
    {"id": "i1", "timestamp": "2026-11-27T10:00:03.000Z", "type": "info", "content": "Update available"},
]  # fmt: skip
RESUMED = [
    HEADER | {"startTime": "2026-11-28T10:00:00.000Z"},
    {
        "$set": {
            "messages": [
                plain(said("u1", ""), [{"text": "What is in a?"}]),
                plain(WHOLE, [{"text": "Reading."}, {**call("c1"), "thoughtSignature": "x"}]),
                {**plain(said("a1", ""), [result("c1")])},
                plain(said("t1", ""), [result("c1")]),
                plain(answer("a2", ""), [{"text": "AAA."}]),
            ]
        }
    },
    said("u2", "Thanks."),
    answer("a3", "Welcome."),
]


def read(*rows: Any) -> tuple[SessionPart, ParseReport]:
    reader = GeminiCliReader("s.jsonl")
    (part,) = read_lines(reader, [b"".join(as_lines(rows))])
    return part, reader.report()


REAL = "gemini-cli-0.61.0"


def parts_sent(contents: list[Any]) -> list[tuple[str, ...]]:
    """Return the parts of contents without thoughts, each result once: the program repeats it after every resuming."""
    parts: dict[tuple[str, ...], None] = {}
    pairs = [(content["role"], part) for content in contents for part in content["parts"]]
    for number, (role, part) in enumerate(pairs):
        answer, call = part.get("functionResponse"), part.get("functionCall")
        if answer is not None:
            parts["result", answer["id"].rpartition("__")[2], json.dumps(answer["response"])] = None
        elif not part.get("thought"):
            said = f"{call['name']} {call['args']}" if call else part["text"].removeprefix("[Context Summary]\n\n")
            parts[role, said, str(number)] = None
    return [key[:2] for key in parts]


async def test_the_context_is_what_the_program_sent_in_each_request(tmp_path: Path, store: flue_py.Store) -> None:
    folder = unpack(REAL, tmp_path)
    for file in folder.rglob("chats/**/*.jsonl"):
        report = await import_file(store, file)
        assert report.skipped == report.repaired == ()
    contexts = []
    for info in (await store.list_sessions(limit=10)).sessions:
        session = await store.find_session(info.id)
        asking = [entry.id for entry in await session.get_tree() if entry.role in ("user", "toolResult")]
        requests = [await session.request("gemini", leaf=entry_id, settings={}) for entry_id in asking]
        contexts += [parts_sent(request.messages) for request in requests]
    sent = [parts_sent(contents) for contents in json.loads((folder / "sent.json").read_bytes())]
    assert len(sent) == 16
    assert [number for number, parts in enumerate(sent) if parts not in contexts] == []


async def test_real_sessions_have_the_bill_of_ccusage_and_their_tree(tmp_path: Path, store: flue_py.Store) -> None:
    folder = unpack(REAL, tmp_path)
    for file in sorted(folder.rglob("chats/**/*.jsonl"), reverse=True):
        await import_file(store, file)
    infos = (await store.list_sessions(limit=10)).sessions
    spent = {info.id[:8]: info.spent_tokens for info in infos}
    # By ccusage 20.0.26, which counts the 1608 tokens of the fork's first answer twice.
    assert spent == {
        "9da2295a": 5758, "c48d062f": 3216 - 1608, "30e81a32": 2532, "7e1af812": 2130, "9383640a": 7366,
    }  # fmt: skip
    assert {info.cwd for info in infos} == {"/tmp/gemini-made/work"}
    titles = {info.id[:8]: info.auto_title for info in infos if info.auto_title}
    assert titles == {"30e81a32": "Two files were read; they have AAA and BBB."}
    caller = await store.find_session(next(info.id for info in infos if info.id.startswith("30e81a32")))
    (link,) = await caller.tasks.links()
    (call,) = (
        entry for entry in await caller.get_tree() if "invoke_agent" in entry.payload and entry.role == "assistant"
    )
    assert (link.child_id[:8], link.entry_id) == ("7e1af812", call.id)
    rewound = await store.find_session(next(info.id for info in infos if info.id.startswith("9383640a")))
    kinds = Counter(entry.kind for entry in await rewound.get_tree())
    assert (kinds["compaction"], kinds["exclusion"], kinds["message"]) == (1, 2, 16)
    assert (await store.verify()).problems == []


@inputs("name", ["9da2295a", "9383640a", "30e81a32"])
async def test_a_real_file_may_be_imported_at_any_length(tmp_path: Path, name: str) -> None:
    (file,) = (
        file
        for file in unpack(REAL, tmp_path).rglob("chats/session-*.jsonl")
        if file.stem.endswith(name) and file.stat().st_size > 2000
    )
    lines = file.read_bytes().splitlines(keepends=True)
    (whole,) = (await seen_at_once(tmp_path, lines))[0].values()
    async with flue_py.open(":memory:") as store:
        for end in range(1, len(lines) + 1):
            await import_lines(store, tmp_path, lines[:end])
        assert (await store.verify()).problems == []
        (grown,) = (await all_seen(store)).values()
    assert (grown.context, grown.leaf, grown.spent_tokens) == (whole.context, whole.leaf, whole.spent_tokens)
    assert {name: entry[:3] for name, entry in grown.entries.items()} == {
        name: entry[:3] for name, entry in whole.entries.items()
    }


async def test_rows_are_messages_with_thoughts_calls_and_results(tmp_path: Path) -> None:
    everything, report = await seen_at_once(tmp_path, as_lines(TALK))
    seen = everything["s-1"]
    assert spoken(seen.context) == [
        ("user", "What is in a?"),
        ("assistant", "Reading."),
        ("toolResult", "AAA"),
        ("assistant", "AAA."),
    ]
    assert seen.context[1]["content"] == [
        {"type": "thinking", "thinking": "**Looking** at the file."},
        {"type": "text", "text": "Reading."},
        {"type": "toolCall", "id": "c1", "name": "read_file", "arguments": {"path": "a"}},
    ]
    numbers = {"input": 40, "output": 25, "cacheRead": 60, "totalTokens": 125, "reasoning": 5}
    assert {**numbers, **seen.context[1]["usage"]} == seen.context[1]["usage"]
    assert (seen.spent_tokens, seen.usage.total_tokens) == (250, 250)
    assert report.skipped == report.repaired == ()
    assert dict(report.left_out) == {"is a header": 1, "sets fields of the session": 1}
    assert report.merged == 1
    assert rows_are_accounted_for(report)


async def test_a_resumed_session_goes_on_where_it_was_and_no_call_is_paid_twice(tmp_path: Path) -> None:
    before, _ = await seen_at_once(tmp_path, as_lines(TALK))
    everything, report = await seen_at_once(tmp_path, as_lines([*TALK, *RESUMED]))
    seen = everything["s-1"]
    assert spoken(seen.context)[3:] == [("assistant", "AAA."), ("user", "Thanks."), ("assistant", "Welcome.")]
    assert before["s-1"].entries.items() <= seen.entries.items()
    assert len(seen.entries) == len(before["s-1"].entries) + 2
    assert (seen.spent_tokens, report.repaired) == (375, ())


async def test_a_file_that_grows_row_by_row_ends_like_the_whole_one(tmp_path: Path, store: flue_py.Store) -> None:
    lines = as_lines([*TALK, *RESUMED])
    whole, _ = await seen_at_once(tmp_path, lines)
    for end in range(1, len(lines) + 1):
        await import_lines(store, tmp_path, lines[:end])
    again = await import_lines(store, tmp_path, lines)
    assert (again.added, again.changed) == (0, False)
    seen = (await all_seen(store))["s-1"]
    assert (await store.verify()).problems == []
    assert (seen.context, seen.leaf, seen.usage) == (whole["s-1"].context, whole["s-1"].leaf, whole["s-1"].usage)
    assert seen.spent_tokens == whole["s-1"].spent_tokens


def test_what_was_rewound_stays_as_a_branch() -> None:
    part, _ = read(*TALK, {"$rewindTo": "u2"}, said("u9", "x"))
    assert [entry.parent_id for entry in part.entries if entry.id == "u9"] == [None]
    part, report = read(HEADER, said("u1", "a"), said("u2", "b"), {"$rewindTo": "u2"}, said("u3", "c"))
    assert [(entry.id, entry.parent_id) for entry in part.entries] == [("u1", None), ("u2", "u1"), ("u3", "u1")]
    assert part.leaves[-1] == "u3"
    assert report.repaired == ()


SHORT = [
    said("n1", "They read a."),
    plain(answer("n2", ""), [{"text": "Got it. Thanks for the additional context!"}]),
    said("n3", "Thanks."),
]


async def test_a_summary_stands_for_all_before_it_but_the_session_context(tmp_path: Path) -> None:
    rows = [
        HEADER, {"$set": {"messages": [NOW]}}, *TALK[1:], {"$set": {"messages": [NOW, *SHORT]}}, answer("a9", "Yes."),
    ]  # fmt: skip
    everything, _ = await seen_at_once(tmp_path, as_lines(rows))
    assert spoken(everything["s-1"].context) == [
        ("user", "<session_context>Friday"),
        ("user", "[Context Summary]\n\nThey read a."),
        ("assistant", "Got it. Thanks for the additional context!"),
        ("user", "Thanks."),
        ("assistant", "Yes."),
    ]
    assert everything["s-1"].spent_tokens == 375
    # Another summary stands for the first one, too.
    again = [said("m1", "They thanked."), {**SHORT[1], "id": "m2"}]
    everything, _ = await seen_at_once(tmp_path, as_lines([*rows, {"$set": {"messages": [LATER, *again]}}]))
    assert spoken(everything["s-1"].context) == [
        ("user", "<session_context>Saturday"),
        ("user", "[Context Summary]\n\nThey thanked."),
        ("assistant", "Got it. Thanks for the additional context!"),
    ]


async def test_the_leaf_goes_back_with_a_list_that_adds_nothing(tmp_path: Path, store: flue_py.Store) -> None:
    rows = [HEADER, said("u1", "x"), answer("a1", "y"), said("u2", "Please fail.")]
    failed = {"$set": {"messages": [rows[1], plain(rows[2], [{"text": "y"}])]}}
    for end in range(1, 6):
        await import_lines(store, tmp_path, as_lines([*rows, failed][:end]))
    seen = (await all_seen(store))["s-1"]
    assert spoken(seen.context) == [("user", "x"), ("assistant", "y")]
    await import_lines(store, tmp_path, as_lines([*rows, failed, said("u3", "z")]))
    assert spoken((await all_seen(store))["s-1"].context)[2:] == [("user", "z")]
    # A leaf that was moved here stays.
    await (await store.find_session("s-1")).move_leaf("u1")
    await import_lines(store, tmp_path, as_lines([*rows, failed, said("u3", "z"), {"$rewindTo": "u3"}]))
    assert (await all_seen(store))["s-1"].leaf == "u1"


def test_a_summary_that_a_later_one_keeps_is_a_message() -> None:
    again = [
        said("m1", "They thanked."),
        {**SHORT[1], "id": "m2"},
        said("m3", "They read a."),
        {**SHORT[1], "id": "m4"},
    ]
    lists = [{"$set": {"messages": messages}} for messages in (SHORT, again, again)]
    part, _ = read(*TALK, *lists)
    assert [entry.id for entry in part.entries if entry.kind == "compaction"] == ["n1", "m1"]


def test_a_summary_without_a_session_context_keeps_nothing() -> None:
    part, _ = read(*TALK, {"$set": {"messages": SHORT}})
    (entry,) = (entry for entry in part.entries if entry.kind == "compaction")
    assert (entry.id, '"firstKeptEntryId":""' in entry.payload) == ("n1", True)


def test_an_answer_in_the_same_words_is_no_mark_of_a_summary() -> None:
    thanks = "Got it. Thanks for the additional context!"
    rows = [HEADER, said("u1", "x"), answer("a1", thanks)]
    part, _ = read(*rows, {"$set": {"messages": [rows[1], plain(rows[2], [{"text": thanks}])]}})
    assert [entry.kind for entry in part.entries] == ["message", "message"]


NOW, LATER = said("c0", "<session_context>Friday"), said("c0", "<session_context>Saturday")


async def test_a_session_context_made_anew_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    rows = [HEADER, {"$set": {"messages": [NOW]}}, said("u1", "x"), answer("a1", "y")]
    whole = [rows[2], plain(rows[3], [{"text": "y"}])]
    later = [{"$set": {"messages": [LATER]}}, {"$set": {"messages": [LATER, *whole]}}, said("u2", "z")]
    expected = [("user", "<session_context>Saturday"), ("user", "x"), ("assistant", "y"), ("user", "z")]
    everything, _ = await seen_at_once(tmp_path, as_lines([*rows, *later]))
    assert spoken(everything["s-1"].context) == expected
    assert len(everything["s-1"].entries) == 5
    # A rewind leaves it out, and the next resuming puts one back.
    taken = [{"$rewindTo": "u2"}, {"$set": {"messages": whole}}, said("u3", "w")]
    everything, _ = await seen_at_once(tmp_path, as_lines([*rows, *later, *taken]))
    assert spoken(everything["s-1"].context) == [*expected[1:3], ("user", "w")]
    back = [{"$set": {"messages": [NOW, *whole, said("u3", "w")]}}]
    everything, _ = await seen_at_once(tmp_path, as_lines([*rows, *later, *taken, *back]))
    assert spoken(everything["s-1"].context) == [("user", "<session_context>Friday"), *expected[1:3], ("user", "w")]
    assert len(everything["s-1"].entries) == 8


async def test_a_file_in_which_nothing_is_said_makes_no_session(tmp_path: Path, store: flue_py.Store) -> None:
    report = await import_lines(store, tmp_path, as_lines([HEADER, {"$set": {"messages": [NOW]}}]))
    assert (report.sessions, report.rows) == ((), 2)


async def test_rows_that_a_session_begins_with_are_paid_in_the_first_one(tmp_path: Path, store: flue_py.Store) -> None:
    await import_lines(store, tmp_path, as_lines(TALK))
    await import_lines(store, tmp_path, as_lines([HEADER | {"sessionId": "s-2"}, *TALK[1:], answer("a7", "x")]))
    spent = [(await store.find_session(name)).info.spent_tokens for name in ("s-1", "s-2")]
    assert spent == [250, 125]


def test_results_that_stand_with_each_call_are_told_apart() -> None:
    both = [result("c1"), result("c2", "BBB")]
    row = answer("a1", "Reading.", toolCalls=[called("c1", *both), called("c2", *both), called("c3")])
    part, _ = read(HEADER, said("u1", "x"), row)
    results = [decode_object(entry.payload) for entry in part.entries if entry.role == "toolResult"]
    assert [(fields["toolCallId"], fields["content"]) for fields in results] == [("c1", "AAA"), ("c2", "BBB")]
    part, _ = read(HEADER, answer("a1", "", toolCalls=[{**called("c1"), "result": "AAA"}]))
    assert '"content":"AAA"' in part.entries[-1].payload


def test_a_file_of_very_many_lists_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flue_py.formats.gemini_cli._MOST", 20)
    part, report = read(*TALK, *[{"$rewindTo": "a2"}, answer("a2", "x")] * 9)
    assert (report.repaired_rows, report.skipped_rows) == (6, 0)
    assert part.leaves


def test_a_result_that_was_masked_is_what_a_list_says() -> None:
    masked = [
        said("u1", "What is in a?"),
        plain(WHOLE, [{"text": "Reading."}, call("c1")]),
        said("t1", [result("c1", "-")]),
    ]
    part, _ = read(*TALK, {"$set": {"messages": masked}})
    entry = next(entry for entry in part.entries if entry.id == part.leaves[-1])
    assert (entry.role, '"-"' in entry.payload) == ("toolResult", True)


async def test_the_older_document_gives_the_same_messages(tmp_path: Path, store: flue_py.Store) -> None:
    messages = [row for row in TALK[1:] if "id" in row and row is not FIRST]
    old = HEADER | {"messages": messages, "summary": "About a"}
    ours, _ = await seen_at_once(tmp_path, as_lines(TALK))
    everything, report = await seen_at_once(tmp_path, [document(old)], "session-1.json")
    assert everything["s-1"].context == ours["s-1"].context
    assert everything["s-1"].entries.keys() == ours["s-1"].entries.keys()
    await import_lines(store, tmp_path, [document(HEADER | {"messages": messages[:1]})], "session-1.json")
    await import_lines(store, tmp_path, [document(old)], "session-1.json")
    assert (await all_seen(store))["s-1"].context == ours["s-1"].context
    report = await import_lines(store, tmp_path, as_lines(TALK))
    assert report.added == 0


async def test_a_sub_agent_is_a_task_of_the_session_whose_folder_it_lies_in(tmp_path: Path) -> None:
    child = HEADER | {"sessionId": "k-1", "kind": "subagent"}
    async with flue_py.open(":memory:") as store:
        await import_lines(store, tmp_path, as_lines([child, said("x1", "Look.")]), "chats/s-1/k-1.jsonl")
        await import_lines(store, tmp_path, as_lines(TALK), "chats/session-1.jsonl")
        links = await (await store.find_session("s-1")).tasks.links()
    assert [link.child_id for link in links] == ["k-1"]


async def test_the_summary_is_the_title_that_a_program_made(tmp_path: Path, store: flue_py.Store) -> None:
    await import_lines(store, tmp_path, as_lines(TALK))
    await import_lines(store, tmp_path, as_lines([*TALK, {"$set": {"summary": "About a"}}, said("u2", "x")]))
    assert (await store.find_session("s-1")).info.auto_title == "About a"


def test_damage_is_named_by_its_line() -> None:
    rows = [HEADER, b"{torn\n", {"type": "user"}, {"id": "x"}, {"id": "y", "type": "future"}, said("u1", 7), b"\n"]
    part, report = read(*rows, {"$set": {"messages": [7]}})
    assert [(note.line, note.text[:20]) for note in report.skipped] == [
        (2, "is not JSON (Expecti"),
        (3, "has no usable id"),
        (4, "has no type"),
        (8, "has no usable id"),
    ]
    assert report.unknown_kinds == {"future": 1}
    assert [entry.kind for entry in part.entries] == ["gemini_cli.future", "unreadable_message"]


SAVED = [
    {"role": "user", "parts": [{"text": "What is in a?"}]},
    {"role": "model", "parts": [{"text": "Reading."}, {**call("c1"), "thoughtSignature": "x"}]},
    {"role": "user", "parts": [result("c1"), result("c1")]},
    {"role": "model", "parts": [{"text": "AAA."}]},
]


async def test_a_saved_chat_is_a_session_of_its_own_that_costs_nothing(tmp_path: Path, store: flue_py.Store) -> None:
    folder = unpack(REAL, tmp_path)
    (file,) = folder.rglob("checkpoint-*.json")
    history = json.loads(file.read_bytes())["history"]
    report = await import_file(store, file)
    assert (report.format, report.skipped, report.repaired) == ("gemini-cli", (), ())
    assert report.left_out == {"repeats a result": 2}
    session = await store.find_session(report.session_id)
    assert (session.title, session.info.cwd, session.info.spent_tokens) == ("saved", "/tmp/gemini-made/work", 0)
    request = await session.request("gemini", settings={})
    history[2]["parts"] = history[2]["parts"][:2]
    assert parts_sent(request.messages) == [*parts_sent(history), ("user", "(continue)")]
    assert (await import_file(store, file)).added == 0


async def test_a_tag_that_is_saved_again_goes_on_and_keeps_what_was_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint-my%2Ftag.json"
    async with flue_py.open(":memory:") as store:
        for contents in (SAVED[:2], SAVED, [*SAVED[:3], {"role": "model", "parts": [{"text": "BBB."}]}]):
            file.write_text(json.dumps({"history": contents}))
            report = await import_file(store, file)
        session = await store.find_session(report.session_id)
        assert (session.title, len(await session.get_tree())) == ("my/tag", 5)
        assert [message["content"] for message in await session.build_context()][-1] == [
            {"type": "text", "text": "BBB."}
        ]
        file.write_text(json.dumps([{"role": "user", "parts": [{"text": "Something else."}]}]))
        assert (await import_file(store, file)).session_id != session.id
        assert (await store.verify()).problems == []
