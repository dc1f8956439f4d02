"""The part of a context that is sent to an agent, and its size in tokens.

    settings = ContextSettings(window=ContextWindow(max_tail_messages=40), microcompact=Microcompacting())
    sent = await session.request("anthropic", settings=settings, agent="Coder")

A `Step` of your own stands beside those that settings ask for. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.context import tokens as tokens
    from flue_py.context.artifacts import extract_text
    from flue_py.context.document_texts import ExtractedText
    from flue_py.context.pipeline import ContextChange, ContextEvent, ContextReport, Item, Step, StepReport, View, added
    from flue_py.context.request import Attempt, Attempts, ContextRequest, PrefixBreak, ask_fitting
    from flue_py.context.settings import (
        AgentContext,
        CacheBreakpoints,
        ClearToolUses,
        ContextSettings,
        ContextSource,
        ContextSpec,
        ContextWindow,
        Fitting,
        InTurn,
        Microcompacting,
        ProviderEditing,
        Rewriting,
        Superseding,
        ToolResultBudget,
        Trimming,
        context_schema,
        context_settings,
    )
    from flue_py.context.sources import (
        Asked,
        GatheredContext,
        Section,
        SkippedSource,
        SourceReader,
        brief_file,
        changes_file,
        file_source,
        session_context_file,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.context.artifacts": "extract_text",
            "flue_py.context.document_texts": "ExtractedText",
            "flue_py.context.pipeline": "Item added ContextChange ContextEvent ContextReport StepReport Step View",
            "flue_py.context.request": "Attempt Attempts ask_fitting PrefixBreak ContextRequest",
            "flue_py.context.settings": (
                "AgentContext CacheBreakpoints ClearToolUses ContextSettings ContextSource ContextSpec ContextWindow "
                "Fitting InTurn Microcompacting ProviderEditing Rewriting Superseding ToolResultBudget Trimming "
                "context_schema context_settings"
            ),
            "flue_py.context.sources": (
                "brief_file changes_file file_source session_context_file Asked GatheredContext Section SkippedSource "
                "SourceReader"
            ),
        },
    )
__all__ = [
    "AgentContext", "Asked", "Attempt", "Attempts", "CacheBreakpoints", "ClearToolUses", "ContextChange",
    "ContextEvent", "ContextReport", "ContextRequest", "ContextSettings", "ContextSource", "ContextSpec",
    "ContextWindow", "ExtractedText", "Fitting", "GatheredContext", "InTurn", "Item", "Microcompacting", "PrefixBreak",
    "ProviderEditing", "Rewriting", "Section", "SkippedSource", "SourceReader", "Step", "StepReport", "Superseding",
    "ToolResultBudget", "Trimming", "View", "added", "ask_fitting", "brief_file", "changes_file", "context_schema",
    "context_settings", "extract_text", "file_source", "session_context_file",
]  # fmt: skip
