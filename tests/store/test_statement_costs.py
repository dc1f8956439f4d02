"""What statements cost, in steps of SQLite's machine: as deterministic as the plan, unlike a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

import pytest

from flue_py.core.ledger import CallId, LedgerQuery
from flue_py.core.sessions import PathRead
from flue_py.core.usage import NO_USAGE, PaidCall
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import MemoryRunner
from tests.samples import add, assistant, compaction, new_session, talk, user
from tests.sources import counted_sources
from tests.tables import inputs

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
@inputs("name", READS)
async def test_what_is_summed_up_of_calls_costs_as_many_steps_as_there_are_calls(name: str) -> None:
    few, many = await steps(READS[name], FEW), await steps(READS[name], MANY)

    assert few > FEW / 100
    assert many < 1.5 * (MANY / FEW) * few


async def _children(backend: Backend, session: str) -> object:
    return await backend.children(session, _ids(await backend.read_path_end(session, 3))[0])


async def _entries(backend: Backend, session: str) -> object:
    return await backend.get_entries(session, _ids(await backend.read_path_end(session, 20)))


async def _named(backend: Backend, session: str) -> list[tuple[str, str]]:
    return [(session, entry_id) for entry_id in _ids(await backend.read_path_end(session, 20))]


async def _read_named(backend: Backend, session: str) -> object:
    return await backend.read_named(await _named(backend, session))


async def _places(backend: Backend, session: str) -> object:
    return await backend.places_of(await _named(backend, session))


def _ids(read: PathRead) -> list[str]:
    return [entry.id for entry in read.entries or ()]


PARTS: dict[str, Read] = {
    "the end of a path": lambda backend, session: backend.read_path_end(session, 20),
    "the end of a context": lambda backend, session: backend.read_context_end(session, 20),
    "the children of an entry": _children,
    "entries by their ids": _entries,
    "entries by the ids of their sessions and theirs": _read_named,
    "where entries lie": _places,
}


async def steps_of_part(read: Read, messages: int, *, compacted: bool) -> int:
    runner = CountingRunner()
    backend = Backend(runner, counted_sources())
    session = await new_session(backend, *talk(messages))
    if compacted:
        first = await backend.read_path_end(session.id, 20)
        await add(backend, session.id, compaction((first.entries or ())[0].id), *talk(20))
    runner.hundreds = 0
    for _ in range(20):
        await read(backend, session.id)
    await backend.close()
    return runner.hundreds


@pytest.mark.anyio
@inputs("compacted", [False, True], ids=["whole", "compacted"])
@inputs("name", PARTS)
async def test_a_part_costs_the_same_however_much_comes_before_it(name: str, compacted: bool) -> None:
    few, many = [await steps_of_part(PARTS[name], count, compacted=compacted) for count in (40, 2000)]

    assert few > 20
    assert abs(many - few) <= 2


PAGES: dict[str, Read] = {
    "the first entries": lambda backend, session: backend.read_entries(session, limit=20),
    "the last entries": lambda backend, session: backend.read_entries(session, limit=20, newest_first=True),
    "the last compactions": lambda backend, session: backend.read_entries(
        session, kind="compaction", limit=20, newest_first=True
    ),
}


@pytest.mark.anyio
@inputs("name", PAGES)
async def test_a_page_of_entries_costs_a_few_halvings_more_of_a_long_session(name: str) -> None:
    few, many = [await steps_of_part(PAGES[name], count, compacted=True) for count in (40, 2000)]

    assert few > 10
    assert many < 1.5 * few


CALLS: dict[str, Read] = {
    "a report of a call": lambda backend, session: backend.record_call(session, PaidCall(NO_USAGE, call_id="new")),
    "looking a call up": lambda backend, session: backend.find_calls("", [CallId("", "new")]),
}


@pytest.mark.anyio
@inputs("name", CALLS)
async def test_a_call_that_brings_its_id_costs_the_same_however_many_entries_there_are(name: str) -> None:
    few, many = [await steps_of_part(CALLS[name], count, compacted=False) for count in (40, 2000)]

    assert few > 1
    assert abs(many - few) <= 4
