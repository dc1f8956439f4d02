"""Branches and usage under the names of `AdvancedSQLiteSession`, beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.needed import needs

needs("openai-agents", "agents")

from agents import Agent, RunContextWrapper, Runner, Usage, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from agents.testing import ScriptedModel, assistant_message

import flue_py
from flue_py.adapters.openai_agents import FlueSession
from tests.checks import raises
from tests.values import existing

set_tracing_disabled(True)


def scripted(*answers: tuple[str, int, int]) -> Agent[Any]:
    steps = [
        {
            "output": [assistant_message(text)],
            "usage": Usage(requests=1, input_tokens=taken, output_tokens=made, total_tokens=taken + made),
        }
        for text, taken, made in answers
    ]
    return Agent(name="a", model=ScriptedModel(steps))


async def worked(session: Any) -> list[Any]:
    """Work on a session as its users do; return all that it tells, without ids and times."""
    told: list[Any] = []
    agent = scripted(("one", 10, 1), ("two", 20, 2), ("three", 30, 3), ("other", 40, 4), ("more", 50, 5))

    async def ask(text: str) -> None:
        await session.store_run_usage(await Runner.run(agent, text, session=session))

    async def tell() -> None:
        told.append([(item["role"], item["content"]) for item in await session.get_items()])
        listed = await session.list_branches()
        told.append([{k: v for k, v in each.items() if k != "created_at"} for each in listed])
        told.append([await session.get_session_usage(), await session.get_session_usage("main")])
        told.append([await session.get_turn_usage(), await session.get_turn_usage(2), await session.get_turn_usage(9)])

    for text in ("a", "b", "c"):
        await ask(text)
    await tell()
    told.append(await session.create_branch_from_turn(2, "other"))
    await tell()
    await ask("d")
    await tell()
    told.append([await session.get_session_usage("other"), await session.get_turn_usage(None, "main")])
    await session.switch_to_branch("main")
    await ask("e")
    await tell()
    return told


def without_none(value: Any) -> Any:
    """Return what is told without details of tokens that are None: those that a version of the client knows of."""
    if isinstance(value, dict):
        return {name: without_none(each) for name, each in value.items() if each is not None}
    return [without_none(each) for each in value] if isinstance(value, list) else value


async def test_they_tell_what_advanced_sessions_tell(tmp_path: Path) -> None:
    theirs = AdvancedSQLiteSession(session_id="one", db_path=tmp_path / "theirs.db", create_tables=True)
    ours = FlueSession("one", tmp_path / "ours.db")
    assert await worked(ours) == without_none(await worked(theirs))
    theirs.close()
    ours.close()
    with flue_py.sync.open(tmp_path / "ours.db") as store:
        assert sorted(each.kind for each in store.list_sessions().sessions) == ["fork", "root"]
        assert store.verify().problems == []


ASKED: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look at 100% of C:\\x, caf\u00e9."},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"type": "function_call", "call_id": "c2", "name": "look", "namespace": "eyes", "arguments": "{}"},
    {"type": "function_call", "call_id": "c3", "name": "look", "namespace": "look", "arguments": "{}"},
    {"type": "function_call", "call_id": "c4", "name": "look", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c5", "name": "sql", "input": "SELECT 1"},
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "tool_search_call", "call_id": "c6", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": "c6", "tools": []},
    {"type": "mcp_call", "id": "m1", "name": "n", "server_label": "s", "arguments": "{}"},
    {"type": "mcp_approval_request", "id": "m2", "name": "n", "arguments": "{}"},
    {"type": "mcp_approval_request", "id": "m3", "server_label": "s", "arguments": "{}"},
    {"type": "shell_call", "call_id": "c7", "action": {"commands": ["ls"]}},
    {"type": "reasoning", "id": "rs", "summary": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done: look."}]},
    {"role": "user", "content": [{"type": "input_text", "text": "LOOK_at " + "x" * 120}]},
    {"type": "tool_search_output", "call_id": None, "tools": []},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
    {"role": "assistant", "content": "look"},
]


async def told_of_turns(session: Any, branch: str | None) -> list[Any]:
    """Return what a session tells of the turns of a branch, without times."""
    terms = ("look", "LOOK_", "100%", "_", "C:\\x", "CAF\u00e9", "CAF\u00c9", "", "\\u00e9", "Done")
    found = [await session.find_turns_by_content(term, branch) for term in terms]
    turns = [await session.get_conversation_turns(branch), *found]
    return [
        [{name: value for name, value in each.items() if name != "timestamp"} for several in turns for each in several],
        await session.get_conversation_by_turns(branch),
        await session.get_tool_usage(branch),
        [each.get("content") for each in await session.get_items(None, branch)],
    ]


async def explored(session: Any) -> list[Any]:
    """Explore the turns of a session, branch from what was said, delete branches; return all that it tells."""
    told: list[Any] = []

    async def refused(call: Any) -> None:
        with pytest.raises(ValueError, match=r"[Bb]ranch|user turns|search_term"):
            await call

    for items in (ASKED[:3], ASKED[3:9], ASKED[9:]):
        await session.add_items(items)
    told.append(await told_of_turns(session, None))
    told.append(await session.create_branch_from_content("look_AT", "other"))
    await session.add_items(ASKED[-4:])
    told += [await told_of_turns(session, branch) for branch in (None, "main", "other")]
    told.append(await session.create_branch_from_content("x", "below"))
    await session.add_items(ASKED[1:3])
    told.append(await session.get_items(2, "other"))
    await refused(session.create_branch_from_content("nobody said it"))
    for bad in ("main", "below", "nowhere", " "):
        await refused(session.delete_branch(bad))
    await session.delete_branch("other")
    await refused(session.switch_to_branch("other"))
    await refused(session.create_branch_from_turn(1, "other"))
    told.append(await told_of_turns(session, None))
    await session.delete_branch("below", force=True)
    told.append(await told_of_turns(session, None))
    told.append([each["branch_id"] for each in await session.list_branches()])
    assert await session.create_branch_from_turn(3, "last") == "last"
    await session.clear_session()
    await session.add_items(ASKED[:2])
    told.append(await told_of_turns(session, "main"))
    return told


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_turns_are_told_and_branches_deleted_as_there(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / "ours.db") if kind == "sqlite" else str(request.getfixturevalue("new_database")())
    theirs = AdvancedSQLiteSession(session_id="one", db_path=tmp_path / "theirs.db", create_tables=True)
    ours = FlueSession("one", target)
    assert await explored(ours) == await explored(theirs)
    theirs.close()
    ours.close()
    with flue_py.sync.open(target) as store:
        assert store.verify().problems == []


async def test_all_public_methods_are_there() -> None:
    session = FlueSession("one")
    assert {name for name in dir(AdvancedSQLiteSession) if not name.startswith("_")} <= set(dir(session))
    session.close()


async def test_who_uses_a_deleted_branch_is_told_and_writes_nowhere_else(tmp_path: Path) -> None:
    one, other = (FlueSession("one", tmp_path / "a.db") for _ in range(2))
    await one.add_items(ASKED)
    await one.create_branch_from_turn(2, "b")
    await one.add_items(ASKED[:1])
    await other.delete_branch("b")
    for call in (one.add_items(ASKED), one.get_items(), one.pop_item(), one.get_tool_usage()):
        with pytest.raises(ValueError, match="'b' has been deleted"):
            await call
    await one.switch_to_branch("main")
    assert await one.get_items() == ASKED
    one.close()
    other.close()


async def test_clearing_empties_all_branches_and_undo_brings_each_back() -> None:
    async with flue_py.open(":memory:") as store:
        session = FlueSession.from_store("one", store)
        await session.add_items(ASKED)
        await session.create_branch_from_turn(3, "b")
        await session.clear_session()
        listed = [
            (each["branch_id"], each["message_count"], each["is_current"]) for each in await session.list_branches()
        ]
        assert listed == [("main", 0, True), ("b", 0, False)]
        for info in (await store.list_sessions()).sessions:
            below = existing(await store.get_session(info.id))
            await below.undo()
        assert len(await session.get_items()) == len(ASKED)
        assert len(await session.get_items(None, "b")) == len(ASKED) - 2
        assert (await store.verify()).problems == []


async def test_branches_are_found_again_and_their_names_are_taken(tmp_path: Path) -> None:
    session = FlueSession("one", tmp_path / "a.db")
    agent = scripted(("one", 1, 1), ("two", 1, 1))
    for text in ("a", "b"):
        await Runner.run(agent, text, session=session)
    assert await session.create_branch_from_turn(1, "first") == "first"
    assert await session.get_items() == []
    await session.switch_to_branch("main")
    assert await session.create_branch_from_turn(2) == "branch_from_turn_2"
    await session.switch_to_branch("main")
    assert await session.create_branch_from_turn(2) == "branch_from_turn_2_2"
    session.close()
    again = FlueSession("one", tmp_path / "a.db")
    assert [each["branch_id"] for each in await again.list_branches()] == [
        "main",
        "first",
        "branch_from_turn_2",
        "branch_from_turn_2_2",
    ]
    await again.switch_to_branch("branch_from_turn_2")
    assert len(await again.get_items()) == 2
    odd: list[Any] = ["first", "main", " ", "NUL \0", "half \ud83d", 5]
    for bad in odd:
        await raises(ValueError, again.create_branch_from_turn(1, bad), match="branch_name")
    for turn in (0, 2, -1):
        await raises(ValueError, again.create_branch_from_turn(turn), match="turn_number")
    await raises(ValueError, again.switch_to_branch("nowhere"), match="nowhere")
    unhashable: Any = ["first"]
    for call in (again.switch_to_branch, again.delete_branch, again.get_tool_usage):
        await raises(ValueError, call(unhashable), match="branch")
    again.close()


async def test_nothing_is_told_of_a_session_that_is_not_there() -> None:
    session = FlueSession("one")
    assert await session.list_branches() == []
    assert await session.get_session_usage() is None
    assert await session.get_turn_usage() == []
    assert await session.get_turn_usage(1) == {}
    await raises(ValueError, session.create_branch_from_turn(1), match="turn_number")
    session.close()


async def test_usage_is_booked_once_however_often_it_is_said() -> None:
    async with flue_py.open(":memory:") as store:
        session = FlueSession.from_store("one", store)
        result = await Runner.run(scripted(("one", 10, 1)), "a", session=session)
        for _ in range(3):
            await session.store_run_usage(result)
        wrapper = RunContextWrapper(None, usage=Usage(requests=1, input_tokens=5, output_tokens=1, total_tokens=6))
        await session.add_items([{"role": "user", "content": "x"}], wrapper=wrapper)
        wrapper.usage.add(Usage(requests=1, input_tokens=7, output_tokens=1, total_tokens=8))
        await session.add_items([{"role": "assistant", "content": "y"}], wrapper=wrapper)
        await session.add_items([{"role": "assistant", "content": "z"}], wrapper=wrapper)
        paid = (await store.usage()).total
        assert (paid.calls, paid.input, paid.unknown_calls) == (3, 22, 0)
        assert (await store.verify()).problems == []
