"""The statements on budgets and reservations."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.core.budget_copies import BudgetRow, ReservationRow
from flue_py.core.budgets import Budget, HeldAmount, ReservationState, Unit
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.seam import Nothing, Row, Statement
from flue_py.store.sql.dialects import in_ids, in_keys, per_dialect, same_as_column
from flue_py.store.sql.takes import AfterCount, Id, Ids, Keys

BudgetOfSession = TypedDict("BudgetOfSession", {"session_id": str, "covers": str, "unit": str})
BudgetOfScope = TypedDict("BudgetOfScope", {"scope": str, "unit": str})
IdScope = TypedDict("IdScope", {"id": str, "scope": str})
KeysNow = TypedDict("KeysNow", {"keys": str, "now": int})
BudgetNowCount = TypedDict("BudgetNowCount", {"budget_key": int, "now": int, "count": int})
BudgetNowCountScope = TypedDict("BudgetNowCountScope", {"budget_key": int, "now": int, "count": int, "scope": str})
SetAllowed = TypedDict("SetAllowed", {"budget_key": int, "now": int, "allowed": int})
SetAside = TypedDict("SetAside", {"budget_key": int, "now": int, "amount": int, "due": int})
Book = TypedDict("Book", {"budget_key": int, "now": int, "used": int, "freed": int})
Reservation = TypedDict("Reservation", {"reservation_id": str})
BudgetNow = TypedDict("BudgetNow", {"budget_key": int, "now": int})
Settle = TypedDict("Settle", {"budget_key": int, "now": int, "reservation_id": str, "state": str, "used": int | None})
Prolong = TypedDict("Prolong", {"reservation_id": str, "expires_at": int})
Scope = TypedDict("Scope", {"scope": str})
OfBudget = TypedDict("OfBudget", {"budget_key": int})


def _budget(row: Row) -> tuple[int, Budget]:
    *columns, budget_key = row
    return budget_key, Budget(*columns)


def _held_amount(row: Row) -> HeldAmount:
    return HeldAmount(*row)


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

BUDGET_KEY = Statement(Id, tuple[int], "SELECT b.budget_key FROM budgets b WHERE b.id = :id")
BUDGET_OF_SESSION = Statement(
    BudgetOfSession,
    tuple[int],
    "SELECT b.budget_key FROM budgets b WHERE b.session_id = :session_id AND b.covers = :covers AND b.unit = :unit",
)
BUDGET_OF_SCOPE = Statement(
    BudgetOfScope,
    tuple[int],
    "SELECT b.budget_key FROM budgets b WHERE b.scope = :scope AND b.unit = :unit AND b.session_id IS NULL",
)
# The budgets of a session: its own, those with tasks of the sessions that it is a task of (whatever lies between), and
# those of its scope.
COVERING = per_dialect(
    IdScope,
    tuple[int],
    lambda dialect: (
        f"WITH RECURSIVE above(id) AS (SELECT {same_as_column(dialect, 'CAST(:id AS TEXT)')} "
        " UNION SELECT p.id FROM above a JOIN task_links t ON t.child_id = a.id"
        "  JOIN sessions p ON p.session_key = t.parent_key)"
        " SELECT b.budget_key FROM above a JOIN budgets b ON b.session_id = a.id WHERE b.covers = 'tasks' OR a.id = :id"
        " UNION SELECT b.budget_key FROM budgets b WHERE b.session_id IS NULL AND b.scope = :scope"
    ),
)
# In order of key, so that two who lock the same budgets do not wait for each other.
LOCK_BUDGETS = per_dialect(
    Keys,
    tuple[int],
    lambda dialect: (
        f"SELECT b.budget_key FROM budgets b WHERE {in_keys('b.budget_key', dialect)} ORDER BY b.budget_key FOR UPDATE"
    ),
)
BUDGETS_BY_KEY = per_dialect(
    KeysNow,
    _budget,
    lambda dialect: f"SELECT {_COLUMNS} FROM budgets b WHERE {in_keys('b.budget_key', dialect)} ORDER BY b.budget_key",
)
ALL_BUDGETS = Statement(
    BudgetNowCount,
    _budget,
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key > :budget_key ORDER BY b.budget_key LIMIT :count",
)
BUDGETS_IN_SCOPE = Statement(
    BudgetNowCountScope,
    _budget,
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key > :budget_key AND b.scope = :scope"
    " ORDER BY b.budget_key LIMIT :count",
)
BUDGETS_OF_SESSIONS = per_dialect(
    Ids, tuple[int], lambda dialect: f"SELECT b.budget_key FROM budgets b WHERE {in_ids('b.session_id', dialect)}"
)
DELETE_BUDGETS = per_dialect(
    Keys, Nothing, lambda dialect: f"DELETE FROM budgets WHERE {in_keys('budget_key', dialect)}"
)

SET_ALLOWED = Statement(
    SetAllowed, Nothing, "UPDATE budgets SET allowed = :allowed, updated_at = :now WHERE budget_key = :budget_key"
)
SET_ASIDE = Statement(
    SetAside,
    Nothing,
    "UPDATE budgets SET reserved = reserved + :amount - :due, updated_at = :now WHERE budget_key = :budget_key",
)
BOOK = Statement(
    Book,
    Nothing,
    "UPDATE budgets SET spent = spent + :used, reserved = reserved - :freed, updated_at = :now"
    " WHERE budget_key = :budget_key",
)

IS_RESERVED = Statement(
    Reservation, tuple[int], "SELECT 1 FROM reservations r WHERE r.reservation_id = :reservation_id LIMIT 1"
)
SHARES = Statement(
    Reservation,
    StoredShare,
    "SELECT r.budget_key, b.id, b.unit, r.amount, r.state, r.used, r.session_id, r.created_at, r.expires_at,"
    " r.settled_at, b.spent FROM reservations r JOIN budgets b ON b.budget_key = r.budget_key"
    " WHERE r.reservation_id = :reservation_id ORDER BY r.budget_key",
)
EXPIRE = Statement(
    BudgetNow,
    Nothing,
    "UPDATE reservations SET state = 'expired', settled_at = :now WHERE budget_key = :budget_key AND state = 'held'"
    " AND expires_at <= :now",
)
DUE = Statement(
    BudgetNow,
    tuple[int, int],
    "SELECT CAST(COALESCE(SUM(r.amount), 0) AS BIGINT), COUNT(*) FROM reservations r WHERE r.budget_key = :budget_key"
    " AND r.state = 'held' AND r.expires_at <= :now",
)
SETTLE = Statement(
    Settle,
    Nothing,
    "UPDATE reservations SET state = :state, used = :used, settled_at = :now"
    " WHERE reservation_id = :reservation_id AND budget_key = :budget_key",
)
PROLONG = Statement(
    Prolong,
    Nothing,
    "UPDATE reservations SET expires_at = :expires_at WHERE reservation_id = :reservation_id AND state = 'held'",
)
HELD = Statement(
    BudgetNow,
    _held_amount,
    "SELECT r.reservation_id, r.session_id, r.amount, r.created_at, r.expires_at FROM reservations r"
    " WHERE r.budget_key = :budget_key AND r.state = 'held' AND r.expires_at > :now"
    " ORDER BY r.expires_at, r.reservation_id",
)

# Each sum comes as two, of the high and the low halves of its numbers: one could leave 64 bits.
_HALVES = ", ".join(
    f"CAST(COALESCE(SUM(({amount}) >> 32), 0) AS BIGINT), CAST(COALESCE(SUM(({amount}) & 4294967295), 0) AS BIGINT)"
    for amount in (all_tokens(), "g.cost")
)
_SPENT = f"SELECT {_HALVES} FROM ledger g"
SPENT_IN_SCOPE = Statement(Scope, tuple[int, int, int, int], f"{_SPENT} WHERE g.scope = :scope")
# Sessions that are gone have paid, too: the links to them and their names in the ledger are still there.
SPENT_BY_SESSIONS = per_dialect(
    Ids,
    tuple[int, int, int, int],
    lambda dialect: (
        f"{_SPENT} JOIN ledger_sessions n ON n.session_key = g.session_key WHERE {in_ids('n.session_id', dialect)}"
    ),
)

# -- copying a store -----------------------------------------------------------------------------------------------

_BUDGET_ROW = "b.budget_key, " + ", ".join(f"b.{name}" for name in BudgetRow._fields)
WHOLE_BUDGETS = Statement(
    AfterCount,
    _whole_budget,
    f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key > :after_key ORDER BY b.budget_key LIMIT :count",
)
WHOLE_BUDGET = Statement(
    OfBudget, _whole_budget, f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key = :budget_key"
)
BUDGETS_BY_ID = per_dialect(
    Ids, _whole_budget, lambda dialect: f"SELECT {_BUDGET_ROW} FROM budgets b WHERE {in_ids('b.id', dialect)}"
)
SESSIONS_BY_ID = per_dialect(
    Ids,
    tuple[int, str, str],
    lambda dialect: (
        f"SELECT s.session_key, s.id, s.scope FROM sessions s WHERE {in_ids('s.id', dialect)} AND s.trashed_at IS NULL"
    ),
)
RESERVATIONS_OF = per_dialect(
    Keys,
    _reservation,
    lambda dialect: (
        "SELECT r.budget_key, "
        + ", ".join(f"r.{name}" for name in ReservationRow._fields)
        + f" FROM reservations r WHERE {in_keys('r.budget_key', dialect)}"
        " ORDER BY r.budget_key, r.created_at, r.reservation_id"
    ),
)
REPLACE_BUDGET = Statement(
    BudgetRow,
    Nothing,
    "UPDATE budgets SET "
    + ", ".join(f"{name} = :{name}" for name in BudgetRow._fields if name != "id")
    + " WHERE id = :id",
)
DELETE_RESERVATIONS = Statement(OfBudget, Nothing, "DELETE FROM reservations WHERE budget_key = :budget_key")
