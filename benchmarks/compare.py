"""The cost of this checkout against an earlier revision: `python -m benchmarks.compare REVISION`.

Both run the same operations, in processes of their own, in turn. Compared is CPU time (user and system, all threads),
which is steadier than the clock on a machine that does other things as well. A ratio is taken within a round; shown
are the median of the rounds, and the least and the greatest.
"""

from __future__ import annotations

import asyncio
import json
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
from benchmarks.measuring import fill, make_messages, settle

ROOT = Path(__file__).parent.parent
COMMANDS = (["sessions"], ["show", "long"], ["usage"], ["log", "long"], ["context", "long"])


def main() -> None:
    """Compare, or (for itself) measure one side."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="what to compare with, as git names it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="prove only that it runs")
    parser.add_argument("--measure", action="store_true", help="measure what is in this folder, and print JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asyncio.run(_measure(30 if arguments.short else 1000))))
        return
    if arguments.revision is None:
        parser.error("a revision to compare with is needed")
    with TemporaryDirectory() as folder:
        sides = [_checked_out(Path(folder) / "before", arguments.revision), _copied(Path(folder) / "after")]
        rounds = [_round(sides, number, short=arguments.short) for number in range(arguments.rounds)]
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


def _round(sides: list[Path], number: int, *, short: bool) -> list[dict[str, float]]:
    results: dict[Path, dict[str, float]] = {}
    for folder in sides if number % 2 == 0 else reversed(sides):
        command = [sys.executable, "-m", "benchmarks.compare", "--measure", *(["--short"] if short else [])]
        results[folder] = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
    return [results[folder] for folder in sides]


def _report(revision: str, rounds: list[list[dict[str, float]]]) -> None:
    print(f"| CPU time | {revision} | here | ratio (over rounds) |\n| --- | --- | --- | --- |")
    for name in rounds[0][1]:
        before, after = ([sides[which][name] for sides in rounds] for which in (0, 1))
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        print(
            f"| {name} | {median(before) * 1e6:,.0f} us | {median(after) * 1e6:,.0f} us "
            f"| {median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


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


async def _measure(count: int) -> dict[str, float]:
    assert Path(flue_py.__file__).is_relative_to(Path.cwd()), flue_py.__file__
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        found = {name: seconds async for name, seconds in _operations(folder, count)}
        found |= {name: seconds async for name, seconds in _transfer(folder, count)}
        found |= {f"flue-py {command[0]}": _command(folder / "store.db", command) for command in COMMANDS}
    return found


async def _operations(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
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
        yield "append 100 at once", await _each(count // 20, lambda _: one.append_messages(batch))
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
        yield "usage of a window", await _each(count // 2, lambda _: long.money.aggregate_usage_since(middle))
        yield "list 50 sessions", await _each(count // 10, lambda _: store.list_sessions(limit=50))
        yield "label an entry", await _each(count // 2, lambda number: long.marks.set_label(middle, f"label {number}"))

        async def task(number: int) -> None:
            root = await store.create_session(key=f"root{number}")
            child = await root.tasks.create(task_id=f"child{number}")
            await child.append_message(messages[0])
            await store.delete_session_tree(root.id)

        yield "make and delete sessions", await _each(count // 10, task)

    async def cold(_: int) -> None:
        async with flue_py.open(path) as store:
            await (await store.open_session("long")).build_context()

    yield f"open, and the context of {count}", await _each(20, cold)
    async with flue_py.open(path) as store:
        long = await store.open_session("long")
        yield f"path of {count}, unchanged", await _each(count // 10, lambda _: long.get_active_path())
        yield f"tree of {count}", await _each(10, lambda _: long.get_tree())
        yield f"changes of {count}", await _each(10, lambda _: long.changes(after=0, limit=1000))
    async with flue_py.open(":memory:") as store:
        one = await store.create_session(key="one")
        yield "append, in memory", await _each(count, lambda number: one.append_message(messages[number % 1000]))


async def _transfer(folder: Path, count: int) -> AsyncIterator[tuple[str, float]]:
    for name in ("pi", "claude-code", "codex"):
        file = folder / f"{name}.jsonl"
        file.write_bytes(b"".join(rows(name, count, 600)))

        async def bring(number: int, file: Path = file, name: str = name) -> None:
            async with flue_py.open(folder / f"{name}{number}.db", durability="normal") as store:
                await flue_py.import_file(store, file)

        yield f"import {count} rows of {name}", await _each(3, bring)
    async with flue_py.open(folder / "store.db") as store:
        long = await store.open_session("long")
        yield f"export {count} to pi", await _each(5, lambda _: flue_py.export_session(long, "pi"))
        yield "verify", await _each(2, lambda _: store.verify())


def _command(path: Path, arguments: list[str]) -> float:
    command = [sys.executable, "-c", "from flue_py.cli import main; main()", "--db", str(path), *arguments]
    start = _cpu(RUSAGE_CHILDREN)
    for _ in range(3):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (_cpu(RUSAGE_CHILDREN) - start) / 3


if __name__ == "__main__":
    main()
