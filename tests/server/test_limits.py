"""The limits of requests: each is an error that says what to do, and nothing is changed."""

from __future__ import annotations

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import anyio
import httpx

import flue_py
from flue_py.server.app import ServerLimits, make_app
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
