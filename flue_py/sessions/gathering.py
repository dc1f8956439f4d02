"""What the sources of an agent have to say about a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.handle import KnownContext
from flue_py.sessions.registering import Registered

if TYPE_CHECKING:
    from flue_py.context import pipeline
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings, ContextSource
    from flue_py.context.sources import gathering, protocol, stored
    from flue_py.context.sources.protocol import GatheredContext, SourceReader
else:
    pipeline = lazy_module("flue_py.context.pipeline")
    context_settings = lazy_module("flue_py.context.settings")
    gathering = lazy_module("flue_py.context.sources.gathering")
    protocol = lazy_module("flue_py.context.sources.protocol")
    stored = lazy_module("flue_py.context.sources.stored")


class Gathering(Registered):
    """How a `Session` asks sources."""

    __slots__ = ()

    async def gather_context(
        self,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
    ) -> GatheredContext:
        """Return what the sources in ``spec`` of an agent's settings have to say now, and which had nothing.

        ``sources`` are functions of yours by their names, which take the place of those of the package: they take an
        `Asked` and return a text, or None. One that raises, or takes longer than 30 seconds and is a coroutine
        function, is reported among ``skipped``. Raises `EntryNotFound`, and `InvalidArgument`, for settings with the
        path of each field that is wrong. The cost of the context, and of the sources.
        """
        checked_text(agent, "agent")
        chosen = context_settings.context_settings(settings).of(agent)
        known = self._checked_gathering(sources)
        found = await self._read_context(leaf)
        return await self._gathered(() if chosen.spec is None else chosen.spec.sources, found, agent, known)

    def _checked_gathering(
        self, sources: Mapping[str, SourceReader] | None, gathered: GatheredContext | None = None
    ) -> Mapping[str, SourceReader]:
        """Return the sources by their plain names. Raises `InvalidArgument`."""
        if gathered is not None and not isinstance(gathered, protocol.GatheredContext):
            raise InvalidArgument(f"gathered: should be what gather_context returns, not {shown(gathered)}")
        # Most requests name none, and need not load what checks them.
        return {} if sources is None else gathering.checked_sources(sources)

    async def _gathered(
        self,
        wanted: Sequence[ContextSource],
        found: KnownContext,
        agent: str | None,
        sources: Mapping[str, SourceReader],
    ) -> GatheredContext:
        """Return what sources say; ``sources`` are those that were checked."""
        if not wanted:
            return protocol.GatheredContext(agent)
        registered = await self.registered(leaf=found.stamp.leaf_id)
        # What the turn in progress does is sent behind this, and must not change it.
        history = found.items[: pipeline.turn_in(found.items, agent)]
        whole: list[ContextEntry] | None = None
        if any(each.kind == "changes_recent" for each in wanted) and found.compaction is not None:
            path = await self.get_active_path(leaf=found.stamp.leaf_id)
            turn = found.items[len(history)].entry_id if len(history) < len(found.items) else None
            before = takewhile(lambda entry: entry.id != turn, path)
            whole = [ContextEntry(entry) for entry in before if entry.kind == MESSAGE]
        asked = protocol.Asked(None, agent, history, registered, self.info, whole)
        return await gathering.gather(wanted, asked, {**stored.STORED_SOURCES, **sources}, self._backend.waiting)
