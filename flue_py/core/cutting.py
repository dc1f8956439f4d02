"""Cutting long base64 out of a payload's text, and putting it back byte for byte.

A picture is the largest part of a message by far, does not compress, and comes again: in the next message, in a retry,
in a fork. Cut out and decoded, it can be stored once. Only what encoding makes again exactly is cut, so that the text
that comes back is the text that was there. Pure functions of bytes: nothing here knows what a message is.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SHORTEST = 16_384
"""How many characters of base64 are cut out: below that, a row of its own costs more than it saves."""

_RUN = re.compile(rb"[A-Za-z0-9+/]+")
_OF_NUMBERS = b"0123456789eE+"
"""The characters of base64 that a JSON number has, too."""


class Cut(NamedTuple):
    """What was cut out: the decoded bytes, and how many bytes of the text that is left stand before it."""

    place: int
    data: bytes


def cut(text: bytes, shortest: int = SHORTEST) -> tuple[bytes, tuple[Cut, ...]]:
    """Return a JSON text without its base64 of at least ``shortest`` characters, and what was cut, in its order.

    Base64 is what JSON strings have of A-Z, a-z, 0-9, + and / without a break, with its padding: what stands before it,
    such as ``data:image/png;base64,``, stays. It stays itself where encoding would not make it again: without its
    padding, in the alphabet for URLs, or over several lines. What is left is JSON, too. O(size).
    """
    kept: list[bytes] = []
    cuts: list[Cut] = []
    place = end = 0
    for start, stop in _runs(text, shortest):
        data = _decoded(text[start:stop])
        # What follows a cut at once stays: two cuts at one place could not be told apart.
        if data is None or (cuts and start == end):
            continue
        kept.append(text[end:start])
        place += start - end
        cuts.append(Cut(place, data))
        end = stop
    if not cuts:
        return text, ()
    kept.append(text[end:])
    return b"".join(kept), tuple(cuts)


def splice(rest: bytes, pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the text that ``rest`` was cut from. ``pieces`` are places in it and base64, in order. O(size)."""
    whole: list[bytes] = []
    end = 0
    for place, piece in pieces:
        whole += (rest[end:place], piece)
        end = place
    whole.append(rest[end:])
    return b"".join(whole)


def encoded(data: bytes) -> bytes:
    """Return bytes in base64."""
    return b2a_base64(data, newline=False)


def encoded_size(size: int) -> int:
    """Return how many characters of base64 so many bytes are."""
    return (size + 2) // 3 * 4


def _runs(text: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of the runs of base64, padding included, that are not too short. O(size).

    Whatever is as long as ``shortest`` lies across a multiple of it: only there a look is taken, and text in which
    there is none takes no time.
    """
    first, probe = 0, shortest - 1
    while probe < len(text):
        found = _RUN.match(text, probe)
        if found is None:
            probe += shortest
            continue
        start = _behind_an_escape(text, _beginning(text, max(first, probe - shortest + 1), probe))
        first = found.end()
        padding = -(first - start) % 4
        if text[first : first + padding] == b"=" * padding and padding < 3:
            first += padding
            if first - start >= shortest:
                yield start, first
        probe = first + shortest - 1


def _beginning(text: bytes, low: int, probe: int) -> int:
    """Return where the run begins that goes through ``probe``, no lower than ``low``."""
    start, step = probe, 64
    while start > low:
        part = text[max(low, start - step) : start]
        before = _RUN.match(part[::-1])
        length = 0 if before is None else before.end()
        start -= length
        if length < len(part):
            break
        step *= 8
    return start


def _behind_an_escape(text: bytes, start: int) -> int:
    r"""Return where a run begins whose first letters may end an escape, as in ``\nAAAA`` and ``\u00e9AAAA``."""
    slashes = 0
    while text[start - slashes - 1 : start - slashes] == b"\\":
        slashes += 1
    if slashes % 2 == 0:
        return start
    return start + (5 if text[start : start + 1] == b"u" else 1)


def _decoded(run: bytes) -> bytes | None:
    """Return what base64 stands for; None if encoding that gives something else, or if it may be a number."""
    last = run[-4:]
    if encoded(a2b_base64(last)) != last or not run.strip(_OF_NUMBERS):
        return None
    return a2b_base64(run, strict_mode=True)
