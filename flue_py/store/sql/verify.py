"""The statements of verification."""

from __future__ import annotations

from typing import NamedTuple

from flue_py.core.lanes import Lane
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS, Paid, UsageTotals
from flue_py.store.schema.ledger_sums import all_tokens
from flue_py.store.seam import Nothing, Row
from flue_py.store.sql.dialects import BODY_BYTES, BODY_STORAGE, PAYLOAD_BYTES, PAYLOAD_STORAGE, statement
from flue_py.store.sql.documents import Name
from flue_py.store.sql.parts import PAID, TOTALS
from flue_py.store.sql.takes import TreeLane


class StoredSession(NamedTuple):
    """A session as it is stored."""

    key: int
    id: str
    tree_id: int
    leaf: str | None
    fork_point: str | None
    revision: int
    entry_count: int
    message_count: int
    spent_tokens: int
    spent_cost: int
    unpriced: int
    unknown: int
    first_message: str | None
    active_at: int
    active_slot: int
    created_at: int
    scope: str
    name: str | None
    title: str | None


class StoredEntry(NamedTuple):
    """An entry as it is stored. ``storage`` is how SQLite stores its payload."""

    depth: int
    id: str
    parent_id: str | None
    creator: int
    kind: str
    role: str | None
    counted: int
    revision: int
    ordinal: int
    created_at: int
    digest: bytes
    payload: bytes | None
    packed: bytes | None
    blob: bytes | None
    storage: str
    totals: UsageTotals
    paid: Paid


def _stored_entry(row: Row) -> StoredEntry:
    totals, paid = len(TOTAL_COLUMNS), len(PAID_COLUMNS)
    columns, sums = row[: -totals - paid], row[-totals - paid :]
    return StoredEntry._make((*columns, UsageTotals._make(sums[:totals]), Paid._make(sums[totals:])))


def _booked(row: Row) -> tuple[int, int, str, Paid]:
    tree_id, session_key, entry_id, *paid = row
    return tree_id, session_key, entry_id, Paid._make(paid)


ALL_BLOBS = statement(Nothing, tuple[int, bytes, int])("SELECT b.tree_id, b.sha256, b.size FROM blobs b")
INTEGRITY_CHECK = statement(Nothing, tuple[str])("PRAGMA integrity_check")
FOREIGN_KEY_CHECK = statement(Nothing, tuple[str, int | None, str, int])("PRAGMA foreign_key_check")
# Numbers that are compared or counted on are cast: SQLite may hold anything in them, which then is a wrong number.
ALL_SESSIONS = statement(Nothing, StoredSession)(
    "SELECT s.session_key, s.id, s.tree_id, s.leaf, s.forked_from_entry, CAST(s.revision AS BIGINT),"
    " s.entry_count, s.message_count,"
    " s.spent_tokens, s.spent_cost, s.unpriced_calls, s.unknown_calls, s.first_message, s.active_at,"
    " s.active_slot, s.created_at, s.scope, s.key, s.title FROM sessions s ORDER BY s.session_key"
)
ALL_LANES = statement(Nothing, Lane)(
    "SELECT l.tree_id, l.lane_id, l.owner_key, l.parent_lane, CAST(l.fork_depth AS BIGINT) FROM lanes l"
    " ORDER BY l.tree_id, l.fork_depth, l.lane_id"
)
LANE_ENTRIES = statement(TreeLane, _stored_entry)(
    "SELECT CAST(e.depth AS BIGINT), e.id, e.parent_id, e.session_key, e.kind, e.role, e.counted,"
    " CAST(e.revision AS BIGINT),"
    f" CAST(e.ordinal AS BIGINT), CAST(e.created_at AS BIGINT), e.digest, {PAYLOAD_BYTES},"
    f" e.packed, e.blob, {PAYLOAD_STORAGE}, {TOTALS}, {PAID} FROM entries e"
    " WHERE e.tree_id = :tree_id AND e.lane_id = :lane_id ORDER BY e.depth"
)
COUNT_ENTRIES = statement(Nothing, tuple[int])("SELECT COUNT(*) FROM entries")
LANELESS_ENTRIES = statement(Nothing, tuple[str])(
    "SELECT e.id FROM entries e LEFT JOIN lanes l ON l.tree_id = e.tree_id AND l.lane_id = e.lane_id"
    " WHERE l.lane_id IS NULL"
)
NAMELESS_CALLS = statement(Nothing, tuple[str])(
    "SELECT COALESCE(g.call_id, g.entry_id) FROM ledger g LEFT JOIN ledger_sessions n ON n.session_key = g.session_key"
    " WHERE n.session_key IS NULL"
)
# A call without an id goes by its entry, which is there, and no other call goes by that id.
LOST_CALLS = statement(Nothing, tuple[str])(
    "SELECT g.entry_id FROM ledger g WHERE g.call_id IS NULL AND NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = g.tree_id AND e.id = g.entry_id AND e.session_key = g.session_key)"
)
CALLS_TWICE = statement(Nothing, tuple[str])(
    "SELECT g.entry_id FROM ledger g JOIN ledger o ON o.scope = g.scope AND o.provider = g.provider"
    " AND o.call_id = g.entry_id WHERE g.call_id IS NULL"
)
UNUSED_BLOBS = statement(Nothing, tuple[bytes])(
    "SELECT b.sha256 FROM blobs b WHERE NOT EXISTS"
    " (SELECT 1 FROM entries e WHERE e.tree_id = b.tree_id AND e.blob = b.sha256 AND e.blob IS NOT NULL)"
    " AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = b.tree_id AND a.sha256 = b.sha256)"
)
LANE_ATTACHMENTS = statement(TreeLane, tuple[int, int, bytes])(
    "SELECT CAST(a.depth AS BIGINT), CAST(a.place AS BIGINT), a.sha256 FROM attachments a"
    " WHERE a.tree_id = :tree_id AND a.lane_id = :lane_id ORDER BY a.depth, a.place"
)
ENTRYLESS_ATTACHMENTS = statement(Nothing, tuple[int, int, int, bytes])(
    "SELECT a.tree_id, a.lane_id, a.depth, a.sha256 FROM attachments a LEFT JOIN entries e ON e.tree_id = a.tree_id"
    " AND e.lane_id = a.lane_id AND e.depth = a.depth WHERE e.id IS NULL ORDER BY a.tree_id, a.lane_id, a.depth"
)
ALL_RETRACTED = statement(Nothing, tuple[int, str])(
    "SELECT m.session_key, m.entry_id FROM marks m WHERE m.kind = 'retracted'"
)
LAST_REVISIONS = statement(Nothing, tuple[int, int])(
    "SELECT m.session_key, CAST(MAX(m.revision) AS BIGINT) FROM leaf_moves m GROUP BY m.session_key"
)
LAST_KEY = statement(Nothing, tuple[int | None])("SELECT MAX(s.session_key) FROM sessions s")
DANGLING_MARKS = statement(Nothing, tuple[str, str, str])(
    "SELECT s.id, m.entry_id, m.kind FROM marks m JOIN sessions s ON s.session_key = m.session_key"
    " LEFT JOIN entries e ON e.tree_id = s.tree_id AND e.id = m.entry_id WHERE e.id IS NULL"
)
ODD_LINKS = statement(Nothing, tuple[str, str, str | None])(
    "SELECT s.id, t.child_id, t.status FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    " WHERE t.status NOT IN ('running', 'done', 'failed')"
    " OR (t.summary IS NOT NULL AND COALESCE(t.status, 'running') = 'running') ORDER BY t.parent_key, t.position"
)
BOOKED_CALLS = statement(Nothing, _booked)(
    "SELECT g.tree_id, g.session_key, g.entry_id, COUNT(*), COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT),"
    f" CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0)"
    " FROM ledger g WHERE g.entry_id IS NOT NULL GROUP BY g.tree_id, g.session_key, g.entry_id"
)
LEDGER_SUMS = statement(Nothing, tuple[int, int, int, int, int])(
    f"SELECT g.session_key, CAST(SUM({all_tokens()}) AS BIGINT), COALESCE(CAST(SUM(g.cost) AS BIGINT), 0),"
    " COUNT(*) - COUNT(g.cost), CAST(SUM(g.unknown) AS BIGINT) FROM ledger g GROUP BY g.session_key"
)
STRAY_PAYERS = statement(Nothing, tuple[str, int | None, int])(
    "SELECT n.session_id, n.tree_id, MIN(g.tree_id) FROM ledger_sessions n JOIN ledger g"
    " ON g.session_key = n.session_key AND (n.tree_id IS NULL OR g.tree_id <> n.tree_id)"
    " GROUP BY n.session_key, n.session_id, n.tree_id ORDER BY n.session_key"
)
STRAY_PROJECTS = statement(Nothing, tuple[str, str | None, str | None])(
    "SELECT n.session_id, n.project, s.cwd FROM ledger_sessions n JOIN sessions s ON s.session_key = n.session_key"
    " WHERE n.project <> s.cwd ORDER BY n.session_key"
)
STRAY_BUDGETS = statement(Nothing, tuple[str, str | None])(
    "SELECT b.id, b.session_id FROM budgets b LEFT JOIN sessions s ON s.id = b.session_id AND s.scope = b.scope"
    " WHERE b.session_id IS NOT NULL AND s.session_key IS NULL ORDER BY b.budget_key"
)
BUDGET_SUMS = statement(Nothing, tuple[str, int, int, int, int])(
    "SELECT b.id, b.reserved, b.spent,"
    " COALESCE(CAST(SUM(CASE WHEN r.state = 'held' THEN r.amount END) AS BIGINT), 0),"
    " b.seeded + COALESCE(CAST(SUM(CASE WHEN r.state = 'committed' THEN r.used END) AS BIGINT), 0)"
    " FROM budgets b LEFT JOIN reservations r ON r.budget_key = b.budget_key"
    " GROUP BY b.budget_key, b.id, b.reserved, b.spent, b.seeded ORDER BY b.budget_key"
)
# The names alone, since the texts of all documents at once may be larger than memory.
ALL_DOCUMENTS = statement(Nothing, tuple[str, str, str, str, str, str, str | None, int, bytes])(
    "SELECT d.scope, d.kind, d.space, d.project, d.name, d.type, d.source, CAST(d.chars AS BIGINT), d.digest"
    " FROM documents d ORDER BY d.scope, d.kind, d.space, d.project, d.name"
)
DOCUMENT_TEXT = statement(Name, tuple[bytes, str])(
    f"SELECT {BODY_BYTES}, {BODY_STORAGE} FROM documents d WHERE d.scope = :scope AND d.kind = :kind"
    " AND d.space = :space AND d.project = :project AND d.name = :name"
)
ROWS_OF_NO_SESSION = {
    table: statement(Nothing, tuple[int, int, str | None, str | None])(
        f"SELECT t.{column}, COUNT(*), MIN({example}), (SELECT MIN(n.session_id) FROM ledger_sessions n"
        f" WHERE n.session_key = t.{column}) FROM {table} t LEFT JOIN sessions s ON s.session_key = t.{column}{join}"
        f" WHERE s.session_key IS NULL GROUP BY t.{column} ORDER BY t.{column}"
    )
    for table, column, example, join in (
        ("lanes", "owner_key", "e.id", " LEFT JOIN entries e ON e.tree_id = t.tree_id AND e.lane_id = t.lane_id"),
        ("task_links", "parent_key", "t.child_id", ""),
        ("leaf_moves", "session_key", "t.to_entry", ""),
        ("session_edits", "session_key", "t.what", ""),
        ("requests", "session_key", "t.idempotency_key", ""),
        ("marks", "session_key", "t.entry_id", ""),
    )
}
"""Of each table: the missing session's key, its rows (of lanes: their entries), one they name, and the session's id."""
