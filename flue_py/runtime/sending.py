"""What a runtime sends an agent of a session: all of the context, or what its settings leave of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.lazy import lazy_module
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.context import pipeline
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import gathering
    from flue_py.context.sources.protocol import GatheredContext, SourceReader
    from flue_py.wire import bound
else:
    pipeline = lazy_module("flue_py.context.pipeline")
    gathering = lazy_module("flue_py.context.sources.gathering")
    bound = lazy_module("flue_py.wire.bound")
    context_settings = lazy_module("flue_py.context.settings")


def checked_context(given: ContextSettings | Mapping[str, object] | None) -> ContextSettings | None:
    """Return settings of the context, None if there are none. Raises `InvalidArgument` by the path of what is wrong."""
    return None if given is None else context_settings.context_settings(given)


class Sending:
    """What agents of a session are sent: with settings what these leave, with ``sources`` for their ``spec``.

    The sources are asked once in a turn of an agent, so that its requests begin with the bytes of the ones before.
    Raises `InvalidArgument`.
    """

    def __init__(
        self, context: ContextSettings | Mapping[str, object] | None, sources: Mapping[str, SourceReader] | None
    ) -> None:
        self.settings = checked_context(context)
        self._sources = None if sources is None else gathering.checked_sources(sources)
        self._gathered: dict[str | None, tuple[tuple[str, str | None], GatheredContext]] = {}

    async def messages(
        self,
        session: Session,
        agent: str | None,
        *,
        leaf: LeafChoice = STORED,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
    ) -> list[JsonObject]:
        """Return the messages that an agent is sent, as ours. The cost of `Session.request`, without settings less.

        ``system`` and ``tools`` are what is sent beside them: signed reasoning that was produced under other ones, or
        behind other messages, is left out.
        """
        settings, agent = self.settings, agent or None
        if settings is None:
            return bound.ours_without_stale(await session.build_context(leaf=leaf), system, _plain(tools))
        gathered = await self._of_turn(session, settings, agent, leaf)
        request = await session.request(
            leaf=leaf, agent=agent, settings=settings, gathered=gathered, system=system, tools=tools or ()
        )
        return request.messages

    async def is_whole(
        self,
        session: Session,
        agent: str | None,
        *,
        system: str | None,
        tools: Sequence[Mapping[str, JsonValue]] | None,
    ) -> bool:
        """Return whether an agent is sent the context as it is.

        The cost of `messages`, and nothing without settings.
        """
        if self.settings is None:
            return True
        sent = await self.messages(session, agent, system=system, tools=tools)
        return sent == bound.ours_without_stale(await session.build_context(), system, _plain(tools))

    async def freed(self, session: Session, agent: str | None, model: str | None) -> int:
        """Return how many tokens the settings leave out of what an agent is sent, as the model counts.

        The cost of `messages`, and nothing without settings.
        """
        settings, agent = self.settings, agent or None
        if settings is None:
            return 0
        gathered = await self._of_turn(session, settings, agent, STORED)
        sent = await session.request(agent=agent, settings=settings, gathered=gathered, model=model)
        return sent.report.tokens_freed

    async def _of_turn(
        self, session: Session, settings: ContextSettings, agent: str | None, leaf: LeafChoice
    ) -> GatheredContext | None:
        if settings.of(agent).spec is None:
            return None
        context = await session.build_context_entries(leaf=leaf)
        start = pipeline.turn_in(context, agent)
        turn = (session.id, context[start - 1].entry_id if start else None)
        known = self._gathered.get(agent)
        if known is not None and known[0] == turn:
            return known[1]
        gathered = await session.gather_context(leaf=leaf, agent=agent, settings=settings, sources=self._sources)
        self._gathered[agent] = (turn, gathered)
        return gathered


def answers_to(
    messages: Sequence[JsonObject],
    answered: Sequence[JsonObject],
    *,
    system: str | None = None,
    tools: Sequence[Mapping[str, JsonValue]] | None = None,
) -> list[JsonObject]:
    """Return what a model answered to what it was sent, signed answers with what they were produced under.

    O(size) if there is signed reasoning.
    """
    return bound.answers_produced_under(messages, system, _plain(tools), answered)


def _plain(tools: Sequence[Mapping[str, JsonValue]] | None) -> list[JsonObject]:
    return [dict(tool) for tool in tools or ()]
