"""Erased texts: those of the rows that are about to go, and the look for them in the rows that stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import repeat

from flue_py.core.erasure import LONG_RUN, Needles, Piece, Place, Run
from flue_py.core.sessions import IMPORTED_FILES
from flue_py.core.trees import LaneFate
from flue_py.db import sql
from flue_py.db.payloads import unpacked
from flue_py.db.runner import Nothing, Row, Transaction
from flue_py.db.schema import schema_statements
from flue_py.db.sql import statement

# The texts of people in the rows of sessions. Their ids stay in the ledger.
_TEXTS = {
    "sessions": 'session_key, "key", title, metadata, cwd, config_path, first_message, auto_title',
    "marks": "session_key, value",
    "leaf_moves": "session_key, moved_by, why",
    "requests": "session_key, idempotency_key",
    "session_edits": 'session_key, "before", "after", edited_by, why',
    "task_links": "parent_key, task_id, summary",
}
TEXTS_OF_SESSIONS = [
    statement(tuple[object, ...])(f"SELECT {columns} FROM {table} WHERE {columns.partition(',')[0]} {sql.IN_KEYS}")
    for table, columns in _TEXTS.items()
]
_IN_LANE = "tree_id = :tree_id AND {0}.lane_id = :lane_id AND {0}.depth > :low"
PAYLOADS_OF_LANE = statement(tuple[int, str | None, bytes | None, str | None])(
    "SELECT e.depth, e.payload, e.packed, e.extra FROM entries e"
    f" WHERE e.{_IN_LANE.format('e')} ORDER BY e.depth LIMIT 200"
)
BLOBS_OF_LANE = statement(tuple[bytes])(
    f"SELECT e.blob FROM entries e WHERE e.{_IN_LANE.format('e')} AND e.blob IS NOT NULL"
    f" UNION SELECT a.sha256 FROM attachments a WHERE a.{_IN_LANE.format('a')}"
)
BLOB = statement(tuple[bytes])("SELECT b.data FROM blobs b WHERE b.tree_id = :tree_id AND b.sha256 = :sha256")
NAMES_OF_PAYERS = statement(tuple[object, ...])(
    f"SELECT n.session_key, n.project, NULL FROM ledger_sessions n WHERE n.session_key {sql.IN_KEYS}"
    f" UNION SELECT g.session_key, NULL, g.agent FROM ledger g WHERE g.session_key {sql.IN_KEYS}"
)
# The entries of a lane that others see, with the sessions that added them, if these are there.
SHARED = statement(tuple[str, str])(
    "SELECT s.id, e.id FROM entries e JOIN sessions s ON s.session_key = e.session_key"
    f" WHERE e.{_IN_LANE.format('e')} AND e.depth <= :depth ORDER BY e.depth"
)
DOCUMENTS_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT d.scope, d.space, d.project, d.name, d.source, d.body FROM documents d WHERE d.scope = :scope"
    f" AND (d.space <> '{IMPORTED_FILES}' OR d.project = '')"
)
NAMES_OF_SCOPE = statement(tuple[object, ...])(
    "SELECT DISTINCT g.scope, g.agent, n.project FROM ledger g"
    " LEFT JOIN ledger_sessions n ON n.session_key = g.session_key WHERE g.scope = :scope"
)
FORGET_AGENTS_OF_SESSIONS = statement(Nothing)(
    f"UPDATE ledger SET agent = NULL WHERE agent IS NOT NULL AND session_key {sql.IN_KEYS}"
)
FORGET_FOLDERS_OF_SESSIONS = statement(Nothing)(
    f"UPDATE ledger_sessions SET project = NULL WHERE project IS NOT NULL AND session_key {sql.IN_KEYS}"
)
OVERWRITE = statement(tuple[int])(sql.OVERWRITE)
ALL_TABLES = statement(tuple[str, int])(sql.ALL_TABLES)
# Until everything was looked through, another call knows by this that a process may have been killed before that.
UNFINISHED = statement(Nothing)(
    "INSERT INTO flue_store (name, value) VALUES ('erasing', 1) ON CONFLICT (name) DO NOTHING"
)
FINISHED = statement(Nothing)("DELETE FROM flue_store WHERE name = 'erasing'")


IS_ERASING = statement(tuple[int])("SELECT value FROM flue_store WHERE name = 'erasing'")


def is_erasing(tx: Transaction) -> bool:
    """Return whether an erasure has begun and was not finished (see `Backend.is_erasing`)."""
    return tx.first(IS_ERASING) is not None


def finish(tx: Transaction) -> None:
    """Note that everything was looked through."""
    tx.run(FINISHED)


def begin(tx: Transaction) -> None:
    """Have the database overwrite what this transaction deletes, as far as it can, and note that this has begun."""
    tx.rows(OVERWRITE)
    tx.run(UNFINISHED)


def take_sessions(tx: Transaction, needles: Needles, fates: Sequence[LaneFate], keys: str) -> None:
    """Take the texts of the sessions of these keys, and of the ends of their lanes that go. O(their size)."""
    for texts in (*TEXTS_OF_SESSIONS, NAMES_OF_PAYERS):
        for rows in tx.pages(texts, keys=keys):
            _add(needles, rows)
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        low = fate.keep_depth
        while payloads := tx.rows(PAYLOADS_OF_LANE, low=low, **lane):
            _add(needles, payloads)
            low = payloads[-1][0]
        for (sha256,) in tx.rows(BLOBS_OF_LANE, low=fate.keep_depth, **lane):
            _add(needles, [(None, *row) for row in tx.rows(BLOB, tree_id=fate.lane.tree_id, sha256=bytes(sha256))])


def shared(tx: Transaction, fates: Sequence[LaneFate]) -> tuple[tuple[str, str], ...]:
    """Return the entries of lanes that others see, as (session, entry), as far as these sessions are there."""
    pairs: list[tuple[str, str]] = []
    for fate in fates:
        lane = {"tree_id": fate.lane.tree_id, "lane_id": fate.lane.lane_id}
        pairs += tx.rows(SHARED, low=fate.lane.fork_depth, depth=fate.keep_depth, **lane)
    return tuple(pairs)


def forget_payers(tx: Transaction, keys: str) -> None:
    """Take agents and folders out of the calls that sessions have paid for."""
    tx.run(FORGET_AGENTS_OF_SESSIONS, keys=keys)
    tx.run(FORGET_FOLDERS_OF_SESSIONS, keys=keys)


def take_scope(tx: Transaction, needles: Needles, scope: str) -> None:
    """Take the texts of the documents of a scope, and of the names in its calls. O(their size)."""
    for texts in (DOCUMENTS_OF_SCOPE, NAMES_OF_SCOPE):
        for rows in tx.pages(texts, scope=scope):
            _add(needles, rows)


def _add(needles: Needles, rows: Sequence[Row]) -> None:
    """Take all texts of rows but in their first column, which is a key."""
    for _, *values in rows:
        needles.add(*(value for value in values if isinstance(value, (str, bytes))))


# -- the look ---------------------------------------------------------------------------------------------------------

_BLOCKS = 64
"""How many pages of a table of PostgreSQL are read at once."""


def own_tables() -> frozenset[str]:
    """Return the names of the tables that a store brings with it."""
    names = (name for text in schema_statements() for name in re.findall(r"CREATE TABLE (\w+)", text))
    return frozenset([*names, "flue_store", "sqlite_master"])


def look(tx: Transaction, needles: Needles) -> tuple[list[Place], list[Place]]:
    """Look for erased texts in the rows of all tables: those of other tables, and those of the store's. O(store)."""
    own = own_tables()
    tables = [_look_in(tx, needles, name, blocks, is_own=name in own) for name, blocks in tx.rows(ALL_TABLES)]
    return [table for table in tables if table.name not in own], [table for table in tables if table.name in own]


def _look_in(tx: Transaction, needles: Needles, table: str, blocks: int, *, is_own: bool) -> Place:
    count, pieces, where, long_bytes = 0, set[Piece](), "", 0
    for rows in _pages_of(tx, table, blocks):
        count += len(rows)
        for row in rows:
            for run, is_stored in _runs_in(row, needles):
                # A file has what is stored, and nothing of what is packed in that.
                pieces.update(run.pieces if is_stored else ())
                if run.size >= LONG_RUN or not is_own:
                    long_bytes += run.size
                    where = where or next((f"row {text[:80]}" for text in row if isinstance(text, str)), "")
    return Place(table, count, pieces, where, long_bytes)


def _runs_in(row: Sequence[object], needles: Needles) -> Iterator[tuple[Run, bool]]:
    """Yield the runs in the values of a row, and whether they are stored so; also those in what is packed."""
    for value in row:
        data = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        if isinstance(data, bytes):
            yield from zip(needles.runs(data, of_rows=True), repeat(True))
        if isinstance(value, bytes) and value.startswith(b"x") and (text := unpacked(value)) is not None:
            yield from zip(needles.runs(text, of_rows=True), repeat(False))


def _pages_of(tx: Transaction, table: str, blocks: int) -> Iterator[Sequence[Row]]:
    text = f'SELECT * FROM "{table}"'
    if blocks < 0:
        yield from tx.pages(statement(tuple[object, ...])(text))
    for block in range(0, blocks, _BLOCKS):
        places = [f"CAST('({number},0)' AS tid)" for number in (block, block + _BLOCKS)]
        yield tx.rows(statement(tuple[object, ...])(f"{text} WHERE ctid >= {places[0]} AND ctid < {places[1]}"))
