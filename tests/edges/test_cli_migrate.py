"""The migrate command: what it does to a database, and the SQL it prints instead."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from flue_py.db import schema as ddl
from flue_py.db.schema import FORMAT_VERSION
from flue_py.errors import FixTheSetup
from tests.edges.cli_runs import Flue
from tests.migrations.later import LATER_FORMAT, later_version
from tests.migrations.postgres_catalog import contents
from tests.postgres import NewDatabase, refuse
from tests.postgres_server import find_binaries
from tests.tables import inputs


@pytest.fixture
def on_postgres(flue: Flue, new_database: NewDatabase) -> Flue:
    flue.database = new_database()  # type: ignore[assignment]
    return flue


@pytest.fixture
def older(flue: Flue, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a store of the current format, and let the test run as the later version does; return the backup to come."""
    flue.run("migrate")
    with later_version(tmp_path_factory.mktemp("later") / "migrations"):
        yield flue.database.with_name(f"{flue.database.name}.format-{FORMAT_VERSION}.bak")


def test_a_file_is_made_for_its_owner_alone_and_left_alone_afterwards(flue: Flue) -> None:
    flue.database = flue.folder / "new" / "sessions.db"
    assert flue.lines("migrate") == [f"{flue.database}: created, format {FORMAT_VERSION}"]
    assert flue.database.stat().st_mode & 0o777 == 0o600
    assert flue.database.parent.stat().st_mode & 0o777 == 0o700
    before = flue.database.read_bytes()
    said = f"{flue.database}: format {FORMAT_VERSION} is the current one; nothing was changed"
    assert flue.lines("migrate") == [said]
    assert flue.database.read_bytes() == before
    assert flue.json("sessions") == []


def test_an_older_file_is_upgraded_and_the_backup_is_named(flue: Flue, older: Path) -> None:
    said = f"{flue.database}: upgraded from format {FORMAT_VERSION} to {LATER_FORMAT}; a backup is at {older}"
    assert flue.lines("migrate") == [said]
    assert older.exists()
    assert flue.json("sessions") == []


def test_json_says_the_same_for_programs(flue: Flue, older: Path) -> None:
    common = {"location": str(flue.database), "formatVersion": LATER_FORMAT}
    upgraded = {"did": "upgraded", "fromFormat": FORMAT_VERSION, "backup": str(older)}
    assert flue.json("migrate") == {**common, **upgraded}
    assert flue.json("migrate") == {**common, "did": "nothing", "fromFormat": LATER_FORMAT, "backup": None}
    flue.database.unlink()
    assert flue.json("migrate") == {**common, "did": "created", "fromFormat": None, "backup": None}


@pytest.mark.parametrize("command", [("migrate",), ("sessions",), ("info",), ("backup", "copy.db"), ("verify",)])
def test_a_file_of_before_the_first_release_is_refused_in_a_line(flue: Flue, command: tuple[str, ...]) -> None:
    flue.run("migrate")
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.execute("UPDATE flue_store SET value = 2 WHERE name = 'format'")
        connection.commit()
    (line,) = flue.run(*command, code=1).stderr.splitlines()
    assert "has format 2, which only versions before the first release made" in line
    assert "export its sessions with the version that made it, and import them" in line


def test_a_sqlite_url_is_the_file_it_names(flue: Flue) -> None:
    file = flue.database
    flue.database = f"sqlite+aiosqlite:///{file}"  # type: ignore[assignment]
    assert flue.lines("migrate") == [f"{file}: created, format {FORMAT_VERSION}"]
    assert flue.run("migrate", "--sql").stdout == ddl.creation_sql("sqlite")


def test_a_newer_file_is_refused(flue: Flue) -> None:
    flue.run("migrate")
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.execute("UPDATE flue_store SET value = 99 WHERE name = 'format'")
        connection.commit()
    assert "format 99" in flue.run("migrate", code=1).stderr


@inputs(
    ("target", "message"),
    [
        (":memory:", "a store in memory"),
        ("memory://", "a store in memory"),
        ("postgresql://host/db", "postgresql+asyncpg://"),
        ("mysql://host/db", "postgresql+asyncpg://"),
    ],
)
@inputs("options", [(), ("--sql",)], ids=["migrate", "sql"])
def test_what_has_no_format_is_refused(flue: Flue, target: str, message: str, options: tuple[str, ...]) -> None:
    flue.database = target  # type: ignore[assignment]
    assert message in flue.run("migrate", *options, code=1).stderr
    assert list(flue.folder.iterdir()) == []


@inputs("target", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
def test_a_sqlite_url_without_a_file_is_refused(flue: Flue, target: str) -> None:
    flue.database = target  # type: ignore[assignment]
    assert "name a file" in flue.run("migrate", code=1).stderr


# -- the printed SQL --------------------------------------------------------------------------------------------------


def test_the_printed_sql_makes_a_file_that_is_current(flue: Flue) -> None:
    script = flue.run("migrate", "--sql").stdout
    assert not flue.database.exists()
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.executescript(script)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert flue.json("migrate")["did"] == "nothing"
    assert flue.json("sessions") == []
    by_opening = Flue(flue.folder / "opened")
    by_opening.run("migrate")
    dumps = []
    for path in (flue.database, by_opening.database):
        with closing(sqlite3.connect(path)) as connection:
            dumps.append(sorted("".join(line.split()) for line in connection.iterdump()))
    assert dumps[0] == dumps[1]


def test_sql_for_postgresql_is_printed_without_driver_or_server(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    flue.database = "postgresql+asyncpg://app:secret@nowhere.invalid/app"  # type: ignore[assignment]
    script = flue.run("migrate", "--sql").stdout
    assert script == ddl.creation_sql("postgresql")
    assert "secret" not in script


def test_the_printed_sql_applied_by_psql_makes_a_store_that_is_current(
    on_postgres: Flue, new_database: NewDatabase
) -> None:
    try:
        psql = find_binaries() / "psql"
    except FixTheSetup as error:
        refuse(f"psql: {error}")
    by_hand = new_database()
    address = make_url(by_hand).set(drivername="postgresql").render_as_string(hide_password=False)
    subprocess.run(
        [psql, "-X", "-v", "ON_ERROR_STOP=1", "-d", address],
        input=on_postgres.run("migrate", "--sql").stdout,
        capture_output=True,
        text=True,
        check=True,
    )
    on_postgres.run("migrate")
    assert asyncio.run(contents(by_hand)) == asyncio.run(contents(str(on_postgres.database)))
    on_postgres.database = by_hand  # type: ignore[assignment]
    assert on_postgres.json("migrate")["did"] == "nothing"


def test_an_upgrade_is_printed_from_the_format_that_is_named(flue: Flue, older: Path) -> None:
    said = f"-- Format {LATER_FORMAT} is the current one: there is nothing to do.\n"
    assert flue.run("migrate", "--sql", "--from", str(LATER_FORMAT)).stdout == said
    for number in (99, 1):
        assert f"format {number} is not one" in flue.run("migrate", "--sql", "--from", str(number), code=1).stderr
    script = flue.run("migrate", "--sql", "--from", str(FORMAT_VERSION)).stdout
    assert f"UPDATE flue_store SET value = {LATER_FORMAT} WHERE name = 'format';" in script
    assert "CREATE TABLE sessions" not in script
    with closing(sqlite3.connect(flue.database)) as connection:
        connection.executescript(script)
    assert flue.json("migrate")["did"] == "nothing"


def test_options_that_make_no_sense_together_are_refused(flue: Flue) -> None:
    assert "--sql" in flue.run("migrate", "--from", "1", code=2).stderr
    assert "--json" in flue.run("migrate", "--sql", "--json", code=2).stderr
    for option in ("--sql", "--json", "--from=1"):
        assert "--ini" in flue.run("migrate", "--ini", option, code=2).stderr
    assert not flue.database.exists()


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_database_on_postgresql_is_made_and_left_alone_afterwards(on_postgres: Flue) -> None:
    first, second = on_postgres.lines("migrate"), on_postgres.lines("migrate")
    assert first[0].endswith(f": created, format {FORMAT_VERSION}")
    assert second[0].endswith(f": format {FORMAT_VERSION} is the current one; nothing was changed")
    assert first[0].startswith("postgresql+asyncpg://")


def test_a_server_that_cannot_be_reached_is_one_line_without_the_password(flue: Flue) -> None:
    flue.database = "postgresql+asyncpg://app:secret@/app?host=/nonexistent/folder"  # type: ignore[assignment]
    errors = flue.run("migrate", code=1).stderr
    assert len(errors.splitlines()) == 1
    assert "secret" not in errors


# -- the commands against damage --------------------------------------------------------------------------------------


def flip_a_digest(flue: Flue, session: str) -> str:
    """Damage the last entry of a session's path in the file; return its id."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(flue.database)) as connection:
        sql = "SELECT e.id, e.digest FROM entries e JOIN sessions s ON s.leaf = e.id WHERE s.id = ?"
        entry_id, digest = connection.execute(sql, (session,)).fetchone()
    data = bytearray(flue.database.read_bytes())
    data[data.index(digest)] ^= 1
    flue.database.write_bytes(data)
    return str(entry_id)


def test_a_backup_says_what_it_holds(flue: Flue) -> None:
    session = flue.import_every_type()
    target = flue.folder / "backup.db"
    (line,) = flue.lines("backup", str(target))
    size = target.stat().st_size
    assert line.startswith(f"{target}: 1 session, ")
    assert line.endswith(f"{size:,} bytes, verified")
    again = flue.run("backup", str(target), code=1)
    assert again.stderr == f"Error: {target} is there already; name another file, or remove it\n"
    done = flue.json("backup", str(target), "--overwrite", "--no-verify")
    assert done == {
        "path": str(target), "sizeBytes": size, "sessions": 1, "entries": done["entries"], "verified": False,
    }  # fmt: skip
    flue.database = target
    assert [row["id"] for row in flue.json("sessions")] == [session]


def test_a_backup_of_a_damaged_database_is_refused(flue: Flue) -> None:
    entry_id = flip_a_digest(flue, flue.import_every_type())
    result = flue.run("backup", str(flue.folder / "backup.db"), code=1)
    assert f"entry {entry_id}" in result.stderr
    assert not (flue.folder / "backup.db").exists()


def test_an_undamaged_database_is_salvaged_whole(flue: Flue) -> None:
    session = flue.import_every_type()
    new = flue.folder / "new.db"
    (line,) = flue.lines("salvage", str(flue.database), str(new))
    assert line.endswith("0 damaged pages: everything is as it was")
    context = flue.json("context", session)
    flue.database = new
    assert flue.json("context", session) == context


def test_what_is_lost_is_named_and_the_exit_code_says_so(flue: Flue) -> None:
    session = flue.import_every_type()
    entry_id = flip_a_digest(flue, session)
    first, second, *_ = flue.run("salvage", str(flue.database), str(flue.folder / "1.db"), code=3).stdout.splitlines()
    assert first == f"lost entry: session {session}, entry {entry_id}: its payload does not match its digest"
    assert second.startswith(f"changed leaf: session {session}, entry {entry_id}: ")
    report = flue.json("salvage", str(flue.database), str(flue.folder / "2.db"), code=3)
    assert report["complete"] is False
    assert report["lost"] == [
        {"what": "entry", "sessionId": session, "entryId": entry_id, "detail": "its payload does not match its digest"}
    ]
    assert [change["what"] for change in report["changed"]][:1] == ["leaf"]
    flue.database = flue.folder / "2.db"
    assert flue.json("verify")["problems"] == []


def test_a_long_list_of_losses_is_cut_short_for_people(flue: Flue) -> None:
    flue.import_real()
    data = bytearray(flue.database.read_bytes())
    for start in range(20 * 4096, 90 * 4096, 4096):
        data[start : start + 4096] = bytes(4096)
    flue.database.write_bytes(data)
    lines = flue.run("salvage", str(flue.database), str(flue.folder / "new.db"), code=3).stdout.splitlines()
    assert len(lines) <= 43
    assert any(line.endswith(" more were lost; --json tells all") for line in lines)


def test_what_cannot_be_salvaged_is_one_line(flue: Flue) -> None:
    text = flue.write([b"no database"], "text")
    assert "text" in flue.run("salvage", str(text), str(flue.folder / "new.db"), code=1).stderr
    flue.import_every_type()
    assert "is there already" in flue.run("salvage", str(flue.database), str(text), code=1).stderr
