"""A handle on one session: its lock, the leaf it builds on, and how a change is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from typing import TypeVar, cast

from flue_py.core.entries import Entry
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.core.operations import Left, Outcome
from flue_py.core.prefixes import PrefixChain
from flue_py.core.projection import ContextEntry, ContextRead
from flue_py.core.sessions import (
    NOTHING_SEEN,
    Appended,
    Expected,
    LeafChoice,
    MessagesRead,
    Moved,
    Navigated,
    PathRead,
    ReadStamp,
    Seen,
    SessionInfo,
    SessionKind,
    SessionRef,
    Stored,
)
from flue_py.core.settings import PathSettings
from flue_py.errors import SessionNotFound
from flue_py.prices.book import NO_PRICER, CallPricer
from flue_py.store.backend import Backend
from flue_py.store.seam import committed_before
from flue_py.store.waiting import Waiting

Result = TypeVar("Result")


@frozen
class KnownPath:
    """The active path as last read, good while the stamp holds."""

    stamp: ReadStamp
    entries: list[Entry]


@frozen
class KnownContext:
    """The context as last read, good while the stamp holds; ``tail`` is the stretch of path it was made from.

    ``counts`` is what each item takes, by the name of the counter, where that was asked for before; ``settings`` are
    those of the path, one at most, likewise.
    """

    stamp: ReadStamp
    items: list[ContextEntry]
    compaction: Entry | None
    tail: Sequence[Entry]
    counts: dict[str, list[int]] = field(default_factory=dict, compare=False, repr=False)
    settings: list[PathSettings] = field(default_factory=list, compare=False, repr=False)


@frozen
class KnownChain:
    """The running digests of a context as last read, good while the stamp holds."""

    stamp: ReadStamp
    chain: PrefixChain


def waiting_of(handle: Handle) -> Waiting:
    """Return how the calls of a session wait: for what reads and writes files beside them."""
    return handle._backend.waiting  # noqa: SLF001 - a public attribute would be a name of every session


async def stored_row(handle: Handle) -> SessionInfo:
    """Return the session's row as it is stored. The handle builds on what it built on before. One point read."""
    return await handle._stored_info()  # noqa: SLF001 - as above


class Handle:
    """What every part of a `Session` builds on."""

    __slots__ = (
        "_backend",
        "_chains",
        "_context",
        "_draft",
        "_info",
        "_leaf_id",
        "_limits",
        "_path",
        "_pricer",
        "_ref",
        "_revision",
        "_turn",
    )

    def __init__(
        self,
        backend: Backend,
        info: SessionInfo,
        limits: Limits = DEFAULT_LIMITS,
        pricer: CallPricer = NO_PRICER,
        draft: str | None = None,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._pricer = pricer
        self._turn = backend.waiting.turn()
        self._path: KnownPath | None = None
        self._context: KnownContext | None = None
        self._chains: dict[str | None, KnownChain] = {}
        self._draft = draft
        self._info = info
        self._ref = info.ref
        self._leaf_id = info.leaf_id
        self._revision = info.revision

    def __repr__(self) -> str:
        return f"<Session {self.id!r} key={self.key!r} leaf={self._leaf_id!r} revision={self._revision}>"

    # -- what is known without asking the store ---------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id, unique in the store."""
        return self._info.id

    @property
    def ref(self) -> SessionRef:
        """The id, good for this session only: should it be deleted and its id be used again, that is not this one."""
        return self._ref

    @property
    def scope(self) -> str:
        """Whose session it is."""
        return self._info.scope

    @property
    def key(self) -> str | None:
        """What an application opens it by; unique in its scope."""
        return self._info.key

    @property
    def kind(self) -> SessionKind:
        """``root``, ``fork`` or ``task``."""
        return self._info.kind

    @property
    def title(self) -> str | None:
        """The title for people, as of the last `refresh` or `set_title`."""
        return self._info.title

    @property
    def metadata(self) -> JsonObject:
        """The metadata, decoded afresh, as of the last `refresh`, `set_metadata` or `create_task`.

        With the names of task sessions that its links say, as `SessionInfo.metadata` has them.
        """
        return self._info.metadata

    @property
    def leaf_id(self) -> str | None:
        """The leaf the next append or move builds on; None before the first entry."""
        return self._leaf_id

    @property
    def draft(self) -> str | None:
        """The text of the entry that ``fork(before=...)`` made this session before; None of every other handle."""
        return self._draft

    @property
    def revision(self) -> int:
        """The session's revision as this handle knows it. `watch` starts after it."""
        return self._revision

    @property
    def info(self) -> SessionInfo:
        """The session's row: ``leaf_id`` and ``revision`` as above, the rest as of the last `refresh`."""
        return changed(self._info, leaf_id=self._leaf_id, revision=self._revision)

    async def refresh(self) -> SessionInfo:
        """Read the session's row again, take over its leaf, and return it. One point read."""
        async with self._turn:
            info = await self._stored_info()
            self._info = info
            self._note(info.leaf_id, info.revision)
            return info

    async def _stored_info(self) -> SessionInfo:
        """Return the session's row as it is stored, which nothing of this handle is made to follow."""
        info = await self._backend.get_session(self._ref)
        if info is None:
            raise SessionNotFound(self.id)
        return info

    def _built_on(self, seen: Seen) -> str | None:
        """Return the leaf that an operation builds on: the one that its caller names, else this handle's."""
        return self._leaf_id if isinstance(seen.leaf, Stored) else seen.leaf

    def _expected(self, seen: Seen) -> Expected:
        """Return what an operation that builds on the leaf compares."""
        leaf = self._built_on(seen)
        return leaf if seen.revision is None else Seen(leaf, seen.revision)

    async def _compare(self, seen: Seen) -> None:
        """Compare what the caller has seen before anything is read: an operation may have nothing to write."""
        if seen != NOTHING_SEEN:
            await self._backend.append(self._ref, (), expected=self._expected(seen))

    async def _commit(self, work: Callable[[], Awaitable[Result]], note: Callable[[Result], None]) -> Result:
        """Do ``work`` when it is this call's turn, and ``note`` the result, also if the caller is cancelled."""
        async with self._turn:
            try:
                result = await work()
            except BaseException as error:
                if (committed := committed_before(error)) is not None:
                    note(cast("Result", committed.result))
                raise
            note(result)
            return result

    def _note(self, leaf_id: str | None, revision: int) -> None:
        self._leaf_id = leaf_id
        self._revision = revision

    def _keep_base(self, base: str | None, stored: str | None) -> None:
        """Build on what the caller has seen also after an entry was appended below what it has not seen."""
        if base != stored:
            self._leaf_id = base

    def _note_append(self, result: Appended) -> None:
        # No entries moved no leaf. A replay may tell of a leaf that this handle has long moved on from.
        if result.entry_ids and (not result.replayed or result.revision > self._revision):
            self._note(result.entry_ids[-1] if result.on_branch else result.leaf_id, result.revision)

    def _note_row(self, info: SessionInfo) -> None:
        self._info = info
        # The leaf stays the one this handle has seen, so that what another writer added is not built on unseen.
        if info.leaf_id == self._leaf_id:
            self._revision = info.revision

    def _note_read(self, read: PathRead | MessagesRead | ContextRead, leaf: LeafChoice) -> None:
        if isinstance(leaf, Stored):
            self._note(read.stored_leaf_id, read.revision)

    def _note_move(self, moved: Moved | None) -> None:
        if moved is not None and (not moved.replayed or moved.revision > self._revision):
            self._note(moved.to_id, moved.revision)

    def _note_task(self, task_id: str, child: SessionInfo) -> None:
        self._info = replace(self._info, task_names=self._info.task_names.with_task(task_id, child.id))

    def _note_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Appended):
            self._note_append(outcome)
        elif isinstance(outcome, Moved):
            self._note_move(outcome)
        elif isinstance(outcome, Navigated) and outcome.revision >= self._revision:
            self._note(outcome.to_id, outcome.revision)
        elif isinstance(outcome, SessionInfo) and self._ref.session_key == outcome.session_key:
            self._note_row(outcome)
        elif isinstance(outcome, SessionInfo):
            # Until now it was only to be made.
            self._info, self._ref = outcome, outcome.ref
            self._note(outcome.leaf_id, outcome.revision)


def is_of(handle: Handle, backend: Backend) -> bool:
    """Return whether a handle is on a session of this store."""
    return handle._backend is backend  # noqa: SLF001 - public, it would be a method of every session


def reach_by(handle: Handle, backend: Backend) -> None:
    """Let a handle reach its session by another backend of the same store."""
    handle._backend = backend  # noqa: SLF001 - as above
    handle._turn = backend.waiting.turn()  # noqa: SLF001 - as above


@asynccontextmanager
async def turns_of(handles: Iterable[Handle]) -> AsyncIterator[None]:
    """Wait for the turns of several handles, in one order for everybody, so that no two wait for each other."""
    async with AsyncExitStack() as turns:
        for handle in sorted(handles, key=lambda handle: (handle.id, id(handle))):
            await turns.enter_async_context(handle._turn)  # noqa: SLF001 - as above
        yield


def take_over(handle: Handle, outcome: Outcome) -> None:
    """Let a handle know what an operation on its session came to, or which session it is a handle on."""
    handle._note_outcome(outcome)  # noqa: SLF001 - as above


def take_over_task(handle: Handle, task_id: str, child: SessionInfo) -> None:
    """Let a handle know of a task session that its session was given."""
    handle._note_task(task_id, child)  # noqa: SLF001 - as above


def take_over_revision(handle: Handle, left: Left | None) -> None:
    """Let a handle know the revision of its session, unless that has a leaf which the handle has not seen."""
    if left is not None and left.leaf_id == handle.leaf_id:
        handle._note(left.leaf_id, max(left.revision, handle.revision))  # noqa: SLF001 - as above
