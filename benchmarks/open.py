"""The cost of opening a store with histories of several lengths, of the import, and of starting the command line."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages, timed, timed_async


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    return [await _store(options), *await _processes(options), *await _reading(options)]


async def _store(options: Options) -> Line:
    few, many = 10, options.count(100_000, 200)
    for length in (few, many):
        async with flue_py.open(options.directory / f"store-{length}.db", durability="normal") as store:
            await fill(await store.create_session(key="long"), make_messages(1000), length)

    async def opened(length: int) -> Samples:
        samples = []
        for _ in range(options.count(20, 2)):
            opening = flue_py.open(options.directory / f"store-{length}.db")
            samples.append(await timed_async(opening.__aenter__))
            await opening.__aexit__(None, None, None)
        return samples

    long, short = await in_rounds(options.rounds, lambda: opened(many), lambda: opened(few))
    what = f"open a store of {many:,} entries (raw: one of {few})"
    return Line.of_latencies(what, "ms", long, short, Goal(1.5, to=f"at {few}"))


async def _processes(options: Options) -> list[Line]:
    found = Path(sys.executable).with_name("flue-py")
    script = str(found) if found.exists() else shutil.which("flue-py")
    help_ = [script, "--help"] if script else None

    def times(command: list[str]) -> Samples:
        return [
            timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(options.count(10, 1))
        ]

    async def bare() -> Samples:
        return times([sys.executable, "-c", "pass"])

    async def package() -> Samples:
        return times([sys.executable, "-c", "import flue_py"])

    async def surface() -> Samples:
        return times([sys.executable, "-c", "import flue_py; flue_py.open"])

    async def overview() -> Samples:
        return times(help_) if help_ else [0.0]

    nothing, imported, ready, answered = await in_rounds(options.rounds, bare, package, surface, overview)
    what = "flue-py --help, whole process"
    return [
        Line.of_latencies("import flue_py, whole process (raw: python -c pass)", "ms", imported, nothing),
        Line.of_latencies("import flue_py and touch flue_py.open", "ms", ready, nothing),
        Line.of_latencies(what, "ms", answered, nothing, Goal(150, of="value"))
        if help_
        else Line.skipped(what, "flue-py is not installed"),
    ]


READING = (
    *(["sessions"], ["show", "read"], ["usage", "read"], ["log", "read"], ["show", "read", "--history"]),
    *(["tree", "read"], ["show", "read", "--path"], ["context", "read"]),
)
COUNTING = (["tree", "read", "--count"],)
"""Commands that read; and one that counts tokens, which brings the vocabulary of a tokenizer."""


async def _reading(options: Options) -> list[Line]:
    """Return the lines for reading commands: the CPU time of a whole process, beside that of two imports."""
    database = str(options.directory / "listed.db")
    async with flue_py.open(database) as store:
        for number in range(30):
            session = await store.create_session(title=f"Session {number}", key=None if number else "read")
            await session.append_messages(make_messages(20))

    main = "from flue_py.cli import main; main(prog_name='flue-py')"
    commands = [
        ["import click, rich.console"],
        *([main, "--db", database, *command] for command in (*READING, *COUNTING)),
    ]
    # Modules are compiled, as they are where they were installed: once, and beside the databases.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(options.directory / "compiled")
    for each in commands:
        _cpu([sys.executable, "-c", *each], env)
    # One after the other, and again: what else the machine does slows all of them.
    samples: list[list[Samples]] = [[] for _ in commands]
    for _ in range(options.rounds):
        taken = [[_cpu([sys.executable, "-c", *each], env) for each in commands] for _ in range(options.count(15, 1))]
        for rounds, times in zip(samples, zip(*taken, strict=True), strict=True):
            rounds.append(list(times))
    needed, *read = samples
    return [
        Line.of_latencies(
            f"flue-py {' '.join(word for word in command if word != 'read')}, CPU (raw: import click, rich.console)",
            "ms",
            times,
            needed,
            Goal(2.5, to="the imports") if command in READING else None,
        )
        for command, times in zip((*READING, *COUNTING), read, strict=True)
    ]


def _cpu(command: list[str], env: dict[str, str]) -> float:
    """Return how much CPU time a process takes, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(measure)
