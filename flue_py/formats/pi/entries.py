"""The entries that the rows of a pi session file become.

Ids, parents, times, kinds and messages are the file's own. What has no place in an entry's payload goes to its
``extra``. No fault of a row is fatal. docs/formats/pi.md lists what is kept, what is repaired and what is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flue_py.core.calls import PaidCall, call_of
from flue_py.core.entries import NewEntry, checked_kind, entry_of_message
from flue_py.core.exclusions import REPLACEMENT
from flue_py.core.ids import call_id, derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import ARTIFACT, BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, EXCLUSION, MESSAGE
from flue_py.core.messages import validate_message
from flue_py.core.projection import PROMPT
from flue_py.core.settings import MODEL_CHANGE, THINKING_LEVEL_CHANGE
from flue_py.core.spoken import SECTIONS, prompt_text
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidEntry, shown
from flue_py.formats.kit.rows import Notes, Row
from flue_py.formats.kit.streaming import Recent
from flue_py.formats.kit.values import iso_time, read_moment
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

WRITTEN = "flue_py_written"
"""The field beside a system message whose text was in sections: what its content was in the file."""
_REMEMBERED = 50_000
"""How many rows back a row may name a parent that knows the prompt."""

_PLAIN_KINDS = frozenset({CUSTOM, LABEL, SESSION_INFO, MODEL_CHANGE, THINKING_LEVEL_CHANGE, USAGE})
_CHECKED_KINDS = frozenset({MESSAGE, COMPACTION, BRANCH_SUMMARY, CUSTOM_MESSAGE})
_ENVELOPE = frozenset({"type", "id", "parentId", "timestamp"})


@dataclass(slots=True)
class PiFile:
    """What the entries of one file need to know of it. ``lines`` are those of its readable rows, the header first.

    A second header, which is not an entry, has a 0 there.
    """

    session_id: str
    version: int
    created_us: int | None
    notes: Notes
    lines: array[int]
    prompts: Recent[JsonObject] = field(default_factory=lambda: Recent(_REMEMBERED))
    """The sections of the system prompt at an entry, where there are any."""

    def id_on(self, line: int) -> str:
        """Return the id of the version 1 entry on a line, which has none of its own."""
        return derived_id(self.session_id, line)

    def id_at(self, index: int) -> str:
        """Return the id of the version 1 entry of a readable row, counted from the header, which is 0; or ""."""
        line = self.lines[index] if 0 < index < len(self.lines) else 0
        return self.id_on(line) if line else ""


def new_entry(row: Row, file: PiFile) -> NewEntry:
    """Return the entry that a row becomes; what of it had to be changed is noted. Never raises. O(size)."""
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
    moment = read_moment(row.fields.get("timestamp"))
    if moment is None:
        message = body.get("message")
        moment = read_moment(message.get("timestamp")) if isinstance(message, dict) else None
        moment = file.created_us if moment is None else moment
        file.notes.repair(row.line, f"entry {row.id!r} has no readable timestamp")
    if "timestamp" in row.fields and row.fields["timestamp"] != (None if moment is None else iso_time(moment)):
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
        built=True,
    )


def _content(row: Row, body: JsonObject, file: PiFile) -> tuple[NewEntry, JsonObject]:
    """Return the entry a row makes, and the fields that stand beside its payload. Raises `InvalidEntry`."""
    prompt = _note_prompt(row, file)
    if row.type == MESSAGE:
        return _message(row, body, file, prompt)
    if row.type == COMPACTION:
        return _compaction(row, body, file), {}
    if row.type == CONTEXT_EDIT and isinstance(body.get("targetId"), str) and "replacement" in body:
        return _plain(EXCLUSION, _context_edit(row, body, file)), {}
    if row.type == CUSTOM and (artifact := _artifact(body)) is not None:
        return _plain(ARTIFACT, artifact), {}
    entry = _plain(_checked_kind(row, body, file), body)
    if row.type in (USAGE, BRANCH_SUMMARY) and body.get("usage") is not None:
        calls = _calls_beside(row, body, entry, file)
        entry = replace(entry, calls=calls, unpaid=not calls)
    return entry, {}


def _artifact(body: JsonObject) -> JsonObject | None:
    """Return the artifact that a custom row of ours has, which an export wrote; None for any other row."""
    data = body.get("data")
    is_ours = body == {"customType": ARTIFACT, "data": data}
    return data if is_ours and isinstance(data, dict) else None


def _context_edit(row: Row, body: JsonObject, file: PiFile) -> JsonObject:
    """Return an edit of the context as an exclusion; one that puts something in an entry's place takes it back in."""
    target = body["targetId"]
    replacement = body[REPLACEMENT]
    if replacement is None:
        return {"entryId": target, **body}
    try:
        if not isinstance(replacement, (str, list)):
            raise InvalidEntry("should be text or a list of parts")
        validate_message({"role": "user", "content": replacement}, REPLACEMENT)
    except InvalidEntry as error:
        file.notes.repair(
            row.line, f"puts another content in place of that of {shown(target)}, {error}; the context leaves it out"
        )
        return {"entryId": target, **body}
    return {"entryId": target, "excluded": False, **body}


def _calls_beside(row: Row, body: JsonObject, entry: NewEntry, file: PiFile) -> tuple[PaidCall, ...]:
    """Return the call that was paid for something other than a message; pi's forks keep id and time of its row."""
    told_by = f"{row.id} {row.fields.get('timestamp')} {entry.payload}".encode()
    purpose = body.get("kind") if row.type == USAGE else row.type
    usage = read_reported(body["usage"])
    _note_oddities(usage.oddities, row, file)
    call = call_of(
        usage,
        provider=body.get("provider"),
        model=body.get("model"),
        call_id=call_id(FORMAT, told_by),
        purpose=purpose[:64] if isinstance(purpose, str) and purpose else USAGE,
    )
    return (call,) if any(usage.totals) or not usage.is_known else ()


def _note_oddities(oddities: Sequence[str], row: Row, file: PiFile) -> None:
    for oddity in oddities:
        file.notes.repair(row.line, oddity)


def _checked_kind(row: Row, body: JsonObject, file: PiFile) -> str:
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
    return NewEntry(kind, text, surrogates_replaced=replaced, built=True)


def _message(row: Row, body: JsonObject, file: PiFile, prompt: JsonObject) -> tuple[NewEntry, JsonObject]:
    message = body.get("message")
    rest = {name: value for name, value in body.items() if name != "message"}
    if not isinstance(message, dict):
        raise InvalidEntry("message: should be an object")
    if file.version < NEWEST_VERSION and message.get("role") == "hookMessage":
        message = {**message, "role": "custom"}
    if message.get("role") == "system" and isinstance(message.get(SECTIONS), dict) and not message.get("content"):
        rest[WRITTEN] = {name: value for name, value in message.items() if name == "content"}
        message = {**message, "content": prompt_text({SECTIONS: prompt})}
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


def _note_prompt(row: Row, file: PiFile) -> JsonObject:
    """Return the sections of the system prompt at a row, and remember them for those that follow it.

    A system message changes the sections that it names, and takes out those that it names as null.
    """
    before = (None if row.parent is None else file.prompts.get(row.parent)) or {}
    message = row.fields.get("message" if row.type == MESSAGE else PROMPT)
    sections = message.get(SECTIONS) if isinstance(message, dict) and message.get("role") == "system" else None
    if isinstance(sections, dict):
        start = before if row.type == MESSAGE else {}
        before = {name: text for name, text in {**start, **sections}.items() if text is not None}
    if before:
        file.prompts.put(row.id, before)
    return before


def _call_id(entry: NewEntry, told_by: str = "") -> str:
    # pi copies messages, times and all, into the files of its forks: the ledger must know them again, while
    # pi's eight-character entry ids may well repeat between files that have nothing to do with each other.
    return call_id(FORMAT, (told_by + entry.payload).encode())


def _compaction(row: Row, body: JsonObject, file: PiFile) -> NewEntry:
    if not isinstance(body.get("summary"), str):
        raise InvalidEntry("compaction.summary: should be a string")
    fields = dict(body)
    index = fields.get("firstKeptEntryIndex")
    if file.version < 2 and isinstance(index, int) and not isinstance(index, bool):
        target = file.id_at(index)
        if target:
            fields = {name: value for name, value in fields.items() if name != "firstKeptEntryIndex"}
        fields["firstKeptEntryId"] = target
    if not isinstance(fields.get("firstKeptEntryId"), str) or not fields["firstKeptEntryId"]:
        fields["firstKeptEntryId"] = ""
        file.notes.repair(row.line, "names no first kept entry; nothing before the compaction is kept")
    tokens = fields.get("tokensBefore")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        fields["tokensBefore"] = 0
        file.notes.repair(row.line, f"tokensBefore: {shown(tokens)} is not a count of tokens; 0 is stored")
    usage = read_reported(fields.get("usage"))
    _note_oddities(usage.oddities, row, file)
    text, replaced = encode_json(fields, COMPACTION)
    entry = NewEntry(COMPACTION, text, usage=usage.totals, surrogates_replaced=replaced, built=True)
    if fields.get("usage") is None:
        return entry
    return replace(entry, calls=(call_of(usage, purpose=COMPACTION, call_id=_call_id(entry)),))


def _unreadable(kind: str, body: JsonObject, row: Row) -> NewEntry:
    try:
        return _plain(kind, {"type": row.type, **body})
    except InvalidEntry:
        # Numbers that overflow and nesting beyond what is stored: the line itself holds it all.
        return _plain(kind, {"type": row.type, "line": row.text})


def _printable(value: JsonValue) -> JsonValue:
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    try:
        return repr(value)
    except RecursionError:
        return shown(value)
