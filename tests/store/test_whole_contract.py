"""The whole contract, where `facets` has some of it. Collected with --run-slow only (see `conftest`)."""

from __future__ import annotations

import pytest

from flue_py.db.backend import Backend
from flue_py.db.runner import Sources
from flue_py.db.sqlite.runner import open_memory
from tests.contract import BackendContract, StoreCopyContract
from tests.sources import OpenBackend
from tests.store.test_contract_on_trio import OnTrio
from tests.store.test_postgres_partitions import Partitioned, partitioned_databases, partitioned_engines

__all__ = ["partitioned_databases", "partitioned_engines"]


@pytest.mark.parametrize("kind", ["memory", "caller", "aiosqlite"], indirect=True)
class TestContract(BackendContract):
    """The contract, in memory, and over a file that something else than its own thread writes."""


class TestContractOnTrio(OnTrio, BackendContract):
    """The contract, over a file."""


class TestCopyContractOnTrio(OnTrio, StoreCopyContract):
    """The contract of copying, from file to file."""


class TestContractInMemoryOnTrio(OnTrio, BackendContract):
    """The contract, in memory."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        async def open_it(sources: Sources) -> Backend:
            return open_memory(sources)

        return open_it


class TestPartitionedContract(Partitioned, BackendContract):
    """The contract, on a store whose history is partitioned."""


class TestStoreCopyBetweenPartitions(Partitioned, StoreCopyContract):
    """Copying between partitioned stores."""


@pytest.mark.parametrize("kind", ["sqlite", "caller", "aiosqlite", "postgres"], indirect=True)
class TestStoreCopy(StoreCopyContract):
    """Copying between two stores of one kind."""
