"""Checks that nothing was changed, and that a window says what the ledger says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from flue_py.core.ledger import LedgerQuery
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.core.usage import Paid
from flue_py.store.backend import Backend
from flue_py.testing.samples import store_snapshot

E = TypeVar("E", bound=Exception)


@asynccontextmanager
async def unchanged(backend: Backend) -> AsyncIterator[None]:
    """Assert that what happens inside changes nothing that the store tells."""
    before = await store_snapshot(backend)
    yield
    assert await store_snapshot(backend) == before


@asynccontextmanager
async def refused(backend: Backend, error: type[E]) -> AsyncIterator[pytest.ExceptionInfo[E]]:
    """Assert that what happens inside raises ``error`` and changes nothing that the store tells."""
    before = await store_snapshot(backend)
    with pytest.raises(error) as caught:
        yield caught
    assert await store_snapshot(backend) == before


async def check_window(backend: Backend, session_id: str, since: str | None, leaf: LeafChoice = STORED) -> None:
    """Check that a usage window, which is a difference of two rows, says what the ledger's rows of that path sum to."""
    window = await backend.read_usage(session_id, since, leaf=leaf)
    report = await backend.read_ledger(LedgerQuery(session_id, on_path=True, leaf=leaf, since=since))
    total = report.total
    sums = (total.calls, total.unpriced_calls, total.unknown_calls, total.total_tokens, total.picodollars)
    assert (window.on_path, window.paid, window.cost) == (report.on_path, Paid(*sums), total.cost)
