"""Budgets: what a store sets, and what a session reserves before a call and books after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Literal, cast

from flue_py.core.budgets import (
    ANY_REST,
    Amounts,
    Budget,
    Covers,
    HeldAmount,
    Money,
    NewBudget,
    Reservation,
    SpentSoFar,
    Unit,
    amounts_of,
    check_amount,
    check_spent,
    picodollars_of,
    ttl_us,
)
from flue_py.core.sessions import check_scope
from flue_py.errors import BudgetNotFound, FlueError, InvalidArgument, ReservationNotFound, shown
from flue_py.once import async_once
from flue_py.sessions.arguments import (
    HasId,
    checked_flag,
    checked_id,
    checked_limit,
    checked_place,
    checked_text,
)
from flue_py.sessions.handle import Handle
from flue_py.sessions.scoping import Scoped
from flue_py.store.seam import committed_before


class BudgetedCall:
    """A call that is being made on what was reserved for it (see `Session.budgeted`)."""

    __slots__ = ("_is_made", "_reservation", "_used")

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._used = Amounts()
        self._is_made = False

    @property
    def reservation(self) -> Reservation:
        """What was set aside."""
        return self._reservation

    @property
    def is_made(self) -> bool:
        """Whether something may have been spent: `made` or `used` was called."""
        return self._is_made

    @property
    def amounts(self) -> Amounts:
        """What is said to be used so far."""
        return self._used

    def made(self) -> None:
        """Say that the call is being made: from here on, what is reserved counts as used unless `used` says otherwise.

        Also if an error or a cancellation ends the block.
        """
        self._is_made = True

    def used(self, *, tokens: int | None = None, cost: Money | None = None) -> None:
        """Say what the call has used so far, in all: a later word replaces an earlier one. Raises `InvalidArgument`.

        ``cost`` is in US dollars. What is not said is as it was.
        """
        said = _said(tokens, cost)
        self._used = Amounts(
            self._used.tokens if said.tokens is None else said.tokens,
            self._used.picodollars if said.picodollars is None else said.picodollars,
        )
        self._is_made = True


class Budgeting(Handle):
    """The half of a `Session` that reserves and books. It leaves the session and its leaf alone, and awaits no turn."""

    __slots__ = ()

    async def budgets(self, *, by_ledger: bool = False) -> list[Budget]:
        """Return the budgets that cover this session, in the order they were made.

        Its own, those with tasks of every session that it is a task of, however far above, and those of its scope.
        With ``by_ledger``, ``spent`` is what the ledger has of what each covers, reserved or not. O(budgets), or
        O(calls).
        """
        return await self._backend.covering_budgets(self._ref, by_ledger=checked_flag(by_ledger, "by_ledger"))

    async def check_budgets(self) -> None:
        """Raise `BudgetExceeded` if the ledger has more of what a budget of this session covers than that allows.

        To be asked before a turn: it counts every call, also those that nothing was reserved for, and one that has
        reached what is allowed may still be made. A call whose cost is unknown counts no money. O(calls).
        """
        for budget in await self.budgets(by_ledger=True):
            check_spent(budget, self.id)

    async def reserve(
        self, *, tokens: int | None = None, cost: Money | None = None, ttl: float | None = None
    ) -> Reservation:
        """Set an amount aside in every budget that covers this session, all or nothing, before a call is made.

        ``cost`` is in US dollars. A budget whose unit is not named sets nothing aside, and refuses only if nothing
        is left in it. After ``ttl`` seconds (default 900) what is held is given back, so that what a dead process
        reserved comes free; `prolong` a call that takes longer. If no budget covers the session, everything is
        allowed and there is nothing to settle. Raises `BudgetExceeded` with nothing changed. One transaction.
        """
        return await self._reserve(_said(tokens, cost), ttl_us(ttl))

    async def _reserve(self, asked: Amounts, ttl: int) -> Reservation:
        try:
            return await self._backend.reserve(self._ref, asked, ttl)
        except BaseException as error:
            if (committed := committed_before(error)) is not None:
                # The caller never gets the reservation, so it could not settle it.
                made = cast("Reservation", committed.result)
                if made.budget_ids:
                    with suppress(FlueError):
                        await self._backend.waiting.finish(self._backend.release_reservation(made.id))
            raise

    async def commit(
        self, reservation: Reservation | str, *, tokens: int | None = None, cost: Money | None = None
    ) -> Reservation:
        """Book what a call used, and give back what was set aside for it.

        What was used may be more or less than was reserved, and is booked in full; where it is not said, what was
        reserved was used. What has expired can be committed (``was_late``): the money is gone all the same. The same
        commit again changes nothing. Raises `ReservationSettled` if it was released, or committed with other
        amounts, and `ReservationNotFound`. One transaction.
        """
        used = amounts_of(tokens, cost)
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return replace(reservation, state="committed")
        return await self._backend.commit_reservation(reservation_id, used)

    async def release(self, reservation: Reservation | str) -> Reservation:
        """Give back what was set aside for a call that is not made. One transaction.

        Raises `ReservationSettled` if it was released or committed before, or has expired; `ReservationNotFound`.
        """
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return replace(reservation, state="released")
        return await self._backend.release_reservation(reservation_id)

    async def prolong(self, reservation: Reservation | str, *, ttl: float | None = None) -> Reservation:
        """Hold what was set aside for at least ``ttl`` seconds (default 900) from now. Raises as `release` does."""
        hold = ttl_us(ttl)
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return reservation
        return await self._backend.prolong_reservation(reservation_id, hold)

    def _settling(self, reservation: Reservation | str) -> str:
        if isinstance(reservation, Reservation):
            if reservation.session_id != self.id:
                raise InvalidArgument(
                    f"reservation {reservation.id!r} is of session {reservation.session_id!r}, not of {self.id!r}; "
                    "settle it there"
                )
            return reservation.id
        return checked_id(reservation, "reservation")

    def budgeted(
        self, *, tokens: int | None = None, cost: Money | None = None, ttl: float | None = None
    ) -> AbstractAsyncContextManager[BudgetedCall]:
        """Reserve for the length of an ``async with``, and settle at its end: the way to make a call.

        The block says what the call used with ``call.used(...)``; that is booked, also if the block then fails or
        is cancelled. Without it, a block that ends well books what was reserved, and one that raises gives it back,
        unless it has said ``call.made()``: then something may have been spent, and what was reserved is booked.
        Raises as `reserve` does, before the block is entered.
        """
        return self._budgeted(_said(tokens, cost), ttl_us(ttl))

    @async_once("budgeted()")
    async def _budgeted(self, asked: Amounts, ttl: int) -> AsyncIterator[BudgetedCall]:
        call = BudgetedCall(await self._reserve(asked, ttl))
        try:
            yield call
        except BaseException as error:
            await self._settle_failed(call, error)
            raise
        await self._book(call)

    async def _book(self, call: BudgetedCall) -> None:
        if call.reservation.budget_ids:
            # Where the budgets have been deleted meanwhile, there is nothing left to book it in.
            with suppress(ReservationNotFound):
                await self._backend.waiting.finish(self._backend.commit_reservation(call.reservation.id, call.amounts))

    async def _settle_failed(self, call: BudgetedCall, error: BaseException) -> None:
        """Settle after an error, which stays the one that is raised."""
        if call.is_made:
            try:
                await self._book(call)
            except FlueError as failure:
                error.add_note(f"what the call used could not be booked: {failure}")
        elif call.reservation.budget_ids:
            # It would have expired by itself.
            with suppress(FlueError):
                await self._backend.waiting.finish(self._backend.release_reservation(call.reservation.id))


class StoreBudgets(Scoped):
    """The half of a `Store` that sets budgets."""

    __slots__ = ()

    async def set_budget(
        self,
        session: HasId | str | None = None,
        *,
        tasks: bool = False,
        scope: str | None = None,
        scope_prefix: str | None = None,
        tokens: int | None = None,
        cost: Money | None = None,
        spent_so_far: Money | Literal["ledger"] | None = None,
    ) -> Budget:
        """Make a budget of tokens or of money, or change what one allows, and return it.

        It covers a session; with ``tasks`` also its task sessions, theirs, and so on; or a scope, or
        with ``scope_prefix`` all scopes that begin so. There is one for
        each of these and each unit: set again, it goes on with what it has counted, so that a program may set it
        whenever it starts. ``cost`` is in US dollars. A new one begins with ``spent_so_far`` (default 0), an amount
        of its unit, or ``"ledger"``: what the ledger has of what it covers. A fork is covered by the scope only.
        Raises `InvalidArgument`, `SessionNotFound`. O(1); with ``"ledger"`` O(calls).
        """
        meant = self._meant(scope)
        if session is None and scope_prefix is None:
            scope = meant
        if [session, scope, scope_prefix].count(None) != 2:
            raise InvalidArgument("set_budget takes either a session or scope= or scope_prefix=")
        if (tokens is None) == (cost is None):
            raise InvalidArgument("set_budget takes either tokens= or cost=; set a budget for each")
        covers: Covers = "tasks" if checked_flag(tasks, "tasks") else "session"
        if scope is not None:
            check_scope(scope)
            if scope.endswith(ANY_REST):
                raise InvalidArgument(
                    f"scope: {shown(scope)} ends in {ANY_REST}; name how scopes begin by scope_prefix="
                )
        if scope_prefix is not None:
            if self._scope is not None:
                raise InvalidArgument(f"scope_prefix: this store is of scope {shown(self._scope)} alone; leave it out")
            scope = cast("str", checked_text(scope_prefix, "scope_prefix")) + ANY_REST
            check_scope(scope)
        if scope is not None:
            if tasks:
                raise InvalidArgument("tasks: a budget of a scope covers all sessions in it; leave it out")
            covers = "scope"
        unit: Unit = "picodollars" if tokens is None else "tokens"
        allowed = _amount(tokens if cost is None else cost, unit, "tokens" if cost is None else "cost")
        spent: SpentSoFar = 0
        if spent_so_far is not None:
            spent = "ledger" if spent_so_far == "ledger" else _amount(spent_so_far, unit, "spent_so_far")
        session_id = None if session is None else await self._own(session)
        return await self._backend.set_budget(NewBudget(covers, unit, allowed, session_id, scope or "", spent))

    async def get_budget(self, budget_id: str) -> Budget | None:
        """Return a budget, or None. Amounts that expired are left out. O(1)."""
        found = await self._backend.get_budget(checked_id(budget_id, "budget_id"))
        return None if found is None or self._scope not in (None, found.scope) else found

    async def _require_budget(self, budget_id: str) -> str:
        if self._scope is not None and await self.get_budget(budget_id) is None:
            raise BudgetNotFound(budget_id)
        return checked_id(budget_id, "budget_id")

    async def list_budgets(
        self,
        *,
        scope: str | None = None,
        scope_prefix: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Budget]:
        """Return up to ``limit`` (1 to 1000) budgets in the order they were made; those of a scope and its sessions.

        With ``scope_prefix`` those of all scopes that begin so, and the ones that were set for how scopes begin.
        ``after`` is the id of the last one of the page before. Raises `BudgetNotFound` if that is gone. O(budgets).
        """
        meant = self._meant(scope)
        checked_place(after, "after")
        begin = checked_text(scope_prefix, "scope_prefix") or ""
        return await self._backend.list_budgets(
            scope=meant, scope_prefix=begin, after=after, limit=checked_limit(limit)
        )

    async def delete_budget(self, budget_id: str) -> Budget:
        """Delete a budget, and return it as it was; the ledger stays. Raises `BudgetNotFound`."""
        return await self._backend.delete_budget(await self._require_budget(budget_id))

    async def held_amounts(self, budget_id: str) -> list[HeldAmount]:
        """Return what reservations hold of a budget now, what expires first first. Raises `BudgetNotFound`."""
        return await self._backend.held_amounts(await self._require_budget(budget_id))

    async def get_reservation(self, reservation_id: str) -> Reservation | None:
        """Return a reservation as it stands, settled or not; None if it or all of its budgets are gone. O(1)."""
        found = await self._backend.get_reservation(checked_id(reservation_id, "reservation_id"))
        if found is None or self._scope is None:
            return found
        return found if await self._backend.get_session(found.session_id, self._scope) is not None else None


def _said(tokens: int | None, cost: Money | None) -> Amounts:
    if tokens is None and cost is None:
        raise InvalidArgument("name tokens=, or cost= in US dollars, or both")
    return amounts_of(tokens, cost)


def _amount(value: Money | None, unit: Unit, what: str) -> int:
    """Return an amount of a unit: dollars where it is money. Raises `InvalidArgument`."""
    if unit == "picodollars":
        return picodollars_of(cast("Money", value), what)
    check_amount(value, what)
    return cast("int", value)
