"""A view of the last turns, each with the prompt that it answers."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen
from flue_py.core.turns import TurnPart, last_turns, part_in, part_of


@frozen
class TurnAge:
    """Keeps the last ``most`` turns that have an answer, and what was said after them."""

    most: int
    name: str = "max_turn_age"
    reason: str = "older than the turns of the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the end of the items; all of them if there are fewer turns."""
        return items[last_turns([_part(item) for item in items], self.most) :]


def _part(item: Item) -> TurnPart:
    # What a step before has left of a message belongs to the turn that the whole did.
    return part_in(item.message) if item.source is None else part_of(item.source.entry)
