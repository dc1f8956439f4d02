"""Operations on a SQLite file: in batches, on threads, beside other processes, and with failures."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from flue_py import errors
from flue_py.core.operations import SetLabel
from flue_py.core.sessions import STORED, Appended, NewSession
from flue_py.db import sql as store_sql
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.ops import append as appending
from flue_py.db.ops import edit as editing
from flue_py.db.runner import IdTaken, Sources, Transaction, committed_before, written
from flue_py.db.sqlite import file as sqlite_writer
from flue_py.db.sqlite import runner as sqlite
from flue_py.db.sqlite.file import begin_immediate
from flue_py.db.sqlite.runner import open_sqlite
from tests.checks import raises, refusal, unchanged
from tests.samples import UNKNOWN, add, assistant, compaction, new_session, path_ids, path_of, session_info, talk, user
from tests.sources import counted_sources, repeating_sources
from tests.store.sqlite_batches import GUARD_SECONDS, Gate, held_writer, in_one_batch, in_the_queue, opened, runner_of
from tests.tables import inputs
from tests.values import existing

# But for those with `threads`.
pytestmark = pytest.mark.usefixtures("on_thread")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One element for each transaction that the writer has begun."""
    transactions: list[None] = []

    def counting(
        connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        transactions.append(None)
        begin_immediate(connection, busy_timeout, is_wanted)

    monkeypatch.setattr(sqlite_writer, "begin_immediate", counting)
    return transactions


async def until_begun(begun: list[None]) -> None:
    """Wait until the writer has asked for the lock."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not begun:  # noqa: ASYNC110 - the writer is a thread
            await asyncio.sleep(0.001)


def threads_of(path: Path) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if path.name in thread.name]


# -- a short write on the event loop --------------------------------------------------------------------------------


@pytest.fixture
def threads(on_thread: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Any write is short; the threads that write, by the beginning of their names."""
    monkeypatch.setattr(sqlite, "SHORT_SECONDS", GUARD_SECONDS)
    writing: list[str] = []
    write = sqlite.StoreFile.write

    def noting(file: sqlite.StoreFile, operations: Sequence[sqlite_writer.Operation[Any]]) -> None:
        writing.append(f"{threading.current_thread().name.split('-')[0]} {len(operations)}")
        write(file, operations)

    monkeypatch.setattr(sqlite.StoreFile, "write", noting)
    return writing


async def test_a_lone_append_is_made_on_the_loop_and_others_go_over_together(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        sessions = [await new_session(backend) for _ in range(3)]
        threads.clear()
        await backend.append(sessions[0].id, [user("alone")])
        await asyncio.gather(*[backend.append(session.id, [user("at once")]) for session in sessions])
        await backend.append(sessions[0].id, talk(20))
        assert threads == ["MainThread 1", "flue 3", "flue 1"]
        assert len(await path_ids(backend, sessions[0].id)) == 22


async def test_an_append_that_meets_a_lock_is_left_to_the_thread(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            threads.clear()
            task = asyncio.create_task(backend.append(session.id, [user("a")]))
            async with asyncio.timeout(GUARD_SECONDS):
                while len(threads) < 2:  # noqa: ASYNC110 - the writer is a thread
                    await asyncio.sleep(0.001)
            other.execute("COMMIT")
        await task
        assert threads == ["MainThread 1", "flue 1"]
        assert len(await path_ids(backend, session.id)) == 1


async def test_an_append_that_is_cancelled_before_it_is_made_changes_nothing(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        threads.clear()
        tasks = [asyncio.create_task(backend.append(session.id, [user(text)])) for text in "ab"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert (tasks[0].cancelled(), threads) == (True, ["flue 2"])
        assert [entry.fields["content"] for entry in await path_of(backend, session.id)] == ["b"]


async def test_appends_that_were_asked_for_are_made_before_a_store_is_closed(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        sessions = [(await new_session(backend)).id for _ in range(2)]
        tasks = [asyncio.create_task(backend.append(session, [user("a")])) for session in sessions]
        await asyncio.gather(*tasks, asyncio.create_task(backend.close()))
        assert threads[-1] == "flue 2"
    async with opened(path) as backend:
        assert [len(await path_ids(backend, session)) for session in sessions] == [1, 1]


async def test_another_loop_and_a_closed_store_are_refused_there_too(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        threads.clear()
        with pytest.raises(errors.WrongEventLoop):
            await asyncio.to_thread(lambda: asyncio.run(backend.append(session.id, [user("b")])))
    await raises(errors.StoreClosed, backend.append(session.id, [user("b")]))
    assert threads == []


async def test_an_error_on_the_loop_is_that_of_the_write(path: Path, threads: list[str]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        threads.clear()
        await raises(errors.LeafConflict, backend.append(session.id, [user("b")], expected=None))
        assert threads == ["MainThread 1"]
        await backend.append(session.id, [user("b")])
        assert len(await path_ids(backend, session.id)) == 2


# -- group commit ---------------------------------------------------------------------------------------------------


async def test_operations_that_wait_are_committed_together_and_in_call_order(path: Path, begun: list[None]) -> None:
    async with opened(path) as backend:
        sessions = [await new_session(backend) for _ in range(5)]
        begun.clear()
        results = await in_one_batch(
            backend, *[backend.append(session.id, [user(str(n))]) for n in range(20) for session in sessions]
        )
        assert len(begun) == 2  # the operation that held the writer, and all the others
        assert all(isinstance(result, Appended) for result in results)
        for session in sessions:
            assert [entry.data for entry in await path_of(backend, session.id)] == [
                {"role": "user", "content": str(n)} for n in range(20)
            ]
        assert (await backend.verify()).problems == []


async def test_within_a_batch_each_operation_sees_those_before_it(path: Path, begun: list[None]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        begun.clear()
        first, second, conflict, replay, fork, branch = await in_one_batch(
            backend,
            backend.append(session.id, [user("a")], expected=None, idempotency_key="k"),
            backend.append(session.id, [user("b")], expected=f"{1:016x}"),
            backend.append(session.id, [user("c")], expected=None),
            backend.append(session.id, [user("a")], expected=None, idempotency_key="k"),
            backend.fork(session.id, f"{1:016x}", NewSession()),
            backend.append(session.id, [user("c")], expected=None, on_conflict="branch"),
        )
        assert len(begun) == 2
        assert (first.entry_ids, second.entry_ids) == ((f"{1:016x}",), (f"{2:016x}",))
        assert isinstance(conflict, errors.LeafConflict)
        assert conflict.actual == second.leaf_id
        assert replay == replace(first, replayed=True)
        assert fork.leaf_id == first.leaf_id
        assert branch.on_branch
        assert await path_ids(backend, session.id) == [*first.entry_ids, *second.entry_ids]


async def test_operations_that_fail_before_they_write_do_not_disturb_the_batch(path: Path, begun: list[None]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        await backend.append(session.id, [user("b")], idempotency_key="k")
        begun.clear()
        results = await in_one_batch(
            backend,
            backend.append(session.id, [user("1")]),
            backend.append(session.id, [user("x")], expected="other"),
            backend.append(session.id, [user("2")]),
            backend.append(UNKNOWN, [user("x")]),
            backend.append(session.id, [compaction("nowhere")]),
            backend.append(session.id, [user("3")]),
            backend.move(session.id, "nowhere"),
            backend.append(session.id, [user("x")], idempotency_key="k"),
            backend.append(session.id, [user("4")]),
        )
        assert len(begun) == 2
        assert [type(result) for result in results] == [
            Appended, errors.LeafConflict, Appended, errors.SessionNotFound, errors.EntryNotFound, Appended,
            errors.EntryNotFound, errors.IdempotencyConflict, Appended,
        ]  # fmt: skip
        texts = [entry.fields["content"] for entry in await path_of(backend, session.id)]
        assert texts == ["a", "b", "1", "2", "3", "4"]


class Mishap(Exception):
    """An error that nobody expects."""


def failing_late(error: BaseException) -> Callable[..., None]:
    """A stand-in for `edit.set_label` that fails when it has written."""

    def set_label(tx: Transaction, sources: Sources, operation: SetLabel) -> None:
        written(tx, appending.plan_append(tx, sources, operation.session_id, [user("never")], STORED, "raise", None))
        tx.run(editing.UPDATE_TITLE, title="never", session_key=1)
        raise error

    return set_label


@inputs(
    ("error", "seen"),
    [
        (errors.InvalidEntry("late"), errors.InvalidEntry),
        (Mishap("late"), Mishap),
        (sqlite3.OperationalError("late"), errors.FlueError),
        (sqlite3.IntegrityError("late"), errors.FlueError),
        (IdTaken(), errors.FlueError),
        (RecursionError(), RecursionError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_an_operation_that_fails_after_it_wrote_leaves_its_neighbours_intact(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, seen: type[BaseException]
) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        monkeypatch.setitem(editing.FUNCTIONS, SetLabel, failing_late(error))
        results = await in_one_batch(
            backend,
            backend.append(session.id, [user("1")]),
            backend.set_label(session.id, "x", "x"),
            backend.append(session.id, [user("2")]),
            backend.append(session.id, [user("x")], expected="other"),
            backend.set_label(session.id, "x", "x"),
            backend.append(session.id, [user("3")]),
        )
        assert [isinstance(result, Appended) for result in results] == [True, False, True, False, False, True]
        assert isinstance(results[1], seen)
        assert isinstance(results[3], errors.LeafConflict)
        texts = [entry.fields["content"] for entry in await path_of(backend, session.id)]
        assert texts == ["a", "1", "2", "3"]
        info = await session_info(backend, session.id)
        assert (info.title, info.entry_count) == (None, 4)
        assert (await backend.verify()).problems == []
        await raises(seen, backend.set_label(session.id, "x", "x"))
        assert len(await path_ids(backend, session.id)) == 4


async def test_a_batch_larger_than_the_limit_is_committed_in_parts(
    path: Path, begun: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_BATCH", 4)
    async with opened(path) as backend:
        session = await new_session(backend)
        begun.clear()
        results = await in_one_batch(backend, *[backend.append(session.id, [user(str(n))]) for n in range(10)])
        assert len(begun) == 1 + 3
        assert await path_ids(backend, session.id) == [result.entry_ids[0] for result in results]


STOP_ITERATION = """
import asyncio, sys
from flue_py.core.operations import SetLabel
from flue_py.core.sessions import NewSession
from flue_py.db.ops import edit as editing
from flue_py.db.sqlite.runner import open_sqlite
from tests.samples import user
from tests.sources import counted_sources

def set_label(*args):
    next(iter(()))  # as a source of ids does when it has run out

async def main():
    editing.FUNCTIONS[SetLabel] = set_label
    backend = await open_sqlite(sys.argv[1], sources=counted_sources(), durability="normal")
    session = await backend.create_session(NewSession())
    results = await asyncio.gather(
        backend.append(session.id, [user()]),
        backend.set_label(session.id, "x", "x"),
        backend.append(session.id, [user()]),
        return_exceptions=True,
    )
    print([isinstance(result, Exception) for result in results])
    await backend.close()

asyncio.run(main())
"""


def test_an_error_that_no_future_takes_reaches_its_caller_all_the_same(path: Path) -> None:
    # In a process of its own: what goes wrong here is that everybody waits for ever.
    ended = subprocess.run(
        [sys.executable, "-c", STOP_ITERATION, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS / 3,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "[False, True, False]\n"


# -- ids ------------------------------------------------------------------------------------------------------------


async def test_a_taken_id_in_a_batch_costs_the_neighbours_nothing(path: Path) -> None:
    async with opened(path, repeating_sources(["a", *"bac"])) as backend:
        session = await backend.create_session(NewSession())
        await add(backend, session.id, user("0"))
        results = await in_one_batch(backend, *[backend.append(session.id, [user(text)]) for text in "123"])
        assert all(isinstance(result, Appended) for result in results)
        assert [entry.fields["content"] for entry in await path_of(backend, session.id)] == ["0", "1", "2", "3"]
        assert (await backend.verify()).problems == []


async def test_a_source_that_always_gives_a_taken_id_is_given_up_and_nothing_is_changed(path: Path) -> None:
    sources = replace(counted_sources(), entry_id=lambda: "a", session_id=lambda: "s")
    async with opened(path, sources) as backend:
        session = await backend.create_session(NewSession())
        await add(backend, session.id, user())
        await refusal(backend, errors.FlueError, backend.append(session.id, [user()]))
        await refusal(backend, errors.FlueError, backend.create_session(NewSession()))


# -- cancellation ---------------------------------------------------------------------------------------------------


async def test_a_write_that_is_cancelled_before_it_starts_is_not_made(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        async with held_writer(backend):
            given_up, kept = await in_the_queue(
                backend, backend.append(session.id, [user("x")]), backend.append(session.id, [user("b")])
            )
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await given_up
            assert committed_before(caught.value) is None
        await kept
        assert [entry.fields["content"] for entry in await path_of(backend, session.id)] == ["a", "b"]


async def test_a_timeout_takes_back_a_write_that_has_not_started(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        async with held_writer(backend):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await backend.append(session.id, [user("x")])
        assert await path_ids(backend, session.id) == []


@pytest.fixture
async def slow_append(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Appends write and then wait at the gate, before the commit."""
    gate = Gate()
    write = appending.PlannedAppend.write

    def slow(planned: appending.PlannedAppend, tx: Transaction) -> Appended:
        result = write(planned, tx)
        gate.hold()
        return result

    monkeypatch.setattr(appending.PlannedAppend, "write", slow)
    return gate


async def test_a_write_that_has_started_is_finished_before_the_cancellation_is_raised(
    path: Path, slow_append: Gate
) -> None:
    async with opened(path) as backend:
        session = await backend.create_session(NewSession())
        task = asyncio.create_task(backend.append(session.id, [user("a")]))
        await slow_append.reached.wait()
        for _ in range(3):
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not task.done()
        slow_append.open()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        committed = existing(committed_before(caught.value))
        ids = await path_ids(backend, session.id)
        assert isinstance(committed.result, Appended)
        assert committed.result.entry_ids == tuple(ids)
        assert len(ids) == 1


async def test_a_cancelled_operation_waits_for_the_commit_of_its_batch(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        gate = Gate()
        async with held_writer(backend):
            append, last = await in_the_queue(
                backend, backend.append(session.id, [user("a")]), runner_of(backend).write(gate.hold)
            )
        await gate.reached.wait()
        append.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not append.done()
        assert await path_ids(backend, session.id) == []
        gate.open()
        with pytest.raises(asyncio.CancelledError) as caught:
            await append
        assert committed_before(caught.value) is not None
        await last
        assert len(await path_ids(backend, session.id)) == 1


async def test_a_write_that_has_started_and_fails_is_cancelled_and_nothing_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        gate = Gate()

        def failing(*_: Any) -> None:
            gate.hold()
            raise Mishap

        monkeypatch.setitem(editing.FUNCTIONS, SetLabel, failing)
        async with unchanged(backend):
            task = asyncio.create_task(backend.set_label(session.id, "x", "x"))
            await gate.reached.wait()
            task.cancel()
            await asyncio.sleep(0)
            gate.open()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert committed_before(caught.value) is None


async def give_up_waiting(
    backend: Backend, path: Path, forget: Callable[[], None], until_asked: Callable[[], Awaitable[object]]
) -> None:
    """Have writes wait for another process and be cancelled: they are not made, and the one behind them is.

    ``until_asked`` waits until the store has asked for the lock, since ``forget``.
    """
    session = await new_session(backend, user("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # The lock is held until the callers have gone, so that nothing else can end their waiting.
        other.execute("BEGIN IMMEDIATE")
        forget()
        waiting = [asyncio.create_task(backend.append(session.id, [user(text)])) for text in "xyz"]
        await until_asked()
        kept = asyncio.create_task(backend.append(session.id, [user("b")]))
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert committed_before(caught.value) is None
        assert not kept.done()
        other.execute("COMMIT")
    await kept
    assert [entry.fields["content"] for entry in await path_of(backend, session.id)] == ["a", "b"]
    assert (await backend.verify()).problems == []


async def test_a_write_that_waits_for_another_process_can_be_given_up(path: Path, begun: list[None]) -> None:
    async with opened(path) as backend:
        await give_up_waiting(backend, path, begun.clear, lambda: until_begun(begun))


async def test_those_who_wait_on_do_not_notice_who_gave_up(path: Path, begun: list[None]) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun.clear()
            tasks = [asyncio.create_task(backend.append(session.id, [user(text)])) for text in "abcd"]
            await until_begun(begun)
            tasks[1].cancel()
            tasks[2].cancel()
            assert [type(each) for each in await asyncio.gather(*tasks[1:3], return_exceptions=True)] == [
                asyncio.CancelledError,
                asyncio.CancelledError,
            ]
            other.execute("COMMIT")
        await asyncio.gather(tasks[0], tasks[3])
        assert [entry.fields["content"] for entry in await path_of(backend, session.id)] == ["a", "d"]


async def test_on_an_engine_a_write_that_waits_for_another_process_can_be_given_up(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=AsyncAdaptedQueuePool)
    asked = asyncio.Event()

    def look(_cursor: object, sql: str, *_: object) -> None:
        if sql == "BEGIN IMMEDIATE":
            asked.set()

    event.listen(engine.sync_engine, "do_execute", look)
    backend = await open_engine(engine, sources=counted_sources(), durability="normal")
    try:
        await give_up_waiting(backend, path, asked.clear, asked.wait)
        async with engine.connect() as connection:
            # What the engine's own users find is not the store's short patience.
            assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar() == 30_000
    finally:
        await backend.close()
        await engine.dispose()


async def test_an_engine_of_our_own_is_given_its_settings_once(path: Path) -> None:
    found: list[object] = []

    def look(_connection: object, cursor: Any, sql: str, *_: object) -> None:
        if sql == "BEGIN":
            for name in ("foreign_keys", "synchronous", "busy_timeout"):
                cursor.execute(f"PRAGMA {name}")
                found.append(cursor.fetchone()[0])
        elif sql.startswith("PRAGMA") and "=" in sql:
            found.append(sql)

    backend = await open_engine(
        f"sqlite+aiosqlite:///{path}", sources=counted_sources(), durability="normal", busy_timeout=7
    )
    try:
        session = await new_session(backend, user("a"))
        event.listen(Engine, "before_cursor_execute", look)
        try:
            for _ in range(2):
                await backend.get_session(session.id)
        finally:
            event.remove(Engine, "before_cursor_execute", look)
        assert found == [1, 1, 7_000] * 2
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


async def test_a_cancelled_read_lets_its_thread_go_on_to_others(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        gates = [Gate() for _ in range(sqlite.READERS)]
        held = [asyncio.create_task(runner_of(backend).read(gate.hold)) for gate in gates]
        for gate in gates:
            await gate.reached.wait()
        waiting = asyncio.create_task(backend.read_path(session.id))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for gate in gates:
            gate.open()
        await asyncio.gather(*held)
        assert len(await path_ids(backend, session.id)) == 1


async def test_an_opening_that_is_cancelled_leaves_no_thread_behind(path: Path) -> None:
    # A new file, which somebody else has locked: the tables cannot be made yet.
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(open_sqlite(path, sources=counted_sources()))
        await asyncio.sleep(0)
        threads = threads_of(path)
        assert len(threads) == 1
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        other.execute("COMMIT")
        for thread in threads:
            await asyncio.to_thread(thread.join, GUARD_SECONDS)
        assert threads_of(path) == []


# -- closing, threads, event loops ----------------------------------------------------------------------------------


async def test_closing_finishes_what_waits_and_refuses_what_comes_later(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        async with held_writer(backend):
            waiting = await in_the_queue(backend, *[backend.append(session.id, [user(str(n))]) for n in range(20)])
            closing_it = asyncio.create_task(backend.close())
            await asyncio.sleep(0)
            await raises(errors.StoreClosed, backend.append(session.id, [user("x")]), match=path.name)
            await raises(errors.StoreClosed, backend.read_path(session.id), match=path.name)
            assert not closing_it.done()
        results = await asyncio.gather(*waiting)
        await closing_it
        await backend.close()
    async with opened(path) as backend:
        assert await path_ids(backend, session.id) == [result.entry_ids[0] for result in results]


async def test_closing_leaves_no_thread_and_no_log_behind(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        await backend.read_path(session.id)
        assert len(threads_of(path)) == 1 + sqlite.READERS
    assert threads_of(path) == []
    assert [file.name for file in list_folder(path.parent)] == [path.name]


def list_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_the_writer_lets_go_last_so_that_the_log_goes_into_the_database(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4))
        changes = backend.notifications(session.id)
        await anext(changes)
        gate = Gate()
        reading = asyncio.create_task(runner_of(backend).read(gate.hold))
        await gate.reached.wait()
        closing_it = asyncio.create_task(backend.close())
        # Time enough for a writer that does not wait.
        await asyncio.wait([closing_it], timeout=0.2)
        writers = [thread for thread in threads_of(path) if "writer" in thread.name]
        gate.open()
        await reading
        await closing_it
        assert len(writers) == 1
    assert [file.name for file in list_folder(path.parent)] == [path.name]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM entries").fetchone() == (4,)


async def test_an_opening_that_fails_leaves_no_thread_behind(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "s.db"
    before = set(threading.enumerate())
    await raises(errors.FlueError, open_sqlite(path, sources=counted_sources()))
    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join, GUARD_SECONDS)
    assert threads_of(path) == []


async def test_who_waits_for_a_change_is_let_go_when_the_store_closes(path: Path) -> None:
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    session = await new_session(backend)
    changes = backend.notifications(session.id)
    await anext(changes)
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    await backend.close()
    async with asyncio.timeout(GUARD_SECONDS):
        with pytest.raises(StopAsyncIteration):
            await waiting


def test_another_event_loop_is_refused_and_the_first_goes_on(path: Path) -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    with closing(first), closing(second):
        backend = first.run_until_complete(open_sqlite(path, sources=counted_sources(), durability="normal"))
        session = first.run_until_complete(new_session(backend, user("a")))
        for operation in (
            lambda: backend.append(session.id, [user("x")]),
            lambda: backend.read_path(session.id),
            backend.verify,
            backend.close,
        ):
            with pytest.raises(errors.WrongEventLoop, match=path.name):
                second.run_until_complete(operation())
        assert len(first.run_until_complete(path_ids(backend, session.id))) == 1
        first.run_until_complete(backend.close())
    assert threads_of(path) == []


def test_a_store_whose_event_loop_is_gone_does_not_crash_its_threads(path: Path) -> None:
    first = asyncio.new_event_loop()
    backend = first.run_until_complete(open_sqlite(path, sources=counted_sources(), durability="normal"))
    session = first.run_until_complete(new_session(backend))
    job = first.create_task(backend.append(session.id, [user("a")]))
    first.run_until_complete(asyncio.sleep(0))
    first.close()
    runner_of(backend)._writes.put(None)
    for _ in range(sqlite.READERS):
        runner_of(backend)._reads.put(None)
    for thread in threads_of(path):
        thread.join(GUARD_SECONDS)
    assert threads_of(path) == []
    del job

    async def read_again() -> int:
        async with opened(path) as again:
            return len(await path_ids(again, session.id))

    assert asyncio.run(read_again()) == 1


# -- reading --------------------------------------------------------------------------------------------------------


async def test_a_read_sees_every_write_that_was_acknowledged_before_it(path: Path) -> None:
    async with opened(path) as backend, opened(path) as other:
        session = await new_session(backend)
        ids: list[str] = []
        for n in range(30):
            ids += await add(backend, session.id, user(str(n)))
            reads = await asyncio.gather(
                *[path_ids(each, session.id) for each in (backend, backend, backend, other, other)]
            )
            assert reads == [ids] * 5


async def test_a_read_beside_a_write_sees_the_state_before_it_and_does_not_wait(path: Path, slow_append: Gate) -> None:
    async with opened(path) as backend:
        session = await backend.create_session(NewSession())
        writing = asyncio.create_task(backend.append(session.id, [user("a")]))
        await slow_append.reached.wait()
        assert await path_ids(backend, session.id) == []
        slow_append.open()
        await writing
        assert len(await path_ids(backend, session.id)) == 1


async def test_a_read_is_one_snapshot_however_long_it_takes(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        gate = Gate()

        def count_twice(tx: Transaction) -> list[Any]:
            first = tx.first(store_sql.COUNTS)
            gate.hold()
            return [first, tx.first(store_sql.COUNTS)]

        reading = asyncio.create_task(runner_of(backend).read(count_twice))
        await gate.reached.wait()
        await add(backend, session.id, *talk(4))
        gate.open()
        first, second = await reading
        assert first == second == (1, 0, 0, 0)


async def test_a_read_cannot_write(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)
        async with unchanged(backend):
            values = (counted_sources(), session.id, [user()], STORED, "raise", None)
            with pytest.raises(errors.StoreUnavailable):
                await runner_of(backend).read(lambda tx: written(tx, appending.plan_append(tx, *values)))


# -- other connections and processes --------------------------------------------------------------------------------


async def test_two_stores_on_one_file_lose_nothing(path: Path) -> None:
    async with opened(path) as one, opened(path, random_sources()) as two:
        shared = await new_session(one)
        own = [await new_session(store) for store in (one, two)]

        async def write(store: Backend, session_id: str) -> list[str]:
            return [(await add(store, session_id, user()))[0] for _ in range(25)]

        written = await asyncio.gather(
            write(one, shared.id), write(two, shared.id), write(one, own[0].id), write(two, own[1].id)
        )
        assert sorted(await path_ids(two, shared.id)) == sorted(written[0] + written[1])
        assert await path_ids(two, own[0].id) == written[2]
        assert await path_ids(one, own[1].id) == written[3]
        assert (await session_info(one, shared.id)).revision == 50
        assert (await one.verify()).problems == []


def random_sources() -> Sources:
    numbers = count(1)
    return replace(
        counted_sources(), entry_id=lambda: f"other-{next(numbers)}", session_id=lambda: f"s-{next(numbers)}"
    )


async def test_a_conflict_between_two_stores_is_a_leaf_conflict(path: Path) -> None:
    async with opened(path) as one, opened(path, random_sources()) as two:
        session = await new_session(one, user("a"))
        await two.append(session.id, [user("b")], expected=session.leaf_id)
        await refusal(one, errors.LeafConflict, one.append(session.id, [user("c")], expected=session.leaf_id))


async def test_what_a_store_remembers_of_a_session_does_not_outlive_a_commit_elsewhere(path: Path) -> None:
    async with opened(path) as one, opened(path, random_sources()) as two:
        session = await new_session(one, user("a"))
        for store in (one, two, one, two, two, one):
            info = await session_info(two, session.id)
            appended = await store.append(session.id, [assistant("x", tokens=1)], expected=info.leaf_id)
            assert appended.revision == info.revision + 1
        await two.move(session.id, session.leaf_id)
        (branched,) = await add(one, session.id, user("b"))
        assert await path_ids(two, session.id) == [session.leaf_id, branched]
        fork = await one.fork(session.id, STORED, NewSession())
        await add(one, fork.id, user("c"))
        await two.delete_tree(session.id)
        for store in (one, two):
            await raises(errors.SessionNotFound, store.append(session.id, [user("x")]))
        assert len(await add(one, fork.id, user("d"))) == 1
        assert (await one.verify()).problems == []


async def test_what_a_batch_remembers_of_a_session_does_not_outlive_its_deletion_or_a_failure(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
        fork = await backend.fork(session.id, STORED, NewSession())
        first, deletion, after, own, again, unknown = await in_one_batch(
            backend,
            backend.append(session.id, [user("b")]),
            backend.delete_tree(session.id),
            backend.append(session.id, [user("x")]),
            backend.append(fork.id, [user("c")]),
            backend.append(fork.id, [user("d")]),
            backend.append(fork.id, [user("x")], expected=session.leaf_id),
        )
        assert isinstance(first, Appended)
        assert (deletion.entries_deleted, deletion.entries_kept) == (1, 1)
        assert isinstance(after, errors.SessionNotFound)
        assert isinstance(unknown, errors.LeafConflict)
        assert await path_ids(backend, fork.id) == [session.leaf_id, *own.entry_ids, *again.entry_ids]
        assert (await backend.verify()).problems == []


async def test_a_lock_that_is_held_too_long_is_a_store_busy_and_nothing_is_changed(path: Path) -> None:
    async with opened(path, busy_timeout=0.01) as backend:
        session = await new_session(backend, user("a"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with unchanged(backend):
                for operation in (
                    lambda: backend.append(session.id, [user("x")]),
                    lambda: backend.move(session.id, None),
                    lambda: backend.create_session(NewSession()),
                    lambda: backend.delete_tree(session.id),
                ):
                    await raises(errors.StoreBusy, operation(), match=str(path))
            other.execute("ROLLBACK")
        assert len(await add(backend, session.id, user("b"))) == 1
        assert len(await path_ids(backend, session.id)) == 2


async def test_a_batch_that_finds_the_file_locked_waits_one_budget_and_not_one_each(
    path: Path, begun: list[None]
) -> None:
    async with opened(path, busy_timeout=0.01) as backend:
        session = await new_session(backend)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun.clear()
            results = await asyncio.gather(
                *[backend.append(session.id, [user()]) for _ in range(10)], return_exceptions=True
            )
        assert all(isinstance(result, errors.StoreBusy) for result in results)
        # The first may have gone ahead alone.
        assert len(begun) <= 2


async def test_opening_and_reading_do_not_wait_for_a_writer(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, user("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with opened(path, busy_timeout=0) as backend:
            assert len(await path_ids(backend, session.id)) == 1
            assert (await backend.verify()).problems == []


async def test_creating_a_store_in_a_file_that_is_locked_is_a_store_busy(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreBusy, match=str(path)):
            async with opened(path, busy_timeout=0.01):
                pytest.fail("it was opened")
    async with opened(path) as backend:
        assert (await backend.info()).sessions == 0


async def test_opening_waits_for_another_process_that_is_just_making_the_store(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        opening = asyncio.create_task(open_sqlite(path, sources=counted_sources(), durability="normal"))
        # Longer than one try takes, far shorter than the budget.
        await asyncio.wait([opening], timeout=0.3)
        other.execute("ROLLBACK")
        backend = await opening
        assert (await backend.info()).sessions == 0
        await backend.close()


async def test_a_new_file_opened_by_many_at_once_becomes_one_store(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.db"
        backends = await asyncio.gather(
            *[open_sqlite(path, sources=random_sources(), durability="normal") for _ in range(6)]
        )
        session = await new_session(backends[0], user("a"))
        assert [await path_ids(backend, session.id) for backend in backends] == [["other-2"]] * 6
        for backend in backends:
            await backend.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_watcher_that_is_cancelled_while_it_looks_takes_no_change_from_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as backend, opened(path, random_sources()) as other:
        session = await new_session(backend)
        runner = runner_of(backend)
        seen, gate, version = await runner._last_change(), Gate(), runner._file.version

        def held() -> object:
            found = version()
            gate.hold()
            return found

        monkeypatch.setattr(runner._file, "version", held)
        await add(other, session.id, user("a"))
        looking = asyncio.create_task(runner._last_change())
        await gate.reached.wait()
        looking.cancel()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await looking
        monkeypatch.undo()
        assert await runner._last_change() > seen


async def test_a_change_made_elsewhere_wakes_everyone_who_waits(path: Path) -> None:
    async with opened(path) as backend, opened(path, random_sources()) as other:
        session = await new_session(backend)
        watchers = [backend.notifications(session.id) for _ in range(2)]
        async with asyncio.timeout(GUARD_SECONDS):
            for watcher in watchers:
                await anext(watcher)
            await add(other, session.id, user("a"))
            await asyncio.gather(*[anext(watcher) for watcher in watchers])
            waiting = [asyncio.ensure_future(anext(watcher)) for watcher in watchers]
            await asyncio.sleep(0)
            await add(other, session.id, user("b"))
            await asyncio.gather(*waiting)
