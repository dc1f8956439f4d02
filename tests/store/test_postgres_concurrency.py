"""Many processes on one PostgreSQL store: every acknowledged operation is there once, and none blocks another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from tests.postgres import NewDatabase
from tests.samples import add, assistant, new_session, path_ids, path_of, session_info, talk, tree_ids, user
from tests.store.postgres_worker import SCRIPT, SOURCES
from tests.store.spending import BEYOND, LATER, check_expiry, check_spent, jobs, make_budget, prepare
from tests.store.sqlite_batches import opened
from tests.store.sqlite_workers import Nursery, nursery
from tests.values import existing
from tests.whole_stores import copied

pytestmark = pytest.mark.thorough

PROCESSES = 5


@pytest.fixture(scope="module")
def workers(postgres_databases: object) -> Iterator[Nursery]:
    """The process that workers are forked from. Named after the server, without which it is not started."""
    with nursery(SCRIPT) as started:
        yield started


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture
async def backend(url: str, anyio_backend: str) -> AsyncIterator[Backend]:
    """The store of the test, which must be sound at its end."""
    opened = await open_engine(url, sources=SOURCES)
    try:
        yield opened
        assert (await opened.verify()).problems == []
    finally:
        await opened.close()


async def together(workers: Nursery, job: str, url: str, *arguments: dict[str, object]) -> list[Any]:
    """Have processes do a job, all beginning together; one set of arguments is everybody's. Return their results."""
    own = arguments * PROCESSES if len(arguments) == 1 else arguments
    team = [workers.start(job, url=url, **each) for each in own]
    for worker in team:
        assert worker.hear() == "ready"
    for worker in team:
        worker.tell("go")
    said = [await asyncio.to_thread(worker.hear) for worker in team]
    assert [answer.get("error") for answer in said] == [None] * len(team)
    return [answer["result"] for answer in said]


# -- sessions of their own ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sessions", "appends"), [(6, 5), pytest.param(50, 10, marks=pytest.mark.slow)])
async def test_processes_that_append_to_sessions_of_their_own_lose_nothing(
    backend: Backend, url: str, workers: Nursery, sessions: int, appends: int
) -> None:
    said = await together(workers, "append_to_own_sessions", url, {"sessions": sessions, "appends": appends})
    written = {session_id: ids for own in said for session_id, ids in own.items()}
    assert len(written) == PROCESSES * sessions
    for session_id, ids in written.items():
        assert len(ids) == 2 * appends
        assert await path_ids(backend, session_id) == ids
        info = await session_info(backend, session_id)
        assert (info.entry_count, info.revision, info.spent_tokens) == (2 * appends, appends, appends)


# -- one session --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("appends", [6, pytest.param(50, marks=pytest.mark.slow)])
async def test_processes_that_rebase_after_each_conflict_make_one_chain(
    backend: Backend, url: str, workers: Nursery, appends: int
) -> None:
    session = await new_session(backend, user("first"))
    said = await together(workers, "append_and_rebase", url, {"session_id": session.id, "appends": appends})
    acknowledged = [tuple(pair) for own in said for pair in own["acknowledged"]]
    ids = await path_ids(backend, session.id)
    # Each landed exactly where its writer wanted it, and nothing else did.
    assert len(ids) == 1 + PROCESSES * appends
    assert sorted(acknowledged) == sorted(pairwise(ids))
    assert await tree_ids(backend, session.id) == ids
    assert sum(own["conflicts"] for own in said) > 0
    info = await session_info(backend, session.id)
    assert (info.entry_count, info.revision) == (len(ids), len(ids))
    assert info.spent_tokens == PROCESSES * appends


@pytest.mark.parametrize("appends", [6, pytest.param(50, marks=pytest.mark.slow)])
async def test_processes_that_branch_at_each_conflict_keep_everything_in_one_of_the_branches(
    backend: Backend, url: str, workers: Nursery, appends: int
) -> None:
    session = await new_session(backend, user("first"))
    said = await together(workers, "append_or_branch", url, {"session_id": session.id, "appends": appends})
    acknowledged = [tuple(one) for own in said for one in own]
    tree = await tree_ids(backend, session.id)
    assert sorted(tree[1:]) == sorted(entry_id for _, entry_id, _ in acknowledged)
    assert len(set(tree)) == 1 + PROCESSES * appends
    for parent, entry_id, _ in acknowledged:
        assert (await path_ids(backend, session.id, entry_id))[-2] == parent
    # The leaf went along with those that did not branch, and with no other.
    path = await path_ids(backend, session.id)
    assert sorted(path[1:]) == sorted(entry_id for _, entry_id, branched in acknowledged if not branched)
    assert 0 < len(path) - 1 < len(acknowledged)
    info = await session_info(backend, session.id)
    assert (info.entry_count, info.spent_tokens) == (len(tree), PROCESSES * appends)


async def test_changes_of_a_session_that_many_write_to_come_without_a_gap(
    backend: Backend, url: str, workers: Nursery
) -> None:
    session = await new_session(backend, user("first"))
    await together(workers, "append_or_branch", url, {"session_id": session.id, "appends": 4})
    changes = await backend.changes(session.id, 0, 1000)
    assert [change.revision for change in changes] == list(range(1, 2 + 4 * PROCESSES))
    assert {change.reason for change in changes} == {"append", "branch"}
    leaf = None
    for change in changes:
        if change.reason == "append":
            assert change.from_id == leaf
            leaf = change.to_id
    assert leaf == (await session_info(backend, session.id)).leaf_id


# -- forks and deletions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [12, pytest.param(100, marks=pytest.mark.slow)])
async def test_forks_appends_and_deletions_of_one_tree_leave_it_sound(
    backend: Backend, url: str, workers: Nursery, steps: int
) -> None:
    root = await new_session(backend, *talk(6))
    before = await path_ids(backend, root.id)
    said = await together(
        workers, "fork_and_delete", url, *[{"root": root.id, "seed": seed, "steps": steps} for seed in range(PROCESSES)]
    )
    counts = sum((Counter(own) for own in said), Counter[str]())
    page = await backend.list_sessions(scope=None, kind=None, limit=10_000, cursor=None)
    assert len(page.sessions) == 1 + counts["forked"] - counts["deleted"]
    assert min(counts["forked"], counts["appended"], counts["deleted"]) > 0
    assert (await path_ids(backend, root.id))[:6] == before
    for session in page.sessions:
        path = await path_of(backend, session.id)
        assert (path[-1].id if path else None) == session.leaf_id
        own = [entry for entry in await backend.read_tree(session.id) if entry.session_id == session.id]
        assert len(own) == session.entry_count


async def test_of_a_forked_pair_that_is_deleted_at_once_nothing_is_left(
    backend: Backend, url: str, workers: Nursery
) -> None:
    for _ in range(6):
        source = await new_session(backend, *talk(4))
        middle = (await path_ids(backend, source.id))[1]
        fork = await backend.fork(source.id, middle, NewSession())
        await add(backend, fork.id, *talk(2))
        said = await together(workers, "delete", url, {"session_id": source.id}, {"session_id": fork.id})
        assert [one["sessions"] for one in said] == [[source.id], [fork.id]]
        # Whoever was second took what the first had to leave to it.
        assert sum(one["entries"] for one in said) == 6
    info = await backend.info()
    assert (info.sessions, info.entries) == (0, 0)


async def test_of_many_deletions_of_one_session_exactly_one_deletes_it(
    backend: Backend, url: str, workers: Nursery
) -> None:
    session = await new_session(backend, *talk(4))
    said = await together(workers, "delete", url, {"session_id": session.id})
    assert sorted((one["sessions"], one["entries"]) for one in said) == [
        *[([], 0)] * (PROCESSES - 1),
        ([session.id], 4),
    ]


# -- keys ---------------------------------------------------------------------------------------------------------


async def test_of_many_that_create_a_session_with_the_same_key_one_wins(
    backend: Backend, url: str, workers: Nursery
) -> None:
    keys = [f"key {number}" for number in range(10)]
    said = await together(workers, "create_with_keys", url, {"keys": keys})
    for key, answers in zip(keys, zip(*said, strict=True), strict=True):
        (winner,) = [answer for answer in answers if answer is not None]
        assert existing(await backend.get_session_by_key(key, "")).id == winner
    assert (await backend.info()).sessions == len(keys)


async def test_an_operation_that_several_repeat_under_one_idempotency_key_happens_once(
    backend: Backend, url: str, workers: Nursery
) -> None:
    session = await new_session(backend, *talk(2))
    to = (await path_ids(backend, session.id))[0]
    keys = [str(number) for number in range(5)]
    said = await together(workers, "repeat_with_key", url, {"session_id": session.id, "to": to, "keys": keys})
    for answers in zip(*said, strict=True):
        assert len({answer[0][0] for answer in answers}) == 1
        assert Counter(answer[0][1] for answer in answers) == {False: 1, True: PROCESSES - 1}
        assert len({answer[1][0] for answer in answers}) == 1
        assert Counter(answer[1][1] for answer in answers) == {False: 1, True: PROCESSES - 1}
        assert len({answer[2] for answer in answers}) == 1
    info = await backend.info()
    assert (info.sessions, info.entries) == (1 + len(keys), 2 + len(keys))


# -- budgets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [800, pytest.param(30_000, marks=pytest.mark.slow)])
async def test_processes_keep_to_the_budget_they_share(
    backend: Backend, url: str, workers: Nursery, allowed: int
) -> None:
    tasks = await prepare(backend, PROCESSES, allowed)
    said = await together(workers, "spend", url, *jobs(tasks))
    await check_spent(backend, said, allowed, BEYOND)


async def test_what_a_killed_process_reserved_expires(backend: Backend, url: str, workers: Nursery) -> None:
    await make_budget(backend)
    worker = workers.start("hold_a_reservation", url=url, session_id="parent")
    assert worker.hear() == "ready"
    worker.tell("go")
    held = worker.hear()
    worker.kill()
    assert worker.wait() == -9
    later = await open_engine(url, sources=LATER)
    try:
        await check_expiry(held, backend, later)
    finally:
        await later.close()


# -- a copy ---------------------------------------------------------------------------------------------------------


async def test_who_appends_below_calls_that_a_copy_took_over_reads_the_sums_again(
    backend: Backend, url: str, tmp_path: Path
) -> None:
    async with opened(tmp_path / "source.db") as source:
        session = await new_session(source, user("asked"), assistant("paid", tokens=7, dollars=0.5))
        await copied(source, backend)
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id)
        other = await open_engine(url, sources=SOURCES)
        try:
            # It knows from here on what was paid on the path, calls of the session that is gone among it.
            await add(other, fork.id, assistant("mine", tokens=1))
            # That session comes back, and takes its calls along into a tree of its own.
            assert (await copied(source, backend)).trees_copied == 1
            await add(other, fork.id, assistant("more", tokens=2))
        finally:
            await other.close()
        assert (await backend.verify()).problems == []
        assert (await session_info(backend, fork.id)).spent_tokens == 3
        assert (await backend.read_usage(fork.id, None)).usage.total_tokens == 10
