"""Warning and cutover by the input tokens of a cycle, from one compaction to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.compaction.settings import ContextBudget, ContextSignal, context_signal, input_tokens
from flue_py.core.usage import Usage, UsageWindow
from flue_py.errors import InvalidArgument
from tests.tables import inputs


def window(tokens: int, since: str | None = None) -> UsageWindow:
    return UsageWindow(Usage(input=tokens), "leaf", since)


def signals(budget: ContextBudget, calls: list[int]) -> list[ContextSignal]:
    """Return what is said after each call of a cycle, by the input tokens of the calls."""
    said: list[ContextSignal] = []
    before = None
    total = 0
    for tokens in calls:
        total += tokens
        cycle = window(total)
        said.append(context_signal(budget, cycle, before=before))
        before = cycle
    return said


def test_the_call_that_reaches_a_limit_says_so_and_a_warning_is_said_once() -> None:
    budget = ContextBudget(warn_at=100, cutover_at=200)
    assert signals(budget, [99, 1, 50, 49, 1, 5]) == ["ok", "warn", "ok", "ok", "cutover", "cutover"]
    assert signals(budget, [300]) == ["cutover"]
    assert signals(ContextBudget(warn_at=100), [150, 500, 5_000]) == ["warn", "ok", "ok"]
    assert signals(ContextBudget(), [10**9]) == ["ok"]


def test_a_new_cycle_warns_anew() -> None:
    budget = ContextBudget(warn_at=100)
    assert context_signal(budget, window(120, "c1"), before=window(110)) == "warn"
    assert context_signal(budget, window(130, "c1"), before=window(120, "c1")) == "ok"
    assert context_signal(budget, window(110, "c1"), before=window(130, "c1")) == "ok"
    assert context_signal(budget, window(100, "c2"), before=window(5_000, "c1")) == "warn"


def test_cached_input_is_input_and_output_is_not() -> None:
    usage = Usage(input=1, output=1_000, cache_read=20, cache_write=300, total_tokens=1_321)
    assert input_tokens(usage) == 321
    assert context_signal(ContextBudget(warn_at=321), UsageWindow(usage, "leaf")) == "warn"
    assert context_signal(ContextBudget(warn_at=322), UsageWindow(usage, "leaf")) == "ok"


@inputs("field", ["warn_at", "cutover_at"])
@inputs("odd", [-1, 1.5, True, None, "5", 2**63])
def test_what_is_no_number_of_tokens_is_refused_by_name(field: str, odd: object) -> None:
    with pytest.raises(InvalidArgument, match=field):
        ContextBudget(**{field: odd})  # type: ignore[arg-type]


def test_a_cutover_without_compaction_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="compaction is off"):
        ContextBudget(cutover_at=1, can_compact=False)
    assert ContextBudget(warn_at=1, can_compact=False).cutover_at == 0
    with pytest.raises(InvalidArgument, match="can_compact"):
        ContextBudget(can_compact="no")  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(0, 2_000), st.integers(0, 2_000))
def test_a_cycle_warns_at_most_once_and_cuts_over_from_the_limit_on(calls: list[int], warn: int, cut: int) -> None:
    said = signals(ContextBudget(warn_at=warn, cutover_at=cut), calls)
    sums = [sum(calls[: number + 1]) for number in range(len(calls))]
    assert [signal == "cutover" for signal in said] == [0 < cut <= total for total in sums]
    reached = [number for number, total in enumerate(sums) if 0 < warn <= total]
    expected = [number for number in reached[:1] if not 0 < cut <= sums[number]]
    assert [number for number, signal in enumerate(said) if signal == "warn"] == expected


async def test_the_window_since_the_latest_compaction_is_a_cycle() -> None:
    def answer(tokens: int) -> flue_py.JsonObject:
        return {"role": "assistant", "content": "x", "usage": {"input": tokens, "totalTokens": tokens}}

    budget = ContextBudget(warn_at=100)
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        first = await session.append_message({"role": "user", "content": "x"})
        await session.append_message(answer(150))
        cycle = await session.money.aggregate_usage_since(None)
        assert context_signal(budget, cycle) == "warn"
        compaction = await session.append_compaction("s", first_kept_entry_id=first.entry_id, tokens_before=150)
        begun = await session.money.aggregate_usage_since(compaction.entry_id)
        assert (begun.usage, context_signal(budget, begun, before=cycle)) == (Usage(), "ok")
        await session.append_message(answer(100))
        after = await session.money.aggregate_usage_since(compaction.entry_id)
        assert context_signal(budget, after, before=cycle) == "warn"
