"""State that the sessions of a user share, and state that all sessions of an app share.

Each is in a session of its own, without messages, so that it is written in one transaction with the event that
changes it. Two that change it at the same time are one after the other: the second reads what the first made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar
from uuid import uuid4

from flue_py.adapters.adk.names import state_place
from flue_py.adapters.adk.places import Places, fresh
from flue_py.adapters.adk.reading import Place
from flue_py.adapters.adk.states import NOTHING, State, first_state, later_state
from flue_py.core.jsontext import JsonObject
from flue_py.errors import LeafConflict, SessionExists, SessionNotFound
from flue_py.sessions.atomic import Atomic
from flue_py.sessions.store import Store

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
