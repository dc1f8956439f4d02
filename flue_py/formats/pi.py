"""pi session files."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core import kinds
from flue_py.core.context import PROMPT, ContextEntry, EntryCost
from flue_py.core.entries import (
    BASE,
    MODEL_CHANGE,
    RANGES,
    REPLACEMENT,
    THINKING_LEVEL_CHANGE,
    Entry,
    NewEntry,
    checked_kind,
    entry_of_message,
)
from flue_py.core.json import JsonObject, JsonValue, encode_json, without
from flue_py.core.messages import validate_message
from flue_py.core.sessions import MAX_LABEL_CHARACTERS, NewSession, call_id, derived_id, made_id
from flue_py.core.usage import PICODOLLARS_PER_DOLLAR, Cost, PaidCall, call_of, read_reported, usage_json
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.formats import kit
from flue_py.providers.base import Leftovers, difference, fields_of, listed, restored
from flue_py.providers.openai_chat import calls_in

# The fields that pi asks of every message, put into messages that do not have them, and taken out again when the file
# comes back.
#
# A row of such a message has a field that names the values that were put in. Without it the zeros that pi asks for
# would come back as a cost of nothing, although the cost is unknown.

FILLED = "flue_py"
"""The field of a row that names the values that were put into its message: a `difference`."""

_TOKENS: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_COST: JsonObject = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
_PARTS = ("input", "output", "cacheRead", "cacheWrite")
_LOST = 1e-9
"""Which part of a total its parts may lack, since they are floats."""
_ANSWER = ("api", "provider", "model", "stopReason", "usage", "timestamp")
_MAY_BE_FILLED = frozenset({*_ANSWER, "toolName", "isError"})


def filled(message: JsonObject, created_us: int) -> tuple[JsonObject, JsonObject]:
    """Return a message with every field that pi reads unchecked, and the difference by which `unfilled` undoes it.

    The content of an answer or a tool result becomes a list of parts, which means the same and is not undone.
    """
    whole = dict(message)
    role = message.get("role")
    if role in ("assistant", "toolResult") and not isinstance(message.get("content"), list):
        text = message.get("content")
        whole["content"] = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    whole.setdefault("timestamp", created_us // 1000)
    if role == "assistant":
        for name in ("api", "provider", "model"):
            whole.setdefault(name, "unknown")
        whole.setdefault("stopReason", "toolUse" if calls_in(whole) else "stop")
        whole["usage"] = _filled_usage(message.get("usage"))
    elif role == "toolResult":
        whole.setdefault("toolName", "unknown")
        whole.setdefault("isError", False)
    return whole, difference(_fillable(whole), _fillable(message))


def _filled_usage(usage: JsonValue) -> JsonObject:
    reported = _given(usage)
    cost = _filled_cost(_given(reported.get("cost")))
    return {**_TOKENS, **usage_json(read_reported(usage)), **reported, "cost": cost}


def _filled_cost(cost: JsonObject) -> JsonObject:
    """Return a cost with zeros for missing parts; without those that would be parts of a larger total."""
    there = [value for name in _PARTS if isinstance(value := cost.get(name, 0), (int, float))]
    total = cost.get("total")
    is_larger = isinstance(total, (int, float)) and total - sum(there) > _LOST * total
    return cost if is_larger else {**_COST, **cost}


def _given(value: JsonValue) -> JsonObject:
    return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else {}


def _fillable(message: JsonObject) -> JsonObject:
    return {name: value for name, value in message.items() if name in _MAY_BE_FILLED}


def unfilled(message: JsonObject, marker: JsonValue) -> JsonObject:
    """Return a message of a file without the fields of `filled`; ``marker`` may be any value that stood in the row."""
    if not isinstance(marker, dict):
        return message
    undo: JsonObject = {
        "unset": [name for name in _MAY_BE_FILLED if name in listed(marker.get("unset"))],
        "set": _fillable(fields_of(marker.get("set"))),
    }
    return restored(message, undo)


def has_reported_cost(usage: JsonValue) -> bool:
    """Return whether a usage object has the cost of its call."""
    reported = read_reported(usage)
    # A value that cannot be a cost was reported all the same, and goes out as it is.
    return reported.cost is not None or any(".cost" in oddity for oddity in reported.oddities)


def with_cost(usage: JsonValue, cost: EntryCost, parts: Cost | None) -> JsonObject:
    """Return a usage object, or an empty one, with the known cost of the calls behind an entry, and its parts."""
    reported = fields_of(usage)
    dollars: JsonObject = {"total": _dollars(cost.picodollars)}
    if parts is not None:
        split = (parts.input, parts.output, parts.cache_read, parts.cache_write)
        dollars |= {name: _dollars(part) for name, part in zip(_PARTS, split, strict=True)}
    return {**reported, "cost": {**_given(reported.get("cost")), **dollars}}


def _dollars(picodollars: int) -> float:
    return picodollars / PICODOLLARS_PER_DOLLAR if picodollars else 0


# The entries that the rows of a pi session file become.
#
# Ids, parents, times, kinds and messages are the file's own. Fields without a place in an entry's payload go to its
# ``extra``. No fault of a row is fatal. docs/formats/pi.md lists the fields that are kept, repaired and left out.

FORMAT = "pi"
NEWEST_VERSION = 3

CUSTOM = "custom"
LABEL = "label"
SESSION_INFO = "session_info"
CONTEXT_EDIT = "context_edit"
_BESIDE = "flue_py_beside"
"""The field of an exclusion with what stands beside the content in the replacement of an edit."""
TOOLS_CHANGE = "active_tools_change"
LEAF = "leaf"
"""A row of pi's agent library: the leaf went to its target."""
USAGE = "usage"
EMPTY_BRANCH_SUMMARY = "empty_branch_summary"
"""A branch summary without text: pi leaves it out of the context, so it is not stored as a `BRANCH_SUMMARY`."""
UNREADABLE = "unreadable_"
"""Before the kind of an entry whose content cannot be of its type: kept whole, never in the context."""

WRITTEN = "flue_py_written"
"""The field beside a system message whose text was in sections: its content in the file."""
_REMEMBERED = 50_000
"""How many rows back a row may name a parent that knows the prompt."""

_PLAIN_KINDS = frozenset({CUSTOM, LABEL, LEAF, SESSION_INFO, MODEL_CHANGE, THINKING_LEVEL_CHANGE, TOOLS_CHANGE, USAGE})
_CHECKED_KINDS = frozenset({kinds.MESSAGE, kinds.COMPACTION, kinds.BRANCH_SUMMARY, kinds.CUSTOM_MESSAGE})
_ENVELOPE = frozenset({"type", "id", "parentId", "timestamp"})


class PiFile(Struct):
    """The facts of one file that its entries need. ``lines`` are those of its readable rows, the header first.

    A second header, which is not an entry, has a 0 there.
    """

    session_id: str
    version: int
    created_us: int | None
    notes: kit.Notes
    lines: array[int]
    prompts: kit.Recent[JsonObject] = field(default_factory=lambda: kit.Recent(_REMEMBERED))
    """The sections of the system prompt at an entry, where there are any."""

    def id_on(self, line: int) -> str:
        """Return the id of the version 1 entry on a line, which has none of its own."""
        return derived_id(self.session_id, line)

    def id_at(self, index: int) -> str:
        """Return the id of the version 1 entry of a readable row, counted from the header, which is 0; or ""."""
        line = self.lines[index] if 0 < index < len(self.lines) else 0
        return self.id_on(line) if line else ""


def new_entry(row: kit.Row, file: PiFile) -> NewEntry:
    """Return the entry that a row becomes; each change is noted. Never raises. O(size)."""
    # In version 1 id and parentId mean nothing: they are kept like any unknown field.
    envelope = _ENVELOPE if file.version > 1 else _ENVELOPE - {"id", "parentId"}
    body = {name: value for name, value in row.fields.items() if name not in envelope}
    beside: JsonObject = {"line": row.line} if file.version < 2 else {}
    try:
        entry, rest = _content(row, body, file)
        if rest:
            encode_json(rest, "extra")  # here, so that a value that JSON text cannot hold makes the row unreadable
    except InvalidEntry as error:
        kind = UNREADABLE + (row.type if row.type in _CHECKED_KINDS else "entry")
        # Where numbers overflow, or values are nested beyond the bound, the line itself holds it all.
        bodies: tuple[JsonObject, ...] = ({"type": row.type, **body}, {"type": row.type, "line": row.text})
        entry, rest = kit.unreadable_entry(kind, error, file.notes, row.line, *bodies), {}
    beside.update(rest)
    time = row.fields.get("timestamp")
    moment = kit.read_moment(time)
    is_kept = moment is None or not (isinstance(time, str) and kit.PRINTED_TIME.fullmatch(time))
    if moment is None:
        moment = kit.read_moment(fields_of(body.get("message")).get("timestamp"))
        moment = file.created_us if moment is None else moment
        file.notes.repair(row.line, f"entry {row.id!r} has no readable timestamp")
    if is_kept and "timestamp" in row.fields and (time, moment) != (None, None):
        beside["timestamp"] = _printable(time)
    if row.lost_parent is not None:
        beside["parentId"] = row.lost_parent
    extra, replaced = encode_json(beside, "extra") if beside else (None, 0)
    replaced += entry.surrogates_replaced
    file.notes.surrogates_replaced += replaced
    name, above = row.id, row.parent
    return replace(
        entry, id=name, parent_id=above, created_us=moment, extra=extra, surrogates_replaced=replaced, oddities=()
    )


def _content(row: kit.Row, body: JsonObject, file: PiFile) -> tuple[NewEntry, JsonObject]:
    """Return the entry a row makes, and the fields that stand beside its payload. Raises `InvalidEntry`."""
    prompt = _note_prompt(row, file)
    if row.type == kinds.MESSAGE:
        return _message(row, body, file, prompt)
    if row.type == kinds.COMPACTION:
        return _compaction(row, body, file), {}
    if row.type == CONTEXT_EDIT and isinstance(body.get("targetId"), str) and "replacement" in body:
        return kit.stored_entry(kinds.EXCLUSION, _context_edit(row, body, file)), {}
    artifact = body.get("data")
    if row.type == CUSTOM and isinstance(artifact, dict) and body == {"customType": kinds.ARTIFACT, "data": artifact}:
        return kit.stored_entry(kinds.ARTIFACT, artifact), {}  # a row of ours
    entry = kit.stored_entry(_checked_kind(row, body, file), body)
    if row.type in (USAGE, kinds.BRANCH_SUMMARY) and body.get("usage") is not None:
        entry = replace(entry, calls=_calls_beside(row, body, entry, file))
    return entry, {}


def _context_edit(row: kit.Row, body: JsonObject, file: PiFile) -> JsonObject:
    """Return an edit of the context as an exclusion; one that puts something in an entry's place takes it back in."""
    target, replacement = body["targetId"], body[REPLACEMENT]
    edit: JsonObject = {"entryId": target, **body}
    if replacement is None:
        return edit
    content = fields_of(replacement).get("content", replacement)
    try:
        if not isinstance(content, (str, list)):
            raise InvalidEntry("should be text or a list of parts")
        validate_message({"role": "user", "content": content}, REPLACEMENT)
    except InvalidEntry as error:
        file.notes.repair(
            row.line, f"puts another content in place of that of {shown(target)}, {error}; the context leaves it out"
        )
        return edit
    beside: JsonObject = {_BESIDE: without(replacement, "content")} if isinstance(replacement, dict) else {}
    return {"entryId": target, "excluded": False, **body, REPLACEMENT: content, **beside}


def _calls_beside(row: kit.Row, body: JsonObject, entry: NewEntry, file: PiFile) -> tuple[PaidCall, ...]:
    """Return the call that was paid for a row that is not a message; pi's forks keep id and time of its row."""
    identity = f"{row.id} {row.fields.get('timestamp')} {entry.payload}".encode()
    purpose = body.get("kind") if row.type == USAGE else row.type
    usage = read_reported(body["usage"])
    file.notes.repair(row.line, *usage.oddities)
    call = call_of(
        usage,
        provider=body.get("provider"),
        model=body.get("model"),
        call_id=call_id(FORMAT, identity),
        purpose=purpose[:64] if isinstance(purpose, str) and purpose else USAGE,
    )
    return (call,) if any(usage.totals) or not usage.is_known else ()


def _checked_kind(row: kit.Row, body: JsonObject, file: PiFile) -> str:
    kind = row.type
    if kind == kinds.BRANCH_SUMMARY:
        if not isinstance(body.get("summary"), str):
            raise InvalidEntry("branch_summary.summary: should be a string")
        return kind if body["summary"] else EMPTY_BRANCH_SUMMARY
    if kind == kinds.CUSTOM_MESSAGE:
        if not isinstance(body.get("content"), (str, list)):
            raise InvalidEntry("custom_message.content: should be a string or a list of parts")
        validate_message({"role": "user", "content": body["content"]}, kinds.CUSTOM_MESSAGE)
    elif kind not in _PLAIN_KINDS:
        file.notes.unknown_kinds[kind] += 1
        checked_kind(kind)
    return kind


def _message(row: kit.Row, body: JsonObject, file: PiFile, prompt: JsonObject) -> tuple[NewEntry, JsonObject]:
    message = body.get("message")
    rest = without(body, "message")
    if not isinstance(message, dict):
        raise InvalidEntry("message: should be an object")
    if file.version < NEWEST_VERSION and message.get("role") == "hookMessage":
        message = {**message, "role": "custom"}
    if message.get("role") == "system" and isinstance(message.get(kinds.SECTIONS), dict) and not message.get("content"):
        rest[WRITTEN] = {name: value for name, value in message.items() if name == "content"}
        message = {**message, "content": kinds.prompt_text({kinds.SECTIONS: prompt})}
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
        entry = entry_of_message(without(message, "usage"))
        rest["usage"] = message["usage"]
        file.notes.repair(row.line, f"{error}; the message is kept, its usage is not counted")
    file.notes.repair(row.line, *entry.oddities)
    if entry.calls:
        entry = replace(entry, calls=tuple(replace(call, call_id=_call_id(entry, told_by)) for call in entry.calls))
    return entry, rest


def _note_prompt(row: kit.Row, file: PiFile) -> JsonObject:
    """Return the sections of the system prompt at a row, and remember them for those that follow it.

    A system message changes the sections that it names, and takes out those that it names as null.
    """
    before = (None if row.parent is None else file.prompts.get(row.parent)) or {}
    message = row.fields.get("message" if row.type == kinds.MESSAGE else PROMPT)
    sections = message.get(kinds.SECTIONS) if isinstance(message, dict) and message.get("role") == "system" else None
    if isinstance(sections, dict):
        start = before if row.type == kinds.MESSAGE else {}
        before = {name: text for name, text in {**start, **sections}.items() if text is not None}
    if before:
        file.prompts.put(row.id, before)
    return before


def _call_id(entry: NewEntry, told_by: str = "") -> str:
    # pi copies messages, times and all, into the files of its forks: the ledger must know them again, while
    # pi's eight-character entry ids may well repeat between files that have nothing to do with each other.
    return call_id(FORMAT, (told_by + entry.payload).encode())


def _compaction(row: kit.Row, body: JsonObject, file: PiFile) -> NewEntry:
    if not isinstance(body.get("summary"), str):
        raise InvalidEntry("compaction.summary: should be a string")
    fields = dict(body)
    index = fields.get("firstKeptEntryIndex")
    if file.version < 2 and isinstance(index, int) and not isinstance(index, bool):
        target = file.id_at(index)
        if target:
            fields = without(fields, "firstKeptEntryIndex")
        fields["firstKeptEntryId"] = target
    if not isinstance(fields.get("firstKeptEntryId"), str) or not fields["firstKeptEntryId"]:
        fields["firstKeptEntryId"] = ""
        if fields.get("retainedTail") != []:
            file.notes.repair(row.line, "names no first kept entry; nothing before the compaction is kept")
    tokens = fields.get("tokensBefore")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        fields["tokensBefore"] = 0
        file.notes.repair(row.line, f"tokensBefore: {shown(tokens)} is not a count of tokens; 0 is stored")
    usage = read_reported(fields.get("usage"))
    file.notes.repair(row.line, *usage.oddities)
    text, replaced = encode_json(fields, kinds.COMPACTION)
    entry = NewEntry(kinds.COMPACTION, text, usage=usage.totals, surrogates_replaced=replaced, built=True)
    if fields.get("usage") is None:
        return entry
    return replace(entry, calls=(call_of(usage, purpose=kinds.COMPACTION, call_id=_call_id(entry)),))


def _printable(value: JsonValue) -> JsonValue:
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    try:
        return repr(value)
    except RecursionError:
        return shown(value)


# pi session files, versions 1 to 3, row by row: files of any length, in little memory.
#
# Version 1 has no ids: an entry's id is then derived from the session's id and the number of its line, so that the same
# file always gives the same entries. pi stores no leaf: it is the last entry of the file. Only a file that does not
# begin with a session header is refused.
#
# A row whose parent comes later in the file waits for it, up to a bound; beyond that it becomes a root.

_MAX_WAITING = 100_000
_MAX_WAITING_BYTES = 16 * 2**20
_PLACED, _LEFT_OUT, _WAITING = 1, 2, 3
# How pi begins a row: a type, then the id. Any other row is decoded to find its id.
_BEGINNING = re.compile(rb'\s*\{"type"\s*:\s*"([^"\\]*)"\s*,\s*"id"\s*:\s*"([^"\\]+)"')


def looks_like_pi(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a pi session file."""
    row = next((row for row in kit.first_rows(first_bytes) if isinstance(row.get("type"), str)), {})
    return row.get("type") == "session" and kit.is_name(row.get("id")) and "entries" not in row


class PiReader(kit.RowReader):
    """Reads a pi session file row by row (see `Reader`)."""

    needs_scan = True

    def __init__(self, name: str = "the file", about: JsonObject | None = None, notes: kit.Notes | None = None) -> None:
        """Make a reader; ``about`` are facts for the metadata that do not stand in the file."""
        super().__init__(name)
        self._notes = notes or self._notes
        self._about = about or {}
        self._file: PiFile | None = None
        self._session: NewSession | None = None
        self._has_ids: bool | None = None
        """Whether its rows have ids of their own; None until the scan has met the header."""

        self._announced = kit.IdTable()
        self._known = kit.IdTable()
        self._missed = kit.IdTable()
        """Entries that rows name, and that are not in the file."""
        self._first_lines: dict[str, int] = {}
        """The line of the first row of each id that occurs more than once."""

        self._previous: str | None = None
        self._waiting: dict[str, list[kit.Row]] = {}
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._last_line = 0
        self._title_line = 0
        self._label_lines: dict[str, int] = {}
        self._early_labels: list[tuple[int, kit.LabelChange]] = []
        """Labels, with their lines, of entries that were still to come."""

        self._draft = kit.Draft()

    # the interface

    def scan(self, number: int, raw: bytes) -> None:
        """Take down the id of a row, so that the entries that come later are known."""
        if self._has_ids is False:
            return
        name: JsonValue
        begins = _BEGINNING.match(raw)
        if begins is not None and begins[1] != b"session":
            name = begins[2].decode(errors="replace")
        else:
            row = kit.decode_row(number, raw, kit.Notes()) or {}
            if row.get("type") == "session" and self._has_ids is None:
                self._has_ids = _version(row) >= 2
            name = row.get("id")
            if row.get("type") == "session" or not kit.is_name(name):
                return
        if self._file is not None and (self._announced.get(name), self._missed.get(name)) != (None, None):
            raise kit.ReadAgain
        if self._announced.put(name) is not None:
            self._first_lines[name] = 0

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row. Raises `UnreadableFile` if the first one is not a session header."""
        self.read(kit.Row(number, raw, fields))

    def read(self, row: kit.Row) -> None:
        """Read a row that is decoded already. Raises `UnreadableFile` as `feed` does."""
        if self._file is None:
            self._file = self._begin(row)
            return
        is_header, number = row.type == "session", row.line
        if self._file.version < 2:
            self._file.lines.append(0 if is_header else number)
        if is_header:
            self._notes.skip(number, "is a second session header")
        elif self._file.version < 2:
            row.id, row.parent = self._file.id_on(number), self._previous
            self._previous = row.id
            self._hand_over(row, self._file)
        else:
            self._place(row, self._file)

    def _begin(self, row: kit.Row) -> PiFile:
        header = row.fields
        session_id = _session_id(header, self._name)
        version = _version(header)
        created_us = kit.read_moment(header.get("timestamp"))
        about: JsonObject = {"version": version, "header": header, **self._about}
        cwd = kit.one_text(header.get("cwd"))
        self._session = kit.imported_session(
            session_id, FORMAT, self._name, about, self._notes, cwd=cwd, created_us=created_us
        )
        return PiFile(session_id, version, created_us, self._notes, array("Q", [row.line]))

    @property
    def ready(self) -> int:
        """How many entries can be taken."""
        return len(self._draft.entries)

    def take(self) -> list[kit.SessionPart]:
        """Return the part that is ready."""
        session, draft = self._session, self._draft
        if session is None or self._file is None or not draft.has_part:
            return []
        if draft.titles:
            session = replace(session, title=draft.titles[-1].title)
        # Labels wait for the entries that they are of.
        waiting = [label for label in draft.labels if self._known.get(label.target_id) != _PLACED]
        draft.labels = [label for label in draft.labels if label not in waiting]
        part = draft.take(FORMAT, str(self._file.version), session)
        draft.labels = waiting
        return [part]

    def finish(self, *, take_all: bool) -> list[kit.SessionPart]:
        """Return the last part. A pi entry is one row, so that nothing is held back."""
        if self._file is None:
            _session_id({}, self._name)
        else:
            self._give_up_waiting("is missing", self._file)
        for line, label in self._early_labels:
            if self._known.get(label.target_id) != _PLACED:
                self._note_no_target(line, label.target_id)
        return self.take()

    # where rows stand in the tree

    def _place(self, row: kit.Row, file: PiFile) -> None:
        entry_id, parent = row.fields.get("id"), row.fields.get("parentId")
        if not kit.is_name(entry_id):
            self._notes.skip(row.line, kit.unusable_id(entry_id))
            return
        if self._known.get(entry_id) is not None:
            first = self._first_lines.get(entry_id)
            self._notes.skip(row.line, f"repeats the id {entry_id!r} of line {first}; the first one counts")
            return
        if entry_id in self._first_lines:
            self._first_lines[entry_id] = row.line
        row.id = entry_id
        row.parent = parent if isinstance(parent, str) and parent else None
        if row.parent == row.id:
            self._make_root(row, "names itself as its parent")
        elif row.parent is not None and self._known.get(row.parent) != _PLACED:
            if self._may_come(row.parent):
                self._wait(row, row.parent, file)
                return
            self._make_root(row, f"names the parent {shown(row.parent)}, which is missing")
        self._emit(row, file)

    def _may_come(self, entry_id: str) -> bool:
        """Return whether an entry that was not returned may still be."""
        state = self._known.get(entry_id)
        if state is None and self._announced.get(entry_id) is None:
            self._missed.put(entry_id)
            return False
        return state in (_WAITING, None)

    def _make_root(self, row: kit.Row, why: str) -> None:
        row.lost_parent, row.parent = row.parent, None
        self._notes.repair(row.line, f"entry {row.id!r} {why}; it became a root")

    def _wait(self, row: kit.Row, parent: str, file: PiFile) -> None:
        self._known.put(row.id, _WAITING)
        self._waiting.setdefault(parent, []).append(row)
        self._waiting_count += 1
        self._waiting_bytes += len(row.raw)
        if self._waiting_count > _MAX_WAITING or self._waiting_bytes > _MAX_WAITING_BYTES:
            self._give_up_waiting("comes too much later", file)

    def _give_up_waiting(self, why: str, file: PiFile) -> None:
        """Leave out rows that are their own ancestors, and make roots of those that wait for nothing that waits."""
        rows = sorted((row for waiting in self._waiting.values() for row in waiting), key=lambda row: row.line)
        by_id = {row.id: row for row in rows}
        cyclic = _on_cycles(by_id)
        for row in cyclic:
            self._known.put(row.id, _LEFT_OUT)
            self._notes.skip(row.line, f"entry {row.id!r} is its own ancestor (its parent is {shown(row.parent)})")
        left_out = {row.id for row in cyclic}
        for row in rows:
            is_orphan = row.parent in left_out
            if row.id in left_out or (row.parent in by_id and not is_orphan):
                continue
            self._waiting.pop(str(row.parent), None)
            self._make_root(row, f"names the parent {shown(row.parent)}, which {'is missing' if is_orphan else why}")
            self._emit(row, file)
        self._waiting, self._waiting_count, self._waiting_bytes = {}, 0, 0

    def _emit(self, row: kit.Row, file: PiFile) -> None:
        """Hand an entry over, and those that were waiting for it."""
        ready = [row]
        while ready:
            row = ready.pop()
            self._hand_over(row, file)
            for late in reversed(self._waiting.pop(row.id, ())):
                self._waiting_count -= 1
                self._waiting_bytes -= len(late.raw)
                ready.append(late)

    def _hand_over(self, row: kit.Row, file: PiFile) -> None:
        self._known.put(row.id, _PLACED)
        self._draft.entries.append(new_entry(row, file))
        self._draft.lines.append(row.line)
        kind = row.type
        if row.line > self._last_line:
            self._last_line = row.line
            leaf = row.fields.get("targetId") if kind == LEAF else row.id
            if isinstance(leaf, str) and self._known.get(leaf) == _PLACED:
                self._draft.leaves.append(leaf)
        if kind == SESSION_INFO:
            self._retitle(row)
        elif kind == LABEL:
            self._label(row)

    # titles and labels: the last one in the file counts

    def _retitle(self, row: kit.Row) -> None:
        title = (kit.one_text(row.fields.get("name")) or "").strip()
        if title and row.line > self._title_line:
            self._title_line = row.line
            self._draft.titles.append(kit.TitleChange(row.id, title))

    def _label(self, row: kit.Row) -> None:
        target, label = row.fields.get("targetId"), kit.one_text(row.fields.get("label")) or ""
        is_there = isinstance(target, str) and self._known.get(target) == _PLACED
        if not isinstance(target, str) or not (is_there or self._may_come(target)):
            self._note_no_target(row.line, target)
            return
        if len(label) > MAX_LABEL_CHARACTERS:
            self._notes.repair(row.line, f"a label of {len(label)} characters was cut to {MAX_LABEL_CHARACTERS}")
        if row.line < self._label_lines.get(target, 0):
            return
        self._label_lines[target] = row.line
        change = kit.LabelChange(row.id, target, label[:MAX_LABEL_CHARACTERS] or None)
        self._draft.labels.append(change)
        if not is_there:
            self._early_labels.append((row.line, change))

    def _note_no_target(self, line: int, target: object) -> None:
        self._notes.repair(line, f"labels {shown(target)}, which is not in the file; no label was set")


read_pi = PiReader


def _version(header: JsonObject) -> int:
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


def _session_id(header: JsonObject, name: str) -> str:
    """Return the session's id. Raises `UnreadableFile` if the first readable row is not a header with one."""
    session_id = header.get("id")
    is_header = header.get("type") == "session"
    if is_header and kit.is_name(session_id):
        return session_id
    if is_header and isinstance(session_id, str) and session_id:
        raise UnreadableFile(f"{name}: its session header {kit.unusable_id(session_id)}; nothing was imported")
    raise UnreadableFile(
        f"{name} is not a pi session: its first readable line is not a session header with an id; nothing was imported"
    )


def _on_cycles(by_id: Mapping[str, kit.Row]) -> list[kit.Row]:
    """Return the rows that are their own ancestors. A row has one parent, so that a walk ends in one cycle at most."""
    cyclic: list[kit.Row] = []
    met_from: dict[str, str] = {}
    for start in by_id:
        at: str | None = start
        while at is not None and at in by_id and at not in met_from:
            met_from[at] = start
            at = by_id[at].parent
        if at is None or met_from.get(at) != start:
            continue
        row, first = by_id[at], len(cyclic)
        while len(cyclic) == first or row is not cyclic[first]:
            cyclic.append(row)
            row = by_id[str(row.parent)]
    return cyclic


# A session as a pi session file, version 3: every branch, the active path last.
#
# pi stores no leaf: it takes the last row. Rows of a pi file go back as they were, fields kept in ``extra`` included;
# an entry that pi has no row for becomes a ``custom`` row, which it keeps and never shows.

_KINDS = frozenset({CUSTOM, LABEL, SESSION_INFO, MODEL_CHANGE, THINKING_LEVEL_CHANGE})
_SENT = frozenset({"system", "user", "assistant", "toolResult", "bashExecution", "custom"})


class _File(Struct):
    session: kit.SessionTree
    header: JsonObject | None
    """The header of the pi file that the session came from; None if it came from none."""
    left: Leftovers
    ids: set[str]

    @property
    def version(self) -> int:
        version = (self.header or {}).get("version", 1)
        return version if isinstance(version, int) else 1


def export_pi(session: kit.SessionTree) -> kit.Exported:
    """Return a session as a pi file, with its labels.

    A cost that was priced goes out as one that was reported. Off the active path entries keep their order, and come
    first where the leaf is not the last of them. Labels and a title that no entry sets get rows of their own. Cost:
    O(entries).
    """
    info, entries, left = session.info, session.entries, Leftovers()
    imported = fields_of(info.metadata.get("imported"))
    header = fields_of(imported.get("header")) if imported.get("format") == FORMAT else None
    file = _File(session, header, left, {entry.id for entry in entries})
    rows: list[tuple[str, JsonObject | str]] = [(entry.id, _row(entry, file)) for entry in _active_path_last(session)]
    if entries and session.leaf_id is None:
        left.note("that the leaf is before the first entry: pi continues at the last row")
    _set_names(rows, file)
    for _ in session.tasks:
        left.note("a link to a task session")
    lines = [kit.json_line(_header(file))]
    lines += [row if isinstance(row, str) else kit.json_line(row) for _, row in rows]
    text, cwd = "\n".join(lines) + "\n", info.cwd or "/"
    folder = re.sub(r"[/\\:]", "-", cwd.removeprefix("/"))
    time = re.sub(r"[:.]", "-", kit.iso_time(info.active_us))
    place = f"~/.pi/agent/sessions/--{folder}--/{time}_{kit.id_elsewhere(session)}.jsonl"
    way = kit.Continuation(place, (("pi", "--session", kit.FILE),), info.cwd)
    return kit.Exported(FORMAT, text, left.notes(), is_rows=True, continuation=way)


def _header(file: _File) -> JsonObject:
    header = file.header or {}
    cwd = header.get("cwd", file.session.info.cwd)
    return {
        **header,
        "type": "session",
        "version": NEWEST_VERSION,
        "id": file.session.info.id,
        "timestamp": header.get("timestamp") or kit.iso_time(file.session.info.created_us),
        "cwd": "" if cwd is None else cwd,
    }


def _active_path_last(session: kit.SessionTree) -> list[Entry]:
    entries = session.entries
    if session.leaf_id is None or not entries or entries[-1].id == session.leaf_id:
        return list(entries)
    path = {entry.id for entry in session.path()}
    return [entry for entry in entries if entry.id not in path] + [entry for entry in entries if entry.id in path]


# Rows


def _row(entry: Entry, file: _File) -> JsonObject | str:
    beside = entry.extra_fields
    kind, body = _body(entry, beside, file)
    if isinstance(body, str):
        return body
    row = _envelope(kind, entry.id, entry.parent_id, entry.created_us)
    row.update((name, value) for name, value in body.items() if name not in row)
    if "timestamp" in beside:
        row["timestamp"] = beside.pop("timestamp")
    if entry.parent_id is None and "parentId" in beside:
        row["parentId"] = beside.pop("parentId")
    if file.header is not None and file.version < 2:
        beside.pop("line", None)  # where it stood in a file that had no ids
    if entry.source is not None:
        beside.setdefault("source", entry.source)
    for name, value in beside.items():
        if name in row:
            file.left.note(f"a field {name!r} that pi has another meaning for")
        else:
            row[name] = value
    return row


def _envelope(kind: str, name: str, parent: str | None, at_us: int) -> JsonObject:
    return {"type": kind, "id": name, "parentId": parent, "timestamp": kit.iso_time(at_us)}


def _body(entry: Entry, beside: JsonObject, file: _File) -> tuple[str, JsonObject | str]:
    """Return the type of a row and its own fields; or a row that is kept as its line."""
    kind, data = entry.kind, entry.data
    if kind == kinds.MESSAGE and isinstance(data, dict):
        if data.get("role") == "system" and file.header is None:
            # Beside a system message that names no tools pi 1.6 offers none.
            file.left.change("the system prompt goes out as a custom row: pi has one of its own")
            return CUSTOM, {"customType": "system_prompt", "data": data}
        if "usage" in beside and "usage" not in data:
            data["usage"] = beside.pop("usage")
        return kinds.MESSAGE, _write_message(entry, data, beside, file)
    if kind == kinds.COMPACTION and isinstance(data, dict):
        _note_pins(data, file)
        if "unreadableUsage" in data:
            data["usage"] = data.pop("unreadableUsage")
        elif isinstance(data.get("usage"), dict):
            _add_known_cost(entry, data, file)
    if kind == kinds.EXCLUSION and (edit := _edit(fields_of(data))) is not None:
        return CONTEXT_EDIT, edit
    if file.header is not None and isinstance(data, dict):
        return _as_it_was(kind, data, file)
    if kind == kinds.CUSTOM_MESSAGE:
        return kinds.CUSTOM_MESSAGE, _custom_message(entry, data)
    return _of_another(kind, data, file)


def _edit(data: JsonObject) -> JsonObject | None:
    """Return an edit of pi's as it was; None for an exclusion that was made elsewhere."""
    if "targetId" not in data or REPLACEMENT not in data:
        return None
    beside, content = data.get(_BESIDE), data[REPLACEMENT]
    whole = content if beside is None else {**fields_of(beside), "content": content}
    return {**without(data, "entryId", "excluded", _BESIDE), REPLACEMENT: whole}


def _of_another(kind: str, data: JsonValue, file: _File) -> tuple[str, JsonObject]:
    """Return the type and the fields of the row of an entry, no message, that did not come from pi."""
    if kind in (kinds.BRANCH_SUMMARY, EMPTY_BRANCH_SUMMARY) and isinstance(data, dict):
        return kinds.BRANCH_SUMMARY, {**data, "fromId": data.get("fromId") or "root"}
    is_known = kind == kinds.COMPACTION or (kind in _KINDS and (kind != CUSTOM or "customType" in fields_of(data)))
    if not is_known or not isinstance(data, dict):
        return _custom(kind, data, file)
    return kind, data


def _as_it_was(kind: str, data: JsonObject, file: _File) -> tuple[str, JsonObject | str]:
    """Return the row that an entry of an imported pi file was there, or that of one that was added since."""
    if kind.startswith(UNREADABLE) and isinstance(data.get("type"), str):
        line = data.get("line")
        if isinstance(line, str) and file.version >= 2:
            return kind, line
        if line is None:
            return str(data["type"]), without(data, "type")
    if kind in (kinds.ARTIFACT, kinds.EXCLUSION) or kind.startswith(UNREADABLE):
        return _custom(kind, data, file)
    if kind == EMPTY_BRANCH_SUMMARY:
        return kinds.BRANCH_SUMMARY, data
    if kind == kinds.BRANCH_SUMMARY and data.get("fromId") is None and "fromId" in data:
        data["fromId"] = "root"
    return kind, data


def _custom(kind: str, data: JsonValue, file: _File) -> tuple[str, JsonObject]:
    if kind == kinds.EXCLUSION:
        file.left.change("an exclusion goes out as a custom row: pi shows the entry that it took out of the context")
    else:
        file.left.change(f"entries of kind {kind!r} go out as custom rows")
    return CUSTOM, {"customType": kind, "data": data}


def _note_pins(data: JsonObject, file: _File) -> None:
    for name, value in data.items():
        if name.lower().startswith("pin") and value:
            file.left.change("what a compaction keeps by pins is in the file, but pi does not show it")
    if BASE in data and not data.get("summary"):
        file.left.change("a compaction that leaves messages out is in the file, but pi shows an empty summary for them")
    if data.get(RANGES):
        file.left.change("the ranges of a compaction are in the file, but pi shows what they stand for")


def _custom_message(entry: Entry, data: JsonValue) -> JsonObject:
    fields = fields_of(data)
    content = fields.get("content")
    if not isinstance(content, (str, list)):
        content = ContextEntry(entry).data["content"]
    kind = fields.get("customType")
    return {
        **fields,
        "customType": kind if isinstance(kind, str) else "flue_py",
        "content": content,
        "display": fields.get("display", True),
    }


def _write_message(entry: Entry, message: JsonObject, beside: JsonObject, file: _File) -> JsonObject:
    """Return the fields of a message's row: one of pi's own as it is, any other with the fields that pi asks for."""
    if entry.role not in _SENT:
        file.left.change(f"a message of role {entry.role!r} is in the file, but pi does not send it")
    written = beside.pop(WRITTEN, None)
    if isinstance(written, dict):
        message["content"] = written.get("content")
        if "content" not in written:
            del message["content"]
    was_filled = beside.pop(FILLED, None) is not None
    if entry.role == "assistant":
        _add_known_cost(entry, message, file)
    if file.header is not None and "timestamp" in message and not was_filled:
        return {"message": message}  # pi has written it itself: it always says when
    if entry.role == "assistant" and not has_reported_cost(message.get("usage")):
        file.left.change("usage or a cost that was not reported stands as zeros, which pi asks for")
    whole, undo = filled(message, entry.created_us)
    return {"message": whole, FILLED: undo} if undo else {"message": whole}


def _add_known_cost(entry: Entry, holder: JsonObject, file: _File) -> None:
    """Put the cost of an entry in the ledger into its usage, if none was reported."""
    cost = file.session.costs.get(entry.id)
    if cost is None or not cost.calls or not cost.is_known or has_reported_cost(holder.get("usage")):
        return
    if cost.unpriced_calls:
        file.left.change("a cost of which only a part is known stands as that part")
    file.left.change("a cost that the ledger has by a price stands as one that was reported")
    holder["usage"] = with_cost(holder.get("usage"), cost, file.session.cost_parts(entry, cost.picodollars))


# Title and labels


def _set_names(rows: list[tuple[str, JsonObject | str]], file: _File) -> None:
    """Put in rows for the labels and the title that the rows as they stand do not give, right before the leaf's."""
    added: list[tuple[str, JsonObject]] = []
    parents = {entry.id: entry.parent_id for entry in file.session.entries}
    wanted = {target: label for target, label in file.session.labels.items() if target in file.ids}
    written, name = _names_in([row for _, row in rows if not isinstance(row, str)])
    for target in [*wanted, *(target for target in written if target not in wanted and target in file.ids)]:
        if written.get(target) != wanted.get(target):
            label: JsonObject = {"label": wanted[target]} if target in wanted else {}
            added.append((LABEL, {"targetId": target, **label}))
    title = file.session.info.title
    if title is not None and title.strip() and title.strip() != name:
        added.append((SESSION_INFO, {"name": title}))
    elif title is None and name is not None:
        file.left.note("that the session has no title: pi goes on showing the name it was given")
    if not added:
        return
    if not rows:
        file.left.note("the title: pi has no row for it before the first entry")
        return
    leaf = rows[-1]
    is_name_row = not isinstance(leaf[1], str) and leaf[1].get("type") in (LABEL, SESSION_INFO)
    # After the leaf they would be the leaf; a row of their kind would undo them, so that they come after such a one.
    if is_name_row:
        file.left.change("rows for a label or the title stand behind the leaf, and are pi's leaf")
    parent = leaf[0] if is_name_row else parents.get(leaf[0])
    at = len(rows) if is_name_row else len(rows) - 1
    for kind, body in added:
        words = (file.session.info.id, kind, str(body.get("targetId")))
        row_id = kit.first_unused(partial(_row_id, words), file.ids)
        file.ids.add(row_id)
        rows.insert(at, (row_id, _envelope(kind, row_id, parent, file.session.info.updated_us) | body))
        at += 1
        parent = row_id if is_name_row else parent


def _row_id(words: tuple[str, ...], number: int) -> str:
    return made_id(*words, str(number))[:8]


def _names_in(rows: Iterable[JsonObject]) -> tuple[dict[str, str], str | None]:
    """Return the labels that rows set, by entry, and the last name of the session in them."""
    labels: dict[str, str] = {}
    title = None
    for row in rows:
        target, label, name = row.get("targetId"), row.get("label"), row.get("name")
        if row.get("type") == LABEL and isinstance(target, str):
            if isinstance(label, str) and label:
                labels[target] = label.replace("\0", "")[:MAX_LABEL_CHARACTERS]
            else:
                labels.pop(target, None)
        elif row.get("type") == SESSION_INFO and isinstance(name, str) and name.strip():
            title = name.replace("\0", "").strip()
    return labels, title
