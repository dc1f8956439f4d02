"""A session in hand: what it appends, moves and forks. Each call is one transaction of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from flue_py.core.calls import PaidCall, program_of
from flue_py.core.entries import (
    NewEntry,
    checked_source,
    kept_from,
    new_branch_summary,
    new_compaction,
    new_custom,
)
from flue_py.core.imported import check_imported_call, checked_imported_entries
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object
from flue_py.core.ledger import Recorded
from flue_py.core.log import Note
from flue_py.core.sessions import (
    STORED,
    Appended,
    EditMetadata,
    LeafChoice,
    Moved,
    NewSession,
    OnConflict,
    SessionInfo,
    Stored,
    check_entry_label,
    check_label,
    check_name,
    check_new_name,
    checked_title,
)
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.sessions.arguments import (
    checked_choice,
    checked_flag,
    checked_id,
    checked_leaf,
    checked_messages,
    checked_moment,
    checked_place,
    encode_metadata,
    paid_call,
)
from flue_py.sessions.budgeting import SessionBudgets
from flue_py.sessions.incoming import checked_custom_kind, incoming_message, incoming_messages
from flue_py.sessions.keeping import whole_first_kept
from flue_py.sessions.log import LoggedSession
from flue_py.sessions.marking import MarkingSession
from flue_py.sessions.merging import MergingSession
from flue_py.sessions.overflowing import with_oddities, write_what_fits

if TYPE_CHECKING:
    from flue_py.core.messages import Message


class Session(MergingSession, SessionBudgets, LoggedSession, MarkingSession):
    """A handle on one session. Handles are made by a `Store`, by `fork` and by `create_task`.

    **Order.** Calls on one handle run one after the other, in the order they were made, and chain: what an
    append or a move builds on (``leaf_id``) is looked up when it runs, not when it is called. Conflicts
    (`LeafConflict`) therefore arise between handles, and between processes, only; call `refresh` after one.

    **What it builds on.** ``leaf_id`` is the leaf after this handle's last operation, read or refresh. A read
    without ``leaf=`` answers at the stored leaf and takes it over; a read with ``leaf=`` leaves the handle
    alone. After an append that landed on a sibling branch, ``leaf_id`` is the end of that branch, so that the
    rest of a turn can land there too; ``leaf=session.leaf_id`` reads there, `refresh` goes back.

    **Cancellation.** A commit that has begun is finished, and the handle brought up to date, before
    ``CancelledError`` is raised. A call that is still waiting for its turn has no effect.

    Every method raises `SessionNotFound` once the session has been deleted, also where its key has been used
    again, and `StoreClosed` once the store is closed. What raises has changed nothing.
    """

    __slots__ = ()

    # -- appending --------------------------------------------------------------------------------------------

    async def append_message(
        self,
        message: Mapping[str, JsonValue] | Message,
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
    ) -> Appended:
        """Append one message below the leaf, and return where it landed.

        ``source`` tags it (prompt, skill, shell, task, retry). An exact retry of an ``idempotency_key`` returns
        the first result. Where another writer has moved the leaf, ``on_conflict="raise"`` raises `LeafConflict`
        and ``"branch"`` lands as a sibling branch, which moves nobody's leaf. Lone surrogates are replaced, and
        counted in ``surrogates_replaced``. Usage is read in the shape of any provider and kept as it is given; what of
        it cannot be counted is told in ``oddities``, and refuses nothing.

        A message in the form of OpenAI's Chat Completions or Responses or of Anthropic is converted into ours, as
        importing it would, and ``converted`` says so; it may become several entries, and `export_session` gives it
        back as it came. Raises `InvalidEntry` naming the field that is wrong or cannot be converted,
        `IdempotencyConflict`. O(1).
        """
        incoming = incoming_message(message, source)
        return incoming.noted_in(await self._append(incoming.entries, on_conflict, idempotency_key))

    async def append_messages(
        self,
        messages: Sequence[Mapping[str, JsonValue] | Message],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
    ) -> Appended:
        """Append messages as a chain, all or none of them, in one transaction; otherwise as `append_message`.

        An error names the message, too (``messages[1].content``). No messages change nothing, and only compare the
        leaf. O(len(messages)).
        """
        incoming = incoming_messages(checked_messages(messages), source)
        checked_source(source)
        return incoming.noted_in(await self._append(incoming.entries, on_conflict, idempotency_key))

    async def append_compaction(
        self,
        summary: str,
        *,
        first_kept_entry_id: str,
        tokens_before: int,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        keep_exchanges_whole: bool = True,
    ) -> Appended:
        """Append a compaction: from here on, the summary stands for what comes before the first kept entry.

        ``usage`` is the sum of what the summarization calls used, ``calls`` their single usages for the
        ledger. A first kept entry that would leave a tool call out and keep its result, which no provider takes, is
        moved back to the message of the call, and ``oddities`` say so; with ``keep_exchanges_whole=False`` it is not.
        Raises `EntryNotFound` where the session sees no such first kept entry (on the path or off it),
        `InvalidEntry`; otherwise as `append_message`. The cost of the context, or else O(1).
        """
        checked_flag(keep_exchanges_whole, "keep_exchanges_whole")
        entry = new_compaction(
            summary,
            first_kept_entry_id=first_kept_entry_id,
            tokens_before=tokens_before,
            details=details,
            usage=usage,
            calls=calls,
        )
        if keep_exchanges_whole:
            leaf = await self._leaf_before(idempotency_key)
            entry = kept_from(entry, await whole_first_kept(self, first_kept_entry_id, leaf))
        return await self._append([entry], on_conflict, idempotency_key)

    async def _leaf_before(self, idempotency_key: str | None) -> str | None:
        """Return the leaf that an append builds on; for a retry, the one that the first try built on."""
        check_name(idempotency_key, "idempotency_key")
        if idempotency_key is None:
            return self._leaf_id
        first = await self._backend.recall_append(self.ref, idempotency_key)
        entry = None if first is None or not first.entry_ids else await self.get_entry(first.entry_ids[0])
        return self._leaf_id if entry is None else entry.parent_id

    async def append_branch_summary(
        self,
        summary: str,
        *,
        from_id: str | None,
        details: JsonValue = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
    ) -> Appended:
        """Append the summary of a branch that was left. ``from_id`` is kept as given, not checked.

        ``usage`` is what the summarization calls used, ``calls`` their single usages: the ledger counts them, windows
        over the path do not. Otherwise as `append_compaction`.
        """
        entry = new_branch_summary(summary, from_id=from_id, details=details, usage=usage, calls=calls)
        return await self._append([entry], on_conflict, idempotency_key)

    async def append_custom(
        self,
        kind: str,
        data: JsonValue = None,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
    ) -> Appended:
        """Append an entry of a further kind.

        ``custom_message`` is seen by the model as a user message; every other kind is never part of the context.
        Raises `InvalidEntry` for a kind that has a method of its own (message, compaction, branch_summary, exclusion).
        """
        return await self._append([new_custom(checked_custom_kind(kind), data)], on_conflict, idempotency_key)

    async def _append(
        self, entries: Sequence[NewEntry], on_conflict: OnConflict, idempotency_key: str | None
    ) -> Appended:
        checked_choice(on_conflict, "on_conflict", ("raise", "branch"))
        check_name(idempotency_key, "idempotency_key")
        self._limits.check_entries(entries)

        async def write(priced: Sequence[NewEntry]) -> Appended:
            return await self._commit(
                lambda: self._backend.append(
                    self.ref, priced, expected=self._leaf_id, on_conflict=on_conflict, idempotency_key=idempotency_key
                ),
                self._note_append,
            )

        return with_oddities(*await write_what_fits(write, self._pricer.price_entries(entries)))

    async def import_entries(self, entries: Sequence[NewEntry], *, leaf: str | None) -> Appended:
        """Add entries that bring their own ids, parents and times, parents first, and set the leaf.

        A parent of None makes a root; any other is an entry the session sees, or an earlier one of these.
        ``leaf`` is one the session then sees, or None. All or nothing, and one step of `undo`. A paid call that was
        reported before with other numbers is told in ``call_conflicts``, and the ledger keeps the first. What entries
        use is what their payloads report; one that names no paid call gets the one that its usage is of. Raises
        `LeafConflict`, `EntryNotFound`, and `InvalidEntry` for an id that is taken. O(len(entries)).
        """
        entries = checked_imported_entries(entries, program_of(self.metadata))
        checked_place(leaf, "leaf")
        self._limits.check_entries(entries)

        async def write(priced: Sequence[NewEntry]) -> Appended:
            return await self._commit(
                lambda: self._backend.import_entries(self.ref, priced, leaf=leaf, expected=self._leaf_id),
                lambda result: self._note(result.leaf_id, result.revision),
            )

        return with_oddities(*await write_what_fits(write, self._pricer.price_entries(entries)))

    async def record_call(
        self,
        usage: Mapping[str, JsonValue],
        *,
        provider: str = "",
        model: str = "",
        call_id: str | None = None,
        purpose: str = "turn",
        outcome: str | None = None,
        agent: str | None = None,
        at: datetime | None = None,
    ) -> Recorded:
        """Write a paid call that made no entry into the ledger: one that failed or was aborted, a title, a probe.

        ``usage`` is what it used, as messages report it. ``purpose`` (turn, compaction, branch_summary, title, task
        ...) and ``outcome`` (failed, aborted ...) are names of your own, and so is ``agent``, who made it; ``at`` is
        when it was made, by default now.
        With a ``call_id`` a second report of the same call changes nothing; without one each report is another call.
        Raises `InvalidEntry` naming the field, and `CallConflict` for a call that was reported with other numbers.
        O(1).
        """
        call = paid_call(usage, provider, model, call_id, purpose, outcome, agent, at)
        priced = self._pricer.price_call(call)
        return await self._commit(partial(self._backend.record_call, self.ref, priced), _nothing_to_note)

    async def import_call(self, call: PaidCall) -> Recorded:
        """Write a paid call that a file counts without an entry for it, as `record_call` does for one of your own.

        What the call ``replaces`` of this session's is taken out. Raises `InvalidEntry`, and `CallConflict` for a call
        that was reported with other numbers. O(1).
        """
        check_imported_call(call)
        priced = self._pricer.price_call(replace(call, agent=call.agent or program_of(self.metadata)))
        return await self._commit(partial(self._backend.record_call, self.ref, priced), _nothing_to_note)

    # -- moving the leaf --------------------------------------------------------------------------------------

    async def move_leaf(
        self, to: str | None, *, by: str | None = None, why: str | None = None, idempotency_key: str | None = None
    ) -> Moved:
        """Set the leaf to any entry the session sees, or to None: before the first entry.

        ``by`` and ``why`` say who did it and why, for the `log`. Raises `LeafConflict`, `EntryNotFound`,
        `IdempotencyConflict`. O(1).
        """
        checked_place(to, "to")
        note = Note(by, why)
        check_name(idempotency_key, "idempotency_key")
        return await self._commit(
            lambda: self._backend.move(
                self.ref, to, expected=self._leaf_id, note=note, idempotency_key=idempotency_key
            ),
            self._note_move,
        )

    def _note_move(self, moved: Moved | None) -> None:
        if moved is not None and (not moved.replayed or moved.revision > self._revision):
            self._note(moved.to_id, moved.revision)

    async def rewind(
        self,
        *,
        to: LeafChoice = STORED,
        turns: int | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Moved | None:
        """Go back on the active path, and return the move; None where there is nothing to go back over.

        ``to`` names the entry that becomes the leaf (None: before the first). ``turns`` counts the turns of the path,
        as `turns` does: n keeps turns 1 to n, -n drops the last n, 0 drops all; what is out of range is clamped.
        A turn ends where the next user message begins. Nothing is deleted, and `undo` takes it back.
        Raises `InvalidArgument` for anything but exactly one of the two, and where ``to`` is not on the path;
        `EntryNotFound`, `LeafConflict`. O(1) with ``to``; with ``turns`` it reads the path's user messages.
        """
        if isinstance(to, Stored) == (turns is None):
            raise InvalidArgument("rewind takes either to= or turns=")
        checked_leaf(to, "to")
        if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int)):
            raise InvalidArgument(f"turns: {shown(turns)} is not a whole number of turns")
        return await self._commit(partial(self._rewind_now, to, turns, Note(by, why)), self._note_move)

    async def _rewind_now(self, to: LeafChoice, turns: int | None, note: Note) -> Moved | None:
        leaf = self._leaf_id
        if turns is not None:
            started = await self._backend.read_turns(self.ref, leaf=leaf)
            kept = max(0, min(turns if turns >= 0 else len(started) + turns, len(started)))
            target = started[kept].parent_id if kept < len(started) else leaf
        else:
            target = cast("str | None", to)
            await self._check_on_path(target, leaf)
        if target == leaf:
            return None
        return await self._backend.move(self.ref, target, expected=leaf, reason="rewind", note=note)

    async def _check_on_path(self, entry_id: str | None, leaf: str | None) -> None:
        if entry_id is None or entry_id == leaf:
            return
        if leaf is None:
            if await self._backend.get_entry(self.ref, entry_id) is None:
                raise EntryNotFound(self.id, entry_id)
        elif await self._backend.is_ancestor(self.ref, entry_id, leaf):
            return
        raise InvalidArgument(f"to: entry {shown(entry_id)} is not on the path to {leaf!r}; move_leaf() goes anywhere")

    async def undo(self, *, by: str | None = None, why: str | None = None) -> Moved | None:
        """Return the leaf to where it was before the last operation not yet undone; None where there is none.

        Operations are appends (a batch is one), moves, retractions, imports and going back, of this session, by
        whichever handle. Nothing is deleted. Raises `LeafConflict`, and `EntryNotFound` where the entry to return to
        has been deleted. O(1).
        """
        note = Note(by, why)
        return await self._commit(
            lambda: self._backend.undo(self.ref, expected=self._leaf_id, note=note), self._note_move
        )

    async def redo(self, *, by: str | None = None, why: str | None = None) -> Moved | None:
        """Do again what was undone last; None where nothing was, or a new operation came since. O(1)."""
        note = Note(by, why)
        return await self._commit(
            lambda: self._backend.redo(self.ref, expected=self._leaf_id, note=note), self._note_move
        )

    async def remove_leaf_message(self, entry_id: str, *, by: str | None = None, why: str | None = None) -> bool:
        """Retract a failed leaf: it leaves every view of this session, and the leaf steps back.

        True only where the entry is the session's leaf, a message, and childless; otherwise nothing changes.
        The row, its cost and the move stay for the log and the ledger; `undo` brings it back. Where another
        session sees the entry, it stays visible there.
        """
        checked_id(entry_id, "entry_id")
        note = Note(by, why)
        moved = await self._commit(partial(self._backend.retract, self.ref, entry_id, note=note), self._note_move)
        return moved is not None

    # -- other sessions ---------------------------------------------------------------------------------------

    async def fork(
        self,
        *,
        at: LeafChoice = STORED,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Return a new session of the same tree whose leaf is ``at`` (default: the stored leaf). It copies nothing.

        It takes over scope, working directory and configuration path, and no metadata. Raises `EntryNotFound`,
        `SessionExists`, `IdempotencyConflict`. O(1): one row.
        """
        checked_leaf(at, "at")
        check_name(idempotency_key, "idempotency_key")
        check_new_name(key, "key")
        new = NewSession(
            key, title, self.scope, encode_metadata(metadata, self._limits), self._info.cwd, self._info.config_path
        )
        info = await self._commit(
            partial(self._backend.fork, self.ref, at, new, idempotency_key=idempotency_key), _nothing_to_note
        )
        return Session(self._backend, info, self._limits, self._pricer)

    async def create_task(
        self,
        *,
        task_id: str,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Return a task session of its own history, linked to this one; the same ``task_id``, the same session.

        Its metadata gets ``parentSession`` (this session's id), ``taskId`` and ``depth``. It is deleted with its
        parent. Raises `TaskDepthExceeded` at more than 4 levels (see `Limits`) below a session that is
        no task, `SessionExists`, `IdempotencyConflict`. O(1).
        """
        check_new_name(task_id, "task_id")
        check_new_name(key, "key")
        check_name(idempotency_key, "idempotency_key")
        if task_id is None:
            raise InvalidArgument("task_id: should be a string, not None")
        check_label(cwd, "cwd")
        new = NewSession(key, title, self.scope, encode_metadata(metadata, self._limits), cwd or self._info.cwd)
        info = await self._commit(
            partial(
                self._backend.create_task,
                self.ref,
                task_id,
                new,
                idempotency_key=idempotency_key,
                max_depth=self._limits.task_depth,
            ),
            _nothing_to_note,
        )
        return Session(self._backend, info, self._limits, self._pricer)

    # -- the session's own row --------------------------------------------------------------------------------

    # What these change is in the `log`, with the value before and after, and who did it and why.

    async def set_label(
        self, entry_id: str, label: str | None, *, by: str | None = None, why: str | None = None
    ) -> None:
        """Label an entry the session sees; None or "" clears. Raises `EntryNotFound`. O(1)."""
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        note = Note(by, why)
        await self._commit(partial(self._backend.set_label, self.ref, entry_id, label, note=note), _nothing_to_note)

    async def set_title(
        self, title: str | None, *, auto: bool = False, by: str | None = None, why: str | None = None
    ) -> SessionInfo:
        """Set or clear the title, and return the session's row. O(1).

        A title of white space only is none. With ``auto`` it is the title that a program made. It is kept apart: a
        title that was given is shown before it, whichever came later (`SessionInfo.shown_title`).
        """
        title = checked_title(title)
        note = Note(by, why)
        update = partial(self._backend.update_session, self.ref, note=note)
        change = partial(update, auto_title=title) if checked_flag(auto, "auto") else partial(update, title=title)
        return await self._commit(change, self._note_row)

    async def set_metadata(
        self,
        metadata: Mapping[str, JsonValue],
        *,
        merge: bool = False,
        by: str | None = None,
        why: str | None = None,
    ) -> SessionInfo:
        """Replace the metadata, and return the session's row.

        With ``merge`` only the top-level keys given are replaced, in one transaction: of two handles that merge at
        the same time, neither loses what the other gave. Raises `InvalidArgument`, `InvalidEntry`.
        """
        checked_flag(merge, "merge")
        if metadata is None:
            raise InvalidArgument("metadata: should be an object, not None; {} takes everything away")
        text = encode_metadata(metadata, self._limits)
        note = Note(by, why)
        change = self._merging(decode_object(text)) if merge else text
        work = partial(self._backend.update_session, self.ref, metadata_text=change, note=note)
        return await self._commit(work, self._note_row)

    def _merging(self, added: JsonObject) -> EditMetadata:
        return lambda stored: encode_metadata({**decode_object(stored), **added}, self._limits)

    async def set_completed(self, at: datetime | None, *, by: str | None = None, why: str | None = None) -> SessionInfo:
        """Note when the session's work was completed, or with None that it goes on; return the session's row."""
        moment = None if at is None else checked_moment(at)
        note = Note(by, why)
        work = partial(self._backend.update_session, self.ref, completed_us=moment, note=note)
        return await self._commit(work, self._note_row)

    def _note_row(self, info: SessionInfo) -> None:
        self._info = info
        # The leaf stays the one this handle has seen, so that what another writer added is not built on unseen.
        if info.leaf_id == self._leaf_id:
            self._revision = info.revision


def _nothing_to_note(_: object) -> None:
    return
