"""The contract: budgets, and what is reserved in them before a call and booked after it."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from flue_py.core.ledger import (
    BUDGET_PERIODS,
    Amounts,
    Budget,
    Covers,
    HeldAmount,
    NewBudget,
    Reached,
    Reservation,
    SpentSoFar,
    Unit,
)
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.usage import MAX_AMOUNT, PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.errors import (
    BudgetExceeded,
    BudgetNotFound,
    InvalidArgument,
    ReservationNotFound,
    ReservationSettled,
    SessionNotFound,
    StoreClosed,
)
from tests.checks import Refusals, raises, refusal, refused, unchanged
from tests.samples import UNKNOWN, add, assistant, new_session, snapshot, talk
from tests.sources import OpenBackend, counted_sources, repeating_sources
from tests.tables import inputs
from tests.together import outcomes, together
from tests.values import existing

DAILY = NewBudget("scope", "tokens", 100, period="day", tz="Europe/Berlin")

LONG = 10**12
"""A time to hold a reservation that no test outlives."""
GONE = 1
"""A time to hold a reservation that is over at the next look at the clock."""


async def budget_for(
    backend: Backend,
    session_id: str | None,
    allowed: int,
    *,
    covers: Covers = "session",
    unit: Unit = "tokens",
    scope: str = "",
    spent: SpentSoFar = 0,
) -> Budget:
    """Set a budget and return it."""
    return await backend.set_budget(NewBudget(covers, unit, allowed, session_id, scope, spent))


def moment(text: str) -> int:
    """Return a time in microseconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


async def pay(backend: Backend, session_id: str, tokens: int, at_us: int | None = None) -> None:
    """Write a paid call into the ledger, made at this time, or now."""
    await backend.record_call(session_id, PaidCall(UsageTotals(output=tokens), at_us=at_us))


async def reserve(backend: Backend, session_id: str, tokens: int, ttl_us: int = LONG) -> Reservation:
    """Reserve tokens."""
    return await backend.reserve(session_id, Amounts(tokens), ttl_us)


async def numbers(backend: Backend, budget_id: str) -> tuple[int, int, int]:
    """Return what a budget has spent, what is reserved in it, and what is left."""
    budget = existing(await backend.get_budget(budget_id))
    return budget.spent, budget.reserved, budget.left


class BudgetContract:
    """Budgets and reservations."""

    # -- what is held -----------------------------------------------------------------------------------------

    async def test_what_is_held_is_listed_by_when_it_expires_and_then_by_id(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(["budget", "other", "d", "c", "a", "b", "e", "f"]))
        session, other = await new_session(backend, scope="s"), await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        await budget_for(backend, other.id, 100)
        held = [await reserve(backend, session.id, 1 + number, ttl) for number, ttl in enumerate((30, 10, 20, 10, 5))]
        assert [each.id for each in held] == ["d", "c", "a", "b", "e"]
        await reserve(backend, other.id, 1, 10)
        await backend.release_reservation("e")
        now = held[0].created_us
        assert await backend.held_amounts(budget.id) == [
            HeldAmount("b", session.id, 4, now, now + 10),
            HeldAmount("c", session.id, 2, now, now + 10),
            HeldAmount("a", session.id, 3, now, now + 20),
            HeldAmount("d", session.id, 1, now, now + 30),
        ]
        await backend.close()

    async def test_what_expired_or_was_settled_is_not_held(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        gone, used, kept = [await reserve(backend, session.id, 1, ttl) for ttl in (GONE, LONG, LONG)]
        await backend.commit_reservation(used.id, Amounts(1))
        assert gone.id != kept.id
        assert [each.reservation_id for each in await backend.held_amounts(budget.id)] == [kept.id]

    # -- setting budgets --------------------------------------------------------------------------------------

    async def test_a_budget_is_what_was_set(self, backend: Backend) -> None:
        session = await new_session(backend, scope="team")
        made = await budget_for(backend, session.id, 100, covers="tasks", unit="picodollars", spent=30)
        assert (made.covers, made.session_id, made.scope, made.unit) == ("tasks", session.id, "team", "picodollars")
        assert (made.allowed, made.spent, made.reserved, made.seeded, made.left) == (100, 30, 0, 30, 70)
        assert made.created_us == made.updated_us
        assert await backend.get_budget(made.id) == made
        assert await backend.get_budget(UNKNOWN) is None

    async def test_there_is_one_budget_for_each_target_and_unit_which_goes_on_when_set_again(
        self, backend: Backend
    ) -> None:
        session, other = await new_session(backend, scope="a"), await new_session(backend, scope="a")
        targets: list[tuple[str | None, Covers, str]] = [
            (session.id, "session", ""),
            (session.id, "tasks", ""),
            (other.id, "session", ""),
            (None, "scope", "a"),
            (None, "scope", ""),
        ]
        units: list[Unit] = ["tokens", "picodollars"]
        made = [
            await budget_for(backend, session_id, 100, covers=covers, unit=unit, scope=scope)
            for session_id, covers, scope in targets
            for unit in units
        ]
        assert len({budget.id for budget in made}) == 10
        used = await reserve(backend, session.id, 10)
        await backend.commit_reservation(used.id, Amounts(7))
        for budget in made:
            again = await budget_for(
                backend, budget.session_id, 50, covers=budget.covers, unit=budget.unit, scope=budget.scope, spent=99
            )
            counted = budget.unit == "tokens" and (budget.session_id == session.id or budget.id == made[6].id)
            assert (again.id, again.allowed, again.spent) == (budget.id, 50, 7 if counted else 0)
        assert len(await backend.list_budgets(scope=None, after=None, limit=100)) == 10

    async def test_budgets_set_by_several_at_once_are_one(self, backend: Backend) -> None:
        session = await new_session(backend)
        made = await together(
            *(budget_for(backend, session.id, 100 + n) for n in range(4)),
            *(budget_for(backend, None, 100 + n, covers="scope") for n in range(4)),
        )
        assert [len({budget.id for budget in four}) for four in (made[:4], made[4:])] == [1, 1]

    async def test_budgets_are_listed_in_the_order_they_were_made_page_by_page(self, backend: Backend) -> None:
        one, two = await new_session(backend, scope="one"), await new_session(backend, scope="two")
        ids = [(await budget_for(backend, session.id, 5)).id for session in (one, two)]
        ids.append((await budget_for(backend, None, 5, covers="scope", scope="one")).id)
        listed = await backend.list_budgets(scope=None, after=None, limit=100)
        assert [budget.id for budget in listed] == ids
        assert [await backend.get_budget(budget.id) for budget in listed] == listed
        assert [b.id for b in await backend.list_budgets(scope="one", after=None, limit=100)] == [ids[0], ids[2]]
        begun = await backend.list_budgets(scope=None, scope_prefix="on", after=None, limit=100)
        assert [b.id for b in begun] == [ids[0], ids[2]]
        assert await backend.list_budgets(scope="one", scope_prefix="t", after=None, limit=100) == []
        assert [b.id for b in await backend.list_budgets(scope=None, after=ids[0], limit=1)] == [ids[1]]
        assert await backend.list_budgets(scope=None, after=ids[2], limit=1) == []
        await refusal(backend, BudgetNotFound, backend.list_budgets(scope=None, after=UNKNOWN, limit=1))

    async def test_a_budget_may_begin_with_what_the_ledger_has_of_its_target(self, backend: Backend) -> None:
        parent = await new_session(backend, assistant(tokens=10, dollars=0.1), scope="s")
        child = await backend.create_task(parent.id, "t", NewSession())
        await add(backend, child.id, assistant(tokens=5, dollars=0.25))
        gone = await backend.create_task(parent.id, "u", NewSession())
        await add(backend, gone.id, assistant(tokens=3, dollars=0.5))
        below = await backend.create_task(gone.id, "v", NewSession())
        await add(backend, below.id, assistant(tokens=2, dollars=0.05))
        await backend.delete_tree(gone.id)
        fork = await backend.fork(parent.id, STORED, NewSession())
        await add(backend, fork.id, assistant(tokens=100))
        await backend.link_task(child.id, parent.id, "cycle")
        await backend.link_task(child.id, UNKNOWN, "missing")
        await new_session(backend, assistant(tokens=1_000), scope="other")
        # Compaction does not reset it, nor does a path that was left.
        await backend.move(parent.id, None)
        expected: list[tuple[Covers, str | None, int, int]] = [
            ("session", parent.id, 10, 10),
            ("tasks", parent.id, 20, 90),
            ("session", child.id, 5, 25),
            ("scope", None, 120, 90),
        ]
        for covers, session_id, tokens, cents in expected:
            made = await backend.set_budget(NewBudget(covers, "tokens", 1, session_id, "s", "ledger"))
            assert (made.spent, made.seeded) == (tokens, tokens)
            money = await backend.set_budget(NewBudget(covers, "picodollars", 1, session_id, "s", "ledger"))
            assert money.spent == cents * 10**10

    async def test_a_budget_cannot_begin_with_more_than_can_be_stored(self, backend: Backend) -> None:
        for _ in range(4):
            await new_session(backend, assistant(tokens=MAX_AMOUNT))
        await refusal(backend, InvalidArgument, backend.set_budget(NewBudget("scope", "tokens", 1, spent="ledger")))
        assert (await backend.set_budget(NewBudget("scope", "picodollars", 1, spent="ledger"))).spent == 0

    async def test_a_deleted_budget_is_gone_and_leaves_the_session_free(self, backend: Backend) -> None:
        session = await new_session(backend)
        made = await budget_for(backend, session.id, 5)
        held = await reserve(backend, session.id, 5)
        with_held = await backend.get_budget(made.id)
        assert await backend.delete_budget(made.id) == with_held
        assert await backend.get_budget(made.id) is None
        assert (await reserve(backend, session.id, 500)).budget_ids == ()
        refusals = Refusals(backend)
        await refusals.of(BudgetNotFound, backend.delete_budget(made.id))
        await refusals.of(BudgetNotFound, backend.held_amounts(made.id))
        await refusals.of(ReservationNotFound, backend.commit_reservation(held.id, Amounts(5)))

    async def test_it_is_known_with_which_call_a_budget_came_to_an_amount(self, backend: Backend) -> None:
        session = await new_session(backend, scope="s")
        task = await backend.create_task(session.id, "t", NewSession())
        budget = await budget_for(backend, session.id, 100, covers="tasks", spent=5)
        await budget_for(backend, None, 100, covers="scope", scope="s")
        held = [await reserve(backend, each.id, 10) for each in (session, task, session, session)]
        for reservation, used in zip(reversed(held), (0, 7, 10, 3), strict=True):
            await backend.commit_reservation(reservation.id, Amounts(used))
        await reserve(backend, session.id, 10)
        settled = [await backend.get_reservation(each.id) for each in reversed(held)]
        times = [0 if each is None else each.settled_us for each in settled]
        reached = await backend.budgets_reached([(budget.id, amount) for amount in (0, 5, 6, 12, 13, 25, 26)])
        assert reached == [
            (budget.created_us, None, 5),
            (budget.created_us, None, 5),
            (times[1], session.id, 12),
            (times[1], session.id, 12),
            (times[2], task.id, 22),
            (times[3], session.id, 25),
            None,
        ]
        assert await backend.budgets_reached([(UNKNOWN, 0), (budget.id, 26), ("\0", 0)]) == [None, None, None]
        assert await backend.budgets_reached([]) == []

    # -- reserve, commit, release -----------------------------------------------------------------------------

    async def test_what_is_reserved_is_set_aside_until_it_is_committed_or_released(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        first, second = await reserve(backend, session.id, 60), await reserve(backend, session.id, 40)
        assert (first.session_id, first.state, first.budget_ids) == (session.id, "held", (budget.id,))
        assert (first.tokens, first.picodollars, first.used_tokens) == (60, None, None)
        assert first.expires_us == first.created_us + LONG
        assert await numbers(backend, budget.id) == (0, 100, 0)
        committed = await backend.commit_reservation(first.id, Amounts(45))
        assert (committed.state, committed.used_tokens, committed.was_late) == ("committed", 45, False)
        assert await numbers(backend, budget.id) == (45, 40, 15)
        released = await backend.release_reservation(second.id)
        assert (released.state, released.tokens, released.used_tokens) == ("released", 40, None)
        assert await numbers(backend, budget.id) == (45, 0, 55)
        assert [await backend.get_reservation(each.id) for each in (first, second)] == [committed, released]

    async def test_a_call_that_used_more_than_it_reserved_is_booked_in_full(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        held = await reserve(backend, session.id, 90)
        await backend.commit_reservation(held.id, Amounts(130))
        assert await numbers(backend, budget.id) == (130, 0, -30)
        caught = await refusal(backend, BudgetExceeded, reserve(backend, session.id, 1))
        assert caught.value.left == -30

    async def test_what_is_not_said_to_be_used_was_used_as_reserved(self, backend: Backend) -> None:
        session = await new_session(backend)
        tokens = await budget_for(backend, session.id, 100)
        money = await budget_for(backend, session.id, 1_000, unit="picodollars")
        both = await backend.reserve(session.id, Amounts(10, 200), LONG)
        assert (both.budget_ids, both.tokens, both.picodollars) == ((tokens.id, money.id), 10, 200)
        done = await backend.commit_reservation(both.id, Amounts(picodollars=150))
        assert (done.used_tokens, done.used_picodollars) == (10, 150)
        only = await reserve(backend, session.id, 5)
        assert (only.tokens, only.picodollars) == (5, 0)
        await backend.commit_reservation(only.id, Amounts(4, 99))
        assert await numbers(backend, tokens.id) == (14, 0, 86)
        assert await numbers(backend, money.id) == (249, 0, 751)

    async def test_over_budget_is_refused_before_the_call_and_the_session_goes_on_when_it_is_raised(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend, *talk(4), scope="team")
        budget = await budget_for(backend, session.id, 100, spent=30)
        await reserve(backend, session.id, 50)
        before = await snapshot(backend, session.id)
        caught = await refusal(backend, BudgetExceeded, reserve(backend, session.id, 21))
        error = caught.value
        assert (error.budget_id, error.session_id, error.unit) == (budget.id, session.id, "tokens")
        assert (error.allowed, error.spent, error.reserved, error.left, error.asked) == (100, 30, 50, 20, 21)
        for said in (budget.id, session.id, "20 tokens left", "21 tokens", "100 tokens allowed", "set_budget()"):
            assert said in str(error)
        await budget_for(backend, session.id, 101)
        await reserve(backend, session.id, 21)
        assert await snapshot(backend, session.id) == before
        await add(backend, session.id, *talk(2, 4))

    async def test_what_is_exactly_left_can_be_reserved_and_nothing_where_nothing_is_left(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        await budget_for(backend, session.id, 100)
        await backend.release_reservation((await reserve(backend, session.id, 0)).id)
        await reserve(backend, session.id, 100)
        await refusal(backend, BudgetExceeded, reserve(backend, session.id, 0))
        await budget_for(backend, session.id, 40)
        caught = await refusal(backend, BudgetExceeded, reserve(backend, session.id, 1))
        assert caught.value.left == -60

    async def test_a_reservation_is_made_in_every_budget_that_covers_the_session_or_in_none(
        self, backend: Backend
    ) -> None:
        parent = await new_session(backend, scope="s")
        child = await backend.create_task(parent.id, "t", NewSession())
        roomy = [
            await budget_for(backend, parent.id, 1_000, covers="tasks"),
            await budget_for(backend, child.id, 1_000),
            await budget_for(backend, None, 1_000, covers="scope", scope="s"),
        ]
        narrow = await budget_for(backend, child.id, 10, covers="tasks")
        caught = await refusal(backend, BudgetExceeded, reserve(backend, child.id, 11))
        assert caught.value.budget_id == narrow.id
        held = await reserve(backend, child.id, 10)
        assert held.budget_ids == tuple(budget.id for budget in (*roomy, narrow))
        assert [await numbers(backend, id_) for id_ in held.budget_ids] == [(0, 10, 990)] * 3 + [(0, 10, 0)]
        await backend.commit_reservation(held.id, Amounts(4))
        assert [await numbers(backend, id_) for id_ in held.budget_ids] == [(4, 0, 996)] * 3 + [(4, 0, 6)]

    async def test_of_several_budgets_without_room_the_first_that_was_made_is_named(self, backend: Backend) -> None:
        session = await new_session(backend, scope="s")
        first = await budget_for(backend, None, 5, covers="scope", scope="s")
        await budget_for(backend, session.id, 1)
        caught = await refusal(backend, BudgetExceeded, reserve(backend, session.id, 10))
        assert caught.value.budget_id == first.id

    async def test_where_no_budget_covers_the_session_everything_is_allowed_and_nothing_stored(
        self, backend: Backend
    ) -> None:
        session, other = await new_session(backend), await new_session(backend)
        await budget_for(backend, other.id, 1)
        async with unchanged(backend):
            free = await reserve(backend, session.id, MAX_AMOUNT)
        assert (free.budget_ids, free.tokens, free.picodollars, free.state) == ((), None, None, "held")
        assert await backend.get_reservation(free.id) is None
        await refusal(backend, ReservationNotFound, backend.commit_reservation(free.id, Amounts(5)))

    async def test_of_many_reservations_at_once_no_more_are_made_than_there_is_room_for(self, backend: Backend) -> None:
        parent = await new_session(backend)
        children = [await backend.create_task(parent.id, f"t{n}", NewSession()) for n in range(4)]
        budget = await budget_for(backend, parent.id, 100, covers="tasks")
        own = [await budget_for(backend, child.id, 60) for child in reversed(children)]

        async def attempt(session_id: str) -> Reservation | None:
            try:
                return await reserve(backend, session_id, 15)
            except BudgetExceeded:
                return None

        tried = await together(*(attempt(child.id) for child in children for _ in range(5)))
        made = [each for each in tried if each is not None]
        assert len(made) == 6
        assert await numbers(backend, budget.id) == (0, 90, 10)
        assert sum([(await numbers(backend, each.id))[1] for each in own]) == 90
        await together(*(backend.commit_reservation(each.id, Amounts(10)) for each in made))
        assert await numbers(backend, budget.id) == (60, 0, 40)

    # -- which budgets cover a session ------------------------------------------------------------------------

    async def test_tasks_are_covered_from_above_however_they_are_linked(self, backend: Backend) -> None:
        names = ("top", "left", "right", "bottom", "beside")
        for name in names:
            await backend.create_session(NewSession(id=name))
        for parent, child in (
            ("top", "left"),
            ("top", "right"),
            ("left", "bottom"),
            ("right", "bottom"),
            ("bottom", "left"),
            ("bottom", "bottom"),
            ("bottom", UNKNOWN),
        ):
            await backend.link_task(parent, child, f"{parent}-{child}")
        of_tasks = {name: (await budget_for(backend, name, 9, covers="tasks")).id for name in names}
        own = {name: (await budget_for(backend, name, 9)).id for name in names}

        async def covering(name: str) -> set[str]:
            budgets = await backend.covering_budgets(name)
            listed = await backend.list_budgets(scope=None, after=None, limit=100)
            assert budgets == [budget for budget in listed if budget in budgets]
            return {budget.id for budget in budgets}

        assert await covering("top") == {of_tasks["top"], own["top"]}
        loop = {of_tasks[name] for name in ("top", "left", "right", "bottom")}
        assert await covering("bottom") == loop | {own["bottom"]}
        assert await covering("left") == loop | {own["left"]}
        assert await covering("right") == {of_tasks["top"], of_tasks["right"], own["right"]}
        assert await covering("beside") == {of_tasks["beside"], own["beside"]}

    async def test_a_fork_is_covered_by_the_budget_of_its_scope_only(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), scope="s")
        fork = await backend.fork(session.id, STORED, NewSession())
        await budget_for(backend, session.id, 5)
        await budget_for(backend, session.id, 5, covers="tasks")
        of_scope = await budget_for(backend, None, 5, covers="scope", scope="s")
        await budget_for(backend, None, 5, covers="scope", scope="other")
        assert await backend.covering_budgets(fork.id) == [of_scope]
        assert len(await backend.covering_budgets(session.id)) == 3

    # -- expiry -----------------------------------------------------------------------------------------------

    async def test_what_expired_is_given_back_without_anybody_doing_anything(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        dead = await reserve(backend, session.id, 80, GONE)
        late = await reserve(backend, session.id, 0, GONE)
        assert await numbers(backend, budget.id) == (0, 0, 100)
        assert await backend.held_amounts(budget.id) == []
        found = await backend.get_reservation(dead.id)
        assert found == replace(dead, state="expired")
        held = await reserve(backend, session.id, 100)
        assert await numbers(backend, budget.id) == (0, 100, 0)
        (holder,) = await backend.held_amounts(budget.id)
        assert (holder.reservation_id, holder.session_id, holder.amount) == (held.id, session.id, 100)
        assert (holder.created_us, holder.expires_us) == (held.created_us, held.expires_us)
        assert await backend.get_reservation(late.id) == replace(late, state="expired")

    @inputs("reclaimed", [False, True])
    async def test_a_commit_after_expiry_books_what_was_spent(self, backend: Backend, reclaimed: bool) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        late = await reserve(backend, session.id, 80, GONE)
        held = 0
        if reclaimed:
            await reserve(backend, session.id, 100)
            held = 100
        done = await backend.commit_reservation(late.id, Amounts(70))
        assert (done.state, done.was_late, done.used_tokens) == ("committed", True, 70)
        assert await numbers(backend, budget.id) == (70, held, 30 - held)
        async with unchanged(backend):
            assert await backend.commit_reservation(late.id, Amounts(70)) == done

    @inputs("reclaimed", [False, True])
    async def test_what_expired_can_be_neither_released_nor_prolonged(self, backend: Backend, reclaimed: bool) -> None:
        session = await new_session(backend)
        await budget_for(backend, session.id, 100)
        late = await reserve(backend, session.id, 80, GONE)
        if reclaimed:
            await reserve(backend, session.id, 100)
        refusals = Refusals(backend)
        for call in (backend.release_reservation(late.id), backend.prolong_reservation(late.id, LONG)):
            async with refusals.refused(ReservationSettled) as caught:
                await call
            assert caught.value.state == "expired"
            assert "commit it if the call was made" in str(caught.value)

    async def test_a_reservation_that_is_prolonged_stays_and_is_never_shortened(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        held = await reserve(backend, session.id, 80, 1_000_000)
        longer = await backend.prolong_reservation(held.id, LONG)
        assert longer.expires_us > held.expires_us
        assert replace(longer, expires_us=held.expires_us) == held
        assert (await backend.prolong_reservation(held.id, GONE)).expires_us == longer.expires_us
        assert await numbers(backend, budget.id) == (0, 80, 20)

    async def test_only_what_expired_is_given_back(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession())
        shared = await budget_for(backend, parent.id, 100, covers="tasks")
        own = await budget_for(backend, child.id, 100)
        dead = await reserve(backend, child.id, 30, GONE)
        await reserve(backend, parent.id, 50)
        # The reservation above was reclaimed in one of its two budgets; the commit knows what each still holds.
        done = await backend.commit_reservation(dead.id, Amounts(20))
        assert (done.budget_ids, done.was_late) == ((shared.id, own.id), True)
        assert await numbers(backend, shared.id) == (20, 50, 30)
        assert await numbers(backend, own.id) == (20, 0, 80)

    # -- twice, and unknown -----------------------------------------------------------------------------------

    async def test_the_same_commit_again_changes_nothing_and_returns_the_same(self, backend: Backend) -> None:
        session = await new_session(backend)
        await budget_for(backend, session.id, 100)
        held = await reserve(backend, session.id, 30)
        done = await backend.commit_reservation(held.id, Amounts(30))
        async with unchanged(backend):
            assert await backend.commit_reservation(held.id, Amounts(30)) == done
            assert await backend.commit_reservation(held.id, Amounts()) == done

    async def test_a_reservation_is_settled_once(self, backend: Backend) -> None:
        session = await new_session(backend)
        await budget_for(backend, session.id, 100)
        committed, released = await reserve(backend, session.id, 10), await reserve(backend, session.id, 20)
        await backend.commit_reservation(committed.id, Amounts(5))
        await backend.release_reservation(released.id)
        for call, state in (
            (backend.commit_reservation(committed.id, Amounts(6)), "committed"),
            (backend.release_reservation(committed.id), "committed"),
            (backend.prolong_reservation(committed.id, LONG), "committed"),
            (backend.release_reservation(released.id), "released"),
            (backend.commit_reservation(released.id, Amounts(20)), "released"),
            (backend.prolong_reservation(released.id, LONG), "released"),
        ):
            async with refused(backend, ReservationSettled) as caught:
                await call
            assert caught.value.state == state
            assert caught.value.reservation_id in str(caught.value)

    async def test_of_several_who_settle_one_reservation_differently_one_does(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 100)
        held = await reserve(backend, session.id, 40)
        answers = await outcomes(
            *(backend.commit_reservation(held.id, Amounts(n)) for n in (10, 20, 30)),
            backend.release_reservation(held.id),
        )
        done = [answer for answer in answers if isinstance(answer, Reservation)]
        assert len(done) == 1
        assert all(isinstance(answer, (Reservation, ReservationSettled)) for answer in answers)
        assert await numbers(backend, budget.id) == (done[0].used_tokens or 0, 0, 100 - (done[0].used_tokens or 0))

    @inputs("unknown", [UNKNOWN, "", "a\0b", "half \ud800"])
    async def test_what_is_unknown_is_refused_by_name(self, backend: Backend, unknown: str) -> None:
        session = await new_session(backend)
        await budget_for(backend, session.id, 100)
        refusals = Refusals(backend)
        for call in (
            backend.commit_reservation(unknown, Amounts(1)),
            backend.release_reservation(unknown),
            backend.prolong_reservation(unknown, LONG),
        ):
            async with refusals.refused(ReservationNotFound):
                await call
        for budget_call in (backend.delete_budget(unknown), backend.held_amounts(unknown)):
            async with refusals.refused(BudgetNotFound):
                await budget_call
        assert (await backend.get_budget(unknown), await backend.get_reservation(unknown)) == (None, None)
        for session_call in (reserve(backend, unknown, 1), budget_for(backend, unknown, 1)):
            async with refusals.refused(SessionNotFound):
                await session_call

    async def test_more_than_can_be_stored_is_not_booked(self, backend: Backend) -> None:
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, MAX_AMOUNT)
        first, second = await reserve(backend, session.id, 1), await reserve(backend, session.id, 1)
        await backend.commit_reservation(first.id, Amounts(MAX_AMOUNT))
        await refusal(backend, InvalidArgument, backend.commit_reservation(second.id, Amounts(1)))
        assert await numbers(backend, budget.id) == (MAX_AMOUNT, 1, -1)

    # -- periods ----------------------------------------------------------------------------------------------

    async def test_in_a_period_a_budget_counts_the_ledger_and_is_fresh_in_the_next(
        self, open_backend: OpenBackend
    ) -> None:
        clock = [moment("2026-03-28T12:00Z")]
        backend = await open_backend(replace(counted_sources(), now_us=lambda: clock[0]))
        session = await new_session(backend, scope="s")
        always = await budget_for(backend, None, 1_000, covers="scope", scope="*")
        daily = await backend.set_budget(replace(DAILY, scope="*"))
        assert daily.id != always.id
        assert (daily.began_us, daily.ends_us) == (moment("2026-03-27T23:00Z"), moment("2026-03-28T23:00Z"))
        await pay(backend, session.id, 60)
        assert await numbers(backend, daily.id) == (60, 0, 40)
        with pytest.raises(BudgetExceeded, match="until the day ends at 2026-03-28 23:00 UTC") as exceeded:
            await reserve(backend, session.id, 41)
        assert exceeded.value.ends_at == daily.ends_at
        held = await reserve(backend, session.id, 40)
        assert await numbers(backend, daily.id) == (60, 40, 0)
        # What is reserved counts in the period that is running: the call will be written in it.
        clock[0] = moment("2026-03-28T23:00Z")
        assert await numbers(backend, daily.id) == (0, 40, 60)
        await pay(backend, session.id, 30)
        for _ in range(2):
            assert (await backend.commit_reservation(held.id, Amounts(30))).used_tokens == 30
        assert await numbers(backend, daily.id) == (30, 0, 70)
        assert await numbers(backend, always.id) == (30, 0, 970)
        (found,) = [each for each in await backend.covering_budgets(session.id, by_ledger=True) if each.period]
        assert found == await backend.get_budget(daily.id)
        assert [each.spent for each in await backend.list_budgets(scope=None, after=None, limit=9)] == [30, 30]
        assert (await backend.verify()).problems == []
        assert (await backend.delete_budget(daily.id)).spent == 30
        await backend.close()

    async def test_each_period_has_a_budget_of_its_own_whose_zone_may_be_set_anew(self, backend: Backend) -> None:
        session = await new_session(backend)
        of_session = NewBudget("session", "tokens", 5, session.id, period="day", tz="UTC")
        made = [
            await backend.set_budget(replace(new, period=period))
            for new in (of_session, replace(of_session, covers="tasks"), DAILY)
            for period in BUDGET_PERIODS
        ]
        assert len({budget.id for budget in made}) == 9
        again = await backend.set_budget(replace(of_session, allowed=7, tz="Asia/Tokyo"))
        assert (again.id, again.allowed, again.tz) == (made[0].id, 7, "Asia/Tokyo")
        assert len(await backend.list_budgets(scope=None, after=None, limit=20)) == 9

    async def test_a_period_counts_who_is_covered_when_the_call_was_made(self, backend: Backend) -> None:
        session, other = await new_session(backend, scope="a/1"), await new_session(backend, scope="b")
        task = await backend.create_task(session.id, "t", NewSession())
        whose: list[Covers] = ["session", "tasks"]
        own, tasks = [
            await backend.set_budget(replace(DAILY, covers=covers, session_id=session.id)) for covers in whose
        ]
        scope, begin, everything = [
            await backend.set_budget(replace(DAILY, scope=scope)) for scope in ("a/1", "a/*", "*")
        ]
        for payer, tokens in ((session, 1), (task, 10), (other, 100)):
            await pay(backend, payer.id, tokens)
            await pay(backend, payer.id, 5_000, at_us=own.began_us - 1 if own.began_us else None)
            await pay(backend, payer.id, 5_000, at_us=own.ends_us)
        budgets = (own, tasks, scope, begin, everything)
        assert [(await numbers(backend, each.id))[0] for each in budgets] == [1, 11, 11, 11, 111]
        await backend.delete_tree(task.id)
        assert [(await numbers(backend, each.id))[0] for each in budgets] == [1, 11, 11, 11, 111]

    async def test_a_budget_whose_zone_is_not_known_here_says_so_and_can_be_set_anew(self, backend: Backend) -> None:
        session = await new_session(backend)
        made = await backend.set_budget(replace(DAILY, scope="*"))
        (copy,) = await backend.list_whole_budgets(-1, 9)
        elsewhere = copy.budget._replace(tz="Mars/Olympus", updated_at=copy.budget.updated_at + 10**6)
        assert await backend.write_budgets([replace(copy, budget=elsewhere)]) == ["written"]
        told = f"{made.id} of all sessions per day, set it again with another tz: 'Mars/Olympus'"
        await raises(InvalidArgument, reserve(backend, session.id, 1), match=told)
        (listed,) = await backend.list_budgets(scope=None, after=None, limit=9)
        assert (listed, listed.ends_us) == (await backend.get_budget(made.id), None)
        assert told in str(listed.fault)
        assert (await backend.set_budget(replace(DAILY, scope="*"))).id == made.id

    async def test_the_call_by_which_a_period_came_to_an_amount_is_found_by_time(self, backend: Backend) -> None:
        session, other = await new_session(backend), await new_session(backend)
        budget = await backend.set_budget(replace(DAILY, scope="*"))
        began = budget.began_us or 0
        for payer, at_us in ((other, began + 2), (session, began + 1), (session, began + 2), (session, began - 1)):
            await pay(backend, payer.id, 30, at_us=at_us)
        reached = [await backend.reached_in_period(budget, amount) for amount in (0, 30, 31, 90, 91)]
        assert reached == [
            Reached(began, None, 0),
            Reached(began + 1, session.id, 30),
            Reached(began + 2, other.id, 60),
            Reached(began + 2, session.id, 90),
            None,
        ]

    # -- deletion ---------------------------------------------------------------------------------------------

    async def test_budgets_go_with_their_session_and_what_it_spent_elsewhere_stays(self, backend: Backend) -> None:
        parent = await new_session(backend, scope="s")
        child = await backend.create_task(parent.id, "t", NewSession())
        kept = [
            await budget_for(backend, parent.id, 100, covers="tasks"),
            await budget_for(backend, None, 100, covers="scope", scope="s"),
        ]
        await budget_for(backend, child.id, 100)
        await budget_for(backend, child.id, 100, covers="tasks")
        done, held = await reserve(backend, child.id, 10), await reserve(backend, child.id, 20)
        await backend.commit_reservation(done.id, Amounts(7))
        await backend.plan_deletion([child.id], None)
        assert len(await backend.list_budgets(scope=None, after=None, limit=9)) == 4
        await backend.delete_tree(child.id)
        assert [each.id for each in await backend.list_budgets(scope=None, after=None, limit=9)] == [
            each.id for each in kept
        ]
        # The call is under way, whether or not its session is still there.
        assert [await numbers(backend, each.id) for each in kept] == [(7, 20, 73)] * 2
        last = await backend.commit_reservation(held.id, Amounts(15))
        assert last.budget_ids == tuple(each.id for each in kept)
        assert [await numbers(backend, each.id) for each in kept] == [(22, 0, 78)] * 2
        await backend.delete_tree(parent.id)
        (of_scope,) = await backend.list_budgets(scope=None, after=None, limit=9)
        assert (of_scope.id, of_scope.spent) == (kept[1].id, 22)

    async def test_after_close_budgets_are_refused(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources())
        session = await new_session(backend)
        budget = await budget_for(backend, session.id, 5)
        held = await reserve(backend, session.id, 5)
        await backend.close()
        for call in (
            budget_for(backend, session.id, 5),
            backend.get_budget(budget.id),
            backend.list_budgets(scope=None, after=None, limit=1),
            backend.covering_budgets(session.id),
            backend.held_amounts(budget.id),
            backend.delete_budget(budget.id),
            reserve(backend, session.id, 1),
            backend.get_reservation(held.id),
            backend.commit_reservation(held.id, Amounts(5)),
            backend.release_reservation(held.id),
            backend.prolong_reservation(held.id, LONG),
        ):
            with pytest.raises(StoreClosed):
                await call
