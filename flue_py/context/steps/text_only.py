"""A view of what was said, without tools."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import texts_only
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen


@frozen
class TextOnly:
    """Keeps messages of the user, and answers with text in them, which lose their calls; all else is left out."""

    name: str = "text_only"
    reason: str = "the view has text alone"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return what the user said, and the text of the answers."""
        kept: list[Item] = []
        for item in items:
            if item.is_user:
                kept.append(item)
            elif item.is_answer and (text := texts_only(item.message)) is not None:
                kept.append(item.cut(text) if item.calls else item)
        return kept
