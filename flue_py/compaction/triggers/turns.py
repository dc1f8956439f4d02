"""A context with more turns than it may have."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.core.frozen import frozen


@frozen
class TurnCount:
    """Fires where ``most`` turns or more have ended in the context. ``keep`` of them stay."""

    most: int
    keep: int
    name: str = "turns"

    def check(self, facts: Facts) -> Fired | None:
        if not self.most or facts.turns < self.most:
            return None
        words = f"the context has {facts.turns:,} turns, due at {self.most:,}; it takes {size_words(facts.size)}"
        return Fired(words, threshold=self.most, keep_turns=self.keep)
