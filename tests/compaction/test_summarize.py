"""From a plan to a summary, with a model that is a function of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flue_py import compaction
from flue_py.core.json import JsonObject
from flue_py.errors import FlueError, InvalidArgument
from tests.compaction.strategies import assistant, call, tool_result, usage, user
from tests.tables import inputs
from tests.values import existing

WHOLE_TURN = [user("ask"), call("read", {"path": "p"}), tool_result("text"), assistant("done"), user("next")]
SPLIT_TURN = [user("old"), assistant("answer"), user("turn"), assistant("b" * 80), assistant("c" * 80)]
OLD = compaction.PreviousCompaction("OLD", 0)


class Model:
    """A summarizer that answers from a list and remembers what it was asked."""

    def __init__(self, *replies: compaction.SummaryReply | BaseException) -> None:
        self.replies = list(replies)
        self.requests: list[compaction.SummaryRequest] = []

    async def __call__(self, request: compaction.SummaryRequest) -> compaction.SummaryReply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply


def plan_for(
    context: Sequence[JsonObject],
    keep: int,
    previous: compaction.PreviousCompaction | None = None,
    reserve: int = 16_384,
) -> compaction.CompactionPlan:
    return existing(compaction.prepare_compaction(context, compaction.CompactionSettings(reserve, keep), previous))


def run(plan: compaction.CompactionPlan, model: Model) -> compaction.CompactionSummary:
    return asyncio.run(compaction.summarize(plan, model))


def test_whole_turns_take_one_call_and_the_file_lists_are_appended() -> None:
    model = Model(compaction.SummaryReply("SUMMARY", usage(7)))
    summary = run(plan_for(WHOLE_TURN, 1), model)
    assert summary.text == "SUMMARY\n\n<read-files>\np\n</read-files>"
    assert summary.details == {"readFiles": ["p"], "modifiedFiles": []}
    assert summary.usages == (usage(7),)
    [request] = model.requests
    assert request.kind == "initial"
    assert request.input == (
        '<conversation>\n[User]: ask\n\n[Assistant tool calls]: read(path="p")\n\n[Tool result]: text\n\n'
        "[Assistant]: done\n</conversation>\n\n"
    )
    assert request.prompt == request.input + request.instruction


def test_a_split_turn_takes_two_calls_history_first() -> None:
    model = Model(compaction.SummaryReply("HISTORY", usage(1)), compaction.SummaryReply("PREFIX", usage(2)))
    summary = run(plan_for(SPLIT_TURN, 20), model)
    assert summary.text == "HISTORY\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX"
    assert [request.kind for request in model.requests] == ["initial", "turn_prefix"]
    assert [call.kind for call in summary.calls] == ["initial", "turn_prefix"]
    assert summary.usages == (usage(1), usage(2))


def test_a_call_that_reports_no_usage_is_still_a_call() -> None:
    summary = run(plan_for(SPLIT_TURN, 20), Model(compaction.SummaryReply("H"), compaction.SummaryReply("P", usage(2))))
    assert [call.usage for call in summary.calls] == [None, usage(2)]
    assert summary.usages == (usage(2),)


def test_a_previous_summary_is_brought_up_to_date() -> None:
    model = Model(compaction.SummaryReply("NEW"))
    run(plan_for(WHOLE_TURN, 1, OLD), model)
    [request] = model.requests
    assert request.kind == "update"
    assert request.input.endswith("</conversation>\n\n<previous-summary>\nOLD\n</previous-summary>\n\n")


def test_an_empty_previous_summary_is_none() -> None:
    plan = plan_for(WHOLE_TURN, 1, compaction.PreviousCompaction("", 0))
    assert [request.kind for request in compaction.summary_requests(plan)] == ["initial"]


def test_a_split_turn_without_history_keeps_the_previous_summary_and_makes_one_call() -> None:
    model = Model(compaction.SummaryReply("PREFIX"))
    summary = run(plan_for(SPLIT_TURN[2:], 20, OLD), model)
    assert summary.text == "OLD\n\n---\n\n**Turn Context (split turn):**\n\nPREFIX"
    assert [request.kind for request in model.requests] == ["turn_prefix"]


@inputs(("reserve", "limits"), [(16_384, [13_107, 8192]), (100, [80, 50]), (40_000, [16_000, 16_000])])
def test_answers_are_bounded_by_shares_of_the_reserve(reserve: int, limits: list[int]) -> None:
    requests = compaction.summary_requests(plan_for(SPLIT_TURN, 20, reserve=reserve))
    assert [request.max_tokens for request in requests] == limits


def test_a_focus_is_added_to_every_instruction() -> None:
    plan = plan_for(SPLIT_TURN, 20)
    plain, focused = compaction.summary_requests(plan), compaction.summary_requests(plan, focus="the tests")
    assert [request.instruction for request in focused] == [
        request.instruction + "\n\nAdditional focus: the tests" for request in plain
    ]


def test_a_failed_call_is_chained_and_no_further_call_is_made() -> None:
    error = ConnectionError("overloaded")
    model = Model(error, compaction.SummaryReply("never"))
    with pytest.raises(compaction.SummaryFailed, match="initial summary failed: overloaded") as caught:
        run(plan_for(SPLIT_TURN, 20), model)
    assert isinstance(caught.value, FlueError)
    assert caught.value.__cause__ is error
    assert caught.value.kind == "initial"
    assert len(model.requests) == 1


def test_what_was_paid_before_a_failure_is_known() -> None:
    model = Model(compaction.SummaryReply("HISTORY", usage(4)), TimeoutError())
    with pytest.raises(compaction.SummaryFailed, match="turn_prefix summary failed: TimeoutError") as caught:
        run(plan_for(SPLIT_TURN, 20), model)
    assert [(call.kind, call.usage) for call in caught.value.answered] == [("initial", usage(4))]


def test_a_blank_summary_never_takes_the_place_of_history() -> None:
    with pytest.raises(compaction.SummaryFailed, match="no text") as caught:
        run(plan_for(WHOLE_TURN, 1), Model(compaction.SummaryReply(" \n", usage(4))))
    assert [call.usage for call in caught.value.answered] == [usage(4)]


def test_after_a_blank_summary_no_further_call_is_made() -> None:
    model = Model(compaction.SummaryReply(""), compaction.SummaryReply("PREFIX"))
    with pytest.raises(compaction.SummaryFailed, match="no text"):
        run(plan_for(SPLIT_TURN, 20), model)
    assert len(model.requests) == 1


def test_cancellation_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError):
        run(plan_for(WHOLE_TURN, 1), Model(asyncio.CancelledError()))


def test_replies_obtained_elsewhere_finish_a_summary() -> None:
    plan = plan_for(SPLIT_TURN, 20)
    summary = compaction.finish_summary(plan, [compaction.SummaryReply("H"), compaction.SummaryReply("P")])
    assert summary == run(plan, Model(compaction.SummaryReply("H"), compaction.SummaryReply("P")))


@inputs("count", [0, 1, 3])
def test_the_replies_must_match_the_requests(count: int) -> None:
    with pytest.raises(InvalidArgument, match="2 requests"):
        compaction.finish_summary(plan_for(SPLIT_TURN, 20), [compaction.SummaryReply("x")] * count)
