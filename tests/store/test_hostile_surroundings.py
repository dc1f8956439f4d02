"""A SQLite store in hostile surroundings: disks, permissions, links, file systems, processes, clocks.

Tests that need another user, a fork, or the end of the interpreter run in a process of their own.
"""

# ruff: noqa: ASYNC110, ASYNC230, ASYNC240, PT031 - the files are the point, and what is warned of is a whole `async with`

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import flue_py
import flue_py.sync
from flue_py.cli import main
from flue_py.core.sessions import NewSession
from flue_py.db.backend import Backend
from flue_py.db.runner import Transaction
from flue_py.db.sqlite import file as opener
from flue_py.db.sqlite import file as sqlite_journal
from flue_py.db.sqlite import file as sqlite_writer
from flue_py.db.sqlite.file import backup_path, begin_immediate, commit, connect, create_private, file_size
from flue_py.errors import NotAStore, StoreBusy, StoreUnavailable, StoreWarning, WrongProcess
from tests.checks import raises, refusal
from tests.samples import add, new_session, path_ids, path_of, session_info, talk, user
from tests.sources import OpenBackend, counted_sources, random_sources
from tests.store.conftest import SmallDisk
from tests.store.failing_operations import OPERATIONS, SESSION, prepare
from tests.store.scripts import AS_NOBODY, NOBODY, folder_for_all, run_script
from tests.store.sqlite_batches import GUARD_SECONDS, runner_of
from tests.store.sqlite_batches import opened as opened_on_file
from tests.values import existing

opened = partial(opened_on_file, sources=random_sources())


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """New files get what they ask for less these permissions."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.lstat().st_mode) for file in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def contents(path: Path) -> list[str]:
    """What a store holds, seen without our code: the payloads in the order of their making."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT payload FROM entries ORDER BY rowid")]


# -- a full disk ----------------------------------------------------------------------------------------------------


async def test_on_a_full_disk_every_write_is_refused_and_once_there_is_room_the_store_goes_on(
    small_disk: SmallDisk,
) -> None:
    path = small_disk.folder / "s.db"
    prepared = await prepare(path)
    async with opened(path, durability="full") as backend:
        small_disk.fill()
        for operation in OPERATIONS.values():
            caught = await refusal(backend, StoreUnavailable, operation(backend, prepared.ids))
            assert str(path) in str(caught.value)
            assert "make room" in str(caught.value)
        assert (await backend.verify()).problems == []
        small_disk.make_room()
        for name, operation in OPERATIONS.items():
            if name == "several at once with a key":
                # It names the same entries as the batch before.
                continue
            await operation(backend, prepared.ids)
            if name != "delete":
                assert len(await add(backend, SESSION, user("on it goes"))) == 1
        assert (await backend.verify()).problems == []


async def test_a_store_can_be_closed_on_a_full_disk_and_is_whole_when_it_is_opened_again(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "s.db"
    async with opened(path) as backend:
        session = await new_session(backend, *talk(200))
        small_disk.fill()
    async with opened(path) as backend:
        assert len(await path_ids(backend, session.id)) == 200
        assert (await backend.verify()).problems == []
    small_disk.make_room()
    async with opened(path) as backend:
        await add(backend, session.id, user("on it goes"))
        assert len(await path_ids(backend, session.id)) == 201
    assert names(small_disk.folder) == ["s.db"]


async def test_a_new_store_on_a_full_disk_is_refused_and_can_be_made_once_there_is_room(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "s.db"
    small_disk.fill()
    with pytest.raises(StoreUnavailable, match=str(path)):
        async with opened(path):
            pytest.fail("it was opened")
    small_disk.make_room()
    async with opened(path) as backend:
        await new_session(backend, *talk(2))
        assert (await backend.verify()).problems == []


def test_the_blocking_twin_and_the_command_line_say_that_the_disk_is_full(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "s.db"
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="k")
        session.append_message({"role": "user", "content": "before"})
        small_disk.fill()
        with pytest.raises(StoreUnavailable, match="make room"):
            session.append_message({"role": "user", "content": "x" * 10_000})
        result = CliRunner().invoke(main, ["--db", str(path), "fork", "k"])
        assert result.exit_code == 1
        assert "make room" in result.output
        small_disk.make_room()
        session.append_message({"role": "user", "content": "after"})
        assert [message["content"] for message in session.build_context()] == ["before", "after"]
        assert store.verify().problems == []


# -- another user ---------------------------------------------------------------------------------------------------

WARMED_UP = """
import asyncio, json, os, sys, tempfile, warnings
import flue_py, flue_py.sync, flue_py.cli.main, flue_py.cli.command
from flue_py.cli import main

folder = sys.argv[1]
warnings.simplefilter("ignore", flue_py.StoreWarning)
# What is imported later may be where only root can read.
with flue_py.sync.open(f"{folder}/warm.db") as store:
    session = store.create_session(key="k")
    session.append_message({"role": "user", "content": "x"})
    session.get_active_path(), store.verify()
with flue_py.sync.open(f"{folder}/warm.db", read_only=True) as store:
    store.info()
main(["--db", f"{folder}/warm.db", "sessions", "--json"], standalone_mode=False)
"""
WITHOUT_RIGHTS = """
def attempt(what):
    try:
        return what()
    except flue_py.FlueError as error:
        return f"{type(error).__name__}: {error}"

def read(name):
    with flue_py.sync.open(f"{folder}/{name}") as store:
        return len(store.open_session("k").get_active_path())

def write(name):
    with flue_py.sync.open(f"{folder}/{name}") as store:
        refusal = attempt(lambda: str(store.open_session("k").append_message({"role": "user", "content": "more"})))
        return [refusal, len(store.open_session("k").get_active_path()), [str(p) for p in store.verify().problems]]

def make(name):
    with flue_py.sync.open(f"{folder}/{name}") as store:
        store.create_session(key="k").append_message({"role": "user", "content": "first"})
        return sorted(oct(os.stat(each).st_mode & 0o777) for each in os.scandir(os.path.dirname(f"{folder}/{name}")))

def command_line():
    try:
        main(["--db", f"{folder}/hidden.db", "sessions"], standalone_mode=False)
    except Exception as error:
        return f"{type(error).__name__}: {error.message}"

answers = {
    "hidden": attempt(lambda: read("hidden.db")),
    "command line": command_line(),
    "read only": attempt(lambda: write("readonly.db")),
    "no folder to write to": attempt(lambda: make("locked/new.db")),
    "store in a locked folder": attempt(lambda: read("locked/store.db")),
    "rollback store in a locked folder": attempt(lambda: read("locked/rollback.db")),
    "left": sorted(os.listdir(f"{folder}/locked")),
}
os.umask(0o777)
answers["umask 0777"] = attempt(lambda: make("open/new.db"))
flue_py.db.files.make_private_folder(__import__("pathlib").Path(f"{folder}/open/a/b"))
answers["folders"] = [oct(os.stat(f"{folder}/open/{name}").st_mode & 0o777) for name in ("a", "a/b")]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def as_nobody() -> Iterator[dict[str, Any]]:
    """What an unprivileged user meets: itself where the tests are run by one, "nobody" where by root."""
    import json

    with folder_for_all() as folder:
        (folder / "locked").mkdir()
        (folder / "open").mkdir()
        for name in ("hidden.db", "readonly.db", "locked/store.db"):
            with flue_py.sync.open(folder / name) as store:
                store.create_session(key="k").append_messages([{"role": "user", "content": "x"}] * 4)
        shutil.copy(folder / "readonly.db", folder / "locked" / "rollback.db")
        with closing(sqlite3.connect(folder / "locked" / "rollback.db")) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        owner = NOBODY if os.geteuid() == 0 else os.geteuid()
        for each in (folder, folder / "open", folder / "locked", *folder.glob("*.db"), *folder.glob("locked/*")):
            os.chown(each, owner, -1)
        (folder / "hidden.db").chmod(0)
        (folder / "readonly.db").chmod(0o400)
        (folder / "locked").chmod(0o500)
        line = run_script(WARMED_UP + AS_NOBODY + WITHOUT_RIGHTS, folder)[-1]
        yield {"folder": folder, **json.loads(line)}


def test_a_file_that_may_not_be_read_is_named(as_nobody: dict[str, Any]) -> None:
    assert as_nobody["hidden"].startswith(f"StoreUnavailable: '{as_nobody['folder']}/hidden.db' cannot be ")
    assert as_nobody["command line"].startswith(f"Told: '{as_nobody['folder']}/hidden.db' cannot be ")


def test_a_file_that_may_not_be_written_can_be_read_and_says_so_when_written(as_nobody: dict[str, Any]) -> None:
    refusal, length, problems = as_nobody["read only"]
    assert refusal.startswith(f"StoreUnavailable: {as_nobody['folder']}/readonly.db cannot be used: ")
    assert "this user must be allowed to write to the file" in refusal
    assert (length, problems) == (4, [])


def test_a_folder_that_may_not_be_written_to_is_named_and_left_as_it_is(as_nobody: dict[str, Any]) -> None:
    assert as_nobody["no folder to write to"].startswith(
        f"StoreUnavailable: '{as_nobody['folder']}/locked/new.db' cannot be created"
    )
    assert as_nobody["store in a locked folder"].startswith(
        f"StoreUnavailable: {as_nobody['folder']}/locked/store.db cannot be used: "
    )
    assert "to its folder" in as_nobody["store in a locked folder"]
    assert as_nobody["left"] == ["rollback.db", "store.db"]


def test_under_a_umask_that_takes_everything_the_owner_still_has_its_files_and_nobody_else(
    as_nobody: dict[str, Any],
) -> None:
    assert as_nobody["umask 0777"] == ["0o600", "0o600", "0o600"]
    assert as_nobody["folders"] == ["0o700", "0o700"]


@pytest.mark.parametrize("umask", [0, 0o777], indirect=True)
@pytest.mark.usefixtures("umask")
async def test_whatever_the_umask_the_files_are_the_owners_alone(path: Path) -> None:
    async with opened(path) as backend:
        await new_session(backend, *talk(2))
        assert modes(path.parent) == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}


@pytest.mark.parametrize("umask", [0, 0o777], indirect=True)
@pytest.mark.usefixtures("umask", "no_shared_memory")
async def test_whatever_the_umask_a_rollback_journal_is_the_owners_alone(path: Path) -> None:
    def looking(tx: Transaction) -> dict[str, int]:
        tx.new_key()
        return modes(path.parent)

    with pytest.warns(StoreWarning):
        async with opened(path) as backend:
            await new_session(backend, *talk(2))
            assert await runner_of(backend).write(looking) == {"s.db": 0o600, "s.db-journal": 0o600}


# -- what stands where the file should be ---------------------------------------------------------------------------


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("what", ["pipe", "socket", "device"])
async def test_a_pipe_a_socket_or_a_device_is_refused_at_once_and_keeps_its_permissions(
    path: Path, what: str, create: bool
) -> None:
    bound = socket.socket(socket.AF_UNIX)
    with closing(bound):
        if what == "pipe":
            os.mkfifo(path, 0o644)
        elif what == "socket":
            bound.bind(str(path))
        else:
            try:
                os.mknod(path, 0o644 | stat.S_IFCHR, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("only root can make a device")
        before = modes(path.parent)
        with pytest.raises(NotAStore, match=str(path)):
            async with opened(path, create=create):
                pytest.fail("it was opened")
        assert modes(path.parent) == before


async def test_through_a_link_a_store_is_the_one_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "s.db", tmp_path / "link.db"
    async with opened(real) as backend:
        session = await new_session(backend, *talk(2))
    link.symlink_to(real)
    async with opened(link) as linked, opened(real) as direct:
        await add(linked, session.id, user("through the link"))
        await add(direct, session.id, user("directly"))
        assert len(await path_ids(linked, session.id)) == 4
        assert names(tmp_path / "real") == ["s.db", "s.db-shm", "s.db-wal"]
        assert names(tmp_path) == ["link.db", "real"]
        assert file_size(link) == file_size(real)
        assert (file_size(real) or 0) > real.stat().st_size
        assert (await linked.verify()).problems == []


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
async def test_a_link_planted_beside_the_database_is_not_written_through(
    tmp_path: Path, path: Path, suffix: str, dangling: bool
) -> None:
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_bytes(b"precious")
    link = tmp_path / f"s.db{suffix}"
    link.symlink_to(victim)
    is_opened = suffix == "-journal" and dangling
    if is_opened:
        # A store with a write-ahead log has no use for it, and one that leads nowhere holds nothing to take back.
        async with opened(path) as backend:
            await add(backend, session.id, user())
    else:
        with pytest.raises(StoreUnavailable, match="neither a link nor a folder") as caught:
            async with opened(path):
                pytest.fail("it was opened")
        assert str(path) in str(caught.value)
    assert victim.exists() != dangling
    assert dangling or victim.read_bytes() == b"precious"
    link.unlink()
    async with opened(path) as backend:
        assert len(await path_ids(backend, session.id)) == 2 + is_opened
        assert (await backend.verify()).problems == []


@pytest.mark.parametrize("dangling", [False, True])
async def test_a_link_planted_where_a_new_store_keeps_its_journal_is_not_written_through(
    tmp_path: Path, path: Path, dangling: bool
) -> None:
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_bytes(b"precious")
    (tmp_path / "s.db-journal").symlink_to(victim)
    if dangling:
        with pytest.raises(StoreUnavailable, match=str(path)):
            async with opened(path):
                pytest.fail("it was opened")
    else:
        # There is nothing yet that a journal could take back: SQLite removes it, and it is the link that goes.
        async with opened(path):
            assert "s.db-journal" not in names(tmp_path)
    assert victim.exists() != dangling
    assert dangling or victim.read_bytes() == b"precious"


def test_a_backup_before_a_migration_takes_a_name_that_nothing_has_not_even_a_link_to_nowhere(path: Path) -> None:
    (path.parent / "s.db.format-0.bak").symlink_to(path.parent / "missing")
    assert backup_path(path, 0).name == "s.db.format-0-1.bak"
    with pytest.raises(FileExistsError):
        create_private(path.parent / "s.db.format-0.bak")


# -- what a crash leaves --------------------------------------------------------------------------------------------


async def crashed(folder: Path) -> tuple[Path, str, list[str]]:
    """Return a copy of a store's three files as a crash would leave them, its session, and the ids committed.

    The last commit is one transaction with several frames in the log.
    """
    live, copy = folder / "live.db", folder / "crashed.db"
    async with opened(live) as backend:
        session = await new_session(backend)
        for _ in range(5):
            await add(backend, session.id, user())
        await add(backend, session.id, *talk(30))
        ids = await path_ids(backend, session.id)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{live}{suffix}", f"{copy}{suffix}")
    return copy, session.id, ids


FRAME = 4096 + 24


@pytest.mark.parametrize("damage", ["cut within a frame", "last frame gone", "last frame garbage", "checksum garbage"])
async def test_a_log_whose_last_frames_are_torn_loses_the_unfinished_commit_alone(tmp_path: Path, damage: str) -> None:
    path, session, ids = await crashed(tmp_path)
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    if damage == "cut within a frame":
        log.write_bytes(whole[: -FRAME // 2])
    elif damage == "last frame gone":
        log.write_bytes(whole[:-FRAME])
    elif damage == "last frame garbage":
        log.write_bytes(whole[:-FRAME] + os.urandom(FRAME))
    else:
        log.write_bytes(whole[: -FRAME + 16] + b"\xff" * 8 + whole[-FRAME + 24 :])
    async with opened(path) as backend:
        assert await path_ids(backend, session) == ids[:5]
        assert (await backend.verify()).problems == []
        assert len(await add(backend, session, user("on it goes"))) == 1
    async with opened(path) as backend:
        assert len(await path_ids(backend, session)) == 6
        assert (await backend.verify()).problems == []


@pytest.mark.parametrize("damage", ["nothing", "garbage behind the log", "stale index", "garbage index", "no index"])
async def test_whatever_a_crash_leaves_beside_a_whole_log_nothing_committed_is_lost(
    tmp_path: Path, damage: str
) -> None:
    path, session, ids = await crashed(tmp_path)
    index = Path(f"{path}-shm")
    if damage == "garbage behind the log":
        with Path(f"{path}-wal").open("ab") as file:
            file.write(os.urandom(3 * FRAME + 7))
    elif damage == "stale index":
        # As if the crash had come before the index knew of the last commits: no frame is known.
        index.write_bytes(b"\0" * index.stat().st_size)
    elif damage == "garbage index":
        index.write_bytes(os.urandom(index.stat().st_size))
    elif damage == "no index":
        index.unlink()
    async with opened(path) as backend:
        assert await path_ids(backend, session) == ids
        assert (await backend.verify()).problems == []
        assert len(await add(backend, session, user("on it goes"))) == 1


# -- a file system without shared memory ----------------------------------------------------------------------------


@pytest.fixture
def no_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_journal, "can_share_memory", lambda _: False)


def journal_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return sqlite_journal.journal_mode(connection)


def test_memory_can_be_shared_in_a_folder_that_can_be_written_to_and_nothing_is_left_there(tmp_path: Path) -> None:
    assert sqlite_journal.can_share_memory(tmp_path)
    assert names(tmp_path) == []
    assert not sqlite_journal.can_share_memory(tmp_path / "missing")


@pytest.mark.usefixtures("no_shared_memory")
async def test_without_shared_memory_a_store_warns_and_works_with_a_rollback_journal(path: Path) -> None:
    with pytest.warns(StoreWarning, match=str(path)) as caught:
        async with opened(path, durability="full") as backend, opened(path) as other:
            session = await new_session(backend, *talk(4))
            assert await path_ids(other, session.id) == await path_ids(backend, session.id)
            await add(other, session.id, user("from the other"))
            assert len(await path_ids(backend, session.id)) == 5
            assert names(path.parent) == ["s.db"]
            assert (await backend.verify()).problems == []
    assert len(caught) == 2
    assert journal_of(path) == "delete"


@pytest.mark.usefixtures("no_shared_memory")
async def test_where_warnings_are_errors_a_store_without_a_log_is_not_opened(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StoreWarning):
            async with opened(path):
                pytest.fail("it was opened")


@pytest.mark.usefixtures("no_shared_memory")
async def test_a_store_on_an_engine_warns_too(path: Path) -> None:
    with pytest.warns(StoreWarning, match=str(path)):
        async with flue_py.open(f"sqlite+aiosqlite:///{path}") as store:
            session = await store.create_session()
            await session.append_message({"role": "user", "content": "x"})
            assert (await store.verify()).problems == []


async def test_a_store_gets_its_log_back_on_a_file_system_that_can_have_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.warns(StoreWarning):
        patch.setattr(sqlite_journal, "can_share_memory", lambda _: False)
        async with opened(path) as backend:
            session = await new_session(backend, *talk(4))
    async with opened(path) as backend:
        assert len(await path_ids(backend, session.id)) == 4
        assert names(path.parent) == ["s.db", "s.db-shm", "s.db-wal"]
    assert journal_of(path) == "wal"


async def test_a_copy_made_by_vacuum_into_gets_its_log_back(path: Path) -> None:
    copy = path.with_name("copy.db")
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    assert journal_of(copy) == "delete"
    async with opened(copy) as backend:
        assert len(await path_ids(backend, session.id)) == 4
    assert journal_of(copy) == "wal"


async def test_opening_a_store_with_a_rollback_journal_does_not_wait_for_its_writer(path: Path) -> None:
    async with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN IMMEDIATE")
        with pytest.warns(StoreWarning):
            async with opened(path) as backend:
                assert (await backend.verify()).problems == []


@pytest.mark.usefixtures("no_shared_memory")
async def test_with_a_rollback_journal_a_commit_waits_for_a_read_within_the_budget(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[None] = []

    def counted(
        connection: sqlite3.Connection, busy_timeout: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        commits.append(None)
        commit(connection, busy_timeout, is_wanted)

    monkeypatch.setattr(sqlite_writer, "commit", counted)
    with pytest.warns(StoreWarning):
        async with opened(path, busy_timeout=0.2) as backend:
            session = await new_session(backend, *talk(2))
            with closing(connect(path, "normal", read_only=True)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT * FROM entries").fetchall()
                commits.clear()
                together = [backend.append(session.id, [user(text)]) for text in "abc"]
                outcomes = await asyncio.gather(*together, return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 3
                assert str(path) in str(outcomes[0])
                # They have waited the budget together, or the first alone and then the others.
                assert len(commits) <= 2
                assert len(await path_ids(backend, session.id)) == 2
                reader.execute("ROLLBACK")
            assert len(await add(backend, session.id, user("y"))) == 1
        async with opened(path) as patient:
            with closing(connect(path, "normal", read_only=True)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT * FROM entries").fetchall()
                waiting = asyncio.ensure_future(patient.append(session.id, [user("z")]))
                async with asyncio.timeout(GUARD_SECONDS):
                    while not path.with_name("s.db-journal").exists():
                        await asyncio.sleep(0)
                reader.execute("ROLLBACK")
            await waiting
            assert [entry.fields["content"] for entry in await path_of(patient, session.id)][-2:] == ["y", "z"]


WITHOUT_SHARED_MEMORY = """
import sys, warnings
import flue_py.sync
from flue_py.db.sqlite import file as sqlite_journal

sqlite_journal.can_share_memory = lambda _: False
warnings.simplefilter("ignore", flue_py.StoreWarning)
with flue_py.sync.open(sys.argv[1], durability=sys.argv[4]) as store:
    session = store.get_session(sys.argv[2])
    print("ready", flush=True)
    for n in range(int(sys.argv[3])):
        appended = session.append_message({"role": "user", "content": str(n)}, on_conflict="branch")
        print(appended.entry_ids[0], flush=True)
        session.refresh()
        session.get_active_path()
"""


def start(script: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, args)], stdout=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return [line.strip() for line in process.stdout if line.endswith("\n")]


@pytest.mark.usefixtures("no_shared_memory")
async def test_with_a_rollback_journal_processes_that_read_and_write_at_once_lose_nothing(path: Path) -> None:
    with pytest.warns(StoreWarning):
        async with opened(path) as backend:
            session = await new_session(backend)
            process = start(WITHOUT_SHARED_MEMORY, path, session.id, 40, "normal")
            try:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
                saying = asyncio.ensure_future(asyncio.to_thread(lines_of, process))
                own = []
                for _ in range(40):
                    own += await add(backend, session.id, user())
                    await path_ids(backend, session.id)
                said = await saying
                assert process.wait(GUARD_SECONDS) == 0
            finally:
                process.kill()
                process.communicate()
            assert journal_of(path) == "delete"
            assert len(said) == 40
            assert {entry.id for entry in await backend.read_tree(session.id)} == {*own, *said}
            assert (await session_info(backend, session.id)).revision == 80
            assert (await backend.verify()).problems == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_shared_memory")
async def test_with_a_rollback_journal_what_was_acknowledged_survives_a_process_that_is_killed(path: Path) -> None:
    with pytest.warns(StoreWarning):
        async with opened(path) as backend:
            session = await new_session(backend)
        process = start(WITHOUT_SHARED_MEMORY, path, session.id, 100_000, "full")
        try:
            assert process.stdout is not None
            said = [process.stdout.readline().strip() for _ in range(20)][1:]
            process.send_signal(signal.SIGKILL)
            said += lines_of(process)
        finally:
            process.kill()
            process.communicate()
        async with opened(path) as backend:
            ids = await path_ids(backend, session.id)
            assert ids[: len(said)] == said
            assert len(ids) <= len(said) + 1
            assert (await backend.verify()).problems == []


async def test_a_hot_rollback_journal_takes_back_the_commit_that_was_under_way(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (4096,)
    path.unlink()
    async with opened(path) as backend:
        session = await new_session(backend, *talk(4))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA cache_size = 2")
        begin_immediate(connection, 0)
        connection.execute("UPDATE entries SET payload = zeroblob(50000)")
        for suffix in ("", "-journal"):
            shutil.copy(f"{path}{suffix}", f"{path.with_name('hot.db')}{suffix}")
        connection.execute("ROLLBACK")
    hot = path.with_name("hot.db")
    assert hot.read_bytes() != path.read_bytes()
    async with opened(hot) as backend:
        assert len(await path_ids(backend, session.id)) == 4
        assert (await backend.verify()).problems == []


MAPPING_REFUSED = """
import ctypes, errno, mmap, os, sqlite3, sys, warnings

# SQLite's own way to replace a system call, reached through the library that Python has loaded.
class Vfs(ctypes.Structure):
    SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    _fields_ = [
        ("version", ctypes.c_int), ("size", ctypes.c_int), ("longest", ctypes.c_int), ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("methods", ctypes.c_void_p * 13), ("set_call", SET),
    ]

MMAP = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    use_errno=True,
)

@MMAP
def refuse(*_):
    ctypes.set_errno(errno.ENODEV)
    return ctypes.c_void_p(-1).value

import _sqlite3
try:
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
    vfs = library.sqlite3_vfs_find(None)
    assert vfs.contents.set_call(ctypes.cast(vfs, ctypes.c_void_p), b"mmap", ctypes.cast(refuse, ctypes.c_void_p)) == 0
    probe = sqlite3.connect(sys.argv[1] + "-probe")
    probe.execute("PRAGMA journal_mode = WAL")
    probe.execute("SELECT * FROM sqlite_master").fetchall()
except sqlite3.OperationalError:
    pass
except (AttributeError, OSError):
    print("no way to SQLite")
    sys.exit()
else:
    print("no way to SQLite")
    sys.exit()

def no_map(*_):
    raise OSError(errno.ENODEV, "No such device")

mmap.mmap = no_map

import flue_py.sync

for path in sys.argv[1:]:
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with flue_py.sync.open(path) as store:
                session = store.open_session("k", mode="get_or_create")
                session.append_message({"role": "user", "content": "here"})
                print(len(session.get_active_path()), store.verify().problems, [w.category.__name__ for w in caught])

sys.stdout.flush()
os._exit(0)  # SQLite must not call what the interpreter has torn down
"""


async def test_where_files_cannot_be_mapped_a_new_store_and_one_with_a_log_work_all_the_same(tmp_path: Path) -> None:
    live, moved = tmp_path / "live.db", tmp_path / "moved.db"
    async with opened(live) as backend:
        await new_session(backend, *talk(4), key="k")
        for suffix in ("", "-wal"):
            shutil.copy(f"{live}{suffix}", f"{moved}{suffix}")
    said = run_script(MAPPING_REFUSED, tmp_path / "new.db", moved)
    if said == ["no way to SQLite"]:
        pytest.skip("this Python's SQLite cannot be reached from outside")
    assert said == [f"{length} [] ['StoreWarning']" for length in (1, 2, 5, 6)]
    assert journal_of(moved) == "delete"
    async with opened(moved) as backend:
        found = existing(await backend.get_session_by_key("k", ""))
        assert len(await path_ids(backend, found.id)) == 6
        assert (await backend.verify()).problems == []


# -- a clock that runs backwards ------------------------------------------------------------------------------------


async def test_with_a_clock_that_runs_backwards_revisions_changes_undo_and_watching_are_right(path: Path) -> None:
    async with opened(path, sources=counted_sources(step_us=-1_000_000)) as backend:
        session = await new_session(backend)
        watching = backend.notifications(session.id)
        await anext(watching)
        ids = []
        for text in ("a", "b", "c"):
            ids += await add(backend, session.id, user(text))
            async with asyncio.timeout(GUARD_SECONDS):
                await anext(watching)
        await watching.aclose()
        changes = await backend.changes(session.id, 0, 100)
        assert [change.revision for change in changes] == [1, 2, 3]
        assert await path_ids(backend, session.id) == ids
        times = [entry.created_us for entry in await path_of(backend, session.id)]
        assert times == sorted(times, reverse=True)
        await backend.undo(session.id)
        assert await path_ids(backend, session.id) == ids[:2]
        await backend.redo(session.id)
        assert await path_ids(backend, session.id) == ids
        assert (await session_info(backend, session.id)).revision == 5
        assert (await backend.verify()).problems == []


# -- forks ----------------------------------------------------------------------------------------------------------


async def test_in_a_forked_child_every_call_is_refused_and_the_parent_goes_on(
    open_backend: OpenBackend, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await open_backend(counted_sources())
    if not isinstance(backend, Backend):
        pytest.skip("a store in memory is the child's own copy")
    session = await new_session(backend, *talk(2))
    real = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(opener.os, "getpid", lambda: real + 1)
        for operation in (
            lambda: backend.append(session.id, [user("x")]),
            lambda: backend.fork(session.id, None, NewSession()),
            lambda: backend.read_path(session.id),
            lambda: backend.get_session(session.id),
            backend.verify,
            backend.info,
            lambda: anext(backend.notifications(session.id)),
        ):
            await raises(WrongProcess, operation(), match=str(real))
        await backend.close()
    assert len(await add(backend, session.id, user("the parent"))) == 1
    assert len(await path_ids(backend, session.id)) == 3
    await backend.close()


FORKED = """
import asyncio, os, sys, warnings
import flue_py, flue_py.sync

path, how = sys.argv[1:]
warnings.simplefilter("ignore", DeprecationWarning)

def name_of(call):
    try:
        return call() or "done"
    except Exception as error:
        assert path in str(error)
        return type(error).__name__

def in_child(session, store, open_again):
    print(name_of(lambda: session.append_message({"role": "user", "content": "child"})))
    print(name_of(session.get_active_path), name_of(store.verify))
    print(name_of(open_again))
    if how.endswith("closing"):
        # Were locks lost with a descriptor, then now.
        os.closerange(3, 256)
    sys.stdout.flush()

def open_blocking():
    with flue_py.sync.open(path):
        pass

def after(pid):
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

def blocking():
    with flue_py.sync.open(path) as store:
        session = store.create_session(key="k")
        session.append_message({"role": "user", "content": "before"})
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            in_child(session, store, open_blocking)
            sys.exit(7)
        after(pid)
        return finish(store, session)

def finish(store, session):
    # Who comes last moves the log into the database and removes it: the visitor must see that it is not the last.
    visitor = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT 1 FROM entries').fetchall()"
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", visitor, path])
    print("log", os.path.exists(path + "-wal"))
    session.append_message({"role": "user", "content": "after"})
    print(len(session.get_active_path()), store.verify().problems)

async def async_():
    async with flue_py.open(path) as store:
        session = await store.create_session(key="k")
        await session.append_message({"role": "user", "content": "before"})
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            class Now:
                def __init__(self, target):
                    self.target = target
                def __getattr__(self, name):
                    def call(*args):
                        coroutine = getattr(self.target, name)(*args)
                        try:
                            coroutine.send(None)
                        finally:
                            coroutine.close()
                    return call
            in_child(Now(session), Now(store), open_blocking)
            await store.close()
            os._exit(7)
        after(pid)
        await session.append_message({"role": "user", "content": "after"})
        print("log", os.path.exists(path + "-wal"))
        print(len(await session.get_active_path()), (await store.verify()).problems)

if how.startswith("blocking"):
    blocking()
else:
    asyncio.run(async_())
"""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "how", ["blocking closing", pytest.param("blocking", marks=SLOW), pytest.param("async", marks=SLOW)]
)
async def test_a_child_that_is_forked_from_an_open_store_is_refused_and_leaves_the_parent_unharmed(
    path: Path, how: str
) -> None:
    assert run_script(FORKED, path, how) == [
        "WrongProcess",
        "WrongProcess WrongProcess",
        "WrongProcess",
        "child 7",
        "log True",
        "2 []",
    ]
    async with opened(path) as backend:
        found = existing(await backend.get_session_by_key("k", ""))
        assert [entry.fields["content"] for entry in await path_of(backend, found.id)] == ["before", "after"]


MULTIPROCESSING = """
import multiprocessing, sys, warnings
import flue_py, flue_py.sync

def append(path, number):
    try:
        with flue_py.sync.open(path) as store:
            store.open_session("k").append_message({"role": "user", "content": str(number)}, on_conflict="branch")
    except flue_py.WrongProcess:
        return 3
    return 0

def work(path, number):
    sys.exit(append(path, number))

def run(method, path, number):
    child = multiprocessing.get_context(method).Process(target=work, args=(path, number))
    child.start()
    child.join()
    return child.exitcode

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    path = sys.argv[1]
    with flue_py.sync.open(path) as store:
        store.create_session(key="k")
    print("forked while it is closed:", run("fork", path, 1))
    with flue_py.sync.open(path) as store:
        print("forked while it is open:", run("fork", path, 2))
        print("spawned while it is open:", run("spawn", path, 3))
        print(len(store.open_session("k").get_active_path()), store.verify().problems)
    print("forked when it is closed again:", run("fork", path, 4))
"""


@pytest.mark.slow
def test_multiprocessing_works_by_spawn_always_and_by_fork_while_the_store_is_closed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MULTIPROCESSING)
    ended = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "s.db")],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.splitlines() == [
        "forked while it is closed: 0",
        "forked while it is open: 3",
        "spawned while it is open: 0",
        "2 []",
        "forked when it is closed again: 0",
    ]
    assert len(contents(tmp_path / "s.db")) == 3


# -- the end of the interpreter -------------------------------------------------------------------------------------

NEVER_CLOSED = """
import asyncio, sys
import flue_py, flue_py.sync

def blocking():
    opening = flue_py.sync.open(("sqlite+aiosqlite:///" if sys.argv[2] == "an engine" else "") + sys.argv[1])
    store = opening.__enter__()
    store.create_session(key="k").append_message({"role": "user", "content": "kept"})
    return opening, store

async def async_():
    opening = flue_py.open(sys.argv[1])
    store = await opening.__aenter__()
    session = await store.create_session(key="k")
    await session.append_message({"role": "user", "content": "kept"})
    return opening, store

if sys.argv[2] in ("blocking", "an engine"):
    kept = blocking()
elif sys.argv[2] == "asyncio.run":
    kept = asyncio.run(async_())
else:
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(async_())
    loop.close()
print("end")
"""


@pytest.mark.parametrize(
    "how",
    ["blocking", "an engine", pytest.param("asyncio.run", marks=SLOW), pytest.param("a loop of its own", marks=SLOW)],
)
def test_a_program_that_ends_without_closing_ends_quietly_and_loses_nothing(path: Path, how: str) -> None:
    assert run_script(NEVER_CLOSED, path, how) == ["end"]
    (payload,) = contents(path)
    assert "kept" in payload
    assert names(path.parent) == ["s.db"]


# -- a file that goes away ------------------------------------------------------------------------------------------


async def test_a_store_whose_file_is_removed_acknowledges_nothing_and_makes_no_new_file(path: Path) -> None:
    async with opened(path) as backend, opened(path) as unread:
        session = await new_session(backend, *talk(2))
        path.unlink()
        for operation in (
            backend.append(session.id, [user("x")]),
            asyncio.wait_for(backend.read_path(session.id), GUARD_SECONDS),
            unread.read_path(session.id),
            backend.verify(),
        ):
            with pytest.raises(StoreUnavailable, match="was removed or moved") as caught:
                await operation
            assert str(path) in str(caught.value)
        assert not path.exists()
    # What is left of the log is empty: a new store can take the place.
    assert all(file.stat().st_size == 0 for file in path.parent.glob("s.db-wal"))
    async with opened(path) as backend:
        await new_session(backend, *talk(1))
        assert (await backend.verify()).entries == 1
        assert (await backend.verify()).problems == []


async def test_a_store_whose_file_is_moved_away_goes_on_once_it_is_back(path: Path) -> None:
    away = path.with_name("away.db")
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
        path.rename(away)
        await raises(StoreUnavailable, backend.append(session.id, [user("x")]), match="put it back")
        away.rename(path)
        assert len(await add(backend, session.id, user("y"))) == 1
        assert [entry.fields["content"] for entry in await path_of(backend, session.id)][2:] == ["y"]
        assert (await backend.verify()).problems == []


async def test_a_store_whose_file_is_moved_away_takes_along_what_its_log_held(path: Path) -> None:
    away = path.with_name("away.db")
    async with opened(path) as backend:
        session = await new_session(backend, *talk(7))
        path.rename(away)
    async with opened(away) as backend:
        assert len(await path_ids(backend, session.id)) == 7
        assert (await backend.verify()).problems == []


@pytest.mark.parametrize("url", ["{}", "sqlite+aiosqlite:///{}"], ids=["path", "engine"])
async def test_a_store_whose_file_is_replaced_by_an_older_backup_refuses_and_leaves_the_backup_whole(
    path: Path, url: str
) -> None:
    backup = path.with_name("backup.db")
    async with flue_py.open(path) as store:
        session = await store.create_session(key="k")
        await session.append_message({"role": "user", "content": "old"})
    shutil.copy(path, backup)
    async with flue_py.open(url.format(path)) as store:
        session = await store.open_session("k")
        await session.append_messages([{"role": "user", "content": f"new {n}"} for n in range(50)])
        backup.replace(path)
        with pytest.raises(StoreUnavailable, match="was replaced"):
            await session.append_message({"role": "user", "content": "lost"})
        await raises(StoreUnavailable, session.get_active_path(), match="was replaced")
    async with flue_py.open(path) as store:
        session = await store.open_session("k")
        assert await session.build_context() == [{"role": "user", "content": "old"}]
        assert (await store.verify()).problems == []


async def test_a_batch_in_which_the_file_goes_away_fails_as_a_whole(path: Path) -> None:
    async with opened(path) as backend:
        session = await new_session(backend)

        def remove(_: Transaction) -> None:
            path.unlink(missing_ok=True)

        results = await asyncio.gather(
            runner_of(backend).write(remove),
            *[backend.append(session.id, [user(text)]) for text in "abc"],
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [StoreUnavailable] * 4


async def test_a_relative_path_stays_the_same_file_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with opened(Path("s.db")) as backend:
        monkeypatch.chdir(tmp_path / "elsewhere")
        session = await new_session(backend, *talk(2))
        assert len(await path_ids(backend, session.id)) == 2
    assert names(tmp_path / "elsewhere") == []
    assert len(contents(tmp_path / "s.db")) == 2
