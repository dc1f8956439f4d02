"""Programs that tests run in a process of their own, also as another user."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.sqlite_batches import GUARD_SECONDS

NOBODY = 65534
AS_NOBODY = f"""
import os
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
assert os.geteuid() != 0
"""
"""Gives up all rights. What is imported after it may be where only root can read, so use everything once before."""


def run_script(script: str, *args: object, timeout: float = GUARD_SECONDS) -> list[str]:
    """Run a program in a process of its own, which must end well and without a word on stderr; return its lines."""
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], check=False, capture_output=True, text=True, timeout=timeout
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    return ended.stdout.splitlines()


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Make a folder that everybody may look into, and remove it; those that pytest makes are their owner's."""
    folder = Path(tempfile.mkdtemp(prefix="flue-for-all-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        for each in (folder, *folder.glob("*/")):
            each.chmod(0o755)
        shutil.rmtree(folder)
