"""Every backend keeps the contract."""

from __future__ import annotations

import pytest

from flue_py.testing.contracts import BackendContract
from flue_py.testing.sources import OpenBackend


@pytest.fixture
def open_postgres(open_kept_postgres: OpenBackend) -> OpenBackend:
    return open_kept_postgres


class TestContract(BackendContract):
    """The contract, over each backend of `conftest.KINDS`."""
