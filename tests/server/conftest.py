"""A server that the tests of a file share; each makes sessions of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.serving import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tests.server.serving import served

    with served(tmp_path_factory.mktemp("served")) as running:
        yield running
