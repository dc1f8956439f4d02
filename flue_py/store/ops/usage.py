"""What was spent: sums over the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date

from flue_py.core.costs import EntryCost
from flue_py.core.ledger import PERIODS, Dimension, LedgerQuery, UsageReport, UsageRow, merged, period_of, usage_report
from flue_py.core.sessions import all_meant, is_storable
from flue_py.errors import SessionNotFound
from flue_py.store.ops.read import locate
from flue_py.store.ops.state import read_state
from flue_py.store.seam import Row, Transaction
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import tasks as tasks_sql

_FIRST_US, _LAST_US = -(2**63), 2**63 - 1


def read_ledger(tx: Transaction, query: LedgerQuery) -> UsageReport:
    """Sum up the ledger (see `Backend.read_ledger`)."""
    names = (*query.matches.values(), query.session_id or "", query.project or "")
    if not all(map(is_storable, names)):
        if query.session_id is not None and not is_storable(query.session_id):
            raise SessionNotFound(query.session_id)
        return usage_report([], query.group_by)
    parameters: dict[str, object] = {
        **query.matches,
        "from_us": _FIRST_US if query.from_us is None else query.from_us,
        "before_us": _LAST_US if query.before_us is None else query.before_us,
    }
    if query.folders is not None:
        parameters.update(zip(("project", "project_from", "project_to"), query.folders, strict=True))
    if query.branch is not None:
        parameters["branch_name"] = query.branch
    if query.session_id is not None and query.on_path:
        place = locate(tx, query.session_id, query.leaf, query.since)
        if place is None:
            return usage_report([], query.group_by, on_path=False)
        parameters.update(place)
    elif query.session_id is not None:
        parameters["keys"] = json.dumps(_payers(tx, query.session_id, query))
    elif query.session_ids is not None:
        named = {"ids": json.dumps([name for name in query.session_ids if is_storable(name)])}
        found = _meant(query.session_ids, tx.rows(ledger_sql.PAYERS_OF, named))
        parameters["keys"] = json.dumps([row[1] for row in found])
    # A database sums up by day; weeks and months are made of those here.
    by_day: tuple[Dimension, ...] = tuple("day" if name in PERIODS else name for name in query.group_by)
    statement = ledger_sql.ledger_sums(
        by_day,
        matches=tuple(query.matches),
        by_keys="keys" in parameters,
        by_project=query.project is not None,
        by_branch=query.branch is not None,
        on_path=query.on_path,
    )
    rows = merged(_usage_row(row, query) for row in tx.rows(statement, parameters))
    return usage_report([row for row in rows if row.calls], query.group_by)


def read_entry_costs(tx: Transaction, session_id: str) -> dict[str, EntryCost]:
    """Return what the ledger has of the entries of a session (see `Backend.read_entry_costs`)."""
    state = read_state(tx, session_id)
    held = {
        "tree_id": state.tree_id,
        "leaf": state.leaf,
        "forked_from_entry": state.forked_from_entry,
        "session_key": state.key,
    }
    return {row[0]: EntryCost(*row[1:]) for row in tx.rows(ledger_sql.ENTRY_COSTS, held)}


def task_ids(tx: Transaction, session_id: str) -> set[str]:
    """Return the session and all its tasks, there or gone."""
    linked = [row[0] for row in tx.rows(tasks_sql.TASK_CLOSURE, {"id": session_id})]
    return {row[0] for row in tx.rows(tasks_sql.GONE_TASKS, {"ids": json.dumps(linked)})}


def _payers(tx: Transaction, session_id: str, query: LedgerQuery) -> list[int]:
    """Return the keys of the sessions that the query is about, living or gone. Raises `SessionNotFound`."""
    ids = {str(session_id)}
    # The tasks of a session whose id another one has now went with it: what links there are is that one's.
    if query.tasks and _is_nobody_else(tx, session_id):
        ids |= task_ids(tx, session_id)
    named = {"ids": json.dumps(sorted(ids))}
    there = _meant((session_id,), tx.rows(ledger_sql.TREES_OF, named))
    paid = _meant((session_id,), tx.rows(ledger_sql.PAYERS_OF, named))
    if not paid and session_id not in {row[0] for row in there}:
        raise SessionNotFound(session_id)
    payers: dict[int, int | None] = {row[1]: row[2] for row in paid}
    if not query.tree:
        return sorted(payers)
    trees = {*(row[2] for row in there), *(tree_id for tree_id in payers.values() if tree_id is not None)}
    found = tx.rows(ledger_sql.PAYERS_OF_TREES, {"keys": json.dumps(sorted(trees))})
    return sorted({*payers, *(row[0] for row in found)})


def _is_nobody_else(tx: Transaction, session_id: str) -> bool:
    """Return whether no session but the one that is meant has the id now."""
    rows = list(tx.rows(ledger_sql.TREES_OF, {"ids": json.dumps([session_id])}))
    return len(_meant((session_id,), rows)) == len(rows)


def _meant(names: Iterable[str], rows: Iterable[Row]) -> list[Row]:
    """Return the rows (session id, session key, ...) of sessions that are meant."""
    is_meant = all_meant(names)
    return [row for row in rows if is_meant(row[0], row[1])]


def _usage_row(row: Row, query: LedgerQuery) -> UsageRow:
    group: dict[str, str | date | None] = {
        name: _group_value(name, value) for name, value in zip(query.group_by, row, strict=False)
    }
    numbers = [int(number or 0) for number in row[len(query.group_by) :]]
    calls, unpriced, unknown, reported, *halves = numbers
    sums = (high << 32 | low for high, low in _pairs(halves))
    return UsageRow(group, *(calls, unpriced, *sums, unknown, reported))


def _pairs(halves: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return sums of high halves and low halves; those of the low ones may have outgrown their half."""
    for high, low in zip(halves[::2], halves[1::2], strict=True):
        yield high + (low >> 32), low & 0xFFFFFFFF


def _group_value(name: Dimension, value: int | str | None) -> str | date | None:
    if name in ("day", "week", "month"):
        return period_of(int(value or 0), name)
    return None if value is None else str(value)
