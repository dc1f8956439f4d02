"""What a runtime sends an agent of a session: all of the context, or what its settings leave of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeVar

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import ContextOverflow, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.handle import stored_row
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.context import overflows, pipeline
    from flue_py.context import settings as context_settings
    from flue_py.context.report import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import gathering
    from flue_py.context.sources.protocol import GatheredContext, SourceReader
    from flue_py.wire import bound
else:
    overflows = lazy_module("flue_py.context.overflows")
    pipeline = lazy_module("flue_py.context.pipeline")
    gathering = lazy_module("flue_py.context.sources.gathering")
    bound = lazy_module("flue_py.wire.bound")
    context_settings = lazy_module("flue_py.context.settings")

Result = TypeVar("Result")


class Sending:
    """What agents of a session are sent: with settings what these leave, with ``sources`` for their ``spec``.

    True stands for the settings of a conversation. ``report`` is what the settings did to the latest request of `ask`.
    The sources are asked once in a turn of an agent, so that its requests begin with the bytes of the ones before.
    Raises `InvalidArgument`.
    """

    def __init__(
        self, context: ContextSettings | Mapping[str, object] | bool | None, sources: Mapping[str, SourceReader] | None
    ) -> None:
        self._is_default = context is True
        self._own = None if context is None or isinstance(context, bool) else context_settings.context_settings(context)
        self.report: ContextReport | None = None
        self._sources = None if sources is None else gathering.checked_sources(sources)
        self._gathered: dict[str | None, tuple[tuple[str, str | None], GatheredContext]] = {}

    @property
    def settings(self) -> ContextSettings | None:
        """The settings, None without any. Those of a conversation are loaded when they are first used."""
        return context_settings.TRIMMED if self._is_default else self._own

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

    async def ask(
        self,
        session: Session,
        agent: str | None,
        ask: Callable[[list[JsonObject]], Awaitable[Result]],
        *,
        leaf: LeafChoice = STORED,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        recover: Callable[[ContextOverflow], Awaitable[bool]] | None = None,
    ) -> tuple[list[JsonObject], Result]:
        """Return what an agent was sent in the end, and what ``ask`` made of it.

        The first overflow, also one that the limits of `Fitting` find before anything is sent, is put to ``recover``,
        which returns whether the context is smaller now; the others are met with less of what tools gave back
        (`Session.attempts`), as far as there is less. Raises the last of them. An error of a client that tells of one
        is an overflow, too.
        """
        overflow: ContextOverflow | None = None
        sent: list[JsonObject] | None = None
        async with aclosing(self._attempts(session, agent, leaf, system, tools)) as attempts:
            while True:
                try:
                    messages = await anext(attempts, None)
                    if messages is None:
                        break
                    if messages == sent:
                        continue
                    sent = messages
                    return sent, await ask([*sent])
                except Exception as error:  # a client's own errors have no type in common
                    overflow = overflows.overflow_of(error)
                    if overflow is None:
                        raise
                if recover is not None and await recover(overflow):
                    return await self.ask(session, agent, ask, leaf=leaf, system=system, tools=tools)
                recover = None
        raise overflow or ContextOverflow("no attempt was left")  # the attempts raise where none of them fits

    async def _attempts(
        self,
        session: Session,
        agent: str | None,
        leaf: LeafChoice,
        system: str | None,
        tools: Sequence[Mapping[str, JsonValue]] | None,
    ) -> AsyncGenerator[list[JsonObject], None]:
        """Yield what an agent is sent, and then stage by stage less of what tools gave back."""
        gathered = None
        if self.settings is None:
            # Nothing has to be counted, and no vocabulary loaded, for what fits.
            self.report = None
            yield await self.messages(session, agent, leaf=leaf, system=system, tools=tools)
        else:
            gathered = await self._of_turn(session, self.settings, agent or None, leaf)
        async for attempt in await session.attempts(
            leaf=leaf, agent=agent or None, settings=self.settings, gathered=gathered, system=system, tools=tools or ()
        ):
            attempt.overflowed()
            self.report = attempt.request.report
            yield attempt.request.messages

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
        # Nobody answers what is read here: the session builds on what it built on before.
        leaf = (await stored_row(session)).leaf_id
        sent = await self.messages(session, agent, leaf=leaf, system=system, tools=tools)
        return sent == bound.ours_without_stale(await session.build_context(leaf=leaf), system, _plain(tools))

    async def freed(self, session: Session, agent: str | None, model: str | None) -> float:
        """Return which share of the context, 0 to 1, the settings leave out of what an agent is sent.

        The cost of `messages`, and nothing without settings.
        """
        settings, agent = self.settings, agent or None
        if settings is None:
            return 0
        leaf = (await stored_row(session)).leaf_id
        gathered = await self._of_turn(session, settings, agent, leaf)
        sent = await session.request(leaf=leaf, agent=agent, settings=settings, gathered=gathered, model=model)
        return sent.report.tokens_freed / max(1, sent.report.tokens_before)

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


async def asked_of(
    ask: Callable[[list[JsonObject]], Awaitable[Result]], name: str, context: list[JsonObject]
) -> Result:
    """Return what a function of the caller's does. Raises `InvalidArgument` for one that cannot be awaited."""
    answer: object = ask(context)
    if not isawaitable(answer):
        raise InvalidArgument(
            f"{name}: it returned {shown(answer)}; use an async function here, and plain ones with flue_py.sync"
        )
    result: Result = await answer
    return result


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
