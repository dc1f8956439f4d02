"""A session as ADK sees it: its events in the order they came, and its state.

To ADK, going back to before an invocation is an event like any other, and the events before it stay. Here, that event
is on a branch of its own, below what came before that invocation; it names the leaf that was left (`LEFT`), and what is
read goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flue_py.adapters.adk.events import (
    STATE,
    Found,
    beside_of,
    delta_of,
    events_of,
    events_shown,
    is_event,
    timestamp_of,
)
from flue_py.adapters.adk.states import NOTHING, Read, State, delta_of_state, state_at
from flue_py.adapters.shown import is_plain
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.session import Session

LEFT = "left"
"""What stands beside an event that goes back: the leaf that it left."""

_AT_ONCE = 32


class Place(NamedTuple):
    """What is known at a leaf: the state there, and the time of the event."""

    state: State
    timestamp: float | None


NOWHERE = Place(NOTHING, None)


async def all_events(session: Session, leaf: str | None) -> list[Found]:
    """Return the events up to a leaf, oldest first. O(path)."""
    return await last_events(session, leaf, None, None)


async def last_events(session: Session, leaf: str | None, most: int | None, after: float | None) -> list[Found]:
    """Return the last events up to a leaf, oldest first: at most so many, and none before the last that is older.

    O(path), and with a bound O(events returned).
    """
    segments: list[list[Found]] = []
    count = 0
    limit = None if most is None and after is None else _AT_ONCE if most is None else most + 1
    entries: list[Entry] = []
    end = leaf
    while leaf is not None and (most is None or count < most):
        entries = [*await session.get_active_path(leaf=leaf, limit=limit), *entries]
        if not all(is_plain(entry) or is_event(entry) for entry in entries):
            segments = [events_shown(await session.get_active_path(leaf=end))]
            break
        turn = _last_turn(entries)
        is_whole = turn is not None or entries[0].parent_id is None
        leaf = entries[0].parent_id
        if turn is not None:
            leaf = _left(entries[turn])
            entries = entries[turn:]
        found = list(events_of(entries))
        is_enough = most is not None and count + len(found) > most
        is_old = after is not None and any(each.time < after for each in found)
        if is_whole or is_enough or is_old:
            segments.append(found)
            count += len(found)
            entries = []
        limit = None if limit is None else 2 * limit
        if is_enough or is_old:
            break
    events = [each for segment in reversed(segments) for each in segment]
    if most is not None:
        events = events[-most:] if most else []
    if after is not None:
        older = [number for number, each in enumerate(events) if each.time < after]
        events = events[older[-1] + 1 :] if older else events
    return events


async def place_of(session: Session, leaf: str | None) -> Place:
    """Return what is known at a leaf. O(1), and O(path) below entries that ADK did not make."""
    at = leaf
    timestamp: float | None = None
    while at is not None:
        path = await session.get_active_path(leaf=at, limit=1 if at == leaf else _AT_ONCE)
        for entry in reversed(path):
            if timestamp is None and entry.kind != STATE:
                timestamp = timestamp_of(entry)
            place = await told_by(entry, session.get_entries)
            if place is not None:
                return place._replace(timestamp=timestamp)
        at = path[0].parent_id
    return Place(NOTHING, timestamp)


async def told_by(entry: Entry, read: Read) -> Place | None:
    """Return what an entry tells of its place, with those it names, which ``read`` reads; None if it tells nothing.

    One with state that came with no event has no time of an event.
    """
    state = await state_at(entry, read, _own_delta)
    return None if state is None else Place(state, None if entry.kind == STATE else timestamp_of(entry))


def _own_delta(entry: Entry) -> JsonObject:
    return delta_of_state(entry) if entry.kind == STATE else split_state(delta_of(entry))[2]


def _last_turn(entries: Sequence[Entry]) -> int | None:
    """Return where the last entry is that goes back, or None."""
    for number in range(len(entries) - 1, -1, -1):
        if _left(entries[number]) is not None:
            return number
    return None


def _left(entry: Entry) -> str | None:
    if entry.extra is None or f'"{LEFT}"' not in entry.extra:
        return None
    left = (beside_of(entry) or {}).get(LEFT)
    return left if isinstance(left, str) else None


def first_of(events: Sequence[Found], invocation_id: str) -> int | None:
    """Return where the first event of an invocation is, or None."""
    for number, each in enumerate(events):
        if each.event.get("invocationId") == invocation_id:
            return number
    return None


def split_state(state: JsonObject) -> tuple[JsonObject, JsonObject, JsonObject]:
    """Return what of a state is the app's, the user's and the session's, each by its own names; no temporary ones."""
    app: JsonObject = {}
    user: JsonObject = {}
    session: JsonObject = {}
    for name, value in state.items():
        if name.startswith("app:"):
            app[name.removeprefix("app:")] = value
        elif name.startswith("user:"):
            user[name.removeprefix("user:")] = value
        elif not name.startswith("temp:"):
            session[name] = value
    return app, user, session
