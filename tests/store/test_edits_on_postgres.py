"""What single edits of the rows of PostgreSQL can do: a read refuses what was edited, or says what it said before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.effort import first
from tests.postgres import NewDatabase, connected
from tests.sources import START_US, counted_sources
from tests.store.edits import Rows, awaited_answer_of, is_refused, make, reads
from tests.store.sqlite_batches import opened_on_engine
from tests.store.test_edits import is_unseen

if TYPE_CHECKING:
    import asyncpg


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
