"""What entries cost: as the ledger has it, else as they report it, else unknown."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.context import NO_CALLS, UNKNOWN_COST, UNTOLD, EntryCost, entry_cost, entry_costs, total_cost
from flue_py.core.usage import known_cost
from tests.render.entries import made
from tests.tables import inputs

PRICED = {"input": 1, "cost": {"total": 0.25}}
QUARTER = EntryCost(1, 0, 250_000_000_000)


@inputs(
    ("fields", "cost"),
    [
        ({"role": "user", "usage": PRICED}, None),
        ({"role": "toolResult"}, None),
        ({"role": "assistant", "usage": PRICED}, QUARTER),
        ({"role": "assistant", "usage": {"input": 1, "cost": {"input": 0.25}}}, QUARTER),
        ({"role": "assistant", "usage": {"input": 1, "cost": {"total": 0}}}, EntryCost(1, 0, 0)),
        ({"role": "assistant", "usage": {"input": 1}}, UNKNOWN_COST),
        ({"role": "assistant", "usage": {"input": 1, "cost": {}}}, UNKNOWN_COST),
        ({"role": "assistant"}, UNTOLD),
        ({"kind": "compaction", "usage": PRICED}, QUARTER),
        ({"kind": "compaction", "usage": {"input": 1}}, UNKNOWN_COST),
        ({"kind": "compaction", "summary": ""}, None),
        ({"kind": "branch_summary", "usage": PRICED}, QUARTER),
        ({"kind": "branch_summary", "summary": ""}, None),
        ({"kind": "note", "usage": PRICED}, None),
    ],
)
def test_an_entry_that_the_ledger_does_not_know_counts_as_it_reports(
    fields: dict[str, Any], cost: EntryCost | None
) -> None:
    assert entry_cost(made("a", **fields), {"b": QUARTER}) == cost


def test_what_the_ledger_has_goes_before_what_is_reported() -> None:
    priced = made("a", role="assistant", usage={"input": 1})
    assert entry_cost(priced, {"a": QUARTER}) == QUARTER
    assert entry_cost(made("a", role="assistant", usage=PRICED), {"a": UNKNOWN_COST}) == UNKNOWN_COST


def test_a_copy_costs_nothing() -> None:
    origin = json.dumps({"copiedFrom": {"session": "s", "entry": "a"}})
    copy = replace(made("b", role="assistant", usage=PRICED), extra=origin)
    assert entry_cost(copy, {"a": QUARTER}) is None
    assert entry_costs([made("a", role="assistant"), copy, made("c")], {"a": QUARTER}) == {"a": QUARTER}


def test_a_sum_is_known_where_any_part_is_more_than_nothing() -> None:
    assert total_cost([]) == NO_CALLS
    assert NO_CALLS.usd == Decimal(0)
    assert UNKNOWN_COST.usd is None
    both = total_cost([UNKNOWN_COST, QUARTER])
    assert (both, both.usd) == (EntryCost(2, 1, 250_000_000_000), Decimal("0.25"))
    assert (UNTOLD.usd, UNTOLD.is_whole) == (None, False)
    told = total_cost([UNTOLD, QUARTER])
    assert (told.calls, told.usd, told.is_whole) == (1, Decimal("0.25"), True)
    free = total_cost([EntryCost(1, 0, 0), UNKNOWN_COST])
    assert (free.is_known, free.usd) == (False, None)
    assert EntryCost(1, 0, 0).usd == Decimal(0)
    assert [known_cost(*known) for known in ((0, 0), (0, 1), (10**12, 1))] == [Decimal(0), None, Decimal(1)]


@given(st.lists(st.builds(EntryCost, *[st.integers(0, 9)] * 2, st.integers(0, 2**63), st.integers(0, 9))))
def test_sums_are_exact_in_any_order(costs: list[EntryCost]) -> None:
    one_by_one = NO_CALLS
    for cost in reversed(costs):
        one_by_one = cost.plus(one_by_one)
    assert one_by_one == total_cost(costs)
