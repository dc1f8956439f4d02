"""The store of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flue_py


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(tmp_path / "a.db") as opened:
        yield opened
