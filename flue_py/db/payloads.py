"""How a payload lies in its row: as text, packed when it is larger, or apart in `blobs` when it is large.

Text up to `PACK_ABOVE` bytes stays text, to be read with any tool. Above that it is zlib-compressed in its row,
where that makes it smaller, and with less effort where it is `LARGE`; above `SPILL_ABOVE` compressed bytes it is stored
once per tree under its SHA-256. Long base64 is cut out of it before: what it stands for, a picture or a file, is stored
once per tree, too, whatever payloads it is in.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from flue_py.core.chain import Chain
from flue_py.core.json import SHORTEST, Cut, NamedTuple, cut, encoded, inflate, splice
from flue_py.core.ledger import BlobRow, EntryRow
from flue_py.core.sessions import LARGEST_ENTRY
from flue_py.errors import CorruptStore

PACK_ABOVE = 640
SPILL_ABOVE = 16_384
CUT_FROM = SHORTEST
"""How many characters of base64 are stored apart. Reading does not ask it."""
LARGE = 4_096
"""Above so many bytes zlib's last effort costs four times the time, and saves a fiftieth of the size."""
_LEVEL, _LEVEL_WHERE_LARGE = 6, 4


_SAMPLE, _WORTH_PACKING = 4_096, 0.9


class StoredPayload(NamedTuple):
    """The three columns of a payload, of which exactly one is set, and the blobs and cuts stored beside its row.

    ``cuts`` are the pieces cut out of the text: the place in the rest, and the SHA-256 of the bytes. ``blobs`` has
    those, and the text where that is a blob.
    """

    payload: str | None
    packed: bytes | None
    blob: bytes | None
    blobs: tuple[BlobRow, ...] = ()
    cuts: tuple[tuple[int, bytes], ...] = ()


def pack(text: str) -> StoredPayload:
    """Return how a payload's text is stored. O(size)."""
    if len(text) <= PACK_ABOVE // 4:
        return StoredPayload(text, None, None)
    data = text.encode()
    if len(data) <= PACK_ABOVE:
        return StoredPayload(text, None, None)
    rest, pieces = cut(data, CUT_FROM)
    if not pieces:
        return _packed(text, data)
    blobs = [_bytes_as_blob(piece) for piece in pieces]
    stored = _packed(rest.decode(), rest)
    cuts = tuple((piece.place, blob.sha256) for piece, blob in zip(pieces, blobs, strict=True))
    return stored._replace(blobs=(*blobs, *stored.blobs), cuts=cuts)


def _packed(text: str, data: bytes) -> StoredPayload:
    if len(data) <= PACK_ABOVE:
        return StoredPayload(text, None, None)
    packed = zlib.compress(data, _LEVEL if len(data) <= LARGE else _LEVEL_WHERE_LARGE)
    if len(packed) > SPILL_ABOVE:
        sha = sha256(data).digest()
        return StoredPayload(None, None, sha, (BlobRow(sha, len(data), packed),))
    if len(packed) < len(data):
        return StoredPayload(None, packed, None)
    return StoredPayload(text, None, None)


def _bytes_as_blob(piece: Cut) -> BlobRow:
    """Return the blob of a piece that was cut out: as it is where zlib would not make it smaller, as pictures are."""
    data = piece.data
    samples = b"".join(data[at : at + _SAMPLE] for at in (0, len(data) // 2, max(len(data) - _SAMPLE, 0)))
    stored = data
    if len(zlib.compress(samples, 1)) < _WORTH_PACKING * len(samples):
        stored = min(data, zlib.compress(data, _LEVEL_WHERE_LARGE), key=len)
    return BlobRow(sha256(data).digest(), len(data), stored)


def unpack(packed: bytes, most: int = LARGEST_ENTRY) -> bytes:
    """Return the text of a packed payload, in UTF-8. Raises `CorruptStore` where it cannot be read, or is longer.

    No more than ``most`` bytes are made of it, however much it stands for.
    """
    try:
        data = inflate(packed, most)
    except (zlib.error, TypeError) as error:
        raise CorruptStore(f"a packed payload cannot be read ({error}); run verify() to find it") from error
    if data is None:
        raise CorruptStore(f"a packed payload is longer than {most} bytes, or has no end; run verify() to find it")
    return data


def unpacked(packed: bytes | None) -> bytes | None:
    """Return the same; None for a payload that is not packed, or cannot be read."""
    try:
        return None if packed is None else unpack(packed)
    except CorruptStore:
        return None


def unpack_blob(blob: bytes, data: bytes | None, most: int = LARGEST_ENTRY) -> bytes:
    """Return the bytes of a blob, verified by its SHA-256: its data as they are, or unpacked; otherwise as `unpack`.

    Raises `CorruptStore` where it is missing or differs.
    """
    # SQLite may hold something else than bytes in either column.
    if not isinstance(blob, bytes):
        raise CorruptStore(f"{blob!r} is not the SHA-256 of a blob; run verify()")
    if data is None:
        raise CorruptStore(f"blob {blob.hex()} is missing; run verify()")
    # First, since what came as a zlib stream is stored as it is, and may stand for any number of bytes.
    if is_raw(blob, data) and len(data) <= most:
        return data
    text = unpack(data, most)
    if sha256(text).digest() != blob:
        raise CorruptStore(f"blob {blob.hex()} does not match its SHA-256; run verify()")
    return text


def is_raw(blob: bytes, data: bytes) -> bool:
    """Return whether a blob's data are its bytes themselves, rather than a zlib stream of that. O(size)."""
    return isinstance(data, bytes) and sha256(data).digest() == blob


def check_sum(rest: bytes, lengths: Iterable[int], most: int = LARGEST_ENTRY) -> None:
    """Raise `CorruptStore` if a payload with its attachments, of these lengths in base64, is longer than ``most``."""
    if len(rest) + sum(lengths) > most:
        raise CorruptStore(f"a payload with its attachments is longer than {most} bytes; run verify() to find it")


def checked_text(
    chain: Chain,
    row: EntryRow,
    above: bytes,
    blobs: Mapping[bytes, bytes],
    cuts: Sequence[tuple[int, bytes]] = (),
    most: int = LARGEST_ENTRY,
) -> str:
    """Return the text of an entry's payload, with the pieces cut out of it: places in the rest, and the SHA-256s.

    Raises `CorruptStore` if the entry does not have its digest, below one of digest ``above``.
    """
    try:
        data = stored_text(row, blobs, cuts, most)
    except CorruptStore as error:
        raise damaged_entry(row.id, f"cannot be read ({error})") from error
    if not (chain.has_text(row.digest, above, row.kind, data) and chain.has_fields(row.digest, above, row.fields)):
        raise damaged_entry(row.id, MISMATCH)
    return decode_payload(data)


def stored_text(
    row: EntryRow, blobs: Mapping[bytes, bytes], cuts: Sequence[tuple[int, bytes]] = (), most: int = LARGEST_ENTRY
) -> bytes:
    """Return the same, in UTF-8, whatever its digest. Raises `CorruptStore`."""
    if row.payload is not None:
        data = row.payload.encode()
    elif row.packed is not None:
        data = unpack(row.packed, most)
    else:
        data = unpack_blob(row.blob or b"", blobs.get(row.blob or b""), most)
    if not cuts:
        return data
    pieces = [(place, encoded(unpack_blob(sha, blobs.get(sha), most))) for place, sha in cuts]
    check_sum(data, (len(piece) for _, piece in pieces), most)
    return splice(data, pieces)


MISMATCH = "does not match its digest: it was damaged, or changed by other means"


def damaged_entry(entry_id: str, problem: str, session_id: str | None = None) -> CorruptStore:
    """Return the error for an entry that is not as it was appended."""
    where = "" if session_id is None else f"session {session_id!r}: "
    error = CorruptStore(
        f"{where}entry {entry_id!r} {problem}; verify() names every such entry: restore a backup, or "
        "rescue what is readable by salvage"
    )
    error.entry_id = entry_id
    return error


def damaged_rows(session_id: object) -> CorruptStore:
    """Return the error for a session whose log, marks, task links or calls are not as they were written."""
    return CorruptStore(
        f"session {session_id!r}: a row of its log, marks, task links or calls {MISMATCH.replace('digest', 'seal')};"
        " verify() names every such session: restore a backup, or rescue what is readable by salvage"
    )


def damaged_path(session_id: str, count: int, expected: int) -> CorruptStore:
    """Return the error for a path, or a part of it, that has not as many entries as its places say."""
    return CorruptStore(
        f"session {session_id!r}: {count} of its entries are there, not {expected}; verify() names where: restore a "
        "backup, or rescue what is readable by salvage"
    )


def decode_payload(data: bytes) -> str:
    """Return the text of a payload. Raises `CorruptStore` where its bytes are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptStore(f"a stored payload is not text ({error}); run verify() to find it") from error
