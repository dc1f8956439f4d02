"""Every kind of message comes back value for value, and is stored as what everything else of the library reads."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from tests.adapters.needed import needs

needs("pydantic-ai", "pydantic_ai.conversation_store")

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter
from pydantic_ai import messages as m
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.adapters.pydantic_ai import FlueConversationStore
from flue_py.adapters.pydantic_ai_messages import repaired, repairs
from flue_py.errors import InvalidArgument, InvalidEntry
from tests.adapters.pydantic_ai.stores import PLACES, opened, turns
from tests.checks import raises
from tests.effort import examples
from tests.postgres import NewDatabase
from tests.values import existing

ANY = {
    "none": None, "numbers": [1, 1.0, True, 10**30, -0.0], "tuple": (1, ("a", [b"\x00\xff"])),
    "sets": [{1}, frozenset({"a"})],
    "times": [datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2), time(3, 4), timedelta(days=1, microseconds=5)],
    "others": [Decimal("1.50"), UUID(int=7), math.inf, -math.inf], "lone \udc00": "a\ud800b\0",
    "keys": {1: "one", None: "none", ("a", 1): "pair"}, "order": {"z": 1, "a": 2},
}  # fmt: skip


def _files() -> list[m.UserContent]:
    return [
        "text",
        m.TextContent("more", metadata={"a": (1,)}),
        m.ImageUrl("https://example.com/a.png", vendor_metadata={"detail": "low"}, force_download=True),
        m.AudioUrl("https://example.com/a.mp3"),
        m.VideoUrl("https://example.com/a.mp4", identifier="named"),
        m.DocumentUrl("https://example.com/a.pdf", media_type="application/pdf"),
        m.BinaryContent(b"\xfb\xff\xfe", media_type="image/png", vendor_metadata={"x": 1}),
        m.BinaryImage(b"\x89PNG", media_type="image/png"),
        m.BinaryContent(b"%PDF", media_type="application/pdf", identifier="named"),
        m.UploadedFile("file-1", "openai"),
        m.CachePoint(ttl="1h"),
    ]


def _requests() -> Iterator[m.ModelMessage]:
    yield m.ModelRequest(parts=[])
    yield m.ModelRequest(parts=[], instructions="Be brief.", state="interrupted", metadata=dict(ANY))
    yield m.ModelRequest(parts=[m.SystemPromptPart("Be kind.", dynamic_ref="x"), m.UserPromptPart("Hi")])
    yield m.ModelRequest(parts=[m.UserPromptPart(_files()), m.UserPromptPart([]), m.UserPromptPart("")], run_id="run")
    yield m.ModelRequest(parts=[m.UserPromptPart("a\ud800b\0c")], timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    returned = [None, "text", 3, 1.5, True, [], {}, [1, "a"], ANY, _files()[6], [_files()[6], "a", 1], _files()[2]]
    yield m.ModelRequest(parts=[m.ToolReturnPart("tool", each, "call") for each in returned])
    outcomes = ("success", "failed", "denied", "interrupted", "retried")
    yield m.ModelRequest(parts=[m.ToolReturnPart("tool", "x", "call", outcome=each, metadata=ANY) for each in outcomes])
    yield m.ModelRequest(
        parts=[
            m.ToolReturnPart("tool", "again", "c", outcome="retried", retry=m.RetryInfo("model_retry", attempt=1)),
            m.RetryFeedbackPart("again", retry=m.RetryInfo("no_output", attempt=2, max_retries=3)),
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        errors = [{"type": "missing", "loc": ("a", 0), "msg": "Field required", "input": {"b": 1}}]
        yield m.ModelRequest(parts=[m.RetryPromptPart("again", tool_name="tool"), m.RetryPromptPart("no tool")])
        yield m.ModelRequest(parts=[m.RetryPromptPart(errors), m.UserPromptPart("and so on")])
    yield m.ModelRequest(
        parts=[m.ToolAvailabilityDeltaPart(tools_added=["a"]), m.UserPromptPart("x"), m.CapabilityLoadDeltaPart()]
    )


def _responses() -> Iterator[m.ModelMessage]:
    yield m.ModelResponse(parts=[])
    yield m.ModelResponse(
        parts=[
            m.ThinkingPart("hm", id="t", signature="sig", provider_name="openai", provider_details={"a": [1]}),
            m.TextPart("x", id="i", provider_name="p", provider_details={"n": None}),
            m.TextPart("", citations=[]),
            m.FilePart(m.BinaryContent(b"\xff\xfb", media_type="image/png"), id="f"),
            m.CompactionPart("so far", id="c", provider_name="openai"),
            m.NativeToolCallPart("web_search", {"q": "x"}, "n", provider_name="openai", provider_details={"a": 1}),
            m.NativeToolReturnPart("web_search", [{"url": "x"}, ANY], "n", provider_name="openai"),
        ],
        model_name="large-1",
        provider_name="openai",
        provider_url="https://example.com",
        provider_details={"finish_reason": "stop", "any": ANY},
        provider_response_id="resp-1",
        finish_reason="content_filter",
        run_id="run",
        conversation_id="c",
        metadata={"any": ANY},
        usage=RequestUsage(
            input_tokens=100,
            cache_read_tokens=40,
            cache_write_tokens=20,
            cache_write_1h_tokens=5,
            output_tokens=30,
            output_reasoning_tokens=11,
            input_audio_tokens=2,
            audio_seconds=1.5,
            details={"x": 1},
            cost=Decimal("0.00012300"),
            novel=7,
        ),
    )
    texts = ["", "{}", '{"a":1,"b":[null]}', '{"a": 1}', '{"a":  1}', '{"a":1', "[1]", '{"é":"ü"}', r'{"\u00e9":1}']
    yield m.ModelResponse(parts=[m.ToolCallPart("tool", each, f"call-{each}") for each in [*texts, None, {}, {"a": 1}]])
    for reason in ("stop", "length", "tool_call", "error", None):
        yield m.ModelResponse(parts=[m.TextPart("x")], finish_reason=reason)
    for state in ("complete", "incomplete", "suspended", "interrupted"):
        yield m.ModelResponse(parts=[m.TextPart("x")], state=state, finish_reason="stop")
    yield m.ModelResponse(
        parts=[m.TextPart("x\ud800")],
        failed_attempts=[
            m.ModelRequestAttempt(
                model_name="small-1",
                provider_name="example",
                outcome="rejected",
                timestamp=datetime(2026, 1, 1, tzinfo=UTC),
                duration=timedelta(seconds=2),
                usage=RequestUsage(input_tokens=5, output_tokens=1),
            )
        ],
    )


EVERYTHING = [*_requests(), *_responses()]


@pytest.mark.parametrize("place", PLACES)
def test_every_message_comes_back_value_for_value(place: str, tmp_path: Path, new_database: NewDatabase) -> None:
    with opened(place, tmp_path, new_database) as store:

        async def keep() -> None:
            await store.save(Conversation(messages=list(EVERYTHING), conversation_id="a"))
            loaded = existing(await store.load("a"))
            for given_, read in zip(EVERYTHING, loaded.messages, strict=True):
                assert read == given_
                assert repr(read) == repr(given_) or "TzInfo" in repr(read)
            for limit in range(len(EVERYTHING) + 1):
                window = existing(await store.load("a", limit=limit))
                assert window.messages == EVERYTHING[len(EVERYTHING) - limit :]

        asyncio.run(keep())


def test_what_is_stored_is_what_the_rest_of_the_library_reads(tmp_path: Path) -> None:
    async def keep() -> None:
        async with flue_py.open(tmp_path / "a.db") as flue:
            store = FlueConversationStore(flue)
            call = m.ToolCallPart("add", '{"x": 1}', "call-1")
            image = m.BinaryContent(b"\xfb\xff\xfe", media_type="image/png")
            await store.save(
                Conversation(
                    messages=[
                        m.ModelRequest(parts=[m.SystemPromptPart("Be kind."), m.UserPromptPart(["See:", image])]),
                        m.ModelResponse(parts=[m.ThinkingPart("hm", signature="s"), call], finish_reason="tool_call"),
                        m.ModelRequest(parts=[m.ToolReturnPart("add", {"sum": 2}, "call-1"), m.UserPromptPart("So?")]),
                        m.ModelResponse(parts=[m.TextPart("2")], model_name="large-1", provider_name="example"),
                    ],
                    conversation_id="a",
                )
            )
            session = await store.session_for("a")
            found = [{**message, "timestamp": None} for message in await session.build_context()]
            stripped = [{name: each for name, each in message.items() if each is not None} for message in found]
            assert stripped == [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "See:"},
                        {"type": "image", "data": "+//+", "mimeType": "image/png"},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
                        {"type": "toolCall", "id": "call-1", "name": "add", "arguments": {"x": 1}},
                    ],
                    "usage": {},
                    "stopReason": "toolUse",
                },
                {
                    "role": "toolResult", "toolCallId": "call-1", "toolName": "add",
                    "content": [{"type": "text", "text": '{"sum":2}'}],
                },
                {"role": "user", "content": "So?"},
                {
                    "role": "assistant", "content": [{"type": "text", "text": "2"}], "provider": "example",
                    "model": "large-1", "usage": {},
                },
            ]  # fmt: skip
            assert [entry.source for entry in await session.turns()] == [None, None]

    asyncio.run(keep())


def test_a_value_that_json_has_no_form_for_is_refused_and_nothing_is_written() -> None:
    async def refuse() -> None:
        store = FlueConversationStore.open(":memory:")
        conversation = Conversation(messages=turns(1), conversation_id="a")
        conversation.messages.append(m.ModelRequest(parts=[], metadata={"object": object()}))
        await raises(InvalidEntry, store.save(conversation), match="cannot be kept")
        assert await store.load("a") is None
        assert conversation.revision is None
        await store.close()

    asyncio.run(refuse())


def test_a_session_begun_by_hand_is_loaded_and_continued() -> None:
    async def go() -> None:
        async with flue_py.open(":memory:") as flue:
            session = await flue.create_session(key="a")
            usage = {"input": 8, "output": 3, "cacheRead": 2}
            call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "log"}}
            await session.append_messages(
                [
                    {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                    {"role": "user", "content": "Why?"},
                    {"role": "assistant", "content": [call], "usage": usage, "stopReason": "toolUse", "model": "m"},
                    {"role": "toolResult", "toolCallId": "c", "content": "TIMEOUT", "isError": True},
                    {"role": "assistant", "content": "Too slow.", "stopReason": "odd"},
                ]
            )
            await session.append_custom("note", {"x": 1})
            store = FlueConversationStore(flue)
            loaded = existing(await store.load("a"))
            assert [[type(part).__name__ for part in message.parts] for message in loaded.messages] == [
                ["SystemPromptPart"], ["UserPromptPart"], ["ToolCallPart"], ["ToolReturnPart"], ["TextPart"],
            ]  # fmt: skip
            answer = loaded.messages[2]
            assert isinstance(answer, m.ModelResponse)
            assert (answer.usage.input_tokens, answer.usage.cache_read_tokens, answer.finish_reason) == (
                10,
                2,
                "tool_call",
            )
            assert loaded.messages[3].parts[0].tool_name == "read"
            loaded.messages += turns(1)
            assert len(await store.save(loaded)) == 2
            again = existing(await store.load("a"))
            assert again.messages == loaded.messages
            assert [record.conversation_id for record in await store.list_conversations()] == ["a"]
            await session.refresh()
            await session.append_message({"role": "bashExecution", "content": "ls"})
            await raises(InvalidArgument, store.load("a"), match="bashExecution")
            await session.undo()
            assert await store.load("a") == again
            stale = existing(await store.load("a"))
            await session.undo()
            stale.messages += turns(1, first=3)
            await raises(ConversationConflict, store.save(stale))

    asyncio.run(go())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
AS_JSON = TypeAdapter(list[object], config=ConfigDict(ser_json_bytes="base64"))
VALUES = st.recursive(
    JSON
    | st.binary(max_size=3)
    | st.decimals(allow_nan=False)
    | st.datetimes().filter(lambda moment: not moment.fold)
    | st.text(st.characters(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=10,
)


@examples(300)
@given(VALUES)
def test_repairs_make_what_json_cannot_say(value: object) -> None:
    (read,) = AS_JSON.dump_python([value], mode="json")
    assert repr(repaired(read, repairs(value, read))) == repr(value)


def test_entries_are_the_same_one_by_one_as_in_their_history() -> None:
    async def compare() -> None:
        store = FlueConversationStore.open(":memory:")
        saved: list[ConversationEntry] = await store.save(Conversation(messages=list(EVERYTHING), conversation_id="a"))
        assert [await store.read_entry(each.id) for each in saved] == saved
        assert await store.load_entries("a") == saved
        await store.close()

    asyncio.run(compare())
