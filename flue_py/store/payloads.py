"""How a payload lies in its row: as text, packed when it is larger, or apart in `blobs` when it is large.

Text up to `PACK_ABOVE` bytes stays text, to be read with any tool. Above that it is zlib-compressed in its row,
where that makes it smaller, and with less effort where it is `LARGE`; above `SPILL_ABOVE` compressed bytes it is stored
once per tree under its SHA-256, so that an image or a file that comes again costs nothing.
"""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import NamedTuple

from flue_py.errors import CorruptStore

PACK_ABOVE = 640
SPILL_ABOVE = 16_384
LARGE = 4_096
"""Above so many bytes zlib's last effort costs four times the time, and saves a fiftieth of the size."""
_LEVEL, _LEVEL_WHERE_LARGE = 6, 4


class StoredPayload(NamedTuple):
    """The three columns of a payload, of which exactly one is set, and the blob to store beside them."""

    payload: str | None
    packed: bytes | None
    blob: bytes | None
    blob_data: bytes | None = None


def pack(text: str) -> StoredPayload:
    """Return how a payload's text is stored. O(size)."""
    if len(text) <= PACK_ABOVE // 4:
        return StoredPayload(text, None, None)
    data = text.encode()
    if len(data) <= PACK_ABOVE:
        return StoredPayload(text, None, None)
    packed = zlib.compress(data, _LEVEL if len(data) <= LARGE else _LEVEL_WHERE_LARGE)
    if len(packed) > SPILL_ABOVE:
        return StoredPayload(None, None, sha256(data).digest(), packed)
    if len(packed) < len(data):
        return StoredPayload(None, packed, None)
    return StoredPayload(text, None, None)


def unpack(packed: bytes) -> str:
    """Return the text of a packed payload. Raises `CorruptStore` where it cannot be read."""
    try:
        return zlib.decompress(packed).decode()
    except (zlib.error, UnicodeDecodeError, TypeError) as error:
        raise CorruptStore(f"a packed payload cannot be read ({error}); run verify() to find it") from error


def unpack_blob(blob: bytes, data: bytes | None) -> str:
    """Return the text of a blob, verified by its SHA-256. Raises `CorruptStore` where it is missing or differs."""
    # SQLite may hold something else than bytes in either column.
    if not isinstance(blob, bytes):
        raise CorruptStore(f"{blob!r} is not the SHA-256 of a blob; run verify()")
    if data is None:
        raise CorruptStore(f"blob {blob.hex()} is missing; run verify()")
    text = unpack(data)
    if sha256(text.encode()).digest() != blob:
        raise CorruptStore(f"blob {blob.hex()} does not match its SHA-256; run verify()")
    return text
