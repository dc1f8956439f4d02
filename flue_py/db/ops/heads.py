"""The heads of sessions: each covers a session's row and its leaf, and is made anew where a row is changed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter

from flue_py.core.chain import NO_PARENT, Age, Chain, Head, age_of
from flue_py.core.ledger import SessionRow
from flue_py.core.sessions import is_storable
from flue_py.db import sql
from flue_py.db.ops.keys import seams
from flue_py.db.runner import Nothing, Row, SessionState, Statement, Transaction
from flue_py.db.sql import columns, statement
from flue_py.errors import damaged_session

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
ROWS_AFTER = _rows_where("s.session_key > :after_key ORDER BY s.session_key LIMIT :count")
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


def write_state(tx: Transaction, state: SessionState) -> None:
    """Write what an append may change of a session, and give the state and its row the head that they have now."""
    state.head = state.head_by(tx.chain)
    tx.run(sql.UPDATE_STATE, **changed_columns(state))


_CHANGED, _changed = ("session_key", *sql.CHANGED), attrgetter("key", *sql.CHANGED)


def changed_columns(state: SessionState) -> dict[str, object]:
    """Return the parameters of `sql.UPDATE_STATE`."""
    return dict(zip(_CHANGED, _changed(state), strict=True))


def check_heads(tx: Transaction, keys: Collection[int]) -> None:
    """Raise `CorruptStore`, naming the session, for a row that has not its head."""
    for row in _rows(tx, keys):
        if not _has_head(tx.chain, row):
            raise damaged_session(row[_ID])


def renew_heads(tx: Transaction, keys: Collection[int]) -> None:
    """Give sessions the heads that their rows have now: after each change that `write_state` does not write."""
    rows = _rows(tx, keys)
    for row in rows:
        tx.states.pop(row[_ID], None)
    tx.run_many(SET_HEAD, [{"session_key": row[_KEY], "head": _head(tx.chain, row)} for row in rows])


def sessions_without_head(tx: Transaction) -> set[int]:
    """Return the keys of the sessions of which the rows have not their heads. O(sessions)."""
    damaged, last = set[int](), -1
    while rows := tx.rows(ROWS_AFTER, after_key=last, count=_PAGE):
        damaged.update(row[_KEY] for row in rows if not _has_head(tx.chain, row))
        last = rows[-1][_KEY]
    return damaged


def with_heads(tx: Transaction, keys: Collection[int]) -> list[int]:
    """Return those of these sessions of which the rows have their heads, by key."""
    return [row[_KEY] for row in _rows(tx, keys) if _has_head(tx.chain, row)]


def _rows(tx: Transaction, keys: Collection[int]) -> Sequence[Row]:
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
