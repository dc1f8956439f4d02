"""Checking the index of a store: its files, and whether it finds what the store has."""

from __future__ import annotations

from contextlib import suppress

from flue_py.core.sessions import Problem
from flue_py.errors import FlueError, SessionNotFound
from flue_py.search.queries import read_query
from flue_py.search.terms import bag_of
from flue_py.search.texts import texts_of
from flue_py.search.values import PARTS
from flue_py.sessions.search.answering import Asked, answer
from flue_py.sessions.search.indexing import VERSION
from flue_py.sessions.search.narrowing import Narrowing
from flue_py.store.backend import Backend

_KIND = "index of words"
_ADVICE = "remove the file, and the next search makes it anew"
_ASKED = 5


async def index_problems(backend: Backend) -> list[Problem]:
    """Return what is wrong with the index of a store, if it has one. O(index).

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
    except FlueError as error:
        wrong = [str(error)]
    return [Problem(_KIND, where, f"{each}; {_ADVICE}") for each in wrong]


async def _not_found(backend: Backend) -> list[str]:
    """Return texts of the newest sessions that a search for their words does not find."""
    wrong: list[str] = []
    for head in list(await backend.session_heads())[-_ASKED:]:
        # One that is deleted meanwhile is no problem.
        with suppress(SessionNotFound):
            wrong += await _not_found_of(backend, head.id)
    return wrong


async def _not_found_of(backend: Backend, session_id: str) -> list[str]:
    wrong = []
    for entry in await backend.read_entries(session_id, newest_first=True, limit=1):
        for text in texts_of(entry)[:1]:
            words = " ".join(list(bag_of(text.text))[:3])
            if not words:
                continue
            narrowing = Narrowing(PARTS, sessions=frozenset([session_id]))
            found = await answer(backend, Asked(words, read_query(words), narrowing, 1000))
            hits = [hit for hit in found.hits if hit.entry_id == entry.id]
            if not (hits or found.has_more) or not all(hit.snippet.text for hit in hits):
                wrong.append(f"entry {entry.id} of session {session_id} is not found by its words")
    return wrong
