"""A conversation and a guard send what their settings leave of the context; the session keeps all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import flue_py
from flue_py import InvalidArgument, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import CompactionGuard
from flue_py.core.json import JsonObject
from flue_py.core.model import ModelReply

SETTINGS: dict[str, Any] = {"agents": {"Reviewer": {"window": {"text_only": True}}}, "window": {"max_tail_messages": 2}}
CALL: JsonObject = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}
SAID: list[JsonObject] = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
    {"role": "toolResult", "toolCallId": "c1", "content": "TIMEOUT"},
    {"role": "assistant", "content": "It hangs."},
]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with flue_py.open(":memory:", prices=False) as store:
        yield store
        assert (await store.verify()).problems == []


@pytest.fixture
async def session(store: Store) -> Session:
    session = await store.create_session()
    await session.append_messages(SAID)
    return session


class Asked:
    """A model that notes what it was sent."""

    def __init__(self) -> None:
        self.context: list[JsonObject] = []

    async def __call__(self, context: list[JsonObject]) -> list[JsonObject]:
        self.context = context
        return [{"role": "assistant", "content": "Yes."}]

    @property
    def said(self) -> list[str]:
        texts = [message["content"] for message in self.context]
        return [text if isinstance(text, str) else str(text[0]["text"]) for text in texts]  # type: ignore[index, call-overload]


async def test_a_conversation_sends_what_its_settings_leave(store: Store, session: Session) -> None:
    asked = Asked()
    await Conversation(store, session, context=SETTINGS, agent="reviewer").take_turn("Sure?", asked)
    assert asked.said == ["Why?", "I look.", "It hangs.", "Sure?"]
    await Conversation(store, session, context=SETTINGS).take_turn("Really?", asked)
    assert asked.said == ["Yes.", "Really?"]
    await Conversation(store, session).take_turn("And?", asked)
    assert len(asked.context) == len(SAID) + 5
    assert len(await session.build_context()) == len(SAID) + 6


async def test_a_guard_sends_each_agent_what_its_settings_leave(store: Store, session: Session) -> None:
    asked = Asked()
    guard = CompactionGuard(store, session, mode="window", context=SETTINGS)
    await guard.call(asked)
    assert asked.said == ["It hangs."]
    await guard.call(asked, agent="Reviewer")
    assert asked.said == ["Why?", "I look.", "It hangs."]


async def test_wrong_settings_are_refused_at_the_start(store: Store, session: Session) -> None:
    wrong: dict[str, object] = {"window": {"max_turn_age": -1}}
    with pytest.raises(InvalidArgument, match=r"window\.max_turn_age"):
        Conversation(store, session, context=wrong)
    with pytest.raises(InvalidArgument, match=r"window\.max_turn_age"):
        CompactionGuard(store, session, mode="window", context=wrong)


def test_the_blocking_twins_take_them_too() -> None:
    with flue_py.sync.open(":memory:", prices=False) as store:
        session = store.create_session()
        session.append_messages(SAID)
        sent: list[list[JsonObject]] = []

        def model(context: list[JsonObject]) -> list[JsonObject]:
            sent.append(context)
            return [{"role": "assistant", "content": "Yes."}]

        flue_py.sync.Conversation(store, session, context=SETTINGS, agent="Reviewer").take_turn("Sure?", model)
        flue_py.sync.CompactionGuard(store, session, mode="window", context=SETTINGS).call(model)
        assert [len(each) for each in sent] == [4, 2]


SPEC: dict[str, Any] = {"agents": {"Reviewer": {"spec": {"sources": ["tickets"]}}}}


async def test_a_guard_asks_sources_once_in_a_turn_of_an_agent(store: Store, session: Session) -> None:
    asked, count = Asked(), iter(range(9))
    guard = CompactionGuard(
        store, session, mode="window", context=SPEC, sources={"tickets": lambda asked: f"number {next(count)}"}
    )
    await session.append_message({"role": "user", "content": "Sure?"})
    await guard.call(asked, agent="Reviewer")
    first = asked.context
    assert "number 0" in asked.said[1]
    call = {**CALL, "id": "c2"}
    await session.append_message({"role": "assistant", "agent": "Reviewer", "content": [call]})
    await session.append_message({"role": "toolResult", "toolCallId": "c2", "content": "ok"})
    await guard.call(asked, agent="Reviewer")
    assert (asked.context[: len(first)], len(asked.context)) == (first, len(first) + 2)
    await session.append_message({"role": "assistant", "agent": "Reviewer", "content": "Yes."})
    await session.append_message({"role": "user", "content": "Really?"})
    await guard.call(asked, agent="Reviewer")
    assert "number 1" in asked.said[1]


async def test_a_conversation_asks_the_sources_of_its_agent(store: Store, session: Session) -> None:
    asked = Asked()
    own = {"tickets": lambda asked: "open"}
    await Conversation(store, session, context=SPEC, sources=own, agent="Reviewer").take_turn("Sure?", asked)
    assert "## tickets\nopen" in asked.said[1]
    with pytest.raises(InvalidArgument, match="is not a function"):
        Conversation(store, session, context=SPEC, sources={"tickets": "open"})  # type: ignore[dict-item]


def reasoned(signature: str) -> JsonObject:
    part: JsonObject = {"type": "thinking", "thinking": "hm", "thinkingSignature": signature}
    return {"role": "assistant", "provider": "anthropic", "content": [part, {"type": "text", "text": "Yes."}]}


def signatures(context: list[JsonObject]) -> list[str]:
    parts = [part for message in context if isinstance(message["content"], list) for part in message["content"]]
    return [str(part["thinkingSignature"]) for part in parts if isinstance(part, dict) and part["type"] == "thinking"]


@pytest.mark.parametrize("settings", [None, {}])
async def test_a_conversation_sends_reasoning_as_long_as_what_is_before_it_stays(
    store: Store, session: Session, settings: dict[str, Any] | None
) -> None:
    talk = Conversation(store, session, context=settings)
    sent: list[list[str]] = []

    async def model(context: list[JsonObject]) -> list[JsonObject]:
        sent.append(signatures(context))
        number = len(sent)
        result: JsonObject = {"role": "toolResult", "toolCallId": f"d{number}", "content": "done"}
        call: JsonObject = {"type": "toolCall", "id": f"d{number}", "name": "read", "arguments": {}}
        first = reasoned(f"a{number}")
        return [{**first, "content": [*first["content"], call]}, result, reasoned(f"b{number}")]  # type: ignore[misc]

    await talk.take_turn("One?", model)
    await talk.take_turn("Two?", model)
    assert sent == [[], ["a1", "b1"]]
    await session.marks.exclude((await session.get_active_path())[-2].id, why="a secret")
    await talk.take_turn("Three?", model)
    assert sent[2] == ["a1", "b1", "a2"]
    kept = (await session.get_active_path())[1].id
    await session.append_compaction("Said.", first_kept_entry_id=kept, tokens_before=9)
    await talk.take_turn("Four?", model)
    await talk.take_turn("Five?", model)
    assert sent[3:] == [[], ["a4", "b4"]]


async def test_an_answer_that_a_guard_asked_for_says_what_it_was_produced_under(store: Store, session: Session) -> None:
    asked: list[list[str]] = []

    async def ask(context: list[JsonObject]) -> ModelReply:
        asked.append(signatures(context))
        return ModelReply((reasoned(f"s{len(asked)}"),))

    async def turn(guard: CompactionGuard) -> None:
        await session.append_message({"role": "user", "content": "More?"})
        await session.append_messages((await guard.call(ask)).messages)

    guard = CompactionGuard(store, session, mode="lossless", window=100_000, system="Be brief.", tools=())
    await turn(guard)
    await turn(guard)
    await turn(CompactionGuard(store, session, mode="lossless", window=100_000, system="Be long.", tools=()))
    assert asked == [[], ["s1"], []]


async def test_a_guard_decides_by_what_its_settings_leave(store: Store) -> None:
    session = await store.create_session()
    for number in range(4):
        call = {**CALL, "id": f"c{number}"}
        await session.append_message({"role": "user", "content": "Look again."})
        await session.append_message({"role": "assistant", "content": [call]})
        text = f"line {number} " * 4_000
        await session.append_message({"role": "toolResult", "toolCallId": call["id"], "content": text})
        await session.append_message({"role": "assistant", "content": "Nothing."})
    bare = CompactionGuard(store, session, mode="window", window=32_000)
    clears = {"microcompact": {"keep": 1, "tools": ["read"]}, "epoch_tokens": 0}
    guard = CompactionGuard(store, session, mode="window", window=32_000, context=clears)
    assert (await bare.should_compact(), await guard.should_compact()) == (True, False)
    only = {"agents": {"Coder": clears}}
    guard = CompactionGuard(store, session, mode="window", window=32_000, context=only)
    assert (await guard.should_compact("Reviewer"), await guard.should_compact("Coder")) == (True, False)
    reported = {"input": 31_000, "output": 10, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 31_010}
    await session.append_message({"role": "assistant", "content": "Well.", "usage": reported})
    guard = CompactionGuard(store, session, mode="window", window=32_000, context=clears)
    assert await guard.should_compact(), "a report is of what was sent"


async def test_a_guard_compacts_what_its_own_limits_say_is_too_large(store: Store) -> None:
    session = await store.create_session()
    for _ in range(10):
        await session.append_messages([{"role": role, "content": "w" * 4_000} for role in ("user", "assistant")])
    sent: list[int] = []

    async def ask(context: list[JsonObject]) -> str:
        sent.append(len(context))
        return "Yes."

    guard = CompactionGuard(store, session, mode="intent", context={"fitting": {"max_context_tokens": 9_000}})
    assert await guard.call(ask) == "Yes."
    assert await session.compactions.latest() is not None
    assert sent == [4]
