"""What finishes format 3: parents in entries, attachments once per tree, slots of listings, calls by entries.

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
    """Add columns and tables, and derive the columns' values from the stored rows.

    Builds of this version have made stores with a part of it, in the order of time: what is there is left as it is.
    """
    _store_parents()
    _store_attachments_once()
    _list_by_slots()
    _name_reported_calls_only()
    _tell_how_tasks_ended()
    _find_settings()


def _has(table: str, *, column: str | None = None, index: str | None = None, unique: str | None = None) -> bool:
    """Return whether a table is there, with all that is named. Nothing is while statements are only printed."""
    if op.get_context().as_sql:
        return False
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(table):
        return False
    there = (
        (column, lambda: inspector.get_columns(table)),
        (index, lambda: inspector.get_indexes(table)),
        (unique, lambda: inspector.get_unique_constraints(table)),
    )
    return all(name is None or name in {each["name"] for each in found()} for name, found in there)


def _is_early(old: bool) -> bool:
    """Return whether something is still as before; it is taken to be while statements are only printed."""
    return old or op.get_context().as_sql


def _store_parents() -> None:
    """Give each entry the id of its parent, which its lane tells, and drop the index of revisions.

    The index of ids begins with the id, and no more with the tree. SQLite gets a table made anew, in which every column
    that is read without the payload stands before it.
    """
    has_revisions = _has("entries", index="ix_entries_session_key")
    if _has("entries", column="parent_id", unique="uq_entries_id_tree_id") and not has_revisions:
        return
    op.execute("DROP VIEW history")
    if op.get_context().dialect.name == "sqlite":
        _make_entries_anew()
    else:
        if _is_early(has_revisions):
            op.drop_index("ix_entries_session_key", table_name="entries")
        if not _has("entries", unique="uq_entries_id_tree_id"):
            op.drop_constraint("uq_entries_tree_id_id", "entries")
            op.create_unique_constraint("uq_entries_id_tree_id", "entries", ["id", "tree_id"])
        if not _has("entries", column="parent_id"):
            op.add_column("entries", sa.Column("parent_id", TEXT))
        op.execute(
            "UPDATE entries SET parent_id = p.id FROM lanes l, entries p"
            " WHERE l.tree_id = entries.tree_id AND l.lane_id = entries.lane_id AND p.tree_id = entries.tree_id"
            f" AND p.lane_id = {PARENTS_LANE.format('entries')} AND p.depth = entries.depth - 1"
        )
    op.execute(HISTORY_VIEW)


# The lane of an entry's parent: its own, but for the first of a lane.
PARENTS_LANE = "CASE WHEN {0}.depth > l.fork_depth + 1 THEN {0}.lane_id ELSE l.parent_lane END"
NUMBERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens", "input_cost",
    "output_cost", "cache_read_cost", "cache_write_cost", "total_cost",
)  # fmt: skip
PAID = ("paid_calls", "unpriced_calls", "unknown_calls", "paid_tokens", "paid_cost")


def _make_entries_anew() -> None:
    created = op.create_table(
        "entries_anew",
        sa.Column("tree_id", sa.BigInteger(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.BigInteger(), nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("parent_id", TEXT),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("role", TEXT),
        sa.Column("source", TEXT),
        sa.Column("session_key", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("counted", sa.BigInteger(), nullable=False),
        *[sa.Column(name, sa.BigInteger(), nullable=False) for name in NUMBERS],
        *[sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")) for name in PAID],
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
        sa.UniqueConstraint("id", "tree_id", name="uq_entries_id_tree_id"),
    )
    names = [column.name for column in created.columns]
    parent = (
        "(SELECT p.id FROM lanes l JOIN entries p ON p.tree_id = l.tree_id"
        f" AND p.lane_id = {PARENTS_LANE.format('e')} AND p.depth = e.depth - 1"
        " WHERE l.tree_id = e.tree_id AND l.lane_id = e.lane_id)"
    )
    values = [parent if name == "parent_id" else f"e.{name}" for name in names]
    op.execute(
        f"INSERT INTO entries_anew ({', '.join(names)}) SELECT {', '.join(values)} FROM entries e ORDER BY e.rowid"
    )
    op.drop_table("entries")
    op.rename_table("entries_anew", "entries")
    for name, columns, where in (
        ("ix_entries_blob", ["tree_id", "blob"], "blob IS NOT NULL"),
        ("ix_entries_compaction", ["tree_id", "lane_id", "depth"], "kind = 'compaction'"),
        ("ix_entries_exclusion", ["tree_id", "lane_id", "depth"], "kind = 'exclusion'"),
    ):
        op.create_index(name, "entries", columns, sqlite_where=sa.text(where))


HISTORY_VIEW = """\
CREATE VIEW history AS
SELECT s.id AS created_by, e.id AS id, e.parent_id AS parent_id,
       e.depth AS depth, e.kind AS kind, e.role AS role, e.revision AS revision, e.created_at AS created_at,
       e.payload AS payload, e.tree_id AS tree_id
  FROM entries e LEFT JOIN sessions s ON s.session_key = e.session_key
"""


def _store_attachments_once() -> None:
    """Make the table of what was cut out of payloads. What older formats stored stays as it is."""
    if _has("attachments"):
        return
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


def _list_by_slots() -> None:
    """Give each session the slot of its last activity, and let the indexes of listings begin with that."""
    if _has("sessions", column="active_slot"):
        return
    op.add_column("sessions", sa.Column("active_slot", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE sessions SET active_slot = active_at >> 22")
    op.drop_index("ix_sessions_activity", table_name="sessions")
    op.create_index("ix_sessions_active_slot", "sessions", ["active_slot", "session_key"])
    op.create_index("ix_sessions_scope_active_slot", "sessions", ["scope", "active_slot", "session_key"])


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
    if _has("ledger", index="uq_ledger_call_id") and not _numbers_come_first():
        return
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


def _numbers_come_first() -> bool:
    """Return whether a file was made by a build that put the key of the ledger before the other columns."""
    columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns("ledger")]
    return op.get_context().dialect.name == "sqlite" and columns[0] == "number"


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


def _tell_how_tasks_ended() -> None:
    """Let links to tasks tell what became of these. Of older ones nobody said, so it stays unknown."""
    if _has("task_links", column="summary"):
        return
    op.add_column("task_links", sa.Column("status", TEXT))
    op.add_column("task_links", sa.Column("summary", TEXT))


def _find_settings() -> None:
    """Let the last changes of the model and of the thinking level be found on a path."""
    if _has("entries", index="ix_entries_setting"):
        return
    where = sa.text("kind IN ('model_change', 'thinking_level_change')")
    columns = ["tree_id", "lane_id", "depth"]
    op.create_index("ix_entries_setting", "entries", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("what format 3 added would be lost; restore the backup that the upgrade made")
