"""The measurements behind docs/decisions.md: each choice beside the alternative that was rejected, which is ``raw``."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from queue import SimpleQueue
from statistics import median

import anyio
import anyio.to_thread
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

import flue_py
from benchmarks.measuring import PROSE, Line, Options, Samples, in_rounds, main, scratch, timed, timed_async

SESSIONS, GROUP = 200, 100
Row = tuple[object, ...]


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    return [
        *await _statements(options),
        *await _paths(options),
        *_entries(options),
        *_calls(options),
        *_listings(options),
        *await _packing(options),
        *await _pictures(options),
        *await _crossings(options),
        *await _reasoning(options),
    ]


async def _beside(options: Options, ours: Callable[[], object], raw: Callable[[], object]) -> list[list[Samples]]:
    count = options.count(9, 1)

    async def sampled(work: Callable[[], object]) -> Samples:
        return [timed(work) for _ in range(count)]

    return await in_rounds(options.rounds, lambda: sampled(ours), lambda: sampled(raw))


# -- 0001 and 0002: statements and paths ------------------------------------------------------------------------------


async def _statements(options: Options) -> list[Line]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as driver:
        driver.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT)")
        driver.execute("INSERT INTO texts VALUES (1, 'x')")
        engine = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool)
        sql = "SELECT id, body FROM texts WHERE id = :id"
        clause = text(sql)
        times = range(options.count(500, 1))
        with engine.connect() as connection:
            ours, raw = await _beside(
                options,
                lambda: [driver.execute(sql, {"id": 1}).fetchone() for _ in times],
                lambda: [connection.execute(clause, {"id": 1}).first() for _ in times],
            )
        engine.dispose()
    imports = [
        [timed(lambda name=name: subprocess.run([sys.executable, "-c", f"import {name}"], check=True))]
        for name in ("sqlite3", "sqlalchemy")
    ]
    return [
        Line.of_latencies(f"{len(times)} statements by sqlite3 (raw: SQLAlchemy's text())", "us", ours, raw),
        Line.of_latencies(
            "a process that imports sqlite3 (raw: sqlalchemy)", "ms", *([samples] for samples in imports)
        ),
    ]


async def _paths(options: Options) -> list[Line]:
    count = options.count(10_000, 100)
    walk = (
        "WITH RECURSIVE path AS (SELECT * FROM entries WHERE id = :leaf UNION ALL"
        " SELECT e.* FROM path p JOIN entries e ON e.id = p.parent) "
    )
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "CREATE TABLE entries (lane INT, depth INT, id TEXT UNIQUE, parent TEXT, tokens INT, total INT, body TEXT,"
            " PRIMARY KEY (lane, depth))"
        )
        rows = ((1, n, f"{n:016x}", f"{n - 1:016x}" if n else None, 7, 7 * n + 7, "x" * 600) for n in range(count))
        database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        places = {"leaf": f"{count - 1:016x}", "middle": f"{count // 2:016x}", "last": count, "half": count // 2}

        def read(sql: str) -> Callable[[], object]:
            return lambda: database.execute(sql, places).fetchall()

        path = await _beside(
            options,
            read("SELECT id, body FROM entries WHERE lane = 1 AND depth <= :last"),
            read(walk + "SELECT id, body FROM path"),
        )
        window = await _beside(
            options,
            read("SELECT b.total - a.total FROM entries a, entries b WHERE a.id = :middle AND b.id = :leaf"),
            read(walk + "SELECT SUM(tokens) FROM path WHERE depth > :half"),
        )
    return [
        Line.of_latencies(f"a path of {count:,} as one range (raw: by parent links)", "ms", *path),
        Line.of_latencies(f"usage of {count // 2:,} by running totals (raw: by parent links)", "us", *window),
    ]


# -- 0003: pages of log -----------------------------------------------------------------------------------------------


@contextmanager
def _logged(options: Options, statements: Sequence[str]) -> Iterator[tuple[sqlite3.Connection, Callable[[], int]]]:
    """Yield a new database, and the function that returns the pages of its log and empties the log."""
    with scratch(options) as folder, closing(sqlite3.connect(folder / "pages.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        for statement in statements:
            database.execute(statement)

        def pages() -> int:
            frames = int(database.execute("PRAGMA wal_checkpoint").fetchone()[1])
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return frames

        yield database, pages


def _committed(database: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    database.execute("BEGIN")
    database.executemany(sql, rows)
    database.execute("COMMIT")


def _entries(options: Options) -> list[Line]:
    columns = "tree INT, lane INT, depth INT, id TEXT, payload TEXT, UNIQUE (id, tree)"
    shapes = {
        "a rowid and a key": f"CREATE TABLE entries ({columns}, PRIMARY KEY (tree, lane, depth))",
        "WITHOUT ROWID": f"CREATE TABLE entries ({columns}, PRIMARY KEY (tree, lane, depth)) WITHOUT ROWID",
        "the rowid is the key": f"CREATE TABLE entries (place INTEGER PRIMARY KEY, {columns})",
    }
    history = options.count(100, 2)
    lines = []
    for shape, table in shapes.items():
        chance = random.Random(27)
        with _logged(options, [table]) as (database, pages):

            def rows(depth: int, keyed: bool = "place" in table, chance: random.Random = chance) -> list[Row]:
                keys = [(tree << 32 | depth,) if keyed else () for tree in range(SESSIONS)]
                return [(*key, n, 1, depth, chance.randbytes(8).hex(), "x" * 740) for n, key in enumerate(keys)]

            sql = f"INSERT INTO entries VALUES ({', '.join('?' * len(rows(0)[0]))})"
            for depth in range(history):
                _committed(database, sql, rows(depth))
            pages()
            for row in rows(history):
                _committed(database, sql, [row])
            alone = pages() / SESSIONS
            added = rows(history + 1)
            for start in range(0, SESSIONS, GROUP):
                _committed(database, sql, added[start : start + GROUP])
            lines.append(Line.of_figures(f"entries, {shape}: alone", "pages", [alone]))
            lines.append(Line.of_figures(f"entries, {shape}: in a group of {GROUP}", "pages", [pages() / SESSIONS]))
    return lines


def _calls(options: Options) -> list[Line]:
    columns = "scope TEXT, provider TEXT, call_id TEXT, session_key INT, entry_id TEXT, model TEXT, cost INT"
    by_session = "CREATE INDEX by_session ON ledger (session_key)"
    unique = "CREATE UNIQUE INDEX by_name ON ledger (scope, provider, call_id) WHERE call_id IS NOT NULL"
    shapes = {
        "by name": [
            f"CREATE TABLE ledger ({columns}, PRIMARY KEY (scope, provider, call_id)) WITHOUT ROWID",
            by_session,
        ],
        "in order of arrival": [f"CREATE TABLE ledger ({columns}, number INTEGER PRIMARY KEY)", by_session, unique],
        "by session": [
            f"CREATE TABLE ledger ({columns}, number INT, PRIMARY KEY (session_key, number)) WITHOUT ROWID",
            unique,
        ],
    }
    history = options.count(50, 2)
    lines = []
    for shape, statements in shapes.items():
        chance = random.Random(24)
        with _logged(options, statements) as (database, pages):

            def call(session: int, number: int, shape: str = shape, chance: random.Random = chance) -> Row:
                name = chance.randbytes(8).hex()
                key = name if shape == "by name" else None
                row = ("", "anthropic", key, session, name, "claude-sonnet-4-5", 6 * 10**10)
                return row if shape == "by name" else (*row, number if shape == "by session" else None)

            sql = f"INSERT INTO ledger VALUES ({', '.join('?' * len(call(0, 0)))})"
            for number in range(history):
                _committed(database, sql, [call(session, number) for session in range(SESSIONS)])
            pages()
            _committed(database, sql, [call(session, history) for session in range(GROUP)])
            lines.append(Line.of_figures(f"calls, {shape}: in a group of {GROUP}", "pages", [pages() / GROUP]))
    return lines


def _listings(options: Options) -> list[Line]:
    table = "CREATE TABLE sessions (session_key INTEGER PRIMARY KEY, active_at INT, active_slot INT, row TEXT)"
    slot = "UPDATE sessions SET active_slot = :at >> 28 WHERE session_key = :key AND active_slot <> :at >> 28"
    update = "UPDATE sessions SET active_at = :at WHERE session_key = :key"
    both = "UPDATE sessions SET active_at = :at, active_slot = :at >> 28 WHERE session_key = :key"
    shapes = {
        "by time": ("active_at", [update]),
        "by slot, in the same update": ("active_slot", [both]),
        "by slot, if it changes": ("active_slot", [update, slot]),
    }
    seconds = options.count(30, 2)
    lines = []
    for shape, (column, updates) in shapes.items():
        with _logged(options, [table, f"CREATE INDEX listing ON sessions ({column}, session_key)"]) as (
            database,
            pages,
        ):
            sessions = [(key, key * 5_000, key * 5_000 >> 28, "x" * 300) for key in range(1, SESSIONS + 1)]
            database.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?)", sessions)
            pages()
            for second in range(1, seconds + 1):
                for key, at, *_ in sessions:
                    database.execute("BEGIN")
                    for sql in updates:
                        database.execute(sql, {"at": at + second * 1_000_000, "key": key})
                    database.execute("COMMIT")
            lines.append(Line.of_figures(f"a listing {shape}", "pages", [pages() / SESSIONS / seconds]))
    return lines


# -- 0004: payloads ---------------------------------------------------------------------------------------------------


async def _packing(options: Options) -> list[Line]:
    words = [f"w{n:04x}" for n in range(3000)]
    samples = {
        "tool output": "".join(
            f'{{"line": {n}, "file": "src/shop/upload_{n * 7919 % 997}.py", "took": {n * 31 % 977}}}\n'
            for n in range(3000)
        ),
        "prose": " ".join(random.Random(7).choices(words, k=16_000)),
    }
    lines = []
    for name, whole in samples.items():
        data = whole[:20_000].encode()
        taken = await _beside(
            options, lambda data=data: zlib.compress(data, 4), lambda data=data: zlib.compress(data, 6)
        )
        sizes = [[float(len(zlib.compress(data, level)))] for level in (4, 6)]
        lines.append(Line.of_latencies(f"pack 20,000 bytes of {name}, level 4 (raw: level 6)", "us", *taken))
        lines.append(Line.of_figures(f"20,000 bytes of {name}, packed (raw: level 6)", "bytes", *sizes))
    return lines


async def _pictures(options: Options) -> list[Line]:
    picture = base64.b64encode(random.Random(25).randbytes(options.count(3_000_000, 30_000))).decode()
    messages = [{"role": "user", "content": [{"type": "image", "data": picture}], "n": n} for n in range(3)]
    packed = [sum(len(zlib.compress(json.dumps(message).encode(), 4)) for message in messages) / 1024]
    async with flue_py.open(options.directory / "pictures.db", durability="normal") as store:
        await (await store.create_session()).append_messages(messages)
    with closing(sqlite3.connect(options.directory / "pictures.db")) as database:
        stored = [database.execute("SELECT SUM(length(data)) FROM blobs").fetchone()[0] / 1024]
    return [Line.of_figures("one picture in three messages (raw: packed with its message)", "KiB", stored, packed)]


# -- 0008: threads and event loops ------------------------------------------------------------------------------------


async def _crossings(options: Options) -> list[Line]:
    loop = asyncio.get_running_loop()
    queue: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def serve() -> None:
        while (future := queue.get()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    async def by_queue() -> None:
        future = loop.create_future()
        queue.put(future)
        await future

    async def by_future() -> None:
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future

    async def by_event() -> None:
        event = anyio.Event()
        loop.call_soon(event.set)
        await event.wait()

    lock, general_lock = asyncio.Lock(), anyio.Lock()

    async def locked(lock: asyncio.Lock | anyio.Lock) -> None:
        async with lock:
            pass

    pairs: dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]] = {
        "a crossing by SimpleQueue (raw: asyncio.to_thread)": (by_queue, lambda: asyncio.to_thread(int)),
        "a crossing by SimpleQueue (raw: anyio.to_thread)": (by_queue, lambda: anyio.to_thread.run_sync(int)),
        "a future of asyncio (raw: an event of anyio)": (by_future, by_event),
        "a free lock of asyncio (raw: of anyio)": (lambda: locked(lock), lambda: locked(general_lock)),
    }
    count = options.count(1_000, 2)

    async def sampled(work: Callable[[], Awaitable[object]]) -> Samples:
        return [await timed_async(work) for _ in range(count)]

    thread = threading.Thread(target=serve)
    thread.start()
    lines = []
    for name, (ours, raw) in pairs.items():
        taken = await in_rounds(options.rounds, lambda ours=ours: sampled(ours), lambda raw=raw: sampled(raw))
        lines.append(Line.of_latencies(name, "us", *taken))
    queue.put(None)
    thread.join()
    return lines


# -- 0011: reasoning --------------------------------------------------------------------------------------------------


async def _reasoning(options: Options) -> list[Line]:
    count = options.count(500, 5)
    async with flue_py.open(":memory:") as store:
        sessions = [await store.create_session() for _ in range(2)]
        for session, checked in zip(sessions, (True, False), strict=True):
            for number in range(count):
                await session.append_message({"role": "user", "content": f"Question {number}. {PROSE}"})
                digest = (await session.request("anthropic")).prefix_digest if checked else None
                thinking = {"type": "thinking", "thinking": PROSE, "thinkingSignature": f"signature {number} " * 20}
                content = [thinking, {"type": "text", "text": PROSE}]
                answer = {"role": "assistant", "provider": "anthropic", "content": content}
                await session.append_message(answer, produced_under=digest)

        async def sampled(session: flue_py.Session) -> Samples:
            taken = [await timed_async(lambda: session.request("anthropic")) for _ in range(options.count(20, 1))]
            return [median(taken)]

        taken = await in_rounds(options.rounds, *(lambda s=session: sampled(s) for session in sessions))
    return [Line.of_latencies(f"a request with {count} blocks of checked reasoning (raw: unchecked)", "ms", *taken)]


if __name__ == "__main__":
    main(measure)
