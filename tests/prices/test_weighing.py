"""What an edit costs and when it has paid for itself, worked out by hand."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.usage import UsageTotals
from flue_py.prices import (
    ASSUMED,
    CacheRules,
    CallPrice,
    CallSize,
    EditPrice,
    ModelRates,
    cache_rules,
    next_request,
    price_call,
    price_edit,
    read_rates,
    summary_call,
    turns_to_pay,
)
from tests.tables import inputs
from tests.values import existing

RATES = read_rates("m", {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}, "prices")
"""Dollars per million tokens: a token of input is 3 million picodollars."""
RULES = CacheRules(1_024, 1, 300, "anthropic")


def rates(_: UsageTotals) -> ModelRates:
    return RATES


def test_each_kind_of_token_has_its_own_price() -> None:
    size = CallSize(cache_read=1_000, cache_write=200, input=10, output=4)
    assert size.request == 1_210
    assert price_call(size, rates) == CallPrice(300_000_000, 750_000_000, 30_000_000, 60_000_000)
    assert price_call(size, lambda _: None) is None


@inputs(
    ("rules", "prefix", "kept"),
    [(RULES, 1_023, 0), (RULES, 1_024, 1_024), (CacheRules(1_024, 128, 300), 1_200, 1_152), (ASSUMED, 5_000, 5_000)],
)
def test_a_prefix_is_kept_from_the_shortest_on_and_in_steps(rules: CacheRules, prefix: int, kept: int) -> None:
    assert next_request(6_000, prefix, rules, is_warm=True) == CallSize(kept, 6_000 - kept)
    assert next_request(6_000, prefix, rules, is_warm=False) == CallSize(0, 6_000)


def test_a_compaction_is_priced_with_the_call_that_makes_it() -> None:
    unedited = next_request(100_000, 99_000, RULES, is_warm=True)
    after = next_request(20_000, 0, RULES, is_warm=True)
    edit = summary_call(unedited, 600, 2_000)
    assert edit == CallSize(99_000, 0, 1_600, 2_000)
    price = existing(price_edit(edit, after, unedited, RULES, rates))
    assert price.edit is not None
    # 99,000 read, 1,600 processed, 2,000 written; the next call writes 20,000 where it would have read 99,000.
    assert price.edit.total == 29_700_000_000 + 4_800_000_000 + 30_000_000_000
    assert price.next_call.total == 75_000_000_000
    assert price.next_unedited.total == 29_700_000_000 + 3_750_000_000
    assert price.extra == 64_500_000_000 + 75_000_000_000 - 33_450_000_000
    assert price.saved_per_call == 80_000 * 300_000
    # 106.05 thousandths of a dollar at 24 a call: the first call and five more.
    assert turns_to_pay(price) == (6, None)


def test_what_is_not_known_is_none_and_what_never_pays_says_why() -> None:
    size = CallSize(0, 5_000)
    assert price_edit(None, size, size, RULES, lambda _: None) is None
    assert turns_to_pay(None) == (None, "price_unknown")
    same = price_edit(None, size, size, RULES, rates)
    assert turns_to_pay(same) == (1, None)
    larger = price_edit(None, CallSize(0, 6_000), size, RULES, rates)
    assert turns_to_pay(larger) == (None, "saves_nothing")
    larger_but_cached = price_edit(None, CallSize(6_000), size, RULES, rates)
    assert turns_to_pay(larger_but_cached) == (None, "dearer_later")


amounts = st.integers(0, 10**12)


@given(st.tuples(amounts, amounts, amounts, amounts, amounts))
def test_the_number_of_turns_is_the_first_at_which_no_more_was_paid(paid: tuple[int, ...]) -> None:
    price = EditPrice(*(CallPrice(amount, 0, 0, 0) for amount in paid))
    turns, never = turns_to_pay(price)
    assert (turns is None) == (never is not None)
    if turns is None:
        assert price.saved_per_call <= 0
        return

    def more(calls: int) -> int:
        return price.extra - (calls - 1) * price.saved_per_call

    assert more(turns) <= 0
    assert turns == 1 or more(turns - 1) > 0


@inputs(
    ("model", "provider", "source", "least"),
    [
        ("claude-sonnet-5", None, "anthropic", 1_024), ("anthropic:claude-haiku-4-5", None, "anthropic", 4_096),
        ("anthropic/claude-haiku-4.5", "openrouter", "anthropic", 4_096),
        ("claude-opus-4-20250514", None, "anthropic", 1_024), ("claude-opus-4-7", None, "anthropic", 2_048),
        ("claude-opus-5-5", None, "anthropic", 512), ("claude-sonnet-5-5", None, "anthropic", 512),
        ("openai/gpt-5", None, "openai", 2_048), ("gpt-5-2025-08-07", None, "openai", 2_048),
        ("gpt-35-turbo", "openai", "openai", 2_048), ("gpt-5.6-luna", None, "openai", 1_024),
        ("gpt-6", None, "openai", 1_024), ("gemini-2.5-pro", "google-gla", "google", 2_048),
        ("gemini-3.5-flash", None, "google", 4_096), ("a-deployment", "openai", "openai", 2_048),
        ("llama3:8b", "ollama", None, 1_024), (None, None, None, 1_024),
    ],
)  # fmt: skip
def test_rules_go_by_provider_or_name(model: str | None, provider: str | None, source: str | None, least: int) -> None:
    rules = cache_rules(model, provider)
    assert (rules.source, rules.least_tokens) == (source, least)


@inputs(("model", "minutes"), [("claude-opus-5-5", 5), ("gpt-5", 5), ("gpt-5.6", 30), ("gpt-6-astra", 30)])
def test_rules_say_how_long_a_prefix_is_kept_at_least(model: str, minutes: int) -> None:
    assert cache_rules(model).lifetime_seconds == 60 * minutes


def test_tiers_hold_for_the_whole_call() -> None:
    asked = count()

    def by_size(usage: UsageTotals) -> ModelRates:
        next(asked)
        assert usage.total_tokens == usage.input + usage.output + usage.cache_read + usage.cache_write
        return RATES

    assert price_edit(CallSize(1, 2, 3, 4), CallSize(5, 6), CallSize(7, 8), RULES, by_size) is not None
    assert next(asked) == 5
