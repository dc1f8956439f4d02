"""What a guard remembers of a session from one process to the next, and how each event changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias

from flue_py.compaction.settings import CompactionSettings, TriggerSettings, sized_for
from flue_py.core.context import ContextSize
from flue_py.core.json import JsonObject, JsonValue, frozen

__all__ = [
    "Attempt",
    "Decision",
    "Facts",
    "Fired",
    "GuardState",
    "Hold",
    "Moment",
    "Trigger",
    "TriggerSettings",
    "decide",
    "size_words",
    "triggers_of",
]


# ---------------------------------------------------------------------------------------------------------------------
# What a guard remembers of a session from one process to the next, and how each event changes it.

MOST_ATTEMPTS = 50
_MOST_NAMES = 100


@frozen
class Attempt:
    """What a compaction came to: the size of the context in tokens after it, and the share that it freed, 0 to 1."""

    after: int
    freed: float


@frozen
class GuardState:
    """The memory of a guard: values that survive the process.

    ``failures`` counts the failed compactions in a row, ``attempts`` are the latest ones, oldest first. ``cycle`` is
    the compaction that ``warned`` (agents) and ``told`` (what was decided, or held a trigger back) are of: each is
    said once in a cycle. ``wanted`` is the text of a request that was not met yet. ``recovered`` is the leaf that the
    recovery from an overflow has left.
    """

    failures: int = 0
    attempts: tuple[Attempt, ...] = ()
    cycle: str = ""
    warned: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    wanted: str | None = None
    recovered: str = ""

    def in_cycle(self, compaction: str | None) -> GuardState:
        """Return it as it is in the cycle after a compaction: another one begins with nothing said."""
        cycle = compaction or ""
        return self if cycle == self.cycle else replace(self, cycle=cycle, warned=frozenset(), told=frozenset())

    def with_warning(self, agent: str) -> GuardState:
        """Return it after a warning about an agent."""
        return replace(self, warned=self.warned | {agent})

    def with_told(self, decision: str) -> GuardState:
        """Return it after an event that says what was decided, or what held a trigger back."""
        return replace(self, told=self.told | {decision})

    def with_attempt(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that came to something, or to nothing, without failing."""
        attempts = (*self.attempts, Attempt(after, round(freed, 4)))[-MOST_ATTEMPTS:]
        return replace(self, attempts=attempts, wanted=None)

    def with_success(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that was appended: failures are forgotten."""
        return replace(self.with_attempt(after, freed), failures=0)

    def with_failure(self) -> GuardState:
        """Return it after a compaction that failed."""
        return replace(self, failures=self.failures + 1, wanted=None)

    def to_json(self) -> JsonObject:
        """Return it as JSON; what is as in the beginning is left out."""
        fields: JsonObject = {
            "failures": self.failures,
            "attempts": [[each.after, each.freed] for each in self.attempts],
            "cycle": self.cycle,
            "warned": [*sorted(self.warned)],
            "told": [*sorted(self.told)],
            "recovered": self.recovered,
        }
        said: JsonObject = {name: value for name, value in fields.items() if value}
        return said if self.wanted is None else {**said, "wanted": self.wanted}

    @classmethod
    def from_json(cls, stored: JsonValue) -> GuardState:
        """Return what was stored; what cannot be read is as in the beginning."""
        if not isinstance(stored, dict):
            return cls()
        wanted = stored.get("wanted")
        failures = stored.get("failures")
        return cls(
            failures if isinstance(failures, int) and not isinstance(failures, bool) and failures > 0 else 0,
            tuple(_attempts(stored.get("attempts")))[-MOST_ATTEMPTS:],
            _text(stored.get("cycle")),
            frozenset(_texts(stored.get("warned"))),
            frozenset(_texts(stored.get("told"))),
            wanted if isinstance(wanted, str) else None,
            _text(stored.get("recovered")),
        )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: JsonValue) -> list[str]:
    return [each for each in value if isinstance(each, str)][:_MOST_NAMES] if isinstance(value, list) else []


def _attempts(value: JsonValue) -> Iterator[Attempt]:
    for pair in value if isinstance(value, list) else []:
        after, freed = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if isinstance(after, int) and isinstance(freed, (int, float)):
            yield Attempt(after, freed)


# ---------------------------------------------------------------------------------------------------------------------
# What a trigger is asked, and what it decides: pure values, without a session and without a clock.

Moment: TypeAlias = Literal["before", "after", "resume", "demand", "overflow"]
"""When it is asked: before or after a call of the model, before the first call of a process, because somebody wants
a compaction, or because a call has overflowed the window."""

Action: TypeAlias = Literal["none", "warn", "compact", "held"]
"""Go on; go on and tell somebody; compact; or a trigger fired, and something holds it back."""


@frozen
class Facts:
    """What is known of a session when a trigger is asked.

    ``turns`` are those that have ended in the context, ``turns_since`` those of them that are newer than the latest
    compaction, None where there is none. ``is_new`` says that anything was written since that. ``input_tokens`` is what
    ``agent`` has sent to the model since the latest compaction, ``instructions`` what somebody wants the summary to
    attend to. ``above_budget`` is by how much the history is above the budget of mode ``window``.
    """

    moment: Moment
    size: ContextSize
    state: GuardState
    turns: int = 0
    turns_since: int | None = None
    is_new: bool = True
    agent: str = ""
    input_tokens: int = 0
    instructions: str | None = None
    above_budget: int = 0

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody wants a compaction now, or needs one."""
        return self.moment in ("demand", "overflow")


@frozen
class Decision:
    """What to do, and why: ``reason`` is a sentence that names the size, its counter, the window and the threshold.

    ``trigger`` is what fired, "" for none, and ``held_by`` what holds it back. ``keep_turns`` is how many turns at
    the end stay, None for no such number. ``size`` is what the decision was made of.
    """

    action: Action
    trigger: str
    reason: str
    moment: Moment
    size: ContextSize
    threshold: int | None = None
    held_by: str | None = None
    keep_turns: int | None = None
    instructions: str | None = None
    agent: str = ""


@frozen
class Fired:
    """A trigger that fired: the reason, and what the decision is to say beyond that."""

    reason: str
    action: Literal["warn", "compact"] = "compact"
    threshold: int | None = None
    keep_turns: int | None = None


class Trigger(Protocol):
    """Says from facts whether a compaction is due."""

    @property
    def name(self) -> str:
        """What decisions call it."""

    def check(self, facts: Facts, /) -> Fired | None:
        """Return why a compaction is due, or a warning; None where neither is."""


class Hold(Protocol):
    """Says from facts whether a trigger that fired is to be held back."""

    @property
    def name(self) -> str:
        """What decisions call it."""

    def check(self, trigger: str, facts: Facts, /) -> str | None:
        """Return why it is held back; None where it is not."""


def size_words(size: ContextSize) -> str:
    """Return the size of a context for people, with its counter and the window."""
    window = "an unknown window" if size.window is None else f"a window of {size.window:,}"
    return f"{size.tokens:,} tokens ({size.counter}) of {window}"


# ---------------------------------------------------------------------------------------------------------------------
# An agent that has sent more to the model since the latest compaction than it may.


@frozen
class InputBudget:
    """Warns of an agent once in a cycle, and fires where its input has reached the cut-over."""

    settings: TriggerSettings
    name: str = "input_budget"

    def check(self, facts: Facts) -> Fired | None:
        budget, sent = self.settings.budget_of(facts.agent), facts.input_tokens
        agent = f"agent {facts.agent!r}" if facts.agent else "the agent"
        words = f"{agent} has sent {sent:,} tokens since the latest compaction"
        size = f"the context takes {size_words(facts.size)}"
        if 0 < budget.cutover_at <= sent:
            return Fired(f"{words}, due at {budget.cutover_at:,}; {size}", threshold=budget.cutover_at)
        if 0 < budget.warn_at <= sent and facts.agent not in facts.state.warned:
            due = f"; due at {budget.cutover_at:,}" if budget.cutover_at else ""
            return Fired(f"{words}, a warning at {budget.warn_at:,}{due}; {size}", "warn", budget.warn_at)
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Somebody wants a compaction: a person now, or an agent at the next opportunity.


@frozen
class OnDemand:
    """Fires where somebody asks for it now."""

    name: str = "demand"

    def check(self, facts: Facts) -> Fired | None:
        return Fired(f"asked for; the context takes {size_words(facts.size)}") if facts.moment == "demand" else None


@frozen
class AgentRequest:
    """Fires where a request was left, as a tool for agents leaves one."""

    name: str = "agent_requested"

    def check(self, facts: Facts) -> Fired | None:
        if facts.state.wanted is None:
            return None
        return Fired(f"the agent asked for it; the context takes {size_words(facts.size)}")


# ---------------------------------------------------------------------------------------------------------------------
# What holds a trigger back that fired: nothing new, failures, no progress, thrashing, grace.

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


# ---------------------------------------------------------------------------------------------------------------------
# A call that was more than the window holds.


@frozen
class OnOverflow:
    """Fires where a call has overflowed the window."""

    name: str = "overflow"

    def check(self, facts: Facts) -> Fired | None:
        if facts.moment != "overflow":
            return None
        return Fired(f"the provider says that the window has overflowed; the context takes {size_words(facts.size)}")


# ---------------------------------------------------------------------------------------------------------------------
# A call that would send more than one call may: due at once, whatever else holds.


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


# ---------------------------------------------------------------------------------------------------------------------
# A context that takes more of the window than it may.

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


# ---------------------------------------------------------------------------------------------------------------------
# A context with more turns than it may have.


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


# ---------------------------------------------------------------------------------------------------------------------
# Which trigger comes first, and what holds it back: one decision of all of them.

UNHELD = ("demand", "overflow")
"""What is done though something holds other triggers back: somebody waits for it."""


def triggers_of(settings: TriggerSettings, sizes: CompactionSettings) -> tuple[Trigger, ...]:
    """Return the triggers in the order of their precedence."""
    return (
        OnOverflow(),
        OnDemand(),
        SingleCall(settings.single_call_limit),
        TokenBudget(),
        TokenThreshold(sizes, settings.threshold),
        TurnCount(settings.trigger_turns, settings.keep_recent_turns),
        AgentRequest(),
        InputBudget(settings),
    )


def decide(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Decision:
    """Return what to do: what the first trigger says that fires and is not held back. Pure, O(1).

    Where all that fire are held back, it is that of the first of them, ``held``. A warning comes last.
    """
    if facts.moment != "demand" and not (settings.auto and sizes.enabled):
        budget = InputBudget(settings)
        warning = budget.check(facts)
        if warning is not None and warning.action == "warn":
            return _decided(budget.name, warning, facts)
        return _nothing(facts, "compaction by itself is off")
    if facts.moment == "resume" and not settings.on_resume:
        return _nothing(facts, "compaction on resume is off")
    held: Decision | None = None
    for trigger in triggers_of(settings, sizes):
        fired = trigger.check(facts)
        if fired is None:
            continue
        decision = _decided(trigger.name, fired, facts)
        found = _held(decision, facts, settings)
        if found is None:
            return decision
        held = held or found
    return held or _unfired(facts, settings, sizes)


def _held(decision: Decision, facts: Facts, settings: TriggerSettings) -> Decision | None:
    """Return a decision as it is where something holds it back; None where nothing does."""
    if decision.action == "warn" or decision.trigger in UNHELD:
        return None
    for hold in holds_of(settings):
        why = hold.check(decision.trigger, facts)
        if why is not None:
            return replace(decision, action="held", held_by=hold.name, reason=f"{decision.reason}; held back: {why}")
    return None


def _unfired(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Decision:
    tokens = TokenThreshold(sizes, settings.threshold)
    disbelieved = tokens.disbelieved(facts)
    if disbelieved is not None:
        return replace(_decided(tokens.name, disbelieved, facts), action="held", held_by="disbelieved_report")
    limit = tokens.limit(facts.size.window)
    due = "there is no threshold" if limit is None else f"due above {limit:,}"
    return replace(_nothing(facts, f"the context takes {size_words(facts.size)}; {due}"), threshold=limit)


def _decided(trigger: str, fired: Fired, facts: Facts) -> Decision:
    wanted = facts.instructions if facts.instructions is not None else facts.state.wanted
    return Decision(
        fired.action,
        trigger,
        fired.reason,
        facts.moment,
        facts.size,
        fired.threshold,
        keep_turns=fired.keep_turns,
        instructions=wanted or None,
        agent=facts.agent,
    )


def _nothing(facts: Facts, reason: str) -> Decision:
    return Decision("none", "", reason, facts.moment, facts.size, agent=facts.agent)
