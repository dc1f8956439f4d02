"""The statements on budgets and reservations."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.core.budget_copies import BudgetRow, ReservationRow
from flue_py.core.budgets import Budget, HeldAmount, Reached, ReservationState, Unit
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.seam import Nothing, Row
from flue_py.store.sql.dialects import FIRST_OF_PAIR, ID, IN_IDS, IN_KEYS, PAIRS, SECOND_OF_PAIR, statement
from flue_py.store.sql.takes import AfterCount, Id, Ids, Keys, Scope

BudgetOfSession = TypedDict("BudgetOfSession", {"session_id": str, "covers": str, "unit": str})
BudgetOfScope = TypedDict("BudgetOfScope", {"scope": str, "unit": str})
IdAndIds = TypedDict("IdAndIds", {"id": str, "ids": str})
Scopes = TypedDict("Scopes", {"scope": str, "above": str})
KeysNow = TypedDict("KeysNow", {"keys": str, "now": int})
BudgetPage = TypedDict("BudgetPage", {"budget_key": int, "first": str, "last": str, "now": int, "count": int})
SetAllowed = TypedDict("SetAllowed", {"budget_key": int, "now": int, "allowed": int})
SetAside = TypedDict("SetAside", {"budget_key": int, "now": int, "amount": int, "due": int})
Book = TypedDict("Book", {"budget_key": int, "now": int, "used": int, "freed": int})
Reservation = TypedDict("Reservation", {"reservation_id": str})
BudgetNow = TypedDict("BudgetNow", {"budget_key": int, "now": int})
Settle = TypedDict("Settle", {"budget_key": int, "now": int, "reservation_id": str, "state": str, "used": int | None})
Prolong = TypedDict("Prolong", {"reservation_id": str, "expires_at": int})
IdScope = TypedDict("IdScope", {"id": str, "scope": str})
OfBudget = TypedDict("OfBudget", {"budget_key": int})


def _budget(row: Row) -> tuple[int, Budget]:
    *columns, budget_key = row
    return budget_key, Budget(*columns)


def _held_amount(row: Row) -> HeldAmount:
    return HeldAmount(*row)


def _reached(row: Row) -> tuple[tuple[str, int], Reached]:
    budget_id, amount, *columns = row
    return (budget_id, amount), Reached(*columns)


def _whole_budget(row: Row) -> tuple[int, BudgetRow]:
    budget_key, *columns = row
    return budget_key, BudgetRow._make(columns)


def _reservation(row: Row) -> tuple[int, ReservationRow]:
    budget_key, *columns = row
    return budget_key, ReservationRow._make(columns)


class StoredShare(NamedTuple):
    """What a reservation set aside in one budget, with the reservation's own columns, and what the budget has spent."""

    budget_key: int
    budget_id: str
    unit: Unit
    amount: int
    state: ReservationState
    used: int | None
    session_id: str
    created_at: int
    expires_at: int
    settled_at: int | None
    spent: int


_DUE = (
    "CAST((SELECT COALESCE(SUM(r.amount), 0) FROM reservations r WHERE r.budget_key = b.budget_key"
    " AND r.state = 'held' AND r.expires_at <= :now) AS BIGINT)"
)
_COLUMNS = (
    f"b.id, b.scope, b.covers, b.session_id, b.unit, b.allowed, b.spent, b.reserved - {_DUE}, b.seeded,"
    " b.created_at, b.updated_at, b.budget_key"
)

BUDGET_KEY = statement(Id, tuple[int])("SELECT b.budget_key FROM budgets b WHERE b.id = :id")
BUDGET_OF_SESSION = statement(BudgetOfSession, tuple[int])(
    "SELECT b.budget_key FROM budgets b WHERE b.session_id = :session_id AND b.covers = :covers AND b.unit = :unit"
)
BUDGET_OF_SCOPE = statement(BudgetOfScope, tuple[int])(
    "SELECT b.budget_key FROM budgets b WHERE b.scope = :scope AND b.unit = :unit AND b.session_id IS NULL"
)
# The budgets of a session: its own, those with tasks of the sessions that it is a task of (whatever lies between), and
# those of its scope, whose names are the ``ids``.
COVERING = statement(IdAndIds, tuple[int])(
    f"WITH RECURSIVE above(id) AS (SELECT {ID} "
    " UNION SELECT p.id FROM above a JOIN task_links t ON t.child_id = a.id"
    "  JOIN sessions p ON p.session_key = t.parent_key)"
    " SELECT b.budget_key FROM above a JOIN budgets b ON b.session_id = a.id WHERE b.covers = 'tasks' OR a.id = :id"
    f" UNION SELECT b.budget_key FROM budgets b WHERE b.session_id IS NULL AND b.scope {IN_IDS}"
)
# In order of key, so that two who lock the same budgets do not wait for each other.
LOCK_BUDGETS = statement(Keys, tuple[int])(
    f"SELECT b.budget_key FROM budgets b WHERE b.budget_key {IN_KEYS} ORDER BY b.budget_key FOR UPDATE"
)
BUDGETS_BY_KEY = statement(KeysNow, _budget)(
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key {IN_KEYS} ORDER BY b.budget_key"
)
BUDGETS_IN_SCOPES = statement(BudgetPage, _budget)(
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key > :budget_key AND b.scope >= :first AND b.scope <= :last"
    " ORDER BY b.budget_key LIMIT :count"
)
BUDGETS_OF_SESSIONS = statement(Ids, tuple[int])(f"SELECT b.budget_key FROM budgets b WHERE b.session_id {IN_IDS}")
MOVE_BUDGETS = statement(IdScope, Nothing)("UPDATE budgets SET scope = :scope WHERE session_id = :id")
BUDGETS_OF_SCOPE = statement(Scope, tuple[int])("SELECT b.budget_key FROM budgets b WHERE b.scope = :scope")
DELETE_BUDGETS = statement(Keys, Nothing)(f"DELETE FROM budgets WHERE budget_key {IN_KEYS}")

SET_ALLOWED = statement(SetAllowed, Nothing)(
    "UPDATE budgets SET allowed = :allowed, updated_at = :now WHERE budget_key = :budget_key"
)
SET_ASIDE = statement(SetAside, Nothing)(
    "UPDATE budgets SET reserved = reserved + :amount - :due, updated_at = :now WHERE budget_key = :budget_key"
)
BOOK = statement(Book, Nothing)(
    "UPDATE budgets SET spent = spent + :used, reserved = reserved - :freed, updated_at = :now"
    " WHERE budget_key = :budget_key"
)

IS_RESERVED = statement(Reservation, tuple[int])(
    "SELECT 1 FROM reservations r WHERE r.reservation_id = :reservation_id LIMIT 1"
)
SHARES = statement(Reservation, StoredShare)(
    "SELECT r.budget_key, b.id, b.unit, r.amount, r.state, r.used, r.session_id, r.created_at, r.expires_at,"
    " r.settled_at, b.spent FROM reservations r JOIN budgets b ON b.budget_key = r.budget_key"
    " WHERE r.reservation_id = :reservation_id ORDER BY r.budget_key"
)
EXPIRE = statement(BudgetNow, Nothing)(
    "UPDATE reservations SET state = 'expired', settled_at = :now WHERE budget_key = :budget_key AND state = 'held'"
    " AND expires_at <= :now"
)
DUE = statement(BudgetNow, tuple[int, int])(
    "SELECT CAST(COALESCE(SUM(r.amount), 0) AS BIGINT), COUNT(*) FROM reservations r WHERE r.budget_key = :budget_key"
    " AND r.state = 'held' AND r.expires_at <= :now"
)
SETTLE = statement(Settle, Nothing)(
    "UPDATE reservations SET state = :state, used = :used, settled_at = :now"
    " WHERE reservation_id = :reservation_id AND budget_key = :budget_key"
)
PROLONG = statement(Prolong, Nothing)(
    "UPDATE reservations SET expires_at = :expires_at WHERE reservation_id = :reservation_id AND state = 'held'"
)
HELD = statement(BudgetNow, _held_amount)(
    "SELECT r.reservation_id, r.session_id, r.amount, r.created_at, r.expires_at FROM reservations r"
    " WHERE r.budget_key = :budget_key AND r.state = 'held' AND r.expires_at > :now"
    " ORDER BY r.expires_at, r.reservation_id"
)

# The calls with which budgets came to amounts, of those that were booked, one after the other: pairs of a budget and an
# amount, and what it began with where that is the amount or more. All in one go through the reservations.
REACHED = statement(Ids, _reached)(
    f"WITH asked AS (SELECT {FIRST_OF_PAIR} AS id, CAST({SECOND_OF_PAIR} AS BIGINT) AS amount FROM {PAIRS}),"
    " booked AS (SELECT b.id, r.settled_at, r.session_id, r.used, CAST(b.seeded + SUM(r.used)"
    "   OVER (PARTITION BY b.id ORDER BY r.settled_at, r.reservation_id) AS BIGINT) AS spent"
    "  FROM budgets b JOIN reservations r ON r.budget_key = b.budget_key"
    "  WHERE r.state = 'committed' AND b.id IN (SELECT a.id FROM asked a))"
    " SELECT a.id, a.amount, k.settled_at, k.session_id, k.spent FROM asked a JOIN booked k ON k.id = a.id"
    "  WHERE k.spent >= a.amount AND k.spent - k.used < a.amount"
    " UNION ALL SELECT a.id, a.amount, b.created_at, NULL, b.seeded FROM asked a JOIN budgets b ON b.id = a.id"
    "  WHERE b.seeded >= a.amount"
)

# Each sum comes as two, of the high and the low halves of its numbers: one could leave 64 bits.
_HALVES = ", ".join(
    f"CAST(COALESCE(SUM(({amount}) >> 32), 0) AS BIGINT), CAST(COALESCE(SUM(({amount}) & 4294967295), 0) AS BIGINT)"
    for amount in (all_tokens(), "g.cost")
)
_SPENT = f"SELECT {_HALVES} FROM ledger g"
SPENT_IN_SCOPE = statement(Scope, tuple[int, int, int, int])(f"{_SPENT} WHERE g.scope = :scope")
SPENT_IN_SCOPES = statement(Scopes, tuple[int, int, int, int])(f"{_SPENT} WHERE g.scope >= :scope AND g.scope < :above")
# Sessions that are gone have paid, too: the links to them and their names in the ledger are still there.
SPENT_BY_SESSIONS = statement(Ids, tuple[int, int, int, int])(
    f"{_SPENT} JOIN ledger_sessions n ON n.session_key = g.session_key WHERE n.session_id {IN_IDS}"
)

# -- copies ----------------------------------------------------------------------------------------------------------

_BUDGET_ROW = "b.budget_key, " + ", ".join(f"b.{name}" for name in BudgetRow._fields)
WHOLE_BUDGETS = statement(AfterCount, _whole_budget)(
    f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key > :after_key ORDER BY b.budget_key LIMIT :count"
)
WHOLE_BUDGET = statement(OfBudget, _whole_budget)(
    f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key = :budget_key"
)
BUDGETS_BY_ID = statement(Ids, _whole_budget)(f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.id {IN_IDS}")
SESSIONS_BY_ID = statement(Ids, tuple[int, str, str])(
    f"SELECT s.session_key, s.id, s.scope FROM sessions s WHERE s.id {IN_IDS} AND s.trashed_at IS NULL"
)
RESERVATIONS_OF = statement(Keys, _reservation)(
    "SELECT r.budget_key, "
    + ", ".join(f"r.{name}" for name in ReservationRow._fields)
    + f" FROM reservations r WHERE r.budget_key {IN_KEYS}"
    " ORDER BY r.budget_key, r.created_at, r.reservation_id"
)
REPLACE_BUDGET = statement(BudgetRow, Nothing)(
    "UPDATE budgets SET "
    + ", ".join(f"{name} = :{name}" for name in BudgetRow._fields if name != "id")
    + " WHERE id = :id"
)
DELETE_RESERVATIONS = statement(OfBudget, Nothing)("DELETE FROM reservations WHERE budget_key = :budget_key")
