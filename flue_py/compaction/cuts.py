"""Where a context may be cut: looked for at its end, so that what lies long before the cut costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from flue_py.compaction.reading import Messages
from flue_py.core.exchange import Pairing, answered_id, called_ids

_LEAST_STEP = 64


class Cuts:
    """The places from ``start`` on where a context may be cut.

    ``allowed`` says of an index whether a cut may fall there at all. With ``whole``, no call lies before a cut and its
    result at or after it, unless the message of the call is in ``pinned`` and stays anyway. ``preferred`` says which of
    the cuts after a place is taken: the first of those, if there is any.
    """

    def __init__(
        self,
        messages: Messages,
        start: int,
        allowed: Callable[[int], bool],
        pinned: frozenset[int],
        *,
        whole: bool,
        preferred: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._messages = messages
        self._start = start
        self._allowed = allowed
        self._pinned = pinned
        self._whole = whole
        self._preferred = preferred

    def first(self) -> int | None:
        """Return the first cut."""
        found = next((at for at in range(self._start, len(self._messages)) if self._allowed(at)), None)
        # Before the start there may be pinned calls; the summary, which comes first, calls nothing.
        if found is None or not self._whole or found == self._start <= 1:
            return found
        return next(iter(self._from(self._start)), None)

    def following(self, index: int) -> int | None:
        """Return the first cut at an index or after it that is preferred, or else the first. O(messages after it)."""
        found = self._from(index)
        return next(filter(self._preferred, found), next(iter(found), None))

    def after(self, index: int) -> list[int]:
        """Return the cuts after an index, in order. O(messages from there on)."""
        return self._from(index + 1)

    def last_before(self, index: int) -> int | None:
        """Return the last cut before an index from which on there is none. O(messages from the cut on)."""
        first = index
        while first > self._start:
            first = max(self._start, first - max(len(self._messages) - first, _LEAST_STEP))
            if found := self._from(first):
                return ([*filter(self._preferred, found)] or found)[-1]
        return None

    def _from(self, first: int) -> list[int]:
        """Return the cuts from an index on."""
        cuts = [at for at in range(first, len(self._messages)) if self._allowed(at)]
        if not self._whole or not cuts:
            return cuts
        pairing = self._messages.pairing(range(first, len(self._messages)))
        pinned = {at - first for at in self._pinned}
        whole = [first + at for at in pairing.whole_cuts([cut - first for cut in cuts], pinned)]
        reached = self._last_called_before(first, pairing)
        return [cut for cut in whole if cut > reached]

    def _last_called_before(self, first: int, pairing: Pairing) -> int:
        """Return the last result from an index on whose call lies before that, and may be parted from it; else -1."""
        latest: dict[str, int] = {}
        for at in sorted(pairing.unpaired):
            called = answered_id(self._messages[first + at])
            if called is not None:
                latest[called] = first + at
        if not latest:
            return -1
        reached = -1
        for at in self._messages.calling(range(first - 1, -1, -1)):
            if not latest:
                break
            for called in called_ids(self._messages[at]):
                result = latest.pop(called, -1)
                reached = reached if at in self._pinned else max(reached, result)
        return reached
