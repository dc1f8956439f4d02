"""Contexts as objects of pydantic-ai and LangChain, and back."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest

from flue_py import InvalidEntry
from flue_py.adapters.messages import from_langchain, from_pydantic_ai, to_langchain, to_pydantic_ai
from flue_py.core.json import JsonObject
from flue_py.core.messages import check_complete, validate_message
from flue_py.core.usage import read_reported
from tests.adapters.messages.contexts import EVERYTHING, PNG, TRANSCRIPTS, context_of
from tests.adapters.needed import needs

needs("messages", "pydantic_ai", "langchain_core")

from langchain_core import messages as lc
from pydantic_ai import Agent
from pydantic_ai import messages as pai
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

KINDS = ("text", "thinking", "toolCall", "image", "file")


def told(messages: list[JsonObject]) -> list[tuple[Any, ...]]:
    """Return who said what in a list, whether a text is a string or a part."""
    found = []
    for message in messages:
        content: Any = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found.append((message["role"], message.get("toolCallId"), message.get("isError"), parts))
    return found


def test_a_context_becomes_requests_and_answers() -> None:
    history, notes = to_pydantic_ai(EVERYTHING).messages, to_pydantic_ai(EVERYTHING).notes
    assert notes == ()
    assert [type(each).__name__ for each in history] == [
        *["ModelRequest", "ModelResponse"] * 3, "ModelRequest",
    ]  # fmt: skip
    first, answer, results = history[:3]
    assert [part.part_kind for part in first.parts] == ["system-prompt", "user-prompt"]
    assert isinstance(answer, pai.ModelResponse)
    assert answer.timestamp == datetime.fromtimestamp(1_790_000_001, UTC)
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens, answer.usage.output_tokens) == (120, 100, 8)
    assert (answer.model_name, answer.provider_name, answer.finish_reason) == ("large-1", "anthropic", "tool_call")
    assert answer.parts[0] == pai.ThinkingPart("Look first.", signature="c2ln", provider_name="anthropic")
    failed, shown = results.parts
    assert isinstance(failed, pai.ToolReturnPart)
    assert isinstance(shown, pai.ToolReturnPart)
    assert (failed.outcome, failed.tool_name, failed.content) == ("failed", "read", "TIMEOUT")
    assert shown.content == ["a", pai.BinaryContent(data=b64decode(PNG), media_type="image/png")]


@pytest.mark.parametrize("name", ["", *TRANSCRIPTS])
def test_what_pydantic_ai_has_a_place_for_comes_back(name: str) -> None:
    made = to_pydantic_ai(context_of(name) if name else EVERYTHING).messages
    checked = pai.ModelMessagesTypeAdapter.validate_json(pai.ModelMessagesTypeAdapter.dump_json(made))
    ours = from_pydantic_ai(checked)
    assert ours.notes == ()
    for message in ours.messages:
        validate_message(message)
        check_complete(message)
    again = from_pydantic_ai(to_pydantic_ai(ours).messages)
    assert told(again.messages) == told(ours.messages)
    if not name:
        texts = [part.get("text") for _, _, _, parts in told(ours.messages) for part in parts]
        assert [text for text in texts if text] == [
            "Be brief.", "Why is the build red?", "I look.", "TIMEOUT", "a", "It times out.", "And this?",
            "Ran `ls`\n```\na.py\n```", "A plan.", "Thanks.",
        ]  # fmt: skip
        assert ours.messages[2]["usage"] == {
            "input": 20, "cacheRead": 100, "output": 8, "reasoning": 3, "totalTokens": 128,
        }  # fmt: skip


async def test_an_agent_goes_on_from_a_context() -> None:
    seen: list[pai.ModelMessage] = []

    def answer(messages: list[pai.ModelMessage], info: AgentInfo) -> pai.ModelResponse:
        seen.extend(messages)
        return pai.ModelResponse(parts=[pai.TextPart("done")])

    result = await Agent(FunctionModel(answer)).run("go on", message_history=to_pydantic_ai(EVERYTHING).messages)
    assert result.output == "done"
    assert "TIMEOUT" in str(seen)
    assert told(from_pydantic_ai(result.all_messages()).messages)[-1][3] == [{"type": "text", "text": "done"}]


def test_signatures_stand_where_pydantic_ai_has_those_of_each_provider() -> None:
    summary = [{"type": "summary_text", "text": "hm"}]
    item = json.dumps({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "x"})
    thoughts: list[JsonObject] = [
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "data", "redacted": True},
        {"type": "thinking", "thinking": "hm", "thinkingSignature": item},
    ]
    providers = ["google", "anthropic", "openai"]
    context: list[JsonObject] = [
        {"role": "assistant", "provider": provider, "content": [thought]}
        for provider, thought in zip(providers, thoughts, strict=True)
    ]
    made = [part for message in to_pydantic_ai(context).messages for part in message.parts]
    assert made == [
        pai.ThinkingPart("hm", provider_name="google", provider_details={"thought_signature": "c2ln"}),
        pai.ThinkingPart("", id="redacted_thinking", signature="data", provider_name="anthropic"),
        pai.ThinkingPart("hm", id="rs_1", signature="x", provider_name="openai"),
    ]
    assert [each["content"] for each in from_pydantic_ai(to_pydantic_ai(context).messages).messages] == [
        [thought] for thought in thoughts
    ]


def test_what_has_no_place_in_a_message_of_ours_is_told() -> None:
    request = pai.ModelRequest(parts=[pai.UserPromptPart(["q", pai.CachePoint()])], instructions="Be brief.")
    found = from_pydantic_ai([request, request])
    assert [each["role"] for each in found.messages] == ["system", "user", "user"]
    assert [str(note) for note in found.notes] == ["left out: content 'cache-point' (2 times)"]
    removed = from_langchain([lc.RemoveMessage(id="m")])
    assert [str(note) for note in removed.notes] == ["left out: a message of type 'remove'"]


def test_what_an_agent_asks_again_is_kept() -> None:
    retried = pai.ToolReturnPart("read", "no such file", "c1", outcome="retried")
    again = pai.RetryFeedbackPart("Answer in French.", retry=pai.RetryInfo("model_retry"))
    asked = pai.UserPromptPart(["q", pai.TextContent("tagged"), pai.VideoUrl("https://example.org/a.mp4")])
    found = from_pydantic_ai([
        pai.ModelRequest(parts=[asked]),
        pai.ModelResponse(parts=[pai.ToolCallPart("read", '{"path": "a"}', "c1")]),
        pai.ModelRequest(parts=[retried, again]),
    ])  # fmt: skip
    assert found.notes == ()
    question, call, result, more = found.messages
    assert question["content"] == [
        {"type": "text", "text": "q"},
        {"type": "text", "text": "tagged"},
        {"type": "file", "url": "https://example.org/a.mp4", "mimeType": "video/mp4"},
    ]
    assert call["content"] == [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}]
    assert (result["toolCallId"], result["isError"], result["content"]) == ("c1", True, "no such file")
    assert "Answer in French." in str(more["content"])


def test_blocks_of_a_provider_are_read_as_langchain_reads_them() -> None:
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
    ]
    call = {"id": "c1", "name": "read", "args": {"path": "a"}, "type": "tool_call"}
    answer = lc.AIMessage(blocks, tool_calls=[call], response_metadata={"model_provider": "anthropic"})
    (ours,) = from_langchain([answer]).messages
    assert ours == {
        "role": "assistant",
        "provider": "anthropic",
        "content": [
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}},
        ],
    }


def test_what_a_response_says_of_its_price_comes_along() -> None:
    used: Any = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    step = {"type": "advisor_message", "model": "large", "input_tokens": 7, "output_tokens": 5}
    told: list[tuple[dict[str, Any], tuple[tuple[str, str], ...], int]] = [
        ({"usage": {"speed": "fast", "server_tool_use": {"web_search_requests": 2}}},
         (("speed", "fast"), ("web_searches", "2")), 100),
        ({"usage": {"iterations": [{"type": "message", **used}, step], "service_tier": "batch"}},
         (("processing", "batch"),), 107),
        ({"service_tier": "flex", "token_usage": {"total_tokens": 110}}, (("service_tier", "flex"),), 100),
        ({"performanceConfig": {"latency": "optimized"}, "serviceTier": {"type": "default"}},
         (("latency", "optimized"),), 100),
        ({"service_tier": "default"}, (), 100),
    ]  # fmt: skip
    wrong = []
    for metadata, terms, tokens in told:
        (ours,) = from_langchain([lc.AIMessage("ok", response_metadata=metadata, usage_metadata=used)]).messages
        read = read_reported(ours["usage"])
        if (read.terms, read.totals.input, len(read.steps)) != (terms, tokens, int(tokens > 100)):
            wrong.append((metadata, read))
    usage = RequestUsage(input_tokens=100, output_tokens=10, input_audio_tokens=4)
    answer = pai.ModelResponse([pai.TextPart("ok")], usage=usage, provider_details={"service_tier": "priority"})
    (ours,) = from_pydantic_ai([answer]).messages
    assert read_reported(ours["usage"]).terms == (("input_audio_tokens", "4"), ("service_tier", "priority"))
    assert wrong == []


@pytest.mark.parametrize("convert", [from_pydantic_ai, from_langchain])
def test_what_is_no_message_is_refused(convert: Any) -> None:
    with pytest.raises(InvalidEntry, match=r"messages\[0\]: should be a message of"):
        convert([{"role": "user", "content": "q"}])


@pytest.mark.parametrize("name", ["", *TRANSCRIPTS])
def test_what_langchain_has_a_place_for_comes_back(name: str) -> None:
    made = to_langchain(context_of(name) if name else EVERYTHING)
    checked = lc.messages_from_dict(lc.messages_to_dict(made.messages))
    assert checked == made.messages
    ours = from_langchain(checked)
    for message in ours.messages:
        validate_message(message)
        check_complete(message)
    again = from_langchain(to_langchain(ours).messages)
    assert told(again.messages) == told(ours.messages)
    assert (made.notes, ours.notes) == ((), ()) or name
    if not name:
        assert [type(each).__name__ for each in made.messages] == [
            "SystemMessage", "HumanMessage", "AIMessage", "ToolMessage", "ToolMessage", "AIMessage", "HumanMessage",
            "HumanMessage", "AIMessage", "HumanMessage",
        ]  # fmt: skip
        kept = [each for each in EVERYTHING if each["role"] != "bashExecution"]
        got = [each for number, each in enumerate(ours.messages) if number != 7]
        assert told(got) == told(kept)
        assert ours.messages[2]["usage"] == {
            "input": 20, "output": 8, "cacheRead": 100, "totalTokens": 128, "reasoning": 3,
        }  # fmt: skip


@pytest.mark.parametrize("convert", [to_pydantic_ai, to_langchain])
def test_data_that_is_no_base64_is_left_out_or_kept_as_it_is(convert: Any) -> None:
    broken: JsonObject = {"type": "image", "data": "\u00e9", "mimeType": "image/png"}
    made = convert([{"role": "user", "content": [{"type": "text", "text": "q"}, broken]}])
    assert "q" in str(made.messages)
    assert made.notes or "\u00e9" in str(made.messages)
