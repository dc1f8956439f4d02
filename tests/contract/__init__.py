"""The contract of a store: every promise of `flue_py.db.backend.Backend` as a test.

Copying from store to store has a contract of its own, whose tests need two stores each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flue_py.db.backend import Backend
from tests.contract.activity import ActivityContract
from tests.contract.append import AppendContract
from tests.contract.artifacts import ArtifactContract
from tests.contract.atomic import AtomicContract
from tests.contract.attachments import AttachmentContract
from tests.contract.bad_input import BadInputContract
from tests.contract.budgets import BudgetContract
from tests.contract.catching_up import CatchUpContract
from tests.contract.conflicts import ConflictContract
from tests.contract.copying import CopyContract
from tests.contract.deletion import DeletionContract
from tests.contract.documents import DocumentContract
from tests.contract.ends import EndContract
from tests.contract.entries import EntryContract
from tests.contract.entry_costs import EntryCostContract
from tests.contract.expectations import ExpectationContract
from tests.contract.fork_marks import ForkMarkContract
from tests.contract.forks import ForkContract
from tests.contract.idempotency import IdempotencyContract
from tests.contract.imports import ImportContract
from tests.contract.listing import ListingContract
from tests.contract.log import LogContract
from tests.contract.marks import MarkContract
from tests.contract.merging import MergingContract
from tests.contract.moves import MoveContract
from tests.contract.navigation import NavigationContract
from tests.contract.reads import ReadContract
from tests.contract.reused_ids import ReusedIdContract
from tests.contract.sessions import SessionContract
from tests.contract.settings import SettingsContract
from tests.contract.size import SizeContract
from tests.contract.tasks import TaskContract
from tests.contract.undo import UndoContract
from tests.contract.usage import UsageContract
from tests.contract.usage_ledger import LedgerContract
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
