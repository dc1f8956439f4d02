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
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

import flue_py
from benchmarks.adapters.beside import Cost, cost_of, in_turns, parser_of, print_ratios, size_of
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
    fresh = OPEN[name]("one", path)
    await fresh.get_items(limit=1)
    found["last 20"] = await cost_of(lambda: fresh.get_items(limit=20), 20)
    fresh.close()
    for number in range(sessions):
        other = OPEN[name](f"session {number}", path)
        await other.add_items(turn(number))
        other.close()
    found[f"list 20 of {sessions}"] = await listed(name, path)
    return found


async def listed(name: str, path: Path) -> Cost:
    if name == OURS:
        async with flue_py.open(path, threads=False) as store:
            return await cost_of(lambda: store.list_sessions(limit=20), 10)
    query = "SELECT session_id, created_at, updated_at FROM agent_sessions ORDER BY updated_at DESC LIMIT 20"
    with closing(sqlite3.connect(path)) as connection:

        async def ask() -> object:
            return connection.execute(query).fetchall()

        return await cost_of(ask, 10)


def main() -> None:
    options = parser_of(__doc__).parse_args()
    turns, sessions, rounds = (5, 3, 1) if options.short else (250, 200, options.rounds)
    runs = in_turns([*OPEN], rounds, lambda name, folder: asyncio.run(measured(name, folder, turns, sessions)))
    print_ratios(runs, OURS, {"SQLiteSession": "SQLite", "AdvancedSQLiteSession": "Advanced"})


if __name__ == "__main__":
    main()
