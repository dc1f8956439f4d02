"""What a model is told of memories: a line for each, under a header, and no more than there is room for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from flue_py.context.blocks.plain import visible, visible_line
from flue_py.core.frozen import frozen
from flue_py.errors import InvalidArgument, shown

MEMORY_HEADER = "MEMORY — facts recalled from prior sessions:"
MOST_MEMORY_CHARS = 8_000
_NAME_CHARS = 500


class Remembered(Protocol):
    """A fact that is remembered under a name, such as `flue_py.Document`."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def type(self) -> str:
        """What it is about, in one word."""

    @property
    def body(self) -> str:
        """What is remembered."""


Memory = TypeVar("Memory", bound=Remembered)


@frozen
class MemoryText(Generic[Memory]):
    """What is told of memories, "" if there are none, and which of them it has no room for."""

    text: str
    told: tuple[Memory, ...] = ()
    dropped: tuple[Memory, ...] = ()


def memory_text(memories: Iterable[Memory], most: int = MOST_MEMORY_CHARS) -> MemoryText[Memory]:
    """Return what a model is told of memories: a header, then ``[type] name: body`` for each, by type, then by name.

    It has at most ``most`` characters. Of a memory that does not fit in what the ones before it have left, the type and
    name stay where there is room for them, and the next one is tried; the header stays. Further lines of a body are
    indented, so that none of them passes for a memory of its own, and what a terminal would act on is replaced. Raises
    `InvalidArgument` for a limit that has no room for the header. Pure. O(size of the memories).
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < len(MEMORY_HEADER):
        raise InvalidArgument(f"most: {shown(most)} is no number of characters from {len(MEMORY_HEADER)} on")
    lines = [MEMORY_HEADER]
    left = most - len(MEMORY_HEADER)
    told: list[Memory] = []
    dropped: list[Memory] = []
    for memory in sorted(memories, key=lambda each: (each.type, each.name)):
        line = _line(memory)
        fits = 1 + len(line) <= left
        (told if fits else dropped).append(memory)
        if fits or 1 + len(line := _head(memory)) <= left:
            left -= 1 + len(line)
            lines.append(line)
    return MemoryText("\n".join(lines) if told or dropped else "", tuple(told), tuple(dropped))


def _line(memory: Remembered) -> str:
    body = "\n  ".join(visible(line) for line in memory.body.strip().splitlines())
    return f"{_head(memory)}: {body}"


def _head(memory: Remembered) -> str:
    return f"[{visible_line(memory.type, _NAME_CHARS)}] {visible_line(memory.name, _NAME_CHARS)}"
