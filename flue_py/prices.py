"""The cost of calls whose provider did not report it, from the user's own or from published prices. No network."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import accumulate, chain, pairwise
from math import lcm
from operator import attrgetter
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from msgspec.structs import replace

from flue_py.core.context import model_names
from flue_py.core.entries import NewEntry, from_microseconds
from flue_py.core.json import Frozen
from flue_py.core.usage import (
    AS_TEXT,
    MAX_AMOUNT,
    MODALITIES,
    PICODOLLARS_PER_DOLLAR,
    REQUESTS,
    SEARCHES,
    Cost,
    PaidCall,
    UsageTotals,
)
from flue_py.errors import InvalidArgument, InvalidEntry, InvalidPrices, StoreWarning, shown
from flue_py.lazy import expression, lazy_module
from flue_py.system import in_full

if TYPE_CHECKING:
    import fractions

    from genai_prices.types import ModelInfo, ModelPrice
else:
    fractions = lazy_module("fractions")
__all__ = ["PriceBook"]


# ---------------------------------------------------------------------------------------------------------------------
# The prices of a model's tokens, as exact numbers, and the cost of a call. Pure.

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
_GENERAL = {"cache_read": "input", "cache_write": "input", "cache_write_1h": "cache_write", "reasoning": "output",
            "request": ""}  # fmt: skip
"""The more general kind of each kind that may have no price of its own."""


class ModelRates(Frozen):
    """The prices of a token of each kind, a request, and a web search, in units of 1/``scale`` picodollars.

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
        """Return the cost of a call, in picodollars, rounded half up once. Raises `InvalidEntry` beyond 64 bits."""
        picodollars = self.parts_of(call).total
        if picodollars > MAX_AMOUNT:
            raise InvalidEntry(f"usage: at the prices of {self.source} the call costs more than can be stored")
        return picodollars

    def parts_of(self, call: PaidCall) -> Cost:
        """Return the cost of a call by kind of token, in picodollars; the parts add up to the total exactly.

        The cost of the request itself and of its web searches is in that of the input.
        """
        usage = call.usage
        scaled = (
            self.request + call.searches * (self.search or 0) + usage.input * self.input,
            (usage.output - call.reasoning) * self.output + call.reasoning * self.reasoning,
            usage.cache_read * self.cache_read,
            (usage.cache_write - call.cache_write_1h) * self.cache_write + call.cache_write_1h * self.cache_write_1h,
        )
        # The sums are rounded, and not the parts: else these would add up to something else than the whole.
        upto = [(2 * amount + self.scale) // (2 * self.scale) for amount in accumulate(scaled)]
        prompt, answered, read, written = (after - before for before, after in pairwise((0, *upto)))
        return Cost(prompt, answered, read, written, upto[-1])


def model_rates(exact: Mapping[str, fractions.Fraction], source: str) -> ModelRates:
    """Return rates from exact prices by kind; ``input`` and ``output`` are required.

    A kind that is missing costs as the more general one: a cache read or write as input, a one-hour write as any write,
    reasoning as output; a request and a web search cost nothing.
    """
    prices = dict(exact)
    for kind, general in _GENERAL.items():
        prices.setdefault(kind, prices.get(general, fractions.Fraction(0)))
    scale = lcm(*(price.denominator for price in prices.values()))
    return ModelRates(scale, source=source, **{kind: int(price * scale) for kind, price in prices.items()})


def per_token(amount: Amount, tokens: int) -> fractions.Fraction:
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
    return fractions.Fraction(exact) * PICODOLLARS_PER_DOLLAR / tokens


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
    rates: dict[str, fractions.Fraction] = {}
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
    rates = {}
    models = dict(prices)
    has_unit = _PER in models and not isinstance(models[_PER], (list, tuple, Mapping, ModelRates))
    per = _checked_unit(models.pop(_PER), where) if has_unit else PER_MILLION
    for model, value in models.items():
        if not isinstance(model, str) or not model:
            raise InvalidPrices(f"{where}: {shown(model)} is not the name of a model")
        rates[model] = read_rates(model, value, where, per)
    return rates


# ---------------------------------------------------------------------------------------------------------------------
# Published prices, from the data that genai-prices brings along. No network.
#
# Only the data is taken from there; the sum is computed here, exactly. If a model has no price for a kind of token that
# a call used, the cost of the call is unknown, never 0.

_MOST_MODELS = 1_000
# The last one wins: a price of five-minute writes comes before one of writes.
_PUBLISHED_KINDS = {
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
        price = None if model is None else _price(model, from_microseconds(at_us), dict(call.terms))
        if price is None:
            return None
        usage = call.usage
        read = usage.input + usage.cache_read + usage.cache_write
        prices: dict[str, object] = vars(price)
        tier = _tier(prices, read)
        if tier >= 0 and any(name == REQUESTS for name, _ in call.terms):
            return None
        noted = self._rates.get((id(price), tier))
        # The price object is kept beside the rates, so that no other object can get its id.
        if noted is None:
            if len(self._rates) >= _MOST_MODELS:
                self._rates.clear()
            noted = self._rates[id(price), tier] = (price, self._read(prices, read))
        rates = noted[1]
        if rates is None or (usage.output and prices.get("output_mtok") is None):
            return None
        return rates

    def window_of(self, provider: str, model: str) -> int | None:
        """Return the context window of a model in tokens; None if it is unknown."""
        info = self._model(provider, model)
        window = None if info is None else info.context_window
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

    def _read(self, prices: dict[str, object], read: int) -> ModelRates | None:
        """Return the rates of a price for a call with ``read`` input tokens; None if input has no price."""

        exact: dict[str, fractions.Fraction] = {"output": fractions.Fraction(0)}
        for name, (kind, tokens) in _PUBLISHED_KINDS.items():
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


# ---------------------------------------------------------------------------------------------------------------------
# A price book: the user's own prices, then published ones, for calls whose provider did not report a cost.

PRICING_FILE = "~/.flue-py/pricing.json"
PRICING_VARIABLE = "FLUE_PY_PRICING"
_LARGEST_FILE = 16 * 2**20
_UNNAMED = frozenset({SEARCHES, REQUESTS, *MODALITIES})
"""Terms that no name of a model ends in: a kind of input without a price of its own costs as any, and has no tiers."""

_Own: TypeAlias = "tuple[Mapping[str, ModelRates], Mapping[str, ModelRates]]"
PricesChoice: TypeAlias = "PriceBook | Pricing | str | PathLike[str] | Literal[False] | None"


class PriceBook:
    """Prices by model: those given, those of a pricing file, then (``published``) those of genai-prices.

    ``prices`` maps ``model`` or ``provider/model`` to ``[input, output]``, or to an object with ``input`` and
    ``output``, and where they differ ``cacheRead``, ``cacheWrite``, ``cacheWrite1h``, ``reasoning`` and ``webSearch``:
    both in US dollars per million, or with ``"per": 1000``, beside the models or in an object, per 1,000. The name of a
    model may end in terms that a call was billed by (``large-1 speed=fast``); under others the cost is unknown.
    ``file`` holds the same as JSON; it is read again when it changes. ``provider/model`` goes before ``model``. Raises
    `InvalidPrices` naming the model.
    """

    def __init__(
        self, prices: Pricing | None = None, *, file: str | PathLike[str] | None = None, published: bool = True
    ) -> None:
        self._given = {} if prices is None else read_pricing(prices, "prices")
        self._file = None if file is None else _PricingFile(_path_of(file))
        self._published = published

    def priced(self, call: PaidCall, now_us: Callable[[], int]) -> PaidCall:
        """Return the call with its cost and the source of it; unchanged if the cost was reported or is unknown.

        A call with unknown tokens has no known cost. ``now_us`` gives the time if the call has none. Raises
        `InvalidEntry` if it would cost more than can be stored.
        """
        return self._priced(call, now_us, self._own_prices()) if _is_open(call) else call

    def _priced(self, call: PaidCall, now_us: Callable[[], int], own: _Own) -> PaidCall:
        rates = self._rates_for(call, now_us, own) if _is_open(call) else None
        if rates is None:
            return call
        return replace(call, cost=rates.cost_of(call), price_source=rates.source)

    def rates(self, call: PaidCall, now_us: Callable[[], int]) -> ModelRates | None:
        """Return the prices of a call's tokens at its time; None if they are unknown, or no model is named."""
        return self._rates_for(call, now_us, self._own_prices()) if call.model else None

    def price_entries(self, entries: Sequence[NewEntry], now_us: Callable[[], int]) -> Sequence[NewEntry]:
        """Return the entries, their calls priced at the time of the entry if a price is known."""
        if not any(map(_is_open, chain.from_iterable(map(attrgetter("calls"), entries)))):
            return entries
        # Whether the file has changed is asked once for all of them.
        own = self._own_prices()
        return [self._priced_entry(entry, now_us, own) for entry in entries]

    def _own_prices(self) -> _Own:
        return self._given, {} if self._file is None else self._file.prices()

    def _priced_entry(self, entry: NewEntry, now_us: Callable[[], int], own: _Own) -> NewEntry:
        if not entry.calls:
            return entry
        at_us = entry.created_us
        time_of = now_us if at_us is None else lambda: at_us
        return replace(entry, calls=tuple([self._priced(call, time_of, own) for call in entry.calls]))

    def _rates_for(self, call: PaidCall, now_us: Callable[[], int], own: _Own) -> ModelRates | None:
        for prices in filter(None, own):
            names = (f"{call.provider}/{call.model}", call.model) if call.provider else (call.model,)
            terms = [f" {name}={value}" for name, value in call.terms if name not in _UNNAMED]
            searches = dict(call.terms).get(SEARCHES)
            for name in names:
                if (rates := prices.get("".join((name, *terms)))) is not None:
                    is_open = searches is not None and (rates.search is None or not searches.isdecimal())
                    return None if is_open else rates
                if name in prices:
                    # Its list price is the user's own: one of another list, under these terms, is not.
                    return None
        if not self._published:
            return None
        return published_prices().rates_for(call, now_us() if call.at_us is None else call.at_us)


def _is_open(call: PaidCall) -> bool:
    """Return whether the cost of a call is still to be found."""
    return call.known_cost is None and not call.is_unknown and bool(call.model)


class _PricingFile:
    """A pricing file as it was last read. One that is missing has no prices."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._prices: dict[str, ModelRates] = {}
        self._read()

    def prices(self) -> dict[str, ModelRates]:
        """Return the current prices. If a changed file cannot be read, a warning says so, and the old prices stay."""
        try:
            self._read()
        except InvalidPrices as error:
            warnings.warn(f"{error} (the prices before this change stay in use)", StoreWarning, stacklevel=2)
        return self._prices

    def _read(self) -> None:
        stamp = self._current_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._prices = {} if stamp is None else parse_pricing(self._text(), self._path.name)

    def _current_stamp(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._refuse(error)
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def _text(self) -> str:
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE + 1)
        except (OSError, UnicodeDecodeError) as error:
            self._refuse(error)
        if len(text) > _LARGEST_FILE:
            raise InvalidPrices(f"{self._path} is larger than 16 MiB: not a pricing file")
        return text

    def _refuse(self, error: OSError | UnicodeDecodeError) -> NoReturn:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidPrices(f"{self._path} cannot be read: {reason or error}") from error


def parse_pricing(text: str, where: str) -> dict[str, ModelRates]:
    """Return the prices of a pricing file's text. Raises `InvalidPrices` naming the line, or the model and field."""
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
    except json.JSONDecodeError as error:
        raise InvalidPrices(f"{where}, line {error.lineno}: {error.msg}") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidPrices(f"{where}: {error}") from error
    return read_pricing(value, where)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of dollars")


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown(twin)} is there twice; keep one")
    return fields


def _path_of(file: str | PathLike[str]) -> Path:
    location = fspath(file) if isinstance(file, (str, PathLike)) else None
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidArgument(f"file: {shown(file)} is not the path of a pricing file")
    return Path(in_full(location))


def choose_prices(choice: PricesChoice) -> PriceBook | None:
    """Return the price book for ``prices=`` of `flue_py.open`; None if prices are off.

    None: the pricing file at its usual place (the variable ``FLUE_PY_PRICING``, or ``~/.flue-py/pricing.json``), then
    published prices. A path: that file instead. Raises `InvalidPrices`, and `InvalidArgument` for anything else.
    """
    if choice is False:
        return None
    if choice is None:
        return _usual_prices()
    if isinstance(choice, PriceBook):
        return choice
    if isinstance(choice, Mapping):
        return PriceBook(choice)
    if isinstance(choice, (str, PathLike)):
        if not _path_of(choice).exists():
            raise InvalidPrices(f"{fspath(choice)}: there is no such pricing file")
        return PriceBook(file=choice)
    raise InvalidArgument(f"prices: {shown(choice)} is not a PriceBook, a mapping of prices, a path, False or None")


def _usual_prices() -> PriceBook:
    named = os.environ.get(PRICING_VARIABLE)
    if named:
        return PriceBook(file=named)
    try:
        path = _path_of(PRICING_FILE)
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (InvalidArgument, PermissionError):
        # A home that does not exist has no pricing file, and neither has one that this user may not look into.
        return PriceBook()
    return PriceBook(file=path)


class CallPricer(Frozen):
    """The pricing of a store: its book (None: not at all), and the clock for calls that bring no time."""

    book: PriceBook | None
    now_us: Callable[[], int]

    def price_entries(self, entries: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """Return entries whose calls have a cost if one is known. The same, and no look-up, if all have one."""
        return entries if self.book is None else self.book.price_entries(entries, self.now_us)

    def price_call(self, call: PaidCall) -> PaidCall:
        """Return a call with its cost if one is known."""
        return call if self.book is None else self.book.priced(call, self.now_us)

    def rates(self, call: PaidCall) -> ModelRates | None:
        """Return the prices of a call's tokens; None if they are unknown, or nothing is priced."""
        return None if self.book is None else self.book.rates(call, self.now_us)


def _no_time() -> int:
    raise AssertionError("unreachable: nothing is priced without a book")


NO_PRICER = CallPricer(None, _no_time)


# ---------------------------------------------------------------------------------------------------------------------
# Caches of providers: a request with the same beginning as the one before it is cheaper.
#
# Looked up on 2026-11-25. Beside each rule is the page that has it, with the date that the page or its copy has.


class CacheRules(Frozen):
    """How a provider caches: the shortest prefix, in which steps, and for how long after the last use.

    The time is the least one; most keep it longer if there is room. ``source`` names the provider, None for
    rules that are assumed, since the provider's are not known.
    """

    least_tokens: int
    step: int
    lifetime_seconds: int
    source: str | None = None

    def kept(self, prefix: int) -> int:
        """Return how many of so many tokens, the same as in the request before, are read from the cache."""
        return 0 if prefix < self.least_tokens else prefix - prefix % self.step


ASSUMED = CacheRules(1_024, 1, 300)

_RULES = (
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching (October 2026): five minutes, renewed by each
    # use. An hour costs more to write, and is asked for by the caller (`ttl` in anthropic 2.12); so are breakpoints.
    ("anthropic", ("claude",), CacheRules(1_024, 1, 300, "anthropic")),
    # https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-02): 2,048 tokens before GPT-5.6, reported
    # in steps of 128; in memory for 5 to 10 minutes without use. `24h` is the default of many accounts, and typically
    # 30 minutes, but those without data retention have five.
    ("openai", ("gpt-", "o1", "o3", "o4", "codex"), CacheRules(2_048, 128, 300, "openai")),
    # https://ai.google.dev/gemini-api/docs/caching (2026-10-13): the shortest prefix of each model, "a short amount of
    # time" for how long, which is not documented: five minutes are assumed.
    ("google", ("gemini",), CacheRules(4_096, 1, 300, "google")),
    # https://api-docs.deepseek.com/guides/kv_cache (September 2026): "a few hours to a few days". The 64 tokens are of
    # https://api-docs.deepseek.com/news/news0802 (2024-08-02); the guide has no other number.
    ("deepseek", ("deepseek",), CacheRules(64, 64, 3_600, "deepseek")),
)

_LEAST = (
    # As above: Claude Fable 5 and 5.1, Mythos 5 and 5.1, Opus 5 and 5.5, Sonnet 5.5 and Haiku 5.5.
    *((name, 512) for name in ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5-5")),
    ("claude-haiku-5-5", 512),
    *((name, 2_048) for name in ("claude-mythos-preview", "claude-opus-4-7", "claude-3-5-haiku", "claude-3-haiku")),
    *((name, 4_096) for name in ("claude-opus-4-6", "claude-opus-4-5", "claude-haiku-4-5")),
    ("gemini-2-5", 2_048),
)
"""Models whose shortest prefix is another than that of their provider."""

_GPT = expression(r"gpt-(1?\d)(?!\d)(?:-(\d{1,2})(?!\d))?")
_OF_NEW_GPT = CacheRules(1_024, 128, 1_800, "openai")
"""GPT-5.6 and later, as above: 1,024 tokens, and 30 minutes after the last write or use (`30m` in openai 3.54)."""


def cache_rules(model: str | None, provider: str | None = None) -> CacheRules:
    """Return how the requests of a model are cached, by its provider or by its name; `ASSUMED` for all others."""
    names = () if model is None else model_names(model)
    # Some gateways write `claude-opus-4.5`.
    name = names[-1].replace(".", "-") if names else ""
    for source, prefixes, rules in _RULES:
        if not (provider or "").lower().startswith(source) and not any(prefix.startswith(prefixes) for prefix in names):
            continue
        gpt = _GPT.match(name)
        if source == "openai" and gpt is not None and (int(gpt[1]), int(gpt[2] or 0)) >= (5, 6):
            return _OF_NEW_GPT
        least = next((tokens for start, tokens in _LEAST if name.startswith(start)), rules.least_tokens)
        return replace(rules, least_tokens=least)
    return ASSUMED


# ---------------------------------------------------------------------------------------------------------------------
# The cost of an edit of a context, and after how many calls it has paid for itself. Pure arithmetic.
#
# A call reads the beginning of its request from the provider's cache, as far as that is the same as in the last
# request, and processes the rest anew, which is written into the cache for the call after it. An edit pays a call or
# two more, for a summary or for the lost part of the cache, and saves the removed part of the context in every later
# call.

EditKind: TypeAlias = Literal["compact", "rewind", "exclude", "fork", "resume"]
NeverPays: TypeAlias = Literal["nothing_to_do", "no_edit", "price_unknown", "saves_nothing", "dearer_later"]
"""Why an edit never pays for itself:

- ``nothing_to_do``: there is nothing to compact, or nothing that changes the context
- ``no_edit``: a fork or a resumption takes nothing out of a session; its cost is in the plan
- ``price_unknown``: the prices of the model are not known
- ``saves_nothing``: it costs something, and later calls are no cheaper
- ``dearer_later``: the next call is cheaper, and the later ones are dearer
"""


class CallSize(Frozen):
    """The tokens of one call: read from the cache, processed anew and written into it, processed only, and answered."""

    cache_read: int = 0
    cache_write: int = 0
    input: int = 0
    output: int = 0

    @property
    def request(self) -> int:
        """The tokens of the request."""
        return self.cache_read + self.cache_write + self.input

    @property
    def totals(self) -> UsageTotals:
        """The same as usage, by which prices are found."""
        return UsageTotals(self.input, self.output, self.cache_read, self.cache_write, self.request + self.output)


class CallPrice(Frozen):
    """The cost of one call, by kind of token, in picodollars (1e-12 US dollars)."""

    cache_read: int
    cache_write: int
    input: int
    output: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.cache_read + self.cache_write + self.input + self.output


class EditPrice(Frozen):
    """The cost of an edit and its savings, in picodollars.

    ``edit`` is the call that makes a summary, None if there is none. ``next_call`` is the request of the call after the
    edit, ``next_unedited`` that of the same call without the edit; answers are left out, since they cost the same.
    ``later_call`` and ``later_unedited`` are the costs of the same context in each call after that, read from the
    cache.
    """

    edit: CallPrice | None
    next_call: CallPrice
    next_unedited: CallPrice
    later_call: CallPrice
    later_unedited: CallPrice

    @property
    def extra(self) -> int:
        """The cost of the edit and the next call above that call alone; below 0 if they cost less."""
        edit = 0 if self.edit is None else self.edit.total
        return edit + self.next_call.total - self.next_unedited.total

    @property
    def saved_per_call(self) -> int:
        """The savings of each later call."""
        return self.later_unedited.total - self.later_call.total


class EditPlan(Frozen):
    """The effect of an edit on the next request, and its cost. Nothing has been changed.

    ``tokens_before`` and ``tokens_after`` are the sizes of the next request without the edit and with it, as
    ``counter`` counts (``is_estimate``: it does not have the model's own vocabulary, or a summary is yet to be
    written); the system prompt and the tools are in them only if they were given. Of ``tokens_after``, ``kept`` are
    read from the provider's cache and ``rewritten`` are processed anew; ``kept_unedited`` is the same without the edit.
    ``common_items`` is how many items of the context stay as they were last sent. ``is_warm`` says whether the last
    request is taken to be in the cache still. ``summary_call`` is the call that makes a summary, None for none.

    ``price`` is None if a price is not known. ``turns_to_pay`` is the number of calls after which the edit has cost
    no more than doing without it: 1 if it is cheaper at once; None if that is never so, and ``never`` says why.
    """

    kind: EditKind
    leaf_id: str | None
    model: str | None
    provider: str | None
    counter: str
    is_estimate: bool
    is_warm: bool
    common_items: int
    tokens_before: int
    tokens_after: int
    kept: int
    kept_unedited: int
    summary_call: CallSize | None
    price: EditPrice | None
    turns_to_pay: int | None
    never: NeverPays | None

    @property
    def rewritten(self) -> int:
        """The tokens of the next request that are processed anew."""
        return self.tokens_after - self.kept

    @property
    def tokens_saved(self) -> int:
        """How many tokens the request gets shorter; below 0, if it gets longer."""
        return self.tokens_before - self.tokens_after


RatesFor: TypeAlias = Callable[[UsageTotals], ModelRates | None]
"""Returns the prices that hold for a call of such a size; None if they are not known."""


def next_request(tokens: int, prefix: int, rules: CacheRules, *, is_warm: bool) -> CallSize:
    """Return how a request is read that has its first ``prefix`` tokens in common with the last one."""
    cached = rules.kept(prefix) if is_warm else 0
    return CallSize(cached, tokens - cached)


def summary_call(request: CallSize, prompt: int, output: int) -> CallSize:
    """Return the call that asks for a summary by the next request and a prompt behind it."""
    return CallSize(request.cache_read, 0, request.cache_write + prompt, output)


def price_edit(
    edit: CallSize | None, after: CallSize, unedited: CallSize, rules: CacheRules, rates_for: RatesFor
) -> EditPrice | None:
    """Return the cost of an edit and its savings; None if a price is not known."""
    later, later_unedited = (
        next_request(size.request, size.request, rules, is_warm=True) for size in (after, unedited)
    )
    prices = [price_call(size, rates_for) for size in (after, unedited, later, later_unedited)]
    paid = None if edit is None else price_call(edit, rates_for)
    priced = [price for price in prices if price is not None]
    if len(priced) < len(prices) or (edit is not None and paid is None):
        return None
    return EditPrice(paid, *priced)


def price_call(size: CallSize, rates_for: RatesFor) -> CallPrice | None:
    """Return the cost of a call, each kind rounded half up; None if a price is not known."""
    rates = rates_for(size.totals)
    if rates is None:
        return None

    def cost(tokens: int, price: int) -> int:
        return (2 * tokens * price + rates.scale) // (2 * rates.scale)

    return CallPrice(
        cost(size.cache_read, rates.cache_read),
        cost(size.cache_write, rates.cache_write),
        cost(size.input, rates.input),
        cost(size.output, rates.output),
    )


def turns_to_pay(price: EditPrice | None) -> tuple[int | None, NeverPays | None]:
    """Return after how many calls an edit has paid for itself, or None and why it never does."""
    if price is None:
        return None, "price_unknown"
    extra, saved = price.extra, price.saved_per_call
    if extra <= 0:
        return (1, None) if saved >= 0 else (None, "dearer_later")
    if saved <= 0:
        return None, "saves_nothing"
    # The first call after the edit has paid the extra; each one after it saves.
    return 1 - (-extra // saved), None


# ---------------------------------------------------------------------------------------------------------------------
# How large the context window of a model is, as published beside its prices (genai-prices). No network.


def published_window(model: str, provider: str | None = None) -> int | None:
    """Return the context window of a model in tokens; None if it is not known.

    ``model`` may have its provider before it. Published windows are loaded once (half a second), then O(1).
    """
    published = published_prices()
    # A provider that only passes calls on is not known by its name, but the model is.
    for name in model_names(model):
        for by in dict.fromkeys((provider or "", "")):
            window = published.window_of(by, name)
            if window is not None:
                return window
    return None
