"""What the browser asks: yes or no, one line, or a prompt to be changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from flue_py.render.lines import printable

if TYPE_CHECKING:
    from textual.app import ComposeResult

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
        """Show the question, what there is to know, and the keys."""
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
        """Show the prompt, and what became of the last try."""
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
