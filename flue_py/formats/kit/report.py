"""What a parser says about the rows of a file: which it left out, which it repaired, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    skipped_rows: int = 0
    repaired_rows: int = 0
    merged: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    held_back: int = 0
    held_back_from: int | None = None


def joined(reports: Sequence[ParseReport]) -> ParseReport:
    """Return the one report of a file whose sessions have several."""
    if len(reports) == 1:
        return reports[0]
    unknown: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for report in reports:
        unknown.update(report.unknown_kinds)
        left_out.update(report.left_out)
    return ParseReport(
        rows=sum(report.rows for report in reports),
        skipped=tuple(note for report in reports for note in report.skipped),
        repaired=tuple(note for report in reports for note in report.repaired),
        unknown_kinds=dict(unknown),
        surrogates_replaced=sum(report.surrogates_replaced for report in reports),
        skipped_rows=sum(report.skipped_rows for report in reports),
        repaired_rows=sum(report.repaired_rows for report in reports),
        merged=sum(report.merged for report in reports),
        left_out=dict(left_out),
        held_back=sum(report.held_back for report in reports),
        held_back_from=min((each.held_back_from for each in reports if each.held_back_from is not None), default=None),
    )
