"""What a runtime sends an agent of a session: all of the context, or what its settings leave of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.lazy import lazy_module
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings
else:
    context_settings = lazy_module("flue_py.context.settings")


def checked_context(given: ContextSettings | Mapping[str, object] | None) -> ContextSettings | None:
    """Return settings of the context, None if there are none. Raises `InvalidArgument` by the path of what is wrong."""
    return None if given is None else context_settings.context_settings(given)


async def sent_to(
    session: Session, settings: ContextSettings | None, agent: str | None, *, leaf: LeafChoice = STORED
) -> list[JsonObject]:
    """Return the messages that an agent is sent, as ours. The cost of `Session.request`, without settings less."""
    if settings is None:
        return await session.build_context(leaf=leaf)
    return (await session.request(leaf=leaf, agent=agent or None, settings=settings)).messages
