"""The process that copies is killed within a transaction: another run completes it, and nothing is doubled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.sqlite.runner import open_sqlite
from tests.postgres import NewDatabase
from tests.samples import add, new_session, talk
from tests.sources import counted_sources
from tests.whole_stores import copied, make_everything, told, whole_trees, with_names

GUARD_SECONDS = 60

CHILD = """
import os, signal, sys
from flue_py.cli import main
from flue_py.db.ops import transfer as copying

write_calls, left = copying._write_calls, iter(range(int(sys.argv[3])))

def write_some(*arguments):
    written = write_calls(*arguments)
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return written

copying._write_calls = write_some
main(["copy", *sys.argv[1:3]])
"""


def copy_until_killed(source: Path, target: str, trees: int) -> None:
    """Run the command; it dies when it has written all of a tree but for the commit, ``trees`` trees before."""
    command = [sys.executable, "-c", CHILD, str(source), target, str(trees)]
    done = subprocess.run(command, capture_output=True, timeout=GUARD_SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


async def make_source(path: Path) -> Backend:
    source = await open_sqlite(path, sources=counted_sources())
    await make_everything(source)
    for _ in range(16):
        session = await new_session(source, *talk(4))
        fork = await source.fork(session.id, STORED, NewSession())
        await add(source, fork.id, *talk(2))
    return source


async def check_is_completed(source: Backend, target: Backend) -> None:
    """Copy again, and compare all there is."""
    there, all_of_them = (await target.info()).sessions, (await source.info()).sessions
    assert 0 < there < all_of_them
    assert (await target.verify()).problems == []
    report = await copied(source, target)
    assert report.trees_unchanged > 0
    assert report.sessions == all_of_them - there
    assert await told(target) == await told(source)
    rows = [[with_names(tree) for tree in await whole_trees(backend)] for backend in (source, target)]
    # Trees are listed in the order of their keys, which are drawn in another order there.
    assert sorted(map(str, rows[1])) == sorted(map(str, rows[0]))
    ours, theirs = await source.info(), await target.info()
    assert (theirs.entries, theirs.ledger_rows) == (ours.entries, ours.ledger_rows)


@pytest.mark.anyio
async def test_a_copy_to_a_file_that_is_killed_is_completed_by_another(tmp_path: Path) -> None:
    source = await make_source(tmp_path / "a.db")
    try:
        copy_until_killed(tmp_path / "a.db", str(tmp_path / "b.db"), 18)
        target = await open_sqlite(tmp_path / "b.db", sources=counted_sources())
        try:
            await check_is_completed(source, target)
        finally:
            await target.close()
    finally:
        await source.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_copy_to_postgresql_that_is_killed_again_and_again_is_completed_by_another(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    url = new_database()
    source = await make_source(tmp_path / "a.db")
    try:
        for _ in range(2):
            copy_until_killed(tmp_path / "a.db", url, 8)
        target = await open_engine(url, sources=counted_sources())
        try:
            await check_is_completed(source, target)
        finally:
            await target.close()
    finally:
        await source.close()
