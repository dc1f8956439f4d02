"""Requests that are almost right: each is answered, none of them as an error of the server."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import httpx

import flue_py
from flue_py.server.app import ServerLimits, make_app
from flue_py.server.conversations import ROUTES as CONVERSATIONS
from flue_py.server.page import DATA, PAGES
from flue_py.server.routes import EVENTS, ROUTES

ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**30, 1e308, "", "\0", "\ud800", "a" * 70_000, "../..", "é\u202e", [], {}, [[[]]],
    {"$ref": 1}, {"role": "user"}, {"type": "message"}, {"role": "assistant", "content": [{"type": "toolCall"}]},
    {"role": "assistant", "content": "x", "usage": {"input": -1, "cost": {"total": "NaN"}}},
]  # fmt: skip
ITEMS = [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
BODIES: dict[str, Any] = {
    "sessions": {"key": "k", "title": "t", "metadata": {"a": 1}, "cwd": "/x"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "expectedLeaf": None, "onConflict": "rebase"},
    "fork": {"at": None, "title": "f"},
    "move": {"to": None, "why": "w"},
    "budget": {"tokens": 5, "period": "day"},
    "conversations": {"items": ITEMS, "metadata": {"k": "v"}},
    "items": {"items": ITEMS},
    "{session}": {"metadata": {"k": "v"}},
}
QUERIES = {
    "request": "target=anthropic",
    "search": "words=hi&how=query&limit=3",
    "usage": "groupBy=day",
    "items": "limit=2",
    "sent": "target=anthropic",
    "/page/sessions/{session}": "at=msg_1",
}
SERVED = [*((row.method, row.path) for row in (*ROUTES, *CONVERSATIONS)), ("GET", EVENTS), ("POST", "/login")]
SERVED += [("GET", path) for path in (*PAGES, *DATA)]
KINDS = ("application/problem+json", "application/json", "text/html; charset=utf-8")
HEADERS = ["idempotency-key", "if-match", "if-none-match", "last-event-id", "content-type", "authorization", "origin"]


def changed(chance: random.Random, value: Any) -> Any:
    """Return JSON with one odd value somewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice([*value])
        return value | {chance.choice([key, key, "x"]): changed(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], changed(chance, value[at]), *value[at + chance.randrange(2) :]]
    return chance.choice(ODD)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return bytes of which some are others, or gone, or there twice."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice([b"", b"%", b"\xff", b"%00", b"&", data[:at]]) + data[at + chance.randrange(3) :]


def request(chance: random.Random, sessions: list[str]) -> tuple[str, bytes, dict[str, str], bytes | None]:
    """Return the method, the path with its query, the headers and the body of a request."""
    method, route = chance.choice(SERVED)
    last = route.rpartition("/")[2]
    path = route.replace("{session}", chance.choice(sessions)).replace("{item}", "msg_1")
    body = json.dumps(BODIES.get(last, {})).encode() if method in ("POST", "PUT") else None
    query = QUERIES.get(route, QUERIES.get(last)) if method == "GET" else None
    target = path.encode() if query is None else f"{path}?{query}".encode()
    headers = {"content-type": "application/json"} if body else {}
    match chance.randrange(5):
        case 0:
            target = b"/" + damaged(chance, target).replace(b"\xff", b"%ff").lstrip(b"/")
        case 1:
            headers[chance.choice(HEADERS)] = chance.choice(["", "*", '"1-1-0"', "x" * 9_000, "\xff", "a,b", '"1-²-0"'])
        case 2 if body:
            body = damaged(chance, body)
        case 3:
            method = chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "X"])
        case _ if body:
            body = json.dumps(changed(chance, BODIES.get(last, {}))).encode()
    return method, target, headers, body


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.thorough)])
async def test_a_mutated_request_gets_an_answer_of_the_api(count: int) -> None:
    chance = random.Random(39)
    async with flue_py.open(":memory:") as store:
        sessions = [(await store.create_session()).id for _ in range(3)]
        transport = httpx.ASGITransport(make_app(store, limits=ServerLimits(streams=0)), raise_app_exceptions=False)
        wrong = []
        statuses = set()
        async with httpx.AsyncClient(transport=transport) as http:
            for _ in range(count):
                method, target, headers, body = request(chance, sessions)
                url = httpx.URL("http://localhost", raw_path=target)
                raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
                answer = await http.request(method, url, headers=raw, content=body)
                statuses.add(answer.status_code)
                if method == "DELETE" and answer.is_success:
                    sessions = [(await store.create_session()).id for _ in range(3)]
                status, is_refused = answer.status_code, answer.status_code >= 400 and method != "HEAD"
                is_odd = is_refused and answer.headers.get("content-type") not in KINDS
                if is_odd or status in (500, 501, 502):
                    wrong.append((method, target[:200], headers, body and body[:300], status, answer.text[:300]))
        assert wrong == []
        assert statuses > {200, 201, 400, 403, 404, 405, 415, 503}
        assert not (await store.verify()).problems


TOOLS: dict[str, Any] = {
    "search": {"words": "hi", "limit": 2},
    "read": {"session": "s", "around": "e"},
    "recall": {"session": "s", "words": "hi"},
    "sessions": {"limit": 2},
    "usage": {"session": "s"},
    "memories": {"words": "hi"},
    "remember": {"topic": "t", "text": "x"},
}
ACCEPTED = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
BEGUN: dict[str, Any] = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}
}  # fmt: skip


def asked(chance: random.Random, session: str) -> tuple[str, dict[str, str], bytes]:
    """Return the method, the headers and the body of a request to the tools that is almost right."""
    name = chance.choice([*TOOLS])
    params: Any = {"name": name, "arguments": TOOLS[name]}
    kind = chance.choice(["tools/call", "tools/call", "tools/list", "initialize", "ping", "x"])
    params = BEGUN if kind == "initialize" else params if kind == "tools/call" else {}
    message: Any = {"jsonrpc": "2.0", "id": 1, "method": kind, "params": params}
    headers, method = ACCEPTED | {"mcp-session-id": session}, "POST"
    match chance.randrange(5):
        case 0:
            headers[chance.choice([*headers, "mcp-protocol-version", "last-event-id", "host"])] = chance.choice(
                ["", "*", "x" * 9_000, "\xff", "a,b"]
            )
        case 1:
            return method, headers, damaged(chance, json.dumps(message).encode())
        case 2:
            method = chance.choice(["PUT", "PATCH", "HEAD", "X", "POST"])
        case 3:
            message = changed(chance, message)
        case _:
            message["params"] = changed(chance, params)
    return method, headers, json.dumps(message).encode()


@pytest.mark.parametrize("count", [100, pytest.param(3_000, marks=pytest.mark.thorough)])
async def test_a_mutated_call_of_a_tool_gets_an_answer(count: int, caplog: pytest.LogCaptureFixture) -> None:
    needs("server", "mcp")
    from flue_py.server.mcp import make_server

    chance = random.Random(39)
    async with flue_py.open(":memory:") as store:

        @asynccontextmanager
        async def opening() -> AsyncIterator[flue_py.Store]:
            yield store

        app = make_server(opening, writes=True).streamable_http_app(streamable_http_path="/mcp")
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as http:
            url = "http://localhost:1/mcp"
            first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": BEGUN}
            begun = await http.post(url, headers=ACCEPTED, json=first)
            wrong = []
            statuses = set()
            for _ in range(count):
                method, headers, body = asked(chance, begun.headers["mcp-session-id"])
                raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
                answer = await http.request(method, url, headers=raw, content=body)
                statuses.add(answer.status_code)
                if answer.status_code >= 500 or "Traceback" in answer.text:
                    wrong.append((method, headers, body[:300], answer.status_code, answer.text[:300]))
        assert wrong == []
        assert statuses > {200, 202, 400, 404, 405, 406}
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        assert not (await store.verify()).problems
