"""The blocking twin of `flue_py.open`, `Store` and `Session`, for scripts and notebooks.

    with flue_py.sync.open("sessions.db") as store:
        session = store.open_session("triage", mode="get_or_create")
        session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = session.build_context()

Each method takes and returns what its asynchronous namesake does, with blocking sessions in place of asynchronous ones,
and has its docstring. Methods may be called from several threads. The functions of `flue_py` that take a store or a
session are here, too.

On a SQLite file or a store in memory everything runs on the thread that calls. There is no event loop, so a function
that you pass, such as ``progress``, cannot be async. With PostgreSQL, an engine or ``threads=True``, an event loop runs
in a thread of its own for the length of the ``with``, and calls such functions there.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, suppress
from functools import update_wrapper
from importlib import import_module
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from flue_py.core.jsontext import JsonObject
from flue_py.core.limits import Limits
from flue_py.core.salvaging import SalvageReport
from flue_py.core.sessions import Change, SessionInfo, SessionKind, SessionRef
from flue_py.errors import StoreClosed
from flue_py.once import once
from flue_py.sessions import opening
from flue_py.sessions.arguments import HasId
from flue_py.sessions.atomic import Atomic as AsyncAtomic
from flue_py.sessions.session import Session as AsyncSession
from flue_py.sessions.store import Store as AsyncStore
from flue_py.store.backend import Backend
from flue_py.store.waiting import OnCaller
from flue_py.sync.twins import Twin, adapting, blocking, collecting, entering, same
from flue_py.sync.ways import LoopThread, OnThisThread, Way
from flue_py.transfer import salvaging
from flue_py.transfer.salvaging import salvage_file

P = ParamSpec("P")
Told = TypeVar("Told")


def _session(way: Way, session: AsyncSession) -> Session:
    return Session(way, session)


def _session_or_none(way: Way, session: AsyncSession | None) -> Session | None:
    return None if session is None else Session(way, session)


def _store(way: Way, store: AsyncStore) -> Store:
    return Store(way, store)


def _atomic(way: Way, batch: AsyncAtomic) -> Atomic:
    return Atomic(way, batch)


def _told(way: Way, told: AsyncGenerator[Told, None]) -> Iterator[Told]:
    """Yield what an asynchronous generator yields, each when it is asked for."""
    has_begun = False

    async def following() -> Told | None:
        return await anext(told, None)

    try:
        while (each := way.call(following)) is not None:
            has_begun = True
            yield each
    except StoreClosed:
        # It may be closed while one is looked at, and that ends the others as well.
        if not has_begun:
            raise
    finally:
        way.close(told)


class Session(Twin[AsyncSession]):
    """The blocking twin of `flue_py.Session`."""

    refresh = blocking(AsyncSession.refresh)

    append_message = blocking(AsyncSession.append_message)
    append_messages = blocking(AsyncSession.append_messages)
    append_shell = blocking(AsyncSession.append_shell)
    append_blocks = blocking(AsyncSession.append_blocks)
    append_compaction = blocking(AsyncSession.append_compaction)
    compact = blocking(AsyncSession.compact)
    compact_range = blocking(AsyncSession.compact_range)
    uncompact = blocking(AsyncSession.uncompact)
    loss_report = blocking(AsyncSession.loss_report)
    recall = blocking(AsyncSession.recall)
    answer_recall = blocking(AsyncSession.answer_recall)
    artifacts = blocking(AsyncSession.artifacts)
    read_artifact = blocking(AsyncSession.read_artifact)
    answer_read_artifact = blocking(AsyncSession.answer_read_artifact)
    plan_compaction = blocking(AsyncSession.plan_compaction)
    request = blocking(AsyncSession.request)
    attempts = blocking(AsyncSession.attempts)
    validate = blocking(AsyncSession.validate)
    gather_context = blocking(AsyncSession.gather_context)
    append_handoff = blocking(AsyncSession.append_handoff)
    fit_to = blocking(AsyncSession.fit_to)
    register = blocking(AsyncSession.register)
    unregister = blocking(AsyncSession.unregister)
    registered = blocking(AsyncSession.registered)
    plan = blocking(AsyncSession.plan)
    common_prefix = blocking(AsyncSession.common_prefix)
    append_branch_summary = blocking(AsyncSession.append_branch_summary)
    append_custom = blocking(AsyncSession.append_custom)
    import_entries = blocking(AsyncSession.import_entries)
    record_call = blocking(AsyncSession.record_call)
    import_call = blocking(AsyncSession.import_call)

    move_leaf = blocking(AsyncSession.move_leaf)
    navigate = blocking(AsyncSession.navigate)
    rewind = blocking(AsyncSession.rewind)
    undo = blocking(AsyncSession.undo)
    redo = blocking(AsyncSession.redo)
    remove_leaf_message = blocking(AsyncSession.remove_leaf_message)
    log = blocking(AsyncSession.log)
    go_back = blocking(AsyncSession.go_back)

    fork = adapting(AsyncSession.fork, _session)
    copy = adapting(AsyncSession.copy, _session)
    create_task = adapting(AsyncSession.create_task, _session)
    end_task = blocking(AsyncSession.end_task)
    task_links = blocking(AsyncSession.task_links)
    task_parents = blocking(AsyncSession.task_parents)

    get_active_path = blocking(AsyncSession.get_active_path)
    get_active_path_since = blocking(AsyncSession.get_active_path_since)
    turns = blocking(AsyncSession.turns)
    pending = blocking(AsyncSession.pending)
    settings = blocking(AsyncSession.settings)
    latest_assistant = blocking(AsyncSession.latest_assistant)
    is_ancestor = blocking(AsyncSession.is_ancestor)
    build_context_entries = blocking(AsyncSession.build_context_entries)
    build_context = blocking(AsyncSession.build_context)
    measure_context = blocking(AsyncSession.measure_context)
    latest_compaction = blocking(AsyncSession.latest_compaction)
    aggregate_usage_since = blocking(AsyncSession.aggregate_usage_since)
    entry_costs = blocking(AsyncSession.entry_costs)
    get_entry = blocking(AsyncSession.get_entry)
    get_entries = blocking(AsyncSession.get_entries)
    entries = blocking(AsyncSession.entries)
    children = blocking(AsyncSession.children)
    resolve_entry_id = blocking(AsyncSession.resolve_entry_id)
    get_tree = blocking(AsyncSession.get_tree)
    name = blocking(AsyncSession.name)
    html_report = blocking(AsyncSession.html_report)
    context_snapshots = blocking(AsyncSession.context_snapshots)

    cherry_pick = blocking(AsyncSession.cherry_pick)
    merge_back = blocking(AsyncSession.merge_back)
    common_ancestor = blocking(AsyncSession.common_ancestor)
    diff = blocking(AsyncSession.diff)

    set_label = blocking(AsyncSession.set_label)
    labels = blocking(AsyncSession.labels)
    pin = blocking(AsyncSession.pin)
    unpin = blocking(AsyncSession.unpin)
    pins = blocking(AsyncSession.pins)
    exclude = blocking(AsyncSession.exclude)
    include = blocking(AsyncSession.include)
    exclusions = blocking(AsyncSession.exclusions)
    set_title = blocking(AsyncSession.set_title)
    set_metadata = blocking(AsyncSession.set_metadata)
    set_completed = blocking(AsyncSession.set_completed)

    budgets = blocking(AsyncSession.budgets)
    check_budgets = blocking(AsyncSession.check_budgets)
    reserve = blocking(AsyncSession.reserve)
    commit = blocking(AsyncSession.commit)
    release = blocking(AsyncSession.release)
    prolong = blocking(AsyncSession.prolong)
    budgeted = entering(AsyncSession.budgeted, same)

    changes = blocking(AsyncSession.changes)

    def watch(self, *, after: int | None = None) -> Iterator[Change]:
        """Yield every change after a revision (default: the handle's), then each new one as it comes.

        Otherwise as `flue_py.Session.watch`.
        """
        return _told(self._way, self._original.watch(after=after))

    @property
    def id(self) -> str:
        return self._original.id

    @property
    def ref(self) -> SessionRef:
        return self._original.ref

    @property
    def scope(self) -> str:
        return self._original.scope

    @property
    def key(self) -> str | None:
        return self._original.key

    @property
    def kind(self) -> SessionKind:
        return self._original.kind

    @property
    def title(self) -> str | None:
        return self._original.title

    @property
    def metadata(self) -> JsonObject:
        return self._original.metadata

    @property
    def leaf_id(self) -> str | None:
        return self._original.leaf_id

    @property
    def draft(self) -> str | None:
        return self._original.draft

    @property
    def revision(self) -> int:
        return self._original.revision

    @property
    def info(self) -> SessionInfo:
        return self._original.info


class Atomic(Twin[AsyncAtomic]):
    """The blocking twin of `flue_py.Atomic`."""

    append_message = collecting(AsyncAtomic.append_message, same)
    append_messages = collecting(AsyncAtomic.append_messages, same)
    append_shell = collecting(AsyncAtomic.append_shell, same)
    append_entries = collecting(AsyncAtomic.append_entries, same)
    create_session = collecting(AsyncAtomic.create_session, _session)
    fork = collecting(AsyncAtomic.fork, _session)
    create_task = collecting(AsyncAtomic.create_task, _session)
    link_task = collecting(AsyncAtomic.link_task, same)
    end_task = collecting(AsyncAtomic.end_task, same)
    delete_session_tree = collecting(AsyncAtomic.delete_session_tree, same)
    move_leaf = collecting(AsyncAtomic.move_leaf, same)
    navigate = collecting(AsyncAtomic.navigate, same)
    undo = collecting(AsyncAtomic.undo, same)
    redo = collecting(AsyncAtomic.redo, same)
    set_title = collecting(AsyncAtomic.set_title, same)
    set_metadata = collecting(AsyncAtomic.set_metadata, same)
    set_completed = collecting(AsyncAtomic.set_completed, same)
    set_label = collecting(AsyncAtomic.set_label, same)
    pin = collecting(AsyncAtomic.pin, same)
    unpin = collecting(AsyncAtomic.unpin, same)


class Store(Twin[AsyncStore]):
    """The blocking twin of `flue_py.Store`."""

    @property
    def limits(self) -> Limits:
        return self._original.limits

    @property
    def backend(self) -> Backend:
        return self._original.backend

    @property
    def scope(self) -> str | None:
        return self._original.scope

    in_scope = collecting(AsyncStore.in_scope, _store)
    create_session = adapting(AsyncStore.create_session, _session)
    open_session = adapting(AsyncStore.open_session, _session)
    get_session = adapting(AsyncStore.get_session, _session_or_none)
    get_entry = blocking(AsyncStore.get_entry)
    find_session = adapting(AsyncStore.find_session, _session)
    list_sessions = blocking(AsyncStore.list_sessions)
    import_session = adapting(AsyncStore.import_session, _session)
    append_messages = blocking(AsyncStore.append_messages)

    def events(
        self,
        *,
        sessions: Sequence[HasId | str] | None = None,
        scope: str | None = None,
        after: Iterable[str] = (),
        follow: bool = False,
    ) -> Iterator[SessionEvent]:
        """Yield what happened to sessions, each event once, and with ``follow`` what comes.

        Otherwise as `flue_py.Store.events`.
        """
        return _told(self._way, self._original.events(sessions=sessions, scope=scope, after=after, follow=follow))

    atomic = entering(AsyncStore.atomic, _atomic)

    usage = blocking(AsyncStore.usage)
    reprice = blocking(AsyncStore.reprice)
    call_conflicts = blocking(AsyncStore.call_conflicts)

    link_task = blocking(AsyncStore.link_task)
    delete_session_tree = blocking(AsyncStore.delete_session_tree)
    delete_scope = blocking(AsyncStore.delete_scope)

    remember = blocking(AsyncStore.remember)
    memories = blocking(AsyncStore.memories)
    search_memories = blocking(AsyncStore.search_memories)
    forget = blocking(AsyncStore.forget)
    set_budget = blocking(AsyncStore.set_budget)
    get_budget = blocking(AsyncStore.get_budget)
    list_budgets = blocking(AsyncStore.list_budgets)
    delete_budget = blocking(AsyncStore.delete_budget)
    held_amounts = blocking(AsyncStore.held_amounts)
    get_reservation = blocking(AsyncStore.get_reservation)

    add_file = blocking(AsyncStore.add_file)
    files = blocking(AsyncStore.files)
    read_file = blocking(AsyncStore.read_file)
    remove_file = blocking(AsyncStore.remove_file)

    search = blocking(AsyncStore.search)
    verify = blocking(AsyncStore.verify)
    info = blocking(AsyncStore.info)
    backup = blocking(AsyncStore.backup)

    def close(self) -> None:
        # Twice is no error.
        with suppress(StoreClosed):
            self._way.call(self._original.close)

    close.__doc__ = AsyncStore.close.__doc__


if TYPE_CHECKING:
    from flue_py.core.events import SessionEvent
    from flue_py.sync.copying import copy_store as copy_store
    from flue_py.sync.guarding import CompactionGuard as CompactionGuard
    from flue_py.sync.summarizing import summarize as summarize
    from flue_py.sync.talking import Conversation as Conversation
    from flue_py.sync.talking import run_command as run_command
    from flue_py.transfer import bundling, exporting, filing, transcripts
    from flue_py.transfer.importing import run as importing

    add_files = blocking(filing.add_files)
    import_file = blocking(importing.import_file)
    export_session = blocking(exporting.export_session)
    transcript = blocking(transcripts.transcript)
    write_transcript = blocking(transcripts.write_transcript)
    write_bundle = blocking(bundling.write_bundle)
    read_bundle = blocking(bundling.read_bundle)
else:
    # Imported when asked for: who opens a store need not wait for all formats, reports and bundles.
    _FUNCTIONS = {
        "add_files": "flue_py.transfer.filing",
        "import_file": "flue_py.transfer.importing.run",
        "export_session": "flue_py.transfer.exporting",
        "transcript": "flue_py.transfer.transcripts",
        "write_transcript": "flue_py.transfer.transcripts",
        "write_bundle": "flue_py.transfer.bundling",
        "read_bundle": "flue_py.transfer.bundling",
    }
    _TWINS = {
        "copy_store": "flue_py.sync.copying",
        "CompactionGuard": "flue_py.sync.guarding",
        "summarize": "flue_py.sync.summarizing",
        "Conversation": "flue_py.sync.talking",
        "run_command": "flue_py.sync.talking",
    }

    def __getattr__(name):
        if name in _FUNCTIONS:
            made = blocking(getattr(import_module(_FUNCTIONS[name]), name))
        elif name in _TWINS:
            made = getattr(import_module(_TWINS[name]), name)
        else:
            raise AttributeError(f"module 'flue_py.sync' has no attribute {name!r}")
        globals()[name] = made
        return made

    def __dir__():
        return sorted({*globals(), *_FUNCTIONS, *_TWINS})


def _take_over_docstrings(twin: type, original: type) -> None:
    for name, member in vars(twin).items():
        if isinstance(member, property) and member.__doc__ is None:
            member.__doc__ = getattr(original, name).__doc__


_take_over_docstrings(Session, AsyncSession)
_take_over_docstrings(Store, AsyncStore)


def _shown(target: object) -> str:
    """Return how to name a store in a message: by its path, while a URL may hold a password."""
    is_path = isinstance(target, (str, PathLike)) and "://" not in str(target)
    return str(target) if is_path else "the store"


@once("flue_py.sync.open(...)")
def _on_this_thread(manager: AbstractAsyncContextManager[AsyncStore], location: str) -> Iterator[Store]:
    way = OnThisThread(location)
    with way.entering(manager) as store:
        if isinstance(store.backend.waiting, OnCaller):
            store.backend.waiting.without_loop()
        try:
            yield Store(way, store)
        finally:
            way.stop()


@once("flue_py.sync.open(...)")
def _on_loop_thread(manager: AbstractAsyncContextManager[AsyncStore], location: str) -> Iterator[Store]:
    loop = LoopThread(location)
    ending = ExitStack()

    def end(*error: *tuple[type[BaseException] | None, BaseException | None, TracebackType | None]) -> None:
        atexit.unregister(end)
        # What a forked child inherits is not its own to end.
        if loop.is_here:
            ending.__exit__(*error)

    # Who never leaves the `with` loses nothing; but the interpreter could not end while the loop's thread runs.
    atexit.register(end, None, None, None)
    try:
        ending.push(loop.stop)
        yield Store(loop, ending.enter_context(loop.entering(manager)))
    except BaseException:
        end(*sys.exc_info())
        raise
    else:
        end(None, None, None)


def _opening(
    opener: Callable[P, AbstractAsyncContextManager[AsyncStore]],
) -> Callable[P, AbstractContextManager[Store]]:
    def blocking_opener(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Store]:
        target = args[0] if args else kwargs.get("target")
        if opening.needs_event_loop(target, kwargs.get("engine"), kwargs.get("threads")):
            return _on_loop_thread(opener(*args, **kwargs), _shown(target))
        if kwargs.get("threads") is None:
            kwargs["threads"] = False
        return _on_this_thread(opener(*args, **kwargs), _shown(target))

    return update_wrapper(blocking_opener, opener)


open = _opening(opening.open)


def salvage(damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None) -> SalvageReport:
    return salvage_file(damaged, new, limits=limits)


salvage.__doc__ = salvaging.salvage.__doc__
