"""The blocking twin of `flue_py.open`, `Store` and `Session`, for scripts and notebooks.

    with flue_py.sync.open("sessions.db") as store:
        session = store.open_session("triage", mode="get_or_create")
        session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = session.build_context()

Each method takes and returns the same as its asynchronous namesake, with blocking sessions in place of asynchronous
ones, and has its docstring. Methods may be called from several threads. The functions of `flue_py` that take a store or
a session are here, too.

On a SQLite file or a store in memory everything runs on the thread that calls. There is no event loop, so a function
that you pass, such as ``progress``, cannot be async. With PostgreSQL, an engine or ``threads=True``, an event loop runs
in a thread of its own for the length of the ``with``, and calls such functions there.
"""

from __future__ import annotations

import atexit
import sys
from asyncio import SelectorEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial, update_wrapper
from importlib import import_module
from inspect import iscoroutinefunction
from itertools import chain
from os import PathLike
from sys import exc_info, get_asyncgen_hooks, set_asyncgen_hooks
from threading import Thread, current_thread
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from flue_py.core.sessions import Change, Limits
from flue_py.core.trees import SalvageReport
from flue_py.db.backend import KeyChoice
from flue_py.db.runner import Opener, starting_threads
from flue_py.db.waiting import OnCaller, Waiting, run_here, shielded
from flue_py.errors import InvalidArgument, StoreClosed, WrongEventLoop, shown
from flue_py.sessions import compact, files, marks, money, request, store, write
from flue_py.sessions.batch import Atomic as AsyncAtomic
from flue_py.sessions.handle import HasId
from flue_py.sessions.session import Branches as AsyncBranches
from flue_py.sessions.session import Session as AsyncSession
from flue_py.sessions.session import Tasks as AsyncTasks
from flue_py.sessions.store import Store as AsyncStore
from flue_py.system import once
from flue_py.transfer import copy

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from flue_py.compaction.material import AboutToCompact, BeforeCompaction, HookAnswer
    from flue_py.core.operations import SessionEvent
    from flue_py.sync.runtime import CompactionGuard as CompactionGuard
    from flue_py.sync.runtime import Conversation as Conversation
    from flue_py.sync.runtime import copy_store as copy_store
    from flue_py.sync.runtime import run_command as run_command
    from flue_py.sync.runtime import summarize as summarize
    from flue_py.transfer import export, imports


# ---------------------------------------------------------------------------------------------------------------------
# How a blocking call runs the coroutines of a store: on the thread that calls, or on an event loop in another one.

P = ParamSpec("P")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Way(Protocol):
    """The way to the coroutines of one store."""

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Return the result of a coroutine function. Raises `WrongProcess`, `StoreClosed`, `WrongEventLoop`."""

    def entering(self, manager: AbstractAsyncContextManager[Result]) -> AbstractContextManager[Result]:
        """Return the manager to be entered and left from here."""

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        """Close a generator, also when the store has been closed."""

    def require_running(self) -> None:
        """Raise `WrongProcess`, `StoreClosed` or `WrongEventLoop` where a call could not be answered."""


class OnThisThread(Way):
    """Runs coroutines that never wait, on the thread that calls."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._opener = Opener()
        self._is_stopped = False

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        self.require_running()
        if get_asyncgen_hooks().firstiter is None:
            return run_here(function())
        with _own_generators():
            return run_here(function())

    @contextmanager
    def entering(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        with _own_generators():
            entered = run_here(_of(manager.__aenter__))
        try:
            yield entered
        except BaseException:
            if not run_here(_of(manager.__aexit__, *exc_info())):
                raise
        else:
            run_here(_of(manager.__aexit__, None, None, None))

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        run_here(_of(generator.aclose))

    def require_running(self) -> None:
        self._opener.require_here(self._location)
        if self._is_stopped:
            raise StoreClosed(f"{self._location} has been closed; open it again")

    def stop(self) -> None:
        """Refuse all later calls."""
        self._is_stopped = True


@contextmanager
def _own_generators() -> Iterator[None]:
    """Hide the generators that begin here from an event loop that happens to run on this thread. It would close them
    at its own end, and with one of them a store that is still in use, or changes that somebody still waits for.
    """
    hooks = get_asyncgen_hooks()
    set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        set_asyncgen_hooks(*hooks)


async def _of(function: Callable[P, Awaitable[Result]], *args: P.args, **kwargs: P.kwargs) -> Result:
    return await function(*args, **kwargs)


class _Loop(SelectorEventLoop):
    """A loop that ends without starting a thread: asyncio's starts one, which fails when the interpreter exits."""

    def __init__(self) -> None:
        super().__init__()
        self._workers = ThreadPoolExecutor(thread_name_prefix="flue-worker")
        self.set_default_executor(self._workers)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """Wait for the workers. Nothing else runs on this loop any more, so it may be blocked."""
        self._workers.shutdown()


class LoopThread(Way):
    """Runs coroutines on an event loop in a thread of its own, for the process that started it."""

    def __init__(self, location: str) -> None:
        # Only here: it takes 30 ms to load.
        from anyio import run  # noqa: PLC0415
        from anyio.from_thread import BlockingPortal  # noqa: PLC0415

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

    def call(self, function: Callable[[], Coroutine[object, object, Result]]) -> Result:
        self.require_running()
        return self._portal.call(function)

    def entering(self, manager: AbstractAsyncContextManager[Result]) -> AbstractContextManager[Result]:
        return self._portal.wrap_async_context_manager(manager)

    def close(self, generator: AsyncGenerator[object, None]) -> None:
        # Where the store has been closed, there is no event loop left to tell, nor any need to.
        with suppress(RuntimeError):
            self.call(partial(_of, generator.aclose))

    def require_running(self) -> None:
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


# ---------------------------------------------------------------------------------------------------------------------
# Blocking functions, made of coroutine functions.

Original = TypeVar("Original")
Original_co = TypeVar("Original_co", covariant=True)
Made = TypeVar("Made")
Returned = TypeVar("Returned")
Owner = TypeVar("Owner", bound="Twin[object]")


class Twin(Generic[Original_co]):
    """An asynchronous object, and the way to it."""

    def __init__(self, way: Way, original: Original_co) -> None:
        self._way = way
        self._original = original

    def __repr__(self) -> str:
        return repr(self._original)


def parts_of(twin: Twin[Original]) -> tuple[Way, Original]:
    """Return the way that a twin's calls go, and its original."""
    return twin._way, twin._original  # noqa: SLF001 - a public attribute would be a name of every session


def same(_: Way, value: Returned) -> Returned:
    """Return a value as it is."""
    return value


def blocking(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
) -> Callable[Concatenate[Twin[Original], P], Returned]:
    """Return a function that calls a coroutine function for a twin, and blocks until it returns."""
    return _twin(method, lambda way, call: way.call(call))


def adapting(
    method: Callable[Concatenate[Original, P], Coroutine[object, object, Returned]],
    adapt: Callable[[Way, Returned], Result],
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Do the same, and pass the result through ``adapt``."""
    return _twin(method, lambda way, call: adapt(way, way.call(call)))


def entering(
    method: Callable[Concatenate[Original, P], AbstractAsyncContextManager[Returned]],
    adapt: Callable[[Way, Returned], Result],
) -> Callable[Concatenate[Twin[Original], P], AbstractContextManager[Result]]:
    """Do the same for a function whose result is used in ``async with``: here it is used in ``with``."""

    @once(f"{method.__name__}()")
    def entered(way: Way, manager: AbstractAsyncContextManager[Returned]) -> Iterator[Result]:
        with way.entering(manager) as value:
            yield adapt(way, value)

    def enter(way: Way, call: Callable[[], AbstractAsyncContextManager[Returned]]) -> AbstractContextManager[Result]:
        way.require_running()
        return entered(way, call())

    return _twin(method, enter)


def collecting(
    method: Callable[Concatenate[Original, P], Returned], adapt: Callable[[Way, Returned], Result]
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Do the same for a function that does not wait."""
    return _twin(method, lambda way, call: adapt(way, call()))


def _twin(
    method: Callable[Concatenate[Original, P], Made], finish: Callable[[Way, Callable[[], Made]], Result]
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """Return a function with the name, signature and docstring of ``method``, for a twin and blocking arguments."""

    def call(twin: Twin[Original], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if not isinstance(twin, Twin):
            subject = f"{method.__name__}: {shown(twin)} is not of flue_py.sync"
            raise InvalidArgument(f"{subject}; use flue_py.sync.open, or await flue_py.{method.__name__}")
        way, original = parts_of(twin)
        bare: Callable[..., Made] = partial(method, original)
        if kwargs:
            bare = partial(bare, **{name: _bare(argument) for name, argument in kwargs.items()})
        return finish(way, partial(bare, *map(_bare, args)))

    update_wrapper(call, method)
    return call


class Read(Protocol[Result_co]):
    """A property, to mypy."""

    def __get__(self, twin: object, owner: type | None = None) -> Result_co: ...


def reading(owner: type[Original], read: Callable[[Original], Returned]) -> Read[Returned]:
    """Return a property that reads the original, an ``owner``."""
    return cast("Read[Returned]", property(lambda twin: read(parts_of(twin)[1])))


def twin_read(twin: Callable[[Way, Original], Result], name: str) -> Read[Result]:
    """Return a property that is the twin of a part of the original, its property ``name``."""
    return cast("Read[Result]", property(lambda owner: twin(parts_of(owner)[0], getattr(parts_of(owner)[1], name))))


def _bare(value: object) -> object:
    """Return the original of a twin, and anything else as it is."""
    return parts_of(value)[1] if isinstance(value, Twin) else value


# ---------------------------------------------------------------------------------------------------------------------
# The blocking twin of `flue_py.open`, `Store` and `Session`, for scripts and notebooks.
#
#     with flue_py.sync.open("sessions.db") as store:
#         session = store.open_session("triage", mode="get_or_create")
#         session.append_message({"role": "user", "content": "Why is the build red?"})
#         messages = session.build_context()
#
# Each method takes and returns the same as its asynchronous namesake, with blocking sessions in place of asynchronous
# ones,
# and has its docstring. Methods may be called from several threads. The functions of `flue_py` that take a store or a
# session are here, too.
#
# On a SQLite file or a store in memory everything runs on the thread that calls. There is no event loop, so a function
# that you pass, such as ``progress``, cannot be async. With PostgreSQL, an engine or ``threads=True``, an event loop
# runs
# in a thread of its own for the length of the ``with``, and calls such functions there.

if TYPE_CHECKING:
    add_files = blocking(export.add_files)
    import_file = blocking(imports.import_file)
    export_session = blocking(export.export_session)
    transcript = blocking(export.transcript)
    write_continuation = blocking(export.write_continuation)
    write_pages = blocking(export.write_pages)
    write_transcript = blocking(export.write_transcript)
    write_bundle = blocking(copy.write_bundle)
    read_bundle = blocking(copy.read_bundle)
else:
    _RUNTIME = ("CompactionGuard", "Conversation", "copy_store", "run_command", "summarize")
    _FUNCTIONS = {
        "flue_py.transfer.copy": ("read_bundle", "write_bundle"),
        "flue_py.transfer.export": (
            "add_files",
            "export_session",
            "transcript",
            "write_continuation",
            "write_pages",
            "write_transcript",
        ),
        "flue_py.transfer.imports": ("import_file",),
    }

    def __getattr__(name):
        home = next((module for module, names in _FUNCTIONS.items() if name in names), None)
        if home is not None:
            value = blocking(getattr(import_module(home), name))
        elif name in _RUNTIME:
            value = getattr(import_module("flue_py.sync.runtime"), name)
        else:
            raise AttributeError(f"module 'flue_py.sync' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_RUNTIME, *chain(*_FUNCTIONS.values())})


def _session(way: Way, session: AsyncSession) -> Session:
    return Session(way, session)


def _session_or_none(way: Way, session: AsyncSession | None) -> Session | None:
    return None if session is None else Session(way, session)


def _store(way: Way, store: AsyncStore) -> Store:
    return Store(way, store)


def _told(way: Way, generator: AsyncGenerator[Returned, None]) -> Iterator[Returned]:
    """Yield the values of an asynchronous generator, each when it is asked for."""
    has_begun = False

    async def following() -> Returned | None:
        return await anext(generator, None)

    try:
        while (value := way.call(following)) is not None:
            has_begun = True
            yield value
    except StoreClosed:
        # It may be closed while one is looked at, and that ends the others as well.
        if not has_begun:
            raise
    finally:
        way.close(generator)


class Marks(Twin[marks.Marks]):
    """The blocking twin of ``session.marks``."""

    set_label = blocking(marks.Marks.set_label)
    labels = blocking(marks.Marks.labels)
    pin = blocking(marks.Marks.pin)
    unpin = blocking(marks.Marks.unpin)
    pins = blocking(marks.Marks.pins)
    exclude = blocking(marks.Marks.exclude)
    include = blocking(marks.Marks.include)
    exclusions = blocking(marks.Marks.exclusions)
    register = blocking(marks.Marks.register)
    unregister = blocking(marks.Marks.unregister)
    registered = blocking(marks.Marks.registered)


class Spending(Twin[money.Spending]):
    """The blocking twin of ``session.money``."""

    record_call = blocking(money.Spending.record_call)
    import_call = blocking(money.Spending.import_call)
    aggregate_usage_since = blocking(money.Spending.aggregate_usage_since)
    entry_costs = blocking(money.Spending.entry_costs)
    budgets = blocking(money.Spending.budgets)
    check_budgets = blocking(money.Spending.check_budgets)
    reserve = blocking(money.Spending.reserve)
    commit = blocking(money.Spending.commit)
    release = blocking(money.Spending.release)
    prolong = blocking(money.Spending.prolong)
    budgeted = entering(money.Spending.budgeted, same)


class Compactions(Twin[compact.Compactions]):
    """The blocking twin of ``session.compactions``."""

    plan = blocking(compact.Compactions.plan)
    compact_range = blocking(compact.Compactions.compact_range)
    fit_to = blocking(compact.Compactions.fit_to)
    price = blocking(compact.Compactions.price)
    loss_report = blocking(compact.Compactions.loss_report)
    recall = blocking(compact.Compactions.recall)
    answer_recall = blocking(compact.Compactions.answer_recall)
    latest = blocking(compact.Compactions.latest)
    uncompact = blocking(compact.Compactions.uncompact)


class Context(Twin[request.Context]):
    """The blocking twin of ``session.context``."""

    measure = blocking(request.Context.measure)
    latest_assistant = blocking(request.Context.latest_assistant)
    pending = blocking(request.Context.pending)
    common_prefix = blocking(request.Context.common_prefix)
    gather = blocking(request.Context.gather)
    validate = blocking(request.Context.validate)
    attempts = blocking(request.Context.attempts)
    append_handoff = blocking(request.Context.append_handoff)


class Reports(Twin[request.Reports]):
    """The blocking twin of ``session.reports``."""

    name = blocking(request.Reports.name)
    snapshots = blocking(request.Reports.snapshots)
    html = blocking(request.Reports.html)


class Tasks(Twin[AsyncTasks]):
    """The blocking twin of ``session.tasks``."""

    create = adapting(AsyncTasks.create, _session)
    end = blocking(AsyncTasks.end)
    links = blocking(AsyncTasks.links)
    parents = blocking(AsyncTasks.parents)


class Branches(Twin[AsyncBranches]):
    """The blocking twin of ``session.branches``."""

    is_ancestor = blocking(AsyncBranches.is_ancestor)
    children = blocking(AsyncBranches.children)
    neighbours = blocking(AsyncBranches.neighbours)
    common_ancestor = blocking(AsyncBranches.common_ancestor)
    diff = blocking(AsyncBranches.diff)
    cherry_pick = blocking(AsyncBranches.cherry_pick)
    merge_back = blocking(AsyncBranches.merge_back)


class Artifacts(Twin[write.Artifacts]):
    """The blocking twin of ``session.artifacts``."""

    all = blocking(write.Artifacts.all)
    read = blocking(write.Artifacts.read)
    answer_read = blocking(write.Artifacts.answer_read)


class Files(Twin[files.Files]):
    """The blocking twin of ``session.files``."""

    checkpoint = blocking(files.Files.checkpoint)
    before_edit = blocking(files.Files.before_edit)
    after_edit = blocking(files.Files.after_edit)
    checkpoints = blocking(files.Files.checkpoints)
    restore = blocking(files.Files.restore)


class Session(Twin[AsyncSession]):
    """The blocking twin of `flue_py.Session`."""

    refresh = blocking(AsyncSession.refresh)

    append_message = blocking(AsyncSession.append_message)
    append_messages = blocking(AsyncSession.append_messages)
    append_shell = blocking(AsyncSession.append_shell)
    append_blocks = blocking(AsyncSession.append_blocks)
    append_compaction = blocking(AsyncSession.append_compaction)
    compact = blocking(AsyncSession.compact)
    request = blocking(AsyncSession.request)
    append_branch_summary = blocking(AsyncSession.append_branch_summary)
    append_custom = blocking(AsyncSession.append_custom)
    import_entries = blocking(AsyncSession.import_entries)

    move_leaf = blocking(AsyncSession.move_leaf)
    navigate = blocking(AsyncSession.navigate)
    rewind = blocking(AsyncSession.rewind)
    undo = blocking(AsyncSession.undo)
    redo = blocking(AsyncSession.redo)
    remove_leaf_message = blocking(AsyncSession.remove_leaf_message)
    log = blocking(AsyncSession.log)
    go_back = blocking(AsyncSession.go_back)
    redact = blocking(AsyncSession.redact)

    fork = adapting(AsyncSession.fork, _session)
    copy = adapting(AsyncSession.copy, _session)

    get_active_path = blocking(AsyncSession.get_active_path)
    turns = blocking(AsyncSession.turns)
    settings = blocking(AsyncSession.settings)
    build_context_entries = blocking(AsyncSession.build_context_entries)
    build_context = blocking(AsyncSession.build_context)
    get_entry = blocking(AsyncSession.get_entry)
    get_entries = blocking(AsyncSession.get_entries)
    entries = blocking(AsyncSession.entries)
    resolve_entry_id = blocking(AsyncSession.resolve_entry_id)
    get_tree = blocking(AsyncSession.get_tree)

    set_title = blocking(AsyncSession.set_title)
    set_metadata = blocking(AsyncSession.set_metadata)
    set_completed = blocking(AsyncSession.set_completed)

    changes = blocking(AsyncSession.changes)

    def watch(self, *, after: int | None = None) -> Iterator[Change]:
        """Yield every change after a revision (default: the handle's), then each new one as it comes.

        Otherwise as `flue_py.Session.watch`.
        """
        return _told(self._way, self._original.watch(after=after))

    id = reading(AsyncSession, lambda session: session.id)
    ref = reading(AsyncSession, lambda session: session.ref)
    key = reading(AsyncSession, lambda session: session.key)
    title = reading(AsyncSession, lambda session: session.title)
    metadata = reading(AsyncSession, lambda session: session.metadata)
    leaf_id = reading(AsyncSession, lambda session: session.leaf_id)
    draft = reading(AsyncSession, lambda session: session.draft)
    revision = reading(AsyncSession, lambda session: session.revision)
    info = reading(AsyncSession, lambda session: session.info)

    marks = twin_read(Marks, "marks")
    money = twin_read(Spending, "money")
    compactions = twin_read(Compactions, "compactions")
    context = twin_read(Context, "context")
    reports = twin_read(Reports, "reports")
    tasks = twin_read(Tasks, "tasks")
    branches = twin_read(Branches, "branches")
    artifacts = twin_read(Artifacts, "artifacts")
    files = twin_read(Files, "files")


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

    limits = reading(AsyncStore, lambda store: store.limits)
    backend = reading(AsyncStore, lambda store: store.backend)
    scope = reading(AsyncStore, lambda store: store.scope)
    unchecked = reading(AsyncStore, lambda store: store.unchecked)

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
        """Yield the events of sessions, each once, and with ``follow`` those that come.

        Otherwise as `flue_py.Store.events`.
        """
        return _told(self._way, self._original.events(sessions=sessions, scope=scope, after=after, follow=follow))

    atomic = entering(AsyncStore.atomic, Atomic)

    usage = blocking(AsyncStore.usage)
    reprice = blocking(AsyncStore.reprice)

    link_task = blocking(AsyncStore.link_task)
    delete_session_tree = blocking(AsyncStore.delete_session_tree)
    delete_scope = blocking(AsyncStore.delete_scope)
    erase = blocking(AsyncStore.erase)
    erase_scope = blocking(AsyncStore.erase_scope)
    hold = blocking(AsyncStore.hold)
    holds = blocking(AsyncStore.holds)
    lift_hold = blocking(AsyncStore.lift_hold)

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
    heads = blocking(AsyncStore.heads)
    compare_heads = blocking(AsyncStore.compare_heads)
    verify = blocking(AsyncStore.verify)
    info = blocking(AsyncStore.info)
    backup = blocking(AsyncStore.backup)
    rekey = blocking(AsyncStore.rekey)

    def close(self) -> None:
        # Twice is no error.
        with suppress(StoreClosed):
            self._way.call(self._original.close)

    close.__doc__ = AsyncStore.close.__doc__


def _take_over_docstrings(twin: type, original: type) -> None:
    for name, member in vars(twin).items():
        if isinstance(member, property) and member.__doc__ is None:
            member.__doc__ = getattr(original, name).__doc__


_take_over_docstrings(Session, AsyncSession)
_take_over_docstrings(Store, AsyncStore)


def _shown(target: object) -> str:
    """Return how to name a store in a message: by its path, while a URL may hold a password."""
    return str(target) if isinstance(target, (str, PathLike)) and "://" not in str(target) else "the store"


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
        if store.needs_event_loop(target, kwargs.get("engine"), kwargs.get("threads")):
            return _on_loop_thread(opener(*args, **kwargs), _shown(target))
        if kwargs.get("threads") is None:
            kwargs["threads"] = False
        return _on_this_thread(opener(*args, **kwargs), _shown(target))

    return update_wrapper(blocking_opener, opener)


open = _opening(store.open)


def salvage(
    damaged: str | PathLike[str], new: str | PathLike[str], *, limits: Limits | None = None, key: KeyChoice = None
) -> SalvageReport:
    return copy.salvage_file(damaged, new, limits=limits, key=key)


salvage.__doc__ = copy.salvage.__doc__


# ---------------------------------------------------------------------------------------------------------------------
# Arguments of the blocking twins: plain functions in place of async ones, and stores that block.

PlainHook: TypeAlias = "Callable[[AboutToCompact], HookAnswer]"
"""A hook before a compaction that is a plain function."""


def awaited(waiting: Waiting, function: Callable[[Made], Result]) -> Callable[[Made], Awaitable[Result]]:
    """Return an async function that calls a plain one where it may block, and call the store."""

    async def called(argument: Made) -> Result:
        if not waiting.has_loop:
            return function(argument)
        # Nothing can end the thread that it runs on: who wants it to end has to wait, and its result is not lost.
        with shielded():
            result = await waiting.call(partial(function, argument))
        return result  # noqa: RET504 - to mypy, the scope could end before there is one

    return called


def checked_parts(store: Store, session: Session) -> None:
    """Raise `InvalidArgument` for a store or a session that does not block."""
    for name, part, kind in (("store", store, Store), ("session", session, Session)):
        if not isinstance(part, kind):
            raise InvalidArgument(f"{name}: {shown(part)} is not a {kind.__name__} of flue_py.sync")


def constructing(
    make: Callable[Concatenate[AsyncStore, AsyncSession, P], Made],
) -> Callable[[Callable[[Owner, Store, Session], None]], Callable[Concatenate[Owner, Store, Session, P], None]]:
    """Return the decorator of a twin's constructor: it takes the arguments of ``make``, store and session blocking.

    What ``make`` makes of them is the original. ``before_compaction`` is a plain function, too. Raises as
    `checked_parts` and `checked_plain`.
    """

    def decorate(note: Callable[[Owner, Store, Session], None]) -> Callable[..., None]:
        def construct(twin: Owner, store: Store, session: Session, *args: object, **options: object) -> None:
            checked_parts(store, session)
            way, original = parts_of(store)
            hook = cast("PlainHook | None", options.pop("before_compaction", None))
            options["before_compaction"] = hook_of(original.backend.waiting, hook)
            made: Callable[..., Made] = make
            Twin.__init__(twin, way, made(original, parts_of(session)[1], *args, **options))
            note(twin, store, session)

        return update_wrapper(construct, make.__init__)

    return decorate


def hook_of(waiting: Waiting, hook: PlainHook | None) -> BeforeCompaction | None:
    """Return a plain hook as one that can be awaited. Raises as `checked_plain`."""
    if hook is None:
        return None
    plain = checked_plain(hook, "before_compaction")
    return awaited(waiting, plain) if waiting.has_loop else plain


def checked_plain(function: Callable[[Made], Result], name: str) -> Callable[[Made], Result]:
    """Return a plain function unchanged. Raises `InvalidArgument` for async ones, classes and no functions."""
    if not callable(function) or isinstance(function, type) or iscoroutinefunction(function):
        raise InvalidArgument(f"{name}: {shown(function)} is not a plain function; flue_py.agents takes async ones")
    return function
