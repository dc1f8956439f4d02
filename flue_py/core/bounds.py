"""How much becomes of few bytes: compressed data and JSON, measured before they are taken apart.

A few hundred bytes of a zlib stream can stand for a gigabyte, and three bytes of JSON for an object of seventy. What
comes from elsewhere is therefore measured first, in memory that does not grow with the answer.
"""

from __future__ import annotations

import re
import zlib

_AT_ONCE = 1 << 16

# What CPython takes for a container, and for any other value with its place in one (rounded up).
_CONTAINER_BYTES = 232
_VALUE_BYTES = 64
_STRING_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = re.compile(_STRING_TEXT, re.DOTALL)
_PIECE = re.compile(rb'(?:[^"]{1,4096}+|%b){1,1024}+' % _STRING_TEXT, re.DOTALL)


def inflate(packed: bytes, most: int) -> bytes | None:
    """Return what a zlib stream stands for; None if that is more than ``most`` bytes, or not all there.

    Raises `zlib.error`. Memory: what it stands for, at most ``most`` bytes.
    """
    stream = zlib.decompressobj()
    data = stream.decompress(packed, most + 1)
    return data if stream.eof and len(data) <= most else None


def inflated_size(packed: bytes, most: int) -> int | None:
    """Return how many bytes a zlib stream stands for; None if they are more than ``most``, or not all there.

    Raises `zlib.error`. A part is looked at a time, and nothing is kept.
    """
    stream = zlib.decompressobj()
    size, rest = 0, packed
    while not stream.eof:
        part = stream.decompress(rest, _AT_ONCE)
        size += len(part)
        if size > most or not (part or stream.eof):
            return None
        rest = stream.unconsumed_tail
    return size


def json_weight(text: bytes | bytearray) -> int:
    """Return about how much memory the values of a JSON text take beside the text in them. O(size).

    Text that is not JSON has a weight, too. A piece is looked at a time.
    """
    containers = values = 0
    for piece in _PIECE.finditer(text):
        bare, strings = _STRING.subn(b"", piece[0])
        inside = bare.count(b"{") + bare.count(b"[")
        containers += inside
        values += bare.count(b",") + inside + strings
    return containers * _CONTAINER_BYTES + values * _VALUE_BYTES


_WIDE, _HALF_WIDE = re.compile(rb"[\xf0-\xff]"), re.compile(rb"[\xc4-\xff]")
_CONTINUING = bytes(range(0x80, 0xC0))


def memory_of_utf8(data: bytes | bytearray, start: int, end: int) -> int:
    """Return about how many bytes Python takes for UTF-8 from ``start`` to ``end``, as a text. O(size).

    Each character takes as much as the widest of them: one beyond Latin-1 makes an ASCII text twice as large, one
    beyond U+FFFF four times. A piece is looked at a time.
    """
    width = 4 if _WIDE.search(data, start, end) else 2 if _HALF_WIDE.search(data, start, end) else 1
    pieces = (data[at : min(at + _AT_ONCE, end)] for at in range(start, end, _AT_ONCE))
    return width * sum(len(piece.translate(None, _CONTINUING)) for piece in pieces)
