"""Budgets into and out of the store in memory, which keeps a reservation once, whatever budgets it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from flue_py.core.budget_copies import BudgetCopy, BudgetRow, BudgetState, ReservationRow, state_of_budget
from flue_py.core.budgets import Covers, ReservationState, Unit
from flue_py.store.memory.budgets import MemoryBudgets
from flue_py.store.memory.model import BudgetNote, ReservationNote

# What one of its shares says of a reservation goes before what another does.
_RANKS: tuple[ReservationState, ...] = ("held", "expired", "released", "committed")


class MemoryBudgetCopying(MemoryBudgets):
    """What `Backend` says of budgets that move house."""

    async def list_whole_budgets(self, after: int, limit: int) -> list[BudgetCopy]:
        self._check_open()
        notes = list(enumerate(self._budgets.values()))[after + 1 :]
        return [self._whole(position, note) for position, note in notes[:limit]]

    def _whole(self, position: int, note: BudgetNote) -> BudgetCopy:
        reserved = [
            ReservationRow(
                each.id,
                each.session_id,
                each.amounts[note.id],
                each.state,
                each.used.get(note.id),
                each.created_us,
                each.expires_us,
                each.settled_us,
            )
            for each in self._reservations.values()
            if note.id in each.amounts
        ]
        held = sum(row.amount for row in reserved if row.state == "held")
        return BudgetCopy(position, self._budget_row(note, held), reserved)

    @staticmethod
    def _budget_row(note: BudgetNote, reserved: int = 0) -> BudgetRow:
        return BudgetRow(
            note.id,
            note.scope,
            note.covers,
            note.session_id,
            note.unit,
            note.allowed,
            note.spent,
            reserved,
            note.seeded,
            note.created_us,
            note.updated_us,
        )

    async def write_budgets(self, copies: Sequence[BudgetCopy]) -> list[BudgetState]:
        self._check_open()
        return [self._write_budget(copy) for copy in copies]

    def _write_budget(self, copy: BudgetCopy) -> BudgetState:
        budget = copy.budget
        rows = {note.id: self._budget_row(note) for note in self._budgets.values()}
        session = None if budget.session_id is None else self._sessions.get(budget.session_id)
        state = state_of_budget(
            budget,
            same_id=rows.get(budget.id),
            same_target=next((row for row in rows.values() if row.target == budget.target), None),
            session_scope=None if session is None else session.info.scope,
        )
        if state != "written":
            return state
        for reservation in list(self._reservations.values()):
            reservation.amounts.pop(budget.id, None)
            reservation.used.pop(budget.id, None)
        self._budgets[budget.id] = BudgetNote(
            budget.id,
            budget.scope,
            cast("Covers", budget.covers),
            budget.session_id,
            cast("Unit", budget.unit),
            budget.allowed,
            budget.spent,
            budget.seeded,
            budget.created_at,
            budget.updated_at,
        )
        for row in copy.reservations:
            self._write_share(budget.id, row)
        self._reservations = {each.id: each for each in self._reservations.values() if each.amounts}
        return state

    def _write_share(self, budget_id: str, row: ReservationRow) -> None:
        state = cast("ReservationState", row.state)
        note = self._reservations.get(row.reservation_id)
        if note is None:
            note = ReservationNote(
                row.reservation_id, row.session_id or "", state, {}, {}, row.created_at, row.expires_at, row.settled_at
            )
            self._reservations[note.id] = note
        note.amounts[budget_id] = row.amount
        if row.used is not None:
            note.used[budget_id] = row.used
        if len(note.amounts) == 1 or _RANKS.index(state) >= _RANKS.index(note.state):
            note.state, note.settled_us, note.expires_us = state, row.settled_at, row.expires_at
