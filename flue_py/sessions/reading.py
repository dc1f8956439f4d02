"""What a session handle knows and reads. The operations that change something are in `session`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar, cast

from flue_py.core.costs import EntryCost
from flue_py.core.entries import MESSAGE, Entry, from_microseconds
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.ledger import LedgerQuery
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.core.projection import ContextEntry, context_of
from flue_py.core.sessions import (
    STORED,
    Appended,
    Change,
    LeafChoice,
    PathRead,
    ReadStamp,
    SessionInfo,
    SessionKind,
    SessionRef,
    Stored,
    TaskLink,
)
from flue_py.core.told import told_by
from flue_py.core.usage import UsageWindow
from flue_py.errors import AmbiguousId, EntryNotFound, SessionNotFound, StoreClosed
from flue_py.sessions.arguments import (
    checked_flag,
    checked_id,
    checked_leaf,
    checked_limit,
    checked_moment,
    checked_place,
    checked_prefix,
    checked_revision,
)
from flue_py.sessions.listing import source_of
from flue_py.sessions.pricing import NO_PRICER, CallPricer
from flue_py.store.backend import Backend
from flue_py.store.seam import CommittedBeforeCancellation

Result = TypeVar("Result")

_WATCH_PAGE = 100
_AMBIGUOUS = 6


@frozen
class _Path:
    """The active path as last read, good while the stamp holds."""

    stamp: ReadStamp
    entries: list[Entry]


@frozen
class _Context:
    """The context as last read, good while the stamp holds; ``tail`` is the stretch of path it was made from."""

    stamp: ReadStamp
    items: list[ContextEntry]
    compaction: Entry | None
    tail: Sequence[Entry]


class SessionView:
    """The reading half of a `Session`."""

    __slots__ = (
        "_backend",
        "_context",
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
        self, backend: Backend, info: SessionInfo, limits: Limits = DEFAULT_LIMITS, pricer: CallPricer = NO_PRICER
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._pricer = pricer
        self._turn = asyncio.Lock()
        self._path: _Path | None = None
        self._context: _Context | None = None
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
        """The metadata, decoded afresh, as of the last `refresh` or `set_metadata`."""
        return self._info.metadata

    @property
    def leaf_id(self) -> str | None:
        """The leaf the next append or move builds on; None before the first entry."""
        return self._leaf_id

    @property
    def revision(self) -> int:
        """The session's revision as this handle knows it. `watch` starts after it."""
        return self._revision

    @property
    def info(self) -> SessionInfo:
        """The session's row: ``leaf_id`` and ``revision`` as above, the rest as of the last `refresh`."""
        return replace(self._info, leaf_id=self._leaf_id, revision=self._revision)

    async def refresh(self) -> SessionInfo:
        """Read the session's row again, take over its leaf, and return it. One point read."""
        async with self._turn:
            info = await self._backend.get_session(self.ref)
            if info is None:
                raise SessionNotFound(self.id)
            self._info = info
            self._note(info.leaf_id, info.revision)
            return info

    # -- the active path --------------------------------------------------------------------------------------

    async def get_active_path(self, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the entries from root to leaf. O(path); one point read where nothing changed.

        Raises `EntryNotFound` for a ``leaf`` the session does not see.
        """
        checked_leaf(leaf)
        async with self._turn:
            known = self._path
            read = await self._backend.read_path(self.ref, leaf=leaf, unless=None if known is None else known.stamp)
            self._note_read(read, leaf)
            if read.entries is None:
                return list(known.entries) if known else []
            entries = list(read.entries)
            if isinstance(leaf, Stored):
                self._path = _Path(read.stamp, entries)
            return list(entries)

    async def get_active_path_since(self, since: str | None, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the path's entries after ``since``; all for None, none where it is not on the path.

        O(entries returned + forks on the path).
        """
        checked_place(since, "since")
        checked_leaf(leaf)
        async with self._turn:
            read = await self._backend.read_path_since(self.ref, since, leaf=leaf)
            self._note_read(read, leaf)
            return list(read.entries or ())

    async def turns(self, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the user messages of the path, root to leaf: the turns that `rewind` counts.

        What programs wrote in the user's name (commands, contexts, reminders) begins no turn.
        """
        checked_leaf(leaf)
        async with self._turn:
            return await self._backend.read_turns(self.ref, leaf=leaf)

    async def latest_assistant(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last assistant message on the path, or None. Usually the cost of the context."""
        context = await self._read_context(leaf)
        found = _last_assistant(context.tail)
        if found is None and context.compaction is not None:
            found = _last_assistant(await self.get_active_path(leaf=context.stamp.leaf_id))
        return found

    async def is_ancestor(self, entry_id: str, *, of: str) -> bool:
        """Return whether ``entry_id`` is ``of`` or an ancestor of it. Raises `EntryNotFound` for either."""
        checked_id(entry_id, "entry_id")
        checked_id(of, "of")
        async with self._turn:
            return await self._backend.is_ancestor(self.ref, entry_id, of)

    # -- what the model sees ----------------------------------------------------------------------------------

    async def build_context_entries(self, *, leaf: LeafChoice = STORED) -> list[ContextEntry]:
        """Return what the model sees, in order, with the entry behind each item.

        The faithful projection of the active path, and of nothing else: the same leaf gives the same items, in
        every process. O(kept entries + forks on the path); one point read and a list copy where nothing changed.
        Raises `EntryNotFound` for a ``leaf`` the session does not see.
        """
        return list((await self._read_context(leaf)).items)

    async def build_context(self, *, leaf: LeafChoice = STORED) -> list[JsonObject]:
        """Return the messages the model sees as JSON objects, fresh at each call and the caller's to change."""
        checked_leaf(leaf)
        async with self._turn:
            read = await self._backend.read_messages(self.ref, leaf=leaf)
            if isinstance(leaf, Stored):
                self._note(read.stored_leaf_id, read.revision)
            return read.messages

    async def latest_compaction(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last compaction on the path, or None. The cost of the context."""
        return (await self._read_context(leaf)).compaction

    async def _read_context(self, leaf: LeafChoice) -> _Context:
        checked_leaf(leaf)
        async with self._turn:
            known = self._context
            read = await self._backend.read_context(self.ref, leaf=leaf, unless=None if known is None else known.stamp)
            self._note_read(read, leaf)
            if read.entries is None and known is not None:
                return known
            tail = read.entries or ()
            items = context_of(tail, read.compaction)
            context = _Context(read.stamp, items, read.compaction, tail)
            if isinstance(leaf, Stored):
                self._context = context
            return context

    async def aggregate_usage_since(
        self, before: str | None, *, leaf: LeafChoice = STORED, told: bool = False
    ) -> UsageWindow:
        """Return what the entries after ``before`` up to the leaf used; None is the whole path.

        Where ``before`` is not on the path, ``on_path`` is False and the usage zero, never that of the whole
        history. Assistant messages and compactions count. O(forks on the path), whatever the window. With ``told``
        the window also knows which kinds of tokens were reported (`UsageWindow.known`): O(calls of the tree), and
        O(window) where another session paid for what the window has.
        """
        checked_place(before, "before")
        checked_leaf(leaf)
        checked_flag(told, "told")
        async with self._turn:
            window = await self._backend.read_usage(self.ref, before, leaf=leaf)
            if isinstance(leaf, Stored):
                self._note(window.leaf, self._revision)
            return replace(window, told=await self._told(window)) if told else window

    async def _told(self, window: UsageWindow) -> frozenset[str]:
        """Return which numbers of tokens of a window are 0 because somebody reported it, or nothing was called."""
        found: frozenset[str] = frozenset()
        if not window.on_path:
            return told_by(())
        is_whole = False
        if window.calls:
            asked = LedgerQuery(self.ref, on_path=True, leaf=window.leaf, since=window.since)
            paid = (await self._backend.read_ledger(asked)).total.known
            found = frozenset(name for name, count in paid.items() if count is not None)
            is_whole = all((paid[name] or 0) >= (count or 0) for name, count in window.known.items())
        if is_whole or None not in window.usage.known(found).values():
            return found
        # What another session paid for, its ledger has elsewhere: the entries say it themselves.
        read = await self._backend.read_path_since(self.ref, window.since, leaf=window.leaf)
        return found | told_by(read.entries or ())

    async def entry_costs(self) -> dict[str, EntryCost]:
        """Return what the calls of each entry the session sees cost, by entry id, as the ledger knows it.

        That is what was reported, or what was priced at the time of the call: every branch, retries and compactions,
        whichever session paid. Left out are entries that paid for nothing, copies, and entries whose call another
        session reported first. O(calls of the tree).
        """
        async with self._turn:
            return await self._backend.read_entry_costs(self.ref)

    # -- the whole tree ---------------------------------------------------------------------------------------

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return an entry the session sees, on the path or off it, or None. One point read."""
        checked_id(entry_id, "entry_id")
        async with self._turn:
            return await self._backend.get_entry(self.ref, entry_id)

    async def resolve_entry_id(self, prefix: str) -> str:
        """Return the id of the one entry the session sees whose id is, or begins with, ``prefix``.

        Raises `EntryNotFound`, `AmbiguousId`.
        """
        checked_prefix(prefix)
        async with self._turn:
            found = await self._backend.match_entry_ids(self.ref, prefix, _AMBIGUOUS)
        if not found:
            raise EntryNotFound(self.id, prefix)
        if len(found) > 1 and found[0] != prefix:
            raise AmbiguousId(prefix, tuple(found))
        return found[0]

    async def get_tree(self) -> list[Entry]:
        """Return every entry the session sees, all branches: inherited ones root first, then its own as added.

        Retracted entries are left out. O(entries).
        """
        async with self._turn:
            return await self._backend.read_tree(self.ref)

    async def labels(self) -> dict[str, str]:
        """Return the labels of this session's entries, by entry id; not of those it has retracted."""
        async with self._turn:
            marks = await self._backend.read_marks(self.ref)
        retracted = {mark.entry_id for mark in marks if mark.kind == "retracted"}
        return {
            mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label" and mark.entry_id not in retracted
        }

    async def task_links(self) -> list[TaskLink]:
        """Return the links to task sessions, in the order they were made. A link outlives its child."""
        async with self._turn:
            return await self._backend.task_links(self.ref)

    async def task_parents(self) -> list[TaskLink]:
        """Return the links that point to this session, by parent id."""
        async with self._turn:
            return await self._backend.task_parents(self.ref)

    async def name(self) -> str:
        """Return what the session is known by in every list, tree, report and transcript, on one line.

        That is its title, given or else made, else its key, else how it begins; of a fork that has none of the first
        three, also what it was forked from: ``(fork of …)``. "(empty)" where there is nothing to tell. O(1).
        """
        from flue_py.render.views import session_name  # noqa: PLC0415 - only what shows sessions needs it

        async with self._turn:
            info = await self._backend.get_session(self.ref)
            if info is None:
                raise SessionNotFound(self.id)
            return session_name(info, await source_of(self._backend, info))

    async def html_report(
        self, *, warn_at: int = 0, cutover_at: int = 0, made_at: datetime | None = None, sizes: bool = True
    ) -> str:
        """Return the session and its task sessions as one HTML file, which asks no network for anything.

        It shows the tree with every branch, what the model sees at each entry against what is stored, how the context
        of each agent grew, and what the session and its tasks have paid, by model. Tasks come last active first.
        ``warn_at`` and ``cutover_at`` draw lines at so many input tokens; 0 draws none. ``sizes=False`` saves the time
        to count tokens. What is stored and the arguments decide every byte: the time of making is on the page only as
        ``made_at`` (UTC). O(entries + calls of the trees), and O(path) for each compaction. Raises `InvalidArgument`.
        """
        from flue_py.render.report import html_report  # noqa: PLC0415 - only who makes a report needs it
        from flue_py.sessions.reporting import checked_thresholds, read_bill, read_reported  # noqa: PLC0415

        thresholds = checked_thresholds(warn_at, cutover_at)
        checked_flag(sizes, "sizes")
        made = None if made_at is None else from_microseconds(checked_moment(made_at))
        first, *tasks = await read_reported(self._backend, self.ref, sizes=sizes)
        found = [first, *sorted(tasks, key=lambda task: task.info.active_us, reverse=True)]
        bill = await read_bill(self._backend, self.ref)
        return html_report(found, thresholds, bill=bill, made_at=made)

    async def context_snapshots(self, *, warn_at: int = 0, cutover_at: int = 0) -> str:
        """Return what the chart of `html_report` shows, as JSON lines: one a turn, one a compaction.

        Session by session, tasks after what started them, each in the order of its active path. ``warn_at`` and
        ``cutover_at`` are repeated in each line, and left out where 0. O(entries). Raises `InvalidArgument`.
        """
        from flue_py.render.report import context_snapshots  # noqa: PLC0415 - only who makes a report needs it
        from flue_py.sessions.reporting import checked_thresholds, read_reported  # noqa: PLC0415

        thresholds = checked_thresholds(warn_at, cutover_at)
        return context_snapshots(await read_reported(self._backend, self.ref, sizes=False), thresholds)

    # -- the change feed --------------------------------------------------------------------------------------

    async def changes(self, *, after: int = 0, limit: int = 100) -> list[Change]:
        """Return up to ``limit`` (1 to 1000) revisions after ``after``, in order and gap-free.

        Each is whole. The append of an entry that was retracted later is kept. A fork's feed begins at its
        creation. Leaves the handle alone. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        checked_revision(after)
        async with self._turn:
            return await self._backend.changes(self.ref, after, limit)

    async def watch(self, *, after: int | None = None) -> AsyncGenerator[Change, None]:
        """Yield every change after a revision (default: the handle's), then each as it comes, from any process.

        Resume with the ``revision`` of the last change seen. Runs beside the handle's other calls, and leaves
        the handle alone. Ends when the store is closed; raises `SessionNotFound` once the session is deleted.
        """
        seen = self._revision if after is None else checked_revision(after)
        woken = self._backend.notifications(self.ref)
        has_begun = False
        try:
            async for _ in woken:
                has_begun = True
                while page := await self._backend.changes(self.ref, seen, _WATCH_PAGE):
                    for change in page:
                        seen = change.revision
                        yield change
        except StoreClosed:
            if not has_begun:
                raise
        finally:
            if isinstance(woken, AsyncGenerator):
                await woken.aclose()

    # -- how it is done ---------------------------------------------------------------------------------------

    async def _commit(self, work: Callable[[], Awaitable[Result]], note: Callable[[Result], None]) -> Result:
        """Do ``work`` when its turn has come, and ``note`` what came of it, also where the caller is cancelled."""
        async with self._turn:
            try:
                result = await work()
            except CommittedBeforeCancellation as cancelled:
                note(cast("Result", cancelled.result))
                raise
            note(result)
            return result

    def _note(self, leaf_id: str | None, revision: int) -> None:
        self._leaf_id = leaf_id
        self._revision = revision

    def _note_append(self, result: Appended) -> None:
        # No entries moved no leaf. A replay may tell of a leaf that this handle has long moved on from.
        if result.entry_ids and (not result.replayed or result.revision > self._revision):
            self._note(result.entry_ids[-1] if result.on_branch else result.leaf_id, result.revision)

    def _note_read(self, read: PathRead, leaf: LeafChoice) -> None:
        if isinstance(leaf, Stored):
            self._note(read.stored_leaf_id, read.revision)


def _last_assistant(entries: Sequence[Entry]) -> Entry | None:
    """Return the last assistant message of the end of a path; pinned entries from before it are none of it."""
    depth = None
    for entry in reversed(entries):
        if depth is not None and entry.depth != depth - 1:
            break
        depth = entry.depth
        if entry.kind == MESSAGE and entry.role == "assistant":
            return entry
    return None
