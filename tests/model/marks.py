"""Marks, edits and the log of the model, and how a change of a session is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pydantic_core
from msgspec.structs import replace

from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.sessions import (
    NO_NOTE,
    STORED,
    Change,
    Edit,
    Expected,
    LeafChoice,
    LogLine,
    MoveReason,
    Note,
    Seen,
    Stored,
    check_entry_label,
    restorable,
    row_value,
)
from flue_py.errors import EntryNotFound, InvalidArgument
from tests.model.ledger import ModelLedger
from tests.model.pins import group_of, pins_in_effect
from tests.model.rows import MoveNote, Row, Session


class ModelMarks(ModelLedger):
    """What `Backend` says of marks and of going back."""

    async def set_label(
        self,
        session_id: str,
        entry_id: str,
        label: str | None,
        *,
        expected: Expected = STORED,
        note: Note = NO_NOTE,
    ) -> None:
        session = self._session(session_id)
        session.check_seen(expected)
        check_entry_label(label)
        session.check_sees(entry_id)
        edit = Edit("label", entry_id, session.seen("label").get(entry_id), label or None)
        if edit.before != edit.after:
            self._edit(session, [edit], note)
            self._mark(session, edit)

    async def set_pin(
        self, session_id: str, entry_id: str, pinned: bool, *, expected: Expected = STORED, note: Note = NO_NOTE
    ) -> tuple[str, ...]:
        session = self._session(session_id)
        session.check_seen(expected)
        session.check_sees(entry_id)
        kind = session.tree[entry_id].entry.kind
        if kind not in SHOWN_KINDS:
            raise InvalidArgument(
                f"entry {entry_id!r} is of kind {kind}, which is never part of a context; "
                "there is nothing to keep of it"
            )
        group = group_of(session, entry_id, session.info.leaf_id)
        in_effect = pins_in_effect(session, session.info.leaf_id)
        changed = [each for each in group if (session.seen("pin").get(each) != "on" if pinned else each in in_effect)]
        if changed:
            edit = Edit("pin", entry_id, session.seen("pin").get(entry_id), "on" if pinned else "off")
            self._edit(session, [edit], note)
            self._mark(session, edit, changed)
        return tuple(group)

    async def go_back(
        self,
        session_id: str,
        revision: int,
        *,
        before: bool = False,
        expected: Expected = STORED,
        note: Note = NO_NOTE,
    ) -> LogLine | None:
        session = self._session(session_id)
        if isinstance(expected, Seen):
            session.check_seen(expected)
        if revision > session.info.revision:
            raise InvalidArgument(
                f"revision {revision} is not in the log of session {session_id!r}: its last is {session.info.revision}"
            )
        edits = restorable(session.log_line(revision).edits) if revision else []
        if edits:
            wanted = [replace(edit, after=edit.before if before else edit.after) for edit in edits]
            is_changed = self._restore(session, wanted, note)
        else:
            is_changed = self._go_to(session, revision, session.leaf_at(revision - before), expected, note)
        return session.log_line(session.info.revision) if is_changed else None

    def _restore(self, session: Session, wanted: Sequence[Edit], note: Note) -> bool:
        changed = []
        for want in wanted:
            if want.entry_id is not None:
                session.check_sees(want.entry_id)
            now = self._value(session, want)
            if now != want.after:
                changed.append(replace(want, before=now))
        if not changed:
            return False
        for edit in changed:
            if edit.what == "title":
                session.info = replace(session.info, title=edit.after)
            elif edit.what == "auto_title":
                session.info = replace(session.info, auto_title=edit.after)
            elif edit.what == "metadata":
                session.info = replace(session.info, metadata_text=edit.after or "{}")
            elif edit.what == "completed":
                session.info = replace(session.info, completed_us=None if edit.after is None else int(edit.after))
        self._edit(session, changed, note)
        for edit in changed:
            if edit.entry_id is not None:
                is_pin = edit.what == "pin"
                group = group_of(session, edit.entry_id, session.info.leaf_id) if is_pin else [edit.entry_id]
                self._mark(session, edit, group)
        return True

    def _value(self, session: Session, edit: Edit) -> str | None:
        if edit.entry_id is None:
            return row_value(session.info, edit.what)
        return session.seen(edit.what).get(edit.entry_id)

    def _go_to(self, session: Session, revision: int, target: str | None, expected: Expected, note: Note) -> bool:
        session.check_seen(expected)
        before = session.info.leaf_id
        if target == before:
            return False
        if target is not None and target not in session.tree:
            raise EntryNotFound(session.info.id, target)
        brought_back = tuple(entry.id for entry in session.path(target)[::-1] if entry.id in session.retracted)
        for entry_id in brought_back:
            self._set_retracted(session, entry_id, retracted=False)
        self._commit(session, "back", to=target, note=MoveNote(revision, note.by, note.why))
        if brought_back:
            edit = Edit("retracted", None, str(pydantic_core.to_json(brought_back), "utf-8"))
            session.note_edits([edit], note)
        session.do(before, target, brought_back=brought_back)
        return True

    # -- how it is done ---------------------------------------------------------------------------------------

    def _edit(self, session: Session, edits: Sequence[Edit], note: Note) -> None:
        """Count one revision for what is changed beside the history, and write it down."""
        self._commit(session, None)
        session.note_edits(edits, note)

    def _mark(self, session: Session, edit: Edit, entry_ids: Sequence[str] | None = None) -> None:
        for entry_id in entry_ids or [edit.entry_id or ""]:
            session.mark(entry_id, edit.what, edit.after)

    def _set_retracted(self, session: Session, entry_id: str, *, retracted: bool) -> None:
        if retracted == (entry_id in session.retracted):
            return
        if retracted:
            session.retracted.add(entry_id)
        else:
            session.retracted.discard(entry_id)
        if entry_id in session.created:  # an inherited entry is not among what the session counts
            step = -1 if retracted else 1
            session.info = replace(
                session.info,
                entry_count=session.info.entry_count + step,
                message_count=session.info.message_count + step,
            )

    def _commit(
        self,
        session: Session,
        reason: Literal["append"] | MoveReason | None,
        rows: Sequence[Row] = (),
        *,
        to: LeafChoice = STORED,
        note: MoveNote | None = None,
    ) -> None:
        """Count one revision, and record the change."""
        now = self._sources.now_us()
        before = session.info.leaf_id
        leaf = before if isinstance(to, Stored) else to
        revision = session.info.revision + 1
        session.info = replace(session.info, revision=revision, leaf_id=leaf, updated_us=now)
        change = Change(session.info.id, revision, reason)
        if reason is not None:
            entries = tuple(row.entry for row in rows)
            at = rows[-1].entry.created_us if reason == "append" else now
            change = replace(change, entries=entries, from_id=before, to_id=leaf, at_us=at)
            session.notes[revision] = note or MoveNote(None, None)
        session.changes.append(change)
