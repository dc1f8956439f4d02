"""`Recorded`: an agent of pydantic-ai whose every step is stored before it has effects."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("agents", "pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import Agent, CallToolsNode, ModelRetry, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, ModelHTTPError, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.agents import Recorded, tool_calls
from flue_py.agents.journal import LEASE
from flue_py.agents.recorded import MAY_HAVE_RUN
from flue_py.errors import BudgetExceeded, InvalidArgument, LeafConflict, SessionInUse
from flue_py.sessions.handle import stored_row
from tests.agents import coding
from tests.models.servers import provider
from tests.tables import inputs

OPENAI, ANTHROPIC = ("openai-chat:gpt-5", "/v1"), ("anthropic:claude-sonnet-5", "")


class Script:
    """A model that says the answers of a list, one for each request, and notes what it was sent."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = [*answers]
        self.requests: list[list[ModelMessage]] = []
        self.cost: Decimal | None = None

    def __call__(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.requests.append(messages)
        usage = RequestUsage(input_tokens=10, output_tokens=1, cost=self.cost)
        return ModelResponse(parts=list(self.answers.pop(0)), usage=usage)

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self, model_name="script")


def said(*texts: str) -> list[Any]:
    return [TextPart(text) for text in texts]


def call(tool: str, call_id: str = "a", **args: Any) -> ToolCallPart:
    return ToolCallPart(tool, args, call_id)


class Lost(BaseException):
    """The end of a process, for whoever is in it."""


class Number(BaseModel):
    """An output."""

    n: int


def _raise(error: BaseException) -> Any:
    raise error


def look_at() -> str:
    return "seen"


def recorded(store: flue_py.Store, script: Script, tools: Sequence[Any] = (), output: Any = str) -> Agent[None, Any]:
    return Agent(script.model, output_type=output, tools=tools, capabilities=[Recorded(store)], retries=3)


def results(messages: list[ModelMessage]) -> list[tuple[Any, Any]]:
    """The results of tools in messages: what they say, and how they ended."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [(part.content, part.outcome) for part in parts if part.part_kind == "tool-return"]


async def kinds(session: flue_py.Session) -> list[str]:
    return [entry.role or entry.kind for entry in await session.get_active_path()]


async def test_a_conversation_goes_on_where_it_was_with_the_same_messages_and_one_bill(tmp_path: Path) -> None:
    def look(order: int) -> ToolReturn[Any]:
        return ToolReturn(return_value={"order": order}, content="A picture.", metadata={"took": 3})

    async def run(prompt: str, script: Script) -> list[ModelMessage]:
        async with flue_py.open(tmp_path / "a.db") as store:
            capabilities = [Recorded(store, agent="clerk")]
            agent = Agent(script.model, tools=[look], capabilities=capabilities, instructions="Be brief.")
            return (await agent.run(prompt, conversation_id="support-42")).all_messages()

    first = await run("Where?", Script([call("look", order=7)], said("Sent.")))
    script = Script(said("Still."))
    second = await run("Now?", script)
    assert second[:2] == first[:2]
    assert second[3] == first[3]
    result, beside = script.requests[0][2].parts
    assert (result.content, result.metadata, beside.content) == ({"order": 7}, {"took": 3}, "A picture.")
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.open_session("support-42")
        [row] = (await store.usage(session, group_by=("purpose", "agent"))).rows
        assert (row.group, row.calls, row.input, row.output) == ({"purpose": "turn", "agent": "clerk"}, 3, 30, 3)
        assert (await store.verify()).problems == []
    needs("pydantic-ai", "pydantic_ai.conversation_store")
    from flue_py.adapters.pydantic_ai import FlueConversationStore

    async with FlueConversationStore.open(tmp_path / "a.db") as conversations:
        loaded = await conversations.load("support-42")
        assert loaded is not None
        assert loaded.messages[-2:] == second[-2:]


async def test_an_answer_is_committed_before_its_tools_and_each_result_before_the_others_end(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store, flue_py.open(tmp_path / "a.db") as other:
        script = Script([call("first"), call("second", "b")], said("Done."))
        agent = Agent(script.model, capabilities=[Recorded(store)])
        seen: dict[str, list[str]] = {}

        async def path() -> list[str]:
            return await kinds(await other.open_session("c"))

        @agent.tool_plain
        async def first() -> str:
            seen["first"] = await path()
            return "1"

        @agent.tool_plain
        async def second() -> str:
            async with aclosing((await other.open_session("c")).watch(after=0)) as changes:
                async for _ in changes:
                    seen["second"] = await path()
                    if "toolResult" in seen["second"]:
                        break
            return "2"

        assert (await agent.run("Go.", conversation_id="c")).output == "Done."
        begun = ["user", "assistant", "agents.tool_call"]
        assert seen["first"][:3] == begun
        assert seen["second"] == [*begun, "agents.tool_call", "toolResult"]
        session = await store.open_session("c")
        assert await tool_calls(session) == []
        assert await kinds(session) == [*seen["second"], "toolResult", "assistant"]


def test_a_run_that_is_killed_at_any_commit_repeats_nothing_that_must_not_be(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.agents.kills", tmp_path], check=True, stdout=subprocess.PIPE, text=True
    )
    whole, *killed = map(json.loads, done.stdout.splitlines())
    assert whole["effects"] == ["look 7", "pay 7", "pay 8"]
    assert len(killed) == 17  # before and after each of eight commits, and one that nobody kills
    for state in killed:
        effects = [line for line in state["effects"] if line.startswith("pay")]
        assert len(effects) == len(set(effects))
        assert (state["paid"], state["problems"]) == (whole["paid"], [])
        unlike = [row for row in state["said"] if row not in whole["said"]]
        assert all(row[2] == MAY_HAVE_RUN for row in unlike)
        assert len(state["said"]) == len(whole["said"])
        assert len(effects) == 2 or unlike
    assert any(row[2] == MAY_HAVE_RUN for state in killed for row in state["said"])


@pytest.mark.parametrize(
    ("model", "path", "points"),
    [
        # Each kind of await once, by turns with the one provider and the other.
        (*OPENAI, ("0", "2")),
        (*ANTHROPIC, ("1", "2")),
        pytest.param(*OPENAI, ("", "5"), marks=pytest.mark.thorough),
        pytest.param(*ANTHROPIC, ("", "5"), marks=pytest.mark.thorough),
        pytest.param(*OPENAI, ("moments", "20"), marks=pytest.mark.thorough),
        pytest.param(*ANTHROPIC, ("moments", "20"), marks=pytest.mark.thorough),
    ],
)
def test_a_coding_task_that_is_killed_anywhere_ends_as_undisturbed_in_one_of_two_processes(
    model: str, path: str, points: tuple[str, str], tmp_path: Path
) -> None:
    needs("agents", "openai", "anthropic")
    with provider(coding.scripted) as server:
        place = [tmp_path, model, f"{server.url}{path}", *points]
        done = subprocess.run(
            [sys.executable, "-m", "tests.agents.coding", *place], check=True, stdout=subprocess.PIPE, text=True
        )
    whole, *killed = map(json.loads, done.stdout.splitlines())
    assert (whole["files"], whole["effects"]) == (coding.MENDED, ["begun", "done"])
    assert len(killed) > 2
    for state in killed:
        assert (state["files"], state["problems"]) == (whole["files"], [])
        assert coding.DONE in state["answers"]
        assert [answer for answer in state["answers"] if answer != coding.DONE and "SessionInUse" not in answer] == []
        assert len(state["effects"]) == len(set(state["effects"]))
        lost = [row[1] for row in state["said"] if row[2] == MAY_HAVE_RUN]
        # Each call that may have run was made by its model once more, or is one that nobody may make twice.
        again = [call_id for call_id in lost if not call_id.startswith("n")]
        assert len(state["said"]) == len(whole["said"]) + 2 * len(again)
        assert state["paid"] == [whole["paid"][0] // 5 * (5 + len(again)), whole["paid"][1] // 5 * (5 + len(again))]
        if not lost:
            # Results of one answer are stored as they come.
            assert sorted(map(str, state["said"])) == sorted(map(str, whole["said"]))
            assert state["effects"] == whole["effects"]


@inputs(
    "end, state, told",
    [
        (lambda: "fine", "done", ("fine", "success")),
        (lambda: _raise(ModelRetry("no")), "done", ("no", "retried")),
        (lambda: _raise(ToolFailed("gone")), "done", ("gone", "failed")),
        (lambda: _raise(ValueError("bad")), "failed", ("The call failed: ValueError: bad", "failed")),
        (lambda: _raise(Lost()), "began", (MAY_HAVE_RUN, "failed")),
        (object, "failed", ("The call failed: InvalidEntry", "failed")),
    ],
)
async def test_a_call_is_done_or_failed_or_may_have_run_and_the_next_run_knows(
    end: Callable[[], Any], state: str, told: tuple[str, str], tmp_path: Path
) -> None:
    runs: list[str] = []

    def act() -> Any:
        runs.append("act")
        return end()

    def look() -> str:
        return "seen" if is_second else _raise(Lost())

    is_second = False
    tools = [Tool(act, sequential=True), Tool(look, metadata={"may_repeat": True})]
    async with flue_py.open(tmp_path / "a.db") as store:
        first = recorded(store, Script([call("act"), call("look", "b")]), tools)
        with pytest.raises((Lost, ValueError)):
            await first.run("Go.", conversation_id="c", run_id="r")
        session = await store.open_session("c")
        calls = {row.tool: row for row in await tool_calls(session)}
        assert calls["act"].state == state
        is_second = True
        result = await recorded(store, Script(said("Ok.")), tools).run("Go.", conversation_id="c", run_id="r")
        prompts = [entry for entry in await session.get_active_path() if entry.role == "user"]
    assert runs.count("act") == 1
    assert len(prompts) == 1
    acted, looked = results(result.all_messages())
    assert str(acted[0]).startswith(told[0])
    assert acted[1] == told[1]
    assert looked == ("seen", "success")


async def test_a_retry_of_a_run_stores_nothing_twice_and_asks_nobody_when_it_has_ended(store: flue_py.Store) -> None:
    for name, output, answer in (("text", str, said("Yes.")), ("number", Number, [call("final_result", n=3)])):
        outputs = [
            (await recorded(store, script, output=output).run("Well?", conversation_id=name, run_id="r")).output
            for script in (Script(answer), Script())
        ]
        assert outputs == [Number(n=3)] * 2 if output is Number else outputs == ["Yes."] * 2
        session = await store.open_session(name)
        assert await kinds(session) == ["user", "assistant", "toolResult"][: 2 if output is str else 3]
    await recorded(store, Script(said("More."))).run("And?", conversation_id="text")
    with pytest.raises(InvalidArgument, match=r"run_id: session .* has gone on since run 'r'"):
        await recorded(store, Script()).run("Well?", conversation_id="text", run_id="r")
    history = [ModelRequest.user_text_prompt("x")]
    with pytest.raises(InvalidArgument, match=r"message_history: .* conversation_id"):
        await recorded(store, Script()).run("Well?", conversation_id="new", message_history=history)
    assert await store.backend.get_session_by_key("new", "") is None
    with pytest.raises(InvalidArgument, match="not an open store"):
        Recorded("a.db")  # type: ignore[arg-type]


async def test_a_new_prompt_comes_after_the_calls_that_are_open(store: flue_py.Store) -> None:
    runs: list[str] = []

    def look() -> str:
        runs.append("look")
        return "seen" if len(runs) > 1 else _raise(Lost())

    tools = [Tool(look, metadata={"may_repeat": True})]
    with pytest.raises(Lost):
        await recorded(store, Script([call("look")]), tools).run("Go.", conversation_id="c")
    script = Script(said("Ok."))
    await recorded(store, script, tools).run("Hurry.", conversation_id="c")
    assert [part.part_kind for part in script.requests[0][-1].parts] == ["tool-return", "user-prompt"]
    path = ["user", "assistant", "agents.tool_call", "agents.tool_call", "toolResult", "user", "assistant"]
    assert await kinds(await store.open_session("c")) == path

    # A run that was lost between those calls and its prompt has its prompt when it goes on.
    ends: list[Any] = ["found", Lost(), "found", Lost()]

    def find() -> str:
        return end if isinstance(end := ends.pop(), str) else _raise(end)

    tools.append(Tool(find, sequential=True, metadata={"may_repeat": True}))
    script = Script([call("find"), call("find", "b")])
    for run_id in ("first", "second"):
        with pytest.raises(Lost):
            await recorded(store, script, tools).run("Hurry.", conversation_id="e", run_id=run_id)
    script = Script(said("Ok."))
    await recorded(store, script, tools).run("Hurry.", conversation_id="e", run_id="second")
    assert [part.part_kind for part in script.requests[0][-1].parts] == ["tool-return"] * 2 + ["user-prompt"]

    # Somebody who speaks to the session before the next run does not wait for its calls.
    runs.clear()
    with pytest.raises(Lost):
        await recorded(store, Script([call("look")]), tools).run("Go.", conversation_id="d")
    await (await store.open_session("d")).append_message({"role": "user", "content": "Never mind."})
    script = Script(said("Ok."))
    await recorded(store, script, tools).run(conversation_id="d")
    assert [outcome for _, outcome in results(script.requests[0])] == ["interrupted"]
    assert runs == ["look"]


async def test_a_rewind_an_undo_and_a_fork_are_what_the_next_run_sees(store: flue_py.Store) -> None:
    for text in ("One.", "Two."):
        await recorded(store, Script(said(text))).run(text, conversation_id="c")
    session = await store.open_session("c")
    fork = await session.fork(key="f", at=session.leaf_id)
    await session.rewind(turns=1)
    seen = {}
    for name in ("c", "f"):
        script = Script(said("Three."))
        await recorded(store, script).run("Three.", conversation_id=name)
        seen[name] = [part.content for message in script.requests[0] for part in message.parts]
    assert seen == {"c": ["One.", "One.", "Three."], "f": ["One.", "One.", "Two.", "Two.", "Three."]}
    await session.refresh()
    assert (await store.usage(session)).total.output == 3  # the answer that was left was paid for
    assert (await store.usage(fork)).total.output == 1


async def test_streamed_runs_are_stored_as_well_and_an_answer_that_breaks_is_kept_as_that(store: flue_py.Store) -> None:
    async def look() -> str:
        return "seen"

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall("look", "{}", tool_call_id="a")}
            return
        yield "Half"
        if sum("Half" in str(message) for message in messages) == 0 and breaks:
            raise ConnectionError("it broke")
        yield " and half."

    def whole(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=said("Half and half."))

    agent = Agent(FunctionModel(whole, stream_function=stream), tools=[look], capabilities=[Recorded(store)])
    for name, breaks in (("whole", False), ("broken", True)):
        try:
            async with agent.run_stream("Go.", conversation_id=name) as streamed:
                assert await streamed.get_output() == "Half and half."
        except ConnectionError:
            assert name == "broken"
        session = await store.open_session(name)
        path = await session.get_active_path()
        assert (await kinds(session))[-4:] == ["assistant", "agents.tool_call", "toolResult", "assistant"]
        assert path[-1].fields.get("stopReason") == ("aborted" if breaks else None)
    breaks = False
    async with agent.iter(conversation_id="broken") as run:
        async for node in run:
            if isinstance(node, CallToolsNode):
                async with node.stream(run.ctx) as events:
                    assert [event async for event in events] == []
    assert run.result is not None
    assert run.result.output == "Half and half."
    assert [message.kind for message in run.result.all_messages()] == ["request", "response"] * 2
    assert (await kinds(session))[-2:] == ["assistant", "assistant"]


async def test_a_call_that_waits_for_a_person_is_made_once_they_have_answered(store: flue_py.Store) -> None:
    runs: list[str] = []

    def act(ctx: RunContext[None]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        runs.append("act")
        return _raise(Lost()) if len(runs) == 2 else "acted"

    output: Any = [str, DeferredToolRequests]
    tools = [Tool(act, sequential=True), look_at]
    first = recorded(store, Script([call("act"), call("look_at", "b"), call("act", "c")]), tools, output)
    requests = (await first.run("Go.", conversation_id="c")).output
    session = await store.open_session("c")
    assert [row.state for row in await tool_calls(session)] == ["deferred", "done", "deferred"]
    approved = DeferredToolResults(approvals={request.tool_call_id: True for request in requests.approvals})
    script = Script(said("Ok."))
    # The same results may come again, after a crash and behind the end.
    for ends in (False, True, True):
        with nullcontext() if ends else pytest.raises(Lost):
            again = recorded(store, script, tools, output)
            result = await again.run(conversation_id="c", run_id="r", deferred_tool_results=approved)
            assert result.output == "Ok."
    assert results(result.all_messages()) == [("acted", "success"), ("seen", "success"), (MAY_HAVE_RUN, "failed")]
    assert runs == ["act", "act"]
    assert (await store.verify()).problems == []


async def test_an_approval_is_of_one_call_and_not_of_a_later_one_with_its_id(store: flue_py.Store) -> None:
    runs: list[int] = []

    def act(ctx: RunContext[None], n: int) -> None:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        runs.append(n)

    output: Any = [str, DeferredToolRequests]
    await recorded(store, Script([call("act", "a", n=1)]), [act], output).run("Go.", conversation_id="c")
    approved = DeferredToolResults(approvals={"a": True})
    for script in (Script([call("act", "a", n=2)]), Script(said("End."))):
        agent = recorded(store, script, [act], output)
        await agent.run(conversation_id="c", run_id="r", deferred_tool_results=approved)
    assert runs == [1]


async def test_calls_may_have_the_ids_of_those_of_earlier_answers(store: flue_py.Store) -> None:
    answers = ([call("look_at")], [call("look_at")], [call("final_result", n="x")], [call("final_result", n=1)])
    for _ in range(2):
        await recorded(store, Script(*answers), [look_at], Number).run("Go.", conversation_id="c")
    session = await store.open_session("c")
    looked, output = ["assistant", "agents.tool_call", "toolResult"], ["assistant", "toolResult"]
    assert await kinds(session) == ["user", *looked * 2, *output * 2] * 2
    assert (await store.usage(session)).total.calls == 8


async def test_a_run_whose_session_others_have_moved_ends_before_its_next_step(store: flue_py.Store) -> None:
    runs: list[str] = []

    async def move() -> str:
        session = await store.open_session("c")
        await session.append_message({"role": "user", "content": "Stop."})
        return "moved"

    def act() -> None:
        runs.append("act")

    script = Script([call("move"), call("act", "b")])
    agent = recorded(store, script, [Tool(move, sequential=True), Tool(act, sequential=True)])
    with pytest.raises(LeafConflict):
        await agent.run("Go.", conversation_id="c")
    assert runs == []


async def test_a_budget_is_asked_before_each_call_and_settled_with_what_the_answer_says(store: flue_py.Store) -> None:
    session = await store.open_session("c", mode="create")
    budgets = [await store.set_budget(session, tokens=10_000), await store.set_budget(session, cost="0.50")]
    script = Script([call("look_at")], said("Ok."))
    script.cost = Decimal("0.20")
    await recorded(store, script, [look_at]).run("Go.", conversation_id="c")
    spent = [await store.get_budget(budget.id) for budget in budgets]
    assert [(budget.spent, budget.reserved) for budget in spent if budget] == [(22, 0), (400_000_000_000, 0)]
    [row] = (await store.usage(session, group_by=("agent",))).rows
    assert (row.calls, row.total_tokens, row.picodollars) == (2, 22, 400_000_000_000)

    await store.set_budget(session, tokens=23)
    refused = Script()
    with pytest.raises(BudgetExceeded):
        await recorded(store, refused).run("More.", conversation_id="c")
    assert refused.requests == []
    assert (await kinds(session))[-1] == "user"  # nothing that was said is lost
    await store.set_budget(session, tokens=10_000)

    def fail(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(statuses.pop(0), "script")

    statuses = [429, 500]
    for tokens in (22, None):
        agent = Agent(FunctionModel(fail), capabilities=[Recorded(store, retry_seconds=())])
        with pytest.raises(ModelHTTPError):
            await agent.run(conversation_id="c")
        left = await store.get_budget(budgets[0].id)
        assert left is not None
        assert left.reserved == 0
        assert left.spent == 22 if tokens else left.spent > 22  # what may have been paid counts as reserved


async def test_a_second_run_of_a_session_is_told_and_a_run_elsewhere_that_ended_is_taken_over(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store, flue_py.open(tmp_path / "a.db") as other:

        async def again() -> str:
            with pytest.raises(SessionInUse, match="an agent runs in it, in process"):
                await recorded(other, Script()).run("Me, too.", conversation_id="c")
            return "told"

        result = await recorded(store, Script([call("again")], said("Ok.")), [again]).run("Go.", conversation_id="c")
        assert results(result.all_messages()) == [("told", "success")]
        session = await store.open_session("c")
        assert session.metadata[LEASE] is None
        behind = await other.open_session("c")

        async def lose() -> str:
            # As if this were another machine, which has said nothing for long.
            stored = dict((await stored_row(session)).metadata[LEASE])  # type: ignore[arg-type]
            await session.set_metadata({LEASE: {**stored, "host": "elsewhere", "at": 0}}, merge=True)
            await recorded(other, Script(said("Mine."))).run("Now I.", conversation_id="c")
            return "late"

        with pytest.raises(LeafConflict):
            await recorded(store, Script([call("lose", "b")]), [lose]).run("Go on.", conversation_id="c")
        taken = ["user", "assistant", "agents.tool_call", "agents.taken_over", "toolResult", "user", "assistant"]
        assert (await kinds(await store.open_session("c")))[-7:] == taken
        # A run builds on the session as it is stored, whatever its handle saw last.
        late = Agent(Script(said("Here.")).model, capabilities=[Recorded(other, behind)])
        assert (await late.run("And now?")).output == "Here."
