"""What entries cost as far as anybody knows: the ledger first, and where it has no row of theirs, what they report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import is_answer, may_be_paid
from flue_py.core.merging import provenance_of
from flue_py.core.usage import UsageWindow, known_cost, picodollars_to_usd
from flue_py.core.usage_shapes import read_reported


@frozen
class EntryCost:
    """What the paid calls behind an entry, or behind several, cost.

    ``picodollars`` (1e-12 US dollars) sums the costs that are known; ``unpriced_calls`` of the ``calls`` have none.
    ``untold`` counts the answers that came without a word of what they used: the ledger has no call of those, and they
    are in none of the other numbers.
    """

    calls: int = 0
    unpriced_calls: int = 0
    picodollars: int = 0
    untold: int = 0

    @property
    def usd(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if something was called and no cost is known."""
        return picodollars_to_usd(self.picodollars) if self.is_known else None

    @property
    def is_known(self) -> bool:
        """Whether there is a sum to tell: not where all that is known of calls or answers is that some cost nothing."""
        is_told = self.calls > 0 or not self.untold
        return is_told and known_cost(self.picodollars, self.unpriced_calls) is not None

    @property
    def is_whole(self) -> bool:
        """Whether the sum is of all calls that there are."""
        return self.is_known and not self.unpriced_calls

    def plus(self, other: EntryCost) -> EntryCost:
        """Return the sum of two."""
        return EntryCost(
            self.calls + other.calls,
            self.unpriced_calls + other.unpriced_calls,
            self.picodollars + other.picodollars,
            self.untold + other.untold,
        )


NO_CALLS = EntryCost()
UNKNOWN_COST = EntryCost(1, 1)
UNTOLD = EntryCost(untold=1)


def entry_cost(entry: Entry, paid: Mapping[str, EntryCost]) -> EntryCost | None:
    """Return what an entry cost; None if no call made it, or if it is a copy, which was paid for elsewhere.

    ``paid`` is what the ledger has, by entry id. An entry without a row there, whose call another session reported
    first, counts as it reports itself. The cost of an answer without usage is unknown; yet it is not counted
    as a call, because many programs report what a call used with one of the several answers that it made.
    """
    known = paid.get(entry.id)
    if known is not None:
        return known
    if not may_be_paid(entry.kind, entry.role) or provenance_of(entry) is not None:
        return None
    value = entry.data
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        # A summary without usage came without a call.
        return UNTOLD if is_answer(entry.kind, entry.role) else None
    cost = read_reported(usage).cost
    return UNKNOWN_COST if cost is None else EntryCost(1, 0, cost)


def entry_costs(entries: Iterable[Entry], paid: Mapping[str, EntryCost]) -> dict[str, EntryCost]:
    """Return what entries cost, by id; those that no call made are left out. O(entries)."""
    found = {entry.id: entry_cost(entry, paid) for entry in entries}
    return {entry_id: cost for entry_id, cost in found.items() if cost is not None}


def total_cost(costs: Iterable[EntryCost]) -> EntryCost:
    """Return the sum of costs."""
    each = list(costs)
    return EntryCost(
        sum(cost.calls for cost in each),
        sum(cost.unpriced_calls for cost in each),
        sum(cost.picodollars for cost in each),
        sum(cost.untold for cost in each),
    )


def window_costs(window: UsageWindow) -> tuple[int | None, ...]:
    """Return what the input, the output, cache reads and cache writes of a window cost, and all of it, in picodollars.

    All of it is what the ledger knows, or what the entries report if that is more: another session may have paid.
    None is unknown, for example the cost of one kind of tokens if only the total was reported or priced.
    """
    usage, cost = window.usage, window.usage.cost
    total = max(cost.total, window.reported_cost)
    parts = (cost.input, cost.output, cost.cache_read, cost.cache_write)
    # Without calls of its own and without a cost that was reported, a path is known to cost nothing if it used nothing.
    used_nothing = not any(usage.totals) and bool(window.told)
    is_told = total > 0 or (window.cost is not None and (window.calls > 0 or used_nothing))
    is_split = is_told and sum(parts) == total and not window.unpriced_calls
    kinds = zip(window.known.values(), parts, strict=False)
    return (*(part if part or is_split or tokens == 0 else None for tokens, part in kinds), total if is_told else None)


def is_unknown(window: UsageWindow) -> bool:
    """Return whether there are calls in a window, and the usage of all of them is unknown."""
    return window.calls > 0 and window.unknown_calls == window.calls and not any(window.usage.totals)
