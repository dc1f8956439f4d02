"""What a trigger is asked, and what it decides: pure values, without a session and without a clock."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from flue_py.compaction.triggers.state import GuardState
from flue_py.core.counting import ContextSize
from flue_py.core.frozen import frozen

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
