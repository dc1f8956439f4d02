"""A list of which only the lines on the screen are drawn, however long it is, with one row chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from flue_py.render.lines import Line
from flue_py.tui.widgets.strips import strip_of

if TYPE_CHECKING:
    from textual import events

MARK = "> "
"""Stands before the chosen row, so that it is seen without colours, too."""

_CHOSEN = Style(reverse=True)
_CHOSEN_ELSEWHERE = Style(bold=True)


class OfRow(Message):
    """What happened to a row of a list: the one at ``at``."""

    def __init__(self, rows: RowList, at: int) -> None:
        self.rows = rows
        self.at = at
        super().__init__()

    @property
    def control(self) -> RowList:
        """The list."""
        return self.rows


class RowList(ScrollView):
    """A list of lines. ``draw`` gives the line of a row in a width, when it is to be seen."""

    can_focus = True

    DEFAULT_CSS = """
    RowList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "to(0)", "First", show=False),
        Binding("end,G", "to(-1)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Reached(OfRow):
        """Another row is chosen, or the rows are others."""

    class Entered(OfRow):
        """The chosen row was entered."""

    def __init__(self, draw: Callable[[int, int], Line], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._count = 0
        self._at = 0
        self._next: Callable[[int, int], int] = lambda at, step: at

    def pass_over(self, next_row: Callable[[int, int], int]) -> None:
        """Have rows passed over: ``next_row`` gives the row to stand on from one on, in the direction of a step."""
        self._next = next_row

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._count

    @property
    def at(self) -> int:
        """The row that is chosen; 0 without rows."""
        return self._at

    def show(self, count: int, at: int) -> None:
        """Show so many rows, with one chosen."""
        self._count = count
        self.virtual_size = Size(self.scrollable_content_region.width, count)
        self.stand_on(at, told=True)

    def stand_on(self, at: int, step: int = 0, *, told: bool = False) -> None:
        """Choose a row, and scroll to it. ``told`` says it also where the same one was chosen before."""
        at = self._next(min(max(at, 0), max(self._count - 1, 0)), step)
        is_new = at != self._at
        self._at = at
        self._scroll_to_it()
        self.refresh()
        if is_new or told:
            self.post_message(self.Reached(self, at))

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        if at >= self._count:
            return Strip.blank(width, Style.null())
        is_chosen = at == self._at
        room = width - len(MARK)
        strip = strip_of(((MARK if is_chosen else " " * len(MARK), "bold"), *self._draw(at, room)), width)
        if not is_chosen:
            return strip
        return strip.apply_style(_CHOSEN if self.has_focus else _CHOSEN_ELSEWHERE)

    def on_resize(self, _: events.Resize) -> None:
        """Keep the chosen row on the screen."""
        self.virtual_size = Size(self.scrollable_content_region.width, self._count)
        self._scroll_to_it()

    def on_focus(self, _: events.Focus) -> None:
        """Draw the chosen row as where the keys go."""
        self.refresh()

    def on_blur(self, _: events.Blur) -> None:
        """Draw the chosen row as where the keys do not go."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Choose the row that is clicked; twice, enter it."""
        at = event.y + self.scroll_offset.y
        if at < self._count:
            self.stand_on(at)
            if event.chain == 2:
                self.action_choose()

    def action_step(self, step: int) -> None:
        """Go up or down."""
        self.stand_on(self._at + step, step)

    def action_page(self, step: int) -> None:
        """Go up or down by what fits the screen."""
        self.stand_on(self._at + step * max(self.size.height - 1, 1), step)

    def action_to(self, at: int) -> None:
        """Go to the first or the last row."""
        self.stand_on(self._count - 1 if at < 0 else at, -1 if at < 0 else 1)

    def action_choose(self) -> None:
        """Enter the chosen row."""
        if self._count:
            self.post_message(self.Entered(self, self._at))

    def _scroll_to_it(self) -> None:
        if self._count and self.size.height:
            self.scroll_to_region(Region(0, self._at, 1, 1), animate=False, force=True, x_axis=False)
