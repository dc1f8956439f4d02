"""`AsyncSqliteSaver` of LangGraph: a checkpoint holds the whole state."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.claims.measures import FILE, columns, count, names_like, size, user_version

THREAD: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}


def saver(folder: Path) -> Any:
    return AsyncSqliteSaver.from_conn_string(str(folder / FILE))


async def put(own: AsyncSqliteSaver, below: Any, messages: Sequence[BaseMessage]) -> Any:
    """Write a checkpoint with this state below another, as a graph does after a step."""
    checkpoint = {**empty_checkpoint(), "channel_values": {"messages": list(messages)}}
    return await own.aput(below, checkpoint, {}, {})  # type: ignore[arg-type, typeddict-item]


async def texts(own: AsyncSqliteSaver, config: Any = THREAD) -> list[str]:
    found = await own.aget_tuple(config)
    return [str(each.content) for each in found.checkpoint["channel_values"]["messages"]] if found else []


async def fork(folder: Path) -> None:
    """In part. A checkpoint below any other is a branch of the same thread; copying a thread is not implemented."""
    async with saver(folder) as own:
        first = await put(own, THREAD, [HumanMessage("one")])
        await put(own, first, [HumanMessage("one"), HumanMessage("two")])
        await put(own, first, [HumanMessage("one"), HumanMessage("other")])
        assert await texts(own) == ["one", "other"]
        try:
            await own.acopy_thread("a", "b")
        except NotImplementedError:
            return
        raise AssertionError("a thread was copied")


async def rewind(folder: Path) -> None:
    """Yes. To any checkpoint, by its id; later ones stay."""
    async with saver(folder) as own:
        first = await put(own, THREAD, [HumanMessage("one")])
        second = await put(own, first, [HumanMessage("one"), HumanMessage("two")])
        assert await texts(own, first) == ["one"]
        await put(own, first, [HumanMessage("one"), HumanMessage("three")])
        assert await texts(own, second) == ["one", "two"]


async def undo(folder: Path) -> None:
    """In part. What was left is there for whoever has kept its id; the head is whichever checkpoint is newest."""
    async with saver(folder) as own:
        first = await put(own, THREAD, [HumanMessage("one")])
        left = await put(own, first, [HumanMessage("one"), HumanMessage("two")])
        await put(own, first, [HumanMessage("one"), HumanMessage("three")])
        assert names_like(own, "undo", "restore", "head") == []
        assert await texts(own) == ["one", "three"]
        assert await texts(own, left) == ["one", "two"]


async def bills(folder: Path) -> None:
    """No. Usage is in the messages, the same call in every checkpoint after it; it goes with the thread."""
    used: Any = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    async with saver(folder) as own:
        answer = AIMessage("answer", usage_metadata=used)
        first = await put(own, THREAD, [answer])
        await put(own, first, [answer, HumanMessage("more")])
        found = [each.checkpoint["channel_values"]["messages"][0] async for each in own.alist(THREAD)]
        assert [message.usage_metadata["total_tokens"] for message in found] == [7, 7]
        assert not [name for name in columns(folder) if "usage" in name or "token" in name or "cost" in name]


async def conflicts(folder: Path) -> None:
    """No. Two writers below one checkpoint both succeed; what the first one said is no longer in the thread's state."""
    async with saver(folder) as one, saver(folder) as other:
        asked = await put(one, THREAD, [HumanMessage("asked")])
        await put(one, asked, [HumanMessage("asked"), HumanMessage("by one")])
        await put(other, asked, [HumanMessage("asked"), HumanMessage("by the other")])
        assert await texts(one) == ["asked", "by the other"]


async def deletion(folder: Path) -> None:
    """Yes. `adelete_thread` deletes a thread with its branches, and no other; nothing smaller can be deleted."""
    async with saver(folder) as own:
        first = await put(own, THREAD, [HumanMessage("one")])
        await put(own, first, [HumanMessage("two")])
        await put(own, {"configurable": {"thread_id": "b", "checkpoint_ns": ""}}, [HumanMessage("other")])
        await own.adelete_thread("a")
        assert rows_of_threads(folder) == ["b"]


def rows_of_threads(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return [name for (name,) in connection.execute("SELECT thread_id FROM checkpoints")]


async def migration(folder: Path) -> None:
    """In part. One missing column is added when a file is opened; no version of the tables is stored."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(
            "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER, "
            "channel TEXT, type TEXT, value BLOB)"
        )
    async with saver(folder) as own:
        await own.setup()
    assert "task_path" in columns(folder)
    assert user_version(folder) == 0


async def growth(folder: Path) -> None:
    """No. Each checkpoint holds all messages: twice the steps are more than three times the file."""
    sizes = []
    async with saver(folder) as own:
        config, state = THREAD, list[BaseMessage]()
        for number in range(200):
            state.append(HumanMessage("x" * 200))
            config = await put(own, config, state)
            if number in (99, 199):
                sizes.append(size(folder))
    assert count(folder, "checkpoints") == 200
    assert sizes[1] > 3 * sizes[0]
