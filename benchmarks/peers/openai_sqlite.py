"""`SQLiteSession` of the OpenAI Agents SDK: one connection per thread, an insert per message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.peers.protocol import Message, Place, output_tokens


async def open_peer(folder: Path) -> OpenAIPeer:
    """Open the store in ``folder``."""
    return OpenAIPeer(folder / "store.db")


class OpenAIPeer:
    """A database of the SDK. Each session has connections of its own; here they are closed together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[SQLiteSession] = []

    async def session(self, name: str) -> OpenAISession:
        session = SQLiteSession(name, self._path)
        self._opened.append(session)
        return OpenAISession(session, SQLiteSession(f"fork of {name}", self._path))

    async def close(self) -> None:
        for session in self._opened:
            session.close()


class OpenAISession:
    """A session of the SDK: a list of messages, and nothing else. Also how `SQLAlchemySession` is driven."""

    def __init__(self, session: Any, fork: Any) -> None:
        self.own = session
        self._fork = fork
        self.length = 0

    async def append(self, message: Message) -> None:
        await self.own.add_items([message])

    async def append_many(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), 1000):
            await self.own.add_items(list(messages[start : start + 1000]))

    async def load(self) -> int:
        return len(await self.own.get_items())

    async def place(self, before: int) -> Place:
        self.length = len(await self.own.get_items())
        return before

    async def fork(self, at: Place) -> None:
        items = await self.own.get_items()
        await self._fork.add_items(items[: int(at)])

    async def usage_since(self, since: Place) -> int:
        return output_tokens(await self.own.get_items(limit=self.length - int(since)))

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        await self.append_many(kept)

    async def context(self) -> int:
        return len(await self.own.get_items(limit=200))

    async def last(self, count: int) -> int:
        return len(await self.own.get_items(limit=count))
