"""A budget of tokens for what a turn sends, which results of tools are shortened for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flue_py.context.items import Item
from flue_py.context.steps.address import address, with_address
from flue_py.context.steps.content import cut_to, with_text
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen

OMITTED = "[result omitted — over the token budget of the turn; call the tool again if it is needed]"
LEAST_CHARS = 200
_CHARS_PER_TOKEN = 4


def _cut_note(missing: int) -> str:
    return f"\n[TRUNCATED HERE — {missing:,} more characters do not fit the token budget; this is not the whole result]"


@frozen
class InTurnTokens:
    """Puts stubs in place of the oldest results of tools until all fits ``most`` tokens; then cuts what is left.

    The newest result is never stubbed, but cut: what was asked for last has to be seen.
    """

    most: int
    at_epochs: bool
    addresses: bool = True
    name: str = "max_in_turn_context_tokens"
    reason: str = "over the token budget of the turn"
    over: Over = "all"

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs in place of the oldest results, and with shorter ones."""
        made = [*items]
        sizes = [*map(view.tokens, items)]
        results = [at for at, item in enumerate(items) if item.is_result]
        for at in results[:-1]:
            if sum(sizes) <= self.most:
                return made
            stub = items[at].replaced(with_text(items[at].message, OMITTED + address(items[at], wanted=self.addresses)))
            if view.tokens(stub) < sizes[at]:
                made[at], sizes[at] = stub, view.tokens(stub)
        return made if sum(sizes) <= self.most or not results else self._shorter(made, sizes, results)

    def _shorter(self, items: list[Item], sizes: Sequence[int], results: Sequence[int]) -> list[Item]:
        """Return the items with all results cut to the same length."""
        room = max(self.most - sum(sizes) + sum(sizes[at] for at in results), 0) * _CHARS_PER_TOKEN
        each = max(room // len(results), LEAST_CHARS)
        for at in results:
            item = items[at]
            shorter = cut_to(item.message, each, partial(with_address, _cut_note, item, self.addresses))
            if shorter is not None:
                items[at] = item.cut(shorter)
        return items
