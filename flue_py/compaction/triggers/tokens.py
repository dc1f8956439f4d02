"""A context that takes more of the window than it may."""

from __future__ import annotations

from flue_py.compaction.policy import CompactionSettings, sized_for
from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.core.frozen import frozen

UNKNOWN_WINDOW_THRESHOLD = 100_000
"""The size above which a compaction is due where nobody knows the window: noumen's."""


@frozen
class TokenBudget:
    """Fires where the history, in characters / 4, is above the budget of mode ``window``."""

    name: str = "token_budget"

    def check(self, facts: Facts) -> Fired | None:
        above = facts.above_budget
        return Fired(f"the history is {above:,} tokens (characters / 4) above its budget") if above else None


@frozen
class TokenThreshold:
    """Fires where the context is larger than a threshold: that which was set, or the window minus the reserve.

    Where neither is known that is `UNKNOWN_WINDOW_THRESHOLD`. A provider's report that is not believed counts for
    nothing.
    """

    settings: CompactionSettings
    threshold: int | None = None
    name: str = "tokens"

    def check(self, facts: Facts) -> Fired | None:
        limit = self.limit(facts.size.window)
        if limit is None or facts.size.tokens <= limit:
            return None
        return Fired(f"the context takes {size_words(facts.size)}; due above {limit:,}", threshold=limit)

    def limit(self, window: int | None) -> int | None:
        """Return the size above which it fires; None where there is none."""
        if not self.settings.enabled:
            return None
        if self.threshold is not None:
            return self.threshold or None
        return window - sized_for(self.settings, window).reserve_tokens if window else UNKNOWN_WINDOW_THRESHOLD

    def disbelieved(self, facts: Facts) -> Fired | None:
        """Return why nothing fires though a report says that it should; None where no report is disbelieved so."""
        size, limit = facts.size, self.limit(facts.size.window)
        if size.reported is None or size.distrust is None or limit is None:
            return None
        if size.reported.tokens + size.trailing <= limit or size.tokens > limit:
            return None
        why = "is more than the window" if size.distrust == "above_window" else "is far above our own count"
        words = f"the provider reported {size.reported.tokens:,} tokens, which {why} and is not believed"
        return Fired(f"{words}; the context takes {size_words(size)}; due above {limit:,}", threshold=limit)
