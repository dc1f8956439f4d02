"""Budgets on a database: the row of a budget is the lock that reservations in it take, in order of key.

Whoever changes a budget locks its row before reading it. Reservations that have expired are left out wherever a budget
is read, and are taken out of its row by the next reservation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from flue_py.core.budget_copies import BudgetRow, ReservationRow
from flue_py.core.budgets import (
    ANY_REST,
    Amounts,
    Budget,
    HeldAmount,
    NewBudget,
    Reached,
    Reservation,
    Share,
    check_booked,
    check_held,
    check_room,
    is_retry,
    reservation_of,
    scopes_covering,
    used_of,
)
from flue_py.core.sessions import above_prefix, is_storable
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import BudgetNotFound, InvalidArgument, ReservationNotFound
from flue_py.store.ops.sessions import require_session
from flue_py.store.ops.state import read_state
from flue_py.store.ops.usage import task_ids
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import budgets as budgets_sql
from flue_py.store.sql.inserts import INSERT_BUDGET, INSERT_RESERVATION

_ID_ATTEMPTS = 1_000

# -- budgets ----------------------------------------------------------------------------------------------------------


def set_budget(tx: Transaction, sources: Sources, new: NewBudget) -> Budget:
    """Make a budget, or change what the one of the same target and unit allows (see `Backend.set_budget`)."""
    scope = new.scope
    if new.session_id is not None:
        # Locked, so that it is not deleted meanwhile.
        scope = read_state(tx, new.session_id).scope
    now = sources.now_us()
    found = key_of_target(tx, new.session_id, new.covers, scope, new.unit)
    if found is not None:
        key = found
        lock_budgets(tx, [key])
        tx.run(budgets_sql.SET_ALLOWED, allowed=new.allowed, now=now, budget_key=key)
    else:
        spent = _in_ledger(tx, new, scope) if new.spent == "ledger" else new.spent
        key = tx.new_key()
        row = BudgetRow(
            id=_new_budget_id(tx, sources),
            scope=scope,
            covers=new.covers,
            session_id=new.session_id,
            unit=new.unit,
            allowed=new.allowed,
            spent=spent,
            reserved=0,
            seeded=spent,
            created_at=now,
            updated_at=now,
        )
        tx.insert(INSERT_BUDGET, [(key, *row)])
    ((_, budget),) = _budgets(tx, [key], now)
    return budget


def key_of_target(tx: Transaction, session_id: str | None, covers: str, scope: str, unit: str) -> int | None:
    """Return the key of the budget of a session or a scope in a unit, or None."""
    if session_id is None:
        row = tx.first(budgets_sql.BUDGET_OF_SCOPE, scope=scope, unit=unit)
    else:
        row = tx.first(budgets_sql.BUDGET_OF_SESSION, session_id=session_id, covers=covers, unit=unit)
    (key,) = row or (None,)
    return key


def _new_budget_id(tx: Transaction, sources: Sources) -> str:
    for _ in range(_ID_ATTEMPTS):
        drawn = sources.entry_id()
        if tx.first(budgets_sql.BUDGET_KEY, id=drawn) is None:
            return drawn
    raise _ids_exhausted()


def _ids_exhausted() -> InvalidArgument:
    return InvalidArgument(f"ids: {_ID_ATTEMPTS} ids in a row are taken; make others")


def _in_ledger(tx: Transaction, new: NewBudget | Budget, scope: str) -> int:
    """Return what the ledger has of a budget's target."""
    if new.covers == "scope" and scope.endswith(ANY_REST):
        prefix = scope.removesuffix(ANY_REST)
        row = tx.first(budgets_sql.SPENT_IN_SCOPES, scope=prefix, above=above_prefix(prefix))
    elif new.covers == "scope":
        row = tx.first(budgets_sql.SPENT_IN_SCOPE, scope=scope)
    else:
        ids = [str(new.session_id)]
        if new.covers == "tasks":
            ids = sorted(task_ids(tx, str(new.session_id)))
        row = tx.first(budgets_sql.SPENT_BY_SESSIONS, ids=json.dumps(ids))
    tokens_high, tokens_low, cost_high, cost_low = row or (0, 0, 0, 0)
    high, low = (tokens_high, tokens_low) if new.unit == "tokens" else (cost_high, cost_low)
    spent = int((high << 32) + low)
    if spent > MAX_AMOUNT:
        raise InvalidArgument(f"spent_so_far: the ledger has {spent}, which is more than can be stored; give a number")
    return spent


def get_budget(tx: Transaction, sources: Sources, budget_id: str) -> Budget | None:
    """Return a budget, or None (see `Backend.get_budget`)."""
    key = _key_of(tx, budget_id)
    found = [] if key is None else _budgets(tx, [key], sources.now_us())
    return next((budget for _, budget in found), None)


def _key_of(tx: Transaction, budget_id: str) -> int | None:
    row = tx.first(budgets_sql.BUDGET_KEY, id=budget_id) if is_storable(budget_id) else None
    (key,) = row or (None,)
    return key


def _require_key(tx: Transaction, budget_id: str) -> int:
    key = _key_of(tx, budget_id)
    if key is None:
        raise BudgetNotFound(budget_id)
    return key


def list_budgets(
    tx: Transaction, sources: Sources, scope: str | None, prefix: str, after: str | None, limit: int
) -> list[Budget]:
    """Return budgets in the order they were made (see `Backend.list_budgets`)."""
    beyond = -1 if after is None else _require_key(tx, after)
    first, last = (prefix, above_prefix(prefix)) if scope is None else (scope, scope)
    if not first.startswith(prefix):
        return []
    rows = tx.rows(
        budgets_sql.BUDGETS_IN_SCOPES, budget_key=beyond, first=first, last=last, now=sources.now_us(), count=limit
    )
    return [budget for _, budget in rows]


def covering_budgets(tx: Transaction, sources: Sources, session_id: str, *, by_ledger: bool) -> list[Budget]:
    """Return the budgets that cover a session (see `Backend.covering_budgets`)."""
    found = [budget for _, budget in _budgets(tx, _covering_keys(tx, session_id), sources.now_us())]
    return [replace(each, spent=_in_ledger(tx, each, each.scope)) for each in found] if by_ledger else found


def _covering_keys(tx: Transaction, session_id: str) -> list[int]:
    info = require_session(tx, session_id)
    return [key for (key,) in tx.rows(budgets_sql.COVERING, id=session_id, ids=json.dumps(scopes_covering(info.scope)))]


def held_amounts(tx: Transaction, sources: Sources, budget_id: str) -> list[HeldAmount]:
    """Return what is held of a budget (see `Backend.held_amounts`)."""
    key = _require_key(tx, budget_id)
    return list(tx.rows(budgets_sql.HELD, budget_key=key, now=sources.now_us()))


def budgets_reached(tx: Transaction, asked: Sequence[tuple[str, int]]) -> list[Reached | None]:
    """Return when budgets had spent amounts (see `Backend.budgets_reached`). One statement."""
    storable = [each for each in asked if is_storable(each[0])]
    found = dict(tx.rows(budgets_sql.REACHED, ids=json.dumps(storable)))
    return [found.get(each) for each in asked]


class Deleting:
    """One call of `Backend.delete_budget`, which may be run again where its commit went unheard."""

    def __init__(self, sources: Sources, budget_id: str) -> None:
        self._sources = sources
        self._id = budget_id
        self._deleted: Budget | None = None

    def __call__(self, tx: Transaction) -> Budget:
        """Delete a budget and what is reserved in it. Raises `BudgetNotFound`."""
        key = _key_of(tx, self._id)
        if key is not None:
            lock_budgets(tx, [key])
        found = [] if key is None else _budgets(tx, [key], self._sources.now_us())
        if found:
            tx.run(budgets_sql.DELETE_BUDGETS, keys=json.dumps([key]))
            ((_, self._deleted),) = found
        if self._deleted is None:
            raise BudgetNotFound(self._id)
        return self._deleted


def delete_session_budgets(tx: Transaction, session_ids: Iterable[str]) -> None:
    """Delete the budgets of sessions that are being deleted. What these reserved in other budgets stays."""
    _delete_budgets(tx, [key for (key,) in tx.rows(budgets_sql.BUDGETS_OF_SESSIONS, ids=json.dumps(list(session_ids)))])


def delete_scope_budgets(tx: Transaction, scope: str) -> None:
    """Delete the budgets of a scope, and of its sessions."""
    _delete_budgets(tx, [key for (key,) in tx.rows(budgets_sql.BUDGETS_OF_SCOPE, scope=scope)])


def _delete_budgets(tx: Transaction, keys: list[int]) -> None:
    if keys:
        lock_budgets(tx, keys)
        tx.run(budgets_sql.DELETE_BUDGETS, keys=json.dumps(keys))


def lock_budgets(tx: Transaction, keys: Collection[int]) -> None:
    """Wait until nobody else changes these budgets, and keep others out until the end."""
    if keys and not tx.is_alone:
        tx.rows(budgets_sql.LOCK_BUDGETS, keys=json.dumps(sorted(keys)))


def _budgets(tx: Transaction, keys: Collection[int], now: int) -> list[tuple[int, Budget]]:
    """Return budgets by key, in order of it. Those that are gone are left out."""
    if not keys:
        return []
    return list(tx.rows(budgets_sql.BUDGETS_BY_KEY, keys=json.dumps(list(keys)), now=now))


# -- reservations -----------------------------------------------------------------------------------------------------


class Reserving:
    """One call of `Backend.reserve`, which may be run again after a rollback, or where its commit went unheard."""

    def __init__(self, sources: Sources, session_id: str, asked: Amounts, ttl_us: int) -> None:
        self._sources = sources
        self._session_id = session_id
        self._asked = asked
        self._ttl_us = ttl_us
        self._made: Reservation | None = None

    def __call__(self, tx: Transaction) -> Reservation:
        """Set the amounts aside in every budget that covers the session. Raises `BudgetExceeded`."""
        if self._made is not None and self._made.budget_ids and _is_reserved(tx, self._made.id):
            return self._made
        keys = _covering_keys(tx, self._session_id)
        lock_budgets(tx, keys)
        now = self._sources.now_us()
        budgets = _budgets(tx, keys, now)
        for _, budget in budgets:
            check_room(budget, self._asked, self._session_id)
        reservation_id = self._new_id(tx)
        expires = now + self._ttl_us
        shares = []
        for key, budget in budgets:
            amount = self._asked.of(budget.unit) or 0
            shares.append(Share(budget.id, budget.unit, amount, "held", None))
            self._set_aside(tx, key, amount, now)
            row = ReservationRow(reservation_id, self._session_id, amount, "held", None, now, expires, None)
            tx.insert(INSERT_RESERVATION, [(key, *row)])
        self._made = reservation_of(
            reservation_id,
            str(self._session_id),
            shares,
            created_us=now,
            expires_us=expires,
            settled_us=None,
            now_us=now,
        )
        return self._made

    def _new_id(self, tx: Transaction) -> str:
        for _ in range(_ID_ATTEMPTS):
            drawn = self._sources.entry_id()
            if not _is_reserved(tx, drawn):
                return drawn
        raise _ids_exhausted()

    @staticmethod
    def _set_aside(tx: Transaction, key: int, amount: int, now: int) -> None:
        where = budgets_sql.BudgetNow(budget_key=key, now=now)
        due, expired = tx.first(budgets_sql.DUE, **where) or (0, 0)
        if expired:
            tx.run(budgets_sql.EXPIRE, **where)
        tx.run(budgets_sql.SET_ASIDE, **where, amount=amount, due=due)


def _is_reserved(tx: Transaction, reservation_id: str) -> bool:
    return tx.first(budgets_sql.IS_RESERVED, reservation_id=reservation_id) is not None


class _Found:
    """A reservation as it is stored, with its budgets locked where it is to be changed."""

    def __init__(self, tx: Transaction, reservation_id: str, now: int, *, locked: bool = True) -> None:
        rows = tx.rows(budgets_sql.SHARES, reservation_id=reservation_id) if is_storable(reservation_id) else ()
        if rows and locked and not tx.is_alone:
            lock_budgets(tx, [row.budget_key for row in rows])
            rows = tx.rows(budgets_sql.SHARES, reservation_id=reservation_id)
        if not rows:
            raise ReservationNotFound(reservation_id)
        self.now = now
        self.id = reservation_id
        self.keys = [row.budget_key for row in rows]
        self.shares = [Share(row.budget_id, row.unit, row.amount, row.state, row.used) for row in rows]
        self.spent = [row.spent for row in rows]
        self._first = rows[0]
        self.expires_us = self._first.expires_at

    @property
    def reservation(self) -> Reservation:
        return reservation_of(
            self.id,
            self._first.session_id,
            self.shares,
            created_us=self._first.created_at,
            expires_us=self.expires_us,
            settled_us=self._first.settled_at,
            now_us=self.now,
        )

    def settle(self, tx: Transaction, state: str, used: Amounts | None) -> None:
        """Settle every share: book what was used, and give back what is still set aside."""
        for key, share in zip(self.keys, self.shares, strict=True):
            booked = None if used is None else used_of(share, used)
            freed = share.amount if share.state == "held" else 0
            where = budgets_sql.BudgetNow(budget_key=key, now=self.now)
            tx.run(budgets_sql.BOOK, **where, used=booked or 0, freed=freed)
            tx.run(budgets_sql.SETTLE, **where, reservation_id=self.id, state=state, used=booked)


def get_reservation(tx: Transaction, sources: Sources, reservation_id: str) -> Reservation | None:
    """Return a reservation as it stands, or None (see `Backend.get_reservation`)."""
    try:
        return _Found(tx, reservation_id, sources.now_us(), locked=False).reservation
    except ReservationNotFound:
        return None


def commit_reservation(tx: Transaction, sources: Sources, reservation_id: str, used: Amounts) -> Reservation:
    """Book what a call used (see `Backend.commit_reservation`)."""
    found = _Found(tx, reservation_id, sources.now_us())
    if is_retry(found.reservation, found.shares, used):
        return found.reservation
    for share, spent in zip(found.shares, found.spent, strict=True):
        check_booked(share.budget_id, spent + used_of(share, used))
    found.settle(tx, "committed", used)
    return _Found(tx, reservation_id, found.now).reservation


class Releasing:
    """One call of `Backend.release_reservation`, which may be run again where its commit went unheard."""

    def __init__(self, sources: Sources, reservation_id: str) -> None:
        self._sources = sources
        self._id = reservation_id
        self._has_run = False

    def __call__(self, tx: Transaction) -> Reservation:
        """Give back what the reservation holds. Raises `ReservationSettled` where it holds nothing any more."""
        found = _Found(tx, self._id, self._sources.now_us())
        if self._has_run and found.reservation.state == "released":
            return found.reservation
        check_held(found.reservation, "released")
        found.settle(tx, "released", None)
        self._has_run = True
        return _Found(tx, self._id, found.now).reservation


def prolong_reservation(tx: Transaction, sources: Sources, reservation_id: str, ttl_us: int) -> Reservation:
    """Hold a reservation for longer (see `Backend.prolong_reservation`)."""
    found = _Found(tx, reservation_id, sources.now_us())
    check_held(found.reservation, "prolonged")
    expires = max(found.expires_us, found.now + ttl_us)
    tx.run(budgets_sql.PROLONG, reservation_id=reservation_id, expires_at=expires)
    for key in found.keys:
        # Its budget has changed, and those who have a copy of it should know.
        tx.run(budgets_sql.BOOK, budget_key=key, now=found.now, used=0, freed=0)
    return _Found(tx, reservation_id, found.now).reservation
