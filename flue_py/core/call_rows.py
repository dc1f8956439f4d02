"""The row of a paid call: apart from the other rows of a tree, which only copying one needs."""

from __future__ import annotations

from typing import NamedTuple

from flue_py.core.usage import Paid


class CallRow(NamedTuple):
    """A paid model call. ``cost`` is in picodollars; None if it is unknown; ``agent`` is who made it.

    ``unknown`` is 1 if its usage is unknown: its tokens are zero for that reason alone. ``reported`` has a bit
    for each number of tokens that was reported, in the order of `PARTS`.
    """

    scope: str
    provider: str
    call_id: str
    session_key: int
    entry_id: str | None
    purpose: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cost: int | None
    price_source: str | None
    at: int
    outcome: str | None = None
    unknown: int = 0
    agent: str | None = None
    reported: int = 0

    @property
    def identity(self) -> tuple[str, str, str]:
        """What tells the call from all others of a store: scope, provider, call id."""
        return self[:3]

    @property
    def tokens(self) -> int:
        """All tokens: the reported total, or the sum of the kinds where none was reported."""
        return self.total_tokens or sum(self[7:12])

    @property
    def paid(self) -> Paid:
        """The call as a sum of one."""
        return Paid(1, int(self.cost is None), self.unknown, self.tokens, self.cost or 0)

    @property
    def is_blank(self) -> bool:
        """Whether nothing is said of it: so a version before format 3 wrote usage in which it recognised nothing."""
        return self.cost is None and not self.total_tokens and not any(self[7:13])

    @property
    def is_summed(self) -> bool:
        """Whether all its tokens are the sum of the kinds."""
        return self.tokens == sum(self[7:12])
