"""The session service of ADK over a store of ours."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections import OrderedDict, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session as AdkSession
from google.genai import types

from flue_py import providers
from flue_py.adapters.adk.entries import (
    BESIDE,
    STATE,
    Found,
    app_prefix,
    as_text,
    beside_of,
    compaction_entries,
    compaction_of,
    delta_of,
    entries_of,
    events_of,
    events_shown,
    is_event,
    is_part,
    names_of,
    printed_event,
    printed_state,
    scope_of,
    session_metadata,
    state_place,
    timestamp_of,
)
from flue_py.adapters.common import Access, Target, id_of, is_plain, key_of
from flue_py.adapters.messages import text_of
from flue_py.context.pipeline import plain_agent
from flue_py.context.request import Reshaping
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import SessionInfo, check_entry_id
from flue_py.db.runner import committed_before
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
from flue_py.providers.base import Leftovers
from flue_py.providers.gemini import FOREIGN_SIGNATURE, part_from_gemini, printed_part
from flue_py.providers.lists import CONTINUED
from flue_py.providers.openai_chat import parts_of
from flue_py.sessions.batch import Atomic
from flue_py.sessions.handle import checked_text
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import collector_held

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest


# State folded from the entries of a path
#
# So a rewind, an undo and a fork have the state of their place. An entry that changes the state has the state in full
# beside it (``is``), or names the entries to fold, the first of which has it in full (``in``). An entry that changes
# nothing names the last one that did (``at``). The state is written in full whenever naming the changes since would
# take more.

FIELD = "state"

_NAMED = 40  # bytes that naming one entry takes
_MOST = 64  # entries to read at most

Read = Callable[[Sequence[str]], Awaitable[Sequence[Entry | None]]]


class State(NamedTuple):
    """A state, and the entries that made it: the first of them has it in full."""

    values: JsonObject
    made_by: tuple[str, ...] = ()

    def beside(self) -> JsonObject:
        """Return what an entry that changes nothing has beside it."""
        return {FIELD: {"at": self.made_by[-1]}} if self.made_by else {}

    def changed(self, delta: Mapping[str, JsonValue], entry_id: str) -> tuple[State, JsonObject]:
        """Return the state after a change by an entry, and what that entry has beside it. O(state)."""
        values = {**self.values, **delta}
        text = as_text(values, "state")
        count = len(self.made_by) + 1
        if not self.made_by or count > _MOST or _NAMED * count * count / 2 + count * len(json.dumps(delta)) > len(text):
            return State(values, (entry_id,)), {FIELD: {"is": held(values)}}
        return State(values, (*self.made_by, entry_id)), {FIELD: {"in": list(self.made_by)}}


NOTHING = State({})


def first_state(values: JsonObject, entry_id: str) -> NewEntry:
    """Return the entry with the state that a session begins with. O(state)."""
    return NewEntry.custom(STATE, {"is": held(values)}, id=entry_id)


def later_state(state: State, delta: JsonObject, entry_id: str) -> NewEntry:
    """Return the entry with a change of a state that came with no event. O(state)."""
    _, beside = state.changed(delta, entry_id)
    return NewEntry.custom(STATE, {"set": held(delta)}, id=entry_id, extra={BESIDE: beside})


async def state_at(entry: Entry, read: Read, delta_of: Callable[[Entry], JsonObject]) -> State | None:
    """Return the state at an entry, or None where it is not told there. ``read`` reads others by their ids."""
    beside = beside_of(entry)
    told = _told(entry, beside)
    if told is None:
        return None if beside is None or is_part(beside) else NOTHING
    if isinstance(told.get("at"), str):
        return await state_at(_there(await read([str(told["at"])]), entry)[0], read, delta_of)
    if "is" in told:
        return State(_object(told["is"]), (entry.id,))
    named = told.get("in")
    ids = [str(name) for name in named] if isinstance(named, list) else []
    first, *others = _there(await read(ids), entry)
    values = _object((_told(first, beside_of(first)) or {}).get("is"))
    for other in (*others, entry):
        values.update(delta_of(other))
    return State(values, (*ids, entry.id))


def delta_of_state(entry: Entry) -> JsonObject:
    """Return what an entry that came with no event changed."""
    return _object(entry.fields.get("set"))


def held(values: JsonObject) -> JsonValue:
    """Return a state as it is stored: as text where no JSON in UTF-8 can hold it. O(size)."""
    try:
        if not encode_json(values, "state")[1]:
            return values
    except InvalidEntry:
        pass
    return as_text(values, "state")


def _told(entry: Entry, beside: JsonObject | None) -> JsonObject | None:
    if entry.kind == STATE and entry.extra is None:
        return entry.fields
    told = None if beside is None else beside.get(FIELD)
    return told if isinstance(told, dict) else None


def _object(stored: JsonValue) -> JsonObject:
    value = json.loads(stored) if isinstance(stored, str) else stored
    return dict(value) if isinstance(value, dict) else {}


def _there(entries: Sequence[Entry | None], entry: Entry) -> list[Entry]:
    found = [each for each in entries if each is not None]
    if len(found) != len(entries) or not found:
        raise CorruptStore(f"entry {entry.id!r}: an entry that its state is made of is not there; run verify()")
    return found


# The view of ADK: the events of a session in order, and its state
#
# To ADK, going back to before an invocation is an event like any other, and the events before it stay. Here, that event
# is on a branch of its own, below what came before that invocation; it names the leaf that was left (`LEFT`), and what
# is read goes on from there.

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


# Cache of recent leaves; never stale, since the path to an entry never changes

_PLACES_MOST = 2_000
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Places:
    """The places of a service."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Place] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, session_id: str, leaf: str, place: Place) -> None:
        """Note what is known at a leaf. O(1)."""
        with self._lock:
            self._known[str(session_id), leaf] = place
            self._known.move_to_end((str(session_id), leaf))
            if len(self._known) > _PLACES_MOST:
                self._known.popitem(last=False)

    async def meet(self, sessions: Sequence[SessionInfo], store: Store) -> None:
        """Read what is known at the leaves of many sessions, those that were not met lately, in one read of all.

        What an entry does not tell by itself is left to `at`. O(sessions).
        """
        new = [info for info in sessions if info.leaf_id is not None and (info.id, info.leaf_id) not in self._known]
        if not new:
            return
        del new[_PLACES_MOST:]  # more are not kept
        leaves = await store.backend.read_leaves([info.ref for info in new])
        for info, leaf in zip(new, leaves, strict=True):
            if leaf is None or leaf.id != info.leaf_id or not _tells(leaf):
                continue
            place = await _places_told(info.ref, leaf, store)
            if place is not None:
                self.note(info.id, leaf.id, place)

    async def at(self, session_id: str, leaf: str | None, store: Store) -> Place:
        """Return what is known at a leaf of a session; read it if it was not met lately. O(1).

        Raises `SessionNotFound`.
        """
        if leaf is None:
            return NOWHERE
        found = self._known.get((str(session_id), leaf))
        if found is None:
            found = await _told_by(session_id, leaf, store) or await _read(session_id, leaf, store)
            self.note(session_id, leaf, found)
        return found


async def _told_by(session_id: str, leaf: str, store: Store) -> Place | None:
    """Return what the entry at a leaf tells by itself, or None: one read, where most states are small."""
    # By the store's backend: what is known at a leaf has no use for a handle.
    entry = await store.backend.get_entry(session_id, leaf)
    return None if entry is None or not _tells(entry) else await _places_told(session_id, entry, store)


def _tells(entry: Entry) -> bool:
    # Below an entry with state alone, the time of the place is that of an event before it, if there is one.
    return entry.kind != STATE or entry.parent_id is None


async def _places_told(session_id: str, entry: Entry, store: Store) -> Place | None:
    """Return what an entry tells with those it names; None if it tells nothing."""

    async def read(ids: Sequence[str]) -> list[Entry | None]:
        return await store.backend.get_entries(session_id, ids)

    return await told_by(entry, read)


async def _read(session_id: str, leaf: str, store: Store) -> Place:
    session = await store.get_session(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return await place_of(session, leaf)


def fresh(values: JsonObject) -> JsonObject:
    """Return a state that is the caller's to change. O(size)."""
    return dict(values) if all(type(value) in _PLAIN for value in values.values()) else copy.deepcopy(values)


# State shared by the sessions of a user or of an app
#
# Each is in a session of its own, without messages, so that it is written in one transaction with the event that
# changes it. Two that change it at the same time are one after the other: the second reads what the first made.

_Result = TypeVar("_Result")


class Whose(NamedTuple):
    """An app, and a user of it."""

    app_name: str
    user_id: str


class Deltas(NamedTuple):
    """How state changes: the app's, the user's, and the session's own, by their names there."""

    app: JsonObject
    user: JsonObject
    own: JsonObject


class _Change(NamedTuple):
    """A change of one shared state, as it is now; ``session_id`` is None where there is none yet."""

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
            made = batch.create_session(key=self.key, scope=self.scope, title=self.title)
            batch.append_entries(made, [first_state(self.delta, self.entry_id)])
            return made.id
        entry = later_state(self.state, self.delta, self.entry_id)
        batch.append_entries(self.session_id, [entry], expected_leaf=self.leaf)
        return self.session_id

    def after(self) -> Place:
        """Return what is known once it is done."""
        if self.session_id is None:
            return Place(State(self.delta, (self.entry_id,)), None)
        return Place(self.state.changed(self.delta, self.entry_id)[0], None)


async def read(store: Store, places: Places, app_name: str, user_id: str | None) -> JsonObject:
    """Return the state of an app, or of a user of it, by the names it has there. O(state)."""
    scope, key = state_place(app_name, user_id)
    try:
        session = await store.open_session(key, scope=scope)
    except SessionNotFound:
        return {}
    return fresh((await places.at(session.id, session.leaf_id, store)).state.values)


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
    """Commit what ``collect`` adds to a batch, with changes of shared state: all, or nothing; return what it returned.

    Begins again where somebody else changed that state meanwhile. Raises what the operations of ``collect`` raise.
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
    scope, key = state_place(app_name, user_id)
    title = f"State of {app_name}" if user_id is None else f"State of {user_id} in {app_name}"
    title = "".join(char if char.isprintable() else "\ufffd" for char in title)
    try:
        session = await store.open_session(key, scope=scope)
    except SessionNotFound:
        return _Change(scope, key, title, None, None, NOTHING, delta, uuid4().hex)
    place = await places.at(session.id, session.leaf_id, store)
    return _Change(scope, key, title, session.id, session.leaf_id, place.state, delta, uuid4().hex)


# Append an event and its state change in one transaction, below the leaf its session has seen


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

    await commit(store, places, new.whose, Deltas(app, user, own), collect)
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
            await session.money.record_call(
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


# Calls on one session in order, from any event loop or thread


class Turns:
    """Whose turn it is, for each name. What nobody waits for takes no space."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    @asynccontextmanager
    async def of(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until all who asked for this name before are done. Whoever is cancelled meanwhile has no turn."""
        mine: Future[None] | None = None
        with self._lock:
            queue = self._waiting.get(name)
            if queue is None:
                self._waiting[name] = deque()
            else:
                queue.append(mine := Future())
        if mine is not None:
            try:
                await asyncio.wrap_future(mine)
            except BaseException:
                # The turn may have come just as the wait was given up: then it is the next one's.
                if not mine.cancel() and not mine.cancelled():
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

    A session is in the scope ``app/user`` under its own id as the key (see `scope_of`). What it raises that is ADK's is
    ADK's: `AlreadyExistsError`, `SessionNotFoundError`, `StaleSessionError`. It may be used from any event loop and
    thread.
    """

    def __init__(self, target: Target) -> None:
        """Note which store is meant; it is opened when it is first used. Raises `InvalidArgument`. O(1)."""
        self._access = Access(target)
        self._turns = Turns()
        self._places = Places()

    # what ADK calls

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, object] | None = None,
        session_id: str | None = None,
    ) -> AdkSession:
        """Create a session with its first state, in one transaction with that of the app and the user.

        Raises `AlreadyExistsError` for an id that is taken. O(state).
        """
        id = _stripped(session_id or "") or str(uuid4())
        whose, deltas = Whose(app_name, user_id), Deltas(*split_state(printed_state(state or {})))

        async def create(store: Store) -> AdkSession:
            scope, metadata = scope_of(*whose), session_metadata(app_name, user_id, id)

            def collect(batch: Atomic) -> Session:
                made = batch.create_session(key=key_of(id), scope=scope, metadata=metadata)
                if deltas.own:
                    batch.append_entries(made, [first_state(deltas.own, uuid4().hex)])
                return made

            made = await commit(store, self._places, whose, deltas, collect)
            others = await state_of(store, self._places, whose)
            return _service_session(whose, made.info, {**deltas.own, **others}, None)

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
            found = await _find(store, whose, session_id)
            if found is None:
                return None
            info = found.info
            place = await self._places.at(info.id, info.leaf_id, store)
            events = await last_events(found, info.leaf_id, most, after)
            others = await state_of(store, self._places, whose)
            session = _service_session(whose, info, {**fresh(place.state.values), **others}, place.timestamp)
            with collector_held(_OBJECTS_OF_AN_EVENT * len(events)):
                session.events = [Event.model_validate(each.event) for each in events]
            return session

        return await self._run(get)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of an app, without their events.

        The last one is the one that was active last. O(sessions).
        """

        async def read(store: Store) -> list[AdkSession]:
            others: dict[Whose, JsonObject] = {}
            listed: list[AdkSession] = []
            found = await _listed(store, app_name, user_id)
            await self._places.meet(found, store)
            for info in found:
                whose = Whose(*names_of(info.scope, info.metadata))
                if whose not in others:
                    others[whose] = await state_of(store, self._places, whose)
                try:
                    place = await self._places.at(info.id, info.leaf_id, store)
                except SessionNotFound:
                    continue  # deleted since it was listed
                state = {**fresh(place.state.values), **fresh(others[whose])}
                listed.append(_service_session(whose, info, state, place.timestamp))
            return listed

        sessions = await self._run(read)
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session; a missing one is no error. Forks of it keep what they see. O(entries)."""

        async def delete(store: Store) -> None:
            found = await _find(store, Whose(app_name, user_id), session_id)
            if found is not None:
                await store.delete_session_tree(found)

        await self._run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, object]:
        """Return what the sessions of a user share, by names without ``user:``. O(state)."""

        return dict(await self._run(lambda store: read(store, self._places, app_name, user_id)))

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Append an event, with the state that it changes, in one transaction, and bring ``session`` up to date.

        One that is partial is returned, and not stored. Raises `SessionNotFoundError`, and `StaleSessionError` if
        the session has gone on, or back, since ``session`` was read; what the event paid for is in the ledger then,
        too. O(event).
        """
        if event.partial:
            return event
        async with self._turns.of((session.app_name, session.user_id, session.id)):
            new = NewEvent(session, printed_event(event))
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

    # what is ours

    async def session_for(self, *, app_name: str, user_id: str, session_id: str) -> Session | None:
        """Return the session of ours: for undo, forks, usage and reports. None if it is missing. O(1).

        It is to be used in the event loop that asks for it, whatever the store was opened by.
        """
        return await self._access.session(lambda store: _find(store, Whose(app_name, user_id), session_id))

    async def set_shared_state(self, *, app_name: str, user_id: str, state: Mapping[str, object]) -> None:
        """Set state that sessions share, by names that begin with ``app:`` or ``user:``, without an event.

        What is set already is not written again. Raises `InvalidArgument` for another name. O(state).
        """
        values = printed_state(state)
        app, user, own = split_state(values)
        if len(app) + len(user) != len(values):
            odd = next((name for name in values if name in own), "temp:")
            raise InvalidArgument(f"state: {shown(odd)} is of one session; only names with app: or user: are shared")

        async def write(store: Store) -> None:
            whose = Whose(app_name, user_id)
            now = await state_of(store, self._places, whose)
            changed = {name: value for name, value in values.items() if name not in now or now[name] != value}
            await commit(store, self._places, whose, Deltas(*split_state(changed)), lambda _: None)

        await self._run(write)

    async def close(self) -> None:
        """Let go of the store: it is closed if it was opened here and nobody else uses it."""
        await self._access.aclose()

    async def __aenter__(self) -> FlueSessionService:
        """Return the service, for the length of an ``async with``."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the store."""
        await self.close()

    async def _run(self, work: Callable[[Store], Coroutine[object, object, _Result]]) -> _Result:
        return await self._access.run(work)


def _stripped(session_id: str) -> str:
    """Return an id as ADK's own services take it. Raises `InvalidArgument` if it is not a string."""
    if not isinstance(session_id, str):
        raise InvalidArgument(f"session_id: should be a string, not {shown(session_id)}")
    return session_id.strip()


async def _find(store: Store, whose: Whose, session_id: str) -> Session | None:
    try:
        return await store.open_session(key_of(_stripped(session_id)), scope=scope_of(*whose))
    except SessionNotFound:
        return None


async def _listed(store: Store, app_name: str, user_id: str | None) -> list[SessionInfo]:
    """Return the sessions of a user, or of all users of an app, page by page."""
    found: list[SessionInfo] = []
    cursor: str | None = None
    scope = None if user_id is None else scope_of(app_name, user_id)
    prefix = app_prefix(app_name) if user_id is None else None
    while True:
        page = await store.list_sessions(
            scope=scope, scope_prefix=prefix, order_by="created", limit=store.limits.sessions_per_page, cursor=cursor
        )
        found += [info for info in page.sessions if info.key is not None]
        cursor = page.next_cursor
        if cursor is None:
            return found


def _service_session(whose: Whose, info: SessionInfo, state: JsonObject, timestamp: float | None) -> AdkSession:
    """Return a session of ADK without its events; without a time of its own it is as old as its row."""
    session = AdkSession(
        app_name=whose.app_name,
        user_id=whose.user_id,
        id=id_of(info.key or "", info.metadata),
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
    source gets the rest, any other is left as it is. The source is only read. What no event has set is in the state
    that a session begins with; the state of the app and of its users is that of the source. Raises as the two services
    do. O(events).
    """
    copied = 0
    for listed in (await source.list_sessions(app_name=app_name)).sessions:
        user_id, id = listed.user_id, listed.id
        session = await source.get_session(app_name=app_name, user_id=user_id, session_id=id)
        if session is None:
            continue
        made = await target.get_session(app_name=app_name, user_id=user_id, session_id=id)
        is_new = made is None
        if made is None:
            changed = {name for event in session.events for name in event.actions.state_delta}
            first = {name: value for name, value in session.state.items() if not name.startswith(_SHARED)}
            state = {name: value for name, value in first.items() if name not in changed}
            made = await target.create_session(app_name=app_name, user_id=user_id, session_id=id, state=state)
        there = [event.id for event in made.events]
        missing = session.events[len(there) :]
        if there != [event.id for event in session.events[: len(there)]] or not (missing or is_new):
            continue
        for event in missing:
            await target.append_event(made, event)
        shared = {name: value for name, value in session.state.items() if name.startswith(_SHARED)}
        await target.set_shared_state(app_name=app_name, user_id=user_id, state=shared)
        copied += 1
    return copied


# Parts of Gemini's contents that a step has shortened

_TOLD_AS = ("output", "result", "error")
"""The fields by which tools say one text."""


class Known:
    """The parts that came in, each found again by what it is in a message of ours."""

    def __init__(self, said: Iterable[tuple[JsonObject, Sequence[types.Part]]]) -> None:
        self._said = said
        self._parts: dict[str, types.Part] | None = None

    def shortened(
        self, was: JsonObject | None, parts: Sequence[types.Part], made: Sequence[JsonObject]
    ) -> list[types.Part]:
        """Return what is left of the parts of a message, by what a step has left of it. O(its size), first O(all)."""
        [message] = made
        if message.get("role") == "toolResult":
            return [_response(parts[0], message, is_error=message.get("isError") is True)]
        calls = {
            str(each.get("id")): part
            for each, part in zip(parts_of(was or {}), parts, strict=True)
            if part.function_call is not None
        }
        return [part for each in parts_of(message) for part in self._left(each, calls)]

    def _left(self, part: JsonObject, calls: Mapping[str, types.Part]) -> Iterator[types.Part]:
        known = self._found().get(_key(part))
        if known is not None:
            yield known
            return
        for printed in printed_part(part, Leftovers(), is_google=True):
            made = types.Part.model_validate_json(_key(printed))
            called = calls.get(str(part.get("id")))
            yield made if called is None else _called(called, made)

    def _found(self) -> Mapping[str, types.Part]:
        if self._parts is None:
            self._parts = {
                _key(each): part
                for message, parts in self._said
                if message.get("role") != "toolResult"
                for each, part in zip(parts_of(message), parts, strict=True)
            }
        return self._parts


def _called(part: types.Part, made: types.Part) -> types.Part:
    """Return a call with other arguments, or without its signature, in whose place is what the API takes for it."""
    assert part.function_call is not None
    assert made.function_call is not None
    called = part.function_call.model_copy(update={"args": made.function_call.args})
    is_unsigned = made.thought_signature is None and part.thought_signature is not None
    signature = FOREIGN_SIGNATURE.encode() if is_unsigned else part.thought_signature
    return part.model_copy(update={"function_call": called, "thought_signature": signature})


def _response(part: types.Part, message: JsonObject, *, is_error: bool) -> types.Part:
    """Return the response of a function with the text and the files that are left of it."""
    was = part.function_response
    assert was is not None
    files = {_key(each) for each in parts_of(message) if each.get("type") != "text"}
    left = [each for each in was.parts or [] if _key(part_from_gemini(_printed(each))) in files]
    names = [*(was.response or {})]
    name = names[0] if len(names) == 1 and names[0] in _TOLD_AS else "error" if is_error else "result"
    changed = was.model_copy(update={"response": {name: text_of(message)}, "parts": left or None})
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
    """Return a ``before_model_callback`` of ADK: a request goes on with what the settings leave of its contents.

    They are those for ``agent``, or else for the agent that asks its model. Contents and parts that no step has
    changed are the objects that came in, and what was shortened has the other fields that it had. Thoughts and
    signatures are left out if the answer was given to a request of this callback with other contents before it. Tokens
    are counted as ``model`` does. Raises `InvalidArgument`, for settings with the path of each field that is wrong, and
    for a ``spec``, which reads a session. The callback raises `InvalidEntry` for a content that is none of Gemini's.
    O(size).
    """
    told = context_settings(settings)
    wanted, counted = checked_text(agent, "agent"), checked_text(model, "model")
    named = {plain_agent(name): Reshaping(told, name, counted) for name in told.agents}
    others = Reshaping(told, wanted, counted)

    def send(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        asking = plain_agent(wanted or callback_context.agent_name)
        llm_request.contents = _sent(named.get(asking, others), llm_request.contents)

    return send


class _Piece(NamedTuple):
    """What steps keep or leave out at once: an answer, the response of a function, or what stands between these.

    ``content`` is the number of the content that it is of; ``message`` is what it is in messages of ours, None for one
    that says nothing.
    """

    content: int
    parts: Sequence[types.Part]
    message: JsonObject | None


def _sent(reshaping: Reshaping, contents: Sequence[types.Content]) -> list[types.Content]:
    pieces = [piece for number, content in enumerate(contents) for piece in _pieces(number, content)]
    known = Known([(each.message, each.parts) for each in pieces if each.message is not None])
    sent: list[_Going] = []
    last: int | None = None
    for group, made in reshaping.run([[] if each.message is None else [each.message] for each in pieces]):
        if group is None:
            _add(sent, made or [])
            continue
        piece = pieces[group]
        if piece.content != last:
            sent.append(_Going(contents[piece.content]))
            last = piece.content
        sent[-1].parts += piece.parts if made is None else known.shortened(piece.message, piece.parts, made)
    found = [each.content() for each in sent]
    if found and found[0].role == "model" and contents[0].role != "model":
        found.insert(0, types.Content(role="user", parts=[types.Part(text=CONTINUED)]))
    return found


def _pieces(number: int, content: types.Content) -> Iterator[_Piece]:
    if not content.parts:
        yield _Piece(number, [], None)
        return
    where = f"contents[{number}]"
    try:
        printed: JsonObject = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"{where}: is no JSON: {error}") from error
    messages = [each.message for each in providers.convert(printed, "gemini", {}, where)]
    apart = [content.parts] if content.role == "model" else [*_apart(content.parts)]
    for parts, message in zip(apart, messages, strict=True):
        yield _Piece(number, parts, message)


def _apart(parts: Sequence[types.Part]) -> Iterator[Sequence[types.Part]]:
    """Yield the parts of a content of the user, those together that are one message of ours."""
    said: list[types.Part] = []
    for part in parts:
        if part.function_response is None:
            said.append(part)
            continue
        if said:
            yield said
        said = []
        yield [part]
    if said:
        yield said


class _Going:
    """What goes on of one content: itself, unless a step has changed something in it."""

    def __init__(self, whole: types.Content) -> None:
        self._whole = whole
        self.parts: list[types.Part] = []

    def content(self) -> types.Content:
        """Return it with the parts that are left."""
        was = self._whole.parts or []
        is_whole = len(was) == len(self.parts) and all(one is other for one, other in zip(was, self.parts, strict=True))
        return self._whole if is_whole else self._whole.model_copy(update={"parts": self.parts})


def _add(sent: list[_Going], messages: Sequence[JsonObject]) -> None:
    """Add what a step added: the response of a function to those before it, anything else as a content of its own."""
    for message in messages:
        is_response = message.get("role") == "toolResult"
        for content in providers.to_provider(message, "gemini").messages:
            made = types.Content.model_validate_json(encode_json(content, "content")[0])
            if not is_response or not sent or not sent[-1].parts or sent[-1].parts[-1].function_response is None:
                sent.append(_Going(made))
            sent[-1].parts += made.parts or []
