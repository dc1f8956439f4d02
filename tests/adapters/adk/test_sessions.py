"""What is ours about it: conflicts, what is paid, sessions begun by hand, state at a leaf, and what is read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session

import flue_py
from flue_py.adapters.adk import FlueSessionService, copy_sessions, names_of, scope_of
from flue_py.errors import InvalidArgument
from tests.adapters.adk.samples import APP, KINDS, USER, acted, answered, compacted, said, used
from tests.adapters.adk.stores import check, with_service
from tests.checks import raises
from tests.values import existing

if TYPE_CHECKING:
    from google.adk.events.event import Event

NAMES = {"app_name": APP, "user_id": USER, "session_id": "s"}


async def ours(service: FlueSessionService, id: str = "s") -> flue_py.Session:
    return existing(await service.session_for(app_name=APP, user_id=USER, session_id=id))


def text(event: Event) -> str:
    """Return the text of an event."""
    parts = event.content.parts if event.content else None
    return "".join(part.text or "" for part in parts or [])


async def contents(handle: flue_py.Session) -> list[object]:
    return [message["content"] for message in await handle.build_context()]


async def got(service: FlueSessionService, **config: Any) -> Session:
    return existing(await service.get_session(**NAMES, config=GetSessionConfig(**config)))


def test_a_session_that_has_gone_on_is_stale_whatever_the_clock_says(shared: str) -> None:
    async def scenario(one: FlueSessionService) -> None:
        async with FlueSessionService(shared) as other:
            await one.create_session(**NAMES, state={"k": 0})
            for number in range(5):
                first, second = await got(one), await got(other)
                await one.append_event(first, said("first", timestamp=5.0, actions={"state_delta": {"n": number}}))
                late = said("second", timestamp=1e9 + number, actions={"state_delta": {"k": 1, "app:a": 1}})
                await raises(StaleSessionError, other.append_event(second, late), match="modified in storage")
                # What raised has changed nothing, in the session of the caller either.
                assert len(second.events) == number
                assert second.state["k"] == 0
            assert (await got(other)).state == {"k": 0, "n": 4}

    with_service(shared, scenario)


def test_a_session_that_went_back_is_stale_and_one_with_a_new_title_is_not(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES)
        for text in ("one", "two"):
            await service.append_event(session, said(text))
        handle = await ours(service)
        await handle.set_title("A title")
        await handle.marks.set_label(str(handle.leaf_id), "here")
        await service.append_event(session, said("three"))
        await handle.refresh()
        await handle.undo()
        await raises(StaleSessionError, service.append_event(session, said("four")))
        await handle.redo()
        await service.append_event(session, said("five"))
        assert len((await got(service)).events) == 4

    with_service(target, scenario)


def test_what_a_refused_event_paid_for_is_in_the_ledger_once(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        first = await service.create_session(**NAMES)
        second = first.model_copy(deep=True)
        await service.append_event(first, answered("a", usage_metadata=used(10, 1), model_version="gemini-2.5-flash"))
        late = answered("b", usage_metadata=used(20, 2), model_version="gemini-2.5-flash")
        for _ in range(2):
            await raises(StaleSessionError, service.append_event(second, late))
        report = await service._access.run(lambda store: store.usage(group_by=["agent", "model"]))
        assert (report.total.calls, report.total.input, report.total.output) == (2, 30, 3)
        assert [row.group for row in report.rows] == [{"agent": "root", "model": "gemini-2.5-flash"}]
        await service.append_event(await got(service), late)
        report = await service._access.run(lambda store: store.usage())
        assert (report.total.calls, report.total.input, report.total.output) == (2, 30, 3)

    with_service(target, scenario)


def test_a_session_that_came_from_elsewhere_is_told_by_its_last_event(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        await service.create_session(**NAMES)
        bare = Session(id="s", app_name=APP, user_id=USER)
        await service.append_event(bare, said("one"))
        copied = Session.model_validate_json(bare.model_dump_json())
        await service.append_event(copied, said("two"))
        with pytest.raises(StaleSessionError, match="was not read from it"):
            await service.append_event(Session(id="s", app_name=APP, user_id=USER), said("three"))
        await raises(StaleSessionError, service.append_event(bare, said("three")))
        assert len((await got(service)).events) == 2

    with_service(target, scenario)


def test_calls_on_one_session_object_wait_for_each_other(shared: str) -> None:
    async def main() -> None:
        service = FlueSessionService(shared)
        session = await service.create_session(**NAMES)

        async def append(number: int) -> None:
            await service.append_event(session, acted(state_delta={f"k{number}": number, "user:n": number}))

        await asyncio.gather(*map(append, range(30)))
        waiting = [asyncio.create_task(append(number)) for number in range(30, 40)]
        await asyncio.sleep(0)
        for task in waiting[1::2]:
            task.cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        whole = await got(service)
        assert whole.events == session.events
        assert len(session.events) >= 30 + sum(result is None for result in done)
        threads = [threading.Thread(target=lambda n=n: asyncio.run(append(n))) for n in range(40, 44)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {f"k{number}" for number in range(40, 44)} <= set((await got(service)).state)
        await check(service)
        await service.close()

    asyncio.run(main())


def test_two_that_change_shared_state_at_once_lose_nothing(shared: str) -> None:
    def work(number: int) -> None:
        async def main() -> None:
            async with FlueSessionService(shared) as service:
                session = await service.create_session(app_name=APP, user_id=USER, state={f"app:first{number}": 1})
                for turn in range(10):
                    delta = {f"app:a{number}": turn, f"user:u{number}-{turn}": "x" * 50}
                    await service.append_event(session, acted(state_delta=delta))

        asyncio.run(main())

    asyncio.run(_touch(shared))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def scenario(service: FlueSessionService) -> None:
        state = (await service.create_session(app_name=APP, user_id=USER)).state
        for number in range(4):
            assert state[f"app:first{number}"] == 1
            assert state[f"app:a{number}"] == 9
            assert sum(name.startswith(f"user:u{number}-") for name in state) == 10

    with_service(shared, scenario)


async def _touch(target: str) -> None:
    async with FlueSessionService(target) as service:
        await service.list_sessions(app_name=APP)


def test_a_large_state_that_often_changes_grows_with_its_changes(tmp_path: Path) -> None:
    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES, state={f"k{n}": "x" * 1_000 for n in range(100)})
        for number in range(300):
            await service.append_event(session, acted(state_delta={"n": number}))
        assert (await FlueSessionService(str(tmp_path / "s.db")).get_session(**NAMES)) == session
        handle = await ours(service)
        written = sum(len(entry.payload) + len(entry.extra or "") for entry in await handle.get_tree())
        assert written < 12 * 100_000

    with_service(str(tmp_path / "s.db"), scenario)


@pytest.mark.parametrize("kind", ["message", "adk.state"])
def test_what_is_redacted_is_in_no_state_of_a_service_that_knew_it(shared: str, kind: str) -> None:
    first = {"first": "x" * 500}

    async def scenario(one: FlueSessionService) -> None:
        await one.create_session(**NAMES, state={**first, "app:a": 1})
        for number in range(3):
            await one.append_event(await got(one), said("It is red.", actions={"state_delta": {f"k{number}": "red"}}))
        handle = await ours(one)
        ids = [entry.id for entry in await handle.entries() if entry.kind == kind]
        await handle.redact(ids[-2:], "asked for")
        stays = {**first, "k0": "red"} if kind == "message" else {"k0": "red", "k1": "red", "k2": "red"}
        async with FlueSessionService(shared) as other:
            for service in (one, other):
                session = await got(service)
                assert session.state == stays | {"app:a": 1}
                (listed,) = (await service.list_sessions(app_name=APP, user_id=USER)).sessions
                assert listed.state == session.state
        await one.append_event(session, said("And then?"))
        await one.append_event(session, said("Then.", actions={"state_delta": {"end": 3}}))
        async with FlueSessionService(shared) as other:
            assert (await got(other)).state == stays | {"app:a": 1, "end": 3}

    with_service(shared, scenario)


def test_a_session_begun_by_hand_is_one_of_adk(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        await service.create_session(app_name=APP, user_id=USER, session_id="other")

        async def begin(store: flue_py.Store) -> None:
            session = await store.create_session(key="s", scope=scope_of(APP, USER))
            calls = [{"type": "toolCall", "id": "c", "name": "read", "arguments": {"a": 1}}]
            await session.append_messages(
                [
                    {"role": "user", "content": "hello"},
                    {"role": "assistant", "agent": "root", "content": calls, "usage": {"input": 5, "output": 2}},
                    {"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": "done"},
                    {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
                ]
            )
            await session.append_custom("mine", {"x": 1})

        await service._access.run(begin)
        session = await got(service)
        assert [event.author for event in session.events] == ["user", "root", "model", "model"]
        assert session.events[1].get_function_calls()[0].args == {"a": 1}
        assert session.events[2].get_function_responses()[0].response == {"result": "done"}
        await service.append_event(session, said("more", actions={"state_delta": {"k": 1}}))
        again = await got(service)
        assert [event.id for event in again.events] == [event.id for event in session.events]
        assert again.state == {"k": 1}
        handle = await ours(service)
        await handle.append_message({"role": "bashExecution", "content": "ls"})
        await raises(InvalidArgument, got(service), match="no event for a message of the role 'bashExecution'")

    with_service(target, scenario)


def test_a_compaction_that_the_framework_did_not_make_is_gone_on_with(target: str) -> None:
    """By events that are several entries, by compactions of the framework above and below it, and by going back."""

    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES, state={"k": 1})
        await service.append_event(session, said("q", invocation_id="1", actions={"state_delta": {"k": 2}}))
        await service.append_event(session, KINDS["several results"]())
        await service.append_event(session, said("r", invocation_id="2"))
        handle = await ours(service)
        entries = await handle.get_active_path()
        await handle.append_compaction("They asked q.", first_kept_entry_id=entries[-1].id, tokens_before=50)
        shown = await got(service)
        assert [text(event) for event in shown.events] == ["[Context Summary]\n\nThey asked q.", "r"]
        assert (await got(service, num_recent_events=1)).events == shown.events[-1:]
        assert shown.state == {"k": 2}
        await service.append_event(shown, said("s", invocation_id="3", timestamp=shown.events[-1].timestamp + 1))
        start, end = shown.events[0].timestamp, shown.events[1].timestamp
        await service.append_event(shown, compacted(start, end, "They asked q and r."))
        shown = await got(service)
        assert [bool(event.actions.compaction) for event in shown.events] == [False, False, False, True]
        await handle.refresh()
        context = await contents(handle)
        assert context[0] == [{"type": "text", "text": "[Context Summary]\n\nThey asked q and r."}]
        assert context[1:] == ["s"]
        # Before what a summary keeps there is what it stands for.
        await service.append_event(shown, acted(rewind_before_invocation_id="2"))
        await handle.refresh()
        assert (await contents(handle))[0] == "q"
        assert "r" not in await contents(handle)

    with_service(target, scenario)


def test_a_leaf_in_the_middle_of_an_event_shows_what_is_there(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES, state={"k": 1})
        await service.append_event(session, said("q", actions={"state_delta": {"k": 2}}))
        await service.append_event(session, KINDS["several results"]())
        handle = await ours(service)
        middle = (await handle.get_active_path())[-2]
        await handle.move_leaf(middle.id)
        cut = await got(service)
        assert [len(event.get_function_responses()) for event in cut.events] == [0, 1, 1]
        assert cut.state == {"k": 2}
        await service.append_event(cut, said("more"))
        assert len((await got(service, num_recent_events=2)).events) == 2

    with_service(target, scenario)


def test_parts_are_read_as_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = flue_py.Session.get_active_path

    async def counting(self: flue_py.Session, **fields: Any) -> list[flue_py.Entry]:
        path = await original(self, **fields)
        read.append(len(path))
        return path

    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES, state={"k": 1})
        for number in range(300):
            await service.append_event(session, said(str(number), timestamp=float(number)))
        monkeypatch.setattr(flue_py.Session, "get_active_path", counting)
        async with FlueSessionService(str(tmp_path / "s.db")) as fresh:
            for config, most in (
                ({"num_recent_events": 0}, 1),
                ({"num_recent_events": 20}, 22),
                ({"after_timestamp": 295.0}, 33),
            ):
                read.clear()
                assert (await got(fresh, **config)).state == {"k": 1}
                assert sum(read) <= most

    with_service(str(tmp_path / "s.db"), scenario)


def test_names_and_scopes() -> None:
    for names in ((APP, USER), ("a/b", "c%d"), ("", ""), ("ü", "\ud800\0"), ("x" * 450, "%25")):
        assert names_of(scope_of(*names)) == names
    assert scope_of(APP, USER) == "my_app/alice"
    assert len(scope_of("x" * 3_000, "y" * 3_000)) < 200
    with pytest.raises(InvalidArgument, match="not that of an app and a user"):
        names_of("just one")


def test_an_app_is_not_the_one_whose_name_begins_so(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        for app in ("app", "app/x", "ap", "app%2Fx"):
            await service.create_session(app_name=app, user_id="u", session_id=app, state={"app:name": app})
        for app in ("app", "app/x", "ap", "app%2Fx"):
            listed = (await service.list_sessions(app_name=app)).sessions
            assert [(each.id, each.app_name, each.state) for each in listed] == [(app, app, {"app:name": app})]

    with_service(target, scenario)


def test_sessions_of_another_service_are_copied_and_caught_up_with(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        old = InMemorySessionService()
        kept = []
        for id in ("s", "t"):
            session = await old.create_session(**{**NAMES, "session_id": id}, state={"first": id, "app:a": 1})
            for make in (*list(KINDS.values())[:12], lambda: compacted(0, 1, "x")):
                await old.append_event(session, make())
            await old.append_event(session, acted(state_delta={"app:a": id, "user:u": 2, "k": 3}))
            kept.append(session)
        assert await copy_sessions(old, service, APP) == 2
        assert await copy_sessions(old, service, APP) == 0
        await old.append_event(kept[0], acted(state_delta={"app:a": "last", "k": 4}))
        assert await copy_sessions(old, service, APP) == 1
        for id in ("s", "t"):
            theirs = await old.get_session(**{**NAMES, "session_id": id})
            copy = await service.get_session(**{**NAMES, "session_id": id})
            assert theirs is not None
            assert copy is not None
            assert copy.events == theirs.events
            assert copy.state == theirs.state
        with pytest.raises(InvalidArgument, match="only names with app: or user: are shared"):
            await service.set_shared_state(app_name=APP, user_id=USER, state={"k": 1})

    with_service(target, scenario)


def test_nothing_else_imports_the_framework() -> None:
    program = (
        "import sys, flue_py, flue_py.cli, flue_py.adapters; print([m for m in sys.modules if m.startswith('google')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_framework_is_told_by_the_extra() -> None:
    program = (
        "import sys\nsys.modules['google.adk'] = None\n"
        "try:\n    import flue_py.adapters.adk\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "flue_py.adapters.adk needs an optional dependency: pip install 'flue-py[adk]'\n"


def test_an_event_that_was_undone_can_be_appended_again(target: str) -> None:
    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES)
        await service.append_event(session, said("q"))
        event = answered("a", usage_metadata=used(10, 1), model_version="gemini-2.5-flash")
        await service.append_event(session, event.model_copy(deep=True))
        handle = await ours(service)
        await handle.undo()
        again = await got(service)
        assert len(again.events) == 1
        await service.append_event(again, event.model_copy(deep=True))
        assert [each.id for each in (await got(service)).events] == [again.events[0].id, event.id]
        report = await service._access.run(lambda store: store.usage())
        assert (report.total.calls, report.total.input) == (1, 10)

    with_service(target, scenario)


@pytest.mark.parametrize("end", [100.0, 101.0])
def test_a_compaction_is_one_step_of_undo_and_is_paid_for_once(target: str, end: float) -> None:
    async def scenario(service: FlueSessionService) -> None:
        session = await service.create_session(**NAMES)
        for number in range(2):
            await service.append_event(session, said(f"q{number}", timestamp=100.0 + number))
        event = compacted(100, end, "summary", usage_metadata=used(10, 1), timestamp=102)
        handle = await ours(service)
        before = await contents(handle)
        await service.append_event(session, event.model_copy(deep=True))
        shorter = await contents(handle)
        assert len(shorter) == (2 if end == 100.0 else 1)
        await handle.undo()
        assert await contents(handle) == before
        again = await got(service)
        assert len(again.events) == 2
        await service.append_event(again, event.model_copy(deep=True))
        assert await contents(handle) == shorter
        assert (await got(service)).events == session.events
        report = await service._access.run(lambda store: store.usage())
        assert (report.total.calls, report.total.input) == (1, 10)

    with_service(target, scenario)


def test_a_session_of_ours_is_used_in_the_loop_that_asks_for_it(shared: str) -> None:
    service = FlueSessionService(shared)

    async def turn(number: int) -> None:
        session = await service.get_session(**NAMES) or await service.create_session(**NAMES)
        await service.append_event(session, said(f"q{number}"))
        handle = await ours(service)
        fork = await handle.fork(key=f"fork {number}")
        await handle.undo()
        await handle.redo()
        assert len(await contents(fork)) == number + 1
        await service.append_event(session, answered("a", actions={"state_delta": {"n": number}}))
        await handle.refresh()
        await handle.undo()

    for number in range(3):
        asyncio.run(turn(number))
    threads = [threading.Thread(target=lambda: asyncio.run(contents_of_all(service))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def end() -> None:
        assert [event.author for event in (await got(service)).events] == ["user"] * 3
        await check(service)
        await service.close()

    asyncio.run(end())


async def contents_of_all(service: FlueSessionService) -> None:
    for number in range(3):
        assert len(await contents(await ours(service, f"fork {number}"))) == number + 1


def test_an_event_whose_append_was_cancelled_is_in_the_session_if_it_is_stored(shared: str) -> None:
    async def main() -> None:
        async with FlueSessionService(shared) as service:
            session = await service.create_session(**NAMES)
            for number in range(12):
                event = acted(state_delta={"n": number, "temp:n": number})
                appending = asyncio.create_task(service.append_event(session, event))
                for _ in range(number):
                    await asyncio.sleep(0)
                appending.cancel()
                await asyncio.wait([appending])
                assert [each.id for each in (await got(service)).events] == [each.id for each in session.events]
            await service.append_event(session, said("more"))
            assert (await got(service)).events == session.events
            await check(service)

    asyncio.run(main())


@pytest.mark.parametrize("names", [{"app_name": None}, {"user_id": 5}, {"session_id": 5}])
def test_names_that_are_not_strings_are_refused(names: dict[str, Any], tmp_path: Path) -> None:
    async def scenario(service: FlueSessionService) -> None:
        for call in (service.create_session, service.get_session, service.delete_session, service.session_for):
            await raises(InvalidArgument, call(**{**NAMES, **names}), match="should be")
        for state in (["k"], "k", 5):
            with pytest.raises(InvalidArgument, match="state: should be a mapping"):
                await service.create_session(**NAMES, state=state)  # type: ignore[arg-type]
        assert (await service.list_sessions(app_name=APP)).sessions == []

    with_service(str(tmp_path / "s.db"), scenario)
