"""A session is compacted by a model of a provider: what is asked, what is in the ledger, what a failure leaves."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.adapters.needed import needs

needs("models", "pydantic_ai", "openai", "anthropic")

import flue_py
from flue_py.compaction import CompactionSettings
from flue_py.compaction.modes import LEAST_CACHED
from flue_py.core.model import ModelRequest
from flue_py.errors import RateLimited, SummaryFailed
from flue_py.models import open_model
from tests.checks import raises
from tests.models import servers
from tests.models.servers import KEY, Answer, Provider

KEEP_LITTLE = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=150)
"""The last turn, whole: what leaves is summarized by one call."""
NAMES = ("openai:gpt-5", "anthropic:claude-sonnet-5")


def opened(name: str, provider: Provider) -> Any:
    return open_model(name, api_key=KEY, base_url=f"{provider.url}/v1" if name == NAMES[0] else provider.url)


async def filled(store: flue_py.Store) -> flue_py.Session:
    session = await store.create_session()
    for number in range(6):
        await session.append_message({"role": "user", "content": f"Question {number}: " + "why? " * 50})
        await session.append_message({"role": "assistant", "content": f"Answer {number}: " + "thus. " * 50})
    return session


@pytest.mark.parametrize("name", NAMES)
def test_a_compaction_is_one_call_of_the_provider_and_one_of_the_ledger(name: str) -> None:
    text = "## Goal\nA green build."
    answer = servers.response(text) if name == NAMES[0] else servers.message_events(text)

    async def run(provider: Provider) -> None:
        provider.answers = [Answer(answer)]
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            done = await session.compact(opened(name, provider), mode="llm", settings=KEEP_LITTLE)

            assert done.appended is not None
            assert done.summary is not None
            assert done.summary.startswith(text)
            [row] = (await store.usage(session, group_by=["provider", "purpose"])).rows
            assert row.group == {"provider": name.partition(":")[0], "purpose": "compaction"}
            assert row.calls == 1
            [message, *_] = await session.build_context()
            assert "A green build." in str(message)
            assert (await store.verify()).problems == []
        assert len(provider.asked) == 1
        assert "Question 0" in str(provider.request)

    with servers.provider() as provider:
        anyio.run(run, provider)


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_call_changes_nothing_and_says_what_to_do(name: str) -> None:
    error = ("slow down", "rate_limit_error") if name == NAMES[0] else ("rate_limit_error", "slow down")
    made = servers.openai_error if name == NAMES[0] else servers.anthropic_error

    async def run(provider: Provider) -> None:
        provider.answers = [made(429, *error, retry_after="7")]
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            before = await session.build_context()
            settings = replace(KEEP_LITTLE, rate_limit_wait=0)
            caught = await raises(SummaryFailed, session.compact(opened(name, provider), mode="llm", settings=settings))

            cause = caught.value.__cause__
            assert isinstance(cause, RateLimited)
            assert cause.retry_after == 7
            assert await session.build_context() == before
            assert (await store.usage(session)).rows == ()
            assert (await store.verify()).problems == []

    with servers.provider() as provider:
        anyio.run(run, provider)


SYSTEM = "You find out why builds are red."
TOOLS = ({"name": "read", "description": "Read a file.", "parameters": {"type": "object", "properties": {}}},)


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_asked_for_by_the_last_request_and_a_message_more(name: str) -> None:
    is_openai = name == NAMES[0]
    made = servers.response if is_openai else servers.message_events
    messages, around = ("input", ("tools",)) if is_openai else ("messages", ("system", "tools"))

    async def run(provider: Provider) -> None:
        provider.answers = [Answer(made("It passes.")), Answer(made("## Goal\nA green build."))]
        model = opened(name, provider)
        async with flue_py.open(":memory:") as store:
            session = await filled(store)
            await session.append_message({"role": "user", "content": "What does it say? " + "log " * 5000})
            turn = ModelRequest(tuple(await session.build_context()), SYSTEM, TOOLS, max_tokens=400)
            reply = await model.complete(turn)
            await session.append_messages(list(reply.messages))
            done = await session.compact(model, mode="llm", settings=KEEP_LITTLE, system=SYSTEM, tools=TOOLS)
            assert done.notes == ()
            assert done.summary is not None
            assert done.summary.startswith("## Goal")
            assert (await store.verify()).problems == []
        [(path, before), (other, summary)] = provider.asked
        assert path == other
        sent, asked = before[messages], summary[messages]
        assert as_bytes(asked[: len(sent)]) == as_bytes(sent)
        assert len(asked) == len(sent) + 2
        assert as_bytes([before[each] for each in around]) == as_bytes([summary[each] for each in around])
        assert len(as_bytes(sent)) >= LEAST_CACHED * len(as_bytes(asked))

    with servers.provider() as provider:
        anyio.run(run, provider)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
