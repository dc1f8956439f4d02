"""Runs that are interrupted, compacted, encrypted or fail, on a `FlueSession`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from agents import Agent, Runner, RunState, Usage, function_tool, set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession, SessionABC, is_openai_responses_compaction_aware_session
from agents.testing import ScriptedModel, assistant_message, function_call

import flue_py
from flue_py.adapters.openai_agents import Compaction, FlueSession
from flue_py.compaction import CompactionSettings, SummaryReply, SummaryRequest
from flue_py.errors import InvalidArgument, SummaryFailed
from tests.checks import raises
from tests.values import existing

set_tracing_disabled(True)


def used(taken: int, made: int) -> Usage:
    return Usage(requests=1, input_tokens=taken, output_tokens=made, total_tokens=taken + made)


def answers(*tokens: int) -> list[Any]:
    return [{"output": [assistant_message(f"answer {n}")], "usage": used(n, 1)} for n in tokens]


@function_tool(needs_approval=True)
def deploy(what: str) -> str:
    """Deploy something."""
    return f"{what} is live"


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_approved_run_is_paid_for_once(elsewhere: bool, tmp_path: Path) -> None:
    called = {"output": [function_call("deploy", {"what": "it"}, call_id="c1")], "usage": used(10, 1)}
    model = ScriptedModel([called, *answers(20)])
    agent = Agent(name="a", model=model, tools=[deploy])
    session = FlueSession("one", tmp_path / "a.db")
    result = await Runner.run(agent, "Deploy it.", session=session)
    state = result.to_state()
    if elsewhere:
        # As another process resumes it: from JSON, with nothing known of the run before.
        session.close()
        session = FlueSession("one", tmp_path / "a.db")
        state = await RunState.from_string(agent, state.to_string())
    for interruption in state.get_interruptions():
        state.approve(interruption)
    result = await Runner.run(agent, state, session=session)
    await session.store_run_usage(result)
    assert result.final_output == "answer 20"
    with flue_py.sync.open(tmp_path / "a.db") as store:
        paid = store.usage().total
        assert (paid.calls, paid.input, paid.output) == (2, 30, 2)
        assert store.verify().problems == []
    session.close()


@pytest.mark.parametrize("with_session", [False, True])
async def test_an_agent_that_is_a_tool_is_paid_for_once(with_session: bool) -> None:
    async with flue_py.open(":memory:") as store:
        inner = Agent(name="inner", model=ScriptedModel(answers(100)))
        session_of_tool = FlueSession.from_store("tool", store, model="m2") if with_session else None
        tool = inner.as_tool("ask", "Ask somebody.", session=session_of_tool)
        called = {"output": [function_call("ask", {"input": "What?"}, call_id="c1")], "usage": used(10, 1)}
        outer = Agent(name="outer", model=ScriptedModel([called, *answers(20)]), tools=[tool])
        session = FlueSession.from_store("one", store, model="m1")
        result = await Runner.run(outer, "Ask.", session=session)
        await session.store_run_usage(result)
        paid = (await store.usage()).total
        assert (paid.calls, paid.input) == (3, 130) == (3, result.context_wrapper.usage.input_tokens)
        assert (await store.verify()).problems == []


class Passing(SessionABC):
    """A session above another that was written before the SDK passed runs on."""

    def __init__(self, below: FlueSession) -> None:
        self.session_id, self._below = below.session_id, below

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await self._below.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        await self._below.add_items(items)

    async def pop_item(self) -> Any:
        return await self._below.pop_item()

    async def clear_session(self) -> None:
        await self._below.clear_session()


def compacting(below: FlueSession) -> OpenAIResponsesCompactionSession:
    client: Any = object()
    return OpenAIResponsesCompactionSession(
        below.session_id, below, client=client, model="gpt-5", should_trigger_compaction=lambda context: False
    )


@pytest.mark.parametrize("wrapped", [Passing, compacting])
async def test_what_a_session_above_does_not_pass_on_is_paid_for_once(wrapped: Any, tmp_path: Path) -> None:
    below = FlueSession("s", tmp_path / "s.db")
    await below.add_items([{"role": "assistant", "content": "Hello, nobody paid for this."}])
    called = {"output": [function_call("look", {}, call_id="c1")], "usage": used(10, 1)}

    @function_tool
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(name="a", model=ScriptedModel([called, *answers(20), *answers(30)]), tools=[look])
    await Runner.run(agent, "one", session=wrapped(below))
    result = Runner.run_streamed(agent, "two", session=wrapped(below))
    async for _ in result.stream_events():
        pass
    await below.store_run_usage(result)
    below.close()
    async with flue_py.open(tmp_path / "s.db") as store:
        total = (await store.usage()).total
    assert (total.calls, total.total_tokens, total.unknown_calls) == (3, 63, 0)


async def test_a_session_in_which_no_user_spoke_has_no_turns() -> None:
    greeting = FlueSession("greeting")
    await greeting.add_items([{"role": "assistant", "content": "Hello, what can I do for you?"}])
    assert (await greeting.get_turn_usage(), await greeting.get_session_usage()) == ([], None)
    result = await Runner.run(Agent(name="a", model=ScriptedModel(answers(10))), "q")
    await greeting.add_items([{"__enc__": 1, "payload": "gAAAA"}], wrapper=result.context_wrapper)  # type: ignore[list-item]
    assert await greeting.get_turn_usage() == []
    whole = existing(await greeting.get_session_usage())
    assert (whole["requests"], whole["total_tokens"], whole["total_turns"]) == (1, 11, 0)
    greeting.close()


async def test_a_run_compacts_with_a_model_of_the_sdk(tmp_path: Path) -> None:
    summarizer = ScriptedModel([{"output": [assistant_message("All was said.")], "usage": used(300, 7)}])
    settings = CompactionSettings(reserve_tokens=50, keep_recent_tokens=10)
    compaction = Compaction(model=summarizer, context_window=100, settings=settings)
    session = FlueSession("one", tmp_path / "a.db", compaction=compaction)
    agent = Agent(name="a", model=ScriptedModel(answers(10, 90, 30)))
    for text in ("one " * 20, "two " * 20):
        result = await Runner.run(agent, text, session=session)
    assert result.context_wrapper.usage.total_tokens == 91 + 307
    first, *kept = await session.get_items()
    assert "All was said." in json.dumps(first)
    assert len(kept) < 4
    await Runner.run(agent, "three", session=session)
    with flue_py.sync.open(tmp_path / "a.db") as store:
        below = store.open_session("one")
        assert [e.kind for e in below.get_active_path() if e.kind != "message"] == ["compaction"]
        paid = {row.group["purpose"]: (row.calls, row.total_tokens) for row in store.usage(group_by=["purpose"]).rows}
        assert paid == {"turn": (3, 11 + 91 + 31), "compaction": (1, 307)}
        assert store.verify().problems == []
    popped = [await session.pop_item() for _ in range(len(kept) + 3)]
    assert popped[-1] == first
    assert await session.pop_item() is None
    assert await session.get_items() == []
    session.close()


async def summarized(request: SummaryRequest) -> SummaryReply:
    return SummaryReply(f"({request.kind})", {"input_tokens": 5, "output_tokens": 1})


async def test_compaction_is_asked_for_by_hand() -> None:
    session = FlueSession("one")
    said: Sequence[Any] = [{"role": "user", "content": f"{n}"} for n in range(6)]
    await session.run_compaction()
    await session.run_compaction({"force": True}, compaction=Compaction(model=summarized))
    await session.add_items(list(said))
    await raises(InvalidArgument, session.run_compaction({"force": True}), match="compaction")
    await session.run_compaction(compaction=Compaction(model=summarized))
    assert await session.get_items() == said
    await session.run_compaction({"force": True}, compaction=Compaction(model=summarized))
    items = await session.get_items()
    assert "(initial)" in json.dumps(items[0])
    assert items[1:] == said[-len(items) + 1 :]
    assert is_openai_responses_compaction_aware_session(session)
    session.close()


async def test_what_moves_on_meanwhile_is_left_alone_and_the_summary_is_paid(tmp_path: Path) -> None:
    session, other = (FlueSession("one", tmp_path / "a.db") for _ in range(2))
    said: list[Any] = [{"role": "user", "content": f"{n}"} for n in range(6)]
    await session.add_items(said)

    async def slow(request: SummaryRequest) -> SummaryReply:
        await other.pop_item()
        return await summarized(request)

    async def failing(request: SummaryRequest) -> SummaryReply:
        raise RuntimeError("no model")

    await session.run_compaction({"force": True}, compaction=Compaction(model=slow))
    await raises(SummaryFailed, session.run_compaction({"force": True}, compaction=Compaction(model=failing)))
    assert await session.get_items() == said[:-1]
    with flue_py.sync.open(tmp_path / "a.db") as store:
        [row] = store.usage(group_by=["purpose", "outcome"]).rows
        assert (row.group, row.calls, row.total_tokens) == ({"purpose": "compaction", "outcome": "discarded"}, 1, 6)
        assert store.verify().problems == []
    session.close()
    other.close()


@pytest.mark.parametrize("bad", [{"model": 3}, {"model": summarized, "context_window": -1}])
def test_a_compaction_is_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Compaction(**bad)
