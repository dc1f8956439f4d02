"""Bringing the database of a path or a URL to the current format, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flue_py.db.files import make_private_folder
from flue_py.db.runner import Transaction, require_asyncio, waiting_here
from flue_py.db.schema import Dialect, Migrated, RunAlembic
from flue_py.db.sqlite import runner as read_only
from flue_py.db.sqlite.file import SqliteTransaction, migrate_file, migrate_file_with
from flue_py.db.waiting import Waiting
from flue_py.errors import InvalidArgument, MissingExtra
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
    import sqlite3

    import sqlalchemy

    from flue_py.db.postgres import runner
else:
    asyncio = lazy_module("asyncio")
    # SQLAlchemy is needed for a URL only; PostgreSQL needs the extra.
    sqlalchemy = lazy_module("sqlalchemy")
    runner = lazy_module("flue_py.db.postgres.runner")


def dialect_of(target: str) -> Dialect:
    """Return the dialect of a database named by a path or URL. Raises `InvalidArgument` where it is none of ours."""
    scheme, separator, _ = target.partition("://")
    if target in (":memory:", "memory://"):
        raise InvalidArgument("a store in memory is made anew each time, in the current format; name a file or a URL")
    if not separator or scheme == "sqlite+aiosqlite":
        return "sqlite"
    if scheme == "postgresql+asyncpg":
        return "postgresql"
    raise InvalidArgument(f"{scheme}:// is neither sqlite+aiosqlite:// nor postgresql+asyncpg://; write it in full")


async def migrate(target: str, *, busy_timeout: float = 30.0, waiting: Waiting | None = None) -> Migrated:
    """Bring the database of a path or URL to the current format, made where there is none; return both formats.

    Waits ``busy_timeout`` seconds for locks of others, and for a file as ``waiting`` says (None: as the loop does).
    Raises as opening it does.
    """
    if dialect_of(target) == "postgresql":
        return await _on_postgres(target, busy_timeout)
    return await (waiting or waiting_here()).call(partial(migrate_file, path_of(target), busy_timeout))


async def look_at(target: str, *, busy_timeout: float = 30.0) -> Migrated:
    """Return where the database of a path or URL is, and its format, None where there is no store; only read.

    Blocks on a file. Raises as opening it does.
    """
    if dialect_of(target) == "sqlite":
        path = path_of(target)
        return Migrated(str(path), read_only.stored_format(path, busy_timeout))
    return await _on_postgres(target, busy_timeout, partial(runner.prepare_with, _nothing, True))


async def _on_postgres(target: str, busy_timeout: float, prepare: runner.Prepare | None = None) -> Migrated:
    if find_spec("asyncpg") is None:
        raise MissingExtra("postgres", "postgresql+asyncpg://")
    require_asyncio("postgresql+asyncpg://")
    return await runner.migrate_url(target, busy_timeout=busy_timeout, prepare=prepare or runner.prepare_postgres)


def _nothing(*_: object) -> None:
    """Stand in for alembic in a database that is only looked at."""


def path_of(target: str) -> Path:
    """Return the file of a path or of a URL of SQLite. Raises `InvalidArgument` where that names none."""
    if "://" not in target:
        return Path(target)
    try:
        name = sqlalchemy.make_url(target).database
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise InvalidArgument(f"{target!r} is not a database URL; write sqlite+aiosqlite:///FILE") from error
    if not name or name == ":memory:" or name.startswith("file:"):
        raise InvalidArgument(f"{target}: name a file")
    return Path(name)


@contextmanager
def transaction_on(connection: sqlalchemy.Connection) -> Iterator[Transaction]:
    """Lend a connection on which alembic works as a transaction of ours, for a migration that computes.

    Bytes that are no text are read as surrogates: the entry that has them is damaged, and the upgrade goes on.
    """
    borrowed = connection.connection
    if connection.dialect.name != "sqlite":
        yield runner.PostgresTransaction(runner.Connection(borrowed))
        return
    driver: sqlite3.Connection = cast("sqlite3.Connection", borrowed.driver_connection)
    driver.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        yield SqliteTransaction(driver)
    finally:
        driver.text_factory = str


def named_dialect(target: str) -> Dialect:
    """Return the dialect of a database as `dialect_of`, also if its URL names another driver of it, or none."""
    scheme, separator, _ = target.partition("://")
    dialects: dict[str, Dialect] = {"sqlite": "sqlite", "postgresql": "postgresql"}
    return dialects.get(scheme.partition("+")[0] if separator else "") or dialect_of(target)


def migrate_with(run: RunAlembic, target: str, *, reads_only: bool, busy_timeout: float = 30.0) -> None:
    """Call ``run`` with a connection on which alembic is to work, as `migrate` would: locked, checked, backed up.

    Where alembic only looks (``reads_only``), nothing is made or changed. It blocks. Raises as `migrate`.
    """
    target = _with_driver(target)
    if dialect_of(target) == "sqlite":
        path = path_of(target)
        if not reads_only:
            make_private_folder(path.parent)
        migrate_file_with(run, path, busy_timeout, reads_only=reads_only)
        return
    asyncio.run(_on_postgres(target, busy_timeout, partial(runner.prepare_with, run, reads_only)))


def _with_driver(target: str) -> str:
    """Return a URL of SQLite with our driver: people write alembic's with the standard one, or with none."""
    scheme, separator, rest = target.partition("://")
    return f"sqlite+aiosqlite://{rest}" if separator and scheme in ("sqlite", "sqlite+pysqlite") else target
