"""The event loop of trio. Imported where trio runs only: nothing else of the library needs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakValueDictionary

import trio
from trio import lowlevel

from flue_py.db.waiting import Loop, Waiting, within

if TYPE_CHECKING:
    from outcome import Outcome


Result = TypeVar("Result")

_SHARED = lowlevel.RunVar["WeakValueDictionary[str, trio.Lock] | None"]("locks of flue_py", None)


class _OnTrio(Waiting):
    """On the event loop of trio: other tasks go on meanwhile, and calls that block run on another thread."""

    needs_loop = True
    has_loop = True

    def turn(self) -> AbstractAsyncContextManager[object]:
        lock: AbstractAsyncContextManager[object] = trio.Lock()
        return lock

    def shared_turn(self, name: str) -> AbstractAsyncContextManager[object]:
        locks = _SHARED.get(None)
        if locks is None:
            locks = WeakValueDictionary[str, "trio.Lock"]()
            _SHARED.set(locks)
        lock: AbstractAsyncContextManager[object] = locks.setdefault(name, trio.Lock())
        return lock

    async def finish(self, work: Coroutine[object, object, Result]) -> Result:
        with trio.CancelScope(shield=True):
            result = await work
        await lowlevel.checkpoint_if_cancelled()
        return result

    async def call(self, function: Callable[[], Result]) -> Result:
        result: Result = await trio.to_thread.run_sync(function)
        return result

    async def ahead(self, function: Callable[[], Result | None]) -> AsyncGenerator[Result, None]:
        making = _OnThread(function)
        try:
            while (result := await making.result()) is not None:
                making = _OnThread(function)
                yield result
        finally:
            # The thread must not go on with what may be closed from here on.
            with trio.CancelScope(shield=True):
                await making.ended.wait()

    async def outcomes(self, work: Sequence[Coroutine[object, object, Result]]) -> list[Result | Exception]:
        outcomes: dict[int, Result | Exception] = {}

        async def note(number: int, job: Coroutine[object, object, Result]) -> None:
            try:
                outcomes[number] = await job
            except Exception as error:  # noqa: BLE001 - given to the caller
                outcomes[number] = error

        async with trio.open_nursery() as nursery:
            for number, job in enumerate(work):
                nursery.start_soon(note, number, job)
        return [outcomes[number] for number in range(len(outcomes))]

    async def ask(self, function: Callable[[], Coroutine[object, object, Result]], seconds: float | None) -> Result:
        return await within(function, seconds)

    async def pause(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _OnThread(Generic[Result]):
    """A function that is called on another thread. A task for it would need a nursery around whoever uses it."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self.ended = trio.Event()
        self._outcome: Outcome[Result] | None = None
        token = lowlevel.current_trio_token()
        lowlevel.start_thread_soon(function, lambda outcome: token.run_sync_soon(self._end, outcome))

    def _end(self, outcome: Outcome[Result]) -> None:
        self._outcome = outcome
        self.ended.set()

    async def result(self) -> Result:
        """Wait for it, and return its result."""
        await self.ended.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()


class _Promise(Generic[Result]):
    """A value that a task waits for (see `waiting.Promise`)."""

    __slots__ = ("_error", "_is_done", "_result", "_task")

    def __init__(self) -> None:
        self._is_done = False
        self._result: Result
        self._error: BaseException | None = None
        self._task: lowlevel.Task | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Result, /) -> None:
        self._result = result
        self._wake()

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        self._is_done = True
        if self._task is not None:
            lowlevel.reschedule(self._task)

    def __await__(self) -> Generator[object, object, Result]:
        return self._wait().__await__()

    async def _wait(self) -> Result:
        if not self._is_done:
            self._task = lowlevel.current_task()
            await lowlevel.wait_task_rescheduled(self._give_up)
        if self._error is not None:
            raise self._error
        return self._result

    def _give_up(self, _: object) -> lowlevel.Abort:
        self._is_done = True
        return lowlevel.Abort.SUCCEEDED


class TrioLoop(Loop):
    """The run of trio that this was made in."""

    name = "trio"
    waiting = _OnTrio()
    cancelled = trio.Cancelled

    def __init__(self) -> None:
        self._token = lowlevel.current_trio_token()
        self.promise = _Promise
        self.post = self._token.run_sync_soon

    def is_here(self) -> bool:
        try:
            return lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False
