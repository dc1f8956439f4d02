"""The schema and all migrations together give the same tables; newer formats are refused, older ones upgraded."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine

import flue_py
from flue_py.errors import CorruptStore, FormatTooNew, NotAStore, StoreUnavailable
from flue_py.store.schema import ddl, printing
from flue_py.store.schema.stamp import APPLICATION_ID, FORMAT_VERSION
from flue_py.store.sqlite import migrate

PRAGMAS = ("table_xinfo", "foreign_key_list", "index_list")


def catalog(path: Path) -> dict[str, object]:
    """Everything that the catalog knows, by facts where SQLite offers them and by normalised SQL where not."""
    with closing(sqlite3.connect(path)) as connection:
        facts: dict[str, object] = {}
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
        for kind, name, table, sql in rows:
            facts[f"{kind} {name}"] = (table, None if sql is None else normalised(sql))
            if kind == "table":
                for pragma in PRAGMAS:
                    facts[f"{pragma} {name}"] = sorted(
                        tuple(row[1:]) for row in connection.execute(f"PRAGMA {pragma}({name})")
                    )
                facts[f"without rowid {name}"] = "WITHOUT ROWID" in sql.upper()
            if kind == "index":
                facts[f"columns of {name}"] = connection.execute(f"PRAGMA index_xinfo({name})").fetchall()
        return facts


def normalised(sql: str) -> tuple[str, ...]:
    """The SQL without layout; the parts of a table in any order, so that CHECKs and partial indexes are compared."""
    text = "".join(sql.replace('"', "").replace("IF NOT EXISTS ", "").split()).replace("WITHOUTROWID", "")
    opening, _, rest = text.partition("(")
    return opening, *sorted(part.rstrip(")") for part in rest.replace(",CONSTRAINT", "\n").split("\n"))


def make_by_schema(path: Path) -> None:
    migrate.open_file(path, "full", 5).close()


def make_by_migrations(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        ddl.run_migrations(connection)
    engine.dispose()


def make_older(path: Path) -> None:
    """A database as an earlier version would leave it: stamped, and without what the migrations add."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in ddl.stamp_statements():
            connection.execute(statement)
        connection.execute("UPDATE flue_store SET value = 0 WHERE name = 'format'")
        connection.execute("CREATE TABLE kept (what TEXT)")
        connection.execute("INSERT INTO kept VALUES ('a year of work')")
        connection.commit()


def stamp(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT value FROM flue_store WHERE name = 'format'").fetchone()[0])


def test_the_schema_and_the_migrations_make_the_same_catalog(tmp_path: Path) -> None:
    make_by_schema(tmp_path / "schema.db")
    make_by_migrations(tmp_path / "migrations.db")
    assert catalog(tmp_path / "schema.db") == catalog(tmp_path / "migrations.db")


def test_the_comparison_of_catalogs_sees_checks_partial_indexes_and_rowids(tmp_path: Path) -> None:
    for number, (old, new) in enumerate(
        [
            ("kind IN ('root', 'fork', 'task')", "kind IN ('root')"),
            ("key IS NOT NULL AND trashed_at IS NULL", "key IS NOT NULL"),
            ("WITHOUT ROWID", ""),
            ("ON DELETE CASCADE", ""),
        ]
    ):
        path = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(path)) as connection:
            for statement in [*ddl.stamp_statements(), *ddl.schema_statements()]:
                connection.execute(statement.replace(old, new))
            connection.commit()
        make_by_schema(tmp_path / f"{number}-right.db")
        assert catalog(path) != catalog(tmp_path / f"{number}-right.db"), old


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_the_printed_schema_is_that_of_the_tables(dialect: ddl.Dialect) -> None:
    kept = ddl.printed_path(dialect).read_text(encoding="utf-8")

    assert kept == printing.printed_schema(dialect), "run python -m flue_py.store.schema.printing"
    assert "".join(f"{statement}{ddl.STATEMENT_END}" for statement in ddl.schema_statements(dialect)) == kept


def test_what_a_caller_does_with_the_statements_is_its_own_affair() -> None:
    kept = ddl.schema_statements()
    ddl.schema_statements().clear()
    assert ddl.schema_statements() == kept


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_by_migrations(path)
    before = catalog(path)
    make_by_migrations(path)
    assert catalog(path) == before


@pytest.mark.anyio
async def test_a_database_made_by_migrations_works(tmp_path: Path) -> None:
    make_by_migrations(tmp_path / "a.db")
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.create_session(key="a")
        await session.append_message({"role": "user", "content": "hello"})
        assert (await store.verify()).problems == []


def test_a_newer_format_is_refused_before_any_write(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_by_schema(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE flue_store SET value = {FORMAT_VERSION + 1} WHERE name = 'format'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match=str(FORMAT_VERSION + 1)):
        migrate.open_file(path, "full", 5)
    assert path.read_bytes() == before


@pytest.mark.anyio
async def test_an_older_database_is_backed_up_and_upgraded_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_older(path)
    async with flue_py.open(path) as store:
        session = await store.create_session(key="a")
        await session.append_message({"role": "user", "content": "hello"})
        assert (await store.verify()).problems == []
    assert stamp(path) == FORMAT_VERSION
    backup = tmp_path / "a.db.format-0.bak"
    assert stamp(backup) == 0
    assert backup.stat().st_mode & 0o777 == 0o600
    for copy in (path, backup):
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT what FROM kept").fetchall() == [("a year of work",)]


@pytest.mark.anyio
async def test_an_early_store_of_format_3_is_backed_up_and_finished(tmp_path: Path) -> None:
    path = tmp_path / "early.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        command.upgrade(ddl.alembic_config(connection), "0003")
        connection.exec_driver_sql("UPDATE flue_store SET value = 3 WHERE name = 'format'")
    engine.dispose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with pytest.raises(StoreUnavailable, match="has format 3, and must be upgraded to format 4"):
        async with flue_py.open(path, read_only=True):
            pass
    async with flue_py.open(path) as store:
        assert (await store.verify()).problems == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(ddl.HEAD,)]
    assert (tmp_path / "early.db.format-3.bak").exists()


@pytest.mark.anyio
async def test_a_store_without_one_of_its_indexes_is_opened_as_it_is(tmp_path: Path) -> None:
    """Such a store was once taken for an early one of format 3, and could not be opened at all."""
    path = tmp_path / "a.db"
    async with flue_py.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX ix_sessions_scope_active_slot")
        connection.commit()
    before = catalog(path)
    async with flue_py.open(path) as store:
        assert (await store.verify()).problems == []
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        command.upgrade(ddl.alembic_config(connection), "head")
    engine.dispose()
    assert catalog(path) == before
    assert sorted(os.listdir(tmp_path)) == ["a.db"]


def test_a_failed_upgrade_leaves_the_old_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_older(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE lanes (in_the_way TEXT)")
        connection.commit()
    before = catalog(path)
    with pytest.raises(CorruptStore, match="cannot be upgraded from format 0"):
        migrate.open_file(path, "full", 5)
    assert catalog(path) == before
    assert stamp(path) == 0


def test_somebody_elses_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="another program"):
        migrate.open_file(path, "full", 5)
    assert path.read_bytes() == before


OPEN = """
import sys
from pathlib import Path
from flue_py.store.sqlite.migrate import open_file
print("ready", flush=True)
sys.stdin.readline()
open_file(Path(sys.argv[1]), "full", 30).close()
print("open")
"""


@pytest.mark.parametrize("prepare", [lambda _: None, make_older], ids=["new", "older"])
def test_two_processes_at_once_make_one_database(tmp_path: Path, prepare: object) -> None:
    path = tmp_path / "a.db"
    prepare(path)  # type: ignore[operator]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert [(code, output) for output, _, code in answers] == [(0, "open\n")] * 2, answers
    # The one that came second has nothing to upgrade, hence nothing to back up.
    assert len(list(tmp_path.glob("*.bak"))) == (prepare is make_older)
    make_by_migrations(tmp_path / "right.db")
    right, made = catalog(tmp_path / "right.db"), catalog(path)
    assert {name: fact for name, fact in made.items() if not name.endswith("kept")} == right


def test_offline_mode_prints_the_statements_for_review() -> None:
    config = ddl.alembic_config(url="sqlite:///unused.db")
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    printed = config.output_buffer.getvalue()
    assert "CREATE TABLE entries" in printed
    assert "CREATE VIEW history" in printed
    assert not Path("unused.db").exists()
