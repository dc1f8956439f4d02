"""Budgets, as they cross from one store to another, and whether a store may take one.

The fields of the rows are named and ordered as the columns that `docs/format.md` describes; the internal key of a
budget means nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.frozen import frozen

BudgetState: TypeAlias = Literal["written", "same", "later", "no session", "taken"]
"""What became of a budget: it was written; the target has it as it is, or in a later state; it does not have its
session; or it has another budget of the same target and unit, or under the same id."""


class BudgetRow(NamedTuple):
    """A budget. ``reserved`` is what its reservations of the state ``held`` set aside."""

    id: str
    scope: str
    covers: str
    session_id: str | None
    unit: str
    allowed: int
    spent: int
    reserved: int
    seeded: int
    created_at: int
    updated_at: int

    @property
    def target(self) -> tuple[str, str, str | None, str]:
        """What it covers, and in which unit it counts: no two budgets have the same."""
        return self[1:5]


class ReservationRow(NamedTuple):
    """What one reservation set aside in a budget, and what became of it."""

    reservation_id: str
    session_id: str | None
    amount: int
    state: str
    used: int | None
    created_at: int
    expires_at: int
    settled_at: int | None


@frozen
class BudgetCopy:
    """A budget with everything that was ever reserved in it. ``position`` is good in its own store only."""

    position: int
    budget: BudgetRow
    reservations: Sequence[ReservationRow]


def state_of_budget(
    budget: BudgetRow, *, same_id: BudgetRow | None, same_target: BudgetRow | None, session_scope: str | None
) -> BudgetState:
    """Return how a target stands to a budget of another store, where ``written`` is: it is to be written.

    ``same_id`` and ``same_target`` are what the target has under its id, and of its target and unit;
    ``session_scope`` is the scope of its session there, None if that is missing.
    """
    if budget.session_id is not None and session_scope != budget.scope:
        return "no session"
    if (same_id is not None and same_id.target != budget.target) or (
        same_target is not None and same_target.id != budget.id
    ):
        return "taken"
    if same_id is None or same_id.updated_at < budget.updated_at:
        return "written"
    return "same" if same_id.updated_at == budget.updated_at else "later"
