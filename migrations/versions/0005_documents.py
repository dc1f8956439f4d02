"""Documents: memories of agents, and files that were added for agents to read.

Revision: 0005
Follows: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add a table. Nothing that is stored changes."""
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
        sa.PrimaryKeyConstraint("scope", "kind", "space", "project", "name", name="pk_documents"),
        sa.CheckConstraint("kind IN ('memory', 'file')", name="ck_documents_kind"),
    )


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("documents would be lost; restore the backup that the upgrade made")
