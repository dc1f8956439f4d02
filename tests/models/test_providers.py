"""Models of pydantic-ai against providers on the loopback interface, which answer in the providers' own forms."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.adapters.needed import needs

needs("models", "pydantic_ai", "openai", "anthropic")

from pydantic_ai.models import infer_model
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from flue_py import errors
from flue_py.core.model import Model, ModelReply, ModelRequest
from flue_py.models import open_model
from tests.models import servers
from tests.models.servers import KEY, Answer, Provider

CHAT, RESPONSES, ANTHROPIC = "openai-chat:gpt-5", "openai:gpt-5", "anthropic:claude-sonnet-5"
ALL = (CHAT, RESPONSES, ANTHROPIC)
ASKED: Any = {"role": "user", "content": "Why is the build red?"}
TOOL: Any = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
OPENAI_USAGE = {"input": 20, "output": 30, "cacheRead": 100, "totalTokens": 150, "reasoning": 20}
ANTHROPIC_USAGE = {
    "input": 20, "output": 30, "cacheRead": 100, "cacheWrite": 40, "totalTokens": 190, "cacheWrite1h": 30,
}  # fmt: skip
USAGE: dict[str, Any] = {CHAT: OPENAI_USAGE, RESPONSES: OPENAI_USAGE, ANTHROPIC: ANTHROPIC_USAGE}
PROVIDERS: dict[str, Any] = {"openai-chat": OpenAIProvider, "openai": OpenAIProvider, "anthropic": AnthropicProvider}
WHOLE_TEXT = "The log says TIMEOUT."
CALL_ID = {CHAT: "chatcmpl-1", RESPONSES: "resp_1", ANTHROPIC: "msg_1"}
WHOLE = {CHAT: servers.completion, RESPONSES: servers.response, ANTHROPIC: servers.message}
STREAM = {CHAT: servers.chunks, RESPONSES: servers.response_events, ANTHROPIC: servers.message_events}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with servers.provider() as running:
        yield running


def opened(name: str, provider: Provider, *, stream: bool | None = False, **more: Any) -> Model:
    path = "" if name == ANTHROPIC else "/v1"
    return open_model(name, api_key=KEY, base_url=provider.url + path, stream=stream, **more)


def ask(model: Model, *messages: Any, **more: Any) -> ModelReply:
    # Of Anthropic an answer that may be long is streamed in any case.
    return anyio.run(model.complete, ModelRequest(messages or (ASKED,), **{"max_tokens": 50, **more}))


def failure(model: Model, kind: type[errors.ModelError], **more: Any) -> Any:
    with pytest.raises(kind) as caught:
        ask(model, **more)
    assert type(caught.value) is kind
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(model)
    assert KEY not in shown
    return caught.value


# --- What is sent -----------------------------------------------------------------------------------------------------


def test_a_request_of_chat_completions_has_all_that_was_asked(provider: Provider) -> None:
    provider.answers = [Answer(servers.completion())]
    called = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "build.log"}}
    messages = (
        ASKED,
        {"role": "assistant", "content": [{"type": "text", "text": "Reading."}, called]},
        {"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": "TIMEOUT"},
        {"role": "user", "content": "Sum it up."},
    )

    ask(opened(CHAT, provider), *messages, system="Be brief.", tools=(TOOL,), max_tokens=50)

    sent = provider.request
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert sent["messages"][0]["content"] == "Be brief."
    assert sent["messages"][2]["tool_calls"][0]["id"] == sent["messages"][3]["tool_call_id"] == "t1"
    assert sent["max_completion_tokens"] == 50
    assert sent["tools"][0]["function"]["name"] == "read"
    assert sent["tools"][0]["function"]["parameters"]["required"] == ["path"]


def test_a_request_of_anthropic_has_all_that_was_asked(provider: Provider) -> None:
    provider.answers = [Answer(servers.message())]

    ask(opened(ANTHROPIC, provider), system="Be brief.", tools=(TOOL,), max_tokens=50)

    sent = provider.request
    assert sent["system"] == "Be brief."
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Why is the build red?"}]}]
    assert sent["max_tokens"] == 50
    assert sent["tools"][0]["input_schema"] == TOOL["parameters"]


def test_settings_go_with_each_call(provider: Provider) -> None:
    provider.answers = [Answer(servers.completion())]

    ask(opened(CHAT, provider, settings={"seed": 5, "max_tokens": 9}), max_tokens=50)

    assert provider.request["seed"] == 5
    assert provider.request["max_completion_tokens"] == 50


# --- What comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_an_answer_has_its_text_its_usage_and_its_call(provider: Provider, name: str, stream: bool) -> None:
    provider.answers = [Answer(STREAM[name]("The log says", " TIMEOUT.") if stream else WHOLE[name]())]
    model = opened(name, provider, stream=stream)

    reply = ask(model)

    assert reply.text == "The log says TIMEOUT."
    assert reply.stop_reason == "stop"
    assert reply.usage == USAGE[name]
    [call] = reply.paid_calls
    served = "claude-sonnet-5-20260101" if name == ANTHROPIC else "gpt-5-2025-08-07"
    assert call == {**USAGE[name], "provider": model.provider, "model": served, "callId": CALL_ID[name]}
    assert len(provider.asked) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_an_empty_answer_is_a_reply_that_was_paid_for(provider: Provider, name: str, stream: bool) -> None:
    provider.answers = [Answer(STREAM[name]() if stream else WHOLE[name](None))]

    reply = ask(opened(name, provider, stream=stream))

    assert reply.text == ""
    assert reply.messages[0]["content"] == []
    assert reply.usage == USAGE[name]


def test_calls_of_declared_tools_are_returned(provider: Provider) -> None:
    called = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": '{"path": "build.log"}'}}
    provider.answers = [
        Answer(servers.completion(None, message={"tool_calls": [called]}, finish_reason="tool_calls")),
        Answer(
            servers.message(content=[{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "build.log"}}])
        ),
    ]
    expected = [{"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "build.log"}}]

    for name in (CHAT, ANTHROPIC):
        reply = ask(opened(name, provider), tools=(TOOL,))
        assert reply.messages[0]["content"] == expected
        assert reply.text == ""


def test_an_answer_that_is_cut_off_at_its_limit_says_so(provider: Provider) -> None:
    provider.answers = [
        Answer(servers.completion(finish_reason="length")),
        Answer(servers.message(stop_reason="max_tokens")),
        Answer(servers.response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
    ]

    for name in (CHAT, ANTHROPIC, RESPONSES):
        assert ask(opened(name, provider)).stop_reason == "length"


def test_an_answer_of_anthropic_is_streamed_unless_it_is_said_otherwise(provider: Provider) -> None:
    provider.answers = [Answer(servers.message_events("Green.")), Answer(servers.completion("Green."))]

    assert [ask(opened(name, provider, stream=None)).text for name in (ANTHROPIC, CHAT)] == ["Green.", "Green."]
    assert [body["stream"] for _, body in provider.asked] == [True, False]


def test_a_long_answer_of_anthropic_is_streamed_behind_the_scenes(provider: Provider) -> None:
    provider.answers = [Answer(servers.message_events("Green."))]

    assert ask(opened(ANTHROPIC, provider), max_tokens=None).text == "Green."
    assert provider.request["max_tokens"] == 128_000


def test_usage_that_was_not_reported_is_unknown(provider: Provider) -> None:
    provider.answers = [Answer({**servers.completion(), "usage": None})]

    reply = ask(opened(CHAT, provider))

    assert reply.usage is None
    assert reply.paid_calls == ({"provider": "openai", "model": "gpt-5-2025-08-07", "callId": "chatcmpl-1"},)


@pytest.mark.parametrize("name", ALL)
def test_a_model_answers_in_one_event_loop_after_the_other(provider: Provider, name: str) -> None:
    provider.answers = [Answer(WHOLE[name](text)) for text in ("one", "two")]
    model = opened(name, provider)

    assert [ask(model).text, ask(model).text] == ["one", "two"]


@pytest.mark.parametrize("name", ALL)
def test_a_model_answers_on_trio(provider: Provider, name: str) -> None:
    provider.answers = [Answer(WHOLE[name]()), Answer(hangs=True)]
    model = opened(name, provider)

    assert anyio.run(model.complete, ModelRequest((ASKED,), max_tokens=50), backend="trio").text == WHOLE_TEXT
    with pytest.raises(errors.ModelUnavailable):
        anyio.run(model.complete, ModelRequest((ASKED,), max_tokens=50, timeout=0.01), backend="trio")


def test_a_model_answers_several_tasks_at_once(provider: Provider) -> None:
    provider.answers = [Answer(servers.completion()) for _ in range(4)]
    model = opened(CHAT, provider)
    texts: list[str] = []

    async def one() -> None:
        texts.append((await model.complete(ModelRequest((ASKED,)))).text)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one)

    anyio.run(all_of_them)
    assert texts == ["The log says TIMEOUT."] * 4


# --- What goes wrong --------------------------------------------------------------------------------------------------

OVERFLOWS = [
    (
        CHAT,
        servers.openai_error(
            400,
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 tokens."
            " Please reduce the length of the messages.",
            "invalid_request_error",
            "context_length_exceeded",
        ),
        130_512,
        128_000,
    ),
    (
        RESPONSES,
        servers.openai_error(
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "invalid_request_error",
            "context_length_exceeded",
        ),
        None,
        None,
    ),
    (
        CHAT,
        servers.openai_error(
            429,
            "Request too large for gpt-5 in organization org-1 on tokens per min (TPM): Limit 30000, Requested 90000."
            " The input or output tokens must be reduced in order to run successfully.",
            "tokens",
            "rate_limit_exceeded",
        ),
        None,
        None,
    ),
    (
        ANTHROPIC,
        servers.anthropic_error(400, "invalid_request_error", "prompt is too long: 210032 tokens > 200000 maximum"),
        210_032,
        200_000,
    ),
    (
        ANTHROPIC,
        servers.anthropic_error(
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or"
            " `max_tokens` and try again",
        ),
        190_000,
        200_000,
    ),
    (ANTHROPIC, servers.anthropic_error(413, "request_too_large", "Request exceeds the maximum size"), None, None),
]


@pytest.mark.parametrize(("name", "answer", "tokens", "window"), OVERFLOWS)
def test_an_overflow_says_how_much_is_too_much(
    provider: Provider, name: str, answer: Answer, tokens: int | None, window: int | None
) -> None:
    provider.answers = [answer]
    model = opened(name, provider)

    error = failure(model, errors.ContextOverflow)

    assert (error.tokens, error.window) == (tokens, window)
    assert (error.provider, error.model, error.call) == (model.provider, model.name, None)
    assert error.__cause__ is not None
    assert len(provider.asked) == 1


@pytest.mark.parametrize("name", ALL)
def test_a_rate_limit_says_how_long_to_wait_and_nothing_is_sent_twice(provider: Provider, name: str) -> None:
    if name == ANTHROPIC:
        told = (
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 50 requests per minute.",
        )
        provider.answers = [servers.anthropic_error(429, *told, retry_after="7"), servers.anthropic_error(429, *told)]
    else:
        words = "Rate limit reached for gpt-5 in organization org-1 on requests per min (RPM): Limit 3, Used 3."
        provider.answers = [
            servers.openai_error(429, words, "requests", "rate_limit_exceeded", retry_after_ms="7000"),
            servers.openai_error(429, words, "requests", "rate_limit_exceeded"),
        ]
    model = opened(name, provider)

    assert failure(model, errors.RateLimited).retry_after == 7
    assert failure(model, errors.RateLimited).retry_after is None
    assert len(provider.asked) == 2


DENIED = [
    (
        CHAT,
        servers.openai_error(401, f"Incorrect API key provided: {KEY}.", "invalid_request_error", "invalid_api_key"),
    ),
    (
        CHAT,
        servers.openai_error(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            "insufficient_quota",
            "insufficient_quota",
        ),
    ),
    (
        RESPONSES,
        servers.openai_error(
            400, "The requested model 'gpt-5' does not exist.", "invalid_request_error", "model_not_found"
        ),
    ),
    (ANTHROPIC, servers.anthropic_error(401, "authentication_error", f"invalid x-api-key: {KEY}")),
    (ANTHROPIC, servers.anthropic_error(404, "not_found_error", "model: claude-sonnet-5")),
    (
        ANTHROPIC,
        servers.anthropic_error(
            400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
        ),
    ),
]


@pytest.mark.parametrize(("name", "answer"), DENIED)
def test_an_account_that_may_not_is_for_the_setup(provider: Provider, name: str, answer: Answer) -> None:
    provider.answers = [answer]

    failure(opened(name, provider), errors.ModelDenied)


REFUSED = [
    (CHAT, Answer(servers.completion(None, message={"refusal": "I cannot help with that."})), True),
    (CHAT, Answer(servers.completion("I can", finish_reason="content_filter")), True),
    (
        RESPONSES,
        Answer(servers.response(output=[servers.item([{"type": "refusal", "refusal": "I cannot help with that."}])])),
        True,
    ),
    (ANTHROPIC, Answer(servers.message(None, stop_reason="refusal")), True),
    (CHAT, servers.openai_error(400, "Invalid value: 'user2'.", "invalid_request_error", "invalid_value"), False),
    (
        ANTHROPIC,
        servers.anthropic_error(400, "invalid_request_error", "Output blocked by content filtering policy"),
        False,
    ),
]


@pytest.mark.parametrize(("name", "answer", "is_paid"), REFUSED)
def test_a_refusal_says_why_and_what_it_cost(provider: Provider, name: str, answer: Answer, is_paid: bool) -> None:
    provider.answers = [answer]
    model = opened(name, provider)

    error = failure(model, errors.ModelRefused)

    if is_paid:
        assert error.call["callId"] == CALL_ID[name]
        assert {kind: error.call[kind] for kind in USAGE[name]} == USAGE[name]
    else:
        assert error.call is None


UNAVAILABLE = [
    (CHAT, servers.openai_error(500, "The server had an error while processing your request.", "server_error")),
    (RESPONSES, servers.openai_error(503, "The engine is currently overloaded.", "service_unavailable_error")),
    (RESPONSES, Answer(servers.response(None, status="failed", error={"code": "server_error", "message": "Failed."}))),
    (ANTHROPIC, servers.anthropic_error(500, "api_error", "Internal server error")),
    (ANTHROPIC, servers.anthropic_error(529, "overloaded_error", "Overloaded")),
    (CHAT, Answer(b"<html>Bad gateway</html>", 502, {"Content-Type": "text/html"})),
    (CHAT, Answer(b"<html>Not an answer</html>", headers={"Content-Type": "text/html"})),
    (ANTHROPIC, Answer(b"{", headers={"Content-Type": "application/json"})),
    (CHAT, Answer(servers.completion(), promised=10)),
    (ANTHROPIC, Answer(servers.message(), promised=10)),
]


@pytest.mark.parametrize(("name", "answer"), UNAVAILABLE)
def test_a_provider_that_fails_is_unavailable(provider: Provider, name: str, answer: Answer) -> None:
    provider.answers = [answer]

    assert failure(opened(name, provider), errors.ModelUnavailable).__cause__ is not None


@pytest.mark.parametrize("name", ALL)
def test_a_provider_that_is_not_there_is_unavailable(name: str) -> None:
    with servers.provider() as gone:
        model = opened(name, gone)

    failure(model, errors.ModelUnavailable)


@pytest.mark.parametrize("promised", [0, 10])
@pytest.mark.parametrize("name", ALL)
def test_a_stream_that_breaks_off_is_no_answer(provider: Provider, name: str, promised: int) -> None:
    provider.answers = [Answer(STREAM[name]("The log", ends=False), promised=promised)]

    error = failure(opened(name, provider, stream=True), errors.ModelUnavailable)

    if name == ANTHROPIC:  # it says at the beginning what the request costs
        assert error.call == {
            **ANTHROPIC_USAGE, "output": 1, "totalTokens": 161, "provider": "anthropic",
            "model": "claude-sonnet-5-20260101", "callId": "msg_1",
        }  # fmt: skip
    else:
        assert error.call is None


@pytest.mark.parametrize("name", ALL)
def test_an_error_within_a_stream_is_one_like_any_other(provider: Provider, name: str) -> None:
    if name == ANTHROPIC:
        told: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    else:
        told = {"error": {"message": "Overloaded", "type": "server_error", "code": "server_is_overloaded"}}
        if name == RESPONSES:
            told = {
                "type": "error", "code": "server_error", "message": "Overloaded", "param": None, "sequence_number": 9,
            }  # fmt: skip
    broken = STREAM[name]("The log", ends=False) + servers.events(told, named=name != CHAT)
    provider.answers = [Answer(broken)]

    failure(opened(name, provider, stream=True), errors.ModelUnavailable)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_a_provider_that_hangs_is_left_in_time(provider: Provider, name: str, stream: bool) -> None:
    provider.answers = [Answer(hangs=True), Answer(WHOLE[name]())]
    model = opened(name, provider, stream=stream)

    error = failure(model, errors.ModelUnavailable, timeout=0.01)

    # Whichever is first: our own limit, or that of the client, which has the same.
    assert "within 0.01 seconds" in str(error) or "timed out" in str(error)
    assert error.__cause__ is not None


@pytest.mark.parametrize("name", ALL)
def test_who_is_cancelled_stays_cancelled(provider: Provider, name: str) -> None:
    provider.answers = [Answer(hangs=True), Answer(WHOLE[name]())]
    base_url = provider.url if name == ANTHROPIC else f"{provider.url}/v1"
    theirs: Any = infer_model(name, lambda named: PROVIDERS[named](api_key=KEY, base_url=base_url))
    model = open_model(theirs, stream=False)

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(model.complete, ModelRequest((ASKED,), max_tokens=50))
                await anyio.to_thread.run_sync(provider.reached.wait)
                scope.cancel()
        assert scope.cancelled_caught
        assert theirs.client.is_closed()
        assert (await model.complete(ModelRequest((ASKED,), max_tokens=50))).text == "The log says TIMEOUT."

    anyio.run(leave)


def test_a_pause_is_no_answer(provider: Provider) -> None:
    provider.answers = [Answer(servers.message(stop_reason="pause_turn"))]

    assert failure(opened(ANTHROPIC, provider), errors.ModelAborted).call["callId"] == "msg_1"
