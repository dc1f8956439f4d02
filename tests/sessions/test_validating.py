"""What a provider would refuse of a context as it is, with the entries, and what a request changes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given

import flue_py
from flue_py import InvalidArgument, JsonObject, JsonValue, Store
from flue_py.providers import LIMITS, broken_as_it_is, wire_request
from flue_py.providers.lists import Said
from tests.checks import raises
from tests.effort import examples
from tests.tables import inputs
from tests.wire.hostile import histories

targets = inputs("target", LIMITS)
CLAUDE: JsonObject = {"provider": "anthropic", "model": "claude-sonnet-4-5", "stopReason": "stop"}


def call(call_id: str, name: str = "read") -> JsonObject:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": {}}


def answer(*parts: Any) -> JsonObject:
    said: list[JsonValue] = [{"type": "text", "text": each} if isinstance(each, str) else each for each in parts]
    return {"role": "assistant", "content": said, **CLAUDE}


def result(call_id: str, **more: Any) -> JsonObject:
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": "done", **more}


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


WHOLE: list[JsonObject] = [
    {"role": "system", "content": "Be brief."}, user("Go."), answer("I look.", call("c1"), call("c2")), result("c1"),
    result("c2"), answer("Done."), user("Thanks."),
]  # fmt: skip


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with flue_py.open(":memory:") as store:
        yield store
        assert (await store.verify()).problems == []


@targets
async def test_a_whole_context_breaks_no_rule_as_it_is(store: Store, target: str) -> None:
    session = await store.create_session()
    await session.append_messages(WHOLE)
    found = await session.context.validate(target)
    assert found.target == target
    assert [each for each in found.broken if each.rule != "signatures"] == []
    assert found.left == ()
    assert target == "gemini" or (found.is_valid and found.repairs == ())


@targets
async def test_what_would_be_refused_is_named_by_entry_and_nothing_is_written(store: Store, target: str) -> None:
    session = await store.create_session()
    await session.append_messages([user("Go."), answer("I look.", call("c1", "mcp.read"))])
    called = session.leaf_id
    before = (await session.refresh()).revision
    found = await session.context.validate(target)
    assert not found.is_valid
    assert "exchanges" in [each.rule for each in found.broken]
    if target == "anthropic":
        assert (called, "calls") in [(each.entry_id, each.rule) for each in found.broken]
    request = await session.request(target)
    assert found.repairs == request.repairs != ()
    assert (found.left, request.broken) == ((), ())
    assert called in [each.entry_id for each in found.repairs]
    assert (await session.refresh()).revision == before


async def test_it_is_about_the_leaf_and_about_the_model_that_is_named(store: Store) -> None:
    session = await store.create_session()
    first = await session.append_message(user("Go."))
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
    await session.append_message(answer(thought, "Yes."))
    await session.append_message(user("And?"))
    assert (await session.context.validate("anthropic", leaf=first.entry_id)).repairs == ()
    assert (await session.context.validate("anthropic", model="claude-sonnet-4-5")).repairs == ()
    other = await session.context.validate("anthropic", model="claude-opus-4-5")
    assert [each.what for each in other.repairs] == ["left out: reasoning of another model"]
    assert other.is_valid


async def test_an_empty_context_has_no_message(store: Store) -> None:
    session = await store.create_session()
    found = await session.context.validate("openai-chat")
    assert found.broken == found.left != ()
    await raises(InvalidArgument, session.context.validate("openai"), match=r"^target: ")


@examples(40)
@given(histories)
def test_of_any_history_it_says_what_is_refused(messages: list[JsonObject]) -> None:
    said = [Said(each, entry_id=f"e{number}") for number, each in enumerate(messages)]
    for target in LIMITS:
        broken = broken_as_it_is(target, said)
        assert all(each.entry_id is None or int(each.entry_id[1:]) < len(messages) for each in broken)
        sent = wire_request(target, said)
        # What is not repaired was not refused, but for a request without any message.
        assert sent.repairs or [each.rule for each in broken] == [each.rule for each in sent.broken]


async def test_a_context_as_it_is_is_held_against_what_its_model_takes(session: flue_py.Session) -> None:
    for model, of in (("mistral-large-latest", "openai-chat"), ("claude-opus-4-8", "anthropic")):
        await session.append_message({"role": "user", "content": "q"})
        await session.append_message({**answer(call("call_1")), "model": model})
        await session.append_message({"role": "toolResult", "toolCallId": "call_1", "content": "a"})
        await session.append_message({**answer("done"), "model": model})
        rules = {each.rule for each in (await session.context.validate(of)).broken}
        assert rules == ({"calls"} if of == "openai-chat" else {"calls", "end"}), (of, rules)
    assert (await session.context.validate("openai-chat", model="gpt-5")).broken == ()
