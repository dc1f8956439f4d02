"""`Store` and `Session`: a file for each group of methods. The values that few programs name are offered here.

They are arguments and results of these methods. A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.context.artifacts import ArtifactExcerpt
    from flue_py.core.chain import Head, Witness
    from flue_py.core.context import (
        CommonPrefix,
        DiffSide,
        EntryCost,
        LeafDiff,
        PendingCall,
        PendingTurn,
        ReportedSize,
        ToolUse,
    )
    from flue_py.core.entries import Artifact, Exclusion, PathSettings, Source
    from flue_py.core.erasure import Look, Receipt, Redaction, Trace
    from flue_py.core.files import FileChange, FileCheckpoint, FileContent, FileState, RestoredFiles
    from flue_py.core.ledger import HeldAmount, Recorded, RepricedCalls, Repricing, UsageReport, UsageRow
    from flue_py.core.operations import SessionEvent
    from flue_py.core.sessions import (
        ConvertedMessage,
        DocumentInfo,
        DocumentName,
        DocumentsFound,
        KeyChange,
        LegalHold,
        Problem,
        StoreInfo,
        TaskLink,
        VerifyReport,
    )
    from flue_py.core.trees import BackupReport
    from flue_py.core.usage import CallDifference
    from flue_py.prices import EditPlan
    from flue_py.search import Searched, SessionHits, Snippet
    from flue_py.sessions.compact import Compact, Exclude, Fork, Resume, Rewind
    from flue_py.sessions.marks import MarkEffect
    from flue_py.sessions.session import BranchSummary, Leaving
    from flue_py.sessions.witnesses import Every, FileWitness, HttpWitness, StoreWitness
__all__ = [
    "Artifact", "ArtifactExcerpt", "BackupReport", "BranchSummary", "CallDifference", "CommonPrefix", "Compact",
    "ConvertedMessage", "DiffSide", "DocumentInfo", "DocumentName", "DocumentsFound", "EditPlan", "EntryCost", "Every",
    "Exclude", "Exclusion", "FileChange", "FileCheckpoint", "FileContent", "FileState", "FileWitness", "Fork", "Head",
    "HeldAmount", "HttpWitness", "KeyChange", "LeafDiff", "Leaving", "LegalHold", "Look", "MarkEffect", "PathSettings",
    "PendingCall", "PendingTurn", "Problem", "Receipt", "Recorded", "Redaction", "ReportedSize", "RepricedCalls",
    "Repricing", "RestoredFiles", "Resume", "Rewind", "Searched", "SessionEvent", "SessionHits", "Snippet", "Source",
    "StoreInfo", "StoreWitness", "TaskLink", "ToolUse", "Trace", "UsageReport", "UsageRow", "VerifyReport", "Witness",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "flue_py.context.artifacts": "ArtifactExcerpt",
            "flue_py.core.chain": "Head Witness",
            "flue_py.core.context": (
                "CommonPrefix DiffSide EntryCost LeafDiff PendingCall PendingTurn ReportedSize ToolUse"
            ),
            "flue_py.core.entries": "Artifact Exclusion PathSettings Source",
            "flue_py.core.erasure": "Look Receipt Redaction Trace",
            "flue_py.core.files": "FileChange FileCheckpoint FileContent FileState RestoredFiles",
            "flue_py.core.ledger": "HeldAmount Recorded RepricedCalls Repricing UsageReport UsageRow",
            "flue_py.core.operations": "SessionEvent",
            "flue_py.core.sessions": (
                "ConvertedMessage DocumentInfo DocumentName DocumentsFound KeyChange LegalHold Problem StoreInfo "
                "TaskLink VerifyReport"
            ),
            "flue_py.core.trees": "BackupReport",
            "flue_py.core.usage": "CallDifference",
            "flue_py.prices": "EditPlan",
            "flue_py.search": "Searched SessionHits Snippet",
            "flue_py.sessions.compact": "Compact Exclude Fork Resume Rewind",
            "flue_py.sessions.marks": "MarkEffect",
            "flue_py.sessions.session": "BranchSummary Leaving",
            "flue_py.sessions.witnesses": "Every FileWitness HttpWitness StoreWitness",
        },
    )
