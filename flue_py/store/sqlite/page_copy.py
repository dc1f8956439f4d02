"""Copying a SQLite database page by page, as it was when the copying began, while others go on writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Takes how many pages have been copied, and how many there are. Called on another thread."""

PAGES_AT_ONCE = 256


def copy_into(source: sqlite3.Connection, target: Path, progress: Progress | None = None) -> None:
    """Copy one snapshot of a database into a file that is empty. Raises errors of `sqlite3` as they are. O(file)."""

    def tell(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # Nobody reads it before it is complete and on disk, so that nothing is gained by waiting for the disk here.
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = MEMORY")
        # The copying would start again at each commit of another process, if it did not hold on to its snapshot.
        source.execute("BEGIN")
        try:
            source.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            source.backup(copy, pages=PAGES_AT_ONCE, progress=tell)
        finally:
            source.execute("ROLLBACK")
