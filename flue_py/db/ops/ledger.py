"""The ledger of paid calls, sums over it, budgets and reservations."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache, partial
from typing import TypeVar

from msgspec.structs import replace

from flue_py.core import ledger, usage
from flue_py.core.context import EntryCost
from flue_py.core.json import Frozen
from flue_py.core.sessions import DocumentName, above_prefix, all_meant, deletion_of, is_storable
from flue_py.core.usage import CallDifference, Paid, PaidCall
from flue_py.db import sql
from flue_py.db.ops import documents
from flue_py.db.ops.base import held_by, read_state, retracted_ids, write_state
from flue_py.db.ops.seals import change_calls, check_calls, check_heads, paying, renew_heads, seal_calls, with_calls
from flue_py.db.ops.sessions import locate, require_session
from flue_py.db.runner import Nothing, Row, SessionState, Sources, Statement, Transaction
from flue_py.db.schema import all_tokens
from flue_py.db.sql import call_columns, keyed, statement
from flue_py.errors import BudgetNotFound, CallConflict, InvalidArgument, ReservationNotFound, SessionNotFound

# ---------------------------------------------------------------------------------------------------------------------
# The statements of the ledger: rows in, and sums out.


def _path(row: Row) -> tuple[int, int, int, str, Paid]:
    lane_id, depth, session_key, entry_id, *paid = row
    return lane_id, depth, session_key, entry_id, Paid._make(paid)


def _unpriced(row: Row) -> ledger.UnpricedCall:
    number, session_id, *call = row
    return ledger.UnpricedCall(number, session_id, ledger.CallRow._make(call))


_CALL = call_columns("g")

# A call is found by its id; or, where it has none, by the entry that it goes by, whose creator paid it.
FIND_CALL = statement(ledger.CallRow)(
    f"SELECT {_CALL} FROM ledger g WHERE g.scope = :scope AND g.provider = :provider AND g.call_id = :call_id"
    f" UNION ALL SELECT {_CALL} FROM ledger g WHERE g.session_key IN"
    "  (SELECT e.session_key FROM entries e WHERE e.id = :call_id)"
    " AND g.entry_id = :call_id AND g.call_id IS NULL AND g.scope = :scope AND g.provider = :provider"
)
# Whoever brings ids of calls has those named first which go by such an id: the unique index then has all that it needs.
NAME_CALLS = statement(Nothing)(
    "UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key IN"
    f" (SELECT e.session_key FROM entries e WHERE e.id {sql.IN_IDS}) AND entry_id {sql.IN_IDS}"
)
# When a session goes, what it paid is no longer found by its entries.
NAME_CALLS_OF_SESSIONS = statement(Nothing)(
    f"UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key {sql.IN_KEYS}"
)
NAME_CALLS_OF_TREE = statement(Nothing)(
    "UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key IN"
    " (SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id)"
)

DELETE_CALL = statement(Nothing)(
    "DELETE FROM ledger WHERE scope = :scope AND provider = :provider AND call_id = :call_id"
    " AND session_key = :session_key"
)
CALLS_OF_ENTRY = statement(ledger.CallRow)(
    f"SELECT {_CALL} FROM ledger g"
    " WHERE g.session_key = :session_key AND g.entry_id = :entry_id"
    " ORDER BY g.provider, COALESCE(g.call_id, g.entry_id)"
)
FIND_CALLS = statement(ledger.CallRow)(
    f"SELECT {_CALL} FROM {sql.PAIRS_OF_IDS} ledger g ON g.scope = :scope AND g.provider = {sql.FIRST_OF_PAIR}"
    f" AND g.call_id = {sql.SECOND_OF_PAIR}"
    f" UNION ALL SELECT {_CALL} FROM ledger g WHERE g.session_key IN"
    f"  (SELECT e.session_key FROM {sql.PAIRS_OF_IDS} entries e ON e.id = {sql.SECOND_OF_PAIR})"
    " AND g.call_id IS NULL AND g.scope = :scope"
    f" AND (g.provider, g.entry_id) IN (SELECT {sql.FIRST_OF_PAIR}, {sql.SECOND_OF_PAIR} FROM {sql.PAIRS})"
)

REFUSE_KNOWN_CALLS = (
    " ON CONFLICT (scope, provider, call_id) WHERE call_id IS NOT NULL"
    " DO UPDATE SET total_tokens = ledger.total_tokens / 0"
)
"""Has PostgreSQL fail at a call that is there, in one statement with all else, as the sums count it as new."""

# The same where a call goes by an entry of one of the ids, the parameter of this number, and is in no unique index.
REFUSE_UNNAMED_CALLS = (
    " WHERE 1 / (CASE WHEN EXISTS (SELECT 1 FROM entries e JOIN ledger g ON g.session_key = e.session_key"
    " AND g.entry_id = e.id AND g.call_id IS NULL WHERE e.id = ANY (${}::text[])) THEN 0 ELSE 1 END) = 1"
)

SUMMED = (*(f"g.{name}" for name in ledger.TOKEN_COLUMNS), all_tokens(), "COALESCE(g.cost, 0)")

# What the sums of a tree's paths are derived from, where calls came into the ledger, or left it, after their entries.
PATHS = statement(_path)(
    f"SELECT e.lane_id, e.depth, e.session_key, e.id, {sql.PAID} FROM entries e WHERE e.tree_id = :tree_id"
    " ORDER BY e.depth, e.lane_id"
)
FORKS = statement(tuple[int, int | None, int])(
    "SELECT l.lane_id, l.parent_lane, l.fork_depth FROM lanes l WHERE l.tree_id = :tree_id"
)
BOOKED_CALLS = statement(ledger.CallRow)(
    f"SELECT {_CALL} FROM ledger_sessions n"
    " JOIN ledger g ON g.session_key = n.session_key"
    " WHERE n.tree_id = :tree_id AND g.tree_id = :tree_id AND g.entry_id IS NOT NULL"
)
UPDATE_SUMS = statement(Nothing)(
    f"UPDATE entries SET {', '.join(f'{name} = :{name}' for name in usage.PAID_COLUMNS)}"
    " WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)
OUTDATE_STATES = statement(Nothing)(
    "UPDATE sessions SET revision = revision + 1 WHERE tree_id = :tree_id AND session_key <> :session_key"
)

# The calls without a cost, and their costs once they are known. What is there is never overwritten.
UNPRICED_CALLS = statement(_unpriced)(
    f"SELECT g.number, n.session_id, {_CALL} FROM ledger g JOIN ledger_sessions n ON n.session_key = g.session_key"
    " WHERE g.cost IS NULL AND g.number > :after_key ORDER BY g.number LIMIT :count"
)
PAYERS_OF_CALLS = statement(tuple[int, int, int])(
    f"SELECT g.number, g.session_key, g.tree_id FROM ledger g WHERE g.number {sql.IN_KEYS} AND g.cost IS NULL"
)
SET_COST = statement(Nothing)(
    "UPDATE ledger SET cost = :cost, price_source = :price_source WHERE number = :number AND cost IS NULL"
)
ADD_COST = statement(Nothing)(
    "UPDATE sessions SET spent_cost = spent_cost + :cost, unpriced_calls = unpriced_calls - :calls,"
    " revision = revision + 1 WHERE session_key = :session_key"
)

PAYERS_OF = statement(tuple[str, int, int | None])(
    f"SELECT n.session_id, n.session_key, n.tree_id FROM ledger_sessions n WHERE n.session_id {sql.IN_IDS}"
)
# A session that paid nothing has its name here only because it was imported; one that paid has its scope in its calls.
DELETED = statement(tuple[str, int])(
    "SELECT n.session_id, MAX(CASE WHEN g.number IS NULL OR g.entry_id IS NOT NULL THEN 1 ELSE 0 END)"
    " FROM ledger_sessions n LEFT JOIN ledger g ON g.session_key = n.session_key"
    f" WHERE n.session_id {sql.IN_IDS} AND (g.number IS NULL OR g.scope = :scope)"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = n.session_id) GROUP BY n.session_id"
)
# What the other scope has booked already stays where it is.
MOVE_CALLS = statement(Nothing)(
    "UPDATE ledger SET scope = :scope WHERE session_key = :session_key AND NOT EXISTS (SELECT 1 FROM ledger o"
    " WHERE o.scope = :scope AND o.provider = ledger.provider AND o.call_id = ledger.call_id)"
)
# What a fork has kept the entry of stays with who paid for it.
TAKE_CALLS = statement(Nothing)(
    "UPDATE ledger SET session_key = :session_key, tree_id = :tree_id"
    " WHERE session_key = :earlier_key AND scope = :scope AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = ledger.tree_id AND e.id = ledger.entry_id)"
)
OWN_CALLS = statement(ledger.CallRow)(f"SELECT {_CALL} FROM ledger g WHERE g.session_key = :session_key")
TREES_OF = statement(tuple[str, int, int])(
    f"SELECT s.id, s.session_key, s.tree_id FROM sessions s WHERE s.id {sql.IN_IDS}"
)
PAYERS_OF_TREES = statement(tuple[int])(
    f"SELECT n.session_key FROM ledger_sessions n WHERE n.tree_id {sql.IN_KEYS}"
    f" UNION SELECT s.session_key FROM sessions s WHERE s.tree_id {sql.IN_KEYS} AND s.call_seal <> 0"
)

# A call is booked on the entry that its payer added. An id may be used again once its entry was deleted, with the
# session that had added it: what another session adds under it later is another entry.
# A call is found by who paid for it, its entry by its id. CROSS JOIN keeps SQLite to this order, in which there are
# indexes: any other looks through all calls of a tree for each of its entries.
ENTRY_COSTS = statement(keyed(str, lambda sums: EntryCost(*sums)))(
    f"{sql.WITH_HELD}, reach(lane_id, high) AS (SELECT h.lane_id, MAX(h.depth) FROM held h GROUP BY h.lane_id)"
    " SELECT g.entry_id, COUNT(*), COUNT(*) - COUNT(g.cost), CAST(COALESCE(SUM(g.cost), 0) AS BIGINT)"
    " FROM ledger_sessions n CROSS JOIN ledger g CROSS JOIN entries e CROSS JOIN reach r"
    " WHERE n.tree_id = :tree_id AND g.session_key = n.session_key AND g.tree_id = :tree_id"
    " AND e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key"
    " AND r.lane_id = e.lane_id AND r.high >= e.depth"
    " GROUP BY g.entry_id"
)

# Where the active paths run: of each lane of the trees concerned, the deepest entry that is on one.
_ACTIVE = (
    "WITH RECURSIVE reached(tree_id, lane_id, high) AS ("
    "  SELECT e.tree_id, e.lane_id, e.depth FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf"
    "   WHERE s.trashed_at IS NULL{of_trees}"
    "  UNION SELECT r.tree_id, l.parent_lane, l.fork_depth FROM reached r"
    "   JOIN lanes l ON l.tree_id = r.tree_id AND l.lane_id = r.lane_id WHERE l.parent_lane IS NOT NULL"
    "), active(tree_id, lane_id, high) AS ("
    "  SELECT r.tree_id, r.lane_id, MAX(r.high) FROM reached r GROUP BY r.tree_id, r.lane_id) "
)
_PATH = (
    "WITH RECURSIVE active(tree_id, lane_id, high, parent_lane, low) AS ("
    "  SELECT l.tree_id, l.lane_id, CAST(:depth AS BIGINT), l.parent_lane, l.fork_depth FROM lanes l"
    "   WHERE l.tree_id = :tree_id AND l.lane_id = :lane_id"
    "  UNION ALL SELECT l.tree_id, l.lane_id, a.low, l.parent_lane, l.fork_depth FROM active a"
    "   JOIN lanes l ON l.tree_id = a.tree_id AND l.lane_id = a.parent_lane AND l.fork_depth < a.low) "
)
_WITH_ENTRY = (
    " LEFT JOIN entries e ON e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key"
    " LEFT JOIN active a ON a.tree_id = e.tree_id AND a.lane_id = e.lane_id AND a.high >= e.depth"
)
# CROSS JOIN keeps SQLite to the order in which there are indexes, as above.
_ON_PATH = " CROSS JOIN entries e CROSS JOIN active a"
_BRANCH = (
    "CASE WHEN g.entry_id IS NULL THEN 'alone' WHEN e.id IS NULL THEN 'gone' WHEN a.lane_id IS NULL THEN 'abandoned'"
    " ELSE 'active' END"
)


def _whole(unit_us: int) -> str:
    """Return how many whole units of time a call is after 1970, rounded down before it, too."""
    return f"(g.at - ((g.at % {unit_us}) + {unit_us}) % {unit_us}) / {unit_us}"


_IN_TIME = "g.at >= :from_us AND g.at < :before_us"
_BY_KEYS = f"g.session_key {sql.IN_KEYS}"
_GROUPS = {
    "session": "n.session_id",
    "project": "n.project",
    "branch": _BRANCH,
    "day": _whole(ledger.DAY_US),
    "quarter": _whole(ledger.QUARTER_US),
}


@lru_cache(maxsize=256)
def ledger_sums(
    group_by: tuple[str, ...],
    *,
    matches: tuple[str, ...] = (),
    by_keys: bool = False,
    by_scopes: bool = False,
    by_project: bool = False,
    by_branch: bool = False,
    on_path: bool = False,
    in_time: bool = False,
) -> Statement[tuple[Row, list[int]]]:
    """Return the statement that sums up the ledger's rows by these dimensions, where these columns have their values.

    There is the dimension ``quarter``, too: the number of the quarter of an hour.
    A row has the values of the dimensions, and then numbers: calls, those without a price or of unknown usage, parts
    reported, and each of `SUMMED` as two sums, of the high and the low halves of its numbers: one could leave 64
    bits.
    """
    groups = [_GROUPS.get(name, f"g.{name}") for name in group_by]
    sums = [f"CAST(SUM(({amount}) >> 32) AS BIGINT), CAST(SUM(({amount}) & 4294967295) AS BIGINT)" for amount in SUMMED]
    counts = [
        "COUNT(*)",
        "CAST(SUM(CASE WHEN g.cost IS NULL THEN 1 ELSE 0 END) AS BIGINT)",
        "CAST(SUM(g.unknown) AS BIGINT)",
        # What some call reported: there is no sum of bits on SQLite.
        " + ".join(f"MAX(g.reported & {1 << place})" for place in range(len(usage.PARTS))),
    ]
    needs_entry = by_branch or on_path or "branch" in group_by
    needs_payer = by_project or not {"session", "project"}.isdisjoint(group_by)
    joins = " JOIN ledger_sessions n ON n.session_key = g.session_key" if needs_payer else ""
    if needs_entry:
        joins += _ON_PATH if on_path else _WITH_ENTRY
    conditions = [f"g.{name} = :{name}" for name in matches]
    if in_time:
        # Not with bounds that let all through: SQLite would read the whole ledger by an index.
        conditions.append(_IN_TIME)
    if by_scopes:
        conditions.append("g.scope >= :scope_from AND g.scope < :scope_to")
    if by_project:
        conditions.append("(n.project = :project OR (n.project >= :project_from AND n.project < :project_to))")
    if by_branch:
        conditions.append(f"{_BRANCH} = :branch_name")
    if on_path:
        conditions.append(
            "g.tree_id = :tree_id AND e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key"
            " AND a.tree_id = e.tree_id AND a.lane_id = e.lane_id AND a.high >= e.depth AND e.depth > :low_depth"
        )
    grouped = f" GROUP BY {', '.join(groups)}" if groups else ""

    of_trees = f" AND s.tree_id IN (SELECT g.tree_id FROM ledger g WHERE {_BY_KEYS})" if by_keys else ""
    start = (_PATH if on_path else _ACTIVE.format(of_trees=of_trees)) if needs_entry else ""
    if by_keys:
        conditions.append(_BY_KEYS)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def read(row: Row) -> tuple[Row, list[int]]:
        return row[: len(groups)], [int(number or 0) for number in row[len(groups) :]]

    return statement(read)(f"{start}SELECT {', '.join([*groups, *counts, *sums])} FROM ledger g{joins}{where}{grouped}")


DROP_PAYER = statement(Nothing)(
    "DELETE FROM ledger_sessions WHERE session_key = :session_key AND NOT EXISTS"
    " (SELECT 1 FROM ledger g WHERE g.session_key = :session_key)"
)


# ---------------------------------------------------------------------------------------------------------------------
# What was spent: sums over the ledger.

Tree = TypeVar("Tree", int, int | None)

_FIRST_US, _LAST_US = -(2**63), 2**63 - 1


def read_ledger(tx: Transaction, query: ledger.LedgerQuery) -> ledger.UsageReport:
    """Sum up the ledger (see `Backend.read_ledger`)."""
    names = (*query.matches.values(), query.session_id or "", query.project or "", query.scope_prefix or "")
    if not all(map(is_storable, names)):
        if query.session_id is not None and not is_storable(query.session_id):
            raise SessionNotFound(query.session_id)
        return ledger.usage_report([], query.group_by)
    parameters: dict[str, object] = {**query.matches}
    has_blocks = "block" in query.group_by
    # The calls before it decide where blocks begin.
    from_us = None if has_blocks else query.from_us
    if (from_us, query.before_us) != (None, None):
        parameters["from_us"] = _FIRST_US if from_us is None else from_us
        parameters["before_us"] = _LAST_US if query.before_us is None else query.before_us
    if query.scope_prefix:
        parameters |= {"scope_from": query.scope_prefix, "scope_to": above_prefix(query.scope_prefix)}
    if query.folders is not None:
        parameters.update(zip(("project", "project_from", "project_to"), query.folders, strict=True))
    if query.branch is not None:
        parameters["branch_name"] = query.branch
    if query.session_id is not None and query.on_path:
        place = locate(tx, query.session_id, query.leaf, query.since)
        if place is None:
            return ledger.usage_report([], query.group_by, on_path=False)
        parameters.update(place)
    elif query.session_id is not None:
        parameters["keys"] = json.dumps(_payers(tx, query.session_id, query))
    elif query.session_ids is not None:
        named = json.dumps([name for name in query.session_ids if is_storable(name)])
        payers = _meant(query.session_ids, tx.rows(PAYERS_OF, ids=named))
        parameters["keys"] = json.dumps([key for _, key, _ in payers])
    _check_sums(tx, query, json.loads(str(parameters["keys"])) if "keys" in parameters else None)
    # A database sums up by day of UTC, or by quarter of an hour; other periods are made of those here.
    unit = "quarter" if has_blocks or query.zone is not None else "day"
    statement = ledger_sums(
        tuple(unit if name in ledger.PERIODS else name for name in query.group_by),
        matches=tuple(query.matches),
        by_keys="keys" in parameters,
        by_scopes=bool(query.scope_prefix),
        by_project=query.project is not None,
        by_branch=query.branch is not None,
        on_path=query.on_path,
        in_time="from_us" in parameters,
    )
    sums = list(tx.rows(statement, **parameters))
    blocks: dict[int, int] = {}
    if has_blocks:
        column, first = query.group_by.index("block"), query.from_us
        blocks = ledger.blocks_of(values[column] for values, _ in sums)
        sums = [row for row in sums if first is None or row[0][column] * ledger.QUARTER_US >= first]
    rows = ledger.merged(_usage_row(*row, query, unit, blocks) for row in sums)
    return ledger.usage_report([row for row in rows if row.calls], query.group_by)


def _check_sums(tx: Transaction, query: ledger.LedgerQuery, keys: Collection[int] | None) -> None:
    """Raise `CorruptStore` if the calls that are summed up are not those that were booked. O(calls)."""
    if query.on_path:
        keys = _payers(tx, str(query.session_id), replace(query, tree=True))
    for page in paying(tx) if keys is None else [keys]:
        check_calls(tx, page)


def read_entry_costs(tx: Transaction, session_id: str) -> dict[str, EntryCost]:
    """Return the costs of the entries of a session (see `Backend.read_entry_costs`)."""
    state = read_state(tx, session_id)
    check_calls(tx, _payers(tx, session_id, ledger.LedgerQuery(session_id, tree=True)))
    retracted = retracted_ids(tx, state)
    return {entry: cost for entry, cost in tx.rows(ENTRY_COSTS, **held_by(state)) if entry not in retracted}


GONE_TASKS = statement(tuple[str])(
    f"WITH RECURSIVE gone(id) AS (SELECT {sql.IDS}"
    " UNION SELECT n.session_id FROM gone g JOIN ledger_sessions n ON n.task_of = g.id) SELECT id FROM gone"
)


def task_ids(tx: Transaction, session_id: str) -> set[str]:
    """Return the session and all its tasks, there or gone."""
    linked = json.dumps([task_id for task_id, *_ in tx.rows(sql.TASK_CLOSURE, id=session_id, scope=None)])
    return {task_id for (task_id,) in tx.rows(GONE_TASKS, ids=linked)}


def _payers(tx: Transaction, session_id: str, query: ledger.LedgerQuery) -> list[int]:
    """Return the keys of the sessions that the query is about, living or gone. Raises `SessionNotFound`."""
    ids = {str(session_id)}
    # The tasks of a session whose id another one has now went with it: what links there are is that one's.
    if query.tasks and _is_nobody_else(tx, session_id):
        ids |= task_ids(tx, session_id)
    named = json.dumps(sorted(ids))
    there = _meant((session_id,), tx.rows(TREES_OF, ids=named))
    paid = _meant((session_id,), tx.rows(PAYERS_OF, ids=named))
    if not paid and session_id not in {living for living, *_ in there}:
        raise SessionNotFound(session_id)
    payers = {key: tree_id for _, key, tree_id in paid}
    if not query.tree:
        return sorted(payers)
    trees = {*(tree_id for _, _, tree_id in there), *(tree_id for tree_id in payers.values() if tree_id is not None)}
    rows = tx.rows(PAYERS_OF_TREES, keys=json.dumps(sorted(trees)))
    return sorted({*payers, *(key for (key,) in rows)})


def _is_nobody_else(tx: Transaction, session_id: str) -> bool:
    """Return whether no session but the one that is meant has the id now."""
    rows = list(tx.rows(TREES_OF, ids=json.dumps([session_id])))
    return len(_meant((session_id,), rows)) == len(rows)


def _meant(names: Iterable[str], rows: Iterable[tuple[str, int, Tree]]) -> list[tuple[str, int, Tree]]:
    """Return the rows (session id, session key, ...) of sessions that are meant."""
    is_meant = all_meant(names)
    return [(session_id, key, tree) for session_id, key, tree in rows if is_meant(session_id, key)]


def _usage_row(
    values: Row, numbers: list[int], query: ledger.LedgerQuery, unit: str, blocks: Mapping[int, int]
) -> ledger.UsageRow:
    group: dict[str, str | date | None] = {}
    for name, value in zip(query.group_by, values, strict=True):
        if name == "block":
            group[name] = ledger.block_name(blocks[value], query.zone)
        elif name in ledger.PERIODS and unit == "quarter":
            group[name] = _group_value(name, ledger.local_day(value * ledger.QUARTER_US, query.zone))
        else:
            group[name] = _group_value(name, value)
    calls, unpriced, unknown, reported, *halves = numbers
    sums = (high << 32 | low for high, low in _pairs(halves))
    return ledger.UsageRow(group, *(calls, unpriced, *sums, unknown, reported))


def _pairs(halves: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return sums of high halves and low halves; those of the low ones may have outgrown their half."""
    for high, low in zip(halves[::2], halves[1::2], strict=True):
        yield high + (low >> 32), low & 0xFFFFFFFF


def _group_value(name: ledger.Dimension, value: int | str | None) -> str | date | None:
    if name in ("day", "week", "month"):
        return ledger.period_of(int(value or 0), name)
    return None if value is None else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# The statements on budgets and reservations.


def _budget(row: Row) -> tuple[int, ledger.Budget]:
    *columns, budget_key = row
    return budget_key, ledger.Budget(*columns)


def _reached(row: Row) -> tuple[tuple[str, int], ledger.Reached]:
    budget_id, amount, *columns = row
    return (budget_id, amount), ledger.Reached(*columns)


class StoredShare(Frozen):
    """The share of a reservation in one budget, with the reservation's own columns, and the budget's spending."""

    budget_key: int
    budget_id: str
    unit: ledger.Unit
    period: str
    amount: int
    state: ledger.ReservationState
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
    " b.created_at, b.updated_at, NULLIF(b.period, ''), NULLIF(b.tz, ''), b.budget_key"
)

BUDGET_KEY = statement(tuple[int])("SELECT b.budget_key FROM budgets b WHERE b.id = :id")
BUDGET_OF_SESSION = statement(tuple[int])(
    "SELECT b.budget_key FROM budgets b WHERE b.session_id = :session_id AND b.covers = :covers AND b.unit = :unit"
    " AND b.period = :period"
)
BUDGET_OF_SCOPE = statement(tuple[int])(
    "SELECT b.budget_key FROM budgets b WHERE b.scope = :scope AND b.unit = :unit AND b.period = :period"
    " AND b.session_id IS NULL"
)
# The budgets of a session: its own, those with tasks of the sessions that it is a task of (whatever lies between), and
# those of its scope, whose names are the ``ids``.
COVERING = statement(tuple[int])(
    f"WITH RECURSIVE above(id) AS (SELECT {sql.ID} "
    " UNION SELECT p.id FROM above a JOIN task_links t ON t.child_id = a.id"
    "  JOIN sessions p ON p.session_key = t.parent_key)"
    " SELECT budget_key FROM above a CROSS JOIN budgets b ON b.session_id = a.id WHERE b.covers = 'tasks' OR a.id = :id"
    f" UNION SELECT b.budget_key FROM budgets b WHERE b.session_id IS NULL AND b.scope {sql.IN_IDS}"
)
# In order of key, so that two who lock the same budgets do not wait for each other.
LOCK_BUDGETS = statement(tuple[int])(
    f"SELECT b.budget_key FROM budgets b WHERE b.budget_key {sql.IN_KEYS} ORDER BY b.budget_key FOR UPDATE"
)
BUDGETS_BY_KEY = statement(_budget)(
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key {sql.IN_KEYS} ORDER BY b.budget_key"
)
BUDGETS_IN_SCOPES = statement(_budget)(
    f"SELECT {_COLUMNS} FROM budgets b WHERE b.budget_key > :budget_key AND b.scope >= :first AND b.scope <= :last"
    " ORDER BY b.budget_key LIMIT :count"
)
BUDGETS_OF_SESSIONS = statement(tuple[int])(f"SELECT b.budget_key FROM budgets b WHERE b.session_id {sql.IN_IDS}")
MOVE_BUDGETS = statement(Nothing)("UPDATE budgets SET scope = :scope WHERE session_id = :id")
BUDGETS_OF_SCOPE = statement(tuple[int])("SELECT b.budget_key FROM budgets b WHERE b.scope = :scope")
DELETE_BUDGETS = statement(Nothing)(f"DELETE FROM budgets WHERE budget_key {sql.IN_KEYS}")

SET_ALLOWED = statement(Nothing)(
    "UPDATE budgets SET allowed = :allowed, tz = :tz, updated_at = :now WHERE budget_key = :budget_key"
)
SET_ASIDE = statement(Nothing)(
    "UPDATE budgets SET reserved = reserved + :amount - :due, updated_at = :now WHERE budget_key = :budget_key"
)
BOOK = statement(Nothing)(
    "UPDATE budgets SET spent = spent + :used, reserved = reserved - :freed, updated_at = :now"
    " WHERE budget_key = :budget_key"
)

IS_RESERVED = statement(tuple[int])("SELECT 1 FROM reservations r WHERE r.reservation_id = :reservation_id LIMIT 1")
SHARES = statement(StoredShare)(
    "SELECT r.budget_key, b.id, b.unit, b.period, r.amount, r.state, r.used, r.session_id, r.created_at, r.expires_at,"
    " r.settled_at, b.spent FROM reservations r JOIN budgets b ON b.budget_key = r.budget_key"
    " WHERE r.reservation_id = :reservation_id ORDER BY r.budget_key"
)
EXPIRE = statement(Nothing)(
    "UPDATE reservations SET state = 'expired', settled_at = :now WHERE budget_key = :budget_key AND state = 'held'"
    " AND expires_at <= :now"
)
DUE = statement(tuple[int, int])(
    "SELECT CAST(COALESCE(SUM(r.amount), 0) AS BIGINT), COUNT(*) FROM reservations r WHERE r.budget_key = :budget_key"
    " AND r.state = 'held' AND r.expires_at <= :now"
)
SETTLE = statement(Nothing)(
    "UPDATE reservations SET state = :state, used = :used, settled_at = :now"
    " WHERE reservation_id = :reservation_id AND budget_key = :budget_key"
)
PROLONG = statement(Nothing)(
    "UPDATE reservations SET expires_at = :expires_at WHERE reservation_id = :reservation_id AND state = 'held'"
)
HELD = statement(ledger.HeldAmount)(
    "SELECT r.reservation_id, r.session_id, r.amount, r.created_at, r.expires_at FROM reservations r"
    " WHERE r.budget_key = :budget_key AND r.state = 'held' AND r.expires_at > :now"
    " ORDER BY r.expires_at, r.reservation_id"
)

# The calls with which budgets came to amounts, of those that were booked, one after the other: pairs of a budget and an
# amount, and what it began with where that is the amount or more. All in one go through the reservations.
REACHED = statement(_reached)(
    f"WITH asked AS (SELECT {sql.FIRST_OF_PAIR} AS id, CAST({sql.SECOND_OF_PAIR} AS BIGINT) AS amount"
    f"  FROM {sql.PAIRS}),"
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
_PAYING = {
    "scope": "g.scope = :scope",
    "scopes": "g.scope >= :scope AND g.scope < :above",
    # Sessions that are gone have paid, too: the links to them and their names in the ledger are still there.
    "sessions": f"n.session_id {sql.IN_IDS}",
}
_SPENT = f"SELECT {_HALVES} FROM ledger g"
_PAYERS = " JOIN ledger_sessions n ON n.session_key = g.session_key"
SPENT = {
    who: statement(tuple[int, int, int, int])(f"{_SPENT}{_PAYERS if who == 'sessions' else ''} WHERE {condition}")
    for who, condition in _PAYING.items()
}
SPENT_IN_TIME = {who: statement(tuple[int, int, int, int])(f"{each.sql} AND {_IN_TIME}") for who, each in SPENT.items()}
CALLS_IN_TIME = {
    who: statement(tuple[int, str, int, int])(
        f"SELECT g.at, n.session_id, {all_tokens()}, COALESCE(g.cost, 0) FROM ledger g{_PAYERS}"
        f" WHERE {condition} AND {_IN_TIME} ORDER BY g.at, g.number"
    )
    for who, condition in _PAYING.items()
}

# -- copies ----------------------------------------------------------------------------------------------------------

_BUDGET_ROW = "b.budget_key, " + ", ".join(f"b.{name}" for name in ledger.BudgetRow._fields)
_WHOLE = statement(keyed(int, ledger.BudgetRow._make))
WHOLE_BUDGETS = _WHOLE(
    f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key > :after_key ORDER BY b.budget_key LIMIT :count"
)
WHOLE_BUDGET = _WHOLE(f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.budget_key = :budget_key")
BUDGETS_BY_ID = _WHOLE(f"SELECT {_BUDGET_ROW} FROM budgets b WHERE b.id {sql.IN_IDS}")
SESSIONS_BY_ID = statement(tuple[int, str, str])(
    f"SELECT s.session_key, s.id, s.scope FROM sessions s WHERE s.id {sql.IN_IDS} AND s.trashed_at IS NULL"
)
RESERVATIONS_OF = statement(keyed(int, ledger.ReservationRow._make))(
    "SELECT r.budget_key, "
    + ", ".join(f"r.{name}" for name in ledger.ReservationRow._fields)
    + f" FROM reservations r WHERE r.budget_key {sql.IN_KEYS}"
    " ORDER BY r.budget_key, r.created_at, r.reservation_id"
)
REPLACE_BUDGET = statement(Nothing)(
    "UPDATE budgets SET "
    + ", ".join(f"{name} = :{name}" for name in ledger.BudgetRow._fields if name != "id")
    + " WHERE id = :id"
)
DELETE_RESERVATIONS = statement(Nothing)("DELETE FROM reservations WHERE budget_key = :budget_key")


# ---------------------------------------------------------------------------------------------------------------------
# Budgets on a database: the row of a budget is the lock that reservations in it take, in order of key.
#
# Whoever changes a budget locks its row before reading it. Reservations that have expired are left out wherever a
# budget is read, and are taken out of its row by the next reservation.

_ID_ATTEMPTS = 1_000

# -- budgets ----------------------------------------------------------------------------------------------------------


def set_budget(tx: Transaction, sources: Sources, new: ledger.NewBudget) -> ledger.Budget:
    """Make a budget, or change the one of the same target, unit and period (see `Backend.set_budget`)."""
    scope = new.scope
    if new.session_id is not None:
        # Locked, so that it is not deleted meanwhile.
        scope = read_state(tx, new.session_id).scope
    now = sources.now_us()
    period = new.period or ""
    existing = key_of_target(tx, new.session_id, new.covers, scope, new.unit, period)
    if existing is not None:
        key = existing
        lock_budgets(tx, [key])
        tx.run(SET_ALLOWED, allowed=new.allowed, tz=new.tz, now=now, budget_key=key)
    else:
        spent = _in_ledger(tx, new, scope) if new.spent == "ledger" else new.spent
        if spent > usage.MAX_AMOUNT:
            raise InvalidArgument(f"spent_so_far: the ledger has {spent}, more than can be stored; give a number")
        key = tx.new_key()
        row = ledger.BudgetRow(
            id=_free_id(sources, lambda drawn: _key_of(tx, drawn) is not None),
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
            period=period,
            tz=new.tz,
        )
        tx.insert(sql.INSERT_BUDGET, [(key, *row)])
    ((_, budget),) = _budgets(tx, [key], now)
    return budget


def key_of_target(
    tx: Transaction, session_id: str | None, covers: str, scope: str, unit: str, period: str
) -> int | None:
    """Return the key of the budget of a session or a scope in a unit, of a period or "" for none; or None."""
    if session_id is None:
        row = tx.first(BUDGET_OF_SCOPE, scope=scope, unit=unit, period=period)
    else:
        row = tx.first(BUDGET_OF_SESSION, session_id=session_id, covers=covers, unit=unit, period=period)
    (key,) = row or (None,)
    return key


def _free_id(sources: Sources, is_taken: Callable[[str], bool]) -> str:
    for _ in range(_ID_ATTEMPTS):
        drawn = sources.entry_id()
        if not is_taken(drawn):
            return drawn
    raise InvalidArgument(f"ids: {_ID_ATTEMPTS} ids in a row are taken; make others")


def _payers_of(tx: Transaction, new: ledger.NewBudget | ledger.Budget, scope: str) -> tuple[str, dict[str, object]]:
    """Return how the ledger knows the calls of a budget's target: a key of `_PAYING`, and its parameters."""
    if new.session_id is not None:
        ids = task_ids(tx, new.session_id) if new.covers == "tasks" else {new.session_id}
        return "sessions", {"ids": json.dumps(sorted(ids))}
    if not scope.endswith(ledger.ANY_REST):
        return "scope", {"scope": scope}
    prefix = scope.removesuffix(ledger.ANY_REST)
    return "scopes", {"scope": prefix, "above": above_prefix(prefix)}


def _in_ledger(tx: Transaction, new: ledger.NewBudget | ledger.Budget, scope: str, **times: object) -> int:
    """Return the sum of the ledger for a budget's target, between these times if there are any."""
    who, payers = _payers_of(tx, new, scope)
    row = tx.first((SPENT_IN_TIME if times else SPENT)[who], **payers, **times)
    tokens_high, tokens_low, cost_high, cost_low = row or (0, 0, 0, 0)
    high, low = (tokens_high, tokens_low) if new.unit == "tokens" else (cost_high, cost_low)
    return int((high << 32) + low)


def _as_of(tx: Transaction, budget: ledger.Budget, now: int) -> ledger.Budget:
    """Return a budget with the period that is running and what the ledger has of it; without one as it is."""
    budget = budget.as_of(now)
    if budget.began_us is None:
        return budget
    return replace(
        budget, spent=_in_ledger(tx, budget, budget.scope, from_us=budget.began_us, before_us=budget.ends_us)
    )


def get_budget(tx: Transaction, sources: Sources, budget_id: str) -> ledger.Budget | None:
    """Return a budget, or None (see `Backend.get_budget`)."""
    key = _key_of(tx, budget_id)
    budgets = [] if key is None else _budgets(tx, [key], sources.now_us())
    return next((budget for _, budget in budgets), None)


def _key_of(tx: Transaction, budget_id: str) -> int | None:
    row = tx.first(BUDGET_KEY, id=budget_id) if is_storable(budget_id) else None
    (key,) = row or (None,)
    return key


def _require_key(tx: Transaction, budget_id: str) -> int:
    key = _key_of(tx, budget_id)
    if key is None:
        raise BudgetNotFound(budget_id)
    return key


def list_budgets(
    tx: Transaction, sources: Sources, *, scope: str | None, scope_prefix: str = "", after: str | None, limit: int
) -> list[ledger.Budget]:
    """Return budgets in the order they were made (see `Backend.list_budgets`)."""
    beyond = -1 if after is None else _require_key(tx, after)
    first, last = (scope_prefix, above_prefix(scope_prefix)) if scope is None else (scope, scope)
    if not first.startswith(scope_prefix):
        return []
    now = sources.now_us()
    rows = list(tx.rows(BUDGETS_IN_SCOPES, budget_key=beyond, first=first, last=last, now=now, count=limit))
    return [_as_of(tx, budget, now) for _, budget in rows]


def covering_budgets(
    tx: Transaction, sources: Sources, session_id: str, *, by_ledger: bool = False
) -> list[ledger.Budget]:
    """Return the budgets that cover a session (see `Backend.covering_budgets`)."""
    budgets = [budget for _, budget in _budgets(tx, _covering_keys(tx, session_id), sources.now_us())]
    if not by_ledger:
        return budgets
    return [each if each.period else replace(each, spent=_in_ledger(tx, each, each.scope)) for each in budgets]


def _covering_keys(tx: Transaction, session_id: str) -> list[int]:
    info = require_session(tx, session_id)
    return [key for (key,) in tx.rows(COVERING, id=session_id, ids=json.dumps(ledger.scopes_covering(info.scope)))]


def held_amounts(tx: Transaction, sources: Sources, budget_id: str) -> list[ledger.HeldAmount]:
    """Return the amounts held of a budget (see `Backend.held_amounts`)."""
    key = _require_key(tx, budget_id)
    return list(tx.rows(HELD, budget_key=key, now=sources.now_us()))


def budgets_reached(tx: Transaction, pairs: Sequence[tuple[str, int]]) -> list[ledger.Reached | None]:
    """Return when budgets had spent amounts (see `Backend.budgets_reached`). One statement."""
    storable = [pair for pair in pairs if is_storable(pair[0])]
    reached = dict(tx.rows(REACHED, ids=json.dumps(storable)))
    return [reached.get(pair) for pair in pairs]


def reached_in_period(tx: Transaction, budget: ledger.Budget, amount: int) -> ledger.Reached | None:
    """Return when a budget had spent an amount in its period (see `Backend.reached_in_period`)."""
    if amount == 0 and budget.began_us is not None:
        return ledger.Reached(budget.began_us, None, 0)
    spent = 0
    who, payers = _payers_of(tx, budget, budget.scope)
    calls = tx.rows(CALLS_IN_TIME[who], **payers, from_us=budget.began_us, before_us=budget.ends_us)
    for at_us, session_id, tokens, cost in calls:
        spent += tokens if budget.unit == "tokens" else cost
        if spent >= amount:
            return ledger.Reached(at_us, session_id, spent)
    return None


def deleting(sources: Sources, budget_id: str) -> Callable[[Transaction], ledger.Budget]:
    """Return one call of `Backend.delete_budget`, which may be run again where its commit went unheard."""
    deleted: ledger.Budget | None = None

    def delete(tx: Transaction) -> ledger.Budget:
        """Delete a budget and its reservations. Raises `BudgetNotFound`."""
        nonlocal deleted
        key = _key_of(tx, budget_id)
        if key is not None:
            lock_budgets(tx, [key])
            budgets = _budgets(tx, [key], sources.now_us())
            if budgets:
                tx.run(DELETE_BUDGETS, keys=json.dumps([key]))
                ((_, deleted),) = budgets
        if deleted is None:
            raise BudgetNotFound(budget_id)
        return deleted

    return delete


def delete_session_budgets(tx: Transaction, session_ids: Iterable[str]) -> None:
    """Delete the budgets of sessions that are being deleted. Their reservations in other budgets stay."""
    _delete_budgets(tx, [key for (key,) in tx.rows(BUDGETS_OF_SESSIONS, ids=json.dumps(list(session_ids)))])


def delete_scope_budgets(tx: Transaction, scope: str) -> None:
    """Delete the budgets of a scope, and of its sessions."""
    _delete_budgets(tx, [key for (key,) in tx.rows(BUDGETS_OF_SCOPE, scope=scope)])


def _delete_budgets(tx: Transaction, keys: list[int]) -> None:
    if keys:
        lock_budgets(tx, keys)
        tx.run(DELETE_BUDGETS, keys=json.dumps(keys))


def lock_budgets(tx: Transaction, keys: Collection[int]) -> None:
    """Wait until nobody else changes these budgets, and keep others out until the end."""
    if keys and not tx.is_alone:
        tx.rows(LOCK_BUDGETS, keys=json.dumps(sorted(keys)))


def _budgets(tx: Transaction, keys: Collection[int], now: int) -> list[tuple[int, ledger.Budget]]:
    """Return budgets by key, in order of it, as of a moment. Those that are gone are left out."""
    rows = list(tx.rows(BUDGETS_BY_KEY, keys=json.dumps(list(keys)), now=now)) if keys else []
    return [(key, _as_of(tx, budget, now)) for key, budget in rows]


# -- reservations -----------------------------------------------------------------------------------------------------


def reserving(
    sources: Sources, session_id: str, amounts: ledger.Amounts, ttl_us: int
) -> Callable[[Transaction], ledger.Reservation]:
    """Return one call of `Backend.reserve`, which may be run again after a rollback, or if its commit went unheard."""
    reservation: ledger.Reservation | None = None

    def reserve(tx: Transaction) -> ledger.Reservation:
        """Set the amounts aside in every budget that covers the session. Raises `BudgetExceeded`."""
        nonlocal reservation
        if reservation is not None and reservation.budget_ids and _is_reserved(tx, reservation.id):
            return reservation
        keys = _covering_keys(tx, session_id)
        lock_budgets(tx, keys)
        now = sources.now_us()
        budgets = _budgets(tx, keys, now)
        for _, budget in budgets:
            ledger.check_room(budget, amounts, session_id)
        new_id = _free_id(sources, partial(_is_reserved, tx))
        expires = now + ttl_us
        shares = []
        for key, budget in budgets:
            amount = amounts.of(budget.unit) or 0
            shares.append(ledger.Share(budget.id, budget.unit, amount, "held", None))
            _set_aside(tx, key, amount, now)
            row = ledger.ReservationRow(new_id, session_id, amount, "held", None, now, expires, None)
            tx.insert(sql.INSERT_RESERVATION, [(key, *row)])
        reservation = ledger.reservation_of(
            new_id, str(session_id), shares, created_us=now, expires_us=expires, settled_us=None, now_us=now
        )
        return reservation

    return reserve


def _set_aside(tx: Transaction, key: int, amount: int, now: int) -> None:
    where = {"budget_key": key, "now": now}
    due, expired = tx.first(DUE, **where) or (0, 0)
    if expired:
        tx.run(EXPIRE, **where)
    tx.run(SET_ASIDE, **where, amount=amount, due=due)


def _is_reserved(tx: Transaction, reservation_id: str) -> bool:
    return tx.first(IS_RESERVED, reservation_id=reservation_id) is not None


class _Stored:
    """A reservation as it is stored, with its budgets locked where it is to be changed."""

    def __init__(self, tx: Transaction, reservation_id: str, now: int, *, locked: bool = True) -> None:
        rows = tx.rows(SHARES, reservation_id=reservation_id) if is_storable(reservation_id) else ()
        if rows and locked and not tx.is_alone:
            lock_budgets(tx, [row.budget_key for row in rows])
            rows = tx.rows(SHARES, reservation_id=reservation_id)
        if not rows:
            raise ReservationNotFound(reservation_id)
        self.now = now
        self.id = reservation_id
        self.keys = [row.budget_key for row in rows]
        self.shares = [ledger.Share(row.budget_id, row.unit, row.amount, row.state, row.used) for row in rows]
        # With a period, the ledger says what was spent.
        self.spent = [None if row.period else row.spent for row in rows]
        self._first = rows[0]
        self.expires_us = self._first.expires_at

    @property
    def reservation(self) -> ledger.Reservation:
        return ledger.reservation_of(
            self.id,
            self._first.session_id,
            self.shares,
            created_us=self._first.created_at,
            expires_us=self.expires_us,
            settled_us=self._first.settled_at,
            now_us=self.now,
        )

    def settle(self, tx: Transaction, state: str, used: ledger.Amounts | None) -> None:
        """Settle every share: book the use, and give back the rest."""
        for key, share, spent in zip(self.keys, self.shares, self.spent, strict=True):
            booked = None if used is None else ledger.used_of(share, used)
            freed = share.amount if share.state == "held" else 0
            where = {"budget_key": key, "now": self.now}
            tx.run(BOOK, **where, used=0 if spent is None else booked or 0, freed=freed)
            tx.run(SETTLE, **where, reservation_id=self.id, state=state, used=booked)


def get_reservation(tx: Transaction, sources: Sources, reservation_id: str) -> ledger.Reservation | None:
    """Return a reservation as it stands, or None (see `Backend.get_reservation`)."""
    try:
        return _Stored(tx, reservation_id, sources.now_us(), locked=False).reservation
    except ReservationNotFound:
        return None


def commit_reservation(
    tx: Transaction, sources: Sources, reservation_id: str, used: ledger.Amounts
) -> ledger.Reservation:
    """Book the use of a call (see `Backend.commit_reservation`)."""
    stored = _Stored(tx, reservation_id, sources.now_us())
    if ledger.is_retry(stored.reservation, stored.shares, used):
        return stored.reservation
    for share, spent in zip(stored.shares, stored.spent, strict=True):
        if spent is not None:
            ledger.check_booked(share.budget_id, spent + ledger.used_of(share, used))
    stored.settle(tx, "committed", used)
    return _Stored(tx, reservation_id, stored.now).reservation


def releasing(sources: Sources, reservation_id: str) -> Callable[[Transaction], ledger.Reservation]:
    """Return one call of `Backend.release_reservation`, which may be run again if its commit went unheard."""
    has_run = False

    def release(tx: Transaction) -> ledger.Reservation:
        """Give back the amount of a reservation. Raises `ReservationSettled` where it holds nothing any more."""
        nonlocal has_run
        stored = _Stored(tx, reservation_id, sources.now_us())
        if has_run and stored.reservation.state == "released":
            return stored.reservation
        ledger.check_held(stored.reservation, "released")
        stored.settle(tx, "released", None)
        has_run = True
        return _Stored(tx, reservation_id, stored.now).reservation

    return release


def prolong_reservation(tx: Transaction, sources: Sources, reservation_id: str, ttl_us: int) -> ledger.Reservation:
    """Hold a reservation for longer (see `Backend.prolong_reservation`)."""
    stored = _Stored(tx, reservation_id, sources.now_us())
    ledger.check_held(stored.reservation, "prolonged")
    expires = max(stored.expires_us, stored.now + ttl_us)
    tx.run(PROLONG, reservation_id=reservation_id, expires_at=expires)
    for key in stored.keys:
        # Its budget has changed, and those who have a copy of it should know.
        tx.run(BOOK, budget_key=key, now=stored.now, used=0, freed=0)
    return _Stored(tx, reservation_id, stored.now).reservation


# ---------------------------------------------------------------------------------------------------------------------
# What was paid on the paths of a tree: the sums in its entries, derived anew where the ledger has changed.

NOBODY = -1
"""The key of no session: this transaction changes none of the tree's anyway."""


def renew_sums(tx: Transaction, tree_id: int, session_key: int | None = None) -> None:
    """Derive the sums of every path of a tree from the ledger as it is now, and write those that are others.

    Appending writes sums once and for all, since a call is booked together with its entry. They are derived again where
    a later report took the place of a call, and where a tree was copied into a store that knew some of its calls.
    ``session_key`` is the session whose state this transaction changes anyway; a state of another one that is
    known elsewhere has to be read again. O(tree).
    """
    sessions: dict[int, str] = dict(tx.rows(sql.SESSION_IDS, tree_id=tree_id))
    for session_id in sessions.values():
        tx.states.pop(session_id, None)
    if session_key is not None and not tx.is_alone:
        others = sessions.keys() - {session_key}
        tx.lock_sessions(others)
        check_heads(tx, others)
        tx.run(OUTDATE_STATES, tree_id=tree_id, session_key=session_key)
        renew_heads(tx, others)
    own: dict[tuple[int, str], Paid] = {}
    for call in tx.rows(BOOKED_CALLS, tree_id=tree_id):
        booked_on = (call.session_key, call.entry_id or "")
        own[booked_on] = own.get(booked_on, usage.NOTHING_PAID).plus(call.paid)
    forks = {lane: (parent, depth) for lane, parent, depth in tx.rows(FORKS, tree_id=tree_id)}
    sums: dict[tuple[int | None, int], Paid] = {}
    changed = []
    for lane_id, depth, creator, entry_id, stored in tx.rows(PATHS, tree_id=tree_id):
        fork = forks.get(lane_id, (None, -1))
        above = sums.get(fork if depth == fork[1] + 1 else (lane_id, depth - 1), usage.NOTHING_PAID)
        paid = sums[lane_id, depth] = above.plus(own.get((creator, entry_id), usage.NOTHING_PAID))
        if paid != stored:
            columns = dict(zip(usage.PAID_COLUMNS, paid, strict=True))
            changed.append({"tree_id": tree_id, "lane_id": lane_id, "depth": depth, **columns})
    tx.run_many(UPDATE_SUMS, changed)


# ---------------------------------------------------------------------------------------------------------------------
# Paid calls into the ledger, once each, with their entries or alone.

_MANY = 8


def insert_calls(
    tx: Transaction,
    tree_id: int,
    calls: Sequence[ledger.CallRow],
    conflict: Callable[[CallDifference], None] | None = None,
    drawn: Collection[str] = (),
) -> list[ledger.CallRow]:
    """Write calls into the ledger, where they are not there yet; return those that were not.

    One that is there with other numbers raises `CallConflict`, or calls ``conflict``: the ledger keeps the first. Those
    that go by an id of ``drawn``, of entries that are just being made, cannot be there.
    """
    if drawn:
        new = [call for call in calls if call.call_id in drawn]
        tx.insert(sql.INSERT_CALL, [ledger_row(tree_id, call, drawn) for call in new])
        others = [call for call in calls if call.call_id not in drawn]
        return [*new, *insert_calls(tx, tree_id, others, conflict)] if others else new
    if len(calls) >= _MANY and tx.is_alone:
        return _insert_many(tx, tree_id, calls, conflict)
    new = []
    if calls:
        name_calls(tx, calls)
    for call in calls:
        if tx.run(sql.INSERT_CALL, tree_id=tree_id, **call._asdict()):
            new.append(call)
        else:
            _compare(_known(tx, call), call, conflict)
    return new


def ledger_row(tree_id: int, call: ledger.CallRow, drawn: Collection[str]) -> tuple[object, ...]:
    """Return a call as it is stored: without an id of its own where it goes by one that was drawn for its entry."""
    if call.call_id not in drawn:
        return (tree_id, *call)
    scope, provider, _, *rest = call
    return (tree_id, scope, provider, None, *rest)


def name_calls(tx: Transaction, calls: Iterable[ledger.CallRow]) -> None:
    """Have the ledger's unique index know the calls that go by one of these ids, though they are not named by it."""
    tx.run(NAME_CALLS, ids=json.dumps([call.call_id for call in calls]))


def _insert_many(
    tx: Transaction, tree_id: int, calls: Sequence[ledger.CallRow], conflict: Callable[[CallDifference], None] | None
) -> list[ledger.CallRow]:
    """Do the same in two statements: as nobody else writes, the answer to the first is still so at the second."""
    earlier: dict[tuple[str, str, str], ledger.CallRow] = {}
    for scope in {call.scope for call in calls}:
        names = json.dumps([(call.provider, call.call_id) for call in calls if call.scope == scope])
        earlier.update((call.identity, call) for call in tx.rows(FIND_CALLS, scope=scope, ids=names))
    new = []
    for call in calls:
        first = earlier.setdefault(call.identity, call)
        if first is call:
            new.append(call)
        else:
            _compare(first, call, conflict)
    tx.insert(sql.INSERT_CALL, [(tree_id, *call) for call in new])
    return new


def unpriced_calls(tx: Transaction, after: int = -1, *, limit: int = 500) -> list[ledger.UnpricedCall]:
    """Return calls whose cost is unknown (see `Backend.unpriced_calls`)."""
    return list(tx.rows(UNPRICED_CALLS, after_key=after, count=limit))


def price_calls(tx: Transaction, prices: Sequence[ledger.CallPrice]) -> int:
    """Give calls their costs (see `Backend.price_calls`)."""
    numbers = json.dumps([price.number for price in prices])
    payers = {number: (key, tree) for number, key, tree in tx.rows(PAYERS_OF_CALLS, keys=numbers)}
    keys = {key for key, _ in payers.values()}
    tx.lock_sessions(keys)
    filled = change_calls(tx, keys, partial(_set_prices, tx, prices, payers))
    for tree_id in sorted({tree for _, tree in payers.values()} if filled else ()):
        renew_sums(tx, tree_id, NOBODY)
    return filled


def _set_prices(tx: Transaction, prices: Sequence[ledger.CallPrice], payers: Mapping[int, tuple[int, int]]) -> int:
    """Give calls their costs, by number, and their sessions, behind it in ``payers``; return how many."""
    spent: dict[int, tuple[int, int]] = {}
    filled = 0
    for number, cost, source in prices:
        if number not in payers or not tx.run(SET_COST, number=number, cost=cost, price_source=source):
            continue
        key, _ = payers[number]
        calls, total = spent.get(key, (0, 0))
        spent[key] = (calls + 1, total + cost)
        filled += 1
    for key, (calls, total) in sorted(spent.items()):
        tx.run(ADD_COST, session_key=key, calls=calls, cost=total)
    return filled


def take_back(tx: Transaction, calls: Iterable[tuple[ledger.CallRow, Sequence[str]]]) -> list[ledger.CallRow]:
    """Delete the rows that calls take the place of (see `replaced_by`), by the ids they name; return those rows."""
    replaced: list[ledger.CallRow] = []
    for call, names in calls:
        replaced += _delete(tx, ledger.replaced_by(call, names, partial(_call_of, tx, call)))
    return replaced


def take_alone(tx: Transaction, calls: Iterable[ledger.CallRow]) -> Sequence[ledger.CallRow]:
    """Delete the rows of calls that were booked without the entry they belong to; return those rows."""
    distinct = {call.identity: call for call in calls}.values()
    pairs = ((call, find_call(tx, call.scope, ledger.CallId(call.provider, call.call_id))) for call in distinct)
    return _delete(
        tx, [booked for call, booked in pairs if booked is not None and ledger.is_booked_alone(call, booked)]
    )


def _delete(tx: Transaction, calls: Sequence[ledger.CallRow]) -> Sequence[ledger.CallRow]:
    if calls:
        name_calls(tx, calls)
    for call in calls:
        scope, provider, call_id = call.identity
        key = call.session_key
        tx.run(DELETE_CALL, scope=scope, provider=provider, call_id=call_id, session_key=key)
    return calls


def _call_of(tx: Transaction, call: ledger.CallRow, name: str) -> ledger.CallRow | None:
    return find_call(tx, call.scope, ledger.CallId(call.provider, name))


def calls_of_entry(tx: Transaction, session_id: str, entry_id: str) -> list[ledger.CallRow]:
    """Return the calls that a session reported with an entry (see `Backend.calls_of_entry`)."""
    state = read_state(tx, session_id)
    return list(tx.rows(CALLS_OF_ENTRY, session_key=state.key, entry_id=entry_id))


def _compare(booked: ledger.CallRow, call: ledger.CallRow, conflict: Callable[[CallDifference], None] | None) -> None:
    differing = ledger.differences(booked, call)
    if differing and conflict is None:
        raise CallConflict(call.provider, call.call_id, differing)
    if differing and conflict is not None:
        conflict(CallDifference(call.provider, call.call_id, differing))


def distinct_calls(calls: Iterable[ledger.CallRow]) -> list[ledger.CallRow]:
    """Return calls without those that are reported twice. Raises `CallConflict` where one has other numbers then."""
    firsts: dict[tuple[str, str, str], ledger.CallRow] = {}
    for call in calls:
        differing = ledger.differences(firsts.setdefault(call.identity, call), call)
        if differing:
            raise CallConflict(call.provider, call.call_id, differing)
    return list(firsts.values())


def _known(tx: Transaction, call: ledger.CallRow) -> ledger.CallRow:
    row = find_call(tx, call.scope, ledger.CallId(call.provider, call.call_id))
    return call if row is None else row


def find_call(tx: Transaction, scope: str, identity: ledger.CallId) -> ledger.CallRow | None:
    """Return a call of the ledger, or None."""
    return tx.first(FIND_CALL, scope=scope, provider=identity.provider, call_id=identity.call_id)


def find_calls(tx: Transaction, scope: str, identities: Sequence[ledger.CallId]) -> list[ledger.CallRow]:
    """Return those of these calls that are in the ledger, in no order (see `Backend.find_calls`)."""
    if not all(is_storable(name) for name in (scope, *(name for identity in identities for name in identity))):
        return []
    return list(tx.rows(FIND_CALLS, scope=scope, ids=json.dumps(identities)))


def spending(state: SessionState, paid: Paid) -> dict[str, int]:
    """Return what a session has spent with further calls, which came to ``paid``."""
    amounts = (paid.tokens, paid.picodollars, paid.unpriced_calls, paid.unknown_calls)
    return {name: getattr(state, name) + amount for name, amount in zip(sql.SPENDING, amounts, strict=True)}


def paid_by(calls: Iterable[ledger.CallRow]) -> Paid:
    """Return the sum of calls."""
    total = usage.NOTHING_PAID
    for call in calls:
        total = call.paid if total is usage.NOTHING_PAID else total.plus(call.paid)
    return total


def check_spending(tokens: int, picodollars: int) -> None:
    """Raise `InvalidEntry` if the spending of a session would leave the stored range."""
    if max(tokens, picodollars) > usage.MAX_AMOUNT:
        raise usage.SumTooLarge(
            f"usage: what the session spent would exceed {usage.MAX_AMOUNT}; check the reported numbers"
        )


def check_path(sums: Iterable[Sequence[int]]) -> None:
    """Raise `InvalidEntry` if the costs of the path to an entry would leave the stored range."""
    if any(max(amounts) > usage.MAX_AMOUNT for amounts in sums):
        raise usage.SumTooLarge(
            f"usage: what the path cost would exceed {usage.MAX_AMOUNT}; check the reported numbers"
        )


def take_calls_of_deleted(tx: Transaction, state: SessionState) -> set[ledger.CallId]:
    """Give a new session the calls of a deleted one of its id: it was, and is back. O(calls).

    Those that have no entry are returned: the session may bring it.
    """
    ids = json.dumps([state.id])
    earlier = [key for _, key, _ in tx.rows(PAYERS_OF, ids=ids) if key != state.key]
    check_calls(tx, earlier)
    for key in earlier:
        tx.run(TAKE_CALLS, earlier_key=key, session_key=state.key, tree_id=state.tree_id, scope=state.scope)
        tx.run(DROP_PAYER, session_key=key)
    calls = tx.rows(OWN_CALLS, session_key=state.key) if earlier else ()
    if calls:
        payer = payer_row(state)
        tx.insert(sql.INSERT_PAYER, [(state.tree_id, *payer)])
        seal = with_calls(tx, state, calls, (), payer)
        write_state(tx, replace(state, **spending(state, paid_by(calls)), call_seal=seal))
    seal_calls(tx, earlier)
    return {ledger.CallId(call.provider, call.call_id) for call in calls if call.entry_id is None}


def was_deleted(tx: Transaction, session_ids: Collection[str], scope: str) -> dict[str, bool]:
    """Return those of these ids that sessions had which were deleted (see `Backend.was_deleted`)."""
    rows = tx.rows(DELETED, ids=json.dumps(sorted(session_ids)), scope=scope)
    return {name: bool(had_entries) for name, had_entries in rows if _is_noted(tx, deletion_of(name, scope).id)}


def _is_noted(tx: Transaction, name: DocumentName) -> bool:
    """Return whether a deletion was noted in a scope, or in none: in a copy, and before it was noted at all."""
    scope, kind, space, project, own = name
    noted = tx.rows(documents.NAMES_IN_PROJECT, scope=scope, kind=kind, space=space, project=project)
    documents.check_gaps(tx, (*name[:-1], ""), name[:-1])
    return not noted or (own,) in noted


def payer_row(state: SessionState) -> ledger.Payer:
    """Return the session as the ledger names it."""
    return ledger.Payer(state.key, state.id, project=state.cwd or None)


def record_call(
    tx: Transaction, sources: Sources, session_id: str, call: PaidCall, steps: Sequence[PaidCall] = ()
) -> ledger.Recorded:
    """Write a paid call without an entry, and its steps by other models (see `Backend.record_call`)."""
    recorded = _record(tx, sources, session_id, call)
    for step in steps:
        of_step = step.call_id or usage.ledger_name(f"{recorded.call_id}:{step.model}")
        recorded = recorded.plus(_record(tx, sources, session_id, replace(step, call_id=of_step)))
    return recorded


def _record(tx: Transaction, sources: Sources, session_id: str, call: PaidCall) -> ledger.Recorded:
    state = read_state(tx, session_id)
    now = sources.now_us()
    call_id = sources.entry_id() if call.call_id is None else call.call_id
    row = ledger.call_row(call, scope=state.scope, call_id=call_id, session_key=state.key, entry_id=None, at_us=now)
    replaced = take_back(tx, [(row, call.replaces)])
    # What stands for the report that an entry brought belongs to that entry.
    row = row._replace(entry_id=next((earlier.entry_id for earlier in replaced if earlier.entry_id is not None), None))
    new = insert_calls(tx, state.tree_id, [row])
    if not new and not replaced:
        earlier = _known(tx, row)
        return ledger.Recorded(row.provider, call_id, False, earlier.cost, earlier.price_source, state.revision)
    spent = paid_by(new).minus(paid_by(replaced))
    check_spending(state.spent_tokens + spent.tokens, state.spent_cost + spent.picodollars)
    payer = None if state.call_seal else payer_row(state)
    if payer is not None:
        tx.insert(sql.INSERT_PAYER, [(state.tree_id, *payer)])
    booked = {**spending(state, spent), "call_seal": with_calls(tx, state, new, replaced, payer)}
    write_state(tx, replace(state, revision=state.revision + 1, updated_at=now, **booked))
    if replaced:
        renew_sums(tx, state.tree_id, state.key)
    return ledger.Recorded(row.provider, call_id, True, row.cost, row.price_source, state.revision + 1)
