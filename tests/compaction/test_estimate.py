"""How large a context is, and when it is time to compact."""

from __future__ import annotations

import pytest
from hypothesis import given

from flue_py import compaction
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument
from tests.compaction.strategies import assistant, call, messages, odd_messages, tool_result, usage, user
from tests.tables import inputs


@inputs(
    ("message", "tokens"),
    [
        (user(""), 0), (user("abcd"), 1), (user("abcde"), 2), (user("🚀🚀"), 1), (call("read", {}), 2),
        (call("x", {"n": 1e-7, "m": 1e-5}), 6), (call("x", {"n": 1.0}), 2),
        ({"role": "toolResult", "content": [{"type": "image", "data": "AA=="}]}, 1200),
        ({"role": "user", "content": [{"type": "image", "data": "AA=="}]}, 0),
        ({"role": "system", "content": "abcdefgh"}, 0), ({"role": "assistant", "content": "abcdefgh"}, 2),
        ({"role": "toolResult", "content": "abcdefgh"}, 2),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "abcdef"}, {"type": "audio"}]}, 2),
    ],
)  # fmt: skip
def test_a_message_takes_a_token_for_every_four_utf16_units(message: JsonObject, tokens: int) -> None:
    assert compaction.estimate_tokens(message) == tokens


def test_the_last_reported_usage_stands_for_everything_up_to_it() -> None:
    context = [user("x" * 400), assistant("a", usage=usage(500)), user("y" * 40), assistant("b")]
    estimate = compaction.estimate_context_tokens(context)
    assert (estimate.tokens, estimate.usage_tokens, estimate.trailing_tokens) == (511, 500, 11)
    assert estimate.last_usage_index == 1


@inputs("reason", ["aborted", "error"])
def test_a_failed_message_reports_no_usage(reason: str) -> None:
    context = [assistant("a", usage=usage(500)), assistant("bbbb", usage=usage(900), stopReason=reason)]
    assert compaction.estimate_context_tokens(context).tokens == 501


def test_zero_usage_is_passed_over_for_an_earlier_report() -> None:
    context = [user("x" * 400), assistant("a", usage=usage(500)), user("y" * 40), assistant("b", usage=usage())]
    assert compaction.estimate_context_tokens(context).tokens == 511


def test_zero_usage_without_an_earlier_report_leaves_an_estimate_of_everything() -> None:
    context = [user("x" * 400), assistant("b", usage=usage())]
    assert compaction.estimate_context_tokens(context).tokens == 101
    assert compaction.estimate_context_tokens(context).last_usage_index is None


def test_reports_from_before_a_compaction_can_be_left_out() -> None:
    context = [user("summary"), assistant("kept", usage=usage(90_000)), user("new")]
    assert compaction.estimate_context_tokens(context).tokens == 90_001
    assert compaction.estimate_context_tokens(context, usage_from=2).tokens == 4


@inputs(
    ("reported", "tokens"),
    [
        (usage(77, input=5), 77), (usage(0, input=1, output=2, cacheRead=3, cacheWrite=4), 10), ({"input": 3}, 3),
        ({"totalTokens": 12.0}, 12), ({"totalTokens": "12", "input": True, "output": None}, 0), ({}, 0),
    ],
)  # fmt: skip
def test_context_tokens_are_the_total_or_else_the_sum(reported: JsonObject, tokens: int) -> None:
    assert compaction.calculate_context_tokens(reported) == tokens


@inputs(
    ("tokens", "window", "enabled", "due"),
    [
        (183_616, 200_000, True, False), (183_617, 200_000, True, True), (183_617, 200_000, False, False),
        (999, 0, True, False), (999, -5, True, False), (1, 100, True, True),
    ],
)  # fmt: skip
def test_compaction_is_due_above_the_window_minus_the_reserve(
    tokens: int, window: int, *, enabled: bool, due: bool
) -> None:
    assert compaction.should_compact(tokens, window, compaction.CompactionSettings(enabled=enabled)) is due


def test_negative_settings_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="reserve_tokens: -1"):
        compaction.CompactionSettings(reserve_tokens=-1)
    with pytest.raises(InvalidArgument, match="keep_recent_tokens: -1"):
        compaction.CompactionSettings(keep_recent_tokens=-1)


@given(context=messages)
def test_an_estimate_is_its_two_parts_and_the_same_every_time(context: list[JsonObject]) -> None:
    estimate = compaction.estimate_context_tokens(context)
    assert estimate.tokens == estimate.usage_tokens + estimate.trailing_tokens
    assert estimate == compaction.estimate_context_tokens(context)
    start = 0 if estimate.last_usage_index is None else estimate.last_usage_index + 1
    assert estimate.trailing_tokens == sum(map(compaction.estimate_tokens, context[start:]))


@given(context=messages)
def test_by_default_a_context_with_text_is_never_estimated_at_nothing(context: list[JsonObject]) -> None:
    counted = sum(compaction.estimate_tokens(message) for message in context)
    assert (compaction.estimate_context_tokens(context).tokens > 0) or counted == 0


@given(context=odd_messages)
def test_messages_of_any_shape_are_estimated(context: list[JsonObject]) -> None:
    assert compaction.estimate_context_tokens(context).trailing_tokens >= 0


def test_a_long_tool_result_counts_in_full_although_a_summary_shows_part_of_it() -> None:
    assert compaction.estimate_tokens(tool_result("x" * 4000)) == 1000


def test_what_was_reported_before_the_latest_compaction_is_not_believed() -> None:
    summary: JsonObject = {
        "role": "user", "content": [{"type": "text", "text": "[Context Summary]\n\nBefore."}], "timestamp": 1_000,
    }  # fmt: skip
    kept = assistant("kept", usage=usage(240_000))
    older = {**kept, "timestamp": 999}
    newer = assistant("new", usage=usage(500), timestamp=1_001)
    assert compaction.estimate_context_tokens([summary, kept, user("next")]).usage_tokens == 0
    assert compaction.estimate_context_tokens([summary, older, user("next")]).usage_tokens == 0
    assert compaction.estimate_context_tokens([summary, older, newer]).usage_tokens == 500


@inputs(
    "reported",
    [
        {"prompt_tokens": 70, "completion_tokens": 7, "total_tokens": 77},
        {"input_tokens": 60, "cache_read_input_tokens": 10, "output_tokens": 7},
        {"promptTokenCount": 70, "candidatesTokenCount": 5, "thoughtsTokenCount": 2, "totalTokenCount": 77},
    ],
)
def test_usage_in_a_providers_shape_says_how_large_the_context_was(reported: JsonObject) -> None:
    assert compaction.calculate_context_tokens(reported) == 77
