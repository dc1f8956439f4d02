"""The Conversations API of OpenAI: its clients, unchanged, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import ANY

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx", "openai")

import httpx
import openai

import flue_py
from flue_py.core.context import ContextEntry
from flue_py.server import conversations
from flue_py.server.app import make_app
from tests.server.serving import TOKENS, Server
from tests.tables import inputs


def options(server: Server) -> dict[str, Any]:
    return {"base_url": f"{server.url}/v1", "api_key": TOKENS["ann"], "max_retries": 0}


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**options(server)) as opened:
        yield opened


def refused(error: openai.APIStatusError) -> tuple[int, str | None, str | None]:
    assert isinstance(error.body, dict)
    assert error.body.keys() == {"message", "type", "param", "code"}
    assert error.body["type"] == "invalid_request_error"
    return error.status_code, error.code, error.param


ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
    ]},
    {"id": "rs_1", "type": "reasoning", "encrypted_content": "e==", "summary": [
        {"type": "summary_text", "text": "hm"}
    ]},
    {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":  1}',
     "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "done\u0000", "status": "completed"},
    {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete", "content": [
        {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}
    ]},
    {"id": "zz~9", "type": "mystery", "is": [1, None, {"deep": 1.5}]},
]  # fmt: skip


def test_items_come_back_as_they_went_in(client: openai.OpenAI) -> None:
    conversation = client.conversations.create(items=ITEMS[:1], metadata={"topic": "x"})  # type: ignore[arg-type,list-item]
    assert (conversation.object, conversation.metadata) == ("conversation", {"topic": "x"})
    added = client.conversations.items.create(conversation.id, items=ITEMS[1:], include=["reasoning.encrypted_content"])  # type: ignore[arg-type]
    listed = [*client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [item.id for item in added.data] == [item.id for item in listed[1:]] == [added.first_id, *(
        str(item.id) for item in added.data[1:]
    )]  # fmt: skip
    for sent, item in zip(ITEMS, listed, strict=True):
        back = json.loads(json.dumps(item.to_dict()))
        assert back == {"id": back["id"], "status": "completed", **sent} or back == {"id": back["id"], **sent}
        assert client.conversations.items.retrieve(str(item.id), conversation_id=conversation.id) == item
    newest = client.conversations.items.list(conversation.id)
    assert [item.id for item in newest.data] == [item.id for item in reversed(listed)]
    assert client.conversations.update(conversation.id, metadata={"topic": "y"}).metadata == {"topic": "y"}
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "y"}
    short = client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "hi"}])
    assert short.data[0].to_dict() == {
        "id": short.first_id, "type": "message", "role": "user", "status": "completed",
        "content": [{"type": "input_text", "text": "hi"}],
    }  # fmt: skip


def test_a_thousand_items_are_listed_in_pages_both_ways(client: openai.OpenAI) -> None:
    conversation = client.conversations.create()
    items: Any = [{"role": "user", "content": f"m{number}"} for number in range(1_010)]
    client.conversations.items.create(conversation.id, items=items)
    forth = [item.id for item in client.conversations.items.list(conversation.id, order="asc", limit=100)]
    back = [item.id for item in client.conversations.items.list(conversation.id, limit=97)]
    assert len(set(forth)) == 1_010
    assert back == forth[::-1]


async def test_a_page_reads_what_it_shows_and_not_the_whole_context(monkeypatch: pytest.MonkeyPatch) -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_messages([{"role": "user", "content": f"m{number}"} for number in range(300)])
        made, items_of = 0, conversations.items_of

        def counted(source: ContextEntry) -> Sequence[Any]:
            nonlocal made
            made += 1
            return items_of(source)

        monkeypatch.setattr(conversations, "items_of", counted)
        transport = httpx.ASGITransport(make_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def page(**query: str) -> tuple[int, list[str], bool]:
                before = made
                rows = (await http.get(f"/v1/conversations/{session.id}/items", params=query)).json()
                texts = [item["content"][0]["text"] for item in rows["data"]]
                return made - before, [rows["last_id"], texts[0], texts[-1]], rows["has_more"]

            count, (last, *texts), has_more = await page(limit="10")
            assert (count, texts, has_more) == (11, ["m299", "m290"], True)
            assert (await page(limit="10", after=last))[0] == 300
            count, (last, *texts), has_more = await page(limit="100", after=last)
            assert (count, texts, has_more) == (0, ["m289", "m190"], True)
            assert await page(order="asc", limit="100") == (0, [ANY, "m0", "m99"], True)
            await session.append_message({"role": "user", "content": "m300"})
            count, (_, *texts), has_more = await page(order="asc", limit="100", after=last)
            assert (count, texts, has_more) == (301, ["m191", "m290"], True)


def test_an_item_that_is_deleted_is_neither_listed_nor_sent_and_stays_in_the_history(
    server: Server, client: openai.OpenAI
) -> None:
    conversation = client.conversations.create(items=ITEMS)  # type: ignore[arg-type]
    client.conversations.items.delete("msg_1", conversation_id=conversation.id)
    with server.client("ann") as http:
        path = f"/v1/sessions/{conversation.id}"
        assert "yes" not in http.get(f"{path}/request?target=openai-responses").text
        assert "yes" in http.get(f"{path}/entries").text
        assert http.post(f"{path}/undo", json={}).status_code == 200
        assert "msg_1" in {item.id for item in client.conversations.items.list(conversation.id)}
        http.post(f"{path}/redo", json={})
    with pytest.raises(openai.NotFoundError) as missing:
        client.conversations.items.delete("msg_1", conversation_id=conversation.id)
    assert refused(missing.value) == (404, "EntryNotFound", None)
    again = client.conversations.items.create(conversation.id, items=[ITEMS[4]])  # type: ignore[list-item]
    assert again.first_id == "msg_1"
    client.conversations.items.delete("fc_1", conversation_id=conversation.id)
    kinds = [item.type for item in client.conversations.items.list(conversation.id, order="asc")]
    assert kinds == ["message", "reasoning", "mystery", "message"]
    deleted = client.conversations.delete(conversation.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (conversation.id, True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError) as gone:
        client.conversations.retrieve(conversation.id)
    assert refused(gone.value) == (404, "SessionNotFound", None)


def test_items_of_other_histories_have_ids_and_a_part_of_an_entry_is_not_deleted(
    server: Server, client: openai.OpenAI
) -> None:
    with server.client("ann") as http:
        name = http.post("/v1/sessions", json={"metadata": {"a": "b"}}).json()["id"]
        call = {"type": "toolCall", "id": "c1", "name": "f", "arguments": {}}
        message = {"role": "assistant", "content": [{"type": "text", "text": "yes"}, call]}
        http.post(f"/v1/sessions/{name}/messages", json={"messages": [message]}).raise_for_status()
        items = client.conversations.items.list(name, order="asc").data
        assert [item.type for item in items] == ["message", "function_call"]
        assert client.conversations.items.retrieve(str(items[1].id), conversation_id=name) == items[1]
        with pytest.raises(openai.BadRequestError, match="a part of the entry"):
            client.conversations.items.delete(str(items[1].id), conversation_id=name)
        assert client.conversations.update(name, metadata=None).metadata == {}
        assert http.get(f"/v1/sessions/{name}").json()["metadata"]["a"] == "b"


def test_a_retry_is_done_once_and_an_id_is_there_once(client: openai.OpenAI) -> None:
    key = {"Idempotency-Key": "turn 1"}
    made = [client.conversations.create(items=ITEMS, extra_headers=key) for _ in range(2)]  # type: ignore[arg-type]
    assert made[0] == made[1]
    for items in (ITEMS[:1], []):
        with pytest.raises(openai.ConflictError) as other:
            client.conversations.create(items=items, extra_headers=key)  # type: ignore[arg-type]
        assert refused(other.value) == (409, "IdempotencyConflict", None)
    name = made[0].id
    again: Any = [{**ITEMS[4], "id": "msg_2"}]
    added = [
        client.conversations.items.create(name, items=again, extra_headers=key | {"Idempotency-Key": "2"})
        for _ in range(2)
    ]
    assert added[0] == added[1]
    with pytest.raises(openai.BadRequestError, match="already") as twice:
        client.conversations.items.create(name, items=again)
    assert refused(twice.value) == (400, "InvalidArgument", "items")
    assert len([*client.conversations.items.list(name)]) == len(ITEMS) + 1
    late = key | {"Idempotency-Key": "3"}
    client.conversations.update(name, metadata={"is": "early"}, extra_headers=late)
    client.conversations.update(name, metadata={"is": "now"})
    retried = client.conversations.update(name, metadata={"is": "early"}, extra_headers=late)
    assert retried.metadata == {"is": "now"}


@inputs(
    ("call", "body", "status", "code", "param"),
    [
        ("POST /conversations", {"metadata": {"k": "v" * 513}}, 400, "InvalidArgument", "metadata"),
        ("POST /conversations", {"items": [{"role": "user"}], "x": 1}, 400, "InvalidArgument", None),
        ("POST /conversations", {"items": [{"content": "x"}]}, 400, "InvalidArgument", "items[0]"),
        ("POST /conversations", {"items": [{"role": "user"}]}, 400, "InvalidArgument", "items[0]"),
        ("POST /conversations", {"items": [{"type": "t", "id": "a/b"}]}, 400, "InvalidArgument", "items[0].id"),
        ("POST /conversations", {"items": [{"type": "t", "id": "a"}] * 2}, 400, "InvalidArgument", "items[1].id"),
        ("GET /conversations/none", None, 404, "SessionNotFound", None),
        ("GET /conversations/none/items?limit=101", None, 404, "SessionNotFound", None),
        ("GET /conversations/{}/items?limit=101", None, 400, "InvalidArgument", "limit"),
        ("GET /conversations/{}/items?after=none", None, 404, "EntryNotFound", None),
        ("POST /conversations/{}/items", {"items": []}, 400, "InvalidArgument", "items"),
        ("PUT /conversations", {}, 405, "NoSuchRoute", None),
    ],
)
def test_a_wrong_request_gets_an_error_of_openai_s_form(
    server: Server, client: openai.OpenAI, call: str, body: object, status: int, code: str, param: str | None
) -> None:
    name = client.conversations.create().id
    method, path = call.format(name).split(" ")
    with pytest.raises(openai.APIStatusError) as wrong:
        client.request(object, openai._models.FinalRequestOptions(method=method, url=path, json_data=body))
    assert refused(wrong.value) == (status, code, param)
    assert status != 400 or ". Change the request; nothing was changed." in wrong.value.message
    stranger = openai.OpenAI(**options(server) | {"api_key": "x" * 16})
    with stranger, pytest.raises(openai.AuthenticationError) as unknown:
        stranger.conversations.retrieve(name)
    assert refused(unknown.value) == (401, "NoToken", None)
