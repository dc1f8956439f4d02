"""A budget of tokens for what a turn sends, which results of tools are shortened for."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import text_length, with_text
from flue_py.context.steps.notes import cut_after, stubbed, with_address
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen

OMITTED = "[result omitted — over the token budget of the turn; call the tool again if it is needed]"
LEAST_CHARS = 200


def _cut_note(missing: int) -> str:
    return f"\n[TRUNCATED HERE — {missing:,} more characters do not fit the token budget; this is not the whole result]"


def _can_be_cut(item: Item) -> bool:
    return not item.is_pinned and text_length(item.message) > LEAST_CHARS


@frozen
class InTurnTokens:
    """Puts stubs in place of the oldest results of a turn until it fits ``most`` tokens; then cuts those left whole.

    The newest result is never stubbed, but cut: what was asked for last has to be seen. Each that is cut keeps the same
    share of it, and 200 characters at least. A budget below that, or below what is no result, is not met: the event
    ``over_budget`` tells.
    """

    most: int
    addresses: bool = True
    name: str = "max_in_turn_context_tokens"
    reason: str = "over the token budget of the turn"
    over: Over = "turn"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with stubs in place of the oldest results, and with shorter ones."""
        made = [*items]
        total = sum(map(view.tokens, items))
        results = [at for at, item in enumerate(items) if item.is_result]
        for at in results[:-1]:
            if total <= self.most:
                return made
            made[at] = stubbed(items[at], OMITTED, view, addresses=self.addresses)
            total -= view.tokens(items[at]) - view.tokens(made[at])
        whole = [at for at in results if made[at] is items[at] and _can_be_cut(items[at])]
        if total > self.most and whole:
            self._shorten(made, whole, total - self.most, view)
        view.tell_over(made, self.most, self.name)
        return made

    def _shorten(self, items: list[Item], places: Sequence[int], over: int, view: View) -> None:
        """Cut the results at some places, each by the same share of it, so that all frees so many tokens."""
        sizes = {at: view.tokens(items[at]) for at in places}
        share = max(1 - over / max(sum(sizes.values()), 1), 0)
        for at, size in sizes.items():
            item = items[at]
            # The note has to fit, too.
            note = with_address(_cut_note, item, self.addresses, text_length(item.message))
            spent = view.tokens(item.cut(with_text(item.message, note))) / max(size, 1)
            length = max(int(text_length(item.message) * (share - spent)), LEAST_CHARS)
            items[at] = view.smaller(cut_after(item, length, _cut_note, addresses=self.addresses), item)
