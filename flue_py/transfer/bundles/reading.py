"""Reading a bundle: rows with the columns that they should have, none of them larger than the limits allow."""

from __future__ import annotations

import binascii
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from sys import getsizeof
from typing import Any, BinaryIO, cast

from flue_py.core.bounds import inflate, inflated_size, json_weight, memory_of_utf8
from flue_py.core.cutting import encoded_size
from flue_py.core.jsontext import unescape, utf8_length
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.core.rows import (
    AttachmentRow,
    BlobRow,
    CallRow,
    EntryRow,
    Payer,
    SessionRow,
)
from flue_py.core.sessions import is_storable
from flue_py.core.trees import (
    GonePayer,
    TreeCopy,
    with_parents,
    with_slots,
)
from flue_py.errors import FormatTooNew, UnreadableFile, shown
from flue_py.store.schema.payloads import is_raw
from flue_py.transfer.bundles.layout import (
    COLUMNS,
    ENTRY_DEFAULTS,
    KEYS,
    NAME,
    TABLES,
    VERSION,
    BundleCounts,
    Column,
    Row,
)
from flue_py.transfer.bundles.lines import MOST_GROWTH, PARSED_LINE, Lines

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
