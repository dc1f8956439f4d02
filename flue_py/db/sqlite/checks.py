"""Checks of database files: of one from elsewhere, and of those of a store after an erasure."""

from __future__ import annotations

import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from glob import escape
from pathlib import Path
from typing import TypeAlias

from flue_py.core.erasure import Forgotten, Needles, Piece, Place
from flue_py.core.json import encoded_size, inflate, inflated_size, json_weight, memory_of_utf8
from flue_py.core.sessions import Limits
from flue_py.db.ops.base import is_raw
from flue_py.db.sqlite.file import (
    check_magic,
    chunks_of,
    connect,
    connect_for_reading,
    create_tables,
    format_of,
    is_busy,
    translated,
)
from flue_py.errors import FlueError, FormatTooNew, NotAStore, UnreadableFile

MOST_GROWTH = 50
"""How many bytes in memory a byte of a packed payload may stand for, if its text has wide characters."""


Entries: TypeAlias = dict[str, tuple[str, str, str] | None]
"""Of each table and index its kind, its table and its SQL."""

_EARLIER: dict[int, Entries] = {
    4: {
        "budgets": (
            "table",
            "budgets",
            """\
CREATE TABLE budgets (
    budget_key INTEGER NOT NULL,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    covers TEXT NOT NULL,
    session_id TEXT,
    unit TEXT NOT NULL,
    allowed BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    reserved BIGINT NOT NULL,
    seeded BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT pk_budgets PRIMARY KEY (budget_key),
    CONSTRAINT ck_budgets_covers CHECK (covers IN ('session', 'tasks', 'scope')),
    CONSTRAINT ck_budgets_unit CHECK (unit IN ('tokens', 'picodollars')),
    CONSTRAINT ck_budgets_session CHECK ((session_id IS NULL) = (covers = 'scope')),
    CONSTRAINT uq_budgets_id UNIQUE (id),
    CONSTRAINT uq_budgets_session_id_covers_unit UNIQUE (session_id, covers, unit)
)""",
        ),
        "uq_budgets_scope": (
            "index",
            "budgets",
            "CREATE UNIQUE INDEX uq_budgets_scope ON budgets (scope, unit) WHERE session_id IS NULL",
        ),
        "ix_ledger_at": None,
    }
}
"""What stores of earlier formats had in place of what is in the schema now, or did not have."""

_SEAL = re.compile(r"    (?:seal|gap) BIGINT DEFAULT 0 NOT NULL,\n")
_HEAD = re.compile(r"    (?:head BLOB DEFAULT ''|\w+_seal BIGINT DEFAULT 0) NOT NULL,\n")
_SEALED = ("leaf_moves", "session_edits", "marks", "task_links", "documents", "ledger_sessions")
_LINES = {6: {"sessions": _HEAD, **dict.fromkeys(_SEALED, _SEAL)}}
"""The lines that a format has added to the columns of tables."""


def check_file(path: Path, limits: Limits) -> None:
    """Raise `UnreadableFile` if a file is no store, or holds anything that no store would, or more than limits allow.

    Nothing that the file declares is run: its schema is compared first.
    """
    try:
        check_magic(path)
        with closing(connect_for_reading(path, 0)) as connection:
            _check_schema(connection, path)
            (damage,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if damage != "ok":
                raise UnreadableFile(f"it is damaged ({damage})")
            _check_types(connection)
            _check_limits(connection, limits)
    except (sqlite3.Error, NotAStore) as error:
        raise UnreadableFile(f"it cannot be read ({error})") from error


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        create_tables(empty)
        ours: Entries = dict(_schema(empty))
    theirs = dict(_schema(connection))
    if theirs.get("flue_store") == ours["flue_store"]:
        try:
            ours |= _earlier(ours, format_of(connection, path) or 0)
        except FormatTooNew as error:
            raise FormatTooNew(str(error).replace(str(path), "the bundle")) from error
        except FlueError as error:
            raise UnreadableFile(str(error)) from error
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise UnreadableFile(f"its {name!r} is not that of a bundle")


def _earlier(ours: Entries, format_: int) -> Entries:
    """Return what a format had in place of what is in the schema now."""
    earlier: Entries = {}
    for lines in (added for number, added in _LINES.items() if number > format_):
        for name, line in lines.items():
            if (entry := ours[name]) is not None:
                earlier[name] = (*entry[:2], line.sub("", entry[2]))
    return earlier | _EARLIER.get(format_, {})


def _schema(connection: sqlite3.Connection) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for name, kind, table, made_by in connection.execute("SELECT name, type, tbl_name, sql FROM sqlite_master"):
        yield name, (kind, table, made_by)


_STORAGE_CLASSES = {"BIGINT": "integer", "INTEGER": "integer", "TEXT": "text", "VARCHAR(32)": "text", "BLOB": "blob"}


def _check_types(connection: sqlite3.Connection) -> None:
    """Raise `UnreadableFile` if a column has a value of another type than it declares, which SQLite allows."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        columns = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        for column, declared in columns:
            query = f"SELECT typeof({column}) FROM {table} WHERE typeof({column}) NOT IN ('null', ?) LIMIT 1"
            if (wrong := connection.execute(query, (_STORAGE_CLASSES[declared],)).fetchone()) is not None:
                raise UnreadableFile(f"a {column} of its {table} is {wrong[0]}")


_LONG_METADATA = "SELECT 1 FROM sessions WHERE length(CAST(metadata AS BLOB)) > ? LIMIT 1"
_BLOBS = """\
SELECT tree_id, sha256, data, EXISTS (SELECT 1 FROM attachments a WHERE a.tree_id = b.tree_id AND a.sha256 = b.sha256)
    AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.tree_id = b.tree_id AND e.blob = b.sha256)
  FROM blobs b"""
_ATTACHMENTS = "SELECT tree_id, sha256 FROM attachments WHERE tree_id = ? AND lane_id = ? AND depth = ?"
_ENTRIES = """\
SELECT tree_id, lane_id, depth, blob, packed,
       coalesce(length(CAST(extra AS BLOB)), 0) + coalesce(length(CAST(payload AS BLOB)), 0)
  FROM entries"""


def _check_limits(connection: sqlite3.Connection, limits: Limits) -> None:
    """Refuse entries and metadata that are larger than the limits, before any of them is unpacked as a whole."""
    most = limits.entry_bytes
    if connection.execute(_LONG_METADATA, (limits.metadata_bytes,)).fetchone() is not None:
        raise UnreadableFile(
            f"it has more metadata than the store takes ({limits.metadata_bytes} bytes, metadata_bytes)"
        )
    try:
        sizes: dict[tuple[int, bytes], int] = {}
        for tree_id, sha256, data, is_attachment in connection.execute(_BLOBS):
            # An attachment is no JSON, and weighs what it is long.
            is_plain = is_attachment and is_raw(sha256, data)
            sizes[tree_id, sha256] = len(data) if is_plain else _unpacked_size(data, most, is_json=not is_attachment)
        for tree_id, lane_id, depth, blob, packed, size in connection.execute(_ENTRIES):
            attachments = connection.execute(_ATTACHMENTS, (tree_id, lane_id, depth))
            attached = sum(encoded_size(sizes.get(key, 0)) for key in attachments)
            unpacked = 0 if packed is None else _unpacked_size(packed, most - size)
            if size + attached + unpacked + sizes.get((tree_id, blob), 0) > most:
                raise _too_large(most)
    except zlib.error as error:
        raise UnreadableFile(f"it has a payload that cannot be unpacked ({error})") from error


def _unpacked_size(packed: bytes, most: int, *, is_json: bool = True) -> int:
    """Return how long a payload is. Raises `UnreadableFile` if it would take more than the limits when it is verified.

    Small values make many objects of few bytes; a wide character makes a text four times as large, which is let pass
    where the payload is not packed from next to nothing.
    """
    size = None if most < 0 else inflated_size(packed, most)
    if size is None:
        raise _too_large(most)
    if is_json and size > most // 16:
        data = inflate(packed, most) or b""
        memory = memory_of_utf8(data, 0, size)
        is_light = memory <= size or size + memory <= max(3 * most, MOST_GROWTH * len(packed))
        if json_weight(data) > 3 * most or not is_light:
            raise _too_large(most)
    return size


def _too_large(most: int) -> UnreadableFile:
    return UnreadableFile(
        f"it has an entry that is larger than the store takes ({most} bytes, entry_bytes), or broken; read the bundle "
        "with other limits if you trust it"
    )


# ---------------------------------------------------------------------------------------------------------------------
# The files of a SQLite store after an erasure: what was deleted is taken out of them, and looked for in them.

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
