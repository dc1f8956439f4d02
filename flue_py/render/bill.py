"""What was paid, as a table: tokens by kind, and dollars to the last digit. An unknown amount is a dash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from flue_py.core.ledger import UsageReport, UsageRow
from flue_py.render.lines import Line, Span, one_line, table
from flue_py.render.views import dollars

DASH = "-"
_TOKENS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
_FOLDER = 36
_NUMBERS = ("calls", "input", "output", "cache read", "cache write", "tokens", "US dollars")


def bill_lines(report: UsageReport, group_by: Sequence[str]) -> list[Line]:
    """Return a report as a table with a line for each group, and the total."""
    rows: list[list[Span]] = [[(name.replace("_", " "), "dim") for name in (*group_by, *_NUMBERS)]]
    rows += [_row([_shown(name, row.group[name]) for name in group_by], row, "") for row in report.rows]
    rows.append(_row(["total", *[""] * (len(group_by) - 1)][: len(group_by)], report.total, "bold"))
    lines = table(rows, right=frozenset(range(len(group_by), len(group_by) + len(_NUMBERS))))
    lines += [((note, "yellow"),) for note in gaps(report.total)]
    if not report.on_path:
        lines.append((("that entry is not on the path: nothing is counted", "yellow"),))
    return lines


def gaps(paid: UsageRow) -> list[str]:
    """Return in words how many calls are not in the sums, because their cost or their tokens are unknown."""
    notes = []
    unpriced = paid.unpriced_calls - paid.unknown_calls
    if unpriced:
        calls = "1 call has" if unpriced == 1 else f"{unpriced:,} calls have"
        notes.append(f"{calls} no known cost: the tokens are counted, the dollars are not")
    if paid.unknown_calls:
        calls = "1 call has" if paid.unknown_calls == 1 else f"{paid.unknown_calls:,} calls have"
        notes.append(f"{calls} unknown usage: neither tokens nor dollars are counted")
    return notes


def _shown(name: str, value: str | date | None) -> str:
    if isinstance(value, date):
        return value.isoformat()
    return short_folder(value) if name == "project" and value else value or DASH


def short_folder(folder: str) -> str:
    """Return a folder on one line, with ``~`` for the reader's home directory; a long one is cut at its beginning."""
    home = str(Path.home()).rstrip("/\\")
    rest = folder[len(home) :]
    text = one_line(f"~{rest}" if home and folder.startswith(home) and rest[:1] in ("", "/", "\\") else folder)
    return text if len(text) <= _FOLDER else f"…{text[1 - _FOLDER :]}"


def _row(group: list[str], row: UsageRow, style: str) -> list[Span]:
    shown = [DASH if row.known[name] is None else f"{row.known[name]:,}" for name in _TOKENS]
    cost = DASH if row.cost is None else dollars(row.cost)
    return [(text, style) for text in (*group, f"{row.calls:,}", *shown, cost)]
