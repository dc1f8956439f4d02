"""When a compaction is due: each trigger, what comes first, and what holds it back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.compaction import CompactionSettings, ContextBudget
from flue_py.compaction.settings import TriggerSettings
from flue_py.compaction.triggers import Attempt, Decision, Facts, GuardState, decide
from flue_py.core.context import ContextSize, ReportedSize
from flue_py.errors import InvalidArgument
from tests.tables import inputs

NEW = GuardState()


def size(tokens: int, window: int | None = 200_000) -> ContextSize:
    return ContextSize("tiktoken:o200k_base", tokens, tokens, window=window)


def facts(tokens: int = 1_000, window: int | None = 200_000, **known: object) -> Facts:
    return replace(Facts("before", size(tokens, window), NEW, turns_since=5), **known)


def decided(given: Facts, settings: CompactionSettings | None = None, **triggers: object) -> Decision:
    return decide(given, replace(TriggerSettings(), **triggers), settings or CompactionSettings())


def test_a_context_above_the_window_less_the_reserve_is_due() -> None:
    assert decided(facts(183_616)).action == "none"
    due = decided(facts(183_617))
    assert (due.action, due.trigger, due.threshold) == ("compact", "tokens", 183_616)
    for named in ("183,617 tokens", "tiktoken:o200k_base", "window of 200,000", "due above 183,616"):
        assert named in due.reason
    assert due.size.window == 200_000


def test_of_an_unknown_window_a_compaction_is_due_above_a_hundred_thousand_tokens_or_a_threshold() -> None:
    assert decided(facts(100_000, None)).action == "none"
    assert decided(facts(100_001, None)).threshold == 100_000
    assert decided(facts(101, None), threshold=100).trigger == "tokens"
    assert decided(facts(100, None), threshold=100).action == "none"
    assert decided(facts(10**9), threshold=0).action == "none"


def test_a_small_window_reserves_a_quarter() -> None:
    assert decided(facts(3_001, 4_000)).trigger == "tokens"
    assert decided(facts(3_000, 4_000)).action == "none"


@inputs("reported", [250_000, 190_000])
def test_a_report_that_is_not_believed_triggers_nothing_and_is_told(reported: int) -> None:
    measured = replace(size(10_000), system=0, tools=0, trailing=0, reported=ReportedSize(reported, "e1", 3))
    held = decided(facts(size=measured))
    assert (held.action, held.held_by) == ("held", "disbelieved_report")
    for named in (f"{reported:,}", "10,000 tokens", "tiktoken:o200k_base", "200,000", "183,616"):
        assert named in held.reason


def test_answers_are_counted() -> None:
    assert decided(facts(turns=500)).action == "none"
    due = decided(facts(turns=50), trigger_turns=50)
    assert (due.trigger, due.keep_turns, due.threshold) == ("turns", 10, 50)
    assert decided(facts(turns=49), trigger_turns=50).action == "none"


def test_a_budget_warns_once_in_a_cycle_and_then_cuts_over() -> None:
    budget = ContextBudget(warn_at=100, cutover_at=200)
    assert decided(facts(agent="ann", input_tokens=99), budget=budget).action == "none"
    warning = decided(facts(agent="ann", input_tokens=100), budget=budget)
    assert (warning.action, warning.trigger, warning.threshold, warning.agent) == ("warn", "input_budget", 100, "ann")
    told = NEW.with_warning("ann")
    assert decided(facts(agent="ann", input_tokens=199, state=told), budget=budget).action == "none"
    assert decided(facts(agent="bob", input_tokens=199, state=told), budget=budget).action == "warn"
    assert decided(facts(agent="ann", input_tokens=200, state=told), budget=budget).action == "compact"
    assert told.in_cycle("c1").warned == frozenset()


def test_an_agent_may_have_a_budget_of_its_own() -> None:
    own = {"ann": ContextBudget(cutover_at=10)}
    assert decided(facts(agent="ann", input_tokens=10), agent_budgets=own).action == "compact"
    assert decided(facts(agent="bob", input_tokens=10), agent_budgets=own).action == "none"


def test_what_comes_first() -> None:
    everything = facts(190_000, turns=60, input_tokens=500, state=replace(NEW, wanted=""))
    limits = {"trigger_turns": 50, "budget": ContextBudget(cutover_at=1), "single_call_limit": 100}
    assert decided(replace(everything, moment="overflow"), **limits).trigger == "overflow"
    assert decided(replace(everything, moment="demand"), **limits).trigger == "demand"
    assert decided(everything, **limits).trigger == "single_call_limit"
    assert decided(everything, **limits | {"single_call_limit": 0}).trigger == "tokens"
    small = replace(everything, size=size(10))
    assert decided(small, **limits).trigger == "turns"
    assert decided(small, **limits | {"trigger_turns": 0}).trigger == "agent_requested"
    assert decided(replace(small, state=NEW), **limits | {"trigger_turns": 0}).trigger == "input_budget"


@inputs(
    ("since", "moment", "action"),
    [
        (0, "before", "held"),
        (0, "after", "held"),
        (1, "after", "held"),
        (1, "before", "compact"),
        (None, "before", "compact"),
    ],
)
def test_the_turn_after_a_compaction_is_free_of_turns_and_budgets(since: int | None, moment: str, action: str) -> None:
    given = facts(turns=60, turns_since=since, moment=moment)
    assert decided(given, trigger_turns=50).action == action
    assert decided(replace(given, turns=0, input_tokens=9), budget=ContextBudget(cutover_at=1)).action == action
    assert decided(replace(given, size=size(500)), trigger_turns=50, single_call_limit=100).action == "compact"
    assert decided(replace(given, size=size(190_000)), trigger_turns=50).trigger == "tokens"


def test_nothing_is_due_right_after_a_compaction() -> None:
    given = facts(190_000, is_new=False, turns_since=0)
    assert decided(given, single_call_limit=10).held_by == "nothing_new"


def test_failures_in_a_row_hold_back_all_that_nobody_asked_for() -> None:
    failed = NEW.with_failure().with_failure()
    assert decided(facts(190_000, state=failed)).action == "compact"
    failed = failed.with_failure()
    held = decided(facts(190_000, state=failed))
    assert (held.action, held.held_by, held.trigger) == ("held", "breaker", "tokens")
    for asked in ("demand", "overflow"):
        assert decided(facts(190_000, state=failed, moment=asked)).action == "compact"
    assert decided(facts(190_000, state=failed.with_attempt(1, 0.5))).held_by == "breaker"
    assert decided(facts(190_000, state=failed.with_success(1, 0.5))).action == "compact"
    assert decided(facts(190_000, state=failed), max_failures=0).action == "compact"


def test_what_freed_next_to_nothing_is_not_tried_again_until_the_context_has_grown() -> None:
    state = NEW.with_success(190_000, 0.049)
    assert decided(facts(190_000, state=state)).held_by == "no_progress"
    assert decided(facts(199_500, state=state)).held_by == "no_progress"
    assert decided(facts(199_501, state=state)).action == "compact"
    assert decided(facts(190_000, state=NEW.with_success(190_000, 0.05))).action == "compact"


def test_thrashing_is_held_back_until_the_context_has_grown() -> None:
    state = NEW
    for _ in range(9):
        state = state.with_success(185_000, 0.09)
    assert decided(facts(190_000, state=state)).action == "compact"
    state = state.with_success(185_000, 0.09)
    assert decided(facts(190_000, state=state)).held_by == "thrash"
    assert decided(facts(203_501, state=state)).action == "compact"
    assert decided(facts(190_000, state=state.with_success(185_000, 0.1))).action == "compact"
    assert decided(facts(190_000, state=state), thrash_window=0).action == "compact"
    assert decided(facts(190_000, state=state), thrash_share=0).action == "compact"
    fruitless = NEW.with_success(185_000, 0.0)
    assert decided(facts(186_000, state=fruitless)).held_by == "no_progress"
    for off in ("thrash_window", "thrash_share", "least_share"):
        assert decided(facts(186_000, state=fruitless), **{off: 0}).action == "compact"


def test_switched_off_nothing_but_demand_compacts() -> None:
    for off in ({"auto": False}, {"settings": CompactionSettings(enabled=False)}):
        for moment in ("before", "after", "resume", "overflow"):
            assert decided(facts(10**6, moment=moment), **off).action == "none"  # type: ignore[arg-type]
        assert decided(facts(moment="demand"), **off).action == "compact"  # type: ignore[arg-type]
    assert decided(facts(10**6, moment="resume"), on_resume=False).action == "none"
    assert decided(facts(10**6, moment="resume")).trigger == "tokens"


def test_instructions_are_those_of_who_asks() -> None:
    asked = facts(moment="demand", instructions="mind the tests", state=replace(NEW, wanted="mind the docs"))
    assert decided(asked).instructions == "mind the tests"
    assert decided(replace(asked, moment="before", instructions=None)).instructions == "mind the docs"


def test_the_state_survives_json() -> None:
    state = GuardState(
        2, (Attempt(10, 0.25), Attempt(7, 0.0)), "c1", frozenset({"", "ann"}), frozenset({"thrash"}), "", "e"
    )
    assert GuardState.from_json(state.to_json()) == state
    assert NEW.to_json() == {}
    assert GuardState.from_json({}) == NEW
    for damaged in (None, 7, [], {"failures": True, "attempts": [1, [2], ["a", 1]], "cycle": 3, "warned": "x"}):
        assert GuardState.from_json(damaged) == NEW  # type: ignore[arg-type]


@inputs(
    ("wrong", "named"),
    [
        ({"trigger_turns": -1}, "trigger_turns"),
        ({"trigger_turns": 10}, r"keep_recent_turns \(10\) must be less than trigger_turns \(10\)"),
        ({"trigger_turns": 10, "keep_recent_turns": 0}, "keep_recent_turns"), ({"threshold": -1}, "threshold"),
        ({"least_share": 1.5}, "least_share"), ({"thrash_share": True}, "thrash_share"), ({"auto": 1}, "auto"),
        ({"budget": 7}, "budget"), ({"agent_budgets": {"ann": 7}}, "agent_budgets"),
        ({"agent_budgets": 7}, "agent_budgets"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        TriggerSettings(**wrong)  # type: ignore[arg-type]
