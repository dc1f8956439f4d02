"""Budgets with a period, and an index by which what was paid in one is summed up.

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

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# As 0001 made it: SQLite makes the table anew, and printed SQL has no database to look at.
BUDGETS = sa.Table(
    "budgets",
    sa.MetaData(),
    sa.Column("budget_key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
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


def upgrade() -> None:
    """Give budgets a period and its time zone, and make the index."""
    is_sqlite = op.get_context().dialect.name == "sqlite"
    if is_sqlite:
        # The old table is dropped, and with it go the rows that refer to its rows.
        op.execute("CREATE TABLE flue_reservations AS SELECT * FROM reservations")
        op.execute("DELETE FROM reservations")
    op.drop_index("uq_budgets_scope", "budgets")
    with op.batch_alter_table("budgets", copy_from=BUDGETS) as batch:
        batch.add_column(sa.Column("period", TEXT, nullable=False, server_default=sa.text("''")))
        batch.add_column(sa.Column("tz", TEXT, nullable=False, server_default=sa.text("''")))
        batch.drop_constraint("uq_budgets_session_id_covers_unit", type_="unique")
        batch.create_unique_constraint(
            "uq_budgets_session_id_covers_unit_period", ["session_id", "covers", "unit", "period"]
        )
        batch.create_check_constraint("ck_budgets_period", "period IN ('', 'day', 'week', 'month')")
        batch.create_check_constraint("ck_budgets_tz", "(period = '') = (tz = '')")
    op.create_index(
        "uq_budgets_scope",
        "budgets",
        ["scope", "unit", "period"],
        unique=True,
        sqlite_where=sa.text("session_id IS NULL"),
        postgresql_where=sa.text("session_id IS NULL"),
    )
    if is_sqlite:
        op.execute("INSERT INTO reservations SELECT * FROM flue_reservations")
        op.execute("DROP TABLE flue_reservations")
    op.create_index("ix_ledger_at", "ledger", ["at"])


def downgrade() -> None:
    """Refuse: the newer tables may hold what older ones cannot."""
    raise NotImplementedError("restore the backup that was made before the upgrade")
