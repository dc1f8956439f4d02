"""Exchanges of which an exclusion hides a part: it can be shown again, and must not be without the rest then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

from flue_py.core.entries import Entry
from flue_py.core.exchange import Pairing, exchange_of
from flue_py.core.frozen import frozen
from flue_py.core.kinds import EXCLUSION

_KIND = attrgetter("kind")


@frozen
class SplitExchange:
    """A call with its results: the depths of the first and the last of them, the caller, and what is hidden."""

    first: int
    last: int
    caller_id: str
    hidden: tuple[Entry, ...]


def split_exchanges(path: Sequence[Entry], shown: Iterable[str]) -> list[SplitExchange]:
    """Return the exchanges on a path of which only some entries, or none, are shown, by their ids. O(path)."""
    if EXCLUSION not in map(_KIND, path):
        return []
    ids = frozenset(shown)
    pairing = Pairing(map(exchange_of, path))
    found = []
    for caller in dict.fromkeys(call.at for call in pairing.results):
        group = pairing.group_of(caller)
        members = [] if group is None else [path[at] for at in group.members]
        hidden = tuple(entry for entry in members if entry.id not in ids)
        if hidden:
            found.append(SplitExchange(members[0].depth, members[-1].depth, path[caller].id, hidden))
    return found


class Uncut:
    """Where no cut may be made: between the first and the last entry of such an exchange."""

    def __init__(self, exchanges: Sequence[SplitExchange], pinned: Collection[str]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        # What is pinned stays, wherever it is cut.
        for each in sorted((one.first, one.last) for one in exchanges if one.caller_id not in pinned):
            if self._lasts and each[0] < self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], each[1])
            else:
                self._firsts.append(each[0])
                self._lasts.append(each[1])

    def holds(self, depth: int) -> bool:
        """Return whether an entry of a depth lies within one, so that it cannot be the first that is kept. O(log n)."""
        at = bisect_left(self._firsts, depth) - 1
        return at >= 0 and depth <= self._lasts[at]
