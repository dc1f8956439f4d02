"""Several processes spend one budget, on any store, and the conditions that hold afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from flue_py.core.json import JsonValue
from flue_py.core.ledger import Amounts, NewBudget
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.errors import BudgetExceeded
from tests.checks import raises
from tests.sources import random_sources
from tests.values import existing

ASKED = 20
"""Tokens that each call reserves."""
BEYOND = 7
"""By how many tokens a call may exceed what it reserved."""
CALLERS = 2
"""Tasks of each process that call at the same time."""
HOUR_US = 3_600_000_000
NOW = random_sources()
LATER = replace(NOW, now_us=lambda: time.time_ns() // 1000 + 2 * HOUR_US)
"""The clock of one who looks when everything that is reserved now has expired."""


async def spend(backend: Backend, *, session_ids: Sequence[str], seed: int, beyond: int) -> JsonValue:
    """Reserve and settle, for several sessions at once, until nothing is left that could come free; say what was used.

    A call uses what it reserved, less, up to ``beyond`` more, or is not made at all.
    """
    chance = random.Random(seed)
    used: list[int] = []
    refusals = 0

    async def call_until_refused(session_id: str) -> None:
        nonlocal refusals
        while True:
            try:
                held = await backend.reserve(session_id, Amounts(ASKED), HOUR_US)
            except BudgetExceeded as refused:
                refusals += 1
                if refused.left >= refused.asked:
                    raise AssertionError("refused what there is room for") from refused
                if refused.reserved == 0:
                    return
                await wait_for_room(backend, refused.budget_id)
                continue
            if chance.random() < 0.1:
                await backend.release_reservation(held.id)
                continue
            tokens = chance.choice([ASKED, ASKED, ASKED // 2, ASKED + beyond])
            await backend.commit_reservation(held.id, Amounts(tokens))
            used.append(tokens)

    await asyncio.gather(*[call_until_refused(session_id) for session_id in session_ids])
    return {"used": list(used), "refusals": refusals}


async def wait_for_room(backend: Backend, budget_id: str) -> None:
    """Look, keeping nobody from settling, until what others hold has come free, or all of it was used."""
    while True:
        budget = await backend.get_budget(budget_id)
        if budget is None or budget.reserved == 0 or budget.left >= ASKED:
            return


async def prepare(backend: Backend, processes: int, allowed: int) -> list[list[str]]:
    """Make a budget that task sessions share, under ones that are as large; return the task sessions by process."""
    parent = await backend.create_session(NewSession(id="parent", scope="team"))
    tasks = [
        [(await backend.create_task(parent.id, f"t{process}-{n}", NewSession())).id for n in range(CALLERS)]
        for process in range(processes)
    ]
    # Made in another order than the sessions, and of other sizes, so that none is always the first to be asked.
    for own in reversed(tasks):
        for session_id in own:
            await backend.set_budget(NewBudget("session", "tokens", allowed, session_id))
    await backend.set_budget(NewBudget("tasks", "tokens", allowed, parent.id))
    await backend.set_budget(NewBudget("scope", "tokens", 2 * allowed, scope="team"))
    return tasks


def jobs(tasks: Sequence[Sequence[str]]) -> list[dict[str, object]]:
    """Return the arguments of `spend` for each process."""
    return [{"session_ids": own, "seed": number, "beyond": BEYOND} for number, own in enumerate(tasks)]


async def check_spent(backend: Backend, said: Sequence[Any], allowed: int, beyond: int) -> None:
    """Assert that what was said to be used is what the budget has booked, and that it was kept to."""
    used = [tokens for answer in said for tokens in answer["used"]]
    assert all(answer["refusals"] >= CALLERS for answer in said)
    budgets = await backend.covering_budgets("parent")
    assert [budget.covers for budget in budgets] == ["tasks", "scope"]
    for budget in budgets:
        assert (budget.spent, budget.reserved) == (sum(used), 0)
    # All was spent, and what was spent beyond is what the calls used beyond that were under way at the end.
    assert budgets[0].left < ASKED
    assert budgets[0].spent <= allowed + beyond * CALLERS * len(said)
    own = await backend.list_budgets(scope="team", after=None, limit=1_000)
    assert sum(budget.spent for budget in own if budget.covers == "session") == sum(used)


async def reserve_everything(backend: Backend, *, session_id: str) -> str:
    """Reserve all that is left for an hour; return the id of the reservation."""
    (budget,) = await backend.covering_budgets(session_id)
    return (await backend.reserve(session_id, Amounts(budget.left), HOUR_US)).id


async def make_budget(backend: Backend) -> None:
    """Make the session and the budget that `check_expiry` is about."""
    await backend.create_session(NewSession(id="parent"))
    await backend.set_budget(NewBudget("session", "tokens", 1_000, "parent"))


async def check_expiry(held: str, now: Backend, later: Backend) -> None:
    """Assert that what a dead process reserved, all of a budget, is held until it expires and no longer."""

    (budget,) = await now.covering_budgets("parent")
    assert (budget.spent, budget.reserved, budget.left) == (0, 1_000, 0)
    await raises(BudgetExceeded, now.reserve("parent", Amounts(1), HOUR_US))
    (budget,) = await later.covering_budgets("parent")
    assert (budget.reserved, budget.left) == (0, 1_000)
    again = await later.reserve("parent", Amounts(900), HOUR_US)
    await later.commit_reservation(again.id, Amounts(900))
    assert existing(await later.get_reservation(held)).state == "expired"
    # The call was made before the process died, as the provider's bill says.
    assert (await later.commit_reservation(held, Amounts(200))).was_late
    (budget,) = await now.covering_budgets("parent")
    assert (budget.spent, budget.reserved, budget.left) == (1_100, 0, -100)
