"""An index of words beside a store: what it holds of each text, and what it is asked for.

It is made of the store and can be made again at any time; the store never needs it. It holds terms, and where they are;
a text that it finds is read from the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from flue_py.search import Need, Pairs

MARK = "\ue000"
"""How terms begin that are in no text: what searches narrow by."""


def session_mark(key: int) -> str:
    """Return the mark of the texts of a session. An index adds it by itself."""
    return f"{MARK}k{key}"


class IndexedText(NamedTuple):
    """A text on its way into the index: whose it is, what it weighs in a ranking, and its terms.

    ``number`` is its place among the texts of its entry; a title has no entry. ``marks`` are what searches narrow by,
    ``pairs`` the bits that say which terms are not one behind the other (`search.pairs`).
    """

    entry_id: str | None
    number: int
    at_us: int
    weight: int
    terms: Collection[str]
    marks: Collection[str]
    pairs: bytes = b""


class FoundText(NamedTuple):
    """A text that an index holds; ``doc`` counts them in the order in which they came into it."""

    doc: int
    session_key: int
    entry_id: str | None
    number: int
    at_us: int
    weight: int
    length: int


class KnownSession(NamedTuple):
    """A session as the index knows it: up to which revision, with which title, and what it was forked from.

    The revision is -1 where it has to be read from its beginning: even at 0 a fork may have what others left to it.
    ``source_key`` is None as well where the source was deleted before it was read. ``updated_us`` is the time of that
    revision (0 until the session was read to its end), ``last_entry`` names the last entry that it added up to there,
    at ``last_revision``: in a store that was put back to an older state, the same revision may be another one.
    """

    key: int
    id: str
    revision: int
    source_key: int | None
    title: str | None = None
    updated_us: int = 0
    last_revision: int = 0
    last_entry: str | None = None


class Wanted(NamedTuple):
    """What an index is asked for: terms, marks that a text has (one of each group), how old it may be, and which terms
    it must have one behind the other (one pair of each group).
    """

    need: Need
    marks: Sequence[Sequence[str]] = ()
    since_us: int | None = None
    pairs: Pairs = ()


class WordIndex(Protocol):
    """An index of words, open. Its functions raise `StoreBusy`, `StoreUnavailable` and `CorruptStore`."""

    async def begin(self) -> None:
        """Keep other writers out until `commit`, where that is how the database does it; `close` takes it back."""

    async def commit(self) -> None:
        """Keep what was written."""

    async def known(self) -> Mapping[int, KnownSession]:
        """Return the sessions that it knows, by key. O(sessions)."""

    async def known_one(self, key: int) -> KnownSession | None:
        """Return a session if the index knows it. O(1)."""

    async def add(self, before: KnownSession, after: KnownSession, texts: Sequence[IndexedText]) -> bool:
        """Add texts of a session that the index knows as ``before``, know it as ``after`` then, and return True.

        Texts that are there are passed over. Where another process was faster, or has deleted it, nothing is done.
        """

    async def forget(self, keys: Collection[int]) -> None:
        """Remove every trace of sessions, and what lies in one piece with them: that has to be added again."""

    async def reread(self, keys: Collection[int]) -> None:
        """Have sessions be read from their beginning again: what is there already is passed over then."""

    async def moment(self) -> int:
        """Return a number that is another one once texts were taken out of it, by whichever process. O(1)."""

    async def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        """Return up to ``limit`` texts that have what is wanted, those that came last first, before one of them.

        Texts may be among them that do not have it: the text decides.
        """

    async def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        """Return terms of the range, in no order, each maybe more than once: of newer texts, where they are many."""

    async def problems(self) -> Sequence[str]:
        """Check it; return what is wrong. O(index)."""

    async def close(self) -> None:
        """Let go of it."""
