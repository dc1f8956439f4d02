"""The first format.

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
    """Stamp the format, then make the tables."""
    if not op.get_context().as_sql:
        stamp()  # printed for review, it comes before alembic's own table: see env.py
    op.create_table(
        "blobs",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree_id", "sha256", name="pk_blobs"),
    )
    op.create_table(
        "entries",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.BigInteger(), nullable=False),
        sa.Column("id", TEXT, nullable=False),
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
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("blob", sa.LargeBinary()),
        sa.Column("packed", sa.LargeBinary()),
        sa.Column("extra", TEXT),
        sa.Column("payload", TEXT),
        sa.PrimaryKeyConstraint("tree_id", "lane_id", "depth", name="pk_entries"),
        sa.CheckConstraint(
            "(payload IS NOT NULL AND packed IS NULL AND blob IS NULL)"
            " OR (payload IS NULL AND packed IS NOT NULL AND blob IS NULL)"
            " OR (payload IS NULL AND packed IS NULL AND blob IS NOT NULL)",
            name="ck_entries_payload",
        ),
        sa.UniqueConstraint("tree_id", "id", name="uq_entries_tree_id_id"),
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
    op.create_index("ix_entries_session_key", "entries", ["session_key", "revision", "ordinal"])
    op.create_table(
        "lanes",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("owner_key", sa.BigInteger(), nullable=False),
        sa.Column("parent_lane", sa.BigInteger()),
        sa.Column("fork_depth", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tree_id", "lane_id", name="pk_lanes"),
        sa.CheckConstraint("(parent_lane IS NULL) = (fork_depth = -1)", name="ck_lanes_root"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_lanes_owner_key", "lanes", ["owner_key"])
    op.create_index("ix_lanes_parent", "lanes", ["tree_id", "parent_lane", "fork_depth"])
    op.create_table(
        "ledger",
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("provider", TEXT, nullable=False),
        sa.Column("call_id", TEXT, nullable=False),
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
        sa.PrimaryKeyConstraint("scope", "provider", "call_id", name="pk_ledger"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_ledger_session_key", "ledger", ["session_key"])
    op.create_table(
        "ledger_sessions",
        sa.Column("session_key", KEY, nullable=False, autoincrement=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("session_key", name="pk_ledger_sessions"),
        sa.UniqueConstraint("session_id", "session_key", name="uq_ledger_sessions_session_id_session_key"),
    )
    op.create_table(
        "sessions",
        sa.Column("session_key", KEY, nullable=False, autoincrement=False),
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
        sa.PrimaryKeyConstraint("session_key", name="pk_sessions"),
        sa.CheckConstraint("kind IN ('root', 'fork', 'task')", name="ck_sessions_kind"),
        sa.UniqueConstraint("id", name="uq_sessions_id"),
    )
    op.create_index("ix_sessions_tree_id", "sessions", ["tree_id"])
    op.create_index("ix_sessions_updated_at", "sessions", ["updated_at", "session_key"])
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
        sa.PrimaryKeyConstraint("session_key", "revision", name="pk_leaf_moves"),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_leaf_moves_session_key", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "marks",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("entry_id", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("value", TEXT),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_key", "entry_id", "kind", name="pk_marks"),
        sa.CheckConstraint("kind IN ('label', 'pin', 'retracted')", name="ck_marks_kind"),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_marks_session_key", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "requests",
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", TEXT, nullable=False),
        sa.Column("operation", TEXT, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("result", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("session_key", "idempotency_key", name="pk_requests"),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_requests_session_key", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "task_links",
        sa.Column("parent_key", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("task_id", TEXT, nullable=False),
        sa.Column("child_id", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("parent_key", "position", name="pk_task_links"),
        sa.ForeignKeyConstraint(
            ["parent_key"], ["sessions.session_key"], name="fk_task_links_parent_key", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("parent_key", "child_id", name="uq_task_links_parent_key_child_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_task_links_child_id", "task_links", ["child_id"])
    op.execute(HISTORY_VIEW)


def stamp() -> None:
    """Write the format into a database that may have another stamp."""
    is_sqlite = op.get_context().dialect.name == "sqlite"
    name, ending = ("TEXT", " WITHOUT ROWID") if is_sqlite else ('TEXT COLLATE "C"', "")
    op.execute(
        f"CREATE TABLE IF NOT EXISTS flue_store (name {name} NOT NULL, value BIGINT NOT NULL,"
        f" CONSTRAINT pk_flue_store PRIMARY KEY (name)){ending}"
    )
    op.execute(
        "INSERT INTO flue_store (name, value) VALUES ('format', 1), ('epoch', 0)"
        + (", ('next_key', 1)" if is_sqlite else "")
        + " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("there is nothing below the first format; restore a backup instead")


HISTORY_VIEW = """\
CREATE VIEW history AS
SELECT s.id AS created_by, e.id AS id, COALESCE(
         (SELECT p.id FROM entries p
           WHERE p.tree_id = e.tree_id AND p.lane_id = e.lane_id AND p.depth = e.depth - 1),
         (SELECT p.id FROM lanes l JOIN entries p
             ON p.tree_id = l.tree_id AND p.lane_id = l.parent_lane AND p.depth = l.fork_depth
           WHERE l.tree_id = e.tree_id AND l.lane_id = e.lane_id AND e.depth = l.fork_depth + 1)
       ) AS parent_id,
       e.depth AS depth, e.kind AS kind, e.role AS role, e.revision AS revision, e.created_at AS created_at,
       e.payload AS payload, e.tree_id AS tree_id
  FROM entries e LEFT JOIN sessions s ON s.session_key = e.session_key
"""
