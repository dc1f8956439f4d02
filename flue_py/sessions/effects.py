"""What a mark does to a context, in tokens."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.frozen import frozen
from flue_py.core.projection import ContextEntry


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
    from flue_py.context.tokens import count_tokens  # noqa: PLC0415 - not every caller asks

    return count_tokens(item.data for item in items).tokens
