"""A call that was more than the window holds."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.core.frozen import frozen


@frozen
class OnOverflow:
    """Fires where a call has overflowed the window."""

    name: str = "overflow"

    def check(self, facts: Facts) -> Fired | None:
        if facts.moment != "overflow":
            return None
        return Fired(f"the provider says that the window has overflowed; the context takes {size_words(facts.size)}")
