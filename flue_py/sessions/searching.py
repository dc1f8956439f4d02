"""Searching a store: what callers ask, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from flue_py.core.sessions import VerifyReport
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import (
    HasId,
    checked_choice,
    checked_function,
    checked_limit,
    checked_moment,
    checked_session,
    checked_text,
)
from flue_py.sessions.scoping import Scoped

if TYPE_CHECKING:
    from flue_py.search import queries, values
    from flue_py.search.values import How, Part, SearchAnswer
    from flue_py.sessions.search import answering, checking, narrowing
else:
    # Most programs search nothing.
    answering = lazy_module("flue_py.sessions.search.answering")
    checking = lazy_module("flue_py.sessions.search.checking")
    narrowing = lazy_module("flue_py.sessions.search.narrowing")
    queries = lazy_module("flue_py.search.queries")
    values = lazy_module("flue_py.search.values")


class StoreSearch(Scoped):
    """The half of a `Store` that finds again what was said."""

    __slots__ = ()

    async def search(
        self,
        words: str,
        *,
        how: How = "words",
        parts: Sequence[Part] | None = None,
        sessions: Iterable[HasId | str] | None = None,
        exclude: Iterable[HasId | str] = (),
        scope: str | None = None,
        project: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 20,
        progress: Callable[[int, int], None] | None = None,
    ) -> SearchAnswer:
        """Return where something was said: up to ``limit`` (1 to 1000) texts that have these words, the best first.

        Words are taken literally, any number of them: each has to be in the text, whatever characters it has;
        ``userName`` is in ``getUserName``, and ``pool.py`` in ``src/db/pool.py``. ``how="query"`` knows ``AND``,
        ``OR``, ``NOT``, ``"phrases"``, ``begin*`` and parentheses; ``"substring"`` and ``"regex"`` read every text. The
        id of an entry or a session finds that one first, then the texts that have it. ``parts`` are ``messages``,
        ``tools``, ``thinking``, ``titles``, ``summaries``, all but thinking where none is named. ``sessions`` are
        searched with their tasks and what they see of the sessions they were forked from; ``project`` is a folder with
        those below it. ``since`` is included, ``until`` is not.

        The answer says what was searched, and where each text lies. What an entry had before it was retracted is not
        found. On a SQLite file and on PostgreSQL, an index beside it is brought up to date first; elsewhere every text
        is read, with the same result. ``progress`` is called with the entries that were added to the index, and those
        that are missing in all. Raises `InvalidArgument`, also for a regular expression that takes more
        than five seconds of CPU time on one text, and `SessionNotFound` for one of ``sessions``. O(texts
        with the rarest word), and O(what was written since the last search); without an index O(store).
        """
        checked_choice(how, "how", values.HOWS)
        if not isinstance(words, str):
            raise InvalidArgument(f"words: should be a text, not {type(words).__name__}")
        checked_function(progress, "progress")
        chosen = narrowing.Narrowing(
            parts=_checked_parts(parts),
            sessions=None if sessions is None else _ids(sessions, "sessions"),
            without=_ids(exclude, "exclude"),
            scope=self._meant(scope),
            project=checked_text(project, "project"),
            role=checked_text(role, "role"),
            tool=checked_text(tool, "tool"),
            since_us=None if since is None else checked_moment(since),
            until_us=None if until is None else checked_moment(until),
        )
        most = checked_limit(limit)
        read = partial(queries.read_query, words, how)
        # A page that was pasted is read where that holds up nobody else.
        query = read() if len(words) <= queries.MOST_CHARACTERS else await self._backend.waiting.call(read)
        asked = answering.Asked(words, query, chosen, most, progress)
        return await answering.answer(self._backend, asked)

    async def verify(self) -> VerifyReport:
        """Re-derive everything that is stored twice; ``problems`` names what disagrees. O(store).

        The index of words beside a store in which nothing does is checked as well, and asked for words of the store.
        """
        report = await self._backend.verify()
        if report.problems:
            return report
        found = await checking.index_problems(self._backend)
        return VerifyReport(report.sessions, report.entries, found) if found else report


def _checked_parts(parts: Sequence[Part] | None) -> tuple[Part, ...]:
    if parts is None:
        return values.DEFAULT_PARTS
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise InvalidArgument("parts: should be a list of names")
    for part in parts:
        checked_choice(part, "parts", values.PARTS)
    if not parts:
        raise InvalidArgument("parts: nothing would be searched; name one, or leave them out")
    return tuple(part for part in values.PARTS if part in parts)


def _ids(sessions: Iterable[HasId | str], what: str) -> frozenset[str]:
    if isinstance(sessions, str) or not isinstance(sessions, Iterable):
        raise InvalidArgument(f"{what}: should be a list of sessions, or of their ids")
    return frozenset(str(checked_session(each)) for each in sessions)
