"""Deleting a session tree: exactly what nobody else sees, in one transaction (rows E29, promise 8)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from flue_py.core.lanes import Hold, Lane, LaneFate, plan_lane_deletion
from flue_py.core.sessions import Deletion, is_storable
from flue_py.store import queries
from flue_py.store.transaction import Transaction


def delete_tree(tx: Transaction, session_id: str, scope: str | None, *, dry_run: bool) -> Deletion:
    """Delete a session, its task closure, and what only they saw (see `Backend.delete_tree`)."""
    if not is_storable(session_id):
        return Deletion(())
    found: dict[int, str] = {}
    missing: list[str] = []
    for child_id, session_key, child_scope in tx.rows(queries.TASK_CLOSURE, {"id": session_id}):
        if session_key is None:
            if child_id != session_id:
                missing.append(child_id)
        elif child_id == session_id and scope is not None and child_scope != scope:
            return Deletion(())
        else:
            found[session_key] = child_id
    if not found:
        return Deletion((), tuple(missing))
    keys = json.dumps(list(found))
    fates = _plan(tx, keys)
    deleted = _count(tx, fates) if dry_run else _carry_out(tx, fates, keys)
    kept = sum(fate.keep_depth - fate.lane.fork_depth for fate in fates)
    return Deletion(tuple(found.values()), tuple(missing), deleted, kept)


def _plan(tx: Transaction, keys: str) -> list[LaneFate]:
    doomed = [Lane(*row) for row in tx.rows(queries.DOOMED_LANES, {"keys": keys})]
    children = [Lane(*row) for row in tx.rows(queries.CHILD_LANES, {"keys": keys})]
    holds = [Hold(*row) for row in tx.rows(queries.LEAF_HOLDS, {"keys": keys})]
    holds += [Hold(*row) for row in tx.rows(queries.FORK_HOLDS, {"keys": keys})]
    return plan_lane_deletion(doomed, children, holds)


def _tail(fate: LaneFate) -> dict[str, object]:
    return {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id, "low": fate.keep_depth}


def _count(tx: Transaction, fates: Iterable[LaneFate]) -> int:
    total = 0
    for fate in fates:
        row = tx.first(queries.COUNT_TAIL, _tail(fate))
        total += 0 if row is None else int(row[0])
    return total


def _carry_out(tx: Transaction, fates: list[LaneFate], keys: str) -> int:
    # Lanes change hands here, of which other sessions' states tell.
    tx.states.clear()
    deleted = 0
    blobs: set[tuple[int, bytes]] = set()
    for fate in fates:
        rows = tx.rows(queries.DELETE_TAIL, _tail(fate))
        deleted += len(rows)
        blobs.update((fate.lane.tree_id, bytes(row[0])) for row in rows if row[0] is not None)
    tx.run_many(
        queries.HAND_OVER_LANE,
        [
            {"owner_key": fate.heir, "tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
            for fate in fates
            if fate.heir is not None
        ],
    )
    tx.run_many(
        queries.DELETE_LANE,
        [{"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id} for fate in fates if fate.heir is None],
    )
    tx.run_many(queries.DELETE_UNUSED_BLOB, [{"tree_id": tree_id, "sha256": blob} for tree_id, blob in blobs])
    # Marks, moves, requests and links of the sessions go with their rows (ON DELETE CASCADE).
    tx.run(queries.DELETE_SESSIONS, {"keys": keys})
    return deleted
