"""The write-ahead log stays bounded: when a long read has ended, and while short ones overlap without end.

For the figures with the limit that stores have: `python -m tests.store.test_write_ahead_log APPENDS`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from flue_py.db import sql as store_sql
from flue_py.db.backend import Backend
from flue_py.db.runner import Transaction
from flue_py.db.sqlite import file as sqlite_file
from flue_py.db.sqlite.file import BUSY_POLL_MS, LogKeeper, connect
from tests.samples import add, new_session, path_ids, user
from tests.store.sqlite_batches import Gate, opened, opened_on_engine, runner_of

LIMIT = 1_200_000
PAD = "x" * 600
APPENDS = 1_600
BATCH = [user(f"{PAD}{number}") for number in range(500)]


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may have as many bytes as can be written in a moment."""
    monkeypatch.setattr(sqlite_file, "LOG_LIMIT", LIMIT)


def log_size(path: Path) -> int:
    """Return the size of the log; 0 where the last connection has removed it (an older engine keeps none open)."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def opened_engine(path: Path) -> AbstractAsyncContextManager[Backend]:
    return opened_on_engine(f"sqlite+aiosqlite:///{path}", durability="normal")


@pytest.mark.parametrize("opening", [opened, opened_engine])
async def test_a_log_that_grew_beside_a_long_read_is_cut_when_the_read_has_ended(
    path: Path, opening: Callable[[Path], Any]
) -> None:
    async with opening(path) as backend:
        session = await new_session(backend, user("a"))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT COUNT(*) FROM entries").fetchone() == (1,)
            written = 1
            # Beyond what SQLite leaves in the log before it moves it.
            while log_size(path) < 4 * LIMIT:
                written += len(await add(backend, session.id, *BATCH))
            assert reader.execute("SELECT COUNT(*) FROM entries").fetchone() == (1,)
            reader.execute("COMMIT")
        # The first moves the log into the database, the next begins it anew, and what is left of it is cut.
        for _ in range(3):
            written += len(await add(backend, session.id, user("b")))
        assert log_size(path) <= LIMIT
        assert len(await path_ids(backend, session.id)) == written
        assert (await backend.verify()).problems == []


class Reading:
    """Reads that take over from each other: whenever one ends, the next one has begun."""

    def __init__(self, backend: Backend) -> None:
        self._runner = runner_of(backend)
        self._is_over = False
        self.reads = 0

    async def _begin(self) -> tuple[Gate, asyncio.Task[None]]:
        gate = Gate()

        def read(tx: Transaction) -> None:
            assert tx.first(store_sql.READ_STATE, name="format") is not None
            gate.hold()

        reading = asyncio.create_task(self._runner.read(read))
        await gate.reached.wait()
        self.reads += 1
        return gate, reading

    async def go_on(self) -> None:
        gate, reading = await self._begin()
        while not self._is_over:
            following = await self._begin()
            gate.open()
            await reading
            gate, reading = following
        gate.open()
        await reading

    def stop(self) -> None:
        self._is_over = True


async def test_the_log_stays_bounded_while_there_is_always_somebody_reading(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *BATCH)
        reading = Reading(backend)
        readers = asyncio.create_task(reading.go_on())
        longest = 0
        for _ in range(APPENDS):
            await add(backend, session.id, user(PAD))
            longest = max(longest, log_size(path))
        reading.stop()
        await readers
        assert reading.reads > 10
        # What was written is more than twice that, and would have stayed in the log. The writer waits for readers when
        # the log has one, two, four and eight times the limit: on a busy machine the first waits may be too short.
        assert longest < 12 * LIMIT
        assert len(await path_ids(backend, session.id)) == len(BATCH) + APPENDS
        assert (await backend.verify()).problems == []


def test_an_ordinary_log_costs_no_statement() -> None:
    def never(sql: str) -> sqlite3.Cursor:
        raise AssertionError(sql)

    keeper = LogKeeper()
    keeper.after_commit(never, 0)
    keeper.after_commit(never, LIMIT)


def test_a_log_that_cannot_be_had_is_tried_again_at_twice_its_length(path: Path) -> None:
    tried: list[int] = []

    def busy(sql: str) -> sqlite3.Cursor:
        if "checkpoint" in sql:
            tried.append(size)
            raise sqlite3.OperationalError("database table is locked")
        return connection.execute(sql)

    keeper = LogKeeper(busy_ms=1234)
    with closing(connect(path, "normal", read_only=False)) as connection:
        for size in range(LIMIT // 2, 9 * LIMIT, LIMIT // 2):
            keeper.after_commit(busy, size)
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (BUSY_POLL_MS if size <= LIMIT else 1234,)
    assert tried == [3 * LIMIT // 2, 3 * LIMIT, 6 * LIMIT]


async def measure(path: Path, appends: int, what: str) -> None:
    """Append beside reads of a kind; print how long the log became, and how long after them."""
    async with opened(path) as backend:
        session = await new_session(backend, *BATCH)
        reading, long = Reading(backend), sqlite3.connect(path, isolation_level=None)
        if what == "a long read":
            long.execute("BEGIN")
            long.execute("SELECT COUNT(*) FROM entries").fetchone()
        readers = asyncio.create_task(reading.go_on()) if what == "reads that overlap" else None
        begun, longest = time.perf_counter(), 0
        for _ in range(appends):
            await add(backend, session.id, user(PAD))
            longest = max(longest, log_size(path))
        seconds = time.perf_counter() - begun
        reading.stop()
        if readers is not None:
            await readers
        long.close()
        await add(backend, session.id, user("b"))
        await add(backend, session.id, user("c"))
        sizes = f"the log at most {longest / 1e6:.1f} MB, then {log_size(path) / 1e6:.1f} MB"
        print(f"beside {what}: {appends:,} appends in {seconds:.1f} s, {sizes}")


def main(appends: int) -> None:
    """Measure beside reads of each kind."""
    for what in ("no read", "a long read", "reads that overlap"):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder, "s.db"), appends, what))


if __name__ == "__main__":
    main(int(sys.argv[1]))
