"""The chain of digests: an entry's covers its parent's, so that none can be changed, moved or left out unseen.

A digest has two halves of 8 bytes, each a BLAKE2b. The first is of the first half of the parent's and the text of the
payload: it is all that a reader of messages has to fetch and check. The second is of the second half of the parent's,
the first half, and the other fields of the entry as JSON. So the text can be erased, and both chains still hold.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from msgspec.json import Encoder

HALF = 8
NO_PARENT = bytes(2 * HALF)
"""Stands for the digest above a root."""

Fields: TypeAlias = tuple[str, str, str | None, str | None, int, int, int, str | None]
"""The fields of an entry beside its payload: id, kind, role, source, revision, ordinal, time in microseconds, extra."""

_encode = Encoder().encode


class Chain:
    """Makes and checks the digests of one store."""

    def __init__(self) -> None:
        # Copied for each digest, which takes half as long as one made anew.
        self._empty = blake2b(digest_size=HALF)

    def text(self, above: bytes, text: bytes) -> bytes:
        """Return the first half of a digest: of a payload in UTF-8, below an entry of digest ``above``. O(size)."""
        digest = self._empty.copy()
        digest.update(above[:HALF] + text)
        return digest.digest()

    def fields(self, above: bytes, text: bytes, fields: Fields) -> bytes:
        """Return the second half: of an entry's fields, below ``above``; ``text`` is or begins with its first half."""
        digest = self._empty.copy()
        digest.update(above[HALF:] + text[:HALF] + _encode(fields))
        return digest.digest()

    def digest(self, above: bytes, fields: Fields, text: bytes) -> bytes:
        """Return the digest of an entry with this payload. O(size)."""
        first = self.text(above, text)
        return first + self.fields(above, first, fields)

    def has_text(self, digest: bytes, above: bytes, text: bytes) -> bool:
        """Return whether a digest is that of an entry with this payload. O(size)."""
        return self.text(above, text) == digest[:HALF]

    def has_fields(self, digest: bytes, above: bytes, fields: Fields) -> bool:
        """Return whether a digest is that of an entry with these fields."""
        return self.fields(above, digest, fields) == digest[HALF:]
