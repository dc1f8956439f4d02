"""The database that the browser is shown on."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.tui.story import tell


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "sessions.db"
    asyncio.run(tell(path))
    return path


@pytest.fixture
def story(told: Path, tmp_path: Path) -> Path:
    """A copy of the database, for one test."""
    return Path(shutil.copy(told, tmp_path / "sessions.db"))
