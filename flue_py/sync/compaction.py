"""The blocking twin of `flue_py.compaction.summarize`. All else in `flue_py.compaction` waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flue_py.compaction.plan import CompactionPlan
from flue_py.compaction.summarize import CompactionSummary, SummaryReply, SummaryRequest
from flue_py.compaction.summarize import summarize as awaited
from flue_py.store.waiting import run_here

Complete: TypeAlias = Callable[[SummaryRequest], SummaryReply]


def summarize(plan: CompactionPlan, complete: Complete, *, focus: str | None = None) -> CompactionSummary:
    """Return the summary for a plan, made by one or two calls to ``complete``, a plain function.

    Otherwise as `flue_py.compaction.summarize`. Raises `SummaryFailed`.
    """

    async def asked(request: SummaryRequest) -> SummaryReply:
        return complete(request)

    return run_here(awaited(plan, asked, focus=focus))
