"""A process that is killed at work: what was acknowledged is there, nothing is half there, and the session goes on.

Workers do operations of every kind in four scopes at once, so that they are committed in groups. Each says what it
begins and what was acknowledged. After each death a copy of what is on the disk is opened, and compared in everything
that a store tells with a store in memory to which what was acknowledged was applied. Of the four operations
under way, each may have happened, as a whole, or not. The next process goes on with the file itself, as it was left.

A life is one file and its deaths, and a seed decides its operations and its deaths. To repeat lives with the seeds from
FIRST to before LAST, and print the results: `python -m tests.store.test_kills FIRST LAST`.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flue_py.core.sessions import StoreInfo
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory, open_sqlite
from tests.effort import first
from tests.samples import Snapshot, add, assistant, path_ids, snapshot
from tests.store.kill_operations import SOURCES, Operation, apply, outcome
from tests.store.sqlite_workers import Nursery, Worker, nursery
from tests.whole_stores import whole_trees

LATER = replace(SOURCES, entry_id=lambda: secrets.token_hex(8))
"""For appends to a copy."""
SCOPES = ("scope-0", "scope-1", "scope-2", "scope-3")
DEATHS = 5
MOST_LINES = 120
"""What a process that is killed has said before, at most: that it began an operation, or that one was acknowledged."""
MOST_LOG_BYTES = 256 * 1024
"""What a process that the kernel ends may add to the write-ahead log, at most."""


async def told(backend: Backend, scope: str) -> dict[str, Snapshot]:
    """Return everything the store tells about the sessions of a scope."""
    page = await backend.list_sessions(scope=scope, kind=None, limit=1000, cursor=None)
    return {info.id: await snapshot(backend, info.id) for info in page.sessions}


async def totals(backend: Backend) -> StoreInfo:
    """Return what a store says of itself, where it is left out."""
    return replace(await backend.info(), backend="", location="", format_version=0, size_bytes=None)


async def bills(backend: Backend) -> dict[tuple[str, str, str], tuple[int, int | None]]:
    """Return the paid calls of a store: tokens and cost by scope, provider and call."""
    payers = [*await whole_trees(backend), *await backend.list_gone_payers(-1, 1_000_000)]
    return {call.identity: (call.total_tokens, call.cost) for payer in payers for call in payer.calls}


def copy_store(path: Path, copy: Path) -> None:
    """Copy what is on the disk of a store that no process has open: its shared memory is of no use to others."""
    for suffix in ("", "-wal"):
        left = Path(f"{path}{suffix}")
        if left.exists():
            shutil.copy(left, f"{copy}{suffix}")


class Life:
    """A file, a store in memory with all that it has to hold, and the operations under way at the last death."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.twin = open_memory(SOURCES)
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._under_way: dict[str, Operation] = {}
        self._how = ""

    async def die(self, workers: Nursery, number: int) -> None:
        """Have a process work on the file until it dies."""
        seed = f"{self._seed} {number}"
        chance = random.Random(seed)
        durability = chance.choice(["full", "normal"])
        # Killed while it opens the file, or so long after it has said so much; what it says comes in bursts.
        lines, seconds = (0, 0.03) if chance.random() < 0.2 else (chance.randint(1, MOST_LINES), 0.005)
        seconds = chance.uniform(0, seconds)
        log_bytes = None
        if chance.random() < 0.3:
            # The kernel is first, unless the log begins anew before it is so long.
            lines, log_bytes = 3 * MOST_LINES, self._log_size() + chance.randrange(MOST_LOG_BYTES)
        self._how = (
            f"death {number} of seed {self._seed}: {durability}, {lines} lines, {seconds:.4f} s, {log_bytes} bytes"
        )
        worker = workers.start(
            "die_at_work", path=str(self.path), durability=durability, seed=seed, scopes=SCOPES, log_bytes=log_bytes
        )
        await self._learn(self._said(worker, lines, seconds))

    def _log_size(self) -> int:
        log = Path(f"{self.path}-wal")
        return log.stat().st_size if log.exists() else 0

    def _said(self, worker: Worker, lines: int, seconds: float) -> list[Any]:
        assert worker.hear() == "ready"
        said = worker.hear_lines(lines) + worker.hear_until(seconds) + worker.kill()
        ended = -worker.wait()
        assert ended in (signal.SIGKILL, signal.SIGXFSZ), (self._how, ended)
        self.counts[f"ended by {signal.Signals(ended).name}"] += 1
        return said

    async def _learn(self, said: list[Any]) -> None:
        """Apply what was acknowledged to the store in memory, which has to come to the same."""
        for what, scope, value in said:
            if what == "begun":
                assert scope not in self._under_way, self._how
                self._under_way[scope] = value
                continue
            operation = self._under_way.pop(scope)
            result = outcome(await apply(self.twin, operation))
            assert result == value, (self._how, operation, result, value)
            self.counts["acknowledged"] += 1
            self.counts[f"{operation['do']}{' refused' if isinstance(value, str) else ''}"] += 1

    async def check(self, copy: Path) -> None:
        """Compare a copy of the file with the store in memory, which learns which of the last operations happened."""
        copy_store(self.path, copy)
        backend = await open_sqlite(copy, sources=LATER, durability="normal")
        try:
            retries = [retry for scope in SCOPES for retry in await self._check_scope(backend, scope)]
            assert await totals(backend) == await totals(self.twin), self._how
            assert await bills(backend) == await bills(self.twin), self._how
            for operation, result in retries:
                await self._retry(backend, operation, result)
            await self._go_on(backend)
            assert (await backend.verify()).problems == [], self._how
        finally:
            await backend.close()

    async def _check_scope(self, backend: Backend, scope: str) -> list[tuple[Operation, Any]]:
        """Compare a scope of both; return the operation under way, if it has a key, and what came of it."""
        found = await told(backend, scope)
        operation = self._under_way.pop(scope, None)
        result, happened = None, operation is not None and found != await told(self.twin, scope)
        if operation is not None and happened:
            result = outcome(await apply(self.twin, operation))
        assert found == await told(self.twin, scope), (self._how, scope, operation)
        if operation is None:
            return []
        self.counts["under way, there" if happened else "under way, not there"] += 1
        return [(operation, result)] if "key" in operation else []

    async def _retry(self, backend: Backend, operation: Operation, result: Any) -> None:
        """Repeat, on the copy, what nobody was told of: it is done once."""
        again = outcome(await apply(backend, operation))
        assert again["replayed"] == (result is not None), (self._how, operation, again)
        assert result in (None, {**again, "replayed": False}), (self._how, operation, again)
        assert outcome(await apply(backend, operation)) == {**again, "replayed": True}, (self._how, operation)

    async def _go_on(self, backend: Backend) -> None:
        """Append to every session of the copy."""
        page = await backend.list_sessions(scope=None, kind=None, limit=1000, cursor=None)
        for info in page.sessions:
            before = await path_ids(backend, info.id)
            added = await add(backend, info.id, assistant("on it goes", tokens=3))
            assert await path_ids(backend, info.id) == [*before, *added], self._how


async def live(seed: int, workers: Nursery, folder: Path) -> Counter[str]:
    """Live a life and die its deaths; return what happened, counted."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        life = Life(Path(own, "s.db"), seed)
        try:
            for number in range(DEATHS):
                await life.die(workers, number)
                await life.check(Path(own, f"{number}.db"))
        finally:
            await life.twin.close()
    return life.counts


@pytest.mark.parametrize("seed", first(2, range(8)))
async def test_what_was_acknowledged_outlives_the_process_and_nothing_is_half_there(
    seed: int, workers: Nursery, tmp_path: Path
) -> None:
    counts = await live(seed, workers, tmp_path)
    assert counts["ended by SIGKILL"] + counts["ended by SIGXFSZ"] == DEATHS
    assert counts["acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 100))
async def test_five_hundred_deaths_lose_nothing(first: int, workers: Nursery, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 100):
        counts += await live(seed, workers, tmp_path)
    assert counts["ended by SIGKILL"] + counts["ended by SIGXFSZ"] == 100 * DEATHS
    # Both ends were met, in both ways an operation under way can end.
    assert min(counts["ended by SIGKILL"], counts["ended by SIGXFSZ"]) > 50
    assert min(counts["under way, there"], counts["under way, not there"]) > 50


def main(first: int, last: int) -> None:
    """Live the lives of these seeds; print what happened."""
    counts: Counter[str] = Counter()
    begun = time.perf_counter()
    with nursery() as started, tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            counts += asyncio.run(live(seed, started, Path(folder)))
    for what, number in sorted(counts.items()):
        print(f"{number:>8,}  {what}")
    print(f"{(last - first) * DEATHS:>8,}  deaths in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
