"""noumen session files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath

from msgspec import Struct, field

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.core.kinds import COMPACTION, MESSAGE, message_text
from flue_py.core.sessions import made_id
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats import kit
from flue_py.providers.base import fields_of
from flue_py.providers.openai_chat import calls_in, message_from_chat

# noumen session files: one row a line, in the order in which things happened.
#
# Rows name parents that are always null, so that the order of the file is the history: a chain of entries. A boundary
# with a summary is a compaction; a boundary without one begins the history anew, as it does in noumen; one with nothing
# after it counts for nothing. Snips become `EXCLUSION` entries. Nothing in a row is fatal.
# docs/formats/noumen.md lists the fields that are kept.

FORMAT = "noumen"

EXCLUSION = "exclusion"
"""The kind of an entry that takes the entry it names out of the context."""

BOUNDARY = "compact-boundary"
SUMMARY = "summary"
SUMMARY_PREFIX = "[Conversation Summary]\n\n"
"""The words of noumen before a summary; here the projection puts its own words there."""

_SAID = frozenset({MESSAGE, SUMMARY})
_SNIP = "snip-boundary"
_BESIDE = frozenset({
    "custom-title", "ai-title", "metadata", "file-checkpoint", "tool-result-overflow", "content-replacement",
})  # fmt: skip
_TYPES = _SAID | _BESIDE | {BOUNDARY, _SNIP}
_ROW = re.compile(
    rb'\s*\{"type"\s*:\s*"(message|compact-boundary|metadata|file-checkpoint|tool-result-overflow'
    rb'|content-replacement|snip-boundary)"[^\n]*"sessionId"\s*:'
)
_OTHERS = re.compile(rb'"isSidechain"\s*:|^\{"type"\s*:\s*"session"', re.MULTILINE)
_ENVELOPE = frozenset({"type", "uuid", "timestamp", "message"})


def looks_like_noumen(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a noumen session."""
    return any(_ROW.match(line) for line in head.splitlines()) and not _OTHERS.search(head)


def parse_noumen(data: bytes, name: str = "the file") -> tuple[kit.SessionPart, ...]:
    """Return the session in a noumen file.

    ``name`` is that of the file in errors and metadata; without its ending it is the session's id if no row names one.
    Raises `UnreadableFile` if no row is of noumen; every other fault is in the report. O(size).
    """
    notes = kit.Notes()
    rows = kit.read_rows(data.split(b"\n"), notes)
    if not any(row.type in _TYPES and "sessionId" in row.fields for row in rows):
        raise UnreadableFile(f"{name} is not a noumen session: no line is a row of one; nothing was imported")
    reading = _Reading(rows, kit.Chain(_session_id(rows, name), notes))
    for at, row in enumerate(rows):
        reading.read(at, row)
    reading.finish()
    titles: dict[str, str] = {}
    values: JsonObject = {}
    for row in rows:
        title, key = (kit.one_text(row.fields.get("title")) or "").strip(), row.fields.get("key")
        if row.type in ("custom-title", "ai-title") and title:
            titles[row.type] = title
        elif row.type == "metadata" and isinstance(key, str):
            values[key] = row.fields.get("value")
    about: JsonObject = {"titles": dict(titles), "metadata": values}
    document = {name: value for name, value in about.items() if value}
    moments = (kit.read_time(row.fields.get("timestamp")) for row in rows)
    parsed = reading.chain.parsed(
        FORMAT,
        name,
        document,
        is_rewritten=False,
        title=titles.get("custom-title"),
        auto_title=titles.get("ai-title"),
        created_us=next((moment for moment in moments if moment is not None), None),
    )
    return (parsed,)


read_noumen = partial(kit.DocumentReader, parse_noumen)


def _session_id(rows: Sequence[kit.Row], name: str) -> str:
    for row in rows:
        if kit.is_name(session_id := row.fields.get("sessionId")):
            return session_id
    stem = PurePath(name).name.removesuffix(".jsonl")
    if not kit.is_name(stem):
        raise UnreadableFile(f"{name}: no row has a usable sessionId, nor is the file's name one; nothing was imported")
    return stem


class _Reading(Struct):
    """The rows that were read so far: the chain, the boundary that waits for its summary, and the snips."""

    rows: Sequence[kit.Row]
    chain: kit.Chain
    boundary: kit.Row | None = None
    tools: dict[str, str] = field(default_factory=dict)
    by_uuid: dict[str, list[str]] = field(default_factory=dict)
    summaries: set[str] = field(default_factory=set)
    awaited: dict[str, kit.Row] = field(default_factory=dict)
    """Ids that were snipped before they came."""

    def read(self, at: int, row: kit.Row) -> None:
        if row.type in _SAID:
            self._say(at, row)
            return
        entry_id = self._id(row)
        if row.type == _SNIP:
            self._snip(row)
            return
        if row.type == BOUNDARY:
            self.boundary = row
        elif row.type not in _BESIDE:
            self.chain.notes.unknown_kinds[row.type] += 1
        body = without(row.fields, "type", "uuid", "timestamp")
        try:
            entry = kit.plain_entry(row.type, body)
        except InvalidEntry as error:
            self.chain.notes.repair(row.line, f"{error}; kept as unreadable_entry")
            entry = kit.plain_entry("unreadable_entry", {"type": row.type, **body})
        self._add(entry, row, entry_id)

    def finish(self) -> None:
        """Note the boundary and the snips that are open at the end of the file."""
        if self.boundary is not None:
            self.chain.notes.repair(
                self.boundary.line, "a boundary with neither summary nor message after it counts for nothing"
            )
        for uuid, row in self.awaited.items():
            self.chain.notes.repair(row.line, f"snips {shown(uuid)}, which is not a row that is shown")

    def _say(self, at: int, row: kit.Row) -> None:
        value = row.fields.get("message")
        message = message_from_chat(value, self.tools) if isinstance(value, dict) else {}
        self.tools.update(calls_in(message))
        entry, extra = kit.message_entry(message, row.fields, row.line, self.chain.notes)
        boundary, self.boundary = self.boundary, None
        if boundary is not None:
            self.by_uuid.clear()  # snips reach back to the boundary, no further
        if boundary is not None and row.type == SUMMARY and entry.kind == MESSAGE:
            entry = self._compaction(at, message, extra)
            self.summaries.add(str(row.fields.get("uuid")))
        elif boundary is not None:
            self.chain.leaf = None
            self.chain.notes.repair(row.line, f"begins anew: the boundary of line {boundary.line} has no summary")
        elif row.type == SUMMARY:
            extra = {**extra, "type": SUMMARY}
        if entry.kind != "unreadable_message":
            # Of the other fields those are worth keeping that are not the same in every row.
            usual = {"parentUuid": None, "sessionId": self.chain.session_id}
            rest = without(row.fields, *_ENVELOPE)
            unusual = {name: item for name, item in rest.items() if name not in usual or item != usual[name]}
            extra = {**unusual, **extra}
        self._add(entry, row, self._id(row), extra)
        uuid = row.fields.get("uuid")
        if isinstance(uuid, str) and uuid in self.awaited:
            self._exclude(uuid, self.awaited.pop(uuid))

    def _compaction(self, at: int, message: JsonObject, extra: JsonObject) -> NewEntry:
        text = message_text(message)
        if text.startswith(SUMMARY_PREFIX):
            extra["prefix"] = SUMMARY_PREFIX
        # Rows of the tail are copies that noumen writes after the summary: the first of them is kept, and all after it.
        behind = map(self.rows.__getitem__, range(at + 1, len(self.rows)))
        following = next((row for row in behind if row.type in (BOUNDARY, MESSAGE)), None)
        first_kept = ""
        if following is not None and following.type == MESSAGE:
            uuid = following.fields.get("uuid")
            is_free = kit.is_name(uuid) and uuid not in self.chain.lines
            first_kept = str(uuid) if is_free else self._made(following)
        fields: JsonObject = {"summary": text.removeprefix(SUMMARY_PREFIX), "firstKeptEntryId": first_kept}
        return kit.plain_entry(COMPACTION, {**fields, "tokensBefore": 0})

    def _made(self, row: kit.Row, suffix: str = "") -> str:
        return made_id(self.chain.session_id, str(row.line), suffix)

    def _id(self, row: kit.Row) -> str:
        """Return the id of a row's entry: its uuid; one made from its line if the uuid is unusable or taken."""
        uuid = row.fields.get("uuid")
        if not kit.is_name(uuid):
            if row.type in _SAID:
                self.chain.notes.repair(row.line, "has no usable uuid; it got an id made from its line")
            return self._made(row)
        if uuid in self.chain.lines:
            # noumen shows both rows, so that both must be there.
            self.chain.notes.repair(row.line, f"repeats the uuid {uuid!r}; it got an id made from its line")
            return self._made(row)
        return uuid

    def _add(self, entry: NewEntry, row: kit.Row, entry_id: str, fields: Mapping[str, JsonValue] | None = None) -> None:
        moment = kit.read_time(row.fields.get("timestamp"))
        extra = dict(fields or {})
        if moment is None and row.fields.get("timestamp") is not None:
            extra["timestamp"] = row.fields["timestamp"]
            self.chain.notes.repair(row.line, "has no readable timestamp; the time of the import was taken")
        self.chain.add(entry, row.line, beside=extra, entry_id=entry_id, created_us=moment)
        uuid = row.fields.get("uuid")
        if isinstance(uuid, str) and row.type in _SAID:
            self.by_uuid.setdefault(uuid, []).append(entry_id)

    def _snip(self, row: kit.Row) -> None:
        removed = fields_of(row.fields.get("snipMetadata")).get("removedUuids")
        if not isinstance(removed, list):
            self.chain.notes.skip(row.line, "is a snip that names no rows")
            return
        for uuid in dict.fromkeys(uuid for uuid in removed if isinstance(uuid, str)):
            if uuid in self.by_uuid:
                self._exclude(uuid, row)
            else:
                self.awaited[uuid] = row

    def _exclude(self, uuid: str, row: kit.Row) -> None:
        if uuid in self.summaries:
            self.chain.notes.repair(row.line, f"snips the summary {shown(uuid)}, which stays in the context")
        for target in self.by_uuid.get(uuid, ()):
            entry = kit.plain_entry(EXCLUSION, {"entryId": target})
            self._add(entry, row, self._made(row, target), {"type": row.type})
