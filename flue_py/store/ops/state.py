"""Where an operation starts: the session with the place of its leaf, what it sees, and what it did before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b

from flue_py.core.jsontext import to_json
from flue_py.core.sessions import LeafChoice, Stored, check_name, is_storable, require_meant
from flue_py.core.usage import Paid, UsageTotals
from flue_py.errors import CorruptStore, EntryNotFound, IdempotencyConflict, SessionNotFound
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Row, Statement, Transaction
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import state as state_sql


def read_state(tx: Transaction, session_id: str) -> SessionState:
    """Return the session and the place of its leaf, locked where rows can be. Raises `SessionNotFound`."""
    known = tx.states.pop(session_id, None)
    if known is not None:
        require_meant(session_id, known.key)
        return known
    if is_storable(session_id):
        tx.lock_session(session_id)
    return read_state_with(tx, session_id, state_sql.SESSION_STATE)[0]


def read_state_with(tx: Transaction, session_id: str, statement: Statement) -> tuple[SessionState, Row]:
    """Return the session and the place of its leaf, and what else the statement finds. Raises `SessionNotFound`."""
    row = tx.first(statement, {"id": session_id}) if is_storable(session_id) else None
    if row is None:
        raise SessionNotFound(session_id)
    require_meant(session_id, row[0])
    place = row[_STATE_COLUMNS:]
    position = None if place[0] is None else _position(place)
    key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked_from_entry, tokens, cost, cwd = row[
        :_STATE_COLUMNS
    ]
    state = SessionState(
        key, id_, tree_id, scope, leaf, revision, kind, task_depth, forked_from_entry, tokens, cost, cwd, position
    )
    if state.leaf is not None and position is None:
        raise CorruptStore(f"session {session_id!r}: its leaf {state.leaf!r} is not there; run verify()")
    return state, place[_PLACE_COLUMNS:]


# How many columns the row of a session has, and how many the place of an entry.
_STATE_COLUMNS = 12
_PLACE_COLUMNS = 21


def _position(row: Row) -> Position:
    totals, paid = UsageTotals._make(row[2:12]), Paid._make(row[12:17])
    return Position(row[0], row[1], totals, paid, row[17], row[18], row[19], row[20] is not None)


def see_entry(tx: Transaction, state: SessionState, entry_id: str) -> Position:
    """Return the place of an entry that the session sees. Raises `EntryNotFound` for any other."""
    position = find_visible(tx, state, entry_id)
    if position is None:
        raise EntryNotFound(state.id, entry_id)
    return position


def find_visible(tx: Transaction, state: SessionState, entry_id: str) -> Position | None:
    """Return the place of an entry, or None where the session does not see it. O(lanes the session builds on)."""
    position, is_hidden = find_held(tx, state, entry_id)
    return None if is_hidden else position


def find_held(tx: Transaction, state: SessionState, entry_id: str) -> tuple[Position | None, bool]:
    """Return the place of an entry that the session holds (or None), and whether the session has retracted it."""
    if entry_id == state.leaf:
        return state.position, False
    if not is_storable(entry_id):
        return None, False
    where = {"tree_id": state.tree_id, "entry_id": entry_id, "session_key": state.key}
    row = tx.first(state_sql.ENTRY_AND_MARK, where)
    if row is None:
        return None, False
    position, is_retracted = _position(row), row[-1] is not None
    is_seen = position.owner_key == state.key or is_held(tx, state, position.lane_id, position.depth)
    return (position if is_seen else None), is_retracted


def is_held(tx: Transaction, state: SessionState, lane_id: int, depth: int) -> bool:
    """Return whether a place is an ancestor of the session's leaf, fork point, or lanes."""
    parameters = {
        "tree_id": state.tree_id,
        "leaf": state.leaf,
        "forked_from_entry": state.forked_from_entry,
        "session_key": state.key,
        "lane_id": lane_id,
        "depth": depth,
    }
    return tx.first(state_sql.IS_HELD, parameters) is not None


def is_retracted(tx: Transaction, state: SessionState, entry_id: str) -> bool:
    """Return whether the session has retracted the entry."""
    mark = tx.first(marks_sql.MARK, {"session_key": state.key, "entry_id": entry_id, "kind": "retracted"})
    return mark is not None


def place(tx: Transaction, state: SessionState, leaf: LeafChoice) -> tuple[str | None, Position | None]:
    """Return a leaf to read at, and its place. Raises `EntryNotFound` where the session does not see it."""
    if isinstance(leaf, Stored) or leaf == state.leaf:
        return state.leaf, state.position
    if leaf is None:
        return None, None
    return leaf, see_entry(tx, state, leaf)


_IDS_AT_ONCE = 5_000


def taken_ids(tx: Transaction, state: SessionState, ids: Iterable[str]) -> set[str]:
    """Return those of the ids that entries of the session's tree have. What cannot be an id is not among them."""
    found: set[str] = set()
    asked = [entry_id for entry_id in ids if is_storable(entry_id)]
    for start in range(0, len(asked), _IDS_AT_ONCE):
        some = json.dumps(asked[start : start + _IDS_AT_ONCE])
        found.update(row[0] for row in tx.rows(state_sql.TAKEN_IDS, {"tree_id": state.tree_id, "ids": some}))
    return found


def content_digest(*parts: object) -> bytes:
    """Return a digest of an operation's content, by which a retry is told from another operation."""
    try:
        text = to_json(parts)
    except ValueError:  # half of a surrogate pair, in an id that no entry can have
        text = repr(parts).encode()
    return blake2b(text, digest_size=16).digest()


def replayed_result(
    tx: Transaction, state: SessionState, idempotency_key: str | None, operation: str, digest: bytes
) -> str | None:
    """Return the stored result of an earlier operation under this key, or None where it is new.

    Raises `IdempotencyConflict` where the key was used for something else.
    """
    if idempotency_key is None:
        return None
    check_name(idempotency_key, "idempotency key")
    row = tx.first(state_sql.REQUEST, {"session_key": state.key, "idempotency_key": idempotency_key})
    if row is None:
        return None
    if row[0] != operation or bytes(row[1]) != digest:
        raise IdempotencyConflict(state.id, idempotency_key)
    return str(row[2])


def remember_result(
    tx: Transaction, state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> None:
    """Store the result of an operation under its key, for the retry."""
    row = request_row(state, idempotency_key, operation, digest, result)
    if row is not None:
        tx.run(state_sql.INSERT_REQUEST, row)


def request_row(
    state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> dict[str, object] | None:
    """Return the parameters of `state_sql.INSERT_REQUEST`; None without a key."""
    if idempotency_key is None:
        return None
    return {
        "session_key": state.key,
        "idempotency_key": idempotency_key,
        "operation": operation,
        "digest": digest,
        "result": to_json(result).decode(),
    }
