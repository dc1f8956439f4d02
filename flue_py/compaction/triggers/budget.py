"""An agent that has sent more to the model since the latest compaction than it may."""

from __future__ import annotations

from flue_py.compaction.triggers.protocol import Facts, Fired, size_words
from flue_py.compaction.triggers.settings import TriggerSettings
from flue_py.core.frozen import frozen


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
