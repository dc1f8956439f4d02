"""Checks that nothing was changed, and that a window says what the ledger says."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from flue_py.core.ledger import LedgerQuery
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.core.usage import Paid
from flue_py.db.backend import Backend
from flue_py.db.ops import documents
from flue_py.db.ops.seals import all_anew
from flue_py.db.sqlite.file import SqliteTransaction
from tests.samples import StoreSnapshot, store_snapshot

E = TypeVar("E", bound=Exception)


def give_heads(path: Path) -> None:
    """Give the sessions of a file the heads that their rows have, after a test has written to them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tx = SqliteTransaction(connection)
        all_anew(tx)
        documents.seal_anew(tx)


async def raises(
    error: type[E] | tuple[type[E], ...], call: Awaitable[object], *, match: str | None = None
) -> pytest.ExceptionInfo[E]:
    """Assert that a call that is waited for raises an error, in words that match, and return it."""
    with pytest.raises(error, match=match) as caught:
        await call
    return caught


@asynccontextmanager
async def unchanged(backend: Backend) -> AsyncIterator[None]:
    """Assert that what happens inside changes nothing that the store tells."""
    before = await store_snapshot(backend)
    yield
    assert await store_snapshot(backend) == before


@contextmanager
def naming(*row: object) -> Iterator[None]:
    """Have what fails inside say which row of a table it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"row: {row}")
        raise


class Refusals:
    """Calls that a store refuses one after another, none of which changes anything that it tells.

    What it tells after one is what it told before the next, so each call takes one look at the store, not two.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._before: StoreSnapshot | None = None

    @asynccontextmanager
    async def refused(self, error: type[E]) -> AsyncIterator[pytest.ExceptionInfo[E]]:
        """Assert that what happens inside raises ``error``, and that the store tells what it told before the first."""
        if self._before is None:
            self._before = await store_snapshot(self._backend)
        with pytest.raises(error) as caught:
            yield caught
        assert await store_snapshot(self._backend) == self._before

    async def of(self, error: type[E], call: Awaitable[object]) -> pytest.ExceptionInfo[E]:
        """Assert as `refused` does of one call, and return the error."""
        async with self.refused(error) as caught:
            await call
        return caught


def refused(backend: Backend, error: type[E]) -> AbstractAsyncContextManager[pytest.ExceptionInfo[E]]:
    """Assert that what happens inside raises ``error`` and changes nothing that the store tells."""
    return Refusals(backend).refused(error)


async def refusal(backend: Backend, error: type[E], call: Awaitable[object]) -> pytest.ExceptionInfo[E]:
    """Assert as `refused` does of one call, and return the error."""
    return await Refusals(backend).of(error, call)


async def check_window(backend: Backend, session_id: str, since: str | None, leaf: LeafChoice = STORED) -> None:
    """Check that a usage window, which is a difference of two rows, says what the ledger's rows of that path sum to."""
    window = await backend.read_usage(session_id, since, leaf=leaf)
    report = await backend.read_ledger(LedgerQuery(session_id, on_path=True, leaf=leaf, since=since))
    total = report.total
    sums = (total.calls, total.unpriced_calls, total.unknown_calls, total.total_tokens, total.picodollars)
    assert (window.on_path, window.paid, window.cost) == (report.on_path, Paid(*sums), total.cost)
