"""Usage: tokens and money as integers, and sums of them over a path. `usage_shapes` reads what was reported.

Money is held in picodollars (1e-12 USD). A reported cost is rounded half up once, on the way in; from then on
every sum and difference is exact.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, field, replace
from decimal import Context, Decimal, InvalidOperation
from operator import add, sub
from typing import NamedTuple

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidEntry, shown

PICODOLLARS_PER_DOLLAR = 10**12
MAX_AMOUNT = 2**62
"""The largest total that is stored (64-bit integers, with room for one more addition)."""
MAX_DOLLARS = MAX_AMOUNT // PICODOLLARS_PER_DOLLAR

_EXACT = Context(prec=64, traps=[])
_HALF_A_PICODOLLAR = Decimal("5E-13")

TOTAL_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "total_tokens",
    "input_cost",
    "output_cost",
    "cache_read_cost",
    "cache_write_cost",
    "total_cost",
)
"""The names of the ten stored sums, in the order of `UsageTotals`."""

_TOKEN_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
COST_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "total")
"""The costs of a usage object in our shape: of each kind of tokens, and the total."""


TOO_LARGE = f"with its numbers a sum would be more than {MAX_AMOUNT}; they are kept, and none is counted"
"""The oddity of usage that is kept, and not counted, because a sum with it could not be stored."""


class SumTooLarge(InvalidEntry):
    """A sum of usage that would be more than `MAX_AMOUNT`."""


class UsageTotals(NamedTuple):
    """The ten sums as they are stored: five token counts, then five costs in picodollars."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost_input: int = 0
    cost_output: int = 0
    cost_cache_read: int = 0
    cost_cache_write: int = 0
    cost_total: int = 0

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or the sum of the kinds where a provider reported none."""
        return self.total_tokens or self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: UsageTotals) -> UsageTotals:
        """Return the sum. Raises `InvalidEntry` if one of the ten would leave the stored range."""
        total = UsageTotals._make(map(add, self, other))
        if max(total) > MAX_AMOUNT:
            raise SumTooLarge(f"usage: the running total would exceed {MAX_AMOUNT}; check the reported numbers")
        return total

    def minus(self, other: UsageTotals) -> UsageTotals:
        """Return the difference, field by field."""
        return UsageTotals(*[mine - theirs for mine, theirs in zip(self, other, strict=True)])


NO_USAGE = UsageTotals()


PAID_COLUMNS = ("paid_calls", "unpriced_calls", "unknown_calls", "paid_tokens", "paid_cost")
"""The names of the stored sums of `Paid`, in its order."""


class Paid(NamedTuple):
    """What paid calls come to by the ledger: how many they are, and tokens and picodollars as far as they are known.

    ``unpriced_calls`` have no known cost; of ``unknown_calls`` among them the tokens are unknown, too.
    """

    calls: int = 0
    unpriced_calls: int = 0
    unknown_calls: int = 0
    tokens: int = 0
    picodollars: int = 0

    def plus(self, other: Paid) -> Paid:
        """Return the sum."""
        return Paid._make(map(add, self, other))

    def minus(self, other: Paid) -> Paid:
        """Return the difference, field by field."""
        return Paid._make(map(sub, self, other))


NOTHING_PAID = Paid()


@frozen
class Cost:
    """Money, in integer picodollars; `usd` gives the total as an exact Decimal.

    ``is_known`` is False where all that is known of it is that something was called.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    is_known: bool = field(default=True, compare=False)

    @property
    def usd(self) -> Decimal | None:
        """The total in US dollars, exact; None if it is unknown."""
        return picodollars_to_usd(self.total) if self.is_known else None


@frozen
class Usage:
    """What model calls used: tokens by kind, and cost. ``total_tokens`` is summed as reported, not recomputed."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = field(default_factory=Cost)

    @classmethod
    def from_totals(cls, totals: UsageTotals) -> Usage:
        """Return the ten stored sums as a `Usage`."""
        return cls(*totals[:5], Cost(*totals[5:]))

    @property
    def totals(self) -> UsageTotals:
        """The ten sums as they are stored."""
        return UsageTotals(
            self.input, self.output, self.cache_read, self.cache_write, self.total_tokens, *astuple(self.cost)[:5]
        )

    def known(self, told: Collection[str]) -> dict[str, int | None]:
        """Return the tokens by kind and all of them, as JSON spells them; None for a 0 that ``told`` does not name.

        Of all tokens a 0 is known where anything else is.
        """
        tokens = self.totals[:5]
        told = {*told, "totalTokens"} if told or any(tokens) else told
        named = zip(_TOKEN_FIELDS, tokens, strict=True)
        return {name: count if count or name in told else None for name, count in named}

    def __add__(self, other: Usage) -> Usage:
        return Usage.from_totals(self.totals.plus(other.totals))

    def to_json(self) -> JsonObject:
        """Return the reference's JSON shape (camelCase, costs as dollar floats; use `cost` for exact money)."""
        tokens = dict(zip(_TOKEN_FIELDS, self.totals[:5], strict=True))
        cost = {
            name: amount / PICODOLLARS_PER_DOLLAR for name, amount in zip(COST_FIELDS, self.totals[5:], strict=True)
        }
        return {**tokens, "cost": {**cost}}


@frozen
class UsageWindow:
    """The usage of the entries after ``since``, up to ``leaf``.

    ``usage`` is what messages and compactions report of themselves; but the total of its cost is the one figure of the
    window, what the ledger has; ``reported_cost`` is what the entries report, which is more where another session paid
    for a call first. ``paid`` is what the ledger has of the same entries, priced calls and those of branch summaries
    included: `Store.usage` of the same path gives the same.
    ``on_path`` is False if ``since`` is not an ancestor of ``leaf`` (or the leaf itself): both are then
    zero, never those of the whole history. ``since=None`` is the window over the whole path.
    ``told`` names the numbers of tokens that are 0 because they were reported, or because nothing was called; it is
    empty unless it was asked for, as sums cannot show whether a 0 was reported.
    """

    usage: Usage
    leaf: str | None
    since: str | None = None
    on_path: bool = True
    paid: Paid = NOTHING_PAID
    told: frozenset[str] = frozenset()
    reported_cost: int = 0

    @property
    def known(self) -> dict[str, int | None]:
        """The tokens of ``usage`` by kind, as JSON spells it; None is a number that was not reported."""
        return self.usage.known(self.told)

    @property
    def calls(self) -> int:
        """How many calls were paid for."""
        return self.paid.calls

    @property
    def unpriced_calls(self) -> int:
        """The number of calls whose cost is unknown."""
        return self.paid.unpriced_calls

    @property
    def unknown_calls(self) -> int:
        """The number of those whose tokens are unknown, too."""
        return self.paid.unknown_calls

    @property
    def tokens(self) -> int:
        """The tokens of the calls, as far as they are known."""
        return self.paid.tokens

    @property
    def picodollars(self) -> int:
        """The sum of the known costs (1e-12 US dollars)."""
        return self.paid.picodollars

    @property
    def cost(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if it is unknown: that of ``usage``."""
        return self.usage.cost.usd


def usage_of_window(reported: UsageTotals, paid: Paid) -> Usage:
    """Return what entries report, with what they cost by the ledger."""
    usage = Usage.from_totals(reported)
    is_known = known_cost(paid.picodollars, paid.unpriced_calls) is not None
    return replace(usage, cost=replace(usage.cost, total=paid.picodollars, is_known=is_known))


def known_cost(picodollars: int, unpriced_calls: int) -> Decimal | None:
    """Return what calls cost in US dollars, exact; None if all known costs are 0 and the cost of some is unknown.

    The one rule for every view: a sum of 0 that leaves calls out says nothing of what was paid.
    """
    return None if unpriced_calls and not picodollars else picodollars_to_usd(picodollars)


def picodollars_to_usd(picodollars: int) -> Decimal:
    """Return picodollars as US dollars, exact. Nothing is ``0``, which prints as that."""
    return _EXACT.scaleb(Decimal(picodollars), -12) if picodollars else Decimal()


def usd_to_picodollars(amount: float | str | Decimal, where: str = "cost") -> int:
    """Return US dollars as picodollars, rounded half up once.

    A float stands for the shortest decimal that prints as it. Raises `InvalidEntry` if it is negative, not
    finite, or too large to store.
    """
    exact = _exact_amount(amount)
    if exact is None or not exact.is_finite() or exact < 0:
        raise InvalidEntry(f"{where}: {shown(amount)} is not an amount of money; use a finite number of dollars >= 0")
    if exact > MAX_DOLLARS:
        raise InvalidEntry(f"{where}: {shown(amount)} dollars is more than can be stored")
    if exact < _HALF_A_PICODOLLAR:
        return 0
    # In integers, so that neither the digits of the amount nor the caller's decimal context decide.
    dividend, divisor = exact.as_integer_ratio()
    return (2 * PICODOLLARS_PER_DOLLAR * dividend + divisor) // (2 * divisor)


def picodollars_as_printed(amount: float) -> int | None:
    """Return what `usd_to_picodollars` does, of dollars that print with so few places that nothing is rounded.

    None for all others.
    """
    picodollars = round(amount * PICODOLLARS_PER_DOLLAR) if 0 <= amount < _TOLD_APART else 0
    return picodollars if picodollars / PICODOLLARS_PER_DOLLAR == amount else None


_TOLD_APART = 4_000
"""Up to here no two numbers of whole picodollars are the same float, so that the one which is it is what it prints."""


def _exact_amount(amount: object) -> Decimal | None:
    """Return a number as the decimal it prints as, or None if it is not a number."""
    if isinstance(amount, bool) or not isinstance(amount, (float, int, str, Decimal)):
        return None
    try:
        return Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    except InvalidOperation:
        return None
