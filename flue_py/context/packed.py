"""Office files as packed folders of XML: whether one can be unpacked without harm, before any library reads it."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from flue_py.errors import UnreadableFile

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
    entities, which files of these formats never do. ``name`` is what an error calls it. O(unpacked size).
    """
    if data.startswith(_OLE):
        raise UnreadableFile(f"{name} is encrypted, or of an older format: save it without a password, as a newer one")
    # Each entry takes memory, so they are counted before they are read.
    if data.count(_ENTRY) > MOST_PARTS:
        raise UnreadableFile(f"{name} has more than {MOST_PARTS:,} parts")
    try:
        with ZipFile(BytesIO(data)) as packed:
            _check_sizes(packed.infolist(), name)
            xml = 0
            for info in packed.infolist():
                xml += _checked_part(packed, info, name)
                if xml > MOST_XML:
                    raise UnreadableFile(f"{name} has more than {MOST_XML:,} bytes of XML")
    except (BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{name} cannot be unpacked: {type(error).__name__}") from error


def _check_sizes(parts: list[ZipInfo], name: str) -> None:
    if any(part.flag_bits & 1 for part in parts):
        raise UnreadableFile(f"{name} is encrypted: save it without a password")
    if sum(part.file_size for part in parts) > MOST_UNPACKED:
        raise UnreadableFile(f"{name} has more than {MOST_UNPACKED:,} bytes when it is unpacked")


def _checked_part(packed: ZipFile, info: ZipInfo, name: str) -> int:
    """Return how many bytes of XML a part has, 0 for any other. No more are read than it is said to have."""
    with packed.open(info) as part:
        # Without its NULs, XML in UTF-16 or UTF-32 is as good as ASCII for what is looked for.
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
