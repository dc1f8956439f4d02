"""The Conversations API of OpenAI: its clients and the sessions of its Agents SDK, unchanged, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx", "openai", "agents")

import openai
from agents import OpenAIConversationsSession

from tests.server.serving import TOKENS, Server
from tests.tables import inputs


def options(server: Server, scope: str | None = "ann") -> dict[str, Any]:
    return {"base_url": f"{server.url}/v1", "api_key": TOKENS[scope], "max_retries": 0}


def client_of(server: Server, scope: str | None = "ann") -> openai.OpenAI:
    return openai.OpenAI(**options(server, scope))


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


def test_items_come_back_as_they_went_in(server: Server) -> None:
    client = client_of(server)
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


def test_a_thousand_items_are_listed_in_pages_both_ways(server: Server) -> None:
    client = client_of(server)
    conversation = client.conversations.create()
    items: Any = [{"role": "user", "content": f"m{number}"} for number in range(1_010)]
    client.conversations.items.create(conversation.id, items=items)
    forth = [item.id for item in client.conversations.items.list(conversation.id, order="asc", limit=100)]
    back = [item.id for item in client.conversations.items.list(conversation.id, limit=97)]
    assert len(set(forth)) == 1_010
    assert back == forth[::-1]


def test_an_item_that_is_deleted_is_neither_listed_nor_sent_and_stays_in_the_history(server: Server) -> None:
    client = client_of(server)
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


async def test_a_session_of_the_agents_sdk_is_kept(server: Server) -> None:
    async with openai.AsyncOpenAI(**options(server)) as client:
        session = OpenAIConversationsSession(openai_client=client)
        assert await session.get_items() == []
        turn: Any = [{"role": "user", "content": "hi"}, *ITEMS[1:5]]
        await session.add_items(turn)
        same = OpenAIConversationsSession(conversation_id=session.session_id, openai_client=client)
        items: list[Any] = await same.get_items()
        assert [item["type"] for item in items] == [
            "message", "reasoning", "function_call", "function_call_output", "message"
        ]  # fmt: skip
        assert items[2] == ITEMS[2]
        assert await same.get_items(limit=2) == items[-2:]
        # A run that is tried again takes its items back, and stores them anew.
        popped = [await same.pop_item() for _ in range(3)]
        assert popped == items[:1:-1]
        await same.add_items(popped[::-1])  # type: ignore[arg-type]
        assert await session.get_items() == items
        await session.clear_session()
        with pytest.raises(openai.NotFoundError):
            await same.get_items()


def test_a_retry_is_done_once_and_an_id_is_there_once(server: Server) -> None:
    client = client_of(server)
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


@inputs(
    ("call", "body", "status", "code", "param"),
    [
        ("POST /conversations", {"metadata": {"k": "v" * 513}}, 400, "InvalidArgument", "metadata[...]"),
        ("POST /conversations", {"items": [{"role": "user"}], "x": 1}, 400, "InvalidArgument", None),
        ("POST /conversations", {"items": [{"content": "x"}]}, 400, "InvalidArgument", "items[0].type"),
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
    server: Server, call: str, body: object, status: int, code: str, param: str | None
) -> None:
    client = client_of(server)
    name = client.conversations.create().id
    method, path = call.format(name).split(" ")
    with pytest.raises(openai.APIStatusError) as wrong:
        client.request(object, openai._models.FinalRequestOptions(method=method, url=path, json_data=body))
    assert refused(wrong.value) == (status, code, param)
    with pytest.raises(openai.AuthenticationError) as stranger:
        openai.OpenAI(**options(server) | {"api_key": "x" * 16}).conversations.retrieve(name)
    assert refused(stranger.value) == (401, "NoToken", None)
