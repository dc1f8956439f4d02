"""The oldest turns go where all of them do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flue_py.context.items import Item
from flue_py.context.steps.protocol import Over, View
from flue_py.context.steps.tools import pairing_of
from flue_py.core.frozen import frozen


@frozen
class TrimHistory:
    """Leaves out the oldest turns, each whole, until all fits ``most`` tokens; the last turn always stays.

    They are counted as characters / 4, whatever the model. A turn is a message of the user, and everything up to the
    next one. Messages of the system, the summary of a compaction and what it keeps because it is pinned stay. If that
    is more, ``over_budget`` tells.
    """

    most: int
    at_epochs: bool
    name: str = "trim_history"
    reason: str = "the oldest turn of more than fit"
    over: Over = "all"

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items without the oldest turns."""
        view = view.budgeted()
        total = sum(map(view.tokens, items))
        if total <= self.most:
            return items
        # What the user says between a call and its result begins no turn: the result would be left without its call.
        starts = pairing_of(items).whole_cuts(at for at, item in enumerate(items) if item.is_user and not _stays(item))
        dropped: set[int] = set()
        # What comes before the first message of the user is what a compaction has left of a turn: it goes first.
        for start, end in pairwise([*([0] if starts[:1] != [0] else []), *starts]):
            if total <= self.most:
                break
            turn = [at for at in range(start, end) if not _stays(items[at])]
            dropped.update(turn)
            total -= sum(view.tokens(items[at]) for at in turn)
        made = [item for at, item in enumerate(items) if at not in dropped]
        if not self.at_epochs:
            view.tell_over(made, self.most, self.name)
        return made


def _stays(item: Item) -> bool:
    return item.is_system or item.is_summary or item.is_pinned


@frozen
class TrimWarning:
    """Tells, once, that the context has come near the tokens it may take; it changes nothing."""

    most: int
    fraction: float
    name: str = "context_warning"
    reason: str = "warns"
    over: Over = "all"
    at_epochs: bool = False

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items as they are."""
        sizes = [*map(view.budgeted().tokens, items)]
        # The request before this one ended before the newest answer: what it was told is not told again.
        last = next((at for at in range(len(items) - 1, -1, -1) if items[at].is_answer), 0)
        total = sum(sizes)
        if total / self.most >= self.fraction > sum(sizes[:last]) / self.most:
            view.tell("context_warning", f"{total:,} tokens have reached {self.fraction:.0%} of {self.most:,}")
        return items
