"""A view without the answers of certain agents."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item, plain_agent
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen

UNKNOWN = "Unknown"
"""How an answer is called that names no agent."""


@frozen
class ExcludeAgents:
    """Leaves out the answers of the named agents, in whatever case the names are written."""

    agents: tuple[str, ...]
    name: str = "exclude_agents"
    reason: str = "the view leaves their agent out"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return all but their answers."""
        excluded = {*map(plain_agent, self.agents)}
        return [item for item in items if not item.is_answer or (item.agent or UNKNOWN).casefold() not in excluded]
