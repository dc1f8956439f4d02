"""Budgets out of a store and into another, with what is and was reserved in them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from flue_py.core.budget_copies import BudgetCopy, BudgetRow, BudgetState, state_of_budget
from flue_py.store.ops.budgets import key_of_target, lock_budgets
from flue_py.store.seam import Transaction
from flue_py.store.sql import budgets as budgets_sql
from flue_py.store.sql.inserts import INSERT_BUDGET, INSERT_RESERVATION


def list_whole_budgets(tx: Transaction, after: int, limit: int) -> list[BudgetCopy]:
    """Return a page of budgets (see `Backend.list_whole_budgets`). Two budgets_sql."""
    budgets = tx.rows(budgets_sql.WHOLE_BUDGETS, after_key=after, count=limit)
    reserved = defaultdict(list)
    if budgets:
        keys = json.dumps([key for key, _ in budgets])
        for key, reservation in tx.rows(budgets_sql.RESERVATIONS_OF, keys=keys):
            reserved[key].append(reservation)
    return [BudgetCopy(key, budget, reserved[key]) for key, budget in budgets]


def write_budgets(tx: Transaction, copies: Sequence[BudgetCopy]) -> list[BudgetState]:
    """Write budgets of another store (see `Backend.write_budgets`)."""
    wanted = json.dumps([copy.budget.session_id for copy in copies if copy.budget.session_id is not None])
    # Locked in the order of deletion, sessions before budgets, so that neither waits for the other.
    tx.lock_sessions([key for key, *_ in tx.rows(budgets_sql.SESSIONS_BY_ID, ids=wanted)])
    scopes = {session_id: scope for _, session_id, scope in tx.rows(budgets_sql.SESSIONS_BY_ID, ids=wanted)}
    there = json.dumps([copy.budget.id for copy in copies])
    lock_budgets(tx, [key for key, _ in tx.rows(budgets_sql.BUDGETS_BY_ID, ids=there)])
    by_id = {budget.id: (key, budget) for key, budget in tx.rows(budgets_sql.BUDGETS_BY_ID, ids=there)}
    return [_write(tx, copy, by_id.get(copy.budget.id), scopes) for copy in copies]


def _write(
    tx: Transaction, copy: BudgetCopy, same_id: tuple[int, BudgetRow] | None, scopes: dict[str, str]
) -> BudgetState:
    budget = copy.budget
    found = key_of_target(tx, budget.session_id, budget.covers, budget.scope, budget.unit)
    same_target = None if found is None else tx.first(budgets_sql.WHOLE_BUDGET, budget_key=found)
    state = state_of_budget(
        budget,
        same_id=None if same_id is None else same_id[1],
        same_target=None if same_target is None else same_target[1],
        session_scope=None if budget.session_id is None else scopes.get(budget.session_id),
    )
    if state != "written":
        return state
    if same_id is None:
        key = tx.new_key()
        tx.insert(INSERT_BUDGET, [(key, *budget)])
    else:
        key = same_id[0]
        tx.run(budgets_sql.REPLACE_BUDGET, **budget._asdict())
        tx.run(budgets_sql.DELETE_RESERVATIONS, budget_key=key)
    if copy.reservations:
        tx.insert(INSERT_RESERVATION, [(key, *row) for row in copy.reservations])
    return state
