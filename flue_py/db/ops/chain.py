"""The digests of a whole store, made anew: for a store of an earlier format, and for one that was rescued."""

from __future__ import annotations

from collections import defaultdict

from flue_py.core.chain import HALF, NO_PARENT
from flue_py.core.json import payload_digest
from flue_py.db import sql
from flue_py.db.ops.base import Cuts
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
    ends: dict[tuple[int, int, int], bytes] = {}
    forks = {(lane.tree_id, lane.parent_lane, lane.fork_depth) for lane in tx.rows(ALL_LANES)}
    for lane in tx.rows(ALL_LANES):
        where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
        above = NO_PARENT
        if lane.parent_lane is not None:
            above = ends.get((lane.tree_id, lane.parent_lane, lane.fork_depth), b"")
        cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for depth, place, sha256 in tx.rows(LANE_ATTACHMENTS, **where):
            cuts[depth].append((place, sha256))
        low = lane.fork_depth
        while rows := tx.rows(sql.LANE_RANGE, **where, low=low, high=low + _PAGE):
            changed = []
            for row in map(StoredEntry._make, rows):
                above = _digest(tx, lane.tree_id, row, cuts.get(row.depth, ()), above, of_payloads=of_payloads)
                if above != row.digest:
                    changed.append({**where, "depth": row.depth, "digest": above})
                if (end := (lane.tree_id, lane.lane_id, row.depth)) in forks:
                    ends[end] = above
            tx.run_many(SET_DIGEST, changed)
            low += _PAGE


def _digest(tx: Transaction, tree_id: int, row: StoredEntry, cuts: Cuts, above: bytes, *, of_payloads: bool) -> bytes:
    try:
        lost, data = put_back(tx, tree_id, payload_text(tx, tree_id, row.payload, row.packed, row.blob), cuts)
        is_sound = not lost and (not of_payloads or payload_digest(data) == row.digest)
    except CorruptStore:
        is_sound, data = False, b""
    first = tx.chain.text(above, row.kind, data)
    if not is_sound:
        first = bytes(byte ^ 0xFF for byte in first)
    try:
        return first + tx.chain.fields(above, first, row.fields)
    except UnicodeEncodeError:
        return first + bytes(HALF)
