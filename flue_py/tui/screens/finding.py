"""Finding what was said, in all sessions or in one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from flue_py.core.entries import Entry
from flue_py.render.lines import Line
from flue_py.render.search import group_line, hit_lines, searched_text
from flue_py.search.values import SearchAnswer, SearchHit
from flue_py.sessions.session import Session
from flue_py.tui.masking import without
from flue_py.tui.opened import named
from flue_py.tui.projects import next_row
from flue_py.tui.reading import strings_of
from flue_py.tui.screens.base import BrowserScreen
from flue_py.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult

_LIMIT = 200
_SEARCHED = 200_000
"""How much of a text is looked at for secrets: as much as is searched of it."""

_Shown: TypeAlias = tuple[Line, SearchHit | None]


class FindScreen(BrowserScreen[str | None]):
    """A search. In one session, the id of the entry that is chosen is what the screen returns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "Search/open", tooltip="search for what is typed; in the list, open the hit"),
        Binding("up", "list('step', -1)", "Up", show=False),
        Binding("down", "list('step', 1)", "Down", show=False, tooltip="the next hit"),
        Binding("pageup", "list('page', -1)", "Page up", show=False),
        Binding("pagedown", "list('page', 1)", "Page down", show=False),
        Binding("ctrl+r", "secrets", "Secrets", show=False, tooltip="show or hide secrets", priority=True),
        Binding("escape", "leave", "Back", tooltip="go back", priority=True),
        Binding("f1", "keys", "Keys", tooltip="show these keys"),
    ]

    def __init__(self, words: str, *, within: Session | None = None) -> None:
        super().__init__()
        self._words, self._within = words, within
        self._searched: str | None = None
        self._rows: Sequence[_Shown] = ()
        self._secrets: Mapping[str, tuple[str, ...]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the words, the hits and the keys."""
        yield Static(id="title", markup=False)
        yield Input(self._words, placeholder="words, taken literally", id="words", compact=True)
        yield RowList(self._draw, id="hits")
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Search for the words, if there are any."""
        self.head("find in this session" if self._within is not None else "find in all sessions")
        rows = self.query_one(RowList)
        rows.can_focus = False
        rows.pass_over(self._next_hit)
        self.query_one(Input).focus()
        if self._words.strip():
            self.search(self._words)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Search or open, once what was typed before has been taken in."""
        self.action_enter()

    def action_enter(self) -> None:
        """Search for what is typed; if that was done, open the chosen hit."""
        words = self.query_one(Input).value
        if words != self._searched:
            if words.strip():
                self.search(words)
            return
        rows = self.query_one(RowList)
        hit = self._rows[rows.at][1] if rows.at < len(self._rows) else None
        if hit is None:
            return
        if self._within is not None and hit.session_id == self._within.id:
            self.dismiss(hit.entry_id)
            return
        self.browser.open_session(hit.session_id, hit.entry_id)

    @work(exclusive=True, group="search")
    async def search(self, words: str) -> None:
        """Search, and show what is found."""
        self._searched, self._rows = None, ()
        self.query_one(RowList).show(0, 0)
        self.say("searching")
        within = None if self._within is None else [self._within]
        answer = await self.tried(self.browser.store.search(words, sessions=within, limit=_LIMIT))
        if answer is None:
            return
        names = await named(self.browser.store, [group.session for group in answer.sessions])
        self._rows = self._lines(answer, names)
        self._secrets = await self._secrets_of(answer)
        self._searched = words
        self.query_one(RowList).show(len(self._rows), 0)
        found = searched_text(answer)
        if not answer.sessions:
            found = f"nothing found; {found}"
            # A suggestion is a word of a text without what stood around it, which would tell that it is secret.
            if answer.suggestions and self.browser.shows_secrets:
                found = f"nothing found; did you mean: {', '.join(answer.suggestions)}"
        self.say(found)

    def _lines(self, answer: SearchAnswer, names: Mapping[str, str]) -> Sequence[_Shown]:
        rows: list[_Shown] = []
        for group in answer.sessions:
            rows.append((group_line(group, names[group.session.id]), None))
            for hit in group.hits:
                first, second = hit_lines(hit)
                rows += ((first, hit), (second, None))
        return rows

    def _next_hit(self, at: int, step: int) -> int:
        return next_row(len(self._rows), lambda place: self._rows[place][1] is not None, at, step)

    def on_row_list_entered(self, _: RowList.Entered) -> None:
        """Open the hit that is clicked twice."""
        self.action_enter()

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.browser.toggle_secrets()
        self.query_one(RowList).refresh()

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)

    async def _secrets_of(self, answer: SearchAnswer) -> dict[str, tuple[str, ...]]:
        """Return the secrets of the texts that were found, by entry: of a piece alone nobody can tell all of them."""
        found: dict[str, tuple[str, ...]] = {}
        for hit in answer.hits:
            if hit.entry_id is not None and hit.entry_id not in found:
                entry = await self.tried(self.browser.store.get_entry(hit.entry_id))
                found[hit.entry_id] = () if entry is None else await asyncio.to_thread(self._secrets_in, entry)
        return found

    def _secrets_in(self, entry: Entry) -> tuple[str, ...]:
        text = "\n".join(each[:_SEARCHED] for each in strings_of(entry.data))
        return self.browser.secrets(text[:_SEARCHED])

    def _draw(self, at: int, _: int) -> Line:
        line, hit = self._rows[at]
        if hit is None and at > 0:
            hit = self._rows[at - 1][1]
        whole = "".join(text for text, _ in line)
        shown = self.browser.masked(whole)
        if not self.browser.shows_secrets and hit is not None:
            piece = shown.strip().strip("…")
            shown = shown.replace(piece, without(piece, self._secrets.get(hit.entry_id or "", ())))
        # A secret may lie across what is marked in it.
        return line if shown == whole else ((shown, ""),)
