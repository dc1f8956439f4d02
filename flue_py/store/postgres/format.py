"""Bringing a PostgreSQL database to the current format: stamped first, refused when newer, migrated when older.

The tables are in the first schema of the connection's search path. A store is made or upgraded in one transaction,
which begins by waiting for an advisory lock: of two processes one does it, and the other finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from flue_py.errors import (
    CorruptStore,
    FlueError,
    InvalidArgument,
    NotAStore,
    StoreBusy,
    StoreUnavailable,
)
from flue_py.store.postgres.errors import DRIVER_ERRORS, is_lost_connection, sqlstate_of, translate
from flue_py.store.schema.ddl import (
    LOCK_STATEMENT,
    Migrated,
    RunAlembic,
    checked_stamp,
    relation_names,
    run_migrations,
    schema_statements,
    stamp_statements,
)
from flue_py.store.schema.stamp import FORMAT_VERSION

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

OLDEST_SERVER = 15
_SHORTEST_CONNECT = 1.0
NO_PRIVILEGE = "42501"
OUTSIDE = frozenset({NO_PRIVILEGE, "25006", "53100", "53200"})
"""What stops an upgrade from outside, whatever is stored: no right, read-only, a full disk, no memory."""

# Not to_regclass: what it has once not found, it goes on not finding after a wait for an advisory lock.
_READ_PLACE = """\
SELECT current_schema(), EXISTS (
         SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          WHERE n.nspname = current_schema() AND c.relname = 'flue_store')"""
_READ_STAMP = "SELECT value FROM flue_store WHERE name = 'format'"
_READ_SETTINGS = """\
SELECT current_setting('transaction_read_only') = 'on', current_setting('server_encoding'),
       has_schema_privilege(current_schema(), 'CREATE'), current_user"""
_READ_RELATIONS = """\
SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_schema() ORDER BY c.relname"""

_OWN_SCHEMA = (
    "give the store a schema of its own: CREATE SCHEMA flue, then ALTER ROLE ... SET search_path = flue, or open it "
    "with engine=create_async_engine(..., connect_args={'server_settings': {'search_path': 'flue'}})"
)


def prepare_postgres(connection: Connection, location: str, busy_timeout: float | None = None) -> Migrated:
    """Bring the database of a connection, on which nothing has been executed yet, to the current format.

    It begins and ends its transactions itself, at READ COMMITTED whatever the engine's own level, and returns what was
    done. ``busy_timeout`` is how many seconds to wait for a lock of others; by default as long as the server is set to.
    Raises `FormatTooNew`, `NotAStore`, `CorruptStore`, `StoreUnavailable` (nothing that can be stored in, or no right
    to), `StoreBusy` (a timeout while another process makes or upgrades it); what raises has changed nothing. O(1)
    where the format is current: two reads, no write, no lock.
    """
    # In a snapshot taken before the wait for the lock, what the other process made would not be seen.
    connection.execution_options(isolation_level="READ COMMITTED")
    with _translated(location):
        with connection.begin():
            _, found = _look(connection, location)
        if found == FORMAT_VERSION:
            return Migrated(location, found)
        with _locked(connection, busy_timeout):
            schema, found = _look(connection, location)
            if found != FORMAT_VERSION:
                _require_suitable(connection, location, schema)
                if found is None:
                    _create(connection, location, schema)
                else:
                    _upgrade(connection, location, schema, found)
    return Migrated(location, found)


@contextmanager
def _locked(connection: Connection, busy_timeout: float | None) -> Iterator[None]:
    """Surround a transaction that makes or upgrades a store, once nobody else does."""
    with connection.begin():
        if busy_timeout is not None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, int(busy_timeout * 1000))}")
        connection.exec_driver_sql(LOCK_STATEMENT)
        yield


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """Turn errors of the driver into ours, with the cause chained."""
    try:
        yield
    except FlueError:
        raise
    except DRIVER_ERRORS as error:
        # What the driver raises while it connects, SQLAlchemy hands on as it is.
        raise translate(error, location) from error


def _look(connection: Connection, location: str) -> tuple[str, int | None]:
    """Return the schema a store would be in, and the format it is stamped with, None where there is none.

    Raises `NotAStore` for somebody else's table, `FormatTooNew`, `CorruptStore`.
    """
    schema, is_there = connection.exec_driver_sql(_READ_PLACE).one()
    if schema is None:
        raise StoreUnavailable(f"{location}: the search_path names no schema that exists; CREATE SCHEMA first")
    if not is_there:
        return schema, None
    try:
        row = connection.exec_driver_sql(_READ_STAMP).first()
    except DBAPIError as error:
        # A column is missing, or of a type that cannot be compared with text.
        if (sqlstate_of(error) or "").startswith(("22", "42")) and sqlstate_of(error) != NO_PRIVILEGE:
            raise NotAStore(
                f"{location}: the table flue_store in the schema {schema} is another program's; {_OWN_SCHEMA}"
            ) from error
        raise
    if row is None:
        raise NotAStore(f"{location}: the table flue_store in the schema {schema} has no format stamp; {_OWN_SCHEMA}")
    return schema, checked_stamp(row[0], location)


def _require_suitable(connection: Connection, location: str, schema: str) -> None:
    """Raise `StoreUnavailable` where this server, database or role does not let one make or upgrade a store."""
    version = connection.dialect.server_version_info or ()
    is_read_only, encoding, may_create, role = connection.exec_driver_sql(_READ_SETTINGS).one()
    if version < (OLDEST_SERVER,):
        number = ".".join(str(part) for part in version)
        raise StoreUnavailable(f"{location} is PostgreSQL {number}; a store needs {OLDEST_SERVER} or later")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{location} is encoded in {encoding}, which cannot hold every text; "
            "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0, and name that"
        )
    if is_read_only:
        raise StoreUnavailable(
            f"{location} has no store of format {FORMAT_VERSION}, and none can be made or upgraded there: it is "
            "read-only (a standby, or default_transaction_read_only); open the primary server once"
        )
    if not may_create:
        raise StoreUnavailable(
            f"{location}: the role {role} may not make tables in the schema {schema}; GRANT CREATE ON SCHEMA {schema} "
            f"TO {role}, or let a role that may run what flue-py migrate --sql prints"
        )


def _create(connection: Connection, location: str, schema: str) -> None:
    """Make a new store inside the transaction that is open: the stamp first, then the tables."""
    _stamp(connection, location, schema)
    for statement in schema_statements("postgresql"):
        connection.exec_driver_sql(statement)


def _stamp(connection: Connection, location: str, schema: str) -> None:
    """Stamp a schema for a new store. Raises `NotAStore` if another program has tables by the names of ours."""
    taken = relation_names().intersection(connection.exec_driver_sql(_READ_RELATIONS).scalars())
    if taken:
        raise NotAStore(
            f"{location}: in the schema {schema} another program has tables by a store's names "
            f"({', '.join(sorted(taken))}); {_OWN_SCHEMA}"
        )
    for statement in stamp_statements("postgresql"):
        connection.exec_driver_sql(statement)


def _upgrade(
    connection: Connection, location: str, schema: str, found: int | None, run: RunAlembic = run_migrations
) -> None:
    """Run the migrations that a store lacks, inside the transaction that is open."""
    try:
        run(connection, schema)
    except (SQLAlchemyError, CorruptStore) as error:
        ours = translate(error, location)
        if isinstance(ours, StoreBusy) or sqlstate_of(error) in OUTSIDE or is_lost_connection(error):
            raise ours from error
        raise CorruptStore(f"{location} cannot be upgraded from format {found}, and is as it was ({error})") from error


def prepare_with(
    run: RunAlembic, reads_only: bool, connection: Connection, location: str, busy_timeout: float | None = None
) -> Migrated:
    """Call ``run`` where `prepare_postgres` would migrate, on a store of any format or on a new one; return as it does.

    Where alembic only looks, nothing is made or changed, and it is called for a store alone.
    """
    connection.execution_options(isolation_level="READ COMMITTED")
    with _translated(location):
        with connection.begin():
            schema, found = _look(connection, location)
            if reads_only:
                if found is not None:
                    run(connection, schema)
                return Migrated(location, found)
        with _locked(connection, busy_timeout):
            schema, found = _look(connection, location)
            if found != FORMAT_VERSION:
                _require_suitable(connection, location, schema)
            if found is None:
                _stamp(connection, location, schema)
            _upgrade(connection, location, schema, found, run)
    return Migrated(location, found)


Prepare: TypeAlias = Callable[["Connection", str, float | None], Migrated]


async def migrate_url(target: str, *, busy_timeout: float, prepare: Prepare = prepare_postgres) -> Migrated:
    """Do as `prepare_postgres` does to the database of a URL, on a connection of its own.

    Raises `InvalidArgument`, too.
    """
    try:
        engine = create_async_engine(
            target, poolclass=NullPool, connect_args={"timeout": connect_seconds(busy_timeout)}
        )
    except (ArgumentError, ValueError) as error:
        raise InvalidArgument("the URL of the database cannot be read; write postgresql+asyncpg://...") from error
    location = location_of(engine.url)
    try:
        with _translated(location):
            async with engine.connect() as connection:
                return await connection.run_sync(prepare, location, busy_timeout)
    except (TypeError, OverflowError) as error:
        # The driver takes the parts of a URL as arguments of its own.
        raise InvalidArgument(f"{location}: the driver does not understand a part of this URL") from error


def connect_seconds(busy_timeout: float) -> float:
    """Return how long to wait for a connection: as long as for a lock (by itself the driver waits a minute)."""
    return max(busy_timeout, _SHORTEST_CONNECT)


def location_of(url: URL) -> str:
    """Return a URL without its secrets, of which the query may hold some too."""
    shown = {name: value for name, value in url.query.items() if name in ("host", "port")}
    return url.set(query=shown).render_as_string(hide_password=True)
