"""The events of all sessions of a store, from their change feeds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from flue_py.core.listing import Ordering
from flue_py.core.sessions import SessionInfo, check_label
from flue_py.errors import InvalidArgument, SessionNotFound, StoreClosed, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import HasId, checked_flag, checked_session
from flue_py.store.backend import Backend

if TYPE_CHECKING:
    from flue_py.core import events as core_events
    from flue_py.core.events import Position, SessionEvent
else:
    core_events = lazy_module("flue_py.core.events")

POLL_SECONDS = 0.25
_SESSIONS_A_POLL = 4_000
"""For each so many sessions a follower waits once more, so that looking at them takes a small part of the time."""
_SESSIONS_AT_ONCE = 1_000
_REVISIONS_AT_ONCE = 100
_BY_CREATION = Ordering("created", descending=False)
_ALL = 2**63 - 1
"""The number of an event behind all those of a revision."""


class StoreEvents:
    """The half of a `Store` that says what happened."""

    __slots__ = ()
    _backend: Backend

    async def events(
        self,
        *,
        sessions: Sequence[HasId | str] | None = None,
        scope: str | None = None,
        after: Iterable[str] = (),
        follow: bool = False,
    ) -> AsyncGenerator[SessionEvent, None]:
        """Yield what happened to sessions, each event once, those of a session in the order in which they happened.

        They are of all sessions, those of ``scope``, or ``sessions``, in the order in which these were made; events of
        different sessions are in no order of time. With ``after``, ids of events, those up to and with the last of each
        session are left out: an event has the same id each time. With ``follow`` it goes on with what comes, from any
        process, until the store is closed; else it ends when it has looked at each session. What is deleted before it
        was looked at has no events. Nothing is written.

        Raises `InvalidArgument` for what is no id of an event, and `SessionNotFound` for a session that is missing when
        it begins. O(sessions), with ``follow`` four times a second (of more than 4,000 sessions, once a second for each
        16,000), and O(revisions that are new, and their entries).
        """
        check_label(scope, "scope")
        checked_flag(follow, "follow")
        seen = core_events.positions_of(_checked_ids(after))
        named = None if sessions is None else _checked_sessions(sessions)
        has_begun = False
        try:
            for session_id in named or ():
                if await self._backend.get_session(session_id, scope) is None:
                    raise SessionNotFound(session_id)
            while True:
                looks = 0
                async with aclosing(self._looked_at(named, scope)) as looked_at:
                    async for info in looked_at:
                        has_begun, looks = True, looks + 1
                        async with aclosing(self._new_events(info, seen)) as found:
                            async for event in found:
                                yield event
                has_begun = True
                if not follow:
                    return
                await self._backend.waiting.pause(POLL_SECONDS * max(1, looks / _SESSIONS_A_POLL))
        except StoreClosed:
            if not has_begun or not follow:
                raise

    async def _looked_at(self, named: Sequence[str] | None, scope: str | None) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions as they are now, in the order in which they were made, or were named."""
        if named is not None:
            for session_id in named:
                info = await self._backend.get_session(session_id, scope)
                if info is not None:
                    yield info
            return
        cursor: str | None = None
        while True:
            page = await self._backend.list_sessions(
                scope=scope, kind=None, limit=_SESSIONS_AT_ONCE, cursor=cursor, ordering=_BY_CREATION
            )
            for info in page.sessions:
                yield info
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _new_events(self, info: SessionInfo, seen: dict[str, Position]) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of a session that were not seen yet, and note them in ``seen``; none if it is gone."""
        at = seen.get(info.id)
        if at is None or at.created_us != info.created_us:
            at = core_events.Position(info.created_us, 0, 0)
            yield core_events.created_event(info)
            seen[info.id] = at = at._replace(number=_ALL)
        while at < core_events.Position(info.created_us, info.revision, _ALL):
            # The revision of the last event may have further ones.
            first = at.revision if at.number == _ALL else max(at.revision - 1, 0)
            try:
                changes = await self._backend.changes(info.ref, first, _REVISIONS_AT_ONCE)
                if not changes:
                    seen[info.id] = at._replace(number=_ALL)
                    return
                last = changes[-1].revision
                lines = await self._backend.read_log(info.ref, before=last + 1, limit=len(changes))
            except SessionNotFound:
                return
            by_revision = {line.revision: line for line in lines}
            for change in changes:
                for event in core_events.events_of(info, change, by_revision.get(change.revision)):
                    if (event.revision, event.number) > (at.revision, at.number):
                        yield event
            seen[info.id] = at = core_events.Position(info.created_us, last, _ALL)


def _checked_ids(after: Iterable[str]) -> list[str]:
    if isinstance(after, (str, bytes)) or not isinstance(after, Iterable):
        raise InvalidArgument(f"after: {shown(after)} is not a list of ids of events")
    return [*after]


def _checked_sessions(sessions: Sequence[HasId | str]) -> list[str]:
    if isinstance(sessions, (str, bytes)) or not isinstance(sessions, Sequence):
        raise InvalidArgument(f"sessions: {shown(sessions)} is not a list of sessions")
    return [*dict.fromkeys(checked_session(session) for session in sessions)]
