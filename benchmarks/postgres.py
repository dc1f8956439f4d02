"""The cost of the operations on PostgreSQL, each beside the bare statement on asyncpg, and beside SQLite.

One server, which waits for the disk at each commit, holds both sides. The bare statement is one round trip that does
the least that could be called the same, on two tables without ids, totals, validation or encoding; its connections are
its own, one to a writer. The rows for SQLite have the same floor, so that the two can be compared.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import flue_py
from benchmarks.measuring import (
    Goal,
    Line,
    Message,
    Options,
    Samples,
    body,
    fill,
    in_rounds,
    main,
    make_messages,
    timed_async,
)
from flue_py.errors import FixTheSetup
from tests.postgres_server import PostgresServer, Setting, find_binaries

if TYPE_CHECKING:
    from asyncpg import Connection

GOAL = Goal(2.5, to="bare")
WRITERS = (1, 8, 64)
KEPT = 200
WARM_UP = 10
SETTINGS: Mapping[str, Setting] = {
    "fsync": True,
    "shared_buffers": "128MB",
    "max_connections": 200,
    "max_wal_size": "4GB",
}

SCHEMA = """
CREATE TABLE sessions (session BIGINT PRIMARY KEY, leaf BIGINT, seq BIGINT NOT NULL);
CREATE TABLE entries (session BIGINT NOT NULL, seq BIGINT NOT NULL, tokens BIGINT NOT NULL, body TEXT NOT NULL,
                      PRIMARY KEY (session, seq));
"""
APPEND = """
WITH moved AS (UPDATE sessions SET leaf = seq, seq = seq + 1 WHERE session = $1 RETURNING session, leaf)
INSERT INTO entries (session, seq, tokens, body) SELECT session, leaf, 100, $2 FROM moved"""
FILL = """
INSERT INTO entries SELECT $1, seq, 100, ($2::text[])[1 + seq % cardinality($2::text[])]
  FROM generate_series(0, $3 - 1) AS seq"""
CONTEXT = "SELECT body FROM entries WHERE session = $1 AND seq > $2 ORDER BY seq"
FORK = "INSERT INTO sessions (session, leaf, seq) VALUES ($1, $2, 0)"
WINDOW = "SELECT tokens FROM entries WHERE session = $1 AND seq IN ($2, $3)"
DELETE = "WITH gone AS (DELETE FROM entries WHERE session = $1) DELETE FROM sessions WHERE session = $1"

Side = Callable[[], Awaitable[Samples]]


@dataclass(frozen=True)
class Places:
    """Where the three sides are: the store on PostgreSQL, the bare tables on the same server, the SQLite file."""

    postgres: flue_py.Store
    sqlite: flue_py.Store
    bare: Sequence[Connection]
    beside: Connection
    """A connection to the store's database, for its upkeep."""

    async def analyze(self) -> None:
        """Have both databases know their tables, as the server would see to by itself within minutes."""
        for connection in (self.bare[0], self.beside):
            await connection.execute("ANALYZE")


async def measure(options: Options) -> list[Line]:
    """Return the lines; where there is no server or driver, one that says so."""
    if importlib.util.find_spec("asyncpg") is None:
        return [Line.skipped("PostgreSQL", "asyncpg is missing; install flue-py[postgres]")]
    try:
        find_binaries()
    except FixTheSetup:
        return [Line.skipped("PostgreSQL", "the programs of a server are missing")]
    lines = []
    with PostgresServer(SETTINGS) as server:
        async with _places(server, options) as places:
            for writers in WRITERS:
                lines += await _append(options, places, writers)
            lines += await _reads(options, places)
            lines += await _delete(options, places)
    return lines


@asynccontextmanager
async def _places(server: PostgresServer, options: Options) -> AsyncIterator[Places]:
    import asyncpg

    store_url = server.create_database("store")
    server.create_database("bare")
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(flue_py.open(store_url))
        sqlite = await stack.enter_async_context(flue_py.open(options.directory / "store.db"))
        bare = []
        for _ in range(max(WRITERS)):
            bare.append(await asyncpg.connect(server.dsn("bare")))
            stack.push_async_callback(bare[-1].close)
        await bare[0].execute(SCHEMA)
        beside = await asyncpg.connect(server.dsn("store"))
        stack.push_async_callback(beside.close)
        yield Places(postgres, sqlite, bare, beside)


def _lines(what: str, results: list[list[Samples]], *, unit: Literal["us", "ms"] = "ms") -> list[Line]:
    """Return the line of PostgreSQL, which has the goal, and below it that of SQLite."""
    ours, on_sqlite, bare = results
    return [
        Line.of_latencies(f"PostgreSQL: {what}", unit, ours, bare, GOAL),
        Line.of_latencies(f"- the same on SQLite: {what}", unit, on_sqlite, bare),
    ]


async def _append(options: Options, places: Places, writers: int) -> list[Line]:
    """Compare appends by so many writers at once, each to a session of its own: the time of one, waits included."""
    times = WARM_UP + options.count(max(60, 600 // writers), 5)
    messages = make_messages(times)
    bodies = [body(message) for message in messages]

    def through(store: flue_py.Store) -> Side:
        async def side() -> Samples:
            sessions = [await store.create_session() for _ in range(writers)]

            async def write(session: flue_py.Session) -> Samples:
                return [await timed_async(partial(session.append_message, message)) for message in messages]

            return _warm(await asyncio.gather(*[write(session) for session in sessions]))

        return side

    async def bare() -> Samples:
        first = await _next_session(places.bare[0])
        rows = [(first + number, None, 0) for number in range(writers)]
        await places.bare[0].copy_records_to_table("sessions", records=rows)

        async def write(connection: Connection, session: int) -> Samples:
            return [await timed_async(partial(connection.fetch, APPEND, session, text)) for text in bodies]

        return _warm(await asyncio.gather(*[write(places.bare[n], first + n) for n in range(writers)]))

    results = await in_rounds(options.rounds, through(places.postgres), through(places.sqlite), bare)
    return _lines(f"append, {writers} writer{'s' * (writers > 1)}", results, unit="us")


def _warm(samples: Sequence[Samples]) -> Samples:
    return [second for one in samples for second in one[WARM_UP:]]


async def _next_session(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT COALESCE(MAX(session), 0) + 1 FROM sessions"))


async def _reads(options: Options, places: Places) -> list[Line]:
    """Compare context, fork and usage window on a long session, of which a compaction keeps the end."""
    length = options.count(100_000, 1_000)
    times = options.count(200, 3)
    messages = make_messages(1000)
    bare = places.bare[0]
    session = await _next_session(bare)
    await bare.execute("INSERT INTO sessions VALUES ($1, $2, $2)", session, length)
    await bare.execute(FILL, session, [body(message) for message in messages], length)
    made = [await _make_long(store, messages, length) for store in (places.postgres, places.sqlite)]
    await places.analyze()

    def context(store: flue_py.Store, session_id: str) -> Side:
        async def once() -> float:
            fresh = await store.get_session(session_id)
            assert fresh is not None
            return await timed_async(fresh.build_context)

        return _repeat(once, times)

    def fork(store: flue_py.Store, session_id: str, middle: str) -> Side:
        async def once() -> float:
            long = await store.get_session(session_id)
            assert long is not None
            return await timed_async(lambda: long.fork(at=middle))

        return _repeat(once, times)

    def window(store: flue_py.Store, session_id: str, middle: str) -> Side:
        async def once() -> float:
            long = await store.get_session(session_id)
            assert long is not None
            return await timed_async(lambda: long.money.aggregate_usage_since(middle))

        return _repeat(once, times)

    def bare_statement(sql: str, *arguments: int) -> Side:
        return _repeat(lambda: timed_async(lambda: bare.fetch(sql, *arguments)), times)

    async def bare_fork() -> Samples:
        first = await _next_session(bare)
        return [await timed_async(partial(bare.fetch, FORK, first + number, length // 2)) for number in range(times)]

    stores = [(store, *ids) for store, ids in zip((places.postgres, places.sqlite), made, strict=True)]
    contexts = [context(store, session_id) for store, session_id, _ in stores]
    windows = [window(*each) for each in stores]
    forks = [fork(*each) for each in stores]
    lines = []
    for what, sides in (
        (f"context of {KEPT} out of {length:,}", [*contexts, bare_statement(CONTEXT, session, length - KEPT - 1)]),
        (f"fork at the middle of {length:,}", [*forks, bare_fork]),
        (f"usage since the middle of {length:,}", [*windows, bare_statement(WINDOW, session, length // 2, length - 1)]),
    ):
        lines += _lines(what, await in_rounds(options.rounds, *sides))
    return lines


def _repeat(once: Callable[[], Awaitable[float]], times: int) -> Side:
    async def side() -> Samples:
        return [await once() for _ in range(times)]

    return side


async def _make_long(store: flue_py.Store, messages: list[Message], length: int) -> tuple[str, str]:
    """Return the ids of a new long session, and of an entry in its middle."""
    session = await store.create_session()
    await fill(session, messages, length // 2)
    middle = session.leaf_id
    assert middle is not None
    await fill(session, messages, length - length // 2 - KEPT)
    first = (await session.append_messages(messages[:KEPT])).entry_ids[0]
    await session.append_compaction("What was done so far. " * 25, first_kept_entry_id=first, tokens_before=90_000)
    return session.id, middle


async def _delete(options: Options, places: Places) -> list[Line]:
    """Compare deleting a long session with all its entries."""
    length = options.count(10_000, 100)
    messages = make_messages(1000)
    bodies = [body(message) for message in messages]

    def through(store: flue_py.Store) -> Side:
        async def side() -> Samples:
            session = await store.create_session()
            await fill(session, messages, length)
            await places.analyze()
            return [await timed_async(lambda: store.delete_session_tree(session.id))]

        return side

    async def bare() -> Samples:
        connection = places.bare[0]
        session = await _next_session(connection)
        await connection.execute("INSERT INTO sessions VALUES ($1, $2, $2)", session, length)
        await connection.execute(FILL, session, bodies, length)
        await places.analyze()
        return [await timed_async(lambda: connection.fetch(DELETE, session))]

    results = await in_rounds(options.rounds, through(places.postgres), through(places.sqlite), bare)
    return _lines(f"delete a tree of {length:,} entries", results)


if __name__ == "__main__":
    main(measure)
