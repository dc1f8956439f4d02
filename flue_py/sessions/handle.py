"""A handle on one session: its lock, the leaf it builds on, and how a change is committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

from flue_py.core.context import ContextEntry, ContextRead, PrefixChain
from flue_py.core.entries import Entry, PathSettings
from flue_py.core.json import JsonObject, JsonValue, changed, frozen
from flue_py.core.operations import Left, Outcome
from flue_py.core.sessions import (
    DEFAULT_LIMITS,
    NOTHING_SEEN,
    STORED,
    Appended,
    Change,
    Expected,
    LeafChoice,
    Limits,
    MessagesRead,
    Moved,
    Navigated,
    Note,
    PathRead,
    ReadStamp,
    Seen,
    SessionInfo,
    SessionKind,
    SessionRef,
    Stored,
    check_scope,
    checked_title,
    scope_meant,
)
from flue_py.db.backend import Backend
from flue_py.db.runner import committed_before
from flue_py.db.waiting import Waiting
from flue_py.errors import InvalidArgument, SessionNotFound, StoreClosed
from flue_py.prices import NO_PRICER, CallPricer
from flue_py.sessions.arguments import (
    ChangedMetadata,
    HasId,
    checked_flag,
    checked_limit,
    checked_metadata,
    checked_moment,
    checked_revision,
    checked_seen,
    checked_session,
)

# ---------------------------------------------------------------------------------------------------------------------
# A handle on one session: its lock, the leaf it builds on, and how a change is committed.

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


# ---------------------------------------------------------------------------------------------------------------------
# Title, metadata and completion of a session. Each change is a line of its log.


class Editing(Handle):
    """What a `Session` changes of its own row."""

    __slots__ = ()

    async def set_title(
        self,
        title: str | None,
        *,
        auto: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Set or clear the title, and return the session's row. O(1).

        A title of white space only is none. With ``auto`` it is the title that a program made. It is kept apart: a
        title that was given is shown before it, whichever came later (`SessionInfo.shown_title`).
        """
        title = checked_title(title)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        update = partial(self._backend.update_session, self._ref, expected=seen, note=note)
        change = partial(update, auto_title=title) if checked_flag(auto, "auto") else partial(update, title=title)
        return await self._commit(change, self._note_row)

    async def set_metadata(
        self,
        metadata: Mapping[str, JsonValue],
        *,
        merge: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Replace the metadata, and return the session's row.

        With ``merge`` only the top-level keys given are replaced, in one transaction: of two handles that merge at
        the same time, neither loses what the other gave. What links say is passed over, so that `metadata` may be
        changed and given back: a ``parentSession``, ``taskId`` or ``depth`` that the link has, too, and such items of
        ``taskSessions``. Anything else under these names is stored, and stands before what links say. What a
        `CompactionGuard` remembers stays, unless its key is given. Raises `InvalidArgument`, `InvalidEntry`.
        """
        if metadata is None:
            raise InvalidArgument("metadata: should be an object, not None; {} takes all of yours away")
        text = checked_metadata(metadata, self._limits)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        change = ChangedMetadata(text, checked_flag(merge, "merge"), self._limits)
        work = partial(self._backend.update_session, self._ref, metadata_text=change, expected=seen, note=note)
        return await self._commit(work, self._note_row)

    async def set_completed(
        self,
        at: datetime | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Note when the session's work was completed, or with None that it goes on; return the session's row."""
        moment = None if at is None else checked_moment(at)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        work = partial(self._backend.update_session, self._ref, completed_us=moment, expected=seen, note=note)
        return await self._commit(work, self._note_row)


# ---------------------------------------------------------------------------------------------------------------------
# The scope that a store is narrowed to: what it means where a call leaves the scope out, and what is not there.


async def refuse_others(backend: Backend, scope: str | None, ids: Iterable[str]) -> None:
    """Raise `SessionNotFound` for an id whose session is of another scope; None is all, where nothing is read."""
    for session_id in () if scope is None else ids:
        found = await backend.get_session(session_id)
        if found is not None and found.scope != scope:
            raise SessionNotFound(str(session_id))


class Scoped:
    """The part of a `Store` that knows whose sessions it is for."""

    __slots__ = ()
    _backend: Backend
    _scope: str | None

    @property
    def scope(self) -> str | None:
        """The scope that it is narrowed to (see `in_scope`); None is all of them."""
        return self._scope

    def _meant(self, scope: str | None) -> str | None:
        return scope_meant(self._scope, scope)

    def _place(self, scope: str | None) -> str:
        """Return the scope that something is made in, or named in."""
        place = self._meant(scope) or ""
        check_scope(place)
        return place

    async def _own(self, session: HasId | str) -> str:
        """Return the id of a session that was named. Raises `SessionNotFound` where it is of a scope of others."""
        session_id = checked_session(session)
        await refuse_others(self._backend, self._scope, [session_id])
        return session_id


# ---------------------------------------------------------------------------------------------------------------------
# The change feed of a session.

_WATCH_PAGE = 100


class Watching(Handle):
    """The changes of a `Session`, as they come."""

    __slots__ = ()

    async def changes(self, *, after: int = 0, limit: int = 100) -> list[Change]:
        """Return up to ``limit`` (1 to 1000) revisions after ``after``, in order and gap-free.

        Each is whole. The append of an entry that was retracted later is kept. A fork's feed begins at its
        creation. Leaves the handle alone. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        checked_revision(after)
        async with self._turn:
            return await self._backend.changes(self._ref, after, limit)

    async def watch(self, *, after: int | None = None) -> AsyncGenerator[Change, None]:
        """Yield every change after a revision (default: the handle's), then each as it comes, from any process.

        Resume with the ``revision`` of the last change seen. Runs beside the handle's other calls, and leaves
        the handle alone. Ends when the store is closed; raises `SessionNotFound` once the session is deleted.
        """
        seen = self._revision if after is None else checked_revision(after)
        has_begun = False
        try:
            async with aclosing(self._backend.notifications(self._ref)) as woken:
                async for _ in woken:
                    has_begun = True
                    while page := await self._backend.changes(self._ref, seen, _WATCH_PAGE):
                        for change in page:
                            seen = change.revision
                            yield change
        except StoreClosed:
            if not has_begun:
                raise
