"""Catching an index up with its store: what each session has added since the revision that the index knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionHead, SessionInfo, SessionRef
from flue_py.errors import CorruptStore, SessionNotFound
from flue_py.search import terms, texts
from flue_py.search.pairs import bits_of
from flue_py.search.terms import bag_of
from flue_py.search.texts import SearchedText, texts_of, title_text
from flue_py.sessions.search.narrowing import marks_of, weight_of
from flue_py.store.backend import Backend
from flue_py.store.words import IndexedText, KnownSession, WordIndex

Progress: TypeAlias = Callable[[int, int], None]
"""Gets how many entries were added to an index, and of how many."""

VERSION = terms.VERSION * 1000 + texts.VERSION
_PAGE = 500
_CHUNK = 4 * _PAGE
"""How many entries are indexed in one transaction: others who search wait for its end."""


class Indexer:
    """Adds to an index what it does not have yet. Only the index is written, the store is read."""

    def __init__(self, backend: Backend, index: WordIndex, progress: Progress | None = None) -> None:
        self._backend = backend
        self._index = index
        self._progress = progress
        self._done = self._total = 0
        self._keys: dict[str, int] = {}

    async def catch_up(self, heads: Sequence[SessionHead]) -> None:
        """Add what is missing, and remove what is gone. O(what was written since, and sessions).

        Raises `CorruptStore` where the index was made of another state of the store, which was put back since.
        """
        known = await self._index.known()
        gone, heirs = _gone_and_heirs(known, heads)
        if gone or heirs or _put_back(known, heads):
            # Others may have added what came after the heads were read, which is not gone: newer ones tell.
            newer = await self._backend.session_heads()
            gone, heirs = _gone_and_heirs(known, newer)
            if session_id := _put_back(known, newer):
                raise CorruptStore(f"the index of words was made of a later state of session {session_id!r}")
        if gone or heirs:
            await self._index.begin()
            await self._index.forget(gone)
            await self._index.reread(heirs)
            await self._index.commit()
            known = await self._index.known()
        self._keys = {head.id: head.session_key for head in heads}
        behind = [head for head in heads if _is_behind(known.get(head.session_key), head)]
        self._done, self._total = 0, sum(_missing(known.get(head.session_key), head) for head in behind)
        while behind:
            self._show(0)
            behind = await self._add_chunk(behind)

    def _show(self, added: int) -> None:
        """Tell how many entries were added, of how many."""
        self._done += added
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))

    async def _add_chunk(self, behind: list[SessionHead]) -> list[SessionHead]:
        """Add a chunk of what is missing in one transaction; return the sessions that are behind still."""
        await self._index.begin()
        at = added = 0
        while at < len(behind) and added < _CHUNK:
            # Read behind the lock: whoever deletes it meanwhile waits until it can be taken out again.
            count, is_done = await self._add_page(behind[at])
            added += max(count, 1)
            self._show(count)
            at += is_done
        await self._index.commit()
        return behind[at:]

    async def _add_page(self, head: SessionHead) -> tuple[int, bool]:
        """Add a page of a session's changes; return how many entries that were, and whether it was the last page."""
        try:
            return await self._add_changes(head)
        except SessionNotFound:
            # It is deleted meanwhile.
            return 0, True

    async def _add_changes(self, head: SessionHead) -> tuple[int, bool]:
        known = await self._index.known_one(head.session_key)
        source_key = self._keys.get(head.forked_from_session or "")
        start = KnownSession(head.session_key, head.id, -1, source_key) if known is None else known
        info = await self._backend.get_session(SessionRef(head.id, head.session_key))
        if info is None:
            return 0, True
        if not await self._has_come_from(info, start):
            raise CorruptStore(f"the index of words was made of another state of session {info.id!r}")
        entries: list[Entry] = []
        if start.revision < 0 and head.forked_from_session is not None:
            entries += await left_by_deleted(self._backend, info)
        changes = await self._backend.changes(info.ref, max(start.revision, 0), _PAGE)
        entries += [entry for change in changes for entry in change.entries]
        # Others may have gone further than the session was when this search began: that would be added again.
        reached = changes[-1].revision if changes else max(start.revision, head.revision)
        title = title_of(info)
        waiting = self._backend.waiting
        found = await waiting.finish(
            waiting.call(partial(_indexed, head, entries, title if title != start.title else None, info))
        )
        own = next((each for each in reversed(changes) if each.entries), None)
        after = start._replace(
            revision=reached,
            title=title,
            updated_us=info.updated_us if reached == info.revision else 0,
            last_revision=start.last_revision if own is None else own.revision,
            last_entry=start.last_entry if own is None else _mark_of(own.entries[-1]),
        )
        has_landed = await self._index.add(start, after, found)
        return len(entries), has_landed and len(changes) < _PAGE

    async def _has_come_from(self, info: SessionInfo, start: KnownSession) -> bool:
        """Return whether what the index has of a session is what was added first. O(changes since its last entry)."""
        expected, after = start.last_entry, max(start.last_revision - 1, 0)
        while after < start.revision:
            changes = await self._backend.changes(info.ref, after, min(_PAGE, start.revision - after))
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
    """Return what a session is called, by a person and by a program."""
    return "\n".join(dict.fromkeys(each for each in (info.title, info.auto_title) if each)) or None


async def left_by_deleted(backend: Backend, info: SessionInfo) -> list[Entry]:
    """Return the entries of a fork that a deleted session has left to it. O(tree)."""
    return [entry for entry in await backend.read_tree(info.ref) if entry.session_id is None]


def title_number(title: str) -> int:
    """Return the number of a title: another one for another title, since what an index has cannot be changed."""
    return int.from_bytes(blake2b(title.encode("utf-8", "surrogatepass"), digest_size=4).digest())


def _indexed(head: SessionHead, entries: Sequence[Entry], title: str | None, info: SessionInfo) -> list[IndexedText]:
    found = []
    if title is not None:
        found.append(_indexed_text(head, None, title_number(title), None, info.created_us, title_text(title)))
    for entry in entries:
        for number, text in enumerate(texts_of(entry)):
            found.append(_indexed_text(head, entry.id, number, entry.role, entry.created_us, text))
    return [each for each in found if each.terms]


def _indexed_text(
    head: SessionHead, entry_id: str | None, number: int, role: str | None, at_us: int, text: SearchedText
) -> IndexedText:
    weight, marks = weight_of(text.part, role), marks_of(head, role, text)
    return IndexedText(entry_id, number, at_us, weight, bag_of(text.text), marks, bits_of(text.text))


def _gone_and_heirs(known: Mapping[int, KnownSession], heads: Sequence[SessionHead]) -> tuple[set[int], set[int]]:
    """Return the known sessions that are gone from the store, and the forks that a deleted one left its own to."""
    present = {head.session_key: head for head in heads}
    # Somebody was killed between deleting a session and this, or has put an older store in place of this one.
    gone = {key for key, session in known.items() if _is_gone(session, present.get(key))}
    # What a deleted session has left to its forks is theirs from now on.
    forks = {key: session.source_key for key, session in known.items() if session.source_key is not None}
    return gone, {key for key, source in forks.items() if source not in present} - gone


def _is_gone(known: KnownSession, head: SessionHead | None) -> bool:
    return head is None or head.id != known.id or head.revision < known.revision


def _put_back(known: Mapping[int, KnownSession], heads: Sequence[SessionHead]) -> str | None:
    """Return a session that has fewer revisions than it had, or whose source is there again, if there is one."""
    keys = {head.id: head.session_key for head in heads}
    for head in heads:
        session = known.get(head.session_key)
        if session is None or session.id != head.id:
            continue
        # Another session of that id came later than the fork.
        source = keys.get(head.forked_from_session or "", head.session_key)
        if head.revision < session.revision or (
            session.revision >= 0 and session.source_key is None and source < head.session_key
        ):
            return head.id
    return None


def _is_behind(known: KnownSession | None, head: SessionHead) -> bool:
    # At the same revision, another time tells that it is another one.
    return known is None or (known.revision, known.updated_us) != (head.revision, head.updated_us)


def _missing(known: KnownSession | None, head: SessionHead) -> int:
    """Return about how many entries of a session an index does not have."""
    behind = head.revision if known is None else head.revision - max(known.revision, 0)
    return head.entry_count * behind // max(head.revision, 1)


def _mark_of(entry: Entry) -> str:
    return f"{entry.created_us} {entry.id}"
