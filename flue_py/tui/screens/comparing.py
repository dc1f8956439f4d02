"""Two leaves of a session: what they share, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from flue_py.core.diffing import LeafDiff
from flue_py.core.entries import Entry
from flue_py.render.diff import diff_lines
from flue_py.render.entries import Look
from flue_py.render.lines import Line
from flue_py.tui.opened import OpenedSession
from flue_py.tui.screens.base import BrowserScreen
from flue_py.tui.widgets.rows import MARK, RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult


class CompareScreen(BrowserScreen[None]):
    """The difference of two leaves, line by line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "all", "All", tooltip="show every entry, or fold long stretches"),
        Binding("s", "secrets", "Secrets", tooltip="show or hide secrets"),
        *BrowserScreen.COMMON,
        Binding("escape,q", "leave", "Back", tooltip="go back"),
    ]

    def __init__(self, opened: OpenedSession, left: str, right: str) -> None:
        super().__init__()
        self._opened, self._left, self._right = opened, left, right
        self._diff: LeafDiff | None = None
        self._ancestor: Entry | None = None
        self._lines: Sequence[Line] = ()
        self._shows_all = False

    def compose(self) -> ComposeResult:
        """Lay out the lines and the keys."""
        yield Static(id="title", markup=False)
        yield RowList(self._draw, id="lines")
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Compare."""
        self.query_one(RowList).focus()
        self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Compare the leaves, and show it."""
        session = self._opened.session
        self._diff = await self.tried(session.diff(leaf=self._left, other_leaf=self._right))
        if self._diff is None:
            return
        if self._diff.ancestor_id is not None:
            self._ancestor = await session.get_entry(self._diff.ancestor_id)
        self.head(f"{self.browser.masked(self._opened.name)}: two leaves")
        self._lay_out()

    def on_resize(self) -> None:
        """Lay the lines out for another width."""
        if self._diff is not None:
            self._lay_out()

    def action_all(self) -> None:
        """Show every entry, or fold long stretches."""
        self._shows_all = not self._shows_all
        self._lay_out()

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.browser.toggle_secrets()
        self._lay_out()

    def _lay_out(self) -> None:
        if self._diff is None:
            return
        session_id = self._opened.session.id
        look = Look(
            self.size.width - len(MARK) - 1,
            labels=self._opened.labels,
            glyphs=self.browser.glyphs,
            masked=self.browser.masked,
        )
        names = {session_id: self.browser.masked(self._opened.name)}
        self._lines = diff_lines(self._diff, self._ancestor, names, look, show_all=self._shows_all)
        rows = self.query_one(RowList)
        rows.show(len(self._lines), rows.at)

    def _draw(self, at: int, _: int) -> Line:
        return self._lines[at]
