"""Telling a model what is beside the conversation: blocks, appended where they have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flue_py.core.frozen import changed
from flue_py.core.sessions import STORED, Appended, LeafChoice, OnConflict, check_name
from flue_py.errors import IdempotencyConflict
from flue_py.lazy import lazy_module
from flue_py.sessions.appending import Appending
from flue_py.sessions.arguments import checked_on_conflict, checked_patience, checked_seen

if TYPE_CHECKING:
    from flue_py.context.blocks import protocol, reading, telling
    from flue_py.context.blocks.protocol import Block, BlocksAppended
else:
    # Most sessions have no blocks, and a command should start without them.
    protocol = lazy_module("flue_py.context.blocks.protocol")
    reading = lazy_module("flue_py.context.blocks.reading")
    telling = lazy_module("flue_py.context.blocks.telling")

PATIENCE = 10.0
"""For how many seconds a block is waited for."""


class Telling(Appending):
    """The blocks of a `Session`."""

    __slots__ = ()

    async def append_blocks(
        self,
        blocks: Iterable[Block],
        *,
        patience: float = PATIENCE,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "raise",
        expected_leaf: LeafChoice = STORED,
        expected_revision: int | None = None,
    ) -> BlocksAppended:
        """Append what blocks say now, each of those of which the context does not show the same already.

        A block (`flue_py.context.blocks.Block`) says what a model should know beside the conversation: where it runs,
        what is remembered. What was told before is never rewritten, so that a request goes on beginning with the one
        before it; a block that a compaction or an exclusion has taken out of the context is told again. One that no
        longer says anything is withdrawn by a line. Each is a ``custom_message`` with the ``customType``
        ``block:NAME``, all in one append.

        Blocks are read at the same time, each for at most ``patience`` seconds. One that fails, or takes longer, is
        among the ``failures`` of what is returned, and raises nothing. A retry of an ``idempotency_key`` returns what
        was told first. Raises `InvalidArgument` for what is not a block; otherwise as `append_message`. The cost of the
        context, and of the blocks.
        """
        asked = reading.checked_blocks(blocks)
        checked_patience(patience)
        checked_on_conflict(on_conflict)
        check_name(idempotency_key, "idempotency_key")
        seen = checked_seen(expected_leaf, expected_revision)
        if idempotency_key is not None:
            first = await self._backend.recall_append(self._ref, idempotency_key)
            if first is not None:
                return await self._told_before(first, idempotency_key)
        await self._compare(seen)
        # No turn is held meanwhile: a block may ask this session, or take its time.
        said = await self._backend.waiting.ask(lambda: reading.read_blocks(asked, patience), None)
        read = await self._read_context(await self._leaf_before(None, on_conflict, seen))
        found = telling.to_tell(asked, said, telling.shown_blocks(read.items))
        if not found.entries:
            return protocol.BlocksAppended((), found.unchanged, found.failures)
        entries = [entry for _, entry, _ in found.entries]
        appended = await self._append(entries, on_conflict, idempotency_key, seen)
        told = tuple(
            protocol.BlockTold(name, entry_id, is_withdrawn)
            for (name, _, is_withdrawn), entry_id in zip(found.entries, appended.entry_ids, strict=True)
        )
        return protocol.BlocksAppended(told, found.unchanged, found.failures, appended)

    async def _told_before(self, first: Appended, idempotency_key: str) -> BlocksAppended:
        """Return the result of the first try. Raises `IdempotencyConflict` if that appended something else."""
        appended = changed(first, replayed=True)
        self._note_append(appended)
        told = []
        for entry in await self.get_entries(first.entry_ids):
            block = None if entry is None else telling.shown_block(entry.data)
            if entry is not None and block is None:
                raise IdempotencyConflict(self.id, idempotency_key)
            if entry is not None and block is not None:
                told.append(protocol.BlockTold(block.name, entry.id, not block.same))
        return protocol.BlocksAppended(tuple(told), appended=appended)
