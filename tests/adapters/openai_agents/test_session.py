"""`FlueSession` beside `agents.SQLiteSession`: the same calls give the same answers, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from agents import (
    Agent,
    RunContextWrapper,
    Runner,
    SessionSettings,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call

import flue_py
from flue_py.adapters.openai_agents import FlueSession
from flue_py.errors import InvalidArgument, InvalidEntry, NotAStore, StoreClosed
from tests.checks import raises
from tests.postgres import NewDatabase

# Traces would be sent to OpenAI.
set_tracing_disabled(True)

ITEMS: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi there!"},
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoA", "detail": "auto"},
            {"type": "input_image", "file_id": "file-1", "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjcK"},
        ],
    },
    {
        "id": "msg_1",
        "content": [
            {
                "annotations": [{"type": "url_citation", "url": "u"}],
                "text": "one",
                "type": "output_text",
                "logprobs": [],
            },
            {"refusal": "no", "type": "refusal"},
        ],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": "final_answer",
    },
    {"id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "type": "reasoning", "encrypted_content": "x"},
    {"id": "rs_2", "summary": [], "type": "reasoning", "provider_data": {"model": "m"}},
    {"arguments": '{"a": 1}', "call_id": "c1", "name": "look", "type": "function_call", "id": "fc_1"},
    {"call_id": "c1", "output": "found", "type": "function_call_output"},
    {"arguments": "not json", "call_id": "c2", "name": "look", "type": "function_call", "status": "completed"},
    {"call_id": "c2", "output": [{"type": "input_text", "text": "a"}], "type": "function_call_output"},
    {"type": "custom_tool_call", "call_id": "c3", "name": "sql", "input": "SELECT 1"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "1"},
    {"type": "computer_call", "id": "cu", "call_id": "c4", "action": {"type": "click", "x": 1}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "c4", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
    {"type": "shell_call", "call_id": "c5", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c5", "output": [{"stdout": "a", "outcome": {"type": "exit"}}]},
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "file_search_call", "id": "fs", "queries": ["x"], "results": None, "status": "completed"},
    {"type": "code_interpreter_call", "id": "ci", "code": "1", "outputs": [], "status": "completed"},
    {"type": "image_generation_call", "id": "ig", "result": "AAAA", "status": "completed"},
    {"type": "mcp_approval_request", "id": "ma", "arguments": "{}", "name": "n", "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "ma", "approve": True},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "compaction", "encrypted_content": "zz"},
    {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAA"},
    {"type": "of_tomorrow", "value": [1, 1.0, True, None, {"a": []}]},
    {"role": "user", "content": "half a pair \ud83d and a NUL \x00"},
    {"type": "function_call_output", "call_id": "\ud83d", "output": "x"},
    {},
]


@pytest.fixture(params=["memory", "file", "postgres"])
def new_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., FlueSession]]:
    made: list[FlueSession] = []
    target = ":memory:"
    if request.param == "file":
        target = str(tmp_path / "sessions.db")
    elif request.param == "postgres":
        new_database: NewDatabase = request.getfixturevalue("new_database")
        target = new_database()

    def make(session_id: str = "one", **options: Any) -> FlueSession:
        made.append(FlueSession(session_id, target, **options))
        return made[-1]

    yield make
    for session in made:
        session.close()


async def test_every_kind_of_item_comes_back_value_for_value(new_session: Callable[..., FlueSession]) -> None:
    session = new_session()
    await session.add_items(ITEMS)
    assert repr(sorted_keys(await session.get_items())) == repr(sorted_keys(ITEMS))
    for number in range(len(ITEMS) - 1, -1, -1):
        assert await session.pop_item() == ITEMS[number]
    assert await session.pop_item() is None


def sorted_keys(value: Any) -> Any:
    """Return the same value with every object's fields in order: 1, 1.0 and True are told apart by ``repr`` alone."""
    if isinstance(value, dict):
        return {name: sorted_keys(value[name]) for name in sorted(value)}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("limit", [None, -1, 0, 1, 2, 3, 7, 8, 9, 10, 11, 30, 31, 32, 2_147_483_647])
async def test_a_limit_is_the_end_that_the_sdk_would_return(limit: int | None) -> None:
    theirs, ours = SQLiteSession("one"), FlueSession("one")
    for session in (theirs, ours):
        await session.add_items(ITEMS)
    assert await ours.get_items(limit) == await theirs.get_items(limit)
    for session in (theirs, ours):
        session.session_settings = SessionSettings(limit=limit)
    assert await ours.get_items() == await theirs.get_items()
    assert await ours.get_items(4) == ITEMS[-4:]
    theirs.close()
    ours.close()


async def test_a_limit_divides_calls_from_results_that_are_far_away() -> None:
    calls: list[Any] = [
        {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(20)
    ]
    results: list[Any] = [{"type": "function_call_output", "call_id": f"c{n}", "output": "x"} for n in range(20)]
    session = FlueSession("one")
    await session.add_items([{"role": "user", "content": "go"}, *calls, *results])
    for limit in range(1, 43):
        assert await session.get_items(limit) == [{"role": "user", "content": "go"}, *calls, *results][-limit:]
    session.close()


async def test_nothing_is_deleted_and_undo_brings_it_back(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    session = FlueSession("one", path)
    await session.add_items(ITEMS[:3])
    await session.pop_item()
    await session.clear_session()
    assert await session.get_items() == []
    with flue_py.sync.open(path) as store:
        below = store.open_session("one")
        below.undo()
        assert await session.get_items() == ITEMS[:2]
        below.undo()
        assert await session.get_items() == ITEMS[:3]
        assert store.verify().problems == []
    session.close()


async def test_nothing_is_made_by_reading(tmp_path: Path) -> None:
    session = FlueSession("one", tmp_path / "a.db")
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    with flue_py.sync.open(tmp_path / "a.db") as store:
        assert store.list_sessions().sessions == ()
    session.close()


async def test_what_json_cannot_hold_is_refused_with_nothing_written(new_session: Callable[..., FlueSession]) -> None:
    session = new_session()
    bad: Any = {"role": "user", "content": object()}
    await raises(InvalidEntry, session.add_items([ITEMS[0], bad]), match=r"items\[1\]")
    assert await session.get_items() == []


async def test_a_deleted_session_begins_anew(tmp_path: Path) -> None:
    session = FlueSession("one", tmp_path / "a.db")
    await session.add_items(ITEMS[:2])
    for again in (session.add_items, None):
        with flue_py.sync.open(tmp_path / "a.db") as store:
            store.delete_session_tree(store.open_session("one"))
        if again is not None:
            await again(ITEMS[2:3])
    assert await session.get_items() == []
    assert await session.pop_item() is None
    session.close()


async def test_a_refusal_and_a_picture_are_messages_of_the_tree() -> None:
    refusal: Any = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    picture: Any = {"role": "user", "content": [{"type": "input_image", "file_id": "file-1", "detail": "low"}]}
    async with flue_py.open(":memory:") as store:
        session = FlueSession.from_store("one", store)
        await session.add_items([picture, refusal], wrapper=RunContextWrapper(None, usage=used(10, 2)))
        assert await session.get_items() == [picture, refusal]
        below = await store.open_session("one")
        assert [item.role for item in await below.build_context_entries()] == ["user", "assistant"]
        assert ((await store.usage(below)).total.calls, len(await below.turns())) == (1, 1)


async def test_what_no_message_can_be_is_paid_beside_it() -> None:
    refused: Any = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ["?"]}]}
    async with flue_py.open(":memory:") as store:
        session = FlueSession.from_store("one", store)
        await session.add_items([refused], wrapper=RunContextWrapper(None, usage=used(10, 2)))
        assert await session.get_items() == [refused]
        assert (await store.usage()).total.total_tokens == 12


async def test_a_file_of_the_sdk_is_left_alone_and_the_way_over_is_named(tmp_path: Path) -> None:
    theirs = SQLiteSession("one", tmp_path / "a.db")
    await theirs.add_items(ITEMS[:2])
    ours = FlueSession("one", tmp_path / "a.db")
    for call in (ours.get_items, lambda: ours.add_items(ITEMS[:1]), ours.list_branches):
        await raises(NotAStore, call(), match=r"import_sqlite_sessions\(\)")
    assert await theirs.get_items() == ITEMS[:2]
    theirs.close()
    ours.close()


async def test_a_limit_that_is_no_number_of_items_is_named() -> None:
    session = FlueSession("one")
    for bad in ("3", 1.5):
        limit: Any = bad
        await raises(ValueError, session.get_items(limit), match="limit: should be")
    session.close()


async def test_a_closed_session_says_so() -> None:
    session = FlueSession("one")
    session.close()
    session.close()
    for call in (session.add_items([]), session.add_items(ITEMS[:1]), session.get_items(0), session.pop_item()):
        with pytest.raises(StoreClosed, match="closed"):
            await call


@pytest.mark.parametrize("session_id", ["", "a b", "x" * 3_000, "sha256:" + "0" * 64, "line\nbreak"])
async def test_any_id_will_do(session_id: str, tmp_path: Path) -> None:
    one, other = (FlueSession(session_id, tmp_path / "a.db") for _ in range(2))
    await one.add_items(ITEMS[:1])
    assert await other.get_items() == ITEMS[:1]
    one.close()
    other.close()


def test_writers_in_many_threads_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> None:
        async def turns() -> None:
            session = FlueSession("one", tmp_path / "a.db")
            for turn in range(5):
                await session.add_items([{"role": "user", "content": f"{number}.{turn}"}])
            session.close()

        asyncio.run(turns())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session = FlueSession("one", tmp_path / "a.db")
    said = [item["content"] for item in asyncio.run(session.get_items())]  # type: ignore[typeddict-item]
    assert sorted(said) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(5))
    for number in range(4):
        assert [each for each in said if each.startswith(f"{number}.")] == [f"{number}.{turn}" for turn in range(5)]
    session.close()


async def test_a_session_that_was_begun_by_hand_is_continued() -> None:
    async with flue_py.open(":memory:") as store:
        by_hand = await store.create_session(key="one")
        await by_hand.append_message({"role": "user", "content": "Look."})
        parts: list[Any] = [
            {"type": "text", "text": "I do."},
            {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"at": "it"}},
        ]
        await by_hand.append_message({"role": "assistant", "content": parts})
        session = FlueSession.from_store("one", store)
        said, called = (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I do."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"it"}'},
        )
        asked = {"type": "message", "role": "user", "content": "Look."}
        assert await session.get_items() == [asked, said, called]
        assert await session.get_items(2) == [said, called]
        assert await session.pop_item() == called
        assert await session.get_items() == [asked, said]
        await by_hand.refresh()
        await by_hand.undo()
        await by_hand.undo()
        assert await session.get_items() == [asked, said, called]
        assert (await store.verify()).problems == []


def run_of(how: str, agent: Agent[Any], text: str, session: FlueSession) -> Any:
    """Run an agent once, on an event loop of its own."""
    if how == "run_sync":
        # It takes the thread's own loop, and leaves it open.
        with asyncio.Runner() as own:
            asyncio.set_event_loop(own.get_loop())
            return Runner.run_sync(agent, text, session=session)

    async def streamed() -> Any:
        result = Runner.run_streamed(agent, text, session=session)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(Runner.run(agent, text, session=session) if how == "run" else streamed())


def used(taken: int, made: int) -> Usage:
    return Usage(requests=1, input_tokens=taken, output_tokens=made, total_tokens=taken + made)


@function_tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


@pytest.mark.parametrize("how", ["run", "run_sync", "run_streamed"])
def test_runs_pay_into_the_ledger_once(how: str, tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            {"output": [function_call("look_up", {"word": "flue"}, call_id="c1")], "usage": used(10, 2)},
            {"output": [assistant_message("A word.")], "usage": used(20, 3)},
            {"output": [assistant_message("Indeed.")], "usage": used(30, 4)},
        ]
    )
    session = FlueSession("one", tmp_path / "a.db", model="fake-1", provider="fake")
    agent = Agent(name="a", model=model, tools=[look_up])
    assert run_of(how, agent, "What is a flue?", session).final_output == "A word."
    assert run_of(how, agent, "Really?", session).final_output == "Indeed."
    assert [item.get("type", item.get("role")) for item in asyncio.run(session.get_items())] == [
        "user", "function_call", "function_call_output", "message", "user", "message",
    ]  # fmt: skip
    with flue_py.sync.open(tmp_path / "a.db") as store:
        below = store.open_session("one")
        paid = store.usage(below, group_by=("provider", "model"))
        assert [(row.group, row.calls, row.input, row.output) for row in paid.rows] == [
            ({"provider": "fake", "model": "fake-1"}, 3, 60, 9)
        ]
        assert below.money.aggregate_usage_since(None).usage.total_tokens == 69
        assert [turn.message.content for turn in below.turns()] == ["What is a flue?", "Really?"]
        assert store.verify().problems == []
    session.close()


def test_nothing_else_imports_the_framework() -> None:
    names = "flue_py, flue_py.cli, flue_py.sync, flue_py.adapters.messages"
    check = f"import sys, {names}; assert not [m for m in sys.modules if m.split('.')[0] in ('agents', 'openai')]"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_without_the_framework_the_extra_is_named() -> None:
    program = """
import sys
sys.modules["agents"] = None
try:
    import flue_py.adapters.openai_agents
except ImportError as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.startswith("MissingExtra")
    assert "flue-py[openai-agents]" in run.stdout


async def test_who_is_cancelled_while_writing_pays_once(tmp_path: Path) -> None:
    session = FlueSession("one", tmp_path / "a.db")
    wrapper = RunContextWrapper(None, usage=used(5, 1))
    for _ in range(3):
        writing = asyncio.create_task(session.add_items([{"role": "assistant", "content": "x"}], wrapper=wrapper))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    with flue_py.sync.open(tmp_path / "a.db") as store:
        assert (store.usage().total.calls, store.usage().total.total_tokens) == (1, 6)
        assert store.verify().problems == []
    assert len(await session.get_items()) == 3
    session.close()


def test_settings_leave_what_an_agent_is_sent_and_the_session_keeps_all(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}", "status": "completed"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "line " * 100}
    given: list[Any] = [ITEMS[0], call, output, {"role": "assistant", "content": "It hangs."}, ITEMS[4]]
    settings = {
        "epoch_tokens": 0,
        "addresses": False,
        "microcompact": {"keep": 0, "tools": ["read"]},
        "agents": {"Reviewer": {"window": {"text_only": True}, "microcompact": None}},
    }

    async def read(**options: Any) -> list[Any]:
        session = FlueSession("s", file, **options)
        items = await session.get_items()
        session.close()
        return items

    async def run() -> None:
        session = FlueSession("s", file)
        await session.add_items(given)
        session.close()
        cleared = await read(context=settings)
        assert [cleared[at] for at in (0, 1, 3, 4)] == [given[at] for at in (0, 1, 3, 4)]
        assert cleared[2] == {**output, "output": "[tool result cleared to save context]"}
        assert await read(context=settings, agent="reviewer") == [given[0], given[3], given[4]]
        assert await read() == given
        told = await read(context={"spec": {"sources": ["tickets"]}}, sources={"tickets": lambda asked: "open"})
        assert told[0] == given[0]
        assert "## tickets\nopen" in told[1]["content"]
        assert told[2:] == [given[4]]
        with pytest.raises(InvalidArgument, match="epoch_tokens"):
            FlueSession("s", file, context={"epoch_tokens": -1})

    asyncio.run(run())


def test_an_answer_that_has_nothing_but_stale_reasoning_is_left_out_of_what_an_agent_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "signed"}
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": json.dumps(item)}
    with flue_py.sync.open(file) as store:
        session = store.create_session(key="s")
        session.append_message({"role": "user", "content": "Why?"})
        session.append_message(
            {"role": "assistant", "provider": "openai", "content": [thought]}, produced_under="another"
        )
        session.append_message({"role": "user", "content": "And now?"})

    async def run() -> list[Any]:
        sdk = FlueSession("s", file, context={})
        items = await sdk.get_items()
        sdk.close()
        return items

    assert [item["content"] for item in asyncio.run(run())] == ["Why?", "And now?"]


def test_sessions_of_one_id_are_apart_in_stores_of_two_scopes() -> None:
    async def run() -> None:
        async with flue_py.open(":memory:") as store:
            for scope in ("t1", "t2"):
                session = FlueSession("chat", store.in_scope(scope))
                await session.add_items([{"role": "user", "content": scope}])
                assert await session.get_items() == [{"role": "user", "content": scope}]
            assert {(info.scope, info.key) for info in (await store.list_sessions()).sessions} == {
                ("t1", "chat"), ("t2", "chat"),
            }  # fmt: skip

    asyncio.run(run())
