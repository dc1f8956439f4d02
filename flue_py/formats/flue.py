"""The reference's stored session documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from msgspec.structs import replace

from flue_py.core.entries import RANGES, Entry, NewEntry, entry_of_message, is_silent
from flue_py.core.json import Frozen, JsonObject, JsonValue, encode_json, without
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, MESSAGE
from flue_py.core.sessions import NewSession, SessionInfo, derived_id, session_of, task_references
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats import kit
from flue_py.providers.base import Leftovers

# The reference's stored session document, version 3, from and to values.
#
#     {"version": 3, "leafId": ..., "metadata": {...}, "createdAt": ..., "updatedAt": ..., "entries": [...]}
#
# Where a document is broken, this reader answers as follows. A parent that is not in the document makes its child
# a root, and entries that are not in parent-first order are put in it; each is said in ``notes``. A leaf that is
# not in the document, an id that occurs twice, and parents that form a circle are refused: guessing there would
# make up history.

VERSION = 3

_COMMON = ("id", "type", "parentId", "timestamp")
_OWN_FIELDS = {
    MESSAGE: ("message", "source"),
    COMPACTION: ("summary", "firstKeptEntryId", "tokensBefore", "details", "usage"),
    BRANCH_SUMMARY: ("summary", "fromId", "details"),
}


class SessionDocument(Frozen):
    """A stored session as values: entries parents first, ready for `Store.import_session`.

    Times are microseconds since 1970 UTC; None if the document's text is not a time. ``notes`` say what the
    reader had to change.
    """

    entries: tuple[NewEntry, ...]
    leaf_id: str | None
    metadata: JsonObject
    created_us: int | None
    updated_us: int | None
    notes: tuple[str, ...] = ()


def parse_session_document(value: JsonValue) -> SessionDocument:
    """Return the session in a decoded document. Raises `UnreadableFile`, naming the entry. O(entries)."""
    document = _object(value, "document")
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise UnreadableFile(f"version: {shown(version)} is not {VERSION}; this reader knows version {VERSION} only")
    rows = document.get("entries")
    if not isinstance(rows, list):
        raise UnreadableFile("entries: should be a list")
    notes: list[str] = []
    by_id: dict[str, NewEntry] = {}
    for number, row in enumerate(rows):
        entry = _parse_entry(_object(row, f"entries[{number}]"), f"entries[{number}]", notes)
        if cast("str", entry.id) in by_id:
            raise UnreadableFile(f"entries[{number}]: the id {entry.id!r} occurs twice")
        by_id[cast("str", entry.id)] = entry
    leaf = document.get("leafId")
    if leaf is not None and (not isinstance(leaf, str) or leaf not in by_id):
        raise UnreadableFile(f"leafId: {shown(leaf)} is not the id of an entry")
    return SessionDocument(
        tuple(_parents_first(by_id, notes)),
        leaf,
        _object(document.get("metadata") or {}, "metadata"),
        kit.read_time(document.get("createdAt")),
        kit.read_time(document.get("updatedAt")),
        tuple(notes),
    )


def _parse_entry(row: JsonObject, where: str, notes: list[str]) -> NewEntry:
    entry_id, kind, parent = row.get("id"), row.get("type"), row.get("parentId")
    if not kit.is_name(entry_id):
        raise UnreadableFile(f"{where}: has no id, or one that no store can hold")
    if parent is not None and not isinstance(parent, str):
        raise UnreadableFile(f"{where}: parentId should be a string or null")
    if not isinstance(kind, str):
        raise UnreadableFile(f"{where}: has no type")
    try:
        entry = _new_entry(kind, row)
        extra = without(row, *_COMMON, *_OWN_FIELDS.get(kind, ("data",)))
        extra_text = encode_json(extra, "entry")[0] if extra else None
    except InvalidEntry as error:
        raise UnreadableFile(f"{where} ({entry_id!r}): {error}") from error
    created_us = kit.read_time(row.get("timestamp"))
    if created_us is None:
        notes.append(f"{where} ({entry_id!r}): no readable timestamp; the time of the import was taken")
    # The first kept entry of a compaction is not checked here: the reference stores, and answers, any value.
    return replace(entry, id=entry_id, parent_id=parent, created_us=created_us, extra=extra_text, references=())


def _new_entry(kind: str, row: JsonObject) -> NewEntry:
    if kind == MESSAGE:
        source = row.get("source")
        if source is not None and not isinstance(source, str):
            raise InvalidEntry("source: should be a string")
        return entry_of_message(_object(row.get("message"), "message"), source)
    if kind == COMPACTION:
        usage = row.get("usage")
        return NewEntry.compaction(
            cast("str", row.get("summary")),
            first_kept_entry_id=cast("str", row.get("firstKeptEntryId")),
            tokens_before=cast("int", row.get("tokensBefore")),
            details=row.get("details"),
            usage=None if usage is None else _object(usage, "usage"),
        )
    if kind == BRANCH_SUMMARY:
        return NewEntry.branch_summary(
            cast("str", row.get("summary")), from_id=cast("str | None", row.get("fromId")), details=row.get("details")
        )
    return NewEntry.custom(kind, row.get("data"))


def _parents_first(by_id: Mapping[str, NewEntry], notes: list[str]) -> Iterable[NewEntry]:
    """Return the entries with every parent before its children, otherwise in the order they came."""
    placed: dict[str, NewEntry] = {}
    moved = 0
    for entry_id, entry in by_id.items():
        chain: list[NewEntry] = []
        current: NewEntry | None = entry
        while current is not None and current.id not in placed:
            if len(chain) > len(by_id):
                raise UnreadableFile(f"entry {entry_id!r}: its parents form a circle")
            chain.append(current)
            current = by_id.get(current.parent_id or "")
        moved += max(0, len(chain) - 1)
        for late in reversed(chain):
            is_orphan = late.parent_id is not None and late.parent_id not in by_id
            if is_orphan:
                lost = f"its parent {late.parent_id!r} is not in the document; it became a root"
                notes.append(f"entry {late.id!r}: {lost}")
            placed[cast("str", late.id)] = replace(late, parent_id=None) if is_orphan else late
    if moved:
        notes.append(f"{moved} entries came after their children; parents were put first")
    return placed.values()


def session_document(
    entries: Sequence[Entry],
    leaf_id: str | None,
    *,
    metadata: JsonObject | None = None,
    created_us: int,
    updated_us: int,
) -> JsonObject:
    """Return a session as the reference stores it: `Session.get_tree`, a leaf, metadata and times.

    Optional fields without a value are absent, never null. Kinds the reference does not know are written with
    their payload as ``data``.
    """
    return {
        "version": VERSION,
        "leafId": leaf_id,
        "metadata": metadata or {},
        "createdAt": kit.iso_time(created_us),
        "updatedAt": kit.iso_time(updated_us),
        "entries": [_entry_json(entry) for entry in entries],
    }


def _entry_json(entry: Entry) -> JsonObject:
    row: JsonObject = {
        "id": entry.id,
        "type": entry.kind,
        "parentId": entry.parent_id,
        "timestamp": kit.iso_time(entry.created_us),
    }
    if entry.kind == MESSAGE:
        row["message"] = entry.fields
        if entry.source is not None:
            row["source"] = entry.source
    elif entry.kind in _OWN_FIELDS:
        row.update(entry.fields)
    else:
        row["data"] = entry.data
    row.update((name, item) for name, item in entry.extra_fields.items() if name not in row)
    return row


def _object(value: JsonValue, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise UnreadableFile(f"{where}: should be an object, not {type(value).__name__}")
    return value


# The reference's stored session documents as a format to import (see `flue`).

FORMAT = "flue"


def looks_like_flue(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a session document of the reference."""
    start = first_bytes.lstrip()
    if not start.startswith(b"{"):
        return False
    head = start.replace(b" ", b"").replace(b"\n", b"").replace(b"\r", b"").replace(b"\t", b"")
    return b'"version":3' in head and b'"entries":[' in head and b'"type":"session"' not in head[:200]


def parse_flue(data: bytes, name: str = "the file") -> Sequence[kit.SessionPart]:
    """Return the session of a document. Its id is derived from the file's name, since the document has none.

    Raises `UnreadableFile`. Cost: O(size).
    """
    notes = kit.Notes()
    document = parse_session_document(kit.read_document(data, notes, name))
    stem = kit.one_text(name.rpartition("/")[2]) or "document"
    stem = stem.removesuffix(".json")
    session_id = stem if kit.is_name(stem) and len(stem.encode()) <= 200 else f"flue-{derived_id(stem)}"
    imported: JsonObject = {"format": FORMAT, "version": VERSION, "file": kit.one_text(name) or ""}
    imported["leafId"] = document.leaf_id
    # By these the next import tells the document's own metadata from those that were set here since.
    imported["keys"] = [name for name in document.metadata if name != "imported"]
    if document.updated_us is not None:
        imported["updatedUs"] = document.updated_us
    if "imported" in document.metadata:
        imported["imported"] = document.metadata["imported"]
    try:
        metadata, replaced = encode_json({**document.metadata, "imported": imported}, "metadata")
    except InvalidEntry as error:
        raise UnreadableFile(f"{name}: {error}; nothing was imported") from error
    notes.rows = len(document.entries)
    notes.surrogates_replaced = replaced + sum(entry.surrogates_replaced for entry in document.entries)
    for note in document.notes:
        notes.repair(1, note)
    parent = _task_of(document.metadata)
    session = NewSession(
        id=session_id, metadata_text=metadata, created_us=document.created_us, kind="root" if parent is None else "task"
    )
    lines = {str(entry.id): number for number, entry in enumerate(document.entries, start=1)}
    tasks = [
        kit.TaskOf(child, task.task_id)
        for task in task_references(document.metadata)
        if kit.is_name(child := session_of(task.storage_key)) and (not task.task_id or kit.is_name(task.task_id))
    ]
    part = kit.whole_part(FORMAT, str(VERSION), session, document.entries, document.leaf_id, lines, notes.report())
    return [replace(part, parent=parent, tasks=tuple(tasks), restates=True)]


read_flue = partial(kit.DocumentReader, parse_flue)


def _task_of(metadata: JsonObject) -> kit.TaskOf | None:
    """Return the session that metadata name as the parent, and the task's name there."""
    parent, task_id = metadata.get("parentSession"), metadata.get("taskId")
    return kit.TaskOf(parent, task_id) if kit.is_name(parent) and kit.is_name(task_id) else None


# A session as the reference's stored document, version 3.

_KINDS = frozenset({MESSAGE, COMPACTION, BRANCH_SUMMARY})
_ROLES = frozenset({"user", "assistant", "toolResult"})


def export_flue(session: kit.SessionTree) -> kit.Exported:
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
    for name, value in (("the title", info.title), ("labels", session.labels), ("the working directory", info.cwd)):
        if value:
            left.note(name)
    metadata, updated_us = _as_it_came(info, leaf_id)
    document = session_document(
        session.entries, leaf_id, metadata=metadata, created_us=info.created_us, updated_us=updated_us
    )
    return kit.exported_json(FORMAT, document, left)


def _as_it_came(info: SessionInfo, leaf_id: str | None) -> tuple[JsonObject, int]:
    """Return the metadata without the notes of an import, and when the document was changed, if it is the same."""
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
