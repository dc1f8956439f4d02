"""Finding texts: candidates that an index names, or every text there is, looked at in the store."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from math import log
from typing import NamedTuple, TypeAlias

from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionHead, SessionInfo, SessionRef, retracted_in
from flue_py.errors import InvalidArgument, SessionNotFound
from flue_py.search import queries
from flue_py.search.queries import MOST_WORDS, Query, Span
from flue_py.search.texts import SearchedText, texts_of, title_text
from flue_py.sessions.search.indexing import left_by_deleted, title_number, title_of
from flue_py.sessions.search.narrowing import Narrowing, weight_of
from flue_py.store.backend import Backend
from flue_py.store.words import FoundText, Wanted, WordIndex

_POOL = 1_000
"""How many candidates are ranked at a time, those that came last first."""
_SPARE = 20
_PAGE = 500
_USUAL_CHARACTERS = 400
_LONG = 200_000
"""How many characters are looked at on the thread of the event loop."""
_AT_ONCE = 0.01
"""How many seconds a regular expression is tried there."""


class Finding(NamedTuple):
    """A text that has what is looked for, and where in it. ``entry`` is None for a title.

    ``by_id`` says that what is looked for is its id, whether or not the text has it.
    """

    session: SessionInfo
    entry: Entry | None
    number: int
    text: SearchedText
    spans: Sequence[tuple[int, int]]
    score: float
    by_id: bool = False

    @property
    def at_us(self) -> int:
        """When it was written; for a title, when the session was made."""
        return self.session.created_us if self.entry is None else self.entry.created_us

    @property
    def order(self) -> tuple[float, int, str, int]:
        """Where it stands among others: the best first, of equals the newest."""
        return (-self.score, -self.at_us, "" if self.entry is None else self.entry.id, self.number)


_Match: TypeAlias = tuple[Entry, int, SearchedText, list[Span]]
"""A text with its number, and where it has what is looked for."""


class Found(NamedTuple):
    """What was found, best first, and whether there is more."""

    findings: Sequence[Finding]
    has_more: bool


class Finder:
    """Looks for what a query asks for, in the sessions that were chosen."""

    def __init__(self, backend: Backend, query: Query, narrowing: Narrowing, chosen: Mapping[int, SessionHead]) -> None:
        self._backend = backend
        self._query = query
        self._narrowing = narrowing
        self._chosen = chosen
        self._infos: dict[str, SessionInfo | None] = {}
        self._retracted: dict[int, frozenset[str]] = {}
        self._met: set[tuple[str, str | None, int, int]] = set()

    async def by_index(self, index: WordIndex, limit: int) -> Found:
        """Return up to ``limit`` findings among what the index names. O(terms' texts, and the texts looked at)."""
        wanted = Wanted(
            self._query.need, self._narrowing.marks(self._chosen), self._narrowing.since_us, self._query.pairs
        )
        found: list[Finding] = []
        before: int | None = None
        self._met.clear()
        while True:
            pool = await index.find(wanted, before, _POOL)
            ranked = sorted((each for each in pool if self._narrowing.may_have(each, self._chosen)), key=_rank)
            # Where few of them have it, as of a phrase of common words, more at a time are fewer reads.
            low, many = 0, limit + _SPARE
            while low < len(ranked):
                found += await self._look_at(ranked[low : low + many])
                if len(found) > limit:
                    return _best(found, limit)
                low, many = low + many, many * 4
            if len(pool) < _POOL:
                return _best(found, limit)
            before = pool[-1].doc

    async def by_scan(self, limit: int) -> Found:
        """Return up to ``limit`` findings; every text is read. O(store)."""
        best: list[tuple[tuple[float, int, str, int], int, Finding]] = []
        count = 0
        self._met.clear()
        async with aclosing(self._all_texts()) as texts:
            async for info, entry, number, text in texts:
                finding = await self._finding(info, entry, number, text)
                if finding is not None:
                    count += 1
                    best.append((finding.order, count, finding))
                    if len(best) > 4 * limit + _SPARE:
                        best = heapq.nsmallest(limit, best)
        return Found([each[2] for each in heapq.nsmallest(limit, best)], has_more=count > limit)

    async def _all_texts(self) -> AsyncGenerator[tuple[SessionInfo, Entry | None, int, SearchedText], None]:
        for key, head in self._chosen.items():
            for info in await self._seen_by(key):
                title = self._title(head, info)
                if title is not None:
                    yield info, None, title_number(title), title_text(title)
                # One that is deleted meanwhile is no answer.
                with suppress(SessionNotFound):
                    async with aclosing(self._entries(head, info)) as pages:
                        async for page in pages:
                            for entry in page:
                                for number, text in enumerate(texts_of(entry)):
                                    yield info, entry, number, text

    async def _entries(self, head: SessionHead, info: SessionInfo) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield what a session has added, and what deleted ones have left to it, as it was added."""
        without = await self._without(info)
        if info.forked_from_session is not None:
            yield [entry for entry in await left_by_deleted(self._backend, info) if entry.id not in without]
        after = 0
        while page := await self._backend.changes(SessionRef(head.id, head.session_key), after, _PAGE):
            after = page[-1].revision
            entries = [entry for change in page for entry in change.entries]
            if head.id in self._narrowing.heirs:
                held = await self._backend.get_entries(info.ref, [entry.id for entry in entries])
                entries = [entry for entry in held if entry is not None]
            yield [entry for entry in entries if entry.id not in without]

    def _title(self, head: SessionHead, info: SessionInfo) -> str | None:
        """Return the title of a session; None for one that is looked at for a fork of it."""
        return None if head.id in self._narrowing.heirs else title_of(info)

    async def _look_at(self, candidates: Iterable[FoundText]) -> list[Finding]:
        """Return those of the candidates that have what is looked for. Two reads, of however many sessions."""
        numbers: dict[tuple[str, str], list[int]] = {}
        titles: dict[str, tuple[SessionHead, list[int]]] = {}
        for each in candidates:
            head = self._chosen[each.session_key]
            for name in self._names(head):
                if each.entry_id is not None:
                    numbers.setdefault((name, each.entry_id), []).append(each.number)
                elif head.id not in self._narrowing.heirs:
                    titles.setdefault(name, (head, []))[1].append(each.number)
        matches = await self._matches(numbers)
        # Of a phrase of common words, most candidates are none: nothing more is read of their sessions.
        infos = await self._read_infos([*(name for name, _ in matches), *titles])
        found = [self._made(infos[name], *match) for name, match in matches if name in infos]
        for name, (head, titled) in titles.items():
            title = self._title(head, infos[name]) if name in infos else None
            if title is not None and title_number(title) in titled:
                found.append(await self._finding(infos[name], None, title_number(title), title_text(title)))
        return [each for each in found if each is not None]

    async def _matches(self, numbers: Mapping[tuple[str, str], Sequence[int]]) -> list[tuple[str, _Match]]:
        """Return which texts of entries have what is looked for, and where, with the session that each is seen by.

        What a session has retracted is none, and nothing is of one that is gone.
        """
        found = []
        entries = await self._backend.read_named(list(numbers)) if numbers else ()
        for ((name, _), asked), entry in zip(numbers.items(), entries, strict=True):
            for number, text in enumerate(() if entry is None else texts_of(entry)):
                if entry is not None and number in asked:
                    spans = await self._spans_in(name, entry, entry.created_us, text)
                    if spans is not None:
                        found.append((name, (entry, number, text, spans)))
        return found

    async def _read_infos(self, names: Iterable[str]) -> Mapping[str, SessionInfo]:
        """Return those of some sessions that are there, by name, each of them read once."""
        asked = [name for name in dict.fromkeys(names) if name not in self._infos]
        if asked:
            self._infos.update(zip(asked, await self._backend.get_sessions(asked), strict=True))
        return {name: info for name, info in self._infos.items() if info is not None}

    async def _finding(self, info: SessionInfo, entry: Entry | None, number: int, text: SearchedText) -> Finding | None:
        at_us = info.created_us if entry is None else entry.created_us
        spans = await self._spans_in(info.id, entry, at_us, text)
        return None if spans is None else self._made(info, entry, number, text, spans)

    def _made(
        self, info: SessionInfo, entry: Entry | None, number: int, text: SearchedText, spans: list[Span]
    ) -> Finding | None:
        """Return the finding; None for a text that was found before."""
        if self._was_found(entry, number):
            return None
        role = None if entry is None else entry.role
        return Finding(info, entry, number, text, spans, _score(text, role, len(spans)))

    async def _spans_in(self, name: str, entry: Entry | None, at_us: int, text: SearchedText) -> list[Span] | None:
        """Return where a text has what is looked for; None where it does not match, or is not searched."""
        if not self._narrowing.has_text(None if entry is None else entry.role, at_us, text):
            return None
        try:
            return await self._spans(text.text)
        except TimeoutError as error:
            raise _took_too_long(name, entry) from error

    async def _spans(self, text: str) -> list[Span] | None:
        """Return where a text has what is looked for. What takes long is done where it holds up nobody else."""
        if len(text) <= _LONG and len(self._query.words) <= MOST_WORDS:
            with suppress(TimeoutError):
                return self._query.find(text, _AT_ONCE)
        return await self._backend.waiting.call(partial(self._query.find, text, queries.SECONDS))

    def _was_found(self, entry: Entry | None, number: int) -> bool:
        """Return whether a text was found before: what several forks see, as of a deleted session, is met in each."""
        if entry is None:
            return False
        text = (entry.id, entry.session_id, entry.created_us, number)
        is_again = text in self._met
        self._met.add(text)
        return is_again

    def _names(self, head: SessionHead) -> Sequence[str]:
        """Return the session itself, or the forks that it is looked at for."""
        return self._narrowing.heirs.get(head.id, [SessionRef(head.id, head.session_key)])

    async def _seen_by(self, key: int) -> Sequence[SessionInfo]:
        """Return the session of this key, or the forks that it is looked at for; none that is gone."""
        head = self._chosen[key]
        infos = await self._read_infos(self._names(head))
        return [infos[name] for name in self._names(head) if name in infos]

    async def _without(self, info: SessionInfo) -> frozenset[str]:
        """Return the entries that a session has retracted: they are in no history any more."""
        key = info.session_key
        if key not in self._retracted:
            self._retracted[key] = retracted_in(await self._backend.read_marks(info.ref))
        return self._retracted[key]


def _took_too_long(name: str, entry: Entry | None) -> InvalidArgument:
    where = "its title" if entry is None else f"entry {entry.id}"
    return InvalidArgument(
        f"words: the regular expression was tried for {queries.SECONDS:g} seconds on one text of session {name}, "
        f"{where}; make it simpler, such as without a repetition in another, or search less (sessions, since, role)"
    )


def _rank(text: FoundText) -> float:
    """Return where a candidate stands before it was looked at: short texts of weight first, others behind."""
    return -text.weight / (1 + log(1 + text.length / 100))


def _score(text: SearchedText, role: str | None, matches: int) -> float:
    return weight_of(text.part, role) * (1 + log(matches)) / (1 + log(1 + len(text.text) / _USUAL_CHARACTERS))


def _best(found: Iterable[Finding], limit: int) -> Found:
    ordered = sorted(found, key=lambda each: each.order)
    return Found(ordered[:limit], has_more=len(ordered) > limit)
