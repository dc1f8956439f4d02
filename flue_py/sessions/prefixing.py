"""What the contexts of a session begin with alike: what a provider can read from its cache."""

from __future__ import annotations

from flue_py.core.kinds import COMPACTION, EXCLUSION
from flue_py.core.prefixes import CommonPrefix, PrefixChain, chain_of
from flue_py.core.projection import context_of, project_kept
from flue_py.core.sessions import STORED, LeafChoice, Stored
from flue_py.sessions.arguments import checked_leaf
from flue_py.sessions.contexts import Contexts
from flue_py.sessions.handle import KnownChain

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
