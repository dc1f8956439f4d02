"""A price book: the user's own prices, then published ones, for calls whose provider did not report a cost."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.frozen import changed, frozen
from flue_py.core.usage_fields import MODALITIES, REQUESTS, SEARCHES
from flue_py.errors import InvalidArgument, InvalidPrices, StoreWarning, shown
from flue_py.homes import in_full
from flue_py.prices.published import published_prices
from flue_py.prices.rates import ModelRates, Pricing, read_pricing

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
        self,
        prices: Pricing | None = None,
        *,
        file: str | PathLike[str] | None = None,
        published: bool = True,
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
        return changed(call, cost=rates.cost_of(call), price_source=rates.source)

    def rates(self, call: PaidCall, now_us: Callable[[], int]) -> ModelRates | None:
        """Return what the tokens of a call cost at its time; None if that is unknown, or no model is named."""
        return self._rates_for(call, now_us, self._own_prices()) if call.model else None

    def price_entries(self, entries: Sequence[NewEntry], now_us: Callable[[], int]) -> Sequence[NewEntry]:
        """Return the entries, their calls priced at the time of the entry where a price is known."""
        if not any(_is_open(call) for entry in entries for call in entry.calls):
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
        return changed(entry, calls=tuple(self._priced(call, time_of, own) for call in entry.calls))

    def _rates_for(self, call: PaidCall, now_us: Callable[[], int], own: _Own) -> ModelRates | None:
        names = (f"{call.provider}/{call.model}", call.model) if call.provider else (call.model,)
        terms = [f" {name}={value}" for name, value in call.terms if name not in _UNNAMED]
        searches = dict(call.terms).get(SEARCHES)
        for prices in own:
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
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._refuse(error)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

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
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown(twin)} is there twice; keep one")
    return found


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


@frozen
class CallPricer:
    """What a store prices calls with: its book (None: not at all), and the clock for calls that bring no time."""

    book: PriceBook | None
    now_us: Callable[[], int]

    def price_entries(self, entries: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """Return entries whose calls have a cost where one is known. The same, and no look-up, where all have."""
        return entries if self.book is None else self.book.price_entries(entries, self.now_us)

    def price_call(self, call: PaidCall) -> PaidCall:
        """Return a call with its cost where one is known."""
        return call if self.book is None else self.book.priced(call, self.now_us)

    def rates(self, call: PaidCall) -> ModelRates | None:
        """Return what the tokens of a call cost; None where that is unknown, or nothing is priced."""
        return None if self.book is None else self.book.rates(call, self.now_us)


def _no_time() -> int:
    raise AssertionError("unreachable: nothing is priced without a book")


NO_PRICER = CallPricer(None, _no_time)
