"""The text of documents: PDF, Word, PowerPoint and Excel files, by libraries of the extra ``documents``.

What comes in is not trusted: how much is read, unpacked and returned is bounded, XML with entities is refused, and an
error of ours says what is wrong with a file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from io import BytesIO
from pathlib import PurePath
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING

from flue_py.context.packed import check_packed
from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, MissingExtra, UnreadableFile, shown

if TYPE_CHECKING:
    from lxml.etree import _Element

MOST_BYTES = 64 * 1024 * 1024
"""How large a document may be."""

MOST_CHARS = 4_000_000
MOST_PAGES = 2_000
MOST_CELLS = 2_000_000
"""Of what is longer the beginning is returned, and a note says so."""

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_ALTERNATIVE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# warnings.catch_warnings changes what all threads see; two of them at once would leave it changed.
_quiet = Lock()


@frozen
class ExtractedText:
    """The text of a document, and notes about what of it is not there."""

    text: str
    notes: tuple[str, ...] = ()


def extract_text(data: bytes, name: str) -> ExtractedText:
    """Return the text of a document, whose kind is that of its name: ``.pdf``, ``.docx``, ``.pptx`` or ``.xlsx``.

    In the order of pages, slides or sheets, with a line for each that is not the first of a PDF. Cells of a row are
    parted by tabs. Formulas are what they came to when the file was saved. Pictures have no text here.

    Raises `UnreadableFile` for one that is encrypted, damaged, too large, or has no text, such as a scan;
    `InvalidArgument` for a name with another ending, and `MissingExtra`. It blocks, for seconds where it is large.
    """
    if not isinstance(data, bytes):
        raise InvalidArgument(f"data: should be bytes, not {type(data).__name__}")
    if not isinstance(name, str):
        raise InvalidArgument(f"name: {shown(name)} is not the name of a file")
    read = _READERS.get(PurePath(name).suffix.lower())
    if read is None:
        raise InvalidArgument(f"name: {shown(name)} does not end in one of {', '.join(_READERS)}")
    called = shown(PurePath(name).name)
    if len(data) > MOST_BYTES:
        raise UnreadableFile(f"{called} has {len(data):,} bytes; at most {MOST_BYTES:,} are read")
    found = _Text()
    try:
        read(data, called, found)
    except (MissingExtra, UnreadableFile):
        raise
    except Exception as error:  # a damaged file makes these libraries raise almost anything
        raise UnreadableFile(f"{called} cannot be read: {type(error).__name__}") from error
    text = found.text()
    if not text.strip():
        raise UnreadableFile(f"{called} has no text: a scan, or pictures alone, has to be read by a model that sees")
    return ExtractedText(text, tuple(found.notes))


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

    def cut(self, what: str) -> None:
        """Note that the rest is left out."""
        note = f"only the first {what} are there"
        if note not in self.notes:
            self.notes.append(note)

    def text(self) -> str:
        """Return what there is, without blanks at the ends of lines and cells."""
        return "\n".join(map(_trimmed, "".join(self._pieces).split("\n"))).strip("\n")


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra("documents", "the text of PDF, Word, PowerPoint and Excel files") from error


def _read_pdf(data: bytes, name: str, found: _Text) -> None:
    pypdf = _library("pypdf")
    reader = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted:
        raise UnreadableFile(f"{name} is encrypted: save it without a password")
    for number, page in enumerate(reader.pages):
        if number == MOST_PAGES:
            found.cut(f"{MOST_PAGES:,} pages")
            return
        text = page.extract_text().strip()
        if text and not found.add(f"{text}\n\n"):
            return


def _read_docx(data: bytes, name: str, found: _Text) -> None:
    docx = _library("docx")
    check_packed(data, name)
    _add_all(found, _walked(docx.Document(BytesIO(data)).element.body, _W, row=f"{_W}tr", cell=f"{_W}tc"))


def _read_pptx(data: bytes, name: str, found: _Text) -> None:
    pptx = _library("pptx")
    check_packed(data, name)
    for number, slide in enumerate(pptx.Presentation(BytesIO(data)).slides, 1):
        if not found.add(f"\n## Slide {number}\n"):
            return
        parts = [slide, *([slide.notes_slide] if slide.has_notes_slide else [])]
        for part in parts:
            if not _add_all(found, _walked(part.element, _A, row=f"{_A}tr", cell=f"{_A}tc")):
                return


def _read_xlsx(data: bytes, name: str, found: _Text) -> None:
    openpyxl = _library("openpyxl")
    check_packed(data, name)
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
        try:
            _read_sheets(book.worksheets, found)
        finally:
            book.close()


def _read_sheets(sheets: Iterable[object], found: _Text) -> None:
    left = MOST_CELLS
    for sheet in sheets:
        # What it says of its own size may be anything, and rows would be filled up to it.
        sheet.reset_dimensions()  # type: ignore[attr-defined]
        if not found.add(f"\n## {sheet.title}\n"):  # type: ignore[attr-defined]
            return
        for row in sheet.iter_rows(values_only=True):  # type: ignore[attr-defined]
            left -= max(len(row), 1)
            if left < 0:
                found.cut(f"{MOST_CELLS:,} cells")
                return
            line = "\t".join("" if value is None else _cell(value) for value in row).rstrip()
            if line and not found.add(f"{line}\n"):
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


def _add_all(found: _Text, pieces: Iterable[str]) -> bool:
    return all(found.add(piece) for piece in pieces)


_READERS: dict[str, Callable[[bytes, str, _Text], None]] = {
    ".pdf": _read_pdf,
    ".docx": _read_docx,
    ".pptx": _read_pptx,
    ".xlsx": _read_xlsx,
}
