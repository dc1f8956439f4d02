"""Lines of styled text that fit a terminal: width in cells, clipping, columns, sizes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from flue_py.core.frozen import frozen

Span: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Span, ...]
"""``(text, style)`` pairs, left to right, without a line end."""


@frozen
class Glyphs:
    """The signs a tree is drawn with."""

    on_path: str
    off_path: str
    side: str
    along: str
    fold: str
    leaf: str
    cut: str
    fork: str
    sum: str


UNICODE = Glyphs("●", "○", "├─", "│ ", "┊", "← leaf", "…", "↳", "Σ ")
ASCII = Glyphs("*", "o", "|-", "| ", ":", "<- leaf", "~", "+->", "sum ")


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def cells(text: str) -> int:
    """Return how many terminal cells a text takes: wide characters take two, combining ones none.

    Where terminals disagree about a sign, it counts as wide, so that a line is never too long.
    """
    if text.isascii():
        return len(text)
    return sum(_cell(char) for char in text)


_WIDE_OF_LATE = ((0x2630, 0x2637), (0x268A, 0x268F), (0x4DC0, 0x4DFF), (0x1D300, 0x1D376))
"""Ranges that Unicode has called wide only since its version 16."""

_AS_EMOJI = "\ufe0f"
"""Turns the sign before it into an emoji, which is wide."""


def _cell(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF" or any(a <= ord(char) <= z for a, z in _WIDE_OF_LATE):
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") and char != _AS_EMOJI else 1


def one_line(text: str, limit: int = 400) -> str:
    """Return the beginning of a text as one line: blanks collapsed, without anything a terminal would act on."""
    return printable(" ".join(text[: limit * 4].split())[:limit])


def printable(text: str) -> str:
    """Return a text in which a terminal acts on nothing but line ends and tabs.

    Escape sequences, changes of writing direction and separators of lines other than the line end become U+FFFD.
    """
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" or not _acts(char) else "\ufffd" for char in text)


def json_printable(text: str) -> str:
    """Return JSON with everything escaped that a terminal would act on. The value stays the same."""
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or not _acts(char) else _escaped(char) for char in text)


def _acts(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def clip(text: str, width: int, cut: str = "…") -> str:
    """Return a text that takes at most ``width`` cells; ``cut`` stands for what was left out."""
    if cells(text) <= width:
        return text
    room = width - cells(cut)
    if room < 0:
        return ""
    taken = 0
    for place, char in enumerate(text):
        taken += _cell(char)
        if taken > room:
            return text[:place].rstrip() + cut
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text filled up with blanks to ``width`` cells; with ``right`` they come first."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def short_count(number: int) -> str:
    """Return a count in at most five characters: 950, 1.2k, 45k, 1.3M."""
    for unit, sign in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if number >= unit * 0.9995:
            scaled = number / unit
            return f"{scaled:.1f}{sign}" if scaled < 9.95 else f"{scaled:.0f}{sign}"
    return str(number)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: ``1 entry``, ``1,018 entries``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


_PART = re.compile(r":\d+\Z")


def shortest_ids(ids: Sequence[str], least: int = 6, most: int = 16) -> dict[str, str]:
    """Return the beginning of each id, all of one length, that tells the ids apart (up to ``most`` characters).

    If that is not enough to tell two apart, ids longer than ``most`` are given whole. The number of a part of an
    imported row stays: ``7ce96df4-...-04:1`` becomes ``7ce96d:1``.
    """
    rows = {entry_id: _PART.sub("", entry_id) for entry_id in ids}
    ordered = sorted(set(rows.values()))
    length = least
    for first, second in pairwise(ordered):
        shared = 0
        while shared < len(first) and first[shared] == second[shared]:
            shared += 1
        length = max(length, shared + 1)
    if length > most:
        return {entry_id: entry_id for entry_id in ids}
    return {entry_id: row[:length] + entry_id[len(row) :] for entry_id, row in rows.items()}


def table(rows: Sequence[Sequence[Span]], *, right: frozenset[int] = frozenset(), gap: int = 2) -> list[Line]:
    """Return rows of cells as lines with aligned columns; columns in ``right`` are aligned to the right."""
    columns = max((len(row) for row in rows), default=0)
    widths = [max((cells(row[n][0]) for row in rows if n < len(row)), default=0) for n in range(columns)]
    lines: list[Line] = []
    for row in rows:
        spans: list[Span] = []
        for n, (text, style) in enumerate(row):
            is_last = n == len(row) - 1
            filled = text if is_last and n not in right else padded(text, widths[n], right=n in right)
            spans.append((filled, style))
            if not is_last:
                spans.append((" " * gap, ""))
        lines.append(tuple(spans))
    return lines
