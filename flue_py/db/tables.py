"""The tables, as the migrations make them. `docs/format.md` describes each for a reader with ``sqlite3`` alone.

The columns of a table are the fields of its row, in their order. Internal keys are integers; a public id is stored
once. Payloads are JSON *text* (key order, bytes and NUL escapes survive). Rows of history carry ``tree_id``, so that a
tree can live on one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from flue_py.core.ledger import (
    SEALS,
    AttachmentRow,
    BlobRow,
    BudgetRow,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    ReservationRow,
    SessionRow,
)
from flue_py.core.sessions import DocumentRow
from flue_py.core.usage import PAID_COLUMNS

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)

# SQLite makes INTEGER PRIMARY KEY the rowid itself, which saves an index; elsewhere the keys are 64-bit.
KEY = BigInteger().with_variant(Integer(), "sqlite")

# SQLite compares text byte by byte. PostgreSQL would follow the database's language, in which neither the order of
# ids nor the range of a prefix is the same.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")

# Columns that earlier formats did not have, and what they are in older rows.
_ADDED = {
    **dict.fromkeys((*PAID_COLUMNS, "active_at", "active_slot", "reported", "unknown", "seal", "gap"), "0"),
    **dict.fromkeys(SEALS, "0"),
    **dict.fromkeys(("period", "tz", "head"), "''"),
}


def _columns(
    row: type[tuple[Any, ...]], *special: Column[Any], extra: Mapping[int, Column[Any]] | None = None
) -> Iterator[Column[Any]]:
    """Yield the columns of a row, in its order: ``special`` ones in their places, ``extra`` ones at these places."""
    specials, extras = {column.name: column for column in special}, dict(extra or {})
    for place, (name, kind) in enumerate(row.__annotations__.items()):
        if place in extras:
            yield extras[place]
        default = text(_ADDED[name]) if name in _ADDED else None
        declared = repr(kind)
        type_: Any = LargeBinary if "bytes" in declared else BigInteger if "int" in declared else TEXT
        plain = Column(name, type_, nullable="None" in declared, server_default=default)
        yield specials.get(name, plain)


def _number(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _key(name: str) -> Column[Any]:
    return Column(name, KEY, primary_key=True, autoincrement=False)


def _owner(name: str, key: str) -> Column[Any]:
    """Return a column that names a row by its key, and goes with it."""
    return Column(name, BigInteger, ForeignKey(key, ondelete="CASCADE"), nullable=False)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index of the rows where something is so."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


store_state = Table(
    "flue_store",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("value", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

sessions = Table(
    "sessions",
    metadata,
    *_columns(SessionRow, _key("session_key"), extra={2: _number("tree_id")}),
    CheckConstraint("kind IN ('root', 'fork', 'task')", name="kind"),
    UniqueConstraint("id"),
    _partial("uq_sessions_scope_key", "scope", "key", where="key IS NOT NULL AND trashed_at IS NULL", unique=True),
    # An append changes active_at, but its slot every four minutes only: most appends leave these indexes alone
    # (decision 0003).
    Index("ix_sessions_active_slot", "active_slot", "session_key"),
    Index("ix_sessions_scope_active_slot", "scope", "active_slot", "session_key"),
    Index("ix_sessions_created_at", "created_at", "session_key"),
    Index(
        "ix_sessions_title",
        text("substr(COALESCE(NULLIF(title, ''), NULLIF(auto_title, ''), ''), 1, 200)"),
        "session_key",
    ),
    Index("ix_sessions_tree_id", "tree_id"),
)

task_links = Table(
    "task_links",
    metadata,
    *_columns(LinkRow, _owner("parent_key", "sessions.session_key")),
    PrimaryKeyConstraint("parent_key", "position"),
    UniqueConstraint("parent_key", "child_id"),
    Index("ix_task_links_child_id", "child_id"),
    sqlite_with_rowid=False,
)

lanes = Table(
    "lanes",
    metadata,
    *_columns(LaneRow, extra={0: _number("tree_id")}),
    PrimaryKeyConstraint("tree_id", "lane_id"),
    CheckConstraint("(parent_lane IS NULL) = (fork_depth = -1)", name="root"),
    Index("ix_lanes_owner_key", "owner_key"),
    Index("ix_lanes_parent", "tree_id", "parent_lane", "fork_depth"),
    sqlite_with_rowid=False,
)

entries = Table(
    "entries",
    metadata,
    # Fields that are read without the payload stand before it: behind a large one, they would cost reading that.
    *_columns(EntryRow, extra={0: _number("tree_id")}),
    PrimaryKeyConstraint("tree_id", "lane_id", "depth"),
    # By the id first: calls are looked up by the ids of entries of any tree (decision 0003).
    UniqueConstraint("id", "tree_id"),
    CheckConstraint(
        "(payload IS NOT NULL AND packed IS NULL AND blob IS NULL)"
        " OR (payload IS NULL AND packed IS NOT NULL AND blob IS NULL)"
        " OR (payload IS NULL AND packed IS NULL AND blob IS NOT NULL)",
        name="payload",
    ),
    _partial("ix_entries_compaction", "tree_id", "lane_id", "depth", where="kind = 'compaction'"),
    _partial("ix_entries_exclusion", "tree_id", "lane_id", "depth", where="kind = 'exclusion'"),
    # No message has a row of it.
    _partial(
        "ix_entries_setting", "tree_id", "lane_id", "depth", where="kind IN ('model_change', 'thinking_level_change')"
    ),
    _partial("ix_entries_blob", "tree_id", "blob", where="blob IS NOT NULL"),
)

blobs = Table(
    "blobs", metadata, *_columns(BlobRow, extra={0: _number("tree_id")}), PrimaryKeyConstraint("tree_id", "sha256")
)

# Which large base64 text of an entry's payload is stored once per tree, in `blobs`, and where it was cut out of it.
attachments = Table(
    "attachments",
    metadata,
    *_columns(AttachmentRow, extra={0: _number("tree_id")}),
    PrimaryKeyConstraint("tree_id", "lane_id", "depth", "place"),
    Index("ix_attachments_sha256", "tree_id", "sha256"),
    sqlite_with_rowid=False,
)

leaf_moves = Table(
    "leaf_moves",
    metadata,
    *_columns(MoveRow, _owner("session_key", "sessions.session_key")),
    PrimaryKeyConstraint("session_key", "revision"),
    sqlite_with_rowid=False,
)

# What was changed of a session beside its history: its title, its metadata, its marks.
session_edits = Table(
    "session_edits",
    metadata,
    *_columns(EditRow, _owner("session_key", "sessions.session_key")),
    PrimaryKeyConstraint("session_key", "revision", "what"),
    sqlite_with_rowid=False,
)

requests = Table(
    "requests",
    metadata,
    *_columns(RequestRow, _owner("session_key", "sessions.session_key")),
    PrimaryKeyConstraint("session_key", "idempotency_key"),
    sqlite_with_rowid=False,
)

marks = Table(
    "marks",
    metadata,
    *_columns(MarkRow, _owner("session_key", "sessions.session_key")),
    PrimaryKeyConstraint("session_key", "entry_id", "kind"),
    CheckConstraint("kind IN ('label', 'pin', 'retracted')", name="kind"),
    sqlite_with_rowid=False,
)

# A paid call whose id is that of its entry, drawn here, has no call_id of its own: nobody else can have reported it, so
# that it needs no place in the unique index (decision 0003).
ledger = Table(
    "ledger",
    metadata,
    *_columns(CallRow, Column("call_id", TEXT), extra={4: _number("tree_id")}),
    Column("number", KEY, Identity(), primary_key=True),
    CheckConstraint("call_id IS NOT NULL OR entry_id IS NOT NULL", name="call"),
    Index("ix_ledger_at", "at"),
    Index("ix_ledger_session_key", "session_key"),
    _partial("uq_ledger_call_id", "scope", "provider", "call_id", where="call_id IS NOT NULL", unique=True),
)

# Who paid, once per session instead of in every row; like the ledger, it outlives the session.
ledger_sessions = Table(
    "ledger_sessions",
    metadata,
    *_columns(Payer, _key("session_key"), extra={2: Column("tree_id", BigInteger)}),
    UniqueConstraint("session_id", "session_key"),
    Index("ix_ledger_sessions_tree_id", "tree_id"),
)

# What may be spent, and what has been: by a session, by a session with its tasks, or in a scope. What was spent is what
# the budget began with (seeded) and what its committed reservations used; reserved is what those held set aside. With a
# period both are 0: the ledger says what was spent in it.
budgets = Table(
    "budgets",
    metadata,
    *_columns(BudgetRow, extra={0: _key("budget_key")}),
    CheckConstraint("covers IN ('session', 'tasks', 'scope')", name="covers"),
    CheckConstraint("unit IN ('tokens', 'picodollars')", name="unit"),
    CheckConstraint("(session_id IS NULL) = (covers = 'scope')", name="session"),
    CheckConstraint("period IN ('', 'day', 'week', 'month')", name="period"),
    CheckConstraint("(period = '') = (tz = '')", name="tz"),
    UniqueConstraint("id"),
    UniqueConstraint("session_id", "covers", "unit", "period"),
    _partial("uq_budgets_scope", "scope", "unit", "period", where="session_id IS NULL", unique=True),
)

# What was set aside for a call that is under way, in each budget that covers it, and what became of it.
reservations = Table(
    "reservations",
    metadata,
    *_columns(ReservationRow, extra={1: _owner("budget_key", "budgets.budget_key")}),
    PrimaryKeyConstraint("reservation_id", "budget_key"),
    CheckConstraint("state IN ('held', 'committed', 'released', 'expired')", name="state"),
    _partial("ix_reservations_held", "budget_key", "expires_at", where="state = 'held'"),
    sqlite_with_rowid=False,
)

# Texts with a name that belong to the store: memories of agents, and files for agents to read. In the order of what
# lists them, so that the text, which may be long, comes last.
documents = Table(
    "documents",
    metadata,
    *_columns(DocumentRow),
    PrimaryKeyConstraint("scope", "kind", "space", "project", "name"),
    CheckConstraint("kind IN ('memory', 'file')", name="kind"),
)

HISTORY_VIEW = """\
CREATE VIEW history AS
SELECT s.id AS created_by, e.id AS id, e.parent_id AS parent_id,
       e.depth AS depth, e.kind AS kind, e.role AS role, e.revision AS revision, e.created_at AS created_at,
       e.payload AS payload, e.tree_id AS tree_id
  FROM entries e LEFT JOIN sessions s ON s.session_key = e.session_key
"""
