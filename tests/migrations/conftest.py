"""What the tests of migrations share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flue_py.core.ledger import Amounts, NewBudget
from flue_py.core.sessions import NewSession
from flue_py.db.schema import FORMAT_VERSION
from flue_py.db.sqlite.runner import open_sqlite
from tests.migrations.later import later_version
from tests.sources import counted_sources
from tests.whole_stores import make_everything


def make_whole(path: Path) -> None:
    """Make a store with something of everything, and a table of somebody else's beside it."""

    async def fill() -> None:
        backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
        try:
            await make_everything(backend)
            budget = NewBudget("scope", "tokens", 100, scope="*", spent=5)
            await backend.set_budget(budget)
            session = await backend.create_session(NewSession())
            for used in (Amounts(10), None):
                reservation = await backend.reserve(session.id, Amounts(20), 10**12)
                if used is not None:
                    await backend.commit_reservation(reservation.id, used)
        finally:
            await backend.close()

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE kept (what TEXT)")
        connection.execute("INSERT INTO kept VALUES ('a year of work')")
        connection.commit()


def restamp(path: Path, number: int) -> bytes:
    """Stamp a store with another format; return the file, which has everything then."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE flue_store SET value = ? WHERE name = 'format'", (number,))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store of the current format."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    make_whole(path)
    return restamp(path, FORMAT_VERSION)


@pytest.fixture
def later(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The later version, in this process and for the whole test; return the folder with its files."""
    folder = tmp_path_factory.mktemp("later") / "migrations"
    with later_version(folder):
        yield folder
