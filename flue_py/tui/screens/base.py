"""What all screens of the browser have: the way to its settings, a line that says what happened, and the keys."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from flue_py.errors import FlueError, LeafConflict, RevisionConflict
from flue_py.render.lines import one_line
from flue_py.tui.screens.keys import Keys, keys_of
from flue_py.tui.widgets.reader import Reader
from flue_py.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from flue_py.tui.app import Browser

Given = TypeVar("Given")
Result = TypeVar("Result")

BY = "flue-py browse"
"""Who did what the browser does, in the log."""


def in_words(error: FlueError) -> str:
    """Return what an error says to a person at the browser, where it is not a caller's own to mend."""
    if isinstance(error, LeafConflict | RevisionConflict):
        return "the session was written meanwhile; nothing was changed, try again"
    return str(error)


class BrowserScreen(Screen[Given]):
    """A screen of the browser. It has a `Static` with the id ``status``."""

    DEFAULT_CSS = """
    BrowserScreen #title { height: 1; background: $panel; }
    BrowserScreen #status { height: auto; min-height: 1; max-height: 3; color: $text-muted; }
    """
    COMMON: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "keys", "Keys", tooltip="show these keys")]

    @property
    def browser(self) -> Browser:
        """The application, which has the store and what is hidden."""
        return cast("Browser", self.app)

    def say(self, text: str) -> None:
        """Show a line at the foot of the screen."""
        # The screen may be gone by now, and nobody is there to be told.
        for line in self.query("#status").results(Static):
            line.update(Text(one_line(text)))

    def head(self, text: str) -> None:
        """Show a line at the head of the screen."""
        for line in self.query("#title").results(Static):
            line.update(Text(one_line(text), no_wrap=True, overflow="ellipsis", style="bold"))

    async def tried(self, work: Awaitable[Result]) -> Result | None:
        """Return what work returns; if it fails with an error of ours, say that, and return None."""
        try:
            return await work
        except FlueError as error:
            self.say(in_words(error))
            return None

    def may_write(self) -> bool:
        """Return whether the store can be changed; if not, say so."""
        if self.browser.read_only:
            self.say("this database can only be read; nothing was changed")
        return not self.browser.read_only

    def action_keys(self) -> None:
        """Show the keys of the screen, and of its list if that has the keys."""
        own = [binding for binding in type(self).BINDINGS if binding not in self.COMMON]
        moves = RowList.BINDINGS if self.query_one(RowList).can_focus else []
        self.app.push_screen(Keys([*keys_of(own), *keys_of(moves)]))

    def action_leave(self) -> None:
        """Go back to the screen before."""
        self.browser.leave()

    def action_other(self) -> None:
        """Go from the list to the text beside it, or back."""
        reader, rows = self.query_one(Reader), self.query_one(RowList)
        (rows if reader.has_focus else reader).focus()

    def action_list(self, what: str, step: int) -> None:
        """Move in the list, while the keys for text go to where it is typed."""
        rows = self.query_one(RowList)
        (rows.action_page if what == "page" else rows.action_step)(step)
