"""A state machine that spends budgets of a store and of the model in memory side by side, and compares all they tell.

Time goes on by a millisecond a step, and reservations are held for a few of them, so that some expire. What a budget
has spent is also counted by the machine itself, so that the model is not the only witness.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from flue_py.core.ledger import Amounts, NewBudget, Reservation, SpentSoFar, Unit
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.errors import BudgetExceeded, FlueError
from tests.machine.side_by_side import SideBySide, run_machine
from tests.samples import assistant
from tests.sources import OpenBackend

T = TypeVar("T")

SESSIONS = ("s0", "s1", "s2", "s3", "ghost")
SCOPES = ("", "team")
STEP_US = 1_000

sessions = st.sampled_from(SESSIONS)
callers = st.sampled_from(("s2", "s2", "s2", "s0", "s1", "ghost"))
picks = st.integers(0, 30)
amounts = st.builds(Amounts, st.none() | st.integers(0, 40), st.none() | st.integers(0, 40))
times = st.integers(1, 6 * STEP_US)


def check_budgets(open_backend: OpenBackend, share: float = 1.0, step_share: float = 1.0) -> None:
    """Run the machine over a backend, with these shares of the profile's examples and of the steps of each."""
    run_machine(BudgetMachine, open_backend, share, step_share)


class BudgetMachine(SideBySide):
    """Every operation on budgets, in any order, on a few sessions that are linked and deleted meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._reservations: list[str] = []
        self._booked: dict[str, int] = {}

    def _both(self, operation: Callable[[Backend], Awaitable[T]]) -> T | FlueError:
        """Do it in both stores; return the answer, which must be the same."""
        answers: list[T | FlueError] = []
        for steps, backend in zip(self._steps, (self._model, self._store), strict=True):
            steps.begin_step()
            try:
                answers.append(self._run(operation(backend)))
            except FlueError as error:
                answers.append(error)
        expected, found = answers
        if isinstance(expected, FlueError):
            assert type(found) is type(expected)
            assert not isinstance(expected, BudgetExceeded) or vars(found) == vars(expected)
        else:
            assert found == expected
        return expected

    # -- sessions -------------------------------------------------------------------------------------------------

    @initialize()
    def make_sessions(self) -> None:
        """Begin with a parent and its task, in one scope, and a session in another."""
        for number, session_id in enumerate(SESSIONS[:3]):
            self._both(lambda b, i=session_id, n=number: b.create_session(NewSession(id=i, scope=SCOPES[n % 2])))  # type: ignore[misc]
        self.link("s0", "s2")
        for new in (
            NewBudget("tasks", "tokens", 200, "s0"),
            NewBudget("session", "picodollars", 300, "s2"),
            NewBudget("scope", "tokens", 400),
        ):
            self._both(lambda b, n=new: b.set_budget(n))  # type: ignore[misc]

    @rule(session=sessions)
    def make_again(self, session: str) -> None:
        """Make a session that is gone, or never was."""
        self._both(lambda b: b.create_session(NewSession(id=session)))

    @rule(parent=sessions, child=sessions)
    def link(self, parent: str, child: str) -> None:
        """Link any two sessions: cycles, several parents and missing children are legal."""
        self._both(lambda b: b.link_task(parent, child, "t"))

    @rule(session=sessions, tokens=st.integers(1, 20))
    def pay(self, session: str, tokens: int) -> None:
        """Let the ledger have something."""
        self._both(lambda b: b.append(session, [assistant(tokens=tokens)]))

    @rule(session=st.sampled_from(("s1", "s1", "s2", "s3", "ghost")))
    def delete_session(self, session: str) -> None:
        """Delete a session, with its tasks, and what they may spend."""
        self._both(lambda b: _sorted_deletion(b, session))

    # -- budgets --------------------------------------------------------------------------------------------------

    @rule(
        session=sessions,
        tasks=st.booleans(),
        unit=st.sampled_from(["tokens", "picodollars"]),
        allowed=st.integers(0, 300),
        spent=st.integers(0, 30) | st.just("ledger"),
    )
    def set_budget(self, session: str, tasks: bool, unit: Unit, allowed: int, spent: SpentSoFar) -> None:
        """Set the budget of a session, with its tasks or without."""
        covers = "tasks" if tasks else "session"
        self._both(lambda b: b.set_budget(NewBudget(covers, unit, allowed, session, "", spent)))  # type: ignore[arg-type]

    @rule(
        scope=st.sampled_from(SCOPES),
        unit=st.sampled_from(["tokens", "picodollars"]),
        allowed=st.integers(0, 500),
        spent=st.integers(0, 30) | st.just("ledger"),
    )
    def set_scope_budget(self, scope: str, unit: Unit, allowed: int, spent: SpentSoFar) -> None:
        """Set the budget of a scope."""
        self._both(lambda b: b.set_budget(NewBudget("scope", unit, allowed, None, scope, spent)))

    @rule(pick=picks)
    def delete_budget(self, pick: int) -> None:
        """Delete a budget, or one that never was."""
        budgets = self._run(self._model.list_budgets(scope=None, after=None, limit=100))
        budget_id = "ghost" if pick % 4 or not budgets else budgets[pick % len(budgets)].id
        self._both(lambda b: b.delete_budget(budget_id))
        self._booked.pop(budget_id, None)

    # -- reservations ---------------------------------------------------------------------------------------------

    @rule(session=callers, asked=amounts, ttl_us=times)
    def reserve_again(self, session: str, asked: Amounts, ttl_us: int) -> None:
        """Reserve once more: most calls are reservations."""
        self.reserve_anything(session, asked, ttl_us)

    @rule(session=callers, asked=amounts, ttl_us=times)
    def reserve_anything(self, session: str, asked: Amounts, ttl_us: int) -> None:
        """Reserve, for a few steps."""
        made = self._both(lambda b: b.reserve(session, asked, ttl_us))
        if isinstance(made, Reservation) and made.budget_ids:
            self._reservations.append(made.id)

    def _pick(self, pick: int) -> str:
        """Return one of the last reservations, or one that never was."""
        last = self._reservations[-5:]
        return "ghost" if pick % 10 == 9 or not last else last[pick % len(last)]

    @rule(pick=picks, used=amounts)
    def commit(self, pick: int, used: Amounts) -> None:
        """Commit a reservation: held, expired, or settled before."""
        reservation_id = self._pick(pick)
        before = self._run(self._model.get_reservation(reservation_id))
        done = self._both(lambda b: b.commit_reservation(reservation_id, used))
        if isinstance(done, Reservation) and before is not None and before.state != "committed":
            for budget in self._run(self._model.list_budgets(scope=None, after=None, limit=100)):
                if budget.id in done.budget_ids:
                    booked = done.used_tokens if budget.unit == "tokens" else done.used_picodollars
                    self._booked[budget.id] = self._booked.get(budget.id, 0) + (booked or 0)

    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """Release a reservation, whatever became of it."""
        self._both(lambda b: b.release_reservation(self._pick(pick)))

    @rule(pick=picks, ttl_us=times)
    def prolong(self, pick: int, ttl_us: int) -> None:
        """Prolong a reservation, whatever became of it."""
        self._both(lambda b: b.prolong_reservation(self._pick(pick), ttl_us))

    # -- what both tell -------------------------------------------------------------------------------------------

    @invariant()
    def both_tell_the_same(self) -> None:
        """Compare all budgets, what is held of them, and what became of the last reservations."""
        for steps in self._steps:
            steps.begin_step()
        assert self._run(self._told(self._store)) == self._run(self._told(self._model))

    async def _told(self, backend: Backend) -> list[object]:
        budgets = await backend.list_budgets(scope=None, after=None, limit=100)
        held = [await backend.held_amounts(budget.id) for budget in budgets]
        for budget, amounts_held in zip(budgets, held, strict=True):
            assert budget.reserved == sum(each.amount for each in amounts_held)
            assert budget.spent == budget.seeded + self._booked.get(budget.id, 0)
        there = [session for session in SESSIONS if await backend.get_session(session) is not None]
        covering = [
            await backend.covering_budgets(session, by_ledger=counted) for session in there for counted in (False, True)
        ]
        settled = [await backend.get_reservation(each) for each in self._reservations[-5:]]
        amounts_of_all = [(budget.id, amount) for budget in budgets for amount in (1 + budget.spent // 2, budget.spent)]
        reached = await backend.budgets_reached(amounts_of_all)
        return [budgets, held, covering, settled, reached]


async def _sorted_deletion(backend: Backend, session_id: str) -> list[str]:
    return sorted((await backend.delete_tree(session_id)).session_ids)
