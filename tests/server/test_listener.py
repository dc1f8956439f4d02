"""The socket of a server."""

from __future__ import annotations

import socket

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn")

import uvicorn
from starlette.applications import Starlette

from flue_py.server.listener import answer_at


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
