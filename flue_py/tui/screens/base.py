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
    BrowserScreen #status { height: 1; color: $text-muted; }
    """
    COMMON: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "keys", "Keys", tooltip="show these keys")]

    @property
    def browser(self) -> Browser:
        """The application, which has the store and what is hidden."""
        return cast("Browser", self.app)

    def say(self, text: str) -> None:
        """Show a line at the foot of the screen."""
        self.query_one("#status", Static).update(Text(one_line(text), no_wrap=True, overflow="ellipsis"))

    def head(self, text: str) -> None:
        """Show a line at the head of the screen."""
        self.query_one("#title", Static).update(Text(one_line(text), no_wrap=True, overflow="ellipsis", style="bold"))

    async def tried(self, work: Awaitable[Result]) -> Result | None:
        """Return what work returns; if it fails with an error of ours, say that, and return None."""
        try:
            return await work
        except FlueError as error:
            self.say(in_words(error))
            return None

    def action_keys(self) -> None:
        """Show the keys of the screen."""
        own = [binding for binding in type(self).BINDINGS if binding not in self.COMMON]
        self.app.push_screen(Keys([*keys_of(own), *keys_of(RowList.BINDINGS)]))
