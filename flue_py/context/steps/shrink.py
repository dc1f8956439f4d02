"""Less of everything that tools gave back, for a request that did not fit: stage by stage, each from the whole."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import texts_only
from flue_py.context.steps.notes import cut_after
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.result_chars import CONSUMED_CHARS, consumed_results
from flue_py.core.frozen import frozen

STAGE_CHARS = (4_000, 500, 0)
"""How many characters a result of a tool keeps in each stage; in the last one tools are left out altogether."""


def _note(missing: int) -> str:
    return f"\n[...context-trimmed — {missing:,} chars removed to fit model limit...]"


@frozen
class Shrink:
    """Cuts the results of tools after ``chars``, and reads of files that were written since after 500.

    With 0 characters, results and calls are left out, and answers that have no text with them.
    """

    chars: int
    read_tools: tuple[str, ...]
    write_tools: tuple[str, ...]
    addresses: bool = True
    name: str = "adaptive_trim"
    reason: str = "the request did not fit the model"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with less of what tools gave back."""
        if not self.chars:
            return [kept for item in items if (kept := _without_tools(item)) is not None]
        consumed = consumed_results(items, self.read_tools, self.write_tools)
        made = [*items]
        for at, item in enumerate(items):
            if item.is_result:
                limit = min(CONSUMED_CHARS, self.chars) if at in consumed else self.chars
                made[at] = cut_after(item, limit, _note, addresses=self.addresses)
        return made


def _without_tools(item: Item) -> Item | None:
    if item.is_result:
        return None
    if not item.calls:
        return item
    text = texts_only(item.message)
    return None if text is None else item.cut(text)
