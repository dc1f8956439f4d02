"""A price book: which price is taken, from where, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import to_microseconds
from flue_py.core.usage import PaidCall, UsageTotals, read_call, usd_to_picodollars
from flue_py.errors import InvalidArgument, InvalidPrices, StoreWarning
from flue_py.prices import PRICING_VARIABLE, PriceBook, choose_prices, published_prices
from tests.tables import inputs
from tests.values import existing

NOW = to_microseconds(datetime(2026, 5, 1, 12, tzinfo=UTC))
MILLION = 10**12
"""A dollar in picodollars: what a million tokens cost at a dollar a million."""


def now() -> int:
    """Return the time at which everything here is priced."""
    return NOW


def call(provider: str = "openai", model: str = "gpt-4o", **usage: object) -> PaidCall:
    """Return a call of a million tokens of input, unless it says otherwise."""
    return read_call({"input": 10**6, "provider": provider, "model": model, **usage}, "usage")  # type: ignore[dict-item]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the usual pricing file is; it is not there yet."""
    path = tmp_path / "pricing.json"
    monkeypatch.setenv(PRICING_VARIABLE, str(path))
    return path


def write(path: Path, text: str, at: int) -> None:
    """Write a file, changed at that second."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at, at))


def test_a_reported_cost_wins_over_every_price() -> None:
    book = PriceBook({"gpt-4o": [7000, 7000]})
    for reported in ({"total": 0.5}, {"total": 0}):
        priced = book.priced(call(cost=reported), now)
        assert (priced.known_cost, priced.source) == (usd_to_picodollars(reported["total"]), "reported")


def test_given_prices_go_before_published_ones_and_a_provider_before_a_model() -> None:
    book = PriceBook({"gpt-4o": [1000, 1000], "azure/gpt-4o": [2000, 2000]})
    assert [book.priced(call(provider), now).cost for provider in ("openai", "azure")] == [
        1000 * MILLION,
        2000 * MILLION,
    ]
    assert book.priced(call(), now).source == "prices"


def test_published_prices_are_taken_where_there_is_no_other(file: Path) -> None:
    priced = PriceBook(file=file).priced(call(), now)
    assert priced.cost == usd_to_picodollars(Decimal("2.5"))
    assert str(priced.source).startswith("genai-prices ")


@inputs("made", [call(model="no-such-model"), call("nobody"), call(model=""), call("", "")])
def test_an_unknown_model_has_no_cost_and_never_0(made: PaidCall) -> None:
    assert PriceBook().priced(made, now) == made
    assert (made.known_cost, made.source) == (None, None)


def test_a_model_without_a_price_of_what_was_used_has_no_cost() -> None:
    embedding = call(model="text-embedding-3-small")
    assert PriceBook().priced(embedding, now).cost is not None
    assert PriceBook().priced(call(model="text-embedding-3-small", output=1), now).cost is None


def test_a_price_is_that_of_the_time_of_the_call() -> None:
    book = PriceBook()
    day = to_microseconds(datetime(2025, 5, 1, tzinfo=UTC))
    later = to_microseconds(datetime(2026, 5, 1, tzinfo=UTC))
    costs = {moment: book.priced(call("openai", "o3"), lambda moment=moment: moment).cost for moment in (day, later)}
    assert costs == {day: 10 * MILLION, later: 2 * MILLION}
    assert book.priced(PaidCall(UsageTotals(10**6), "openai", "o3", at_us=day), now).cost == 10 * MILLION


kinds = st.integers(0, 10**7)


@given(st.sampled_from(range(0, 4000, 13)), kinds, kinds, kinds, st.integers(0, 10**6), st.fractions(0, 1))
def test_published_prices_come_to_what_their_own_library_says(
    pick: int, given_: int, output: int, read: int, write_: int, share: object
) -> None:
    models = [(provider, model) for provider in get_snapshot().providers for model in provider.models]
    provider, model = models[pick % len(models)]
    hour = int(write_ * share)  # type: ignore[operator]
    paid = PaidCall(UsageTotals(given_, output, read, write_), provider.id, model.id, cache_write_1h=hour)
    published = existing(published_prices())
    rates = published.rates_for(paid, NOW)
    if rates is None:
        return
    usage = Usage(
        input_tokens=given_ + read + write_, output_tokens=output, cache_read_tokens=read, cache_write_tokens=write_,
        cache_write_1h_tokens=hour, cache_write_5m_tokens=write_ - hour,
    )  # fmt: skip
    moment = datetime(2026, 5, 1, 12, tzinfo=UTC)
    theirs = calc_price(usage, model.id, provider_id=provider.id, genai_request_timestamp=moment).total_price
    assert abs(rates.cost_of(paid) - theirs * MILLION) <= 1


def test_the_pricing_file_is_read_again_when_it_changes(file: Path) -> None:
    book = existing(choose_prices(None))
    assert book.priced(call(model="mine"), now).cost is None
    write(file, '{"mine": [1, 0]}', 1)
    assert book.priced(call(model="mine"), now).cost == MILLION
    assert book.priced(call(model="mine"), now).source == "pricing.json"
    write(file, '{"mine": [2, 0]}', 2)
    assert book.priced(call(model="mine"), now).cost == 2 * MILLION
    write(file, '{"mine": [3, -1]}', 3)
    with pytest.warns(StoreWarning, match="model 'mine': output"):
        assert book.priced(call(model="mine"), now).cost == 2 * MILLION
    assert book.priced(call(model="mine"), now).cost == 2 * MILLION
    file.unlink()
    assert book.priced(call(model="mine"), now).cost is None


def test_prices_can_be_a_mapping_a_book_a_path_or_off(file: Path) -> None:
    write(file, '{"mine": [1, 0]}', 1)
    book = PriceBook({"mine": [1000, 1000]}, published=False)
    assert choose_prices(book) is book
    assert book.priced(call(), now).cost is None
    assert choose_prices(False) is None
    for choice in (str(file), file, {"mine": [1, 0]}, {"mine": {"input": 1, "output": 1}}):
        chosen = existing(choose_prices(choice))
        assert chosen.priced(call(model="mine"), now).cost == MILLION


def test_what_is_no_prices_is_refused(file: Path) -> None:
    for choice in (True, 7, b"x", ["x"], "", "a\0b"):
        with pytest.raises(InvalidArgument):
            choose_prices(choice)  # type: ignore[arg-type]
    with pytest.raises(InvalidPrices, match="no such pricing file"):
        choose_prices(file)
    for text in ('{"m": 1}', "{"):
        write(file, text, 1)
        with pytest.raises(InvalidPrices, match=r"pricing\.json"):
            choose_prices(None)
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidPrices, match="not UTF-8"):
        choose_prices(None)
    file.unlink()
    file.mkdir()
    with pytest.raises(InvalidPrices, match="cannot be read"):
        choose_prices(None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_home_that_may_not_be_looked_into_has_no_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FLUE_PY_PRICING", raising=False)
    tmp_path.chmod(0)
    try:
        assert choose_prices(None) is not None
    finally:
        tmp_path.chmod(0o700)
