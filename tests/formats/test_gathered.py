"""Databases of other programs: read as they are, also while they are written, and not again when nothing changed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.formats.gathered import database_of, has_tables, log_beside, table_row
from flue_py.formats.registry import find_format
from flue_py.transfer import imports
from flue_py.transfer.imports import ImportedFiles, import_source
from flue_py.transfer.source import ImportSource
from tests.checks import raises
from tests.formats.transcripts import all_seen
from tests.programs.made import unpack

TABLES = (
    "session (id, title, time_created)",
    "message (id, session_id, time_created, data)",
    "part (id, message_id, data)",
)
ENDED = '{"role": "assistant", "time": {"created": 2, "completed": 3}}'
BEGUN = '{"role": "assistant", "time": {"created": 2}}'


@contextmanager
def made(path: Path, mode: str = "WAL") -> Iterator[sqlite3.Connection]:
    """Yield a connection to a database with a session of one prompt and an answer that is being written."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        for table in TABLES:
            database.execute(f"CREATE TABLE {table}")
        database.execute("INSERT INTO session VALUES ('ses_1', 'T', 1)")
        database.execute("INSERT INTO message VALUES ('m1', 'ses_1', 1, '{\"role\": \"user\"}')")
        database.execute("INSERT INTO message VALUES ('m2', 'ses_1', 2, ?)", (BEGUN,))
        for name in ("m1", "m2"):
            part = f'{{"type": "text", "text": "{name} says"}}'
            database.execute("INSERT INTO part VALUES (?, ?, ?)", (f"{name}p", name, part))
        database.commit()
        yield database


async def files(store: flue_py.Store, path: Path) -> bool:
    """Import a file if it has to be read, as the command line does; return whether it had to be."""
    remembered = ImportedFiles(store, "", finish=False, wanted="auto", version="1")
    await remembered.read()
    if remembered.report(path) is not None:
        return False
    with ImportSource(path) as source:
        source.start()
        remembered.note(source, await import_source(store, source))
    await remembered.write()
    return True


async def said(store: flue_py.Store) -> list[str]:
    session = await store.find_session("ses_1")
    return [str(entry.fields["content"][0]["text"]) for entry in await session.get_tree()]


async def test_a_row_that_is_in_the_log_alone_is_seen_while_the_program_writes(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    async with flue_py.open(":memory:") as store:
        with made(path) as writer:
            first = await flue_py.import_file(store, path)
            assert (await said(store), first.held_back) == (["m1 says"], 1)
            before = path.stat()
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE message SET data = ? WHERE id = 'm2'", (ENDED,))
            # A transaction that is open hides nothing, and stops nobody.
            assert not (await flue_py.import_file(store, path)).changed
            writer.commit()
            assert path.stat() == before
            assert (await flue_py.import_file(store, path)).held_back == 0
            assert await said(store) == ["m1 says", "m2 says"]


async def test_a_message_that_is_not_complete_is_taken_with_finish_and_then_replaced(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    async with flue_py.open(":memory:") as store:
        with made(path) as writer:
            await flue_py.import_file(store, path, finish=True)
            assert await said(store) == ["m1 says", "m2 says"]
            writer.execute("UPDATE message SET data = ? WHERE id = 'm2'", (ENDED,))
            writer.execute("UPDATE part SET data = replace(data, 'says', 'says more') WHERE message_id = 'm2'")
            writer.commit()
            await flue_py.import_file(store, path)
            assert await said(store) == ["m1 says", "m2 says more"]
            assert (await store.find_session("ses_1")).leaf_id == "m2"


async def test_a_database_is_read_again_when_its_log_alone_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: flue_py.Store
) -> None:
    monkeypatch.setattr(imports, "_SETTLED_NS", -(10**18))
    path = tmp_path / "o.db"
    with made(path) as writer:
        before = path.stat()
        assert [await files(store, path) for _ in range(2)] == [True, False]
        writer.execute("UPDATE session SET title = 'Other'")
        writer.commit()
        assert [await files(store, path) for _ in range(2)] == [True, False]
        assert path.stat() == before
    # The program has ended, and put its log into the database.
    assert [await files(store, path) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("program", "change"),
    [
        ("goose-1.52.0", "UPDATE sessions SET name = upper(name), user_set_name = 1 WHERE rowid = 1"),
        ("llm-0.36", "UPDATE conversations SET name = upper(name) WHERE rowid = 1"),
    ],
)
async def test_of_a_database_only_sessions_that_changed_are_read_again(
    program: str, change: str, tmp_path: Path
) -> None:
    folder, path = unpack(program, tmp_path / "made"), tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as database:
        for script in sorted(folder.glob("*.sql"))[-1:]:
            database.executescript(script.read_text())
    for file in folder.glob("logs.db"):
        path.write_bytes(file.read_bytes())
    async with flue_py.open(":memory:") as store, flue_py.open(":memory:") as another:
        first = await flue_py.import_file(store, path)
        assert (await flue_py.import_file(store, path)).rows == 0
        with closing(sqlite3.connect(path)) as database:
            database.execute(change)
            database.commit()
        again = await flue_py.import_file(store, path)
        assert 0 < again.rows < first.rows / 2
        assert {part.session_id for part in again.sessions} == {part.session_id for part in first.sessions}
        await flue_py.import_file(another, path)
        assert await all_seen(store) == await all_seen(another)
        assert (await flue_py.import_file(store, path)).rows == 0


def test_another_process_may_write_while_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    with made(path), database_of(path) as reader:
        assert reader.execute("SELECT count(*) FROM message").fetchone()[0] == 2
        script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DELETE FROM message'); c.commit()"
        subprocess.run([sys.executable, "-c", script, str(path)], check=True)
        # The reader goes on with the rows that were there when it began.
        assert reader.execute("SELECT count(*) FROM message").fetchone()[0] == 2
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM message")


def test_a_database_in_a_folder_that_cannot_be_written_is_read() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder, "o.db")
        with made(path):
            pass
        assert log_beside(path) == {}
        path.chmod(0o444)
        path.parent.chmod(0o555)
        me = os.geteuid()
        try:
            if me == 0:
                os.seteuid(65534)  # an administrator may write anywhere
            with database_of(path) as reader:
                assert reader.execute("SELECT count(*) FROM message").fetchone()[0] == 2
            assert [file.name for file in path.parent.iterdir()] == ["o.db"]
        finally:
            os.seteuid(me)
            path.parent.chmod(0o700)


def test_an_empty_log_that_reading_leaves_behind_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    with made(path):
        assert log_beside(path) != {}
    assert log_beside(path) == {}
    with database_of(path) as reader:
        assert reader.execute("SELECT count(*) FROM message").fetchone()[0] == 2
    assert log_beside(path) == {}


def test_a_damaged_row_costs_itself_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        row = database.execute("SELECT 'x' AS id, '{\"a\":' AS data, x'ff' AS odd, NULL AS none").fetchone()
    assert table_row("part", row, "data") == b'{"data":{"a":,"id":"x","odd":"/w==","type":"part"}\n'
    path = tmp_path / "o.db"
    with made(path) as writer:
        writer.execute("UPDATE part SET data = CAST(x'7b22ff' AS TEXT) WHERE id = 'm1p'")
        writer.execute("UPDATE message SET data = ? WHERE id = 'm1'", ('{"role": "user"}, "type": "session"',))
        writer.commit()
        rows = list(find_format("opencode").gathered(path) or ())
    assert [row.endswith(b'"type":"message"}\n') for row in rows] == [False, True, False, True, False]


@pytest.mark.parametrize("data", [b"SQLite format 3\0" + b"\1" * 5000, b"not a database at all, " * 50, b""])
async def test_a_file_that_is_no_database_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "o.db"
    path.write_bytes(data)
    assert not has_tables(str(path), data, "session")
    async with flue_py.open(":memory:") as store:
        for name in ("auto", "opencode"):
            await raises(UnreadableFile, flue_py.import_file(store, path, name))


def test_what_was_opened_is_closed_whatever_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*arguments: object, **options: object) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))  # type: ignore[call-overload]
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    file = tmp_path / "odd.db"
    file.write_bytes(b"SQLite format 3\0" + b"x" * 200)
    assert not has_tables(str(file), file.read_bytes(), "session")
    with pytest.raises(UnreadableFile), database_of(file):
        pass
    assert len(opened) == 2
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
