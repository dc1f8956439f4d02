"""A store without threads: what runs on the thread that asks, and what that thread meets."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

import flue_py
from flue_py.core.sessions import NewSession
from flue_py.db.runner import Transaction
from flue_py.db.sqlite.runner import open_on_caller
from flue_py.db.waiting import run_here
from flue_py.errors import InvalidArgument, StoreClosed
from tests.checks import raises
from tests.sources import counted_sources
from tests.tables import inputs

TARGETS = (":memory:", "file")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "s.db")


@pytest.fixture
async def store(target: str, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(target, threads=False) as opened:
        yield opened
        assert (await opened.verify()).problems == []


async def test_no_thread_is_started(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    # Others, of tests before, may end meanwhile.
    before = {*threading.enumerate()}
    async with flue_py.open(path, threads=False) as store:
        session = await store.create_session(key="k")
        await session.append_message(user("a"))
        await store.backup(tmp_path / "copy.db")
        assert {*threading.enumerate()} <= before
    async with flue_py.open(path, threads=False, read_only=True) as store:
        assert len(await (await store.open_session("k")).build_context()) == 1
        assert {*threading.enumerate()} <= before


def test_a_whole_store_is_driven_without_an_event_loop(target: str) -> None:
    async def work() -> int:
        async with flue_py.open(target, threads=False) as store:
            session = await store.create_session()
            await session.append_messages([user("a"), user("b")])
            async with store.atomic() as batch:
                batch.append_message(session, user("c"))
            fork = await session.fork()
            await store.delete_session_tree(session)
            return len(await fork.build_context())

    assert run_here(work()) == 3


def test_what_waits_for_an_event_loop_is_named() -> None:
    with pytest.raises(InvalidArgument, match="without an event loop waited for one"):
        run_here(_sleeping())


async def _sleeping() -> None:
    class Suspends:
        def __await__(self) -> object:
            yield

    await Suspends()  # type: ignore[misc]


@inputs("place", ["sqlite+aiosqlite:///{}/s.db", "postgresql+asyncpg://nobody@localhost:1/none"])
async def test_a_database_that_needs_a_loop_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidArgument, match="threads=False is for a SQLite file"):
        async with flue_py.open(place.format(tmp_path), threads=False):
            pytest.fail("it was opened")
    with pytest.raises(InvalidArgument, match="threads"):
        async with flue_py.open(tmp_path / "s.db", threads="no"):  # type: ignore[arg-type]
            pytest.fail("it was opened")
    assert os.listdir(tmp_path) == []


async def test_tasks_and_threads_share_a_session(store: flue_py.Store) -> None:
    session = await store.create_session()
    await asyncio.gather(*(session.append_message(user(f"task {n}")) for n in range(10)))
    threads = [
        threading.Thread(target=lambda n=n: run_here(session.append_message(user(f"thread {n}")))) for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = {str(message["content"]) for message in await session.build_context()}
    assert said == {f"{who} {n}" for who in ("task", "thread") for n in range(10)}


async def test_a_watcher_sees_the_changes_of_another_thread(target: str) -> None:
    async with flue_py.open(target, threads=False) as store:
        session = await store.create_session()
        changes = session.watch(after=0)
        writer = threading.Thread(target=lambda: run_here(session.append_message(user("a"))))
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        writer.start()
        assert (await waiting).revision == 1
        writer.join()
    assert [change async for change in changes] == []
    await raises(StoreClosed, anext(session.watch()))


async def test_a_function_that_a_transaction_calls_cannot_call_the_store(target: str) -> None:
    inside = False

    def clock() -> datetime:
        if inside:
            run_here(session.append_message(user("from the clock")))
        return datetime(2026, 1, 1, tzinfo=UTC)

    async with flue_py.open(target, threads=False, clock=clock) as store:
        session = await store.create_session()
        other = await store.create_session()
        inside = True
        await raises(InvalidArgument, other.append_message(user("a")), match="would wait for itself")
        inside = False
        await other.append_message(user("a"))
        assert (await store.verify()).entries == 1


def test_an_interrupt_in_a_transaction_leaves_no_trace(tmp_path: Path) -> None:
    def interrupted(tx: Transaction) -> NoReturn:
        tx.new_key()
        raise KeyboardInterrupt

    def raising(_: Transaction) -> NoReturn:
        raise KeyboardInterrupt

    backend = open_on_caller(tmp_path / "s.db", sources=counted_sources())
    made = run_here(backend.create_session(NewSession()))
    with pytest.raises(KeyboardInterrupt):
        run_here(backend._runner.write(interrupted))
    with pytest.raises(KeyboardInterrupt):
        run_here(backend._runner.read(raising))
    assert run_here(backend.create_session(NewSession())).session_key == made.session_key + 1
    assert run_here(backend.verify()).problems == []
    run_here(backend.close())
