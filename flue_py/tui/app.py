"""The browser: which screen is shown, and whether secrets are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, cast

from msgspec.structs import replace
from rich.text import Text
from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from textual.worker import active_worker

from flue_py import masking
from flue_py.agents.harness import redo_last, undo_last
from flue_py.core.context import LeafDiff
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import Change, Deletion, SessionInfo, SessionPage
from flue_py.errors import FlueError, SessionNotFound
from flue_py.render.lines import UNICODE, Glyphs, Line, Look, cells, clip, counted, one_line
from flue_py.render.views import ListedSession, diff_lines, project_name, searched_text
from flue_py.search import SearchAnswer
from flue_py.sessions.handle import names_of
from flue_py.sessions.money import listed_rows
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.tui import model
from flue_py.tui.widgets import MARK, AskLine, Confirm, EditPrompt, Keys, Reader, RowList, keys_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.await_complete import AwaitComplete
    from textual.widget import Widget


# ---------------------------------------------------------------------------------------------------------------------
# What all screens of the browser have: the way to its settings, a line that says what happened, and the keys.

Given = TypeVar("Given")
Result = TypeVar("Result")

BY = "flue-py browse"
"""The author of changes by the browser, in the log."""


class BrowserScreen(Screen[Given]):
    """A screen of the browser. It has a `Static` with the id ``status``."""

    DEFAULT_CSS = """
    BrowserScreen #title { height: 1; background: $panel; }
    BrowserScreen #status { height: auto; min-height: 1; max-height: 3; color: $text-muted; }
    """
    COMMON: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "keys", "Keys", tooltip="show these keys")]
    BESIDE_TYPING: ClassVar[list[BindingType]] = [
        Binding("up", "list('step', -1)", "Up", show=False, tooltip="the row before"),
        Binding("down", "list('step', 1)", "Down", show=False, tooltip="the next row"),
        Binding("pageup", "list('page', -1)", "Page up", show=False),
        Binding("pagedown", "list('page', 1)", "Page down", show=False),
        Binding("ctrl+r", "secrets", "Secrets", show=False, tooltip="show or hide secrets", priority=True),
    ]
    """The keys of a list whose screen has a line to type in."""

    @property
    def browser(self) -> Browser:
        """The application, which has the store and the mask."""
        return cast("Browser", self.app)

    def laid_out(self, *widgets: Widget) -> ComposeResult:
        """Yield the head of the screen, the widgets, the line at the foot and the keys."""
        yield Static(id="title", markup=False)
        yield from widgets
        yield Static(id="status", markup=False)
        yield Footer()

    def say(self, text: str) -> None:
        """Show a line at the foot of the screen."""
        # The screen may be gone by now, and nobody is there to be told.
        for line in self.query("#status").results(Static):
            line.update(Text(one_line(text)))

    def head(self, text: str) -> None:
        """Show a line at the head of the screen, which says where nothing was checked."""
        text = f"unchecked · {text}" if self.browser.store.unchecked else text
        for line in self.query("#title").results(Static):
            line.update(Text(one_line(text), no_wrap=True, overflow="ellipsis", style="bold"))

    async def tried(self, work: Awaitable[Result]) -> Result | None:
        """Return the result of some work; if it fails with an error of ours, say that, and return None."""
        try:
            return await work
        except FlueError as error:
            self.say(model.in_words(error))
            return None

    async def deleted(self, session_id: str) -> Deletion | None:
        """Delete a session, if the answer is yes; None if it was not deleted."""
        planned = await self.tried(model.plan_deletion(self.browser.store, session_id))
        if planned is None:
            return None
        agreed = await self.app.push_screen_wait(Confirm(self.browser.masked(planned.question), planned.facts))
        return await self.tried(planned.go()) if agreed else None

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

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.say("secrets are shown" if self.browser.toggle_secrets() else "secrets are hidden")
        self.redraw()

    def redraw(self) -> None:
        """Draw anew all that may have secrets."""
        self.query_one(RowList).refresh()

    def action_other(self) -> None:
        """Go from the list to the text beside it, or back."""
        reader, rows = self.query_one(Reader), self.query_one(RowList)
        (rows if reader.has_focus else reader).focus()

    def action_list(self, action: str, step: int) -> None:
        """Move in the list, while the keys for text go to where it is typed."""
        rows = self.query_one(RowList)
        (rows.action_page if action == "page" else rows.action_step)(step)


# ---------------------------------------------------------------------------------------------------------------------
# Finding what was said, in all sessions or in one.

_LIMIT = 200
_SEARCHED = 200_000
"""How much of a text is looked at for secrets: as much as is searched of it."""


class FindScreen(BrowserScreen[str | None]):
    """A search. In one session, the id of the entry that is chosen is the result of the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "Search/open", tooltip="search for what is typed; in the list, open the hit"),
        *BrowserScreen.BESIDE_TYPING,
        Binding("escape", "leave", "Back", tooltip="go back", priority=True),
        Binding("f1", "keys", "Keys", tooltip="show these keys"),
    ]

    def __init__(self, words: str, *, within: Session | None = None) -> None:
        super().__init__()
        self._words, self._within = words, within
        self._searched: str | None = None
        self._rows: Sequence[model.SearchRow] = ()
        self._secrets: Mapping[str, tuple[str, ...]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the words, the hits and the keys."""
        words = Input(self._words, placeholder="words, taken literally", id="words", compact=True)
        return self.laid_out(words, RowList(self._draw, id="hits"))

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
        """Search or open, once the typed text has been taken in."""
        self.action_enter()

    def action_enter(self) -> None:
        """Search for the typed text; if that was done, open the chosen hit."""
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
        """Search, and show the hits."""
        self._searched, self._rows = None, ()
        self.query_one(RowList).show(0, 0)
        self.say("searching")
        within = None if self._within is None else [self._within]
        answer = await self.tried(self.browser.store.search(words, sessions=within, limit=_LIMIT))
        if answer is None:
            return
        names = await names_of(self.browser.store.backend, [group.session for group in answer.sessions])
        self._rows = model.search_rows(answer, names)
        self._secrets = await self._secrets_of(answer)
        self._searched = words
        self.query_one(RowList).show(len(self._rows), 0)
        text = searched_text(answer)
        if not answer.sessions:
            text = f"nothing found; {text}"
            # A suggestion is a word of a text without what stood around it, which would tell that it is secret.
            if answer.suggestions and self.browser.shows_secrets:
                text = f"nothing found; did you mean: {', '.join(answer.suggestions)}"
        self.say(text)

    def _next_hit(self, at: int, step: int) -> int:
        return model.next_row(len(self._rows), lambda place: self._rows[place][1] is not None, at, step)

    def on_row_list_entered(self, _: RowList.Entered) -> None:
        """Open the hit that is clicked twice."""
        self.action_enter()

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)

    async def _secrets_of(self, answer: SearchAnswer) -> dict[str, tuple[str, ...]]:
        """Return the secrets of the texts that were found, by entry: of a piece alone nobody can tell all of them."""
        secrets: dict[str, tuple[str, ...]] = {}
        for hit in answer.hits:
            if hit.entry_id is not None and hit.entry_id not in secrets:
                entry = await self.tried(self.browser.store.get_entry(hit.entry_id))
                secrets[hit.entry_id] = () if entry is None else await asyncio.to_thread(self._secrets_in, entry)
        return secrets

    def _secrets_in(self, entry: Entry) -> tuple[str, ...]:
        text = "\n".join(string[:_SEARCHED] for string in model.strings_of(entry.data))
        return self.browser.secrets(text[:_SEARCHED])

    def _draw(self, at: int, _: int) -> Line:
        line, hit = self._rows[at]
        if hit is None and at > 0:
            hit = self._rows[at - 1][1]
        whole = "".join(text for text, _ in line)
        shown = self.browser.masked(whole)
        if not self.browser.shows_secrets and hit is not None:
            piece = shown.strip().strip("…")
            shown = shown.replace(piece, masking.without(piece, self._secrets.get(hit.entry_id or "", ())))
        # A secret may lie across what is marked in it.
        return line if shown == whole else ((shown, ""),)


# ---------------------------------------------------------------------------------------------------------------------
# What was before a compaction: the entries that its summary stands for, and what it no longer says.

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

    def __init__(self, opened: model.OpenedSession, compaction: Entry) -> None:
        super().__init__()
        self._opened = opened
        self._entries: Sequence[Entry] = [compaction]
        self._lost: list[str] = []

    def compose(self) -> ComposeResult:
        """Lay out the entries, the text and the keys."""
        return self.laid_out(Horizontal(RowList(self._draw, id="entries"), Reader(id="reader"), id="panes"))

    def on_mount(self) -> None:
        """Read the entries that the compaction stands for."""
        self.query_one(RowList).focus()
        self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Read the entries that the compaction stands for, and its losses."""
        compaction = self._entries[0]
        report = await self.tried(self._opened.session.compactions.loss_report(compaction.id, limit=_LISTED))
        if report is None:
            return
        entries = await self._opened.session.get_entries(report.entry_ids)
        self._entries = [compaction, *(entry for entry in entries if entry is not None)]
        masked = self.browser.masked
        self._lost = [f"- {kind.kind}: {masked(one_line(fact.text))}" for kind in report.kinds for fact in kind.lost]
        if left := sum(kind.left_out for kind in report.kinds):
            self._lost.append(f"({left:,} more are not listed; flue-py loss lists up to 1,000 of a kind)")
        lost = sum(kind.total - kind.covered for kind in report.kinds)
        self.head(f"before compaction {compaction.id}: {counted(len(report.entry_ids), 'entry', 'entries')}")
        self.say(
            f"{counted(lost, 'fact')} of {sum(kind.total for kind in report.kinds):,} no longer said"
            if lost
            else "nothing is lost"
        )
        rows = self.query_one(RowList)
        rows.show(len(self._entries), min(rows.at, len(self._entries) - 1))

    def redraw(self) -> None:
        """Read the losses anew, which are masked."""
        self.load()

    def on_row_list_reached(self, event: RowList.Reached) -> None:
        """Show the chosen entry; below the summary, the facts that it lost."""
        entry = self._entries[event.at]
        masked = self.browser.masked
        facts = model.facts(entry, self._opened.marks_of(entry), masked)
        parts = [Text(facts, style="dim"), *model.body(entry, masked)]
        if event.at == 0 and self._lost:
            parts += [Text("\nno longer said:", style="bold"), *map(Text, self._lost)]
        self.query_one(Reader).show(parts)

    def _draw(self, at: int, width: int) -> Line:
        entry = self._entries[at]
        marks = self._opened.marks_of(entry)
        return model.entry_row(
            entry, marks, self.browser.masked, width, depth=0, opens=False, is_folded=False, glyphs=self.browser.glyphs
        )


# ---------------------------------------------------------------------------------------------------------------------
# The keys that change a session: each does one thing, says what it did, and shows it.


class ChangingScreen(BrowserScreen[None]):
    """A screen that shows a session and can change it."""

    CHANGES: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit", tooltip="edit the prompt as a new branch"),
        Binding("m", "move", "Move", tooltip="move the leaf to this entry"),
        Binding("l", "label", "Label", tooltip="label this entry; empty clears"),
        Binding("p", "mark('pinned')", "Pin", show=False, tooltip="pin or unpin this entry"),
        Binding(
            "x",
            "mark('excluded')",
            "Exclude",
            show=False,
            tooltip="exclude this entry from the context, or include it again",
        ),
        Binding("f", "fork", "Fork", show=False, tooltip="fork: a new session that begins at this entry"),
        Binding("u", "undo", "Undo", tooltip="undo the last operation"),
        Binding("r", "undo(True)", "Redo", show=False, tooltip="redo what was undone last"),
        Binding("D", "delete", "Delete", show=False, tooltip="delete this session, after a question"),
    ]

    @property
    def opened(self) -> model.OpenedSession | None:
        """The session, once it was found."""
        raise NotImplementedError

    def chosen_entry(self) -> Entry | None:
        """Return the chosen entry; None where a fork, a task or nothing is chosen."""
        raise NotImplementedError

    async def take_changes(self) -> None:
        """Show entries that were written since the last call."""
        raise NotImplementedError

    def reveal(self, entry_id: str | None) -> None:
        """Go to an entry, and unfold the entry that hides it."""
        raise NotImplementedError

    @work
    async def action_edit(self) -> None:
        """Edit the chosen prompt, and append it as a new branch."""
        target = self._target()
        if target is None:
            return
        entry, opened = target
        if not model.is_prompt(entry):
            self.say("only what a user said can be edited")
            return
        text, failed = model.text_of(entry), ""
        if len(text) > model.MOST_CHARACTERS:
            self.say(f"{counted(len(text), 'character')} are too many to edit here; flue-py append takes them")
            return
        if not await self._may_show(text):
            return
        while True:
            new = await self.app.push_screen_wait(EditPrompt(text, failed=failed))
            if new is None:
                return
            try:
                branch = await model.branch_off(opened.store, opened.session, entry, new, by=BY)
            except FlueError as error:
                # What was typed is kept, whatever happened meanwhile.
                text, failed = new, model.in_words(error)
                await self.tried(self.take_changes())
                continue
            await self.tried(self.take_changes())
            self.reveal(branch)
            self.say("the edited prompt is the leaf of a new branch; u takes it back")
            return

    async def _may_show(self, text: str) -> bool:
        """Return whether a text may be shown as it is: it has no secret, or the answer is yes."""
        count = self.browser.mask(text).hidden
        if not count:
            return True
        question = f"This prompt has {counted(count, 'secret')}. Show and edit it?"
        agreed: bool = await self.app.push_screen_wait(Confirm(question))
        return agreed

    async def _do(self, work: Awaitable[object], message: str) -> None:
        """Do something to the session, show it, and say so; or say why not."""
        try:
            done = await work
        except FlueError as error:
            await self.tried(self.take_changes())
            self.say(model.in_words(error))
            return
        await self.tried(self.take_changes())
        self.say(message if done is not False else "nothing changed")

    def _session(self) -> Session | None:
        """Return the session, if it can be changed."""
        return self.opened.session if self.opened is not None and self.may_write() else None

    def _target(self) -> tuple[Entry, model.OpenedSession] | None:
        """Return the chosen entry and its session, if there is one and it can be changed."""
        entry, opened = self.chosen_entry(), self.opened
        return None if entry is None or opened is None or not self.may_write() else (entry, opened)

    @work
    async def action_move(self) -> None:
        """Move the leaf to the chosen entry."""
        entry, session = self.chosen_entry(), self._session()
        if entry is not None and session is not None:
            await self._do(session.move_leaf(to=entry.id, by=BY), "this is the leaf now; u takes it back")

    @work
    async def action_label(self) -> None:
        """Label the chosen entry."""
        target = self._target()
        if target is None:
            return
        entry, opened = target
        question = AskLine("Label of this entry (empty: none)", opened.labels.get(entry.id, ""))
        label = await self.app.push_screen_wait(question)
        if label is not None:
            text = label.strip() or None
            change = opened.session.marks.set_label(entry.id, text, by=BY)
            await self._do(change, "labelled" if text else "no label")

    @work
    async def action_mark(self, state: Literal["pinned", "excluded"]) -> None:
        """Pin the chosen entry, or exclude it from the context; if it is that already, take it back."""
        target = self._target()
        if target is None:
            return
        entry, opened = target
        marks = opened.session.marks
        if state == "pinned" and entry.id in opened.pinned:
            await self._do(marks.unpin(entry.id, by=BY), "unpinned")
        elif state == "pinned":
            await self._do(marks.pin(entry.id, by=BY), "pinned: every later compaction keeps it word for word")
        elif entry.id in opened.excluded:
            await self._do(marks.include(entry.id, by=BY), "included in the context again")
        else:
            await self._do(marks.exclude(entry.id, by=BY), "excluded from the context; x includes it again")

    @work
    async def action_fork(self) -> None:
        """Make a session that begins at the chosen entry, and go there."""
        entry, session = self.chosen_entry(), self._session()
        if entry is None or session is None:
            return
        title = await self.app.push_screen_wait(AskLine("Title of the fork (may be empty)"))
        if title is None:
            return
        forked = await self.tried(session.fork(at=entry.id, title=title.strip() or None))
        if forked is not None:
            self.browser.open_session(forked.id)

    @work
    async def action_undo(self, redo: bool = False) -> None:
        """Undo the last operation, or redo the last undo."""
        session = self._session()
        if session is not None:
            work = redo_last(session, by=BY) if redo else undo_last(session, by=BY)
            await self._do(model.or_false(work), "done again" if redo else "undone; r does it again")

    @work
    async def action_delete(self) -> None:
        """Delete this session, if the answer is yes."""
        if self.opened is not None and self.may_write() and await self.deleted(self.opened.session.id) is not None:
            self.browser.leave()


# ---------------------------------------------------------------------------------------------------------------------
# Two leaves of a session: what they share, and what only one of them has.


class CompareScreen(BrowserScreen[None]):
    """The difference of two leaves, line by line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "all", "All", tooltip="show every entry, or fold long stretches"),
        Binding("s", "secrets", "Secrets", tooltip="show or hide secrets"),
        *BrowserScreen.COMMON,
        Binding("escape,q", "leave", "Back", tooltip="go back"),
    ]

    def __init__(self, opened: model.OpenedSession, left: str, right: str) -> None:
        super().__init__()
        self._opened, self._left, self._right = opened, left, right
        self._diff: LeafDiff | None = None
        self._ancestor: Entry | None = None
        self._lines: Sequence[Line] = ()
        self._shows_all = False

    def compose(self) -> ComposeResult:
        """Lay out the lines and the keys."""
        return self.laid_out(RowList(self._draw, id="lines"))

    def on_mount(self) -> None:
        """Compare."""
        self.query_one(RowList).focus()
        self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Compare the leaves, and show it."""
        session = self._opened.session
        self._diff = await self.tried(session.branches.diff(leaf=self._left, other_leaf=self._right))
        if self._diff is None:
            return
        if self._diff.ancestor_id is not None:
            self._ancestor = await session.get_entry(self._diff.ancestor_id)
        self.head(f"{self.browser.masked(self._opened.name)}: two leaves")
        self.redraw()

    def on_resize(self) -> None:
        """Lay the lines out for another width."""
        self.redraw()

    def action_all(self) -> None:
        """Show every entry, or fold long stretches."""
        self._shows_all = not self._shows_all
        self.redraw()

    def redraw(self) -> None:
        """Lay the lines out: masked, and for the width."""
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


# ---------------------------------------------------------------------------------------------------------------------
# One session: its tree on the left, the chosen entry on the right, and the keys that change it.

_CHANGES = 1_000


class _Read(Frozen):
    """The text on the right."""

    entry_id: str
    marks: model.Marks
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
        Binding("v", "view", "View", tooltip=f"the next view: {', '.join(model.VIEWS)}"),
        *(
            Binding(str(n), f"view({n - 1})", name, show=False, tooltip=f"view: {name}")
            for n, name in enumerate(model.VIEWS, 1)
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
        Binding("i", "save", "Save", show=False, tooltip="save the pictures of this entry here, as files"),
        Binding("z", "wide", "Wide", show=False, tooltip="give the message the whole screen"),
        Binding("tab", "other", "Other side", show=False, tooltip="go to the other side"),
        *BrowserScreen.COMMON,
        Binding("escape,q", "leave", "Back", tooltip="go back"),
    ]

    def __init__(self, session_id: str, entry_id: str | None = None) -> None:
        super().__init__()
        self._session_id = session_id
        self._wanted = entry_id
        self._opened: model.OpenedSession | None = None
        self._tree = model.ShownTree()
        self._seen = 0
        self._is_shown_whole = False
        self._changing = asyncio.Lock()
        self._compared: str | None = None
        self._is_markdown = True
        self._is_whole_text = False
        self._read: _Read | None = None

    @property
    def opened(self) -> model.OpenedSession | None:
        """The session, once it was found."""
        return self._opened

    @property
    def is_whole(self) -> bool:
        """Whether all of the session was read, and is shown."""
        return self._opened is not None and self._opened.is_whole and self._is_shown_whole

    def compose(self) -> ComposeResult:
        """Lay out the head, the tree, the message and the keys."""
        return self.laid_out(Horizontal(RowList(self._draw, id="tree"), Reader(id="reader"), id="panes"))

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
        """Show the end of the session, then all of it, then new entries, of whichever process."""
        try:
            session = await self.browser.store.find_session(self._session_id)
            opened = self._opened = model.OpenedSession(self.browser.store, session)
            self._seen = session.revision
            await opened.load_end()
            begin = self._wanted or session.leaf_id
            self._show_rows(begin)
            is_there = begin is None or begin in self._tree.outline.place
            before = self._chosen_id()
            await opened.load_all()
            await self._rebuild(before, before if is_there else begin)
            self._is_shown_whole = True
            async with aclosing(self.browser.store.backend.notifications(session.ref)) as woken:
                async for _ in woken:
                    await self.take_changes()
        except SessionNotFound:
            self.say("the session was deleted; esc goes back")
        except FlueError as error:
            self.say(model.in_words(error))

    async def take_changes(self) -> None:
        """Show entries that were written since the last call, by whichever process."""
        opened = self._opened
        if opened is None:
            return
        async with self._changing:
            changes: list[Change] = []
            while page := await opened.session.changes(after=self._seen, limit=_CHANGES):
                changes += page
                self._seen = page[-1].revision
            if changes:
                before, was_at_leaf = self._chosen_id(), self._chosen() == self._tree.leaf_row
                await opened.catch_up(changes)
                await self._rebuild(before, opened.info.leaf_id if was_at_leaf else before)

    async def _rebuild(self, before: str | None, entry_id: str | None) -> None:
        """Work out the rows anew, and go to an entry; where another one than ``before`` was gone to meanwhile, stay."""
        opened = self._opened
        assert opened is not None
        await asyncio.to_thread(self._tree.flag, opened.outline, opened.marked)
        chosen = self._chosen_id()
        self._show_rows(entry_id if chosen == before else chosen)

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
        text = " · ".join(fact for fact in facts if fact)
        room = max(16, self.size.width - cells(text) - 3)
        self.head(f"{clip(self.browser.masked(opened.name), room, self.browser.glyphs.cut)} · {text}")

    # -- drawing -----------------------------------------------------------------------------------------------

    def _draw(self, at: int, width: int) -> Line:
        opened = self._opened
        assert opened is not None
        row, outline = self._tree.rows[at], self._tree.outline
        if isinstance(row, model.Begun):
            depth = outline.depths[outline.place[row.entry_id]]
            text = (
                (row.link.task_id if row.link else "") if row.info is None else row.info.shown_title or row.session_id
            )
            return model.begun_row(row, self.browser.masked(text), width, depth, self.browser.glyphs)
        entry = model.whole(outline.entries[row])
        is_folded = self._tree.is_folded(entry.id)
        marks = replace(opened.marks_of(entry), is_leaf=row == self._tree.leaf_row)
        return model.entry_row(
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
        """Show the chosen row."""
        self._read_chosen()

    def _read_chosen(self, *, keeps_place: bool = False) -> None:
        """Show the chosen entry, unless it is shown as it is already: to draw a long text takes time."""
        opened, row = self._opened, self._chosen()
        if opened is None:
            return
        if row is None or isinstance(row, model.Begun):
            self._read = None
            self.query_one(Reader).show([Text(self._about_begun(row), style="dim")])
            return
        entry = model.whole(self._tree.outline.entries[row])
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

    def _draw_entry(self, entry: Entry, marks: model.Marks, *, keeps_place: bool) -> None:
        hidden: list[int] = []

        def masked(text: str) -> str:
            text_masked = self.browser.mask(text)
            hidden.append(text_masked.hidden)
            return text_masked.text

        facts = model.facts(entry, marks, masked)
        parts = tuple(model.body(entry, masked, markdown=self._is_markdown, whole=self._is_whole_text))
        if sum(hidden):
            facts += f"\n{counted(sum(hidden), 'secret')} hidden; s shows them"
        self.query_one(Reader).show((Text(facts, style="dim"), *parts), keeps_place=keeps_place)

    def _about_begun(self, row: model.Begun | None) -> str:
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
        """Read the costs of the entries, and show them."""
        if self._opened is not None:
            await self.tried(self._opened.load_costs())
            self._read_chosen(keeps_place=True)

    # -- where one is ------------------------------------------------------------------------------------------

    def _chosen(self) -> model.Row | None:
        return self._tree.row(self.query_one(RowList).at)

    def chosen_entry(self) -> Entry | None:
        """Return the chosen entry; None where a fork, a task or nothing is chosen."""
        row = self._chosen()
        if self._opened is None or not isinstance(row, int):
            return None
        return model.whole(self._tree.outline.entries[row])

    def _chosen_id(self) -> str | None:
        row = self._chosen()
        if isinstance(row, model.Begun):
            return row.entry_id
        entry = self.chosen_entry()
        return None if entry is None else entry.id

    def action_view(self, number: int | None = None) -> None:
        """Show the next view, or one of them."""
        self._tree.turn_to(None if number is None else model.VIEWS[number])
        if self._opened is not None:
            self._show_rows(self._chosen_id())

    def action_fold(self) -> None:
        """Fold the entries below the chosen entry; if there is nothing to fold, go to its parent."""
        row, tree = self._chosen(), self._tree
        if isinstance(row, model.Begun):
            self._stand_on(row.entry_id)
        elif row is not None:
            entries = tree.outline.entries
            if tree.fold(row):
                self._show_rows(entries[row].id)
            elif (parent := tree.outline.parent_of(row)) is not None:
                self._stand_on(entries[parent].id)

    def action_unfold(self) -> None:
        """Unfold the entries below the chosen entry."""
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
        """Go to an entry, and unfold the entry that hides it."""
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

    @work
    async def action_save(self) -> None:
        """Save the pictures of the chosen entry in the folder that the browser was started in."""
        entry = self.chosen_entry()
        files = None if entry is None else await self.tried(asyncio.to_thread(model.save_pictures, entry, Path.cwd()))
        if files is not None:
            names = ", ".join(file.name for file in files)
            self.say(f"saved {names}" if files else "there is no picture in this entry: PNG, JPEG, GIF or WebP")

    def redraw(self) -> None:
        """Draw the tree, the message and the head anew."""
        super().redraw()
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
        """Apply Enter to the chosen row."""
        self.action_enter()

    def action_enter(self) -> None:
        """Edit a prompt, go to a session, show the entries that a compaction replaced; else go to the text."""
        row, entry = self._chosen(), self.chosen_entry()
        if isinstance(row, model.Begun):
            if row.info is None:
                self.say("this session was deleted")
            else:
                self.browser.open_session(row.session_id)
        elif entry is None:
            return
        elif model.is_prompt(entry):
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
            parents = await self.tried(opened.session.tasks.parents()) or []
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
            self.browser.find("", within=self._opened.session, on_result=self._found)

    def _found(self, entry_id: str | None) -> None:
        if entry_id is not None and self._opened is not None:
            if not self._tree.has_entry(entry_id):
                self._tree.turn_to("all")
                self._show_rows(entry_id)
            self.reveal(entry_id)

    def action_before(self) -> None:
        """Show the entries before the chosen compaction."""
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


# ---------------------------------------------------------------------------------------------------------------------
# The first screen: all sessions, newest first, filtered by what is typed.

_PAGE = 1_000
_FIRST_PAGE = 100
_PREPARED = 5_000
"""Of how many sessions secrets are looked for before somebody filters: half a second of work, beside the screen."""


class SessionsScreen(BrowserScreen[None]):
    """The list of sessions."""

    DEFAULT_CSS = """
    SessionsScreen #columns { height: 1; color: $text-muted; background: $surface; }
    SessionsScreen #sessions { scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", tooltip="open the session"),
        *BrowserScreen.BESIDE_TYPING,
        Binding("ctrl+f", "find", "Find text", tooltip="find the words that are typed in what was said", priority=True),
        Binding("ctrl+t", "tasks", "Tasks", tooltip="show or hide task sessions and those of a harness", priority=True),
        Binding("ctrl+d", "delete", "Delete", tooltip="delete the session, after a question", priority=True),
        Binding("escape", "leave", "Clear/quit", tooltip="clear what is typed, or quit", priority=True),
        Binding("f5", "again", "Reload", show=False, tooltip="read the list again"),
        Binding("f1", "keys", "Keys", tooltip="show these keys"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sessions: Sequence[ListedSession] = ()
        self._rows: Sequence[ListedSession] = ()
        self._columns: Mapping[str, int] = {}
        self._shows_tasks = False
        self._is_whole = False
        self._damaged: list[str] = []

    def compose(self) -> ComposeResult:
        """Lay out the head, the filter, the list and the keys."""
        words = Input(placeholder="type to filter: title, program, folder, model, id", id="filter", compact=True)
        return self.laid_out(words, Static(id="columns", markup=False), RowList(self._draw, id="sessions"))

    def on_mount(self) -> None:
        """Read the sessions."""
        self.query_one(RowList).can_focus = False
        self.query_one(Input).focus()
        self.load()

    def on_screen_resume(self) -> None:
        """Read the sessions again when another screen is left."""
        if self._is_whole:
            self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Read all sessions, and show the first of them before."""
        rows: list[ListedSession] = []
        damaged: list[str] = []
        cursor = None
        while True:
            limit = _PAGE if rows or self._is_whole else _FIRST_PAGE
            page = await self.tried(self._page(limit, cursor))
            if page is None:
                return
            listed, read = page
            rows += listed
            damaged += [session_id for session_id in read.damaged if session_id not in damaged]
            cursor = read.next_cursor
            is_whole = cursor is None
            if is_whole or not self._is_whole:
                self._damaged = damaged[:]
                self._sessions, self._columns, self._is_whole = rows[:], model.columns_of(rows), is_whole
                self.redraw()
            if is_whole:
                # The first letter that is typed finds the secrets of the names known.
                await asyncio.to_thread(model.fitting, rows[:_PREPARED], "-", self.browser.masked)
                return

    async def _page(self, limit: int, cursor: str | None) -> tuple[Sequence[ListedSession], SessionPage]:
        store = self.browser.store
        page = await store.list_sessions(limit=limit, cursor=cursor)
        return await listed_rows(store, page.sessions), page

    def on_input_changed(self, _: Input.Changed) -> None:
        """Filter by the typed text."""
        self.redraw(from_top=True)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Open the chosen session, once the typed text has been taken in."""
        self.action_open()

    def action_open(self) -> None:
        """Open the chosen session."""
        info = self._chosen()
        if info is not None:
            self.browser.open_session(info.id)

    def on_row_list_entered(self, _: RowList.Entered) -> None:
        """Open the session that is clicked twice."""
        self.action_open()

    def action_find(self) -> None:
        """Search the texts for the typed words."""
        self._once_typed(lambda: self.browser.find(self.query_one(Input).value))

    def _once_typed(self, then: Callable[[], object]) -> None:
        """Do something once the filter has the typed text."""
        self.query_one(Input).call_later(then)

    def action_tasks(self) -> None:
        """Show or hide task sessions and those of pydantic-ai's harness."""
        self._shows_tasks = not self._shows_tasks
        self.redraw()

    def action_again(self) -> None:
        """Read the list again."""
        self.load()

    def action_leave(self) -> None:
        """Clear the filter; if it is clear, quit."""
        self._once_typed(self._clear_or_quit)

    def _clear_or_quit(self) -> None:
        field = self.query_one(Input)
        if field.value:
            field.value = ""
        else:
            self.app.exit()

    def action_delete(self) -> None:
        """Delete the chosen session, if the answer is yes."""
        if self.may_write():
            self._once_typed(self.delete_chosen)

    @work
    async def delete_chosen(self) -> None:
        """Ask whether to delete the chosen session."""
        info = self._chosen()
        if info is None:
            return
        deletion = await self.deleted(info.id)
        if deletion is not None:
            self.say(f"deleted {counted(len(deletion.session_ids), 'session')}")
        self.load()

    def _chosen(self) -> SessionInfo | None:
        rows = self.query_one(RowList)
        row = self._rows[rows.at] if rows.at < len(self._rows) else None
        return None if row is None else row.info

    def redraw(self, *, from_top: bool = False) -> None:
        """Show the sessions that fit the typed text."""
        chosen = None if from_top else self._chosen()
        words = self.query_one(Input).value
        listed = [row for row in self._sessions if self._shows_tasks or not row.info.is_aside]
        self._rows = model.fitting(listed, words, self.browser.masked)
        ids = [] if chosen is None else [row.info.id for row in self._rows]
        self.query_one(RowList).show(len(self._rows), ids.index(chosen.id) if chosen and chosen.id in ids else 0)
        self._head_columns()
        hidden = len(self._sessions) - len(listed)
        text = f"flue-py · {counted(len(self._rows), 'session')}"
        if words:
            text += f" of {len(listed):,}"
        if hidden:
            text += f" · {hidden:,} more hidden"
        if self._damaged:
            text += f" · {len(self._damaged)} damaged: {', '.join(self._damaged)}"
        self.head(text + ("" if self._is_whole else " · reading") + f" · {self.browser.place}")

    def on_resize(self) -> None:
        """Put the names of the columns where the columns are."""
        self._head_columns()

    def _head_columns(self) -> None:
        heading = model.list_heading(self._columns, self.size.width - len(MARK) - 1, self.browser.glyphs)
        self.query_one("#columns", Static).update(Text(" " * len(MARK) + heading, no_wrap=True))

    def _draw(self, at: int, width: int) -> Line:
        return model.list_line(self._rows[at], self.browser.masked, self._columns, width, self.browser.glyphs)


# ---------------------------------------------------------------------------------------------------------------------
# The browser: which screen is shown, and whether secrets are.


class Browser(App[None]):
    """The browser. ``session_id`` and ``entry_id`` say where it begins; ``place`` is the name of the database."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q,ctrl+c", "quit", "Quit", show=False, priority=True)]

    def __init__(
        self,
        store: Store,
        place: str,
        *,
        session_id: str | None = None,
        entry_id: str | None = None,
        read_only: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        super().__init__()
        self.store = store
        self.place = place
        self.read_only = read_only
        self.glyphs = glyphs
        self._mask = masking.Mask()
        self.shows_secrets = False
        """Whether secrets were asked for."""
        self._begin = (session_id, entry_id)

    def on_mount(self) -> None:
        """Show the list of sessions, and the session that was named."""
        self.push_screen(SessionsScreen())
        session_id, entry_id = self._begin
        if session_id is not None:
            self.open_session(session_id, entry_id)

    def mask(self, text: str) -> masking.Masked:
        """Return a text without its secrets, and how many are hidden: none once they were asked for."""
        return masking.Masked(text, 0) if self.shows_secrets else self._mask.masked(text)

    def secrets(self, text: str) -> tuple[str, ...]:
        """Return the secrets in a text."""
        return self._mask.secrets(text)

    def masked(self, text: str) -> str:
        """Return a text without its secrets, unless they were asked for."""
        return self.mask(text).text

    def toggle_secrets(self) -> bool:
        """Show secrets, or hide them again; return whether they are shown now."""
        self.shows_secrets = not self.shows_secrets
        return self.shows_secrets

    def open_session(self, session_id: str, entry_id: str | None = None) -> None:
        """Show a session: at an entry, or at its leaf."""
        self.push_screen(SessionScreen(session_id, entry_id))

    def find(
        self, words: str, *, within: Session | None = None, on_result: Callable[[str | None], None] | None = None
    ) -> None:
        """Show a search in all sessions, or in one: ``on_result`` then gets the id of the chosen entry, or None."""
        self.push_screen(FindScreen(words, within=within), on_result)

    def leave(self) -> None:
        """Go back to the screen before."""
        self.pop_screen()

    def pop_screen(self) -> AwaitComplete:
        """Go back to the screen before, and end the work of the one that is left."""
        # Textual ends it once the widgets of the screen are gone, and until then such work would look for them.
        left, own = self.screen, active_worker.get(None)
        for worker in self.workers:
            if worker.node is left and worker is not own:
                worker.cancel()
        return super().pop_screen()
