"""A PostgreSQL store when the server, a connection or the pool fails, or the caller cancels."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

import flue_py
from flue_py.core.sessions import STORED, Appended, Moved, NewSession
from flue_py.db import ops
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.migrate import look_at
from flue_py.db.postgres.runner import Connection, PostgresRunner
from flue_py.db.runner import committed_before
from flue_py.errors import InvalidArgument, OutcomeUnknown, SessionNotFound, StoreBusy, StoreUnavailable
from tests.checks import raises, refusal
from tests.postgres import NewDatabase, connected, own_server
from tests.postgres_guard import CLUSTER
from tests.postgres_server import PostgresServer
from tests.samples import add, compaction, new_session, path_ids, path_of, session_info, store_snapshot, talk, user
from tests.store.postgres_worker import SCRIPT, SOURCES
from tests.store.sqlite_batches import opened_on_engine
from tests.store.sqlite_workers import Nursery, nursery
from tests.values import existing

GUARD_SECONDS = 60
opened = partial(opened_on_engine, sources=SOURCES)
"""Turns a test that hangs into one that fails; nothing is measured with it."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that the tests of this module stop and start as they like; each leaves it running."""
    with own_server() as started:
        yield started


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture
async def backend(url: str, anyio_backend: str) -> AsyncIterator[Backend]:
    """The store of the test, which must be sound at its end and have no connection out."""
    async with opened(url) as store:
        yield store
        assert (await store.verify()).problems == []
        assert checked_out(store) == 0


def pool_of(backend: Backend) -> Any:
    runner = backend._runner._runner
    assert isinstance(runner, PostgresRunner)
    return runner._engine.pool


def checked_out(backend: Backend) -> int:
    """How many connections of the pool are borrowed."""
    number: int = pool_of(backend).checkedout()
    return number


async def terminate(url: str, condition: str = "application_name = 'flue_py'") -> int:
    """End the connections of stores to a database; return how many were ended, once they are gone."""
    async with connected(url) as connection:
        ended = await connection.fetch(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND pid <> pg_backend_pid() AND ({condition})"
        )
    return len(ended)


async def texts_of(backend: Backend, session_id: str) -> list[object]:
    return [entry.fields["content"] for entry in await path_of(backend, session_id)]


# -- the server -----------------------------------------------------------------------------------------------------


class Load:
    """Workers that append to one session while things go wrong."""

    def __init__(self, workers: Nursery, url: str, session_id: str) -> None:
        self.begun: list[str] = []
        self.landed: list[str] = []
        # The kind of error, by the text of the append.
        self.failed: dict[str, str] = {}
        self._team = [
            workers.start("append_until_stopped", url=url, session_id=session_id, worker=name) for name in "abcd"
        ]
        for worker in self._team:
            assert worker.hear() == "ready"
        for worker in self._team:
            worker.tell("go")

    def wait_for_more(self, count: int) -> None:
        """Wait until each worker has been told of so many more appends that they landed."""
        for worker in self._team:
            awaited = count
            while awaited:
                awaited -= self._note(worker.hear())

    def stop(self) -> None:
        """Let them end; hear everything that they have left to say."""
        for worker in self._team:
            worker.tell("stop")
        for worker in self._team:
            while isinstance(said := worker.hear(), list):
                self._note(said)
            assert "result" in said, said
            self.failed.update(said["result"])

    def _note(self, said: Any) -> bool:
        assert isinstance(said, list), said
        what, text = said
        (self.landed if what == "landed" else self.begun).append(text)
        return bool(what == "landed")


@pytest.mark.thorough
async def test_a_server_that_crashes_under_load_loses_nothing_that_was_acknowledged(server: PostgresServer) -> None:
    url = server.create_database("crashes")
    with nursery(SCRIPT) as workers:
        async with opened(url) as backend:
            session = await new_session(backend, user("before"))
            load = await asyncio.to_thread(Load, workers, url, session.id)
            for _ in range(3):
                await asyncio.to_thread(load.wait_for_more, 5)
                await asyncio.to_thread(server.restart, mode="immediate")
                # Sessions go on, with the store that was open all the time.
                await add(backend, session.id, user("between"))
            await asyncio.to_thread(load.wait_for_more, 5)
            await asyncio.to_thread(load.stop)
            texts = [str(text) for text in await texts_of(backend, session.id)]
            assert texts.count("between") == 3
            stored = [text for text in texts if text not in ("before", "between")]
            assert len(stored) == len(set(stored))
            assert set(load.landed) <= set(stored) <= set(load.begun)
            assert set(load.begun) == {*load.landed, *load.failed}
            # The server came back well within the budget: all that is left to tell is a commit without an answer.
            assert set(load.failed.values()) <= {"OutcomeUnknown"}
            assert (await backend.verify()).problems == []


async def test_a_server_that_is_gone_for_good_is_told_within_the_busy_budget(server: PostgresServer) -> None:
    url = server.create_database("gone")
    async with opened(url, busy_timeout=0.2) as backend:
        session = await new_session(backend, *talk(2))
        try:
            server.stop("immediate")
            for operation in (
                lambda: add(backend, session.id, user()),
                lambda: backend.move(session.id, None),
                lambda: backend.read_path(session.id),
                lambda: backend.delete_tree(session.id),
            ):
                await raises((StoreUnavailable, OutcomeUnknown), operation())
            await raises(StoreUnavailable, open_engine(url, sources=SOURCES, busy_timeout=0.2))
        finally:
            server.start()
        # Once it is back, so is the store.
        assert len(await path_ids(backend, session.id)) == 2
        assert len(await add(backend, session.id, user())) == 1
        assert (await backend.verify()).problems == []


async def test_operations_that_meet_a_server_that_restarts_wait_for_it(server: PostgresServer) -> None:
    url = server.create_database("restarts")
    async with opened(url) as backend:
        session = await new_session(backend, *talk(2))
        server.stop()
        waiting = [
            asyncio.ensure_future(add(backend, session.id, user())),
            asyncio.ensure_future(backend.read_path(session.id)),
            asyncio.ensure_future(backend.set_label(session.id, session.leaf_id or "", "kept")),
        ]
        await asyncio.to_thread(server.start)
        await asyncio.gather(*waiting)
        assert len(await path_ids(backend, session.id)) == 3
        assert [mark.value for mark in await backend.read_marks(session.id)] == ["kept"]


# -- a connection ---------------------------------------------------------------------------------------------------


async def test_connections_that_were_lost_in_the_pool_are_replaced_unseen(backend: Backend, url: str) -> None:
    session = await new_session(backend, *talk(2))
    for operation in (
        lambda: add(backend, session.id, user("append")),
        lambda: backend.move(session.id, None),
        lambda: backend.undo(session.id),
        lambda: backend.read_path(session.id),
        lambda: backend.get_session(session.id),
    ):
        await asyncio.gather(*[backend.get_session(session.id) for _ in range(4)])
        assert await terminate(url) > 0
        await operation()
    assert len(await path_ids(backend, session.id)) == 3


class Interruption:
    """Ends the connection of this store as it sends a certain command."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.command = ""
        self.is_executed_first = False
        self.met = 0

    async def meet(self, driver: Any, command: str, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a command on a connection of asyncpg, with what befalls it."""
        if not self.command or not (command.startswith(self.command) or command.endswith(self.command)):
            return await run()
        self.command = ""
        self.met += 1
        if self.is_executed_first:
            await run()
        async with connected(self._url) as other:
            assert await other.fetchval("SELECT pg_terminate_backend($1, 30000)", driver.get_server_pid())
        # The server's last word is on its way, and the driver will say what it makes of it.
        return await driver.execute("SELECT 1")


@pytest.fixture
def interruption(url: str, monkeypatch: pytest.MonkeyPatch) -> Interruption:
    """Set its ``command``, and the next connection to send it is ended: before, or when it has been executed."""
    made = Interruption(url)

    def execute(self: Connection, sql: str) -> None:
        self.wait_for(lambda driver: made.meet(driver, sql, lambda: driver.execute(sql)))

    def fetch(self: Connection, sql: str, arguments: Any, make: Callable[[Any], Any] = tuple) -> list[Any]:
        rows = self.wait_for(lambda driver: made.meet(driver, sql, lambda: driver.fetch(sql, *arguments)))
        return [make(row) for row in rows]

    monkeypatch.setattr(Connection, "execute", execute)
    monkeypatch.setattr(Connection, "fetch", fetch)
    return made


@pytest.mark.parametrize("is_executed", [False, True], ids=["before", "after"])
async def test_a_move_whose_commit_is_not_answered_has_an_unknown_outcome(
    backend: Backend, interruption: Interruption, is_executed: bool
) -> None:
    session = await new_session(backend, *talk(2))
    first = (await path_ids(backend, session.id))[0]
    interruption.command, interruption.is_executed_first = "COMMIT", is_executed
    await raises(OutcomeUnknown, backend.move(session.id, first))
    assert interruption.met == 1
    info = await session_info(backend, session.id)
    assert (info.leaf_id, info.revision) == ((first, 2) if is_executed else (session.leaf_id, 1))
    assert len(await add(backend, session.id, user())) == 1


@pytest.mark.parametrize("is_executed", [False, True], ids=["before", "after"])
async def test_a_move_with_an_idempotency_key_is_repeated_when_its_commit_is_not_answered(
    backend: Backend, interruption: Interruption, is_executed: bool
) -> None:
    session = await new_session(backend, *talk(2))
    first = (await path_ids(backend, session.id))[0]
    interruption.command, interruption.is_executed_first = "COMMIT", is_executed
    moved = await backend.move(session.id, first, idempotency_key="k")
    assert interruption.met == 1
    assert (moved.to_id, moved.revision) == (first, 2)
    assert (await session_info(backend, session.id)).revision == 2


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT"])
async def test_what_was_not_committed_is_run_again_where_nothing_was_sent_for_good(
    backend: Backend, interruption: Interruption, command: str
) -> None:
    session = await new_session(backend, *talk(2))
    interruption.command = command
    # Reads, and writes before their commit, are always safe to repeat.
    if command == "BEGIN":
        assert (await backend.move(session.id, None)).revision == 2
    else:
        moved = await backend.move(session.id, None, idempotency_key="k")
        assert moved.revision == 2
    assert interruption.met == 1


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("is_executed", [False, True], ids=["before", "after"])
async def test_an_append_whose_answer_is_lost_is_made_exactly_once(
    backend: Backend, interruption: Interruption, is_executed: bool, key: str | None
) -> None:
    session = await new_session(backend, user("a"))
    interruption.command, interruption.is_executed_first = "WITH planned", is_executed
    appended = await backend.append(session.id, [user("b"), user("c")], idempotency_key=key)
    assert interruption.met == 1
    assert await texts_of(backend, session.id) == ["a", "b", "c"]
    assert (await path_ids(backend, session.id))[1:] == list(appended.entry_ids)
    assert (await session_info(backend, session.id)).revision == 2
    assert await add(backend, session.id, user("d"))


async def test_an_append_that_landed_unheard_is_known_though_others_have_appended_since(
    backend: Backend, url: str, interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await new_session(backend, user("a"))
    async with opened(url) as other:
        meet = interruption.meet

        async def meet_and_append(driver: Any, command: str, run: Callable[[], Awaitable[Any]]) -> Any:
            armed = interruption.command
            try:
                return await meet(driver, command, run)
            finally:
                if armed and not interruption.command:
                    await add(other, session.id, user("of another"))

        monkeypatch.setattr(interruption, "meet", meet_and_append)
        interruption.command, interruption.is_executed_first = "WITH planned", True
        appended = await backend.append(session.id, [user("b")], expected=session.leaf_id)
    assert await texts_of(backend, session.id) == ["a", "b", "of another"]
    assert appended.entry_ids == ((await path_ids(backend, session.id))[1],)
    assert appended.revision == 2


@pytest.mark.parametrize("given", [None, "mine"], ids=["drawn id", "given id"])
@pytest.mark.parametrize("is_executed", [False, True], ids=["before", "after"])
async def test_a_fork_whose_answer_is_lost_is_made_exactly_once(
    backend: Backend, interruption: Interruption, is_executed: bool, given: str | None
) -> None:
    session = await new_session(backend, *talk(2))
    first = (await path_ids(backend, session.id))[0]
    interruption.command, interruption.is_executed_first = "WITH planned", is_executed
    fork = await backend.fork(session.id, first, NewSession(id=given, title="of the first"))
    assert interruption.met == 1
    page = await backend.list_sessions(scope=None, kind="fork", limit=10, cursor=None)
    assert page.sessions == (fork,)
    assert (fork.leaf_id, fork.title, fork.forked_from_session) == (first, "of the first", session.id)
    assert await path_ids(backend, fork.id) == [first]


# -- reads without a transaction ------------------------------------------------------------------------------------


class Meddling:
    """Lets something happen between the statements of a read."""

    def __init__(self) -> None:
        self.between: Callable[[], Awaitable[object]] | None = None

    async def meet(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a statement, after what shall happen before it."""
        between, self.between = self.between, None
        if between is not None:
            await between()
        return await run()


@pytest.fixture
def meddling(monkeypatch: pytest.MonkeyPatch) -> Meddling:
    """Set ``between``, and it happens once: before the next statement that returns several rows."""
    made = Meddling()

    def fetch(self: Connection, sql: str, arguments: Any, make: Callable[[Any], Any] = tuple) -> list[Any]:
        rows = self.wait_for(lambda driver: made.meet(lambda: driver.fetch(sql, *arguments)))
        return [make(row) for row in rows]

    monkeypatch.setattr(Connection, "fetch", fetch)
    return made


@pytest.mark.parametrize("read", ["path", "context", "messages"])
@pytest.mark.parametrize("is_forked", [False, True], ids=["in one lane", "in two lanes"])
async def test_a_session_that_is_deleted_while_it_is_read_is_not_read_in_part(
    backend: Backend, url: str, meddling: Meddling, read: str, is_forked: bool
) -> None:
    session = await new_session(backend, *talk(6))
    kept = (await path_ids(backend, session.id))[3]
    if is_forked:
        session = await backend.fork(session.id, STORED, NewSession())
    await add(backend, session.id, compaction(kept), *talk(2))
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "path": lambda: backend.read_path(session.id),
        "context": lambda: backend.read_context(session.id),
        "messages": lambda: backend.read_messages(session.id),
    }
    assert await operations[read]()
    async with opened(url) as other:
        meddling.between = lambda: other.delete_tree(session.id)
        await raises(SessionNotFound, operations[read]())


@pytest.mark.parametrize("read", ["path", "context", "messages", "usage"])
async def test_a_session_that_goes_on_while_it_is_read_is_read_as_it_was(
    backend: Backend, url: str, meddling: Meddling, read: str
) -> None:
    session = await new_session(backend, *talk(6))
    first, *_, leaf = await path_ids(backend, session.id)
    operations: dict[str, Callable[[], Awaitable[Any]]] = {
        "path": lambda: backend.read_path(session.id),
        "context": lambda: backend.read_context(session.id),
        "messages": lambda: backend.read_messages(session.id),
        "usage": lambda: backend.read_usage(session.id, first),
    }
    before = await operations[read]()
    async with opened(url) as other:
        meddling.between = lambda: add(other, session.id, compaction(leaf), *talk(2))
        during = await operations[read]()
    if read == "usage":
        # One statement: nothing comes between.
        assert meddling.between is not None
        meddling.between = None
        assert during == before
    else:
        assert meddling.between is None
        assert during == before
        assert await operations[read]() != before


async def test_a_read_can_be_cancelled_and_its_connection_serves_on(url: str) -> None:
    async with opened(url, pool_size=1) as backend, connected(url) as connection:
        session = await new_session(backend, *talk(2))
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.ensure_future(backend.get_session(session.id))
        await until_waiting(url)
        await cancelled(reading)
        await transaction.rollback()
        assert await session_info(backend, session.id) == session
        assert checked_out(backend) == 0


async def test_closing_waits_for_a_read_that_is_under_way(url: str) -> None:
    async with opened(url) as backend, connected(url) as connection:
        session = await new_session(backend, *talk(2))
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.ensure_future(backend.get_session(session.id))
        await until_waiting(url)
        closing = asyncio.ensure_future(backend.close())
        await asyncio.sleep(0)
        assert not closing.done()
        await transaction.rollback()
        await closing
        assert await reading == session


# -- the server's settings ------------------------------------------------------------------------------------------


async def test_a_read_only_server_refuses_writes_and_answers_reads(url: str) -> None:
    async with opened(url) as backend:
        session = await new_session(backend, *talk(2))
    async with connected(url) as connection:
        name = make_url(url).database
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with opened(url) as backend:
        for operation in (
            lambda: add(backend, session.id, user()),
            lambda: backend.move(session.id, None),
            lambda: backend.delete_tree(session.id),
        ):
            caught = await refusal(backend, StoreUnavailable, operation())
            assert "read-only" in str(caught.value)
        assert len(await path_ids(backend, session.id)) == 2
        assert checked_out(backend) == 0


@asynccontextmanager
async def locked(url: str, session_id: str) -> AsyncIterator[Any]:
    """Somebody else holds the row of a session."""
    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert await connection.fetchval("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", session_id) == 1
        try:
            yield connection
        finally:
            await transaction.rollback()


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_a_lock_that_is_held_too_long_is_a_busy_store(url: str, setting: str) -> None:
    name = make_url(url).database
    async with opened(url) as looking_on:
        session = await new_session(looking_on, *talk(2))
        if setting == "statement_timeout":
            async with connected(url) as connection:
                await connection.execute(f"ALTER DATABASE \"{name}\" SET statement_timeout = '300ms'")
        async with (
            opened(url, busy_timeout=0.1 if setting == "lock_timeout" else 30) as backend,
            locked(url, session.id),
        ):
            for operation in (
                partial(add, backend, session.id, user()),
                partial(backend.move, session.id, None),
                partial(backend.delete_tree, session.id),
            ):
                # Its connection is from before the setting: a slow look at the store is no statement that waits.
                await refusal(looking_on, StoreBusy, operation())
                assert checked_out(backend) == 0
        if setting == "statement_timeout":
            # What comes now may take its time.
            async with connected(url) as connection:
                await connection.execute(f'ALTER DATABASE "{name}" RESET statement_timeout')
    async with opened(url) as backend:
        assert len(await add(backend, session.id, user())) == 1
        assert (await backend.verify()).problems == []


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 16 MB for the server."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system can only be mounted by root")
    folder = Path(tempfile.mkdtemp(prefix="flue-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "flue-disk", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)


@pytest.mark.thorough
async def test_a_full_disk_is_told_and_leaves_everything_as_it_was(small_disk: Path) -> None:
    with own_server() as server:
        owner = server.folder.stat()
        os.chown(small_disk, owner.st_uid, owner.st_gid)
        server.psql(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        server.psql("CREATE DATABASE full_disk TABLESPACE small")
        async with opened(server.url("full_disk")) as backend:
            session = await new_session(backend)
            acknowledged: list[str] = []

            async def fill() -> None:
                for _ in range(200):
                    # No text that could be made smaller.
                    acknowledged.extend(await add(backend, session.id, user(secrets.token_hex(200_000))))

            for _ in range(2):
                await raises(StoreUnavailable, fill(), match="disk is full")
                assert checked_out(backend) == 0
            await asyncio.to_thread(enlarge, small_disk)
            assert await path_ids(backend, session.id) == acknowledged
            assert (await session_info(backend, session.id)).revision == len(acknowledged) > 0
            assert len(await add(backend, session.id, user(secrets.token_hex(8_000_000)))) == 1
            assert (await backend.verify()).problems == []


# -- what cannot be opened ------------------------------------------------------------------------------------------

SECRET = "s3cr3t-pass"


def told(error: BaseException) -> str:
    """Everything that an error shows of itself."""
    return f"{error}\n{error!r}\n{error.args}\n" + "".join(traceback.format_exception(error))


async def refused_to_open(url: Any) -> str:
    """Return what the refusal to open a URL says, in which there must be no secret."""
    caught = await raises(StoreUnavailable, open_engine(url, sources=SOURCES, busy_timeout=0.1))
    shown = told(caught.value)
    assert SECRET not in shown
    return str(caught.value)


async def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    # Nobody listens on a port that is taken and not listened on. (For port 0 the driver takes that of every server.)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "cannot be reached" in await refused_to_open(f"postgresql+asyncpg://someone:{SECRET}@{host}/sessions")
    await refused_to_open(f"postgresql+asyncpg://someone:{SECRET}@/sessions?host=/nowhere")
    await refused_to_open(f"postgresql+asyncpg:///sessions?host=/nowhere&user=someone&password={SECRET}")


async def test_a_server_that_never_answers_is_given_up_on() -> None:
    # The kernel takes the connection in; nobody reads from it.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+asyncpg://u:secret@127.0.0.1:{silent.getsockname()[1]}/d"
        await raises(StoreUnavailable, open_engine(url, sources=SOURCES, busy_timeout=0.1), match=r"127\.0\.0\.1")
        await raises(StoreUnavailable, look_at(url, busy_timeout=0.1), match=r"127\.0\.0\.1")


async def test_an_unknown_database_or_role_is_told_without_the_password(url: str) -> None:
    parsed = make_url(url).set(password=SECRET)
    for other in (parsed.set(database="no_such_database"), parsed.set(username="no_such_role")):
        await refused_to_open(other.render_as_string(hide_password=False))


async def test_a_wrong_password_is_told_without_the_password(server: PostgresServer) -> None:
    server.psql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = server.folder / CLUSTER / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{before}")
    server.psql("SELECT pg_reload_conf()")
    try:
        guarded = make_url(server.url()).set(username="guarded", password=SECRET)
        said = await refused_to_open(guarded.render_as_string(hide_password=False))
        assert "password" in said
    finally:
        rules.write_text(before)
        server.psql("SELECT pg_reload_conf()")


# -- the pool -------------------------------------------------------------------------------------------------------


async def test_one_connection_serves_many_calls_at_once(url: str) -> None:
    async with opened(url, pool_size=1) as backend:
        sessions = [await new_session(backend) for _ in range(5)]
        appends: list[Awaitable[Any]] = [
            add(backend, session.id, user(str(n))) for n in range(5) for session in sessions
        ]
        reads: list[Awaitable[Any]] = [backend.read_path(session.id) for session in sessions]
        await asyncio.gather(*appends, *reads)
        assert pool_of(backend).size() == 1
        assert (pool_of(backend).checkedin(), checked_out(backend)) == (1, 0)
        for session in sessions:
            assert sorted(str(text) for text in await texts_of(backend, session.id)) == list("01234")
        assert (await backend.verify()).problems == []


async def test_the_end_of_a_lane_is_found_by_its_index(backend: Backend, url: str) -> None:
    await asyncio.gather(*[new_session(backend, *talk(100)) for _ in range(9)])
    async with connected(url) as connection:
        await connection.execute("ANALYZE")
        plan = await connection.fetch(f"EXPLAIN {ops.delete.DELETE_TAILS.numbered}", "[[1, 1, -1]]")
    assert "Seq Scan" not in str(plan)


async def test_a_pool_that_stays_empty_is_a_busy_store(url: str) -> None:
    async with opened(url, pool_size=1, pool_timeout=0.1) as backend:
        session = await new_session(backend, *talk(2))
        async with locked(url, session.id):
            waiting = asyncio.ensure_future(backend.move(session.id, None))
            await until_borrowed(backend)
            await raises(StoreBusy, backend.get_session(session.id), match="pool")
            await raises(StoreBusy, add(backend, session.id, user()), match="pool")
        assert (await waiting).revision == 2
        assert checked_out(backend) == 0
        assert len(await path_ids(backend, session.id)) == 0


async def until_borrowed(backend: Backend, count: int = 1) -> None:
    """Let others run until so many connections are borrowed."""
    async with asyncio.timeout(GUARD_SECONDS):
        while checked_out(backend) < count:  # noqa: ASYNC110 - the pool has no event to wait for
            await asyncio.sleep(0)


async def until_waiting(url: str, count: int = 1) -> None:
    """Let others run until so many connections of stores wait for a lock."""
    async with asyncio.timeout(GUARD_SECONDS), connected(url) as connection:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'flue_py' AND wait_event_type = 'Lock'"
        )
        while await connection.fetchval(waiting) < count:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0)


async def test_a_borrowed_engine_is_not_disposed_of(url: str) -> None:
    engine = create_async_engine(url, pool_size=2)
    try:
        async with opened(engine) as backend:
            session = await new_session(backend, *talk(2))
            pool = pool_of(backend)
            assert pool.checkedout() == 0
        # Disposing would have closed the idle connections, and put another pool in the place of this one.
        assert id(engine.pool) == id(pool)
        assert pool.checkedin() > 0
        async with engine.connect() as connection:
            found = await connection.exec_driver_sql("SELECT id FROM sessions")
            assert found.scalars().all() == [session.id]
    finally:
        await engine.dispose()


async def test_connections_are_returned_whatever_becomes_of_a_call(backend: Backend, url: str) -> None:
    session = await new_session(backend, *talk(2))
    outcomes = await asyncio.gather(
        *[add(backend, session.id, user()) for _ in range(12)],
        *[backend.append(session.id, [user()], expected="other") for _ in range(12)],
        *[backend.read_path("missing") for _ in range(12)],
        *[backend.move(session.id, "missing") for _ in range(12)],
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, flue_py.FlueError) for outcome in outcomes) == 36
    assert checked_out(backend) == 0
    assert len(await path_ids(backend, session.id)) == 14


async def test_a_borrowed_engine_whose_commits_do_not_wait_for_the_disk_is_no_durable_store(url: str) -> None:
    engine = create_async_engine(url, connect_args={"server_settings": {"synchronous_commit": "off"}})
    try:
        with pytest.raises(InvalidArgument, match="synchronous_commit"):
            await open_engine(engine, sources=SOURCES, durability="full")
        async with opened(engine, durability="normal") as backend:
            assert len((await new_session(backend, *talk(2))).leaf_id or "") > 0
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    finally:
        await engine.dispose()


# -- cancellation ---------------------------------------------------------------------------------------------------


async def cancelled(task: asyncio.Future[Any]) -> asyncio.CancelledError:
    """Cancel a task, and return what it raises."""
    task.cancel()
    async with asyncio.timeout(GUARD_SECONDS):
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    return caught.value


async def test_a_caller_who_waits_for_a_lock_can_be_cancelled_and_nothing_happens(url: str) -> None:
    # Only the cancellation can end the wait: the lock is held until then, and longer.
    async with opened(url, busy_timeout=10 * GUARD_SECONDS) as backend:
        session = await new_session(backend, *talk(2))
        before = await store_snapshot(backend)
        async with locked(url, session.id):
            for operation in (
                lambda: backend.append(session.id, [user()]),
                lambda: backend.move(session.id, None),
                lambda: backend.delete_tree(session.id),
                lambda: backend.set_label(session.id, session.leaf_id or "", "label"),
            ):
                task = asyncio.ensure_future(operation())
                await until_waiting(url)
                error = await cancelled(task)
                assert committed_before(error) is None
                assert checked_out(backend) == 0
        assert await store_snapshot(backend) == before
        assert (await backend.verify()).problems == []


async def test_a_caller_who_waits_for_the_pool_can_be_cancelled_and_nothing_happens(url: str) -> None:
    async with opened(url, pool_size=1, pool_timeout=10 * GUARD_SECONDS) as backend:
        session = await new_session(backend, *talk(2))
        async with locked(url, session.id):
            holder = asyncio.ensure_future(backend.move(session.id, None))
            await until_waiting(url)
            for operation in (
                lambda: add(backend, session.id, user()),
                lambda: backend.move(session.id, session.leaf_id),
                lambda: backend.read_path(session.id),
            ):
                task = asyncio.ensure_future(operation())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                error = await cancelled(task)
                assert committed_before(error) is None
        moved = await holder
        assert moved.revision == 2
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.revision, info.entry_count) == (None, 2, 2)
        assert checked_out(backend) == 0


async def test_a_commit_that_has_begun_is_finished_before_its_caller_is_cancelled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(run: Callable[[], Awaitable[Any]]) -> Any:
        reached.set()
        await go_on.wait()
        return await run()

    execute = Connection.execute

    def held_execute(self: Connection, sql: str) -> None:
        if sql.endswith("COMMIT"):
            self.wait_for(lambda driver: slowly(lambda: driver.execute(sql)))
        else:
            execute(self, sql)

    async with opened(url) as backend:
        session = await new_session(backend, *talk(2))
        monkeypatch.setattr(Connection, "execute", held_execute)
        task: asyncio.Future[Any] = asyncio.ensure_future(backend.move(session.id, None))
        async with asyncio.timeout(GUARD_SECONDS):
            await reached.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
        committed = existing(committed_before(caught.value))
        assert isinstance(committed.result, Moved)
        info = await session_info(backend, session.id)
        assert (info.revision, info.entry_count) == (2, 2)
        assert checked_out(backend) == 0
        assert (await backend.verify()).problems == []


async def test_an_append_that_is_cancelled_is_there_or_not_and_its_caller_knows_which(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()
    fetch = Connection.fetch

    def cancelled_before_it_is_sent(self: Connection, sql: str, arguments: Any) -> list[Any]:
        if sql.startswith("WITH planned"):
            self.wait_for(lambda _: hold())
        return fetch(self, sql, arguments)

    def cancelled_when_it_was_done(self: Connection, sql: str, arguments: Any) -> list[Any]:
        rows = fetch(self, sql, arguments)
        if sql.startswith("WITH planned"):
            self.wait_for(lambda _: hold())
        return rows

    async def hold() -> None:
        reached.set()
        await asyncio.Event().wait()

    async with opened(url) as backend:
        session = await new_session(backend, *talk(2))
        for held, is_done in ((cancelled_before_it_is_sent, False), (cancelled_when_it_was_done, True)):
            reached.clear()
            with monkeypatch.context() as patch:
                patch.setattr(Connection, "fetch", held)
                task = asyncio.ensure_future(backend.append(session.id, [user()]))
                await reached.wait()
                error = await cancelled(task)
            committed = committed_before(error)
            assert (committed is not None) == is_done
            if committed is not None:
                assert isinstance(committed.result, Appended)
                assert committed.result.entry_ids[0] == (await session_info(backend, session.id)).leaf_id
            assert (await session_info(backend, session.id)).entry_count == 2 + is_done
            assert checked_out(backend) == 0
        assert (await backend.verify()).problems == []


async def test_closing_waits_for_what_is_under_way(url: str) -> None:
    async with opened(url) as backend:
        session = await new_session(backend, *talk(2))
        async with locked(url, session.id):
            moving = asyncio.ensure_future(backend.move(session.id, None))
            await until_waiting(url)
            closing = asyncio.ensure_future(backend.close())
            await asyncio.sleep(0)
            assert not closing.done()
        await closing
        assert (await moving).revision == 2


# -- watching -------------------------------------------------------------------------------------------------------


async def end_listening(url: str) -> None:
    """End the connection that listens, once there is one."""
    async with asyncio.timeout(GUARD_SECONDS):
        query = "query LIKE 'LISTEN%' OR query LIKE '%pg_advisory_lock_shared%'"
        while not await terminate(url, query):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0)


async def test_a_watcher_whose_connection_is_ended_misses_and_repeats_nothing(url: str) -> None:
    async with flue_py.open(url) as store, flue_py.open(url) as other:
        session = await store.create_session(key="k")
        theirs = await other.open_session("k")
        changes = session.watch(after=0)
        seen: list[int] = []

        async def see(count: int) -> None:
            async with asyncio.timeout(GUARD_SECONDS):
                seen.extend([(await anext(changes)).revision for _ in range(count)])

        await theirs.append_message({"role": "user", "content": "0"})
        await see(1)
        for number in range(3):
            watching = asyncio.ensure_future(see(1))
            await end_listening(url)
            await theirs.append_message({"role": "user", "content": str(number)})
            await watching
        assert seen == [1, 2, 3, 4]
        # What is committed while nobody listens is found afterwards.
        waiting = asyncio.ensure_future(see(3))
        await theirs.append_message({"role": "user", "content": "a"})
        await end_listening(url)
        await theirs.append_message({"role": "user", "content": "b"})
        await theirs.append_message({"role": "user", "content": "c"})
        await waiting
        assert seen == list(range(1, 8))
        await changes.aclose()
