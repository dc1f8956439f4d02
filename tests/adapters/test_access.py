"""How adapters get at a store: lazily, from any loop and thread, shared, and closed with the last user."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

import flue_py
from flue_py.adapters.common import Access, Target
from flue_py.db.runner import committed_before
from flue_py.errors import InvalidArgument, StoreClosed, WrongEventLoop, WrongProcess
from flue_py.sessions.store import Store
from tests.checks import raises
from tests.postgres import NewDatabase
from tests.tables import inputs
from tests.values import existing


async def said(store: Store, text: str = "Hello") -> int:
    """Append to the one session; return how many messages it has."""
    session = await store.open_session("one", mode="get_or_create")
    await session.append_message({"role": "user", "content": text}, on_conflict="rebase")
    return await counted(store)


async def counted(store: Store) -> int:
    return len(await (await store.open_session("one", mode="get_or_create")).build_context())


def check(path: Path, messages: int) -> None:
    """Say that a file holds so many messages and is sound, and that nobody has it open."""
    with flue_py.sync.open(path) as store:
        assert store.verify().problems == []
        assert len(store.open_session("one").build_context()) == messages
    assert sorted(other.name for other in path.parent.iterdir()) == [path.name]


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    access = Access(tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []
    access.close()


@inputs("backend", ["asyncio", "trio"])
def test_every_loop_and_no_loop_at_all_may_use_one(tmp_path: Path, backend: str) -> None:
    access = Access(tmp_path / "a.db")
    for number in range(3):
        assert anyio.run(access.run, said, backend=backend) == 2 * number + 1
        assert access.run_blocking(said) == 2 * number + 2
    access.close()
    check(tmp_path / "a.db", 6)


@inputs("how", ["url", "text", "path", "relative"])
def test_a_target_is_a_path_or_a_url(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.db"
    target = {"url": f"sqlite+aiosqlite:///{path}", "text": str(path), "path": path, "relative": "a.db"}[how]
    access = Access(target)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert asyncio.run(access.run(said)) == 1
    assert access.run_blocking(said) == 2
    access.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").rmdir()
    check(path, 2)


def test_postgres_is_used_from_any_loop(new_database: NewDatabase) -> None:
    access = Access(new_database())
    for number in range(2):
        assert asyncio.run(access.run(said)) == 2 * number + 1
        assert access.run_blocking(said) == 2 * number + 2
    asyncio.run(access.aclose())


def test_memory_belongs_to_one_and_stays() -> None:
    one, other = Access(":memory:"), Access(":memory:")
    assert [asyncio.run(one.run(said)) for _ in range(3)] == [1, 2, 3]
    assert other.run_blocking(said) == 1
    one.close()
    other.close()


def test_one_file_is_opened_once_and_closed_with_the_last(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    one, other = Access(path), Access(str(path))

    async def same(store: Store) -> Store:
        return store

    assert one.run_blocking(same) is other.run_blocking(same)
    one.close()
    one.close()
    assert other.run_blocking(said) == 1
    with pytest.raises(StoreClosed, match="has been closed"):
        one.run_blocking(said)
    with pytest.raises(StoreClosed, match="has been closed"):
        asyncio.run(one.run(said))
    other.close()
    check(path, 1)


def test_what_nobody_closes_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    Access(tmp_path / "a.db").run_blocking(said)
    gc.collect()
    check(tmp_path / "a.db", 1)


def test_what_nobody_closes_is_closed_when_the_process_ends(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from flue_py.adapters.common import Access
async def said(store):
    session = await store.open_session("one", mode="get_or_create")
    await session.append_message({"role": "user", "content": "Hello"})
kept = [Access(sys.argv[1]), Access(sys.argv[1])]
for each in kept:
    asyncio.run(each.run(said))
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program, str(tmp_path / "a.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    check(tmp_path / "a.db", 2)


def test_a_file_that_was_replaced_is_another_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old = Access(path)
    assert old.run_blocking(said) == 1
    for each in tmp_path.iterdir():
        each.unlink()
    new = Access(path)
    assert new.run_blocking(said) == 1
    old.close()
    assert new.run_blocking(said) == 2
    new.close()
    check(path, 2)


def test_many_threads_and_tasks_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    def blocking() -> None:
        access = Access(path)
        for _ in range(10):
            access.run_blocking(said)
        access.close()

    async def tasks() -> None:
        access = Access(path)
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(access.run(said))
        await access.aclose()

    threads = [threading.Thread(target=blocking) for _ in range(3)]
    threads += [threading.Thread(target=lambda: asyncio.run(tasks())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(path, 50)


def test_a_cancelled_write_is_finished_first(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    access = Access(path)
    begun, go_on = threading.Event(), threading.Event()

    async def slow(store: Store) -> int:
        begun.set()
        assert go_on.wait(60)
        return await said(store)

    async def main() -> None:
        task = asyncio.create_task(access.run(slow))
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        done = existing(committed_before(cancelled.value))
        assert done.result == 1
        assert await access.run(counted) == 1
        await access.aclose()

    asyncio.run(main())
    check(path, 1)


def test_an_open_store_is_used_in_its_own_loop_and_stays_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with flue_py.open(tmp_path / "a.db") as store:
            access = Access(store)
            assert await access.run(said) == 1
            with pytest.raises(WrongEventLoop, match=r"give the path, or a store that was opened by flue_py\.sync"):
                access.run_blocking(said)
            await access.aclose()
            await raises(StoreClosed, access.run(said))
            assert await said(store) == 2

    asyncio.run(main())
    check(tmp_path / "a.db", 2)


def test_a_store_without_threads_serves_both_kinds_of_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async with flue_py.open(tmp_path / "a.db", threads=False) as store:
            access = Access(store)
            assert await access.run(said) == 1
            assert access.run_blocking(said) == 2
            access.close()
            assert await said(store) == 3

    asyncio.run(main())
    check(tmp_path / "a.db", 3)


def test_a_store_of_the_blocking_twin_is_a_target(tmp_path: Path) -> None:
    with flue_py.sync.open(tmp_path / "a.db") as store:
        access = Access(store)
        assert access.run_blocking(said) == 1
        assert asyncio.run(access.run(said)) == 2
        access.close()
        assert len(store.open_session("one").build_context()) == 2
    check(tmp_path / "a.db", 2)


@inputs("target", [None, 7, b"a.db", object()])
def test_what_can_be_no_store_is_refused(target: Target) -> None:
    with pytest.raises(InvalidArgument, match=r"target: .* is not a path, a URL or an open store"):
        Access(target)


def test_an_error_of_opening_changes_nothing_and_the_next_call_tries_again(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a.db"
    access = Access(path)
    with pytest.raises(flue_py.FlueError):
        access.run_blocking(said)
    path.parent.mkdir()
    assert access.run_blocking(said) == 1
    access.close()
    check(path, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_so_and_the_parent_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    access = Access(path)
    access.run_blocking(said)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for each in (access, Access(path)):
                with pytest.raises(WrongProcess):
                    each.run_blocking(said)
            access.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert access.run_blocking(said) == 2
    access.close()
    check(path, 2)


@pytest.mark.parametrize("how", ["postgres", "url", "path"])
def test_a_session_is_used_in_the_loop_that_asks_for_it(how: str, tmp_path: Path, new_database: NewDatabase) -> None:
    targets = {"url": f"sqlite+aiosqlite:///{tmp_path / 'a.db'}", "path": str(tmp_path / "a.db")}
    target = new_database() if how == "postgres" else targets[how]

    async def go() -> None:
        access = Access(target)
        await access.run(said)
        assert await access.session(lambda store: store.get_session("nobody")) is None
        session = existing(await access.session(lambda store: store.open_session("one")))
        with pytest.raises(InvalidArgument, match="expected_revision"):
            await session.append_message({"role": "user", "content": "x"}, expected_revision="x")  # type: ignore[arg-type]
        await session.append_message({"role": "user", "content": "again"})
        fork = await session.fork()
        await fork.append_messages([{"role": "user", "content": text} for text in "abc"])
        assert (len(await fork.build_context()), len(await session.turns())) == (5, 2)
        await asyncio.gather(*(session.append_message({"role": "user", "content": str(n)}) for n in range(5)))
        assert len(await session.get_active_path()) == 7
        await session.undo()
        assert len(await session.entries(kind="message", limit=50)) == 7
        watched = session.watch()
        changes = asyncio.create_task(anext(watched))
        await access.run(said)
        assert (await changes).revision > session.revision
        later = asyncio.ensure_future(anext(watched))
        await asyncio.sleep(0)
        later.cancel()
        with pytest.raises(asyncio.CancelledError):
            await later
        await watched.aclose()
        await access.aclose()
        await raises(StoreClosed, session.turns())

    asyncio.run(go())
    with flue_py.sync.open(target) as store:
        assert store.verify().problems == []


@pytest.mark.parametrize("place", ["postgres", "path"])
def test_a_write_of_such_a_session_is_whole_when_it_is_cancelled(
    place: str, tmp_path: Path, new_database: NewDatabase
) -> None:
    target = new_database() if place == "postgres" else str(tmp_path / "a.db")

    async def go() -> None:
        access = Access(target)
        await access.run(said)
        session = existing(await access.session(lambda store: store.open_session("one")))
        for number in range(10):
            writing = asyncio.ensure_future(session.append_message({"role": "user", "content": str(number)}))
            for _ in range(number):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            # Whatever was cancelled, the handle knows the leaf that is stored: else this would be a conflict.
            await session.append_message({"role": "user", "content": "next"})
        await access.aclose()

    asyncio.run(go())
    with flue_py.sync.open(target) as store:
        assert store.verify().problems == []
