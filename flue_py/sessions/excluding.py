"""Leaving entries, or parts of them, out of the context of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.exchange import Pairing, ToolGroup, messages_of
from flue_py.core.exclusions import WHOLE, Exclusion, excluded_parts, has_part
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS
from flue_py.core.log import Note
from flue_py.core.projection import ContextEntry, context_of
from flue_py.core.sessions import STORED, Appended, Expected, LeafChoice, PathRead, Seen
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.sessions.arguments import checked_id, checked_part, checked_seen
from flue_py.sessions.handle import Handle
from flue_py.sessions.marking import MarkEffect

_Part = int | str | None


@frozen
class _Done:
    """What was done, for the caller and for the handle."""

    effect: MarkEffect
    appended: Appended | None = None


class Excluding(Handle):
    """What a `Session` leaves out of its context."""

    __slots__ = ()

    async def exclude(
        self,
        entry_id: str,
        part: int | str | None = None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> MarkEffect:
        """Leave an entry of the path, or one part of a message's content, out of the context; what follows stays.

        ``part`` is a position in the content (from 0) or the id of a part. It is done by appending ``exclusion``
        entries, in one batch, so that `undo`, `rewind`, forks and other readers know of it, and `include` takes it
        back. A tool call leaves with its result, and a result with its call: a provider refuses one without the other.
        What is out already changes nothing. Raises `EntryNotFound`, `LeafConflict`, and `InvalidArgument` for an entry
        that is not on the path, of a kind that no context has, or is a compaction; for a part that is not there; and
        for a tool call whose result is still to come. The cost of the context.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._set_excluded(entry_id, part, Note(by, why), seen, excluded=True)

    async def include(
        self,
        entry_id: str,
        part: int | str | None = None,
        *,
        by: str | None = None,
        why: str | None = None,
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> MarkEffect:
        """Take back in what `exclude` left out: an entry with all its parts, or one part. Appends the reverse.

        What is not left out changes nothing. Otherwise as `exclude`.
        """
        seen = checked_seen(expected_leaf, expected_revision)
        return await self._set_excluded(entry_id, part, Note(by, why), seen, excluded=False)

    async def _set_excluded(self, entry_id: str, part: _Part, note: Note, seen: Seen, *, excluded: bool) -> MarkEffect:
        checked_id(entry_id, "entry_id")
        checked_part(part)
        work = partial(self._exclude_now, entry_id, part, note, seen, excluded)
        done = await self._commit(work, self._note_exclusions)
        return done.effect

    def _note_exclusions(self, done: _Done) -> None:
        if done.appended is not None:
            self._note(done.appended.leaf_id, done.appended.revision)

    async def _exclude_now(self, entry_id: str, part: _Part, note: Note, seen: Seen, excluded: bool) -> _Done:
        await self._compare(seen)
        leaf = self._built_on(seen)
        read = await self._backend.read_context(self._ref, leaf=leaf)
        before = tuple(context_of(read.entries or (), read.compaction))
        path, wanted, new = await self._exclusions_for(entry_id, part, note, read, leaf, excluded=excluded)
        ids = tuple(dict.fromkeys(each for each, _ in wanted))
        items = tuple(ContextEntry(entry) for entry in path if entry.id in ids)
        if not new:
            return _Done(MarkEffect(ids, before, before, items))
        appended = await self._append_exclusions(new, self._expected(seen))
        read = await self._backend.read_context(self._ref, leaf=appended.leaf_id)
        after = tuple(context_of(read.entries or (), read.compaction))
        return _Done(MarkEffect(ids, before, after, items, appended.entry_ids), appended)

    async def _exclusions_for(
        self, entry_id: str, part: _Part, note: Note, read: PathRead, leaf: str | None, *, excluded: bool
    ) -> tuple[Sequence[Entry], list[tuple[str, _Part]], list[NewEntry]]:
        """Return the path around an entry, what is to be left out or taken in, and the entries that would say so."""
        path = await self._path_around(entry_id, read.entries or (), leaf)
        index = next(number for number, entry in enumerate(path) if entry.id == entry_id)
        now = {named: set(parts) for named, parts in excluded_parts(path[index:]).items()}
        wanted = _wanted(path, index, part, now, excluded=excluded)
        new = [
            NewEntry.exclusion(each, of, excluded=excluded, by=note.by, why=note.why)
            for each, of in wanted
            if _changes(now.get(each, set()), of, excluded=excluded)
        ]
        return path, wanted, new

    async def _context_without(self, entry_ids: Sequence[str], leaf: str | None) -> list[ContextEntry]:
        """Return the context at a leaf as it would be if these entries were excluded. Appends nothing."""
        read = await self._backend.read_context(self._ref, leaf=leaf)
        entries = list(read.entries or ())
        depth = entries[-1].depth if entries else -1
        for entry_id in entry_ids:
            _, _, new = await self._exclusions_for(entry_id, WHOLE, Note(), read, leaf, excluded=True)
            for each in new:
                depth += 1
                entries.append(Entry("", None, None, each.kind, None, None, depth, 0, 0, 0, each.payload))
        return context_of(entries, read.compaction)

    async def _append_exclusions(self, new: Sequence[NewEntry], expected: Expected) -> Appended:
        self._limits.check_entries(new)
        return await self._backend.append(self._ref, new, expected=expected)

    async def _path_around(self, entry_id: str, kept: Sequence[Entry], leaf: str | None) -> Sequence[Entry]:
        """Return the kept part of the path where the entry is in it, else the whole path."""
        start = _start_of_end(kept)
        if any(entry.id == entry_id for entry in kept[start:]):
            return kept[start:]
        path = (await self._backend.read_path(self._ref, leaf=leaf)).entries or ()
        if any(entry.id == entry_id for entry in path):
            return path
        if await self._backend.get_entry(self._ref, entry_id) is None:
            raise EntryNotFound(self.id, entry_id)
        raise InvalidArgument(
            f"entry {entry_id!r} is not on the path to {leaf!r}, so it is not in the context; move_leaf() first"
        )

    async def exclusions(self) -> list[Exclusion]:
        """Return what the exclusions on the path to the stored leaf leave out, in the order they were made.

        Also those that leave nothing out (``in_effect``): of an entry that is not on the path, as an imported file may
        have them, or was compacted away. Those before the kept part of a compaction are returned only if it has
        pinned entries: they can leave out nothing else. Costs as much as the context.
        """
        async with self._turn:
            known = self._context
            read = await self._backend.read_context(self._ref, unless=None if known is None else known.stamp)
        path = known.tail if read.entries is None and known is not None else read.entries or ()
        kept = {entry.id: entry for entry in path if entry.kind in CONTEXT_KINDS}
        found = []
        for entry_id, parts in excluded_parts(path).items():
            for part, by in parts.items():
                entry = kept.get(entry_id)
                works = entry is not None and entry.depth < by.depth and _has(ContextEntry(entry).data, part)
                fields = by.fields
                who, why = fields.get("by"), fields.get("why")
                exclusion = Exclusion(entry_id, part, by.id, in_effect=works)
                if isinstance(who, str):
                    exclusion = replace(exclusion, by=who)
                if isinstance(why, str):
                    exclusion = replace(exclusion, why=why)
                found.append((by.depth, exclusion))
        return [exclusion for _, exclusion in sorted(found, key=lambda each: each[0])]


def _has(message: JsonObject, part: _Part) -> bool:
    return part is WHOLE or has_part(message, part)


def _start_of_end(entries: Sequence[Entry]) -> int:
    """Return where the unbroken end of a path begins among what a context was read from."""
    start = len(entries)
    while start > 0 and (start == len(entries) or entries[start - 1].depth == entries[start].depth - 1):
        start -= 1
    return start


def _changes(now: set[_Part], part: _Part, *, excluded: bool) -> bool:
    if excluded:
        return part not in now and WHOLE not in now
    return bool(now) if part is WHOLE else part in now


def _wanted(
    path: Sequence[Entry], index: int, part: _Part, now: dict[str, set[_Part]], *, excluded: bool
) -> list[tuple[str, _Part]]:
    """Return what has to be left out, or taken back in, for one entry or part: by entry and part, in path order."""
    entry = path[index]
    _check_can_be_left_out(entry)
    messages = messages_of(path)
    if part is not None:
        part = _named_part(entry, messages[index], part)
    group = Pairing(messages).group_of(index)
    if group is None or group.caller is None:
        return [(entry.id, part)]
    if index == group.caller:
        if part is not WHOLE:
            return _call_and_result(path, group, part, excluded=excluded)
        if excluded and group.is_open:
            raise _still_open(entry)
        return [(path[member].id, WHOLE) for member in group.members]
    if part is not WHOLE:
        return [(entry.id, part)]
    caller = path[group.caller]
    if not excluded and WHOLE in now.get(caller.id, ()):
        return [(path[member].id, WHOLE) for member in group.members]
    # A result that only repeats an answer leaves alone: the call is answered without it.
    answered = [call for call, answer in group.answers.items() if answer == index]
    named = [(caller.id, _named_part(caller, messages[group.caller], call.part)) for call in answered]
    return [*named, (entry.id, WHOLE)]


def _call_and_result(
    path: Sequence[Entry], group: ToolGroup, part: int | str, *, excluded: bool
) -> list[tuple[str, _Part]]:
    assert group.caller is not None
    caller = path[group.caller]
    named = [call for call in group.calls if part in (call.id, call.part)]
    if excluded and group.is_open and any(call not in group.answers for call in named):
        raise _still_open(caller)
    answers = sorted(group.answers[call] for call in named if call in group.answers)
    return [(caller.id, part), *((path[answer].id, WHOLE) for answer in answers)]


def _still_open(entry: Entry) -> InvalidArgument:
    return InvalidArgument(
        f"entry {entry.id!r} calls a tool whose result is still to come; exclude it when that is there, or rewind()"
    )


def _check_can_be_left_out(entry: Entry) -> None:
    if entry.kind == COMPACTION:
        raise InvalidArgument(
            f"entry {entry.id!r} is a compaction, which stands for what came before it; undo it, or rewind()"
        )
    if entry.kind not in CONTEXT_KINDS:
        raise InvalidArgument(f"entry {entry.id!r} is of kind {entry.kind}, which is never part of a context")


def _named_part(entry: Entry, message: JsonObject | None, part: int | str) -> int | str:
    """Return how to name a part: by its id where it has one that no other has, else by its position."""
    content = (message or {}).get("content")
    parts = content if isinstance(content, list) else []
    if not has_part({"content": parts}, part):
        there = f"it has {len(parts)}, counted from 0" if parts else "its content is one text"
        raise InvalidArgument(f"entry {entry.id!r} has no part {shown(part)}; {there}")
    if isinstance(part, str):
        return part
    ids = [each.get("id") if isinstance(each, dict) else None for each in parts]
    part_id = ids[part]
    return part_id if isinstance(part_id, str) and ids.count(part_id) == 1 else part
