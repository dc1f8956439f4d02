"""flue_py itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flue_py
from benchmarks.peers.claims.measures import FILE, count, size
from flue_py import Session
from flue_py.db.migrate import migrate
from tests.migrations.later import later_version


def opened(folder: Path) -> Any:
    return flue_py.open(folder / FILE, prices=False)


def asked(text: str) -> Any:
    return {"role": "user", "content": text}


def answered(text: str, tokens: int = 7) -> Any:
    return {"role": "assistant", "content": text, "usage": {"totalTokens": tokens}}


async def texts(session: Session) -> list[Any]:
    return [message["content"] for message in await session.build_context()]


def files(folder: Path) -> list[str]:
    """Return the names of the files that are there when all is closed."""
    return [path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm", ".lock"))]


async def fork(folder: Path) -> None:
    """Yes. At any entry, as a session of its own; no entry is copied, whatever the length."""
    async with opened(folder) as store:
        session = await store.create_session()
        done = await session.append_messages([asked("one"), answered("two"), asked("three")])
        fork = await session.fork(at=done.entry_ids[1])
        assert await texts(fork) == ["one", "two"]
        assert count(folder, "entries") == 3


async def rewind(folder: Path) -> None:
    """Yes. To any entry; what came after stays, as a branch."""
    async with opened(folder) as store:
        session = await store.create_session()
        done = await session.append_messages([asked("one"), answered("two"), asked("three")])
        await session.rewind(to=done.entry_ids[1])
        await session.append_message(asked("other"))
        assert await texts(session) == ["one", "two", "other"]
        assert count(folder, "entries") == 4


async def undo(folder: Path) -> None:
    """Yes. `undo` and `redo`, and back to any line of the log; that is undone the same way."""
    async with opened(folder) as store:
        session = await store.create_session()
        await session.append_messages([asked("one"), answered("two")])
        await session.rewind(to=None)
        await session.undo()
        assert await texts(session) == ["one", "two"]
        await session.redo()
        assert await texts(session) == []


async def bills(folder: Path) -> None:
    """Yes. Every paid call is in the ledger once: after a fork, a rewind and a deletion, too."""
    async with opened(folder) as store:
        session = await store.create_session()
        await session.append_messages([asked("one"), answered("two", tokens=7)])
        await session.fork()
        await session.rewind(to=None)
        await store.delete_session_tree(session)
        assert (await store.usage()).total.total_tokens == 7


async def conflicts(folder: Path) -> None:
    """Yes. `LeafConflict` by the leaf that was read, not by a clock; or a branch, if that is asked for."""
    async with opened(folder) as store:
        one = await store.open_session("a", mode="create")
        other = await store.open_session("a")
        await one.append_message(asked("by one"))
        try:
            await other.append_message(asked("by the other"))
        except flue_py.LeafConflict:
            assert count(folder, "entries") == 1
            return
        raise AssertionError("two writers mixed")


async def deletion(folder: Path) -> None:
    """Yes. A session, and every entry that nobody else sees; what a fork sees stays."""
    async with opened(folder) as store:
        session = await store.create_session()
        done = await session.append_messages([asked("one"), answered("two"), asked("three")])
        fork = await session.fork(at=done.entry_ids[1])
        await store.delete_session_tree(session)
        assert await texts(fork) == ["one", "two"]
        assert count(folder, "entries") == 2


async def migration(folder: Path) -> None:
    """Yes. The version is stored; an older file is upgraded in place by a command, with a backup first."""
    async with opened(folder) as store:
        await (await store.create_session()).append_messages([asked("one"), answered("two")])
    with later_version(folder.with_name(f"{folder.name}-later")):
        done = await migrate(str(folder / FILE))
        assert done.found is not None
        assert done.found < done.format
        assert count(folder, "entries") == 2
    assert done.backup is not None
    assert sorted(files(folder)) == sorted([FILE, done.backup.name])


async def growth(folder: Path) -> None:
    """Yes. A row for each message: the second 1,000 take what the first did, and a fork at most three pages."""
    async with opened(folder) as store:
        session = await store.create_session()
        sizes = [size(folder)]
        for _ in range(2):
            await session.append_messages([asked("x" * 200)] * 1000)
            sizes.append(size(folder))
        assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])
        await session.fork()
        assert size(folder) - sizes[2] <= 3 * 4096
