"""The request that a session's model was sent last: what a provider still has in its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from flue_py.core.counting import is_same_model
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.prefixes import chain_of
from flue_py.core.projection import ContextEntry
from flue_py.core.settings import PathSettings
from flue_py.lazy import lazy_module
from flue_py.sessions.contexts import Contexts

if TYPE_CHECKING:
    from flue_py.compaction import material
    from flue_py.compaction.material import LastRequest
    from flue_py.context import counters, measuring
    from flue_py.context.counters import ModelCounter
    from flue_py.core.model_seam import Model
else:
    material = lazy_module("flue_py.compaction.material")
    counters = lazy_module("flue_py.context.counters")
    measuring = lazy_module("flue_py.context.measuring")


class Aligning(Contexts):
    """What was sent last of a `Session`."""

    __slots__ = ()

    async def _sent_for(self, answer: Entry | None) -> list[ContextEntry]:
        """Return the context that an answer was given to; nothing for None."""
        return [] if answer is None else (await self._read_context(answer.parent_id)).items

    async def _last_request(
        self,
        items: Sequence[ContextEntry],
        leaf: str | None,
        counter: ModelCounter,
        system: str,
        tools: Sequence[Mapping[str, JsonValue]],
    ) -> LastRequest:
        """Return the request of a context, and how much of it was in the request of the last answer on the path."""
        sent = await self._sent_for(await self.latest_assistant(leaf=leaf))

        def counted() -> LastRequest:
            around = tokens_around(system, tools, counter)
            counts = counter.count_entries(items)
            common = chain_of(items).common_items(chain_of(sent))
            cached = around + sum(counts[:common]) if sent else 0
            messages = tuple(item.data for item in items)
            offered = tuple(cast("JsonObject", dict(tool)) for tool in tools)
            return material.LastRequest(messages, system, offered, around + sum(counts), cached)

        return await self._backend.waiting.call(counted)


def tokens_around(system: str | None, tools: Sequence[Mapping[str, JsonValue]] | None, counter: ModelCounter) -> int:
    """Return how many tokens the system prompt and the tools of a request take. O(size) the first time."""
    texts = [*([system] if system else ()), *measuring.texts_of(tools or ())]
    return counters.ENTRY_COUNTS.tally_texts(texts, counter).tokens


def why_not_the_same(model: Model, settings: PathSettings) -> str | None:
    """Return why a model cannot read what another one has in its cache; None if it is the one of the session."""
    if settings.model is None:
        return "the model of the session is not known"
    if not is_same_model(model.name, settings.model):
        return f"the session's model is {settings.model}, and {model.name} is asked"
    if model.provider and settings.provider and model.provider.lower() != settings.provider.lower():
        return f"the session's provider is {settings.provider}, and {model.provider} is asked"
    return None
