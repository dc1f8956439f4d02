"""Where checkpoints are put: a session as it was when it was last read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.numbers import numbers_of
from flue_py.adapters.langgraph.records import Record, entry_id
from flue_py.adapters.langgraph.threads import Address, session_to_read, session_to_write
from flue_py.errors import LeafConflict, RevisionConflict, SessionNotFound
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from flue_py.core.entries import Entry, NewEntry
    from flue_py.core.jsontext import JsonValue

_PLACES = 256
_RETRIES = 2000
"""Whoever has to try again was overtaken by one who is done, so of many at once each has its turn."""


class Place(Protocol):
    """What checkpoints are put into."""

    recent: dict[str, Record]
    """The checkpoints that were put here while nobody else wrote, by their ids."""

    @property
    def id(self) -> str: ...

    @property
    def leaf_id(self) -> str | None: ...

    @property
    def metadata(self) -> Mapping[str, JsonValue]: ...

    def new_id(self) -> str: ...

    async def get_entry(self, entry_id: str) -> Entry | None: ...

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]: ...

    async def get_active_path(self, *, leaf: str) -> Sequence[Entry]: ...

    async def add(self, entries: Sequence[NewEntry], leaf: str | None) -> None:
        """Add entries and set the leaf. Raises `InvalidEntry` for an id that is taken, and a conflict after others."""

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        """Return which of the ids are taken, by entries that are seen here and by others."""

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        """Set fields of the metadata."""


class Live(Place):
    """A session of a store. What was written by others since it was read is a conflict."""

    def __init__(self, store: Store, session: Session) -> None:
        self.recent: dict[str, Record] = {}
        self._store = store
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def leaf_id(self) -> str | None:
        return self._session.leaf_id

    @property
    def metadata(self) -> Mapping[str, JsonValue]:
        return self._session.metadata

    def new_id(self) -> str:
        return self._store.backend.new_entry_id()

    async def get_entry(self, entry_id: str) -> Entry | None:
        return await self._session.get_entry(entry_id)

    async def get_entries(self, ids: Sequence[str]) -> list[Entry | None]:
        return await self._session.get_entries(ids)

    async def get_active_path(self, *, leaf: str) -> Sequence[Entry]:
        return await self._session.get_active_path(leaf=leaf)

    async def add(self, entries: Sequence[NewEntry], leaf: str | None) -> None:
        # By the revision too: an owner may have claimed the thread since, which moves no leaf.
        seen = self._session.revision
        await self._session.import_entries(entries, leaf=leaf, expected_revision=seen)

    async def taken(self, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(await self._store.backend.taken_entry_ids(self.id, ids))

    async def note(self, fields: Mapping[str, JsonValue]) -> None:
        await self._session.set_metadata(fields, merge=True, expected_revision=self._session.revision)


class _Desk:
    """Where one writer at a time works on a session, and what the last one left."""

    def __init__(self, store: Store) -> None:
        self.turn = store.backend.waiting.turn()
        self.place: Live | None = None


class Desks:
    """The sessions that a process writes to. Its threads and tasks take turns, so that they meet no conflict."""

    def __init__(self) -> None:
        self._desks: Known[_Desk] = Known(_PLACES)

    async def write(
        self, store: Store, address: Address, owner: str | None, work: Callable[[Place], Awaitable[None]]
    ) -> None:
        """Call ``work`` with the session of an address; again, with the session read anew, where others have written.

        Raises `ThreadOwned`, and what ``work`` raises: `SessionNotFound`, too, where the address names a checkpoint of
        a thread that was deleted since this process wrote to it. Making that anew would bring a part of it back.
        """
        desk = self._desks.get_or_put(address.key, lambda: _Desk(store))
        async with desk.turn:
            for attempt in range(_RETRIES):
                place, desk.place = desk.place, None
                if place is None:
                    place = Live(store, await session_to_write(store, address, owner))
                try:
                    await work(place)
                except (LeafConflict, RevisionConflict) as error:
                    # It is no use again where it is about the leaf that was read.
                    is_seen = isinstance(error, LeafConflict) and error.actual == place.leaf_id
                    if is_seen or attempt + 1 == _RETRIES:
                        raise
                except SessionNotFound:
                    is_late = address.checkpoint is not None and not await _has_checkpoint(store, address)
                    if is_late:
                        desk.place = place
                    if is_late or attempt + 1 == _RETRIES:
                        raise
                else:
                    desk.place = place
                    return


async def _has_checkpoint(store: Store, address: Address) -> bool:
    """Return whether there is a thread that has the checkpoint of an address, under whichever number. Two reads."""
    session = await session_to_read(store, address)
    if session is None or address.checkpoint is None:
        return False
    most = (await numbers_of(session)).puts
    ids = [entry_id(address.checkpoint, number) for number in range(1, most + 1)]
    return any(await session.get_entries(ids))
