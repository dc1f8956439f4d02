"""The request that a session's model was sent last: what a provider still has in its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.counting import is_same_model
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE, is_answer
from flue_py.core.merging import provenance_of
from flue_py.core.prefixes import chain_of
from flue_py.core.projection import ContextEntry
from flue_py.core.settings import SHELL, PathSettings
from flue_py.lazy import lazy_module
from flue_py.sessions.contexts import Contexts

if TYPE_CHECKING:
    from flue_py.compaction import material
    from flue_py.compaction.material import LastRequest
    from flue_py.context import counters, measuring
    from flue_py.context.counters import ModelCounter
    from flue_py.core.model_seam import Model
    from flue_py.prices import caches
    from flue_py.wire import bound
else:
    material = lazy_module("flue_py.compaction.material")
    counters = lazy_module("flue_py.context.counters")
    measuring = lazy_module("flue_py.context.measuring")
    caches = lazy_module("flue_py.prices.caches")
bound = lazy_module("flue_py.wire.bound")

_HOUR = 3_600


class Aligning(Contexts):
    """What was sent last of a `Session`."""

    __slots__ = ()

    async def _last_answer_by(self, model: str | None, provider: str | None, leaf: str | None) -> Entry | None:
        """Return the newest answer of the kept path that a model gave to a request of its own; None for none.

        Not one that another model or provider gave, that was copied from elsewhere, or that failed: its request is in
        no cache, or in another's. The cost of the context.
        """
        tail = (await self._read_context(leaf)).tail
        return next((entry for entry in reversed(tail) if _was_given_by(entry, model, provider)), None)

    def _seconds_too_old(self, answer: Entry, model: str | None, provider: str | None) -> tuple[int, int] | None:
        """Return how old an answer is and how long a provider keeps what it was sent, if that is over; else None."""
        kept = caches.cache_rules(model, provider).lifetime_seconds
        usage = answer.fields.get("usage")
        # Who asked for writes of an hour has the cache for that long.
        if isinstance(usage, dict) and usage.get("cacheWrite1h"):
            kept = max(kept, _HOUR)
        age = self._pricer.now_us() - answer.created_us
        return (age // 1_000_000, kept) if age > kept * 1_000_000 else None

    async def _sent_for(self, answer: Entry | None) -> list[ContextEntry]:
        """Return the context that an answer was given to; nothing for None."""
        return [] if answer is None else (await self._read_context(answer.parent_id)).items

    async def _last_request(
        self,
        items: Sequence[ContextEntry],
        answer: Entry,
        counter: ModelCounter,
        system: str,
        tools: tuple[JsonObject, ...],
    ) -> LastRequest:
        """Return the request of a context, and how much of it was in the request of an answer on the path."""
        sent = await self._sent_for(answer)

        def counted() -> LastRequest:
            around = tokens_around(system, tools, counter)
            counts = counter.count_entries(items)
            common = chain_of(items).common_items(chain_of(sent))
            cached = around + sum(counts[:common])
            # As it was sent: no reasoning behind another beginning, whose signature the provider would refuse.
            messages = tuple(bound.ours_without_stale([item.data for item in items], system, tools))
            return material.LastRequest(messages, system, tools, around + sum(counts), cached)

        return await self._backend.waiting.call(counted)


def _was_given_by(entry: Entry, model: str | None, provider: str | None) -> bool:
    if entry.kind != MESSAGE or not is_answer(entry.kind, entry.role) or entry.source == SHELL:
        return False
    fields = entry.fields
    by, at = fields.get("model"), fields.get("provider")
    if fields.get("stopReason") == "error" or provenance_of(entry) is not None:
        return False
    if isinstance(by, str) and model is not None and not is_same_model(by, model):
        return False
    # Each provider has a cache of its own, also where several serve the same model.
    return not (isinstance(at, str) and at and provider and at.lower() != provider.lower())


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
