"""flue_py: a tree-structured session engine for agent runtimes.

    async with flue_py.open("sessions.db") as store:
        session = await store.open_session("triage", mode="get_or_create")
        await session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = await session.build_context()

The blocking twin is `flue_py.sync`. Names that are used less often stand in modules of their own:
`flue_py.transfer` (imports, exports, bundles, copies), `flue_py.prices`, `flue_py.wire`,
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
    from flue_py import sync
    from flue_py import transfer as transfer
    from flue_py import wire as wire
    from flue_py.context.excerpts import ArtifactExcerpt
    from flue_py.context.offloading import OffloadSettings
    from flue_py.core.artifacts import Artifact
    from flue_py.core.budgets import Budget, HeldAmount, Reservation
    from flue_py.core.calls import CallDifference
    from flue_py.core.costs import EntryCost
    from flue_py.core.counting import ContextSize, ReportedSize
    from flue_py.core.diffing import DiffSide, LeafDiff, ToolUse
    from flue_py.core.documents import Document, DocumentInfo, DocumentName, DocumentsFound
    from flue_py.core.entries import Entry, NewEntry, Source
    from flue_py.core.events import SessionEvent
    from flue_py.core.exclusions import Exclusion
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.core.ledger import Recorded, RepricedCalls, Repricing, UsageReport, UsageRow
    from flue_py.core.limits import Limits
    from flue_py.core.log import Edit, LogLine
    from flue_py.core.merging import *
    from flue_py.core.messages import Message
    from flue_py.core.pending import PendingCall, PendingTurn
    from flue_py.core.prefixes import CommonPrefix
    from flue_py.core.projection import ContextEntry
    from flue_py.core.salvaging import BackupReport
    from flue_py.core.sessions import (
        STORED,
        Appended,
        Change,
        ConvertedMessage,
        Deletion,
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
    from flue_py.core.settings import PathSettings
    from flue_py.core.usage import Cost, Usage, UsageWindow
    from flue_py.prices import *
    from flue_py.prices.weighing import EditPlan
    from flue_py.search.values import SearchAnswer, Searched, SearchHit, SessionHits, Snippet
    from flue_py.sessions.atomic import Atomic
    from flue_py.sessions.budgeting import BudgetedCall
    from flue_py.sessions.collecting import Pending
    from flue_py.sessions.edits import Compact, Exclude, Fork, Resume, Rewind
    from flue_py.sessions.marking import MarkEffect
    from flue_py.sessions.navigating import BranchSummary, Leaving
    from flue_py.sessions.opening import open
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store
    from flue_py.transfer import *

    __version__: str
else:
    _named = lazy_names(
        __name__,
        {
            "flue_py.context.excerpts": ("ArtifactExcerpt",),
            "flue_py.context.offloading": ("OffloadSettings",),
            "flue_py.core.artifacts": ("Artifact",),
            "flue_py.core.budgets": ("Budget", "HeldAmount", "Reservation"),
            "flue_py.core.calls": ("CallDifference",),
            "flue_py.core.costs": ("EntryCost",),
            "flue_py.core.counting": ("ContextSize", "ReportedSize"),
            "flue_py.core.diffing": ("DiffSide", "LeafDiff", "ToolUse"),
            "flue_py.core.documents": ("Document", "DocumentInfo", "DocumentName", "DocumentsFound"),
            "flue_py.core.entries": ("Entry", "NewEntry", "Source"),
            "flue_py.core.events": ("SessionEvent",),
            "flue_py.core.exclusions": ("Exclusion",),
            "flue_py.core.jsontext": ("JsonObject", "JsonValue"),
            "flue_py.core.ledger": ("Recorded", "RepricedCalls", "Repricing", "UsageReport", "UsageRow"),
            "flue_py.core.limits": ("Limits",),
            "flue_py.core.log": ("Edit", "LogLine"),
            "flue_py.core.merging": ("MergedRange", "Provenance", "merged_range_of", "provenance_of"),
            "flue_py.core.messages": ("Message",),
            "flue_py.core.pending": ("PendingCall", "PendingTurn"),
            "flue_py.core.prefixes": ("CommonPrefix",),
            "flue_py.core.projection": ("ContextEntry",),
            "flue_py.core.salvaging": ("BackupReport",),
            "flue_py.core.sessions": (
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
            "flue_py.core.settings": ("PathSettings",),
            "flue_py.core.usage": ("Cost", "Usage", "UsageWindow"),
            "flue_py.search.values": ("SearchAnswer", "SearchHit", "Searched", "SessionHits", "Snippet"),
            "flue_py.sessions.budgeting": ("BudgetedCall",),
            "flue_py.sessions.edits": ("Compact", "Exclude", "Fork", "Resume", "Rewind"),
            "flue_py.sessions.marking": ("MarkEffect",),
            "flue_py.sessions.navigating": ("BranchSummary", "Leaving"),
            "flue_py.sessions.opening": ("open",),
            "flue_py.sessions.atomic": ("Atomic",),
            "flue_py.sessions.collecting": ("Pending",),
            "flue_py.sessions.session": ("Session",),
            "flue_py.sessions.store": ("Store",),
            "flue_py.prices": ("PriceBook",),
            "flue_py.prices.weighing": ("EditPlan",),
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
