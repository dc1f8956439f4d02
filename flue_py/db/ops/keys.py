"""The keys that a store states: their fingerprints in `flue_store`, and which of them its digests may have."""

from __future__ import annotations

from flue_py.core.json import NamedTuple
from flue_py.db.runner import KeyChanged, Nothing, Transaction
from flue_py.db.sql import statement

NO_KEY = 0
"""The fingerprint that stands for no key."""

NOT_CHANGING = -(2**63)


class Stated(NamedTuple):
    """The fingerprint of the key of a store, and of the one that it gets; `NOT_CHANGING` where it keeps its own."""

    key: int = NO_KEY
    new_key: int = NOT_CHANGING


STATED = statement(tuple[str, int])("SELECT name, value FROM flue_store WHERE name IN ('key', 'new_key')")
ANY_SESSION = statement(tuple[int])("SELECT 1 FROM sessions LIMIT 1")
TREES = statement(tuple[int])(
    "SELECT DISTINCT s.tree_id FROM sessions s WHERE s.tree_id > :after_key ORDER BY s.tree_id LIMIT :count"
)
COUNT_TREES = statement(tuple[int])("SELECT COUNT(DISTINCT s.tree_id) FROM sessions s")
UNSTATE = statement(Nothing)("DELETE FROM flue_store WHERE name IN ('key', 'new_key')")
STATE = statement(Nothing)("INSERT INTO flue_store (name, value) VALUES (:name, :number)")


def stated(tx: Transaction) -> Stated:
    """Return what a store states."""
    return Stated(**dict(tx.rows(STATED)))


def state(tx: Transaction, now: Stated) -> None:
    """Have a store state keys, once nobody writes who has read what it stated before.

    Raises `KeyChanged` where that is not what it states any more.
    """
    tx.lock_writers_out()
    if tx.stated is not None and stated(tx) != tx.stated:
        raise KeyChanged
    tx.stated = now
    tx.run(UNSTATE)
    for name, number, default in zip(Stated._fields, now, Stated(), strict=True):
        if number != default:
            tx.run(STATE, name=name, number=number)
    tx.states.clear()


def state_first(tx: Transaction, key: int) -> Stated:
    """Give a store a key if it has none and no session; return what it states then."""
    if key != NO_KEY and stated(tx) == Stated() and tx.first(ANY_SESSION) is None:
        state(tx, Stated(key))
    return stated(tx)
