"""What was spent: sums over the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TypeVar

from flue_py.core.costs import EntryCost
from flue_py.core.ledger import PERIODS, Dimension, LedgerQuery, UsageReport, UsageRow, merged, period_of, usage_report
from flue_py.core.sessions import above_prefix, all_meant, is_storable
from flue_py.errors import SessionNotFound
from flue_py.store.ops.read import locate
from flue_py.store.ops.state import held_by, read_state
from flue_py.store.seam import Row, Transaction
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import tasks as tasks_sql

Tree = TypeVar("Tree", int, int | None)

_FIRST_US, _LAST_US = -(2**63), 2**63 - 1


def read_ledger(tx: Transaction, query: LedgerQuery) -> UsageReport:
    """Sum up the ledger (see `Backend.read_ledger`)."""
    names = (*query.matches.values(), query.session_id or "", query.project or "", query.scope_prefix or "")
    if not all(map(is_storable, names)):
        if query.session_id is not None and not is_storable(query.session_id):
            raise SessionNotFound(query.session_id)
        return usage_report([], query.group_by)
    parameters: dict[str, object] = {
        **query.matches,
        "from_us": _FIRST_US if query.from_us is None else query.from_us,
        "before_us": _LAST_US if query.before_us is None else query.before_us,
    }
    if query.scope_prefix:
        parameters |= {"scope_from": query.scope_prefix, "scope_to": above_prefix(query.scope_prefix)}
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
        named = json.dumps([name for name in query.session_ids if is_storable(name)])
        found = _meant(query.session_ids, tx.rows(ledger_sql.PAYERS_OF, ids=named))
        parameters["keys"] = json.dumps([key for _, key, _ in found])
    # A database sums up by day; weeks and months are made of those here.
    by_day: tuple[Dimension, ...] = tuple("day" if name in PERIODS else name for name in query.group_by)
    statement = ledger_sql.ledger_sums(
        by_day,
        matches=tuple(query.matches),
        by_keys="keys" in parameters,
        by_scopes=bool(query.scope_prefix),
        by_project=query.project is not None,
        by_branch=query.branch is not None,
        on_path=query.on_path,
    )
    rows = merged(_usage_row(*row, query) for row in tx.rows(statement, **parameters))
    return usage_report([row for row in rows if row.calls], query.group_by)


def read_entry_costs(tx: Transaction, session_id: str) -> dict[str, EntryCost]:
    """Return what the ledger has of the entries of a session (see `Backend.read_entry_costs`)."""
    state = read_state(tx, session_id)
    return dict(tx.rows(ledger_sql.ENTRY_COSTS, **held_by(state)))


def task_ids(tx: Transaction, session_id: str) -> set[str]:
    """Return the session and all its tasks, there or gone."""
    linked = json.dumps([task_id for task_id, *_ in tx.rows(tasks_sql.TASK_CLOSURE, id=session_id, scope=None)])
    return {task_id for (task_id,) in tx.rows(tasks_sql.GONE_TASKS, ids=linked)}


def _payers(tx: Transaction, session_id: str, query: LedgerQuery) -> list[int]:
    """Return the keys of the sessions that the query is about, living or gone. Raises `SessionNotFound`."""
    ids = {str(session_id)}
    # The tasks of a session whose id another one has now went with it: what links there are is that one's.
    if query.tasks and _is_nobody_else(tx, session_id):
        ids |= task_ids(tx, session_id)
    named = json.dumps(sorted(ids))
    there = _meant((session_id,), tx.rows(ledger_sql.TREES_OF, ids=named))
    paid = _meant((session_id,), tx.rows(ledger_sql.PAYERS_OF, ids=named))
    if not paid and session_id not in {living for living, *_ in there}:
        raise SessionNotFound(session_id)
    payers = {key: tree_id for _, key, tree_id in paid}
    if not query.tree:
        return sorted(payers)
    trees = {*(tree_id for _, _, tree_id in there), *(tree_id for tree_id in payers.values() if tree_id is not None)}
    found = tx.rows(ledger_sql.PAYERS_OF_TREES, keys=json.dumps(sorted(trees)))
    return sorted({*payers, *(key for (key,) in found)})


def _is_nobody_else(tx: Transaction, session_id: str) -> bool:
    """Return whether no session but the one that is meant has the id now."""
    rows = list(tx.rows(ledger_sql.TREES_OF, ids=json.dumps([session_id])))
    return len(_meant((session_id,), rows)) == len(rows)


def _meant(names: Iterable[str], rows: Iterable[tuple[str, int, Tree]]) -> list[tuple[str, int, Tree]]:
    """Return the rows (session id, session key, ...) of sessions that are meant."""
    is_meant = all_meant(names)
    return [(session_id, key, tree) for session_id, key, tree in rows if is_meant(session_id, key)]


def _usage_row(values: Row, numbers: list[int], query: LedgerQuery) -> UsageRow:
    group: dict[str, str | date | None] = {
        name: _group_value(name, value) for name, value in zip(query.group_by, values, strict=True)
    }
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
