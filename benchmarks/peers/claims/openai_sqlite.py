"""`SQLiteSession` of the OpenAI Agents SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.peers.claims.measures import FILE, columns, count, names_like, size, user_version


def session(folder: Path, name: str = "a") -> SQLiteSession:
    return SQLiteSession(name, folder / FILE)


def items(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def fork(folder: Path) -> None:
    """No. There is no fork: another session gets every item again, as rows of its own."""
    own, copy = session(folder), session(folder, "copy")
    await own.add_items(items("one", "two"))
    assert names_like(own, "fork", "branch") == []
    await copy.add_items(await own.get_items())
    assert count(folder, "agent_messages") == 4
    own.close(), copy.close()


async def rewind(folder: Path) -> None:
    """No. The one way back is `pop_item`, which deletes the newest row."""
    own = session(folder)
    await own.add_items(items("one", "two"))
    assert await own.pop_item() == items("two")[0]
    assert count(folder, "agent_messages") == 1
    own.close()


async def undo(folder: Path) -> None:
    """No. What was popped or cleared is deleted, and nothing brings it back."""
    own = session(folder)
    await own.add_items(items("one", "two"))
    await own.pop_item()
    await own.clear_session()
    assert count(folder, "agent_messages") == 0
    assert names_like(own, "undo", "restore") == []
    own.close()


async def bills(folder: Path) -> None:
    """No. No usage is stored: items have none, and there is no column for it."""
    own = session(folder)
    await own.add_items(items("one"))
    assert not [name for name in columns(folder) if "usage" in name or "token" in name or "cost" in name]
    own.close()


async def conflicts(folder: Path) -> None:
    """No. Two writers that have read the same history both append, and their items mix."""
    one, other = session(folder), session(folder)
    await one.add_items(items("asked"))
    assert await one.get_items() == await other.get_items()
    await one.add_items(items("by one"))
    await other.add_items(items("by the other"))
    assert await one.get_items() == items("asked", "by one", "by the other")
    one.close(), other.close()


async def deletion(folder: Path) -> None:
    """Yes. `clear_session` deletes the rows of one session, and no others."""
    own, other = session(folder), session(folder, "b")
    await own.add_items(items("one"))
    await other.add_items(items("two"))
    await own.clear_session()
    assert (count(folder, "agent_sessions"), count(folder, "agent_messages")) == (1, 1)
    own.close(), other.close()


async def migration(folder: Path) -> None:
    """No. Tables are made where they are missing; no version of them is stored."""
    own = session(folder)
    assert user_version(folder) == 0
    assert not [name for name in columns(folder) if "version" in name]
    own.close()


async def growth(folder: Path) -> None:
    """Yes. A row for each item: the second 1,000 take what the first did."""
    own = session(folder)
    sizes = [size(folder)]
    for _ in range(2):
        await own.add_items(items(*["x" * 200] * 1000))
        sizes.append(size(folder))
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])
    own.close()
