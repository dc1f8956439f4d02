"""The chart: one line per row, one dot per store, on a scale of powers of ten. Plain SVG, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import ceil, floor, log10

from benchmarks.peers.figures import Results, times
from benchmarks.peers.rows import Row
from benchmarks.peers.stores import OURS, Store

LEFT, RIGHT, TOP, LINE = 260, 40, 92, 28
WIDTH = 1000
FONT = "font-family='system-ui, sans-serif' font-size='13'"


def chart(results: Results) -> str:
    """Return the SVG: how many times the cost of flue_py each store's is. Right of the line, flue_py is ahead."""
    rows = results.rows()
    stores = [store for store in results.stores() if store != OURS]
    dots = {
        (row.name, store.name): ratio
        for row in rows
        for store in stores
        if (ratio := results.cell(row, store).ratio) is not None
    }
    low = min([floor(log10(ratio)) for ratio in dots.values() if ratio > 0], default=0)
    low, high = min(low, -1), max([ceil(log10(ratio)) for ratio in dots.values() if ratio > 0], default=1)
    high = max(high, 1)
    height = TOP + LINE * len(rows) + 46

    def across(ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(ratio) - low) / (high - low)

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'>",
        f"<title>{escape('The cost of each store, in times that of flue_py')}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
        *_legend(stores),
        *_scale(low, high, across, TOP + LINE * len(rows)),
    ]
    for number, row in enumerate(rows):
        parts += _row(row, TOP + LINE * number + LINE / 2, dots, stores, across)
    return "\n".join([*parts, "</svg>", ""])


def _legend(stores: list[Store]) -> list[str]:
    parts = [
        f"<text x='20' y='26' {FONT} font-weight='600'>Cost in times that of flue_py (right: flue_py is ahead)</text>"
    ]
    x, y = 20, 52
    for store in stores:
        width = 30 + 7.6 * len(store.title)
        if x + width > WIDTH - 10:
            x, y = 20, y + 20
        parts.append(f"<circle cx='{x + 5}' cy='{y - 4}' r='5' fill='{store.color}'/>")
        parts.append(f"<text x='{x + 15}' y='{y}' {FONT}>{escape(store.title)}</text>")
        x += int(width)
    return parts


def _scale(low: int, high: int, across: Callable[[float], float], bottom: float) -> list[str]:
    parts = []
    for power in range(low, high + 1):
        x = across(10.0**power)
        stroke = "#111827' stroke-width='2" if power == 0 else "#e5e7eb"
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{bottom}' stroke='{stroke}'/>")
        label = f"{10**power:,} x" if power >= 0 else f"{10.0**power:g} x"
        parts.append(f"<text x='{x:.1f}' y='{bottom + 20}' {FONT} text-anchor='middle'>{label}</text>")
    return parts


def _row(
    row: Row, y: float, dots: dict[tuple[str, str], float], stores: list[Store], across: Callable[[float], float]
) -> list[str]:
    parts = [f"<text x='{LEFT - 14}' y='{y + 4:.1f}' {FONT} text-anchor='end'>{escape(row.title)}</text>"]
    for store in stores:
        ratio = dots.get((row.name, store.name))
        if ratio:
            x = across(ratio)
            label = escape(f"{store.title}: {times(ratio)}")
            parts.append(
                f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5.5' fill='{store.color}'><title>{label}</title></circle>"
            )
    return parts
