"""The command line on a database of its own, for each test that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.cli_runs import Flue


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """Return the command line on a new database."""
    return Flue(tmp_path)
