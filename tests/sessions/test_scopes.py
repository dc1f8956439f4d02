"""One meaning of a scope that is left out, in every call and command; and a store that is narrowed to one scope."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from inspect import isawaitable

import pytest

import flue_py
from flue_py.db.backend import Backend
from flue_py.sessions.housekeeping import find_older, find_prunable
from tests.checks import raises
from tests.samples import store_snapshot

OF_THE_WHOLE_STORE = {
    "backend", "limits", "heads", "compare_heads", "rekey", "unchecked", "info", "verify", "backup", "reprice", "close",
}  # fmt: skip
"""What `Store.in_scope` says that it does not narrow."""


async def test_a_store_of_a_scope_reaches_nothing_of_others(store: flue_py.Store) -> None:
    everything = store
    mine = everything.in_scope("t1")
    own = await mine.create_session(key="chat")
    other = await everything.create_session(key="chat", scope="t2")
    secret = {"role": "assistant", "content": "secret", "usage": {"input": 5, "output": 0}}
    await other.append_message(secret)
    paid = await mine.create_session()
    await paid.append_message(secret | {"content": "own"})
    await mine.delete_session_tree(paid)
    gone = (await everything.create_session(scope="t2")).id
    await (await everything.find_session(gone)).append_message(secret)
    await everything.delete_session_tree(gone)
    await everything.remember("fact", "secret", scope="t2")
    await everything.add_file("f.txt", "secret", scope="t2")
    budget = await everything.set_budget(other, tokens=100)
    held = await other.money.reserve(tokens=1)
    message = {"role": "user", "content": "intruder"}

    async def batch(work: Callable[[flue_py.Atomic], object]) -> object:
        async with mine.atomic() as atomic:
            work(atomic)
        return "done"

    async def events() -> object:
        return [event.session_id async for event in mine.events() if event.session_id == other.id]

    missing, refused, absent = flue_py.SessionNotFound, flue_py.InvalidArgument, flue_py.BudgetNotFound
    cases: list[tuple[str, Callable[[], object], object]] = [
        ("scope", lambda: mine.scope, "t1"), ("in_scope", lambda: mine.in_scope("t2"), refused),
        ("create_session", lambda: mine.create_session(scope="t2"), refused),
        ("open_session", lambda: mine.open_session("chat", scope="t2"), refused),
        ("get_session", lambda: mine.get_session(other.id), None),
        ("get_entry", lambda: mine.get_entry(str(other.leaf_id)), None),
        ("find_session", lambda: mine.find_session(other.id), missing),
        ("list_sessions", lambda: mine.list_sessions(scope="t2"), refused),
        ("import_session", lambda: mine.import_session(flue_py.NewSession(scope="t2"), [], leaf=None), refused),
        ("append_messages", lambda: mine.append_messages(other.id, [message]), missing),
        ("append_messages", lambda: mine.append_messages(other, [message]), missing),
        ("atomic", lambda: batch(lambda each: each.append_message(other.id, message)), missing),
        ("atomic", lambda: batch(lambda each: each.link_task(own, other, task_id="x")), missing),
        ("atomic", lambda: batch(lambda each: each.create_session(scope="t2")), refused),
        ("link_task", lambda: mine.link_task(own, other, task_id="x"), missing),
        ("link_task", lambda: mine.link_task(other, own, task_id="x"), missing),
        ("usage", lambda: mine.usage(scope="t2"), refused), ("usage", lambda: mine.usage(other), missing),
        ("usage", lambda: mine.usage(other.id, tree=True), missing),
        ("usage", lambda: mine.usage(other.id, leaf="e1"), missing), ("usage", lambda: mine.usage(gone), missing),
        ("set_budget", lambda: mine.set_budget(other, tokens=1), missing),
        ("set_budget", lambda: mine.set_budget(scope_prefix="", tokens=1), refused),
        ("get_budget", lambda: mine.get_budget(budget.id), None), ("list_budgets", mine.list_budgets, []),
        ("delete_budget", lambda: mine.delete_budget(budget.id), absent),
        ("held_amounts", lambda: mine.held_amounts(budget.id), absent),
        ("get_reservation", lambda: mine.get_reservation(held.id), None),
        ("remember", lambda: mine.remember("fact", "x", scope="t2"), refused), ("memories", mine.memories, ()),
        ("search_memories", lambda: mine.search_memories("secret", scope="t2"), refused),
        ("forget", lambda: mine.forget("fact"), False),
        ("add_file", lambda: mine.add_file("f.txt", "x", scope="t2"), refused), ("files", mine.files, ()),
        ("read_file", lambda: mine.read_file("f.txt"), None), ("remove_file", lambda: mine.remove_file("f.txt"), False),
        ("hold", lambda: mine.hold(other.id), missing), ("holds", lambda: mine.holds(scope="t2"), refused),
        ("lift_hold", lambda: mine.lift_hold(other.id), False),
        ("search", lambda: mine.search("secret", scope="t2"), refused), ("events", events, []),
        ("search", lambda: mine.search("secret", sessions=[own, other.id]), missing),
        ("search", lambda: mine.search("secret", sessions=["nobody's"]), missing),
    ]  # fmt: skip
    public = {name for name in dir(mine) if not name.startswith("_")} - OF_THE_WHOLE_STORE
    tested_below = {"delete_session_tree", "delete_scope", "erase", "erase_scope"}
    assert public == {name for name, _, _ in cases} | tested_below

    wrong = []
    for name, call, right in cases:
        try:
            found = call()
            found = await found if isawaitable(found) else found
        except flue_py.FlueError as error:
            found = type(error)
        if found != right:
            wrong.append((name, found, right))
    assert wrong == []
    assert (await mine.search("secret")).sessions == ()
    assert [info.id for info in (await mine.list_sessions()).sessions] == [own.id]
    assert (await mine.usage()).total.calls == (await mine.usage(paid.id)).total.calls == 1
    assert [(await mine.usage(each, model="none")).total.calls for each in (own, paid, paid.id)] == [0, 0, 0]
    assert (await mine.delete_session_tree(other)).session_ids == ()
    assert (await mine.erase([other], dry_run=False)).session_ids == ()
    await raises(flue_py.InvalidArgument, mine.erase_scope("t2", dry_run=False))
    assert await find_prunable(mine, without_config=True) == [own.info]
    later = datetime(2100, 1, 1, tzinfo=UTC)
    assert await find_older(mine, timedelta(days=1), later) == [own.info]
    assert (await other.refresh()).entry_count == 1
    assert [info.body for info in await everything.memories(scope="t2")] == ["secret"]


async def test_a_store_of_a_scope_has_the_entries_that_its_sessions_see(store: flue_py.Store) -> None:
    mine, theirs = store.in_scope("t1"), store.in_scope("t2")
    for each in (mine, theirs):
        entry = flue_py.NewEntry.message({"role": "user", "content": str(each.scope)}, id="same")
        await each.import_session(flue_py.NewSession(scope=str(each.scope)), [entry], leaf="same")
    source = await theirs.create_session()
    shared = (await source.append_message({"role": "user", "content": "shared"})).entry_ids[0]
    fork = await source.fork(scope="t1")
    hidden = (await source.append_message({"role": "user", "content": "hidden"})).entry_ids[0]

    async def content(entry_id: str) -> object:
        entry = await mine.get_entry(entry_id)
        return None if entry is None else entry.message.content

    for is_deleted in (False, True):
        assert [await content(each) for each in ("same", shared, hidden)] == ["t1", "shared", None], is_deleted
        assert await mine.get_entry(shared) == await fork.get_entry(shared)
        await theirs.delete_scope("t2", dry_run=False)
    own = flue_py.NewEntry.message({"role": "user", "content": "again"}, id="same")
    await mine.import_session(flue_py.NewSession(scope="t1"), [own], leaf="same")
    await raises(flue_py.AmbiguousId, mine.get_entry("same"))


async def test_a_session_that_is_made_while_its_scope_is_deleted_goes_too(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        await store.create_session(id=name, scope="t1")
    delete_tree = type(store.backend).delete_tree
    made: list[str] = []

    async def deleting(backend: Backend, session_id: str, *, scope: str, **_: object) -> flue_py.Deletion:
        if not made:
            made.append((await store.create_session(scope="t1")).id)
        return await delete_tree(backend, session_id, scope=scope)

    monkeypatch.setattr(type(store.backend), "delete_tree", deleting)
    done = await store.delete_scope("t1", dry_run=False)
    assert set(done.session_ids) == {"first", "second", *made}
    assert (await store.list_sessions(scope="t1")).sessions == ()


async def test_a_batch_of_one_scope_that_forks_into_another_may_be_tried_again(store: flue_py.Store) -> None:
    mine = store.in_scope("t1")
    own = await mine.create_session()
    await store.create_session(id="theirs", scope="t2")

    async def batch(name: str) -> None:
        async with mine.atomic(idempotency_key=f"batch of {name}") as atomic:
            atomic.append_message(own.id, {"role": "user", "content": name})
            fork = atomic.fork(own, scope="t2", id=name)
            atomic.append_message(fork, {"role": "user", "content": "in the fork"})

    for _ in range(2):
        await batch("fork")
        assert (await own.refresh()).entry_count == 1
        assert len(await (await store.find_session("fork")).build_context()) == 2
    await raises(flue_py.SessionExists, batch("theirs"))
    assert (await own.refresh()).entry_count == 1


async def test_the_beginning_of_an_id_is_one_of_the_scope_however_many_others_have(store: flue_py.Store) -> None:
    async with store.atomic() as batch:
        for number in range(250):
            batch.create_session(id=f"run-{number:03}", scope="t2")
        for own in ("run-zz", "run-zz:task"):
            batch.create_session(id=own, scope="t1")
    assert (await store.in_scope("t1").find_session("run-")).id == "run-zz"
    assert (await store.find_session("run-", scope="t1")).id == "run-zz"
    await raises(flue_py.SessionNotFound, store.in_scope("t3").find_session("run-"))


async def test_what_a_store_of_a_scope_makes_is_in_it(store: flue_py.Store) -> None:
    mine = store.in_scope("t1")
    chat = await mine.open_session("chat", mode="get_or_create")
    assert (chat.info.scope, (await store.open_session("chat", scope="t1")).id) == ("t1", chat.id)
    async with mine.atomic() as batch:
        made = batch.create_session(key="batch")
    entry = flue_py.NewEntry.message({"role": "user", "content": "x"}, id="e1")
    brought = await mine.import_session(flue_py.NewSession(scope="t1"), [entry], leaf="e1")
    assert {made.info.scope, brought.info.scope} == {"t1"}
    await mine.remember("fact", "one")
    await mine.add_file("f.txt", "one")
    assert (await mine.set_budget(tokens=5)).scope == "t1"
    assert [memory.info.scope for memory in await store.memories(scope="t1")] == ["t1"]
    assert [file.scope for file in await store.files(scope="t1")] == ["t1"]
    assert [budget.id for budget in await mine.list_budgets()] == [budget.id for budget in await chat.money.budgets()]
    assert await store.memories() == ()
    await raises(flue_py.SessionNotFound, store.open_session("chat"))


async def test_deleting_a_scope_leaves_what_was_paid_and_nothing_that_was_said_or_named(store: flue_py.Store) -> None:
    paid = {"role": "assistant", "content": "x", "usage": {"input": 1, "output": 1}, "agent": "jane's agent"}
    for scope in ("t1", "t2"):
        session = await store.create_session(scope=scope, key="k", cwd="/home/jane-doe/secret")
        await session.append_message(paid)
        task = await session.tasks.create(task_id="t")
        await task.append_message(paid)
        await store.create_session(scope=scope, cwd="/home/jane-doe/nothing-paid")
        await store.remember("fact", "jane has an illness", scope=scope)
        await store.add_file("f.txt", "about jane", scope=scope)
        await store.set_budget(session, tokens=50)
        await store.set_budget(scope=scope, tokens=5)
        if scope == "t1":
            await session.fork(scope="t2", key="of t1")
    whole = await store.set_budget(scope_prefix="t", tokens=9)
    everything = await store_snapshot(store.backend)

    async def rows(scope: str) -> list[dict[str, object]]:
        report = await store.usage(scope=scope, group_by=["project", "agent"])
        return [{**row.group, "calls": row.calls, "tokens": row.total_tokens} for row in report.rows]

    before = await rows("t2")
    would = await store.delete_scope("t1", dry_run=True)
    assert await store_snapshot(store.backend) == everything
    done = await store.in_scope("t1").delete_scope("t1", dry_run=False)
    assert (would.dry_run, done.dry_run, done.entries_kept, done.counts["entries"]) == (True, False, 1, 1)
    assert set(would.session_ids) == set(done.session_ids)
    assert len(done.session_ids) == 3
    beside = {"memories": 1, "files": 1, "budgets": 2, "calls": 2}
    assert would.counts.items() >= beside.items() <= done.counts.items()

    mine = store.in_scope("t1")
    left = [(await mine.list_sessions()).sessions, await mine.memories(), await mine.files(), await mine.list_budgets()]
    assert left == [(), (), (), []]
    assert await rows("t1") == [{"project": None, "agent": None, "calls": 2, "tokens": 4}]
    assert await rows("t2") == before
    assert [budget.id for budget in await store.list_budgets(scope="t*")] == [whole.id]
    fork = await store.open_session("of t1", scope="t2")
    assert [message["content"] for message in await fork.build_context()] == ["x"]
    again = await store.delete_scope("t1", dry_run=False)
    assert (again.session_ids, {name: count for name, count in again.counts.items() if count}) == ((), {"calls": 2})
    await raises(flue_py.InvalidArgument, mine.delete_scope("t2", dry_run=False))
    with pytest.raises(TypeError):
        await store.delete_scope("t2")  # type: ignore[call-arg]
