"""Having a mode of compaction summarize a branch: one that is left, or one that is brought back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import BRANCH_SUMMARY
from flue_py.core.projection import ContextEntry
from flue_py.errors import InvalidArgument, SummaryFailed
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_count, checked_text, optional
from flue_py.sessions.asking import model_of, window_of
from flue_py.sessions.compacting import Compacting

if TYPE_CHECKING:
    from flue_py.compaction import branches, modes, policy
    from flue_py.compaction.modes import Made, Mode
    from flue_py.compaction.plan import SessionCompactionPlan
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.context.counters import ModelCounter
    from flue_py.core.model_seam import Model
else:
    branches = lazy_module("flue_py.compaction.branches")
    modes = lazy_module("flue_py.compaction.modes")
    policy = lazy_module("flue_py.compaction.policy")


class BranchMaking:
    """How a branch is to be summarized, checked before anything is done."""

    __slots__ = ("instructions", "mode", "model", "settings", "window")

    def __init__(
        self,
        model: Model | None,
        mode: str | Mode | None,
        settings: CompactionSettings | None,
        instructions: str | None,
        window: int | None,
    ) -> None:
        self.model = None if model is None else model_of(model)
        self.mode = modes.checked_mode(mode, settings, has_model=self.model is not None)
        self.settings = policy.checked_settings(settings)
        self.instructions = instructions
        self.window = window_of(window, self.model)


@frozen
class ToldBranch:
    """The summary of a branch, what is stored beside it, and the paid calls that it took, as the ledger has them."""

    text: str
    details: JsonObject
    calls: tuple[JsonObject, ...]


class Branching(Compacting):
    """How a branch of a `Session` is summarized."""

    __slots__ = ()

    async def _told_branch(
        self,
        making: BranchMaking,
        items: Sequence[ContextEntry],
        common: str | None,
        *,
        shown_at: str | None,
        preamble: str,
    ) -> ToldBranch | None:
        """Return the summary of what a context has of what comes after ``common``, behind a preamble.

        It is counted by the model that this session has at the leaf ``shown_at``. None where there is nothing to
        summarize. Raises `SummaryFailed`, whose cause is the model's error.
        """
        entry = None if common is None else await self.get_entry(common)
        above = -1 if entry is None else entry.depth
        counter = await self._counter_at(shown_at)
        planned = branches.plan_branch([item for item in items if item.entry.depth > above], making.settings)
        if planned is None:
            return None
        made, calls = await self._made_of(making, planned, counter, preamble)
        notes: JsonObject = {"notes": [*made.notes]} if made.notes else {}
        return ToldBranch(preamble + made.text, {**made.details, **notes}, calls)

    async def _made_of(
        self, making: BranchMaking, planned: SessionCompactionPlan, counter: ModelCounter, preamble: str
    ) -> tuple[Made, tuple[JsonObject, ...]]:
        """Return what a mode makes of a branch for behind a preamble, and the paid calls that it took."""
        asker = None if making.model is None else self._asker_of(making.model, making.settings, BRANCH_SUMMARY)
        material = modes.Material(
            planned,
            counter.count,
            None if planned.previous is None else planned.previous.details,
            making.instructions,
            making.window,
            None if making.model is None else making.model.context_window,
            summarizer_output=None if making.model is None else making.model.max_output_tokens,
        )
        material = branches.within_budget(material, preamble)
        if not planned.leaving:
            return branches.held_to_budget(branches.told_by_summaries(planned), material, preamble), ()
        made = await modes.make_text(making.mode, material, asker)
        if not made.text.strip():
            raise SummaryFailed(making.mode.name, "it made no text")
        return branches.held_to_budget(made, material, preamble), () if asker is None else tuple(asker.calls)


def checked_making(
    model: Model | None,
    mode: str | Mode | None,
    settings: CompactionSettings | None,
    instructions: str | None,
    window: int | None,
) -> BranchMaking | None:
    """Return how a branch is to be summarized; None where neither a model nor a mode nor settings ask for it."""
    checked_text(instructions, "instructions")
    optional(checked_count, window, "window")
    if model is None and mode is None and settings is None:
        if instructions is not None or window is not None:
            raise InvalidArgument("instructions: nothing is summarized by a model; give a model, a mode or settings")
        return None
    return BranchMaking(model, mode, settings, instructions, window)
