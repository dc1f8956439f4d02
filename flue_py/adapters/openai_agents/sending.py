"""What settings leave of the context for an agent, as items of the SDK that the Responses API takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from flue_py.adapters.openai_agents.items import SHAPE, Aside, said_of_item
from flue_py.context.requests import ContextRequest
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.sources.gathering import checked_sources
from flue_py.context.sources.protocol import SourceReader
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.session import Session
from flue_py.wire.lists.said import Said
from flue_py.wire.requests import wire_request
from flue_py.wire.rules.openai_responses import is_of_the_model, kind_of

if TYPE_CHECKING:
    from agents import TResponseInputItem


class Sent:
    """Settings of a context, for one agent. Raises `InvalidArgument` naming each field that is wrong by its path."""

    def __init__(
        self,
        settings: ContextSettings | Mapping[str, object],
        agent: str | None,
        sources: Mapping[str, SourceReader] | None,
        model: str | None,
    ) -> None:
        self._settings = context_settings(settings)
        self._agent = checked_text(agent, "agent")
        self._sources = checked_sources(sources)
        self._model = model

    async def request(self, session: Session) -> ContextRequest:
        """Return what the agent is sent: items as they were added, but for what a step or a repair changed. O(size).

        An item that is in no form of the API, such as an envelope of `EncryptedSession`, stays as it is.
        """
        found = await session.request(agent=self._agent, settings=self._settings, sources=self._sources)
        said: list[Said] = []
        for item, message in zip(found.items, found.messages, strict=True):
            if item.how is None and item.source is not None and message is item.message:
                said += said_of_item(item.source, message)
            else:
                said.append(Said(message, entry_id=item.entry_id))
        # What was produced under another beginning has been left out already: here nobody knows system and tools.
        sent = wire_request(SHAPE, said, model=self._model, keeps_stale_reasoning=True)
        return changed(
            found,
            target=sent.target,
            messages=[*map(_as_it_was, sent.messages)],
            repairs=(*found.repairs, *sent.repairs),
            broken=sent.broken,
        )


def _as_it_was(item: JsonObject) -> JsonObject:
    content = item.get("content")
    return content.item if isinstance(content, Aside) else item


def last_items(items: Sequence[JsonObject], most: int | None) -> list[TResponseInputItem]:
    """Return the last items, at most so many, beginning with no half of an answer or a call. O(items)."""
    start = 0 if most is None else max(len(items) - most, 0)
    while 0 < start < len(items) and is_of_the_model(items[start]) and is_of_the_model(items[start - 1]):
        start += 1
    called = {_call_id(item) for item in items[:start] if is_of_the_model(item)}
    kept = [item for item in items[start:] if not (_is_output(item) and _call_id(item) in called)]
    return cast("list[TResponseInputItem]", kept)


def _is_output(item: JsonObject) -> bool:
    return kind_of(item).endswith("_output")


def _call_id(item: JsonObject) -> object:
    # The output of a local shell has the id of its call as its own.
    return item.get("call_id", item.get("id"))
