"""Usage is exact, what entries cost, and which session the calls of deleted ones are counted for."""

from __future__ import annotations

import decimal
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.context import NO_CALLS, UNKNOWN_COST, UNTOLD, EntryCost, entry_cost, entry_costs, total_cost
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import owners_of_tasks
from flue_py.core.usage import (
    MAX_AMOUNT,
    NO_USAGE,
    PICODOLLARS_PER_DOLLAR,
    TOTAL_COLUMNS,
    Cost,
    Usage,
    UsageTotals,
    known_cost,
    picodollars_as_printed,
    picodollars_to_usd,
    read_reported,
    read_usage,
    reported_usage,
    usd_to_picodollars,
)
from flue_py.errors import InvalidEntry
from tests.conformance.calls import sum_usage
from tests.render.entries import made
from tests.tables import inputs

MAX_DOLLARS = MAX_AMOUNT // PICODOLLARS_PER_DOLLAR
TOKEN_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
COST_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "total")
FIELDS = [*TOKEN_FIELDS, *(f"cost.{name}" for name in COST_FIELDS)]

TOKENS = st.integers(0, 10**9)
DOLLARS = st.one_of(
    st.floats(0, 1000, allow_nan=False), st.integers(0, 1000), st.sampled_from([0.1, 0.2, 0.3, 1e-12, 5e-13, 4.9e-13])
)
USAGES = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.one_of(TOKENS, st.none()) for name in TOKEN_FIELDS},
        "cost": st.one_of(
            st.none(), st.fixed_dictionaries({}, optional={name: st.one_of(DOLLARS, st.none()) for name in COST_FIELDS})
        ),
    },
)


def rounded_half_up(dollars: Fraction) -> int:
    """Picodollars, from the definition: half a picodollar and more counts as one."""
    return math.floor(dollars * PICODOLLARS_PER_DOLLAR + Fraction(1, 2))


def as_fraction(amount: float | int | Decimal) -> Fraction:
    """What an amount stands for: a float for the shortest decimal that prints as it."""
    return Fraction(repr(amount)) if isinstance(amount, float) else Fraction(amount)


def expected(usage: JsonObject) -> UsageTotals:
    """The ten numbers of a reported usage, from the definition."""
    cost: Any = usage.get("cost") or {}
    tokens: list[Any] = [usage.get(name) or 0 for name in TOKEN_FIELDS]
    dollars = [rounded_half_up(as_fraction(cost.get(name) or 0)) for name in COST_FIELDS]
    if usage.get("totalTokens") is None:
        tokens[-1] = sum(tokens[:-1])
    if cost.get("total") is None:
        dollars[-1] = sum(dollars[:-1])
    return UsageTotals(*tokens, *dollars)


def with_field(field: str, value: Any) -> JsonValue:
    """A usage object in which one field is ``value``."""
    group, _, name = field.partition(".")
    return {group: value} if not name else {"cost": {name: value}}


# -- money ----------------------------------------------------------------------------------------------------------


@given(st.floats(0, MAX_DOLLARS) | st.floats(0, 1) | st.integers(0, 10**6).map(lambda halves: (halves + 0.5) / 10**12))
def test_a_float_is_rounded_half_up_once_from_its_shortest_decimal(amount: float) -> None:
    reported = read_usage({"cost": {"total": amount}}).cost_total
    assert usd_to_picodollars(amount) == reported == rounded_half_up(Fraction(repr(amount)))


@given(st.floats(0, 10_000) | st.integers(0, 10**16).map(lambda picodollars: picodollars / 10**12))
def test_dollars_of_few_places_are_picodollars_without_rounding_and_others_are_left_to_it(amount: float) -> None:
    printed = picodollars_as_printed(amount)

    assert printed in (None, usd_to_picodollars(amount))
    if amount < 4_000 and Fraction(repr(amount)) * 10**12 % 1 == 0:
        assert printed is not None


@inputs("amount", [-0.5, 4_000.0, float("nan"), float("inf"), 1e-13])
def test_what_may_have_to_be_rounded_or_refused_is_not_read_as_printed(amount: float) -> None:
    assert picodollars_as_printed(amount) is None


@given(st.decimals(0, MAX_DOLLARS, allow_nan=False, allow_infinity=False))
def test_a_decimal_of_any_length_is_rounded_half_up_once(amount: Decimal) -> None:
    assert usd_to_picodollars(amount) == rounded_half_up(Fraction(amount))
    assert usd_to_picodollars(str(amount)) == rounded_half_up(Fraction(amount))


@inputs(
    ("amount", "picodollars"),
    [
        (0, 0), (-0.0, 0), (1, 10**12), (0.1, 10**11), (0.1 + 0.2, 300_000_000_000), (1.1, 1_100_000_000_000),
        (0.000_000_000_000_5, 1), (0.000_000_000_000_499_999, 0), (0.000_000_000_001_5, 2), (0.000_000_000_002_5, 3),
        (5e-324, 0), (Decimal("0.0000000000005"), 1), (Decimal("0.00000000000049"), 0),
        (Decimal("0." + "0" * 12 + "4" + "9" * 60), 0),
        (Decimal("1234567." + "0" * 12 + "4" + "9" * 60), 1_234_567 * 10**12), (Decimal("1E-400"), 0),
        ("0.000000000001", 1), (MAX_DOLLARS, MAX_DOLLARS * 10**12),
    ],
    ids=repr,
)  # fmt: skip
def test_dollars_become_these_picodollars(amount: float | int | str | Decimal, picodollars: int) -> None:
    assert usd_to_picodollars(amount) == picodollars


def test_the_decimal_settings_of_the_caller_do_not_matter() -> None:
    amount, picodollars = 1234.567_890_123, 1_234_567_890_123_000
    with decimal.localcontext() as context:
        context.prec = 3
        context.rounding = decimal.ROUND_CEILING
        assert usd_to_picodollars(amount) == picodollars
        assert picodollars_to_usd(picodollars) == Decimal("1234.567890123")
    with decimal.localcontext() as context:
        context.traps[decimal.Inexact] = context.traps[decimal.Rounded] = context.traps[decimal.FloatOperation] = True
        assert usd_to_picodollars(0.000_000_000_001_5) == 2
        assert picodollars_to_usd(picodollars) == Decimal("1234.567890123")


@given(st.integers(-MAX_AMOUNT, MAX_AMOUNT))
def test_picodollars_are_shown_exactly(picodollars: int) -> None:
    assert Fraction(picodollars_to_usd(picodollars)) == Fraction(picodollars, PICODOLLARS_PER_DOLLAR)


@given(st.integers(0, MAX_DOLLARS * PICODOLLARS_PER_DOLLAR))
def test_a_shown_amount_comes_back_exactly(picodollars: int) -> None:
    assert usd_to_picodollars(picodollars_to_usd(picodollars)) == picodollars


@inputs(
    "amount",
    [
        -1, -1e-13, Decimal("-0.1"), "-1", math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"),
        Decimal("Infinity"), "nan", "inf", "", "abc", "1,5", "1 $", True, False, None, [], b"1", 10**5000, -(10**5000),
        1e300, MAX_DOLLARS + 1, Decimal("1E+400"), 1j,
    ],
    ids=lambda amount: repr(amount) if not isinstance(amount, int) else f"{str(type(amount))[8:-2]} {hash(amount)}",
)  # fmt: skip
def test_what_is_no_amount_of_money_is_refused_and_its_place_named(amount: Any) -> None:
    with pytest.raises(InvalidEntry, match=r"^here\.it\.was:"):
        usd_to_picodollars(amount, "here.it.was")


# -- reading what a provider reported -------------------------------------------------------------------------------


@given(USAGES)
def test_a_reported_usage_is_read_field_by_field(usage: JsonObject) -> None:
    assert read_usage(usage) == expected(usage)


def test_nothing_reported_is_zero() -> None:
    reports: list[JsonValue] = [None, {}, {"cost": None}, {"cost": {}}, dict.fromkeys(TOKEN_FIELDS)]
    for usage in reports:
        assert read_usage(usage) == NO_USAGE


def test_unknown_fields_are_ignored() -> None:
    assert read_usage({"tax": -1, "cost": {"tax": "x"}, "input": 1}) == UsageTotals(input=1, total_tokens=1)


def test_whole_floats_are_token_counts() -> None:
    assert read_usage({"input": 1e3, "output": -0.0}) == UsageTotals(input=1000, total_tokens=1000)


def test_the_largest_numbers_are_accepted() -> None:
    assert read_usage({"input": MAX_AMOUNT, "cost": {"total": MAX_DOLLARS}}) == UsageTotals(
        input=MAX_AMOUNT, total_tokens=MAX_AMOUNT, cost_total=MAX_DOLLARS * PICODOLLARS_PER_DOLLAR
    )


@inputs("field", FIELDS)
@inputs(
    "value",
    [-1, -0.5, math.nan, math.inf, -math.inf, True, False, "1", "", [], {}, [1], 2**62 + 1, 1e300, 10**5000],
    ids=lambda value: repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "huge",
)
def test_a_field_that_is_no_amount_is_not_counted_and_named(field: str, value: object) -> None:
    read = read_reported(with_field(field, value), "message.usage")
    assert (read.totals, read.cost, read.is_known) == (NO_USAGE, None, False)
    assert [odd.partition(":")[0] for odd in read.oddities] == [f"message.usage.{field}"]


@inputs("field", TOKEN_FIELDS)
def test_a_part_of_a_token_is_not_counted(field: str) -> None:
    read = read_reported({field: 1.5, "reasoning": 0})
    assert (read.totals, read.is_known, len(read.oddities)) == (NO_USAGE, True, 1)


@inputs("usage", [[], "x", 5, True, ""], ids=repr)
def test_what_is_no_usage_object_is_unknown_and_named(usage: Any) -> None:
    read = read_reported(usage, "message.usage")
    assert (read.totals, read.is_known) == (NO_USAGE, False)
    assert read.oddities[0].startswith("message.usage:")


@inputs("cost", [[], "x", True, "", -1, 1e300], ids=repr)
def test_what_is_no_cost_is_not_counted_and_named(cost: Any) -> None:
    read = read_reported({"input": 1, "cost": cost}, "message.usage")
    assert (read.totals, read.cost, read.is_known) == (UsageTotals(input=1, total_tokens=1), None, True)
    assert read.oddities[0].startswith("message.usage.cost:")


@inputs(
    ("kind", "role", "counts"),
    [
        ("message", "assistant", True), ("compaction", None, True), ("message", "user", False),
        ("message", "toolResult", False), ("branch_summary", None, False), ("custom", "assistant", False),
    ],
)  # fmt: skip
def test_assistant_messages_and_compactions_report_and_nothing_else_does(
    kind: str, role: str | None, counts: bool
) -> None:
    expected_totals = UsageTotals(input=5, total_tokens=5) if counts else NO_USAGE
    assert reported_usage(kind, role, {"usage": {"input": 5}}) == expected_totals
    assert reported_usage(kind, role, {}) == NO_USAGE


# -- sums and differences -------------------------------------------------------------------------------------------


@given(st.lists(USAGES, max_size=20))
def test_a_sum_is_that_of_fractions(usages: list[JsonObject]) -> None:
    total = sum_usage(usages).totals
    by_field = [[expected(usage)[n] for usage in usages] for n in range(len(TOTAL_COLUMNS))]
    assert total == UsageTotals(*[sum(Fraction(amount) for amount in amounts) for amounts in by_field])  # type: ignore[arg-type]
    assert all(type(amount) is int for amount in total)


@given(st.lists(USAGES, max_size=20), st.data())
def test_a_window_is_the_difference_of_two_running_totals(usages: list[JsonObject], data: st.DataObject) -> None:
    running = [NO_USAGE]
    for usage in usages:
        running.append(running[-1].plus(read_usage(usage)))
    since = data.draw(st.integers(0, len(usages)))
    leaf = data.draw(st.integers(since, len(usages)))
    assert running[leaf].minus(running[since]) == sum_usage(usages[since:leaf]).totals


@given(st.permutations([0.1, 0.2, 0.3, 1e-12, 1234.5, 1e-7]))
def test_the_order_of_a_sum_does_not_matter(amounts: list[float]) -> None:
    total = sum_usage({"cost": {"total": amount}} for amount in amounts)
    assert total.cost.usd == Decimal("1235.100000100001")


@inputs("position", range(len(TOTAL_COLUMNS)))
def test_a_sum_beyond_what_is_stored_is_refused(position: int) -> None:
    full = UsageTotals(*[MAX_AMOUNT if n == position else 0 for n in range(len(TOTAL_COLUMNS))])
    one = UsageTotals(*[1 if n == position else 0 for n in range(len(TOTAL_COLUMNS))])
    assert full.plus(NO_USAGE) == full
    with pytest.raises(InvalidEntry, match="usage"):
        full.plus(one)


@given(USAGES, USAGES)
def test_usages_add_up_as_their_totals_do(first: JsonObject, second: JsonObject) -> None:
    left, right = Usage.from_totals(read_usage(first)), Usage.from_totals(read_usage(second))
    assert (left + right).totals == left.totals.plus(right.totals) == (right + left).totals


# -- shapes ---------------------------------------------------------------------------------------------------------


def test_ten_numbers_become_a_usage_and_come_back() -> None:
    totals = UsageTotals(*range(1, 11))
    usage = Usage.from_totals(totals)
    assert usage == Usage(1, 2, 3, 4, 5, Cost(6, 7, 8, 9, 10))
    assert usage.totals == totals
    assert len(TOTAL_COLUMNS) == len(UsageTotals._fields)


@given(USAGES)
def test_the_json_of_a_usage_reads_back_as_it_was(usage: JsonObject) -> None:
    totals = read_usage(usage)
    shown = Usage.from_totals(totals).to_json()
    assert list(shown) == [*TOKEN_FIELDS, "cost"]
    assert read_usage(shown) == totals


def test_all_tokens_are_the_reported_total_or_the_sum_of_the_kinds() -> None:
    assert UsageTotals(1, 2, 3, 4, 100).tokens == 100
    assert UsageTotals(1, 2, 3, 4).tokens == 10
    assert NO_USAGE.tokens == 0


# -- What entries cost: as the ledger has it, else as they report it, else unknown --------------------------------


PRICED = {"input": 1, "cost": {"total": 0.25}}
QUARTER = EntryCost(1, 0, 250_000_000_000)


@inputs(
    ("fields", "cost"),
    [
        ({"role": "user", "usage": PRICED}, None), ({"role": "toolResult"}, None),
        ({"role": "assistant", "usage": PRICED}, QUARTER),
        ({"role": "assistant", "usage": {"input": 1, "cost": {"input": 0.25}}}, QUARTER),
        ({"role": "assistant", "usage": {"input": 1, "cost": {"total": 0}}}, EntryCost(1, 0, 0)),
        ({"role": "assistant", "usage": {"input": 1}}, UNKNOWN_COST),
        ({"role": "assistant", "usage": {"input": 1, "cost": {}}}, UNKNOWN_COST), ({"role": "assistant"}, UNTOLD),
        ({"kind": "compaction", "usage": PRICED}, QUARTER),
        ({"kind": "compaction", "usage": {"input": 1}}, UNKNOWN_COST), ({"kind": "compaction", "summary": ""}, None),
        ({"kind": "branch_summary", "usage": PRICED}, QUARTER), ({"kind": "branch_summary", "summary": ""}, None),
        ({"kind": "note", "usage": PRICED}, None),
    ],
)  # fmt: skip
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


# -- Which session the calls of deleted task sessions are counted for ---------------------------------------------


def test_a_task_belongs_to_the_nearest_session_above_that_has_paid() -> None:
    links = [("top", "a"), ("a", "b"), ("b", "c"), ("top", "d"), ("d", "e")]
    assert owners_of_tasks("top", links, {"b", "d"}) == {"a": "top", "b": "top", "c": "b", "d": "top", "e": "d"}


def test_cycles_and_several_parents_end_at_the_session_that_is_deleted() -> None:
    links = [("a", "b"), ("b", "a"), ("top", "a"), ("b", "top"), ("top", "b"), ("b", "b")]
    assert owners_of_tasks("top", links, {"a", "b", "top"}) == {"a": "top", "b": "top"}


def test_what_is_linked_from_elsewhere_only_belongs_to_nobody_here() -> None:
    assert owners_of_tasks("top", [("else", "a")], {"a"}) == {}
