"""What every test of the adapter shares: the stores it is run on, and the warnings of the framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.needed import needs
from tests.postgres import NewDatabase

needs("adk", "google.adk")


def _target(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "memory":
        return ":memory:"
    if request.param == "sqlite":
        return str(folder / "sessions.db")
    new_database: NewDatabase = request.getfixturevalue("new_database")
    return new_database()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, for what does not depend on the database."""
    return _target(request, tmp_path)


@pytest.fixture(params=["memory", "postgres"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store on each database, for values that it has to hold."""
    return _target(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, where several may open the store, from any thread."""
    return _target(request, tmp_path)
