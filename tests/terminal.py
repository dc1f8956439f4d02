"""A command of ours in a real terminal: tmux draws it, and its keys are typed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

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

    def child(self) -> int:
        """Return the process that the shell runs."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()
        return int(children[0])


def run(terminal: Terminal, *arguments: str, before: str = "") -> None:
    """Type the command. What it ends with is shown behind ``ended``."""
    shown = " ".join(f"'{each}'" for each in (sys.executable, "-c", COMMAND, *arguments))
    terminal.type(f"{before} {shown}; echo ended $?")
    terminal.press("Enter")
