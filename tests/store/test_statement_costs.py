"""What statements cost, in steps of SQLite's machine: as deterministic as the plan, unlike a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

import pytest

from flue_py.core.ledger import LedgerQuery
from flue_py.store.backend import Backend
from flue_py.store.sqlite.memory import MemoryRunner
from flue_py.testing.samples import add, assistant, new_session, user
from flue_py.testing.sources import counted_sources

Read = Callable[[Backend, str], Awaitable[object]]
FEW, MANY = 300, 1200

READS: dict[str, Read] = {
    "the bill of a path": lambda backend, session: backend.read_ledger(LedgerQuery(session, on_path=True)),
    "the bill by branch": lambda backend, session: backend.read_ledger(LedgerQuery(session, group_by=("branch",))),
    "the costs of entries": lambda backend, session: backend.read_entry_costs(session),
}


class CountingRunner(MemoryRunner):
    """Counts the steps of SQLite's machine, in hundreds."""

    def __init__(self) -> None:
        super().__init__()
        self.hundreds = 0
        self._connection.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        self.hundreds += 1
        return 0

    @property
    def statistics(self) -> int:
        """How many tables ANALYZE has looked at: none, as in most stores."""
        try:
            return int(self._connection.execute("SELECT COUNT(*) FROM sqlite_stat1").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


async def steps(read: Read, calls: int) -> int:
    runner = CountingRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend)
    for number in range(calls):
        await add(backend, session.id, user(f"{number}"), assistant("ok", tokens=3, dollars=0.01))
    assert runner.statistics == 0
    runner.hundreds = 0
    await read(backend, session.id)
    await backend.close()
    return runner.hundreds


@pytest.mark.anyio
@pytest.mark.parametrize("name", READS)
async def test_what_is_summed_up_of_calls_costs_as_many_steps_as_there_are_calls(name: str) -> None:
    few, many = await steps(READS[name], FEW), await steps(READS[name], MANY)

    assert few > FEW / 100
    assert many < 1.5 * (MANY / FEW) * few
