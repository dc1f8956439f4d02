"""flue_py: a tree-structured session engine for agent runtimes.

    async with flue_py.open("sessions.db") as store:
        session = await store.open_session("triage", mode="get_or_create")
        await session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = await session.build_context()

The blocking twin is `flue_py.sync`. Names are imported when they are first used, so that importing the package
costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flue_py.errors import (
    AmbiguousId,
    BudgetExceeded,
    BudgetNotFound,
    CallConflict,
    CorruptStore,
    EntryNotFound,
    FixTheCall,
    FixTheSetup,
    FixTheStore,
    FlueError,
    FormatTooNew,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEntry,
    InvalidPrices,
    LeafConflict,
    MissingExtra,
    NotAStore,
    OutcomeUnknown,
    ReservationNotFound,
    ReservationSettled,
    RetryOrRebase,
    SessionExists,
    SessionNotFound,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    StoreWarning,
    SummaryFailed,
    TaskDepthExceeded,
    UnreadableFile,
    WrongEventLoop,
    WrongProcess,
)

if TYPE_CHECKING:
    from flue_py import sync
    from flue_py.core.budgets import Budget, HeldAmount, Reservation
    from flue_py.core.calls import CallDifference
    from flue_py.core.costs import EntryCost
    from flue_py.core.diffing import DiffSide, LeafDiff, ToolUse
    from flue_py.core.entries import Entry, NewEntry, Source
    from flue_py.core.exclusions import Exclusion
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.core.ledger import Recorded, UsageReport, UsageRow
    from flue_py.core.limits import Limits
    from flue_py.core.log import Edit, LogLine
    from flue_py.core.merging import MergedRange, Provenance, merged_range_of, provenance_of
    from flue_py.core.messages import Message
    from flue_py.core.projection import ContextEntry
    from flue_py.core.salvaging import BackupReport, Loss, SalvageReport
    from flue_py.core.sessions import (
        STORED,
        Appended,
        Change,
        ConvertedMessage,
        Deletion,
        Moved,
        NewSession,
        Problem,
        SessionInfo,
        SessionPage,
        StoreInfo,
        TaskLink,
        VerifyReport,
    )
    from flue_py.core.usage import Cost, Usage, UsageWindow
    from flue_py.formats.kit.exported import Exported
    from flue_py.prices.book import PriceBook
    from flue_py.sessions.budgeting import BudgetedCall
    from flue_py.sessions.marking import MarkEffect
    from flue_py.sessions.opening import open
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store
    from flue_py.transfer.bundle_file import BundleCounts
    from flue_py.transfer.bundling import BundleReport, UnbundleReport, read_bundle, write_bundle
    from flue_py.transfer.copying import BudgetLeft, CopyProgress, CopyRefusal, CopyReport, copy_store
    from flue_py.transfer.exporting import export_session
    from flue_py.transfer.importing.reports import ImportReport, SessionImport
    from flue_py.transfer.importing.run import import_file
    from flue_py.transfer.salvaging import salvage
    from flue_py.transfer.transcripts import TranscriptReport, transcript, write_transcript
    from flue_py.wire.leftovers import ExportNote

    __version__: str
else:
    _HOMES = {
        "flue_py.core.diffing": ("DiffSide", "LeafDiff", "ToolUse"),
        "flue_py.core.budgets": ("Budget", "HeldAmount", "Reservation"),
        "flue_py.core.calls": ("CallDifference",),
        "flue_py.core.costs": ("EntryCost",),
        "flue_py.core.ledger": ("Recorded", "UsageReport", "UsageRow"),
        "flue_py.core.entries": ("Entry", "NewEntry", "Source"),
        "flue_py.core.exclusions": ("Exclusion",),
        "flue_py.core.jsontext": ("JsonObject", "JsonValue"),
        "flue_py.core.log": ("Edit", "LogLine"),
        "flue_py.core.messages": ("Message",),
        "flue_py.core.projection": ("ContextEntry",),
        "flue_py.core.merging": ("MergedRange", "Provenance", "merged_range_of", "provenance_of"),
        "flue_py.core.limits": ("Limits",),
        "flue_py.core.salvaging": ("BackupReport", "Loss", "SalvageReport"),
        "flue_py.core.sessions": (
            "STORED",
            "Appended",
            "ConvertedMessage",
            "Change",
            "Deletion",
            "Moved",
            "NewSession",
            "Problem",
            "SessionInfo",
            "SessionPage",
            "StoreInfo",
            "TaskLink",
            "VerifyReport",
        ),
        "flue_py.core.usage": ("Cost", "Usage", "UsageWindow"),
        "flue_py.transfer.bundle_file": ("BundleCounts",),
        "flue_py.transfer.bundling": ("BundleReport", "UnbundleReport", "read_bundle", "write_bundle"),
        "flue_py.sessions.budgeting": ("BudgetedCall",),
        "flue_py.prices.book": ("PriceBook",),
        "flue_py.transfer.copying": ("BudgetLeft", "CopyProgress", "CopyRefusal", "CopyReport", "copy_store"),
        "flue_py.formats.kit.exported": ("Exported",),
        "flue_py.wire.leftovers": ("ExportNote",),
        "flue_py.transfer.exporting": ("export_session",),
        "flue_py.transfer.importing.reports": ("ImportReport", "SessionImport"),
        "flue_py.transfer.importing.run": ("import_file",),
        "flue_py.sessions.marking": ("MarkEffect",),
        "flue_py.sessions.opening": ("open",),
        "flue_py.transfer.salvaging": ("salvage",),
        "flue_py.sessions.session": ("Session",),
        "flue_py.sessions.store": ("Store",),
        "flue_py.transfer.transcripts": ("TranscriptReport", "transcript", "write_transcript"),
    }
    _HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name):
        if name == "sync":
            return import_module("flue_py.sync")
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - slow to import, and seldom asked for

            value = version("flue-py")
        elif name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        else:
            raise AttributeError(f"module 'flue_py' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "STORED",
    "AmbiguousId",
    "Appended",
    "BackupReport",
    "Budget",
    "BudgetExceeded",
    "BudgetLeft",
    "BudgetNotFound",
    "BudgetedCall",
    "BundleCounts",
    "BundleReport",
    "CallConflict",
    "CallDifference",
    "Change",
    "ContextEntry",
    "ConvertedMessage",
    "CopyProgress",
    "CopyRefusal",
    "CopyReport",
    "CorruptStore",
    "Cost",
    "Deletion",
    "DiffSide",
    "Edit",
    "Entry",
    "EntryCost",
    "EntryNotFound",
    "Exclusion",
    "ExportNote",
    "Exported",
    "FixTheCall",
    "FixTheSetup",
    "FixTheStore",
    "FlueError",
    "FormatTooNew",
    "HeldAmount",
    "IdempotencyConflict",
    "ImportReport",
    "InvalidArgument",
    "InvalidEntry",
    "InvalidPrices",
    "JsonObject",
    "JsonValue",
    "LeafConflict",
    "LeafDiff",
    "Limits",
    "LogLine",
    "Loss",
    "MarkEffect",
    "MergedRange",
    "Message",
    "MissingExtra",
    "Moved",
    "NewEntry",
    "NewSession",
    "NotAStore",
    "OutcomeUnknown",
    "PriceBook",
    "Problem",
    "Provenance",
    "Recorded",
    "Reservation",
    "ReservationNotFound",
    "ReservationSettled",
    "RetryOrRebase",
    "SalvageReport",
    "Session",
    "SessionExists",
    "SessionImport",
    "SessionInfo",
    "SessionNotFound",
    "SessionPage",
    "Source",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreInfo",
    "StoreUnavailable",
    "StoreWarning",
    "SummaryFailed",
    "TaskDepthExceeded",
    "TaskLink",
    "ToolUse",
    "TranscriptReport",
    "UnbundleReport",
    "UnreadableFile",
    "Usage",
    "UsageReport",
    "UsageRow",
    "UsageWindow",
    "VerifyReport",
    "WrongEventLoop",
    "WrongProcess",
    "__version__",
    "copy_store",
    "export_session",
    "import_file",
    "merged_range_of",
    "open",
    "provenance_of",
    "read_bundle",
    "salvage",
    "sync",
    "transcript",
    "write_bundle",
    "write_transcript",
]
