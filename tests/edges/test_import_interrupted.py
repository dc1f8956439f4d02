"""An import of a grown file that is killed at any statement and repeated gives the same result as one that is not."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.db.sqlite import file as store_file
from flue_py.errors import FlueError
from tests.edges.test_import_growth import growing_answer, ledger
from tests.formats.pi_files import every_type
from tests.formats.test_claude_code import call, model, result, row, text, user
from tests.formats.test_codex import META, item, said
from tests.formats.test_codex import count as counted
from tests.formats.transcripts import all_seen, as_lines, import_lines
from tests.values import existing

CLAUDE_BEGUN = [user("u1", None), model("a1", "u1", "m1", text("Let me see."), 1)]
CLAUDE_MORE = [
    model("a2", "a1", "m1", call("t1"), 100),
    result("r1", "a2", "t1"),
    row("custom-title", None, customTitle="Named"),
    user("u2", "r1"),
    model("a3", "u2", "m2", text("Done."), 7),
]
CODEX_BEGUN = [META, said("user", "one"), said("assistant", "two"), counted(10), said("user", "three"), counted(25)]
CODEX_MORE = [
    said("assistant", "four"),
    item(type="function_call", name="f", call_id="c", arguments="{}"),
    counted(32),
    item(type="function_call_output", call_id="c", output="done"),
    said("user", "five"),
]


def timed(lines: list[bytes]) -> list[bytes]:
    """Return rows with a time: without one they get that of their import."""
    return as_lines({**json.loads(line), "timestamp": "2026-01-14T00:00:00.000Z"} for line in lines)


GROWN: dict[str, tuple[list[bytes], int]] = {
    "an answer that grew": (timed(growing_answer()), 2),
    "an answer that grew, and more": (as_lines([*CLAUDE_BEGUN, *CLAUDE_MORE]), 2),
    "calls before their messages": (as_lines([*CODEX_BEGUN, *CODEX_MORE]), len(CODEX_BEGUN)),
    "labels and titles": (as_lines(every_type()), 5),
}


class Death:
    """The n-th statement on a file fails, and every later one: what a process that died has not done."""

    def __init__(self) -> None:
        self.left: int | None = None

    def look(self, sql: str) -> None:
        """Fail if it is time to."""
        if self.left is None or sql == "ROLLBACK":
            return
        self.left -= 1
        if self.left <= 0:
            error = sqlite3.OperationalError("the disk is gone")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error


class Mortal:
    """A connection that dies when it is told to."""

    def __init__(self, connection: sqlite3.Connection, death: Death) -> None:
        self._connection = connection
        self._death = death

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._death.look(sql)
        return self._connection.execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self._death.look(sql)
        return self._connection.executemany(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    """The death of everything that is opened on a file from here on."""
    death = Death()
    for name in ("open_file", "connect"):
        opened = getattr(store_file, name)
        monkeypatch.setattr(store_file, name, lambda *a, opened=opened, **b: Mortal(opened(*a, **b), death))
    return death


@pytest.mark.thorough(but=["labels and titles"])
@pytest.mark.parametrize(
    ("name", "at_once"), [*((name, 100_000) for name in GROWN), ("an answer that grew, and more", 2)]
)
async def test_an_import_that_died_at_any_statement_is_made_good_by_the_next(
    name: str, at_once: int, tmp_path: Path, death: Death
) -> None:
    lines, begun = GROWN[name]
    limits = flue_py.Limits(batch_entries=at_once)
    kept = tmp_path / "begun.db"
    async with flue_py.open(kept, durability="normal") as store:
        await import_lines(store, tmp_path, lines[:begun], finish=True)
    expected = await undisturbed(kept, tmp_path, lines)
    made_good: set[str] = set()
    for step in count(1):
        path = Path(shutil.copy(kept, tmp_path / "s.db"))
        clock = passing_time()
        async with flue_py.open(path, threads=False, limits=limits, durability="normal", clock=clock.__next__) as store:
            death.left = step
            failed = await fails(store, tmp_path, lines)
            assert failed == (death.left <= 0)
            death.left = None
        if not failed:
            break
        # Most deaths leave what another has left: as many transactions as were committed before it.
        if (left := all_rows(path)) not in made_good:
            assert await undisturbed(path, tmp_path, lines) == expected, step
            made_good.add(left)
    assert step > 20


def passing_time() -> Iterator[datetime]:
    """Return moments that are the same for each import, so that two which died alike leave the same rows."""
    return (datetime(2026, 1, 15, tzinfo=UTC) + timedelta(seconds=seconds) for seconds in count())


def all_rows(path: Path) -> str:
    """Return the schema and all rows of a file, those of a log beside it included."""
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


async def fails(store: flue_py.Store, folder: Path, lines: list[bytes]) -> bool:
    try:
        await import_lines(store, folder, lines, finish=True)
    except FlueError:
        return True
    return False


async def undisturbed(path: Path, folder: Path, lines: list[bytes]) -> Any:
    """Return all that is in a store once the file is imported into a copy of it."""
    copy = shutil.copy(path, folder / "next.db")
    async with flue_py.open(copy, durability="normal") as store:
        await import_lines(store, folder, lines, finish=True)
        assert (await store.verify()).problems == []
        beside = []
        for info in (await store.list_sessions(kind=None)).sessions:
            session = existing(await store.get_session(info.id))
            beside.append((session.metadata, await session.marks.labels(), info.auto_title, info.completed_us))
        return await all_seen(store), await ledger(store), beside
