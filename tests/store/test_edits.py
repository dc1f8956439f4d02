"""What single edits of the rows of a store can do: a read refuses what was edited, or says what it said before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from flue_py.db.sqlite.runner import open_on_caller, read_only_on_caller
from tests.effort import first
from tests.postgres import NewDatabase, connected
from tests.sources import START_US, counted_sources
from tests.store.edits import Edit, FileRows, Read, Rows, answer_of, awaited_answer_of, is_refused, make, ran, reads
from tests.store.sqlite_batches import opened_on_engine

if TYPE_CHECKING:
    import asyncpg

OFF_PATH = {"marks", "entry costs", "log", "changes", "search"}
UNSEEN: dict[str, set[str]] = {
    "entries": {*OFF_PATH, "usage"},  # what is not on the path of a session, and sums, which verify() makes anew
    "lanes": OFF_PATH,
    "task_links": {"parents", "budgets"},  # a link that is gone is seen where the parent is read
    "budgets": {"budgets"},  # which whoever may write may set
    "reservations": {"budgets"},
    "sessions": {"by key", "marks", "list"},  # who has a key
}
"""What no digest covers, by table, and the reads whose answers change with it."""

CREATOR = {"path", "context", "turns", "tree", *OFF_PATH}
"""A copy gives entries to sessions of other keys: no digest covers which session made an entry."""

PLACE = {None, "tree_id", "lane_id", "depth", "session_key", "revision"}
"""Edits after which an entry that is on no path is where nobody looks. Others of an entry change its sums alone."""

GONE = {"id", "trashed_at", "delete"}
"""Edits after which a session is not there any more: only a witness knows that it was."""


def is_unseen(rows: Rows, edit: Edit, name: str, session_id: str) -> bool:
    """Return whether an edit may change what a read says of a session."""
    if edit.table == "entries" and edit.column not in PLACE:
        return name == "usage"
    if edit[:2] == ("entries", "delete"):
        return name in {"entry costs", "marks"}  # others refuse: the log tells its lane, and a lane has no gap
    if name in UNSEEN.get(edit.table, ()):
        return True
    # Links and budgets name a session by its key: one of another key is seen where that session is read.
    if (edit.table, edit.column) == ("sessions", "session_key") and name in UNSEEN["task_links"]:
        return True
    if edit.table != "sessions":
        return (edit.table, edit.column) == ("entries", "session_key") and name in CREATOR
    edited = {edit.row} if edit.column is not None else {edit.row, edit.other}
    is_own = any(session_id in rows.rows["sessions"][row] for row in edited)
    return (edit.column or edit.kind) in GONE or (name in CREATOR and not is_own)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FileRows, dict[tuple[str, str], Read]]]:
    """The rows of a store, and what it says."""
    path: Path = tmp_path_factory.mktemp("edits") / "s.db"
    writer = open_on_caller(path, sources=counted_sources(), durability="normal")
    session_ids = ran(make(writer))
    ran(writer.close())
    rows = FileRows(path)
    backend = read_only_on_caller(path, sources=replace(counted_sources(), now_us=lambda: START_US + 1_000_000))
    yield rows, reads(backend, session_ids)
    ran(backend.close())
    rows.connection.close()


@pytest.mark.parametrize("part", first(1, [slice(0, None, 20), slice(None)]), ids=["few", "all"])
def test_an_edit_of_a_row_is_refused_where_it_is_read_or_changes_nothing(
    made: tuple[FileRows, dict[tuple[str, str], Read]], part: slice
) -> None:
    rows, all_reads = made
    answers = {place: answer_of(read) for place, read in all_reads.items()}
    # In a few that are drawn there is hardly one of these.
    some = [edit for edit in rows.edits() if edit.table == "leaf_moves" or edit[:2] == ("entries", "delete")]
    edits = [*Random(1).sample(rows.edits(), 2_000)[part], *some]
    holes, refused = [], 0
    for edit in edits:
        if not rows.make(edit):
            continue
        for place, read in all_reads.items():
            answer = answer_of(read)
            refused += is_refused(answer)
            if answer == answers[place] or is_refused(answer) or is_unseen(rows, edit, *place):
                continue
            holes.append((edit, place, answer))
        rows.undo(edit)
    assert holes == []
    assert refused > 25


# -- The same on PostgreSQL -------------------------------------------------------------------------------------------


async def rows_on_postgres(connection: asyncpg.Connection) -> Rows:
    """Return the rows of a store, in which nothing but unique keys and types keeps anybody from an edit."""
    rows = Rows()
    for table in await connection.fetch(_TABLES):
        name, keys = table["name"], table["keys"]
        found = await connection.fetch(f"SELECT * FROM {name} ORDER BY {', '.join(keys)}")
        rows.columns[name], rows.keys[name] = table["columns"], keys
        rows.rows[name] = [tuple(row) for row in found]
    for constraint in await connection.fetch(_CONSTRAINTS):
        await connection.execute(f"ALTER TABLE {constraint['table']} DROP CONSTRAINT {constraint['name']} CASCADE")
    return rows


_TABLES = """
SELECT c.relname AS name, (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
 (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i
 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = c.oid AND i.indisprimary)
 AS keys
 FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1"""
_CONSTRAINTS = """
SELECT conrelid::regclass AS table, quote_ident(conname) AS name FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace AND contype IN ('f', 'c')"""


async def write_on_postgres(connection: asyncpg.Connection, rows: Rows, table: str, new: list[tuple[Any, ...]]) -> bool:
    """Put rows in the place of a table's; return False where the database does not take them."""
    marks = ", ".join(f"${number}" for number in range(1, len(rows.columns[table]) + 1))
    import asyncpg

    try:
        async with connection.transaction():
            await connection.execute(f"DELETE FROM {table}")
            await connection.executemany(f"INSERT INTO {table} VALUES ({marks})", new)
    except (asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return True


@pytest.mark.parametrize("part", first(1, [slice(8), slice(8, 508)]))
async def test_an_edit_of_a_row_of_postgresql_is_refused_where_it_is_read_or_changes_nothing(
    new_database: NewDatabase, part: slice
) -> None:
    url = new_database()
    async with opened_on_engine(url) as writer:
        session_ids = await make(writer)
    later = replace(counted_sources(), now_us=lambda: START_US + 1_000_000)
    async with connected(url) as connection, opened_on_engine(url, later) as backend:
        rows, all_reads = await rows_on_postgres(connection), reads(backend, session_ids)
        # Who searches first makes the index, and is answered in another way than those after it.
        del all_reads["search", ""]
        answers = {place: await awaited_answer_of(read) for place, read in all_reads.items()}
        holes, refused = [], 0
        for edit in Random(2).sample(rows.edits(), 508)[part]:
            new = rows.edited(edit)
            if new is None or not await write_on_postgres(connection, rows, edit.table, new):
                continue
            for place, read in all_reads.items():
                answer = await awaited_answer_of(read)
                refused += is_refused(answer)
                if answer == answers[place] or is_refused(answer) or is_unseen(rows, edit, *place):
                    continue
                holes.append((edit, place, answer))
            assert await write_on_postgres(connection, rows, edit.table, rows.rows[edit.table])
    assert holes == []
    assert refused > 2
