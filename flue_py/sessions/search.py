"""The search of a store: its index of words brought up to date, asked, and checked against the texts."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from math import log
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import field
from msgspec.structs import replace

from flue_py import errors, search
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, NamedTuple
from flue_py.core.sessions import MAX_NAME_BYTES, Problem, SessionHead, SessionInfo, SessionRef, retracted_in
from flue_py.db.backend import Backend
from flue_py.db.runner import MARK, FoundText, IndexedText, KnownSession, Wanted, WordIndex, session_mark
from flue_py.lazy import lazy_module
from flue_py.system import is_below

if TYPE_CHECKING:
    import difflib

else:
    # Only a search that finds nothing needs it.
    difflib = lazy_module("difflib")


# ---------------------------------------------------------------------------------------------------------------------
# The narrowing of a search, as sessions and as marks of texts.

_MOST_TEXTS: frozenset[search.Part] = frozenset(("messages", "tools"))
_WEIGHTS: Mapping[search.Part, int] = {"titles": 40, "messages": 12, "summaries": 14, "tools": 8, "thinking": 6}
_WEIGHT_OF_USER = 20
_PARTS_BY_WEIGHT: Mapping[int, search.Part] = {weight: part for part, weight in _WEIGHTS.items()}
_MOST_MARKS = 200
"""How many sessions are asked for by their marks; of more, the texts found are looked through."""


class Narrowing(Frozen):
    """The narrowing of a search.

    ``sessions`` are named ones and their tasks; ``heirs`` are sessions that these were forked from, with the
    forks that see a part of each.
    """

    parts: tuple[search.Part, ...]
    sessions: frozenset[str] | None = None
    heirs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    scope: str | None = None
    project: str | None = None
    role: str | None = None
    tool: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def has_session(self, head: SessionHead) -> bool:
        """Return whether a session is one that is searched."""
        return (
            (self.sessions is None or head.id in self.sessions or head.id in self.heirs)
            and head.id not in self.without
            and (self.scope is None or head.scope == self.scope)
            and (self.project is None or is_below(head.cwd, self.project))
        )

    def has_text(self, role: str | None, at_us: int, text: search.SearchedText) -> bool:
        """Return whether a text is one that is searched."""
        return (
            text.part in self.parts
            and (self.role is None or role == self.role)
            and (self.tool is None or text.tool == self.tool)
            and (self.since_us is None or at_us >= self.since_us)
            and (self.until_us is None or at_us < self.until_us)
        )

    def marks(self, heads: Mapping[int, SessionHead]) -> Sequence[Sequence[str]]:
        """Return the marks of which a text has one of each group.

        Nearly all texts are messages or of tools: an index would take ten times as long to find that out of each.
        """
        groups: list[list[str]] = []
        if not set(self.parts) >= _MOST_TEXTS:
            groups.append([_part_mark(part) for part in self.parts])
        groups += [[mark] for mark in _marks_of(self.role, self.tool, self.scope)]
        if (self.sessions is not None or self.project is not None) and len(heads) <= _MOST_MARKS:
            groups.append([session_mark(key) for key in heads])
        return groups


def _marks_of(role: str | None, tool: str | None, scope: str | None) -> list[str]:
    """Return the marks of a text of a role, a tool and a scope, as far as they are not None."""
    names: tuple[tuple[Literal["r", "t", "c"], str | None], ...] = (("r", role), ("t", tool), ("c", scope))
    return [_mark(kind, name) for kind, name in names if name is not None]


def weight_of(part: search.Part, role: str | None) -> int:
    """Return the weight of a text in a ranking: words of people before those of tools."""
    return _WEIGHT_OF_USER if part == "messages" and role == "user" else _WEIGHTS[part]


def _part_mark(part: search.Part) -> str:
    return f"{MARK}p{part}"


def _mark(kind: Literal["r", "t", "c"], name: str) -> str:
    """Return the mark of a role, a tool or a scope: names with any characters, which nobody should read in an index."""
    return f"{MARK}{kind}{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


# ---------------------------------------------------------------------------------------------------------------------
# Catching an index up with its store: the entries of each session since the revision that the index knows.

Progress: TypeAlias = Callable[[int, int], None]
"""Gets how many entries were added to an index, and of how many."""

VERSION = search.VERSION * 1000 + search.VERSION
_INDEXING_PAGE = 500
_CHUNK = 4 * _INDEXING_PAGE
"""How many entries are indexed in one transaction: others who search wait for its end."""


class Indexer:
    """Adds missing texts to an index. Only the index is written, the store is read."""

    def __init__(self, backend: Backend, index: WordIndex, progress: Progress | None = None) -> None:
        self._backend = backend
        self._index = index
        self._progress = progress
        self._done = self._total = 0
        self._keys: dict[str, int] = {}
        self.unread: set[int] = set()
        """The keys of sessions that damage keeps out of the index: their texts have to be read."""

    async def catch_up(self, heads: Sequence[SessionHead]) -> None:
        """Add missing texts, and remove those of sessions that are gone. O(entries written since, and sessions).

        Raises `CorruptStore` if the index was made of another state of the store, which was put back since.
        """
        indexed = await self._index.known()
        deleted, heirs = _gone_and_heirs(indexed, heads)
        if deleted or heirs or _put_back(indexed, heads):
            # Others may have added texts after the heads were read, which are not gone: newer heads tell.
            newer = await self._backend.session_heads()
            deleted, heirs = _gone_and_heirs(indexed, newer)
            if session_id := _put_back(indexed, newer):
                raise errors.CorruptStore(f"the index of words was made of a later state of session {session_id!r}")
        if deleted or heirs:
            await self._index.begin()
            await self._index.forget(deleted)
            await self._index.reread(heirs)
            await self._index.commit()
            indexed = await self._index.known()
        self._keys = {head.id: head.session_key for head in heads}
        behind = [head for head in heads if _is_behind(indexed.get(head.session_key), head)]
        self._done, self._total = 0, sum(_missing(indexed.get(head.session_key), head) for head in behind)
        while behind:
            self._show(0)
            behind = await self._add_chunk(behind)

    def _show(self, added: int) -> None:
        """Tell how many entries were added, of how many."""
        self._done += added
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))

    async def _add_chunk(self, behind: list[SessionHead]) -> list[SessionHead]:
        """Add a chunk of the missing texts in one transaction; return the sessions that are behind still."""
        await self._index.begin()
        at = added = 0
        while at < len(behind) and added < _CHUNK:
            # Read behind the lock: whoever deletes it meanwhile waits until it can be taken out again.
            count, is_done = 0, True
            with suppress(errors.SessionNotFound):
                count, is_done = await self._add_page(behind[at])
            added += max(count, 1)
            self._show(count)
            at += is_done
        await self._index.commit()
        return behind[at:]

    async def _add_page(self, head: SessionHead) -> tuple[int, bool]:
        """Add a page of a session's changes; return how many entries that were, and whether it was the last page."""
        indexed = await self._index.known_one(head.session_key)
        source_key = self._keys.get(head.forked_from_session or "")
        start = KnownSession(head.session_key, head.id, -1, source_key) if indexed is None else indexed
        entries: list[Entry] = []
        try:
            info = await self._backend.get_session(SessionRef(head.id, head.session_key))
            if info is None:
                return 0, True
            is_same = await self._has_come_from(info, start)
            if start.revision < 0 and head.forked_from_session is not None:
                entries += await left_by_deleted(self._backend, info)
            changes = await self._backend.changes(info.ref, max(start.revision, 0), _INDEXING_PAGE)
        except errors.CorruptStore:
            self.unread.add(head.session_key)
            return 0, True
        if not is_same:
            raise errors.CorruptStore(f"the index of words was made of another state of session {info.id!r}")
        entries += [entry for change in changes for entry in change.entries]
        # Others may have gone further than the session was when this search began: that would be added again.
        reached = changes[-1].revision if changes else max(start.revision, head.revision)
        title = title_of(info)
        waiting = self._backend.waiting
        texts = await waiting.finish(
            waiting.call(partial(_indexed, head, entries, title if title != start.title else None, info))
        )
        own = next((change for change in reversed(changes) if change.entries), None)
        after = start._replace(
            revision=reached,
            title=title,
            updated_us=info.updated_us if reached == info.revision else 0,
            last_revision=start.last_revision if own is None else own.revision,
            last_entry=start.last_entry if own is None else _mark_of(own.entries[-1]),
        )
        has_landed = await self._index.add(start, after, texts)
        return len(entries), has_landed and len(changes) < _INDEXING_PAGE

    async def _has_come_from(self, info: SessionInfo, start: KnownSession) -> bool:
        """Return whether the texts that the index has of a session are the first ones added. O(changes since its last
        entry).
        """
        expected, after = start.last_entry, max(start.last_revision - 1, 0)
        while after < start.revision:
            changes = await self._backend.changes(info.ref, after, min(_INDEXING_PAGE, start.revision - after))
            for change in changes:
                if (change.revision == start.last_revision) != bool(change.entries):
                    return False
                if change.entries and _mark_of(change.entries[-1]) != expected:
                    return False
            if not changes:
                return False
            after = changes[-1].revision
        return True


def title_of(info: SessionInfo) -> str | None:
    """Return the titles of a session, by a person and by a program."""
    return "\n".join(dict.fromkeys(title for title in (info.title, info.auto_title) if title)) or None


async def left_by_deleted(backend: Backend, info: SessionInfo) -> list[Entry]:
    """Return the entries of a fork that a deleted session has left to it. O(tree)."""
    return [entry for entry in await backend.read_tree(info.ref) if entry.session_id is None]


def title_number(title: str) -> int:
    """Return the number of a title: another one for another title, since the texts of an index cannot be changed."""
    return int.from_bytes(blake2b(title.encode("utf-8", "surrogatepass"), digest_size=4).digest())


def _indexed(head: SessionHead, entries: Sequence[Entry], title: str | None, info: SessionInfo) -> list[IndexedText]:
    texts: list[tuple[str | None, int, str | None, int, search.SearchedText]] = []
    if title is not None:
        texts.append((None, title_number(title), None, info.created_us, search.title_text(title)))
    for entry in entries:
        texts += [
            (entry.id, number, entry.role, entry.created_us, text) for number, text in enumerate(search.texts_of(entry))
        ]
    indexed = [
        IndexedText(
            entry_id,
            number,
            at_us,
            weight_of(text.part, role),
            search.bag_of(text.text),
            [_part_mark(text.part), *_marks_of(role, text.tool, head.scope)],
            search.bits_of(text.text),
        )
        for entry_id, number, role, at_us, text in texts
    ]
    return [text for text in indexed if text.terms]


def _gone_and_heirs(indexed: Mapping[int, KnownSession], heads: Sequence[SessionHead]) -> tuple[set[int], set[int]]:
    """Return the known sessions that are gone from the store, and the forks that a deleted one left its own to."""
    present = {head.session_key: head for head in heads}
    # Somebody was killed between deleting a session and this, or has put an older store in place of this one.
    deleted = {
        key
        for key, session in indexed.items()
        if (head := present.get(key)) is None or head.id != session.id or head.revision < session.revision
    }
    # Entries that a deleted session has left to its forks are theirs from now on.
    forks = {key: session.source_key for key, session in indexed.items() if session.source_key is not None}
    return deleted, {key for key, source in forks.items() if source not in present} - deleted


def _put_back(indexed: Mapping[int, KnownSession], heads: Sequence[SessionHead]) -> str | None:
    """Return a session that has fewer revisions than it had, or whose source is there again, if there is one."""
    keys = {head.id: head.session_key for head in heads}
    for head in heads:
        session = indexed.get(head.session_key)
        if session is None or session.id != head.id:
            continue
        # Another session of that id came later than the fork.
        source = keys.get(head.forked_from_session or "", head.session_key)
        if head.revision < session.revision or (
            session.revision >= 0 and session.source_key is None and source < head.session_key
        ):
            return head.id
    return None


def _is_behind(indexed: KnownSession | None, head: SessionHead) -> bool:
    # At the same revision, another time tells that it is another one.
    return indexed is None or (indexed.revision, indexed.updated_us) != (head.revision, head.updated_us)


def _missing(indexed: KnownSession | None, head: SessionHead) -> int:
    """Return about how many entries of a session an index does not have."""
    behind = head.revision if indexed is None else head.revision - max(indexed.revision, 0)
    return head.entry_count * behind // max(head.revision, 1)


def _mark_of(entry: Entry) -> str:
    return f"{entry.created_us} {entry.id}"


# ---------------------------------------------------------------------------------------------------------------------
# Finding texts: candidates that an index names, or every text there is, looked at in the store.

_POOL = 1_000
"""How many candidates are ranked at a time, those that came last first."""
_SPARE = 20
_USUAL_CHARACTERS = 400
_LONG = 200_000
"""How many characters are looked at on the thread of the event loop."""
_AT_ONCE = 0.01
"""How many seconds a regular expression is tried there."""
_ATTEMPTS = 5
_SUGGESTIONS = 3
_VOCABULARY = 20_000
_LIKENESS = 0.7
_MOST_MISSED = 8
"""Words that no text has, to which those that look like them are looked for: a pasted text may have any number."""
_SUGGESTION_POOL = 100
"""Of how many texts that have a word one has to be among those that are searched."""


class Finding(NamedTuple):
    """A text that matches, and where. ``entry`` is None for a title.

    ``by_id`` says that the query is its id, whether or not the text has it.
    """

    session: SessionInfo
    entry: Entry | None
    number: int
    text: search.SearchedText
    spans: Sequence[tuple[int, int]]
    score: float
    by_id: bool = False

    @property
    def at_us(self) -> int:
        """When it was written; for a title, when the session was made."""
        return self.session.created_us if self.entry is None else self.entry.created_us


_Match: TypeAlias = tuple[Entry, int, search.SearchedText, list[search.Span]]
"""A text with its number, and where it matches."""


class Found(NamedTuple):
    """The matches, best first, and whether there are more; words that look like those asked for, if there are none.

    ``why_not`` says why every text was read instead of an index.
    """

    findings: Sequence[Finding]
    has_more: bool
    suggestions: Sequence[str] = ()
    why_not: str | None = None


class Asked(NamedTuple):
    """A question: the words as they were typed, their meaning, and its narrowing."""

    words: str
    query: search.Query
    narrowing: Narrowing
    limit: int
    progress: Progress | None = None


class Finder:
    """Looks for the answers of a question in the sessions that it is narrowed to (``picked``)."""

    def __init__(self, backend: Backend, question: Asked, heads: Sequence[SessionHead]) -> None:
        self._backend = backend
        self._question = question
        self._narrowing = question.narrowing
        self._heads = heads
        self.picked = {head.session_key: head for head in heads if question.narrowing.has_session(head)}
        self._infos: dict[str, SessionInfo | None] = {}
        self._retracted: dict[int, frozenset[str]] = {}
        self._met: set[tuple[str, str | None, int, int]] = set()
        self.damaged: dict[str, str] = {}
        """The faults of entries and sessions, in words; by entry, since several sessions may see one."""

    async def found(self) -> Found:
        """Look by the index, if there is one and it helps; else read everything.

        An index that turns out to be broken is made anew, and asked once more.
        """
        why_not = self._question.query.why_scan
        if why_not is None:
            try:
                try:
                    matches = await self._by_new_index()
                except errors.CorruptStore:
                    await self._backend.remove_words()
                    matches = await self._by_new_index()
            except (errors.StoreBusy, errors.StoreUnavailable, errors.CorruptStore) as error:
                why_not = f"the index cannot be used ({error}), so every text was read"
            else:
                if matches is not None:
                    return matches
                why_not = "this store has no index of words, so every text was read"
        self._met.clear()
        return (await self._by_scan(self._question.limit, self.picked))._replace(why_not=why_not)

    async def _by_new_index(self) -> Found | None:
        """Bring the index up to date, and look by it; None if there is no index.

        A deletion takes out the texts beside it, to be added again by whoever comes next. That may be somebody else,
        between this look and the one for missing texts: it counts whether anything was taken out meanwhile.
        """
        index = await self._backend.open_words(VERSION)
        if index is None:
            return None
        try:
            indexer = Indexer(self._backend, index, self._question.progress)
            for _ in range(_ATTEMPTS):
                before = await index.moment()
                await indexer.catch_up(self._heads)
                matches = await self.by_index(index, self._question.limit)
                if indexer.unread:
                    unread = [key for key in self.picked if key in indexer.unread]
                    matches = _both(matches, await self._by_scan(self._question.limit, unread), self._question.limit)
                if await index.moment() == before:
                    return matches if matches.findings else matches._replace(suggestions=await self._suggestions(index))
            raise errors.StoreBusy("others keep taking out of it what they delete")
        finally:
            await index.close()

    async def _suggestions(self, index: WordIndex) -> Sequence[str]:
        """Return terms that look like those asked for that no text has, of texts that were searched."""
        marks = self._narrowing.marks(self.picked)
        suggestions: list[str] = []

        async def has_text(term: str) -> bool:
            wanted = Wanted(search.Need("term", term), marks, self._narrowing.since_us)
            texts = await index.find(wanted, None, _SUGGESTION_POOL)
            return any(self._may_have(candidate) for candidate in texts)

        missed = 0
        for term in self._question.query.words[: search.MOST_WORDS]:
            if missed == _MOST_MISSED:
                break
            if not term.isascii() or len(term) < 3 or await has_text(term):
                continue
            missed += 1
            begin = term[0]
            there = await index.terms_from(begin, chr(ord(begin) + 1), _VOCABULARY)
            near = {candidate for candidate in there if abs(len(candidate) - len(term)) <= 1 + len(term) // 4}
            like = difflib.get_close_matches(term, sorted(near), _SUGGESTIONS, _LIKENESS)
            suggestions += [candidate for candidate in like if await has_text(candidate)]
        return tuple(dict.fromkeys(suggestions))

    def _may_have(self, text: FoundText) -> bool:
        """Return whether a text that an index names may be one that is searched, by its session and its weight."""
        part = _PARTS_BY_WEIGHT.get(text.weight, "messages")
        return text.session_key in self.picked and part in self._narrowing.parts

    async def by_index(self, index: WordIndex, limit: int) -> Found:
        """Return up to ``limit`` findings among the texts that the index names. O(terms' texts, and the texts looked
        at).
        """
        query = self._question.query.node
        wanted = Wanted(query.need, self._narrowing.marks(self.picked), self._narrowing.since_us, query.pairs)
        findings: list[Finding] = []
        before: int | None = None
        self._met.clear()
        while True:
            pool = await index.find(wanted, before, _POOL)
            ranked = sorted(filter(self._may_have, pool), key=_rank)
            # Where few of them have it, as of a phrase of common words, more at a time are fewer reads.
            low, many = 0, limit + _SPARE
            while low < len(ranked):
                findings += await self._look_at(ranked[low : low + many])
                if len(findings) > limit:
                    return _best(findings, limit)
                low, many = low + many, many * 4
            if len(pool) < _POOL:
                return _best(findings, limit)
            before = pool[-1].doc

    async def _by_scan(self, limit: int, keys: Iterable[int]) -> Found:
        """Return up to ``limit`` findings in some of the sessions; every text of them is read. O(their texts)."""
        best: list[Finding] = []
        count = 0
        async with aclosing(self._all_texts(keys)) as texts:
            async for info, entry, number, text in texts:
                finding = await self._finding(info, entry, number, text)
                if finding is not None:
                    count += 1
                    best.append(finding)
                    if len(best) > 4 * limit + _SPARE:
                        best = heapq.nsmallest(limit, best, key=_order)
        return _best(best, limit)._replace(has_more=count > limit)

    async def _all_texts(
        self, keys: Iterable[int]
    ) -> AsyncGenerator[tuple[SessionInfo, Entry | None, int, search.SearchedText], None]:
        for head in [self.picked[key] for key in keys]:
            infos = await self._read_infos(self._names(head))
            for info in [infos[name] for name in self._names(head) if name in infos]:
                # A session that is looked at for a fork of it is not searched itself.
                title = None if head.id in self._narrowing.heirs else title_of(info)
                if title is not None:
                    yield info, None, title_number(title), search.title_text(title)
                # One that is deleted meanwhile is no answer.
                with suppress(errors.SessionNotFound), self.noting():
                    async with aclosing(self._entries(head, info)) as pages:
                        async for page in pages:
                            for entry in page:
                                for number, text in enumerate(search.texts_of(entry)):
                                    yield info, entry, number, text

    async def _entries(self, head: SessionHead, info: SessionInfo) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries that a session has added, and those that deleted ones have left to it, in their order."""
        without = await self._without(info)
        if info.forked_from_session is not None:
            with self.noting():
                yield [entry for entry in await left_by_deleted(self._backend, info) if entry.id not in without]
        ref = SessionRef(head.id, head.session_key)
        for after in range(0, head.revision, _INDEXING_PAGE):
            entries, damaged = await self._backend.readable_entries(ref, after, after + _INDEXING_PAGE)
            for fault in damaged:
                self._note(fault)
            if head.id in self._narrowing.heirs:
                named = await self._read_named([(info.ref, entry.id) for entry in entries])
                entries = [entry for entry in named if entry is not None]
            yield [entry for entry in entries if entry.id not in without]

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note damage, and go on behind it."""
        try:
            yield
        except errors.CorruptStore as error:
            self._note(str(error))

    def _note(self, fault: str) -> None:
        self.damaged.setdefault(fault.partition(": entry ")[2] or fault, fault)

    async def _read_named(self, named: Sequence[tuple[str, str]]) -> Sequence[Entry | None]:
        """Return entries in this order, None for one that is damaged, which is noted, or not seen."""
        with suppress(errors.CorruptStore):
            return await self._backend.read_named(named)
        entries: list[Entry | None] = []
        for name in named:
            entry = None
            with self.noting():
                (entry,) = await self._backend.read_named([name])
            entries.append(entry)
        return entries

    async def _look_at(self, candidates: Iterable[FoundText]) -> list[Finding]:
        """Return those of the candidates that match. Two reads, of however many sessions."""
        numbers: dict[tuple[str, str], list[int]] = {}
        titles: dict[str, list[int]] = {}
        for candidate in candidates:
            head = self.picked[candidate.session_key]
            for name in self._names(head):
                if candidate.entry_id is not None:
                    numbers.setdefault((name, candidate.entry_id), []).append(candidate.number)
                elif head.id not in self._narrowing.heirs:
                    titles.setdefault(name, []).append(candidate.number)
        matches = await self._matches(numbers)
        # Of a phrase of common words, most candidates are none: nothing more is read of their sessions.
        infos = await self._read_infos([*(name for name, _ in matches), *titles])
        findings = [self._made(infos[name], *match) for name, match in matches if name in infos]
        for name, title_numbers in titles.items():
            title = title_of(infos[name]) if name in infos else None
            if title is not None and title_number(title) in title_numbers:
                findings.append(await self._finding(infos[name], None, title_number(title), search.title_text(title)))
        return [candidate for candidate in findings if candidate is not None]

    async def _matches(self, numbers: Mapping[tuple[str, str], Sequence[int]]) -> list[tuple[str, _Match]]:
        """Return the texts of entries that match, and where, with the session that sees each.

        Entries that a session has retracted do not match, nor those of a session that is gone.
        """
        matches = []
        entries = await self._read_named(list(numbers)) if numbers else ()
        for ((name, _), text_numbers), entry in zip(numbers.items(), entries, strict=True):
            for number, text in enumerate(() if entry is None else search.texts_of(entry)):
                if entry is not None and number in text_numbers:
                    spans = await self._spans_in(name, entry, entry.created_us, text)
                    if spans is not None:
                        matches.append((name, (entry, number, text, spans)))
        return matches

    async def _read_infos(self, names: Iterable[str]) -> Mapping[str, SessionInfo]:
        """Return those of some sessions that are there, by name, each of them read once."""
        missing = [name for name in dict.fromkeys(names) if name not in self._infos]
        try:
            self._infos.update(zip(missing, await self._backend.get_sessions(missing) if missing else (), strict=True))
        except errors.CorruptStore:
            for name in missing:
                self._infos[name] = None
                with self.noting():
                    self._infos[name] = await self._backend.get_session(name)
        return {name: info for name, info in self._infos.items() if info is not None}

    async def _finding(
        self, info: SessionInfo, entry: Entry | None, number: int, text: search.SearchedText
    ) -> Finding | None:
        at_us = info.created_us if entry is None else entry.created_us
        spans = await self._spans_in(info.id, entry, at_us, text)
        return None if spans is None else self._made(info, entry, number, text, spans)

    def _made(
        self, info: SessionInfo, entry: Entry | None, number: int, text: search.SearchedText, spans: list[search.Span]
    ) -> Finding | None:
        """Return the finding; None for a text that was found before: an entry that several forks see is in each."""
        if entry is not None:
            place = (entry.id, entry.session_id, entry.created_us, number)
            if place in self._met:
                return None
            self._met.add(place)
        role = None if entry is None else entry.role
        return Finding(info, entry, number, text, spans, _score(text, role, len(spans)))

    async def _spans_in(
        self, name: str, entry: Entry | None, at_us: int, text: search.SearchedText
    ) -> list[search.Span] | None:
        """Return where a text matches; None if it does not, or is not searched.

        A long search runs where it holds up nobody else.
        """
        if not self._narrowing.has_text(None if entry is None else entry.role, at_us, text):
            return None
        query = self._question.query
        if len(text.text) <= _LONG and len(query.words) <= search.MOST_WORDS:
            with suppress(TimeoutError):
                return query.find(text.text, _AT_ONCE)
        try:
            return await self._backend.waiting.call(partial(query.find, text.text, search.SECONDS))
        except TimeoutError as error:
            where = "its title" if entry is None else f"entry {entry.id}"
            raise errors.InvalidArgument(
                f"words: the regular expression was tried for {search.SECONDS:g} seconds on one text of session {name},"
                f" {where}; make it simpler, such as without a repetition in another, or search less"
                " (sessions, since, role)"
            ) from error

    def _names(self, head: SessionHead) -> Sequence[str]:
        """Return the session itself, or the forks that it is looked at for."""
        return self._narrowing.heirs.get(head.id, [SessionRef(head.id, head.session_key)])

    async def _without(self, info: SessionInfo) -> frozenset[str]:
        """Return the entries that a session has retracted: they are in no history any more."""
        key = info.session_key
        if key not in self._retracted:
            self._retracted[key] = retracted_in(await self._backend.read_marks(info.ref))
        return self._retracted[key]


def _rank(text: FoundText) -> float:
    """Return where a candidate stands before it was looked at: short texts of weight first, others behind."""
    return -text.weight / (1 + log(1 + text.length / 100))


def _score(text: search.SearchedText, role: str | None, matches: int) -> float:
    return weight_of(text.part, role) * (1 + log(matches)) / (1 + log(1 + len(text.text) / _USUAL_CHARACTERS))


def _order(finding: Finding) -> tuple[float, int, str, int]:
    """Return where a finding stands: the best first, of equals the newest."""
    return (-finding.score, -finding.at_us, "" if finding.entry is None else finding.entry.id, finding.number)


def _both(matches: Found, behind: Found, limit: int) -> Found:
    best = _best([*matches.findings, *behind.findings], limit)
    return best._replace(has_more=best.has_more or matches.has_more or behind.has_more)


def _best(findings: Iterable[Finding], limit: int) -> Found:
    ordered = sorted(findings, key=_order)
    return Found(ordered[:limit], has_more=len(ordered) > limit)


# ---------------------------------------------------------------------------------------------------------------------
# One search, from the question to its answer.

_SHORTEST_ID = 8


async def answer(backend: Backend, question: Asked) -> search.SearchAnswer:
    """Return the answer of a search. Raises as reading the store does."""
    heads = await backend.session_heads()
    if question.narrowing.sessions is not None:
        question = question._replace(narrowing=await with_relatives(backend, question.narrowing, heads))
    finder = Finder(backend, question, heads)
    picked = finder.picked
    matches = await finder.found()
    with finder.noting():
        named = await _by_id(backend, question, picked)
        if named is not None:
            matches = _with(named, matches, question.limit)
    parts = question.narrowing.parts
    # Most recently active last.
    newest = list(picked.values())[-1] if picked else None
    return search.SearchAnswer(
        words=question.words,
        how=question.query.how,
        sessions=await _grouped(backend, matches.findings, {head.id: head.revision for head in heads}),
        has_more=matches.has_more,
        searched=search.Searched(
            sessions=len(picked),
            entries=sum(head.entry_count for head in picked.values()),
            revisions=sum(head.revision for head in picked.values()),
            newest=None if newest is None else (newest.id, newest.revision),
            parts=parts,
            left_out=tuple(part for part in search.PARTS if part not in parts),
            by_index=matches.why_not is None,
            why_not=matches.why_not,
        ),
        widen=() if matches.findings else _widen(question),
        suggestions=tuple(matches.suggestions),
        damaged=_first(finder.damaged.values()),
        unchecked=backend.is_unchecked,
    )


_MOST_NAMED = 20
"""How many faults an answer names. It counts the others."""


def _first(faults: Iterable[str]) -> tuple[str, ...]:
    first = tuple(faults)
    rest = len(first) - _MOST_NAMED
    return first if rest <= 0 else (*first[:_MOST_NAMED], f"and {rest:,} more: verify() names all")


async def with_relatives(backend: Backend, narrowing: Narrowing, heads: Sequence[SessionHead]) -> Narrowing:
    """Return the narrowing with the tasks of its sessions, theirs, and the sessions they all were forked from.
    O(sessions).
    """
    by_id = {head.id: head for head in heads}
    inside: set[str] = set()
    waiting = sorted(narrowing.sessions or ())
    for name in waiting:
        if name not in by_id or narrowing.scope not in (None, by_id[name].scope):
            raise errors.SessionNotFound(name)
    while waiting:
        name = waiting.pop()
        # A link outlives its task.
        if name not in inside and name in by_id:
            inside.add(name)
            with suppress(errors.SessionNotFound):
                waiting += [link.child_id for link in await backend.task_links(name)]
    heirs: dict[str, set[str]] = {}
    for name in sorted(inside):
        source = by_id[name].forked_from_session if name in by_id else None
        while source is not None and source not in inside:
            if source in by_id:
                heirs.setdefault(source, set()).add(name)
                source = by_id[source].forked_from_session
                continue
            # It was deleted. Its own source is seen still.
            with suppress(errors.SessionNotFound):
                for owner in {entry.session_id for entry in await backend.read_tree(name)}:
                    if owner is not None and owner not in inside:
                        heirs.setdefault(owner, set()).add(name)
            break
    return replace(narrowing, sessions=frozenset(inside), heirs={name: sorted(names) for name, names in heirs.items()})


async def _by_id(backend: Backend, question: Asked, picked: Mapping[int, SessionHead]) -> Finding | None:
    """Return the entry or the session whose id was pasted; None if the words are none."""
    name = question.words.strip()
    if question.query.how != "words" or not _SHORTEST_ID <= len(name) <= MAX_NAME_BYTES or len(name.split()) != 1:
        return None
    session = await backend.get_session(name)
    if session is not None and session.session_key in picked and session.id not in question.narrowing.heirs:
        text = search.title_text(title_of(session) or session.first_message or session.id)
        return Finding(session, None, 0, text, (), 0.0, by_id=True)
    try:
        entry = await backend.find_entry(name)
    except errors.AmbiguousId:
        return None
    owner = None if entry is None or entry.session_id is None else await backend.get_session(entry.session_id)
    if entry is None or owner is None or owner.session_key not in picked:
        return None
    owner = await _who_sees(backend, entry.id, question.narrowing.heirs.get(owner.id, [owner.ref]))
    if owner is None:
        return None
    texts = search.texts_of(entry)
    return Finding(owner, entry, 0, texts[0] if texts else search.title_text(entry.kind), (), 0.0, by_id=True)


async def _who_sees(backend: Backend, entry_id: str, names: Iterable[str]) -> SessionInfo | None:
    """Return the first of these sessions that sees an entry."""
    ids = list(names)
    seen = await backend.read_named([(name, entry_id) for name in ids])
    infos = await backend.get_sessions([name for name, entry in zip(ids, seen, strict=True) if entry is not None])
    return next((info for info in infos if info is not None), None)


def _with(named: Finding, matches: Found, limit: int) -> Found:
    """Return the matches behind the text with the id, which comes once: where its text has the words, too, with
    those.
    """
    place = (named.session.id, named.entry)
    same = [finding for finding in matches.findings if (finding.session.id, finding.entry) == place]
    first = same[0]._replace(by_id=True) if same else named
    findings = [first, *(finding for finding in matches.findings if finding is not (same[0] if same else None))]
    return Found(findings[:limit], matches.has_more or len(findings) > limit, why_not=matches.why_not)


def _widen(question: Asked) -> tuple[str, ...]:
    """Return which arguments of the search kept something out, by name; ``substring`` where that was not tried."""
    narrowing = question.narrowing
    narrowed = {
        "sessions": narrowing.sessions is not None,
        "exclude": bool(narrowing.without),
        "scope": narrowing.scope is not None,
        "project": narrowing.project is not None,
        "role": narrowing.role is not None,
        "tool": narrowing.tool is not None,
        "since": narrowing.since_us is not None,
        "until": narrowing.until_us is not None,
        "parts": len(narrowing.parts) < len(search.PARTS),
        "substring": question.query.how in ("words", "query"),
    }
    return tuple(name for name, is_given in narrowed.items() if is_given)


async def _grouped(
    backend: Backend, findings: Sequence[Finding], revisions: Mapping[str, int]
) -> tuple[search.SessionHits, ...]:
    """Return findings by session, with the revision that each had when the search began: it may have come further."""
    named = [(finding.session.ref, finding.entry.id) for finding in findings if finding.entry is not None]
    places = dict(zip(named, await backend.places_of(named) if named else (), strict=True))
    groups: dict[str, tuple[SessionInfo, list[search.SearchHit]]] = {}
    for finding in findings:
        place: search.Place | None = "title" if finding.entry is None else places[finding.session.ref, finding.entry.id]
        if place is None:
            # It was deleted meanwhile, or retracted.
            continue
        _, hits = groups.setdefault(finding.session.id, (finding.session, []))
        hits.append(
            search.SearchHit(
                session_id=finding.session.id,
                entry_id=None if finding.entry is None else finding.entry.id,
                part=finding.text.part,
                role=None if finding.entry is None else finding.entry.role,
                tool=finding.text.tool,
                at_us=finding.at_us,
                place=place,
                snippet=search.snippet(finding.text.text, finding.spans),
                is_cut=finding.text.is_cut,
                go=shlex.join(
                    ["flue-py", "show", finding.session.id, *([] if finding.entry is None else [finding.entry.id])]
                ),
                by_id=finding.by_id,
            )
        )
    return tuple(search.SessionHits(session, revisions[session.id], tuple(hits)) for session, hits in groups.values())


# ---------------------------------------------------------------------------------------------------------------------
# Checking the index of a store: its files, and whether it has the texts of the store.

_KIND = "index of words"
_ADVICE = "remove the file, and the next search makes it anew"
_ASKED = 5


async def index_problems(backend: Backend) -> list[Problem]:
    """Return the problems of the index of a store, if it has one. O(index).

    It is asked for words of the newest sessions, as a search does, with its ranking and its snippets. An index that is
    behind is brought up to date for it.
    """
    where = await backend.words_location()
    if where is None:
        return []
    try:
        index = await backend.open_words(VERSION)
        if index is None:
            return []
        try:
            wrong = list(await index.problems())
        finally:
            await index.close()
        wrong += await _not_found(backend)
    except errors.FlueError as error:
        wrong = [str(error)]
    return [Problem(_KIND, where, f"{fault}; {_ADVICE}") for fault in wrong]


async def _not_found(backend: Backend) -> list[str]:
    """Return texts of the newest sessions that a search for their words does not find."""
    wrong: list[str] = []
    for head in list(await backend.session_heads())[-_ASKED:]:
        narrowing = Narrowing(search.PARTS, sessions=frozenset([head.id]))
        # One that is deleted meanwhile is no problem.
        with suppress(errors.SessionNotFound):
            for entry in await backend.read_entries(head.id, newest_first=True, limit=1):
                words = " ".join([word for text in search.texts_of(entry)[:1] for word in search.bag_of(text.text)][:3])
                if not words:
                    continue
                result = await answer(backend, Asked(words, search.read_query(words), narrowing, 1000))
                hits = [hit for hit in result.hits if hit.entry_id == entry.id]
                if not (hits or result.has_more) or not all(hit.snippet.text for hit in hits):
                    wrong.append(f"entry {entry.id} of session {head.id} is not found by its words")
    return wrong
