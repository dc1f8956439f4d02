"""What is made for a provider is what its own client library declares: checked by pydantic against its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter

from flue_py.adapters.messages import Context, said_of, to_anthropic, to_gemini, to_openai, to_responses
from flue_py.context.request import editing_of
from flue_py.context.settings import context_settings
from flue_py.providers.lists import Said
from flue_py.providers.request import CacheMarks, wire_request
from tests.adapters.messages.contexts import EVERYTHING, TRANSCRIPTS, context_of
from tests.adapters.needed import needs

needs("messages", "openai", "anthropic", "google.genai")

from anthropic.types import MessageParam, TextBlockParam, ToolParam
from anthropic.types.beta import BetaContextManagementConfigParam
from google.genai import types
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.response_create_params import ContextManagement

CONTEXTS: dict[str, Context] = {"by hand": EVERYTHING}
contexts = pytest.mark.parametrize("name", ["by hand", *TRANSCRIPTS])


def context(name: str) -> Context:
    return CONTEXTS[name] if name in CONTEXTS else context_of(name)


def read(value: Any) -> Any:
    """Return a checked value in full: what is declared as an iterable is checked when it is read."""
    if isinstance(value, dict):
        return {key: read(each) for key, each in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else [read(each) for each in value]


def assert_declared(adapter: TypeAdapter[Any], values: Sequence[Any]) -> None:
    """Assert that each value is of a type, and that this has every field of it: others would be gone."""
    for value in values:
        assert read(adapter.validate_python(value)) == value


@contexts
def test_messages_of_chat_are_what_openai_declares(name: str) -> None:
    assert_declared(TypeAdapter(ChatCompletionMessageParam), to_openai(context(name)).messages)


@contexts
def test_items_of_responses_are_what_openai_declares(name: str) -> None:
    assert_declared(TypeAdapter(ResponseInputItemParam), to_responses(context(name)).messages)


@contexts
def test_messages_and_system_are_what_anthropic_declares(name: str) -> None:
    sent = to_anthropic(context(name))
    assert_declared(TypeAdapter(MessageParam), sent.messages)
    assert_declared(TypeAdapter(str | list[TextBlockParam]), [] if sent.system is None else [sent.system])


@contexts
def test_a_request_with_marks_for_the_cache_is_what_anthropic_declares(name: str) -> None:
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    said = [Said({"role": "system", "content": "Be brief."}), *said_of(context(name))]
    sent = wire_request("anthropic", said, tools=tools, cache_marks=CacheMarks(4, "1h"))
    assert_declared(TypeAdapter(MessageParam), sent.messages)
    assert_declared(TypeAdapter(str | list[TextBlockParam]), [sent.system])
    assert_declared(TypeAdapter(ToolParam), sent.tools)
    assert str(sent).count("'cache_control': {'type': 'ephemeral', 'ttl': '1h'}") == 4


def test_what_a_provider_is_asked_to_clear_itself_is_what_its_client_declares() -> None:
    rule = {"clear_at_least": 5, "exclude_tools": ["a"], "clear_tool_inputs": True}
    given = {"clear_tool_uses": rule, "keep_thinking_turns": 1, "compact_tokens": 5_000}
    asked = context_settings({"provider_editing": given}).provider_editing
    edits = editing_of("anthropic", asked).extra["context_management"]
    assert_declared(TypeAdapter(BetaContextManagementConfigParam), [edits])
    threshold = editing_of("openai-responses", asked).extra["context_management"]
    assert_declared(TypeAdapter(list[ContextManagement]), [threshold])


@contexts
def test_contents_and_system_are_what_gemini_declares(name: str) -> None:
    sent = to_gemini(context(name))
    for content in [*sent.messages, *([] if sent.system is None else [sent.system])]:
        read_back = types.Content.model_validate(content).model_dump(mode="json", by_alias=True, exclude_none=True)
        assert read_back == content
