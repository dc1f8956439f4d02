"""The text of documents: PDF, Word, PowerPoint and Excel files, by libraries of the extra ``documents``.

Files are not trusted: how much is read, unpacked and returned is bounded, XML with entities is refused, and an
error of ours says why a file is wrong. The work of these libraries is not bounded by the size of a file: as a
program, this reads one document of its standard input within limits of memory and time.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from io import BytesIO
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile, ZipInfo

from flue_py.core.json import Frozen
from flue_py.errors import FlueError, InvalidArgument, MissingExtra, UnreadableFile, shown

if TYPE_CHECKING:
    from lxml.etree import _Element


# ---------------------------------------------------------------------------------------------------------------------
# Office files as packed folders of XML: whether one can be unpacked without harm, before any library reads it.

MOST_UNPACKED = 256 * 1024 * 1024
"""How many bytes all parts of a file may have, pictures included."""

MOST_XML = 64 * 1024 * 1024
"""How many of them may be XML, which takes several times its size in memory."""

MOST_PARTS = 10_000

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY = b"PK\x01\x02"
_CHUNK = 1 << 18
_LONGEST_MARK = 16
_MARKS = (b"<!DOCTYPE", b"<!ENTITY")
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']*)["']""")
_READ_AS_ASCII = frozenset((b"utf-8", b"utf-16", b"us-ascii", b"ascii", b"iso-8859-1", b"windows-1252"))


def check_packed(data: bytes, name: str) -> None:
    """Raise `UnreadableFile` for a file that cannot be unpacked, or not without harm.

    That is one that is encrypted, one that grows beyond all bounds when it is unpacked, and one whose XML declares
    entities, which files of these formats never do. An error calls it ``name``. O(unpacked size).
    """
    if data.startswith(_OLE):
        raise UnreadableFile(f"{name} is encrypted, or of an older format: save it without a password, as a newer one")
    # Each entry takes memory, so they are counted before they are read.
    if data.count(_ENTRY) > MOST_PARTS:
        raise UnreadableFile(f"{name} has more than {MOST_PARTS:,} parts")
    try:
        with ZipFile(BytesIO(data)) as packed:
            parts, xml = packed.infolist(), 0
            if any(part.flag_bits & 1 for part in parts):
                raise UnreadableFile(f"{name} is encrypted: save it without a password")
            if sum(part.file_size for part in parts) > MOST_UNPACKED:
                raise UnreadableFile(f"{name} has more than {MOST_UNPACKED:,} bytes when it is unpacked")
            for info in parts:
                xml += _checked_part(packed, info, name)
                if xml > MOST_XML:
                    raise UnreadableFile(f"{name} has more than {MOST_XML:,} bytes of XML")
    except (BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{name} cannot be unpacked: {type(error).__name__}") from error


def _checked_part(packed: ZipFile, info: ZipInfo, name: str) -> int:
    """Return how many bytes of XML a part has, 0 for any other. No more are read than it is said to have."""
    with packed.open(info) as part:
        # Without its NULs, XML in UTF-16 or UTF-32 is as good as ASCII for this search.
        begin = part.read(_CHUNK)
        plain = begin.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").lstrip(b"\xff\xfe \t\r\n")
        if plain.startswith(b"Lo\xa7\x94"):
            raise UnreadableFile(f"{name} has XML in an encoding that files of this format do not have")
        if not plain.startswith(b"<"):
            return 0
        named = _ENCODING.search(plain.partition(b"?>")[0]) if plain.startswith(b"<?xml") else None
        if named is not None and named[1].lower() not in _READ_AS_ASCII:
            raise UnreadableFile(f"{name} has XML in an encoding that files of this format do not have")
        seen, tail = 0, b""
        while begin:
            seen += len(begin)
            if seen > MOST_XML:
                break
            window = tail + begin.replace(b"\0", b"")
            if any(mark in window for mark in _MARKS):
                raise UnreadableFile(f"{name} has XML that declares a document type, which files of this format do not")
            tail = window[-_LONGEST_MARK:]
            begin = part.read(_CHUNK)
        return seen


# ---------------------------------------------------------------------------------------------------------------------
# Reading documents.

MOST_BYTES = 64 * 1024 * 1024
"""How large a document may be."""

MOST_CHARS = 4_000_000
MOST_PAGES = 2_000
MOST_CELLS = 2_000_000
"""Of a longer document the beginning is returned, and a note says so."""

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_ALTERNATIVE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


class ExtractedText(Frozen):
    """The text of a document, and notes about missing parts."""

    text: str
    notes: tuple[str, ...] = ()


def check_document(data: bytes, name: str) -> None:
    """Raise `InvalidArgument` for a name that is no document's, and `UnreadableFile` for one that is too large."""
    if not isinstance(data, bytes):
        raise InvalidArgument(f"data: should be bytes, not {type(data).__name__}")
    if not isinstance(name, str):
        raise InvalidArgument(f"name: {shown(name)} is not the name of a file")
    if not is_document(name):
        raise InvalidArgument(f"name: {shown(name)} does not end in one of {', '.join(_READERS)}")
    if len(data) > MOST_BYTES:
        raise UnreadableFile(f"{shown(PurePath(name).name)} has {len(data):,} bytes; at most {MOST_BYTES:,} are read")


def read_document(data: bytes, name: str) -> ExtractedText:
    """Do as `extract_text`, in this process, without limits. Raises `MemoryError`, too."""
    check_document(data, name)
    called, collected = shown(PurePath(name).name), _Text()
    try:
        library, read = _READERS[PurePath(name).suffix.lower()]
        read(_library(library), data, called, collected)
    except (MissingExtra, UnreadableFile, MemoryError):
        raise
    except Exception as error:  # a damaged file makes these libraries raise almost anything
        raise UnreadableFile(f"{called} cannot be read: {type(error).__name__}") from error
    text = collected.text()
    if not text.strip():
        raise UnreadableFile(f"{called} has no text: a scan, or pictures alone, has to be read by a model that sees")
    return ExtractedText(text, tuple(collected.notes))


def is_document(name: str) -> bool:
    """Return whether the text of a file of this name is to be extracted, and is not the file itself."""
    return PurePath(name).suffix.lower() in _READERS


class _Text:
    """Text that is being put together, up to its bound."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._pieces: list[str] = []
        self._left = MOST_CHARS

    def add(self, piece: str) -> bool:
        """Add a piece, and return whether there is room for more."""
        self._pieces.append(piece[: self._left])
        self._left -= len(piece)
        if self._left < 0:
            self.cut(f"{MOST_CHARS:,} characters")
        return self._left >= 0

    def cut(self, unit: str) -> None:
        """Note that the rest is left out."""
        note = f"only the first {unit} are there"
        if note not in self.notes:
            self.notes.append(note)

    def text(self) -> str:
        """Return the text, without blanks at the ends of lines and cells."""
        return "\n".join(map(_trimmed, "".join(self._pieces).split("\n"))).strip("\n")


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra("documents", "the text of PDF, Word, PowerPoint and Excel files") from error


def _read_pdf(pypdf: ModuleType, data: bytes, name: str, collected: _Text) -> None:
    reader = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted:
        raise UnreadableFile(f"{name} is encrypted: save it without a password")
    for number, page in enumerate(reader.pages):
        if number == MOST_PAGES:
            collected.cut(f"{MOST_PAGES:,} pages")
            return
        text = page.extract_text().strip()
        if text and not collected.add(f"{text}\n\n"):
            return


def _read_docx(docx: ModuleType, data: bytes, name: str, collected: _Text) -> None:
    check_packed(data, name)
    _add_all(collected, _walked(docx.Document(BytesIO(data)).element.body, _W, row=f"{_W}tr", cell=f"{_W}tc"))


def _read_pptx(pptx: ModuleType, data: bytes, name: str, collected: _Text) -> None:
    check_packed(data, name)
    for number, slide in enumerate(pptx.Presentation(BytesIO(data)).slides, 1):
        if not collected.add(f"\n## Slide {number}\n"):
            return
        parts = [slide, *([slide.notes_slide] if slide.has_notes_slide else [])]
        for part in parts:
            if not _add_all(collected, _walked(part.element, _A, row=f"{_A}tr", cell=f"{_A}tc")):
                return


def _read_xlsx(openpyxl: ModuleType, data: bytes, name: str, collected: _Text) -> None:
    check_packed(data, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
        try:
            _read_sheets(book.worksheets, collected)
        finally:
            book.close()


def _read_sheets(sheets: Iterable[object], collected: _Text) -> None:
    left = MOST_CELLS
    for sheet in sheets:
        # The size that it states may be anything, and rows would be filled up to it.
        sheet.reset_dimensions()  # type: ignore[attr-defined]
        if not collected.add(f"\n## {sheet.title}\n"):  # type: ignore[attr-defined]
            return
        for row in sheet.iter_rows(values_only=True):  # type: ignore[attr-defined]
            left -= max(len(row), 1)
            if left < 0:
                collected.cut(f"{MOST_CELLS:,} cells")
                return
            line = "\t".join("" if value is None else _cell(value) for value in row).rstrip()
            if line and not collected.add(f"{line}\n"):
                return


def _trimmed(line: str) -> str:
    return "\t".join(cell.rstrip(" ") for cell in line.split("\t")).rstrip()


def _cell(value: object) -> str:
    return " ".join(str(value).split())


def _walked(root: _Element, space: str, *, row: str, cell: str) -> Iterator[str]:
    """Yield the text below an element of WordprocessingML or DrawingML, with line ends, and tabs between cells."""
    etree = _library("lxml.etree")
    text, tab, breaks, paragraph = f"{space}t", f"{space}tab", (f"{space}br", f"{space}cr"), f"{space}p"
    walk = etree.iterwalk(root, events=("start", "end"))
    cells = 0
    for event, element in walk:
        tag = element.tag
        if event == "start":
            cells += tag == cell
            if tag == _ALTERNATIVE:
                # The same again, for programs that do not know the first one.
                walk.skip_subtree()
        elif tag == text:
            yield element.text or ""
        elif tag == tab:
            # In the properties of a paragraph it is where a tab stops.
            yield "" if element.getparent().tag in (f"{space}tabs", f"{space}tabLst") else "\t"
        elif tag in breaks:
            yield "\n"
        elif tag == paragraph:
            yield " " if cells else "\n"
        elif tag == cell:
            cells -= 1
            yield "\t"
        elif tag == row:
            yield "\n"


def _add_all(collected: _Text, pieces: Iterable[str]) -> bool:
    return all(collected.add(piece) for piece in pieces)


_READERS: dict[str, tuple[str, Callable[[ModuleType, bytes, str, _Text], None]]] = {
    ".pdf": ("pypdf", _read_pdf),
    ".docx": ("docx", _read_docx),
    ".pptx": ("pptx", _read_pptx),
    ".xlsx": ("openpyxl", _read_xlsx),
}
"""The library that reads the documents of an ending, and the function that has it do so."""


def _limited(name: str, memory: int, seconds: int) -> int:
    """Let this process have so many bytes more than it has with the library that it needs, and seconds on a CPU.

    Returns how many it has.
    """
    _library(_READERS[PurePath(name).suffix.lower()][0])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if sys.platform == "linux":
        used = _used()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        return used
    return 0


def _used() -> int:
    """Return how much address space this process has taken at most. On Linux."""
    with open("/proc/self/status", "rb") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"VmPeak:"))


def main() -> None:
    """Read a document of the standard input, behind a line that names it and its limits; write the result."""
    order = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    used = sys.maxsize
    try:
        used = _limited(order["name"], order["memory"], order["seconds"])
        text = read_document(data, order["name"])
        answer = json.dumps({"text": text.text, "notes": text.notes})
    except MissingExtra:
        answer = json.dumps({"missing": True})
    except MemoryError:
        answer = json.dumps({"memory": True})
    except FlueError as error:
        # Libraries written in C give it any name if they get no memory.
        is_full = sys.platform == "linux" and 2 * (_used() - used) > order["memory"]
        answer = json.dumps({"memory": True} if is_full else {"unreadable": str(error)})
    sys.stdout.write(answer)


if __name__ == "__main__":
    main()
