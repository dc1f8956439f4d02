"""What a step of the pipeline is, and what it may ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from flue_py.context.counters import ENTRY_COUNTS, ModelCounter, counter_for
from flue_py.context.items import Item
from flue_py.context.report import ContextEvent

Over: TypeAlias = Literal["all", "history", "turn"]
"""What a step is given: the whole context, what lies before the turn that is in progress, or that turn."""


class View:
    """Who is asked, how large a message is, and where a step leaves what a program may want to tell."""

    __slots__ = ("_sizes", "agent", "counter", "events")

    def __init__(self, agent: str | None, counter: ModelCounter) -> None:
        self.agent = agent
        self.counter = counter
        self.events: list[ContextEvent] = []
        self._sizes: dict[Item, int] = {}

    def tokens(self, item: Item) -> int:
        """Return how many tokens a message takes. O(1) if it was counted before, else O(size)."""
        tokens = self._sizes.get(item)
        if tokens is None:
            if item.how is None and item.source is not None:
                tokens = ENTRY_COUNTS.count(item.source, self.counter)
            else:
                tokens = ENTRY_COUNTS.count_message(item.message, self.counter)
            self._sizes[item] = tokens
        return tokens

    def smaller(self, made: Item, item: Item) -> Item:
        """Return what was made of an item if it takes fewer tokens, else the item: what is not shorter frees nothing.

        What is pinned stays as it is. The cost of `tokens`.
        """
        return made if not item.is_pinned and self.tokens(made) < self.tokens(item) else item

    def note_sizes(self, items: Sequence[Item], sizes: Sequence[int]) -> None:
        """Note how many tokens each of some messages takes."""
        self._sizes.update(zip(items, sizes, strict=True))

    def tell_over(self, items: Sequence[Item], most: int, name: str) -> None:
        """Note, as ``over_budget``, that what a step has left is above its budget, if it is. The cost of `tokens`."""
        total = sum(map(self.tokens, items))
        if total > most:
            self.tell("over_budget", f"{name} leaves {total:,} tokens, more than {most:,}")

    def aside(self) -> View:
        """Return a view that shares the counts with this one, and has events of its own."""
        view = View(self.agent, self.counter)
        view._sizes = self._sizes
        return view

    def budgeted(self) -> View:
        """Return a view that counts characters / 4, as budgets do whatever the model, and tells where this one does."""
        counter = counter_for(None, faithful=True)
        if self.counter is counter:
            return self
        view = View(self.agent, counter)
        view.events = self.events
        return view

    def tell(self, name: str, text: str) -> None:
        """Note an event."""
        self.events.append(ContextEvent(name, text))


class Step(Protocol):
    """One step: it takes messages and returns those that go on, in order.

    It changes no message, reads nothing but these, and gives the same for the same. What it did is found by comparing
    what it was given with what it returns, so that a step cannot leave anything out silently.
    """

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def reason(self) -> str:
        """Why it does what it does, in a few words."""

    @property
    def over(self) -> Over:
        """What it is given."""

    @property
    def at_epochs(self) -> bool:
        """Whether it rewrites at the beginning of an epoch alone: what came since is not given to it."""

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return what goes on of the items. It should be O(size)."""
