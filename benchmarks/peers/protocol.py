"""What the workload asks of a store. An adapter is one module with ``open_peer``, and uses the store's best way.

What a store has no operation for, its adapter does as a caller would have to (it copies, or sums); `stores` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

Message: TypeAlias = dict[str, Any]
Place: TypeAlias = str | int
"""What names a place in a history: an entry's id, or how many messages come before."""


class PeerSession(Protocol):
    """One session, by a handle that has read nothing yet."""

    async def append(self, message: Message) -> None:
        """Append one message; it is on the disk when this returns."""

    async def append_many(self, messages: Sequence[Message]) -> None:
        """Append many messages in as few steps as the store has. Prepares what is measured; is not measured."""

    async def load(self) -> int:
        """Read the whole history, decoded; return how many messages it has."""

    async def place(self, before: int) -> Place:
        """Return what names the place after so many messages. Not measured."""

    async def fork(self, at: Place) -> None:
        """Make a session, or a branch, that has what comes before the place."""

    async def usage_since(self, since: Place) -> int:
        """Return the output tokens of the messages after the place."""

    async def compact(self, summary: str, kept: Sequence[Message]) -> None:
        """Append these messages, and let a summary stand for what comes before. Not measured."""

    async def context(self) -> int:
        """Read what the model sees after `compact`, decoded; return how many messages."""

    async def last(self, count: int) -> int:
        """Read the last messages, decoded; return how many."""


class Peer(Protocol):
    """A store that is open."""

    async def session(self, name: str) -> PeerSession:
        """Make the session of this name, or open it."""

    async def close(self) -> None:
        """Close the store, with all that it still has to write."""


@runtime_checkable
class Together(Protocol):
    """A store that can append to several sessions as one; of others, a caller appends to each after the other."""

    async def append_together(self, sessions: Sequence[Any], message: Message) -> None:
        """Append a message to each session, to all or to none of them; it is on the disk when this returns."""


class OpenPeer(Protocol):
    """The function that each adapter module has: ``open_peer``."""

    async def __call__(self, folder: Path) -> Peer:
        """Open the store that has its files in this folder, or make it there."""


def output_tokens(messages: Sequence[Any]) -> int:
    """Return the sum of what the messages say they used."""
    return sum(message["usage"]["output"] for message in messages if "usage" in message)
