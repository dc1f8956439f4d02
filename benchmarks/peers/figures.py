"""From what the rounds measured to the table, its notes, and the page. Needs none of the stores that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

from benchmarks.peers.rows import FACTORS, ROWS, Row
from benchmarks.peers.stores import OURS, STORES, Store

Rounds: TypeAlias = Sequence[dict[str, Any] | None]
"""What `work.Measured` has, per round; None for a round that was left out."""

BEGIN, END = "<!-- peers: begin, written by benchmarks/peers/run.py -->", "<!-- peers: end -->"
PICTURE = "benchmarks-peers.svg"


@dataclass(frozen=True)
class Cell:
    """One store in one row, in the row's unit. ``ratio`` says how many times our cost it is; above 1 we are ahead."""

    value: float | None = None
    ratio: float | None = None
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Results:
    """All that a run measured: rounds by row and by store, and what is known of machine and stores."""

    machine: str
    rounds: int
    measured: dict[str, dict[str, list[dict[str, Any] | None]]]
    durability: dict[str, str]
    versions: dict[str, str]
    short: bool = False

    def stores(self) -> list[Store]:
        """Return the stores that were measured."""
        return [store for store in STORES if any(store.name in row for row in self.measured.values())]

    def rows(self) -> list[Row]:
        """Return the rows that were measured."""
        return [row for row in ROWS if row.name in self.measured]

    def cell(self, row: Row, store: Store) -> Cell:
        """Return what is to be said of a store in a row."""
        theirs = self.measured[row.name].get(store.name, [])
        ours = self.measured[row.name].get(OURS.name, [])
        note = store.notes.get(row.name, "")
        told = [one for one in theirs if one is not None]
        if not told:
            return Cell(text="-", note=note)
        stopped = next((one for one in told if one.get("over") or one.get("error")), None)
        if stopped is not None:
            return _stopped(stopped, note)
        values = [_figure(row, one) for one in told]
        pairs = [
            (_figure(row, mine), _figure(row, other))
            for mine, other in zip(ours, theirs, strict=False)
            if _is_measured(mine) and _is_measured(other)
        ]
        ratios = [mine / other if row.unit == "/s" else other / mine for mine, other in pairs if mine > 0 and other > 0]
        failed = sum(one.get("failed", 0) for one in told)
        if failed:
            note = "; ".join(filter(None, [note, f"{failed:,} appends of all rounds failed, and are not counted"]))
        return Cell(median(values), median(ratios) if ratios else None, note=note)

    def best(self, row: Row) -> tuple[Store, float] | None:
        """Return the raced store whose cost is the least, and how many times ours that is."""
        raced = [(store, self.cell(row, store).ratio) for store in self.stores() if store.is_raced and store != OURS]
        found = [(store, ratio) for store, ratio in raced if ratio is not None]
        return min(found, key=lambda pair: pair[1]) if found else None


def _is_measured(one: dict[str, Any] | None) -> bool:
    return one is not None and (one.get("value") is not None or bool(one.get("samples")))


def _figure(row: Row, one: dict[str, Any] | None) -> float:
    assert one is not None
    value = one["value"] if one["value"] is not None else median(one["samples"])
    return float(value) * FACTORS[row.unit]


def _stopped(one: dict[str, Any], note: str) -> Cell:
    if one.get("error"):
        return Cell(text="failed", note="; ".join(filter(None, [note, str(one["error"])])))
    return Cell(text=f"over {one['over']:g} s", note=note)


def number(value: float) -> str:
    """Return a figure with three digits, or with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def times(ratio: float) -> str:
    """Return a ratio as it is printed."""
    return f"{number(ratio) if ratio >= 10 else f'{ratio:.2f}'} x"


# -- the table --------------------------------------------------------------------------------------------------------


def table(results: Results) -> str:
    """Return the table, and below it the notes that its marks name."""
    stores = results.stores()
    marks: dict[str, str] = {}
    lines = [["what", *[store.title for store in stores], "goal", "reached"]]
    lines += [["---", *["---:"] * (len(stores) + 2)]]
    lines += [_line(results, row, stores, marks) for row in results.rows()]
    notes = [f"- [{mark}] {note}." for note, mark in marks.items()]
    return "\n".join([*[f"| {' | '.join(line)} |" for line in lines], "", *notes]).rstrip()


def _line(results: Results, row: Row, stores: Sequence[Store], marks: dict[str, str]) -> list[str]:
    cells = [_text(row, store, results.cell(row, store), marks) for store in stores]
    best = results.best(row)
    if best is None:
        return [row.title, *cells, "", ""]
    reached = "not judged" if results.short else "yes" if best[1] >= row.goal else "NO"
    return [row.title, *cells, "1" if row.goal <= 1 else f"{row.goal:g}", reached]


def _text(row: Row, store: Store, cell: Cell, marks: dict[str, str]) -> str:
    """Return our figure in its unit, and for another store how many times our cost it is."""
    text = cell.text
    if store == OURS and cell.value is not None:
        text = f"{number(cell.value)} {row.unit}"
    elif cell.ratio is not None:
        text = number(cell.ratio) if cell.ratio >= 10 else f"{cell.ratio:.2f}"
    return f"{text} [{marks.setdefault(cell.note, _letter(len(marks)))}]" if cell.note else text


def _letter(count: int) -> str:
    return chr(ord("a") + count) if count < 26 else f"{_letter(count // 26 - 1)}{_letter(count % 26)}"


# -- the page ---------------------------------------------------------------------------------------------------------


def section(results: Results) -> str:
    """Return what stands between the marks of the page."""
    versions = ", ".join(f"{name} {number}" for name, number in results.versions.items())
    modes = sorted({mode for name, mode in results.durability.items() if mode != "files"})
    return "\n".join(
        [
            BEGIN,
            "",
            f"Measured on {results.machine}, medians of {results.rounds} rounds: {versions}.",
            f"Journal and durability, as a new connection finds them: {'; '.join(modes)} (2 is `FULL`).",
            "",
            f"![How many times the cost of flue_py each store's is, by row]({PICTURE})",
            "",
            table(results),
            "",
            END,
        ]
    )


def written(page: str, results: Results) -> str:
    """Return the page with a new section between its marks. Raises `ValueError` where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} after it")
    return before + section(results) + after
