"""When a session is compacted: triggers, reasons to hold them back, and the memory of a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from msgspec.structs import replace

from flue_py.compaction.settings import CompactionSettings, TriggerSettings, sized_for, stored_count
from flue_py.core.context import ContextSize
from flue_py.core.json import Frozen, JsonObject, JsonValue

MOST_ATTEMPTS = 50
_MOST_NAMES = 100


class Attempt(Frozen):
    """A compaction: the size of the context in tokens after it, and the share that it freed, 0 to 1."""

    after: int
    freed: float


class GuardState(Frozen):
    """The memory of a guard: values that survive the process.

    ``failures`` counts the failed compactions in a row, ``attempts`` are the latest ones, oldest first. ``cycle`` is
    the compaction to which ``warned`` (agents) and ``told`` (decisions, and reasons to hold back) belong: an event is
    written once in a cycle. ``wanted`` is the text of a request that was not met yet, ``recovered`` the leaf left by
    the recovery from an overflow.
    """

    failures: int = 0
    attempts: tuple[Attempt, ...] = ()
    cycle: str = ""
    warned: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    wanted: str | None = None
    recovered: str = ""

    def in_cycle(self, compaction: str | None) -> GuardState:
        """Return it for the cycle after a compaction; a new cycle has no warnings and no events."""
        cycle = compaction or ""
        return self if cycle == self.cycle else replace(self, cycle=cycle, warned=frozenset(), told=frozenset())

    def with_warning(self, agent: str) -> GuardState:
        return replace(self, warned=self.warned | {agent})

    def with_told(self, decision: str) -> GuardState:
        return replace(self, told=self.told | {decision})

    def with_attempt(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that did not fail, with or without effect."""
        attempts = (*self.attempts, Attempt(after, round(freed, 4)))[-MOST_ATTEMPTS:]
        return replace(self, attempts=attempts, wanted=None)

    def with_success(self, after: int, freed: float) -> GuardState:
        """Return it after a compaction that was appended, without failures."""
        return replace(self.with_attempt(after, freed), failures=0)

    def with_failure(self) -> GuardState:
        return replace(self, failures=self.failures + 1, wanted=None)

    def to_json(self) -> JsonObject:
        """Return it as JSON, without fields at their default."""
        fields: JsonObject = {
            "failures": self.failures,
            "attempts": [[attempt.after, attempt.freed] for attempt in self.attempts],
            "cycle": self.cycle,
            "warned": [*sorted(self.warned)],
            "told": [*sorted(self.told)],
            "recovered": self.recovered,
        }
        state: JsonObject = {name: value for name, value in fields.items() if value}
        return state if self.wanted is None else {**state, "wanted": self.wanted}

    @classmethod
    def from_json(cls, stored: JsonValue) -> GuardState:
        """Return the stored state; a field that cannot be read has its default."""
        if not isinstance(stored, dict):
            return cls()
        wanted = stored.get("wanted")
        return cls(
            stored_count(stored.get("failures")),
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
    return [text for text in value if isinstance(text, str)][:_MOST_NAMES] if isinstance(value, list) else []


def _attempts(value: JsonValue) -> Iterator[Attempt]:
    for pair in value if isinstance(value, list) else []:
        after, freed = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if isinstance(after, int) and isinstance(freed, (int, float)):
            yield Attempt(after, freed)


# ---------------------------------------------------------------------------------------------------------------------
# Facts and decisions.

Moment: TypeAlias = Literal["before", "after", "resume", "demand", "overflow"]
"""Before or after a call of the model, before the first call of a process, because somebody wants a compaction, or
because a call has overflowed the window."""

Action: TypeAlias = Literal["none", "warn", "compact", "held"]
"""Go on; go on and tell somebody; compact; or a trigger fired, and something holds it back."""


class Facts(Frozen):
    """The facts about a session from which triggers decide.

    ``turns`` is the number of turns that have ended in the context, ``turns_since`` of those newer than the latest
    compaction, None if there is none. ``is_new`` says that anything was written since then. ``input_tokens`` have been
    sent to the model by ``agent`` since then. The summary should attend to ``instructions``. The history is
    ``above_budget`` tokens above the budget of mode ``window``.
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


class Decision(Frozen):
    """An action, and why: ``reason`` is a sentence that names the size, its counter, the window and the threshold.

    ``trigger`` is the name of the one that fired, "" for none, and ``held_by`` the name of its hold. ``keep_turns``
    turns at the end stay, None for no such number. ``size`` is the size from which it was decided.
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


class Fired(Frozen):
    """A trigger that fired, and why. A warning compacts nothing."""

    reason: str
    action: Literal["warn", "compact"] = "compact"
    threshold: int | None = None
    keep_turns: int | None = None


Trigger: TypeAlias = Callable[[Facts, TriggerSettings, CompactionSettings], Fired | None]
"""Return why a compaction is due, or a warning; None if neither is."""


def size_words(size: ContextSize) -> str:
    """Return the size of a context for people, with its counter and the window."""
    window = "an unknown window" if size.window is None else f"a window of {size.window:,}"
    return f"{size.tokens:,} tokens ({size.counter}) of {window}"


# ---------------------------------------------------------------------------------------------------------------------
# Triggers.

UNKNOWN_WINDOW_THRESHOLD = 100_000
"""The size above which a compaction is due if nobody knows the window: noumen's."""


def overflow(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    if facts.moment != "overflow":
        return None
    return Fired(f"the provider says that the window has overflowed; the context takes {size_words(facts.size)}")


def demand(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    return Fired(f"asked for; the context takes {size_words(facts.size)}") if facts.moment == "demand" else None


def single_call(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    limit = settings.single_call_limit
    if not limit or facts.size.tokens <= limit:
        return None
    return Fired(
        f"the next call would send {size_words(facts.size)}; a single call may send {limit:,}", threshold=limit
    )


def token_budget(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    above = facts.above_budget
    return Fired(f"the history is {above:,} tokens (characters / 4) above its budget") if above else None


def tokens(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    limit = token_limit(facts, settings, sizes)
    if limit is None or facts.size.tokens <= limit:
        return None
    return Fired(f"the context takes {size_words(facts.size)}; due above {limit:,}", threshold=limit)


def turns(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    limit = settings.trigger_turns
    if not limit or facts.turns < limit:
        return None
    reason = f"the context has {facts.turns:,} turns, due at {limit:,}; it takes {size_words(facts.size)}"
    return Fired(reason, threshold=limit, keep_turns=settings.keep_recent_turns)


def agent_requested(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    if facts.state.wanted is None:
        return None
    return Fired(f"the agent asked for it; the context takes {size_words(facts.size)}")


def input_budget(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Fired | None:
    """Fire if an agent's input has reached the cut-over; warn of it once in a cycle."""
    budget, sent = settings.budget_of(facts.agent), facts.input_tokens
    agent = f"agent {facts.agent!r}" if facts.agent else "the agent"
    words, size = f"{agent} has sent {sent:,} tokens since the latest compaction", size_words(facts.size)
    if 0 < budget.cutover_at <= sent:
        reason = f"{words}, due at {budget.cutover_at:,}; the context takes {size}"
        return Fired(reason, threshold=budget.cutover_at)
    if 0 < budget.warn_at <= sent and facts.agent not in facts.state.warned:
        due = f"; due at {budget.cutover_at:,}" if budget.cutover_at else ""
        return Fired(f"{words}, a warning at {budget.warn_at:,}{due}; the context takes {size}", "warn", budget.warn_at)
    return None


TRIGGERS: dict[str, Trigger] = {
    "overflow": overflow,
    "demand": demand,
    "single_call_limit": single_call,
    "token_budget": token_budget,
    "tokens": tokens,
    "turns": turns,
    "agent_requested": agent_requested,
    "input_budget": input_budget,
}
"""In order of precedence."""

UNHELD = ("demand", "overflow")
"""Somebody waits for these, so nothing holds them back."""


def token_limit(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> int | None:
    """Return the size above which `tokens` fires: the threshold, or the window minus the reserve; None if it is off."""
    if not sizes.enabled:
        return None
    if settings.threshold is not None:
        return settings.threshold or None
    window = facts.size.window
    return window - sized_for(sizes, window).reserve_tokens if window else UNKNOWN_WINDOW_THRESHOLD


# ---------------------------------------------------------------------------------------------------------------------
# The decision.


def held_back(trigger: str, facts: Facts, settings: TriggerSettings) -> Iterator[tuple[str, str]]:
    """Yield the name and the reason of everything that holds a trigger back."""
    state, size, since = facts.state, facts.size, facts.turns_since
    if not facts.is_new:
        yield "nothing_new", "nothing was written since the latest compaction"
    free = settings.grace_turns - (facts.moment != "after")
    if trigger in ("turns", "input_budget") and since is not None and settings.grace_turns and since <= free:
        words = f"the latest compaction is {since} turns old, and {settings.grace_turns} are free of this trigger"
        yield "grace", words
    if 0 < settings.max_failures <= state.failures:
        failures = f"{state.failures} compactions failed in a row"
        yield "breaker", f"{failures}; compact on demand, or reset the guard, to go on"
    least = settings.least_freed
    last = state.attempts[-1] if state.attempts else None
    if last is not None and last.freed < least and size.tokens <= last.after * (1 + least):
        freed = f"the last compaction freed {last.freed:.1%}, less than {least:.0%}"
        yield "no_progress", f"{freed}, and the context has not grown by as much: it took {last.after:,} then"
    count, share = settings.thrash_window, settings.thrash_share
    latest = state.attempts[-count:] if count else ()
    is_thrashing = bool(latest and share) and len(latest) == count and all(attempt.freed < share for attempt in latest)
    if is_thrashing and size.tokens <= latest[-1].after * (1 + share):
        yield "thrash", f"the last {count} compactions freed less than {share:.0%} each; {size_words(size)}"


def decide(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Decision:
    """Return the decision of the first trigger that fires and is not held back. Pure, O(1).

    If all that fire are held back, it is that of the first of them, ``held``. A warning comes last.
    """
    if facts.moment != "demand" and not (settings.auto and sizes.enabled):
        warning = input_budget(facts, settings, sizes)
        if warning is not None and warning.action == "warn":
            return _decision("input_budget", warning, facts)
        return _nothing(facts, "compaction by itself is off")
    if facts.moment == "resume" and not settings.on_resume:
        return _nothing(facts, "compaction on resume is off")
    first_held: Decision | None = None
    for name, trigger in TRIGGERS.items():
        fired = trigger(facts, settings, sizes)
        if fired is None:
            continue
        decision = _decision(name, fired, facts)
        hold = None if fired.action == "warn" or name in UNHELD else next(held_back(name, facts, settings), None)
        if hold is None:
            return decision
        reason = f"{decision.reason}; held back: {hold[1]}"
        first_held = first_held or replace(decision, action="held", held_by=hold[0], reason=reason)
    return first_held or _not_due(facts, settings, sizes)


def _not_due(facts: Facts, settings: TriggerSettings, sizes: CompactionSettings) -> Decision:
    """Return that nothing fires: ``held`` if it would have by a provider's report that is not believed."""
    size, limit = facts.size, token_limit(facts, settings, sizes)
    due = "there is no threshold" if limit is None else f"due above {limit:,}"
    takes = f"the context takes {size_words(size)}; {due}"
    if size.reported is None or size.distrust is None or limit is None:
        return replace(_nothing(facts, takes), threshold=limit)
    if not size.tokens <= limit < size.reported.tokens + size.trailing:
        return replace(_nothing(facts, takes), threshold=limit)
    why = "is more than the window" if size.distrust == "above_window" else "is far above our own count"
    words = f"the provider reported {size.reported.tokens:,} tokens, which {why} and is not believed"
    decision = _decision("tokens", Fired(f"{words}; {takes}", threshold=limit), facts)
    return replace(decision, action="held", held_by="disbelieved_report")


def _decision(trigger: str, fired: Fired, facts: Facts) -> Decision:
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
