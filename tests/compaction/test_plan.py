"""Where the cut is made, and what a plan holds."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py import compaction
from flue_py.core.json import JsonObject
from flue_py.errors import InvalidArgument
from tests.compaction.strategies import (
    Item,
    Plannable,
    assistant,
    budgets,
    call,
    messages,
    odd_messages,
    plannable,
    tool_result,
    usage,
    user,
)
from tests.tables import inputs
from tests.values import existing


def keeping(tokens: int) -> compaction.CompactionSettings:
    return compaction.CompactionSettings(keep_recent_tokens=tokens)


def planned(
    context: list[JsonObject], keep: int, previous: compaction.PreviousCompaction | None = None
) -> compaction.CompactionPlan:
    return existing(compaction.prepare_compaction(context, keeping(keep), previous))


def test_whole_turns_are_cut_off_before_a_user_message() -> None:
    context = [user("a" * 40), assistant("b" * 40), user("c" * 40), assistant("d" * 40)]
    plan = planned(context, keep=20)
    assert plan.first_kept_index == 2
    assert not plan.is_split_turn
    assert plan.messages_to_summarize == tuple(context[:2])
    assert plan.turn_prefix == ()
    assert plan.tokens_before == 40


def test_a_cut_inside_a_turn_sets_the_beginning_of_the_turn_apart() -> None:
    context = [user("old"), assistant("x"), user("turn"), assistant("b" * 80), assistant("c" * 80)]
    plan = planned(context, keep=20)
    assert plan.is_split_turn
    assert plan.first_kept_index == 4
    assert plan.messages_to_summarize == tuple(context[:2])
    assert plan.turn_prefix == tuple(context[2:4])


def test_without_a_user_message_there_is_no_turn_to_split() -> None:
    plan = planned([assistant("a" * 80), assistant("b" * 80)], keep=20)
    assert not plan.is_split_turn
    assert len(plan.messages_to_summarize) == 1


@inputs("keep", [3, 1000])
def test_a_budget_that_is_not_used_up_leaves_nothing_to_do(keep: int) -> None:
    context = [user("a"), assistant("b"), user("c")]
    assert compaction.prepare_compaction(context, keeping(keep)) is None


def test_an_empty_context_is_not_compacted() -> None:
    assert compaction.prepare_compaction([], keeping(0)) is None


def test_a_previous_compaction_past_the_end_leaves_nothing_to_do() -> None:
    previous = compaction.PreviousCompaction("s", 9)
    assert compaction.prepare_compaction([user("a"), user("b")], keeping(1), previous) is None


def test_a_previous_compaction_with_a_negative_index_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="first_kept_index"):
        compaction.PreviousCompaction("s", -1)


def test_a_large_trailing_tool_result_does_not_disable_compaction() -> None:
    context = [user("old"), assistant("x"), user("ask"), call("read", {"path": "p"}), tool_result("x" * 4000)]
    plan = planned(context, keep=20)
    assert plan.first_kept_index == 3
    assert plan.turn_prefix == (context[2],)


def test_several_trailing_tool_results_stay_with_the_message_that_called() -> None:
    context = [user("a"), assistant("b"), call("read", {}), tool_result("x" * 400), tool_result("y" * 400)]
    assert planned(context, keep=100).first_kept_index == 2


def test_where_the_calling_message_is_all_there_is_nothing_can_be_cut() -> None:
    assert compaction.prepare_compaction([call("read", {}), tool_result("x" * 400)], keeping(10)) is None


@inputs(("most", "first_kept"), [(1, 6), (2, 5), (3, 4), (4, 4), (5, 2), (6, 1), (7, None), (9, None)])
def test_at_most_so_many_messages_are_kept_and_no_call_without_its_result(most: int, first_kept: int | None) -> None:
    context = [user("a"), assistant("b"), call("read", {}), tool_result("x"), user("c"), assistant("d"), user("e")]
    plan = compaction.prepare_compaction(context, compaction.CompactionSettings(keep_recent_messages=most))
    assert (None if plan is None else plan.first_kept_index) == first_kept


def test_the_last_message_stays_with_its_call_where_one_message_is_kept() -> None:
    context = [user("a"), assistant("b"), user("c"), call("read", {}), tool_result("x"), tool_result("y")]
    plan = existing(compaction.prepare_compaction(context, compaction.CompactionSettings(keep_recent_messages=1)))
    assert plan.first_kept_index == 3


def test_whichever_keeps_less_decides_tokens_or_messages() -> None:
    context = [user("a" * 40), assistant("b" * 40), user("c" * 40), assistant("d" * 40)]
    for tokens, most, first_kept in ((10, 3, 3), (20, 1, 3), (20, 3, 2), (1_000, 2, 2)):
        settings = compaction.CompactionSettings(keep_recent_tokens=tokens, keep_recent_messages=most)
        plan = existing(compaction.prepare_compaction(context, settings))
        assert plan.first_kept_index == first_kept


def test_zero_usage_does_not_hide_the_size_before_compaction() -> None:
    context = [user("a"), assistant("b", usage=usage(700)), user("c"), assistant("d", usage=usage())]
    assert planned(context, keep=1).tokens_before == 702


def test_a_split_turn_without_history_carries_the_previous_summary() -> None:
    context = [user("[Context Summary]\n\nold"), user("turn"), assistant("b" * 80), assistant("c" * 80)]
    previous = compaction.PreviousCompaction("old", 1)
    assert planned(context, 20, previous).carried_history == "old"
    assert planned(context, 20).messages_to_summarize == (context[0],)
    assert planned(context[1:], 20).carried_history == "No prior history."


def test_a_carried_summary_leaves_its_file_lists_behind_because_they_are_appended_anew() -> None:
    context = [user("summary"), user("turn"), assistant("b" * 80), assistant("c" * 80)]
    details: JsonObject = {"readFiles": ["r"], "modifiedFiles": []}
    previous = compaction.PreviousCompaction("old\n\n<read-files>\nr\n</read-files>", 1, details)
    plan = planned(context, 20, previous)
    assert plan.carried_history == "old"
    assert plan.read_files == ("r",)


def test_files_of_the_kept_part_are_not_listed_and_modified_files_are_not_listed_as_read() -> None:
    context = [
        user("q"), call("read", {"path": "early"}), call("read", {"path": "both"}), call("edit", {"path": "both"}),
        user("n"), call("read", {"path": "late"}), assistant("y" * 40),
    ]  # fmt: skip
    details: JsonObject = {"readFiles": ["before", 5], "modifiedFiles": "odd"}
    plan = planned(context, 11, compaction.PreviousCompaction("s", 0, details))
    assert plan.first_kept_index == 5
    assert plan.read_files == ("before", "early")
    assert plan.modified_files == ("both",)


def plan_of(drawn: Plannable) -> compaction.CompactionPlan:
    previous = compaction.PreviousCompaction("s", drawn.start) if drawn.start else None
    return planned(drawn.context, drawn.keep, previous)


@given(plannable())
def test_a_plan_makes_progress_and_never_keeps_a_tool_result_first(drawn: Plannable) -> None:
    context, start, plan = drawn.context, drawn.start, plan_of(drawn)
    assert start < plan.first_kept_index < len(context)
    assert context[plan.first_kept_index]["role"] in ("user", "assistant")
    assert plan.messages_to_summarize + plan.turn_prefix == tuple(context[start : plan.first_kept_index])


@given(messages, budgets, st.integers(0, 4))
def test_a_plan_for_any_context_makes_progress(context: list[JsonObject], keep: int, start: int) -> None:
    plan = compaction.prepare_compaction(context, keeping(keep), compaction.PreviousCompaction("s", start))
    assert plan is None or start < plan.first_kept_index < len(context)


@given(plannable())
def test_a_turn_prefix_is_the_one_turn_that_the_cut_splits(drawn: Plannable) -> None:
    context, plan = drawn.context, plan_of(drawn)
    roles = [message["role"] for message in plan.turn_prefix]
    assert bool(roles) is plan.is_split_turn
    assert roles.count("user") == int(plan.is_split_turn)
    assert roles[:1] in ([], ["user"])
    assert not (plan.is_split_turn and context[plan.first_kept_index]["role"] == "user")


@given(context=messages, keep=budgets)
def test_by_default_a_tail_as_large_as_the_budget_is_always_cut_off(context: list[JsonObject], keep: int) -> None:
    sizes = [compaction.estimate_tokens(message) for message in context]
    tails = [
        n
        for n, message in enumerate(context)
        if message["role"] in ("user", "assistant") and sum(sizes[n:]) >= keep and not may_part_an_exchange(context, n)
    ]
    plan = compaction.prepare_compaction(context, keeping(keep))
    assert (plan is not None) or not any(tails)


def may_part_an_exchange(context: list[JsonObject], cut: int) -> bool:
    """Return whether a call lies before a cut and a result behind it: where they belong together, no cut is made."""
    return "toolCall" in str(context[:cut]) and any(message["role"] == "toolResult" for message in context[cut:])


@given(context=messages, keep=budgets, more=budgets)
def test_a_larger_budget_never_keeps_less(context: list[JsonObject], keep: int, more: int) -> None:
    small = compaction.prepare_compaction(context, keeping(keep))
    large = compaction.prepare_compaction(context, keeping(keep + more))
    assert large is None or (small is not None and large.first_kept_index <= small.first_kept_index)


@given(plannable(most_before=0))
def test_compacting_again_at_once_finds_nothing_to_do(drawn: Plannable) -> None:
    plan = plan_of(drawn)
    compacted = [user("[Context Summary]\n\ns"), *drawn.context[plan.first_kept_index :]]
    assert compaction.prepare_compaction(compacted, keeping(drawn.keep), compaction.PreviousCompaction("s", 1)) is None


@given(context=messages, keep=budgets)
def test_planning_is_deterministic_and_changes_no_message(context: list[JsonObject], keep: int) -> None:
    before = copy.deepcopy(context)
    first = compaction.prepare_compaction(context, keeping(keep))
    assert first == compaction.prepare_compaction(before, keeping(keep))
    assert context == before


@given(context=odd_messages, keep=budgets)
def test_messages_of_any_shape_are_planned(context: list[JsonObject], keep: int) -> None:
    plan = compaction.prepare_compaction(context, keeping(keep), compaction.PreviousCompaction("s", 0))
    assert plan is None or 0 < plan.first_kept_index < len(context)


@dataclass(frozen=True)
class Latest:
    summary: str
    details: JsonObject | None = None


def session_items(context: list[JsonObject], **kinds: str) -> list[Item]:
    return [Item(f"e{n}", message, kinds.get(f"e{n}", "message")) for n, message in enumerate(context)]


def test_a_session_plan_names_the_entry_of_the_first_kept_message() -> None:
    items = session_items([user("a" * 40), assistant("b" * 40), user("c" * 40)])
    outcome = compaction.plan_session_compaction(items, None, keeping(10))
    assert isinstance(outcome, compaction.SessionCompactionPlan)
    assert outcome.first_kept_entry_id == "e2"
    assert outcome.plan.previous_summary is None


def test_a_session_plan_continues_the_latest_compaction() -> None:
    context = [user("[Context Summary]\n\nold"), user("a" * 40), assistant("b" * 40), user("c" * 40)]
    latest = Latest("old", {"readFiles": ["r"], "modifiedFiles": []})
    outcome = compaction.plan_session_compaction(session_items(context, e0="compaction"), latest, keeping(10))
    assert isinstance(outcome, compaction.SessionCompactionPlan)
    assert outcome.plan.messages_to_summarize == tuple(context[1:3])
    assert outcome.plan.previous_summary == "old"
    assert outcome.plan.read_files == ("r",)


def test_a_session_without_a_cut_point_says_so() -> None:
    assert compaction.plan_session_compaction([], None, keeping(10)) == compaction.NoCompaction("no_cut_point")


def test_a_cut_on_a_branch_summary_moves_to_the_next_message() -> None:
    context = [user("a" * 40), assistant("b" * 40), user("[Branch Summary]\n\n" + "s" * 40), assistant("tail")]
    items = session_items(context, e2="branch_summary")
    outcome = compaction.plan_session_compaction(items, None, keeping(10))
    assert isinstance(outcome, compaction.SessionCompactionPlan)
    assert outcome.first_kept_entry_id == "e3"
    assert outcome.plan.turn_prefix == (context[2],)


@given(context=messages, keep=budgets, summaries=st.sets(st.integers(0, 13)))
def test_a_session_is_always_cut_at_a_message_entry(context: list[JsonObject], keep: int, summaries: set[int]) -> None:
    kinds = {f"e{n}": "branch_summary" for n in summaries}
    by_id = {item.entry_id: item for item in session_items(context, **kinds)}
    outcome = compaction.plan_session_compaction(list(by_id.values()), None, keeping(keep))
    if isinstance(outcome, compaction.SessionCompactionPlan):
        assert by_id[outcome.first_kept_entry_id].kind == "message"
        assert by_id[outcome.first_kept_entry_id].data == context[outcome.plan.first_kept_index]
    else:
        assert outcome.reason == "no_cut_point"


# -- pins -------------------------------------------------------------------------------------------------------------


def test_what_is_pinned_is_not_summarized_and_counts_as_kept() -> None:
    context = [user(words) for words in ("a" * 40, "b" * 40, "c" * 40, "d" * 40)]
    items = session_items(context)
    plain = compaction.plan_session_compaction(items, None, keeping(15))
    pinned = compaction.plan_session_compaction(items, None, keeping(15), pinned={items[0].entry_id})
    assert isinstance(plain, compaction.SessionCompactionPlan)
    assert isinstance(pinned, compaction.SessionCompactionPlan)
    assert (plain.plan.first_kept_index, pinned.plan.first_kept_index) == (2, 3)
    assert plain.plan.messages_to_summarize == tuple(context[:2])
    assert pinned.plan.messages_to_summarize == tuple(context[1:3])


def test_what_was_pinned_and_is_no_more_is_summarized_now() -> None:
    context = [user(words) for words in ("summary", "p" * 40, "q" * 40, "c" * 40, "d" * 40)]
    items = session_items(context, e0="compaction")
    latest = Latest("so far")
    outcome = compaction.plan_session_compaction(items, latest, keeping(10), pinned={"e2"}, carried=["e1", "e2"])
    assert isinstance(outcome, compaction.SessionCompactionPlan)
    assert outcome.plan.messages_to_summarize == (context[1], context[3])
    assert outcome.first_kept_entry_id == "e4"


def test_there_is_nothing_to_compact_where_all_that_could_go_is_pinned() -> None:
    items = session_items([user("a" * 40), user("b" * 40), user("c" * 40)])
    outcome = compaction.plan_session_compaction(items, None, keeping(10), pinned={"e0", "e1"})
    assert outcome == compaction.NoCompaction("no_cut_point")


def test_a_cut_never_parts_a_call_from_a_result_that_comes_after_other_messages() -> None:
    context = [
        user("a" * 40), assistant("b" * 40), call("read", {"path": "x"}), assistant("c" * 40), user("d" * 40),
        tool_result("e" * 40), assistant("f" * 40), user("g" * 40),
    ]  # fmt: skip
    assert planned(context, keep=40).first_kept_index == 6
    items = [Item(f"e{n}", message) for n, message in enumerate(context)]
    session_plan = compaction.plan_session_compaction(items, None, keeping(40))
    assert isinstance(session_plan, compaction.SessionCompactionPlan)
    assert session_plan.first_kept_entry_id == "e6"
