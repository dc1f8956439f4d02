"""A runner on PostgreSQL: its errors, upgrades, transactions, planned writes and listener."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util.concurrency import greenlet_spawn

from flue_py.core.json import Frozen
from flue_py.core.sessions import Appended, Problem, SessionInfo, is_storable
from flue_py.core.usage import MAX_AMOUNT
from flue_py.db import sql
from flue_py.db.backend import Backend
from flue_py.db.ops import ledger
from flue_py.db.ops.append import EntryBatch, PlannedAppend
from flue_py.db.ops.base import changed_columns
from flue_py.db.ops.ledger import distinct_calls, ledger_row, paid_by
from flue_py.db.ops.seals import Stated
from flue_py.db.ops.sessions import PlannedFork, get_session
from flue_py.db.runner import (
    Durability,
    IdTaken,
    Insert,
    KeyChanged,
    NeedsSnapshot,
    Nothing,
    Opener,
    Parameters,
    Plan,
    R,
    Row,
    Runner,
    SessionState,
    Sources,
    Statement,
    Transaction,
    Written,
    finished,
)
from flue_py.db.schema import (
    FORMAT_VERSION,
    LOCK_STATEMENT,
    Migrated,
    RunAlembic,
    checked_stamp,
    relation_names,
    run_migrations,
    schema_statements,
    stamp_statements,
)
from flue_py.db.sql import statement
from flue_py.errors import (
    CorruptStore,
    FlueError,
    InvalidArgument,
    NotAStore,
    OutcomeUnknown,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    WrongEventLoop,
)
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from sqlalchemy import URL, PoolProxiedConnection
    from sqlalchemy import Connection as sqlalchemy_Connection

    from flue_py.core import erasure
    from flue_py.db import ops
    from flue_py.db.postgres import words
    from flue_py.db.runner import WordIndex
else:
    # Most programs search nothing, and erase nothing.
    erasure = lazy_module("flue_py.core.erasure")
    ops = lazy_module("flue_py.db.ops")
    words = lazy_module("flue_py.db.postgres.words")


# ---------------------------------------------------------------------------------------------------------------------
# What PostgreSQL and its driver say, as errors of our own: by SQLSTATE, never by text, and never with a secret.

DRIVER_ERRORS = (
    SQLAlchemyError,
    # What the driver says while the pool connects, as SQLAlchemy hands it on.
    AsyncAdapt_asyncpg_dbapi.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

UNIQUE_VIOLATION = "23505"
DIVISION_BY_ZERO = "22012"

# Another transaction was in the way and this one was rolled back: it can simply be run again.
_ROLLED_BACK = frozenset({"40001", "40P01"})

_BUSY = {
    "55P03": "another session holds a lock for longer than lock_timeout",
    "57014": "the statement was cancelled, as after statement_timeout",
    "53300": "the server has no free connection slot",
    "40001": "other transactions were in the way again and again",
    "40P01": "other transactions were in the way again and again",
}
_UNAVAILABLE = {
    "25006": "the server is read-only (a standby, or default_transaction_read_only)",
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "3D000": "the database does not exist",
    "42501": "the role lacks a privilege it needs",
    "28000": "the server refuses this role",
    "28P01": "the server refuses this role's password",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed",
    "57P03": "the server is starting up or shutting down",
}


_GENERATED = {"uq_entries_id_tree_id": "ids", "uq_sessions_id": "session_ids", "uq_budgets_id": "ids"}
"""Unique columns, and the argument of `open` that each is drawn from."""


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE behind an error of the driver or of SQLAlchemy, or None where there is none."""
    for cause in _chain(error):
        state = getattr(cause, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def is_lost_connection(error: BaseException) -> bool:
    """Return whether an error says that the connection is gone, or that none could be made."""
    state = sqlstate_of(error)
    if state is not None:
        return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")
    if isinstance(error, PoolTimeout):
        return False
    # asyncpg reports a connection that closed under it as InterfaceError, without a SQLSTATE.
    return any(
        isinstance(cause, (OSError, EOFError, asyncio.TimeoutError)) or _is_closed_interface(cause)
        for cause in _chain(error)
    )


def _is_closed_interface(error: BaseException) -> bool:
    name = type(error).__name__
    # A connection that the server ends while it is idle is out of step, for asyncpg, until it is seen to be closed.
    return name == "InternalClientError" or (name == "InterfaceError" and "clos" in str(error))


def was_rolled_back(error: BaseException) -> bool:
    """Return whether the server rolled the transaction back for others' sake: a deadlock, a serialization failure."""
    return sqlstate_of(error) in _ROLLED_BACK


def met_taken_id(error: BaseException) -> bool:
    """Return whether a write met an id that the store draws, and that is there already: the next one may be free."""
    return any(getattr(cause, "constraint_name", None) in _GENERATED for cause in _chain(error))


def no_new_id(error: BaseException, location: str, attempts: int) -> FlueError:
    """Return our error for a write that met something unique again and again: an id, or damage, for verify()."""
    names = [name for cause in _chain(error) if isinstance(name := getattr(cause, "constraint_name", None), str)]
    for name in names:
        if name in _GENERATED:
            where = f"({location}: {name})"
            source = _GENERATED[name]
            return InvalidArgument(f"{source}: {attempts} ids in a row are taken {where}; make others, and none twice")
    reason = ", ".join(names) or type(error).__name__
    return CorruptStore(f"{location}: a write contradicts what is stored ({reason}); run verify()")


def translate(error: BaseException, location: str) -> FlueError:
    """Return our error for one of the driver's; the caller chains the cause. Holds no parameter and no secret."""
    if isinstance(error, PoolTimeout):
        return StoreBusy(f"{location}: no connection of the pool came free in time; try again, or raise pool_size")
    state = sqlstate_of(error)
    if state is not None:
        return _by_state(state, location)
    if is_lost_connection(error):
        return StoreUnavailable(f"{location} cannot be reached; is the server running, and is this the right address?")
    return StoreUnavailable(f"{location} cannot be used: {type(getattr(error, 'orig', None) or error).__name__}")


def _by_state(state: str, location: str) -> FlueError:
    if state in _BUSY:
        return StoreBusy(f"{location}: {_BUSY[state]} ({state}); try again")
    if state == "54000":
        # What an index of PostgreSQL holds is at most about 2,700 bytes long.
        return InvalidArgument(f"{location}: a key or an id is too long for the server's index; shorten it ({state})")
    if state in ("42P01", "42703"):
        return NotAStore(f"{location}: a table or column of the store is missing ({state}); run verify(), or migrate")
    if state.startswith("23"):
        return CorruptStore(f"{location}: a write contradicts what is stored ({state}); run verify()")
    if state.startswith("XX"):
        return CorruptStore(f"{location}: the server reports damaged data ({state}); restore a backup")
    why = _UNAVAILABLE.get(state, "the server refused a statement")
    return StoreUnavailable(f"{location} cannot be used: {why} ({state})")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those behind it: SQLAlchemy's ``orig``, and causes."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        cause = queue.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        queue += [getattr(cause, "orig", None), cause.__cause__]


# ---------------------------------------------------------------------------------------------------------------------
# Bringing a PostgreSQL database to the current format: stamped first, refused when newer, migrated when older.
#
# The tables are in the first schema of the connection's search path. A store is made or upgraded in one transaction,
# which begins by waiting for an advisory lock: of two processes one does it, and the other finds it done.

OLDEST_SERVER = 15
_SHORTEST_CONNECT = 1.0
NO_PRIVILEGE = "42501"
OUTSIDE = frozenset({NO_PRIVILEGE, "25006", "53100", "53200"})
"""The errors that stop an upgrade from outside, whatever is stored: no right, read-only, a full disk, no memory."""

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


def prepare_postgres(connection: sqlalchemy_Connection, location: str, busy_timeout: float | None = None) -> Migrated:
    """Bring the database of a connection, on which nothing has been executed yet, to the current format.

    It begins and ends its transactions itself, at READ COMMITTED whatever the engine has, and returns the format
    it found. ``busy_timeout`` is how many seconds to wait for a lock of others; by default as the server is set.
    Raises `FormatTooNew`, `NotAStore`, `CorruptStore`, `StoreUnavailable` (nothing that can be stored in, or no right
    to), `StoreBusy` (a timeout while another process makes or upgrades it); an error has changed nothing. O(1)
    where the format is current: two reads, no write, no lock.
    """
    # In a snapshot taken before the wait for the lock, what the other process made would not be seen.
    connection.execution_options(isolation_level="READ COMMITTED")
    with _translated(location):
        with connection.begin():
            _, stamp = _look(connection, location)
        if stamp == FORMAT_VERSION:
            return Migrated(location, stamp)
        with _locked(connection, busy_timeout):
            schema, stamp = _look(connection, location)
            if stamp != FORMAT_VERSION:
                _require_suitable(connection, location, schema)
                if stamp is None:
                    _create(connection, location, schema)
                else:
                    _upgrade(connection, location, schema, stamp)
    return Migrated(location, stamp)


@contextmanager
def _locked(connection: sqlalchemy_Connection, busy_timeout: float | None) -> Iterator[None]:
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
        # Some of ours are OSErrors too.
        raise
    except DRIVER_ERRORS as error:
        # An error of the driver while it connects, SQLAlchemy hands on as it is.
        raise translate(error, location) from error


def _look(connection: sqlalchemy_Connection, location: str) -> tuple[str, int | None]:
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


def _require_suitable(connection: sqlalchemy_Connection, location: str, schema: str) -> None:
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


def _create(connection: sqlalchemy_Connection, location: str, schema: str) -> None:
    """Make a new store inside the transaction that is open: the stamp first, then the tables."""
    _stamp(connection, location, schema)
    for command in schema_statements("postgresql"):
        connection.exec_driver_sql(command)


def _stamp(connection: sqlalchemy_Connection, location: str, schema: str) -> None:
    """Stamp a schema for a new store. Raises `NotAStore` if another program has tables by the names of ours."""
    taken = relation_names().intersection(connection.exec_driver_sql(_READ_RELATIONS).scalars())
    if taken:
        raise NotAStore(
            f"{location}: in the schema {schema} another program has tables by a store's names "
            f"({', '.join(sorted(taken))}); {_OWN_SCHEMA}"
        )
    for command in stamp_statements("postgresql"):
        connection.exec_driver_sql(command)


def _upgrade(
    connection: sqlalchemy_Connection, location: str, schema: str, stamp: int | None, run: RunAlembic = run_migrations
) -> None:
    """Run the migrations that a store lacks, inside the transaction that is open."""
    try:
        run(connection, schema)
    except (SQLAlchemyError, CorruptStore) as error:
        ours = translate(error, location)
        if isinstance(ours, StoreBusy) or sqlstate_of(error) in OUTSIDE or is_lost_connection(error):
            raise ours from error
        raise CorruptStore(f"{location} cannot be upgraded from format {stamp}, and is as it was ({error})") from error


def prepare_with(
    run: RunAlembic,
    reads_only: bool,
    connection: sqlalchemy_Connection,
    location: str,
    busy_timeout: float | None = None,
) -> Migrated:
    """Call ``run`` where `prepare_postgres` would migrate, on a store of any format or on a new one; return as it does.

    Where alembic only looks, nothing is made or changed, and it is called for a store alone.
    """
    connection.execution_options(isolation_level="READ COMMITTED")
    with _translated(location):
        with connection.begin():
            schema, stamp = _look(connection, location)
            if reads_only:
                if stamp is not None:
                    run(connection, schema)
                return Migrated(location, stamp)
        with _locked(connection, busy_timeout):
            schema, stamp = _look(connection, location)
            if stamp != FORMAT_VERSION:
                _require_suitable(connection, location, schema)
            if stamp is None:
                _stamp(connection, location, schema)
            _upgrade(connection, location, schema, stamp, run)
    return Migrated(location, stamp)


Prepare: TypeAlias = Callable[["sqlalchemy_Connection", str, float | None], Migrated]


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


# ---------------------------------------------------------------------------------------------------------------------
# One connection that listens for all watchers of a store, and comes back when it is lost.
#
# A watched session carries a shared advisory lock for as long as it is watched, by which its writers see that they
# have somebody to notify (`sql.ANNOUNCEMENT`). The lock is taken before the watcher first looks: a writer whose
# commit it might miss holds the lock exclusively until then. Beyond `MAX_LOCKED` sessions, since the server's table
# of locks is not large, watchers look for themselves now and then.

MAX_LOCKED = 256
POLL_SECONDS = 0.25
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_LOCK = f"SELECT pg_advisory_lock_shared(hashtextextended($1::text, {sql.WATCH_SEED}))"
_UNLOCK = f"SELECT pg_advisory_unlock_shared(hashtextextended($1::text, {sql.WATCH_SEED}))"


class Listener:
    """Wakes those who watch a session after each commit to it, by any program."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection[Any]]]) -> None:
        self._connect = connect
        self._connection: asyncpg.Connection[Any] | None = None
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._locked: set[str] = set()
        # A connection does one thing at a time.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_polling = False
        self._closed = False

    async def add(self, session_id: str) -> asyncio.Event:
        """Return an event that is set now, and whenever the session may have changed. Driver errors as they are."""
        event = asyncio.Event()
        event.set()
        async with self._turn:
            if self._connection is None:
                await self._listen()
            if session_id not in self._watchers and len(self._locked) < MAX_LOCKED:
                await self._lock(session_id)
            self._watchers.setdefault(session_id, set()).add(event)
            if session_id not in self._locked and not self._is_polling:
                self._is_polling = True
                self._start(self._poll())
        return event

    async def remove(self, session_id: str, event: asyncio.Event) -> None:
        """Forget a watcher."""
        async with self._turn:
            watchers = self._watchers.get(session_id, set())
            watchers.discard(event)
            if watchers:
                return
            self._watchers.pop(session_id, None)
            if session_id in self._locked:
                self._locked.discard(session_id)
                # A connection that is lost has lost its locks with it.
                with contextlib.suppress(Exception):
                    if self._connection is not None:
                        await self._connection.execute(_UNLOCK, session_id)

    async def close(self) -> None:
        """Wake everybody, for the last time, and let the connection go."""
        self._closed = True
        self._wake_all()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.remove_termination_listener(self._lost)
                with contextlib.suppress(Exception):
                    await connection.close(timeout=5)

    async def _listen(self) -> None:
        """Connect, listen, and lock the watched sessions again."""
        connection = await self._connect()
        try:
            # Watchers wait for a writer's commit, however long it takes.
            await connection.execute("SET lock_timeout = 0; SET statement_timeout = 0; SET idle_session_timeout = 0")
            await connection.add_listener(sql.CHANNEL, self._notified)
            self._connection = connection
            for session_id in sorted(self._locked):
                await self._lock(session_id)
        except BaseException:
            self._connection = None
            connection.terminate()
            raise
        connection.add_termination_listener(self._lost)

    async def _lock(self, session_id: str) -> None:
        assert self._connection is not None
        await self._connection.execute(_LOCK, session_id)
        self._locked.add(session_id)

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        for event in self._watchers.get(str(payload), ()):
            event.set()

    def _lost(self, _connection: object) -> None:
        """Come back. Commits made meanwhile are found by looking, once the locks are held again."""
        self._connection = None
        if not self._closed:
            self._start(self._come_back())

    async def _come_back(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            async with self._turn:
                if self._connection is not None or not self._watchers:
                    break
                # Whatever keeps us away (the server is down, or starting), the watchers' own reads report it.
                with contextlib.suppress(Exception):
                    await self._listen()
                    break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._wake_all()

    async def _poll(self) -> None:
        while unlocked := self._watchers.keys() - self._locked:
            for session_id in unlocked:
                for event in self._watchers[session_id]:
                    event.set()
            await asyncio.sleep(POLL_SECONDS)
        self._is_polling = False

    def _wake_all(self) -> None:
        for watchers in self._watchers.values():
            for event in watchers:
                event.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# ---------------------------------------------------------------------------------------------------------------------
# A transaction on asyncpg, for code that runs in SQLAlchemy's greenlet: each call waits for its answer.

Result = TypeVar("Result")


class Connection:
    """A borrowed connection, as the pool hands it out, and the driver's own under it."""

    def __init__(self, borrowed: PoolProxiedConnection) -> None:
        self._borrowed = borrowed

    @property
    def is_closed(self) -> bool:
        """Whether the driver knows that the connection is gone."""
        return bool(self._borrowed.driver_connection is None or self._borrowed.driver_connection.is_closed())

    def wait_for(self, call: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]) -> Result:
        """Make a call of the driver's and wait for its result."""
        result: Result = self._borrowed.run_async(call)
        return result

    def execute(self, sql: str) -> None:
        """Run a command without parameters."""
        self.wait_for(lambda driver: driver.execute(sql))

    def fetch(self, sql: str, arguments: Sequence[object], make: Callable[[Row], Any] = tuple) -> list[Any]:
        """Run a statement with numbered parameters; return ``make`` of each row."""
        return [make(row) for row in self.wait_for(lambda driver: driver.fetch(sql, *arguments))]


_RANDOM_BITS = 11
_last_key = 0


def _new_key() -> int:
    """Return a key of microseconds and random bits (63 in all, until the year 2112), rising within this process.

    Rows that are made together then lie together in every index; the unique key decides where two are the same.
    """
    global _last_key  # noqa: PLW0603 - what rises within the process has to be remembered by it
    drawn = (time.time_ns() // 1000 << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    _last_key = max(drawn, _last_key + 1)
    return _last_key


# For databases with several writers; both read again afterwards, because what they waited for may have changed.
LOCK_SESSION = statement(tuple[int])("SELECT s.session_key FROM sessions s WHERE s.id = :id FOR UPDATE")
# In order of key, so that two who lock the same sessions do not wait for each other.
LOCK_NAMED = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.id {sql.IN_IDS} ORDER BY s.session_key FOR UPDATE"
)
LOCK_SESSIONS = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.session_key {sql.IN_KEYS} ORDER BY s.session_key FOR UPDATE"
)


class PostgresTransaction(Transaction):
    """A transaction under way, or a run of statements that each stand for themselves.

    ``loose`` says so of a read that may notice that it needs a snapshot. ``locks`` says that sessions are locked before
    they are read for writing; a write without it has to compare the revision it read (see `postgres_plans`).
    """

    def __init__(self, connection: Connection, *, locks: bool = False, loose: bool = False) -> None:
        self.connection = connection
        self.states: dict[str, SessionState] = {}
        # The sessions that were locked, and so perhaps changed.
        self.locked: set[str] = set()
        self._locks = locks
        self._loose = loose

    @property
    def is_alone(self) -> bool:
        return False

    def require_snapshot(self) -> None:
        if self._loose:
            raise NeedsSnapshot

    def lock_sessions(self, keys: Collection[int]) -> None:
        self.rows(LOCK_SESSIONS, keys=json.dumps(sorted(keys)))

    def lock_session(self, session_id: str) -> None:
        if self._locks and session_id not in self.locked:
            self.first(LOCK_SESSION, id=session_id)
            self.locked.add(session_id)

    def lock_named(self, session_ids: Collection[str]) -> None:
        if self._locks:
            names = sorted(session_id for session_id in session_ids if is_storable(session_id))
            self.rows(LOCK_NAMED, ids=json.dumps(names))
            self.locked.update(names)

    def lock_writers_out(self) -> None:
        self.connection.execute("LOCK TABLE sessions IN SHARE ROW EXCLUSIVE MODE")

    def new_key(self) -> int:
        return _new_key()

    def rows(self, statement: Statement[R], /, **parameters: object) -> Sequence[R]:
        return self.connection.fetch(statement.numbered, _arguments(statement, parameters), statement.make or tuple)

    def first(self, statement: Statement[R], /, **parameters: object) -> R | None:
        sql, arguments = statement.numbered, _arguments(statement, parameters)
        row = self.connection.wait_for(lambda driver: driver.fetchrow(sql, *arguments))
        return None if row is None else cast("R", (statement.make or tuple)(row))

    def run(self, statement: Statement[Nothing], /, **parameters: object) -> int:
        sql, arguments = statement.numbered, _arguments(statement, parameters)
        tag = self.connection.wait_for(lambda driver: driver.execute(sql, *arguments))
        return int(tag.rpartition(" ")[2])

    def run_many(self, statement: Statement[R], parameters: Sequence[Parameters]) -> None:
        self._run_each(statement.numbered, [_arguments(statement, values) for values in parameters])

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        self._run_each(statement.numbered, rows)

    def _run_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        if len(rows) == 1:
            self.connection.wait_for(lambda driver: driver.execute(sql, *rows[0]))
        elif rows:
            self.connection.wait_for(lambda driver: driver.executemany(sql, rows))


def _arguments(statement: Statement[R], parameters: Parameters) -> list[object]:
    return [parameters[name] for name in statement.parameters]


# ---------------------------------------------------------------------------------------------------------------------
# Planned writes as one statement, in one round trip: they land on the revision they were planned for, or not at all.
#
# The row of the session is locked and compared first (``planned``); everything else reads from that, so that it
# writes nothing where the session has moved on. Several rows of a table come as arrays, a column each.


def land_in_one_statement(tx: PostgresTransaction, planned: PlannedAppend | PlannedFork) -> object | None:
    """Write a plan; return its result, or None, with nothing written, where it takes a transaction."""
    if isinstance(planned, PlannedAppend):
        return append_in_one_statement(tx, planned)
    return fork_in_one_statement(tx, planned)


def append_in_one_statement(tx: PostgresTransaction, planned: PlannedAppend) -> Appended | None:
    """Write a planned append; return its result, or None, with nothing written, where the session has moved on.

    Raises `CallConflict` where it reports a call twice, with other numbers.
    Leaves the session's new state in ``tx.states``, except after an append beside the leaf.
    """
    batch = planned.batch
    if batch is None or not _is_spending_in_range(batch):
        return None
    calls = distinct_calls(batch.calls)
    # Were one of them in the ledger already, nothing of this would be written.
    batch.note_calls(calls)
    after = batch.state_after(planned.result.leaf_id, planned.move)
    update = changed_columns(after) | {"active_slot": after.active_slot}
    tree_id, payer = batch.state.tree_id, batch.new_payer(calls)
    arguments: list[object] = [batch.state.head, *(update[name] for name in _UPDATED)]
    parts = _parts(
        arguments,
        # Not named as the table, which the update asks about.
        ("added", sql.INSERT_ENTRY, batch.rows),
        ("lanes", sql.INSERT_LANE, [(tree_id, *lane) for lane in batch.lanes]),
        ("blobs", sql.INSERT_BLOB, batch.blob_rows),
        ("attachments", sql.INSERT_ATTACHMENT, batch.attachments),
        ("calls", sql.INSERT_CALL, [ledger_row(tree_id, call, batch.drawn) for call in calls]),
        ("payer", sql.INSERT_PAYER, [(tree_id, *payer)] if payer else ()),
        ("move", sql.INSERT_MOVE, _optional(planned.move)),
        ("request", sql.INSERT_REQUEST, _optional(planned.request)),
    )
    named = [call.call_id for call in calls if call.call_id not in batch.drawn]
    if named:
        arguments.append(named)
    try:
        written = tx.connection.fetch(_append_statement(parts, tx.stated, has_names=bool(named)), arguments)
    except DRIVER_ERRORS as error:
        # A call is in the ledger already: the other way of writing counts it once, or says what differs.
        if sqlstate_of(error) != DIVISION_BY_ZERO:
            raise
        return None
    if not written:
        return None
    if planned.move is None:
        tx.states[batch.state.id] = after
    return planned.result


def fork_in_one_statement(tx: PostgresTransaction, planned: PlannedFork) -> SessionInfo | None:
    """Write a planned fork; return the session, or None, with nothing written, where its source has moved on.

    None, too, for the id of a deleted session that has forks, which takes a statement more.
    """
    if planned.used_again:
        return None
    arguments: list[object] = [planned.source.head, planned.source.key]
    parts = _parts(
        arguments,
        ("fork", sql.INSERT_SESSION, [(planned.session.tree_id, *planned.session.row)]),
        ("request", sql.INSERT_REQUEST, _optional(planned.request)),
    )
    if not tx.connection.fetch(_fork_statement(parts, tx.stated), arguments):
        return None
    tx.states[planned.source.id] = planned.source
    return planned.result


def _parts(arguments: list[object], *tables: tuple[str, Insert[Any], Sequence[Row]]) -> tuple[_Part, ...]:
    """Return a part for each table that gets rows, and add its values to the arguments."""
    parts = []
    for name, insert, rows in tables:
        if rows:
            parts.append(_Part(name, insert, len(rows) == 1))
            arguments += rows[0] if len(rows) == 1 else [list(column) for column in zip(*rows, strict=True)]
    return tuple(parts)


def _is_spending_in_range(batch: EntryBatch) -> bool:
    """Return whether the spending stays within 64 bits; if not, the other way of writing reports it."""
    spent = paid_by(batch.calls)
    on_paths = max(map(max, batch.paid), default=0)
    session = max(batch.state.spent_tokens + spent.tokens, batch.state.spent_cost + spent.picodollars)
    return max(on_paths, session) <= MAX_AMOUNT


def _optional(row: Row | None) -> Sequence[Row]:
    return () if row is None else [row]


# What the session's row is given, in this order, after the head that it must still have.
_UPDATED = ("session_key", *sql.CHANGED, "active_slot")


class _Part(Frozen):
    """The rows of one table, in a statement that writes several."""

    name: str
    statement: Insert[Any]
    is_single: bool


def _planned(lock: str, stated: tuple[int, int] | None) -> str:
    return (
        "planned AS (SELECT session_key FROM sessions WHERE session_key = $2::bigint AND head = $1::bytea"
        f" AND trashed_at IS NULL{'' if stated is None else f' AND {_states(stated)}'} FOR {lock})"
    )


@lru_cache(maxsize=16)
def _states(stated: tuple[int, int]) -> str:
    """Return the condition that the store states these keys: a key, and the one that it gets."""
    return " AND ".join(
        f"COALESCE((SELECT f.value FROM flue_store f WHERE f.name = '{name}'), {default}) = {number}"
        for name, number, default in zip(Stated._fields, stated, Stated(), strict=True)
    )


@lru_cache(maxsize=256)
def _append_statement(parts: tuple[_Part, ...], stated: tuple[int, int] | None, *, has_names: bool) -> str:
    """Return the statement that writes these parts.

    Its parameters are the session's, then each part's columns, then the ids that calls were reported with.
    """
    first = len(_UPDATED) + 2
    numbers = count(first)
    last = first + sum(len(part.statement.parameters) for part in parts)
    clauses = [_planned("UPDATE", stated)]
    for part in parts:
        before, after = "", ""
        if part.name == "payer":
            before = " WHERE EXISTS (SELECT 1 FROM calls)"
        elif part.name == "calls":
            before = ledger.REFUSE_UNNAMED_CALLS.format(last) if has_names else ""
            after = " RETURNING cost"
        clauses.append(_clause(part, numbers, before, after))
    return f"WITH {', '.join(clauses)} {_UPDATE}"


@lru_cache(maxsize=16)
def _fork_statement(parts: tuple[_Part, ...], stated: tuple[int, int] | None) -> str:
    """Return the statement that makes a fork. Its source goes on meanwhile, but cannot be deleted."""
    numbers = count(3)
    clauses = [_planned("KEY SHARE", stated), *(_clause(part, numbers) for part in parts)]
    return f"WITH {', '.join(clauses)} SELECT session_key FROM planned"


def _clause(part: _Part, numbers: Iterator[int], before: str = "", after: str = "") -> str:
    """Return the clause that inserts a part's rows; ``before`` and ``after`` stand around its ON CONFLICT."""
    into, _, rest = part.statement.postgres.partition(" VALUES (")
    on_conflict = ledger.REFUSE_KNOWN_CALLS if part.name == "calls" else rest.partition(")")[2]
    return f"{part.name} AS ({into} {_rows_of(part, numbers)}{before}{on_conflict}{after})"


def _rows_of(part: _Part, numbers: Iterator[int]) -> str:
    columns, types = part.statement.parameters, part.statement.types
    if part.is_single:
        values = ", ".join(f"${next(numbers)}::{types[column]}" for column in columns)
        return f"SELECT {values} FROM planned"
    arrays = ", ".join(f"${next(numbers)}::{types[column]}[]" for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    named = ", ".join(f'n."{column}"' for column in columns)
    return f"SELECT {named} FROM planned, unnest({arrays}) AS n({names})"


_SET = ", ".join(
    f"{name} = ${number}::{sql.UPDATE_STATE.types.get(name, 'bigint')}" for number, name in enumerate(_UPDATED[1:], 3)
)
_UPDATE = (
    f"UPDATE sessions s SET {_SET} FROM planned WHERE s.session_key = planned.session_key RETURNING {sql.ANNOUNCEMENT}"
)


# ---------------------------------------------------------------------------------------------------------------------
# The same operations on PostgreSQL, through the connection pool of an `AsyncEngine` and asyncpg itself.
#
# A connection is borrowed for one transaction. A write locks its session's row first and reads it again; an append
# or a fork is one statement that only lands on the revision it was planned for (`postgres_plans`).
# What a lost connection leaves open is tried again where that is safe, and reported where it is not.

MAX_KNOWN_STATES = 10_000
_ATTEMPTS = 10
_PLANNED_ATTEMPTS = 2
_RUNNER_FIRST_PAUSE = 0.02
_RUNNER_LONGEST_PAUSE = 1.0
_FAILURES = (*DRIVER_ERRORS, IdTaken)


def make_engine(
    url: URL, *, durability: Durability, busy_timeout: float, pool_size: int, pool_timeout: float
) -> AsyncEngine:
    """Return an engine of our own: ``pool_size`` connections at most, each waiting for a lock no longer than that."""
    settings = {
        "application_name": "flue_py",
        "lock_timeout": str(int(busy_timeout * 1000)),
        "synchronous_commit": "on" if durability == "full" else "off",
        # Planning for machine code takes longer than any of our statements.
        "jit": "off",
    }
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout,
        # The connection that was returned last has the statements prepared, and planned for good.
        pool_use_lifo=True,
        # A host that swallows packets is given up on like one that is busy.
        connect_args={"server_settings": settings, "timeout": connect_seconds(busy_timeout)},
    )


async def open_postgres(
    engine: AsyncEngine, *, owned: bool, sources: Sources, durability: Durability, busy_timeout: float
) -> Backend:
    """Open a store on an engine of ``postgresql+asyncpg``, creating and migrating it as needed.

    Raises `StoreUnavailable`, `StoreBusy`, `FormatTooNew`, `NotAStore`, `CorruptStore`, and `InvalidArgument` for a
    borrowed engine whose commits do not keep the promise of ``durability``.
    """
    runner = PostgresRunner(engine, owned=owned, busy_timeout=busy_timeout)
    try:
        await runner.start()
        if durability == "full":
            await runner.require_durable_commits()
    except BaseException:
        await runner.close()
        raise
    return Backend(runner, sources)


class _Progress:
    """How far an operation has come: whether a commit is on its way, and which plans may have landed unheard."""

    def __init__(self) -> None:
        self.is_committing = False
        self.sending: PlannedAppend | PlannedFork | None = None
        self.unheard: list[PlannedAppend | PlannedFork] = []

    def begin(self) -> None:
        """Begin another attempt, or the first."""
        self.is_committing = False
        self.sending = None

    def lose_connection(self) -> None:
        """Note that the plan under way may have landed."""
        if self.is_committing and self.sending is not None:
            self.unheard.append(self.sending)


# PostgreSQL alone.
DATABASE_SIZE = statement(tuple[int])("SELECT pg_database_size(current_database())")
# Which transactions have come to their end: it is another text after each commit.
SNAPSHOT = statement(tuple[str])("SELECT CAST(pg_current_snapshot() AS TEXT)")
# Which transaction comes next; and how many may still see rows that were deleted before that one.
NEXT_TRANSACTION = statement(tuple[str])("SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid) AS TEXT)")
OLDER_SNAPSHOTS = statement(tuple[int])(
    "SELECT (SELECT COUNT(*) FROM pg_catalog.pg_stat_activity a WHERE a.datname = current_database()"
    " AND a.pid <> pg_backend_pid() AND age(a.backend_xmin) > age(CAST(:value AS xid)))"
    " + (SELECT COUNT(*) FROM pg_catalog.pg_prepared_xacts x WHERE x.database = current_database())"
)
SYNCHRONOUS_COMMIT = statement(tuple[str])("SELECT current_setting('synchronous_commit')")


_BEYOND = (
    "bytes of freed rows in the server's files, which VACUUM does not overwrite",
    "the server's write-ahead log, its archive, its replicas and base backups",
)


class PostgresRunner(Runner):
    """Runs transactions on the connections of a pool."""

    most_landed = sys.maxsize

    def __init__(self, engine: AsyncEngine, *, owned: bool, busy_timeout: float) -> None:
        self._engine = engine
        self._location = location_of(engine.url)
        self._owned = owned
        self._busy_timeout = busy_timeout
        self._loop = asyncio.get_running_loop()
        self._opener = Opener()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loose_reads = 0
        self._no_loose_reads = asyncio.Event()
        self._no_loose_reads.set()
        self._states: dict[str, SessionState] = {}
        self._listener = Listener(self._own_connection)
        self._followers: set[asyncio.Event] = set()
        self._closed = False

    @property
    def backend_name(self) -> str:
        return f"{self._engine.dialect.name}+{self._engine.dialect.driver}"

    @property
    def location(self) -> str:
        """The URL without its secrets."""
        return self._location

    async def size_bytes(self) -> int | None:
        row = await self.read(lambda tx: tx.first(DATABASE_SIZE), loose=True)
        (size,) = row or (None,)
        return size

    async def start(self) -> None:
        """Prepare the database. Raises as `open_postgres` says; does not wait for a server that is not there."""
        try:
            with _translated(self.location):
                async with self._engine.connect() as connection:
                    await connection.run_sync(lambda sync: prepare_postgres(sync, self.location))
        except FlueError:
            # Some of ours are ValueErrors too.
            raise
        except (TypeError, ValueError, OverflowError) as error:
            # The driver takes the parts of a URL as arguments of its own.
            raise InvalidArgument(
                f"{self.location}: the driver does not understand a part of this ({type(error).__name__})"
            ) from error

    async def require_durable_commits(self) -> None:
        """Raise `InvalidArgument` where commits do not wait for the disk: an acknowledged append could be lost."""
        row = await self.read(lambda tx: tx.first(SYNCHRONOUS_COMMIT), loose=True)
        if row == ("off",):
            raise InvalidArgument(
                f"{self.location}: these connections have synchronous_commit = off, which may lose what was "
                "acknowledged; set it to on, or open with durability='normal'"
            )

    # -- the index of words ---------------------------------------------------------------------------------------

    async def words_location(self) -> str | None:
        return words.LOCATION if await words.words_are_there(self) else None

    async def open_words(self, version: int, turn: contextlib.AbstractAsyncContextManager[object]) -> WordIndex | None:
        del turn
        return await words.open_postgres_words(self, version)

    async def remove_words(self) -> None:
        await words.remove_postgres_words(self)

    async def forget_deleted(self, needles: erasure.Needles, *, rebuild: bool) -> erasure.Forgotten:
        """Have the server free the rows that were deleted, and leave its files to it (see `Runner.forget_deleted`)."""
        del needles, rebuild
        value, tables = await self.read(lambda tx: (tx.rows(NEXT_TRANSACTION)[0][0], tx.rows(ops.delete.ALL_TABLES)))
        own = ops.delete.own_tables()
        names = ", ".join(f'"{name}"' for name, _ in tables if name in own or name.startswith("flue_words"))
        await self._run(lambda connection, _: connection.execute(f"VACUUM {names}"), repeatable=True)
        ((count,),) = await self.read(lambda tx: tx.rows(OLDER_SNAPSHOTS, value=value))
        held = f"{count} transactions see older rows, so VACUUM keeps them; end these, and erase again"
        return erasure.Forgotten(hindrances=[held] if count else [], out_of_reach=_BEYOND)

    async def forget_words(self, session_ids: Collection[str]) -> None:
        await words.forget_postgres_words(self, session_ids)

    # -- running ------------------------------------------------------------------------------------------------

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        def once(connection: Connection, progress: _Progress) -> Result:
            return self._write_once(connection, progress, work)

        result = await self._run(once, repeatable=repeatable)
        self._wake_followers()
        return result

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        if loose:
            with contextlib.suppress(NeedsSnapshot):
                return await self._read_loosely(work)

        def once(connection: Connection, _: _Progress) -> Result:
            try:
                # Whoever is cancelled meanwhile does not know whether it has begun.
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(PostgresTransaction(connection))
            finally:
                _roll_back(connection)

        return await self._run(once, repeatable=True)

    async def _read_loosely(self, work: Callable[[Transaction], Result]) -> Result:
        """Run a read without a transaction, in the caller's own task: there is nothing to finish or to roll back."""

        def once(connection: Connection, _: _Progress) -> Result:
            return work(PostgresTransaction(connection, loose=True))

        self._require_open()
        self._loose_reads += 1
        self._no_loose_reads.clear()
        try:
            return await self._persist(once, _Progress(), repeatable=True)
        finally:
            self._loose_reads -= 1
            if not self._loose_reads:
                self._no_loose_reads.set()

    async def land(self, session_id: str, plan: Callable[[Transaction], Plan[Result] | Result]) -> Result | None:
        """Return the result of a plan in one statement, or None, with nothing done, where it takes a transaction.

        The statement may be sent again where the connection was lost: whether it has landed is looked up first.
        """

        def once(connection: Connection, progress: _Progress) -> Result | None:
            for _ in range(_PLANNED_ATTEMPTS):
                cached = self._states.pop(session_id, None)
                tx = PostgresTransaction(connection)
                for sent in progress.unheard:
                    if _has_landed(tx, sent):
                        return cast("Result", sent.result)
                if cached is not None:
                    tx.states[session_id] = cached
                try:
                    planned = plan(tx)
                except FlueError:
                    if cached is None:
                        raise
                    # It was judged by what may be old: look again.
                    continue
                if not isinstance(planned, (PlannedAppend, PlannedFork)):
                    return cast("Result", planned)
                progress.sending = planned
                progress.is_committing = True
                try:
                    result = cast("Result | None", land_in_one_statement(tx, planned))
                except asyncio.CancelledError:
                    # The server has given the statement up, while it waited for a lock, or it was faster.
                    if not _has_landed(PostgresTransaction(connection), planned):
                        raise
                    return cast("Result", planned.result)
                progress.is_committing = False
                if result is not None:
                    self._keep_states(tx)
                    return result
            return None

        landed = await self._run(once, repeatable=True)
        self._wake_followers()
        return landed

    def forget_states(self) -> None:
        self._states.clear()

    def _write_once(self, connection: Connection, progress: _Progress, work: Callable[[Transaction], Result]) -> Result:
        tx = PostgresTransaction(connection, locks=True)
        try:
            # Whoever is cancelled meanwhile does not know whether it has begun.
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = work(tx)
            progress.is_committing = True
            _commit(connection, tx.stated)
        except BaseException:
            _roll_back(connection)
            raise
        self._keep_states(tx)
        return result

    def _keep_states(self, tx: PostgresTransaction) -> None:
        """Remember sessions as a commit left them. A write that builds on an old one notices it."""
        for session_id in tx.locked - tx.states.keys():
            self._states.pop(session_id, None)
        if len(self._states) > MAX_KNOWN_STATES:
            self._states.clear()
        self._states.update(tx.states)

    async def _run(self, once: Callable[[Connection, _Progress], Result], *, repeatable: bool) -> Result:
        """Run one operation on a borrowed connection, again where that is safe; finish a commit that is on its way."""
        self._require_open()
        progress = _Progress()

        def give_up(task: asyncio.Task[Result]) -> None:
            # A single statement may be waiting for a lock; whether it was faster is looked up.
            if not progress.is_committing or progress.sending is not None:
                task.cancel()

        return await finished(self._tasks, self._persist(once, progress, repeatable), give_up)

    def _require_open(self) -> None:
        self._opener.require_here(self.location)
        if self._closed:
            raise StoreClosed(f"{self.location} has been closed; open it again")
        if asyncio.get_running_loop() is not self._loop:
            raise WrongEventLoop(f"{self.location} was opened in another event loop; open it in this one")

    async def _persist(
        self, once: Callable[[Connection, _Progress], Result], progress: _Progress, repeatable: bool
    ) -> Result:
        """Run an operation until it has come to an end, within the busy budget."""
        patience_ends = self._loop.time() + self._busy_timeout
        pause = _RUNNER_FIRST_PAUSE
        attempts = 0
        while True:
            attempts += 1
            progress.begin()
            try:
                return await greenlet_spawn(self._borrow, once, progress)
            except FlueError:
                raise
            except _FAILURES as error:
                if is_lost_connection(error):
                    progress.lose_connection()
                    self._require_repeatable(error, progress, repeatable)
                    if self._loop.time() + pause > patience_ends:
                        raise self._given_up(error, progress) from error
                elif not (_should_run_again(error) and attempts < _ATTEMPTS):
                    raise self._translated(error) from error
                elif met_taken_id(error):
                    # Whoever has the id has committed: nobody is waited for, and another id is drawn at once.
                    continue
            # Those who were in each other's way do not come back at the same moment.
            await asyncio.sleep(pause * random.random())  # noqa: S311 - not a secret
            pause = min(2 * pause, _RUNNER_LONGEST_PAUSE)

    def _require_repeatable(self, error: BaseException, progress: _Progress, repeatable: bool) -> None:
        if progress.is_committing and not repeatable:
            raise OutcomeUnknown(
                f"{self.location}: the connection was lost while committing, so whether the operation happened is not "
                "known; refresh() and look before you repeat it, or use an idempotency_key"
            ) from error

    def _given_up(self, error: BaseException, progress: _Progress) -> FlueError:
        if progress.unheard:
            return OutcomeUnknown(
                f"{self.location}: the connection was lost while writing, and the server did not come back within "
                f"{self._busy_timeout:g} s; look whether what you wrote is there before you repeat it"
            )
        return self._translated(error)

    def _translated(self, error: BaseException) -> FlueError:
        if isinstance(error, IdTaken) or sqlstate_of(error) == UNIQUE_VIOLATION:
            return no_new_id(error, self.location, _ATTEMPTS)
        return translate(error, self.location)

    def _borrow(self, once: Callable[[Connection, _Progress], Result], progress: _Progress) -> Result:
        """Run an operation on a connection of the pool. Runs in a greenlet of SQLAlchemy's."""
        borrowed = self._engine.sync_engine.raw_connection()
        try:
            connection = Connection(borrowed)
            if connection.is_closed:
                # The server went away while it lay in the pool; nothing was sent yet.
                raise asyncpg.InterfaceError("connection is closed")
            return once(connection, progress)
        except BaseException as error:
            # The driver may not have seen yet that it is closed: the next borrower must not get it.
            if Connection(borrowed).is_closed or is_lost_connection(error):
                borrowed.invalidate()
            raise
        finally:
            borrowed.close()

    # -- watching -----------------------------------------------------------------------------------------------

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
        self._require_open()
        if session_id is None:
            async with contextlib.aclosing(self._wakeups_of_all()) as wakeups:
                async for _ in wakeups:
                    yield
            return
        with _translated(self.location):
            event = await self._listener.add(session_id)
        try:
            while not self._closed:
                event.clear()
                yield
                await event.wait()
        finally:
            await self._listener.remove(session_id, event)

    async def _wakeups_of_all(self) -> AsyncGenerator[None, None]:
        """Wake after a commit here, or when a look shows that anybody has committed, in whatever database.

        Nobody is told to notify: all commits that notify wait for each other, and here each of them would.
        """
        event = asyncio.Event()
        self._followers.add(event)
        try:
            seen = await self._snapshot()
            # Beyond here the store was open: one that closes now, between any two steps, ends the watching.
            with contextlib.suppress(StoreClosed):
                while True:
                    yield
                    while (snapshot := await self._snapshot()) == seen:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(POLL_SECONDS):
                                await event.wait()
                        event.clear()
                    seen = snapshot
        finally:
            self._followers.discard(event)

    async def _snapshot(self) -> str:
        row = await self.read(lambda tx: tx.first(SNAPSHOT), loose=True)
        (snapshot,) = row or ("",)
        return snapshot

    def _wake_followers(self) -> None:
        for event in self._followers:
            event.set()

    async def _own_connection(self) -> asyncpg.Connection[Any]:
        """Return a new connection like those of the pool, which is no part of it any more."""

        def detached() -> asyncpg.Connection[Any]:
            borrowed = self._engine.sync_engine.raw_connection()
            driver: asyncpg.Connection[Any] | None = borrowed.driver_connection
            borrowed.detach()
            if driver is None or driver.is_closed():
                raise StoreUnavailable(f"{self.location}: the connection was lost")
            return driver

        return await greenlet_spawn(detached)

    # -- the rest -----------------------------------------------------------------------------------------------

    async def storage_problems(self) -> list[Problem]:
        return []

    async def close(self) -> None:
        if self._closed or not self._opener.is_here:
            # In a forked child the sockets are the parent's: to say goodbye on them would end its connections.
            return
        self._closed = True
        self._wake_followers()
        await self._listener.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._no_loose_reads.wait()
        if self._owned:
            await self._engine.dispose()


def _should_run_again(error: BaseException) -> bool:
    """Return whether the transaction was rolled back for a reason that another run may not meet."""
    return isinstance(error, IdTaken) or was_rolled_back(error) or sqlstate_of(error) == UNIQUE_VIOLATION


def _has_landed(tx: PostgresTransaction, sent: PlannedAppend | PlannedFork) -> bool:
    """Return whether a plan whose connection was lost has been committed: the ids it made tell."""
    if isinstance(sent, PlannedFork):
        fork = get_session(tx, sent.result.id, None)
        return fork is not None and fork.created_us == sent.result.created_us
    last = sent.result.entry_ids[-1]
    return tx.first(sql.ENTRY_POSITION, tree_id=sent.state.tree_id, entry_id=last) is not None


def _commit(connection: Connection, stated: tuple[int, int] | None) -> None:
    """Commit, unless the store states other keys by now: until the end of this, nobody can change them.

    Raises `KeyChanged`.
    """
    try:
        # In one round trip. A session that was written to is locked, and `PostgresTransaction.lock_writers_out` waits.
        connection.execute("COMMIT" if stated is None else f"SELECT 1 / CAST({_states(stated)} AS INTEGER); COMMIT")
    except DRIVER_ERRORS as error:
        if sqlstate_of(error) != DIVISION_BY_ZERO:
            raise
        raise KeyChanged from error


def _roll_back(connection: Connection) -> None:
    if not connection.is_closed:
        with contextlib.suppress(*_FAILURES):
            connection.execute("ROLLBACK")
