"""The command in a real terminal: tmux draws it, and its keys are typed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.adapters.needed import is_required, needs

needs("tui", "textual", "detect_secrets")

import flue_py.sync  # noqa: E402
from tests.tui.story import KEY  # noqa: E402
from tests.values import existing  # noqa: E402

if shutil.which("tmux") is None and not is_required("tui"):
    pytest.skip("tmux is not installed", allow_module_level=True)

_LOOKS = 1_200
COMMAND = "from flue_py.cli import main; main()"


class Terminal:
    """A tmux server of its own, with one terminal of 80 x 24 cells."""

    def __init__(self, folder: Path) -> None:
        # The name of a socket may have some hundred characters at most.
        self._place = TemporaryDirectory(prefix="flue-tmux-")
        self._socket = Path(self._place.name) / "s"
        self._env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(folder)}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh")
        self.tmux("set-option", "-g", "status", "off")

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments], env=self._env, check=True, capture_output=True, text=True
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def sees(self, text: str) -> str:
        for _ in range(_LOOKS):
            if text in (screen := self.screen):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{text!r} never came:\n{self.screen}")

    def lacks(self, text: str) -> None:
        for _ in range(_LOOKS):
            if text not in self.screen:
                return
            time.sleep(0.05)
        raise AssertionError(f"{text!r} never went:\n{self.screen}")

    def close(self) -> None:
        self.tmux("kill-server")
        self._place.cleanup()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


def run(terminal: Terminal, *arguments: str, before: str = "") -> None:
    """Type the command. What it ends with is shown behind ``ended``."""
    shown = " ".join(f"'{each}'" for each in (sys.executable, "-c", COMMAND, *arguments))
    terminal.type(f"{before} {shown}; echo ended $?")
    terminal.press("Enter")


def test_one_looks_edits_and_leaves_with_the_keyboard_alone(story: Path, terminal: Terminal) -> None:
    run(terminal, "--db", str(story), "browse")
    terminal.sees("4 sessions")
    terminal.type("why is")
    terminal.sees("1 session of 4")
    terminal.press("Enter")
    terminal.sees("← leaf")
    terminal.press("Home", "Down", "Down", "Down")
    terminal.sees("it waits for a clock")
    terminal.press("m")
    terminal.sees("this is the leaf now")
    terminal.press("Down", "e")
    terminal.sees("Change the prompt")
    terminal.type(" Today.")
    terminal.press("C-s")
    terminal.sees("the leaf of a new branch")
    assert KEY not in terminal.screen
    terminal.press("Escape")
    terminal.sees("esc Clear/quit")
    terminal.press("Escape")
    terminal.sees("4 sessions · 1 task")
    terminal.press("Escape")
    terminal.sees("ended 0")
    with flue_py.sync.open(story) as store:
        (info,) = store.list_sessions(title="Why is the build").sessions
        session = existing(store.get_session(info.id))
        assert session.get_active_path()[-1].fields["content"] == "Fix it. Today."
        assert not store.verify().problems


@pytest.mark.parametrize("before", ["", "NO_COLOR=1", "TERM=dumb", "LANG=C LC_ALL=C"])
def test_it_begins_at_a_session_in_any_terminal(before: str, story: Path, terminal: Terminal) -> None:
    with flue_py.sync.open(story) as store:
        (info,) = store.list_sessions(title="Why is the build").sessions
    run(terminal, "--db", str(story), "browse", info.id[:8], before=before)
    terminal.sees("Is it green now?")
    terminal.press("C-c")
    terminal.sees("ended 0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(
    number: signal.Signals, story: Path, terminal: Terminal
) -> None:
    run(terminal, "--db", str(story), "browse")
    terminal.sees("4 sessions")
    shell = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()
    os.kill(int(children[0]), number)
    terminal.sees(f"ended {128 + number}")
    state = terminal.tmux("display-message", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}")
    assert state.split() == ["0", "0", "1"]


def test_what_would_act_on_a_terminal_does_not(tmp_path: Path, terminal: Terminal) -> None:
    path, evil = tmp_path / "evil.db", "\x1b]0;PWNED\x07\x1b[2J\x9b2J\u202eevil"
    with flue_py.sync.open(path) as store:
        session = store.create_session(title=f"evil {evil}", cwd=f"/srv/{evil}")
        entry = session.append_message({"role": "user", "content": f"say {evil} [bold]x[/bold] [@click=app.quit]y[/]"})
        session.marks.set_label(entry.entry_id, f"label {evil}")
    run(terminal, "--db", str(path), "browse")
    terminal.sees("1 session")
    terminal.press("Enter")
    terminal.sees("[@click=app.quit]y[/]")
    for key, text in (
        ("l", "Label of this entry"),
        ("e", "Change the prompt"),
        ("f", "Title of the fork"),
        ("D", "cannot be undone"),
    ):
        terminal.press(key)
        terminal.sees(text)
        terminal.press("Escape")
        terminal.lacks(text)
    terminal.press("t", "=", "b", "/")
    terminal.sees("find in this session")
    terminal.press("C-c")
    terminal.sees("ended 0")
    assert "PWNED" not in terminal.tmux("display-message", "-p", "#{pane_title}")
