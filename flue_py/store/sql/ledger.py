"""The statements of the ledger: rows in, and sums out."""

from __future__ import annotations

from functools import lru_cache
from typing import TypedDict

from flue_py.core.costs import EntryCost
from flue_py.core.ledger import DAY_US, TOKEN_COLUMNS, Dimension, UnpricedCall
from flue_py.core.rows import CallRow
from flue_py.core.usage import PAID_COLUMNS, Paid
from flue_py.core.usage_shapes import PARTS
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.seam import Nothing, Row, Statement
from flue_py.store.sql.dialects import FIRST_OF_PAIR, IN_IDS, IN_KEYS, PAIRS, PAIRS_OF_IDS, SECOND_OF_PAIR, statement
from flue_py.store.sql.parts import PAID, WITH_HELD, call_columns
from flue_py.store.sql.takes import AfterCount, Held, Ids, Keys, ScopeProviderCall, Session, SessionScope, Tree

SessionScopeProviderCall = TypedDict(
    "SessionScopeProviderCall", {"session_key": int, "scope": str, "provider": str, "call_id": str}
)
SessionEntry = TypedDict("SessionEntry", {"session_key": int, "entry_id": str})
IdsScope = TypedDict("IdsScope", {"ids": str, "scope": str})
UpdateSums = TypedDict(
    "UpdateSums",
    {
        "tree_id": int, "lane_id": int, "depth": int,
        "paid_calls": int, "unpriced_calls": int, "unknown_calls": int, "paid_tokens": int, "paid_cost": int,
    },
)  # fmt: skip
SetCost = TypedDict("SetCost", {"number": int, "cost": int, "price_source": str})
Repriced = TypedDict("Repriced", {"session_key": int, "calls": int, "cost": int})
TakeCalls = TypedDict("TakeCalls", {"earlier_key": int, "session_key": int, "tree_id": int, "scope": str})
TreeSession = TypedDict("TreeSession", {"tree_id": int, "session_key": int})
LedgerSums = TypedDict(
    "LedgerSums",
    {
        "scope": str, "provider": str, "model": str, "purpose": str, "outcome": str, "agent": str,
        "from_us": int, "before_us": int, "project": str, "project_from": str, "project_to": str, "branch_name": str,
        "scope_from": str, "scope_to": str,
        "keys": str, "tree_id": int, "lane_id": int, "depth": int, "low_depth": int,
    },
)  # fmt: skip


def _path(row: Row) -> tuple[int, int, int, str, Paid]:
    lane_id, depth, session_key, entry_id, *paid = row
    return lane_id, depth, session_key, entry_id, Paid._make(paid)


def _unpriced(row: Row) -> UnpricedCall:
    number, session_id, *call = row
    return UnpricedCall(number, session_id, CallRow._make(call))


def _entry_cost(row: Row) -> tuple[str, EntryCost]:
    entry_id, *sums = row
    return entry_id, EntryCost(*sums)


_CALL = call_columns("g")

# A call is found by its id; or, where it has none, by the entry that it goes by, whose creator paid it.
FIND_CALL = statement(ScopeProviderCall, CallRow)(
    f"SELECT {_CALL} FROM ledger g WHERE g.scope = :scope AND g.provider = :provider AND g.call_id = :call_id"
    f" UNION ALL SELECT {_CALL} FROM ledger g WHERE g.session_key IN"
    "  (SELECT e.session_key FROM entries e WHERE e.id = :call_id)"
    " AND g.entry_id = :call_id AND g.call_id IS NULL AND g.scope = :scope AND g.provider = :provider"
)
# Whoever brings ids of calls has those named first which go by such an id: the unique index then has all that it needs.
NAME_CALLS = statement(Ids, Nothing)(
    "UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key IN"
    f" (SELECT e.session_key FROM entries e WHERE e.id {IN_IDS}) AND entry_id {IN_IDS}"
)
# When a session goes, what it paid is no longer found by its entries.
NAME_CALLS_OF_SESSIONS = statement(Keys, Nothing)(
    f"UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key {IN_KEYS}"
)
NAME_CALLS_OF_TREE = statement(Tree, Nothing)(
    "UPDATE ledger SET call_id = entry_id WHERE call_id IS NULL AND session_key IN"
    " (SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id)"
)

DELETE_CALL = statement(SessionScopeProviderCall, Nothing)(
    "DELETE FROM ledger WHERE scope = :scope AND provider = :provider AND call_id = :call_id"
    " AND session_key = :session_key"
)
CALLS_OF_ENTRY = statement(SessionEntry, CallRow)(
    f"SELECT {_CALL} FROM ledger g"
    " WHERE g.session_key = :session_key AND g.entry_id = :entry_id"
    " ORDER BY g.provider, COALESCE(g.call_id, g.entry_id)"
)
FIND_CALLS = statement(IdsScope, CallRow)(
    f"SELECT {_CALL} FROM {PAIRS_OF_IDS} ledger g ON g.scope = :scope AND g.provider = {FIRST_OF_PAIR}"
    f" AND g.call_id = {SECOND_OF_PAIR}"
    f" UNION ALL SELECT {_CALL} FROM ledger g WHERE g.session_key IN"
    f"  (SELECT e.session_key FROM {PAIRS_OF_IDS} entries e ON e.id = {SECOND_OF_PAIR})"
    " AND g.call_id IS NULL AND g.scope = :scope"
    f" AND (g.provider, g.entry_id) IN (SELECT {FIRST_OF_PAIR}, {SECOND_OF_PAIR} FROM {PAIRS})"
)

REFUSE_KNOWN_CALLS = (
    " ON CONFLICT (scope, provider, call_id) WHERE call_id IS NOT NULL"
    " DO UPDATE SET total_tokens = ledger.total_tokens / 0"
)
"""What PostgreSQL does with a call that is there, in one statement with all else: fail, as the sums count it as new."""

# The same where a call goes by an entry of one of the ids, the parameter of this number, and is in no unique index.
REFUSE_UNNAMED_CALLS = (
    " WHERE 1 / (CASE WHEN EXISTS (SELECT 1 FROM entries e JOIN ledger g ON g.session_key = e.session_key"
    " AND g.entry_id = e.id AND g.call_id IS NULL WHERE e.id = ANY (${}::text[])) THEN 0 ELSE 1 END) = 1"
)

SUMMED = (*(f"g.{name}" for name in TOKEN_COLUMNS), all_tokens(), "COALESCE(g.cost, 0)")

# What the sums of a tree's paths are derived from, where calls came into the ledger, or left it, after their entries.
PATHS = statement(Tree, _path)(
    f"SELECT e.lane_id, e.depth, e.session_key, e.id, {PAID} FROM entries e WHERE e.tree_id = :tree_id"
    " ORDER BY e.depth, e.lane_id"
)
FORKS = statement(Tree, tuple[int, int | None, int])(
    "SELECT l.lane_id, l.parent_lane, l.fork_depth FROM lanes l WHERE l.tree_id = :tree_id"
)
BOOKED_CALLS = statement(Tree, CallRow)(
    f"SELECT {_CALL} FROM ledger_sessions n"
    " JOIN ledger g ON g.session_key = n.session_key"
    " WHERE n.tree_id = :tree_id AND g.tree_id = :tree_id AND g.entry_id IS NOT NULL"
)
UPDATE_SUMS = statement(UpdateSums, Nothing)(
    f"UPDATE entries SET {', '.join(f'{name} = :{name}' for name in PAID_COLUMNS)}"
    " WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)
OUTDATE_STATES = statement(TreeSession, Nothing)(
    "UPDATE sessions SET revision = revision + 1 WHERE tree_id = :tree_id AND session_key <> :session_key"
)

# The calls without a cost, and their costs once they are known. What is there is never overwritten.
UNPRICED_CALLS = statement(AfterCount, _unpriced)(
    f"SELECT g.number, n.session_id, {_CALL} FROM ledger g JOIN ledger_sessions n ON n.session_key = g.session_key"
    " WHERE g.cost IS NULL AND g.number > :after_key ORDER BY g.number LIMIT :count"
)
PAYERS_OF_CALLS = statement(Keys, tuple[int, int, int])(
    f"SELECT g.number, g.session_key, g.tree_id FROM ledger g WHERE g.number {IN_KEYS} AND g.cost IS NULL"
)
SET_COST = statement(SetCost, Nothing)(
    "UPDATE ledger SET cost = :cost, price_source = :price_source WHERE number = :number AND cost IS NULL"
)
ADD_COST = statement(Repriced, Nothing)(
    "UPDATE sessions SET spent_cost = spent_cost + :cost, unpriced_calls = unpriced_calls - :calls,"
    " revision = revision + 1 WHERE session_key = :session_key"
)

PAYERS_OF = statement(Ids, tuple[str, int, int | None])(
    f"SELECT n.session_id, n.session_key, n.tree_id FROM ledger_sessions n WHERE n.session_id {IN_IDS}"
)
# A session that paid nothing has its name here only because it was imported; one that paid has its scope in its calls.
DELETED = statement(IdsScope, tuple[str, int])(
    "SELECT n.session_id, MAX(CASE WHEN g.number IS NULL OR g.entry_id IS NOT NULL THEN 1 ELSE 0 END)"
    " FROM ledger_sessions n LEFT JOIN ledger g ON g.session_key = n.session_key"
    f" WHERE n.session_id {IN_IDS} AND (g.number IS NULL OR g.scope = :scope)"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = n.session_id) GROUP BY n.session_id"
)
# What the other scope has booked already stays where it is.
MOVE_CALLS = statement(SessionScope, Nothing)(
    "UPDATE ledger SET scope = :scope WHERE session_key = :session_key AND NOT EXISTS (SELECT 1 FROM ledger o"
    " WHERE o.scope = :scope AND o.provider = ledger.provider AND o.call_id = ledger.call_id)"
)
# What a fork has kept the entry of stays with who paid for it.
TAKE_CALLS = statement(TakeCalls, Nothing)(
    "UPDATE ledger SET session_key = :session_key, tree_id = :tree_id"
    " WHERE session_key = :earlier_key AND scope = :scope AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = ledger.tree_id AND e.id = ledger.entry_id)"
)
OWN_CALLS = statement(Session, CallRow)(f"SELECT {_CALL} FROM ledger g WHERE g.session_key = :session_key")
TREES_OF = statement(Ids, tuple[str, int, int])(
    f"SELECT s.id, s.session_key, s.tree_id FROM sessions s WHERE s.id {IN_IDS}"
)
PAYERS_OF_TREES = statement(Keys, tuple[int])(f"SELECT n.session_key FROM ledger_sessions n WHERE n.tree_id {IN_KEYS}")

# A call is booked on the entry that its payer added. An id may be used again once its entry was deleted, with the
# session that had added it: what another session adds under it later is another entry.
# A call is found by who paid for it, its entry by its id. CROSS JOIN keeps SQLite to this order, in which there are
# indexes: any other looks through all calls of a tree for each of its entries.
ENTRY_COSTS = statement(Held, _entry_cost)(
    f"{WITH_HELD}, reach(lane_id, high) AS (SELECT h.lane_id, MAX(h.depth) FROM held h GROUP BY h.lane_id)"
    " SELECT g.entry_id, COUNT(*), COUNT(*) - COUNT(g.cost), CAST(COALESCE(SUM(g.cost), 0) AS BIGINT)"
    " FROM ledger_sessions n CROSS JOIN ledger g CROSS JOIN entries e CROSS JOIN reach r"
    " WHERE n.tree_id = :tree_id AND g.session_key = n.session_key AND g.tree_id = :tree_id"
    " AND e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key"
    " AND r.lane_id = e.lane_id AND r.high >= e.depth"
    " AND NOT EXISTS (SELECT 1 FROM marks m"
    "  WHERE m.session_key = :session_key AND m.entry_id = g.entry_id AND m.kind = 'retracted')"
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
    "   JOIN lanes l ON l.tree_id = a.tree_id AND l.lane_id = a.parent_lane WHERE a.parent_lane IS NOT NULL) "
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
# Whole days since 1970, rounded down before it, too.
_DAY = f"(g.at - ((g.at % {DAY_US}) + {DAY_US}) % {DAY_US}) / {DAY_US}"
_BY_KEYS = f"g.session_key {IN_KEYS}"
_GROUPS = {"session": "n.session_id", "project": "n.project", "branch": _BRANCH, "day": _DAY}


@lru_cache(maxsize=256)
def ledger_sums(
    group_by: tuple[Dimension, ...],
    *,
    matches: tuple[str, ...] = (),
    by_keys: bool = False,
    by_scopes: bool = False,
    by_project: bool = False,
    by_branch: bool = False,
    on_path: bool = False,
) -> Statement[..., tuple[Row, list[int]]]:
    """Return the statement that sums up the ledger's rows by these dimensions, where these columns have their values.

    A row has the values of the dimensions, and then numbers: calls, those without a price, those of unknown usage, what
    was reported, and each of `SUMMED` as two sums, of the high and the low halves of its numbers: one could leave 64
    bits.
    """
    groups = [_GROUPS.get(name, f"g.{name}") for name in group_by]
    sums = [f"CAST(SUM({amount} >> 32) AS BIGINT), CAST(SUM({amount} & 4294967295) AS BIGINT)" for amount in _halved()]
    counts = [
        "COUNT(*)",
        "CAST(SUM(CASE WHEN g.cost IS NULL THEN 1 ELSE 0 END) AS BIGINT)",
        "CAST(SUM(g.unknown) AS BIGINT)",
        # What some call reported: there is no sum of bits on SQLite.
        " + ".join(f"MAX(g.reported & {1 << place})" for place in range(len(PARTS))),
    ]
    needs_entry = by_branch or on_path or "branch" in group_by
    needs_payer = by_project or not {"session", "project"}.isdisjoint(group_by)
    joins = " JOIN ledger_sessions n ON n.session_key = g.session_key" if needs_payer else ""
    if needs_entry:
        joins += _ON_PATH if on_path else _WITH_ENTRY
    conditions = [f"g.{name} = :{name}" for name in matches]
    conditions += ["g.at >= :from_us", "g.at < :before_us"]
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
    where = " AND ".join([*conditions, _BY_KEYS] if by_keys else conditions)

    def read(row: Row) -> tuple[Row, list[int]]:
        return row[: len(groups)], [int(number or 0) for number in row[len(groups) :]]

    return statement(LedgerSums, read)(
        f"{start}SELECT {', '.join([*groups, *counts, *sums])} FROM ledger g{joins} WHERE {where}{grouped}"
    )


def _halved() -> list[str]:
    return [f"({amount})" for amount in SUMMED]


DROP_PAYER = statement(Session, Nothing)(
    "DELETE FROM ledger_sessions WHERE session_key = :session_key AND NOT EXISTS"
    " (SELECT 1 FROM ledger g WHERE g.session_key = :session_key)"
)
