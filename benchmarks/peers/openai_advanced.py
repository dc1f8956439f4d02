"""`AdvancedSQLiteSession` of the OpenAI Agents SDK: branches that copy rows, and usage per turn."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from agents.extensions.memory import AdvancedSQLiteSession

from benchmarks.peers.protocol import Message, Place


async def open_peer(folder: Path) -> AdvancedPeer:
    """Open the store in ``folder``."""
    return AdvancedPeer(folder / "store.db")


class AdvancedPeer:
    """A database of the SDK. Each session has connections of its own; here they are closed together."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[AdvancedSQLiteSession] = []

    async def session(self, name: str) -> AdvancedSession:
        session = AdvancedSQLiteSession(session_id=name, db_path=self._path, create_tables=True)
        self._opened.append(session)
        return AdvancedSession(session, self._path)

    async def close(self) -> None:
        for session in self._opened:
            session.close()


class AdvancedSession:
    """A session with branches. Two messages are a turn here: what a user said, and the answer."""

    def __init__(self, session: AdvancedSQLiteSession, path: Path) -> None:
        self.own = session
        self._path = path

    async def append(self, message: Message) -> None:
        await self.own.add_items([message])  # type: ignore[list-item] # any dict is an item to the store

    async def append_many(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), 1000):
            await self.own.add_items(list(messages[start : start + 1000]))  # type: ignore[arg-type]
        used = [message["usage"] for message in messages[1::2] if "usage" in message]
        with closing(sqlite3.connect(self._path)) as connection, connection:
            # What store_run_usage writes for the result of a run, without the runs.
            connection.executemany(
                "INSERT OR REPLACE INTO turn_usage (session_id, user_turn_number, requests, input_tokens, "
                "output_tokens, total_tokens, input_tokens_details, output_tokens_details) VALUES (?,?,1,?,?,?,?,?)",
                [
                    (
                        self.own.session_id, turn, usage["input"], usage["output"], usage["totalTokens"],
                        json.dumps({"cached_tokens": usage["cacheRead"]}), '{"reasoning_tokens": 0}',
                    )
                    for turn, usage in enumerate(used, start=1)
                ],
            )  # fmt: skip

    async def load(self) -> int:
        return len(await self.own.get_items())

    async def place(self, before: int) -> Place:
        return before // 2

    async def fork(self, at: Place) -> None:
        await self.own.create_branch_from_turn(int(at) + 1)

    async def usage_since(self, since: Place) -> int:
        turns = await self.own.get_turn_usage()
        assert isinstance(turns, list)
        return sum(turn["output_tokens"] for turn in turns if turn["user_turn_number"] > int(since))

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        await self.own.add_items(list(kept))  # type: ignore[arg-type]

    async def context(self) -> int:
        return len(await self.own.get_items(limit=200))

    async def last(self, count: int) -> int:
        return len(await self.own.get_items(limit=count))
