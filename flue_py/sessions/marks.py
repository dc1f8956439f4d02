"""The marks of a session: labels, pins, exclusions, and texts that every compaction brings back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Unpack

from flue_py import context
from flue_py.core import entries, sessions
from flue_py.core.context import ContextEntry, context_of
from flue_py.core.entries import (
    WHOLE,
    Entry,
    Exclusion,
    NewEntry,
    Pairing,
    RegisteredKind,
    RegisteredText,
    ToolGroup,
    excluded_parts,
    has_part,
    messages_of,
)
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS, SHOWN_KINDS
from flue_py.core.operations import SetLabel
from flue_py.core.sessions import Appended, LeafChoice, Note, PathRead, Seen, check_choice
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.sessions import handle
from flue_py.sessions.handle import Group
from flue_py.sessions.write import Writing


class MarkEffect(Frozen):
    """The effect of pinning, excluding or including.

    ``entry_ids`` are the entries it was done to, in path order: the one that was named, and those that belong to it (a
    tool call and its results). ``before`` and ``after`` are the context at the leaf; a pin leaves it as it is, and acts
    when a compaction comes. ``items`` are those of the entries that a context would show, as they are.
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
        """How many tokens the entries take by themselves: the share that a pin makes every later compaction keep."""
        return _tokens_of(self.items)


def _tokens_of(items: Iterable[ContextEntry]) -> int:
    return context.tokens.count_tokens(item.data for item in items).tokens


class Marks(Group[Writing]):
    """Labels, pins, exclusions and registered texts of a session."""

    async def set_label(self, entry_id: str, label: str | None, **options: Unpack[handle.EditOptions]) -> None:
        """Label an entry the session sees; None or "" clears. Raises `EntryNotFound`. O(1).

        A label that a fork sets or clears is its own: its source is left alone.
        """
        handle.checked_id(entry_id, "entry_id")
        sessions.check_entry_label(label)
        note, seen = handle.checked_edit(**options)
        await self._session._do(SetLabel(self._ref, entry_id, label, seen, note))

    async def labels(self) -> dict[str, str]:
        """Return the labels that this session sees, by entry id; not of entries it has retracted.

        A fork sees those of its source on the path they share, too. O(marks), and of a fork, O(forks above it).
        """
        async with self._session._turn:
            marks = await self._backend.read_marks(self._ref)
        retracted = sessions.retracted_in(marks)
        return {
            mark.entry_id: mark.value or "" for mark in marks if mark.kind == "label" and mark.entry_id not in retracted
        }

    async def pin(self, entry_id: str, **options: Unpack[handle.EditOptions]) -> MarkEffect:
        """Have every later compaction keep an entry word for word.

        With a tool call its results are pinned, and the reverse. The context stays as it is; a compaction
        appended from now on has the pinned entries of its path after its summary, ahead of those it keeps. Forks see a
        pin on the path they share, and the pins of a compaction, until they are let go of there. Raises
        `EntryNotFound`, and `InvalidArgument` for an entry of a kind that no context has. The cost of the context.
        """
        return await self._set_pin(entry_id, *handle.checked_edit(**options), pinned=True)

    async def unpin(self, entry_id: str, **options: Unpack[handle.EditOptions]) -> MarkEffect:
        """Let go of a pinned entry, with its call or results: the next compaction no longer keeps it.

        Entries that a compaction has pinned before stay in the context until then. Otherwise as `pin`.
        """
        return await self._set_pin(entry_id, *handle.checked_edit(**options), pinned=False)

    async def _set_pin(self, entry_id: str, note: Note, seen: Seen, *, pinned: bool) -> MarkEffect:
        handle.checked_id(entry_id, "entry_id")
        async with self._session._turn:
            ids = await self._backend.set_pin(self._ref, entry_id, pinned, expected=seen, note=note)
            read = await self._backend.read_context(self._ref)
            items = tuple(context_of(read.entries, read.compaction))
            there = {item.entry_id: item for item in items}
            pinned_items = [there.get(pinned_id) or await self._lone_item(pinned_id) for pinned_id in ids]
            return MarkEffect(ids, items, items, tuple(item for item in pinned_items if item is not None))

    async def _lone_item(self, entry_id: str) -> ContextEntry | None:
        entry = await self._backend.get_entry(self._ref, entry_id)
        return None if entry is None or entry.kind not in SHOWN_KINDS else ContextEntry(entry)

    async def pins(self) -> list[str]:
        """Return the ids of the entries that the next compaction keeps, if they lie on its path.

        The session's own pins, and those of the latest compaction on the path to the stored leaf; first those in the
        context, in its order. The cost of the context.
        """
        return await self._session._pins()

    async def exclude(
        self, entry_id: str, part: int | str | None = None, **options: Unpack[handle.EditOptions]
    ) -> MarkEffect:
        """Leave an entry of the path, or one part of a message's content, out of the context; later entries stay.

        ``part`` is a position in the content (from 0) or the id of a part. It is done by appending ``exclusion``
        entries, in one batch, so that `undo`, `rewind`, forks and other readers know of it, and `include` takes it
        back. A tool call leaves with its result, and a result with its call: a provider refuses one without the other.
        A second exclusion changes nothing. Raises `EntryNotFound`, `LeafConflict`, and `InvalidArgument` for an entry
        that is not on the path, of a kind that no context has, or is a compaction; for a part that is not there; and
        for a tool call whose result is still to come. The cost of the context.
        """
        return await self._set_excluded(entry_id, part, *handle.checked_edit(**options), excluded=True)

    async def include(
        self, entry_id: str, part: int | str | None = None, **options: Unpack[handle.EditOptions]
    ) -> MarkEffect:
        """Take an excluded entry with all its parts, or one part of it, back into the context. Appends the reverse.

        An entry that is not excluded changes nothing. Otherwise as `exclude`.
        """
        return await self._set_excluded(entry_id, part, *handle.checked_edit(**options), excluded=False)

    async def _set_excluded(self, entry_id: str, part: _Part, note: Note, seen: Seen, *, excluded: bool) -> MarkEffect:
        handle.checked_id(entry_id, "entry_id")
        handle.checked_part(part)
        work = partial(self._exclude_now, entry_id, part, note, seen, excluded)

        def note_appended(done: _Done) -> None:
            if done.appended is not None:
                self._session._note(done.appended.leaf_id, done.appended.revision)

        return (await self._session._commit(work, note_appended)).effect

    async def _exclude_now(self, entry_id: str, part: _Part, note: Note, seen: Seen, excluded: bool) -> _Done:
        await self._session._compare(seen)
        leaf = self._session._built_on(seen)
        read = await self._backend.read_context(self._ref, leaf=leaf)
        before = tuple(context_of(read.entries, read.compaction))
        path, wanted, new = await self._exclusions_for(entry_id, part, note, read, leaf, excluded=excluded)
        ids = tuple(dict.fromkeys(named_id for named_id, _ in wanted))
        items = tuple(ContextEntry(entry) for entry in path if entry.id in ids)
        if not new:
            return _Done(MarkEffect(ids, before, before, items))
        self._session._limits.check_entries(new)
        appended = await self._backend.append(self._ref, new, expected=self._session._expected(seen))
        read = await self._backend.read_context(self._ref, leaf=appended.leaf_id)
        after = tuple(context_of(read.entries, read.compaction))
        return _Done(MarkEffect(ids, before, after, items, appended.entry_ids), appended)

    async def _exclusions_for(
        self, entry_id: str, part: _Part, note: Note, read: PathRead, leaf: str | None, *, excluded: bool
    ) -> tuple[Sequence[Entry], list[tuple[str, _Part]], list[NewEntry]]:
        """Return the path around an entry, the parts to exclude or include, and the entries that would say so."""
        path = await self._path_around(entry_id, read.entries, leaf)
        index = next(number for number, entry in enumerate(path) if entry.id == entry_id)
        now = {named: set(parts) for named, parts in excluded_parts(path[index:]).items()}
        wanted = _wanted(path, index, part, now, excluded=excluded)
        new = [
            NewEntry.exclusion(named_id, of, excluded=excluded, by=note.by, why=note.why)
            for named_id, of in wanted
            if _changes(now.get(named_id, set()), of, excluded=excluded)
        ]
        return path, wanted, new

    async def _context_without(self, entry_ids: Sequence[str], leaf: str | None) -> list[ContextEntry]:
        """Return the context at a leaf as it would be if these entries were excluded. Appends nothing."""
        read = await self._backend.read_context(self._ref, leaf=leaf)
        entries = list(read.entries)
        depth = entries[-1].depth if entries else -1
        for entry_id in entry_ids:
            _, _, new = await self._exclusions_for(entry_id, WHOLE, Note(), read, leaf, excluded=True)
            for exclusion in new:
                depth += 1
                entries.append(Entry("", None, None, exclusion.kind, None, None, depth, 0, 0, 0, exclusion.payload))
        return context_of(entries, read.compaction)

    async def _path_around(self, entry_id: str, tail: Sequence[Entry], leaf: str | None) -> Sequence[Entry]:
        """Return the kept part of the path where the entry is in it, else the whole path."""
        start = _start_of_end(tail)
        if any(entry.id == entry_id for entry in tail[start:]):
            return tail[start:]
        path = (await self._backend.read_path(self._ref, leaf=leaf)).entries
        if any(entry.id == entry_id for entry in path):
            return path
        if await self._backend.get_entry(self._ref, entry_id) is None:
            raise EntryNotFound(self._session.id, entry_id)
        raise InvalidArgument(
            f"entry {entry_id!r} is not on the path to {leaf!r}, so it is not in the context; move_leaf() first"
        )

    async def exclusions(self) -> list[Exclusion]:
        """Return the exclusions on the path to the stored leaf, in the order they were made.

        Also those that leave nothing out (``in_effect``): of an entry that is not on the path, as an imported file may
        have them, or was compacted away. Those before the kept part of a compaction are returned only if it has
        pinned entries: they can leave out nothing else. Costs as much as the context.
        """
        path = (await self._session._read_context(sessions.STORED)).tail
        entries_by_id = {entry.id: entry for entry in path if entry.kind in CONTEXT_KINDS}
        exclusions = []
        for entry_id, parts in excluded_parts(path).items():
            for part, by in parts.items():
                entry = entries_by_id.get(entry_id)
                works = entry is not None and entry.depth < by.depth
                if works and entry is not None and part is not WHOLE:
                    works = has_part(ContextEntry(entry).data, part)
                note = {name: text for name in ("by", "why") if isinstance(text := by.fields.get(name), str)}
                exclusions.append((by.depth, Exclusion(entry_id, part, by.id, in_effect=works, **note)))
        return [exclusion for _, exclusion in sorted(exclusions, key=lambda pair: pair[0])]

    async def registered(self, *, leaf: LeafChoice = sessions.STORED) -> tuple[RegisteredText, ...]:
        """Return the registered texts of the path, in the order in which their names were first registered.

        Whole, however a cap may have cut them in the summary: a program that resumes the session can show them again.
        The cost of the context; after a compaction that `compact` did not make, once that of the path. Raises
        `EntryNotFound`.
        """
        read = await self._session._read_context(leaf)
        if read.compaction is None:
            return entries.texts_in_force(read.tail)
        noted = entries.noted_ids(read.compaction.fields.get("details"))
        if noted is not None:
            texts = [entry for entry in await self._session.get_entries(noted) if entry is not None]
            if len(texts) == len(noted):
                return entries.texts_in_force(read.tail, texts)
        return entries.texts_in_force(await self._session.get_active_path(leaf=read.stamp.leaf_id))

    async def register(
        self, name: str, text: str, *, kind: RegisteredKind = "instructions", **options: Unpack[handle.LandingOptions]
    ) -> Appended | None:
        """Have every later compaction bring a text back word for word, under a name; None if it is registered already.

        ``kind`` is one of ``instructions``, ``plan``, ``todo`` or ``skill``. A text of the same name is replaced.
        It is an entry of its own that no model sees: send the model a message if it is to read it now. It holds on
        this path, and in forks of it. How long it may be, `CompactionSettings` says. Raises `InvalidArgument`, and
        `InvalidEntry` for a text that cannot be stored; otherwise as `append_message`. The cost of `registered`.
        """
        _check_name(name)
        if not isinstance(text, str) or not text.strip():
            raise InvalidArgument("text: is not a text with words in it; take a text off the register by unregister()")
        handle.checked_text(text, "text")
        check_choice(kind, "kind", entries.REGISTERED_KINDS)
        landing = handle.checked_landing(**options)
        await self._session._compare(landing.seen)
        if landing.idempotency_key is None and any(
            (registered.name, registered.kind, registered.text) == (name, kind, text)
            for registered in await self.registered(leaf=self._session._built_on(landing.seen))
        ):
            return None
        entry = NewEntry.custom(entries.REGISTERED, entries.registration(name, kind, text))
        return await self._session._append([entry], landing)

    async def unregister(self, name: str, **options: Unpack[handle.LandingOptions]) -> Appended | None:
        """Take a text off the register, so that later compactions leave it out; None where there is none of this name.

        Otherwise as `register`.
        """
        _check_name(name)
        landing = handle.checked_landing(**options)
        await self._session._compare(landing.seen)
        texts = await self.registered(leaf=self._session._built_on(landing.seen))
        if landing.idempotency_key is None and all(registered.name != name for registered in texts):
            return None
        entry = NewEntry.custom(entries.REGISTERED, entries.registration(name, None, None))
        return await self._session._append([entry], landing)


_Part = int | str | None


class _Done(Frozen):
    """The effect for the caller, and the append for the handle."""

    effect: MarkEffect
    appended: Appended | None = None


def _start_of_end(entries: Sequence[Entry]) -> int:
    """Return where the unbroken end of a path begins among the entries of a context."""
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
    """Return the entries and parts to exclude, or to include, for one entry or part, in path order."""
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
    ids = [content_part.get("id") if isinstance(content_part, dict) else None for content_part in parts]
    part_id = ids[part]
    return part_id if isinstance(part_id, str) and ids.count(part_id) == 1 else part


def _check_name(name: str) -> None:
    sessions.check_new_name(name, "name")
    if not isinstance(name, str) or name.splitlines() != [name] or not name.strip():
        raise InvalidArgument("name: should be one line, by which the text is replaced and taken off the register")
