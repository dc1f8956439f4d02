"""Runs inside the tools of recorded runs: each is a task session of the run that made the call.

The call that is made now is in a context variable, so that the agent of a tool needs no further parameter. Its run has
an id made of the session and the call: if the call is repeated after a crash, its run goes on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.tools import DeferredToolRequests

from flue_py.core.sessions import TaskEnd
from flue_py.errors import FlueError
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_MOST_CHARACTERS = 2_000


class OpenCall:
    """The call of a tool that is made now, in a session of a store."""

    def __init__(self, store: Store, session: Session, call_id: str, messages: Sequence[ModelMessage]) -> None:
        self.store = store
        self.session = session
        self._call_id = call_id
        self._messages = messages
        self._runs = 0

    @property
    def prefix(self) -> str:
        """How the ids of runs inside this call begin."""
        return f"{self.session.id}/{self._call_id}/"

    def next_run(self) -> str:
        """Return the id of the next run inside this call: the same again if the call is made again. O(messages)."""
        self._runs += 1
        answers = [message for message in self._messages if isinstance(message, ModelResponse)]
        # Some models number their calls anew in each answer.
        times = sum(call.tool_call_id == self._call_id for answer in answers for call in answer.tool_calls)
        return f"{self.prefix}{times}/{self._runs}"


_OPEN: ContextVar[OpenCall | None] = ContextVar("_OPEN", default=None)


@contextmanager
def inside(call: OpenCall) -> Iterator[None]:
    """Have runs in this block be tasks of a call."""
    token = _OPEN.set(call)
    try:
        yield
    finally:
        _OPEN.reset(token)


def open_call(store: Store) -> OpenCall | None:
    """Return the call that this task is part of, if its session is in the same store."""
    call = _OPEN.get()
    return call if call is not None and call.store is store else None


async def task_session(store: Store, run_id: str, agent: str | None) -> Session | None:
    """Return the task session of a run with an id of `OpenCall.next_run`; None for any other run.

    Raises `TaskDepthExceeded`. One write.
    """
    call = open_call(store)
    if call is None or not run_id.startswith(call.prefix):
        return None
    return await call.session.tasks.create(task_id=run_id.removeprefix(f"{call.session.id}/"), title=agent)


@asynccontextmanager
async def ended(store: Store, session: Session, outputs: Sequence[object]) -> AsyncIterator[None]:
    """Note how the task ends that the block does: done with the last output, or failed with its error."""
    try:
        yield
    except BaseException as error:
        with suppress(FlueError):
            await _end(store, session, "failed", f"{type(error).__name__}: {error}")
        raise
    if not isinstance(outputs[-1], DeferredToolRequests):
        await _end(store, session, "done", str(outputs[-1]))


async def end_lost(store: Store, session: Session, call_id: str) -> None:
    """Note that the tasks of a call have failed whose process ended, and which nobody goes on with. O(tasks)."""
    for link in await session.tasks.links():
        task = await store.get_session(link.child_id)
        if link.status == "running" and link.task_id.startswith(f"{call_id}/") and task is not None:
            await _end(store, task, "failed", "its process ended, and its call is not made again")


async def _end(store: Store, session: Session, status: TaskEnd, summary: str) -> None:
    await store.backend.waiting.finish(session.tasks.end(status, summary=summary[:_MOST_CHARACTERS]))
