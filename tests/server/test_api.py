"""The HTTP API on a real server: what its routes do, who sees what, and what a kill loses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import httpx

import flue_py
from flue_py.errors import InvalidArgument, StoreUnavailable
from flue_py.server.app import Access, make_app, read_tokens
from flue_py.server.listener import checked_address
from flue_py.server.page import DATA, PAGES
from tests.server.serving import Server
from tests.tables import inputs


def message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def made(client: httpx.Client, *texts: str) -> str:
    """Return the path of a new session with these messages."""
    path = f"/v1/sessions/{client.post('/v1/sessions', json={}).json()['id']}"
    for text in texts:
        assert client.post(f"{path}/messages", json=message(text)).status_code == 201
    return path


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["detail"]
    assert document["remedy"]
    return answer.status_code, document["code"]


def test_a_session_is_made_written_read_and_deleted(server: Server) -> None:
    with server.client("ann") as client:
        path = made(client, "one", "two")
        one, two = (entry["id"] for entry in client.get(f"{path}/entries").json()["entries"])
        page = client.get(f"{path}/entries", params={"limit": 1}).json()
        assert [entry["id"] for entry in page["entries"]] == [page["nextAfter"]] == [one]
        assert client.get(f"{path}/context").json()["messages"] == [
            {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
        ]  # fmt: skip
        sent = client.get(f"{path}/request", params={"target": "openai-chat"}).json()
        assert [part["content"] for part in sent["body"]["messages"]] == ["one", "two"]
        assert client.post(f"{path}/move", json={"to": one}).json()["leafId"] == one
        assert client.post(f"{path}/undo", json={}).json()["leafId"] == two
        assert client.post(f"{path}/redo", json={}).json()["leafId"] == one
        fork = client.post(f"{path}/fork", json={"before": two}).json()
        assert (fork["leafId"], fork["draft"]) == (one, "two")
        hits = client.get("/v1/search", params={"words": "two", "since": "1d"}).json()["hits"]
        assert [hit["entryId"] for hit in hits] == [two]
        budget = client.put(f"{path}/budget", json={"tokens": 5}).json()
        assert [row["id"] for row in client.get("/v1/budgets").json()["budgets"]] == [budget["id"]]
        assert client.get("/v1/usage", params={"groupBy": ["day", "model"]}).json()["rows"] == []
        assert client.get(f"{path}/compaction").json()["leaving"] == []
        assert problem(client.delete(path)) == (400, "InvalidArgument")
        name = path.rpartition("/")[2]
        assert client.delete(path, params={"dryRun": True}).json()["sessionIds"] == [name]
        assert client.delete(path, params={"confirm": name}).json()["sessionIds"] == [name]
        assert problem(client.get(path)) == (404, "SessionNotFound")


def test_a_poll_and_a_conflict_say_what_is_there_now(server: Server) -> None:
    with server.client("ann") as client:
        path = made(client, "one")
        etag = client.get(path).headers["etag"]
        for route in ("", "/entries", "/context", "/request?target=anthropic"):
            same = client.get(path + route, headers={"If-None-Match": etag})
            assert (same.status_code, same.content) == (304, b"")
        first = client.post(f"{path}/messages", json=message("two"), headers={"If-Match": etag})
        assert first.status_code == 201
        assert client.get(path, headers={"If-None-Match": etag}).status_code == 200
        late = client.post(f"{path}/messages", json=message("three"), headers={"If-Match": etag})
        assert problem(late) == (412, "RevisionConflict")
        assert late.json()["etag"] == client.get(path).headers["etag"]
        lost = client.post(f"{path}/messages", json=message("three") | {"expectedLeaf": None})
        assert problem(lost) == (409, "LeafConflict")
        assert (lost.json()["leafId"], lost.json()["revision"]) == (first.json()["leafId"], 2)
        assert len(client.get(f"{path}/entries").json()["entries"]) == 2
        # Each change of a session honours the ETag; a proxy may have made it a weak one.
        conversation = path.replace("sessions", "conversations")
        item = f"{conversation}/items/msg_{first.json()['leafId']}"
        calls: list[tuple[str, str, Any]] = [
            ("POST", f"{conversation}/items", {"items": [{"role": "user", "content": "x"}]}),
            ("POST", conversation, {"metadata": {}}), ("PUT", f"{path}/budget", {"tokens": 1}),
            ("DELETE", item, None), ("DELETE", conversation, None),
        ]  # fmt: skip
        for tag in (etag, late.json()["etag"].replace('"', '"9', 1)):
            for method, route, body in calls:
                assert client.request(method, route, json=body, headers={"If-Match": tag}).status_code == 412, route
        now = late.json()["etag"]
        for known in (f"W/{now}", f"{etag}, {now}", "*"):
            assert client.get(conversation, headers={"If-None-Match": known}).status_code == 304
        assert client.post(f"{path}/undo", json={}, headers={"If-Match": f"{now}, {etag}"}).status_code == 200


async def test_an_etag_of_a_fork_changes_with_what_its_source_has_of_it() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session(title="Old")
        secret = (await session.append_message({"role": "user", "content": "secret"})).entry_id
        path = f"/v1/sessions/{(await session.fork()).id}"
        transport = httpx.ASGITransport(make_app(store))
        changes = {path: lambda: session.set_title("New"), f"{path}/context": lambda: session.redact(secret, why="x")}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for route, change in changes.items():
                etag = (await client.get(path)).headers["etag"]
                await change()
                assert (await client.get(route, headers={"If-None-Match": etag})).status_code == 200, route


def test_a_retry_is_done_once_and_a_key_has_one_content(server: Server) -> None:
    with server.client("ann") as client:
        path = made(client, "one", "two", "three")
        leaf = client.get(path).json()["leafId"]
        for route, body, other in [
            ("/v1/sessions", {"key": "k"}, {"key": "l"}),
            (f"{path}/messages", message("four"), message("five")),
            (f"{path}/move", {"to": None}, {"to": leaf}),
            (f"{path}/undo", {}, None),
            (f"{path}/redo", {}, None),
            (f"{path}/fork", {"at": leaf}, {"at": None}),
        ]:
            headers = {"Idempotency-Key": f"key of {route.rpartition('/')[2]}"}
            first, second = (client.post(route, json=body, headers=headers) for _ in range(2))
            assert first.is_success, first.text
            replayed = second.json() | {"replayed": first.json().get("replayed")}
            assert replayed == first.json() | {"replayed": first.json().get("replayed")}
            if other is not None:
                refused = client.post(route, json=other, headers=headers)
                assert problem(refused) == (409, "IdempotencyConflict"), route


def test_two_tenants_never_see_each_other(server: Server) -> None:
    with server.client("ann") as ann, server.client("bob") as bob:
        path = made(ann, "the secret of ann")
        ann.put(f"{path}/budget", json={"tokens": 5})
        name, missing = path.rpartition("/")[2], "0" * 32
        entry = ann.get(path).json()["leafId"]
        bodies = {"messages": message("x"), "move": {"to": entry}, "budget": {"tokens": 1}}
        bodies |= {"items": {"items": [{"role": "user", "content": "x"}]}, "{session}": {"metadata": {}}}
        queries = {"request": {"target": "anthropic"}}
        described = bob.get("/openapi.json").json()["paths"].items()
        routes = [(method.upper(), path) for path, operations in described for method in operations]
        for method, route in [*routes, *(("GET", path) for path in (*PAGES, *DATA))]:
            last = route.rpartition("/")[2]
            answers = [
                bob.request(
                    method,
                    route.replace("{session}", session).replace("{item}", f"msg_{entry}"),
                    json=bodies.get(last, {}) if method in ("POST", "PUT") else None,
                    params=queries.get(last, {"words": "secret"} if last == "search" else {}),
                )
                for session in (name, missing)
            ]
            texts = [answer.text.replace(id, "ID") for answer, id in zip(answers, (name, missing), strict=True)]
            if "{session}" in route:
                assert texts[0] == texts[1]
                assert answers[0].status_code == 404
            elif method == "GET":
                assert not any(word in texts[0] for word in (name, entry, "secret of ann", '"ann"')), route
        for route, query in (("search", {"words": "secret"}), ("usage", {})):
            answers = [
                bob.get(f"/v1/{route}", params=query | {"session": session}).text.replace(session, "ID")
                for session in (name, missing)
            ]
            assert answers[0] == answers[1], route
        assert ann.get(path).json()["messageCount"] == 1
        key = {"Idempotency-Key": "of both"}
        ids = {client.post("/v1/sessions", json={}, headers=key).json()["id"] for client in (ann, bob)}
        assert len(ids) == 2


async def test_only_who_runs_the_server_is_told_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("/srv/sessions.db: the disk is full")

    access = Access(read_tokens(f"{'a' * 16}\n{'b' * 16} ann\n"))
    async with flue_py.open(":memory:") as store:
        transport = httpx.ASGITransport(make_app(store, access))
        monkeypatch.setattr(flue_py.Store, "list_sessions", fail)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for token, is_told in (("a", True), ("b", False)):
                headers = {"Authorization": f"Bearer {token * 16}"}
                refused = await client.get("/v1/sessions", headers=headers)
                page = await client.get("/", headers=headers)
                assert problem(refused) == (503, "StoreUnavailable")
                assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
                assert ["/srv/" in answer.text for answer in (refused, page)] == [is_told] * 2


def test_events_come_as_they_happen_and_go_on_behind_the_last(server: Server) -> None:
    with server.client("ann") as client:
        path = made(client, "one")

        def types(last: str | None, count: int) -> list[tuple[str, str]]:
            rows: list[tuple[str, str]] = []
            headers = {} if last is None else {"Last-Event-ID": last}
            with client.stream("GET", f"{path}/events", headers=headers) as stream:
                if last is not None:
                    client.post(f"{path}/messages", json=message("two"))
                lines = stream.iter_lines()
                while len(rows) < count:
                    line = next(lines)
                    if line.startswith("id: "):
                        data = json.loads(next(lines) and next(lines).removeprefix("data: "))
                        rows.append((line.removeprefix("id: "), data["type"]))
            return rows

        first = types(None, 2)
        assert first[0][1] == "session_created"
        later = types(first[-1][0], 1)
        assert later[0][0] not in {name for name, _ in first}
        refused = client.get(f"{path}/events", headers={"Last-Event-ID": "nothing"})
        assert problem(refused) == (400, "InvalidArgument")


DEEP = b'{"metadata":' + b'{"a":' * 99_999

REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("another host", {"headers": {"Host": "evil.example"}}, 403, "OtherHost"),
    ("a page of another origin", {"headers": {"Origin": "http://evil.example"}}, 403, "OtherHost"),
    ("an origin that is no address", {"headers": {"Origin": "http://["}}, 403, "OtherHost"),
    ("no token", {"headers": {"Authorization": ""}}, 401, "NoToken"),
    ("another token", {"headers": {"Authorization": "Bearer " + "c" * 16}}, 401, "NoToken"),
    ("a token in the URL", {"params": {"token": "a" * 16}}, 400, "InvalidArgument"),
    ("a parameter that is there twice", {"params": [("limit", "1"), ("limit", "2")]}, 400, "InvalidArgument"),
    ("a method that there is not", {"method": "PATCH"}, 405, "NoSuchRoute"),
    ("a path that there is not", {"url": "/v2"}, 404, "NoSuchRoute"),
    ("a body of a form", {"method": "POST", "data": {"title": "x"}}, 415, "NotJson"),
    ("a body that is no JSON", {"method": "POST", "content": b"{"}, 400, "InvalidArgument"),
    ("a body with half a character", {"method": "POST", "content": b'{"title":"\\ud800"}'}, 400, "InvalidArgument"),
    ("a body that is nested deeply", {"method": "POST", "content": DEEP}, 400, "InvalidArgument"),
    ("a body with another field", {"method": "POST", "json": {"scope": "bob"}}, 400, "InvalidArgument"),
    ("an empty key", {"method": "POST", "json": {}, "headers": {"Idempotency-Key": ""}}, 400, "InvalidArgument"),
    ("an ETag that is none", {"method": "POST", "json": {}, "headers": {"If-Match": "x"}}, 400, "InvalidArgument"),
]  # fmt: skip


@inputs("name, request, status, code", REFUSED)
def test_a_request_is_refused_as_a_problem(
    name: str, request: dict[str, Any], status: int, code: str, server: Server
) -> None:
    arguments = {"method": "GET", "url": "/v1/sessions"} | request
    if "content" in arguments:
        arguments["headers"] = {"Content-Type": "application/json"}
    with server.client("ann") as client:
        before = client.get("/v1/sessions").json()
        answer = client.request(**arguments)
        assert problem(answer) == (status, code)
        assert ("surrogate" in answer.text) == ("half a character" in name)
        assert client.get("/v1/sessions").json() == before


@inputs(
    "text, words",
    [("", "has none"), ("short ann", "line 1"), ("a" * 16 + " x\n" + "a" * 16, "twice"), ("ä" * 16, "line 1")],
)
def test_a_file_of_tokens_is_checked_and_not_shown(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        read_tokens(text)
    assert "a" * 16 not in str(refused.value)


@inputs("address", ["0.0.0.0:1", "example.com:1", "[::]:1", "x", "99999"])
def test_without_a_token_it_answers_this_machine_alone(address: str) -> None:
    with pytest.raises(InvalidArgument, match="address"):
        checked_address(address, has_token=False)
    assert checked_address("[::1]:0", has_token=False) == ("::1", 0)
