"""An event into the store: with the state it changes, in one transaction, below the leaf that its session has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.sessions.session import Session as AdkSession  # noqa: TC002 - a field of a NamedTuple has it

from flue_py.adapters.adk import shared
from flue_py.adapters.adk.compacting import compaction_of
from flue_py.adapters.adk.events import STATE, Found, compaction_entries, entries_of, events_shown, is_event
from flue_py.adapters.adk.names import scope_of
from flue_py.adapters.adk.places import Places
from flue_py.adapters.adk.reading import LEFT, Place, all_events, first_of, last_events, split_state
from flue_py.adapters.adk.shared import Deltas, Whose
from flue_py.adapters.keys import key_of
from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import check_entry_id
from flue_py.errors import CallConflict, FlueError, InvalidEntry, LeafConflict, SessionNotFound
from flue_py.sessions.atomic import Atomic
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


class Below(NamedTuple):
    """Where an event goes: the session, and the leaf that was seen."""

    session_id: str
    leaf: str | None


class NewEvent(NamedTuple):
    """An event that is to be appended, as JSON, and the session it is for."""

    session: AdkSession
    event: JsonObject

    @property
    def whose(self) -> Whose:
        """The app and the user."""
        return Whose(self.session.app_name, self.session.user_id)


class _Planned(NamedTuple):
    """The entries of an event, and where it goes back to, if it does."""

    entries: Sequence[NewEntry]
    goes_back: bool = False
    target: str | None = None


def mark(session: AdkSession, below: Below) -> None:
    """Note in a session of ADK what was seen of ours."""
    session._storage_update_marker = f"{below.session_id} {below.leaf or ''}"  # noqa: SLF001 - ADK has it for services


async def append(store: Store, *, places: Places, new: NewEvent) -> bool:
    """Append an event, and return whether that is new to its session: an event that is there already changes nothing.

    Raises `StaleSessionError`, `SessionNotFound`. O(event); one that goes back, or compacts, O(path).
    """
    below = await _below(store, new)
    entry_id = _entry_id(new.event)
    try:
        await _write(store, places, new, below, entry_id)
    except LeafConflict as conflict:
        session = await _session(store, below)
        if not await _is_there(session, session.leaf_id, new.event, entry_id):
            await _record(session, new.event)
            raise StaleSessionError(
                f"session {new.session.id!r} has been modified in storage since it was read; get it again, and append"
            ) from conflict
        mark(new.session, Below(below.session_id, session.leaf_id))
        return session.leaf_id == entry_id
    except (InvalidEntry, CallConflict):
        session = await _session(store, below)
        if await _is_there(session, below.leaf, new.event, entry_id):
            return False
        # Another event has the id, or an undone one: this one keeps its own, under an entry's id that is drawn.
        try:
            await _write(store, places, new, below, uuid4().hex)
        except CallConflict:
            await _write(store, places, new, below, uuid4().hex, is_same_call=False)
    return True


async def _write(
    store: Store, places: Places, new: NewEvent, below: Below, entry_id: str, *, is_same_call: bool = True
) -> None:
    app, user, own = split_state(_delta(new.event))
    place = await places.at(below.session_id, below.leaf, store)
    state, beside = place.state.changed(own, entry_id) if own else (place.state, place.state.beside())
    planned = await _plan(store, new.event, below, beside, entry_id, is_same_call=is_same_call)

    def collect(batch: Atomic) -> None:
        if planned.goes_back:
            batch.append_entries(below.session_id, planned.entries, on_conflict="branch", expected_leaf=planned.target)
            batch.move_leaf(below.session_id, entry_id, expected_leaf=below.leaf, why="rewind of ADK")
        else:
            batch.append_entries(below.session_id, planned.entries, expected_leaf=below.leaf)

    await shared.commit(store, places, new.whose, Deltas(app, user, own), collect)
    mark(new.session, Below(below.session_id, entry_id))
    places.note(below.session_id, entry_id, Place(state, _timestamp(new.event)))


async def _plan(
    store: Store, event: JsonObject, below: Below, beside: JsonObject, entry_id: str, *, is_same_call: bool
) -> _Planned:
    actions = event.get("actions")
    actions = actions if isinstance(actions, dict) else {}
    back = actions.get("rewindBeforeInvocationId")
    if isinstance(back, str) and back and below.leaf is not None:
        session = await _session(store, below)
        events = await all_events(session, below.leaf)
        first = first_of(events, back)
        if first is not None:
            if first == 0:
                target = await _beginning(session, events[0].entry.id)
            else:
                target = await _end_of(session, events[:first], events[first])
            return _Planned(entries_of(event, {**beside, LEFT: below.leaf}, entry_id), True, target)
    if isinstance(actions.get("compaction"), dict) and below.leaf is not None:
        session = await _session(store, below)
        path = events_shown(await session.get_active_path(leaf=below.leaf))
        compaction = await compaction_of(session, below.leaf, event, path)
        if compaction is not None:
            beside = {**beside, "timestamp": event["timestamp"]}
            return _Planned(compaction_entries(event, beside, entry_id, compaction, is_same_call=is_same_call))
    return _Planned(entries_of(event, beside, entry_id, is_same_call=is_same_call))


async def _end_of(session: Session, before: Sequence[Found], event: Found) -> str | None:
    """Return the entry at which the events before one are what is shown, with what changed the context. O(path)."""
    last, above = before[-1].entry, event.entries[0].parent_id
    # A compaction or an exclusion between the two stays in effect. Before the first event that a summary keeps is what
    # the summary stands for.
    is_summary = not is_event(last) and last.depth > event.entry.depth
    is_same = [each.entry.id for each in await all_events(session, above)] == [each.entry.id for each in before]
    return above if is_summary or is_same else last.id


async def _beginning(session: Session, first: str) -> str | None:
    """Return what the path to the first event begins with before it: the state that the session was created with."""
    root = (await session.get_active_path(leaf=first))[0]
    return root.id if root.kind == STATE else None


async def _below(store: Store, new: NewEvent) -> Below:
    """Return what a session of ADK has seen. One that came from elsewhere has seen the event it ends with."""
    session = new.session
    told = (session._storage_update_marker or "").split(" ")  # noqa: SLF001 - see `mark`
    if len(told) == 2:
        return Below(told[0], told[1] or None)
    scope = scope_of(session.app_name, session.user_id)
    stored = await store.open_session(key_of(session.id.strip()), scope=scope)
    last = await last_events(stored, stored.leaf_id, 1, None)
    seen = session.events[-1].id if session.events else None
    if seen == (last[-1].event["id"] if last else None):
        return Below(stored.id, stored.leaf_id)
    raise StaleSessionError(
        f"session {session.id!r} has been modified in storage, or was not read from it; get it, and append"
    )


async def _session(store: Store, below: Below) -> Session:
    session = await store.get_session(below.session_id)
    if session is None:
        raise SessionNotFound(below.session_id)
    return session


async def _is_there(session: Session, leaf: str | None, event: JsonObject, entry_id: str) -> bool:
    """Return whether ADK sees this very event already; one that was undone is not there. O(path) where it is."""
    if await session.get_entry(entry_id) is None:
        return False
    events = await all_events(session, leaf)
    return any(found.entry.id == entry_id and found.event == event for found in events)


async def _record(session: Session, event: JsonObject) -> None:
    """Write what an event paid for into the ledger, although the event itself is refused."""
    usage = event.get("usageMetadata")
    if not isinstance(usage, dict):
        return
    paid = entries_of(event, {}, _entry_id(event))[-1]
    for call in paid.calls:
        try:
            await session.record_call(
                usage,
                provider=call.provider,
                model=call.model,
                call_id=_entry_id(event),
                purpose=call.purpose,
                agent=call.agent,
            )
        except FlueError:
            continue  # what was refused is told by the error that this belongs to


def _entry_id(event: JsonObject) -> str:
    """Return the id of an event, or one that is drawn where no entry can have it."""
    id = str(event["id"])
    try:
        check_entry_id(id)
    except InvalidEntry:
        return uuid4().hex
    return id


def _delta(event: JsonObject) -> JsonObject:
    actions = event.get("actions")
    delta = actions.get("stateDelta") if isinstance(actions, dict) else None
    return delta if isinstance(delta, dict) else {}


def _timestamp(event: JsonObject) -> float:
    told = event["timestamp"]
    assert isinstance(told, (int, float))
    return told
