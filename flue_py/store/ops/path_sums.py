"""What was paid on the paths of a tree: the sums in its entries, derived anew where the ledger has changed."""

from __future__ import annotations

from flue_py.core.usage import NOTHING_PAID, PAID_COLUMNS, Paid
from flue_py.store.seam import Transaction
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import sessions as sessions_sql

NOBODY = -1
"""The key of no session: what this transaction changes anyway is none of the tree's."""


def renew_sums(tx: Transaction, tree_id: int, session_key: int | None = None) -> None:
    """Derive the sums of every path of a tree from the ledger as it is now, and write those that are others.

    Appending writes sums once and for all, since a call is booked together with its entry. They are derived again where
    a later report took the place of a call, and where a tree was copied into a store that knew some of its calls.
    ``session_key`` is the session whose state this transaction changes anyway; a state of another one that is
    known elsewhere has to be read again. O(tree).
    """
    sessions: dict[int, str] = dict(tx.rows(sessions_sql.SESSION_IDS, tree_id=tree_id))
    for session_id in sessions.values():
        tx.states.pop(session_id, None)
    if session_key is not None and not tx.is_alone:
        tx.run(ledger_sql.OUTDATE_STATES, tree_id=tree_id, session_key=session_key)
    own: dict[tuple[int, str], Paid] = {}
    for call in tx.rows(ledger_sql.BOOKED_CALLS, tree_id=tree_id):
        booked_on = (call.session_key, call.entry_id or "")
        own[booked_on] = own.get(booked_on, NOTHING_PAID).plus(call.paid)
    forks = {lane: (parent, depth) for lane, parent, depth in tx.rows(ledger_sql.FORKS, tree_id=tree_id)}
    sums: dict[tuple[int | None, int], Paid] = {}
    changed = []
    for lane_id, depth, creator, entry_id, stored in tx.rows(ledger_sql.PATHS, tree_id=tree_id):
        fork = forks.get(lane_id, (None, -1))
        above = sums.get(fork if depth == fork[1] + 1 else (lane_id, depth - 1), NOTHING_PAID)
        paid = sums[lane_id, depth] = above.plus(own.get((creator, entry_id), NOTHING_PAID))
        if paid != stored:
            columns = dict(zip(PAID_COLUMNS, paid, strict=True))
            changed.append(ledger_sql.UPDATE_SUMS.of(tree_id=tree_id, lane_id=lane_id, depth=depth, **columns))
    tx.run_many(ledger_sql.UPDATE_SUMS, changed)
