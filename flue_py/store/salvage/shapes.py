"""The shapes of the records in a store's tables and indexes, in every format that this package reads.

A row is recognised by its shape: how many columns, of which types. Later formats add columns at the ends of tables
and rewrite no row: rows of an earlier format have fewer columns, and the missing ones have their defaults. Two tables
were made anew. The columns of `entries` are in another order: how many there are tells the two apart. The rows of
`ledger` were in the order of their names before, on pages of another kind. The index of entries by their ids began with
their trees.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.store.salvage.pages import Cell, Value
from flue_py.store.schema.ddl import schema_statements, stamp_statements

_DERIVED = frozenset(
    {
        "parent_id",
        *TOTAL_COLUMNS,
        *PAID_COLUMNS,
        "entry_count",
        "message_count",
        "first_message",
        "spent_tokens",
        "spent_cost",
        "active_at",
        "active_slot",
    }
)
"""Columns that are derived anew, so that a wrong value in them does not cost the row."""

_WORDS = {
    ("sessions", "kind"): frozenset({"root", "fork", "task"}),
    ("marks", "kind"): frozenset({"label", "pin", "retracted"}),
    ("requests", "operation"): frozenset({"append", "move", "fork", "task", "atomic"}),
    ("leaf_moves", "reason"): frozenset({"move", "rewind", "retract", "undo", "redo", "branch", "import", "back"}),
    ("task_links", "status"): frozenset({"running", "done", "failed"}),
    ("flue_store", "name"): frozenset({"format", "epoch", "next_key"}),
    ("budgets", "covers"): frozenset({"session", "tasks", "scope"}),
    ("budgets", "unit"): frozenset({"tokens", "picodollars"}),
    ("documents", "kind"): frozenset({"memory", "file"}),
    ("reservations", "state"): frozenset({"held", "committed", "released", "expired"}),
}

_ADDED: dict[str, dict[str, Value]] = {
    "sessions": {"auto_title": None, "unpriced_calls": 0, "active_at": 0, "unknown_calls": 0, "active_slot": 0},
    "task_links": {"entry_id": None, "status": None, "summary": None},
    "leaf_moves": {"why": None},
    "ledger_sessions": {"tree_id": None, "task_of": None, "project": None},
}
"""The columns that tables got after format 1, at their ends, in order, and their values in older rows."""

_LATER = ("parent_id", *PAID_COLUMNS)
"""The columns of `entries` that format 1 lacked. Early stores of format 3 had the sums of calls, at the end."""

_OLDER_LEDGER = """\
CREATE TABLE ledger (
  scope TEXT NOT NULL, provider TEXT NOT NULL, call_id TEXT NOT NULL, session_key BIGINT NOT NULL,
  tree_id BIGINT NOT NULL, entry_id TEXT, purpose TEXT NOT NULL, model TEXT NOT NULL, input_tokens BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL, cache_read_tokens BIGINT NOT NULL, cache_write_5m_tokens BIGINT NOT NULL,
  cache_write_1h_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL, total_tokens BIGINT NOT NULL, cost BIGINT,
  price_source TEXT, at BIGINT NOT NULL, outcome TEXT, unknown BIGINT NOT NULL, agent TEXT, reported BIGINT NOT NULL,
  PRIMARY KEY (scope, provider, call_id)
) WITHOUT ROWID;
CREATE INDEX ix_ledger_session_key ON ledger (session_key);
"""
_ADDED_TO_OLDER_LEDGER: dict[str, Value] = {"outcome": None, "unknown": 0, "agent": None, "reported": 0}

_FORMAT_1_ROOTS = {
    "flue_store": 2, "blobs": 3, "sqlite_autoindex_blobs_1": 4, "entries": 5, "sqlite_autoindex_entries_1": 6,
    "sqlite_autoindex_entries_2": 7, "ix_entries_blob": 8, "ix_entries_compaction": 9, "ix_entries_session_key": 10,
    "lanes": 11, "ix_lanes_owner_key": 12, "ix_lanes_parent": 13, "ledger": 14, "ix_ledger_session_key": 15,
    "ledger_sessions": 16, "sqlite_autoindex_ledger_sessions_1": 17, "sessions": 18, "sqlite_autoindex_sessions_1": 19,
    "ix_sessions_tree_id": 22, "ix_sessions_updated_at": 23, "uq_sessions_scope_key": 24, "leaf_moves": 25,
    "marks": 26, "requests": 27, "task_links": 28, "sqlite_autoindex_task_links_2": 29, "ix_task_links_child_id": 30,
    "alembic_version": 31, "sqlite_autoindex_alembic_version_1": 32,
}  # fmt: skip
_FORMAT_2_ROOTS = {
    "flue_store": 2, "blobs": 3, "sqlite_autoindex_blobs_1": 4, "budgets": 5, "sqlite_autoindex_budgets_1": 6,
    "sqlite_autoindex_budgets_2": 7, "uq_budgets_scope": 8, "entries": 9, "sqlite_autoindex_entries_1": 10,
    "sqlite_autoindex_entries_2": 11, "ix_entries_blob": 12, "ix_entries_compaction": 13, "ix_entries_exclusion": 14,
    "ix_entries_session_key": 15, "lanes": 16, "ix_lanes_owner_key": 17, "ix_lanes_parent": 18, "ledger": 19,
    "ix_ledger_session_key": 22, "ledger_sessions": 23, "sqlite_autoindex_ledger_sessions_1": 24,
    "ix_ledger_sessions_tree_id": 25, "sessions": 26, "sqlite_autoindex_sessions_1": 27, "ix_sessions_created_at": 28,
    "ix_sessions_title": 30, "ix_sessions_tree_id": 31, "uq_sessions_scope_key": 32, "leaf_moves": 33, "marks": 34,
    "requests": 35, "reservations": 37, "ix_reservations_held": 38, "session_edits": 39, "task_links": 40,
    "sqlite_autoindex_task_links_2": 41, "ix_task_links_child_id": 42, "alembic_version": 43,
    "sqlite_autoindex_alembic_version_1": 44,
}  # fmt: skip
_EARLY_ROOTS = {
    "flue_store": 2, "blobs": 3, "sqlite_autoindex_blobs_1": 4, "budgets": 5, "sqlite_autoindex_budgets_1": 6,
    "sqlite_autoindex_budgets_2": 7, "uq_budgets_scope": 8, "entries": 9, "sqlite_autoindex_entries_1": 10,
    "sqlite_autoindex_entries_2": 11, "ix_entries_blob": 12, "ix_entries_compaction": 13, "ix_entries_exclusion": 14,
    "ix_entries_session_key": 15, "lanes": 16, "ix_lanes_owner_key": 17, "ix_lanes_parent": 18, "ledger": 20,
    "ix_ledger_session_key": 22, "ledger_sessions": 23, "sqlite_autoindex_ledger_sessions_1": 24,
    "ix_ledger_sessions_tree_id": 25, "sessions": 26, "sqlite_autoindex_sessions_1": 27, "ix_sessions_activity": 28,
    "ix_sessions_created_at": 29, "ix_sessions_title": 30, "ix_sessions_tree_id": 31, "uq_sessions_scope_key": 32,
    "leaf_moves": 33, "marks": 34, "requests": 36, "reservations": 37, "ix_reservations_held": 38, "session_edits": 39,
    "task_links": 40, "sqlite_autoindex_task_links_2": 41, "ix_task_links_child_id": 42, "alembic_version": 43,
    "sqlite_autoindex_alembic_version_1": 44,
}  # fmt: skip
_FORMAT_3_ROOTS = {
    "flue_store": 2, "attachments": 3, "ix_attachments_sha256": 4, "blobs": 5, "sqlite_autoindex_blobs_1": 6,
    "budgets": 7, "sqlite_autoindex_budgets_1": 8, "sqlite_autoindex_budgets_2": 9, "uq_budgets_scope": 10,
    "entries": 11, "sqlite_autoindex_entries_1": 12, "sqlite_autoindex_entries_2": 13, "ix_entries_blob": 14,
    "ix_entries_compaction": 15, "ix_entries_exclusion": 16, "ix_entries_setting": 17, "lanes": 18,
    "ix_lanes_owner_key": 21, "ix_lanes_parent": 22, "ledger": 23, "ix_ledger_session_key": 24,
    "uq_ledger_call_id": 25, "ledger_sessions": 26, "sqlite_autoindex_ledger_sessions_1": 27,
    "ix_ledger_sessions_tree_id": 28, "sessions": 29, "sqlite_autoindex_sessions_1": 30,
    "ix_sessions_active_slot": 31, "ix_sessions_created_at": 32, "ix_sessions_scope_active_slot": 33,
    "ix_sessions_title": 34, "ix_sessions_tree_id": 35, "uq_sessions_scope_key": 36, "leaf_moves": 38, "marks": 39,
    "requests": 40, "reservations": 41, "ix_reservations_held": 42, "session_edits": 43, "task_links": 44,
    "sqlite_autoindex_task_links_2": 45, "ix_task_links_child_id": 46, "alembic_version": 47,
    "sqlite_autoindex_alembic_version_1": 48,
}  # fmt: skip
OLDER_ROOTS = (_FORMAT_1_ROOTS, _FORMAT_2_ROOTS, _EARLY_ROOTS, _FORMAT_3_ROOTS)
"""The root pages of a database made in format 1, 2, 3 or early in 3, with pages of 4,096 bytes, upgraded or not."""


class Column(NamedTuple):
    """A column of a record: ``type`` is the required type of its values."""

    name: str
    type: type
    required: bool
    words: frozenset[str] | None = None
    is_derived: bool = False


@dataclass(frozen=True)
class Shape:
    """The shape of the records of one table or index. ``holds_rows`` is False for an index beside a table.

    ``added`` are the values of its last columns in records that are older than those columns. ``older`` says of records
    with a number of columns that is there no more where each of the columns is in them; None where it is not.
    """

    name: str
    table: str
    columns: tuple[Column, ...]
    has_rowid: bool
    holds_rows: bool
    alias: int | None = None
    added: tuple[Value, ...] = ()
    older: Mapping[int, tuple[int | None, ...]] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The possible numbers of columns of a record, in order."""
        return (*self.older, *range(len(self.columns) - len(self.added), len(self.columns) + 1))

    def values(self, cell: Cell) -> tuple[Value, ...] | None:
        """Return a row's values, completed by the rowid and defaults; None if their number is wrong."""
        values = cell.values
        if values is None or len(values) not in self.lengths:
            return None
        if len(values) in self.older:
            return tuple(None if place is None else values[place] for place in self.older[len(values)])
        missing = len(self.columns) - len(values)
        values += self.added[len(self.added) - missing :]
        if self.alias is not None and values[self.alias] is None:
            values = (*values[: self.alias], cell.rowid, *values[self.alias + 1 :])
        return values

    def fits(self, cell: Cell) -> bool:
        """Return whether each column of a row fits this table."""
        values = self.values(cell)
        return values is not None and all(
            (value is None and not column.required)
            or (type(value) is column.type and (column.words is None or value in column.words))
            or column.is_derived
            for column, value in zip(self.columns, values, strict=True)
        )


@dataclass(frozen=True)
class Shapes:
    """The shapes of a store, by name, and the root page of each in a new database of this page size.

    ``older`` are those that tables and indexes of the same names had before they were made anew.
    """

    by_name: dict[str, Shape]
    roots: dict[str, int]
    older: dict[str, Shape]

    @property
    def all(self) -> list[Shape]:
        """All shapes, the older ones last."""
        return [*self.by_name.values(), *self.older.values()]

    def of_rows(self, *, rowid: bool) -> list[Shape]:
        """Return the shapes of tables with, or without, rowids."""
        return [shape for shape in self.all if shape.holds_rows and shape.has_rowid == rowid]


@lru_cache(maxsize=8)
def shapes(page_size: int) -> Shapes:
    """Return the shapes of a store, and its root pages in the current format, read from one made in memory."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(f"PRAGMA page_size = {page_size}")
        for statement in (*stamp_statements(), *schema_statements()):
            made.execute(statement)
        found = _shapes_in(made, _ADDED)
        roots = dict(made.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(_OLDER_LEDGER)
        older = _shapes_in(made, {"ledger": _ADDED_TO_OLDER_LEDGER})
    by_id = found["sqlite_autoindex_entries_2"]
    entry_id, tree_id, rowid = by_id.columns
    return Shapes(found, roots, {**older, by_id.name: replace(by_id, columns=(tree_id, entry_id, rowid))})


def _shapes_in(made: sqlite3.Connection, later: Mapping[str, Mapping[str, Value]]) -> dict[str, Shape]:
    """Return the shapes of a database, whose tables got these columns later."""
    found = {}
    for kind, name, table in made.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall():
        if kind == "view":
            continue
        columns = {row[1]: row for row in made.execute(f"PRAGMA table_info({table})")}
        order = (
            [_name(*row[1:3]) for row in made.execute(f"PRAGMA index_xinfo({name})")]
            if kind == "index"
            else list(columns)
        )
        has_rowid = not _is_without_rowid(made, table)
        keys = [row[1] for row in columns.values() if row[5] and row[2] == "INTEGER"]
        alias = order.index(keys[0]) if kind == "table" and has_rowid and len(keys) == 1 else None
        shape = tuple(_column(table, column, columns) for column in order)
        added = later.get(table, {}) if kind == "table" else {}
        older = _older_entries(order) if name == "entries" else {}
        found[name] = Shape(
            name, table, shape, has_rowid and kind == "table", kind == "table", alias, tuple(added.values()), older
        )
    return found


def _older_entries(order: list[str]) -> dict[int, tuple[int | None, ...]]:
    """Return where the columns of `entries` were before format 3 had all of its own."""
    first = [name for name in order if name not in _LATER]
    return {
        len(names): tuple(names.index(name) if name in names else None for name in order)
        for names in (first, [*first, *PAID_COLUMNS])
    }


def _is_without_rowid(made: sqlite3.Connection, table: str) -> bool:
    return any(row[1] == table and row[4] for row in made.execute("PRAGMA table_list"))


def _name(number: int, name: str | None) -> str:
    """Return the name of a column of an index; SQLite has negative numbers for the rowid and for expressions."""
    return {-1: "rowid", -2: "expression"}.get(number, name or "")


def _column(table: str, name: str, columns: dict[str, tuple[object, ...]]) -> Column:
    if name == "rowid":
        return Column("rowid", int, required=True)
    if name == "expression":
        return Column(name, str, required=False)
    row = columns[name]
    declared = str(row[2])
    kind = bytes if declared == "BLOB" else str if declared.startswith(("TEXT", "VARCHAR")) else int
    # The ledger has columns of the same names, which are not derived.
    is_derived = (table in ("entries", "sessions") and name in _DERIVED) or (table, name) == ("documents", "chars")
    return Column(name, kind, bool(row[3]) or bool(row[5]), _WORDS.get((table, name)), is_derived)
