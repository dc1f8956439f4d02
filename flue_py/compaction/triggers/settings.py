"""What a caller may set about when a session is compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from flue_py.compaction.context_budget import ContextBudget
from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, shown


@frozen
class TriggerSettings:
    """When to compact. 0 switches a number off.

    ``auto=False`` leaves only what somebody asks for, and warnings: overflows are not recovered from either.
    ``threshold`` is the size in tokens above which a compaction is due; by default it is the window minus the reserve
    of `CompactionSettings`, and 100,000 where the window is unknown. ``single_call_limit`` is one, too, and
    comes first.
    ``trigger_turns`` is the number of turns that have ended in the context: one agent's answers and results until an
    answer without calls, another agent or a user. ``keep_recent_turns`` of them stay, whatever ``keep_recent_tokens``
    says, as far as half of the window has room for them. ``budget``
    says how much input an agent may send to the model between two compactions, ``agent_budgets`` has those of agents
    that have one of their own, by name. ``on_resume`` asks before the first call of a process, too.

    ``grace_turns`` is for how many turns after a compaction neither turns nor budgets lead to another.
    ``thrash_window`` compactions in a row that freed less than ``thrash_share`` of the context each hold the next ones
    back until the context has grown by that share; one that frees less than ``least_share`` does so by itself. 0 for
    either of the first two switches all of that off, ``least_share`` too.
    ``max_failures`` in a row hold back all that nobody asked for. Raises `InvalidArgument` naming the field.
    """

    auto: bool = True
    threshold: int | None = None
    single_call_limit: int = 0
    trigger_turns: int = 0
    keep_recent_turns: int = 10
    budget: ContextBudget = field(default_factory=ContextBudget)
    agent_budgets: Mapping[str, ContextBudget] = field(default_factory=dict)
    on_resume: bool = True
    grace_turns: int = 1
    thrash_window: int = 10
    thrash_share: float = 0.1
    least_share: float = 0.05
    max_failures: int = 3

    @property
    def least_freed(self) -> float:
        """The share that a compaction has to free; 0 where nothing holds fruitless ones back."""
        return self.least_share if self.thrash_window and self.thrash_share else 0.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in tokens above which a compaction is due, those that were set."""
        return tuple(most for most in (self.threshold, self.single_call_limit) if most)

    def __post_init__(self) -> None:
        for name in ("auto", "on_resume"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name}: should be True or False, not {shown(getattr(self, name))}")
        for name in (
            "single_call_limit",
            "trigger_turns",
            "keep_recent_turns",
            "grace_turns",
            "thrash_window",
            "max_failures",
        ):
            _check_count(getattr(self, name), name)
        if self.threshold is not None:
            _check_count(self.threshold, "threshold")
        for name in ("thrash_share", "least_share"):
            _check_share(getattr(self, name), name)
        if self.trigger_turns:
            self._check_turns()
        self._check_budgets()

    def _check_turns(self) -> None:
        if self.keep_recent_turns < 1:
            raise InvalidArgument("keep_recent_turns: should be 1 or more where trigger_turns is set")
        if self.keep_recent_turns >= self.trigger_turns:
            raise InvalidArgument(
                f"keep_recent_turns ({self.keep_recent_turns}) must be less than trigger_turns ({self.trigger_turns})"
            )

    def _check_budgets(self) -> None:
        if not isinstance(self.budget, ContextBudget):
            raise InvalidArgument(f"budget: should be a ContextBudget, not {shown(self.budget)}")
        if not isinstance(self.agent_budgets, Mapping):
            raise InvalidArgument(f"agent_budgets: should be budgets by agent, not {shown(self.agent_budgets)}")
        for agent, budget in self.agent_budgets.items():
            if not isinstance(agent, str) or not isinstance(budget, ContextBudget):
                raise InvalidArgument(f"agent_budgets[{shown(agent)}]: should be a ContextBudget, not {shown(budget)}")
        object.__setattr__(self, "agent_budgets", MappingProxyType(dict(self.agent_budgets)))

    @property
    def has_budget(self) -> bool:
        """Whether any agent has a budget."""
        return any(each.warn_at or each.cutover_at for each in (self.budget, *self.agent_budgets.values()))

    def budget_of(self, agent: str) -> ContextBudget:
        """Return the budget of an agent."""
        return self.agent_budgets.get(agent, self.budget)


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(f"{name}: {shown(value)} is no whole number >= 0; 0 switches it off")


def _check_share(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidArgument(f"{name}: {shown(value)} is no share; give a number from 0 to 1")
