"""Stores that builds of format 3 made before it was complete, stamped as complete ones are, are finished when opened.

``tests/data/early-format-3.json.gz`` has the SQL by which each of these builds made a new store, in the order of time.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine

import flue_py
from flue_py.errors import StoreUnavailable
from flue_py.store.engine import open_engine
from flue_py.store.migrate import migrate
from flue_py.store.schema import ddl
from flue_py.store.sqlite.migrate import open_file
from flue_py.store.sqlite.runner import open_sqlite
from flue_py.testing.sources import counted_sources
from flue_py.testing.whole_stores import make_everything, told
from tests.migrations.older_formats import DATA
from tests.migrations.postgres_catalog import catalog, query, run_script
from tests.migrations.test_migrations import catalog as file_catalog
from tests.postgres import NewDatabase, connected

pytestmark = pytest.mark.anyio

EARLY: list[dict[str, str]] = json.loads(gzip.decompress((DATA / "early-format-3.json.gz").read_bytes()))
Rows = dict[str, list[dict[str, Any]]]
NOT_ROWS_OF_USERS = ("flue_store", "alembic_version", "sqlite_sequence")


@pytest.fixture(params=range(len(EARLY)))
def early(request: pytest.FixtureRequest) -> dict[str, str]:
    """The SQL by which an early build made a store."""
    return EARLY[request.param]


@pytest.fixture(scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> Path:
    """A store of today with something of everything."""
    path = tmp_path_factory.mktemp("made") / "made.db"
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    try:
        await make_everything(backend)
    finally:
        await backend.close()
    return path


def rows_of(path: Path) -> Rows:
    """Return the rows of the tables of a file, but for its stamps, by columns."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
            for name in names
            if name not in NOT_ROWS_OF_USERS
        }


def as_then(rows: Rows, columns: dict[str, list[str]]) -> Rows:
    """Return rows as they were stored then: of these columns, and with an id of its own for every call."""
    found = {
        table: [{name: row[name] for name in columns[table]} for row in rows[table]]
        for table in rows
        if columns.get(table)
    }
    for row in found["ledger"]:
        row["call_id"] = row["call_id"] or row["entry_id"]
    return found


def finished(rows: Rows, then: Rows) -> Rows:
    """Return what a store of ``then`` is to have, beside the rows of today: nobody knew then how a task had ended."""
    expected = {table: [{**row} for row in rows[table]] for table in rows if table in then or not rows[table]}
    for row in expected["ledger"]:
        row["call_id"] = row["call_id"] or row["entry_id"]
    for row in expected["task_links"] if "status" not in then["task_links"][0] else ():
        row |= {"status": None, "summary": None}
    return expected


def comparable(rows: Rows) -> dict[str, list[str]]:
    """Return rows in an order of their own; calls are numbered anew."""
    return {
        table: sorted(str(sorted((name, value) for name, value in row.items() if name != "number")) for row in found)
        for table, found in rows.items()
    }


def fill(path: Path, early: dict[str, str], rows: Rows) -> Rows:
    """Make a file as it was made then, with rows; return these."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        script = [
            *ddl.stamp_statements(made=3),
            *early["sqlite"].removesuffix(ddl.STATEMENT_END).split(ddl.STATEMENT_END),
        ]
        for statement in script:
            connection.execute(statement)
        columns = {table: [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")] for table in rows}
        then = as_then(rows, columns)
        for table, found in then.items():
            marks = ", ".join(f":{name}" for name in columns[table])
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns[table])}) VALUES ({marks})", found)
        connection.execute("UPDATE flue_store SET value = 1000 WHERE name = 'next_key'")
        connection.commit()
    return then


async def test_a_file_of_an_early_build_is_backed_up_and_finished(
    early: dict[str, str], made: Path, tmp_path: Path
) -> None:
    path, new = tmp_path / "early.db", tmp_path / "new.db"
    rows = rows_of(made)
    then = fill(path, early, rows)
    with pytest.raises(StoreUnavailable, match="has format 3, and must be upgraded to format 4"):
        async with flue_py.open(path, read_only=True):
            pass
    open_file(path, "full", 5).close()
    assert comparable(rows_of(path)) == comparable(finished(rows, then))
    assert comparable(rows_of(tmp_path / "early.db.format-3.bak")) == comparable(then)
    open_file(new, "full", 5).close()
    assert file_catalog(path) == file_catalog(new)
    backend = await open_sqlite(path, sources=counted_sources())
    try:
        assert (await backend.verify()).problems == []
        assert len(await told(backend)) == len(rows["sessions"])
    finally:
        await backend.close()
    assert not (tmp_path / "early.db.format-3-1.bak").exists()


async def test_a_database_of_an_early_build_on_postgresql_is_finished(
    early: dict[str, str], made: Path, new_database: NewDatabase
) -> None:
    url, right = new_database(), new_database()
    await run_script(url, ";\n".join(ddl.stamp_statements("postgresql", made=3)))
    await run_script(url, early["postgresql"])
    asked = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'"
    columns: dict[str, list[str]] = {}
    for table, name in await query(url, asked):
        columns.setdefault(table, []).append(name)
    then = as_then(rows_of(made), columns)
    async with connected(url) as connection:
        for table in ("sessions", "budgets", *(each for each in then if each not in ("sessions", "budgets"))):
            names = columns[table]
            records = [tuple(row[name] for name in names) for row in then[table]]
            await connection.copy_records_to_table(table, columns=names, records=records)
    await migrate(url)
    await migrate(right)
    assert await catalog(url) == await catalog(right)
    assert await query(url, "SELECT version_num FROM alembic_version") == [(ddl.HEAD,)]
    backend = await open_engine(url, sources=counted_sources())
    try:
        assert (await backend.verify()).problems == []
        assert len(await told(backend)) == len(then["sessions"])
    finally:
        await backend.close()


def test_alembics_own_upgrade_finishes_an_early_file(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "early.db"
    fill(path, EARLY[0], rows_of(made))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        command.upgrade(ddl.alembic_config(connection), "head")
    engine.dispose()
    open_file(tmp_path / "new.db", "full", 5).close()
    assert file_catalog(path) == file_catalog(tmp_path / "new.db")
