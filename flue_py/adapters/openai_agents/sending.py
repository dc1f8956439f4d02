"""What settings leave of the context for an agent, as items of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flue_py import wire
from flue_py.adapters.openai_agents.items import SHAPE, items_of
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.sources.gathering import checked_sources
from flue_py.context.sources.protocol import SourceReader
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from agents import TResponseInputItem


class Sent:
    """Settings of a context, for one agent. Raises `InvalidArgument` naming each field that is wrong by its path."""

    def __init__(
        self,
        settings: ContextSettings | Mapping[str, object],
        agent: str | None,
        sources: Mapping[str, SourceReader] | None,
    ) -> None:
        self._settings = context_settings(settings)
        self._agent = checked_text(agent, "agent")
        self._sources = checked_sources(sources)

    async def items(self, session: Session) -> list[TResponseInputItem]:
        """Return what the agent is sent: items as they were added, unless a step changed them. O(size)."""
        request = await session.request(agent=self._agent, settings=self._settings, sources=self._sources)
        items: list[TResponseInputItem] = []
        for item, message in zip(request.items, request.messages, strict=True):
            if item.how is None and item.source is not None and message is item.message:
                items += items_of(item.source)
            else:
                made: list[Any] = list(wire.to_provider(message, SHAPE).messages)
                items += made
        return items
