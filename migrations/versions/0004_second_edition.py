"""What finishes format 3: large attachments stored once per tree.

Revision: 0004
Follows: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns at the ends of the tables, and derive their values from the stored rows."""
    _store_attachments_once()


def _store_attachments_once() -> None:
    """Make the table of what was cut out of payloads. What older formats stored stays as it is."""
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


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 3 added would be lost; restore the backup that the upgrade made")
