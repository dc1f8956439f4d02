"""What every test of the adapter shares: the stores it is run on, and the warnings of the framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.needed import needs
from tests.postgres import NewDatabase

needs("adk", "google.adk")

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(params=STORES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, on every database."""
    if request.param == "memory":
        return ":memory:"
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    new_database: NewDatabase = request.getfixturevalue("new_database")
    return new_database()


@pytest.fixture(params=STORES[1:])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, where several may open the store."""
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    new_database: Callable[[], str] = request.getfixturevalue("new_database")
    return new_database()
