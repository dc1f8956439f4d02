"""alembic's own commands do to a database what opening it does, in a checkout and from an installed package."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from anyio import to_thread

import flue_py
from flue_py.db import schema as ddl
from flue_py.db.migrate import migrate
from flue_py.db.schema import FIRST_FORMAT, FORMAT_VERSION
from tests.checks import raises
from tests.migrations.later import AS_LATER, LATER_FORMAT, REVISION, TODAY, later_version
from tests.migrations.postgres_catalog import catalog as tables_of
from tests.migrations.postgres_catalog import contents, query, run_script
from tests.migrations.test_migrations import catalog, make_by_schema, rows_of, stamp
from tests.postgres import NewDatabase

ROOT = Path(__file__).resolve().parent.parent.parent


def run(folder: Path, *arguments: str, code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run alembic in a process of its own; it must end with ``code``, and print no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=folder,
        env=environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode % 256 == code % 256, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("FLUE_PY_DB", "ALEMBIC_CONFIG")}
    return {**kept, **settings}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder to import from with what a wheel puts there, and nothing of the checkout."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "flue_py", site / "flue_py", ignore=ignored)
    shutil.copytree(ROOT / "migrations", site / "flue_py" / "_migrations", ignore=ignored)
    return site


def version(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT version_num FROM alembic_version")]


def backups(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("*.bak"))


@pytest.mark.thorough
def test_in_a_checkout_alembic_needs_no_ini_file(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    checkout = {"FLUE_PY_DB": str(path), "PYTHONPATH": str(ROOT)}
    assert not list(ROOT.glob("alembic.ini"))
    assert "<base> -> 0001" in run(ROOT, "history", **checkout).stdout
    assert f"'{path}' cannot be read" in run(ROOT, "current", code=-1, **checkout).stderr
    assert not path.exists()

    printed = run(ROOT, "upgrade", "head", "--sql", **checkout).stdout
    assert printed == ddl.alembic_sql("sqlite")
    assert not path.exists()

    assert "Running upgrade  -> 0001" in run(ROOT, "upgrade", "head", **checkout).stderr
    assert run(ROOT, "current", **checkout).stdout == f"{ddl.HEAD} (head)\n"
    make_by_schema(tmp_path / "by-schema.db")
    assert catalog(path) == catalog(tmp_path / "by-schema.db")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.glob("new.db*")] == ["new.db"]
    assert run(ROOT, "check", **checkout).stdout == "No new upgrade operations detected.\n"


@pytest.mark.thorough
def test_an_installed_package_says_where_its_ini_file_is(tmp_path: Path, installed: Path) -> None:
    settings = {"PYTHONPATH": str(installed)}
    told = subprocess.run(
        [sys.executable, "-c", "from flue_py.cli import main; main(prog_name='flue-py')", "migrate", "--ini"],
        cwd=tmp_path,
        env=environment(settings),
        capture_output=True,
        text=True,
        check=True,
    )
    ini = told.stdout.rstrip("\n")
    assert ini == str(installed / "flue_py" / "_migrations" / "alembic.ini")

    url = f"url=sqlite+aiosqlite:///{tmp_path / 'new.db'}"
    run(tmp_path, "-c", ini, "-x", url, "upgrade", "head", **settings)
    assert run(tmp_path, "-c", ini, "-x", url, "current", **settings).stdout == f"{ddl.HEAD} (head)\n"
    by_environment = {**settings, "ALEMBIC_CONFIG": ini, "FLUE_PY_DB": str(tmp_path / "new.db")}
    assert run(tmp_path, "current", **by_environment).stdout == f"{ddl.HEAD} (head)\n"
    history = run(tmp_path, "history", **by_environment).stdout
    assert history.count("->") == len(list((ROOT / "migrations" / "versions").glob("0*.py")))
    on_postgres = run(tmp_path, "-x", "url=postgresql+asyncpg:///app", "upgrade", "head", "--sql", **by_environment)
    assert on_postgres.stdout == ddl.alembic_sql("postgresql")


@pytest.fixture
def config() -> Config:
    """What `alembic.command` takes, of the ini file that is shipped."""
    return Config(str(ROOT / "migrations" / "alembic.ini"))


@pytest.fixture
def later_config(later: Path) -> Config:
    """The same of the later version."""
    return Config(str(later / "alembic.ini"))


def on(config: Config, target: object) -> Config:
    config.set_main_option("sqlalchemy.url", str(target).replace("%", "%%"))
    return config


async def test_a_new_file_is_where_alembic_expects_it(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "new.db"
    printed = config.stdout = io.StringIO()
    async with flue_py.open(path) as store:
        await store.create_session()
    before = catalog(path)
    command.upgrade(on(config, path), "head")
    command.current(config)
    assert printed.getvalue() == f"{ddl.HEAD} (head)\n"
    assert catalog(path) == before
    assert backups(tmp_path) == []


@pytest.mark.parametrize("scheme", ["", "sqlite:///", "sqlite+pysqlite:///", "sqlite+aiosqlite:///"])
async def test_an_older_file_is_backed_up_and_upgraded_without_loss(
    tmp_path: Path, later_config: Config, whole: bytes, scheme: str
) -> None:
    path = tmp_path / "old 100%.db"
    path.write_bytes(whole)
    before = rows_of(path)
    command.upgrade(on(later_config, f"{scheme}{path}"), "head")
    assert (stamp(path), version(path)) == (LATER_FORMAT, [REVISION])
    assert backups(tmp_path) == [f"old 100%.db.format-{FORMAT_VERSION}.bak"]
    backup = tmp_path / f"old 100%.db.format-{FORMAT_VERSION}.bak"
    assert (stamp(backup), rows_of(backup)) == (FORMAT_VERSION, before)
    assert backup.stat().st_mode & 0o777 == 0o600
    after = rows_of(path)
    for session in after["sessions"]:
        del session["colour"]
    assert after == before
    assert (await migrate(str(path))).found == LATER_FORMAT
    async with flue_py.open(path) as store:
        assert (await store.verify()).problems == []


async def test_the_stamp_follows_each_step(tmp_path: Path, later_config: Config) -> None:
    path = tmp_path / "a.db"
    on(later_config, path)
    steps = []
    for revision in ("0001", TODAY, "+1", "head"):
        command.upgrade(later_config, revision)
        steps.append((version(path), stamp(path)))
    formats = [(["0001"], FIRST_FORMAT), ([TODAY], FORMAT_VERSION)]
    assert steps == [*formats, *[([REVISION], LATER_FORMAT)] * 2]
    assert backups(tmp_path) == [f"a.db.format-{number}.bak" for number in (FIRST_FORMAT, FORMAT_VERSION)]
    async with flue_py.open(path) as store:
        assert (await store.verify()).problems == []


@pytest.mark.parametrize("revision", ["+1", f"{TODAY}:+1"])
def test_sql_for_a_step_that_only_a_database_can_tell_is_refused(tmp_path: Path, config: Config, revision: str) -> None:
    with pytest.raises(CommandError, match=r"with --sql|locate"):
        command.upgrade(on(config, tmp_path / "a.db"), revision, sql=True)


def test_sql_of_some_steps_stamps_the_format_they_lead_to(tmp_path: Path, later_config: Config) -> None:
    printed = later_config.output_buffer = io.StringIO()
    command.upgrade(on(later_config, tmp_path / "a.db"), f"{TODAY}:{REVISION}", sql=True)
    assert f"UPDATE flue_store SET value = {LATER_FORMAT} WHERE name = 'format';" in printed.getvalue()
    command.upgrade(later_config, TODAY, sql=True)
    assert f"VALUES ('format', {FORMAT_VERSION})" in printed.getvalue()


@pytest.mark.parametrize("sql", [False, True])
def test_a_stamp_without_its_migration_is_refused(tmp_path: Path, later_config: Config, sql: bool) -> None:
    path = tmp_path / "a.db"
    command.upgrade(on(later_config, path), TODAY)
    before = catalog(path)
    with pytest.raises(CommandError, match=r"stamped by its migrations|with --sql"):
        command.stamp(later_config, f"{TODAY}:head" if sql else "head", sql=sql)
    assert (catalog(path), version(path), stamp(path)) == (before, [TODAY], FORMAT_VERSION)
    assert backups(tmp_path) == []


def test_a_downgrade_is_refused(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "a.db"
    make_by_schema(path)
    before = catalog(path)
    with pytest.raises(NotImplementedError, match="restore the backup"):
        command.downgrade(on(config, path), "base")
    assert (catalog(path), version(path), stamp(path)) == (before, [ddl.HEAD], FORMAT_VERSION)


def test_a_failed_upgrade_leaves_the_file_as_it_was_and_says_where_the_backup_is(
    tmp_path: Path, later_config: Config
) -> None:
    path = tmp_path / "a.db"
    command.upgrade(on(later_config, path), TODAY)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ix_sessions_colour (in_the_way TEXT)")
        connection.commit()
    before = catalog(path)
    words = (
        rf"(?s)cannot be upgraded from format {FORMAT_VERSION}.*a backup is at .*a\.db\.format-{FORMAT_VERSION}\.bak"
    )
    with pytest.raises(CommandError, match=words):
        command.upgrade(later_config, "head")
    assert (catalog(path), stamp(path)) == (before, FORMAT_VERSION)


@pytest.mark.parametrize("to_do", [command.current, lambda config: command.upgrade(config, "head")])
def test_a_newer_format_and_another_programs_database_are_refused_untouched(
    tmp_path: Path, config: Config, to_do: Callable[[Config], None]
) -> None:
    newer, theirs = tmp_path / "newer.db", tmp_path / "theirs.db"
    make_by_schema(newer)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute(f"UPDATE flue_store SET value = {FORMAT_VERSION + 1} WHERE name = 'format'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    for path, message in ((newer, "upgrade flue_py"), (theirs, "another program")):
        before = path.read_bytes()
        with pytest.raises(CommandError, match=message):
            to_do(on(config, path))
        assert path.read_bytes() == before


def test_a_url_of_another_database_and_an_unknown_argument_are_refused(tmp_path: Path, config: Config) -> None:
    with pytest.raises(CommandError, match="mysql:// is neither"):
        command.current(on(config, "mysql://localhost/app"))
    ini = str(ROOT / "migrations" / "alembic.ini")
    done = run(tmp_path, "-c", ini, "-x", "uri=a.db", "current", code=-1, PYTHONPATH=str(ROOT))
    assert "name the database by -x url=" in done.stderr


@pytest.mark.thorough
def test_processes_that_upgrade_at_once_do_it_once(tmp_path: Path, whole: bytes) -> None:
    path, folder = tmp_path / "a.db", tmp_path / "migrations"
    path.write_bytes(whole)
    with later_version(folder):
        pass
    ini = str(folder / "alembic.ini")
    programs = [
        f"from alembic.config import main\nmain(['-c', {ini!r}, 'upgrade', 'head'])",
        f"import asyncio\nfrom flue_py.db.migrate import migrate\nasyncio.run(migrate({str(path)!r}))",
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", AS_LATER.format(str(folder)) + program],
            cwd=ROOT,
            env=environment({"FLUE_PY_DB": str(path)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for program in programs * 2
    ]
    answers = [(process.communicate(timeout=120)[0], process.returncode) for process in processes]
    assert [code for _, code in answers] == [0] * 4, answers
    assert backups(tmp_path) == [f"a.db.format-{FORMAT_VERSION}.bak"]
    assert (version(path), stamp(path)) == ([REVISION], LATER_FORMAT)


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


async def in_thread(run_command: Callable[..., None], config: Config, *arguments: str) -> None:
    """Run a blocking command, which has an event loop of its own."""
    await to_thread.run_sync(run_command, config, *arguments)


async def test_on_postgresql_the_same_commands_lead_to_the_same_tables(
    new_database: NewDatabase, later_config: Config
) -> None:
    config = later_config
    url, right = new_database(), new_database()
    printed = config.stdout = io.StringIO()
    await in_thread(command.current, on(config, url))
    assert printed.getvalue() == ""
    assert (await tables_of(url))["relations"] == []

    await in_thread(command.upgrade, config, TODAY)
    assert await query(url, "SELECT value FROM flue_store WHERE name = 'format'") == [(FORMAT_VERSION,)]
    await in_thread(command.upgrade, config, "head")
    await in_thread(command.current, config)
    assert printed.getvalue() == f"{REVISION} (head)\n"
    assert (await migrate(right)).found is None
    assert await contents(url) == await contents(right)
    assert (await migrate(url)).found == LATER_FORMAT
    async with flue_py.open(url) as store:
        assert (await store.verify()).problems == []


async def test_on_postgresql_what_is_not_ours_is_refused_untouched(
    new_database: NewDatabase, later_config: Config
) -> None:
    config = later_config
    url = new_database()
    on(config, url)
    await run_script(url, "CREATE TABLE sessions (theirs TEXT); CREATE TABLE alembic_version (version_num TEXT)")
    before = await tables_of(url)
    await raises(CommandError, in_thread(command.upgrade, config, "head"), match="another program has tables")
    assert await tables_of(url) == before

    newer = new_database()
    await migrate(newer)
    await run_script(newer, "UPDATE flue_store SET value = 99 WHERE name = 'format'")
    for to_do in (command.current, command.upgrade):
        with pytest.raises(CommandError, match="format 99"):
            await in_thread(to_do, on(config, newer), *(["head"] if to_do is command.upgrade else []))
    old = new_database()
    await run_script(old, ddl.alembic_sql("postgresql", TODAY))
    await raises(CommandError, in_thread(command.stamp, on(config, old), "head"), match="stamped by its migrations")
    assert await query(old, "SELECT version_num FROM alembic_version") == [(TODAY,)]
