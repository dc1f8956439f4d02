"""Compaction of contexts that break every rule: a plan or none, a summary or `SummaryFailed`, and no other error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py import compaction
from flue_py.context.tokens import count_tokens
from flue_py.core.entries import NewEntry
from flue_py.errors import FlueError, InvalidArgument, InvalidEntry
from tests.fuzz.hostile import ARGUMENTS, check_refusal, containing_itself, nested
from tests.strategies import hostile_json, hostile_messages
from tests.tables import inputs
from tests.values import existing

contexts = st.lists(hostile_messages, max_size=6)
settings = st.builds(compaction.CompactionSettings, st.integers(0, 2**70), st.integers(0, 50))


@given(contexts, settings, st.none() | st.integers(0, 9), hostile_json)
def test_any_context_is_planned_and_summarized_or_left(
    context: list[Any], chosen: compaction.CompactionSettings, kept: int | None, details: Any
) -> None:
    previous = None if kept is None else compaction.PreviousCompaction("before", kept, details)
    estimate = compaction.estimate_context_tokens(context)
    assert estimate.tokens == estimate.usage_tokens + estimate.trailing_tokens
    compaction.serialize_conversation(context)
    plan = compaction.prepare_compaction(context, chosen, previous)
    if plan is None:
        return
    assert 0 < plan.first_kept_index < len(context)
    requests = compaction.summary_requests(plan)
    replies = [compaction.SummaryReply("said") for _ in requests]
    summary = compaction.finish_summary(plan, replies)
    assert summary.text
    if plan.tokens_before >= 0:
        NewEntry.compaction(
            summary.text, first_kept_entry_id="a", tokens_before=plan.tokens_before, details=summary.details
        )


@given(contexts, st.lists(st.sampled_from(["message", "branch_summary", "odd"]), min_size=6, max_size=6))
def test_any_items_of_a_session_are_planned_or_left(context: list[Any], kinds: list[str]) -> None:
    items: Any = [
        SimpleNamespace(entry_id=str(number), kind=kind, data=message)
        for number, (message, kind) in enumerate(zip(context, kinds, strict=False))
    ]
    for latest in (None, SimpleNamespace(summary="s", details={"readFiles": [1, "a"]})):
        planned = compaction.plan_session_compaction(items, latest, compaction.CompactionSettings(100, 5))
        if not isinstance(planned, compaction.NoCompaction):
            assert items[int(planned.first_kept_entry_id)].kind == "message"


@given(st.dictionaries(st.sampled_from(["totalTokens", "input", "output"]), hostile_json))
def test_any_reported_usage_is_a_number_of_tokens(usage: Any) -> None:
    assert isinstance(compaction.calculate_context_tokens(usage), int)


def test_a_reported_number_beyond_all_floats_is_counted_as_it_is() -> None:
    assert compaction.calculate_context_tokens({"totalTokens": 10**400}) == 10**400


@inputs("arguments", [nested(), containing_itself()], ids=["deep", "containing itself"])
def test_arguments_without_a_bottom_are_refused(arguments: Any) -> None:
    call: Any = {"role": "assistant", "content": [{"type": "toolCall", "id": "a", "name": "b", "arguments": arguments}]}
    for read in (
        compaction.estimate_tokens,
        lambda message: compaction.serialize_conversation([message]),
        lambda message: count_tokens([message]),
    ):
        with pytest.raises(InvalidEntry) as caught:
            read(call)
        check_refusal(caught.value)
    compaction.estimate_tokens({"role": "assistant", "content": [{**call["content"][0], "arguments": nested(200)}]})


@inputs("name", sorted(set(ARGUMENTS) - {"an integer", "an integer beyond 64 bits"}))
def test_settings_and_earlier_compactions_take_whole_numbers(name: str) -> None:
    odd: Any = ARGUMENTS[name]
    if name != "an integer with too many digits to print":
        calls = [
            lambda: compaction.CompactionSettings(reserve_tokens=odd),
            lambda: compaction.CompactionSettings(keep_recent_tokens=odd),
            lambda: compaction.PreviousCompaction("s", odd),
        ]
        if odd is not None:
            calls.append(lambda: compaction.CompactionSettings(keep_recent_messages=odd))
        for call in calls:
            with pytest.raises(InvalidArgument) as caught:
                call()
            check_refusal(caught.value)
    if not isinstance(odd, str):
        with pytest.raises(InvalidArgument):
            compaction.PreviousCompaction(odd, 0)


def test_a_model_that_answers_nonsense_is_a_failed_summary() -> None:
    context: list[Any] = [{"role": "user", "content": "x" * 100}, {"role": "user", "content": "y" * 100}]
    plan = existing(compaction.prepare_compaction(context, compaction.CompactionSettings(100, 5)))
    for odd in ARGUMENTS.values():

        async def complete(_: object, odd: Any = odd) -> Any:
            return odd

        async def say(_: object, odd: Any = odd) -> Any:
            return compaction.SummaryReply(odd)

        with pytest.raises(compaction.SummaryFailed) as caught:
            asyncio.run(compaction.summarize(plan, complete))
        check_refusal(caught.value)
        with pytest.raises(InvalidArgument):
            compaction.finish_summary(plan, [odd])  # type: ignore[list-item]
        if not isinstance(odd, str):
            with pytest.raises(FlueError):
                asyncio.run(compaction.summarize(plan, say))
