"""The format on PostgreSQL: made once, by the first process; the same tables in each way of making them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import op
from sqlalchemy import Connection, event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

import flue_py
from flue_py.db import migrate
from flue_py.db import schema as ddl
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.ops import verify
from flue_py.db.postgres import runner as postgres_format
from flue_py.db.postgres.runner import prepare_postgres
from flue_py.db.salvage.pages import _ADDED
from flue_py.db.schema import FORMAT_VERSION, Migrated
from flue_py.errors import (
    CorruptStore,
    FormatTooNew,
    InvalidArgument,
    MissingExtra,
    NotAStore,
    StoreBusy,
    StoreUnavailable,
)
from tests.checks import raises
from tests.earlier import unchain
from tests.migrations.later import AS_LATER, LATER_FORMAT, REVISION, later_version
from tests.migrations.postgres_catalog import catalog, contents, query, run_script
from tests.postgres import NewDatabase, connected
from tests.sources import counted_sources
from tests.whole_stores import make_everything

PLACE = "the test's database"
MADE = Migrated(PLACE, None)
CURRENT = Migrated(PLACE, FORMAT_VERSION)
UPGRADED = Migrated(PLACE, LATER_FORMAT)
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def engine_on(url: str, settings: dict[str, str] | None = None, **options: Any) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool, connect_args={"server_settings": settings or {}}, **options)
    try:
        yield engine
    finally:
        await engine.dispose()


async def prepare(url: str, busy_timeout: float | None = None, **settings: str) -> Migrated:
    """Bring a database to the current format on a connection with these server settings."""
    async with engine_on(url, settings) as engine, engine.connect() as connection:
        return await connection.run_sync(prepare_postgres, PLACE, busy_timeout)


async def on_a_connection(url: str, work: Callable[[Connection], None]) -> None:
    async with engine_on(url) as engine, engine.begin() as connection:
        await connection.run_sync(work)


def make_by_migrations(connection: Connection) -> None:
    for statement in ddl.stamp_statements("postgresql"):
        connection.exec_driver_sql(statement)
    ddl.run_migrations(connection, "public")


MADE_BY_HAND = ddl.creation_sql("postgresql")
"""What makes a store of today's version, read before a test puts the later one into effect."""

OLDER = f"""
{MADE_BY_HAND}
INSERT INTO lanes VALUES (1, 1, 1, NULL, -1), (1, 2, 1, 1, 5);
CREATE TABLE kept (what TEXT);
INSERT INTO kept VALUES ('a year of work');
"""
"""A store of today's version, which the later version finds older."""


async def stamp(url: str, schema: str = "public") -> int:
    return int((await query(url, "SELECT value FROM flue_store WHERE name = 'format'", schema))[0][0])


BUDGET = (1, "b", "s", "tasks", "x", "tokens", 100, 15, 20, 5, 1, 3)
FIRST = f"""
{ddl.alembic_sql("postgresql", ddl.REVISIONS[ddl.FIRST_FORMAT])}
INSERT INTO budgets VALUES {BUDGET};
INSERT INTO reservations VALUES ('r', 1, 'gone', 10, 'committed', 10, 1, 9, 3);
INSERT INTO reservations VALUES ('q', 1, 'gone', 20, 'held', NULL, 2, 9, NULL);
"""
"""A store of the first format, with a budget."""


# -- one set of tables, whichever way -------------------------------------------------------------------------------


async def test_the_schema_the_migrations_and_the_printed_sql_make_the_same_database(new_database: NewDatabase) -> None:
    by_schema, by_migrations, by_offline, by_script = (new_database() for _ in range(4))
    assert await prepare(by_schema) == MADE
    await on_a_connection(by_migrations, make_by_migrations)
    await run_script(by_offline, ddl.alembic_sql("postgresql"))
    await run_script(by_script, ddl.creation_sql("postgresql"))
    expected = await contents(by_schema)
    assert expected["flue_store"] == [("epoch", 0), ("format", FORMAT_VERSION)]
    assert expected["alembic_version"] == [(ddl.HEAD,)]
    for url in (by_migrations, by_offline, by_script):
        assert await contents(url) == expected
        assert await prepare(url) == CURRENT
        assert await contents(url) == expected


async def test_a_store_of_the_first_format_is_upgraded_without_loss(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_package, by_script, right = (new_database() for _ in range(3))
    for url in (by_package, by_script):
        await run_script(url, FIRST)
    before, reserved = await contents(by_package), await query(by_package, "SELECT * FROM reservations")
    with monkeypatch.context() as patch:
        patch.setattr(op, "create_index", broken_off)
        await raises(KeyboardInterrupt, prepare(by_package))
    assert await contents(by_package) == before
    assert await prepare(by_package) == Migrated(PLACE, ddl.FIRST_FORMAT)
    await run_script(by_script, ddl.upgrade_sql("postgresql", ddl.FIRST_FORMAT))
    assert await prepare(right) == MADE
    assert await prepare(by_script) == Migrated(PLACE, ddl.PRINTED)
    for url in (by_package, by_script):
        assert await contents(url) == await contents(right)
        assert await query(url, "SELECT * FROM budgets") == [(*BUDGET, "", "")]
        assert await query(url, "SELECT * FROM reservations") == reserved


DIGESTS = "SELECT id, digest FROM entries ORDER BY tree_id, id"


async def test_the_digests_of_an_earlier_format_become_a_chain(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    await with_store(url, make_everything)
    before = await query(url, DIGESTS)
    monkeypatch.setattr(verify, "_PAGE", 2)
    await unchained(url)
    assert await query(url, DIGESTS) != before
    assert await prepare(url) == Migrated(PLACE, 5)
    assert await query(url, DIGESTS) == before
    assert await with_store(url, problems_of) == []
    await unchained(url)
    ((damaged,),) = await query(url, "SELECT MIN(id) FROM entries WHERE payload LIKE '%question%' AND depth > 0")
    await run_script(url, f"UPDATE entries SET payload = '{{}}' WHERE id = '{damaged}'")
    assert await prepare(url) == Migrated(PLACE, 5)
    assert ("damaged entry", f"entry {damaged}") in await with_store(url, problems_of)


async def with_store(url: str, work: Callable[[Backend], Awaitable[object]]) -> object:
    backend = await open_engine(url, sources=counted_sources())
    try:
        return await work(backend)
    finally:
        await backend.close()


async def problems_of(backend: Backend) -> list[tuple[str, str]]:
    return [(problem.kind, problem.where) for problem in (await backend.verify()).problems]


async def unchained(url: str) -> None:
    """Make a store of format 5 of one of today's, which has more columns."""

    def unchain_on(connection: Connection) -> None:
        with migrate.transaction_on(connection) as tx:
            unchain(tx)

    await on_a_connection(url, unchain_on)
    drops = [f"ALTER TABLE {table} DROP COLUMN {name}" for table in {*_ADDED} - {"budgets"} for name in _ADDED[table]]
    await run_script(url, "; ".join(drops))
    await run_script(url, "UPDATE flue_store SET value = 5 WHERE name = 'format'")
    await run_script(url, f"UPDATE alembic_version SET version_num = '{ddl.REVISIONS[5]}'")


def broken_off(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


CHANGES = {
    ("constraints", "ck_sessions_kind"): ("kind IN ('root', 'fork', 'task')", "kind IN ('root')"),
    ("indexes", "uq_sessions_scope_key"): (" AND trashed_at IS NULL", ""),
    ("constraints", "fk_marks_session_key"): (" ON DELETE CASCADE", ""),
    ("columns", "task_id"): ('task_id TEXT COLLATE "C"', "task_id TEXT"),
    ("columns", "fork_depth"): ("fork_depth BIGINT NOT NULL", "fork_depth BIGINT"),
    ("columns", "revision"): ("revision BIGINT", "revision INTEGER"),
    ("constraints", "uq_entries_id_tree_id"): ("UNIQUE (id, tree_id)", "UNIQUE (tree_id, id)"),
    ("views", "history"): ("e.parent_id AS parent_id", "e.id AS parent_id"),
}
"""Changes of the schema, by the facts of the catalogs that show them."""


async def test_the_comparison_of_catalogs_sees_a_difference(new_database: NewDatabase) -> None:
    right, wrong = new_database(), new_database()
    script = ddl.creation_sql("postgresql")
    await run_script(right, script)
    for old, new in CHANGES.values():
        assert old in script
        script = script.replace(old, new)
    await run_script(wrong, script)
    expected, facts = await catalog(right), await catalog(wrong)
    changed = {(name, fact) for name in expected for row in {*expected[name]} ^ {*facts[name]} for fact in row[:3]}
    assert CHANGES.keys() - changed == set()


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
@pytest.mark.parametrize("printed", [ddl.alembic_sql, ddl.creation_sql])
def test_printed_sql_stamps_first_in_one_transaction(printed: Callable[[str], str], dialect: str) -> None:
    statements = re.findall(r"^(?:BEGIN|CREATE|INSERT).*$", printed(dialect), re.MULTILINE)
    assert statements[0] in ("BEGIN;", "BEGIN IMMEDIATE;")
    assert statements[1].startswith("CREATE TABLE flue_store ")
    assert statements[2].startswith(f"INSERT INTO flue_store (name, value) VALUES ('format', {FORMAT_VERSION})")
    assert len(statements) > 20
    assert printed(dialect).rstrip().endswith("COMMIT;")
    assert "IF NOT EXISTS" not in printed(dialect)


async def test_every_text_column_compares_bytes(new_database: NewDatabase) -> None:
    url = new_database()
    await prepare(url)
    columns = [row for row in (await catalog(url))["columns"] if row[3] == "text"]
    assert len(columns) > 40
    assert {row[4] for row in columns} == {"C"}


async def test_order_and_ranges_are_those_of_bytes_in_a_database_of_any_language(new_database: NewDatabase) -> None:
    async with other_database(new_database(), "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'") as url:
        await prepare(url)
        await run_script(url, "INSERT INTO flue_store VALUES ('b', 0), ('B', 0), ('a', 0), ('é', 0), ('_', 0)")
        names = [row[0] for row in await query(url, "SELECT name FROM flue_store WHERE length(name) = 1 ORDER BY name")]
        assert names == sorted(names)
        language = 'SELECT name FROM flue_store WHERE length(name) = 1 ORDER BY name COLLATE "default"'
        assert [row[0] for row in await query(url, language)] != names


async def test_the_tables_of_a_tree_can_be_partitioned_by_it(new_database: NewDatabase) -> None:
    url = new_database()
    await prepare(url)
    for table in ("entries", "lanes", "blobs"):
        # It is refused where a unique key lacks tree_id.
        await run_script(url, f"CREATE TABLE parted_{table} (LIKE {table} INCLUDING ALL) PARTITION BY HASH (tree_id)")
    foreign = await query(
        url, "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f'"
    )
    assert {row[1] for row in foreign} == {"sessions", "budgets"}
    assert {row[0] for row in foreign} == {
        "task_links",
        "leaf_moves",
        "requests",
        "marks",
        "session_edits",
        "reservations",
    }


async def test_a_database_made_by_the_migrations_works(new_database: NewDatabase) -> None:
    url = new_database()
    await on_a_connection(url, make_by_migrations)
    async with flue_py.open(url) as store:
        session = await store.create_session(key="a")
        await session.append_message({"role": "user", "content": "hello"})
        assert (await store.verify()).problems == []


# -- opening again --------------------------------------------------------------------------------------------------


async def test_a_current_database_is_opened_by_two_reads_and_no_write(new_database: NewDatabase) -> None:
    url = new_database()
    await prepare(url)
    rows = "SELECT name, value, xmin::text, ctid::text FROM flue_store ORDER BY name"
    oids = "SELECT oid, relname, xmin::text FROM pg_class ORDER BY oid"
    before = await query(url, rows), await query(url, oids)
    statements: list[str] = []
    transactions: list[object] = []
    async with engine_on(url) as engine, engine.connect() as connection:

        @event.listens_for(engine.sync_engine, "before_cursor_execute")
        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)

        @event.listens_for(engine.sync_engine, "commit")
        def look(ending: Connection) -> None:
            transactions.append(ending.exec_driver_sql("SELECT pg_current_xact_id_if_assigned()::text").scalar())

        assert await connection.run_sync(prepare_postgres, PLACE) == CURRENT
        assert not connection.in_transaction()
    assert transactions == [None]
    assert statements[-1].startswith("SELECT pg_current_xact_id_if_assigned")
    assert [statement.split()[0] for statement in statements[:-1]] == ["SELECT", "SELECT"]
    assert not any("lock" in statement for statement in statements)
    assert (await query(url, rows), await query(url, oids)) == before


OPEN = """
import asyncio
import sys
from sqlalchemy.ext.asyncio import create_async_engine
from flue_py.db.postgres.runner import prepare_postgres

def work(connection):
    sys.stdin.readline()
    print(prepare_postgres(connection, "here").found)

async def main():
    engine = create_async_engine(sys.argv[1])
    async with engine.connect() as connection:
        print("connected", flush=True)
        await connection.run_sync(work)
    await engine.dispose()

asyncio.run(main())
"""


def open_at_once(url: str, count: int, folder: Path) -> list[str]:
    """Return what each of several processes of the later version found that were let go at the same moment."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", AS_LATER.format(str(folder)) + OPEN, url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
        found.append(output.strip())
    return sorted(found)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("older", "found"), [(None, "None"), (OLDER, str(FORMAT_VERSION))], ids=["new", "older"])
async def test_processes_at_once_make_one_store(
    new_database: NewDatabase, later: Path, count: int, older: str | None, found: str
) -> None:
    url, right = new_database(), new_database()
    if older is not None:
        await run_script(url, older)
    everybody = await asyncio.to_thread(open_at_once, url, count, later)
    assert everybody == sorted([found, *[str(LATER_FORMAT)] * (count - 1)])
    await prepare(right)
    if older is not None:
        await run_script(right, "CREATE TABLE kept (what TEXT)")
    assert await contents(url) == await contents(right)


@asynccontextmanager
async def making(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Hold the lock as a process does that makes a store; the function that is given makes it and lets go."""
    async with connected(url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(ddl.LOCK_STATEMENT)

        async def finish() -> None:
            for statement in [*ddl.stamp_statements("postgresql"), *ddl.schema_statements("postgresql")]:
                await other.execute(statement)
            await transaction.commit()

        yield finish


async def until_somebody_waits(url: str) -> None:
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    async with asyncio.timeout(60), connected(url) as observer:
        while not await observer.fetchval(waiting):
            pass


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"])
async def test_who_has_waited_finds_the_store_made_whatever_the_engine_isolates(
    new_database: NewDatabase, isolation: str
) -> None:
    url = new_database()
    async with (
        making(url) as finish,
        engine_on(url, isolation_level=isolation) as engine,
        engine.connect() as connection,
    ):
        waiter = asyncio.create_task(connection.run_sync(prepare_postgres, PLACE))
        await until_somebody_waits(url)
        await finish()
        assert await waiter == CURRENT


@pytest.mark.parametrize(
    ("busy_timeout", "settings"),
    [(0.05, {}), (None, {"lock_timeout": "50ms"}), (None, {"statement_timeout": "500ms"})],
    ids=["busy_timeout", "lock_timeout", "statement_timeout"],
)
async def test_a_timeout_while_another_makes_the_store_is_store_busy(
    new_database: NewDatabase, busy_timeout: float | None, settings: dict[str, str]
) -> None:
    url = new_database()
    async with making(url) as finish:
        await raises(StoreBusy, prepare(url, busy_timeout, **settings))
        await finish()
        # Without them: on a busy machine any statement may take longer.
        assert await prepare(url) == CURRENT


# -- older and newer ------------------------------------------------------------------------------------------------


async def test_an_older_database_is_upgraded_without_loss(new_database: NewDatabase, later: Path) -> None:
    url, right = new_database(), new_database()
    await run_script(url, OLDER)
    lanes = await query(url, "SELECT * FROM lanes ORDER BY lane_id")
    assert await prepare(url) == CURRENT
    assert (await query(url, "SELECT * FROM lanes ORDER BY lane_id"), len(lanes)) == (lanes, 2)
    assert await query(url, "SELECT what FROM kept") == [("a year of work",)]
    await prepare(right)
    await run_script(right, "CREATE TABLE kept (what TEXT)")
    assert await contents(url) == await contents(right)
    assert await prepare(url) == UPGRADED


INSERT_SESSION = """
INSERT INTO sessions (session_key, id, tree_id, scope, title, kind, task_depth, revision, metadata, entry_count,
                      message_count, spent_tokens, spent_cost, created_at, updated_at)
VALUES ({0}, 's{0}', {0}, '', {1}, 'root', 0, 0, '{{}}', 0, 0, 0, 0, 1, 1)
"""


async def current_store(url: str) -> None:
    await run_script(url, MADE_BY_HAND)
    await run_script(url, INSERT_SESSION.format(1, "'red'") + ";" + INSERT_SESSION.format(2, "NULL"))


async def test_a_store_with_rows_is_upgraded_to_a_later_format(new_database: NewDatabase, later: Path) -> None:
    url = new_database()
    await current_store(url)
    columns = "id, title, metadata, created_at"
    before = await query(url, f"SELECT {columns} FROM sessions ORDER BY id")
    done = await prepare(url)
    assert (done.found, await stamp(url)) == (FORMAT_VERSION, LATER_FORMAT)
    assert await query(url, f"SELECT {columns} FROM sessions ORDER BY id") == before
    assert await query(url, "SELECT id, colour FROM sessions ORDER BY id") == [("s1", "blue"), ("s2", None)]
    assert await query(url, "SELECT version_num FROM alembic_version") == [(REVISION,)]
    assert (await prepare(url)).found == LATER_FORMAT


async def test_the_printed_upgrade_does_the_same_as_opening(new_database: NewDatabase, later: Path) -> None:
    opened, by_hand = new_database(), new_database()
    for url in (opened, by_hand):
        await current_store(url)
    await prepare(opened)
    script = ddl.upgrade_sql("postgresql", FORMAT_VERSION)
    assert script.index(f"UPDATE flue_store SET value = {LATER_FORMAT}") < script.index("ALTER TABLE sessions")
    await run_script(by_hand, script)
    assert (await prepare(by_hand)).found == LATER_FORMAT
    assert await contents(by_hand) == await contents(opened)
    rows = "SELECT s::text FROM sessions s ORDER BY id"
    assert await query(by_hand, rows) == await query(opened, rows)


async def test_an_upgrade_that_is_killed_in_between_leaves_the_store_as_it_was(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """The process ends where all rows are changed and nothing is committed."""
    url = new_database()
    await current_store(url)
    before = await contents(url)
    rows = await query(url, "SELECT s::text FROM sessions s ORDER BY id")
    folder = tmp_path / "migrations"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", AS_LATER.format(str(folder)) + OPEN, url],
        cwd=ROOT,
        env={**os.environ, "FLUE_TESTS_KILL": "1"},
        input="\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-9, "connected\n"), done.stderr
    assert await prepare(url) == CURRENT
    assert await contents(url) == before
    assert await query(url, "SELECT s::text FROM sessions s ORDER BY id") == rows
    with later_version(folder):
        assert await prepare(url) == CURRENT
        assert await prepare(url) == UPGRADED


@pytest.mark.parametrize("number", [0, 3])
async def test_a_format_of_before_the_first_release_is_refused_before_any_write(
    new_database: NewDatabase, number: int
) -> None:
    url = new_database()
    await prepare(url)
    await run_script(url, f"UPDATE flue_store SET value = {number} WHERE name = 'format'")
    before = await contents(url)
    with pytest.raises(StoreUnavailable, match=f"format {number}, which only versions before the first release made"):
        await prepare(url, default_transaction_read_only="on")
    assert await contents(url) == before


@pytest.mark.parametrize("found", [0, -1, 1, ddl.FIRST_FORMAT - 1, FORMAT_VERSION + 1])
def test_an_upgrade_from_a_format_that_there_is_not_is_not_printed(found: int) -> None:
    with pytest.raises(InvalidArgument, match=f"format {found} "):
        ddl.upgrade_sql("postgresql", found)


async def test_the_next_format_is_refused_before_any_write(new_database: NewDatabase) -> None:
    url = new_database()
    await prepare(url)
    await run_script(url, f"UPDATE flue_store SET value = {FORMAT_VERSION + 1} WHERE name = 'format'")
    before = await contents(url)
    # Whoever writes, fails; whoever locks, waits.
    async with connected(url) as other, other.transaction():
        await other.execute(ddl.LOCK_STATEMENT)
        with pytest.raises(FormatTooNew, match=f"format {FORMAT_VERSION + 1}"):
            await prepare(url, 0.05, default_transaction_read_only="on")
    assert await contents(url) == before


async def test_a_format_that_became_newer_meanwhile_is_refused_too(new_database: NewDatabase, later: Path) -> None:
    url = new_database()
    await run_script(url, OLDER)
    before = await catalog(url)
    async with connected(url) as other, engine_on(url) as engine, engine.connect() as connection:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(ddl.LOCK_STATEMENT)
        waiter = asyncio.create_task(connection.run_sync(prepare_postgres, PLACE))
        await until_somebody_waits(url)
        await other.execute(f"UPDATE flue_store SET value = {LATER_FORMAT + 1} WHERE name = 'format'")
        await transaction.commit()
        with pytest.raises(FormatTooNew):
            await waiter
    assert await catalog(url) == before


@pytest.mark.parametrize("stamped", [OLDER, ""], ids=["older", "new"])
async def test_a_failure_leaves_everything_as_it_was(
    new_database: NewDatabase, later: Path, stamped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    if stamped:
        await run_script(url, f"{stamped}; CREATE TABLE ix_sessions_colour (in_the_way TEXT)")
    before = await catalog(url)
    statements = [*ddl.schema_statements("postgresql"), "CREATE TABLE history (in_the_way TEXT)"]
    monkeypatch.setattr(postgres_format, "schema_statements", lambda _: statements)
    if stamped:
        await raises(CorruptStore, prepare(url), match=f"cannot be upgraded from format {FORMAT_VERSION}")
        assert await stamp(url) == FORMAT_VERSION
    else:
        await raises(StoreUnavailable, prepare(url), match="42P07")
    assert await catalog(url) == before


async def test_an_upgrade_stopped_from_outside_does_not_blame_the_store(new_database: NewDatabase, later: Path) -> None:
    url = new_database()
    await run_script(url, OLDER)
    await run_script(url, "GRANT CREATE ON SCHEMA public TO pg_monitor; GRANT SELECT ON flue_store TO pg_monitor")
    await raises(StoreUnavailable, prepare(url, role="pg_monitor"), match="privilege")
    async with connected(url) as other, other.transaction():
        await other.execute("LOCK TABLE flue_store IN SHARE MODE")
        await raises(StoreBusy, prepare(url, 0.05))
    assert await stamp(url) == FORMAT_VERSION


# -- what is not a store --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        ("CREATE TABLE flue_store (name TEXT, value BIGINT)", NotAStore),
        ("CREATE TABLE flue_store (what TEXT)", NotAStore),
        ("CREATE TABLE flue_store (name INTEGER, value BIGINT)", NotAStore),
        (
            "CREATE TABLE flue_store (name TEXT, value TEXT); INSERT INTO flue_store VALUES ('format', 'one')",
            CorruptStore,
        ),
        (
            "CREATE TABLE flue_store (name TEXT, value BIGINT); INSERT INTO flue_store VALUES ('format', NULL)",
            CorruptStore,
        ),
    ],
)
async def test_a_stamp_that_tells_no_format_is_refused(
    new_database: NewDatabase, theirs: str, error: type[Exception]
) -> None:
    url = new_database()
    await run_script(url, theirs)
    before = await catalog(url)
    await raises(error, prepare(url), match=r"flue_store|stamp")
    assert await catalog(url) == before


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE sessions (id TEXT)",
        "CREATE TABLE alembic_version (version_num VARCHAR(32))",
        "CREATE VIEW history AS SELECT 1 AS one",
        "CREATE TABLE x (y TEXT); CREATE INDEX ix_sessions_tree_id ON x (y)",
    ],
)
async def test_another_programs_tables_by_our_names_are_refused_and_untouched(
    new_database: NewDatabase, theirs: str
) -> None:
    url = new_database()
    await run_script(url, theirs)
    before = await catalog(url)
    await raises(NotAStore, prepare(url), match=r"(?s)another program.*search_path")
    assert await catalog(url) == before


async def test_other_tables_of_another_program_are_no_obstacle(new_database: NewDatabase) -> None:
    url = new_database()
    await run_script(url, "CREATE TABLE orders (id BIGINT)")
    assert await prepare(url) == MADE
    assert await prepare(url) == CURRENT


async def test_a_schema_of_its_own_is_had_in_either_way_that_the_message_names(new_database: NewDatabase) -> None:
    url = new_database()
    await run_script(url, "CREATE TABLE sessions (id TEXT); CREATE SCHEMA flue; CREATE SCHEMA other")
    before = await catalog(url)
    assert await prepare(url, search_path="flue") == MADE
    assert await stamp(url, "flue") == FORMAT_VERSION
    database = make_url(url).database
    await run_script(url, f'ALTER ROLE CURRENT_USER IN DATABASE "{database}" SET search_path = other')
    try:
        assert await prepare(url) == MADE
        assert await prepare(url) == CURRENT
    finally:
        await run_script(url, f'ALTER ROLE CURRENT_USER IN DATABASE "{database}" RESET ALL')
    assert await catalog(url, "other") == await catalog(url, "flue")
    assert await catalog(url) == before


async def test_schemas_do_not_wait_for_each_other(new_database: NewDatabase) -> None:
    url = new_database()
    await run_script(url, 'CREATE SCHEMA "Odd ""name"""')
    async with making(url):
        assert await prepare(url, 0.05, search_path='"Odd ""name"""') == MADE
    assert await prepare(url) == MADE


async def test_alembics_table_of_another_program_further_on_in_the_search_path_is_left_alone(
    new_database: NewDatabase, later: Path
) -> None:
    url = new_database()
    theirs = "CREATE TABLE alembic_version (version_num VARCHAR(32)); INSERT INTO alembic_version VALUES ('theirs')"
    await run_script(url, f"{theirs}; CREATE SCHEMA flue")
    await run_script(url, OLDER, "flue")
    assert await prepare(url, search_path="flue, public") == CURRENT
    assert await query(url, "SELECT version_num FROM alembic_version", "flue") == [(ddl.HEAD,)]
    assert await query(url, "SELECT version_num FROM alembic_version") == [("theirs",)]


# -- what cannot hold a store ---------------------------------------------------------------------------------------


@asynccontextmanager
async def other_database(url: str, options: str) -> AsyncIterator[str]:
    """Make another database beside the one that is given, and drop it in the end."""
    parsed = make_url(url)
    name = f"{parsed.database}_other"
    async with connected(url) as connection:
        await connection.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' {options}")
        try:
            yield parsed.set(database=name).render_as_string(hide_password=False)
        finally:
            await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_is_not_in_utf8_is_refused(new_database: NewDatabase, encoding: str) -> None:
    async with other_database(new_database(), f"ENCODING '{encoding}'") as url:
        await raises(StoreUnavailable, prepare(url), match=rf"{encoding}.*UTF8")
        assert (await catalog(url))["relations"] == []


async def test_opening_a_store_says_why_it_cannot_be_made(new_database: NewDatabase) -> None:
    async with other_database(new_database(), "ENCODING 'LATIN1'") as url:
        with pytest.raises(StoreUnavailable, match=r"LATIN1.*UTF8"):
            async with flue_py.open(url):
                pass


async def test_an_old_server_is_refused(new_database: NewDatabase) -> None:
    url = new_database()

    def on_an_old_server(connection: Connection) -> None:
        connection.dialect.server_version_info = (14, 9)
        prepare_postgres(connection, PLACE)

    async with engine_on(url) as engine, engine.connect() as connection:
        await raises(StoreUnavailable, connection.run_sync(on_an_old_server), match=r"14\.9.* 15 ")
    assert (await catalog(url))["relations"] == []


async def test_a_read_only_server_opens_what_is_current_and_says_of_others_what_to_do(
    new_database: NewDatabase, later: Path
) -> None:
    empty, older, current = (new_database() for _ in range(3))
    await run_script(older, OLDER)
    await prepare(current)
    for url in (empty, older):
        before = await catalog(url)
        await raises(StoreUnavailable, prepare(url, default_transaction_read_only="on"), match=r"read-only.*primary")
        assert await catalog(url) == before
    assert await prepare(current, default_transaction_read_only="on") == UPGRADED


async def test_a_role_without_the_right_to_make_tables_is_told_of_the_printed_sql(new_database: NewDatabase) -> None:
    url = new_database()
    with pytest.raises(StoreUnavailable, match=r"pg_read_all_data may not make tables in the schema public.*--sql"):
        await prepare(url, role="pg_read_all_data")
    await run_script(url, ddl.creation_sql("postgresql"))
    assert await prepare(url, role="pg_read_all_data") == CURRENT
    await raises(StoreUnavailable, prepare(url, role="pg_monitor"), match="privilege")


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scale.md"


async def test_the_grants_that_the_documentation_names_are_enough_to_work(new_database: NewDatabase) -> None:
    (grants,) = re.findall(r"^```pgsql\n(GRANT .+?)```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    url = new_database()
    await run_script(url, "CREATE SCHEMA flue")
    await run_script(url, ddl.creation_sql("postgresql"), "flue")
    settings = {"role": "pg_monitor", "search_path": "flue"}
    await raises(StoreUnavailable, prepare(url, **settings))
    await run_script(url, grants.replace(" TO app", " TO pg_monitor"), "flue")
    async with engine_on(url, settings) as engine, flue_py.open(engine=engine) as store:
        session = await store.create_session(key="a")
        await session.append_message({"role": "user", "content": "hello"})
        await session.undo()
        assert (await store.verify()).problems == []
        await store.delete_session_tree(session.id)
        assert await query(url, "SELECT count(*) FROM entries", "flue") == [(0,)]


async def test_a_search_path_without_a_schema_is_refused(new_database: NewDatabase) -> None:
    await raises(StoreUnavailable, prepare(new_database(), search_path="no_such_schema"), match="CREATE SCHEMA")


# -- by URL ---------------------------------------------------------------------------------------------------------


async def test_a_url_is_migrated_on_a_connection_of_its_own(new_database: NewDatabase) -> None:
    url = new_database()
    assert (await migrate.migrate(url)).found is None
    assert (await migrate.migrate(url)).found == FORMAT_VERSION


async def test_what_cannot_be_reached_is_unavailable_and_its_password_is_not_told(new_database: NewDatabase) -> None:
    missing = make_url(new_database()).set(database="no such database")
    missing = missing.update_query_dict({"password": "hunter2"})
    nowhere = "postgresql+asyncpg://app:hunter2@/app?host=/nonexistent/folder"
    for url in (missing.render_as_string(hide_password=False), nowhere):
        raised = await raises(StoreUnavailable, migrate.migrate(url))
        assert "hunter2" not in str(raised.value)


async def test_a_url_that_cannot_be_read_is_refused_without_telling_its_password() -> None:
    raised = await raises(InvalidArgument, migrate.migrate("postgresql+asyncpg://app:hunter2@host:port/app"))
    assert "hunter2" not in str(raised.value)


async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    await raises(MissingExtra, migrate.migrate("postgresql+asyncpg:///app"), match=r"flue-py\[postgres\]")
