"""Titles that were made, who changed what and why, calls without a price, and budgets.

Revision: 0002
Follows: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns at the ends of the tables, which rewrites no row, and the new tables."""
    op.add_column("sessions", sa.Column("auto_title", TEXT))
    op.add_column("sessions", sa.Column("unpriced_calls", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.drop_index("ix_sessions_updated_at", table_name="sessions")
    op.create_index(
        "ix_sessions_listing",
        "sessions",
        [
            "updated_at", "session_key", "trashed_at", "message_count", "entry_count", "spent_tokens", "spent_cost",
            "scope", "kind", "created_at", "completed_at",
        ],
    )  # fmt: skip
    op.create_index("ix_sessions_created_at", "sessions", ["created_at", "session_key"])
    op.create_index(
        "ix_sessions_title",
        "sessions",
        [sa.text("substr(COALESCE(NULLIF(title, ''), NULLIF(auto_title, ''), ''), 1, 200)"), "session_key"],
    )
    op.add_column("leaf_moves", sa.Column("why", TEXT))
    op.add_column("ledger", sa.Column("outcome", TEXT))
    op.add_column("ledger_sessions", sa.Column("tree_id", sa.BigInteger()))
    op.add_column("ledger_sessions", sa.Column("task_of", TEXT))
    op.execute(
        "UPDATE ledger_sessions SET tree_id ="
        " (SELECT MIN(g.tree_id) FROM ledger g WHERE g.session_key = ledger_sessions.session_key)"
    )
    unpriced = "FROM ledger g WHERE g.session_key = sessions.session_key AND g.cost IS NULL"
    op.execute(f"UPDATE sessions SET unpriced_calls = (SELECT COUNT(*) {unpriced}) WHERE EXISTS (SELECT 1 {unpriced})")
    op.create_index("ix_ledger_sessions_tree_id", "ledger_sessions", ["tree_id"])
    excluding = sa.text("kind = 'exclusion'")
    op.create_index(
        "ix_entries_exclusion",
        "entries",
        ["tree_id", "lane_id", "depth"],
        sqlite_where=excluding,
        postgresql_where=excluding,
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
        sa.PrimaryKeyConstraint("session_key", "revision", "what", name="pk_session_edits"),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name="fk_session_edits_session_key", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
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
        sa.PrimaryKeyConstraint("budget_key", name="pk_budgets"),
        sa.CheckConstraint("covers IN ('session', 'tasks', 'scope')", name="ck_budgets_covers"),
        sa.CheckConstraint("unit IN ('tokens', 'picodollars')", name="ck_budgets_unit"),
        sa.CheckConstraint("(session_id IS NULL) = (covers = 'scope')", name="ck_budgets_session"),
        sa.UniqueConstraint("id", name="uq_budgets_id"),
        sa.UniqueConstraint("session_id", "covers", "unit", name="uq_budgets_session_id_covers_unit"),
    )
    of_a_scope = sa.text("session_id IS NULL")
    op.create_index(
        "uq_budgets_scope", "budgets", ["scope", "unit"], unique=True,
        sqlite_where=of_a_scope, postgresql_where=of_a_scope,
    )  # fmt: skip
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
        sa.PrimaryKeyConstraint("reservation_id", "budget_key", name="pk_reservations"),
        sa.ForeignKeyConstraint(
            ["budget_key"], ["budgets.budget_key"], name="fk_reservations_budget_key", ondelete="CASCADE"
        ),
        sa.CheckConstraint("state IN ('held', 'committed', 'released', 'expired')", name="ck_reservations_state"),
        sqlite_with_rowid=False,
    )
    held = sa.text("state = 'held'")
    op.create_index(
        "ix_reservations_held", "reservations", ["budget_key", "expires_at"], sqlite_where=held, postgresql_where=held
    )


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 2 added would be lost; restore the backup that the upgrade made")
