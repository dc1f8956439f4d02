"""flue_py itself, with an fsync per commit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import flue_py
from benchmarks.peers.protocol import Message, Place


async def open_peer(folder: Path) -> FluePeer:
    """Open the store in ``folder``."""
    stack = AsyncExitStack()
    return FluePeer(await stack.enter_async_context(flue_py.open(folder / "store.db", durability="full")), stack)


class FluePeer:
    """An open store of flue_py."""

    def __init__(self, store: flue_py.Store, stack: AsyncExitStack) -> None:
        self._store = store
        self._stack = stack

    async def session(self, name: str) -> FlueSession:
        """Make or open a session, whose key is the name."""
        return FlueSession(await self._store.open_session(name, mode="get_or_create"))

    async def append_together(self, sessions: Sequence[FlueSession], message: Message) -> None:
        """Append a message to each session, in one transaction."""
        async with self._store.atomic() as tx:
            for session in sessions:
                tx.append_message(session.own, message)

    async def close(self) -> None:
        """Close the store."""
        await self._stack.aclose()


class FlueSession:
    """A session of flue_py."""

    def __init__(self, session: flue_py.Session) -> None:
        self.own = session

    async def append(self, message: Message) -> None:
        await self.own.append_message(message)

    async def append_many(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), 1000):
            await self.own.append_messages(messages[start : start + 1000])

    async def load(self) -> int:
        return len(await self.own.build_context())

    async def place(self, before: int) -> Place:
        return (await self.own.get_active_path())[before - 1].id

    async def fork(self, at: Place) -> None:
        await self.own.fork(at=str(at))

    async def usage_since(self, since: Place) -> int:
        return (await self.own.money.aggregate_usage_since(str(since))).usage.output

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        first = (await self.own.append_messages(kept)).entry_ids[0]
        await self.own.append_compaction(summary, first_kept_entry_id=first, tokens_before=90_000)

    async def context(self) -> int:
        return len(await self.own.build_context())

    async def last(self, count: int) -> int:
        return len(await self.own.build_context(limit=count))
