"""Listings with conditions, beside all that is listed."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.sessions import SessionFilter, SessionInfo
from flue_py.db.backend import Backend


async def check_conditions(backend: Backend, listed: Sequence[SessionInfo]) -> None:
    """Check that what a session says of itself finds it, and every other that says the same, in the same order."""
    if not listed:
        return
    # The oldest activity: a task, where there is one, since tasks have metadata.
    chosen = next((info for info in reversed(listed) if info.kind == "task"), listed[-1])
    pairs = tuple((key, value) for key, value in chosen.metadata.items() if isinstance(value, str | int))
    for where in (
        SessionFilter(scopes=(chosen.scope, "nobody")),
        SessionFilter(scope_prefix=chosen.scope[:1], metadata=pairs[:1]),
        SessionFilter(metadata=pairs, completed=chosen.completed_us is not None),
    ):
        page = await backend.list_sessions(scope=None, kind=None, limit=1000, cursor=None, where=where)
        assert list(page.sessions) == [info for info in listed if where.matches(info)], where
        assert chosen in page.sessions
