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
    RetryOrRebase,
    SessionExists,
    SessionNotFound,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    StoreWarning,
    TaskDepthExceeded,
    UnreadableFile,
    WrongEventLoop,
    WrongProcess,
)

if TYPE_CHECKING:
    from flue_py import sync
    from flue_py.core.calls import CallDifference
    from flue_py.core.entries import Entry, NewEntry, Source
    from flue_py.core.jsontext import JsonObject, JsonValue
    from flue_py.core.ledger import Recorded, UsageReport, UsageRow
    from flue_py.core.limits import Limits
    from flue_py.core.messages import Message
    from flue_py.core.projection import ContextEntry
    from flue_py.core.salvaging import BackupReport, Loss, SalvageReport
    from flue_py.core.sessions import (
        STORED,
        Appended,
        Change,
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
    from flue_py.prices.book import PriceBook
    from flue_py.sessions.copying import CopyProgress, CopyRefusal, CopyReport, copy_store
    from flue_py.sessions.opening import open
    from flue_py.sessions.salvaging import salvage
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store

    __version__: str
else:
    _HOMES = {
        "flue_py.core.calls": ("CallDifference",),
        "flue_py.core.ledger": ("Recorded", "UsageReport", "UsageRow"),
        "flue_py.core.entries": ("Entry", "NewEntry", "Source"),
        "flue_py.core.jsontext": ("JsonObject", "JsonValue"),
        "flue_py.core.messages": ("Message",),
        "flue_py.core.projection": ("ContextEntry",),
        "flue_py.core.limits": ("Limits",),
        "flue_py.core.salvaging": ("BackupReport", "Loss", "SalvageReport"),
        "flue_py.core.sessions": (
            "STORED",
            "Appended",
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
        "flue_py.prices.book": ("PriceBook",),
        "flue_py.sessions.copying": ("CopyProgress", "CopyRefusal", "CopyReport", "copy_store"),
        "flue_py.sessions.opening": ("open",),
        "flue_py.sessions.salvaging": ("salvage",),
        "flue_py.sessions.session": ("Session",),
        "flue_py.sessions.store": ("Store",),
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
    "CallConflict",
    "CallDifference",
    "Change",
    "ContextEntry",
    "CopyProgress",
    "CopyRefusal",
    "CopyReport",
    "CorruptStore",
    "Cost",
    "Deletion",
    "Entry",
    "EntryNotFound",
    "FixTheCall",
    "FixTheSetup",
    "FixTheStore",
    "FlueError",
    "FormatTooNew",
    "IdempotencyConflict",
    "InvalidArgument",
    "InvalidEntry",
    "InvalidPrices",
    "JsonObject",
    "JsonValue",
    "LeafConflict",
    "Limits",
    "Loss",
    "Message",
    "MissingExtra",
    "Moved",
    "NewEntry",
    "NewSession",
    "NotAStore",
    "OutcomeUnknown",
    "PriceBook",
    "Problem",
    "Recorded",
    "RetryOrRebase",
    "SalvageReport",
    "Session",
    "SessionExists",
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
    "TaskDepthExceeded",
    "TaskLink",
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
    "open",
    "salvage",
    "sync",
]
