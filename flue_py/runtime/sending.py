"""What a runtime sends an agent of a session: all of the context, or what its settings leave of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.lazy import lazy_module
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings
    from flue_py.wire import bound
else:
    bound = lazy_module("flue_py.wire.bound")
    context_settings = lazy_module("flue_py.context.settings")


def checked_context(given: ContextSettings | Mapping[str, object] | None) -> ContextSettings | None:
    """Return settings of the context, None if there are none. Raises `InvalidArgument` by the path of what is wrong."""
    return None if given is None else context_settings.context_settings(given)


async def sent_to(
    session: Session,
    settings: ContextSettings | None,
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
    if settings is None:
        return bound.ours_without_stale(await session.build_context(leaf=leaf), system, _plain(tools))
    request = await session.request(leaf=leaf, agent=agent or None, settings=settings, system=system, tools=tools or ())
    return request.messages


def answers_to(
    messages: Sequence[JsonObject],
    answered: Sequence[JsonObject],
    *,
    system: str | None = None,
    tools: Sequence[Mapping[str, JsonValue]] | None = None,
) -> list[JsonObject]:
    """Return what a model answered to messages of `sent_to`, signed answers with what they were produced under.

    O(size) if there is signed reasoning.
    """
    return bound.answers_produced_under(messages, system, _plain(tools), answered)


def _plain(tools: Sequence[Mapping[str, JsonValue]] | None) -> list[JsonObject]:
    return [dict(tool) for tool in tools or ()]
