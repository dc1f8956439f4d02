"""The blocking twins of a conversation and of its slash commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidArgument, shown
from flue_py.runtime import commands
from flue_py.runtime.conversation import REPLAYED_TURNS
from flue_py.runtime.conversation import Conversation as AsyncConversation
from flue_py.sessions.telling import PATIENCE
from flue_py.sync import Session, Store
from flue_py.sync.plain import PlainHook, awaited, checked_parts, checked_plain, hook_of
from flue_py.sync.twins import Twin, adapting, blocking, parts_of

if TYPE_CHECKING:
    from flue_py.context.blocks.protocol import Block, BlockFailure
    from flue_py.context.offloading import OffloadSettings
    from flue_py.context.report import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import SourceReader
    from flue_py.core.model_seam import Model as CompactionModel

Model: TypeAlias = Callable[[list[JsonObject]], Sequence[Mapping[str, JsonValue]]]
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
        """What tells the time."""
        return self._original.clock

    @property
    def block_failures(self) -> tuple[BlockFailure, ...]:
        """The blocks that failed in the latest turn, and why."""
        return self._original.block_failures

    @property
    def context_report(self) -> ContextReport | None:
        """What was left out of the latest request, and what a program may want to tell of it; None without settings."""
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
        self, message: str | Mapping[str, JsonValue], model: Model, *, source: str = "prompt"
    ) -> list[JsonObject]:
        way, original = parts_of(self)
        asked = awaited(self.store.backend.waiting, checked_plain(model, "model"))
        return way.call(partial(original.take_turn, message, asked, source=source))

    take_turn.__doc__ = AsyncConversation.take_turn.__doc__

    fork = adapting(AsyncConversation.fork, Session)
    find = adapting(AsyncConversation.find, Session)
    switch = blocking(AsyncConversation.switch)


run_command = blocking(commands.run_command)
