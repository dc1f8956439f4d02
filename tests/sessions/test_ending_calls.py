"""A compaction on demand ends the call of the model that runs, keeps what that has cost, and leaves a true session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import flue_py
from flue_py import AbortedToCompact, ModelAborted, ModelUnavailable, Session, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.guard import CompactionGuard, GuardAnswer
from flue_py.compaction import CompactionSettings
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from tests.checks import raises
from tests.files import new_store_file
from tests.sessions.guarded import SETTINGS, answer, events, guard_of, model, talk, wrong_results
from tests.sessions.talk import user
from tests.values import existing

CALL: JsonObject = {"input": 700, "output": 5, "provider": "house", "model": "small", "callId": "call-7"}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    if request.param == "trio":
        pytest.importorskip("trio")
    return str(request.param)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    target = ":memory:" if request.param == "memory" else str(new_store_file(tmp_path / "sessions.db"))
    async with flue_py.open(target, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: Store) -> Session:
    made = await store.create_session(key="triage")
    await talk(made, 12)
    return made


class Asked:
    """A model that never answers; ``seen`` is what happened, in order, ``error`` what the caller of the call got."""

    def __init__(self) -> None:
        self.waits = anyio.Event()
        self.seen: list[str] = []
        self.error: Exception | None = None
        self.result: object = None

    async def ask(self, _: list[JsonObject]) -> str:
        self.waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.seen.append("ended")
        raise AssertionError

    async def caught(self, work: object) -> None:
        try:
            self.result = await work  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        self.seen.append("told")

    def summarizing(self) -> FunctionModel:
        def said(request: ModelRequest) -> str:
            self.seen.append(f"summary, {request.purpose}")
            return "what was said"

        return model(said)


async def demanded(guard: CompactionGuard, asked: Asked, **given: bool) -> GuardAnswer:
    """Compact on demand while a call waits for its model, and return when that has ended."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(asked.ask))
        await asked.waits.wait()
        return await guard.compact("mind the numbers", **given)
    raise AssertionError


async def test_a_call_is_ended_before_the_session_is_compacted(session: Session, store: Store) -> None:
    asked = Asked()
    guard = guard_of(store, session, asked.summarizing(), window=100_000)
    await session.append_message(user("and now?"))
    done = await demanded(guard, asked)
    assert (done.outcome, done.decision.trigger) == ("compacted", "demand")
    assert asked.seen[0] == "ended"
    assert set(asked.seen[1:]) == {"told", "summary, compaction"}
    assert isinstance(asked.error, AbortedToCompact)
    assert asked.error.call is None
    assert "could be compacted; call again" in str(asked.error)
    context = await session.build_context()
    assert context[-1]["content"] == "and now?"
    assert wrong_results(context) == []
    assert [text.partition(":")[0].partition(",")[0] for text in await events(session)] == [
        "ended a running call of the model",
        "compacting",
        "compacted",
    ]
    assert (await store.usage(session, purpose="turn")).total.calls == 0

    async def fine(_: list[JsonObject]) -> str:
        return "fine"

    assert await guard.call(fine) == "fine"


async def test_what_the_call_has_cost_is_kept_if_it_is_known(session: Session, store: Store) -> None:
    asked = Asked()

    async def tells(_: list[JsonObject]) -> str:
        try:
            return await asked.ask([])
        except anyio.get_cancelled_exc_class():
            raise ModelAborted("ended", provider="house", model="small", call=CALL) from None

    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(tells))
        await asked.waits.wait()
        assert (await guard.compact()).outcome == "compacted"
        total = (await store.usage(session, purpose="turn")).total
    assert isinstance(asked.error, AbortedToCompact)
    assert isinstance(asked.error.__cause__, ModelAborted)
    assert asked.error.call == CALL
    assert (total.calls, total.input) == (1, 700)
    (row,) = (await store.usage(session, group_by=("outcome",), purpose="turn")).rows
    assert row.group == {"outcome": "aborted"}
    # Who books what errors say of calls counts it once.
    await session.money.record_call(
        {"input": 700, "output": 5}, provider="house", model="small", call_id="call-7", outcome="aborted"
    )
    assert (await store.usage(session, purpose="turn")).total.calls == 1


async def test_an_answer_that_comes_all_the_same_is_not_lost(session: Session, store: Store) -> None:
    asked = Asked()

    async def stubborn(_: list[JsonObject]) -> str:
        with anyio.CancelScope(shield=True):
            asked.waits.set()
            while not scopes:
                await anyio.lowlevel.checkpoint()
        return "the whole answer"

    scopes: list[str] = []
    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(stubborn))
        await asked.waits.wait()

        async def compacts() -> None:
            assert (await guard.compact()).outcome == "compacted"

        tasks.start_soon(compacts)
        await anyio.lowlevel.checkpoint()
        scopes.append("go on")
    assert asked.result == "the whole answer"


async def test_a_part_of_an_answer_that_was_stored_stays(session: Session, store: Store) -> None:
    asked = Asked()

    async def keeps(_: list[JsonObject]) -> str:
        try:
            return await asked.ask([])
        finally:
            with anyio.CancelScope(shield=True):
                await session.append_message(
                    answer("as far as I", stopReason="aborted", usage={"input": 9, "output": 3})
                )

    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(keeps))
        await asked.waits.wait()
        assert (await guard.compact()).outcome == "compacted"
    assert "as far as I" in str((await session.build_context())[-1])
    assert (await store.usage(session, purpose="turn")).total.input == 9


async def test_without_abort_the_call_goes_on(session: Session, store: Store) -> None:
    asked, goes_on = Asked(), anyio.Event()

    async def slow(_: list[JsonObject]) -> str:
        asked.waits.set()
        await goes_on.wait()
        return "fine"

    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(slow))
        await asked.waits.wait()
        assert (await guard.compact(abort=False)).outcome == "compacted"
        goes_on.set()
    assert asked.result == "fine"
    assert len(await events(session)) == 2


async def test_whoever_compacts_from_within_a_call_does_not_wait_for_it(session: Session, store: Store) -> None:
    guard = guard_of(store, session, window=100_000)

    async def ask(_: list[JsonObject]) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guard.compact)
        return "fine"

    assert await guard.call(ask) == "fine"
    assert await session.compactions.latest() is not None


async def test_a_task_that_is_cancelled_itself_is_just_that(session: Session, store: Store) -> None:
    asked = Asked()
    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(asked.ask))
        await asked.waits.wait()
        tasks.cancel_scope.cancel()
    assert asked.seen == ["ended"]
    assert (await guard.compact()).outcome == "compacted"
    assert len(await events(session)) == 2


async def test_an_error_of_another_kind_is_raised_as_it_is(session: Session, store: Store) -> None:
    asked = Asked()

    async def breaks(_: list[JsonObject]) -> str:
        try:
            return await asked.ask([])
        finally:
            raise OSError("the connection broke")

    guard = guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, guard.call(breaks))
        await asked.waits.wait()
        assert (await guard.compact()).outcome == "compacted"
    assert isinstance(asked.error, OSError)


async def test_a_conversation_ends_its_turn_and_keeps_the_question(session: Session, store: Store) -> None:
    asked = Asked()
    conversation = Conversation(store, session)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, conversation.take_turn("and now?", asked.ask))  # type: ignore[arg-type]
        await asked.waits.wait()
        planned = await conversation.compact(asked.summarizing(), settings=SETTINGS, dry_run=True)
        assert (planned.reason, asked.seen) == ("dry_run", [])
        done = await conversation.compact(asked.summarizing(), settings=SETTINGS)
    assert done.reason is None
    assert isinstance(asked.error, AbortedToCompact)
    assert asked.seen[0] == "ended"
    assert (await session.build_context())[-1]["content"] == "and now?"
    assert existing(await conversation.retry()).text == "and now?"
    assert await session.compactions.latest() is None


async def test_a_guard_ends_the_turn_of_a_conversation(session: Session, store: Store) -> None:
    asked = Asked()
    conversation, guard = Conversation(store, session), guard_of(store, session, window=100_000)
    async with anyio.create_task_group() as tasks:
        turn = conversation.take_turn("and now?", lambda _: guard.call(asked.ask))  # type: ignore[arg-type,return-value]
        tasks.start_soon(asked.caught, turn)
        await asked.waits.wait()
        assert (await guard.compact()).outcome == "compacted"
    assert isinstance(asked.error, AbortedToCompact)
    assert (await session.build_context())[-1]["content"] == "and now?"


async def test_a_turn_that_is_cancelled_or_fails_takes_its_message_back(session: Session, store: Store) -> None:
    asked = Asked()
    conversation = Conversation(store, session)
    before = await session.build_context()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.caught, conversation.take_turn("and now?", asked.ask))  # type: ignore[arg-type]
        await asked.waits.wait()
        tasks.cancel_scope.cancel()
    assert await session.build_context() == before

    async def fails(_: list[JsonObject]) -> list[JsonObject]:
        raise ModelUnavailable("down")

    await raises(ModelUnavailable, conversation.take_turn("and now?", fails))
    assert await session.build_context() == before


async def test_a_summary_that_is_being_made_for_the_call_is_given_up(session: Session, store: Store) -> None:
    asked, small = Asked(), CompactionSettings(keep_recent_tokens=285, user_words_share=0)

    async def summarize(_: ModelRequest) -> str:
        if asked.waits.is_set():
            return "what was said"
        asked.waits.set()
        await anyio.sleep_forever()
        raise AssertionError

    await talk(session, 8)
    guard = guard_of(store, session, FunctionModel(summarize, "small", context_window=200_000), settings=small)
    done = await demanded(guard, asked)
    assert done.outcome == "compacted"
    assert isinstance(asked.error, AbortedToCompact)
    assert [text.partition(":")[0].partition(",")[0] for text in await events(session)] == [
        "compacting", "given up", "ended a running call of the model", "compacting", "compacted",
    ]  # fmt: skip
