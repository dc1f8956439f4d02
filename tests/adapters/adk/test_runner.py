"""Real loops of the framework over our sessions, with a model that says what it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App, EventsCompactionConfig, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from flue_py.adapters.adk import FlueSessionService
from tests.adapters.adk.samples import APP, USER, call, used
from tests.adapters.adk.stores import check, with_service
from tests.values import existing

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest

# Names of the framework that it warns about itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning"),
]


class Fake(BaseLlm):
    """A model that answers in turn, and remembers what it was asked."""

    model: str = "gemini-2.5-flash"
    answers: list[list[LlmResponse]]
    asked: list[list[Any]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append([content.model_dump(exclude_none=True) for content in llm_request.contents])
        for response in self.answers.pop(0):
            yield response.model_copy(deep=True)


def fake(*answers: types.Part | str | list[LlmResponse]) -> Fake:
    """Return a model with these answers; each uses another number of tokens."""
    made = [
        each if isinstance(each, list) else [response(each, usage_metadata=used(100 + number, number + 1))]
        for number, each in enumerate(answers)
    ]
    return Fake(answers=made, asked=[])


def response(part: types.Part | str, **fields: Any) -> LlmResponse:
    part = types.Part(text=part) if isinstance(part, str) else part
    return LlmResponse(content=types.Content(role="model", parts=[part]), model_version="gemini-2.5-flash", **fields)


def weather(city: str) -> dict[str, str]:
    """Return the weather."""
    return {"weather": f"sunny in {city}"}


async def say(runner: Runner, text: str, id: str = "s", config: RunConfig | None = None) -> list[str]:
    """Say something, and return the texts of what came back; partial ones included."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    said = []
    async for event in runner.run_async(user_id=USER, session_id=id, new_message=message, run_config=config):
        said += [part.text for part in (event.content.parts if event.content else None) or [] if part.text]
    return said


def shape(events: Sequence[Any]) -> list[Any]:
    """Return what of events is the same in two runs."""
    left = {"id", "timestamp", "invocation_id", "long_running_tool_ids"}
    shown = [event.model_dump(mode="json", exclude=left, exclude_none=True) for event in events]
    for event in shown:
        event.get("actions", {}).pop("rewind_before_invocation_id", None)
        event.get("actions", {}).pop("compaction", None)
        for part in event.get("content", {}).get("parts", []):
            for name in ("function_call", "function_response"):
                part.get(name, {}).pop("id", None)
    return shown


def test_a_conversation_with_tools_is_the_same_as_in_memory(target: str) -> None:
    async def talk(service: BaseSessionService) -> tuple[Any, Any, Fake]:
        model = fake(call("weather", city="Rome"), "Sunny.", "You asked for Rome.")
        agent = LlmAgent(name="root", model=model, tools=[weather], output_key="last")
        async with Runner(app_name=APP, agent=agent, session_service=service) as runner:
            await service.create_session(app_name=APP, user_id=USER, session_id="s", state={"user:name": "A"})
            assert await say(runner, "What is the weather?") == ["Sunny."]
            assert await say(runner, "Where?") == ["You asked for Rome."]
        got = existing(await service.get_session(app_name=APP, user_id=USER, session_id="s"))
        return shape(got.events), got.state, model

    async def main(service: FlueSessionService) -> None:
        theirs, ours = InMemorySessionService(), service
        one, other = await talk(theirs), await talk(ours)
        assert other[:2] == one[:2]
        session = existing(await ours.session_for(app_name=APP, user_id=USER, session_id="s"))
        roles = [message["role"] for message in await session.build_context()]
        assert roles == ["user", "assistant", "toolResult", "assistant", "user", "assistant"]
        window = await session.money.aggregate_usage_since(None)
        assert (window.usage.input, window.usage.output, window.calls) == (100 + 101 + 102, 1 + 2 + 3, 3)
        assert (await session.refresh()).spent_tokens == window.usage.total_tokens

    with_service(target, main)


def test_streamed_answers_are_stored_once(target: str) -> None:
    async def main(service: FlueSessionService) -> None:
        chunks = [response("Sun", partial=True), response("ny.", partial=True)]
        model = fake([*chunks, response("Sunny.", usage_metadata=used(7, 3))])
        agent = LlmAgent(name="root", model=model)
        async with Runner(app_name=APP, agent=agent, session_service=service, auto_create_session=True) as runner:
            config = RunConfig(streaming_mode=StreamingMode.SSE)
            assert await say(runner, "What is the weather?", config=config) == ["Sun", "ny.", "Sunny."]
        session = existing(await service.session_for(app_name=APP, user_id=USER, session_id="s"))
        assert len(await session.get_tree()) == 2
        assert (await session.refresh()).spent_tokens == 10

    with_service(target, main)


def test_rewind_of_the_runner_is_a_move_of_the_leaf(target: str) -> None:
    async def talk(service: BaseSessionService) -> tuple[Any, Any, Any, Fake]:
        model = fake("one", "two", "three", "four")
        agent = LlmAgent(name="root", model=model, output_key="last")
        async with Runner(app_name=APP, agent=agent, session_service=service) as runner:
            names = {"app_name": APP, "user_id": USER, "session_id": "s"}
            await service.create_session(**names, state={"begin": 1})
            for text in ("q1", "q2", "q3"):
                await say(runner, text)
            session = existing(await service.get_session(**names))
            second = next(e.invocation_id for e in session.events if e.content and e.content.parts[0].text == "q2")  # type: ignore[index]
            await runner.rewind_async(user_id=USER, session_id="s", rewind_before_invocation_id=second)
            rewound = existing(await service.get_session(**names))
            assert await say(runner, "q4") == ["four"]
            session = existing(await service.get_session(**names))
        return shape(session.events), session.state, rewound.state, model

    async def main(service: FlueSessionService) -> None:
        theirs, ours = InMemorySessionService(), service
        one, other = await talk(theirs), await talk(ours)
        assert other[:3] == one[:3]
        assert other[3].asked == one[3].asked
        assert [content["parts"][0]["text"] for content in other[3].asked[-1]] == ["q1", "one", "q4"]
        session = existing(await ours.session_for(app_name=APP, user_id=USER, session_id="s"))
        said = [message["content"] for message in await session.build_context()]
        assert said == ["q1", "one", "q4", "four"]
        assert len([entry for entry in await session.get_tree() if entry.kind == "message"]) == 8
        # Undo takes back the answer, the question, and the going back.
        for _ in range(3):
            await session.undo()
        got = existing(await ours.get_session(app_name=APP, user_id=USER, session_id="s"))
        assert [e.content.parts[0].text for e in got.events if e.content] == ["q1", "one", "q2", "two", "q3", "three"]  # type: ignore[index]
        assert got.state == {"begin": 1, "last": "three"}

    with_service(target, main)


def test_undo_rewind_and_fork_of_ours_are_seen_by_the_agent(target: str) -> None:
    async def main(service: FlueSessionService) -> None:
        model = fake("one", "two", "three", "fork")
        agent = LlmAgent(name="root", model=model, output_key="last")
        async with Runner(app_name=APP, agent=agent, session_service=service, auto_create_session=True) as runner:
            await say(runner, "q1")
            await say(runner, "q2")
            session = existing(await service.session_for(app_name=APP, user_id=USER, session_id="s"))
            fork = await session.fork(key="forked", at=session.leaf_id)
            await session.rewind(turns=-1)
            got = existing(await service.get_session(app_name=APP, user_id=USER, session_id="s"))
            assert got.state == {"last": "one"}
            await say(runner, "q3")
            await say(runner, "to the fork", id="forked")
        texts = [[content["parts"][0]["text"] for content in asked] for asked in model.asked]
        assert texts[2] == ["q1", "one", "q3"]
        assert texts[3] == ["q1", "one", "q2", "two", "to the fork"]
        listed = (await service.list_sessions(app_name=APP, user_id=USER)).sessions
        assert [(each.id, each.state) for each in listed] == [("s", {"last": "three"}), ("forked", {"last": "fork"})]
        assert fork.key == "forked"

    with_service(target, main)


def test_a_compaction_of_the_framework_is_one_of_ours(target: str) -> None:
    async def main(service: FlueSessionService) -> None:
        model = fake("one", "two", [response("SUMMARY", usage_metadata=used(50, 5))], "three")
        agent = LlmAgent(name="root", model=model)
        compaction = EventsCompactionConfig(compaction_interval=2, overlap_size=0)
        app = App(name=APP, root_agent=agent, events_compaction_config=compaction)
        async with Runner(app=app, session_service=service, auto_create_session=True) as runner:
            await say(runner, "q1")
            await say(runner, "q2")
            await say(runner, "q3")
        session = existing(await service.session_for(app_name=APP, user_id=USER, session_id="s"))
        context = await session.build_context()
        assert "SUMMARY" in str(context[0])
        assert [message["content"] for message in context[1:]] == ["q3", "three"]
        latest = existing(await session.compactions.latest())
        assert (latest.usage.input, latest.usage.output) == (50, 5)
        # What the framework itself sends is the same.
        assert [content["parts"][0]["text"] for content in model.asked[-1]] == ["SUMMARY", "q3"]
        assert (await session.refresh()).spent_tokens == 101 + 103 + 55 + 107

    with_service(target, main)


def test_agents_side_by_side_lose_nothing(target: str) -> None:
    async def main(service: FlueSessionService) -> None:
        agents = [LlmAgent(name=f"a{n}", model=fake(f"from {n}"), output_key=f"user:k{n}") for n in range(8)]
        agent = SequentialAgent(name="all", sub_agents=[ParallelAgent(name="some", sub_agents=agents)])
        async with Runner(app_name=APP, agent=agent, session_service=service, auto_create_session=True) as runner:
            assert sorted(await say(runner, "go")) == sorted(f"from {n}" for n in range(8))
        state = await service.get_user_state(app_name=APP, user_id=USER)
        assert state == {f"k{n}": f"from {n}" for n in range(8)}

    with_service(target, main)


def test_it_is_used_from_any_loop_and_thread(shared: str) -> None:
    service = FlueSessionService(shared)

    async def talk(id: str) -> None:
        agent = LlmAgent(name="root", model=fake(*(f"a{n}" for n in range(4))))
        async with Runner(app_name=APP, agent=agent, session_service=service, auto_create_session=True) as runner:
            for number in range(4):
                await say(runner, f"q{number}", id)

    threads = [threading.Thread(target=lambda id=f"s{n}": asyncio.run(talk(id))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def main() -> None:
        sessions = (await service.list_sessions(app_name=APP, user_id=USER)).sessions
        assert sorted(session.id for session in sessions) == ["s0", "s1", "s2", "s3"]
        for session in sessions:
            config = GetSessionConfig(num_recent_events=3)
            got = existing(await service.get_session(app_name=APP, user_id=USER, session_id=session.id, config=config))
            assert [event.content.parts[0].text for event in got.events] == ["a2", "q3", "a3"]  # type: ignore[index,union-attr]
        await check(service)
        await service.close()

    asyncio.run(main())


def test_runner_run_which_has_a_thread_and_a_loop_of_its_own(tmp_path: Path) -> None:
    service = FlueSessionService(tmp_path / "sessions.db")
    agent = LlmAgent(name="root", model=fake("one", "two"))
    runner = Runner(app_name=APP, agent=agent, session_service=service, auto_create_session=True)
    for text in ("q1", "q2"):
        message = types.Content(role="user", parts=[types.Part(text=text)])
        assert len(list(runner.run(user_id=USER, session_id="s", new_message=message))) == 1

    async def main() -> None:
        await runner.close()
        got = existing(await service.get_session(app_name=APP, user_id=USER, session_id="s"))
        assert len(got.events) == 4
        await check(service)
        await service.close()

    asyncio.run(main())


def test_loops_transfers_and_long_running_tools_are_the_same_as_in_memory(target: str) -> None:
    def ask(question: str) -> dict[str, str]:
        """Ask a person."""
        return {"status": "pending", "question": question}

    def agents() -> SequentialAgent:
        child = LlmAgent(name="child", model=fake("I am the child.", "Again."), output_key="user:said")
        root = LlmAgent(name="root", model=fake(call("transfer_to_agent", agent_name="child")), sub_agents=[child])
        asking = LlmAgent(
            name="asking", model=fake(call("ask", question="?"), "Wait."), tools=[LongRunningFunctionTool(ask)]
        )
        turns = LlmAgent(name="turn", model=fake("one", "two", "three"), output_key="last")
        return SequentialAgent(
            name="all", sub_agents=[root, asking, LoopAgent(name="loop", max_iterations=3, sub_agents=[turns])]
        )

    async def talk(service: BaseSessionService, resumable: bool) -> tuple[Any, Any]:
        resumability = ResumabilityConfig(is_resumable=resumable)
        app = App(name=APP, root_agent=agents(), resumability_config=resumability)
        id = f"s{resumable}"
        async with Runner(app=app, session_service=service, auto_create_session=True) as runner:
            await say(runner, "go", id)
        got = existing(await service.get_session(app_name=APP, user_id=USER, session_id=id))
        return shape(got.events), got.state

    async def main(service: FlueSessionService) -> None:
        theirs = InMemorySessionService()
        for resumable in (False, True):
            one, other = await talk(theirs, resumable), await talk(service, resumable)
            assert len(one[0]) > 3
            assert other == one

    with_service(target, main)
