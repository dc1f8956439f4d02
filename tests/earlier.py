"""Stores as earlier versions left them."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from flue_py.core.json import payload_digest
from flue_py.db import sql
from flue_py.db.ops.verify import ALL_LANES, LANE_ATTACHMENTS, SET_DIGEST, payload_text, put_back
from flue_py.db.runner import Nothing, Transaction
from flue_py.db.sql import StoredEntry
from flue_py.db.sqlite.file import SqliteTransaction


@contextmanager
def names_unchecked() -> Iterator[None]:
    """Let the block store names with control characters, as stores did before they refused them."""
    with patch("flue_py.core.sessions._CONTROLS", re.compile("(?!)")):
        yield


def unchain(tx: Transaction) -> None:
    """Give entries the digests that they had up to format 5, each that of its payload, and sessions their slots."""
    tx.run(sql.statement(Nothing)("UPDATE sessions SET active_slot = active_at >> 22"))
    for lane in tx.rows(ALL_LANES):
        where = {"tree_id": lane.tree_id, "lane_id": lane.lane_id}
        cuts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for depth, place, sha256 in tx.rows(LANE_ATTACHMENTS, **where, low=-1, high=2**62):
            cuts[depth].append((place, sha256))
        for row in map(StoredEntry._make, tx.rows(sql.LANE_RANGE, **where, low=-1, high=2**62)):
            rest = payload_text(tx, lane.tree_id, row.payload, row.packed, row.blob)
            _, text = put_back(tx, lane.tree_id, rest, cuts[row.depth])
            tx.run(SET_DIGEST, **where, depth=row.depth, digest=payload_digest(text))


def unchain_file(path: Path) -> None:
    """Do so in a file that nobody has open."""
    with closing(sqlite3.connect(path)) as connection:
        unchain(SqliteTransaction(connection))
        connection.commit()
