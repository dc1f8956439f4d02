"""The session service of ADK over a store of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import TypeVar
from uuid import uuid4

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

from flue_py.adapters.access import Access, Target
from flue_py.adapters.adk import shared
from flue_py.adapters.adk.appending import Below, NewEvent, append, mark
from flue_py.adapters.adk.names import app_prefix, names_of, scope_of, session_metadata
from flue_py.adapters.adk.places import Places, fresh
from flue_py.adapters.adk.printing import printed_event, printed_state
from flue_py.adapters.adk.reading import last_events, split_state
from flue_py.adapters.adk.shared import Deltas, Whose
from flue_py.adapters.adk.states import first_state
from flue_py.adapters.adk.turns import Turns
from flue_py.adapters.keys import id_of, key_of
from flue_py.collector import collector_held
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import SessionInfo
from flue_py.errors import InvalidArgument, SessionExists, SessionNotFound, shown
from flue_py.sessions.atomic import Atomic
from flue_py.sessions.session import Session as FlueSession
from flue_py.sessions.store import Store
from flue_py.store.seam import committed_before

_Result = TypeVar("_Result")

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

    # -- what ADK calls ------------------------------------------------------------------------------------------

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, object] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session with its first state, in one transaction with that of the app and the user.

        Raises `AlreadyExistsError` for an id that is taken. O(state).
        """
        id = _stripped(session_id or "") or str(uuid4())
        whose, deltas = Whose(app_name, user_id), Deltas(*split_state(printed_state(state or {})))

        async def create(store: Store) -> Session:
            scope, metadata = scope_of(*whose), session_metadata(app_name, user_id, id)

            def collect(batch: Atomic) -> FlueSession:
                made = batch.create_session(key=key_of(id), scope=scope, metadata=metadata)
                if deltas.own:
                    batch.append_entries(made, [first_state(deltas.own, uuid4().hex)])
                return made

            made = await shared.commit(store, self._places, whose, deltas, collect)
            others = await shared.state_of(store, self._places, whose)
            return _session(whose, made.info, {**deltas.own, **others}, None)

        try:
            return await self._run(create)
        except SessionExists:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from None

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its state and its events, or None.

        O(events), and with ``num_recent_events`` or ``after_timestamp``, O(events returned).
        """
        most = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        whose = Whose(app_name, user_id)

        async def get(store: Store) -> Session | None:
            found = await _find(store, whose, session_id)
            if found is None:
                return None
            info = found.info
            place = await self._places.at(info.id, info.leaf_id, store)
            events = await last_events(found, info.leaf_id, most, after)
            others = await shared.state_of(store, self._places, whose)
            session = _session(whose, info, {**fresh(place.state.values), **others}, place.timestamp)
            with collector_held(_OBJECTS_OF_AN_EVENT * len(events)):
                session.events = [Event.model_validate(each.event) for each in events]
            return session

        return await self._run(get)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of an app, without their events.

        The last one is the one that was active last. O(sessions).
        """

        async def read(store: Store) -> list[Session]:
            others: dict[Whose, JsonObject] = {}
            listed: list[Session] = []
            found = await _listed(store, app_name, user_id)
            await self._places.meet(found, store)
            for info in found:
                whose = Whose(*names_of(info.scope, info.metadata))
                if whose not in others:
                    others[whose] = await shared.state_of(store, self._places, whose)
                try:
                    place = await self._places.at(info.id, info.leaf_id, store)
                except SessionNotFound:
                    continue  # deleted since it was listed
                state = {**fresh(place.state.values), **fresh(others[whose])}
                listed.append(_session(whose, info, state, place.timestamp))
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

        return dict(await self._run(lambda store: shared.read(store, self._places, app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
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

    async def _add(self, session: Session, event: Event) -> None:
        await super().append_event(session, event)
        session.last_update_time = event.timestamp

    # -- what is ours --------------------------------------------------------------------------------------------

    async def session_for(self, *, app_name: str, user_id: str, session_id: str) -> FlueSession | None:
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
            now = await shared.state_of(store, self._places, whose)
            changed = {name: value for name, value in values.items() if name not in now or now[name] != value}
            await shared.commit(store, self._places, whose, Deltas(*split_state(changed)), lambda _: None)

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


async def _find(store: Store, whose: Whose, session_id: str) -> FlueSession | None:
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


def _session(whose: Whose, info: SessionInfo, state: JsonObject, timestamp: float | None) -> Session:
    """Return a session of ADK without its events; without a time of its own it is as old as its row."""
    session = Session(
        app_name=whose.app_name,
        user_id=whose.user_id,
        id=id_of(info.key or "", info.metadata),
        state=state,
        last_update_time=info.created_us / 1_000_000 if timestamp is None else timestamp,
    )
    mark(session, Below(info.id, info.leaf_id))
    return session
