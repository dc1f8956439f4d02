"""The requests of a run: the part of its session that is sent, and a second try of one that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelContextWindowExceededError, ModelHTTPError

from flue_py.agents.journal import Journal
from flue_py.context.overflows import overflow_of
from flue_py.context.request import Attempt, Attempts
from flue_py.context.settings import ContextSettings
from flue_py.core.json import Frozen, JsonObject
from flue_py.errors import ContextOverflow
from flue_py.runtime.guard import CompactionGuard
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

INTENT = "intent"
"""The mode of the guard that nobody brought."""

_TRANSIENT = (408, 409, 425, 429)
"""The status of requests that may be answered a little later; so may those of 500 and above."""


class RequestPlan(Frozen, eq=False):
    """How requests are made: the settings of the context, the guard of a session, and the seconds between retries."""

    settings: ContextSettings | None
    guard: Callable[[Session], CompactionGuard] | None
    retry_seconds: Sequence[float]
    sleep: Callable[[float], Awaitable[object]]
    recovers: bool


class Requests:
    """The requests of one run of an agent."""

    def __init__(self, plan: RequestPlan, store: Store, journal: Journal, agent: str | None) -> None:
        self._plan = plan
        self._journal = journal
        self._agent = agent
        # Without a model it compacts by rules alone, and only what has overflowed.
        own = partial(CompactionGuard, store, mode=INTENT)
        self._guard = (plan.guard or own)(journal.session)
        self._attempts: Attempts | None = None
        self._attempt: Attempt | None = None
        self._messages: list[ModelMessage] | None = None
        self._retries = 0
        self._is_recovered = False

    async def begin(self, messages: list[ModelMessage]) -> None:
        """Begin with the request of a step: a guard that somebody brought compacts first, if that is due."""
        self._attempts = self._attempt = self._messages = None
        self._retries, self._is_recovered = 0, False
        if self._plan.guard is not None:
            answer = await self._guard.before_call(self._agent or "")
            if answer.outcome in ("compacted", "too_little", "overtaken"):
                await self._journal.reload(messages)
                self._messages = [*messages]
        if self._plan.settings is not None:
            await self._trim()

    def of_attempt(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the messages that an attempt sends, by default those of the framework."""
        return messages if self._messages is None else [*self._messages]

    async def is_to_repeat(self, error: Exception, messages: list[ModelMessage]) -> bool:
        """Return whether a request that failed is made once more; wait or make room before that.

        An overflow has the session compacted once, and is then met with less of the results of tools. An error
        that may pass by itself is tried again after the seconds of the plan.
        """
        overflow = _overflow_of(error)
        if overflow is None:
            return await self._may_pass(error)
        if overflow.is_malformed or not self._plan.recovers:
            return False
        if not self._is_recovered:
            self._is_recovered = True
            if await self._is_smaller(overflow):
                await self._journal.reload(messages)
                self._attempts = self._attempt = None
                self._messages = [*messages]
                return self._plan.settings is None or await self._trim()
        return await self._trim()

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

    async def _is_smaller(self, overflow: ContextOverflow) -> bool:
        try:
            answer = await self._guard.recover(overflow, self._agent or "")
        except ContextOverflow:
            return False
        return answer.outcome in ("compacted", "overtaken")

    async def _trim(self) -> bool:
        """Take the next attempt at the request of the session; return whether there is one that sends less."""
        context, before = self._journal.session.context, self._of(self._attempt)
        if self._attempts is None:
            self._attempts = await context.attempts(agent=self._agent, settings=self._plan.settings)
            if self._plan.settings is None:
                # The whole context has overflowed already.
                self._attempt = await anext(self._attempts)
                before = self._of(self._attempt)
        while True:
            if self._attempt is not None:
                self._attempt.overflowed()
            try:
                self._attempt = await anext(self._attempts, None)
            except ContextOverflow:
                return False
            if self._attempt is None:
                return False
            if self._of(self._attempt) != before:
                self._messages = await self._journal.sent(self._attempt.request.items)
                return True

    def _of(self, attempt: Attempt | None) -> list[JsonObject] | None:
        return None if attempt is None else attempt.request.messages


def _overflow_of(error: Exception) -> ContextOverflow | None:
    overflow = overflow_of(error)
    is_named = overflow is None and isinstance(error, ModelContextWindowExceededError)
    return ContextOverflow(str(error)) if is_named else overflow
