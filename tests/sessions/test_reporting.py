"""What a report collects from a store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.db.backend import Backend
from flue_py.errors import InvalidArgument
from flue_py.sessions.request import read_reported
from tests.render.test_report import data_of
from tests.tables import inputs

pytestmark = pytest.mark.anyio


def backend_of(session: flue_py.Session) -> Backend:
    backend: Backend = session._backend
    return backend


async def test_a_report_has_the_session_and_all_its_tasks_once(store: flue_py.Store) -> None:
    root = await store.create_session(title="root")
    one = await root.tasks.create(task_id="one")
    two = await root.tasks.create(task_id="two")
    deep = await one.tasks.create(task_id="deep")
    await store.link_task(two, deep, task_id="deep again")
    await store.link_task(deep, root, task_id="a cycle")
    await store.link_task(root, "gone", task_id="missing")
    found = await read_reported(backend_of(root), root.id)
    assert [(each.info.id, each.task_id, each.parent_id) for each in found] == [
        (root.id, None, None),
        (one.id, "one", root.id),
        (two.id, "two", root.id),
        (deep.id, "deep", one.id),
    ]


async def test_a_report_of_a_fork_has_what_the_fork_sees(store: flue_py.Store) -> None:
    root = await store.create_session()
    await root.append_messages([{"role": "user", "content": text} for text in "abc"])
    path = await root.get_active_path()
    fork = await root.fork(at=path[1].id)
    await fork.append_message({"role": "user", "content": "d"})
    await fork.marks.set_label(path[0].id, "begin")
    (found,) = await read_reported(backend_of(fork), fork.id)
    assert [entry.data["content"] for entry in found.entries] == ["a", "b", "d"]  # type: ignore[index, call-overload]
    assert found.labels == {path[0].id: "begin"}
    assert found.sizes.keys() == {entry.id for entry in found.entries}
    (unsized,) = await read_reported(backend_of(fork), fork.id, sizes=False)
    assert unsized.sizes == {}


async def test_the_report_of_a_session_is_the_same_at_every_call(store: flue_py.Store) -> None:
    session = await store.create_session(title="Red build")
    await session.append_message({"role": "user", "content": "why?"})
    page = await session.reports.html(warn_at=5)
    assert page == await session.reports.html(warn_at=5)
    assert page != await session.reports.html(warn_at=6)
    assert session.leaf_id in page


async def test_snapshots_name_the_session_and_the_agents(store: flue_py.Store) -> None:
    session = await store.create_session(title="Red build")
    task = await session.tasks.create(task_id="check")
    await task.append_message({"role": "assistant", "content": [], "usage": {"input": 3, "output": 1}})
    (line,) = (await session.reports.snapshots(cutover_at=9)).splitlines()
    row: dict[str, Any] = json.loads(line)
    assert (row["session"], row["agent"], row["cutover_at"]) == (session.id, "check", 9)


@inputs("limit", [-1, True, 1.5, "9", 2**63])
async def test_a_threshold_is_a_number_of_tokens(store: flue_py.Store, limit: Any) -> None:
    session = await store.create_session()
    with pytest.raises(InvalidArgument, match=r"warn_at: .* is not a number of tokens"):
        await session.reports.html(warn_at=limit)
    with pytest.raises(InvalidArgument, match=r"cutover_at: .* is not a number of tokens"):
        await session.reports.snapshots(cutover_at=limit)


async def test_a_deleted_session_has_no_report(store: flue_py.Store) -> None:
    session = await store.create_session()
    await store.delete_session_tree(session)
    with pytest.raises(flue_py.SessionNotFound):
        await session.reports.html()


async def test_the_tasks_of_a_report_come_last_active_first(store: flue_py.Store) -> None:
    root = await store.create_session()
    for name, at_us in (("second", 2), ("last", 3), ("first", 1)):
        task = await root.tasks.create(task_id=name)
        said = replace(NewEntry.message({"role": "user", "content": "x"}), id=name, created_us=at_us * 10**6)
        await task.import_entries([said], leaf=name)
    sessions = data_of(await root.reports.html(sizes=False))["sessions"]
    assert [session["agent"] for session in sessions[1:]] == ["last", "second", "first"]
