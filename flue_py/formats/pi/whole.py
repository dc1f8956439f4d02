"""pi session files, versions 1 to 3: from the lines of a file to entries ready to be stored.

Ids, parents, times, kinds and messages are the file's own. Version 1 has no ids: an entry's id is then derived
from the session's id and the number of its line, so that the same file always gives the same entries. Whatever
has no place in an entry's payload goes to its ``extra``. pi stores no leaf: it is the last entry of the file.

Nothing in a row is fatal. Only a file that does not begin with a session header is refused. docs/formats/pi.md
lists what is kept, what is repaired and what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import cast

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.entries import (
    BRANCH_SUMMARY,
    COMPACTION,
    CUSTOM_MESSAGE,
    EXCLUSION,
    MESSAGE,
    NewEntry,
    checked_kind,
    entry_of_message,
    from_microseconds,
)
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json, replace_lone_surrogates
from flue_py.core.messages import validate_message
from flue_py.core.sessions import MAX_LABEL_CHARACTERS, NewSession
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats.kit.parsed import LabelChange, ParsedSession
from flue_py.formats.kit.rows import Notes, Row, is_name, link_rows, read_rows, unusable_id
from flue_py.formats.kit.streaming import read_time
from flue_py.formats.pi.context import MODEL_CHANGE, THINKING_LEVEL_CHANGE
from flue_py.formats.pi.filling import FILLED, unfilled

FORMAT = "pi"
NEWEST_VERSION = 3

CUSTOM = "custom"
LABEL = "label"
SESSION_INFO = "session_info"
CONTEXT_EDIT = "context_edit"
USAGE = "usage"
EMPTY_BRANCH_SUMMARY = "empty_branch_summary"
"""A branch summary without text: pi leaves it out of the context, so it is not stored as a `BRANCH_SUMMARY`."""
UNREADABLE = "unreadable_"
"""Before the kind of an entry whose content cannot be what it says: kept whole, never in the context."""

_PLAIN_KINDS = frozenset({CUSTOM, LABEL, SESSION_INFO, MODEL_CHANGE, THINKING_LEVEL_CHANGE, USAGE})
_CHECKED_KINDS = frozenset({MESSAGE, COMPACTION, BRANCH_SUMMARY, CUSTOM_MESSAGE})
_ENVELOPE = frozenset({"type", "id", "parentId", "timestamp"})


@dataclass(frozen=True, slots=True)
class _File:
    """What the entries of one file need to know of it. ``rows`` are all its readable rows, the header first."""

    version: int
    created_us: int | None
    rows: Sequence[Row]
    notes: Notes


def parse_pi(lines: Iterable[bytes], name: str = "the file") -> ParsedSession:
    """Return what is in the lines of a pi session file (with or without their line ends).

    ``name`` is what errors and the session's metadata call the file. Raises `UnreadableFile` where the first
    readable line is no session header; every other fault is in the report. Cost: O(size).
    """
    notes = Notes()
    rows = read_rows(lines, notes)
    header = _header(rows, name)
    session_id = cast("str", header["id"])
    file = _File(_version(header), read_time(header.get("timestamp")), rows, notes)
    placed = _numbered(file, session_id) if file.version < 2 else link_rows(_without_headers(file), notes)
    entries = tuple(_new_entry(row, file) for row in placed)
    by_line = sorted(placed, key=lambda row: row.line)
    metadata, replaced = encode_json(
        {"imported": {"format": FORMAT, "version": file.version, "file": _one_text(name), "header": header}}, "header"
    )
    notes.surrogates_replaced += replaced
    cwd = header.get("cwd")
    return ParsedSession(
        format=FORMAT,
        version=str(file.version),
        session=NewSession(
            id=session_id,
            title=_title(by_line),
            cwd=_one_text(cwd) if isinstance(cwd, str) else None,
            metadata_text=metadata,
            created_us=file.created_us,
        ),
        entries=entries,
        leaf=by_line[-1].id if by_line else None,
        lines={row.id: row.line for row in placed},
        labels=tuple(_label_changes(by_line, notes)),
        report=notes.report(),
    )


# --- The header, and where rows stand in the tree -----------------------------------------------------------


def _header(rows: Sequence[Row], name: str) -> JsonObject:
    header = rows[0].fields if rows else {}
    session_id = header.get("id")
    if header.get("type") == "session" and isinstance(session_id, str) and session_id and not is_name(session_id):
        raise UnreadableFile(f"{name}: its session header {unusable_id(session_id)}; nothing was imported")
    if header.get("type") != "session" or not is_name(session_id):
        raise UnreadableFile(
            f"{name} is no pi session: its first readable line is not a session header with an id; nothing was imported"
        )
    try:
        encode_json(header, "header")
    except InvalidEntry as error:
        raise UnreadableFile(f"{name}: {error}; nothing was imported") from error
    return header


def _version(header: JsonObject) -> int:
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


def derived_id(session_id: str, line: int) -> str:
    """Return the id of the version 1 entry on ``line`` (from 1): 16 hex characters, the same every time."""
    return blake2b(f"{session_id}\n{line}".encode(), digest_size=8).hexdigest()


def _without_headers(file: _File) -> list[Row]:
    rows = []
    for row in file.rows[1:]:
        if row.type == "session":
            file.notes.skip(row.line, "is a second session header")
        else:
            rows.append(row)
    return rows


def _numbered(file: _File, session_id: str) -> list[Row]:
    """Version 1: every entry is the child of the one before it."""
    parent = None
    rows = _without_headers(file)
    for row in rows:
        row.id, row.parent = derived_id(session_id, row.line), parent
        parent = row.id
    return rows


# --- Entries ------------------------------------------------------------------------------------------------


def _new_entry(row: Row, file: _File) -> NewEntry:
    # In version 1 id and parentId mean nothing: what stands there is kept like any unknown field.
    envelope = _ENVELOPE if file.version > 1 else _ENVELOPE - {"id", "parentId"}
    body = {name: value for name, value in row.fields.items() if name not in envelope}
    beside: JsonObject = {"line": row.line} if file.version < 2 else {}
    try:
        entry, rest = _content(row, body, file)
        if rest:
            encode_json(rest, "extra")  # here, so that what JSON text cannot hold makes the whole row unreadable
    except InvalidEntry as error:
        kind = UNREADABLE + (row.type if row.type in _CHECKED_KINDS else "entry")
        file.notes.repair(row.line, f"{error}; kept as {kind}, outside the context")
        entry, rest = _unreadable(kind, body, row), {}
    beside.update(rest)
    moment = read_time(row.fields.get("timestamp"))
    if moment is None:
        message = body.get("message")
        moment = read_time(message.get("timestamp")) if isinstance(message, dict) else None
        moment = file.created_us if moment is None else moment
        file.notes.repair(row.line, f"entry {row.id!r} has no readable timestamp")
    if "timestamp" in row.fields and row.fields["timestamp"] != _iso(moment):
        beside["timestamp"] = _printable(row.fields["timestamp"])
    if row.lost_parent is not None:
        beside["parentId"] = row.lost_parent
    extra, replaced = encode_json(beside, "extra") if beside else (None, 0)
    replaced += entry.surrogates_replaced
    file.notes.surrogates_replaced += replaced
    return NewEntry(
        entry.kind,
        entry.payload,
        entry.role,
        entry.source,
        entry.usage,
        entry.calls,
        entry.references,
        row.id,
        row.parent,
        moment,
        extra,
        replaced,
        entry.preview,
    )


def _content(row: Row, body: JsonObject, file: _File) -> tuple[NewEntry, JsonObject]:
    """Return the entry a row makes, and the fields that stand beside its payload. Raises `InvalidEntry`."""
    if row.type == MESSAGE:
        return _message(row, body, file)
    if row.type == COMPACTION:
        return _compaction(row, body, file), {}
    if row.type == CONTEXT_EDIT and isinstance(body.get("targetId"), str) and "replacement" in body:
        return _plain(EXCLUSION, _context_edit(row, body, file)), {}
    entry = _plain(_checked_kind(row, body, file), body)
    if row.type in (USAGE, BRANCH_SUMMARY) and body.get("usage") is not None:
        calls = _calls_beside(row, body, entry, file)
        entry = replace(entry, calls=calls, unpaid=not calls)
    return entry, {}


def _context_edit(row: Row, body: JsonObject, file: _File) -> JsonObject:
    """Return an edit of the context as an exclusion; one that puts something in an entry's place takes it back in."""
    target = body["targetId"]
    if body["replacement"] is None:
        return {"entryId": target, **body}
    file.notes.repair(
        row.line, f"puts another content in place of that of {shown(target)}; the context shows the first"
    )
    return {"entryId": target, "excluded": False, **body}


def _calls_beside(row: Row, body: JsonObject, entry: NewEntry, file: _File) -> tuple[PaidCall, ...]:
    """Return the call that was paid for something other than a message; pi's forks keep id and time of its row."""
    told_by = f"{row.id} {row.fields.get('timestamp')} {entry.payload}".encode()
    purpose = body.get("kind") if row.type == USAGE else row.type
    usage = read_reported(body["usage"])
    _note_oddities(usage.oddities, row, file)
    call = call_of(
        usage,
        provider=body.get("provider"),
        model=body.get("model"),
        call_id=f"pi:{blake2b(told_by, digest_size=12).hexdigest()}",
        purpose=purpose[:64] if isinstance(purpose, str) and purpose else USAGE,
    )
    return (call,) if any(usage.totals) or not usage.is_known else ()


def _note_oddities(oddities: Sequence[str], row: Row, file: _File) -> None:
    for oddity in oddities:
        file.notes.repair(row.line, oddity)


def _checked_kind(row: Row, body: JsonObject, file: _File) -> str:
    kind = row.type
    if kind == BRANCH_SUMMARY:
        if not isinstance(body.get("summary"), str):
            raise InvalidEntry("branch_summary.summary: should be a string")
        return kind if body["summary"] else EMPTY_BRANCH_SUMMARY
    if kind == CUSTOM_MESSAGE:
        if not isinstance(body.get("content"), (str, list)):
            raise InvalidEntry("custom_message.content: should be a string or a list of parts")
        validate_message({"role": "user", "content": body["content"]}, CUSTOM_MESSAGE)
    elif kind not in _PLAIN_KINDS:
        file.notes.unknown_kinds[kind] += 1
        checked_kind(kind)
    return kind


def _plain(kind: str, body: JsonObject) -> NewEntry:
    text, replaced = encode_json(body, kind)
    return NewEntry(kind, text, surrogates_replaced=replaced)


def _message(row: Row, body: JsonObject, file: _File) -> tuple[NewEntry, JsonObject]:
    message = body.get("message")
    rest = {name: value for name, value in body.items() if name != "message"}
    if not isinstance(message, dict):
        raise InvalidEntry("message: should be an object")
    if file.version < NEWEST_VERSION and message.get("role") == "hookMessage":
        message = {**message, "role": "custom"}
    told_by = ""
    if FILLED in rest:
        # Without its filling a message may say the same as another; the row's id, which forks keep, tells them apart.
        message, told_by = unfilled(message, rest[FILLED]), row.id
    try:
        entry = entry_of_message(message)
    except InvalidEntry as error:
        if message.get("role") != "assistant" or "usage" not in message:
            raise
        # Numbers that cannot be stored must not cost the context a message: it stays, uncounted.
        entry = entry_of_message({name: value for name, value in message.items() if name != "usage"})
        rest["usage"] = message["usage"]
        file.notes.repair(row.line, f"{error}; the message is kept, its usage is not counted")
    _note_oddities(entry.oddities, row, file)
    if entry.calls:
        entry = replace(entry, calls=tuple(replace(call, call_id=_call_id(entry, told_by)) for call in entry.calls))
    return entry, rest


def _call_id(entry: NewEntry, told_by: str = "") -> str:
    # pi copies messages, times and all, into the files of its forks: the ledger must know them again, while
    # pi's eight-character entry ids may well repeat between files that have nothing to do with each other.
    return f"pi:{blake2b((told_by + entry.payload).encode(), digest_size=12).hexdigest()}"


def _compaction(row: Row, body: JsonObject, file: _File) -> NewEntry:
    if not isinstance(body.get("summary"), str):
        raise InvalidEntry("compaction.summary: should be a string")
    fields = dict(body)
    index = fields.get("firstKeptEntryIndex")
    if file.version < 2 and isinstance(index, int) and not isinstance(index, bool):
        # The index counts the readable rows of the file, the header being 0.
        target = file.rows[index].id if 0 < index < len(file.rows) else ""
        if target:
            fields = {name: value for name, value in fields.items() if name != "firstKeptEntryIndex"}
        fields["firstKeptEntryId"] = target
    if not isinstance(fields.get("firstKeptEntryId"), str) or not fields["firstKeptEntryId"]:
        fields["firstKeptEntryId"] = ""
        file.notes.repair(row.line, "names no first kept entry; nothing before the compaction is kept")
    tokens = fields.get("tokensBefore")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        fields["tokensBefore"] = 0
        file.notes.repair(row.line, f"tokensBefore: {shown(tokens)} is no count of tokens; 0 is stored")
    usage = read_reported(fields.get("usage"))
    _note_oddities(usage.oddities, row, file)
    text, replaced = encode_json(fields, COMPACTION)
    entry = NewEntry(COMPACTION, text, usage=usage.totals, surrogates_replaced=replaced)
    if fields.get("usage") is None:
        return entry
    return replace(entry, calls=(call_of(usage, purpose=COMPACTION, call_id=_call_id(entry)),))


def _unreadable(kind: str, body: JsonObject, row: Row) -> NewEntry:
    try:
        return _plain(kind, {"type": row.type, **body})
    except InvalidEntry:
        # Numbers that overflow and nesting beyond what is stored: the line itself holds it all.
        return _plain(kind, {"type": row.type, "line": row.text})


# --- Times --------------------------------------------------------------------------------------------------


def _iso(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return from_microseconds(microseconds).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _printable(value: JsonValue) -> JsonValue:
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    try:
        return repr(value)
    except RecursionError:
        return shown(value)


# --- Title and labels ---------------------------------------------------------------------------------------


def _title(by_line: Sequence[Row]) -> str | None:
    """Return the latest name that is not blank, over the whole file."""
    for row in reversed(by_line):
        name = row.fields.get("name") if row.type == SESSION_INFO else None
        if isinstance(name, str) and (title := _one_text(name).strip()):
            return title
    return None


def _label_changes(by_line: Sequence[Row], notes: Notes) -> Iterable[LabelChange]:
    known = {row.id for row in by_line}
    for row in by_line:
        if row.type != LABEL:
            continue
        target, label = row.fields.get("targetId"), row.fields.get("label")
        if isinstance(target, str) and target in known:
            text = _one_text(label) if isinstance(label, str) else ""
            if len(text) > MAX_LABEL_CHARACTERS:
                notes.repair(row.line, f"a label of {len(text)} characters was cut to {MAX_LABEL_CHARACTERS}")
            yield LabelChange(row.id, target, text[:MAX_LABEL_CHARACTERS] or None)
        else:
            notes.repair(row.line, f"labels {shown(target)}, which is not in the file; no label was set")


def _one_text(text: str) -> str:
    return replace_lone_surrogates(text.replace("\0", ""))[0]
