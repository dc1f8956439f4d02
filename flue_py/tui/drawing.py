"""The line of a row of a tree."""

from __future__ import annotations

from collections.abc import Callable

from flue_py.core.entries import Entry
from flue_py.render.entries import entry_name, entry_text
from flue_py.render.lines import Glyphs, Line, Span, cells, clip, one_line
from flue_py.tui.outline import Begun
from flue_py.tui.reading import Marks

_MOST_GUIDES = 8
"""Deeper branches are drawn as deep as this, so that there is room for what they say."""

_SHOWN = 300
"""A line shows less than what is looked at for secrets, so that none is cut, and missed, at its end."""


def entry_row(
    entry: Entry,
    marks: Marks,
    masked: Callable[[str], str],
    width: int,
    *,
    depth: int,
    opens: bool,
    is_folded: bool,
    glyphs: Glyphs,
) -> Line:
    """Return an entry as a line: where it is, what it is, its label, what it says, and what marks it."""
    sign = glyphs.on_path if marks.is_active else glyphs.off_path
    name, style = entry_name(entry)
    word = name.strip()
    first: list[Span] = [
        (_guide(depth, opens, glyphs), "dim"),
        (f"{sign} ", "bold green" if marks.is_active else "dim"),
        (f"{word} ", style),
    ]
    if marks.label:
        first.append((f"[{clip(one_line(masked(marks.label)), 20, glyphs.cut)}] ", "bold magenta"))
    behind: list[Span] = []
    if is_folded:
        behind.append((" (folded)", "yellow"))
    if marks.is_pinned:
        behind.append((" pinned", "yellow"))
    if marks.excluded:
        behind.append((f" {marks.excluded}", "red"))
    if marks.is_leaf:
        behind.append((f" {glyphs.leaf}", "bold green"))
    said = one_line(masked(entry_text(entry)))[:_SHOWN]
    return _laid_out(first, said, behind, width, "" if marks.is_active else "dim", glyphs)


def begun_row(begun: Begun, name: str, width: int, depth: int, glyphs: Glyphs) -> Line:
    """Return a session that begins below an entry as a line. ``name`` is what it is known by."""
    kind = "fork" if begun.link is None else "task"
    status = "" if begun.link is None or begun.link.status is None else f" ({begun.link.status})"
    first: list[Span] = [
        (glyphs.along * min(depth + 1, _MOST_GUIDES), "dim"),
        (f"{glyphs.fork} {kind}{status} ", "magenta"),
    ]
    if begun.info is None:
        first[-1] = (f"{glyphs.fork} {kind}, deleted ", "dim")
    return _laid_out(first, one_line(name)[:_SHOWN], [], width, "bold", glyphs)


def _guide(depth: int, opens: bool, glyphs: Glyphs) -> str:
    deep = min(depth, _MOST_GUIDES)
    return glyphs.along * (deep - 1) + glyphs.side if opens and deep else glyphs.along * deep


def _laid_out(first: list[Span], said: str, behind: list[Span], width: int, style: str, glyphs: Glyphs) -> Line:
    room = max(4, width - sum(cells(text) for text, _ in (*first, *behind)))
    return (*first, (clip(said, room, glyphs.cut), style), *behind)
