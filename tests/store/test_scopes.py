"""Scopes of anyio, on asyncio and on trio, and timeouts of asyncio, that end while a write is being committed."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import CancelScope, to_thread
from anyio.lowlevel import checkpoint

import flue_py
from flue_py.core.sessions import Appended
from flue_py.db.ops import append as appending
from flue_py.db.runner import Transaction

GUARD_SECONDS = 30

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Each event loop in turn."""
    name: str = request.param
    pytest.importorskip(name)
    return name


# `Hold` would hold the event loop up.
pytestmark = pytest.mark.usefixtures("on_thread")


class Hold:
    """Keeps the writer's thread in mid-transaction until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    async def end(self, stop: Callable[[], object]) -> None:
        """Stop the writer's caller once the write is under way, and only then let it come to its end."""
        await to_thread.run_sync(self.reached.wait, GUARD_SECONDS)
        stop()
        for _ in range(5):
            await checkpoint()
        self.go_on.set()


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """The first append writes and is then held, before the commit."""
    hold = Hold()
    write = appending.PlannedAppend.write

    def slow(planned: appending.PlannedAppend, tx: Transaction) -> Appended:
        result = write(planned, tx)
        hold.reached.set()
        assert hold.go_on.wait(GUARD_SECONDS)
        return result

    monkeypatch.setattr(appending.PlannedAppend, "write", slow)
    return hold


@asynccontextmanager
async def written(tmp_path: Path) -> AsyncIterator[tuple[flue_py.Store, flue_py.Session]]:
    """Yield a session, and check that its handle knows of the message that was committed then, and builds on it."""
    async with flue_py.open(tmp_path / "a.db") as store:
        session = await store.create_session()
        yield store, session
        (entry,) = await session.get_tree()
        assert session.leaf_id == entry.id
        await session.append_message({"role": "user", "content": "b"})
        assert [message["content"] for message in await session.build_context()] == ["a", "b"]
        assert (await store.verify()).problems == []


def expire(scope: CancelScope) -> None:
    """Have a scope end as if its deadline had passed."""
    scope.deadline = -math.inf
    scope.cancel()


async def test_a_scope_is_left_as_usual_when_it_cancelled_a_commit_under_way(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (_, session):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(GUARD_SECONDS) as scope:
                group.start_soon(hold.end, scope.cancel)
                await session.append_message({"role": "user", "content": "a"})
        assert scope.cancelled_caught


async def test_a_deadline_that_passes_during_a_commit_is_a_timeout(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (_, session), anyio.create_task_group() as group:
        with pytest.raises(TimeoutError):  # noqa: PT012 - the scope is what raises it
            with anyio.fail_after(GUARD_SECONDS) as scope:
                group.start_soon(hold.end, lambda: expire(scope))
                await session.append_message({"role": "user", "content": "a"})


async def test_a_batch_that_is_cancelled_in_mid_commit_is_known_too(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (store, session):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(GUARD_SECONDS) as scope:
                group.start_soon(hold.end, scope.cancel)
                async with store.atomic() as tx:
                    landed = tx.append_message(session, {"role": "user", "content": "a"})
        assert scope.cancelled_caught
        assert landed.result.leaf_id == session.leaf_id


async def test_what_is_shielded_is_not_cancelled(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (_, session):
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(GUARD_SECONDS) as scope:
                group.start_soon(hold.end, scope.cancel)
                with CancelScope(shield=True):
                    done = await session.append_message({"role": "user", "content": "a"})
                    assert session.leaf_id == done.entry_ids[0]
                await checkpoint()
        assert scope.cancelled_caught


async def test_a_cancelled_task_group_waits_for_what_it_has_begun(tmp_path: Path, hold: Hold) -> None:
    groups = anyio.create_task_group(), anyio.create_task_group()
    async with written(tmp_path) as (_, session), groups[0] as outside, groups[1] as group:
        outside.start_soon(hold.end, group.cancel_scope.cancel)
        group.start_soon(session.append_message, {"role": "user", "content": "a"})


async def test_a_scope_that_ends_before_a_write_begins_takes_it_back(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (store, first):
        second = await store.create_session()
        async with anyio.create_task_group() as group:
            with anyio.move_on_after(GUARD_SECONDS) as scope:
                group.start_soon(first.append_message, {"role": "user", "content": "a"})
                await to_thread.run_sync(hold.reached.wait, GUARD_SECONDS)
                scope.cancel()
                await second.append_message({"role": "user", "content": "never"})
            hold.go_on.set()
        assert scope.cancelled_caught
        assert second.leaf_id is None
        assert await second.get_tree() == []


# -- asyncio's own ----------------------------------------------------------------------------------------------------


@on_asyncio
async def test_a_timeout_of_asyncio_that_passes_during_a_commit_is_one(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (_, session):
        with pytest.raises(TimeoutError):  # noqa: PT012 - the timeout is what raises it
            async with asyncio.timeout(GUARD_SECONDS) as timeout:
                now = asyncio.get_running_loop().time()
                ending = asyncio.create_task(hold.end(lambda: timeout.reschedule(now)))
                await session.append_message({"role": "user", "content": "a"})
        await ending


@on_asyncio
async def test_a_task_that_is_cancelled_inside_a_scope_is_cancelled(tmp_path: Path, hold: Hold) -> None:
    async with written(tmp_path) as (_, session):

        async def write() -> None:
            with CancelScope():
                await session.append_message({"role": "user", "content": "a"})

        writing = asyncio.create_task(write())
        await hold.end(writing.cancel)
        await asyncio.wait([writing])
        assert writing.cancelled()
