"""The requests of recorded runs: what is sent, requests that fail, tasks of tools, and files that tools edit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.adapters.needed import needs

needs("agents", "pydantic_ai")

import httpx
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import Tool
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.adapters import pydantic_ai_messages as messages
from flue_py.agents import Recorded
from flue_py.agents.guard import CompactionGuard
from flue_py.agents.journal import Journal
from flue_py.compaction.settings import TriggerSettings
from flue_py.context.blocks import BlockText
from flue_py.errors import InvalidArgument, LeafConflict, StoreUnavailable, TaskDepthExceeded
from tests.values import existing

LIMIT = 20_000
"""The characters that the window of the small model takes."""


class Answers:
    """A model that answers, or raises, a list one after the other, and notes what it was sent."""

    def __init__(self, *answers: Any, limit: int | None = None) -> None:
        self.answers = [*answers]
        self.limit = limit
        self.requests: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.requests.append(messages)
        if self.limit is not None and (size := sum(map(len, texts(messages)))) > self.limit:
            raise ModelHTTPError(400, "script", f"prompt is too long: {size} tokens > {self.limit} maximum")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        parts = [TextPart(answer)] if isinstance(answer, str) else answer
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=1))

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield texts([self(messages, info)])[0]

    def agent(self, *tools: Any, recorded: Recorded, **options: Any) -> Agent[None, str]:
        model = FunctionModel(self, stream_function=self.stream, model_name="script")
        return Agent(model, tools=tools, capabilities=[recorded], **options)


def texts(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if hasattr(part, "content")]


def a_call(tool: str, call_id: str = "a", **args: Any) -> list[ToolCallPart]:
    return [ToolCallPart(tool, args, call_id)]


def look() -> str:
    """Return a long text."""
    return "word " * 2_000


@pytest.mark.parametrize("watched", [None, AsyncMock()])
async def test_a_request_that_may_pass_is_made_again_after_2_and_4_seconds_and_no_other_is(
    watched: Any, tmp_path: Path
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with flue_py.open(tmp_path / "a.db") as store:
        for error, tries, waited in (
            (ModelHTTPError(503, "script"), 2, [2.0, 4.0]),
            (ModelHTTPError(529, "script"), 3, [2.0, 4.0]),
            (ModelHTTPError(400, "script"), 1, []),
            (ConnectionError("gone"), 1, [2.0]),
        ):
            waits.clear()
            answers = Answers(*[error] * tries, "Yes.")
            agent = answers.agent(recorded=Recorded(store, sleep=sleep))
            run = agent.run("Well?", conversation_id=f"{error}", event_stream_handler=watched)
            if tries > len(waited):
                with pytest.raises(ModelHTTPError):
                    await run
            else:
                assert (await run).output == "Yes."
            assert waits == waited
            assert all(request == answers.requests[0] for request in answers.requests)
            session = await store.open_session(f"{error}")
            kinds = [entry.role or entry.kind for entry in await session.get_active_path()]
            answer = [] if tries > len(waited) else ["assistant"]
            assert kinds == ["user", *["agents.failed_request"] * tries, *answer]
            assert "agents.failed_request" not in str(await session.build_context())


async def test_a_request_that_overflows_is_compacted_once_then_cut_and_the_run_goes_on(store: flue_py.Store) -> None:
    # Turns that lie back: their compaction makes room.
    for number in range(4):
        answers = Answers(a_call("look", f"{number}"), f"Looked {number}.")
        await answers.agent(look, recorded=Recorded(store)).run(f"Look {number}.", conversation_id="c")
    small = Answers(a_call("look", "x"), "Done.", limit=LIMIT)
    result = await small.agent(look, recorded=Recorded(store)).run("Once more.", conversation_id="c")
    assert result.output == "Done."
    session = await store.open_session("c")
    path = await session.get_active_path()
    assert [entry.kind for entry in path].count("compaction") == 1
    assert (await store.verify()).problems == []
    # The next run begins with the same context.
    after = Answers("Still.", limit=LIMIT)
    await after.agent(look, recorded=Recorded(store)).run("And?", conversation_id="c")
    assert len(after.requests) == 1
    assert texts(after.requests[0])[-2:] == ["Done.", "And?"]

    # A turn that is too large by itself: its results are cut in the request alone.
    many = [part for number in range(4) for part in a_call("look", f"{number}")]
    small = Answers(many, "Done.", limit=LIMIT)
    result = await small.agent(look, recorded=Recorded(store)).run("Look.", conversation_id="d")
    assert result.output == "Done."
    assert texts(result.all_messages()).count(look()) == 4
    assert max(map(len, texts(small.requests[-1]))) < len(look())

    refused = Answers(many, "Done.", limit=LIMIT)
    with pytest.raises(ModelHTTPError, match="prompt is too long"):
        await refused.agent(look, recorded=Recorded(store, recovers=False)).run("Look.", conversation_id="e")
    assert len(refused.requests) == 2


async def test_settings_select_what_is_sent_and_a_guard_compacts_before_a_request(store: flue_py.Store) -> None:
    recorded = Recorded(store, context={"window": {"max_turn_age": 2}, "epoch_tokens": 0})
    for number in range(5):
        answers = Answers(f"Answer {number}. {look()}")
        await answers.agent(recorded=recorded).run(f"Question {number}.", conversation_id="c")
    sent = texts(answers.requests[0])
    assert sent[-1] == "Question 4."
    assert "Question 0." not in sent

    def guard(session: flue_py.Session) -> CompactionGuard:
        triggers = TriggerSettings(trigger_turns=3, keep_recent_turns=1, least_share=0.0)
        return CompactionGuard(store, session, mode="intent", triggers=triggers)

    answers = Answers("Answer 5.")
    await answers.agent(recorded=Recorded(store, guard=guard)).run("Question 5.", conversation_id="c")
    session = await store.open_session("c")
    assert "compaction" in [entry.kind for entry in await session.get_active_path()]
    assert "Question 0." not in texts(answers.requests[0])
    assert texts(answers.requests[0])[-1] == "Question 5."


async def test_a_request_reads_only_what_is_new_and_nothing_that_was_redacted_meanwhile(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def validated(dumped: Any) -> Any:
        read.append(len(dumped))
        return original(dumped)

    original = messages._validated
    monkeypatch.setattr(messages, "_validated", validated)
    session = await store.create_session()

    async def forget(number: int) -> str:
        if number == 3:
            # The framework still has the words.
            other = await store.find_session(session.id)
            await other.redact((await other.get_active_path())[0].id, "a secret")
        return f"did {number}"

    answers = Answers(*(a_call("forget", f"c{number}", number=number) for number in range(5)), "Done.")
    recorded = Recorded(store, session, context={"window": {"max_replay_chars": 0}})
    await answers.agent(forget, recorded=recorded).run("The password is swordfish.")
    assert ["swordfish" in str(texts(request)) for request in answers.requests] == [True] * 4 + [False] * 2
    assert texts(answers.requests[-1])[1:] == [f"did {number}" for number in range(5)]
    # An answer and its result; the tombstone, which says nothing to the framework, is read each time.
    assert max(read) <= 3


class Lost(BaseException):
    """The end of a process, for whoever is in it."""


async def test_a_sub_agent_of_the_harness_is_a_task(store: flue_py.Store) -> None:
    needs("agents", "pydantic_ai_harness.subagents")
    harness = import_module("pydantic_ai_harness.subagents")
    helper = harness.SubAgent(Answers("Hi.").agent(recorded=Recorded(store), name="helper"))
    answers = Answers(a_call("delegate_task", agent_name="helper", task="Greet."), "Done.")
    agent = answers.agent(recorded=Recorded(store))
    await agent.run("Go.", conversation_id="c", capabilities=[harness.SubAgents(agents=[helper])])
    [link] = await (await store.open_session("c")).tasks.links()
    assert (link.status, link.summary) == ("done", "Hi.")


async def test_a_run_inside_a_tool_is_a_task_which_goes_on_when_its_call_is_made_again(store: flue_py.Store) -> None:
    inner = Answers(a_call("find", "f"), "Found.")
    is_lost = True

    async def find() -> str:
        if is_lost:
            parent.cancel()
            await asyncio.Event().wait()
        return "it"

    async def delegate() -> str:
        return (await inner.agent(find, recorded=Recorded(store), name="finder").run("Find it.")).output

    def outer(*answers: Any) -> Agent[None, str]:
        tool = Tool(delegate, metadata={"may_repeat": True})
        return Answers(*answers).agent(tool, recorded=Recorded(store), name="boss")

    parent = asyncio.ensure_future(outer(a_call("delegate")).run("Go.", conversation_id="c", run_id="r"))
    with pytest.raises(asyncio.CancelledError):
        await parent
    session = await store.open_session("c")
    assert [link.status for link in await session.tasks.links()] == ["failed"]
    is_lost = False
    assert (await outer("Done.").run("Go.", conversation_id="c", run_id="r")).output == "Done."
    [link] = await session.tasks.links()
    assert (link.status, link.summary) == ("done", "Found.")
    task = await store.get_session(link.child_id)
    assert task is not None
    roles = [entry.role for entry in await task.get_active_path() if entry.role]
    assert roles == ["user", "assistant", "toolResult", "assistant"]
    assert (await store.usage(session, tasks=True)).total.output == 4
    assert (await store.verify()).problems == []


async def test_a_task_whose_process_ended_has_failed_when_its_call_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:

        async def lose() -> None:
            raise Lost

        async def delegate() -> str:
            agent = Answers(a_call("lose")).agent(lose, recorded=Recorded(store))
            return (await agent.run("Find it.")).output

        async def nothing(*_: object) -> None:
            """Stand for a process that cannot say how its task ended."""

        agent = Answers(a_call("delegate", "d")).agent(delegate, recorded=Recorded(store))
        with monkeypatch.context() as killed:
            killed.setattr("flue_py.agents.recorded._end", nothing)
            with pytest.raises(Lost):
                await agent.run("Go.", conversation_id="c", run_id="r")
        session = await store.open_session("c")
        assert [link.status for link in await session.tasks.links()] == ["running"]
        again = Answers("Done.").agent(delegate, recorded=Recorded(store))
        assert (await again.run("Go.", conversation_id="c", run_id="r")).output == "Done."
        [link] = await session.tasks.links()
        assert (link.status, link.summary) == ("failed", "its process ended, and its call is not made again")


async def test_a_task_of_which_the_end_cannot_be_stored_has_failed(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:

        async def interrupted(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
            (link,) = await (await store.open_session("c")).tasks.links()
            await existing(await store.get_session(link.child_id)).append_message({"role": "user", "content": "Stop."})
            return ModelResponse(parts=[TextPart("Well.")])

        async def look() -> str:
            """Look."""
            inner = Agent(FunctionModel(interrupted, model_name="script"), capabilities=[Recorded(store)])
            return (await inner.run("Look.")).output

        agent = Answers([ToolCallPart("look", {}, "c1")]).agent(look, recorded=Recorded(store))
        with pytest.raises(LeafConflict):
            await agent.run("Go.", conversation_id="c")
        (link,) = await (await store.open_session("c")).tasks.links()
        assert link.status == "failed"


async def test_an_answer_that_is_cancelled_before_its_first_word_is_a_call_of_unknown_usage(tmp_path: Path) -> None:
    began = asyncio.Event()

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
            choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            yield b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"
            began.set()
            await asyncio.Event().wait()

    async def watched(_: object, events: Any) -> None:
        async for _ in events:
            pass

    answer = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body()))
    async with flue_py.open(tmp_path / "s.db") as store, httpx.AsyncClient(transport=answer) as http:
        provider = OpenAIProvider(openai_client=AsyncOpenAI(api_key="x", base_url="http://x", http_client=http))
        agent = Agent(OpenAIChatModel("gpt-4o", provider=provider), capabilities=[Recorded(store)])
        run = asyncio.create_task(agent.run("Go.", conversation_id="c", event_stream_handler=watched))
        await began.wait()
        run.cancel()
        await asyncio.wait([run])
        assert (await store.usage(await store.open_session("c"))).total.unknown_calls == 1


async def test_tasks_are_no_deeper_than_4(store: flue_py.Store) -> None:

    async def deeper() -> str:
        agent = Answers(a_call("deeper"), "Up.").agent(deeper, recorded=Recorded(store))
        return (await agent.run("Down.")).output

    agent = Answers(a_call("deeper"), "Up.").agent(deeper, recorded=Recorded(store))
    with pytest.raises(TaskDepthExceeded):
        await agent.run("Down.", conversation_id="c")
    session, depth = await store.open_session("c"), 0
    while links := await session.tasks.links():
        assert [link.status for link in links] == ["failed"]
        below = await store.get_session(links[0].child_id)
        assert below is not None
        session, depth = below, depth + 1
    assert depth == 4


async def test_files_that_tools_edit_go_back_with_the_leaf(tmp_path: Path, store: flue_py.Store) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    path = folder / "app.py"
    path.write_text("one\n")

    def write(target: str) -> str:
        path.write_text("two\n")
        return f"wrote {target}"

    async def run(metadata: dict[str, Any], name: str) -> flue_py.Session:
        agent = Answers(a_call("write", target="app.py"), "Done.").agent(recorded=Recorded(store, files=folder))
        agent.tool_plain(write, metadata=metadata)
        await agent.run("Write.", conversation_id=name)
        return await store.open_session(name)

    session = await run({"edits": "target"}, "c")
    [tracked] = [entry for entry in await session.get_active_path() if entry.role == "user"]
    restored = await session.files.restore(tracked.parent_id, root=folder)
    assert [change.name for change in restored.changes] == ["app.py"]
    assert path.read_text() == "one\n"
    with pytest.raises(InvalidArgument, match="write: its metadata say that the argument 'file' has the paths"):
        await run({"edits": "file"}, "d")
    assert path.read_text() == "one\n"


class Full(CompactionGuard):
    """A guard whose state cannot be stored."""

    async def requests(self, *_: object, **__: object) -> Any:
        raise StoreUnavailable("the disk is full")


async def test_a_run_goes_on_in_memory_when_nothing_can_be_stored_and_the_next_commit_catches_up(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Any = Journal._write
    left, waits = 0, list[float]()

    async def full(self: Journal, key: str, entries: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            raise StoreUnavailable("the disk is full")
        await write(self, key, entries)

    async def unbooked(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(Journal, "_write", full)
    kinds = []
    for told, waited in ((0, []), (3, []), (7, []), (10, [2.0, 4.0])):
        left = told
        waits.clear()
        lines: list[str] = []
        recorded = Recorded(store, sleep=sleep, on_unsaved=lambda error, lines=lines: lines.append(str(error)))
        answers = Answers(a_call("look", "1"), a_call("look", "2"), "Done.")
        name = f"c-{told}"
        assert (await answers.agent(look, recorded=recorded).run("Go.", conversation_id=name)).output == "Done."
        assert (lines, waits) == (["the disk is full"] * told, waited)
        session = await store.open_session(name)
        kinds.append([entry.role or entry.kind for entry in await session.get_active_path()])
        assert (await store.usage(session)).total.calls == 3
    assert all(path == kinds[0] for path in kinds)
    # A session that lacks something is not what a request that overflows is made of.
    left = 5
    over = Answers(ModelHTTPError(400, "script", "prompt is too long: 9 tokens > 5 maximum"), "Less.")
    with pytest.raises(ModelHTTPError, match="too long"):
        await over.agent(recorded=recorded).run("Go.", conversation_id="o")
    assert len(over.requests) == 1
    left = 0

    def guard(session: flue_py.Session) -> CompactionGuard:
        return Full(store, session, mode="intent")

    lines.clear()
    guarded = Recorded(store, guard=guard, on_unsaved=lambda error: lines.append(str(error)))
    assert (await Answers("Done.").agent(recorded=guarded).run("Go.", conversation_id="g")).output == "Done."
    assert lines == ["the disk is full"]
    with pytest.raises(StoreUnavailable):
        await Answers("Done.").agent(recorded=Recorded(store, guard=guard)).run("Go.", conversation_id="h")
    # The booking of an answer is not taken: the answer is, and its call comes to the ledger with it.
    budgeted = await store.open_session("b", mode="create")
    await store.set_budget(budgeted, tokens=10_000)
    lines.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "book", unbooked)
        assert (await Answers("Done.").agent(recorded=recorded).run("Go.", conversation_id="b")).output == "Done."
        with pytest.raises(StoreUnavailable):
            await Answers("Done.").agent(recorded=Recorded(store)).run("Go.", conversation_id="b")
    assert lines == ["the disk is full"]
    assert (await store.usage(budgeted)).total.calls == 1
    left = 100
    with pytest.raises(StoreUnavailable):
        await Answers("Done.").agent(recorded=recorded).run("Go.", conversation_id="d")
    left = 1
    with pytest.raises(StoreUnavailable):
        await Answers("Done.").agent(recorded=Recorded(store)).run("Go.", conversation_id="e")


async def test_a_run_that_is_lost_behind_a_block_of_its_guard_goes_on(store: flue_py.Store) -> None:
    class Clock:
        name = "clock"
        reads = 0

        async def read(self) -> BlockText:
            self.reads += 1
            return BlockText(f"It is {self.reads}.")

    def guard(session: flue_py.Session) -> CompactionGuard:
        return CompactionGuard(store, session, mode="intent", blocks=[Clock()])

    lost = Answers(a_call("look"))
    with pytest.raises(IndexError):
        await lost.agent(look, recorded=Recorded(store, guard=guard)).run("Go.", conversation_id="c", run_id="r")
    agent = Answers("Done.").agent(look, recorded=Recorded(store, guard=guard))
    assert (await agent.run("Go.", conversation_id="c", run_id="r")).output == "Done."
    session = await store.open_session("c")
    assert [entry.role for entry in await session.get_active_path()].count("toolResult") == 1
