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
    _name_reported_calls_only()


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


CALL = (
    "scope", "provider", "call_id", "session_key", "tree_id", "entry_id", "purpose", "model", "input_tokens",
    "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "reasoning_tokens",
    "total_tokens", "cost", "price_source", "at", "outcome", "unknown", "agent", "reported",
)  # fmt: skip
OPTIONAL_TEXTS = ("call_id", "entry_id", "price_source", "outcome", "agent")
TEXTS = ("scope", "provider", "purpose", "model")


def _name_reported_calls_only() -> None:
    """Let the ledger be in the order of its rows, and its unique index have the calls that have ids of their own.

    What is there keeps its ids: who reported them is not known any more.
    """
    if op.get_context().dialect.name == "sqlite":
        _make_ledger_anew()
    else:
        op.drop_constraint("pk_ledger", "ledger")
        op.add_column("ledger", sa.Column("number", sa.BigInteger(), sa.Identity(), nullable=False))
        op.create_primary_key("pk_ledger", "ledger", ["number"])
        op.alter_column("ledger", "call_id", nullable=True)
        op.create_check_constraint("ck_ledger_call", "ledger", "call_id IS NOT NULL OR entry_id IS NOT NULL")
    where = sa.text("call_id IS NOT NULL")
    op.create_index(
        "uq_ledger_call_id",
        "ledger",
        ["scope", "provider", "call_id"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )


def _make_ledger_anew() -> None:
    op.create_table(
        "ledger_anew",
        *[_call_column(name) for name in CALL],
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_ledger"),
        sa.CheckConstraint("call_id IS NOT NULL OR entry_id IS NOT NULL", name="ck_ledger_call"),
    )
    names = ", ".join(CALL)
    op.execute(f"INSERT INTO ledger_anew ({names}) SELECT {names} FROM ledger ORDER BY session_key, at, call_id")
    op.drop_table("ledger")
    op.rename_table("ledger_anew", "ledger")
    op.create_index("ix_ledger_session_key", "ledger", ["session_key"])


def _call_column(name: str) -> sa.Column[object]:
    default = sa.text("0") if name in ("unknown", "reported") else None
    is_text = name in TEXTS or name in OPTIONAL_TEXTS
    nullable = name in OPTIONAL_TEXTS or name == "cost"
    return sa.Column(name, TEXT if is_text else sa.BigInteger(), nullable=nullable, server_default=default)


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 3 added would be lost; restore the backup that the upgrade made")
