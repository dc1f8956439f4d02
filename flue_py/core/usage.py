"""Usage: tokens and money as integers, and sums of them over a path. `usage_shapes` reads what was reported.

Money is held in picodollars (1e-12 USD). A reported cost is rounded half up once, on the way in; from then on
every sum and difference is exact.
"""

from __future__ import annotations

from dataclasses import astuple, field
from decimal import Context, Decimal, InvalidOperation
from operator import add
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
        """Return the sum. Raises `InvalidEntry` where one of the ten would leave the stored range."""
        total = UsageTotals._make(map(add, self, other))
        if max(total) > MAX_AMOUNT:
            raise SumTooLarge(f"usage: the running total would exceed {MAX_AMOUNT}; check the reported numbers")
        return total

    def minus(self, other: UsageTotals) -> UsageTotals:
        """Return the difference, field by field."""
        return UsageTotals(*[mine - theirs for mine, theirs in zip(self, other, strict=True)])


NO_USAGE = UsageTotals()


@frozen
class Cost:
    """Money, in integer picodollars; `usd` gives the total as an exact Decimal."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0

    @property
    def usd(self) -> Decimal:
        """The total in US dollars, exact."""
        return picodollars_to_usd(self.total)


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
            self.input, self.output, self.cache_read, self.cache_write, self.total_tokens, *astuple(self.cost)
        )

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

    ``on_path`` is False where ``since`` is not an ancestor of ``leaf`` (or the leaf itself): the usage is then
    zero, never that of the whole history (row E25). ``since=None`` is the window over the whole path.
    """

    usage: Usage
    leaf: str | None
    since: str | None = None
    on_path: bool = True


def picodollars_to_usd(picodollars: int) -> Decimal:
    """Return picodollars as US dollars, exact. Nothing is ``0``, which prints as that."""
    return _EXACT.scaleb(Decimal(picodollars), -12) if picodollars else Decimal()


def usd_to_picodollars(amount: float | str | Decimal, where: str = "cost") -> int:
    """Return US dollars as picodollars, rounded half up once.

    A float stands for the shortest decimal that prints as it. Raises `InvalidEntry` for what is negative, not
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


def _exact_amount(amount: object) -> Decimal | None:
    """Return a number as the decimal it prints as, or None for what is no number."""
    if isinstance(amount, bool) or not isinstance(amount, (float, int, str, Decimal)):
        return None
    try:
        return Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    except InvalidOperation:
        return None
