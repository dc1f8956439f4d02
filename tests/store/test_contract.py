"""Every backend keeps the contract."""

from __future__ import annotations

import pytest

from tests.contract import BackendContract
from tests.sources import OpenBackend
from tests.store.conftest import KINDS
from tests.store.facets import RunnerContract


@pytest.fixture
def open_postgres(open_kept_postgres: OpenBackend) -> OpenBackend:
    return open_kept_postgres


# CI tries it on PostgreSQL with the lowest versions.
@pytest.mark.thorough(but=["sqlite"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
class TestContract(BackendContract):
    """The contract, over each database."""


@pytest.mark.parametrize("kind", ["memory"], indirect=True)
class TestContractInMemory(RunnerContract):
    """What of it depends on a database in memory."""


@pytest.mark.parametrize("kind", ["caller"], indirect=True)
class TestContractOnCaller(RunnerContract):
    """What of it depends on the thread that asks."""


@pytest.mark.parametrize("kind", ["aiosqlite"], indirect=True)
class TestContractOnEngine(RunnerContract):
    """What of it depends on the thread that SQLAlchemy's driver asks."""


def test_every_kind_of_backend_keeps_a_contract() -> None:
    kinds = [
        kind
        for contract in (TestContract, TestContractInMemory, TestContractOnCaller, TestContractOnEngine)
        for mark in contract.pytestmark
        if mark.name == "parametrize"
        for kind in mark.args[1]
    ]
    assert sorted(kinds) == sorted(KINDS)
