"""Calls of a model that run now, and that a compaction on demand ends before it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from threading import Event as ThreadEvent
from typing import TypeVar

from flue_py.errors import AbortedToCompact, ModelError
from flue_py.sessions.asking import book
from flue_py.sessions.session import Session
from flue_py.store.waiting import Waiting

Result = TypeVar("Result")

_PURPOSE = "turn"
_OUTCOME = "aborted"


class _Call:
    """A call that runs on a thread without an event loop: nothing can end it."""

    was_ended = False
    """Whether it ended because somebody wanted it to."""

    def __init__(self) -> None:
        self._has_ended = ThreadEvent()

    def end(self) -> None:
        """Have it end, as soon as it can."""

    def has_ended(self) -> None:
        """Say that it has ended."""
        self._has_ended.set()

    async def wait(self) -> None:
        """Wait until it has ended."""
        self._has_ended.wait()


class _EndedCall(_Call):
    """A call that runs in a task, which ``scope`` cancels."""

    def __init__(self) -> None:
        # Imported by whoever calls models: it takes 30 ms to load.
        from anyio import CancelScope, Event  # noqa: PLC0415

        self.scope = CancelScope()
        self.is_to_end = False
        self._has_gone = Event()

    def end(self) -> None:
        self.is_to_end = True
        self.scope.cancel()

    def has_ended(self) -> None:
        self._has_gone.set()

    async def wait(self) -> None:
        await self._has_gone.wait()


_around: ContextVar[frozenset[_Call]] = ContextVar("_around", default=frozenset())
"""The calls that this task or thread is part of: it cannot wait for the end of these."""


class RunningCalls:
    """The calls that a guard or a conversation waits for now, each in a task or a thread of its own."""

    def __init__(self, waiting: Waiting, new_id: Callable[[], str]) -> None:
        self._waiting = waiting
        self._new_id = new_id
        self._calls: set[_Call] = set()

    async def run(self, session: Session, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return what ``work`` returns; it calls a model for a session.

        Raises what it raises, and `AbortedToCompact` if `end` was called before it was done. What it had cost is in the
        ledger then, if its own error says so.
        """
        call = _EndedCall() if self._waiting.has_loop else _Call()
        around = _around.set(_around.get() | {call})
        self._calls.add(call)
        try:
            if isinstance(call, _EndedCall):
                return await self._run(call, session, work)
            return await work()
        finally:
            self._calls.discard(call)
            _around.reset(around)
            call.has_ended()

    async def _run(self, call: _EndedCall, session: Session, work: Callable[[], Awaitable[Result]]) -> Result:
        failure: ModelError | None = None
        with call.scope:
            try:
                return await work()
            except ModelError as error:
                if not call.is_to_end:
                    raise
                failure = error
        paid = None if failure is None else failure.call
        if paid is not None:
            # The task may be cancelled at the same time, and what was paid is known nowhere else.
            paid = (await self._waiting.finish(book(session, paid, self._new_id, _PURPOSE, _OUTCOME))).call
        call.was_ended = True
        raise AbortedToCompact(
            f"session {session.id!r}: the call of the model was ended, so that the session could be compacted; call "
            "again if the answer is still wanted",
            provider=None if failure is None else failure.provider,
            model=None if failure is None else failure.model,
            call=paid,
        ) from failure

    async def end(self) -> int:
        """End the calls that run now, and return how many that cut short, when all of them have ended.

        A plain function that blocks cannot be ended: it is waited for. A call that this task is itself part of goes on.
        """
        ending = self._calls.copy() - _around.get()
        for call in ending:
            call.end()
        for call in ending:
            await call.wait()
        return sum(call.was_ended for call in ending)
