"""What to summarize of a branch that is left, by the modes of compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flue_py.compaction.joining import Told, joined
from flue_py.compaction.modes import Made
from flue_py.compaction.plan import CompactionPlan, SessionCompactionPlan
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionSettings
from flue_py.compaction.reading import Messages, PlannedContent
from flue_py.compaction.serialize import listed_files
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import ContextEntry

PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
MERGED_PREAMBLE = "This was done on another branch, or in a session of its own.\nSummary of that work:\n\n"
MOST_RESERVED = 2_560
"""What bounds the text: a summary takes four fifths of the reserve at most, so these are 2,048 tokens."""


def plan_branch(items: Sequence[ContextEntry], settings: CompactionSettings) -> SessionCompactionPlan | None:
    """Return the plan for the items of a context that only the branch has, all of which leave; None for none.

    Summaries among them, of compactions and of ranges on the branch, are taken over. O(items).
    """
    summaries = [at for at, item in enumerate(items) if item.kind == COMPACTION]
    gone = [at for at, item in enumerate(items) if item.kind != COMPACTION]
    if not items:
        return None
    told = joined([Told.of(items[at].entry) for at in summaries], is_first=summaries[:1] == [0])
    plan = CompactionPlan(
        first_kept_index=len(items),
        is_split_turn=False,
        content=PlannedContent(
            Messages(items), gone, (), listed_files(None if told is None else told.details), DEFAULT_POLICY, 0
        ),
        previous_summary=None if told is None else told.summary,
        settings=replace(settings, reserve_tokens=min(settings.reserve_tokens, MOST_RESERVED)),
        policy=DEFAULT_POLICY,
    )
    return SessionCompactionPlan(plan, "", tuple(items[at] for at in gone), (), told, tuple(summaries))


def told_by_summaries(planned: SessionCompactionPlan) -> Made:
    """Return what the summaries of a branch say that has nothing else."""
    told = planned.previous or Told("", None)
    details = dict(told.details or {})
    return Made(told.summary, str(details.get("mode", "")), details)
