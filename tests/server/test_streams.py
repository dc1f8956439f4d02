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
from flue_py.server.app import Access, ServerLimits, make_app, read_tokens
from flue_py.server.page import FOLLOW

if TYPE_CHECKING:
    from anyio.abc import TaskStatus


class Reader:
    """Reads the events of a session, until it is cancelled."""

    def __init__(self, app: Any, path: str, token: str = "") -> None:
        self._app = app
        self._token = token
        self._path = path
        self.scope = anyio.CancelScope()
        self._chunks: asyncio.Queue[str] = asyncio.Queue(10)

    async def __call__(self, *, task_status: TaskStatus[None]) -> None:
        scope = {"type": "http", "method": "GET", "path": self._path, "query_string": b""}
        sent = [(b"host", b"localhost"), (b"authorization", f"Bearer {self._token}".encode())]
        with self.scope:
            task_status.started()
            await self._app(scope | {"headers": sent}, anyio.sleep_forever, self._send)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._chunks.put(message.get("body", b"").decode())

    async def until(self, text: str) -> None:
        while text not in await self._chunks.get():
            pass


def events_of(session: flue_py.Session) -> str:
    return f"/v1/sessions/{session.id}/events"


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
        readers = [Reader(app, events_of(session)) for _ in range(3)]
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
        app = make_app(store, limits=ServerLimits(keep_alive_seconds=0))
        for path in (events_of(await store.create_session()), FOLLOW):
            reader = Reader(app, path)
            await tasks.start(reader)
            for _ in range(2):
                await reader.until(": nothing new\n\n")
        tasks.cancel_scope.cancel()


async def test_the_list_is_made_once_after_a_commit_for_all_who_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[str | None] = []
    list_sessions, commits, wakes = flue_py.Store.list_sessions, Backend.commits, 0

    async def counted(backend: Backend) -> AsyncGenerator[None, None]:
        nonlocal wakes
        async for _ in commits(backend):
            wakes += 1
            yield

    async def listed(store: flue_py.Store, **options: Any) -> Any:
        lists.append(store.scope)
        return await list_sessions(store, **options)

    monkeypatch.setattr("flue_py.server.app._LIST_SECONDS", 0)
    monkeypatch.setattr(Backend, "commits", counted)
    monkeypatch.setattr(flue_py.Store, "list_sessions", listed)
    access = Access(read_tokens(f"{'a' * 16} ann\n{'b' * 16} bob\n"))
    async with flue_py.open(":memory:") as store, anyio.create_task_group() as tasks:
        session = await store.create_session(scope="ann", title="first")
        app = make_app(store, access)
        anns, bob = [Reader(app, FOLLOW, "a" * 16) for _ in range(3)], Reader(app, FOLLOW, "b" * 16)
        for reader in (*anns, bob):
            await tasks.start(reader)
            await reader.until('"sessions":')
        await session.set_title("second")
        for reader in anns:
            await reader.until("second")
        await store.in_scope("bob").create_session(title="third")
        await bob.until("third")
        tasks.cancel_scope.cancel()
        assert 2 <= lists.count("ann") <= wakes + 1
        assert 2 <= lists.count("bob") <= wakes + 1


async def test_a_commit_is_looked_into_by_those_alone_whom_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    get_session = Backend.get_session

    async def looked(backend: Backend, session_id: str, scope: str | None = None) -> Any:
        looks.append(session_id)
        return await get_session(backend, session_id, scope)

    async with flue_py.open(":memory:") as store, anyio.create_task_group() as tasks:
        busy, idle = await store.create_session(), await store.create_session()
        app = make_app(store)
        readers = {session.id: Reader(app, events_of(session)) for session in (busy, idle)}
        for reader in readers.values():
            await tasks.start(reader)
            await reader.until("session_created")
        monkeypatch.setattr(Backend, "get_session", looked)
        for number in range(20):
            await busy.append_message({"role": "user", "content": str(number)})
            await readers[busy.id].until("turn_start")
        # After the first commit everybody looks.
        assert looks.count(idle.id) < 5
        assert looks.count(busy.id) >= 20
        await store.delete_session_tree(idle)
        await readers[idle.id].until("session_deleted")
        tasks.cancel_scope.cancel()
