"""Whole responses of providers, entries that a caller builds, and commands that a person ran."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

import flue_py
from flue_py import InvalidArgument, InvalidEntry, JsonObject, NewEntry, PathSettings, Session, Store
from flue_py.core.sessions import NewSession
from flue_py.core.usage import Usage
from flue_py.errors import CallConflict
from flue_py.transfer import export_session
from tests.checks import raises
from tests.sessions.talk import assistant, user
from tests.tables import inputs
from tests.values import existing

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
        await raises(CallConflict, session.money.record_call(usage, **named, call_id="f"))
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


# -- Entries that a caller builds for an import, and answers that several paid calls made -------------------------


AT = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
CALLS: list[JsonObject] = [
    {"input": 10, "output": 1, "totalTokens": 11, "cost": {"total": 0.25}, "model": "small", "callId": "c1"},
    {"input": 20, "output": 2, "totalTokens": 22, "cost": {"total": 0.5}},
]


async def test_a_built_history_keeps_ids_parents_times_and_what_stands_beside(store: Store) -> None:
    entries = [
        NewEntry.message({"role": "user", "content": "hi"}, "prompt", id="u", created_at=AT, extra={"row": 7}),
        NewEntry.message({"role": "assistant", "content": "a"}, id="a", parent_id="u", calls=CALLS),
        NewEntry.custom("note", {"n": 1}, id="n", parent_id="a", calls=[{"input": 3}]),
        NewEntry.branch_summary("left", from_id="a", id="b", parent_id="n", usage={"output": 4}),
        NewEntry.compaction("all", first_kept_entry_id="u", tokens_before=9, id="c", parent_id="b"),
        NewEntry.exclusion("u", id="x", parent_id="c"),
    ]
    session = await store.import_session(NewSession(), entries, leaf="x")
    path = await session.get_active_path()
    assert [(entry.id, entry.parent_id, entry.kind) for entry in path] == [
        ("u", None, "message"), ("a", "u", "message"), ("n", "a", "note"), ("b", "n", "branch_summary"),
        ("c", "b", "compaction"), ("x", "c", "exclusion"),
    ]  # fmt: skip
    assert (path[0].created_at, path[0].source, path[0].extra_fields) == (AT, "prompt", {"row": 7})
    report = await store.usage(session, group_by=["purpose"])
    assert {row.group["purpose"]: (row.calls, row.total_tokens) for row in report.rows} == {
        "turn": (3, 36),
        "branch_summary": (1, 4),
    }
    assert (await store.verify()).problems == []


@inputs(
    "make",
    [
        lambda: NewEntry("message", '{"role":"user","content":"a"}', "user", id="a"),
        lambda: {"role": "user", "content": "a"},
    ],
)
async def test_an_import_takes_nothing_that_no_builder_made(store: Store, make: Callable[[], NewEntry]) -> None:
    session = await store.create_session()
    await raises(InvalidEntry, session.import_entries([make()], leaf="a"), match=r"entry 0: .*NewEntry\.message\(\)")
    with pytest.raises(InvalidEntry, match=r"entry 0: .*NewEntry\.message\(\)"):
        await store.import_session(NewSession(id="s"), [make()], leaf="a")
    assert await session.get_active_path() == []
    assert await store.get_session("s") is None


@inputs(
    ("make", "field"),
    [
        (lambda: NewEntry.custom("x", id=1), "id"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", parent_id=b"p"), "parent_id"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", created_at=datetime(2024, 1, 1)), "created_at"),  # noqa: DTZ001
        (lambda: NewEntry.custom("x", created_at=5), "created_at"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", extra=[1]), "extra"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", calls={"input": 1}), "calls"),  # type: ignore[arg-type]
        (lambda: NewEntry.custom("x", calls=[1]), "calls"),  # type: ignore[list-item]
        (lambda: NewEntry.message({"role": "user", "content": "a"}, calls=CALLS), "calls"),
        (lambda: NewEntry.message({"role": "user", "parts": [{"text": "a"}]}), "message"),
    ],
)
def test_builders_name_what_they_refuse(make: Callable[[], NewEntry], field: str) -> None:
    with pytest.raises(InvalidEntry, match=rf"^{field}"):
        make()


async def test_an_answer_of_several_calls_has_a_row_for_each(store: Store) -> None:
    session = await store.create_session()
    answer: JsonObject = {"role": "assistant", "content": "a", "model": "big", "provider": "p", "stopReason": "error"}
    appended = await session.append_message(answer, calls=CALLS)
    assert existing(await session.get_entry(appended.leaf_id or "")).usage.total_tokens == 33
    assert (await session.money.aggregate_usage_since(None)).usage.cost.usd == Decimal("0.75")
    report = await store.usage(session, group_by=["provider", "model", "outcome"])
    assert {tuple(row.group.values()): (row.calls, row.input, row.cost) for row in report.rows} == {
        ("p", "small", None): (1, 10, Decimal("0.25")),
        ("p", "big", "failed"): (1, 20, Decimal("0.5")),
    }
    assert (await store.verify()).problems == []


async def test_a_sum_that_a_message_brings_is_its_own(session: Session, store: Store) -> None:
    usage: JsonObject = {"input": 100, "totalTokens": 100}
    await session.append_message({"role": "assistant", "content": "a", "usage": usage}, calls=CALLS)
    assert (await session.money.aggregate_usage_since(None)).usage.total_tokens == 100
    assert (await store.usage(session)).total.calls == 2
    assert (await store.verify()).problems == []


async def test_calls_of_unknown_usage_are_calls_all_the_same(session: Session, store: Store) -> None:
    calls: list[JsonObject] = [{"model": "m"}, {"model": "n"}]
    appended = await session.append_message({"role": "assistant", "content": "a"}, calls=calls)
    total = (await store.usage(session)).total
    assert (total.calls, total.known["input"]) == (2, None)
    odd = await session.append_message({"role": "assistant", "content": "b"}, calls=[{"input": -1}, {"output": 2}])
    assert [each.partition(".")[0] for each in odd.oddities] == ["calls[0]"]
    assert appended.oddities == ()
    assert (await store.verify()).problems == []


async def test_calls_go_to_the_answer_that_a_provider_form_becomes(session: Session, store: Store) -> None:
    message: JsonObject = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    appended = await session.append_message(message, calls=CALLS)
    assert appended.converted
    assert (await store.usage(session)).total.calls == 2
    with pytest.raises(InvalidEntry, match="calls: only an answer"):
        await session.append_message({"role": "tool", "tool_call_id": "t", "content": "r"}, calls=CALLS)
    with pytest.raises(InvalidEntry, match="calls: should be a list"):
        await session.append_message({"role": "assistant", "content": "a"}, calls="c1")  # type: ignore[arg-type]


# -- Commands that a person ran: stored as an exchange, seen by the model, by exports and by compaction as any
# other -----------------------------------------------------------------------------------------------------------


async def test_a_command_is_a_message_of_the_user_a_call_and_its_result(session: Session) -> None:
    landed = await session.append_shell("pytest -q", "1 failed\n", 1)
    path = await session.get_active_path()
    assert [entry.id for entry in path] == list(landed.entry_ids)
    assert [(entry.role, entry.source) for entry in path] == [
        ("user", "shell"),
        ("assistant", "shell"),
        ("toolResult", "shell"),
    ]
    said, called, result = await session.build_context()
    call = path[1].id
    assert said == {"role": "user", "content": [{"type": "text", "text": "pytest -q"}]}
    assert called["content"] == [
        {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": "pytest -q"}}
    ]
    assert result == {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "bash",
        "content": [{"type": "text", "text": "1 failed\n\n\nCommand exited with code 1"}],
        "details": {"command": "pytest -q", "exitCode": 1},
        "isError": True,
    }
    assert session.revision == 1


@inputs(
    ("output", "code", "text"),
    [("ok", 0, "ok"), ("", 0, "(no output)"), (" \n", None, "(no output)\n\nCommand was cancelled")],
)
async def test_the_model_reads_how_it_ended(session: Session, output: str, code: int | None, text: str) -> None:
    await session.append_shell("make", output, code)
    result = (await session.build_context())[-1]
    assert (result["content"], result["isError"]) == ([{"type": "text", "text": text}], code != 0)


async def test_the_same_command_twice_is_two_calls_and_a_retry_is_one(session: Session) -> None:
    await session.append_shell("date", "now", 0)
    await session.append_shell("date", "now", 0)
    once = await session.append_shell("date", "now", 0, idempotency_key="k")
    again = await session.append_shell("date", "now", 0, idempotency_key="k")
    assert (again.entry_ids, again.replayed) == (once.entry_ids, True)
    results = [message for message in await session.build_context() if message["role"] == "toolResult"]
    assert len({str(message["toolCallId"]) for message in results}) == len(results) == 3


async def test_no_model_is_taken_for_who_ran_it(session: Session) -> None:
    await session.append_messages([user("hi"), {**assistant("hello"), "provider": "p", "model": "m"}])
    await session.append_shell("ls", "a", 0)
    assert await session.settings() == PathSettings(None, "p", "m")
    assert session.info.spent_tokens == (await session.money.aggregate_usage_since(None)).usage.total_tokens


@inputs("form", ["pi", "flue", "openai-chat", "openai-responses", "anthropic"])
async def test_it_goes_out_as_an_exchange_in_every_format(session: Session, store: Store, form: str) -> None:
    await session.append_messages([user("hi"), assistant("hello")])
    await session.append_shell("ls -l", "total 0", 0)
    text = (await export_session(session, form)).text
    assert "ls -l" in text
    assert "total 0" in text


async def test_several_commands_of_a_batch_land_with_it_and_once(session: Session, store: Store) -> None:
    async def write() -> tuple[str, ...]:
        async with store.atomic(idempotency_key="once") as tx:
            first = tx.append_shell(session, "ls", "a", 0)
            tx.append_shell(session, "rm a", "", 1, on_conflict="rebase")
            assert len(first.entry_ids) == 3
        return first.entry_ids

    assert await write() == await write()
    assert [message["role"] for message in await session.build_context()] == ["user", "assistant", "toolResult"] * 2


@inputs("odd", [("", "", 0), (None, "", 0), ("ls", None, 0), ("ls", "", "0"), ("ls", "", True), ("ls", "", 0.5)])
async def test_what_is_no_command_is_refused(session: Session, odd: tuple[str, str, int]) -> None:
    await raises(InvalidArgument, session.append_shell(*odd))
    assert await session.get_active_path() == []
