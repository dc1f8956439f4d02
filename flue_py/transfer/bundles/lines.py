"""The lines of a bundle, read in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from typing import BinaryIO

from flue_py.transfer.bundles.layout import NAME

# Lines up to this are read by a JSON parser: what it makes of them is small. Longer ones are rows, which are flat.
PARSED_LINE = 64 * 1024
_AT_ONCE = 64 * 1024
# How many bytes in memory one byte of the file may stand for. What stores write stays far below.
MOST_GROWTH = 50


def looks_like_a_bundle(head: bytes) -> bool:
    """Return whether a file that begins like this is a bundle, of whatever version."""
    try:
        begins = zlib.decompressobj(wbits=31).decompress(head, 64)
    except zlib.error:
        return False
    return begins.startswith(f'{{"bundle":"{NAME}"'.encode())


class Lines:
    """The lines of a gzip stream, none longer than ``most`` bytes, nor all together far more than the file is long."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._packed = file
        self._file = gzip.GzipFile(fileobj=file)
        self._most = most
        self._rest = b""
        self._read = 0

    def next(self) -> bytearray:
        """Return the next line with its end; without one, or empty, where the stream ends. Raises `ValueError`."""
        begin, self._rest = self._split(self._rest)
        line = bytearray(begin)
        while not line.endswith(b"\n") and (some := self._some()):
            more, self._rest = self._split(some)
            line += more
            if len(line) > self._most:
                raise ValueError(f"longer than {self._most} bytes, which no row within the limits of the store is")
        return line

    @staticmethod
    def _split(data: bytes) -> tuple[bytes, bytes]:
        end = data.find(b"\n") + 1
        return (data[:end], data[end:]) if end else (data, b"")

    def _some(self) -> bytes:
        some = self._file.read(_AT_ONCE)
        self.count(len(some))
        return some

    def count(self, size: int) -> None:
        """Count bytes that the file stands for. Raises `ValueError` if they are far more than it is long."""
        self._read += size
        if self._read > self._most + MOST_GROWTH * self._packed.tell():
            raise ValueError(f"the file stands for more than {MOST_GROWTH} times its size")

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows. Raises as `next` does."""
        return not self._rest and not self._some()
