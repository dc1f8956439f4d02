"""The public names, and that importing them is cheap."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import flue_py
from flue_py import errors

RAISED = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
WARNINGS = {"StoreWarning"}
ERRORS = RAISED - WARNINGS
NAMES = {
    "STORED", "Appended", "Atomic", "Budget", "BudgetedCall", "Change", "ContextEntry", "ContextSize", "Cost",
    "Deletion", "Document", "Entry", "Edit", "JsonObject", "JsonValue", "Limits", "LogLine", "Message", "Moved",
    "Navigated", "NewEntry", "NewSession", "OffloadSettings", "Pending", "Reservation", "Session", "SearchAnswer",
    "SearchHit", "SessionInfo", "SessionPage", "Store", "Usage", "UsageWindow", "__version__", "open", "sync",
}  # fmt: skip
CAUGHT = {
    "AmbiguousId", "BudgetExceeded", "CallConflict", "CorruptStore", "EntryNotFound", "FixTheCall", "FixTheSetup",
    "FixTheStore", "FlueError", "IdempotencyConflict", "InvalidArgument", "InvalidEntry", "LeafConflict", "ModelError",
    "OutcomeUnknown", "RetryOrRebase", "RevisionConflict", "SessionExists", "SessionNotFound", "StoreBusy",
    "StoreClosed", "StoreUnavailable", "SummaryFailed", "TaskDepthExceeded",
}  # fmt: skip
"""The errors that programs catch; all are in `flue_py.errors`."""
ROOMS = {
    "flue_py.sessions": {
        "Artifact", "ArtifactExcerpt", "BackupReport", "BranchSummary", "CallDifference", "CommonPrefix", "Compact",
        "ConvertedMessage", "DiffSide", "DocumentInfo", "DocumentName", "DocumentsFound", "EditPlan", "EntryCost",
        "Every", "Exclude", "Exclusion", "FileChange", "FileCheckpoint", "FileContent", "FileState", "FileWitness",
        "Fork", "Head", "HeldAmount", "HttpWitness", "KeyChange", "LeafDiff", "Leaving", "LegalHold", "Look",
        "MarkEffect", "PathSettings", "PendingCall", "PendingTurn", "Problem", "Receipt", "Recorded", "Redaction",
        "ReportedSize", "RepricedCalls", "Repricing", "RestoredFiles", "Resume", "Rewind", "Searched", "SessionEvent",
        "SessionHits", "Snippet", "Source", "StoreInfo", "StoreWitness", "TaskLink", "ToolUse", "Trace", "UsageReport",
        "UsageRow", "VerifyReport", "Witness",
    },
    "flue_py.transfer": {
        "BundleCounts", "BundleReport", "BudgetLeft", "CopyProgress", "CopyRefusal", "CopyReport", "DocumentLeft",
        "ExportNote", "Exported", "FileRefusal", "FilesReport", "ImportReport", "Loss", "SalvageReport",
        "SessionImport", "TranscriptReport", "ContinuationReport", "PagesReport", "UnbundleReport", "add_files",
        "copy_store", "export_session", "import_file", "read_bundle", "salvage", "transcript", "write_bundle",
        "write_continuation", "write_pages", "write_transcript",
    },
    "flue_py.prices": {"PriceBook"},
    "flue_py.core.context": {"MergedRange", "Provenance", "merged_range_of", "provenance_of"},
}  # fmt: skip
"""Names that have a module of their own, and stay importable from `flue_py`."""


def test_the_public_names_are_these() -> None:
    assert set(flue_py.__all__) == NAMES | CAUGHT
    assert sorted(flue_py.__all__) == sorted(set(flue_py.__all__))
    assert set(flue_py.__all__) <= set(dir(flue_py))


def test_every_public_name_is_there() -> None:
    names = sorted(NAMES | RAISED | set.union(*ROOMS.values()))
    assert [name for name in names if getattr(flue_py, name, None) is None] == []
    assert [name for name in names if getattr(flue_py, name) is not getattr(flue_py, name)] == []


def test_a_room_has_these_names_which_are_here_too_and_no_further_names() -> None:
    homes = {room: importlib.import_module(room) for room in ROOMS}
    # A module of the core has many names more; those named here are documented.
    assert {room: set(getattr(home, "__all__", ROOMS[room])) for room, home in homes.items()} == ROOMS
    names = [(room, name) for room in ROOMS for name in sorted(ROOMS[room])]
    assert [pair for pair in names if getattr(homes[pair[0]], pair[1]) is not getattr(flue_py, pair[1])] == []


def test_all_errors_are_in_one_module() -> None:
    assert {name for name in errors.__all__ if issubclass(getattr(errors, name), Exception)} == RAISED


def test_every_error_is_a_flue_error() -> None:
    assert all(issubclass(getattr(flue_py, name), flue_py.FlueError) for name in ERRORS)


def test_every_warning_is_the_users_to_filter() -> None:
    assert all(issubclass(getattr(flue_py, name), UserWarning) for name in WARNINGS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = flue_py.Sesion


def test_the_version_is_the_installed_one() -> None:
    assert flue_py.__version__ == importlib.metadata.version("flue-py")


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after ``code``."""
    script = f"import json, sys\n{code}\nprint(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = {"pydantic", "pydantic_core", "sqlalchemy", "alembic", "aiosqlite", "tiktoken", "anyio", "asyncio"}
    assert modules_after("import flue_py") & heavy == set()


def test_a_new_store_in_memory_loads_no_models_and_no_engine() -> None:
    code = """
import asyncio, flue_py
async def main():
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        await session.append_custom("note", {})
asyncio.run(main())"""
    assert modules_after(code) & {"pydantic", "sqlalchemy", "alembic", "aiosqlite", "tiktoken"} == set()


def test_reading_a_store_that_is_there_loads_no_models_and_no_engine(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    code = """
import asyncio, flue_py
async def main():
    async with flue_py.open(%r) as store:
        session = await store.open_session("one", mode="get_or_create")
        print(len(await session.build_context()), (await session.money.aggregate_usage_since(None)).usage.output)
asyncio.run(main())"""
    modules_after(code % path)

    assert modules_after(code % path) & {"pydantic", "sqlalchemy", "alembic", "aiosqlite", "tiktoken"} == set()
