"""Stores to try sessions on: in memory, in an SQLite file, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

import flue_py
from tests.files import new_store_file
from tests.postgres import KeptEngines, NewDatabase

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[flue_py.Store]]


# What a database has to do for a session is in the contract of stores, which runs on PostgreSQL each time. A store in
# memory runs the same statements as one in a file: tests of handles that depend on who runs them are also run there.
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)]
also_in_memory = pytest.mark.parametrize("target", ["memory", *DATABASES], indirect=True)


@pytest.fixture(params=DATABASES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        return new_database()
    return ":memory:" if request.param == "memory" else str(new_store_file(tmp_path / "sessions.db"))


@pytest.fixture
def opening(target: str, request: pytest.FixtureRequest) -> Opening:
    if not target.startswith("postgresql"):
        return partial(flue_py.open, target, durability="normal")
    kept: KeptEngines = request.getfixturevalue("kept_engines")
    return partial(flue_py.open, engine=kept.of(target), durability="normal")


@pytest.fixture
async def store(opening: Opening, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with opening() as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: flue_py.Store) -> flue_py.Session:
    return await store.create_session(key="triage", scope="user-7")
