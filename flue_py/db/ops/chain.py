"""Digests made anew: of a store of an earlier format, of one that was rescued, and of trees that get another key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from flue_py.core.chain import HALF, NO_PARENT
from flue_py.core.json import NamedTuple, payload_digest
from flue_py.core.trees import Lane
from flue_py.db import sql
from flue_py.db.ops.base import Cuts
from flue_py.db.ops.heads import renew_heads, with_heads
from flue_py.db.ops.seals import seal_anew, without_seals
from flue_py.db.ops.verify import ALL_LANES, LANE_ATTACHMENTS, payload_text, put_back
from flue_py.db.runner import Nothing, Transaction
from flue_py.db.sql import StoredEntry, statement
from flue_py.errors import CorruptStore

_PAGE = 200
SET_DIGEST = statement(Nothing)(
    "UPDATE entries SET digest = :digest WHERE tree_id = :tree_id AND lane_id = :lane_id AND depth = :depth"
)


def chain_anew(tx: Transaction, *, of_payloads: bool = False) -> None:
    """Give each entry the digest that it has in its place; ``of_payloads``: until now each had that of its payload.

    An entry that was damaged stays so, with a digest that it does not have. O(entries), a page of them in memory.
    """

    def digest_of(tree_id: int, row: StoredEntry, cuts: Cuts, above: Above) -> bytes:
        return _digest(tx, tree_id, row, cuts, above.now, of_payloads=of_payloads)

    _rewrite(tx, tx.rows(ALL_LANES), digest_of)


LANES_OF_TREE = statement(Lane)(
    "SELECT l.tree_id, l.lane_id, l.owner_key, l.parent_lane, CAST(l.fork_depth AS BIGINT) FROM lanes l"
    " WHERE l.tree_id = :tree_id ORDER BY l.fork_depth, l.lane_id"
)
KEYS_OF_TREE = statement(tuple[int])("SELECT s.session_key FROM sessions s WHERE s.tree_id = :tree_id")


def rekey_tree(tx: Transaction, tree_id: int) -> int:
    """Give the entries of a tree the digests of the new key of the store; return how many got another one.

    Those that have the digest of neither key get one that they do not have. O(bytes), a page of entries in memory.
    """
    locked = lock_tree(tx, tree_id)
    source, target = tx.chain, tx.chain.alone

    def digest_of(tree_id: int, row: StoredEntry, cuts: Cuts, above: Above) -> bytes:
        return target.moved(source, row.digest, *above, row.fields, _text(tx, tree_id, row, cuts))

    intact = set(with_heads(tx, locked)) - set(without_seals(tx, locked))
    count = _rewrite(tx, tx.rows(LANES_OF_TREE, tree_id=tree_id), digest_of)
    # Those of the others are of no key then.
    seal_anew(tx, intact)
    renew_heads(tx, intact)
    return count


def lock_tree(tx: Transaction, tree_id: int) -> set[int]:
    """Keep others from writing to the sessions of a tree, and return their keys."""
    locked: set[int] = set()
    # A fork is made by who has locked its source, so that none is missing once nothing is new.
    while new := {key for (key,) in tx.rows(KEYS_OF_TREE, tree_id=tree_id)} - locked:
        locked |= new
        tx.lock_sessions(locked)
    tx.states.clear()
    return locked


class Above(NamedTuple):
    """The digest above an entry as it was, and as it is now."""

    before: bytes
    now: bytes


def _rewrite(
    tx: Transaction, lanes: Sequence[Lane], digest_of: Callable[[int, StoredEntry, Cuts, Above], bytes]
) -> int:
    """Give each entry of whole trees the digest that is returned for it; return how many had another one."""
    count, ends = 0, dict[tuple[int, int, int], Above]()
    forks = {(lane.tree_id, lane.parent_lane, lane.fork_depth) for lane in lanes}
    for lane in lanes:
        where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
        above = Above(NO_PARENT, NO_PARENT)
        if lane.parent_lane is not None:
            above = ends.get((lane.tree_id, lane.parent_lane, lane.fork_depth), Above(b"", b""))
        cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for depth, place, sha256 in tx.rows(LANE_ATTACHMENTS, **where):
            cuts[depth].append((place, sha256))
        low = lane.fork_depth
        while rows := tx.rows(sql.LANE_RANGE, **where, low=low, high=low + _PAGE):
            changed = []
            for row in map(StoredEntry._make, rows):
                above = Above(row.digest, digest_of(lane.tree_id, row, cuts.get(row.depth, ()), above))
                if above.now != row.digest:
                    changed.append({**where, "depth": row.depth, "digest": above.now})
                if (end := (lane.tree_id, lane.lane_id, row.depth)) in forks:
                    ends[end] = above
            tx.run_many(SET_DIGEST, changed)
            count += len(changed)
            low += _PAGE
    return count


def _text(tx: Transaction, tree_id: int, row: StoredEntry, cuts: Cuts) -> bytes | None:
    """Return the text of a payload; None if it cannot be read, or not all of it."""
    try:
        lost, data = put_back(tx, tree_id, payload_text(tx, tree_id, row.payload, row.packed, row.blob), cuts)
    except CorruptStore:
        return None
    return None if lost else data


def _digest(tx: Transaction, tree_id: int, row: StoredEntry, cuts: Cuts, above: bytes, *, of_payloads: bool) -> bytes:
    data = _text(tx, tree_id, row, cuts)
    is_sound = data is not None and (not of_payloads or payload_digest(data) == row.digest)
    data = data or b""
    first = tx.chain.text(above, row.kind, data)
    if not is_sound:
        first = bytes(byte ^ 0xFF for byte in first)
    try:
        return first + tx.chain.fields(above, first, row.fields)
    except UnicodeEncodeError:
        return first + bytes(HALF)
