"""The keys that a store states: their fingerprints in `flue_store`, and which of them its digests may have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from flue_py.core.chain import SEAM, Chain
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
SEAMS = statement(tuple[str, int])("SELECT name, value FROM flue_store WHERE name >= :name AND name < :until")
PUT_SEAM = statement(Nothing)(f"{STATE.sql} ON CONFLICT (name) DO NOTHING")
DROP_SEAMS = statement(Nothing)(
    "DELETE FROM flue_store WHERE name IN"
    " (SELECT f.name FROM flue_store f WHERE f.name >= :name AND f.name < :until LIMIT :count)"
)


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
    """Give a store a key if it has none and no session; return what it states then."""
    if key != NO_KEY and stated(tx) == Stated() and tx.first(ANY_SESSION) is None:
        state(tx, Stated(key))
    return stated(tx)
