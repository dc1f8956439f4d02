"""What the steps of a pipeline did: by step and by entry, with the tokens that it freed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flue_py.context.items import How
from flue_py.core.frozen import changed, frozen


@frozen
class ContextChange:
    """What one step did with one message: left it out, shortened it, replaced it, merged it into another, or added it.

    ``entry_id`` is the entry behind it, None for a message that a step added. The sizes are in tokens. ``into`` is the
    entry whose message has the content of this one since it was merged, None for any other; its sizes count there.
    """

    step: str
    entry_id: str | None
    how: How
    tokens_before: int
    tokens_after: int
    into: str | None = None

    @property
    def tokens_freed(self) -> int:
        """How many tokens it takes less; below 0 for one that was added."""
        return self.tokens_before - self.tokens_after

    def __str__(self) -> str:
        into = "" if self.into is None else f" {'into' if self.how == 'merged' else 'in'} {self.into}"
        whose = self.entry_id or "a message of its own"
        return f"{whose}: {self.how}{into} by {self.step}, {self.tokens_freed:,} tokens"


@frozen
class StepReport:
    """What one step did, in the order of the context. ``reason`` says why it does it."""

    name: str
    reason: str
    changes: tuple[ContextChange, ...] = ()

    @property
    def tokens_freed(self) -> int:
        """How many tokens all of it freed."""
        return sum(change.tokens_freed for change in self.changes)


@frozen
class ContextEvent:
    """Something that a program may want to tell: its name, and a sentence with the numbers."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@frozen
class ContextReport:
    """What a pipeline did between the context and the request, in the order of its steps, those without effect too.

    ``tokens_before`` is the context as it was, ``tokens_after`` what is left of it, by ``counter``; ``is_estimate``
    says that these are estimates. ``epoch_end`` is the last entry that steps which wait for an epoch may rewrite, None
    where there is none. A last step ``provider`` is what the provider is expected to clear itself, of messages that go
    to it whole; it makes ``tokens_after`` an estimate.
    """

    steps: tuple[StepReport, ...]
    events: tuple[ContextEvent, ...]
    tokens_before: int
    tokens_after: int
    counter: str
    is_estimate: bool
    agent: str | None = None
    epoch_end: str | None = None

    def with_step(self, step: StepReport, events: Iterable[ContextEvent]) -> ContextReport:
        """Return the report with a further step, whose numbers are estimates, and with other events."""
        is_estimate = self.is_estimate or bool(step.changes)
        left = self.tokens_after - step.tokens_freed
        return changed(
            self, steps=(*self.steps, step), events=tuple(events), tokens_after=left, is_estimate=is_estimate
        )

    @property
    def changes(self) -> tuple[ContextChange, ...]:
        """Everything that was done, step by step."""
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def tokens_freed(self) -> int:
        """How many tokens the request takes less than the context."""
        return self.tokens_before - self.tokens_after

    def by_entry(self) -> Mapping[str, tuple[ContextChange, ...]]:
        """Return what was done with each entry that is not sent as the context has it. O(changes)."""
        found: dict[str, list[ContextChange]] = {}
        for change in self.changes:
            if change.entry_id is not None:
                found.setdefault(change.entry_id, []).append(change)
        return {entry_id: tuple(changes) for entry_id, changes in found.items()}
