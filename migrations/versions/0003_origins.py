"""Last activity, where tasks began, sub-agents as tasks, unknown usage, what paths cost, and which agent made a call.

Revision: 0003
Follows: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from flue_py.store.schema.ddl import PAID_SUMS, imported_agents_are_tasks, imported_calls_have_agents

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns at the ends of the tables, and derive their values from the stored rows."""
    op.add_column("sessions", sa.Column("active_at", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("task_links", sa.Column("entry_id", TEXT))
    _note_activity()
    _note_unknown_calls()
    _sum_up_paths()
    for statement in imported_agents_are_tasks(op.get_context().dialect.name):
        op.execute(statement)
    op.add_column("ledger", sa.Column("agent", TEXT))
    op.add_column("ledger", sa.Column("reported", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("ledger_sessions", sa.Column("project", TEXT))
    _note_origins()


def _note_activity() -> None:
    """Derive when each session was last active, and let the index of listings begin with it."""
    op.execute(
        "UPDATE sessions SET active_at = COALESCE((SELECT MAX(e.created_at) FROM entries e"
        " WHERE e.session_key = sessions.session_key), created_at)"
    )
    op.drop_index("ix_sessions_listing", table_name="sessions")
    op.create_index(
        "ix_sessions_activity",
        "sessions",
        [
            "active_at", "session_key", "trashed_at", "message_count", "entry_count", "spent_tokens", "spent_cost",
            "scope", "kind", "created_at", "completed_at", "updated_at",
        ],
    )  # fmt: skip


def _note_unknown_calls() -> None:
    """Mark calls without any number as unknown: so formats 1 and 2 stored usage that they did not understand."""
    for table, name in (("sessions", "unknown_calls"), ("ledger", "unknown")):
        op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.execute(
        "UPDATE ledger SET unknown = 1 WHERE cost IS NULL AND total_tokens = 0 AND input_tokens = 0"
        " AND output_tokens = 0 AND cache_read_tokens = 0 AND cache_write_5m_tokens = 0"
        " AND cache_write_1h_tokens = 0 AND reasoning_tokens = 0"
    )
    op.execute(
        "UPDATE sessions SET unknown_calls = (SELECT COUNT(*) FROM ledger g"
        " WHERE g.session_key = sessions.session_key AND g.unknown = 1)"
    )


def _sum_up_paths() -> None:
    """Derive for each entry what the calls on the path to it cost, from the ledger."""
    for name in ("paid_calls", "unpriced_calls", "unknown_calls", "paid_tokens", "paid_cost"):
        op.add_column("entries", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    for statement in PAID_SUMS:
        op.execute(statement)


def _note_origins() -> None:
    """Derive which folder sessions worked in, and which program made the calls that were imported."""
    op.execute(
        "UPDATE ledger_sessions SET project = (SELECT NULLIF(s.cwd, '') FROM sessions s"
        " WHERE s.session_key = ledger_sessions.session_key)"
        " WHERE session_key IN (SELECT s.session_key FROM sessions s WHERE s.cwd <> '')"
    )
    op.execute(imported_calls_have_agents(op.get_context().dialect.name))


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 3 added would be lost; restore the backup that the upgrade made")
