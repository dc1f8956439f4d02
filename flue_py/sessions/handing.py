"""Handoffs: what an agent is told when a session goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flue_py.core.entries import NewEntry
from flue_py.core.frozen import changed, frozen
from flue_py.core.kinds import CUSTOM_MESSAGE
from flue_py.core.sessions import STORED, Appended, LeafChoice, OnConflict, check_name
from flue_py.errors import IdempotencyConflict, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.appending import Appending
from flue_py.sessions.arguments import checked_on_conflict, checked_seen, checked_text
from flue_py.sessions.gathering import Gathering

if TYPE_CHECKING:
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import GatheredContext, SourceReader
    from flue_py.context.steps import assembled
else:
    context_settings = lazy_module("flue_py.context.settings")
    assembled = lazy_module("flue_py.context.steps.assembled")

HANDOFF = "handoff"
"""The ``customType`` of such a message."""


@frozen
class Handoff:
    """A handoff: what the sources said, and the append, None if they said nothing.

    For a retry by its key the append is the first one, and ``gathered`` None: no source was asked again.
    """

    gathered: GatheredContext | None
    appended: Appended | None


class Handing(Gathering, Appending):
    """How a `Session` goes on with another agent."""

    __slots__ = ()

    async def append_handoff(
        self,
        agent: str,
        *,
        settings: ContextSettings | Mapping[str, object],
        sources: Mapping[str, SourceReader] | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Handoff:
        """Append what ``agent`` has to know before its turn, and return it: what the sources in its ``handoff`` say.

        One message of the user under the line "[HANDOFF CONTEXT — assembled for AGENT]", which all agents see. Nothing
        is appended where no source has a text; an agent's own history is none. ``settings`` and ``sources`` are as in
        `gather_context`; otherwise as `append_message`. The cost of the context, and of the sources.
        """
        if not isinstance(agent, str) or not agent.strip() or agent.splitlines() != [agent]:
            raise InvalidArgument(f"agent: should be the name of an agent, on one line, not {shown(agent)}")
        checked_text(agent, "agent")
        check_name(idempotency_key, "idempotency_key")
        checked_on_conflict(on_conflict)
        seen = checked_seen(expected_leaf, expected_revision)
        wanted = context_settings.context_settings(settings).of(agent).handoff
        known = self._checked_gathering(sources)
        if idempotency_key is not None and (first := await self._first_try(agent, idempotency_key)) is not None:
            return Handoff(None, first)
        await self._compare(seen)
        found = await self._read_context(await self._leaf_before(idempotency_key, on_conflict, seen))
        gathered = await self._gathered(wanted, found, agent, known)
        text = gathered.text(assembled.handoff_heading(agent))
        if not text:
            return Handoff(gathered, None)
        entry = NewEntry.custom(
            CUSTOM_MESSAGE,
            {
                "customType": HANDOFF,
                "content": text,
                "details": {"agent": agent, "sources": [each.source for each in gathered.sections]},
            },
        )
        return Handoff(gathered, await self._append([entry], on_conflict, idempotency_key, seen))

    async def _first_try(self, agent: str, idempotency_key: str) -> Appended | None:
        """Return the handoff to an agent that was appended by this key, None if there was none.

        Raises `IdempotencyConflict` if something else was appended by it.
        """
        first = await self._backend.recall_append(self._ref, idempotency_key)
        if first is None:
            return None
        entry = await self.get_entry(first.entry_ids[0]) if first.entry_ids else None
        fields = None if entry is None or entry.kind != CUSTOM_MESSAGE else entry.data
        details = fields.get("details") if isinstance(fields, dict) and fields.get("customType") == HANDOFF else None
        if not isinstance(details, dict) or details.get("agent") != agent:
            raise IdempotencyConflict(self.id, idempotency_key)
        appended = changed(first, replayed=True)
        self._note_append(appended)
        return appended
