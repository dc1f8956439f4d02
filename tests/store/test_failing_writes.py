"""Every write of every operation is made to fail, one after the other: nothing is left of it, and it can be repeated.

An operation is run with its first step failing, then with its second, and so on until it succeeds. After each failure
every table is as it was; the success is that of a store where nothing failed. The fault defines the steps: a
statement of the transaction, BEGIN and COMMIT among them; a stretch of SQLite's program, so that a statement fails
halfway; a write to the file, by a limit that the kernel keeps.
"""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from flue_py.core.sessions import Appended, NewSession
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.runner import Insert, Nothing, Parameters, R, RunnerAround, Statement, Transaction, Written
from flue_py.db.sqlite import file as store_file
from flue_py.db.sqlite.file import open_file
from flue_py.errors import OutcomeUnknown, StoreUnavailable
from tests.checks import refusal
from tests.effort import first
from tests.samples import add, assistant, new_session, path_of, talk, user
from tests.sources import StepSources, counted_sources
from tests.store.failing_operations import (
    NEW_BLOB,
    OPERATIONS,
    Fault,
    Prepared,
    Tables,
    fail_until_it_succeeds,
    prepare,
    undisturbed,
)
from tests.store.sqlite_batches import in_one_batch, opened, runner_of
from tests.tables import inputs

Result = TypeVar("Result")


def disk_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("the disk is gone")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The store that every test takes a copy of."""
    return asyncio.run(prepare(tmp_path_factory.mktemp("prepared") / "s.db"))


# -- by the connection ----------------------------------------------------------------------------------------------


class Brittle:
    """The writer's connection, whose statements can be made to fail: one of a number, or the next ones of a text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fail_at: int | None = None
        self.after = False
        self.seen = 0
        self.failing: str | None = None
        self.failures = 0

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == self.failing and self.failures:
            self.failures -= 1
            raise disk_error()
        if sql == "ROLLBACK":
            return self._connection.execute(sql)
        return self._statement(self._connection.execute, sql, *args)

    def executemany(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return self._statement(self._connection.executemany, sql, *args)

    def _statement(self, run: Callable[..., sqlite3.Cursor], sql: str, *args: Any) -> sqlite3.Cursor:
        self.seen += 1
        fails = self.seen == self.fail_at
        # What was committed has happened: there is no failing afterwards.
        if fails and (not self.after or sql == "COMMIT"):
            raise disk_error()
        cursor = run(sql, *args)
        if fails:
            # The error's traceback would keep the statement open, and an open one keeps others from committing.
            cursor.close()
            raise disk_error()
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def brittle(monkeypatch: pytest.MonkeyPatch) -> list[Brittle]:
    """The connections of the writers of the stores that are opened from here on."""
    connections: list[Brittle] = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        connections.append(Brittle(open_file(*args, **kwargs)))
        return connections[-1]

    monkeypatch.setattr(store_file, "open_file", wrapped)
    return connections


class FailingStatement(Fault):
    """The n-th statement of the transaction fails: before it has run, or when it has."""

    def __init__(self, connection: Brittle, *, after: bool) -> None:
        self._connection = connection
        self._connection.after = after

    def arm(self, step: int) -> None:
        self._connection.fail_at, self._connection.seen = step, 0

    def disarm(self) -> bool:
        fail_at, self._connection.fail_at = self._connection.fail_at, None
        return fail_at is not None and self._connection.seen >= fail_at


class Interrupt(Fault):
    """SQLite stops in the middle of whatever it is doing, and takes the transaction back by itself if it wrote."""

    EVERY = 40
    """Instructions of SQLite's program to a step."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._left = 0

    def arm(self, step: int) -> None:
        self._left = step
        self._connection.set_progress_handler(self._look, self.EVERY)

    def _look(self) -> bool:
        self._left -= 1
        return self._left == 0

    def disarm(self) -> bool:
        self._connection.set_progress_handler(None, 0)
        return self._left <= 0


class FileLimit(Fault):
    """No file may be longer than the log is, and so much more at each step: the kernel fails the write beyond."""

    STEP = 3_001
    """Less than a page in the log, and no part of one, so that most writes fail halfway."""

    def __init__(self, path: Path) -> None:
        log = Path(f"{path}-wal")
        self._begin = log.stat().st_size if log.exists() else 0
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def arm(self, step: int) -> None:
        # SIGXFSZ, which comes with the error, is ignored by Python.
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._begin + (step - 1) * self.STEP, self._before[1]))

    def disarm(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


FAULTS: dict[str, Callable[[Brittle, Path], Fault]] = {
    "before it ran": lambda connection, _: FailingStatement(connection, after=False),
    "after it ran": lambda connection, _: FailingStatement(connection, after=True),
    "halfway": lambda connection, _: Interrupt(connection._connection),
    "writing to the file": lambda _, path: FileLimit(path),
}


@pytest.mark.thorough(but=["after it ran", "halfway"])
@pytest.mark.parametrize("fault", FAULTS)
@inputs("name", OPERATIONS)
async def test_whichever_statement_fails_nothing_is_left_and_a_retry_succeeds(
    tmp_path: Path, prepared: Prepared, brittle: list[Brittle], name: str, fault: str
) -> None:
    path, sources = prepared.copy(tmp_path / "s.db"), StepSources()
    brittle.clear()
    async with opened(path, sources.sources) as backend:
        failing = FAULTS[fault](brittle[0], path)
        outcome, step = await fail_until_it_succeeds(backend, sources, prepared, path, OPERATIONS[name], failing)
        assert (await backend.verify()).problems == []
    assert step > 3
    assert outcome == await undisturbed(prepared, tmp_path / "undisturbed.db", OPERATIONS[name], step)


# -- on an engine ---------------------------------------------------------------------------------------------------


class FailingCommand(Fault):
    """The n-th statement of an engine fails, settings and COMMIT among them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._left = 0
        for name in ("do_execute", "do_executemany"):
            event.listen(engine.sync_engine, name, self._look)

    def _look(self, _cursor: object, sql: str, *_: object) -> None:
        self._left -= sql != "ROLLBACK"
        if self._left == 0:
            self._left = -1
            raise disk_error()

    def arm(self, step: int) -> None:
        self._left = step

    def disarm(self) -> bool:
        left, self._left = self._left, 0
        return left < 0


@pytest.mark.thorough
@inputs("name", [name for name in OPERATIONS if name != "append"])
async def test_whichever_statement_fails_on_an_engine_nothing_is_left_and_a_retry_succeeds(
    tmp_path: Path, prepared: Prepared, name: str
) -> None:
    await check_on_engine(tmp_path, prepared, name)


async def test_whichever_statement_of_an_append_fails_on_an_engine_nothing_is_left(
    tmp_path: Path, prepared: Prepared
) -> None:
    await check_on_engine(tmp_path, prepared, "append")


async def check_on_engine(tmp_path: Path, prepared: Prepared, name: str) -> None:
    path, sources = prepared.copy(tmp_path / "s.db"), StepSources()
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    backend = await open_engine(engine, sources=sources.sources, durability="normal")
    try:
        fault = FailingCommand(engine)
        outcome, step = await fail_until_it_succeeds(backend, sources, prepared, path, OPERATIONS[name], fault)
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()
        await engine.dispose()
    assert step > 5
    assert outcome == await undisturbed(prepared, tmp_path / "undisturbed.db", OPERATIONS[name], step)


# -- in a group -----------------------------------------------------------------------------------------------------


class FailingTransaction(Transaction):
    """A transaction whose n-th statement fails, with nothing else of its group failing."""

    def __init__(self, inner: Transaction, fail_at: int) -> None:
        self._inner = inner
        self._left = fail_at
        self.states = inner.states

    def _count(self) -> Transaction:
        self._left -= 1
        if self._left == 0:
            raise disk_error()
        return self._inner

    @property
    def is_alone(self) -> bool:
        return self._inner.is_alone

    def lock_sessions(self, keys: Any) -> None:
        self._inner.lock_sessions(keys)

    def lock_session(self, session_id: str) -> None:
        self._inner.lock_session(session_id)

    def new_key(self) -> int:
        return self._count().new_key()

    def rows(self, statement: Statement[R], /, **parameters: object) -> Sequence[R]:
        return self._count().rows(statement, **parameters)

    def first(self, statement: Statement[R], /, **parameters: object) -> R | None:
        return self._count().first(statement, **parameters)

    def run(self, statement: Statement[Nothing], /, **parameters: object) -> int:
        return self._count().run(statement, **parameters)

    def run_many(self, statement: Statement[R], parameters: Sequence[Parameters]) -> None:
        self._count().run_many(statement, parameters)

    def insert(self, statement: Insert[Written], rows: Sequence[Written]) -> None:
        self._count().insert(statement, rows)


class FailingRunner(RunnerAround):
    """The runner of a store, for operations that are to fail at their n-th statement, however often they are run."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(runner_of(backend))
        self.fail_at = 0

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        return await self._runner.read(work, loose=loose)

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        fail_at = self.fail_at
        return await self._runner.write(lambda tx: work(FailingTransaction(tx, fail_at)))


MOST_DIFFERENT = (
    "append new and known blobs",
    "delete",
    "end a task",
    "fork",
    "import",
    "retract",
    "several at once with a key",
    "update",
)
"""Operations that every run tries with neighbours; the others with --thorough."""
SESSIONS = ("neighbour-1", "neighbour-2", "neighbour-3")


def neighbours(backend: Backend, number: int) -> list[Awaitable[Appended]]:
    """Return what the neighbours do, for the n-th time."""
    first, second, third = (replace(user(f"{n}-{number}"), id=f"{n}-{number}") for n in range(3))
    return [
        backend.append(SESSIONS[0], [first, replace(assistant(tokens=number), id=f"paid-{number}")]),
        backend.append(SESSIONS[1], [second]),
        backend.append(SESSIONS[2], [third], idempotency_key=f"{number}"),
    ]


@pytest.mark.parametrize("name", first(8, sorted(OPERATIONS, key=MOST_DIFFERENT.__contains__, reverse=True)))
async def test_whichever_statement_fails_its_neighbours_in_the_group_do_not_notice(
    tmp_path: Path, prepared: Prepared, name: str
) -> None:
    path, quiet = prepared.copy(tmp_path / "s.db"), prepared.copy(tmp_path / "quiet.db")
    still, sources = counted_sources(step_us=0), StepSources()
    async with opened(path, still) as backend, opened(quiet, still) as undisturbed_backend:
        for store in (backend, undisturbed_backend):
            for session_id in SESSIONS:
                await store.create_session(NewSession(id=session_id))
        failing = FailingRunner(backend)
        victim = Backend(failing, sources.sources)
        failed = True
        with closing(Tables(path)) as tables, closing(Tables(quiet)) as expected:
            while failed:
                failing.fail_at += 1
                sources.begin_step()
                first, second, third = neighbours(backend, failing.fail_at)
                results = await in_one_batch(backend, first, OPERATIONS[name](victim, prepared.ids), second, third)
                failed = isinstance(results.pop(1), StoreUnavailable)
                assert results == await in_one_batch(
                    undisturbed_backend, *neighbours(undisturbed_backend, failing.fail_at)
                )
                assert (tables.dump() == expected.dump()) is failed
        assert (await backend.verify()).problems == []
    assert failing.fail_at > 2


@inputs("failures", [1, 2, 3, 4])
async def test_when_the_commit_of_a_batch_fails_each_operation_is_told_what_became_of_it(
    tmp_path: Path, brittle: list[Brittle], failures: int
) -> None:
    brittle.clear()
    async with opened(tmp_path / "s.db") as backend:
        session = await new_session(backend)
        (connection,) = brittle
        left = [failures]

        def arm(_: Transaction) -> None:
            if left:
                connection.failing, connection.failures = "COMMIT", left.pop()

        _, *outcomes = await in_one_batch(
            backend, runner_of(backend).write(arm), *[backend.append(session.id, [user(text)]) for text in "abc"]
        )
        stored = [entry.fields["content"] for entry in await path_of(backend, session.id)]
        told = [text for text, outcome in zip("abc", outcomes, strict=True) if isinstance(outcome, Appended)]
        assert stored == told
        # The first failure is the batch's, the second that of the operation before these.
        assert len(told) == 3 - max(failures - 2, 0)
        assert all(isinstance(outcome, (Appended, OutcomeUnknown)) for outcome in outcomes)
        assert (await backend.verify()).problems == []


async def test_a_full_disk_is_told_and_leaves_everything_as_it_was(path: Path, brittle: list[Brittle]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4))
        (connection,) = brittle
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        caught = await refusal(backend, StoreUnavailable, backend.append(session.id, [NEW_BLOB, *talk(200)]))
        assert str(path) in str(caught.value)
        connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert len(await add(backend, session.id, NEW_BLOB, *talk(200))) == 201
        assert (await backend.verify()).problems == []
