"""Taking entries over from other leaves, and comparing two leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flue_py.core.artifacts import entry_prefix, referred_artifact
from flue_py.core.costs import entry_costs, total_cost
from flue_py.core.diffing import DiffSide, LeafDiff
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.merging import MERGED, MergedRange, check_whole_exchanges, copy_of, range_key
from flue_py.core.projection import context_of
from flue_py.core.sessions import STORED, Appended, LeafChoice, Seen, Stored
from flue_py.errors import EntryNotFound, IdempotencyConflict, InvalidArgument, LeafConflict, SessionNotFound, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.appending import with_oddities, write_what_fits
from flue_py.sessions.arguments import HasId, checked_flag, checked_id, checked_leaf, checked_seen, checked_session
from flue_py.sessions.artifacts import artifact_entry
from flue_py.sessions.branching import Branching, BranchMaking, checked_making

if TYPE_CHECKING:
    from flue_py.compaction import branches
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.core.model_seam import Model
else:
    branches = lazy_module("flue_py.compaction.branches")


class Merging(Branching):
    """The half of a `Session` that looks at, and takes from, other leaves: its own branches, forks, task sessions."""

    __slots__ = ()

    async def common_ancestor(
        self, other: HasId | str | None = None, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> str | None:
        """Return the deepest entry on the path to ``leaf`` and on that to ``other_leaf``; None without one.

        ``other`` is the session that ``other_leaf`` is read in: this one where it is left out. A session of another
        tree, such as a task session, has nothing in common. Raises `SessionNotFound`, `EntryNotFound`. O(forks on
        the paths).
        """
        checked_leaf(leaf)
        checked_leaf(other_leaf, "other_leaf")
        other_id = self.ref if other is None else checked_session(other)
        async with self._turn:
            return await self._backend.common_ancestor(self._ref, other_id, leaf=leaf, other_leaf=other_leaf)

    async def diff(
        self, other: HasId | str | None = None, *, leaf: LeafChoice = STORED, other_leaf: LeafChoice = STORED
    ) -> LeafDiff:
        """Return what the path to ``leaf`` has that the one to ``other_leaf`` has not, and the reverse.

        Arguments and errors are those of `common_ancestor`. The leaves are those stored as it begins. O(entries that
        differ + forks on the paths + calls of the trees).
        """
        checked_leaf(leaf)
        checked_leaf(other_leaf, "other_leaf")
        other_id = self.ref if other is None else checked_session(other)
        async with self._turn:
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
            raise SessionNotFound(session_id)
        return info.leaf_id

    async def _side(self, session_id: str, leaf: str | None, ancestor: str | None) -> DiffSide:
        read = await self._backend.read_path_since(session_id, ancestor, leaf=leaf)
        window = await self._backend.read_usage(session_id, ancestor, leaf=leaf)
        entries = read.entries or ()
        paid = await self._backend.read_entry_costs(session_id) if entries else {}
        return DiffSide(session_id, leaf, entries, window.usage, total_cost(entry_costs(entries, paid).values()))

    async def cherry_pick(
        self,
        entry_ids: Sequence[str],
        *,
        source: HasId | str | None = None,
        whole: bool = True,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> Appended:
        """Append copies of chosen entries of a branch, a fork or a task session below the leaf, in order of depth.

        ``source`` is the session that sees them: this one where it is left out. They have to lie on one path. A copy
        has an id of its own, the same payload, and in its ``extra`` where it comes from (`provenance_of`); what it
        cost is counted where it was paid, and nowhere else. The artifact that a message refers to is copied before it.
        Done once: where the path already has the copies of these entries, the first result comes back (``replayed``).
        With ``whole`` a tool call and its result come together or not at all. Raises `EntryNotFound`, `LeafConflict`,
        and `InvalidArgument` for no entries, entries on different paths, compactions, exclusions, and half an exchange.
        O(entries).
        """
        checked_flag(whole, "whole")
        seen = checked_seen(expected_leaf, expected_revision)
        source_id = self.ref if source is None else checked_session(source)
        if isinstance(entry_ids, (str, bytes)) or not isinstance(entry_ids, Sequence) or not entry_ids:
            raise InvalidArgument(f"entry_ids: {shown(entry_ids)} is not a list of entry ids; name at least one")
        wanted = list(dict.fromkeys(checked_id(entry_id, "entry_ids") for entry_id in entry_ids))

        async def pick() -> Appended:
            chosen = await self._chosen(source_id, wanted)
            if whole:
                await self._check_whole(source_id, chosen)
            await self._check_elsewhere(chosen, self._built_on(seen))
            names = [name for entry in chosen for name in (entry.session_id or source_id, entry.id)]
            copies = [copy for entry in chosen for copy in await self._copies_of(entry, source_id)]
            return await self._append_once(range_key("pick", *names), seen, copies)

        return await self._commit(pick, self._note_append)

    async def _chosen(self, source_id: str, wanted: Sequence[str]) -> list[Entry]:
        found = []
        for entry_id in wanted:
            entry = await self._backend.get_entry(source_id, entry_id)
            if entry is None:
                raise EntryNotFound(source_id, entry_id)
            found.append(entry)
        found.sort(key=lambda entry: entry.depth)
        for entry in found[:-1]:
            if not await self._backend.is_ancestor(source_id, entry.id, found[-1].id):
                raise InvalidArgument(
                    f"entry_ids: {entry.id!r} is not on the path to {found[-1].id!r}; pick from one path at a time"
                )
        return found

    async def _copies_of(self, entry: Entry, source_id: str) -> list[NewEntry]:
        """Return the copy of an entry, after that of the artifact to which it refers."""
        copies = [copy_of(entry, source_id)]
        artifact_id = referred_artifact(entry.fields) if entry.kind == MESSAGE else None
        if artifact_id is not None:
            found = await artifact_entry(self._backend, source_id, artifact_id)
            if found is not None:
                entry_id = entry_prefix(artifact_id) + self._backend.new_entry_id()
                copies.insert(0, changed(copy_of(found, source_id), id=entry_id))
        return copies

    async def _check_whole(self, source_id: str, chosen: Sequence[Entry]) -> None:
        """Raise `InvalidArgument` for half an exchange. Pairing depends on all entries in between."""
        if all(entry.kind != MESSAGE for entry in chosen):
            return
        read = await self._backend.read_path_since(source_id, chosen[0].parent_id, leaf=chosen[-1].id)
        check_whole_exchanges(read.entries or (), {entry.id for entry in chosen})

    async def _check_elsewhere(self, chosen: Sequence[Entry], leaf: str | None) -> None:
        """Raise `InvalidArgument` if the path has one of the entries themselves."""
        for entry in chosen:
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
        details: Mapping[str, JsonValue] | None = None,
        usage: Mapping[str, JsonValue] | None = None,
        calls: Sequence[Mapping[str, JsonValue]] = (),
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
        model: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
    ) -> Appended:
        """Append a summary of what a branch, a fork or a task session has done since it parted from the leaf.

        The summary is a branch summary whose ``fromId`` is the leaf it sums up, and whose details say which stretch of
        which session it stands for (`merged_range_of`): what comes after the common ancestor, or all of a session of
        another tree. Done once for each stretch: where the path already has it, the first result comes back
        (``replayed``), whatever the summary says. Nothing is counted again: what the branch cost stays where it was
        paid. ``usage`` and ``calls`` are what it took to write the summary, as for `append_branch_summary`: the ledger
        counts them under the purpose ``branch_summary``, unless the summary was there already (what was paid for all
        that is for `record_call`). ``oddities`` say what of them cannot be counted, which refuses nothing.

        With ``model``, ``mode`` or ``settings`` in place of a summary, it is made as `compact` makes one, of what the
        context at the source's leaf has of the stretch, with ``instructions`` about what to attend to; of a stretch
        that the path has already, none is made. Each call is in the ledger, for ``branch_summary``, before its answer
        is used. If the summary fails, nothing is appended.

        Raises `EntryNotFound`, `LeafConflict`, `InvalidEntry`, `CallConflict`, `SummaryFailed`, whose cause is the
        model's error, and `InvalidArgument` if there is nothing to bring back. O(forks on the paths), and with a model
        or a mode, the cost of the source's context.
        """
        checked_leaf(source_leaf, "source_leaf")
        seen = checked_seen(expected_leaf, expected_revision)
        source_id = self.ref if source is None else checked_session(source)
        if details is not None and (not isinstance(details, Mapping) or MERGED in details):
            raise InvalidArgument(f"details: should be an object without {MERGED!r}, which the summary brings along")
        making = checked_making(model, mode, settings, instructions, window)
        if making is not None and (summary is not None or usage is not None or calls):
            raise InvalidArgument(
                "summary, usage and calls: are those of a summary that you give; leave them out with a model or a mode"
            )
        if making is not None:
            return await self._merge_made(making, source_id, source_leaf, seen, dict(details or {}))
        if summary is None:
            raise InvalidArgument("summary: give one, or the model or mode that makes it")
        NewEntry.branch_summary(
            summary, from_id=None, details=None if details is None else dict(details), usage=usage, calls=calls
        )

        async def merge() -> Appended:
            merged = await self._range(source_id, source_leaf, self._built_on(seen))
            beside: JsonObject = {**(details or {}), MERGED: merged.as_json}
            entry = NewEntry.branch_summary(summary, from_id=merged.leaf_id, details=beside, usage=usage, calls=calls)
            return await self._append_merged(merged, entry, seen)

        return await self._commit(merge, self._note_append)

    async def _merge_made(
        self, making: BranchMaking, source_id: str, source_leaf: LeafChoice, seen: Seen, details: JsonObject
    ) -> Appended:
        """Have a summary made and append it, unless the path has one of the stretch already."""
        async with self._turn:
            into = self._built_on(seen)
            merged = await self._range(source_id, source_leaf, into)
            _, first = await self._recalled(_key_of(merged), seen)
            if first is not None:
                return first
            await self._compare(seen)
            read = await self._backend.read_context(source_id, leaf=merged.leaf_id)
        told = await self._told_branch(
            making,
            context_of(read.entries or (), read.compaction),
            merged.after,
            shown_at=into,
            preamble=branches.MERGED_PREAMBLE,
        )
        if told is None:
            raise InvalidArgument(
                f"session {source_id!r}: there is nothing to bring back: its context has nothing of what comes after "
                f"{merged.after!r}"
            )
        beside: JsonObject = {**told.details, **details, MERGED: merged.as_json}
        entry = NewEntry.branch_summary(told.text, from_id=merged.leaf_id, details=beside, calls=told.calls)

        async def merge() -> Appended:
            now = self._built_on(seen)
            if now != into and await self._range(source_id, merged.leaf_id, now) != merged:
                # The leaf was moved meanwhile to where another stretch would have to be summarized.
                raise LeafConflict(self.id, into, now)
            return await self._append_merged(merged, entry, seen)

        return await self._commit(merge, self._note_append)

    async def _append_merged(self, merged: MergedRange, summary: NewEntry, seen: Seen) -> Appended:
        """Append the summary of a stretch, once."""
        priced = self._pricer.price_entries([summary])
        appended, written = await write_what_fits(partial(self._append_once, _key_of(merged), seen), priced)
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
            raise EntryNotFound(source_id, leaf)
        before = None if after is None else await self._backend.get_entry(source_id, after)
        return MergedRange(source_id, after, leaf, entry.depth - (-1 if before is None else before.depth))

    async def _append_once(self, key: str, seen: Seen, entries: Sequence[NewEntry]) -> Appended:
        """Append, unless the path to the leaf has what was appended under this key before; return the first result.

        What was undone, or lies on another branch, does not count: it is appended anew, under the next key.
        """
        while True:
            numbered, first = await self._recalled(key, seen)
            if first is not None:
                return first
            # Another writer may just have brought the same stretch, in other words.
            with suppress(IdempotencyConflict):
                return await self._backend.append(
                    self._ref, entries, expected=self._expected(seen), idempotency_key=numbered
                )

    async def _recalled(self, key: str, seen: Seen) -> tuple[str, Appended | None]:
        """Return the first result of what was appended under a key, where the path to the leaf has it, else None.

        Before it comes the name under which it was appended, or is to be.
        """
        number = 0
        while (first := await self._backend.recall_append(self._ref, f"{key}:{number}")) is not None:
            leaf = self._built_on(seen)
            if leaf is not None and await self._is_on_path(first, leaf):
                return f"{key}:{number}", replace(first, leaf_id=leaf, revision=self._revision)
            number += 1
        return f"{key}:{number}", None

    async def _is_on_path(self, first: Appended, leaf: str) -> bool:
        try:
            return await self._backend.is_ancestor(self._ref, first.entry_id, leaf)
        except EntryNotFound:
            return False


def _key_of(merged: MergedRange) -> str:
    return range_key("summary", merged.session_id, merged.after, merged.leaf_id)
