"""Shorter answers."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import text_parts
from flue_py.context.steps.notes import cut_after
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.result_chars import cut_note
from flue_py.core.frozen import frozen

REPLAY_CHARS = 2_000
"""After how many characters answers are cut where settings ask for that without a limit of their own."""

SUMMARY = "[CONVERSATION SUMMARY"
"""How an answer begins that is a summary already."""


@frozen
class ReplayChars:
    """Cuts the text of answers after ``most`` characters; summaries stay, and so does what is no text."""

    most: int
    addresses: bool = True
    name: str = "max_replay_chars"
    reason: str = "a long answer"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items with shorter answers."""
        return [
            cut_after(item, self.most, cut_note, addresses=self.addresses) if _may_be_long(item) else item
            for item in items
        ]


def _may_be_long(item: Item) -> bool:
    return item.is_answer and not "".join(text_parts(item.message)).startswith(SUMMARY)
