"""Collecting operations for a batch, committing them, and telling handles and callers the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar, cast

from flue_py.core.limits import Limits
from flue_py.core.operations import (
    AppendEntries,
    Committed,
    CreateSession,
    CreateTask,
    ForkSession,
    LinkTask,
    MoveLeaf,
    Navigate,
    Operation,
    Outcome,
    Redo,
    Undo,
)
from flue_py.core.sessions import (
    NOTHING_SEEN,
    STORED,
    Appended,
    LeafChoice,
    Navigated,
    NewSession,
    Seen,
    SessionInfo,
    Stored,
    check_name,
)
from flue_py.core.usage import SumTooLarge
from flue_py.errors import CallConflict, InvalidArgument, SessionNotFound, shown
from flue_py.prices.book import CallPricer
from flue_py.sessions.appending import fitting_entries, with_oddities
from flue_py.sessions.arguments import (
    HasId,
    checked_session,
)
from flue_py.sessions.grounds import Grounds
from flue_py.sessions.handle import Handle, is_of, take_over, take_over_revision, take_over_task, turns_of
from flue_py.sessions.incoming import Incoming
from flue_py.sessions.offloading import Ground, Offloader
from flue_py.sessions.scoping import refuse_others
from flue_py.sessions.session import Session
from flue_py.store.backend import Backend
from flue_py.store.seam import committed_before

Result = TypeVar("Result")
_OnLeaf: TypeAlias = AppendEntries | MoveLeaf | Navigate | Undo | Redo
"""What builds on a leaf, and leaves another one."""


class Pending(Generic[Result]):
    """One operation of a batch: the ids of the entries it makes and, once the batch is committed, its result."""

    __slots__ = ("_entry_ids", "_results")

    def __init__(self, entry_ids: Sequence[str] = ()) -> None:
        self._entry_ids = tuple(entry_ids)
        self._results: list[Result] = []

    @property
    def entry_ids(self) -> tuple[str, ...]:
        """The ids of the entries it appends. If the commit finds that it is a retry, those of the first time.

        Those of artifacts (``offload``) are among them once the batch is committed.
        """
        return self._entry_ids

    @property
    def entry_id(self) -> str:
        """The id of the last of these entries. Raises `ValueError` if it appends nothing."""
        if not self._entry_ids:
            raise ValueError("this operation appends nothing, so there is no entry id")
        return self._entry_ids[-1]

    @property
    def result(self) -> Result:
        """What the method of `Session` or `Store` would have returned. Raises `InvalidArgument` before the commit."""
        if not self._results:
            raise InvalidArgument("this operation is not committed: its result is there after the `async with`")
        return self._results[0]

    def settle(self, result: Result) -> None:
        """Note what came of it. Called by the batch."""
        self._results = [result]
        if isinstance(result, Appended):
            # Of a retry those of the first time; and artifacts are made when the batch is committed.
            self._entry_ids = result.entry_ids
        elif isinstance(result, Navigated):
            # None where it led to the leaf itself.
            self._entry_ids = () if result.summary_id is None else (result.summary_id,)


class _Planned:
    """An operation as it was collected."""

    __slots__ = ("handle", "incoming", "made", "offloader", "operation", "pending")

    def __init__(
        self,
        operation: Operation,
        handle: Handle | None,
        pending: Pending[object],
        made: Session | None = None,
        incoming: Incoming | None = None,
        offloader: Offloader | None = None,
    ) -> None:
        self.operation = operation
        self.handle = handle
        self.pending = pending
        self.made = made
        self.incoming = incoming
        self.offloader = offloader


class Collector:
    """Collects operations, and commits them."""

    def __init__(
        self, backend: Backend, limits: Limits, pricer: CallPricer, scope: str | None, idempotency_key: str | None
    ) -> None:
        check_name(idempotency_key, "idempotency_key")
        self.backend = backend
        self.limits = limits
        self.pricer = pricer
        self.scope = scope
        self._key = idempotency_key
        self._planned: list[_Planned] = []
        self._made: dict[str, Session] = {}
        self._is_over = False

    def named(self, session: HasId | str) -> tuple[str, Handle | None]:
        """Return the id of a session, and the handle that was given, if it was one."""
        self._require_open()
        if isinstance(session, Handle):
            if not is_of(session, self.backend):
                raise InvalidArgument(f"session {session.id!r} is of another store; a batch is on the sessions of one")
            # One that is only being made has no key yet that its id could be told apart by.
            return (session.id if session.id in self._made else session.ref), session
        return checked_session(session), None

    def handle_of(self, session: HasId) -> tuple[str, Session]:
        """Return the id of a session that has to be given as a handle, and the handle. Raises `InvalidArgument`."""
        if not isinstance(session, Session):
            raise InvalidArgument(f"session: {shown(session)} is not a Session; get one with get_session()")
        return self.named(session)[0], session

    def make(self, new: NewSession) -> tuple[Session, str | None]:
        """Return a handle on a session that is to be made, and the id that was drawn for it, if it brings none."""
        self._require_open()
        drawn = self.backend.new_session_id() if new.id is None else None
        info = SessionInfo(
            new.id or drawn or "",
            new.scope,
            new.key,
            new.title,
            metadata_text=new.metadata_text,
            cwd=new.cwd,
            config_path=new.config_path,
        )
        return Session(self.backend, info, self.limits, self.pricer), drawn

    def collect(
        self,
        operation: Operation,
        handle: Handle | None,
        pending: Pending[Result],
        made: Session | None = None,
        incoming: Incoming | None = None,
        offloader: Offloader | None = None,
    ) -> None:
        """Add an operation, with what will hold its result, and the handle on what it makes.

        Of what an ``offloader`` puts aside the commit decides, since it depends on what the operation comes below.
        """
        self._require_open()
        if made is not None:
            self._made[made.id] = made
        planned = _Planned(operation, handle, cast("Pending[object]", pending), made, incoming, offloader)
        self._planned.append(planned)

    def _require_open(self) -> None:
        if self._is_over:
            raise InvalidArgument("this batch is over: call its methods inside the block of atomic()")

    # -- committing -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more operations."""
        self._is_over = True

    async def commit(self) -> None:
        """Commit what was collected. Raises as `Store.atomic` says."""
        self.close()
        if not self._planned:
            return
        await refuse_others(self.backend, self.scope, [each for each in self._ids() if each not in self._made])
        handles = {id(each.handle): each.handle for each in self._planned if each.handle is not None}
        async with turns_of([handle for handle in handles.values() if handle.id not in self._made]):
            if any(each.offloader is not None for each in self._planned):
                await self._put_aside()
            try:
                committed = await self._write()
            except BaseException as error:
                if (committed_late := committed_before(error)) is not None:
                    self._settle(cast("Committed", committed_late.result))
                raise
            self._settle(committed)

    def _ids(self) -> Iterator[str]:
        """Yield the ids of the sessions that are named; those that the batch makes are there where it is a retry."""
        for each in self._planned:
            if not isinstance(each.operation, CreateSession):
                yield each.operation.session_id
            if isinstance(each.operation, LinkTask):
                yield each.operation.child_id

    async def _put_aside(self) -> None:
        """Let each append have stubs for its long results."""
        operations = self._as_of_now()
        first = None
        if self._key is not None:
            first = await self.backend.recall_atomic(operations, self._key)
        grounds = Grounds(self.backend, first)
        for number, (each, operation) in enumerate(zip(self._planned, operations, strict=True)):
            if not isinstance(operation, AppendEntries):
                grounds.note(operation)
                continue
            # A session that is not there is what the commit says, with the number of the operation.
            with suppress(SessionNotFound):
                ground = await grounds.below(number, operation)
                grounds.note_append(await _with_stubs(each, operation, ground), ground)

    async def _write(self) -> Committed:
        """Write the operations, without what is too large to be added up (see `write_what_fits`)."""
        tries = Counter[int]()
        while True:
            operations = self._as_of_now()
            self.limits.check_entries(
                [entry for each in operations if isinstance(each, AppendEntries) for entry in each.entries]
            )
            try:
                return await self.backend.atomic(operations, idempotency_key=self._key)
            except (SumTooLarge, CallConflict) as error:
                number = error.operation
                operation = None if number is None else self._planned[number].operation
                if number is None or not isinstance(operation, AppendEntries):
                    raise
                fitting = fitting_entries(operation.entries, tries[number], error)
                if fitting is None:
                    raise
                self._planned[number].operation = replace(operation, entries=fitting)
                tries[number] += 1

    def _as_of_now(self) -> list[Operation]:
        """Return the operations with the leaves that they build on: what was done before, or what handles have seen."""
        leaves: dict[str, LeafChoice] = {}
        found: list[Operation] = []
        for each in self._planned:
            operation = each.operation
            if isinstance(operation, _OnLeaf):
                session_id = str(operation.session_id)
                operation = replace(operation, expected=self._built_on(operation, each.handle, leaves))
                leaves[session_id] = _leaf_after(operation, leaves.get(session_id, STORED))
            found.append(operation)
        return found

    def _built_on(self, operation: _OnLeaf, handle: Handle | None, leaves: Mapping[str, LeafChoice]) -> Seen:
        seen = operation.expected if isinstance(operation.expected, Seen) else NOTHING_SEEN
        if not isinstance(seen.leaf, Stored):
            return seen
        session_id = str(operation.session_id)
        if session_id in leaves:
            return Seen(leaves[session_id], seen.revision)
        if handle is None or session_id in self._made:
            return seen
        return Seen(handle.leaf_id, seen.revision)

    def _settle(self, committed: Committed) -> None:
        """Let handles know what came of it, and who waits for results."""
        taking_part = [handle for each in self._planned for handle in (each.handle, each.made) if handle is not None]
        handles: dict[str, dict[int, Handle]] = {}
        for handle in taking_part:
            handles.setdefault(handle.id, {})[id(handle)] = handle
        for each, outcome in zip(self._planned, committed.outcomes, strict=True):
            if each.made is not None and isinstance(outcome, SessionInfo):
                take_over(each.made, outcome)
                if isinstance(each.operation, CreateTask):
                    for handle in handles.get(each.operation.session_id, {}).values():
                        take_over_task(handle, each.operation.task_id, outcome)
            elif not isinstance(each.operation, (CreateSession, ForkSession, CreateTask)):
                for handle in handles.get(each.operation.session_id, {}).values():
                    take_over(handle, outcome)
            each.pending.settle(_told(each, outcome))
        for handle in taking_part:
            take_over_revision(handle, committed.left.get(handle.id))


async def _with_stubs(each: _Planned, operation: AppendEntries, ground: Ground) -> AppendEntries:
    """Let a planned append have stubs for what it puts aside; return it so."""
    planned = each.operation
    if each.offloader is None or each.incoming is None or not isinstance(planned, AppendEntries):
        return operation
    priced = each.incoming._replace(entries=[*operation.entries])
    each.incoming = await each.offloader.with_stubs(priced, ground)
    each.operation = replace(planned, entries=each.incoming.entries)
    return replace(operation, entries=each.incoming.entries)


def _leaf_after(operation: _OnLeaf, before: LeafChoice) -> LeafChoice:
    """Return the leaf that an operation leaves; `STORED` where only the store can tell."""
    if isinstance(operation, MoveLeaf):
        return operation.to
    if isinstance(operation, AppendEntries):
        return operation.entries[-1].id if operation.entries else before
    return STORED


def _told(each: _Planned, outcome: Outcome) -> object:
    """Return an outcome as the method of `Session` tells it."""
    if not isinstance(outcome, Appended) or not isinstance(each.operation, AppendEntries):
        return outcome
    told = with_oddities(outcome, each.operation.entries)
    return told if each.incoming is None else each.incoming.noted_in(told)
