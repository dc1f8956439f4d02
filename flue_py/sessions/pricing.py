"""Pricing calls on their way into the store: with a price book, at the time of the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.frozen import frozen
from flue_py.prices.book import PriceBook


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


def _no_time() -> int:
    raise AssertionError("unreachable: nothing is priced without a book")


NO_PRICER = CallPricer(None, _no_time)
