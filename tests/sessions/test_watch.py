"""The change feed: resumable, gap-free, and alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

import flue_py
from flue_py import Change, InvalidArgument, Session, SessionNotFound, Store
from tests.sessions.talk import say, texts, user
from tests.tables import inputs

pytestmark = pytest.mark.anyio


async def watched(session: Session, count: int, after: int | None = None) -> list[Change]:
    """Return the next changes that a watcher sees."""
    seen: list[Change] = []
    async with aclosing(session.watch(after=after)) as changes:
        async for change in changes:
            seen.append(change)
            if len(seen) == count:
                break
    return seen


async def test_changes_come_in_order_and_page_by_page(session: Session) -> None:
    a, *_ = await say(session, "a", "b")
    await session.move_leaf(a)
    await session.set_title("t")
    changes = await session.changes()
    assert [(change.revision, change.reason) for change in changes] == [
        (1, "append"),
        (2, "append"),
        (3, "move"),
        (4, None),
    ]
    assert await session.changes(after=1, limit=2) == changes[1:3]
    assert await session.changes(after=4) == []
    assert texts(changes[0].entries) == ["a"]
    assert (changes[2].from_id, changes[2].to_id) == (changes[1].to_id, a)


@inputs(("after", "limit"), [(-1, 1), (True, 1), ("1", 1), (0, 0), (0, 1001)])
async def test_what_is_no_revision_or_page_is_refused(session: Session, after: object, limit: int) -> None:
    with pytest.raises(InvalidArgument):
        await session.changes(after=after, limit=limit)  # type: ignore[arg-type]


async def test_a_watcher_sees_what_was_and_what_comes(session: Session) -> None:
    await say(session, "a")
    watcher = asyncio.ensure_future(watched(session, 3, after=0))
    await say(session, "b")
    await session.undo()
    assert [change.reason for change in await watcher] == ["append", "append", "undo"]


async def test_a_watcher_starts_after_what_its_handle_knows(store: Store, session: Session) -> None:
    await say(session, "a")
    other = await store.get_session(session.id)
    assert other is not None
    watcher = asyncio.ensure_future(watched(other, 1))
    await say(session, "b")
    (change,) = await watcher
    assert texts(change.entries) == ["b"]
    assert other.leaf_id == change.from_id


async def test_a_watcher_sees_more_changes_than_fit_a_page(session: Session) -> None:
    for n in range(120):
        await session.append_message(user(str(n)))
    assert [change.revision for change in await watched(session, 120, after=0)] == list(range(1, 121))


async def test_a_watcher_of_a_deleted_session_is_told(store: Store, session: Session) -> None:
    await say(session, "a")
    watcher = asyncio.ensure_future(watched(session, 2, after=0))
    assert len(await watched(session, 1, after=0)) == 1
    await store.delete_session_tree(session)
    with pytest.raises(SessionNotFound):
        await watcher


async def test_a_watcher_ends_when_the_store_is_closed(target: str) -> None:
    saw_the_first = asyncio.Event()

    async def watch(session: Session) -> list[int]:
        revisions = []
        async for change in session.watch(after=0):
            revisions.append(change.revision)
            saw_the_first.set()
        return revisions

    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a")
        watcher = asyncio.ensure_future(watch(session))
        await saw_the_first.wait()
    assert await watcher == [1]


async def test_a_watcher_that_only_just_began_ends_when_the_store_is_closed(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
        await say(session, "a")
        watcher = asyncio.ensure_future(watched(session, 2, after=0))
        # One turn of the loop: the watcher has asked its first question, and waits for the answer.
        await asyncio.sleep(0)
    assert [change.revision for change in await watcher] in ([], [1])


async def test_a_store_that_is_closed_cannot_be_watched(target: str) -> None:
    async with flue_py.open(target) as store:
        session = await store.create_session()
    with pytest.raises(flue_py.StoreClosed):
        await watched(session, 1, after=0)


async def test_a_watcher_hears_of_another_store_on_the_same_file(tmp_path: Path, anyio_backend: str) -> None:
    path = tmp_path / "shared.db"
    async with flue_py.open(path) as ours, flue_py.open(path) as theirs:
        session = await ours.open_session("k", mode="create")
        watcher = asyncio.ensure_future(watched(session, 1))
        await say(await theirs.open_session("k"), "from elsewhere")
        (change,) = await watcher
    assert texts(change.entries) == ["from elsewhere"]


GUARD_SECONDS = 60
"""Turns a test that hangs into one that fails; nothing is measured with it."""

WRITER = """
import asyncio, sys
import flue_py

async def main(target, number):
    async with flue_py.open(target, durability="normal") as store:
        session = await store.open_session("k", mode="get")
        for n in range(number):
            print("ready", flush=True)
            sys.stdin.readline()
            await session.append_message({"role": "user", "content": str(n)})
            await session.append_message({"role": "user", "content": f"{n} again"})

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def writing(target: str, number: int) -> subprocess.Popen[str]:
    """A process that says "ready", and appends twice after each line it is told, so many times."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, target, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("target", ["sqlite", "postgres"], indirect=True)
async def test_a_watcher_hears_of_what_another_process_appends(target: str) -> None:
    async with flue_py.open(target, durability="normal") as store:
        session = await store.open_session("k", mode="create")
        seen: list[Change] = []
        with writing(target, 5) as writer:
            try:
                assert writer.stdin is not None
                assert writer.stdout is not None
                async with aclosing(session.watch(after=0)) as changes:
                    # Each time the watcher has seen everything, and waits, when the other process goes on.
                    for _ in range(5):
                        watching = asyncio.ensure_future(anext(changes))
                        assert await asyncio.to_thread(writer.stdout.readline) == "ready\n"
                        writer.stdin.write("go\n")
                        writer.stdin.flush()
                        async with asyncio.timeout(GUARD_SECONDS):
                            seen.append(await watching)
                            seen.append(await anext(changes))
                assert await asyncio.to_thread(writer.wait) == 0
            finally:
                writer.kill()
    assert [change.revision for change in seen] == list(range(1, 11))
    assert [text for change in seen for text in texts(change.entries)] == [
        text for n in range(5) for text in (str(n), f"{n} again")
    ]
