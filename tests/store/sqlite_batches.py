"""Stores that are opened for a test, and one whose writer is paused, so that what is called meanwhile is one group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.runner import Sources, Transaction
from flue_py.db.sqlite.runner import SqliteRunner, open_sqlite
from tests.sources import counted_sources

GUARD_SECONDS = 60
"""Turns a test that hangs into one that fails; nothing is measured with it."""


@asynccontextmanager
async def opened(path: Path, sources: Sources | None = None, **options: Any) -> AsyncIterator[Backend]:
    backend = await open_sqlite(path, sources=sources or counted_sources(), **{"durability": "normal", **options})
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def opened_on_engine(target: Any, sources: Sources | None = None, **options: Any) -> AsyncIterator[Backend]:
    """Open the store of a database by an engine or a URL; made where there is none."""
    backend = await open_engine(target, sources=sources or counted_sources(), **options)
    try:
        yield backend
    finally:
        await backend.close()


def runner_of(backend: Backend) -> SqliteRunner:
    runner = backend._runner._runner
    assert isinstance(runner, SqliteRunner)
    return runner


class Gate:
    """Holds whatever thread comes to it until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opened = threading.Event()

    def hold(self, _: Transaction | None = None) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._opened.wait(GUARD_SECONDS)

    def open(self) -> None:
        self._opened.set()


@asynccontextmanager
async def held_writer(backend: Backend) -> AsyncIterator[Gate]:
    """The writer thread is kept busy inside, so that what is asked of it meanwhile waits in its queue."""
    gate = Gate()
    held = asyncio.create_task(runner_of(backend).write(gate.hold))
    try:
        await gate.reached.wait()
        yield gate
    finally:
        gate.open()
        await held


async def in_the_queue(backend: Backend, *operations: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    """Start operations while the writer is held, and return when each waits in the queue."""
    runner = runner_of(backend)
    before = runner._writes.qsize()
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(operation) for operation in operations]
    await asyncio.sleep(0)
    assert runner._writes.qsize() == before + len(tasks)
    return tasks


async def in_one_batch(backend: Backend, *operations: Awaitable[Any]) -> list[Any]:
    """Run operations as one batch; return their results and errors."""
    async with held_writer(backend):
        tasks = await in_the_queue(backend, *operations)
    return await asyncio.gather(*tasks, return_exceptions=True)
