"""The blocking twin of `flue_py.runtime.conversation`.

with flue_py.sync.open("sessions.db") as store:
    talk = Conversation(store, store.open_session("talk", mode="get_or_create"))
    talk.take_turn("Why is the build red?", model)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.runtime.conversation import REPLAYED_TURNS
from flue_py.runtime.conversation import Conversation as AsyncConversation
from flue_py.sessions.session import Session as AsyncSession
from flue_py.sync import Session, Store
from flue_py.sync.twins import Twin, adapting, blocking, parts_of
from flue_py.sync.ways import Way

Model: TypeAlias = Callable[[list[JsonObject]], Sequence[Mapping[str, JsonValue]]]
"""Takes the context, and returns the messages to append: answers and tool results, the last answer at the end."""


def _session(way: Way, session: AsyncSession) -> Session:
    return Session(way, session)


class Conversation(Twin[AsyncConversation]):
    """The blocking twin of `flue_py.runtime.conversation.Conversation`. Its model is a plain function."""

    def __init__(
        self,
        store: Store,
        session: Session,
        *,
        replay: int = REPLAYED_TURNS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        way, original = parts_of(store)
        super().__init__(way, AsyncConversation(original, parts_of(session)[1], replay=replay, clock=clock))
        self.store = store

    @property
    def session(self) -> Session:
        """The current session."""
        return Session(self._way, self._original.session)

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
    retry = blocking(AsyncConversation.retry)

    def take_turn(
        self, message: str | Mapping[str, JsonValue], model: Model, *, source: str = "prompt"
    ) -> list[JsonObject]:
        """Append a user message, call ``model`` with the context, append its answers, and return them.

        Otherwise as `flue_py.runtime.conversation.Conversation.take_turn`.
        """
        waiting = self.store.backend.waiting

        async def asked(context: list[JsonObject]) -> Sequence[Mapping[str, JsonValue]]:
            return await waiting.call(partial(model, context))

        return self._way.call(partial(self._original.take_turn, message, asked, source=source))

    fork = adapting(AsyncConversation.fork, _session)
    find = adapting(AsyncConversation.find, _session)
    switch = blocking(AsyncConversation.switch)
