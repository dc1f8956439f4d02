"""Lines of styled text as strips of a screen."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from flue_py.render.lines import Line, printable


def strip_of(line: Line, width: int) -> Strip:
    """Return a line as a strip of exactly ``width`` cells, with nothing in it that a terminal would act on."""
    segments = [Segment(printable(text).replace("\n", " ").replace("\t", " "), _style(style)) for text, style in line]
    return fitted(Strip(segments), width)


def fitted(strip: Strip, width: int) -> Strip:
    """Return a strip of exactly ``width`` cells. All of it has a style, which Textual needs where NO_COLOR is set."""
    return strip.adjust_cell_length(width, Style.null())


@lru_cache(256)
def _style(text: str) -> Style:
    return Style.parse(text) if text else Style.null()
