"""Import, export, bundles, copies, transcripts and rescues of sessions.

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.core.trees import Loss, SalvageReport
    from flue_py.formats.kit import Exported
    from flue_py.providers.base import ExportNote
    from flue_py.transfer.copy import (
        BudgetLeft,
        BundleCounts,
        BundleReport,
        CopyProgress,
        CopyRefusal,
        CopyReport,
        DocumentLeft,
        UnbundleReport,
        copy_store,
        read_bundle,
        salvage,
        write_bundle,
    )
    from flue_py.transfer.export import (
        ContinuationReport,
        FileRefusal,
        FilesReport,
        PagesReport,
        TranscriptReport,
        add_files,
        export_session,
        transcript,
        write_continuation,
        write_pages,
        write_transcript,
    )
    from flue_py.transfer.imports import ImportReport, SessionImport, import_file
__all__ = [
    "BudgetLeft", "BundleCounts", "BundleReport", "ContinuationReport", "CopyProgress", "CopyRefusal", "CopyReport",
    "DocumentLeft", "ExportNote", "Exported", "FileRefusal", "FilesReport", "ImportReport", "Loss", "PagesReport",
    "SalvageReport", "SessionImport", "TranscriptReport", "UnbundleReport", "add_files", "copy_store", "export_session",
    "import_file", "read_bundle", "salvage", "transcript", "write_bundle", "write_continuation", "write_pages",
    "write_transcript",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "flue_py.core.trees": "Loss SalvageReport",
        "flue_py.formats.kit": "Exported",
        "flue_py.providers.base": "ExportNote",
        "flue_py.transfer.copy": (
            "BudgetLeft BundleCounts BundleReport CopyProgress CopyRefusal CopyReport DocumentLeft UnbundleReport "
            "copy_store read_bundle salvage write_bundle"
        ),
        "flue_py.transfer.export": (
            "export_session TranscriptReport transcript write_transcript ContinuationReport write_continuation "
            "PagesReport write_pages FileRefusal FilesReport add_files"
        ),
        "flue_py.transfer.imports": "import_file ImportReport SessionImport",
    },
)
