"""One session: its tree on the left, the chosen entry on the right, and the keys that change it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, Static

from flue_py.core.entries import Entry
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import Change
from flue_py.errors import FlueError, SessionNotFound
from flue_py.render.lines import Line, cells, clip, counted, one_line
from flue_py.render.listing import project_name
from flue_py.tui import editing, reading
from flue_py.tui.drawing import begun_row, entry_row
from flue_py.tui.opened import OpenedSession
from flue_py.tui.outline import VIEWS, Begun, Row
from flue_py.tui.screens.base import BrowserScreen, in_words
from flue_py.tui.screens.before import BeforeScreen
from flue_py.tui.screens.changing import ChangingScreen
from flue_py.tui.screens.comparing import CompareScreen
from flue_py.tui.shown import ShownTree
from flue_py.tui.widgets.reader import Reader
from flue_py.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult

_CHANGES = 1_000


class _Read(NamedTuple):
    """What is drawn on the right."""

    entry_id: str
    marks: reading.Marks
    is_markdown: bool
    is_whole: bool
    has_secrets: bool


class SessionScreen(ChangingScreen):
    """A session. ``entry_id`` is the entry to begin at: the leaf if it is left out."""

    DEFAULT_CSS = """
    SessionScreen #panes { height: 1fr; }
    SessionScreen #tree { width: 45%; border-right: solid $panel; }
    SessionScreen #reader { width: 1fr; }
    SessionScreen.wide #tree { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "enter",
            "Open",
            tooltip="a prompt: edit it as a new branch; a fork or task: go there; a compaction: what was before",
        ),
        *ChangingScreen.CHANGES,
        Binding("v", "view", "View", tooltip=f"the next view: {', '.join(VIEWS)}"),
        *(
            Binding(str(n), f"view({n - 1})", name, show=False, tooltip=f"view: {name}")
            for n, name in enumerate(VIEWS, 1)
        ),
        Binding("left", "fold", "Fold", show=False, tooltip="fold what is below this entry, or go to its parent"),
        Binding("right", "unfold", "Unfold", show=False, tooltip="unfold"),
        Binding("full_stop", "leaf", "Leaf", show=False, tooltip="go to the leaf"),
        Binding("b", "before", "Before", show=False, tooltip="what was before this compaction, and what it lost"),
        Binding("equals_sign", "compare", "Compare", show=False, tooltip="compare two leaves: once here, once there"),
        Binding(
            "o",
            "origin",
            "Origin",
            show=False,
            tooltip="go to the session that this one was forked from, or is a task of",
        ),
        Binding("slash", "find", "Find", tooltip="find text in this session"),
        Binding("s", "secrets", "Secrets", show=False, tooltip="show or hide secrets"),
        Binding("t", "markdown", "Text", show=False, tooltip="show text as it stands, or as Markdown"),
        Binding("w", "whole", "Whole", show=False, tooltip="show a long text whole"),
        Binding("z", "wide", "Wide", show=False, tooltip="give the message the whole screen"),
        Binding("tab", "other", "Other side", show=False, tooltip="go to the other side"),
        *BrowserScreen.COMMON,
        Binding("escape,q", "leave", "Back", tooltip="go back"),
    ]

    def __init__(self, session_id: str, entry_id: str | None = None) -> None:
        super().__init__()
        self._session_id = session_id
        self._wanted = entry_id
        self._opened: OpenedSession | None = None
        self._tree = ShownTree()
        self._seen = 0
        self._is_shown_whole = False
        self._changing = asyncio.Lock()
        self._compared: str | None = None
        self._is_markdown = True
        self._is_whole_text = False
        self._read: _Read | None = None

    @property
    def opened(self) -> OpenedSession | None:
        """The session, once it was found."""
        return self._opened

    @property
    def is_whole(self) -> bool:
        """Whether all of the session was read, and is shown."""
        return self._opened is not None and self._opened.is_whole and self._is_shown_whole

    def compose(self) -> ComposeResult:
        """Lay out the head, the tree, the message and the keys."""
        yield Static(id="title", markup=False)
        with Horizontal(id="panes"):
            yield RowList(self._draw, id="tree")
            yield Reader(id="reader")
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Read the session, and follow it."""
        self.query_one(RowList).focus()
        self.follow()

    def on_screen_resume(self) -> None:
        """Look again which forks and tasks there are: making one changes nothing of this session."""
        if self.is_whole:
            self.look_around()

    @work(exclusive=True, group="around")
    async def look_around(self) -> None:
        """Read which forks and tasks begin here, and show them."""
        opened = self._opened
        if opened is not None:
            await self.tried(opened.load_begun())
            self._show_rows(self._chosen_id())

    # -- what is there, and what comes -------------------------------------------------------------------------

    @work(exclusive=True, group="follow")
    async def follow(self) -> None:
        """Show the end of the session, then all of it, then what is written to it, by whichever process."""
        try:
            session = await self.browser.store.find_session(self._session_id)
            opened = self._opened = OpenedSession(self.browser.store, session)
            self._seen = session.revision
            await opened.load_end()
            begin = self._wanted or session.leaf_id
            self._show_rows(begin)
            is_there = begin is None or begin in self._tree.outline.place
            await opened.load_all()
            await self._rebuild(self._chosen_id() if is_there else begin)
            self._is_shown_whole = True
            async with aclosing(self.browser.store.backend.notifications(session.ref)) as woken:
                async for _ in woken:
                    await self.take_changes()
        except SessionNotFound:
            self.say("the session was deleted; esc goes back")
        except FlueError as error:
            self.say(in_words(error))

    async def take_changes(self) -> None:
        """Show what was written since this was last done, by whichever process."""
        opened = self._opened
        if opened is None:
            return
        async with self._changing:
            changes: list[Change] = []
            while page := await opened.session.changes(after=self._seen, limit=_CHANGES):
                changes += page
                self._seen = page[-1].revision
            if changes:
                was_at_leaf = self._chosen() == self._tree.leaf_row
                await opened.catch_up(changes)
                await self._rebuild(opened.info.leaf_id if was_at_leaf else self._chosen_id())

    async def _rebuild(self, entry_id: str | None) -> None:
        """Work out the rows anew, and stay at an entry."""
        opened = self._opened
        assert opened is not None
        await asyncio.to_thread(self._tree.flag, opened.outline, opened.marked)
        self._show_rows(entry_id)

    def _show_rows(self, entry_id: str | None) -> None:
        opened = self._opened
        assert opened is not None
        self._tree.show(opened.outline, opened.marked, opened.begun)
        self.query_one(RowList).show(len(self._tree.rows), self._tree.number_of(entry_id))
        self._head()

    def _head(self) -> None:
        opened = self._opened
        assert opened is not None
        count = counted(len(self._tree.outline.entries), "entry", "entries")
        facts = [self._tree.view, count if opened.is_whole else f"{count} so far"]
        if opened.is_whole:
            facts.append(counted(self._tree.outline.branches, "branch", "branches"))
        facts.append(self.browser.masked(project_name(opened.info)))
        told = " · ".join(fact for fact in facts if fact)
        room = max(16, self.size.width - cells(told) - 3)
        self.head(f"{clip(self.browser.masked(opened.name), room, self.browser.glyphs.cut)} · {told}")

    # -- drawing -----------------------------------------------------------------------------------------------

    def _draw(self, at: int, width: int) -> Line:
        opened = self._opened
        assert opened is not None
        row, outline = self._tree.rows[at], self._tree.outline
        if isinstance(row, Begun):
            depth = outline.depths[outline.place[row.entry_id]]
            said = (
                (row.link.task_id if row.link else "") if row.info is None else row.info.shown_title or row.session_id
            )
            return begun_row(row, self.browser.masked(said), width, depth, self.browser.glyphs)
        entry = outline.entries[row]
        is_folded = self._tree.is_folded(entry.id)
        marks = replace(opened.marks_of(entry), is_leaf=row == self._tree.leaf_row)
        return entry_row(
            entry,
            marks,
            self.browser.masked,
            width,
            depth=outline.depths[row],
            opens=outline.opens[row],
            is_folded=is_folded,
            glyphs=self.browser.glyphs,
        )

    def on_row_list_reached(self, _: RowList.Reached) -> None:
        """Show what is chosen."""
        self._read_chosen()

    def _read_chosen(self, *, keeps_place: bool = False) -> None:
        """Show the chosen entry, unless it is shown as it is already: to draw a long text takes time."""
        opened, row = self._opened, self._chosen()
        if opened is None:
            return
        if row is None or isinstance(row, Begun):
            self._read = None
            self.query_one(Reader).show([Text(self._about_begun(row), style="dim")])
            return
        entry = self._tree.outline.entries[row]
        if self._read is None or entry.id != self._read.entry_id:
            self._is_whole_text = False
        else:
            keeps_place = True
        marks = opened.marks_of(entry)
        read = _Read(entry.id, marks, self._is_markdown, self._is_whole_text, self.browser.shows_secrets)
        if read != self._read:
            self._read = read
            self._draw_entry(entry, marks, keeps_place=keeps_place)
        if opened.lacks_cost(entry):
            self.load_costs()

    def _draw_entry(self, entry: Entry, marks: reading.Marks, *, keeps_place: bool) -> None:
        hidden: list[int] = []

        def masked(text: str) -> str:
            found = self.browser.mask(text)
            hidden.append(found.hidden)
            return found.text

        facts = reading.facts(entry, marks, masked)
        parts = tuple(reading.body(entry, masked, markdown=self._is_markdown, whole=self._is_whole_text))
        if sum(hidden):
            facts += f"\n{counted(sum(hidden), 'secret')} hidden; s shows them"
        self.query_one(Reader).show((Text(facts, style="dim"), *parts), keeps_place=keeps_place)

    def _about_begun(self, row: Begun | None) -> str:
        if row is None:
            return "no entries in this view" if self._opened and self._opened.is_whole else ""
        kind = "fork" if row.link is None else "task"
        lines = [f"{kind} {one_line(row.session_id, 80)}"]
        if row.info is None:
            lines.append("deleted")
        else:
            lines += [self.browser.masked(one_line(row.info.shown_title or "")), "enter goes there"]
        if row.link is not None and row.link.summary:
            lines.append(self.browser.masked(one_line(row.link.summary)))
        return "\n".join(line for line in lines if line)

    @work(exclusive=True, group="costs")
    async def load_costs(self) -> None:
        """Read what the entries cost, and show it."""
        if self._opened is not None:
            await self.tried(self._opened.load_costs())
            self._read_chosen(keeps_place=True)

    # -- where one is ------------------------------------------------------------------------------------------

    def _chosen(self) -> Row | None:
        return self._tree.row(self.query_one(RowList).at)

    def chosen_entry(self) -> Entry | None:
        """Return the chosen entry; None where a fork, a task or nothing is chosen."""
        row = self._chosen()
        return self._tree.outline.entries[row] if self._opened is not None and isinstance(row, int) else None

    def _chosen_id(self) -> str | None:
        row = self._chosen()
        if isinstance(row, Begun):
            return row.entry_id
        entry = self.chosen_entry()
        return None if entry is None else entry.id

    def action_view(self, number: int | None = None) -> None:
        """Show the next view, or one of them."""
        self._tree.turn_to(None if number is None else VIEWS[number])
        if self._opened is not None:
            self._show_rows(self._chosen_id())

    def action_fold(self) -> None:
        """Fold what is below the chosen entry; if there is nothing to fold, go to its parent."""
        row, tree = self._chosen(), self._tree
        if isinstance(row, Begun):
            self._stand_on(row.entry_id)
        elif row is not None:
            entries = tree.outline.entries
            if tree.fold(row):
                self._show_rows(entries[row].id)
            elif (parent := tree.outline.parent_of(row)) is not None:
                self._stand_on(entries[parent].id)

    def action_unfold(self) -> None:
        """Unfold what is below the chosen entry."""
        entry = self.chosen_entry()
        if entry is not None and self._tree.unfold(entry.id):
            self._show_rows(entry.id)

    def action_leaf(self) -> None:
        """Go to the leaf."""
        if self._opened is not None:
            self.reveal(self._opened.info.leaf_id)

    def _stand_on(self, entry_id: str | None) -> None:
        self.query_one(RowList).stand_on(self._tree.number_of(entry_id))

    def reveal(self, entry_id: str | None) -> None:
        """Go to an entry, and unfold what hides it."""
        if self._tree.unfold_above(entry_id):
            self._show_rows(entry_id)
        else:
            self._stand_on(entry_id)

    def action_other(self) -> None:
        """Go to the other side, if both are shown."""
        if not self.has_class("wide"):
            super().action_other()

    def action_wide(self) -> None:
        """Give the message the whole screen, or take it back."""
        self.toggle_class("wide")
        (self.query_one(Reader) if self.has_class("wide") else self.query_one(RowList)).focus()

    def action_markdown(self) -> None:
        """Show text as it stands, or as Markdown."""
        self._is_markdown = not self._is_markdown
        self._read_chosen()
        self.say("texts are drawn as Markdown" if self._is_markdown else "texts are shown as they stand")

    def action_whole(self) -> None:
        """Show a long text whole, or cut it again."""
        self._is_whole_text = not self._is_whole_text
        self._read_chosen(keeps_place=True)

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.say("secrets are shown" if self.browser.toggle_secrets() else "secrets are hidden")
        self.query_one(RowList).refresh()
        self._read_chosen(keeps_place=True)
        if self._opened is not None:
            self._head()

    def action_leave(self) -> None:
        """Go back: to both sides, or to the screen before."""
        if self.has_class("wide"):
            self.action_wide()
        else:
            super().action_leave()

    # -- going elsewhere ---------------------------------------------------------------------------------------

    def on_row_list_entered(self, _: RowList.Entered) -> None:
        """Do what Enter means for the chosen row."""
        self.action_enter()

    def action_enter(self) -> None:
        """Edit a prompt, go to a session, show what a compaction replaced; else go to the text."""
        row, entry = self._chosen(), self.chosen_entry()
        if isinstance(row, Begun):
            if row.info is None:
                self.say("this session was deleted")
            else:
                self.browser.open_session(row.session_id)
        elif entry is None:
            return
        elif editing.is_prompt(entry):
            self.action_edit()
        elif entry.kind == COMPACTION:
            self.action_before()
        else:
            self.query_one(Reader).focus()

    @work
    async def action_origin(self) -> None:
        """Go to the session that this one was forked from, or is a task of."""
        opened = self._opened
        if opened is None:
            return
        source, entry_id = opened.info.forked_from_session, opened.info.forked_from_entry
        if source is None:
            parents = await self.tried(opened.session.task_parents()) or []
            source, entry_id = (parents[0].parent_id, parents[0].entry_id) if parents else (None, None)
        if source is None:
            self.say("this session was forked from none, and is no task")
        elif await self.tried(self.browser.store.get_session(source)) is None:
            self.say(f"session {source} was deleted")
        else:
            self.browser.open_session(source, entry_id)

    def action_find(self) -> None:
        """Find text in this session."""
        if self._opened is not None:
            self.browser.find("", within=self._opened.session, found=self._found)

    def _found(self, entry_id: str | None) -> None:
        if entry_id is not None and self._opened is not None:
            if not self._tree.has_entry(entry_id):
                self._tree.turn_to("all")
                self._show_rows(entry_id)
            self.reveal(entry_id)

    def action_before(self) -> None:
        """Show what was before the chosen compaction."""
        entry = self.chosen_entry()
        if self._opened is None or entry is None or entry.kind != COMPACTION:
            self.say("this is no compaction")
        else:
            self.app.push_screen(BeforeScreen(self._opened, entry))

    def action_compare(self) -> None:
        """Remember the chosen entry, or compare it with the one remembered."""
        entry = self.chosen_entry()
        if self._opened is None or entry is None:
            return
        first, self._compared = self._compared, None
        if first is None:
            self._compared = entry.id
            self.say(f"{entry.id} is the first leaf; choose the other one, and press = again")
        elif first != entry.id:
            self.app.push_screen(CompareScreen(self._opened, first, entry.id))
        else:
            self.say("nothing is compared")
