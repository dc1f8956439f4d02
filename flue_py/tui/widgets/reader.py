"""What is read: a long text of which only the lines on the screen are drawn, wrapped to the width there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from flue_py.tui.widgets.strips import fitted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events


def _styled(segment: Segment) -> Segment:
    return segment if segment.style is not None else Segment(segment.text, Style.null(), segment.control)


class Reader(ScrollView):
    """A text to scroll in."""

    can_focus = True

    DEFAULT_CSS = """
    Reader { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; padding: 0 0 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown,space", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_home", "Top", show=False),
        Binding("end,G", "scroll_end", "End", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts: Sequence[RenderableType] = ()
        self._lines: list[list[Segment]] = []
        self._width = 0

    def show(self, parts: Iterable[RenderableType], *, keeps_place: bool = False) -> None:
        """Show these parts, one below the other, from the top unless the place is to be kept."""
        self._parts = tuple(parts)
        self._wrap()
        if not keeps_place:
            self.scroll_to(y=0, animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        at = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if at >= len(self._lines):
            return Strip.blank(width, Style.null())
        return fitted(Strip(self._lines[at]), width)

    def on_resize(self, _: events.Resize) -> None:
        """Wrap the text anew."""
        if self.scrollable_content_region.width != self._width:
            self._wrap()

    def _wrap(self) -> None:
        self._width = self.scrollable_content_region.width
        self._lines = []
        if self._width > 0:
            console = self.app.console
            options = console.options.update(width=self._width, height=None, highlight=False)
            for part in self._parts:
                lines = console.render_lines(part, options, pad=False)
                # Parts are told apart by an empty line; Markdown brings one of its own.
                if self._lines and lines and any(segment.text.strip() for segment in (*self._lines[-1], *lines[0])):
                    self._lines.append([])
                self._lines += [[_styled(segment) for segment in line] for line in lines]
        self.virtual_size = Size(self._width, len(self._lines))
        self.refresh()
