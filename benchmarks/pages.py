"""What a store writes and stores, counted in pages and bytes: unlike times, the same in each run."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import flue_py
from benchmarks.measuring import Message, make_messages

_FRAME_HEADER, _LOG_HEADER = 24, 32


@contextmanager
def counted_log(path: Path) -> Iterator[Callable[[], int]]:
    """Yield what tells how many pages were written to the log of an open store since this began.

    A reader that keeps its snapshot stops the log from starting anew, so that all of it is in the file.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("BEGIN")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        log = path.with_name(path.name + "-wal")

        def pages() -> int:
            return max(0, log.stat().st_size - _LOG_HEADER) // (page + _FRAME_HEADER)

        yield pages
        connection.execute("ROLLBACK")


async def open_sessions(store: flue_py.Store, count: int, history: int) -> list[flue_py.Session]:
    """Return new sessions with a history each, that was appended in turn, as busy sessions do it."""
    sessions = [await store.create_session() for _ in range(count)]
    for message in make_messages(history):
        await asyncio.gather(*[session.append_message(message) for session in sessions])
    return sessions


async def pages_alone(path: Path, sessions: Sequence[flue_py.Session], message: Message) -> float:
    """Return how many pages of log an append takes that is committed by itself, on average."""
    with counted_log(path) as pages:
        for session in sessions:
            await session.append_message(message)
        return pages() / len(sessions)


async def pages_in_group(path: Path, sessions: Sequence[flue_py.Session], message: Message) -> float:
    """Return how many pages an append takes where these sessions append at once.

    They wait for a lock that is held until all of them have asked, so that they are committed together but for the few
    that the writer took first.
    """
    with counted_log(path) as pages:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            appends = [asyncio.create_task(session.append_message(message)) for session in sessions]
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
        await asyncio.gather(*appends)
        return pages() / len(sessions)


def bytes_by_tree(path: Path) -> dict[str, int] | None:
    """Return the bytes of each table and index of a database, the largest first, whole pages of them.

    None where this SQLite was built without its table of pages, ``dbstat``.
    """
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(
                "SELECT name, SUM(pgsize) FROM dbstat GROUP BY name ORDER BY SUM(pgsize) DESC, name"
            )
            return dict(rows.fetchall())
        except sqlite3.OperationalError:
            return None
