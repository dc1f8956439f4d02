"""The framework's own conformance kit, whole, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.adapters.needed import needs

needs("langgraph", "langgraph.graph", "langgraph.checkpoint.conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

import flue_py
from flue_py.adapters.langgraph import FlueSaver
from tests.postgres import NewDatabase


def passed(target: str) -> dict[str, int]:
    """Return how many tests of each capability passed; fail with those that did not."""

    @checkpointer_test(name="FlueSaver")
    async def saver() -> AsyncGenerator[FlueSaver, None]:
        async with FlueSaver.from_conn_string(target) as opened:
            yield opened

    report = asyncio.run(validate(saver))
    results = dict(report.results)
    assert [failure for result in results.values() for failure in result.failures or []] == []
    with flue_py.sync.open(target) as store:
        assert store.verify().problems == []
    return {name: result.tests_passed for name, result in results.items()}


def test_the_kit_passes_on_sqlite(tmp_path: Path) -> None:
    results = passed(str(tmp_path / "threads.db"))
    assert set(results) == {capability.value for capability in Capability}
    assert sum(results.values()) >= 81


@pytest.mark.usefixtures("new_database")
def test_the_kit_passes_on_postgres(new_database: NewDatabase) -> None:
    assert sum(passed(new_database()).values()) >= 81
