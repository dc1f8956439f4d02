"""The command in a real terminal: tmux draws it, and its keys are typed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.needed import is_required, needs

needs("tui", "textual", "detect_secrets")

import flue_py.sync  # noqa: E402
from tests.terminal import Terminal, run  # noqa: E402
from tests.tui.story import KEY  # noqa: E402
from tests.values import existing  # noqa: E402

if shutil.which("tmux") is None and not is_required("tui"):
    pytest.skip("tmux is not installed", allow_module_level=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


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
    terminal.sees("4 sessions · 1 more")
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
    os.kill(terminal.child(), number)
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
