"""The contract of a store: every promise of `flue_py.store.backend.Backend` as a test.

Copying from store to store has a contract of its own, whose tests need two stores each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flue_py.store.backend import Backend
from flue_py.testing.contracts.activity import ActivityContract
from flue_py.testing.contracts.append import AppendContract
from flue_py.testing.contracts.artifacts import ArtifactContract
from flue_py.testing.contracts.atomic import AtomicContract
from flue_py.testing.contracts.attachments import AttachmentContract
from flue_py.testing.contracts.bad_input import BadInputContract
from flue_py.testing.contracts.budgets import BudgetContract
from flue_py.testing.contracts.catching_up import CatchUpContract
from flue_py.testing.contracts.conflicts import ConflictContract
from flue_py.testing.contracts.copying import CopyContract
from flue_py.testing.contracts.deletion import DeletionContract
from flue_py.testing.contracts.documents import DocumentContract
from flue_py.testing.contracts.ends import EndContract
from flue_py.testing.contracts.entries import EntryContract
from flue_py.testing.contracts.entry_costs import EntryCostContract
from flue_py.testing.contracts.expectations import ExpectationContract
from flue_py.testing.contracts.fork_marks import ForkMarkContract
from flue_py.testing.contracts.forks import ForkContract
from flue_py.testing.contracts.idempotency import IdempotencyContract
from flue_py.testing.contracts.imports import ImportContract
from flue_py.testing.contracts.listing import ListingContract
from flue_py.testing.contracts.log import LogContract
from flue_py.testing.contracts.marks import MarkContract
from flue_py.testing.contracts.merging import MergingContract
from flue_py.testing.contracts.moves import MoveContract
from flue_py.testing.contracts.navigation import NavigationContract
from flue_py.testing.contracts.reads import ReadContract
from flue_py.testing.contracts.reused_ids import ReusedIdContract
from flue_py.testing.contracts.sessions import SessionContract
from flue_py.testing.contracts.settings import SettingsContract
from flue_py.testing.contracts.size import SizeContract
from flue_py.testing.contracts.tasks import TaskContract
from flue_py.testing.contracts.undo import UndoContract
from flue_py.testing.contracts.usage import UsageContract
from flue_py.testing.contracts.usage_ledger import LedgerContract
from flue_py.testing.sources import OpenBackend, counted_sources


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
    SessionContract,
    SettingsContract,
    ListingContract,
    ActivityContract,
    AppendContract,
    ImportContract,
    ConflictContract,
    ExpectationContract,
    AtomicContract,
    IdempotencyContract,
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
    ReadContract,
    EndContract,
    EntryContract,
    ReusedIdContract,
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
