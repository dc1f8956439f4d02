"""Published prices, from the data that genai-prices brings along. No network.

Only the data is taken from there; the sum is computed here, exactly. If a model has no price for a kind of token that
a call used, the cost of the call is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from flue_py.core.calls import PaidCall
from flue_py.core.entries import from_microseconds
from flue_py.core.usage_fields import AS_TEXT, MODALITIES, REQUESTS, SEARCHES
from flue_py.prices.rates import PER_MILLION, PER_THOUSAND, ModelRates, model_rates, per_token

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_MOST_MODELS = 1_000
# The last one wins: a price of five-minute writes comes before one of writes.
_KINDS = {
    "input_mtok": ("input", PER_MILLION),
    "output_mtok": ("output", PER_MILLION),
    "cache_read_mtok": ("cache_read", PER_MILLION),
    "cache_write_mtok": ("cache_write", PER_MILLION),
    "cache_write_5m_mtok": ("cache_write", PER_MILLION),
    "cache_write_1h_mtok": ("cache_write_1h", PER_MILLION),
    "output_reasoning_mtok": ("reasoning", PER_MILLION),
    "requests_kcount": ("request", PER_THOUSAND),
    "web_searches_kcount": ("search", PER_THOUSAND),
}


class PublishedPrices:
    """The prices of one release of genai-prices. A model is looked up when a call first needs it."""

    def __init__(self, find: Callable[[str | None, str], ModelInfo], source: str) -> None:
        self._find = find
        self._source = source
        self._models: dict[tuple[str, str], ModelInfo | None] = {}
        self._rates: dict[tuple[int, int], tuple[object, ModelRates | None]] = {}

    def rates_for(self, call: PaidCall, at_us: int) -> ModelRates | None:
        """Return the rates for a call at its time; None if the model is unknown or has no price for its tokens."""
        model = self._model(call.provider, call.model)
        price = None if model is None else _price(model, _moment(at_us), dict(call.terms))
        if price is None:
            return None
        usage = call.usage
        read = usage.input + usage.cache_read + usage.cache_write
        prices: dict[str, object] = vars(price)
        tier = _tier(prices, read)
        if tier >= 0 and any(name == REQUESTS for name, _ in call.terms):
            return None
        known = self._rates.get((id(price), tier))
        # The price object is kept beside the rates, so that no other object can get its id.
        rates = known[1] if known is not None else self._note(price, tier, self._read(prices, read))
        if rates is None or (usage.output and prices.get("output_mtok") is None):
            return None
        return rates

    def window_of(self, provider: str, model: str) -> int | None:
        """Return the context window of a model in tokens; None if it is unknown."""
        found = self._model(provider, model)
        window = None if found is None else found.context_window
        return window if window is not None and window > 0 else None

    def _model(self, provider: str, name: str) -> ModelInfo | None:
        if (provider, name) in self._models:
            return self._models[provider, name]
        if len(self._models) >= _MOST_MODELS:
            self._models.clear()
        try:
            model = self._find(provider or None, name)
        except LookupError:
            model = None
        self._models[provider, name] = model
        return model

    def _note(self, price: object, tier: int, rates: ModelRates | None) -> ModelRates | None:
        if len(self._rates) >= _MOST_MODELS:
            self._rates.clear()
        self._rates[id(price), tier] = (price, rates)
        return rates

    def _read(self, prices: dict[str, object], read: int) -> ModelRates | None:
        """Return the rates of a price for a call with ``read`` input tokens; None if input has no price."""

        exact: dict[str, Fraction] = {"output": Fraction(0)}
        for name, (kind, tokens) in _KINDS.items():
            amount = _amount(prices.get(name), read)
            if amount is not None:
                exact[kind] = per_token(amount, tokens)
        return model_rates(exact, self._source) if "input" in exact else None


def _price(model: ModelInfo, at: datetime, terms: dict[str, str]) -> ModelPrice | None:
    """Return the price of a model that holds under all these terms; None if it is not published."""
    standard = model.get_prices(at)
    prices = vars(standard)
    context = {}
    for name, value in terms.items():
        if name in MODALITIES:
            if name not in AS_TEXT or prices.get(MODALITIES[name]) is not None:
                return None
        elif name == SEARCHES:
            if prices.get("web_searches_kcount") is None or not value.isdecimal():
                return None
        elif name != REQUESTS:
            context[name] = value
    if not context:
        return standard
    met: set[str] = set()
    for variant in model.price_variants or ():
        holds = variant.constraint is None or variant.constraint.active(at)
        if holds and variant.when.items() <= context.items():
            met.update(variant.when)
    return model.get_prices(at, context) if met == context.keys() else None


def _moment(at_us: int) -> datetime:
    return from_microseconds(at_us)


def _amount(price: object, read: int) -> Decimal | None:
    """Return the dollars of a price. If it has tiers, the highest one that the input reaches holds for all tokens."""
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return price if isinstance(price, Decimal) else None
    amount: Decimal = price.base  # type: ignore[attr-defined]  # it has tiers, and so a base
    for tier in tiers:
        if read > tier.start:
            amount = tier.price
    return amount


def _tier(prices: dict[str, object], read: int) -> int:
    """Return the start of the highest tier that ``read`` tokens reach: the rates of a price differ by it."""
    starts = [tier.start for price in prices.values() for tier in getattr(price, "tiers", ())]
    return max((start for start in starts if read > start), default=-1)


@cache
def published_prices() -> PublishedPrices:
    """Return the published prices, loaded once (half a second)."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import

    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - heavy, and only for calls without a cost

    snapshot = get_snapshot()

    def find(provider: str | None, model: str) -> ModelInfo:
        return snapshot.find_provider_model(model, None, provider, None)[1]

    return PublishedPrices(find, f"genai-prices {version('genai-prices')}")
