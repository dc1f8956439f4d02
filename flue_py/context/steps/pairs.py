"""No call without its result and no result without its call, after a view was cut."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import calls_kept
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import pairing_of
from flue_py.core.frozen import frozen


@frozen
class WholePairs:
    """Leaves out calls without a result, answers of which then nothing is left, and results without a call."""

    name: str = "tool_pairs"
    reason: str = "its call or its result is not in the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return whole exchanges, and what else was said. Every answered call keeps all of its results."""
        pairing = pairing_of(items)
        answers = {at for results in pairing.results.values() for at in results}
        kept: list[Item] = []
        for at, item in enumerate(items):
            if item.is_result:
                if at in answers:
                    kept.append(item)
            elif not item.is_answer:
                kept.append(item)
            else:
                # A call without an id has no result either.
                answered = {call.part for call, found in pairing.results_of(at).items() if found}
                whole = calls_kept(item, answered)
                kept.extend(() if whole is None else (whole,))
        return kept
