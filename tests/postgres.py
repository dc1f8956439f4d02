"""The PostgreSQL of a test run, and empty databases on it.

FLUE_PY_TEST_POSTGRES_URL names a database on a server where more may be made. Without it each process starts a server
of its own, once a test needs it. If neither is possible, or the name is "none", tests skip, or fail with
FLUE_PY_REQUIRE_POSTGRES=1.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar
from uuid import uuid4

import pytest

from flue_py.errors import FixTheSetup
from tests.postgres_server import PostgresServer, Setting, find_binaries

if TYPE_CHECKING:
    from asyncpg import Connection
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

    from flue_py.db.backend import Backend
    from flue_py.db.runner import Sources
    from tests.sources import OpenBackend

URL_VARIABLE = "FLUE_PY_TEST_POSTGRES_URL"
REQUIRE_VARIABLE = "FLUE_PY_REQUIRE_POSTGRES"

NewDatabase: TypeAlias = Callable[[], str]
Result = TypeVar("Result")


def make_url(url: str) -> URL:
    """Return a URL taken apart. SQLAlchemy is imported for tests that use PostgreSQL: core has to work without it."""
    from sqlalchemy import make_url as made

    return made(url)


# What a test has set for its database must not hold while that is emptied; a hang is a failure.
_UNHURRIED = {"statement_timeout": "0", "lock_timeout": "60s", "default_transaction_read_only": "off"}

KEPT = "kept by the tests"
"""What connections call themselves that lie in a pool from test to test."""

_END_ALL = "PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
END_OTHERS = f"{_END_ALL} AND pid <> pg_backend_pid() AND NOT (application_name = '{KEPT}' AND state = 'idle');"

# Everything that a test can have left in a database, put back as a new one has it.
_EMPTY = f"""
DO $$
DECLARE name text;
BEGIN
    {_END_ALL} AND pid <> pg_backend_pid();
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""

# Everything that a test can have left in a store that it used through its API alone. (A truncated table gets new files,
# which takes longer than deleting what few rows most tests have.)
_CLEAR = f"""
DO $$
DECLARE made regclass;
BEGIN
    {END_OTHERS}
    FOR made IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
        AND c.relname NOT IN ('flue_store', 'alembic_version') LOOP
        IF pg_total_relation_size(made) > 1000000 THEN
            EXECUTE format('TRUNCATE %s CASCADE', made);
        ELSE
            EXECUTE format('DELETE FROM %s', made);
        END IF;
    END LOOP;
    UPDATE flue_store SET value = 0 WHERE name = 'epoch';
    DELETE FROM flue_store WHERE name IN ('key', 'new_key', 'documents');
END $$;
"""


class KeptConnections:
    """A connection to each store that is emptied again and again, on an event loop of their own.

    A new one has to read the catalogs and to plan every statement anew: emptying a store takes it seven times as long.
    """

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kept connections")
        self._thread.start()

    def execute(self, url: str, statements: str) -> None:
        """Run statements that may be begun twice: who had the store may have ended our connection."""
        self._wait(self._execute(url, statements))

    async def _execute(self, url: str, statements: str) -> None:
        import asyncpg

        kept = self._open.get(url)
        if kept is not None:
            try:
                await kept.execute(statements)
            except (asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError):
                kept.terminate()
            else:
                return
        self._open[url] = await connect(url, application_name=KEPT, **_UNHURRIED)
        await self._open[url].execute(statements)

    def close(self) -> None:
        """End every connection. One that the server has ended already ends nothing else."""
        for connection in self._open.values():
            with suppress(OSError):
                self._wait(connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Databases:
    """Databases on one server, each lent to one borrower at a time. They are used again: emptying one is cheaper
    than making one.
    """

    def __init__(self, url: str) -> None:
        self._server = make_url(url)
        self._made: list[str] = []
        self._idle: list[str] = []
        self._idle_stores: list[str] = []
        self.kept = KeptConnections()

    def take(self) -> str:
        """Return the SQLAlchemy URL of an empty database."""
        if self._idle:
            url = self._idle.pop()
            self.kept.execute(url, _EMPTY)
            return url
        name = f"flue_py_test_{uuid4().hex}"
        self._run(f'CREATE DATABASE "{name}"')
        self._made.append(name)
        return self._server.set(database=name).render_as_string(hide_password=False)

    def take_store(self) -> str:
        """Return the URL of an empty database, or of one that has a store without sessions: opening that is quicker."""
        if not self._idle_stores:
            return self.take()
        url = self._idle_stores.pop()
        self.kept.execute(url, _CLEAR)
        return url

    def give_back_store(self, url: str) -> None:
        """Accept a database whose store was used through its API alone, and which nobody will use any more."""
        self._idle_stores.append(url)

    def give_back(self, url: str) -> None:
        """Accept a database, in any state, that nobody will use any more."""
        self._idle.append(url)

    def close(self) -> None:
        """Drop every database that was made."""
        self.kept.close()
        for name in self._made:
            self._run(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _run(self, statement: str) -> None:
        async def run() -> None:
            async with connected(self._server.render_as_string(hide_password=False), **_UNHURRIED) as connection:
                await connection.execute(statement)

        blocking(run())


def _mark_as_kept(_dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]) -> None:
    parameters["server_settings"] = {**parameters["server_settings"], "application_name": KEPT}


class Lender(Protocol):
    """Who lends databases with an empty store in them, of which each is one borrower's at a time."""

    def take_store(self) -> str:
        """Return the URL of a store without sessions."""

    def give_back_store(self, url: str) -> None:
        """Accept a database whose store was used through its API alone, and which nobody will use any more."""

    def give_back(self, url: str) -> None:
        """Accept a database whose store may still be open."""


class KeptEngines:
    """Stores on engines that are kept, one for each store that is emptied again and again, on one event loop.

    New connections read the catalogs and plan every statement anew, which takes longer than what most tests do.
    """

    def __init__(self, databases: Lender) -> None:
        self._databases = databases
        self._engines: dict[str, AsyncEngine] = {}
        self._lent: set[str] = set()

    def of(self, url: str) -> AsyncEngine:
        """Return the engine of a store, with the settings of one that `flue_py.open` makes."""
        from sqlalchemy import event

        from flue_py.db.postgres.runner import make_engine

        if url not in self._engines:
            engine = make_engine(make_url(url), durability="full", busy_timeout=30.0, pool_size=10, pool_timeout=30.0)
            event.listen(engine.sync_engine, "do_connect", _mark_as_kept)
            self._engines[url] = engine
        return self._engines[url]

    async def open(self, sources: Sources) -> Backend:
        """Open a new, empty store. When it is closed its database is used again."""
        from flue_py.db.engine import open_engine

        url = self._databases.take_store()
        self._lent.add(url)
        backend = await open_engine(self.of(url), sources=sources)
        close = backend.close

        async def close_and_give_back() -> None:
            await close()
            if url in self._lent:
                self._lent.remove(url)
                self._databases.give_back_store(url)

        backend.close = close_and_give_back
        return backend

    async def end_test(self) -> None:
        """Part with the stores that were not closed, which may still be in use."""
        while self._lent:
            url = self._lent.pop()
            await self.of(url).dispose()
            self._databases.give_back(url)

    async def close(self) -> None:
        """End the connections of every engine."""
        for engine in self._engines.values():
            await engine.dispose()


def blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what a coroutine returns, run in a thread and an event loop of its own: here one may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def connect(url: str, **settings: str) -> Connection:
    """Connect to the database of a SQLAlchemy URL with the bare driver, and with these settings of the server."""
    import asyncpg

    parsed = make_url(url)
    _, arguments = parsed.get_dialect()().create_connect_args(parsed)
    return await asyncpg.connect(**arguments, server_settings=settings)


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncIterator[Connection]:
    """Connect likewise, and disconnect at the end."""
    connection = await connect(url, **settings)
    try:
        yield connection
    finally:
        with suppress(OSError):  # the server may have ended it
            await connection.close()


def refuse(reason: str) -> NoReturn:
    """Skip the test, or fail it where PostgreSQL is required."""
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRE_VARIABLE} is set)", pytrace=False)
    pytest.skip(reason)


def require_driver() -> None:
    """Refuse the test where the driver is missing, or the whole run does without PostgreSQL."""
    if os.environ.get(URL_VARIABLE) == "none":
        refuse(f"PostgreSQL: {URL_VARIABLE} is none")
    if importlib.util.find_spec("asyncpg") is None:
        refuse("PostgreSQL: asyncpg is missing; install the extra flue-py[postgres]")


def require_programs() -> None:
    """Refuse the test where the driver or the server's programs are missing."""
    require_driver()
    try:
        find_binaries()
    except FixTheSetup as error:
        refuse(f"PostgreSQL: {error}")


@contextmanager
def own_server(settings: Mapping[str, Setting] | None = None) -> Iterator[PostgresServer]:
    """Start a server for one test, or for the tests of one module; refuse them where that cannot be done."""
    require_programs()
    with PostgresServer(settings) as server:
        yield server


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A server for this test alone, to be stopped and started as it likes. Most of a second."""
    with own_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    """The databases of this process."""
    require_driver()
    given = os.environ.get(URL_VARIABLE)
    if given:
        databases = Databases(given)
        yield databases
        databases.close()
    else:
        with own_server() as server:
            databases = Databases(server.url())
            yield databases
            databases.kept.close()


def _lending(take: Callable[[], str], give_back: Callable[[str], None]) -> Iterator[NewDatabase]:
    lent: list[str] = []

    def lend() -> str:
        lent.append(take())
        return lent[-1]

    yield lend
    for url in lent:
        give_back(url)


@pytest.fixture
def new_database(postgres_databases: Databases) -> Iterator[NewDatabase]:
    """A function that returns the URL of an empty database, which is this test's until it ends."""
    yield from _lending(postgres_databases.take, postgres_databases.give_back)


@pytest.fixture
def new_store_database(postgres_databases: Databases) -> Iterator[NewDatabase]:
    """A function that returns the URL of a database to open a store of, which is this test's until it ends.

    It is empty, or has a store without sessions, which takes a third of the time: for what uses the API alone.
    """
    yield from _lending(postgres_databases.take_store, postgres_databases.give_back_store)


@pytest.fixture
def open_postgres(postgres_databases: Databases) -> Iterator[OpenBackend]:
    """A function that opens a new, empty store. When it is closed its database is used again: a property may open
    hundreds.
    """
    lent: set[str] = set()

    async def open_it(sources: Sources) -> Backend:
        url = postgres_databases.take_store()
        lent.add(url)
        from flue_py.db.engine import open_engine

        backend = await open_engine(url, sources=sources)
        close = backend.close

        async def close_and_give_back() -> None:
            await close()
            if url in lent:
                lent.remove(url)
                postgres_databases.give_back_store(url)

        backend.close = close_and_give_back
        return backend

    yield open_it
    # What was not closed may still be in use: it is emptied the hard way. It is no longer this test's to give back: who
    # closes it only now would have it lent to two tests at once.
    while lent:
        postgres_databases.give_back(lent.pop())


@pytest.fixture(scope="module")
async def kept_engines(anyio_backend: str, postgres_databases: Databases) -> AsyncIterator[KeptEngines]:
    """Engines for the tests of one module, all of which then run on one event loop."""
    engines = KeptEngines(postgres_databases)
    yield engines
    await engines.close()


@pytest.fixture
async def open_kept_postgres(kept_engines: KeptEngines, anyio_backend: str) -> AsyncIterator[OpenBackend]:
    """As `open_postgres`, for modules with many small tests."""
    yield kept_engines.open
    await kept_engines.end_test()
