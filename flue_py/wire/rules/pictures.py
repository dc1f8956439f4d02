"""The pictures of a request: how many, how large, of what type."""

from __future__ import annotations

import struct
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.wire.media import type_of_bytes
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.rule import Found

_HEADER_CHARS = 128 * 1024
"""How much of the base64 text of a picture is decoded to find its size: what cameras put first is shorter."""
HEIF = {"image/heic", "image/heif"}
"""Two names of one container."""
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


@frozen
class Picture:
    """A picture of a request: its path, its MIME type, and its base64 text, None where it is named by a URL."""

    where: str
    mime_type: str | None
    data: str | None

    @classmethod
    def of(cls, where: str, mime_type: JsonValue, data: JsonValue) -> Picture:
        """Return the picture that some fields of a request are."""
        return cls(where, mime_type if isinstance(mime_type, str) else None, data if isinstance(data, str) else None)


def wrong_pictures(pictures: Iterable[Picture], limits: RequestLimits) -> Found:
    """Yield what of the pictures of a request is above a limit, or of a type that is not taken. O(pictures)."""
    held = list(pictures)
    if len(held) > limits.images:
        yield held[limits.images].where, f"{len(held):,} images, and a request may have {limits.images:,}"
    in_all = sum(len(each.data or "") for each in held)
    if limits.image_chars_in_all is not None and in_all > limits.image_chars_in_all:
        yield held[0].where, f"{in_all:,} characters of images, and a request may have {limits.image_chars_in_all:,}"
    for each in held:
        wrong = wrong_picture(each.data, each.mime_type, limits, among=len(held))
        if wrong:
            yield each.where, wrong


def wrong_picture(data: str | None, mime_type: str | None, limits: RequestLimits, *, among: int = 1) -> str:
    """Return what is wrong with one picture of ``among`` in a request; "" if nothing is known to be. O(1)."""
    if mime_type is not None and mime_type not in limits.image_types:
        return f"an image of type {mime_type!r}; it takes {', '.join(sorted(limits.image_types))}"
    if data is None:
        return ""
    held = type_of_bytes(data)
    if held != (mime_type or "image/png") and {held, mime_type} != HEIF:
        return f"an image whose data are {held or 'those of none'}"
    if limits.image_chars is not None and len(data) > limits.image_chars:
        return f"an image of {len(data):,} characters in base64, and {limits.image_chars:,} are taken"
    most = limits.image_side
    if limits.many_images is not None and among > limits.many_images:
        most = limits.many_images_side
    size = None if most is None else pixels(data)
    if most is not None and size is not None and max(size) > most:
        return f"an image of {size[0]:,} x {size[1]:,} pixels, and a side of {most:,} is taken"
    return ""


def pixels(data: str) -> tuple[int, int] | None:
    """Return width and height of a picture in base64: PNG, GIF, JPEG or WebP; None where they cannot be told. O(1)."""
    start = data[:_HEADER_CHARS]
    try:
        head = b64decode(start[: len(start) // 4 * 4])
        return _size_in(head)
    except (Error, ValueError, struct.error, IndexError):
        return None


def _size_in(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a"):
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head.startswith(b"\xff\xd8"):
        return _size_in_jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _size_in_webp(head)
    return None


def _size_in_jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # a byte that fills
            at += 1
            continue
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int(struct.unpack(">H", head[at + 2 : at + 4])[0])
    return None


def _size_in_webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None
