"""What a session has: the active path, single entries, the whole tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from flue_py import context
from flue_py.core.context import (
    CommonPrefix,
    ContextEntry,
    ContextSize,
    PendingTurn,
    PrefixChain,
    chain_of,
    context_of,
    pending_in,
    project_kept,
)
from flue_py.core.entries import Entry, PathSettings
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE
from flue_py.core.sessions import STORED, LeafChoice, Stored, check_label
from flue_py.errors import AmbiguousId, EntryNotFound, InvalidArgument, shown
from flue_py.sessions.arguments import (
    checked_end,
    checked_flag,
    checked_id,
    checked_ids,
    checked_kind_name,
    checked_leaf,
    checked_limit,
    checked_place,
    checked_prefix,
    optional,
)
from flue_py.sessions.handle import Handle, KnownChain, KnownContext, KnownPath, waiting_of

# ---------------------------------------------------------------------------------------------------------------------
# What a session has: the active path, single entries, the whole tree.

_AMBIGUOUS = 6
_MATCHES = 64


class Reading(Handle):
    """The entries of a `Session`."""

    __slots__ = ()

    async def get_active_path(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[Entry]:
        """Return the entries from root to leaf; with ``limit``, the last of them, at most so many.

        A ``limit`` counts entries of every kind, and never takes a tool's result without its call: where it would cut
        in between, fewer entries are returned, from the next place on that divides no call and result. Only where
        there is no such place, because what the path ends with is longer than ``limit``, that is returned whole.

        O(path); one point read where nothing changed. With ``limit``: O(limit + forks on the path), however long the
        path, plus what lies between its results and their calls. Raises `EntryNotFound` for a ``leaf`` the session
        does not see, `InvalidArgument` for a ``limit`` below 1.
        """
        checked_leaf(leaf)
        if limit is not None:
            return await self._path_end(checked_end(limit), leaf)
        async with self._turn:
            known = self._path
            read = await self._backend.read_path(self._ref, leaf=leaf, unless=None if known is None else known.stamp)
            if read.entries is None:
                return list(known.entries) if known else []
            entries = list(read.entries)
            if isinstance(leaf, Stored):
                self._path = KnownPath(read.stamp, entries)
            return list(entries)

    async def _path_end(self, limit: int, leaf: LeafChoice) -> list[Entry]:
        async with self._turn:
            read = await self._backend.read_path_end(self._ref, limit, leaf=leaf)
            return list(read.entries or ())

    async def get_active_path_since(self, since: str | None, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the path's entries after ``since``; all for None, none where it is not on the path.

        O(entries returned + forks on the path).
        """
        checked_place(since, "since")
        checked_leaf(leaf)
        async with self._turn:
            read = await self._backend.read_path_since(self._ref, since, leaf=leaf)
            return list(read.entries or ())

    async def turns(self, *, leaf: LeafChoice = STORED) -> list[Entry]:
        """Return the user messages of the path, root to leaf: the turns that `rewind` counts.

        What programs wrote in the user's name (commands, contexts, reminders) begins no turn.
        """
        checked_leaf(leaf)
        async with self._turn:
            return await self._backend.read_turns(self._ref, leaf=leaf)

    async def settings(self, *, leaf: LeafChoice = STORED) -> PathSettings:
        """Return the model and the thinking level that the path has at its leaf, or at another; a branch has its own.

        The thinking level is that of the last ``thinking_level_change``; the model, with its provider, that of the last
        answer or ``model_change``, whichever came later. None where the path says nothing. O(entries since the last
        answer or change of model + forks on the path). Raises `EntryNotFound`.
        """
        checked_leaf(leaf)
        async with self._turn:
            return await self._backend.read_settings(self._ref, leaf=leaf)

    async def is_ancestor(self, entry_id: str, *, of: str) -> bool:
        """Return whether ``entry_id`` is ``of`` or an ancestor of it. Raises `EntryNotFound` for either."""
        checked_id(entry_id, "entry_id")
        checked_id(of, "of")
        async with self._turn:
            return await self._backend.is_ancestor(self._ref, entry_id, of)

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return an entry the session sees, on the path or off it, or None. One point read."""
        checked_id(entry_id, "entry_id")
        async with self._turn:
            return await self._backend.get_entry(self._ref, entry_id)

    async def get_entries(self, ids: Iterable[str]) -> list[Entry | None]:
        """Return the entries with these ids, in the order given, as many as ids; None for one it does not see.

        An id that is given twice is answered twice. O(ids), a statement for every 5,000. Raises `InvalidArgument` for
        what is not a list of ids.
        """
        asked = checked_ids(ids)
        async with self._turn:
            return await self._backend.get_entries(self._ref, asked)

    async def entries(
        self, *, kind: str | None = None, after: str | None = None, newest_first: bool = False, limit: int = 100
    ) -> list[Entry]:
        """Return a page of up to ``limit`` (1 to 1000) of the entries of `get_tree`: of all, or of one kind.

        They come in its order, or from the end with ``newest_first``. A page begins behind ``after``, the id of the
        last entry of the page before, which may have been retracted since; one that is not full is the last. Entries
        that are added meanwhile are met at the end.

        O(limit) for each branch the session made, however long it is. With ``kind``, O(entries behind ``after``),
        though not their payloads; compactions and exclusions are found by an index. Raises `EntryNotFound` for an
        ``after`` that the session never saw, `InvalidArgument` for what is no kind, and for another ``limit``.
        """
        optional(checked_kind_name, kind, "kind")
        checked_place(after, "after")
        checked_flag(newest_first, "newest_first")
        checked_limit(limit)
        async with self._turn:
            return await self._backend.read_entries(
                self._ref, kind=kind, after=after, newest_first=newest_first, limit=limit
            )

    async def children(self, entry_id: str | None) -> list[Entry]:
        """Return the entries that the session sees whose parent is ``entry_id``, in the order of `get_tree`.

        For None, the roots. Retracted entries are left out. O(children, those that only other sessions see included).
        Raises `EntryNotFound` for an entry the session does not see.
        """
        checked_place(entry_id, "entry_id")
        async with self._turn:
            return await self._backend.children(self._ref, entry_id)

    async def resolve_entry_id(self, prefix: str) -> str:
        """Return the id of the one entry the session sees whose id is, or begins with, ``prefix``.

        Of the parts of an imported row, ``7ce96d:1`` is the entry ``7ce96d...:1``, and ``7ce96d`` the one without a
        number. Raises `EntryNotFound`, `AmbiguousId`.
        """
        checked_prefix(prefix)
        row, colon, part = prefix.rpartition(":")
        async with self._turn:
            matches = await self._backend.match_entry_ids(self._ref, prefix, _MATCHES)
            if not matches and row and part.isdecimal():
                parts = await self._backend.match_entry_ids(self._ref, row, _MATCHES)
                matches = [entry_id for entry_id in parts if entry_id.endswith(colon + part)]
        if not matches:
            raise EntryNotFound(self.id, prefix)
        if len(matches) > 1 and matches[0] != prefix and not _is_row_of(matches[0], matches[1:]):
            raise AmbiguousId(prefix, tuple(matches[:_AMBIGUOUS]))
        return matches[0]

    async def get_tree(self) -> list[Entry]:
        """Return every entry the session sees, all branches: inherited ones root first, then its own as added.

        Retracted entries are left out. O(entries).
        """
        async with self._turn:
            return await self._backend.read_tree(self._ref)


def _is_row_of(row: str, others: Sequence[str]) -> bool:
    """Return whether the other ids, of which none was left out, are of parts of the same imported row."""
    return len(others) < _MATCHES - 1 and all(re.fullmatch(rf"{re.escape(row)}:\d+", other) for other in others)


# ---------------------------------------------------------------------------------------------------------------------
# What the model sees of a session.


class Contexts(Reading):
    """The context of a `Session`."""

    __slots__ = ()

    async def build_context_entries(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[ContextEntry]:
        """Return what the model sees, in order, with the entry behind each item.

        The faithful projection of the active path, and of nothing else: the same leaf gives the same items, in
        every process. With ``limit``, the last of these items, at most so many: the summary of a compaction, which
        comes first, is among them only where all the others are. As in `get_active_path`, they never begin between a
        tool call and its result.

        O(kept entries + forks on the path); one point read and a list copy where nothing changed. With ``limit``:
        O(entries behind the items + forks on the path), plus what lies between its results and their calls. Raises
        `EntryNotFound` for a ``leaf`` the session does not see, `InvalidArgument` for a ``limit`` below 1.
        """
        if limit is not None:
            return list(await self._context_end(limit, leaf))
        return list((await self._read_context(leaf, is_base=True)).items)

    async def build_context(self, *, leaf: LeafChoice = STORED, limit: int | None = None) -> list[JsonObject]:
        """Return the messages the model sees as JSON objects, fresh at each call and the caller's to change.

        With ``limit``, the last of them, at most so many, which begin and cost as `build_context_entries` says. Raises
        as that does.
        """
        checked_leaf(leaf)
        if limit is not None:
            return [item.data for item in await self._context_end(limit, leaf)]
        async with self._turn:
            read = await self._backend.read_messages(self._ref, leaf=leaf)
            self._note_read(read, leaf)
            return read.messages

    async def _context_end(self, limit: int, leaf: LeafChoice) -> Sequence[ContextEntry]:
        checked_leaf(leaf)
        checked_end(limit)
        async with self._turn:
            read = await self._backend.read_context_end(self._ref, limit, leaf=leaf)
            self._note_read(read, leaf)
            return read.items

    async def latest_compaction(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last compaction on the path, or None. The cost of the context."""
        return (await self._read_context(leaf)).compaction

    async def latest_assistant(self, *, leaf: LeafChoice = STORED) -> Entry | None:
        """Return the last assistant message on the path, or None. Usually the cost of the context."""
        context = await self._read_context(leaf)
        found = _last_assistant(context.tail)
        if found is None and context.compaction is not None:
            found = _last_assistant(await self.get_active_path(leaf=context.stamp.leaf_id))
        return found

    async def pending(self, *, leaf: LeafChoice = STORED) -> PendingTurn:
        """Return what the last turn of the context owes: the results of tool calls, an answer of the model, or nothing.

        For a program that goes on after another one died: it runs ``calls``, by their ids, names and arguments, or asks
        the model to answer ``unanswered``. A failed or aborted answer counts as none. Raises `EntryNotFound`. The cost
        of the context.
        """
        return pending_in((await self._read_context(leaf)).items)

    async def _settings_of(self, known: KnownContext) -> PathSettings:
        """Return what `settings` does at the leaf of a context: once, since the path to it never changes."""
        if not known.settings:
            known.settings.append(await self.settings(leaf=known.stamp.leaf_id))
        return known.settings[0]

    async def _read_context(self, leaf: LeafChoice, *, is_base: bool = False) -> KnownContext:
        """Return the context; ``is_base`` says that the caller is about to answer it, and builds on it from here on."""
        checked_leaf(leaf)
        async with self._turn:
            known = self._context
            read = await self._backend.read_context(self._ref, leaf=leaf, unless=None if known is None else known.stamp)
            if is_base:
                self._note_read(read, leaf)
            if read.entries is None and known is not None:
                return known
            tail = read.entries or ()
            items = context_of(tail, read.compaction)
            context = KnownContext(read.stamp, items, read.compaction, tail)
            if isinstance(leaf, Stored):
                self._context = context
            return context


async def shown_context(session: Contexts) -> KnownContext:
    """Return the context for who looks at it and answers nothing: the session builds on what it built on before."""
    return await session._read_context(STORED)  # noqa: SLF001 - public, it would be a method of every session


def _last_assistant(entries: Sequence[Entry]) -> Entry | None:
    """Return the last assistant message of the end of a path; pinned entries from before the end do not count."""
    depth = None
    for entry in reversed(entries):
        if depth is not None and entry.depth != depth - 1:
            break
        depth = entry.depth
        if entry.kind == MESSAGE and entry.role == "assistant":
            return entry
    return None


# ---------------------------------------------------------------------------------------------------------------------
# How large the context of a session is.


class Measuring(Contexts):
    """The size of the context of a `Session`."""

    __slots__ = ()

    async def measure_context(
        self,
        model: str | None = None,
        *,
        provider: str | None = None,
        leaf: LeafChoice = STORED,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        window: int | None = None,
        faithful: bool = False,
        use_reported: bool = True,
    ) -> ContextSize:
        """Return how many tokens the context takes for ``model``; by default for the one that the path has at its leaf.

        What the provider reported counts where it is fresh, and our own count for what follows; `ContextSize` has both.
        ``provider`` leaves out what other providers reported. ``system`` is the system prompt, ``tools`` are the tools'
        definitions, as JSON: "" and () if there are none, None if they are unknown. A report above ``window``, the
        model's, is not believed. ``faithful`` counts as the reference does, ``use_reported=False`` counts everything.

        The cost of the context, and O(size) of what this process has not counted before, which other tasks do not wait
        for. Raises `EntryNotFound`, `InvalidArgument`.
        """
        offered = checked_request(model, provider, system, tools)
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InvalidArgument(f"window: {shown(window)} is not a number of tokens >= 1; leave it out if unknown")
        checked_flag(faithful, "faithful")
        checked_flag(use_reported, "use_reported")
        found = await self._read_context(checked_leaf(leaf))
        if model is None:
            model = (await self._settings_of(found)).model
        counter = context.tokens.counter_for(model, faithful=faithful)
        measure = partial(
            context.tokens.measure_context,
            found.items,
            counter,
            model=model,
            provider=provider,
            system=system,
            tools=offered,
            window=window,
            use_reported=use_reported,
            changed_at=context.tokens.changed_depth(found.tail),
        )
        try:
            return measure(only_known=True)
        except context.tokens.NotCounted:
            return await waiting_of(self).call(measure)


def checked_request(
    model: str | None, provider: str | None, system: str | None, tools: Sequence[Mapping[str, JsonValue]] | None
) -> list[Mapping[str, JsonValue]] | None:
    """Check what a request is known by beside its messages, and return the tools. Raises `InvalidArgument`."""
    _check_name(model, "model")
    _check_name(provider, "provider")
    if system is not None and not isinstance(system, str):
        raise InvalidArgument(f"system: {shown(system)} is not the text of a system prompt")
    return None if tools is None else _checked_tools(tools)


def _check_name(name: str | None, what: str) -> None:
    check_label(name, what)
    if name == "":
        raise InvalidArgument(f"{what}: must not be empty; leave it out if it is unknown")


def _checked_tools(tools: Sequence[Mapping[str, JsonValue]]) -> list[Mapping[str, JsonValue]]:
    """Return definitions of tools as a list. Raises `InvalidArgument` for what is not one, `InvalidEntry` in one."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidArgument(f"tools: {shown(tools)} is not a list of the tools' definitions")
    for tool in tools:
        if not isinstance(tool, Mapping):
            raise InvalidArgument(f"tools: {shown(tool)} is not the definition of a tool, a JSON object")
    context.tokens.texts_of(tools)
    return list(tools)


# ---------------------------------------------------------------------------------------------------------------------
# What the contexts of a session begin with alike: what a provider can read from its cache.

MOST_CHAINS = 16
"""How many contexts a handle remembers the digests of. One of 10,000 items takes 300 kB."""


class Prefixing(Contexts):
    """What contexts of a `Session` have in common."""

    __slots__ = ()

    async def common_prefix(self, leaf_a: LeafChoice, leaf_b: LeafChoice = STORED) -> CommonPrefix:
        """Return what the contexts at two leaves begin with, byte for byte: what a provider can read from its cache.

        Exact, whatever lies between the two: a compaction, an exclusion or a pin shortens it from where it changes the
        context, and equal messages on different branches count. Raises `EntryNotFound`.

        What was read is remembered: two point reads and O(log items) for leaves that were asked for before, O(forks on
        the paths + entries since the common ancestor) for a leaf beside one of those, else O(kept entries + forks).
        """
        checked_leaf(leaf_a, "leaf_a")
        checked_leaf(leaf_b, "leaf_b")
        async with self._turn:
            mine = await self._chain_at(leaf_a)
            other = await self._chain_at(leaf_b)
        return mine.common(other)

    async def _chain_at(self, leaf: LeafChoice) -> PrefixChain:
        """Return the running digests of the context at a leaf. The caller has the turn."""
        if isinstance(leaf, Stored):
            leaf = (await self._stored_info()).leaf_id
        known = self._chains.get(leaf)
        if known is not None:
            read = await self._backend.read_context(self._ref, leaf=leaf, unless=known.stamp)
            if read.entries is None:
                return known.chain
        else:
            grown = await self._chain_beside(leaf)
            if grown is not None:
                return self._remembered(leaf, grown)
            read = await self._backend.read_context(self._ref, leaf=leaf)
        entries = read.entries or ()
        return self._remembered(leaf, KnownChain(read.stamp, chain_of(context_of(entries, read.compaction), entries)))

    async def _chain_beside(self, leaf: str | None) -> KnownChain | None:
        """Return the digests at a leaf made of those that are known at another, where nothing since changes them."""
        base_leaf, base = next(reversed(self._chains.items()), (None, None))
        if base is None or base_leaf is None or leaf is None or not base.chain.can_grow:
            return None
        common = await self._backend.common_ancestor(self._ref, self._ref, leaf=base_leaf, other_leaf=leaf)
        ancestor = None if common is None else await self._backend.get_entry(self._ref, common)
        if ancestor is None or ancestor.depth < base.chain.changed_at:
            return None
        since = await self._backend.read_path_since(self._ref, ancestor.id, leaf=leaf)
        added = since.entries or ()
        # Another epoch: what was remembered may have been erased since.
        if since.stamp.epoch != base.stamp.epoch or any(entry.kind in (COMPACTION, EXCLUSION) for entry in added):
            return None
        return KnownChain(since.stamp, base.chain.grown(ancestor.depth, project_kept(added)))

    def _remembered(self, leaf: str | None, known: KnownChain) -> PrefixChain:
        self._chains.pop(leaf, None)
        if len(self._chains) >= MOST_CHAINS:
            del self._chains[next(iter(self._chains))]
        self._chains[leaf] = known
        return known.chain
