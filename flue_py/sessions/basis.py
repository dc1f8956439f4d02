"""What a compaction of a session is to be made of, before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import ContextEntry, summary_text
from flue_py.lazy import lazy_module
from flue_py.sessions.handle import KnownContext

if TYPE_CHECKING:
    from flue_py.compaction import hooks, modes, plan, policy, ranges, result, split
    from flue_py.compaction.blocks import Block
    from flue_py.compaction.hooks import Cancelled
    from flue_py.compaction.modes import Made, Mode
    from flue_py.compaction.plan import NoCompaction, SessionCompactionPlan
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.result import CompactionResult, NotCompacted
    from flue_py.context import counters
    from flue_py.context.counters import ModelCounter
    from flue_py.core.model_seam import Model
else:
    counters = lazy_module("flue_py.context.counters")
    hooks = lazy_module("flue_py.compaction.hooks")
    modes = lazy_module("flue_py.compaction.modes")
    plan = lazy_module("flue_py.compaction.plan")
    policy = lazy_module("flue_py.compaction.policy")
    ranges = lazy_module("flue_py.compaction.ranges")
    result = lazy_module("flue_py.compaction.result")
    split = lazy_module("flue_py.compaction.split")

Planned: TypeAlias = "SessionCompactionPlan | NoCompaction"
Finding: TypeAlias = (
    "Callable[[KnownContext, CompactionSettings, Sequence[str], Sequence[int], frozenset[str]], Planned]"
)
"""Plans a compaction of a context, with its settings, the pins, the size of each item, and what must not leave."""


@frozen
class Basis:
    """What a compaction is to be made of: the context it was planned on, and the plan or why there is none.

    ``window`` is how many tokens the messages may take and the next answer: less than the window of the model by what
    goes with them.
    """

    leaf: str | None
    items: Sequence[ContextEntry]
    latest: Entry | None
    mode: Mode
    settings: CompactionSettings
    window: int | None
    tasks: tuple[str, ...]
    counter: ModelCounter
    tokens_before: int
    tokens_leaving: int
    tokens_staying: int
    found: Planned

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the plan is otherwise than asked for, in whole sentences."""
        if not isinstance(self.found, ranges.RangePlan) or not self.found.is_widened:
            return ()
        first, last = self.found.first_entry_id, self.found.last_entry_id
        return (f"the range is that from {first!r} to {last!r}: no call is separated from its results",)

    def nothing(self, reason: NotCompacted) -> CompactionResult:
        """Return the result of having made nothing."""
        planned = self.found if isinstance(self.found, plan.SessionCompactionPlan) else None
        return result.CompactionResult(
            reason,
            self.mode.name,
            self.tokens_before,
            self.tokens_staying,
            planned=planned,
            counter=self.counter.name,
            notes=self.notes,
        )

    def cancelled(self, answer: Cancelled) -> CompactionResult:
        """Return the result where a hook wants no compaction."""
        why = f"a hook cancelled it: {answer.reason}" if answer.reason else "a hook cancelled it"
        return replace(self.nothing("cancelled"), notes=(*self.notes, why))

    def about(self, material: modes.Material) -> hooks.AboutToCompact:
        """Return what a hook is asked about."""
        return hooks.AboutToCompact(
            material, self.mode.name, self.tokens_before, self.tokens_staying, self.counter.name
        )

    def size_of(self, summary: str) -> int:
        """Return how many tokens a summary takes in the context, which does not show one without a text."""
        return self.counter.count(shown_summary(summary)) if summary else 0

    def made(self, made: Made, calls: tuple[JsonObject, ...]) -> CompactionResult:
        """Return the result of a text, with the reason ``not_smaller`` where it is that."""
        after = self.tokens_staying + self.size_of(made.text)
        return replace(
            self.nothing("not_smaller"),
            reason="not_smaller" if after >= self.tokens_before else None,
            mode=made.mode,
            tokens_after=after,
            summary=made.text,
            calls=calls,
            notes=(*self.notes, *made.notes, *self._above(after)),
        )

    def _above(self, after: int) -> Iterator[str]:
        """Yield a note where the context is large enough for another compaction right after this one."""
        most = after if self.window is None else self.window - self.settings.reserve_tokens
        if after > most:
            staying = f"{self.tokens_staying:,} of them stay word for word"
            yield f"the context still takes {after:,} tokens, {after - most:,} more than leave the reserve: {staying}"

    def material(
        self,
        planned: SessionCompactionPlan,
        instructions: str | None,
        model: Model | None,
        registered: Block,
    ) -> modes.Material:
        """Return what a mode makes its text of, beside what is registered."""
        beside = self.tokens_staying + (self.counter.count(said(registered.text)) if registered.text else 0)
        return modes.Material(
            planned,
            self.counter.count,
            None if planned.previous is None else planned.previous.details,
            instructions,
            self.window,
            None if model is None else model.context_window,
            self.tokens_leaving,
            self.tasks,
            policy.room_for_text(self.settings, self.window, beside),
            summarizer_output=None if model is None else model.max_output_tokens,
        )


def beginning(
    read: KnownContext,
    settings: CompactionSettings,
    pins: Sequence[str],
    counts: Sequence[int],
    live: frozenset[str],
    *,
    most: int | None,
    whole_turns: bool = False,
) -> Planned:
    """Plan to summarize the beginning of the context; at most so many tokens stay, where that can be."""
    exchanges = split.split_exchanges(read.tail, (item.entry_id for item in read.items))
    return plan.plan_session_compaction(
        read.items,
        read.compaction,
        settings,
        pinned=pins,
        counts=counts,
        live=live,
        most=most,
        split=exchanges,
        whole_turns=whole_turns,
    )


def within_budget(
    items: Sequence[ContextEntry],
    counts: Sequence[int],
    settings: CompactionSettings,
    sized: CompactionSettings,
    window: int | None,
    counter: ModelCounter,
    registered: str,
) -> int | None:
    """Return how many tokens may stay of a context by the budget of mode ``window``; None where all of it may."""
    if window is not None and registered:
        window = max(window - counter.count(shown_summary(registered)), 1)
    has_summary = bool(items) and items[0].kind == COMPACTION
    budgeted = counters.budget_counts(items)
    return policy.within_budget(settings, counts, budgeted, sized, window, has_summary=has_summary)


def shown_summary(text: str) -> JsonObject:
    """Return the message by which the model sees a summary."""
    return said(summary_text("compaction", text))


def said(text: str) -> JsonObject:
    """Return a message of the user that says a text."""
    return {"role": "user", "content": [{"type": "text", "text": text}]}
