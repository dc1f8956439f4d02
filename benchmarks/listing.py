"""The cost of a page of the listing among 100,000 sessions, in every order, and of its indexes for an append.

The floor of a page is the plain query, which reads and sorts whole rows. The floor of an append is the same append in
a database without the listing's indexes, but for the one on the time of last activity.
"""

from __future__ import annotations

import importlib.util
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import flue_py
from benchmarks.measuring import (
    PROSE,
    Goal,
    Line,
    Options,
    Samples,
    in_rounds,
    main,
    make_messages,
    scratch,
    timed,
    timed_async,
)
from flue_py.core.chain import NO_PARENT, UNKEYED
from flue_py.core.ledger import SessionRow
from flue_py.core.sessions import ORDERS, SessionOrder, slot_of
from flue_py.db.ops.seals import head_of_row
from flue_py.errors import FixTheSetup
from tests.postgres_server import PostgresServer, find_binaries

COLUMNS = ("tree_id", *SessionRow._fields)
SORTED_BY = {
    "activity": "active_at", "updated": "updated_at", "created": "created_at",
    "title": "COALESCE(title, auto_title, '')",
    "messages": "message_count", "entries": "entry_count", "tokens": "spent_tokens", "cost": "spent_cost",
}  # fmt: skip
PAGE = 50
PLAIN = "SELECT * FROM sessions ORDER BY {} DESC, session_key DESC LIMIT 50"
BEFORE = (
    "DROP INDEX ix_sessions_active_slot",
    "DROP INDEX ix_sessions_scope_active_slot",
    "DROP INDEX ix_sessions_created_at",
    "DROP INDEX ix_sessions_title",
    "CREATE INDEX ix_sessions_active_at ON sessions (active_at, session_key)",
)


def make_rows(count: int) -> Iterator[tuple[object, ...]]:
    """Yield rows of sessions: of a few messages mostly, of thousands now and then, a third with a title."""
    chance, words = random.Random(7), PROSE.split()
    for key in range(1, count + 1):
        messages = min(5_000, int(chance.lognormvariate(3, 1.2)) + 1)
        at = 1_700_000_000_000_000 + key * 1_000_000
        row = SessionRow(
            key, f"{chance.getrandbits(128):032x}", chance.choice(("", "user-1", "user-2")), None,
            " ".join(chance.choices(words, k=4)) if key % 3 == 0 else None, chance.choice(("root", "root", "task")), 0,
            None, None, None, messages, f'{{"model": "large-1", "user": "{key}", "labels": ["a", "b"]}}',
            f"/home/someone/project-{key % 50}", None, None, None, messages + 1, messages,
            " ".join(chance.choices(words, k=14))[:120], messages * 4_000 + chance.randrange(4_000),
            messages * 10**10 + chance.randrange(10**10), at, changed := at + chance.randrange(10**11),
            " ".join(chance.choices(words, k=5)) if key % 2 else None, 0, changed, 0, slot_of(changed),
        )  # fmt: skip
        yield (key, *row._replace(head=head_of_row(UNKEYED, key, row, NO_PARENT)))


def fill_file(path: Path, count: int) -> None:
    """Add so many sessions to a store that was made and is closed."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    with closing(sqlite3.connect(path)) as connection:
        statement = f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * len(COLUMNS))})"
        connection.executemany(statement, make_rows(count))
        connection.execute("UPDATE flue_store SET value = ? WHERE name = 'next_key'", (count + 1,))
        connection.commit()


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(100_000, 300)
    with scratch(options) as folder:
        path = folder / "store.db"
        async with flue_py.open(path):
            pass
        fill_file(path, count)
        async with flue_py.open(path) as store:
            with closing(sqlite3.connect(path)) as raw:
                lines = [await _on_file(options, store, raw, order, count) for order in ORDERS]
    return [*lines, await _append(options, count), *await _on_postgres(options, count)]


async def _pages(options: Options, store: flue_py.Store, order: SessionOrder) -> Samples:
    """Time first pages, and pages in the middle, each way."""
    samples = []
    for descending in (True, False):
        cursor = None
        for _ in range(options.count(8, 2)):
            page = await store.list_sessions(order_by=order, descending=descending, limit=PAGE, cursor=cursor)
            at = cursor
            samples.append(
                await timed_async(
                    lambda: store.list_sessions(order_by=order, descending=descending, limit=PAGE, cursor=at)  # noqa: B023
                )
            )
            cursor = page.next_cursor
    return samples


async def _on_file(
    options: Options, store: flue_py.Store, raw: sqlite3.Connection, order: SessionOrder, count: int
) -> Line:
    plain = PLAIN.format(SORTED_BY[order])

    async def ours() -> Samples:
        return await _pages(options, store, order)

    async def floor() -> Samples:
        return [timed(lambda: raw.execute(plain).fetchall()) for _ in range(options.count(8, 2))]

    taken, scanned = await in_rounds(options.rounds, ours, floor)
    what = f"a page of {count:,} sessions by {order}"
    goal = Goal(10, of="value") if order in ("activity", "created", "title") else None
    return Line.of_latencies(what, "ms", taken, scanned, goal)


async def _append(options: Options, count: int) -> Line:
    """Compare appends to sessions at random, with the listing's indexes and without."""
    (message,) = make_messages(1)
    chance = random.Random(3)
    with scratch(options) as folder:
        paths = [folder / "with.db", folder / "without.db"]
        for path in paths:
            async with flue_py.open(path):
                pass
            fill_file(path, count)
        with closing(sqlite3.connect(paths[1])) as connection:
            for statement in BEFORE:
                connection.execute(statement)
        async with _both(paths) as stores:
            keys = [f"{number}" for number in range(options.count(200, 5))]
            for store in stores:
                for key in keys:
                    await store.open_session(key, mode="get_or_create")

            async def into(store: flue_py.Store) -> Samples:
                chosen = chance.sample(keys, len(keys))
                sessions = [await store.open_session(key) for key in chosen]
                return [await timed_async(lambda s=session: s.append_message(message)) for session in sessions]

            taken, floor = await in_rounds(options.rounds, lambda: into(stores[0]), lambda: into(stores[1]))
    return Line.of_latencies(f"append beside {count:,} sessions, no fsync", "us", taken, floor, Goal(1.1))


@asynccontextmanager
async def _both(paths: list[Path]) -> AsyncIterator[list[flue_py.Store]]:
    first, second = (flue_py.open(path, durability="normal") for path in paths)
    async with first as one, second as two:
        yield [one, two]


async def _on_postgres(options: Options, count: int) -> list[Line]:
    if importlib.util.find_spec("asyncpg") is None:
        return [Line.skipped("PostgreSQL: the listing", "asyncpg is missing; install flue-py[postgres]")]
    try:
        find_binaries()
    except FixTheSetup:
        return [Line.skipped("PostgreSQL: the listing", "the programs of a server are missing")]
    import asyncpg

    lines = []
    with PostgresServer({"shared_buffers": "128MB"}) as server:
        url = server.create_database("store")
        async with flue_py.open(url) as store:
            raw = await asyncpg.connect(server.dsn("store"))
            await raw.copy_records_to_table("sessions", records=list(make_rows(count)), columns=COLUMNS)
            await raw.execute("VACUUM ANALYZE sessions")
            for order in ORDERS:
                plain = PLAIN.format(SORTED_BY[order])

                async def ours(order: SessionOrder = order) -> Samples:
                    return await _pages(options, store, order)

                async def floor(plain: str = plain) -> Samples:
                    return [await timed_async(lambda: raw.fetch(plain)) for _ in range(options.count(8, 2))]

                taken, scanned = await in_rounds(options.rounds, ours, floor)
                what = f"PostgreSQL: a page of {count:,} sessions by {order}"
                goal = Goal(10, of="value") if order in ("activity", "created", "title") else None
                lines.append(Line.of_latencies(what, "ms", taken, scanned, goal))
            await raw.close()
    return lines


if __name__ == "__main__":
    main(measure)
