"""The statements that page through the entries a session sees: what it inherited by depth, then its own as added.

Its own are in its lanes, in order in each (see `own`). So a page begins in every lane where halving finds the first
entry that is not before it; no more of a lane is looked at than fits the page. Of one kind, the rest of the lane is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypedDict

from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.store.seam import Statement
from flue_py.store.sql.dialects import statement
from flue_py.store.sql.parts import ENTRY, IN_SPAN, WITH_SPANS
from flue_py.store.sql.rows import StoredEntry
from flue_py.store.sql.takes import TreeEntry

# What a page may take: where it begins, by revision and ordinal or by depth, and which kind it is of.
Page = TypedDict(
    "Page",
    {
        "tree_id": int, "session_key": int, "revision": int, "ordinal": int,
        "lane_id": int, "depth": int, "from_depth": int, "kind": str, "count": int,
    },
)  # fmt: skip


class Place(NamedTuple):
    """Where an entry is in its part: by depth in what was inherited, by revision and ordinal in what was added."""

    session_key: int
    depth: int
    revision: int
    ordinal: int


PLACE = statement(TreeEntry, Place)(
    "SELECT e.session_key, e.depth, e.revision, e.ordinal FROM entries e"
    " WHERE e.tree_id = :tree_id AND e.id = :entry_id"
)
_INDEXED = (COMPACTION, EXCLUSION)
"""Kinds with an index of their own, which serves only a statement that names them."""
_ANY_OTHER = ""


def _begins(entry: str) -> str:
    return (
        f"{entry}.session_key = :session_key AND ({entry}.revision > :revision"
        f" OR ({entry}.revision = :revision AND {entry}.ordinal >= :ordinal))"
    )


# In each lane of the session, where low is high: the deepest place before the one that a page begins at.
_WITH_HALVED = (
    "WITH RECURSIVE halved(lane_id, low, high) AS ("
    "  SELECT l.lane_id,"
    f"   CASE WHEN {_begins('t')} THEN l.fork_depth ELSE t.depth END,"
    f"   CASE WHEN {_begins('t')} THEN t.depth - 1 ELSE t.depth END"
    "   FROM lanes l JOIN entries t ON t.tree_id = :tree_id AND t.lane_id = l.lane_id AND t.depth ="
    "    (SELECT MAX(d.depth) FROM entries d WHERE d.tree_id = :tree_id AND d.lane_id = l.lane_id)"
    "   WHERE l.owner_key = :session_key"
    "  UNION ALL SELECT h.lane_id,"
    f"   CASE WHEN {_begins('e')} THEN h.low ELSE e.depth END,"
    f"   CASE WHEN {_begins('e')} THEN e.depth - 1 ELSE h.high END"
    "   FROM halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    "    AND e.depth = (h.low + h.high + 1) / 2 WHERE h.low < h.high) "
)


def own_page(kind: str | None, *, newest_first: bool) -> Statement[..., StoredEntry]:
    """Return the statement for a page of what a session added: from a revision and ordinal on, or before them."""
    return _own_page(_named(kind), newest_first)


def inherited_page(kind: str | None, *, newest_first: bool) -> Statement[..., StoredEntry]:
    """Return the statement for a page of a path: what is deeper than a depth, or above it."""
    return _inherited_page(_named(kind), newest_first)


def _named(kind: str | None) -> str | None:
    return kind if kind is None or kind in _INDEXED else _ANY_OTHER


@lru_cache(maxsize=8)
def _own_page(kind: str | None, newest_first: bool) -> Statement[..., StoredEntry]:
    where = "e.depth <= h.low AND e.session_key = :session_key" if newest_first else "e.depth > h.low"
    if kind is None:
        where += " AND e.depth > h.low - :count" if newest_first else " AND e.depth <= h.low + :count"
    lanes = "halved h JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = h.lane_id"
    order = "e.revision DESC, e.ordinal DESC" if newest_first else "e.revision, e.ordinal"
    return statement(Page, StoredEntry)(
        _WITH_HALVED + _page(f"{lanes} AND {where}{_of(kind)} WHERE h.low = h.high", order)
    )


@lru_cache(maxsize=8)
def _inherited_page(kind: str | None, newest_first: bool) -> Statement[..., StoredEntry]:
    where = "e.depth < :from_depth" if newest_first else "e.depth > :from_depth"
    if kind is None:
        where += " AND e.depth >= :from_depth - :count" if newest_first else " AND e.depth <= :from_depth + :count"
    order = "e.depth DESC" if newest_first else "e.depth"
    return statement(Page, StoredEntry)(
        WITH_SPANS + _page(f"spans s JOIN entries e ON {IN_SPAN} AND {where}{_of(kind)}", order)
    )


def _page(found: str, order: str) -> str:
    # Which entries, and only then their payloads.
    return (
        f"SELECT {ENTRY} FROM (SELECT e.lane_id, e.depth FROM {found} ORDER BY {order} LIMIT :count) p"
        f" JOIN entries e ON e.tree_id = :tree_id AND e.lane_id = p.lane_id AND e.depth = p.depth ORDER BY {order}"
    )


def _of(kind: str | None) -> str:
    if kind is None:
        return ""
    return " AND e.kind = :kind" if kind == _ANY_OTHER else f" AND e.kind = '{kind}'"
