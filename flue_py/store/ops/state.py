"""Where an operation starts: the session with the place of its leaf, what it sees, and what it did before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b

from flue_py.core.jsontext import to_json
from flue_py.core.rows import RequestRow
from flue_py.core.sessions import LeafChoice, Stored, check_name, is_storable, require_meant
from flue_py.errors import CorruptStore, EntryNotFound, IdempotencyConflict, SessionNotFound
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import state as state_sql
from flue_py.store.sql.inserts import INSERT_REQUEST
from flue_py.store.sql.takes import Held


def read_state(tx: Transaction, session_id: str) -> SessionState:
    """Return the session and the place of its leaf, locked where rows can be. Raises `SessionNotFound`."""
    known = tx.states.pop(session_id, None)
    if known is not None:
        require_meant(session_id, known.key)
        return known
    if is_storable(session_id):
        tx.lock_session(session_id)
    found = tx.first(state_sql.SESSION_STATE, id=session_id) if is_storable(session_id) else None
    return checked_state(session_id, found)


def checked_state(session_id: str, found: SessionState | None) -> SessionState:
    """Return the state that was read of a session. Raises `SessionNotFound` where that is none, or another one's."""
    if found is None:
        raise SessionNotFound(session_id)
    require_meant(session_id, found.key)
    if found.leaf is not None and found.position is None:
        raise CorruptStore(f"session {session_id!r}: its leaf {found.leaf!r} is not there; run verify()")
    return found


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
    found = tx.first(state_sql.ENTRY_AND_MARK, tree_id=state.tree_id, entry_id=entry_id, session_key=state.key)
    if found is None:
        return None, False
    position, is_retracted = found
    is_seen = position.owner_key == state.key or is_held(tx, state, position.lane_id, position.depth)
    return (position if is_seen else None), is_retracted


def is_held(tx: Transaction, state: SessionState, lane_id: int, depth: int) -> bool:
    """Return whether a place is an ancestor of the session's leaf, fork point, or lanes."""
    held = tx.first(
        state_sql.IS_HELD,
        **held_by(state),
        lane_id=lane_id,
        depth=depth,
    )
    return held is not None


def held_by(state: SessionState) -> Held:
    """Return what says which entries a session holds."""
    return Held(
        tree_id=state.tree_id, session_key=state.key, leaf=state.leaf, forked_from_entry=state.forked_from_entry
    )


def is_retracted(tx: Transaction, state: SessionState, entry_id: str) -> bool:
    """Return whether the session has retracted the entry."""
    mark = tx.first(marks_sql.MARK, session_key=state.key, entry_id=entry_id, kind="retracted")
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
        found.update(entry_id for (entry_id,) in tx.rows(state_sql.TAKEN_IDS, tree_id=state.tree_id, ids=some))
    return found


def content_digest(*parts: object) -> bytes:
    """Return a digest of an operation's content, which a retry has, and another operation has not."""
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
    row = tx.first(state_sql.REQUEST, session_key=state.key, idempotency_key=idempotency_key)
    if row is None:
        return None
    known, known_digest, result = row
    if known != operation or bytes(known_digest) != digest:
        raise IdempotencyConflict(state.id, idempotency_key)
    return str(result)


def remember_result(
    tx: Transaction, state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> None:
    """Store the result of an operation under its key, for the retry."""
    row = request_row(state, idempotency_key, operation, digest, result)
    if row is not None:
        tx.insert(INSERT_REQUEST, [row])


def request_row(
    state: SessionState, idempotency_key: str | None, operation: str, digest: bytes, result: object
) -> RequestRow | None:
    """Return the row of a result that is stored; None without a key."""
    if idempotency_key is None:
        return None
    return RequestRow(state.key, idempotency_key, operation, digest, to_json(result).decode())
