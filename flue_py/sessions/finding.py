"""Which session a name means: an id or a key, or the beginning of one."""

from __future__ import annotations

from flue_py.core.sessions import SessionInfo, SessionKind
from flue_py.errors import AmbiguousId, InvalidArgument, SessionNotFound, shown
from flue_py.store.backend import Backend

_AMBIGUOUS = 6
_MATCHES = 200
_PAGE = 1000


async def find_named(backend: Backend, name: str, scope: str | None) -> SessionInfo:
    """Return the session that ``name`` means, as `Store.find_session` says. Raises as that does."""
    if not isinstance(name, str):
        raise InvalidArgument(f"name: should be the id or key of a session, not {type(name).__name__}")
    found = await _with_id(backend, name, scope) or await backend.get_session_by_key(name, scope or "")
    if found is None and name:
        found = await _with_beginning_of_id(backend, name, scope)
    if found is None:
        found = await _with_beginning_of_key(backend, name, scope)
    if found is None:
        raise SessionNotFound(name, detail=f"no session has the id or key {shown(name)}, or one that begins with it")
    return found


async def all_sessions(
    backend: Backend, *, scope: str | None = None, kind: SessionKind | None = None
) -> list[SessionInfo]:
    """Return every session, or those of a scope or kind, most recently active first. O(sessions)."""
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(scope=scope, kind=kind, limit=_PAGE, cursor=cursor)
        found += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return found


def _spellings(name: str) -> list[str]:
    """Return what to look for: ids that this library makes are hexadecimal, in lower case."""
    is_hexadecimal = all(char in "0123456789abcdefABCDEF-" for char in name)
    return list(dict.fromkeys((name, name.lower()))) if is_hexadecimal else [name]


async def _with_id(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    for each in _spellings(name):
        found = await backend.get_session(each, scope)
        if found is not None:
            return found
    return None


async def _with_beginning_of_id(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    for each in _spellings(name):
        ids = await backend.match_session_ids(each, _MATCHES)
        if scope is not None and len(ids) < _MATCHES:
            ids = [one for one in ids if await backend.get_session(one, scope) is not None]
        elif scope is not None:
            # Not all are here: those of others may stand before the one that is meant.
            everything = await all_sessions(backend, scope=scope)
            ids = sorted(info.id for info in everything if info.id.startswith(each))[:_MATCHES]
        if not ids:
            continue
        # Imported task sessions are called by their parent's id, a colon and more: alone, it means the parent.
        of_one = all(one.startswith(f"{ids[0]}:") for one in ids[1:])
        if len(ids) == _MATCHES or not of_one:
            raise AmbiguousId(name, tuple(ids[:_AMBIGUOUS]))
        return await backend.get_session(ids[0], scope)
    return None


async def _with_beginning_of_key(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    """Look through all keys: a key is unique within a scope only, and people do not think of scopes."""
    everything = await all_sessions(backend, scope=scope)
    whole = [info for info in everything if info.key == name]
    begun = [info for info in everything if name and info.key is not None and info.key.startswith(name)]
    found = whole or begun
    if len(found) > 1:
        raise AmbiguousId(name, tuple(info.id for info in found[:_AMBIGUOUS]))
    return found[0] if found else None
