"""What forks have to do with the sessions they came from: what they are named after, and where they begin."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from flue_py.core.sessions import SessionInfo
from flue_py.render.views import needs_source
from flue_py.sessions.finding import all_sessions
from flue_py.store.backend import Backend


async def sources_of(backend: Backend, listed: Iterable[SessionInfo]) -> dict[str, SessionInfo]:
    """Return the sessions that forks without a name of their own were made of, by id, and maybe others. O(listed)."""
    there = {info.id: info for info in listed}
    for info in [*there.values()]:
        source = info.forked_from_session
        if source is not None and source not in there and needs_source(info):
            found = await backend.get_session(source)
            if found is not None:
                there[source] = found
    return there


async def forks_seen(backend: Backend, info: SessionInfo, seen: Collection[str]) -> dict[str | None, list[SessionInfo]]:
    """Return the forks, and forks of forks, that begin at an entry the session sees, oldest first. O(forks).

    ``seen`` are the ids of those entries. They are by the id of the entry, None for forks from before the first one.
    """
    forks = {each.id: each for each in await all_sessions(backend, kind="fork")}
    origins: dict[str, str] = {}

    def origin_of(session_id: str) -> str:
        climbed = []
        at = session_id
        while at not in origins and at in forks and at not in climbed:
            climbed.append(at)
            at = forks[at].forked_from_session or at
        origins.update(dict.fromkeys(climbed, origins.get(at, at)))
        return origins.get(at, at)

    family = [each for each in forks.values() if each.id != info.id and origin_of(each.id) == origin_of(info.id)]
    found: dict[str | None, list[SessionInfo]] = {}
    for each in sorted(family, key=lambda each: (each.created_us, each.id)):
        begins = each.forked_from_entry
        if begins in seen if begins else each.forked_from_session == info.id:
            found.setdefault(begins, []).append(each)
    return found
