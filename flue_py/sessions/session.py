"""The public `Session`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from flue_py.core.context import PROVENANCE, is_editable, same_entry
from flue_py.core.entries import NewEntry, leaving
from flue_py.core.json import JsonValue, decode_object
from flue_py.core.kinds import message_text
from flue_py.core.operations import EndTask, MoveLeaf, Redo, Undo, UpdateSession
from flue_py.core.sessions import (
    NOTHING_SEEN,
    STORED,
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
from flue_py.errors import EntryNotFound, InvalidArgument, StoreClosed
from flue_py.lazy import lazy_module
from flue_py.sessions.compact import (
    Around,
    Branches,
    BranchMaking,
    BranchSummary,
    Compactions,
    Leaving,
    Summarizing,
    SummaryAnswer,
    checked_hook,
    checked_making,
    no_summary,
    summary_entry,
)
from flue_py.sessions.handle import (
    ChangedMetadata,
    Group,
    check_rewind,
    checked_flag,
    checked_id,
    checked_leaf,
    checked_limit,
    checked_metadata,
    checked_moment,
    checked_place,
    checked_revision,
    checked_seen,
    checked_text,
)
from flue_py.sessions.marks import Marks
from flue_py.sessions.money import Spending, model_of
from flue_py.sessions.request import Context, Reports, offered_tools
from flue_py.sessions.write import Artifacts, Writing, new_fork, new_task, write_what_fits

if TYPE_CHECKING:
    from flue_py.compaction import modes
    from flue_py.compaction.material import BeforeCompaction
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.plan import CompactionResult
    from flue_py.compaction.settings import CompactionSettings
    from flue_py.context import tokens
    from flue_py.context.pipeline import Step
    from flue_py.context.request import ContextRequest
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources import GatheredContext, SourceReader
    from flue_py.core.model import Model
else:
    # Most sessions are never compacted, and a command should start without these.
    modes = lazy_module("flue_py.compaction.modes")
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
    leaf is this handle's for writes that build on it (appends, moves, undo, exclusions), and is not compared by
    anything else; so is the revision. An earlier result of an ``idempotency_key`` is returned first.

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
    def compactions(self) -> Compactions:
        """Compactions, their prices and their losses."""
        return Compactions(self)

    @property
    def context(self) -> Context:
        """The size, the beginning, the sources and the requests of the context."""
        return Context(self)

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
    def reports(self) -> Reports:
        """Reports as HTML and JSON lines."""
        return Reports(self)

    async def set_title(
        self,
        title: str | None,
        *,
        auto: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Set or clear the title, and return the session's row. O(1).

        A title of white space only is none. With ``auto`` it is the title that a program made. It is kept apart: a
        title that was given is shown before it, whichever came later (`SessionInfo.shown_title`).
        """
        title, is_own = checked_title(title), not checked_flag(auto, "auto")
        update = UpdateSession(self._ref, expected=checked_seen(expected_leaf, expected_revision), note=Note(by, why))
        return await self._do(replace(update, title=title) if is_own else replace(update, auto_title=title))

    async def set_metadata(
        self,
        metadata: Mapping[str, JsonValue],
        *,
        merge: bool = False,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
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
        text = checked_metadata(metadata, self._limits)
        change = ChangedMetadata(text, checked_flag(merge, "merge"), self._limits)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._do(UpdateSession(self._ref, metadata_text=change, expected=seen, note=note))

    async def set_completed(
        self,
        at: datetime | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Note when the session's work was completed, or with None that it goes on; return the session's row."""
        moment = None if at is None else checked_moment(at)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._do(UpdateSession(self._ref, completed_us=moment, expected=seen, note=note))

    async def changes(self, *, after: int = 0, limit: int = 100) -> list[Change]:
        """Return up to ``limit`` (1 to 1000) revisions after ``after``, in order and gap-free.

        Each is whole. The append of an entry that was retracted later is kept. A fork's feed begins at its
        creation. Leaves the handle alone. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        checked_revision(after)
        return await self._ask(self._backend.changes, after, limit)

    async def watch(self, *, after: int | None = None) -> AsyncGenerator[Change, None]:
        """Yield every change after a revision (default: the handle's), then each as it comes, from any process.

        Resume with the ``revision`` of the last change seen. Runs beside the handle's other calls, and leaves
        the handle alone. Ends when the store is closed; raises `SessionNotFound` once the session is deleted.
        """
        seen = self._revision if after is None else checked_revision(after)
        has_begun = False
        try:
            async with aclosing(self._backend.notifications(self._ref)) as woken:
                async for _ in woken:
                    has_begun = True
                    while page := await self._backend.changes(self._ref, seen, _WATCH_PAGE):
                        for change in page:
                            seen = change.revision
                            yield change
        except StoreClosed:
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
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        aligned: bool = True,
        before_compaction: BeforeCompaction | None = None,
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
        checked_flag(dry_run, "dry_run")
        checked_flag(aligned, "aligned")
        checked_text(instructions, "instructions")
        tokens.checked_request(None, None, system, tools)
        checked_hook(before_compaction)
        summarizer = None if model is None else model_of(model)
        maker = modes.checked_mode(mode, settings, has_model=summarizer is not None or dry_run)
        await self._compare(checked_seen(expected_leaf, expected_revision))
        basis = await self.compactions._basis_of(maker, settings, window, asked=summarizer, system=system, tools=tools)
        requests = None if system is None or tools is None else Around(system, tools, aligned)
        return await self.compactions._compact(
            basis, summarizer, instructions, dry_run=dry_run, around=requests, hook=before_compaction
        )

    async def navigate(
        self,
        entry_id: str,
        *,
        summary: str | BranchSummary | Summarizing | None = None,
        label: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
        model: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
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
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        if not (summary is None or isinstance(summary, str | BranchSummary) or callable(summary)):
            raise no_summary(summary)
        making = checked_making(model, mode, settings, instructions, window)
        if making is not None:
            if summary is not None:
                raise InvalidArgument("summary: give either a summary, or the model or mode that makes it")
            summary = self._made_by(making)
        note = Note(by, why)
        seen = checked_seen(expected_leaf, expected_revision)
        async with self._turn:
            await self._compare(seen)
            left, expected = self._built_on(seen), self._expected(seen)
            entry = await self._backend.get_entry(self._ref, entry_id)
        if entry is None:
            raise EntryNotFound(self.id, entry_id)
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
        went, _ = await write_what_fits(write, self._pricer.price_entries(entries))
        return replace(went, draft=draft)

    def _made_by(self, making: BranchMaking) -> Summarizing:
        """Return a callback that has a summary made of the branch that is left."""

        async def summarize(leaving: Leaving) -> BranchSummary | None:
            items = (await self._read_context(leaving.from_id)).items
            summary = await self.compactions._told_branch(
                making, items, leaving.common_id, shown_at=leaving.from_id, preamble=modes.PREAMBLE
            )
            return None if summary is None else BranchSummary(summary.text, summary.details, calls=summary.calls)

        return summarize

    async def _answer(self, ask: Summarizing, left: str | None, to: str | None) -> SummaryAnswer:
        """Return the callback's answer about the branch that is left. The session may be read and written meanwhile."""
        async with self._turn:
            common = await self._backend.common_ancestor(self._ref, self._ref, leaf=left, other_leaf=to)
            read = await self._backend.read_path_since(self._ref, common, leaf=left)
        answer = ask(Leaving(left, to, common, tuple(read.entries or ())))
        return await answer if isawaitable(answer) else answer

    async def request(
        self,
        target: str | None = None,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        steps: Sequence[Step] = (),
        model: str | None = None,
        account: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] = (),
        sources: Mapping[str, SourceReader] | None = None,
        gathered: GatheredContext | None = None,
    ) -> ContextRequest:
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
        offered = offered_tools(system, tools)
        _, make = await self.context._requests(
            target, leaf, agent, settings, steps, model, account, system, offered, sources, gathered
        )
        return await self._backend.waiting.call(partial(make, ()))

    async def fork(
        self,
        *,
        at: LeafChoice = STORED,
        before: str | None = None,
        id: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
        idempotency_key: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
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
        checked_leaf(at, "at")
        seen = checked_seen(expected_leaf, expected_revision)
        check_name(idempotency_key, "idempotency_key")
        new = new_fork(self._info, self._limits, id=id, scope=scope, key=key, title=title, metadata=metadata, cwd=cwd)
        draft = None
        async with self._turn:
            if before is not None:
                if not isinstance(at, Stored):
                    raise InvalidArgument("fork takes either at= or before=")
                at, draft = await self._before(checked_id(before, "before"))
            info = await self._backend.fork(
                self._ref, at, new, scope=scope, expected=seen, idempotency_key=idempotency_key
            )
        return type(self)(self._backend, info, self._limits, self._pricer, draft)

    async def copy(
        self,
        *,
        id: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        cwd: str | None = None,
    ) -> Self:
        """Return a new session with all that this one sees, the branches beside the path, too, in a tree of its own.

        Its entries have the same ids, parents and times, and its leaf, labels and pins are those of this session.
        Scope, working directory and configuration path are, too, unless given. Its metadata name this session as
        ``copiedFrom``. Nothing is paid again, and the cost of the copied entries is this session's. Raises
        `SessionExists`, and then nothing is made. One transaction, O(entries).
        """
        new = new_fork(self._info, self._limits, id=id, scope=scope, key=key, title=title, metadata=metadata, cwd=cwd)
        about = {**decode_object(new.metadata_text), PROVENANCE: self.id}
        new = replace(new, metadata_text=checked_metadata(about, self._limits))
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
            raise EntryNotFound(self.id, entry_id)
        if not is_editable(entry):
            raise InvalidArgument(
                f"before: entry {entry_id!r} is not a message of the user; fork(at=...) takes any entry"
            )
        return entry.parent_id, message_text(entry.fields)

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
        return await self._do(MoveLeaf(self._ref, to, seen, note=note, idempotency_key=idempotency_key))

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
        as `turns` does: n keeps turns 1 to n, -n drops the last n, 0 drops all; numbers out of range are clamped.
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
        return await self._do(Undo(self._ref, checked_seen(expected_leaf, expected_revision), Note(by, why)))

    async def redo(
        self,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Moved | None:
        """Do again the operation undone last; None if there is none, or a new one came since. O(1)."""
        return await self._do(Redo(self._ref, checked_seen(expected_leaf, expected_revision), Note(by, why)))

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
        """Return the log of the last ``limit`` (1 to 1000) revisions, newest first; with ``before``, of those below it.

        One line for each revision: appends, moves, retractions, imports, compactions, exclusions, and changes of
        title, metadata, completion and marks, with who did it and why. A fork's log begins at its creation. Leaves
        the handle alone. O(limit), whatever the history. Raises `InvalidArgument`.
        """
        checked_limit(limit)
        if before is not None:
            checked_revision(before, "before")
        return await self._ask(self._backend.read_log, before=before, limit=limit)

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
        """Bring back the state of line ``to`` of the log, and return the new line; None if it is so already.

        Of a line that set the title, the metadata, the completion, a label or a pin: that value. Of every other line:
        the leaf, as it was after that revision; 0 is the session as it was created. With ``before``, both as they were
        before the line, which takes its change back. Nothing else comes along: a move leaves titles and marks, an edit
        leaves the leaf. A move can be undone; an edit is a line of the log that can be gone back to. Entries on the
        way to the leaf that were retracted since come back, and `undo` retracts them again. Raises `InvalidArgument`
        for a revision that was not yet, `EntryNotFound` if the entry of the line has been deleted, `LeafConflict`.
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
        self,
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
        """Return a task session of its own history, linked to this one; the same ``task_id``, the same session.

        Its metadata name its ``parentSession`` (this session's id), ``taskId`` and ``depth``, whatever is given under
        these names; those of this session name it among their ``taskSessions`` (see `SessionInfo.metadata`). The link
        says ``running`` until `end_task`. The task is deleted with its parent. Raises `TaskDepthExceeded` at more than
        4 levels (see `Limits`) below a session that is no task, `SessionExists`, `IdempotencyConflict`. O(1).
        """
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        new = new_task(
            self._session._info,
            self._session._limits,
            task_id=task_id,
            key=key,
            title=title,
            metadata=metadata,
            cwd=cwd,
        )
        depth = self._session._limits.task_depth
        create = partial(self._backend.create_task, self._ref, task_id, new, expected=seen, max_depth=depth)
        info = await self._session._commit(
            partial(create, idempotency_key=idempotency_key), partial(self._session._note_task, task_id)
        )
        return Session(self._backend, info, self._session._limits, self._session._pricer)

    async def end(
        self,
        status: TaskEnd,
        *,
        summary: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> SessionInfo:
        """Note how this task ended, ``"done"`` or ``"failed"``, with a summary; return the session's row.

        The links of its parents say so from then on (`task_links`), and ``completed_us`` when, in one transaction. The
        same call again changes nothing; another end takes the place of the first, whose words the parents' logs keep.
        Raises `InvalidArgument` for a session that is no session's task, and for a summary of more than 20,000
        characters. O(parents).
        """
        check_task_end(status, summary)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        return await self._session._do(EndTask(self._ref, status, summary, seen, note))

    async def links(self) -> list[TaskLink]:
        """Return the links to task sessions, in the order they were made. A link outlives its child."""
        return await self._ask(self._backend.task_links)

    async def parents(self) -> list[TaskLink]:
        """Return the links that point to this session, by parent id."""
        return await self._ask(self._backend.task_parents)
