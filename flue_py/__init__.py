"""flue_py: a tree-structured session engine for agent runtimes.

    async with flue_py.open("sessions.db") as store:
        session = await store.open_session("triage", mode="get_or_create")
        await session.append_message({"role": "user", "content": "Why is the build red?"})
        messages = await session.build_context()

The blocking twin is `flue_py.sync`. Names that are used less often stand in modules of their own:
`flue_py.sessions` (further arguments and results), `flue_py.transfer` (imports, exports, bundles, copies),
`flue_py.prices`, `flue_py.providers`, `flue_py.context` and `flue_py.errors`. A name is imported when it is
first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py import sessions, transfer
from flue_py.errors import *
from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py import context as context
    from flue_py import prices as prices
    from flue_py import providers as providers
    from flue_py import sync as sync
    from flue_py.context.artifacts import OffloadSettings
    from flue_py.core.context import *
    from flue_py.core.context import ContextEntry, ContextSize
    from flue_py.core.entries import Entry, NewEntry
    from flue_py.core.json import JsonObject, JsonValue
    from flue_py.core.ledger import Budget, Reservation
    from flue_py.core.messages import Message
    from flue_py.core.sessions import (
        STORED,
        Appended,
        Change,
        Deletion,
        Document,
        Edit,
        Limits,
        LogLine,
        Moved,
        Navigated,
        NewSession,
        SessionInfo,
        SessionPage,
    )
    from flue_py.core.usage import Cost, Usage, UsageWindow
    from flue_py.prices import *
    from flue_py.search import SearchAnswer, SearchHit
    from flue_py.sessions import *
    from flue_py.sessions.batch import Atomic, Pending
    from flue_py.sessions.money import BudgetedCall
    from flue_py.sessions.session import Session
    from flue_py.sessions.store import Store, open
    from flue_py.transfer import *
__all__ = [
    "STORED", "AmbiguousId", "Appended", "Atomic", "Budget", "BudgetExceeded", "BudgetedCall", "CallConflict", "Change",
    "ContextEntry", "ContextSize", "CorruptStore", "Cost", "Deletion", "Document", "Edit", "Entry", "EntryNotFound",
    "FixTheCall", "FixTheSetup", "FixTheStore", "FlueError", "IdempotencyConflict", "InvalidArgument", "InvalidEntry",
    "JsonObject", "JsonValue", "LeafConflict", "Limits", "LogLine", "Message", "ModelError", "Moved", "Navigated",
    "NewEntry", "NewSession", "OffloadSettings", "OutcomeUnknown", "Pending", "Reservation", "RetryOrRebase",
    "RevisionConflict", "SearchAnswer", "SearchHit", "Session", "SessionExists", "SessionInfo", "SessionNotFound",
    "SessionPage", "Store", "StoreBusy", "StoreClosed", "StoreUnavailable", "SummaryFailed", "TaskDepthExceeded",
    "Usage", "UsageWindow", "__version__", "open", "sync",
]  # fmt: skip


if TYPE_CHECKING:
    __version__: str
else:
    _named = lazy_names(
        __name__,
        {
            "flue_py.context.artifacts": "OffloadSettings",
            "flue_py.core.context": "ContextEntry ContextSize MergedRange Provenance merged_range_of provenance_of",
            "flue_py.core.entries": "Entry NewEntry",
            "flue_py.core.json": "JsonObject JsonValue",
            "flue_py.core.ledger": "Budget Reservation",
            "flue_py.core.messages": "Message",
            "flue_py.core.sessions": (
                "STORED Appended Change Deletion Document Edit Limits LogLine Moved Navigated NewSession SessionInfo "
                "SessionPage"
            ),
            "flue_py.core.usage": "Cost Usage UsageWindow",
            "flue_py.prices": "PriceBook",
            "flue_py.search": "SearchAnswer SearchHit",
            "flue_py.sessions.batch": "Atomic Pending",
            "flue_py.sessions.money": "BudgetedCall",
            "flue_py.sessions.session": "Session",
            "flue_py.sessions.store": "Store open",
            # Offered here, too; each has a home of its own.
            "flue_py.sessions": " ".join(sessions.__all__),
            "flue_py.transfer": " ".join(transfer.__all__),
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
