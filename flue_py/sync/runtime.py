"""The blocking twin of `flue_py.transfer.copy_store`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, update_wrapper
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flue_py.compaction.material import CompactionSummary, SummaryReply, SummaryRequest
from flue_py.compaction.material import summarize as original
from flue_py.compaction.plan import CompactionPlan
from flue_py.core.json import JsonObject, JsonValue
from flue_py.db.waiting import run_here
from flue_py.errors import InvalidArgument, shown
from flue_py.runtime import conversation
from flue_py.runtime.conversation import REPLAYED_TURNS
from flue_py.runtime.conversation import Conversation as AsyncConversation
from flue_py.runtime.guard import CompactionGuard as AsyncGuard
from flue_py.runtime.guard import GuardAnswer
from flue_py.sessions.write import PATIENCE
from flue_py.sync import (
    OnThisThread,
    PlainHook,
    Session,
    Store,
    Twin,
    adapting,
    awaited,
    blocking,
    checked_parts,
    checked_plain,
    hook_of,
    parts_of,
)
from flue_py.transfer import copy
from flue_py.transfer.copy import CopyProgress, CopyReport

if TYPE_CHECKING:
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.settings import CompactionSettings, TriggerSettings
    from flue_py.context.artifacts import OffloadSettings
    from flue_py.context.blocks import Block, BlockFailure
    from flue_py.context.pipeline import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import SourceReader
    from flue_py.core.model import Model as CompactionModel


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
    """The blocking twin of `flue_py.runtime.guard.CompactionGuard`: the functions it calls are plain ones.

    ``model`` and ``summarizer`` are models as ever.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        model: CompactionModel | None = None,
        *,
        summarizer: CompactionModel | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        triggers: TriggerSettings | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        on_answer: Callable[[GuardAnswer], object] | None = None,
        before_compaction: PlainHook | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: float = 120.0,
        blocks: Iterable[Block] = (),
        stop_over_budget: bool = False,
    ) -> None:
        checked_parts(store, session)
        way, original = parts_of(store)
        guard = AsyncGuard(
            original,
            parts_of(session)[1],
            model,
            summarizer=summarizer,
            mode=mode,
            settings=settings,
            triggers=triggers,
            window=window,
            system=system,
            tools=tools,
            on_answer=on_answer,
            before_compaction=hook_of(original.backend.waiting, before_compaction),
            context=context,
            sources=sources,
            clock=clock,
            patience=patience,
            blocks=blocks,
            stop_over_budget=stop_over_budget,
        )
        super().__init__(way, guard)
        self._store = store
        self._session = session

    @property
    def store(self) -> Store:
        """The store that the session is in."""
        return self._store

    @property
    def session(self) -> Session:
        """The session that it guards; another one has a guard of its own."""
        return self._session

    @property
    def block_failures(self) -> tuple[BlockFailure, ...]:
        """The blocks that failed before the latest call, and why."""
        return self._original.block_failures

    @property
    def context_report(self) -> ContextReport | None:
        """The report of the settings about the latest request of `call`; None without any."""
        return self._original.context_report

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
    """The blocking twin of `flue_py.runtime.conversation.Conversation`."""

    def __init__(
        self,
        store: Store,
        session: Session,
        *,
        replay: int = REPLAYED_TURNS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        before_compaction: PlainHook | None = None,
        summarizer: CompactionModel | None = None,
        context: ContextSettings | Mapping[str, object] | bool | None = True,
        sources: Mapping[str, SourceReader] | None = None,
        agent: str | None = None,
        offload: OffloadSettings | bool | None = True,
        blocks: Iterable[Block] = (),
        patience: float = PATIENCE,
    ) -> None:
        checked_parts(store, session)
        way, original = parts_of(store)
        hook = hook_of(original.backend.waiting, before_compaction)
        talk = AsyncConversation(
            original,
            parts_of(session)[1],
            replay=replay,
            clock=clock,
            before_compaction=hook,
            summarizer=summarizer,
            context=context,
            sources=sources,
            agent=agent,
            offload=offload,
            blocks=blocks,
            patience=patience,
        )
        super().__init__(way, talk)
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

    @property
    def replay(self) -> int:
        """How many turns are shown on resuming."""
        return self._original.replay

    @property
    def clock(self) -> Callable[[], datetime]:
        """The clock."""
        return self._original.clock

    @property
    def block_failures(self) -> tuple[BlockFailure, ...]:
        """The blocks that failed in the latest turn, and why."""
        return self._original.block_failures

    @property
    def context_report(self) -> ContextReport | None:
        """The report of the settings about the latest request, such as entries left out; None without settings."""
        return self._original.context_report

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
