"""The text of documents: what is in them, and nothing that harms, whatever is in them."""

from __future__ import annotations

import sys
from datetime import date
from functools import cache
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from flue_py.context import document_texts
from flue_py.context import document_texts as packed
from flue_py.context.artifacts import extract_text
from flue_py.context.document_texts import ExtractedText, is_document, read_document
from flue_py.core.sessions import Limits
from flue_py.errors import InvalidArgument, MissingExtra, UnreadableFile
from tests.context.documents import book, encrypted_pdf, part_of, pdf, repacked, slides, word
from tests.tables import inputs

DOCUMENT = "word/document.xml"
DOCUMENTS = {
    "x.pdf": cache(lambda: pdf("x")),
    "x.docx": cache(lambda: word("x")),
    "x.pptx": cache(lambda: slides("x")),
    "x.xlsx": cache(lambda: book({"s": [["x"]]})),
}


def read(data: bytes, name: str) -> str:
    found = read_document(data, name)
    assert found.notes == ()
    return found.text


def refused(data: bytes, name: str) -> str:
    with pytest.raises(UnreadableFile) as caught:
        read_document(data, name)
    return str(caught.value)


def test_the_pages_of_a_pdf_are_read_in_order() -> None:
    assert read(pdf("Hello there", "", "Second"), "a/b/Report.PDF") == "Hello there\n\nSecond"


def test_a_word_document_is_read_with_its_tables_where_they_stand() -> None:
    data = word("First\tone", "Second line\nbroken", table=[["a", "b"], ["c d", ""]])
    assert read(data, "x.docx") == "First\tone\nSecond line\nbroken\na\tb\nc d\nafter the table"


def test_text_that_is_there_for_older_programs_too_is_read_once_and_deleted_text_not() -> None:
    data = word("HERE", "and after")
    box = (
        b'<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        b"<mc:Choice Requires='x'><w:p><w:r><w:t>in a box</w:t></w:r></w:p></mc:Choice>"
        b"<mc:Fallback><w:p><w:r><w:t>in a box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>"
        b"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
    )
    xml = part_of(data, DOCUMENT).replace(b"<w:t>HERE</w:t></w:r>", b"<w:t>HERE</w:t></w:r>" + box)
    assert read(repacked(data, {DOCUMENT: xml}), "x.docx") == "HEREin a box\n\nand after"


def test_slides_are_read_with_their_notes() -> None:
    text = read(slides("Title\nline", "Two", note="say this"), "x.pptx")
    assert text.splitlines()[:4] == ["## Slide 1", "Title", "line", "say this"]
    assert "## Slide 2\nTwo" in text


def test_sheets_are_read_row_by_row() -> None:
    rows = [["name", "n", None], [None, None, None], ["tabs\tand\nlines", 1.5, date(2026, 3, 28)], [None, True, None]]
    text = read(book({"One": rows, "Two": [["x"]]}), "x.xlsx")
    assert text == "## One\nname\tn\ntabs and lines\t1.5\t2026-03-28 00:00:00\n\tTrue\n\n## Two\nx"


def test_encrypted_files_say_so() -> None:
    assert "encrypted" in refused(encrypted_pdf("x"), "x.pdf")
    for name in ("x.docx", "x.pptx", "x.xlsx"):
        assert "encrypted, or of an older format" in refused(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, name)
    marked = bytearray(word("x"))
    at = marked.index(b"PK\x01\x02")
    marked[at + 8] |= 1
    assert "encrypted" in refused(bytes(marked), "x.docx")


def test_a_file_without_text_says_that_it_may_be_a_scan() -> None:
    for data, name in ((pdf("", ""), "x.pdf"), (word(), "x.docx")):
        assert "has no text: a scan" in refused(data, name)


@inputs("name", DOCUMENTS)
def test_what_is_damaged_or_something_else_is_an_error_of_ours(name: str) -> None:
    whole = DOCUMENTS[name]()
    for data in (b"", b"x", b"PK\x03\x04" + b"\0" * 100, b"%PDF-1.7\n" + b"\xff" * 500, whole[: len(whole) // 2]):
        refused(data, name)
    for another in {"x.docx", "x.pptx", "x.xlsx"} - {name} if name != "x.pdf" else ():
        # Each is a packed folder, but not of this kind.
        refused(repacked(DOCUMENTS[another](), {"[Content_Types].xml": b"<Types/>"}), name)


def test_a_file_that_grows_when_it_is_unpacked_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as new:
        for number in range(10):
            new.writestr(f"{number}.bin", b"\0" * 1_000_000)
    monkeypatch.setattr(packed, "MOST_UNPACKED", 9_999_999)
    assert "when it is unpacked" in refused(file.getvalue(), "x.docx")
    monkeypatch.setattr(packed, "MOST_UNPACKED", 10_000_000)
    assert "cannot be read" in refused(file.getvalue(), "x.docx")
    monkeypatch.setattr(packed, "MOST_PARTS", 9)
    assert "more than 9 parts" in refused(file.getvalue(), "x.docx")
    monkeypatch.undo()
    big = b"<a>" + b"<b/>" * 1_000_000 + b"</a>"
    monkeypatch.setattr(packed, "MOST_XML", 1_000_000)
    assert "bytes of XML" in refused(repacked(word("x"), {"word/big.xml": big}), "x.docx")


def test_a_part_that_lies_about_its_size_is_refused() -> None:
    data = bytearray(word("x" * 100))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    refused(bytes(data), "x.docx")


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    "<w:body><w:p><w:r><w:t>&b;</w:t></w:r></w:p></w:body></w:document>"
)
FILE = BOMB.replace('<!ENTITY b "&a;&a;&a;&a;">', '<!ENTITY b SYSTEM "file:///etc/passwd">')


@inputs("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@inputs("xml", [BOMB, FILE], ids=["bomb", "file"])
def test_xml_with_entities_is_refused_in_whatever_encoding(xml: str, encoding: str) -> None:
    for part, name in (
        (DOCUMENT, "x.docx"),
        ("ppt/slides/slide1.xml", "x.pptx"),
        ("xl/worksheets/sheet1.xml", "x.xlsx"),
        ("docProps/other.bin", "x.docx"),
    ):
        assert "declares a document type" in refused(repacked(DOCUMENTS[name](), {part: xml.encode(encoding)}), name)


def test_xml_in_an_encoding_that_could_hide_something_is_refused() -> None:
    hidden = b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE d [+ADwAIQ-ENTITY a "b"+AD4-]+AD4-<a/>'
    assert "in an encoding" in refused(repacked(word("x"), {DOCUMENT: hidden}), "x.docx")
    assert "in an encoding" in refused(repacked(word("x"), {DOCUMENT: BOMB.encode("cp037")}), "x.docx")


def test_a_mark_on_the_edge_of_what_is_read_at_once_is_found() -> None:
    for shift in range(12):
        padded = b"<!--" + b"x" * (packed._CHUNK - 10 - shift) + b"-->" + BOMB[21:].encode()
        assert "declares a document type" in refused(repacked(DOCUMENTS["x.docx"](), {DOCUMENT: padded}), "x.docx")


def test_the_beginning_of_what_is_too_long_is_read_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_texts, "MOST_CHARS", 100)
    for data, name in (
        (pdf(*["word " * 10] * 5), "x.pdf"),
        (word(*["word " * 10] * 5), "x.docx"),
        (slides(*["word " * 10] * 5), "x.pptx"),
        (book({"s": [["word " * 10]] * 5}), "x.xlsx"),
    ):
        found = read_document(data, name)
        assert 80 < len(found.text) <= 100
        assert found.notes == ("only the first 100 characters are there",)
    monkeypatch.undo()
    monkeypatch.setattr(document_texts, "MOST_PAGES", 2)
    assert read_document(pdf("a", "b", "c"), "x.pdf") == ExtractedText("a\n\nb", ("only the first 2 pages are there",))
    assert read_document(pdf("a", "b"), "x.pdf") == ExtractedText("a\n\nb")
    monkeypatch.setattr(document_texts, "MOST_CELLS", 4)
    found = read_document(book({"s": [["a", "b"], ["c", "d"], ["e"]]}), "x.xlsx")
    assert found == ExtractedText("## s\na\tb\nc\td", ("only the first 4 cells are there",))
    monkeypatch.setattr(document_texts, "MOST_BYTES", 10)
    assert "at most 10 are read" in refused(word("x"), "x.docx")


def test_a_sheet_that_says_it_is_vast_costs_what_is_in_it() -> None:
    data = book({"s": [["a", "b"]]})
    sheet = "xl/worksheets/sheet1.xml"
    xml = part_of(data, sheet)
    vast = xml.replace(b'ref="A1:B1"', b'ref="A1:XFD1048576"')
    assert vast != xml
    assert read(repacked(data, {sheet: vast}), "x.xlsx") == "## s\na\tb"


def test_names_and_data_are_checked() -> None:
    wrong: Any
    for wrong in ("x.doc", "x", "", "docx", "x.txt", 5):
        with pytest.raises(InvalidArgument, match="name"):
            read_document(b"", wrong)
    for wrong in ("text", None, bytearray()):
        with pytest.raises(InvalidArgument, match="data"):
            read_document(wrong, "x.pdf")
    assert [is_document(name) for name in ("a.PDF", "a.xlsx", "a.txt", "pdf", "")] == [True, True, False, False, False]
    assert "\x1b" not in refused(b"", "\x1b[2J.pdf")


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pypdf", "docx", "pptx", "openpyxl"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in DOCUMENTS:
        with pytest.raises(MissingExtra, match=r"pip install 'flue-py\[documents\]'"):
            read_document(b"x", name)


def test_what_a_document_takes_is_bounded_in_a_process_of_its_own() -> None:
    files = {
        "x.pdf": pdf("page"),
        "x.docx": word("word"),
        "x.pptx": slides("slide"),
        "x.xlsx": book({"s": [[f"cell {row}-{column}" for column in range(20)] for row in range(500)]}),
    }
    for name, data in files.items():
        assert extract_text(data, name) == read_document(data, name)
    with pytest.raises(UnreadableFile, match=r"x\.pdf' cannot be read"):
        extract_text(files["x.pdf"][:100], "x.pdf")
    long = word("HERE")
    paragraph = b"<w:p><w:r><w:t>x</w:t></w:r></w:p>"
    long = repacked(
        long, {DOCUMENT: part_of(long, DOCUMENT).replace(b"<w:sectPr", paragraph * 400_000 + b"<w:sectPr", 1)}
    )
    if sys.platform == "linux":
        for most in (5_000_000, 50_000_000):
            with pytest.raises(UnreadableFile, match=rf"more than {most:,} bytes of memory .* \(extraction_bytes\)"):
                extract_text(long, "x.docx", limits=Limits(extraction_bytes=most))
    with pytest.raises(UnreadableFile, match=r"more than 1 seconds to read; .* other limits \(extraction_seconds\)"):
        extract_text(long, "x.docx", limits=Limits(extraction_seconds=1))
    with pytest.raises(InvalidArgument, match="name"):
        extract_text(b"", "x.txt")
