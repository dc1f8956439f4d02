"""Checkpoints of one or of all threads, the largest id first, in pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flue_py.adapters.langgraph.checkpoints import Checkpoints
from flue_py.adapters.langgraph.records import Record
from flue_py.adapters.langgraph.threads import (
    UNORDERED,
    Address,
    all_sessions,
    session_to_read,
    sessions_of_thread,
)
from flue_py.adapters.langgraph.values import Values
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

_PAGE = 50
_MOST = 1000


@dataclass
class _Stream:
    """The checkpoints of one session: those that were read and are still to be returned, and where to go on."""

    address: Address
    session_id: str
    found: list[Record] = field(default_factory=list)
    after: str | None = None
    is_begun: bool = False
    is_read: bool = False
    seen: set[str] = field(default_factory=set)


class Listing:
    """One call of ``list``: which checkpoints it is for, and how far it is."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        values: Values,
        address: Address | None,
        *,
        has_namespace: bool,
        filter: Mapping[str, object],  # noqa: A002 - the framework's name
        before: str | None,
        limit: int | None,
    ) -> None:
        self._checkpoints = checkpoints
        self._values = values
        self._address = address
        self._has_namespace = has_namespace
        self._filter = filter
        self._before = before
        self._left = limit
        self._streams: list[_Stream] | None = None

    async def next_page(self, store: Store) -> list[CheckpointTuple]:
        """Return the next checkpoints; none at the end."""
        if self._streams is None:
            self._streams = await self._opened(store)
        size = _PAGE if self._left is None else max(0, min(_PAGE, self._left))
        chosen: list[tuple[_Stream, Record]] = []
        while len(chosen) < size:
            for stream in self._streams:
                if not stream.found and not stream.is_read:
                    await self._read(store, stream, size - len(chosen))
            full = [stream for stream in self._streams if stream.found]
            if not full:
                break
            newest = max(full, key=lambda stream: stream.found[0].id)
            chosen.append((newest, newest.found.pop(0)))
        if self._left is not None:
            self._left -= len(chosen)
        return await self._tuples(store, chosen)

    async def _opened(self, store: Store) -> list[_Stream]:
        if self._address is None:
            return [_Stream(address, session.id) async for address, session in all_sessions(store)]
        if self._has_namespace:
            session = await session_to_read(store, self._address)
            return [] if session is None else [_Stream(self._address, session.id)]
        found = await sessions_of_thread(store, self._address.thread)
        return [_Stream(address, session.id) for address, session in found]

    async def _read(self, store: Store, stream: _Stream, wanted: int) -> None:
        session = await store.get_session(stream.session_id)
        if session is None:
            stream.is_read = True
            return
        if self._address is not None and self._address.checkpoint is not None:
            record = await self._checkpoints.find(session, self._address.checkpoint)
            stream.is_read = True
            stream.found = [record] if record is not None and self._is_asked(record) else []
            return
        if session.metadata.get(UNORDERED):
            await self._read_all(session, stream)
            return
        if not stream.is_begun and self._before is not None:
            record = await self._checkpoints.find(session, self._before)
            stream.after = None if record is None else record.entry_id
        stream.is_begun = True
        while not stream.found and not stream.is_read:
            limit = min(_MOST, max(wanted, 10 if self._filter else 1))
            page = await self._checkpoints.page(session, after=stream.after, limit=limit)
            stream.is_read = len(page) < limit
            if page:
                stream.after = page[-1].entry_id
            stream.found = [record for record in page if self._is_asked(record)]

    async def _read_all(self, session: Session, stream: _Stream) -> None:
        stream.is_read = True
        records = await self._checkpoints.all(session)
        stream.found = sorted(filter(self._is_asked, records), key=lambda record: record.id, reverse=True)

    def _is_asked(self, record: Record) -> bool:
        if self._before is not None and record.id >= self._before:
            return False
        if not self._filter:
            return True
        metadata = self._values.loaded(record.metadata)
        return isinstance(metadata, Mapping) and all(
            metadata.get(field) == value for field, value in self._filter.items()
        )

    async def _tuples(self, store: Store, chosen: list[tuple[_Stream, Record]]) -> list[CheckpointTuple]:
        by_session: dict[str, list[int]] = {}
        for place, (stream, _) in enumerate(chosen):
            by_session.setdefault(stream.session_id, []).append(place)
        made: dict[int, Any] = {}
        for session_id, places in by_session.items():
            session = await store.get_session(session_id)
            if session is None:
                continue
            records = [chosen[place][1] for place in places]
            address = chosen[places[0]][0].address
            tuples = await self._checkpoints.tuples(session, address, records, self._values)
            made.update(zip(places, tuples, strict=True))
        return [made[place] for place in sorted(made)]
