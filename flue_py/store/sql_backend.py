"""The SQL backend: each promise of `Backend` as one transaction of one operation, run by a runner.

The operations (`appending`, `moving`, `creating`, `deleting`, `reading`, `verifying`) are functions of a
`Transaction`. A `Runner` decides only how they run: on threads of our own, or on an async engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from flue_py.core.budgets import Amounts, Budget, HeldAmount, NewBudget, Reservation
from flue_py.core.call_rows import CallRow
from flue_py.core.calls import PaidCall
from flue_py.core.costs import EntryCost
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.ledger import CallId, LedgerQuery, Recorded, UsageReport
from flue_py.core.listing import ANY_SESSION, LAST_ACTIVE_FIRST, Listing, Ordering, SessionFilter
from flue_py.core.log import LogLine, Note
from flue_py.core.sessions import (
    STORED,
    Appended,
    Change,
    Deletion,
    EditMetadata,
    LeafChoice,
    Mark,
    MessagesRead,
    Moved,
    MoveReason,
    NewSession,
    OnConflict,
    PathRead,
    Problem,
    ReadStamp,
    SessionInfo,
    SessionKind,
    SessionPage,
    Stored,
    StoreInfo,
    TaskLink,
    VerifyReport,
)
from flue_py.core.usage import UsageWindow
from flue_py.errors import CorruptStore, InvalidArgument, StoreClosed, StoreUnavailable
from flue_py.store.backend import MAX_TASK_DEPTH, Backend
from flue_py.store.ops import append as appending
from flue_py.store.ops import budgets as budgeting
from flue_py.store.ops import delete as deleting
from flue_py.store.ops import edit as editing
from flue_py.store.ops import ledger as paying
from flue_py.store.ops import log
from flue_py.store.ops import move as moving
from flue_py.store.ops import read as reading
from flue_py.store.ops import sessions as creating
from flue_py.store.ops import usage as spending
from flue_py.store.schema.stamp import FORMAT_VERSION
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import queries

if TYPE_CHECKING:  # what only copies and backups have
    from flue_py.core.budget_copies import BudgetCopy, BudgetState
    from flue_py.core.salvaging import BackupReport
    from flue_py.core.trees import GonePayer, Standing, TreeCopy, TreeHead

Result = TypeVar("Result")


class Runner(Protocol):
    """Runs transactions on a database."""

    @property
    def backend_name(self) -> str:
        """What kind of store this is, for `info`."""

    @property
    def location(self) -> str:
        """Where the database is, without secrets."""

    @property
    def file(self) -> Path | None:
        """The file of the database, where it is one."""

    async def size_bytes(self) -> int | None:
        """Return how large the database is on disk, where that can be told."""

    async def write(self, work: Callable[[Transaction], Result], *, repeatable: bool = False) -> Result:
        """Run ``work`` in a transaction that may write; it is durable when this returns.

        ``work`` may be run again, from the start, after a rollback; where it is ``repeatable``, which means that a
        second run does nothing more, also where the connection was lost while committing.
        """

    async def read(self, work: Callable[[Transaction], Result], *, loose: bool = False) -> Result:
        """Run ``work`` on one snapshot.

        ``loose`` says that it can do without: that it is one statement, or checks that what several have found fits
        together (see `Transaction.require_snapshot`). Then a database may save the round trips of a transaction.
        """

    async def storage_problems(self) -> list[Problem]:
        """Return what the database's own checks find."""

    def wakeups(self, session_id: str) -> AsyncIterator[None]:
        """Yield at once, then whenever the session may have changed, here or elsewhere; end when the store is closed.

        What is committed after a wake-up brings another one.
        """

    async def close(self) -> None:
        """Finish what was started and let go."""


class SqlBackend(Backend):
    """A `Backend` over any `Runner`."""

    def __init__(self, runner: Runner, sources: Sources) -> None:
        self._runner = runner
        self._sources = sources

    async def create_session(self, new: NewSession) -> SessionInfo:
        return await self._runner.write(lambda tx: creating.create_session(tx, self._sources, new))

    async def get_session(self, session_id: str, scope: str | None = None) -> SessionInfo | None:
        return await self._runner.read(lambda tx: creating.get_session(tx, session_id, scope), loose=True)

    async def find_session(self, key: str, scope: str) -> SessionInfo | None:
        return await self._runner.read(lambda tx: creating.find_session(tx, key, scope), loose=True)

    async def list_sessions(
        self,
        *,
        scope: str | None,
        kind: SessionKind | None,
        limit: int,
        cursor: str | None,
        where: SessionFilter = ANY_SESSION,
        ordering: Ordering = LAST_ACTIVE_FIRST,
    ) -> SessionPage:
        listing = Listing(scope, kind, where, ordering)
        return await self._runner.read(lambda tx: reading.list_sessions(tx, listing, limit, cursor), loose=True)

    async def match_session_ids(self, prefix: str, limit: int = 2) -> list[str]:
        return await self._runner.read(lambda tx: reading.match_session_ids(tx, prefix, limit), loose=True)

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None | Stored = STORED,
        auto_title: str | None | Stored = STORED,
        metadata_text: str | EditMetadata | None = None,
        completed_us: int | None | Stored = STORED,
        by: str | None = None,
        why: str | None = None,
    ) -> SessionInfo:
        note = Note(by, why)
        return await self._runner.write(
            lambda tx: editing.update_session(
                tx, self._sources, session_id, title, auto_title, metadata_text, completed_us, note
            ),
            repeatable=True,
        )

    async def append(
        self,
        session_id: str,
        entries: Sequence[NewEntry],
        *,
        expected: LeafChoice = STORED,
        on_conflict: OnConflict = "raise",
        idempotency_key: str | None = None,
    ) -> Appended:
        return await self._runner.write(
            lambda tx: appending.append(tx, self._sources, session_id, entries, expected, on_conflict, idempotency_key),
            repeatable=idempotency_key is not None,
        )

    async def import_entries(
        self, session_id: str, entries: Sequence[NewEntry], *, leaf: str | None, expected: LeafChoice = STORED
    ) -> Appended:
        return await self._runner.write(
            lambda tx: appending.import_entries(tx, self._sources, session_id, entries, leaf, expected)
        )

    async def import_session(self, new: NewSession, entries: Sequence[NewEntry], *, leaf: str | None) -> SessionInfo:
        return await self._runner.write(lambda tx: appending.import_session(tx, self._sources, new, entries, leaf))

    async def move(
        self,
        session_id: str,
        to: str | None,
        *,
        expected: LeafChoice = STORED,
        reason: MoveReason = "move",
        by: str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
    ) -> Moved:
        note = Note(by, why)
        return await self._runner.write(
            lambda tx: moving.move(tx, self._sources, session_id, to, expected, reason, note, idempotency_key),
            repeatable=idempotency_key is not None,
        )

    async def retract(
        self, session_id: str, entry_id: str, *, by: str | None = None, why: str | None = None
    ) -> Moved | None:
        note = Note(by, why)
        return await self._runner.write(lambda tx: moving.retract(tx, self._sources, session_id, entry_id, note))

    async def undo(
        self, session_id: str, *, expected: LeafChoice = STORED, by: str | None = None, why: str | None = None
    ) -> Moved | None:
        note = Note(by, why)
        return await self._runner.write(lambda tx: moving.undo(tx, self._sources, session_id, expected, note))

    async def redo(
        self, session_id: str, *, expected: LeafChoice = STORED, by: str | None = None, why: str | None = None
    ) -> Moved | None:
        note = Note(by, why)
        return await self._runner.write(lambda tx: moving.redo(tx, self._sources, session_id, expected, note))

    async def fork(
        self, session_id: str, at: LeafChoice, new: NewSession, *, idempotency_key: str | None = None
    ) -> SessionInfo:
        return await self._runner.write(
            lambda tx: creating.fork(tx, self._sources, session_id, at, new, idempotency_key),
            repeatable=idempotency_key is not None,
        )

    async def record_call(self, session_id: str, call: PaidCall) -> Recorded:
        return await self._runner.write(
            lambda tx: paying.record_call(tx, self._sources, session_id, call), repeatable=call.call_id is not None
        )

    async def find_calls(self, scope: str, identities: Sequence[CallId]) -> list[CallRow]:
        return await self._runner.read(lambda tx: paying.find_calls(tx, scope, identities), loose=True)

    async def calls_of_entry(self, session_id: str, entry_id: str) -> list[CallRow]:
        return await self._runner.read(lambda tx: paying.calls_of_entry(tx, session_id, entry_id))

    async def read_ledger(self, query: LedgerQuery) -> UsageReport:
        return await self._runner.read(lambda tx: spending.read_ledger(tx, query))

    async def read_entry_costs(self, session_id: str) -> dict[str, EntryCost]:
        return await self._runner.read(lambda tx: spending.read_entry_costs(tx, session_id))

    async def create_task(
        self,
        parent_id: str,
        task_id: str,
        new: NewSession,
        *,
        idempotency_key: str | None = None,
        max_depth: int = MAX_TASK_DEPTH,
    ) -> SessionInfo:
        return await self._runner.write(
            lambda tx: creating.create_task(tx, self._sources, parent_id, task_id, new, idempotency_key, max_depth),
            repeatable=True,
        )

    async def link_task(self, parent_id: str, child_id: str, task_id: str, *, entry_id: str | None = None) -> None:
        await self._runner.write(
            lambda tx: creating.link_task(tx, self._sources, parent_id, child_id, task_id, entry_id), repeatable=True
        )

    async def task_links(self, session_id: str) -> list[TaskLink]:
        return await self._runner.read(lambda tx: reading.task_links(tx, session_id))

    async def task_parents(self, session_id: str) -> list[TaskLink]:
        return await self._runner.read(lambda tx: reading.task_parents(tx, session_id))

    async def delete_tree(self, session_id: str, *, scope: str | None = None, dry_run: bool = False) -> Deletion:
        if dry_run:
            return await self._runner.read(lambda tx: deleting.delete_tree(tx, session_id, scope, dry_run=True))
        return await self._runner.write(lambda tx: deleting.delete_tree(tx, session_id, scope, dry_run=False))

    async def read_path(
        self, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
    ) -> PathRead:
        return await self._runner.read(lambda tx: reading.read_path(tx, session_id, leaf, unless), loose=True)

    async def read_path_since(self, session_id: str, since: str | None, *, leaf: LeafChoice = STORED) -> PathRead:
        return await self._runner.read(lambda tx: reading.read_path_since(tx, session_id, since, leaf))

    async def read_context(
        self, session_id: str, *, leaf: LeafChoice = STORED, unless: ReadStamp | None = None
    ) -> PathRead:
        return await self._runner.read(lambda tx: reading.read_context(tx, session_id, leaf, unless), loose=True)

    async def read_messages(self, session_id: str, *, leaf: LeafChoice = STORED) -> MessagesRead:
        return await self._runner.read(lambda tx: reading.read_messages(tx, session_id, leaf), loose=True)

    async def read_usage(self, session_id: str, since: str | None, *, leaf: LeafChoice = STORED) -> UsageWindow:
        return await self._runner.read(lambda tx: reading.read_usage(tx, session_id, since, leaf), loose=True)

    async def read_turns(self, session_id: str, *, leaf: LeafChoice = STORED) -> list[Entry]:
        return await self._runner.read(lambda tx: reading.read_turns(tx, session_id, leaf))

    async def read_tree(self, session_id: str) -> list[Entry]:
        return await self._runner.read(lambda tx: reading.read_tree(tx, session_id))

    async def get_entry(self, session_id: str, entry_id: str) -> Entry | None:
        return await self._runner.read(lambda tx: reading.get_entry(tx, session_id, entry_id))

    async def match_entry_ids(self, session_id: str, prefix: str, limit: int = 2) -> list[str]:
        return await self._runner.read(lambda tx: reading.match_entry_ids(tx, session_id, prefix, limit))

    async def taken_entry_ids(self, session_id: str, ids: Sequence[str]) -> set[str]:
        return await self._runner.read(lambda tx: reading.taken_entry_ids(tx, session_id, ids))

    async def is_ancestor(self, session_id: str, entry_id: str, of: str) -> bool:
        return await self._runner.read(lambda tx: reading.is_ancestor(tx, session_id, entry_id, of))

    async def common_ancestor(
        self, session_id: str, other_id: str, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> str | None:
        return await self._runner.read(lambda tx: reading.common_ancestor(tx, session_id, other_id, leaf, other_leaf))

    async def recall_append(self, session_id: str, idempotency_key: str) -> Appended | None:
        return await self._runner.read(lambda tx: appending.recall_append(tx, session_id, idempotency_key))

    async def changes(self, session_id: str, after: int, limit: int) -> list[Change]:
        return await self._runner.read(lambda tx: reading.changes(tx, session_id, after, limit))

    async def notifications(self, session_id: str) -> AsyncIterator[None]:
        last: int | None = -1
        async for _ in self._runner.wakeups(session_id):
            try:
                revision = await self._runner.read(lambda tx: reading.read_revision(tx, session_id), loose=True)
            except StoreClosed:
                # It was open when the watching began: one that closes now ends it.
                return
            if revision != last:
                last = revision
                yield

    async def read_log(self, session_id: str, *, before: int | None, limit: int) -> list[LogLine]:
        return await self._runner.read(lambda tx: log.read_log(tx, session_id, before, limit))

    async def go_back(
        self,
        session_id: str,
        revision: int,
        *,
        before: bool = False,
        expected: LeafChoice = STORED,
        by: str | None = None,
        why: str | None = None,
    ) -> LogLine | None:
        note = Note(by, why)
        return await self._runner.write(
            lambda tx: log.go_back(tx, self._sources, session_id, revision, before=before, expected=expected, note=note)
        )

    async def set_label(
        self, session_id: str, entry_id: str, label: str | None, *, by: str | None = None, why: str | None = None
    ) -> None:
        note = Note(by, why)
        await self._runner.write(
            lambda tx: editing.set_label(tx, self._sources, session_id, entry_id, label, note), repeatable=True
        )

    async def set_pin(
        self, session_id: str, entry_id: str, pinned: bool, *, by: str | None = None, why: str | None = None
    ) -> tuple[str, ...]:
        note = Note(by, why)
        return await self._runner.write(
            lambda tx: editing.set_pin(tx, self._sources, session_id, entry_id, pinned, note), repeatable=True
        )

    async def read_marks(self, session_id: str) -> list[Mark]:
        return await self._runner.read(lambda tx: reading.read_marks(tx, session_id))

    async def set_budget(self, new: NewBudget) -> Budget:
        return await self._runner.write(lambda tx: budgeting.set_budget(tx, self._sources, new), repeatable=True)

    async def get_budget(self, budget_id: str) -> Budget | None:
        return await self._runner.read(lambda tx: budgeting.get_budget(tx, self._sources, budget_id))

    async def list_budgets(self, *, scope: str | None, after: str | None, limit: int) -> list[Budget]:
        return await self._runner.read(lambda tx: budgeting.list_budgets(tx, self._sources, scope, after, limit))

    async def covering_budgets(self, session_id: str) -> list[Budget]:
        return await self._runner.read(lambda tx: budgeting.covering_budgets(tx, self._sources, session_id))

    async def held_amounts(self, budget_id: str) -> list[HeldAmount]:
        return await self._runner.read(lambda tx: budgeting.held_amounts(tx, self._sources, budget_id))

    async def delete_budget(self, budget_id: str) -> Budget:
        return await self._runner.write(budgeting.Deleting(self._sources, budget_id), repeatable=True)

    async def reserve(self, session_id: str, asked: Amounts, ttl_us: int) -> Reservation:
        return await self._runner.write(budgeting.Reserving(self._sources, session_id, asked, ttl_us), repeatable=True)

    async def get_reservation(self, reservation_id: str) -> Reservation | None:
        return await self._runner.read(lambda tx: budgeting.get_reservation(tx, self._sources, reservation_id))

    async def commit_reservation(self, reservation_id: str, used: Amounts) -> Reservation:
        return await self._runner.write(
            lambda tx: budgeting.commit_reservation(tx, self._sources, reservation_id, used), repeatable=True
        )

    async def release_reservation(self, reservation_id: str) -> Reservation:
        return await self._runner.write(budgeting.Releasing(self._sources, reservation_id), repeatable=True)

    async def prolong_reservation(self, reservation_id: str, ttl_us: int) -> Reservation:
        return await self._runner.write(
            lambda tx: budgeting.prolong_reservation(tx, self._sources, reservation_id, ttl_us), repeatable=True
        )

    async def list_trees(self, after: int, limit: int) -> list[TreeHead]:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.read(lambda tx: copying.list_trees(tx, after, limit))

    async def read_whole_tree(self, tree_id: int) -> TreeCopy | None:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.read(lambda tx: copying.read_whole_tree(tx, tree_id))

    async def compare_trees(self, heads: Sequence[TreeHead]) -> list[Standing]:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.read(lambda tx: copying.compare_trees(tx, heads))

    async def write_whole_tree(self, copy: TreeCopy) -> Standing:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.write(lambda tx: copying.write_whole_tree(tx, copy))

    async def list_gone_payers(self, after: int, limit: int) -> list[GonePayer]:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.read(lambda tx: copying.list_gone_payers(tx, after, limit))

    async def write_gone_payers(self, payers: Sequence[GonePayer]) -> int:
        from flue_py.store.ops import transfer as copying  # noqa: PLC0415 - as in `verify`

        return await self._runner.write(lambda tx: copying.write_gone_payers(tx, payers))

    async def list_whole_budgets(self, after: int, limit: int) -> list[BudgetCopy]:
        from flue_py.store.ops import transfer_budgets as copying_budgets  # noqa: PLC0415 - as in `verify`

        return await self._runner.read(lambda tx: copying_budgets.list_whole_budgets(tx, after, limit))

    async def write_budgets(self, copies: Sequence[BudgetCopy]) -> list[BudgetState]:
        from flue_py.store.ops import transfer_budgets as copying_budgets  # noqa: PLC0415 - as in `verify`

        return await self._runner.write(lambda tx: copying_budgets.write_budgets(tx, copies))

    async def verify(self) -> VerifyReport:
        from flue_py.store.ops import verify as verifying  # noqa: PLC0415 - what only reads a session starts without it

        storage = await self._runner.storage_problems()
        try:
            report = await self._runner.read(verifying.verify)
        except CorruptStore as error:
            # A text that is no text stops whoever reads its row.
            counts = await self._runner.read(lambda tx: tx.first(queries.COUNTS, {}), loose=True) or (0, 0)
            found = Problem("unreadable rows", "the store", f"{error}; nothing more was checked; rescue it by salvage")
            return VerifyReport(counts[0], counts[1], [*storage, found])
        return VerifyReport(report.sessions, report.entries, storage + report.problems)

    async def backup(
        self, target: Path, *, overwrite: bool, verified: bool, progress: Callable[[int, int], None] | None
    ) -> BackupReport:
        from flue_py.store.sqlite.backup import Told, back_up  # noqa: PLC0415 - as in `verify`

        # Refused where the store is closed, as everything is.
        await self._runner.read(lambda tx: tx.first(queries.COUNTS, {}), loose=True)
        path = self._runner.file
        if path is None:
            raise InvalidArgument(
                f"{self._runner.location} is no file: back it up with pg_dump, or copy it into a file with flue-py copy"
            )
        told = Told(progress)
        try:
            return await asyncio.to_thread(back_up, path, target, overwrite=overwrite, verified=verified, progress=told)
        except StoreUnavailable:
            if told.error is not None:
                raise told.error from None
            raise

    async def info(self) -> StoreInfo:
        row = await self._runner.read(lambda tx: tx.first(queries.COUNTS, {}), loose=True)
        sessions, entries, ledger_rows = row or (0, 0, 0)
        runner = self._runner
        return StoreInfo(
            runner.backend_name,
            runner.location,
            FORMAT_VERSION,
            sessions,
            entries,
            ledger_rows,
            await runner.size_bytes(),
        )

    async def close(self) -> None:
        await self._runner.close()
