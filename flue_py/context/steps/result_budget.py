"""A limit for each result of a tool, and for all results that answer one message."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import text_length
from flue_py.context.steps.notes import cut_after
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import pairing_of
from flue_py.core.frozen import frozen


@frozen
class ResultBudget:
    """Leaves a preview of a result above ``result_chars``, and of the largest of a round above ``round_chars``.

    A round are the results of one answer. What it comes to depends on that round alone, so that a result goes out in
    the same way in every request.
    """

    result_chars: int
    round_chars: int
    preview_chars: int
    addresses: bool = True
    name: str = "tool_result_budget"
    reason: str = "above the limit of a result or of a round"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with previews."""
        pairing = pairing_of(items)
        made = [*items]
        rounds: dict[int, list[int]] = {}
        for call, results in pairing.results.items():
            rounds.setdefault(call.at, []).extend(results)
        for results in [*rounds.values(), *([at] for at in pairing.unpaired)]:
            for at in results:
                if text_length(made[at].message) > self.result_chars:
                    made[at] = self._preview(made[at])
            total = sum(text_length(made[at].message) for at in results)
            for at in sorted(results, key=lambda at: (-text_length(items[at].message), at)):
                if total <= self.round_chars:
                    break
                before = text_length(made[at].message)
                made[at] = self._preview(made[at]) if made[at] is items[at] else made[at]
                total -= before - text_length(made[at].message)
        return made

    def _preview(self, item: Item) -> Item:
        if item.is_pinned:
            return item
        total = text_length(item.message)
        note = f"\n... [truncated, {total} total chars]"
        return cut_after(item, self.preview_chars, lambda _: note, addresses=self.addresses)
