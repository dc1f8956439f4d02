"""A call that would send more than one call may: due at once, whatever else holds."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.core.frozen import frozen


@frozen
class SingleCall:
    """Fires where the context is larger than one call may send."""

    limit: int
    name: str = "single_call_limit"

    def check(self, facts: Facts) -> Fired | None:
        if not self.limit or facts.size.tokens <= self.limit:
            return None
        words = f"the next call would send {size_words(facts.size)}; a single call may send {self.limit:,}"
        return Fired(words, threshold=self.limit)
