"""The tables, as the migrations make them. `docs/format.md` describes each for a reader with ``sqlite3`` alone.

Internal keys are integers; a public id is stored once. Payloads are JSON *text* (key order, bytes and NUL escapes
survive). Rows of history carry ``tree_id``, so that a tree can live on one shard.
"""

from __future__ import annotations

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

from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS

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
    Column("session_key", KEY, primary_key=True, autoincrement=False),
    Column("id", TEXT, nullable=False),
    Column("tree_id", BigInteger, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("key", TEXT),
    Column("title", TEXT),
    Column("kind", TEXT, nullable=False),
    Column("task_depth", BigInteger, nullable=False),
    Column("forked_from_session", TEXT),
    Column("forked_from_entry", TEXT),
    Column("leaf", TEXT),
    Column("revision", BigInteger, nullable=False),
    Column("metadata", TEXT, nullable=False),
    Column("cwd", TEXT),
    Column("config_path", TEXT),
    Column("completed_at", BigInteger),
    Column("trashed_at", BigInteger),
    Column("entry_count", BigInteger, nullable=False),
    Column("message_count", BigInteger, nullable=False),
    Column("first_message", TEXT),
    Column("spent_tokens", BigInteger, nullable=False),
    Column("spent_cost", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("auto_title", TEXT),
    Column("unpriced_calls", BigInteger, nullable=False, server_default=text("0")),
    Column("active_at", BigInteger, nullable=False, server_default=text("0")),
    Column("unknown_calls", BigInteger, nullable=False, server_default=text("0")),
    Column("active_slot", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("kind IN ('root', 'fork', 'task')", name="kind"),
    UniqueConstraint("id"),
    Index(
        "uq_sessions_scope_key",
        "scope",
        "key",
        unique=True,
        sqlite_where=text("key IS NOT NULL AND trashed_at IS NULL"),
        postgresql_where=text("key IS NOT NULL AND trashed_at IS NULL"),
    ),
    # An append changes active_at, but its slot every four seconds only: most appends leave these indexes alone
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
    Column("parent_key", BigInteger, ForeignKey("sessions.session_key", ondelete="CASCADE"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("task_id", TEXT, nullable=False),
    Column("child_id", TEXT, nullable=False),
    Column("entry_id", TEXT),
    Column("status", TEXT),
    Column("summary", TEXT),
    PrimaryKeyConstraint("parent_key", "position"),
    UniqueConstraint("parent_key", "child_id"),
    Index("ix_task_links_child_id", "child_id"),
    sqlite_with_rowid=False,
)

lanes = Table(
    "lanes",
    metadata,
    Column("tree_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("owner_key", BigInteger, nullable=False),
    Column("parent_lane", BigInteger),
    Column("fork_depth", BigInteger, nullable=False),
    PrimaryKeyConstraint("tree_id", "lane_id"),
    CheckConstraint("(parent_lane IS NULL) = (fork_depth = -1)", name="root"),
    Index("ix_lanes_owner_key", "owner_key"),
    Index("ix_lanes_parent", "tree_id", "parent_lane", "fork_depth"),
    sqlite_with_rowid=False,
)

entries = Table(
    "entries",
    metadata,
    Column("tree_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("depth", BigInteger, nullable=False),
    Column("id", TEXT, nullable=False),
    Column("parent_id", TEXT),
    Column("kind", TEXT, nullable=False),
    Column("role", TEXT),
    Column("source", TEXT),
    Column("session_key", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("counted", BigInteger, nullable=False),
    # What is read without the payload stands before it: behind a large one, it would cost reading that.
    *[Column(name, BigInteger, nullable=False) for name in TOTAL_COLUMNS],
    *[Column(name, BigInteger, nullable=False, server_default=text("0")) for name in PAID_COLUMNS],
    Column("digest", LargeBinary, nullable=False),
    Column("blob", LargeBinary),
    Column("packed", LargeBinary),
    Column("extra", TEXT),
    Column("payload", TEXT),
    PrimaryKeyConstraint("tree_id", "lane_id", "depth"),
    # By the id first: calls are looked up by the ids of entries of any tree (decision 0003).
    UniqueConstraint("id", "tree_id"),
    CheckConstraint(
        "(payload IS NOT NULL AND packed IS NULL AND blob IS NULL)"
        " OR (payload IS NULL AND packed IS NOT NULL AND blob IS NULL)"
        " OR (payload IS NULL AND packed IS NULL AND blob IS NOT NULL)",
        name="payload",
    ),
    Index(
        "ix_entries_compaction",
        "tree_id",
        "lane_id",
        "depth",
        sqlite_where=text("kind = 'compaction'"),
        postgresql_where=text("kind = 'compaction'"),
    ),
    Index(
        "ix_entries_exclusion",
        "tree_id",
        "lane_id",
        "depth",
        sqlite_where=text("kind = 'exclusion'"),
        postgresql_where=text("kind = 'exclusion'"),
    ),
    # No message has a row of it.
    Index(
        "ix_entries_setting",
        "tree_id",
        "lane_id",
        "depth",
        sqlite_where=text("kind IN ('model_change', 'thinking_level_change')"),
        postgresql_where=text("kind IN ('model_change', 'thinking_level_change')"),
    ),
    Index(
        "ix_entries_blob",
        "tree_id",
        "blob",
        sqlite_where=text("blob IS NOT NULL"),
        postgresql_where=text("blob IS NOT NULL"),
    ),
)

blobs = Table(
    "blobs",
    metadata,
    Column("tree_id", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tree_id", "sha256"),
)

# Which large base64 text of an entry's payload is stored once per tree, in `blobs`, and where it was cut out of it.
attachments = Table(
    "attachments",
    metadata,
    Column("tree_id", BigInteger, nullable=False),
    Column("lane_id", BigInteger, nullable=False),
    Column("depth", BigInteger, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tree_id", "lane_id", "depth", "place"),
    Index("ix_attachments_sha256", "tree_id", "sha256"),
    sqlite_with_rowid=False,
)

leaf_moves = Table(
    "leaf_moves",
    metadata,
    Column("session_key", BigInteger, ForeignKey("sessions.session_key", ondelete="CASCADE"), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("from_entry", TEXT),
    Column("to_entry", TEXT),
    Column("reason", TEXT, nullable=False),
    Column("undoes", BigInteger),
    Column("moved_by", TEXT),
    Column("at", BigInteger, nullable=False),
    Column("why", TEXT),
    PrimaryKeyConstraint("session_key", "revision"),
    sqlite_with_rowid=False,
)

# What was changed of a session beside its history: its title, its metadata, its marks.
session_edits = Table(
    "session_edits",
    metadata,
    Column("session_key", BigInteger, ForeignKey("sessions.session_key", ondelete="CASCADE"), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("what", TEXT, nullable=False),
    Column("entry_id", TEXT),
    Column("before", TEXT),
    Column("after", TEXT),
    Column("edited_by", TEXT),
    Column("why", TEXT),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_key", "revision", "what"),
    sqlite_with_rowid=False,
)

requests = Table(
    "requests",
    metadata,
    Column("session_key", BigInteger, ForeignKey("sessions.session_key", ondelete="CASCADE"), nullable=False),
    Column("idempotency_key", TEXT, nullable=False),
    Column("operation", TEXT, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("result", TEXT, nullable=False),
    PrimaryKeyConstraint("session_key", "idempotency_key"),
    sqlite_with_rowid=False,
)

marks = Table(
    "marks",
    metadata,
    Column("session_key", BigInteger, ForeignKey("sessions.session_key", ondelete="CASCADE"), nullable=False),
    Column("entry_id", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("value", TEXT),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_key", "entry_id", "kind"),
    CheckConstraint("kind IN ('label', 'pin', 'retracted')", name="kind"),
    sqlite_with_rowid=False,
)

# A paid call whose id is that of its entry, drawn here, has no call_id of its own: nobody else can have reported it, so
# that it needs no place in the unique index (decision 0003).
ledger = Table(
    "ledger",
    metadata,
    Column("scope", TEXT, nullable=False),
    Column("provider", TEXT, nullable=False),
    Column("call_id", TEXT),
    Column("session_key", BigInteger, nullable=False),
    Column("tree_id", BigInteger, nullable=False),
    Column("entry_id", TEXT),
    Column("purpose", TEXT, nullable=False),
    Column("model", TEXT, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_write_5m_tokens", BigInteger, nullable=False),
    Column("cache_write_1h_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("total_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger),
    Column("price_source", TEXT),
    Column("at", BigInteger, nullable=False),
    Column("outcome", TEXT),
    Column("unknown", BigInteger, nullable=False, server_default=text("0")),
    Column("agent", TEXT),
    Column("reported", BigInteger, nullable=False, server_default=text("0")),
    Column("number", KEY, Identity(), primary_key=True),
    CheckConstraint("call_id IS NOT NULL OR entry_id IS NOT NULL", name="call"),
    Index("ix_ledger_session_key", "session_key"),
    Index(
        "uq_ledger_call_id",
        "scope",
        "provider",
        "call_id",
        unique=True,
        sqlite_where=text("call_id IS NOT NULL"),
        postgresql_where=text("call_id IS NOT NULL"),
    ),
)

# Who paid, once per session instead of in every row; like the ledger, it outlives the session.
ledger_sessions = Table(
    "ledger_sessions",
    metadata,
    Column("session_key", KEY, primary_key=True, autoincrement=False),
    Column("session_id", TEXT, nullable=False),
    Column("tree_id", BigInteger),
    Column("task_of", TEXT),
    Column("project", TEXT),
    UniqueConstraint("session_id", "session_key"),
    Index("ix_ledger_sessions_tree_id", "tree_id"),
)

# What may be spent, and what has been: by a session, by a session with its tasks, or in a scope. What was spent is what
# the budget began with (seeded) and what its committed reservations used; reserved is what those held set aside.
budgets = Table(
    "budgets",
    metadata,
    Column("budget_key", KEY, primary_key=True, autoincrement=False),
    Column("id", TEXT, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("covers", TEXT, nullable=False),
    Column("session_id", TEXT),
    Column("unit", TEXT, nullable=False),
    Column("allowed", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("seeded", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    CheckConstraint("covers IN ('session', 'tasks', 'scope')", name="covers"),
    CheckConstraint("unit IN ('tokens', 'picodollars')", name="unit"),
    CheckConstraint("(session_id IS NULL) = (covers = 'scope')", name="session"),
    UniqueConstraint("id"),
    UniqueConstraint("session_id", "covers", "unit"),
    Index(
        "uq_budgets_scope",
        "scope",
        "unit",
        unique=True,
        sqlite_where=text("session_id IS NULL"),
        postgresql_where=text("session_id IS NULL"),
    ),
)

# What was set aside for a call that is under way, in each budget that covers it, and what became of it.
reservations = Table(
    "reservations",
    metadata,
    Column("reservation_id", TEXT, nullable=False),
    Column("budget_key", BigInteger, ForeignKey("budgets.budget_key", ondelete="CASCADE"), nullable=False),
    Column("session_id", TEXT),
    Column("amount", BigInteger, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("used", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("settled_at", BigInteger),
    PrimaryKeyConstraint("reservation_id", "budget_key"),
    CheckConstraint("state IN ('held', 'committed', 'released', 'expired')", name="state"),
    Index(
        "ix_reservations_held",
        "budget_key",
        "expires_at",
        sqlite_where=text("state = 'held'"),
        postgresql_where=text("state = 'held'"),
    ),
    sqlite_with_rowid=False,
)

# Texts with a name that belong to the store: memories of agents, and files for agents to read. In the order of what
# lists them, so that the text, which may be long, comes last.
documents = Table(
    "documents",
    metadata,
    Column("scope", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("space", TEXT, nullable=False),
    Column("project", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("type", TEXT, nullable=False),
    Column("source", TEXT),
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("chars", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", TEXT, nullable=False),
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
