"""Many processes spend one budget in a SQLite file, and calls on budgets are run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from flue_py.core.ledger import Amounts, Budget, NewBudget, Reservation
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.db.ops.ledger import deleting, releasing, reserving
from flue_py.db.runner import Transaction
from flue_py.errors import BudgetNotFound, ReservationSettled
from tests.checks import raises
from tests.sources import OpenBackend, counted_sources
from tests.store.spending import BEYOND, LATER, NOW, check_expiry, check_spent, jobs, make_budget, prepare
from tests.store.sqlite_batches import opened
from tests.store.sqlite_workers import Nursery
from tests.values import existing

PROCESSES = 8


@pytest.mark.parametrize("allowed", [800, pytest.param(30_000, marks=pytest.mark.slow)])
async def test_processes_on_one_file_keep_to_the_budget_they_share(
    workers: Nursery, tmp_path: Path, allowed: int
) -> None:
    path = tmp_path / "s.db"
    async with opened(path, NOW) as backend:
        tasks = await prepare(backend, PROCESSES, allowed)
    team = [workers.start("spend", path=str(path), **arguments) for arguments in jobs(tasks)]
    for worker in team:
        assert worker.hear() == "ready"
    for worker in team:
        worker.tell("go")
    said = [await asyncio.to_thread(worker.hear) for worker in team]
    assert [worker.wait() for worker in team] == [0] * PROCESSES
    async with opened(path, NOW) as backend:
        await check_spent(backend, said, allowed, BEYOND)
        assert (await backend.verify()).problems == []


async def test_what_a_killed_process_reserved_in_a_file_expires(workers: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path, NOW) as backend:
        await make_budget(backend)
    worker = workers.start("hold_a_reservation", path=str(path), session_id="parent")
    held = worker.hear()
    worker.kill()
    assert worker.wait() == -9
    async with opened(path, NOW) as now, opened(path, LATER) as later:
        await check_expiry(held, now, later)


# -- Calls on budgets that are run again: after a rollback they happen, after an unnoticed commit they do not -----


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

    await raises(RolledBack, backend._runner.write(fail))


async def run_twice(backend: Backend, work: Callable[[Transaction], Result]) -> Result:
    """Run a call as a runner does that has not heard of its first commit; return the answer, which is the first."""
    await run_and_roll_back(backend, work)
    first = await backend._runner.write(work)
    assert await backend._runner.write(work) == first
    return first


async def test_calls_on_budgets_happen_once(open_backend: OpenBackend) -> None:
    backend, budget = await with_budget(open_backend)

    async def reserved() -> int:
        found = existing(await backend.get_budget(budget.id))
        return found.reserved

    held: Reservation = await run_twice(backend, reserving(backend._sources, "s", Amounts(60), HOUR_US))
    assert await reserved() == 60
    assert (await run_twice(backend, releasing(backend._sources, held.id))).state == "released"
    assert await reserved() == 0
    await raises(ReservationSettled, backend._runner.write(releasing(backend._sources, held.id)))
    assert (await run_twice(backend, deleting(backend._sources, budget.id))).id == budget.id
    await raises(BudgetNotFound, backend._runner.write(deleting(backend._sources, budget.id)))
    assert (await backend.verify()).problems == []
    await backend.close()
