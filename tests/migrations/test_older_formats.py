"""A database of an older format is upgraded without loss: every read answers as the code of that format did."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flue_py.core.jsontext import decode_object, to_json
from flue_py.core.sessions import STORED, NewSession
from flue_py.store.backend import Backend
from flue_py.store.engine import open_engine
from flue_py.store.migrate import migrate as migrate_database
from flue_py.store.schema import ddl
from flue_py.store.schema.stamp import FORMAT_VERSION
from flue_py.store.seam import Sources
from flue_py.store.sqlite import migrate
from flue_py.store.sqlite.runner import open_sqlite
from flue_py.testing.samples import assistant, session_info, talk
from flue_py.testing.sources import StepSources
from tests.edges.cli_runs import Flue
from tests.migrations.older_formats import CLAUDE_SESSION, INFO_FIELDS, OLDER_FORMATS, TASKS, answers, recorded, unpack
from tests.migrations.postgres_catalog import catalog, contents, query, run_script
from tests.migrations.test_migrations import catalog as file_catalog
from tests.migrations.test_migrations import make_by_schema, stamp
from tests.postgres import NewDatabase, connected

if TYPE_CHECKING:
    from flue_py.core.jsontext import JsonObject

pytestmark = pytest.mark.anyio


@pytest.fixture(params=OLDER_FORMATS)
def number(request: pytest.FixtureRequest) -> int:
    """An older format."""
    found: int = request.param
    return found


@pytest.fixture
def old(number: int, tmp_path: Path) -> Path:
    """A database of an older format."""
    return unpack(number, tmp_path / "old.db")


def later() -> Sources:
    """Time and ids that older formats had not used up."""
    steps = StepSources()
    steps.begin_step()
    return steps.sources


async def answers_of(path: Path, number: int) -> JsonObject:
    backend = await open_sqlite(path, sources=later())
    try:
        return await answers(backend, number)
    finally:
        await backend.close()


def expected_of(number: int) -> JsonObject:
    """What the code of a format answered; but sessions of sub-agents, which were roots then, are tasks now.

    And forks see the labels and pins of their source on the path they share.
    """
    expected: dict[str, Any] = recorded(number)
    if number > 2:
        return expected
    for task in TASKS if number == 2 else ():
        info = expected["sessions"][task]["info"]
        assert info[INFO_FIELDS.index("kind")] == "root"
        info[INFO_FIELDS.index("kind")] = "task"
    sources = {name: session["marks"] for name, session in expected["sessions"].items()}
    for session in expected["sessions"].values():
        source, point = (session["info"][INFO_FIELDS.index(f"forked_from_{what}")] for what in ("session", "entry"))
        parents = {entry[0]: entry[1] for entry in session["tree"]}
        shared = set()
        while point is not None:
            shared.add(point)
            point = parents[point]
        seen = [mark for mark in sources.get(source, ()) if mark[0] in shared and mark[1] != "retracted"]
        session["marks"] = sorted([*session["marks"], *seen])
    assert any(mark[1] == "label" for mark in expected["sessions"]["session-0009"]["marks"])
    return expected


async def test_everything_answers_as_it_did_and_verifies_clean(old: Path, number: int) -> None:
    found = await answers_of(old, number)
    assert found["store"] == {1: [11, 35, 17, True], 2: [17, 52, 20, True], 3: [17, 56, 22, True]}[number]
    assert found == expected_of(number)
    assert (stamp(old), FORMAT_VERSION) == (4, 4)


@pytest.mark.parametrize("number", [1, 2])
async def test_of_older_tasks_nobody_knows_how_they_ended(old: Path) -> None:
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        assert set(connection.execute("SELECT status, summary FROM task_links")) == {(None, None)}


@pytest.mark.parametrize("number", [1, 2])
async def test_of_older_tasks_what_was_stored_and_what_links_say_is_shown_once(old: Path) -> None:
    backend = await open_sqlite(old, sources=later())
    try:
        stored = {"role": "reviewer", "parentSession": "session-0001", "taskId": "review", "depth": 1}
        lint: JsonObject = {"session": "session-0011", "taskId": "lint", "storageKey": "session-0011"}
        info = await session_info(backend, "session-0010")
        assert info.metadata == {**stored, "taskSessions": [lint]}
        assert decode_object(info.metadata_text) == stored
        # Its metadata were replaced, so that the link alone says whose task it is.
        assert (await session_info(backend, "session-0003")).metadata == {
            "a": 1, "parentSession": "session-0001", "taskId": "task", "depth": 1,
        }  # fmt: skip
        changed = await backend.update_session(info.id, metadata_text=to_json({**info.metadata, "b": 2}).decode())
        assert (changed.metadata, decode_object(changed.metadata_text)) == (
            {**info.metadata, "b": 2},
            {**stored, "b": 2},
        )
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


async def test_a_backup_of_the_older_format_is_made_and_is_what_was_there(old: Path, number: int) -> None:
    before = list(rows_of(old).items())
    await answers_of(old, number)
    (backup,) = old.parent.glob("*.bak")
    assert (backup.name, stamp(backup)) == (f"old.db.format-{number}.bak", number)
    assert list(rows_of(backup).items()) == before


def test_an_upgraded_file_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    migrate.open_file(old, "full", 5).close()
    make_by_schema(tmp_path / "new.db")
    assert file_catalog(old) == file_catalog(tmp_path / "new.db")


def test_the_printed_upgrade_does_the_same_to_a_file_as_opening(old: Path, number: int, tmp_path: Path) -> None:
    by_hand = unpack(number, tmp_path / "by-hand.db")
    flue = Flue(tmp_path)
    flue.database = by_hand
    script = flue.run("migrate", "--sql", "--from", str(number)).stdout
    first = "ALTER TABLE sessions" if number < 3 else "CREATE TABLE documents"
    assert script.index(f"UPDATE flue_store SET value = {FORMAT_VERSION}") < script.index(first)
    with closing(sqlite3.connect(by_hand)) as connection:
        connection.executescript(script)
    migrate.open_file(old, "full", 5).close()
    assert rows_of(by_hand) == rows_of(old)
    assert file_catalog(by_hand) == file_catalog(old)
    assert flue.json("migrate")["did"] == "nothing"


async def test_who_paid_is_known_by_tree_and_calls_without_a_price_are_counted(tmp_path: Path) -> None:
    old = unpack(1, tmp_path / "old.db")
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE ledger SET cost = NULL WHERE session_key = 1")
        connection.execute("UPDATE sessions SET spent_cost = 0 WHERE session_key = 1")
        connection.commit()
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        payers = connection.execute("SELECT session_key, tree_id FROM ledger_sessions ORDER BY 1").fetchall()
        assert payers == connection.execute("SELECT DISTINCT session_key, tree_id FROM ledger ORDER BY 1").fetchall()
        (calls,) = connection.execute("SELECT COUNT(*) FROM ledger WHERE session_key = 1").fetchone()
        unpriced = dict(connection.execute("SELECT session_key, unpriced_calls FROM sessions").fetchall())
    assert calls > 1
    assert unpriced.pop(1) == calls
    assert set(unpriced.values()) == {0}


@pytest.mark.parametrize("number", [1, 2])
async def test_calls_of_which_nothing_was_understood_are_unknown_usage(number: int, tmp_path: Path) -> None:
    old = unpack(number, tmp_path / "old.db")
    kinds = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning", "total")
    zeros = ", ".join(f"{kind}_tokens = 0" for kind in kinds)
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"UPDATE ledger SET {zeros}, cost = NULL, price_source = NULL WHERE session_key = 1")
        (calls,) = connection.execute("SELECT COUNT(*) FROM ledger WHERE session_key = 1").fetchone()
        connection.execute("UPDATE sessions SET spent_cost = 0, spent_tokens = 0 WHERE session_key = 1")
        if number == 2:
            connection.execute("UPDATE sessions SET unpriced_calls = ? WHERE session_key = 1", (calls,))
        connection.commit()
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        unknown = dict(connection.execute("SELECT session_key, unknown_calls FROM sessions"))
        assert connection.execute("SELECT SUM(unknown) FROM ledger WHERE session_key <> 1").fetchone() == (0,)
    assert (calls > 1, unknown.pop(1), set(unknown.values())) == (True, calls, {0})


def test_the_last_activity_is_that_of_the_newest_entry_and_sub_agents_are_tasks(tmp_path: Path) -> None:
    old = unpack(2, tmp_path / "old.db")
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        newest = dict(connection.execute("SELECT session_key, MAX(created_at) FROM entries GROUP BY 1"))
        rows = connection.execute("SELECT session_key, id, kind, created_at, active_at FROM sessions").fetchall()
        slots = connection.execute("SELECT active_slot, active_at >> 22 FROM sessions").fetchall()
        depths = dict(connection.execute("SELECT id, task_depth FROM sessions WHERE kind = 'task'"))
    assert [active for *_, active in rows] == [newest.get(key, created) for key, _, _, created, _ in rows]
    assert all(slot == of_time for slot, of_time in slots)
    assert {active for _, name, _, _, active in rows if name == CLAUDE_SESSION} == {1_768_348_805_000_000}
    assert {name for _, name, kind, *_ in rows if kind == "task" and not name.startswith("session-")} == set(TASKS)
    assert [depths[name] for name in TASKS] == [1, 1, 2, 1]


def test_what_only_looks_like_the_name_of_a_parent_makes_no_task(tmp_path: Path) -> None:
    old = unpack(2, tmp_path / "old.db")
    header = '{"imported":{"format":"codex","version":"","header":{"parentSession":"x"}}}'
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE sessions SET metadata = ? WHERE id = 'lonely'", (header,))
        connection.commit()
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT kind FROM sessions WHERE id = 'lonely'").fetchone() == ("root",)


def test_what_was_paid_for_and_by_is_derived_from_what_is_there(tmp_path: Path) -> None:
    old = unpack(2, tmp_path / "old.db")
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE sessions SET cwd = '/work' WHERE key = 'main'")
        connection.execute("UPDATE sessions SET cwd = '' WHERE kind = 'fork'")
        connection.commit()
    migrate.open_file(old, "full", 5).close()
    with closing(sqlite3.connect(old)) as connection:
        asked = (
            "SELECT s.id, s.cwd, n.project, g.agent, COUNT(*) FROM ledger g JOIN ledger_sessions n USING (session_key)"
            " JOIN sessions s USING (session_key) GROUP BY 1, 2, 3, 4"
        )
        rows = connection.execute(asked).fetchall()
    assert all(project == (folder or None) for _, folder, project, _, _ in rows)
    assert {"/work", "/w", None} == {project for _, _, project, _, _ in rows}
    imported = {name: agent for name, _, _, agent, _ in rows if agent is not None}
    assert imported == {CLAUDE_SESSION: "claude-code", TASKS[0]: "claude-code"}


async def test_an_upgraded_store_goes_on(old: Path) -> None:
    backend = await open_sqlite(old, sources=later())
    try:
        await goes_on(backend)
    finally:
        await backend.close()


async def goes_on(backend: Backend) -> None:
    """Write to an upgraded store in every way, and see that it stays whole."""
    page = await backend.list_sessions(scope="s", kind="root", limit=10, cursor=None)
    (main,) = (session for session in page.sessions if session.key == "main")
    paid = await backend.append(main.id, [*talk(2, start=50), assistant("more", tokens=4, dollars=2.0)])
    fork = await backend.fork(main.id, paid.entry_ids[0], NewSession(id="made later"))
    await backend.undo(main.id)
    await backend.redo(main.id)
    await backend.update_session(fork.id, title="later")
    assert (await session_info(backend, main.id)).leaf_id == paid.leaf_id
    assert (await backend.verify()).problems == []
    for session in (await backend.list_sessions(scope=None, kind=None, limit=100, cursor=None)).sessions:
        await backend.delete_tree(session.id)
    assert (await backend.info()).entries == 0
    assert (await backend.verify()).problems == []


async def test_a_retry_of_what_was_asked_before_is_recognised(old: Path) -> None:
    backend = await open_sqlite(old, sources=later())
    try:
        (fork,) = [
            session
            for session in (await backend.list_sessions(scope=None, kind="fork", limit=100, cursor=None)).sessions
            if session.title == "Another try"
        ]
        again = await backend.append(fork.id, talk(6, start=10), expected=STORED, idempotency_key="six")
        assert (again.replayed, len(again.entry_ids)) == (True, 6)
    finally:
        await backend.close()


# -- PostgreSQL -----------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of every table of a file."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}


def columns_of(path: Path) -> dict[str, list[str]]:
    """Return the columns of every table of a file, which on PostgreSQL may be in another order."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")] for table in tables}


async def fill(url: str, old: Path, number: int) -> None:
    """Make the schema of a format in an empty database of PostgreSQL, with the rows of a file."""
    await run_script(url, ddl.alembic_sql("postgresql", ddl.REVISIONS[number]))
    tables = rows_of(old)
    columns = columns_of(old)
    state = dict(tables.pop("flue_store"))
    tables.pop("alembic_version")
    async with connected(url) as connection:
        referred = ("sessions", *(["budgets"] if "budgets" in tables else []))
        for table in (*referred, *(name for name in tables if name not in referred)):
            await connection.copy_records_to_table(table, columns=columns[table], records=tables[table])
        if "number" in columns["ledger"]:
            counted = "pg_get_serial_sequence('ledger', 'number'), (SELECT MAX(number) FROM ledger)"
            await connection.execute(f"SELECT setval({counted})")
        await connection.execute("UPDATE flue_store SET value = $1 WHERE name = 'format'", number)
        await connection.execute("UPDATE flue_store SET value = $1 WHERE name = 'epoch'", state["epoch"])


async def test_the_same_rows_on_postgresql_answer_as_they_did(
    new_database: NewDatabase, old: Path, number: int
) -> None:
    url, right = new_database(), new_database()
    await fill(url, old, number)
    before = await catalog(url)
    backend = await open_engine(url, sources=later())
    try:
        assert await answers(backend, number) == expected_of(number)
        assert before != await catalog(url)
        await goes_on(backend)
    finally:
        await backend.close()
    await migrate_database(right)
    assert await catalog(url) == await catalog(right)


async def test_the_printed_upgrade_does_the_same_to_postgresql_as_opening(
    new_database: NewDatabase, old: Path, number: int
) -> None:
    opened, by_hand = new_database(), new_database()
    for url in (opened, by_hand):
        await fill(url, old, number)
    await migrate_database(opened)
    await run_script(by_hand, ddl.upgrade_sql("postgresql", number))
    assert (await migrate_database(by_hand)).found == FORMAT_VERSION
    assert await contents(by_hand) == await contents(opened)
    for table in ("sessions", "ledger", "ledger_sessions", "leaf_moves", "task_links"):
        statement = f"SELECT t::text FROM {table} t ORDER BY 1"
        assert await query(by_hand, statement) == await query(opened, statement)
