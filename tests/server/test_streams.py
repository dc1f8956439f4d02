"""Streams of events: one watcher wakes all of them, and what is idle says that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn")

import anyio

import flue_py
from flue_py.db.backend import Backend
from flue_py.server.app import ServerLimits, make_app

if TYPE_CHECKING:
    from anyio.abc import TaskStatus


class Reader:
    """Reads the events of a session, until it is cancelled."""

    def __init__(self, app: Any, session_id: str) -> None:
        self._app = app
        self._path = f"/v1/sessions/{session_id}/events"
        self.scope = anyio.CancelScope()
        self._chunks: asyncio.Queue[str] = asyncio.Queue(10)

    async def __call__(self, *, task_status: TaskStatus[None]) -> None:
        scope = {"type": "http", "method": "GET", "path": self._path, "query_string": b""}
        with self.scope:
            task_status.started()
            await self._app(scope | {"headers": [(b"host", b"localhost")]}, anyio.sleep_forever, self._send)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._chunks.put(message.get("body", b"").decode())

    async def until(self, text: str) -> None:
        while text not in await self._chunks.get():
            pass


async def test_one_watcher_wakes_all_streams_and_another_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watchers: list[int] = [0, 0]
    commits = Backend.commits

    async def watched(backend: Backend) -> AsyncGenerator[None, None]:
        watchers[0] += 1
        watchers[1] = max(watchers)
        try:
            async for _ in commits(backend):
                yield
        finally:
            watchers[0] -= 1

    monkeypatch.setattr(Backend, "commits", watched)
    async with flue_py.open(":memory:") as store, anyio.create_task_group() as tasks:
        session = await store.create_session()
        app = make_app(store)
        readers = [Reader(app, session.id) for _ in range(3)]
        for reader in readers:
            await tasks.start(reader)
            await reader.until("session_created")
        for number in range(3):
            await session.append_message({"role": "user", "content": str(number)})
            for reader in readers[number:]:
                await reader.until("turn_start")
            # The first of them is the one that watches.
            readers[number].scope.cancel()
    assert watchers == [0, 1]


async def test_an_idle_stream_says_that_it_is_there() -> None:
    async with flue_py.open(":memory:") as store, anyio.create_task_group() as tasks:
        reader = Reader(make_app(store, limits=ServerLimits(keep_alive_seconds=0)), (await store.create_session()).id)
        await tasks.start(reader)
        for _ in range(2):
            await reader.until(": nothing new\n\n")
        tasks.cancel_scope.cancel()
