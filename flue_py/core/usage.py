"""Usage: tokens and money as integers, from the JSON a provider reported to sums over a path.

Money is held in picodollars (1e-12 USD). A reported cost is rounded half up once, on the way in; from then on
every sum and difference is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from decimal import Context, Decimal, InvalidOperation
from typing import NamedTuple

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidEntry, shown

PICODOLLARS_PER_DOLLAR = 10**12
MAX_AMOUNT = 2**62
"""The largest total that is stored (64-bit integers, with room for one more addition)."""

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
_COST_FIELDS = ("input", "output", "cacheRead", "cacheWrite", "total")


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
        total = UsageTotals(*[mine + theirs for mine, theirs in zip(self, other, strict=True)])
        if max(total) > MAX_AMOUNT:
            raise InvalidEntry(f"usage: the running total would exceed {MAX_AMOUNT}; check the reported numbers")
        return total

    def minus(self, other: UsageTotals) -> UsageTotals:
        """Return the difference, field by field."""
        return UsageTotals(*[mine - theirs for mine, theirs in zip(self, other, strict=True)])


NO_USAGE = UsageTotals()


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
            name: amount / PICODOLLARS_PER_DOLLAR for name, amount in zip(_COST_FIELDS, self.totals[5:], strict=True)
        }
        return {**tokens, "cost": {**cost}}


@dataclass(frozen=True, slots=True)
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
    """Return picodollars as US dollars, exact."""
    return _EXACT.scaleb(Decimal(picodollars), -12)


def usd_to_picodollars(amount: float | str | Decimal, where: str = "cost") -> int:
    """Return US dollars as picodollars, rounded half up once.

    A float stands for the shortest decimal that prints as it. Raises `InvalidEntry` for what is negative, not
    finite, or too large to store.
    """
    exact = _exact_amount(amount)
    if exact is None or not exact.is_finite() or exact < 0:
        raise InvalidEntry(f"{where}: {shown(amount)} is not an amount of money; use a finite number of dollars >= 0")
    if exact > MAX_AMOUNT // PICODOLLARS_PER_DOLLAR:
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


def read_usage(value: JsonValue, where: str = "usage") -> UsageTotals:
    """Return the ten numbers of a reported usage object (camelCase; absent and null fields count zero).

    Raises `InvalidEntry` naming the field for what is not a number, negative, or too large. Cost: O(1).
    """
    if value is None:
        return NO_USAGE
    if not isinstance(value, Mapping):
        raise InvalidEntry(f"{where}: should be an object, not {type(value).__name__}")
    cost = value.get("cost")
    if cost is None:
        cost = {}
    elif not isinstance(cost, Mapping):
        raise InvalidEntry(f"{where}.cost: should be an object, not {type(cost).__name__}")
    return UsageTotals(
        *[_tokens(value.get(name), f"{where}.{name}") for name in _TOKEN_FIELDS],
        *[_dollars(cost.get(name), f"{where}.cost.{name}") for name in _COST_FIELDS],
    )


def _tokens(value: JsonValue, where: str) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidEntry(f"{where}: {shown(value)} is not a whole number of tokens")
    if not 0 <= value <= MAX_AMOUNT:
        raise InvalidEntry(f"{where}: {shown(value)} is outside 0..{MAX_AMOUNT}")
    return value


def _dollars(value: JsonValue, where: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidEntry(f"{where}: {shown(value)} is not a number of dollars")
    if value == 0:
        return 0
    return usd_to_picodollars(value, where)


def read_token_parts(value: Mapping[str, JsonValue], usage: UsageTotals, where: str) -> tuple[int, int]:
    """Return the tokens written to a one-hour cache, and those of reasoning: parts of ``cacheWrite`` and ``output``.

    Raises `InvalidEntry` naming the field for what is no count of tokens, or more than what it is a part of.
    """
    parts = []
    for name, whole, most in (("cacheWrite1h", "cacheWrite", usage.cache_write), ("reasoning", "output", usage.output)):
        part = value.get(name)
        tokens = 0 if part is None else _tokens(part, f"{where}.{name}")
        if tokens > most:
            raise InvalidEntry(f"{where}.{name}: {tokens} is more than the {most} of {whole}, which it is a part of")
        parts.append(tokens)
    return parts[0], parts[1]


def read_cost(value: Mapping[str, JsonValue], where: str) -> int | None:
    """Return the reported cost in picodollars: the total, or the sum of its parts; None where none was reported.

    Raises `InvalidEntry` naming the field.
    """
    cost = value.get("cost")
    if not isinstance(cost, Mapping):
        return None
    if cost.get("total") is not None:
        return _dollars(cost["total"], f"{where}.cost.total")
    parts = [_dollars(cost[name], f"{where}.cost.{name}") for name in _COST_FIELDS if cost.get(name) is not None]
    if sum(parts) > MAX_AMOUNT:
        raise InvalidEntry(f"{where}.cost: the sum of its parts is more than can be stored")
    return sum(parts) if parts else None


def sum_usage(usages: Iterable[JsonValue]) -> Usage:
    """Return the sum of reported usage objects. Raises as `read_usage` and `UsageTotals.plus` do."""
    total = NO_USAGE
    for value in usages:
        total = total.plus(read_usage(value))
    return Usage.from_totals(total)


def reported_usage(kind: str, role: str | None, payload: Mapping[str, JsonValue]) -> UsageTotals:
    """Return what an entry adds to its path's totals: an assistant message's usage, or a compaction's.

    User and tool-result messages and branch summaries add nothing, whatever they carry (row E25).
    """
    if (kind == "message" and role == "assistant") or kind == "compaction":
        return read_usage(payload.get("usage"))
    return NO_USAGE
