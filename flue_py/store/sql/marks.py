"""The statements on marks."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.store.seam import Nothing
from flue_py.store.sql.dialects import IN_KEYS, statement
from flue_py.store.sql.takes import Keys, Session

SessionEntryKind = TypedDict("SessionEntryKind", {"session_key": int, "entry_id": str, "kind": str})
SessionKind = TypedDict("SessionKind", {"session_key": int, "kind": str})


class MarkOfSource(NamedTuple):
    """A mark of a session that a fork was made of, ``level`` forks above it; without ``entry_id``, that it has none.

    ``point_lane`` and ``point_depth`` are the place that was forked from, ``lane_id`` and ``depth`` those of the entry.
    """

    fork_key: int
    tree_id: int
    level: int
    point_lane: int
    point_depth: int
    entry_id: str | None
    kind: str | None
    value: str | None
    at: int | None
    lane_id: int | None
    depth: int | None


DROP_MARK = statement(SessionEntryKind, Nothing)(
    "DELETE FROM marks WHERE session_key = :session_key AND entry_id = :entry_id AND kind = :kind"
)
MARK = statement(SessionEntryKind, tuple[str | None])(
    "SELECT m.value FROM marks m WHERE m.session_key = :session_key AND m.entry_id = :entry_id AND m.kind = :kind"
)
MARKS = statement(Session, tuple[str, str, str | None])(
    "SELECT m.entry_id, m.kind, m.value FROM marks m WHERE m.session_key = :session_key ORDER BY m.entry_id, m.kind"
)
MARKS_OF_KIND = statement(SessionKind, tuple[str, str | None])(
    "SELECT m.entry_id, m.value FROM marks m WHERE m.session_key = :session_key AND m.kind = :kind"
)
# The labels and pins of the sessions that forks were made of, and of those that these were made of, nearest first.
# (An id is used once among the sources of a tree's forks; the level ends what only a damaged store can have: a circle.)
_SOURCE = (
    "JOIN sessions p ON p.id = f.forked_from_session AND p.tree_id = f.tree_id WHERE f.forked_from_entry IS NOT NULL"
)
MARKS_OF_SOURCES = statement(Keys, MarkOfSource)(
    "WITH RECURSIVE sources(fork_key, level, source_key, tree_id, point) AS ("
    "  SELECT f.session_key, 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sessions f {_SOURCE} AND f.session_key {IN_KEYS}"
    "  UNION ALL SELECT s.fork_key, s.level + 1, p.session_key, p.tree_id, f.forked_from_entry"
    f"   FROM sources s JOIN sessions f ON f.session_key = s.source_key {_SOURCE} AND s.level < 100000"
    ") SELECT s.fork_key, s.tree_id, s.level, a.lane_id, a.depth, m.entry_id, m.kind, m.value, m.at, e.lane_id, e.depth"
    " FROM sources s JOIN entries a ON a.tree_id = s.tree_id AND a.id = s.point"
    " LEFT JOIN marks m ON m.session_key = s.source_key AND m.kind IN ('label', 'pin')"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id ORDER BY s.fork_key, s.level"
)
# The forks that stay of sessions that go.
FORKS_THAT_STAY = statement(Keys, tuple[int])(
    "SELECT f.session_key FROM sessions p JOIN sessions f ON f.tree_id = p.tree_id AND f.forked_from_session = p.id"
    f" WHERE p.session_key {IN_KEYS} AND NOT f.session_key {IN_KEYS} AND f.forked_from_entry IS NOT NULL"
)
RETRACTED_IDS = statement(Session, tuple[str])(
    "SELECT m.entry_id FROM marks m WHERE m.session_key = :session_key AND m.kind = 'retracted'"
)
