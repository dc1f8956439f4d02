"""The same calls on ADK's own service in memory and on ours: the same answers, value for value."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService

import flue_py
from flue_py.adapters.adk import FlueSessionService
from flue_py.errors import InvalidArgument
from tests.adapters.adk.samples import (
    APP,
    KINDS,
    ODD_NUMBERS,
    USER,
    acted,
    answered,
    compacted,
    result,
    returned,
    said,
    used,
)
from tests.values import existing

if TYPE_CHECKING:
    from google.adk.events.event import Event

CONFIGS = [
    None,
    *(GetSessionConfig(num_recent_events=number) for number in (0, 1, 2, 3, 5, 8, 100)),
    *(GetSessionConfig(after_timestamp=time) for time in (0, 102, 103.5, 104, 1_000)),
    *(GetSessionConfig(num_recent_events=3, after_timestamp=time) for time in (101, 106)),
]


class Both:
    """ADK's service in memory, and ours beside it."""

    def __init__(self, target: str) -> None:
        self.theirs: BaseSessionService = InMemorySessionService()
        self.ours = FlueSessionService(target)
        self._target = target
        self._sessions: dict[tuple[str, str, str], list[Session]] = {}

    async def create(self, id: str | None, state: object = None, *, app: str = APP, user: str = USER) -> None:
        sessions = [
            await each.create_session(app_name=app, user_id=user, state=state, session_id=id)  # type: ignore[arg-type]
            for each in (self.theirs, self.ours)
        ]
        names = {"app_name": app, "user_id": user, "session_id": sessions[1].id}
        assert await self.ours.get_session(**names) == sessions[1]
        for session in sessions:
            assert session.state == sessions[0].state
            assert (session.app_name, session.user_id, session.events) == (app, user, [])
            if id is not None:
                assert session.id == id.strip()
        self._sessions[app, user, (id or "").strip()] = sessions

    async def append(self, id: str, event: Event, *, app: str = APP, user: str = USER) -> None:
        """Append an event to the sessions as they were created, which follow what is appended."""
        sessions = self._sessions[app, user, id]
        for each, session in zip((self.theirs, self.ours), sessions, strict=True):
            own = event.model_copy(deep=True)
            assert await each.append_event(session, own) is own
        same(*sessions)
        names = {"app_name": app, "user_id": user, "session_id": id}
        if not event.partial and not any(name.startswith("temp:") for name in event.actions.state_delta):
            got = existing(await self.ours.get_session(**names))
            # Others may have changed the state that is shared.
            assert got.model_dump(exclude={"state"}) == sessions[1].model_dump(exclude={"state"})

    async def check(self, id: str, *, app: str = APP, user: str = USER) -> Session:
        """Read the session in every way, and compare."""
        whole = None
        for config in CONFIGS:
            theirs, ours = [
                await each.get_session(app_name=app, user_id=user, session_id=id, config=config)
                for each in (self.theirs, self.ours)
            ]
            assert theirs is not None
            assert ours is not None
            same(theirs, ours)
            whole = whole or ours
        assert whole is not None
        for who in (user, None, "nobody"):
            lists = [await each.list_sessions(app_name=app, user_id=who) for each in (self.theirs, self.ours)]
            assert sorted(map(brief, lists[0].sessions)) == sorted(map(brief, lists[1].sessions))
        states = [await each.get_user_state(app_name=app, user_id=user) for each in (self.theirs, self.ours)]
        assert states[0] == states[1]
        return whole

    async def verify(self) -> None:
        """Check the store, and let go of it."""

        async def verified(store: flue_py.Store) -> list[flue_py.Problem]:
            return (await store.verify()).problems

        assert await self.ours._access.run(verified) == []
        await self.ours.close()


def same(theirs: Session, ours: Session) -> None:
    assert [event.id for event in ours.events] == [event.id for event in theirs.events]
    for one, other in zip(theirs.events, ours.events, strict=True):
        assert other == one
    shown = [
        session.model_dump(exclude={"last_update_time"} if not session.events else set()) for session in (theirs, ours)
    ]
    assert shown[1] == shown[0]


def brief(session: Session) -> tuple[str, str, str]:
    return session.user_id, session.id, repr(sorted(session.state.items()))


def run(scenario: Callable[[Both], object], target: str) -> None:
    async def main() -> None:
        both = Both(target)
        await scenario(both)  # type: ignore[misc]
        await both.verify()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ODD_NUMBERS)
def test_numbers_that_no_json_holds_come_back(kind: str, everywhere: str) -> None:
    async def main() -> None:
        async with FlueSessionService(everywhere) as service:
            session = await service.create_session(app_name=APP, user_id=USER, session_id="s", state={"f": math.inf})
            event = ODD_NUMBERS[kind]()
            await service.append_event(session, event)
            got = existing(await service.get_session(app_name=APP, user_id=USER, session_id="s"))
            assert repr(got.events) == repr([event])
            assert repr(got.state) == repr({"f": math.inf, **event.actions.state_delta})
            # Who reads it without ADK has what was said, and what it used.
            handle = existing(await service.session_for(app_name=APP, user_id=USER, session_id="s"))
            [message] = await handle.build_context()
            assert message["role"] == ("assistant" if kind == "an answer" else "toolResult")
            report = await service._access.run(lambda store: store.usage())
            assert report.total.calls == (1 if kind == "an answer" else 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({"k": {"b": b"\xff"}}, "state['k']['b']: bytes that are no text have no form in JSON"),
        ({"k": [1, 10**5_000]}, "it could not be read again"),
    ],
)
def test_state_that_cannot_be_kept_is_refused_and_changes_nothing(
    state: dict[str, object], error: str, target: str
) -> None:
    async def main() -> None:
        async with FlueSessionService(target) as service:
            names = {"app_name": APP, "user_id": USER, "session_id": "s"}
            with pytest.raises(InvalidArgument, match=re.escape(error)):
                await service.create_session(**names, state={"app:a": 1, **state})  # type: ignore[arg-type]
            assert await service.get_session(**names) is None
            session = await service.create_session(**names)
            with pytest.raises(InvalidArgument, match=re.escape(error)):
                await service.append_event(session, acted(state_delta={"app:a": 1, **state}))
            with pytest.raises(InvalidArgument, match=r"event '.*': .*unknown type"):
                await service.append_event(session, returned(result("f", "c", x=object())))
            with pytest.raises(InvalidArgument, match=r"event '.*': .*surrogates not allowed"):
                await service.append_event(session, returned(result("f", "c", x={chr(0xD800): 1})))
            assert (session.events, session.state) == ([], {})
            assert await service.get_session(**names) == session

    asyncio.run(main())


def test_events_of_every_kind_come_back_value_for_value(everywhere: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s", {"k": 0, "app:x": 1})
        events = {kind: make() for kind, make in KINDS.items()}
        for number, event in enumerate(events.values()):
            event.timestamp = 100.123456789 + number
            await both.append("s", event)
        got = (await both.check("s")).events
        assert [kind for (kind, event), read in zip(events.items(), got, strict=True) if read != event] == []

    run(scenario, everywhere)


def test_state_of_the_app_the_user_and_the_session(everywhere: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s", {"k": 1, "app:a": 2, "user:u": {"deep": [1]}, "temp:t": 1})
        await both.create("t", {"k": 5, "user:v": 1})
        await both.create("other", {"user:u": "his"}, user="bob")
        await both.create("s", {"app:a": "another app"}, app="other")
        for number in range(100):
            await both.append("s", acted(state_delta={"n": number, f"k{number % 7}": "x" * number, "temp:x": number}))
        await both.append("t", acted(state_delta={"app:a": 3, "user:u": None, "k": {"x": 2**70}}))
        await both.append("other", acted(state_delta={"app:b": True, "user:": 1, "app:": 2}), user="bob")
        for id, app, user in (("s", APP, USER), ("t", APP, USER), ("other", APP, "bob"), ("s", "other", USER)):
            await both.check(id, app=app, user=user)

    run(scenario, everywhere)


def test_going_back_to_before_an_invocation(everywhere: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s", {"begin": 1})
        for number in (1, 2, 3):
            await both.append("s", said(f"q{number}", invocation_id=f"i-{number}", timestamp=100.0 + 2 * number))
            await both.append(
                "s",
                answered(
                    "a",
                    invocation_id=f"i-{number}",
                    actions={"state_delta": {"n": number}},
                    timestamp=101.0 + 2 * number,
                ),
            )
        await both.append("s", acted("user", rewind_before_invocation_id="i-2", state_delta={"n": 1}))
        await both.check("s")
        await both.append("s", said("q4", invocation_id="i-4", timestamp=120))
        await both.check("s")
        # What was gone back over counts again when one goes back to before the going back.
        await both.append("s", acted("user", rewind_before_invocation_id="i-3"))
        await both.check("s")
        await both.append("s", acted("user", rewind_before_invocation_id="i-1"))
        await both.append("s", acted("user", rewind_before_invocation_id="never was"))
        await both.append("s", said("q5", invocation_id="i-5", timestamp=130))
        await both.check("s")

    run(scenario, everywhere)


def test_compactions(everywhere: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s")
        for number in range(4):
            await both.append("s", said(f"q{number}", invocation_id=f"i-{number}", timestamp=100.0 + number))
        await both.append("s", compacted(100, 101, "first", usage_metadata=used(9, 2), timestamp=104))
        await both.append("s", said("q4", timestamp=105))
        await both.append("s", compacted(101, 105, "second", timestamp=106))
        await both.append("s", compacted(103, 105, "of the middle only", timestamp=107))
        await both.append("s", returned(result("f", "c"), timestamp=108))
        await both.check("s")

    run(scenario, everywhere)


def test_ids(everywhere: str) -> None:
    async def scenario(both: Both) -> None:
        odd = [
            "plain", "with space", "ü/%", "n\0ul", "x" * 3_000, "lone \ud800", "\x1b[2J", "a/b", "%2F",
            "sha256:" + "0" * 64,
        ]  # fmt: skip
        for name in odd:
            await both.create(name, {"k": name.encode(errors="replace").decode()})
            await both.append(name, said("x"))
            await both.create("s", {"user:who": 1}, app=name, user=name)
            await both.append("s", said("y"), app=name, user=name)
        for name in odd:
            await both.check(name)
            await both.check("s", app=name, user=name)
        with pytest.raises(AlreadyExistsError, match="Session with id plain already exists"):
            await both.ours.create_session(app_name=APP, user_id=USER, session_id=" plain ", state={"app:lost": 1})
        assert "app:lost" not in (await both.check("plain")).state
        await both.create("  padded\n")
        assert await both.ours.get_session(app_name=APP, user_id=USER, session_id="\tpadded ") is not None

    run(scenario, everywhere)


def test_what_is_missing(target: str) -> None:
    async def scenario(both: Both) -> None:
        missing = {"app_name": APP, "user_id": USER, "session_id": "s"}
        assert await both.ours.get_session(**missing) is None
        await both.ours.delete_session(**missing)
        assert (await both.ours.list_sessions(app_name=APP)).sessions == []
        assert await both.ours.get_user_state(app_name=APP, user_id=USER) == {}
        for session in (
            Session(id="s", app_name=APP, user_id=USER),
            await both.ours.create_session(app_name=APP, user_id=USER, session_id="gone"),
        ):
            await both.ours.delete_session(app_name=APP, user_id=USER, session_id=session.id)
            with pytest.raises(SessionNotFoundError, match=f"Session {session.id} not found"):
                await both.ours.append_event(session, acted(state_delta={"app:a": 1}))
            assert session.events == []
        assert await both.ours.get_session(app_name=APP, user_id=USER, session_id="gone") is None
        await both.create("gone")
        assert (await both.check("gone")).state == {}

    run(scenario, target)


def test_partial_events_are_not_stored(target: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s")
        await both.append("s", answered("I ", partial=True, actions={"state_delta": {"k": 1}}))
        assert (await both.check("s")).events == []

    run(scenario, target)


def test_an_event_that_is_delivered_again_changes_nothing(target: str) -> None:
    async def scenario(both: Both) -> None:
        await both.create("s")
        event = answered("hi", usage_metadata=used(1, 2), actions={"state_delta": {"app:n": 1}}, timestamp=100)
        await both.append("s", event)
        await both.append("s", said("next", timestamp=101))
        await both.append("s", event)
        assert len((await both.check("s")).events) == 2
        # Another event that happens to have the same id is an event.
        await both.append("s", said("other", id=event.id, timestamp=102))
        assert len((await both.check("s")).events) == 3

    run(scenario, target)


def test_the_sessions_are_listed_by_their_last_event(target: str) -> None:
    async def scenario(both: Both) -> None:
        for id, time in (("b", 5.5), ("a", 7.25), ("c", 5.5), ("d", 1.0)):
            await both.create(id, {"id": id})
            await both.append(id, said("x", timestamp=time))
        lists = [(await each.list_sessions(app_name=APP)).sessions for each in (both.theirs, both.ours)]
        assert [session.id for session in lists[1]] == ["d", "b", "c", "a"]
        for theirs, ours in zip(*lists, strict=True):
            same(theirs, ours)
            assert ours.last_update_time == theirs.last_update_time

    run(scenario, target)


def test_as_the_sqlite_service_has_it(target: str, tmp_path: object) -> None:
    async def scenario(both: Both) -> None:
        both.theirs = SqliteSessionService(f"{tmp_path}/theirs.db")
        await both.create("s", {"k": 1, "app:a": 0.1 + 0.2})
        for number, (kind, make) in enumerate(KINDS.items()):
            # It cannot store the first three, and credentials come back from it with a field more.
            if kind not in ("what no JSON holds", "names that no JSON holds", "an odd id", "credentials"):
                event = make()
                event.timestamp = 5_000_000_000.0 + number
                await both.append("s", event)
        theirs, ours = [
            await each.get_session(app_name=APP, user_id=USER, session_id="s") for each in (both.theirs, both.ours)
        ]
        assert theirs is not None
        assert ours is not None
        same(theirs, ours)

    run(scenario, target)
