"""Stores to try sessions on: in memory, and in an SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flue_py


@pytest.fixture(params=["memory", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == "memory" else str(tmp_path / "sessions.db")


@pytest.fixture
async def store(target: str, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(target, durability="normal") as opened:
        yield opened
        assert (await opened.verify()).problems == []


@pytest.fixture
async def session(store: flue_py.Store) -> flue_py.Session:
    return await store.create_session(key="triage", scope="user-7")
