"""What providers say when they fail, in their own words, and what it means. Each is raised as pydantic-ai raises it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import anyio
import pytest

from tests.adapters.needed import needs

needs("models", "pydantic_ai", "openai", "anthropic")

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    RunCancelled,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from flue_py.core.model import ModelRequest
from flue_py.errors import ContextOverflow, ModelAborted, ModelError, ModelRefused, ModelUnavailable, RateLimited
from flue_py.models import Secrets, open_model

REQUEST = ModelRequest(({"role": "user", "content": "Why is the build red?"},))


def raised(error: Exception) -> Any:
    def fail(messages: Any, info: Any) -> ModelResponse:
        raise error

    with pytest.raises(ModelError) as caught:
        anyio.run(open_model(FunctionModel(fail)).complete, REQUEST)
    assert caught.value.__cause__ is error
    return caught.value


def http(status: int, message: str, kind: Any = ModelRequestRejectedError, **more: Any) -> ModelHTTPError:
    body = {"error": {"message": message, "code": status}}
    return ModelHTTPError.for_category(kind, status_code=status, model_name="m", body=body, **more)


OVERFLOWS = [
    # Gemini
    ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1_196_265, 1_048_575),
    ("The input token count exceeds the maximum number of tokens allowed 1048576.", None, 1_048_576),
    # OpenRouter, vLLM
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140013 tokens (13",
        140_013,
        131_072,
    ),
    (
        "'max_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104",
        2104,
        4096,
    ),
    # GitHub Copilot, xAI, Mistral
    ("prompt token count of 132000 exceeds the limit of 128000", 132_000, 128_000),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537_812, 131_072),
    ("Prompt contains 40125 tokens, too large for model with 32768 maximum context length", None, 32_768),
    # llama.cpp, LM Studio, Groq, Bedrock, Kimi, MiniMax
    ("the request (9216 tokens) exceeds the available context size (8192 tokens), try increasing it", 9216, 8192),
    ("tokens to keep from the initial prompt is greater than the context length", None, None),
    ("Please reduce the length of the messages or completion.", None, None),
    ("Input is too long for requested model.", None, None),
    ("Your request exceeded model token limit: 262144", None, None),
    ("invalid params, context window exceeds limit", None, None),
    # Anthropic and Bedrock, OpenAI, Vertex
    ("Request size exceeds model context window", None, None),
    ("Input Tokens Exceeded: Number of input tokens exceeds maximum length", None, None),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
        300_000,
        272_000,
    ),
    ("the input token count is 1100000 but model only supports up to 1048576.", 1_100_000, 1_048_576),
    # vLLM, SGLang, LM Studio, Ollama, TGI
    ("The decoder prompt (length 88049) is longer than the maximum model length of 32768.", 88_049, 32_768),
    (
        "You passed 5001 input tokens and requested 9 output tokens. However, the model's context length is only 4096",
        5001,
        4096,
    ),
    ("The input (210000 tokens) is longer than the model's context length (200000 tokens).", 210_000, 200_000),
    ("Input length (210000 tokens) exceeds the maximum allowed length (200000 tokens).", 210_000, 200_000),
    (
        "keep the first 9000 tokens when context the overflows. However, the model has a context length of only 4096",
        9000,
        4096,
    ),
    ("prompt too long; exceeded max context length by 2049 tokens", None, None),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 9 `max_new_tokens`",
        5000,
        4096,
    ),
    # DashScope, GLM, Cohere, Cerebras, Poolside
    ("Range of input length should be [1, 30720]", None, 30_720),
    ("Prompt exceeds max length", None, None),
    ("total number of tokens in the prompt cannot exceed 4081 - received 5000.", 5000, 4081),
    ("Please reduce the length of the messages. Current length is 9000 while limit is 8192", 9000, 8192),
    ("Input length 300000 exceeds the maximum allowed input length of 262144 tokens", 300_000, 262_144),
]


@pytest.mark.parametrize(("message", "tokens", "window"), OVERFLOWS)
def test_an_overflow_is_known_by_what_its_provider_says(message: str, tokens: int | None, window: int | None) -> None:
    error = raised(http(400, message))

    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.window) == (tokens, window)
    assert message[:60] in str(error)


@pytest.mark.parametrize("status", [500, 413])
def test_an_overflow_under_another_status_is_one_too(status: int) -> None:
    words = "the request (9216 tokens) exceeds the available context size (8192 tokens)"

    assert isinstance(raised(http(status, words, ModelServerError if status == 500 else None)), ContextOverflow)


NO_OVERFLOWS = [
    (http(429, "Too many tokens, please wait before trying again.", ModelRateLimitError), RateLimited),
    (http(429, "prompt is too long for your tier", ModelRateLimitError), RateLimited),
    (http(400, "max_tokens is too large: 200000. This model supports at most 128000 completion tokens."), ModelRefused),
    (http(400, "messages: roles must alternate"), ModelRefused),
    (http(500, "Internal server error", ModelServerError), ModelUnavailable),
    (http(418, "I am a teapot", None), ModelUnavailable),
    (ModelAPIError("m", "grpc: connection reset"), ModelUnavailable),
    (UnexpectedModelBehavior("Invalid response", "{"), ModelUnavailable),
    (ConnectionResetError("reset by peer"), ModelUnavailable),
    (TimeoutError(), ModelUnavailable),
    (ContentFilterError("Content filter triggered."), ModelRefused),
    (RunCancelled("The run was cancelled."), ModelAborted),
    (ExceptionGroup("all failed", [http(500, "x", ModelServerError), http(400, "y")]), ModelRefused),
]


@pytest.mark.parametrize(("error", "kind"), NO_OVERFLOWS)
def test_other_failures_are_what_can_be_done_about_them(error: Exception, kind: type[ModelError]) -> None:
    assert type(raised(error)) is kind


def test_how_long_to_wait_is_what_the_provider_says() -> None:
    limited = http(429, "slow down", ModelRateLimitError, headers={"Retry-After": "30"})

    assert raised(limited).retry_after == 30
    assert "call again after 30 seconds" in str(raised(limited))
    assert "wait, then call again" in str(raised(http(429, "slow down", ModelRateLimitError)))


def test_long_words_of_a_provider_are_cut() -> None:
    assert len(str(raised(http(400, "far too much\n" * 1000)))) < 700


def test_a_cost_that_was_reported_and_calls_of_an_hour_are_kept() -> None:
    used = RequestUsage(
        input_tokens=100,
        output_tokens=10,
        cache_write_tokens=30,
        cache_write_1h_tokens=20,
        output_reasoning_tokens=4,
        cost=Decimal("0.0125"),
    )
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("Green.")], usage=used))

    assert anyio.run(open_model(model).complete, REQUEST).usage == {
        "input": 70, "output": 10, "cacheWrite": 30, "totalTokens": 110, "cacheWrite1h": 20, "reasoning": 4,
        "cost": {"total": 0.0125},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("the key my-own-key-123 is wrong", "the key [hidden] is wrong"),
        ("Incorrect API key provided: sk-proj-abc123***********wxyz.", "Incorrect API key provided: [hidden]."),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [hidden]"),
        ("key AIzaSyA1234567890abcdefghij", "key [hidden]"),
        ("sk-ip the rest of the task", "sk-ip the rest of the task"),
        ("short is no key", "short is no key"),
    ],
)
def test_keys_and_what_looks_like_one_are_hidden(text: str, hidden: str) -> None:
    secrets = Secrets(["my-own-key-123", "my-own-key-12", "short"])

    assert secrets.hidden(text) == hidden
    assert "key-1" not in repr(secrets)
