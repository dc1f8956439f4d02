"""Whole trees out of a store and into another: each is read on one snapshot, and written in one transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

from flue_py.collector import collector_held
from flue_py.core.rows import CallRow, Payer, RequestRow
from flue_py.core.trees import (
    FoundTree,
    GonePayer,
    Standing,
    TreeCopy,
    TreeHead,
    call_refused,
    check_is_earlier,
    standing_of,
)
from flue_py.errors import CorruptStore
from flue_py.store.ops.budgets import delete_session_budgets
from flue_py.store.ops.ledger import name_calls
from flue_py.store.ops.path_sums import NOBODY, renew_sums
from flue_py.store.seam import Insert, Transaction, Written
from flue_py.store.sql import ledger as ledger_sql
from flue_py.store.sql import sessions as sessions_sql
from flue_py.store.sql import tasks as tasks_sql
from flue_py.store.sql import transfer as transfer_sql
from flue_py.store.sql.inserts import (
    COPY_BLOB,
    COPY_LINK,
    COPY_MARK,
    INSERT_ATTACHMENT,
    INSERT_CALL,
    INSERT_EDIT,
    INSERT_ENTRY,
    INSERT_LANE,
    INSERT_MOVE,
    INSERT_PAYER,
    INSERT_REQUEST,
    INSERT_SESSION,
)
from flue_py.store.sql.takes import ScopeProviderCall, Session

# Rows that are handed to the driver at once.
_BATCH = 2_000

# -- reading ----------------------------------------------------------------------------------------------------------


def list_trees(tx: Transaction, after: int, limit: int) -> list[TreeHead]:
    """Return a page of trees (see `Backend.list_trees`)."""
    ids = [tree_id for (tree_id,) in tx.rows(transfer_sql.TREE_IDS, after_key=after, count=limit)]
    if not ids:
        return []
    rows = tx.rows(transfer_sql.HEADS, after_key=after, last_tree=ids[-1])
    return [TreeHead(tree_id, tuple(head for _, head in group)) for tree_id, group in groupby(rows, key=itemgetter(0))]


def read_whole_tree(tx: Transaction, tree_id: int) -> TreeCopy | None:
    """Return everything there is of a tree (see `Backend.read_whole_tree`)."""
    sessions = list(tx.rows(transfer_sql.SESSIONS, tree_id=tree_id))
    if not sessions:
        return None
    with collector_held(sum(session.entry_count for session in sessions)):
        entries = list(tx.rows(transfer_sql.ENTRIES, tree_id=tree_id))
    calls = list(tx.rows(transfer_sql.CALLS, tree_id=tree_id))
    payers = list(tx.rows(transfer_sql.PAYERS, tree_id=tree_id))
    gone = {entry.session_key for entry in entries} - {session.session_key for session in sessions}
    for session_key in sorted(gone):
        payer = tx.first(transfer_sql.PAYER, session_key=session_key)
        if payer is not None:
            payers.append(payer)
            calls += _calls_of(tx, session_key)[0]
    (epoch,) = tx.first(transfer_sql.EPOCH) or (0,)
    return TreeCopy(
        tree_id,
        epoch,
        sessions,
        list(tx.rows(transfer_sql.LANES, tree_id=tree_id)),
        entries,
        list(tx.rows(transfer_sql.BLOBS, tree_id=tree_id)),
        list(tx.rows(transfer_sql.LINKS, tree_id=tree_id)),
        list(tx.rows(transfer_sql.MOVES, tree_id=tree_id)),
        list(tx.rows(transfer_sql.REQUESTS, tree_id=tree_id)),
        list(tx.rows(transfer_sql.MARKS, tree_id=tree_id)),
        calls,
        payers,
        list(tx.rows(transfer_sql.EDITS, tree_id=tree_id)),
        list(tx.rows(transfer_sql.ATTACHMENTS, tree_id=tree_id)),
    )


def list_gone_payers(tx: Transaction, after: int, limit: int) -> list[GonePayer]:
    """Return a page of sessions that are gone, with what they paid (see `Backend.list_gone_payers`)."""
    gone = []
    for payer in tx.rows(transfer_sql.GONE_PAYERS, after_key=after, count=limit):
        calls, tree_id = _calls_of(tx, payer.session_key)
        (member,) = tx.first(transfer_sql.MEMBER_OF_TREE, tree_id=tree_id) or (None,)
        gone.append(GonePayer(payer, tree_id, member, calls))
    return gone


def _calls_of(tx: Transaction, session_key: int) -> tuple[list[CallRow], int]:
    """Return what a session paid, and the tree that was for."""
    rows = tx.rows(transfer_sql.CALLS_OF, session_key=session_key)
    return [call for _, call in rows], next((tree_id for tree_id, _ in rows), session_key)


# -- comparing --------------------------------------------------------------------------------------------------------


def compare_trees(tx: Transaction, heads: Sequence[TreeHead]) -> list[Standing]:
    """Return how this store stands to each tree of another (see `Backend.compare_trees`). Two transfer_sql."""
    found = _find(tx, heads)
    return [found.standing(head) for head in heads]


@dataclass(slots=True)
class _Found:
    """The trees of this store that have sessions of trees of another, and who has the keys of those.

    ``trees`` are by their ids here; ``homes`` and ``keys`` have the tree and the key of each of their sessions.
    """

    trees: dict[int, FoundTree]
    homes: dict[str, int]
    keys: dict[str, int]
    holders: dict[tuple[str, str], str]

    def standing(self, head: TreeHead) -> Standing:
        homes = dict.fromkeys(self.homes[session.id] for session in head.sessions if session.id in self.homes)
        return standing_of(
            head, [self.trees[tree_id] for tree_id in homes], lambda scope, key: self.holders.get((scope, key))
        )


def _find(tx: Transaction, heads: Sequence[TreeHead]) -> _Found:
    sessions = [session for head in heads for session in head.sessions]
    found = _Found({}, {}, {}, {})
    rows = tx.rows(transfer_sql.STAMPED_HEADS, ids=json.dumps([session.id for session in sessions]))
    for tree_id, group in groupby(rows, key=itemgetter(0)):
        stamps = set()
        theirs = []
        for _, session_key, stamp, head in group:
            theirs.append(head)
            stamps.add(stamp)
            found.homes[head.id] = tree_id
            found.keys[head.id] = session_key
        found.trees[tree_id] = FoundTree(TreeHead(tree_id, tuple(theirs)), frozenset(stamps))
    names = [(session.scope, session.key) for session in sessions if session.key is not None]
    if names:
        holders = tx.rows(transfer_sql.KEY_HOLDERS, keys=json.dumps(names))
        found.holders = {(scope, key): holder for scope, key, holder in holders}
    return found


# -- writing ----------------------------------------------------------------------------------------------------------


def write_whole_tree(tx: Transaction, copy: TreeCopy) -> Standing:
    """Write a tree of another store (see `Backend.write_whole_tree`)."""
    head = copy.head
    found = _find_locked(tx, head)
    standing = found.standing(head)
    if standing.refusal is not None:
        raise standing.refusal
    if standing.state == "same":
        return standing
    if standing.tree_id is not None:
        check_is_earlier(found.trees[standing.tree_id].head, copy)
    for session_id in (*found.keys, *(session.id for session in head.sessions)):
        tx.states.pop(session_id, None)
    name_calls(tx, copy.calls)
    _take_away(tx, standing, found.keys)
    keys = _keys_here(tx, copy, standing, found.keys)
    _write_sessions(tx, copy, keys, found.keys)
    _write_history(tx, copy, keys)
    left = _write_calls(tx, copy, keys)
    renew_sums(tx, keys[copy.tree_id])
    for tree_id in left:
        # Whoever writes to the tree may know what its paths had paid. Where it is a copy as it came, nobody does.
        renew_sums(tx, tree_id, None if _is_untouched(tx, tree_id) else NOBODY)
    if copy.epoch:
        tx.run(transfer_sql.RAISE_EPOCH, number=copy.epoch)
    return standing


def _find_locked(tx: Transaction, head: TreeHead) -> _Found:
    """Return what there is of a tree, with its sessions locked where others could write to them meanwhile."""
    found = _find(tx, [head])
    locked: set[int] = set()
    while not tx.is_alone and not locked.issuperset(found.keys.values()):
        # A fork may have been made while we waited: look again, until all there is is locked.
        locked.update(found.keys.values())
        tx.lock_sessions(locked)
        found = _find(tx, [head])
    return found


def _keys_here(tx: Transaction, copy: TreeCopy, standing: Standing, there: Mapping[str, int]) -> dict[int, int]:
    """Return this store's keys for those of the copy: what it has already keeps its key, the rest gets new ones."""
    keys = {session.session_key: there[session.id] for session in copy.sessions if session.id in there}
    if standing.tree_id is not None:
        keys[copy.tree_id] = standing.tree_id
    live = {session.session_key for session in copy.sessions}
    names = {payer.session_key: payer.session_id for payer in copy.payers}
    for key in copy.all_keys():
        if key in keys:
            continue
        known = None
        if key in names and key not in live:
            known = _known_payer(tx, names[key], [call for call in copy.calls if call.session_key == key])
        keys[key] = tx.new_key() if known is None else known[0]
    return keys


def _known_payer(tx: Transaction, session_id: str, calls: Iterable[CallRow]) -> tuple[int, int] | None:
    """Return the key and the tree under which this store knows who paid, a session that is gone; None if it does not.

    An id may have been used again: a payer of none of these calls is another session.
    """
    for call in calls:
        owner = tx.first(transfer_sql.OWNER_OF_CALL, **_identity(call))
        if owner is not None:
            key, tree_id, owner_id, living = owner
            if owner_id == session_id and living is None:
                return key, tree_id
    return None


def _identity(call: CallRow) -> ScopeProviderCall:
    return ScopeProviderCall(scope=call.scope, provider=call.provider, call_id=call.call_id)


def _is_untouched(tx: Transaction, tree_id: int) -> bool:
    """Return whether a tree is a copy that nobody has written to."""
    sessions: dict[int, str] = dict(tx.rows(sessions_sql.SESSION_IDS, tree_id=tree_id))
    rows = tx.rows(transfer_sql.STAMPED_HEADS, ids=json.dumps(list(sessions.values())))
    whole = TreeHead(tree_id, tuple(head for *_, head in rows))
    return all(stamp == whole.fingerprint for _, _, stamp, _ in rows)


def _take_away(tx: Transaction, standing: Standing, there: Mapping[str, int]) -> None:
    """Delete an earlier copy, but for the sessions that stay, and for what was paid."""
    if standing.tree_id is None:
        return
    tx.run(ledger_sql.NAME_CALLS_OF_TREE, tree_id=standing.tree_id)
    for statement in transfer_sql.DELETE_HISTORY:
        tx.run(statement, tree_id=standing.tree_id)
    if standing.removed:
        delete_session_budgets(tx, standing.removed)
    tx.run_many(transfer_sql.DELETE_SESSION, [Session(session_key=there[gone]) for gone in standing.removed])


def _write_sessions(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int], there: Mapping[str, int]) -> None:
    tree_id = keys[copy.tree_id]
    rows = [session._replace(session_key=keys[session.session_key]) for session in copy.sessions]
    _insert(tx, INSERT_SESSION, ((tree_id, *row) for row in rows if row.id not in there))
    for row in rows:
        if row.id in there:
            tx.run(transfer_sql.UPDATE_SESSION, **row._asdict())
            # Changes nothing, but wakes the watchers of the session if that is done by a statement.
            tx.run(sessions_sql.UPDATE_REVISION, revision=row.revision, at=row.updated_at, session_key=row.session_key)
    stamp = (transfer_sql.COPY_KEY, transfer_sql.COPY_OPERATION, copy.head.fingerprint)
    _insert(
        tx,
        INSERT_REQUEST,
        (RequestRow(row.session_key, *stamp, str(row.revision)) for row in rows),
    )


def _write_history(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int]) -> None:
    tree_id = keys[copy.tree_id]
    if len({entry.id for entry in copy.entries}) < len(copy.entries):
        raise CorruptStore("the tree to be written has an entry twice; run verify() on the store that it is from")
    _insert(tx, COPY_BLOB, ((tree_id, *row) for row in copy.blobs))
    _insert(tx, INSERT_ATTACHMENT, ((tree_id, *row) for row in copy.attachments))
    _insert(
        tx,
        INSERT_LANE,
        ((tree_id, *lane._replace(owner_key=keys[lane.owner_key])) for lane in copy.lanes),
    )
    with collector_held(len(copy.entries)):
        _insert(
            tx,
            INSERT_ENTRY,
            ((tree_id, *row._replace(session_key=keys[row.session_key])) for row in copy.entries),
        )
    _insert(tx, COPY_LINK, (row._replace(parent_key=keys[row.parent_key]) for row in copy.links))
    _insert(tx, INSERT_MOVE, (row._replace(session_key=keys[row.session_key]) for row in copy.moves))
    _insert(tx, INSERT_EDIT, (row._replace(session_key=keys[row.session_key]) for row in copy.edits))
    _insert(tx, INSERT_REQUEST, (row._replace(session_key=keys[row.session_key]) for row in copy.requests))
    _insert(tx, COPY_MARK, (row._replace(session_key=keys[row.session_key]) for row in copy.marks))


def _insert(tx: Transaction, statement: Insert[Written], rows: Iterable[Written]) -> None:
    """Insert rows, a batch at a time, so that they are not all there once more."""
    waiting = iter(rows)
    while batch := list(islice(waiting, _BATCH)):
        tx.insert(statement, batch)


# -- the ledger -------------------------------------------------------------------------------------------------------


def _write_calls(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int]) -> set[int]:
    """Write what the tree's sessions paid; return the other trees that it was for until now.

    What sessions paid that are there no more stays, as it was copied before. Raises `SessionExists` where another
    session has reported one of the calls.
    """
    left: set[int] = set()
    tree_id = keys[copy.tree_id]
    _insert(
        tx,
        INSERT_PAYER,
        ((tree_id, *payer._replace(session_key=keys[payer.session_key])) for payer in copy.payers),
    )
    for payer in copy.payers:
        _note_task(tx, keys[payer.session_key], payer)
    calls = [call._replace(session_key=keys[call.session_key]) for call in copy.calls]
    # What an import met only a part of is written anew since, perhaps under another id.
    tx.run_many(
        transfer_sql.DELETE_CALLS_OF, [Session(session_key=keys[session.session_key]) for session in copy.sessions]
    )
    _insert(tx, INSERT_CALL, ((tree_id, *call) for call in calls))
    expected = Counter(call.session_key for call in calls)
    names = {keys[payer.session_key]: payer.session_id for payer in copy.payers}
    for session_key, count in expected.items():
        (there,) = tx.first(transfer_sql.COUNT_CALLS, session_key=session_key) or (0,)
        if there < count:
            own = [call for call in calls if call.session_key == session_key]
            left |= _take_over(tx, names[session_key], tree_id, own)
    return left - {tree_id}


def _take_over(tx: Transaction, payer: str, tree_id: int, calls: Iterable[CallRow]) -> set[int]:
    """Give a session its calls that are here under its id, but for one that is gone: it was, and is back.

    Returns the trees that the calls were for until now.
    """
    left = set()
    for call in calls:
        row = tx.first(transfer_sql.OWNER_OF_CALL, **_identity(call))
        if row is None:
            continue
        owner_key, owner_tree, owner, live_key = row
        if owner_key == call.session_key:
            continue
        if live_key is not None or owner != payer:
            raise call_refused(call, payer, owner)
        tx.run(transfer_sql.GIVE_CALL, **_identity(call), session_key=call.session_key, tree_id=tree_id)
        tx.run(ledger_sql.DROP_PAYER, session_key=owner_key)
        left.add(owner_tree)
    return left


def _note_task(tx: Transaction, session_key: int, payer: Payer) -> None:
    if payer.task_of is not None:
        tx.run(tasks_sql.NOTE_TASK, session_key=session_key, task_of=payer.task_of)


def write_gone_payers(tx: Transaction, payers: Sequence[GonePayer]) -> int:
    """Write what sessions that are gone have paid (see `Backend.write_gone_payers`)."""
    written = 0
    trees: dict[int, int] = {}
    name_calls(tx, [call for gone in payers for call in gone.calls])
    for gone in payers:
        missing = [call for call in gone.calls if tx.first(transfer_sql.OWNER_OF_CALL, **_identity(call)) is None]
        known = _known_payer(tx, gone.payer.session_id, gone.calls)
        if known is not None:
            _note_task(tx, known[0], gone.payer)
        ids = json.dumps([gone.payer.session_id])
        # Of one that was imported it is known that it was deleted, whether or not it has paid.
        if not missing and (gone.calls or tx.first(ledger_sql.PAYERS_OF, ids=ids) is not None):
            continue
        session_key, tree_id = known or (None, trees.get(gone.tree_id))
        if tree_id is None and gone.member is not None:
            (tree_id,) = tx.first(transfer_sql.TREE_OF_SESSION, id=gone.member) or (None,)
        is_new = session_key is None
        session_key = tx.new_key() if session_key is None else session_key
        tree_id = trees.setdefault(gone.tree_id, session_key if tree_id is None else tree_id)
        if is_new:
            _insert(tx, INSERT_PAYER, [(tree_id, *gone.payer._replace(session_key=session_key))])
        _insert(tx, INSERT_CALL, ((tree_id, *call._replace(session_key=session_key)) for call in missing))
        written += len(missing)
    return written
