"""Digests made anew: of a store of an earlier format, of one that was rescued, and of trees that get another key."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeAlias, TypeVar

from flue_py.core.chain import Chain, Fields, UncheckedChain
from flue_py.core.json import payload_digest
from flue_py.core.trees import Lane
from flue_py.db import sql
from flue_py.db.ops.base import Cuts
from flue_py.db.ops.heads import HEADS_OF_KEYS, renew_heads, with_heads
from flue_py.db.ops.keys import put_seams
from flue_py.db.ops.seals import seal_anew, seal_calls, without_calls, without_seals
from flue_py.db.ops.transfer import GONE_PAYERS
from flue_py.db.ops.verify import ALL_LANES, LANE_ATTACHMENTS, payload_text, put_back
from flue_py.db.runner import Nothing, Transaction
from flue_py.db.sql import StoredEntry, statement
from flue_py.errors import CorruptStore

_PAGE = 200
_WEIGHT = 8192
"""A text of so many bytes takes as long as an entry does."""

Next = TypeVar("Next")
Result = TypeVar("Result")
SET_DIGEST = statement(Nothing)(
    "UPDATE entries SET digest = :digest WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)


class _OfPayloads(Chain):
    """The digests of formats before the chain: each is that of its payload."""

    def has_text(self, digest: bytes, above: bytes, kind: str, text: bytes) -> bool:
        return payload_digest(text) == digest

    def has_fields(self, digest: bytes, above: bytes, fields: Fields) -> bool:
        return True


def chain_anew(tx: Transaction, *, of_payloads: bool = False) -> None:
    """Give each entry the digest that it has in its place; ``of_payloads``: until now each had that of its payload.

    An entry that was damaged stays so, with a digest that it does not have. O(entries), a page of them in memory.
    """
    source = _OfPayloads() if of_payloads else UncheckedChain()
    for lane in tx.rows(ALL_LANES):
        low = lane.fork_depth
        while page := _read_page(tx, lane, low, source, tx.chain, _PAGE):
            _set_digests(tx, lane, page)
            low += _PAGE


LANES_OF_TREE = statement(Lane)(
    "SELECT l.tree_id, l.lane_id, l.owner_key, l.parent_lane, CAST(l.fork_depth AS BIGINT) FROM lanes l"
    " WHERE l.tree_id = :tree_id ORDER BY l.fork_depth, l.lane_id"
)
KEYS_OF_TREE = statement(tuple[int])("SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id")


LEAVES = statement(tuple[int])(
    f"SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id AND s.leaf {sql.IN_IDS}"
)
Part: TypeAlias = tuple[Next | None, int]
"""Where the next part of some work begins, None behind the last one, and how many entries have another digest."""


def rekey_entries(tx: Transaction, place: tuple[int, ...] | None, *, tree_id: int, most: int) -> Part[tuple[int, ...]]:
    """Give some entries of a tree the digests of the new key of the store, from a place on, and their leaves' heads.

    Those that have the digest of neither key get one that they do not have. Above an entry is always one that has its
    new digest. A place is of a lane, by where it forks and its id, and of a depth. O(lanes), a page in memory.
    """
    lock_tree(tx, tree_id)
    lanes, size, count = tx.rows(LANES_OF_TREE, tree_id=tree_id), min(most, _PAGE), 0
    forks = {(lane.parent_lane, lane.fork_depth) for lane in lanes}
    *done, last = place or (0,)
    for lane in lanes:
        here = [lane.fork_depth, lane.lane_id]
        if here < done:
            continue
        low = last if here == done else lane.fork_depth
        while page := _read_page(tx, lane, low, tx.chain, tx.chain.alone, size):
            low += size
            count += _write_page(tx, lane, page, forks)
            most -= sum(1 + length // _WEIGHT for _, _, length in page)
            if most <= 0:
                return (*here, low), count
    return None, count


def _write_page(tx: Transaction, lane: Lane, page: _Page, forks: Collection[tuple[int | None, int]]) -> int:
    """Write new digests, and what those were that sessions and other pages are built on; return how many are others."""
    ends = [(now, row.digest) for row, now, _ in page if (lane.lane_id, row.depth) in forks]
    put_seams(tx, [*ends, (page[-1][1], page[-1][0].digest)])
    leaves = tx.rows(LEAVES, tree_id=lane.tree_id, ids=json.dumps([str(row.id) for row, *_ in page]))
    keys = with_heads(tx, [key for (key,) in leaves])
    return _with_new_heads(tx, keys, lambda: _set_digests(tx, lane, page))


def rekey_sessions(tx: Transaction, place: int | None, *, tree_id: int, most: int) -> Part[int]:
    """Give the rows beside the entries of some sessions of a tree the seals of the new key, behind a session's key.

    Those that have no seals or no head of either key stay so. O(sessions), and the rows of ``most``.
    """
    page = sorted(key for key in lock_tree(tx, tree_id) if place is None or key > place)[:most]
    keys = with_heads(tx, page)
    intact = set(keys) - set(without_seals(tx, keys)) - without_calls(tx, keys).keys()
    _with_new_heads(tx, intact, lambda: seal_anew(tx, intact))
    return page[-1] if len(page) == most else None, 0


def rekey_payers(tx: Transaction, place: int | None, *, most: int) -> Part[int]:
    """Give calls of sessions that are gone the seals of the new key, behind a session's key. O(their calls)."""
    page = [payer.session_key for payer in tx.rows(GONE_PAYERS, after_key=-1 if place is None else place, count=most)]
    seal_calls(tx, set(page) - without_calls(tx, page).keys())
    return page[-1] if len(page) == most else None, 0


def _with_new_heads(tx: Transaction, keys: Collection[int], change: Callable[[], Result]) -> Result:
    """Change rows or leaves of sessions, and give them their heads; return what the change does."""
    were = {head.session_id: head.value for head in tx.rows(HEADS_OF_KEYS, keys=json.dumps([*keys]))}
    result = change()
    renew_heads(tx, keys)
    now = tx.rows(HEADS_OF_KEYS, keys=json.dumps([*keys]))
    put_seams(tx, ((head.value, were[head.session_id]) for head in now))
    return result


def lock_tree(tx: Transaction, tree_id: int) -> set[int]:
    """Keep others from writing to the sessions of a tree, and return their keys."""
    locked: set[int] = set()
    # A fork is made by who has locked its source, so that none is missing once nothing is new.
    while new := {key for (key,) in tx.rows(KEYS_OF_TREE, tree_id=tree_id)} - locked:
        locked |= new
        tx.lock_sessions(locked)
    tx.states.clear()
    return locked


_Page: TypeAlias = list[tuple[StoredEntry, bytes, int]]
"""Entries of a lane, with the digest that each gets, and the size of its payload."""


def _read_page(tx: Transaction, lane: Lane, low: int, source: Chain, target: Chain, size: int) -> _Page:
    """Return some entries of a lane below a depth, with their digests in another chain."""
    where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id, "low": low, "high": low + size}
    cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for depth, place, sha256 in tx.rows(LANE_ATTACHMENTS, **where):
        cuts[depth].append((place, sha256))
    page, above, new_above = _Page(), b"", b""
    for row in map(StoredEntry._make, tx.rows(sql.LANE_RANGE, **where)):
        if not page:
            above = new_above = row.digest_above
        text = _text(tx, lane.tree_id, row, cuts.get(row.depth, ()))
        new_above = target.moved(source, row.digest, above, new_above, row.fields, text)
        above = row.digest
        page.append((row, new_above, len(text or b"")))
    return page


def _set_digests(tx: Transaction, lane: Lane, page: _Page) -> int:
    """Write the digests that are others; return how many."""
    where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
    changed = [{**where, "depth": row.depth, "digest": digest} for row, digest, _ in page if digest != row.digest]
    tx.run_many(SET_DIGEST, changed)
    return len(changed)


def _text(tx: Transaction, tree_id: int, row: StoredEntry, cuts: Cuts) -> bytes | None:
    """Return the text of a payload; None if it cannot be read, or not all of it."""
    try:
        lost, data = put_back(tx, tree_id, payload_text(tx, tree_id, row.payload, row.packed, row.blob), cuts)
    except CorruptStore:
        return None
    return None if lost else data
