"""Labels and pins of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flue_py import context
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.log import Note
from flue_py.core.pins import effective_pins
from flue_py.core.projection import ContextEntry, context_of
from flue_py.core.sessions import STORED, LeafChoice, Mark, Seen, check_entry_label, retracted_in
from flue_py.sessions.arguments import checked_id, checked_seen
from flue_py.sessions.handle import Handle


@frozen
class MarkEffect:
    """What pinning, excluding or taking back in did.

    ``entry_ids`` are the entries it was done to, in path order: the one that was named, and what belongs to it (a tool
    call and its results). ``before`` and ``after`` are the context at the leaf; a pin leaves it as it is, and acts when
    a compaction comes. ``items`` are those of the entries that a context would show, as they are.
    ``exclusion_ids`` are the entries that were appended for it. Tokens are counted when they are asked for, with the
    encoding of current models (see `flue_py.context.tokens`): O(text).
    """

    entry_ids: tuple[str, ...]
    before: tuple[ContextEntry, ...]
    after: tuple[ContextEntry, ...]
    items: tuple[ContextEntry, ...] = ()
    exclusion_ids: tuple[str, ...] = ()

    @property
    def tokens_before(self) -> int:
        """How many tokens the context took before."""
        return _tokens_of(self.before)

    @property
    def tokens_after(self) -> int:
        """How many tokens the context takes now."""
        return self.tokens_before if self.after == self.before else _tokens_of(self.after)

    @property
    def own_tokens(self) -> int:
        """How many tokens the entries take by themselves: what a pin makes every later compaction keep."""
        return _tokens_of(self.items)


def _tokens_of(items: Iterable[ContextEntry]) -> int:
    return context.tokens.count_tokens(item.data for item in items).tokens


class Marking(Handle):
    """What a `Session` labels and pins."""

    __slots__ = ()

    async def set_label(
        self,
        entry_id: str,
        label: str | None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> None:
        """Label an entry the session sees; None or "" clears. Raises `EntryNotFound`. O(1).

        What a fork labels or clears is its own: its source is left alone.
        """
        checked_id(entry_id, "entry_id")
        check_entry_label(label)
        note, seen = Note(by, why), checked_seen(expected_leaf, expected_revision)
        async with self._turn:
            await self._backend.set_label(self._ref, entry_id, label, expected=seen, note=note)

    async def labels(self) -> dict[str, str]:
        """Return the labels that this session sees, by entry id; not of entries it has retracted.

        A fork sees those of its source on the path they share, too. O(marks), and of a fork, O(forks above it).
        """
        async with self._turn:
            marks = await self._backend.read_marks(self._ref)
        retracted = retracted_in(marks)
        return {
            mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label" and mark.entry_id not in retracted
        }

    async def pin(
        self,
        entry_id: str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> MarkEffect:
        """Have every later compaction keep an entry word for word.

        With a tool call its results are pinned, and the reverse. The context stays as it is; a compaction
        appended from now on has the pinned entries of its path after its summary, ahead of what it keeps. Forks see a
        pin on the path they share, and what a compaction has pinned, until it is let go of there. Raises
        `EntryNotFound`, and `InvalidArgument` for an entry of a kind that no context has. The cost of the context.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._set_pin(entry_id, Note(by, why), seen, pinned=True)

    async def unpin(
        self,
        entry_id: str,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> MarkEffect:
        """Let go of a pinned entry, with what belongs to it: the next compaction no longer keeps it.

        What a compaction has pinned before stays in the context until then. Otherwise as `pin`.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._set_pin(entry_id, Note(by, why), seen, pinned=False)

    async def _set_pin(self, entry_id: str, note: Note, seen: Seen, *, pinned: bool) -> MarkEffect:
        checked_id(entry_id, "entry_id")
        async with self._turn:
            ids = await self._backend.set_pin(self._ref, entry_id, pinned, expected=seen, note=note)
            read = await self._backend.read_context(self._ref)
            items = tuple(context_of(read.entries or (), read.compaction))
            there = {item.entry_id: item for item in items}
            found = [there.get(each) or await self._lone_item(each) for each in ids]
            return MarkEffect(ids, items, items, tuple(item for item in found if item is not None))

    async def _lone_item(self, entry_id: str) -> ContextEntry | None:
        entry = await self._backend.get_entry(self._ref, entry_id)
        return None if entry is None or entry.kind not in SHOWN_KINDS else ContextEntry(entry)

    async def pins(self) -> list[str]:
        """Return the ids of the entries that the next compaction keeps, if they lie on its path.

        The session's own pins, and those of the latest compaction on the path to the stored leaf; first those in the
        context, in its order. The cost of the context.
        """
        async with self._turn:
            marks = await self._backend.read_marks(self._ref)
            known = self._context
            read = await self._backend.read_context(self._ref, unless=None if known is None else known.stamp)
        compaction, tail = read.compaction, read.entries or ()
        if read.entries is None and known is not None:
            # It is as it was when this handle last read it.
            compaction, tail = known.compaction, known.tail
        return pins_in(marks, compaction, tail)


def pins_in(marks: Sequence[Mark], compaction: Entry | None, tail: Sequence[Entry]) -> list[str]:
    """Return what `Marking.pins` does, of the marks of a session, the compaction in effect, and what it keeps."""
    retracted = retracted_in(marks)
    own = {mark.entry_id: mark.value or "on" for mark in marks if mark.kind == "pin" and mark.entry_id not in retracted}
    pinned = effective_pins(own, None if compaction is None else compaction.fields)
    order = {entry.id: number for number, entry in enumerate(tail)} if len(pinned) > 1 else {}
    return sorted(pinned, key=lambda entry_id: (order.get(entry_id, len(order)), entry_id))
