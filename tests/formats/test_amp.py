"""Threads of Amp, made by hand from published readers: ccusage, agentsview and clast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flue_py
from flue_py.formats.amp import parse_amp
from flue_py.formats.kit import SessionPart
from tests.formats.transcripts import all_seen
from tests.formats.trees import context_of, shown

AT = "2026-01-19T11:42:10.652Z"
USAGE = {
    "model": "claude-haiku-4-5", "inputTokens": 10, "outputTokens": 178, "cacheCreationInputTokens": 986,
    "cacheReadInputTokens": 11372, "totalInputTokens": 12368, "credits": 1.5, "timestamp": AT,
}  # fmt: skip
USED = [
    {"type": "tool_use", "complete": True, "id": f"TU-{number}", "name": "Bash", "input": {"cmd": "ls"}}
    for number in (1, 2)
]
RESULTS = [
    {"type": "tool_result", "toolUseID": "TU-1", "run": {"status": "done", "result": {"output": "a\n", "exitCode": 0}}},
    {"type": "tool_result", "toolUseID": "TU-2", "run": {"status": "error", "error": {"message": "no"}}},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "messageId": 0, "content": [{"type": "text", "text": "List"}], "meta": {"sentAt": 1768822900000}},
    {"role": "assistant", "messageId": 1, "content": [{"type": "text", "text": "Yes."}, *USED], "usage": USAGE},
    {"role": "user", "messageId": 2, "content": RESULTS},
    {"role": "assistant", "messageId": 3, "content": [{"type": "text", "text": "One file."}], "usage": USAGE},
]
NAMED = {"id": "e1", "timestamp": AT, "model": "m", "tokens": {"input": 10, "output": 178}, "toMessageId": 1}
TITLE = {"id": "e2", "timestamp": AT, "model": "small", "tokens": {"input": 7, "output": 3}, "operationType": "title"}


def thread(messages: list[Any] = MESSAGES, **fields: Any) -> bytes:
    trees = {"initial": {"trees": [{"displayName": "demo", "uri": "file:///w/my%20demo"}]}}
    head = {"v": 195, "id": "T-1", "created": 1768822800000, "title": "Listing"}
    return json.dumps({**head, "messages": messages, "env": trees, **fields}).encode()


def parsed(*args: Any, **fields: Any) -> SessionPart:
    (session,) = parse_amp(thread(*args, **fields), "T-1.json")
    return session


def test_a_thread_has_its_messages_results_title_folder_and_time() -> None:
    session = parsed()
    assert [message["role"] for message in context_of(session)] == [
        "user", "assistant", "toolResult", "toolResult", "assistant",
    ]  # fmt: skip
    first, second = context_of(session)[2:4]
    assert (json.loads(first["content"]), first["toolName"]) == ({"output": "a\n", "exitCode": 0}, "Bash")
    assert (second["content"], second["isError"]) == ("no", True)
    new = session.session
    assert (new.id, new.auto_title, new.cwd, new.created_us) == ("T-1", "Listing", "/w/my demo", 1768822800000000)
    assert session.report.repaired == ()


async def test_each_call_is_paid_once_also_those_that_only_the_ledger_has(tmp_path: Path) -> None:
    file = tmp_path / "T-1.json"
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as whole:
        for length in range(1, 5):
            ledger = {"events": [NAMED, TITLE][: 1 + (length > 2)]}
            file.write_bytes(thread(MESSAGES[:length], usageLedger=ledger))
            await flue_py.import_file(store, file)
        await flue_py.import_file(whole, file)
        usage = (await store.usage()).total
        assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (27, 22744, 1972, 359)
        assert (await whole.usage()).total == usage
        assert (await store.verify()).problems == []


async def test_a_thread_that_grows_leads_to_the_same_session_and_waits_for_results(tmp_path: Path) -> None:
    file, waiting = tmp_path / "T-1.json", [RESULTS[0], {**RESULTS[1], "run": {"status": "in-progress"}}]
    bare = [{key: value for key, value in message.items() if key != "usage"} for message in MESSAGES]
    states = [bare[:1], bare[:2], [*MESSAGES[:2], {**MESSAGES[2], "content": waiting}], MESSAGES[:3]]
    states += [[*MESSAGES[:3], {**MESSAGES[3], "state": {"type": "streaming"}, "content": []}], MESSAGES]
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as whole:
        for messages in states:
            file.write_bytes(thread(messages))
            await flue_py.import_file(store, file)
        await flue_py.import_file(whole, file)
        assert await all_seen(store) == await all_seen(whole)


def test_a_summary_begins_the_context_anew_and_unknown_things_are_kept() -> None:
    info = {"role": "info", "messageId": 9, "content": [{"type": "summary", "summary": "Listed."}]}
    notice = {"role": "notice", "content": "x"}
    hidden = {"role": "user", "content": [{"type": "text", "text": "On", "hidden": True}]}
    session = parsed([*MESSAGES, notice, info, hidden])
    assert shown(session) == [("user", "[Context Summary]\n\nListed."), ("user", "On")]
    assert session.report.unknown_kinds == {"notice": 1}
    assert json.loads(session.entries[-1].extra or "")["blocks"] == [{"hidden": True}]


def test_tokens_told_as_written_to_the_cache_are_input_for_models_that_do_not_bill_that() -> None:
    session = parsed([{"role": "assistant", "content": [], "usage": {**USAGE, "model": "gpt-5"}}])
    assert session.entries[0].usage[:4] == (996, 178, 11372, 0)
