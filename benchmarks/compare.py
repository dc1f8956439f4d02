"""The cost of this checkout against an earlier revision: `python -m benchmarks.compare REVISION`.

Both run the same operations, in processes of their own, in turn. Compared is CPU time (user and system, all threads),
which is steadier than the clock on a machine that does other things as well, and the size of a file. A ratio is taken
within a round; shown are the median of the rounds, and the least and the greatest. `--row` measures some groups alone.

The copies of both sides keep their bytecode, whatever the environment says: compiled anew by each command, a package of
200 files takes some seconds, and a comparison half an hour.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable
from io import BytesIO
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median
from tempfile import TemporaryDirectory

import flue_py
from benchmarks.importing import rows
from benchmarks.measuring import database_bytes, fill, make_messages, settle

ROOT = Path(__file__).parent.parent
SIZE = "size of "
"""How the names of rows begin that are bytes."""
COMMANDS = (["sessions"], ["show", "long"], ["usage"], ["log", "long"], ["context", "long"])


def main() -> None:
    """Compare, or (for itself) measure one side."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="what to compare with, as git names it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=list(GROUPS), help="measure only these rows")
    parser.add_argument("--short", action="store_true", help="prove only that it runs")
    parser.add_argument("--measure", action="store_true", help="measure what is in this folder, and print JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asyncio.run(_measure(30 if arguments.short else 1000, arguments.row or list(GROUPS)))))
        return
    if arguments.revision is None:
        parser.error("a revision to compare with is needed")
    with TemporaryDirectory() as folder:
        sides = [_checked_out(Path(folder) / "before", arguments.revision), _copied(Path(folder) / "after")]
        options = [*(["--short"] if arguments.short else []), *(f"--row={row}" for row in arguments.row or ())]
        rounds = [_round(sides, number, options) for number in range(arguments.rounds)]
    _report(arguments.revision, rounds)


def _checked_out(folder: Path, revision: str) -> Path:
    archive = subprocess.run(
        ["git", "archive", revision, "flue_py", "migrations"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return _with_benchmarks(folder)


def _copied(folder: Path) -> Path:
    for name in ("flue_py", "migrations"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return _with_benchmarks(folder)


def _with_benchmarks(folder: Path) -> Path:
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__", "peers"))
    return folder


def _round(sides: list[Path], number: int, options: list[str]) -> list[dict[str, float]]:
    results: dict[Path, dict[str, float]] = {}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for folder in sides if number % 2 == 0 else reversed(sides):
        command = [sys.executable, "-m", "benchmarks.compare", "--measure", *options]
        done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, env=environment)
        results[folder] = json.loads(done.stdout)
    return [results[folder] for folder in sides]


def _report(revision: str, rounds: list[list[dict[str, float]]]) -> None:
    print(f"| CPU time | {revision} | here | ratio (over rounds) |\n| --- | --- | --- | --- |")
    for name in rounds[0][1]:
        before, after = ([sides[which][name] for sides in rounds] for which in (0, 1))
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        print(
            f"| {name} | {_shown(name, median(before))} | {_shown(name, median(after))} "
            f"| {median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


def _shown(name: str, value: float) -> str:
    return f"{value / 1024:,.0f} KiB" if name.startswith(SIZE) else f"{value * 1e6:,.0f} us"


# -- one side ---------------------------------------------------------------------------------------------------------


def _cpu(who: int = RUSAGE_SELF) -> float:
    used = getrusage(who)
    return used.ru_utime + used.ru_stime


async def _each(times: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Return the CPU seconds that one of so many calls takes."""
    await work(-1)  # what is imported and prepared at the first call
    settle()
    start = _cpu()
    for number in range(max(1, times)):
        await work(number)
    return (_cpu() - start) / max(1, times)


async def _measure(count: int, groups: list[str]) -> dict[str, float]:
    assert Path(flue_py.__file__).is_relative_to(Path.cwd()), flue_py.__file__
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        return {name: value for group in groups async for name, value in GROUPS[group](folder, count)}


async def _writes(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
    messages = make_messages(1000)
    path = folder / "store.db"
    async with flue_py.open(path, durability="normal") as store:
        long = await store.create_session(key="long")
        await fill(long, messages, count)
        one = await store.create_session(key="one")
        yield "append a message", await _each(count, lambda number: one.append_message(messages[number % 1000]))
        yield (
            "append with a key",
            await _each(
                count // 2, lambda number: one.append_message(messages[number % 1000], idempotency_key=str(number))
            ),
        )
        batch = messages[:100]
        yield "append 100 at once", await _each(count // 50, lambda _: one.append_messages(batch))
        many = [await store.create_session(key=f"many{number}") for number in range(100)]
        yield (
            "append to 100 sessions at once",
            await _each(
                count // 50,
                lambda number: asyncio.gather(*[each.append_message(messages[number % 1000]) for each in many]),
            ),
        )
        path_ids = [entry.id for entry in await long.get_active_path()]
        middle = path_ids[len(path_ids) // 2]
        yield "fork", await _each(count // 2, lambda _: long.fork(at=middle))
        yield "move the leaf", await _each(count // 2, lambda number: one.move_leaf(None) if number % 2 else one.undo())
        # Earlier builds have these methods on the session itself.
        money, marks = getattr(long, "money", long), getattr(long, "marks", long)
        yield "usage of a window", await _each(count // 2, lambda _: money.aggregate_usage_since(middle))
        yield "list 50 sessions", await _each(count // 10, lambda _: store.list_sessions(limit=50))
        yield "label an entry", await _each(count // 2, lambda number: marks.set_label(middle, f"label {number}"))

        async def task(number: int) -> None:
            root = await store.create_session(key=f"root{number}")
            create = root.tasks.create if hasattr(root, "tasks") else root.create_task
            child = await create(task_id=f"child{number}")
            await child.append_message(messages[0])
            await store.delete_session_tree(root.id)

        yield "make and delete sessions", await _each(count // 10, task)

    async with flue_py.open(":memory:") as store:
        one = await store.create_session(key="one")
        yield "append, in memory", await _each(count, lambda number: one.append_message(messages[number % 1000]))


async def _reads(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
    messages, path = make_messages(1000), folder / "reads.db"
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="short"), messages, count)
    yield f"{SIZE}{count} messages of 600 bytes", database_bytes(path)
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="long"), messages, 10 * count)
        compacted = await store.create_session(key="compacted")
        await fill(compacted, messages, count)
        first = (await compacted.append_messages(messages[: count // 5])).entry_ids[0]
        await compacted.append_compaction("A summary. " * 50, first_kept_entry_id=first, tokens_before=90_000)
    yield f"load {10 * count}, cold", await _cold(path, "long", lambda session: session.build_context())
    yield f"path of {10 * count}, cold", await _cold(path, "long", lambda session: session.get_active_path())
    yield f"context after a compaction, {count // 5} kept", await _cold(path, "compacted", _context)
    yield f"load {count}, cold", await _cold(path, "short", _context)
    yield f"path of {count}, cold", await _cold(path, "short", lambda session: session.get_active_path())

    async def anew(_: int) -> None:
        async with flue_py.open(path) as store:
            await (await store.open_session("short")).build_context()

    yield f"open, and the context of {count}", await _each(10, anew)
    async with flue_py.open(path) as store:

        async def again(_: int) -> None:
            await (await store.open_session("short")).build_context()

        yield f"load {count} again, by another handle", await _each(20, again)
        short = await store.open_session("short")
        yield f"path of {count}, unchanged", await _each(count // 10, lambda _: short.get_active_path())
        yield f"tree of {count}", await _each(10, lambda _: short.get_tree())
        yield f"changes of {count}", await _each(10, lambda _: short.changes(after=0, limit=1000))


def _context(session: flue_py.Session) -> Awaitable[object]:
    return session.build_context()


async def _cold(path: Path, key: str, read: Callable[[flue_py.Session], Awaitable[object]]) -> float:
    """Return the least CPU seconds of a read by a store that was just opened."""
    samples = []
    for _ in range(8):
        async with flue_py.open(path) as store:
            session = await store.open_session(key)
            settle()
            start = _cpu()
            kept = await read(session)
            samples.append(_cpu() - start)
            del kept
    return min(samples)


async def _transfer(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
    for name in ("pi", "claude-code", "codex"):
        file = folder / f"{name}.jsonl"
        file.write_bytes(b"".join(rows(name, count, 600)))

        async def bring(number: int, file: Path = file, name: str = name) -> None:
            async with flue_py.open(folder / f"{name}{number}.db", durability="normal") as store:
                await flue_py.import_file(store, file)

        yield f"import {count} rows of {name}", await _each(2, bring)
    path = folder / "pi-1.db"
    async with flue_py.open(path) as store:
        (info,) = (await store.list_sessions(limit=2)).sessions
        session = await store.get_session(info.id)
        yield f"export {count} to pi", await _each(3, lambda _: flue_py.export_session(session, "pi"))
        yield "verify", await _each(2, lambda _: store.verify())


async def _commands(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
    path = folder / "commands.db"
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="long"), make_messages(1000), count)
    for command in COMMANDS:
        yield f"flue-py {command[0]}", _command(path, command)


def _command(path: Path, arguments: list[str]) -> float:
    command = [sys.executable, "-c", "from flue_py.cli import main; main()", "--db", str(path), *arguments]
    start = _cpu(RUSAGE_CHILDREN)
    for _ in range(2):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (_cpu(RUSAGE_CHILDREN) - start) / 2


GROUPS = {"writes": _writes, "reads": _reads, "transfer": _transfer, "commands": _commands}


if __name__ == "__main__":
    main()
