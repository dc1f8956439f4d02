"""`AsyncSqliteSaver` of LangGraph: a checkpoint holds the whole state, and each step writes one.

The saver is driven by itself, with the state kept by the handle: a graph would read it before each step, and write
two or three checkpoints for each. Messages are those of LangChain, which a graph's own message state holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.protocol import Message, Place


async def open_peer(folder: Path) -> LangGraphPeer:
    """Open the store in ``folder``."""
    return await open_saver(folder, langchain_message)


async def open_saver(folder: Path, make: Callable[[Message], Any]) -> LangGraphPeer:
    """Open the store in ``folder``, for a state of messages that ``make`` makes."""
    stack = AsyncExitStack()
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "store.db")))
    await saver.setup()
    return LangGraphPeer(saver, stack, make)


class LangGraphPeer:
    """A saver, with its one connection."""

    def __init__(self, saver: AsyncSqliteSaver, stack: AsyncExitStack, make: Callable[[Message], Any]) -> None:
        self._saver = saver
        self._stack = stack
        self._make = make

    async def session(self, name: str) -> LangGraphSession:
        return LangGraphSession(self._saver, name, self._make)

    async def close(self) -> None:
        await self._stack.aclose()


class LangGraphSession:
    """A thread of checkpoints."""

    def __init__(self, saver: AsyncSqliteSaver, thread: str, make: Callable[[Message], Any]) -> None:
        self._saver = saver
        self._make = make
        self._thread = thread
        self._latest: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._state: list[Any] | None = None

    async def append(self, message: Message) -> None:
        state = await self._known_state()
        state.append(self._make(message))
        self._latest = await self._put(self._latest, state)

    async def append_many(self, messages: Sequence[Message]) -> None:
        # A checkpoint at the middle to fork from, and one at the end.
        state = await self._known_state()
        for half in (messages[: len(messages) // 2], messages[len(messages) // 2 :]):
            state += [self._make(message) for message in half]
            self._latest = await self._put(self._latest, state)

    async def load(self) -> int:
        return len(await self._read())

    async def place(self, before: int) -> Place:
        async for found in self._saver.alist(self._latest):
            if len(found.checkpoint["channel_values"]["messages"]) == before:
                return str(found.config["configurable"]["checkpoint_id"])
        raise LookupError(f"no checkpoint of {before} messages")

    async def fork(self, at: Place) -> None:
        config: Any = {"configurable": {"thread_id": self._thread, "checkpoint_ns": "", "checkpoint_id": str(at)}}
        found = await self._saver.aget_tuple(config)
        assert found is not None
        await self._put(found.config, found.checkpoint["channel_values"]["messages"])

    async def usage_since(self, since: Place) -> int:
        messages = await self._read()
        return sum(output_tokens(message) for message in messages[len(messages) // 2 :])

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        self._state = [self._make(message) for message in ({"role": "user", "content": summary}, *kept)]
        self._latest = await self._put(self._latest, self._state)

    async def context(self) -> int:
        return len(await self._read())

    async def last(self, count: int) -> int:
        return len((await self._read())[-count:])

    async def _known_state(self) -> list[Any]:
        if self._state is None:
            self._state = await self._read()
        return self._state

    async def _read(self) -> list[Any]:
        config: Any = {"configurable": {"thread_id": self._thread, "checkpoint_ns": ""}}
        found = await self._saver.aget_tuple(config)
        if found is None:
            return []
        self._latest = found.config
        messages: list[Any] = found.checkpoint["channel_values"]["messages"]
        return messages

    async def _put(self, parent: Any, state: list[Any]) -> Any:
        checkpoint = empty_checkpoint()
        step = len(state)
        checkpoint["channel_values"] = {"messages": state}
        checkpoint["channel_versions"] = {"messages": step}
        return await self._saver.aput(parent, checkpoint, {"source": "loop", "step": step}, {"messages": step})


def langchain_message(message: Message) -> BaseMessage:
    """Return a message as LangChain has it."""
    content, usage = message["content"], message.get("usage")
    if message["role"] == "user":
        return HumanMessage(content)
    if message["role"] == "toolResult":
        return ToolMessage(content, tool_call_id=message["toolCallId"])
    counts: Any = usage and {
        "input_tokens": usage["input"] + usage["cacheRead"],
        "output_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["cacheRead"] + usage["output"],
        "input_token_details": {"cache_read": usage["cacheRead"]},
    }
    return AIMessage(content, usage_metadata=counts, response_metadata={"model_name": message.get("model")})


def output_tokens(message: Any) -> int:
    """Return what a message says it used."""
    if isinstance(message, BaseMessage):
        counts = getattr(message, "usage_metadata", None)
        return int(counts["output_tokens"]) if counts else 0
    return int(message.get("usage", {}).get("output", 0))
