"""The shapes of the records in a store's tables and indexes.

A row is recognised by its shape: how many columns, of which types. A migration that adds columns at the end of a table
rewrites no row: older rows have fewer columns, and the missing ones have their defaults.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
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

_ADDED: dict[str, dict[str, Value]] = {}
"""The columns that a migration has added at the end of a table, in order, and their values in older rows."""


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

    ``added`` are the values of its last columns in records that are older than those columns.
    """

    name: str
    table: str
    columns: tuple[Column, ...]
    has_rowid: bool
    holds_rows: bool
    alias: int | None = None
    added: tuple[Value, ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """The possible numbers of columns of a record, in order."""
        return tuple(range(len(self.columns) - len(self.added), len(self.columns) + 1))

    def values(self, cell: Cell) -> tuple[Value, ...] | None:
        """Return a row's values, completed by the rowid and defaults; None if their number is wrong."""
        values = cell.values
        if values is None or len(values) not in self.lengths:
            return None
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
    """The shapes of a store, by name, and the root page of each in a new database of this page size."""

    by_name: dict[str, Shape]
    roots: dict[str, int]

    def of_rows(self, *, rowid: bool) -> list[Shape]:
        """Return the shapes of tables with, or without, rowids."""
        return [shape for shape in self.by_name.values() if shape.holds_rows and shape.has_rowid == rowid]


@lru_cache(maxsize=8)
def shapes(page_size: int) -> Shapes:
    """Return the shapes of a store, and its root pages in the current format, read from one made in memory."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(f"PRAGMA page_size = {page_size}")
        for statement in (*stamp_statements(), *schema_statements()):
            made.execute(statement)
        found = _shapes_in(made)
        roots = dict(made.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
    return Shapes(found, roots)


def _shapes_in(made: sqlite3.Connection) -> dict[str, Shape]:
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
        added = _ADDED.get(table, {}) if kind == "table" else {}
        found[name] = Shape(
            name, table, shape, has_rowid and kind == "table", kind == "table", alias, tuple(added.values())
        )
    return found


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
