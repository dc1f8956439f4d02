"""Run the workload over every store that is installed, print the table, and with ``--write`` put it into the docs.

`python benchmarks/peers/run.py --write` does all of it, in some twenty minutes; `--short` takes a minute, and proves
only that everything runs. The stores come with the extra `bench`; what is not installed is left out, and said.

Each round starts one process per store. They take turns, row by row, in an order of its own, and wait while another
measures.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sqlite3
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.peers.chart import chart  # noqa: E402 - found by the lines above
from benchmarks.peers.figures import PICTURE, Results, table, written  # noqa: E402
from benchmarks.peers.rows import GROUPS, Group  # noqa: E402
from benchmarks.peers.stores import BY_NAME, OURS, PACKAGES, STORES, Store  # noqa: E402

PAGE = ROOT / "docs" / "comparison.md"
PATIENCE = 600.0
"""Seconds for one row of one store, its histories included; beyond, its process is ended."""
LINE_LIMIT = 2**24


class Child:
    """The process of one store, which measures when it is told to."""

    def __init__(self, store: Store, folder: Path, options: Namespace) -> None:
        self.store = store
        self.durability = ""
        self._folder = folder
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it has loaded its store."""
        form = "short" if self._options.short else "full"
        command = ["-m", "benchmarks.peers.child", self.store.name, str(self._folder), str(self._options.budget), form]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        self.durability = (await self._answer())["durability"]

    async def measure(self, group: Group) -> dict[str, Any]:
        """Return what it measured of a group, by row; or what stopped it."""
        if self._process is None:
            await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{group.name}\n".encode())
        try:
            answer = await asyncio.wait_for(self._answer(), PATIENCE)
        except (TimeoutError, EOFError) as error:
            await self.stop()
            stopped = {"over": PATIENCE} if isinstance(error, TimeoutError) else {"error": "its process ended"}
            return {row.name: stopped for row in group.rows}
        if "error" in answer:
            return {row.name: {"error": answer["error"]} for row in group.rows}
        rows: dict[str, Any] = answer["rows"]
        return rows

    async def stop(self) -> None:
        """End it. Started again, it goes on with the histories it has."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise EOFError(f"the process of {self.store.name} ended; it says above why")
        return json.loads(line)


async def measure_all(options: Namespace, folder: Path, stores: list[Store], groups: list[Group]) -> Results:
    """Measure every group with every store, round after round."""
    measured: dict[str, dict[str, list[dict[str, Any] | None]]] = {
        row.name: {store.name: [] for store in stores} for group in groups for row in group.rows
    }
    modes: dict[str, str] = {}
    for number in range(options.rounds):
        children = [Child(store, folder / store.name, options) for store in stores]
        try:
            for child in children:
                (folder / child.store.name).mkdir(exist_ok=True)
                await child.start()
                modes[child.store.name] = child.durability
            for group in groups:
                if group.rounds is not None and number >= group.rounds:
                    continue
                print(f"round {number + 1} of {options.rounds}: {group.name} ...", file=sys.stderr, flush=True)
                for child in in_turn(children, number):
                    # What the one before has left to write must not be waited for by this one's fsyncs.
                    await asyncio.to_thread(os.sync)
                    answer = {row.name: None for row in group.rows}
                    if not any(_was_stopped(measured[row.name][child.store.name]) for row in group.rows):
                        answer = await child.measure(group)
                    for row in group.rows:
                        measured[row.name][child.store.name].append(answer[row.name])
        finally:
            for child in children:
                await child.stop()
    versions = {name: version(name) for name in PACKAGES if _is_installed(name)}
    return Results(machine(), options.rounds, measured, modes, versions, options.short)


def in_turn(children: list[Child], number: int) -> list[Child]:
    """Return the order of a round: each begins with another store, and every other one goes backwards."""
    first = number * 3 % len(children)
    order = [*children[first:], *children[:first]]
    return order if number % 2 == 0 else order[::-1]


def _was_stopped(rounds: list[dict[str, Any] | None]) -> bool:
    return any(one is not None and (one.get("over") or one.get("error")) for one in rounds)


def _is_installed(package: str) -> bool:
    return Store("", "", "", (package,), "").missing is None


def machine() -> str:
    """Return what it ran on."""
    return (
        f"{platform.platform(terse=True)}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def parsed() -> Namespace:
    """Return the options of the command line."""
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--short", action="store_true", help="a tiny form that only proves that it runs")
    arguments.add_argument("--rounds", type=int, help="how many rounds (default 5)")
    arguments.add_argument("--budget", type=float, help="seconds for the samples of a row in a round (default 5)")
    arguments.add_argument("--store", action="append", choices=list(BY_NAME), help="measure only this one, and flue_py")
    arguments.add_argument("--row", action="append", choices=[group.name for group in GROUPS], help="only these rows")
    arguments.add_argument("--dir", type=Path, default=Path(gettempdir()), help="where the databases go")
    arguments.add_argument("--write", action="store_true", help="put the table and the chart into the docs")
    arguments.add_argument("--save", type=Path, help="keep all that was measured in this file")
    arguments.add_argument("--saved", type=Path, help="measure nothing: take what --save has kept")
    given = arguments.parse_args()
    given.rounds = given.rounds or (1 if given.short else 5)
    given.budget = given.budget or (1.0 if given.short else 5.0)
    return given


def main() -> None:
    """Measure, print, and write where that was asked for."""
    options = parsed()
    if options.saved:
        results = Results(**json.loads(options.saved.read_text(encoding="utf-8")))
    else:
        chosen = [store for store in STORES if not options.store or store.name in options.store or store == OURS]
        for store in chosen:
            if store.missing:
                print(f"{store.title}: left out, {store.missing} is not installed (the extra bench)", file=sys.stderr)
        groups = [group for group in GROUPS if not options.row or group.name in options.row]
        with TemporaryDirectory(prefix="flue-py-peers-", dir=options.dir) as folder:
            stores = [store for store in chosen if not store.missing]
            results = asyncio.run(measure_all(options, Path(folder), stores, groups))
    if options.save:
        options.save.write_text(json.dumps(asdict(results)), encoding="utf-8")
    print(results.machine)
    print(table(results))
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
        PAGE.with_name(PICTURE).write_text(chart(results), encoding="utf-8")


if __name__ == "__main__":
    main()
