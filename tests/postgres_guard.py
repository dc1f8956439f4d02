"""Ends a PostgreSQL server and removes its folder once the process that made it is gone, however it went.

A program of its own: its argument is the folder, its input a pipe that nobody writes to and that ends with the
process at the other end. It imports nothing of this library, so that it starts at once and from anywhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

CLUSTER = "data"
"""The folder of the cluster, in the folder of the server."""

_GRACE_SECONDS = 20.0
_LOOK_SECONDS = 0.02


def end_server(folder: Path) -> None:
    """End the server of a folder, where one runs. Returns when it is gone, or does not go."""
    # The server writes this file when it starts, and removes it as the very last thing it does.
    pid_file = folder / CLUSTER / "postmaster.pid"
    deadline = time.monotonic() + _GRACE_SECONDS
    with contextlib.suppress(OSError, ValueError, IndexError):
        os.kill(int(pid_file.read_text(encoding="ascii").split()[0]), signal.SIGQUIT)
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def remove_folder(folder: Path) -> None:
    """Remove a folder in which programs that were told to end may still write a file or two."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_server(Path(sys.argv[1]))
    remove_folder(Path(sys.argv[1]))
