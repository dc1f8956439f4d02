"""The tables of the first release.

Revision: 0001
Follows: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables; the one with the format was made before."""
    op.create_table(
        "attachments",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree_id", "lane_id", "depth", "place", name="pk_attachments"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attachments_sha256", "attachments", ["tree_id", "sha256"])
    op.create_table(
        "blobs",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree_id", "sha256", name="pk_blobs"),
    )
    op.create_table(
        "budgets",
        sa.Column("budget_key", KEY, autoincrement=False, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("covers", TEXT, nullable=False),
        sa.Column("session_id", TEXT),
        sa.Column("unit", TEXT, nullable=False),
        sa.Column("allowed", sa.BigInteger(), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("seeded", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(session_id IS NULL) = (covers = 'scope')", name="ck_budgets_session"),
        sa.CheckConstraint("covers IN ('session', 'tasks', 'scope')", name="ck_budgets_covers"),
        sa.CheckConstraint("unit IN ('tokens', 'picodollars')", name="ck_budgets_unit"),
        sa.PrimaryKeyConstraint("budget_key", name="pk_budgets"),
        sa.UniqueConstraint("id", name="uq_budgets_id"),
        sa.UniqueConstraint("session_id", "covers", "unit", name="uq_budgets_session_id_covers_unit"),
    )
    op.create_index(
        "uq_budgets_scope",
        "budgets",
        ["scope", "unit"],
        unique=True,
        sqlite_where=sa.text("session_id IS NULL"),
        postgresql_where=sa.text("session_id IS NULL"),
    )
    op.create_table(
        "documents",
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("space", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("source", TEXT),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("chars", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.CheckConstraint("kind IN ('memory', 'file')", name="ck_documents_kind"),
        sa.PrimaryKeyConstraint("scope", "kind", "space", "project", "name", name="pk_documents"),
    )
    op.create_table(
        "entries",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.BigInteger(), nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("parent_id", TEXT),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("role", TEXT),
        sa.Column("source", TEXT),
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("counted", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("input_cost", sa.BigInteger(), nullable=False),
        sa.Column("output_cost", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_cost", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_cost", sa.BigInteger(), nullable=False),
        sa.Column("total_cost", sa.BigInteger(), nullable=False),
        sa.Column("paid_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unpriced_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unknown_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("paid_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("paid_cost", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("blob", sa.LargeBinary()),
        sa.Column("packed", sa.LargeBinary()),
        sa.Column("extra", TEXT),
        sa.Column("payload", TEXT),
        sa.CheckConstraint(
            "(payload IS NOT NULL AND packed IS NULL AND blob IS NULL)"
            " OR (payload IS NULL AND packed IS NOT NULL AND blob IS NULL)"
            " OR (payload IS NULL AND packed IS NULL AND blob IS NOT NULL)",
            name="ck_entries_payload",
        ),
        sa.PrimaryKeyConstraint("tree_id", "lane_id", "depth", name="pk_entries"),
        sa.UniqueConstraint("id", "tree_id", name="uq_entries_id_tree_id"),
    )
    op.create_index(
        "ix_entries_blob",
        "entries",
        ["tree_id", "blob"],
        sqlite_where=sa.text("blob IS NOT NULL"),
        postgresql_where=sa.text("blob IS NOT NULL"),
    )
    op.create_index(
        "ix_entries_compaction",
        "entries",
        ["tree_id", "lane_id", "depth"],
        sqlite_where=sa.text("kind = 'compaction'"),
        postgresql_where=sa.text("kind = 'compaction'"),
    )
    op.create_index(
        "ix_entries_exclusion",
        "entries",
        ["tree_id", "lane_id", "depth"],
        sqlite_where=sa.text("kind = 'exclusion'"),
        postgresql_where=sa.text("kind = 'exclusion'"),
    )
    op.create_index(
        "ix_entries_setting",
        "entries",
        ["tree_id", "lane_id", "depth"],
        sqlite_where=sa.text("kind IN ('model_change', 'thinking_level_change')"),
        postgresql_where=sa.text("kind IN ('model_change', 'thinking_level_change')"),
    )
    op.create_table(
        "lanes",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("owner_key", sa.BigInteger(), nullable=False),
        sa.Column("parent_lane", sa.BigInteger()),
        sa.Column("fork_depth", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(parent_lane IS NULL) = (fork_depth = -1)", name="ck_lanes_root"),
        sa.PrimaryKeyConstraint("tree_id", "lane_id", name="pk_lanes"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_lanes_owner_key", "lanes", ["owner_key"])
    op.create_index("ix_lanes_parent", "lanes", ["tree_id", "parent_lane", "fork_depth"])
    op.create_table(
        "ledger",
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("provider", TEXT, nullable=False),
        sa.Column("call_id", TEXT),
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("entry_id", TEXT),
        sa.Column("purpose", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_5m_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_1h_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger()),
        sa.Column("price_source", TEXT),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", TEXT),
        sa.Column("unknown", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("agent", TEXT),
        sa.Column("reported", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("number", KEY, sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("call_id IS NOT NULL OR entry_id IS NOT NULL", name="ck_ledger_call"),
        sa.PrimaryKeyConstraint("number", name="pk_ledger"),
    )
    op.create_index("ix_ledger_session_key", "ledger", ["session_key"])
    op.create_index(
        "uq_ledger_call_id",
        "ledger",
        ["scope", "provider", "call_id"],
        unique=True,
        sqlite_where=sa.text("call_id IS NOT NULL"),
        postgresql_where=sa.text("call_id IS NOT NULL"),
    )
    op.create_table(
        "ledger_sessions",
        sa.Column("session_key", KEY, autoincrement=False, nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("tree_id", sa.BigInteger()),
        sa.Column("task_of", TEXT),
        sa.Column("project", TEXT),
        sa.PrimaryKeyConstraint("session_key", name="pk_ledger_sessions"),
        sa.UniqueConstraint("session_id", "session_key", name="uq_ledger_sessions_session_id_session_key"),
    )
    op.create_index("ix_ledger_sessions_tree_id", "ledger_sessions", ["tree_id"])
    op.create_table(
        "sessions",
        sa.Column("session_key", KEY, autoincrement=False, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("key", TEXT),
        sa.Column("title", TEXT),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("task_depth", sa.BigInteger(), nullable=False),
        sa.Column("forked_from_session", TEXT),
        sa.Column("forked_from_entry", TEXT),
        sa.Column("leaf", TEXT),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("metadata", TEXT, nullable=False),
        sa.Column("cwd", TEXT),
        sa.Column("config_path", TEXT),
        sa.Column("completed_at", sa.BigInteger()),
        sa.Column("trashed_at", sa.BigInteger()),
        sa.Column("entry_count", sa.BigInteger(), nullable=False),
        sa.Column("message_count", sa.BigInteger(), nullable=False),
        sa.Column("first_message", TEXT),
        sa.Column("spent_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_cost", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("auto_title", TEXT),
        sa.Column("unpriced_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("active_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unknown_calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("active_slot", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("kind IN ('root', 'fork', 'task')", name="ck_sessions_kind"),
        sa.PrimaryKeyConstraint("session_key", name="pk_sessions"),
        sa.UniqueConstraint("id", name="uq_sessions_id"),
    )
    op.create_index("ix_sessions_active_slot", "sessions", ["active_slot", "session_key"])
    op.create_index("ix_sessions_created_at", "sessions", ["created_at", "session_key"])
    op.create_index("ix_sessions_scope_active_slot", "sessions", ["scope", "active_slot", "session_key"])
    op.create_index(
        "ix_sessions_title",
        "sessions",
        [sa.text("substr(COALESCE(NULLIF(title, ''), NULLIF(auto_title, ''), ''), 1, 200)"), "session_key"],
    )
    op.create_index("ix_sessions_tree_id", "sessions", ["tree_id"])
    op.create_index(
        "uq_sessions_scope_key",
        "sessions",
        ["scope", "key"],
        unique=True,
        sqlite_where=sa.text("key IS NOT NULL AND trashed_at IS NULL"),
        postgresql_where=sa.text("key IS NOT NULL AND trashed_at IS NULL"),
    )
    op.create_table(
        "leaf_moves",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("from_entry", TEXT),
        sa.Column("to_entry", TEXT),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("undoes", sa.BigInteger()),
        sa.Column("moved_by", TEXT),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("why", TEXT),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_leaf_moves_session_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_key", "revision", name="pk_leaf_moves"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "marks",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("entry_id", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("value", TEXT),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('label', 'pin', 'retracted')", name="ck_marks_kind"),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_marks_session_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_key", "entry_id", "kind", name="pk_marks"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "requests",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", TEXT, nullable=False),
        sa.Column("operation", TEXT, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("result", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_requests_session_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_key", "idempotency_key", name="pk_requests"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "reservations",
        sa.Column("reservation_id", TEXT, nullable=False),
        sa.Column("budget_key", sa.BigInteger(), nullable=False),
        sa.Column("session_id", TEXT),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("used", sa.BigInteger()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger()),
        sa.CheckConstraint("state IN ('held', 'committed', 'released', 'expired')", name="ck_reservations_state"),
        sa.ForeignKeyConstraint(
            ["budget_key"], ["budgets.budget_key"], name="fk_reservations_budget_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("reservation_id", "budget_key", name="pk_reservations"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_reservations_held",
        "reservations",
        ["budget_key", "expires_at"],
        sqlite_where=sa.text("state = 'held'"),
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_table(
        "session_edits",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("entry_id", TEXT),
        sa.Column("before", TEXT),
        sa.Column("after", TEXT),
        sa.Column("edited_by", TEXT),
        sa.Column("why", TEXT),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_session_edits_session_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_key", "revision", "what", name="pk_session_edits"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "task_links",
        sa.Column("parent_key", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("task_id", TEXT, nullable=False),
        sa.Column("child_id", TEXT, nullable=False),
        sa.Column("entry_id", TEXT),
        sa.Column("status", TEXT),
        sa.Column("summary", TEXT),
        sa.ForeignKeyConstraint(
            ["parent_key"], ["sessions.session_key"], name="fk_task_links_parent_key", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("parent_key", "position", name="pk_task_links"),
        sa.UniqueConstraint("parent_key", "child_id", name="uq_task_links_parent_key_child_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_task_links_child_id", "task_links", ["child_id"])
    op.execute(HISTORY_VIEW)


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("there is nothing below the first format; restore the backup instead")


HISTORY_VIEW = """\
CREATE VIEW history AS
SELECT s.id AS created_by, e.id AS id, e.parent_id AS parent_id,
       e.depth AS depth, e.kind AS kind, e.role AS role, e.revision AS revision, e.created_at AS created_at,
       e.payload AS payload, e.tree_id AS tree_id
  FROM entries e LEFT JOIN sessions s ON s.session_key = e.session_key
"""
