"""Claude Code transcripts: the real one against an independent count, and every shape rows are known to have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import NewEntry
from flue_py.core.json import decode_object
from flue_py.core.usage import NO_USAGE, read_reported
from flue_py.formats import kit
from flue_py.formats.claude_code import ClaudeCodeReader, looks_like_claude_code, translated_part, usage_of
from flue_py.formats.kit import ParseReport, SessionPart
from tests.formats.transcripts import CLAUDE, as_lines, facts_of, lines_of
from tests.tables import inputs

SESSION = "11111111-1111-4111-8111-111111111111"


def read(lines: Sequence[bytes], *, take_all: bool = False) -> tuple[list[SessionPart], ParseReport]:
    reader = ClaudeCodeReader("session.jsonl")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    return reader.finish(take_all=take_all), reader.report()


def row(kind: str, uuid: str | None, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    made = {"type": kind, "parentUuid": parent, "isSidechain": False, "sessionId": SESSION, "cwd": "/w"}
    if uuid is not None:
        made |= {"uuid": uuid, "timestamp": "2026-01-14T00:00:00.000Z"}
    return {**made, **fields}


def user(uuid: str, parent: str | None, content: Any = "hello", **fields: Any) -> dict[str, Any]:
    return row("user", uuid, parent, message={"role": "user", "content": content}, **fields)


def model(uuid: str, parent: str | None, message_id: str, part: Any, output: int = 1, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": output, "cache_read_input_tokens": 100}
    message = {"id": message_id, "role": "assistant", "model": "claude-opus-4-5", "content": [part], "usage": usage}
    return row("assistant", uuid, parent, message=message, **fields)


def text(words: str = "Done.") -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(tool_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": "Read", "input": {"file_path": "a.py"}}


def result(uuid: str, parent: str | None, *tool_ids: str, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "tool_result", "tool_use_id": tool_id, "content": f"of {tool_id}"} for tool_id in tool_ids]
    return user(uuid, parent, parts, **fields)


def path_to(entries: Sequence[NewEntry], leaf: str | None) -> list[str]:
    parents = {entry.id: entry.parent_id for entry in entries}
    path: list[str] = []
    while leaf is not None:
        path.insert(0, leaf)
        leaf = parents[leaf]
    return path


def messages_of(entries: Sequence[NewEntry], leaf: str | None) -> list[dict[str, Any]]:
    by_id = {entry.id: entry for entry in entries}
    return [
        decode_object(by_id[entry_id].payload)
        for entry_id in path_to(entries, leaf)
        if by_id[entry_id].kind == "message"
    ]


def test_the_real_transcript_has_what_an_independent_script_counts() -> None:
    facts = facts_of(CLAUDE)
    (part,), report = read(lines_of(CLAUDE))
    assert report.rows == facts["rows"]
    assert (report.skipped, report.unknown_kinds, report.held_back) == ((), {}, 0)
    assert part.leaves[-1] == facts["lastConversationRow"]
    messages = messages_of(part.entries, part.leaves[-1])
    roles = [message["role"] for message in messages]
    assert roles.count("assistant") == facts["distinctAssistantMessageIds"]
    assert roles.count("toolResult") == facts["toolResults"]
    calls = [each["id"] for message in messages for each in message["content"] if type(each) is dict and "id" in each]
    results = [message["toolCallId"] for message in messages if message["role"] == "toolResult"]
    assert len(calls) == facts["toolUses"]
    assert sorted(calls) == sorted(results)
    assert report.merged == facts["assistantRows"] - facts["distinctAssistantMessageIds"]
    assert [note.line for note in report.repaired] == [1]
    total = NO_USAGE
    for entry in part.entries:
        total = total.plus(entry.usage)
    expected = facts["usageDedupedByMessageIdLastRowWins"]
    assert (total.input, total.output) == (expected["input_tokens"], expected["output_tokens"])
    assert total.cache_read == expected["cache_read_input_tokens"]
    assert total.cache_write == expected["cache_creation_input_tokens"]
    (compaction,) = [entry for entry in part.entries if entry.kind == "compaction"]
    assert compaction.id == facts["compactSummaryRows"][0]
    assert decode_object(compaction.payload)["tokensBefore"] == 155461
    assert path_to(part.entries, compaction.id)[0] == facts["danglingParents"][0]


def test_what_an_answer_was_billed_by_and_the_models_of_its_steps_are_with_its_calls() -> None:
    rows = [user("u1", None), model("a1", "u1", "m1", text(), 7)]
    steps = [
        {"type": "message", "input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 100},
        {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 30, "output_tokens": 20},
    ]
    rows[1]["message"]["usage"] |= {"iterations": steps, "speed": "fast", "service_tier": "standard"}
    name = "m1:2026-01-14T00:00:00.000Z:109"
    (part,), _ = read(as_lines(rows))
    assert [(paid.call_id, paid.model, paid.usage[:5], paid.terms) for paid in part.entries[1].calls] == [
        (name, "claude-opus-4-5", (9, 7, 100, 0, 116), (("speed", "fast"),)),
        (f"{name}:claude-opus-5", "claude-opus-5", (30, 20, 0, 0, 50), (("speed", "fast"),)),
    ]


@given(
    numbers=st.dictionaries(
        st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]),
        st.sampled_from([None, 0, 5, 7.0, "8", -1]),
    ),
    lifetimes=st.dictionaries(
        st.sampled_from(["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]), st.sampled_from([0, 5, 100])
    ),
    beside=st.sampled_from([
        {}, {"service_tier": "priority"}, {"speed": "fast"}, {"server_tool_use": {"web_search_requests": 2}},
        {"cost": {"total": 0.5}}, {"iterations": [{"input_tokens": 9, "output_tokens": 1}]}, {"total_tokens": 90},
    ]),
)  # fmt: skip
def test_usage_in_the_engines_shape_reads_as_it_was_read(
    numbers: dict[str, Any], lifetimes: dict[str, int], beside: dict[str, Any]
) -> None:
    shaped = usage_of({**numbers, "cache_creation": lifetimes, **beside})
    assert shaped is None or shaped[1] == read_reported(shaped[0])


@inputs(
    ("part", "ours"),
    [
        ({"type": "redacted_thinking", "data": "x"}, kit.thought("", None, "x")),
        ({"type": "image", "source": {"type": "url", "url": "u"}}, {"type": "image", "url": "u"}),
        ({"type": "tool_use", "id": "a", "name": "b"}, {"type": "toolCall", "id": "a", "name": "b"}),
        *(({"type": "thinking", "thinking": "x", "signature": odd}, kit.thought("x")) for odd in (None, 5)),
        *((same, same) for same in ({"type": "text", "text": "x", "data": {}}, {"type": "redacted", "data": 5})),
        *((odd, {"type": "json", "value": odd}) for odd in (5, {"type": "thinking"}, {"type": "toolCall", "id": "a"})),
    ],
)
def test_parts_are_those_of_the_api_and_values_that_are_none_are_kept(part: Any, ours: Any) -> None:
    assert translated_part(part) == ours


def test_rows_of_one_message_are_one_entry_with_the_last_usage_under_the_last_uuid() -> None:
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", {"type": "thinking", "thinking": "Hm.", "signature": "s"}, 5),
        model("a2", "a1", "m1", text(), 7),
        model("a3", "a2", "m1", call("t1"), 100),
        result("r1", "a3", "t1"),
        user("u2", "r1"),
    ]
    rows[3]["message"]["usage"] |= {"cache_creation": {"ephemeral_1h_input_tokens": 4}, "service_tier": "standard"}
    (part,), report = read(as_lines(rows))
    assert [entry.id for entry in part.entries] == ["u1", "a3", "r1", "u2"]
    entry = part.entries[1]
    message: Any = decode_object(entry.payload)
    assert [each["type"] for each in message["content"]] == ["thinking", "text", "toolCall"]
    assert message["content"][0]["thinkingSignature"] == "s"
    assert message["content"][2]["arguments"] == {"file_path": "a.py"}
    assert (entry.usage.output, entry.usage.input, entry.usage.cache_write, entry.usage.total_tokens) == (
        100, 9, 4, 213,
    )  # fmt: skip
    assert message["usage"]["cacheWrite1h"] == 4
    assert "cost" not in message["usage"]
    assert [(paid.provider, paid.call_id, paid.model) for paid in entry.calls] == [
        ("anthropic", "m1:2026-01-14T00:00:00.000Z:109", "claude-opus-4-5")
    ]
    assert part.earlier == {"a3": ("a1", "a2")}
    assert (report.merged, report.rows) == (2, 6)


def test_results_of_parallel_tools_hang_in_line_below_their_message() -> None:
    rows = [
        user("u1", None), model("a1", "u1", "m1", call("t1")), model("a2", "a1", "m1", call("t2")),
        result("r1", "a1", "t1", toolUseResult={"file": "a"}), row("progress", "p1", "a2", data={}),
        result("r2", "a2", "t2"), model("a3", "r1", "m2", text()), user("u2", "a3"),
    ]  # fmt: skip
    (part,), _ = read(as_lines(rows))
    assert path_to(part.entries, "u2") == ["u1", "a2", "r1", "p1", "r2", "a3", "u2"]
    found = messages_of(part.entries, "u2")[2]
    assert (found["toolName"], found["details"], found["toolCallId"]) == ("Read", {"file": "a"}, "t1")


def test_rows_of_a_message_between_the_results_of_its_tools_still_belong_to_it() -> None:
    rows = [
        user("u1", None), model("a1", "u1", "m1", call("t1")), result("r1", "a1", "t1"),
        model("a2", "r1", "m1", call("t2"), 50), result("r2", "a2", "t2"), model("a3", "r2", "m2", text()),
    ]  # fmt: skip
    (part,), _ = read(as_lines(rows))
    assert path_to(part.entries, "a3") == ["u1", "a2", "r1", "r2", "a3"]
    assert part.entries[1].usage.output == 50


def test_a_message_that_goes_on_after_it_was_complete_is_counted_once() -> None:
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", text("one"), 10),
        user("u2", "a1"),
        model("a2", "u2", "m1", text("two"), 25),
        user("u3", "a2"),
    ]
    (part,), report = read(as_lines(rows))
    usages = [entry.usage for entry in part.entries]
    assert [usage.output for usage in usages] == [0, 10, 0, 15, 0]
    assert sum(usage.cache_read for usage in usages) == 100
    assert [note.line for note in report.repaired] == [4]


def test_a_prompt_that_was_written_anew_begins_a_branch() -> None:
    rows = [
        user("u1", None), model("a1", "u1", "m1", text()), row("system", "s1", "a1", subtype="turn_duration"),
        user("u2", "s1", "first try"), model("a2", "u2", "m2", text()), user("u3", "s1", "second try"),
        model("a3", "u3", "m3", text()),
    ]  # fmt: skip
    (part,), _ = read(as_lines(rows))
    assert path_to(part.entries, "a3") == ["u1", "a1", "s1", "u3", "a3"]
    assert path_to(part.entries, "a2") == ["u1", "a1", "s1", "u2", "a2"]
    assert part.leaves[-1] == "a3"


def test_a_compaction_keeps_what_its_boundary_says_though_it_is_written_again() -> None:
    kept = {"headUuid": "a2", "anchorUuid": "cs", "tailUuid": "u3"}
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", text()),
        user("u2", "a1"),
        model("a2", "u2", "m2", text()),
        user("u3", "a2"),
        row(
            "system", "cb", None, subtype="compact_boundary", logicalParentUuid="u3",
            compactMetadata={"trigger": "auto", "preTokens": 1234, "preservedSegment": kept},
        ),
        user("cs", "cb", "The story so far.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        model("a2", "cs", "m2", text()),
        user("u3", "a2"),
        model("a4", "u3", "m4", text("onwards")),
    ]  # fmt: skip
    (part,), report = read(as_lines(rows))
    assert path_to(part.entries, "a4") == ["u1", "a1", "u2", "a2", "u3", "cb", "cs", "a4"]
    (compaction,) = [entry for entry in part.entries if entry.kind == "compaction"]
    fields = decode_object(compaction.payload)
    assert (fields["summary"], fields["firstKeptEntryId"], fields["tokensBefore"]) == ("The story so far.", "a2", 1234)
    assert (report.left_out, report.skipped) == ({"written again after a compaction": 2}, ())


@inputs("agent", [None, "abc", "acompact-1", "aside_question-1"])
def test_sidechains_are_task_sessions(agent: str | None) -> None:
    side = {"isSidechain": True, **({"agentId": agent} if agent else {})}
    rows = [
        user("u1", None), model("a1", "u1", "m1", call("task")), user("s1", None, "look", **side),
        model("s2", "s1", "m2", text("found"), 30, **side), result("r1", "a1", "task"), model("a2", "r1", "m3", text()),
    ]  # fmt: skip
    parts, _ = read(as_lines(rows))
    main, task = parts
    assert [entry.id for entry in main.entries] == ["u1", "a1", "r1", "a2"]
    assert [entry.id for entry in task.entries] == ["s1", "s2"]
    assert task.parent is not None
    assert (task.parent.session_id, task.parent.task_id) == (SESSION, agent or "s1")
    assert task.session.id == f"{SESSION}:{agent or 's1'}"
    made = {"acompact-1": "compact", "aside_question-1": "side question"}
    assert task.session.auto_title == made.get(str(agent)), "the first prompt is that of the session"
    assert (main.session.id, main.parent) == (SESSION, None)


def test_other_rows_are_kept_and_unknown_ones_named() -> None:
    rows = [
        row("summary", None, summary="A branch", leafUuid="a1"),
        row("file-history-snapshot", None, messageId="u1", snapshot={"trackedFileBackups": {}}),
        user("u1", None),
        model("a1", "u1", "m1", text()),
        row("brand-new", None, value=1),
        row("custom-title", None, customTitle="  My title "),
        row("ai-title", None, aiTitle="Its title"),
    ]
    (part,), report = read(as_lines(rows))
    assert report.unknown_kinds == {"brand-new": 1}
    kinds = [entry.kind.removeprefix("claude_code.") for entry in part.entries]
    assert kinds == ["summary", "file-history-snapshot", "message", "message", "brand-new", "custom-title", "ai-title"]
    assert [title.title for title in part.titles] == ["A branch", "My title"]
    assert part.leaves[-1] == "a1"


@inputs("part", [call("t1"), {"type": "thinking", "thinking": "Hm."}], ids=["a call", "thinking"])
def test_a_last_message_that_may_not_be_complete_is_held_back(part: dict[str, Any]) -> None:
    rows = [user("u1", None), model("a1", "u1", "m1", part), row("progress", "p1", "a1", data={})]
    (held,), report = read(as_lines(rows))
    assert [entry.id for entry in held.entries] == ["u1"]
    assert (report.held_back, report.held_back_from) == (2, 2)
    (taken,), report = read(as_lines(rows), take_all=True)
    assert [entry.id for entry in taken.entries] == ["u1", "a1", "p1"]
    assert report.held_back == 0


def test_a_last_message_that_reads_like_an_answer_is_taken_and_marked() -> None:
    rows = [user("u1", None), model("a1", "u1", "m1", text())]
    (part,), report = read(as_lines(rows))
    assert (part.unfinished, report.held_back) == (frozenset({"a1"}), 0)


def test_faults_are_named_by_line_and_never_fatal() -> None:
    rows = [
        b"\xef\xbb\xbf" + as_lines([user("u1", None)])[0], b"\n", b'{"type":"user","uuid":"torn', b"[1]\n",
        b'{"uuid":"x"}\n', b"\xff\xfe\x00garbage\n", user("u2", "missing"), user("u1", None, "again"), user("u3", "u3"),
        user("u4", "u3", {"no": "content"}), model("a1", "u4", "m1", text(), -5),
        user("u5", "a1", [3, None, {"type": "text"}, {"type": 7}, {"type": "image", "data": 3}]),
        {**user("u6", "u5"), "timestamp": "yesterday"}, row("user", "u7", "u6"),
        user("u8", "u7", "bytes \ud800 that are none"), as_lines([user("u9", "u8")])[0].replace(b"hello", b"h\xffllo"),
    ]  # fmt: skip
    (part,), report = read(as_lines(rows))
    assert [note.line for note in report.skipped] == [3, 4, 5, 6, 8]
    assert [note.line for note in report.repaired] == [7, 9, 10, 11, 13, 16]
    kinds = {entry.id: entry.kind for entry in part.entries}
    assert kinds["u4"] == "unreadable_message"
    assert kinds["a1"] == kinds["u5"] == kinds["u9"] == "message"
    odd = part.entries[[entry.id for entry in part.entries].index("a1")]
    assert (odd.usage.output, odd.usage.input, decode_object(odd.payload)["usage"]["output_tokens"]) == (0, 9, -5)
    assert (report.surrogates_replaced, report.rows) == (1, 15)


def test_what_the_program_says_between_two_calls_of_a_message_does_not_split_it() -> None:
    rows = [
        user("u1", None), model("a1", "u1", "m1", call("t1"), 5), result("r1", "a1", "t1"),
        user("i1", "r1", "What the skill says.", isMeta=True), row("permission-mode", None, permissionMode="plan"),
        model("a2", "i1", "m1", call("t2"), 9), result("r2", "a2", "t2"), model("a3", "r2", "m2", text()),
    ]  # fmt: skip
    (part,), report = read(as_lines(rows))
    assert (report.merged, report.repaired) == (1, ())
    roles = [message["role"] for message in messages_of(part.entries, part.leaves[-1])]
    assert roles == ["user", "assistant", "toolResult", "user", "toolResult", "assistant"]
    assert part.entries[1].usage.output == 9


def test_a_message_that_goes_on_after_a_prompt_is_paid_in_two_parts() -> None:
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", call("t1"), 5),
        user("u2", "a1"),
        model("a2", "u2", "m1", call("t2"), 9),
        user("u3", "a2"),
    ]
    for at in (1, 3):
        rows[at]["message"]["usage"] |= {
            "cache_creation_input_tokens": 8,
            "cache_creation": {"ephemeral_1h_input_tokens": 8},
        }
    (part,), report = read(as_lines(rows))
    assert [note.line for note in report.repaired] == [4]
    paid = [paid for entry in part.entries for paid in entry.calls]
    assert [each.usage.output for each in paid] == [5, 4]
    assert [each.cache_write_1h for each in paid] == [8, 0]
    assert len({each.call_id for each in paid}) == 2


@inputs("is_written_again", [True, False])
def test_a_compaction_that_lists_what_it_keeps_shows_it(is_written_again: bool) -> None:
    kept = [user("u2", "a1", "kept"), model("a2", "u2", "m2", text("kept, too"))]
    listed = {"anchorUuid": "cs", "uuids": ["u2", "a2"]}
    boundary = row("system", "cb", None, subtype="compact_boundary", logicalParentUuid="a2")
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", text()),
        *kept,
        boundary | {"compactMetadata": {"trigger": "auto", "preTokens": 10, "preservedMessages": listed}},
        user("cs", "cb", "The summary.", isCompactSummary=True),
        *([kept[0] | {"parentUuid": "cs"}, kept[1]] if is_written_again else []),
        user("u3", "a2", "after"),
    ]
    (part,), report = read(as_lines(rows))
    assert report.repaired == report.skipped == ()
    assert path_to(part.entries, "u3") == ["u1", "a1", "u2", "a2", "cb", "cs", "u3"]
    (compaction,) = [entry for entry in part.entries if entry.kind == "compaction"]
    assert decode_object(compaction.payload)["firstKeptEntryId"] == "u2"


def test_a_session_that_begins_with_a_command_is_called_by_it_if_that_is_a_prompt() -> None:
    def titles(*texts: str) -> list[str]:
        rows = [user(f"u{at}", f"u{at - 1}", text, isMeta=text == "Review.") for at, text in enumerate(texts)]
        return [title.title for title in read(as_lines(rows))[0][0].titles]

    clear = "<command-name>/clear</command-name>\n<command-args></command-args>"
    review = (
        "<command-message>x</command-message><command-name>/review</command-name><command-args>a <\nb</command-args>"
    )
    assert titles(clear, "<local-command-stdout></local-command-stdout>", review, "Review.", "Why?") == [
        "/review a < b"
    ]
    assert titles("Fix it.", review, "Review.") == titles(clear, "Fix it.", "Review.") == titles(review, "Fix.") == []


def test_rows_before_the_first_time_have_that_time() -> None:
    rows = [row("summary", None, summary="A title", leafUuid="x"), user("u1", None)]
    (part,), _ = read(as_lines(rows))
    assert part.entries[0].created_us == part.entries[1].created_us is not None


def test_a_transcript_whose_first_row_is_long_is_recognized() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 70_000}}
    first = {"parentUuid": None} | user("u1", None, [image])
    (line,) = as_lines([first])
    assert looks_like_claude_code(line[:65_536], "x.jsonl")
    assert not looks_like_claude_code(line[:65_536].replace(b"isSidechain", b"isAside"), "x.jsonl")
    assert not looks_like_claude_code(b"[" + line[:65_536], "x.jsonl")


def test_a_result_that_comes_after_a_compaction_stays_below_it() -> None:
    boundary = row("system", "cb", None, subtype="compact_boundary", logicalParentUuid="a1", compactMetadata={})
    rows = [
        user("u1", None),
        model("a1", "u1", "m1", call("t1")),
        boundary,
        user("cs", "cb", "The summary.", isCompactSummary=True),
        result("r1", "cs", "t1"),
        model("a2", "r1", "m2", text()),
    ]
    (part,), report = read(as_lines(rows))
    assert report.repaired == report.skipped == ()
    assert path_to(part.entries, part.leaves[-1]) == ["u1", "a1", "cb", "cs", "r1", "a2"]
    assert messages_of(part.entries, "a2")[2]["toolName"] == "Read"
