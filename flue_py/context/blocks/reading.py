"""Asking blocks what they say, and giving them what was said: none of them breaks a turn, however it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias

from flue_py.context.blocks.plain import visible_line
from flue_py.context.blocks.protocol import Block, BlockFailure, BlockMoment, BlockText, Saving
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

MOST_CHARS = 100_000
"""How long the text of a block may be: what is longer belongs into a file that an agent reads."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")
_REASON_CHARS = 300

Said: TypeAlias = BlockText | None | BlockFailure
"""What a block says, None for nothing, or why that is unknown."""


def checked_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks as a list. Raises `InvalidArgument` for what is not one, and for two of the same name."""
    if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Iterable):
        raise InvalidArgument(f"blocks: {shown(blocks)} is not a list of blocks")
    found = list(blocks)
    names: set[str] = set()
    for block in found:
        name = getattr(block, "name", None)
        if not isinstance(name, str) or not callable(getattr(block, "read", None)) or isinstance(block, type):
            raise InvalidArgument(f"blocks: {shown(block)} is not a block; give it a name and read()")
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"blocks: {shown(name)} is not the name of a block; use small letters, digits, - and _, at most 50"
            )
        if name in names:
            raise InvalidArgument(f"blocks: there are two of the name {name!r}; give one of them another name")
        names.add(name)
    return found


async def read_blocks(blocks: Sequence[Block], patience: float) -> list[Said]:
    """Return what each block says, in their order. They are asked at the same time, and each has so many seconds."""
    found: list[Said] = [None] * len(blocks)

    async def read(number: int, block: Block) -> None:
        said = await _asked(block.name, "read", block.read, patience)
        found[number] = said if isinstance(said, BlockFailure) else _checked(block.name, said)

    async with _group() as group:
        for number, block in enumerate(blocks):
            group.start_soon(read, number, block)
    return found


async def save_turn(blocks: Sequence[Block], messages: Sequence[JsonObject], patience: float) -> list[BlockFailure]:
    """Give the messages of a turn to the blocks that save them, and return those that failed; as `read_blocks`."""
    failures: list[BlockFailure] = []

    async def save(name: str, block: Saving) -> None:
        given = [dict(message) for message in messages]
        outcome = await _asked(name, "save", lambda: block.save(given), patience)
        if isinstance(outcome, BlockFailure):
            failures.append(outcome)

    async with _group() as group:
        for block in blocks:
            if isinstance(block, Saving):
                group.start_soon(save, block.name, block)
    return failures


def _group() -> TaskGroup:
    from anyio import create_task_group  # noqa: PLC0415 - it takes 30 ms to load, and most programs have no blocks

    return create_task_group()


async def _asked(
    name: str, moment: BlockMoment, function: Callable[[], object], patience: float
) -> object | BlockFailure:
    from anyio import move_on_after  # noqa: PLC0415 - as above

    try:
        with move_on_after(patience):
            said = function()
            return await said if isawaitable(said) else said
    except Exception as error:  # noqa: BLE001 - whatever a block does, the turn goes on
        return BlockFailure(name, _reason(error), moment)
    return BlockFailure(name, f"gave no answer within {patience:g} seconds", moment)


def _checked(name: str, said: object) -> Said:
    if said is None:
        return None
    if (
        not isinstance(said, BlockText)
        or not isinstance(said.text, str)
        or not isinstance(said.same, (str, type(None)))
    ):
        return BlockFailure(name, f"read() returned {visible_line(shown(said), _REASON_CHARS)}, and not a BlockText")
    if len(said.text) > MOST_CHARS:
        return BlockFailure(name, f"its text has {len(said.text):,} characters; at most {MOST_CHARS:,} are told")
    return said if said.text.strip() else None


def _reason(error: Exception) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is one all the same
        said = ""
    return visible_line(f"{type(error).__name__}: {said}" if said else type(error).__name__, _REASON_CHARS)
