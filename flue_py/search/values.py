"""What a search is asked for, and what it answers."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from flue_py.core.frozen import frozen
from flue_py.core.sessions import SessionInfo

Part: TypeAlias = Literal["messages", "tools", "thinking", "titles", "summaries"]
PARTS: tuple[Part, ...] = get_args(Part)
DEFAULT_PARTS: tuple[Part, ...] = ("messages", "tools", "titles", "summaries")

How: TypeAlias = Literal["words", "query", "substring", "regex"]
HOWS: tuple[How, ...] = get_args(How)

Place: TypeAlias = Literal["active", "abandoned", "compacted", "title"]
"""Where a hit lies: on the active path, on another branch, before the latest compaction of the active path, or in the
title of the session."""


@frozen
class Snippet:
    """A piece of a text: the text, and where in it the matches are, as (start, end), in order."""

    text: str
    matches: tuple[tuple[int, int], ...]


@frozen
class SearchHit:
    """A text that has what was looked for. ``entry_id`` is None for a title.

    ``is_cut`` says that the text is longer than what is searched of one. ``go`` is the command line that shows it.
    ``by_id`` says that the words are its id, or that of its session where ``entry_id`` is None.
    """

    session_id: str
    entry_id: str | None
    part: Part
    role: str | None
    tool: str | None
    at_us: int
    place: Place
    snippet: Snippet
    is_cut: bool
    go: str
    by_id: bool = False


@frozen
class SessionHits:
    """The hits in one session, best first. ``revision`` is the one up to which it was searched."""

    session: SessionInfo
    revision: int
    hits: tuple[SearchHit, ...]


@frozen
class Searched:
    """What was searched: how many sessions and entries of theirs, which parts and how; and what was left out.

    ``revisions`` counts the changes of these sessions up to which they were searched: their revisions added up.
    ``newest`` is the session among them that was active last, as its id and the revision up to which it was searched;
    None where no session was. ``by_index`` is False where every text was read instead, and ``why_not`` says why.
    """

    sessions: int
    entries: int
    revisions: int
    newest: tuple[str, int] | None
    parts: tuple[Part, ...]
    left_out: tuple[Part, ...]
    by_index: bool
    why_not: str | None = None


@frozen
class SearchAnswer:
    """What a search found: sessions in order of their best hits.

    ``how`` is what was done: words that have neither letters nor digits are searched as a piece of text. ``has_more``
    says that there are more hits than were asked for. With no hit, ``widen`` names what was not tried yet, and
    ``suggestions`` words of the store that look like those asked for.
    """

    words: str
    how: How
    sessions: tuple[SessionHits, ...]
    has_more: bool
    searched: Searched
    widen: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    @property
    def hits(self) -> tuple[SearchHit, ...]:
        """All hits, session by session."""
        return tuple(hit for group in self.sessions for hit in group.hits)
