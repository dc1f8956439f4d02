"""The three files of an open store: the store notices if one is removed, and never removes one itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from flue_py.core.sessions import Appended
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.salvage.rebuild import salvage
from flue_py.db.sqlite import file as sqlite_writer
from flue_py.db.sqlite.file import commit
from flue_py.errors import InvalidArgument, OutcomeUnknown, StoreUnavailable
from tests.checks import raises
from tests.samples import add, new_session, path_ids, talk, user
from tests.sources import random_sources
from tests.store.sqlite_batches import opened, opened_on_engine
from tests.store.sqlite_workers import Nursery
from tests.tables import inputs

COME_AND_GO = """
import sys
import flue_py.sync

with flue_py.sync.open(sys.argv[1], prices=False) as store:
    print(store.info().sessions)
"""

APPEND = """
import sys
import flue_py.sync

with flue_py.sync.open(sys.argv[1], prices=False) as store:
    session = store.get_session(sys.argv[2])
    for number in range(int(sys.argv[3])):
        session.append_message({"role": "user", "content": str(number)})
    print(len(session.get_active_path()))
"""

VERIFY = """
import sys
import flue_py.sync

with flue_py.sync.open(sys.argv[1], prices=False) as store:
    print(store.verify().problems)
"""


Run: TypeAlias = Callable[..., str]


@pytest.fixture
def run(workers: Nursery) -> Run:
    """A function that runs a program in a process of its own, and returns what it printed."""
    return workers.run


async def test_opening_a_store_twice_in_a_process_lets_go_of_no_lock(path: Path, run: Run) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
        async with opened(path):
            pass
        files = sorted(file.name for file in path.parent.iterdir())
        # The last to close a database removes its log: another process must see that it is not the last.
        assert run(COME_AND_GO, path) == "1"
        assert sorted(file.name for file in path.parent.iterdir()) == files == ["s.db", "s.db-shm", "s.db-wal"]
        await add(backend, session.id, user("on it goes"))
    async with opened(path) as backend:
        assert len(await path_ids(backend, session.id)) == 3


async def test_a_store_that_is_open_here_is_not_salvaged(path: Path) -> None:
    async with opened(path):
        with pytest.raises(InvalidArgument, match="close it first"):
            salvage(path, path.with_name("new.db"))
        assert not path.with_name("new.db").exists()
    assert salvage(path, path.with_name("new.db")).sessions == 0


# -- files that vanish ----------------------------------------------------------------------------------------------


def unlink(file: Path) -> None:
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("away"))


def replace(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


HARMS = {
    "log removed": (unlink, ["-wal"]),
    "log moved": (move, ["-wal"]),
    "log replaced by a copy": (replace, ["-wal"]),
    "log cut": (cut, ["-wal"]),
    "log emptied": (empty, ["-wal"]),
    "index removed": (unlink, ["-shm"]),
    "index moved": (move, ["-shm"]),
    "index replaced by a copy": (replace, ["-shm"]),
    "both removed": (unlink, ["-wal", "-shm"]),
    "both replaced by copies": (replace, ["-wal", "-shm"]),
}
KEEPS_ALL = [name for name in HARMS if name not in ("log cut", "log emptied", "log moved")]
"""What leaves every acknowledged entry where it is found again."""


def do_harm(path: Path, name: str) -> None:
    harm, suffixes = HARMS[name]
    for suffix in suffixes:
        harm(Path(f"{path}{suffix}"))


def on_engine(path: Path) -> AbstractAsyncContextManager[Backend]:
    return opened_on_engine(f"sqlite+aiosqlite:///{path}", random_sources(), durability="normal")


def on_file(path: Path) -> AbstractAsyncContextManager[Backend]:
    return opened(path, random_sources())


HARMED = [("file", name) for name in HARMS]
HARMED += [("engine", name) for name in ("log removed", "index replaced by a copy", "both removed")]
"""Who has the files, and the harm: both look at them in the same way."""

RUNNERS = {"file": on_file, "engine": on_engine}
Opening: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Backend]]


@pytest.fixture(params=RUNNERS)
def opening(request: pytest.FixtureRequest) -> Opening:
    """Opens a store by its path, or on an engine."""
    return RUNNERS[request.param]


async def test_no_backup_is_made_of_another_file_that_took_the_place(
    path: Path, opening: Opening, tmp_path: Path
) -> None:
    async with opening(tmp_path / "other.db") as backend:
        await new_session(backend, *talk(2))
    async with opening(path) as backend:
        await new_session(backend, *talk(4))
        os.replace(tmp_path / "other.db", path)
        with pytest.raises(StoreUnavailable, match="was replaced by another file"):
            await backend.backup(tmp_path / "backup.db", overwrite=False, verified=True, progress=None)
        assert not (tmp_path / "backup.db").exists()


@pytest.mark.parametrize(("opening", "name"), HARMED, indirect=["opening"])
async def test_a_log_or_an_index_that_was_taken_away_ends_all_writing(
    path: Path, run: Run, opening: Opening, name: str
) -> None:
    async with opening(path) as backend:
        session = await new_session(backend, *talk(20))
        do_harm(path, name)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"while the store was open.*open it again"):
                await backend.append(session.id, [user("lost")])
        await raises(StoreUnavailable, backend.append(session.id, [user("lost")]))
    if name in KEEPS_ALL:
        assert run(APPEND, path, session.id, 1) == "21"
    if "replaced" in name:
        # A new process finds the new files; in this one SQLite still has the old ones in use.
        with pytest.raises(StoreUnavailable, match="open the store in a new one"):
            async with opening(path):
                pytest.fail("it was opened")
    elif name in KEEPS_ALL:
        async with opening(path) as backend:
            assert len(await path_ids(backend, session.id)) == 21
            assert (await backend.verify()).problems == []


@inputs("name", ["log moved", "log cut", "index removed", "both replaced by copies", "database moved"])
async def test_while_nothing_changes_in_a_folder_only_that_is_looked_at_and_its_changes_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    path = folder / "s.db"
    looked_at = list[object]()

    def look(place: str | Path, **options: Any) -> os.stat_result:
        looked_at.append(place)
        return stat(place, **options)

    stat = os.stat
    async with on_file(path) as backend:
        session = await new_session(backend, *talk(2))
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_writer, "SETTLED_AFTER_NS", -1)
            await backend.append(session.id, [user("settled")])
            patch.setattr(os, "stat", look)
            await backend.append(session.id, [user("still")])
        assert looked_at == [str(folder), str(folder)]
        before = folder.stat().st_ctime_ns
        if name == "database moved":
            move(path)
        else:
            do_harm(path, name)
        while folder.stat().st_ctime_ns == before:
            # Until the clock of files goes on.
            (folder / "other").touch()
            (folder / "other").unlink()
        for _ in range(2):
            await raises(StoreUnavailable, backend.append(session.id, [user("lost")]), match=r"while .* was open")


@inputs("name", ["log removed", "index removed", "both removed"])
async def test_a_read_that_notices_it_first_saves_what_was_acknowledged(
    path: Path, opening: Opening, name: str
) -> None:
    async with opening(path) as backend:
        session = await new_session(backend, *talk(20))
        assert len(await path_ids(backend, session.id)) == 20
        do_harm(path, name)
        await raises(StoreUnavailable, path_ids(backend, session.id), match="was removed")
        copy = path.with_name("crashed.db")
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    # What a crash would have left at that moment.
    async with opened(copy) as backend:
        assert len(await path_ids(backend, session.id)) == 20
        assert (await backend.verify()).problems == []


@pytest.mark.parametrize(
    ("opening", "name"), [pair for pair in HARMED if pair[1].endswith(" removed")], indirect=["opening"]
)
async def test_what_another_process_then_writes_outlives_the_store_that_lost_its_files(
    path: Path, run: Run, opening: Opening, name: str
) -> None:
    async with opening(path) as backend:
        session = await new_session(backend, *talk(20))
        do_harm(path, name)
        await raises(StoreUnavailable, backend.append(session.id, [user("lost")]))
        assert run(APPEND, path, session.id, 5) == "25"
        await raises(StoreUnavailable, backend.append(session.id, [user("lost")]))
    assert run(APPEND, path, session.id, 1) == "26"
    assert run(VERIFY, path) == "[]"


async def test_a_borrowed_engine_that_lost_its_log_is_not_opened_again(path: Path, run: Run) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        backend = await open_engine(engine, sources=random_sources(), durability="normal")
        session = await new_session(backend, *talk(2))
        do_harm(path, "log removed")
        await raises(StoreUnavailable, backend.append(session.id, [user("lost")]))
        await backend.close()
        # Its connections still write to the log that was removed.
        with pytest.raises(StoreUnavailable, match="open the store in a new one"):
            await open_engine(engine, sources=random_sources(), durability="normal")
    finally:
        await engine.dispose()
    assert run(APPEND, path, session.id, 1) == "3"


@inputs("suffix", ["", "-wal", "-shm"])
async def test_files_that_vanish_during_a_commit_leave_its_outcome_unknown(
    path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    def vanishing(connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], bool]) -> None:
        commit(connection, busy_timeout, is_wanted)
        Path(f"{path}{suffix}").unlink()

    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_writer, "commit", vanishing)
            outcomes = await in_one_batch_of_two(backend, session.id)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, OutcomeUnknown]
        await raises(StoreUnavailable, backend.append(session.id, [user("lost")]))


async def in_one_batch_of_two(backend: Backend, session_id: str) -> list[BaseException | Appended]:
    return await asyncio.gather(*[backend.append(session_id, [user(text)]) for text in "xy"], return_exceptions=True)


# -- and no false alarm ---------------------------------------------------------------------------------------------


@inputs("how", ["TRUNCATE", "RESTART", "FULL", "PASSIVE"])
async def test_another_connection_may_empty_the_log_at_any_time(path: Path, opening: Opening, how: str) -> None:
    async with opening(path) as backend:
        session = await new_session(backend, *talk(20))
        for written in range(3):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("PRAGMA journal_size_limit = 0")
                assert other.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[0] == 0
                if how == "TRUNCATE":
                    assert os.stat(f"{path}-wal").st_size == 0
                other.execute("UPDATE sessions SET title = title")
            await add(backend, session.id, user("on it goes"))
            assert len(await path_ids(backend, session.id)) == 21 + written
        assert (await backend.verify()).problems == []


async def test_a_log_that_is_cut_to_its_limit_is_whole(path: Path, opening: Opening) -> None:
    async with opening(path) as backend:
        session = await new_session(backend)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA journal_size_limit = 40000")
            for written in range(1, 7):
                await add(backend, session.id, *talk(60))
                assert len(await path_ids(backend, session.id)) == 60 * written
                other.execute("PRAGMA wal_checkpoint(RESTART)")
                other.execute("UPDATE sessions SET title = title")
        assert (await backend.verify()).problems == []


async def test_processes_that_come_and_go_leave_an_open_store_its_files(path: Path, run: Run, opening: Opening) -> None:
    async with opening(path) as backend:
        session = await new_session(backend)
        for written in range(1, 3):
            assert run(APPEND, path, session.id, 1) == f"{2 * written - 1}"
            await add(backend, session.id, user("mine"))
        assert len(await path_ids(backend, session.id)) == 4
        assert (await backend.verify()).problems == []
