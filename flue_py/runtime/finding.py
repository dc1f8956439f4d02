"""Finding the session that a person names, at a command line or in a conversation."""

from __future__ import annotations

from flue_py.core.sessions import SessionInfo, SessionKind
from flue_py.errors import AmbiguousId, SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_PAGE = 1000


async def find_session(store: Store, name: str, *, scope: str | None = None) -> Session:
    """Return the session that ``name`` is the id or key of, or else the beginning of the id or key of.

    An exact id counts before an exact key, that before the beginning of an id, and that before the beginning of a
    key. A hexadecimal id is found in any case. With ``scope=None`` every scope is searched: the empty one first, then
    the others, where ids do not fit. Raises `SessionNotFound`, `AmbiguousId`. O(sessions) only where no id fits.
    """
    for each in _spellings(name):
        found = await store.get_session(each, scope=scope)
        if found is not None:
            return found
    try:
        return await store.open_session(name, scope=scope or "")
    except SessionNotFound:
        pass
    for each in _spellings(name) if name else ():
        try:
            return await store.find_session(each, scope=scope)
        except SessionNotFound:
            pass
    # A key is unique within a scope only, and people do not think of scopes.
    everything = await all_sessions(store, scope=scope)
    named = [info.id for info in everything if info.key == name]
    named = named or [info.id for info in everything if name and (info.key or "").startswith(name)]
    if len(named) > 1:
        raise AmbiguousId(name, tuple(named))
    session = await store.get_session(named[0], scope=scope) if named else None
    if session is None:
        raise SessionNotFound(name, detail=f"no session has the id or key {shown(name)}, or one that begins with it")
    return session


def _spellings(name: str) -> list[str]:
    """Return what to look for: ids that this library makes are hexadecimal, in lower case."""
    is_hexadecimal = all(char in "0123456789abcdefABCDEF-" for char in name)
    return list(dict.fromkeys((name, name.lower()))) if is_hexadecimal else [name]


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
