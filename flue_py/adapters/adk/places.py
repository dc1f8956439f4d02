"""What is known at leaves that were met lately. It never grows old: what leads to an entry never changes."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence

from flue_py.adapters.adk.events import STATE
from flue_py.adapters.adk.reading import NOWHERE, Place, place_of, told_by
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import SessionInfo
from flue_py.errors import SessionNotFound
from flue_py.sessions.store import Store

_MOST = 2_000
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Places:
    """The places of a service."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Place] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, session_id: str, leaf: str, place: Place) -> None:
        """Note what is known at a leaf. O(1)."""
        with self._lock:
            self._known[str(session_id), leaf] = place
            self._known.move_to_end((str(session_id), leaf))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)

    async def meet(self, sessions: Sequence[SessionInfo], store: Store) -> None:
        """Read what is known at the leaves of many sessions, those that were not met lately, in one read of all.

        What an entry does not tell by itself is left to `at`. O(sessions).
        """
        new = [info for info in sessions if info.leaf_id is not None and (info.id, info.leaf_id) not in self._known]
        if not new:
            return
        del new[_MOST:]  # more are not kept
        leaves = await store.backend.read_leaves([info.ref for info in new])
        for info, leaf in zip(new, leaves, strict=True):
            if leaf is None or leaf.id != info.leaf_id or not _tells(leaf):
                continue
            place = await _told(info.ref, leaf, store)
            if place is not None:
                self.note(info.id, leaf.id, place)

    async def at(self, session_id: str, leaf: str | None, store: Store) -> Place:
        """Return what is known at a leaf of a session; read it if it was not met lately. O(1).

        Raises `SessionNotFound`.
        """
        if leaf is None:
            return NOWHERE
        found = self._known.get((str(session_id), leaf))
        if found is None:
            found = await _told_by(session_id, leaf, store) or await _read(session_id, leaf, store)
            self.note(session_id, leaf, found)
        return found


async def _told_by(session_id: str, leaf: str, store: Store) -> Place | None:
    """Return what the entry at a leaf tells by itself, or None: one read, where most states are small."""
    # By the store's backend: what is known at a leaf has no use for a handle.
    entry = await store.backend.get_entry(session_id, leaf)
    return None if entry is None or not _tells(entry) else await _told(session_id, entry, store)


def _tells(entry: Entry) -> bool:
    # Below an entry with state alone, the time of the place is that of an event before it, if there is one.
    return entry.kind != STATE or entry.parent_id is None


async def _told(session_id: str, entry: Entry, store: Store) -> Place | None:
    """Return what an entry tells with those it names; None if it tells nothing."""

    async def read(ids: Sequence[str]) -> list[Entry | None]:
        return await store.backend.get_entries(session_id, ids)

    return await told_by(entry, read)


async def _read(session_id: str, leaf: str, store: Store) -> Place:
    session = await store.get_session(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return await place_of(session, leaf)


def fresh(values: JsonObject) -> JsonObject:
    """Return a state that is the caller's to change. O(size)."""
    return dict(values) if all(type(value) in _PLAIN for value in values.values()) else copy.deepcopy(values)
