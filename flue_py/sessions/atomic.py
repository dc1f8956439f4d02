"""Several operations on the sessions of a store, collected, and committed as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from flue_py.core.entries import NewEntry, checked_source
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonValue
from flue_py.core.log import Note
from flue_py.core.operations import (
    AppendEntries,
    CreateSession,
    CreateTask,
    DeleteTree,
    EndTask,
    ForkSession,
    LinkTask,
    MoveLeaf,
    Navigate,
    Redo,
    SetLabel,
    SetPin,
    Undo,
    UpdateSession,
)
from flue_py.core.sessions import (
    STORED,
    Appended,
    Deletion,
    LeafChoice,
    Moved,
    Navigated,
    NewSession,
    OnConflict,
    Seen,
    SessionInfo,
    TaskEnd,
    check_entry_label,
    check_name,
    check_task_end,
    checked_title,
    scope_meant,
)
from flue_py.errors import InvalidArgument
from flue_py.sessions.arguments import (
    ChangedMetadata,
    HasId,
    checked_flag,
    checked_id,
    checked_leaf,
    checked_messages,
    checked_metadata,
    checked_moment,
    checked_on_conflict,
    checked_place,
    checked_seen,
    checked_session,
    checked_text,
)
from flue_py.sessions.collecting import Collector, Pending
from flue_py.sessions.handle import Handle
from flue_py.sessions.incoming import Incoming, as_incoming, incoming_message, incoming_messages, shell_entries
from flue_py.sessions.making import checked_root, new_fork, new_task
from flue_py.sessions.navigating import BranchSummary, summary_entry
from flue_py.sessions.offloading import Offloader
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flue_py.context.offloading import OffloadSettings
    from flue_py.core.messages import Message


class Atomic:
    """Operations that are committed together at the end of the ``async with`` (see `Store.atomic`).

    Its methods are those of `Session` and `Store`, with the session as first argument: a handle, an id, or a session
    that this batch makes. They check their arguments, note the operation, and return; nothing is read or written yet.

    The operations on one session build on each other. The first one builds on ``expected_leaf``, else on the leaf that
    the handle has seen, or for an id, on whatever is stored. ``expected_revision`` is the revision before the batch.
    Handles of sessions that the batch makes are returned at once, and can be used once it is committed.
    """

    __slots__ = ("_batch",)

    def __init__(self, batch: Collector) -> None:
        self._batch = batch

    # -- entries --------------------------------------------------------------------------------------------------

    def append_message(
        self,
        session: HasId | str,
        message: Mapping[str, JsonValue] | Message | BaseModel,
        *,
        source: str | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Appended]:
        """Append a message, as `Session.append_message` does."""
        seen = checked_seen(expected_leaf, expected_revision)
        incoming = incoming_message(message, source, calls, checked_text(produced_under, "produced_under"))
        return self._append(session, incoming, offload, on_conflict, idempotency_key, seen)

    def append_messages(
        self,
        session: HasId | str,
        messages: Sequence[Mapping[str, JsonValue] | Message | BaseModel],
        *,
        source: str | None = None,
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Appended]:
        """Append messages as a chain, as `Session.append_messages` does."""
        seen = checked_seen(expected_leaf, expected_revision)
        incoming = incoming_messages(checked_messages(messages), source, checked_text(produced_under, "produced_under"))
        checked_source(source)
        return self._append(session, incoming, offload, on_conflict, idempotency_key, seen)

    def append_shell(
        self,
        session: HasId | str,
        command: str,
        output: str,
        exit_code: int | None,
        *,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Appended]:
        """Append a shell command with what it printed, as `Session.append_shell` does."""
        seen = checked_seen(expected_leaf, expected_revision)
        check_name(idempotency_key, "idempotency_key")
        drawn = self._batch.backend.new_entry_id()
        chain = shell_entries(command, output, exit_code, drawn, idempotency_key)
        return self._append(session, as_incoming(chain), offload, on_conflict, idempotency_key, seen)

    def append_entries(
        self,
        session: HasId | str,
        entries: Sequence[NewEntry],
        *,
        offload: OffloadSettings | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Appended]:
        """Append entries that the builders of `NewEntry` made, as a chain: compactions, summaries, further kinds.

        Their ``parent_id`` and ``created_us`` are ignored. Raises `InvalidArgument` for any other entry.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        if isinstance(entries, NewEntry) or not all(isinstance(entry, NewEntry) and entry.built for entry in entries):
            raise InvalidArgument("entries: should be a sequence of what NewEntry.message, .custom and the others made")
        chain = [changed(each, parent_id=None, created_us=None) if _is_placed(each) else each for each in entries]
        return self._append(session, as_incoming(chain), offload, on_conflict, idempotency_key, seen)

    def _append(
        self,
        session: HasId | str,
        incoming: Incoming,
        offload: OffloadSettings | None,
        on_conflict: OnConflict,
        idempotency_key: str | None,
        seen: Seen,
    ) -> Pending[Appended]:
        checked_on_conflict(on_conflict)
        check_name(idempotency_key, "idempotency_key")
        session_id, handle = self._batch.named(session)
        self._batch.limits.check_entries(incoming.entries)
        entries = [
            changed(entry, id=self._batch.backend.new_entry_id()) if entry.id is None else entry
            for entry in incoming.entries
        ]
        pending = Pending[Appended]([entry.id for entry in entries if entry.id is not None])
        priced = self._batch.pricer.price_entries(entries)
        operation = AppendEntries(session_id, priced, seen, on_conflict, idempotency_key)
        offloader = None if offload is None else Offloader(self._batch.backend, self._batch.limits, offload)
        self._batch.collect(operation, handle, pending, incoming=incoming, offloader=offloader)
        return pending

    # -- sessions -------------------------------------------------------------------------------------------------

    def create_session(
        self,
        *,
        key: str | None = None,
        title: str | None = None,
        scope: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        config_path: str | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session, as `Store.create_session` does; return the handle on it."""
        text = checked_metadata(metadata, self._batch.limits)
        place = scope_meant(self._batch.scope, scope) or ""
        new = checked_root(NewSession(key, title, place, text, cwd, config_path, id))
        made, drawn = self._batch.make(new)
        self._batch.collect(CreateSession(new, drawn), None, Pending[SessionInfo](), made)
        return made

    def fork(
        self,
        session: HasId,
        *,
        at: LeafChoice = STORED,
        id: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Session:
        """Fork a session, as `Session.fork` does; return the handle on the fork.

        ``at`` may be an entry that this batch appends; by default it is the leaf as the batch has left it so far.
        There is no ``before``: it would have to read an entry.
        """
        checked_leaf(at, "at")
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.handle_of(session)
        new = new_fork(
            handle.info, self._batch.limits, id=id, scope=scope, key=key, title=title, metadata=metadata, cwd=cwd
        )
        made, drawn = self._batch.make(new)
        operation = ForkSession(session_id, at, new, scope, seen, idempotency_key, drawn)
        self._batch.collect(operation, handle, Pending[SessionInfo](), made)
        return made

    def create_task(
        self,
        session: HasId,
        *,
        task_id: str,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Session:
        """Start a task session, as `Session.create_task` does; return the handle on it."""
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.handle_of(session)
        limits = self._batch.limits
        new = new_task(handle.info, limits, task_id=task_id, key=key, title=title, metadata=metadata, cwd=cwd)
        made, drawn = self._batch.make(new)
        operation = CreateTask(session_id, task_id, new, seen, idempotency_key, limits.task_depth, drawn)
        self._batch.collect(operation, handle, Pending[SessionInfo](), made)
        return made

    def link_task(
        self,
        parent: HasId | str,
        child: HasId | str,
        *,
        task_id: str,
        entry_id: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> None:
        """Link a session to a parent as its task session, as `Store.link_task` does."""
        check_name(checked_id(task_id, "task_id"), "task_id")
        checked_place(entry_id, "entry_id")
        seen = checked_seen(expected_leaf, expected_revision)
        parent_id, handle = self._batch.named(parent)
        child_id = str(checked_session(child))
        self._batch.collect(LinkTask(parent_id, child_id, task_id, entry_id, seen), handle, Pending[None]())

    def end_task(
        self,
        session: HasId | str,
        status: TaskEnd,
        *,
        summary: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[SessionInfo]:
        """Note how a task ended, as `Session.end_task` does."""
        check_task_end(status, summary)
        seen, note = checked_seen(expected_leaf, expected_revision), Note(by, why)
        session_id, handle = self._batch.named(session)
        return self._update(EndTask(session_id, status, summary, seen, note), handle)

    def delete_session_tree(
        self,
        session: HasId | str,
        *,
        scope: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Deletion]:
        """Delete a session and its task sessions, as `Store.delete_session_tree` does."""
        scope = scope_meant(self._batch.scope, scope)
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        pending = Pending[Deletion]()
        self._batch.collect(DeleteTree(session_id, scope, seen), handle, pending)
        return pending

    # -- the leaf, the row, and marks -----------------------------------------------------------------------------

    def move_leaf(
        self,
        session: HasId | str,
        to: str | None,
        *,
        by: str | None = None,
        why: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Moved]:
        """Set the leaf, as `Session.move_leaf` does."""
        checked_place(to, "to")
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        pending = Pending[Moved]()
        operation = MoveLeaf(session_id, to, seen, note=Note(by, why), idempotency_key=idempotency_key)
        self._batch.collect(operation, handle, pending)
        return pending

    def navigate(
        self,
        session: HasId | str,
        entry_id: str,
        *,
        summary: str | BranchSummary | None = None,
        label: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Navigated]:
        """Go to an entry, as `Session.navigate` does; it may be one that this batch appends.

        The ``draft`` is in the result. ``summary`` cannot be a callback: that would have to read what is left. Nothing
        is appended if the entry is the leaf already.
        """
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        made = None
        if summary is not None:
            entry = changed(summary_entry(summary), id=self._batch.backend.new_entry_id())
            self._batch.limits.check_entries([entry])
            (made,) = self._batch.pricer.price_entries([entry])
        pending = Pending[Navigated]([] if made is None or made.id is None else [made.id])
        self._batch.collect(Navigate(session_id, entry_id, made, label, seen, Note(by, why)), handle, pending)
        return pending

    def undo(
        self,
        session: HasId | str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Moved | None]:
        """Take back the session's last operation, as `Session.undo` does; those of this batch count one by one."""
        return self._step(Undo, session, Note(by, why), checked_seen(expected_leaf, expected_revision))

    def redo(
        self,
        session: HasId | str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[Moved | None]:
        """Do again what was undone last, as `Session.redo` does."""
        return self._step(Redo, session, Note(by, why), checked_seen(expected_leaf, expected_revision))

    def _step(self, step: type[Undo | Redo], session: HasId | str, note: Note, seen: Seen) -> Pending[Moved | None]:
        session_id, handle = self._batch.named(session)
        pending = Pending[Moved | None]()
        self._batch.collect(step(session_id, seen, note), handle, pending)
        return pending

    def set_title(
        self,
        session: HasId | str,
        title: str | None,
        *,
        auto: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[SessionInfo]:
        """Set or clear the title, as `Session.set_title` does."""
        title, seen, note = checked_title(title), checked_seen(expected_leaf, expected_revision), Note(by, why)
        session_id, handle = self._batch.named(session)
        if checked_flag(auto, "auto"):
            return self._update(UpdateSession(session_id, auto_title=title, expected=seen, note=note), handle)
        return self._update(UpdateSession(session_id, title=title, expected=seen, note=note), handle)

    def set_metadata(
        self,
        session: HasId | str,
        metadata: Mapping[str, JsonValue],
        *,
        merge: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[SessionInfo]:
        """Replace the metadata, or some of their keys, as `Session.set_metadata` does."""
        if metadata is None:
            raise InvalidArgument("metadata: should be an object, not None; {} takes all of yours away")
        text = checked_metadata(metadata, self._batch.limits)
        change = ChangedMetadata(text, checked_flag(merge, "merge"), self._batch.limits)
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        operation = UpdateSession(session_id, metadata_text=change, expected=seen, note=Note(by, why))
        return self._update(operation, handle)

    def set_completed(
        self,
        session: HasId | str,
        at: datetime | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[SessionInfo]:
        """Note when the session's work was completed, as `Session.set_completed` does."""
        moment = None if at is None else checked_moment(at)
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        operation = UpdateSession(session_id, completed_us=moment, expected=seen, note=Note(by, why))
        return self._update(operation, handle)

    def _update(self, operation: UpdateSession | EndTask, handle: Handle | None) -> Pending[SessionInfo]:
        pending = Pending[SessionInfo]()
        self._batch.collect(operation, handle, pending)
        return pending

    def set_label(
        self,
        session: HasId | str,
        entry_id: str,
        label: str | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> None:
        """Label an entry, as `Session.set_label` does; it may be one that this batch appends."""
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        seen = checked_seen(expected_leaf, expected_revision)
        session_id, handle = self._batch.named(session)
        self._batch.collect(SetLabel(session_id, entry_id, label, seen, Note(by, why)), handle, Pending[None]())

    def pin(
        self,
        session: HasId | str,
        entry_id: str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[tuple[str, ...]]:
        """Pin an entry, as `Session.pin` does; the result are the ids of what was pinned with it, in path order."""
        seen = checked_seen(expected_leaf, expected_revision)
        return self._set_pin(session, entry_id, Note(by, why), seen, pinned=True)

    def unpin(
        self,
        session: HasId | str,
        entry_id: str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Pending[tuple[str, ...]]:
        """Let go of a pinned entry, as `Session.unpin` does; the result is as for `pin`."""
        seen = checked_seen(expected_leaf, expected_revision)
        return self._set_pin(session, entry_id, Note(by, why), seen, pinned=False)

    def _set_pin(
        self, session: HasId | str, entry_id: str, note: Note, seen: Seen, *, pinned: bool
    ) -> Pending[tuple[str, ...]]:
        checked_id(entry_id, "entry_id")
        session_id, handle = self._batch.named(session)
        pending = Pending[tuple[str, ...]]()
        self._batch.collect(SetPin(session_id, entry_id, pinned, seen, note), handle, pending)
        return pending


def _is_placed(entry: NewEntry) -> bool:
    """Return whether an entry brings a place of its own along."""
    return entry.parent_id is not None or entry.created_us is not None
