"""Messages of providers: differences, prices, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py import providers as wire
from flue_py.core.json import JsonObject, JsonValue
from flue_py.errors import InvalidArgument
from flue_py.formats.lists import parse_openai_responses
from flue_py.providers import Shape
from flue_py.providers.base import close_difference, difference, restored
from flue_py.transfer.imports import import_file
from tests.effort import examples
from tests.formats.transcripts import as_lines
from tests.tables import inputs

# `flue_py.providers`: one message at a time, from a provider's form to ours and back.

CALL: JsonObject = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
RESULT: JsonObject = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "no", "x": 1}]}
LISTS: list[tuple[Shape, list[JsonObject]]] = [
    (
        "openai-chat",
        [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{ "path": "a"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "no"},
        ],
    ),
    (
        "openai-responses",
        [
            {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "f1", "call_id": "c1", "name": "read", "arguments": '{ "path": "a"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "no"},
        ],
    ),
    (
        "anthropic",
        [
            {"role": "assistant", "content": [{"type": "text", "text": " "}, CALL]},
            {"role": "user", "content": [RESULT]},
        ],
    ),
    (
        "gemini",
        [
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"functionCall": {"id": "c1", "name": "read", "args": {"path": "a"}}, "thoughtSignature": "QUJD"},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "read", "response": {"no": 1}}}]},
        ],
    ),
]


@inputs(("shape", "messages"), LISTS, ids=[shape for shape, _ in LISTS])
def test_a_message_comes_back_as_it_was(shape: Shape, messages: list[JsonObject]) -> None:
    names: dict[str, str] = {}
    for message in messages:
        assert wire.shape_of(message) == shape
        for each in wire.convert(message, shape, names):
            assert wire.validate_message(each.message) in ("assistant", "toolResult")
            wire.check_complete(each.message)
            assert wire.shape_of(each.message) is None
            assert wire.to_provider(each.message, shape, each.beside) == wire.Printed((message,), ())
    assert names == {"c1": "read"}


@inputs("shape", [shape for shape, _ in LISTS])
def test_what_another_provider_has_no_place_for_is_told(shape: Shape) -> None:
    message: JsonObject = {
        "role": "assistant",
        "provider": "mine",
        "content": [{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}, {"type": "text", "text": "Yes."}],
    }
    printed = wire.to_provider(message, shape)
    assert [each["role"] for each in printed.messages] == ["model" if shape == "gemini" else "assistant"]
    assert [str(note).startswith("left out: reasoning") for note in printed.notes] == [True]


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"shape: 'bedrock' is not one of openai-chat, .*gemini"):
        wire.to_provider({"role": "user", "content": "x"}, "bedrock")  # type: ignore[arg-type]


def test_every_public_name_is_there() -> None:
    home = import_module("flue_py.providers")
    assert len(wire.__all__) > 20
    assert [name for name in wire.__all__ if getattr(home, name, None) is None] == []


# What makes one JSON value of another, so that lists and messages go out as they came in.

JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc0"), inner, max_size=3),
    max_leaves=12,
)


@examples(500)
@given(JSON, JSON)
def test_differences_make_one_json_value_of_another(printed: JsonValue, original: JsonValue) -> None:
    one: JsonObject = {"parts": [{"content": printed}, 1]}
    other: JsonObject = {"parts": [{"content": original}, 1]}
    before = repr(one)
    for found in (close_difference(one, other), difference(one, other)):
        assert repr(restored(one, json.loads(json.dumps(found)))) == repr(other)
        assert repr(one) == before
    assert (close_difference(one, other) == {}) == (repr(one) == repr(other))


def test_the_order_of_names_counts_in_what_a_tool_or_a_model_said_only() -> None:
    one: JsonObject = {"a": 1, "parts": [{"x": 1, "arguments": {"z": 1, "y": [{"q": 1, "p": 2}]}}]}
    same: JsonObject = {"parts": [{"arguments": {"z": 1, "y": [{"q": 1, "p": 2}]}, "x": 1}], "a": 1}
    other: JsonObject = {"a": 1, "parts": [{"x": 1, "arguments": {"z": 1, "y": [{"p": 2, "q": 1}]}}]}
    assert close_difference(one, same) == {}
    assert repr(restored(one, close_difference(one, other))) == repr(other)


def test_a_value_deeper_than_python_follows_is_kept_whole() -> None:
    def deep(end: JsonValue) -> JsonValue:
        for _ in range(100_000):
            end = [end]
        return end

    one, other = deep(1), deep(2)
    found = close_difference({"a": one, "b": 1}, {"a": other, "b": 1})
    assert list(found) == ["set"]
    assert found["set"]["a"] is other  # type: ignore[index, call-overload]


def test_a_close_difference_keeps_no_text_twice() -> None:
    said = {"type": "output_text", "text": "a long answer", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [said]}
    [(message, _)] = wire.convert(item, "openai-responses", {})
    printed = wire.to_provider(message, "openai-responses").messages[0]
    found = close_difference(printed, item)
    assert "a long answer" not in json.dumps(found)
    assert restored(printed, found) == item
    assert wire.to_provider(message, "openai-responses", {"openaiResponses": found}).messages == (item,)


@inputs(
    "found",
    [
        None, 3, {"inside": 3}, {"unset": [[], 1]}, {"inside": {"content": [{}, {}]}}, {"inside": {"x": [{}]}},
        {"inside": {"role": {"set": {"0": "x"}}}},
        {"inside": {"content": {"set": {"1": 7, "-1": 7, "x": 7, "٠": 7}, "inside": {"9" * 5_000: {}, "0": 3}}}},
    ],
)  # fmt: skip
def test_a_difference_that_does_not_fit_changes_nothing(found: JsonValue) -> None:
    printed: JsonObject = {"role": "user", "content": [{"type": "text"}]}
    assert restored(printed, found) == printed


def test_lists_of_other_lengths_are_kept_whole() -> None:
    one: JsonObject = {"content": [{"a": 1}], "other": [1]}
    two: JsonObject = {"content": [{"a": 1}, {"b": 2}], "other": [True]}
    assert close_difference(one, two) == {"set": {"content": two["content"]}, "inside": {"other": {"set": {"0": True}}}}
    assert restored(one, close_difference(one, two)) == two


# In every format, tokens that a file does not report are unknown after an import, and a reported zero is zero.

AT = "2026-01-14T00:00:00.000Z"
Usage = dict[str, Any]


def claude_code(usage: Usage) -> list[Any]:
    every = {"isSidechain": False, "sessionId": "11111111-1111-4111-8111-111111111111", "cwd": "/w", "timestamp": AT}
    answer = {"id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "b"}], "usage": usage}
    return [
        {"type": "user", "uuid": "u", "parentUuid": None, "message": {"role": "user", "content": "a"}, **every},
        {"type": "assistant", "uuid": "a", "parentUuid": "u", "message": answer, **every},
    ]


def codex(usage: Usage) -> list[Any]:
    def item(kind: str, **payload: Any) -> Any:
        return {"timestamp": AT, "type": kind, "payload": payload}

    return [
        item("session_meta", id="s", timestamp=AT, cwd="/w", originator="codex", cli_version="1"),
        item("response_item", type="message", role="user", content=[{"type": "input_text", "text": "a"}]),
        item("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "b"}]),
        item("event_msg", type="token_count", info={"total_token_usage": usage, "last_token_usage": usage}),
    ]


def pi(usage: Usage) -> list[Any]:
    def message(own: str, parent: str | None, **fields: Any) -> Any:
        return {"type": "message", "id": own, "parentId": parent, "timestamp": AT, "message": fields}

    return [
        {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/w"},
        message("a", None, role="user", content="a"),
        message("b", "a", role="assistant", content=[{"type": "text", "text": "b"}], usage=usage),
    ]


def noumen(usage: Usage) -> list[Any]:
    every = {"parentUuid": None, "sessionId": "demo", "timestamp": AT, "type": "message"}
    return [
        {**every, "uuid": "u", "message": {"role": "user", "content": "a"}},
        {**every, "uuid": "a", "message": {"role": "assistant", "content": "b", "usage": usage}},
    ]


def anthropic(usage: Usage) -> Any:
    answer = {
        "type": "message", "id": "m", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "b"}],
        "stop_reason": "end_turn", "usage": usage,
    }  # fmt: skip
    return [{"role": "user", "content": "a"}, answer]


def openai_chat(usage: Usage) -> Any:
    return [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "usage": usage}]


def openai_responses(usage: Usage) -> Any:
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "b", "annotations": []}]}  # fmt: skip
    return {"id": "resp_1", "object": "response", "model": "x", "output": [said], "usage": usage}


def fuseraft(usage: Usage) -> Any:
    said = {"Role": "assistant", "Content": "b", "AgentName": "D", "TurnIndex": 0, "Timestamp": AT, "Usage": usage}
    return {
        "SessionId": "0a0b0c0d", "Task": "a", "StartedAt": AT, "LastUpdatedAt": AT, "IsComplete": True, "TurnIndex": 1,
        "ConfigPath": "c.yaml", "Messages": [said],
    }  # fmt: skip


ANTHROPIC = {"input_tokens": 5, "output_tokens": 3}
OF_CACHE = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
OPENAI = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
CODEX = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
CACHE = {"cacheRead", "cacheWrite", "cacheWrite5m"}
ALL = CACHE | {"cacheWrite1h", "reasoning"}

CASES = [
    ("claude-code", claude_code, ANTHROPIC, ALL),
    ("claude-code", claude_code, {**ANTHROPIC, **OF_CACHE}, {"cacheWrite1h", "reasoning"}),
    (
        "claude-code",
        claude_code,
        {**ANTHROPIC, **OF_CACHE, "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}},
        {"reasoning"},
    ),
    ("codex", codex, CODEX, ALL),
    ("codex", codex, {**CODEX, "cached_input_tokens": 0}, ALL - {"cacheRead"}),
    (
        "codex",
        codex,
        {**CODEX, "cached_input_tokens": 0, "reasoning_output_tokens": 0},
        ALL - {"cacheRead", "reasoning"},
    ),
    ("pi", pi, {"input": 5, "output": 3, "totalTokens": 8}, ALL),
    ("pi", pi, {"input": 5, "output": 3, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 8}, ALL - CACHE),
    ("pi", pi, {"input": 5, "output": 3, "cacheWrite1h": 0, "reasoning": 0}, {"cacheRead"}),
    ("noumen", noumen, OPENAI, ALL),
    ("noumen", noumen, {**OPENAI, "prompt_tokens_details": {"cached_tokens": 0}}, ALL - {"cacheRead"}),
    ("anthropic", anthropic, ANTHROPIC, ALL),
    ("anthropic", anthropic, {**ANTHROPIC, **OF_CACHE}, {"cacheWrite1h", "reasoning"}),
    ("openai-chat", openai_chat, OPENAI, ALL),
    ("openai-chat", openai_chat, {**OPENAI, "completion_tokens_details": {"reasoning_tokens": 0}}, ALL - {"reasoning"}),
    ("openai-responses", openai_responses, CODEX, ALL),
    (
        "openai-responses",
        openai_responses,
        {**CODEX, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
        ALL - {"cacheRead", "reasoning"},
    ),
    ("fuseraft-run", fuseraft, {"InputTokens": 5, "OutputTokens": 3, "TotalTokens": 8}, ALL),
    ("fuseraft-run", fuseraft, {"InputTokens": 5, "OutputTokens": 3, "ReasoningTokens": 0}, ALL - {"reasoning"}),
]


@inputs(("format", "file", "usage", "unknown"), CASES)
async def test_an_import_passes_on_the_numbers_that_a_file_names_and_no_other(
    format: str,  # noqa: A002
    file: Callable[[Usage], Any],
    usage: Usage,
    unknown: set[str],
    tmp_path: Path,
) -> None:
    made = file(usage)
    is_lines = format in ("claude-code", "codex", "pi", "noumen")
    place = tmp_path / ("session.jsonl" if is_lines else "session.json")
    place.write_bytes(b"".join(as_lines(made)) if is_lines else json.dumps(made).encode())
    async with flue_py.open(":memory:", prices=False) as store:
        session_id = (await import_file(store, place, format, finish=True)).session_id
        known = (await store.usage(session_id)).total.known
    assert {name for name, count in known.items() if count is None} == unknown
    assert {name: count for name, count in known.items() if count} == {"input": 5, "output": 3, "totalTokens": 8}


# A whole response in a file: what stands beside its usage changes its price, too.


def test_the_tier_and_the_searches_of_a_response_are_terms_of_its_call() -> None:
    response: dict[str, Any] = {
        "object": "response", "id": "resp_1", "model": "gpt-5", "service_tier": "flex",
        "output": [
            {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
            {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "u"}},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        ],
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }  # fmt: skip
    (session,) = parse_openai_responses(json.dumps(response).encode())
    calls = [call for entry in session.entries for call in entry.calls]
    assert [call.terms for call in calls] == [(("service_tier", "flex"), ("web_searches", "1"))]
