"""Bundles: whole trees with their blobs and their part of the ledger, in one file that can be checked to be whole.

A bundle is a gzip stream of lines of JSON. The first says what it is; then comes each tree, a line that counts its rows
followed by them, then what sessions now gone have paid; the last has the SHA-256 of all lines before it. Rows are those
that `core.trees` describes, in a canonical order, under numbers of the bundle's own, so that the same trees give the
same bytes from whatever store. docs/formats/bundle.md describes it for other programs.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from operator import attrgetter
from os import PathLike
from pathlib import Path
from sys import getsizeof
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast, get_args, get_type_hints

from flue_py.core.json import (
    JsonObject,
    decode_object,
    encode_json,
    encoded_size,
    inflate,
    inflated_size,
    json_weight,
    memory_of_utf8,
    unescape,
    utf8_length,
)
from flue_py.core.ledger import (
    AttachmentRow,
    BlobRow,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    SessionRow,
)
from flue_py.core.sessions import DEFAULT_LIMITS, Limits, is_storable
from flue_py.core.trees import GonePayer, TreeCopy, TreeHead, with_parents, with_slots
from flue_py.core.usage import PAID_COLUMNS
from flue_py.db.files import Part, temporary_folder
from flue_py.db.payloads import checked_text, is_raw
from flue_py.errors import FlueError, FormatTooNew, SessionNotFound, StoreUnavailable, UnreadableFile, shown
from flue_py.sessions.arguments import (
    HasId,
    checked_flag,
    checked_function,
    checked_limits,
    checked_path,
    checked_session,
)
from flue_py.sessions.store import Store, open
from flue_py.transfer.copy import CopyProgress, CopyRefusal, copy_store
from flue_py.transfer.importing import open_plain

# ---------------------------------------------------------------------------------------------------------------------
# The tables and columns of a bundle, and what one is counted by.

NAME = "flue_py bundle"
VERSION = 2

Row: TypeAlias = tuple[Any, ...]

TABLES: Mapping[str, type[Row]] = {
    "sessions": SessionRow,
    "lanes": LaneRow,
    "entries": EntryRow,
    "attachments": AttachmentRow,
    "blobs": BlobRow,
    "links": LinkRow,
    "moves": MoveRow,
    "requests": RequestRow,
    "marks": MarkRow,
    "edits": EditRow,
    "payers": Payer,
    "calls": CallRow,
}
"""The rows of a tree, by the name that a bundle and a `TreeCopy` give them, in the order of a bundle."""

KEYS = ("session_key", "owner_key", "parent_key")
"""The columns that name a session by a number which means nothing elsewhere."""


class Column(NamedTuple):
    name: str
    type: type
    optional: bool


def _columns(row: type[Row]) -> tuple[Column, ...]:
    columns = []
    for name, hint in get_type_hints(row).items():
        options = get_args(hint) or (hint,)
        kind = next(option for option in options if option is not type(None))
        columns.append(Column(name, kind, type(None) in options))
    return tuple(columns)


COLUMNS = {name: _columns(row) for name, row in TABLES.items()}
# The slot of a session's last activity is left out, which the time tells.
COLUMNS["sessions"] = tuple(column for column in COLUMNS["sessions"] if column.name != "active_slot")
# Of an entry the sums come last; its parent is left out: the lanes tell it.
_LATE: Row = ("parent_id", *PAID_COLUMNS)
_OF_ENTRIES = {column.name: column for column in COLUMNS["entries"]}
COLUMNS["entries"] = (
    *(column for name, column in _OF_ENTRIES.items() if name not in _LATE),
    *(_OF_ENTRIES[name] for name in PAID_COLUMNS),
)
ENTRY_DEFAULTS: Mapping[str, Any] = {"parent_id": None, **dict.fromkeys(PAID_COLUMNS, 0)}
WRITTEN = {name: attrgetter(*(column.name for column in columns)) for name, columns in COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class BundleCounts:
    """How much a bundle holds. ``calls`` are paid calls, those of sessions now gone among them."""

    trees: int = 0
    sessions: int = 0
    entries: int = 0
    calls: int = 0

    def with_tree(self, copy: TreeCopy) -> BundleCounts:
        """Return the counts with one tree more."""
        return BundleCounts(
            self.trees + 1,
            self.sessions + len(copy.sessions),
            self.entries + len(copy.entries),
            self.calls + len(copy.calls),
        )

    def with_gone(self, gone: GonePayer) -> BundleCounts:
        """Return the counts with the calls of one session more that is gone."""
        return replace(self, calls=self.calls + len(gone.calls))


# ---------------------------------------------------------------------------------------------------------------------
# The lines of a bundle, read in bounded memory.

# Lines up to this are read by a JSON parser: what it makes of them is small. Longer ones are rows, which are flat.
PARSED_LINE = 64 * 1024
_AT_ONCE = 64 * 1024
# How many bytes in memory one byte of the file may stand for. What stores write stays far below.
MOST_GROWTH = 50


def looks_like_a_bundle(head: bytes) -> bool:
    """Return whether a file that begins like this is a bundle, of whatever version."""
    try:
        begins = zlib.decompressobj(wbits=31).decompress(head, 64)
    except zlib.error:
        return False
    return begins.startswith(f'{{"bundle":"{NAME}"'.encode())


class Lines:
    """The lines of a gzip stream, none longer than ``most`` bytes, nor all together far more than the file is long."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._packed = file
        self._file = gzip.GzipFile(fileobj=file)
        self._most = most
        self._rest = b""
        self._read = 0

    def next(self) -> bytearray:
        """Return the next line with its end; without one, or empty, where the stream ends. Raises `ValueError`."""
        begin, self._rest = self._split(self._rest)
        line = bytearray(begin)
        while not line.endswith(b"\n") and (some := self._some()):
            more, self._rest = self._split(some)
            line += more
            if len(line) > self._most:
                raise ValueError(f"longer than {self._most} bytes, which no row within the limits of the store is")
        return line

    @staticmethod
    def _split(data: bytes) -> tuple[bytes, bytes]:
        end = data.find(b"\n") + 1
        return (data[:end], data[end:]) if end else (data, b"")

    def _some(self) -> bytes:
        some = self._file.read(_AT_ONCE)
        self.count(len(some))
        return some

    def count(self, size: int) -> None:
        """Count bytes that the file stands for. Raises `ValueError` if they are far more than it is long."""
        self._read += size
        if self._read > self._most + MOST_GROWTH * self._packed.tell():
            raise ValueError(f"the file stands for more than {MOST_GROWTH} times its size")

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows. Raises as `next` does."""
        return not self._rest and not self._some()


# ---------------------------------------------------------------------------------------------------------------------
# Reading a bundle: rows with the columns that they should have, none of them larger than the limits allow.

_MAX_INT = 2**63
# What a row takes beside its text: less than CPython needs for one, as a row may be a short line in a whole bundle.
_ROW_BYTES = 500


@dataclass(slots=True)
class _BlobSizes:
    """Of the tree that is being read: which blobs are payloads, which are attachments, and how long they are."""

    of_payloads: set[bytes] = field(default_factory=set)
    attached: set[bytes] = field(default_factory=set)
    sizes: dict[bytes, int] = field(default_factory=dict)


class BundleReader:
    """Reads a bundle, tree by tree. Only after the last one is it known to be whole: see `read_bundle`.

    What is larger than ``limits`` allow is refused before it is in memory.
    """

    def __init__(self, file: BinaryIO, name: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._room = limits.entry_bytes + 2 * limits.metadata_bytes + PARSED_LINE
        self._lines = Lines(file, limits.entry_bytes + self._room)
        self._name = name
        self._sha256 = sha256()
        self._number = 0
        self._blobs = _BlobSizes()
        self.counts = BundleCounts()

    def trees(self) -> Iterator[TreeCopy | GonePayer]:
        """Yield the trees, then what sessions now gone have paid. Raises `UnreadableFile`, `FormatTooNew`.

        Each row has the columns it should have, of the types they should have; whether they make sense together is
        for the store to verify.
        """
        self._check_first(self._next_object())
        while True:
            before = self._sha256.hexdigest()
            value = self._next_object()
            if "tree" in value:
                tree = self._tree(value)
                self.counts = self.counts.with_tree(tree)
                yield tree
            elif "gone" in value:
                gone = self._gone(value)
                self.counts = self.counts.with_gone(gone)
                yield gone
            elif "end" in value:
                self._check_end(value, before)
                return
            else:
                raise self._unreadable("is neither tree, gone nor end")

    def _unreadable(self, why: str) -> UnreadableFile:
        return UnreadableFile(f"{self._name}: line {self._number} {why}; nothing was imported")

    def _next_line(self) -> bytearray:
        self._number += 1
        try:
            line = self._lines.next()
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self._unreadable(f"cannot be read ({error})") from error
        if not line.endswith(b"\n"):
            raise self._unreadable("is not there: the bundle is not whole" if not line else "has no end")
        self._sha256.update(line)
        return line

    def _parsed(self, line: bytes | bytearray) -> object:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._unreadable(f"cannot be read ({error})") from error

    def _next_object(self) -> dict[str, Any]:
        line = self._next_line()
        value = self._parsed(line) if len(line) <= PARSED_LINE else None
        if not isinstance(value, dict):
            raise self._unreadable("should be an object")
        return value

    def _check_first(self, first: Mapping[str, Any]) -> None:
        version = first.get("version")
        if first.get("bundle") != NAME or isinstance(version, bool) or not isinstance(version, int):
            raise self._unreadable("does not say that this is a bundle")
        if version > VERSION:
            raise FormatTooNew(
                f"{self._name} is a bundle of version {version}, this flue_py reads up to {VERSION}; upgrade flue_py. "
                "Nothing was imported"
            )
        if version < VERSION:
            raise self._unreadable(
                f"says that this is a bundle of version {version}, which only versions before the first release wrote; "
                "write it anew from its store"
            )

    def _check_end(self, end: Mapping[str, Any], digest: str) -> None:
        held = self.counts
        said = {"trees": held.trees, "sessions": held.sessions, "entries": held.entries, "calls": held.calls}
        if end.get("sha256") != digest or end["end"] != said:
            raise self._unreadable("does not match the lines before it: the bundle was damaged or changed")
        try:
            is_last = self._lines.is_at_end
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self._unreadable(f"is followed by what cannot be read ({error})") from error
        if not is_last:
            raise self._unreadable("should be the last one")

    def _tree(self, head: Mapping[str, Any]) -> TreeCopy:
        counts, epoch = head["tree"], head.get("epoch")
        if not isinstance(counts, dict) or not _is_count(epoch) or not all(map(_is_count, counts.values())):
            raise self._unreadable("should count the rows of a tree")
        if counts.keys() != TABLES.keys():
            raise self._unreadable(f"should count {', '.join(TABLES)}")
        self._blobs = _BlobSizes()
        rows: dict[str, Any] = {name: [self._row(name) for _ in range(counts[name])] for name in TABLES}
        if not rows["sessions"]:
            raise self._unreadable("ends a tree without sessions")
        tree = TreeCopy(tree_id=0, epoch=cast("int", epoch), **rows)
        self._check_keys(tree)
        self._check_attachments(tree)
        return with_parents(with_slots(tree))

    def _check_keys(self, tree: TreeCopy) -> None:
        known = {session.session_key for session in tree.sessions} | {payer.session_key for payer in tree.payers}
        known.update(entry.session_key for entry in tree.entries)
        if 0 in known or len({session.session_key for session in tree.sessions}) != len(tree.sessions):
            raise self._unreadable("ends a tree with two sessions of one number, or one of number 0")
        for name in TABLES:
            for row in getattr(tree, name):
                key = next((getattr(row, key) for key in KEYS if key in row._fields), None)
                if key is not None and key not in known:
                    raise self._unreadable(f"ends a tree whose {name} name session {key}, which it does not have")

    def _check_attachments(self, tree: TreeCopy) -> None:
        """Refuse an entry that is larger than the limits of the store with what was cut out of its payload."""
        sizes = self._blobs.sizes
        lengths: dict[tuple[int, int], int] = defaultdict(int)
        for row in tree.attachments:
            lengths[row.lane_id, row.depth] += encoded_size(sizes.get(row.sha256, 0))
        for entry in tree.entries:
            length = lengths.get((entry.lane_id, entry.depth))
            if length is None:
                continue
            beside = utf8_length(entry.extra or "") + utf8_length(entry.payload or "")
            packed = 0 if entry.packed is None else inflated_size(entry.packed, self._limits.entry_bytes) or 0
            if length + beside + packed + sizes.get(entry.blob or b"", 0) > self._limits.entry_bytes:
                raise self._too_large()

    def _gone(self, head: Mapping[str, Any]) -> GonePayer:
        payer, member, count = head["gone"], head.get("member"), head.get("calls")
        task_of, project = head.get("taskOf"), head.get("project")
        are_texts = all(each is None or _is_text(each) for each in (member, task_of, project))
        if not _is_text(payer) or not are_texts or not _is_count(count):
            raise self._unreadable("should name a session that is gone, and count its calls")
        calls = [cast("CallRow", self._row("calls")) for _ in range(cast("int", count))]
        # Each session without a living relative counts as a tree of its own.
        return GonePayer(Payer(self._number, payer, task_of, project), self._number, member, calls)

    def _row(self, table: str) -> Row:
        line = self._next_line()
        columns = COLUMNS[table]
        is_short = len(line) <= PARSED_LINE
        value = self._parsed(line) if is_short else self._flat(line, columns)
        del line  # what was made of it is measured next
        if not isinstance(value, list) or value[:1] != [table] or len(value) != len(columns) + 1:
            raise self._unreadable(f"should be a row of {table} with {len(columns)} columns")
        values = [self._value(column, found) for column, found in zip(columns, value[1:], strict=True)]
        self._count_memory(values if is_short else ())
        make = cast("Any", TABLES[table])
        if table == "entries":
            named = {column.name: value for column, value in zip(columns, values, strict=True)}
            row = cast("Row", make(**{**ENTRY_DEFAULTS, **named}))
        else:
            row = cast("Row", make(*values))
        self._check_size(row)
        return row

    def _flat(self, line: bytearray, columns: Sequence[Column]) -> list[object] | None:
        """Return the values of a long line, an array of as many texts, numbers and nulls; None for any other.

        Nothing is made of what stands between them, and each value is made from the line itself, which is spoilt:
        beside it there is never more than the values.
        """
        values: list[object] = []
        at, room = 1, self._room
        while line[:1] == b"[" and len(values) <= len(columns):
            token = _TOKEN.match(line, at)
            if token is None:
                return None
            at = token.end()
            start, end = token.start(1) + 1, token.end(1) - 1
            if start == 0:
                values.append(self._parsed(line[token.start(2) : token.end(2)]))
            elif values and columns[len(values) - 1].type is bytes:
                values.append(self._unbased(columns[len(values) - 1], memoryview(line)[start:end]))
            else:
                text = self._text(line, start, end, room)
                room -= end - start
                values.append(text)
            if line[at - 1 : at] == b"]":
                return values if line.endswith(b"\n") and len(line) == at + 1 else None
        return None

    def _text(self, line: bytearray, start: int, end: int, room: int) -> str:
        """Return the text of a JSON string that stands in a line, which is spoilt there."""
        try:
            end = unescape(line, start, end)
            if end - start > room:
                raise ValueError(f"more than {self._room} bytes of text, which no row within the limits has")
            # Counted before it is made: a single character may make Python take four bytes for each of the others.
            self._lines.count(max(0, memory_of_utf8(line, start, end) - (end - start)))
            return str(memoryview(line)[start:end], "utf-8")
        except ValueError as error:
            raise self._unreadable(f"cannot be read ({error})") from error

    def _count_memory(self, values: Sequence[object]) -> None:
        """Count what a row takes in memory beside its line, and texts of wide characters among short values."""
        size = _ROW_BYTES
        for value in values:
            if isinstance(value, str) and not value.isascii():
                size += max(0, getsizeof(value) - utf8_length(value))
        try:
            self._lines.count(size)
        except ValueError as error:
            raise self._unreadable(f"cannot be read ({error})") from error

    def _value(self, column: Column, found: object) -> object:
        if found is None and column.optional:
            return None
        if column.type is bytes and isinstance(found, bytes):
            return found
        if column.type is bytes and isinstance(found, str):
            return self._unbased(column, found.encode(errors="replace"))
        is_sound = _is_number(found) if column.type is int else _is_text(found)
        if column.type is bytes or not is_sound:
            raise self._unreadable(f"has a {column.name} that is {shown(found)}")
        return found

    def _unbased(self, column: Column, text: bytes | memoryview) -> bytes:
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error as error:
            raise self._unreadable(f"has a {column.name} that is not base64") from error

    def _check_size(self, row: Row) -> None:
        """Refuse a row that is larger than the limits of the store it is for, before any of it is unpacked."""
        most = self._limits.entry_bytes
        if isinstance(row, SessionRow) and utf8_length(row.metadata) > self._limits.metadata_bytes:
            limit = self._limits.metadata_bytes
            raise self._unreadable(f"has more metadata than the store takes ({limit} bytes, metadata_bytes)")
        if isinstance(row, EntryRow):
            beside = utf8_length(row.extra or "") + utf8_length(row.payload or "")
            self._check_packed(row.packed, most - beside)
            self._blobs.of_payloads.add(row.blob or b"")
        elif isinstance(row, AttachmentRow):
            self._blobs.attached.add(row.sha256)
        elif isinstance(row, BlobRow):
            self._check_blob(row, most)

    def _check_blob(self, row: BlobRow, most: int) -> None:
        """Refuse a blob that is too large; one that is an attachment alone is no JSON, and weighs what it is long."""
        known = self._blobs
        is_json = row.sha256 in known.of_payloads or row.sha256 not in known.attached
        if is_json or not is_raw(row.sha256, row.data):
            known.sizes[row.sha256] = self._check_packed(row.data, most, is_json=is_json)
        else:
            known.sizes[row.sha256] = len(row.data)

    def _check_packed(self, packed: bytes | None, most: int, *, is_json: bool = True) -> int:
        """Return how long it is when it is unpacked."""
        try:
            size = 0 if packed is None else inflated_size(packed, most)
            if most < 0 or size is None:
                raise self._too_large()
            if is_json and size > most // 16 and not self._is_light(packed or b"", most):
                raise self._too_large()
        except zlib.error as error:
            raise self._unreadable(f"has a payload that cannot be unpacked ({error})") from error
        return size

    def _too_large(self) -> UnreadableFile:
        limit = self._limits.entry_bytes
        return self._unreadable(
            f"has an entry that is larger than the store takes ({limit} bytes, entry_bytes), or broken; "
            "read the bundle with other limits if you trust it"
        )

    @staticmethod
    def _is_light(packed: bytes, most: int) -> bool:
        """Return whether a payload takes no more than three times ``most`` bytes when it is verified.

        Small values make many objects of few bytes; a wide character makes a text four times as large, which is let
        pass where the payload is not packed from next to nothing.
        """
        data = inflate(packed, most) or b""
        if json_weight(data) > 3 * most:
            return False
        memory = memory_of_utf8(data, 0, len(data))
        return memory <= len(data) or len(data) + memory <= max(3 * most, MOST_GROWTH * len(packed))


_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(rb"\s*+(?:(%b)|(-?[0-9]{1,20}+|null))\s*+[,\]]" % _STRING, re.DOTALL)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_MAX_INT <= value < _MAX_INT


def _is_count(value: object) -> bool:
    return _is_number(value) and cast("int", value) >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_storable(value)


# ---------------------------------------------------------------------------------------------------------------------
# Writing a bundle: trees under numbers, and in an order, that depend on no store.

_PATHS_OF_IMPORTS = ("cwd", "parentSession")


class BundleWriter:
    """Writes a bundle, tree by tree, into a file that is open for writing bytes. Nothing of it counts before `end`."""

    def __init__(self, file: BinaryIO, *, keep_paths: bool = False) -> None:
        # Without a name and a time, so that the same content gives the same bytes.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6)
        self._keep_paths = keep_paths
        self._sha256 = sha256()
        self.counts = BundleCounts()
        self._line({"bundle": NAME, "version": VERSION})

    def add_tree(self, copy: TreeCopy) -> None:
        """Write a tree. Folders and configuration paths are left out, unless the bundle keeps paths."""
        copy = canonical(copy if self._keep_paths else without_paths(copy))
        rows = {name: cast("Sequence[Row]", getattr(copy, name)) for name in TABLES}
        self._line({"tree": {name: len(table) for name, table in rows.items()}, "epoch": copy.epoch})
        for name, table in rows.items():
            for row in table:
                self._line([name, *(_encoded(value) for value in WRITTEN[name](row))])
        self.counts = self.counts.with_tree(copy)

    def add_gone(self, gone: GonePayer) -> None:
        """Write what a session that is gone has paid."""
        calls = sorted((call._replace(session_key=0) for call in gone.calls), key=lambda call: call.identity)
        head: JsonObject = {"gone": gone.payer.session_id, "member": gone.member, "calls": len(calls)}
        if gone.payer.task_of is not None:
            head["taskOf"] = gone.payer.task_of
        if gone.payer.project is not None and self._keep_paths:
            head["project"] = gone.payer.project
        self._line(head)
        for call in calls:
            self._line(["calls", *call])
        self.counts = self.counts.with_gone(gone)

    def end(self) -> BundleCounts:
        """Write the last line, and return what the bundle holds. The file stays open."""
        counts = self.counts
        held: JsonObject = {
            "trees": counts.trees, "sessions": counts.sessions, "entries": counts.entries, "calls": counts.calls,
        }  # fmt: skip
        self._line({"end": held, "sha256": self._sha256.hexdigest()})
        self._file.close()
        return counts

    def close(self) -> None:
        """Stop writing; the file stays open. An error from before `end` is not raised again."""
        with suppress(OSError):
            # Left to the garbage collector, it would write to the file after that was closed, and say so on stderr.
            self._file.close()

    def _line(self, value: object) -> None:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self._sha256.update(line)
        self._file.write(line)


def _encoded(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def canonical(copy: TreeCopy) -> TreeCopy:
    """Return a tree under numbers, and in an order, that do not depend on the store it is from."""
    sessions = sorted(copy.sessions, key=lambda row: (row.kind != "root", row.created_at, row.id))
    payers = {payer.session_key: payer.session_id for payer in copy.payers}
    order = {session.session_key: (0, place, "") for place, session in enumerate(sessions)}
    first_entry = {entry.session_key: entry.id for entry in sorted(copy.entries, key=lambda e: e.id, reverse=True)}
    # The tree's own key is that of its first session, which may be gone, too.
    named = {entry.session_key for entry in copy.entries} | payers.keys()
    gone = sorted(
        named - order.keys(),
        key=lambda key: (payers.get(key, ""), first_entry.get(key, "")),
    )
    keys = {key: number for number, key in enumerate([*[row.session_key for row in sessions], *gone], 1)}
    renumbered: dict[str, Any] = {name: [_renumbered(row, keys) for row in getattr(copy, name)] for name in TABLES}
    for name, rows in renumbered.items():
        rows.sort(key=attrgetter(*_ORDER[name]))
    return replace(copy, tree_id=0, **renumbered)


_ORDER = {
    "sessions": ("session_key",),
    "lanes": ("lane_id",),
    "entries": ("lane_id", "depth"),
    "attachments": ("lane_id", "depth", "place"),
    "blobs": ("sha256",),
    "links": ("parent_key", "position"),
    "moves": ("session_key", "revision"),
    "requests": ("session_key", "idempotency_key"),
    "marks": ("session_key", "entry_id", "kind"),
    "edits": ("session_key", "revision", "what"),
    "payers": ("session_key",),
    "calls": ("identity",),
}


def _renumbered(row: Row, keys: Mapping[int, int]) -> Row:
    fields = cast("Any", row)
    named = next((name for name in KEYS if name in fields._fields), None)
    return row if named is None else cast("Row", fields._replace(**{named: keys[getattr(row, named)]}))


def without_paths(copy: TreeCopy) -> TreeCopy:
    """Return a tree whose sessions name no folder and no file of the machine they are from.

    What was said in them may: that is their history.
    """
    sessions = [
        row._replace(cwd=None, config_path=None, metadata=_metadata_without_paths(row.metadata))
        for row in copy.sessions
    ]
    payers = [payer._replace(project=None) for payer in copy.payers]
    return replace(copy, sessions=sessions, payers=payers)


def _metadata_without_paths(text: str) -> str:
    metadata = decode_object(text)
    imported = metadata.get("imported")
    header = imported.get("header") if isinstance(imported, dict) else None
    if not isinstance(header, dict) or not any(name in header for name in _PATHS_OF_IMPORTS):
        return text
    for name in _PATHS_OF_IMPORTS:
        header.pop(name, None)
    return encode_json(metadata, "metadata")[0]


# ---------------------------------------------------------------------------------------------------------------------
# Bundles out of a store and into one.

_PAGE = 200
_GONE_PAGE = 100


@dataclass(frozen=True, slots=True)
class BundleReport:
    """A bundle that was written: where, what it holds, and its size."""

    path: Path
    counts: BundleCounts
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnbundleReport:
    """What reading a bundle did: what it holds, and how many of its trees were new, brought up to date, or unchanged.

    ``refused`` names trees that the store has in another way under the same ids or keys; they stay as they are here.
    """

    counts: BundleCounts
    trees_added: int
    trees_refreshed: int
    trees_unchanged: int
    refused: tuple[CopyRefusal, ...]

    @property
    def changed(self) -> bool:
        """Whether the store is not as it was before."""
        return self.trees_added + self.trees_refreshed > 0


async def write_bundle(
    store: Store,
    path: str | PathLike[str],
    sessions: Sequence[HasId | str] = (),
    *,
    keep_paths: bool = False,
    overwrite: bool = False,
) -> BundleReport:
    """Write the trees of some sessions, or all of a store, into one file, with their blobs and what they paid.

    With a session goes its whole tree, forks and all, and the trees of its task sessions. Each tree is as of one
    moment. Folders and configuration paths are left out, unless the bundle keeps paths; budgets and documents stay
    behind. The same trees give the same bytes. The file is its owner's, and is there when it is whole. Raises
    `SessionNotFound`, `InvalidArgument` for a file that is there, `CorruptStore` where a payload is not what was
    appended, `StoreUnavailable`. O(trees); one tree at a time is in memory.
    """
    target = checked_path(path, "path")
    checked_flag(keep_paths, "keep_paths")
    call = store.backend.waiting.call
    heads = await _chosen_trees(store, [checked_session(session) for session in sessions])
    part = await call(partial(Part, target, overwrite=checked_flag(overwrite, "overwrite")))
    with part:
        try:
            counts = await _write_trees(store, part.path, heads, is_all=not sessions, keep_paths=keep_paths)
        except FlueError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
        await call(part.publish)
    return BundleReport(target, counts, await call(lambda: target.stat().st_size))


async def _write_trees(
    store: Store, path: Path, heads: Sequence[TreeHead], *, is_all: bool, keep_paths: bool
) -> BundleCounts:
    call = store.backend.waiting.call
    with await call(lambda: path.open("wb")) as file, closing(BundleWriter(file, keep_paths=keep_paths)) as writer:
        brought: set[int] = set()
        async for copy in _copies(store, heads):
            brought.update(payer.session_key for payer in copy.payers)
            await call(partial(writer.add_tree, copy))
        trees = None if is_all else {head.tree_id for head in heads}
        async for gone in _gone_payers(store, trees, brought):
            writer.add_gone(gone)
        return await call(writer.end)


async def _chosen_trees(store: Store, ids: Sequence[str]) -> list[TreeHead]:
    """Return the trees of these sessions and of their task sessions, or all; the oldest first."""
    heads = [head async for head in _all_heads(store)]
    if ids:
        tree_of = {session.id: head for head in heads for session in head.sessions}
        for session_id in ids:
            if session_id not in tree_of:
                raise SessionNotFound(session_id)
        waiting = list(ids)
        chosen: dict[int, TreeHead] = {}
        while waiting:
            head = tree_of.get(waiting.pop())
            if head is None or head.tree_id in chosen:
                continue
            chosen[head.tree_id] = head
            for session in head.sessions:
                waiting += [link.child_id for link in await store.backend.task_links(session.id)]
        heads = list(chosen.values())
    return sorted(heads, key=lambda head: min((session.created_at, session.id) for session in head.sessions))


async def _all_heads(store: Store) -> AsyncIterator[TreeHead]:
    after = -1
    while page := await store.backend.list_trees(after, _PAGE):
        after = page[-1].tree_id
        for head in page:
            yield head


async def _copies(store: Store, heads: Sequence[TreeHead]) -> AsyncIterator[TreeCopy]:
    for head in heads:
        copy = await store.backend.read_whole_tree(head.tree_id)
        if copy is None:  # deleted meanwhile
            continue
        await store.backend.waiting.call(partial(_check_payloads, copy))
        yield copy


def _check_payloads(copy: TreeCopy) -> None:
    """Raise `CorruptStore` if a payload is not what was appended. O(bytes)."""
    blobs = {blob.sha256: blob.data for blob in copy.blobs}
    cuts: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row in copy.attachments:
        cuts[row.lane_id, row.depth].append((row.place, row.sha256))
    for entry in copy.entries:
        checked_text(entry, blobs, cuts.get((entry.lane_id, entry.depth), ()))


async def _gone_payers(store: Store, trees: set[int] | None, brought: set[int]) -> AsyncIterator[GonePayer]:
    """Yield what sessions that are gone have paid for these trees, or for any, but for those in ``brought``."""
    after = -1
    found: list[GonePayer] = []
    while page := await store.backend.list_gone_payers(after, _GONE_PAGE):
        after = page[-1].payer.session_key
        found += [
            gone
            for gone in page
            if gone.calls and (trees is None or gone.tree_id in trees) and gone.payer.session_key not in brought
        ]
    for gone in sorted(found, key=lambda gone: (gone.payer.session_id, min(call.identity for call in gone.calls))):
        yield gone


async def read_bundle(
    store: Store,
    path: str | PathLike[str],
    *,
    limits: Limits | None = None,
    progress: Callable[[CopyProgress], None] | None = None,
) -> UnbundleReport:
    """Bring the trees of a bundle into a store, where they are not there yet, and report what was done.

    The bundle is trusted with nothing: it is checked to be whole, and read into a store of its own that has to verify,
    before anything of it reaches ``store``. Sessions, entries and calls keep their ids, revisions and times. Reading
    the same bundle again changes nothing; a later one of the same store brings trees up to date that nobody has written
    to. What is larger than ``limits`` (None: those of the store) is refused before it is unpacked, as is a file that
    stands for far more than its size. Raises `UnreadableFile`, `FormatTooNew`, `StoreUnavailable`; what raises
    has changed nothing. O(bundle).
    """
    source = checked_path(path, "path")
    checked_function(progress, "progress")
    limits = store.limits if limits is None else checked_limits(limits)
    with temporary_folder() as folder:
        threads = store.backend.waiting.needs_loop
        async with open(folder / "bundle.db", durability="normal", prices=False, threads=threads) as scratch:
            try:
                file = await store.backend.waiting.call(partial(open_plain, source))
            except OSError as error:
                raise StoreUnavailable(f"{source} cannot be read: {error.strerror or error}") from error
            with file:
                counts = await _load(scratch, BundleReader(file, source.name, limits), source.name)
            report = await scratch.verify()
            if report.problems:
                raise UnreadableFile(f"{source.name} does not verify ({report.problems[0]}); nothing was imported")
            done = await copy_store(scratch, store, progress=progress, verify=False)
    return UnbundleReport(counts, done.trees_copied, done.trees_refreshed, done.trees_unchanged, done.refused)


async def _load(scratch: Store, reader: BundleReader, name: str) -> BundleCounts:
    found = reader.trees()
    gone: list[GonePayer] = []
    while (part := await scratch.backend.waiting.call(partial(_next_of, found))) is not None:
        if isinstance(part, GonePayer):
            gone.append(part)
            continue
        try:
            standing = await scratch.backend.write_whole_tree(part)
        except (FlueError, LookupError, ValueError) as error:
            raise UnreadableFile(f"{name}: a tree of it makes no sense ({error}); nothing was imported") from error
        if standing.state != "missing":
            raise UnreadableFile(f"{name} has session {part.sessions[0].id!r} twice; nothing was imported")
    await scratch.backend.write_gone_payers(gone)
    return reader.counts


def _next_of(parts: Iterator[TreeCopy | GonePayer]) -> TreeCopy | GonePayer | None:
    return next(parts, None)
