"""What the benchmarks share: options, messages of 600 bytes, rounds, medians, and the table.

A round measures the engine and its floor one after the other, in an order that turns with each round. A figure is
the median of the rounds, a ratio is taken inside a round and then the median. Both sides run in one process. Objects
made before the clock starts are excluded from garbage collection.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import random
import sqlite3
import sys
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, gettempdir
from time import perf_counter
from typing import Any, Literal, TypeAlias

from flue_py import Session

Message: TypeAlias = dict[str, Any]
Samples: TypeAlias = list[float]
"""Seconds, one per operation."""

BODY_BYTES = 600
BATCH = 1000
PACKAGES = ("flue-py", "SQLAlchemy", "pydantic", "pydantic-core")


@dataclass(frozen=True)
class Options:
    """How to run. ``short`` proves that a benchmark runs and measures nothing; ``long`` adds the slow rows."""

    short: bool = False
    long: bool = False
    rounds: int = 5
    directory: Path = Path()

    def count(self, full: int, short: int) -> int:
        """Return the number that belongs to the form that runs."""
        return short if self.short else full


# -- what is stored ---------------------------------------------------------------------------------------------------

PROSE = (
    "the build fails because test collection imports a module that is missing on this runner so we pin it and run "
    "again with verbose output then read the first traceback check the lock file compare versions patch parser.py"
)


def make_messages(count: int) -> list[Message]:
    """Return messages of exactly `BODY_BYTES` bytes of compact JSON: user, and assistant with usage, in turn."""
    chance = random.Random(7)
    return [_padded(_assistant(number, chance) if number % 2 else _user(number), chance) for number in range(count)]


def body(message: Message) -> str:
    """Return a message as compact JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _user(number: int) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": ""}], "timestamp": 1767607200000 + number}


def _assistant(number: int, chance: random.Random) -> Message:
    prompt, cached, output = chance.randrange(2_000), chance.randrange(90_000), chance.randrange(20, 900)
    cost = {"input": prompt * 3e-6, "output": output * 15e-6, "cacheRead": cached * 3e-7, "cacheWrite": 0}
    cost = {name: round(amount, 7) for name, amount in cost.items()}
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": ""}],
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "usage": {
            "input": prompt,
            "output": output,
            "cacheRead": cached,
            "cacheWrite": 0,
            "totalTokens": prompt + cached + output,
            "cost": {**cost, "total": round(sum(cost.values()), 7)},
        },
        "stopReason": "stop",
        "timestamp": 1767607200000 + number,
    }


def _padded(message: Message, chance: random.Random) -> Message:
    room = BODY_BYTES - len(body(message))
    words, text = PROSE.split(), ""
    while len(text) < room:
        text += chance.choice(words) + " "
    message["content"][0]["text"] = text[:room]
    return message


async def fill(session: Session, messages: Sequence[Message], count: int) -> None:
    """Append ``count`` messages, in turn from ``messages``, a batch at a time."""
    for start in range(0, count, BATCH):
        batch = [messages[number % len(messages)] for number in range(start, min(start + BATCH, count))]
        await session.append_messages(batch)


def database_bytes(path: Path) -> int:
    """Return the size of a database nobody has open, with its write-ahead log moved into it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


# -- how it is timed --------------------------------------------------------------------------------------------------


def settle() -> None:
    """Collect garbage, and keep what is left out of later collections."""
    gc.collect()
    gc.freeze()


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` takes. Its result is freed after the clock has stopped."""
    start = perf_counter()
    kept = work()
    seconds = perf_counter() - start
    del kept
    return seconds


async def timed_async(work: Callable[[], Awaitable[object]]) -> float:
    """Return how many seconds it takes to await ``work``. Its result is freed after the clock has stopped."""
    start = perf_counter()
    kept = await work()
    seconds = perf_counter() - start
    del kept
    return seconds


async def in_rounds(rounds: int, *sides: Callable[[], Awaitable[Samples]]) -> list[list[Samples]]:
    """Return the samples of each side, per round. The order of the sides is reversed in every other round."""
    results: list[list[Samples]] = [[] for _ in sides]
    for number in range(rounds):
        order = list(enumerate(sides))
        for which, side in order if number % 2 == 0 else reversed(order):
            settle()
            results[which].append(await side())
    return results


def percentile_99(samples: Samples) -> float:
    """Return the 99th percentile."""
    return sorted(samples)[min(len(samples) - 1, round(len(samples) * 0.99))]


# -- what is reported -------------------------------------------------------------------------------------------------

Unit: TypeAlias = Literal["us", "ms", "/s", "KiB", "MiB", "bytes", "pages"]
FACTORS: dict[str, float] = {"us": 1e6, "ms": 1e3}


@dataclass(frozen=True)
class Goal:
    """What to reach: a limit of the ratio (to the floor, or to what ``to`` names), or of the figure itself."""

    limit: float
    of: Literal["ratio", "value"] = "ratio"
    at_least: bool = False
    to: str = "raw"

    def text(self, unit: str) -> str:
        """Return the goal in words."""
        bound = f"{self.limit:g} x {self.to}" if self.of == "ratio" else f"{self.limit:g} {unit}"
        return f"at {'least' if self.at_least else 'most'} {bound}"

    def reached(self, value: float, ratio: float | None) -> bool:
        """Return whether the goal is reached."""
        measured = value if self.of == "value" or ratio is None else ratio
        return measured >= self.limit if self.at_least else measured <= self.limit


@dataclass(frozen=True)
class Line:
    """One line of the table, in its unit. ``low`` and ``high`` are the least and greatest ratio of a round."""

    what: str
    unit: str
    value: float
    p99: float | None = None
    raw: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    goal: str = ""
    reached: bool | None = None

    @classmethod
    def of_latencies(
        cls,
        what: str,
        unit: Literal["us", "ms"],
        ours: list[Samples],
        raw: list[Samples] | None = None,
        goal: Goal | None = None,
    ) -> Line:
        """Return the line for samples in seconds, per round: the median of each round, then of the rounds."""
        factor = FACTORS[unit]
        values = [median(samples) * factor for samples in ours]
        floor = None if raw is None else [median(samples) * factor for samples in raw]
        many = min(len(samples) for samples in ours) >= 50
        p99 = median(percentile_99(samples) for samples in ours) * factor if many else None
        return cls.of_figures(what, unit, values, floor, goal, p99=p99)

    @classmethod
    def of_figures(
        cls,
        what: str,
        unit: str,
        ours: Sequence[float],
        raw: Sequence[float] | None = None,
        goal: Goal | None = None,
        *,
        p99: float | None = None,
    ) -> Line:
        """Return the line for one figure per round, in ``unit``."""
        value = median(ours)
        ratios = [] if raw is None else [mine / floor for mine, floor in zip(ours, raw, strict=True)]
        ratio = median(ratios) if ratios else None
        return cls(
            what,
            unit,
            value,
            p99,
            None if raw is None else median(raw),
            ratio,
            min(ratios, default=None),
            max(ratios, default=None),
            "" if goal is None else goal.text(unit),
            None if goal is None else goal.reached(value, ratio),
        )

    @classmethod
    def skipped(cls, what: str, reason: str) -> Line:
        """Return the line for what could not be measured here."""
        return cls(f"{what}: skipped, {reason}", "", 0.0)

    def cells(self, *, judged: bool) -> list[str]:
        """Return the cells of the table's row."""
        if not self.unit:
            return [self.what, *[""] * (len(HEADINGS) - 1)]
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        if self.low is not None and self.high is not None and self.high - self.low >= 0.005:
            ratio += f" ({self.low:.2f} to {self.high:.2f})"
        verdict = "" if self.reached is None else ("yes" if self.reached else "NO") if judged else "not judged"
        return [
            self.what,
            f"{_number(self.value)} {self.unit}",
            "" if self.p99 is None else f"{_number(self.p99)} {self.unit}",
            "" if self.raw is None else f"{_number(self.raw)} {self.unit}",
            ratio,
            self.goal,
            verdict,
        ]


HEADINGS = ["what", "flue_py", "p99", "raw", "ratio (over rounds)", "goal", "reached"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def table(lines: Sequence[Line], *, judged: bool) -> str:
    """Return the lines as a Markdown table."""
    rows = [HEADINGS, *[line.cells(judged=judged) for line in lines]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    left = {0, 5, 6}

    def printed(row: list[str]) -> str:
        cells = [
            cell.ljust(width) if n in left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * width if n in left else "-" * (width - 1) + ":" for n, width in enumerate(widths)]
    return "\n".join([printed(rows[0]), printed(rule), *[printed(row) for row in rows[1:]]])


def header(options: Options) -> str:
    """Return the machine, the versions and the form that runs."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    form = "short form: it proves that the benchmarks run, its figures mean nothing" if options.short else "full form"
    return (
        f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}\n"
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {packages}\n"
        f"{form}, medians of {options.rounds} rounds, databases in {options.directory}"
    )


# -- the command line -------------------------------------------------------------------------------------------------

Benchmark: TypeAlias = Callable[[Options], Awaitable[list[Line]]]


def parser(description: str | None) -> ArgumentParser:
    """Return the options that every benchmark takes."""
    arguments = ArgumentParser(description=description)
    arguments.add_argument("--short", action="store_true", help="a tiny form that only proves that it runs")
    arguments.add_argument("--long", action="store_true", help="add what takes minutes, such as 1,000,000 entries")
    arguments.add_argument("--rounds", type=int, help="how many rounds (default 5)")
    arguments.add_argument("--dir", type=Path, default=Path(gettempdir()), help="where the databases go")
    return arguments


def main(benchmark: Benchmark) -> None:
    """Run one benchmark on its own, and print its table, or with ``--json`` its lines as JSON."""
    arguments = parser(sys.modules[benchmark.__module__].__doc__)
    arguments.add_argument("--json", action="store_true", help="print JSON in place of the table")
    given = arguments.parse_args()
    rounds = given.rounds or (1 if given.short else 5)
    with TemporaryDirectory(prefix="flue-py-benchmark-", dir=given.dir) as folder:
        options = Options(given.short, given.long, rounds, Path(folder))
        lines = asyncio.run(_run(benchmark, options))
    if given.json:
        print(json.dumps([asdict(line) for line in lines]))
    else:
        print(header(options))
        print(table(lines, judged=not given.short))


async def _run(benchmark: Benchmark, options: Options) -> list[Line]:
    return await benchmark(options)


@contextmanager
def scratch(options: Options) -> Iterator[Path]:
    """Make a folder for one round, and remove it afterwards."""
    with TemporaryDirectory(dir=options.directory) as folder:
        yield Path(folder)
