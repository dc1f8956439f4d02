"""Which facets of the contract depend on who runs a transaction, and not on what is done in it.

A file is written by the same operations and the same statements whoever runs them. So the whole contract is kept on
memory, on a file and on PostgreSQL, and these facets of it on everything else that runs transactions on a file;
`test_whole_contract` keeps all of it there, with --run-slow.
"""

from __future__ import annotations

import pytest

from flue_py.testing.contracts import NewStore
from flue_py.testing.contracts.append import AppendContract
from flue_py.testing.contracts.atomic import AtomicContract
from flue_py.testing.contracts.attachments import AttachmentContract
from flue_py.testing.contracts.conflicts import ConflictContract
from flue_py.testing.contracts.documents import DocumentContract
from flue_py.testing.contracts.idempotency import IdempotencyContract
from flue_py.testing.contracts.listing import ListingContract
from flue_py.testing.contracts.moves import MoveContract
from flue_py.testing.contracts.reads import ReadContract
from flue_py.testing.contracts.usage_ledger import LedgerContract


@pytest.mark.anyio
class RunnerContract(
    NewStore, AppendContract, AtomicContract, ConflictContract, IdempotencyContract, MoveContract, ReadContract
):
    """What waits for others, what is done wholly or not at all, and what every program does."""


@pytest.mark.anyio
class EngineContract(NewStore, AttachmentContract, DocumentContract, LedgerContract, ListingContract):
    """What SQLAlchemy is given bytes by beyond that, and statements that are put together for each call.

    That it makes of every other statement what the driver makes of it, `test_statements` shows.
    """
