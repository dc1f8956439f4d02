"""The blocking twin of `flue_py.compaction.summarize`."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import TypeAlias

from flue_py.compaction import summarize as original
from flue_py.compaction.plan import CompactionPlan
from flue_py.compaction.summarize import CompactionSummary, SummaryReply, SummaryRequest
from flue_py.errors import InvalidArgument
from flue_py.store.waiting import run_here

Complete: TypeAlias = Callable[[SummaryRequest], SummaryReply]


def summarize(plan: CompactionPlan, complete: Complete, *, focus: str | None = None) -> CompactionSummary:
    if iscoroutinefunction(complete):
        raise InvalidArgument(
            "complete: should be a plain function; await flue_py.compaction.summarize with an async one"
        )

    async def completed(request: SummaryRequest) -> SummaryReply:
        return complete(request)

    return run_here(original(plan, completed, focus=focus))


update_wrapper(summarize, original)
