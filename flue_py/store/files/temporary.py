"""Temporary folders. Making one removes those that killed processes have left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "flue-py-bundle-"
_LOCK = ".in-use"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for its owner alone, and remove it at the end. A lock on a file in it says that it is in use.

    Raises OSError if it cannot be made.
    """
    _remove_left_behind(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        number = os.open(folder / f"{_LOCK}.new", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # if files cannot be locked, nobody can tell that it was left behind
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It gets the name that others look for only now, so that nobody sees it without its lock.
                (folder / f"{_LOCK}.new").rename(folder / _LOCK)
            yield folder
        finally:
            os.close(number)


def _remove_left_behind(parent: Path) -> None:
    """Remove the folders of this user whose lock nobody holds any more."""
    with contextlib.suppress(OSError):
        for folder in [path for path in parent.iterdir() if path.name.startswith(_PREFIX)]:
            with contextlib.suppress(OSError):
                if folder.lstat().st_uid != os.getuid():
                    continue
                number = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(number)
