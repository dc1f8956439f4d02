"""The log of a session in hand, and going back to any line of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flue_py.core.log import LogLine, Note
from flue_py.sessions.arguments import checked_flag, checked_limit, checked_revision
from flue_py.sessions.reading import SessionView


class LoggedSession(SessionView):
    """What a `Session` tells of its own past."""

    __slots__ = ()

    async def log(self, *, limit: int = 50, before: int | None = None) -> list[LogLine]:
        """Return what the last ``limit`` (1 to 1000) revisions did, newest first; with ``before``, those below it.

        One line for each revision: appends, moves, retractions, imports, compactions, exclusions, and what was changed
        of title, metadata, completion and marks, with who did it and why. A fork's log begins at its creation. Leaves
        the handle alone. O(limit), whatever the history. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        if before is not None:
            checked_revision(before, "before")
        async with self._turn:
            return await self._backend.read_log(self.ref, before=before, limit=limit)

    async def go_back(
        self, *, to: int, before: bool = False, by: str | None = None, why: str | None = None
    ) -> LogLine | None:
        """Bring back what line ``to`` of the log says, and return the new line; None where it is so already.

        Of a line that set the title, the metadata, the completion, a label or a pin: that value. Of every other line:
        the leaf, as it was after that revision; 0 is the session as it was created. With ``before``, both as they were
        before the line, which takes back what it did. Nothing else comes along: a move leaves titles and marks, an edit
        leaves the leaf. A move can be undone; an edit is a line of the log that can be gone back to. Entries on the
        way to the leaf that were retracted since come back, and `undo` retracts them again. Raises `InvalidArgument`
        for a revision that was not yet, `EntryNotFound` where what the line names has been deleted, `LeafConflict`.
        O(1), and with retracted entries, O(these).
        """
        checked_revision(to, "to")
        checked_flag(before, "before")
        note = Note(by, why)
        return await self._commit(partial(self._go_back_now, to, before and to > 0, note), self._note_line)

    async def _go_back_now(self, to: int, before: bool, note: Note) -> LogLine | None:
        return await self._backend.go_back(self.ref, to, before=before, expected=self._leaf_id, note=note)

    def _note_line(self, line: LogLine | None) -> None:
        """Take over what the new line says: the leaf, or what was edited of the session's row."""
        if line is None:
            return
        if line.moved_leaf:
            self._note(line.to_id, line.revision)
        for edit in line.edits:
            if edit.what == "title":
                self._info = replace(self._info, title=edit.after)
            elif edit.what == "auto_title":
                self._info = replace(self._info, auto_title=edit.after)
            elif edit.what == "metadata":
                self._info = replace(self._info, metadata_text=edit.after or "{}")
            elif edit.what == "completed":
                self._info = replace(self._info, completed_us=None if edit.after is None else int(edit.after))
