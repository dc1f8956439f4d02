"""Checks that nothing was changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

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
