"""The keys that change a session: each does one thing, says what it did, and shows it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from flue_py.core.entries import Entry
from flue_py.errors import FlueError
from flue_py.render.lines import counted
from flue_py.runtime.undoing import redo_last, undo_last
from flue_py.sessions.session import Session
from flue_py.tui import editing
from flue_py.tui.deleting import plan_deletion
from flue_py.tui.opened import OpenedSession
from flue_py.tui.screens.asking import AskLine, Confirm, EditPrompt
from flue_py.tui.screens.base import BY, BrowserScreen, in_words


class ChangingScreen(BrowserScreen[None]):
    """A screen that shows a session and can change it."""

    CHANGES: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit", tooltip="edit the prompt as a new branch"),
        Binding("m", "move", "Move", tooltip="move the leaf to this entry"),
        Binding("l", "label", "Label", tooltip="label this entry; empty clears"),
        Binding("p", "pin", "Pin", show=False, tooltip="pin or unpin this entry"),
        Binding(
            "x", "exclude", "Exclude", show=False, tooltip="exclude this entry from the context, or include it again"
        ),
        Binding("f", "fork", "Fork", show=False, tooltip="fork: a new session that begins at this entry"),
        Binding("u", "undo", "Undo", tooltip="undo the last operation"),
        Binding("r", "redo", "Redo", show=False, tooltip="redo what was undone last"),
        Binding("D", "delete", "Delete", show=False, tooltip="delete this session, after a question"),
    ]

    @property
    def opened(self) -> OpenedSession | None:
        """The session, once it was found."""
        raise NotImplementedError

    def chosen_entry(self) -> Entry | None:
        """Return the chosen entry; None where a fork, a task or nothing is chosen."""
        raise NotImplementedError

    async def take_changes(self) -> None:
        """Show what was written since this was last done."""
        raise NotImplementedError

    def reveal(self, entry_id: str | None) -> None:
        """Go to an entry, and unfold what hides it."""
        raise NotImplementedError

    @work
    async def action_edit(self) -> None:
        """Edit the chosen prompt, and append it as a new branch."""
        entry, opened = self.chosen_entry(), self.opened
        if entry is None or opened is None or not self.may_write():
            return
        if not editing.is_prompt(entry):
            self.say("only what a user said can be edited")
            return
        text, failed = editing.text_of(entry), ""
        if len(text) > editing.MOST_CHARACTERS:
            self.say(f"{counted(len(text), 'character')} are too many to edit here; flue-py append takes them")
            return
        if not await self._may_show(text):
            return
        while True:
            new = await self.app.push_screen_wait(EditPrompt(text, failed=failed))
            if new is None:
                return
            try:
                made = await editing.branch_off(opened.store, opened.session, entry, new, by=BY)
            except FlueError as error:
                # What was typed is kept, whatever happened meanwhile.
                text, failed = new, in_words(error)
                await self.tried(self.take_changes())
                continue
            await self.tried(self.take_changes())
            self.reveal(made)
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

    async def _do(self, work: Awaitable[object], said: str) -> None:
        """Do something to the session, show it, and say so; or say why not."""
        try:
            done = await work
        except FlueError as error:
            await self.tried(self.take_changes())
            self.say(in_words(error))
            return
        await self.tried(self.take_changes())
        self.say(said if done is not False else "nothing changed")

    def _session(self) -> Session | None:
        """Return the session, if it can be changed."""
        return self.opened.session if self.opened is not None and self.may_write() else None

    @work
    async def action_move(self) -> None:
        """Move the leaf to the chosen entry."""
        entry, session = self.chosen_entry(), self._session()
        if entry is not None and session is not None:
            await self._do(session.move_leaf(to=entry.id, by=BY), "this is the leaf now; u takes it back")

    @work
    async def action_label(self) -> None:
        """Label the chosen entry."""
        entry, opened = self.chosen_entry(), self.opened
        if entry is None or opened is None or not self.may_write():
            return
        label = await self.app.push_screen_wait(
            AskLine("Label of this entry (empty: none)", opened.labels.get(entry.id, ""))
        )
        if label is not None:
            await self._do(
                opened.session.set_label(entry.id, label.strip() or None, by=BY),
                "labelled" if label.strip() else "no label",
            )

    @work
    async def action_pin(self) -> None:
        """Pin the chosen entry, or unpin it."""
        entry, opened = self.chosen_entry(), self.opened
        if entry is not None and opened is not None and self.may_write():
            if entry.id in opened.pinned:
                await self._do(opened.session.unpin(entry.id, by=BY), "unpinned")
            else:
                await self._do(
                    opened.session.pin(entry.id, by=BY), "pinned: every later compaction keeps it word for word"
                )

    @work
    async def action_exclude(self) -> None:
        """Exclude the chosen entry from the context, or include it again."""
        entry, opened = self.chosen_entry(), self.opened
        if entry is not None and opened is not None and self.may_write():
            if entry.id in opened.excluded:
                await self._do(opened.session.include(entry.id, by=BY), "included in the context again")
            else:
                await self._do(
                    opened.session.exclude(entry.id, by=BY), "excluded from the context; x includes it again"
                )

    @work
    async def action_fork(self) -> None:
        """Make a session that begins at the chosen entry, and go there."""
        entry, session = self.chosen_entry(), self._session()
        if entry is None or session is None:
            return
        title = await self.app.push_screen_wait(AskLine("Title of the fork (may be empty)"))
        if title is None:
            return
        made = await self.tried(session.fork(at=entry.id, title=title.strip() or None))
        if made is not None:
            self.browser.open_session(made.id)

    @work
    async def action_undo(self) -> None:
        """Undo the last operation."""
        session = self._session()
        if session is not None:
            await self._do(_or_false(undo_last(session, by=BY)), "undone; r does it again")

    @work
    async def action_redo(self) -> None:
        """Redo what was undone last."""
        session = self._session()
        if session is not None:
            await self._do(_or_false(redo_last(session, by=BY)), "done again")

    @work
    async def action_delete(self) -> None:
        """Delete this session, if the answer is yes."""
        opened = self.opened
        if not self.may_write():
            return
        planned = None if opened is None else await self.tried(plan_deletion(opened.store, opened.session.id))
        if planned is None:
            return
        agreed = await self.app.push_screen_wait(Confirm(self.browser.masked(planned.question), planned.facts))
        if agreed and await self.tried(planned.go()) is not None:
            self.browser.leave()


async def _or_false(work: Awaitable[object | None]) -> object:
    """Return what work returns, and False in place of None: there was nothing to do."""
    done = await work
    return False if done is None else done
