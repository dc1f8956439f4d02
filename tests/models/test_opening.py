"""What `open_model` takes and refuses, and models of pydantic-ai that were made by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import pytest

from tests.adapters.needed import needs

needs("models", "pydantic_ai", "openai", "anthropic")

from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from flue_py.core.model import Model, ModelRequest
from flue_py.errors import InvalidArgument, MissingExtra, ModelDenied, ModelRefused, ModelUnavailable
from flue_py.models import open_model
from tests.models import servers
from tests.models.servers import KEY, Answer
from tests.values import existing

ASKED: Any = {"role": "user", "content": "Why is the build red?"}
REQUEST = ModelRequest((ASKED,), system="Be brief.", max_tokens=50)


def answering(*parts: Any, **more: Any) -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse(parts=list(parts), **more))


def test_a_name_is_a_model_with_its_limits() -> None:
    model = open_model("anthropic:claude-sonnet-4-5", api_key=KEY)

    assert isinstance(model, Model)
    assert (model.name, model.provider) == ("claude-sonnet-4-5", "anthropic")
    assert (model.context_window, model.max_output_tokens) == (200_000, 64_000)
    assert repr(model) == "<model 'claude-sonnet-4-5' of anthropic>"


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("openai:gpt-5", 400_000, 128_000),
        ("openai:gpt-5-2025-08-07", 400_000, 128_000),
        ("openai-chat:gpt-4o-mini", 128_000, 16_384),
        ("openai:gpt-nobody-knows", None, None),
    ],
)
def test_limits_are_those_that_are_known(name: str, window: int | None, output: int | None) -> None:
    model = open_model(name, api_key=KEY)

    assert (model.context_window, model.max_output_tokens) == (window, output)


def test_limits_that_are_given_count() -> None:
    model = open_model("openai:gpt-5", api_key=KEY, context_window=8000, max_output_tokens=500)

    assert (model.context_window, model.max_output_tokens) == (8000, 500)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"model": "gpt-5"}, "model: 'gpt-5' is not a model"),
        ({"model": "nobody:gpt-5"}, "model: 'nobody:gpt-5' is not a model"),
        ({"model": ""}, "model: '' is not a model"),
        ({"model": None}, "model: should be a name"),
        ({"model": 5}, "model: should be a name"),
        ({"settings": "fast"}, "settings: "),
        ({"context_window": 0}, "context_window: "),
        ({"max_output_tokens": 1.5}, "max_output_tokens: "),
        ({"base_url": 5}, "base_url: should be a string or None, not one of type int"),
        ({"api_key": [KEY]}, "api_key: should be a string or None, not one of type list"),
        ({"model": TestModel()}, "api_key: is for a model that is named"),
    ],
)
def test_arguments_that_cannot_be_name_the_argument(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument, match=field) as caught:
        open_model(**{"model": "openai:gpt-5", "api_key": KEY, **wrong})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "variable"), [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:x", "ANTHROPIC_API_KEY")]
)
def test_without_a_key_it_says_which(monkeypatch: pytest.MonkeyPatch, name: str, variable: str) -> None:
    monkeypatch.delenv(variable, raising=False)

    with pytest.raises(ModelDenied, match=variable):
        open_model(name)


def test_a_key_is_taken_from_the_environment_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "key-of-an-odd-form-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with servers.provider() as provider:
        provider.answers = [servers.openai_error(401, f"Incorrect API key provided: {key}", "x", "invalid_api_key")]
        model = open_model("openai:gpt-5", base_url=provider.url)

        with pytest.raises(ModelDenied) as caught:
            anyio.run(model.complete, REQUEST)

    assert "[hidden]" in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_key_that_no_client_shows_is_hidden_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "key-of-an-odd-form-0123456789"

    def fail(messages: Any, info: Any) -> ModelResponse:
        raise ModelAPIError("m", f"{key} is not known here")

    # Clients of some providers keep their key where nobody finds it.
    failing = FunctionModel(fail)
    monkeypatch.setattr("pydantic_ai.models.infer_model", lambda *args: failing)
    with pytest.raises(ModelUnavailable, match=r"\[hidden\]") as caught:
        anyio.run(open_model("google:gemini", api_key=key).complete, REQUEST)
    assert key not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_provider_that_needs_another_package_says_which() -> None:
    with pytest.raises(MissingExtra, match="mistral` package"):
        open_model("mistral:mistral-large-latest", api_key=KEY)


def test_the_room_is_imported_without_its_packages() -> None:
    code = "import sys, flue_py.models; assert flue_py.models.FunctionModel; print('pydantic_ai' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@pytest.mark.parametrize("stream", [False, True])
def test_a_test_model_answers(stream: bool) -> None:
    reply = anyio.run(open_model(TestModel(custom_output_text="Green."), stream=stream).complete, REQUEST)

    assert reply.text == "Green."
    assert reply.usage is not None
    assert reply.messages[0]["model"] == "test"


def test_a_function_sees_what_was_asked() -> None:
    seen: list[Any] = []

    def answer(messages: Any, info: Any) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse(parts=[TextPart("Green.")])

    tool: Any = {"name": "read", "parameters": {"type": "object"}}
    request = ModelRequest((ASKED,), system="Be brief.", tools=(tool,), max_tokens=50)

    assert anyio.run(open_model(FunctionModel(answer), settings={"temperature": 0}).complete, request).text == "Green."
    [(messages, info)] = seen
    assert [part.content for part in messages[0].parts] == ["Be brief.", "Why is the build red?"]
    assert [each.name for each in info.function_tools] == ["read"]
    assert info.model_settings["max_tokens"] == 50
    assert info.model_settings["temperature"] == 0


def test_a_request_that_is_none_is_refused() -> None:
    wrong: Any = [ASKED]

    with pytest.raises(InvalidArgument, match="request: should be a ModelRequest"):
        anyio.run(open_model(TestModel()).complete, wrong)


def test_an_error_of_a_program_is_no_failure_of_a_model() -> None:
    def fail(messages: Any, info: Any) -> ModelResponse:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        anyio.run(open_model(FunctionModel(fail)).complete, REQUEST)


def test_an_error_of_use_is_a_refused_request() -> None:
    def fail(messages: Any, info: Any) -> ModelResponse:
        raise UserError("This model takes no pictures.")

    with pytest.raises(ModelRefused, match="takes no pictures"):
        anyio.run(open_model(FunctionModel(fail)).complete, REQUEST)


def test_an_answer_that_ends_in_an_error_is_unavailable_and_paid_for() -> None:
    model = open_model(answering(usage=RequestUsage(input_tokens=7), finish_reason="error", provider_response_id="r1"))

    with pytest.raises(ModelUnavailable) as caught:
        anyio.run(model.complete, REQUEST)

    call = existing(caught.value.call)
    assert (call["input"], call["callId"]) == (7, "r1")


def test_each_model_that_was_paid_for_is_a_call_of_its_own() -> None:
    first = answering(TextPart(""), usage=RequestUsage(input_tokens=7, output_tokens=1))
    used = RequestUsage(input_tokens=9, output_tokens=2)
    second = answering(TextPart("Green."), usage=used, provider_response_id="r2")

    def is_empty(answer: ModelResponse) -> bool:
        return not answer.text

    both = FallbackModel(first, second, fallback_on=is_empty)

    reply = anyio.run(open_model(both).complete, REQUEST)

    assert reply.text == "Green."
    assert [(call["input"], call["callId"]) for call in reply.paid_calls] == [(7, "r2:attempt-0"), (9, "r2")]
    assert reply.usage is not None
    assert (reply.usage["input"], reply.usage["output"]) == (16, 3)


def test_where_all_models_fail_the_last_one_says_why() -> None:
    with servers.provider() as provider:
        provider.answers = [
            servers.openai_error(500, "Failed.", "server_error"),
            servers.openai_error(401, f"Incorrect API key provided: {KEY}", "x", "invalid_api_key"),
        ]
        own = OpenAIProvider(base_url=provider.url, api_key=KEY)
        each = [OpenAIChatModel("gpt-5", provider=own, settings={"max_retries": 0}) for _ in range(2)]
        model = open_model(WrapperModel(FallbackModel(*each)))

        with pytest.raises(ModelDenied) as caught:
            anyio.run(model.complete, REQUEST)

    assert KEY not in repr(caught.value) + repr(model)
    assert caught.value.__cause__ is None


def test_a_model_of_ones_own_keeps_its_provider_and_is_closed_after_each_call() -> None:
    with servers.provider() as provider:
        provider.answers = [Answer(servers.completion("one")), Answer(servers.completion("two"))]
        theirs = OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=provider.url, api_key=KEY))
        model = open_model(theirs)

        assert [anyio.run(model.complete, REQUEST).text for _ in range(2)] == ["one", "two"]
        assert theirs.client.is_closed()
