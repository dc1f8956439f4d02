"""The blocking twin of flue_py, with an fsync per commit: nothing leaves the thread that calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import flue_py.sync
from benchmarks.peers.protocol import Message, Place


async def open_peer(folder: Path) -> TwinPeer:
    """Open the store in ``folder``."""
    stack = ExitStack()
    return TwinPeer(stack.enter_context(flue_py.sync.open(folder / "store.db", durability="full")), stack)


class TwinPeer:
    """An open store of flue_py.sync."""

    def __init__(self, store: flue_py.sync.Store, stack: ExitStack) -> None:
        self._store = store
        self._stack = stack

    async def session(self, name: str) -> TwinSession:
        """Make or open a session, whose key is the name."""
        return TwinSession(self._store.open_session(name, mode="get_or_create"))

    async def append_together(self, sessions: Sequence[TwinSession], message: Message) -> None:
        """Append a message to each session, in one transaction."""
        with self._store.atomic() as tx:
            for session in sessions:
                tx.append_message(session.own, message)

    async def close(self) -> None:
        """Close the store."""
        self._stack.close()


class TwinSession:
    """A session of flue_py.sync."""

    def __init__(self, session: flue_py.sync.Session) -> None:
        self.own = session

    async def append(self, message: Message) -> None:
        self.own.append_message(message)

    async def append_many(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), 1000):
            self.own.append_messages(messages[start : start + 1000])

    async def load(self) -> int:
        return len(self.own.build_context())

    async def place(self, before: int) -> Place:
        return self.own.get_active_path()[before - 1].id

    async def fork(self, at: Place) -> None:
        self.own.fork(at=str(at))

    async def usage_since(self, since: Place) -> int:
        return self.own.money.aggregate_usage_since(str(since)).usage.output

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        first = self.own.append_messages(kept).entry_ids[0]
        self.own.append_compaction(summary, first_kept_entry_id=first, tokens_before=90_000)

    async def context(self) -> int:
        return len(self.own.build_context())

    async def last(self, count: int) -> int:
        return len(self.own.build_context(limit=count))
