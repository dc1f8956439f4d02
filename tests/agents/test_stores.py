"""The capabilities of pydantic-ai-harness on sessions: its steps, search, spending, and results that are put aside."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("agents", "pydantic_ai_harness.step_persistence")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.conversation_search import ConversationSearch
from pydantic_ai_harness.media import MediaContext
from pydantic_ai_harness.spend import Budget, SpendEntry, SpendLimitExceeded, SpendLimits
from pydantic_ai_harness.step_persistence import StepEvent, StepPersistence, continue_run
from pydantic_ai_harness.tool_output_limits import Band, Spill, ToolOutputLimits
from pydantic_core import to_jsonable_python

import flue_py
from flue_py.agents import Recorded
from flue_py.agents.stores import HarnessStore, SessionHistory
from flue_py.errors import CorruptStore, InvalidArgument, SessionExists
from tests.tables import inputs


class Lost(BaseException):
    """The end of a process, for whoever is in it."""


def calls(*answers: Any) -> FunctionModel:
    """Return a model with these answers: texts, and tools with their arguments."""
    left = [*answers]

    def answer(*_: Any) -> ModelResponse:
        said = left.pop(0)
        part = TextPart(said) if isinstance(said, str) else ToolCallPart(*said, f"call-{len(left)}")
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=10, output_tokens=1), model_name="script")

    return FunctionModel(answer, model_name="script")


def look(order: int) -> str:
    if order == 13:
        raise Lost("x" * 30_000)
    return f"order {order} was sent"


def list_all() -> str:
    return "\n".join(f"line {number}" for number in range(200))


def returned(result: Any) -> list[Any]:
    parts = [part for message in result.new_messages() for part in message.parts]
    return [part.content for part in parts if part.part_kind == "tool-return"]


class Noting(HarnessStore):
    """The stores, which note what they are given."""

    def __init__(self, store: flue_py.Store) -> None:
        super().__init__(store)
        self.snapshots: list[Any] = []
        self.events: list[Any] = []

    async def save_snapshot(self, snapshot: Any) -> None:
        self.snapshots.append(snapshot)
        # A retry is not another snapshot.
        for _ in range(2):
            await super().save_snapshot(snapshot)

    async def append_event(self, event: Any) -> None:
        self.events.append(event)
        for _ in range(2):
            await super().append_event(event)


def untimed(value: Any) -> Any:
    """Return a snapshot without the fields of messages that are those of a session."""
    if isinstance(value, list):
        return [*map(untimed, value)]
    if isinstance(value, dict):
        return {
            name: untimed(field) for name, field in value.items() if name not in ("timestamp", "run_id", "instructions")
        }
    return value


@inputs("is_recorded", [False, True])
async def test_steps_come_back_as_they_were_and_no_message_is_stored_twice(tmp_path: Path, is_recorded: bool) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        kept = Noting(store)
        capabilities: list[Any] = [StepPersistence(store=kept, metadata={"a": "\0"})]
        if is_recorded:
            capabilities.append(Recorded(store))
        model = calls(("look", {"order": 7}), ("look", {"order": 8}), "Sent.")
        agent = Agent(model, tools=[look], capabilities=capabilities, instructions="Be brief.")
        result = await agent.run("Where?", conversation_id="c", run_id="r")
        elsewhere = HarnessStore(store)
        latest = await elsewhere.latest_snapshot(run_id="r")
        if is_recorded:
            assert untimed(to_jsonable_python(latest)) == untimed(to_jsonable_python(kept.snapshots[-1]))
        else:
            assert latest == kept.snapshots[-1]
            assert latest.messages == result.all_messages()
        assert await elsewhere.list_events(run_id="r") == kept.events
        assert await elsewhere.list_unresolved_tool_effects(run_id="r") == []
        run = await store.open_session("pydantic-ai-run:r")
        texts = "".join(entry.payload for entry in await run.get_tree())
        assert texts.count("order 7 was sent") == (0 if is_recorded else 1)
        [record] = await elsewhere.list_runs(conversation_id="c")
        assert (record.run_id, record.metadata) == ("r", {"a": "\0"})
        assert await elsewhere.get_run(run_id="r") == record
        assert await elsewhere.list_runs(parent_run_id="r") == []
        trimmed = replace(kept.snapshots[-1], messages=result.all_messages()[2:], idempotency_key=None)
        for snapshot in (trimmed, replace(trimmed, messages=[], state="interrupted")):
            await elsewhere.save_snapshot(snapshot)
        latest = [await kept.latest_snapshot(run_id="r", include_interrupted=flag) for flag in (False, True)]
        assert latest == [trimmed, replace(trimmed, messages=[], state="interrupted")]
        tenant = store.in_scope("t")
        assert [*await HarnessStore(tenant).list_runs(), *await SessionHistory(tenant).list_runs()] == []
        assert (await store.verify()).problems == []
        # A run that is deleted and made again shares nothing with what it was.
        for step in (7, 8):
            await store.delete_session_tree(await store.open_session("pydantic-ai-run:r"))
            await elsewhere.save_snapshot(again := replace(trimmed, step_index=step))
        assert await kept.latest_snapshot(run_id="r") == again


async def test_what_was_redacted_or_damaged_and_sessions_of_somebody_else_are_named(store: flue_py.Store) -> None:
    parent = await store.create_session(key="conversation")
    ours = HarnessStore(store, parent)
    failed = StepEvent(run_id="r", kind="run_failed", step_index=0, error="bad \0 \ud800")
    await ours.append_event(failed)
    assert [link.summary for link in await parent.tasks.links()] == ["bad  \ufffd"]
    run = await store.open_session("pydantic-ai-run:r")
    await run.redact((await run.get_tree())[0].id, why="x")
    assert await ours.list_events(run_id="r") == []
    await run.append_custom("pydantic_ai.tool_effect", {"run_id": "r"}, on_conflict="rebase")
    await store.create_session(key="pydantic-ai-media")
    with pytest.raises(CorruptStore, match="ToolEffectRecord"):
        await ours.list_unresolved_tool_effects(run_id="r")
    with pytest.raises(InvalidArgument, match="run_id"):
        await ours.append_event(replace(failed, run_id=None))
    with pytest.raises(InvalidArgument, match="session: 'x'"):
        HarnessStore(store, "x")
    with pytest.raises(SessionExists, match="pydantic-ai-media"):
        await ours.put(b"x")


async def test_a_run_that_was_killed_goes_on_elsewhere_and_goes_with_its_conversation(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        ours = HarnessStore(store)
        script = (("look", {"order": 7}), ("look", {"order": 13}))
        capabilities = [Recorded(store), StepPersistence(store=ours)]
        with pytest.raises(Lost):
            await Agent(calls(*script), tools=[look], capabilities=capabilities).run(
                "Go.", conversation_id="c", run_id="r"
            )
    async with flue_py.open(tmp_path / "a.db") as store:
        ours = HarnessStore(store)
        [effect] = await ours.list_unresolved_tool_effects(run_id="r")
        assert (effect.tool_name, effect.status) == ("look", "started")
        for number in range(1, 45):
            await ours.record_tool_effect(replace(effect, tool_call_id=f"call-{number}"))
        assert effect == await ours.get_tool_effect(run_id="r", tool_call_id="call-0")
        assert await ours.get_tool_effect(run_id="r", tool_call_id="call-45") is None
        session = await store.open_session("c")
        [link] = await session.tasks.links()
        assert (link.status, len(link.summary or "")) == ("failed", 2_000)
        result = next(entry for entry in await session.get_active_path() if entry.role == "toolResult")
        await session.redact(result.id, why="x")
        await session.rewind(turns=1)
        history = await continue_run(ours, run_id="r")
        assert [message.kind for message in history] == ["request", "response", "request"]
        assert "redacted" in history[2].parts[0].content
        fork = await session.fork(key="d")
        await Agent(calls("Sent."), capabilities=[StepPersistence(store=ours)]).run(
            "And?", message_history=history, conversation_id="e", run_id="s"
        )
        assert len(await continue_run(ours, run_id="s")) == 5
        await store.delete_session_tree(session)
        assert await ours.get_run(run_id="r") is None
        assert [run.run_id for run in await ours.list_runs()] == ["s"]
        assert await store.get_session(fork.id) is not None


async def test_a_search_reads_recorded_conversations_also_what_was_compacted_and_no_other_session(
    store: flue_py.Store,
) -> None:
    search = ConversationSearch(source=SessionHistory(store), scope="conversation", context_lines=0)
    script = ("It is in the attic.", "Gone.", ("search_conversation_history", {"query": "attic"}), "Found.")
    agent = Agent(calls(*script), capabilities=[Recorded(store), search])
    for conversation_id in ("c", "other"):
        await agent.run(f"Where is the attic key of {conversation_id}?", conversation_id=conversation_id)
    session = await store.open_session("c")
    path = await session.get_active_path()
    await session.append_compaction("Keys were sought.", first_kept_entry_id=path[-1].id, tokens_before=9)
    foreign = await store.create_session(key="foreign")
    await foreign.append_message({"role": "user", "content": "The attic."})
    await HarnessStore(store).put(b"attic")
    [text] = returned(await agent.run("Search.", conversation_id="c"))
    assert "attic key of c" in text
    assert "It is in the attic." in text
    assert "other" not in text
    history = SessionHistory(store)
    assert [run.conversation_id for run in await history.list_runs()] == ["c", "other", "foreign"]
    assert [await history.run_history(run_id=run_id) for run_id in (foreign.id, "missing")] == [[], []]


async def test_spending_is_refused_at_its_limit_in_any_process_and_counted_once(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store, flue_py.open(tmp_path / "a.db") as other:
        ours, theirs = (HarnessStore(each) for each in (store, other))
        budget = Budget(tokens=15, window="total")
        limited = SpendLimits(budgets=[budget], store=ours)
        agent = Agent(calls("One.", "Two."), capabilities=[limited])
        await agent.run("Go.")
        await agent.run("Go.")
        with pytest.raises(SpendLimitExceeded):
            await Agent(calls("Three."), capabilities=[SpendLimits(budgets=[budget], store=theirs)]).run("Go.")
        [spent] = (await theirs.get_many(["default|total|*|total"])).values()
        assert (spent.tokens, spent.requests, spent.unpriced_requests, spent.usd) == (22, 2, 2, 0)

        def entry(usd: str, key: str = "k", token: str | None = None) -> SpendEntry:
            return SpendEntry(key=key, usd=Decimal(usd), tokens=1, requests=1, token=token)

        writers = [(ours, theirs)[number % 2].add_many([entry("0.1"), entry("1e-30", "l")]) for number in range(8)]
        await asyncio.gather(*writers)
        again = [entry("5", token="t"), entry("5", token="t"), entry("7", "l", "t")]
        assert await ours.add_many(again) == await theirs.add_many(again) == await theirs.get_many(["k", "l"])
        sums = await ours.get_many(["k", "l", "never"])
        amounts = [Decimal("5.8"), Decimal("7." + "8".zfill(30)), 0]
        assert [(spent.usd, spent.tokens) for spent in sums.values()] == [*zip(amounts, (9, 9, 0), strict=True)]
        for refused, words in ((entry("NaN"), "window 'k'"), (SpendEntry(key="k", usd=1.5), "Decimal")):
            with pytest.raises(InvalidArgument, match=words):
                await ours.add_many([entry("1", "l"), refused])
        assert [info.key for info in (await store.list_sessions()).sessions if not info.is_aside] == []
        assert (await store.list_sessions(completed=False)).sessions == ()
        assert await theirs.get_many(["k", "l"]) == {name: sums[name] for name in ("k", "l")}


async def test_a_long_result_is_put_aside_beside_the_conversation_and_read_back(store: flue_py.Store) -> None:
    ours = HarnessStore(store)
    limits = ToolOutputLimits(store=ours, bands=[Band(over=100, action=Spill(preview_chars=10))])
    agent = Agent(
        calls(("list_all", {}), ("read_tool_result", {"handle": "r/call-2.0", "pattern": "line 77"}), "Done."),
        tools=[list_all],
        capabilities=[Recorded(store), limits],
    )
    result = await agent.run("Go.", conversation_id="c", run_id="r")
    stub, line = returned(result)
    assert "r/call-2.0" in stub
    assert len(stub) < 500
    assert "line 77" in line
    assert await ours.read("r/call-2.0") == list_all().encode()
    await ours.write("r/call-2.0", binary := bytes(range(256)))
    assert await ours.read("r/call-2.0") == binary
    await store.delete_session_tree(await store.open_session("c"))
    with pytest.raises(FileNotFoundError, match=r"'r/call-2\.0'"):
        await ours.read("r/call-2.0")


async def test_media_are_stored_once_and_named_where_they_are_missing(store: flue_py.Store) -> None:
    ours = HarnessStore(store)
    data = bytes(range(256)) * 400
    about = MediaContext(media_type="image/png", metadata={"a": "\0"})
    uris = await asyncio.gather(*(ours.put(data, context=about) for _ in range(3)))
    assert len({*uris, await ours.put(data)}) == 1
    assert (await ours.get(uris[0]), await ours.get_metadata(uris[0])) == (data, {"a": "\0"})
    assert await ours.exists(uris[0])
    assert await ours.public_url(uris[0]) is None
    media = await store.open_session("pydantic-ai-media")
    assert len(await media.get_tree()) == 1
    other = await ours.put(b"secret")
    await media.redact((await media.get_tree())[1].id, why="x")
    assert not await ours.exists(other)
    with pytest.raises(InvalidArgument, match="redacted"):
        await ours.put(b"secret")
    with pytest.raises(FileNotFoundError, match="put"):
        await ours.get_metadata(other)
    await store.delete_session_tree(media)
    assert not await ours.exists(uris[0])
    with pytest.raises(FileNotFoundError, match="put"):
        await ours.get(uris[0])
    with pytest.raises(ValueError, match="passwd"):
        await ours.exists("file:///etc/passwd")
