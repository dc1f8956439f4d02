"""How much of a session each mode of compaction keeps, at several windows, after one compaction and after ten.

Run with ``python -m benchmarks.compaction``, which takes a minute and needs no network. The transcripts are those of
the tests and of the demo that are long enough; ``--folder`` takes others, ``--window`` other windows, and ``--each``
prints each transcript on its own; ``--write`` puts the tables into docs/concepts/compaction.md.

A cell such as ``97 / 54`` says that the mode keeps 97 % where a plain window, the end of the same transcript with the
same number of tokens, has 54 %. An asterisk stands where it does not keep more.

After one compaction: the whole transcript was there, and was compacted. After ten: it grew in ten parts of equal size,
and was compacted after each of them. What is kept is what all of the transcript has, not only its last part.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from pathlib import Path

from benchmarks.compaction.measures import COLUMNS, RESULTS, Asked, Row, rows_of
from benchmarks.compaction.transcripts import SHARED, transcripts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "compaction.md"
BEGIN, END = "<!-- kept: begin, written by python -m benchmarks.compaction --write -->", "<!-- kept: end -->"
WINDOWS = (16_000, 32_000, 64_000)
ON_PAGE = (32_000,)
HEADINGS = ("mode", "compactions", "tokens", *COLUMNS, "to make", "to read")


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table, in Markdown."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"| --- |{' ---: |' * (len(HEADINGS) - 1)}"]
    return [*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)]


def cells(row: Row) -> list[str]:
    """Return the cells of a row."""
    shares = [_shares(row, column) for column in COLUMNS]
    compactions = str(row.times) if row.times else ""
    return [row.way, compactions, f"{row.after:,}", *shares, _dollars(row.making), _dollars(row.reading)]


def _shares(row: Row, column: str) -> str:
    of = row.of[column]
    if not of:
        return ""
    kept = f"{100 * row.kept[column] / of:.0f}"
    if row.plain is None:
        return kept
    return f"{kept}/{100 * row.plain[column] / of:.0f}{'*' if column in row.not_better else ''}"


def _dollars(picodollars: int | None) -> str:
    if picodollars is None:
        return "unknown"
    return f"${picodollars / 10**12:.3f}" if picodollars else ""


def tables(asked: Sequence[Asked], windows: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table for each window: all transcripts together."""
    for window in windows:
        found = [list(rows_of(each, window)) for each in asked]
        before = sum(each.transcript.tokens for each in asked)
        yield f"A window of {window:,} tokens; {before:,} tokens in all before."
        yield ""
        rows = [reduce(add, of_one_way) for of_one_way in zip(*found, strict=True)]
        yield from table(rows)
        yield ""
        aside = "; ".join(f"{row.way} {_shares(row, RESULTS)}" for row in rows if row.times != 10)
        yield f"First and last lines of tools' results, which no mode carries, after one: {aside}."
        yield ""


def written(page: str, lines: Sequence[str]) -> str:
    """Return a page with these lines in place of the tables that it has."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, "", *lines, END + after])


def main() -> None:
    """Print the tables."""
    arguments = ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    arguments.add_argument("--folder", type=Path, help="take the transcripts of this folder")
    arguments.add_argument("--window", type=int, action="append", help="take this window; may be given several times")
    arguments.add_argument("--each", action="store_true", help="print each transcript on its own")
    arguments.add_argument("--write", action="store_true", help="write the tables into the page")
    given = arguments.parse_args()
    if given.write and (given.folder or given.window or given.each):
        arguments.error("--write takes the transcripts, and the windows, that the page is about")
    asked = [Asked.of(each) for each in transcripts(SHARED if given.folder is None else (given.folder,))]
    if not asked:
        sys.exit("no transcript there is long enough to be compacted")
    if given.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), list(tables(asked, ON_PAGE))), encoding="utf-8")
        return
    for each in asked:
        print(f"- {each.transcript.name}: {len(each.transcript.messages)} messages, {dict(each.total)}")
    print()
    for group in [[each] for each in asked] if given.each else [asked]:
        if given.each:
            print(f"{group[0].transcript.name}\n")
        for line in tables(group, given.window or WINDOWS):
            print(line, flush=True)


if __name__ == "__main__":
    main()
