"""What a session sends to a provider: taken by it, with each repair named, and the same bytes every time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import flue_py
from flue_py import EntryNotFound, InvalidArgument, Session
from flue_py.core.jsontext import JsonObject
from flue_py.wire import LIMITS

pytestmark = pytest.mark.anyio
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


@pytest.mark.parametrize("target", LIMITS)
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


async def test_wrong_arguments_are_refused(session: Session) -> None:
    with pytest.raises(InvalidArgument, match="target: should be one of"):
        await session.request("claude")
    with pytest.raises(InvalidArgument, match="model"):
        await session.request("anthropic", model=5)  # type: ignore[arg-type]
    with pytest.raises(EntryNotFound):
        await session.request("anthropic", leaf="nowhere")


async def test_a_session_without_messages_says_so(session: Session) -> None:
    (broken,) = (await session.request("gemini")).broken
    assert str(broken) == "contents: there is no content (turns)"
