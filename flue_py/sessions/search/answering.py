"""One search, from what was asked to its answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple

from flue_py.core.entries import Entry
from flue_py.core.frozen import changed
from flue_py.core.sessions import MAX_NAME_BYTES, SessionHead, SessionInfo
from flue_py.errors import AmbiguousId, CorruptStore, SessionNotFound, StoreBusy, StoreUnavailable
from flue_py.search.queries import MOST_WORDS, Need, Query
from flue_py.search.snippets import snippet
from flue_py.search.texts import texts_of, title_text
from flue_py.search.values import PARTS, Place, SearchAnswer, Searched, SearchHit, SessionHits
from flue_py.sessions.search.finding import Finder, Finding, Found
from flue_py.sessions.search.indexing import VERSION, Indexer, Progress, title_of
from flue_py.sessions.search.narrowing import Narrowing
from flue_py.store.backend import Backend
from flue_py.store.words import Wanted, WordIndex

_SUGGESTIONS = 3
_VOCABULARY = 20_000
_LIKENESS = 0.7
_MOST_MISSED = 8
"""Words that no text has, to which those that look like them are looked for: what was pasted may have any number."""
_SHORTEST_ID = 8
_POOL = 100
"""Of how many texts that have a word one has to be among those that are searched."""
_ATTEMPTS = 5


class Asked(NamedTuple):
    """What a search is asked: the words as they were typed, what they mean, and what it is narrowed to."""

    words: str
    query: Query
    narrowing: Narrowing
    limit: int
    progress: Progress | None = None


class _Way(NamedTuple):
    """How texts were found, and what words there are."""

    found: Found
    suggestions: tuple[str, ...]
    why_not: str | None


async def answer(backend: Backend, asked: Asked) -> SearchAnswer:
    """Return what a search finds. Raises what reading the store does."""
    heads = await backend.session_heads()
    if asked.narrowing.sessions is not None:
        asked = asked._replace(narrowing=await with_relatives(backend, asked.narrowing, heads))
    chosen = asked.narrowing.chosen(heads)
    finder = Finder(backend, asked.query, asked.narrowing, chosen)
    way = await _found(backend, asked, heads, chosen, finder)
    named = await _by_id(backend, asked, chosen)
    if named is not None:
        way = way._replace(found=_with(named, way.found, asked.limit), suggestions=())
    return SearchAnswer(
        words=asked.words,
        how=asked.query.how,
        sessions=await _grouped(backend, way.found.findings, {head.id: head.revision for head in heads}),
        has_more=way.found.has_more,
        searched=_searched(asked, chosen, way.why_not),
        widen=() if way.found.findings else _widen(asked),
        suggestions=way.suggestions,
    )


async def with_relatives(backend: Backend, narrowing: Narrowing, heads: Sequence[SessionHead]) -> Narrowing:
    """Return the narrowing with the tasks of its sessions, theirs, and what they all were forked from. O(sessions)."""
    by_id = {head.id: head for head in heads}
    inside: set[str] = set()
    waiting = sorted(narrowing.sessions or ())
    for name in waiting:
        if name not in by_id:
            raise SessionNotFound(name)
    while waiting:
        name = waiting.pop()
        # A link outlives its task.
        if name not in inside and name in by_id:
            inside.add(name)
            with suppress(SessionNotFound):
                waiting += [link.child_id for link in await backend.task_links(name)]
    heirs: dict[str, set[str]] = {}
    for name in sorted(inside):
        source = by_id[name].forked_from_session if name in by_id else None
        while source is not None and source not in inside:
            if source in by_id:
                heirs.setdefault(source, set()).add(name)
                source = by_id[source].forked_from_session
                continue
            # It was deleted. What it was forked from itself is seen still.
            with suppress(SessionNotFound):
                for owner in {entry.session_id for entry in await backend.read_tree(name)}:
                    if owner is not None and owner not in inside:
                        heirs.setdefault(owner, set()).add(name)
            break
    return changed(narrowing, sessions=frozenset(inside), heirs={name: sorted(each) for name, each in heirs.items()})


def _searched(asked: Asked, chosen: Mapping[int, SessionHead], why_not: str | None) -> Searched:
    parts = asked.narrowing.parts
    # Most recently active last.
    newest = list(chosen.values())[-1] if chosen else None
    return Searched(
        sessions=len(chosen),
        entries=sum(head.entry_count for head in chosen.values()),
        revisions=sum(head.revision for head in chosen.values()),
        newest=None if newest is None else (newest.id, newest.revision),
        parts=parts,
        left_out=tuple(part for part in PARTS if part not in parts),
        by_index=why_not is None,
        why_not=why_not,
    )


async def _by_id(backend: Backend, asked: Asked, chosen: Mapping[int, SessionHead]) -> Finding | None:
    """Return the entry or the session whose id was pasted; None if the words are none."""
    name = asked.words.strip()
    if asked.query.how != "words" or not _SHORTEST_ID <= len(name) <= MAX_NAME_BYTES or len(name.split()) != 1:
        return None
    session = await backend.get_session(name)
    if session is not None and session.session_key in chosen and session.id not in asked.narrowing.heirs:
        text = title_text(title_of(session) or session.first_message or session.id)
        return Finding(session, None, 0, text, (), 0.0, by_id=True)
    try:
        entry = await backend.find_entry(name)
    except AmbiguousId:
        return None
    owner = None if entry is None or entry.session_id is None else await backend.get_session(entry.session_id)
    if entry is None or owner is None or owner.session_key not in chosen:
        return None
    owner = await _who_sees(backend, entry.id, asked.narrowing.heirs.get(owner.id, [owner.ref]))
    if owner is None:
        return None
    texts = texts_of(entry)
    return Finding(owner, entry, 0, texts[0] if texts else title_text(entry.kind), (), 0.0, by_id=True)


async def _who_sees(backend: Backend, entry_id: str, names: Iterable[str]) -> SessionInfo | None:
    """Return the first of these sessions that sees an entry."""
    asked = list(names)
    seen = await backend.read_named([(name, entry_id) for name in asked])
    infos = await backend.get_sessions([name for name, entry in zip(asked, seen, strict=True) if entry is not None])
    return next((info for info in infos if info is not None), None)


def _with(named: Finding, found: Found, limit: int) -> Found:
    """Return what was found behind what has the id, which comes once: where its text has the words, too, with those."""
    same = [each for each in found.findings if (each.session.id, each.entry) == (named.session.id, named.entry)]
    first = same[0]._replace(by_id=True) if same else named
    findings = [first, *(each for each in found.findings if each is not (same[0] if same else None))]
    return Found(findings[:limit], has_more=found.has_more or len(findings) > limit)


async def _found(
    backend: Backend, asked: Asked, heads: Sequence[SessionHead], chosen: Mapping[int, SessionHead], finder: Finder
) -> _Way:
    """Look by the index, where there is one and it helps; else read everything."""
    why_not = asked.query.why_scan
    if why_not is None:
        try:
            found = await _by_sound_index(backend, asked, heads, chosen, finder)
        except (StoreBusy, StoreUnavailable, CorruptStore) as error:
            why_not = f"the index cannot be used ({error}), so every text was read"
        else:
            if found is not None:
                return found
            why_not = "this store has no index of words, so every text was read"
    return _Way(await finder.by_scan(asked.limit), (), why_not)


async def _by_sound_index(
    backend: Backend, asked: Asked, heads: Sequence[SessionHead], chosen: Mapping[int, SessionHead], finder: Finder
) -> _Way | None:
    """Look by the index; one that turns out to be broken is made anew, and asked once more."""
    try:
        return await _by_index(backend, asked, heads, chosen, finder)
    except CorruptStore:
        await backend.remove_words()
        return await _by_index(backend, asked, heads, chosen, finder)


async def _by_index(
    backend: Backend, asked: Asked, heads: Sequence[SessionHead], chosen: Mapping[int, SessionHead], finder: Finder
) -> _Way | None:
    index = await backend.open_words(VERSION)
    if index is None:
        return None
    try:
        found = await _by_whole_index(Indexer(backend, index, asked.progress), index, asked, heads, finder)
        suggestions = () if found.findings else await _suggestions(index, asked, chosen)
    finally:
        await index.close()
    return _Way(found, suggestions, None)


async def _by_whole_index(
    indexer: Indexer, index: WordIndex, asked: Asked, heads: Sequence[SessionHead], finder: Finder
) -> Found:
    """Look when nothing is missing: a deletion takes out what lay beside it, to be added again by whoever comes next.

    That may be somebody else, between what is looked for here and the look at what is missing: what counts is whether
    anything was taken out meanwhile.
    """
    for _ in range(_ATTEMPTS):
        before = await index.moment()
        await indexer.catch_up(heads)
        found = await finder.by_index(index, asked.limit)
        if await index.moment() == before:
            return found
    raise StoreBusy("others keep taking out of it what they delete")


async def _suggestions(index: WordIndex, asked: Asked, chosen: Mapping[int, SessionHead]) -> tuple[str, ...]:
    """Return terms that look like those asked for that no text has, of texts that were searched."""
    marks = asked.narrowing.marks(chosen)
    found: list[str] = []

    async def has_text(term: str) -> bool:
        wanted = Wanted(Need("term", term), marks, asked.narrowing.since_us)
        texts = await index.find(wanted, None, _POOL)
        return any(asked.narrowing.may_have(each, chosen) for each in texts)

    missed = 0
    for term in asked.query.words[:MOST_WORDS]:
        if missed == _MOST_MISSED:
            break
        if not term.isascii() or len(term) < 3 or await has_text(term):
            continue
        missed += 1
        begin = term[0]
        there = await index.terms_from(begin, chr(ord(begin) + 1), _VOCABULARY)
        near = {each for each in there if abs(len(each) - len(term)) <= 1 + len(term) // 4}
        like = get_close_matches(term, sorted(near), _SUGGESTIONS, _LIKENESS)
        found += [each for each in like if await has_text(each)]
    return tuple(dict.fromkeys(found))


def _widen(asked: Asked) -> tuple[str, ...]:
    """Return which arguments of the search kept something out, by name; ``substring`` where that was not tried."""
    narrowing = asked.narrowing
    given = {
        "sessions": narrowing.sessions is not None,
        "exclude": bool(narrowing.without),
        "scope": narrowing.scope is not None,
        "project": narrowing.project is not None,
        "role": narrowing.role is not None,
        "tool": narrowing.tool is not None,
        "since": narrowing.since_us is not None,
        "until": narrowing.until_us is not None,
        "parts": len(narrowing.parts) < len(PARTS),
        "substring": asked.query.how in ("words", "query"),
    }
    return tuple(name for name, is_given in given.items() if is_given)


async def _grouped(
    backend: Backend, findings: Sequence[Finding], revisions: Mapping[str, int]
) -> tuple[SessionHits, ...]:
    """Return findings by session, with the revision that each had when the search began: it may have come further."""
    named = [(each.session.ref, each.entry.id) for each in findings if each.entry is not None]
    places = dict(zip(named, await backend.places_of(named) if named else (), strict=True))
    groups: dict[str, tuple[SessionInfo, list[SearchHit]]] = {}
    for each in findings:
        place: Place | None = "title" if each.entry is None else places[each.session.ref, each.entry.id]
        if place is None:
            # It was deleted meanwhile, or retracted.
            continue
        _, hits = groups.setdefault(each.session.id, (each.session, []))
        hits.append(
            SearchHit(
                session_id=each.session.id,
                entry_id=None if each.entry is None else each.entry.id,
                part=each.text.part,
                role=None if each.entry is None else each.entry.role,
                tool=each.text.tool,
                at_us=each.at_us,
                place=place,
                snippet=snippet(each.text.text, each.spans),
                is_cut=each.text.is_cut,
                go=_command_to(each.session.id, each.entry),
                by_id=each.by_id,
            )
        )
    return tuple(SessionHits(session, revisions[session.id], tuple(hits)) for session, hits in groups.values())


def _command_to(session_id: str, entry: Entry | None) -> str:
    """Return the command line that shows an entry, or a session."""
    return shlex.join(["flue-py", "show", session_id, *([] if entry is None else [entry.id])])
