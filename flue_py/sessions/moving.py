"""Moving the leaf of a session, and the log of what was done."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from flue_py.core.log import LogLine, Note
from flue_py.core.sessions import NOTHING_SEEN, STORED, LeafChoice, Moved, Seen, Stored, check_name
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.sessions.arguments import (
    checked_flag,
    checked_id,
    checked_leaf,
    checked_limit,
    checked_place,
    checked_revision,
    checked_seen,
)
from flue_py.sessions.handle import Handle


class Moving(Handle):
    """How a `Session` goes back and forth."""

    __slots__ = ()

    async def move_leaf(
        self,
        to: str | None,
        *,
        by: str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Moved:
        """Set the leaf to any entry the session sees, or to None: before the first entry.

        ``by`` and ``why`` say who did it and why, for the `log`. Raises `LeafConflict`, `EntryNotFound`,
        `IdempotencyConflict`. O(1).
        """
        checked_place(to, "to")
        note = Note(by, why)
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._commit(
            lambda: self._backend.move(
                self._ref, to, expected=self._expected(seen), note=note, idempotency_key=idempotency_key
            ),
            self._note_move,
        )

    async def rewind(
        self,
        *,
        to: LeafChoice = STORED,
        turns: int | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Moved | None:
        """Go back on the active path, and return the move; None if there is nothing to go back over.

        ``to`` names the entry that becomes the leaf (None: before the first). ``turns`` counts the turns of the path,
        as `turns` does: n keeps turns 1 to n, -n drops the last n, 0 drops all; what is out of range is clamped.
        A turn ends where the next user message begins. Nothing is deleted, and `undo` takes it back.
        Raises `InvalidArgument` for anything but exactly one of the two, and where ``to`` is not on the path;
        `EntryNotFound`, `LeafConflict`. O(1) with ``to``; with ``turns`` it reads the path's user messages.
        """
        check_rewind(to, turns)
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._commit(partial(self._rewind_now, to, turns, seen, Note(by, why)), self._note_move)

    async def _rewind_now(self, to: LeafChoice, turns: int | None, seen: Seen, note: Note) -> Moved | None:
        await self._compare(seen)
        leaf = self._built_on(seen)
        target = await self._rewind_target(to, turns, leaf)
        if target == leaf:
            return None
        return await self._backend.move(self._ref, target, expected=self._expected(seen), reason="rewind", note=note)

    async def _rewind_target(self, to: LeafChoice, turns: int | None, leaf: str | None) -> str | None:
        """Return the leaf that `rewind` goes to. Raises `InvalidArgument` where ``to`` is not on the path."""
        if turns is not None:
            started = await self._backend.read_turns(self._ref, leaf=leaf)
            kept = max(0, min(turns if turns >= 0 else len(started) + turns, len(started)))
            return started[kept].parent_id if kept < len(started) else leaf
        target = cast("str | None", to)
        await self._check_on_path(target, leaf)
        return target

    async def _check_on_path(self, entry_id: str | None, leaf: str | None) -> None:
        if entry_id is None or entry_id == leaf:
            return
        if leaf is None:
            if await self._backend.get_entry(self._ref, entry_id) is None:
                raise EntryNotFound(self.id, entry_id)
        elif await self._backend.is_ancestor(self._ref, entry_id, leaf):
            return
        raise InvalidArgument(f"to: entry {shown(entry_id)} is not on the path to {leaf!r}; move_leaf() goes anywhere")

    async def undo(
        self,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Moved | None:
        """Return the leaf to where it was before the last operation not yet undone; None if there is none.

        Operations are appends (a batch is one), moves, retractions, imports and going back, of this session, by
        any handle. Nothing is deleted. Raises `LeafConflict`, and `EntryNotFound` if the entry to return to
        has been deleted. O(1).
        """
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._commit(
            lambda: self._backend.undo(self._ref, expected=self._expected(seen), note=note), self._note_move
        )

    async def redo(
        self,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Moved | None:
        """Do again what was undone last; None if nothing was, or a new operation came since. O(1)."""
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._commit(
            lambda: self._backend.redo(self._ref, expected=self._expected(seen), note=note), self._note_move
        )

    async def remove_leaf_message(
        self,
        entry_id: str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> bool:
        """Retract a failed leaf: it leaves every view of this session, and the leaf steps back.

        True only where the entry is the session's leaf, a message, and childless; otherwise nothing changes.
        The row, its cost and the move stay for the log and the ledger; `undo` brings it back. Where another
        session sees the entry, it stays visible there.
        """
        checked_id(entry_id, "entry_id")
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        retract = partial(self._backend.retract, self._ref, entry_id, expected=seen, note=note)
        moved = await self._commit(retract, self._note_move)
        return moved is not None

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
            return await self._backend.read_log(self._ref, before=before, limit=limit)

    async def go_back(
        self,
        *,
        to: int,
        before: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> LogLine | None:
        """Bring back what line ``to`` of the log says, and return the new line; None if it is so already.

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
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._commit(partial(self._go_back_now, to, before and to > 0, seen, note), self._note_line)

    async def _go_back_now(self, to: int, before: bool, seen: Seen, note: Note) -> LogLine | None:
        # Left to the handle, the leaf is compared only where it is moved.
        expected = self._leaf_id if seen == NOTHING_SEEN else Seen(self._built_on(seen), seen.revision)
        return await self._backend.go_back(self._ref, to, before=before, expected=expected, note=note)

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


def check_rewind(to: LeafChoice, turns: int | None) -> None:
    """Check where to rewind to: either an entry or a number of turns. Raises `InvalidArgument`."""
    if isinstance(to, Stored) == (turns is None):
        raise InvalidArgument("rewind takes either to= or turns=")
    checked_leaf(to, "to")
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int)):
        raise InvalidArgument(f"turns: {shown(turns)} is not a whole number of turns")
