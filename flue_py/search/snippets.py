"""A piece of a text around what was found in it."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.search.values import Snippet

CHARACTERS = 200
_BEFORE = 60


def snippet(text: str, spans: Sequence[tuple[int, int]]) -> Snippet:
    """Return about `CHARACTERS` characters around the closest matches, on one line. O(characters and matches)."""
    start, end = _window(text, spans)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    shown = "".join(" " if char.isspace() else char for char in text[start:end])
    moved = [(max(first, start), min(last, end)) for first, last in spans if first < end and last > start]
    shift = len(before) - start
    return Snippet(before + shown + after, tuple((first + shift, last + shift) for first, last in moved))


def _window(text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the part of the text that shows most matches; of equals the first."""
    best, most, low = 0, 0, 0
    for at, (_, last) in enumerate(spans):
        while spans[low][0] < last - CHARACTERS + _BEFORE and low < at:
            low += 1
        if at - low + 1 > most:
            best, most = low, at - low + 1
    first = spans[best][0] if spans else 0
    start = max(0, first - _BEFORE)
    space = text.rfind(" ", start, first)
    start = 0 if start == 0 else space + 1 if 0 <= space < first else start
    return start, min(len(text), start + CHARACTERS)
