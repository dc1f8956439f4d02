"""A provider's whole response is appended as it is, and its id is the paid call."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

import flue_py
from flue_py.core.usage import Usage
from flue_py.errors import CallConflict

pytestmark = pytest.mark.anyio

CHAT = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5", "service_tier": "default",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020},
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400}, "output_tokens": 20,
              "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 1020},
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 16, "output_tokens": 28},
}  # fmt: skip
CANDIDATES = {
    "responseId": "gen-1", "modelVersion": "gemini-2.5-pro",
    "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [{"text": "hi"}]}}],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14},
}  # fmt: skip
SNAKE = {
    "response_id": "gen-2", "model_version": "gemini-2.5-pro",
    "candidates": [{"finish_reason": "MAX_TOKENS", "content": {"role": "model"}}],
    "usage_metadata": {"prompt_token_count": 10, "total_token_count": 10},
}  # fmt: skip
GEMINI = {"role": "model", "parts": [{"text": "y"}], "provider": "google"}
GATEWAY = CHAT | {"id": "gen-3", "provider": "Fireworks", "usage": {"prompt_tokens": 5, "cost": 0.25}}

# The response; then of its call: provider, model, id, all tokens, stop reason, and how many entries it becomes.
WHOLE: list[tuple[str, dict[str, Any], tuple[str, str, str, int, str | None, int]]] = [
    ("chat", CHAT, ("", "gpt-5", "chatcmpl-1", 1020, "stop", 1)),
    ("responses", RESPONSE, ("openai", "gpt-5", "resp_1", 1020, None, 3)),
    ("its last event", {"type": "response.completed", "response": RESPONSE},
     ("openai", "gpt-5", "resp_1", 1020, None, 3)),
    ("anthropic", MESSAGE, ("anthropic", "claude-sonnet-4-5", "msg_1", 44, "end_turn", 1)),
    ("gemini", CANDIDATES, ("google", "gemini-2.5-pro", "gen-1", 14, "STOP", 1)),
    ("gemini's library, ended early", SNAKE, ("google", "gemini-2.5-pro", "gen-2", 10, "MAX_TOKENS", 1)),
    ("a gateway", GATEWAY, ("Fireworks", "gpt-5", "gen-3", 5, "stop", 1)),
]  # fmt: skip


class Dumped(BaseModel, extra="allow"):
    """An object of a provider's library: fields that were not set are none of the response."""

    system_fingerprint: str | None = None


def model_of(value: Any) -> Any:
    return Dumped(**value)


async def test_whole_responses_are_appended_as_they_are_and_paid_for_once_under_their_id() -> None:
    wrong = []
    for name, response, expected in WHOLE:
        for form in (deepcopy, model_of):
            async with flue_py.open(":memory:", prices=False) as store:
                session = await store.create_session()
                await session.append_message({"role": "user", "content": "x"})
                appended = await session.append_message(form(response))
                last = (await session.get_entry(appended.leaf_id or "")).fields
                [row] = (await store.usage(group_by=["provider", "model"])).rows
                got = (
                    row.group["provider"], row.group["model"], last.get("responseId"),
                    row.total_tokens, last.get("stopReason"), len(appended.entry_ids),
                )  # fmt: skip
                await session.append_message(form(response))
                await session.undo()
                await session.append_messages([form(response)])
                await (await session.fork()).append_message(form(response))
                other = await store.create_session()
                await other.append_message(form(response))
                async with store.atomic() as batch:
                    batch.append_message(other, form(response))
                await store.append_messages(other, [form(response)])
                calls, report = (await store.usage()).total.calls, await store.verify()
                if (got, calls, appended.oddities, report.problems) != (expected, 1, (), []):
                    wrong.append((name, form.__name__, got, calls, appended.oddities, report.problems))
    assert wrong == []


async def test_an_id_that_another_call_has_loses_neither_answer_nor_bill() -> None:
    """Servers that number their answers at random give one number to two calls."""
    other = CHAT | {"usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}}
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        assert (await session.append_message(CHAT)).oddities == ()
        told = await session.append_message(other)
        assert [odd.partition(":")[0] for odd in told.oddities] == ["responseId"]
        async with store.atomic() as batch:
            again = batch.append_message(session, other)
        assert again.result.oddities == told.oddities
        total = (await store.usage()).total
        assert (total.calls, total.total_tokens, (await store.verify()).problems) == (2, 1028, [])
        with pytest.raises(flue_py.CallConflict):
            await session.append_message({"role": "assistant", "content": "x"}, calls=[{"callId": "chatcmpl-1"}])


async def test_a_response_without_usage_is_a_call_of_unknown_usage() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for number, response in enumerate((CHAT, MESSAGE, MESSAGE | {"id": "msg_2", "usage": None}), 1):
            absent = () if response["id"] == "msg_2" else ("usage",)
            await session.append_message({name: value for name, value in response.items() if name not in absent})
            window = await session.money.aggregate_usage_since(None)
            assert (window.calls, window.unknown_calls, window.usage, window.cost) == (number, number, Usage(), None)
        assert (await store.verify()).problems == []


async def test_an_advisor_of_an_answer_is_a_call_of_its_own_at_its_own_price() -> None:
    step = {"type": "message", "input_tokens": 16, "output_tokens": 28}
    advisor = {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 10**6, "output_tokens": 10**5}
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_message(MESSAGE | {"usage": {**step, "iterations": [step, advisor]}})
        rows = (await store.usage(group_by=["model"])).rows
        costs = {row.group["model"]: (row.total_tokens, row.cost) for row in rows}
        assert costs == {
            "claude-sonnet-4-5": (44, Decimal("0.000468")), "claude-opus-5": (11 * 10**5, Decimal("7.5")),
        }  # fmt: skip
        assert (await store.verify()).problems == []


async def test_the_models_of_the_steps_are_priced_however_a_call_is_reported() -> None:
    step = {"type": "message", "input_tokens": 400, "output_tokens": 50}
    advisor = {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 10**6, "output_tokens": 10**5}
    named: dict[str, Any] = {"provider": "anthropic", "model": "claude-haiku-5-5"}
    usage: dict[str, Any] = {**step, "iterations": [step, advisor]}
    answer: dict[str, Any] = {"role": "assistant", "content": "x", **named}
    want = Decimal("7.500065")
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for number in range(2):
            # The same call again changes nothing, whichever way it comes.
            recorded = await session.money.record_call(
                usage, provider="anthropic", model="claude-haiku-5-5", call_id="c"
            )
            assert (recorded.is_new, recorded.call_id, recorded.usd) == (not number, "c", want)
        await session.append_message(answer, calls=[{**usage, "callId": "c"}])
        assert (await store.usage()).total.calls == 2
        await session.append_message(answer, calls=[{**usage, "callId": "d"}, {"input": 0, "callId": "e"}])
        await session.append_branch_summary("s", from_id=None, usage={**usage, **named})
        await session.append_branch_summary("s", from_id=None, calls=[{**usage, **named}])
        recorded = await session.money.record_call(usage, provider="anthropic", model="claude-haiku-5-5")
        assert recorded.usd == want
        rows = (await store.usage(group_by=["model"])).rows
        costs = {row.group["model"]: (row.calls, row.total_tokens, row.cost) for row in rows}
        assert costs == {
            "claude-haiku-5-5": (6, 5 * 450, 5 * Decimal("0.000065")),
            "claude-opus-5": (5, 5 * 11 * 10**5, 5 * Decimal("7.5")),
        }
        # One of them is refused: nothing is written.
        await session.money.record_call({"input_tokens": 1}, provider="anthropic", call_id="f:claude-opus-5")
        before = (await store.usage()).total
        with pytest.raises(CallConflict):
            await session.money.record_call(usage, **named, call_id="f")
        assert (await store.usage()).total == before
        unpriced = await session.money.record_call({**step, "iterations": [step, {**advisor, "model": "who"}]}, **named)
        assert (unpriced.usd, (await store.verify()).problems) == (None, [])


async def test_what_stands_beside_the_usage_changes_the_price_in_the_form_of_every_provider() -> None:
    claude: dict[str, Any] = {"role": "assistant", "model": "claude-opus-5", "usage": {"input": 1000, "output": 100}}
    gpt: dict[str, Any] = {**claude, "model": "gpt-5.6", "provider": "openai", "service_tier": "priority"}
    text, call = {"type": "text", "text": "y"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    tool_calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({**claude, "content": [call], "speed": "fast"}, "0.015"),
        ({**claude, "content": [call], "stop_reason": "tool_use", "usage": {"input_tokens": 1000, "output_tokens": 100,
            "service_tier": "batch"}}, "0.00375"),
        # A response of Anthropic's, of which somebody has left out why it stopped.
        ({**claude, "content": [text], "id": "msg_1", "type": "message", "speed": "fast"}, "0.015"),
        ({**claude, "content": [text], "id": "msg_2", "type": "message"}, "0.0075"),
        ({**gpt, "content": [{"type": "output_text", "text": "y", "annotations": []}], "type": "message"}, "0.012"),
        ({**gpt, "content": None, "tool_calls": tool_calls}, "0.012"),
        ({**gpt, "content": [text]}, "0.012"),
        ({**gpt, "content": [text], "service_tier": "default"}, "0.006"),
        ({**gpt, "role": "model", "parts": [{"text": "y"}], "model": "gemini-2.5-pro", "provider": "google"}, None),
        ({**GEMINI, "modelVersion": "gemini-2.5-pro", "responseId": "r1",
            "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 100}}, "0.00225"),
        ({**GEMINI, "model_version": "gemini-2.5-pro",
            "usage_metadata": {"prompt_token_count": 1000, "candidates_token_count": 100}}, "0.00225"),
    ]  # fmt: skip
    wrong = []
    for message, cost in cases:
        async with flue_py.open(":memory:") as store:
            session = await store.create_session()
            appended = {**message, "provider": message.get("provider", "anthropic")}
            await session.append_message(appended if "id" not in message else message)
            total = (await store.usage()).total
            if (total.calls, total.cost) != (1, None if cost is None else Decimal(cost)):
                wrong.append((message, total.cost))
    assert wrong == []


async def test_what_is_no_single_answer_is_refused_and_changes_nothing() -> None:
    choice = CHAT["choices"][0]  # type: ignore[index]
    refused = [
        (CHAT | {"choices": [choice, choice]}, "message.choices: has 2 answers"),
        (CANDIDATES | {"candidates": []}, "message.candidates: is empty"),
        (CHAT | {"choices": []}, "message.choices: is empty"),
        (RESPONSE | {"output": []}, "message.output: is empty"),
        (CHAT | {"choices": [{"index": 0, "delta": {"content": "h"}}]}, "message.choices[0].message: is missing"),
        (CHAT | {"choices": ["x"]}, "message.choices[0]: should be an object"),
        (RESPONSE | {"output": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "message: is a res"),
        ({"messages": []}, "message.messages: is a whole request"),
    ]
    wrong = []
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for response, beginning in refused:
            try:
                await session.append_message(response)
                wrong.append((beginning, "was taken"))
            except flue_py.InvalidEntry as error:
                if not str(error).startswith(beginning):
                    wrong.append((beginning, str(error)))
        assert (wrong, session.leaf_id, (await store.usage()).total.calls) == ([], None, 0)


async def test_a_window_has_one_figure_of_its_cost_and_an_unknown_one_is_none() -> None:
    """Answers as providers give them, without a cost: priced, without a price, and paid for by another session."""
    figures = []
    for prices in (None, False):
        async with flue_py.open(":memory:", prices=prices) as store:
            session, other = await store.create_session(), await store.create_session()
            for each in (session, other):
                await each.append_message(MESSAGE)
                window = await each.money.aggregate_usage_since(None)
                figures.append((window.usage.cost.usd, window.cost))
    price = Decimal("0.000468")
    nothing = Decimal()
    assert figures == [(price, price), (nothing, nothing), (None, None), (nothing, nothing)]


async def test_what_a_response_was_charged_for_beside_its_tokens_is_no_list_price() -> None:
    """A tier beside the usage, and tools of the provider: priced as such, or unknown."""
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
    opened = search | {"action": {"type": "open_page", "url": "u"}}
    output: list[Any] = RESPONSE["output"]  # type: ignore[assignment]
    shell = {"type": "shell_call", "id": "s", "call_id": "s", "status": "completed", "action": {"commands": ["ls"]}}
    hosted = shell | {"environment": {"type": "container_reference", "container_id": "c"}}
    cited = {"role": "assistant", "content": "x", "annotations": [{"type": "url_citation", "url_citation": {}}] * 2}

    def grounded(**beside: Any) -> dict[str, Any]:
        candidate: dict[str, Any] = CANDIDATES["candidates"][0]  # type: ignore[assignment,index]
        return CANDIDATES | {"candidates": [candidate | beside]}

    listed = Decimal("0.001")  # 600 tokens of input, 400 from the cache, 20 of output
    cases: list[tuple[dict[str, Any], Decimal | str]] = [
        (RESPONSE, listed),
        (RESPONSE | {"service_tier": "default"}, listed),
        (RESPONSE | {"service_tier": "scale"}, "service_tier=scale"),
        (CHAT | {"service_tier": "scale"}, "service_tier=scale"),
        (RESPONSE | {"output": [opened, *output]}, listed),
        (RESPONSE | {"output": [search, search, *output]}, listed + Decimal("0.02")),
        (RESPONSE | {"output": [{"type": "image_generation_call", "id": "i"}, *output]}, "image_generation_requests=1"),
        (RESPONSE | {"output": [shell | {"environment": {"type": "local"}}, *output]}, listed),
        (RESPONSE | {"output": [hosted, hosted, *output]}, "hosted_shell_requests=2"),
        (CHAT | {"choices": [{"index": 0, "finish_reason": "stop", "message": cited}]}, "cited_pages=2"),
        (grounded(groundingMetadata={"webSearchQueries": ["a", "b"]}), "grounded_searches=2"),
        (grounded(groundingMetadata={"imageSearchQueries": ["a"]}), "grounded_image_searches=1"),
        (grounded(grounding_metadata={"image_search_queries": ["a"]}), "grounded_image_searches=1"),
        (grounded(groundingMetadata={"groundingChunks": [{"maps": {"uri": "u"}}, {"web": {}}]}), "grounded_places=1"),
        (grounded(grounding_metadata={"grounding_chunks": [{"maps": {"uri": "u"}}]}), "grounded_places=1"),
        (grounded(groundingMetadata={"groundingChunks": [{"web": {}}], "webSearchQueries": []}), Decimal("0.0000525")),
    ]
    wrong = []
    for response, expected in cases:
        async with flue_py.open(":memory:") as store:
            await (await store.create_session()).append_message(response)
            [row] = (await store.usage(group_by=["price_source"])).rows
            got = row.group["price_source"] if row.cost is None else row.cost
            if got != (f"not priced: {expected}" if isinstance(expected, str) else expected):
                wrong.append((expected, got))
    assert wrong == []
