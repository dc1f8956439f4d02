"""The events of the sessions and budgets of a store, from what is stored of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from flue_py.errors import InvalidArgument, SessionNotFound, StoreClosed, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import HasId, checked_flag, checked_session
from flue_py.sessions.scoping import Scoped

if TYPE_CHECKING:
    from flue_py.core import events as core_events
    from flue_py.core.events import SessionEvent
    from flue_py.sessions import happenings
else:
    core_events = lazy_module("flue_py.core.events")
    happenings = lazy_module("flue_py.sessions.happenings")

_LOOKS_A_SECOND = 16_000
_REST_SECONDS = 0.02
"""How long a follower rests behind each look, and longer where it looks at more sessions and budgets than so many a
second: what is committed meanwhile is told by one look, so that looking takes a small part of the time."""


class StoreEvents(Scoped):
    """The half of a `Store` that says what happened."""

    __slots__ = ()

    async def events(
        self,
        *,
        sessions: Sequence[HasId | str] | None = None,
        scope: str | None = None,
        after: Iterable[str] = (),
        follow: bool = False,
    ) -> AsyncGenerator[SessionEvent, None]:
        """Yield what happened to sessions and budgets, each event once, those of a session in their order.

        They are of all sessions, those of ``scope``, or ``sessions``, in the order in which these were made, and then
        of the budgets that are set for these; events of different sessions are in no order of time. With ``after``, ids
        of events, those up to and with the last of each session are left out: an event has the same id each time. What
        was deleted since is told of what was told before, or is named by ``after``; of what was deleted before it was
        looked at, nothing is known. With ``follow`` it goes on with what comes, from any process, until the store is
        closed; else it ends when it has looked at everything. Nothing is written.

        Raises `InvalidArgument` for what is no id of an event, and `SessionNotFound` for a session that is missing when
        it begins, and of which ``after`` names no event. O(sessions + budgets), with ``follow`` after each commit, at
        most 16,000 of them a second, and O(revisions that are new, and their entries).
        """
        scope = self._meant(scope)
        checked_flag(follow, "follow")
        seen = core_events.seen_by(_checked_ids(after))
        named = None if sessions is None else _checked_sessions(sessions)
        for session_id in named or ():
            if not seen.sessions.knows(session_id) and await self._backend.get_session(session_id, scope) is None:
                raise SessionNotFound(session_id)
        looking = happenings.Looking(self._backend, named, scope, seen)
        if not follow:
            async with aclosing(looking.look()) as found:
                async for event in found:
                    yield event
            return
        has_begun = False
        try:
            async with aclosing(self._backend.commits()) as woken:
                async for _ in woken:
                    async with aclosing(looking.look()) as found:
                        async for event in found:
                            has_begun = True
                            yield event
                    has_begun = True
                    await self._backend.waiting.pause(max(_REST_SECONDS, looking.looks / _LOOKS_A_SECOND))
        except StoreClosed:
            if not has_begun:
                raise


def _checked_ids(after: Iterable[str]) -> Iterable[str]:
    if isinstance(after, (str, bytes)) or not isinstance(after, Iterable):
        raise InvalidArgument(f"after: {shown(after)} is not a list of ids of events")
    return after


def _checked_sessions(sessions: Sequence[HasId | str]) -> list[str]:
    if isinstance(sessions, (str, bytes)) or not isinstance(sessions, Sequence):
        raise InvalidArgument(f"sessions: {shown(sessions)} is not a list of sessions")
    return [*dict.fromkeys(checked_session(session) for session in sessions)]
