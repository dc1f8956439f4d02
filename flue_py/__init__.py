"""flue_py: a tree-structured session engine for agent runtimes.

    async with flue_py.open("sessions.db") as store:
        session = await store.open_session("triage", mode="get_or_create")
        await session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = await session.build_context()

The blocking twin is `flue_py.sync`. Names that are used less often stand in modules of their own:
`flue_py.transfer` (imports, exports, bundles, copies), `flue_py.prices`, `flue_py.providers`,
`flue_py.context` and `flue_py.errors`. Names are
imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.errors import *
from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py import context as context
    from flue_py import prices as prices
    from flue_py import providers as providers
    from flue_py import sync as sync
    from flue_py import transfer as transfer
    from flue_py.context.artifacts import ArtifactExcerpt, OffloadSettings
    from flue_py.core.context import *
    from flue_py.core.context import (
        CommonPrefix,
        ContextEntry,
        ContextSize,
        DiffSide,
        EntryCost,
        LeafDiff,
        PendingCall,
        PendingTurn,
        ReportedSize,
        ToolUse,
    )
    from flue_py.core.entries import Artifact, Entry, Exclusion, NewEntry, PathSettings, Source
    from flue_py.core.json import JsonObject, JsonValue
    from flue_py.core.ledger import (
        Budget,
        HeldAmount,
        Recorded,
        RepricedCalls,
        Repricing,
        Reservation,
        UsageReport,
        UsageRow,
    )
    from flue_py.core.messages import Message
    from flue_py.core.operations import SessionEvent
    from flue_py.core.sessions import (
        STORED,
        Appended,
        Change,
        ConvertedMessage,
        Deletion,
        Document,
        DocumentInfo,
        DocumentName,
        DocumentsFound,
        Edit,
        Limits,
        LogLine,
        Moved,
        Navigated,
        NewSession,
        Problem,
        ScopeDeletion,
        SessionInfo,
        SessionPage,
        StoreInfo,
        TaskLink,
        VerifyReport,
    )
    from flue_py.core.trees import BackupReport
    from flue_py.core.usage import CallDifference, Cost, Usage, UsageWindow
    from flue_py.prices import *
    from flue_py.prices import EditPlan
    from flue_py.search import SearchAnswer, Searched, SearchHit, SessionHits, Snippet
    from flue_py.sessions.batch import Atomic, Pending
    from flue_py.sessions.compact import BranchSummary, Compact, Exclude, Fork, Leaving, Resume, Rewind
    from flue_py.sessions.marks import MarkEffect
    from flue_py.sessions.money import BudgetedCall
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store, open
    from flue_py.transfer import *
__all__ = [
    "STORED",
    "AmbiguousId",
    "Appended",
    "Artifact",
    "ArtifactExcerpt",
    "Atomic",
    "BackupReport",
    "BranchSummary",
    "Budget",
    "BudgetExceeded",
    "BudgetedCall",
    "CallConflict",
    "CallDifference",
    "Change",
    "CommonPrefix",
    "Compact",
    "ContextEntry",
    "ContextSize",
    "ConvertedMessage",
    "CorruptStore",
    "Cost",
    "Deletion",
    "DiffSide",
    "Document",
    "DocumentInfo",
    "DocumentName",
    "DocumentsFound",
    "Edit",
    "EditPlan",
    "Entry",
    "EntryCost",
    "EntryNotFound",
    "Exclude",
    "Exclusion",
    "FixTheCall",
    "FixTheSetup",
    "FixTheStore",
    "FlueError",
    "Fork",
    "HeldAmount",
    "IdempotencyConflict",
    "InvalidArgument",
    "InvalidEntry",
    "JsonObject",
    "JsonValue",
    "LeafConflict",
    "LeafDiff",
    "Leaving",
    "Limits",
    "LogLine",
    "MarkEffect",
    "Message",
    "ModelError",
    "Moved",
    "Navigated",
    "NewEntry",
    "NewSession",
    "OffloadSettings",
    "OutcomeUnknown",
    "PathSettings",
    "Pending",
    "PendingCall",
    "PendingTurn",
    "Problem",
    "Recorded",
    "ReportedSize",
    "RepricedCalls",
    "Repricing",
    "Reservation",
    "Resume",
    "RetryOrRebase",
    "RevisionConflict",
    "Rewind",
    "ScopeDeletion",
    "SearchAnswer",
    "SearchHit",
    "Searched",
    "Session",
    "SessionEvent",
    "SessionExists",
    "SessionHits",
    "SessionInfo",
    "SessionNotFound",
    "SessionPage",
    "Snippet",
    "Source",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreInfo",
    "StoreUnavailable",
    "SummaryFailed",
    "TaskDepthExceeded",
    "TaskLink",
    "ToolUse",
    "Usage",
    "UsageReport",
    "UsageRow",
    "UsageWindow",
    "VerifyReport",
    "__version__",
    "open",
    "sync",
]


if TYPE_CHECKING:
    __version__: str
else:
    _named = lazy_names(
        __name__,
        {
            "flue_py.context.artifacts": ("ArtifactExcerpt", "OffloadSettings"),
            "flue_py.core.context": (
                "EntryCost",
                "ContextSize",
                "ReportedSize",
                "DiffSide",
                "LeafDiff",
                "ToolUse",
                "MergedRange",
                "Provenance",
                "merged_range_of",
                "provenance_of",
                "PendingCall",
                "PendingTurn",
                "CommonPrefix",
                "ContextEntry",
            ),
            "flue_py.core.entries": ("Artifact", "Entry", "NewEntry", "Source", "Exclusion", "PathSettings"),
            "flue_py.core.json": ("JsonObject", "JsonValue"),
            "flue_py.core.ledger": (
                "Budget",
                "HeldAmount",
                "Reservation",
                "Recorded",
                "RepricedCalls",
                "Repricing",
                "UsageReport",
                "UsageRow",
            ),
            "flue_py.core.messages": ("Message",),
            "flue_py.core.operations": ("SessionEvent",),
            "flue_py.core.sessions": (
                "Document",
                "DocumentInfo",
                "DocumentName",
                "DocumentsFound",
                "Limits",
                "Edit",
                "LogLine",
                "STORED",
                "Appended",
                "ConvertedMessage",
                "Change",
                "Deletion",
                "Moved",
                "Navigated",
                "NewSession",
                "Problem",
                "ScopeDeletion",
                "SessionInfo",
                "SessionPage",
                "StoreInfo",
                "TaskLink",
                "VerifyReport",
            ),
            "flue_py.core.trees": ("BackupReport",),
            "flue_py.core.usage": ("CallDifference", "Cost", "Usage", "UsageWindow"),
            "flue_py.prices": ("PriceBook", "EditPlan"),
            "flue_py.search": ("SearchAnswer", "SearchHit", "Searched", "SessionHits", "Snippet"),
            "flue_py.sessions.batch": ("Atomic", "Pending"),
            "flue_py.sessions.compact": ("Compact", "Exclude", "Fork", "Resume", "Rewind", "BranchSummary", "Leaving"),
            "flue_py.sessions.money": ("BudgetedCall",),
            "flue_py.sessions.session": ("Session",),
            "flue_py.sessions.store": ("open", "Store"),
            "flue_py.sessions.marks": ("MarkEffect",),
            "flue_py.transfer": (
                "BudgetLeft",
                "BundleCounts",
                "BundleReport",
                "CopyProgress",
                "CopyRefusal",
                "CopyReport",
                "DocumentLeft",
                "ExportNote",
                "Exported",
                "FileRefusal",
                "FilesReport",
                "ImportReport",
                "Loss",
                "SalvageReport",
                "SessionImport",
                "TranscriptReport",
                "UnbundleReport",
                "add_files",
                "copy_store",
                "export_session",
                "import_file",
                "read_bundle",
                "salvage",
                "transcript",
                "write_bundle",
                "write_transcript",
            ),
        },
    )

    def __getattr__(name):
        if name != "__version__":
            return _named(name)
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, and seldom asked for

        globals()[name] = version("flue-py")
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__all__})
