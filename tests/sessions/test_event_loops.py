"""A store runs on asyncio and on trio, does the same on both, and says where it cannot run."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from sqlalchemy.ext.asyncio import create_async_engine

import flue_py
from flue_py.agents.conversation import Conversation
from flue_py.agents.harness import Harness
from flue_py.db.migrate import migrate
from flue_py.errors import LeafConflict, StoreClosed, WrongEventLoop
from tests.checks import raises
from tests.sessions.talk import assistant, path_of, user
from tests.tables import inputs
from tests.values import existing

GUARD_SECONDS = 30


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Each event loop in turn."""
    name: str = request.param
    pytest.importorskip(name)
    return name


on_trio = pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)


@pytest.fixture(params=["file", "memory", "file, threads=False", "memory, threads=False"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[flue_py.Store]:
    """A store of each kind in turn that is still to be opened."""
    place, _, on_caller = request.param.partition(", ")
    target = ":memory:" if place == "memory" else tmp_path / "sessions.db"
    return flue_py.open(target, durability="normal", threads=False if on_caller else None)


@pytest.fixture
async def store(
    opening: AbstractAsyncContextManager[flue_py.Store], anyio_backend: str
) -> AsyncIterator[flue_py.Store]:
    async with opening as opened:
        yield opened
        assert (await opened.verify()).problems == []


# -- the same on both -------------------------------------------------------------------------------------------------


async def test_calls_on_one_handle_at_once_chain(store: flue_py.Store) -> None:
    session = await store.create_session()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(session.append_message, user(str(number)))
    assert sorted(await path_of(session), key=int) == [str(number) for number in range(20)]


async def test_of_handles_that_write_at_once_one_wins(store: flue_py.Store) -> None:
    await store.create_session(key="one")
    handles = [await store.open_session("one") for _ in range(5)]
    conflicts = []

    async def write(handle: flue_py.Session) -> None:
        try:
            await handle.append_message(user(handle.id))
        except LeafConflict as conflict:
            conflicts.append(conflict)

    async with anyio.create_task_group() as group:
        for handle in handles:
            group.start_soon(write, handle)
    assert len(conflicts) == 4
    assert len(await path_of(handles[0])) == 1


async def test_batches_at_once_are_whole(store: flue_py.Store) -> None:
    sessions = [await store.create_session() for _ in range(3)]

    async def write(number: int) -> None:
        async with store.atomic() as tx:
            for session in sessions:
                tx.append_message(session, user(str(number)))

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(write, number)
    told = [await path_of(session) for session in sessions]
    assert told == [told[0]] * 3
    assert len(told[0]) == 6


async def test_a_watcher_sees_what_is_written_beside_it_and_ends_with_its_scope(store: flue_py.Store) -> None:
    session = await store.create_session()
    seen = []
    with anyio.fail_after(GUARD_SECONDS):
        async with anyio.create_task_group() as group, aclosing(session.watch(after=0)) as changes:
            for number in range(3):
                group.start_soon(session.append_message, user(str(number)))
            async for change in changes:
                seen.append(change.revision)
                if len(seen) == 3:
                    break
    assert seen == [1, 2, 3]
    with anyio.move_on_after(0) as scope:
        async with aclosing(session.watch()) as changes:
            await anext(changes)
    assert scope.cancelled_caught


async def test_a_watcher_ends_when_the_store_is_closed(opening: AbstractAsyncContextManager[flue_py.Store]) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def watch(session: flue_py.Session) -> None:
        async with aclosing(session.watch(after=0)) as changes:
            async for _ in changes:
                started.set()
        ended.set()

    with anyio.fail_after(GUARD_SECONDS):
        async with anyio.create_task_group() as group:
            async with opening as store:
                session = await store.create_session()
                group.start_soon(watch, session)
                await session.append_message(user("a"))
                await started.wait()
                assert not ended.is_set()
            await ended.wait()
    await raises(StoreClosed, session.get_tree())


async def test_a_watcher_sees_what_another_connection_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with flue_py.open(path) as here, flue_py.open(path) as there:
        session = await here.create_session(key="one")
        other = await there.open_session("one")
        async with anyio.create_task_group() as group, aclosing(session.watch(after=0)) as changes:
            group.start_soon(other.append_message, user("a"))
            with anyio.fail_after(GUARD_SECONDS):
                assert (await anext(changes)).revision == 1


async def test_a_call_that_is_cancelled_gives_its_reservation_back(store: flue_py.Store) -> None:
    session = await store.create_session()
    await store.set_budget(session, tokens=100)
    with anyio.CancelScope() as scope:
        async with session.money.budgeted(tokens=30):
            scope.cancel()
            await checkpoint()
    assert scope.cancelled_caught
    (budget,) = await store.list_budgets()
    assert budget.reserved == 0


async def test_names_roles_and_conversations(store: flue_py.Store) -> None:
    harness = Harness(store, instance="i", name="h")
    opened: list[Any] = []

    async def open_one() -> None:
        opened.append(await harness.open_session("a"))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(open_one)
    assert len({id(each) for each in opened}) == 1
    session = opened[0].session
    await session.append_messages([user("question"), assistant("answer")])
    talk = Conversation(store, session)
    await talk.rewind(0)
    assert await path_of(session) == []


# -- files ------------------------------------------------------------------------------------------------------------


async def test_whatever_reads_and_writes_files(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "a.db") as store, flue_py.open(tmp_path / "b.db") as other:
        written = await other.create_session(id="one")
        await written.append_messages([user("question"), assistant("answer")] * 50)
        (tmp_path / "a.jsonl").write_text((await flue_py.export_session(written, "pi")).text, encoding="utf-8")
        await other.delete_session_tree(written)
        await flue_py.import_file(store, tmp_path / "a.jsonl", finish=True)
        (info,) = (await store.list_sessions()).sessions
        session = existing(await store.get_session(info.id))
        entries = len(await session.get_tree())
        assert entries == 100
        await flue_py.write_transcript(session, tmp_path / "a.md")
        await flue_py.write_transcript(session, tmp_path / "a.md", append=True)
        await flue_py.write_bundle(store, tmp_path / "a.bundle")
        await store.backup(tmp_path / "backup.db")
        assert (await flue_py.copy_store(store, other)).trees_copied == 1
        again = existing(await other.get_session(session.id))
        assert len(await again.get_tree()) == entries
    async with flue_py.open(":memory:") as third:
        await flue_py.read_bundle(third, tmp_path / "a.bundle")
        again = existing(await third.get_session(session.id))
        assert len(await again.get_tree()) == entries
    assert (await flue_py.salvage(tmp_path / "backup.db", tmp_path / "c.db")).entries == entries
    await migrate(str(tmp_path / "c.db"))
    async with flue_py.open(tmp_path / "c.db", read_only=True) as read:
        assert (await read.verify()).problems == []


# -- opening and closing ----------------------------------------------------------------------------------------------


async def test_the_next_part_of_a_file_is_read_while_one_is_stored_and_no_further() -> None:
    calls, is_second, may_end = [], threading.Event(), threading.Event()

    def read() -> int:
        calls.append(threading.current_thread())
        if len(calls) == 2:
            is_second.set()
            assert may_end.wait(GUARD_SECONDS)
        return len(calls)

    has_closed = False
    with anyio.fail_after(GUARD_SECONDS):
        async with anyio.create_task_group() as tasks, flue_py.open(":memory:") as store:
            parts = store.backend.waiting.ahead(read)
            assert await anext(parts) == 1
            assert await anyio.to_thread.run_sync(is_second.wait, GUARD_SECONDS)

            async def close() -> None:
                nonlocal has_closed
                await parts.aclose()
                has_closed = True

            tasks.start_soon(close)
            for _ in range(5):
                await checkpoint()
            # What is being read must not be closed under it.
            assert not has_closed
            may_end.set()
    assert (has_closed, len(calls)) == (True, 2)
    assert threading.current_thread() not in calls


async def test_what_reading_ahead_raises_is_raised_where_it_is_asked_for(tmp_path: Path) -> None:
    left = [1, 2]

    def read() -> int | None:
        if not left:
            raise ValueError("the file is odd")
        return left.pop(0)

    async with flue_py.open(tmp_path / "a.db") as store, aclosing(store.backend.waiting.ahead(read)) as parts:
        assert [await anext(parts), await anext(parts)] == [1, 2]
        await raises(ValueError, anext(parts), match="odd")


async def test_a_store_is_closed_whole_in_a_scope_that_is_cancelled(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with anyio.CancelScope() as scope:
        async with flue_py.open(tmp_path / "a.db") as store:
            session = await store.create_session()
            scope.cancel()
            await checkpoint()
    assert scope.cancelled_caught
    assert [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("flue")] == []
    assert not (tmp_path / "a.db-wal").exists()
    async with flue_py.open(tmp_path / "a.db") as store:
        assert await store.get_session(session.id) is not None


async def test_an_opening_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with flue_py.open(tmp_path / "a.db"):
            pytest.fail("it waits while the file is prepared")
    assert scope.cancelled_caught
    async with flue_py.open(tmp_path / "a.db") as store:
        assert (await store.info()).sessions == 0


RUNS: dict[str, Callable[[Callable[[], Coroutine[Any, Any, None]]], None]] = {
    "asyncio": lambda work: anyio.run(work, backend="asyncio"),
    "trio": lambda work: anyio.run(work, backend="trio"),
}


@inputs("place", ["file", "memory"])
@inputs("elsewhere", ["asyncio", "trio"])
async def test_a_store_is_for_the_loop_that_opened_it(tmp_path: Path, place: str, elsewhere: str) -> None:
    pytest.importorskip(elsewhere)
    async with flue_py.open(":memory:" if place == "memory" else tmp_path / "a.db") as store:
        refused = []

        async def use() -> None:
            with pytest.raises(WrongEventLoop, match="opened in another event loop"):
                await store.backend.create_session(flue_py.NewSession())
            refused.append(True)

        thread = threading.Thread(target=partial(RUNS[elsewhere], use))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert refused
        assert (await store.info()).sessions == 0


@on_trio
async def test_what_has_no_driver_for_trio_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"
    engine = create_async_engine(url)
    for opening in (
        flue_py.open(url),
        flue_py.open(engine=engine),
        flue_py.open("postgresql+asyncpg://me:secret@127.0.0.1:1/nothing"),
    ):
        caught = await raises(WrongEventLoop, opening.__aenter__(), match="under trio: its driver is for asyncio")
        assert "secret" not in str(caught.value)
    await raises(WrongEventLoop, migrate("postgresql+asyncpg://me:secret@127.0.0.1:1/nothing"), match="under trio")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_store_in_memory_can_be_used_by_hand_only_without_threads() -> None:
    def by_hand() -> None:
        with pytest.raises(WrongEventLoop, match="no event loop"):
            flue_py.open(":memory:").__aenter__().send(None)  # type: ignore[attr-defined]

    await asyncio.to_thread(by_hand)


async def test_the_blocking_twin_runs_in_a_thread_of_either_loop(tmp_path: Path) -> None:
    def write(target: str) -> int:
        with flue_py.sync.open(target) as store:
            return store.create_session().append_message(user("a")).revision

    for target in (str(tmp_path / "a.db"), f"sqlite+aiosqlite:///{tmp_path / 'b.db'}"):
        assert await anyio.to_thread.run_sync(write, target) == 1


async def test_a_source_may_be_a_function_that_returns_something_to_wait_for(store: flue_py.Store) -> None:
    async def late() -> str:
        await checkpoint()
        return "late"

    session = await store.create_session()
    spec = {"spec": {"sources": ["tickets", "none"]}}
    own: dict[str, Any] = {"tickets": lambda asked: late(), "none": lambda asked: next(iter([]))}
    found = await session.context.gather(settings=spec, sources=own)
    assert [each.text for each in found.sections] == ["late"]
    assert [str(each) for each in found.skipped] == ["none: it failed: 'StopIteration'"]


async def test_another_loop_finds_what_one_has_written(tmp_path: Path, anyio_backend: str) -> None:
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.create_session(key="one")
        await session.append_message(user("a"))
    other = "trio" if anyio_backend == "asyncio" else "asyncio"
    pytest.importorskip(other)
    seen = []

    async def read() -> None:
        async with flue_py.open(tmp_path / "a.db") as store:
            seen.append(await path_of(await store.open_session("one")))

    await anyio.to_thread.run_sync(RUNS[other], read)
    assert seen == [["a"]]
    with sqlite3.connect(tmp_path / "a.db") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    connection.close()
