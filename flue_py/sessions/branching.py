"""Having a mode of compaction summarize a branch that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import BRANCH_SUMMARY
from flue_py.errors import InvalidArgument, SummaryFailed
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_count, checked_text, optional
from flue_py.sessions.asking import model_of, window_of
from flue_py.sessions.compacting import Compacting

if TYPE_CHECKING:
    from flue_py.compaction import branches, modes, policy
    from flue_py.compaction.modes import Made, Mode
    from flue_py.compaction.policy import CompactionSettings
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


class Branching(Compacting):
    """How a branch of a `Session` is summarized."""

    __slots__ = ()

    async def _summarize_branch(
        self, making: BranchMaking, leaf: str | None, common: str | None
    ) -> tuple[Made, tuple[JsonObject, ...]] | None:
        """Return the summary of what the context at ``leaf`` has of what comes after ``common``, and its paid calls.

        None where that is nothing. Raises `SummaryFailed`, whose cause is the model's error.
        """
        entry = None if common is None else await self.get_entry(common)
        above = -1 if entry is None else entry.depth
        read = await self._read_context(leaf)
        counter = await self._counter_at(leaf)
        planned = branches.plan_branch([item for item in read.items if item.entry.depth > above], making.settings)
        if planned is None:
            return None
        if not planned.leaving:
            return branches.told_by_summaries(planned), ()
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
        made = await modes.make_text(making.mode, material, asker)
        if not made.text.strip():
            raise SummaryFailed(making.mode.name, "it made no text")
        return made, () if asker is None else tuple(asker.calls)


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
