"""What requests would take if an epoch began with them, and if none did, as the steps that wait for one make them.

Whether rewriting pays is asked for every place of a context where an epoch might have begun, again in each request.
What was found is remembered in the process: the request after it asks for what has come since. A memory that has
nothing yet finds the same, from the context alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import TypeAlias

from flue_py.context.epochs import Rewritten
from flue_py.context.items import Item
from flue_py.context.steps.protocol import Step, View
from flue_py.core.projection import ContextEntry

MOST_REMEMBERED = 50_000
"""How many requests are remembered. All of them take some 20 MB."""

Waiting: TypeAlias = Callable[[Sequence[Item]], Sequence[Item]]
"""Returns what the steps that wait make of messages that are all there when an epoch begins."""


class Foreseen:
    """What was found of requests: at most ``most`` of them, the newest. One object may be used by all threads."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._found: dict[Hashable, Rewritten] = {}
        self._changing = Lock()

    def get(self, key: Hashable) -> Rewritten | None:
        """Return what was found for a request, None if it was not made yet. O(1)."""
        return self._found.get(key)

    def keep(self, key: Hashable, found: Rewritten) -> None:
        """Remember what was found. O(1), but for the time when half of all is forgotten."""
        with self._changing:
            if len(self._found) >= self._most:
                for oldest in list(self._found)[: self._most // 2 + 1]:
                    del self._found[oldest]
            self._found[key] = found

    def clear(self) -> None:
        """Forget all of it."""
        with self._changing:
            self._found.clear()


FORESEEN = Foreseen()
"""What all sessions of the process share."""


class Foresight:
    """What requests that end at a place of one context take: for `epoch_end`."""

    def __init__(
        self,
        context: Sequence[ContextEntry],
        given: Sequence[Item],
        steps: Sequence[Step],
        view: View,
        waiting: Waiting,
    ) -> None:
        self._context = context
        self._given = given
        self._view = view
        self._waiting = waiting
        self._asked: Hashable = (view.counter.name, view.agent, tuple(steps)) if _are_values(steps) else None
        self._marks: list[int] = []
        self._made: dict[int, Sequence[Item]] = {}

    def __call__(self, at: int, end: int, begins: int) -> Rewritten:
        """Return a request that ends ``at`` a place, for the epoch that ends at ``end`` and one that ``begins``.

        O(1) if it was made before, else O(at) and the cost of the steps.
        """
        if self._asked is None:
            return self._made_anew(at, end, begins)
        self._marks = self._marks or [*accumulate(map(hash, self._context), lambda *both: hash(both), initial=0)]
        key = (self._asked, at, end, begins, self._marks[at])
        found = FORESEEN.get(key)
        if found is None:
            found = self._made_anew(at, end, begins)
            FORESEEN.keep(key, found)
        return found

    def _made_anew(self, at: int, end: int, begins: int) -> Rewritten:
        # Only these two are asked for again: one of them is where the next request begins.
        self._made = {epoch: self._begun(epoch) for epoch in (begins, end)}
        after, unedited = ([*self._made[epoch], *self._given[epoch:at]] for epoch in (begins, end))
        same = next(_differing(after, unedited), min(len(after), len(unedited)))
        sent = next((place for place in range(len(unedited) - 1, -1, -1) if unedited[place].is_answer), 0)
        sizes, others = [*map(self._view.tokens, after)], [*map(self._view.tokens, unedited)]
        return Rewritten(sum(sizes), sum(others[: min(same, sent)]), sum(others), sum(others[:sent]))

    def _begun(self, epoch: int) -> Sequence[Item]:
        known = self._made.get(epoch)
        return self._waiting(self._given[:epoch]) if known is None else known


def _are_values(steps: Sequence[Step]) -> bool:
    """Return whether steps that are equal do the same: they are frozen values, not objects that may change."""
    try:
        hash(tuple(steps))
    except TypeError:
        return False
    return all(type(step).__hash__ is not object.__hash__ for step in steps)


def _differing(after: Sequence[Item], unedited: Sequence[Item]) -> Iterator[int]:
    for place, (new, old) in enumerate(zip(after, unedited, strict=False)):
        if new is not old and (new.place != old.place or new.message != old.message):
            yield place
