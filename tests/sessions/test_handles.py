"""A handle runs its calls in order and chains them; conflicts arise between handles, and cancelling loses nothing."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import anyio
import pytest
from anyio import CancelScope
from anyio.lowlevel import checkpoint

import flue_py
from flue_py import LeafConflict, Session, SessionNotFound, Store
from flue_py.agents.conversation import Conversation
from flue_py.agents.harness import Harness, HarnessSession
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, Appended, LeafChoice, OnConflict
from flue_py.db.backend import Backend
from flue_py.db.runner import CommittedBeforeCancellation
from flue_py.db.sqlite.runner import MemoryRunner
from tests.checks import raises
from tests.samples import parameters_of
from tests.sessions.conftest import also_in_memory
from tests.sessions.guarded import SETTINGS, WINDOW, guard_of, talk
from tests.sessions.talk import assistant, path_of, say, texts, user
from tests.sessions.test_reused_ids import CALLS
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing


async def one_after_another(*calls: Awaitable[object]) -> None:
    for call in calls:
        await call


async def another_handle(store: Store, session: Session) -> Session:
    return existing(await store.get_session(session.id))


async def test_appends_of_one_handle_chain_in_the_order_they_were_called(session: Session) -> None:
    await asyncio.gather(*(session.append_message(user(str(n))) for n in range(20)))
    assert await path_of(session) == [str(n) for n in range(20)]


@also_in_memory
async def test_a_handle_that_has_read_answers_as_a_fresh_one(session: Session, store: Store) -> None:
    other = await another_handle(store, session)
    calls: JsonObject = {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "c", "name": "n", "arguments": {}}],
    }
    result: JsonObject = {"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "r"}]}
    await session.append_messages([user("a"), calls, result, user("b"), assistant("d"), user("e")])
    ids = [entry.id for entry in await session.get_active_path()]

    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: session.append_message(user("f")),
        lambda: other.append_message(assistant("g"), on_conflict="rebase"),
        lambda: session.append_messages([calls, result]),
        lambda: session.rewind(to=ids[4]),
        lambda: session.append_message(user("h")),
        session.undo,
        session.undo,
        lambda: session.append_compaction("so far", first_kept_entry_id=ids[3], tokens_before=1_000),
        lambda: session.append_message(user("i")),
        lambda: session.append_compaction("and on", first_kept_entry_id=ids[4], tokens_before=1_000),
        lambda: session.rewind(to=ids[5]),
        lambda: session.marks.exclude(ids[1]),
        lambda: session.append_messages([user("again"), result]),
        lambda: one_after_another(session.redact([ids[3]], "by request"), session.append_message(user("j"))),
        lambda: session.append_message(assistant("k")),
    ]
    for number, change in enumerate(changes):
        await change()
        fresh = await another_handle(store, session)
        for handle in (session, other):
            assert await handle.get_active_path() == await fresh.get_active_path(), number
            assert await handle.build_context() == await fresh.build_context(), number
            assert await handle.marks.exclusions() == await fresh.marks.exclusions(), number
            assert await handle.build_context_entries() == await fresh.build_context_entries(), number


@also_in_memory
async def test_entries_that_were_read_lose_the_session_that_is_deleted(session: Session, store: Store) -> None:
    await (made_by := await session.fork()).append_message(user("a"))
    fork = await made_by.fork()
    assert [entry.session_id for entry in await fork.get_active_path()] == [made_by.id]
    await store.delete_session_tree(made_by)
    await fork.append_message(user("b"))
    assert [entry.session_id for entry in await fork.get_active_path()] == [None, fork.id]
    assert [item.entry.session_id for item in await fork.build_context_entries()] == [None, fork.id]


async def test_a_prefix_is_found_beside_a_leaf_that_is_gone(session: Session) -> None:
    *_, before, last = (await session.append_messages([user("a"), assistant("b"), user("c"), user("d")])).entry_ids
    assert (await session.context.common_prefix(before, last)).items == 3
    await session.remove_leaf_message(last)
    assert (await session.context.common_prefix(None, before)).items == 0


async def test_operations_of_every_kind_keep_their_order_on_one_handle(session: Session) -> None:
    _, moved, _, path, undone, context = await asyncio.gather(
        session.append_messages([user("a"), user("b")]),
        session.rewind(turns=1),
        session.append_message(user("c")),
        session.get_active_path(),
        session.undo(),
        session.build_context(),
    )
    assert texts(path) == ["a", "c"]
    assert moved is not None
    assert undone is not None
    assert undone.to_id == moved.to_id == path[0].id
    assert context == [user("a")]


async def test_an_operation_builds_on_the_leaf_at_its_turn_not_at_its_call(session: Session) -> None:
    first = asyncio.ensure_future(session.append_message(user("a")))
    second = asyncio.ensure_future(session.append_message(user("b")))
    assert session.leaf_id is None
    a, b = (await first).entry_ids[0], (await second).entry_ids[0]
    assert existing(await session.get_entry(b)).parent_id == a


async def test_of_two_handles_that_build_on_one_leaf_the_later_one_gets_a_conflict(
    store: Store, session: Session
) -> None:
    (root,) = await say(session, "root")
    late = await another_handle(store, session)
    (mine,) = await say(session, "mine")
    caught = await raises(LeafConflict, say(late, "late"))
    assert (caught.value.expected, caught.value.actual) == (root, mine)
    assert late.leaf_id == root
    assert await path_of(session) == ["root", "mine"]


async def test_a_refresh_after_a_conflict_lets_the_handle_build_on_what_is_there(
    store: Store, session: Session
) -> None:
    late = await another_handle(store, session)
    await say(session, "mine")
    await raises(LeafConflict, late.move_leaf(None))
    info = await late.refresh()
    assert (info.leaf_id, info.revision) == (session.leaf_id, session.revision)
    await say(late, "late")
    assert await path_of(session) == ["mine", "late"]


async def test_a_read_for_an_answer_takes_over_the_stored_leaf_and_a_read_elsewhere_does_not(
    store: Store, session: Session
) -> None:
    first, second = await say(session, "a", "b")
    other = await another_handle(store, session)
    (third,) = await say(session, "c")
    assert [item.entry_id for item in await other.build_context_entries(leaf=first)] == [first]
    assert await other.build_context(leaf=first) == [user("a")]
    assert (await other.request(leaf=first)).messages == [user("a")]
    assert other.leaf_id == second
    assert len(await other.build_context()) == 3
    assert (other.leaf_id, other.revision) == (third, session.revision)


Look = Callable[[Session, str], Awaitable[object]]
ANSWERED: dict[str, Look] = {
    "build_context": lambda s, _: s.build_context(),
    "build_context(limit=1)": lambda s, _: s.build_context(limit=1),
    "build_context_entries": lambda s, _: s.build_context_entries(),
    "build_context_entries(limit=1)": lambda s, _: s.build_context_entries(limit=1),
    "request": lambda s, _: s.request("anthropic"),
    "attempts": lambda s, _: s.context.attempts(),
    "refresh": lambda s, _: s.refresh(),
}
LOOK_ALONE = """\
artifacts.all money.budgets changes money.check_budgets copy reports.snapshots entries money.entry_costs
marks.exclusions context.gather get_active_path get_tree reports.html marks.labels context.latest_assistant
compactions.latest log compactions.loss_report reports.name context.pending marks.pins compactions.plan marks.registered
settings tasks.links
tasks.parents turns
"""
"""Methods that are called without an argument."""
LOOK_AT_ENTRY = "branches.children context.common_prefix get_entry resolve_entry_id"
"""Methods that are called with an entry."""
LOOKED_AT: dict[str, Look] = {
    **{name: lambda s, _, name=name: attrgetter(name)(s)() for name in LOOK_ALONE.split()},
    **{name: lambda s, at, name=name: attrgetter(name)(s)(at) for name in LOOK_AT_ENTRY.split()},
    "aggregate_usage_since": lambda s, _: s.money.aggregate_usage_since(None),
    "common_ancestor": lambda s, at: s.branches.common_ancestor(other_leaf=at),
    "diff": lambda s, at: s.branches.diff(other_leaf=at),
    "get_active_path(limit=1)": lambda s, _: s.get_active_path(limit=1),
    "get_active_path since": lambda s, at: s.get_active_path(since=at),
    "get_entries": lambda s, at: s.get_entries([at]),
    "is_ancestor": lambda s, at: s.branches.is_ancestor(at, of=at),
    "measure_context": lambda s, _: s.context.measure("gpt-5"),
    "plan": lambda s, _: s.compactions.price("rewind", turns=1),
    "recall": lambda s, _: s.compactions.recall(None, "a"),
    "validate": lambda s, _: s.context.validate("anthropic"),
    "compact(dry_run=True)": lambda s, _: s.compact(mode="lossless", dry_run=True),
    "compact that makes nothing": lambda s, _: s.compact(mode="lossless"),
    "uncompact without a compaction": lambda s, _: s.compactions.uncompact(),
}
ELSEWHERE = {"answer_read_artifact", "answer_recall", "read_artifact", "budgeted", "watch"}
"""Reads of what has an id of its own, or that are no single call: of an artifact, of a compaction, of what comes."""
MONEY = {"commit", "import_call", "prolong", "record_call", "release", "reserve"}


async def test_who_looks_at_a_session_builds_on_what_it_built_on_before(store: Store) -> None:
    """A view of the session must not let an answer pass that was given to less than is there."""
    wrong = []
    for name, look in {**ANSWERED, **LOOKED_AT}.items():
        session = await store.create_session()
        first, seen = await say(session, "a", "b")
        late = await another_handle(store, session)
        await say(session, "STOP")
        with suppress(flue_py.EntryNotFound, flue_py.InvalidArgument):
            await look(late, first)
        if (late.leaf_id == seen) is (name in ANSWERED):
            wrong.append(name)
    assert wrong == []


async def test_who_guards_or_serves_a_session_leaves_what_its_caller_builds_on(store: Store) -> None:
    """Between a request and its answer, a guard may decide, and a command look, through the handle of the agent."""

    async def served(session: Session, look: Callable[[Conversation], Awaitable[object]]) -> None:
        await look(Conversation(store, session))

    async def compacted_and_back(session: Session) -> None:
        assert (await session.compact(mode="lossless", settings=SETTINGS, window=WINDOW)).appended is not None
        assert await session.compactions.uncompact() is not None

    async def decided(session: Session) -> None:
        assert (await guard_of(store, session).before_call()).outcome == "compacted"

    async def reopened(session: Session) -> None:
        harness = Harness(store, instance="i", name="h")
        opened = HarnessSession(harness, "n", None, session)
        harness._open["n"] = opened
        await harness.open_session("n")
        await opened.read_metadata()

    between: dict[str, Callable[[Session], Awaitable[object]]] = {
        "a guard compacts": decided, "a guard looks": lambda s: guard_of(store, s, window=200_000).before_call(),
        "a guard is asked for its state": lambda s: guard_of(store, s).state(),
        "compact": lambda s: s.compact(mode="lossless", settings=SETTINGS, window=WINDOW),
        "compact and back": compacted_and_back, "snapshot": lambda s: served(s, Conversation.snapshot),
        "compact(dry_run=True)": lambda s: served(s, lambda c: c.compact(mode="lossless", dry_run=True)),
        "fork": lambda s: served(s, Conversation.fork), "save": lambda s: served(s, Conversation.save),
        "sessions": lambda s: served(s, Conversation.sessions), "opened again": reopened,
    }  # fmt: skip
    wrong = []
    for name, happens in between.items():
        for is_late in (True, False):
            session = await store.create_session()
            await talk(session, 24)
            await session.build_context()
            if is_late:
                await say(await another_handle(store, session), "STOP")
            await happens(session)
            with suppress(LeafConflict):
                await say(session, "done")
                if is_late:
                    wrong.append(name)
                continue
            if not is_late:
                wrong.append(f"{name}, alone")
    assert wrong == []


def test_it_is_decided_of_each_read_whether_it_is_what_is_built_on() -> None:
    public = {name: value for name, value in inspect.getmembers(Session, callable) if not name.startswith("_")}
    reads = {name for name, value in public.items() if "expected_leaf" not in parameters_of(value)}
    decided = {name for name in (*ANSWERED, *LOOKED_AT) if name.isidentifier()}
    assert reads - decided - ELSEWHERE - MONEY - {"fit_to"} == set()
    page = Path("docs/how-to/write-safely.md").read_text(encoding="utf-8")
    answered, looked_at = page.split("\n### On one handle\n")[1].split("\n### ")[0].split("\n- ")[1:]
    assert "Every other read" in looked_at
    assert set(re.findall(r"`(\w+)`", answered)) == {name for name in ANSWERED if name.isidentifier()}


async def test_a_title_does_not_make_a_handle_build_on_what_it_has_not_seen(store: Store, session: Session) -> None:
    other = await another_handle(store, session)
    await say(session, "a")
    await other.set_title("named")
    assert (other.title, other.leaf_id) == ("named", None)
    await raises(LeafConflict, say(other, "b"))


async def test_moves_compare_the_leaf_as_appends_do(store: Store, session: Session) -> None:
    (root, *_) = await say(session, "a", "b")
    other = await another_handle(store, session)
    await say(session, "c")
    for attempt in (other.move_leaf(root), other.rewind(to=root), other.rewind(turns=-1), other.undo(), other.redo()):
        with pytest.raises(LeafConflict):
            await attempt
    assert await path_of(session) == ["a", "b", "c"]


# -- on_conflict=branch -------------------------------------------------------------------------------------------


async def test_the_rest_of_a_turn_follows_its_beginning_onto_the_branch(store: Store, session: Session) -> None:
    await say(session, "root")
    late = await another_handle(store, session)
    await say(session, "mine")
    await late.append_message(user("late 1"), on_conflict="branch")
    landed = await late.append_messages([user("late 2"), user("late 3")], on_conflict="branch")
    assert landed.on_branch
    assert late.leaf_id == landed.entry_ids[-1]
    branch = await late.get_active_path(leaf=late.leaf_id)
    assert texts(branch) == ["root", "late 1", "late 2", "late 3"]
    await raises(LeafConflict, say(late, "late 4"))
    await late.refresh()
    assert await path_of(late) == ["root", "mine"]


async def test_a_branch_of_no_messages_is_nothing(store: Store, session: Session) -> None:
    (root,) = await say(session, "root")
    late = await another_handle(store, session)
    await say(session, "mine")
    landed = await late.append_messages([], on_conflict="branch")
    assert landed.entry_ids == ()
    assert late.leaf_id == root
    assert len(await session.get_tree()) == 2


async def test_an_unknown_answer_to_conflicts_is_refused(session: Session) -> None:
    await raises(flue_py.InvalidArgument, session.append_message(user("a"), on_conflict="merge"), match="on_conflict")  # type: ignore[arg-type]
    assert await session.get_tree() == []


# -- retries ------------------------------------------------------------------------------------------------------


async def test_a_replay_does_not_take_the_handle_back(session: Session) -> None:
    await session.append_message(user("a"), idempotency_key="turn-1")
    (b,) = await say(session, "b")
    assert (await session.append_message(user("a"), idempotency_key="turn-1")).replayed
    assert session.leaf_id == b
    await say(session, "c")
    assert await path_of(session) == ["a", "b", "c"]


async def test_a_replay_tells_a_handle_of_a_commit_that_it_never_heard_of(store: Store, session: Session) -> None:
    unaware = await another_handle(store, session)
    first = await session.append_message(user("a"), idempotency_key="turn-1")
    again = await unaware.append_message(user("a"), idempotency_key="turn-1")
    assert again.replayed
    assert unaware.leaf_id == first.leaf_id
    await say(unaware, "b")
    assert await path_of(session) == ["a", "b"]


async def test_moves_forks_and_tasks_are_retried_too(session: Session) -> None:
    a, _ = await say(session, "a", "b")
    first = await session.move_leaf(a, idempotency_key="m")
    (c,) = await say(session, "c")
    again = await session.move_leaf(a, idempotency_key="m")
    assert again.replayed
    assert (again.to_id, again.revision) == (first.to_id, first.revision)
    assert session.leaf_id == c
    forks = [await session.fork(at=a, idempotency_key="f") for _ in range(2)]
    tasks = [await session.tasks.create(task_id="t", idempotency_key="t") for _ in range(2)]
    assert len({fork.id for fork in forks}) == len({task.id for task in tasks}) == 1


# -- cancellation -------------------------------------------------------------------------------------------------


class SlowBackend(Backend):
    """A store whose appends wait, once begun, until they are let through; as long as that, they are under way."""

    def __init__(self) -> None:
        super().__init__(MemoryRunner(), counted_sources())
        self.begun = asyncio.Event()
        self.let_through = asyncio.Event()

    async def append(
        self,
        session_id: str,
        entries: list[NewEntry],  # type: ignore[override]
        *,
        expected: LeafChoice = STORED,
        on_conflict: OnConflict = "raise",
        idempotency_key: str | None = None,
    ) -> Appended:
        self.begun.set()
        cancelled: asyncio.CancelledError | None = None
        while not self.let_through.is_set():
            try:
                await self.let_through.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        result = await super().append(session_id, entries, expected=expected, on_conflict=on_conflict)
        if cancelled is not None:
            raise cancelled from CommittedBeforeCancellation(result)
        return result


async def test_a_commit_under_way_is_finished_and_noted_before_cancellation_is_raised(anyio_backend: str) -> None:
    backend = SlowBackend()
    session = await Store(backend).create_session()
    appending = asyncio.ensure_future(session.append_message(user("a")))
    await backend.begun.wait()
    appending.cancel()
    done, _ = await asyncio.wait([appending], timeout=0)
    assert not done
    backend.let_through.set()
    with pytest.raises(asyncio.CancelledError):
        await appending
    (entry,) = await session.get_tree()
    assert session.leaf_id == entry.id
    await say(session, "b")
    assert await path_of(session) == ["a", "b"]


async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_has_no_effect(anyio_backend: str) -> None:
    backend = SlowBackend()
    session = await Store(backend).create_session()
    calls = [asyncio.ensure_future(session.append_message(user(text))) for text in "abc"]
    await backend.begun.wait()
    calls[1].cancel()
    backend.let_through.set()
    await asyncio.wait(calls)
    assert calls[1].cancelled()
    assert await path_of(session) == ["a", "c"]


@inputs("moment", range(6))
@also_in_memory
async def test_whenever_an_append_is_cancelled_the_handle_knows_what_is_stored(
    store: Store, session: Session, moment: int
) -> None:
    appending = asyncio.ensure_future(session.append_message(user("a")))
    for _ in range(moment):
        await asyncio.wait([appending], timeout=0)
    appending.cancel()
    with suppress(asyncio.CancelledError):
        await appending
    stored = await another_handle(store, session)
    assert session.leaf_id == stored.leaf_id
    await say(session, "b")
    assert (await path_of(session))[-1] == "b"


@inputs("moment", range(6))
@also_in_memory
async def test_whenever_a_scope_is_cancelled_it_is_left_and_the_handle_knows_what_is_stored(
    store: Store, session: Session, moment: int
) -> None:
    is_done = False

    async def stop(scope: CancelScope) -> None:
        for _ in range(moment):
            await checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        with CancelScope() as scope:
            group.start_soon(stop, scope)
            await session.append_message(user("a"))
            is_done = True
    assert scope.cancelled_caught is not is_done
    stored = await another_handle(store, session)
    assert session.leaf_id == stored.leaf_id
    await say(session, "b")
    assert (await path_of(session))[-1] == "b"


@also_in_memory
async def test_a_conflict_of_a_cancelled_append_leaves_the_handle_alone(store: Store, session: Session) -> None:
    late = await another_handle(store, session)
    await say(session, "a")
    appending = asyncio.ensure_future(say(late, "b"))
    await asyncio.wait([appending], timeout=0)
    appending.cancel()
    with pytest.raises((asyncio.CancelledError, LeafConflict)):
        await appending
    assert late.leaf_id is None
    assert await path_of(session) == ["a"]


# -- the end ------------------------------------------------------------------------------------------------------


async def test_a_deleted_session_takes_no_writes_also_when_its_key_is_used_again(
    store: Store, session: Session
) -> None:
    (a,) = await say(session, "a")
    await store.delete_session_tree(session)
    heir = await store.open_session("triage", mode="create", scope="user-7")
    assert heir.id != session.id
    reached = []
    for name, call in CALLS.items():
        try:
            await call(session, a)
            reached.append(name)
        except SessionNotFound:
            continue
    assert reached == []
    assert await path_of(heir) == []


@also_in_memory
async def test_a_closed_store_refuses_everything(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a")
    for attempt in (
        say(session, "b"), session.get_active_path(), session.build_context(), session.refresh(),
        store.create_session(), store.get_session(session.id), store.list_sessions(), store.verify(), store.info(),
    ):  # fmt: skip
        with pytest.raises(flue_py.StoreClosed):
            await attempt
    await store.close()


async def test_handles_show_what_they_are(session: Session) -> None:
    assert repr(session) == f"<Session {session.id!r} key='triage' leaf=None revision=0>"
    assert (session.info.scope, session.key, session.info.kind) == ("user-7", "triage", "root")
