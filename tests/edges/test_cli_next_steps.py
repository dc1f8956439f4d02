"""`flue-py` without a command: at a terminal, three lines say what to do next; elsewhere it is a wrong call."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

import flue_py
from flue_py.db.schema import FORMAT_VERSION
from flue_py.render.lines import cells
from tests.edges.cli_runs import in_own_process, seen_at_a_terminal, seen_here
from tests.edges.every_command import HOSTILE
from tests.edges.test_cli_hostile_content import STYLE, acting
from tests.migrations.later import AS_LATER, LATER_FORMAT
from tests.migrations.postgres_catalog import catalog
from tests.postgres import NewDatabase

ROOT = Path(__file__).parents[2]
WITHOUT_BROWSER = "import sys; sys.modules['textual'] = None\n"
BEGINNING = [
    "Import your own sessions:  flue-py import auto --discover",
    "See a real one first:      flue-py demo    (all commands: flue-py --help)",
]


@pytest.fixture(autouse=True)
def without_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)  # type: ignore[arg-type]


def lines(folder: Path, *arguments: str, code: int = 0, columns: int = 80, before: str = "", **env: str) -> list[str]:
    """Return the three lines at a terminal whose working directory is a folder; whatever is there stays as it is.

    With ``before``, Python that is run first, they are those of another process.
    """
    there = state(folder)
    surroundings = {"HOME": str(folder), "FLUE_PY_DB": "", "COLUMNS": str(columns), **env}
    if before:
        ended, seen = seen_at_a_terminal(*arguments, before=before, cwd=folder, **surroundings)
    else:
        ended, seen = seen_here(*arguments, cwd=folder, **surroundings)
    assert ended == code, seen
    assert state(folder) == there
    plain = STYLE.sub("", seen).replace("\r\n", "\n")
    assert acting(plain) == set()
    assert plain.count("\n") == 3
    found = plain.splitlines()
    assert all(found)
    assert max(map(cells, found)) <= columns
    return found


def state(folder: Path) -> dict[str, bytes]:
    """Return what every file holds, but for the index of a log that is in use, in which readers leave their marks."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm"}


def make(database: Path | str, *titles: str, **ago: float) -> list[str]:
    """Make sessions with these titles, one an hour after the other, the last of them so long ago; return their ids."""
    now = datetime.now(UTC) - timedelta(**ago) - timedelta(hours=len(titles))
    moments = iter([now + timedelta(hours=number, minutes=1) for number in range(1, 1 + len(titles))])
    moment = [now]

    async def work() -> list[str]:
        made = []
        async with flue_py.open(database, clock=lambda: moment[0]) as store:
            for title in titles:
                moment[0] = next(moments)
                session = await store.create_session(title=title)
                await session.append_message({"role": "user", "content": "Hello"})
                made.append(session.id)
            assert not (await store.verify()).problems
        return made

    return asyncio.run(work())


# -- no sessions yet --------------------------------------------------------------------------------------------------


def test_without_a_database_it_says_where_none_is_and_how_to_begin(tmp_path: Path) -> None:
    place = tmp_path / ".flue-py" / "sessions.db"
    assert lines(tmp_path, columns=300) == [f"There is no database at {place} yet.", *BEGINNING]
    assert lines(tmp_path, FLUE_PY_DB="missing.db") == ["There is no database at missing.db yet.", *BEGINNING]
    assert not place.parent.exists()


def test_of_a_long_path_the_end_is_shown(tmp_path: Path) -> None:
    first, *rest = lines(tmp_path, FLUE_PY_DB=f"{'long/' * 40}日本.db")
    assert re.fullmatch(r"There is no database at …[long/]+/日本\.db yet\.", first)
    assert 78 <= cells(first) <= 80
    assert rest == BEGINNING


@pytest.mark.thorough
def test_the_next_command_names_the_database_that_was_named(tmp_path: Path) -> None:
    assert lines(tmp_path, "--db", "my own.db")[1].endswith("  flue-py --db 'my own.db' import auto --discover")
    long = "a-longer-name-of-a-file.db"
    assert lines(tmp_path, "--db", long)[1].endswith("  flue-py --db ... import auto --discover")
    assert lines(tmp_path, "--db", long, columns=100)[1].endswith(f"  flue-py --db {long} import auto --discover")
    assert lines(tmp_path, "--db", "x\x1b[2J.db")[1].endswith("  flue-py --db ... import auto --discover")
    assert lines(tmp_path, "--db", "sqlite+aiosqlite:///x.db?timeout=9") == [
        "There is no database at x.db yet.",
        BEGINNING[0].replace("flue-py", "flue-py --db ..."),
        BEGINNING[1],
    ]


def test_a_database_without_sessions_is_begun_the_same_way(tmp_path: Path) -> None:
    make(tmp_path / "sessions.db")
    assert lines(tmp_path, FLUE_PY_DB="sessions.db") == ["There are no sessions in sessions.db yet.", *BEGINNING]


def test_an_empty_file_is_no_database_and_does_not_become_one(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").touch()
    assert lines(tmp_path, FLUE_PY_DB="sessions.db") == ["There is no database at sessions.db yet.", *BEGINNING]


def test_a_last_session_that_was_changed_by_other_means_is_named(tmp_path: Path) -> None:
    (session_id,) = make(tmp_path / "sessions.db", "Fix the build")
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database:
        database.execute("UPDATE sessions SET title = 'forged'")
        database.commit()
    found = "\n".join(lines(tmp_path, FLUE_PY_DB="sessions.db", code=1))
    assert session_id in found
    assert "There are no sessions" not in found


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_with_sessions_it_names_the_last_active_one_and_how_to_look_at_it(tmp_path: Path) -> None:
    *_, last = make(tmp_path / "sessions.db", "Older", "Fix the build", days=3, hours=9)
    found = lines(tmp_path, FLUE_PY_DB="sessions.db")
    assert found == [
        "2 sessions; last active 3d ago: Fix the build",
        f"Look at them:  flue-py sessions, then flue-py show {last[:8]} --history",
        "Find words:    flue-py search WORDS    (all commands: flue-py --help)",
    ]
    named = in_own_process("show", last[:8], "--history", FLUE_PY_DB=str(tmp_path / "sessions.db"))
    assert (named.returncode, "Hello" in named.stdout) == (0, True)


def test_where_its_extra_is_installed_the_browser_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", ModuleType("textual"))
    monkeypatch.setattr(sys.modules["textual"], "__spec__", ModuleSpec("textual", None))
    make(tmp_path / "sessions.db", "Only", hours=5, minutes=30)
    assert lines(tmp_path, "--db", "sessions.db", columns=100) == [
        "1 session; last active 5h ago: Only",
        "Look at them:  flue-py --db sessions.db browse",
        "Find words:    flue-py --db sessions.db search WORDS    (all commands: flue-py --help)",
    ]


@pytest.mark.parametrize(
    "title", [HOSTILE, "題" * 200, "\ufe0f" * 300, "a\nb" * 99], ids=["acting", "wide", "none", "long"]
)
def test_a_title_cannot_write_to_the_terminal_and_is_clipped(tmp_path: Path, title: str) -> None:
    make(tmp_path / "sessions.db", title, days=1, hours=9)
    first = lines(tmp_path, FLUE_PY_DB="sessions.db")[0]
    assert first.startswith("1 session; last active 1d ago: ")
    assert cells(first) > 31


@pytest.mark.parametrize("ids", [["$(reboot)"], ["twins-of-1", "twins-of-2"]], ids=["signs", "twins"])
def test_an_id_that_cannot_be_typed_or_told_apart_is_not_offered(tmp_path: Path, ids: list[str]) -> None:
    with flue_py.sync.open(tmp_path / "sessions.db", session_ids=iter(ids).__next__) as store:
        for _ in ids:
            store.create_session(title="x")
        assert not store.verify().problems
    found = lines(tmp_path, FLUE_PY_DB="sessions.db")
    assert found[1] == "Look at them:  flue-py sessions, then flue-py show SESSION --history"


def test_while_another_program_has_it_open_it_is_read_as_it_is_now(tmp_path: Path) -> None:
    ahead = datetime.now(UTC) + timedelta(days=9)

    async def work() -> list[str]:
        async with flue_py.open(tmp_path / "sessions.db", clock=lambda: ahead) as store:
            await store.create_session(title="Being written")
            assert (tmp_path / "sessions.db-wal").stat().st_size
            return await asyncio.to_thread(lines, tmp_path, before=WITHOUT_BROWSER, FLUE_PY_DB="sessions.db")

    assert asyncio.run(work())[0] == "1 session; last active 0m ago: Being written"


# -- what cannot be read ----------------------------------------------------------------------------------------------


def test_an_older_format_is_not_upgraded_but_said(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    make(tmp_path / "old.db", "x")
    before = WITHOUT_BROWSER + AS_LATER.format(str(tmp_path_factory.mktemp("later") / "migrations"))
    assert lines(tmp_path, "--db", "old.db", before=before, PYTHONPATH=str(ROOT)) == [
        f"old.db has format {FORMAT_VERSION}, and this flue-py works on format {LATER_FORMAT}.",
        "Upgrade it:    flue-py --db old.db migrate",
        "All commands:  flue-py --help",
    ]


def of_format(number: int, path: Path) -> None:
    make(path, "x")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE flue_store SET value = ? WHERE name = 'format'", (number,))
        connection.commit()


def damaged(path: Path) -> None:
    make(path, "x")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))


@pytest.mark.parametrize(
    ("spoil", "what", "advice"),
    [
        (partial(of_format, 99), f"x.db has format 99, this flue_py reads up to {FORMAT_VERSION}", "Upgrade flue_py"),
        (
            partial(of_format, 1),
            "x.db has format 1, which only versions before the first release made",
            "Export its sessions",
        ),
        (damaged, "x.db is damaged (", "Restore a backup, or run flue-py salvage"),
        (lambda path: path.write_text("a text"), "x.db is not a SQLite database", "Name another file"),
        (Path.mkdir, "'x.db' cannot be read: it is a directory", "Name another database with --db, or FLUE_PY_DB"),
    ],
    ids=["newer", "unreleased", "damaged", "text", "folder"],
)
def test_what_cannot_be_read_is_said_and_what_to_do(
    tmp_path: Path, spoil: Callable[[Path], object], what: str, advice: str
) -> None:
    spoil(tmp_path / "x.db")
    first, second, third = lines(tmp_path, FLUE_PY_DB="x.db", code=1)
    assert first.startswith(what)
    assert second.startswith(advice)
    assert third == "All commands:  flue-py --help"


def test_an_error_leaves_room_for_what_is_wrong_beside_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 30)
    folder.mkdir()
    (folder / "x.db").write_text("a text")
    first = lines(tmp_path, FLUE_PY_DB=str(folder / "x.db"), code=1)[0]
    assert first.startswith("…")
    assert first.endswith("-/x.db is not a SQLite database")


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("postgresql+asyncpg://app:secret@/app?host=/nonexistent/folder", "postgresql+asyncpg://"),
        ("postgresql+asyncpg://app:secret@[broken/app", "postgresql+asyncpg://"),
        ("mysql://app:secret@host/app", "mysql:// is neither "),
        ("memory://", "a store in memory is made anew"),
    ],
)
def test_a_server_that_cannot_be_reached_is_said_without_the_password(tmp_path: Path, url: str, what: str) -> None:
    pytest.importorskip("asyncpg")
    found = lines(tmp_path, "--db", url, code=1)
    assert found[0].startswith(what)
    assert found[2] == "All commands:  flue-py --help"
    assert "secret" not in "".join(found)


def test_on_postgresql_nothing_is_made_and_sessions_are_named(tmp_path: Path, new_database: NewDatabase) -> None:
    url = new_database()
    empty = asyncio.run(catalog(url))
    assert re.fullmatch(r"There are no sessions in \S+ yet\.", lines(tmp_path, FLUE_PY_DB=url)[0])
    assert asyncio.run(catalog(url)) == empty
    *_, last = make(url, "Older", "Fix the build", days=3, hours=9)
    assert lines(tmp_path, FLUE_PY_DB=url)[:2] == [
        "2 sessions; last active 3d ago: Fix the build",
        f"Look at them:  flue-py sessions, then flue-py show {last[:8]} --history",
    ]


# -- elsewhere --------------------------------------------------------------------------------------------------------


def test_in_a_pipe_a_missing_command_stays_a_wrong_call(tmp_path: Path) -> None:
    make(tmp_path / "sessions.db", "x")
    named = in_own_process("--db", str(tmp_path / "sessions.db"))
    assert (named.returncode, named.stdout) == (2, "")
    assert named.stderr == "Error: Missing command; see flue-py --help\n"
    bare = in_own_process(FLUE_PY_DB=str(tmp_path / "sessions.db"))
    assert "Usage: flue-py [OPTIONS] COMMAND [ARGS]..." in bare.stdout + bare.stderr
    assert os.listdir(tmp_path) == ["sessions.db"]


def test_help_and_wrong_calls_at_a_terminal_stay_as_they_are(tmp_path: Path) -> None:
    code, seen = seen_at_a_terminal("--help", cwd=tmp_path)
    assert code == 0
    assert "Usage: flue-py [OPTIONS] COMMAND [ARGS]..." in seen
    code, seen = seen_at_a_terminal("dance", cwd=tmp_path)
    assert (code, seen) == (2, "Error: No such command 'dance'; see flue-py --help\r\n")
