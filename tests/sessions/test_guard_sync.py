"""A guard without `await`: the same decisions, the same recovery, and functions that block."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread
import pytest

from flue_py import ContextOverflow, InvalidArgument, JsonObject, sync
from flue_py.agents.guard import BY, GuardAnswer
from flue_py.compaction.material import AboutToCompact, Cancelled
from flue_py.core.model import FunctionModel, ModelRequest
from tests.files import new_store_file
from tests.postgres import NewDatabase
from tests.sessions.guarded import SETTINGS, WINDOW, answer, model, summary
from tests.sessions.talk import user


@pytest.fixture(params=["sqlite", "threads", pytest.param("postgres", marks=pytest.mark.thorough)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        target = new_database()
    else:
        target = str(new_store_file(tmp_path / "sessions.db"))
    with sync.open(target, durability="normal", threads=True if request.param == "threads" else None) as opened:
        yield opened
        assert opened.verify().problems == []


@pytest.fixture
def session(store: sync.Store) -> sync.Session:
    return store.create_session(key="triage")


def guard_of(
    store: sync.Store, session: sync.Session, of: FunctionModel | None = None, **given: object
) -> sync.CompactionGuard:
    return sync.CompactionGuard(store, session, of or summary(), **{"settings": SETTINGS, "window": WINDOW, **given})  # type: ignore[arg-type]


def talk(session: sync.Session, turns: int) -> None:
    for number in range(turns):
        said = [user(f"question {number} " + "q" * 120), answer(f"answer {number} " + "a" * 120)]
        session.append_messages(said)


def compactions(session: sync.Session) -> int:
    return sum(entry.kind == "compaction" for entry in session.get_active_path())


def test_it_compacts_what_is_due_and_no_more(store: sync.Store, session: sync.Session) -> None:
    told: list[GuardAnswer] = []
    guard = guard_of(store, session, on_answer=told.append)
    assert (guard.store, guard.session) == (store, session)
    talk(session, 20)
    assert guard.should_compact()
    assert guard.decide().trigger == "tokens"
    assert guard.before_call().outcome == "compacted"
    assert [each.outcome for each in told] == ["compacting", "compacted"]
    assert guard.after_call().outcome == guard.resumed().outcome == "nothing"
    guard.request("mind the numbers")
    assert guard.state().wanted == "mind the numbers"
    talk(session, 3)
    assert guard.before_call().decision.trigger == "agent_requested"
    guard.reset()
    assert guard.state().attempts == ()
    assert [line.by for line in session.log()].count(BY) == 6


def test_an_overflow_is_recovered_from(store: sync.Store, session: sync.Session) -> None:
    talk(session, 12)
    guard = guard_of(store, session, window=100_000)
    seen: list[int] = []

    def ask(context: list[JsonObject]) -> str:
        seen.append(len(context))
        if len(context) > 20:
            session.append_message({"role": "assistant", "content": [], "stopReason": "error"})
            raise ContextOverflow("too long", tokens=1_000, window=600)
        return session.append_message(answer("fine")).entry_id

    assert guard.call(ask) == session.leaf_id
    assert seen[0] == 24
    assert seen[1] < 20
    assert compactions(session) == 1
    assert all(entry.fields.get("stopReason") != "error" for entry in session.get_active_path())
    assert any(line.what == "retract" and line.by == BY for line in session.log())


def test_an_overflow_waits_for_a_compaction_on_another_thread(store: sync.Store, session: sync.Session) -> None:
    talk(session, 20)
    asked, goes_on = Event(), Event()

    async def summarize(_: ModelRequest) -> str:
        asked.set()
        # With an event loop for the store, whoever blocks here blocks everybody.
        await anyio.to_thread.run_sync(goes_on.wait)
        return "short"

    def never(_: ModelRequest) -> str:
        raise AssertionError

    calls: list[int] = []

    def ask(context: list[JsonObject]) -> str:
        calls.append(len(context))
        if len(calls) > 1:
            return "fine"
        goes_on.set()
        raise ContextOverflow("too long")

    other = store.open_session("triage")
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(guard_of(store, session, FunctionModel(summarize, "small")).before_call)
        asked.wait()
        second = guard_of(store, other, model(never))
        assert second.before_call().outcome == "elsewhere"
        assert second.call(ask) == "fine"
        assert first.result().outcome == "compacted"
    assert calls[1] < calls[0] == 40
    session.refresh()
    assert compactions(session) == 1


def test_a_call_that_blocks_is_waited_for(store: sync.Store, session: sync.Session) -> None:
    talk(session, 12)
    asked, goes_on = Event(), Event()
    seen: list[str] = []

    def ask(_: list[JsonObject]) -> str:
        asked.set()
        goes_on.wait()
        seen.append("answered")
        return "fine"

    def hook(about: AboutToCompact) -> None:
        seen.append(f"{about.trigger} in {session.key}")

    guard = guard_of(store, session, window=100_000, before_compaction=hook)
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(guard.call, ask)
        asked.wait()
        compacting = threads.submit(guard.compact)
        goes_on.set()
        assert call.result() == "fine"
        assert compacting.result().outcome == "compacted"
    assert seen == ["answered", "demand in triage"]


def test_a_call_may_compact(store: sync.Store, session: sync.Session) -> None:
    talk(session, 12)
    guard = guard_of(store, session, window=100_000)
    assert guard.call(lambda _: guard.compact().outcome) == "compacted"


def test_ctrl_c_in_a_call_or_a_hook_lets_go_of_the_session(tmp_path: Path) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with sync.open(tmp_path / "sessions.db") as store:
        session = store.create_session()
        talk(session, 20)
        guard = guard_of(store, session, before_compaction=interrupted)
        for asked in (guard.before_call, guard.compact):
            with pytest.raises(KeyboardInterrupt):
                asked()
        guard = guard_of(store, session, window=100_000)
        with pytest.raises(KeyboardInterrupt):
            guard.call(interrupted)
        assert guard.compact().outcome == "compacted"
        talk(session, 20)
        assert guard_of(store, session).before_call().outcome == "compacted"
        assert store.verify().problems == []


def test_a_hook_cancels(store: sync.Store, session: sync.Session) -> None:
    talk(session, 20)
    guard = guard_of(store, session, before_compaction=lambda _: Cancelled("not now"))
    assert guard.before_call().outcome == "cancelled"
    assert compactions(session) == 0


def test_what_it_cannot_call_is_refused(store: sync.Store, session: sync.Session) -> None:
    async def ask(_: list[JsonObject]) -> str:
        raise AssertionError

    async def hook(_: AboutToCompact) -> None:
        raise AssertionError

    for given in (ask, "ask"):
        with pytest.raises(InvalidArgument, match=r"ask: .*is not a plain function"):
            guard_of(store, session).call(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"before_compaction: .*is not a plain function"):
        guard_of(store, session, before_compaction=hook)
    with pytest.raises(InvalidArgument, match=r"session: .*is not a Session of flue_py\.sync"):
        guard_of(store, "triage")  # type: ignore[arg-type]
