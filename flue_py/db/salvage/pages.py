"""Rescue the readable data of a damaged SQLite store, page by page, without SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, TypeAlias

from flue_py.core.json import Frozen
from flue_py.core.ledger import BUDGET_PERIODS, SEALS
from flue_py.core.usage import PAID_COLUMNS, TOTAL_COLUMNS
from flue_py.db.schema import schema_statements, stamp_statements
from flue_py.errors import StoreUnavailable

# ---------------------------------------------------------------------------------------------------------------------
# The write-ahead log of a damaged database: which of its pages were committed, frame by frame.
#
# SQLite stops at the first damaged frame. Here each frame is checked by itself, starting from the checksum stored in
# the frame before it, so that frames after a damaged one are not lost.

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682
_WORD = 0xFFFFFFFF


@dataclass(slots=True)
class WriteAheadLog:
    """The content of a log: the offset of the newest committed version of each page, and those of older ones.

    ``pages`` is the size of the database after the last commit, None if nothing was committed.
    """

    page_size: int
    newest: dict[int, int] = field(default_factory=dict)
    older: list[tuple[int, int]] = field(default_factory=list)
    pages: int | None = None
    damaged: bool = False


def log_page_size(header: bytes) -> int | None:
    """Return the size of the pages in a log, from its first bytes; None if they are not a header."""
    if len(header) < _HEADER:
        return None
    magic, _, page_size = struct.unpack(">III", header[:12])
    plausible = 512 <= page_size <= 65536 and page_size & (page_size - 1) == 0
    return page_size if magic & ~1 == _MAGIC and plausible else None


def read_log(file: BinaryIO, page_size: int) -> WriteAheadLog:
    """Return the content of a log with pages of this size. O(log)."""
    log = WriteAheadLog(page_size)
    file.seek(0)
    header = file.read(_HEADER)
    known = log_page_size(header) is not None
    order: Literal["<", ">"] = ">" if known and header[3] & 1 else "<"
    salts: bytes | None = header[16:24] if known else None
    seed: tuple[int, int] | None = struct.unpack(">II", header[24:32]) if known else None
    log.damaged = bool(header) and not known
    pending: list[tuple[int, int]] = []
    number = 0
    while True:
        position = _HEADER + number * (_FRAME + page_size)
        frame = file.read(_FRAME + page_size)
        if len(frame) < _FRAME + page_size:
            break
        number += 1
        page, size = struct.unpack(">II", frame[:8])
        stored = struct.unpack(">II", frame[16:24])
        if salts is None:
            # Without the header, the salt of most frames is no better evidence than that of the first.
            salts = frame[8:16]
        if frame[8:16] != salts:
            # It is left from an earlier use of the log, or damaged: the next frames show which.
            seed = None
            continue
        sound = seed is not None and page > 0 and _checksum(seed, frame[:8] + frame[24:], order) == stored
        if not sound:
            log.damaged = True
        else:
            pending.append((page, position + _FRAME))
            if size:
                _commit(log, pending, size)
                pending = []
        seed = stored
    return log


def _commit(log: WriteAheadLog, pending: list[tuple[int, int]], size: int) -> None:
    for page, position in pending:
        if page in log.newest:
            log.older.append((page, log.newest[page]))
        log.newest[page] = position
    log.pages = size


def _checksum(seed: tuple[int, int], data: bytes, order: Literal["<", ">"]) -> tuple[int, int]:
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & _WORD
        second = (second + words[index + 1] + first) & _WORD
    return first, second


# ---------------------------------------------------------------------------------------------------------------------
# The pages of a SQLite file, read without SQLite, so that the sound parts of a damaged file can be used.
#
# The file and its write-ahead log are only read. The layout is documented as SQLite's file format: b-tree pages of
# cells, cells of records, long records with overflow pages.

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 0x02, 0x05, 0x0A, 0x0D
INTERIOR = (INDEX_INTERIOR, TABLE_INTERIOR)
KINDS = (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF)

_PAGE_SIZES = (4096, 512, 1024, 2048, 8192, 16384, 32768, 65536)
_SAMPLE = 512 * 1024
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((serial - 12) // 2 for serial in range(12, 0x80)))
"""The size of a value by its type, for the types of one byte."""
_EMPTY: dict[int, int | str | bytes] = {8: 0, 9: 1, 12: b"", 13: ""}


class Lost(Enum):
    """The value of a column that cannot be read."""

    VALUE = "lost"


LOST: Final = Lost.VALUE
Value: TypeAlias = int | float | str | bytes | None | Lost


class Image(Frozen):
    """One version of a page: its number, and where it is in the file or in the log."""

    number: int
    position: int
    in_log: bool


class Cell(Frozen):
    """A cell of a page: a row, or (``values`` is None) only a pointer to a child page.

    ``overflow`` are the further pages of the row. If some are missing, the values in them are `LOST`.
    """

    image: Image
    offset: int
    rowid: int | None
    child: int | None
    values: tuple[Value, ...] | None
    overflow: tuple[int, ...] = ()
    whole: bool = True


class Page(Frozen):
    """A b-tree page, taken apart. ``sound`` says that all of it could be read."""

    kind: int
    cells: list[Cell]
    right: int | None
    sound: bool


class PageFile:
    """A damaged database file with its log: pages by number, the newest committed version of each."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: BinaryIO = path.open("rb")
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{str(path)!r} cannot be read: {error}") from error
        self._log_file: BinaryIO | None = None
        with contextlib.suppress(OSError):
            self._log_file = Path(f"{path}-wal").open("rb")  # noqa: SIM115 - closed with the database
        self.size = self._file.seek(0, 2)
        self.header = self._read(self._file, 0, 100)
        log_size = None if self._log_file is None else log_page_size(self._read(self._log_file, 0, 32))
        self.page_size = log_size or self._find_page_size()
        self.log = WriteAheadLog(self.page_size)
        if self._log_file is not None:
            self.log = read_log(self._log_file, self.page_size)
        self._latest: tuple[Image, bytes] | None = None
        first = self.page(1)
        self.header = b"" if first is None else first[:100]
        self.has_header = self.header[:16] == b"SQLite format 3\x00"
        reserved = self.header[20] if self.has_header else 0
        self.usable = self.page_size - (reserved if reserved <= 64 else 0)
        self.in_file = -(-self.size // self.page_size)
        self.count = self.log.pages or self._stated_count() or self.in_file

    def __enter__(self) -> PageFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._log_file is not None:
            self._log_file.close()

    @staticmethod
    def _read(file: BinaryIO, position: int, size: int) -> bytes:
        try:
            file.seek(position)
            return file.read(size)
        except OSError:
            # The disk cannot read a sector: only that sector is lost.
            return b""

    def _stated_count(self) -> int | None:
        """Return the number of pages in the header, if it is plausible."""
        if not self.has_header or self.header[24:28] != self.header[92:96]:
            return None
        stated = int.from_bytes(self.header[28:32])
        return stated if 0 < stated <= 4 * self.in_file + 1000 else None

    def _find_page_size(self) -> int:
        """Return the page size with which most pages are valid: the one in the header may be damaged."""
        stated = int.from_bytes(self.header[16:18])
        stated = 65536 if stated == 1 else stated
        sample = self._read(self._file, 0, _SAMPLE)
        scores = {size: self._plausible_pages(sample, size) for size in _PAGE_SIZES}
        best = max(_PAGE_SIZES, key=lambda size: scores[size])
        return stated if scores.get(stated, -1) >= scores[best] else best

    def _plausible_pages(self, sample: bytes, size: int) -> int:
        found = 0
        for start in range(0, len(sample) - size + 1, size):
            base = start + (100 if start == 0 else 0)
            kind, count = sample[base], int.from_bytes(sample[base + 3 : base + 5])
            pointers = base + (12 if kind in INTERIOR else 8)
            if kind not in KINDS or not count or pointers + 2 * count > start + size:
                continue
            offsets = struct.unpack_from(f">{count}H", sample, pointers)
            if (
                len(set(offsets)) == count
                and min(offsets) >= pointers + 2 * count - start
                and max(offsets) >= size // 2
            ):
                found += max(offsets) < size
        return found

    # -- pages --------------------------------------------------------------------------------------------------

    def image(self, number: int) -> Image | None:
        """Return where the newest version of a page is; None if it is beyond the end."""
        if number in self.log.newest:
            return Image(number, self.log.newest[number], True)
        position = (number - 1) * self.page_size
        return Image(number, position, False) if number > 0 and position < self.size else None

    def older_images(self) -> Iterator[Image]:
        """Yield the versions of pages that newer ones in the log have replaced."""
        for number, position in self.log.older:
            yield Image(number, position, True)
        for number in self.log.newest:
            position = (number - 1) * self.page_size
            if position < self.size:
                yield Image(number, position, False)

    def data(self, image: Image) -> bytes:
        """Return a version of a page; zeros stand for what is missing at the end of the file."""
        if self._latest is not None and self._latest[0] == image:
            return self._latest[1]
        file = self._log_file if image.in_log else self._file
        found = b"" if file is None else self._read(file, image.position, self.page_size)
        found = found.ljust(self.page_size, b"\0")
        self._latest = (image, found)
        return found

    def page(self, number: int) -> bytes | None:
        """Return the newest version of a page; None if it is beyond the end."""
        image = self.image(number)
        return None if image is None else self.data(image)

    def parse(self, image: Image, kind: int | None = None) -> Page | None:
        """Return a parsed b-tree page; None if it is not one. ``kind`` replaces the kind in its header."""
        data = self.data(image)
        base = 100 if image.number == 1 else 0
        told = data[base]
        kind = told if kind is None else kind
        if kind not in KINDS:
            return None
        pointers = base + (12 if kind in INTERIOR else 8)
        count = int.from_bytes(data[base + 3 : base + 5])
        if pointers + 2 * count > self.usable:
            return Page(kind, [], None, False)
        cells, sound = [], told == kind
        for index in range(count):
            offset = int.from_bytes(data[pointers + 2 * index : pointers + 2 * index + 2])
            cell = self.cell(image, offset, kind) if pointers + 2 * count <= offset < self.usable else None
            if cell is None:
                sound = False
            else:
                cells.append(cell)
                sound = sound and cell.whole
        right = int.from_bytes(data[base + 8 : base + 12]) if kind in INTERIOR else None
        return Page(kind, cells, right, sound)

    def cell(self, image: Image, offset: int, kind: int, *, strict: bool = False) -> Cell | None:
        """Return the cell at an offset of a page; None if there cannot be one.

        Without ``strict`` the sizes of its values need not add up to its own; SQLite does not check that either.
        """
        data = self.data(image)
        at, child, rowid = offset, None, None
        try:
            if kind in INTERIOR:
                child, at = int.from_bytes(data[at : at + 4]), at + 4
                if kind == TABLE_INTERIOR:
                    return Cell(image, offset, None, child, None)
            size, at = _varint(data, at)
            if kind == TABLE_LEAF:
                rowid, at = _varint(data, at)
                rowid -= (rowid >> 63) << 64
        except IndexError:
            return None
        local = self._local_size(size, kind)
        if not 2 <= size <= self.size + len(self.log.newest) * self.page_size or at + local > self.usable:
            return None
        payload = data[at : at + local]
        layout = _layout(payload)
        if layout is None or (strict and layout[0] + sum(layout[2]) != size):
            return None
        overflow: tuple[int, ...] = ()
        if local < size:
            rest, overflow = self._overflow(int.from_bytes(data[at + local : at + local + 4]), size - local)
            payload += rest
            self._latest = (image, data)
        values = tuple(_values(payload, *layout))
        return Cell(image, offset, rowid, child, values, overflow, LOST not in values)

    def _local_size(self, size: int, kind: int) -> int:
        """Return how much of a record of this size is in its cell; the rest is in overflow pages."""
        most = self.usable - 35 if kind == TABLE_LEAF else (self.usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (self.usable - 12) * 32 // 255 - 23
        kept = least + (size - least) % (self.usable - 4)
        return kept if kept <= most else least

    def _overflow(self, number: int, missing: int) -> tuple[bytes, tuple[int, ...]]:
        parts: list[bytes] = []
        numbers: list[int] = []
        while missing > 0:
            image = self.image(number)
            if image is None or number in numbers:
                break
            data = self.data(image)
            numbers.append(number)
            parts.append(data[4 : min(self.usable, 4 + missing)])
            missing -= len(parts[-1])
            number = int.from_bytes(data[:4])
        return b"".join(parts), tuple(numbers)

    def carve(
        self, image: Image, headers: Mapping[int, frozenset[int]], fits: Callable[[int, Cell], bool]
    ) -> Iterator[tuple[int, Cell]]:
        """Yield everything in a damaged page that looks like a row, with the kind of page it belongs on.

        ``headers`` are the possible lengths of record headers by kind of page, which rule out most offsets.
        """
        data = self.data(image)
        if not any(data):
            return
        for offset in range(self.usable - 8):
            for kind, lengths in headers.items():
                at = _behind_varint(data, offset)
                if kind == TABLE_LEAF:
                    at = _behind_varint(data, at)
                if at >= self.usable or data[at] not in lengths:
                    continue
                cell = self.cell(image, offset, kind, strict=True)
                if cell is not None and fits(kind, cell):
                    yield kind, cell


def _behind_varint(data: bytes, at: int) -> int:
    """Return where a number of up to four bytes ends: sizes and rowids of a store are no longer."""
    for number in data[at : at + 3]:
        at += 1
        if number < 0x80:
            return at
    return at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and where the next one begins. Raises `IndexError` at the end."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for index in range(1, 8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9


def _layout(payload: bytes) -> tuple[int, list[int], list[int]] | None:
    """Return where a record's values begin, and their types and sizes; None if its header is invalid."""
    try:
        header, at = _varint(payload, 0)
        if not at < header <= len(payload):
            return None
        types: list[int] = []
        while at < header:
            serial = payload[at]
            at += 1
            if serial >= 0x80:
                serial, at = _varint(payload, at - 1)
            types.append(serial)
    except IndexError:
        return None
    if at != header:
        return None
    return header, types, [_SIZES[serial] if serial < 0x80 else (serial - 12) // 2 for serial in types]


def _values(payload: bytes, at: int, types: Sequence[int], sizes: Sequence[int]) -> Iterator[Value]:
    end = len(payload)
    for serial, size in zip(types, sizes, strict=True):
        start, at = at, at + size
        if not size:
            # The types 10 and 11 are reserved, and read as NULL by SQLite.
            yield _EMPTY.get(serial)
        elif at > end:
            yield LOST
        elif serial < 7:
            yield int.from_bytes(payload[start:at], signed=True)
        elif serial == 7:
            yield float(struct.unpack(">d", payload[start:at])[0])
        elif serial % 2:
            yield _text(payload[start:at])
        else:
            yield payload[start:at]


def _text(data: bytes) -> str | Lost:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return LOST


# ---------------------------------------------------------------------------------------------------------------------
# The shapes of the records in a store's tables and indexes.
#
# A row is recognised by its shape: how many columns, of which types. A migration that adds columns at the end of a
# table
# rewrites no row: older rows have fewer columns, and the missing ones have their defaults.

_DERIVED = frozenset(
    {
        "parent_id",
        *TOTAL_COLUMNS,
        *PAID_COLUMNS,
        "entry_count",
        "message_count",
        "first_message",
        "spent_tokens",
        "spent_cost",
        "active_at",
        "active_slot",
        "head",
        *SEALS,
        "seal",
        "gap",
    }
)
"""Columns that are derived anew, so that a wrong value in them does not cost the row."""

_WORDS = {
    ("sessions", "kind"): frozenset({"root", "fork", "task"}),
    ("marks", "kind"): frozenset({"label", "pin", "retracted"}),
    ("requests", "operation"): frozenset({"append", "move", "fork", "task", "atomic", "copy"}),
    ("leaf_moves", "reason"): frozenset({"move", "rewind", "retract", "undo", "redo", "branch", "import", "back"}),
    ("task_links", "status"): frozenset({"running", "done", "failed"}),
    ("budgets", "covers"): frozenset({"session", "tasks", "scope"}),
    ("budgets", "unit"): frozenset({"tokens", "picodollars"}),
    ("budgets", "period"): frozenset({"", *BUDGET_PERIODS}),
    ("documents", "kind"): frozenset({"memory", "file"}),
    ("reservations", "state"): frozenset({"held", "committed", "released", "expired"}),
}

_ADDED: dict[str, dict[str, Value]] = {
    "budgets": {"period": "", "tz": ""},
    "sessions": {"head": b"", **dict.fromkeys(SEALS, 0)},
    **{table: {"seal": 0} for table in ("leaf_moves", "session_edits", "marks", "task_links", "ledger_sessions")},
    "documents": {"seal": 0, "gap": 0},
}
"""The columns that a migration has added at the end of a table, in order, and their values in older rows."""


class Column(Frozen):
    """A column of a record: ``type`` is the required type of its values."""

    name: str
    type: type
    required: bool
    words: frozenset[str] | None = None
    is_derived: bool = False


class Shape(Frozen):
    """The shape of the records of one table or index. ``holds_rows`` is False for an index beside a table.

    ``added`` are the values of its last columns in records that are older than those columns.
    """

    name: str
    table: str
    columns: tuple[Column, ...]
    has_rowid: bool
    holds_rows: bool
    alias: int | None = None
    added: tuple[Value, ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """The possible numbers of columns of a record, in order."""
        return tuple(range(len(self.columns) - len(self.added), len(self.columns) + 1))

    def values(self, cell: Cell) -> tuple[Value, ...] | None:
        """Return a row's values, completed by the rowid and defaults; None if their number is wrong."""
        values = cell.values
        if values is None or len(values) not in self.lengths:
            return None
        missing = len(self.columns) - len(values)
        values += self.added[len(self.added) - missing :]
        if self.alias is not None and values[self.alias] is None:
            values = (*values[: self.alias], cell.rowid, *values[self.alias + 1 :])
        return values

    def fits(self, cell: Cell) -> bool:
        """Return whether each column of a row fits this table."""
        values = self.values(cell)
        return values is not None and all(
            (value is None and not column.required)
            or (type(value) is column.type and (column.words is None or value in column.words))
            or column.is_derived
            for column, value in zip(self.columns, values, strict=True)
        )


class Shapes(Frozen):
    """The shapes of a store, by name, and the root page of each in a new database of this page size."""

    by_name: dict[str, Shape]
    roots: dict[str, int]

    def of_rows(self, *, rowid: bool) -> list[Shape]:
        """Return the shapes of tables with, or without, rowids."""
        return [shape for shape in self.by_name.values() if shape.holds_rows and shape.has_rowid == rowid]


@lru_cache(maxsize=8)
def shapes(page_size: int) -> Shapes:
    """Return the shapes of a store, and its root pages in the current format, read from one made in memory."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute(f"PRAGMA page_size = {page_size}")
        for statement in (*stamp_statements(), *schema_statements()):
            made.execute(statement)
        found = _shapes_in(made)
        roots = dict(made.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
    return Shapes(found, roots)


def _shapes_in(made: sqlite3.Connection) -> dict[str, Shape]:
    found = {}
    for kind, name, table in made.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall():
        if kind == "view":
            continue
        columns = {row[1]: row for row in made.execute(f"PRAGMA table_info({table})")}
        order = (
            [_name(*row[1:3]) for row in made.execute(f"PRAGMA index_xinfo({name})")]
            if kind == "index"
            else list(columns)
        )
        has_rowid = not _is_without_rowid(made, table)
        keys = [row[1] for row in columns.values() if row[5] and row[2] == "INTEGER"]
        alias = order.index(keys[0]) if kind == "table" and has_rowid and len(keys) == 1 else None
        shape = tuple(_column(table, column, columns) for column in order)
        added = _ADDED.get(table, {}) if kind == "table" else {}
        found[name] = Shape(
            name, table, shape, has_rowid and kind == "table", kind == "table", alias, tuple(added.values())
        )
    return found


def _is_without_rowid(made: sqlite3.Connection, table: str) -> bool:
    return any(row[1] == table and row[4] for row in made.execute("PRAGMA table_list"))


def _name(number: int, name: str | None) -> str:
    """Return the name of a column of an index; SQLite has negative numbers for the rowid and for expressions."""
    return {-1: "rowid", -2: "expression"}.get(number, name or "")


def _column(table: str, name: str, columns: dict[str, tuple[object, ...]]) -> Column:
    if name == "rowid":
        return Column("rowid", int, required=True)
    if name == "expression":
        return Column(name, str, required=False)
    row = columns[name]
    declared = str(row[2])
    kind = bytes if declared == "BLOB" else str if declared.startswith(("TEXT", "VARCHAR")) else int
    # The ledger has columns of the same names, which are not derived.
    is_derived = (table != "ledger" and name in _DERIVED) or (table, name) == ("documents", "chars")
    return Column(name, kind, bool(row[3]) or bool(row[5]), _WORDS.get((table, name)), is_derived)


# ---------------------------------------------------------------------------------------------------------------------
# Find the rows of a damaged database: along the b-trees where they are whole, else in single pages.
#
# A row is recognised by its shape (how many columns, of which types), even on a page that no longer belongs to a known
# table. Pages that are known to be free are left out: they have deleted rows.

_RANKS = {int: 1, float: 1, str: 2, bytes: 3}
_MASTER = "sqlite_master"
_MIN_CARVED_COLUMNS = 5

Sink: TypeAlias = Callable[[Shape, int, Cell, bool], None]
"""Takes a row: its shape, the kind of its page, the row, and whether it is certainly a current one."""


def _kinds(shape: Shape) -> tuple[int, int]:
    """Return the kinds of the leaf pages and of the inner pages of a table or index."""
    return (TABLE_LEAF, TABLE_INTERIOR) if shape.has_rowid else (INDEX_LEAF, INDEX_INTERIOR)


def _is_in_order(cells: list[Cell]) -> bool:
    """Return whether the rows of a page are sorted as SQLite sorts them: by rowid, or by their values."""
    keys = [(cell.rowid,) if cell.rowid is not None else cell.values or () for cell in cells]
    ranked = [[(_RANKS.get(type(value), 0), 0 if value is None else value) for value in key] for key in keys]
    try:
        return all(before <= after for before, after in pairwise(ranked))
    except TypeError:
        return False


@dataclass(slots=True)
class Scan:
    """Reads a file's rows into a sink. Its fields say what was damaged."""

    file: PageFile
    sink: Sink
    reached: set[int] = field(default_factory=set)
    bad: dict[int, str | None] = field(default_factory=dict)
    free_is_known: bool = False
    torn: bool = False
    """Whether a pointer leads to a wrong page, so that other pages may be unreachable."""

    schema_is_whole: bool = False
    """Whether the schema names all tables and indexes of its format, so that there are no others."""

    suspect: set[int] = field(default_factory=set)
    """The numbers of readable pages with rows that are wrong or in the wrong place."""

    broken: set[str] = field(default_factory=set)
    """The names of the trees with pages that could not be read whole."""

    _guessed: set[str] = field(default_factory=set)
    """The names of the trees whose root pages no schema names."""

    _to_carve: list[Image] = field(default_factory=list)
    _shapes: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self._shapes = shapes(self.file.page_size)

    def along_trees(self) -> None:
        """Read every b-tree from its root, and note the free pages. O(file)."""
        roots = self._roots()
        for shape in self._shapes.by_name.values():
            root = roots.get(shape.name)
            if root is not None:
                self._tree(shape, root)
                if shape.name in self._guessed and self._is_empty(root):
                    # An empty page fits every shape: it is no evidence that there are no rows.
                    self.broken.add(shape.name)
            elif not self.schema_is_whole:
                # It may be anywhere, or may never have existed.
                self.broken.add(shape.name)
                self.torn = True
        self.free_is_known = self._free_pages()

    @property
    def is_accounted_for(self) -> bool:
        """Whether every page is known to belong to a tree or to be free."""
        return self.free_is_known and len(self.reached) >= self.file.count

    # -- trees ----------------------------------------------------------------------------------------------------

    def _roots(self) -> dict[str, int]:
        """Return the root pages that the schema names; where it is damaged, those of a new database."""
        named: dict[str, int] = {}

        def note(_: Shape, __: int, cell: Cell, ___: bool) -> None:
            values = cell.values or ()
            if len(values) == 5 and isinstance(values[1], str) and isinstance(values[3], int):
                named[values[1]] = values[3]

        if self.file.page(1) is not None:
            master = Shape(_MASTER, _MASTER, (), has_rowid=True, holds_rows=False)
            Scan._tree(self, master, 1, note)
            self.schema_is_whole = self._shapes.by_name.keys() <= named.keys() and _MASTER not in self.broken
            self.broken.discard(_MASTER)
        named = {name: root for name, root in named.items() if self.file.image(root) is not None}
        if self.schema_is_whole:
            return named
        self._guessed = self._shapes.roots.keys() - named.keys()
        return {**self._shapes.roots, **named}

    def _is_empty(self, root: int) -> bool:
        image = self.file.image(root)
        page = None if image is None else self.file.parse(image)
        return page is not None and not page.cells and page.right is None

    def _tree(self, shape: Shape, root: int, sink: Sink | None = None) -> None:
        """Read one b-tree. Pages that belong to another one, or to none, are bad."""
        leaf, interior = _kinds(shape)
        waiting = [(root, 0)]
        leaf_depth: int | None = None
        failed: list[tuple[int, int]] = []
        while waiting:
            number, depth = waiting.pop()
            image = self.file.image(number)
            page = None if image is None or number in self.reached else self.file.parse(image)
            if page is None or page.kind not in (leaf, interior) or self._is_of_another(page.cells, shape, sink):
                failed.append((number, depth))
                continue
            self.reached.add(number)
            if page.kind == leaf:
                leaf_depth = depth if leaf_depth is None else leaf_depth
            strange = any(cell.values is not None and shape.values(cell) is None for cell in page.cells)
            if not page.sound or strange or not _is_in_order(page.cells):
                self.suspect.add(number)
            if (sink is None and strange) or not page.sound or (page.kind == leaf and depth != leaf_depth):
                self.broken.add(shape.name)
                self.torn = self.torn or page.kind == interior or depth != leaf_depth
                self.bad[number] = shape.table if shape.holds_rows else None
            self._take(shape, page.kind, page.cells, sink or self.sink)
            if not page.sound and image is not None and sink is None:
                self._to_carve.append(image)
            children = [cell.child for cell in page.cells if cell.child is not None]
            if page.right is not None:
                children.append(page.right)
            waiting += [(child, depth + 1) for child in reversed(children)]
        for number, depth in failed:
            self._note_failed(number, depth, leaf_depth, shape)

    def _note_failed(self, number: int, depth: int, leaf_depth: int | None, shape: Shape) -> None:
        self.broken.add(shape.name)
        is_leaf = leaf_depth is not None and depth >= leaf_depth
        self.torn = self.torn or not is_leaf or number in self.reached
        image = self.file.image(number)
        if number in self.reached or number in self.bad:
            return
        # An inner page of a table with rowids holds no rows itself.
        holds = shape.holds_rows and (is_leaf or not shape.has_rowid or leaf_depth is None)
        self.bad[number] = shape.table if holds else None
        if image is None:
            return
        page = self.file.parse(image)
        if page is not None and page.cells and not is_leaf:
            return  # a page of another tree, which is read later
        self.reached.add(number)
        self._to_carve.append(image)

    def _is_of_another(self, cells: Iterable[Cell], shape: Shape, sink: Sink | None) -> bool:
        """Return whether no row on a page can belong to this tree, by its columns or their values."""
        rows = [cell for cell in cells if cell.values is not None]
        if sink is not None or not rows or any(shape.fits(cell) for cell in rows):
            return False
        if all(shape.values(cell) is None for cell in rows):
            return True
        others = [other for other in self._shapes.by_name.values() if _kinds(other) == _kinds(shape)]
        return any(other.fits(cell) for other in others for cell in rows)

    def _take(self, shape: Shape, kind: int, cells: Iterable[Cell], sink: Sink, *, live: bool = True) -> None:
        for cell in cells:
            self.reached.update(cell.overflow if live else ())
            if cell.values is not None and (sink is not self.sink or shape.values(cell) is not None):
                sink(shape, kind, cell, live)

    def _free_pages(self) -> bool:
        """Record the pages of the free list; return whether it could be read to its end."""
        if not self.file.has_header:
            return False
        trunk, stated = (int.from_bytes(self.file.header[at : at + 4]) for at in (32, 36))
        free: set[int] = set()
        while trunk:
            data = self.file.page(trunk)
            if data is None or trunk in free or trunk in self.reached:
                return False
            count = int.from_bytes(data[4:8])
            if count > self.file.usable // 4 - 2:
                return False
            leaves = {int.from_bytes(data[8 + 4 * index : 12 + 4 * index]) for index in range(count)}
            if (
                len(leaves) != count
                or leaves & (free | self.reached)
                or not all(0 < leaf <= self.file.count for leaf in leaves)
            ):
                return False
            free |= leaves | {trunk}
            trunk = int.from_bytes(data[:4])
        if len(free) != stated:
            return False
        self.reached |= free
        return True

    # -- single pages -----------------------------------------------------------------------------------------------

    @property
    def whole_trees(self) -> set[str]:
        """Return the names of the trees that were read whole."""
        return self._shapes.by_name.keys() - self.broken

    def damaged_pages(self) -> None:
        """Look for single rows in the pages of trees that could not be read whole. Call it after all trees."""
        for image in self._to_carve:
            self._carve(image)

    def loose_pages(self) -> None:
        """Read the pages that no pointer leads to, such as those below a damaged page."""
        for number in range(1, self.file.count + 1):
            image = self.file.image(number)
            if number not in self.reached and image is not None:
                self._loose(image)
        for number in range(self.file.in_file + 1, self.file.count + 1):
            if self.file.image(number) is None and number not in self.reached:
                self.bad.setdefault(number, None)

    def older_pages(self) -> None:
        """Read old versions of pages, for rows whose newer page in the log is damaged."""
        for image in self.file.older_images():
            self._loose(image)

    def _loose(self, image: Image) -> None:
        page = self.file.parse(image)
        if page is None or not page.cells:
            self._carve(image)
            return
        candidates = self._shapes.of_rows(rowid=page.kind in (TABLE_LEAF, TABLE_INTERIOR))
        for shape in candidates:
            self._take(shape, page.kind, [cell for cell in page.cells if shape.fits(cell)], self.sink, live=False)
        if not page.sound and page.kind not in INTERIOR:
            self._carve(image)

    def _carve(self, image: Image) -> None:
        """Find rows in a damaged page by their shape alone. Shapes with few, short columns would fit anything."""
        wide = {
            TABLE_LEAF: [s for s in self._shapes.of_rows(rowid=True) if len(s.columns) >= _MIN_CARVED_COLUMNS - 1],
            INDEX_LEAF: [
                shape
                for shape in self._shapes.of_rows(rowid=False)
                if len(shape.columns) >= _MIN_CARVED_COLUMNS
                and (any(column.words for column in shape.columns) or shape.table == "ledger")
            ],
        }
        # One byte for its own length, then one for each column, or two for a long value.
        headers = {
            kind: frozenset(
                length for shape in fitting for length in range(shape.lengths[0] + 1, shape.lengths[-1] + 12)
            )
            for kind, fitting in wide.items()
        }
        for kind, cell in self.file.carve(
            image, headers, lambda kind, cell: any(shape.fits(cell) for shape in wide[kind])
        ):
            for shape in wide[kind]:
                if shape.fits(cell):
                    self.sink(shape, kind, cell, False)
