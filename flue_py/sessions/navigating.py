"""Going to another entry of a session, with a summary of the branch that is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, TypeAlias

from flue_py.core.entries import Entry, NewEntry, leaving
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.log import Note
from flue_py.core.sessions import STORED, LeafChoice, Navigated, check_entry_label
from flue_py.core.spoken import message_text
from flue_py.core.turns import is_editable
from flue_py.errors import EntryNotFound, InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions.appending import write_what_fits
from flue_py.sessions.arguments import checked_id, checked_seen
from flue_py.sessions.branching import Branching, BranchMaking, checked_making

if TYPE_CHECKING:
    from flue_py.compaction import branches
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.core.model_seam import Model
else:
    branches = lazy_module("flue_py.compaction.branches")


@frozen
class Leaving:
    """What a navigation is about to leave: the entries after ``common_id`` up to the leaf, ``from_id``.

    ``to_id`` will be the leaf. Each id is None before the first entry.
    """

    from_id: str | None
    to_id: str | None
    common_id: str | None
    entries: tuple[Entry, ...]


@frozen
class BranchSummary:
    """A summary of what was left: its text, and what it took to write it (see `Session.append_branch_summary`)."""

    text: str
    details: JsonValue = None
    usage: Mapping[str, JsonValue] | None = None
    calls: Sequence[Mapping[str, JsonValue]] = field(default=())


SummaryAnswer: TypeAlias = str | BranchSummary | Literal[False] | None
"""A summary; None to go without one; False to stay."""

Summarizing: TypeAlias = Callable[[Leaving], SummaryAnswer | Awaitable[SummaryAnswer]]


class Navigating(Branching):
    """How a `Session` goes to another of its entries."""

    __slots__ = ()

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
        (``fromId``; "root" before the first entry) and the one that was left (``abandonedLeafId``). A callback gets
        what is left (`Leaving`), and returns the summary, None to go without one, or False to stay: then the result is
        ``cancelled``. If it raises, nothing has changed. ``label`` is put on the summary, or else on the entry.

        With ``model``, ``mode`` or ``settings`` in its place, the summary is made as `compact` makes one, of what the
        context at the leaf has below the common ancestor, with ``instructions`` about what to attend to; without
        anything there, none. Each call is in the ledger, for ``branch_summary``, before its answer is used. If the
        summary fails, the leaf stays where it was.

        Raises `EntryNotFound`, `InvalidArgument`, `SummaryFailed`, whose cause is the model's error, and `LeafConflict`
        if the leaf was moved meanwhile, also by a message that was appended. O(1), and with a callback or a model,
        O(what is left).
        """
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        if not (summary is None or isinstance(summary, str | BranchSummary) or callable(summary)):
            raise _no_summary(summary)
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
        made = None if answer is None else leaving(summary_entry(answer), to, left)

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

        entries = [] if made is None else [made]
        self._limits.check_entries(entries)
        went, _ = await write_what_fits(write, self._pricer.price_entries(entries))
        return replace(went, draft=draft)

    def _made_by(self, making: BranchMaking) -> Summarizing:
        """Return a callback that has a summary made of what is left."""

        async def summarize(leaving: Leaving) -> BranchSummary | None:
            items = (await self._read_context(leaving.from_id)).items
            told = await self._told_branch(
                making, items, leaving.common_id, shown_at=leaving.from_id, preamble=branches.PREAMBLE
            )
            return None if told is None else BranchSummary(told.text, told.details, calls=told.calls)

        return summarize

    async def _answer(self, ask: Summarizing, left: str | None, to: str | None) -> SummaryAnswer:
        """Return what the callback says of what is left. The session may be read and written meanwhile."""
        async with self._turn:
            common = await self._backend.common_ancestor(self._ref, self._ref, leaf=left, other_leaf=to)
            read = await self._backend.read_path_since(self._ref, common, leaf=left)
        answer = ask(Leaving(left, to, common, tuple(read.entries or ())))
        return await answer if isawaitable(answer) else answer


def summary_entry(answer: object) -> NewEntry:
    """Return a summary as an entry that does not name any leaf yet (see `leaving`). Raises `InvalidArgument`."""
    if isinstance(answer, str):
        answer = BranchSummary(answer)
    if not isinstance(answer, BranchSummary):
        raise _no_summary(answer)
    return NewEntry.branch_summary(
        answer.text, from_id=None, details=answer.details, usage=answer.usage, calls=answer.calls
    )


def _no_summary(given: object) -> InvalidArgument:
    return InvalidArgument(f"summary: should be a text, a BranchSummary or None, not {type(given).__name__}")
