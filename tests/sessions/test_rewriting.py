"""Steps that wait for an epoch rewrite where that pays by the prices of the model, or the cache has nothing left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flue_py
from flue_py import InvalidArgument, Store
from flue_py.context import ContextRequest, context_settings
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, LeafChoice

SETTINGS: dict[str, Any] = {"microcompact": {"keep": 1, "tools": ["read"]}, "epoch_tokens": 2_000}
CLAUDE: JsonObject = {"provider": "anthropic", "model": "claude-sonnet-4-5"}


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[Store]:
    async with flue_py.open(":memory:", clock=clock) as store:
        yield store
        assert (await store.verify()).problems == []


def reads(count: int, words: int, by: JsonObject) -> Iterator[JsonObject]:
    for number in range(count):
        call: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {}}
        yield {"role": "assistant", "content": [call], **by}
        yield {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "word " * words}


async def asked(session: flue_py.Session, within: int | None, leaf: LeafChoice = STORED) -> ContextRequest:
    given = SETTINGS if within is None else {**SETTINGS, "rewriting": {"pays_within_turns": within}}
    return await session.request("anthropic", settings=given, leaf=leaf)


async def test_rewriting_waits_until_it_pays(store: Store) -> None:
    session = await store.create_session()
    await session.append_message({"role": "user", "content": "Go. " + "word " * 1_500})
    await session.append_messages([*reads(2, 100, CLAUDE)])
    # All of this would be read anew, for a result that is cleared before it.
    for number in range(4):
        await session.append_message({"role": "user", "content": f"Question {number}. " + "word " * 1_500})
        await session.append_message({"role": "assistant", "content": "Yes.", **CLAUDE})
    await session.append_message({"role": "user", "content": "And now?"})
    always, soon, late = [(await asked(session, within)).report for within in (None, 1, 1_000)]
    assert always.tokens_freed == late.tokens_freed > 0
    assert soon.tokens_freed == 0
    assert soon.epoch_end != late.epoch_end


async def test_where_the_price_is_not_known_it_does_not_have_to_pay(store: Store) -> None:
    session = await store.create_session()
    await session.append_message({"role": "user", "content": "Go."})
    await session.append_messages([*reads(8, 1_500, {"provider": "mine", "model": "unheard-of-1"})])
    assert (await asked(session, 1)).report.epoch_end == (await asked(session, None)).report.epoch_end is not None


async def test_a_cold_cache_begins_an_epoch_and_later_requests_find_the_same(store: Store, clock: Clock) -> None:
    session = await store.create_session()
    await session.append_message({"role": "user", "content": "Go."})
    await session.append_messages([*reads(3, 300, CLAUDE)])
    assert (await asked(session, 1)).report.tokens_freed == 0
    clock.now += timedelta(minutes=6)
    cold = (await session.append_message({"role": "user", "content": "Go on."})).entry_id
    first = await asked(session, 1)
    assert first.report.epoch_end == cold
    assert first.report.tokens_freed > 0
    await session.append_message({"role": "assistant", "content": "Done.", **CLAUDE})
    await session.append_message({"role": "user", "content": "And now?"})
    again = await asked(session, 1)
    assert again.report.epoch_end == cold
    assert again.break_since(first) is None
    assert (await asked(session, None)).report.tokens_freed == 0


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"^rewriting\.pays_within_turns: "):
        context_settings({"rewriting": {"pays_within_turns": 0}})
