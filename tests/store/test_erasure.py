"""An erasure leaves no byte in any file of a SQLite store, and no row in PostgreSQL; a trace that is there is found."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Text

import flue_py
from flue_py.core import erasure
from flue_py.core.erasure import Needles
from flue_py.db import secrets
from flue_py.db.ops import delete
from flue_py.db.sql import statement
from flue_py.db.sqlite import checks
from flue_py.db.sqlite.runner import RunnerOnFile
from flue_py.db.tables import metadata
from tests.files import new_store_file
from tests.postgres import NewDatabase, connected

WAYS = ("threads", "caller", "engine")
PICTURE = "iVBORw0KGgo" + "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=30_000))


FOUND_BY = frozenset({"idempotency_key", "key", "task_id"})
"""Texts of people by which rows are found: they are looked for, and a secret in them is refused, not masked."""
NAMES = frozenset({
    "child_id", "entry_id", "forked_from_entry", "forked_from_session", "from_entry", "id", "kind", "leaf", "operation",
    "reason", "result", "scope", "status", "to_entry", "what",
})  # fmt: skip
"""Ids, and words of this library."""


@asynccontextmanager
async def with_two(target: str | Path, way: str = "") -> AsyncIterator[flue_py.Store]:
    """Open a store with the session "doomed", of texts of all sizes, and "stays"."""
    threads = False if way == "caller" else None
    async with flue_py.open(target, durability="normal", threads=threads) as store:
        doomed = await store.create_session(id="doomed", title="The illness of Jane", cwd="/home/jane-doe/her-project")
        stays = await store.create_session(id="stays", title="The weather")
        for number in range(12):
            await doomed.append_message(user(f"{number}: Jane has an illness. " * (number % 7 * 12 + 1)))
            await stays.append_message(user(f"{number}: The weather is fine. " * (number % 5 * 9 + 1)))
        await doomed.append_message(user("".join(f"{number * 7919 % 1000003} of Jane " for number in range(6_000))))
        picture = {"type": "image", "mimeType": "image/png", "data": PICTURE}
        await doomed.append_message({"role": "user", "content": [picture]})
        answer = {"role": "assistant", "content": "x", "usage": {"input": 1, "output": 1}, "agent": "Jane's own agent"}
        await doomed.append_message(answer)
        await doomed.set_title("The illness of Jane, again")
        first = (await doomed.get_active_path())[0]
        await doomed.marks.set_label(first.id, "Jane's diagnosis")
        yield store


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def values_of(path: Path) -> set[bytes]:
    """Return all texts of all rows of a file, as they are stored."""
    values: set[bytes] = set()
    with closing(sqlite3.connect(path)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                values.update(v.encode() if isinstance(v, str) else v for v in row if isinstance(v, (str, bytes)))
    return values


def pieces(value: bytes) -> Iterator[bytes]:
    yield from (value[at : at + 24] for at in range(0, max(len(value) - 23, 1), 61))


def left_in(path: Path, gone: set[bytes], rest: bytes) -> list[tuple[str, bytes]]:
    """Return the pieces of values that are in a file beside a store, unless a row that is there has them, too."""
    wanted = {piece for value in gone if len(value) > 7 for piece in pieces(value) if piece not in rest}
    files = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    return [(name, piece) for name, data in files.items() for piece in wanted if piece in data]


def test_each_text_of_a_row_of_a_session_is_looked_for_and_is_masked() -> None:
    for table, listed in delete._TEXTS.items():
        texts = {column.name for column in metadata.tables[table].columns if isinstance(column.type, Text)} - NAMES
        assert texts <= {*listed.replace('"', "").split(", ")}, table
        assert texts - secrets._TEXTS <= FOUND_BY, table


@pytest.mark.parametrize("way", WAYS)
async def test_no_file_has_a_byte_of_what_was_erased(tmp_path: Path, way: str) -> None:
    path = new_store_file(tmp_path / "s.db")
    async with with_two(f"sqlite+aiosqlite:///{path}" if way == "engine" else path, way) as store:
        await store.search("illness")
        before = values_of(path)
        needles = Needles()
        deletion = await store.backend.delete_tree("doomed", erased=needles)
        assert (deletion.entries_deleted, deletion.shared) == (15, ())
        assert await store.backend.is_erasing()
        look = await store.backend.forget_deleted(needles)
        assert (look.is_clean, look.traces, look.hindrances) == (True, (), ())
        assert {Path(name).name for name, _ in look.places if "/" in name} >= {"s.db", "s.db-wal", "s.db-words"}
        assert not await store.backend.is_erasing()
        after = values_of(path)
        assert {b"The illness of Jane, again", b"Jane's diagnosis", b"Jane's own agent"} < before - after
        assert left_in(path, before - after, b"\n".join(after)) == []
        assert len((await store.search("weather")).hits) > 1
        assert (await store.verify()).problems == []
    assert left_in(path, before - after, b"\n".join(after)) == []


async def test_a_trace_that_is_left_is_found_and_goes_with_a_file_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_store_file(tmp_path / "s.db")
    async with with_two(path) as store:
        needles = Needles()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with monkeypatch.context() as patched:
            # Some builds of SQLite overwrite what they delete, whoever asks for it.
            patched.setattr(delete, "OVERWRITE", statement(tuple[int])("PRAGMA secure_delete = OFF"))
            await store.backend.delete_tree("doomed", erased=needles)
            patched.setattr(checks, "_emptied", lambda *_, **__: [])
            look = await store.backend.forget_deleted(needles)
            assert [Path(trace.place).name for trace in look.traces] == ["s.db", "s.db-wal"]
            assert "Jane" not in str(look)
        # The bytes that nobody has overwritten go with the old file.
        look = await store.backend.forget_deleted(needles)
        assert look.is_clean
        assert look.rebuilt


async def test_who_reads_an_older_state_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "READER_WAIT_SECONDS", 0.01)
    path = new_store_file(tmp_path / "s.db")
    async with with_two(path) as store:
        needles = Needles()
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM sessions").fetchone()
            await store.backend.delete_tree("doomed", erased=needles)
            look = await store.backend.forget_deleted(needles)
            assert not look.is_clean
            assert "somebody reads an older state" in look.hindrances[0]
            assert await store.backend.is_erasing()
        assert (await store.backend.forget_deleted(needles)).is_clean


async def test_an_index_that_has_not_forgotten_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_store_file(tmp_path / "s.db")
    async with with_two(path) as store:
        await store.search("illness")
        needles = Needles()

        async def nothing(*_: object) -> None:
            """Be killed before the index forgets."""

        with monkeypatch.context() as patched:
            patched.setattr(RunnerOnFile, "forget_words", nothing)
            await store.backend.delete_tree("doomed", erased=needles)
        assert (await store.backend.forget_deleted(needles)).is_clean
        assert await store.backend.words_location() is None


def test_each_run_of_a_text_is_found_wherever_it_is_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, run_bytes in ((1 << 20, 16), (80_000, 31), (20_000, 79)):
        monkeypatch.setattr(erasure, "MOST_PIECES", most)
        random, needles = Random(7), Needles()
        texts = [random.randbytes(random.randint(80, 900)) for _ in range(300)]
        shorts = [random.randbytes(random.randint(7, 15)) for _ in range(50)]
        needles.add(*texts, *shorts, "Jane", None, b"\0" * 500)
        assert needles.size == sum(map(len, (*texts, *shorts))) + 4 + 500
        assert (needles.unsampled, needles.run_bytes) == (2, run_bytes)
        other = Needles()
        other.take(needles)
        wrong = []
        for number in range(400):
            text = random.choice(texts) if number % 2 else random.choice(shorts)
            begin = random.randint(0, len(text) - run_bytes) if len(text) > 15 else 0
            piece = text[begin:][:run_bytes]
            data = random.randbytes(random.randint(0, 50)) + piece + random.randbytes(random.randint(0, 20))
            if not all(list(found.runs(data, of_rows=bool(number % 3))) for found in (needles, other)):
                wrong.append((text, begin))
        assert wrong == []
        assert not list(needles.runs(random.randbytes(9_999)))


async def test_a_store_in_memory_has_no_file_to_look_in() -> None:
    async with with_two(":memory:") as store:
        receipt = await store.erase(["doomed", "nobody"], dry_run=False, why="she asked")
        assert receipt.look is not None
        assert (receipt.is_complete, receipt.session_ids, receipt.why) == (True, ("doomed",), "she asked")
        assert ("entries", 12) in receipt.look.places
        assert "/" not in str(receipt.look.places)


async def test_rows_of_postgresql_are_looked_for_and_its_dead_rows_freed(new_store_database: NewDatabase) -> None:
    target = new_store_database()
    async with with_two(target) as store, connected(target) as connection:
        await store.search("illness")
        await connection.execute("CREATE TABLE copied AS SELECT id, title FROM sessions WHERE id = 'doomed'")
        needles = Needles()
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch("SELECT 1 FROM sessions")
            await store.backend.delete_tree("doomed", erased=needles)
            look = await store.backend.forget_deleted(needles)
            assert [(trace.place, trace.where) for trace in look.traces] == [("copied", "row doomed")]
            assert "1 transactions see older rows" in look.hindrances[0]
        await connection.execute("DROP TABLE copied")
        look = await store.backend.forget_deleted(needles)
        assert (look.traces, look.hindrances) == ((), ())
        assert ("entries", 12) in look.places
        assert any("write-ahead log" in text for text in look.out_of_reach)
        receipt = await store.erase_scope("", dry_run=False)
        assert (receipt.is_complete, receipt.counts["entries"], receipt.look and receipt.look.stays) == (True, 12, ())
        assert (await store.verify()).problems == []
