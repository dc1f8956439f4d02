"""Prices in their written forms, and the cost of calls at these prices."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.usage import MAX_AMOUNT, PaidCall, UsageTotals
from flue_py.errors import InvalidEntry, InvalidPrices
from flue_py.prices import ModelRates, parse_pricing, per_token, read_pricing
from tests.tables import inputs


def call(*tokens: int, hour: int = 0, reasoning: int = 0) -> PaidCall:
    """Return a call with these tokens of input, output, cache reads and cache writes."""
    return PaidCall(UsageTotals(*tokens), "p", "m", cache_write_1h=hour, reasoning=reasoning)


def rates(value: object) -> ModelRates:
    """Return the rates of one model."""
    return read_pricing({"m": value}, "prices")["m"]


def test_every_price_is_in_dollars_per_million_tokens_unless_it_or_the_file_says_otherwise() -> None:
    forms = {"pair": [3, 15], "object": {"input": 3, "output": 15}}
    by_thousand = {"per": 1000, "pair": [0.003, 0.015], "object": {"input": 0.003, "output": 0.015}}
    mixed = {"per": 1000, "pair": [0.003, 0.015], "object": {"input": 3, "output": 15, "per": 1_000_000}}
    for written in (forms, by_thousand, mixed):
        assert [each.cost_of(call(1000, 1000)) for each in read_pricing(written, "f").values()] == [18 * 10**9] * 2
    assert read_pricing({"per": [3, 15]}, "f").keys() == {"per"}
    with pytest.raises(InvalidPrices, match="f: per: 10 is neither"):
        read_pricing({"per": 10, "m": [1, 2]}, "f")


def test_an_object_may_say_its_unit() -> None:
    by_million = {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75, "cacheWrite1h": 6}
    by_thousand = {name: Decimal(str(price)) / 1000 for name, price in by_million.items()}
    used = call(10, 20, 30, 50, hour=40)
    expected = 10 * 3_000_000 + 20 * 15_000_000 + 30 * 300_000 + 10 * 3_750_000 + 40 * 6_000_000
    assert rates(by_million).cost_of(used) == rates({**by_million, "per": 1_000_000}).cost_of(used) == expected
    assert rates({**by_thousand, "per": 1000}).cost_of(used) == expected


def test_what_has_no_price_of_its_own_costs_what_it_is_a_kind_of() -> None:
    assert rates([1, 2]).cost_of(call(1, 10, 100, 1000, hour=600, reasoning=7)) == (1101 * 1 + 10 * 2) * 10**6
    with_write = rates({"input": 1, "output": 2, "cacheWrite": 4, "reasoning": 8})
    assert with_write.cost_of(call(0, 10, 0, 10, hour=5, reasoning=5)) == (10 * 4 + 5 * 2 + 5 * 8) * 10**6


def test_a_cost_is_rounded_half_up_once() -> None:
    half = rates({"input": "0.0000005", "output": 0})
    assert [half.cost_of(call(tokens)) for tokens in (0, 1, 2, 3)] == [0, 1, 1, 2]


@given(
    st.lists(st.integers(0, 10**10), min_size=4, max_size=4), st.decimals(0, 100, places=9), st.decimals(0, 9, places=3)
)
def test_a_cost_is_exact(tokens: list[int], price: Decimal, other: Decimal) -> None:
    model = rates({"input": price, "output": other})
    exact = (sum(tokens) - tokens[1]) * Fraction(price) * 10**6 + tokens[1] * Fraction(other) * 10**6
    assert abs(model.cost_of(call(*tokens)) - exact) <= Fraction(1, 2)


def test_a_cost_beyond_what_is_stored_is_refused() -> None:
    with pytest.raises(InvalidEntry, match="more than can be stored"):
        rates([10**6, 0]).cost_of(call(MAX_AMOUNT))


@inputs(
    ("value", "said"),
    [
        ([1], "1 prices"), ([1, 2, 3], "3 prices"), ([1, -2], "output: -2 is not a price"),
        ([True, 2], "input: True is not a number"), ([1, None], "output: None is not a number"),
        (["x", 1], "input: 'x' is not a number"), ([float("nan"), 1], "input: nan is not a price"),
        ([Decimal("Infinity"), 1], "is not a price"), ([Decimal("1e-99999"), 1], "is not a price"),
        ([10**10, 1], "is not a price"), ({"input": 1}, "no price of output"),
        ({"input": 1, "output": 1, "cache": 2}, "'cache' is not one of"),
        ({"input": 1, "output": 1, "per": 10}, "per: 10 is neither"),
        ({"input": 1, "output": 1, "per": True}, "per: True is neither"), (7, "is 7; write"),
    ],
)  # fmt: skip
def test_what_is_no_price_is_refused_by_model_and_field(value: object, said: str) -> None:
    with pytest.raises(InvalidPrices, match="prices: model 'm'") as caught:
        rates(value)
    assert said in str(caught.value)


@inputs(
    ("text", "said"),
    [
        ('{\n"m": [1, 2],\n"n": [1 2]}', "pricing.json, line 3"), ('{"m": [1, 2], "m": [1, 2]}', "'m' is there twice"),
        ('{"m": [NaN, 2]}', "NaN is not a number"), ("[]", "should be an object"),
        ('{"": [1, 2]}', "not the name of a model"), ("", "line 1"), ("[" * 100_000, "pricing.json"),
    ],
)  # fmt: skip
def test_a_pricing_file_that_is_none_is_refused_by_line_or_model(text: str, said: str) -> None:
    with pytest.raises(InvalidPrices) as caught:
        parse_pricing(text, "pricing.json")
    assert said in str(caught.value)


def test_a_pricing_file_is_exact() -> None:
    model = parse_pricing('{"m": [0.1, 0.3000000000000000000000000004]}', "f")["m"]
    assert model.cost_of(call(10)) == 10**6
    assert Fraction(model.output, model.scale) == per_token(Decimal("0.3000000000000000000000000004"), 10**6)
