"""Windows and the ledger have the framework's own numbers, of real agent loops, and of runs that were not saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.core.ledger import UsageReport
from tests.adapters.pydantic_ai.stores import turns
from tests.checks import raises
from tests.values import existing

if TYPE_CHECKING:
    from pydantic_ai.agent import AgentRunResult


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool twice in the first step, and then say how many messages there were."""
    if len(messages[-1].parts) == 1 and not isinstance(messages[-1], ModelResponse):
        said = messages[-1].parts[0]
        if said.part_kind == "user-prompt":
            parts = [
                ToolCallPart("add", {"x": 1}, f"a{len(messages)}"),
                ToolCallPart("add", '{"x": 7}', f"b{len(messages)}"),
            ]
            usage = RequestUsage(input_tokens=50, cache_read_tokens=30, output_tokens=9, output_reasoning_tokens=4)
            return ModelResponse(parts=parts, usage=usage)
    return ModelResponse(
        parts=[TextPart(f"{len(messages)} messages")],
        usage=RequestUsage(input_tokens=70, cache_write_tokens=20, output_tokens=5, cost=Decimal("0.00125")),
    )


async def streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Say the same in pieces."""
    if messages[-1].parts[0].part_kind == "user-prompt":
        yield {0: DeltaToolCall("add", '{"x"', tool_call_id=f"s{len(messages)}")}
        yield {0: DeltaToolCall(json_args=": 1}")}
    else:
        yield "so "
        yield "many words"


def made(model: Any) -> Agent[None, str]:
    agent = Agent(model, instructions="Add.")

    @agent.tool_plain(retries=2)
    def add(x: int) -> dict[str, int]:
        if x == 7:
            raise ModelRetry("not 7")
        return {"sum": x + 1}

    return agent


async def plainly(agent: Agent[None, str], conversation: Conversation) -> AgentRunResult[str]:
    return await agent.run("Add one.", conversation=conversation)


async def in_pieces(agent: Agent[None, str], conversation: Conversation) -> AgentRunResult[str]:
    result = None
    async with agent.iter("Add one.", conversation=conversation) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
        result = run.result
    assert result is not None
    return result


def fallback() -> FallbackModel:
    def rejected(response: ModelResponse) -> bool:
        return any(isinstance(part, TextPart) and "messages" in part.content for part in response.parts)

    return FallbackModel(FunctionModel(answer), TestModel(), fallback_on=rejected)


MODELS: dict[str, Callable[[], Any]] = {
    "test": TestModel,
    "function": lambda: FunctionModel(answer),
    "stream": lambda: FunctionModel(stream_function=streamed),
    "test stream": TestModel,
    "fallback": fallback,
}


@contextmanager
def ledger_of(path: Path) -> Iterator[Callable[..., UsageReport]]:
    with flue_py.sync.open(path) as store:
        assert store.verify().problems == []
        yield store.usage


def of_run(result: AgentRunResult[str]) -> RunUsage:
    """Return what the responses of a run used, added up as the framework adds."""
    used = RunUsage()
    for message in result.new_messages():
        if isinstance(message, ModelResponse):
            used.incr(message.usage)
            for attempt in message.failed_attempts or ():
                used.incr(attempt.usage or RequestUsage())
    return used


def same(told: RunUsage, found: Any) -> None:
    """Say that our sums are the framework's: theirs counts the cache as part of the input."""
    assert found.input + found.cache_read + found.cache_write == told.input_tokens
    assert (found.cache_read, found.cache_write) == (told.cache_read_tokens, told.cache_write_tokens)
    assert (found.output, found.total_tokens) == (told.output_tokens, told.total_tokens)


@pytest.mark.parametrize("name", MODELS)
def test_windows_and_the_ledger_have_the_numbers_of_the_framework(name: str, tmp_path: Path) -> None:
    agent = made(MODELS[name]())
    run = in_pieces if "stream" in name else plainly

    async def talk() -> tuple[RunUsage, int]:
        async with flue_py.open(tmp_path / "a.db") as flue:
            store = FlueConversationStore(flue)
            calls = 0
            for _ in range(3):
                before = (await store.session_for("a")).leaf_id if calls else None
                conversation = await store.load("a") or Conversation(conversation_id="a")
                result = await run(agent, conversation)
                await store.save(result)
                session = await store.session_for("a")
                same(of_run(result), (await session.money.aggregate_usage_since(before)).usage)
                responses = [each for each in result.new_messages() if isinstance(each, ModelResponse)]
                calls += sum(1 + len(each.failed_attempts or ()) for each in responses)
                same(result.conversation.usage, (await session.money.aggregate_usage_since(None)).usage)
            return result.conversation.usage, calls

    told, calls = asyncio.run(talk())
    with ledger_of(tmp_path / "a.db") as usage:
        total = usage("a").total
        same(told, total)
        assert total.calls == calls
        assert total.unknown_calls == 0
        assert (told.cost or 0) == Decimal(total.picodollars).scaleb(-12)


def lost_runs(path: Path, then: Callable[[FlueConversationStore, Conversation], Awaitable[object]]) -> RunUsage:
    """Let two runs begin from the same conversation; the second one's save is a conflict. Return what both used."""
    agent = made(FunctionModel(answer))

    async def race() -> RunUsage:
        store = FlueConversationStore.open(path)
        await store.save(Conversation(messages=turns(1), conversation_id="a"), scope="one")
        one, other = await store.load("a"), await store.load("a")
        assert one is not None
        assert other is not None
        first, second = await agent.run("Add.", conversation=one), await agent.run("Add.", conversation=other)
        await store.save(first)
        for _ in range(2):
            await raises(ConversationConflict, store.save(second))
        await then(store, second.conversation)
        await store.close()
        return first.usage + second.usage + RequestUsage(input_tokens=10, output_tokens=3)

    return asyncio.run(race())


async def nothing(store: FlueConversationStore, lost: Conversation) -> None:
    pass


async def save_it_after_all(store: FlueConversationStore, lost: Conversation) -> None:
    loaded = existing(await store.load("a"))
    loaded.messages += lost.messages[2:]
    await store.save(loaded)


async def delete_it(store: FlueConversationStore, lost: Conversation) -> None:
    await store.delete("a")
    await raises(ConversationConflict, store.save(lost))
    assert await store.load("a") is None
    assert await store.list_conversations() == []


async def rewrite_it(store: FlueConversationStore, lost: Conversation) -> None:
    loaded = existing(await store.load("a"))
    loaded.messages[1] = turns(1, first=40)[1]
    answered = loaded.messages[1]
    assert isinstance(answered, ModelResponse)
    answered.usage = RequestUsage()
    await store.save(loaded)


@pytest.mark.parametrize("then", [nothing, save_it_after_all, delete_it, rewrite_it], ids=lambda then: then.__name__)
def test_what_a_lost_run_paid_is_in_the_ledger_once(
    tmp_path: Path, then: Callable[[FlueConversationStore, Conversation], Awaitable[object]]
) -> None:
    told = lost_runs(tmp_path / "a.db", then)
    with ledger_of(tmp_path / "a.db") as usage:
        same(told, usage("a").total)
        same(told, usage(scope="one").total)
        if then is not rewrite_it:
            assert usage(scope="one").total.calls == 5
            assert usage(outcome="conflict").total.calls == 2


def test_what_a_conversation_cost_that_was_deleted_before_it_was_saved(tmp_path: Path) -> None:
    async def lose() -> None:
        store = FlueConversationStore.open(tmp_path / "a.db")
        conversation = Conversation(messages=turns(1), conversation_id="a\ud800")
        await store.save(conversation)
        await store.delete("a\ud800")
        conversation.messages += turns(2, first=1)
        await raises(ConversationConflict, store.save(conversation))
        await raises(ConversationConflict, store.save(conversation))
        assert await store.load("a\ud800") is None
        await store.close()

    asyncio.run(lose())
    with ledger_of(tmp_path / "a.db") as usage:
        assert (usage().total.calls, usage().total.total_tokens) == (3, 13 + 14 + 15)


def test_a_conflict_of_scopes_is_paid_in_the_scope_of_who_paid(tmp_path: Path) -> None:
    async def lose() -> None:
        store = FlueConversationStore.open(tmp_path / "a.db")
        await store.save(Conversation(messages=turns(1), conversation_id="a"), scope="one")
        with pytest.raises(ConversationConflict):
            await store.save(Conversation(messages=turns(2, first=1), conversation_id="a"), scope="two")
        assert len(await store.list_conversations()) == 1
        await store.close()

    asyncio.run(lose())
    with ledger_of(tmp_path / "a.db") as usage:
        assert [usage(scope=scope).total.calls for scope in ("one", "two")] == [1, 2]


def test_a_lost_answer_that_cannot_be_kept_was_paid_for_all_the_same(tmp_path: Path) -> None:
    async def lose() -> None:
        store = FlueConversationStore.open(tmp_path / "a.db")
        await store.save(Conversation(messages=turns(1), conversation_id="a"))
        late = Conversation(messages=turns(1, first=1), conversation_id="a")
        answered = late.messages[1]
        assert isinstance(answered, ModelResponse)
        answered.metadata = {"an object": object()}
        await raises(ConversationConflict, store.save(late))
        await store.close()

    asyncio.run(lose())
    with ledger_of(tmp_path / "a.db") as usage:
        assert (usage("a").total.calls, usage("a").total.total_tokens) == (2, 13 + 14)


def test_a_response_without_usage_is_a_call_of_unknown_usage(tmp_path: Path) -> None:
    async def keep() -> None:
        store = FlueConversationStore.open(tmp_path / "a.db")
        messages: list[ModelMessage] = [
            ModelRequest.user_text_prompt("hi"),
            ModelResponse(parts=[TextPart("one")], provider_name="example", model_name="m"),
            ModelResponse(parts=[TextPart("two")], usage=RequestUsage(unmeasured_requests=1, input_tokens=9)),
            ModelResponse(parts=[TextPart("three")], usage=RequestUsage(input_tokens=5), provider_response_id="r"),
            ModelResponse(parts=[TextPart("three")], usage=RequestUsage(input_tokens=5), provider_response_id="r"),
        ]
        await store.save(Conversation(messages=messages, conversation_id="a"))
        await store.close()

    asyncio.run(keep())
    with ledger_of(tmp_path / "a.db") as usage:
        total = usage("a").total
        assert (total.calls, total.unknown_calls, total.total_tokens) == (3, 2, 5)


def small(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask the other agent, and then answer."""
    asked = messages[-1].parts[-1].part_kind == "user-prompt"
    parts = [ToolCallPart("ask", {}, f"c{len(messages)}") if asked else TextPart("ok")]
    return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=100, cache_read_tokens=40, output_tokens=10))


def large(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("advice")], usage=RequestUsage(input_tokens=5000, output_tokens=50))


async def test_what_a_run_paid_beside_its_responses_is_in_the_ledger_once(tmp_path: Path) -> None:
    adviser = Agent(FunctionModel(large, model_name="large"))
    agent = Agent(FunctionModel(small, model_name="small"))

    @agent.tool
    async def ask(ctx: RunContext[None]) -> str:
        return (await adviser.run("What now?", usage=ctx.usage)).output

    path = str(tmp_path / "sessions.db")
    async with FlueConversationStore.open(path) as store:
        for _ in range(2):
            loaded = await store.load("c")
            conversation = loaded or Conversation(conversation_id="c")
            await store.save(await agent.run("q", conversation=conversation))
        whole = existing(await store.load("c"))
        plain = Agent(FunctionModel(large, model_name="large"))
        await store.save(await plain.run("q", conversation=whole))
        used = (await store.load("c")).usage  # type: ignore[union-attr]
    async with flue_py.open(path) as opened:
        report = await opened.usage(group_by=["model"])
        assert (await opened.verify()).problems == []
    found = {row.group["model"]: (row.calls, row.input, row.cache_read, row.output) for row in report.rows}
    assert found == {"": (2, 10_000, 0, 100), "small": (4, 240, 160, 40), "large": (1, 5000, 0, 50)}
    assert report.total.total_tokens == used.input_tokens + used.output_tokens
