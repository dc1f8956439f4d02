"""Which trigger comes first, and what holds it back: one decision of all of them."""

from __future__ import annotations

from dataclasses import replace

from flue_py.compaction.policy import CompactionSettings
from flue_py.compaction.triggers.budget import InputBudget
from flue_py.compaction.triggers.demand import AgentRequest, OnDemand
from flue_py.compaction.triggers.holds import holds_of
from flue_py.compaction.triggers.overflow import OnOverflow
from flue_py.compaction.triggers.protocol import Decision, Facts, Fired, Trigger, size_words
from flue_py.compaction.triggers.settings import TriggerSettings
from flue_py.compaction.triggers.single_call import SingleCall
from flue_py.compaction.triggers.tokens import TokenBudget, TokenThreshold
from flue_py.compaction.triggers.turns import TurnCount

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
