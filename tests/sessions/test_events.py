"""The change feed, and the events that are derived from it, each once, and gone on from any of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import flue_py
from flue_py import Change, InvalidArgument, JsonObject, Session, SessionEvent, SessionNotFound, Store, sync
from flue_py.core.model import ModelRequest
from flue_py.core.operations import seen_by
from flue_py.core.sessions import MAX_WHY_CHARACTERS
from flue_py.errors import ModelUnavailable
from flue_py.sessions import store as happenings
from tests.checks import raises
from tests.sessions.conftest import also_in_memory
from tests.sessions.guarded import guard_of, model, talk
from tests.sessions.talk import assistant, say, texts, user
from tests.tables import inputs
from tests.values import existing

CALL: JsonObject = {
    "role": "assistant",
    "content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}],
    "model": "m",
    "provider": "p",
    "stopReason": "toolUse",
}
RESULT: JsonObject = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": "no", "isError": True}


async def told(store: Store, **given: object) -> list[SessionEvent]:
    async with aclosing(store.events(**given)) as events:  # type: ignore[arg-type]
        return [event async for event in events]


def types(events: list[SessionEvent]) -> list[str]:
    return [event.type for event in events]


async def lived(store: Store, session: Session) -> Session:
    """Have everything happen to a session that has an event; return its task session."""
    first = (await session.append_messages([user("Look."), CALL, RESULT, assistant("Well.")])).entry_ids
    await session.set_title("A look")
    task = await session.tasks.create(task_id="t")
    await task.append_message(user("Do it."))
    await task.tasks.end("done", summary="Done.")
    await session.append_compaction("So far.", first_kept_entry_id=first[-1], tokens_before=10)
    await session.append_branch_summary("Elsewhere.", from_id=first[0])
    await session.append_custom("note", {"a": 1})
    await session.append_message({"role": "system", "content": "Be brief."})
    await session.undo()
    await session.marks.set_label(first[0], "l")
    await session.money.record_call({"input": 1})
    await session.set_completed(datetime.now(UTC))
    await session.set_completed(None)
    late = existing(await store.get_session(session.id))
    await session.append_message(user("One."))
    await late.append_message(user("Two."), on_conflict="branch")
    await session.marks.exclude(first[-1])
    await session.fork(key="fork")
    return task


async def test_everything_that_happens_has_an_event(store: Store, session: Session) -> None:
    task = await lived(store, session)
    events = await told(store, sessions=[session])
    assert types(events) == [
        "session_created", "turn_start", "answer", "tool_call", "tool_result", "answer", "turn_end", "session_titled",
        "task_started", "task_ended", "compaction", "branch_summary", "entry_added", "message", "leaf_moved",
        "session_changed", "session_changed", "session_completed", "session_reopened", "turn_start", "turn_start",
        "conflict", "entry_added",
    ]  # fmt: skip
    by_type = {event.type: event for event in events}
    entries = {entry.id: entry for entry in await session.get_tree()}
    assert (by_type["tool_call"].tool, by_type["tool_call"].call_id) == ("bash", "c1")
    assert (by_type["tool_result"].call_id, by_type["tool_result"].is_error) == ("c1", True)
    assert (events[2].model, events[2].provider, events[2].stop_reason) == ("m", "p", "toolUse")
    assert (events[1].words, events[1].at) == ("Look.", entries[str(events[1].entry_id)].created_at)
    assert (by_type["task_ended"].other_session_id, by_type["task_ended"].status) == (task.id, "done")
    assert (by_type["compaction"].kept_id, by_type["compaction"].tokens_before) == (events[5].entry_id, 10)
    assert (by_type["leaf_moved"].what, by_type["leaf_moved"].from_id) == ("undo", by_type["message"].entry_id)
    conflict = by_type["conflict"]
    assert (conflict.entry_id, conflict.to_id) == (events[-3].entry_id, events[-4].entry_id)
    assert conflict.from_id == by_type["leaf_moved"].to_id
    others = [event for event in await told(store) if event.session_id != session.id]
    assert types(others) == ["session_created", "turn_start", "session_completed", "session_created"]
    assert [(event.what, event.other_session_id) for event in others if event.type == "session_created"] == [
        ("task", None),
        ("fork", session.id),
    ]


async def test_a_compaction_by_itself_begins_and_ends_or_fails(store: Store, session: Session) -> None:
    outcomes: list[str] = []
    for answers in (refuse, lambda _: "what was said", lambda _: "what was said"):
        await talk(session, 20)
        await session.set_metadata({"of": len(outcomes)}, merge=True, why="cancelled: an order of the application")
        guard = guard_of(store, session, model(answers), on_answer=lambda answer: outcomes.append(answer.outcome))
        await guard.before_call()
    started = ["compaction_start", "compaction_failed", *2 * ["compaction_start", "compaction"]]
    kinds = types(await told(store))
    assert [kind for kind in kinds if "compaction" in kind] == started
    assert (kinds.count("session_changed") >= 3, "cancelled" in kinds) == (True, False)
    assert outcomes == ["compacting", "failed", "compacting", "compacted", "compacting", "compacted"]


def refuse(request: ModelRequest) -> str:
    raise ModelUnavailable("it could not be reached")


async def test_an_export_goes_on_from_any_event_and_adds_nothing_twice(store: Store, session: Session) -> None:
    await lived(store, session)
    events = await told(store)
    ids = [event.id for event in events]
    assert len(set(ids)) == len(ids)
    assert await told(store) == events
    for seen in range(len(ids) + 1):
        assert [event.id for event in await told(store, after=ids[:seen])] == ids[seen:]
    await say(session, "more")
    assert types(await told(store, after=ids)) == ["turn_start"]
    # Of each session the last one is enough, in any order.
    last = {event.session_id: event.id for event in events}
    assert types(await told(store, after=reversed(last.values()))) == ["turn_start"]


async def test_more_revisions_than_fit_a_page_and_many_sessions_are_told(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(happenings, "_REVISIONS_AT_ONCE", 3)
    monkeypatch.setattr(happenings, "_AT_ONCE", 2)
    for number in range(5):
        other = await store.create_session(scope=f"s{number % 2}")
        await say(other, *"abcd")
    events = await told(store)
    assert types(events).count("turn_start") == 20
    assert types(events).count("session_created") == 6
    assert types(await told(store, scope="s1")) == 2 * ["session_created", *4 * ["turn_start"]]
    assert await told(store, scope="nobody") == []


async def test_a_follower_hears_of_all_sessions_also_of_new_ones(store: Store, session: Session) -> None:
    seen: list[SessionEvent] = []

    async def follow(number: int) -> None:
        async with aclosing(store.events(follow=True, after=[event.id for event in seen])) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == number:
                    return

    following = asyncio.ensure_future(follow(3))
    await say(session, "a")
    other = await store.create_session()
    await following
    following = asyncio.ensure_future(follow(5))
    await say(other, "b")
    await session.undo()
    await following
    assert sorted(types(seen)) == ["leaf_moved", "session_created", "session_created", "turn_start", "turn_start"]
    assert await told(store, after=[event.id for event in seen]) == []


async def test_a_session_whose_id_is_used_again_is_another_one(store: Store) -> None:
    old = await store.create_session(id="abc")
    await say(old, "a", "b")
    seen = [event.id for event in await told(store)]
    new = await renewed(store, old)
    assert types(await told(store, after=seen)) == ["session_deleted", "session_created", "turn_start"]
    await store.delete_session_tree(new)
    seen += [event.id for event in await told(store, after=seen)]
    assert types(await told(store, after=seen)) == []
    third = await renewed(store, new)
    events = await told(store, after=seen)
    assert [(event.type, event.words) for event in events] == [("session_created", None), ("turn_start", "c")]
    assert {event.session_created_us for event in events} == {third.info.created_us}


async def renewed(store: Store, session: Session) -> Session:
    """Delete a session if it is there, and make another one with its id."""
    await store.delete_session_tree(session)
    new = await store.create_session(id=session.id)
    await say(new, "c")
    return new


async def test_a_session_whose_id_another_scope_uses_now_is_gone(store: Store) -> None:
    old = await store.create_session(id="abc", scope="one")
    seen = [event.id for event in await told(store, scope="one")]
    await store.delete_session_tree(old)
    await store.create_session(id="abc", scope="two")
    (gone,) = await told(store, scope="one", after=seen)
    assert (gone.type, gone.session_created_us) == ("session_deleted", old.info.created_us)
    assert await told(store, scope="one", after=[*seen, gone.id]) == []


async def test_a_handle_whose_id_is_used_again_tells_of_its_own_session(store: Store) -> None:
    old = await store.create_session(id="abc")
    seen = [event.id for event in await told(store)]
    new = await renewed(store, old)
    assert types(await told(store, sessions=[old], after=seen)) == ["session_deleted"]
    assert types(await told(store, sessions=[new])) == ["session_created", "turn_start"]
    seen += [event.id for event in await told(store, after=seen)]
    assert await told(store, sessions=[old], after=seen) == []
    await raises(SessionNotFound, told(store, sessions=[old]))


async def test_a_clock_that_goes_back_tells_nothing_twice_of_an_id_that_is_used_again(target: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    async with flue_py.open(target, clock=lambda: now) as store:
        old = await store.create_session(id="abc")
        seen = [event.id for event in await told(store)]
        now -= timedelta(hours=1)
        new = await renewed(store, old)
        assert new.info.created_us < old.info.created_us
        events = await told(store, after=seen)
        assert types(events) == ["session_deleted", "session_created", "turn_start"]
        seen += [event.id for event in events]
        assert await told(store, after=seen) == await told(store, after=reversed(seen)) == []


async def test_a_session_that_is_restored_is_gone_on_with(store: Store, session: Session) -> None:
    await say(session, "a")
    async with flue_py.open(":memory:") as other:
        await flue_py.copy_store(store, other)
        seen = [event.id for event in await told(store)]
        await store.delete_session_tree(session)
        seen += [event.id for event in await told(store, after=seen)]
        await flue_py.copy_store(other, store)
    restored = await store.open_session("triage", scope="user-7")
    assert await told(store, after=seen) == []
    await say(restored, "b")
    assert [event.words for event in await told(store, after=seen)] == ["b"]
    await store.delete_session_tree(restored)
    assert await told(store, after=seen) == []


def test_what_is_known_to_be_gone_is_not_looked_for() -> None:
    seen = seen_by(["a:1:0:0", "a:1:session_deleted", "b:1:session_deleted", "x:1:9:budget_set", "x:1:budget_deleted"])
    assert (seen.sessions.told, seen.budgets.told) == ({}, {})


@also_in_memory
async def test_what_was_told_and_is_deleted_is_told_once(store: Store, session: Session) -> None:
    await lived(store, session)
    kept = await store.create_session(scope="kept")
    await store.set_budget(session, tokens=10)
    events = await told(store)
    seen = [event.id for event in events]
    budget = next(event for event in events if event.type == "budget_set")
    # What is of another scope is there, although it is not looked at.
    assert await told(store, after=seen, scope="kept") == []
    deletion = await store.delete_session_tree(session)
    gone = await told(store, after=seen)
    assert types(gone) == 2 * ["session_deleted"] + ["budget_deleted"]
    assert {event.session_id for event in gone[:2]} == set(deletion.session_ids)
    made = [event.session_id for event in events if event.type == "session_created"]
    assert [event.session_id for event in gone[:2]] == [name for name in made if name in deletion.session_ids]
    assert gone[2].budget_id == budget.budget_id
    assert {event.at for event in gone} == {None}
    assert await told(store, after=[*seen, *(event.id for event in gone)]) == []
    assert types(await told(store, sessions=[kept], after=seen)) == []
    assert types(await told(store, sessions=[session.id], after=seen)) == ["session_deleted"]
    # Nothing is stored of it: who never heard of it hears nothing.
    assert session.id not in {event.session_id for event in await told(store)}


BUDGET_FIELDS = ("type", "session_id", "what", "scope", "unit", "allowed", "spent", "other_session_id")


def about_budgets(events: list[SessionEvent]) -> list[tuple[object, ...]]:
    return [tuple(getattr(event, name) for name in BUDGET_FIELDS) for event in events if event.budget_id is not None]


async def spend(session: Session, tokens: int) -> None:
    async with session.money.budgeted(tokens=1) as call:
        call.used(tokens=tokens)


async def test_budgets_are_told_as_they_are_set_and_spent(store: Store, session: Session) -> None:
    of = (session.id, "session", None, "tokens")
    budget = await store.set_budget(session, tokens=100)
    await store.set_budget(scope="user-7", cost="1.00")
    for tokens in (50, 29):
        await spend(session, tokens)
    events = await told(store)
    assert about_budgets(events) == [
        ("budget_set", *of, 100, None, None),
        ("budget_set", None, "scope", "user-7", "picodollars", 10**12, None, None),
    ]
    seen = [event.id for event in events]
    await spend(session, 1)
    (warning,) = await told(store, after=seen)
    assert about_budgets([warning]) == [("budget_warning", *of, 100, 80, session.id)]
    assert (warning.budget_id, warning.at is not None) == (budget.id, True)
    await spend(session, 30)
    await raises(flue_py.BudgetExceeded, spend(session, 1))
    (exceeded,) = await told(store, after=[*seen, warning.id])
    assert about_budgets([exceeded]) == [("budget_exceeded", *of, 100, 110, session.id)]
    # The same anew, whenever it is asked for.
    assert (await told(store))[-3:-1] == [warning, exceeded]
    seen += [warning.id, exceeded.id]
    assert await told(store, after=seen) == []
    # What it allows is another amount: what was told of the first one stays told.
    await store.set_budget(session, tokens=120)
    later = await told(store, after=seen)
    assert about_budgets(later) == [("budget_set", *of, 120, None, None), ("budget_warning", *of, 120, 110, session.id)]
    seen += [event.id for event in later]
    await store.set_budget(session, tokens=100)
    await store.set_budget(session, tokens=120)
    assert await told(store, after=seen) == []
    assert about_budgets(await told(store, scope="user-7"))[:2] == about_budgets(later)
    assert about_budgets(await told(store, sessions=[session])) == about_budgets(later)
    assert about_budgets(await told(store, scope="another")) == []


async def test_of_a_budget_with_a_period_each_period_tells_its_events_once(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = datetime(2026, 3, 29, tzinfo=UTC)
    now = day.replace(hour=12)
    sources = replace(store._backend._sources, now_us=lambda: int(now.timestamp()) * 1_000_000)
    monkeypatch.setattr(store._backend, "_sources", sources)
    await store.set_budget(scope_prefix="", tokens=100, period="day", tz="UTC")
    of = (None, "scope", "*", "tokens", 100)
    for number, tokens in enumerate((70, 20, 20)):
        await session.money.record_call({"input": tokens}, at=day.replace(hour=number))
    events = [event for event in await told(store) if event.budget_id]
    assert about_budgets(events) == [
        ("budget_set", *of, None, None),
        ("budget_warning", *of, 90, session.id),
        ("budget_exceeded", *of, 110, session.id),
    ]
    assert [event.at for event in events] == [None, day.replace(hour=1), day.replace(hour=2)]
    assert {(event.period, event.period_began_us) for event in events[1:]} == {
        ("day", int(day.timestamp()) * 1_000_000)
    }
    seen = [event.id for event in events]
    assert about_budgets(await told(store, after=[seen[1]])) == about_budgets(events[2:])
    assert about_budgets(await told(store, after=seen)) == []
    now += timedelta(days=1)
    assert about_budgets(await told(store, after=seen)) == []
    await session.money.record_call({"input": 80}, at=now)
    (again,) = [event for event in await told(store, after=seen) if event.budget_id]
    assert (again.type, again.spent, again.at) == ("budget_warning", 80, now)
    assert about_budgets(await told(store, after=[*seen, again.id])) == []
    assert {again.id} & {*seen} == set()


async def test_a_budget_tells_whose_call_it_was_and_what_it_began_with(store: Store, session: Session) -> None:
    task = await session.tasks.create(task_id="t")
    await store.set_budget(session, tasks=True, tokens=100)
    await spend(task, 90)
    nothing = await store.set_budget(task, tokens=0)
    await store.set_budget(task, cost="1.00", spent_so_far="0.80")
    events = await told(store)
    of_tasks = (session.id, "tasks", None, "tokens", 100)
    assert about_budgets(events) == [
        ("budget_set", *of_tasks, None, None),
        ("budget_warning", *of_tasks, 90, task.id),
        ("budget_set", task.id, "session", None, "tokens", 0, None, None),
        ("budget_warning", task.id, "session", None, "tokens", 0, 0, None),
        ("budget_exceeded", task.id, "session", None, "tokens", 0, 0, None),
        ("budget_set", task.id, "session", None, "picodollars", 10**12, None, None),
        ("budget_warning", task.id, "session", None, "picodollars", 10**12, 8 * 10**11, None),
    ]
    assert {event.at for event in events if event.budget_id == nothing.id} == {None, nothing.created_at}
    # The last event of each is enough.
    last = {event.budget_id or event.session_id: event.id for event in events}
    assert await told(store, after=last.values()) == []
    await store.delete_budget(nothing.id)
    assert types(await told(store, after=last.values())) == ["budget_deleted"]
    assert types(await told(store, after=last.values(), sessions=[task])) == []


@also_in_memory
async def test_budgets_that_are_deleted_while_they_are_told_hide_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(happenings, "_AT_ONCE", 2)
    for number in range(5):
        session = await store.create_session(scope="s")
        await store.set_budget(session, tokens=number)
    seen: list[SessionEvent] = []
    async with aclosing(store.events(scope="s")) as events:
        async for event in events:
            seen.append(event)
            if event.type == "budget_set" and event.allowed in (1, 3):
                await store.delete_budget(str(event.budget_id))
    assert [event.allowed for event in seen if event.type == "budget_set"] == [0, 1, 2, 3, 4]
    assert types(await told(store, after=[event.id for event in seen])) == 2 * ["budget_deleted"]


async def test_what_budgets_came_to_is_asked_once_for_many(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        other = await store.create_session(key=f"other {number}")
        await store.set_budget(other, tokens=5)
        await store.set_budget(other, tasks=True, tokens=5)
        await spend(other, 5)
    asked: list[int] = []
    backend = store._backend
    budgets_reached = backend.budgets_reached

    async def counted(of: Sequence[tuple[str, int]]) -> object:
        asked.append(len(of))
        return await budgets_reached(of)

    monkeypatch.setattr(backend, "budgets_reached", counted)
    events = await told(store)
    assert [events.count(event) for event in events if event.type in ("budget_warning", "budget_exceeded")] == 12 * [1]
    assert asked == [12]
    assert await told(store, after=[event.id for event in events]) == []
    assert asked == [12]


async def test_a_copy_of_a_store_tells_the_same(store: Store, session: Session) -> None:
    await lived(store, session)
    await store.set_budget(session, tokens=10)
    await spend(session, 9)
    events = await told(store)
    async with flue_py.open(":memory:") as other:
        await flue_py.copy_store(store, other)
        assert sorted(await told(other), key=repr) == sorted(events, key=repr)
        assert await told(other, after=[event.id for event in events]) == []


async def test_who_did_it_and_why_is_told_where_the_log_has_it(store: Store, session: Session) -> None:
    first, *_ = await say(session, "a", "b")
    await session.move_leaf(first, by="reviewer", why="wrong way")
    await session.set_title("t", by="titler")
    await session.marks.exclude(first, by="editor", why="w" * MAX_WHY_CHARACTERS)
    moved, titled, excluded = (await told(store))[-3:]
    assert (moved.type, moved.by, moved.why) == ("leaf_moved", "reviewer", "wrong way")
    assert (excluded.what, excluded.by, excluded.why) == ("exclusion", "editor", "w" * MAX_WHY_CHARACTERS)
    assert (titled.type, titled.by, titled.why) == ("session_titled", "titler", None)


async def test_a_follower_looks_when_something_was_committed_and_not_before(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = store._backend
    woken, rests, looks = asyncio.Event(), asyncio.Event(), 0
    list_sessions = backend.list_sessions

    async def counted(**given: object) -> object:
        nonlocal looks
        looks += 1
        return await list_sessions(**given)  # type: ignore[arg-type]

    async def commits() -> AsyncGenerator[None, None]:
        while True:
            yield
            rests.set()
            await woken.wait()
            woken.clear()

    monkeypatch.setattr(backend, "list_sessions", counted)
    monkeypatch.setattr(backend, "commits", commits)
    seen: dict[str, str] = {}

    async def follow() -> None:
        async with aclosing(store.events(follow=True)) as events:
            async for event in events:
                seen[event.id] = event.type

    following = asyncio.ensure_future(follow())
    for number in range(1, 4):
        await rests.wait()
        rests.clear()
        assert (looks, len(seen)) == (number, number)
        await say(session, "a")
        assert (looks, len(seen)) == (number, number)
        woken.set()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_a_follower_hears_of_deletions_and_budgets(store: Store, session: Session) -> None:
    seen: list[SessionEvent] = []
    known: dict[int, asyncio.Event] = {number: asyncio.Event() for number in (1, 3, 5)}

    async def follow() -> None:
        async with aclosing(store.events(follow=True, scope="user-7")) as events:
            async for event in events:
                seen.append(event)
                if len(seen) in known:
                    known[len(seen)].set()

    following = asyncio.ensure_future(follow())
    await known[1].wait()
    await store.create_session(scope="another")
    await store.set_budget(session, tokens=5)
    async with session.money.budgeted(tokens=4):
        pass
    await known[3].wait()
    await store.delete_session_tree(session)
    await known[5].wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert types(seen)[:3] == ["session_created", "budget_set", "budget_warning"]
    # Sessions are looked at before budgets, and both may go between the two.
    assert sorted(types(seen)[3:]) == ["budget_deleted", "session_deleted"]


async def test_named_sessions_have_to_be_there(store: Store, session: Session) -> None:
    await raises(SessionNotFound, told(store, sessions=["zz"]))
    await raises(SessionNotFound, told(store, sessions=[session], scope="another"))
    assert types(await told(store, sessions=[session, session.id], scope="user-7")) == ["session_created"]
    assert await told(store, sessions=[]) == []


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@inputs(
    "given",
    [
        {"after": "x:1:1:1"}, {"after": 5}, {"after": ["x"]}, {"after": ["x:1:1"]}, {"after": ["x:1:-1:1"]},
        {"after": ["x:session_deleted"]}, {"after": ["x:1:budget_set"]}, {"after": ["1:budget_set"]},
        {"after": ["x:1:-1:budget_warning"]}, {"after": ["session_deleted"]}, {"after": ["x:1:5@:budget_warning"]},
        {"after": ["x:1:5@1@2:budget_warning"]}, {"after": ["x:1@2:budget_deleted"]}, {"after": ["x@1:1:0"]},
        {"after": ["x:1:1:99999999999999999999"]}, {"after": [None]}, {"after": ["x:²:1:1"]}, {"sessions": "x"},
        {"sessions": [5]}, {"scope": 5}, {"follow": 1},
    ],
)  # fmt: skip
async def test_what_cannot_be_asked_for_is_refused(store: Store, given: dict[str, object]) -> None:
    await raises(InvalidArgument, told(store, **given))


async def test_an_id_may_have_colons_in_it(store: Store) -> None:
    session = await store.create_session(id="a:b:1:2:budget_set")
    await say(session, "a")
    first, second = await told(store)
    assert await told(store, after=[first.id]) == [second]
    assert await told(store, after=[second.id]) == []
    await store.delete_session_tree(session)
    (gone,) = await told(store, after=[second.id])
    assert await told(store, after=[gone.id]) == []


async def test_odd_messages_have_events_too(store: Store, session: Session) -> None:
    await session.append_messages([
        {"role": "odd", "content": [{"type": "zz"}]},
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "n" * 5_000, "arguments": {}}]},
        {"role": "user", "content": []},
    ])  # fmt: skip
    events = await told(store)
    assert types(events) == ["session_created", "message", "answer", "tool_call", "turn_start"]
    assert events[3].tool == "n" * 1_000


@also_in_memory
async def test_following_ends_when_the_store_is_closed(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a")
        has_seen, events = asyncio.Event(), store.events(follow=True)
        seen: list[str] = []

        async def follow() -> None:
            async with aclosing(events):
                async for event in events:
                    seen.append(event.type)
                    if len(seen) == 2:
                        has_seen.set()

        following = asyncio.ensure_future(follow())
        await has_seen.wait()
    await following
    assert seen == ["session_created", "turn_start"]
    await raises(flue_py.StoreClosed, told(store, follow=True))


def test_the_blocking_twin_tells_the_same(target: str) -> None:
    with sync.open(target) as store:
        session = store.create_session()
        session.append_message(user("a"))
        assert [event.type for event in store.events()] == ["session_created", "turn_start"]
        following = store.events(follow=True, sessions=[session])
        first, second = next(following), next(following)
        session.append_message(user("b"))
        third = next(following)
        assert [event.words for event in (first, second, third)] == [None, "a", "b"]
        following.close()  # type: ignore[attr-defined]
        assert list(store.events(after=[third.id])) == []


# -- The change feed: resumable, gap-free, and alive --------------------------------------------------------------


async def watched(session: Session, count: int, after: int | None = None) -> list[Change]:
    """Return the next changes that a watcher sees."""
    seen: list[Change] = []
    async with aclosing(session.watch(after=after)) as changes:
        async for change in changes:
            seen.append(change)
            if len(seen) == count:
                break
    return seen


async def test_changes_come_in_order_and_page_by_page(session: Session) -> None:
    a, *_ = await say(session, "a", "b")
    await session.move_leaf(a)
    await session.set_title("t")
    changes = await session.changes()
    assert [(change.revision, change.reason) for change in changes] == [
        (1, "append"),
        (2, "append"),
        (3, "move"),
        (4, None),
    ]
    assert await session.changes(after=1, limit=2) == changes[1:3]
    assert await session.changes(after=4) == []
    assert texts(changes[0].entries) == ["a"]
    assert (changes[2].from_id, changes[2].to_id) == (changes[1].to_id, a)


@inputs(("after", "limit"), [(-1, 1), (True, 1), ("1", 1), (0, 0), (0, 1001)])
async def test_what_is_no_revision_or_page_is_refused(session: Session, after: object, limit: int) -> None:
    await raises(InvalidArgument, session.changes(after=after, limit=limit))  # type: ignore[arg-type]


async def test_a_watcher_sees_what_was_and_what_comes(session: Session) -> None:
    await say(session, "a")
    watcher = asyncio.ensure_future(watched(session, 3, after=0))
    await say(session, "b")
    await session.undo()
    assert [change.reason for change in await watcher] == ["append", "append", "undo"]


async def test_a_watcher_starts_after_what_its_handle_knows(store: Store, session: Session) -> None:
    await say(session, "a")
    other = existing(await store.get_session(session.id))
    watcher = asyncio.ensure_future(watched(other, 1))
    await say(session, "b")
    (change,) = await watcher
    assert texts(change.entries) == ["b"]
    assert other.leaf_id == change.from_id


async def test_a_watcher_sees_more_changes_than_fit_a_page(session: Session) -> None:
    for n in range(120):
        await session.append_message(user(str(n)))
    assert [change.revision for change in await watched(session, 120, after=0)] == list(range(1, 121))


async def test_a_watcher_of_a_deleted_session_is_told(store: Store, session: Session) -> None:
    await say(session, "a")
    watcher = asyncio.ensure_future(watched(session, 2, after=0))
    assert len(await watched(session, 1, after=0)) == 1
    await store.delete_session_tree(session)
    with pytest.raises(SessionNotFound):
        await watcher


async def test_watching_ends_when_the_store_is_closed_while_a_change_is_looked_at(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a", "b")
        changes = session.watch(after=0)
        assert (await anext(changes)).revision == 1
    assert [change.revision async for change in changes] in ([], [2])


async def test_a_watcher_that_only_just_began_ends_when_the_store_is_closed(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a")
        watcher = asyncio.ensure_future(watched(session, 2, after=0))
        # One turn of the loop: the watcher has asked its first question, and waits for the answer.
        await asyncio.sleep(0)
    assert [change.revision for change in await watcher] in ([], [1])


async def test_a_store_that_is_closed_cannot_be_watched(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
    await raises(flue_py.StoreClosed, watched(session, 1, after=0))


async def test_a_watcher_hears_of_another_store_on_the_same_file(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "shared.db"
    async with flue_py.open(path) as ours, flue_py.open(path) as theirs:
        session = await ours.open_session("k", mode="create")
        watcher = asyncio.ensure_future(watched(session, 1))
        await say(await theirs.open_session("k"), "from elsewhere")
        (change,) = await watcher
    assert texts(change.entries) == ["from elsewhere"]


GUARD_SECONDS = 60
"""Turns a test that hangs into one that fails; nothing is measured with it."""

WRITER = """
import asyncio, sys
import flue_py

async def main(target, number):
    async with flue_py.open(target, durability="normal") as store:
        session = await store.open_session("k", mode="get")
        for n in range(number):
            print("ready", flush=True)
            sys.stdin.readline()
            await session.append_message({"role": "user", "content": str(n)})
            await session.append_message({"role": "user", "content": f"{n} again"})

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def writing(target: str, number: int) -> subprocess.Popen[str]:
    """A process that says "ready", and appends twice after each line it is told, so many times."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, target, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("target", ["sqlite", "postgres"], indirect=True)
async def test_a_watcher_hears_of_what_another_process_appends(target: str) -> None:
    async with flue_py.open(target, durability="normal") as store:
        session = await store.open_session("k", mode="create")
        seen: list[Change] = []
        with writing(target, 2) as writer:
            try:
                assert writer.stdin is not None
                assert writer.stdout is not None
                async with aclosing(session.watch(after=0)) as changes:
                    # Each time the watcher has seen everything, and waits, when the other process goes on.
                    for _ in range(2):
                        watching = asyncio.ensure_future(anext(changes))
                        assert await asyncio.to_thread(writer.stdout.readline) == "ready\n"
                        writer.stdin.write("go\n")
                        writer.stdin.flush()
                        async with asyncio.timeout(GUARD_SECONDS):
                            seen.append(await watching)
                            seen.append(await anext(changes))
                assert await asyncio.to_thread(writer.wait) == 0
            finally:
                writer.kill()
    assert [change.revision for change in seen] == [1, 2, 3, 4]
    assert [text for change in seen for text in texts(change.entries)] == [
        text for n in range(2) for text in (str(n), f"{n} again")
    ]
