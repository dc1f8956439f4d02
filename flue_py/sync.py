"""The blocking twin of `flue_py.open`, `Store` and `Session`, for scripts and notebooks.

    with flue_py.sync.open("sessions.db") as store:
        session = store.open_session("triage", mode="get_or_create")
        session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = session.build_context()

The event loop runs in a thread of its own for the length of the ``with``. Each method takes and returns what its
asynchronous namesake does, with blocking sessions in place of asynchronous ones, and has its docstring. Methods
may be called from several threads. The functions of `flue_py` that take a store or a session are here, too; what they
are given to call, such as ``progress``, they call in the thread of the event loop.
"""

from __future__ import annotations

import atexit
import sys
from asyncio import SelectorEventLoop
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial, update_wrapper
from importlib import import_module
from os import PathLike
from threading import Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar, overload

from anyio import run
from anyio.from_thread import BlockingPortal

from flue_py.core.jsontext import JsonObject
from flue_py.core.limits import Limits
from flue_py.core.salvaging import SalvageReport
from flue_py.core.sessions import Change, SessionInfo, SessionKind, SessionRef
from flue_py.errors import InvalidArgument, StoreClosed, WrongEventLoop, shown
from flue_py.sessions import opening
from flue_py.sessions.atomic import Atomic as AsyncAtomic
from flue_py.sessions.session import Session as AsyncSession
from flue_py.sessions.store import Store as AsyncStore
from flue_py.store.backend import Backend
from flue_py.store.opener import Opener, starting_threads
from flue_py.transfer import salvaging
from flue_py.transfer.salvaging import salvage_file

P = ParamSpec("P")
Original = TypeVar("Original")
Original_co = TypeVar("Original_co", covariant=True)
Returned = TypeVar("Returned")
Result = TypeVar("Result")


class _Loop(SelectorEventLoop):
    """A loop that needs no thread to end: asyncio starts one, which fails at the end of the interpreter."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = ThreadPoolExecutor(thread_name_prefix="flue-worker")
        self.set_default_executor(self._workers)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """Wait for the workers. Nothing else runs on this loop any more, so it may be blocked."""
        self._workers.shutdown()


class _LoopThread:
    """An event loop on a thread of its own: the way in, for the process that started it."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._opener = Opener()
        self._is_stopped = False
        started: Future[BlockingPortal] = Future()

        async def serve() -> None:
            async with BlockingPortal() as portal:
                started.set_result(portal)
                await portal.sleep_until_stopped()

        def run_loop() -> None:
            try:
                run(serve, backend_options={"loop_factory": _Loop})
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        self._thread = Thread(target=run_loop, name="flue-loop", daemon=True)
        with starting_threads(location):
            self._thread.start()
        self._portal = started.result()

    @property
    def is_here(self) -> bool:
        """Whether the thread is one of this process, not left behind in the process that forked it."""
        return self._opener.is_here

    def call(self, function: Callable[P, Awaitable[Result]], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Return what a coroutine function returns. Raises `WrongProcess`, `StoreClosed`, `WrongEventLoop`."""
        self.require_running()
        return self._portal.call(partial(function, *args, **kwargs))

    def entering(self, manager: AbstractAsyncContextManager[Returned]) -> AbstractContextManager[Returned]:
        """Return the manager to be entered and left from here."""
        return self._portal.wrap_async_context_manager(manager)

    def require_running(self) -> None:
        """Raise `WrongProcess`, `StoreClosed` or `WrongEventLoop` where a call could not be answered."""
        self._opener.require_here(self._location)
        if self._is_stopped:
            raise StoreClosed(f"{self._location} has been closed; open it again")
        if current_thread() is self._thread:
            raise WrongEventLoop(
                f"{self._location}: a blocking call in the thread of the store's event loop, such as from progress=, "
                "would wait for itself; make it in another thread, or when the call has returned"
            )

    def stop(self, error: type[BaseException] | None, *_: object) -> None:
        """End the loop and its thread; after an error, what still runs there is cancelled."""
        self._is_stopped = True
        self._portal.call(self._portal.stop, error is not None)
        self._thread.join()


class _Twin(Generic[Original_co]):
    """An asynchronous object, and the way to the event loop it lives on."""

    def __init__(self, portal: _LoopThread, original: Original_co) -> None:
        self._portal = portal
        self._original = original

    def __repr__(self) -> str:
        return repr(self._original)


def _parts(twin: _Twin[Original]) -> tuple[_LoopThread, Original]:
    """Return where a twin's calls go, and what it stands for: for the descriptors and functions below."""
    return twin._portal, twin._original  # noqa: SLF001 - a public attribute would be a name of every session


class _Blocking(Generic[Original, P, Returned, Result]):
    """A method that calls its asynchronous namesake on the event loop, waits, and adapts what comes back."""

    def __init__(
        self,
        method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
        adapt: Callable[[_LoopThread, Returned], Result],
    ) -> None:
        self._method = method
        self._adapt = adapt
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> _Blocking[Original, P, Returned, Result]: ...
    @overload
    def __get__(self, twin: _Twin[Original], owner: type) -> Callable[P, Result]: ...
    def __get__(
        self, twin: _Twin[Original] | None, owner: type
    ) -> Callable[P, Result] | _Blocking[Original, P, Returned, Result]:
        if twin is None:
            return self
        portal, original = _parts(twin)
        bound = partial(self._method, original)

        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            return self._adapt(portal, portal.call(bound, *args, **kwargs))

        update_wrapper(call, self._method)
        call.__dict__["__wrapped__"] = bound  # its signature has no self
        return call


def _same(_: _LoopThread, value: Returned) -> Returned:
    return value


def _session(portal: _LoopThread, session: AsyncSession) -> Session:
    return Session(portal, session)


def _session_or_none(portal: _LoopThread, session: AsyncSession | None) -> Session | None:
    return None if session is None else Session(portal, session)


def _blocking(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
) -> _Blocking[Original, P, Returned, Returned]:
    return _Blocking(method, _same)


def _making(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, AsyncSession]],
) -> _Blocking[Original, P, AsyncSession, Session]:
    return _Blocking(method, _session)


def _finding(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, AsyncSession | None]],
) -> _Blocking[Original, P, AsyncSession | None, Session | None]:
    return _Blocking(method, _session_or_none)


class _Entering(Generic[Original, P, Returned, Result]):
    """A method that returns what is entered and left: in place of ``async with``, with ``with``."""

    def __init__(
        self,
        method: Callable[Concatenate[Original, P], AbstractAsyncContextManager[Returned]],
        adapt: Callable[[_LoopThread, Returned], Result],
    ) -> None:
        self._method = method
        self._adapt = adapt
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> _Entering[Original, P, Returned, Result]: ...
    @overload
    def __get__(self, twin: _Twin[Original], owner: type) -> Callable[P, AbstractContextManager[Result]]: ...
    def __get__(
        self, twin: _Twin[Original] | None, owner: type
    ) -> Callable[P, AbstractContextManager[Result]] | _Entering[Original, P, Returned, Result]:
        if twin is None:
            return self
        portal, original = _parts(twin)
        bound = partial(self._method, original)

        @contextmanager
        def entered(manager: AbstractAsyncContextManager[Returned]) -> Iterator[Result]:
            with portal.entering(manager) as value:
                yield self._adapt(portal, value)

        def enter(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Result]:
            portal.require_running()
            return entered(bound(*args, **kwargs))

        update_wrapper(enter, self._method)
        enter.__dict__["__wrapped__"] = bound  # its signature has no self
        return enter


class _Collecting(Generic[Original, P, Returned, Result]):
    """A method that waits for nothing, and takes blocking sessions where its namesake takes asynchronous ones."""

    def __init__(
        self,
        method: Callable[Concatenate[Original, P], Returned],
        adapt: Callable[[_LoopThread, Returned], Result],
    ) -> None:
        self._method = method
        self._adapt = adapt
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, twin: None, owner: type) -> _Collecting[Original, P, Returned, Result]: ...
    @overload
    def __get__(self, twin: _Twin[Original], owner: type) -> Callable[P, Result]: ...
    def __get__(
        self, twin: _Twin[Original] | None, owner: type
    ) -> Callable[P, Result] | _Collecting[Original, P, Returned, Result]:
        if twin is None:
            return self
        portal, original = _parts(twin)
        bound: Callable[..., Returned] = partial(self._method, original)

        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            named = {name: _original(each) for name, each in kwargs.items()}
            return self._adapt(portal, bound(*map(_original, args), **named))

        update_wrapper(call, self._method)
        call.__dict__["__wrapped__"] = bound  # its signature has no self
        return call


def _original(value: object) -> object:
    return _parts(value)[1] if isinstance(value, _Twin) else value


def _collecting(
    method: Callable[Concatenate[Original, P], Returned],
) -> _Collecting[Original, P, Returned, Returned]:
    return _Collecting(method, _same)


def _atomic(portal: _LoopThread, batch: AsyncAtomic) -> Atomic:
    return Atomic(portal, batch)


class Session(_Twin[AsyncSession]):
    """The blocking twin of `flue_py.Session`."""

    refresh = _blocking(AsyncSession.refresh)

    append_message = _blocking(AsyncSession.append_message)
    append_messages = _blocking(AsyncSession.append_messages)
    append_compaction = _blocking(AsyncSession.append_compaction)
    append_branch_summary = _blocking(AsyncSession.append_branch_summary)
    append_custom = _blocking(AsyncSession.append_custom)
    import_entries = _blocking(AsyncSession.import_entries)
    record_call = _blocking(AsyncSession.record_call)
    import_call = _blocking(AsyncSession.import_call)

    move_leaf = _blocking(AsyncSession.move_leaf)
    navigate = _blocking(AsyncSession.navigate)
    rewind = _blocking(AsyncSession.rewind)
    undo = _blocking(AsyncSession.undo)
    redo = _blocking(AsyncSession.redo)
    remove_leaf_message = _blocking(AsyncSession.remove_leaf_message)
    log = _blocking(AsyncSession.log)
    go_back = _blocking(AsyncSession.go_back)

    fork = _making(AsyncSession.fork)
    create_task = _making(AsyncSession.create_task)
    end_task = _blocking(AsyncSession.end_task)
    task_links = _blocking(AsyncSession.task_links)
    task_parents = _blocking(AsyncSession.task_parents)

    get_active_path = _blocking(AsyncSession.get_active_path)
    get_active_path_since = _blocking(AsyncSession.get_active_path_since)
    turns = _blocking(AsyncSession.turns)
    latest_assistant = _blocking(AsyncSession.latest_assistant)
    is_ancestor = _blocking(AsyncSession.is_ancestor)
    build_context_entries = _blocking(AsyncSession.build_context_entries)
    build_context = _blocking(AsyncSession.build_context)
    latest_compaction = _blocking(AsyncSession.latest_compaction)
    aggregate_usage_since = _blocking(AsyncSession.aggregate_usage_since)
    entry_costs = _blocking(AsyncSession.entry_costs)
    get_entry = _blocking(AsyncSession.get_entry)
    resolve_entry_id = _blocking(AsyncSession.resolve_entry_id)
    get_tree = _blocking(AsyncSession.get_tree)
    name = _blocking(AsyncSession.name)
    html_report = _blocking(AsyncSession.html_report)
    context_snapshots = _blocking(AsyncSession.context_snapshots)

    cherry_pick = _blocking(AsyncSession.cherry_pick)
    merge_back = _blocking(AsyncSession.merge_back)
    common_ancestor = _blocking(AsyncSession.common_ancestor)
    diff = _blocking(AsyncSession.diff)

    set_label = _blocking(AsyncSession.set_label)
    labels = _blocking(AsyncSession.labels)
    pin = _blocking(AsyncSession.pin)
    unpin = _blocking(AsyncSession.unpin)
    pins = _blocking(AsyncSession.pins)
    exclude = _blocking(AsyncSession.exclude)
    include = _blocking(AsyncSession.include)
    exclusions = _blocking(AsyncSession.exclusions)
    set_title = _blocking(AsyncSession.set_title)
    set_metadata = _blocking(AsyncSession.set_metadata)
    set_completed = _blocking(AsyncSession.set_completed)

    budgets = _blocking(AsyncSession.budgets)
    reserve = _blocking(AsyncSession.reserve)
    commit = _blocking(AsyncSession.commit)
    release = _blocking(AsyncSession.release)
    prolong = _blocking(AsyncSession.prolong)
    budgeted = _Entering(AsyncSession.budgeted, _same)

    changes = _blocking(AsyncSession.changes)

    def watch(self, *, after: int | None = None) -> Iterator[Change]:
        """Yield every change after a revision (default: the handle's), then wait for each as it comes.

        Otherwise as `flue_py.Session.watch`.
        """
        changes = self._original.watch(after=after)
        try:
            while (change := self._portal.call(anext, changes, None)) is not None:
                yield change
        finally:
            # Where the store has been closed meanwhile, there is no event loop left to tell, nor any need to.
            with suppress(RuntimeError):
                self._portal.call(changes.aclose)

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


class Atomic(_Twin[AsyncAtomic]):
    """The blocking twin of `flue_py.Atomic`."""

    append_message = _collecting(AsyncAtomic.append_message)
    append_messages = _collecting(AsyncAtomic.append_messages)
    append_entries = _collecting(AsyncAtomic.append_entries)
    create_session = _Collecting(AsyncAtomic.create_session, _session)
    fork = _Collecting(AsyncAtomic.fork, _session)
    create_task = _Collecting(AsyncAtomic.create_task, _session)
    link_task = _collecting(AsyncAtomic.link_task)
    end_task = _collecting(AsyncAtomic.end_task)
    delete_session_tree = _collecting(AsyncAtomic.delete_session_tree)
    move_leaf = _collecting(AsyncAtomic.move_leaf)
    set_title = _collecting(AsyncAtomic.set_title)
    set_metadata = _collecting(AsyncAtomic.set_metadata)
    set_completed = _collecting(AsyncAtomic.set_completed)
    set_label = _collecting(AsyncAtomic.set_label)
    pin = _collecting(AsyncAtomic.pin)
    unpin = _collecting(AsyncAtomic.unpin)


class Store(_Twin[AsyncStore]):
    """The blocking twin of `flue_py.Store`."""

    @property
    def limits(self) -> Limits:
        return self._original.limits

    @property
    def backend(self) -> Backend:
        return self._original.backend

    create_session = _making(AsyncStore.create_session)
    open_session = _making(AsyncStore.open_session)
    get_session = _finding(AsyncStore.get_session)
    find_session = _making(AsyncStore.find_session)
    list_sessions = _blocking(AsyncStore.list_sessions)
    import_session = _making(AsyncStore.import_session)
    append_messages = _blocking(AsyncStore.append_messages)
    atomic = _Entering(AsyncStore.atomic, _atomic)

    usage = _blocking(AsyncStore.usage)
    call_conflicts = _blocking(AsyncStore.call_conflicts)

    link_task = _blocking(AsyncStore.link_task)
    delete_session_tree = _blocking(AsyncStore.delete_session_tree)

    set_budget = _blocking(AsyncStore.set_budget)
    get_budget = _blocking(AsyncStore.get_budget)
    list_budgets = _blocking(AsyncStore.list_budgets)
    delete_budget = _blocking(AsyncStore.delete_budget)
    held_amounts = _blocking(AsyncStore.held_amounts)
    get_reservation = _blocking(AsyncStore.get_reservation)

    verify = _blocking(AsyncStore.verify)
    info = _blocking(AsyncStore.info)
    backup = _blocking(AsyncStore.backup)

    def close(self) -> None:
        # Twice is no error.
        with suppress(StoreClosed):
            self._portal.call(self._original.close)

    close.__doc__ = AsyncStore.close.__doc__


def _function(
    original: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
) -> Callable[Concatenate[_Twin[Original], P], Returned]:
    """Return a function that takes the blocking twin of a store or session, and blocks."""

    def call(twin: _Twin[Original], /, *args: P.args, **kwargs: P.kwargs) -> Returned:
        if not isinstance(twin, _Twin):
            what = f"{original.__name__}: {shown(twin)} is not of flue_py.sync"
            raise InvalidArgument(f"{what}; use flue_py.sync.open, or await flue_py.{original.__name__}")
        portal, session_or_store = _parts(twin)
        return portal.call(partial(original, session_or_store), *args, **kwargs)

    update_wrapper(call, original)
    return call


if TYPE_CHECKING:
    from flue_py.transfer import bundling, exporting, transcripts
    from flue_py.transfer.importing import run as importing

    import_file = _function(importing.import_file)
    export_session = _function(exporting.export_session)
    transcript = _function(transcripts.transcript)
    write_transcript = _function(transcripts.write_transcript)
    write_bundle = _function(bundling.write_bundle)
    read_bundle = _function(bundling.read_bundle)
else:
    # Imported when asked for: who opens a store need not wait for all formats, reports and bundles.
    _FUNCTIONS = {
        "import_file": "flue_py.transfer.importing.run",
        "export_session": "flue_py.transfer.exporting",
        "transcript": "flue_py.transfer.transcripts",
        "write_transcript": "flue_py.transfer.transcripts",
        "write_bundle": "flue_py.transfer.bundling",
        "read_bundle": "flue_py.transfer.bundling",
    }

    def __getattr__(name):
        if name not in _FUNCTIONS:
            raise AttributeError(f"module 'flue_py.sync' has no attribute {name!r}")
        made = globals()[name] = _function(getattr(import_module(_FUNCTIONS[name]), name))
        return made

    def __dir__():
        return sorted({*globals(), *_FUNCTIONS})


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


def _opening(
    opener: Callable[P, AbstractAsyncContextManager[AsyncStore]],
) -> Callable[P, AbstractContextManager[Store]]:
    @contextmanager
    def blocking(*args: P.args, **kwargs: P.kwargs) -> Iterator[Store]:
        loop = _LoopThread(_shown(args[0] if args else kwargs.get("target")))
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
            store = ending.enter_context(loop.entering(opener(*args, **kwargs)))
            yield Store(loop, store)
        except BaseException:
            end(*sys.exc_info())
            raise
        else:
            end(None, None, None)

    return update_wrapper(blocking, opener)


open = _opening(opening.open)


def salvage(damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None) -> SalvageReport:
    return salvage_file(damaged, new, limits=limits)


salvage.__doc__ = salvaging.salvage.__doc__
