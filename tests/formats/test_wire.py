"""`flue_py.providers`: one message at a time, from a provider's form to ours and back."""

from __future__ import annotations

from importlib import import_module

import pytest

from flue_py import providers as wire
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument
from flue_py.providers import Shape
from tests.tables import inputs

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
