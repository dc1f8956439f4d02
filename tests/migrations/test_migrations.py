"""The schema and all migrations together give the same tables; newer formats are refused, older ones upgraded."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.util import CommandError
from sqlalchemy import create_engine, inspect

import flue_py
from flue_py.core.ledger import SEALS
from flue_py.db import schema as ddl
from flue_py.db.migrate import look_at
from flue_py.db.migrate import migrate as migrate_database
from flue_py.db.ops import verify
from flue_py.db.salvage.pages import _ADDED
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.schema import FIRST_FORMAT, FORMAT_VERSION, REVISIONS, printed_schema
from flue_py.db.sql import PLACE, SESSION_COLUMNS
from flue_py.db.sqlite import file as migrate
from flue_py.db.sqlite.runner import open_sqlite
from flue_py.errors import CorruptStore, FlueError, FormatTooNew, NotAStore, StoreUnavailable
from tests.earlier import unchain_file
from tests.migrations.conftest import restamp
from tests.migrations.later import AS_LATER, LATER_FORMAT, REVISION, later_version
from tests.sources import counted_sources
from tests.whole_stores import told

ROOT = Path(__file__).resolve().parents[2]

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
        if not inspect(connection).has_table("flue_store"):
            for statement in ddl.stamp_statements():
                connection.exec_driver_sql(statement)
        ddl.run_migrations(connection)
    engine.dispose()


def stamp(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT value FROM flue_store WHERE name = 'format'").fetchone()[0])


def rows_of(path: Path) -> dict[str, list[dict[str, object]]]:
    """Return the rows of all tables of a file, but for its stamps, by columns."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
            for name in names
            if name not in ("flue_store", "alembic_version")
        }


def answers_of(path: Path) -> object:
    """Return everything that a store tells of its sessions. It must verify clean."""

    async def ask() -> object:
        backend = await open_sqlite(path, sources=counted_sources())
        try:
            assert (await backend.verify()).problems == []
            return await told(backend)
        finally:
            await backend.close()

    return asyncio.run(ask())


@pytest.fixture
def current(whole: bytes, tmp_path: Path) -> Path:
    """A store of the current format, which the later version finds older."""
    path = tmp_path / "a.db"
    path.write_bytes(whole)
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    return path


@pytest.fixture
def first(current: Path, tmp_path: Path) -> Path:
    """A store of the first format, with all that a store of the current format has."""
    return as_before(current, tmp_path / "first.db", FIRST_FORMAT)


def as_before(current: Path, path: Path, number: int) -> Path:
    """Make a store of an earlier format, with all that one of the current format has."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl.alembic_sql("sqlite", REVISIONS[number]))
        connection.execute("ATTACH ? AS current", (str(current),))
        tables = [name for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
            if table != "alembic_version":
                connection.execute(
                    f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM current.{table}"
                )
        connection.commit()
    unchain_file(path)
    restamp(path, number)
    return path


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

    assert kept == printed_schema(dialect), "run python -m flue_py.db.schema"
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


async def test_a_database_made_by_migrations_works(tmp_path: Path) -> None:
    make_by_migrations(tmp_path / "a.db")
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.create_session(key="a")
        await session.append_message({"role": "user", "content": "hello"})
        assert (await store.verify()).problems == []


# -- an older and a later version -------------------------------------------------------------------------------------


def test_an_older_database_is_backed_up_and_upgraded_without_loss(current: Path, later: Path) -> None:
    before = rows_of(current)
    migrate.open_file(current, "full", 5).close()
    after = rows_of(current)
    colours = [session.pop("colour") for session in after["sessions"]]
    assert after == before
    assert colours == [None if session["title"] is None else "blue" for session in before["sessions"]]
    assert {None, "blue"} == set(colours)
    assert (stamp(current), version_of(current)) == (LATER_FORMAT, REVISION)
    backup = current.with_name(f"a.db.format-{FORMAT_VERSION}.bak")
    assert (rows_of(backup), stamp(backup)) == (before, FORMAT_VERSION)
    assert backup.stat().st_mode & 0o777 == 0o600


def version_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        ((name,),) = connection.execute("SELECT version_num FROM alembic_version")
        return str(name)


def test_an_upgraded_store_answers_as_before_and_goes_on(whole: bytes, current: Path, tmp_path: Path) -> None:
    right = answers_of(current)
    with later_version(tmp_path / "migrations"):
        assert answers_of(current) == right
        asyncio.run(go_on(current))
        make_by_schema(tmp_path / "new.db")
        with closing(sqlite3.connect(current)) as connection:
            connection.execute("DROP TABLE kept")
            connection.commit()
        assert catalog(current) == catalog(tmp_path / "new.db")


async def go_on(path: Path) -> None:
    async with flue_py.open(path) as store:
        session = await store.create_session(title="later")
        await session.append_message({"role": "user", "content": "hello"})
        fork = await session.fork()
        await session.undo()
        await store.delete_session_tree(fork)
        assert (await store.verify()).problems == []


def test_a_store_of_before_the_first_release_in_its_format_is_upgraded_as_well(first: Path) -> None:
    with closing(sqlite3.connect(first)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (ddl.UNRELEASED,))
        connection.commit()
    migrate.open_file(first, "full", 5).close()
    assert (stamp(first), version_of(first)) == (FORMAT_VERSION, ddl.HEAD)


def test_a_later_revision_may_have_the_name_of_before_the_first_release(first: Path) -> None:
    with closing(sqlite3.connect(first)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (ddl.UNRELEASED,))
        connection.commit()
    restamp(first, FIRST_FORMAT + 1)
    with pytest.raises(CorruptStore, match=f"cannot be run .*{ddl.UNRELEASED}"):
        migrate.open_file(first, "full", 5)
    assert (stamp(first), version_of(first)) == (FIRST_FORMAT + 1, ddl.UNRELEASED)


def test_a_newer_format_is_refused_before_any_write(current: Path, tmp_path: Path) -> None:
    with later_version(tmp_path / "migrations"):
        migrate.open_file(current, "full", 5).close()
    before = restamp(current, LATER_FORMAT)
    told = f"has format {LATER_FORMAT}, this flue_py reads up to {FORMAT_VERSION}; upgrade flue_py"
    assert refusals(current, FormatTooNew, told) == []
    assert current.read_bytes() == before


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_format_of_before_the_first_release_is_refused_before_any_write(current: Path, number: int) -> None:
    assert number < FIRST_FORMAT
    before = restamp(current, number)
    told = f"has format {number}, which only versions before the first release made.*export its sessions with"
    assert refusals(current, StoreUnavailable, told, salvaged=number > 0) == []
    assert current.read_bytes() == before


def refusals(path: Path, error: type[FlueError], words: str, *, salvaged: bool = True) -> list[str]:
    """Return the ways to open a store that do not refuse it with an error of this type, or of other words."""

    async def opened(read_only: bool) -> None:
        async with flue_py.open(path, read_only=read_only):
            pass

    ways = {
        "open": lambda: asyncio.run(opened(False)),
        "read only": lambda: asyncio.run(opened(True)),
        "open_file": lambda: migrate.open_file(path, "full", 5).close(),
        "migrate": lambda: asyncio.run(migrate_database(str(path))),
        "look_at": lambda: asyncio.run(look_at(str(path))),
    }
    if salvaged:
        ways["salvage"] = lambda: salvage(path, path.with_name("new.db"))
    wrong = []
    for name, way in ways.items():
        try:
            way()
        except error as refused:
            if not re.search(words, str(refused)):
                wrong.append(f"{name}: {refused}")
        else:
            wrong.append(name)
    return wrong


def test_a_store_that_is_only_read_is_not_upgraded_and_says_what_to_do(current: Path, later: Path) -> None:
    async def read() -> None:
        async with flue_py.open(current, read_only=True):
            pass

    before = rows_of(current)
    must = f"has format {FORMAT_VERSION}, and must be upgraded to format {LATER_FORMAT} to be read; open it once where"
    with pytest.raises(StoreUnavailable, match=must):
        asyncio.run(read())
    assert (rows_of(current), stamp(current)) == (before, FORMAT_VERSION)
    assert os.listdir(current.parent) == ["a.db"]
    migrate.open_file(current, "full", 5).close()
    asyncio.run(read())


async def test_a_store_without_one_of_its_indexes_is_opened_as_it_is(tmp_path: Path) -> None:
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


def test_a_failed_upgrade_leaves_the_old_database_as_it_was(current: Path, later: Path) -> None:
    with closing(sqlite3.connect(current)) as connection:
        connection.execute("CREATE INDEX ix_sessions_colour ON kept (what)")
        connection.commit()
    before, rows = catalog(current), rows_of(current)
    backup = f"a.db.format-{FORMAT_VERSION}.bak"
    with pytest.raises(
        CorruptStore, match=rf"(?s)cannot be upgraded from format {FORMAT_VERSION}, and is as it was.*{backup}"
    ):
        migrate.open_file(current, "full", 5)
    assert (catalog(current), rows_of(current), stamp(current)) == (before, rows, FORMAT_VERSION)


def test_an_upgrade_that_is_killed_in_between_leaves_the_store_as_it_was(current: Path, tmp_path: Path) -> None:
    """The process ends where all rows are changed and nothing is committed."""
    before = catalog(current), rows_of(current)
    folder = tmp_path / "migrations"
    done = subprocess.run(
        [sys.executable, "-c", AS_LATER.format(str(folder)) + OPEN, str(current)],
        cwd=ROOT,
        env={**os.environ, "FLUE_TESTS_KILL": "1"},
        input="\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-9, "ready\n"), done.stderr
    assert stamp(current) == FORMAT_VERSION
    assert (catalog(current), rows_of(current)) == before
    backup = current.with_name(f"a.db.format-{FORMAT_VERSION}.bak")
    assert rows_of(backup) == before[1]
    asyncio.run(go_on(current))
    with later_version(folder):
        migrate.open_file(current, "full", 5).close()
        assert stamp(current) == LATER_FORMAT
    assert sorted(path.name for path in current.parent.glob("*.bak")) == [
        f"a.db.format-{FORMAT_VERSION}-1.bak",
        f"a.db.format-{FORMAT_VERSION}.bak",
    ]


# -- the formats that there were --------------------------------------------------------------------------------------


def as_first(rows: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    """Return the rows of a store as the first format has them, without the digests, which cover more now."""
    for budget in rows["budgets"]:
        assert (budget.pop("period", ""), budget.pop("tz", "")) == ("", "")
    for table, names in {**_ADDED, "entries": ["digest"], "sessions": [*_ADDED["sessions"], "active_slot"]}.items():
        for row in rows[table]:
            for name in names:
                row.pop(name, None)
    return rows


def test_heads_cover_the_columns_that_they_covered_when_a_migration_made_them() -> None:
    covered = len(PLACE) + len(SESSION_COLUMNS)
    assert covered == 33, (
        "compute_digests in migrations/env.py on upgrades from before these columns, or no session opens"
    )


def digests_of(path: Path) -> list[dict[str, object]]:
    rows = rows_of(path)
    names = ("id", "head", *SEALS)
    heads = [{name: session[name] for name in names} for session in rows["sessions"]]
    return [*heads, *({name: entry[name] for name in ("id", "digest")} for entry in rows["entries"])]


@pytest.mark.parametrize("number", [FIRST_FORMAT, 5])
def test_a_store_of_an_earlier_format_is_upgraded_without_loss(
    current: Path, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_PAGE", 2)
    old = as_before(current, tmp_path / "old.db", number)
    before = as_first(rows_of(old))
    assert before["reservations"]
    assert salvage(old, tmp_path / "salvaged.db").losses == ()
    migrate.open_file(old, "full", 5).close()
    assert as_first(rows_of(old)) == before
    assert digests_of(old) == digests_of(current)
    assert as_first(rows_of(tmp_path / "salvaged.db"))["reservations"] == before["reservations"]
    assert digests_of(tmp_path / "salvaged.db") == digests_of(current)
    make_by_schema(tmp_path / "new.db")
    assert catalog(old) == catalog(tmp_path / "new.db")
    assert answers_of(old) == answers_of(current)
    asyncio.run(go_on(old))


@pytest.mark.parametrize("foreign_keys", ["ON", "OFF"])
def test_the_printed_upgrade_from_the_first_format_does_what_sql_can(first: Path, foreign_keys: str) -> None:
    before = as_first(rows_of(first))
    script = ddl.upgrade_sql("sqlite", FIRST_FORMAT)
    assert "The digests of format 6 are computed, which no SQL does: run flue-py migrate without --sql" in script
    with closing(sqlite3.connect(first)) as connection:
        connection.execute(f"PRAGMA foreign_keys = {foreign_keys}")
        connection.executescript(script)
    assert (stamp(first), version_of(first)) == (ddl.PRINTED, REVISIONS[ddl.PRINTED])
    script = ddl.upgrade_sql("sqlite", ddl.PRINTED)
    assert all(line.startswith("-- ") for line in script.splitlines())
    with pytest.raises(CommandError, match="no SQL computes the digests of 0003: run alembic upgrade without --sql"):
        ddl.alembic_sql("sqlite", "0001:head")
    assert as_first(rows_of(first)) == before
    asyncio.run(go_on(first))
    assert stamp(first) == FORMAT_VERSION


DAMAGES = {
    "another payload": "payload = replace(payload, 'question', 'answer')",
    "bytes that are no zlib": "payload = NULL, packed = X'00', blob = NULL",
    "a source that is no text": "source = CAST(X'FF' AS TEXT)",
    "a digest of another size": "digest = X'00'",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_named_after_the_upgrade_and_the_others_are_sound(
    current: Path, tmp_path: Path, damage: str
) -> None:
    old = as_before(current, tmp_path / "old.db", 5)
    with closing(sqlite3.connect(old)) as connection:
        ((damaged,),) = connection.execute("SELECT id FROM entries WHERE depth = 2 AND lane_id = 1 LIMIT 1")
        connection.execute(f"UPDATE entries SET {DAMAGES[damage]} WHERE id = ?", (damaged,))
        connection.commit()
    migrate.open_file(old, "full", 5).close()
    assert stamp(old) == FORMAT_VERSION

    ((where, detail),) = asyncio.run(problems_of(old))
    assert where == f"entry {damaged}" or "column 'source'" in detail
    assert {loss.entry_id for loss in salvage(old, tmp_path / "salvaged.db").losses} <= {damaged}


async def problems_of(path: Path) -> list[tuple[str, str]]:
    async with flue_py.open(path) as store:
        return [(problem.where, problem.detail) for problem in (await store.verify()).problems]


KILLED = """
import os, sys
from pathlib import Path
from alembic import op
from flue_py.db.sqlite.file import open_file
made = op.create_index
op.create_index = lambda name, *rest, **more: os.kill(os.getpid(), 9) if name == "ix_ledger_at" else made(
    name, *rest, **more
)
open_file(Path(sys.argv[1]), "full", 30)
"""


def test_an_upgrade_from_the_first_format_that_is_killed_changes_nothing(first: Path) -> None:
    before = catalog(first), rows_of(first)
    done = subprocess.run([sys.executable, "-c", KILLED, str(first)], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert (stamp(first), catalog(first), rows_of(first)) == (FIRST_FORMAT, *before)
    migrate.open_file(first, "full", 5).close()
    assert (stamp(first), as_first(rows_of(first))) == (FORMAT_VERSION, as_first(before[1]))


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
from flue_py.db.sqlite.file import open_file
print("ready", flush=True)
sys.stdin.readline()
open_file(Path(sys.argv[1]), "full", 30).close()
print("open")
"""


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "older"])
def test_two_processes_at_once_make_one_database(current: Path, tmp_path: Path, is_new: bool) -> None:
    path = tmp_path / "new.db" if is_new else current
    with later_version(tmp_path / "migrations"):
        make_by_migrations(tmp_path / "right.db")
    program = AS_LATER.format(str(tmp_path / "migrations")) + OPEN
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            cwd=ROOT,
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
    assert len(list(tmp_path.glob("*.bak"))) == (not is_new)
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
