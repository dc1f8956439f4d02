"""A view of the last messages, and of corrections wherever they are."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import text_parts
from flue_py.context.steps.protocol import Over, View
from flue_py.core.frozen import frozen

BLOCKED = "[fuseraft:blocked"
CORRECTIONS = (
    "RETRY ",
    "NO TOOL CALLS",
    "CRITICAL:",
    "APPROVED rejected:",
    "WRONG KEYWORD:",
    "JSON block correct",
    "BUILD FAILURE:",
    "STAGNATION (",
    "STUCK ",
    "HALLUCINATION:",
    "PERSISTENT BUILD FAILURE",
    "VERIFICATION FINDING",
    "Files written this turn",
    "No handoff keyword",
    "EVIDENCE INCONSISTENCY",
    "EVIDENCE AUDIT REQUIRED",
    "MISSING ARTIFACT",
)
"""How messages of the user begin by which fuseraft corrects an agent."""


def is_correction(item: Item) -> bool:
    """Return whether a message corrects an agent: it stays, and does not count."""
    if not item.is_user:
        return False
    text = "".join(text_parts(item.message))
    return text.startswith(CORRECTIONS) or BLOCKED in text


@frozen
class Tail:
    """Keeps the last ``most`` messages, and corrections, which do not count."""

    most: int
    name: str = "max_tail_messages"
    reason: str = "before the last messages of the view"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the end of the items, and corrections from before it."""
        if len(items) <= self.most:
            return items
        corrections = {at for at, item in enumerate(items) if is_correction(item)}
        counted = [at for at in range(len(items)) if at not in corrections]
        first = counted[-self.most] if len(counted) > self.most else 0
        return [item for at, item in enumerate(items) if at >= first or at in corrections]


@frozen
class CapWarning:
    """Tells that the view has come near the number of messages that it may have; it changes nothing."""

    most: int
    fraction: float
    name: str = "context_cap_fraction"
    reason: str = "warns"
    over: Over = "history"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items as they are."""
        # Not the product: 0.55 of 100 is a little more than 55.
        if len(items) / self.most >= self.fraction:
            share = f"{self.fraction:.0%} of max_tail_messages ({self.most:,})"
            view.tell("context_cap_warning", f"{len(items):,} messages have reached {share}")
        return items
