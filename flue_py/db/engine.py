"""The same operations on any SQLAlchemy `AsyncEngine`: ours, or one that the caller hands over and keeps.

Slower than `sqlite` on a file (a dozen thread hops per transaction through aiosqlite), for applications that have
an engine already.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import URL, BigInteger, LargeBinary, Text, bindparam, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import await_only

from flue_py.db.backend import Backend
from flue_py.db.runner import (
    Durability,
    IdTaken,
    Insert,
    Nothing,
    Parameters,
    R,
    SessionState,
    Sources,
    Statement,
    Transaction,
    Written,
    finished,
    require_asyncio,
    starting_threads,
)
from flue_py.db.sqlite import file
from flue_py.db.sqlite.runner import RunnerOnFile
from flue_py.errors import FlueError, InvalidArgument, MissingExtra, StoreBusy, StoreUnavailable, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from sqlalchemy import Connection, TextClause
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.types import TypeEngine

    from flue_py.db.postgres import runner as postgres
else:
    # It needs the extra.
    postgres = lazy_module("flue_py.db.postgres.runner")


Result = TypeVar("Result")

SQLITE = "sqlite+aiosqlite"
POSTGRES = "postgresql+asyncpg"
POLL_SECONDS = 0.1
_QUERY = frozenset({"cached_statements", "timeout"})
"""Names for the query of an SQLite URL: the rest the store sets itself, or it opens another file."""


async def open_engine(
    target: str | AsyncEngine,
    *,
    sources: Sources,
    durability: Durability = "full",
    busy_timeout: float = 30.0,
    pool_size: int = 10,
    pool_timeout: float = 30.0,
) -> Backend:
    """Open a store on an engine, creating and migrating it as needed.

    A URL makes an engine of our own, disposed of at `close`; an engine is borrowed and never disposed of. Raises
    `InvalidArgument` for a database other than ``sqlite+aiosqlite`` and ``postgresql+asyncpg``, `MissingExtra`
    without the extra ``postgres``, `WrongEventLoop` under trio, and as `open_sqlite` does.
    """
    owned = isinstance(target, str)
    if not isinstance(target, (str, AsyncEngine)):
        raise InvalidArgument(f"engine: {shown(target)} is not an AsyncEngine of SQLAlchemy")
    url = _parsed_url(target) if isinstance(target, str) else target.url
    _require_known(url.drivername)
    with _url_refused():
        require_asyncio(url.render_as_string(hide_password=True))
    if url.drivername == POSTGRES:
        if find_spec("asyncpg") is None:
            raise MissingExtra("postgres", "postgresql+asyncpg://")
        pool = target
        if isinstance(pool, str):
            with _url_refused():
                pool = postgres.make_engine(
                    url,
                    durability=durability,
                    busy_timeout=busy_timeout,
                    pool_size=pool_size,
                    pool_timeout=pool_timeout,
                )
        return await postgres.open_postgres(
            pool, owned=owned, sources=sources, durability=durability, busy_timeout=busy_timeout
        )
    _require_plain(url)
    with _url_refused():
        engine = _own_engine(url, _settings(durability, busy_timeout)) if isinstance(target, str) else target
        runner = EngineRunner(engine, owned=owned, durability=durability, busy_timeout=busy_timeout)
    try:
        with starting_threads(runner.location):
            await runner.start()
    except BaseException:
        await runner.close()
        raise
    return Backend(runner, sources)


def _own_engine(url: URL, settings: Sequence[str]) -> AsyncEngine:
    """Return an engine of our own, whose connections are given these settings once: nobody else changes them."""
    # Before SQLAlchemy 2.0.38 each use of a file would have made a connection of its own.
    engine = create_async_engine(url, poolclass=AsyncAdaptedQueuePool, isolation_level="AUTOCOMMIT")

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        for setting in settings:
            cursor.execute(setting)
        cursor.close()

    return engine


def _settings(durability: Durability, busy_timeout: float) -> tuple[str, ...]:
    """Return the statements that give a connection the settings of a store."""
    return (
        "PRAGMA foreign_keys = ON",
        f"PRAGMA synchronous = {file.SYNCHRONOUS[durability]}",
        f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}",
    )


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


def _require_plain(url: URL) -> None:
    """Raise `InvalidArgument` for a query that makes the URL name another file, or that nobody reads."""
    for name in sorted(url.query.keys() - _QUERY):
        raise InvalidArgument(
            f"the target has {shown(name)} in its query, and a URL of SQLite names a file and may set "
            f"{', '.join(sorted(_QUERY))}; leave it out, and use the arguments of open, such as read_only=True"
        )


class EngineTransaction(file.SoleWriter):
    """A transaction on a SQLAlchemy connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.states: dict[str, SessionState] = {}

    def rows(self, statement: Statement[R], /, **parameters: object) -> Sequence[R]:
        make = statement.make or tuple
        return [cast("R", make(row)) for row in self._connection.execute(clause_of(statement), parameters)]

    def first(self, statement: Statement[R], /, **parameters: object) -> R | None:
        row = self._connection.execute(clause_of(statement), parameters).first()
        return None if row is None else cast("R", (statement.make or tuple)(row))

    def run(self, statement: Statement[Nothing], /, **parameters: object) -> int:
        return self._connection.execute(clause_of(statement), parameters).rowcount

    def run_many(self, statement: Statement[R], parameters: Sequence[Parameters]) -> None:
        if parameters:
            self._connection.execute(clause_of(statement), [dict(values) for values in parameters])

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        self.run_many(statement, [dict(zip(statement.parameters, row, strict=True)) for row in rows])


_TYPES: dict[str, TypeEngine[Any]] = {"text": Text(), "bytea": LargeBinary(), "bigint": BigInteger()}


@lru_cache(maxsize=1024)
def clause_of(statement: Statement[Any]) -> TextClause:
    """Return a statement as SQLAlchemy takes it, each parameter with its type."""
    bound = [bindparam(name, type_=_TYPES[statement.types[name]]) for name in statement.parameters]
    return text(statement.sql).bindparams(*bound)


class _GivenUp(Exception):
    """A caller was cancelled before anything was done for it."""


class _Progress:
    """How far an operation has come, and whether its caller still waits for it."""

    def __init__(self, *, has_begun: bool = False) -> None:
        self.has_begun = has_begun
        self.is_given_up = False

    def require_wanted(self) -> None:
        if self.is_given_up and not self.has_begun:
            raise _GivenUp


class EngineRunner(RunnerOnFile):
    """Runs transactions on an async engine; one writer at a time, so that our own never wait for each other."""

    def __init__(self, engine: AsyncEngine, *, owned: bool, durability: Durability, busy_timeout: float) -> None:
        name = engine.url.database
        if not name or name == ":memory:" or name.startswith("file:"):
            raise InvalidArgument(f"{engine.url.render_as_string()}: name a file, or open memory:// instead")
        super().__init__(Path(name).absolute())
        self._file: file.OpenFile | None = None
        self._keeper: sqlite3.Connection | None = None
        self._engine = engine
        self._location = engine.url.render_as_string(hide_password=True)
        self._owned = owned
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._journal = file.WAL
        self._writer = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._committed = asyncio.Event()
        self._log = file.LogKeeper(int(busy_timeout * 1000))

    @property
    def backend_name(self) -> str:
        return f"{self._engine.dialect.name}+{self._engine.dialect.driver}"

    @property
    def location(self) -> str:
        return self._location

    async def start(self) -> None:
        """Prepare the file and the database, off the event loop. Raises as `open_engine` says."""
        await asyncio.to_thread(self._prepare)
        file.warn_without_wal(self._journal, self._path)

    def _prepare(self) -> None:
        # The engine may close its connections at any time, and the last one would take the log along.
        self._keeper = file.open_file(self._path, self._durability, self._busy_timeout)
        # The connections of a borrowed engine outlive this store.
        self._file = file.OpenFile(self._path, self if self._owned else self._engine)
        with file.translated(self.location):
            self._journal = file.journal_mode(self._keeper)
            if self._journal == file.WAL:
                self._file.watch_log(self._keeper)

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        self._require_open()
        progress = _Progress()

        async def run() -> Result:
            async with self._writer:
                progress.require_wanted()
                return await self._transaction(lambda connection: self._write_with_retry(connection, work, progress))

        result = await self._in_task(run(), progress)
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

        return await self._in_task(self._transaction(snapshot), _Progress(has_begun=True))

    def _require_in_place(self) -> None:
        if self._file is not None:
            self._file.require_in_place()

    async def _in_task(self, work: Coroutine[Any, Any, Result], progress: _Progress) -> Result:
        """Run a coroutine, which a caller who is cancelled can give up until it has begun: then it runs to its end."""

        def give_up(_: object) -> bool:
            progress.is_given_up = True
            # Else it ends by itself, as soon as it notices.
            return not progress.has_begun

        return await finished(self._tasks, work, give_up)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        try:
            with starting_threads(self.location):
                connection = await self._engine.connect()
            async with contextlib.aclosing(connection):
                if not self._owned:
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                yield connection
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise file.translate(error.orig, self.location, self._path) from error
            raise StoreUnavailable(f"{self.location} cannot be used: {type(error.orig).__name__}") from error
        except PoolTimeout as error:
            raise StoreBusy(
                f"{self.location}: no connection of the engine's pool came free in time; try again"
            ) from error
        except MemoryError as error:
            raise file.translate(error, self.location) from error

    async def _transaction(self, work: Callable[[Connection], Result]) -> Result:
        try:
            # Before an engine connects anew, and makes another log where one is gone.
            self._require_in_place()
            async with self._connection() as connection:
                return await connection.run_sync(lambda sync: self._with_settings(sync, work))
        except StoreUnavailable:
            if self._keeper is not None and self._file is not None:
                with starting_threads(self.location):
                    await asyncio.to_thread(file.rescue_log, self._keeper, self._file)
            raise

    def _with_settings(self, connection: Connection, work: Callable[[Connection], Result]) -> Result:
        if not self._owned:
            # Others use these connections, too.
            for setting in _settings(self._durability, self._busy_timeout):
                connection.exec_driver_sql(setting)
        return work(connection)

    def _write_with_retry(
        self, connection: Connection, work: Callable[[Transaction], Result], progress: _Progress
    ) -> Result:
        failure: Exception | None = None
        for _ in range(file.ID_ATTEMPTS):
            self._begin(connection, progress)
            try:
                result = work(EngineTransaction(connection))
                self._commit(connection)
            except (IdTaken, IntegrityError) as error:
                # A generated id met one that is there: roll back, and run again with another.
                connection.exec_driver_sql("ROLLBACK")
                failure = error
            except BaseException:
                _roll_back(connection)
                raise
            else:
                # What fails here is no concern of this write.
                with contextlib.suppress(DBAPIError):
                    self._log.after_commit(connection.exec_driver_sql, self._file.log_size if self._file else 0)
                return result
        cause = failure.orig if isinstance(failure, IntegrityError) else failure
        raise file.no_new_id(cause if isinstance(cause, Exception) else IdTaken(), self.location) from failure

    def _begin(self, connection: Connection, progress: _Progress) -> None:
        """Take the write lock, of files that are whole, unless the caller has given up by then."""
        while True:
            self._begin_when_free(connection, progress)
            try:
                progress.require_wanted()
                if self._file is None or not self._file.log_has_shrunk():
                    progress.has_begun = True
                    return
            except BaseException:
                _roll_back(connection)
                raise
            _roll_back(connection)
            self._require_whole_log()

    def _begin_when_free(self, connection: Connection, progress: _Progress) -> None:
        """Try for the lock for a moment, and again with jitter, within the budget: one long wait can't be given up."""
        deadline = time.monotonic() + self._busy_timeout
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {file.BUSY_POLL_MS}")
        try:
            while True:
                try:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                except DBAPIError as error:
                    is_locked = isinstance(error.orig, sqlite3.Error) and file.is_busy(error.orig)
                    if not is_locked or time.monotonic() >= deadline:
                        raise
                else:
                    break
                progress.require_wanted()
                await_only(asyncio.sleep(uniform(0, file.BUSY_POLL_MS / 1000)))  # noqa: S311 - jitter, not a secret
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")

    def _commit(self, connection: Connection) -> None:
        """Commit to files that others can find, as the writer of a file by its path does."""
        if self._file is not None:
            self._file.require_kept_log()
        try:
            connection.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            unknown = file.unknown_outcome(error.orig, self.location) if isinstance(error.orig, sqlite3.Error) else None
            if unknown is None:
                raise
            raise unknown from error
        try:
            self._require_whole_log()
        except StoreUnavailable as error:
            raise file.lost_while_committing(error) from error

    def _require_whole_log(self) -> None:
        if self._file is not None and self._keeper is not None:
            self._file.require_whole_log(self._keeper)

    async def wakeups(self, session_id: str | None) -> AsyncGenerator[None, None]:
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
        self.close_words()
        self._committed.set()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._owned:
            await self._engine.dispose()
        if self._keeper is not None and self._file is not None:
            if self._file.is_log_lost and not self._owned:
                # The connections of an engine that is the caller's stay open.
                self._file.refuse_here()
            try:
                await asyncio.to_thread(file.let_go, self._keeper, self._file)
            except RuntimeError:
                # At the end of the interpreter no thread can be started.
                file.let_go(self._keeper, self._file)
        if self._owned:
            file.forget_file(self)


def _roll_back(connection: Connection) -> None:
    with contextlib.suppress(DBAPIError):
        connection.exec_driver_sql("ROLLBACK")
