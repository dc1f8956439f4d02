"""Bringing a database to the current format: stamped first, refused when newer, migrated when older.

A new database is made from the schema in one transaction; an older one is backed up beside itself and upgraded by
alembic. Both happen under the write lock, so that of two processes one does it and the other finds it done.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from flue_py.errors import CorruptStore, NotAStore, StoreUnavailable
from flue_py.lazy import lazy_module
from flue_py.store.files.private import Part
from flue_py.store.schema.ddl import (
    Migrated,
    RunAlembic,
    checked_stamp,
    run_migrations,
    schema_statements,
    stamp_statements,
)
from flue_py.store.schema.stamp import FORMAT_VERSION
from flue_py.store.seam import Durability
from flue_py.store.sqlite.file import (
    BUSY_POLL_MS,
    begin_immediate,
    check_magic,
    commit,
    connect,
    make_private_file,
    translated,
)
from flue_py.store.sqlite.journal import WAL, is_shared_memory_missing, journal_mode, leave_wal, try_wal, use_wal
from flue_py.store.sqlite.owner import require_not_inherited, require_not_lost
from flue_py.store.sqlite.page_copy import copy_into

if TYPE_CHECKING:
    import sqlalchemy
else:
    # Needed for a file of an older format only.
    sqlalchemy = lazy_module("sqlalchemy")

Prepare: TypeAlias = Callable[[sqlite3.Connection, Path, float], Migrated]


def open_file(path: Path, durability: Durability, busy_timeout: float, *, create: bool = True) -> sqlite3.Connection:
    """Return a connection to a database file of the current format, made private, created or upgraded as needed.

    Raises `NotAStore`, `FormatTooNew`, `StoreUnavailable`, `StoreBusy`, `CorruptStore`.
    """
    return _open(path, durability, busy_timeout, create=create)[0]


def _open(
    path: Path, durability: Durability, busy_timeout: float, *, create: bool, prepare: Prepare | None = None
) -> tuple[sqlite3.Connection, Migrated]:
    prepare = prepare or prepare_database
    if create:
        make_private_file(path)
    check_magic(path)
    require_not_inherited(path)
    require_not_lost(path)
    with translated(path):
        try:
            return _connect_and_prepare(path, durability, busy_timeout, prepare)
        except (sqlite3.OperationalError, StoreUnavailable) as error:
            if not is_shared_memory_missing(error):
                raise
        leave_wal(path)
        return _connect_and_prepare(path, durability, busy_timeout, prepare)


def _connect_and_prepare(
    path: Path, durability: Durability, busy_timeout: float, prepare: Prepare
) -> tuple[sqlite3.Connection, Migrated]:
    # Whoever is just making or upgrading the database holds a lock that even reading has to wait for.
    connection = connect(path, durability, read_only=False, timeout=busy_timeout)
    try:
        done = prepare(connection, path, busy_timeout)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_POLL_MS}")
    except BaseException:
        connection.close()
        raise
    return connection, done


def prepare_database(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> Migrated:
    """Bring a SQLite database to the current format; return what was done.

    Raises `FormatTooNew`, `NotAStore`, `CorruptStore`; driver errors as they are. O(1) where it is current: five
    reads, no write.
    """
    found = format_of(connection, path)
    if found == FORMAT_VERSION:
        try_wal(connection, path, busy_timeout)
        return Migrated(str(path), found)
    _ask_for_wal(connection, path, busy_timeout)
    begin_immediate(connection, busy_timeout)
    try:
        found = format_of(connection, path)
        if found is None:
            create_tables(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    commit(connection, busy_timeout)
    if found is not None and found != FORMAT_VERSION:
        return _upgrade(connection, path, found, busy_timeout)
    return Migrated(str(path), found)


def _ask_for_wal(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Switch to a write-ahead log where the file system has what it takes."""
    if journal_mode(connection) != WAL:
        # The switch cannot be waited for, nor made inside a transaction.
        begin_immediate(connection, busy_timeout)
        connection.execute("COMMIT")
        use_wal(connection, path, busy_timeout)


def format_of(connection: sqlite3.Connection, path: Path) -> int | None:
    """Return the stamped format, or None for an empty database.

    Raises `NotAStore` for somebody else's, `FormatTooNew`, `CorruptStore`.
    """
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "flue_store" not in tables:
        raise NotAStore(f"{path} is a SQLite database of another program; name another file")
    row = connection.execute("SELECT value FROM flue_store WHERE name = 'format'").fetchone()
    if row is None:
        raise NotAStore(f"{path} has no format stamp; it is not a database of flue_py")
    return checked_stamp(row[0], str(path))


def create_tables(connection: sqlite3.Connection) -> None:
    """Make a new store of an empty database, inside the transaction that is open: the stamp first, then the tables."""
    for statement in stamp_statements():
        connection.execute(statement)
    for statement in schema_statements():
        connection.execute(statement)


def backup_path(path: Path, found: int) -> Path:
    """Return a free name beside the database for its backup before a migration."""
    number = 0
    while True:
        candidate = path.with_name(f"{path.name}.format-{found}{f'-{number}' if number else ''}.bak")
        if not os.path.lexists(candidate):
            return candidate
        number += 1


def _upgrade(connection: sqlite3.Connection, path: Path, found: int, busy_timeout: float) -> Migrated:
    """Back an older database up, then run the migrations that it lacks, in one transaction."""
    return _in_alembic(lambda target, _: run_migrations(target), connection, path, found, busy_timeout)


def _in_alembic(
    run: RunAlembic, connection: sqlite3.Connection, path: Path, found: int | None, busy_timeout: float
) -> Migrated:
    """Have alembic work on a database in one transaction, which holds the write lock; return what was found.

    An empty database is stamped before, one that lacks migrations is backed up. Raises `CorruptStore` where alembic
    fails; nothing was changed then.
    """
    backup: Path | None = None
    try:
        engine = _engine_on(connection)
        sqlalchemy.event.listen(engine, "begin", lambda _: begin_immediate(connection, busy_timeout))
        with engine.begin() as target:
            now = format_of(connection, path)
            if now is None:
                for statement in stamp_statements():
                    connection.execute(statement)
            elif now != FORMAT_VERSION:
                backup = _back_up(path, now, busy_timeout)
            run(target, None)
    except (sqlalchemy.exc.SQLAlchemyError, CorruptStore) as error:
        kept = f"; a backup is at {backup}" if backup is not None else ""
        raise CorruptStore(
            f"{path} cannot be upgraded from format {found}, and is as it was ({error}){kept}"
        ) from error
    except BaseException:
        # What was refused has changed nothing, so there is nothing to restore.
        if backup is not None:
            backup.unlink()
        raise
    return Migrated(str(path), now, backup)


def _engine_on(connection: sqlite3.Connection) -> sqlalchemy.Engine:
    """Return an engine of one connection, which it neither closes nor resets."""
    return sqlalchemy.create_engine(
        "sqlite://", creator=lambda: connection, poolclass=sqlalchemy.StaticPool, pool_reset_on_return=None
    )


def _back_up(path: Path, found: int, busy_timeout: float) -> Path:
    """Copy an older database beside itself while this process holds its write lock; return where the copy is.

    Under the lock, since of two processes that upgrade at once only one is to make a backup, and one that is made
    before it may lack what was written meanwhile.
    """
    backup = backup_path(path, found)
    with Part(backup) as part:
        # A connection that is writing cannot be copied from; another one reads what was committed before.
        with closing(connect(path, "full", read_only=True, timeout=busy_timeout)) as source:
            copy_into(source, part.path)
        part.publish()
    return backup


def migrate_file(path: Path, busy_timeout: float) -> Migrated:
    """Bring a file to the current format, made where there is none; return what was done. Raises as `open_file`."""
    connection, done = _open(path, "full", busy_timeout, create=True)
    connection.close()
    return done


def migrate_file_with(run: RunAlembic, path: Path, busy_timeout: float, *, reads_only: bool) -> None:
    """Call ``run`` with a connection to a file that alembic is to work on, as `migrate_file` would, and no schema.

    Where alembic only looks, nothing is made or changed. Raises as `migrate_file`, and what ``run`` raises.
    """
    if not reads_only:
        _open(path, "full", busy_timeout, create=True, prepare=partial(_prepare_with, run))[0].close()
        return
    check_magic(path)
    require_not_lost(path)
    with translated(path), closing(connect(path, "full", read_only=True, timeout=busy_timeout)) as connection:
        format_of(connection, path)
        with _engine_on(connection).connect() as target:
            run(target, None)


def _prepare_with(run: RunAlembic, connection: sqlite3.Connection, path: Path, busy_timeout: float) -> Migrated:
    found = format_of(connection, path)
    _ask_for_wal(connection, path, busy_timeout)
    return _in_alembic(run, connection, path, found, busy_timeout)
