"""The files of a SQLite store after an erasure: what was deleted is taken out of them, and looked for in them.

SQLite leaves what is deleted in free pages, in the free bytes of other pages, and in the log. The transaction that
deletes overwrites the first, a checkpoint empties the log; the second may be there from long before, when rows were
moved or changed, and goes when the file is written anew.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from glob import escape
from pathlib import Path

from flue_py.core.erasure import Forgotten, Needles, Piece, Place
from flue_py.db.sqlite.file import chunks_of, connect, is_busy, translated

READER_WAIT_SECONDS = 1.0
_SUFFIXES = ("", "-wal", "-shm", "-journal", "-words", "-words-journal")
_BEYOND = ("what the file system keeps: blocks that files have left, and its snapshots",)


def forget_deleted(store: Path, needles: Needles, *, rebuild: bool) -> Forgotten:
    """Take what was deleted out of the files of a store, and look for it there (see `Runner.forget_deleted`).

    Whoever reads an older state is waited for a second, and is a hindrance then. Blocks; O(files).
    """
    with translated(store), closing(connect(store, "full", read_only=False, timeout=READER_WAIT_SECONDS)) as connection:
        hindrances = _emptied(connection, store, rebuild=rebuild)
    return Forgotten([_look_in(path, needles) for path in _files_of(store)], hindrances, _BEYOND)


def _emptied(connection: sqlite3.Connection, store: Path, *, rebuild: bool) -> list[str]:
    """Empty the log, after the file was written anew if that is wanted; return what prevents it."""
    # The rest goes through a temporary file, which has no name: it may not fit into the memory.
    connection.execute("PRAGMA temp_store = FILE")
    if rebuild:
        try:
            connection.execute("VACUUM")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return [f"others use {store}, so it cannot be written anew; erase again when they have ended"]
    is_held, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    log = Path(f"{store.resolve()}-wal")
    with suppress(OSError):
        is_held = is_held or log.stat().st_size > 0
    held = f"somebody reads an older state of {store}, so {log} keeps it; end that, and erase again"
    return [held] if is_held else []


def _files_of(store: Path) -> list[str]:
    """Return the files of a store that are there, and the backups that upgrades have left beside it."""
    real = store.resolve()
    backups = sorted(real.parent.glob(f"{escape(real.name)}.format-*.bak"))
    names = [*(f"{real}{suffix}" for suffix in _SUFFIXES), *map(str, backups)]
    return [name for name in names if os.path.exists(name)]


def _look_in(name: str, needles: Needles) -> Place:
    size, pieces, where = 0, set[Piece](), ""
    end = b""
    with suppress(FileNotFoundError):
        for chunk in chunks_of(name):
            data = end + chunk
            for run in needles.runs(data):
                pieces.update(run.pieces)
                where = where or f"byte {size - len(end) + run.start:,}"
            size += len(chunk)
            end = data[1 - needles.run_bytes :]
    return Place(name, size, pieces, where)
