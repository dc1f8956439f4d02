"""What the bytes of a picture or a document are, whatever they are said to be."""

from __future__ import annotations

import re
from base64 import b64decode

from flue_py.core.jsontext import JsonValue

_HEAD_CHARS = 64
_OTHER_ALPHABET = str.maketrans("-_", "+/", "\r\n")
_TYPES: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("image/avif", re.compile(rb"....ftypavi[fs]", re.DOTALL)),
    ("image/heic", re.compile(rb"....ftyphe(ic|ix|vc|vx|im|is)", re.DOTALL)),
    ("image/heif", re.compile(rb"....ftypm(if|sf)1", re.DOTALL)),
    ("image/bmp", re.compile(rb"BM....\0\0\0\0", re.DOTALL)),
    ("image/tiff", re.compile(rb"II\*\0|MM\0\*")),
    ("image/svg+xml", re.compile(rb"\s*(<\?xml[^>]*>\s*)?<svg[\s>]")),
    ("application/pdf", re.compile(rb"\s*%PDF-")),
)
"""How the bytes of each type begin, as its specification says."""


def type_of_bytes(data: str) -> str | None:
    """Return the MIME type of what a text of base64 holds, by how it begins; None if no type is known. O(1)."""
    start = data[: 2 * _HEAD_CHARS].translate(_OTHER_ALPHABET)[:_HEAD_CHARS]
    try:
        head = b64decode(start[: len(start) // 4 * 4], validate=True)
    except ValueError:
        return None
    return next((name for name, begins in _TYPES if begins.match(head)), None)


def bare_type(mime_type: JsonValue) -> str | None:
    """Return a MIME type without its parameters, in small letters; None for what is no text."""
    return mime_type.partition(";")[0].strip().lower() if isinstance(mime_type, str) else None
