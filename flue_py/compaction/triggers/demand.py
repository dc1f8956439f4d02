"""Somebody wants a compaction: a person now, or an agent at the next opportunity."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.core.frozen import frozen


@frozen
class OnDemand:
    """Fires where somebody asks for it now."""

    name: str = "demand"

    def check(self, facts: Facts) -> Fired | None:
        return Fired(f"asked for; the context takes {size_words(facts.size)}") if facts.moment == "demand" else None


@frozen
class AgentRequest:
    """Fires where a request was left, as a tool for agents leaves one."""

    name: str = "agent_requested"

    def check(self, facts: Facts) -> Fired | None:
        if facts.state.wanted is None:
            return None
        return Fired(f"the agent asked for it; the context takes {size_words(facts.size)}")
