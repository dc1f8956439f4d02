"""Rollouts of Codex: their rows and items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from flue_py.core.json import decode_object
from flue_py.core.kinds import COMPACTION
from flue_py.core.usage import NO_USAGE, UsageTotals
from flue_py.errors import UnreadableFile
from flue_py.formats.codex import COMPACTED, CodexReader, looks_like_codex
from flue_py.formats.kit import Exported, ParseReport, SessionPart, TaskOf
from flue_py.formats.lists import export_anthropic, export_openai_chat, export_openai_responses
from tests.formats.pi_files import HEADER, parse_pi
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, as_lines, facts_of, lines_of, sequence_hash
from tests.formats.trees import context_of, items_of
from tests.tables import inputs

# Codex rollouts: the real one against an independent count, and every shape items are known to have.

META = {"timestamp": "2026-06-05T04:58:20.653Z", "type": "session_meta", "payload": {"id": "s1", "cwd": "/w"}}


def read(lines: Sequence[bytes], *, take_all: bool = False) -> tuple[SessionPart, ParseReport]:
    reader = CodexReader("rollout.jsonl")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    (part,) = reader.finish(take_all=take_all)
    return part, reader.report()


def item(**payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-06-05T04:58:21.000Z", "type": "response_item", "payload": payload}


def event(**payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-06-05T04:58:22.000Z", "type": "event_msg", "payload": payload}


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": text}])


def count(total: int, cached: int = 0, output: int = 0, last: int | None = None) -> dict[str, Any]:
    def usage(tokens: int) -> dict[str, int]:
        return {
            "input_tokens": tokens,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": output // 2,
            "total_tokens": tokens + output,
        }

    return event(type="token_count", info={"total_token_usage": usage(total), "last_token_usage": usage(last or total)})


def messages(part: SessionPart) -> list[dict[str, Any]]:
    return [decode_object(entry.payload) for entry in part.entries if entry.kind == "message"]


def total(part: SessionPart) -> UsageTotals:
    summed = NO_USAGE
    for entry in part.entries:
        summed = summed.plus(entry.usage)
    return summed


@inputs("name", [CODEX_REAL, CODEX_MADE])
def test_a_rollout_has_what_an_independent_script_counts(name: str) -> None:
    facts = facts_of(name)
    part, report = read(lines_of(name))
    assert (report.rows, report.skipped, report.held_back) == (facts["rows"], (), 0)
    assert part.session.id == facts["sessionIds"][0]
    assert sequence_hash(messages(part)) == facts["messageSequenceSha256"]
    used, expected = total(part), facts["finalTotalTokenUsage"]
    assert used.input + used.cache_read == expected["input_tokens"]
    assert used.cache_read == expected["cached_input_tokens"]
    assert (used.output, used.total_tokens) == (expected["output_tokens"], expected["total_tokens"])
    parents = [entry.parent_id for entry in part.entries]
    assert parents == [None, *[entry.id for entry in part.entries[:-1]]]


def test_items_that_codex_does_not_write_are_kept_and_named() -> None:
    _, report = read(lines_of(CODEX_MADE))
    assert report.unknown_kinds == {"response_item.tool_call": 1, "response_item.tool_result": 1}


def test_what_the_model_says_between_results_is_one_message_with_its_usage() -> None:
    rows = [
        META, {"type": "turn_context", "payload": {"model": "gpt-5.5"}}, said("user", "list files"),
        item(type="reasoning", summary=[{"type": "summary_text", "text": "Hm."}], encrypted_content="x", content=None),
        item(type="function_call", name="exec", arguments='{"cmd":"ls"}', call_id="c1"),
        item(type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2", status="completed"),
        count(100, 60, 10), count(100, 60, 10), item(type="function_call_output", call_id="c1", output="a.txt"),
        item(type="custom_tool_call_output", call_id="c2", output=[{"type": "output_text", "text": "Done!"}]),
        item(type="agent_message", author="lead/a", content=[{"type": "input_text", "text": "Hurry."}]),
        event(type="agent_message", message="One file."), said("assistant", "One file."), count(250, 160, 30),
        event(type="task_complete"),
    ]  # fmt: skip
    part, report = read(as_lines(rows))
    roles = [message["role"] for message in messages(part)]
    assert roles == ["user", "assistant", "toolResult", "toolResult", "user", "assistant"]
    hurry = {"role": "user", "content": [{"type": "text", "text": "Hurry."}], "item": {"author": "lead/a"}}
    assert messages(part)[4] == hurry, "the words of another agent"
    first = messages(part)[1]
    assert [each["type"] for each in first["content"]] == ["thinking", "toolCall", "toolCall"]
    assert [each.get("arguments") for each in first["content"][1:]] == [{"cmd": "ls"}, "*** Begin"]
    assert (first["content"][0]["thinking"], first["content"][0]["thinkingSignature"]) == ("Hm.", "x")
    assert (first["model"], first["stopReason"]) == ("gpt-5.5", "toolUse")
    assert first["usage"] == {
        "input": 40, "output": 10, "cacheRead": 60, "totalTokens": 110, "reasoning": 5,
    }  # fmt: skip
    assert [message["toolName"] for message in messages(part)[2:4]] == ["exec", "apply_patch"]
    assert total(part) == UsageTotals(90, 30, 160, 0, 280)
    calls = [paid for entry in part.entries for paid in entry.calls]
    assert sum(paid.usage.total_tokens for paid in calls) == 280
    assert len({paid.call_id for paid in calls}) == 2
    assert report.left_out == {"repeats a count of tokens": 1, "repeats a message for the screen": 1}


def test_tokens_counted_late_belong_to_the_next_message_and_none_to_no_one() -> None:
    rows = [META, said("user", "a"), count(10), said("assistant", "b"), event(type="task_complete")]
    part, _ = read(as_lines(rows))
    assert total(part).total_tokens == 10
    part, report = read(as_lines([*rows, count(25)]))
    assert total(part).total_tokens == 10
    assert "15 tokens" in report.repaired[0].text
    _, report = read(as_lines([META, event(type="token_count", info=None)]))
    assert report.left_out == {"reports no tokens": 1}


def test_a_count_that_began_anew_is_counted_by_what_it_reports_of_itself() -> None:
    rows = [META, said("assistant", "a"), count(100), said("user", "b"), said("assistant", "c"), count(40, last=30)]
    part, report = read(as_lines(rows))
    assert total(part).total_tokens == 130
    assert [note.line for note in report.repaired] == [6]


def recorded(tokens: int, total: int | None = None) -> dict[str, Any]:
    def usage(count: int) -> dict[str, int]:
        return {"input_tokens": count, "output_tokens": 0, "total_tokens": count}

    payload: dict[str, Any] = {"response_id": "resp_1", "usage": usage(tokens)}
    return {
        "type": "token_usage_record",
        "payload": payload | ({} if total is None else {"thread_token_usage": usage(total)}),
    }


def full(window: int) -> dict[str, Any]:
    usage = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "total_tokens": window}
    return event(
        type="token_count", info={"total_token_usage": usage, "last_token_usage": usage, "model_context_window": window}
    )


def grown(parts: int, total: int, last: int) -> dict[str, Any]:
    usage = {"input_tokens": parts, "cached_input_tokens": 0, "output_tokens": 0, "total_tokens": total}
    return event(
        type="token_count", info={"total_token_usage": usage, "last_token_usage": usage | {"total_tokens": last}}
    )


TURN, ASK = said("assistant", "a"), said("user", "b")
FORK = META | {"payload": META["payload"] | {"forked_from_id": "s0"}}
SPAWNED = META | {"payload": META["payload"] | {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "s0"}}}}}
COUNTED: dict[str, tuple[list[dict[str, Any]], int, int]] = {
    "a record, then the total that has it": ([META, TURN, recorded(10, 10), count(10)], 10, 0),
    "the total, then the record": ([META, TURN, count(10), recorded(10, 10)], 10, 0),
    "records without totals of the thread": (
        [META, TURN, recorded(10), count(10), ASK, TURN, recorded(10), count(20, last=10)], 20, 0,
    ),
    "records alone, of equal answers": ([META, TURN, recorded(10), ASK, TURN, recorded(10)], 20, 0),
    "totals alone, then records": ([META, TURN, count(10), ASK, TURN, recorded(10, 20), count(20, last=10)], 20, 0),
    "records, then totals alone": ([META, TURN, recorded(10), count(10), ASK, TURN, count(30, last=20)], 30, 0),
    "a total behind two records": ([META, TURN, recorded(10), ASK, TURN, recorded(5), count(15, last=5)], 15, 0),
    "a record that is none": ([META, TURN, {"type": "token_usage_record", "payload": {"usage": 3}}, count(10)], 10, 0),
    "a fork that begins high": ([FORK, TURN, count(110, last=10)], 10, 0),
    "a sub-agent that begins high": ([SPAWNED, TURN, count(110, last=10)], 10, 0),
    "any other file that begins high": ([META, TURN, count(110, last=10)], 10, 1),
    "a fork with records that begins high": ([FORK, TURN, recorded(10, 110), count(110, last=10)], 10, 0),
    "a refused call": ([META, TURN, count(10), ASK, full(900), full(900), TURN, grown(7, 907, 7)], 17, 0),
    "a refused call among records": (
        [META, TURN, recorded(10), count(10), ASK, full(900), TURN, recorded(7, 17), grown(7, 907, 7)], 17, 0,
    ),
    "a refused call first": ([META, ASK, full(900), TURN, grown(7, 907, 7)], 7, 0),
}  # fmt: skip


def test_each_call_is_counted_once_however_its_tokens_are_told() -> None:
    wrong = []
    for name, (rows, tokens, repairs) in COUNTED.items():
        part, report = read(as_lines([*rows, event(type="task_complete")]), take_all=True)
        calls = {call.call_id: call.usage.total_tokens for entry in part.entries for call in entry.calls}
        seen = total(part).total_tokens, sum(calls.values()), len(report.repaired), dict(report.unknown_kinds)
        if seen != (tokens, tokens, repairs, {}):
            wrong.append((name, seen))
    assert not wrong


def test_a_replacement_history_is_the_context_after_a_compaction() -> None:
    kept = [said("user", "the task")["payload"], said("user", "Summary: so far")["payload"]]
    rows = [
        META, said("user", "the task"), said("assistant", "working"), count(900),
        {"type": "compacted", "payload": {"message": "so far", "replacement_history": kept}},
        event(type="context_compacted"), said("user", "go on"),
    ]  # fmt: skip
    part, _ = read(as_lines(rows))
    (compaction,) = [entry for entry in part.entries if entry.kind == "compaction"]
    fields = decode_object(compaction.payload)
    assert fields["summary"] == "Summary: so far"
    assert fields["tokensBefore"] == 900
    first, last = part.entries[part.entries.index(compaction) - 2 :][:2]
    assert first.id == fields["firstKeptEntryId"]
    assert decode_object(first.payload)["content"] == [{"type": "text", "text": "the task"}]
    # The summary is shown where it stands in the replacement.
    assert fields["baseCompactionId"] is None
    assert [(each["firstEntryId"], each["lastEntryId"]) for each in fields["ranges"]] == [(last.id, last.id)]
    rows[4]["payload"]["replacement_history"] = kept[::-1]
    part, _ = read(as_lines(rows))
    fields = decode_object(next(entry.payload for entry in part.entries if entry.kind == "compaction"))
    assert (fields["summary"], "ranges" in fields) == ("Summary: so far", False)
    part, _ = read(as_lines([META, said("user", "x"), {"type": "compacted", "payload": {"message": ""}}]))
    assert decode_object(part.entries[-1].payload)["summary"] == COMPACTED
    assert decode_object(part.entries[-1].payload)["firstKeptEntryId"] == ""


def test_tokens_counted_between_the_last_message_and_a_compaction_are_the_compactions() -> None:
    rows = [META, said("user", "go"), said("assistant", "done"), count(10), event(type="task_complete"), count(35)]
    rows.append({"timestamp": "x", "type": "compacted", "payload": {"message": "The summary."}})
    part, report = read(as_lines(rows))
    assert report.repaired == ()
    (compaction,) = [entry for entry in part.entries if entry.kind == "compaction"]
    assert decode_object(compaction.payload)["usage"]["totalTokens"] == compaction.usage.total_tokens == 25
    assert [(call.usage.total_tokens, call.purpose) for call in compaction.calls] == [(25, "compaction")]
    assert total(part).total_tokens == 35


def test_what_was_written_to_the_cache_is_no_part_of_the_input() -> None:
    counted = count(100, cached=60, output=7)
    counted["payload"]["info"]["total_token_usage"]["cache_write_input_tokens"] = 15
    part, _ = read(as_lines([META, said("user", "go"), said("assistant", "done"), counted]))
    used = total(part)
    assert (used.input, used.cache_read, used.cache_write, used.output, used.total_tokens) == (25, 60, 15, 7, 107)


def test_turns_that_were_rolled_back_are_another_branch() -> None:
    rows = [META]
    for turn in ("one", "two"):
        rows += [said("user", turn), event(type="user_message", message=turn), said("assistant", f"re {turn}")]
    rows += [event(type="thread_rolled_back", num_turns=1), said("user", "again")]
    part, _ = read(as_lines(rows))
    by_text = {str(decode_object(entry.payload).get("content")): entry for entry in part.entries}
    again = next(entry for text, entry in by_text.items() if "again" in text)
    answer = next(entry for text, entry in by_text.items() if "re one" in text)
    assert again.parent_id == answer.id
    assert part.leaves[-1] == again.id


@inputs(
    ("output", "content", "is_error"),
    [
        ("plain", [{"type": "text", "text": "plain"}], None),
        ({"content": "failed", "success": False}, [{"type": "text", "text": "failed"}], True),
        (
            [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
            [{"type": "image", "data": "AAAA", "mimeType": "image/png"}],
            None,
        ),
        ({"odd": 1}, [{"type": "json", "value": {"odd": 1}}], None),
        (None, [], None),
    ],
)
def test_outputs_have_many_shapes(output: Any, content: Any, is_error: bool | None) -> None:
    rows = [META, item(type="function_call_output", call_id="c", output=output)]
    (message,) = messages(read(as_lines(rows))[0])
    assert (message["content"], message.get("isError")) == (content, is_error)


@inputs(
    "context",
    [
        "<environment_context>\n  <cwd>/w/a b</cwd>\n  <shell>sh</shell>\n</environment_context>",
        "<environment_context>\nCurrent working directory: /w/a b\nShell: sh\n</environment_context>",
    ],
)
def test_rows_from_before_there_were_envelopes_are_read(context: str) -> None:
    rows = [
        {"id": "old", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": context}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "name": "shell", "arguments": "no json", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]},
    ]
    lines = as_lines(rows)
    assert looks_like_codex(b"".join(lines), "x.jsonl")
    part, report = read(lines)
    assert (part.session.id, part.session.cwd) == ("old", "/w/a b")
    assert [message["role"] for message in messages(part)] == ["user", "user", "assistant", "toolResult", "assistant"]
    assert messages(part)[2]["content"][0]["arguments"] == "no json"
    assert report.unknown_kinds == {"state": 1}


@inputs(
    ("source", "parent"),
    [
        ({"subagent": {"thread_spawn": {"parent_thread_id": "the parent", "depth": 1}}}, "the parent"),
        ({"subagent": {"thread_spawn": {"parent_thread_id": META["payload"]["id"]}}}, None),
        ({"subagent": {"thread_spawn": None}}, None),
        ({"subagent": "review"}, None),
        ("cli", None),
    ],
)
def test_the_thread_of_a_sub_agent_is_a_task_of_its_parent(source: Any, parent: str | None) -> None:
    meta = META | {"payload": META["payload"] | {"source": source}}
    part, _ = read(as_lines([meta, said("user", "go")]))
    assert part.parent == (None if parent is None else TaskOf(parent, META["payload"]["id"]))


def test_a_bare_header_is_recognized_by_the_item_behind_it() -> None:
    header = {"id": "4444", "timestamp": "2025-05-04T05:06:07.000Z"}
    item_row = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    assert looks_like_codex(b"\n".join(as_lines([header, item_row])), "x.jsonl")
    assert looks_like_codex(b"\n".join(as_lines([header, {"record_type": "state"}])), "x.jsonl")
    assert not looks_like_codex(b"\n".join(as_lines([header])), "x.jsonl")
    assert not looks_like_codex(b"\n".join(as_lines([header, {"id": "5555"}])), "x.jsonl")


def test_calls_without_results_are_held_back_at_the_end() -> None:
    rows = [META, said("user", "a"), item(type="function_call", name="x", arguments="{}", call_id="c")]
    part, report = read(as_lines(rows))
    assert len(part.entries) == 2
    assert (report.held_back, report.held_back_from) == (1, 3)
    part, report = read(as_lines(rows), take_all=True)
    assert (len(part.entries), report.held_back) == (3, 0)


def test_faults_are_named_by_line_and_never_fatal() -> None:
    rows = [
        META,
        b'{"type":"response_item","pay',
        b"[]\n",
        item(type="message", role="user", content=[7, None, {"type": "input_text"}, {"a": 1}]),
        item(type="message", role=["odd"], content=None),
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": -1}}}},
        {**said("user", "half \ud800"), "timestamp": "never"},
        item(type="message", role="nul\0", content="x"),
    ]
    part, report = read(as_lines(rows))
    assert [note.line for note in report.skipped] == [2, 3]
    assert [note.line for note in report.repaired] == [8]
    assert [entry.kind for entry in part.entries] == [
        "codex.session_meta", "message", "codex.response_item.message", "message", "unreadable_message",
    ]  # fmt: skip
    assert (report.surrogates_replaced, report.left_out) == (1, {"reports no tokens": 1})


def test_what_is_no_rollout_is_refused_and_not_recognized() -> None:
    for lines in ([], [b"\n"], [b"nothing\n"], [b'{"type":"other"}\n'], as_lines([said("user", "x")])):
        with pytest.raises(UnreadableFile, match="is not a Codex rollout"):
            read(lines)
    assert not looks_like_codex(b"".join(lines_of(CLAUDE))[:65536], "x.jsonl")


# Items of a Codex rollout are exported as Responses items: each whole, or left out with the reason.

Item = dict[str, Any]
NAMESPACE = {"type": "namespace", "name": "mcp__w", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
USER: Item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
ENCRYPTED = "gAAAAABpencrypted="
ITEMS: list[Item] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {**USER, "id": "msg_1"},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}],
    },
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://x.y/z.png"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": ENCRYPTED},
    {
        "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "**A**"}],
        "encrypted_content": "b",
    },
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**A**"}, {"type": "summary_text", "text": "**B**"}],
        "content": [{"type": "reasoning_text", "text": "raw"}],
        "encrypted_content": "c",
    },
    {
        "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}],
        "phase": "commentary", "end_turn": False,
    },
    {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}', "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    {"type": "function_call", "id": "fc_2", "namespace": "mcp__w", "name": "f", "arguments": "{}", "call_id": "c2"},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [
            {"type": "input_text", "text": "seen"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ],
    },
    {"type": "custom_tool_call", "status": "completed", "call_id": "c3", "name": "apply_patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "c3", "name": "apply_patch", "output": "Done!"},
    {
        "type": "local_shell_call", "call_id": "c4", "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": None},
    },
    {"type": "function_call_output", "call_id": "c4", "output": "a.txt"},
    {
        "type": "tool_search_call", "call_id": "c5", "status": "completed", "execution": "client",
        "arguments": {"query": "weather"},
    },
    {"type": "tool_search_output", "call_id": "c5", "status": "completed", "execution": "client", "tools": [NAMESPACE]},
    {"type": "tool_search_call", "id": "tsc_6", "execution": "server", "arguments": {"goal": "g"}},
    {"type": "tool_search_output", "id": "tso_6", "execution": "server", "tools": [NAMESPACE]},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "news"}},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA=="},
    {"type": "function_call", "name": "secret", "arguments": "{}", "call_id": "c7"},
    {
        "type": "function_call_output",
        "call_id": "c7",
        "output": [{"type": "encrypted_content", "encrypted_content": "d"}, {"type": "input_text", "text": "seen"}],
    },
    {
        "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}],
        "phase": "final_answer",
    },
]  # fmt: skip


def rollout(items: list[Item], provider: str = "openai") -> list[bytes]:
    """Return the lines of a rollout with these items."""
    meta = {"id": "s1", "cwd": "/w", "model_provider": provider}
    rows: list[Any] = [{"timestamp": "2026-06-05T04:58:20.653Z", "type": "session_meta", "payload": meta}]
    rows += [{"timestamp": "2026-06-05T04:58:21.000Z", "type": "response_item", "payload": item} for item in items]
    return as_lines(rows)


def parsed(lines: list[bytes]) -> SessionPart:
    """Return the session of a rollout."""
    reader = CodexReader("rollout.jsonl")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    (part,) = reader.finish(take_all=True)
    return replace(part, report=reader.report())


def exported(items: list[Item], provider: str = "openai") -> Exported:
    """Return the items that a rollout of items goes out as."""
    return export_openai_responses(items_of(parsed(rollout(items, provider))))


def test_every_item_goes_out_whole() -> None:
    out = exported(ITEMS)
    assert (out.value, out.notes) == (ITEMS, ())


@inputs("name", [CODEX_REAL, CODEX_MADE])
def test_the_items_of_the_real_rollouts_go_out_whole(name: str) -> None:
    lines = lines_of(name)
    rows = [json.loads(line) for line in lines if line.strip()]
    known = {"message", "reasoning", "function_call", "function_call_output"}
    items = [row["payload"] for row in rows if row["type"] == "response_item" and row["payload"]["type"] in known]
    out = export_openai_responses(items_of(parsed(lines)))
    assert (out.value, out.notes) == (items, ())


def test_a_search_for_tools_and_what_it_found_stay_together() -> None:
    session = parsed(rollout(ITEMS))
    said = context_of(session)
    (call,) = [part for message in said for part in message["content"] if part.get("id") == "c5"]
    assert (call["type"], call["name"], call["arguments"]) == ("toolCall", "tool_search", {"query": "weather"})
    (result,) = [message for message in said if message.get("toolCallId") == "c5"]
    assert (result["role"], result["toolName"], result["content"]) == ("toolResult", "tool_search", [NAMESPACE])
    chat = export_openai_chat(items_of(session))
    assert "a tool result whose call is not in the context" not in str(chat.notes)


def test_a_call_that_has_no_output_gets_one_of_the_kind_that_the_api_asks_for() -> None:
    calls = [item for item in ITEMS if item["type"] in ("custom_tool_call", "local_shell_call", "tool_search_call")][:3]
    value: Any = exported([USER, *calls]).value
    assert [(item["type"], item["call_id"]) for item in value[4:]] == [
        ("custom_tool_call_output", "c3"),
        ("function_call_output", "c4"),
        ("tool_search_output", "c5"),
    ]


def test_what_cannot_be_taken_back_is_told_with_the_reason() -> None:
    bare = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    out = exported([USER, bare, {"type": "function_call_output", "call_id": "nobody", "output": "x"}])
    assert out.value == [USER]
    assert [str(note) for note in out.notes] == [
        "left out: a tool result whose call is not in the context",
        "left out: reasoning without its encrypted content, without which OpenAI does not take it back",
    ]
    out = exported([USER, *ITEMS[4:6], ITEMS[20]], "azure")
    assert [str(note) for note in out.notes] == [
        "left out: reasoning that OpenAI did not sign (2 times)",
        "left out: an item 'web_search_call' of a provider other than OpenAI",
    ]
    out = exported([USER, ITEMS[8], {"type": "mcp_tool_call_output", "call_id": "c1", "output": {"odd": [1]}}])
    assert out.value == [USER, ITEMS[8], {"type": "function_call_output", "call_id": "c1", "output": '{"odd":[1]}'}]
    assert [str(note) for note in out.notes] == [
        "an item 'mcp_tool_call_output', which the API is not sent, goes out as the output of a function",
        "an output that is neither text nor parts goes out as its JSON text",
    ]


def test_what_the_provider_kept_of_the_conversation_before_a_compaction_goes_out() -> None:
    kept = {"type": "compaction", "encrypted_content": "e"}
    row = {"timestamp": "2026-06-05T04:58:22.000Z", "type": "compacted", "payload": {"message": ""}}
    row["payload"]["replacement_history"] = [USER, kept]  # type: ignore[index]
    session = parsed([*rollout([USER, ITEMS[-1]]), *as_lines([row])])
    assert session.entries[-1].kind == COMPACTION
    value: Any = export_openai_responses(items_of(session)).value
    assert value[1:] == [USER, kept]
    assert "a part 'compaction' of an answer" not in str(export_anthropic(items_of(session)).value)


def test_calls_and_reasoning_that_pi_had_with_openai_go_out_under_the_ids_that_openai_gave() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    answer = {
        "role": "assistant",
        "api": "openai-codex-responses",
        "provider": "openai-codex",
        "content": [
            {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(reasoning)},
            {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {}},
        ],
    }
    result = {"role": "toolResult", "toolCallId": "call_1|fc_1", "content": [{"type": "text", "text": "x"}]}
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z"}
    rows = [
        HEADER,
        {**row, "id": "a", "parentId": None, "message": {**answer, "timestamp": 1}},
        {**row, "id": "b", "parentId": "a", "message": {**result, "timestamp": 2}},
    ]
    out = export_openai_responses(items_of(parse_pi(as_lines(rows))))
    assert out.value == [
        reasoning,
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    ]
    assert out.notes == ()


def test_fields_of_a_strangers_message_say_nothing_of_its_item() -> None:
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z", "id": "a", "parentId": None}
    message = {
        "role": "user",
        "content": "hi",
        "item": {"type": "reasoning", "role": "x", "content": 1},
        "timestamp": 1,
    }
    out = export_openai_responses(items_of(parse_pi(as_lines([HEADER, {**row, "message": message}]))))
    assert out.value == [{"type": "message", "role": "user", "content": "hi"}]
