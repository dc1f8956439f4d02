"""The limits of requests: each is an error that says what to do, and nothing is changed; and the socket of a server."""

from __future__ import annotations

import socket

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette

import flue_py
from flue_py.server.app import ServerLimits, make_app
from flue_py.server.listener import answer_at
from tests.tables import inputs


@inputs(
    ("limits", "method", "path", "status", "code"),
    [
        (ServerLimits(body_bytes=1), "POST", "/v1/sessions", 413, "BodyTooLong"),
        (ServerLimits(body_bytes=1), "POST", "/v1/conversations", 413, "BodyTooLong"),
        (ServerLimits(seconds=0), "GET", "/v1/budgets", 503, "TimedOut"),
        (ServerLimits(streams=0), "GET", "/v1/sessions/s1/events", 503, "TooManyStreams"),
    ],
)
async def test_what_is_over_a_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, limits: ServerLimits, method: str, path: str, status: int, code: str
) -> None:
    monkeypatch.setattr(flue_py.Store, "list_budgets", lambda *_, **__: anyio.sleep_forever())
    async with flue_py.open(":memory:") as store:
        await store.create_session(id="s1")
        transport = httpx.ASGITransport(make_app(store, limits=limits))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.request(method, path, json={} if method == "POST" else None)
        assert (answer.status_code, answer.headers.get("retry-after")) == (status, "1" if status == 503 else None)
        assert answer.json().get("error", answer.json())["code"] == code
        assert [info.id for info in (await store.list_sessions()).sessions] == ["s1"]


async def test_an_answer_in_two_parts_waits_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []
    options: list[int] = []

    async def serve(_: uvicorn.Server, sockets: list[socket.socket]) -> None:
        with socket.create_connection(sockets[0].getsockname()), sockets[0].accept()[0] as connection:
            options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    await answer_at(("127.0.0.1", 0), lambda host, port: Starlette(), urls.append)
    assert [bool(option) for option in options] == [True]
    assert urls[0].startswith("http://127.0.0.1:")
