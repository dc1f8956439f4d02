"""Costs in words, and what the lines and branches of a tree cost. An unknown cost is a dash, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from flue_py.core.costs import EntryCost, total_cost
from flue_py.core.entries import Entry
from flue_py.core.usage import picodollars_to_usd
from flue_py.render.branches import Branch, Plan
from flue_py.render.entries import Cost
from flue_py.render.views import dollars


def whole_cost_text(cost: EntryCost) -> str:
    """Return a cost in dollars to the last digit, marked if some calls have none; a dash if no call has one."""
    if not cost.is_known:
        return "-"
    return dollars(picodollars_to_usd(cost.picodollars)) + " + ?" * (cost.unpriced_calls > 0)


def short_cost(cost: EntryCost) -> Cost:
    """Return a cost in the form of a column."""
    return Cost(cost.picodollars, is_partial=not cost.is_whole)


def plan_costs(
    plan: Plan, entries: Sequence[Entry], costs: Mapping[str, EntryCost], *, whole: bool = False
) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Return what the lines of a plan cost, by the id of their last entry, and the branches, by that of their tip.

    ``costs`` are of single entries. Lines and branches without calls are left out. Without ``whole``, so are
    branches of one line, whose cost that line shows already. O(entries).
    """
    by_id = {entry.id: entry for entry in entries}
    lines: dict[str, Cost] = {}
    for run in plan.runs:
        paid = [costs[entry.id] for entry in run.entries if entry.id in costs]
        if paid:
            lines[run.id] = short_cost(total_cost(paid))
    told = Counter(run.branch.tip_id for run in plan.runs if run.id in lines)
    branches: dict[str, Cost] = {}
    for branch in plan.branches:
        if not whole and told[branch.tip_id] < 2:
            continue
        paid = [costs[entry_id] for entry_id in _line_of(branch, by_id) if entry_id in costs]
        if paid:
            branches[branch.tip_id] = short_cost(total_cost(paid))
    return lines, branches


def _line_of(branch: Branch, by_id: Mapping[str, Entry]) -> Iterator[str]:
    at: str | None = branch.tip_id
    for _ in range(branch.entries):
        if at is None:
            return
        yield at
        at = by_id[at].parent_id
