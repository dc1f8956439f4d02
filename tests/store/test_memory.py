"""A store in memory that nobody closes, and temporary folders that nobody removed."""

from __future__ import annotations

import fcntl
import gc
import tempfile
import weakref
from pathlib import Path

import pytest

from flue_py.core.sessions import NewSession
from flue_py.db.files import temporary_folder
from flue_py.db.sqlite.file import open_file
from flue_py.db.sqlite.runner import MemoryRunner, open_memory
from flue_py.errors import InvalidArgument
from tests.sources import counted_sources


async def test_a_store_in_memory_that_is_dropped_goes_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    runners: list[weakref.ref[MemoryRunner]] = []
    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    backend = open_memory(counted_sources())
    await backend.create_session(NewSession())
    runners.append(weakref.ref(backend._runner._runner))  # type: ignore[arg-type]
    del backend
    gc.collect()

    assert [runner() for runner in runners] == [None]
    assert unraisable == []


async def test_a_store_in_memory_has_no_file_to_back_up(tmp_path: Path) -> None:
    backend = open_memory(counted_sources())
    with pytest.raises(InvalidArgument, match="there is nothing to back up"):
        await backend.backup(tmp_path / "copy.db", overwrite=False, verified=False, progress=None)
    await backend.close()


async def test_a_store_in_memory_has_the_tables_and_pages_of_a_file(tmp_path: Path) -> None:
    runner = MemoryRunner()
    file = open_file(tmp_path / "store.db", "normal", 1.0)
    for question in (
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid",
        "SELECT * FROM flue_store ORDER BY name",
        "PRAGMA max_page_count",
        "PRAGMA page_size",
        "PRAGMA integrity_check",
    ):
        in_memory, in_file = (connection.execute(question).fetchall() for connection in (runner._connection, file))
        assert in_memory == in_file, question
    file.close()
    await runner.close()


# -- Temporary folders: removed at the end, and by the next process where the one that made them was killed -------


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
    assert sorted(path.name for path in parent.iterdir()) == ["flue-py-bundle-strange", "flue-py-bundle-used", "other"]
