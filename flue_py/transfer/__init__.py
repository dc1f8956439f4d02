"""What comes into a store and goes out of it: files of other programs, bundles, copies, transcripts, rescues.

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.core.salvaging import Loss, SalvageReport
    from flue_py.formats.kit.exported import Exported
    from flue_py.transfer.bundles.layout import BundleCounts
    from flue_py.transfer.bundling import BundleReport, UnbundleReport, read_bundle, write_bundle
    from flue_py.transfer.copying import BudgetLeft, CopyProgress, CopyRefusal, CopyReport, DocumentLeft, copy_store
    from flue_py.transfer.exporting import export_session
    from flue_py.transfer.filing import FileRefusal, FilesReport, add_files
    from flue_py.transfer.importing.reports import ImportReport, SessionImport
    from flue_py.transfer.importing.run import import_file
    from flue_py.transfer.salvaging import salvage
    from flue_py.transfer.transcripts import TranscriptReport, transcript, write_transcript
    from flue_py.wire.leftovers import ExportNote

__all__ = [
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
]
__getattr__ = lazy_names(
    __name__,
    {
        "flue_py.transfer.importing.run": ("import_file",),
        "flue_py.transfer.importing.reports": ("ImportReport", "SessionImport"),
        "flue_py.transfer.exporting": ("export_session",),
        "flue_py.formats.kit.exported": ("Exported",),
        "flue_py.wire.leftovers": ("ExportNote",),
        "flue_py.transfer.transcripts": ("TranscriptReport", "transcript", "write_transcript"),
        "flue_py.transfer.bundling": ("BundleReport", "UnbundleReport", "read_bundle", "write_bundle"),
        "flue_py.transfer.bundles.layout": ("BundleCounts",),
        "flue_py.transfer.copying": (
            "BudgetLeft",
            "CopyProgress",
            "CopyRefusal",
            "CopyReport",
            "DocumentLeft",
            "copy_store",
        ),
        "flue_py.transfer.filing": ("FileRefusal", "FilesReport", "add_files"),
        "flue_py.transfer.salvaging": ("salvage",),
        "flue_py.core.salvaging": ("Loss", "SalvageReport"),
    },
)
