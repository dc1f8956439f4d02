"""A backup is the store at one moment, even while others write; and it is complete, or does not exist."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

import flue_py
from flue_py.db import files as private_files
from flue_py.db.runner import Backup
from flue_py.db.sqlite import file as sqlite_copy
from flue_py.db.sqlite.runner import back_up
from flue_py.errors import CorruptStore, FormatTooNew, InvalidArgument, StoreClosed, StoreUnavailable
from tests.checks import raises
from tests.postgres import NewDatabase
from tests.tables import inputs

WRITER = Path(__file__).with_name("backup_writer.py")


@contextmanager
def writing(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that writes, for as long as the block lasts."""
    process = subprocess.Popen([sys.executable, str(WRITER), str(database)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def fill(path: Path, count: int = 4) -> list[str]:
    async with flue_py.open(path, durability="normal") as store:
        session = await store.create_session(key="one")
        for number in range(count):
            await session.append_message({"role": "user", "content": f"question {number} " + "y" * 500})
        return [entry.id for entry in await session.get_active_path()]


async def held(path: Path) -> tuple[list[str], list[str]]:
    """Return the problems of a store, and the ids on the path of its session ``one``."""
    async with flue_py.open(path, create=False) as store:
        problems = [str(problem) for problem in (await store.verify()).problems]
        session = await store.open_session("one")
        return problems, [entry.id for entry in await session.get_active_path()]


@inputs(
    "error", [OSError(28, "mine"), MemoryError(), sqlite3.OperationalError("mine"), FormatTooNew("mine"), KeyError()]
)
async def test_what_progress_raises_ends_a_backup_and_leaves_as_it_is(tmp_path: Path, error: Exception) -> None:
    await fill(tmp_path / "a.db", 1)

    def fail(*_: int) -> NoReturn:
        raise error

    async with flue_py.open(tmp_path / "a.db") as store:
        caught = await raises(type(error), store.backup(tmp_path / "b.db", progress=fail))
        assert caught.value is error
        # A coroutine cannot raise it: Python makes a RuntimeError of it.
        with pytest.raises(RuntimeError, match="StopIteration"):
            await store.backup(tmp_path / "b.db", progress=lambda *_: next(iter(())))
        assert (await store.verify()).problems == []
    assert names(tmp_path) == ["a.db"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_backup_is_the_store_for_its_owner_alone(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")
    async with flue_py.open(tmp_path / "a.db") as store:
        made = await store.backup(tmp_path / "b.db")
    assert made == flue_py.BackupReport(str(tmp_path / "b.db"), (tmp_path / "b.db").stat().st_size, 1, 4, True)
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600
    assert await held(tmp_path / "b.db") == ([], ids)
    assert names(tmp_path) == ["a.db", "b.db"]


async def test_backups_while_another_process_writes_are_whole_and_consistent(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await fill(path)
    seen = []
    with writing(path) as process:
        assert process.stdout is not None
        async with flue_py.open(path, durability="normal") as store:
            for number in range(2):
                process.stdout.readline()
                told: list[tuple[int, int]] = []
                made = await store.backup(
                    tmp_path / f"{number}.db", progress=lambda done, total, told=told: told.append((done, total))
                )
                assert told[-1][0] == told[-1][1] > 0
                assert [done for done, _ in told] == sorted(done for done, _ in told)
                seen.append(made.entries)
    assert seen == sorted(set(seen))
    for number in range(2):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as copy:
            odd = "SELECT COUNT(*) FROM sessions WHERE key LIKE 'writer-%' AND entry_count % 2 = 1"
            assert copy.execute(odd).fetchone() == (0,)
        assert (await held(tmp_path / f"{number}.db"))[0] == []


async def test_the_snapshot_holds_while_each_step_is_followed_by_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_copy, "PAGES_AT_ONCE", 1)
    path = tmp_path / "a.db"
    ids = await fill(path, 30)
    with closing(sqlite3.connect(path)) as other:
        steps = 0

        def commit(done: int, total: int) -> None:
            nonlocal steps
            steps += 1
            other.execute("UPDATE sessions SET title = ?", (f"{steps} of {total}",))
            other.commit()

        made = back_up(path, Backup(tmp_path / "b.db", progress=commit))
    # A copy that began again at each commit would never end, and one that did not hold still would not verify.
    assert steps == made.size_bytes // 4096
    assert await held(tmp_path / "b.db") == ([], ids)
    with closing(sqlite3.connect(tmp_path / "b.db")) as copy:
        assert copy.execute("SELECT title FROM sessions").fetchall() == [(None,)]


async def test_the_file_is_private_from_its_first_byte_and_appears_whole(tmp_path: Path) -> None:
    await fill(tmp_path / "a.db")
    modes = set()

    def look(done: int, total: int) -> None:
        assert not (tmp_path / "b.db").exists()
        (part,) = tmp_path.glob(".b.db.*.part")
        modes.add(part.stat().st_mode & 0o777)

    mask = os.umask(0)
    try:
        back_up(tmp_path / "a.db", Backup(tmp_path / "b.db", progress=look))
    finally:
        os.umask(mask)
    assert modes == {0o600}
    assert (tmp_path / "b.db").exists()


async def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")
    (tmp_path / "b.db").write_text("mine")
    async with flue_py.open(tmp_path / "a.db") as store:
        await raises(InvalidArgument, store.backup(tmp_path / "b.db"), match="is there already")
        assert (tmp_path / "b.db").read_text() == "mine"
        await raises(InvalidArgument, store.backup(tmp_path / "a.db"), match="is there already")
        await store.backup(tmp_path / "b.db", overwrite=True)
    assert await held(tmp_path / "b.db") == ([], ids)
    assert await held(tmp_path / "a.db") == ([], ids)


async def test_nobody_else_s_file_is_replaced_that_came_meanwhile(tmp_path: Path) -> None:
    await fill(tmp_path / "a.db")

    def come_first(done: int, total: int) -> None:
        (tmp_path / "b.db").write_text("mine")

    with pytest.raises(InvalidArgument, match="is there already"):
        back_up(tmp_path / "a.db", Backup(tmp_path / "b.db", progress=come_first))
    assert (tmp_path / "b.db").read_text() == "mine"
    assert names(tmp_path) == ["a.db", "b.db"]


async def test_only_a_file_is_replaced_by_a_backup(tmp_path: Path) -> None:
    await fill(tmp_path / "a.db")
    os.mkfifo(tmp_path / "pipe", 0o622)
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InvalidArgument, match="name a file"):
            back_up(tmp_path / "a.db", Backup(tmp_path / name, overwrite=True))
    assert names(tmp_path) == ["a.db", "folder", "pipe"]


async def test_a_store_does_not_replace_itself(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")
    with pytest.raises(InvalidArgument, match="itself"):
        back_up(tmp_path / "a.db", Backup(tmp_path / "a.db", overwrite=True))
    assert await held(tmp_path / "a.db") == ([], ids)


async def test_a_damaged_store_gives_no_backup_unless_it_is_asked_for(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("UPDATE entries SET total_cost = 5 WHERE id = ?", (ids[3],))
        connection.commit()
    async with flue_py.open(tmp_path / "a.db") as store:
        await raises(CorruptStore, store.backup(tmp_path / "b.db"), match=f"wrong totals: entry {ids[3]}")
        assert names(tmp_path) == ["a.db", "a.db-shm", "a.db-wal"]
        made = await store.backup(tmp_path / "b.db", verify=False)
    assert (made.is_verified, made.entries) == (False, 4)


async def test_a_backup_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(tmp_path / "a.db")

    def refuse(path: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(StoreUnavailable, match="cannot be made"):
        back_up(tmp_path / "a.db", Backup(tmp_path / "no folder" / "b.db"))
    monkeypatch.setattr(private_files, "_sync", refuse)
    with pytest.raises(StoreUnavailable, match="no space left"):
        back_up(tmp_path / "a.db", Backup(tmp_path / "b.db"))
    assert names(tmp_path) == ["a.db"]


async def test_what_is_no_file_says_what_to_use_instead(tmp_path: Path, new_database: NewDatabase) -> None:
    async with flue_py.open(":memory:") as store:
        await raises(InvalidArgument, store.backup(tmp_path / "b.db"), match="is not a file")
    async with flue_py.open(new_database()) as store:
        await raises(InvalidArgument, store.backup(tmp_path / "b.db"), match="pg_dump")
    assert names(tmp_path) == []


async def test_an_engine_on_a_file_is_backed_up_too(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")
    async with flue_py.open(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}") as store:
        await store.backup(tmp_path / "b.db")
    assert await held(tmp_path / "b.db") == ([], ids)
    await raises(StoreClosed, store.backup(tmp_path / "c.db"))


async def test_the_blocking_twin_does_the_same(tmp_path: Path) -> None:
    ids = await fill(tmp_path / "a.db")

    def copy() -> flue_py.BackupReport:
        with flue_py.sync.open(tmp_path / "a.db") as store:
            return store.backup(tmp_path / "b.db")

    assert (await asyncio.to_thread(copy)).entries == 4
    assert await held(tmp_path / "b.db") == ([], ids)
