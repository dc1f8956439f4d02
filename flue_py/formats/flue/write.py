"""A session as the reference's stored document, version 3."""

from __future__ import annotations

from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, MESSAGE
from flue_py.core.layout import RANGES, is_silent
from flue_py.core.sessions import SessionInfo
from flue_py.formats.flue.document import session_document
from flue_py.formats.kit.exported import Exported, SessionTree, exported_json
from flue_py.wire.leftovers import Leftovers

FORMAT = "flue"

_KINDS = frozenset({MESSAGE, COMPACTION, BRANCH_SUMMARY})
_ROLES = frozenset({"user", "assistant", "toolResult"})


def export_flue(session: SessionTree) -> Exported:
    """Return a session as the reference stores it: every entry it sees, the leaf, metadata and times.

    The metadata names the task sessions, which are documents of their own. Cost: O(entries).
    """
    info, leaf_id, left = session.info, session.leaf_id, Leftovers()
    for entry in session.entries:
        if entry.kind not in _KINDS:
            left.change(f"entries of kind {entry.kind!r} are in the document, but mean nothing to Flue")
        elif entry.kind == MESSAGE and entry.role not in _ROLES:
            left.change(f"a message of role {entry.role!r} is in the document, but Flue knows no such role")
        elif entry.kind == COMPACTION and any(name.lower().startswith("pin") for name in entry.fields):
            left.change("what a compaction keeps by pins is in the document, but Flue does not show it")
        if is_silent(entry):
            left.change("a compaction that leaves messages out is in the document, but Flue shows an empty summary")
        if entry.kind == COMPACTION and entry.fields.get(RANGES):
            left.change("the ranges of a compaction are in the document, but Flue shows what they stand for")
    for what, value in (("the title", info.title), ("labels", session.labels), ("the working directory", info.cwd)):
        if value:
            left.note(what)
    metadata, updated_us = _as_it_came(info, leaf_id)
    document = session_document(
        session.entries, leaf_id, metadata=metadata, created_us=info.created_us, updated_us=updated_us
    )
    return exported_json(FORMAT, document, left)


def _as_it_came(info: SessionInfo, leaf_id: str | None) -> tuple[JsonObject, int]:
    """Return the metadata without what an import noted, and when the document was changed, if it is still the same."""
    metadata = info.metadata
    imported = metadata.get("imported")
    if not isinstance(imported, dict) or imported.get("format") != FORMAT:
        return metadata, info.updated_us
    if "imported" in imported:
        metadata["imported"] = imported["imported"]
    else:
        del metadata["imported"]
    updated = imported.get("updatedUs")
    is_same = isinstance(updated, int) and info.active_us <= updated and leaf_id == imported.get("leafId")
    return metadata, updated if isinstance(updated, int) and is_same else info.updated_us
