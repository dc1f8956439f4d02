"""Sessions of another service of ADK, brought into ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.adapters.adk.service import FlueSessionService

if TYPE_CHECKING:
    from google.adk.sessions.base_session_service import BaseSessionService

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
