"""The reference's stored session document, version 3, from and to values.

    {"version": 3, "leafId": ..., "metadata": {...}, "createdAt": ..., "updatedAt": ..., "entries": [...]}

Where a document is broken, this reader answers as follows. A parent that is not in the document makes its child
a root, and entries that are not in parent-first order are put in it; each is said in ``notes``. A leaf that is
not in the document, an id that occurs twice, and parents that form a circle are refused: guessing there would
make up history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from flue_py.core.entries import Entry, NewEntry, entry_of_message
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, MESSAGE
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats.kit.rows import is_name
from flue_py.formats.kit.values import iso_time, read_time

VERSION = 3

_COMMON = ("id", "type", "parentId", "timestamp")
_OWN_FIELDS = {
    MESSAGE: ("message", "source"),
    COMPACTION: ("summary", "firstKeptEntryId", "tokensBefore", "details", "usage"),
    BRANCH_SUMMARY: ("summary", "fromId", "details"),
}


@dataclass(frozen=True, slots=True)
class SessionDocument:
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


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


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
    found: dict[str, NewEntry] = {}
    for number, row in enumerate(rows):
        entry = _parse_entry(_object(row, f"entries[{number}]"), f"entries[{number}]", notes)
        if cast("str", entry.id) in found:
            raise UnreadableFile(f"entries[{number}]: the id {entry.id!r} occurs twice")
        found[cast("str", entry.id)] = entry
    leaf = document.get("leafId")
    if leaf is not None and (not isinstance(leaf, str) or leaf not in found):
        raise UnreadableFile(f"leafId: {shown(leaf)} is not the id of an entry")
    return SessionDocument(
        tuple(_parents_first(found, notes)),
        leaf,
        _object(document.get("metadata") or {}, "metadata"),
        read_time(document.get("createdAt")),
        read_time(document.get("updatedAt")),
        tuple(notes),
    )


def _parse_entry(row: JsonObject, where: str, notes: list[str]) -> NewEntry:
    entry_id, kind, parent = row.get("id"), row.get("type"), row.get("parentId")
    if not is_name(entry_id):
        raise UnreadableFile(f"{where}: has no id, or one that no store can hold")
    if parent is not None and not isinstance(parent, str):
        raise UnreadableFile(f"{where}: parentId should be a string or null")
    if not isinstance(kind, str):
        raise UnreadableFile(f"{where}: has no type")
    try:
        entry = _new_entry(kind, row)
        extra = {name: item for name, item in row.items() if name not in (*_COMMON, *_OWN_FIELDS.get(kind, ("data",)))}
        extra_text = encode_json(extra, "entry")[0] if extra else None
    except InvalidEntry as error:
        raise UnreadableFile(f"{where} ({entry_id!r}): {error}") from error
    created_us = read_time(row.get("timestamp"))
    if created_us is None:
        notes.append(f"{where} ({entry_id!r}): no readable timestamp; the time of the import was taken")
    # What a compaction keeps is not checked here: the reference stores, and answers, whatever it was given.
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


def _parents_first(found: Mapping[str, NewEntry], notes: list[str]) -> Iterable[NewEntry]:
    """Return the entries with every parent before its children, otherwise in the order they came."""
    placed: dict[str, NewEntry] = {}
    moved = 0
    for entry_id, entry in found.items():
        chain: list[NewEntry] = []
        current: NewEntry | None = entry
        while current is not None and current.id not in placed:
            if len(chain) > len(found):
                raise UnreadableFile(f"entry {entry_id!r}: its parents form a circle")
            chain.append(current)
            parent_id = current.parent_id
            current = found.get(parent_id) if parent_id is not None else None
        moved += max(0, len(chain) - 1)
        for late in reversed(chain):
            placed[cast("str", late.id)] = _rooted(late, found, notes)
    if moved:
        notes.append(f"{moved} entries came after their children; parents were put first")
    return placed.values()


def _rooted(entry: NewEntry, found: Mapping[str, NewEntry], notes: list[str]) -> NewEntry:
    if entry.parent_id is None or entry.parent_id in found:
        return entry
    notes.append(f"entry {entry.id!r}: its parent {entry.parent_id!r} is not in the document; it became a root")
    return replace(entry, parent_id=None)


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
        "createdAt": iso_time(created_us),
        "updatedAt": iso_time(updated_us),
        "entries": [_entry_json(entry) for entry in entries],
    }


def _entry_json(entry: Entry) -> JsonObject:
    row: JsonObject = {
        "id": entry.id,
        "type": entry.kind,
        "parentId": entry.parent_id,
        "timestamp": iso_time(entry.created_us),
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
