"""The prices of a model's tokens, as exact numbers, and the cost of a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from math import lcm
from typing import TypeAlias

from flue_py.core.calls import PaidCall
from flue_py.core.frozen import frozen
from flue_py.core.usage import MAX_AMOUNT, PICODOLLARS_PER_DOLLAR, Cost
from flue_py.errors import InvalidEntry, InvalidPrices, shown

Amount: TypeAlias = Decimal | int | float | str
Pricing: TypeAlias = "Mapping[str, int | ModelRates | list[Amount] | tuple[Amount, ...] | Mapping[str, Amount]]"
"""Prices by model, or by ``provider/model``: ``[input, output]`` or an object, in dollars per million tokens."""

PER_THOUSAND = 1_000
PER_MILLION = 1_000_000
_HIGHEST = 10**9
_FINEST = -30
_KINDS = {"input": "input", "output": "output", "cacheRead": "cache_read", "cacheWrite": "cache_write",
          "cacheWrite1h": "cache_write_1h", "reasoning": "reasoning", "webSearch": "search"}  # fmt: skip
_FORMS = "[input, output] or {input, output, cacheRead ...}, in dollars per million tokens"
_PER = "per"


@frozen
class ModelRates:
    """What one token of each kind costs, one request, and one web search, in units of 1/``scale`` picodollars.

    ``source`` says where the prices come from.
    """

    scale: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    reasoning: int
    request: int
    source: str
    search: int | None = None

    def cost_of(self, call: PaidCall) -> int:
        """Return what a call costs, in picodollars, rounded half up once. Raises `InvalidEntry` beyond 64 bits."""
        picodollars = self.parts_of(call).total
        if picodollars > MAX_AMOUNT:
            raise InvalidEntry(f"usage: at the prices of {self.source} the call costs more than can be stored")
        return picodollars

    def parts_of(self, call: PaidCall) -> Cost:
        """Return what a call costs by kind of token, in picodollars; the parts add up to the total exactly.

        What the request itself and its web searches cost is in that of the input.
        """
        usage = call.usage
        scaled = (
            self.request + call.searches * (self.search or 0) + usage.input * self.input,
            (usage.output - call.reasoning) * self.output + call.reasoning * self.reasoning,
            usage.cache_read * self.cache_read,
            (usage.cache_write - call.cache_write_1h) * self.cache_write + call.cache_write_1h * self.cache_write_1h,
        )
        # The sums are rounded, and not the parts: else these would add up to something else than the whole.
        upto = [(2 * each + self.scale) // (2 * self.scale) for each in accumulate(scaled)]
        asked, answered, read, written = (after - before for before, after in pairwise((0, *upto)))
        return Cost(asked, answered, read, written, upto[-1])


def model_rates(exact: Mapping[str, Fraction], source: str) -> ModelRates:
    """Return rates from exact prices by kind; ``input`` and ``output`` are required.

    A kind that is missing costs as the more general one: a cache read or write as input, a one-hour write as any write,
    reasoning as output; a request and a web search cost nothing.
    """
    write = exact.get("cache_write", exact["input"])
    whole = (
        exact["input"],
        exact["output"],
        exact.get("cache_read", exact["input"]),
        write,
        exact.get("cache_write_1h", write),
        exact.get("reasoning", exact["output"]),
        exact.get("request", Fraction(0)),
        exact.get("search", Fraction(0)),
    )
    scale = lcm(*(price.denominator for price in whole))
    given, output, read, written, hour, reasoning, request, search = (int(price * scale) for price in whole)
    return ModelRates(
        scale, given, output, read, written, hour, reasoning, request, source, search if "search" in exact else None
    )


def per_token(amount: Amount, tokens: int) -> Fraction:
    """Return dollars per ``tokens`` tokens as exact picodollars per token. Raises `ValueError` if it is not a price."""
    if isinstance(amount, bool) or not isinstance(amount, (Decimal, int, float, str)):
        raise ValueError(f"{shown(amount)} is not a number of dollars")
    try:
        # A float means the shortest decimal that prints like it.
        exact = Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    except ArithmeticError as error:
        raise ValueError(f"{shown(amount)} is not a number of dollars") from error
    if not exact.is_finite() or not 0 <= exact <= _HIGHEST or (exact and exact.adjusted() < _FINEST):
        raise ValueError(f"{shown(amount)} is not a price; use a finite number of dollars from 0 to {_HIGHEST:,}")
    return Fraction(exact) * PICODOLLARS_PER_DOLLAR / tokens


def read_rates(model: str, value: object, where: str, per: int = PER_MILLION) -> ModelRates:
    """Return the rates of one model from its JSON, in dollars per so many tokens.

    Raises `InvalidPrices` naming the model and the field.
    """
    if isinstance(value, ModelRates):
        return value
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise InvalidPrices(f"{where}: model {model!r} has {len(value)} prices in its list; write {_FORMS}")
        return _rates(model, {"input": value[0], "output": value[1]}, per, where)
    if not isinstance(value, Mapping):
        raise InvalidPrices(f"{where}: model {model!r} is {shown(value)}; write {_FORMS}")
    fields = dict(value)
    tokens = _checked_unit(fields.pop(_PER, per), f"{where}: model {model!r}")
    return _rates(model, fields, tokens, where)


def _checked_unit(tokens: object, where: str) -> int:
    if isinstance(tokens, bool) or tokens not in (PER_THOUSAND, PER_MILLION):
        raise InvalidPrices(f"{where}: per: {shown(tokens)} is neither 1000 nor 1000000")
    return PER_THOUSAND if tokens == PER_THOUSAND else PER_MILLION


def _rates(model: str, fields: Mapping[object, object], tokens: int, where: str) -> ModelRates:
    rates: dict[str, Fraction] = {}
    for name, amount in fields.items():
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InvalidPrices(f"{where}: model {model!r}: {shown(name)} is not one of {', '.join(_KINDS)}, per")
        try:
            rates[kind] = per_token(amount, tokens)  # type: ignore[arg-type]  # checked there
        except ValueError as error:
            raise InvalidPrices(f"{where}: model {model!r}: {name}: {error}") from error
    for name in ("input", "output"):
        if name not in rates:
            raise InvalidPrices(f"{where}: model {model!r} has no price of {name}; write {_FORMS}")
    return model_rates(rates, where)


def read_pricing(prices: object, where: str) -> dict[str, ModelRates]:
    """Return prices by model, checked; a number ``per`` among them is the unit of all, 1,000 or 1,000,000 tokens.

    Raises `InvalidPrices` naming the model and the field.
    """
    if not isinstance(prices, Mapping):
        raise InvalidPrices(f"{where}: should be an object of models and their prices, not {type(prices).__name__}")
    found = {}
    models = dict(prices)
    has_unit = _PER in models and not isinstance(models[_PER], (list, tuple, Mapping, ModelRates))
    per = _checked_unit(models.pop(_PER), where) if has_unit else PER_MILLION
    for model, value in models.items():
        if not isinstance(model, str) or not model:
            raise InvalidPrices(f"{where}: {shown(model)} is not the name of a model")
        found[model] = read_rates(model, value, where, per)
    return found
