"""The write-ahead log of a damaged database: which of its pages were committed, frame by frame.

SQLite stops at the first damaged frame. Here each frame is checked by itself, starting from the checksum stored in
the frame before it, so that frames after a damaged one are not lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682
_WORD = 0xFFFFFFFF


@dataclass(slots=True)
class WriteAheadLog:
    """The content of a log: the offset of the newest committed version of each page, and those of older ones.

    ``pages`` is the size of the database after the last commit, None if nothing was committed.
    """

    page_size: int
    newest: dict[int, int] = field(default_factory=dict)
    older: list[tuple[int, int]] = field(default_factory=list)
    pages: int | None = None
    damaged: bool = False


def log_page_size(header: bytes) -> int | None:
    """Return the size of the pages in a log, from its first bytes; None if they are not a header."""
    if len(header) < _HEADER:
        return None
    magic, _, page_size = struct.unpack(">III", header[:12])
    plausible = 512 <= page_size <= 65536 and page_size & (page_size - 1) == 0
    return page_size if magic & ~1 == _MAGIC and plausible else None


def read_log(file: BinaryIO, page_size: int) -> WriteAheadLog:
    """Return the content of a log with pages of this size. O(log)."""
    log = WriteAheadLog(page_size)
    file.seek(0)
    header = file.read(_HEADER)
    known = log_page_size(header) is not None
    order: Literal["<", ">"] = ">" if known and header[3] & 1 else "<"
    salts: bytes | None = header[16:24] if known else None
    seed: tuple[int, int] | None = struct.unpack(">II", header[24:32]) if known else None
    log.damaged = bool(header) and not known
    pending: list[tuple[int, int]] = []
    number = 0
    while True:
        position = _HEADER + number * (_FRAME + page_size)
        frame = file.read(_FRAME + page_size)
        if len(frame) < _FRAME + page_size:
            break
        number += 1
        page, size = struct.unpack(">II", frame[:8])
        stored = struct.unpack(">II", frame[16:24])
        if salts is None:
            # Without the header, the salt of most frames is no better evidence than that of the first.
            salts = frame[8:16]
        if frame[8:16] != salts:
            # It is left from an earlier use of the log, or damaged: the next frames show which.
            seed = None
            continue
        sound = seed is not None and page > 0 and _checksum(seed, frame[:8] + frame[24:], order) == stored
        if not sound:
            log.damaged = True
        else:
            pending.append((page, position + _FRAME))
            if size:
                _commit(log, pending, size)
                pending = []
        seed = stored
    return log


def _commit(log: WriteAheadLog, pending: list[tuple[int, int]], size: int) -> None:
    for page, position in pending:
        if page in log.newest:
            log.older.append((page, log.newest[page]))
        log.newest[page] = position
    log.pages = size


def _checksum(seed: tuple[int, int], data: bytes, order: Literal["<", ">"]) -> tuple[int, int]:
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & _WORD
        second = (second + words[index + 1] + first) & _WORD
    return first, second
