"""The keys that a store states, the heads of its sessions, and seals of the rows beside their entries.

None of these rows can be changed, moved or left out unseen.

The rows of its log, which are leaf moves and edits, are a chain: each seal covers the one before it, and the session's
row has the last. The rows of its marks and task links change: each has its own seal, and the session's row the sums.
The rows of the ledger have none: there the session's row has the sum, of its calls and of its name; that name once it
is gone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, cast

from flue_py.core.chain import NO_PARENT, SEAM, Age, Chain, Head, age_of
from flue_py.core.json import Frozen, NamedTuple
from flue_py.core.ledger import CallRow, EditRow, LinkRow, MarkRow, MoveRow, Payer, SessionRow
from flue_py.core.sessions import is_storable
from flue_py.db import sql
from flue_py.db.runner import Insert, KeyChanged, Nothing, Row, SessionState, Statement, Transaction
from flue_py.db.sql import call_columns, columns, keyed, quoted, select, statement
from flue_py.errors import damaged_entry, damaged_rows, damaged_session

# ---------------------------------------------------------------------------------------------------------------------
# The heads of sessions: each covers a session's row and its leaf, and is made anew where a row is changed.

_PAGE = 200
_PLACE = len(sql.PLACE)
_KEY, _ID, _LEAF, _REVISION = (
    _PLACE + sql.SESSION_COLUMNS.index(name) for name in ("session_key", "id", "leaf", "revision")
)


def _rows_where(condition: str) -> Statement[Row]:
    return statement(Row)(
        f"SELECT {columns('s', (*sql.PLACE, *sql.SESSION_COLUMNS))}, {sql.HEAD}, e.digest FROM sessions s"
        f" LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf WHERE {condition}"
    )


ROWS_OF_KEYS = _rows_where(f"s.session_key {sql.IN_KEYS}")
ROW_OF_ID = _rows_where("s.id = :id")
SET_HEAD = statement(Nothing)("UPDATE sessions SET head = :head WHERE session_key = :session_key")


def _present(row: Row) -> Head:
    session_id, revision, value, leaf, digest = row
    return Head(session_id, revision, value, leaf, digest or b"")


_HEADS = (
    "SELECT s.id, s.revision, s.head, s.leaf, e.digest FROM sessions s"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = s.leaf WHERE"
)
HEADS_OF_KEYS = statement(_present)(f"{_HEADS} s.session_key {sql.IN_KEYS}")
ALL_HEADS = statement(_present)(f"{_HEADS} s.id > :id AND s.trashed_at IS NULL ORDER BY s.id LIMIT :count")
DIGEST_IN_TREE = statement(tuple[bytes])(
    "SELECT e.digest FROM sessions s JOIN entries e ON e.tree_id = s.tree_id AND e.id = :leaf WHERE s.id = :id"
)


def head_after(tx: Transaction, session_id: str, seen: Head | None) -> tuple[Head | None, Age]:
    """Return the head of a session, None if it is not there, and its age by one that was seen; "newer" without one.

    One that was seen before the key was changed is followed by the one that it was given then. Raises `CorruptStore`
    if its row has not its head.
    """
    row = tx.first(ROW_OF_ID, id=session_id) if is_storable(session_id) else None
    if row is not None and not _has_head(tx.chain, row):
        raise damaged_session(session_id)
    present = None if row is None else Head(session_id, row[_REVISION], row[-2], row[_LEAF], row[-1] or b"")
    if seen is None or present is None:
        return present, "newer" if seen is None else age_of(seen, None)
    age = age_of(seen, present)
    if age == "newer" and seen.leaf is not None:
        (digest,) = tx.first(DIGEST_IN_TREE, id=session_id, leaf=seen.leaf) or (b"",)
        return present, "newer" if seen.digest in _with_former(tx, digest) else "other"
    return present, "newer" if age == "other" and seen.value in _with_former(tx, present.value) else age


def _with_former(tx: Transaction, now: bytes | None) -> list[bytes]:
    """Return a digest or a head, and what it was before the key of the store was changed, as far as that is said."""
    values = list[bytes]()
    while now:
        values.append(now)
        now = tx.chain.before(now, partial(seams, tx))
    return values


def compare_heads(tx: Transaction, seen: Sequence[Head]) -> list[Age]:
    """Return what is there of heads that were seen (see `Backend.compare_heads`)."""
    return [head_after(tx, head.session_id, head)[1] for head in seen]


def list_heads(tx: Transaction) -> list[Head]:
    """Return the heads of all sessions (see `Backend.list_heads`)."""
    heads: list[Head] = []
    while page := tx.rows(ALL_HEADS, id=heads[-1].session_id if heads else "", count=_PAGE):
        heads += page
    return heads


def check_heads(tx: Transaction, keys: Collection[int]) -> None:
    """Raise `CorruptStore`, naming the session, for a row that has not its head."""
    for row in _rows_with_heads(tx, keys):
        if not _has_head(tx.chain, row):
            raise damaged_session(row[_ID])


def renew_heads(tx: Transaction, keys: Collection[int]) -> None:
    """Give sessions the heads that their rows have now: after each change that `write_state` does not write."""
    rows = _rows_with_heads(tx, keys)
    for row in rows:
        tx.states.pop(row[_ID], None)
    tx.run_many(SET_HEAD, [{"session_key": row[_KEY], "head": _head(tx.chain, row)} for row in rows])


def with_heads(tx: Transaction, keys: Collection[int]) -> list[int]:
    """Return those of these sessions of which the rows have their heads, by key. A page of rows in memory."""
    ordered = sorted(keys)
    pages = (_rows_with_heads(tx, ordered[at : at + _PAGE]) for at in range(0, len(ordered), _PAGE))
    return [row[_KEY] for page in pages for row in page if _has_head(tx.chain, row)]


def _rows_with_heads(tx: Transaction, keys: Collection[int]) -> Sequence[Row]:
    return tx.rows(ROWS_OF_KEYS, keys=json.dumps(sorted(keys)))


def _head(chain: Chain, row: Row) -> bytes:
    return chain.head(*_covered(row))


def _has_head(chain: Chain, row: Row) -> bool:
    return chain.has_head(row[-2], *_covered(row))


def _covered(row: Row) -> tuple[bytes, Row]:
    return NO_PARENT if row[_LEAF] is None else row[-1] or b"", (*row[:_PLACE], row[_PLACE:-2])


def head_of_row(chain: Chain, tree_id: int, row: SessionRow, leaf: bytes) -> bytes:
    """Return the head of a session that is to be written; ``leaf`` is the digest of its leaf."""
    columns = tuple(getattr(row, name) for name in sql.SESSION_COLUMNS)
    return chain.head(leaf, (tree_id, *(getattr(row, name) for name in sql.PLACE[1:]), columns))


# ---------------------------------------------------------------------------------------------------------------------
# The keys that a store states: their fingerprints in `flue_store`, and the seams of a change.

NO_KEY = 0
"""The fingerprint that stands for no key."""

NOT_CHANGING = -(2**63)


class Stated(NamedTuple):
    """The fingerprint of the key of a store, and of the one that it gets; `NOT_CHANGING` where it keeps its own."""

    key: int = NO_KEY
    new_key: int = NOT_CHANGING


STATED = statement(tuple[str, int])("SELECT name, value FROM flue_store WHERE name IN ('key', 'new_key')")
ANY_SEALED = statement(tuple[int])(
    "SELECT 1 FROM sessions UNION ALL SELECT 1 FROM documents UNION ALL SELECT 1 FROM ledger_sessions LIMIT 1"
)
TREES = statement(tuple[int])(
    "SELECT DISTINCT s.tree_id FROM sessions s WHERE s.tree_id > :after_key ORDER BY s.tree_id LIMIT :count"
)
COUNT_TREES = statement(tuple[int])("SELECT COUNT(DISTINCT s.tree_id) FROM sessions s")
UNSTATE = statement(Nothing)("DELETE FROM flue_store WHERE name IN ('key', 'new_key')")
STATE = statement(Nothing)("INSERT INTO flue_store (name, value) VALUES (:name, :number)")
SEAMS = statement(tuple[str, int])("SELECT name, value FROM flue_store WHERE name >= :name AND name < :until")
PUT_SEAM = statement(Nothing)(f"{STATE.sql} ON CONFLICT (name) DO NOTHING")
DROP_SEAMS = statement(Nothing)(
    "DELETE FROM flue_store WHERE name IN"
    " (SELECT f.name FROM flue_store f WHERE f.name >= :name AND f.name < :until LIMIT :count)"
)


def stated_keys(tx: Transaction) -> Stated:
    """Return what a store states."""
    return Stated(**dict(tx.rows(STATED)))


def state_keys(tx: Transaction, now: Stated) -> None:
    """Have a store state keys, once nobody writes who has read what it stated before.

    Raises `KeyChanged` where that is not what it states any more.
    """
    tx.lock_writers_out()
    if tx.stated is not None and stated_keys(tx) != tx.stated:
        raise KeyChanged
    tx.stated = now
    tx.run(UNSTATE)
    for name, number, default in zip(Stated._fields, now, Stated(), strict=True):
        if number != default:
            tx.run(STATE, name=name, number=number)
    tx.states.clear()


def seams(tx: Transaction, now: bytes = b"") -> Sequence[tuple[str, int]]:
    """Return the seams of a digest, its first half or a head; by default all that there are."""
    return tx.rows(SEAMS, **_named(now))


def _named(now: bytes) -> dict[str, str]:
    return {"name": f"{SEAM}{now.hex()}", "until": f"{SEAM}{now.hex()}~"}


def over_seams(tx: Transaction, chain: Chain) -> Chain:
    """Return a chain with the seams that a transaction sees."""
    return chain.over(partial(seams, tx))


def chain_apart(tx: Transaction) -> Chain:
    """Return the chain of a transaction for use after it: with all seams that there are, if any are of use."""
    rows = () if tx.chain.is_as(tx.chain) else seams(tx)
    return tx.chain.over(lambda _: rows)


def put_seams(tx: Transaction, changed: Iterable[tuple[bytes, bytes]]) -> None:
    """Say what digests or heads were before, each behind what it is now."""
    rows = [tx.chain.seam(now, before) for now, before in changed if now != before]
    tx.run_many(PUT_SEAM, [{"name": name, "number": seal} for name, seal in rows])


def drop_seams(tx: Transaction, count: int) -> int:
    """Delete some of the seams; return how many."""
    return tx.run(DROP_SEAMS, **_named(b""), count=count)


def state_first(tx: Transaction, key: int) -> Stated:
    """Give a store a key if it has none and no row with a seal; return what it states then."""
    if key != NO_KEY and stated_keys(tx) == Stated() and tx.first(ANY_SEALED) is None:
        state_keys(tx, Stated(key))
    return stated_keys(tx)


# ---------------------------------------------------------------------------------------------------------------------
# The seals of sessions: each covers the moves, edits, marks, links and calls that hang off a session.

LogRow: TypeAlias = MoveRow | EditRow
Sealed: TypeAlias = MoveRow | EditRow | MarkRow | LinkRow
SealedRow = TypeVar("SealedRow", bound=Sealed)
Result = TypeVar("Result")

_KEYS: dict[type[tuple[object, ...]], tuple[str, str, str]] = {
    MoveRow: ("leaf_moves", "session_key", "revision"),
    EditRow: ("session_edits", "session_key", "revision, what"),
    MarkRow: ("marks", "session_key", "entry_id, kind"),
    LinkRow: ("task_links", "parent_key", "position"),
}
"""The tables of sealed rows: the name, the column that names the session, and the rest of the key."""


def _is_row(row: type[tuple[object, ...]]) -> str:
    _, owner, rest = _KEYS[row]
    return " AND ".join(f"{name} = :{name}" for name in (owner, *rest.split(", ")))


def _of_sessions(row: type[SealedRow]) -> Statement[SealedRow]:
    name, owner, rest = _KEYS[row]
    return select(row, "t", f"{name} t WHERE t.{owner} {sql.IN_KEYS} ORDER BY {owner}, {rest}")


def _around(row: type[SealedRow]) -> Statement[SealedRow]:
    """Return what reads the rows of some revisions, with those of the last before them, and of the next one."""
    name = _KEYS[row][0]
    ends = (
        f"(SELECT {of}(n.revision) FROM {name} n WHERE n.session_key = :session_key AND n.revision {side})"
        for of, side in (("MAX", "<= :revision"), ("MIN", "> :last_revision"))
    )
    low, high = ends
    return select(
        row,
        "t",
        f"{name} t WHERE t.session_key = :session_key AND t.revision >= COALESCE({low}, 0)"
        f" AND t.revision <= COALESCE({high}, :last_revision)",
    )


ALL_MOVES, ALL_EDITS = _of_sessions(MoveRow), _of_sessions(EditRow)
ALL_MARKS, ALL_LINKS = _of_sessions(MarkRow), _of_sessions(LinkRow)
MOVES_AROUND, EDITS_AROUND = _around(MoveRow), _around(EditRow)
MARK = select(MarkRow, "t", f"marks t WHERE {_is_row(MarkRow)}")
LINK = select(LinkRow, "t", f"task_links t WHERE {_is_row(LinkRow)}")
PUT_LINK = Insert(
    "task_links",
    LinkRow,
    " ON CONFLICT (parent_key, position) DO UPDATE SET entry_id = excluded.entry_id, status = excluded.status,"
    " summary = excluded.summary, seal = excluded.seal",
)
SET_SEALS = {
    row: statement(Nothing)(f"UPDATE {of[0]} SET seal = :seal WHERE {_is_row(row)}") for row, of in _KEYS.items()
}


class _Seals(Frozen):
    """A session, the seal of the last row of its log, and the sums of those of its marks and of its links."""

    key: int
    id: str
    log: int
    marks: int
    links: int


SEALS_OF_KEYS = statement(_Seals)(
    "SELECT s.session_key, s.id, s.log_seal, s.mark_seal, s.link_seal FROM sessions s"
    f" WHERE s.session_key {sql.IN_KEYS}"
)
KEYS_AFTER = statement(tuple[int])(
    "SELECT s.session_key FROM sessions s WHERE s.session_key > :after_key ORDER BY s.session_key LIMIT :count"
)
SET_SESSION_SEALS = statement(Nothing)(
    "UPDATE sessions SET log_seal = :log_seal, mark_seal = :mark_seal, link_seal = :link_seal"
    " WHERE session_key = :session_key"
)


def sealed(chain: Chain, row: SealedRow, above: int = 0) -> SealedRow:
    """Return a row with its seal."""
    return cast("SealedRow", row._replace(seal=chain.seal(_KEYS[type(row)][0], row[:-1], above)))


def _has_seal(chain: Chain, row: Sealed, above: int = 0) -> bool:
    return chain.has_seal(row.seal, _KEYS[type(row)][0], row[:-1], above)


def _sum(seals: Iterable[int]) -> int:
    """Return a sum as signed 64 bits."""
    return (sum(seals) + 2**63) % 2**64 - 2**63


# -- the log ----------------------------------------------------------------------------------------------------------


def write_log(tx: Transaction, state: SessionState, moves: Sequence[MoveRow], edits: Sequence[EditRow] = ()) -> None:
    """Write rows of one revision of the log of a session, of which the state is written afterwards."""
    for move in moves:
        tx.insert(sql.INSERT_MOVE, [row := sealed(tx.chain, move, state.log_seal)])
        state.log_seal = row.seal
    for edit in sorted(edits, key=_in_log):
        tx.insert(sql.INSERT_EDIT, [edited := sealed(tx.chain, edit, state.log_seal)])
        state.log_seal = edited.seal


# Those of a JSON array of ids that are taken.
TAKEN_IDS = statement(tuple[str])(f"SELECT e.id FROM {sql.ENTRIES_BY_ID}")


def read_rows_of_log(
    tx: Transaction, state: SessionState, after: int, last: int
) -> tuple[dict[int, MoveRow], list[EditRow]]:
    """Return the log of some revisions: the moves by revision, and the edits in order.

    Raises `CorruptStore`, also where an entry is lost from or to which the leaf moved: it tells of a lane.
    """
    where = {"session_key": state.key, "revision": after, "last_revision": last}
    rows: list[LogRow] = [*tx.rows(MOVES_AROUND, **where), *tx.rows(EDITS_AROUND, **where)]
    above = 0
    for row in sorted(rows, key=_in_log):
        revision, _ = _in_log(row)
        if revision > after and not _has_seal(tx.chain, row, above):
            raise damaged_rows(state.id)
        above = row.seal
        if revision > last:
            break
    else:
        if above != state.log_seal and tx.chain.checks:
            raise damaged_rows(state.id)
    present = [row for row in sorted(rows, key=_in_log) if after < _in_log(row)[0] <= last]
    moves = {row.revision: row for row in present if isinstance(row, MoveRow)}
    ends = {end for move in moves.values() for end in (move.from_entry, move.to_entry) if end is not None}
    if ends:
        for lost in ends - {name for (name,) in tx.rows(TAKEN_IDS, tree_id=state.tree_id, ids=json.dumps([*ends]))}:
            raise damaged_entry(lost, "is not there", state.id)
    return moves, [row for row in present if isinstance(row, EditRow)]


def _in_log(row: LogRow) -> tuple[int, str]:
    # A move is the first row of its revision. SQLite may hold anything in it.
    revision = row.revision if isinstance(row.revision, int) else -1
    return revision, str(row.what) if isinstance(row, EditRow) else ""


# -- marks and links --------------------------------------------------------------------------------------------------


def own_marks(tx: Transaction, state: SessionState) -> Sequence[MarkRow]:
    """Return the marks of a session itself, in order. Raises `CorruptStore`. O(its marks), nothing without any."""
    if not state.mark_seal:
        return ()
    return _checked(tx, state.id, tx.rows(ALL_MARKS, keys=json.dumps([state.key])), state.mark_seal)


def marks_by(tx: Transaction, keys: Collection[int]) -> list[MarkRow]:
    """Return the marks of sessions themselves. Raises `CorruptStore`. O(their marks)."""
    return [row for seals, rows in _of(tx, keys, ALL_MARKS) for row in _checked(tx, seals.id, rows, seals.marks)]


def links_of(tx: Transaction, keys: Collection[int]) -> list[tuple[str, LinkRow]]:
    """Return the task links of sessions, each behind the id of its session, in order. Raises `CorruptStore`."""
    of_ids = sorted(_of(tx, keys, ALL_LINKS), key=lambda of: of[0].id)
    return [(seals.id, row) for seals, rows in of_ids for row in _checked(tx, seals.id, rows, seals.links)]


def _of(
    tx: Transaction, keys: Collection[int], statement_: Statement[SealedRow]
) -> list[tuple[_Seals, list[SealedRow]]]:
    """Return the seals of sessions, which have their heads, and rows of each."""
    rows = defaultdict[object, list[SealedRow]](list)
    check_heads(tx, keys)
    for row in tx.rows(statement_, keys=(text := json.dumps(sorted(keys)))):
        rows[row[0]].append(row)
    return [(seals, rows[seals.key]) for seals in tx.rows(SEALS_OF_KEYS, keys=text)]


def _checked(tx: Transaction, session_id: str, rows: Sequence[SealedRow], seal: int) -> Sequence[SealedRow]:
    if tx.chain.checks and not _are_sealed(tx.chain, rows, seal):
        raise damaged_rows(session_id)
    return rows


def _are_sealed(chain: Chain, rows: Sequence[Sealed], seal: int) -> bool:
    return all(_has_seal(chain, row) for row in rows) and _sum(row.seal for row in rows) == seal


def put_mark(tx: Transaction, state: SessionState, row: MarkRow) -> None:
    """Write a mark of a session, of which the state is written afterwards."""
    drop_mark(tx, state, row.entry_id, row.kind)
    row = sealed(tx.chain, row)
    tx.insert(sql.INSERT_MARK, [row])
    state.mark_seal = _sum((state.mark_seal, row.seal))


def drop_mark(tx: Transaction, state: SessionState, entry_id: str, kind: str) -> bool:
    """Delete a mark of a session, of which the state is written afterwards; return whether it was there."""
    where = {"session_key": state.key, "entry_id": entry_id, "kind": kind}
    row = tx.first(MARK, **where)
    if row is None:
        return False
    tx.run(DROP_MARK, **where)
    state.mark_seal = _sum((state.mark_seal, -row.seal))
    return True


DROP_MARK = statement(Nothing)(f"DELETE FROM marks WHERE {_is_row(MarkRow)}")


def put_link(tx: Transaction, state: SessionState, row: LinkRow) -> None:
    """Write a link of a session, or another state of it, before the state of the session is written."""
    before = tx.first(LINK, parent_key=row.parent_key, position=row.position)
    row = sealed(tx.chain, row)
    tx.insert(PUT_LINK, [row])
    state.link_seal = _sum((state.link_seal, row.seal, 0 if before is None else -before.seal))


# -- calls ------------------------------------------------------------------------------------------------------------

_PAID = f"g WHERE g.session_key {sql.IN_KEYS}"
CALLS_OF = statement(keyed(int, CallRow._make))(f"SELECT g.tree_id, {call_columns('g')} FROM ledger {_PAID}")
PAYERS_OF = statement(keyed(int, Payer._make))(f"SELECT g.tree_id, {quoted(Payer, 'g')} FROM ledger_sessions {_PAID}")
# Of those who are gone, their names have it.
CALL_SEALS = statement(tuple[int, str, int])(
    f"SELECT g.session_key, g.id, g.call_seal FROM sessions {_PAID}"
    f" UNION ALL SELECT g.session_key, g.session_id, g.seal FROM ledger_sessions {_PAID}"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_key = g.session_key)"
)
SET_CALL_SEAL = statement(Nothing)("UPDATE sessions SET call_seal = :call_seal WHERE session_key = :session_key")
SET_PAYER_SEAL = statement(Nothing)(
    "UPDATE ledger_sessions SET seal = :seal WHERE session_key = :session_key AND NOT EXISTS"
    " (SELECT 1 FROM sessions s WHERE s.session_key = ledger_sessions.session_key)"
)
KEEP_CALL_SEALS = statement(Nothing)(
    "UPDATE ledger_sessions SET seal = COALESCE("
    "(SELECT s.call_seal FROM sessions s WHERE s.session_key = ledger_sessions.session_key), seal)"
    f" WHERE session_key {sql.IN_KEYS}"
)
PAYING_AFTER = statement(tuple[int])(
    "SELECT s.session_key FROM sessions s WHERE s.call_seal <> 0 AND s.session_key > :after_key UNION"
    " SELECT n.session_key FROM ledger_sessions n WHERE n.session_key > :after_key UNION"
    " SELECT g.session_key FROM ledger g WHERE g.session_key > :after_key ORDER BY session_key LIMIT :count"
)


def with_calls(
    tx: Transaction, state: SessionState, new: Iterable[CallRow], replaced: Iterable[CallRow], payer: Payer | None
) -> int:
    """Return the seal of a session's calls, once some were written and others deleted, and ``payer`` was named."""
    if len(tx.chain.every) > 1:
        return _sums_of_calls(tx, tx.chain, [state.key])[state.key]
    seals = [state.call_seal, *(_of_call(tx.chain, state.tree_id, call) for call in new)]
    seals += [-_of_call(tx.chain, state.tree_id, call) for call in replaced]
    return _sum(seals if payer is None else [*seals, _of_payer(tx.chain, state.tree_id, payer)])


def _of_call(chain: Chain, tree_id: int, call: CallRow) -> int:
    return chain.seal("ledger", (tree_id, *call))


def _of_payer(chain: Chain, tree_id: int, payer: Payer) -> int:
    return chain.seal("ledger_sessions", (tree_id, *payer[:-1]))


def _sums_of_calls(tx: Transaction, chain: Chain, keys: Collection[int]) -> dict[int, int]:
    """Return the seals that the calls of these sessions have, by key. O(calls)."""
    sums = dict.fromkeys(keys, 0)
    where = {"keys": json.dumps([*keys])}
    for tree_id, payer in tx.rows(PAYERS_OF, **where):
        sums[payer.session_key] += _of_payer(chain, tree_id, payer)
    for page in tx.pages(CALLS_OF, **where):
        for tree_id, call in page:
            sums[call.session_key] += _of_call(chain, tree_id, call)
    return {key: _sum([seal]) for key, seal in sums.items()}


def without_calls(tx: Transaction, keys: Collection[int]) -> dict[int, str]:
    """Return those of these sessions, living or gone, of which the ledger is not as it was written. O(their calls)."""
    stored = {key: (name, seal) for key, name, seal in tx.rows(CALL_SEALS, keys=json.dumps([*keys]))}
    wrong = {key: stored.get(key, (f"of key {key}", 0)) for key in keys}
    for chain in tx.chain.every:
        sums = _sums_of_calls(tx, chain, wrong)
        wrong = {key: (name, seal) for key, (name, seal) in wrong.items() if seal != sums[key]}
    return {key: name for key, (name, _) in wrong.items()}


def check_calls(tx: Transaction, keys: Collection[int]) -> None:
    """Raise `CorruptStore`, naming the session, if the ledger is not as it was written. O(calls of the sessions)."""
    if tx.chain.checks:
        check_heads(tx, keys)
        for name in without_calls(tx, keys).values():
            raise damaged_rows(name)


def paying(tx: Transaction) -> Iterator[list[int]]:
    """Yield pages of the keys of all sessions that the ledger has, or that say so."""
    after = -1
    # SQLite may hold anything there, behind all numbers.
    while keys := [key for (key,) in tx.rows(PAYING_AFTER, after_key=after, count=_PAGE) if isinstance(key, int)]:
        yield keys
        after = keys[-1]


def seal_calls(tx: Transaction, keys: Collection[int]) -> None:
    """Seal the calls of sessions as they are now; those that are there get their heads afterwards. O(their calls)."""
    sums = _sums_of_calls(tx, tx.chain, keys)
    tx.run_many(SET_CALL_SEAL, [{"session_key": key, "call_seal": seal} for key, seal in sums.items()])
    tx.run_many(SET_PAYER_SEAL, [{"session_key": key, "seal": seal} for key, seal in sums.items()])


def keep_call_seals(tx: Transaction, keys: Collection[int]) -> None:
    """Keep the seals of the calls of sessions that are to be deleted."""
    tx.run(KEEP_CALL_SEALS, keys=json.dumps([*keys]))


def change_calls(tx: Transaction, keys: Collection[int], change: Callable[[], Result]) -> Result:
    """Change the ledger of sessions, and seal it if it was as it was written; return the result. O(their calls)."""
    sealed, headed = {*keys} - without_calls(tx, keys).keys(), {*with_heads(tx, keys)}
    result = change()
    seal_calls(tx, sealed)
    renew_heads(tx, sealed & headed)
    return result


# -- all of them ------------------------------------------------------------------------------------------------------


def seal_anew(tx: Transaction, keys: Collection[int]) -> None:
    """Seal all rows of sessions as they are now; they get their heads afterwards. O(their rows)."""
    _seal_rows(tx, keys)
    seal_calls(tx, keys)


def _seal_rows(tx: Transaction, keys: Collection[int]) -> None:
    for key in keys:
        log, marks, links = _rows(tx, key)
        rows, above = list[Sealed](), 0
        for row in log:
            rows.append(sealed(tx.chain, row, above))
            above = rows[-1].seal
        marks, links = [sealed(tx.chain, mark) for mark in marks], [sealed(tx.chain, link) for link in links]
        for each in (*rows, *marks, *links):
            tx.run(SET_SEALS[type(each)], **each._asdict())
        sums = {"mark_seal": _sum(row.seal for row in marks), "link_seal": _sum(row.seal for row in links)}
        tx.run(SET_SESSION_SEALS, session_key=key, log_seal=above, **sums)


def all_anew(tx: Transaction) -> None:
    """Seal all rows of a store, and give its sessions their heads. O(rows), those of a session in memory."""
    last = -1
    for keys in paying(tx):
        seal_calls(tx, keys)
    while keys := [key for (key,) in tx.rows(KEYS_AFTER, after_key=last, count=_PAGE)]:
        _seal_rows(tx, keys)
        renew_heads(tx, keys)
        last = keys[-1]


def without_seals(tx: Transaction, keys: Collection[int]) -> list[int]:
    """Return those of these sessions of which a row has not its seal, or is not there, by key. O(their rows)."""
    return [seals.key for seals in tx.rows(SEALS_OF_KEYS, keys=json.dumps([*keys])) if not _hold(tx, seals)]


def _hold(tx: Transaction, seals: _Seals) -> bool:
    log, marks, links = _rows(tx, seals.key)
    above = [0, *(row.seal for row in log)]
    is_log = (
        all(_has_seal(tx.chain, row, seal) for row, seal in zip(log, above, strict=False)) and above[-1] == seals.log
    )
    return is_log and _are_sealed(tx.chain, marks, seals.marks) and _are_sealed(tx.chain, links, seals.links)


def _rows(tx: Transaction, key: int) -> tuple[list[LogRow], Sequence[MarkRow], Sequence[LinkRow]]:
    keys = json.dumps([key])
    log: list[LogRow] = [*tx.rows(ALL_MOVES, keys=keys), *tx.rows(ALL_EDITS, keys=keys)]
    return sorted(log, key=_in_log), tx.rows(ALL_MARKS, keys=keys), tx.rows(ALL_LINKS, keys=keys)
