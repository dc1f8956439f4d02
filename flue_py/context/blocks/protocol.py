"""What a block is, and what comes of telling one."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import Appended

BlockMoment: TypeAlias = Literal["read", "save"]


@frozen
class BlockText:
    """What a block says now.

    ``same`` decides whether it has to be told again: what of the text counts as a change, None for all of it.
    """

    text: str
    same: str | None = None


class Block(Protocol):
    """Something that a model is told beside the conversation, under a name of its own."""

    @property
    def name(self) -> str:
        """A short name in small letters, digits, ``-`` and ``_``, such as ``environment``."""

    def read(self) -> Awaitable[BlockText | None] | BlockText | None:
        """Return what it says now, None if that is nothing. It may raise, and it may be cancelled where it takes long.

        On an event loop it must not block.
        """


@runtime_checkable
class Saving(Protocol):
    """A block that is given the messages of each turn when that is over."""

    def save(self, messages: Sequence[JsonObject]) -> Awaitable[None] | None:
        """Take the messages of a turn: what the user said, and what came of it. Otherwise as `Block.read`."""


@frozen
class BlockFailure:
    """A block that gave nothing, and why. What it said before stands."""

    name: str
    reason: str
    moment: BlockMoment = "read"

    def __str__(self) -> str:
        return f"block {self.name!r}, {self.moment}: {self.reason}"


@frozen
class BlockTold:
    """A block that was appended, and its entry. ``is_withdrawn`` says that it no longer has anything to say."""

    name: str
    entry_id: str
    is_withdrawn: bool = False


@frozen
class BlocksAppended:
    """What became of blocks: those that were told, in their order, those that say what they said before, and failures.

    ``appended`` is the append of all that were told, None if none were.
    """

    told: tuple[BlockTold, ...] = ()
    unchanged: tuple[str, ...] = ()
    failures: tuple[BlockFailure, ...] = ()
    appended: Appended | None = None
