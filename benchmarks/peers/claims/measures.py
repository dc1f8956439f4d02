"""What the programs look at: rows, columns and sizes of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

FILE = "store.db"


def rows(folder: Path, sql: str) -> list[Any]:
    """Return the rows of a query on the store's file, each as a tuple."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(sql).fetchall()


def count(folder: Path, table: str) -> int:
    """Return the number of rows in a table."""
    return int(rows(folder, f"SELECT count(*) FROM {table}")[0][0])


def columns(folder: Path) -> set[str]:
    """Return the names of all tables and columns."""
    tables = [name for (name,) in rows(folder, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    held = {row[1] for table in tables for row in rows(folder, f"PRAGMA table_info({table})")}
    return {*tables, *held}


def user_version(folder: Path) -> int:
    """Return the number that a file of SQLite has for the version of its tables; 0 if it was never set."""
    return int(rows(folder, "PRAGMA user_version")[0][0])


def size(folder: Path) -> int:
    """Return the bytes of the file, with what is still in its log."""
    rows(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    return (folder / FILE).stat().st_size


def names_like(store: object, *words: str) -> list[str]:
    """Return the public names of an object that have one of the words in them."""
    return [name for name in dir(store) if not name.startswith("_") and any(word in name for word in words)]
