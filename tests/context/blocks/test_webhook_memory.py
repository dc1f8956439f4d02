"""Memory of a server: asked before each turn, given what was said after it, and never in the way of a turn."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

import flue_py
import flue_py.sync
from flue_py import JsonObject
from flue_py.agents.conversation import Conversation
from flue_py.context.blocks import BlockText, WebhookMemory
from flue_py.errors import InvalidArgument, MemoryUnavailable
from tests.checks import raises
from tests.context.blocks.webhooks import free_port, remembering, saying
from tests.sessions.talk import assistant, user
from tests.tables import inputs

TOKEN = "tok-1234567890abcdef"
OK = b"HTTP/1.1 200 OK\r\n"


async def failure(memory: WebhookMemory) -> str:
    caught = await raises(MemoryUnavailable, memory.read())
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


async def test_it_is_asked_for_an_agent_and_answers_a_block() -> None:
    with remembering() as server:
        server.answer({"block": "likes tabs"})
        memory = WebhookMemory(f"{server.url}/load?x=1", agent="Coder", token=lambda: TOKEN)
        assert await memory.read() == BlockText("likes tabs")
        path, headers, asked = server.asked[0]
        assert (path, asked) == ("/load?x=1", {"agent": "Coder"})
        assert headers["Authorization"] == f"Bearer {TOKEN}"
        assert headers["Content-Type"] == "application/json"
        for nothing in ({"block": None}, {"block": " \n"}, {}):
            server.answer(nothing)
            assert await memory.read() is None
        server.status, server.body = 204, b""
        assert await memory.read() is None
        await memory.save([user("a")])
        assert len(server.asked) == 5


async def test_a_token_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_TOKEN", TOKEN)
    with remembering() as server:
        memory = WebhookMemory(server.url, token_variable="MEMORY_TOKEN")
        await memory.read()
        assert server.asked[0][0] == "/"
        assert server.asked[0][1]["Authorization"] == f"Bearer {TOKEN}"
        monkeypatch.delenv("MEMORY_TOKEN")
        assert "no variable MEMORY_TOKEN" in await failure(memory)
        await WebhookMemory(server.url, token=lambda: None).read()
        assert "Authorization" not in server.asked[1][1]


async def test_no_error_has_the_token_or_the_path() -> None:
    def broken() -> str:
        raise ValueError(TOKEN)

    with remembering() as server:
        secret = f"{server.url}/{TOKEN}"
        assert "raised ValueError" in await failure(WebhookMemory(secret, token=broken))
        assert "cannot be sent" in await failure(WebhookMemory(secret, token=lambda: f"{TOKEN}\r\nX: 1"))
        assert server.asked == []
        server.status = 500
        server.body = TOKEN.encode()
        memory = WebhookMemory(secret, token=lambda: TOKEN)
        assert await failure(memory) == f"{server.url} answered 500"
        assert TOKEN not in repr(memory)
    for line in (f"{TOKEN}\r\n", f"HTTP/1.1 {TOKEN}\r\n\r\n"):
        with saying(line.encode()) as url:
            await failure(WebhookMemory(url, token=lambda: TOKEN))


async def test_a_redirect_is_not_followed() -> None:
    with remembering() as other, remembering() as server:
        server.headers = {"Location": f"{other.url}/"}
        for status in (301, 302, 303, 307, 308):
            server.status = status
            assert f"answered {status}; it is not followed" in await failure(WebhookMemory(server.url))
        assert other.asked == []


async def test_an_answer_is_read_to_a_bound() -> None:
    with remembering() as server:
        server.answer({"block": "x" * 1_000})
        assert "more than 1,000 bytes" in await failure(WebhookMemory(server.url, most_bytes=1_000))
        assert await WebhookMemory(server.url, most_bytes=1_013).read()
    endless = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with saying(endless, *[endless[endless.index(b"8000") :]] * 64) as url:
        assert "more than 65,536 bytes" in await failure(WebhookMemory(url))


@inputs(
    ("said", "reason"),
    [
        (b"", "RemoteDisconnected"), (b"nonsense\r\n\r\n", "BadStatusLine"),
        (OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n", "LineTooLong"), (OK + b"X: y\r\n" * 200 + b"\r\n", "HTTPException"),
        (OK + b"Content-Length: 50\r\n\r\n{}", "broke off|IncompleteRead"), (OK + b"\r\n[1]", "not an object"),
        (OK + b"\r\n" + b"[" * 50_000, "not JSON"), (OK + b"\r\n\xff\xfe{", "not JSON"),
        (OK + b'\r\n{"block": 5}', "not a text"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead|ValueError"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_an_error_of_ours(said: bytes, reason: str) -> None:
    with saying(said) as url:
        found = await failure(WebhookMemory(url, token=lambda: TOKEN))
        assert any(each in found for each in reason.split("|")), found


async def test_a_server_that_lets_one_wait_is_left_and_so_is_one_that_drips() -> None:
    for said in ((), (OK,), (OK + b"Content-Length: 100\r\n\r\n{",)):
        with saying(*said, lets_wait=True) as url:
            assert "gave no answer within 0.05 seconds" in await failure(WebhookMemory(url, timeout=0.05))
    # Whoever cancels the call does not leave the thread with the server: `saying` would never end.
    with saying(OK, lets_wait=True) as url, anyio.move_on_after(0.05) as scope:
        await WebhookMemory(url, timeout=3600).read()
    assert scope.cancelled_caught


async def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    assert "refused" in await failure(WebhookMemory(f"http://127.0.0.1:{free_port()}"))
    with saying(b"no tls") as url:
        assert "cannot be asked" in await failure(WebhookMemory(url.replace("http:", "https:")))


def test_what_is_no_address_is_refused_and_not_shown() -> None:
    wrong: Any
    secret = f"://me:{TOKEN}@host/"
    for wrong in (
        f"http{secret}", f"file:///{TOKEN}", f"ftp://host/{TOKEN}", f"//host/{TOKEN}", f"http:///{TOKEN}",
        f"http://host:99999999/{TOKEN}", f"http://host/{TOKEN}\r\nX: y", f"http://h\u00f6st/{TOKEN}",
        f"http://[{TOKEN}/", TOKEN, "", 5, b"http://host/",
    ):  # fmt: skip
        for given in ({"url": wrong}, {"url": None, "save_url": wrong}):
            with pytest.raises(InvalidArgument) as caught:
                WebhookMemory(**given)
            assert TOKEN not in str(caught.value)
    for wrong in (
        {"url": None}, {"agent": 5}, {"name": None}, {"token": TOKEN}, {"token": str, "token_variable": "X"},
        {"token_variable": 5}, {"timeout": 0}, {"timeout": float("nan")}, {"timeout": True}, {"most_bytes": 0},
        {"most_bytes": 1.5},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            WebhookMemory(**{"url": "http://127.0.0.1/", **wrong})
        assert TOKEN not in str(caught.value)


async def test_what_was_said_in_a_turn_is_saved_as_text() -> None:
    with remembering() as server:
        memory = WebhookMemory(None, save_url=f"{server.url}/save", agent="Coder")
        assert await memory.read() is None
        call: JsonObject = {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}
        await memory.save(
            [
                user("a \ud800"),
                {"role": "assistant", "content": [call]},
                {"role": "toolResult", "toolCallId": "c", "content": "secret file"},
                assistant("b"),
            ]
        )
        await memory.save([{"role": "assistant", "content": [call]}])
        (path, _, saved), *others = server.asked
        assert others == []
        assert path == "/save"
        said = [{"role": "user", "content": "a \ud800"}, {"role": "assistant", "content": "b"}]
        assert saved == {"agent": "Coder", "history": said}
        server.status = 503
        await raises(MemoryUnavailable, memory.save([user("a")]), match="503")


async def test_a_turn_goes_on_whatever_the_server_does() -> None:
    async def model(context: list[JsonObject]) -> list[JsonObject]:
        return [assistant(f"{len(context)}")]

    with remembering() as server:
        memory = WebhookMemory(server.url, save_url=f"{server.url}/save", agent="Coder")
        async with flue_py.open(":memory:") as store:
            session = await store.create_session()
            talk = Conversation(store, session, blocks=[memory])
            for number in range(4):
                server.answer({"block": "likes tabs"} if number < 2 else {"block": f"likes {number}"})
                server.status = 500 if number == 3 else 200
                await talk.take_turn(f"turn {number}", model)
                assert len(talk.block_failures) == (2 if number == 3 else 0)
            assert [message["content"] for message in await session.build_context() if message["role"] == "user"] == [
                [{"type": "text", "text": "likes tabs"}], "turn 0", "turn 1", [{"type": "text", "text": "likes 2"}],
                "turn 2", "turn 3",
            ]  # fmt: skip
            assert (await store.verify()).problems == []
        assert [path for path, _, _ in server.asked] == ["/", "/save"] * 4


def test_the_twin_of_a_conversation_asks_it_too(tmp_path: Path) -> None:
    with remembering() as server, flue_py.sync.open(tmp_path / "s.db") as store:
        server.answer({"block": "likes tabs"})
        talk = flue_py.sync.Conversation(
            store, store.create_session(), blocks=[WebhookMemory(server.url, save_url=server.url)]
        )
        answers = talk.take_turn("one", lambda context: [assistant(f"{len(context)}")])
        assert answers[0]["content"] == [{"type": "text", "text": "2"}]
        assert talk.block_failures == ()
        assert len(server.asked) == 2
