"""Deleting a session tree: exactly what nobody else sees, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flue_py.core.documents import deletion_of
from flue_py.core.lanes import LaneFate, plan_lane_deletion
from flue_py.core.ledger import owners_of_tasks
from flue_py.core.sessions import NOTHING_SEEN, STORED, Deletion, Expected, ScopeContents, is_meant, is_storable
from flue_py.store.ops.budgets import delete_scope_budgets, delete_session_budgets
from flue_py.store.ops.marks import leave_marks
from flue_py.store.ops.state import read_state
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import delete as delete_sql
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import tasks as tasks_sql
from flue_py.store.sql.inserts import PUT_DOCUMENT
from flue_py.store.sql.takes import TreeLane


def delete_tree(
    tx: Transaction,
    sources: Sources,
    session_id: str,
    scope: str | None,
    expected: Expected = STORED,
    *,
    dry_run: bool,
) -> Deletion:
    """Delete a session, its task closure, and what only they saw (see `Backend.delete_tree`)."""
    if not is_storable(session_id):
        return Deletion(())
    doomed = _Doomed({}, [], set())
    while (found := _closure(tx, session_id, scope)) is not None:
        is_held = dry_run or tx.is_alone or found.sessions.keys() <= doomed.sessions.keys()
        doomed = found
        if is_held:
            break
        # A task may have been started while we waited: look again, until all there is is locked.
        tx.lock_sessions(found.sessions)
    if found is None or not doomed.sessions:
        return Deletion((), () if found is None else tuple(doomed.missing))
    if expected not in (STORED, NOTHING_SEEN):
        # Only now is it certain that nobody adds anything any more.
        read_state(tx, session_id).require(expected)
    keys = json.dumps(list(doomed.sessions))
    links = tuple(tx.rows(tasks_sql.LINKS_OF_SESSIONS, keys=keys))
    fates = _plan(tx, keys) if dry_run else _plan_locked(tx, keys)
    tails = _tails(fates)
    content = tx.rows(delete_sql.TAILS_CONTENT if dry_run else delete_sql.DELETE_TAILS, tails=tails)
    deleted = sum(count for _, _, count in content)
    if not dry_run:
        delete_session_budgets(tx, doomed.sessions.values())
        tx.run(delete_sql.NOTE_IMPORTED, keys=keys)
        notes = [deletion_of(*place).row(sources.now_us()) for place in tx.rows(delete_sql.IMPORTED_AMONG, keys=keys)]
        if notes:
            tx.insert(PUT_DOCUMENT, notes)
        _note_tasks(tx, session_id, [link for link in links if link[1] not in doomed.others])
        leave_marks(tx, keys)
        blobs = {(tree_id, bytes(blob)) for tree_id, blob, _ in content if blob is not None}
        blobs.update(
            (tree_id, bytes(blob)) for tree_id, blob in tx.rows(delete_sql.DELETE_TAIL_ATTACHMENTS, tails=tails)
        )
        _carry_out(tx, fates, blobs, keys)
    kept = sum(fate.keep_depth - fate.lane.fork_depth for fate in fates)
    return Deletion(tuple(doomed.sessions.values()), tuple(doomed.missing), deleted, kept, links)


def empty_scope(tx: Transaction, scope: str, *, dry_run: bool) -> ScopeContents:
    """Delete what a scope has beside sessions (see `Backend.empty_scope`)."""
    (found,) = tx.rows(delete_sql.SCOPE_CONTENTS, scope=scope)
    if not dry_run:
        delete_scope_budgets(tx, scope)
        for each in (delete_sql.DELETE_DOCUMENTS, delete_sql.FORGET_FOLDERS, delete_sql.FORGET_AGENTS):
            tx.run(each, scope=scope)
    return found


class _Doomed(NamedTuple):
    sessions: dict[int, str]
    missing: list[str]
    others: set[str]
    """Tasks that are in other scopes: they are among the missing, and stay whose they were."""


def _closure(tx: Transaction, session_id: str, scope: str | None) -> _Doomed | None:
    """Return the session and its task closure, by key; None where it is another one, or of another scope."""
    sessions: dict[int, str] = {}
    missing: list[str] = []
    others: set[str] = set()
    for child_id, session_key, child_scope in tx.rows(tasks_sql.TASK_CLOSURE, id=session_id, scope=scope):
        is_other = session_key is not None and scope not in (None, child_scope)
        if child_id == session_id and (is_other or (session_key is not None and not is_meant(session_id, session_key))):
            return None
        if session_key is not None and not is_other:
            sessions[session_key] = child_id
        elif child_id != session_id:
            missing.append(child_id)
            others.update([child_id] if is_other else ())
    return _Doomed(sessions, missing, others)


def _note_tasks(tx: Transaction, session_id: str, links: Sequence[tuple[str, str]]) -> None:
    """Write down whose tasks they were, for what they paid, since the links to them go."""
    if not links:
        return
    ids = json.dumps(sorted({session_id, *(child for _, child in links)}))
    payers = tx.rows(tasks_sql.PAYERS_TO_NOTE, ids=ids)
    owners = owners_of_tasks(session_id, links, {name for _, _, name, _ in payers})
    notes = [
        tasks_sql.NOTE_TASK.of(session_key=key, task_of=owners[task])
        for key, task, _, of in payers
        if of is None and task in owners
    ]
    tx.run_many(tasks_sql.NOTE_TASK, notes)


def _plan_locked(tx: Transaction, keys: str) -> list[LaneFate]:
    """Return the plan, with its heirs locked: one that was being deleted meanwhile would inherit for nobody."""
    locked: set[int] = set()
    while True:
        fates = _plan(tx, keys)
        heirs = {fate.heir for fate in fates if fate.heir is not None} - locked
        if tx.is_alone or not heirs:
            return fates
        tx.lock_sessions(heirs)
        locked |= heirs


def _plan(tx: Transaction, keys: str) -> list[LaneFate]:
    doomed = list(tx.rows(delete_sql.DOOMED_LANES, keys=keys))
    children = list(tx.rows(delete_sql.CHILD_LANES, keys=keys))
    holds = list(tx.rows(delete_sql.HOLDS, keys=keys))
    return plan_lane_deletion(doomed, children, holds)


def _tails(fates: Iterable[LaneFate]) -> str:
    return json.dumps([[fate.lane.tree_id, fate.lane.lane_id, fate.keep_depth] for fate in fates])


def _carry_out(tx: Transaction, fates: list[LaneFate], blobs: Iterable[tuple[int, bytes]], keys: str) -> None:
    """Delete the rest, when the ends of the lanes are gone; ``blobs`` (tree, SHA-256) are those they referred to."""
    # Lanes change hands here, of which other sessions' states tell.
    tx.states.clear()
    tx.run(ledger_sql.NAME_CALLS_OF_SESSIONS, keys=keys)
    lanes = [(fate.heir, TreeLane(tree_id=fate.lane.tree_id, lane_id=fate.lane.lane_id)) for fate in fates]
    handed_over = [delete_sql.HAND_OVER_LANE.of(**lane, owner_key=heir) for heir, lane in lanes if heir is not None]
    tx.run_many(delete_sql.HAND_OVER_LANE, handed_over)
    tx.run_many(delete_sql.DELETE_LANE, [lane for heir, lane in lanes if heir is None])
    unused = [delete_sql.DELETE_UNUSED_BLOB.of(tree_id=tree_id, sha256=blob) for tree_id, blob in sorted(blobs)]
    if not tx.is_alone:
        # Whoever is just storing an entry with this blob holds it: waited for here, seen by the next statement.
        tx.run_many(delete_sql.LOCK_BLOB, unused)
    tx.run_many(delete_sql.DELETE_UNUSED_BLOB, unused)
    # Marks, moves, requests and links of the sessions go with their rows (ON DELETE CASCADE).
    tx.run(delete_sql.DELETE_SESSIONS, keys=keys)
