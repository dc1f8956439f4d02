"""The ledger as values: the row of a paid call, the questions to the ledger, and its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import field
from msgspec.structs import replace

from flue_py.core.chain import Fields
from flue_py.core.entries import from_microseconds, to_microseconds
from flue_py.core.json import Frozen, JsonObject, NamedTuple
from flue_py.core.sessions import STORED, EditKind, LeafChoice, MoveReason, TaskStatus, check_choice, check_scope
from flue_py.core.usage import (
    MAX_AMOUNT,
    PARTS,
    REPORTED,
    Paid,
    PaidCall,
    is_whole,
    known_cost,
    picodollars_to_usd,
    usd_to_picodollars,
)
from flue_py.errors import BudgetExceeded, InvalidArgument, InvalidEntry, ReservationSettled, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import zoneinfo
else:
    zoneinfo = lazy_module("zoneinfo")

# ---------------------------------------------------------------------------------------------------------------------
# Budgets, as they cross from one store to another, and whether a store may take one.
#
# The fields of the rows are named and ordered as the columns that `docs/format.md` describes; the internal key of a
# budget means nothing elsewhere.

BudgetState: TypeAlias = Literal["written", "same", "later", "no session", "taken"]
"""The outcome of copying a budget: it was written; the target has it as it is, or in a later state; it lacks its
session; or it has another budget of the same target, unit and period, or under the same id."""


class BudgetRow(NamedTuple):
    """A budget. ``reserved`` is the sum of its reservations of the state ``held``.

    ``period`` and its time zone ``tz`` are empty without one.
    """

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
    period: str
    tz: str

    @property
    def target(self) -> tuple[str | None, ...]:
        """Its coverage, its unit and its period: no two budgets have the same."""
        return (*self[1:5], self.period)


class ReservationRow(NamedTuple):
    """The amount of a budget that one reservation set aside, and its outcome."""

    reservation_id: str
    session_id: str | None
    amount: int
    state: str
    used: int | None
    created_at: int
    expires_at: int
    settled_at: int | None


class BudgetCopy(Frozen):
    """A budget with all reservations that were ever made in it. ``position`` is good in its own store only."""

    position: int
    budget: BudgetRow
    reservations: Sequence[ReservationRow]


def state_of_budget(
    budget: BudgetRow, *, same_id: BudgetRow | None, same_target: BudgetRow | None, session_scope: str | None
) -> BudgetState:
    """Return how a target stands to a budget of another store; ``written`` says that it is to be written.

    ``same_id`` and ``same_target`` are the target's budgets under its id, and of its target, unit and period;
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


# ---------------------------------------------------------------------------------------------------------------------
# Budgets: how much a session or a scope may spend, and the reservations for calls that are under way.
#
# A budget covers one session, a session with its task sessions and theirs (``tasks``), or a scope; it counts tokens or
# picodollars. A reservation sets an amount aside in every budget that covers a session, before a call is made.

Covers: TypeAlias = Literal["session", "tasks", "scope"]
Unit: TypeAlias = Literal["tokens", "picodollars"]
ReservationState: TypeAlias = Literal["held", "committed", "released", "expired"]
Money: TypeAlias = int | float | str | Decimal
SpentSoFar: TypeAlias = int | Literal["ledger"]
BudgetPeriod: TypeAlias = Literal["day", "week", "month"]
BUDGET_PERIODS: tuple[BudgetPeriod, ...] = get_args(BudgetPeriod)

DEFAULT_TTL = 900.0
"""The default lifetime of a reservation in seconds: longer than providers let a call take."""
MAX_TTL = 30 * 24 * 3600


class Budget(Frozen):
    """A budget. Amounts are whole tokens, or picodollars (1e-12 USD), as ``unit`` says.

    ``spent`` is the sum of the amount it began with (``seeded``) and of the amounts that committed reservations used;
    ``reserved`` is set aside for calls under way, without expired reservations. ``session_id`` is None if it covers a
    scope. With a ``period`` of the zone ``tz``, ``spent`` is what the ledger has of the one that is running, from
    ``began_us`` until ``ends_us``; all four are None without one. The last two are None, and nothing is known of what
    was spent, if this machine does not know the zone: there is a ``fault`` then.
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
    period: BudgetPeriod | None = None
    tz: str | None = None
    began_us: int | None = None
    ends_us: int | None = None

    @property
    def left(self) -> int:
        """The amount left to reserve. Negative if calls used more than was reserved, or the budget was lowered."""
        return self.allowed - self.spent - self.reserved

    @property
    def allowed_usd(self) -> Decimal | None:
        """The amount that may be spent, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.allowed)

    @property
    def spent_usd(self) -> Decimal | None:
        """The amount that has been spent, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.spent)

    @property
    def left_usd(self) -> Decimal | None:
        """The amount that can still be reserved, in US dollars, exact; None if it counts tokens."""
        return self._usd(self.left)

    def _usd(self, amount: int) -> Decimal | None:
        return picodollars_to_usd(amount) if self.unit == "picodollars" else None

    @property
    def target(self) -> str:
        """Its coverage and its period, in words."""
        per = "" if self.period is None else f" per {self.period}"
        if self.covers == "scope":
            return f"{'all sessions' if self.scope == ANY_REST else f'scope {shown(self.scope)}'}{per}"
        return f"session {shown(self.session_id)}{' and its tasks' if self.covers == 'tasks' else ''}{per}"

    @property
    def created_at(self) -> datetime:
        """When it was made (UTC)."""
        return from_microseconds(self.created_us)

    @property
    def ends_at(self) -> datetime | None:
        """When its period ends and it is fresh (UTC); None without one."""
        return None if self.ends_us is None else from_microseconds(self.ends_us)

    @property
    def fault(self) -> str | None:
        """Why nothing is known of its period, with the way out; None if it has none, or its bounds are known."""
        try:
            if self.period is not None and self.began_us is None:
                checked_zone(self.tz or "", f"budget {self.id} of {self.target}, set it again with another tz")
        except InvalidArgument as error:
            return str(error)
        return None

    def as_of(self, now_us: int) -> Budget:
        """Return it with the bounds of the period that is running; as it is without one, or with a `fault`."""
        if self.period is None or self.fault is not None:
            return self
        began, ends = bounds_of_period(self.period, checked_zone(self.tz or ""), now_us)
        return replace(self, began_us=began, ends_us=ends)


ANY_REST = "*"
"""The end of the scope of a budget that covers all scopes which begin with the text before it."""


def scopes_covering(scope: str) -> list[str]:
    """Return the scopes of all budgets that may cover the sessions of a scope. O(its length)."""
    return [scope, *(scope[:end] + ANY_REST for end in range(len(scope) + 1))]


class NewBudget(Frozen):
    """A budget to be made, or the new limit and zone of an existing one of the same target, unit and period.

    A ``scope`` that ends in `ANY_REST` stands for all that begin with the rest of it. ``spent`` is the amount that a
    new one begins with: an amount, or ``"ledger"`` for the ledger's sum of its target; 0 with a ``period``, of the
    zone ``tz``.
    """

    covers: Covers
    unit: Unit
    allowed: int
    session_id: str | None = None
    scope: str = ""
    spent: SpentSoFar = 0
    period: BudgetPeriod | None = None
    tz: str = ""

    def __post_init__(self) -> None:
        check_choice(self.covers, "covers", ("session", "tasks", "scope"))
        check_choice(self.unit, "unit", ("tokens", "picodollars"))
        check_amount(self.allowed, "allowed")
        if self.spent != "ledger":
            check_amount(self.spent, "spent_so_far")
        if self.session_id is not None and not isinstance(self.session_id, str):
            raise InvalidArgument(f"session: {shown(self.session_id)} is not an id; ids are strings")
        check_scope(self.scope)
        self._check_period()
        if (self.session_id is None) != (self.covers == "scope"):
            raise InvalidArgument(f"covers: a budget that covers {self.covers!r} is for a session or a scope, not both")

    def _check_period(self) -> None:
        if self.period is None:
            if self.tz:
                raise InvalidArgument("tz: only a budget with a period has a time zone; name a period, or leave it out")
            return
        check_choice(self.period, "period", BUDGET_PERIODS)
        checked_zone(self.tz)
        if self.spent:
            raise InvalidArgument("spent_so_far: with a period, the ledger says what was spent; leave it out")


class Amounts(Frozen):
    """Tokens and picodollars; None is "not said"."""

    tokens: int | None = None
    picodollars: int | None = None

    def __post_init__(self) -> None:
        for amount, name in ((self.tokens, "tokens"), (self.picodollars, "cost")):
            if amount is not None:
                check_amount(amount, name)

    def of(self, unit: Unit) -> int | None:
        """Return the amount in a unit."""
        return self.tokens if unit == "tokens" else self.picodollars


class Reservation(Frozen):
    """The amounts that are set aside for one call, in each of the budgets that cover its session.

    ``tokens`` and ``picodollars`` are the amounts held of each budget of that unit, None if no budget counts it;
    ``budget_ids`` is empty if no budget covers the session. ``used_tokens`` and ``used_picodollars`` are the amounts
    that were booked when it was committed.
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
        """The amount set aside, in US dollars, exact; None if no budget counts money."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)

    @property
    def used_cost(self) -> Decimal | None:
        """The amount used, in US dollars, exact; None if no budget counts money, or it is not committed."""
        return None if self.used_picodollars is None else picodollars_to_usd(self.used_picodollars)

    @property
    def expires_at(self) -> datetime:
        """When it is given back, unless it is settled or prolonged before (UTC)."""
        return from_microseconds(self.expires_us)


class HeldAmount(Frozen):
    """The amount that one reservation holds of one budget at the moment."""

    reservation_id: str
    session_id: str
    amount: int
    created_us: int
    expires_us: int


class Reached(NamedTuple):
    """When a budget had spent an amount, with whose call (None: it began with so much), and the amount spent then."""

    at_us: int
    session_id: str | None
    spent: int


class Share(Frozen):
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
    """Return the amount that a commit books in a budget: the used one, or if it is unknown the one set aside."""
    amount = used.of(share.unit)
    return share.amount if amount is None else amount


def _check_known(budget: Budget) -> None:
    if budget.fault is not None:
        raise InvalidArgument(budget.fault)


def check_room(budget: Budget, wanted: Amounts, session_id: str) -> None:
    """Raise `BudgetExceeded` if a budget has less left than is asked for, `InvalidArgument` if it has a fault."""
    _check_known(budget)
    amount = wanted.of(budget.unit) or 0
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
        f"raise it with set_budget() and go on, wait until calls under way are settled{_or_ends(budget)}, or stop",
    )


def check_spent(budget: Budget, session_id: str) -> None:
    """Raise `BudgetExceeded` if more was spent than a budget allows, `InvalidArgument` if it has a fault."""
    _check_known(budget)
    if budget.spent <= budget.allowed:
        return
    raise _exceeded(
        budget,
        session_id,
        0,
        f"session {shown(session_id)}: {shown_amount(budget.spent, budget.unit)} were spent, which exceeds the budget "
        f"{budget.id!r} of {budget.target} ({shown_amount(budget.allowed, budget.unit)} allowed); raise it with "
        f"set_budget() and go on{_or_ends(budget)}, or stop",
    )


def _or_ends(budget: Budget) -> str:
    if budget.ends_at is None:
        return ""
    return f", wait until the {budget.period} ends at {budget.ends_at:%Y-%m-%d %H:%M} UTC"


def _exceeded(budget: Budget, session_id: str, wanted: int, message: str) -> BudgetExceeded:
    return BudgetExceeded(
        message,
        budget_id=budget.id,
        session_id=session_id,
        unit=budget.unit,
        allowed=budget.allowed,
        spent=budget.spent,
        reserved=budget.reserved,
        asked=wanted,
        ends_at=budget.ends_at,
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


def check_amount(amount: object, name: str) -> None:
    """Raise `InvalidArgument` if it is not a whole number from 0 to `MAX_AMOUNT`."""
    if not is_whole(amount, 0, MAX_AMOUNT):
        raise InvalidArgument(f"{name}: {shown(amount)} is not a whole number from 0 to {MAX_AMOUNT}")


def picodollars_of(cost: Money, name: str = "cost") -> int:
    """Return dollars as picodollars. Raises `InvalidArgument` if it is not an amount of money."""
    try:
        return usd_to_picodollars(cost, name)
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


# ---------------------------------------------------------------------------------------------------------------------
# Rows as they are stored and as they cross to another store, a named tuple for each table.
#
# The fields are named and ordered as the columns that `docs/format.md` describes.


class SessionRow(NamedTuple):
    """A session."""

    session_key: int
    id: str
    scope: str
    key: str | None
    title: str | None
    kind: str
    task_depth: int
    forked_from_session: str | None
    forked_from_entry: str | None
    leaf: str | None
    revision: int
    metadata: str
    cwd: str | None
    config_path: str | None
    completed_at: int | None = None
    trashed_at: int | None = None
    entry_count: int = 0
    message_count: int = 0
    first_message: str | None = None
    spent_tokens: int = 0
    spent_cost: int = 0
    created_at: int = 0
    updated_at: int = 0
    auto_title: str | None = None
    unpriced_calls: int = 0
    active_at: int = 0
    unknown_calls: int = 0
    active_slot: int = 0
    head: bytes = b""
    log_seal: int = 0
    mark_seal: int = 0
    link_seal: int = 0
    call_seal: int = 0


SEALS = ("log_seal", "mark_seal", "link_seal", "call_seal")
"""The columns of a session by which it knows the rows beside its entries."""


class LaneRow(NamedTuple):
    """A lane. Its id is kept: it is unique in the tree only."""

    lane_id: int
    owner_key: int
    parent_lane: int | None
    fork_depth: int


class EntryRow(NamedTuple):
    """An entry; exactly one of ``payload``, ``packed`` and ``blob`` is set. ``session_key`` may name no session."""

    lane_id: int
    depth: int
    id: str
    parent_id: str | None
    kind: str
    role: str | None
    source: str | None
    session_key: int
    revision: int
    ordinal: int
    created_at: int
    counted: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    input_cost: int
    output_cost: int
    cache_read_cost: int
    cache_write_cost: int
    total_cost: int
    paid_calls: int
    unpriced_calls: int
    unknown_calls: int
    paid_tokens: int
    paid_cost: int
    digest: bytes
    blob: bytes | None
    packed: bytes | None
    extra: str | None
    payload: str | None

    @property
    def fields(self) -> Fields:
        """The fields that its digest covers beside the payload."""
        names = (self.id, self.kind, self.role, self.source)
        return (*names, self.revision, self.ordinal, self.created_at, self.extra)

    @property
    def stored_bytes(self) -> int:
        """How many bytes of payload the row itself holds."""
        return len(self.packed or b"") if self.payload is None else len(self.payload.encode())


class BlobRow(NamedTuple):
    """A blob, the text of a payload or an attachment that is stored apart: its SHA-256, its size, and its bytes.

    ``data`` are the bytes themselves, or a zlib stream of them.
    """

    sha256: bytes
    size: int
    data: bytes


class AttachmentRow(NamedTuple):
    """An attachment, cut out of an entry's payload: the number of bytes of the rest before it, and its blob."""

    lane_id: int
    depth: int
    place: int
    sha256: bytes


class LinkRow(NamedTuple):
    """A link from a session of the tree to a task session, of any tree or missing."""

    parent_key: int
    position: int
    task_id: str
    child_id: str
    entry_id: str | None = None
    status: TaskStatus | None = None
    summary: str | None = None
    seal: int = 0


class MoveRow(NamedTuple):
    """A change of a leaf other than a plain append."""

    session_key: int
    revision: int
    from_entry: str | None
    to_entry: str | None
    reason: MoveReason
    undoes: int | None
    moved_by: str | None
    at: int
    why: str | None = None
    seal: int = 0


class EditRow(NamedTuple):
    """A change of a session's own description: its title, its metadata, its marks."""

    session_key: int
    revision: int
    what: EditKind
    entry_id: str | None
    before: str | None
    after: str | None
    edited_by: str | None
    why: str | None
    at: int
    seal: int = 0


class RequestRow(NamedTuple):
    """An operation that was asked for with an idempotency key. ``result`` is JSON text."""

    session_key: int
    idempotency_key: str
    operation: str
    digest: bytes
    result: str


class MarkRow(NamedTuple):
    """A session's mark on an entry."""

    session_key: int
    entry_id: str
    kind: str
    value: str | None
    at: int
    seal: int = 0


class Payer(NamedTuple):
    """A payer: the key that the ledger's rows name, and the id of that session, which may be gone.

    ``task_of`` is, of one that is gone, the session above that it was a task of (see `owners_of_tasks`). ``project`` is
    the folder that it worked in at its first paid call.
    """

    session_key: int
    session_id: str
    task_of: str | None = None
    project: str | None = None
    seal: int = 0


class CallRow(NamedTuple):
    """A paid model call. ``cost`` is in picodollars; None if it is unknown; ``agent`` is who made it.

    ``unknown`` is 1 if its usage is unknown: its tokens are zero for that reason alone. ``reported`` has a bit
    for each number of tokens that was reported, in the order of `PARTS`.
    """

    scope: str
    provider: str
    call_id: str
    session_key: int
    entry_id: str | None
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cost: int | None
    price_source: str | None
    at: int
    outcome: str | None = None
    unknown: int = 0
    agent: str | None = None
    reported: int = 0

    @property
    def identity(self) -> tuple[str, str, str]:
        """The identity of the call in a store: scope, provider, call id."""
        return self[:3]

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or the sum of the kinds where none was reported."""
        return self.total_tokens or sum(self[7:12])

    @property
    def paid(self) -> Paid:
        """The call as a sum of one."""
        return Paid(1, int(self.cost is None), self.unknown, self.tokens, self.cost or 0)

    @property
    def is_summed(self) -> bool:
        """Whether all its tokens are the sum of the kinds."""
        return self.tokens == sum(self[7:12])


# ---------------------------------------------------------------------------------------------------------------------
# The ledger as values: the row of a paid call, the questions to the ledger, and its answers.

DAY_US = 86_400_000_000

QUARTER_US = 900_000_000
"""A quarter of an hour: local midnights and whole hours of every zone of today fall between two."""

Period: TypeAlias = Literal["day", "week", "month", "block"]
Dimension: TypeAlias = Literal[
    "session", "scope", "project", "agent", "provider", "model", "purpose", "outcome", "price_source", "branch",
    "day", "week", "month", "block",
]  # fmt: skip
PERIODS: tuple[Period, ...] = get_args(Period)
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
BranchState: TypeAlias = Literal["active", "abandoned", "gone", "alone"]
BRANCH_STATES: tuple[BranchState, ...] = get_args(BranchState)
"""Of a call: its entry is on the active path of a session; on none; deleted; it never had one."""

TOKEN_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
_JSON_NAMES = {"price_source": "priceSource"}


class CallId(NamedTuple):
    """The identity of a paid call in a scope."""

    provider: str
    call_id: str


def call_row(
    call: PaidCall, *, scope: str, call_id: str, session_key: int, entry_id: str | None, at_us: int
) -> CallRow:
    """Return a paid call as the ledger keeps it; ``at_us`` is when, unless the call itself says so."""
    usage = call.usage
    return CallRow(
        scope,
        call.provider,
        call_id,
        session_key,
        entry_id,
        call.purpose,
        call.model,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write - call.cache_write_1h,
        call.cache_write_1h,
        call.reasoning,
        usage.total_tokens,
        call.known_cost,
        call.source,
        at_us if call.at_us is None else call.at_us,
        call.outcome,
        int(call.is_unknown),
        call.agent,
        _bits_of(call.told),
    )


@lru_cache(maxsize=256)
def _bits_of(reported: frozenset[str]) -> int:
    """Return a number with a bit for each number that was reported, by its place in `PARTS`."""
    return sum(1 << place for place, part in enumerate(PARTS) if part in reported)


def default_call_id(entry_id: str, number: int) -> str:
    """Return the id of a call that has none: its entry, and its number among the calls of that."""
    return entry_id if number == 0 else f"{entry_id}#{number}"


def differences(booked: CallRow, again: CallRow) -> tuple[str, ...]:
    """Return in what two reports of a call differ: none where they have the same numbers.

    Costs are compared where both were reported: one that was computed depends on the prices of its day.
    """
    differing = [
        f"{name} {getattr(booked, name):,} and {getattr(again, name):,}"
        for name in TOKEN_COLUMNS
        if getattr(booked, name) != getattr(again, name)
    ]
    # Totals that are nothing but sums differ where their parts do, and one that was not reported is a sum.
    if booked.tokens != again.tokens and not (differing and booked.is_summed and again.is_summed):
        differing.append(f"total_tokens {booked.tokens:,} and {again.tokens:,}")
    if booked.price_source == again.price_source == REPORTED and booked.cost != again.cost:
        differing.append(f"cost {booked.cost:,} and {again.cost:,} picodollars")
    return tuple(differing)


def is_part_of(call: CallRow, whole: CallRow) -> bool:
    """Return whether a report of a call counts no more of anything than another: it may be an earlier one."""
    return call.tokens <= whole.tokens and all(getattr(call, name) <= getattr(whole, name) for name in TOKEN_COLUMNS)


def replaced_by(call: CallRow, names: Iterable[str], find: Callable[[str], CallRow | None]) -> list[CallRow]:
    """Return the rows that a report replaces: those under these ids that its session paid, and that differ.

    ``find`` gives the row that has an id, of the scope and the provider of the call.
    """
    rows = [row for name in dict.fromkeys(names) if (row := find(name)) is not None]
    return [
        row
        for row in rows
        if row.session_key == call.session_key
        and (row.call_id != call.call_id or call.entry_id not in (None, row.entry_id) or differences(row, call))
    ]


def is_booked_alone(call: CallRow, booked: CallRow | None) -> bool:
    """Return whether the ledger has the call of an entry already, with these numbers, from its session and no entry.

    A summary is paid for before its entry is made: it is booked at once, and on the entry as soon as that is there.
    """
    if booked is None or booked.entry_id is not None or booked.session_key != call.session_key:
        return False
    return not differences(booked, call)


class Recorded(Frozen):
    """The result of recording a paid call. ``is_new`` is False if it had been reported before, and nothing was changed.

    ``picodollars`` and ``price_source`` are the ledger's. The cost is None if it is not known; its source then says
    the reason (``not priced: speed=fast``), or is None.
    """

    provider: str
    call_id: str
    is_new: bool
    picodollars: int | None
    price_source: str | None
    revision: int

    @property
    def usd(self) -> Decimal | None:
        """The cost in US dollars, exact; None if it is not known."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)

    def plus(self, step: Recorded) -> Recorded:
        """Return this with the cost of a step of the same call; unknown, with the reason, if either is unknown."""
        unknown = next((record for record in (self, step) if record.picodollars is None), None)
        cost = None if unknown else (self.picodollars or 0) + (step.picodollars or 0)
        source = (unknown or self).price_source
        is_new = self.is_new or step.is_new
        return replace(self, is_new=is_new, picodollars=cost, price_source=source, revision=step.revision)


class UnpricedCall(Frozen):
    """A row of the ledger whose cost is unknown: its number, the id of its payer, and the call."""

    number: int
    session_id: str
    call: CallRow


class CallPrice(NamedTuple):
    """The cost of an unpriced call, in picodollars, and where it is from."""

    number: int
    picodollars: int
    source: str


Unpriced: TypeAlias = Literal["no usage", "no model", "tokens of no kind", "no price"]
"""Why the cost of a call stays unknown:

- ``no usage``: its tokens are unknown
- ``no model``: it does not say by which model it was answered
- ``tokens of no kind``: only their total is known, and input costs other than output
- ``no price``: no price is known for the model, or for its tokens
"""


class RepricedCalls(Frozen):
    """The calls of one model whose cost was unknown, and the sum that they have now, or why it stays so."""

    provider: str
    model: str
    calls: int
    picodollars: int | None
    why: Unpriced | None = None

    @property
    def usd(self) -> Decimal | None:
        """The cost in US dollars, exact; None if it stays unknown."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)


class Repricing(Frozen):
    """The result of pricing the calls of unknown cost, or of its dry run, by model: first those with a price."""

    rows: tuple[RepricedCalls, ...]
    dry_run: bool

    @property
    def calls(self) -> int:
        """How many calls have a cost now."""
        return sum(row.calls for row in self.rows if row.why is None)

    @property
    def unknown_calls(self) -> int:
        """How many have none still."""
        return sum(row.calls for row in self.rows if row.why is not None)

    @property
    def usd(self) -> Decimal:
        """The sum that was filled in, in US dollars, exact."""
        return picodollars_to_usd(sum(row.picodollars or 0 for row in self.rows))

    def to_json(self) -> JsonObject:
        """Return it as JSON, dollars as decimal text."""
        return {
            "dryRun": self.dry_run,
            "calls": self.calls,
            "costUsd": f"{self.usd:f}",
            "unknownCalls": self.unknown_calls,
            "rows": [
                {
                    "provider": row.provider,
                    "model": row.model,
                    "calls": row.calls,
                    "costUsd": None if row.usd is None else f"{row.usd:f}",
                    "why": row.why,
                }
                for row in self.rows
            ],
        }


# -- asking -----------------------------------------------------------------------------------------------------------


class LedgerQuery(Frozen):
    """A question to the ledger: its rows, and the dimensions of their sums (see `Store.usage`). Times are in us, UTC.

    ``session_ids`` takes the calls that these sessions paid; an id that no session ever had adds nothing. ``project``
    takes the calls of sessions that worked in this folder, or below it.
    """

    session_id: str | None = None
    session_ids: tuple[str, ...] | None = None
    tree: bool = False
    tasks: bool = False
    on_path: bool = False
    leaf: LeafChoice = STORED
    since: str | None = None
    scope: str | None = None
    scope_prefix: str | None = None
    provider: str | None = None
    model: str | None = None
    purpose: str | None = None
    outcome: str | None = None
    agent: str | None = None
    project: str | None = None
    branch: BranchState | None = None
    from_us: int | None = None
    before_us: int | None = None
    group_by: tuple[Dimension, ...] = ()
    zone: tzinfo | None = None
    """The time zone of days, weeks and months; None is UTC."""

    @property
    def matches(self) -> dict[str, str]:
        """The columns that have to have a value, and the value."""
        names = ("scope", "provider", "model", "purpose", "outcome", "agent")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def folders(self) -> tuple[str, str, str] | None:
        """The folder of the project, and the first and the last bound of the folders below it; None for all projects.

        A path is below it that is not less than the first, and less than the last.
        """
        if self.project is None:
            return None
        stem = self.project.rstrip("/")
        # "0" comes right after the slash.
        return self.project, f"{stem}/", f"{stem}0"


class UsageRow(Frozen):
    """The usage of paid calls: tokens by kind, and cost.

    ``group`` has the values that they have in common, by dimension. A ``day`` is a `datetime.date`, a ``week`` the
    Monday that it begins with, a ``month`` text such as ``2026-11``, a ``block`` the hour that it begins with, as
    ``2026-11-28T14:00+01:00``; in UTC, or in the zone that was asked for. ``reasoning`` is part of ``output``.
    ``total_tokens`` is as reported, or the sum of the kinds if nothing was. ``picodollars`` sums the costs that are
    known; ``unpriced_calls`` counts the calls without one, ``unknown_calls`` those whose tokens are unknown, too: they
    add nothing to any of the sums. ``reported`` has a bit for each number that some of the calls reported (see
    `known`): a 0 of anything else is unknown.
    """

    group: Mapping[str, str | date | None] = field(default_factory=dict)
    calls: int = 0
    unpriced_calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    total_tokens: int = 0
    picodollars: int = 0
    unknown_calls: int = 0
    reported: int = 0

    @property
    def cache_write(self) -> int:
        """Tokens written to a cache, for whatever time."""
        return self.cache_write_5m + self.cache_write_1h

    @property
    def cost(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if calls have no known cost, and the others none."""
        return known_cost(self.picodollars, self.unpriced_calls)

    @property
    def is_unknown(self) -> bool:
        """Whether there are calls, and the usage of all of them is unknown: show no tokens then."""
        return bool(self.calls) and self.unknown_calls == self.calls

    def plus(self, other: UsageRow) -> UsageRow:
        """Return the sum of two rows, under the group of this one."""
        sums = [mine + theirs for mine, theirs in zip(self.sums, other.sums, strict=True)]
        return UsageRow(self.group, *(*sums, self.reported | other.reported))

    @property
    def known(self) -> dict[str, int | None]:
        """The tokens by kind, as JSON spells it; None if there are calls and none of them reported any."""
        tokens = {
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "cacheWrite5m": self.cache_write_5m,
            "cacheWrite1h": self.cache_write_1h,
            "reasoning": self.reasoning,
            "totalTokens": self.total_tokens,
        }
        reported = {part for place, part in enumerate(PARTS) if self.reported >> place & 1}
        reported |= {"cacheWrite5m"} if "cacheWrite" in reported else set()
        reported |= {"totalTokens"} if reported else set()
        return {name: count if count or name in reported or not self.calls else None for name, count in tokens.items()}

    @property
    def sums(self) -> tuple[int, ...]:
        """The eleven numbers: calls, unpriced calls, tokens by kind, all tokens, picodollars, unknown calls."""
        return (
            self.calls, self.unpriced_calls, self.input, self.output, self.cache_read, self.cache_write_5m,
            self.cache_write_1h, self.reasoning, self.total_tokens, self.picodollars, self.unknown_calls,
        )  # fmt: skip

    def to_json(self) -> JsonObject:
        """Return the row as JSON: ``costUsd`` is the exact decimal as text. An unknown number is null, never 0."""
        cost = self.cost
        return {
            **{_JSON_NAMES.get(name, name): _json(value) for name, value in self.group.items()},
            "calls": self.calls,
            "unpricedCalls": self.unpriced_calls,
            "unknownCalls": self.unknown_calls,
            **{name: count for name, count in self.known.items() if name != "cacheWrite"},
            "costPicodollars": None if cost is None else self.picodollars,
            "costUsd": None if cost is None else f"{cost.normalize():f}",
        }


def _json(value: str | date | None) -> str | None:
    return value.isoformat() if isinstance(value, date) else value


class UsageReport(Frozen):
    """The answer of the ledger: a row for each group, in the order of the groups, and the sum of all.

    ``on_path`` is False if ``since`` is not on the path that was asked for: the report is then empty.
    """

    rows: tuple[UsageRow, ...]
    total: UsageRow
    on_path: bool = True

    def to_json(self) -> JsonObject:
        """Return the report as JSON."""
        return {"total": self.total.to_json(), "rows": [row.to_json() for row in self.rows], "onPath": self.on_path}


def usage_report(rows: Iterable[UsageRow], group_by: tuple[Dimension, ...], *, on_path: bool = True) -> UsageReport:
    """Return a report of rows in any order. Without groups, there is the total alone."""
    ordered = sorted(rows, key=lambda row: [_sortable(row.group[name]) for name in group_by])
    total = UsageRow()
    for row in ordered:
        total = total.plus(row)
    return UsageReport(tuple(ordered) if group_by else (), total, on_path)


def _sortable(value: str | date | None) -> tuple[bool, str]:
    return value is not None, _json(value) or ""


def date_of(day: int) -> date:
    """Return the day with this number."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + day)


def period_of(day: int, period: Period) -> str | date:
    """Return the period that the day with this number is in, as `UsageRow` names it."""
    if period == "month":
        return date_of(day).isoformat()[:7]
    # 1 January 1970 was a Thursday.
    return date_of(day - (day + 3) % 7 if period == "week" else day)


def local_day(at_us: int, zone: tzinfo | None) -> int:
    """Return the number of the day that a time is on in a zone, UTC for None; 0 is 1 January 1970."""
    if zone is None:
        return at_us // DAY_US
    return number_of(datetime.fromtimestamp(at_us // 1_000_000, zone).date())


def checked_zone(tz: tzinfo | str, name: str = "tz") -> tzinfo | None:
    """Return a time zone that is given by its name or as it is; None for UTC. Raises `InvalidArgument`."""
    if isinstance(tz, tzinfo):
        return None if str(tz) == "UTC" else tz
    try:
        if tz in ("localtime", "posixrules"):  # another zone on each machine
            raise KeyError(tz)
        return None if tz == "UTC" else zoneinfo.ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError):
        raise InvalidArgument(f"{name}: {shown(tz)} is not a time zone known here, such as Europe/Berlin") from None


def midnight_us(day: date, zone: tzinfo | None) -> int:
    """Return when a day begins in a zone, in UTC for None. Raises `ValueError` outside the years that there are."""
    return to_microseconds(datetime.combine(day, time(), zone or UTC))


def bounds_of_period(period: BudgetPeriod, zone: tzinfo | None, at_us: int) -> tuple[int, int]:
    """Return when the period that a time is in begins, and when the next one does: midnights of the zone.

    A day may have 23 or 25 hours. A week begins on Monday.
    """
    first = date_of(local_day(at_us, zone))
    if period == "week":
        first -= timedelta(days=first.weekday())
        after = first + timedelta(days=7)
    elif period == "month":
        first = first.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    else:
        after = first + timedelta(days=1)
    return midnight_us(first, zone), midnight_us(after, zone)


def blocks_of(quarters: Iterable[int]) -> dict[int, int]:
    """Return the blocks of quarters of an hour with calls, each by the quarter that it begins with.

    A block begins with the whole hour of the first call after the block before, and lasts five hours. Both are numbers
    of quarters since 1970 UTC.
    """
    blocks: dict[int, int] = {}
    start = None
    for quarter in sorted(quarters):
        if start is None or quarter >= start + 20:
            start = quarter // 4 * 4
        blocks[quarter] = start
    return blocks


def block_name(quarter: int, zone: tzinfo | None) -> str:
    """Return a block, given by the quarter that it begins with, as `UsageRow` names it."""
    return datetime.fromtimestamp(quarter * 900, zone or UTC).isoformat(timespec="minutes")


def number_of(day: date) -> int:
    """Return the number of a day, as `date_of` takes it."""
    return day.toordinal() - date(1970, 1, 1).toordinal()


def summed(calls: Iterable[tuple[CallRow, Mapping[str, str | date | None]]]) -> list[UsageRow]:
    """Return a row for each group that calls were put in."""
    return merged(
        UsageRow(
            group, 1, int(call.cost is None), *call[7:13], call.tokens, call.cost or 0, call.unknown, call.reported
        )
        for call, group in calls
    )


def merged(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return rows with those of the same group added up, in the order in which the groups came first."""
    groups: dict[tuple[object, ...], UsageRow] = {}
    for row in rows:
        group = tuple(row.group.values())
        earlier = groups.get(group)
        groups[group] = row if earlier is None else earlier.plus(row)
    return list(groups.values())


def owners_of_tasks(session_id: str, links: Iterable[tuple[str, str]], payers: Collection[str]) -> dict[str, str]:
    """Return, for each task below a session that is being deleted, whose task it was as far as the ledger knows.

    ``links`` are (parent, task), in any order, with cycles or several parents; ``payers`` are those who have paid. It
    is the nearest session above that has paid, on the shortest way from the one that is being deleted; else that one.
    """
    tasks: dict[str, list[str]] = {}
    for parent, task in links:
        tasks.setdefault(parent, []).append(task)
    owners: dict[str, str] = {}
    waiting = deque([(session_id, session_id)])
    while waiting:
        current, owner = waiting.popleft()
        below = current if current in payers else owner
        for task in tasks.get(current, ()):
            if task != session_id and task not in owners:
                owners[task] = below
                waiting.append((task, below))
    return owners
