"""How far two contexts are the same, byte for byte: a digest that runs along the items of a context.

A provider reads from its cache what a request has in common with an earlier one, from the first byte on. Of two
contexts that are the same up to an item, the digests there are the same, and nowhere after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import encode_json
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE
from flue_py.core.projection import ContextEntry

_SIZE = 16


@frozen
class CommonPrefix:
    """What two contexts begin with, byte for byte.

    ``items`` is how many items that are, of ``items_a`` and ``items_b``; ``entry_id`` is the entry behind the last of
    them in the first context, None where they have nothing in common. ``digest`` tells this prefix from every other.
    """

    items: int
    entry_id: str | None
    digest: str
    items_a: int
    items_b: int

    @property
    def is_whole(self) -> bool:
        """Whether one of the two is the beginning of the other, or the same."""
        return self.items == min(self.items_a, self.items_b)


@frozen
class PrefixChain:
    """The running digests of a context.

    ``ends`` holds the digest after each item, one after the other, ``ids`` the entry behind each, ``depths`` its depth,
    -1 for the summary of a compaction. ``changed_at`` is the depth of the last entry on the path that changed what
    came before it, -1 for none; ``can_grow`` says that what follows only adds items.
    """

    ends: bytes
    ids: tuple[str, ...]
    depths: tuple[int, ...]
    changed_at: int = -1
    can_grow: bool = True

    def digest(self, items: int) -> bytes:
        """Return the digest after so many items; that of no items is all zero."""
        return self.ends[(items - 1) * _SIZE : items * _SIZE] if items else bytes(_SIZE)

    def common_items(self, other: PrefixChain) -> int:
        """Return how many items two contexts begin with alike. O(log items)."""
        low, high = 0, min(len(self.ids), len(other.ids))
        while low < high:
            middle = (low + high + 1) // 2
            if self.digest(middle) == other.digest(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def common(self, other: PrefixChain) -> CommonPrefix:
        """Return what two contexts begin with. O(log items)."""
        items = self.common_items(other)
        last = self.ids[items - 1] if items else None
        return CommonPrefix(items, last, self.digest(items).hex(), len(self.ids), len(other.ids))

    def grown(self, depth: int, added: Sequence[ContextEntry]) -> PrefixChain:
        """Return the chain of the items up to a depth, where nothing after it changes them, and of those added to it.

        O(added).
        """
        kept = bisect_right(self.depths, depth)
        start = PrefixChain(self.ends[: kept * _SIZE], self.ids[:kept], self.depths[:kept], self.changed_at)
        return _chained(start, added)


def item_bytes(item: ContextEntry) -> bytes:
    """Return the message of an item as JSON text, in UTF-8: what stands in the projection. O(size)."""
    entry = item.entry
    if entry.kind == MESSAGE and not item.excluded_parts:
        # The stored text is what `encode_json` makes of the message.
        return entry.payload.encode()
    return encode_json(item.data, item.kind)[0].encode()


def chain_of(items: Sequence[ContextEntry], path: Iterable[Entry] = ()) -> PrefixChain:
    """Return the chain of a context. ``path`` is what it was read from. O(size)."""
    changes = [entry for entry in path if entry.kind in (COMPACTION, EXCLUSION)]
    changed_at = max((entry.depth for entry in changes), default=-1)
    # What is left out is found by the whole path: it cannot be told from what follows.
    can_grow = all(entry.kind != EXCLUSION for entry in changes)
    return _chained(PrefixChain(b"", (), (), changed_at, can_grow), items)


def _chained(start: PrefixChain, items: Sequence[ContextEntry]) -> PrefixChain:
    end = start.digest(len(start.ids))
    ends = [start.ends]
    for item in items:
        end = blake2b(end + item_bytes(item), digest_size=_SIZE).digest()
        ends.append(end)
    ids = (*start.ids, *(item.entry.id for item in items))
    depths = (*start.depths, *(-1 if item.kind == COMPACTION else item.entry.depth for item in items))
    return PrefixChain(b"".join(ends), ids, depths, start.changed_at, start.can_grow)
