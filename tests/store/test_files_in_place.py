"""The three files of an open store: nobody takes them away unnoticed, least of all the store itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flue_py.errors import InvalidArgument
from flue_py.store.salvage.salvaging import salvage
from flue_py.testing.samples import add, new_session, path_ids, talk, user
from tests.store.sqlite_batches import GUARD_SECONDS, opened

pytestmark = pytest.mark.anyio

COME_AND_GO = """
import sys
import flue_py.sync

with flue_py.sync.open(sys.argv[1], prices=False) as store:
    print(store.info().sessions)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def run(script: str, *args: object) -> str:
    """Run a program in a process of its own; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    return ended.stdout.strip()


async def test_opening_a_store_twice_in_a_process_lets_go_of_no_lock(path: Path) -> None:
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
