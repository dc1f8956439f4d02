"""The last calls of a turn in full, and the earlier ones without what came of them."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.notes import stubbed
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen

OMITTED = "[result omitted — sliding window]"


@frozen
class InTurnPairs:
    """Keeps the last ``most`` results of the turn in progress, and puts a shorter stub in place of earlier ones."""

    most: int
    addresses: bool = True
    name: str = "max_in_turn_tool_pairs"
    reason: str = "before the last tool calls of the turn"
    over: Over = "turn"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs in place of the earlier results."""
        results = [at for at, item in enumerate(items) if item.is_result]
        omitted = set(results[: max(len(results) - self.most, 0)])
        return [
            stubbed(item, OMITTED, view, addresses=self.addresses) if at in omitted else item
            for at, item in enumerate(items)
        ]
