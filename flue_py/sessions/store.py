"""The public `Store`: it makes, finds, lists, links and deletes sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.core.calls import program_of
from flue_py.core.entries import Entry, NewEntry, checked_source
from flue_py.core.imported import check_imported_session, checked_imported_entries
from flue_py.core.jsontext import JsonValue, decode_object
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.core.listing import Scalar, SessionFilter, SessionOrder
from flue_py.core.sessions import (
    STORED,
    Appended,
    Deletion,
    LeafChoice,
    NewSession,
    OnConflict,
    ScopeDeletion,
    SessionInfo,
    SessionKind,
    SessionPage,
    StoreInfo,
    check_label,
    check_name,
    check_scope,
    scope_meant,
)
from flue_py.errors import AmbiguousId, InvalidArgument, SessionExists, SessionNotFound, shown
from flue_py.once import async_once
from flue_py.prices.book import NO_PRICER, CallPricer
from flue_py.sessions.appending import oddities_of, with_oddities, write_what_fits
from flue_py.sessions.arguments import (
    HasId,
    checked_choice,
    checked_flag,
    checked_function,
    checked_id,
    checked_messages,
    checked_metadata,
    checked_on_conflict,
    checked_ordering,
    checked_path,
    checked_place,
    checked_scalars,
    checked_scopes,
    checked_seen,
    checked_session,
    checked_text,
    optional,
)
from flue_py.sessions.atomic import Atomic
from flue_py.sessions.budgeting import StoreBudgets
from flue_py.sessions.collecting import Collector
from flue_py.sessions.eventing import StoreEvents
from flue_py.sessions.filing import StoreFiles
from flue_py.sessions.finding import all_sessions, find_named
from flue_py.sessions.incoming import incoming_messages
from flue_py.sessions.making import checked_root
from flue_py.sessions.offloading import Ground, Offloader, first_landed
from flue_py.sessions.remembering import StoreMemories
from flue_py.sessions.searching import StoreSearch
from flue_py.sessions.session import Session
from flue_py.sessions.usage import StoreUsage
from flue_py.store.backend import Backend

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flue_py.context.offloading import OffloadSettings
    from flue_py.core.messages import Message
    from flue_py.core.salvaging import BackupReport


OpenMode: TypeAlias = Literal["get", "create", "get_or_create"]

_RACES = 10
_SHOWN = 5


class Store(StoreUsage, StoreBudgets, StoreMemories, StoreFiles, StoreEvents, StoreSearch):
    """A store of sessions, made by `flue_py.open`, or from a backend of one's own by ``Store(backend)``.

    Where a call leaves ``scope`` out, the scope of the store is meant (see `in_scope`). A store that is opened is of
    all scopes: there, what is made, and what is named by a key or a name, is in the scope "".

    Methods may be called concurrently. Everything raises `StoreClosed` once the store is closed.
    """

    __slots__ = ("_backend", "_limits", "_pricer", "_scope")

    def __init__(
        self,
        backend: Backend,
        limits: Limits = DEFAULT_LIMITS,
        pricer: CallPricer = NO_PRICER,
        scope: str | None = None,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._pricer = pricer
        self._scope = scope

    def in_scope(self, scope: str) -> Store:
        """Return the same store for one tenant or user alone: what it makes is in this scope, and others' is not there.

        Another ``scope`` in a call of it is `InvalidArgument`, and a session of another one is missing, also by its id.
        `verify`, `info`, `backup`, `reprice` and `backend` are of the whole store, and so is what a `Session` is given
        of others: the ``scope`` of a fork, a session to merge. Raises `InvalidArgument`. No I/O.
        """
        check_scope(scope)
        return Store(self._backend, self._limits, self._pricer, scope_meant(self._scope, scope))

    @property
    def limits(self) -> Limits:
        """The most that one call may bring."""
        return self._limits

    @property
    def backend(self) -> Backend:
        """The `Backend` below: for tools and transfer, and for what the methods of `Store` and `Session` do not offer.

        Its methods check less than theirs, price nothing, and are coroutine functions, in `flue_py.sync`, too.
        """
        return self._backend

    # -- making and finding sessions --------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        key: str | None = None,
        title: str | None = None,
        scope: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session with an empty history, and return a handle on it.

        ``key`` is unique per scope and may be "". ``id`` is made where it is left out. Raises `SessionExists`
        for a taken key or id, `InvalidArgument`, and `InvalidEntry` for metadata JSON cannot hold. O(1).
        """
        text = checked_metadata(metadata, self._limits)
        new = NewSession(key, title, self._place(scope), text, cwd, config_path, id)
        return await self._create(new)

    async def _create(self, new: NewSession) -> Session:
        return self._session(await self._backend.create_session(checked_root(new)))

    def _session(self, info: SessionInfo) -> Session:
        return Session(self._backend, info, self._limits, self._pricer)

    async def open_session(
        self,
        key: str,
        *,
        mode: OpenMode = "get",
        scope: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
    ) -> Session:
        """Return a handle on the session with this key in this scope.

        ``get`` raises `SessionNotFound` for a missing key, ``create`` raises `SessionExists` for a taken one, and
        ``get_or_create`` returns the one session that all callers get, however many race. The
        arguments after ``scope`` are for a session that is created. O(1), whatever the history.
        """
        checked_choice(mode, "mode", ("get", "create", "get_or_create"))
        if not isinstance(key, str):
            raise InvalidArgument(f"key: should be a string, not {type(key).__name__}")
        text = checked_metadata(metadata, self._limits)
        new = NewSession(key, title, self._place(scope), text, cwd, config_path)
        if mode == "create":
            return await self._create(new)
        for attempt in range(_RACES):
            info = await self._backend.get_session_by_key(key, new.scope)
            if info is not None:
                return self._session(info)
            if mode == "get":
                raise SessionNotFound(
                    key,
                    detail=f"no session has the key {shown(key)} in scope {shown(new.scope)}; "
                    "name its scope, or open it with mode='get_or_create'",
                )
            try:
                return await self._create(new)
            except SessionExists:
                # Another caller was faster, and its session is the one; unless it is deleted before we look.
                if attempt == _RACES - 1:
                    raise
        raise AssertionError("unreachable")

    async def get_session(self, id: str, *, scope: str | None = None) -> Session | None:
        """Return a handle on the session with this id; None if it is missing, or in another scope. O(1)."""
        info = await self._backend.get_session(str(checked_session(id)), self._meant(scope))
        return None if info is None else self._session(info)

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return the entry with this id, whichever session of the store has it; None if there is none.

        It may be on any branch, or retracted. Its ``session_id`` is the session that added it, None if that is deleted;
        `in_scope` keeps users apart: there it is what a session of the scope sees. Ids that the store draws are never
        in two histories; ids that were imported may be: `AmbiguousId`, whose ``matches`` are sessions to read it with.
        One point read; in a scope O(its sessions) for what others added, or have as well.
        """
        checked_id(entry_id, "entry_id")
        if self._scope is None:
            return await self._backend.find_entry(entry_id)
        with suppress(AmbiguousId):
            found = await self._backend.find_entry(entry_id)
            owner = None if found is None else found.session_id
            if found is None or (owner and await self._backend.get_session(owner, self._scope) is not None):
                return found
        # Others added it, or have one of this id as well: it is there if a session of this scope sees it.
        refs = [info.ref for info in await all_sessions(self._backend, scope=self._scope)]
        seen = await self._backend.read_named([(ref, entry_id) for ref in refs])
        entries = {entry: str(ref) for ref, entry in zip(refs, seen, strict=True) if entry is not None}
        if len(entries) > 1:
            raise AmbiguousId(entry_id, tuple(entries.values())[:_SHOWN])
        return next(iter(entries), None)

    async def find_session(self, name: str, *, scope: str | None = None) -> Session:
        """Return a handle on the session that a person means by ``name``: its id or key, or the beginning of one.

        A whole id counts before a whole key, that before the beginning of an id, and that before the beginning of a
        key. A hexadecimal id is found in any case; an id that others continue with a colon is the one meant, as
        imported task sessions are called. In all scopes the empty one counts first. Raises
        `SessionNotFound`, `AmbiguousId` with the ids that fit, `InvalidArgument`. O(1) for a whole id or key and the
        beginning of an id, else O(sessions).
        """
        return self._session(await find_named(self._backend, name, self._meant(scope)))

    async def list_sessions(
        self,
        *,
        scope: str | None = None,
        kind: SessionKind | None = None,
        order_by: SessionOrder = "activity",
        descending: bool = True,
        title: str | None = None,
        key: str | None = None,
        cwd: str | None = None,
        completed: bool | None = None,
        scopes: Sequence[str] | None = None,
        scope_prefix: str | None = None,
        metadata: Mapping[str, Scalar] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of sessions from their rows alone, by default most recently active first.

        ``order_by`` is ``activity`` (the time of the newest entry), ``updated`` (any change), ``created``, ``title``,
        ``messages``, ``entries``, ``tokens`` or ``cost``, falling unless ``descending`` is False; equal ones are in the
        order they were made. What has no price counts as nothing. ``title`` is part of the title that is shown, in any
        case. ``scopes`` are several of them, ``scope_prefix`` is how they begin.
        ``metadata`` are keys of the top level and the values that they have, texts, numbers, booleans or None: 1 is
        neither 1.0 nor True. All conditions hold together.

        ``limit`` is 1 to 1000 (see `Limits`); ``cursor`` is the ``next_cursor`` of the page before, in the same order
        and with the same conditions. O(page) by ``activity``, ``created`` and ``title``, while most sessions meet the
        conditions; in one ``scope`` by ``activity`` however many others there are. O(sessions) by the other orders, and
        with ``scopes`` and ``scope_prefix`` O(sessions in those scopes). ``metadata`` have no index: name a scope,
        too, in a large store. Raises `InvalidArgument`.
        """
        self._limits.check_page(limit)
        if kind is not None:
            checked_choice(kind, "kind", ("root", "fork", "task"))
        check_label(cursor, "cursor")
        where = SessionFilter(
            title=checked_text(title, "title"),
            key=checked_text(key, "key"),
            cwd=checked_text(cwd, "cwd"),
            completed=optional(checked_flag, completed, "completed"),
            scopes=None if scopes is None else checked_scopes(scopes),
            scope_prefix=checked_text(scope_prefix, "scope_prefix"),
            metadata=None if metadata is None else checked_scalars(metadata),
        )
        ordering = checked_ordering(order_by, descending)
        return await self._backend.list_sessions(
            scope=self._meant(scope), kind=kind, limit=limit, cursor=cursor, where=where, ordering=ordering
        )

    async def import_session(
        self,
        new: NewSession,
        entries: Sequence[NewEntry],
        *,
        leaf: str | None,
        on_oddity: Callable[[str], None] | None = None,
    ) -> Session:
        """Create a session from entries that bring their own ids, parents and times, parents first.

        ``leaf`` is one of them, or None. One transaction. Raises `SessionExists`, `InvalidEntry`, `EntryNotFound`
        (for a parent or the leaf). Of a paid call that was reported before, the ledger keeps the first report;
        `call_conflicts` tells where the numbers are others. ``on_oddity`` is called with what of the usage was not
        counted as it was reported, and why, as `Appended.oddities` have it. O(entries).
        """
        checked_function(on_oddity, "on_oddity")
        check_imported_session(new)
        scope_meant(self._scope, new.scope)
        entries = checked_imported_entries(entries, program_of(decode_object(new.metadata_text)))
        checked_place(leaf, "leaf")
        self._limits.check_metadata(new.metadata_text)
        self._limits.check_entries(entries)

        async def write(priced: Sequence[NewEntry]) -> SessionInfo:
            return await self._backend.import_session(new, priced, leaf=leaf)

        info, written = await write_what_fits(write, self._pricer.price_entries(entries))
        if on_oddity is not None:
            for oddity in oddities_of(written):
                on_oddity(oddity)
        return self._session(info)

    async def append_messages(
        self,
        session: HasId | str,
        messages: Sequence[Mapping[str, JsonValue] | Message | BaseModel],
        *,
        source: str | None = None,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append messages to a session without a handle on it: one transaction, for callers who keep no state.

        They land below ``expected_leaf``, which has to be the stored leaf (`LeafConflict`) unless ``on_conflict`` says
        otherwise; left out, below whatever is stored. Otherwise as `Session.append_messages`. Raises `SessionNotFound`,
        too. O(len(messages)).
        """
        seen = checked_seen(expected_leaf, expected_revision)
        checked_on_conflict(on_conflict)
        check_name(idempotency_key, "idempotency_key")
        session_id = await self._own(session)
        incoming = incoming_messages(checked_messages(messages), source)
        checked_source(source)
        if offload is not None:
            offloader = Offloader(self._backend, self._limits, offload)
            first = await first_landed(self._backend, session_id, idempotency_key)
            ground = Ground(session_id, seen.leaf if first is None else first.parent_id)
            incoming = await offloader.with_stubs(incoming, ground)
        self._limits.check_entries(incoming.entries)

        async def write(priced: Sequence[NewEntry]) -> Appended:
            return await self._backend.append(
                session_id, priced, expected=seen, on_conflict=on_conflict, idempotency_key=idempotency_key
            )

        written = await write_what_fits(write, self._pricer.price_entries(incoming.entries))
        return incoming.noted_in(with_oddities(*written))

    @async_once("atomic()")
    async def atomic(self, *, idempotency_key: str | None = None) -> AsyncIterator[Atomic]:
        """Collect operations on any sessions, and commit them as one at the end of the ``async with``: all, or none.

        Nothing is written, and no lock is held, before the end; a block that raises writes nothing. Each operation
        finds what earlier ones of the batch did, and its ids are known at once. What one of them raises, such as
        `LeafConflict`, undoes all of them; the error's ``operation`` is the number of the one it came from, from 0.
        Handles that took part know their leaf and revision afterwards, also if the caller is cancelled while the commit
        is under way. With an ``idempotency_key`` the whole batch is done once: the key belongs to the first session
        that it names and does not make itself; single operations may have keys of their own. Raises as the operations
        do, and `InvalidArgument` for a key that no session would have. The sum of their costs.
        """
        batch = Collector(self._backend, self._limits, self._pricer, self._scope, idempotency_key)
        try:
            yield Atomic(batch)
        finally:
            batch.close()
        await batch.commit()

    # -- tasks and deletion -----------------------------------------------------------------------------------

    async def link_task(
        self,
        parent: HasId | str,
        child: HasId | str,
        *,
        task_id: str,
        entry_id: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> None:
        """Link a session to a parent, as its task session: a bare link, with no check of depth.

        ``entry_id`` is the entry of the parent below which the task began, where that is known. Several parents,
        cycles, and a child that does not exist are legal; a second link to the same child is ignored, unless it says
        where the task began and the first did not. ``expected_leaf`` and ``expected_revision`` are what was seen of the
        parent. Raises `SessionNotFound` for it, `LeafConflict`, `RevisionConflict`. O(1).
        """
        check_name(checked_id(task_id, "task_id"), "task_id")
        seen = checked_seen(expected_leaf, expected_revision)
        child_id = str(checked_session(child))
        parent_id = await self._own(parent)
        await self._own(child_id)
        await self._backend.link_task(parent_id, child_id, task_id, entry_id=entry_id, expected=seen)

    async def delete_session_tree(
        self,
        session: HasId | str,
        *,
        scope: str | None = None,
        dry_run: bool = False,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Deletion:
        """Delete a session, the task sessions it links to, theirs, and every entry no other session sees.

        One transaction. Forks survive, with what they see. A missing session, or one in another scope, is not an
        error; where a scope is meant, tasks in another one stay. What it cost stays in the ledger. With ``dry_run`` it
        only says what would go. With ``expected_leaf`` or ``expected_revision``, what was seen of the session, it
        deletes nothing that was saved since: `LeafConflict`, `RevisionConflict`. O(rows deleted).
        """
        seen = checked_seen(expected_leaf, expected_revision)
        checked_flag(dry_run, "dry_run")
        meant = self._meant(scope)
        return await self._backend.delete_tree(checked_session(session), scope=meant, dry_run=dry_run, expected=seen)

    async def delete_scope(self, scope: str, *, dry_run: bool) -> ScopeDeletion:
        """Delete everything of a tenant or user: sessions, memories, files, budgets, and names in the ledger.

        What was paid stays: amounts, models and days under the scope and the ids of its sessions, entries and calls,
        without agents and folders; so do task sessions in another scope, and what sessions of other scopes see.
        With ``dry_run``, which has to be said, it only tells what would go. Each session tree is a transaction
        of its own, and the rest is one: what was interrupted is finished by the same call. Raises `InvalidArgument`.
        O(rows deleted + ledger).
        """
        checked_flag(dry_run, "dry_run")
        check_scope(scope)
        place = self._place(scope)
        # Budgets of sessions go with these.
        contents = await self._backend.empty_scope(place, dry_run=True)
        trees: list[Deletion] = []
        # A session that somebody writes to meanwhile, or makes, may be in no page that was read.
        while there := await all_sessions(self._backend, scope=place):
            trees += [await self._backend.delete_tree(info.ref, scope=place, dry_run=dry_run) for info in there]
            if dry_run:
                break
        if not dry_run:
            await self._backend.empty_scope(place)
        return ScopeDeletion(
            tuple(dict.fromkeys(session_id for tree in trees for session_id in tree.session_ids)),
            None if dry_run else sum(tree.entries_deleted for tree in trees),
            None if dry_run else sum(tree.entries_kept for tree in trees),
            *contents,
        )

    # -- the store itself -------------------------------------------------------------------------------------

    async def backup(
        self,
        path: str | PathLike[str],
        *,
        overwrite: bool = False,
        verify: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> BackupReport:
        """Copy a store that is a SQLite file into another file, as it is at one moment, while writers go on. O(store).

        The copy is readable by its owner only, and appears under its name when it is whole and, with ``verify``,
        verified. ``progress`` is called, on another thread, with the pages copied and the pages in all. Raises
        `InvalidArgument` where there is a file, unless ``overwrite``, and for a store in memory or on PostgreSQL;
        `CorruptStore` where the copy does not verify, because the store does not.
        """
        target = checked_path(path, "path")
        checked_flag(overwrite, "overwrite")
        checked_flag(verify, "verify")
        checked_function(progress, "progress")
        copying = self._backend.backup(target, overwrite=overwrite, verified=verify, progress=progress)
        return await self._backend.waiting.finish(copying)

    async def info(self) -> StoreInfo:
        """Return what the store says of itself: where it is, its format, and how much it holds."""
        return await self._backend.info()

    async def close(self) -> None:
        """Finish what was started and close the store, as leaving ``async with flue_py.open(...)`` does. Idempotent."""
        await self._backend.waiting.finish(self._backend.close())
