"""The contract on a store whose history is hash-partitioned by tree, by the script of `docs/how-to/scale.md`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest

from flue_py.core.sessions import NewSession
from tests.contract import NewStore
from tests.contract.append import AppendContract
from tests.contract.deletion import DeletionContract
from tests.contract.documents import AttachmentContract
from tests.contract.marks import ForkContract
from tests.contract.moves import UndoContract
from tests.docs import pages
from tests.postgres import END_OTHERS, Databases, KeptEngines, NewDatabase, blocking, connected
from tests.samples import add, new_session, path_ids, talk, user
from tests.sources import OpenBackend
from tests.store.sqlite_batches import opened_on_engine

if TYPE_CHECKING:
    from asyncpg import Connection

PAGE = "docs/how-to/scale.md"
PARTITIONED = ["attachments", "blobs", "entries", "lanes"]
PARTITIONS = 4

COLUMNS = """\
SELECT table_name, column_name, ordinal_position, data_type, is_nullable, collation_name, column_default
  FROM information_schema.columns WHERE table_name = ANY($1) ORDER BY table_name, ordinal_position"""
CONSTRAINTS = """\
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE conrelid::regclass::text = ANY($1) AND contype IN ('p', 'u', 'c') ORDER BY 1, 2"""
INDEXES = """\
SELECT tablename, indexname, replace(indexdef, ' ON ONLY ', ' ON ') FROM pg_indexes
 WHERE tablename = ANY($1) ORDER BY 1, 2"""
OTHERS = """\
SELECT relname, relkind::text FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
   AND relname <> ALL($1) ORDER BY 1"""

# Every row that a test can have left, without the stamp.
_EMPTY = f"""
DO $$
DECLARE filled text;
BEGIN
    {END_OTHERS}
    FOR filled IN SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
          AND relname NOT IN ('flue_store', 'alembic_version')
    LOOP
        EXECUTE format('DELETE FROM %I', filled);
    END LOOP;
    UPDATE flue_store SET value = 0 WHERE name = 'epoch';
    DELETE FROM flue_store WHERE name = 'documents';
END $$;
"""


def block_of_page(first_words: str) -> str:
    """Return a block of the page, as an operator runs it."""
    text = (pages.ROOT / PAGE).read_text(encoding="utf-8")
    return next(block.text for block in pages.blocks_of(PAGE, text) if block.text.startswith(first_words))


def partitioning_script() -> str:
    return block_of_page("-- Partitions a store")


async def make_partitioned(url: str) -> None:
    """Let the engine make a store in an empty database, and run the page's script on it."""
    async with opened_on_engine(url):
        pass
    async with connected(url) as connection:
        await connection.execute(partitioning_script())


class PartitionedDatabases:
    """Databases with an empty partitioned store, each lent to one test at a time; emptying one beats making one."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._idle: list[str] = []
        self._all: list[str] = []

    def take_store(self) -> str:
        """Return the URL of an empty, partitioned store."""
        if self._idle:
            url = self._idle.pop()
            self._databases.kept.execute(url, _EMPTY)
        else:
            url = self._databases.take()
            self._all.append(url)
            blocking(make_partitioned(url))
        return url

    def give_back_store(self, url: str) -> None:
        """Accept a store that nobody will use any more."""
        self._idle.append(url)

    give_back = give_back_store

    def close(self) -> None:
        """Give all databases back to whom they are from, who empties them."""
        for url in self._all:
            self._databases.give_back(url)


@pytest.fixture(scope="module")
def partitioned_databases(postgres_databases: Databases) -> Iterator[PartitionedDatabases]:
    databases = PartitionedDatabases(postgres_databases)
    yield databases
    databases.close()


@pytest.fixture(scope="module")
async def partitioned_engines(
    anyio_backend: str, partitioned_databases: PartitionedDatabases
) -> AsyncIterator[KeptEngines]:
    engines = KeptEngines(partitioned_databases)
    yield engines
    await engines.close()


@pytest.fixture
def partitioned_url(partitioned_databases: PartitionedDatabases) -> Iterator[str]:
    url = partitioned_databases.take_store()
    yield url
    partitioned_databases.give_back_store(url)


class Partitioned:
    """Stores in partitioned databases: a property opens one per example."""

    @pytest.fixture
    async def open_backend(self, partitioned_engines: KeptEngines, anyio_backend: str) -> AsyncIterator[OpenBackend]:
        yield partitioned_engines.open
        await partitioned_engines.end_test()


class TestPartitionedContract(Partitioned, NewStore, AttachmentContract, DeletionContract):
    """The contract, where rows are written to partitions and deleted from them.

    `test_whole_contract` keeps all of it, with --run-slow.
    """


@pytest.mark.thorough
class TestPartitionedContractOfLanes(Partitioned, NewStore, AppendContract, ForkContract, UndoContract):
    """The contract, where rows are written to partitions and moved between them."""


async def catalog_facts(connection: Connection) -> list[object]:
    """Return what the catalogs say of the partitioned tables, and which others there are."""
    tables = [await connection.fetch(query, PARTITIONED) for query in (COLUMNS, CONSTRAINTS, INDEXES, OTHERS)]
    return [*tables, await connection.fetchval("SELECT pg_get_viewdef('history'::regclass)")]


async def partitions_of_trees(connection: Connection, table: str) -> dict[int, list[str]]:
    """Return the partitions that hold rows of a tree, by tree."""
    number = f"substr(tableoid::regclass::text, {len(table) + 2})"
    return dict(await connection.fetch(f"SELECT tree_id, array_agg(DISTINCT {number}) FROM {table} GROUP BY 1"))


async def test_partitioned_tables_have_the_columns_keys_and_indexes_that_the_engine_made(
    new_database: NewDatabase,
) -> None:
    url = new_database()
    async with opened_on_engine(url):
        pass
    async with connected(url) as connection:
        made = await catalog_facts(connection)
        await connection.execute(partitioning_script())
        assert await catalog_facts(connection) == made
        assert all(made)
        partitions = await connection.fetch(
            "SELECT inhparent::regclass::text, COUNT(*) FROM pg_inherits WHERE inhparent::regclass::text = ANY($1)"
            " GROUP BY 1 ORDER BY 1",
            PARTITIONED,
        )
    assert [tuple(row) for row in partitions] == [(name, PARTITIONS) for name in PARTITIONED]


async def test_all_history_of_a_tree_lies_in_one_partition_of_each_table(partitioned_url: str) -> None:
    trees = 24
    incompressible = Random(7).randbytes(20_000).hex()
    async with opened_on_engine(partitioned_url) as backend:
        for number in range(trees):
            session = await new_session(backend, *talk(4), user(f"{number} {incompressible}"))
            other = await backend.fork(session.id, (await path_ids(backend, session.id))[1], NewSession())
            await add(backend, other.id, user("elsewhere"))

    async with connected(partitioned_url) as connection:
        of_entries, of_lanes, of_blobs, of_attachments = [
            await partitions_of_trees(connection, table) for table in ("entries", "lanes", "blobs", "attachments")
        ]
    assert len(of_entries) == trees
    assert of_entries == of_lanes == of_blobs == of_attachments
    assert {len(partitions) for partitions in of_entries.values()} == {1}
    assert len({partition for (partition,) in of_entries.values()}) > 1


async def test_the_script_refuses_a_store_that_holds_something_and_one_it_has_partitioned(
    new_database: NewDatabase, partitioned_url: str
) -> None:
    import asyncpg

    url = new_database()
    async with opened_on_engine(url) as backend:
        await new_session(backend, *talk(2))
        for refused in (url, partitioned_url):
            async with connected(refused) as connection:
                before = await catalog_facts(connection)
                with pytest.raises(asyncpg.RaiseError, match="the table entries has rows, or is partitioned already"):
                    await connection.execute(partitioning_script())
                await connection.execute("ROLLBACK")
                assert await catalog_facts(connection) == before
        assert (await backend.verify()).problems == []


async def test_the_query_for_bytes_per_row_tells_them_of_each_table_that_holds_some(new_database: NewDatabase) -> None:
    url = new_database()
    async with opened_on_engine(url) as backend:
        await new_session(backend, *talk(8))
    async with connected(url) as connection:
        await connection.execute("VACUUM ANALYZE")
        rows = await connection.fetch(block_of_page("-- Bytes of a row"))
    counts = {row["table"]: row["rows"] for row in rows}
    assert (counts["sessions"], counts["lanes"], counts["entries"], counts["ledger"]) == (1, 1, 8, 4)
    assert all(row["bytes_per_row"] > 0 and row["index_bytes_per_row"] > 0 for row in rows)
