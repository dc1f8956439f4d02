"""The common ground of the formats: rows, documents, lists, entries, and the values of readers and writers."""

from __future__ import annotations

import json
import re
import shlex
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeGuard, TypeVar, cast
from uuid import NAMESPACE_OID, UUID, uuid5

import pydantic_core
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from flue_py.core.context import ContextEntry, EntryCost, project
from flue_py.core.entries import Entry, NewEntry, checked_kind, entry_of_message, from_microseconds, to_microseconds
from flue_py.core.json import MAX_DIGITS, Frozen, JsonObject, JsonValue, encode_json, replace_lone_surrogates, without
from flue_py.core.kinds import MESSAGE, SHOWN_KINDS
from flue_py.core.sessions import MAX_NAME_BYTES, NewSession, SessionInfo, TaskLink, derived_id, is_usable, made_id
from flue_py.core.usage import NO_USAGE, Cost, PaidCall, ReportedUsage, by_model, call_of, read_reported
from flue_py.errors import InvalidEntry, UnreadableFile, shown
from flue_py.providers.anthropic import messages_from_anthropic
from flue_py.providers.base import ExportNote, Leftovers
from flue_py.providers.openai_chat import calls_in

if TYPE_CHECKING:
    from typing import Unpack

# The report of a parser on the rows of a file: which it left out, which it repaired, and why.


class LineNote(Frozen):
    """A remark about one line of a file, from 1; or about an item of a list, from 0, by its ``unit``."""

    line: int
    text: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.text}"


class ParseReport(Frozen, rename="camel"):
    """The outcome of the rows of one file.

    ``rows`` counts the lines that are not blank, the header among them. ``skipped`` are rows that made no entry,
    ``repaired`` are rows that made one that differs from the row; both are in order of line.
    ``unknown_kinds`` counts, by name, the entries kept of kinds this version has no meaning for. Of very many notes
    only the first are listed; ``skipped_rows`` and ``repaired_rows`` count them all. ``merged`` counts the rows that
    became part of another row's entry, ``left_out``, by reason, those that say nothing of their own, ``held_back`` the
    rows at the end that may not be complete, from the line ``held_back_from``.
    """

    rows: int
    skipped: tuple[LineNote, ...] = ()
    repaired: tuple[LineNote, ...] = ()
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)
    surrogates_replaced: int = 0
    skipped_rows: int = 0
    repaired_rows: int = 0
    merged: int = field(default=0, name="mergedRows")
    left_out: Mapping[str, int] = field(default_factory=dict)
    held_back: int = field(default=0, name="heldBackRows")
    held_back_from: int | None = field(default=None, name="heldBackFromLine")


def joined(reports: Sequence[ParseReport]) -> ParseReport:
    """Return the one report of a file whose sessions have several."""
    if len(reports) == 1:
        return reports[0]
    sums = ("rows", "surrogates_replaced", "skipped_rows", "repaired_rows", "merged", "held_back")
    fields: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in sums}
    for name in ("unknown_kinds", "left_out"):
        fields[name] = dict(sum((Counter(getattr(report, name)) for report in reports), Counter[str]()))
    return ParseReport(
        skipped=tuple(note for report in reports for note in report.skipped),
        repaired=tuple(note for report in reports for note in report.repaired),
        held_back_from=min((line for report in reports if (line := report.held_back_from) is not None), default=None),
        **fields,
    )


# Rows of a JSONL file: reading them, and the report on them.
#
# No fault of a row is fatal: a row that cannot be used is left out, and noted by its line number.

MAX_NOTES = 1_000
"""How many notes of a kind a report lists. It counts them all."""


class RawRow(Struct):
    """One line of a file, with its number, from 1."""

    line: int
    raw: bytes

    @property
    def text(self) -> str:
        """The row as it stands in the file."""
        return self.raw.decode(errors="replace").strip()


class Row(RawRow):
    """One line that is a JSON object with a type, and the place in the tree it turns out to have.

    ``lost_parent`` is the parent it names if there is no such entry; ``parent`` is then None.
    """

    fields: JsonObject
    id: str = ""
    parent: str | None = None
    lost_parent: str | None = None

    @property
    def type(self) -> str:
        """The type of the row, by its own word."""
        return self.fields["type"]  # type: ignore[return-value]


class Notes(Struct):
    """The report while it is being written; ``unit`` is the name of the things that are numbered in it."""

    unit: str = "line"
    rows: int = 0
    skipped: list[LineNote] = field(default_factory=list)
    repaired: list[LineNote] = field(default_factory=list)
    unknown_kinds: Counter[str] = field(default_factory=Counter)
    surrogates_replaced: int = 0
    skipped_rows: int = 0
    repaired_rows: int = 0
    merged: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    held_back: int = 0
    held_back_from: int | None = None

    def skip(self, line: int, why: str) -> None:
        """Note that a line made no entry."""
        self.skipped_rows += 1
        if len(self.skipped) < MAX_NOTES:
            self.skipped.append(LineNote(line, why, self.unit))

    def repair(self, line: int, *faults: str) -> None:
        """Note that a line made an entry that differs from it, in each of these ways."""
        self.repaired_rows += len(faults)
        room = MAX_NOTES - len(self.repaired)
        self.repaired += [LineNote(line, fault, self.unit) for fault in faults[:room]]

    def hold_back(self, line: int) -> None:
        """Note that a line at the end was not taken, since the message that it belongs to may not be complete."""
        self.held_back += 1
        if self.held_back_from is None or line < self.held_back_from:
            self.held_back_from = line

    def restart(self) -> None:
        """Forget everything that was noted: it is of another file."""
        self.__init__(self.unit)  # type: ignore[misc]

    def report(self) -> ParseReport:
        """Return the report, its notes in order of line."""
        fields = asdict(self)
        del fields["unit"]
        for name in ("skipped", "repaired"):
            fields[name] = tuple(sorted(fields[name], key=lambda note: note.line))
        for name in ("unknown_kinds", "left_out"):
            fields[name] = dict(sorted(fields[name].items()))
        return ParseReport(**fields)


def read_rows(lines: Iterable[bytes], notes: Notes) -> list[Row]:
    """Return the lines that are JSON objects with a type, in file order. Blank lines do not count."""
    rows = []
    for number, raw in enumerate(lines, 1):
        fields = decode_row(number, raw, notes)
        if fields is not None and has_type(number, fields, notes):
            rows.append(Row(number, raw, fields))
    return rows


def decode_row(number: int, raw: bytes, notes: Notes) -> JsonObject | None:
    """Return the JSON object on a line; None for a blank line, and if it is not an object, which is noted. O(size)."""
    data = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
    if not data or data.isspace():
        return None
    notes.rows += 1
    try:
        value = pydantic_core.from_json(data, allow_inf_nan=False)
    except (ValueError, TypeError):  # a TypeError for half of a surrogate pair
        value = _decode_carefully(number, data.strip(), notes)
        if value is None:
            return None
    if type(value) is not dict:
        notes.skip(number, f"is a JSON {type(value).__name__}, not an object")
        return None
    return value


def object_in(data: bytes) -> JsonObject:
    """Return the JSON object that bytes are; {} if they are none. O(size)."""
    return decode_row(2, data, Notes()) or {}


def _decode_carefully(number: int, data: bytes, notes: Notes) -> object:
    """Return the value of a line that the fast parser refuses; None if the slow one refuses it, too, which is noted."""
    text = data.decode(errors="replace")
    words: list[str] = []

    def as_text(word: str) -> str:
        words.append(word)
        return word

    try:
        value = json.loads(text, parse_constant=as_text)
    except (ValueError, RecursionError) as error:
        notes.skip(number, f"is not JSON ({_reason(error)}); a torn or damaged line")
        return None
    if words:
        notes.repair(number, f"{words[0]} is not a JSON number; it is kept as text")
    if "\ufffd" in text and text.encode() != data:
        notes.repair(number, "bytes that are not UTF-8 were replaced by U+FFFD")
    if value is None:
        notes.skip(number, "is a JSON NoneType, not an object")
    return cast("object", value)


def has_type(number: int, fields: JsonObject, notes: Notes) -> bool:
    """Return whether a row has a type; note it if it has none."""
    if isinstance(fields.get("type"), str):
        return True
    notes.skip(number, "has no type")
    return False


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the id of something new: text that is not empty nor too long, without controls."""
    if type(value) is str and 0 < len(value) <= MAX_NAME_BYTES and value.isascii() and value.isprintable():
        return True
    return isinstance(value, str) and is_usable(value)


def unusable_id(value: object) -> str:
    """Return the fault of the id of a row that has none to use."""
    return "has no usable id" if value in (None, "") else f"has the id {shown(value)}, which cannot be used"


# Documents that are one JSON value: the value, and the items of a list in it, whatever state it is in.
#
# A list is read item by item where it cannot be read whole, so that one bad item, or a torn end, costs that item only.
# Items count from 0.

_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLANK = re.compile(r"[\s,]*")


class Item(Frozen):
    """One object of a list, with its index."""

    index: int
    value: JsonObject


class Items(Frozen):
    """The objects of a list, and the fields ``beside`` the list in the object that holds it."""

    items: Sequence[Item]
    beside: JsonObject = field(default_factory=dict)


def read_document(data: bytes, notes: Notes, name: str) -> JsonValue:
    """Return the value of a JSON document. Raises `UnreadableFile`. Numbers that cannot be stored are noted."""
    text = _decoded(data, notes)
    try:
        return _loads(text, notes)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{name} is not a JSON document ({_reason(error)}); nothing was imported") from error


def read_object(data: bytes, notes: Notes, name: str) -> JsonObject:
    """Return the object of a JSON document. Raises `UnreadableFile`."""
    value = read_document(data, notes, name)
    if not isinstance(value, dict):
        raise UnreadableFile(f"{name} is a JSON {type(value).__name__}, not an object; nothing was imported")
    return value


def read_items(data: bytes, notes: Notes, name: str, keys: Sequence[str]) -> Items:
    """Return the objects in a list, in an object that has one under one of ``keys``, or one a line.

    Items that are not objects, or cannot be read, are skipped. Raises `UnreadableFile` for anything else. O(size).
    """
    text = _decoded(data, notes)
    start = text.lstrip()[:1]
    try:
        value = _loads(text, notes)
    except (ValueError, RecursionError) as error:
        if start == "[":
            return Items(tuple(_objects(_one_by_one(text, notes), notes)))
        if start == "{" and _is_one_a_line(text):
            return Items(tuple(_objects(_line_by_line(text, notes), notes)))
        raise UnreadableFile(f"{name} is not a JSON document ({_reason(error)}); nothing was imported") from error
    if isinstance(value, list):
        return Items(tuple(_objects(enumerate(value), notes)))
    if isinstance(value, dict):
        for key in keys:
            values = value.get(key)
            if isinstance(values, list):
                return Items(tuple(_objects(enumerate(values), notes)), without(value, key))
        if "role" in value or "type" in value:
            return Items(tuple(_objects(enumerate([value]), notes)))
    raise UnreadableFile(f"{name} holds no list of messages; nothing was imported")


def items_of(value: JsonValue, notes: Notes) -> list[Item]:
    """Return the objects of a list inside a document; none if it is not a list."""
    return list(_objects(enumerate(value), notes)) if isinstance(value, list) else []


def _objects(values: Iterator[tuple[int, JsonValue]] | enumerate[JsonValue], notes: Notes) -> Iterator[Item]:
    for index, value in values:
        notes.rows += 1
        if isinstance(value, dict):
            yield Item(index, value)
        else:
            notes.skip(index, f"is a JSON {type(value).__name__}, not an object")


def _decoded(data: bytes, notes: Notes) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf")
    text = data.decode(errors="replace")
    if "\ufffd" in text and text.encode() != data:
        notes.repair(0, "bytes that are not UTF-8 were replaced by U+FFFD")
    return text


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


# JSON that others print


def _decoder(notes: Notes, index: Callable[[], int]) -> json.JSONDecoder:
    def constant(word: str) -> str:
        notes.repair(index(), f"{word} is not a JSON number; it is kept as text")
        return word

    def integer(digits: str) -> int | str:
        if len(digits.lstrip("-")) <= MAX_DIGITS:
            return int(digits)
        notes.repair(index(), f"a number of {len(digits)} digits is kept as text")
        return digits

    return json.JSONDecoder(parse_constant=constant, parse_int=cast("Callable[[str], int]", integer))


def _loads(text: str, notes: Notes) -> JsonValue:
    trial = Notes(notes.unit)
    value = _decoder(trial, lambda: 0).decode(text)
    # Only now: where the document is read again, item by item, the notes are made again.
    for note in trial.repaired:
        notes.repair(note.line, note.text)
    return cast("JsonValue", value)


def _one_by_one(text: str, notes: Notes) -> Iterator[tuple[int, JsonValue]]:
    """Yield the values of a list that cannot be read whole, with their indexes."""
    at, index = text.index("[") + 1, 0
    decoder = _decoder(notes, lambda: index)
    while True:
        at = cast("re.Match[str]", _BLANK.match(text, at)).end()
        if at >= len(text):
            notes.skip(index, "the list is torn here")
            return
        if text[at] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
            yield index, cast("JsonValue", value)
        except (ValueError, RecursionError) as error:
            notes.rows += 1
            notes.skip(index, f"is not JSON ({_reason(error)}); a torn or damaged item")
            end = _end_of_value(text, at)
            if end is None:
                return
            at = end
        index += 1


def _end_of_value(text: str, at: int) -> int | None:
    """Return where a value that cannot be read ends, by its brackets; None if it does not end."""
    depth = 0
    for match in _BRACKET.finditer(text, at):
        sign = match.group()
        if sign in ("{", "["):
            depth += 1
        elif sign in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return match.end() if depth == 0 else None
    return None


def _is_one_a_line(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and lines[0].lstrip().startswith("{") and lines[0].rstrip().endswith("}")


def _line_by_line(text: str, notes: Notes) -> Iterator[tuple[int, JsonValue]]:
    index = 0
    decoder = _decoder(notes, lambda: index)
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            yield index, cast("JsonValue", decoder.decode(line.strip()))
        except (ValueError, RecursionError) as error:
            notes.rows += 1
            notes.skip(index, f"is not JSON ({_reason(error)}); a torn or damaged item")
        index += 1


# Entries made from JSON that was just decoded: the checks of values that JSON text cannot hold are not made again.

_CONTENT = {"user": (str, list), "assistant": (str, list, type(None)), "toolResult": (str, list, type(None))}
"""What the content of those messages may be that need no further look, by role."""


def encode_decoded(value: JsonValue, name: str) -> tuple[str, int]:
    """Return the same as `encode_json` for a value that was decoded by `pydantic_core.from_json`, sooner.

    Such a value holds nothing but JSON, is nested no deeper than can be stored, and has no integer that cannot be read
    back; only numbers may overflow.
    """
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants").decode()
    except Exception:  # noqa: BLE001 - as in `encode_json`, which names the fault
        return encode_json(value, name)
    if "Infinity" in text:
        return encode_json(value, name)
    return text, 0


def message_content(message: JsonObject, usage: ReportedUsage | None = None) -> NewEntry:
    """Return the same as `entry_of_message`, without paid calls, for a message that a reader put together, sooner.

    Every part has to be of its type's shape; ``usage`` is that of an answer, if it was read. Raises `InvalidEntry`.
    """
    role, content = message.get("role"), message.get("content")
    is_plain = isinstance(role, str) and type(content) in _CONTENT.get(role, ())
    if not isinstance(role, str) or not is_plain or (role == "toolResult" and not message.get("toolCallId")):
        return replace(entry_of_message(message), oddities=())
    text, replaced = encode_decoded(message, "message")
    totals = NO_USAGE
    if role == "assistant":
        totals = (read_reported(message.get("usage")) if usage is None else usage).totals
    return NewEntry(MESSAGE, text, role, usage=totals, surrogates_replaced=replaced, built=True)


def stored_entry(
    kind: str, body: JsonValue, encode: Callable[[JsonValue, str], tuple[str, int]] = encode_json
) -> NewEntry:
    """Return an entry that is not a message. Raises `InvalidEntry` for a body that cannot be stored."""
    text, replaced = encode(body, kind)
    return NewEntry(kind, text, surrogates_replaced=replaced, built=True)


def unreadable_entry(kind: str, error: InvalidEntry, notes: Notes, line: int, *bodies: JsonValue) -> NewEntry:
    """Return a row that cannot be of its type: the first of ``bodies`` that can be stored; and note it."""
    notes.repair(line, f"{error}; kept as {kind}, outside the context")
    for body in bodies[:-1]:
        with suppress(InvalidEntry):
            return stored_entry(kind, body)
    return stored_entry(kind, bodies[-1])


def with_call(
    entry: NewEntry,
    reported: JsonObject | ReportedUsage,
    notes: Notes,
    line: int,
    *,
    provider: str,
    model: str,
    call_id: str,
    purpose: str = "turn",
) -> NewEntry:
    """Return an entry with the call that was paid for it, as ``reported``; oddities of that are noted."""
    usage = reported if isinstance(reported, ReportedUsage) else read_reported(reported)
    notes.repair(line, *usage.oddities)
    call = call_of(usage, provider=provider, model=model, call_id=call_id, purpose=purpose)
    return replace(entry, calls=by_model(call, usage))


def first_unused(make: Callable[[int], str], used: Container[str]) -> str:
    """Return the first id that is not used of those that are made of a number, from 0, as these were used in order.

    O(log(used)): many rows may say the same.
    """
    end, first = 1, make(0)
    if first not in used:
        return first
    while make(end) in used:
        end *= 2
    return make(bisect_left(range(end + 1), True, end // 2 + 1, key=lambda number: make(number) not in used))


# The session that an exporter gets, and the text of a file that it returns, with notes on what is not in that.


class SessionTree(Frozen):
    """A session to be exported: its row, every entry it sees (`Session.get_tree`), a leaf, labels, tasks and costs.

    ``labels`` are by entry. ``costs`` are those of the entries in the ledger (`Session.money.entry_costs`), and
    ``cost_parts`` returns such a cost by kind of token, None if only its total is known.
    """

    info: SessionInfo
    entries: Sequence[Entry]
    leaf_id: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    tasks: Sequence[TaskLink] = ()
    costs: Mapping[str, EntryCost] = field(default_factory=dict)
    cost_parts: Callable[[Entry, int], Cost | None] = lambda _entry, _picodollars: None

    def path(self) -> list[Entry]:
        """Return the entries from the root to the leaf. O(entries)."""
        by_id = {entry.id: entry for entry in self.entries}
        path: list[Entry] = []
        at = by_id.get(self.leaf_id or "")
        while at is not None:
            path.append(at)
            at = by_id.get(at.parent_id or "")
        return path[::-1]

    def context(self) -> list[ContextEntry]:
        """Return the context at the leaf. O(entries)."""
        return project(self.path())


class Continuation(Frozen):
    """The way on with an exported session in its program: where the file lies, and the commands to type.

    ``place`` begins with ``~``, the home. ``commands`` may name the file as `FILE`; they are typed in ``folder``, if
    there is one. ``beside`` are texts of other files that the program needs, by their paths from that of the file.
    """

    place: str
    commands: tuple[tuple[str, ...], ...]
    folder: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict)

    def line(self, path: str) -> str:
        """Return the line to type, for a shell, of a file at this path."""
        commands = self.commands if self.folder is None else (("cd", self.folder), *self.commands)
        return " && ".join(shlex.join(path if word == FILE else word for word in command) for command in commands)


FILE = "FILE"
"""The word of a `Continuation` that stands for the path of the file."""


def id_elsewhere(session: SessionTree) -> UUID:
    """Return the id that a session has in another program: the same for the same leaf."""
    return uuid5(NAMESPACE_OID, f"{session.info.id}\n{session.leaf_id}")


class Exported(Frozen):
    """A session in another format. ``notes`` name every part that was left out or changed.

    ``text`` is that of a whole file of the format, its last line end included.
    """

    format: str
    text: str
    notes: tuple[ExportNote, ...] = ()
    is_rows: bool = False
    """Whether the text is JSONL."""
    continuation: Continuation | None = None
    """The way on in the program, of formats that a program resumes."""

    @property
    def value(self) -> JsonValue:
        """The value of the text: of JSONL the list of its rows."""
        if self.is_rows:
            return [json.loads(line) for line in self.text.splitlines() if line]
        return json.loads(self.text)  # type: ignore[no-any-return]


def exported_json(format_name: str, value: JsonValue, left: Leftovers) -> Exported:
    """Return a value as the text of a document of its own."""
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, indent=2))[0]
    return Exported(format_name, text + "\n", left.notes())


def json_line(value: JsonValue) -> str:
    """Return a value as one line of JSONL, without its end."""
    # U+2028 and its like stay escaped: some readers take them for the end of a line.
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))[0]
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")


# Parsed files: sessions to create, with their entries, in terms that no foreign format knows.


class LabelChange(Frozen):
    """A label entry: from here on ``target_id`` is called ``label``; None clears it."""

    entry_id: str
    target_id: str
    label: str | None


class TaskOf(Frozen):
    """The session that a task session belongs to, and the name of the task there."""

    session_id: str
    task_id: str


def task_session_id(session_id: str, agent: str) -> str:
    """Return the id of the task session of an agent: one that can be found by that of its parent."""
    whole = f"{session_id}:{agent}"
    return whole if len(whole.encode()) <= 500 else f"{session_id[:100]}:{derived_id(whole)}"


def task_below(parent: JsonValue, session_id: str) -> TaskOf | None:
    """Return the place of a session below the one that its row names as its parent; None if it names no other."""
    return TaskOf(parent, session_id) if is_name(parent) and parent != session_id else None


# Texts and times as files of other programs have them, and as they are stored.


def one_text(value: JsonValue, most: int = 0) -> str | None:
    """Return a text that can be stored as a name or title, cut to ``most`` characters; None if it is not a string."""
    if not isinstance(value, str):
        return None
    text = value
    if not value.isascii() or "\0" in value:
        text = replace_lone_surrogates(value.replace("\0", ""))[0]
    return text[:most] if most else text


def text_in(fields: Mapping[str, JsonValue], name: str) -> str:
    """Return a field that is a text, as `one_text` does; "" for any other value."""
    return one_text(fields.get(name)) or ""


def count_of(value: JsonValue) -> int:
    """Return a number of things, as of tokens; 0 for anything else."""
    return value if type(value) is int and value > 0 else 0


def read_time(value: JsonValue) -> int | None:
    """Return an ISO 8601 text in microseconds since 1970 UTC; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return to_microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def read_moment(value: JsonValue) -> int | None:
    """Return an ISO 8601 text, or a number, in microseconds since 1970 UTC; None for anything else.

    A number is one of milliseconds since 1970, but of seconds if it is too small for these: before 1973.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 253_402_300_800_000:
        return int(value * (1_000_000 if value < 100_000_000_000 else 1000))
    return read_time(value)


PRINTED_TIME = re.compile(r"\d{4}-\d\d-\d\dT(?!24)\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
"""Matches a readable time that `iso_time` prints like that."""


def iso_time(microseconds: int) -> str:
    """Return microseconds since 1970 UTC as JavaScript prints a time: UTC, to the millisecond, with a Z."""
    return from_microseconds(microseconds).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def entry_kind(prefix: str, name: str) -> str:
    """Return the kind of entry that a row outside the conversation becomes, by the name that its program gives it."""
    return (prefix + re.sub(r"[^A-Za-z0-9_.:-]", "_", name))[:64]


# Histories that are plain lists: their messages as a chain of entries, each with an id that stays the same.
#
# An entry without an id of its own gets one made from the session's id, the entry before it and its content. The same
# list always gives the same ids, a longer one begins with them, and a list that was changed in the middle becomes a
# branch beside the entries that were imported before.

UNREADABLE_MESSAGE = "unreadable_message"
"""The kind of an entry whose message cannot be one: kept whole, never in the context."""


def message_entry(message: JsonObject, original: JsonValue, at: int, notes: Notes) -> tuple[NewEntry, JsonObject]:
    """Return a message as an entry, and the fields for its ``extra``. Never raises.

    Usage that cannot be counted is noted; so is a value that cannot be a message at all, which is kept as ``original``,
    in an entry outside the context.
    """
    try:
        entry = entry_of_message(message)
    except InvalidEntry as error:
        usage = message.get("usage")
        if message.get("role") == "assistant" and _storable(usage) is not usage:
            notes.repair(at, f"{error}; it is kept as text")
            return message_entry({**message, "usage": _storable(usage)}, original, at, notes)
        notes.repair(at, f"{error}; kept as {UNREADABLE_MESSAGE}, outside the context")
        return plain_entry(UNREADABLE_MESSAGE, _storable(original)), {}
    notes.repair(at, *entry.oddities)
    return entry, {}


def plain_entry(kind: str, data: JsonValue) -> NewEntry:
    """Return an entry of any kind, its payload made storable. Raises `InvalidEntry` for the kind."""
    return stored_entry(checked_kind(kind), _storable(data))


def _storable(value: JsonValue) -> JsonValue:
    """Return a value that JSON text here can hold: itself, or its own text where numbers or nesting forbid it."""
    try:
        encode_json([[[value]]], "value")  # it will stand a few levels deep
    except InvalidEntry:
        try:
            return {"text": json.dumps(value, ensure_ascii=False)}
        except (ValueError, RecursionError):
            return {"text": shown(value)}
    return value


class Chain(Struct):
    """A list that is being made into entries, each the child of the one before it."""

    session_id: str
    notes: Notes
    entries: list[NewEntry] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    leaf: str | None = None
    linked: str = ""
    """The id that the next made id is made from."""

    placed: dict[tuple[str | None, str], str] = field(default_factory=dict)
    """The entries of `follow`, by the one before them, and their payloads."""
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The ids that entries had before they were complete, as in `SessionPart`."""

    def own_name(self, row: Row, name: str, other: Callable[[int], str]) -> str:
        """Return the id of an entry of a row: ``name``, or the first of ``other`` that is free if that is not; noted.

        A row whose own id is not ``row.id`` has none that can be used, which is noted as well.
        """
        own = row.fields.get("id")
        if name == row.id != own:
            self.notes.repair(row.line, f"{unusable_id(own)}; it was given another")
        if name in self.lines:
            self.notes.repair(row.line, f"repeats the id {name!r}; it was given another")
            name = first_unused(other, self.lines)
        return name

    def add(
        self,
        entry: NewEntry,
        at: int,
        *,
        beside: Mapping[str, JsonValue] | None = None,
        entry_id: str | None = None,
        created_us: int | None = None,
        is_link: bool = True,
        known_by: NewEntry | None = None,
    ) -> str:
        """Put an entry at the end of the chain, and return its id.

        ``at`` is its line or index. An id that is made is made of the words of ``known_by``, if it is given. Without
        ``is_link`` the ids of later entries do not depend on this one.
        """
        extra, replaced = encode_json(_storable(dict(beside)), "extra") if beside else (None, 0)
        words = (self.session_id, self.linked, (known_by or entry).kind, (known_by or entry).payload)
        name = entry_id or first_unused(lambda number: made_id(*words, str(number)), self.lines)
        surrogates = entry.surrogates_replaced + replaced
        self.notes.surrogates_replaced += surrogates
        calls = tuple(replace(call, call_id=call.call_id or f"import:{name}") for call in entry.calls)
        placed = replace(entry, id=name, parent_id=self.leaf, created_us=created_us, extra=extra, calls=calls)
        self.entries.append(replace(placed, surrogates_replaced=surrogates))
        self.lines[name] = len(self.entries) if self.notes.unit == "item" else at
        self.leaf = name
        if is_link:
            self.linked = name
        return name

    def say(
        self,
        message: JsonObject,
        item: Item,
        *,
        words: JsonObject,
        usage: JsonObject | None,
        call: tuple[str, JsonValue],
        beside: JsonObject,
        created_us: int | None,
    ) -> str:
        """Add a message, known by those before it and its own ``words``; one with tokens, which come later, by both.

        ``call`` has the format and the id of its call, if that has one. Return the id of the entry.
        """
        plain, _ = message_entry(words, item.value, item.index, Notes())
        known = name = made_id(self.session_id, self.linked, plain.kind, plain.payload)
        if usage is not None:
            message, name = {**message, "usage": usage}, made_id(known, json.dumps(usage))
            self.earlier[name] = (known,)
        entry, noted = message_entry(message, item.value, item.index, self.notes)
        entry, fields = with_response(entry, call[0], call[1] or known), {**beside, **noted}
        self.add(entry, item.index, beside=fields, entry_id=name, created_us=created_us, is_link=False)
        self.linked = known
        return name

    def follow(
        self, entry: NewEntry, at: int, *, beside: Mapping[str, JsonValue] | None = None, created_us: int | None = None
    ) -> None:
        """Go on to an entry below the leaf: one that is there, if it says the same, as lists begin alike."""
        key = self.leaf, entry.payload
        self.notes.merged += key in self.placed
        # The same list gives the same ids, wherever it is.
        self.linked = self.leaf or ""
        self.leaf = self.placed[key] = self.placed.get(key) or self.add(entry, at, beside=beside, created_us=created_us)

    def parsed(
        self,
        format_name: str,
        name: str,
        document: Mapping[str, JsonValue],
        *,
        version: str = "1",
        is_rewritten: bool = True,
        **fields: Unpack[SessionFields],
    ) -> SessionPart:
        """Return the session (see `imported_session`) with the chain's entries, its leaf being the end of the chain."""
        session = imported_session(self.session_id, format_name, name, document, self.notes, **fields)
        part = whole_part(format_name, version, session, self.entries, self.leaf, self.lines, self.notes.report())
        return replace(part, parent=fields.get("parent"), is_rewritten=is_rewritten, earlier=self.earlier)


def messages_of(
    role: JsonValue, content: JsonValue, tools: dict[str, str], sent: Callable[[JsonObject], JsonObject]
) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield our messages of one in Anthropic's form, each with the fields for its ``extra``.

    ``sent`` returns a block as it is sent. ``tools`` are the names of the calls so far, by id; new ones are put in.
    """
    if isinstance(content, list):
        content = [sent(block) if isinstance(block, dict) else block for block in content]
    for message, extra in messages_from_anthropic({"role": role, "content": content}, tools):
        tools.update(calls_in(message))
        yield message, extra


class SessionFields(TypedDict, total=False):
    """The fields of a session that a file has: texts may be any values of a row, of which one that is no text is none.

    With ``parent`` it is a session of a task.
    """

    title: JsonValue
    auto_title: JsonValue
    cwd: JsonValue
    created_us: int | None
    parent: TaskOf | None


def imported_session(
    session_id: str,
    format_name: str,
    name: str,
    document: Mapping[str, JsonValue],
    notes: Notes,
    **fields: Unpack[SessionFields],
) -> NewSession:
    """Return the session to create; its metadata says where it came from, with the rest of the document."""
    parent = fields.get("parent")
    imported: JsonObject = {"format": format_name, "file": one_text(name), **document}
    links: JsonObject = {} if parent is None else {"parentSession": parent.session_id, "taskId": parent.task_id}
    try:
        text, replaced = encode_json({"imported": imported, **links}, "metadata")
    except InvalidEntry as error:
        notes.repair(0, f"{error}; what stands beside the messages is kept as text")
        storable = {key: _storable(value) for key, value in imported.items()}
        text, replaced = encode_json({"imported": storable, **links}, "metadata")
    notes.surrogates_replaced += replaced
    return NewSession(
        id=session_id,
        title=one_text(fields.get("title")),
        cwd=one_text(fields.get("cwd")),
        metadata_text=text,
        created_us=fields.get("created_us"),
        auto_title=one_text(fields.get("auto_title")),
        kind="root" if parent is None else "task",
    )


# Plain lists of messages: the signs that tell the three formats of them apart, and the session that a list is.
#
# They are told apart by types of items and parts that only one of them has. Text inside a message does not mislead: the
# quotation marks of JSON within JSON are escaped.

ONLY_RESPONSES = re.compile(
    rb'"type"\s*:\s*"(message|reasoning|item_reference|input_text|input_image|input_file|output_text|summary_text'
    rb"|(function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call(_output)?|tool_search_output"
    rb'|(web_search|file_search|image_generation|code_interpreter|mcp)_call|mcp_list_tools|mcp_approval_re(quest|sponse))"'
)
ONLY_ANTHROPIC = re.compile(rb'"type"\s*:\s*"(tool_use|tool_result|thinking|redacted_thinking|server_tool_use)"')
_LONGEST_SIGN, _LONG_FIELD = 200, 100_000
_FIRST_ITEMS = 20


def begins_with_messages(head: bytes, beginning: re.Pattern[bytes], *fields: str) -> bool:
    """Return whether a file begins with a list whose first items may be messages: one has one of ``fields``.

    ``beginning`` matches up to the bracket of the list, or up to the brace of its first item.
    A torn file, or one that is not JSON, may be anything. Lists of other programs hold messages deeper, or others.
    """
    match = beginning.match(head)
    if match is None:
        return False
    text, decoder, there = head[match.end() - 1 :].decode(errors="replace"), json.JSONDecoder(), 0
    place = text.find("{")
    for _ in range(_FIRST_ITEMS):
        try:
            item, end = decoder.raw_decode(text, max(0, place))
        except (ValueError, RecursionError):
            break
        if not isinstance(item, dict) or any(field in item for field in fields):
            return True
        there += 1
        place = text.find("{", end) if text[end:].lstrip().startswith(",") else -1
        if place < 0:
            break
    return there == 0


def other_list(chunks: Iterable[bytes]) -> str | None:
    """Return whose list a file is that begins as chat messages do, by its later items; None: it is chat.

    Roles and texts alone are chat messages, Anthropic messages and Responses items alike. O(size), a chunk at a time.
    """
    is_list, before = None, b""
    for chunk in chunks:
        text = before + chunk
        if is_list is None:
            is_list = text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        if is_list and ONLY_RESPONSES.search(text):
            return "openai-responses"
        if ONLY_ANTHROPIC.search(text):
            return "anthropic"
        before = text[-_LONGEST_SIGN:]
    return None


def short_fields(fields: JsonObject, notes: Notes) -> JsonObject:
    """Return the fields beside the messages of a document but for very long ones, which are noted."""
    short = {
        name: value for name, value in fields.items() if len(encode_json(_storable(value), name)[0]) <= _LONG_FIELD
    }
    if len(short) < len(fields):
        notes.repair(0, f"a field of more than {_LONG_FIELD} characters beside the messages is left out")
    return short


def list_session_id(format_name: str, name: str, items: Items) -> str:
    """Return the id of the session of a list: made from the file's name and its items up to the first of the user."""
    beginning = []
    for item in items.items:
        try:
            beginning.append(json.dumps(item.value))
        except RecursionError:
            beginning.append("")
        if item.value.get("role") == "user":
            break
    return made_id(format_name, name, *beginning)


def list_session(format_name: str, name: str, items: Items, chain: Chain) -> SessionPart:
    """Return the session of a list; the fields beside the list are kept in its metadata."""
    beside: JsonObject = {"document": items.beside} if items.beside else {}
    return chain.parsed(format_name, name, beside)


def with_response(entry: NewEntry, format_name: str, response: JsonValue) -> NewEntry:
    """Return an entry whose calls have an id made from that of the response, which may stand in several lists."""
    if not isinstance(response, str):
        return entry
    return replace(entry, calls=tuple(replace(call, call_id=made_id(format_name, response)) for call in entry.calls))


# Reading a file: the parts that a reader returns, and how it remembers ids without remembering rows.
#
# A reader is fed the lines of a file in order. Parts of sessions can be taken as soon as they are ready, parents before
# children, so that a file of any length needs little memory. A reader does no I/O and knows no store: the same lines
# give the same parts, and the lines of a file's beginning give the first parts of the whole file.

Value = TypeVar("Value")


class TitleChange(Frozen):
    """An entry from which on the session is called ``title``; ``is_made``: by a program, not by a person."""

    entry_id: str
    title: str
    is_made: bool = False


class SessionPart(Frozen):
    """The next entries of one session of a file, parents first, and the session to create if it is new.

    ``leaves`` are the entries the leaf went through, in order: the last one is the leaf after this part.
    ``earlier`` names, for an entry of rows that may have been imported before they were complete, the ids that it had
    then. ``lines`` are those of the entries (of the last row, if several made one). ``lost`` names the
    parents of roots that are not in the file. ``unfinished`` are entries whose rows may not be complete, taken
    since they read like a whole answer. ``began`` names the entries below which tasks began, by the names of the
    tasks, ``completed_us`` says when the work was completed. ``may_overlap`` says that several files may hold pieces
    of the session, ``is_rewritten`` that entries that were imported before may no longer be in the file. ``tasks`` are
    the sessions of tasks that the file names, ``restates`` says that the metadata are as the file has them now.
    ``calls`` belong to no entry yet, each with an id; ``settles`` names, for an entry, the ids of such calls that its
    own replace. ``segment`` is the name of the file among several that have the session, one going on from another: ""
    for the first, and those of later ones sort behind it. ``name`` is the one that people gave the session, in a file
    beside this one. ``is_payer`` says that the session has its own file elsewhere, and has the bill of ``calls`` that
    this one repeats, ``holds_back`` that messages of it may not be complete, and wait for a later import. ``stands_in``
    says that a file with more of the session is lost: where that was imported, the session stays as it is. ``report``
    is that of a file that is one document.
    """

    format: str
    version: str
    session: NewSession
    entries: tuple[NewEntry, ...]
    leaves: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: tuple[LabelChange, ...] = ()
    titles: tuple[TitleChange, ...] = ()
    parent: TaskOf | None = None
    lost: Mapping[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    may_overlap: bool = False
    began: Mapping[str, str] = field(default_factory=dict)
    is_rewritten: bool = False
    completed_us: int | None = None
    tasks: tuple[TaskOf, ...] = ()
    restates: bool = False
    calls: tuple[PaidCall, ...] = ()
    settles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    segment: str = ""
    name: str | None = None
    is_payer: bool = False
    holds_back: bool = False
    stands_in: bool = False
    report: ParseReport | None = None

    @property
    def leaf(self) -> str | None:
        """The leaf after this part; None if it moves none."""
        return self.leaves[-1] if self.leaves else None


def whole_part(
    format_name: str,
    version: str,
    session: NewSession,
    entries: Sequence[NewEntry],
    leaf: str | None,
    lines: Mapping[str, int],
    report: ParseReport,
) -> SessionPart:
    """Return a session that was read as a whole, given the lines of its entries by id. O(entries).

    An entry without a time has that of the one before it, the first one that of the session.
    """
    timed, known = list[NewEntry](), session.created_us
    for entry in entries:
        known = known if entry.created_us is None else entry.created_us
        timed.append(replace(entry, created_us=known))
    order = sorted(entries, key=lambda entry: lines.get(entry.id or "", 0))
    if order and leaf != order[-1].id:
        order = [entry for entry in order if entry.kind in SHOWN_KINDS]
    leaves = [entry.id for entry in order if entry.id is not None and entry.id != leaf]
    names = {False: session.title, True: session.auto_title}
    naming = [(str(entry.id), _NAMING[entry.kind]) for entry in entries if entry.kind in _NAMING]
    titles = [TitleChange(entry_id, name, is_made) for entry_id, is_made in naming if (name := names[is_made])]
    if not titles and session.auto_title and leaf is not None:
        # The program may have made it when the session had grown.
        titles = [TitleChange(leaf, session.auto_title, is_made=True)]
    return SessionPart(
        format_name,
        version,
        session,
        tuple(timed),
        leaves=(*leaves, leaf) if leaf is not None else tuple(leaves),
        lines=tuple(lines.get(entry.id or "", 0) for entry in entries),
        titles=tuple(titles),
        report=report,
    )


_NAMING = {"session_info": False, "custom-title": False, "title": False, "ai-title": True}
"""The kinds of entries that name a session, and whether a program made the name."""


def payer_part(payer: str, repeating: SessionPart, name: str, calls: Sequence[PaidCall]) -> list[SessionPart]:
    """Return a part for the session that pays the calls which a fork of it repeats, in its file; none for no calls."""
    if not calls:
        return []
    form, fork = repeating.format, repeating.session
    session = imported_session(payer, form, name, {}, Notes(), cwd=fork.cwd, created_us=fork.created_us)
    return [SessionPart(form, repeating.version, session, (), calls=tuple(calls), is_payer=True)]


def joined_parts(parts: Sequence[SessionPart], behind: Sequence[SessionPart]) -> list[SessionPart]:
    """Return parts and those behind them, with one part for each session: they are stored as one change. O(entries)."""
    sessions = {str(part.session.id): part for part in parts}
    for part in behind:
        before = sessions.get(str(part.session.id))
        sessions[str(part.session.id)] = part if before is None else _with_gain(before, part)
    return [*sessions.values()]


def _with_gain(part: SessionPart, behind: SessionPart) -> SessionPart:
    titles = {name: getattr(behind.session, name) or getattr(part.session, name) for name in ("title", "auto_title")}
    gain: dict[str, Any] = {
        name: (getattr(part, name), getattr(behind, name)) for name in SessionPart.__struct_fields__
    }
    for name, (before, now) in gain.items():
        if isinstance(now, tuple):
            gain[name] = before + now
        else:
            gain[name] = before | now if isinstance(now, (dict, frozenset)) else now or before
    return replace(behind, **{**gain, "session": replace(behind.session, **titles)})


class Draft(Struct, kw_only=True):
    """The gain of a session of a file since its last part was taken, field by field as in `SessionPart`."""

    entries: list[NewEntry] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: list[LabelChange] = field(default_factory=list)
    titles: list[TitleChange] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    began: dict[str, str] = field(default_factory=dict)
    calls: list[PaidCall] = field(default_factory=list)
    settles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_new: bool = True
    """Whether no part was taken yet."""

    @property
    def has_part(self) -> bool:
        """Whether there is something to return."""
        return bool(self.is_new or self.entries or self.leaves or self.titles or self.calls)

    def take(self, format_name: str, version: str, session: NewSession, parent: TaskOf | None = None) -> SessionPart:
        """Return it as the next part, and begin anew."""
        gain: dict[str, Any] = {name: getattr(self, name) for name in _GAIN}
        for name, values in gain.items():
            if isinstance(values, (list, dict)):
                gain[name] = tuple(values) if isinstance(values, list) else values
                setattr(self, name, type(values)())
        self.is_new = False
        return SessionPart(format_name, version, session, parent=parent, **gain)


_GAIN = tuple(name for name in Draft.__struct_fields__ if name != "is_new")


class ReadAgain(Exception):
    """A row changes the place of rows before it: the file has to be read from its start."""


class Reader(Protocol):
    """Reads one file."""

    needs_scan: bool
    """Whether every line has to be given to `scan` before the first one is given to `feed`."""

    needs_whole: bool
    """Whether the whole file is given to `feed` at once, as line 1: it means nothing in parts."""

    @property
    def ready(self) -> int:
        """How many entries can be taken, about."""

    def scan(self, number: int, raw: bytes) -> None:
        """Look at a line (``number`` counts from 1), before it and those behind it are read. Raises `ReadAgain`."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` if the file is not of this format; nothing was returned before that."""

    def take(self) -> list[SessionPart]:
        """Return the parts that are ready, and forget them."""

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return the last parts when there are no more lines. Raises `UnreadableFile` if there was no session.

        A message that may not be complete is held back, and noted, unless ``take_all``.
        """

    def report(self) -> ParseReport:
        """Return the report on the rows."""


def read_lines(reader: Reader, lines: Sequence[bytes]) -> list[SessionPart]:
    """Return the parts of a file, given all of its lines. Raises `UnreadableFile`. O(size)."""
    if reader.needs_scan:
        for number, raw in enumerate(lines, 1):
            reader.scan(number, raw)
    for number, raw in enumerate(lines, 1):
        reader.feed(number, raw)
    return reader.finish(take_all=True)


class RowReader:
    """The common part of readers (see `Reader`): the name of the file, and the notes on its rows.

    ``path`` and ``beside`` are for `facts_beside`: the file in full, and the bytes of those beside it, by their kind.
    """

    needs_scan = False
    needs_whole = False

    def __init__(self, name: str = "the file") -> None:
        self.path, self.beside = "", dict[str, bytes]()
        self._name = name
        self._notes = Notes()

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line, if it is a row. Raises `UnreadableFile` if the file is not of this format."""
        fields = decode_row(number, raw, self._notes)
        if fields is not None and has_type(number, fields, self._notes):
            self.feed_row(number, raw, fields)

    def feed_row(self, number: int, raw: bytes, fields: JsonObject) -> None:
        """Read a row of a type, decoded."""
        raise NotImplementedError

    def take(self) -> list[SessionPart]:
        """Return nothing before the end."""
        return []

    def report(self) -> ParseReport:
        """Return the report on the rows."""
        return self._notes.report()


class DocumentReader(RowReader):
    """Reads a file that is one document (see `Reader`), by a function of its bytes and its name."""

    needs_whole = True

    def __init__(self, parse: Callable[[bytes, str], Sequence[SessionPart]], name: str) -> None:
        super().__init__(name)
        self._parse = parse
        self._sessions: Sequence[SessionPart] = ()
        self._reports: list[ParseReport] = []
        self.ready = 0

    def feed(self, number: int, raw: bytes) -> None:
        """Read the document. Raises `UnreadableFile` if it is not of this format."""
        self._sessions = self._parse(raw, self._name)
        self._reports = list({id(part.report): part.report for part in self._sessions if part.report}.values())
        self.ready = sum(len(session.entries) for session in self._sessions)

    def take(self) -> list[SessionPart]:
        """Return the sessions, once."""
        sessions, self._sessions, self.ready = self._sessions, (), 0
        return [*sessions]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return the sessions that were not taken. Raises `UnreadableFile` if there was none."""
        if not self._reports:
            raise UnreadableFile(f"{self._name} holds no session; nothing was imported")
        return self.take()

    def report(self) -> ParseReport:
        """Return the report on the document."""
        return joined(self._reports)


# remembering ids


def thought(text: JsonValue, signature: JsonValue = None, redacted: JsonValue = None) -> JsonObject:
    """Return what a model thought as a part of a message; ``redacted`` is the seal of one whose text is hidden."""
    part: JsonObject = {"type": "thinking", "thinking": text}
    if isinstance(redacted, str):
        return {**part, "thinkingSignature": redacted, "redacted": True}
    return {**part, "thinkingSignature": signature} if isinstance(signature, str) else part


class IdTable:
    """Which ids occurred, each with a small number (0 to 3): about 20 bytes for each, whatever their length.

    An id is known by 62 bits of its hash. Among ten million ids, two are mistaken for each other with a
    probability of one in a hundred thousand. The hash is salted, and the same in every process.
    """

    __slots__ = ("_count", "_limit", "_mask", "_salt", "_slots")

    def __init__(self) -> None:
        self._salt = hash("salt")
        self._resize(1 << 12)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _resize(self, size: int) -> None:
        self._slots = array("Q", bytes(8 * size))
        self._mask = size - 1
        self._limit = size * 2 // 3

    def _place(self, name: str) -> tuple[int, int]:
        """Return the key of an id, and the slot that it has, or is free for it."""
        key = hash((self._salt, *name.encode(errors="surrogatepass"))) << 2 & 0xFFFF_FFFF_FFFF_FFFC or 4
        slots, mask = self._slots, self._mask
        at = key >> 2 & mask
        while (there := slots[at]) and there & ~3 != key:
            at = at + 1 & mask
        return key, at

    def put(self, name: str, number: int = 0) -> int | None:
        """Remember an id with its number, and return the one that it had before; None if it did not occur."""
        key, at = self._place(name)
        there, self._slots[at] = self._slots[at], key | number
        if there:
            return there & 3
        self._count += 1
        if self._count > self._limit:
            self._grow()
        return None

    def get(self, name: str) -> int | None:
        """Return the number of an id; None if it did not occur."""
        there = self._slots[self._place(name)[1]]
        return there & 3 if there else None

    def _grow(self) -> None:
        old = self._slots
        self._resize(2 * (self._mask + 1))
        slots, mask = self._slots, self._mask
        for key in old:
            if key:
                at = key >> 2 & mask
                while slots[at]:
                    at = at + 1 & mask
                slots[at] = key


class Recent(Generic[Value]):
    """The values of the ids that were put last, up to ``limit`` of them."""

    __slots__ = ("_limit", "_values")

    def __init__(self, limit: int) -> None:
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._limit = limit

    def put(self, name: str, value: Value) -> None:
        """Remember a value, and forget the oldest where there are too many."""
        self._values[name] = value
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def get(self, name: str) -> Value | None:
        """Return the value of an id, or None if it is not known any more."""
        return self._values.get(name)


# small things that rows of all formats have


def first_rows(first_bytes: bytes) -> Iterator[JsonObject]:
    """Yield the objects that the whole lines among the first bytes of a file are, or the only line is."""
    lines = first_bytes.split(b"\n")
    for line in lines[:-1] or lines:
        if line.lstrip()[:1] == b"{" and (row := decode_row(2, line, Notes())) is not None:
            yield row
