"""What a parser says about the rows of a file: which it left out, which it repaired, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LineNote:
    """A remark about one line of a file, from 1; or, where ``unit`` says so, about an item of a list, from 0."""

    line: int
    text: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class ParseReport:
    """What came of the rows of one file.

    ``rows`` counts the lines that are not blank, the header among them. ``skipped`` are rows that made no entry,
    ``repaired`` are rows that made one that differs from what the file says; both are in order of line.
    ``unknown_kinds`` counts, by name, the entries kept of kinds this version has no meaning for. Of very many notes
    only the first are listed; ``skipped_rows`` and ``repaired_rows`` count them all. ``merged`` counts the rows that
    became part of another row's entry, ``left_out``, by reason, those that say nothing of their own, ``held_back`` the
    rows at the end that may not be complete, from the line ``held_back_from``.
    """

    rows: int
    skipped: tuple[LineNote, ...] = ()
    repaired: tuple[LineNote, ...] = ()
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)
    surrogates_replaced: int = 0
    skipped_rows: int | None = None
    repaired_rows: int | None = None
    merged: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    held_back: int = 0
    held_back_from: int | None = None
