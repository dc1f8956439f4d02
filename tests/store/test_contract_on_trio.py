"""A file keeps the contract under trio, too: what depends on who runs a transaction."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from flue_py.db.backend import Backend
from flue_py.db.runner import Sources
from flue_py.db.sqlite.runner import open_sqlite
from tests.files import new_store_file
from tests.sources import OpenBackend
from tests.store.facets import RunnerContract


class OnTrio:
    """Tests under trio, over a file."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        pytest.importorskip("trio")
        return "trio"

    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        async def open_it(sources: Sources) -> Backend:
            return await open_sqlite(
                new_store_file(tmp_path / f"{uuid4().hex}.db"), sources=sources, durability="normal"
            )

        return open_it


class TestContract(OnTrio, RunnerContract):
    """Some of the contract, over a file."""
