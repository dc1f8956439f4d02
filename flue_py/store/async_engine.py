"""The same operations on any SQLAlchemy `AsyncEngine`: ours, or one that the caller hands over and keeps.

Slower than `sqlite` on a file (a dozen thread hops per transaction through aiosqlite), for applications that have
an engine already.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.ext.asyncio import AsyncEngine as AsyncEngine  # noqa: PLC0414 - re-exported for `sessions`, which names no database library

from flue_py.core.sessions import Problem
from flue_py.errors import CorruptStore, FlueError, InvalidArgument, MissingExtra, StoreClosed, StoreUnavailable, shown
from flue_py.store.backend import CommittedBeforeCancellation, Sources
from flue_py.store.migrate import open_file
from flue_py.store.opener import Opener, OpenFile, forget_file
from flue_py.store.session_state import SessionState
from flue_py.store.sql import SqlBackend
from flue_py.store.sqlite_file import SYNCHRONOUS, Durability, LogKeeper, file_size, translate
from flue_py.store.sqlite_journal import WAL, journal_mode, warn_without_wal
from flue_py.store.sqlite_transaction import SoleWriter
from flue_py.store.transaction import IdTaken, Parameters, Row, Statement, Transaction
from flue_py.store.verifying import storage_problems

if TYPE_CHECKING:
    from sqlalchemy import Connection

Result = TypeVar("Result")

SQLITE = "sqlite+aiosqlite"
POSTGRES = "postgresql+asyncpg"
POLL_SECONDS = 0.1
_ID_ATTEMPTS = 8


async def open_engine(
    target: str | AsyncEngine,
    *,
    sources: Sources,
    durability: Durability = "full",
    busy_timeout: float = 30.0,
    pool_size: int = 10,
    pool_timeout: float = 30.0,
) -> SqlBackend:
    """Open a store on an engine, creating and migrating it as needed.

    A URL makes an engine of our own, disposed of at `close`; an engine is borrowed and never disposed of. Raises
    `InvalidArgument` for a database other than ``sqlite+aiosqlite`` and ``postgresql+asyncpg``, `MissingExtra`
    without the extra ``postgres``, and as `open_sqlite` does.
    """
    owned = isinstance(target, str)
    if not isinstance(target, (str, AsyncEngine)):
        raise InvalidArgument(f"engine: {shown(target)} is not an AsyncEngine of SQLAlchemy")
    url = _parsed_url(target) if isinstance(target, str) else target.url
    _require_known(url.drivername)
    if url.drivername == POSTGRES:
        if find_spec("asyncpg") is None:
            raise MissingExtra("postgres", "postgresql+asyncpg://")
        from flue_py.store.postgres import make_engine, open_postgres  # noqa: PLC0415 - needs the extra

        made = target
        if isinstance(made, str):
            with _url_refused():
                made = make_engine(
                    url,
                    durability=durability,
                    busy_timeout=busy_timeout,
                    pool_size=pool_size,
                    pool_timeout=pool_timeout,
                )
        return await open_postgres(made, owned=owned, sources=sources, durability=durability, busy_timeout=busy_timeout)
    with _url_refused():
        engine = target if not isinstance(target, str) else create_async_engine(url)
        runner = EngineRunner(engine, owned=owned, durability=durability, busy_timeout=busy_timeout)
    try:
        await runner.start()
    except BaseException:
        await runner.close()
        raise
    return SqlBackend(runner, sources)


@contextlib.contextmanager
def _url_refused() -> Iterator[None]:
    """Say of a URL that SQLAlchemy cannot read, or has parts a driver does not know, that it is none."""
    try:
        yield
    except FlueError:
        # Some of ours are ValueErrors too.
        raise
    except (ArgumentError, ValueError, TypeError) as error:
        # The text may hold a password, so it is not repeated.
        raise InvalidArgument(
            "the target is not a database URL; write sqlite+aiosqlite:///FILE or postgresql+asyncpg://HOST/DATABASE"
        ) from error


def _parsed_url(target: str) -> URL:
    with _url_refused():
        return make_url(target)


def _require_known(driver: str) -> None:
    if driver not in (SQLITE, POSTGRES):
        raise InvalidArgument(f"{driver}: flue_py stores in {SQLITE}, {POSTGRES}, or an SQLite file by its path")


class EngineTransaction(SoleWriter):
    """A transaction on a SQLAlchemy connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.states: dict[str, SessionState] = {}

    def rows(self, statement: Statement, parameters: Parameters) -> Sequence[Row]:
        return [tuple(row) for row in self._connection.execute(statement.clause, dict(parameters))]

    def first(self, statement: Statement, parameters: Parameters) -> Row | None:
        row = self._connection.execute(statement.clause, dict(parameters)).first()
        return None if row is None else tuple(row)

    def run(self, statement: Statement, parameters: Parameters) -> int:
        return self._connection.execute(statement.clause, dict(parameters)).rowcount

    def run_many(self, statement: Statement, parameters: Sequence[Parameters]) -> None:
        if parameters:
            self._connection.execute(statement.clause, [dict(each) for each in parameters])

    def insert(self, statement: Statement, rows: Sequence[Row]) -> None:
        self.run_many(statement, [dict(zip(statement.parameters, row, strict=True)) for row in rows])


class EngineRunner:
    """Runs transactions on an async engine; one writer at a time, so that our own never wait for each other."""

    def __init__(self, engine: AsyncEngine, *, owned: bool, durability: Durability, busy_timeout: float) -> None:
        name = engine.url.database
        if not name or name == ":memory:" or name.startswith("file:"):
            raise InvalidArgument(f"{engine.url.render_as_string()}: name a file, or open memory:// instead")
        self._path = Path(name).absolute()
        self._file: OpenFile | None = None
        self._opener = Opener()
        self._engine = engine
        self._location = engine.url.render_as_string(hide_password=True)
        self._owned = owned
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._journal = WAL
        self._writer = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._committed = asyncio.Event()
        self._closed = False
        self._log = LogKeeper(self._path, int(busy_timeout * 1000))

    @property
    def backend_name(self) -> str:
        return f"{self._engine.dialect.name}+{self._engine.dialect.driver}"

    @property
    def location(self) -> str:
        return self._location

    @property
    def file(self) -> Path | None:
        return self._path

    async def size_bytes(self) -> int | None:
        return file_size(self._path)

    async def start(self) -> None:
        """Prepare the file and the database, off the event loop. Raises as `open_engine` says."""
        await asyncio.to_thread(self._prepare)
        warn_without_wal(self._journal, self._path)

    def _prepare(self) -> None:
        with contextlib.closing(open_file(self._path, self._durability, self._busy_timeout)) as connection:
            self._journal = journal_mode(connection)
        # The connections of a borrowed engine outlive this store.
        self._file = OpenFile(self._path, self if self._owned else self._engine)

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()

        async def run() -> Result:
            async with self._writer:
                return await self._transaction(lambda connection: self._write_with_retry(connection, work))

        result = await self._in_task(run())
        event, self._committed = self._committed, asyncio.Event()
        event.set()
        return result

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        self._require_open()

        def snapshot(connection: Connection) -> Result:
            self._require_in_place()
            connection.exec_driver_sql("BEGIN")
            try:
                return work(EngineTransaction(connection))
            finally:
                connection.exec_driver_sql("ROLLBACK")

        return await self._in_task(self._transaction(snapshot))

    def _require_open(self) -> None:
        self._opener.require_here(self.location)
        if self._closed:
            raise StoreClosed(f"{self.location} has been closed; open it again")

    def _require_in_place(self) -> None:
        if self._file is not None:
            self._file.require_in_place()

    async def _in_task(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end even if the caller is cancelled meanwhile: a started commit finishes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            while not task.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
            if task.cancelled() or task.exception() is not None:
                raise
        raise CommittedBeforeCancellation(task.result())

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise translate(error.orig, self.location) from error
            raise StoreUnavailable(f"{self.location} cannot be used: {type(error.orig).__name__}") from error

    async def _transaction(self, work: Callable[[Connection], Result]) -> Result:
        async with self._connection() as connection:
            return await connection.run_sync(lambda sync: self._with_settings(sync, work))

    def _with_settings(self, connection: Connection, work: Callable[[Connection], Result]) -> Result:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql(f"PRAGMA synchronous = {SYNCHRONOUS[self._durability]}")
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
        return work(connection)

    def _write_with_retry(self, connection: Connection, work: Callable[[Transaction], Result]) -> Result:
        failure: Exception | None = None
        for _ in range(_ID_ATTEMPTS):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                # An engine that connects anew each time may have found another file: nothing is judged by that.
                self._require_in_place()
                result = work(EngineTransaction(connection))
                self._require_in_place()
                connection.exec_driver_sql("COMMIT")
            except (IdTaken, IntegrityError) as error:
                # A generated id met one that is there: roll back, and run again with another.
                connection.exec_driver_sql("ROLLBACK")
                failure = error
            except BaseException:
                with contextlib.suppress(DBAPIError):
                    connection.exec_driver_sql("ROLLBACK")
                    if self._file is not None and not self._file.is_in_place:
                        # As `sqlite_journal.empty_log` says.
                        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                raise
            else:
                # What fails here is no concern of this write.
                with contextlib.suppress(DBAPIError):
                    self._log.after_commit(connection.exec_driver_sql)
                return result
        raise CorruptStore(f"{self.location}: a write contradicts what is stored; run verify()") from failure

    async def storage_problems(self) -> list[Problem]:
        return await self.read(lambda tx: storage_problems(tx, self.location))

    async def wakeups(self, session_id: str) -> AsyncIterator[None]:
        """Wake after a commit here, or after a poll interval: another process may have written."""
        self._require_open()
        while not self._closed:
            committed = self._committed
            yield
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await committed.wait()

    async def close(self) -> None:
        if self._closed or not self._opener.is_here:
            return
        self._closed = True
        self._committed.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._owned:
            await self._engine.dispose()
            forget_file(self)
