"""Many clients append through servers that are killed and started again: each acknowledged append is there once."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import anyio
import anyio.abc
import httpx

import flue_py
from tests.postgres import NewDatabase
from tests.server.serving import TOKENS, Server, served

SESSIONS = 20
ANN = {"Authorization": f"Bearer {TOKENS['ann']}"}


class Load:
    """Clients that append, each one message after the other, and servers of one database, killed in turn.

    A client goes from server to server until an append is acknowledged, always with the same key.
    """

    def __init__(self, folder: Path, database: str | None, servers: int) -> None:
        self._serve = partial(served, folder, database=database)
        self._servers: list[Server | None] = [None] * servers
        self._stack = ExitStack()
        self._has_changed = anyio.Event()
        self.acknowledged: dict[tuple[str, str], str] = {}
        self.refusals: Counter[str] = Counter()

    def start(self, number: int) -> None:
        self._servers[number] = self._stack.enter_context(self._serve())

    def close(self) -> None:
        self._stack.close()

    async def run(self, sessions: list[str], clients: int, appends: int, kills: int) -> None:
        """Have each client append so often, while a server is killed after each so many acknowledgements."""
        async with anyio.create_task_group() as tasks:
            for client in range(clients):
                tasks.start_soon(self._append_all, client, sessions[client % len(sessions)], appends)
            for kill in range(kills):
                await self._reach(clients * appends * (kill + 1) // (kills + 1))
                victim = kill % len(self._servers)
                server = self._servers[victim]
                assert server is not None
                server.process.kill()
                self._servers[victim] = None
                await anyio.to_thread.run_sync(server.process.wait)
                await anyio.to_thread.run_sync(self.start, victim)
                self._tell()

    def _tell(self) -> None:
        self._has_changed.set()
        self._has_changed = anyio.Event()

    async def _reach(self, count: int) -> None:
        while len(self.acknowledged) < count:
            await self._has_changed.wait()

    async def _append_all(self, client: int, session: str, appends: int) -> None:
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(verify=False), headers=ANN, timeout=60) as http:
            for number in range(appends):
                text = f"{client}.{number}"
                self.acknowledged[session, text] = await self._append(http, client, session, text)
                self._tell()
            # As after an answer that was lost.
            assert await self._append(http, client + 1, session, text) == self.acknowledged[session, text]

    async def _append(self, http: httpx.AsyncClient, client: int, session: str, text: str) -> str:
        body = {"messages": [{"role": "user", "content": text}]}
        attempt = client
        while True:
            has_changed = self._has_changed
            server = self._servers[attempt % len(self._servers)]
            attempt += 1
            if server is None:
                if not any(self._servers):
                    await has_changed.wait()
                continue
            path = f"{server.url}/v1/sessions/{session}/messages"
            try:
                answer = await http.post(path, json=body, headers={"Idempotency-Key": text})
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                self.refusals[type(error).__name__] += 1
                continue
            if answer.status_code == 201:
                return str(answer.json()["entryIds"][0])
            assert answer.status_code == 503, answer.text
            self.refusals[answer.json()["detail"]] += 1
            await anyio.sleep(float(answer.headers["Retry-After"]))


async def stored_by(
    folder: Path, database: str | None, servers: int, clients: int, appends: int, kills: int
) -> tuple[Load, Counter[tuple[str, str, str]]]:
    """Return the load that was run, and what is stored by then: session, text and id of each entry."""
    target = database or str(folder / "s.db")
    async with flue_py.open(target) as store:
        sessions = [(await store.in_scope("ann").create_session()).id for _ in range(min(clients, SESSIONS))]
    load = Load(folder, database, servers)
    try:
        async with anyio.create_task_group() as tasks:
            for number in range(servers):
                tasks.start_soon(anyio.to_thread.run_sync, load.start, number)
        await load.run(sessions, clients, appends, kills)
    finally:
        load.close()
    stored: Counter[tuple[str, str, str]] = Counter()
    async with flue_py.open(target) as store:
        assert not (await store.verify()).problems
        for session_id in sessions:
            session = await store.find_session(session_id)
            for entry in await session.get_tree():
                stored[session_id, json.loads(entry.payload)["content"], entry.id] += 1
    return load, stored


def is_once(load: Load, stored: Counter[tuple[str, str, str]], count: int) -> bool:
    return len(stored) == count and stored == Counter((*key, entry_id) for key, entry_id in load.acknowledged.items())


LARGE = pytest.param(1_000, 10, 6, marks=pytest.mark.thorough)


@pytest.mark.parametrize(("clients", "appends", "kills"), [(50, 10, 3), LARGE])
async def test_a_server_of_a_file_is_killed_between_appends(
    tmp_path: Path, clients: int, appends: int, kills: int
) -> None:
    load, stored = await stored_by(tmp_path, None, 1, clients, appends, kills)
    assert is_once(load, stored, clients * appends)


@pytest.mark.parametrize(("clients", "appends", "kills"), [(50, 10, 2), LARGE])
async def test_servers_of_one_postgresql_are_killed_in_turn(
    tmp_path: Path, new_database: NewDatabase, clients: int, appends: int, kills: int
) -> None:
    load, stored = await stored_by(tmp_path, new_database(), 2, clients, appends, kills)
    assert is_once(load, stored, clients * appends)


class Proxy:
    """Passes each connection on to the next server that answers, as a proxy without affinity does."""

    def __init__(self, servers: list[Server]) -> None:
        self._ports = [httpx.URL(server.url).port for server in servers]
        self.taken: list[int] = []
        """The server of each connection, by its place."""

    async def __call__(self, client: anyio.abc.SocketStream) -> None:
        for turn in range(1, len(self._ports) + 1):
            place = ((self.taken[-1] if self.taken else -1) + turn) % len(self._ports)
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._ports[place])
            except OSError:
                continue
            self.taken.append(place)
            async with client, server, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass, client, server, tasks.cancel_scope)
                await self._pass(server, client, tasks.cancel_scope)
            return
        await client.aclose()

    async def _pass(
        self, source: anyio.abc.SocketStream, target: anyio.abc.SocketStream, scope: anyio.CancelScope
    ) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                await target.send(data)
        scope.cancel()


class Follower:
    """Reads a stream of events, and goes on behind the last of them wherever the proxy leads to."""

    def __init__(self, url: str, session: str, proxy: Proxy) -> None:
        self._url, self._path, self._proxy = url, f"/v1/sessions/{session}/events", proxy
        self._has_changed = anyio.Event()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0

    @property
    def server(self) -> int:
        """The place of the server that was led to last."""
        return self._proxy.taken[-1]

    async def __call__(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, headers=ANN, timeout=60) as http:
            while True:
                headers = {"Last-Event-ID": self.events[-1][0]} if self.events else {}
                with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                    async with http.stream("GET", self._path, headers=headers) as answer:
                        assert answer.status_code == 200
                        self.connections += 1
                        await self._read(answer)

    async def _read(self, answer: httpx.Response) -> None:
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "data" in fields:
                self.events.append((fields["id"], json.loads(fields["data"])))
                fields = {}
            self._has_changed.set()
            self._has_changed = anyio.Event()

    async def until(self, entry_id: str | None, connections: int) -> None:
        """Wait until an entry is the last that was told of, on so many connections."""
        while self.connections < connections or (self.events and self.events[-1][1].get("entryId")) != entry_id:
            await self._has_changed.wait()


async def test_a_stream_of_a_killed_server_goes_on_at_another_behind_a_proxy(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    database = new_database()
    async with flue_py.open(database) as store:
        session = (await store.in_scope("ann").create_session()).id
    with ExitStack() as stack:
        servers = [stack.enter_context(served(tmp_path, database=database)) for _ in range(2)]
        proxy = Proxy(servers)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        follower, living = Follower(url, session, proxy), {0, 1}

        async def append(text: str) -> str:
            """Append at a server that is not the one of the stream, if another lives."""
            place = max(living, key=lambda place: place != follower.server)
            body = {"messages": [{"role": "user", "content": text}]}
            async with httpx.AsyncClient(base_url=servers[place].url, headers=ANN, timeout=60) as http:
                answer = await http.post(f"/v1/sessions/{session}/messages", json=body)
            return str(answer.json()["entryIds"][0])

        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, proxy)
            tasks.start_soon(follower)
            await follower.until(None, 1)
            await follower.until(await append("while it is open"), 1)
            servers[follower.server].process.kill()
            servers[follower.server].process.wait()
            living.remove(follower.server)
            await follower.until(await append("while it is cut"), 2)
            await follower.until(await append("at the other one"), 2)
            whole = Follower(url, session, proxy)
            tasks.start_soon(whole)
            await whole.until(follower.events[-1][1]["entryId"], 1)
            tasks.cancel_scope.cancel()
    assert follower.connections == len({*proxy.taken}) == 2
    assert len(follower.events) == 4
    assert follower.events == whole.events
