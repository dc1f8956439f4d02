"""Stores to try sessions on: in memory, in an SQLite file, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flue_py
from tests.postgres import NewDatabase


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_store_database")
        return new_database()
    return ":memory:" if request.param == "memory" else str(tmp_path / "sessions.db")


@pytest.fixture
async def store(target: str, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(target, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: flue_py.Store) -> flue_py.Session:
    return await store.create_session(key="triage", scope="user-7")
