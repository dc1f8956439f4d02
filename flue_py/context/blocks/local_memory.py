"""What is remembered in a store, as a block that is read anew before each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import iscoroutinefunction
from typing import Protocol, cast

from flue_py.context.blocks.memory import MOST_MEMORY_CHARS, Remembered, memory_text
from flue_py.context.blocks.protocol import BlockText
from flue_py.errors import InvalidArgument, shown


class StoreOfMemories(Protocol):
    """A store, blocking or not."""

    @property
    def memories(self) -> Callable[..., Awaitable[Iterable[Remembered]] | Iterable[Remembered]]: ...


class LocalMemory:
    """The block ``memory`` of a store: what `Store.memories` has with the same arguments, read anew each time.

    As `memory_text` writes it, in at most ``most`` characters; ``dropped`` has the names of those for which there was
    no room when it was last read.
    """

    name = "memory"

    def __init__(
        self,
        store: StoreOfMemories,
        *,
        space: str = "repl",
        project: str = "",
        scope: str | None = None,
        initialized: bool = False,
        most: int = MOST_MEMORY_CHARS,
    ) -> None:
        if not callable(getattr(store, "memories", None)):
            raise InvalidArgument(f"store: {shown(store)} is not a store")
        memory_text([], most)
        self.dropped: tuple[str, ...] = ()
        self._ask = partial(store.memories, space=space, project=project, scope=scope, initialized=initialized)
        self._waits = iscoroutinefunction(store.memories)
        self._most = most

    async def read(self) -> BlockText | None:
        """Return the block, None if nothing is remembered. Raises as `Store.memories`. O(size of the memories)."""
        if self._waits:
            found = await cast("Awaitable[Iterable[Remembered]]", self._ask())
        else:
            from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

            # A store of flue_py.sync may have its event loop on this very thread, and would wait for itself.
            found = cast("Iterable[Remembered]", await run_sync(self._ask))
        told = memory_text(found, self._most)
        self.dropped = tuple(memory.name for memory in told.dropped)
        return BlockText(told.text) if told.text else None
