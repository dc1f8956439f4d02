"""How the calls of a store wait: for each other, for work that blocks, and to the end of work that has begun.

Code around a transaction waits in these ways only, so that it runs on an event loop and, where a store needs none,
is driven by hand on the thread that asks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from threading import RLock, get_ident
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures

    from anyio import CancelScope
else:
    # A file that is opened without threads needs no event loop, and asyncio takes 20 ms to load.
    asyncio = lazy_module("asyncio")
    futures = lazy_module("concurrent.futures")


Result = TypeVar("Result")

_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = WeakKeyDictionary()

POLL_SECONDS = 0.1
"""How often a store that nobody wakes looks for changes."""


class Waiting(Protocol):
    """The ways in which calls wait."""

    needs_loop: bool
    """Whether a coroutine may be suspended here."""

    has_loop: bool
    """Whether an event loop runs, so that other tasks go on while a function of the caller is waited for."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return a lock by which calls happen one after the other, in the order in which they were made."""

    def shared_turn(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return such a lock that all stores of this loop have in common which ask for the same name."""

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        """Return the result of ``work``. If the caller is cancelled meanwhile, finish it first, then say so."""

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that blocks or takes long, called where it holds up nobody else."""

    def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        """Yield the result of such a function, again and again until that is None; to be closed, if not exhausted.

        While one result is used, the next one may be made.
        """

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        """Return the results and the errors of these, in their order; they may run at the same time."""

    async def ask(self, function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
        """Return the result of a coroutine function of the caller, such as a model. No turn may be held meanwhile.

        Raises `TimeoutError` after so many seconds; None waits for ever.
        """

    async def pause(self, seconds: float) -> None:
        """Wait for so many seconds; other tasks go on meanwhile, where there are any."""


class Promise(Protocol[Result]):
    """A value that one task waits for, until it is settled on the loop. A cancelled task waits no more: it is done."""

    def done(self) -> bool:
        """Return whether it is settled, or the one who waited was cancelled. It must not be settled then."""

    def set_result(self, result: Result, /) -> None:
        """Settle it."""

    def set_exception(self, error: BaseException, /) -> None:
        """Settle it with an error."""

    def __await__(self) -> Generator[Any, Any, Result]: ...


class Loop(Protocol):
    """The functions of the event loop that a store was opened in."""

    name: str
    """asyncio or trio."""

    waiting: Waiting
    """How calls wait on it."""

    cancelled: type[BaseException]
    """The error of a task that is cancelled."""

    promise: Callable[[], Promise[Any]]
    """Return a new promise."""

    post: Callable[..., object]
    """Have the loop call a function, with these arguments: for threads. `RuntimeError` where the loop has ended."""

    def is_here(self) -> bool:
        """Return whether it is the loop that runs now, on this thread."""


def shielded() -> CancelScope:
    """Return a scope of anyio that those around it do not cancel. `task.cancel` of asyncio still reaches into it.

    Without it, a cancelled scope would cancel again at each step of the loop, for as long as one waits.
    """
    # Most programs cancel nothing that is under way, and anyio takes 30 ms to load.
    from anyio import CancelScope  # noqa: PLC0415

    return CancelScope(shield=True)


def given(seconds: float) -> CancelScope:
    """Return a scope of anyio that ends after so many seconds."""
    from anyio import move_on_after  # noqa: PLC0415 - as above

    return move_on_after(seconds)


async def ended(task: asyncio.Future[Any]) -> None:
    """Wait for the end of a task of asyncio, however often the caller is cancelled."""
    with shielded():
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))


async def within(function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
    """Return the result of a coroutine function, on the loop that runs. `TimeoutError` after so many seconds."""
    if seconds is None:
        return await function()
    from anyio import fail_after  # noqa: PLC0415 - as above

    with fail_after(seconds):
        return await function()


class OnLoop(Waiting):
    """On the event loop of asyncio: other tasks go on meanwhile, and calls that block run on another thread."""

    needs_loop = True
    has_loop = True

    def turn(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

    def shared_turn(self, name: str) -> AbstractAsyncContextManager[object]:
        locks = _SHARED.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        return locks.setdefault(name, asyncio.Lock())

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        # It runs in a task of its own, so that whatever it notes down at its end is noted down in any case.
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await ended(task)
            raise

    async def call(self, function: Callable[[], Result]) -> Result:
        return await asyncio.to_thread(function)

    async def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        making = asyncio.create_task(asyncio.to_thread(function))
        try:
            while (result := await making) is not None:
                making = asyncio.create_task(asyncio.to_thread(function))
                yield result
        finally:
            # The thread must not go on with what may be closed from here on.
            await ended(making)

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [
            outcome for outcome in outcomes if not isinstance(outcome, BaseException) or isinstance(outcome, Exception)
        ]

    async def ask(self, function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
        return await within(function, seconds)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OnCaller(Waiting):
    """On the thread that asks, of one store: but for `pause`, nothing is ever suspended."""

    needs_loop = False

    def __init__(self) -> None:
        self.has_loop = True
        self.busy: int | None = None
        """The thread that runs a transaction, which may call functions of the caller. It is set and reset by a mere
        assignment: an interrupt comes at calls only, and one before a reset would shut that thread out for good."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        return _Turn(self)

    def shared_turn(self, name: str) -> AbstractAsyncContextManager[object]:
        # Nothing is suspended while it has its turn: what another store of this thread does comes before or after.
        del name
        return _Turn(self)

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        return await work

    async def call(self, function: Callable[[], Result]) -> Result:
        return function()

    async def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        while (result := function()) is not None:
            yield result

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        outcomes: list[Result | Exception] = []
        for coroutine in work:
            try:
                outcomes.append(await coroutine)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                outcomes.append(error)
        return outcomes

    async def ask(self, function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
        if self.has_loop:
            return await within(function, seconds)
        # What the caller gives may be async all the same: it gets a loop of its own for the time it takes.
        return _on_own_loop(lambda: within(function, seconds))

    async def pause(self, seconds: float) -> None:
        if self.has_loop:
            import anyio  # noqa: PLC0415 - it takes 30 ms to load, and most programs watch nothing

            await anyio.sleep(seconds)
        else:
            sleep(seconds)  # noqa: ASYNC251 - there is nothing else on this thread

    def without_loop(self) -> None:
        """Say that all coroutines are driven by `run_here`, so that a pause has to block the thread."""
        self.has_loop = False

    def require_outside(self) -> None:
        """Raise `InvalidArgument` for a call from a function that a transaction calls: it would wait for itself."""
        if self.busy == get_ident():
            raise InvalidArgument(
                "a function that the store calls in a transaction, such as for metadata=, clock= or ids=, called the "
                "store, which would wait for itself; make that call before or after"
            )


class _Turn:
    """A lock for threads. No task waits for another one here: its holder is not suspended."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self, waiting: OnCaller) -> None:
        self._lock = RLock()
        self._waiting = waiting

    async def __aenter__(self) -> None:
        self._waiting.require_outside()
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def _on_own_loop(function: Callable[[], Coroutine[object, object, Result]]) -> Result:
    """Return the result of a coroutine function, on a new event loop: on this thread, unless a loop runs here."""
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - documented, and the only way to ask without an error
        return asyncio.run(function())
    with futures.ThreadPoolExecutor(1, thread_name_prefix="flue-ask") as thread:
        return thread.submit(lambda: asyncio.run(function())).result()


def run_here(work: Coroutine[object, object, Result]) -> Result:
    """Return the result of a coroutine that is never suspended, as of a store that is `OnCaller`: without a loop.

    Raises its errors, and `InvalidArgument` if it waits for something after all.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    work.close()
    raise InvalidArgument(
        "a call without an event loop waited for one; give it plain functions to call, not async ones"
    )


ON_LOOP = OnLoop()
