"""The scope that a store is narrowed to: what it means where a call leaves the scope out, and what is not there."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.core.sessions import check_scope, scope_meant
from flue_py.errors import SessionNotFound
from flue_py.sessions.arguments import HasId, checked_session
from flue_py.store.backend import Backend


async def refuse_others(backend: Backend, scope: str | None, ids: Iterable[str]) -> None:
    """Raise `SessionNotFound` for an id whose session is of another scope; None is all, where nothing is read."""
    for session_id in () if scope is None else ids:
        found = await backend.get_session(session_id)
        if found is not None and found.scope != scope:
            raise SessionNotFound(str(session_id))


class Scoped:
    """The part of a `Store` that knows whose sessions it is for."""

    __slots__ = ()
    _backend: Backend
    _scope: str | None

    @property
    def scope(self) -> str | None:
        """The scope that it is narrowed to (see `in_scope`); None is all of them."""
        return self._scope

    def _meant(self, scope: str | None) -> str | None:
        return scope_meant(self._scope, scope)

    def _place(self, scope: str | None) -> str:
        """Return the scope that something is made in, or named in."""
        place = self._meant(scope) or ""
        check_scope(place)
        return place

    async def _own(self, session: HasId | str) -> str:
        """Return the id of a session that was named. Raises `SessionNotFound` where it is of a scope of others."""
        session_id = checked_session(session)
        await refuse_others(self._backend, self._scope, [session_id])
        return session_id
