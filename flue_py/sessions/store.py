"""The public `Store`: it makes, finds, lists, links and deletes sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from os import PathLike, fspath
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, Unpack, cast

from msgspec.structs import replace

from flue_py import db, errors
from flue_py.core import operations
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import decode_object
from flue_py.core.ledger import Budget
from flue_py.core.operations import Seen, SessionEvent
from flue_py.core.sessions import (
    DEFAULT_LIMITS,
    STORED,
    Appended,
    Deletion,
    Document,
    DocumentFilter,
    DocumentInfo,
    DocumentName,
    DocumentsFound,
    KeyChange,
    Limits,
    NewDocument,
    NewSession,
    Ordering,
    Scalar,
    SessionFilter,
    SessionInfo,
    SessionKind,
    SessionOrder,
    SessionPage,
    SessionRef,
    StoreInfo,
    VerifyReport,
    check_choice,
    check_document_name,
    check_label,
    check_name,
    check_new_name,
    check_scope,
    scope_meant,
    searched_words,
)
from flue_py.core.usage import CallDifference, program_of
from flue_py.db.backend import Backend, Key, KeyChoice, Keys, named_fingerprint
from flue_py.db.runner import Sources, now_us, random_id
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import expression, lazy_module
from flue_py.prices import NO_PRICER, CallPricer, PricesChoice, choose_prices
from flue_py.sessions import handle
from flue_py.sessions.erase import StoreErasure
from flue_py.sessions.handle import HasId, Scoped
from flue_py.sessions.money import StoreBudgets, StoreUsage
from flue_py.sessions.session import Session
from flue_py.sessions.write import Writing, checked_root, oddities_of, write_what_fits
from flue_py.system import async_once, in_full

if TYPE_CHECKING:
    from pydantic import BaseModel
    from sqlalchemy.ext.asyncio import AsyncEngine

    from flue_py import search
    from flue_py.context.artifacts import OffloadSettings
    from flue_py.core import trees
    from flue_py.core.chain import Age, Head, Witness
    from flue_py.core.messages import Message
    from flue_py.core.trees import BackupReport
    from flue_py.db.secrets import SecretsChoice
    from flue_py.search import How, Part, SearchAnswer
    from flue_py.sessions import batch as batches
    from flue_py.sessions import search as engine
    from flue_py.sessions.batch import Atomic
else:
    # Most programs search nothing and write one thing at a time.
    search = lazy_module("flue_py.search")
    trees = lazy_module("flue_py.core.trees")
    engine = lazy_module("flue_py.sessions.search")
    batches = lazy_module("flue_py.sessions.batch")


# ---------------------------------------------------------------------------------------------------------------------
# The events of the sessions and budgets of a store, from their rows.

_LOOKS_A_SECOND = 16_000
_REST_SECONDS = 0.02
"""How long a follower rests behind each look, and longer where it looks at more sessions and budgets than so many a
second: commits of that time are told by one look, so that looking takes a small part of the time."""


class StoreEvents(Scoped):
    """The events of a `Store`."""

    __slots__ = ()

    async def events(
        self,
        *,
        sessions: Sequence[HasId | str] | None = None,
        scope: str | None = None,
        after: Iterable[str] = (),
        follow: bool = False,
    ) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of sessions and budgets, each once, those of a session in their order.

        They are of all sessions, those of ``scope``, or ``sessions``, in the order in which these were made, and then
        of the budgets that are set for these; events of different sessions are in no order of time. With ``after``, ids
        of events, those up to and with the last of each session are left out: an event has the same id each time. A
        deletion is told of sessions that were told of before, or are named by ``after``; sessions deleted before that
        are not known. With ``follow`` it goes on with new events, from any process, until the store is closed; else it
        ends when it has looked at everything. Nothing is written.

        Raises `InvalidArgument` for a text that is no id of an event, and `SessionNotFound` for a session that is
        missing when it begins, and of which ``after`` names no event. O(sessions + budgets), with ``follow`` after each
        commit, at most 16,000 of them a second, and O(revisions that are new, and their entries).
        """
        scope = self._meant(scope)
        handle.checked_flag(follow, "follow")
        seen = operations.seen_by(_checked_ids(after))
        named = None if sessions is None else _checked_sessions(sessions)
        for session_id in named or ():
            if not seen.sessions.knows(session_id) and await self._backend.get_session(session_id, scope) is None:
                raise errors.SessionNotFound(session_id)
        looking = Looking(self._backend, named, scope, seen)
        if not follow:
            async with aclosing(looking.look()) as events:
                async for event in events:
                    yield event
            return
        has_begun = False
        try:
            async with aclosing(self._backend.commits()) as woken:
                async for _ in woken:
                    async with aclosing(looking.look()) as events:
                        async for event in events:
                            has_begun = True
                            yield event
                    has_begun = True
                    await self._backend.waiting.pause(max(_REST_SECONDS, looking.looks / _LOOKS_A_SECOND))
        except errors.StoreClosed:
            if not has_begun:
                raise


def _checked_ids(after: Iterable[str]) -> Iterable[str]:
    if isinstance(after, (str, bytes)) or not isinstance(after, Iterable):
        raise InvalidArgument(f"after: {shown(after)} is not a list of ids of events")
    return after


def _checked_sessions(sessions: Sequence[HasId | str]) -> list[str]:
    if isinstance(sessions, (str, bytes)) or not isinstance(sessions, Sequence):
        raise InvalidArgument(f"sessions: {shown(sessions)} is not a list of sessions")
    return [*dict.fromkeys(handle.checked_session(session) for session in sessions)]


# ---------------------------------------------------------------------------------------------------------------------
# Files: texts that somebody has added to a store for agents to read, as documents of the store.

_PAGE = 500
_ANY_NAME = "name"


class StoreFiles(Scoped):
    """The files of a `Store`.

    A file has a name and a project, the folder that it is for; "" is for all of them.
    """

    __slots__ = ()
    _limits: Limits

    async def add_file(
        self,
        name: str,
        text: str,
        *,
        media_type: str = "text/plain",
        source: str | None = None,
        project: str = "",
        scope: str | None = None,
    ) -> DocumentInfo:
        """Store a text for agents to read, in place of that of the same name, and return its row.

        ``source`` is where it came from. `flue_py.transfer.add_files` reads it from the disk.
        The same again changes nothing. Raises `InvalidArgument`, which never shows the text. One transaction, O(size).
        """
        new = NewDocument("file", name, text, media_type, self._place(scope), "", project, source)
        self._limits.check_document(text)
        return await self._backend.put_document(new)

    async def files(self, *, project: str | None = None, scope: str | None = None) -> tuple[DocumentInfo, ...]:
        """Return the files of a project, or of all, in order of project and name, without their texts.

        O(files). Raises `InvalidArgument`.
        """
        place = self._place(scope)
        check_document_name(DocumentName(place, "file", "", "" if project is None else project, _ANY_NAME))
        where = DocumentFilter("file", place, "", project)
        return tuple(await handle.whole_list(partial(self._backend.list_documents, where), _PAGE, lambda info: info.id))

    async def read_file(self, name: str, *, project: str = "", scope: str | None = None) -> Document | None:
        """Return a file, whole, or None if there is none of that name. Raises `InvalidArgument`. O(size)."""
        return await self._backend.get_document(_checked(name, project, self._place(scope)))

    async def remove_file(self, name: str, *, project: str = "", scope: str | None = None) -> bool:
        """Delete a file; return whether there was one. Nothing keeps its text. Raises `InvalidArgument`. O(size)."""
        return await self._backend.remove_document(_checked(name, project, self._place(scope)))


def _checked(name: str, project: str, scope: str) -> DocumentName:
    document = DocumentName(scope, "file", "", project, name)
    check_document_name(document)
    return document


# ---------------------------------------------------------------------------------------------------------------------
# The events of sessions and budgets: one look after another at their rows, each event once.

_AT_ONCE = 1_000
_REVISIONS_AT_ONCE = 100
_BY_CREATION = Ordering("created", descending=False)
_ALL = 2**63 - 1
"""The number of an event behind all those of a revision."""


class Looking:
    """Looks at the sessions that are named, or those of a scope, or all, and at the budgets of the same.

    ``seen`` are the positions told of, and grows. ``looks`` counts the sessions and budgets of the last look.
    """

    def __init__(self, backend: Backend, named: Sequence[str] | None, scope: str | None, seen: Seen) -> None:
        self._backend = backend
        self._named = named
        self._scope = scope
        self._seen = seen
        self._present: set[str] = set()
        self._budgets: set[tuple[str, int]] = set()
        self._known_budgets: set[tuple[str, int]] = set()
        """Those of earlier looks, too, where sessions are named: which others are theirs is not known."""
        self.looks = 0

    async def look(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield the new events. O(sessions + budgets), and O(revisions that are new, and their entries)."""
        self.looks = 0
        for part in (self._of_sessions, self._of_gone_sessions, self._of_budgets, self._of_gone_budgets):
            async with aclosing(part()) as events:
                async for event in events:
                    yield event

    async def _of_sessions(self) -> AsyncGenerator[SessionEvent, None]:
        self._present = set()
        async with aclosing(self._sessions()) as sessions:
            async for info in sessions:
                self.looks += 1
                self._present.add(info.id)
                async with aclosing(self._new_events(info)) as events:
                    async for event in events:
                        yield event

    async def _sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions as they are now, in the order in which they were made, or were named."""
        if self._named is not None:
            for session_id in self._named:
                info = None
                # One that was given as itself, and whose id is used again, is gone.
                with suppress(errors.SessionNotFound):
                    info = await self._backend.get_session(session_id, self._scope)
                if info is not None:
                    yield info
            return
        pages = partial(
            self._backend.list_sessions, scope=self._scope, kind=None, limit=_AT_ONCE, ordering=_BY_CREATION
        )
        async with aclosing(handle.listed_sessions(pages)) as sessions:
            async for info in sessions:
                yield info

    async def _new_events(self, info: SessionInfo) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of a session that were not seen yet, and note them; none if it is gone."""
        seen = self._seen.sessions
        revision = seen.told.get(info.id)
        if revision is not None and revision.created_us != info.created_us:
            yield operations.deleted_event(info.id, revision.created_us)
            seen.note_deletion(info.id, revision.created_us)
        at = seen.at(info.id, info.created_us)
        if at is None:
            yield operations.created_event(info)
            at = operations.Position(info.created_us, 0, 0)
        if at.revision == 0:
            # A creation is one event.
            at = at._replace(number=_ALL)
            seen.note(info.id, at)
        while at < operations.Position(info.created_us, info.revision, _ALL):
            # The revision of the last event may have further ones.
            first = at.revision if at.number == _ALL else max(at.revision - 1, 0)
            try:
                changes = await self._backend.changes(info.ref, first, _REVISIONS_AT_ONCE)
                if not changes:
                    seen.note(info.id, at._replace(number=_ALL))
                    return
                last = changes[-1].revision
                lines = await self._backend.read_log(info.ref, before=last + 1, limit=len(changes))
            except errors.SessionNotFound:
                return
            by_revision = {line.revision: line for line in lines}
            for change in changes:
                for number, event in enumerate(operations.events_of(info, change, by_revision.get(change.revision))):
                    if (change.revision, number) > (at.revision, at.number):
                        yield event
            at = operations.Position(info.created_us, last, _ALL)
            seen.note(info.id, at)

    async def _of_gone_sessions(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield the deletions of sessions of which events were told, in the order in which these were made."""
        seen = self._seen.sessions
        session_ids = seen.told if self._named is None else self._named
        missing = [name for name in session_ids if name in seen.told and name not in self._present]
        for session_id in sorted(missing, key=lambda name: (seen.told[name], name)):
            self.looks += 1
            at = seen.told[session_id]
            # By the bare id: whether there is one with it, whichever was meant.
            info = await self._backend.get_session(str(session_id))
            if info is None or info.created_us != at.created_us:
                yield operations.deleted_event(session_id, at.created_us)
                seen.note_deletion(session_id, at.created_us)
            elif self._scope not in (None, info.scope):
                # Whoever tells of its scope tells of its end.
                del seen.told[session_id]

    async def _of_budgets(self) -> AsyncGenerator[SessionEvent, None]:
        self._budgets = set()
        async with aclosing(self._all_budgets()) as pages:
            async for page in pages:
                self.looks += len(page)
                self._budgets.update((budget.id, budget.created_us) for budget in page)
                async with aclosing(self._due(page)) as events:
                    async for event in events:
                        yield event

    async def _due(self, budgets: Sequence[Budget]) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of budgets that were not seen yet: those that are gone meanwhile were set."""
        seen = self._seen.budgets
        due = [
            (budget, kind, operations.amount_of(kind, budget.allowed))
            for budget in budgets
            for kind in seen.due(budget)
        ]
        asked = [(budget, amount) for budget, kind, amount in due if kind != "budget_set"]
        amounts = [(budget.id, amount) for budget, amount in asked if budget.period is None]
        calls = await self._backend.budgets_reached(amounts) if amounts else []
        reached = dict(zip(amounts, calls, strict=True))
        for budget, amount in asked:
            if budget.period is not None:
                reached[budget.id, amount] = await self._backend.reached_in_period(budget, amount)
        for budget, kind, amount in due:
            call = None if kind == "budget_set" else reached[budget.id, amount]
            if call is not None or kind == "budget_set":
                event = operations.budget_event(kind, budget, call)
                yield event
                seen.add(event)

    async def _all_budgets(self) -> AsyncGenerator[Sequence[Budget], None]:
        """Yield the budgets as they are now, in pages, in the order they were made in; of named sessions, theirs."""
        for session_id in self._named or ():
            try:
                covering = await self._backend.covering_budgets(session_id)
            except errors.SessionNotFound:
                continue
            yield [
                budget for budget in covering if budget.session_id == session_id and self._scope in (None, budget.scope)
            ]
        after: str | None = None
        while self._named is None:
            try:
                page = await self._backend.list_budgets(scope=self._scope, after=after, limit=_AT_ONCE)
            except errors.BudgetNotFound:
                # It was deleted meanwhile. From the beginning: no event is told twice.
                after = None
                continue
            yield page
            if len(page) < _AT_ONCE:
                return
            after = page[-1].id

    async def _of_gone_budgets(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield the deletions of budgets of which events were told."""
        seen = self._seen.budgets
        if self._named is not None:
            self._known_budgets |= self._budgets
        budget_ids = seen.told.keys() if self._named is None else seen.told.keys() & self._known_budgets
        for budget_id, created_us in sorted(budget_ids - self._budgets, key=lambda budget: (budget[1], budget[0])):
            self.looks += 1
            budget = await self._backend.get_budget(budget_id)
            if budget is None or budget.created_us != created_us:
                event = operations.budget_deleted_event(budget_id, created_us)
                yield event
                seen.add(event)
            elif self._scope not in (None, budget.scope):
                del seen.told[budget_id, created_us]


# ---------------------------------------------------------------------------------------------------------------------
# Memories: facts that agents keep from one session to the next, as documents of the store.

REPL = "repl"
_SPACE = expression(r"repl|agents/.+")
_REMEMBERING_PAGE = 100


class StoreMemories(Scoped):
    """The half of a `Store` that remembers.

    A memory has a name in a space (``repl``, or ``agents/`` and the name of an agent) and a project: the absolute path
    of a folder, or "" for all of them.
    """

    __slots__ = ()
    _limits: Limits

    async def remember(
        self,
        name: str,
        body: str,
        *,
        type: str = "user",
        space: str = REPL,
        project: str = "",
        scope: str | None = None,
    ) -> DocumentInfo:
        """Keep a fact under a name, in place of the earlier one, and return its row.

        ``type`` is one word: ``user``, ``feedback``, ``project``, ``reference`` or another. The same again changes
        nothing. Raises `InvalidArgument`, which never shows the text. One transaction, O(size).
        """
        _check_place(space, project)
        new = NewDocument("memory", name, body, type, self._place(scope), space, project)
        if not body.strip():
            raise InvalidArgument("body: says nothing; forget() a memory that is no more")
        self._limits.check_document(body)
        return await self._backend.put_document(new)

    async def memories(
        self, *, space: str = REPL, project: str = "", scope: str | None = None, initialized: bool = False
    ) -> tuple[Document, ...]:
        """Return the memories that hold in a project, whole, in order of type, then of name.

        Where the project has some of its own, or is ``initialized``, these are all; else they are those that are for no
        project. The text of `flue_py.context.blocks.memory_text` has a limit. Raises `InvalidArgument`.
        O(their size).
        """
        _check_place(space, project)
        handle.checked_flag(initialized, "initialized")
        scope = self._place(scope)
        memories = await self._memories_of(DocumentFilter("memory", scope, space, project))
        if project and not memories and not initialized:
            memories = await self._memories_of(DocumentFilter("memory", scope, space, ""))
        return tuple(sorted(memories, key=lambda memory: (memory.type, memory.name)))

    async def _memories_of(self, where: DocumentFilter) -> list[Document]:
        read = partial(self._backend.read_documents, where)
        return await handle.whole_list(read, _REMEMBERING_PAGE, lambda document: document.info.id)

    async def search_memories(
        self,
        words: str,
        *,
        space: str | None = None,
        project: str | None = None,
        scope: str | None = None,
        after: DocumentName | None = None,
        limit: int = 20,
    ) -> DocumentsFound:
        """Return up to ``limit`` (1 to 1000) memories whose names or texts have all of these words.

        They are taken literally, in any case, and may be parts of words. Of all spaces and projects where none is
        named; in order of space, project and name. No index helps: a call reads up to 1,000 memories, and its
        ``after`` says where the next one goes on, None at the end. Raises `InvalidArgument`. O(size of the texts read).
        """
        if space is not None:
            _check_space(space)
        if project is not None:
            _check_project(project)
        place = self._place(scope)
        if after is not None:
            if not isinstance(after, DocumentName):
                raise InvalidArgument(
                    f"after: {shown(after)} is not the name of a document; give what the page before has"
                )
            check_document_name(after)
        where = DocumentFilter("memory", place, space, project)
        terms = searched_words(words)
        return await self._backend.search_documents(where, terms, after=after, limit=handle.checked_limit(limit))

    async def forget(self, name: str, *, space: str = REPL, project: str = "", scope: str | None = None) -> bool:
        """Delete a memory; return whether there was one. Nothing keeps its text. Raises `InvalidArgument`. O(1)."""
        _check_place(space, project)
        document = DocumentName(self._place(scope), "memory", space, project, name)
        check_document_name(document)
        return await self._backend.remove_document(document)


def _check_place(space: str, project: str) -> None:
    _check_space(space)
    _check_project(project)


def _check_space(space: str) -> None:
    if not isinstance(space, str) or not _SPACE.fullmatch(space):
        raise InvalidArgument(f"space: {shown(space)} is neither 'repl' nor 'agents/' and the name of an agent")


def _check_project(project: str) -> None:
    if not isinstance(project, str):
        raise InvalidArgument(f"project: should be a string, not {type(project).__name__}")
    if project and not (PurePosixPath(project).is_absolute() or PureWindowsPath(project).is_absolute()):
        raise InvalidArgument(f"project: {shown(project)} is not the absolute path of a folder; '' is for all of them")


# ---------------------------------------------------------------------------------------------------------------------
# The search of a store.


class StoreSearch(Scoped):
    """The search of a `Store`."""

    __slots__ = ()

    async def search(
        self,
        words: str,
        *,
        how: How = "words",
        parts: Sequence[Part] | None = None,
        sessions: Iterable[HasId | str] | None = None,
        exclude: Iterable[HasId | str] = (),
        scope: str | None = None,
        project: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 20,
        progress: Callable[[int, int], None] | None = None,
    ) -> SearchAnswer:
        """Return where something was said: up to ``limit`` (1 to 1000) texts that have these words, the best first.

        Words are taken literally, any number of them: each has to be in the text, whatever characters it has;
        ``userName`` is in ``getUserName``, and ``pool.py`` in ``src/db/pool.py``. ``how="query"`` knows ``AND``,
        ``OR``, ``NOT``, ``"phrases"``, ``begin*`` and parentheses; ``"substring"`` and ``"regex"`` read every text. The
        id of an entry or a session finds that one first, then the texts that have it. ``parts`` are ``messages``,
        ``tools``, ``thinking``, ``titles``, ``summaries``, all but thinking where none is named. ``sessions`` are
        searched with their tasks and the entries they see of the sessions they were forked from; ``project`` is a
        folder with those below it. ``since`` is included, ``until`` is not.

        The answer names the texts searched, and where each match lies. The text of a retracted entry is not
        found. On a SQLite file and on PostgreSQL, an index beside it is brought up to date first; elsewhere every text
        is read, with the same result. ``progress`` is called with the entries that were added to the index, and those
        that are missing in all. Raises `InvalidArgument`, also for a regular expression that takes more
        than five seconds of CPU time on one text, and `SessionNotFound` for one of ``sessions``. O(texts
        with the rarest word), and O(what was written since the last search); without an index O(store).
        """
        check_choice(how, "how", search.HOWS)
        if not isinstance(words, str):
            raise InvalidArgument(f"words: should be a text, not {type(words).__name__}")
        handle.checked_function(progress, "progress")
        narrowing = engine.Narrowing(
            parts=_checked_parts(parts),
            sessions=None if sessions is None else _ids(sessions, "sessions"),
            without=_ids(exclude, "exclude"),
            scope=self._meant(scope),
            project=handle.checked_text(project, "project"),
            role=handle.checked_text(role, "role"),
            tool=handle.checked_text(tool, "tool"),
            since_us=None if since is None else handle.checked_moment(since),
            until_us=None if until is None else handle.checked_moment(until),
        )
        most = handle.checked_limit(limit)
        read = partial(search.read_query, words, how)
        # A page that was pasted is read where that holds up nobody else.
        query = read() if len(words) <= search.MOST_CHARACTERS else await self._backend.waiting.call(read)
        question = engine.Asked(words, query, narrowing, most, progress)
        return await engine.answer(self._backend, question)

    async def verify(self) -> VerifyReport:
        """Re-derive everything that is stored twice; ``problems`` names the disagreements. O(store).

        The index of words beside a store in which nothing does is checked as well, and asked for words of the store.
        """
        report = await self._backend.verify()
        if report.problems:
            return report
        problems = await engine.index_problems(self._backend)
        return replace(report, problems=problems) if problems else report


def _checked_parts(parts: Sequence[Part] | None) -> tuple[Part, ...]:
    if parts is None:
        return search.DEFAULT_PARTS
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise InvalidArgument("parts: should be a list of names")
    for part in parts:
        check_choice(part, "parts", search.PARTS)
    if not parts:
        raise InvalidArgument("parts: nothing would be searched; name one, or leave them out")
    return tuple(part for part in search.PARTS if part in parts)


def _ids(sessions: Iterable[HasId | str], name: str) -> frozenset[str]:
    if isinstance(sessions, str) or not isinstance(sessions, Iterable):
        raise InvalidArgument(f"{name}: should be a list of sessions, or of their ids")
    return frozenset(str(handle.checked_session(session)) for session in sessions)


# ---------------------------------------------------------------------------------------------------------------------
# The public `Store`: it makes, finds, lists, links and deletes sessions.

OpenMode: TypeAlias = Literal["get", "create", "get_or_create"]

_RACES = 10
_SHOWN = 5


class Store(StoreUsage, StoreBudgets, StoreMemories, StoreFiles, StoreEvents, StoreErasure, StoreSearch):
    """A store of sessions, made by `flue_py.open`, or from a backend of one's own by ``Store(backend)``.

    Where a call leaves ``scope`` out, the scope of the store is meant (see `in_scope`). A store that is opened is of
    all scopes: there, sessions that are made, or are named by a key or a name, are in the scope "".

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
        """Return the same store for one tenant or user alone: its sessions are made in this scope, and those of others
        are not there.

        Another ``scope`` in a call of it is `InvalidArgument`, and a session of another one is missing, also by its id.
        `verify`, `info`, `heads`, `rekey`, `backup`, `reprice` and `backend` are of the whole store, and so are
        arguments of a `Session` that name others: the ``scope`` of a fork, a session to merge. Raises
        `InvalidArgument`. No I/O.
        """
        check_scope(scope)
        return Store(self._backend, self._limits, self._pricer, scope_meant(self._scope, scope))

    @property
    def limits(self) -> Limits:
        """The most that one call may bring."""
        return self._limits

    @property
    def backend(self) -> Backend:
        """The `Backend` below: for tools and transfer, and for reads that `Store` and `Session` do not offer.

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
        metadata: Mapping[str, object] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session with an empty history, and return a handle on it.

        ``key`` is unique per scope and may be "". ``id`` is made where it is left out. Raises `SessionExists`
        for a taken key or id, `InvalidArgument`, and `InvalidEntry` for metadata JSON cannot hold. O(1).
        """
        text = handle.checked_metadata(metadata, self._limits)
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
        metadata: Mapping[str, object] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
    ) -> Session:
        """Return a handle on the session with this key in this scope.

        ``get`` raises `SessionNotFound` for a missing key, ``create`` raises `SessionExists` for a taken one, and
        ``get_or_create`` returns the one session that all callers get, however many race. The
        arguments after ``scope`` are for a session that is created. O(1), whatever the history.
        """
        check_choice(mode, "mode", ("get", "create", "get_or_create"))
        if not isinstance(key, str):
            raise InvalidArgument(f"key: should be a string, not {type(key).__name__}")
        text = handle.checked_metadata(metadata, self._limits)
        new = NewSession(key, title, self._place(scope), text, cwd, config_path)
        if mode == "create":
            return await self._create(new)
        for attempt in range(_RACES):
            info = await self._backend.get_session_by_key(key, new.scope)
            if info is not None:
                return self._session(info)
            if mode == "get":
                raise errors.SessionNotFound(
                    key,
                    detail=f"no session has the key {shown(key)} in scope {shown(new.scope)}; "
                    "name its scope, or open it with mode='get_or_create'",
                )
            try:
                return await self._create(new)
            except errors.SessionExists:
                # Another caller was faster, and its session is the one; unless it is deleted before we look.
                if attempt == _RACES - 1:
                    raise
        raise AssertionError("unreachable")

    async def get_session(self, id: str, *, scope: str | None = None) -> Session | None:
        """Return a handle on the session with this id; None if it is missing, or in another scope. O(1)."""
        info = await self._backend.get_session(str(handle.checked_session(id)), self._meant(scope))
        return None if info is None else self._session(info)

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return the entry with this id, whichever session of the store has it; None if there is none.

        It may be on any branch, or retracted. Its ``session_id`` is the session that added it, None if that is deleted;
        `in_scope` keeps users apart: there it is an entry that a session of the scope sees. Ids that the store draws
        are never in two histories; ids that were imported may be: `AmbiguousId`, whose ``matches`` are sessions to read
        it with. One point read; in a scope O(its sessions) for entries that others added, or have as well.
        """
        handle.checked_id(entry_id, "entry_id")
        if self._scope is None:
            return await self._backend.find_entry(entry_id)
        with suppress(errors.AmbiguousId):
            entry = await self._backend.find_entry(entry_id)
            owner = None if entry is None else entry.session_id
            if entry is None or (owner and await self._backend.get_session(owner, self._scope) is not None):
                return entry
        # Others added it, or have one of this id as well: it is there if a session of this scope sees it.
        refs = [info.ref for info in await handle.all_sessions(self._backend, scope=self._scope)]
        seen = await self._backend.read_named([(ref, entry_id) for ref in refs])
        entries = {entry: str(ref) for ref, entry in zip(refs, seen, strict=True) if entry is not None}
        if len(entries) > 1:
            raise errors.AmbiguousId(entry_id, tuple(entries.values())[:_SHOWN])
        return next(iter(entries), None)

    async def find_session(self, name: str, *, scope: str | None = None) -> Session:
        """Return a handle on the session that a person means by ``name``: its id or key, or the beginning of one.

        A whole id counts before a whole key, that before the beginning of an id, and that before the beginning of a
        key. A hexadecimal id is found in any case; an id that others continue with a colon is the one meant, as
        imported task sessions are called. In all scopes the empty one counts first. Raises
        `SessionNotFound`, `AmbiguousId` with the ids that fit, `InvalidArgument`. O(1) for a whole id or key and the
        beginning of an id, else O(sessions).
        """
        return self._session(await handle.find_named(self._backend, name, self._meant(scope)))

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
        order they were made. A session without a price counts as 0. ``title`` is part of the title that is shown, in
        any case. ``scopes`` are several of them, ``scope_prefix`` is how they begin. ``metadata`` are keys of the top
        level and the values that they have, texts, numbers, booleans or None: 1 is neither 1.0 nor True. All conditions
        hold together.

        ``limit`` is 1 to 1000 (see `Limits`); ``cursor`` is the ``next_cursor`` of the page before, in the same order
        and with the same conditions. O(page) by ``activity``, ``created`` and ``title``, while most sessions meet the
        conditions; in one ``scope`` by ``activity`` however many others there are. O(sessions) by the other orders, and
        with ``scopes`` and ``scope_prefix`` O(sessions in those scopes). ``metadata`` have no index: name a scope,
        too, in a large store. Raises `InvalidArgument`.
        """
        self._limits.check_page(limit)
        if kind is not None:
            check_choice(kind, "kind", ("root", "fork", "task"))
        check_label(cursor, "cursor")
        where = SessionFilter(
            title=handle.checked_text(title, "title"),
            key=handle.checked_text(key, "key"),
            cwd=handle.checked_text(cwd, "cwd"),
            completed=handle.optional(handle.checked_flag, completed, "completed"),
            scopes=None if scopes is None else handle.checked_scopes(scopes),
            scope_prefix=handle.checked_text(scope_prefix, "scope_prefix"),
            metadata=None if metadata is None else handle.checked_scalars(metadata),
        )
        ordering = handle.checked_ordering(order_by, descending)
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
        on_conflict: Callable[[CallDifference], None] | None = None,
    ) -> Session:
        """Create a session from entries that bring their own ids, parents and times, parents first.

        ``leaf`` is one of them, or None. One transaction. Raises `SessionExists`, `InvalidEntry`, `EntryNotFound` (for
        a parent or the leaf). Of a paid call that was reported before, the ledger keeps the first report:
        ``on_conflict`` is called with each that has other numbers, as in `Appended.call_conflicts`, ``on_oddity`` with
        each number that was not counted as it was reported, and why, as in `Appended.oddities`. O(entries).
        """
        handle.checked_function(on_oddity, "on_oddity")
        handle.checked_function(on_conflict, "on_conflict")
        trees.check_imported_session(new)
        scope_meant(self._scope, new.scope)
        entries = trees.checked_imported_entries(entries, program_of(decode_object(new.metadata_text)))
        handle.checked_place(leaf, "leaf")
        self._limits.check_metadata(new.metadata_text)
        self._limits.check_entries(entries)

        async def write(priced: Sequence[NewEntry]) -> SessionInfo:
            return await self._backend.import_session(new, priced, leaf=leaf, on_conflict=on_conflict)

        info, written = await write_what_fits(write, entries, self._pricer)
        if on_oddity is not None:
            for oddity in oddities_of(written):
                on_oddity(oddity)
        return self._session(info)

    async def append_messages(
        self,
        session: HasId | str,
        messages: Sequence[Mapping[str, object] | Message | BaseModel],
        *,
        source: str | None = None,
        offload: OffloadSettings | None = None,
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append messages to a session without a handle on it: one transaction, for callers who keep no state.

        They land below ``expected_leaf``, which has to be the stored leaf (`LeafConflict`) unless ``on_conflict`` says
        otherwise; left out, below whatever is stored. Otherwise as `Session.append_messages`. Raises `SessionNotFound`,
        too. O(len(messages)).
        """
        handle.checked_landing(**options)
        session_id = await self._own(session)
        writer = Writing(self._backend, SessionInfo(session_id), self._limits, self._pricer)
        # No row was read: it is whichever session has this id, and the leaf is the one that is stored.
        writer._ref, writer._leaf_id = cast("SessionRef", session_id), cast("str", STORED)
        return await writer.append_messages(messages, source=source, offload=offload, **options)

    @async_once("atomic()")
    async def atomic(self, *, idempotency_key: str | None = None) -> AsyncIterator[Atomic]:
        """Collect operations on any sessions, and commit them as one at the end of the ``async with``: all, or none.

        Nothing is written, and no lock is held, before the end; a block that raises writes nothing. Each operation
        sees the results of earlier ones of the batch, and its ids are known at once. An error of one of them, such
        as `LeafConflict`, undoes all of them; the error's ``operation`` is the number of the one it came from, from 0.
        Handles that took part know their leaf and revision afterwards, also if the caller is cancelled while the commit
        is under way. With an ``idempotency_key`` the whole batch is done once: the key belongs to the first session
        that it names and does not make itself; single operations may have keys of their own. Raises as the operations
        do, and `InvalidArgument` for a key that no session would have. The sum of their costs.
        """
        batch = batches.Atomic(self._backend, self._limits, self._pricer, self._scope, idempotency_key)
        try:
            yield batch
        finally:
            batch._close()
        await batch._commit()

    # -- tasks and deletion -----------------------------------------------------------------------------------

    async def link_task(
        self,
        parent: HasId | str,
        child: HasId | str,
        *,
        task_id: str,
        entry_id: str | None = None,
        **options: Unpack[handle.SeenOptions],
    ) -> None:
        """Link a session to a parent, as its task session: a bare link, with no check of depth.

        ``entry_id`` is the entry of the parent below which the task began, where that is known. Several parents,
        cycles, and a child that does not exist are legal; a second link to the same child is ignored, unless it says
        where the task began and the first did not. ``expected_leaf`` and ``expected_revision`` are those of the
        parent. Raises `SessionNotFound` for it, `LeafConflict`, `RevisionConflict`. O(1).
        """
        check_name(handle.checked_id(task_id, "task_id"), "task_id")
        seen = handle.checked_seen(**options)
        child_id = str(handle.checked_session(child))
        parent_id = await self._own(parent)
        await self._own(child_id)
        await self._backend.link_task(parent_id, child_id, task_id, entry_id=entry_id, expected=seen)

    async def delete_session_tree(
        self,
        session: HasId | str,
        *,
        scope: str | None = None,
        dry_run: bool = False,
        despite_holds: Sequence[str] = (),
        **options: Unpack[handle.SeenOptions],
    ) -> Deletion:
        """Delete a session, the task sessions it links to, theirs, and every entry no other session sees.

        One transaction. Forks survive, with the entries they see. A missing session, or one in another scope, is not an
        error; where a scope is meant, tasks in another one stay. Its costs stay in the ledger. With ``dry_run`` nothing
        goes, and the same is returned. With ``expected_leaf`` or ``expected_revision``, it deletes nothing that was
        saved since: `LeafConflict`, `RevisionConflict`. Raises `OnHold` for holds that are not in ``despite_holds``
        (`hold`). O(rows deleted).
        """
        seen = handle.checked_seen(**options)
        handle.checked_flag(dry_run, "dry_run")
        name, meant, despite = handle.checked_session(session), self._meant(scope), handle.checked_ids(despite_holds)
        if dry_run:
            return await self._backend.plan_deletion([name], meant, seen, despite=despite)
        return await self._backend.delete_tree(name, scope=meant, expected=seen, despite=despite)

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
        target = handle.checked_path(path, "path")
        handle.checked_flag(overwrite, "overwrite")
        handle.checked_flag(verify, "verify")
        handle.checked_function(progress, "progress")
        copying = self._backend.backup(target, overwrite=overwrite, verified=verify, progress=progress)
        return await self._backend.waiting.finish(copying)

    async def heads(self) -> tuple[Head, ...]:
        """Return the heads of all sessions, in order of id, for who keeps them elsewhere. O(sessions)."""
        return tuple(await self._backend.list_heads())

    async def compare_heads(self, heads: Sequence[Head]) -> tuple[Age, ...]:
        """Return what is there of sessions that had these heads, in their order. Raises `CorruptStore`. O(heads)."""
        if not isinstance(heads, (list, tuple)) or not all(type(head).__name__ == "Head" for head in heads):
            raise InvalidArgument(f"heads: {shown(heads)} is not a list of heads")
        return tuple(await self._backend.compare_heads(heads))

    async def rekey(self, key: Key | None, *, progress: Callable[[int, int], None] | None = None) -> KeyChange:
        """Give the store another key, or none, and return what was done.

        Others who have both keys (``open(..., key=[new, old])``) go on meanwhile: a transaction is of 1,000 entries
        at most. Where it is ended at any moment, the store needs both keys until the same call has completed it.
        ``progress`` is called with trees that are done, and trees in all. Raises `InvalidArgument` for what is no key,
        and `WrongKey` while it changes to another one. O(store).
        """
        handle.checked_function(progress, "progress")
        done = await self._backend.rekey(key, progress)
        return KeyChange(named_fingerprint(done.before), named_fingerprint(done.after), done.trees, done.entries)

    @property
    def unchecked(self) -> bool:
        """Whether it was opened without its key: whatever it returns may have been changed by others."""
        return self._backend.is_unchecked

    async def info(self) -> StoreInfo:
        """Return where the store is, its format, and how much it holds."""
        return await self._backend.info()

    async def close(self) -> None:
        """Finish the calls under way and close the store, as leaving ``async with flue_py.open(...)`` does.
        Idempotent.
        """
        await self._backend.waiting.finish(self._backend.close())


# ---------------------------------------------------------------------------------------------------------------------
# Opening a store: from a path, a URL or an engine to a `Store`.

Durability: TypeAlias = Literal["full", "normal"]
Kind: TypeAlias = Literal["memory", "file", "engine"]

Given = TypeVar("Given")

_MEMORY = (":memory:", "memory://")
_POSTGRES = "postgresql+asyncpg"
_LONGEST_WAIT = 1_000_000
_LARGEST_POOL = 10_000
_SQLITE = "sqlite+aiosqlite"
_SCHEMES = (_SQLITE, _POSTGRES)


@async_once("flue_py.open(...)")
async def open(
    target: str | PathLike[str] | None = None,
    *,
    engine: AsyncEngine | None = None,
    durability: Durability = "full",
    create: bool = True,
    read_only: bool = False,
    busy_timeout: float = 30.0,
    threads: bool | None = None,
    pool_size: int | None = None,
    pool_timeout: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    prices: PricesChoice = None,
    key: KeyChoice = None,
    unchecked: bool = False,
    clock: Callable[[], datetime] | None = None,
    ids: Callable[[], str] | None = None,
    session_ids: Callable[[], str] | None = None,
    witness: Witness | None = None,
    accept: Collection[str] = (),
    secrets: SecretsChoice | None = None,
) -> AsyncIterator[Store]:
    """Open a store, for the length of an ``async with``.

    ``target`` is the path of an SQLite file (``~`` is the home directory), ``":memory:"`` for a store that dies with
    the process, or a SQLAlchemy URL with an async driver: ``postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE`` (the
    extra ``postgres``) or
    ``sqlite+aiosqlite:///FILE``. ``engine`` is an ``AsyncEngine`` instead, which stays the caller's to dispose of,
    and whose settings stay as they are. A file that is missing is made, readable by its owner only, unless
    ``create=False``. ``durability="full"`` survives a power cut, ``"normal"`` the end of the process only;
    ``busy_timeout`` is how many seconds to wait while other processes write, or for a server that is restarting.
    A store in memory has no use for these three. ``read_only=True`` is for an SQLite file that is there, by its path
    or its URL, where nothing can or shall be written: on a disk that is full or mounted for reading, in a folder of
    somebody else. It makes no file, but for the index of a log that is in use; every write is `StoreUnavailable`, and
    so is opening a file of an older format.

    ``threads`` is for a SQLite file or a store in memory. With them, an event loop goes on while the store waits
    for the disk, and appends of many tasks at once share a commit. Without, each call runs at once on the
    thread that makes it, which it blocks; a lone append is faster that way, and any thread or loop may use the store.
    ``flue_py.open`` has them unless told otherwise, and ``flue_py.sync.open`` does without.

    ``pool_size`` (default 10) and ``pool_timeout`` (30 seconds) are the most connections to PostgreSQL, and how
    long an operation waits for one; they are for its URLs only. ``limits`` are the most that one call may bring,
    such as the size of an entry.

    ``prices`` says what calls cost whose provider did not: by default the pricing file (``~/.flue-py/pricing.json``, or
    the one that ``FLUE_PY_PRICING`` names), then published prices. A mapping, a `PriceBook` or the path of a pricing
    file are used instead; ``False`` prices nothing.

    With ``key``, 16 to 64 random bytes or a function that fetches them, the digests of entries are keyed hashes: only
    who has it can change the history unseen. An empty store takes the key that it is opened with, and from then on
    it needs that: `WrongKey` names it by its fingerprint. Of a list of keys it may have any; None among them
    is no key. ``unchecked=True`` reads a store whose key is not there: no digest is checked, every write is
    `StoreUnavailable`, and `Store.unchecked` says so.

    ``clock`` gives the time (aware), ``ids`` and ``session_ids`` the ids of new entries and sessions; one that is taken
    is asked for again. Their errors end the operation that asked as `InvalidArgument`, with theirs as its cause;
    nothing was changed.

    ``witness`` gets the head of each session with every commit, and a session that is not as it was seen last is
    `HistoryPutBack`, but for those of the ids in ``accept``: an older copy of them was put back on purpose.

    ``secrets`` searches for passwords and keys whatever this store writes (the extra ``secrets``): ``"mask"`` puts the
    name of a rule in their place (``[secret: AWS Access Key]``); ``"refuse"`` raises `SecretRefused`, and so does
    either for a name, such as a key of a session. Pictures and other base64 are not searched. A function instead gets
    each text that is to be written, and returns the places to be masked: (start, end, name of a rule). If it fails, the
    write is `InvalidArgument`, which has nothing of the text. O(characters) for each write.

    Raises `InvalidArgument`, `InvalidPrices`, `FormatTooNew`, `NotAStore`, `WrongKey`, `StoreUnavailable`,
    `StoreBusy`, `MissingExtra`, `WrongEventLoop`. O(1), whatever the store holds.
    """
    keys = Keys(key, unchecked=handle.checked_flag(unchecked, "unchecked"))
    handle.checked_limits(limits)
    check_choice(durability, "durability", ("full", "normal"))
    handle.checked_flag(create, "create")
    handle.checked_flag(read_only, "read_only")
    if threads is not None:
        handle.checked_flag(threads, "threads")
    on_caller = threads is False
    _check_seconds(busy_timeout, "busy_timeout")
    if clock is not None and not callable(clock):
        raise InvalidArgument(f"clock: {shown(clock)} is not a function that returns the time")
    sources = Sources(
        now_us=now_us if clock is None else lambda: handle.checked_moment(_asked(clock, "clock")),
        entry_id=_opening_checked_ids(ids, "ids"),
        session_id=_opening_checked_ids(session_ids, "session_ids"),
        draws_entry_ids=ids is None,
    )
    kind, place = _where(target, engine)
    pool = _checked_pool(place, pool_size, pool_timeout)
    pricer = CallPricer(choose_prices(prices), sources.now_us)
    if read_only:
        backend = await _open_read_only(kind, place, sources, busy_timeout, on_caller)
    elif on_caller:
        backend = _open_on_caller(kind, place, sources, durability, create, busy_timeout)
    else:
        backend = await _open_backend(kind, place, sources, durability, create, busy_timeout, pool)
    if witness is not None:
        backend.show_heads(witness, accept)
    store = Store(backend, limits, pricer)
    try:
        if secrets is not None:
            backend.filter_secrets(secrets)
        await backend.take_keys(keys)
        yield store
    finally:
        await store.close()


def needs_event_loop(target: object = None, engine: object = None, threads: object = None) -> bool:
    """Return whether a store that is opened so needs an event loop; whatever else is wrong is told on opening."""
    is_url = isinstance(target, (str, PathLike)) and str(target).partition("://")[0] in _SCHEMES
    return threads is True or (threads is None and (is_url or engine is not None))


def _where(target: str | PathLike[str] | None, engine: AsyncEngine | None) -> tuple[Kind, str | AsyncEngine]:
    """Return which backend is meant, and where it stores."""
    if engine is not None and target is None:
        return "engine", engine
    if target is None or engine is not None:
        raise InvalidArgument("open takes either a target (a path, a URL or ':memory:') or engine=")
    location = fspath(target) if isinstance(target, (str, PathLike)) else None
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidArgument(f"target: {shown(target)} is not a path, a URL or ':memory:'")
    if location in _MEMORY:
        return "memory", location
    scheme, separator, _ = location.partition("://")
    if separator and scheme not in _SCHEMES:
        raise InvalidArgument(f"target: {scheme}:// is not one of {', '.join(_SCHEMES)}; write it in full, or a path")
    return ("engine", location) if separator else ("file", in_full(location))


def _checked_pool(place: str | AsyncEngine, pool_size: int | None, pool_timeout: float | None) -> tuple[int, float]:
    """Return the size of the pool, and how many seconds to wait for a connection of it."""
    has_pool = isinstance(place, str) and place.startswith(_POSTGRES)
    if not has_pool and (pool_size is not None or pool_timeout is not None):
        raise InvalidArgument(f"pool_size and pool_timeout are for {_POSTGRES} URLs; an engine brings its own pool")
    size, timeout = 10 if pool_size is None else pool_size, 30.0 if pool_timeout is None else pool_timeout
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST_POOL:
        raise InvalidArgument(f"pool_size: {shown(size)} is not a number of connections; give 1 to {_LARGEST_POOL:,}")
    _check_seconds(timeout, "pool_timeout")
    if not timeout > 0:
        raise InvalidArgument("pool_timeout: must be more than 0 seconds")
    return size, timeout


def _check_seconds(seconds: float, name: str) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds <= _LONGEST_WAIT):
        raise InvalidArgument(f"{name}: {shown(seconds)} is not a number of seconds from 0 to {_LONGEST_WAIT:,}")


def _asked(function: Callable[[], Given], name: str) -> Given:
    """Return the result of a function of the caller. Its errors are `InvalidArgument`, the same on every database."""
    try:
        return function()
    except errors.FlueError:
        raise
    except StopIteration as error:
        raise InvalidArgument(f"{name}: it has run out (StopIteration); return another each time") from error
    except Exception as error:
        raise InvalidArgument(f"{name}: it raised {type(error).__name__} ({error}); nothing was changed") from error


def _opening_checked_ids(draw: Callable[[], str] | None, name: str) -> Callable[[], str]:
    """Return where ids come from; those of the caller are checked as they come."""
    if draw is None:
        return random_id
    if not callable(draw):
        raise InvalidArgument(f"{name}: {shown(draw)} is not a function that returns an id")

    def checked() -> str:
        drawn = _asked(draw, name)
        check_new_name(drawn, name)
        if not drawn:
            raise InvalidArgument(f"{name}: {shown(drawn)} is not an id; return a string that is not empty")
        return drawn

    return checked


async def _open_read_only(
    kind: Kind, place: str | AsyncEngine, sources: Sources, busy_timeout: float, on_caller: bool
) -> Backend:
    scheme, _, path = place.partition(":///") if isinstance(place, str) else ("", "", "")
    if scheme == _SQLITE and path and "?" not in path:
        kind, place = "file", path
    if not isinstance(place, str) or kind != "file":
        raise InvalidArgument(f"read_only=True is for SQLite files: give a path, or {_SQLITE}:///PATH without a query")
    if on_caller:
        return db.sqlite.runner.read_only_on_caller(place, sources=sources, busy_timeout=busy_timeout)
    return await db.sqlite.runner.open_read_only(place, sources=sources, busy_timeout=busy_timeout)


def _open_on_caller(
    kind: Kind, place: str | AsyncEngine, sources: Sources, durability: Durability, create: bool, busy_timeout: float
) -> Backend:
    if kind == "memory":
        return db.sqlite.runner.open_memory_on_caller(sources)
    if isinstance(place, str) and kind == "file":
        return db.sqlite.runner.open_on_caller(
            place, sources=sources, durability=durability, busy_timeout=busy_timeout, create=create
        )
    raise InvalidArgument("threads=False is for a SQLite file, opened by its path, and for ':memory:'")


async def _open_backend(
    kind: Kind,
    place: str | AsyncEngine,
    sources: Sources,
    durability: Durability,
    create: bool,
    busy_timeout: float,
    pool: tuple[int, float],
) -> Backend:
    # Only the modules of the database that is opened are imported: SQLAlchemy is slow to load.
    if kind == "memory":
        return db.sqlite.runner.open_memory(sources)
    if isinstance(place, str) and kind == "file":
        return await db.sqlite.runner.open_sqlite(
            place, sources=sources, durability=durability, busy_timeout=busy_timeout, create=create
        )
    if not create:
        raise InvalidArgument("create=False is for SQLite files opened by their path")
    return await db.engine.open_engine(
        place,
        sources=sources,
        durability=durability,
        busy_timeout=busy_timeout,
        pool_size=pool[0],
        pool_timeout=pool[1],
    )
