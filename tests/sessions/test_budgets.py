"""Budgets of sessions: reserve before a call, book after it, go on when the budget is raised."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import flue_py
from flue_py import JsonObject, Session, Store, SummaryFailed
from flue_py.compaction import CompactionSettings
from flue_py.core.ledger import Amounts, NewBudget, Reservation
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from flue_py.db.backend import Backend
from flue_py.db.runner import CommittedBeforeCancellation, Sources
from flue_py.db.sqlite.runner import MemoryRunner
from flue_py.errors import (
    BudgetExceeded,
    InvalidArgument,
    ModelDenied,
    ModelError,
    ModelUnavailable,
    OutcomeUnknown,
    ReservationSettled,
    StoreBusy,
)
from tests.checks import raises
from tests.sessions.conftest import also_in_memory
from tests.sessions.guarded import SETTINGS, guard_of, model, talk
from tests.sessions.talk import user
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing


async def spent(session: flue_py.Session) -> tuple[int, int]:
    """Return what the one budget of a session has spent, and what is reserved in it."""
    (budget,) = await session.money.budgets()
    return budget.spent, budget.reserved


# -- setting budgets --------------------------------------------------------------------------------------------------


async def test_money_is_given_in_dollars_and_kept_exactly(store: flue_py.Store, session: flue_py.Session) -> None:
    budget = await store.set_budget(session, cost=0.3, spent_so_far="0.1")
    assert (budget.allowed_usd, budget.spent_usd, budget.left_usd) == (Decimal("0.3"), Decimal("0.1"), Decimal("0.2"))
    held = await session.money.reserve(cost=Decimal("0.15"))
    assert (held.cost, held.used_cost) == (Decimal("0.15"), None)
    with pytest.raises(BudgetExceeded, match=r"has 0\.05 USD left, and 0\.06 USD is asked for \(0\.3 USD allowed"):
        await session.money.reserve(cost=0.06)
    assert (await session.money.commit(held, cost="0.2")).used_cost == Decimal("0.2")
    (budget,) = await session.money.budgets()
    assert (budget.spent_usd, budget.left) == (Decimal("0.3"), 0)
    tokens = await store.set_budget(session.id, tasks=True, tokens=10)
    assert (tokens.allowed_usd, tokens.spent_usd, tokens.left_usd) == (None, None, None)
    assert (tokens.target, budget.target) == (f"session {session.id!r} and its tasks", f"session {session.id!r}")
    assert (await store.set_budget(scope="x", tokens=1)).target == "scope 'x'"


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"tokens": 5}, "either a session or scope="),
    ({"session": "s", "scope": "x", "tokens": 5}, "either a session or scope="),
    ({"session": "s"}, "either tokens= or cost="),
    ({"session": "s", "tokens": 5, "cost": 1}, "either tokens= or cost="),
    ({"scope": "x", "tasks": True, "tokens": 5}, "tasks: a budget of a scope"),
    ({"session": "s", "tasks": "yes", "tokens": 5}, "tasks: 'yes'"), ({"session": "s", "tokens": -1}, "tokens: -1"),
    ({"session": "s", "tokens": 2**63}, "tokens: 9223372036854775808"),
    ({"session": "s", "tokens": 1.5}, "tokens: 1.5"), ({"session": "s", "tokens": True}, "tokens: True"),
    ({"session": "s", "cost": "ten"}, "cost: 'ten'"), ({"session": "s", "cost": -0.1}, "cost: -0.1"),
    ({"session": "s", "cost": float("nan")}, "cost: nan"), ({"session": "s", "cost": 10**9}, "more than can be stored"),
    ({"session": "s", "tokens": 5, "spent_so_far": "all"}, "spent_so_far: 'all'"),
    ({"session": "s", "tokens": 5, "spent_so_far": -5}, "spent_so_far: -5"),
    ({"session": "s", "cost": 5, "spent_so_far": "lots"}, "spent_so_far: 'lots'"),
    ({"session": 7, "tokens": 5}, "neither a session nor an id"),
    ({"scope": 7, "tokens": 5}, "scope: should be a string"), ({"scope": "a\0", "tokens": 5}, "scope: holds a NUL"),
]  # fmt: skip


async def test_a_budget_that_makes_no_sense_is_refused(store: flue_py.Store) -> None:
    for arguments, said in NONSENSE:
        caught = await raises(InvalidArgument, store.set_budget(**arguments))
        assert said in str(caught.value)
    assert await store.list_budgets() == []


async def test_a_reservation_of_nonsense_is_refused(store: flue_py.Store, session: flue_py.Session) -> None:
    await store.set_budget(session, tokens=100)
    amounts: list[dict[str, Any]] = [
        {}, {"tokens": -1}, {"tokens": 1.5}, {"tokens": True}, {"tokens": "5"}, {"cost": -1}, {"cost": "x"},
    ]  # fmt: skip
    ttls: list[dict[str, Any]] = [
        {"tokens": 1, "ttl": ttl} for ttl in (0, -1, "5", True, float("nan"), float("inf"), 10**10)
    ]
    for arguments in amounts + ttls:
        await raises(InvalidArgument, session.money.reserve(**arguments))
        with pytest.raises(InvalidArgument):
            session.money.budgeted(**arguments)
    assert await spent(session) == (0, 0)


async def test_what_is_settled_must_be_a_reservation_of_the_session(
    store: flue_py.Store, session: flue_py.Session
) -> None:
    await store.set_budget(session, tokens=100)
    other = await store.create_session()
    held = await session.money.reserve(tokens=10)
    for call in (other.money.commit(held), other.money.release(held), other.money.prolong(held)):
        with pytest.raises(InvalidArgument, match="settle it there"):
            await call
    for nonsense in (None, 5, b"x", {"id": held.id}):
        await raises(InvalidArgument, session.money.commit(nonsense), match="reservation: ")  # type: ignore[arg-type]
    await raises(InvalidArgument, session.money.commit(held, tokens=-1), match="tokens: -1")
    for page in (0, 1001, "5"):
        await raises(InvalidArgument, store.list_budgets(limit=page), match="limit")  # type: ignore[arg-type]
    assert await spent(session) == (0, 10)
    assert (await session.money.commit(held.id, tokens=3)).used_tokens == 3


# -- going on ---------------------------------------------------------------------------------------------------------


@also_in_memory
async def test_a_session_that_is_over_budget_goes_on_when_it_is_raised(target: str) -> None:
    async with flue_py.open(target, durability="normal") as store:
        session = await store.open_session("k", mode="get_or_create")
        await store.set_budget(session, tokens=100)
        await session.money.commit(await session.money.reserve(tokens=90), tokens=95)
        caught = await raises(BudgetExceeded, session.money.reserve(tokens=10))
        assert (caught.value.left, caught.value.asked) == (5, 10)
        await session.append_message(user("stopped for now"))
        if target != ":memory:":
            async with flue_py.open(target, durability="normal") as again:
                session = await again.open_session("k")
                await raises(BudgetExceeded, session.money.reserve(tokens=10))
                # What a program does each time it starts: what has been counted stays.
                assert (await again.set_budget(session, tokens=200)).spent == 95
                async with session.money.budgeted(tokens=10) as call:
                    call.used(tokens=9)
                assert await spent(session) == (104, 0)


async def test_without_a_budget_everything_may_be_reserved_and_settled(session: flue_py.Session) -> None:
    held = await session.money.reserve(tokens=10**9, cost="1000")
    assert (held.budget_ids, held.tokens, held.cost) == ((), None, None)
    assert (await session.money.commit(held, tokens=5)).state == "committed"
    assert (await session.money.release(held)).state == "released"
    assert await session.money.prolong(held) == held
    async with session.money.budgeted(tokens=5) as call:
        call.used(tokens=7)
    with suppress(KeyError):
        async with session.money.budgeted(tokens=5):
            raise KeyError


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_what_is_held_lapses_by_the_stores_clock_unless_it_is_prolonged(target: str) -> None:
    clock = Clock()
    async with flue_py.open(target, durability="normal", clock=clock) as store:
        session = await store.create_session()
        budget = await store.set_budget(session, tokens=100)
        assert budget.created_at == clock.now
        short, usual = await session.money.reserve(tokens=10, ttl=0.5), await session.money.reserve(tokens=20)
        assert (short.expires_at, usual.expires_at) == (
            clock.now + timedelta(seconds=0.5),
            clock.now + timedelta(minutes=15),
        )
        clock.now += timedelta(seconds=0.5)
        assert await spent(session) == (0, 20)
        clock.now += timedelta(minutes=14)
        await session.money.prolong(usual)
        clock.now += timedelta(minutes=14)
        assert await spent(session) == (0, 20)
        assert [held.reservation_id for held in await store.held_amounts(budget.id)] == [usual.id]
        clock.now += timedelta(minutes=1)
        assert await spent(session) == (0, 0)
        await raises(ReservationSettled, session.money.prolong(usual), match="expired at 2026-01-01 00:29:00 UTC")
        late = await session.money.commit(usual, tokens=25)
        assert late.was_late
        assert await store.get_reservation(usual.id) == late
        assert await spent(session) == (25, 0)
        assert (await store.delete_budget(budget.id)).spent == 25
        assert await store.get_budget(budget.id) is None


# -- async with -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["well", "error", "cancelled"])
async def test_a_block_books_what_was_used_and_gives_back_what_was_not(
    store: flue_py.Store, session: flue_py.Session, ending: str
) -> None:
    failure = {"error": KeyError("provider"), "cancelled": asyncio.CancelledError()}.get(ending)
    await store.set_budget(session, tokens=1_000)

    async def call_model(said: tuple[int | str, ...]) -> None:
        async with session.money.budgeted(tokens=30) as call:
            assert (await spent(session))[1] == 30
            assert (call.reservation.tokens, call.is_made, call.amounts) == (30, False, Amounts())
            for what in said:
                if isinstance(what, int):
                    call.used(tokens=what)
                else:
                    call.made()
                assert call.is_made
            if failure is not None:
                raise failure

    total = 0
    cases: list[tuple[tuple[int | str, ...], int, int]] = [
        ((), 30, 0), (("made",), 30, 30), ((12,), 12, 12), (("made", 12), 12, 12), ((12, 44), 44, 44),
    ]  # fmt: skip
    for said, used_well, used_failed in cases:
        if failure is None:
            await call_model(said)
        else:
            await raises(type(failure), call_model(said))
        total += used_well if failure is None else used_failed
        assert await spent(session) == (total, 0)


async def test_a_block_is_not_entered_over_budget(store: flue_py.Store, session: flue_py.Session) -> None:
    await store.set_budget(session, tokens=10)
    entered = False
    with pytest.raises(BudgetExceeded):
        async with session.money.budgeted(tokens=11):
            entered = True
    assert not entered
    assert await spent(session) == (0, 0)


async def test_tokens_and_money_may_be_said_one_after_the_other(store: flue_py.Store, session: flue_py.Session) -> None:
    await store.set_budget(session, tokens=100)
    await store.set_budget(session, cost=1)
    async with session.money.budgeted(tokens=30, cost=0.5) as call:
        call.used(tokens=7)
        call.used(cost=0.25)
        for arguments in ({}, {"tokens": -1}, {"cost": "much"}):
            with pytest.raises(InvalidArgument):
                call.used(**arguments)  # type: ignore[arg-type]
    tokens, money = await session.money.budgets()
    assert (tokens.spent, money.spent_usd) == (7, Decimal("0.25"))


async def test_a_budget_that_is_deleted_meanwhile_stops_nobody(store: flue_py.Store, session: flue_py.Session) -> None:
    budget = await store.set_budget(session, tokens=100)
    async with session.money.budgeted(tokens=30) as call:
        await store.delete_budget(budget.id)
        call.used(tokens=30)
    with pytest.raises(KeyError):
        async with session.money.budgeted(tokens=30):
            raise KeyError
    assert await session.money.budgets() == []


async def test_a_cancelled_call_is_settled_before_the_cancellation_is_raised(
    store: flue_py.Store, session: flue_py.Session
) -> None:
    await store.set_budget(session, tokens=100)
    for made, booked in ((False, 0), (True, 30)):
        waiting = asyncio.Event()

        async def call_model(made: bool = made, waiting: asyncio.Event = waiting) -> None:
            async with session.money.budgeted(tokens=30) as call:
                if made:
                    call.made()
                waiting.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(call_model())
        await waiting.wait()
        assert await spent(session) == (0, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await spent(session) == (booked, 0)


async def test_parallel_calls_of_one_handle_share_its_budget(store: flue_py.Store, session: flue_py.Session) -> None:
    await store.set_budget(session, tokens=100)

    async def call_model() -> bool:
        try:
            async with session.money.budgeted(tokens=30) as call:
                call.used(tokens=30)
        except BudgetExceeded:
            return False
        return True

    assert sorted(await asyncio.gather(*(call_model() for _ in range(5)))).count(True) == 3
    assert await spent(session) == (90, 0)


class Failing(Backend):
    """A store whose next settlement fails, or that was cancelled when a reservation had just been made."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(MemoryRunner(), sources)
        self.failure: Exception | None = None
        self.is_cancelled = False
        self.made: Reservation | None = None

    async def reserve(self, session_id: str, asked: Amounts, ttl_us: int) -> Reservation:
        self.made = made = await super().reserve(session_id, asked, ttl_us)
        if self.is_cancelled:
            raise asyncio.CancelledError from CommittedBeforeCancellation(made)
        return made

    async def commit_reservation(self, reservation_id: str, used: Amounts) -> Reservation:
        if self.failure is not None:
            raise self.failure
        return await super().commit_reservation(reservation_id, used)

    async def release_reservation(self, reservation_id: str) -> Reservation:
        if self.failure is not None:
            raise self.failure
        return await super().release_reservation(reservation_id)


async def failing() -> tuple[Failing, Session]:
    backend = Failing(counted_sources())
    session = await flue_py.Store(backend).create_session()
    await backend.set_budget(NewBudget("session", "tokens", 100, session.id))
    return backend, session


async def test_a_failure_to_book_is_raised_and_never_hides_the_error_of_the_block() -> None:
    backend, session = await failing()
    backend.failure = StoreBusy("busy")
    with pytest.raises(StoreBusy):
        async with session.money.budgeted(tokens=5) as call:
            call.used(tokens=5)

    async def call_model() -> None:
        async with session.money.budgeted(tokens=5) as call:
            call.used(tokens=5)
            raise KeyError("provider")

    caught = await raises(KeyError, call_model())
    assert caught.value.__notes__ == ["what the call used could not be booked: busy"]
    backend.failure = OutcomeUnknown("lost")
    with pytest.raises(KeyError):
        async with session.money.budgeted(tokens=5):
            raise KeyError("provider")


async def test_a_reservation_that_nobody_hears_of_is_released() -> None:
    backend, session = await failing()
    backend.is_cancelled = True
    await raises(asyncio.CancelledError, session.money.reserve(tokens=60))
    assert await spent(session) == (0, 0)
    assert backend.made is not None
    assert existing(await backend.get_reservation(backend.made.id)).state == "released"


# -- the blocking twin ------------------------------------------------------------------------------------------------


def test_the_blocking_twin_reserves_and_books(target: str) -> None:
    with flue_py.sync.open(target, durability="normal") as store:
        session = store.create_session()
        budget = store.set_budget(session, tokens=100)
        with session.money.budgeted(tokens=30) as call:
            assert session.money.budgets()[0].reserved == 30
            call.used(tokens=20)
        with pytest.raises(KeyError), session.money.budgeted(tokens=30):
            raise KeyError("provider")
        with pytest.raises(BudgetExceeded), session.money.budgeted(tokens=81):
            raise AssertionError("entered over budget")
        held = session.money.reserve(tokens=80)
        assert session.money.prolong(held, ttl=3_600).expires_us > held.expires_us
        session.money.release(held)
        session.money.commit(session.money.reserve(tokens=5))
        found = existing(store.get_budget(budget.id))
        assert (found.spent, found.reserved) == (25, 0)
        assert store.list_budgets() == [found]


# -- Budgets and bills of all scopes that begin alike -------------------------------------------------------------


async def test_a_budget_and_a_bill_of_a_prefix_are_of_all_scopes_that_begin_so(store: flue_py.Store) -> None:
    scopes = ("tenant-1", "tenant-1/ann", "tenant-1/\U0010ffffben/x", "tenant-10", "tenant", "")
    sessions = {scope: await store.create_session(scope=scope) for scope in scopes}
    for session in sessions.values():
        await session.append_message({"role": "assistant", "content": "x", "usage": {"input": 10, "output": 0}})
    begun = {
        prefix: await store.set_budget(scope_prefix=prefix, tokens=1000, spent_so_far="ledger")
        for prefix in ("tenant-1/", "tenant-1", "", "nobody")
    }
    exact = await store.set_budget(scope="tenant-1", tokens=100)
    assert [(budget.scope, budget.spent) for budget in begun.values()] == [
        ("tenant-1/*", 20), ("tenant-1*", 40), ("*", 60), ("nobody*", 0),
    ]  # fmt: skip
    covering = {scope: {each.scope for each in await session.money.budgets()} for scope, session in sessions.items()}
    assert covering == {
        "tenant-1": {"tenant-1", "tenant-1*", "*"},
        "tenant-1/ann": {"tenant-1/*", "tenant-1*", "*"},
        "tenant-1/\U0010ffffben/x": {"tenant-1/*", "tenant-1*", "*"},
        "tenant-10": {"tenant-1*", "*"},
        "tenant": {"*"},
        "": {"*"},
    }
    again = await store.set_budget(scope_prefix="tenant-1/", tokens=25)
    assert (again.id, again.allowed, again.spent) == (begun["tenant-1/"].id, 25, 20)
    await raises(flue_py.BudgetExceeded, sessions["tenant-1/ann"].money.reserve(tokens=6), match="'tenant-1/\\*'")
    calls = {
        prefix: (await store.usage(scope_prefix=prefix)).total.calls
        for prefix in ("tenant-1/", "tenant-1", "tenant-1/a", "", "nobody", "%")
    }
    assert calls == {"tenant-1/": 2, "tenant-1": 4, "tenant-1/a": 1, "": 6, "nobody": 0, "%": 0}
    by_scope = await store.usage(scope_prefix="tenant-1/", group_by=["scope"])
    assert [row.calls for row in by_scope.rows] == [1, 1]
    assert exact.spent == 0
    own = await store.set_budget(sessions["tenant-1/ann"], tokens=7)
    listed = {
        prefix: [budget.id for budget in await store.list_budgets(scope_prefix=prefix, limit=9)]
        for prefix in ("tenant-1/", "tenant-1", "", "no")
    }
    of_all = [budget.id for budget in await store.list_budgets()]
    assert listed == {
        "tenant-1/": [begun["tenant-1/"].id, own.id],
        "tenant-1": [begun["tenant-1/"].id, begun["tenant-1"].id, exact.id, own.id],
        "": of_all,
        "no": [begun["nobody"].id],
    }
    assert len(of_all) == 6
    assert [budget.id for budget in await store.list_budgets(scope_prefix="tenant-1", after=exact.id)] == [own.id]
    both = await store.list_budgets(scope="tenant-1", scope_prefix="tenant-1")
    assert ([budget.id for budget in both], await store.list_budgets(scope="a", scope_prefix="b")) == ([exact.id], [])
    for wrong in ({"scope": "tenant-*"}, {"scope": "a", "scope_prefix": "a"}, {"scope_prefix": "a", "tasks": True}):
        await raises(flue_py.InvalidArgument, store.set_budget(tokens=1, **wrong))  # type: ignore[arg-type]


# -- Budgets and the ledger count the same where each call reserves and reports, of forks and of what is gone,
# too -------------------------------------------------------------------------------------------------------------


async def call(session: flue_py.Session, tokens: int) -> None:
    async with session.money.budgeted(tokens=tokens) as made:
        made.used(tokens=tokens)
    await session.append_message({"role": "assistant", "content": "x", "usage": {"input": tokens, "output": 0}})


async def test_budget_and_ledger_count_the_same_calls_of_forks_tasks_and_what_was_deleted(store: flue_py.Store) -> None:
    mine = store.in_scope("team/ann")
    main = await mine.create_session(key="main")
    await main.append_message({"role": "user", "content": "x"})
    budgets = {
        "session": await mine.set_budget(main, tokens=1_000),
        "tasks": await mine.set_budget(main, tasks=True, tokens=1_000),
        "scope": await mine.set_budget(tokens=1_000),
        "prefix": await store.set_budget(scope_prefix="team/", tokens=1_000),
    }
    await call(main, 1)
    task = await main.tasks.create(task_id="t")
    await call(task, 2)
    gone_task = await main.tasks.create(task_id="gone")
    await call(gone_task, 4)
    fork = await main.fork()
    await call(fork, 8)
    linked = await main.fork()
    await mine.link_task(main, linked, task_id="attempt")
    await call(linked, 16)
    gone = await main.fork()
    await call(gone, 32)
    await call(await main.fork(scope="team/bob"), 64)
    for session in (gone_task, gone):
        await store.delete_session_tree(session)

    right = {"session": 1, "tasks": 1 + 2 + 4 + 16, "scope": 63, "prefix": 127}
    spent = {name: (await store.get_budget(budget.id)) for name, budget in budgets.items()}
    assert {name: None if budget is None else budget.spent for name, budget in spent.items()} == right
    by_ledger = {budget.id: budget.spent for budget in await linked.money.budgets(by_ledger=True)}
    by_ledger |= {budget.id: budget.spent for budget in await main.money.budgets(by_ledger=True)}
    assert {name: by_ledger[budget.id] for name, budget in budgets.items()} == right
    reports = {
        "session": await store.usage(main),
        "tasks": await store.usage(main, tasks=True),
        "scope": await mine.usage(),
        "prefix": await store.usage(scope_prefix="team/"),
    }
    assert {name: report.total.total_tokens for name, report in reports.items()} == right
    begun = {
        "session": await store.set_budget(await main.fork(), tokens=1, spent_so_far="ledger"),
        "prefix": await store.set_budget(scope_prefix="tea", tokens=1, spent_so_far="ledger"),
    }
    assert {name: budget.spent for name, budget in begun.items()} == {"session": 0, "prefix": 127}
    covering = {budget.id for budget in await fork.money.budgets()}
    assert covering == {budgets["scope"].id, budgets["prefix"].id, begun["prefix"].id}

    await store.set_budget(scope_prefix="team/", tokens=100)
    await raises(flue_py.BudgetExceeded, fork.money.check_budgets())
    await store.delete_session_tree(main)
    assert [await store.get_budget(budgets[name].id) for name in ("session", "tasks")] == [None, None]
    assert await fork.refresh() is not None


# -- Budgets are asked for the calls of a compaction before they are made, and charged with what these used -----------


USAGE: JsonObject = {"input": 900, "output": 40, "totalTokens": 940, "cost": {"total": 0.25}}


def reply(usage: JsonObject | None = USAGE) -> ModelReply:
    said: JsonObject = {"role": "assistant", "content": "short", "provider": "house", "model": "small"}
    return ModelReply(({**said, "stopReason": "stop", **({} if usage is None else {"usage": usage})},))


async def booked(session: Session) -> list[tuple[int, int]]:
    return [(budget.spent, budget.reserved) for budget in await session.money.budgets()]


async def test_what_a_summary_used_is_booked_in_every_budget(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)
    await store.set_budget(session, cost=10)
    held: list[int] = []

    async def answer(_: ModelRequest) -> ModelReply:
        held.extend(budget.reserved for budget in await session.money.budgets())
        return reply()

    done = await session.compact(FunctionModel(answer, "small", context_window=200_000), settings=SETTINGS)
    assert done.appended is not None
    assert 940 < held[0] < 100_000
    assert await booked(session) == [(940, 0), (250_000_000_000, 0)]
    assert (await store.verify()).problems == []


async def test_without_enough_no_model_is_asked(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=500)

    def never(_: ModelRequest) -> ModelReply:
        raise AssertionError

    leaf = session.leaf_id
    failed = await raises(SummaryFailed, session.compact(model(never), settings=SETTINGS))
    assert isinstance(failed.value.__cause__, BudgetExceeded)
    assert session.leaf_id == leaf
    assert await booked(session) == [(0, 0)]
    fallback = CompactionSettings(keep_recent_tokens=285, user_words_share=0, on_failure="fallback")
    done = await session.compact(model(never), settings=fallback)
    assert done.mode == "intent"
    await session.compactions.uncompact()
    assert (await guard_of(store, session, model(never)).before_call()).outcome == "failed"


@inputs(
    ("error", "charged"),
    [
        (ModelDenied("no"), 0),
        (ModelUnavailable("broken off", call={**USAGE, "callId": "c"}), 940),
        (ModelUnavailable("no answer"), None),
    ],
)
async def test_a_call_that_fails_is_charged_with_what_it_may_have_used(
    session: Session, store: Store, error: ModelError, charged: int | None
) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)

    def fails(_: ModelRequest) -> ModelReply:
        raise error

    await raises(SummaryFailed, session.compact(model(fails), settings=SETTINGS))
    ((used, reserved),) = await booked(session)
    assert reserved == 0
    assert used == charged if charged is not None else used > 940


async def test_usage_that_is_unknown_is_what_was_reserved(session: Session, store: Store) -> None:
    await talk(session, 20)
    await store.set_budget(session, tokens=100_000)
    await session.compact(model(lambda _: reply(None)), settings=SETTINGS)
    ((used, reserved),) = await booked(session)
    assert reserved == 0
    assert used > 940
    assert (await store.set_budget(session, cost=Decimal(1))).spent == 0
