"""The pages of a SQLite file, read without SQLite, so that the sound parts of a damaged file can be used.

The file and its write-ahead log are only read. The layout is documented as SQLite's file format: b-tree pages of
cells, cells of records, long records with overflow pages.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from flue_py.errors import StoreUnavailable
from flue_py.store.salvage.wal import WriteAheadLog, log_page_size, read_log

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


class Image(NamedTuple):
    """One version of a page: its number, and where it is in the file or in the log."""

    number: int
    position: int
    in_log: bool


class Cell(NamedTuple):
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


class Page(NamedTuple):
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
