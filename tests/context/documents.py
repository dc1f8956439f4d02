"""Documents of every kind, made by the libraries that write them, or by hand where none does."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from flue_py.lazy import lazy_module

# They take half a second to import, which each process that collects the tests would wait for.
if None in map(find_spec, ("docx", "openpyxl", "pptx", "pypdf")):
    pytest.skip("needs the extra documents", allow_module_level=True)
docx: Any = lazy_module("docx")
openpyxl: Any = lazy_module("openpyxl")
pptx: Any = lazy_module("pptx")
pypdf: Any = lazy_module("pypdf")


def pdf(*pages: str) -> bytes:
    """Return a PDF with a text on each page; "" is a page without one."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (len(pages), b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        said = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
        packed = zlib.compress(said)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * number),
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        ]
    made = bytearray(b"%PDF-1.4\n")
    starts = []
    for number, each in enumerate(objects, 1):
        starts.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % start for start in starts)
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(made)


def encrypted_pdf(text: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf(text)))
    writer.encrypt("secret", algorithm="RC4-128")
    return saved(writer.write)


def word(*paragraphs: str, table: Sequence[Sequence[str]] = ()) -> bytes:
    document = docx.Document()
    for text in paragraphs:
        document.add_paragraph(text)
    if table:
        made = document.add_table(rows=len(table), cols=len(table[0]))
        for row, cells in zip(made.rows, table, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
        document.add_paragraph("after the table")
    return saved(document.save)


def slides(*texts: str, note: str = "") -> bytes:
    show = pptx.Presentation()
    for text in texts:
        slide = show.slides.add_slide(show.slide_layouts[6])
        slide.shapes.add_textbox(0, 0, 100, 100).text_frame.text = text
        if note:
            slide.notes_slide.notes_text_frame.text = note
    return saved(show.save)


def book(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for title, rows in sheets.items():
        sheet = made.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return saved(made.save)


def saved(save: object) -> bytes:
    file = BytesIO()
    save(file)  # type: ignore[operator]
    return file.getvalue()


def repacked(data: bytes, changes: Mapping[str, bytes]) -> bytes:
    """Return an office file in which some parts are others."""
    file = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(file, "w", ZIP_DEFLATED) as new:
        for name in {*old.namelist(), *changes}:
            new.writestr(name, changes[name] if name in changes else old.read(name))
    return file.getvalue()


def part_of(data: bytes, name: str) -> bytes:
    with ZipFile(BytesIO(data)) as packed:
        return packed.read(name)
