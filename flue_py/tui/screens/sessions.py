"""The first screen: all sessions, grouped by project, filtered by what is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from flue_py.core.sessions import SessionInfo
from flue_py.render.entries import Cost, cost_text
from flue_py.render.lines import Line, cells, clip, counted, one_line, padded, short_count
from flue_py.render.views import minute, spent
from flue_py.tui.deleting import Planned, plan_deletion
from flue_py.tui.opened import named
from flue_py.tui.projects import Listed, Project, grouped, next_session
from flue_py.tui.screens.asking import Confirm
from flue_py.tui.screens.base import BrowserScreen
from flue_py.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.app import ComposeResult

_PAGE = 1_000
_FIRST_PAGE = 100


class SessionsScreen(BrowserScreen[None]):
    """The list of sessions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", tooltip="open the session"),
        Binding("up", "list('step', -1)", "Up", show=False, tooltip="the session before"),
        Binding("down", "list('step', 1)", "Down", show=False, tooltip="the next session"),
        Binding("pageup", "list('page', -1)", "Page up", show=False),
        Binding("pagedown", "list('page', 1)", "Page down", show=False),
        Binding("ctrl+f", "find", "Find text", tooltip="find the words that are typed in what was said", priority=True),
        Binding("ctrl+t", "tasks", "Tasks", tooltip="show or hide task sessions", priority=True),
        Binding("ctrl+d", "delete", "Delete", tooltip="delete the session, after a question", priority=True),
        Binding("ctrl+r", "secrets", "Secrets", show=False, tooltip="show or hide secrets", priority=True),
        Binding("escape", "leave", "Clear/quit", tooltip="clear what is typed, or quit", priority=True),
        Binding("f5", "again", "Reload", show=False, tooltip="read the list again"),
        Binding("f1", "keys", "Keys", tooltip="show these keys"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sessions: list[SessionInfo] = []
        self._names: Mapping[str, str] = {}
        self._rows: Sequence[Listed] = []
        self._shows_tasks = False
        self._is_whole = False

    def compose(self) -> ComposeResult:
        """Lay out the head, the filter, the list and the keys."""
        yield Static(id="title", markup=False)
        yield Input(placeholder="type to filter: title, folder, scope, id", id="filter", compact=True)
        yield RowList(self._draw, id="sessions")
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Read the sessions."""
        rows = self.query_one(RowList)
        rows.pass_over(lambda at, step: next_session(self._rows, at, step))
        rows.can_focus = False
        self.query_one(Input).focus()
        self.load()

    def on_screen_resume(self) -> None:
        """Read the sessions again when another screen is left."""
        if self._is_whole:
            self.load()

    @work(exclusive=True, group="load")
    async def load(self) -> None:
        """Read all sessions, and show the first of them before."""
        found: list[SessionInfo] = []
        names: dict[str, str] = {}
        cursor = None
        while True:
            limit = _PAGE if found or self._is_whole else _FIRST_PAGE
            page = await self.tried(self.browser.store.list_sessions(limit=limit, cursor=cursor))
            if page is None:
                return
            found += page.sessions
            names |= await named(self.browser.store, page.sessions)
            cursor = page.next_cursor
            is_whole = cursor is None
            if is_whole or not self._is_whole:
                self._sessions, self._names = list(found), dict(names)
                self._show(is_whole=is_whole)
            if is_whole:
                self._is_whole = True
                return

    def on_input_changed(self, _: Input.Changed) -> None:
        """Filter by what is typed."""
        self._show(is_whole=self._is_whole, from_top=True)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Open the chosen session, once what was typed before has been taken in."""
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
        """Look for the words that are typed in what was said."""
        self._once_typed(lambda: self.browser.find(self.query_one(Input).value))

    def _once_typed(self, then: Callable[[], object]) -> None:
        """Do something once the filter has what was typed before."""
        self.query_one(Input).call_later(then)

    def action_tasks(self) -> None:
        """Show or hide task sessions."""
        self._shows_tasks = not self._shows_tasks
        self._show(is_whole=self._is_whole)

    def action_again(self) -> None:
        """Read the list again."""
        self.load()

    def action_secrets(self) -> None:
        """Show or hide secrets."""
        self.browser.toggle_secrets()
        self._show(is_whole=self._is_whole)

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
        planned = None if info is None else await self.tried(plan_deletion(self.browser.store, info.id))
        if planned is not None:
            await self._delete(planned)

    async def _delete(self, planned: Planned) -> None:
        if await self.app.push_screen_wait(Confirm(self.browser.masked(planned.question), planned.facts)):
            gone = await self.tried(planned.go())
            if gone is not None:
                self.say(f"deleted {counted(len(gone.session_ids), 'session')}")
            self.load()

    def _chosen(self) -> SessionInfo | None:
        rows = self.query_one(RowList)
        row = self._rows[rows.at] if rows.at < len(self._rows) else None
        return row if isinstance(row, SessionInfo) else None

    def _show(self, *, is_whole: bool, from_top: bool = False) -> None:
        chosen = self._chosen()
        words = self.query_one(Input).value
        listed = [info for info in self._sessions if self._shows_tasks or info.kind != "task"]
        self._rows = grouped(listed, words, lambda info: self.browser.masked(self._names.get(info.id, "")))
        at = 0
        if chosen is not None and not from_top:
            ids = (
                place for place, row in enumerate(self._rows) if isinstance(row, SessionInfo) and row.id == chosen.id
            )
            at = next(ids, 0)
        self.query_one(RowList).show(len(self._rows), at)
        hidden = sum(info.kind == "task" for info in self._sessions) if not self._shows_tasks else 0
        shown = sum(isinstance(row, SessionInfo) for row in self._rows)
        told = f"flue-py · {counted(shown, 'session')}"
        if words:
            told += f" of {len(listed):,}"
        if hidden:
            told += f" · {counted(hidden, 'task')} hidden"
        self.head(told + ("" if is_whole else " · reading") + f" · {self.browser.place}")

    def _draw(self, at: int, width: int) -> Line:
        row = self._rows[at]
        if isinstance(row, Project):
            return (
                (clip(self.browser.masked(row.folder), width - 8, self.browser.glyphs.cut), "bold cyan"),
                (f" ({row.sessions:,})", "dim"),
            )
        name = self.browser.masked(self._names.get(row.id, ""))
        sign = {"task": f"{self.browser.glyphs.fork} task ", "fork": f"{self.browser.glyphs.fork} fork "}.get(
            row.kind, ""
        )
        amount = spent(row, f"${cost_text(Cost(row.spent_picodollars))}")
        numbers = f" {padded(short_count(row.message_count), 5, right=True)} {padded(amount, 9, right=True)}"
        numbers += f" {minute(row.active_at)[2:]}"
        room = max(8, width - 2 - cells(sign) - cells(numbers))
        shown = padded(clip(one_line(name), room, self.browser.glyphs.cut), room)
        return (("  ", ""), (sign, "magenta"), (shown, "dim" if row.completed_us is not None else ""), (numbers, "dim"))
