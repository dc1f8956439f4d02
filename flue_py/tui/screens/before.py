"""What was before a compaction: the entries that its summary stands for, and what it no longer says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Static

from flue_py.core.entries import Entry
from flue_py.render.lines import Line, counted, one_line
from flue_py.tui import reading
from flue_py.tui.drawing import entry_row
from flue_py.tui.opened import OpenedSession
from flue_py.tui.screens.base import BrowserScreen
from flue_py.tui.widgets.reader import Reader
from flue_py.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult

_LISTED = 200


class BeforeScreen(BrowserScreen[None]):
    """The entries that a compaction stands for, the compaction itself first."""

    DEFAULT_CSS = """
    BeforeScreen #panes { height: 1fr; }
    BeforeScreen #entries { width: 45%; border-right: solid $panel; }
    BeforeScreen #reader { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "other", "Other side", tooltip="go to the other side"),
        Binding("s", "secrets", "Secrets", tooltip="show or hide secrets"),
        *BrowserScreen.COMMON,
        Binding("escape,q", "leave", "Back", tooltip="go back"),
    ]

    def __init__(self, opened: OpenedSession, compaction: Entry) -> None:
        super().__init__()
        self._opened = opened
        self._entries: Sequence[Entry] = [compaction]
        self._lost: list[str] = []

    def compose(self) -> ComposeResult:
        """Lay out the entries, the text and the keys."""
        yield Static(id="title", markup=False)
        with Horizontal(id="panes"):
            yield RowList(self._draw, id="entries")
            yield Reader(id="reader")
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Read what the compaction stands for."""
        self.query_one(RowList).focus()
        self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Read what the compaction stands for, and what it lost."""
        compaction = self._entries[0]
        report = await self.tried(self._opened.session.loss_report(compaction.id, limit=_LISTED))
        if report is None:
            return
        found = await self._opened.session.get_entries(report.entry_ids)
        self._entries = [compaction, *(entry for entry in found if entry is not None)]
        masked = self.browser.masked
        self._lost = [f"- {each.kind}: {masked(one_line(fact.text))}" for each in report.kinds for fact in each.lost]
        if left := sum(each.left_out for each in report.kinds):
            self._lost.append(f"({left:,} more are not listed; flue-py loss lists up to 1,000 of a kind)")
        lost = sum(each.total - each.covered for each in report.kinds)
        self.head(f"before compaction {compaction.id}: {counted(len(report.entry_ids), 'entry', 'entries')}")
        self.say(
            f"{counted(lost, 'fact')} of {sum(each.total for each in report.kinds):,} no longer said"
            if lost
            else "nothing is lost"
        )
        rows = self.query_one(RowList)
        rows.show(len(self._entries), min(rows.at, len(self._entries) - 1))

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.browser.toggle_secrets()
        self.load()

    def on_row_list_reached(self, event: RowList.Reached) -> None:
        """Show the chosen entry; below the summary, what it no longer says."""
        entry = self._entries[event.at]
        masked = self.browser.masked
        facts = reading.facts(entry, self._opened.marks_of(entry), masked)
        parts = [Text(facts, style="dim"), *reading.body(entry, masked)]
        if event.at == 0 and self._lost:
            parts += [Text("\nno longer said:", style="bold"), *map(Text, self._lost)]
        self.query_one(Reader).show(parts)

    def _draw(self, at: int, width: int) -> Line:
        entry = self._entries[at]
        marks = self._opened.marks_of(entry)
        return entry_row(
            entry, marks, self.browser.masked, width, depth=0, opens=False, is_folded=False, glyphs=self.browser.glyphs
        )
