"""Every backend keeps the contract."""

from __future__ import annotations

from flue_py.testing.contracts import BackendContract


class TestContract(BackendContract):
    """The contract, over each backend of `conftest.KINDS`."""
