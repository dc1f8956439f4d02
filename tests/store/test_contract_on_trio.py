"""A file keeps the contract under trio, too: what waits for others, and what every program does.

A transaction does not know which event loop asked for it, so the rest is left to `test_whole_contract_on_trio`.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from flue_py.store.backend import Backend
from flue_py.store.seam import Sources
from flue_py.store.sqlite.runner import open_sqlite
from flue_py.testing.contracts import NewStore
from flue_py.testing.contracts.append import AppendContract
from flue_py.testing.contracts.atomic import AtomicContract
from flue_py.testing.contracts.conflicts import ConflictContract
from flue_py.testing.contracts.idempotency import IdempotencyContract
from flue_py.testing.contracts.moves import MoveContract
from flue_py.testing.contracts.reads import ReadContract
from flue_py.testing.sources import OpenBackend


class OnTrio:
    """Tests under trio, over a file."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        pytest.importorskip("trio")
        return "trio"

    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> OpenBackend:
        async def open_it(sources: Sources) -> Backend:
            return await open_sqlite(tmp_path / f"{uuid4().hex}.db", sources=sources, durability="normal")

        return open_it


@pytest.mark.anyio
class TestContract(
    OnTrio,
    NewStore,
    AppendContract,
    ConflictContract,
    AtomicContract,
    IdempotencyContract,
    MoveContract,
    ReadContract,
):
    """Some of the contract, over a file."""
