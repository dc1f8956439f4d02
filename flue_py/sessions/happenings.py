"""What is told of sessions and budgets: one look after another at what is stored, each event once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from flue_py.core.budgets import Budget
from flue_py.core.events import (
    Position,
    Seen,
    SessionEvent,
    amount_of,
    budget_deleted_event,
    budget_event,
    created_event,
    deleted_event,
    events_of,
)
from flue_py.core.listing import Ordering
from flue_py.core.sessions import SessionInfo
from flue_py.errors import BudgetNotFound, SessionNotFound
from flue_py.store.backend import Backend

_AT_ONCE = 1_000
_REVISIONS_AT_ONCE = 100
_BY_CREATION = Ordering("created", descending=False)
_ALL = 2**63 - 1
"""The number of an event behind all those of a revision."""


class Looking:
    """Looks at the sessions that are named, or those of a scope, or all, and at the budgets of the same.

    ``seen`` is what was told, and grows with what is. ``looks`` counts the sessions and budgets of the last look.
    """

    def __init__(self, backend: Backend, named: Sequence[str] | None, scope: str | None, seen: Seen) -> None:
        self._backend = backend
        self._named = named
        self._scope = scope
        self._seen = seen
        self._present: set[str] = set()
        self._budgets: set[tuple[str, int]] = set()
        self._known_budgets: set[tuple[str, int]] = set()
        """Those of earlier looks, too, where sessions are named: which others are theirs is not known."""
        self.looks = 0

    async def look(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield what was not told yet. O(sessions + budgets), and O(revisions that are new, and their entries)."""
        self.looks = 0
        for part in (self._of_sessions, self._of_gone_sessions, self._of_budgets, self._of_gone_budgets):
            async with aclosing(part()) as found:
                async for event in found:
                    yield event

    async def _of_sessions(self) -> AsyncGenerator[SessionEvent, None]:
        self._present = set()
        async with aclosing(self._sessions()) as sessions:
            async for info in sessions:
                self.looks += 1
                self._present.add(info.id)
                async with aclosing(self._new_events(info)) as found:
                    async for event in found:
                        yield event

    async def _sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """Yield the sessions as they are now, in the order in which they were made, or were named."""
        if self._named is not None:
            for session_id in self._named:
                info = None
                # One that was given as itself, and whose id is used again, is gone.
                with suppress(SessionNotFound):
                    info = await self._backend.get_session(session_id, self._scope)
                if info is not None:
                    yield info
            return
        cursor: str | None = None
        while True:
            page = await self._backend.list_sessions(
                scope=self._scope, kind=None, limit=_AT_ONCE, cursor=cursor, ordering=_BY_CREATION
            )
            for info in page.sessions:
                yield info
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _new_events(self, info: SessionInfo) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of a session that were not seen yet, and note them; none if it is gone."""
        seen = self._seen.sessions
        told = seen.told.get(info.id)
        if told is not None and told.created_us != info.created_us:
            yield deleted_event(info.id, told.created_us)
            seen.note_deletion(info.id, told.created_us)
        at = seen.at(info.id, info.created_us)
        if at is None:
            yield created_event(info)
            at = Position(info.created_us, 0, 0)
        if at.revision == 0:
            # A creation is one event.
            at = at._replace(number=_ALL)
            seen.note(info.id, at)
        while at < Position(info.created_us, info.revision, _ALL):
            # The revision of the last event may have further ones.
            first = at.revision if at.number == _ALL else max(at.revision - 1, 0)
            try:
                changes = await self._backend.changes(info.ref, first, _REVISIONS_AT_ONCE)
                if not changes:
                    seen.note(info.id, at._replace(number=_ALL))
                    return
                last = changes[-1].revision
                lines = await self._backend.read_log(info.ref, before=last + 1, limit=len(changes))
            except SessionNotFound:
                return
            by_revision = {line.revision: line for line in lines}
            for change in changes:
                for number, event in enumerate(events_of(info, change, by_revision.get(change.revision))):
                    if (change.revision, number) > (at.revision, at.number):
                        yield event
            at = Position(info.created_us, last, _ALL)
            seen.note(info.id, at)

    async def _of_gone_sessions(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield the deletions of sessions of which events were told, in the order in which these were made."""
        seen = self._seen.sessions
        known = seen.told if self._named is None else self._named
        missing = [name for name in known if name in seen.told and name not in self._present]
        for session_id in sorted(missing, key=lambda name: (seen.told[name], name)):
            self.looks += 1
            at = seen.told[session_id]
            # By the bare id: whether there is one with it, whichever was meant.
            found = await self._backend.get_session(str(session_id))
            if found is None or found.created_us != at.created_us:
                yield deleted_event(session_id, at.created_us)
                seen.note_deletion(session_id, at.created_us)
            elif self._scope not in (None, found.scope):
                # Whoever tells of its scope tells of its end.
                del seen.told[session_id]

    async def _of_budgets(self) -> AsyncGenerator[SessionEvent, None]:
        self._budgets = set()
        async with aclosing(self._all_budgets()) as pages:
            async for page in pages:
                self.looks += len(page)
                self._budgets.update((budget.id, budget.created_us) for budget in page)
                async with aclosing(self._due(page)) as found:
                    async for event in found:
                        yield event

    async def _due(self, budgets: Sequence[Budget]) -> AsyncGenerator[SessionEvent, None]:
        """Yield the events of budgets that were not seen yet: those that are gone meanwhile were set."""
        seen = self._seen.budgets
        due = [(budget, kind, amount_of(kind, budget.allowed)) for budget in budgets for kind in seen.due(budget)]
        asked = [(budget.id, amount) for budget, kind, amount in due if kind != "budget_set"]
        calls = await self._backend.budgets_reached(asked) if asked else []
        reached = dict(zip(asked, calls, strict=True))
        for budget, kind, amount in due:
            call = None if kind == "budget_set" else reached[budget.id, amount]
            if call is not None or kind == "budget_set":
                event = budget_event(kind, budget, call)
                yield event
                seen.add(event)

    async def _all_budgets(self) -> AsyncGenerator[Sequence[Budget], None]:
        """Yield the budgets as they are now, in pages, in the order they were made in; of named sessions, theirs."""
        for session_id in self._named or ():
            try:
                covering = await self._backend.covering_budgets(session_id)
            except SessionNotFound:
                continue
            yield [each for each in covering if each.session_id == session_id and self._scope in (None, each.scope)]
        after: str | None = None
        while self._named is None:
            try:
                page = await self._backend.list_budgets(scope=self._scope, after=after, limit=_AT_ONCE)
            except BudgetNotFound:
                # It was deleted meanwhile. From the beginning: what was told is not told twice.
                after = None
                continue
            yield page
            if len(page) < _AT_ONCE:
                return
            after = page[-1].id

    async def _of_gone_budgets(self) -> AsyncGenerator[SessionEvent, None]:
        """Yield the deletions of budgets of which events were told."""
        seen = self._seen.budgets
        if self._named is not None:
            self._known_budgets |= self._budgets
        known = seen.told.keys() if self._named is None else seen.told.keys() & self._known_budgets
        for budget_id, created_us in sorted(known - self._budgets, key=lambda budget: (budget[1], budget[0])):
            self.looks += 1
            found = await self._backend.get_budget(budget_id)
            if found is None or found.created_us != created_us:
                event = budget_deleted_event(budget_id, created_us)
                yield event
                seen.add(event)
            elif self._scope not in (None, found.scope):
                del seen.told[budget_id, created_us]
