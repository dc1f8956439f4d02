"""What is sent of any history, however corrupt, is what the providers' own client libraries declare."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from flue_py.core.json import JsonObject
from flue_py.providers.lists import Said
from flue_py.providers.request import WireRequest, wire_request
from tests.adapters.needed import needs
from tests.wire.hostile import histories

needs("messages", "openai", "anthropic", "google.genai")

from anthropic.types import MessageParam, TextBlockParam
from google.genai import types
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

from tests.adapters.messages.test_client_types import assert_declared
from tests.effort import examples

SYSTEM: TypeAdapter[Any] = TypeAdapter(str | list[TextBlockParam])
DECLARED: dict[str, TypeAdapter[Any]] = {
    "anthropic": TypeAdapter(MessageParam),
    "openai-chat": TypeAdapter(ChatCompletionMessageParam),
    "openai-responses": TypeAdapter(ResponseInputItemParam),
}


def without_bytes(value: Any) -> Any:
    """Return a content without what of it is base64."""
    if isinstance(value, dict):
        return {key: without_bytes(each) for key, each in value.items() if key not in ("data", "thoughtSignature")}
    return [*map(without_bytes, value)] if isinstance(value, list) else value


def with_an_id(message: JsonObject) -> JsonObject:
    """Return reasoning with an id, which the type of OpenAI's asks for, and the API and its own Codex do not."""
    return {"id": "rs_1", **message} if message.get("type") == "reasoning" else message


def assert_taken(target: str, sent: WireRequest) -> None:
    """Assert that a client takes the messages and the system prompt as they are."""
    system = [] if sent.system is None else [sent.system]
    if target == "gemini":
        for content in [*sent.messages, *system]:
            found = types.Content.model_validate(content)
            # It prints bytes in another alphabet of base64 than it reads: read again, they are the same.
            printed = found.model_dump(mode="json", by_alias=True, exclude_none=True)
            assert types.Content.model_validate(printed) == found
            assert without_bytes(printed) == without_bytes(content)
        return
    assert_declared(DECLARED[target], [*map(with_an_id, sent.messages)])
    assert_declared(SYSTEM, system)


@pytest.mark.parametrize("target", [*DECLARED, "gemini"])
@examples(300)
@given(messages=histories, model=st.sampled_from([None, "claude-sonnet-4-5", "gpt-5", "gemini-3-pro"]))
def test_any_history_is_sent_as_its_client_declares(target: str, messages: list[JsonObject], model: str | None) -> None:
    said = [Said(each, entry_id=f"e{number}") for number, each in enumerate(messages)]
    assert_taken(target, wire_request(target, said, model=model))
