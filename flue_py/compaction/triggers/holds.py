"""What holds a trigger back that fired: nothing new, failures, no progress, thrashing, grace."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, size_words
from flue_py.compaction.triggers.settings import TriggerSettings
from flue_py.core.frozen import frozen

_EVERY_TURN = ("turns", "input_budget")
"""The triggers that would fire again right after a compaction, and that can wait for a turn."""


@frozen
class NothingNew:
    """Holds back where nothing was written since the latest compaction."""

    name: str = "nothing_new"

    def check(self, trigger: str, facts: Facts) -> str | None:
        return None if facts.is_new else "nothing was written since the latest compaction"


@frozen
class Breaker:
    """Holds back after so many failures in a row, until one succeeds that somebody asks for."""

    most: int
    name: str = "breaker"

    def check(self, trigger: str, facts: Facts) -> str | None:
        failures = facts.state.failures
        if not self.most or failures < self.most:
            return None
        return f"{failures} compactions failed in a row; compact on demand, or reset the guard, to go on"


@frozen
class NoProgress:
    """Holds back after a compaction that freed next to nothing, until the context has grown by as much."""

    least: float
    name: str = "no_progress"

    def check(self, trigger: str, facts: Facts) -> str | None:
        last = facts.state.attempts[-1] if facts.state.attempts else None
        if last is None or last.freed >= self.least or facts.size.tokens > last.after * (1 + self.least):
            return None
        return (
            f"the last compaction freed {last.freed:.1%}, less than {self.least:.0%}, and the context has not grown "
            f"by as much: it took {last.after:,} then"
        )


@frozen
class Thrash:
    """Holds back after several compactions in a row that each freed little, until the context has grown."""

    window: int
    least: float
    name: str = "thrash"

    def check(self, trigger: str, facts: Facts) -> str | None:
        latest = facts.state.attempts[-self.window :] if self.window else ()
        if not self.least or not latest or len(latest) < self.window:
            return None
        if any(each.freed >= self.least for each in latest) or facts.size.tokens > latest[-1].after * (1 + self.least):
            return None
        return f"the last {self.window} compactions freed less than {self.least:.0%} each; {size_words(facts.size)}"


@frozen
class Grace:
    """Holds back turns and budgets for so many turns after a compaction, the check after the last one included."""

    turns: int
    name: str = "grace"

    def check(self, trigger: str, facts: Facts) -> str | None:
        since = facts.turns_since
        if trigger not in _EVERY_TURN or since is None or not self.turns:
            return None
        if since > self.turns or (since == self.turns and facts.moment != "after"):
            return None
        return f"the latest compaction is {since} turns old, and {self.turns} are free of this trigger"


def holds_of(settings: TriggerSettings) -> tuple[NothingNew | Grace | Breaker | NoProgress | Thrash, ...]:
    """Return what holds triggers back, in the order in which it is asked."""
    return (
        NothingNew(),
        Grace(settings.grace_turns),
        Breaker(settings.max_failures),
        NoProgress(settings.least_freed),
        Thrash(settings.thrash_window, settings.thrash_share),
    )
