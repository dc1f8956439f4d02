"""The widgets of the browser: keys, texts to read, lists of rows, and questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static, TextArea

from flue_py.render.lines import Line, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.app import ComposeResult


# ---------------------------------------------------------------------------------------------------------------------
# The keys of a screen, made from its bindings.

_NAMES = {
    "slash": "/", "question_mark": "?", "full_stop": ".", "equals_sign": "=", "escape": "esc", "pageup": "PgUp",
    "pagedown": "PgDn",
}  # fmt: skip


def keys_of(bindings: Sequence[BindingType]) -> Iterator[tuple[str, str]]:
    """Yield the keys of bindings, as they stand on a keyboard, with their effects."""
    for binding in bindings:
        if isinstance(binding, Binding):
            yield (
                " ".join(_NAMES.get(key, key) for key in binding.key.split(",")),
                binding.tooltip or binding.description,
            )


class Keys(ModalScreen[None]):
    """The effect of each key."""

    DEFAULT_CSS = """
    Keys { align: center middle; }
    Keys > VerticalScroll { width: 95%; max-width: 90; height: auto; max-height: 95%; border: round $primary; }
    Keys Static { padding: 0 1; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,f1", "leave", "Back")]

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Show the keys."""
        width = max(len(key) for key, _ in self._keys)
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=width, no_wrap=True)
        table.add_column()
        for key, help_text in self._keys:
            table.add_row(Text(key, style="bold"), Text(help_text))
        with VerticalScroll():
            yield Static(table)

    def on_mount(self) -> None:
        """Let the keys that scroll do so."""
        self.query_one(VerticalScroll).focus()

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)


# ---------------------------------------------------------------------------------------------------------------------
# Lines of styled text as strips of a screen.


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


# ---------------------------------------------------------------------------------------------------------------------
# What is read: a long text of which only the lines on the screen are drawn, wrapped to the width there is.


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


# ---------------------------------------------------------------------------------------------------------------------
# A list of which only the lines on the screen are drawn, however long it is, with one row chosen.

MARK = "> "
"""Stands before the chosen row, so that it is seen without colours, too."""

_CHOSEN = Style(reverse=True)
_CHOSEN_ELSEWHERE = Style(bold=True)


class OfRow(Message):
    """An event of the row of a list at ``at``."""

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
        self.stand_on(at, announce=True)

    def stand_on(self, at: int, step: int = 0, *, announce: bool = False) -> None:
        """Choose a row, and scroll to it. With ``announce`` it is posted also if the same one was chosen before."""
        at = self._next(min(max(at, 0), max(self._count - 1, 0)), step)
        is_new = at != self._at
        self._at = at
        self._scroll_to_it()
        self.refresh()
        if is_new or announce:
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
        """Go up or down by one screen."""
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


# ---------------------------------------------------------------------------------------------------------------------
# What the browser asks: yes or no, one line, or a prompt to be changed.

_BOX = """
{name} {{ align: center middle; }}
{name} > Vertical {{ width: 90%; max-width: 100; height: auto; max-height: 100%; padding: 0 1; }}
{name} > Vertical {{ border: round $primary; }}
{name} #keys {{ dock: bottom; height: 1; }}
{name} #question {{ max-height: 12; }}
"""


class Confirm(ModalScreen[bool]):
    """A question to which only the key ``y`` says yes."""

    DEFAULT_CSS = _BOX.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str, facts: Sequence[str] = ()) -> None:
        super().__init__()
        self._lines = [printable(line) for line in (question, *facts)]

    def compose(self) -> ComposeResult:
        """Show the question, the facts about it, and the keys."""
        with Vertical():
            yield Static(Text("\n".join(self._lines)), id="question")
            yield Static(Text("y: yes   n: no", style="bold"), id="keys")

    def action_answer(self, answer: bool) -> None:
        """Answer."""
        self.dismiss(answer)


class AskLine(ModalScreen[str | None]):
    """A line to be typed: Enter gives it, Escape gives None."""

    DEFAULT_CSS = _BOX.format(name="AskLine")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave", priority=True)]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        """Show the question and the line."""
        with Vertical():
            yield Static(Text(printable(self._question)))
            yield Input(printable(self._value), id="line")
            yield Static(Text("enter: done   esc: leave it", style="bold"), id="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the line."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Give nothing."""
        self.dismiss(None)


class EditPrompt(ModalScreen[str | None]):
    """A prompt to be changed: Ctrl+S gives it, Escape gives None."""

    DEFAULT_CSS = (
        _BOX.format(name="EditPrompt") + "EditPrompt TextArea { height: auto; min-height: 5; max-height: 16; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        # Not ahead of what was typed before: the text area has to have it first.
        Binding("ctrl+s", "save", "Save"),
        Binding("escape", "leave", "Leave", priority=True),
    ]

    def __init__(self, text: str, *, failed: str = "") -> None:
        super().__init__()
        self._text, self._failed = text, failed

    def compose(self) -> ComposeResult:
        """Show the prompt, and the outcome of the last try."""
        with Vertical():
            yield Static(Text("Change the prompt. It is appended beside the old one, as a new branch."))
            text = printable(self._text)
            if text != self._text:
                yield Static(
                    Text("What a terminal would act on is shown as \ufffd, and saved as that.", style="yellow")
                )
            area = TextArea(text, id="prompt")
            area.move_cursor(area.document.end)
            yield area
            yield Static(Text(printable(self._failed), style="bold red"), id="failed")
            yield Static(Text("ctrl+s: save   esc: leave it", style="bold"), id="keys")

    def action_save(self) -> None:
        """Give the text, unless it is empty."""
        text = self.query_one(TextArea).text
        if text.strip():
            self.dismiss(text)
        else:
            self.query_one("#failed", Static).update(Text("An empty prompt says nothing.", style="bold red"))

    def action_leave(self) -> None:
        """Give nothing."""
        self.dismiss(None)
