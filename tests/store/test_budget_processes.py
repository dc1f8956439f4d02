"""Many processes spend one budget in a SQLite file: it is kept to, and a dead process holds nothing for long.

Each process calls for task sessions of its own, which the budget of their parent covers, beside budgets of their own
and one of their scope. `test_postgres_concurrency` has the same on PostgreSQL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.spending import BEYOND, LATER, NOW, check_expiry, check_spent, jobs, make_budget, prepare
from tests.store.sqlite_batches import opened
from tests.store.sqlite_workers import Nursery

pytestmark = pytest.mark.anyio

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
