"""Compaction: when and where to cut a context, and the summary that stands for the part that was cut off.

Everything here is a function of its arguments: no I/O, no clock, no randomness. The model call comes in as an
argument of `summarize`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.compaction.material import (
    CompactionSummary,
    Complete,
    SummaryCall,
    SummaryKind,
    SummaryReply,
    SummaryRequest,
    finish_summary,
    summarize,
    summary_requests,
)
from flue_py.compaction.plan import (
    CompactionPlan,
    ContextEstimate,
    ContextItem,
    LatestCompaction,
    NoCompaction,
    NoCompactionReason,
    PreviousCompaction,
    RangePlan,
    SessionCompactionPlan,
    estimate_context_tokens,
    estimate_tokens,
    plan_session_compaction,
    prepare_compaction,
    should_compact,
)
from flue_py.compaction.settings import (
    CompactionSettings,
    ContextBudget,
    ContextSignal,
    FileLists,
    appended_file_lists,
    collect_file_lists,
    context_signal,
    file_lists,
    listed_files,
    serialize_conversation,
)
from flue_py.core.context import calculate_context_tokens
from flue_py.errors import SummaryFailed
from flue_py.lazy import lazy_modules

__all__ = [
    "CompactionPlan", "CompactionSettings", "CompactionSummary", "Complete", "ContextBudget", "ContextEstimate",
    "ContextItem", "ContextSignal", "FileLists", "LatestCompaction", "NoCompaction", "NoCompactionReason",
    "PreviousCompaction", "RangePlan", "SessionCompactionPlan", "SummaryCall", "SummaryFailed", "SummaryKind",
    "SummaryReply", "SummaryRequest", "appended_file_lists", "calculate_context_tokens", "collect_file_lists",
    "context_signal", "estimate_context_tokens", "estimate_tokens", "file_lists", "finish_summary", "listed_files",
    "plan_session_compaction", "prepare_compaction", "serialize_conversation", "should_compact", "summarize",
    "summary_requests",
]  # fmt: skip


if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
