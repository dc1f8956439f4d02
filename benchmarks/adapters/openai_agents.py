"""Compare `FlueSession` with the SQLite sessions of the OpenAI Agents SDK.

    python -m benchmarks.adapters.openai_agents [--short] [--rounds N]

Each round runs the same work on all of them, in an order that turns: turns of four items, one transaction each. Then an
object that has read nothing yet reads all items, all of them again, and the last 20. Then many sessions are listed, for
which the SDK has no call, so that its table is asked. CPU is that of the whole process. A ratio is taken inside a round
and then the median; below 1 is less than the SDK needs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

import flue_py
from flue_py.adapters.openai_agents import FlueSession

Open = Callable[[str, Path], Any]
OPEN: dict[str, Open] = {
    "SQLiteSession": SQLiteSession,
    "AdvancedSQLiteSession": lambda name, path: AdvancedSQLiteSession(
        session_id=name, db_path=path, create_tables=True
    ),
    "FlueSession": FlueSession,
}
OURS = "FlueSession"

WORDS = "the build fails because test collection imports a module that is missing on this runner so we pin it and run "


class Cost(NamedTuple):
    """What one piece of work took: seconds of CPU, and on the clock."""

    cpu: float
    wall: float


async def cost_of(work: Callable[[], Awaitable[object]], times: int = 1) -> Cost:
    cpu, wall = process_time(), perf_counter()
    for _ in range(times):
        await work()
    return Cost((process_time() - cpu) / times, (perf_counter() - wall) / times)


def turn(number: int) -> list[Any]:
    """Return a turn of an agent, as the SDK stores it: a request, a call, what the tool printed (4 KB), an answer."""
    text = (WORDS * 8)[number % 40 : number % 40 + 500]
    lines = "".join(f"{number * 31 + n}: {WORDS[n % 20 : n % 20 + 60]}\n" for n in range(60))
    said = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    call = {"type": "function_call", "id": f"fc_{number:032x}", "call_id": f"call_{number}", "name": "read"}
    return [
        {"role": "user", "content": f"{number}: {text}"},
        {**call, "arguments": f'{{"path":"src/module_{number}.py"}}', "status": "completed"},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": lines},
        {"id": f"msg_{number:032x}", "type": "message", "role": "assistant", "status": "completed", "content": [said]},
    ]


async def measured(name: str, folder: Path, turns: int, sessions: int) -> dict[str, Cost]:
    path = folder / f"{name}.db"
    found = {}
    writer = OPEN[name]("one", path)
    await writer.add_items(turn(0))
    numbers = iter(range(1, turns))
    found["append a turn"] = await cost_of(lambda: writer.add_items(turn(next(numbers))), turns - 1)
    writer.close()
    found["file, bytes"] = size_of(path)
    reader = OPEN[name]("one", path)
    await reader.get_items(limit=1)
    found[f"load {4 * turns} items"] = await cost_of(reader.get_items)
    found["load them again"] = await cost_of(reader.get_items, 5)
    reader.close()
    for limit in (20,):
        fresh = OPEN[name]("one", path)
        await fresh.get_items(limit=1)
        found[f"last {limit}"] = await cost_of(lambda at=limit, of=fresh: of.get_items(limit=at), 20)
        fresh.close()
    for number in range(sessions):
        other = OPEN[name](f"session {number}", path)
        await other.add_items(turn(number))
        other.close()
    found[f"list 20 of {sessions}"] = await listed(name, path)
    return found


def size_of(path: Path) -> Cost:
    """Return the bytes of a database, its log included, in the place of both figures."""
    size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    return Cost(size, size)


async def listed(name: str, path: Path) -> Cost:
    if name == OURS:
        async with flue_py.open(path, threads=False) as store:
            return await cost_of(lambda: store.list_sessions(limit=20), 10)
    query = "SELECT session_id, created_at, updated_at FROM agent_sessions ORDER BY updated_at DESC LIMIT 20"
    with closing(sqlite3.connect(path)) as connection:

        async def ask() -> object:
            return connection.execute(query).fetchall()

        return await cost_of(ask, 10)


async def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="prove that it runs, and measure nothing")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    turns, sessions, rounds = (5, 3, 1) if options.short else (250, 200, options.rounds)
    names = list(OPEN)
    runs: list[dict[str, dict[str, Cost]]] = []
    for number in range(rounds):
        order = names[number % len(names) :] + names[: number % len(names)]
        with TemporaryDirectory() as folder:
            runs.append({name: await measured(name, Path(folder), turns, sessions) for name in order})
    print(f"FlueSession beside          {'CPU: SQLite  Advanced':>24}{'wall: SQLite  Advanced':>26}")
    for row in runs[0][OURS]:
        ratios = [
            median(run[OURS][row][field] / max(run[theirs][row][field], 1e-9) for run in runs)
            for field in (0, 1)
            for theirs in names[:2]
        ]
        print(f"{row:<28}" + "".join(f"{ratio:>12.2f}" for ratio in ratios))


if __name__ == "__main__":
    asyncio.run(main())
