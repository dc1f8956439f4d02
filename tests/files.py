"""SQLite files with an empty store in them, for tests that are not about how a store is made."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import flue_py
from flue_py.db.sqlite.file import create_private


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        with flue_py.sync.open(path):
            pass
        assert [beside.name for beside in Path(folder).iterdir()] == [path.name], "what is in a log would be lost"
        return path.read_bytes()


def new_store_file(path: Path) -> Path:
    """Make a file with a store without sessions; return its path. Opening it takes a third of what a new one takes."""
    create_private(path)
    path.write_bytes(_empty_store())
    return path
