"""`SQLAlchemySession` of the OpenAI Agents SDK, on sqlite+aiosqlite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.exc import OperationalError

from benchmarks.peers.claims.measures import FILE, columns, count, names_like, size, user_version


@asynccontextmanager
async def session(folder: Path, name: str = "a") -> AsyncIterator[SQLAlchemySession]:
    own = SQLAlchemySession.from_url(name, url=f"sqlite+aiosqlite:///{folder / FILE}", create_tables=True)
    await own.get_items()
    yield own
    await own.engine.dispose()


def items(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def fork(folder: Path) -> None:
    """No. There is no fork: another session gets every item again, as rows of its own."""
    async with session(folder) as own, session(folder, "copy") as copy:
        await own.add_items(items("one", "two"))
        assert names_like(own, "fork", "branch") == []
        await copy.add_items(await own.get_items())
        assert count(folder, "agent_messages") == 4


async def rewind(folder: Path) -> None:
    """No. The one way back is `pop_item`, which deletes the newest row."""
    async with session(folder) as own:
        await own.add_items(items("one", "two"))
        assert await own.pop_item() == items("two")[0]
        assert count(folder, "agent_messages") == 1


async def undo(folder: Path) -> None:
    """No. What was popped or cleared is deleted, and nothing brings it back."""
    async with session(folder) as own:
        await own.add_items(items("one", "two"))
        await own.pop_item()
        await own.clear_session()
        assert count(folder, "agent_messages") == 0
        assert names_like(own, "undo", "restore") == []


async def bills(folder: Path) -> None:
    """No. No usage is stored: items have none, and there is no column for it."""
    async with session(folder) as own:
        await own.add_items(items("one"))
        assert not [name for name in columns(folder) if "usage" in name or "token" in name or "cost" in name]


async def conflicts(folder: Path) -> None:
    """No. Two writers that have read the same history both append, and their items mix."""
    async with session(folder) as one, session(folder) as other:
        await one.add_items(items("asked"))
        assert await one.get_items() == await other.get_items()
        await one.add_items(items("by one"))
        await other.add_items(items("by the other"))
        assert await one.get_items() == items("asked", "by one", "by the other")


async def deletion(folder: Path) -> None:
    """Yes. `clear_session` deletes the rows of one session, and no others."""
    async with session(folder) as own, session(folder, "b") as other:
        await own.add_items(items("one"))
        await other.add_items(items("two"))
        await own.clear_session()
        assert (count(folder, "agent_sessions"), count(folder, "agent_messages")) == (1, 1)


async def migration(folder: Path) -> None:
    """No. Tables are made if it is asked for, else they are yours to make; no version of them is stored."""
    async with session(folder):
        assert user_version(folder) == 0
        assert not [name for name in columns(folder) if "version" in name]
    bare = SQLAlchemySession.from_url("a", url=f"sqlite+aiosqlite:///{folder / 'bare.db'}")
    try:
        await bare.get_items()
    except OperationalError:
        return
    finally:
        await bare.engine.dispose()
    raise AssertionError("tables were made unasked")


async def growth(folder: Path) -> None:
    """Yes. A row for each item: the second 1,000 take what the first did."""
    async with session(folder) as own:
        sizes = [size(folder)]
        for _ in range(2):
            await own.add_items(items(*["x" * 200] * 1000))
            sizes.append(size(folder))
        assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])
