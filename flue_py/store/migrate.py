"""Bringing a database to the current format: stamped first, refused when newer, migrated when older.

A new database is made from the schema in one transaction; an older one is backed up beside itself and upgraded by
alembic. Both happen under the write lock, so that of two processes one does it and the other finds it done.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.errors import CorruptStore, FormatTooNew, NotAStore
from flue_py.store.backend import FORMAT_VERSION
from flue_py.store.sqlite_file import (
    APPLICATION_ID,
    BUSY_POLL_MS,
    Durability,
    begin_immediate,
    check_magic,
    connect,
    make_private_file,
    translated,
)

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

HEAD = "0001"
"""The alembic revision of this format."""


def migrations_directory() -> Path:
    """Return where the migrations are: inside an installed wheel, else beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def alembic_config(connection: Connection | None = None, url: str | None = None) -> Config:
    """Return alembic's configuration for this project's migrations; no ini file is involved."""
    from alembic.config import Config  # noqa: PLC0415 - alembic costs half a second and is needed to migrate only

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    if url is not None:
        config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def open_file(path: Path, durability: Durability, busy_timeout: float, *, create: bool = True) -> sqlite3.Connection:
    """Return a connection to a database file of the current format, made private, created or upgraded as needed.

    Raises `NotAStore`, `FormatTooNew`, `StoreUnavailable`, `StoreBusy`, `CorruptStore`.
    """
    if create:
        make_private_file(path)
    check_magic(path)
    # Whoever is just making or upgrading the database holds a lock that even reading has to wait for.
    connection = connect(path, durability, read_only=False, timeout=busy_timeout)
    try:
        with translated(path):
            prepare_database(connection, path, busy_timeout)
            connection.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare_database(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Bring a SQLite database to the current format. Raises `FormatTooNew`, `NotAStore`; driver errors as they are.

    O(1) where it is current: three reads, no write.
    """
    found = _format_of(connection, path)
    if found is not None and found > FORMAT_VERSION:
        raise FormatTooNew(
            f"{path} has format {found}, this flue_py reads up to {FORMAT_VERSION}; upgrade flue_py. "
            "Nothing was read or written"
        )
    if found == FORMAT_VERSION:
        return
    _use_wal(connection, busy_timeout)
    begin_immediate(connection, busy_timeout)
    try:
        found = _format_of(connection, path)
        if found is None:
            _create(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    if found is not None and found < FORMAT_VERSION:
        _upgrade(connection, path, found, busy_timeout)


def _format_of(connection: sqlite3.Connection, path: Path) -> int | None:
    """Return the stamped format, or None for an empty database. Raises `NotAStore` for somebody else's."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "flue_store" not in tables:
        raise NotAStore(f"{path} is a SQLite database of another program; name another file")
    row = connection.execute("SELECT value FROM flue_store WHERE name = 'format'").fetchone()
    if row is None:
        raise NotAStore(f"{path} has no format stamp; it is not a database of flue_py")
    if not isinstance(row[0], int):
        raise CorruptStore(f"{path} has the format stamp {row[0]!r}, which is no number; restore a backup")
    return row[0]


def _use_wal(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Switch to write-ahead logging, which the file remembers; it cannot be done inside a transaction."""
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        begin_immediate(connection, busy_timeout)
        connection.execute("COMMIT")
        # Another process may be doing the same; whoever comes second finds it done.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def _create(connection: sqlite3.Connection) -> None:
    """Make a new database inside the transaction that is open: the stamp first, then the tables."""
    for statement in stamp_statements():
        connection.execute(statement)
    for statement in schema_statements():
        connection.execute(statement)


def stamp_statements() -> list[str]:
    """Return the SQL that stamps an empty SQLite database."""
    return [
        f"PRAGMA application_id = {APPLICATION_ID}",
        """\
CREATE TABLE flue_store (
    name TEXT NOT NULL, value BIGINT NOT NULL, CONSTRAINT pk_flue_store PRIMARY KEY (name)
) WITHOUT ROWID""",
        f"INSERT INTO flue_store (name, value) VALUES ('format', {FORMAT_VERSION}), ('epoch', 0), ('next_key', 1)",
    ]


def schema_statements() -> list[str]:
    """Return the SQL that makes all other tables of the current format in a SQLite database, stamped for alembic."""
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - needed to create a database only
    from sqlalchemy.schema import CreateIndex, CreateTable  # noqa: PLC0415

    from flue_py.store import schema  # noqa: PLC0415

    dialect = sqlite.dialect()
    statements = []
    for table in schema.metadata.sorted_tables:
        if table.name == "flue_store":
            continue
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return [
        *statements,
        schema.HISTORY_VIEW,
        """\
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)""",
        f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')",
    ]


def backup_path(path: Path, found: int) -> Path:
    """Return a free name beside the database for its backup before a migration."""
    number = 0
    while True:
        candidate = path.with_name(f"{path.name}.format-{found}{f'-{number}' if number else ''}.bak")
        if not candidate.exists():
            return candidate
        number += 1


def _upgrade(connection: sqlite3.Connection, path: Path, found: int, busy_timeout: float) -> None:
    """Back an older database up, then run the migrations that it lacks, in one transaction."""
    from sqlalchemy import create_engine, event  # noqa: PLC0415 - needed to migrate only
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    from sqlalchemy.pool import StaticPool  # noqa: PLC0415

    backup = backup_path(path, found)
    backup.touch(mode=0o600)
    connection.execute("VACUUM INTO ?", (str(backup),))
    # The pool must neither close nor reset a connection that belongs to the runner.
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool, pool_reset_on_return=None)
    event.listen(engine, "begin", lambda _: begin_immediate(connection, busy_timeout))
    try:
        with engine.begin() as target:
            if _format_of(connection, path) == found:
                run_migrations(target)
    except SQLAlchemyError as error:
        raise CorruptStore(
            f"{path} cannot be upgraded from format {found}, and is as it was ({error}); a backup is at {backup}"
        ) from error


def run_migrations(connection: Connection) -> None:
    """Run the migrations that a database lacks, in the caller's transaction, and stamp the format it then has."""
    from alembic import command  # noqa: PLC0415 - alembic costs half a second and is needed to migrate only

    command.upgrade(alembic_config(connection), "head")
    connection.exec_driver_sql(f"UPDATE flue_store SET value = {FORMAT_VERSION} WHERE name = 'format'")
