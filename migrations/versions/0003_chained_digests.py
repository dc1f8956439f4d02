"""Digests of entries that cover their parents' and their fields, heads and seals, computed of what is there.

Revision: 0003
Follows: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op, util

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the columns of the digests, heads and seals of this format, which are computed behind the last migration.

    The code that computes them reads the columns of today, those of later migrations as well.
    """
    op.add_column("sessions", sa.Column("head", sa.LargeBinary(), nullable=False, server_default=sa.text("''")))
    seals = [("sessions", name) for name in ("log_seal", "mark_seal", "link_seal", "call_seal")]
    seals += [
        (table, "seal")
        for table in ("leaf_moves", "session_edits", "marks", "task_links", "documents", "ledger_sessions")
    ]
    seals += [("documents", "gap")]
    for table, name in seals:
        op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    if not context.is_offline_mode():
        # Heads cover the slot, which was of 4.2 seconds until here, and is of 4.5 minutes from here on.
        op.execute("UPDATE sessions SET active_slot = active_at >> 28")
    elif context.get_starting_revision_argument() is not None:
        # In a store that is made there are no entries yet.
        raise util.CommandError("no SQL computes the digests of 0003: run alembic upgrade without --sql")


def downgrade() -> None:
    """Refuse: the digests before were of other things."""
    raise NotImplementedError("restore the backup that was made before the upgrade")
