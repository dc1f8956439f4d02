"""The cost of a very large database: to open it, and the memory for the context of a session of 1,000,000 entries.

Each is measured in a process of its own, after the file was dropped from the system's cache. The floor of opening is
the stdlib driver, which reads the names of the tables. Then the time of ``flue-py context`` as a whole process, against
a Python that only imports its dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages, timed

KEPT = 200
ENTRIES = 1_100_000
"""As many as a database of a gigabyte has."""

OPEN = """
import asyncio, sys, time, flue_py
flue_py.open
async def main():
    if len(sys.argv) > 2:
        async with flue_py.open(sys.argv[2]):
            pass
    start = time.perf_counter()
    async with flue_py.open(sys.argv[1]):
        print(time.perf_counter() - start)
asyncio.run(main())
"""
"""Opens a store, after a small one where that is given: its modules are then loaded."""
OPEN_RAW = """
import sqlite3, sys, time
start = time.perf_counter()
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("SELECT name FROM sqlite_master").fetchall()
print(time.perf_counter() - start)
"""
MEMORY = """
import asyncio, sys, flue_py
flue_py.open
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
async def main():
    before = peak()
    async with flue_py.open(sys.argv[1]) as store:
        context = await (await store.open_session("long")).build_context()
        assert len(context) == int(sys.argv[2]), len(context)
    print((peak() - before) / 1024)
asyncio.run(main())
"""


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lines = [await _in_the_shell(options)]
    if not options.long and not options.short:
        skipped = ("open a database of 1 GB, cold", "memory for the context of 1,000,000 entries")
        return [*[Line.skipped(what, "run with --long") for what in skipped], *lines]
    return [*await _very_large(options), *lines]


async def _very_large(options: Options) -> list[Line]:
    count = options.count(ENTRIES, 500)
    path = options.directory / "large.db"
    await _make(path, count)
    size = path.stat().st_size / 1e9

    def run(code: str, *arguments: str) -> float:
        _let_go(path)
        command = [sys.executable, "-c", code, str(path), *arguments]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    small = options.directory / "small.db"
    async with flue_py.open(small):
        pass

    async def ours() -> Samples:
        return [run(OPEN, str(small)) for _ in range(options.count(5, 1))]

    async def first() -> Samples:
        return [run(OPEN) for _ in range(options.count(5, 1))]

    async def raw() -> Samples:
        return [run(OPEN_RAW) for _ in range(options.count(5, 1))]

    opened, at_first, floor = await in_rounds(options.rounds, ours, first, raw)
    took = [run(MEMORY, str(KEPT + 1)) for _ in range(options.rounds)]
    what = f"open a database of {size:.1f} GB, cold"
    memory = f"memory for the context of {KEPT} out of {count:,} entries"
    return [
        Line.of_latencies(what, "ms", opened, floor, Goal(20, of="value")),
        Line.of_latencies("- the same, as the first a process opens", "ms", at_first, floor),
        Line.of_figures(memory, "MiB", took, None, Goal(50, of="value")),
    ]


async def _make(path: Path, count: int) -> None:
    """Make a session of that many entries, the last of which is a compaction that keeps a few."""
    messages = make_messages(1000)
    async with flue_py.open(path, durability="normal") as store:
        session = await store.create_session(key="long")
        await fill(session, messages, count - KEPT - 1)
        first = (await session.append_messages(messages[:KEPT])).entry_ids[0]
        await session.append_compaction("What was done so far. " * 25, first_kept_entry_id=first, tokens_before=90_000)


def _let_go(path: Path) -> None:
    """Drop a file from the system's cache, if the system supports it."""
    if not hasattr(os, "posix_fadvise"):
        return
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


async def _in_the_shell(options: Options) -> Line:
    what = "flue-py context, whole process (raw: import sqlalchemy, pydantic)"
    found = Path(sys.executable).with_name("flue-py")
    script = str(found) if found.exists() else shutil.which("flue-py")
    if not script:
        return Line.skipped(what, "flue-py is not installed")
    path = options.directory / "shell.db"
    await _make(path, options.count(1000, KEPT + 2))
    context = [script, "--db", str(path), "context", "long"]
    imports = [sys.executable, "-c", "import sqlalchemy, pydantic"]

    def times(command: list[str]) -> Samples:
        return [
            timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(options.count(6, 1))
        ]

    async def ours() -> Samples:
        return times(context)

    async def raw() -> Samples:
        return times(imports)

    times(context)
    answered, imported = await in_rounds(options.rounds, ours, raw)
    return Line.of_latencies(what, "ms", answered, imported, Goal(1.5, to="the imports"))


if __name__ == "__main__":
    main(measure)
