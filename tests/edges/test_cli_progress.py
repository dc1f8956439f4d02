"""Bars on stderr: only on a terminal, and only for what takes longer than a second."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flue_py.cli import command as progress
from tests.edges.cli_runs import Flue


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
