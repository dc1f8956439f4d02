"""The whole contract, where `facets` has some of it. Collected with --run-slow only (see `conftest`)."""

from __future__ import annotations

import pytest

from flue_py.db.backend import Backend
from flue_py.db.runner import Sources
from flue_py.db.sqlite.runner import open_memory
from tests.contract import BackendContract, StoreCopyContract
from tests.sources import OpenBackend
from tests.store.test_contract_on_trio import OnTrio


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
