"""Several operations on the sessions of a store, collected and committed as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import Frozen
from flue_py.core.operations import (
    AppendEntries,
    Committed,
    CreateSession,
    CreateTask,
    DeleteTree,
    ForkSession,
    LinkTask,
    MoveLeaf,
    Navigate,
    Operation,
    Outcome,
    Redo,
    SetPin,
    Undo,
    Write,
)
from flue_py.core.sessions import (
    NOTHING_SEEN,
    STORED,
    Appended,
    Deletion,
    LeafChoice,
    Limits,
    Navigated,
    NewSession,
    Note,
    Seen,
    SessionInfo,
    SessionRef,
    Stored,
    check_entry_label,
    check_name,
    leaf_of,
    scope_meant,
)
from flue_py.core.usage import SumTooLarge
from flue_py.db.backend import Backend
from flue_py.db.runner import committed_before
from flue_py.db.waiting import run_here
from flue_py.errors import CallConflict, InvalidArgument, SessionNotFound, shown
from flue_py.prices import CallPricer
from flue_py.sessions import write
from flue_py.sessions.handle import (
    EditOptions,
    ForkOptions,
    Handle,
    HasId,
    Landing,
    LandingOptions,
    SeenOptions,
    TaskOptions,
    checked_edit,
    checked_id,
    checked_landing,
    checked_leaf,
    checked_metadata,
    checked_place,
    checked_seen,
    checked_session,
    refuse_others,
    turns_of,
)
from flue_py.sessions.marks import Marks
from flue_py.sessions.session import BranchSummary, Session, Tasks, summary_entry
from flue_py.sessions.write import Ground, Incoming, Offloader

if TYPE_CHECKING:
    from flue_py.context.artifacts import OffloadSettings


# ---------------------------------------------------------------------------------------------------------------------
# The place below which each append of a batch lands, as far as it is known before the commit.


class _Place(Frozen):
    """A leaf, and a session that is stored and sees it; None for none, and for one that cannot be known."""

    session_id: str | None
    leaf: LeafChoice


class Grounds:
    """The places below which the appends of a batch land. Operations are noted in their order, as `Atomic` has them.

    ``first`` has the results of the appends of an earlier commit of this batch (`Backend.recall_atomic`): a retry is on
    the same ground as the first try.
    """

    def __init__(self, backend: Backend, first: Sequence[Appended | None] | None) -> None:
        self._backend = backend
        self._first = first
        # The entries of the batch, each with its place, and the places where operations have left sessions.
        self._below: dict[str, tuple[NewEntry, _Place]] = {}
        self._places: dict[str, _Place] = {}

    async def below(self, number: int, operation: AppendEntries) -> Ground:
        """Return the ground of an append, the operation with this number. O(entries of the batch in it)."""
        place = self._place_of(operation)
        entries: list[NewEntry] = []
        while isinstance(place.leaf, str) and place.leaf in self._below:
            entry, place = self._below[place.leaf]
            entries.append(entry)
        if not entries and place.session_id is not None and place.leaf is not None:
            place = _Place(place.session_id, await self._stored_leaf(number, operation, place))
        return Ground(place.session_id, place.leaf, entries[::-1])

    async def _stored_leaf(self, number: int, operation: AppendEntries, place: _Place) -> LeafChoice:
        first = None if self._first is None else self._first[number]
        if first is not None:
            return first.parent_id
        if place.session_id == operation.session_id:
            landed = await write.first_landed(self._backend, operation.session_id, operation.idempotency_key)
            if landed is not None:
                return landed.parent_id
        return STORED if operation.on_conflict == "rebase" else place.leaf

    def note_append(self, operation: AppendEntries, ground: Ground) -> None:
        """Note that an append comes next, with its entries."""
        place = _Place(ground.session_id, ground.leaf)
        if ground.entries and ground.entries[-1].id is not None:
            place = _Place(ground.session_id, ground.entries[-1].id)
        for entry in operation.entries:
            if entry.id is not None:
                self._below[entry.id] = (entry, place)
                place = _Place(ground.session_id, entry.id)
        self._places[operation.session_id] = place

    def note(self, operation: Operation) -> None:
        """Note that another operation comes next."""
        match operation:
            case CreateSession() | CreateTask():
                self._places[operation.session_made or ""] = _Place(None, None)
            case ForkSession(at=at):
                place = self._place_of(operation)
                leaf = place.leaf if isinstance(at, Stored) else at
                self._places[operation.session_made or ""] = _Place(place.session_id, leaf)
            case MoveLeaf(to=to):
                self._places[operation.session_id] = _Place(self._place_of(operation).session_id, to)
            case Navigate() | Undo() | Redo():
                # Only the store can tell where these lead.
                self._places[operation.session_id] = _Place(self._place_of(operation).session_id, None)

    def _place_of(self, operation: AppendEntries | ForkSession | MoveLeaf | Navigate | Undo | Redo) -> _Place:
        """Return where an operation begins: the leaf that it expects, else the one that its session has by then."""
        place = self._places.get(operation.session_id, _Place(operation.session_id, STORED))
        expected = leaf_of(operation.expected)
        return place if isinstance(expected, Stored) else _Place(place.session_id, expected)


# ---------------------------------------------------------------------------------------------------------------------
# Collecting operations for a batch, committing them, and telling handles and callers the results.

P = ParamSpec("P")
Owner = TypeVar("Owner")
Result = TypeVar("Result")
_OnLeaf: TypeAlias = AppendEntries | MoveLeaf | Navigate | Undo | Redo
"""An operation that builds on a leaf, and leaves another one."""


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
        """The result of the method of `Session` or `Store`. Raises `InvalidArgument` before the commit."""
        if not self._results:
            raise InvalidArgument("this operation is not committed: its result is there after the block")
        return self._results[0]

    def settle(self, result: Result) -> None:
        """Note the result. Called by the batch."""
        self._results = [result]
        if isinstance(result, Appended):
            # Of a retry those of the first time; and artifacts are made when the batch is committed.
            self._entry_ids = result.entry_ids
        elif isinstance(result, Navigated):
            # None where it led to the leaf itself.
            self._entry_ids = () if result.summary_id is None else (result.summary_id,)


class _Planned(Struct, eq=False):
    """An operation as it was collected, and the handle on the session that it makes."""

    operation: Operation
    handle: Handle | None
    pending: Pending[object]
    new_session: Session | None
    incoming: Incoming | None
    offloader: Offloader | None


class _BatchSession(Session):
    """A session as a batch has it: its methods check a write, and the batch collects it in place of doing it."""

    __slots__ = ("_batch", "_handle")

    def __init__(self, batch: Atomic, session: HasId | str) -> None:
        session_id, self._handle = batch._named(session)
        self._ref = cast("SessionRef", session_id)
        self._batch = batch
        self._backend = batch._backend
        self._limits = batch._limits

    async def _do(self, operation: Write[Result]) -> Result:
        pending = Pending[Result]()
        self._batch._collect(cast("Operation", operation), self._handle, pending)
        return cast("Result", pending)

    async def _append_incoming(self, incoming: Incoming, offload: OffloadSettings | None, landing: Landing) -> Appended:
        self._limits.check_entries(incoming.entries)
        entries = [
            replace(entry, id=self._backend.new_entry_id()) if entry.id is None else entry for entry in incoming.entries
        ]
        pending = Pending[Appended]([entry.id for entry in entries if entry.id is not None])
        priced = self._batch._pricer.price_entries(entries)
        operation = AppendEntries(self._ref, priced, *landing)
        offloader = None if offload is None else Offloader(self._backend, self._limits, offload)
        self._batch._collect(operation, self._handle, pending, incoming=incoming, offloader=offloader)
        return cast("Appended", pending)


def _itself(session: Session) -> Session:
    return session


def _collected(
    method: Callable[Concatenate[Owner, P], Coroutine[object, object, Result]],
    owner: Callable[[Session], Owner],
    text: str,
) -> Callable[Concatenate[Atomic, HasId | str, P], Pending[Result]]:
    """Return a method of a batch that takes a session and the arguments of a method of a session, and collects the
    write.

    ``owner`` makes of a session the group that the method is of. ``text`` is the docstring.
    """

    def collect(self: Atomic, session: HasId | str, *args: P.args, **kwargs: P.kwargs) -> Pending[Result]:
        return cast("Pending[Result]", run_here(method(owner(_BatchSession(self, session)), *args, **kwargs)))

    update_wrapper(collect, method)
    own = signature(method)
    first, *further = own.parameters.values()
    session = Parameter("session", Parameter.POSITIONAL_OR_KEYWORD, annotation="HasId | str")
    result = f"Pending[{own.return_annotation}]"
    vars(collect).update(__signature__=Signature([first, session, *further], return_annotation=result))
    collect.__doc__ = text
    # As far as types go, the session is positional.
    return cast("Callable[Concatenate[Atomic, HasId | str, P], Pending[Result]]", collect)


class Atomic:
    """Operations that are committed together at the end of the ``async with`` (see `Store.atomic`).

    Its methods are those of `Session` and `Store`, with the session as first argument: a handle, an id, or a session
    that this batch makes. They check their arguments, note the operation, and return; nothing is read or written yet.

    The operations on one session build on each other. The first one builds on ``expected_leaf``, else on the leaf that
    the handle has seen, or for an id, on whatever is stored. ``expected_revision`` is the revision before the batch.
    Handles of sessions that the batch makes are returned at once, and can be used once it is committed.
    """

    __slots__ = ("_backend", "_is_over", "_key", "_limits", "_new", "_planned", "_pricer", "_scope")

    def __init__(
        self, backend: Backend, limits: Limits, pricer: CallPricer, scope: str | None, idempotency_key: str | None
    ) -> None:
        check_name(idempotency_key, "idempotency_key")
        self._backend = backend
        self._limits = limits
        self._pricer = pricer
        self._scope = scope
        self._key = idempotency_key
        self._planned: list[_Planned] = []
        self._new: dict[str, Session] = {}
        self._is_over = False

    # -- entries --------------------------------------------------------------------------------------------------

    append_message = _collected(Session.append_message, _itself, "Append a message, as `Session.append_message` does.")
    append_messages = _collected(
        Session.append_messages, _itself, "Append messages as a chain, as `Session.append_messages` does."
    )
    append_shell = _collected(
        Session.append_shell, _itself, "Append a shell command with what it printed, as `Session.append_shell` does."
    )

    def append_entries(
        self,
        session: HasId | str,
        entries: Sequence[NewEntry],
        *,
        offload: OffloadSettings | None = None,
        **options: Unpack[LandingOptions],
    ) -> Pending[Appended]:
        """Append entries that the builders of `NewEntry` made, as a chain: compactions, summaries, further kinds.

        Their ``parent_id`` and ``created_us`` are ignored. Raises `InvalidArgument` for any other entry.
        """
        landing = checked_landing(**options)
        if isinstance(entries, NewEntry) or not all(isinstance(entry, NewEntry) and entry.built for entry in entries):
            raise InvalidArgument("entries: should be a sequence of what NewEntry.message, .custom and the others made")
        chain = write.as_incoming([replace(entry, parent_id=None, created_us=None) for entry in entries])
        append = _BatchSession(self, session)._append_incoming(chain, offload, landing)
        return cast("Pending[Appended]", run_here(append))

    # -- sessions -------------------------------------------------------------------------------------------------

    def create_session(
        self,
        *,
        key: str | None = None,
        title: str | None = None,
        scope: str | None = None,
        metadata: Mapping[str, object] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session, as `Store.create_session` does; return the handle on it."""
        text = checked_metadata(metadata, self._limits)
        place = scope_meant(self._scope, scope) or ""
        return self._make(
            CreateSession(write.checked_root(NewSession(key, title, place, text, cwd, config_path, id))), None
        )

    def fork(
        self,
        session: HasId,
        *,
        at: LeafChoice = STORED,
        idempotency_key: str | None = None,
        **options: Unpack[ForkOptions],
    ) -> Session:
        """Fork a session, as `Session.fork` does; return the handle on the fork.

        ``at`` may be an entry that this batch appends; by default it is the leaf as the batch has left it so far.
        There is no ``before``: it would have to read an entry.
        """
        checked_leaf(at, "at")
        check_name(idempotency_key, "idempotency_key")
        session_id, handle = self._handle_of(session)
        new, seen = write.new_fork(handle.info, self._limits, **options)
        return self._make(ForkSession(session_id, at, new, options.get("scope"), seen, idempotency_key), handle)

    def create_task(
        self, session: HasId, *, task_id: str, idempotency_key: str | None = None, **options: Unpack[TaskOptions]
    ) -> Session:
        """Start a task session, as `Session.tasks.create` does; return the handle on it."""
        check_name(idempotency_key, "idempotency_key")
        session_id, handle = self._handle_of(session)
        limits = self._limits
        new, seen = write.new_task(handle.info, limits, task_id, **options)
        return self._make(CreateTask(session_id, task_id, new, seen, idempotency_key, limits.task_depth), handle)

    def link_task(
        self,
        parent: HasId | str,
        child: HasId | str,
        *,
        task_id: str,
        entry_id: str | None = None,
        **options: Unpack[SeenOptions],
    ) -> None:
        """Link a session to a parent as its task session, as `Store.link_task` does."""
        check_name(checked_id(task_id, "task_id"), "task_id")
        checked_place(entry_id, "entry_id")
        seen = checked_seen(**options)
        parent_id, handle = self._named(parent)
        child_id = str(checked_session(child))
        self._collect(LinkTask(parent_id, child_id, task_id, entry_id, seen), handle, Pending[None]())

    end_task = _collected(Tasks.end, Tasks, "Note how a task ended, as `Session.tasks.end` does.")

    def delete_session_tree(
        self, session: HasId | str, *, scope: str | None = None, **options: Unpack[SeenOptions]
    ) -> Pending[Deletion]:
        """Delete a session and its task sessions, as `Store.delete_session_tree` does."""
        scope = scope_meant(self._scope, scope)
        session_id, handle = self._named(session)
        return self._collect(DeleteTree(session_id, scope, checked_seen(**options)), handle, Pending[Deletion]())

    # -- the leaf, the row, and marks -----------------------------------------------------------------------------

    move_leaf = _collected(Session.move_leaf, _itself, "Set the leaf, as `Session.move_leaf` does.")

    def navigate(
        self,
        session: HasId | str,
        entry_id: str,
        *,
        summary: str | BranchSummary | None = None,
        label: str | None = None,
        **options: Unpack[EditOptions],
    ) -> Pending[Navigated]:
        """Go to an entry, as `Session.navigate` does; it may be one that this batch appends.

        The ``draft`` is in the result. ``summary`` cannot be a callback: that would have to read the branch. Nothing
        is appended if the entry is the leaf already.
        """
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        note, seen = checked_edit(**options)
        session_id, handle = self._named(session)
        entries: Sequence[NewEntry] = []
        if summary is not None:
            entries = [replace(summary_entry(summary), id=self._backend.new_entry_id())]
            self._limits.check_entries(entries)
            entries = self._pricer.price_entries(entries)
        pending = Pending[Navigated]([entry.id for entry in entries if entry.id is not None])
        operation = Navigate(session_id, entry_id, next(iter(entries), None), label, seen, note)
        return self._collect(operation, handle, pending)

    undo = _collected(
        Session.undo,
        _itself,
        "Take back the session's last operation, as `Session.undo` does; those of this batch count one by one.",
    )
    redo = _collected(Session.redo, _itself, "Do again what was undone last, as `Session.redo` does.")
    set_title = _collected(Session.set_title, _itself, "Set or clear the title, as `Session.set_title` does.")
    set_metadata = _collected(
        Session.set_metadata, _itself, "Replace the metadata, or some of their keys, as `Session.set_metadata` does."
    )
    set_completed = _collected(
        Session.set_completed, _itself, "Note when the session's work was completed, as `Session.set_completed` does."
    )
    set_label = _collected(
        Marks.set_label,
        Marks,
        "Label an entry, as `Session.marks.set_label` does; it may be one that this batch appends.",
    )

    def pin(self, session: HasId | str, entry_id: str, **options: Unpack[EditOptions]) -> Pending[tuple[str, ...]]:
        """Pin an entry, as `Session.marks.pin` does; the result are the ids of the entries pinned with it, in path
        order."""
        return self._set_pin(session, entry_id, *checked_edit(**options), pinned=True)

    def unpin(self, session: HasId | str, entry_id: str, **options: Unpack[EditOptions]) -> Pending[tuple[str, ...]]:
        """Let go of a pinned entry, as `Session.marks.unpin` does; the result is as for `pin`."""
        return self._set_pin(session, entry_id, *checked_edit(**options), pinned=False)

    def _set_pin(
        self, session: HasId | str, entry_id: str, note: Note, seen: Seen, *, pinned: bool
    ) -> Pending[tuple[str, ...]]:
        checked_id(entry_id, "entry_id")
        session_id, handle = self._named(session)
        return self._collect(SetPin(session_id, entry_id, pinned, seen, note), handle, Pending[tuple[str, ...]]())

    # -- collecting -----------------------------------------------------------------------------------------------

    def _named(self, session: HasId | str) -> tuple[str, Handle | None]:
        """Return the id of a session, and the handle that was given, if it was one."""
        self._require_open()
        if isinstance(session, Handle):
            if session._backend is not self._backend:
                raise InvalidArgument(f"session {session.id!r} is of another store; a batch is on the sessions of one")
            # One that is only being made has no key yet that its id could be told apart by.
            return (session.id if session.id in self._new else session.ref), session
        return checked_session(session), None

    def _handle_of(self, session: HasId) -> tuple[str, Session]:
        """Return the id of a session that has to be given as a handle, and the handle. Raises `InvalidArgument`."""
        if not isinstance(session, Session):
            raise InvalidArgument(f"session: {shown(session)} is not a Session; get one with get_session()")
        return self._named(session)[0], session

    def _make(self, operation: CreateSession | ForkSession | CreateTask, handle: Handle | None) -> Session:
        """Collect an operation that makes a session, with an id drawn for it if it brings none; return a handle."""
        self._require_open()
        new = operation.new
        if new.id is None:
            operation = replace(operation, drawn_id=self._backend.new_session_id())
        info = SessionInfo(
            operation.session_made or "",
            new.scope,
            new.key,
            new.title,
            metadata_text=new.metadata_text,
            cwd=new.cwd,
            config_path=new.config_path,
        )
        session = self._new[info.id] = Session(self._backend, info, self._limits, self._pricer)
        self._collect(operation, handle, Pending[SessionInfo](), session)
        return session

    def _collect(
        self,
        operation: Operation,
        handle: Handle | None,
        pending: Pending[Result],
        new_session: Session | None = None,
        incoming: Incoming | None = None,
        offloader: Offloader | None = None,
    ) -> Pending[Result]:
        """Add an operation, with the holder of its result, which is returned, and the handle on the session it makes.

        The commit decides which results an ``offloader`` puts aside, since that depends on the place of the operation.
        """
        self._require_open()
        planned = _Planned(operation, handle, cast("Pending[object]", pending), new_session, incoming, offloader)
        self._planned.append(planned)
        return pending

    def _require_open(self) -> None:
        if self._is_over:
            raise InvalidArgument("this batch is over: call its methods inside the block of atomic()")

    # -- committing -----------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Take no more operations."""
        self._is_over = True

    async def _commit(self) -> None:
        """Commit the operations. Raises as `Store.atomic` says."""
        self._close()
        if not self._planned:
            return
        await refuse_others(self._backend, self._scope, [name for name in self._ids() if name not in self._new])
        handles = {id(planned.handle): planned.handle for planned in self._planned if planned.handle is not None}
        async with turns_of([handle for handle in handles.values() if handle.id not in self._new]):
            if any(planned.offloader is not None for planned in self._planned):
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
        for planned in self._planned:
            if not isinstance(planned.operation, CreateSession):
                yield planned.operation.session_id
            if isinstance(planned.operation, LinkTask):
                yield planned.operation.child_id

    async def _put_aside(self) -> None:
        """Let each append have stubs for its long results."""
        operations = self._as_of_now()
        first = None
        if self._key is not None:
            first = await self._backend.recall_atomic(operations, self._key)
        grounds = Grounds(self._backend, first)
        for number, (planned, operation) in enumerate(zip(self._planned, operations, strict=True)):
            if not isinstance(operation, AppendEntries):
                grounds.note(operation)
                continue
            # The commit reports a missing session, with the number of the operation.
            with suppress(SessionNotFound):
                ground = await grounds.below(number, operation)
                grounds.note_append(await _with_stubs(planned, operation, ground), ground)

    async def _write(self) -> Committed:
        """Write the operations, without numbers too large to be added up (see `write_what_fits`)."""
        tries = Counter[int]()
        while True:
            operations = self._as_of_now()
            self._limits.check_entries(
                [entry for append in operations if isinstance(append, AppendEntries) for entry in append.entries]
            )
            try:
                return await self._backend.atomic(operations, idempotency_key=self._key)
            except (SumTooLarge, CallConflict) as error:
                number = error.operation
                operation = None if number is None else self._planned[number].operation
                if number is None or not isinstance(operation, AppendEntries):
                    raise
                fitting = write.fitting_entries(operation.entries, tries[number], error)
                if fitting is None:
                    raise
                self._planned[number].operation = replace(operation, entries=fitting)
                tries[number] += 1

    def _as_of_now(self) -> list[Operation]:
        """Return the operations with the leaves that they build on: those of earlier operations, or of the handles."""
        leaves: dict[str, LeafChoice] = {}
        operations: list[Operation] = []
        for planned in self._planned:
            operation = planned.operation
            if isinstance(operation, _OnLeaf):
                session_id = str(operation.session_id)
                operation = replace(operation, expected=self._built_on(operation, planned.handle, leaves))
                leaves[session_id] = _leaf_after(operation, leaves.get(session_id, STORED))
            operations.append(operation)
        return operations

    def _built_on(self, operation: _OnLeaf, handle: Handle | None, leaves: Mapping[str, LeafChoice]) -> Seen:
        seen = operation.expected if isinstance(operation.expected, Seen) else NOTHING_SEEN
        if not isinstance(seen.leaf, Stored):
            return seen
        session_id = str(operation.session_id)
        if session_id in leaves:
            return Seen(leaves[session_id], seen.revision)
        if handle is None or session_id in self._new:
            return seen
        return Seen(handle.leaf_id, seen.revision)

    def _settle(self, committed: Committed) -> None:
        """Update the handles, and settle the pending results."""
        taking_part = [
            handle
            for planned in self._planned
            for handle in (planned.handle, planned.new_session)
            if handle is not None
        ]
        handles: dict[str, dict[int, Handle]] = {}
        for handle in taking_part:
            handles.setdefault(handle.id, {})[id(handle)] = handle
        for planned, outcome in zip(self._planned, committed.outcomes, strict=True):
            if planned.new_session is not None and isinstance(outcome, SessionInfo):
                planned.new_session._note_outcome(outcome)
                if isinstance(planned.operation, CreateTask):
                    for handle in handles.get(planned.operation.session_id, {}).values():
                        handle._note_task(planned.operation.task_id, outcome)
            elif not isinstance(planned.operation, (CreateSession, ForkSession, CreateTask)):
                for handle in handles.get(planned.operation.session_id, {}).values():
                    handle._note_outcome(outcome)
            planned.pending.settle(_told(planned, outcome))
        for handle in taking_part:
            handle._note_left(committed.left.get(handle.id))


async def _with_stubs(append: _Planned, operation: AppendEntries, ground: Ground) -> AppendEntries:
    """Put the long results of a planned append aside; return it with stubs."""
    planned = append.operation
    if append.offloader is None or append.incoming is None or not isinstance(planned, AppendEntries):
        return operation
    priced = append.incoming._replace(entries=[*operation.entries])
    append.incoming = await append.offloader.with_stubs(priced, ground)
    append.operation = replace(planned, entries=append.incoming.entries)
    return replace(operation, entries=append.incoming.entries)


def _leaf_after(operation: _OnLeaf, before: LeafChoice) -> LeafChoice:
    """Return the leaf that an operation leaves; `STORED` where only the store can tell."""
    if isinstance(operation, MoveLeaf):
        return operation.to
    if isinstance(operation, AppendEntries):
        return operation.entries[-1].id if operation.entries else before
    return STORED


def _told(planned: _Planned, outcome: Outcome) -> object:
    """Return an outcome as the method of `Session` tells it."""
    if not isinstance(outcome, Appended) or not isinstance(planned.operation, AppendEntries):
        return outcome
    appended = write.with_oddities(outcome, planned.operation.entries)
    return appended if planned.incoming is None else planned.incoming.noted_in(appended)
