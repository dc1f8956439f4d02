"""Calls on budgets that are run again: after a rollback they happen, after an unnoticed commit they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from flue_py.core.ledger import Amounts, Budget, NewBudget, Reservation
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.db.ops.ledger import deleting, releasing, reserving
from flue_py.db.runner import Transaction
from flue_py.errors import BudgetNotFound, ReservationSettled
from tests.sources import OpenBackend, counted_sources

pytestmark = pytest.mark.anyio

HOUR_US = 3_600_000_000
Result = TypeVar("Result")


class RolledBack(Exception):
    """Ends a transaction that has done all it does."""


async def with_budget(open_backend: OpenBackend) -> tuple[Backend, Budget]:
    backend: Backend = await open_backend(counted_sources())
    if not isinstance(backend, Backend):
        await backend.close()
        pytest.skip("what is in memory is never run again")
    await backend.create_session(NewSession(id="s"))
    return backend, await backend.set_budget(NewBudget("session", "tokens", 100, "s"))


async def run_and_roll_back(backend: Backend, work: Callable[[Transaction], object]) -> None:
    def fail(tx: Transaction) -> None:
        work(tx)
        raise RolledBack

    with pytest.raises(RolledBack):
        await backend._runner.write(fail)


async def run_twice(backend: Backend, work: Callable[[Transaction], Result]) -> Result:
    """Run a call as a runner does that has not heard of its first commit; return the answer, which is the first."""
    await run_and_roll_back(backend, work)
    first = await backend._runner.write(work)
    assert await backend._runner.write(work) == first
    return first


async def test_calls_on_budgets_happen_once(open_backend: OpenBackend) -> None:
    backend, budget = await with_budget(open_backend)

    async def reserved() -> int:
        found = await backend.get_budget(budget.id)
        assert found is not None
        return found.reserved

    held: Reservation = await run_twice(backend, reserving(backend._sources, "s", Amounts(60), HOUR_US))
    assert await reserved() == 60
    assert (await run_twice(backend, releasing(backend._sources, held.id))).state == "released"
    assert await reserved() == 0
    with pytest.raises(ReservationSettled):
        await backend._runner.write(releasing(backend._sources, held.id))
    assert (await run_twice(backend, deleting(backend._sources, budget.id))).id == budget.id
    with pytest.raises(BudgetNotFound):
        await backend._runner.write(deleting(backend._sources, budget.id))
    assert (await backend.verify()).problems == []
    await backend.close()
