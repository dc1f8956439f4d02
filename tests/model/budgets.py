"""Budgets of the model: what is reserved is looked up among the reservations each time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from msgspec.structs import replace

from flue_py.core import ledger
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import BudgetNotFound, InvalidArgument, ReservationNotFound
from tests.model.reads import ModelReads
from tests.model.rows import BudgetNote, ReservationNote

_ID_ATTEMPTS = 1_000


def _covers_scope(of_budget: str, scope: str) -> bool:
    """Return whether the budget of a scope, or of a beginning of scopes, covers the sessions of a scope."""
    rest = ledger.ANY_REST
    return scope == of_budget or (of_budget.endswith(rest) and scope.startswith(of_budget[: -len(rest)]))


class ModelBudgets(ModelReads):
    """What `Backend` says of budgets."""

    # -- budgets ----------------------------------------------------------------------------------------------

    async def set_budget(self, new: ledger.NewBudget) -> ledger.Budget:
        scope = new.scope if new.session_id is None else self._session(new.session_id).info.scope
        note = self._same_target(new, scope)
        now = self._sources.now_us()
        if note is not None:
            note.allowed, note.updated_us = new.allowed, now
            return self._budget(note, now)
        spent = self._in_ledger(new, scope) if new.spent == "ledger" else new.spent
        budget_id = unused(self._sources.entry_id, self._budgets)
        note = BudgetNote(budget_id, scope, new.covers, new.session_id, new.unit, new.allowed, spent, spent, now, now)
        self._budgets[budget_id] = note
        return self._budget(note, now)

    def _same_target(self, new: ledger.NewBudget, scope: str) -> BudgetNote | None:
        target = (new.session_id, new.covers, new.unit)
        return next(
            (
                note
                for note in self._budgets.values()
                if (note.session_id, note.covers, note.unit) == target and note.scope == scope
            ),
            None,
        )

    def _in_ledger(self, new: ledger.NewBudget | ledger.Budget, scope: str) -> int:
        calls = list(self._ledger.values())
        if new.session_id is None:
            calls = [call for call in calls if _covers_scope(scope, call.scope)]
        else:
            sessions = self._task_ids(new.session_id) if new.covers == "tasks" else {new.session_id}
            calls = [call for call in calls if self._payers[call.session_key].session_id in sessions]
        spent = sum(call.tokens if new.unit == "tokens" else call.cost or 0 for call in calls)
        if spent > MAX_AMOUNT:
            raise InvalidArgument(
                f"spent_so_far: the ledger has {spent}, which is more than can be stored; give a number"
            )
        return spent

    def _budget(self, note: BudgetNote, now: int) -> ledger.Budget:
        return ledger.Budget(
            note.id,
            note.scope,
            note.covers,
            note.session_id,
            note.unit,
            note.allowed,
            note.spent,
            sum(each.holds(note.id, now) for each in self._reservations.values()),
            note.seeded,
            note.created_us,
            note.updated_us,
        )

    async def list_budgets(
        self, *, scope: str | None, scope_prefix: str = "", after: str | None, limit: int
    ) -> list[ledger.Budget]:
        notes = list(self._budgets.values())
        if after is not None:
            notes = notes[notes.index(self._require_budget(after)) + 1 :]
        now = self._sources.now_us()
        meant = [note for note in notes if scope in (None, note.scope) and note.scope.startswith(scope_prefix)]
        return [self._budget(note, now) for note in meant[:limit]]

    def _require_budget(self, budget_id: str) -> BudgetNote:
        note = self._budgets.get(budget_id)
        if note is None:
            raise BudgetNotFound(budget_id)
        return note

    async def covering_budgets(self, session_id: str, *, by_ledger: bool = False) -> list[ledger.Budget]:
        notes = self._covering(session_id)
        now = self._sources.now_us()
        found = [self._budget(note, now) for note in notes]
        return [replace(each, spent=self._in_ledger(each, each.scope)) for each in found] if by_ledger else found

    def _covering(self, session_id: str) -> list[BudgetNote]:
        info = self._session(session_id).info
        above = {session_id}
        while True:
            parents = {
                session.info.id
                for session in self._sessions.values()
                if any(link.child_id in above for link in session.links)
            }
            if parents <= above:
                break
            above |= parents
        return [
            note
            for note in self._budgets.values()
            if (note.covers == "session" and note.session_id == session_id)
            or (note.covers == "tasks" and note.session_id in above)
            or (note.covers == "scope" and _covers_scope(note.scope, info.scope))
        ]

    async def held_amounts(self, budget_id: str) -> list[ledger.HeldAmount]:
        self._require_budget(budget_id)
        now = self._sources.now_us()
        held = [
            ledger.HeldAmount(each.id, each.session_id, each.amounts[budget_id], each.created_us, each.expires_us)
            for each in self._reservations.values()
            if budget_id in each.amounts and each.state == "held" and now < each.expires_us
        ]
        return sorted(held, key=lambda each: (each.expires_us, each.reservation_id))

    async def budgets_reached(self, asked: Sequence[tuple[str, int]]) -> list[ledger.Reached | None]:
        return [self._reached(budget_id, amount) for budget_id, amount in asked]

    def _reached(self, budget_id: str, amount: int) -> ledger.Reached | None:
        note = self._budgets.get(budget_id)
        if note is None:
            return None
        if note.seeded >= amount:
            return ledger.Reached(note.created_us, None, note.seeded)
        spent = note.seeded
        for settled_us, reservation_id in sorted(
            (each.settled_us or 0, each.id) for each in self._reservations.values() if budget_id in each.used
        ):
            spent += self._reservations[reservation_id].used[budget_id]
            if spent >= amount:
                return ledger.Reached(settled_us, self._reservations[reservation_id].session_id, spent)
        return None

    async def delete_budget(self, budget_id: str) -> ledger.Budget:
        budget = self._budget(self._require_budget(budget_id), self._sources.now_us())
        self._forget_budgets([budget_id])
        return budget

    def _forget_budgets(self, budget_ids: Iterable[str]) -> None:
        """Delete budgets, with what is reserved in them."""
        for budget_id in budget_ids:
            del self._budgets[budget_id]
            for reservation in list(self._reservations.values()):
                reservation.amounts.pop(budget_id, None)
                reservation.used.pop(budget_id, None)
                if not reservation.amounts:
                    del self._reservations[reservation.id]

    # -- reservations -----------------------------------------------------------------------------------------

    async def reserve(self, session_id: str, asked: ledger.Amounts, ttl_us: int) -> ledger.Reservation:
        notes = self._covering(session_id)
        now = self._sources.now_us()
        for note in notes:
            ledger.check_room(self._budget(note, now), asked, session_id)
        reservation_id = unused(self._sources.entry_id, self._reservations)
        amounts = {note.id: asked.of(note.unit) or 0 for note in notes}
        made = ReservationNote(reservation_id, session_id, "held", amounts, {}, now, now + ttl_us)
        if notes:
            self._reservations[reservation_id] = made
        self._touch(made, now)
        return self._reservation(made, now)

    def _shares(self, note: ReservationNote) -> list[ledger.Share]:
        return [
            ledger.Share(budget.id, budget.unit, note.amounts[budget.id], note.state, note.used.get(budget.id))
            for budget in self._budgets.values()
            if budget.id in note.amounts
        ]

    def _reservation(self, note: ReservationNote, now: int) -> ledger.Reservation:
        return ledger.reservation_of(
            note.id,
            note.session_id,
            self._shares(note),
            created_us=note.created_us,
            expires_us=note.expires_us,
            settled_us=note.settled_us,
            now_us=now,
        )

    def _touch(self, note: ReservationNote, now: int) -> None:
        for budget_id in note.amounts:
            self._budgets[budget_id].updated_us = now

    async def get_reservation(self, reservation_id: str) -> ledger.Reservation | None:
        note = self._reservations.get(reservation_id)
        return None if note is None else self._reservation(note, self._sources.now_us())

    def _require_reservation(self, reservation_id: str) -> ReservationNote:
        note = self._reservations.get(reservation_id)
        if note is None:
            raise ReservationNotFound(reservation_id)
        return note

    async def commit_reservation(self, reservation_id: str, used: ledger.Amounts) -> ledger.Reservation:
        note = self._require_reservation(reservation_id)
        now = self._sources.now_us()
        shares = self._shares(note)
        if ledger.is_retry(self._reservation(note, now), shares, used):
            return self._reservation(note, now)
        for share in shares:
            ledger.check_booked(share.budget_id, self._budgets[share.budget_id].spent + ledger.used_of(share, used))
        for share in shares:
            note.used[share.budget_id] = ledger.used_of(share, used)
            self._budgets[share.budget_id].spent += note.used[share.budget_id]
        note.state, note.settled_us = "committed", now
        self._touch(note, now)
        return self._reservation(note, now)

    async def release_reservation(self, reservation_id: str) -> ledger.Reservation:
        note = self._require_reservation(reservation_id)
        now = self._sources.now_us()
        ledger.check_held(self._reservation(note, now), "released")
        note.state, note.settled_us = "released", now
        self._touch(note, now)
        return self._reservation(note, now)

    async def prolong_reservation(self, reservation_id: str, ttl_us: int) -> ledger.Reservation:
        note = self._require_reservation(reservation_id)
        now = self._sources.now_us()
        ledger.check_held(self._reservation(note, now), "prolonged")
        note.expires_us = max(note.expires_us, now + ttl_us)
        self._touch(note, now)
        return self._reservation(note, now)


def unused(draw: Callable[[], str], *taken: Container[str]) -> str:
    """Return a fresh id, drawing again while it is taken. Raises `InvalidArgument` after 1,000 draws."""
    for _ in range(_ID_ATTEMPTS):
        drawn = draw()
        if not any(drawn in ids for ids in taken):
            return drawn
    raise InvalidArgument(f"ids: {_ID_ATTEMPTS} ids in a row are taken; make others")
