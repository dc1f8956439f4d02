"""A view of the last answers, and of what came after the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen


@frozen
class TurnAge:
    """Keeps everything from the ``most``-th answer from the end on: it begins with that answer."""

    most: int
    name: str = "max_turn_age"
    reason: str = "older than the turns of the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the end of the items; all of them if there are fewer answers."""
        answers = [at for at, item in enumerate(items) if item.is_answer]
        return items if len(answers) < self.most else items[answers[-self.most] :]
