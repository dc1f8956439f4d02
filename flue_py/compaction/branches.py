"""What to summarize of a branch that is left, by the modes of compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flue_py.compaction.joining import Told, joined
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Made
from flue_py.compaction.modes.dressing import SPANS
from flue_py.compaction.plan import CompactionPlan, SessionCompactionPlan
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionSettings
from flue_py.compaction.reading import Messages, PlannedContent
from flue_py.compaction.serialize import listed_files
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import ContextEntry

PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
MERGED_PREAMBLE = "This was done on another branch, or in a session of its own.\nSummary of that work:\n\n"
MOST_TOKENS = 2_048
"""What the text takes at most, with the words before it; half of it is for what a model answers."""
_MOST_RESERVED = 2_560
"""A summary takes four fifths of the reserve at most, so these are as many."""
_WORDS_PART = 4
"""One so many-th is the user's, whose words come beside what was done."""
_SAYS_MORE = "\n[… {} more characters]"


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
            Messages(items), gone, (), listed_files(None if told is None else told.details), DEFAULT_POLICY
        ),
        previous_summary=None if told is None else told.summary,
        settings=replace(settings, reserve_tokens=min(settings.reserve_tokens, _MOST_RESERVED)),
        policy=DEFAULT_POLICY,
    )
    return SessionCompactionPlan(plan, "", tuple(items[at] for at in gone), (), told, tuple(summaries))


def told_by_summaries(planned: SessionCompactionPlan) -> Made:
    """Return what the summaries of a branch say that has nothing else."""
    told = planned.previous or Told("", None)
    details = dict(told.details or {})
    return Made(told.summary, str(details.get("mode", "")), details)


def within_budget(material: Material, preamble: str) -> Material:
    """Return it with the room that the text of a branch has behind a preamble, in a window however large."""
    room = _room_behind(preamble, material)
    aside = room // _WORDS_PART
    return replace(material, room=room - aside, set_aside=aside, answer_room=MOST_TOKENS // 2)


def held_to_budget(made: Made, material: Material, preamble: str) -> Made:
    """Return what was made, its end left out where it takes too much behind a preamble all the same.

    So it is with a mode that keeps to no room, a model that keeps to no limit, and a branch that is nothing but a long
    summary. The details do not say then where in the text the mode's own part is.
    """
    room = _room_behind(preamble, material)
    if material.tokens_of(made.text) <= room:
        return made
    begun = material.begun(made.text, room - material.tokens_of(_SAYS_MORE.format(len(made.text))))
    details = {name: value for name, value in made.details.items() if name not in SPANS}
    note = f"the summary was longer than {MOST_TOKENS:,} tokens, and its end is left out"
    return Made(begun + _SAYS_MORE.format(len(made.text) - len(begun)), made.mode, details, (*made.notes, note))


def _room_behind(preamble: str, material: Material) -> int:
    return MOST_TOKENS - material.tokens_of(preamble)
