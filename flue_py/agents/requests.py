"""The requests of a run: the part of its session that is sent, and a second try of one that failed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelContextWindowExceededError, ModelHTTPError

from flue_py.agents.guard import CompactionGuard
from flue_py.agents.journal import UNSAVED, Journal
from flue_py.context.overflows import overflow_of
from flue_py.context.request import ContextRequest
from flue_py.context.settings import ContextSettings
from flue_py.core.json import Frozen
from flue_py.errors import ContextOverflow
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

INTENT = "intent"
"""The mode of the guard that nobody brought."""

_TRANSIENT = (408, 409, 425, 429)
"""The status of requests that may be answered a little later; so may those of 500 and above."""


class RequestPlan(Frozen, eq=False):
    """How requests are made: the settings of the context, or the guard of a session, and the seconds between retries.

    With neither, the framework's own messages are sent, until they overflow.
    """

    settings: ContextSettings | None
    guard: Callable[[Session], CompactionGuard] | None
    retry_seconds: Sequence[float]
    sleep: Callable[[float], Awaitable[object]]
    recovers: bool


class Requests:
    """The requests of one run of an agent: those of the guard of its session, sent by the framework."""

    def __init__(self, plan: RequestPlan, store: Store, journal: Journal, agent: str | None) -> None:
        self._plan = plan
        self._journal = journal
        self._agent = agent or ""
        if plan.guard is not None:
            self._guard = plan.guard(journal.session)
        else:
            # Without a model it compacts by rules alone, and only what has overflowed.
            self._guard = CompactionGuard(store, journal.session, mode=INTENT, context=plan.settings)
        self._is_guarded = plan.guard is not None or plan.settings is not None
        self._requests: AsyncGenerator[ContextRequest | None, None] | None = None
        self._messages: list[ModelMessage] | None = None
        self._retries = 0

    async def begin(self) -> None:
        """Begin with the request of a step: the guard compacts first, if that is due. Raises as its `requests`."""
        self._retries, self._messages = 0, None
        # What could not be stored is in the framework's own messages alone.
        if not self._is_guarded or self._journal.is_behind:
            return
        try:
            self._messages = await self._journal.sent(await anext(await self._opened()))
        except UNSAVED as error:
            if not self._journal.goes_on(error):
                raise
            await self.end()

    async def end(self) -> None:
        """Note that the request has been answered, or nobody makes it again."""
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.aclose()

    async def _opened(self) -> AsyncGenerator[ContextRequest | None, None]:
        self._requests = await self._guard.requests(self._agent)
        return self._requests

    def of_attempt(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the messages that an attempt sends, by default those of the framework."""
        return messages if self._messages is None else [*self._messages]

    async def is_to_repeat(self, error: Exception) -> bool:
        """Return whether a request that failed is made once more; wait or make room before that.

        An overflow has the session compacted once, if that lacks nothing, and is then met with less of the results of
        tools. An error that may pass by itself is tried again after the seconds of the plan. Raises `ContextOverflow`
        if nothing helps.
        """
        overflow = _overflow_of(error)
        if overflow is None:
            return await self._may_pass(error)
        if not self._plan.recovers or self._journal.is_behind:
            return False
        requests = self._requests
        if requests is None:
            # From here on the session has less than the framework.
            self._is_guarded = True
            requests = await self._opened()
            await anext(requests)
        self._messages = await self._journal.sent(await requests.athrow(overflow))
        return True

    async def _may_pass(self, error: Exception) -> bool:
        is_transient = isinstance(error, (ModelConnectionError, ConnectionError, TimeoutError)) or (
            isinstance(error, ModelHTTPError) and (error.status_code in _TRANSIENT or error.status_code >= 500)
        )
        if not is_transient or self._retries >= len(self._plan.retry_seconds):
            return False
        self._retries += 1
        wished = error.retry_after if isinstance(error, ModelAPIError) else None
        await self._plan.sleep(max(self._plan.retry_seconds[self._retries - 1], wished or 0))
        return True


def _overflow_of(error: Exception) -> ContextOverflow | None:
    overflow = overflow_of(error)
    if overflow is None and isinstance(error, ModelContextWindowExceededError):
        overflow = ContextOverflow(str(error))
    if overflow is not None and overflow is not error:
        overflow.__cause__ = error
    return overflow
