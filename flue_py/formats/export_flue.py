"""A session as the reference's stored document, version 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flue_py.core.entries import BRANCH_SUMMARY, COMPACTION, MESSAGE, Entry
from flue_py.core.jsontext import JsonValue
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.formats.exported import Exported, exported_json
from flue_py.formats.flue import session_document
from flue_py.formats.leftovers import Leftovers

FORMAT = "flue"

_KINDS = frozenset({MESSAGE, COMPACTION, BRANCH_SUMMARY})
_ROLES = frozenset({"user", "assistant", "toolResult"})


def export_flue(
    info: SessionInfo,
    entries: Sequence[Entry],
    leaf_id: str | None,
    labels: Mapping[str, str] | None = None,
    tasks: Sequence[TaskLink] = (),
) -> Exported:
    """Return a session as the reference stores it (row E31): every entry it sees, the leaf, metadata and times.

    The metadata names the task sessions, which are documents of their own. Cost: O(entries).
    """
    left = Leftovers()
    for entry in entries:
        if entry.kind not in _KINDS:
            left.change(f"entries of kind {entry.kind!r} are in the document, but mean nothing to Flue")
        elif entry.kind == MESSAGE and entry.role not in _ROLES:
            left.change(f"a message of role {entry.role!r} is in the document, but Flue knows no such role")
        elif entry.kind == COMPACTION and any(name.lower().startswith("pin") for name in entry.fields):
            left.change("what a compaction keeps by pins is in the document, but Flue does not show it")
    for what, value in (("the title", info.title), ("labels", labels), ("the working directory", info.cwd)):
        if value:
            left.note(what)
    metadata = info.metadata
    if tasks:
        links: list[JsonValue] = [
            {"session": task.child_id, "taskId": task.task_id, "storageKey": task.child_id} for task in tasks
        ]
        metadata["taskSessions"] = links
    document = session_document(
        entries, leaf_id, metadata=metadata, created_us=info.created_us, updated_us=info.updated_us
    )
    return exported_json(FORMAT, document, left)
