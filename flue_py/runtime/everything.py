"""Every session of a store, page after page."""

from __future__ import annotations

from flue_py.core.sessions import SessionInfo, SessionKind
from flue_py.sessions.store import Store

_PAGE = 1000


async def all_sessions(store: Store, *, scope: str | None = None, kind: SessionKind | None = None) -> list[SessionInfo]:
    """Return every session, or those of a scope or kind, most recently active first. O(sessions)."""
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await store.list_sessions(scope=scope, kind=kind, limit=_PAGE, cursor=cursor)
        found += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return found
