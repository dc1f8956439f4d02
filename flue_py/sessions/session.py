"""The public `Session`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, Unpack, cast

from msgspec import field
from msgspec.structs import replace

from flue_py import errors
from flue_py.core.context import (
    MERGED,
    PROVENANCE,
    ContextEntry,
    DiffSide,
    LeafDiff,
    MergedRange,
    check_whole_exchanges,
    context_of,
    copy_of,
    entry_costs,
    is_editable,
    range_key,
    same_entry,
    total_cost,
)
from flue_py.core.entries import Entry, NewEntry, entry_prefix, leaving, referred_artifact
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object
from flue_py.core.kinds import BRANCH_SUMMARY, MESSAGE, message_text
from flue_py.core.operations import EndTask, MoveLeaf, Redo, Undo, UpdateSession
from flue_py.core.sessions import (
    NOTHING_SEEN,
    STORED,
    Appended,
    Change,
    LeafChoice,
    LogLine,
    Moved,
    Navigated,
    Note,
    Seen,
    SessionInfo,
    Stored,
    TaskEnd,
    TaskLink,
    check_entry_label,
    check_name,
    check_task_end,
    checked_title,
)
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, HasId
from flue_py.sessions.marks import Marks
from flue_py.sessions.money import Spending, model_of, window_of
from flue_py.sessions.write import (
    Artifacts,
    Writing,
    artifact_entry,
    new_fork,
    new_task,
    with_oddities,
    write_what_fits,
)

if TYPE_CHECKING:
    from flue_py.compaction import material as hooks
    from flue_py.compaction import modes
    from flue_py.compaction import settings as policy
    from flue_py.compaction.material import BeforeCompaction
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.plan import CompactionResult
    from flue_py.compaction.settings import CompactionSettings
    from flue_py.context import tokens
    from flue_py.context.request import ContextRequest
    from flue_py.core.erasure import Redaction
    from flue_py.core.model import Model
    from flue_py.sessions import compact as summaries
    from flue_py.sessions import files as tracked
    from flue_py.sessions import request as requests
else:
    # Most sessions are never compacted, and a command should start without these.
    summaries = lazy_module("flue_py.sessions.compact")
    tracked = lazy_module("flue_py.sessions.files")
    requests = lazy_module("flue_py.sessions.request")
    hooks = lazy_module("flue_py.compaction.material")
    modes = lazy_module("flue_py.compaction.modes")
    policy = lazy_module("flue_py.compaction.settings")
    tokens = lazy_module("flue_py.context.tokens")


_WATCH_PAGE = 100


class Session(Writing):
    """A handle on one session. Handles are made by a `Store`, by `fork`, `copy` and
    `tasks.create`.

    **Order.** Calls on one handle run one after the other, in the order they were made, and chain: the leaf
    that an append or a move builds on (``leaf_id``) is looked up when it runs, not when it is called. Conflicts
    (`LeafConflict`) therefore arise between handles, and between processes, only; call `refresh` after one.

    **Its leaf.** ``leaf_id`` is the leaf after this handle's last write or `refresh`, or that of the context
    it last read to have it answered: `build_context`, `build_context_entries`, `request` and `context.attempts` without
    ``leaf=`` take over the stored leaf. Every other read leaves it alone, and so do these with ``leaf=``. After
    an append that landed on a sibling branch, ``leaf_id`` is the end of that branch, so that the rest of a turn
    can land there too; ``leaf=session.leaf_id`` reads there, `refresh` goes back.

    **Expectations.** Every write takes ``expected_leaf`` and ``expected_revision``, as the caller has seen them, and
    compares them with the stored ones in the transaction that writes: `RevisionConflict`, `LeafConflict`. Left out, the
    leaf is this handle's for writes that build on it (appends, moves, undo, exclusions, checkpoints of files), and is
    not compared by anything else; so is the revision. An earlier result of an ``idempotency_key`` is returned first.

    **Cancellation.** A commit that has begun is finished, and the handle brought up to date, before the
    cancellation is raised. A call that is still waiting for its turn has no effect.

    Every method raises `SessionNotFound` once the session has been deleted, also if its key has been used
    again, and `StoreClosed` once the store is closed. A call that raises has changed nothing.
    """

    __slots__ = ()

    @property
    def marks(self) -> Marks:
        """Labels, pins, exclusions and registered texts."""
        return Marks(self)

    @property
    def money(self) -> Spending:
        """Budgets and paid calls."""
        return Spending(self)

    @property
    def compactions(self) -> summaries.Compactions:
        """Compactions, their prices and their losses."""
        return summaries.Compactions(self)

    @property
    def context(self) -> requests.Context:
        """The size, the beginning, the sources and the requests of the context."""
        return requests.Context(self)

    @property
    def branches(self) -> Branches:
        """Common ancestors, differences, and entries that are taken over."""
        return Branches(self)

    @property
    def tasks(self) -> Tasks:
        """Task sessions."""
        return Tasks(self)

    @property
    def artifacts(self) -> Artifacts:
        """Results of tools that are stored whole."""
        return Artifacts(self)

    @property
    def files(self) -> tracked.Files:
        """Checkpoints of the files that tools edit."""
        return tracked.Files(self)

    @property
    def reports(self) -> requests.Reports:
        """Reports as HTML and JSON lines."""
        return requests.Reports(self)

    async def set_title(
        self, title: str | None, *, auto: bool = False, **options: Unpack[handle.EditOptions]
    ) -> SessionInfo:
        """Set or clear the title, and return the session's row. O(1).

        A title of white space only is none. With ``auto`` it is the title that a program made. It is kept apart: a
        title that was given is shown before it, whichever came later (`SessionInfo.shown_title`).
        """
        title, is_own = checked_title(title), not handle.checked_flag(auto, "auto")
        note, seen = handle.checked_edit(**options)
        update = UpdateSession(self._ref, expected=seen, note=note)
        return await self._do(replace(update, title=title) if is_own else replace(update, auto_title=title))

    async def set_metadata(
        self, metadata: Mapping[str, object], *, merge: bool = False, **options: Unpack[handle.EditOptions]
    ) -> SessionInfo:
        """Replace the metadata, and return the session's row.

        With ``merge`` only the top-level keys given are replaced, in one transaction: of two handles that merge at
        the same time, neither loses the keys of the other. Values of links are passed over, so that `metadata` may be
        changed and given back: a ``parentSession``, ``taskId`` or ``depth`` that the link has, too, and such items of
        ``taskSessions``. Anything else under these names is stored, and stands before those of links. The memory
        of a `CompactionGuard` stays, unless its key is given. Raises `InvalidArgument`, `InvalidEntry`.
        """
        if metadata is None:
            raise InvalidArgument("metadata: should be an object, not None; {} takes all of yours away")
        text = handle.checked_metadata(metadata, self._limits)
        change = handle.ChangedMetadata(text, handle.checked_flag(merge, "merge"), self._limits)
        note, seen = handle.checked_edit(**options)
        return await self._do(UpdateSession(self._ref, metadata_text=change, expected=seen, note=note))

    async def set_completed(self, at: datetime | None, **options: Unpack[handle.EditOptions]) -> SessionInfo:
        """Note when the session's work was completed, or with None that it goes on; return the session's row."""
        moment = None if at is None else handle.checked_moment(at)
        note, seen = handle.checked_edit(**options)
        return await self._do(UpdateSession(self._ref, completed_us=moment, expected=seen, note=note))

    async def changes(self, *, after: int = 0, limit: int = 100) -> list[Change]:
        """Return up to ``limit`` (1 to 1000) revisions after ``after``, in order and gap-free.

        Each is whole. The append of an entry that was retracted later is kept. A fork's feed begins at its
        creation. Leaves the handle alone. Raises `InvalidArgument`.
        """
        handle.checked_limit(limit)
        handle.checked_revision(after)
        return await self._ask(self._backend.changes, after, limit)

    async def watch(self, *, after: int | None = None) -> AsyncGenerator[Change, None]:
        """Yield every change after a revision (default: the handle's), then each as it comes, from any process.

        Resume with the ``revision`` of the last change seen. Runs beside the handle's other calls, and leaves
        the handle alone. Ends when the store is closed; raises `SessionNotFound` once the session is deleted.
        """
        seen = self._revision if after is None else handle.checked_revision(after)
        has_begun = False
        try:
            async with aclosing(self._backend.notifications(self._ref)) as woken:
                async for _ in woken:
                    has_begun = True
                    while page := await self._backend.changes(self._ref, seen, _WATCH_PAGE):
                        for change in page:
                            seen = change.revision
                            yield change
        except errors.StoreClosed:
            if not has_begun:
                raise

    async def compact(
        self,
        model: Model | None = None,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        dry_run: bool = False,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        aligned: bool = True,
        before_compaction: BeforeCompaction | None = None,
        **options: Unpack[handle.SeenOptions],
    ) -> CompactionResult:
        """Replace the beginning of the context by a text that stands for it, and return the result, or why nothing was
        done.

        The end of the context stays word for word (``settings.keep_recent_tokens``; without ``settings``, where a model
        is asked, only the debt of the last turn). The text of the rest is made by ``mode``, by default that of the
        settings (``llm``), which asks ``model``, with ``instructions`` in place of ours, which only the system prompt
        has then. ``window`` is the context window of the session's own model in tokens, by default that of the model of
        its latest answer, as far as it is known, and otherwise that of ``model``; kept and reserved tokens are made to
        fit into it, beside ``system`` and ``tools``. One entry is appended when the text is there, and nothing before:
        a failure changes nothing but the ledger, which has the cost of each call as soon as it is answered. Messages
        that were appended meanwhile stay in the context. If the leaf was moved elsewhere, or somebody else compacted,
        nothing is appended. With ``dry_run``, no model is asked. `undo` takes it back. While a guard compacts the
        session, in whatever process, nothing is made, for the reason ``elsewhere``. ``expected_leaf`` and
        ``expected_revision`` are compared before anything is planned.

        ``system`` and ``tools`` are those of the session's own requests ("" and () for none). If both are given,
        and ``model`` is the session's, a summary is asked for by the last request with one message more, so that most
        of it is read from the provider's cache; where that cannot be, ``notes`` say why, and a transcript is sent. Who
        sends something else than the context as it is, for example after settings, says ``aligned=False``.

        ``before_compaction`` is asked when there is a plan, before anything is made: it returns None to go on,
        `Cancelled`, or the text itself (`flue_py.compaction.material`), which is appended as one of a mode would be.
        Its errors are raised, and nothing is changed.

        Where budgets cover the session, they are asked for each call before it is made, and charged with its usage.

        Raises `SummaryFailed`, whose cause is `BudgetExceeded` or the model's error, `LeafConflict`,
        `RevisionConflict`, and `InvalidArgument` for a mode that needs a model where there is none. The cost of the
        context, and of the model.
        """
        handle.checked_flag(dry_run, "dry_run")
        handle.checked_flag(aligned, "aligned")
        handle.checked_text(instructions, "instructions")
        tokens.checked_request(None, None, system, tools)
        summaries.checked_hook(before_compaction)
        summarizer = None if model is None else model_of(model)
        maker = modes.checked_mode(mode, settings, has_model=summarizer is not None or dry_run)
        await self._compare(handle.checked_seen(**options))
        basis = await self.compactions._basis_of(
            maker, settings, window, summarizer=summarizer, system=system, tools=tools
        )
        own_requests = None if system is None or tools is None else summaries.Requests(system, tools, aligned)
        return await self.compactions._compact(
            basis, summarizer, instructions, dry_run=dry_run, requests=own_requests, hook=before_compaction
        )

    async def navigate(
        self,
        entry_id: str,
        *,
        summary: str | BranchSummary | Summarizing | None = None,
        label: str | None = None,
        model: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        **options: Unpack[handle.EditOptions],
    ) -> Navigated:
        """Go to an entry that the session sees, and return where that led.

        If it is a message of the user or a ``custom_message``, its parent becomes the leaf, and its text the ``draft``,
        to be changed and sent again. Any other entry becomes the leaf itself. If it is the leaf already, nothing
        changes. It is one step of `undo`.

        With ``summary``, a branch summary is appended below the new leaf, in the same transaction. It names that leaf
        (``fromId``; "root" before the first entry) and the one that was left (``abandonedLeafId``). A callback gets the
        branch that is left (`Leaving`), and returns the summary, None to go without one, or False to stay: then the
        result is ``cancelled``. If it raises, nothing has changed. ``label`` is put on the summary, or else on the
        entry.

        With ``model``, ``mode`` or ``settings`` in its place, the summary is made as `compact` makes one, of the
        context at the leaf below the common ancestor, with further ``instructions``; without anything there, none. Each
        call is in the ledger, for ``branch_summary``, before its answer is used. If the summary fails, the leaf stays
        where it was.

        Raises `EntryNotFound`, `InvalidArgument`, `SummaryFailed`, whose cause is the model's error, and `LeafConflict`
        if the leaf was moved meanwhile, also by a message that was appended. O(1), and with a callback or a model,
        O(branch that is left).
        """
        handle.checked_id(entry_id, "entry_id")
        check_entry_label(label)
        if not (summary is None or isinstance(summary, str | BranchSummary) or callable(summary)):
            raise no_summary(summary)
        making = checked_making(model, mode, settings, instructions, window)
        if making is not None:
            if summary is not None:
                raise InvalidArgument("summary: give either a summary, or the model or mode that makes it")
            summary = self._made_by(making)
        note, seen = handle.checked_edit(**options)
        async with self._turn:
            await self._compare(seen)
            left, expected = self._built_on(seen), self._expected(seen)
            entry = await self._backend.get_entry(self._ref, entry_id)
        if entry is None:
            raise errors.EntryNotFound(self.id, entry_id)
        if entry_id == left:
            return Navigated(left, left, self.revision)
        to, draft = (entry.parent_id, message_text(entry.fields)) if is_editable(entry) else (entry_id, None)
        answer = await self._answer(summary, left, to) if callable(summary) else summary
        if answer is False:
            return Navigated(left, left, self.revision, cancelled=True)
        new_entry = None if answer is None else leaving(summary_entry(answer), to, left)

        async def write(priced: Sequence[NewEntry]) -> Navigated:
            return await self._commit(
                lambda: self._backend.navigate(
                    self._ref,
                    to,
                    summary=priced[0] if priced else None,
                    label=label,
                    labelled=entry_id,
                    expected=expected,
                    note=note,
                ),
                lambda went: self._note(went.to_id, went.revision),
            )

        entries = [] if new_entry is None else [new_entry]
        self._limits.check_entries(entries)
        went, _ = await write_what_fits(write, entries, self._pricer)
        return replace(went, draft=draft)

    def _made_by(self, making: BranchMaking) -> Summarizing:
        """Return a callback that has a summary made of the branch that is left."""

        async def summarize(leaving: Leaving) -> BranchSummary | None:
            items = (await self._read_context(leaving.from_id)).items
            return await self.branches._summary_of(
                making, items, leaving.common_id, shown_at=leaving.from_id, preamble=modes.PREAMBLE
            )

        return summarize

    async def _answer(self, ask: Summarizing, left: str | None, to: str | None) -> SummaryAnswer:
        """Return the callback's answer about the branch that is left. The session may be read and written meanwhile."""
        async with self._turn:
            common = await self._backend.common_ancestor(self._ref, self._ref, leaf=left, other_leaf=to)
            read = await self._backend.read_path_since(self._ref, common, leaf=left)
        answer = ask(Leaving(left, to, common, tuple(read.entries)))
        return await answer if isawaitable(answer) else answer

    async def request(self, target: str | None = None, **options: Unpack[requests.RequestOptions]) -> ContextRequest:
        """Return the request of an agent, as ``target`` takes it, with a report of the changes to the context.

        A target is ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``; without one the messages are
        ours, as `build_context` has them. The steps that ``settings`` ask for ``agent`` come first, then ``steps`` of
        your own; by default there are none. `ContextRequest.report` names the entries that each left out, cut or
        replaced, with the tokens.

        Then faults that a target would refuse are mended, and each repair is named: every call of a tool gets its
        result, every result has its call, ids and names fit, images are within the limits, users and answers take turns
        where that is asked for. With ``model``, the one that is asked, tokens are counted as it does, and reasoning of
        any other is left out; without, tokens are those of the model that the path has. ``account`` is whose a
        compaction by the provider itself has to be. The session is not changed, and the same leaf gives the same bytes.

        ``system`` is a prompt that the session does not have, and goes before all else; ``tools`` are those that are
        sent beside the messages, in whatever form. Both count in `ContextRequest.tokens`, and in its ``prefix_digest``:
        an answer that is appended with that (``produced_under``) has its signed reasoning in later requests as long as
        system, tools and the messages before it stay the same bytes.

        If the settings have a ``spec``, its sources are read now: ``sources`` are functions of yours by their names,
        beside those that come with the package. ``gathered``, from `gather_context`, is taken in their place, so that
        all requests of a turn say the same.

        `ContextRequest.broken` has the faults that could not be mended: a request that is too large, or has no message.
        Raises `EntryNotFound`, and `InvalidArgument`, for settings with the path of each field that is wrong. The cost
        of the context, and O(its size); other tasks go on meanwhile.
        """
        _, _, make = await self.context._requests(target, **options)
        return await self._backend.waiting.call(partial(make, ()))

    async def fork(
        self,
        *,
        at: LeafChoice = STORED,
        before: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[handle.ForkOptions],
    ) -> Self:
        """Return a new session of the same tree whose leaf is ``at`` (default: the stored leaf). It copies nothing.

        With ``before``, an entry that a person wrote (a message of the user, or a ``custom_message``), its leaf is that
        entry's parent, and its `draft` the text of the entry, to be changed and sent again. Scope, working directory
        and configuration path are those of this session unless given; it takes over no metadata. It sees the labels and
        pins of this session on the path they share, as they are at any time: those of its own win, and the entries it
        sees stay when this session is deleted. Raises `EntryNotFound`, `SessionExists`, `IdempotencyConflict`, and
        `InvalidArgument` for ``at`` with ``before`` and for an entry that no person wrote. O(1): one row; with ``id``,
        O(sessions of the tree).
        """
        handle.checked_leaf(at, "at")
        check_name(idempotency_key, "idempotency_key")
        new, seen = new_fork(self._info, self._limits, **options)
        scope = options.get("scope")
        draft = None
        async with self._turn:
            if before is not None:
                if not isinstance(at, Stored):
                    raise InvalidArgument("fork takes either at= or before=")
                at, draft = await self._before(handle.checked_id(before, "before"))
            info = await self._backend.fork(
                self._ref, at, new, scope=scope, expected=seen, idempotency_key=idempotency_key
            )
        return type(self)(self._backend, info, self._limits, self._pricer, draft)

    async def copy(self, **options: Unpack[handle.RowOptions]) -> Self:
        """Return a new session with all that this one sees, the branches beside the path, too, in a tree of its own.

        Its entries have the same ids, parents and times, and its leaf, labels and pins are those of this session.
        Scope, working directory and configuration path are, too, unless given. Its metadata name this session as
        ``copiedFrom``. Nothing is paid again, and the cost of the copied entries is this session's. Raises
        `SessionExists`, and then nothing is made. One transaction, O(entries).
        """
        new, _ = new_fork(self._info, self._limits, **options)
        about = {**decode_object(new.metadata_text), PROVENANCE: self.id}
        new = replace(new, metadata_text=handle.checked_metadata(about, self._limits))
        async with self._turn:
            marks = await self._backend.read_marks(self._ref)
            leaf = (await self._stored_info()).leaf_id
            entries = await self._backend.read_tree(self._ref)
            copies = [same_entry(entry, self.id) for entry in entries]
            there = {entry.id for entry in entries}
            seen = [mark for mark in marks if mark.kind != "retracted" and mark.entry_id in there]
            info = await self._backend.import_session(new, copies, leaf=leaf, marks=seen)
        return type(self)(self._backend, info, self._limits, self._pricer)

    async def _before(self, entry_id: str) -> tuple[str | None, str]:
        """Return the parent of an entry that a person wrote, and its text."""
        entry = await self._backend.get_entry(self._ref, entry_id)
        if entry is None:
            raise errors.EntryNotFound(self.id, entry_id)
        if not is_editable(entry):
            raise InvalidArgument(
                f"before: entry {entry_id!r} is not a message of the user; fork(at=...) takes any entry"
            )
        return entry.parent_id, message_text(entry.fields)

    async def move_leaf(
        self, to: str | None, *, idempotency_key: str | None = None, **options: Unpack[handle.EditOptions]
    ) -> Moved:
        """Set the leaf to any entry the session sees, or to None: before the first entry.

        ``by`` and ``why`` say who did it and why, for the `log`. Raises `LeafConflict`, `EntryNotFound`,
        `IdempotencyConflict`. O(1).
        """
        handle.checked_place(to, "to")
        note, seen = handle.checked_edit(**options)
        check_name(idempotency_key, "idempotency_key")
        return await self._do(MoveLeaf(self._ref, to, seen, note=note, idempotency_key=idempotency_key))

    async def rewind(
        self, *, to: LeafChoice = STORED, turns: int | None = None, **options: Unpack[handle.EditOptions]
    ) -> Moved | None:
        """Go back on the active path, and return the move; None if there is nothing to go back over.

        ``to`` names the entry that becomes the leaf (None: before the first). ``turns`` counts the turns of the path,
        as `turns` does: n keeps turns 1 to n, -n drops the last n, 0 drops all; numbers out of range are clamped.
        A turn ends where the next user message begins. Nothing is deleted, and `undo` takes it back.
        Raises `InvalidArgument` for anything but exactly one of the two, and where ``to`` is not on the path;
        `EntryNotFound`, `LeafConflict`. O(1) with ``to``; with ``turns`` it reads the path's user messages.
        """
        handle.check_rewind(to, turns)
        note, seen = handle.checked_edit(**options)
        return await self._commit(partial(self._rewind_now, to, turns, seen, note), self._note_move)

    async def _rewind_now(self, to: LeafChoice, turns: int | None, seen: Seen, note: Note) -> Moved | None:
        await self._compare(seen)
        leaf = self._built_on(seen)
        target = await self._rewind_target(to, turns, leaf)
        if target == leaf:
            return None
        return await self._backend.move(self._ref, target, expected=self._expected(seen), reason="rewind", note=note)

    async def undo(self, **options: Unpack[handle.EditOptions]) -> Moved | None:
        """Return the leaf to where it was before the last operation not yet undone; None if there is none.

        Operations are appends (a batch is one), moves, retractions, imports and going back, of this session, by
        any handle. Nothing is deleted. Raises `LeafConflict`, and `EntryNotFound` if the entry to return to
        has been deleted. O(1).
        """
        note, seen = handle.checked_edit(**options)
        return await self._do(Undo(self._ref, seen, note))

    async def redo(self, **options: Unpack[handle.EditOptions]) -> Moved | None:
        """Do again the operation undone last; None if there is none, or a new one came since. O(1)."""
        note, seen = handle.checked_edit(**options)
        return await self._do(Redo(self._ref, seen, note))

    async def remove_leaf_message(self, entry_id: str, **options: Unpack[handle.EditOptions]) -> bool:
        """Retract a failed leaf: it leaves every view of this session, and the leaf steps back.

        True only where the entry is the session's leaf, a message, and childless; otherwise nothing changes.
        The row, its cost and the move stay for the log and the ledger; `undo` brings it back. Where another
        session sees the entry, it stays visible there.
        """
        handle.checked_id(entry_id, "entry_id")
        note, seen = handle.checked_edit(**options)
        retract = partial(self._backend.retract, self._ref, entry_id, expected=seen, note=note)
        moved = await self._commit(retract, self._note_move)
        return moved is not None

    async def log(self, *, limit: int = 50, before: int | None = None) -> list[LogLine]:
        """Return the log of the last ``limit`` (1 to 1000) revisions, newest first; with ``before``, of those below it.

        One line for each revision: appends, moves, retractions, imports, compactions, exclusions, and changes of
        title, metadata, completion and marks, with who did it and why. A fork's log begins at its creation. Leaves
        the handle alone. O(limit), whatever the history. Raises `InvalidArgument`.
        """
        handle.checked_limit(limit)
        if before is not None:
            handle.checked_revision(before, "before")
        return await self._ask(self._backend.read_log, before=before, limit=limit)

    async def redact(
        self,
        entry: str | Sequence[str],
        why: str,
        *,
        by: str | None = None,
        dry_run: bool = False,
        despite_holds: Sequence[str] = (),
        **options: Unpack[handle.SeenOptions],
    ) -> Redaction:
        """Take the payload of an entry, or of several, for good, and leave a tombstone that says who did so and why.

        Everything below stays as it is: the tombstone keeps the entry's place, digest, role, ids of tool calls, and
        usage, so that contexts stay valid; its text is ``[redacted by ...: why]``, for the model, too. With the payload
        go its attachments, the artifact of a tool's result, the words in the index, and the preview and the automatic
        title that were made of it. Forks that see the entry go on without its text. Summaries that were made over it
        are named (``may_quote``), to be redacted as well if they say it, and so are copies in other histories.

        It is a line of the log, and cannot be taken back. An entry that was redacted before stays as it is
        (``already``). With ``dry_run`` nothing is changed. Raises `EntryNotFound`, `InvalidArgument` without a reason,
        and `OnHold` if a hold is on a session that sees one, and not in ``despite_holds``. O(entries of the store).
        """
        ids = [*dict.fromkeys(handle.checked_ids([entry] if isinstance(entry, str) else entry))]
        if not ids or not (handle.checked_text(why, "why") or "").strip():
            raise InvalidArgument("redact: takes the id of an entry, or of several, and a reason")
        handle.checked_flag(dry_run, "dry_run")
        note, seen = Note(by, why), handle.checked_seen(**options)
        despite = handle.checked_ids(despite_holds)
        return await self._ask(self._backend.redact, ids, expected=seen, note=note, dry_run=dry_run, despite=despite)

    async def go_back(self, *, to: int, before: bool = False, **options: Unpack[handle.EditOptions]) -> LogLine | None:
        """Bring back the state of line ``to`` of the log, and return the new line; None if it is so already.

        Of a line that set the title, the metadata, the completion, a label or a pin: that value. Of every other line:
        the leaf, as it was after that revision; 0 is the session as it was created. With ``before``, both as they were
        before the line, which takes its change back. Nothing else comes along: a move leaves titles and marks, an edit
        leaves the leaf. A move can be undone; an edit is a line of the log that can be gone back to. Entries on the
        way to the leaf that were retracted since come back, and `undo` retracts them again. Raises `InvalidArgument`
        for a revision that was not yet, `EntryNotFound` if the entry of the line has been deleted, `LeafConflict`.
        O(1), and with retracted entries, O(these).
        """
        handle.checked_revision(to, "to")
        handle.checked_flag(before, "before")
        note, seen = handle.checked_edit(**options)
        return await self._commit(partial(self._go_back_now, to, before and to > 0, seen, note), self._note_line)

    async def _go_back_now(self, to: int, before: bool, seen: Seen, note: Note) -> LogLine | None:
        # Left to the handle, the leaf is compared only where it is moved.
        expected = self._leaf_id if seen == NOTHING_SEEN else Seen(self._built_on(seen), seen.revision)
        return await self._backend.go_back(self._ref, to, before=before, expected=expected, note=note)

    def _note_line(self, line: LogLine | None) -> None:
        """Take over the new line: the leaf, or the edits of the session's row."""
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


class Tasks(Group[Session]):
    """The task sessions of a session, and its parents."""

    async def create(
        self, *, task_id: str, idempotency_key: str | None = None, **options: Unpack[handle.TaskOptions]
    ) -> Session:
        """Return a task session of its own history, linked to this one; the same ``task_id``, the same session.

        Its metadata name its ``parentSession`` (this session's id), ``taskId`` and ``depth``, whatever is given under
        these names; those of this session name it among their ``taskSessions`` (see `SessionInfo.metadata`). The link
        says ``running`` until `end`. The task is deleted with its parent. Raises `TaskDepthExceeded` at more than
        4 levels (see `Limits`) below a session that is no task, `SessionExists`, `IdempotencyConflict`. O(1).
        """
        check_name(idempotency_key, "idempotency_key")
        limits = self._session._limits
        new, seen = new_task(self._session._info, limits, task_id, **options)
        create = partial(self._backend.create_task, self._ref, task_id, new, expected=seen, max_depth=limits.task_depth)
        info = await self._session._commit(
            partial(create, idempotency_key=idempotency_key), partial(self._session._note_task, task_id)
        )
        return Session(self._backend, info, limits, self._session._pricer)

    async def end(
        self, status: TaskEnd, *, summary: str | None = None, **options: Unpack[handle.EditOptions]
    ) -> SessionInfo:
        """Note how this task ended, ``"done"`` or ``"failed"``, with a summary; return the session's row.

        The links of its parents say so from then on (`task_links`), and ``completed_us`` when, in one transaction. The
        same call again changes nothing; another end takes the place of the first, whose words the parents' logs keep.
        Raises `InvalidArgument` for a session that is no session's task, and for a summary of more than 20,000
        characters. O(parents).
        """
        check_task_end(status, summary)
        note, seen = handle.checked_edit(**options)
        return await self._session._do(EndTask(self._ref, status, summary, seen, note))

    async def links(self) -> list[TaskLink]:
        """Return the links to task sessions, in the order they were made. A link outlives its child."""
        return await self._ask(self._backend.task_links)

    async def parents(self) -> list[TaskLink]:
        """Return the links that point to this session, by parent id."""
        return await self._ask(self._backend.task_parents)


# ---------------------------------------------------------------------------------------------------------------------
# Summaries of branches, and the branches of a session.


class BranchMaking(Frozen):
    """How a branch is to be summarized, checked before anything is done."""

    model: Model | None
    mode: Mode
    settings: CompactionSettings
    instructions: str | None
    window: int | None


def checked_making(
    model: Model | None,
    mode: str | Mode | None,
    settings: CompactionSettings | None,
    instructions: str | None,
    window: int | None,
) -> BranchMaking | None:
    """Return how a branch is to be summarized; None where neither a model nor a mode nor settings ask for it."""
    handle.checked_text(instructions, "instructions")
    handle.optional(handle.checked_count, window, "window")
    if model is None and mode is None and settings is None:
        if instructions is not None or window is not None:
            raise InvalidArgument("instructions: nothing is summarized by a model; give a model, a mode or settings")
        return None
    model = None if model is None else model_of(model)
    mode = modes.checked_mode(mode, settings, has_model=model is not None)
    return BranchMaking(model, mode, policy.checked_settings(settings), instructions, window_of(window, model))


class Leaving(Frozen):
    """The branch that a navigation is about to leave: the entries after ``common_id`` up to the leaf, ``from_id``.

    ``to_id`` will be the leaf. Each id is None before the first entry.
    """

    from_id: str | None
    to_id: str | None
    common_id: str | None
    entries: tuple[Entry, ...]


class BranchSummary(Frozen):
    """A summary of a branch that was left: its text, and the calls it took (see `Session.append_branch_summary`)."""

    text: str
    details: JsonValue = None
    usage: Mapping[str, object] | None = None
    calls: Sequence[Mapping[str, object]] = field(default=())


SummaryAnswer: TypeAlias = str | BranchSummary | Literal[False] | None
Summarizing: TypeAlias = Callable[[Leaving], SummaryAnswer | Awaitable[SummaryAnswer]]


def summary_entry(answer: object) -> NewEntry:
    """Return a summary as an entry that does not name any leaf yet (see `leaving`). Raises `InvalidArgument`."""
    if isinstance(answer, str):
        answer = BranchSummary(answer)
    if not isinstance(answer, BranchSummary):
        raise no_summary(answer)
    return NewEntry.branch_summary(
        answer.text, from_id=None, details=answer.details, usage=answer.usage, calls=answer.calls
    )


def no_summary(value: object) -> InvalidArgument:
    return InvalidArgument(f"summary: should be a text, a BranchSummary or None, not {type(value).__name__}")


def _key_of(merged: MergedRange) -> str:
    return range_key("summary", merged.session_id, merged.after, merged.leaf_id)


class Branches(Group[Session]):
    """Common ancestors and differences of sessions and branches, and entries that are taken over."""

    async def common_ancestor(
        self, other: HasId | str | None = None, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> str | None:
        """Return the deepest entry on the path to ``leaf`` and on that to ``other_leaf``; None without one.

        ``other`` is the session that ``other_leaf`` is read in: this one where it is left out. A session of another
        tree, such as a task session, has nothing in common. Raises `SessionNotFound`, `EntryNotFound`. O(forks on
        the paths).
        """
        handle.checked_leaf(leaf)
        handle.checked_leaf(other_leaf, "other_leaf")
        other_id = self._session.ref if other is None else handle.checked_session(other)
        return await self._ask(self._backend.common_ancestor, other_id, leaf=leaf, other_leaf=other_leaf)

    async def diff(
        self, other: HasId | str | None = None, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> LeafDiff:
        """Return the entries of the path to ``leaf`` that the one to ``other_leaf`` has not, and the reverse.

        Arguments and errors are those of `common_ancestor`. The leaves are those stored as it begins. O(entries that
        differ + forks on the paths + calls of the trees).
        """
        handle.checked_leaf(leaf)
        handle.checked_leaf(other_leaf, "other_leaf")
        other_id = self._session.ref if other is None else handle.checked_session(other)
        async with self._session._turn:
            mine = await self._resolved(self._ref, leaf)
            theirs = await self._resolved(other_id, other_leaf)
            ancestor = await self._backend.common_ancestor(self._ref, other_id, leaf=mine, other_leaf=theirs)
            left = await self._side(self._ref, mine, ancestor)
            return LeafDiff(ancestor, left, await self._side(other_id, theirs, ancestor))

    async def _resolved(self, session_id: str, leaf: LeafChoice) -> str | None:
        """Return a leaf to read at as an id: where another writer moves the stored one, all reads stay with this."""
        if not isinstance(leaf, Stored):
            return leaf
        info = await self._backend.get_session(session_id)
        if info is None:
            raise errors.SessionNotFound(session_id)
        return info.leaf_id

    async def _side(self, session_id: str, leaf: str | None, ancestor: str | None) -> DiffSide:
        read = await self._backend.read_path_since(session_id, ancestor, leaf=leaf)
        window = await self._backend.read_usage(session_id, ancestor, leaf=leaf)
        entries = read.entries
        paid = await self._backend.read_entry_costs(session_id) if entries else {}
        return DiffSide(session_id, leaf, entries, window.usage, total_cost(entry_costs(entries, paid).values()))

    async def cherry_pick(
        self,
        entry_ids: Sequence[str],
        *,
        source: HasId | str | None = None,
        whole: bool = True,
        **options: Unpack[handle.SeenOptions],
    ) -> Appended:
        """Append copies of chosen entries of a branch, a fork or a task session below the leaf, in order of depth.

        ``source`` is the session that sees them: this one where it is left out. They have to lie on one path. A copy
        has an id of its own, the same payload, and in its ``extra`` where it comes from (`provenance_of`); its cost
        is counted where it was paid, and nowhere else. The artifact that a message refers to is copied before it.
        Done once: where the path already has the copies of these entries, the first result comes back (``replayed``).
        With ``whole`` a tool call and its result come together or not at all. Raises `EntryNotFound`, `LeafConflict`,
        and `InvalidArgument` for no entries, entries on different paths, compactions, exclusions, and half an exchange.
        O(entries).
        """
        handle.checked_flag(whole, "whole")
        seen = handle.checked_seen(**options)
        source_id = self._session.ref if source is None else handle.checked_session(source)
        if isinstance(entry_ids, (str, bytes)) or not isinstance(entry_ids, Sequence) or not entry_ids:
            raise InvalidArgument(f"entry_ids: {errors.shown(entry_ids)} is not a list of entry ids; name at least one")
        wanted = list(dict.fromkeys(handle.checked_id(entry_id, "entry_ids") for entry_id in entry_ids))

        async def pick() -> Appended:
            picked = await self._chosen(source_id, wanted)
            if whole:
                await self._check_whole(source_id, picked)
            await self._check_elsewhere(picked, self._session._built_on(seen))
            names = [name for entry in picked for name in (entry.session_id or source_id, entry.id)]
            copies = [copy for entry in picked for copy in await self._copies_of(entry, source_id)]
            return await self._append_once(range_key("pick", *names), seen, copies)

        return await self._session._commit(pick, self._session._note_append)

    async def _chosen(self, source_id: str, wanted: Sequence[str]) -> list[Entry]:
        picked = []
        for entry_id in wanted:
            entry = await self._backend.get_entry(source_id, entry_id)
            if entry is None:
                raise errors.EntryNotFound(source_id, entry_id)
            picked.append(entry)
        picked.sort(key=lambda entry: entry.depth)
        for entry in picked[:-1]:
            if not await self._backend.is_ancestor(source_id, entry.id, picked[-1].id):
                raise InvalidArgument(
                    f"entry_ids: {entry.id!r} is not on the path to {picked[-1].id!r}; pick from one path at a time"
                )
        return picked

    async def _copies_of(self, entry: Entry, source_id: str) -> list[NewEntry]:
        """Return the copy of an entry, after that of the artifact to which it refers."""
        copies = [copy_of(entry, source_id)]
        artifact_id = referred_artifact(entry.fields) if entry.kind == MESSAGE else None
        if artifact_id is not None:
            artifact = await artifact_entry(self._backend, source_id, artifact_id)
            if artifact is not None:
                entry_id = entry_prefix(artifact_id) + self._backend.new_entry_id()
                copies.insert(0, replace(copy_of(artifact, source_id), id=entry_id))
        return copies

    async def _check_whole(self, source_id: str, picked: Sequence[Entry]) -> None:
        """Raise `InvalidArgument` for half an exchange. Pairing depends on all entries in between."""
        if all(entry.kind != MESSAGE for entry in picked):
            return
        read = await self._backend.read_path_since(source_id, picked[0].parent_id, leaf=picked[-1].id)
        check_whole_exchanges(read.entries, {entry.id for entry in picked})

    async def _check_elsewhere(self, picked: Sequence[Entry], leaf: str | None) -> None:
        """Raise `InvalidArgument` if the path has one of the entries themselves."""
        for entry in picked:
            there = await self._backend.get_entry(self._ref, entry.id)
            if there != entry or leaf is None:
                continue
            if await self._backend.is_ancestor(self._ref, entry.id, leaf):
                raise InvalidArgument(f"entry_ids: entry {entry.id!r} is on the path to {leaf!r} already")

    async def merge_back(
        self,
        summary: str | None = None,
        *,
        source: HasId | str | None = None,
        source_leaf: LeafChoice = STORED,
        details: Mapping[str, object] | None = None,
        usage: Mapping[str, object] | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        model: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        **options: Unpack[handle.SeenOptions],
    ) -> Appended:
        """Append a summary of a branch, a fork or a task session, from where it parted from the leaf.

        The summary is a branch summary whose ``fromId`` is the leaf it sums up, and whose details say which stretch of
        which session it stands for (`merged_range_of`): the entries after the common ancestor, or all of a session of
        another tree. Done once for each stretch: where the path already has it, the first result comes back
        (``replayed``), whatever the summary says. Nothing is counted again: the cost of the branch stays where it was
        paid. ``usage`` and ``calls`` are those of the summary, as for `append_branch_summary`: the ledger
        counts them under the purpose ``branch_summary``, unless the summary was there already (a call paid for all
        that is for `record_call`). ``oddities`` name the numbers that cannot be counted, which refuses nothing.

        With ``model``, ``mode`` or ``settings`` in place of a summary, it is made as `compact` makes one, of the part
        of the stretch that the context at the source's leaf has, with further ``instructions``; of a stretch that the
        path has already, none is made. Each call is in the ledger, for ``branch_summary``, before its answer
        is used. If the summary fails, nothing is appended.

        Raises `EntryNotFound`, `LeafConflict`, `InvalidEntry`, `CallConflict`, `SummaryFailed`, whose cause is the
        model's error, and `InvalidArgument` if there is nothing to bring back. O(forks on the paths), and with a model
        or a mode, the cost of the source's context.
        """
        handle.checked_leaf(source_leaf, "source_leaf")
        seen = handle.checked_seen(**options)
        source_id = self._session.ref if source is None else handle.checked_session(source)
        if details is not None and (not isinstance(details, Mapping) or MERGED in details):
            raise InvalidArgument(f"details: should be an object without {MERGED!r}, which the summary brings along")
        making = checked_making(model, mode, settings, instructions, window)
        if making is not None and (summary is not None or usage is not None or calls):
            raise InvalidArgument(
                "summary, usage and calls: are those of a summary that you give; leave them out with a model or a mode"
            )
        if making is not None:
            return await self._merge_made(making, source_id, source_leaf, seen, details or {})
        if summary is None:
            raise InvalidArgument("summary: give one, or the model or mode that makes it")
        NewEntry.branch_summary(
            summary, from_id=None, details=None if details is None else dict(details), usage=usage, calls=calls
        )

        async def merge() -> Appended:
            merged = await self._range(source_id, source_leaf, self._session._built_on(seen))
            noted = {**(details or {}), MERGED: merged.as_json}
            entry = NewEntry.branch_summary(summary, from_id=merged.leaf_id, details=noted, usage=usage, calls=calls)
            return await self._append_merged(merged, entry, seen)

        return await self._session._commit(merge, self._session._note_append)

    async def _merge_made(
        self, making: BranchMaking, source_id: str, source_leaf: LeafChoice, seen: Seen, details: Mapping[str, object]
    ) -> Appended:
        """Have a summary made and append it, unless the path has one of the stretch already."""
        async with self._session._turn:
            into = self._session._built_on(seen)
            merged = await self._range(source_id, source_leaf, into)
            _, first = await self._recalled(_key_of(merged), seen)
            if first is not None:
                return first
            await self._session._compare(seen)
            read = await self._backend.read_context(source_id, leaf=merged.leaf_id)
        branch = await self._summary_of(
            making,
            context_of(read.entries, read.compaction),
            merged.after,
            shown_at=into,
            preamble=modes.MERGED_PREAMBLE,
        )
        if branch is None:
            raise InvalidArgument(
                f"session {source_id!r}: there is nothing to bring back: its context has nothing of what comes after "
                f"{merged.after!r}"
            )
        noted = {**cast("JsonObject", branch.details), **details, MERGED: merged.as_json}
        entry = NewEntry.branch_summary(branch.text, from_id=merged.leaf_id, details=noted, calls=branch.calls)

        async def merge() -> Appended:
            now = self._session._built_on(seen)
            if now != into and await self._range(source_id, merged.leaf_id, now) != merged:
                # The leaf was moved meanwhile to where another stretch would have to be summarized.
                raise errors.LeafConflict(self._session.id, into, now)
            return await self._append_merged(merged, entry, seen)

        return await self._session._commit(merge, self._session._note_append)

    async def _append_merged(self, merged: MergedRange, summary: NewEntry, seen: Seen) -> Appended:
        """Append the summary of a stretch, once."""
        write = partial(self._append_once, _key_of(merged), seen)
        appended, written = await write_what_fits(write, [summary], self._session._pricer)
        return appended if appended.replayed else with_oddities(appended, written)

    async def _range(self, source_id: str, source_leaf: LeafChoice, into: str | None) -> MergedRange:
        leaf = await self._resolved(source_id, source_leaf)
        after = await self._backend.common_ancestor(self._ref, source_id, leaf=into, other_leaf=leaf)
        if leaf is None or leaf == after:
            raise InvalidArgument(
                f"session {source_id!r}: there is nothing to bring back: its leaf {leaf!r} is on the path already"
            )
        entry = await self._backend.get_entry(source_id, leaf)
        if entry is None:
            raise errors.EntryNotFound(source_id, leaf)
        before = None if after is None else await self._backend.get_entry(source_id, after)
        return MergedRange(source_id, after, leaf, entry.depth - (-1 if before is None else before.depth))

    async def _append_once(self, key: str, seen: Seen, entries: Sequence[NewEntry]) -> Appended:
        """Append, unless the path to the leaf has the append of this key already; return the first result.

        An append that was undone, or lies on another branch, does not count: it is appended anew, under the next key.
        """
        while True:
            numbered, first = await self._recalled(key, seen)
            if first is not None:
                return first
            # Another writer may just have brought the same stretch, in other words.
            with suppress(errors.IdempotencyConflict):
                return await self._backend.append(
                    self._ref, entries, expected=self._session._expected(seen), idempotency_key=numbered
                )

    async def _recalled(self, key: str, seen: Seen) -> tuple[str, Appended | None]:
        """Return the first result of the append of a key, if the path to the leaf has it, else None.

        Before it comes the name under which it was appended, or is to be.
        """
        number = 0
        while (first := await self._backend.recall_append(self._ref, f"{key}:{number}")) is not None:
            leaf = self._session._built_on(seen)
            # The entry may have been deleted since, with the session that had added it.
            with suppress(errors.EntryNotFound):
                if leaf is not None and await self._backend.is_ancestor(self._ref, first.entry_id, leaf):
                    return f"{key}:{number}", replace(first, leaf_id=leaf, revision=self._session._revision)
            number += 1
        return f"{key}:{number}", None

    async def is_ancestor(self, entry_id: str, *, of: str) -> bool:
        """Return whether ``entry_id`` is ``of`` or an ancestor of it. Raises `EntryNotFound` for either."""
        handle.checked_id(entry_id, "entry_id")
        handle.checked_id(of, "of")
        return await self._ask(self._backend.is_ancestor, entry_id, of)

    async def children(self, entry_id: str | None) -> list[Entry]:
        """Return the entries that the session sees whose parent is ``entry_id``, in the order of `get_tree`.

        For None, the roots. Retracted entries are left out. O(children, those that only other sessions see included).
        Raises `EntryNotFound` for an entry the session does not see.
        """
        handle.checked_place(entry_id, "entry_id")
        return await self._ask(self._backend.children, entry_id)

    async def neighbours(self, entry_id: str, count: int) -> list[Entry]:
        """Return an entry with up to ``count`` entries before it and ``count`` behind it on its branch, in order.

        Where branches part behind it, the one to the leaf is followed, else the newest. Raises `EntryNotFound`.
        O(count and the children of these entries).
        """
        handle.checked_id(entry_id, "entry_id")
        handle.checked_count(count, "count")
        entries, leaf = await self._session.get_active_path(leaf=entry_id, limit=count + 1), self._session.leaf_id
        for _ in range(count):
            children = await self.children(entries[-1].id)
            if not children:
                break
            on_path = [child for child in children if leaf is not None and await self.is_ancestor(child.id, of=leaf)]
            entries.append((on_path or children)[-1])
        return entries

    async def _summary_of(
        self,
        making: BranchMaking,
        items: Sequence[ContextEntry],
        common: str | None,
        *,
        shown_at: str | None,
        preamble: str,
    ) -> BranchSummary | None:
        """Return the summary of the items of a context after ``common``, behind a preamble, with the calls it took.

        It is counted by the model that this session has at the leaf ``shown_at``. None if there is nothing to
        summarize. Raises `SummaryFailed`, whose cause is the model's error.
        """
        entry = None if common is None else await self._session.get_entry(common)
        above = -1 if entry is None else entry.depth
        compactions, model = self._session.compactions, making.model
        counter = await compactions._counter_at(shown_at)
        planned = modes.plan_branch([item for item in items if item.entry.depth > above], making.settings)
        if planned is None:
            return None
        asker = None if model is None else compactions._asker_of(model, making.settings, BRANCH_SUMMARY)
        material = hooks.Material(
            planned,
            counter.count,
            None if planned.previous is None else planned.previous.details,
            making.instructions,
            making.window,
            None if model is None else model.context_window,
            summarizer_output=None if model is None else model.max_output_tokens,
        )
        material = modes.within_budget(material, preamble)
        if planned.leaving:
            text = await modes.make_text(making.mode, material, asker)
            if not text.text.strip():
                raise errors.SummaryFailed(making.mode.name, "it made no text")
        else:
            text = modes.told_by_summaries(planned)
        text = modes.held_to_budget(text, material, preamble)
        notes: JsonObject = {"notes": [*text.notes]} if text.notes else {}
        calls = () if asker is None else tuple(asker.calls)
        return BranchSummary(preamble + text.text, {**text.details, **notes}, calls=calls)
