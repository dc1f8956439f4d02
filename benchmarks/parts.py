"""Where the processor time of an append goes: of one of a hundred at once, and of a lone one by the twin.

Run with ``python -m benchmarks.parts [ROUNDS]``. The whole is what the process takes, all threads, user and system.
Each part is measured alone: the check and the encoding of messages, the placing of entries against a transaction that
writes nothing, and the statements of the same appends, recorded and executed anew in plain ``sqlite3``, which is the
least that this schema can cost through Python. The rest is the way there and back: calls, futures, threads, looks at
the files, and what the parts take longer in the whole, where they find colder caches; most of all after an fsync.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time, time_ns
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import flue_py
import flue_py.sync
from benchmarks.measuring import Message, body, make_messages, settle
from benchmarks.raw import Raw
from flue_py.core.sessions import STORED
from flue_py.db import ops
from flue_py.db.runner import Sources, written
from flue_py.db.sqlite.file import SqliteTransaction, connect
from flue_py.sessions.write import incoming_message

Durability: TypeAlias = Literal["full", "normal"]
Executed: TypeAlias = tuple[str, Any]
Parts: TypeAlias = dict[str, float]
"""Microseconds of an append, by what takes them."""

SESSIONS, EACH, LONE = 100, 30, 500
SOURCES = Sources(lambda: time_ns() // 1000, lambda: uuid4().hex[:16], lambda: uuid4().hex, draws_entry_ids=True)


class Placing(SqliteTransaction):
    """A transaction that executes nothing."""

    def insert(self, *_: object) -> None:
        """Write nothing."""

    def run(self, *_: object, **__: object) -> int:
        """Write nothing."""
        return 1


@contextmanager
def recorded() -> Iterator[list[Executed]]:
    """Return a list that gets every statement that writes, with its parameters, until the end."""
    executed: list[Executed] = []
    insert, run = SqliteTransaction.insert, SqliteTransaction.run

    def recording_insert(self: SqliteTransaction, statement: Any, rows: Sequence[Any]) -> None:
        executed.extend((statement.positional, row) for row in rows)
        insert(self, statement, rows)

    def recording_run(self: SqliteTransaction, statement: Any, /, **parameters: object) -> int:
        executed.append((statement.positional, statement.in_order(parameters)))
        return run(self, statement, **parameters)

    SqliteTransaction.insert, SqliteTransaction.run = recording_insert, recording_run  # type: ignore[assignment, method-assign]
    try:
        yield executed
    finally:
        SqliteTransaction.insert, SqliteTransaction.run = insert, run  # type: ignore[method-assign]


def parts_of(folder: Path, messages: Sequence[Message], group: int, durability: Durability) -> Parts:
    """Return the parts of appends to a store, which are committed in groups of this many."""
    append = partial(at_once if group > 1 else alone, durability)
    path = folder / "store.db"
    copies = [shutil.copy(path, folder / f"copy-{number}.db") for number in range(2)]
    count = len(messages) * (SESSIONS if group > 1 else 1)
    whole = append(path)
    with recorded() as executed:
        append(Path(copies[0]))
    size = len(executed) * group // count
    transactions = [executed[at : at + size] for at in range(0, len(executed), size)]
    statements, commits = replayed(Path(copies[1]), transactions, durability)
    parts = {
        "checked and encoded": per_call(lambda message: incoming_message(message, None), messages),
        "placed": placed(Path(copies[1]), messages),
        "statements, in plain sqlite3": statements / count * 1e6,
        "BEGIN and COMMIT, in plain sqlite3": commits / count * 1e6,
    }
    return {**parts, "the rest": whole / count * 1e6 - sum(parts.values()), "together": whole / count * 1e6}


def replayed(path: Path, transactions: Sequence[Sequence[Executed]], durability: Durability) -> tuple[float, float]:
    """Return the processor seconds of statements, and of the beginnings and ends of their transactions."""
    statements = commits = 0.0
    with closing(connect(path, durability, read_only=False)) as connection:
        run = connection.execute
        settle()
        for transaction in transactions:
            begin = process_time()
            run("BEGIN IMMEDIATE")
            begun = process_time()
            for sql, parameters in transaction:
                run(sql, parameters)
            written = process_time()
            run("COMMIT")
            commits += process_time() - written + begun - begin
            statements += written - begun
    return statements, commits


def placed(path: Path, messages: Sequence[Message]) -> float:
    """Return the microseconds of placing an entry: ids, sums, the rows to be written."""
    entries = [incoming_message(message, None).entries for message in messages]
    with closing(connect(path, "full", read_only=True)) as connection:
        tx = Placing(connection, {})
        (session_id,) = connection.execute("SELECT id FROM sessions LIMIT 1").fetchone()
        plan = ops.append.plan_append
        return per_call(lambda new: written(tx, plan(tx, SOURCES, session_id, new, STORED, "raise", None)), entries)


def per_call(function: Callable[[Any], object], arguments: Sequence[object]) -> float:
    """Return the microseconds of a call, over many."""
    times = []
    for _ in range(20):
        start = process_time()
        for argument in arguments:
            function(argument)
        times.append((process_time() - start) / len(arguments) * 1e6)
    return median(times)


# -- the two ways of appending ----------------------------------------------------------------------------------------


def at_once(durability: Durability, path: Path) -> float:
    """Return the processor seconds of `EACH` appends to each session, all sessions at once."""

    messages = make_messages(EACH)

    async def append_all(session: flue_py.Session) -> None:
        for message in messages:
            await session.append_message(message)

    async def measured() -> float:
        async with flue_py.open(path, durability=durability) as store:
            sessions = [await store.open_session(str(number)) for number in range(SESSIONS)]
            settle()
            start = process_time()
            await asyncio.gather(*map(append_all, sessions))
            return process_time() - start

    return asyncio.run(measured())


def alone(durability: Durability, path: Path) -> float:
    """Return the processor seconds of `LONE` appends to one session, by the blocking twin."""
    with flue_py.sync.open(path, durability=durability) as store:
        session = store.open_session("0")
        messages = make_messages(LONE)
        settle()
        start = process_time()
        for message in messages:
            session.append_message(message)
        return process_time() - start


def of_raw(path: Path, sessions: int, messages: Sequence[Message], durability: Durability) -> float:
    """Return the microseconds of an append to the floor, which commits each of them."""
    raw = Raw(path, durability, sessions)
    bodies = [body(message) for message in messages]
    settle()
    start = process_time()
    for text in bodies:
        for session in range(sessions):
            raw.append(text, session)
    taken = process_time() - start
    raw.close()
    return taken / len(bodies) / sessions * 1e6


def measured(group: int, durability: Durability) -> Parts:
    """Return the parts of an append in groups of this many, of a store that has been in use, and what ``raw`` takes."""
    messages = make_messages(EACH if group > 1 else LONE)
    with TemporaryDirectory(prefix="flue-py-benchmark-") as folder:
        with flue_py.sync.open(Path(folder) / "store.db", durability="normal") as store:
            for number in range(SESSIONS):
                store.open_session(str(number), mode="get_or_create").append_messages(make_messages(20))
        parts = parts_of(Path(folder), messages, group, durability)
        return {**parts, "`raw`": of_raw(Path(folder) / "raw.db", group, messages, durability)}


WAYS: dict[str, tuple[int, Durability]] = {
    f"{SESSIONS} at once, fsync": (SESSIONS, "full"),
    f"{SESSIONS} at once": (SESSIONS, "normal"),
    "alone, fsync": (1, "full"),
    "alone": (1, "normal"),
}


def main() -> None:
    """Print a table: the medians of some rounds, in microseconds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found = [[measured(*way) for way in WAYS.values()] for _ in range(rounds)]
    print(f"| CPU time of an append, us | {' | '.join(WAYS)} |\n| --- |{' ---: |' * len(WAYS)}")
    for name in found[0][0]:
        cells = [f"{median(parts[name] for parts in column):.1f}" for column in zip(*found, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
