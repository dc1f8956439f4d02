"""How the calls of a store wait: for each other, for work that blocks, and to the end of what was begun.

What goes round a transaction waits in these ways only, so that it runs on an event loop and, where a store needs none,
is driven by hand on the thread that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from anyio import CancelScope

Result = TypeVar("Result")


class Waiting(Protocol):
    """The ways in which calls wait."""

    needs_loop: bool
    """Whether a coroutine may be suspended here."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return a lock by which calls happen one after the other, in the order in which they were made."""

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what ``work`` returns. Where the caller is cancelled meanwhile, finish it first, then say so."""

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns that blocks or takes long, called where it holds up nobody else."""

    def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        """Yield what such a function returns, again and again until that is None; to be closed, if not exhausted.

        While one result is used, the next one may be made.
        """

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        """Return what each of these returns or raises, in their order; they may run at the same time."""


class Promise(Protocol[Result]):
    """What one task waits for, until it is settled on the loop. A task that is cancelled waits no more: it is done."""

    def done(self) -> bool:
        """Return whether it is settled, or the one who waited was cancelled. It must not be settled then."""

    def set_result(self, result: Result, /) -> None:
        """Settle it."""

    def set_exception(self, error: BaseException, /) -> None:
        """Settle it with what is to be raised."""

    def __await__(self) -> Generator[Any, Any, Result]: ...


class Loop(Protocol):
    """What a store needs of the event loop that it was opened in."""

    name: str
    """asyncio or trio."""

    waiting: Waiting
    """How calls wait on it."""

    cancelled: type[BaseException]
    """What is raised where a task is cancelled."""

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


class OnLoop(Waiting):
    """On the event loop of asyncio: other tasks go on meanwhile, and what blocks runs on another thread."""

    needs_loop = True

    def turn(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

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
            while (made := await making) is not None:
                making = asyncio.create_task(asyncio.to_thread(function))
                yield made
        finally:
            # The thread must not go on with what may be closed from here on.
            await ended(making)

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        found = await asyncio.gather(*work, return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [
            outcome for outcome in found if not isinstance(outcome, BaseException) or isinstance(outcome, Exception)
        ]


class OnCaller(Waiting):
    """On the thread that asks: nothing is ever suspended, so that nothing else happens meanwhile on it."""

    needs_loop = False

    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        return await work

    async def call(self, function: Callable[[], Result]) -> Result:
        return function()

    async def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        while (made := function()) is not None:
            yield made

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        found: list[Result | Exception] = []
        for each in work:
            try:
                found.append(await each)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                found.append(error)
        return found


ON_LOOP = OnLoop()
ON_CALLER = OnCaller()
