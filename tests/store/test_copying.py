"""Copying between every two kinds of store: interrupted, killed, in use meanwhile, and into a store with data."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, closing
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flue_py.core.sessions import STORED, NewSession
from flue_py.core.trees import Standing, TreeCopy
from flue_py.db.backend import Backend
from flue_py.db.engine import open_engine
from flue_py.db.sqlite.runner import MemoryRunner, open_memory, open_sqlite
from flue_py.errors import CorruptStore, InvalidArgument, StoreUnavailable
from flue_py.sessions.store import Store
from flue_py.transfer import copy as copying
from flue_py.transfer.copy import CopyProgress, copy_store
from tests.checks import raises
from tests.contract import StoreCopyContract
from tests.machine.copying import check_copying
from tests.postgres import NewDatabase
from tests.samples import add, assistant, new_session, path_ids, session_info, talk, user
from tests.sources import OpenBackend, counted_sources
from tests.store.conftest import KINDS
from tests.tables import inputs
from tests.whole_stores import copied, make_everything, told, whole_trees, with_names

Opening = Callable[[str], Coroutine[Any, Any, Backend]]


MOST_ROUNDS = 6
"""How often the source is written to, at most, while it is copied: a slow copy is not made longer by it."""
# An engine on a file keeps rows by the statements of the file. All pairs are tried in the long run.
MOST_KINDS = [kind for kind in KINDS if kind != "aiosqlite"]


@pytest.fixture
async def open_kind(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Opening]:
    """A function that opens a new store of a kind, to be verified and closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_it(kind: str) -> Backend:
            backend = await KINDS[kind].opening(request)(counted_sources())
            stack.push_async_callback(finish, backend)
            return backend

        yield open_it


async def finish(backend: Backend) -> None:
    try:
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


# -- every pair -------------------------------------------------------------------------------------------------------


class TestStoreCopy(StoreCopyContract):
    """The contract of copying, between two stores in memory. `test_whole_contract` has the other kinds."""

    @pytest.fixture
    def open_backend(self, request: pytest.FixtureRequest) -> OpenBackend:
        return KINDS["memory"].opening(request)


async def test_a_store_moves_from_kind_to_kind_and_is_the_same_to_the_last_row(open_kind: Opening) -> None:
    wanted = ("memory", "sqlite", "postgres", "aiosqlite", "memory", "sqlite")
    source, *stores = [await open_kind(kind) for kind in wanted if kind in KINDS]
    await make_everything(source)
    for before, after in zip([source, *stores], stores, strict=False):
        await copied(before, after)
    first, second = await everything_in(source), await everything_in(stores[0])
    for store in stores:
        assert await told(store) == await told(source)
        assert await everything_in(store, with_lanes=False) == without_lanes(first)
    for store in stores[:3]:
        assert await everything_in(store) == second


@pytest.mark.slow
@inputs(("first", "second"), product(KINDS, KINDS))
async def test_everything_crosses_and_comes_back_row_by_row(open_kind: Opening, first: str, second: str) -> None:
    source, there, back = await open_kind(first), await open_kind(second), await open_kind(first)
    await make_everything(source)
    await copied(source, there)
    await copied(there, back)
    assert await told(there) == await told(source) == await told(back)
    with_lanes = "memory" not in (first, second)
    assert await everything_in(back, with_lanes=with_lanes) == await everything_in(source, with_lanes=with_lanes)


Everything = tuple[dict[str, dict[str, list[tuple[object, ...]]]], list[tuple[str, int]]]


async def everything_in(backend: Backend, *, with_lanes: bool = True) -> Everything:
    """Return the rows of every tree, by the id of each of its sessions, and who is gone and paid how many calls."""
    trees = {session.id: with_names(tree) for tree in await whole_trees(backend) for session in tree.sessions}
    gone = sorted((each.payer.session_id, len(each.calls)) for each in await backend.list_gone_payers(-1, 100))
    assert gone != []
    return (trees, gone) if with_lanes else without_lanes((trees, gone))


def without_lanes(everything: Everything) -> Everything:
    """Return the same without the layout in lanes, which the store in memory makes up by itself."""
    trees, gone = everything
    flat = {
        session_id: {**rows, "lanes": [], "entries": sorted(row[1:] for row in rows["entries"])}
        for session_id, rows in trees.items()
    }
    return flat, gone


def test_a_history_goes_on_wherever_it_is_moved(request: pytest.FixtureRequest) -> None:
    check_moves(request, "memory", "sqlite", 0.25)


@pytest.mark.slow
@inputs(("first", "second"), combinations(KINDS, 2))
def test_a_history_goes_on_between_any_two_kinds(request: pytest.FixtureRequest, first: str, second: str) -> None:
    check_moves(request, first, second, 1.0)


def check_moves(request: pytest.FixtureRequest, first: str, second: str, share: float) -> None:
    kinds = KINDS[first], KINDS[second]
    openings: list[OpenBackend] = [kind.opening(request) for kind in kinds]
    check_copying(openings, share * min(kind.share for kind in kinds), min(kind.step_share for kind in kinds) / 2)


# -- interrupted, and in use ------------------------------------------------------------------------------------------


async def test_a_copy_that_broke_off_is_taken_up_again(open_kind: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await open_kind("sqlite"), await open_kind("memory")
    sessions = [await new_session(source, *talk(2)) for _ in range(40)]
    write, left = target.write_whole_tree, iter(range(23))

    async def write_some(copy: TreeCopy) -> Standing:
        if next(left, None) is None:
            raise StoreUnavailable("the disk is full")
        return await write(copy)

    monkeypatch.setattr(target, "write_whole_tree", write_some)
    await raises(StoreUnavailable, copy_store(Store(source), Store(target)), match="the disk is full")
    monkeypatch.setattr(target, "write_whole_tree", write)
    assert (await target.info()).sessions == 23
    report = await copied(source, target)
    assert (report.trees_unchanged, report.trees_copied) == (23, 17)
    assert {*await told(target)} == {session.id for session in sessions}
    assert await told(target) == await told(source)


@inputs("kind", MOST_KINDS)
async def test_a_tree_that_cannot_be_written_whole_is_not_written_at_all(open_kind: Opening, kind: str) -> None:
    source, target = await open_kind("sqlite"), await open_kind(kind)
    await new_session(source, *talk(4))
    (tree,) = await whole_trees(source)
    # An entry twice, and one that cannot be read: each kind of store trips over one of them.
    unreadable = tree.entries[-1]._replace(payload=None, packed=b"no zlib stream")
    with pytest.raises(CorruptStore):
        await target.write_whole_tree(replace(tree, entries=[*tree.entries[:-1], unreadable, tree.entries[0]]))
    assert (await target.info()).sessions == (await target.info()).ledger_rows == 0
    await copied(source, target)


async def test_a_copy_that_is_cancelled_is_taken_up_again(open_kind: Opening) -> None:
    source, target = await open_kind("sqlite"), await open_kind("sqlite")
    for _ in range(40):
        await new_session(source, *talk(2))
    seen: list[CopyProgress] = []
    task: asyncio.Task[object]

    def cancel(now: CopyProgress) -> None:
        seen.append(now)
        if now.entries:
            task.cancel()

    task = asyncio.create_task(copy_store(Store(source), Store(target), progress=cancel))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < (await target.info()).sessions < 40
    assert (await copied(source, target)).trees_copied > 0
    assert await told(target) == await told(source)


@inputs("kind", MOST_KINDS)
async def test_the_source_is_written_to_meanwhile_and_the_copy_catches_up(open_kind: Opening, kind: str) -> None:
    source, target = await open_kind(kind), await open_kind("sqlite")
    sessions = [(await new_session(source, *talk(4))).id for _ in range(9)]
    copying_is_over = asyncio.Event()

    async def write() -> int:
        rounds = 0
        while not copying_is_over.is_set() and rounds < MOST_ROUNDS:
            for session_id in sessions[::3]:
                await add(source, session_id, user(), assistant(tokens=1))
            rounds += 1
            sessions.append((await source.fork(sessions[rounds % 9], STORED, NewSession())).id)
            await source.delete_tree(sessions[-1]) if rounds % 3 == 0 else None
            await asyncio.sleep(0)
        return rounds

    writing = asyncio.create_task(write())
    report = await copy_store(Store(source), Store(target))
    copying_is_over.set()
    assert await writing > 0
    assert (report.refused, report.source_problems, report.target_problems) == ((), (), ())
    for session_id in sessions[:9]:
        there, here = await session_info(target, session_id), await session_info(source, session_id)
        assert there.revision <= here.revision
        leaf = await path_ids(target, session_id)
        assert (await path_ids(source, session_id))[: len(leaf)] == leaf
    caught_up = await copied(source, target)
    assert not caught_up.source_went_on
    assert await told(target) == await told(source)


async def test_a_report_says_that_the_source_went_on(open_kind: Opening) -> None:
    source, target = open_memory(counted_sources()), await open_kind("sqlite")
    session = await new_session(source, *talk(2))

    class GoesOn(Backend):
        async def list_gone_payers(self, after: int, limit: int) -> list[Any]:
            await add(source, session.id, user())
            return await source.list_gone_payers(after, limit)

    monkey = GoesOn(MemoryRunner(), counted_sources())
    for name in ("info", "list_trees", "read_whole_tree", "compare_trees", "verify"):
        setattr(monkey, name, getattr(source, name))
    report = await copy_store(Store(monkey), Store(target))
    assert report.source_went_on
    assert report.is_complete
    assert report.target.entries == 2
    assert not (await copy_store(Store(source), Store(target))).source_went_on


# -- what a report says -----------------------------------------------------------------------------------------------


async def test_progress_goes_up_to_all_there_is(open_kind: Opening) -> None:
    source, target = await open_kind("sqlite"), await open_kind("memory")
    session = await make_everything(source)
    for _ in range(30):
        await source.fork(session.id, STORED, NewSession())
        await new_session(source, *talk(3))
    seen: list[CopyProgress] = []
    report = await copy_store(Store(source), Store(target), progress=seen.append)
    info = await source.info()
    assert [now.phase for now in seen[-3:]] == ["copying", "verifying", "verifying"]
    assert (seen[-1].sessions, seen[-1].sessions_total, seen[-1].entries) == (
        info.sessions,
        info.sessions,
        info.entries,
    )
    assert (
        seen[-1].payload_bytes == report.payload_bytes == sum(tree.stored_bytes for tree in await whole_trees(source))
    )
    for name in ("sessions", "entries", "payload_bytes"):
        values = [getattr(now, name) for now in seen]
        assert values == sorted(values)


async def test_verifying_can_be_left_out(open_kind: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await open_kind("sqlite"), await open_kind("sqlite")
    await new_session(source, *talk(2))

    async def never() -> None:
        raise AssertionError("it was asked to verify")

    with monkeypatch.context() as patched:
        for backend in (source, target):
            patched.setattr(backend, "verify", never)
        report = await copy_store(Store(source), Store(target), verify=False)
    assert (report.is_complete, report.verified) == (True, False)


async def test_what_is_damaged_is_told_at_both_ends(tmp_path: Path) -> None:
    source = await open_sqlite(tmp_path / "a.db", sources=counted_sources())
    target = await open_sqlite(tmp_path / "b.db", sources=counted_sources())
    try:
        await new_session(source, *talk(2))
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute('UPDATE entries SET payload = \'{"role":"user"}\' WHERE depth = 0')
            connection.commit()
        report = await copy_store(Store(source), Store(target))
        assert not report.is_complete
        assert report.source_problems == report.target_problems != ()
    finally:
        await source.close()
        await target.close()


@inputs("own", [0, 1])
async def test_a_tree_that_did_not_arrive_is_a_wrong_count(
    open_kind: Opening, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    source, target = await open_kind("memory"), await open_kind("memory")
    await new_session(source, *talk(2))
    for number in range(own):
        await target.create_session(NewSession(id=f"own {number}"))

    async def write(_: TreeCopy) -> Standing:
        return Standing("missing")

    monkeypatch.setattr(target, "write_whole_tree", write)
    report = await copy_store(Store(source), Store(target))
    assert not report.is_complete
    assert {problem.kind for problem in report.target_problems} == {"wrong count"}
    assert {problem.where for problem in report.target_problems} >= {"entries", "paid calls"}


async def test_of_what_only_the_target_has_the_first_are_named(
    open_kind: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await open_kind("memory"), await open_kind("sqlite")
    await new_session(source, *talk(2))
    own = [(await target.create_session(NewSession(id=f"own {number}"))).id for number in range(5)]
    monkeypatch.setattr(copying, "LISTED", 3)
    report = await copied(source, target)
    assert (report.only_in_target, report.only_in_target_ids) == (5, tuple(own[:3]))
    assert (report.target.sessions, report.source.sessions) == (6, 1)


# -- where to ---------------------------------------------------------------------------------------------------------


async def test_a_store_is_not_copied_into_itself(tmp_path: Path) -> None:
    place, link = tmp_path / "a.db", tmp_path / "link.db"
    link.symlink_to(place)
    memory = Store(open_memory(counted_sources()))
    await raises(InvalidArgument, copy_store(memory, memory), match="same store")
    first = await open_sqlite(place, sources=counted_sources())
    others = [
        await open_sqlite(place, sources=counted_sources()),
        await open_sqlite(link, sources=counted_sources()),
        await open_engine(f"sqlite+aiosqlite:///{link}", sources=counted_sources()),
    ]
    try:
        for other in others:
            await raises(InvalidArgument, copy_store(Store(first), Store(other)), match="same store")
        other_memory = Store(open_memory(counted_sources()))
        assert (await copy_store(memory, other_memory)).is_complete
        assert (await copy_store(Store(first), other_memory)).is_complete
    finally:
        for backend in (first, *others):
            await backend.close()


async def test_two_stores_become_one(open_kind: Opening) -> None:
    one, two, both = await open_kind("sqlite"), await open_kind("memory"), await open_kind("sqlite")
    for backend, name in ((one, "one"), (two, "two")):
        await backend.create_session(NewSession(id=name, key="k", scope=name))
        await backend.append(name, [replace(new, id=f"{name}-{n}") for n, new in enumerate(talk(4))])
    await copied(one, both)
    assert (await copied(two, both)).only_in_target_ids == ("one",)
    assert await told(both) == await told(one) | await told(two)
    await add(two, "two", user())
    assert (await copied(two, both)).trees_refreshed == 1


async def test_a_copy_of_a_copy_is_a_copy_of_its_own(open_kind: Opening) -> None:
    first, second, third = [await open_kind("sqlite") for _ in range(3)]
    session = await new_session(first, *talk(2))
    await copied(first, second)
    await copied(second, third)
    await add(second, session.id, user())
    assert (await copied(second, third)).trees_refreshed == 1
    report = await copy_store(Store(first), Store(second))
    assert [refusal.session_id for refusal in report.refused] == [session.id]


@inputs("kind", [kind for kind in KINDS if kind != "memory"])
async def test_the_epoch_is_the_higher_of_both(open_kind: Opening, kind: str) -> None:
    source, target = await open_kind("memory"), await open_kind(kind)
    await new_session(source, user())
    await new_session(source, user())
    one, two = await whole_trees(source)
    await target.write_whole_tree(replace(one, epoch=5))
    await target.write_whole_tree(replace(two, epoch=3))
    leaf = two.sessions[0].leaf
    stamp = (await target.read_path(two.sessions[0].id)).stamp
    assert (stamp.leaf_id, stamp.epoch) == (leaf, 5)
    assert {tree.epoch for tree in await whole_trees(target)} == {5}


@pytest.mark.thorough
async def test_a_long_history_crosses_whole(open_kind: Opening) -> None:
    source, target = await open_kind("sqlite"), await open_kind("sqlite")
    session = await new_session(source, *talk(4_500))
    fork = await source.fork(session.id, (await path_ids(source, session.id))[4_000], NewSession())
    await add(source, fork.id, *talk(10))
    report = await copied(source, target)
    assert (report.entries, report.calls) == (4_510, 2_255)
    assert await told(target) == await told(source)


async def test_a_reader_of_a_copy_that_is_brought_up_to_date_is_told(open_kind: Opening) -> None:
    source, target = await open_kind("sqlite"), await open_kind("memory")
    session = await new_session(source, user())
    await copied(source, target)
    notifications = target.notifications(session.id)
    await anext(notifications)
    await add(source, session.id, user("more"))
    await copied(source, target)
    async with asyncio.timeout(30):
        await anext(notifications)
    assert len(await path_ids(target, session.id)) == 2


# -- The process that copies is killed within a transaction: another run completes it, and nothing is doubled -----


GUARD_SECONDS = 60

CHILD = """
import os, signal, sys
from flue_py.cli import main
from flue_py.db.ops import transfer as copying

write_calls, left = copying._write_calls, iter(range(int(sys.argv[3])))

def write_some(*arguments):
    written = write_calls(*arguments)
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return written

copying._write_calls = write_some
main(["copy", *sys.argv[1:3]])
"""


def copy_until_killed(source: Path, target: str, trees: int) -> None:
    """Run the command; it dies when it has written all of a tree but for the commit, ``trees`` trees before."""
    command = [sys.executable, "-c", CHILD, str(source), target, str(trees)]
    done = subprocess.run(command, capture_output=True, timeout=GUARD_SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


async def make_source(path: Path) -> Backend:
    source = await open_sqlite(path, sources=counted_sources())
    await make_everything(source)
    for _ in range(16):
        session = await new_session(source, *talk(4))
        fork = await source.fork(session.id, STORED, NewSession())
        await add(source, fork.id, *talk(2))
    return source


async def check_is_completed(source: Backend, target: Backend) -> None:
    """Copy again, and compare all there is."""
    there, all_of_them = (await target.info()).sessions, (await source.info()).sessions
    assert 0 < there < all_of_them
    assert (await target.verify()).problems == []
    report = await copied(source, target)
    assert report.trees_unchanged > 0
    assert report.sessions == all_of_them - there
    assert await told(target) == await told(source)
    rows = [[with_names(tree) for tree in await whole_trees(backend)] for backend in (source, target)]
    # Trees are listed in the order of their keys, which are drawn in another order there.
    assert sorted(map(str, rows[1])) == sorted(map(str, rows[0]))
    ours, theirs = await source.info(), await target.info()
    assert (theirs.entries, theirs.ledger_rows) == (ours.entries, ours.ledger_rows)


async def test_a_copy_to_a_file_that_is_killed_is_completed_by_another(tmp_path: Path) -> None:
    source = await make_source(tmp_path / "a.db")
    try:
        copy_until_killed(tmp_path / "a.db", str(tmp_path / "b.db"), 18)
        target = await open_sqlite(tmp_path / "b.db", sources=counted_sources())
        try:
            await check_is_completed(source, target)
        finally:
            await target.close()
    finally:
        await source.close()


@pytest.mark.slow
async def test_a_copy_to_postgresql_that_is_killed_again_and_again_is_completed_by_another(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    url = new_database()
    source = await make_source(tmp_path / "a.db")
    try:
        for _ in range(2):
            copy_until_killed(tmp_path / "a.db", url, 8)
        target = await open_engine(url, sources=counted_sources())
        try:
            await check_is_completed(source, target)
        finally:
            await target.close()
    finally:
        await source.close()
