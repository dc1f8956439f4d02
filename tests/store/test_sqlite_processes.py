"""Many processes on one file: none is refused, nothing is lost, no batch is interleaved.

Each process appends batches to a session of its own and to one that all share, through one store at the same time.
For the figures of a run: `python -m tests.store.test_sqlite_processes PROCESSES APPENDS`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from flue_py.core.sessions import NewSession
from tests.samples import add, path_ids, path_of, session_info, user
from tests.store.sqlite_batches import opened
from tests.store.sqlite_workers import Nursery, nursery

PROCESSES = 8
BUSY_SECONDS = 30.0
"""How long a store waits for other processes unless it is told otherwise."""


@dataclass(frozen=True)
class Written:
    """What the processes said: the batches by process, each a list of ids, and how long it all took."""

    own: list[list[list[str]]]
    shared: list[list[list[str]]]
    longest: float
    seconds: float


async def write_at_once(workers: Nursery, path: Path, processes: int, appends: int) -> Written:
    """Have processes append at the same time; return what they were told."""
    async with opened(path) as backend:
        for name in ("shared", *(f"own-{number}" for number in range(processes))):
            await backend.create_session(NewSession(id=name))
    team = [
        workers.start(
            "append_batches", path=str(path), own=f"own-{number}", shared="shared", worker=f"{number}",
            appends=appends, busy_timeout=BUSY_SECONDS,
        )
        for number in range(processes)
    ]  # fmt: skip
    for worker in team:
        assert worker.hear() == "ready"
    begun = time.perf_counter()
    for worker in team:
        worker.tell("go")
    said = [await asyncio.to_thread(worker.hear) for worker in team]
    seconds = time.perf_counter() - begun
    assert [worker.wait() for worker in team] == [0] * processes
    assert [answer.get("error") for answer in said] == [None] * processes
    results = [answer["result"] for answer in said]
    longest = max(result["longest"] for result in results)
    return Written([result["own"] for result in results], [result["shared"] for result in results], longest, seconds)


def flat(batches: list[list[str]]) -> list[str]:
    """Return the ids of batches, in their order."""
    return [entry_id for batch in batches for entry_id in batch]


async def check(path: Path, written: Written, appends: int) -> None:
    """Assert that a file holds what the processes wrote, each in its order, and each batch in one piece."""
    async with opened(path) as backend:
        for number, batches in enumerate(written.own):
            assert await path_ids(backend, f"own-{number}") == flat(batches)
            info = await session_info(backend, f"own-{number}")
            assert (info.revision, info.entry_count, info.spent_tokens) == (appends, 2 * appends, appends)
        shared = await path_of(backend, "shared")
        places = {entry.id: place for place, entry in enumerate(shared)}
        assert len(shared) == len(places) == 2 * appends * len(written.shared)
        for batches in written.shared:
            assert all(places[second] == places[first] + 1 for first, second in batches)
            begins = [places[first] for first, _ in batches]
            assert begins == sorted(begins)
        assert {entry.id for entry in shared} == {entry_id for batches in written.shared for entry_id in flat(batches)}
        info = await session_info(backend, "shared")
        assert (info.revision, info.spent_tokens) == (len(shared) // 2, len(shared) // 2)
        assert (await backend.verify()).problems == []


@pytest.mark.parametrize("appends", [25, pytest.param(200, marks=pytest.mark.slow)])
async def test_many_processes_append_to_one_file_and_nothing_is_lost_or_interleaved(
    workers: Nursery, tmp_path: Path, appends: int
) -> None:
    path = tmp_path / "s.db"
    await check(path, await write_at_once(workers, path, PROCESSES, appends), appends)


async def test_a_process_that_holds_a_snapshot_stops_no_writer_and_sees_no_change(
    workers: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    async with opened(path, busy_timeout=0.0) as backend:
        session = await backend.create_session(NewSession())
        await add(backend, session.id, user("before"))
        reader = workers.start("hold_a_snapshot", path=str(path))
        assert reader.hear() == 1
        for number in range(50):
            await add(backend, session.id, user(str(number)))
        assert len(await path_ids(backend, session.id)) == 51
        reader.tell("look again")
        assert reader.hear() == 1
        assert reader.hear() == "let go"
        await add(backend, session.id, user("after"))
        assert (await backend.verify()).problems == []


async def run(processes: int, appends: int) -> None:
    """Write and check; print the figures."""
    with nursery() as started, tempfile.TemporaryDirectory() as folder:
        written = await write_at_once(started, Path(folder, "s.db"), processes, appends)
        await check(Path(folder, "s.db"), written, appends)
    count = 2 * processes * appends
    print(f"{processes} processes, {count:,} batches in {written.seconds:.1f} s ({count / written.seconds:,.0f} /s)")
    print(f"the longest that one waited for its commit: {written.longest:.2f} s")


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
