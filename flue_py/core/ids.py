"""Ids that are made from what they stand for, so that the same thing always has the same one.

They are stored: what is hashed, and how, cannot change.
"""

from __future__ import annotations

from hashlib import blake2b


def made_id(*parts: str) -> str:
    """Return an id made from texts: 16 hex characters, the same every time."""
    return _hex("\0".join(parts).encode(errors="surrogatepass"), 8)


def derived_id(*parts: str | int) -> str:
    """Return the id of a row of a file that has none, from what sets it apart: 16 hex characters."""
    return _hex("\n".join(map(str, parts)).encode(errors="replace"), 8)


def call_id(format_name: str, told: bytes) -> str:
    """Return the id of a paid call that its file gives none, from what tells it from others: ``pi:`` and 24 hex."""
    return f"{format_name}:{_hex(told, 12)}"


def _hex(data: bytes, size: int) -> str:
    return blake2b(data, digest_size=size).hexdigest()
