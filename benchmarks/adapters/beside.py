"""What the benchmarks of adapters share: the cost of a piece of work, and rounds in which stores take turns."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple


class Cost(NamedTuple):
    """What one piece of work took: seconds of CPU, and on the clock."""

    cpu: float
    wall: float


Run = dict[str, dict[str, Cost]]
"""What each store took in a round, by its name and by row."""


def started() -> Callable[[int], Cost]:
    """Return a function that returns what was spent since then, for one of so many times."""
    cpu, wall = process_time(), perf_counter()
    return lambda times: Cost((process_time() - cpu) / times, (perf_counter() - wall) / times)


async def cost_of(work: Callable[[], Awaitable[object]], times: int = 1) -> Cost:
    spent = started()
    for _ in range(times):
        await work()
    return spent(times)


def blocking_cost_of(work: Callable[[], object], times: int = 1) -> Cost:
    spent = started()
    for _ in range(times):
        work()
    return spent(times)


def size_of(path: Path) -> Cost:
    """Return the bytes of a database, its log included, in the place of both figures."""
    size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    return Cost(size, size)


def parser_of(description: str | None, rounds: int = 5) -> ArgumentParser:
    """Return a parser of the options that all have."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="prove that it runs, and measure nothing")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def in_turns(names: Sequence[str], rounds: int, measured: Callable[[str, Path], dict[str, Cost]]) -> list[Run]:
    """Return what each store took in each round; every round begins with another one, in a folder of its own."""
    runs = []
    for number in range(rounds):
        order = [*names[number % len(names) :], *names[: number % len(names)]]
        with TemporaryDirectory() as folder:
            runs.append({name: measured(name, Path(folder)) for name in order})
    return runs


def ratio(runs: Sequence[Run], row: str, field: int, ours: str, theirs: str) -> float | None:
    """Return how many times theirs ours took, as the median of the rounds; None where theirs has no such row."""
    found = [run[ours][row][field] / max(run[theirs][row][field], 1e-9) for run in runs if row in run[theirs]]
    return median(found) if found else None


def print_ratios(runs: Sequence[Run], ours: str, theirs: Mapping[str, str]) -> None:
    """Print the ratios of all rows to each of ``theirs``, under its short name: of CPU, then on the clock."""
    labels = [f"{what}: {short}" for what in ("CPU", "wall") for short in theirs.values()]
    print(f"{f'{ours} beside':<30}" + "".join(f"{label:>16}" for label in labels))
    for row in runs[0][ours]:
        ratios = [ratio(runs, row, field, ours, other) for field in (0, 1) for other in theirs]
        print(f"{row:<30}" + "".join(f"{'-' if each is None else format(each, '.2f'):>16}" for each in ratios))
