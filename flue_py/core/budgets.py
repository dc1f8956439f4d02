"""Budgets: how much a session or a scope may spend, and what is reserved for calls that are under way.

A budget covers one session, a session with its task sessions and theirs (``tasks``), or a scope; it counts tokens or
picodollars. A reservation sets an amount aside in every budget that covers a session, before a call is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.entries import from_microseconds
from flue_py.core.frozen import frozen
from flue_py.core.sessions import check_scope
from flue_py.core.usage import MAX_AMOUNT, picodollars_to_usd, usd_to_picodollars
from flue_py.errors import BudgetExceeded, InvalidArgument, InvalidEntry, ReservationSettled, shown

Covers: TypeAlias = Literal["session", "tasks", "scope"]
Unit: TypeAlias = Literal["tokens", "picodollars"]
ReservationState: TypeAlias = Literal["held", "committed", "released", "expired"]
Money: TypeAlias = int | float | str | Decimal
SpentSoFar: TypeAlias = int | Literal["ledger"]

DEFAULT_TTL = 900.0
"""The default lifetime of a reservation in seconds: longer than providers let a call take."""
MAX_TTL = 30 * 24 * 3600


@frozen
class Budget:
    """A budget. Amounts are whole tokens, or picodollars (1e-12 USD), as ``unit`` says.

    ``spent`` is what it began with (``seeded``) and what committed reservations used; ``reserved`` what is set aside
    for calls under way, without what has expired. ``session_id`` is None if it covers a scope.
    """

    id: str
    scope: str
    covers: Covers
    session_id: str | None
    unit: Unit
    allowed: int
    spent: int
    reserved: int
    seeded: int
    created_us: int
    updated_us: int

    @property
    def left(self) -> int:
        """What can still be reserved. Negative where calls used more than was reserved, or the budget was lowered."""
        return self.allowed - self.spent - self.reserved

    @property
    def allowed_usd(self) -> Decimal | None:
        """What may be spent, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.allowed)

    @property
    def spent_usd(self) -> Decimal | None:
        """What has been spent, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.spent)

    @property
    def left_usd(self) -> Decimal | None:
        """What can still be reserved, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.left)

    def _usd(self, amount: int) -> Decimal | None:
        return picodollars_to_usd(amount) if self.unit == "picodollars" else None

    @property
    def target(self) -> str:
        """What it covers, in words."""
        if self.covers == "scope":
            return f"scope {shown(self.scope)}"
        return f"session {shown(self.session_id)}{' and its tasks' if self.covers == 'tasks' else ''}"

    @property
    def created_at(self) -> datetime:
        """When it was made (UTC)."""
        return from_microseconds(self.created_us)


ANY_REST = "*"
"""The end of the scope of a budget that covers all scopes which begin with what stands before it."""


def covers_scope(of_budget: str, scope: str) -> bool:
    """Return whether the budget of a scope, or of how scopes begin, covers the sessions of a scope."""
    return scope == of_budget or (of_budget.endswith(ANY_REST) and scope.startswith(of_budget[: -len(ANY_REST)]))


def scopes_covering(scope: str) -> list[str]:
    """Return the scopes of all budgets that may cover the sessions of a scope. O(its length)."""
    return [scope, *(scope[:end] + ANY_REST for end in range(len(scope) + 1))]


@frozen
class NewBudget:
    """A budget to be made, or what an existing one of the same target and unit is to allow.

    A ``scope`` that ends in `ANY_REST` stands for all that begin with the rest of it. ``spent`` is what a new one
    begins with: an amount, or ``"ledger"`` for what the ledger has of its target.
    """

    covers: Covers
    unit: Unit
    allowed: int
    session_id: str | None = None
    scope: str = ""
    spent: SpentSoFar = 0

    def __post_init__(self) -> None:
        _check_choice(self.covers, "covers", ("session", "tasks", "scope"))
        _check_choice(self.unit, "unit", ("tokens", "picodollars"))
        check_amount(self.allowed, "allowed")
        if self.spent != "ledger":
            check_amount(self.spent, "spent_so_far")
        if self.session_id is not None and not isinstance(self.session_id, str):
            raise InvalidArgument(f"session: {shown(self.session_id)} is not an id; ids are strings")
        check_scope(self.scope)
        if (self.session_id is None) != (self.covers == "scope"):
            raise InvalidArgument(f"covers: a budget that covers {self.covers!r} is for a session or a scope, not both")


@frozen
class Amounts:
    """Tokens and picodollars; None is "not said"."""

    tokens: int | None = None
    picodollars: int | None = None

    def __post_init__(self) -> None:
        for amount, what in ((self.tokens, "tokens"), (self.picodollars, "cost")):
            if amount is not None:
                check_amount(amount, what)

    def of(self, unit: Unit) -> int | None:
        """Return the amount in a unit."""
        return self.tokens if unit == "tokens" else self.picodollars


@frozen
class Reservation:
    """What is set aside for one call, in each of the budgets that cover its session.

    ``tokens`` and ``picodollars`` are what each budget of that unit holds, None if no budget counts it;
    ``budget_ids`` is empty if no budget covers the session. ``used_tokens`` and ``used_picodollars`` are what was
    booked when it was committed.
    """

    id: str
    session_id: str
    state: ReservationState
    budget_ids: tuple[str, ...]
    tokens: int | None
    picodollars: int | None
    created_us: int
    expires_us: int
    settled_us: int | None = None
    used_tokens: int | None = None
    used_picodollars: int | None = None

    @property
    def was_late(self) -> bool:
        """Whether it was committed after it had expired: others may have been given the same amount meanwhile."""
        return self.state == "committed" and self.settled_us is not None and self.settled_us >= self.expires_us

    @property
    def cost(self) -> Decimal | None:
        """What is set aside, in US dollars, exact; None if no budget counts money."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)

    @property
    def used_cost(self) -> Decimal | None:
        """What was used, in US dollars, exact; None if no budget counts money, or it is not committed."""
        return None if self.used_picodollars is None else picodollars_to_usd(self.used_picodollars)

    @property
    def expires_at(self) -> datetime:
        """When it is given back, unless it is settled or prolonged before (UTC)."""
        return from_microseconds(self.expires_us)


@frozen
class HeldAmount:
    """What one reservation holds of one budget at the moment."""

    reservation_id: str
    session_id: str
    amount: int
    created_us: int
    expires_us: int


class Reached(NamedTuple):
    """When a budget had spent an amount, with whose call (None: it began with so much), and what was spent then."""

    at_us: int
    session_id: str | None
    spent: int


@frozen
class Share:
    """One budget's part in a reservation, as it is stored."""

    budget_id: str
    unit: Unit
    amount: int
    state: ReservationState
    used: int | None


def reservation_of(
    reservation_id: str,
    session_id: str,
    shares: Sequence[Share],
    *,
    created_us: int,
    expires_us: int,
    settled_us: int | None,
    now_us: int,
) -> Reservation:
    """Return a reservation as its shares describe it at a moment."""
    states = {share.state for share in shares}
    state: ReservationState = "held"
    if "committed" in states:
        state = "committed"
    elif "released" in states:
        state = "released"
    elif "expired" in states or now_us >= expires_us:
        state = "expired"
    is_settled = state in ("committed", "released")
    amounts = {share.unit: share for share in shares}
    tokens, money = amounts.get("tokens"), amounts.get("picodollars")
    return Reservation(
        reservation_id,
        session_id,
        state,
        tuple(share.budget_id for share in shares),
        None if tokens is None else tokens.amount,
        None if money is None else money.amount,
        created_us,
        expires_us,
        settled_us if is_settled else None,
        None if tokens is None else tokens.used,
        None if money is None else money.used,
    )


def used_of(share: Share, used: Amounts) -> int:
    """Return what a commit books in a share's budget: what was used, or what was set aside where that is not said."""
    amount = used.of(share.unit)
    return share.amount if amount is None else amount


def check_room(budget: Budget, asked: Amounts, session_id: str) -> None:
    """Raise `BudgetExceeded` if a budget has less left than is asked for, or nothing at all."""
    amount = asked.of(budget.unit) or 0
    if max(amount, 1) <= budget.left:
        return
    raise _exceeded(
        budget,
        session_id,
        amount,
        f"session {shown(session_id)}: the budget {budget.id!r} of {budget.target} has "
        f"{shown_amount(max(budget.left, 0), budget.unit)} left, and {shown_amount(amount, budget.unit)} "
        f"{'are' if budget.unit == 'tokens' else 'is'} asked for ({shown_amount(budget.allowed, budget.unit)} allowed, "
        f"{shown_amount(budget.spent, budget.unit)} spent, {shown_amount(budget.reserved, budget.unit)} reserved); "
        "raise it with set_budget() and go on, wait until calls under way are settled, or stop",
    )


def check_spent(budget: Budget, session_id: str) -> None:
    """Raise `BudgetExceeded` if more was spent than a budget allows."""
    if budget.spent <= budget.allowed:
        return
    raise _exceeded(
        budget,
        session_id,
        0,
        f"session {shown(session_id)}: {shown_amount(budget.spent, budget.unit)} were spent, which exceeds the budget "
        f"{budget.id!r} of {budget.target} ({shown_amount(budget.allowed, budget.unit)} allowed); raise it with "
        "set_budget() and go on, or stop",
    )


def _exceeded(budget: Budget, session_id: str, asked: int, message: str) -> BudgetExceeded:
    return BudgetExceeded(
        message,
        budget_id=budget.id,
        session_id=session_id,
        unit=budget.unit,
        allowed=budget.allowed,
        spent=budget.spent,
        reserved=budget.reserved,
        asked=asked,
    )


def is_retry(reservation: Reservation, shares: Sequence[Share], used: Amounts) -> bool:
    """Return whether a commit has been made before, with the same amounts. Raises `ReservationSettled`.

    An expired reservation can be committed: the money is gone all the same.
    """
    if reservation.state == "released":
        raise settled(reservation, "it was released; reserve anew and commit that if the call was made after all")
    if reservation.state != "committed":
        return False
    if any(share.used != used_of(share, used) for share in shares):
        raise settled(reservation, "it was committed before, with other amounts, which stay booked; reserve anew")
    return True


def check_held(reservation: Reservation, wanted: str) -> None:
    """Raise `ReservationSettled` if a reservation is no longer held, and so cannot be ``wanted``."""
    if reservation.state == "expired":
        raise settled(
            reservation,
            f"it expired at {reservation.expires_at:%Y-%m-%d %H:%M:%S} UTC and what it held has been given back, so it "
            f"cannot be {wanted}; commit it if the call was made, or reserve anew",
        )
    if reservation.state != "held":
        raise settled(reservation, f"it was {reservation.state} before, so it cannot be {wanted}; reserve anew")


def settled(reservation: Reservation, why: str) -> ReservationSettled:
    """Return the error for a reservation that has come to its end."""
    return ReservationSettled(f"reservation {shown(reservation.id)}: {why}", reservation.id, reservation.state)


def check_booked(budget_id: str, spent: int) -> None:
    """Raise `InvalidArgument` if the spent amount of a budget would be too large to store."""
    if spent > MAX_AMOUNT:
        raise InvalidArgument(
            f"budget {budget_id!r}: what was spent would exceed {MAX_AMOUNT}; check the amounts that were used"
        )


def shown_amount(amount: int, unit: Unit) -> str:
    """Return an amount as people read it: ``1,000 tokens``, ``0.25 USD``."""
    if unit == "tokens":
        return f"{amount:,} token{'' if amount == 1 else 's'}"
    text = f"{picodollars_to_usd(amount):,f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} USD"


# -- arguments --------------------------------------------------------------------------------------------------------


def check_amount(amount: object, what: str) -> None:
    """Raise `InvalidArgument` if it is not a whole number from 0 to `MAX_AMOUNT`."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT:
        raise InvalidArgument(f"{what}: {shown(amount)} is not a whole number from 0 to {MAX_AMOUNT}")


def picodollars_of(cost: Money, what: str = "cost") -> int:
    """Return dollars as picodollars. Raises `InvalidArgument` if it is not an amount of money."""
    try:
        return usd_to_picodollars(cost, what)
    except InvalidEntry as error:
        raise InvalidArgument(str(error)) from error


def amounts_of(tokens: int | None, cost: Money | None) -> Amounts:
    """Return tokens and dollars as amounts. Raises `InvalidArgument`."""
    return Amounts(tokens, None if cost is None else picodollars_of(cost))


def ttl_us(seconds: float | None) -> int:
    """Return how long to hold a reservation, in microseconds. Raises `InvalidArgument`."""
    ttl = DEFAULT_TTL if seconds is None else seconds
    is_number = isinstance(ttl, (int, float)) and not isinstance(ttl, bool)
    if not (is_number and 0 < ttl <= MAX_TTL):
        raise InvalidArgument(f"ttl: {shown(seconds)} is not a number of seconds above 0 and up to {MAX_TTL:,}")
    return max(1, round(ttl * 1_000_000))


def _check_choice(value: object, what: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{what}: {shown(value)} is not one of {', '.join(choices)}")
