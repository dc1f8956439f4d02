"""Seals of budgets and reservations.

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


def upgrade() -> None:
    """Make the columns. The seals are computed behind the last migration, or by the first who opens with the key."""
    for table, name in (("budgets", "held_seal"), ("budgets", "seal"), ("reservations", "seal")):
        op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.execute("INSERT INTO flue_store (name, value) SELECT 'unsealed', 1 WHERE EXISTS (SELECT 1 FROM budgets)")


def downgrade() -> None:
    """Refuse: a store of the format before would take budgets that were changed."""
    raise NotImplementedError("restore the backup that was made before the upgrade")
