"""The model seam: what is refused, what a reply sums up, and models made of functions."""

from __future__ import annotations

import pickle
from typing import Any

import anyio
import pytest

from flue_py import errors
from flue_py.core.model import FunctionModel, Model, ModelReply, ModelRequest
from tests.tables import inputs

ASKED = {"role": "user", "content": "Why is the build red?"}
TOOL = {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}}


def answer(text: str = "The log says TIMEOUT.", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], **more}


@inputs(
    ("wrong", "field"),
    [
        ({"messages": ()}, "messages: is empty"), ({"messages": "hello"}, "messages: should be a tuple"),
        ({"messages": None}, "messages: should be a tuple"),
        ({"messages": (ASKED, "hello")}, r"messages\[1\]: should be an object"),
        ({"messages": ({"content": "hello"},)}, r"messages\[0\]"),
        ({"messages": ({"role": "user", "content": 3},)}, r"messages\[0\].content"),
        ({"system": b"be brief"}, "system: "), ({"tools": TOOL}, "tools: should be a tuple"),
        ({"tools": ({**TOOL, "name": ""},)}, r"tools\[0\].name"),
        ({"tools": (TOOL, TOOL)}, r"tools\[1\].name: 'read' is the name of a tool before it"),
        ({"tools": ({**TOOL, "description": 3},)}, r"tools\[0\].description"),
        ({"tools": ({"name": "read"},)}, r"tools\[0\].parameters"),
        ({"tools": ({**TOOL, "parameters": {"default": {1, 2}}},)}, r"tools\[0\].parameters.default"),
        ({"max_tokens": 0}, "max_tokens: "), ({"max_tokens": True}, "max_tokens: "),
        ({"max_tokens": 1.5}, "max_tokens: "), ({"timeout": 0}, "timeout: "), ({"timeout": float("nan")}, "timeout: "),
        ({"timeout": float("inf")}, "timeout: "), ({"timeout": "10"}, "timeout: "), ({"purpose": ""}, "purpose: "),
        ({"purpose": "two words"}, "purpose: "),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_names_the_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=field):
        ModelRequest(**{"messages": (ASKED,), **wrong})


def test_a_request_takes_lists_and_keeps_tuples() -> None:
    given: Any = [ASKED]
    tools: Any = [TOOL]

    request = ModelRequest(given, system="", tools=tools, max_tokens=1, timeout=0.5, purpose="compaction")

    assert request.messages == (ASKED,)
    assert request.tools == (TOOL,)


@inputs(
    ("wrong", "field"),
    [
        ({"messages": ()}, "messages: is empty"),
        ({"messages": (answer(), ASKED)}, r"messages\[1\].role: should be assistant"),
        ({"messages": ({"role": "assistant", "content": 3},)}, r"messages\[0\].content"),
        ({"calls": {"input": 1}}, "calls: should be a tuple"),
        ({"calls": (None,)}, r"calls\[0\]: should be an object"),
    ],
)
def test_a_reply_that_cannot_be_names_the_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=field):
        ModelReply(**{"messages": (answer(),), **wrong})


def test_a_reply_says_its_text_and_why_it_ends() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    called = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}
    last = {"role": "assistant", "content": [thought, {"type": "text", "text": "Then this."}, called]}

    reply = ModelReply((answer("First."), {"role": "assistant", "content": []}, {**last, "stopReason": "toolUse"}))

    assert reply.text == "First.\nThen this."
    assert reply.stop_reason == "toolUse"
    assert ModelReply((answer(),)).stop_reason is None


def test_without_calls_each_message_is_one() -> None:
    usage = {"input": 10, "output": 5, "reasoning": 2, "totalTokens": 15}
    told = {"usage": usage, "provider": "openai", "model": "gpt-5", "responseId": "resp_1"}

    reply = ModelReply((answer(**told),))

    assert reply.paid_calls == ({**usage, "provider": "openai", "model": "gpt-5", "callId": "resp_1"},)
    assert reply.usage == usage


def test_usage_is_the_sum_of_the_calls() -> None:
    calls = ({"input": 10, "output": 5, "callId": "a"}, {"input": 1, "output": 2, "cacheRead": 4, "callId": "b"})

    reply = ModelReply((answer(usage={"input": 999}),), calls)

    assert reply.paid_calls == calls
    assert reply.usage == {"input": 11, "output": 7, "cacheRead": 4, "totalTokens": 22, "cost": None}


@inputs("unknown", [{}, {"callId": "b"}, {"surely": 7}])
def test_usage_that_is_unknown_is_no_zero(unknown: dict[str, Any]) -> None:
    assert ModelReply((answer(),)).usage is None
    assert ModelReply((answer(usage=unknown),)).usage is None
    assert ModelReply((answer(),), ({"input": 10}, unknown)).usage is None
    assert ModelReply((answer(usage={"input": 0, "output": 0}),)).usage == {"input": 0, "output": 0}


def test_a_sum_that_no_store_can_hold_is_unknown() -> None:
    assert ModelReply((answer(),), ({"input": 2**62}, {"input": 2**62})).usage is None


def test_a_function_is_a_model() -> None:
    def say(request: ModelRequest) -> str:
        return f"{len(request.messages)} messages"

    async def think(request: ModelRequest) -> ModelReply:
        return ModelReply((answer("later", provider="x"),))

    plain = FunctionModel(say, name="words", provider="ours", context_window=8000, max_output_tokens=100)
    waiting = FunctionModel(think)

    assert isinstance(plain, Model)
    assert isinstance(waiting, Model)
    reply = anyio.run(plain.complete, ModelRequest((ASKED,)))
    assert reply.messages == (
        {"role": "assistant", "content": "1 messages", "model": "words", "stopReason": "stop", "provider": "ours"},
    )
    assert reply.usage is None
    assert anyio.run(waiting.complete, ModelRequest((ASKED,))).text == "later"


def test_what_a_function_raises_passes_through() -> None:
    def fail(request: ModelRequest) -> str:
        raise errors.RateLimited("wait", retry_after=3)

    with pytest.raises(errors.RateLimited, match="wait"):
        anyio.run(FunctionModel(fail).complete, ModelRequest((ASKED,)))


@inputs("returned", [None, 3, {"role": "assistant"}, [answer()]])
def test_a_function_that_returns_anything_else_is_refused(returned: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="function: should return"):
        anyio.run(FunctionModel(lambda request: returned).complete, ModelRequest((ASKED,)))


@inputs(
    "wrong",
    [
        {"function": "say"}, {"name": ""}, {"name": None}, {"provider": 3}, {"context_window": 0},
        {"max_output_tokens": "100"},
    ],
)  # fmt: skip
def test_a_function_model_that_cannot_be_names_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(wrong))):
        FunctionModel(**{"function": lambda request: "hello", **wrong})


@inputs("value", [None, "gpt-5", lambda request: "hello", ModelRequest((ASKED,))])
def test_what_lacks_a_member_is_no_model(value: object) -> None:
    assert not isinstance(value, Model)


@inputs(
    ("kind", "branch"),
    [
        (errors.ContextOverflow, errors.FixTheCall),
        (errors.ModelRefused, errors.FixTheCall),
        (errors.ModelDenied, errors.FixTheSetup),
        (errors.RateLimited, errors.RetryOrRebase),
        (errors.ModelAborted, errors.RetryOrRebase),
        (errors.ModelUnavailable, errors.RetryOrRebase),
    ],
)
def test_a_failed_call_is_on_one_branch_and_keeps_what_it_cost(
    kind: type[errors.ModelError], branch: type[Exception]
) -> None:
    call = {"input": 10, "callId": "a"}

    error = pickle.loads(pickle.dumps(kind("it failed", provider="openai", model="gpt-5", call=call)))

    assert isinstance(error, errors.ModelError)
    assert [
        each for each in (errors.FixTheCall, errors.FixTheSetup, errors.RetryOrRebase) if isinstance(error, each)
    ] == [branch]
    assert (str(error), error.provider, error.model, error.call) == ("it failed", "openai", "gpt-5", call)
    assert kind("it failed").call is None


def test_errors_keep_the_numbers_of_their_provider() -> None:
    assert errors.RateLimited("wait", retry_after=2.5).retry_after == 2.5
    assert errors.RateLimited("wait").retry_after is None
    overflow = errors.ContextOverflow("too long", tokens=210_000, window=200_000)
    assert (overflow.tokens, overflow.window) == (210_000, 200_000)
