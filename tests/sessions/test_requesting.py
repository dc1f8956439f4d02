"""What a session sends to a provider: taken by it, with each repair named, and the same bytes every time."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

import flue_py
from flue_py import ArtifactNotFound, EntryNotFound, InvalidArgument, Session
from flue_py.context import ContextSettings
from flue_py.core.json import JsonObject, JsonValue
from flue_py.providers import LIMITS
from tests.checks import raises
from tests.tables import inputs

USER: JsonObject = {"role": "user", "content": "Why is the build red?"}


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with flue_py.open(":memory:", prices=False) as store:
        yield await store.create_session()
        assert (await store.verify()).problems == []


def call(call_id: str) -> JsonObject:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": "mcp.read", "arguments": {"path": "build.log"}}
    thought: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
    return {"role": "assistant", "provider": "anthropic", "model": "claude-opus-4-5", "content": [thought, part]}


@inputs("target", LIMITS)
async def test_an_interrupted_session_is_taken_and_the_repairs_name_its_entries(session: Session, target: str) -> None:
    await session.append_message(USER)
    called = (await session.append_message(call("t1"))).entry_id
    await session.append_message({"role": "user", "content": "Never mind."})
    before = await session.build_context()
    found = await session.request(target, model="claude-sonnet-4-5")
    assert found.broken == ()
    assert (called, "left out: reasoning of another model") in [(each.entry_id, each.what) for each in found.repairs]
    assert (called, "a tool call without a result got an error as its result") in [
        (each.entry_id, each.what) for each in found.repairs
    ]
    assert await session.build_context() == before
    assert await session.request(target, model="claude-sonnet-4-5") == found


async def test_a_request_at_another_leaf_is_that_of_its_time(session: Session) -> None:
    first = (await session.append_message(USER)).entry_id
    await session.append_message({"role": "assistant", "content": "A test times out."})
    earlier = await session.request("anthropic", leaf=first)
    assert earlier.messages == [USER]
    later = await session.request("anthropic")
    assert later.messages[:1] == earlier.messages
    assert session.leaf_id != first


@inputs("target", LIMITS)
async def test_what_a_program_changes_in_a_request_is_in_no_later_one(session: Session, target: str) -> None:
    await session.append_messages([USER, {**USER, "content": [{"type": "text", "text": "Well?"}]}, call("t1")])
    await session.append_messages([{"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": "red"}])
    await session.append_message({"role": "assistant", "content": [{"type": "text", "text": "A test times out."}]})
    first = await session.request(target)
    kept = copy.deepcopy(first.messages)
    _spoil(first.messages)
    assert (await session.request(target)).messages == kept


def _spoil(value: JsonValue) -> None:
    """Add something to each list and object in a value."""
    for each in [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, list) else ():
        _spoil(each)
    if isinstance(value, dict):
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")


async def test_tokens_are_those_of_the_model_that_another_handle_has_brought_onto_the_path() -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        own = await store.create_session(key="own")
        first = (await own.append_message(USER)).entry_id
        assert (await own.request()).report.counter == (await own.context.measure()).counter == "bytes/3"
        other = await store.open_session("own")
        await other.append_message({"role": "assistant", "model": "gpt-5", "content": "A test times out."})
        assert (await own.request()).report.counter == (await own.context.measure()).counter == "tiktoken:o200k_base"
        assert (await own.request(leaf=first)).report.counter == "bytes/3"


async def test_wrong_arguments_are_refused(session: Session) -> None:
    await raises(InvalidArgument, session.request("claude"), match="target: should be one of")
    await raises(InvalidArgument, session.request("anthropic", model=5), match="model")  # type: ignore[arg-type]
    await raises(EntryNotFound, session.request("anthropic", leaf="nowhere"))


async def test_a_session_without_messages_says_so(session: Session) -> None:
    (broken,) = (await session.request("gemini")).broken
    assert str(broken) == "contents: there is no content (turns)"


def read(call_id: str, size: int) -> list[JsonObject]:
    part: JsonObject = {"type": "toolCall", "id": call_id, "name": "read_file", "arguments": {"path": "a"}}
    return [
        {"role": "assistant", "agent": "Coder", "content": [{"type": "text", "text": "I read."}, part]},
        {"role": "toolResult", "toolCallId": call_id, "toolName": "read_file", "content": "word " * size},
    ]


async def test_an_agent_is_sent_what_its_settings_leave_and_the_report_has_the_rest(session: Session) -> None:
    appended = await session.append_messages([USER, *read("t1", 900), *read("t2", 900), USER])
    before = await session.build_context()
    given = {"epoch_tokens": 0, "microcompact": {"keep": 1}, "agents": {"Reviewer": {"window": {"text_only": True}}}}
    coder = await session.request("anthropic", agent="Coder", settings=given)
    cleared = [(change.step, change.entry_id, change.how) for change in coder.report.changes]
    assert cleared == [("microcompact", appended.entry_ids[2], "replaced")]
    assert "[tool result cleared to save context]" in str(coder.messages)
    assert coder.tokens == coder.report.tokens_before - coder.report.tokens_freed
    reviewer = await session.request("openai-chat", agent="reviewer", settings=ContextSettings(**given))
    assert [message["role"] for message in reviewer.messages] == ["user", "assistant", "assistant", "user"]
    assert reviewer.report.agent == "reviewer"
    assert (coder.broken, reviewer.broken) == ((), ())
    assert await session.build_context() == before


async def test_without_a_target_the_messages_are_ours_and_the_callers_to_change(session: Session) -> None:
    await session.append_messages([USER, *read("t1", 3)])
    sent = await session.request()
    assert (sent.target, sent.system, sent.repairs) == (None, None, ())
    assert sent.messages == await session.build_context()
    sent.messages[0]["content"] = "changed"
    assert (await session.build_context())[0] == USER


async def test_tokens_are_counted_for_the_model_that_is_asked_or_that_of_the_path(session: Session) -> None:
    await session.append_messages(
        [USER, {"role": "assistant", "model": "gpt-5", "provider": "openai", "content": "ok"}]
    )
    assert (await session.request()).report.counter == "tiktoken:o200k_base"
    assert (await session.request(model="claude-sonnet-4-5")).report.counter == "bytes/3"
    measured = await session.context.measure("gpt-5", use_reported=False)
    assert (await session.request()).tokens == measured.messages


@inputs("settings", [5, [], {"window": {"max_turn_age": -1}}, {"unknown": 1}])
async def test_wrong_settings_are_refused_before_anything_is_read(session: Session, settings: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"settings|window\.max_turn_age|unknown"):
        await session.request("gemini", settings=settings, leaf="nowhere")
    await raises(InvalidArgument, session.request("gemini", steps="none"), match="steps")  # type: ignore[arg-type]
    await raises(InvalidArgument, session.request("gemini", agent=5), match="agent")  # type: ignore[arg-type]


async def test_an_agent_reads_what_a_note_stands_for_by_the_entry_that_it_names(session: Session) -> None:
    appended = await session.append_messages([USER, *read("t1", 300), *read("t2", 3)])
    sent = await session.request(settings={"epoch_tokens": 0, "microcompact": {"keep": 1}})
    note = str(sent.messages[2]["content"])
    assert note.endswith(f"[whole content: entry {appended.entry_ids[2]}]")
    found = await session.artifacts.read(appended.entry_ids[2])
    assert (found.text, found.artifact.tool, found.artifact.characters) == ("word " * 300, "read_file", 1_500)
    answered = await session.artifacts.answer_read(
        {"id": "c9", "name": "read_artifact", "arguments": {"id": appended.entry_ids[1], "grep": "toolCall"}}
    )
    assert answered["isError"] is False
    assert '"path":"a"' in str(answered["content"])
    await raises(ArtifactNotFound, session.artifacts.read("0" * 16))
