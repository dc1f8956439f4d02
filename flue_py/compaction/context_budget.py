"""When a session's input has grown so much that it is time to warn, or to compact.

A cycle goes from one compaction to the next. The input tokens of all its calls are counted, cached ones included:
``session.aggregate_usage_since(compaction.id)`` returns that window, so each compaction starts a new count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from flue_py.core.usage import MAX_AMOUNT, UsageWindow
from flue_py.errors import InvalidArgument, shown

ContextSignal: TypeAlias = Literal["ok", "warn", "cutover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """The numbers of input tokens in a cycle at which to warn, and to compact; 0 switches it off.

    ``can_compact`` says whether the session has compaction at all. Raises `InvalidArgument` for an amount that is
    not a number of tokens, and for a ``cutover_at`` above 0 without ``can_compact``.
    """

    warn_at: int = 0
    cutover_at: int = 0
    can_compact: bool = True

    def __post_init__(self) -> None:
        for amount, what in ((self.warn_at, "warn_at"), (self.cutover_at, "cutover_at")):
            if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT:
                raise InvalidArgument(f"{what}: {shown(amount)} is not a whole number of tokens; 0 switches it off")
        if not isinstance(self.can_compact, bool):
            raise InvalidArgument(f"can_compact: {shown(self.can_compact)} is neither True nor False")
        if self.cutover_at > 0 and not self.can_compact:
            raise InvalidArgument(
                f"cutover_at: {self.cutover_at} asks for a compaction, but compaction is off; switch it on, or set "
                "cutover_at to 0"
            )

    def is_reached_by(self, sent: int) -> bool:
        """Return whether so many input tokens are as many as one of the numbers."""
        return any(0 < amount <= sent for amount in (self.warn_at, self.cutover_at))


class InputUsage(Protocol):
    """What calls of a model used, as far as it was sent."""

    @property
    def input(self) -> int: ...

    @property
    def cache_read(self) -> int: ...

    @property
    def cache_write(self) -> int: ...


def input_tokens(usage: InputUsage) -> int:
    """Return the tokens that were sent to the model: new ones, those read from the cache, and those written to it."""
    return usage.input + usage.cache_read + usage.cache_write


def context_signal(budget: ContextBudget, cycle: UsageWindow, *, before: UsageWindow | None = None) -> ContextSignal:
    """Return what to do after a call: go on, warn, or compact before the next one.

    ``cycle`` is the window since the latest compaction, ``before`` the one given the last time (None: there was none).
    ``warn`` is returned once in a cycle, after the call that reaches the limit; ``cutover`` after every call until
    there is a compaction. A ``before`` of another cycle is ignored.
    """
    now = input_tokens(cycle.usage)
    if 0 < budget.cutover_at <= now:
        return "cutover"
    then = input_tokens(before.usage) if before is not None and before.since == cycle.since else 0
    return "warn" if 0 < budget.warn_at <= now and then < budget.warn_at else "ok"
