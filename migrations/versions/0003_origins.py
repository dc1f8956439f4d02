"""The time of each session's last activity, where tasks began, and imported sub-agents as task sessions.

Revision: 0003
Follows: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from flue_py.store.ddl import IMPORTED_AGENTS_ARE_TASKS

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns at the ends of the tables, and derive what they say from what is stored."""
    op.add_column("sessions", sa.Column("active_at", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("task_links", sa.Column("entry_id", TEXT))
    _note_activity()
    op.execute(IMPORTED_AGENTS_ARE_TASKS)


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


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 3 added would be lost; restore the backup that the upgrade made")
