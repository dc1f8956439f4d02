"""The next steps, in three lines: for a person at a terminal who names no command. The database is only read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from os.path import exists, getsize
from typing import TypeAlias

import flue_py
from flue_py.cli.errors import exit_code_of, in_commands
from flue_py.cli.main import Place, finished, on_one_line
from flue_py.cli.output import look, print_lines
from flue_py.core.sessions import SessionInfo
from flue_py.db.migrate import dialect_of, look_at, path_of
from flue_py.errors import FlueError
from flue_py.render.lines import Line, cells, clip, counted, one_line, text_of
from flue_py.render.transcript import age
from flue_py.render.views import name_among
from flue_py.sessions.search import sources_of
from flue_py.sessions.store import Store

Steps: TypeAlias = Callable[[str], tuple[Line, Line, Line]]
"""Makes the lines, given how a command line begins: ``flue-py``, perhaps with the database."""

_ALL = "    (all commands: flue-py --help)"
_LONGEST_PATH = 400
_ID = 8
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.:-]*")


def print_next_steps(place: Place, *, is_typed: bool) -> int:
    """Print the next steps with a database, and return the exit code: of the error, if it cannot be read.

    ``is_typed`` says that it was named by --db, which the next command needs then, too.
    """
    code = 0
    try:
        steps = _steps(place)
    except FlueError as error:
        steps, code = _refused(error, place.target), exit_code_of(error)
    begin = ["flue-py"]
    if is_typed:
        # A URL may hold a password, and a path with signs that a terminal acts on cannot be copied.
        is_shown = place.is_file and place.target.isprintable()
        begin = [f"flue-py --db {shlex.quote(place.target)}"] * is_shown + ["flue-py --db ..."]
    width = look().width
    layouts = [steps(start) for start in begin]
    print_lines(next((lines for lines in layouts if all(cells(text_of(line)) <= width for line in lines)), layouts[-1]))
    return code


def _steps(place: Place) -> Steps:
    if not place.is_file and dialect_of(place.target) != "sqlite":
        return finished(_on_store(place.target, is_file=False), needs_loop=True)
    path = str(path_of(place.target))
    if not exists(path) or not getsize(path):  # unlike Path.exists, it has no opinion on names that no file can have
        return _beginning(f"There is no database at {_room(path, 29)} yet.")
    return finished(_on_store(path, is_file=True), needs_loop=False)


async def _on_store(target: str, *, is_file: bool) -> Steps:
    # Opening a database for writing would make the tables that it lacks, and upgrade those of an older format.
    seen = await look_at(target)
    if seen.found is None:
        return _beginning(f"There are no sessions in {_room(seen.location, 30)} yet.")
    if seen.found < seen.format:
        return _older(seen.location, seen.found, seen.format)
    async with flue_py.open(target, read_only=is_file, threads=False if is_file else None, prices=False) as store:
        latest = (await store.list_sessions(limit=1)).sessions
        if not latest:
            return _beginning(f"There are no sessions in {_room(seen.location, 30)} yet.")
        return await _going_on(store, (await store.info()).sessions, latest[0])


def _beginning(text: str) -> Steps:
    return lambda flue: (
        ((text, ""),),
        (("Import your own sessions:  ", ""), (f"{flue} import auto --discover", "bold")),
        (("See a real one first:      ", ""), ("flue-py demo", "bold"), (_ALL, "dim")),
    )


async def _going_on(store: Store, sessions: int, latest: SessionInfo) -> Steps:
    name = name_among(latest, await sources_of(store.backend, [latest]))
    passed = age(datetime.now(UTC) - latest.active_at)
    head = f"{counted(sessions, 'session')}; last active {passed} ago: "
    shown = look()
    first = (head, ""), (clip(name, max(_ID, shown.width - cells(head)), shown.glyphs.cut), "bold")
    session = await _short_id(store, latest)

    def steps(flue: str) -> tuple[Line, Line, Line]:
        looking: Line = ((f"{flue} browse", "bold"),)
        if find_spec("textual") is None:
            looking = (f"{flue} sessions", "bold"), (", then ", ""), (f"{flue} show {session} --history", "bold")
        return (
            first,
            (("Look at them:  ", ""), *looking),
            (("Find words:    ", ""), (f"{flue} search WORDS", "bold"), (_ALL, "dim")),
        )

    return steps


async def _short_id(store: Store, latest: SessionInfo) -> str:
    """Return the beginning of a session's id that names it, or SESSION where there is none to type."""
    short = latest.id[:_ID]
    if _PLAIN.fullmatch(short):
        with suppress(FlueError):
            if (await store.find_session(short)).id == latest.id:
                return short
    return "SESSION"


def _older(location: str, from_format: int, current: int) -> Steps:
    text = f" has format {from_format}, and this flue-py works on format {current}."
    return lambda flue: (
        ((_room(location, len(text)) + text, ""),),
        (("Upgrade it:    ", ""), (f"{flue} migrate", "bold")),
        (("All commands:  ", ""), ("flue-py --help", "bold")),
    )


def _refused(error: FlueError, target: str) -> Steps:
    """Return the message of an error, and its advice."""
    text, _, advice = on_one_line(in_commands(str(error))).partition("; ")
    for path in (target, repr(target)):
        if text.startswith(path):
            rest = text.removeprefix(path)
            text = _room(path, cells(rest)) + rest
    advice = advice or "name another database with --db, or FLUE_PY_DB"
    shown = look()
    return lambda _: (
        ((clip(text, shown.width, shown.glyphs.cut), "red"),),
        ((clip(advice[:1].upper() + advice[1:], shown.width, shown.glyphs.cut), ""),),
        (("All commands:  ", ""), ("flue-py --help", "bold")),
    )


def _room(path: str, taken: int) -> str:
    """Return the end of a path that fits a line in which so many cells are taken."""
    shown = look()
    return clip(one_line(path, _LONGEST_PATH)[::-1], max(_ID, shown.width - taken), shown.glyphs.cut)[::-1]
