"""The blocking twin of `flue_py.transfer.copy_store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from inspect import iscoroutinefunction
from typing import TypeAlias, TypeVar

from flue_py.agents import conversation
from flue_py.agents.conversation import Conversation as AsyncConversation
from flue_py.agents.guard import CompactionGuard as AsyncGuard
from flue_py.compaction.material import CompactionSummary, SummaryReply, SummaryRequest
from flue_py.compaction.material import summarize as original
from flue_py.compaction.plan import CompactionPlan
from flue_py.core.json import JsonObject
from flue_py.db.waiting import run_here
from flue_py.errors import InvalidArgument, shown
from flue_py.sync import (
    OnThisThread,
    Session,
    Store,
    Twin,
    adapting,
    awaited,
    blocking,
    checked_plain,
    constructing,
    parts_of,
    reading,
)
from flue_py.transfer import copy
from flue_py.transfer.copy import CopyProgress, CopyReport

# ---------------------------------------------------------------------------------------------------------------------
# The blocking twin of `flue_py.transfer.copy_store`.


def copy_store(
    source: Store, target: Store, *, progress: Callable[[CopyProgress], None] | None = None, verify: bool = True
) -> CopyReport:
    for name, store in (("source", source), ("target", target)):
        if not isinstance(store, Store):
            raise InvalidArgument(f"{name}: {shown(store)} is not a Store of flue_py.sync")
    (way, origin), (target_way, destination) = parts_of(source), parts_of(target)
    target_way.require_running()
    if isinstance(way, OnThisThread):
        # A store on this thread can be called on any, so the event loop of the other one, if it has one, is for both.
        way.require_running()
        way = target_way
    elif way is not target_way and not isinstance(target_way, OnThisThread):
        raise InvalidArgument(
            "source and target each have an event loop of their own; open both with flue_py.open in one event loop, "
            "and await flue_py.transfer.copy_store"
        )
    return way.call(partial(copy.copy_store, origin, destination, progress=progress, verify=verify))


update_wrapper(copy_store, copy.copy_store)


# ---------------------------------------------------------------------------------------------------------------------
# The blocking twin of a guard.

Result = TypeVar("Result")


class CompactionGuard(Twin[AsyncGuard]):
    """The blocking twin of `flue_py.agents.guard.CompactionGuard`: the functions it calls are plain ones.

    ``model`` and ``summarizer`` are models as ever.
    """

    @constructing(AsyncGuard)
    def __init__(self, store: Store, session: Session) -> None:
        self._store, self._session = store, session

    @property
    def store(self) -> Store:
        """The store that the session is in."""
        return self._store

    @property
    def session(self) -> Session:
        """The session that it guards; another one has a guard of its own."""
        return self._session

    block_failures = reading(AsyncGuard, lambda guard: guard.block_failures)
    context_report = reading(AsyncGuard, lambda guard: guard.context_report)

    before_call = blocking(AsyncGuard.before_call)
    after_call = blocking(AsyncGuard.after_call)
    resumed = blocking(AsyncGuard.resumed)
    compact = blocking(AsyncGuard.compact)
    decide = blocking(AsyncGuard.decide)
    should_compact = blocking(AsyncGuard.should_compact)
    request = blocking(AsyncGuard.request)
    state = blocking(AsyncGuard.state)
    reset = blocking(AsyncGuard.reset)
    recover = blocking(AsyncGuard.recover)

    def call(self, ask: Callable[[list[JsonObject]], Result], *, agent: str = "") -> Result:
        way, original = parts_of(self)
        model_call = awaited(self._store.backend.waiting, checked_plain(ask, "ask"))
        return way.call(partial(original.call, model_call, agent=agent))

    call.__doc__ = AsyncGuard.call.__doc__


# ---------------------------------------------------------------------------------------------------------------------
# The blocking twin of `flue_py.compaction.summarize`.

Complete: TypeAlias = Callable[[SummaryRequest], SummaryReply]


def summarize(plan: CompactionPlan, complete: Complete, *, focus: str | None = None) -> CompactionSummary:
    if iscoroutinefunction(complete):
        raise InvalidArgument(
            "complete: should be a plain function; await flue_py.compaction.summarize with an async one"
        )

    async def completed(request: SummaryRequest) -> SummaryReply:
        return complete(request)

    return run_here(original(plan, completed, focus=focus))


update_wrapper(summarize, original)


# ---------------------------------------------------------------------------------------------------------------------
# The blocking twins of a conversation and of its slash commands.

Model: TypeAlias = Callable[[list[JsonObject]], Sequence[Mapping[str, object]]]
"""Takes the context, and returns the messages to append: answers and tool results, the last answer at the end."""


class Conversation(Twin[AsyncConversation]):
    """The blocking twin of `flue_py.agents.conversation.Conversation`."""

    @constructing(AsyncConversation)
    def __init__(self, store: Store, _: Session) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        """The store that the conversation is in."""
        return self._store

    @property
    def session(self) -> Session:
        """The current session. It can be set."""
        return Session(self._way, self._original.session)

    @session.setter
    def session(self, session: Session) -> None:
        if not isinstance(session, Session):
            raise InvalidArgument(f"session: {shown(session)} is not a Session of flue_py.sync")
        self._original.session = parts_of(session)[1]

    replay = reading(AsyncConversation, lambda talk: talk.replay)
    clock = reading(AsyncConversation, lambda talk: talk.clock)
    block_failures = reading(AsyncConversation, lambda talk: talk.block_failures)
    context_report = reading(AsyncConversation, lambda talk: talk.context_report)

    turns = blocking(AsyncConversation.turns)
    history = blocking(AsyncConversation.history)
    last = blocking(AsyncConversation.last)
    model = blocking(AsyncConversation.model)
    resume_text = blocking(AsyncConversation.resume_text)
    sessions = blocking(AsyncConversation.sessions)
    save = blocking(AsyncConversation.save)
    snapshot = blocking(AsyncConversation.snapshot)

    rewind = blocking(AsyncConversation.rewind)
    clear = blocking(AsyncConversation.clear)
    compact = blocking(AsyncConversation.compact)
    retry = blocking(AsyncConversation.retry)

    def take_turn(
        self, message: str | Mapping[str, object], model: Model, *, source: str = "prompt"
    ) -> list[JsonObject]:
        way, original = parts_of(self)
        model_call = awaited(self.store.backend.waiting, checked_plain(model, "model"))
        return way.call(partial(original.take_turn, message, model_call, source=source))

    take_turn.__doc__ = AsyncConversation.take_turn.__doc__

    fork = adapting(AsyncConversation.fork, Session)
    find = adapting(AsyncConversation.find, Session)
    switch = blocking(AsyncConversation.switch)


run_command = blocking(conversation.run_command)
