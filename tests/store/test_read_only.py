"""A store that cannot be written to can be read: by the library with `read_only=True`, by the command line always."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import flue_py
import flue_py.sync
from flue_py.cli import main
from flue_py.db.runner import Transaction
from flue_py.errors import FormatTooNew, InvalidArgument, NotAStore, StoreBusy, StoreUnavailable
from tests.checks import give_heads, raises
from tests.samples import add, new_session, path_ids, talk, user
from tests.store.conftest import SmallDisk
from tests.store.scripts import AS_NOBODY, folder_for_all, run_script
from tests.store.sqlite_batches import GUARD_SECONDS, opened
from tests.tables import inputs
from tests.values import existing

READING = [
    ["sessions", "--json"],
    ["show", "k", "--json"],
    ["tree", "k", "--json"],
    ["show", "k", "--path", "--json"],
    ["context", "k", "--json"],
    ["usage", "k", "--json"],
    ["usage", "--json"],
    ["log", "k", "--json"],
    ["show", "k", "--turns"],
    ["show", "k", "--history"],
    ["show", "k", "--answer"],
    ["verify"],
    ["budget", "list"],
]
WRITING = [["fork", "k"], ["move", "k", "--turns", "1"], ["undo", "k"], ["rm", "k", "--yes"]]


def make_store(path: Path) -> None:
    with flue_py.sync.open(path, prices=False) as store:
        session = store.create_session(key="k", title="a title")
        for number in range(3):
            session.append_message({"role": "user", "content": f"question {number}"})
            session.append_message({"role": "assistant", "content": f"answer {number}"})


def count(path: Path) -> int:
    with flue_py.sync.open(path, read_only=True, prices=False) as store:
        return len(store.open_session("k").get_active_path())


def run(path: Path, command: list[str]) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["--db", str(path), *command])
    return result.exit_code, result.output


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_every_reading_command_answers_on_a_disk_mounted_for_reading_as_before(small_disk: SmallDisk) -> None:
    make_store(small_disk.store)
    before = [run(small_disk.store, command) for command in READING]
    small_disk.forbid_writing()
    assert [run(small_disk.store, command) for command in READING] == before
    assert {code for code, _ in before} == {0}
    for command in WRITING:
        code, output = run(small_disk.store, command)
        assert code == 1, output
        assert "nothing was changed" in output
        assert f"{small_disk.folder} is mounted for reading only" in output
    assert names(small_disk.folder) == ["s.db"]


def test_what_is_written_elsewhere_is_written_from_a_disk_mounted_for_reading(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    make_store(small_disk.store)
    small_disk.forbid_writing()
    for command in (
        ["export", "openai-chat", "k", "--output", f"{tmp_path}/k.json"],
        ["export", "markdown", "k", "--output", f"{tmp_path}/k.md"],
        ["export", "html", "k", "--output", f"{tmp_path}/k.html"],
        ["bundle", f"{tmp_path}/k.bundle"],
        ["backup", f"{tmp_path}/backup.db"],
        ["copy", str(small_disk.store), f"{tmp_path}/copy.db"],
    ):
        assert run(small_disk.store, command)[0] == 0, command
    for copy in ("backup.db", "copy.db"):
        assert count(tmp_path / copy) == 6


def test_every_reading_command_answers_on_a_full_disk_and_writing_names_it(small_disk: SmallDisk) -> None:
    make_store(small_disk.store)
    before = [run(small_disk.store, command) for command in READING]
    small_disk.fill()
    assert [run(small_disk.store, command) for command in READING] == before
    for command in WRITING:
        code, output = run(small_disk.store, command)
        assert code == 1
        assert "is full: make room" in output
    small_disk.make_room()
    assert run(small_disk.store, ["fork", "k"])[0] == 0


CRASHED = """
import os, sys
import flue_py.sync

opening = flue_py.sync.open(sys.argv[1], prices=False)
store = opening.__enter__()
store.open_session("k").append_message({"role": "user", "content": "in the log"})
os._exit(0)
"""


@pytest.mark.parametrize("has_index", [True, False])
def test_what_a_crash_left_in_the_log_is_read_or_the_log_is_named(small_disk: SmallDisk, has_index: bool) -> None:
    make_store(small_disk.store)
    subprocess.run([sys.executable, "-c", CRASHED, str(small_disk.store)], check=True, timeout=GUARD_SECONDS)
    assert Path(f"{small_disk.store}-wal").stat().st_size
    if not has_index:
        Path(f"{small_disk.store}-shm").unlink()
    small_disk.forbid_writing()
    if has_index:
        assert count(small_disk.store) == 7
    else:
        with pytest.raises(StoreUnavailable, match="copy both"):
            count(small_disk.store)


WARMED_UP = """
import json, sys
import flue_py, flue_py.sync
from flue_py.cli import main

path = sys.argv[1]
with flue_py.sync.open(path, read_only=True, prices=False) as store:
    store.open_session("k").get_active_path(), store.verify()
with flue_py.sync.open(":memory:") as store:
    store.create_session(key="k").append_message({"role": "user", "content": "x"})
main(["--db", path, "sessions", "--json"], standalone_mode=False)
"""
IN_A_LOCKED_FOLDER = """
main(["--db", path, "sessions", "--json"], standalone_mode=False)
with flue_py.sync.open(path, read_only=True, prices=False) as store:
    session = store.open_session("k")
    try:
        session.append_message({"role": "user", "content": "more"})
    except flue_py.StoreUnavailable as error:
        print(json.dumps([str(error), len(session.get_active_path()), len(store.verify().problems)]))
"""


def test_a_store_in_a_folder_of_somebody_else_can_be_read() -> None:
    with folder_for_all() as folder:
        path = folder / "s.db"
        make_store(path)
        path.chmod(0o444)
        folder.chmod(0o555)
        line = run_script(WARMED_UP + AS_NOBODY + IN_A_LOCKED_FOLDER, path)[-1]
        assert names(folder) == ["s.db"]
    message, length, problems = json.loads(line)
    assert "this user must be allowed to write to" in message
    assert (length, problems) == (6, 0)


# -- in the library -------------------------------------------------------------------------------------------------


async def test_a_store_that_is_only_read_leaves_nothing_behind_and_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as backend:
        await new_session(backend, *talk(4))
    before = path.read_bytes()
    async with flue_py.open(path, read_only=True) as store:
        (info,) = (await store.list_sessions()).sessions
        session = existing(await store.get_session(info.id))
        assert len(await session.get_active_path()) == 4
        assert (await store.verify()).problems == []
        for operation in (session.append_message({"role": "user", "content": "x"}), store.create_session(key="new")):
            with pytest.raises(StoreUnavailable, match="open it without read_only=True"):
                await operation
        assert names(tmp_path) == ["s.db"]
    assert names(tmp_path) == ["s.db"]
    assert path.read_bytes() == before


async def test_a_store_that_is_only_read_sees_what_others_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as backend:
        session = await new_session(backend, *talk(2))
    async with flue_py.open(path, read_only=True) as store:
        reading = existing(await store.get_session(session.id))
        assert len(await reading.get_active_path()) == 2
        async with opened(path) as backend:
            await add(backend, session.id, user("while it is open"))
            await reading.refresh()
            assert len(await reading.get_active_path()) == 3
            await add(backend, session.id, user("again"))
            await reading.refresh()
            assert len(await reading.get_active_path()) == 4
        await reading.refresh()
        assert len(await reading.get_active_path()) == 4
    async with opened(path) as backend:
        assert len(await path_ids(backend, session.id)) == 4
        assert (await backend.verify()).problems == []


async def test_a_read_during_which_the_file_is_written_is_told_to_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as backend:
        await new_session(backend, *talk(2))
    async with flue_py.open(path, read_only=True) as store:
        runner = store.backend._runner  # type: ignore[attr-defined]

        def write_meanwhile(_: Transaction) -> None:
            with closing(sqlite3.connect(path)) as other:
                other.execute("UPDATE sessions SET title = 'new'")
                other.commit()
            give_heads(path)

        await raises(StoreBusy, runner.read(write_meanwhile), match="try again")
        assert (await store.list_sessions()).sessions[0].title == "new"


@inputs("format_", [1, 99])
async def test_another_format_is_not_read(tmp_path: Path, format_: int) -> None:
    path = tmp_path / "s.db"
    make_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE flue_store SET value = ? WHERE name = 'format'", (format_,))
        connection.commit()
    with pytest.raises(StoreUnavailable if format_ == 1 else FormatTooNew, match=f"format {format_}"):
        async with flue_py.open(path, read_only=True):
            pytest.fail("it was opened")


async def test_a_file_is_opened_for_reading_by_its_url_too(tmp_path: Path) -> None:
    make_store(tmp_path / "s.db")
    async with flue_py.open(f"sqlite+aiosqlite:///{tmp_path}/s.db", read_only=True) as store:
        session = await store.open_session("k")
        with pytest.raises(StoreUnavailable, match="open for reading only"):
            await session.append_message({"role": "user", "content": "a"})
        assert (await store.verify()).problems == []


async def test_what_cannot_be_opened_for_reading_only_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for target, error in (
        (tmp_path / "missing.db", StoreUnavailable),
        (tmp_path / "empty.db", NotAStore),
        (":memory:", InvalidArgument),
        (f"sqlite+aiosqlite:///{tmp_path}/missing.db", StoreUnavailable),
        (f"sqlite+aiosqlite:///{tmp_path}/empty.db?timeout=3", InvalidArgument),
        ("sqlite+aiosqlite://", InvalidArgument),
    ):
        with pytest.raises(error):
            async with flue_py.open(target, read_only=True):
                pytest.fail("it was opened")
    assert names(tmp_path) == ["empty.db"]
