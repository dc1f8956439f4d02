"""An index of words beside a store: what it holds of each text, and what it is asked for.

It is made of the store and can be made again at any time; the store never needs it. It holds terms, and where they are;
a text that it finds is read from the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from flue_py.core.frozen import frozen
from flue_py.search.queries import Need

MARK = "\ue000"
"""How terms begin that are in no text: what searches narrow by."""


def session_mark(key: int) -> str:
    """Return the mark of the texts of a session. An index adds it by itself."""
    return f"{MARK}k{key}"


class IndexedText(NamedTuple):
    """A text on its way into the index: whose it is, what it weighs in a ranking, and its terms.

    ``number`` is its place among the texts of its entry; a title has no entry. ``marks`` are what searches narrow by.
    """

    entry_id: str | None
    number: int
    at_us: int
    weight: int
    terms: Collection[str]
    marks: Collection[str]


class FoundText(NamedTuple):
    """A text that an index holds; ``doc`` counts them in the order in which they came into it."""

    doc: int
    session_key: int
    entry_id: str | None
    number: int
    at_us: int
    weight: int
    length: int


@frozen
class KnownSession:
    """A session as the index knows it: up to which revision, with which title, and what it was forked from.

    The revision is -1 where it has to be read from its beginning: even at 0 a fork may have what others left to it.
    ``source_key`` is None as well where the source was deleted before it was read.
    """

    key: int
    id: str
    revision: int
    source_key: int | None
    title: str | None = None


class Wanted(NamedTuple):
    """What an index is asked for: terms, marks that a text has (one of each group), and how old it may be."""

    need: Need
    marks: Sequence[Sequence[str]] = ()
    since_us: int | None = None


class WordIndex(Protocol):
    """An index of words, open. Its functions block."""

    def begin(self) -> None:
        """Keep other writers out until `commit`; `close` takes back what was not committed."""

    def commit(self) -> None:
        """Keep what was written."""

    def known(self) -> Mapping[int, KnownSession]:
        """Return the sessions that it knows, by key. O(sessions)."""

    def known_one(self, key: int) -> KnownSession | None:
        """Return a session if the index knows it. O(1)."""

    def add(self, session: KnownSession, texts: Sequence[IndexedText]) -> None:
        """Add texts of a session, and note how far it is known now. Those that are there are passed over."""

    def forget(self, keys: Collection[int]) -> None:
        """Remove every trace of sessions, and what lies in one piece with them: that has to be added again."""

    def reread(self, keys: Collection[int]) -> None:
        """Have sessions be read from their beginning again: what is there already is passed over then."""

    def moment(self) -> int:
        """Return a number that is another one after others have changed it. O(1)."""

    def count(self) -> int:
        """Return how many texts it holds. O(1)."""

    def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        """Return up to ``limit`` texts that have what is wanted, those that came last first, before one of them."""

    def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        """Return terms of the range, in no order, each maybe more than once: up to ``limit`` of each newer segment."""

    def problems(self) -> Sequence[str]:
        """Check it; return what is wrong. O(index)."""

    def close(self) -> None:
        """Let go of it."""
