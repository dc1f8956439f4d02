"""A harness names sessions, checks roles, and starts tasks."""

from __future__ import annotations

import asyncio

import pytest

import flue_py
from flue_py import InvalidArgument, SessionExists, SessionNotFound, Store
from flue_py.agents.harness import Harness, HarnessSession, storage_key, task_session_name
from tests.checks import raises
from tests.sessions.talk import path_of, say


def harness_on(store: Store, **changes: str) -> Harness:
    settings = {"instance": "agent-7", "name": "main", "cwd": "/w", "scope": "user-7", **changes}
    return Harness(store, roles=("dev", "qa"), **settings)  # type: ignore[arg-type]


@pytest.fixture
def harness(store: Store) -> Harness:
    return harness_on(store)


async def test_a_storage_key_is_json_as_javascript_prints_it() -> None:
    assert storage_key('i"n', "h\\x", "数据 🚀\n\u2028") == 'agent-session:["i\\"n","h\\\\x","数据 🚀\\n\u2028"]'
    assert task_session_name("task:p:t1", "t3") == "task:task:p:t1:t3"


async def test_the_session_of_a_name_is_the_session_of_its_storage_key(store: Store, harness: Harness) -> None:
    opened = await harness.open_session("a")
    await say(opened.session, "hello")
    assert opened.storage_key == 'agent-session:["agent-7","main","a"]'
    found = await store.open_session(opened.storage_key, scope="user-7")
    assert await path_of(found) == ["hello"]
    assert found.info.cwd == "/w"


async def test_without_a_name_the_session_is_called_default(harness: Harness) -> None:
    opened = await harness.open_session()
    assert opened.name == "default"
    assert await harness.open_session("default") is opened


async def test_as_long_as_a_name_is_open_everybody_gets_the_same_handle(harness: Harness) -> None:
    opened = await asyncio.gather(*(harness.open_session("a") for _ in range(5)))
    assert all(handle is opened[0] for handle in opened)
    restarted = harness_on(harness._store)
    assert await restarted.open_session("a", mode="get") is not opened[0]


async def test_harnesses_and_instances_do_not_share_names(store: Store) -> None:
    made = [
        await harness_on(store, instance=instance, name=name).open_session("a", mode="create")
        for instance in ("i", "j")
        for name in ("m", "n")
    ]
    assert len({handle.session.id for handle in made}) == 4


async def test_roles_are_checked_before_anything_else(harness: Harness) -> None:
    for mode in ("get", "create", "get_or_create"):
        with pytest.raises(InvalidArgument, match="'nope' is not registered; registered are dev, qa"):
            await harness.open_session("a", mode=mode, role="nope")  # type: ignore[arg-type]
    await raises(SessionNotFound, harness.open_session("a", mode="get", role="qa"))
    opened = await harness.open_session("a", role="dev")
    await raises(SessionExists, harness.open_session("a", mode="create", role="qa"))
    await raises(InvalidArgument, harness.open_session("a", role="qa"), match="already open with role 'dev'")
    assert await harness.open_session("a", role="dev") is opened
    assert await harness.open_session("a") is opened


async def test_a_session_deleted_elsewhere_is_not_handed_out_again(store: Store, harness: Harness) -> None:
    gone = await harness.open_session("a", role="dev")
    await store.delete_session_tree(gone.session)
    await raises(SessionNotFound, harness.open_session("a", mode="get"))
    again = await harness.open_session("a", role="qa")
    assert again is not gone
    assert again.session.id != gone.session.id


async def test_deleting_closes_the_handles_of_the_whole_tree(harness: Harness) -> None:
    parent = await harness.open_session("p")
    child = await parent.create_task("t")
    by_name = await harness.open_session(child.name)
    deletion = await harness.delete_session("p")
    assert set(deletion.session_ids) == {parent.session.id, child.session.id}
    for handle in (parent, child, by_name):
        await raises(SessionNotFound, say(handle.session, "too late"))
        await raises(SessionNotFound, handle.create_task("t2"))
    await raises(SessionNotFound, harness.open_session(child.name, mode="get"))
    assert (await harness.delete_session("p")).session_ids == ()


async def test_a_task_is_described_by_names(harness: Harness) -> None:
    parent = await harness.open_session("p")
    child = await parent.create_task("t1", role="dev", title="Look")
    assert (child.name, child.role, child.session.title) == ("task:p:t1", "dev", "Look")
    assert await child.read_metadata() == {"parentSession": "p", "taskId": "t1", "cwd": "/w", "role": "dev", "depth": 1}
    assert await parent.read_metadata() == {
        "taskSessions": [{"session": child.name, "taskId": "t1", "storageKey": child.storage_key}]
    }


async def test_a_parent_remembers_a_deleted_task_and_may_start_it_anew(harness: Harness) -> None:
    parent = await harness.open_session("p")
    first = await parent.create_task("t:1")
    await harness.delete_session(first.name)
    before = await parent.read_metadata()
    second = await parent.create_task("t:1")
    assert second.session.id != first.session.id
    assert await parent.read_metadata() == before
    assert (await second.read_metadata())["parentSession"] == "p"


async def test_the_same_task_is_one_session_with_one_role(harness: Harness) -> None:
    parent = await harness.open_session("p")
    child = await parent.create_task("t", role="dev")
    again = await parent.create_task("t")
    assert (again.session.id, again.role) == (child.session.id, "dev")
    await raises(InvalidArgument, parent.create_task("t", role="qa"), match="started with role 'dev'")
    await raises(InvalidArgument, parent.create_task("u", role="nope"), match="not registered")
    assert len(await parent.session.tasks.links()) == 1


async def test_a_task_does_not_take_over_a_session_that_is_none(harness: Harness) -> None:
    parent = await harness.open_session("p")
    await harness.open_session("task:p:t")
    await raises(SessionExists, parent.create_task("t"))
    assert await parent.session.tasks.links() == []


async def test_tasks_of_a_harness_nest_four_deep(harness: Harness) -> None:
    handle: HarnessSession = await harness.open_session("p")
    for n in range(4):
        handle = await handle.create_task(str(n))
    assert (await handle.read_metadata())["depth"] == 4
    await raises(flue_py.TaskDepthExceeded, handle.create_task("5"), match=r"(?i)maximum task depth \(4\) exceeded")
