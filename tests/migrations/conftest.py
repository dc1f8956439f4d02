"""What the tests of migrations share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migrations.later import later_version


@pytest.fixture
def later(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The later version, in this process and for the whole test; return the folder with its files."""
    folder = tmp_path_factory.mktemp("later") / "migrations"
    with later_version(folder):
        yield folder
