"""Sessions of Google's Agent Development Kit (ADK), kept in a store of ours.

Needs the extra ``adk``. `FlueSessionService` takes the place of ADK's own session services.
"""

from __future__ import annotations

from flue_py import errors

try:
    import google.adk.sessions  # noqa: F401
except ImportError as error:
    raise errors.MissingExtra("adk", "flue_py.adapters.adk") from error

import asyncio
import copy
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session as AdkSession
from google.genai import types

from flue_py import providers
from flue_py.adapters import common
from flue_py.adapters.adk import layout
from flue_py.adapters.adk.layout import names_of, scope_of
from flue_py.adapters.messages import text_of
from flue_py.context.pipeline import plain_agent
from flue_py.context.request import Reshaping
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.erasure import REDACTED
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, encode_json
from flue_py.core.sessions import SessionInfo, check_entry_id
from flue_py.db.runner import collector_held, committed_before
from flue_py.errors import (
    CallConflict,
    CorruptStore,
    FlueError,
    InvalidArgument,
    InvalidEntry,
    LeafConflict,
    SessionExists,
    SessionNotFound,
    shown,
)
from flue_py.providers.base import Leftovers, fields_of, listed
from flue_py.providers.gemini import FOREIGN_SIGNATURE, part_from_gemini, printed_part
from flue_py.providers.lists import CONTINUED
from flue_py.providers.openai_chat import parts_of
from flue_py.sessions.batch import Atomic
from flue_py.sessions.handle import checked_text, listed_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import Lock

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest

__all__ = ["FlueSessionService", "copy_sessions", "names_of", "scope_of", "sent_to_adk"]


# State folded from the entries of a path
#
# So a rewind, an undo and a fork have the state of their place. An entry that changes the state has the state in full
# beside it (``is``), or names the entries to fold, the first of which has it in full (``in``). An entry that changes
# nothing names the last one that did (``at``). The state is written in full whenever naming the changes since would
# take more. What was redacted is no part of a state: it is that of the last entry above that still says it in full,
# with the changes since.

FIELD = "state"

_NAMED = 40  # bytes that naming one entry takes
_MOST = 64  # entries to read at most

Read = Callable[[Sequence[str]], Awaitable[Sequence[Entry | None]]]


class State(Frozen):
    """A state, and the entries that made it: the first of them has it in full."""

    values: JsonObject
    made_by: tuple[str, ...] = ()

    def unchanged(self, entry_id: str) -> tuple[State, JsonObject]:
        """Return the state after an entry that changes nothing, and the record of that entry."""
        if self.made_by:
            return self, {FIELD: {"at": self.made_by[-1]}}
        return self.changed({}, entry_id) if self.values else (self, {})

    def changed(self, delta: Mapping[str, JsonValue], entry_id: str) -> tuple[State, JsonObject]:
        """Return the state after a change by an entry, and the record of that entry. O(state)."""
        values = {**self.values, **delta}
        text = layout.as_text(values, "state")
        count = len(self.made_by) + 1
        if not self.made_by or count > _MOST or _NAMED * count * count / 2 + count * len(json.dumps(delta)) > len(text):
            return State(values, (entry_id,)), {FIELD: {"is": storable(values)}}
        return State(values, (*self.made_by, entry_id)), {FIELD: {"in": list(self.made_by)}}


NOTHING = State({})


def first_state(values: JsonObject, entry_id: str) -> NewEntry:
    """Return the entry with the state that a session begins with. O(state)."""
    return NewEntry.custom(layout.STATE, {"is": storable(values)}, id=entry_id)


async def state_at(entry: Entry, read: Read) -> State | None:
    """Return the state at an entry, or None if it is not recorded there, or what it names was redacted.

    ``read`` reads others by their ids.
    """
    record = layout.beside_of(entry)
    change = _state_record(entry, record)
    if change is None:
        return None if record is None or layout.is_part(record) else NOTHING
    if isinstance(change.get("at"), str):
        return await state_at(_all_present(await read([str(change["at"])]), entry)[0], read)
    if "is" in change:
        return State(_object(change["is"]), (entry.id,))
    ids = [str(name) for name in listed(change.get("in"))]
    first, *others = named = _all_present(await read(ids), entry)
    if any(REDACTED in other.fields for other in named):
        return None
    values = _object((_state_record(first, layout.beside_of(first)) or {}).get("is"))
    for later in (*others, entry):
        values.update(_change_by(later))
    return State(values, (*ids, entry.id))


def _change_by(entry: Entry) -> JsonObject:
    is_state = entry.kind == layout.STATE
    return _object(entry.fields.get("set")) if is_state else split_state(layout.delta_of(entry)).own


def storable(values: JsonObject) -> JsonValue:
    """Return a state as it is stored: as text if no JSON in UTF-8 can hold it. O(size)."""
    try:
        if not encode_json(values, "state")[1]:
            return values
    except InvalidEntry:
        pass
    return layout.as_text(values, "state")


def _state_record(entry: Entry, record: JsonObject | None) -> JsonObject | None:
    if REDACTED in entry.fields:
        return None
    if entry.kind == layout.STATE and entry.extra is None:
        return entry.fields
    change = None if record is None else record.get(FIELD)
    return change if isinstance(change, dict) else None


def _object(stored: JsonValue) -> JsonObject:
    value = json.loads(stored) if isinstance(stored, str) else stored
    return dict(value) if isinstance(value, dict) else {}


def _all_present(entries: Sequence[Entry | None], entry: Entry) -> list[Entry]:
    present = [entry for entry in entries if entry is not None]
    if len(present) != len(entries) or not present:
        raise CorruptStore(f"entry {entry.id!r}: an entry that its state is made of is not there; run verify()")
    return present


# The view of ADK: the events of a session in order, and its state
#
# To ADK, going back to before an invocation is an event like any other, and the events before it stay. Here, that event
# is on a branch of its own, below the entries before that invocation; it names the leaf that was left (`LEFT`), and
# reading goes on from there.

LEFT = "left"
"""The field in the record of an event that goes back: the leaf that it left."""

_AT_ONCE = 32


class Place(Frozen):
    """The state at a leaf, and the time of the event."""

    state: State
    timestamp: float | None


NOWHERE = Place(NOTHING, None)


async def last_events(
    session: Session, leaf: str | None, most: int | None = None, after: float | None = None
) -> list[layout.Found]:
    """Return the events up to a leaf, oldest first: at most so many, and none before the last that is older.

    O(path), and with a bound O(events returned).
    """
    segments: list[list[layout.Found]] = []
    count = 0
    limit = None if most is None and after is None else _AT_ONCE if most is None else most + 1
    entries: list[Entry] = []
    end = leaf
    while leaf is not None and (most is None or count < most):
        entries = [*await session.get_active_path(leaf=leaf, limit=limit), *entries]
        if not all(common.is_plain(entry) or layout.is_event(entry) for entry in entries):
            segments = [layout.events_shown(await session.get_active_path(leaf=end))]
            break
        turn = _last_turn(entries)
        is_whole = turn is not None or entries[0].parent_id is None
        leaf = entries[0].parent_id
        if turn is not None:
            leaf = _left(entries[turn])
            entries = entries[turn:]
        segment_events = list(layout.events_of(entries))
        is_enough = most is not None and count + len(segment_events) > most
        is_old = after is not None and any(event.time < after for event in segment_events)
        if is_whole or is_enough or is_old:
            segments.append(segment_events)
            count += len(segment_events)
            entries = []
        limit = None if limit is None else 2 * limit
        if is_enough or is_old:
            break
    events = [event for segment in reversed(segments) for event in segment]
    if most is not None:
        events = events[-most:] if most else []
    if after is not None:
        older = [number for number, event in enumerate(events) if event.time < after]
        events = events[older[-1] + 1 :] if older else events
    return events


async def place_of(session: Session, leaf: str | None) -> Place:
    """Return the place at a leaf. O(1), and O(path) below entries that ADK did not make."""
    at = leaf
    timestamp: float | None = None
    changes: list[JsonObject] = []
    while at is not None:
        path = await session.get_active_path(leaf=at, limit=1 if at == leaf else _AT_ONCE)
        for entry in reversed(path):
            if timestamp is None and entry.kind != layout.STATE:
                timestamp = layout.timestamp_of(entry)
            place = await recorded_place(entry, session.get_entries)
            if place is not None:
                return Place(_changed_by(place.state, changes), timestamp)
            changes.append(_change_by(entry))
        at = path[0].parent_id
    return Place(_changed_by(NOTHING, changes), timestamp)


def _changed_by(state: State, changes: Sequence[JsonObject]) -> State:
    """Return a state after changes, the last one first. The next entry writes it in full, if there are any."""
    if not any(changes):
        return state
    values = dict(state.values)
    for change in reversed(changes):
        values.update(change)
    return State(values)


async def recorded_place(entry: Entry, read: Read) -> Place | None:
    """Return the place that an entry records, with those it names, which ``read`` reads; None if it records none.

    One with state that came with no event has no time of an event.
    """
    state = await state_at(entry, read)
    return None if state is None else Place(state, None if entry.kind == layout.STATE else layout.timestamp_of(entry))


def _last_turn(entries: Sequence[Entry]) -> int | None:
    """Return where the last entry is that goes back, or None."""
    numbers = range(len(entries) - 1, -1, -1)
    return next((number for number in numbers if _left(entries[number]) is not None), None)


def _left(entry: Entry) -> str | None:
    if entry.extra is None or f'"{LEFT}"' not in entry.extra:
        return None
    left = (layout.beside_of(entry) or {}).get(LEFT)
    return left if isinstance(left, str) else None


class Deltas(NamedTuple):
    """The parts of a state, or of its change: the app's, the user's and the session's own, by their names there."""

    app: JsonObject
    user: JsonObject
    own: JsonObject


def split_state(state: JsonObject) -> Deltas:
    """Return the parts of a state, without temporary values."""
    parts = Deltas({}, {}, {})
    for name, value in state.items():
        if name.startswith("app:"):
            parts.app[name.removeprefix("app:")] = value
        elif name.startswith("user:"):
            parts.user[name.removeprefix("user:")] = value
        elif not name.startswith("temp:"):
            parts.own[name] = value
    return parts


# Cache of recent leaves; never stale within an epoch, since only a redaction changes an entry

_PLACES_MOST = 2_000
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Places:
    """The places of a service."""

    def __init__(self) -> None:
        self._places: common.Cache[Place] = common.Cache(_PLACES_MOST)

    async def begin(self, store: Store) -> None:
        """Forget what was read before texts of the store were erased. One read."""
        self._places.begin_epoch(await store.backend.read_epoch())

    def note(self, session_id: str, leaf: str, place: Place) -> None:
        """Note the place at a leaf. O(1)."""
        self._places.put((str(session_id), leaf), place)

    async def meet(self, sessions: Sequence[SessionInfo], store: Store) -> None:
        """Read the places at the leaves of many sessions, those that were not met lately, in one read of all.

        A place that an entry does not record by itself is left to `at`. O(sessions).
        """
        new = [info for info in sessions if info.leaf_id is not None and (info.id, info.leaf_id) not in self._places]
        if not new:
            return
        del new[_PLACES_MOST:]  # no more are cached
        leaves = await store.backend.read_leaves([info.ref for info in new])
        for info, leaf in zip(new, leaves, strict=True):
            if leaf is None or leaf.id != info.leaf_id:
                continue
            place = await _leaf_place(info.ref, leaf, store)
            if place is not None:
                self.note(info.id, leaf.id, place)

    async def at(self, session_id: str, leaf: str | None, store: Store) -> Place:
        """Return the place at a leaf of a session; read it if it was not met lately. O(1).

        Raises `SessionNotFound`.
        """
        if leaf is None:
            return NOWHERE
        place = self._places.get((str(session_id), leaf))
        if place is None:
            # By the store's backend: one read, where most states are small, and no use for a handle.
            place = await _leaf_place(session_id, await store.backend.get_entry(session_id, leaf), store)
            place = place or await place_of(await _session(store, session_id), leaf)
            self.note(session_id, leaf, place)
        return place


async def _leaf_place(session_id: str, leaf: Entry | None, store: Store) -> Place | None:
    """Return the place that the entry at a leaf records with those it names; None if it records none."""
    # Below an entry with state alone, the time of the place is that of an event before it, if there is one.
    if leaf is None or (leaf.kind == layout.STATE and leaf.parent_id is not None):
        return None
    return await recorded_place(leaf, partial(store.backend.get_entries, session_id))


async def _session(store: Store, session_id: str) -> Session:
    session = await store.get_session(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return session


def fresh(values: JsonObject) -> JsonObject:
    """Return a state that is the caller's to change. O(size)."""
    return dict(values) if all(type(value) in _PLAIN for value in values.values()) else copy.deepcopy(values)


# State shared by the sessions of a user or of an app
#
# Each is in a session of its own, without messages, so that it is written in one transaction with the event that
# changes it. Two that change it at the same time are one after the other: the second reads the state after the first.

_Result = TypeVar("_Result")


class Whose(NamedTuple):
    """An app, and a user of it."""

    app_name: str
    user_id: str


class _Change(Frozen):
    """A change of one shared state, as it is now; ``session_id`` is None if there is none yet."""

    scope: str
    key: str
    title: str
    session_id: str | None
    leaf: str | None
    state: State
    delta: JsonObject
    entry_id: str

    @property
    def operations(self) -> int:
        return 2 if self.session_id is None else 1

    def collect(self, batch: Atomic) -> str:
        """Add the change to a batch; return the id of the session with the state."""
        if self.session_id is None:
            session = batch.create_session(key=self.key, scope=self.scope, title=self.title)
            batch.append_entries(session, [first_state(self.delta, self.entry_id)])
            return session.id
        _, record = self.state.changed(self.delta, self.entry_id)
        entry = NewEntry.custom(
            layout.STATE, {"set": storable(self.delta)}, id=self.entry_id, extra={layout.BESIDE: record}
        )
        batch.append_entries(self.session_id, [entry], expected_leaf=self.leaf)
        return self.session_id

    def after(self) -> Place:
        """Return the place after the change."""
        if self.session_id is None:
            return Place(State(self.delta, (self.entry_id,)), None)
        return Place(self.state.changed(self.delta, self.entry_id)[0], None)


async def read(store: Store, places: Places, app_name: str, user_id: str | None) -> JsonObject:
    """Return the state of an app, or of a user of it, by the names it has there. O(state)."""
    scope, key = layout.state_place(app_name, user_id)
    session = await common.find_session(store, key, scope)
    return {} if session is None else fresh((await places.at(session.id, session.leaf_id, store)).state.values)


async def state_of(store: Store, places: Places, whose: Whose) -> JsonObject:
    """Return the state that a session shares with others, by the names it has in a session. O(state)."""
    app = await read(store, places, whose.app_name, None)
    user = await read(store, places, whose.app_name, whose.user_id)
    return {
        **{f"app:{name}": value for name, value in app.items()},
        **{f"user:{name}": value for name, value in user.items()},
    }


async def commit(
    store: Store, places: Places, whose: Whose, deltas: Deltas, collect: Callable[[Atomic], _Result]
) -> _Result:
    """Commit the operations that ``collect`` adds to a batch, with changes of shared state; return its result.

    All, or nothing. Begins again if somebody else changed that state meanwhile. Raises as the operations of
    ``collect``.
    """
    wanted = [(None, deltas.app), (whose.user_id, deltas.user)]
    while True:
        changes = [await _change(store, places, whose.app_name, user, delta) for user, delta in wanted if delta]
        try:
            async with store.atomic() as batch:
                sessions = [change.collect(batch) for change in changes]
                result = collect(batch)
        except (LeafConflict, SessionExists) as error:
            if error.operation is not None and error.operation < sum(change.operations for change in changes):
                continue
            raise
        for session_id, change in zip(sessions, changes, strict=True):
            places.note(session_id, change.entry_id, change.after())
        return result


async def _change(store: Store, places: Places, app_name: str, user_id: str | None, delta: JsonObject) -> _Change:
    scope, key = layout.state_place(app_name, user_id)
    title = f"State of {app_name}" if user_id is None else f"State of {user_id} in {app_name}"
    title = "".join(char if char.isprintable() else "\ufffd" for char in title)
    session = await common.find_session(store, key, scope)
    if session is None:
        return _Change(scope, key, title, None, None, NOTHING, delta, uuid4().hex)
    place = await places.at(session.id, session.leaf_id, store)
    return _Change(scope, key, title, session.id, session.leaf_id, place.state, delta, uuid4().hex)


# Append an event and its state change in one transaction, below the leaf its session has seen


class Below(Frozen):
    """Where an event goes: the session, and the leaf that was seen."""

    session_id: str
    leaf: str | None


class NewEvent(Frozen):
    """An event that is to be appended, as JSON, and the session it is for."""

    session: AdkSession
    event: JsonObject

    @property
    def whose(self) -> Whose:
        """The app and the user."""
        return Whose(self.session.app_name, self.session.user_id)


class _Planned(Frozen):
    """The entries of an event, and where it goes back to, if it does."""

    entries: Sequence[NewEntry]
    goes_back: bool = False
    target: str | None = None


def mark(session: AdkSession, below: Below) -> None:
    """Note in a session of ADK which leaf of ours it has seen."""
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
        session = await _session(store, below.session_id)
        if not await _is_there(session, session.leaf_id, new.event, entry_id):
            await _record(session, new.event)
            raise StaleSessionError(
                f"session {new.session.id!r} has been modified in storage since it was read; get it again, and append"
            ) from conflict
        mark(new.session, Below(below.session_id, session.leaf_id))
        return session.leaf_id == entry_id
    except (InvalidEntry, CallConflict):
        session = await _session(store, below.session_id)
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
    deltas = split_state(layout.state_delta(new.event))
    place = await places.at(below.session_id, below.leaf, store)
    before = place.state
    state, record = before.changed(deltas.own, entry_id) if deltas.own else before.unchanged(entry_id)
    planned = await _plan(store, new.event, below, record, entry_id, is_same_call=is_same_call)

    def collect(batch: Atomic) -> None:
        if planned.goes_back:
            batch.append_entries(below.session_id, planned.entries, on_conflict="branch", expected_leaf=planned.target)
            batch.move_leaf(below.session_id, entry_id, expected_leaf=below.leaf, why="rewind of ADK")
        else:
            batch.append_entries(below.session_id, planned.entries, expected_leaf=below.leaf)

    await commit(store, places, new.whose, deltas, collect)
    mark(new.session, Below(below.session_id, entry_id))
    places.note(below.session_id, entry_id, Place(state, cast("float", new.event["timestamp"])))


async def _plan(
    store: Store, event: JsonObject, below: Below, record: JsonObject, entry_id: str, *, is_same_call: bool
) -> _Planned:
    actions = fields_of(event.get("actions"))
    back = actions.get("rewindBeforeInvocationId")
    if isinstance(back, str) and back and below.leaf is not None:
        session = await _session(store, below.session_id)
        events = await last_events(session, below.leaf)
        invocations = [earlier.event.get("invocationId") for earlier in events]
        if back in invocations:
            target = await _end_before(session, events, invocations.index(back))
            return _Planned(layout.entries_of(event, {**record, LEFT: below.leaf}, entry_id), True, target)
    if isinstance(actions.get("compaction"), dict) and below.leaf is not None:
        session = await _session(store, below.session_id)
        path = layout.events_shown(await session.get_active_path(leaf=below.leaf))
        compaction = await layout.compaction_of(session, below.leaf, event, path)
        if compaction is not None:
            record = {**record, "timestamp": event["timestamp"]}
            return _Planned(layout.compaction_entries(event, record, entry_id, compaction, is_same_call=is_same_call))
    return _Planned(layout.entries_of(event, record, entry_id, is_same_call=is_same_call))


async def _end_before(session: Session, events: Sequence[layout.Found], number: int) -> str | None:
    """Return the entry at which the events before one are shown, with changes of the context. O(path).

    Before the first event, that is the entry with the state that the session was created with, if any.
    """
    event = events[number]
    if number == 0:
        root = (await session.get_active_path(leaf=event.entry.id))[0]
        return root.id if root.kind == layout.STATE else None
    last, above = events[number - 1].entry, event.entries[0].parent_id
    # A compaction or an exclusion between the two stays in effect. Before the first event that a summary keeps are the
    # events that the summary stands for.
    is_summary = not layout.is_event(last) and last.depth > event.entry.depth
    ids_above = [shown_event.entry.id for shown_event in await last_events(session, above)]
    is_same = ids_above == [shown_event.entry.id for shown_event in events[:number]]
    return above if is_summary or is_same else last.id


async def _below(store: Store, new: NewEvent) -> Below:
    """Return the leaf that a session of ADK has seen. One that came from elsewhere has seen the event it ends with."""
    session = new.session
    marker = (session._storage_update_marker or "").split(" ")  # noqa: SLF001 - see `mark`
    if len(marker) == 2:
        return Below(marker[0], marker[1] or None)
    scope = scope_of(session.app_name, session.user_id)
    stored = await store.open_session(common.key_of(session.id.strip()), scope=scope)
    last = await last_events(stored, stored.leaf_id, 1, None)
    seen = session.events[-1].id if session.events else None
    if seen == (last[-1].event["id"] if last else None):
        return Below(stored.id, stored.leaf_id)
    raise StaleSessionError(
        f"session {session.id!r} has been modified in storage, or was not read from it; get it, and append"
    )


async def _is_there(session: Session, leaf: str | None, event: JsonObject, entry_id: str) -> bool:
    """Return whether ADK sees this very event already; one that was undone is not there. O(path) where it is."""
    if await session.get_entry(entry_id) is None:
        return False
    events = await last_events(session, leaf)
    return any(event_of_path.entry.id == entry_id and event_of_path.event == event for event_of_path in events)


async def _record(session: Session, event: JsonObject) -> None:
    """Write the call of an event into the ledger, although the event itself is refused."""
    usage = event.get("usageMetadata")
    if not isinstance(usage, dict):
        return
    paid = layout.entries_of(event, {}, _entry_id(event))[-1]
    for call in paid.calls:
        try:
            await session.money.record_call(
                usage,
                provider=call.provider,
                model=call.model,
                call_id=_entry_id(event),
                purpose=call.purpose,
                agent=call.agent,
            )
        except FlueError:
            continue  # the error that this belongs to says that the event was refused


def _entry_id(event: JsonObject) -> str:
    """Return the id of an event, or one that is drawn where no entry can have it."""
    id = str(event["id"])
    try:
        check_entry_id(id)
    except InvalidEntry:
        return uuid4().hex
    return id


# Calls on one session in order, from any event loop or thread


class Turns:
    """Whose turn it is, for each name. A name that nobody waits for takes no space."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    @asynccontextmanager
    async def of(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until all who asked for this name before are done. Whoever is cancelled meanwhile has no turn."""
        turn: Future[None] | None = None
        with self._lock:
            queue = self._waiting.get(name)
            if queue is None:
                self._waiting[name] = deque()
            else:
                queue.append(turn := Future())
        if turn is not None:
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                # The turn may have come just as the wait was given up: then it is the next one's.
                if not turn.cancel() and not turn.cancelled():
                    self._next(name)
                raise
        try:
            yield
        finally:
            self._next(name)

    def _next(self, name: Hashable) -> None:
        with self._lock:
            queue = self._waiting[name]
            while queue:
                following = queue.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            del self._waiting[name]


# The session service

_OBJECTS_OF_AN_EVENT = 10


class FlueSessionService(BaseSessionService):
    """Sessions of ADK in a store: a path, a URL, ``":memory:"``, or a store that is open.

    A session is in the scope ``app/user`` under its own id as the key (see `scope_of`). It raises ADK's own errors if
    there is one: `AlreadyExistsError`, `SessionNotFoundError`, `StaleSessionError`. It may be used from any event loop
    and thread.
    """

    def __init__(self, target: common.Target) -> None:
        """Note which store is meant; it is opened when it is first used. Raises `InvalidArgument`. O(1)."""
        self._access = common.Access(target)
        self._turns = Turns()
        self._places = Places()

    async def _run(self, work: common.Work[_Result]) -> _Result:
        async def begin_and_work(store: Store) -> _Result:
            await self._places.begin(store)
            return await work(store)

        return await self._access.run(begin_and_work)

    # the calls of ADK

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, object] | None = None, session_id: str | None = None
    ) -> AdkSession:
        """Create a session with its first state, in one transaction with that of the app and the user.

        Raises `AlreadyExistsError` for an id that is taken. O(state).
        """
        id = _stripped(session_id or "") or str(uuid4())
        whose, deltas = Whose(app_name, user_id), split_state(layout.printed_state(state or {}))

        async def create(store: Store) -> AdkSession:
            scope, metadata = scope_of(*whose), layout.session_metadata(app_name, user_id, id)

            def collect(batch: Atomic) -> Session:
                session = batch.create_session(key=common.key_of(id), scope=scope, metadata=metadata)
                if deltas.own:
                    batch.append_entries(session, [first_state(deltas.own, uuid4().hex)])
                return session

            session = await commit(store, self._places, whose, deltas, collect)
            shared = await state_of(store, self._places, whose)
            return _service_session(whose, session.info, {**deltas.own, **shared}, None)

        try:
            return await self._run(create)
        except SessionExists:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from None

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> AdkSession | None:
        """Return a session with its state and its events, or None.

        O(events), and with ``num_recent_events`` or ``after_timestamp``, O(events returned).
        """
        most = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        whose = Whose(app_name, user_id)

        async def get(store: Store) -> AdkSession | None:
            stored = await _find(store, whose, session_id)
            if stored is None:
                return None
            info = stored.info
            place = await self._places.at(info.id, info.leaf_id, store)
            events = await last_events(stored, info.leaf_id, most, after)
            shared = await state_of(store, self._places, whose)
            session = _service_session(whose, info, {**fresh(place.state.values), **shared}, place.timestamp)
            with collector_held(_OBJECTS_OF_AN_EVENT * len(events)):
                session.events = [Event.model_validate(event.event) for event in events]
            return session

        return await self._run(get)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of an app, without their events.

        The last one is the one that was active last. O(sessions).
        """

        async def read(store: Store) -> list[AdkSession]:
            shared: dict[Whose, JsonObject] = {}
            sessions: list[AdkSession] = []
            infos = await _listed(store, app_name, user_id)
            await self._places.meet(infos, store)
            for info in infos:
                whose = Whose(*names_of(info.scope, info.metadata))
                if whose not in shared:
                    shared[whose] = await state_of(store, self._places, whose)
                try:
                    place = await self._places.at(info.id, info.leaf_id, store)
                except SessionNotFound:
                    continue  # deleted since it was listed
                state = {**fresh(place.state.values), **fresh(shared[whose])}
                sessions.append(_service_session(whose, info, state, place.timestamp))
            return sessions

        sessions = await self._run(read)
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session; a missing one is no error. Forks of it keep the events they see. O(entries)."""

        async def delete(store: Store) -> None:
            session = await _find(store, Whose(app_name, user_id), session_id)
            if session is not None:
                await store.delete_session_tree(session)

        await self._access.run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, object]:
        """Return the state that the sessions of a user share, by names without ``user:``. O(state)."""

        return dict(await self._run(lambda store: read(store, self._places, app_name, user_id)))

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Append an event, with the state that it changes, in one transaction, and bring ``session`` up to date.

        One that is partial is returned, and not stored. Raises `SessionNotFoundError`, and `StaleSessionError` if
        the session has gone on, or back, since ``session`` was read; the call of the event is in the ledger then, too.
        O(event).
        """
        if event.partial:
            return event
        async with self._turns.of((session.app_name, session.user_id, session.id)):
            new = NewEvent(session, layout.printed_event(event))
            try:
                is_new = await self._run(partial(append, places=self._places, new=new))
            except SessionNotFound:
                raise SessionNotFoundError(f"Session {session.id} not found.") from None
            except asyncio.CancelledError as cancelled:
                committed = committed_before(cancelled)
                # It is stored: who goes on with this session must find the event in it.
                if committed is not None and committed.result is True:
                    await self._add(session, event)
                raise
            if is_new:
                await self._add(session, event)
        return event

    async def _add(self, session: AdkSession, event: Event) -> None:
        await super().append_event(session, event)
        session.last_update_time = event.timestamp

    # our own

    async def session_for(self, *, app_name: str, user_id: str, session_id: str) -> Session | None:
        """Return the session of ours: for undo, forks, usage and reports. None if it is missing. O(1).

        It is to be used in the event loop that asks for it, whatever the store was opened by.
        """
        return await self._access.session(lambda store: _find(store, Whose(app_name, user_id), session_id))

    async def set_shared_state(self, *, app_name: str, user_id: str, state: Mapping[str, object]) -> None:
        """Set state that sessions share, by names that begin with ``app:`` or ``user:``, without an event.

        Values that are set already are not written again. Raises `InvalidArgument` for another name. O(state).
        """
        values = layout.printed_state(state)
        app, user, own = split_state(values)
        if len(app) + len(user) != len(values):
            odd = next((name for name in values if name in own), "temp:")
            raise InvalidArgument(f"state: {shown(odd)} is of one session; only names with app: or user: are shared")

        async def write(store: Store) -> None:
            whose = Whose(app_name, user_id)
            now = await state_of(store, self._places, whose)
            changed = {name: value for name, value in values.items() if name not in now or now[name] != value}
            await commit(store, self._places, whose, split_state(changed), lambda _: None)

        await self._run(write)

    async def close(self) -> None:
        """Let go of the store: it is closed if it was opened here and nobody else uses it."""
        await self._access.aclose()

    async def __aenter__(self) -> FlueSessionService:
        """Return the service, for the length of an ``async with``."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of the store."""
        await self.close()


def _stripped(session_id: str) -> str:
    """Return an id as ADK's own services take it. Raises `InvalidArgument` if it is not a string."""
    if not isinstance(session_id, str):
        raise InvalidArgument(f"session_id: should be a string, not {shown(session_id)}")
    return session_id.strip()


async def _find(store: Store, whose: Whose, session_id: str) -> Session | None:
    return await common.find_session(store, common.key_of(_stripped(session_id)), scope_of(*whose))


async def _listed(store: Store, app_name: str, user_id: str | None) -> list[SessionInfo]:
    """Return the sessions of a user, or of all users of an app, page by page."""
    scope = None if user_id is None else scope_of(app_name, user_id)
    prefix = layout.app_prefix(app_name) if user_id is None else None
    pages = partial(
        store.list_sessions, scope=scope, scope_prefix=prefix, order_by="created", limit=store.limits.sessions_per_page
    )
    return [info async for info in listed_sessions(pages) if info.key is not None]


def _service_session(whose: Whose, info: SessionInfo, state: JsonObject, timestamp: float | None) -> AdkSession:
    """Return a session of ADK without its events; without a time of its own it is as old as its row."""
    session = AdkSession(
        app_name=whose.app_name,
        user_id=whose.user_id,
        id=common.id_of(info.key or "", info.metadata),
        state=state,
        last_update_time=info.created_us / 1_000_000 if timestamp is None else timestamp,
    )
    mark(session, Below(info.id, info.leaf_id))
    return session


# Import from another session service of ADK

_SHARED = ("app:", "user:")


async def copy_sessions(source: BaseSessionService, target: FlueSessionService, app_name: str) -> int:
    """Copy the sessions of an app, with their events, state and usage; return how many were new or have got longer.

    Run it again to catch up, or after it broke off: a session of the target that is the beginning of the one in the
    source gets the rest, any other is left as it is. The source is only read. Values that no event has set are in the
    state that a session begins with; the state of the app and of its users is that of the source. Raises as the two
    services do. O(events).
    """
    copied = 0
    for outline in (await source.list_sessions(app_name=app_name)).sessions:
        user_id, id = outline.user_id, outline.id
        session = await source.get_session(app_name=app_name, user_id=user_id, session_id=id)
        if session is None:
            continue
        copied_session = await target.get_session(app_name=app_name, user_id=user_id, session_id=id)
        is_new = copied_session is None
        if copied_session is None:
            changed = {name for event in session.events for name in event.actions.state_delta}
            first = {name: value for name, value in session.state.items() if not name.startswith(_SHARED)}
            state = {name: value for name, value in first.items() if name not in changed}
            copied_session = await target.create_session(app_name=app_name, user_id=user_id, session_id=id, state=state)
        there = [event.id for event in copied_session.events]
        missing = session.events[len(there) :]
        if there != [event.id for event in session.events[: len(there)]] or not (missing or is_new):
            continue
        for event in missing:
            await target.append_event(copied_session, event)
        shared = {name: value for name, value in session.state.items() if name.startswith(_SHARED)}
        await target.set_shared_state(app_name=app_name, user_id=user_id, state=shared)
        copied += 1
    return copied


# Parts of Gemini's contents that a step has shortened

_TOLD_AS = ("output", "result", "error")
"""The fields by which tools say one text."""


class PartIndex:
    """The parts of a request, each found again by its form in a message of ours."""

    def __init__(self, messages: Iterable[tuple[JsonObject, Sequence[types.Part]]]) -> None:
        self._said = messages
        self._parts: dict[str, types.Part] | None = None

    def shortened(
        self, was: JsonObject | None, parts: Sequence[types.Part], messages: Sequence[JsonObject]
    ) -> list[types.Part]:
        """Return the parts of a message after a step, by its messages after it. O(its size), first O(all)."""
        [message] = messages
        if message.get("role") == "toolResult":
            return [_response(parts[0], message, is_error=message.get("isError") is True)]
        calls = {
            str(message_part.get("id")): part
            for message_part, part in zip(parts_of(was or {}), parts, strict=True)
            if part.function_call is not None
        }
        return [part for message_part in parts_of(message) for part in self._left(message_part, calls)]

    def _left(self, part: JsonObject, calls: Mapping[str, types.Part]) -> Iterator[types.Part]:
        same_part = self._found().get(_key(part))
        if same_part is not None:
            yield same_part
            return
        for printed in printed_part(part, Leftovers(), is_google=True):
            shortened_part = types.Part.model_validate_json(_key(printed))
            called = calls.get(str(part.get("id")))
            yield shortened_part if called is None else _called(called, shortened_part)

    def _found(self) -> Mapping[str, types.Part]:
        if self._parts is None:
            self._parts = {
                _key(message_part): part
                for message, parts in self._said
                if message.get("role") != "toolResult"
                for message_part, part in zip(parts_of(message), parts, strict=True)
            }
        return self._parts


def _called(part: types.Part, changed: types.Part) -> types.Part:
    """Return a call with other arguments, or with the mark that the API takes in place of a signature."""
    assert part.function_call is not None
    assert changed.function_call is not None
    called = part.function_call.model_copy(update={"args": changed.function_call.args})
    is_unsigned = changed.thought_signature is None and part.thought_signature is not None
    signature = FOREIGN_SIGNATURE.encode() if is_unsigned else part.thought_signature
    return part.model_copy(update={"function_call": called, "thought_signature": signature})


def _response(part: types.Part, message: JsonObject, *, is_error: bool) -> types.Part:
    """Return the response of a function with the text and the files that are left of it."""
    was = part.function_response
    assert was is not None
    files = {_key(file) for file in parts_of(message) if file.get("type") != "text"}
    files_left = [file for file in was.parts or [] if _key(part_from_gemini(_printed(file))) in files]
    names = [*(was.response or {})]
    name = names[0] if len(names) == 1 and names[0] in _TOLD_AS else "error" if is_error else "result"
    changed = was.model_copy(update={"response": {name: text_of(message)}, "parts": files_left or None})
    return part.model_copy(update={"function_response": changed})


def _printed(part: types.FunctionResponsePart) -> JsonObject:
    printed: JsonObject = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    return printed


def _key(value: JsonValue) -> str:
    return encode_json(value, "part")[0]


# Context settings as a callback of ADK before each request
#
#     agent = LlmAgent(name="Coder", model="gemini-2.5-flash", before_model_callback=sent_to_adk(SETTINGS))
#
# A content that no step has changed is the very object that came in, and so is each of its parts.


def sent_to_adk(
    settings: ContextSettings | Mapping[str, object], *, agent: str | None = None, model: str | None = None
) -> Callable[[CallbackContext, LlmRequest], None]:
    """Return a ``before_model_callback`` of ADK: a request goes on with its contents after the steps of the settings.

    They are those for ``agent``, or else for the agent that asks its model. Contents and parts that no step has
    changed are the objects that came in, and shortened ones have the other fields that they had. Thoughts and
    signatures are left out if the answer was given to a request of this callback with other contents before it. Tokens
    are counted as ``model`` does. Raises `InvalidArgument`, for settings with the path of each field that is wrong, and
    for a ``spec``, which reads a session. The callback raises `InvalidEntry` for a content that is none of Gemini's.
    O(size).
    """
    checked = context_settings(settings)
    wanted, counted = checked_text(agent, "agent"), checked_text(model, "model")
    named = {plain_agent(name): Reshaping(checked, name, counted) for name in checked.agents}
    others = Reshaping(checked, wanted, counted)

    def send(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        asking = plain_agent(wanted or callback_context.agent_name)
        llm_request.contents = _sent(named.get(asking, others), llm_request.contents)

    return send


class _Piece(Frozen):
    """A unit that steps keep or leave out: an answer, the response of a function, or the parts between these.

    ``content`` is the number of its content; ``message`` is its message of ours, None for one that says nothing.
    """

    content: int
    parts: Sequence[types.Part]
    message: JsonObject | None


def _sent(reshaping: Reshaping, contents: Sequence[types.Content]) -> list[types.Content]:
    pieces = [piece for number, content in enumerate(contents) for piece in _pieces(number, content)]
    index = PartIndex([(piece.message, piece.parts) for piece in pieces if piece.message is not None])
    sent: list[_Going] = []
    last: int | None = None
    for group, after in reshaping.run([[] if piece.message is None else [piece.message] for piece in pieces]):
        if group is None:
            _add(sent, after or [])
            continue
        piece = pieces[group]
        if piece.content != last:
            sent.append(_Going(contents[piece.content]))
            last = piece.content
        sent[-1].parts += piece.parts if after is None else index.shortened(piece.message, piece.parts, after)
    contents_sent = [piece.content() for piece in sent]
    if contents_sent and contents_sent[0].role == "model" and contents[0].role != "model":
        contents_sent.insert(0, types.Content(role="user", parts=[types.Part(text=CONTINUED)]))
    return contents_sent


def _pieces(number: int, content: types.Content) -> Iterator[_Piece]:
    if not content.parts:
        yield _Piece(number, [], None)
        return
    where = f"contents[{number}]"
    try:
        printed: JsonObject = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"{where}: is no JSON: {error}") from error
    messages = [converted.message for converted in providers.convert(printed, "gemini", {}, where)]
    apart = [content.parts] if content.role == "model" else [*_apart(content.parts)]
    for parts, message in zip(apart, messages, strict=True):
        yield _Piece(number, parts, message)


def _apart(parts: Sequence[types.Part]) -> Iterator[Sequence[types.Part]]:
    """Yield the parts of a content of the user, those together that are one message of ours."""
    run: list[types.Part] = []
    for part in parts:
        if part.function_response is None:
            run.append(part)
            continue
        if run:
            yield run
        run = []
        yield [part]
    if run:
        yield run


class _Going:
    """One content of the request that goes on: itself, unless a step has changed something in it."""

    def __init__(self, whole: types.Content) -> None:
        self._whole = whole
        self.parts: list[types.Part] = []

    def content(self) -> types.Content:
        """Return it with the parts that are left."""
        was = self._whole.parts or []
        is_whole = len(was) == len(self.parts) and all(old is new for old, new in zip(was, self.parts, strict=True))
        return self._whole if is_whole else self._whole.model_copy(update={"parts": self.parts})


def _add(sent: list[_Going], messages: Sequence[JsonObject]) -> None:
    """Add messages of a step: the response of a function to those before it, any other as a content of its own."""
    for message in messages:
        is_response = message.get("role") == "toolResult"
        for content in providers.to_provider(message, "gemini").messages:
            new_content = types.Content.model_validate_json(encode_json(content, "content")[0])
            if not is_response or not sent or not sent[-1].parts or sent[-1].parts[-1].function_response is None:
                sent.append(_Going(new_content))
            sent[-1].parts += new_content.parts or []
