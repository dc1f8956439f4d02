"""A SQLite file: private from the first byte, opened with our settings, and refused in our own words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flue_py.db.schema import APPLICATION_ID
from flue_py.db.sqlite import file as migrate
from flue_py.db.sqlite.file import (
    begin_immediate,
    check_magic,
    connect,
    file_size,
    is_busy,
    make_private_file,
    translate,
    translated,
)
from flue_py.errors import CorruptStore, FixTheStore, FlueError, NotAStore, StoreBusy, StoreUnavailable
from tests.checks import raises
from tests.samples import new_session, path_of, talk
from tests.store.sqlite_batches import opened
from tests.tables import inputs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: mode(file) for file in folder.iterdir()}


def size(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture
def no_umask() -> Iterator[None]:
    """New files get every permission they ask for."""
    before = os.umask(0)
    yield
    os.umask(before)


async def make_store(path: Path) -> None:
    async with opened(path) as backend:
        await new_session(backend, *talk(4))


def make_foreign(path: Path) -> None:
    """A SQLite database of another program."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (what TEXT)")
        connection.execute("INSERT INTO theirs VALUES ('precious')")
        connection.commit()


# -- permissions ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_umask")
async def test_the_database_its_log_and_its_index_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as backend:
        await new_session(backend, *talk(2))
        assert modes(tmp_path) == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}
    assert modes(tmp_path) == {"s.db": 0o600}


@pytest.mark.usefixtures("no_umask")
async def test_the_file_is_private_before_sqlite_writes_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    seen: list[tuple[int, int]] = []

    def watched_connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        seen.append((path.stat().st_size, mode(path)))
        return connect(*args, **kwargs)

    monkeypatch.setattr(migrate, "connect", watched_connect)
    async with opened(path):
        assert seen == [(0, 0o600)]


@inputs("bits", [0o644, 0o666, 0o400])
async def test_an_empty_file_made_by_others_becomes_private(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "s.db"
    path.touch()
    path.chmod(bits)
    make_private_file(path)
    assert mode(path) == 0o600


async def test_a_store_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make_store(path)
    path.chmod(0o660)
    async with opened(path) as backend:
        await new_session(backend, *talk(2))
        assert mode(path) == 0o660


# -- what is no store -----------------------------------------------------------------------------------------------


async def refuse(path: Path, error: type[FlueError], **options: Any) -> None:
    """Assert that opening is refused with ``error``, which names the path, and leaves the folder as it was."""

    def contents() -> dict[str, bytes | None]:
        parent = path.parent
        if not parent.is_dir():
            return {}
        return {each.name: each.read_bytes() if each.is_file() else None for each in parent.iterdir()}

    before = contents()
    with pytest.raises(error) as caught:
        async with opened(path, **options):
            pytest.fail("it was opened")
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, FixTheStore)
    assert contents() == before


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    await refuse(folder, NotAStore)
    await refuse(folder, StoreUnavailable, create=False)


@inputs(
    "content",
    [b"x", b"hello, world\n" * 1000, b"SQLite format 3", b"SQLite format 2\0" + b"\0" * 4080, b"\0" * 4096],
    ids=["one byte", "text", "magic cut short", "older SQLite", "zeros"],
)
async def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    await refuse(path, NotAStore)


async def test_a_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    make_foreign(path)
    await refuse(path, NotAStore)


@inputs("ddl", ["CREATE TABLE flue_store (a, b)", "CREATE TABLE flue_store (name TEXT, value BIGINT)"])
async def test_a_database_that_only_looks_like_a_store_is_refused_untouched(tmp_path: Path, ddl: str) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(ddl)
    await refuse(path, NotAStore if "BIGINT" in ddl else FixTheStore)


async def test_a_stamp_that_is_no_number_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE flue_store SET value = 'one' WHERE name = 'format'")
        connection.commit()
    await refuse(path, FixTheStore)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    await refuse(tmp_path / "missing" / "s.db", StoreUnavailable)
    assert not (tmp_path / "missing").exists()


async def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    await refuse(tmp_path / "file" / "s.db", StoreUnavailable)


async def test_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.symlink_to(tmp_path / "missing" / "s.db")
    with pytest.raises(StoreUnavailable, match=str(path)):
        async with opened(path):
            pytest.fail("it was opened")


async def test_without_leave_to_create_a_missing_file_stays_missing(tmp_path: Path) -> None:
    await refuse(tmp_path / "s.db", StoreUnavailable, create=False)


@inputs("name", ["a\0b.db", "a\ud800b.db"], ids=["NUL", "lone surrogate"])
async def test_a_name_that_no_file_can_have_is_refused_in_our_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(FlueError):
        async with opened(tmp_path / name):
            pytest.fail("it was opened")


async def test_a_name_that_is_too_long_is_refused_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    with pytest.raises(StoreUnavailable, match=str(path)):
        async with opened(path):
            pytest.fail("it was opened")


@inputs(
    "name", ["with space.db", "q?x=1.db", "#hash.db", "100%.db", "%41.db", "é😀.db", ":memory:", "file:x.db", "-wal"]
)
async def test_any_other_name_is_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
        assert (await backend.info()).location == str(path)
    assert list(modes(tmp_path)) == [name]
    async with opened(path) as backend:
        assert len(await path_of(backend, session.id)) == 2


async def test_a_relative_path_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(Path("s.db")) as backend:
        await new_session(backend, *talk(2))
    assert (tmp_path / "s.db").is_file()


async def read_everything(path: Path) -> None:
    async with opened(path) as backend:
        page = await backend.list_sessions(scope=None, kind=None, limit=10, cursor=None)
        for session in page.sessions:
            await path_of(backend, session.id)


async def test_a_damaged_store_is_refused_when_it_is_opened_or_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make_store(path)
    whole = path.read_bytes()
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "header only": whole[:100],
        "first page gone": whole[:16] + b"\xff" * 4080 + whole[4096:],
        "schema gone": whole[:100] + b"\xee" * 3996 + whole[4096:],
    }.items():
        damaged = tmp_path / f"{name}.db"
        damaged.write_bytes(content)
        caught = await raises(FixTheStore, read_everything(damaged))
        assert str(damaged) in str(caught.value)


# -- settings -------------------------------------------------------------------------------------------------------


async def test_the_file_says_what_it_is_and_keeps_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make_store(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@inputs(("durability", "synchronous"), [("full", 3), ("normal", 1)])
async def test_a_connection_has_the_settings_it_was_asked_for(
    tmp_path: Path, durability: Any, synchronous: int
) -> None:
    with closing(connect(tmp_path / "s.db", durability, read_only=False)) as connection:
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
        assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert connection.isolation_level is None


async def test_a_reading_connection_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await make_store(path)
    with (
        closing(connect(path, "normal", read_only=True)) as connection,
        pytest.raises(StoreUnavailable),
        translated(path),
    ):
        connection.execute("DELETE FROM entries")


async def test_the_size_is_that_of_the_database_and_its_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    assert file_size(path) is None
    async with opened(path) as backend:
        await new_session(backend, *talk(20))
        log = size(tmp_path / "s.db-wal")
        assert log > 0
        assert file_size(path) == size(path) + log == (await backend.info()).size_bytes
    assert file_size(path) == size(path)


async def test_a_copy_of_a_closed_store_is_a_store(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4))
        expected = await path_of(backend, session.id)
    shutil.copy(path, copy)
    async with opened(copy) as backend:
        assert await path_of(backend, session.id) == expected
        assert (await backend.verify()).problems == []


def test_the_magic_of_an_empty_file_is_fine_and_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    check_magic(tmp_path / "empty")
    with pytest.raises(StoreUnavailable, match="missing"):
        check_magic(tmp_path / "missing")


# -- locks and errors -----------------------------------------------------------------------------------------------


def test_the_write_lock_is_given_up_when_the_budget_is_spent_and_had_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(connect(path, "normal", read_only=False)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        begin_immediate(one, 0)
        other.isolation_level = None
        with pytest.raises(sqlite3.OperationalError) as caught:
            begin_immediate(other, 0.01)
        assert is_busy(caught.value)
        one.execute("COMMIT")
        begin_immediate(other, 0)
        assert other.in_transaction


def test_an_error_other_than_a_lock_is_not_waited_out(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "s.db", "normal", read_only=False)) as connection:
        begin_immediate(connection, 0)
        with pytest.raises(sqlite3.OperationalError) as caught:
            begin_immediate(connection, 3600)
        assert not is_busy(caught.value)


def driver_error(code: int | None) -> sqlite3.Error:
    error = sqlite3.OperationalError("what SQLite says")
    if code is not None:
        error.sqlite_errorcode = code
    return error


@inputs(
    ("code", "ours"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_BUSY_RECOVERY, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_PROTOCOL, StoreBusy),
        (sqlite3.SQLITE_NOTADB, NotAStore),
        (sqlite3.SQLITE_CORRUPT, CorruptStore),
        (sqlite3.SQLITE_CORRUPT_INDEX, CorruptStore),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_READONLY, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_PERM, StoreUnavailable),
        (sqlite3.SQLITE_NOMEM, StoreUnavailable),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, CorruptStore),
        (None, CorruptStore),
    ],
)
def test_each_error_of_the_driver_has_one_of_ours(code: int | None, ours: type[FlueError]) -> None:
    error = translate(driver_error(code), "/data/s.db")
    assert type(error) is ours
    assert "/data/s.db" in str(error)


def test_the_cause_of_a_translated_error_is_chained_and_others_pass(tmp_path: Path) -> None:
    error = driver_error(sqlite3.SQLITE_FULL)
    with pytest.raises(StoreUnavailable) as caught, translated(tmp_path):
        raise error
    assert caught.value.__cause__ is error
    with pytest.raises(KeyError), translated(tmp_path):
        raise KeyError("not the driver's")
