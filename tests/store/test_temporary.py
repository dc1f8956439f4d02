"""Temporary folders: removed at the end, and by the next process where the one that made them was killed."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest

from flue_py.db.files import temporary_folder


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_and_nothing_else(parent: Path) -> None:
    for name in ("flue-py-bundle-dead", "flue-py-bundle-used", "flue-py-bundle-strange", "other"):
        (parent / name).mkdir()
        (parent / name / "bundle.db").write_text("x")
        if name != "flue-py-bundle-strange":
            (parent / name / ".in-use").touch()
    with (parent / "flue-py-bundle-used" / ".in-use").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with temporary_folder() as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            with temporary_folder() as other:
                assert other != folder
            assert folder.is_dir()
            assert not other.exists()
    assert sorted(path.name for path in parent.iterdir()) == [
        "flue-py-bundle-strange",
        "flue-py-bundle-used",
        "other",
    ]
