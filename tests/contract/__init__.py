"""The contract of a store: every promise of `flue_py.db.backend.Backend` as a test.

Copying from store to store has a contract of its own, whose tests need two stores each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flue_py.db.backend import Backend
from tests.contract import append, sessions
from tests.contract.atomic import AtomicContract, BadInputContract, SizeContract
from tests.contract.budgets import BudgetContract
from tests.contract.copying import CatchUpContract, CopyContract
from tests.contract.deletion import DeletionContract, TaskContract
from tests.contract.documents import ArtifactContract, AttachmentContract, DocumentContract
from tests.contract.heads import HeadContract
from tests.contract.marks import ForkContract, ForkMarkContract, MarkContract
from tests.contract.moves import LogContract, MergingContract, MoveContract, NavigationContract, UndoContract
from tests.contract.reads import EndContract, EntryContract, ReadContract
from tests.contract.redaction import RedactionContract
from tests.contract.usage import EntryCostContract, LedgerContract, UsageContract
from tests.sources import OpenBackend, counted_sources


@asynccontextmanager
async def _verified(backend: Backend) -> AsyncIterator[Backend]:
    yield backend
    try:
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


class NewStore:
    """A new store for each test."""

    @pytest.fixture
    async def backend(self, open_backend: OpenBackend) -> AsyncIterator[Backend]:
        """A new store with ids that count up and a clock that advances. What it holds at the end is consistent."""
        async with _verified(await open_backend(counted_sources())) as backend:
            yield backend


@pytest.mark.anyio
class BackendContract(
    NewStore,
    sessions.SessionContract,
    sessions.SettingsContract,
    sessions.ListingContract,
    sessions.ActivityContract,
    append.AppendContract,
    append.ImportContract,
    append.ConflictContract,
    append.ExpectationContract,
    AtomicContract,
    append.IdempotencyContract,
    MoveContract,
    NavigationContract,
    UndoContract,
    LogContract,
    MarkContract,
    ForkContract,
    ForkMarkContract,
    MergingContract,
    TaskContract,
    DeletionContract,
    RedactionContract,
    ReadContract,
    EndContract,
    EntryContract,
    sessions.ReusedIdContract,
    HeadContract,
    UsageContract,
    BudgetContract,
    LedgerContract,
    EntryCostContract,
    BadInputContract,
    SizeContract,
    AttachmentContract,
    ArtifactContract,
    DocumentContract,
):
    """Subclass it, and give it a fixture ``open_backend`` that returns an `OpenBackend`."""


@pytest.mark.anyio
class StoreCopyContract(NewStore, CopyContract, CatchUpContract):
    """What `Backend` says of copying from store to store. Subclass it likewise."""

    @pytest.fixture
    async def other(self, open_backend: OpenBackend) -> AsyncIterator[Backend]:
        """Another new store, to copy into."""
        async with _verified(await open_backend(counted_sources())) as backend:
            yield backend
