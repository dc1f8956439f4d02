"""The statements that read and write whole trees, in SQL that SQLite and PostgreSQL both read."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import attrgetter, itemgetter

from msgspec import Struct
from msgspec.structs import replace

from flue_py.core.chain import NO_PARENT, Chain
from flue_py.core.json import unchecked_json
from flue_py.core.ledger import (
    AttachmentRow,
    BlobRow,
    BudgetCopy,
    BudgetRow,
    BudgetState,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    SessionRow,
    state_of_budget,
)
from flue_py.core.trees import (
    FoundTree,
    GonePayer,
    SessionHead,
    Standing,
    TreeCopy,
    TreeHead,
    call_refused,
    check_is_earlier,
    standing_of,
)
from flue_py.db import sql
from flue_py.db.ops import ledger
from flue_py.db.ops.base import read_epoch, stored_text
from flue_py.db.ops.documents import check_holds
from flue_py.db.ops.ledger import NOBODY, delete_session_budgets, key_of_target, lock_budgets, name_calls, renew_sums
from flue_py.db.ops.seals import (
    TREES,
    chain_apart,
    change_calls,
    check_calls,
    keep_call_seals,
    renew_heads,
    seal_anew,
    without_seals,
)
from flue_py.db.runner import Insert, Nothing, Parameters, Row, Transaction, Written, collector_held
from flue_py.db.sql import call_columns, keyed, quoted, select, statement
from flue_py.errors import CorruptStore, OnHold, SessionExists, damaged_rows

# ---------------------------------------------------------------------------------------------------------------------
# The statements that read and write whole trees, in SQL that SQLite and PostgreSQL both read.


# A copy has a request under this key, of this operation, which other sessions have not. Its digest is the fingerprint
# of the tree as it was copied.
COPY_KEY = "flue-py copy 6f0d1c3a"
COPY_OPERATION = "copy"


def _stamped_head(row: Row) -> tuple[int, int, bytes | None, SessionHead]:
    tree_id, session_key, stamp, *head = row
    return tree_id, session_key, None if stamp is None else bytes(stamp), SessionHead._make(head)


# -- which trees there are --------------------------------------------------------------------------------------------

HEADS = statement(keyed(int, SessionHead._make))(
    f"SELECT s.tree_id, {quoted(SessionHead, 's')} FROM sessions s WHERE s.tree_id > :after_key"
    " AND s.tree_id <= :last_tree ORDER BY s.tree_id, s.session_key"
)
# The trees that have sessions of a JSON array of ids, whole: with keys, and with the stamps of copies.
STAMPED_HEADS = statement(_stamped_head)(
    f"SELECT s.tree_id, s.session_key, r.digest, {quoted(SessionHead, 's')} "
    "FROM sessions s LEFT JOIN requests r ON r.session_key = s.session_key"
    f" AND r.idempotency_key = '{COPY_KEY}' AND r.operation = '{COPY_OPERATION}'"
    f" WHERE s.tree_id IN (SELECT f.tree_id FROM sessions f WHERE f.id {sql.IN_IDS})"
    " ORDER BY s.tree_id, s.session_key"
)
# The sessions that have the keys of a JSON array of [scope, key].
KEY_HOLDERS = statement(tuple[str, str, str])(
    f'SELECT s.scope, s."key", s.id FROM {sql.PAIRS_OF_KEYS} sessions s ON s.scope = {sql.FIRST_OF_PAIR}'
    f' AND s."key" = {sql.SECOND_OF_PAIR} WHERE s."key" IS NOT NULL AND s.trashed_at IS NULL'
)

# -- reading a tree ---------------------------------------------------------------------------------------------------

_OF_SESSIONS = "JOIN sessions s ON s.session_key = t.session_key WHERE s.tree_id = :tree_id"
SESSIONS = select(SessionRow, "s", "sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key")
LANES = select(LaneRow, "t", "lanes t WHERE t.tree_id = :tree_id ORDER BY t.lane_id")
ENTRIES = select(EntryRow, "t", "entries t WHERE t.tree_id = :tree_id ORDER BY t.lane_id, t.depth")
BLOBS = select(BlobRow, "t", "blobs t WHERE t.tree_id = :tree_id ORDER BY t.sha256")
ATTACHMENTS = select(
    AttachmentRow, "t", "attachments t WHERE t.tree_id = :tree_id ORDER BY t.lane_id, t.depth, t.place"
)
LINKS = select(
    LinkRow,
    "t",
    "task_links t JOIN sessions s ON s.session_key = t.parent_key WHERE s.tree_id = :tree_id"
    " ORDER BY t.parent_key, t.position",
)
MOVES = select(MoveRow, "t", f"leaf_moves t {_OF_SESSIONS} ORDER BY t.session_key, t.revision")
EDITS = select(EditRow, "t", f"session_edits t {_OF_SESSIONS} ORDER BY t.session_key, t.revision, t.what")
REQUESTS = select(
    RequestRow,
    "t",
    f"requests t {_OF_SESSIONS} AND t.operation <> '{COPY_OPERATION}' ORDER BY t.session_key, t.idempotency_key",
)
MARKS = select(MarkRow, "t", f"marks t {_OF_SESSIONS} ORDER BY t.session_key, t.entry_id, t.kind")
_CALL = call_columns("t")
_CALL_ID = "COALESCE(t.call_id, t.entry_id)"
CALLS = statement(CallRow)(
    f"SELECT {_CALL} FROM ledger t {_OF_SESSIONS} ORDER BY t.session_key, t.provider, {_CALL_ID}"
)
PAYERS = select(Payer, "t", f"ledger_sessions t {_OF_SESSIONS} ORDER BY t.session_key")

# -- reading what sessions that are gone have paid --------------------------------------------------------------------

PAYER = select(Payer, "t", "ledger_sessions t WHERE t.session_key = :session_key")
GONE_PAYERS = select(
    Payer,
    "t",
    "ledger_sessions t LEFT JOIN sessions s ON s.session_key = t.session_key"
    " WHERE t.session_key > :after_key AND s.session_key IS NULL ORDER BY t.session_key LIMIT :count",
)
CALLS_OF = statement(keyed(int, CallRow._make))(
    f"SELECT t.tree_id, {_CALL} FROM ledger t WHERE t.session_key = :session_key"
    f" ORDER BY t.scope, t.provider, {_CALL_ID}"
)
MEMBER_OF_TREE = statement(tuple[str])(
    "SELECT s.id FROM sessions s WHERE s.tree_id = :tree_id ORDER BY s.session_key LIMIT 1"
)

# -- writing ----------------------------------------------------------------------------------------------------------

RAISE_EPOCH = statement(Nothing)("UPDATE flue_store SET value = :number WHERE name = 'epoch' AND value < :number")

# Who has a paid call, and whether that session is still there.
OWNER_OF_CALL = statement(tuple[int, int, str, int | None])(
    "SELECT g.session_key, g.tree_id, n.session_id, s.session_key FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " LEFT JOIN sessions s ON s.session_key = g.session_key"
    " WHERE g.scope = :scope AND g.provider = :provider AND g.call_id = :call_id"
)
DELETE_CALLS_OF = statement(Nothing)("DELETE FROM ledger WHERE session_key = :session_key")
COUNT_CALLS = statement(tuple[int])("SELECT COUNT(*) FROM ledger WHERE session_key = :session_key")
GIVE_CALL = statement(Nothing)(
    "UPDATE ledger SET session_key = :session_key, tree_id = :tree_id"
    " WHERE scope = :scope AND provider = :provider AND call_id = :call_id"
)

# -- taking an earlier copy away --------------------------------------------------------------------------------------

# Sessions that stay are changed, not made anew: a watcher of one of them finds it afterwards.
UPDATE_SESSION = statement(Nothing)(
    "UPDATE sessions SET "
    + ", ".join(f'"{name}" = :{name}' for name in SessionRow._fields if name not in ("session_key", "id"))
    + " WHERE session_key = :session_key"
)
SET_SPENDING = statement(Nothing)(
    f"UPDATE sessions SET {', '.join(f'{name} = :{name}' for name in sql.SPENDING)} WHERE session_key = :session_key"
)
DELETE_SESSION = statement(Nothing)("DELETE FROM sessions WHERE session_key = :session_key")
_IN_TREE = "IN (SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id)"
DELETE_HISTORY = (
    statement(Nothing)("DELETE FROM entries WHERE tree_id = :tree_id"),
    statement(Nothing)("DELETE FROM lanes WHERE tree_id = :tree_id"),
    statement(Nothing)("DELETE FROM blobs WHERE tree_id = :tree_id"),
    statement(Nothing)("DELETE FROM attachments WHERE tree_id = :tree_id"),
    statement(Nothing)(f"DELETE FROM task_links WHERE parent_key {_IN_TREE}"),
    statement(Nothing)(f"DELETE FROM leaf_moves WHERE session_key {_IN_TREE}"),
    statement(Nothing)(f"DELETE FROM session_edits WHERE session_key {_IN_TREE}"),
    statement(Nothing)(f"DELETE FROM requests WHERE session_key {_IN_TREE}"),
    statement(Nothing)(f"DELETE FROM marks WHERE session_key {_IN_TREE}"),
)


# ---------------------------------------------------------------------------------------------------------------------
# Whole trees out of a store and into another: each is read on one snapshot, and written in one transaction.

# Rows that are handed to the driver at once.
_BATCH = 2_000

# -- reading ----------------------------------------------------------------------------------------------------------


def list_trees(tx: Transaction, after: int, limit: int) -> list[TreeHead]:
    """Return a page of trees (see `Backend.list_trees`)."""
    ids = [tree_id for (tree_id,) in tx.rows(TREES, after_key=after, count=limit)]
    if not ids:
        return []
    rows = tx.rows(HEADS, after_key=after, last_tree=ids[-1])
    return [TreeHead(tree_id, tuple(head for _, head in group)) for tree_id, group in groupby(rows, key=itemgetter(0))]


def read_whole_tree(tx: Transaction, tree_id: int) -> TreeCopy | None:
    """Return everything there is of a tree (see `Backend.read_whole_tree`)."""
    sessions = list(tx.rows(SESSIONS, tree_id=tree_id))
    if not sessions:
        return None
    keys = [session.session_key for session in sessions]
    payers = list(tx.rows(PAYERS, tree_id=tree_id))
    check_calls(tx, {*keys, *(payer.session_key for payer in payers)})
    if damaged := without_seals(tx, keys):
        raise damaged_rows(next(session.id for session in sessions if session.session_key in damaged))
    # They cover the internal keys, too: whoever takes the tree computes others.
    sessions = [session._replace(head=b"", log_seal=0, mark_seal=0, link_seal=0, call_seal=0) for session in sessions]
    if not tx.chain.checks:
        # Elsewhere they get digests as if somebody had checked them.
        sessions = [session._replace(metadata=unchecked_json(session.metadata)) for session in sessions]
    with collector_held(sum(session.entry_count for session in sessions)):
        entries = list(tx.rows(ENTRIES, tree_id=tree_id))
    calls = list(tx.rows(CALLS, tree_id=tree_id))
    absent = {entry.session_key for entry in entries} - {session.session_key for session in sessions}
    check_calls(tx, absent)
    for session_key in sorted(absent):
        payer = tx.first(PAYER, session_key=session_key)
        if payer is not None:
            payers.append(payer)
            calls += _calls_of(tx, session_key)[0]
    return TreeCopy(
        tree_id,
        read_epoch(tx),
        sessions,
        list(tx.rows(LANES, tree_id=tree_id)),
        entries,
        list(tx.rows(BLOBS, tree_id=tree_id)),
        [row._replace(seal=0) for row in tx.rows(LINKS, tree_id=tree_id)],
        [row._replace(seal=0) for row in tx.rows(MOVES, tree_id=tree_id)],
        list(tx.rows(REQUESTS, tree_id=tree_id)),
        [row._replace(seal=0) for row in tx.rows(MARKS, tree_id=tree_id)],
        calls,
        [payer._replace(seal=0) for payer in payers],
        [row._replace(seal=0) for row in tx.rows(EDITS, tree_id=tree_id)],
        list(tx.rows(ATTACHMENTS, tree_id=tree_id)),
        chain_apart(tx),
    )


def list_gone_payers(tx: Transaction, after: int, limit: int) -> list[GonePayer]:
    """Return a page of sessions that are gone, with their calls (see `Backend.list_gone_payers`)."""
    payers = []
    gone = tx.rows(GONE_PAYERS, after_key=after, count=limit)
    check_calls(tx, [payer.session_key for payer in gone])
    for payer in gone:
        calls, tree_id = _calls_of(tx, payer.session_key)
        (member,) = tx.first(MEMBER_OF_TREE, tree_id=tree_id) or (None,)
        payers.append(GonePayer(payer._replace(seal=0), tree_id, member, calls))
    return payers


def _calls_of(tx: Transaction, session_key: int) -> tuple[list[CallRow], int]:
    """Return the calls of a session, and the trees they were for."""
    rows = tx.rows(CALLS_OF, session_key=session_key)
    return [call for _, call in rows], next((tree_id for tree_id, _ in rows), session_key)


# -- comparing --------------------------------------------------------------------------------------------------------


def compare_trees(tx: Transaction, heads: Sequence[TreeHead]) -> list[Standing]:
    """Return how this store stands to each tree of another (see `Backend.compare_trees`). Two transfer_sql."""
    present = _find(tx, heads)
    return [present.standing(head) for head in heads]


class _Found(Struct):
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
    present = _Found({}, {}, {}, {})
    rows = tx.rows(STAMPED_HEADS, ids=json.dumps([session.id for session in sessions]))
    for tree_id, group in groupby(rows, key=itemgetter(0)):
        stamps = set()
        theirs = []
        for _, session_key, stamp, head in group:
            theirs.append(head)
            stamps.add(stamp)
            present.homes[head.id] = tree_id
            present.keys[head.id] = session_key
        present.trees[tree_id] = FoundTree(TreeHead(tree_id, tuple(theirs)), frozenset(stamps))
    names = [(session.scope, session.key) for session in sessions if session.key is not None]
    if names:
        holders = tx.rows(KEY_HOLDERS, keys=json.dumps(names))
        present.holders = {(scope, key): holder for scope, key, holder in holders}
    return present


# -- writing ----------------------------------------------------------------------------------------------------------


def write_whole_tree(tx: Transaction, copy: TreeCopy) -> Standing:
    """Write a tree of another store (see `Backend.write_whole_tree`)."""
    is_as_here = copy.chain.is_as(tx.chain) and not copy.masked
    head, copy = copy.head, copy if is_as_here else _in_chain(tx.chain, copy)
    present = _find_locked(tx, head)
    standing = present.standing(head)
    if standing.refusal is not None:
        raise standing.refusal
    if standing.state == "same":
        return standing
    if standing.tree_id is not None:
        check_is_earlier(present.trees[standing.tree_id].head, copy)
        _check_holds(tx, standing, present.trees[standing.tree_id].head)
    for session_id in (*present.keys, *(session.id for session in head.sessions)):
        tx.states.pop(session_id, None)
    name_calls(tx, copy.calls)
    _take_away(tx, standing, present.keys)
    keys = _keys_here(tx, copy, standing, present.keys)
    _write_sessions(tx, copy, keys, present.keys)
    _write_history(tx, copy, keys)
    own = {keys[session.session_key] for session in copy.sessions}
    gone = {keys[payer.session_key] for payer in copy.payers} - own
    left = change_calls(tx, gone, lambda: _write_calls(tx, copy, keys))
    seal_anew(tx, own)
    renew_heads(tx, own)
    renew_sums(tx, keys[copy.tree_id])
    for tree_id in left:
        # Whoever writes to the tree may know what its paths had paid. Where it is a copy as it came, nobody does.
        renew_sums(tx, tree_id, None if _is_untouched(tx, tree_id) else NOBODY)
    if copy.epoch:
        tx.run(RAISE_EPOCH, number=copy.epoch)
    return standing


def _in_chain(chain: Chain, copy: TreeCopy) -> TreeCopy:
    """Return a tree whose entries have the digests of another chain; those that are damaged stay so. O(bytes)."""
    blobs = {blob.sha256: blob.data for blob in copy.blobs}
    cuts: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row in copy.attachments:
        cuts[row.lane_id, row.depth].append((row.place, row.sha256))
    digests: dict[str | None, tuple[bytes, bytes]] = {None: (NO_PARENT, NO_PARENT)}
    entries = []
    # A lane may be made before the one that it forks from, if that is a copy.
    for entry in sorted(copy.entries, key=attrgetter("depth")):
        above, new_above = digests.get(entry.parent_id, (b"", b""))
        try:
            text: bytes | None = stored_text(entry, blobs, cuts.get((entry.lane_id, entry.depth), ()))
        except CorruptStore:
            text = None
        if entry.id in copy.masked:
            digest = chain.digest(new_above, entry.fields, text or b"")
        else:
            digest = chain.moved(copy.chain, entry.digest, above, new_above, entry.fields, text)
        digests[entry.id] = entry.digest, digest
        entries.append(entry._replace(digest=digest))
    entries.sort(key=attrgetter("lane_id", "depth"))
    return replace(copy, entries=entries, chain=chain)


def _find_locked(tx: Transaction, head: TreeHead) -> _Found:
    """Return the stored part of a tree, with its sessions locked where others could write to them meanwhile."""
    present = _find(tx, [head])
    locked: set[int] = set()
    while not tx.is_alone and not locked.issuperset(present.keys.values()):
        # A fork may have been made while we waited: look again, until all there is is locked.
        locked.update(present.keys.values())
        tx.lock_sessions(locked)
        present = _find(tx, [head])
    return present


def _keys_here(tx: Transaction, copy: TreeCopy, standing: Standing, there: Mapping[str, int]) -> dict[int, int]:
    """Return this store's keys for those of the copy: sessions that are here keep theirs, the rest get new ones."""
    keys = {session.session_key: there[session.id] for session in copy.sessions if session.id in there}
    if standing.tree_id is not None:
        keys[copy.tree_id] = standing.tree_id
    live = {session.session_key for session in copy.sessions}
    names = {payer.session_key: payer.session_id for payer in copy.payers}
    for key in copy.all_keys():
        if key in keys:
            continue
        earlier = None
        if key in names and key not in live:
            earlier = _known_payer(tx, names[key], [call for call in copy.calls if call.session_key == key])
        keys[key] = tx.new_key() if earlier is None else earlier[0]
    return keys


def _known_payer(tx: Transaction, session_id: str, calls: Iterable[CallRow]) -> tuple[int, int] | None:
    """Return the key and the tree under which this store knows who paid, a session that is gone; None if it does not.

    An id may have been used again: a payer of none of these calls is another session.
    """
    for call in calls:
        owner = tx.first(OWNER_OF_CALL, **_identity(call))
        if owner is not None:
            key, tree_id, owner_id, living = owner
            if owner_id == session_id and living is None:
                return key, tree_id
    return None


def _identity(call: CallRow) -> Parameters:
    return {"scope": call.scope, "provider": call.provider, "call_id": call.call_id}


def _is_untouched(tx: Transaction, tree_id: int) -> bool:
    """Return whether a tree is a copy that nobody has written to."""
    sessions: dict[int, str] = dict(tx.rows(sql.SESSION_IDS, tree_id=tree_id))
    rows = tx.rows(STAMPED_HEADS, ids=json.dumps(list(sessions.values())))
    whole = TreeHead(tree_id, tuple(head for *_, head in rows))
    return all(stamp == whole.fingerprint for _, _, stamp, _ in rows)


def _check_holds(tx: Transaction, standing: Standing, head: TreeHead) -> None:
    """Refuse a copy that would delete a session with a hold. Raises `SessionExists`."""
    try:
        if standing.removed:
            check_holds(tx, {session.scope for session in head.sessions}, standing.removed)
    except OnHold as error:
        raise SessionExists(standing.removed[0], detail=f"deleted in the source: {error}") from error


def _take_away(tx: Transaction, standing: Standing, there: Mapping[str, int]) -> None:
    """Delete an earlier copy, but for the sessions that stay, and for the ledger."""
    if standing.tree_id is None:
        return
    tx.run(ledger.NAME_CALLS_OF_TREE, tree_id=standing.tree_id)
    for deletion in DELETE_HISTORY:
        tx.run(deletion, tree_id=standing.tree_id)
    if standing.removed:
        delete_session_budgets(tx, standing.removed)
    removed = [there[session_id] for session_id in standing.removed]
    keep_call_seals(tx, removed)
    tx.run_many(DELETE_SESSION, [{"session_key": key} for key in removed])


def _write_sessions(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int], there: Mapping[str, int]) -> None:
    tree_id = keys[copy.tree_id]
    rows = [session._replace(session_key=keys[session.session_key]) for session in copy.sessions]
    _insert(tx, sql.INSERT_SESSION, ((tree_id, *row) for row in rows if row.id not in there))
    for row in rows:
        if row.id in there:
            tx.run(UPDATE_SESSION, **row._asdict())
            # Changes nothing, but wakes the watchers of the session if that is done by a statement.
            tx.run(sql.UPDATE_REVISION, revision=row.revision, at=row.updated_at, session_key=row.session_key)
    stamp = (COPY_KEY, COPY_OPERATION, copy.head.fingerprint)
    _insert(tx, sql.INSERT_REQUEST, (RequestRow(row.session_key, *stamp, str(row.revision)) for row in rows))


COPY_BLOB: Insert[Row] = Insert("blobs", BlobRow, first="tree_id")
COPY_LINK = Insert("task_links", LinkRow)


def _write_history(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int]) -> None:
    tree_id = keys[copy.tree_id]
    if len({entry.id for entry in copy.entries}) < len(copy.entries):
        raise CorruptStore("the tree to be written has an entry twice; run verify() on the store that it is from")
    _insert(tx, COPY_BLOB, ((tree_id, *row) for row in copy.blobs))
    _insert(tx, sql.INSERT_ATTACHMENT, ((tree_id, *row) for row in copy.attachments))
    _insert(tx, sql.INSERT_LANE, ((tree_id, *lane._replace(owner_key=keys[lane.owner_key])) for lane in copy.lanes))
    with collector_held(len(copy.entries)):
        _insert(
            tx, sql.INSERT_ENTRY, ((tree_id, *row._replace(session_key=keys[row.session_key])) for row in copy.entries)
        )
    _insert(tx, COPY_LINK, (row._replace(parent_key=keys[row.parent_key]) for row in copy.links))
    _insert(tx, sql.INSERT_MOVE, (row._replace(session_key=keys[row.session_key]) for row in copy.moves))
    _insert(tx, sql.INSERT_EDIT, (row._replace(session_key=keys[row.session_key]) for row in copy.edits))
    _insert(tx, sql.INSERT_REQUEST, (row._replace(session_key=keys[row.session_key]) for row in copy.requests))
    _insert(tx, sql.INSERT_MARK, (row._replace(session_key=keys[row.session_key]) for row in copy.marks))


def _insert(tx: Transaction, statement: Insert[Written], rows: Iterable[Written]) -> None:
    """Insert rows, a batch at a time, so that they are not all there once more."""
    waiting = iter(rows)
    while batch := list(islice(waiting, _BATCH)):
        tx.insert(statement, batch)


# -- the ledger -------------------------------------------------------------------------------------------------------


def _write_calls(tx: Transaction, copy: TreeCopy, keys: Mapping[int, int]) -> set[int]:
    """Write the calls of the tree's sessions; return the other trees that it was for until now.

    Calls of sessions that are there no more stay, as they were copied before. Raises `SessionExists` where another
    session has reported one of the calls.
    """
    left: set[int] = set()
    tree_id = keys[copy.tree_id]
    _insert(
        tx, sql.INSERT_PAYER, ((tree_id, *payer._replace(session_key=keys[payer.session_key])) for payer in copy.payers)
    )
    for payer in copy.payers:
        _note_task(tx, keys[payer.session_key], payer)
    calls = [call._replace(session_key=keys[call.session_key]) for call in copy.calls]
    # What an import met only a part of is written anew since, perhaps under another id.
    tx.run_many(DELETE_CALLS_OF, [{"session_key": keys[session.session_key]} for session in copy.sessions])
    _insert(tx, sql.INSERT_CALL, ((tree_id, *call) for call in calls))
    expected = Counter(call.session_key for call in calls)
    names = {keys[payer.session_key]: payer.session_id for payer in copy.payers}
    for session_key, count in expected.items():
        (there,) = tx.first(COUNT_CALLS, session_key=session_key) or (0,)
        if there < count:
            own = [call for call in calls if call.session_key == session_key]
            left |= _take_over(tx, names[session_key], tree_id, own)
            # They may have other numbers here, or a price.
            paid = ledger.paid_by(tx.rows(ledger.OWN_CALLS, session_key=session_key))
            ledger.check_spending(paid.tokens, paid.picodollars)
            amounts = (paid.tokens, paid.picodollars, paid.unpriced_calls, paid.unknown_calls)
            tx.run(SET_SPENDING, session_key=session_key, **dict(zip(sql.SPENDING, amounts, strict=True)))
    return left - {tree_id}


def _take_over(tx: Transaction, payer: str, tree_id: int, calls: Iterable[CallRow]) -> set[int]:
    """Give a session its calls that are here under its id, but for one that is gone: it was, and is back.

    Returns the trees that the calls were for until now.
    """
    left = set()
    for call in calls:
        row = tx.first(OWNER_OF_CALL, **_identity(call))
        if row is None:
            continue
        owner_key, owner_tree, owner, live_key = row
        if owner_key == call.session_key:
            continue
        if live_key is not None or owner != payer:
            raise call_refused(call, payer, owner)
        change_calls(tx, [owner_key], partial(_give_call, tx, call, owner_key, tree_id))
        left.add(owner_tree)
    return left


def _give_call(tx: Transaction, call: CallRow, owner_key: int, tree_id: int) -> None:
    tx.run(GIVE_CALL, **_identity(call), session_key=call.session_key, tree_id=tree_id)
    tx.run(ledger.DROP_PAYER, session_key=owner_key)


def _note_task(tx: Transaction, session_key: int, payer: Payer) -> None:
    if payer.task_of is not None:
        tx.run(sql.NOTE_TASK, session_key=session_key, task_of=payer.task_of)


def write_gone_payers(tx: Transaction, payers: Sequence[GonePayer]) -> int:
    """Write the calls of sessions that are gone (see `Backend.write_gone_payers`)."""
    written = 0
    trees: dict[int, int] = {}
    name_calls(tx, [call for payer in payers for call in payer.calls])
    for payer in payers:
        missing = [call for call in payer.calls if tx.first(OWNER_OF_CALL, **_identity(call)) is None]
        earlier = _known_payer(tx, payer.payer.session_id, payer.calls)
        if earlier is not None:
            change_calls(tx, [earlier[0]], partial(_note_task, tx, earlier[0], payer.payer))
        ids = json.dumps([payer.payer.session_id])
        # Of one that was imported it is known that it was deleted, whether or not it has paid.
        if not missing and (payer.calls or tx.first(ledger.PAYERS_OF, ids=ids) is not None):
            continue
        session_key, tree_id = earlier or (None, trees.get(payer.tree_id))
        if tree_id is None and payer.member is not None:
            (tree_id,) = tx.first(sql.TREE_OF, id=payer.member) or (None,)
        named = [payer.payer] if session_key is None else []
        session_key = tx.new_key() if session_key is None else session_key
        tree_id = trees.setdefault(payer.tree_id, session_key if tree_id is None else tree_id)
        change_calls(tx, [session_key], partial(_write_gone, tx, (tree_id, session_key), named, missing))
        written += len(missing)
    return written


def _write_gone(tx: Transaction, place: tuple[int, int], payers: Sequence[Payer], calls: Sequence[CallRow]) -> None:
    tree_id, key = place
    _insert(tx, sql.INSERT_PAYER, ((tree_id, *payer._replace(session_key=key)) for payer in payers))
    _insert(tx, sql.INSERT_CALL, ((tree_id, *call._replace(session_key=key)) for call in calls))


# ---------------------------------------------------------------------------------------------------------------------
# Budgets out of a store and into another, with what is and was reserved in them.


def list_whole_budgets(tx: Transaction, after: int, limit: int) -> list[BudgetCopy]:
    """Return a page of budgets (see `Backend.list_whole_budgets`). Two budgets_sql."""
    budgets = tx.rows(ledger.WHOLE_BUDGETS, after_key=after, count=limit)
    reserved = defaultdict(list)
    if budgets:
        keys = json.dumps([key for key, _ in budgets])
        for key, reservation in tx.rows(ledger.RESERVATIONS_OF, keys=keys):
            reserved[key].append(reservation)
    return [BudgetCopy(key, budget, reserved[key]) for key, budget in budgets]


def write_budgets(tx: Transaction, copies: Sequence[BudgetCopy]) -> list[BudgetState]:
    """Write budgets of another store (see `Backend.write_budgets`)."""
    wanted = json.dumps([copy.budget.session_id for copy in copies if copy.budget.session_id is not None])
    # Locked in the order of deletion, sessions before budgets, so that neither waits for the other.
    tx.lock_sessions([key for key, *_ in tx.rows(ledger.SESSIONS_BY_ID, ids=wanted)])
    scopes = {session_id: scope for _, session_id, scope in tx.rows(ledger.SESSIONS_BY_ID, ids=wanted)}
    there = json.dumps([copy.budget.id for copy in copies])
    lock_budgets(tx, [key for key, _ in tx.rows(ledger.BUDGETS_BY_ID, ids=there)])
    by_id = {budget.id: (key, budget) for key, budget in tx.rows(ledger.BUDGETS_BY_ID, ids=there)}
    return [_write(tx, copy, by_id.get(copy.budget.id), scopes) for copy in copies]


def _write(
    tx: Transaction, copy: BudgetCopy, same_id: tuple[int, BudgetRow] | None, scopes: dict[str, str]
) -> BudgetState:
    budget = copy.budget
    found = key_of_target(tx, budget.session_id, budget.covers, budget.scope, budget.unit, budget.period)
    same_target = None if found is None else tx.first(ledger.WHOLE_BUDGET, budget_key=found)
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
        tx.insert(sql.INSERT_BUDGET, [(key, *budget)])
    else:
        key = same_id[0]
        tx.run(ledger.REPLACE_BUDGET, **budget._asdict())
        tx.run(ledger.DELETE_RESERVATIONS, budget_key=key)
    if copy.reservations:
        tx.insert(sql.INSERT_RESERVATION, [(key, *row) for row in copy.reservations])
    return state
