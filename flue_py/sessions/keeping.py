"""From where a compaction keeps what was said: never between a tool call and its result."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.exchange import Pairing
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.marking import MarkingSession


async def whole_first_kept(session: MarkingSession, first_kept: str, leaf: str | None) -> str:
    """Return the entry to keep from so that no tool call is left out of the context whose result is kept, or to come.

    That is ``first_kept`` itself, or the message of the call, if that lies before it; pinned calls are kept anyway. An
    entry off the path to ``leaf`` stays as it is. Cost: that of the context, or of the path for an entry before it.
    """
    if leaf is None:
        return first_kept
    items = await session.build_context_entries(leaf=leaf)
    ids = [item.entry_id for item in items]
    messages: list[JsonObject | None] = [item.data if item.kind == "message" else None for item in items]
    if first_kept not in ids:
        path = await session.get_active_path(leaf=leaf)
        ids = [entry.id for entry in path]
        messages = [entry.fields if entry.kind == "message" else None for entry in path]
    if first_kept not in ids:
        return first_kept
    pairing, at = Pairing(messages), ids.index(first_kept)
    if pairing.whole_cut(at) == at:
        return first_kept
    return ids[pairing.whole_cut(at, _pinned_callers(pairing, ids, await session.pins()))]


def _pinned_callers(pairing: Pairing, ids: Sequence[str], pins: Sequence[str]) -> set[int]:
    places = {entry_id: at for at, entry_id in enumerate(ids)}
    groups = [pairing.group_of(places[pin]) for pin in pins if pin in places]
    return {group.caller for group in groups if group is not None and group.caller is not None}
