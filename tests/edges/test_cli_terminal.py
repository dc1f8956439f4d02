"""The command line and its surroundings: pagers, colours, shells, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import flue_py
from flue_py.cli import command as choosing
from flue_py.cli import command as progress
from flue_py.cli import main
from flue_py.cli.main import CODES, INTERRUPTED, NOT_FOUND, READER_GONE, LazyGroup
from flue_py.cli.manage import SOMETHING_LOST
from tests.edges.cli_runs import COMMAND, Flue, runner, seen_at_a_terminal
from tests.effort import first
from tests.tables import inputs

ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "README.md"


def at_a_terminal(flue: Flue, *arguments: str, **env: str) -> str:
    """Return what a command shows at a terminal."""
    code, seen = seen_at_a_terminal("--db", str(flue.database), *arguments, **env)
    assert code == 0, seen
    return seen


# -- the pager --------------------------------------------------------------------------------------------------------


def test_what_is_longer_than_the_terminal_goes_through_the_pager(flue: Flue) -> None:
    session = flue.import_every_type()
    marking = "sed s,^,paged:,"
    shown = at_a_terminal(flue, "show", session, PAGER=marking, LINES="8")
    assert shown.count("paged:") > 8
    assert "paged:" not in at_a_terminal(flue, "show", session, PAGER=marking, LINES="99")


def test_no_pager_in_a_pipe_even_where_colour_is_wanted(flue: Flue) -> None:
    session = flue.import_every_type()
    shown = flue.run("show", session, env={"FORCE_COLOR": "1", "PAGER": "false", "LINES": "5"}).stdout
    assert "INI parser session" in shown


@pytest.mark.parametrize(("less", "coloured"), [(None, True), ("-M", False), ("-MR", True)])
def test_a_pager_gets_colours_only_where_it_shows_them(flue: Flue, less: str | None, coloured: bool) -> None:
    session = flue.import_every_type()
    program = flue.folder / "less"
    # Click before 8.2 first runs it without a pipe, to see whether it is there.
    program.write_text('#!/bin/sh\n[ -t 0 ] && exit\necho "paged with LESS=$LESS"\ncat\n')
    program.chmod(0o755)
    env = {"PATH": f"{flue.folder}:{os.environ['PATH']}", "LINES": "8"} | ({} if less is None else {"LESS": less})
    shown = at_a_terminal(flue, "show", session, **env)
    assert f"paged with LESS={less or '-R'}" in shown
    assert bool(ESCAPE.search(shown)) == coloured


# -- pipes ------------------------------------------------------------------------------------------------------------


def test_in_a_pipe_nothing_is_cut(flue: Flue) -> None:
    words = "Please have a look at why the changelog of the last release, which everybody waits for, is empty"
    session = flue.json("new", "--title", words)["id"]
    flue.run("append", session, words)
    for command in (["sessions"], ["tree", session]):
        assert words in flue.run(*command, env={"COLUMNS": None}).stdout, command
        assert words not in flue.run(*command, env={"COLUMNS": "60"}).stdout, command


# -- colours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"TERM": "dumb"}, False)], ids=str)
def test_a_terminal_is_coloured_unless_somebody_minds(flue: Flue, env: dict[str, str], coloured: bool) -> None:
    session = flue.import_every_type()
    shown = at_a_terminal(flue, "tree", session, PAGER="cat", **env)
    codes = {code for found in ESCAPE.findall(shown) for code in found.split(";") if re.fullmatch(r"[39]\d", code)}
    assert bool(codes) == coloured
    assert "← leaf" in shown


# -- completion -------------------------------------------------------------------------------------------------------


def completed(flue: Flue, line: str) -> list[str]:
    """Return what bash is told to offer for the last word of a line."""
    words = line.split(" ")
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_FLUE_PY_COMPLETE": "bash_complete"}
    result = runner().invoke(main, [], prog_name="flue-py", env={**env, "FLUE_PY_DB": str(flue.database)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr == ""
    return [item.partition(",")[2] for item in result.stdout.splitlines() if item]


def test_commands_options_formats_and_shells_are_completed(flue: Flue) -> None:
    assert {"tree", "show", "sessions"} <= set(completed(flue, "flue-py "))
    assert completed(flue, "flue-py tr") == ["tree"]
    assert "--depth" in completed(flue, "flue-py tree --d")
    assert completed(flue, "flue-py import pi") == ["pi", "pi-sqlite"]
    assert completed(flue, "flue-py completion z") == ["zsh"]


def test_sessions_and_entries_are_completed_from_the_database(flue: Flue) -> None:
    session = flue.import_every_type()
    fork = flue.json("fork", session, "--key", "triage")["id"]
    assert set(completed(flue, "flue-py tree ")) == {"triage", session}
    assert completed(flue, f"flue-py tree {fork[:6]}") == [fork]
    assert completed(flue, "flue-py move tri") == ["triage"]
    assert completed(flue, "flue-py show triage m000") == ["m0000001"]
    assert completed(flue, "flue-py context triage --leaf u0000001") == ["u0000001"]
    assert completed(flue, f"flue-py --db {flue.database} tree tri") == ["triage"]


def test_of_a_very_long_session_few_entries_are_completed(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    session = flue.import_every_type()
    monkeypatch.setattr(choosing, "_TOO_MANY_TO_READ", 5)
    assert completed(flue, f"flue-py show {session} a000") == ["a0000001"]
    assert set(completed(flue, f"flue-py show {session} l0")) == {f"l000000{n}" for n in (1, 2, 3)}
    assert completed(flue, f"flue-py show {session} zz") == []


def test_completion_imports_nothing_heavy(flue: Flue) -> None:
    session = flue.import_every_type()
    code = (
        "import sys\n"
        "from flue_py.cli import main\n"
        "try:\n"
        "    main(prog_name='flue-py')\n"
        "finally:\n"
        "    heavy = ('alembic', 'pydantic', 'rich', 'sqlalchemy', 'tiktoken')\n"
        "    print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    settings = {"COMP_WORDS": f"flue-py tree {session[:4]}", "COMP_CWORD": "2", "FLUE_PY_DB": str(flue.database)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **settings, "_FLUE_PY_COMPLETE": "bash_complete"},
    )
    assert (done.stdout, done.stderr) == (f"plain,{session}\n", "[]\n")


def test_completion_says_nothing_of_a_database_it_cannot_read(flue: Flue) -> None:
    assert completed(flue, "flue-py tree x") == []
    assert not flue.database.exists()
    flue.database.write_text("no database")
    assert completed(flue, "flue-py tree x") == []
    assert completed(flue, "flue-py show nobody x") == []
    assert flue.database.read_text() == "no database"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_one_that_it_understands(shell: str, tmp_path: Path) -> None:
    script = runner().invoke(main, ["completion", shell], prog_name="flue-py").stdout
    assert f"_FLUE_PY_COMPLETE={shell}_complete" in script
    program = shutil.which(shell)
    if program is not None:
        (tmp_path / "script").write_text(script)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True, timeout=60)
    assert runner().invoke(main, ["completion", "tcsh"]).exit_code == 2


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_ends_it_quietly(flue: Flue) -> None:
    with flue_py.sync.open(flue.database) as store:
        session = store.create_session(key="long")
        session.append_messages([{"role": "user", "content": f"question {n}"} for n in range(2_000)])
    command = [*COMMAND, "--db", str(flue.database), "tree", "long", "--all", "--no-sizes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert (errors, process.returncode) == (b"", READER_GONE)


PLAIN = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


@pytest.mark.parametrize("surroundings", first(1, [{}, {"PYTHONUNBUFFERED": "1"}]), ids=str)
@inputs("arguments", [["tree"], ["export", "pi"], ["--help"]])
def test_an_output_that_is_full_is_one_line_of_error(
    flue: Flue, arguments: list[str], surroundings: dict[str, str]
) -> None:
    session = flue.import_every_type()
    named = {"tree": [session], "export": [session]}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "--db", str(flue.database), *arguments, *named.get(arguments[0], [])],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**PLAIN, **surroundings},
        )
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


def test_where_not_even_the_error_can_be_written_the_exit_code_says_so(flue: Flue) -> None:
    flue.import_every_type()
    for arguments in (["sessions"], ["tree", "nobody"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*COMMAND, "--db", str(flue.database), *arguments],
                stdout=full,
                stderr=full,
                timeout=60,
                check=False,
                env=PLAIN,
            )
        assert done.returncode == 1


@inputs(
    ("arguments", "said"),
    [
        (["log"], "Error: Missing argument 'SESSION'; see flue-py log --help"),
        (["tree", "x", "--depth", "y"], "--depth': 'y' is not a valid integer range; see flue-py tree --help"),
        (["completion"], "bash"),
        *(
            ([name, "x"], f"Error: No such command {name!r}. Did you mean {call!r}?; see flue-py --help")
            for name, call in LazyGroup.synonyms.items()
        ),
        (["dance"], "Error: No such command 'dance'; see flue-py --help"),
        (["move", "x"], "Error: name an ENTRY, or give --before-first or --turns N; see flue-py move --help"),
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_one_line_of_error_that_says_where_to_look(flue: Flue, arguments: list[str], said: str) -> None:
    result = flue.run(*arguments, code=2)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_wrong_options_before_the_command_are_told_in_one_line_and_nothing_at_all_gets_the_help() -> None:
    wrong = runner().invoke(main, ["--base", "x", "tree"], prog_name="flue-py")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1)
    assert wrong.stderr.endswith("; see flue-py --help\n")
    bare = runner().invoke(main, [], prog_name="flue-py")
    assert "The database:" in bare.stdout + bare.stderr


def test_who_interrupts_it_is_told_so(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    session = flue.import_every_type()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(choosing, "entry_sizes", interrupted)
    assert len(flue.run("tree", session, code=INTERRUPTED).stderr.splitlines()) == 1


def test_the_exit_codes_are_those_of_the_page(flue: Flue) -> None:
    named = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert named == {0, 1, 2, SOMETHING_LOST, *CODES, INTERRUPTED, READER_GONE}
    session = flue.import_every_type()
    flue.run("undo", session)
    assert flue.json("redo", session)["moved"]
    assert not flue.json("redo", session)["moved"]  # nothing to do is no error
    flue.run("tree", "nobody", code=NOT_FOUND)
    flue.run("log", code=2)


# -- bars on stderr ---------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class HeldTimer:
    """A timer whose time comes when the test says so."""

    made: list[HeldTimer] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.seconds, self.function, self.daemon = seconds, function, False
        self.made.append(self)

    def start(self) -> None:
        return

    def cancel(self) -> None:
        return


def terminal(monkeypatch: pytest.MonkeyPatch, term: str = "xterm") -> Terminal:
    """Put a terminal in the place of stderr. (No fixture: pytest puts its own there after fixtures are made.)"""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(threading, "Timer", HeldTimer)
    monkeypatch.setattr(HeldTimer, "made", [])
    monkeypatch.setenv("TERM", term)
    return shown


def test_nothing_is_shown_of_what_is_over_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    with progress.progress_bar("working", "steps") as tell:
        tell(1, 2)
    (timer,) = HeldTimer.made
    assert timer.seconds == 1
    timer.function()
    assert shown.getvalue() == ""


def test_a_bar_that_appears_late_knows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    with progress.progress_bar("working", "steps") as tell:
        tell(3, 7, "still working")
        HeldTimer.made[0].function()
        tell(4, 7)
    shown = stderr.getvalue()
    assert "still working" in shown
    assert "4/7" in shown


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_go_back_shows_no_bar(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch, term)
    with progress.progress_bar("working") as tell:
        tell(1, 2)
    assert (HeldTimer.made, shown.getvalue()) == ([], "")


def test_long_commands_have_a_bar_and_none_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flue = Flue(tmp_path)
    session = flue.import_every_type()
    commands = {
        "verifying": ["verify"],
        "backing up": ["backup", str(tmp_path / "backup.db"), "--overwrite"],
        "reading": ["tree", session],
        "deleting": ["rm", session, "--yes"],
    }
    assert {flue.run(*arguments, "--json").stderr for arguments in commands.values()} == {""}
    flue.import_every_type("--again")
    monkeypatch.setattr(progress, "is_animated", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0)
    for word, arguments in commands.items():
        result = flue.run(*arguments, "--json")
        assert word in result.stderr
        assert json.loads(result.stdout)
