"""Budgets out of a store and into another, with what is and was reserved in them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from flue_py.core.budget_copies import BudgetCopy, BudgetRow, BudgetState, ReservationRow, state_of_budget
from flue_py.store.ops.budgets import lock_budgets
from flue_py.store.seam import Transaction
from flue_py.store.sql import budgets as budgets_sql


def list_whole_budgets(tx: Transaction, after: int, limit: int) -> list[BudgetCopy]:
    """Return a page of budgets (see `Backend.list_whole_budgets`). Two budgets_sql."""
    budgets = tx.rows(budgets_sql.WHOLE_BUDGETS, {"after_key": after, "count": limit})
    reserved = defaultdict(list)
    if budgets:
        keys = json.dumps([row[0] for row in budgets])
        for budget_key, *columns in tx.rows(budgets_sql.RESERVATIONS_OF, {"keys": keys}):
            reserved[budget_key].append(ReservationRow._make(columns))
    return [BudgetCopy(row[0], BudgetRow._make(row[1:]), reserved[row[0]]) for row in budgets]


def write_budgets(tx: Transaction, copies: Sequence[BudgetCopy]) -> list[BudgetState]:
    """Write budgets of another store (see `Backend.write_budgets`)."""
    wanted = {"ids": json.dumps([copy.budget.session_id for copy in copies if copy.budget.session_id is not None])}
    # Locked in the order of deletion, sessions before budgets, so that neither waits for the other.
    tx.lock_sessions([row[0] for row in tx.rows(budgets_sql.SESSIONS_BY_ID, wanted)])
    scopes = {row[1]: row[2] for row in tx.rows(budgets_sql.SESSIONS_BY_ID, wanted)}
    there = {"ids": json.dumps([copy.budget.id for copy in copies])}
    lock_budgets(tx, [row[0] for row in tx.rows(budgets_sql.BUDGETS_BY_ID, there)])
    by_id = {row[1]: (row[0], BudgetRow._make(row[1:])) for row in tx.rows(budgets_sql.BUDGETS_BY_ID, there)}
    return [_write(tx, copy, by_id.get(copy.budget.id), scopes) for copy in copies]


def _write(
    tx: Transaction, copy: BudgetCopy, same_id: tuple[int, BudgetRow] | None, scopes: dict[str, str]
) -> BudgetState:
    budget = copy.budget
    found = tx.first(
        budgets_sql.BUDGET_OF_SCOPE if budget.session_id is None else budgets_sql.BUDGET_OF_SESSION, budget._asdict()
    )
    same_target = None if found is None else tx.first(budgets_sql.WHOLE_BUDGET, {"budget_key": found[0]})
    state = state_of_budget(
        budget,
        same_id=None if same_id is None else same_id[1],
        same_target=None if same_target is None else BudgetRow._make(same_target[1:]),
        session_scope=None if budget.session_id is None else scopes.get(budget.session_id),
    )
    if state != "written":
        return state
    if same_id is None:
        key = tx.new_key()
        tx.insert(budgets_sql.INSERT_BUDGET, [(key, *budget)])
    else:
        key = same_id[0]
        tx.run(budgets_sql.REPLACE_BUDGET, {**budget._asdict(), "budget_key": key})
        tx.run(budgets_sql.DELETE_RESERVATIONS, {"budget_key": key})
    if copy.reservations:
        tx.insert(budgets_sql.INSERT_WHOLE_RESERVATION, [(key, *row) for row in copy.reservations])
    return state
