"""A store in memory that nobody closes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from flue_py.core.sessions import NewSession
from flue_py.db.sqlite.file import open_file
from flue_py.db.sqlite.runner import MemoryRunner, open_memory
from flue_py.errors import InvalidArgument
from tests.sources import counted_sources


@pytest.mark.anyio
async def test_a_store_in_memory_that_is_dropped_goes_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    runners: list[weakref.ref[MemoryRunner]] = []
    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    backend = open_memory(counted_sources())
    await backend.create_session(NewSession())
    runners.append(weakref.ref(backend._runner))  # type: ignore[arg-type]
    del backend
    gc.collect()

    assert [runner() for runner in runners] == [None]
    assert unraisable == []


@pytest.mark.anyio
async def test_a_store_in_memory_has_no_file_to_back_up(tmp_path: Path) -> None:
    backend = open_memory(counted_sources())
    with pytest.raises(InvalidArgument, match="there is nothing to back up"):
        await backend.backup(tmp_path / "copy.db", overwrite=False, verified=False, progress=None)
    await backend.close()


@pytest.mark.anyio
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
